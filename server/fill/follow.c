/* What clients read, told to who has a plan of it: a ring for each core, emptied by one follower.
 *
 * Invariants:
 *  1. A core alone writes its ring, and the follower alone reads it: neither waits for the other.
 *  2. Nothing is noted while nobody follows, and nothing is allocated by who notes.
 *  3. What does not fit is not told. Whoever follows must bear that.
 *
 * Life: a ring is made when somebody follows for the first time, and lives as long as the process.
 * Failure: without memory for the rings nobody can follow. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

enum { RING_READS = 4096 };          /* a power of two */

struct read_ring {
    _Atomic uint32_t written, taken; /* counts, modulo 2^32 */
    struct follow_read read[RING_READS];
};

static bool is_followed(const struct core *c)
{
    return atomic_load_explicit(&c->server->fills->followed, memory_order_relaxed);
}

void follow_note(struct core *c, const struct follow_read *r)
{
    if (!is_followed(c))
        return;
    struct read_ring *ring =
        atomic_load_explicit(&c->server->fills->read_by[c->number], memory_order_acquire);
    if (!ring)
        return;
    uint32_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (at - atomic_load_explicit(&ring->taken, memory_order_acquire) == RING_READS)
        return;
    struct follow_read *read = &ring->read[at % RING_READS];
    *read = *r;
    read->at_us = c->now_us;
    atomic_store_explicit(&ring->written, at + 1, memory_order_release);
}

bool follow_begin(struct server *s)
{
    for (unsigned i = 0; i < s->core_count; i++) {
        if (atomic_load(&s->fills->read_by[i]))
            continue;
        struct read_ring *ring = mem_take(sizeof *ring);
        if (!ring)
            return false;
        atomic_store(&s->fills->read_by[i], ring);
    }
    atomic_store(&s->fills->followed, true);
    return true;
}

/* What the last reads left is dropped by who follows next. */
void follow_end(struct server *s)
{
    atomic_store(&s->fills->followed, false);
}

/* The next one of that ring; NULL: it is empty. */
static const struct follow_read *next_of(struct read_ring *ring)
{
    uint32_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);

    return at == atomic_load_explicit(&ring->written, memory_order_acquire)
        ? NULL : &ring->read[at % RING_READS];
}

/* Of all rings that whose next read is the oldest. */
static struct read_ring *oldest_of(struct server *s)
{
    struct read_ring *best = NULL;
    uint64_t at_us = UINT64_MAX;

    for (unsigned i = 0; i < s->core_count; i++) {
        struct read_ring *ring = atomic_load_explicit(&s->fills->read_by[i], memory_order_acquire);
        const struct follow_read *next = ring ? next_of(ring) : NULL;
        if (!next || next->at_us >= at_us)
            continue;
        at_us = next->at_us;
        best = ring;
    }
    return best;
}

unsigned follow_take(struct server *s, struct follow_read *out, unsigned cap)
{
    for (unsigned count = 0; count < cap; count++) {
        struct read_ring *ring = oldest_of(s);
        if (!ring)
            return count;
        uint32_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);
        out[count] = ring->read[at % RING_READS];
        atomic_store_explicit(&ring->taken, at + 1, memory_order_release);
    }
    return cap;
}

void follow_close(struct server *s)
{
    for (unsigned i = 0; i < s->core_count; i++)
        mem_give(atomic_load(&s->fills->read_by[i]));
    mem_give(s->fills->read_by);
}
