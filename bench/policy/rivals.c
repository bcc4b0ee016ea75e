/* Well-known policies to compare with: LRU, S3-FIFO, ARC, W-TinyLFU, each in bytes.
 *
 * Invariants:
 *  1. A chunk stands in one queue at most; place says in which.
 *  2. They admit whatever is asked for, as servers do that have them.
 *
 * Life: one replay each. Failure: must() when memory is short. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/policy/replay.h"

enum { NOWHERE, QUEUES = 5 };
static const uint32_t NONE = UINT32_MAX;

struct queue {                       /* pushed at the head, taken at the tail */
    uint32_t head, tail;
    uint64_t bytes;
};
struct rival {
    const struct trace *t;
    struct entry {
        uint32_t newer, older;
        uint8_t place, count;
    } *entry;                        /* per chunk */
    struct queue queue[QUEUES];      /* by place */
    uint64_t capacity, target;       /* target: what ARC adapts */
    uint64_t counted;
    struct score score;
};

static void queue_remove(struct rival *r, uint32_t chunk)
{
    struct entry *e = &r->entry[chunk];
    struct queue *q = &r->queue[e->place];

    if (e->newer == NONE)
        q->head = e->older;
    else
        r->entry[e->newer].older = e->older;
    if (e->older == NONE)
        q->tail = e->newer;
    else
        r->entry[e->older].newer = e->newer;
    q->bytes -= r->t->bytes[chunk];
    e->place = NOWHERE;
}

static void queue_push(struct rival *r, unsigned place, uint32_t chunk)
{
    struct entry *e = &r->entry[chunk];
    struct queue *q = &r->queue[place];

    if (e->place != NOWHERE)
        queue_remove(r, chunk);
    e->place = (uint8_t)place;
    e->newer = NONE;
    e->older = q->head;
    if (q->head == NONE)
        q->tail = chunk;
    else
        r->entry[q->head].newer = chunk;
    q->head = chunk;
    q->bytes += r->t->bytes[chunk];
}

/* hit() says whether it was there; if not, it is there afterwards. */
static struct score replay(const struct trace *t, uint64_t capacity,
                           bool (*hit)(struct rival *r, uint32_t chunk))
{
    struct rival r = {.t = t, .capacity = capacity};

    r.entry = mem_take(t->chunks * sizeof *r.entry);
    must(r.entry);
    for (unsigned n = 0; n < QUEUES; n++)
        r.queue[n] = (struct queue){NONE, NONE, 0};
    for (uint32_t n = 0; n < t->count; n++) {
        const struct request *a = &t->request[n];
        r.score.asked += a->bytes;
        if (hit(&r, a->chunk))
            continue;
        r.score.fetched += t->bytes[a->chunk];
        r.score.written += t->bytes[a->chunk];
    }
    mem_give(r.entry);
    return r.score;
}

/* ---- LRU ---- */

static bool lru(struct rival *r, uint32_t chunk)
{
    bool hit = r->entry[chunk].place == 1;

    queue_push(r, 1, chunk);
    while (r->queue[1].bytes > r->capacity)
        queue_remove(r, r->queue[1].tail);
    return hit;
}

struct score replay_lru(const struct trace *t, uint64_t capacity)
{
    return replay(t, capacity, lru);
}

/* ---- S3-FIFO: a tenth small, the rest main, ghosts for nine tenths ---- */

enum { SMALL = 1, MAIN, GHOST };

static void s3fifo_evict(struct rival *r)
{
    bool small = r->queue[SMALL].bytes > r->capacity / 10 || r->queue[MAIN].tail == NONE;
    uint32_t chunk = r->queue[small ? SMALL : MAIN].tail;
    struct entry *e = &r->entry[chunk];

    if (small) {
        queue_push(r, e->count >= 2 ? MAIN : GHOST, chunk);
        e->count = 0;
    } else if (e->count > 0) {
        e->count--;
        queue_push(r, MAIN, chunk);
    } else {
        queue_remove(r, chunk);
    }
    while (r->queue[GHOST].bytes > r->capacity / 10 * 9)
        queue_remove(r, r->queue[GHOST].tail);
}

static bool s3fifo(struct rival *r, uint32_t chunk)
{
    struct entry *e = &r->entry[chunk];

    if (e->place == SMALL || e->place == MAIN) {
        e->count = e->count < 3 ? e->count + 1 : 3;
        return true;
    }
    bool back = e->place == GHOST;
    if (back)
        queue_remove(r, chunk);
    while (r->queue[SMALL].bytes + r->queue[MAIN].bytes + r->t->bytes[chunk] > r->capacity)
        s3fifo_evict(r);
    e->count = 0;
    queue_push(r, back ? MAIN : SMALL, chunk);
    return false;
}

struct score replay_s3fifo(const struct trace *t, uint64_t capacity)
{
    return replay(t, capacity, s3fifo);
}

/* ---- ARC: seen once, seen often, and the ghosts of both ---- */

enum { ONCE = 1, OFTEN, WAS_ONCE, WAS_OFTEN };

static void arc_replace(struct rival *r, bool was_often)
{
    struct queue *q = r->queue;
    bool once = q[ONCE].tail != NONE &&
                (q[ONCE].bytes > r->target || (was_often && q[ONCE].bytes >= r->target) ||
                 q[OFTEN].tail == NONE);

    if (once)
        queue_push(r, WAS_ONCE, q[ONCE].tail);
    else
        queue_push(r, WAS_OFTEN, q[OFTEN].tail);
}

static void arc_adapt(struct rival *r, uint32_t chunk)
{
    struct queue *q = r->queue;
    uint64_t bytes = r->t->bytes[chunk];
    double once = (double)q[WAS_ONCE].bytes, often = (double)q[WAS_OFTEN].bytes;

    if (r->entry[chunk].place == WAS_ONCE) {
        double step = once < often ? often / once : 1;
        r->target = min_u64(r->capacity, r->target + (uint64_t)(step * (double)bytes));
    } else {
        double step = often < once ? once / often : 1;
        r->target -= min_u64(r->target, (uint64_t)(step * (double)bytes));
    }
}

static bool arc(struct rival *r, uint32_t chunk)
{
    struct queue *q = r->queue;
    unsigned place = r->entry[chunk].place;
    bool back = place == WAS_ONCE || place == WAS_OFTEN;

    if (place == ONCE || place == OFTEN) {
        queue_push(r, OFTEN, chunk);
        return true;
    }
    if (back) {
        arc_adapt(r, chunk);
        queue_remove(r, chunk);
    }
    while (q[ONCE].bytes + q[OFTEN].bytes + r->t->bytes[chunk] > r->capacity)
        arc_replace(r, place == WAS_OFTEN);
    queue_push(r, back ? OFTEN : ONCE, chunk);
    while (q[ONCE].bytes + q[WAS_ONCE].bytes > r->capacity && q[WAS_ONCE].tail != NONE)
        queue_remove(r, q[WAS_ONCE].tail);
    while (q[ONCE].bytes + q[OFTEN].bytes + q[WAS_ONCE].bytes + q[WAS_OFTEN].bytes >
               2 * r->capacity &&
           q[WAS_OFTEN].tail != NONE)
        queue_remove(r, q[WAS_OFTEN].tail);
    return false;
}

struct score replay_arc(const struct trace *t, uint64_t capacity)
{
    return replay(t, capacity, arc);
}

/* ---- W-TinyLFU: a window of 1 %, behind it SLRU, admission by counts ---- */

enum { WINDOW = 1, PROBATION, PROTECTED, COUNT_MOST = 15 };

/* Exact counts up to 15, halved after each ten caches full of reads. */
static void count_read(struct rival *r, uint32_t chunk)
{
    struct entry *e = &r->entry[chunk];

    e->count = e->count < COUNT_MOST ? e->count + 1 : COUNT_MOST;
    r->counted += r->t->bytes[chunk];
    if (r->counted < 10 * r->capacity)
        return;
    r->counted = 0;
    for (uint32_t n = 0; n < r->t->chunks; n++)
        r->entry[n].count /= 2;
}

static void wtinylfu_shrink(struct rival *r)
{
    struct queue *q = r->queue;
    uint64_t main_ = r->capacity - r->capacity / 100;

    while (q[PROTECTED].bytes > main_ / 5 * 4)
        queue_push(r, PROBATION, q[PROTECTED].tail);
    while (q[WINDOW].bytes > r->capacity / 100) {
        uint32_t in = q[WINDOW].tail;
        bool beaten = false;
        while (!beaten && q[PROBATION].bytes + q[PROTECTED].bytes + r->t->bytes[in] > main_) {
            uint32_t out = q[PROBATION].tail == NONE ? q[PROTECTED].tail : q[PROBATION].tail;
            beaten = out == NONE || r->entry[in].count <= r->entry[out].count;
            queue_remove(r, beaten ? in : out);
        }
        if (!beaten)
            queue_push(r, PROBATION, in);
    }
}

static bool wtinylfu(struct rival *r, uint32_t chunk)
{
    unsigned place = r->entry[chunk].place;

    count_read(r, chunk);
    queue_push(r, place == PROBATION || place == PROTECTED ? PROTECTED : WINDOW, chunk);
    wtinylfu_shrink(r);
    return place != NOWHERE;
}

struct score replay_wtinylfu(const struct trace *t, uint64_t capacity)
{
    return replay(t, capacity, wtinylfu);
}
