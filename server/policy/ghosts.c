/* Ghosts: what a policy knew of chunks that left, or were never admitted.
 *
 * Invariants:
 *  1. A table of fixed size: remembering one may forget the oldest of its set.
 *  2. A chunk is in one place at most; what comes back is a ghost no longer.
 *
 * Life: ghosts_make() with the policy, ghosts_free() with it.
 * Failure: only ghosts_make() can fail. A lost ghost costs hits, nothing else. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "server/policy/inside.h"

enum { GHOST_WAYS = 8 };

struct ghost {
    uint64_t hash;                   /* 0: empty */
    struct policy_mark mark;
} __attribute__((packed, aligned(4)));
_Static_assert(sizeof(struct policy_mark) == 12, "a mark is 12 bytes, in RAM and in the record");
_Static_assert(sizeof(struct ghost) == 20, "a ghost is 20 bytes");

enum err ghosts_make(struct ghosts *g, uint64_t count)
{
    if (count == 0)
        return OK;
    uint64_t sets = (count + GHOST_WAYS - 1) / GHOST_WAYS;
    g->ghost = mem_take(sets * GHOST_WAYS * sizeof *g->ghost);
    if (!g->ghost)
        return ERR_MEMORY;
    g->sets = sets;
    for (unsigned n = 0; n < ARRAY_COUNT(g->lock); n++)
        pthread_mutex_init(&g->lock[n], NULL);
    return OK;
}

void ghosts_free(struct ghosts *g)
{
    if (!g->ghost)
        return;
    for (unsigned n = 0; n < ARRAY_COUNT(g->lock); n++)
        pthread_mutex_destroy(&g->lock[n]);
    mem_give(g->ghost);
    g->ghost = NULL;
    g->sets = 0;
}

static uint64_t set_of(const struct ghosts *g, uint64_t hash)
{
    return (uint64_t)((unsigned __int128)(hash * 0x9E3779B97F4A7C15u) * g->sets >> 64);
}

/* Locks the hash's set. */
static struct ghost *enter_set(struct ghosts *g, uint64_t hash)
{
    uint64_t set = set_of(g, hash);

    pthread_mutex_lock(&g->lock[set % ARRAY_COUNT(g->lock)]);
    return &g->ghost[set * GHOST_WAYS];
}

static void leave_set(struct ghosts *g, uint64_t hash)
{
    pthread_mutex_unlock(&g->lock[set_of(g, hash) % ARRAY_COUNT(g->lock)]);
}

/* Where it stands, else an empty place, else the one of the oldest mark. */
static struct ghost *place_in(struct ghost *set, uint64_t hash, uint32_t now)
{
    struct ghost *oldest = set;

    for (struct ghost *e = set; e < set + GHOST_WAYS; e++)
        if (e->hash == hash)
            return e;
    for (struct ghost *e = set; e < set + GHOST_WAYS; e++) {
        if (e->hash == 0)
            return e;
        if (now - e->mark.last > now - oldest->mark.last)
            oldest = e;
    }
    return oldest;
}

void ghosts_add(struct ghosts *g, uint64_t hash, const struct policy_mark *m, uint32_t now)
{
    if (g->sets == 0)
        return;
    hash = hash ? hash : 1;
    struct ghost *e = place_in(enter_set(g, hash), hash, now);
    e->hash = hash;
    e->mark = *m;
    leave_set(g, hash);
}

bool ghosts_take(struct ghosts *g, uint64_t hash, struct policy_mark *out)
{
    bool found = false;

    if (g->sets == 0)
        return false;
    hash = hash ? hash : 1;
    struct ghost *set = enter_set(g, hash);
    for (struct ghost *e = set; e < set + GHOST_WAYS && !found; e++)
        if (e->hash == hash) {
            *out = e->mark;
            e->hash = 0;
            found = true;
        }
    leave_set(g, hash);
    return found;
}
