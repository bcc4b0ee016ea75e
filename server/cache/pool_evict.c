/* How the pool makes room: buddies, and S3-FIFO that decides which buffers leave.
 *
 * Invariants:
 *  1. All is done under the allocator's lock; a shard's is taken inside it to unname a victim.
 *  2. A victim's count was 0 under its shard's lock, so nobody can find it while it goes.
 *  3. The work of one call is bounded: second chances, tries, frames swept; what was left undone is
 *     told by *more.
 *  4. No byte that was lent to a socket is written again: a free block with such pages is lent as
 *     a whole, and gets new ones when it is taken.
 *
 * Life: between pool_make() and pool_close(), for pool.c only.
 * Failure: no block, when all that could make room is held, or the use's share is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

#include <sys/mman.h>

#ifdef HEADPOND_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum {
    SPARE_MAX = 64,                  /* second chances per victim: bounds the work of one miss */
    /* promotions per victim, each once in a buffer's stay in SMALL: a hot set that was read first
     * stands together at SMALL's tail when the pool is full for the first time */
    PROMOTE_MAX = 1024,
    PEEK_MAX = 8,                    /* ranges compared when a split one is emptied */
    PEEK_WALK_MAX = 128,             /* victims looked at for them: neighbours share a range */
    TRIES_MAX = 64,                  /* lost races with finders */
    SWEEP_FRAMES = 64,               /* looked at by one take when all is fragmented */
    FREQ_PROVEN = 2,                 /* leaves SMALL for MAIN */
    /* of a cell that is in use, in cells of what was read once: 64 KiB of them are worth more than
     * all of a frame of these, so that a frame that is free but for them is not the cheapest */
    WORTH_USED = 20,
};

/* ---- queues ---- */

void pool_queue_init(struct pool_queue *q)
{
    *q = (struct pool_queue){POOL_NONE, POOL_NONE, 0};
}

void pool_queue_push(struct pool *p, struct pool_queue *q, uint32_t i)
{
    struct pool_cell *c = &p->cells[i];

    c->b.private_[0] = POOL_NONE;
    c->b.private_[1] = q->head;
    if (q->head == POOL_NONE)
        q->tail = i;
    else
        p->cells[q->head].b.private_[0] = i;
    q->head = i;
    q->cells += 1u << c->order;
}

static void pool_queue_remove(struct pool *p, struct pool_queue *q, uint32_t i)
{
    struct pool_cell *c = &p->cells[i];
    uint32_t before = c->b.private_[0], after = c->b.private_[1];

    *(before == POOL_NONE ? &q->head : &p->cells[before].b.private_[1]) = after;
    *(after == POOL_NONE ? &q->tail : &p->cells[after].b.private_[0]) = before;
    must(q->cells >= 1u << c->order);
    q->cells -= 1u << c->order;
}

struct pool_queue *pool_queue_of(struct pool *p, enum cell_place place)
{
    must(place == CELL_SMALL || place == CELL_MAIN);
    return place == CELL_SMALL ? &p->small : &p->main;
}

/* ---- buddies ---- */

static bool is_lent(const struct pool *p, uint32_t i)
{
    return atomic_load_explicit(&p->cells[i].lent, memory_order_relaxed);
}

static void set_lent(struct pool *p, uint32_t i, bool lent)
{
    atomic_store_explicit(&p->cells[i].lent, lent, memory_order_relaxed);
}

static bool is_free(const struct pool *p, uint32_t i, unsigned order)
{
    return p->cells[i].place == CELL_FREE && p->cells[i].order == order;
}

/* The other half of a frame's huge page; of the last frame there may be none. */
static uint32_t twin_of(const struct pool *p, uint32_t frame)
{
    uint32_t twin = frame ^ POOL_FRAME_CELLS;

    return twin / POOL_FRAME_CELLS < p->frames ? twin : POOL_NONE;
}

/* A lent block gets new pages before its next use; the sockets keep the old ones. With the other
 * half of its huge page, if that is free and lent as well: halves come back as small pages (shards
 * from disk, all lent: 0.57 s of CPU per GB by halves, 0.44 by whole ones). */
static void renew(struct pool *p, uint32_t i, unsigned order)
{
    uint32_t twin = order == POOL_ORDER_MAX ? twin_of(p, i) : POOL_NONE;
    size_t bytes = (size_t)POOL_CELL_BYTES << order;

    set_lent(p, i, false);
    if (twin != POOL_NONE && is_free(p, twin, order) && is_lent(p, twin)) {
        set_lent(p, twin, false);
        i = (uint32_t)min_u64(i, twin);
        bytes *= 2;
    }
    must(madvise(p->memory + (uint64_t)i * POOL_CELL_BYTES, bytes, MADV_DONTNEED) == 0);
}

void pool_block_free(struct pool *p, uint32_t i, unsigned order)
{
    bool lent = is_lent(p, i);

    ASAN_POISON_MEMORY_REGION(p->memory + (uint64_t)i * POOL_CELL_BYTES,
                              (size_t)POOL_CELL_BYTES << order);
    for (; order < POOL_ORDER_MAX; order++) {
        uint32_t buddy = i ^ 1u << order;
        if (!is_free(p, buddy, order))
            break;
        lent |= is_lent(p, buddy);
        pool_queue_remove(p, &p->free[order], buddy);
        p->cells[buddy | i].place = CELL_INSIDE; /* its order stays: clear_range() walks by it */
        i &= buddy;
    }
    set_lent(p, i, lent);
    p->cells[i].place = CELL_FREE;
    p->cells[i].order = (uint8_t)order;
    pool_queue_push(p, &p->free[order], i);
}

/* A block of exactly that order, from the smallest that fits, or NONE; its place is to be set. */
static uint32_t block_pop(struct pool *p, unsigned order)
{
    unsigned k = order;
    uint32_t i;

    while (k < POOL_ORDER_MAX && p->free[k].tail == POOL_NONE)
        k++;
    if (p->free[k].tail != POOL_NONE) {
        i = p->free[k].head;         /* the warmest */
        pool_queue_remove(p, &p->free[k], i);
        if (is_lent(p, i))
            renew(p, i, k);
    } else if (p->fresh < p->frames) {
        i = p->fresh++ * POOL_FRAME_CELLS;
        if (p->ready_runs && p->fresh + POOL_READY_AHEAD / 2 > p->ready)
            pthread_cond_signal(&p->ready_wake);
    } else {
        return POOL_NONE;
    }
    while (k > order) {
        k--;
        struct pool_cell *upper = &p->cells[i + (1u << k)];
        set_lent(p, i + (1u << k), false);
        upper->place = CELL_FREE;
        upper->order = (uint8_t)k;
        pool_queue_push(p, &p->free[k], i + (1u << k));
    }
    p->cells[i].order = (uint8_t)order;
    return i;
}

/* ---- eviction; all under the allocator's lock ---- */

/* Takes a held buffer out of its queue until its last give. False: it is not held. */
static bool park(struct pool *p, struct pool_cell *c)
{
    uint32_t holds = atomic_load(&c->holds);

    while ((holds & POOL_COUNT) > 0)
        if (atomic_compare_exchange_weak(&c->holds, &holds, holds | POOL_PARKED)) {
            pool_queue_remove(p, pool_queue_of(p, c->place), pool_cell_number(p, c));
            c->home = c->place;
            c->place = CELL_PARKED;
            return true;
        }
    return false;
}

/* S3-FIFO's second chance: proven buffers go from SMALL to MAIN, used ones to MAIN's head. So do
 * those whose first use is still to come: what was fetched for it would be fetched again. */
static bool spare(struct pool *p, struct pool_cell *c)
{
    uint8_t freq = atomic_load_explicit(&c->freq, memory_order_relaxed);
    uint32_t i = pool_cell_number(p, c);
    bool small = c->place == CELL_SMALL;
    bool unread = small && atomic_load_explicit(&c->unread, memory_order_relaxed);

    if (freq < (small ? FREQ_PROVEN : 1) && !unread)
        return false;
    pool_queue_remove(p, pool_queue_of(p, c->place), i);
    freq = small ? 0 : (uint8_t)(freq - 1);
    atomic_store_explicit(&c->freq, freq, memory_order_relaxed);
    c->place = CELL_MAIN;
    pool_queue_push(p, &p->main, i);
    return true;
}

/* Who goes next, still in its queue; NONE: every buffer is held. */
static uint32_t victim(struct pool *p)
{
    for (unsigned spared = 0, promoted = 0;;) {
        bool main_first = p->main.tail != POOL_NONE && p->small.cells < p->small_cells;
        uint32_t i = main_first || p->small.tail == POOL_NONE ? p->main.tail : p->small.tail;
        if (i == POOL_NONE)
            return POOL_NONE;
        struct pool_cell *c = &p->cells[i];
        if (park(p, c))
            continue;
        unsigned *done = c->place == CELL_SMALL ? &promoted : &spared;
        if (*done == (done == &spared ? SPARE_MAX : PROMOTE_MAX) || !spare(p, c))
            return i;
        ++*done;
    }
}

/* False: somebody found it in the meantime. */
static bool evict(struct pool *p, uint32_t i)
{
    struct pool_cell *c = &p->cells[i];
    uint64_t hash = pool_key_hash(&c->key);
    struct pool_part *s = pool_part_of(p, hash);

    pthread_mutex_lock(&s->lock);
    bool unheld = (atomic_load(&c->holds) & POOL_COUNT) == 0;
    if (unheld) {
        pool_unname(p, i, hash);
        atomic_store(&c->holds, 0);
    }
    pthread_mutex_unlock(&s->lock);
    if (!unheld)
        return false;
    if (c->place == CELL_SMALL)
        pool_ghosts_add(&p->ghosts, hash, 1u << c->order);
    pool_queue_remove(p, pool_queue_of(p, c->place), i);
    atomic_fetch_sub_explicit(&p->used_cells, 1u << c->order, memory_order_relaxed);
    pool_block_free(p, i, c->order);
    return true;
}

static bool evictable(const struct pool_cell *c)
{
    return (c->place == CELL_SMALL || c->place == CELL_MAIN) &&
           (atomic_load(&c->holds) & POOL_COUNT) == 0;
}

/* Its turn would come soon: in SMALL not proven; of MAIN it is the very next, and so not one that
 * was spared just now. */
static bool is_cold(const struct pool *p, uint32_t i)
{
    const struct pool_cell *c = &p->cells[i];
    uint8_t freq = atomic_load_explicit(&c->freq, memory_order_relaxed);

    if (c->place == CELL_MAIN)
        return freq == 0 && i == p->main.tail;
    return freq < FREQ_PROVEN && !atomic_load_explicit(&c->unread, memory_order_relaxed);
}

/* Behind a lent frame that left goes the one that shares its huge page, so that both are renewed
 * at once. */
static void evict_twin(struct pool *p, uint32_t frame, enum cell_place place)
{
    uint32_t twin = twin_of(p, frame);

    if (twin == POOL_NONE || !is_free(p, frame, POOL_ORDER_MAX) || !is_lent(p, frame))
        return;
    struct pool_cell *c = &p->cells[twin];
    if (c->place == place && c->order == POOL_ORDER_MAX && evictable(c) && is_cold(p, twin) &&
        is_lent(p, twin))
        (void)evict(p, twin);
}

/* What emptying a split range would lose; UINT32_MAX with *blocker set: something in it is held. */
static uint32_t range_cost(const struct pool *p, uint32_t start, unsigned order, uint32_t *blocker)
{
    uint32_t cost = 0;

    for (uint32_t i = start; i < start + (1u << order); i += 1u << p->cells[i].order) {
        const struct pool_cell *c = &p->cells[i];
        if (c->place == CELL_FREE)
            continue;
        if (!evictable(c)) {
            *blocker = i;
            return UINT32_MAX;
        }
        uint8_t freq = atomic_load_explicit(&c->freq, memory_order_relaxed);
        bool main = c->place == CELL_MAIN, used = freq >= (main ? 1 : FREQ_PROVEN);
        cost += (used ? WORTH_USED : main ? 3 : 1u + freq) << c->order;
    }
    return cost;
}

/* The range around one of the next victims that costs least; NONE: all have something held. */
static uint32_t cheapest_range(const struct pool *p, uint32_t i, unsigned order)
{
    uint32_t best = POOL_NONE, best_cost = UINT32_MAX, last = POOL_NONE, blocker;

    for (unsigned n = 0, walked = 0; n < PEEK_MAX && walked < PEEK_WALK_MAX && i != POOL_NONE;
         walked++, i = p->cells[i].b.private_[0]) {
        uint32_t start = p->cells[i].order >= order ? i : i & ~((1u << order) - 1);
        if (start == last)
            continue;
        last = start;
        n++;
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
    uint32_t i = frame * POOL_FRAME_CELLS, end = i + POOL_FRAME_CELLS, blocker = POOL_NONE;

    while (i < end) {
        if (range_cost(p, i, order, &blocker) != UINT32_MAX)
            return i;
        struct pool_cell *c = &p->cells[blocker];
        bool queued = c->place == CELL_SMALL || c->place == CELL_MAIN;
        if (queued && !park(p, c))
            continue;                /* given just now: look again */
        unsigned wide = p->cells[i].order;
        i += 1u << (wide > order ? wide : order);
    }
    return POOL_NONE;
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
            return POOL_NONE;
        }
        uint32_t start = frame_range(p, p->sweep_at, order);
        if (start != POOL_NONE)
            return start;
        p->sweep_at = (p->sweep_at + 1) % p->frames;
    }
    return POOL_NONE;
}

static void clear_range(struct pool *p, uint32_t start, unsigned order)
{
    for (uint32_t i = start, step; i < start + (1u << order); i += step) {
        struct pool_cell *c = &p->cells[i];
        step = 1u << c->order;
        if ((c->place == CELL_SMALL || c->place == CELL_MAIN) && !evict(p, i))
            return;                  /* found just now: the caller tries again */
    }
}

/* Evicts so that a block of that order may come free. False: all that could is held, or *more. */
static bool make_room(struct pool *p, unsigned order, bool *more)
{
    uint32_t i = victim(p);

    if (i == POOL_NONE)
        return false;
    if (p->cells[i].order >= order) {
        enum cell_place place = p->cells[i].place;
        if (evict(p, i))
            evict_twin(p, i, place);
        return true;
    }
    i = cheapest_range(p, i, order);
    if (i == POOL_NONE)
        i = sweep(p, order, more);
    if (i == POOL_NONE)
        return false;
    clear_range(p, i, order);
    return true;
}

struct pool_cell *pool_block_take(struct pool *p, unsigned order, enum buffer_use use, bool *more)
{
    if (p->use_cells[use] + (1u << order) > p->use_limit[use])
        return NULL;
    for (unsigned tries = 0; tries < TRIES_MAX; tries++) {
        uint32_t i = block_pop(p, order);
        if (i != POOL_NONE)
            return &p->cells[i];
        if (!make_room(p, order, more))
            return NULL;
    }
    *more = true;
    return NULL;
}
