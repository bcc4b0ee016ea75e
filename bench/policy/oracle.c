/* Belady's MIN: what is wanted last goes, which may be what has just been asked for.
 *
 * Invariants:
 *  1. The heap holds what is resident, that of the farthest next use on top.
 *
 * Life: one replay. Failure: must() when memory is short.
 * Limits: with chunks of different sizes it is not quite the best in bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/policy/replay.h"

struct heap {
    uint32_t *chunk, *place, *next;  /* by rank; per chunk: rank + 1, and its next use */
    uint32_t count;
};

static bool is_later(const struct heap *h, uint32_t a, uint32_t b)
{
    return h->next[h->chunk[a]] > h->next[h->chunk[b]];
}

static void swap(struct heap *h, uint32_t a, uint32_t b)
{
    uint32_t was = h->chunk[a];

    h->chunk[a] = h->chunk[b];
    h->chunk[b] = was;
    h->place[h->chunk[a]] = a + 1;
    h->place[h->chunk[b]] = b + 1;
}

static void rise(struct heap *h, uint32_t at)
{
    for (; at > 0 && is_later(h, at, (at - 1) / 2); at = (at - 1) / 2)
        swap(h, at, (at - 1) / 2);
}

static void sink(struct heap *h, uint32_t at)
{
    for (;;) {
        uint32_t latest = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < h->count; child++)
            if (is_later(h, child, latest))
                latest = child;
        if (latest == at)
            return;
        swap(h, at, latest);
        at = latest;
    }
}

static void heap_add(struct heap *h, uint32_t chunk)
{
    h->chunk[h->count] = chunk;
    h->place[chunk] = h->count + 1;
    rise(h, h->count++);
}

static void heap_drop_top(struct heap *h)
{
    h->place[h->chunk[0]] = 0;
    h->count--;
    if (h->count > 0) {
        h->chunk[0] = h->chunk[h->count];
        h->place[h->chunk[0]] = 1;
        sink(h, 0);
    }
}

/* For each read, when its chunk is read again. */
static uint32_t *next_uses(const struct trace *t)
{
    uint32_t *after = mem_take(t->count * sizeof *after);
    uint32_t *seen = mem_take(t->chunks * sizeof *seen);

    must(after && seen);
    memset(seen, 0xff, t->chunks * sizeof *seen);
    for (uint32_t n = t->count; n-- > 0;) {
        after[n] = seen[t->request[n].chunk];
        seen[t->request[n].chunk] = n;
    }
    mem_give(seen);
    return after;
}

struct score replay_min(const struct trace *t, uint64_t capacity)
{
    struct heap h = {mem_take(t->chunks * sizeof(uint32_t)), mem_take(t->chunks * sizeof(uint32_t)),
                     mem_take(t->chunks * sizeof(uint32_t)), 0};
    uint32_t *after = next_uses(t);
    struct score score = {0};
    uint64_t used = 0;

    must(h.chunk && h.place && h.next);
    for (uint32_t n = 0; n < t->count; n++) {
        uint32_t chunk = t->request[n].chunk, bytes = t->bytes[chunk];
        score.asked += t->request[n].bytes;
        h.next[chunk] = after[n];
        if (h.place[chunk]) {
            rise(&h, h.place[chunk] - 1); /* its next use is later than this one was */
            continue;
        }
        while (used + bytes > capacity && h.count > 0 && h.next[h.chunk[0]] > after[n]) {
            used -= t->bytes[h.chunk[0]];
            heap_drop_top(&h);
        }
        if (used + bytes > capacity || after[n] == UINT32_MAX) {
            score.fetched += t->request[n].bytes;
            continue;
        }
        heap_add(&h, chunk);
        used += bytes;
        score.fetched += bytes;
        score.written += bytes;
    }
    mem_give(h.chunk);
    mem_give(h.place);
    mem_give(h.next);
    mem_give(after);
    return score;
}
