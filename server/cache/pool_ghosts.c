/* The pool's ghosts: hashes of the buffers that left SMALL unproven; one that comes back soon has
 * proven itself and goes to MAIN at once (S3-FIFO). Pure.
 *
 * Invariants:
 *  1. A ghost stands in the set of POOL_GHOST_WAYS that its hash names; adding to a full set
 *     forgets its oldest. So the memory is fixed and each call looks at one cache line.
 *  2. The clock counts the cells that were added, not time: with the span set to what MAIN holds,
 *     a ghost lives while as many bytes leave SMALL as MAIN has room for. It may wrap: only
 *     differences count.
 *
 * Life: inside struct pool, in the tables that pool_make() maps; used under the allocator's lock.
 * Failure: none. A forgotten ghost, or another hash with its tag, costs a hit and nothing else. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

static struct pool_ghost *set_of(const struct pool_ghosts *g, uint64_t hash)
{
    return &g->ghost[hash & g->mask & ~(uint64_t)(POOL_GHOST_WAYS - 1)];
}

static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32) | 1;
}

void pool_ghosts_add(struct pool_ghosts *g, uint64_t hash, uint32_t cells)
{
    struct pool_ghost *set = set_of(g, hash), *oldest = set;

    for (struct pool_ghost *x = set; x < set + POOL_GHOST_WAYS; x++)
        if (x->tag == 0 || g->clock - x->when > g->clock - oldest->when)
            oldest = x;
    g->clock += cells;
    *oldest = (struct pool_ghost){tag_of(hash), g->clock};
}

bool pool_ghosts_take(struct pool_ghosts *g, uint64_t hash)
{
    struct pool_ghost *set = set_of(g, hash);

    for (struct pool_ghost *x = set; x < set + POOL_GHOST_WAYS; x++)
        if (x->tag == tag_of(hash)) {
            bool young = g->clock - x->when <= g->span;
            *x = (struct pool_ghost){0};
            return young;
        }
    return false;
}
