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

enum { SPARES = 32 };                /* they are cleared at once, and still in the nearest cache */

struct work {
    struct directory *d;
    unsigned count, left;            /* left: records that were not read yet */
    void *spare[SPARES];             /* memory for whole chunks, of which most are, */
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
        w->spares = chunk_take_heads(w->d->cache, (unsigned)min_u64(w->left, SPARES), w->spare);
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

/* A verified head alone is what a start hands over of a chunk whose CRCs come later (recover.c). */
static enum err look(const struct handed *h, struct chunk_record *r, struct span *crcs)
{
    if (!h->verified)
        return record_chunk_look(h->value, r, crcs);
    *crcs = span_make(NULL, 0);
    TRY(record_chunk_verified(h->value, r));
    return chunk_sums_size(r->bytes) == 0 ? ERR_RECORD : OK;
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
    TRY(look(h, &r, &crcs));
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
    struct id last = {0};

    for (unsigned i = 0; i < count; i++) {
        if (h[i].key.len != CHANGE_KEY_BYTES)
            continue;
        struct id data_id = key_id(h[i].key.at), object_id = record_chunk_object(h[i].value);
        uint64_t number = key_be64(h[i].key.at + 16);
        index_prefetch(chunk_shard(c, data_id, number), index_chunk_hash(data_id, number));
        if (!id_eq(object_id, last))
            index_prefetch(index_shard(c->object, object_id), index_hash(object_id));
        last = object_id;
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

/* Lock held. ERR_RECORD: there is one already; ERR_MEMORY. */
static enum err add_to_table(struct cache *c, struct index_shard *s, struct chunk *k)
{
    uint64_t hash = index_chunk_hash(k->data_id, k->number);
    uint32_t at = index_table_home(&s->table, hash);
    struct chunk *there;

    while ((there = index_table_next(&s->table, hash, &at)))
        if (there->number == k->number && id_eq(there->data_id, k->data_id))
            return ERR_RECORD;
    if (!index_reserve(c, s))
        return ERR_MEMORY;
    index_table_add(&s->table, hash, k);
    return OK;
}

/* Shard by shard: a lock that other threads take as well costs more than what is done under it. */
static void add_all_to_tables(struct work *w)
{
    struct cache *c = w->d->cache;
    uint16_t first[CACHE_SHARDS], next[INDEX_LOADS];

    memset(first, 0xff, sizeof first);
    for (unsigned i = w->count; i-- > 0;) {
        if (w->err[i] != OK)
            continue;
        uint16_t *to = &first[chunk_shard(c, w->chunk[i]->data_id, w->chunk[i]->number) - c->chunk];
        next[i] = *to;
        *to = (uint16_t)i;
    }
    for (unsigned n = 0; n < CACHE_SHARDS; n++) {
        if (first[n] == UINT16_MAX)
            continue;
        pthread_mutex_lock(&c->chunk[n].lock);
        for (unsigned i = first[n]; i != UINT16_MAX; i = next[i])
            w->err[i] = add_to_table(c, &c->chunk[n], w->chunk[i]);
        pthread_mutex_unlock(&c->chunk[n].lock);
    }
}

/* Those that were good before a step and failed in it leave what the steps before gave them. */
static void drop_failed(struct work *w, const enum err *before, unsigned steps)
{
    if (memcmp(before, w->err, w->count * sizeof *before) == 0)
        return;                      /* nearly always */
    for (unsigned i = 0; i < w->count; i++) {
        if (before[i] != OK || w->err[i] == OK)
            continue;
        if (steps > 1)
            residents_remove(w->d->cache, w->chunk[i]);
        if (steps > 0)
            space_give(w->d->space, w->slot[i]);
        unmake(w->d->cache, w->chunk[i]);
    }
}

/* Behind this those chunks of one object that are OK belong to the index. */
static void enter_some(struct work *w, struct entry *owner, unsigned from, unsigned to)
{
    struct cache *c = w->d->cache;
    const struct object *o = &owner->o;
    unsigned count = 0, left = 0;

    struct verdict v = quota_judge(c, o);
    for (unsigned i = from; i < to; i++) {
        if (w->err[i] != OK)
            continue;
        quota_enter(c, w->chunk[i], v);
        left += !chunk_sums(w->chunk[i]);
        count++;
    }
    if (count > 0)
        entry_count(c, owner, (int)count);
    atomic_fetch_add(&c->chunk_count, count);
    atomic_fetch_add(&w->d->sums.left, left);
}

static void tag_some(struct work *w, struct entry *owner, unsigned from, unsigned to)
{
    const struct object *o = &owner->o;
    uint64_t bytes = 0;

    for (unsigned i = from; i < to; i++)
        bytes += w->err[i] == OK ? w->chunk[i]->bytes : 0;
    if (bytes == 0)
        return;
    uint16_t group = policy_group(w->d->cache->policy, object_bucket(o), object_key(o), bytes);
    for (unsigned i = from; i < to; i++)
        if (w->err[i] == OK)
            w->chunk[i]->mark.group = group;
}

/* What is asked once for the chunks that an object has one after another. */
static void each_object(struct work *w, void (*step)(struct work *w, struct entry *owner,
                                                     unsigned from, unsigned to))
{
    for (unsigned from = 0, to; from < w->count; from = to) {
        for (to = from + 1; to < w->count && w->owner[to] == w->owner[from]; to++)
            ;
        if (w->owner[from])
            step(w, w->owner[from], from, to);
    }
}

void index_load_chunks(struct directory *d, const struct handed *h, unsigned count,
                       struct index_loaded *out)
{
    struct work w = {.d = d, .count = count, .chunk = out->chunk, .err = out->err};
    enum err before[INDEX_LOADS];

    must(count <= INDEX_LOADS);
    if (count > 1) {                 /* else it has its price, and tables may be changing */
        prefetch_all(d->cache, h, count);
        prefetch_owners(d->cache, h, count);
    }
    read_all(&w, h);
    memcpy(before, w.err, count * sizeof *before);
    space_claim_all(d->space, w.slot, count, w.err);
    drop_failed(&w, before, 0);
    each_object(&w, tag_some);
    memcpy(before, w.err, count * sizeof *before);
    residents_add_all(d, w.chunk, count, w.err);
    drop_failed(&w, before, 1);
    memcpy(before, w.err, count * sizeof *before);
    add_all_to_tables(&w);
    drop_failed(&w, before, 2);
    each_object(&w, enter_some);
}
