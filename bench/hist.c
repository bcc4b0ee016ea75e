/* A histogram of times: 64 cells per doubling.
 *
 * Invariants:
 *  1. cell[i] counts what index_of() maps to i; values beyond the last cell stand in it.
 *
 * Life: zeroed by its owner. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load.h"

static unsigned index_of(uint64_t ns)
{
    if (ns < 2 * HIST_SUB)
        return (unsigned)ns;
    unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - 6; /* leaves 64..127 */
    return (unsigned)min_u64(shift * HIST_SUB + (ns >> shift), HIST_CELLS - 1);
}

/* The middle of a cell. */
static double value_of(unsigned i)
{
    if (i < 2 * HIST_SUB)
        return i;
    unsigned shift = i / HIST_SUB - 1;
    uint64_t low = (uint64_t)(i % HIST_SUB + HIST_SUB) << shift;
    return (double)low + (double)(1ull << shift) / 2;
}

void hist_add(struct hist *h, uint64_t ns)
{
    h->cell[index_of(ns)]++;
    h->count++;
    h->max_ns = max_u64(h->max_ns, ns);
}

double hist_us(const struct hist *h, double share)
{
    uint64_t seen = 0, want = (uint64_t)((double)h->count * share);

    if (h->count == 0)
        return 0;
    if (share >= 1)
        return (double)h->max_ns / 1000;
    for (unsigned i = 0; i < HIST_CELLS; i++) {
        seen += h->cell[i];
        if (seen > want)
            return value_of(i) / 1000;
    }
    return (double)h->max_ns / 1000;
}
