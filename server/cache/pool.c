/* The verified buffers: one mapping cut into frames of 1 MiB, each whole or split in buddies down
 * to 4 KiB, and S3-FIFO to decide which cached buffers make room.
 *
 * Invariants:
 *  1. A cell is 4 KiB of a frame. The header of a block (buffer or free) is that of its first cell,
 *     found by arithmetic: never allocated, and of a whole frame only one is ever used.
 *  2. A block is FREE in a free list, LENT to its taker and unnamed, PARKED: named, held and in no
 *     queue, or SMALL or MAIN: named, in that queue. Only the allocator's lock changes places.
 *  3. A buffer is in the table exactly if NAMED is set. Its count leaves 0 only under its shard's
 *     lock, where eviction looks too.
 *  4. Eviction parks the held buffers that it meets. The last give of a lent or parked buffer takes
 *     the allocator's lock and is an event, and so is the end of a share that was full. So a take
 *     that failed can succeed only after an event, which wakes those who wait (waiters.c): no wake
 *     is lost, and hits wake nobody.
 *  5. Frames, headers, table and ghosts together stay within what pool_make() was given; nothing is
 *     allocated after it.
 *  6. Locks: allocator, then one shard or the waiters'.
 *
 * Life: pool_make() by cache_open(), pool_close() by cache_close(). A buffer: pool_take, filled,
 * pool_publish, then found and given any number of times and evicted when unheld; or pool_take and
 * pool_give when nobody wants its bytes.
 * Failure: pool_take() gives NULL when all that could make room is held, or the use's share is.
 * Limits: a lent 4 KiB buffer keeps its whole frame split. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

#include <pthread.h>
#include <sys/mman.h>

#ifdef HEADPOND_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum {
    HUGE_BYTES = 2 * MIB,            /* of a huge page */
    BUCKETS_PER_FRAME = 128,         /* at most; half of it at least. Never fewer than SHARDS */
    GHOSTS_PER_FRAME = 64,           /* the same */
    FREQ_MAX = 3,
    DISOWN_FRAMES = 16,              /* so long others wait who take a buffer */
};

/* ---- small things ---- */

static struct pool_cell *cell_of(struct buffer *b)
{
    return container_of(b, struct pool_cell, b);
}

static bool key_eq(const struct buffer_key *x, const struct buffer_key *y)
{
    return x->at == y->at && id_eq(x->data_id, y->data_id);
}

static void count_held(struct pool *p, const struct pool_cell *c, int64_t bytes)
{
    uint32_t i = pool_cell_number(p, c);
    struct pool_part *s = &p->shard[(i ^ i / POOL_FRAME_CELLS) % POOL_SHARDS];

    atomic_fetch_add_explicit(&s->held_bytes, bytes, memory_order_relaxed);
}

static unsigned order_of(uint32_t bytes)
{
    unsigned order = 0;

    while ((uint32_t)POOL_CELL_BYTES << order < bytes)
        order++;
    return order;
}

/* ---- table ---- */

/* The shard is locked. */
static struct pool_cell *name_find(struct pool *p, const struct buffer_key *k, uint64_t hash)
{
    for (uint32_t i = p->bucket[hash & p->bucket_mask]; i != POOL_NONE; i = p->cells[i].chain)
        if (key_eq(&p->cells[i].key, k))
            return &p->cells[i];
    return NULL;
}

void pool_unname(struct pool *p, uint32_t i, uint64_t hash)
{
    uint32_t *link = &p->bucket[hash & p->bucket_mask];

    while (*link != i) {
        must(*link != POOL_NONE);
        link = &p->cells[*link].chain;
    }
    *link = p->cells[i].chain;
}

/* A hold for a finder; the shard is locked. */
static void hold_found(struct pool *p, struct pool_cell *c)
{
    uint32_t was = atomic_fetch_add(&c->holds, 1);
    uint8_t freq = atomic_load_explicit(&c->freq, memory_order_relaxed);

    if ((was & POOL_COUNT) == 0)
        count_held(p, c, c->b.cap);
    if (freq < FREQ_MAX)
        atomic_store_explicit(&c->freq, (uint8_t)(freq + 1), memory_order_relaxed);
}

/* ---- the face ---- */

void pool_expect(struct cache *c, const struct buffer_key *k)
{
    const struct pool *p = cache_pool(c);

    __builtin_prefetch(&p->bucket[pool_key_hash(k) & p->bucket_mask]);
}

struct buffer *pool_find(struct cache *c, const struct buffer_key *k)
{
    struct pool *p = cache_pool(c);
    uint64_t hash = pool_key_hash(k);
    struct pool_part *s = pool_part_of(p, hash);

    pthread_mutex_lock(&s->lock);
    struct pool_cell *found = name_find(p, k, hash);
    if (found)
        hold_found(p, found);
    pthread_mutex_unlock(&s->lock);
    return found ? &found->b : NULL;
}

struct buffer *pool_take(struct cache *c, uint32_t bytes, enum buffer_use use)
{
    struct pool *p = cache_pool(c);
    bool more = false;

    must(bytes > 0 && bytes <= POOL_FRAME_BYTES && use <= BUFFER_PASS);
    unsigned order = order_of(bytes);
    pthread_mutex_lock(&p->lock);
    struct pool_cell *t = pool_block_take(p, order, use, &more);
    if (t) {
        p->use_cells[use] += 1u << order;
        t->use = (uint8_t)(use + 1);
        t->place = CELL_LENT;
        t->home = CELL_SMALL;
        t->b.mem = p->memory + (uint64_t)pool_cell_number(p, t) * POOL_CELL_BYTES;
        t->b.len = 0;
        t->b.cap = (uint32_t)POOL_CELL_BYTES << order;
        atomic_store_explicit(&t->freq, 0, memory_order_relaxed);
        atomic_store_explicit(&t->unread, 0, memory_order_relaxed);
        atomic_store(&t->holds, 1);
        count_held(p, t, t->b.cap);
        atomic_fetch_add_explicit(&p->used_cells, 1u << order, memory_order_relaxed);
        ASAN_UNPOISON_MEMORY_REGION(t->b.mem, t->b.cap);
    } else {
        waiters_failed(&p->waiters, more);
    }
    pthread_mutex_unlock(&p->lock);
    return t ? &t->b : NULL;
}

/* Enters the table; both locks are held. It goes to its queue at its last give, being held now. */
static void name(struct pool *p, struct pool_cell *t, const struct buffer_key *k, bool probation)
{
    uint64_t hash = pool_key_hash(k);
    uint32_t *bucket = &p->bucket[hash & p->bucket_mask];
    bool known = pool_ghosts_take(&p->ghosts, hash);

    must(t->place == CELL_LENT && t->b.len > 0 && t->b.len <= t->b.cap);
    t->key = *k;
    t->chain = *bucket;
    *bucket = pool_cell_number(p, t);
    t->place = CELL_PARKED;
    t->home = known && !probation ? CELL_MAIN : CELL_SMALL;
    /* Who fetched on demand has used it once; on probation the first find is only that use. */
    atomic_store_explicit(&t->freq, !probation && t->home == CELL_SMALL, memory_order_relaxed);
    uint32_t was = atomic_fetch_or(&t->holds, POOL_NAMED | POOL_PARKED);
    must((was & POOL_NAMED) == 0 && (was & POOL_COUNT) > 0);
}

struct buffer *pool_publish(struct cache *c, struct buffer *b, const struct buffer_key *k,
                            bool probation)
{
    struct pool *p = cache_pool(c);
    uint64_t hash = pool_key_hash(k);
    struct pool_part *s = pool_part_of(p, hash);

    pthread_mutex_lock(&p->lock);
    pthread_mutex_lock(&s->lock);
    struct pool_cell *other = name_find(p, k, hash);
    if (other)
        hold_found(p, other);
    else
        name(p, cell_of(b), k, probation);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&p->lock);
    if (!other)
        return b;
    pool_give(c, b);
    return &other->b;
}

/* Named anew, by a name that nobody asks for: so it stays where it is in its queue, and leaves as
 * any other. */
static void rename_cell(struct pool *p, struct pool_cell *t)
{
    random_bytes(&t->key.data_id, sizeof t->key.data_id);
    uint64_t hash = pool_key_hash(&t->key);
    struct pool_part *s = pool_part_of(p, hash);
    uint32_t *bucket = &p->bucket[hash & p->bucket_mask];

    pthread_mutex_lock(&s->lock);
    t->chain = *bucket;
    *bucket = pool_cell_number(p, t);
    pthread_mutex_unlock(&s->lock);
}

/* The allocator's lock is held: eviction finds it by its name. */
static void disown_cell(struct pool *p, struct pool_cell *t)
{
    uint64_t hash = pool_key_hash(&t->key);
    struct pool_part *s = pool_part_of(p, hash);

    pthread_mutex_lock(&s->lock);
    pool_unname(p, pool_cell_number(p, t), hash);
    pthread_mutex_unlock(&s->lock);
    rename_cell(p, t);
}

void pool_disown(struct cache *c, const struct buffer_key *k)
{
    struct pool *p = cache_pool(c);
    uint64_t hash = pool_key_hash(k);
    struct pool_part *s = pool_part_of(p, hash);

    pthread_mutex_lock(&s->lock);
    struct pool_cell *t = name_find(p, k, hash);
    pthread_mutex_unlock(&s->lock);
    if (!t)                          /* most names that somebody thinks of */
        return;
    pthread_mutex_lock(&p->lock);
    pthread_mutex_lock(&s->lock);
    t = name_find(p, k, hash);
    pthread_mutex_unlock(&s->lock);
    if (t)
        disown_cell(p, t);
    pthread_mutex_unlock(&p->lock);
}

/* A granule of a block that was passed through has a name of its own, and would be found again once
 * the block has left memory. */
static void disown_granules(struct cache *c, const struct buffer_key *block, uint32_t len)
{
    if (len <= GRANULE_BYTES)        /* the block has the only name */
        return;
    for (uint32_t at = 0; at < len; at += GRANULE_BYTES) {
        const struct buffer_key k = {block->data_id, (block->at + at) | BUFFER_GRANULE};
        pool_disown(c, &k);
    }
}

void pool_replace(struct cache *c, struct buffer *b, const struct buffer_key *k)
{
    struct pool *p = cache_pool(c);
    uint64_t hash = pool_key_hash(k);
    struct pool_part *s = pool_part_of(p, hash);

    pthread_mutex_lock(&p->lock);
    pthread_mutex_lock(&s->lock);
    struct pool_cell *other = name_find(p, k, hash);
    if (other)
        pool_unname(p, pool_cell_number(p, other), hash);
    name(p, cell_of(b), k, false);
    pthread_mutex_unlock(&s->lock);
    if (other)
        rename_cell(p, other);
    pthread_mutex_unlock(&p->lock);
    disown_granules(c, k, b->len);
}

void pool_disown_block(struct cache *c, const struct buffer_key *k, uint32_t len)
{
    pool_disown(c, k);
    disown_granules(c, k, len);
}

static void disown_in_frame(struct pool *p, uint32_t frame, struct id data_id)
{
    uint32_t end = (frame + 1) * POOL_FRAME_CELLS;

    for (uint32_t i = frame * POOL_FRAME_CELLS; i < end; i += 1u << p->cells[i].order) {
        struct pool_cell *t = &p->cells[i];
        if (atomic_load(&t->holds) & POOL_NAMED && id_eq(t->key.data_id, data_id))
            disown_cell(p, t);
    }
}

/* Not by names: there are 200 to a chunk, and those of parts cannot be told. */
void pool_disown_data(struct cache *c, struct id data_id)
{
    struct pool *p = cache_pool(c);
    bool more = true;

    for (uint32_t frame = 0; more;) {
        pthread_mutex_lock(&p->lock);
        for (unsigned n = 0; n < DISOWN_FRAMES && frame < p->fresh; n++)
            disown_in_frame(p, frame++, data_id);
        more = frame < p->fresh;
        pthread_mutex_unlock(&p->lock);
    }
}

void pool_hold(struct buffer *b)
{
    uint32_t was = atomic_fetch_add(&cell_of(b)->holds, 1);

    must((was & POOL_COUNT) > 0 && (was & POOL_COUNT) < POOL_COUNT);
}

/* It counts to no share any more. True if a take may have failed because of that share. */
static bool end_share(struct pool *p, struct pool_cell *c)
{
    if (c->use == 0)
        return false;
    unsigned use = c->use - 1u;
    bool full = p->use_cells[use] + POOL_FRAME_CELLS > p->use_limit[use];
    must(p->use_cells[use] >= 1u << c->order);
    p->use_cells[use] -= 1u << c->order;
    c->use = 0;
    return full;
}

/* The last hold of a lent or parked buffer has ended: an event. */
static void release(struct pool *p, struct pool_cell *c, struct wakes *out)
{
    (void)end_share(p, c);
    if (c->place == CELL_PARKED) {
        c->place = c->home;
        pool_queue_push(p, pool_queue_of(p, c->home), pool_cell_number(p, c));
    } else {
        must(c->place == CELL_LENT);
        atomic_fetch_sub_explicit(&p->used_cells, 1u << c->order, memory_order_relaxed);
        pool_block_free(p, pool_cell_number(p, c), c->order);
    }
    waiters_event(&p->waiters, out);
}

void pool_share_end(struct cache *c, struct buffer *b)
{
    struct pool *p = cache_pool(c);
    struct wakes wakes = {.count = 0};

    pthread_mutex_lock(&p->lock);
    if (end_share(p, cell_of(b)))
        waiters_event(&p->waiters, &wakes);
    pthread_mutex_unlock(&p->lock);
    wakes_send(&wakes);
}

static void give_slowly(struct pool *p, struct pool_cell *c)
{
    struct wakes wakes = {.count = 0};
    int64_t cap = c->b.cap;

    pthread_mutex_lock(&p->lock);
    uint32_t holds = atomic_load(&c->holds), next;
    do {
        must((holds & POOL_COUNT) > 0);
        next = holds - 1;
        if ((next & POOL_COUNT) == 0)
            next &= ~POOL_PARKED;
    } while (!atomic_compare_exchange_weak(&c->holds, &holds, next));
    if ((next & POOL_COUNT) == 0) {
        count_held(p, c, -cap);
        release(p, c, &wakes);
    }
    pthread_mutex_unlock(&p->lock);
    wakes_send(&wakes);
}

void pool_give(struct cache *c, struct buffer *b)
{
    struct pool_cell *t = cell_of(b);
    int64_t cap = b->cap;            /* after the last give it may be another buffer */
    uint32_t holds = atomic_load(&t->holds);

    do {
        must((holds & POOL_COUNT) > 0);
        if ((holds & POOL_COUNT) == 1 && (holds & (POOL_NAMED | POOL_PARKED)) != POOL_NAMED) {
            give_slowly(cache_pool(c), t);
            return;
        }
    } while (!atomic_compare_exchange_weak(&t->holds, &holds, holds - 1));
    if ((holds & POOL_COUNT) == 1)
        count_held(cache_pool(c), t, -cap);
}

void buffer_set_lent(struct buffer *b)
{
    atomic_store_explicit(&container_of(b, struct pool_cell, b)->lent, 1, memory_order_relaxed);
}

bool pool_keeps(struct cache *c, struct buffer *b)
{
    const struct pool *p = cache_pool(c);
    uint32_t holds = atomic_load_explicit(&cell_of(b)->holds, memory_order_relaxed);

    return (holds & POOL_NAMED) &&
           atomic_load_explicit(&p->fresh, memory_order_relaxed) < p->frames;
}

void buffer_set_unread(struct buffer *b)
{
    atomic_store_explicit(&container_of(b, struct pool_cell, b)->unread, 1, memory_order_relaxed);
}

bool buffer_take_unread(struct buffer *b)
{
    struct pool_cell *c = container_of(b, struct pool_cell, b);
    return atomic_load_explicit(&c->unread, memory_order_relaxed) &&
           atomic_exchange_explicit(&c->unread, 0, memory_order_relaxed);
}

void pool_wait(struct cache *c, struct pool_wait *w, struct machine *m)
{
    waiters_add(&cache_pool(c)->waiters, w, m);
}

bool pool_is_short(struct cache *c)
{
    return waiters_any(&cache_pool(c)->waiters);
}

bool pool_leave(struct cache *c, struct pool_wait *w)
{
    return waiters_leave(&cache_pool(c)->waiters, w);
}

/* ---- start and end ---- */

static uint64_t power_of_two_below(uint64_t n)
{
    return (uint64_t)1 << (63 - __builtin_clzll(n));
}

static void *map_memory(size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* One mapping for buckets, ghosts and headers, in that order: the first two, in which every name is
 * at random, share the huge pages that are written here. Headers are zero pages until touched. */
static bool make_tables(struct pool *p)
{
    size_t cells = (size_t)p->frames * POOL_FRAME_CELLS * sizeof(struct pool_cell);
    uint64_t buckets = power_of_two_below((uint64_t)p->frames * BUCKETS_PER_FRAME);
    uint64_t ghosts = power_of_two_below((uint64_t)p->frames * GHOSTS_PER_FRAME);
    size_t bytes = buckets * sizeof(uint32_t) + ghosts * sizeof(struct pool_ghost) + cells;

    p->tables_map_bytes = bytes + HUGE_BYTES;
    p->tables_map = map_memory(p->tables_map_bytes);
    if (!p->tables_map)
        return false;
    p->bucket = (uint32_t *)round_up((uintptr_t)p->tables_map, HUGE_BYTES);
    p->bucket_mask = buckets - 1;
    p->ghosts.ghost = (struct pool_ghost *)(void *)(p->bucket + buckets);
    p->ghosts.mask = ghosts - 1;
    p->cells = (struct pool_cell *)(void *)(p->ghosts.ghost + ghosts);
    (void)madvise(p->bucket, bytes, MADV_HUGEPAGE);
    memset(p->bucket, 0xff, buckets * sizeof(uint32_t)); /* NONE */
    return true;
}

static bool make_frames(struct pool *p)
{
    size_t bytes = (size_t)p->frames * POOL_FRAME_BYTES;

    p->memory_map_bytes = bytes + HUGE_BYTES;
    p->memory_map = map_memory(p->memory_map_bytes);
    if (!p->memory_map)
        return false;
    p->memory = (uint8_t *)round_up((uintptr_t)p->memory_map, HUGE_BYTES);
    /* Advice: a kernel without huge pages refuses it, and all goes on with small ones. */
    (void)madvise(p->memory, bytes, MADV_HUGEPAGE);
    (void)madvise(p->memory, bytes, MADV_DONTDUMP);
    ASAN_POISON_MEMORY_REGION(p->memory, bytes);
    return true;
}

static void set_limits(struct pool *p)
{
    uint64_t cells = (uint64_t)p->frames * POOL_FRAME_CELLS;

    p->small_cells = cells / POOL_PROBATION;
    p->ghosts.span = (uint32_t)(cells - cells / POOL_PROBATION); /* as many bytes as MAIN holds */
    p->use_limit[BUFFER_DEMAND] = cells;
    p->use_limit[BUFFER_FILL] = cells / 2;
    p->use_limit[BUFFER_PREFETCH] = cells / 4;
    p->use_limit[BUFFER_PASS] = cells / 8;
}

struct pool *pool_make(uint64_t bytes)
{
    const uint64_t frame_bytes = POOL_FRAME_BYTES + POOL_FRAME_CELLS * sizeof(struct pool_cell) +
                                 BUCKETS_PER_FRAME * sizeof(uint32_t) +
                                 GHOSTS_PER_FRAME * sizeof(struct pool_ghost);
    struct pool *p = NULL;

    if (bytes >= sizeof *p + frame_bytes)
        p = mem_take_aligned(sizeof *p, _Alignof(struct pool));
    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    p->frames = (uint32_t)min_u64((bytes - sizeof *p) / frame_bytes, POOL_NONE / POOL_FRAME_CELLS);
    pthread_mutex_init(&p->lock, NULL);
    for (unsigned n = 0; n < POOL_SHARDS; n++)
        pthread_mutex_init(&p->shard[n].lock, NULL);
    for (unsigned n = 0; n <= POOL_ORDER_MAX; n++)
        pool_queue_init(&p->free[n]);
    pool_queue_init(&p->small);
    pool_queue_init(&p->main);
    waiters_init(&p->waiters);
    readings_init(&p->readings);
    set_limits(p);
    if (make_tables(p) && make_frames(p))
        return p;
    pool_close(p);
    return NULL;
}

void pool_close(struct pool *p)
{
    if (!p)
        return;
    pool_ready_end(p);
    if (p->memory_map) {
        ASAN_UNPOISON_MEMORY_REGION(p->memory, (size_t)p->frames * POOL_FRAME_BYTES);
        munmap(p->memory_map, p->memory_map_bytes);
    }
    if (p->tables_map)
        munmap(p->tables_map, p->tables_map_bytes);
    for (unsigned n = 0; n < POOL_SHARDS; n++)
        pthread_mutex_destroy(&p->shard[n].lock);
    pthread_mutex_destroy(&p->lock);
    waiters_fini(&p->waiters);
    readings_fini(&p->readings);
    mem_give(p);
}

void pool_memory(const struct pool *p, void **at, size_t *bytes)
{
    *at = p->memory;
    *bytes = (size_t)p->frames * POOL_FRAME_BYTES;
}

uint64_t pool_share_bytes(const struct pool *p, enum buffer_use use)
{
    return p->use_limit[use] * POOL_CELL_BYTES;
}

uint64_t pool_share_left(struct pool *p, enum buffer_use use)
{
    pthread_mutex_lock(&p->lock);
    uint64_t left = p->use_limit[use] - p->use_cells[use];
    pthread_mutex_unlock(&p->lock);
    return left * POOL_CELL_BYTES;
}

void pool_status(struct pool *p, struct pool_status *out)
{
    int64_t held = 0;

    for (unsigned n = 0; n < POOL_SHARDS; n++)
        held += atomic_load_explicit(&p->shard[n].held_bytes, memory_order_relaxed);
    out->limit_bytes = (uint64_t)p->frames * POOL_FRAME_BYTES;
    out->used_bytes = atomic_load_explicit(&p->used_cells, memory_order_relaxed) * POOL_CELL_BYTES;
    out->held_bytes = held > 0 ? (uint64_t)held : 0;
    out->ready_bytes = (uint64_t)atomic_load(&p->ready) * POOL_FRAME_BYTES;
}
