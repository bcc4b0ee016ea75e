/* The verified buffers: one mapping cut into frames of 1 MiB, each whole or split in buddies down
 * to 4 KiB, and S3-FIFO to decide which cached buffers make room.
 *
 * Invariants:
 *  1. A cell is 4 KiB of a frame. The header of a block (buffer or free) is that of its first cell,
 *     found by arithmetic: never allocated, and of a whole frame only one is ever touched.
 *  2. A block is FREE in a free list, LENT to its taker and unnamed, PARKED: named, held and in no
 *     queue, or SMALL or MAIN: named, in that queue. Only the allocator's lock changes places.
 *  3. A buffer is in the table exactly if NAMED is set. Its count leaves 0 only under its shard's
 *     lock, where eviction looks too.
 *  4. Eviction parks the held buffers that it meets. The last give of a lent or parked buffer takes
 *     the allocator's lock and is an event. So a take that failed can succeed only after an event,
 *     which wakes those who wait (waiters.c): no wake is lost, and hits wake nobody.
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
#include "server/cache/cache.h"

#include <pthread.h>
#include <sys/mman.h>

#ifdef HEADPOND_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum {
    CELL_BYTES = 4 * KIB,
    FRAME_BYTES = BLOCK_BYTES,
    ORDER_MAX = 8,                   /* CELL_BYTES << ORDER_MAX is a frame */
    FRAME_CELLS = 1 << ORDER_MAX,
    HUGE_BYTES = 2 * MIB,            /* of a huge page */
    SHARDS = 64,
    BUCKETS_PER_FRAME = 128,         /* at most; half of it at least. Never fewer than SHARDS */
    GHOSTS_PER_FRAME = 64,           /* the same */
    FREQ_MAX = 3,
    FREQ_PROVEN = 2,                 /* leaves SMALL for MAIN */
    SPARE_MAX = 64,                  /* second chances per victim: bounds the work of one miss */
    PEEK_MAX = 8,                    /* victims compared when a split range is emptied */
    TRIES_MAX = 64,                  /* lost races with finders */
    SWEEP_FRAMES = 64,               /* looked at by one take when all is fragmented */
};
static const uint32_t NONE = UINT32_MAX;
static const uint32_t NAMED = 1u << 31, PARKED_BIT = 1u << 30, COUNT_MASK = (1u << 30) - 1;

enum pool_state { INSIDE, FREE, LENT, PARKED, SMALL, MAIN };

struct cell {
    struct buffer b;                 /* private_: neighbours, the one nearer the head first */
    struct buffer_key key;
    _Atomic uint32_t holds;          /* count, NAMED, PARKED_BIT */
    uint32_t chain;                  /* next in the table's bucket; by the shard's lock */
    uint8_t order, place, home, use; /* use: share + 1 until the first last give */
    _Atomic uint8_t freq;
    _Atomic uint8_t unread;          /* fetched and not yet served to anyone */
    /* its pages may be in socket queues: never rewritten in place */
    _Atomic uint8_t lent;
    uint8_t spare_byte;
};
_Static_assert(sizeof(struct cell) == 64, "one cache line for a find");
_Static_assert(CELL_BYTES << ORDER_MAX == FRAME_BYTES, "a frame is one block of the highest order");

struct queue {                       /* pushed at the head, taken at the tail */
    uint32_t head, tail;
    uint64_t cells;
};
struct pool_part {
    _Alignas(64) pthread_mutex_t lock;
    _Atomic int64_t held_bytes;      /* a stripe of the pool's sum, not this shard's */
};

struct pool {
    struct pool_part shard[SHARDS];
    struct cell *cells;              /* FRAME_CELLS of each frame */
    uint32_t *bucket;
    uint64_t bucket_mask;
    uint8_t *memory;                 /* frames, 2 MiB aligned */
    void *memory_map, *tables_map;
    size_t memory_map_bytes, tables_bytes;
    uint32_t frames;
    _Atomic uint64_t used_cells;

    pthread_mutex_t lock;            /* the allocator's: guards all below */
    uint32_t fresh;                  /* frames from here on were never used */
    struct queue free[ORDER_MAX + 1];
    struct queue small, main;
    uint64_t small_cells;            /* SMALL's target: a tenth */
    uint64_t use_cells[3], use_limit[3];
    struct pool_ghosts ghosts;       /* of what left SMALL */
    uint32_t sweep_at, sweep_done;   /* next frame; how many were swept without an event */
    uint64_t sweep_events;
    unsigned sweep_order;
    struct waiters waiters;          /* has its own lock */
};

/* ---- small things ---- */

static uint32_t cell_number(const struct pool *p, const struct cell *c)
{
    return (uint32_t)(c - p->cells);
}

static struct cell *cell_of(struct buffer *b)
{
    return container_of(b, struct cell, b);
}

static uint64_t key_hash(const struct buffer_key *k)
{
    /* Data ids are keyed hashes already: nobody outside can choose collisions. */
    uint64_t h = k->data_id.a ^ (k->at * 0x9E3779B97F4A7C15u);

    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

static bool key_eq(const struct buffer_key *x, const struct buffer_key *y)
{
    return x->at == y->at && id_eq(x->data_id, y->data_id);
}

static struct pool_part *part_of(struct pool *p, uint64_t hash)
{
    return &p->shard[hash % SHARDS];
}

static void count_held(struct pool *p, const struct cell *c, int64_t bytes)
{
    uint32_t i = cell_number(p, c);
    struct pool_part *s = &p->shard[(i ^ i / FRAME_CELLS) % SHARDS];

    atomic_fetch_add_explicit(&s->held_bytes, bytes, memory_order_relaxed);
}

static void queue_init(struct queue *q)
{
    *q = (struct queue){NONE, NONE, 0};
}

static void queue_push(struct pool *p, struct queue *q, uint32_t i)
{
    struct cell *c = &p->cells[i];

    c->b.private_[0] = NONE;
    c->b.private_[1] = q->head;
    if (q->head == NONE)
        q->tail = i;
    else
        p->cells[q->head].b.private_[0] = i;
    q->head = i;
    q->cells += 1u << c->order;
}

static void queue_remove(struct pool *p, struct queue *q, uint32_t i)
{
    struct cell *c = &p->cells[i];
    uint32_t before = c->b.private_[0], after = c->b.private_[1];

    *(before == NONE ? &q->head : &p->cells[before].b.private_[1]) = after;
    *(after == NONE ? &q->tail : &p->cells[after].b.private_[0]) = before;
    must(q->cells >= 1u << c->order);
    q->cells -= 1u << c->order;
}

static struct queue *queue_of(struct pool *p, enum pool_state place)
{
    must(place == SMALL || place == MAIN);
    return place == SMALL ? &p->small : &p->main;
}

/* ---- buddies ---- */

static void block_free(struct pool *p, uint32_t i, unsigned order)
{
    uint8_t *memory = p->memory + (uint64_t)i * CELL_BYTES;
    size_t bytes = (size_t)CELL_BYTES << order;
    if (atomic_load_explicit(&p->cells[i].lent, memory_order_relaxed)) {
        atomic_store_explicit(&p->cells[i].lent, 0, memory_order_relaxed);
        /* the sockets keep the old pages, we get new ones */
        must(madvise(memory, bytes, MADV_DONTNEED) == 0);
    }
    ASAN_POISON_MEMORY_REGION(memory, bytes);
    for (; order < ORDER_MAX; order++) {
        uint32_t buddy = i ^ 1u << order;
        struct cell *c = &p->cells[buddy];
        if (c->place != FREE || c->order != order)
            break;
        queue_remove(p, &p->free[order], buddy);
        p->cells[buddy | i].place = INSIDE; /* its order stays: clear_range() walks by it */
        i &= buddy;
    }
    p->cells[i].place = FREE;
    p->cells[i].order = (uint8_t)order;
    queue_push(p, &p->free[order], i);
}

/* A block of exactly that order, from the smallest that fits, or NONE; its place is to be set. */
static uint32_t block_pop(struct pool *p, unsigned order)
{
    unsigned k = order;
    uint32_t i;

    while (k < ORDER_MAX && p->free[k].tail == NONE)
        k++;
    if (p->free[k].tail != NONE) {
        i = p->free[k].head;         /* the warmest */
        queue_remove(p, &p->free[k], i);
    } else if (p->fresh < p->frames) {
        i = p->fresh++ * FRAME_CELLS;
    } else {
        return NONE;
    }
    while (k > order) {
        k--;
        struct cell *upper = &p->cells[i + (1u << k)];
        upper->place = FREE;
        upper->order = (uint8_t)k;
        queue_push(p, &p->free[k], i + (1u << k));
    }
    p->cells[i].order = (uint8_t)order;
    return i;
}

static unsigned order_of(uint32_t bytes)
{
    unsigned order = 0;

    while ((uint32_t)CELL_BYTES << order < bytes)
        order++;
    return order;
}

/* ---- table ---- */

/* The shard is locked. */
static struct cell *name_find(struct pool *p, const struct buffer_key *k, uint64_t hash)
{
    for (uint32_t i = p->bucket[hash & p->bucket_mask]; i != NONE; i = p->cells[i].chain)
        if (key_eq(&p->cells[i].key, k))
            return &p->cells[i];
    return NULL;
}

static void name_remove(struct pool *p, uint32_t i, uint64_t hash)
{
    uint32_t *link = &p->bucket[hash & p->bucket_mask];

    while (*link != i) {
        must(*link != NONE);
        link = &p->cells[*link].chain;
    }
    *link = p->cells[i].chain;
}

/* A hold for a finder; the shard is locked. */
static void hold_found(struct pool *p, struct cell *c)
{
    uint32_t was = atomic_fetch_add(&c->holds, 1);
    uint8_t freq = atomic_load_explicit(&c->freq, memory_order_relaxed);

    if ((was & COUNT_MASK) == 0)
        count_held(p, c, c->b.cap);
    if (freq < FREQ_MAX)
        atomic_store_explicit(&c->freq, (uint8_t)(freq + 1), memory_order_relaxed);
}

/* ---- eviction; all under the allocator's lock ---- */

/* Takes a held buffer out of its queue until its last give. False: it is not held. */
static bool park(struct pool *p, struct cell *c)
{
    uint32_t holds = atomic_load(&c->holds);

    while ((holds & COUNT_MASK) > 0)
        if (atomic_compare_exchange_weak(&c->holds, &holds, holds | PARKED_BIT)) {
            queue_remove(p, queue_of(p, c->place), cell_number(p, c));
            c->home = c->place;
            c->place = PARKED;
            return true;
        }
    return false;
}

/* S3-FIFO's second chance: proven buffers go from SMALL to MAIN, used ones to MAIN's head. */
static bool spare(struct pool *p, struct cell *c)
{
    uint8_t freq = atomic_load_explicit(&c->freq, memory_order_relaxed);
    uint32_t i = cell_number(p, c);

    if (freq < (c->place == SMALL ? FREQ_PROVEN : 1))
        return false;
    queue_remove(p, queue_of(p, c->place), i);
    freq = c->place == SMALL ? 0 : (uint8_t)(freq - 1);
    atomic_store_explicit(&c->freq, freq, memory_order_relaxed);
    c->place = MAIN;
    queue_push(p, &p->main, i);
    return true;
}

/* Who goes next, still in its queue; NONE: every buffer is held. */
static uint32_t victim(struct pool *p)
{
    for (unsigned spared = 0;;) {
        bool main_first = p->main.tail != NONE && p->small.cells < p->small_cells;
        uint32_t i = main_first || p->small.tail == NONE ? p->main.tail : p->small.tail;
        if (i == NONE)
            return NONE;
        struct cell *c = &p->cells[i];
        if (park(p, c))
            continue;
        if (spared == SPARE_MAX || !spare(p, c))
            return i;
        spared++;
    }
}

/* False: somebody found it in the meantime. */
static bool evict(struct pool *p, uint32_t i)
{
    struct cell *c = &p->cells[i];
    uint64_t hash = key_hash(&c->key);
    struct pool_part *s = part_of(p, hash);

    pthread_mutex_lock(&s->lock);
    bool unheld = (atomic_load(&c->holds) & COUNT_MASK) == 0;
    if (unheld) {
        name_remove(p, i, hash);
        atomic_store(&c->holds, 0);
    }
    pthread_mutex_unlock(&s->lock);
    if (!unheld)
        return false;
    if (c->place == SMALL)
        pool_ghosts_add(&p->ghosts, hash, 1u << c->order);
    queue_remove(p, queue_of(p, c->place), i);
    atomic_fetch_sub_explicit(&p->used_cells, 1u << c->order, memory_order_relaxed);
    block_free(p, i, c->order);
    return true;
}

static bool evictable(const struct cell *c)
{
    return (c->place == SMALL || c->place == MAIN) && (atomic_load(&c->holds) & COUNT_MASK) == 0;
}

/* What emptying a split range would lose; UINT32_MAX with *blocker set: something in it is held. */
static uint32_t range_cost(const struct pool *p, uint32_t start, unsigned order, uint32_t *blocker)
{
    uint32_t cost = 0;

    for (uint32_t i = start; i < start + (1u << order); i += 1u << p->cells[i].order) {
        const struct cell *c = &p->cells[i];
        if (c->place == FREE)
            continue;
        if (!evictable(c)) {
            *blocker = i;
            return UINT32_MAX;
        }
        uint32_t worth = c->place == MAIN ? 3 : 1;
        worth += atomic_load_explicit(&c->freq, memory_order_relaxed);
        cost += worth << c->order;
    }
    return cost;
}

/* The range around one of the next victims that costs least; NONE: all have something held. */
static uint32_t cheapest_range(const struct pool *p, uint32_t i, unsigned order)
{
    uint32_t best = NONE, best_cost = UINT32_MAX, blocker;

    for (unsigned n = 0; n < PEEK_MAX && i != NONE; n++, i = p->cells[i].b.private_[0]) {
        uint32_t start = p->cells[i].order >= order ? i : i & ~((1u << order) - 1);
        uint32_t cost = range_cost(p, start, order, &blocker);
        if (cost < best_cost) {
            best = start;
            best_cost = cost;
        }
    }
    return best;
}

/* A range in one frame that can be emptied; NONE: in each one something is lent or now parked. */
static uint32_t frame_range(struct pool *p, uint32_t frame, unsigned order)
{
    uint32_t i = frame * FRAME_CELLS, end = i + FRAME_CELLS, blocker = NONE;

    while (i < end) {
        if (range_cost(p, i, order, &blocker) != UINT32_MAX)
            return i;
        struct cell *c = &p->cells[blocker];
        bool queued = c->place == SMALL || c->place == MAIN;
        if (queued && !park(p, c))
            continue;                /* given just now: look again */
        unsigned wide = p->cells[i].order;
        i += 1u << (wide > order ? wide : order);
    }
    return NONE;
}

/* Looks at the frames in turn, some per call; *more: not all were seen since the last event. */
static uint32_t sweep(struct pool *p, unsigned order, bool *more)
{
    uint64_t events = atomic_load(&p->waiters.events);

    if (p->sweep_events != events || p->sweep_order != order) {
        p->sweep_events = events;
        p->sweep_order = order;
        p->sweep_done = 0;
    }
    for (unsigned n = 0; p->sweep_done < p->frames; n++, p->sweep_done++) {
        if (n == SWEEP_FRAMES) {
            *more = true;
            return NONE;
        }
        uint32_t start = frame_range(p, p->sweep_at, order);
        if (start != NONE)
            return start;
        p->sweep_at = (p->sweep_at + 1) % p->frames;
    }
    return NONE;
}

static void clear_range(struct pool *p, uint32_t start, unsigned order)
{
    for (uint32_t i = start, step; i < start + (1u << order); i += step) {
        struct cell *c = &p->cells[i];
        step = 1u << c->order;
        if ((c->place == SMALL || c->place == MAIN) && !evict(p, i))
            return;                  /* found just now: the caller tries again */
    }
}

/* Evicts so that a block of that order may come free. False: all that could is held, or *more. */
static bool make_room(struct pool *p, unsigned order, bool *more)
{
    uint32_t i = victim(p);

    if (i == NONE)
        return false;
    if (p->cells[i].order >= order) {
        (void)evict(p, i);
        return true;
    }
    i = cheapest_range(p, i, order);
    if (i == NONE)
        i = sweep(p, order, more);
    if (i == NONE)
        return false;
    clear_range(p, i, order);
    return true;
}

static struct cell *take_block(struct pool *p, unsigned order, enum buffer_use use, bool *more)
{
    if (p->use_cells[use] + (1u << order) > p->use_limit[use])
        return NULL;
    for (unsigned tries = 0; tries < TRIES_MAX; tries++) {
        uint32_t i = block_pop(p, order);
        if (i != NONE)
            return &p->cells[i];
        if (!make_room(p, order, more))
            return NULL;
    }
    *more = true;
    return NULL;
}

/* ---- the face ---- */

struct buffer *pool_find(struct cache *c, const struct buffer_key *k)
{
    struct pool *p = cache_pool(c);
    uint64_t hash = key_hash(k);
    struct pool_part *s = part_of(p, hash);

    pthread_mutex_lock(&s->lock);
    struct cell *found = name_find(p, k, hash);
    if (found)
        hold_found(p, found);
    pthread_mutex_unlock(&s->lock);
    return found ? &found->b : NULL;
}

struct buffer *pool_take(struct cache *c, uint32_t bytes, enum buffer_use use)
{
    struct pool *p = cache_pool(c);
    bool more = false;

    must(bytes > 0 && bytes <= FRAME_BYTES && use <= BUFFER_PREFETCH);
    unsigned order = order_of(bytes);
    pthread_mutex_lock(&p->lock);
    struct cell *t = take_block(p, order, use, &more);
    if (t) {
        p->use_cells[use] += 1u << order;
        t->use = (uint8_t)(use + 1);
        t->place = LENT;
        t->home = SMALL;
        t->b.mem = p->memory + (uint64_t)cell_number(p, t) * CELL_BYTES;
        t->b.len = 0;
        t->b.cap = (uint32_t)CELL_BYTES << order;
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
static void name(struct pool *p, struct cell *t, const struct buffer_key *k, bool probation)
{
    uint64_t hash = key_hash(k);
    uint32_t *bucket = &p->bucket[hash & p->bucket_mask];
    bool known = pool_ghosts_take(&p->ghosts, hash);

    must(t->place == LENT && t->b.len > 0 && t->b.len <= t->b.cap);
    t->key = *k;
    t->chain = *bucket;
    *bucket = cell_number(p, t);
    t->place = PARKED;
    t->home = known && !probation ? MAIN : SMALL;
    /* Who fetched on demand has used it once; on probation the first find is only that use. */
    atomic_store_explicit(&t->freq, !probation && t->home == SMALL, memory_order_relaxed);
    uint32_t was = atomic_fetch_or(&t->holds, NAMED | PARKED_BIT);
    must((was & NAMED) == 0 && (was & COUNT_MASK) > 0);
}

struct buffer *pool_publish(struct cache *c, struct buffer *b, const struct buffer_key *k,
                            bool probation)
{
    struct pool *p = cache_pool(c);
    uint64_t hash = key_hash(k);
    struct pool_part *s = part_of(p, hash);

    pthread_mutex_lock(&p->lock);
    pthread_mutex_lock(&s->lock);
    struct cell *other = name_find(p, k, hash);
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

void pool_hold(struct buffer *b)
{
    uint32_t was = atomic_fetch_add(&cell_of(b)->holds, 1);

    must((was & COUNT_MASK) > 0 && (was & COUNT_MASK) < COUNT_MASK);
}

/* The last hold of a lent or parked buffer has ended: an event. */
static void release(struct pool *p, struct cell *c, struct wakes *out)
{
    if (c->use) {
        must(p->use_cells[c->use - 1] >= 1u << c->order);
        p->use_cells[c->use - 1] -= 1u << c->order;
        c->use = 0;
    }
    if (c->place == PARKED) {
        c->place = c->home;
        queue_push(p, queue_of(p, c->home), cell_number(p, c));
    } else {
        must(c->place == LENT);
        atomic_fetch_sub_explicit(&p->used_cells, 1u << c->order, memory_order_relaxed);
        block_free(p, cell_number(p, c), c->order);
    }
    waiters_event(&p->waiters, out);
}

static void give_slowly(struct pool *p, struct cell *c)
{
    struct wakes wakes = {.count = 0};
    int64_t cap = c->b.cap;

    pthread_mutex_lock(&p->lock);
    uint32_t holds = atomic_load(&c->holds), next;
    do {
        must((holds & COUNT_MASK) > 0);
        next = holds - 1;
        if ((next & COUNT_MASK) == 0)
            next &= ~PARKED_BIT;
    } while (!atomic_compare_exchange_weak(&c->holds, &holds, next));
    if ((next & COUNT_MASK) == 0) {
        count_held(p, c, -cap);
        release(p, c, &wakes);
    }
    pthread_mutex_unlock(&p->lock);
    wakes_send(&wakes);
}

void pool_give(struct cache *c, struct buffer *b)
{
    struct cell *t = cell_of(b);
    int64_t cap = b->cap;            /* after the last give it may be another buffer */
    uint32_t holds = atomic_load(&t->holds);

    do {
        must((holds & COUNT_MASK) > 0);
        if ((holds & COUNT_MASK) == 1 && (holds & (NAMED | PARKED_BIT)) != NAMED) {
            give_slowly(cache_pool(c), t);
            return;
        }
    } while (!atomic_compare_exchange_weak(&t->holds, &holds, holds - 1));
    if ((holds & COUNT_MASK) == 1)
        count_held(cache_pool(c), t, -cap);
}

void buffer_set_lent(struct buffer *b)
{
    atomic_store_explicit(&container_of(b, struct cell, b)->lent, 1, memory_order_relaxed);
}

void buffer_set_unread(struct buffer *b)
{
    atomic_store_explicit(&container_of(b, struct cell, b)->unread, 1, memory_order_relaxed);
}

bool buffer_take_unread(struct buffer *b)
{
    struct cell *c = container_of(b, struct cell, b);
    return atomic_load_explicit(&c->unread, memory_order_relaxed) &&
           atomic_exchange_explicit(&c->unread, 0, memory_order_relaxed);
}

void pool_wait(struct cache *c, struct pool_wait *w, struct machine *m)
{
    waiters_add(&cache_pool(c)->waiters, w, m);
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

/* One mapping for headers, buckets and ghosts: zero pages until touched. */
static bool make_tables(struct pool *p)
{
    size_t cells = (size_t)p->frames * FRAME_CELLS * sizeof(struct cell);
    uint64_t buckets = power_of_two_below((uint64_t)p->frames * BUCKETS_PER_FRAME);
    uint64_t ghosts = power_of_two_below((uint64_t)p->frames * GHOSTS_PER_FRAME);

    p->tables_bytes = cells + buckets * sizeof(uint32_t) + ghosts * sizeof(struct pool_ghost);
    p->tables_map = map_memory(p->tables_bytes);
    if (!p->tables_map)
        return false;
    p->cells = p->tables_map;
    p->ghosts.ghost = (struct pool_ghost *)(void *)((uint8_t *)p->tables_map + cells);
    p->ghosts.mask = ghosts - 1;
    p->bucket = (uint32_t *)(void *)(p->ghosts.ghost + ghosts);
    p->bucket_mask = buckets - 1;
    memset(p->bucket, 0xff, buckets * sizeof(uint32_t)); /* NONE */
    return true;
}

static bool make_frames(struct pool *p)
{
    size_t bytes = (size_t)p->frames * FRAME_BYTES;

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
    uint64_t cells = (uint64_t)p->frames * FRAME_CELLS;

    p->small_cells = cells / 10;
    p->ghosts.span = (uint32_t)(cells - cells / 10); /* as many bytes as MAIN holds */
    p->use_limit[BUFFER_DEMAND] = cells;
    p->use_limit[BUFFER_FILL] = cells / 2;
    p->use_limit[BUFFER_PREFETCH] = cells / 4;
}

struct pool *pool_make(uint64_t bytes)
{
    const uint64_t frame_bytes = FRAME_BYTES + FRAME_CELLS * sizeof(struct cell) +
                                 BUCKETS_PER_FRAME * sizeof(uint32_t) +
                                 GHOSTS_PER_FRAME * sizeof(struct pool_ghost);
    struct pool *p = NULL;

    if (bytes >= sizeof *p + frame_bytes)
        p = mem_take_aligned(sizeof *p, _Alignof(struct pool));
    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    p->frames = (uint32_t)min_u64((bytes - sizeof *p) / frame_bytes, NONE / FRAME_CELLS);
    pthread_mutex_init(&p->lock, NULL);
    for (unsigned n = 0; n < SHARDS; n++)
        pthread_mutex_init(&p->shard[n].lock, NULL);
    for (unsigned n = 0; n <= ORDER_MAX; n++)
        queue_init(&p->free[n]);
    queue_init(&p->small);
    queue_init(&p->main);
    waiters_init(&p->waiters);
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
    if (p->memory_map) {
        ASAN_UNPOISON_MEMORY_REGION(p->memory, (size_t)p->frames * FRAME_BYTES);
        munmap(p->memory_map, p->memory_map_bytes);
    }
    if (p->tables_map)
        munmap(p->tables_map, p->tables_bytes);
    for (unsigned n = 0; n < SHARDS; n++)
        pthread_mutex_destroy(&p->shard[n].lock);
    pthread_mutex_destroy(&p->lock);
    waiters_fini(&p->waiters);
    mem_give(p);
}

void pool_memory(const struct pool *p, void **at, size_t *bytes)
{
    *at = p->memory;
    *bytes = (size_t)p->frames * FRAME_BYTES;
}

void pool_status(struct pool *p, struct pool_status *out)
{
    int64_t held = 0;

    for (unsigned n = 0; n < SHARDS; n++)
        held += atomic_load_explicit(&p->shard[n].held_bytes, memory_order_relaxed);
    out->limit_bytes = (uint64_t)p->frames * FRAME_BYTES;
    out->used_bytes = atomic_load_explicit(&p->used_cells, memory_order_relaxed) * CELL_BYTES;
    out->held_bytes = held > 0 ? (uint64_t)held : 0;
}
