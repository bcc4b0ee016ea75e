/* Chunks at a start: many at once, so that each lock is taken once for all of them and the places
 * in the tables come into the caches while others are looked at.
 *
 * Invariants:
 *  1. Nobody reads the index yet, and nothing is evicted: what was found stays without a hold. So
 *     no stripe is taken; only threads that load chunks run beside this one. A single chunk may
 *     come while others are served (join.c): then the stripe of its object is held.
 *  2. A chunk is in table, residents and its object's count, or in none of them.
 *  3. CRCs that stand apart are not read at a start, but behind the first requests (sums.c): they
 *     are two thirds of the memory that it would have to touch.
 *
 * Life: load.c calls, objects first.
 * Failure: each record has its own error; one that fails leaves no trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/start.h"

struct work {
    struct directory *d;
    unsigned count, left;            /* left: records that were not read yet */
    void *spare[INDEX_LOADS];        /* memory for whole chunks, of which most are, */
    unsigned spares, paid;           /* and how many are charged already */
    enum err *err;                   /* of each */
    struct chunk **chunk;
    struct entry *owner[INDEX_LOADS];
    struct slot slot[INDEX_LOADS];
};

/* ---- one record ---- */
static enum err check(const struct entry *e, struct id data_id, uint64_t number,
                      const struct chunk_record *r)
{
    if (!e || !id_eq(e->o.data_id, data_id) ||
        number >= (e->o.size + CHUNK_BYTES - 1) / CHUNK_BYTES)
        return ERR_RECORD;
    /* An upload's last chunk may stand in a slot for a whole one. */
    return r->bytes == object_chunk_bytes(&e->o, number) && r->slot.class_ >= space_class(r->bytes)
        ? OK : ERR_RECORD;
}

/* A whole chunk's comes from the spares: a lock for each would be a twentieth of a start. */
static struct chunk *take_chunk(struct work *w, uint32_t bytes)
{
    if (w->d->load.joins)
        return chunk_take(w->d->cache, bytes);
    if (bytes != CHUNK_BYTES)
        return chunk_take_head(w->d->cache, bytes);
    if (w->spares == 0)
        w->spares = chunk_take_heads(w->d->cache, w->left, w->spare);
    return w->spares > 0 ? w->spare[--w->spares] : NULL;
}

static void give_paid(struct work *w)
{
    index_uncharge_many(w->d->cache, chunk_size(CHUNK_BYTES), w->paid);
    w->paid = 0;
}

/* For all that are to come, where there is plenty of room: one by one all threads would write the
 * line on which the charge stands. Nobody is refused what another one has too much of. */
static bool charge(struct work *w, uint32_t bytes)
{
    struct cache *c = w->d->cache;

    if (bytes == CHUNK_BYTES && w->paid == 0 &&
        index_charge_plenty(c, chunk_size(bytes), w->left))
        w->paid = w->left;
    if (bytes == CHUNK_BYTES && w->paid > 0) {
        w->paid--;
        return true;
    }
    if (index_charge_free(c, chunk_size(bytes)))
        return true;
    if (w->paid == 0)
        return false;
    give_paid(w);
    return index_charge_free(c, chunk_size(bytes));
}

static void give_spares(struct work *w)
{
    give_paid(w);
    while (w->spares > 0)
        chunk_give(w->d->cache, w->spare[--w->spares]);
}

static enum err make(struct work *w, const struct chunk_record *r, struct span crcs,
                     struct chunk **out)
{
    struct cache *c = w->d->cache;

    if (!charge(w, r->bytes))
        return ERR_MEMORY;
    struct chunk *k = take_chunk(w, r->bytes);
    if (!k) {
        index_uncharge(c, chunk_size(r->bytes));
        return ERR_MEMORY;
    }
    k->object_id = r->object_id;
    k->mark = r->mark;
    k->state = CHUNK_RECORDED;
    atomic_init(&k->holds, 1);
    atomic_init(&k->present, r->present);
    if (chunk_sums(k))
        record_chunk_crcs(crcs, chunk_sums(k));
    *out = k;
    return OK;
}

/* A head alone is what a start hands over of a chunk whose CRCs come later (recover.c). */
static enum err look(const struct directory *d, struct span value, struct chunk_record *r,
                     struct span *crcs)
{
    if (value.len != RECORD_CHUNK_HEAD_BYTES)
        return record_chunk_look(value, r, crcs);
    *crcs = span_make(NULL, 0);
    TRY(record_chunk_head(value, r));
    return d->load.joins || chunk_sums_size(r->bytes) == 0 ? ERR_RECORD : OK;
}

/* The record's chunk, in no table. last: the owner of the record before, very often this one's. */
static enum err read_one(struct work *w, const struct handed *h, struct entry *last,
                         struct entry **owner, struct chunk **out)
{
    struct directory *d = w->d;
    struct cache *c = d->cache;
    struct chunk_record r;
    struct span crcs;

    if (h->key.len != CHANGE_KEY_BYTES)
        return ERR_RECORD;
    TRY(look(d, h->value, &r, &crcs));
    struct id data_id = key_id(h->key.at);
    uint64_t number = key_be64(h->key.at + 16);
    *owner = last && id_eq(last->o.id, r.object_id) ? last : entry_of(c, r.object_id);
    TRY(check(*owner, data_id, number, &r));
    TRY(make(w, &r, crcs, out));
    struct chunk *k = *out;
    k->data_id = data_id;
    k->number = number;
    k->serial = (*owner)->serial;
    k->slot = r.slot;
    k->slot.dir = (uint8_t)d->number;
    if (d->load.joins)
        policy_join(c->policy, &k->mark);
    return OK;
}

static void unmake(struct cache *c, struct chunk *k)
{
    index_uncharge(c, chunk_size(k->bytes));
    chunk_give(c, k);
}

/* ---- all of them ---- */
static void read_all(struct work *w, const struct handed *h)
{
    struct entry *last = NULL;

    for (unsigned i = 0; i < w->count; i++) {
        w->left = w->count - i;
        w->err[i] = read_one(w, &h[i], last, &w->owner[i], &w->chunk[i]);
        if (w->err[i] == OK)
            last = w->owner[i];
    }
    give_spares(w);
    for (unsigned i = 0; i < w->count; i++) {
        if (w->err[i] != OK)
            continue;
        w->slot[i] = w->chunk[i]->slot;
        space_prefetch(w->d->space, w->slot[i]);
        residents_prefetch(&w->d->residents, w->slot[i].page);
    }
}

static void prefetch_all(struct cache *c, const struct handed *h, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (h[i].key.len != CHANGE_KEY_BYTES)
            continue;
        struct id data_id = key_id(h[i].key.at), object_id = record_chunk_object(h[i].value);
        uint64_t number = key_be64(h[i].key.at + 16);
        index_prefetch(chunk_shard(c, data_id, number), index_chunk_hash(data_id, number));
        index_prefetch(index_shard(c->object, object_id), index_hash(object_id));
    }
}

/* Their objects, once the places in the table are here. */
static void prefetch_owners(struct cache *c, const struct handed *h, unsigned count)
{
    struct id last = {0};

    for (unsigned i = 0; i < count; i++) {
        struct id object_id = record_chunk_object(h[i].value);
        if (!id_eq(object_id, last))
            entry_prefetch(c, object_id);
        last = object_id;
    }
}

/* ERR_RECORD: there is one already; ERR_MEMORY. */
static enum err add_to_table(struct cache *c, struct chunk *k)
{
    struct index_shard *s = chunk_shard(c, k->data_id, k->number);
    uint64_t hash = index_chunk_hash(k->data_id, k->number);
    struct chunk *there;

    pthread_mutex_lock(&s->lock);
    uint32_t at = index_table_home(&s->table, hash);
    while ((there = index_table_next(&s->table, hash, &at)))
        if (there->number == k->number && id_eq(there->data_id, k->data_id))
            break;
    enum err err = there ? ERR_RECORD : index_reserve(c, s) ? OK : ERR_MEMORY;
    if (err == OK)
        index_table_add(&s->table, hash, k);
    pthread_mutex_unlock(&s->lock);
    return err;
}

/* The policy is asked once for the chunks that an object has one after another. */
static void tag_groups(struct cache *c, const struct work *w)
{
    for (unsigned from = 0, to; from < w->count; from = to) {
        uint64_t bytes = 0;
        for (to = from; to < w->count && w->owner[to] == w->owner[from]; to++)
            bytes += w->err[to] == OK ? w->chunk[to]->bytes : 0;
        if (bytes == 0)
            continue;
        const struct object *o = &w->owner[from]->o;
        uint16_t group = policy_group(c->policy, o->bucket, o->key, bytes);
        for (unsigned i = from; i < to; i++)
            if (w->err[i] == OK)
                w->chunk[i]->mark.group = group;
    }
}

/* Behind this a chunk that is OK belongs to the index. */
static void enter_all(struct work *w)
{
    struct cache *c = w->d->cache;
    uint64_t entered = 0, left = 0;

    for (unsigned i = 0; i < w->count; i++) {
        if (w->err[i] != OK)
            continue;
        w->err[i] = add_to_table(c, w->chunk[i]);
        if (w->err[i] != OK) {
            residents_remove(c, w->chunk[i]);
            space_give(w->d->space, w->slot[i]);
            unmake(c, w->chunk[i]);
            continue;
        }
        entry_count(c, w->owner[i], 1);
        quota_enter(c, w->chunk[i], &w->owner[i]->o);
        entered++;
        left += !chunk_sums(w->chunk[i]);
    }
    atomic_fetch_add(&c->chunk_count, entered);
    atomic_fetch_add(&w->d->sums.left, left);
}

/* Those that were held before a step and failed in it leave. */
static void drop_failed(struct work *w, const bool *held, bool slot_too)
{
    for (unsigned i = 0; i < w->count; i++) {
        if (!held[i] || w->err[i] == OK)
            continue;
        if (slot_too)
            space_give(w->d->space, w->slot[i]);
        unmake(w->d->cache, w->chunk[i]);
    }
}

static void note_held(const struct work *w, bool *held)
{
    for (unsigned i = 0; i < w->count; i++)
        held[i] = w->err[i] == OK;
}

void index_load_chunks(struct directory *d, const struct handed *h, unsigned count,
                       struct index_loaded *out)
{
    struct work w = {.d = d, .count = count, .chunk = out->chunk, .err = out->err};
    bool held[INDEX_LOADS];

    must(count <= INDEX_LOADS);
    if (count > 1) {                 /* else it has its price, and tables may be changing */
        prefetch_all(d->cache, h, count);
        prefetch_owners(d->cache, h, count);
    }
    read_all(&w, h);
    note_held(&w, held);
    space_claim_all(d->space, w.slot, count, w.err);
    drop_failed(&w, held, false);
    tag_groups(d->cache, &w);
    note_held(&w, held);
    residents_add_all(d, w.chunk, count, w.err);
    drop_failed(&w, held, true);
    enter_all(&w);
}
