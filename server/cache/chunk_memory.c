/* What a chunk stands in: its head, and its CRCs.
 *
 * A hit looks at heads, at random among millions; at CRCs only behind a read from disk. Those of
 * large chunks stand apart, so that heads are a quarter as much memory: a look-up waits less often
 * for a translation of addresses as well.
 *
 * Invariants:
 *  1. A chunk's CRCs have the life of its head: both are taken, charged and given together, but
 *     that a dead chunk may leave its head to its slot (struct limbo).
 *
 * Life: that of the index. Failure: NULL, and nothing is taken. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

enum {
    INSIDE_MOST = 8,                 /* CRCs that stand in the head: those of one block */
    AT_ONCE = 64,
};

static uint32_t granules_of(uint32_t bytes)
{
    return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES;
}

size_t chunk_head_size(uint32_t bytes)
{
    uint32_t granules = granules_of(bytes);

    return sizeof(struct chunk) + (granules <= INSIDE_MOST ? granules * sizeof(uint32_t) : 0);
}

size_t chunk_sums_size(uint32_t bytes)
{
    uint32_t granules = granules_of(bytes);

    return granules <= INSIDE_MOST ? 0 : granules * sizeof(uint32_t);
}

struct chunk *chunk_take(struct cache *c, uint32_t bytes)
{
    size_t sums = chunk_sums_size(bytes);
    struct chunk *k = cells_take(c->cells, chunk_head_size(bytes));

    if (!k)
        return NULL;
    k->bytes = bytes;
    k->crc = sums == 0 ? k->sums : cells_take(c->sums, sums);
    if (k->crc)
        return k;
    cells_give(c->cells, k, chunk_head_size(bytes));
    return NULL;
}

/* CRCs for those heads. Returns how many got them. */
static unsigned add_sums(struct cache *c, unsigned count, void **heads)
{
    void *sums[AT_ONCE];
    unsigned got = cells_take_many(c->sums, chunk_sums_size(CHUNK_BYTES), count, sums);

    for (unsigned i = 0; i < got; i++) {
        struct chunk *k = heads[i];
        memset(k, 0, sizeof *k);
        k->bytes = CHUNK_BYTES;
        k->crc = sums[i];
    }
    return got;
}

unsigned chunk_take_whole(struct cache *c, unsigned count, void **out)
{
    size_t head = chunk_head_size(CHUNK_BYTES);
    unsigned ready = 0, got = 1;
    unsigned heads = cells_take_many(c->cells, head, count, out);

    while (ready < heads && got > 0) {
        got = add_sums(c, (unsigned)min_u64(heads - ready, AT_ONCE), out + ready);
        ready += got;
    }
    while (heads > ready)
        cells_give(c->cells, out[--heads], head);
    return ready;
}

void chunk_give_sums(struct cache *c, struct chunk *k)
{
    size_t sums = chunk_sums_size(k->bytes);

    if (sums > 0)
        cells_give(c->sums, k->crc, sums);
}

void chunk_give(struct cache *c, struct chunk *k)
{
    chunk_give_sums(c, k);
    cells_give(c->cells, k, chunk_head_size(k->bytes));
}
