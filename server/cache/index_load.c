/* Chunks at a start: many at once, so that each lock is taken once for all of them and the places
 * in the tables come into the caches while others are looked at.
 *
 * Invariants:
 *  1. Nobody reads the index yet, and nothing is evicted: what was found stays without a hold. So
 *     no stripe is taken, but for a look at what is packed, which may be unpacked; only threads
 *     that load chunks run beside this one. A single chunk may
 *     come while others are served (join.c): then the stripe of its object is held.
 *  2. A chunk is in table, residents and its object's count, or in none of them.
 *  3. CRCs that stand apart are not read at a start, but behind the first requests (sums.c): they
 *     are two thirds of the memory that it would have to touch.
 *
 * Life: load.c calls, objects first.
 * Failure: each record has its own error; one that fails leaves no trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/packed.h"
#include "server/cache/start.h"

enum { SPARES = 32 };                /* they are cleared at once, and still in the nearest cache */

struct work {
    struct directory *d;
    unsigned count, left;            /* left: records that were not read yet */
    void *spare[SPARES];             /* memory for whole chunks, of which most are, */
    unsigned spares, paid;           /* and how many are charged already */
    enum err *err;                   /* of each, as all that follows: */
    void *item[INDEX_LOADS];         /* the chunk, or the packed object that has it from now on */
    struct entry *owner[INDEX_LOADS]; /* NULL: it is packed */
    struct id data_id[INDEX_LOADS];
    uint64_t number[INDEX_LOADS];
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

/* What a packed object waits for. *packed: it has it, or the error; else it must be unpacked. */
static enum err fill_packed(struct work *w, unsigned i, struct packed *p,
                            const struct chunk_record *r, struct span crcs, bool *packed)
{
    struct cache *c = w->d->cache;
    char text[PACKED_TEXT];
    struct small s;

    *packed = true;
    if (packed_has_chunk(p))
        return ERR_RECORD;
    packed_read(p, &s, text);
    s.data_id = cache_data_id(c, &s.k, s.etag, s.size);
    if (!id_eq(s.data_id, w->data_id[i]) || w->number[i] != 0 || r->bytes != s.size)
        return ERR_RECORD;
    struct verdict v = rules_judge(c, &s.k);
    *packed = s.slot.dir == w->slot[i].dir && s.slot.class_ == r->slot.class_ &&
              r->present == 1 && v.section == s.section;
    if (!*packed)
        return OK;
    s.slot = w->slot[i];
    s.has_chunk = true;
    s.mark = r->mark;
    s.mark.flags &= (uint8_t)~MARK_PINNED; /* until quota_enter_packed() */
    s.mark.flags |= v.pinned ? MARK_PINNED : 0;
    s.mark.group = policy_group(c->policy, s.k.bucket, s.k.key, s.size);
    record_chunk_crcs(crcs, s.crc);
    packed_set(p, &s);
    w->item[i] = packed_item(p);
    return OK;
}

static enum err make_one(struct work *w, unsigned i, const struct chunk_record *r,
                         struct span crcs)
{
    struct directory *d = w->d;
    struct chunk *k;

    TRY(check(w->owner[i], w->data_id[i], w->number[i], r));
    TRY(make(w, r, crcs, &k));
    k->data_id = w->data_id[i];
    k->number = w->number[i];
    k->serial = w->owner[i]->serial;
    k->slot = w->slot[i];
    if (d->load.joins)
        policy_join(d->cache->policy, &k->mark);
    w->item[i] = k;
    return OK;
}

/* As fill_packed(), if it is packed; else the owner is known. */
static enum err find_owner(struct work *w, unsigned i, const struct chunk_record *r,
                           struct span crcs, bool *packed)
{
    struct cache *c = w->d->cache;
    struct index_shard *stripe = index_shard(c->stripe, r->object_id);
    enum err err = OK;

    *packed = false;
    if (w->d->load.joins) {          /* it is held, and nothing packed waits for a chunk */
        w->owner[i] = entry_of(c, r->object_id);
        return OK;
    }
    pthread_mutex_lock(&stripe->lock); /* another thread may have a dead generation's chunk */
    void *item = index_object_item(c, r->object_id);
    if (item && item_is_packed(item)) {
        err = fill_packed(w, i, item_packed(item), r, crcs, packed);
        item = *packed ? NULL : packed_unpack(c, item_packed(item));
    }
    pthread_mutex_unlock(&stripe->lock);
    w->owner[i] = item;
    return err;
}

/* The record's chunk, in no table. last: the owner of the record before, very often this one's. */
static enum err read_one(struct work *w, unsigned i, const struct handed *h, struct entry *last)
{
    struct chunk_record r;
    struct span crcs;

    w->owner[i] = NULL;
    if (h->key.len != CHANGE_KEY_BYTES)
        return ERR_RECORD;
    TRY(look(h, &r, &crcs));
    w->data_id[i] = key_id(h->key.at);
    w->number[i] = key_be64(h->key.at + 16);
    w->slot[i] = r.slot;
    w->slot[i].dir = (uint8_t)w->d->number;
    if (last && id_eq(last->o.id, r.object_id)) {
        w->owner[i] = last;
        return make_one(w, i, &r, crcs);
    }
    bool packed;
    enum err err = find_owner(w, i, &r, crcs, &packed);
    return packed ? err : make_one(w, i, &r, crcs);
}

static void unmake(struct cache *c, void *item)
{
    struct chunk *k = item;

    if (item_is_packed(item)) {
        packed_lose_chunk(item_packed(item));
        return;
    }
    index_uncharge(c, chunk_size(k->bytes));
    chunk_give(c, k);
}

/* ---- all of them ---- */
static void read_all(struct work *w, const struct handed *h)
{
    struct entry *last = NULL;

    for (unsigned i = 0; i < w->count; i++) {
        w->left = w->count - i;
        w->err[i] = read_one(w, i, &h[i], last);
        if (w->err[i] == OK)
            last = w->owner[i];
    }
    give_spares(w);
    for (unsigned i = 0; i < w->count; i++) {
        if (w->err[i] != OK)
            continue;
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
static enum err add_to_table(struct work *w, struct index_shard *s, unsigned i)
{
    if (index_chunk_item(s, w->data_id[i], w->number[i]))
        return ERR_RECORD;
    if (!index_reserve(w->d->cache, s))
        return ERR_MEMORY;
    index_table_add(&s->table, index_chunk_hash(w->data_id[i], w->number[i]), w->item[i]);
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
        uint16_t *to = &first[chunk_shard(c, w->data_id[i], w->number[i]) - c->chunk];
        next[i] = *to;
        *to = (uint16_t)i;
    }
    for (unsigned n = 0; n < CACHE_SHARDS; n++) {
        if (first[n] == UINT16_MAX)
            continue;
        pthread_mutex_lock(&c->chunk[n].lock);
        for (unsigned i = first[n]; i != UINT16_MAX; i = next[i])
            w->err[i] = add_to_table(w, &c->chunk[n], i);
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
            residents_remove(w->d->cache, w->slot[i], w->item[i]);
        if (steps > 0)
            space_give(w->d->space, w->slot[i]);
        unmake(w->d->cache, w->item[i]);
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
        quota_enter(c, w->item[i], v);
        left += !chunk_sums(w->item[i]);
        count++;
    }
    if (count > 0)
        entry_count(c, owner, (int)count);
    atomic_fetch_add(&c->chunk_count, count);
    atomic_fetch_add(&w->d->sums.left, left);
}

/* The others. */
static void enter_packed(struct work *w)
{
    struct cache *c = w->d->cache;
    unsigned count = 0;

    for (unsigned i = 0; i < w->count; i++) {
        if (w->err[i] != OK || w->owner[i])
            continue;
        quota_enter_packed(c, item_packed(w->item[i]));
        count++;
    }
    atomic_fetch_add(&c->object_count, count);
    atomic_fetch_add(&c->chunk_count, count);
}

static void tag_some(struct work *w, struct entry *owner, unsigned from, unsigned to)
{
    const struct object *o = &owner->o;
    uint64_t bytes = 0;

    for (unsigned i = from; i < to; i++)
        bytes += w->err[i] == OK ? ((struct chunk *)w->item[i])->bytes : 0;
    if (bytes == 0)
        return;
    uint16_t group = policy_group(w->d->cache->policy, object_bucket(o), object_key(o), bytes);
    for (unsigned i = from; i < to; i++)
        if (w->err[i] == OK)
            item_mark(w->item[i])->group = group;
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
    struct work w = {.d = d, .count = count, .err = out->err};
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
    residents_add_all(d, w.slot, w.item, count, w.err);
    drop_failed(&w, before, 1);
    memcpy(before, w.err, count * sizeof *before);
    add_all_to_tables(&w);
    drop_failed(&w, before, 2);
    each_object(&w, enter_some);
    enter_packed(&w);
    for (unsigned i = 0; i < count; i++)
        out->mark[i] = w.err[i] == OK ? item_mark(w.item[i]) : NULL;
}
