/* Walks over what is cached, a slice at a time, and what is done to an object on somebody's order.
 *
 * Invariants:
 *  1. A slice looks at a bounded number of places under one shard's lock, and gives objects held.
 *  2. A place in a walk is a shard and a home in its table (table.c), so it means the same in a
 *     table that has grown and after a restart: ids stay.
 *  3. Hidden objects, of uploads under way, are not met.
 *
 * Life: a walk is a number of its owner's; nothing is kept here.
 * Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/packed.h"

enum {
    HOMES_AT_ONCE = 32,              /* looked at under the lock */
    SAVE_READ_S = 3600,              /* how often a read alone is worth a record */
    SHARD_BITS = 32,                 /* of a place: shard above, home below */
};

static bool is_listed(const struct entry *e)
{
    bool hidden = atomic_load(&e->vouched) == UINT64_MAX;

    return !hidden && (atomic_load(&e->chunks) > 0 || e->o.size == 0);
}

struct slice {
    struct object **out;
    unsigned count, packed;
    struct id id[CACHE_WALK_MAX];    /* of packed ones, which are unpacked behind the lock */
};

static void take_listed(struct slice *s, struct entry *e)
{
    if (!is_listed(e))
        return;
    atomic_fetch_add_explicit(&e->o.holds, 1, memory_order_relaxed);
    s->out[s->count++] = &e->o;
}

/* One home's objects. */
static void take_home(struct slice *s, void **item, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (item_is_packed(item[i]))
            s->id[s->packed++] = packed_id(item_packed(item[i]));
        else
            take_listed(s, item[i]);
    }
}

static void take_packed(struct cache *c, struct slice *s, packed_wanted *wanted, const void *arg)
{
    for (unsigned i = 0; i < s->packed; i++) {
        struct index_shard *stripe = index_shard(c->stripe, s->id[i]);
        pthread_mutex_lock(&stripe->lock);
        const void *item = index_object_item(c, s->id[i]);
        bool left_out = item && item_is_packed(item) && !wanted(c, item_packed(item), arg);
        struct entry *e = left_out || !item     ? NULL
                          : item_is_packed(item) ? packed_unpack_shortly(c, item_packed(item))
                                                 : entry_of(c, s->id[i]);
        if (e)                       /* it is unpacked as long as the stripe is held */
            take_listed(s, e);
        pthread_mutex_unlock(&stripe->lock);
    }
}

static bool is_wanted(struct cache *c, const struct packed *p, const void *arg)
{
    const struct cache_wanted *w = arg;
    char text[PACKED_TEXT];
    struct small s;

    (void)c;
    if (!w)
        return true;
    packed_read(p, &s, text);
    return s.read_s >= w->read_since_s &&
           (!w->below ||
            (s.k.store == w->below->store && span_eq(s.k.bucket, w->below->bucket) &&
             span_starts(s.k.key, w->below->key)));
}

unsigned cache_walk(struct cache *c, uint64_t *at, struct object *out[CACHE_WALK_MAX],
                    const struct cache_wanted *wanted)
{
    return walk_wanted(c, at, out, is_wanted, wanted);
}

unsigned walk_wanted(struct cache *c, uint64_t *at, struct object *out[CACHE_WALK_MAX],
                     packed_wanted *wanted, const void *arg)
{
    uint64_t shard = *at >> SHARD_BITS;
    uint32_t home = (uint32_t)*at;
    void *item[CACHE_WALK_MAX];
    struct slice x = {.out = out};

    if (shard >= CACHE_SHARDS) {
        *at = CACHE_WALK_OVER;
        return 0;
    }
    struct index_shard *s = &c->object[shard];
    bool over = false;
    pthread_mutex_lock(&s->lock);
    /* Half of the room stays free for one home more, which would have to be far longer than homes
     * of a keyed hash become. */
    for (unsigned i = 0; i < HOMES_AT_ONCE && x.count + x.packed <= CACHE_WALK_MAX / 2 && !over;
         i++) {
        unsigned found = index_table_walk(&s->table, &home, item, CACHE_WALK_MAX / 2 - 1);
        take_home(&x, item, found);
        over = home == 0;
    }
    pthread_mutex_unlock(&s->lock);
    take_packed(c, &x, wanted, arg);
    shard += over;
    *at = shard == CACHE_SHARDS ? CACHE_WALK_OVER : shard << SHARD_BITS | home;
    return x.count;
}

bool cache_measure(struct cache *c, const struct object *o, struct cache_held *h, uint32_t most)
{
    uint64_t count = (o->size + CHUNK_BYTES - 1) / CHUNK_BYTES;

    for (; h->number < count && most > 0; h->number++, most--) {
        if (h->chunks >= atomic_load(&const_entry(o)->chunks))
            return true;
        struct chunk *k = chunk_find(c, o->data_id, h->number);
        if (!k)
            continue;
        uint8_t present = atomic_load(&k->present);
        bool up = chunk_disk_is_up(c, k);
        for (unsigned b = 0; b < BLOCKS_PER_CHUNK; b++) {
            uint32_t bytes = present >> b & 1 ? chunk_block_bytes(k->bytes, b) : 0;
            h->bytes += bytes;
            h->away += up ? 0 : bytes;
        }
        h->room += up ? space_class_room(k->slot.class_) : 0;
        h->slots += up ? space_class_bytes(k->slot.class_) : 0;
        h->pinned |= chunk_mark(k).flags & MARK_PINNED;
        /* An upload is kept until it was read. */
        h->read |= !(chunk_mark(k).flags & (MARK_AHEAD | MARK_KEEP));
        h->chunks++;
        chunk_drop(c, k);
    }
    return h->number >= count;
}

void object_read(struct cache *c, struct object *o, uint64_t wall_s)
{
    struct entry *e = container_of(o, struct entry, o);
    uint32_t now = (uint32_t)wall_s;

    if (atomic_load_explicit(&e->read_s, memory_order_relaxed) != now)
        atomic_store_explicit(&e->read_s, now, memory_order_relaxed);
    uint32_t saved = atomic_load_explicit(&e->saved_read_s, memory_order_relaxed);
    if (now < saved + SAVE_READ_S ||
        !atomic_compare_exchange_strong(&e->saved_read_s, &saved, now))
        return;
    index_save(c, o);
}

uint64_t object_read_s(const struct object *o)
{
    return atomic_load(&const_entry(o)->read_s);
}

bool object_is_below(const struct object *o, struct span prefix)
{
    struct span bucket = span_cut(&prefix, '/');

    if (bucket.len == 0)
        return true;
    return span_eq(bucket, object_bucket(o)) && span_starts(object_key(o), prefix);
}

/* Blocks, granules and halves of a chunk. */
static void disown_chunk(struct cache *c, const struct object *o, uint64_t number)
{
    uint64_t at = number * CHUNK_BYTES, end = min_u64(at + CHUNK_BYTES, o->size);

    for (; at < end; at += GRANULE_BYTES) {
        struct buffer_key block = {o->data_id, at | BUFFER_BLOCK};
        struct buffer_key granule = {o->data_id, at | BUFFER_GRANULE};
        if (at % BLOCK_BYTES == 0)
            pool_disown(c, &block);
        pool_disown(c, &granule);
        for (uint64_t half = at; half < at + GRANULE_BYTES; half += HALF_BYTES)
            pool_disown(c, &(struct buffer_key){o->data_id, half | BUFFER_HALF});
    }
}

/* A version with the same bytes may own the chunk: it goes as well. */
static void remove_chunk(struct cache *c, const struct object *o, uint64_t number)
{
    struct chunk *k = chunk_find(c, o->data_id, number);

    if (!k)
        return;
    struct index_shard *stripe = index_shard(c->stripe, k->object_id);
    pthread_mutex_lock(&stripe->lock);
    (void)chunk_remove(c, k, true, EVICT_CHANGED);
    pthread_mutex_unlock(&stripe->lock);
    chunk_drop(c, k);
}

void cache_distrust(struct cache *c, struct object *o)
{
    struct index_shard *stripe = index_shard(c->stripe, o->id);

    atomic_fetch_or(&o->flags, OBJECT_DISTRUSTED);
    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(c, o->id); /* with other fields it may be another one by now */
    if (e && id_eq(e->o.data_id, o->data_id))
        atomic_fetch_or(&e->o.flags, OBJECT_DISTRUSTED);
    pthread_mutex_unlock(&stripe->lock);
    for (uint64_t n = 0; n * CHUNK_BYTES < o->size; n++)
        remove_chunk(c, o, n);
    pool_disown_data(c, o->data_id);
    cache_forget(c, o);              /* at last: by its next answer they would be found again */
}

bool cache_disown(struct cache *c, const struct object *o, uint64_t *number, unsigned most)
{
    uint64_t count = (o->size + CHUNK_BYTES - 1) / CHUNK_BYTES;

    for (unsigned i = 0; i < most && *number < count; i++)
        disown_chunk(c, o, (*number)++);
    return *number >= count;
}

void cache_evict(struct cache *c, struct object *o)
{
    atomic_fetch_or(&o->flags, OBJECT_GONE);
    index_forget(c, o->id, &o->data_id, EVICT_REQUEST);
}
