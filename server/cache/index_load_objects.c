/* Objects at a start: records become entries, or packed objects at once.
 *
 * Invariants:
 *  1. One thread per object; nobody reads the index yet, or, where a directory joins while others
 *     are served, the stripe is held.
 *  2. The freshest directory is read first; of two records of a generation the later one is right.
 *  3. What has no chunk when all were read leaves, but for size 0.
 *
 * Life: load.c and join.c call.
 * Failure: a record that does not fit leaves no trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/packed.h"

enum { SWEEP_AHEAD = 32 };

static enum err load_new(struct directory *d, struct okey k, const struct object_record *r,
                         struct entry **out)
{
    struct object_facts f = {
        .size = r->size,
        .last_modified_s = r->last_modified_s,
        .asked_ms = r->checked_ms,
        .etag = r->etag,
        .headers = r->headers,
        .flags = r->flags,
    };
    struct cache *c = d->cache;
    k.key_stripe = index_key_stripe(c, &k);
    struct entry *e = words_fit(&k, &f) ? entry_restore(c, &k, &f) : NULL;

    if (!e)
        return ERR_MEMORY;
    e->o.data_id = r->data_id;
    e->serial = atomic_fetch_add(&c->serial, 1);
    e->commit = r->commit;
    atomic_store(&e->vouched, r->commit);
    atomic_store(&e->saved_s, (uint32_t)(r->checked_ms / 1000));
    if (r->read_s)
        atomic_store(&e->read_s, (uint32_t)r->read_s);
    atomic_store(&e->saved_read_s, atomic_load(&e->read_s));
    entry_recorded(e, r, d->number);
    *out = e;
    return OK;
}

/* Most small ones are packed from the start, and wait for their chunk. false: this one is not. */
static bool load_packed(struct directory *d, const struct okey *k, const struct object_record *r,
                        bool doubt)
{
    struct cache *c = d->cache;
    struct index_shard *s = index_shard(c->object, k->id);
    struct small x = {
        .k = *k, .data_id = r->data_id, .size = r->size, .modified_s = r->last_modified_s,
        .checked_ms = r->checked_ms, .vouched = r->commit, .etag = r->etag,
        .headers = r->headers, .flags = (r->flags & (OBJECT_DOUBT | OBJECT_STABLE)) |
                                        (doubt ? OBJECT_DOUBT : 0),
        .saved_s = (uint32_t)(r->checked_ms / 1000), .doubted = r->flags & OBJECT_DOUBT,
        .read_s = (uint32_t)(r->read_s ? r->read_s : r->checked_ms / 1000),
        .slot.dir = (uint8_t)d->number,
    };

    /* A place in residents is all that its chunk will take. */
    if (atomic_load(&c->index_bytes) + atomic_load(&c->packing.packed) * sizeof(void *) >=
        index_limit(c))
        return false;
    x.saved_read_s = x.read_s;
    x.section = rules_judge(c, k).section;
    struct packed *p = small_fits(c, &x) ? packed_make(c, &x) : NULL;
    if (!p)
        return false;
    pthread_mutex_lock(&s->lock);
    bool fits = index_reserve(c, s);
    if (fits)
        index_table_add(&s->table, index_hash(k->id), packed_item(p));
    pthread_mutex_unlock(&s->lock);
    if (!fits)
        packed_give(c, p);
    return fits;
}

/* Another directory has a later record of the same generation. */
static void follow(struct entry *e, const struct object_record *r)
{
    e->commit = r->commit;
    atomic_store(&e->vouched, r->commit);
    atomic_fetch_and(&e->o.flags, ~(uint32_t)OBJECT_DOUBT);
    atomic_fetch_or(&e->o.flags, r->flags & OBJECT_DOUBT);
}

/* For all that the index says it has, but those of packed objects, which have it. */
static bool has_room_for_chunks(const struct directory *d)
{
    const struct cache *c = d->cache;
    uint64_t packed = min_u64(atomic_load(&c->packing.packed), d->load.chunks_said);
    uint64_t room = (d->load.chunks_said - packed) * chunk_size(CHUNK_BYTES);

    return atomic_load(&c->index_bytes) + room <= index_limit(c);
}

enum err index_load_object(struct directory *d, struct id id, const struct object_record *r,
                           bool doubt)
{
    struct cache *c = d->cache;
    struct entry *e, *old = entry_of(c, id);

    if (old && id_eq(old->o.data_id, r->data_id)) {
        if (!doubt && r->commit > old->commit)
            follow(old, r);
        entry_recorded(old, r, d->number);
        return OK;
    }
    /* A fresher directory was read before; among equals the later record is the true one. */
    if (old && (doubt || old->commit >= r->commit))
        return ERR_CHANGED;
    struct okey k = {.bucket = r->bucket, .key = r->key, .version = r->version, .id = id};
    if (c->server->store_count > 1)
        index_find_store(c, &k);
    if (!old && !d->load.joins && load_packed(d, &k, r, doubt))
        return OK;
    /* Objects are loaded first; some room must be left for their chunks. */
    if (atomic_load(&c->index_bytes) > c->index_limit_bytes / 4 * 3 && !has_room_for_chunks(d))
        return ERR_MEMORY;
    TRY(load_new(d, k, r, &e));
    if (doubt || (r->flags & OBJECT_DOUBT))
        atomic_fetch_or(&e->o.flags, OBJECT_DOUBT);
    if (!entry_install(c, e, &old)) {
        entry_free(c, e);
        return ERR_MEMORY;
    }
    object_drop(c, &e->o);
    if (old) {
        struct reap dead = entry_retire(c, old);
        object_drop(c, &old->o);
        index_drop_data(c, &dead, UINT32_MAX);
    }
    return OK;
}

static void prefetch_idle(const struct index_table *t, uint32_t at)
{
    const void *item = at < t->cap ? index_table_at(t, at) : NULL;
    const struct entry *e = item;

    if (!item)
        return;
    if (item_is_packed(item)) {
        __builtin_prefetch(item_packed(item));
        return;
    }
    __builtin_prefetch(&e->o.size);
    __builtin_prefetch(&e->chunks);
}

/* Where to go on: there, if another item stands there now. */
static uint32_t sweep(struct cache *c, const struct index_table *t, uint32_t at)
{
    void *item = index_table_at(t, at);
    struct entry *e = item;

    if (!item)
        return at + 1;
    if (item_is_packed(item)) {
        struct packed *p = item_packed(item);
        if (packed_has_chunk(p))
            return at + 1;
        (void)packed_unpack(c, p);   /* it is an entry now, or out of the table */
        return at;
    }
    bool idle = e->o.size > 0 && atomic_load(&e->chunks) == 0;
    /* Removal may shift another item into this place. */
    return idle && index_evict_idle(c, e->o.id) ? at : at + 1;
}

void index_sweep_objects(struct cache *c)
{
    for (unsigned i = 0; i < CACHE_SHARDS; i++) {
        const struct index_table *t = &c->object[i].table;
        for (uint32_t at = 0; at < t->cap; at = sweep(c, t, at))
            prefetch_idle(t, at + SWEEP_AHEAD);
    }
}
