/* What a chunk stands in: its head, and its CRCs.
 *
 * A hit looks at heads, at random among millions; at CRCs only behind a read from disk. Those of
 * large chunks stand apart, so that heads are a quarter as much memory: a look-up waits less often
 * for a translation of addresses as well.
 *
 * Invariants:
 *  1. A chunk's CRCs are charged with its head, and given with it, but that a dead chunk may leave
 *     its head to its slot (struct limbo). They are taken with it, too, unless a start leaves them
 *     behind (sums.c): then crc is NULL until they come, once, under the stripe.
 *
 * Life: that of the index. Failure: NULL or false, and nothing is taken. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

enum {
    INSIDE_MOST = 8,                 /* CRCs that stand in the head: those of one block */
};

size_t chunk_head_size(uint32_t bytes)
{
    uint32_t granules = chunk_granules(bytes);

    return sizeof(struct chunk) + (granules <= INSIDE_MOST ? granules * sizeof(uint32_t) : 0);
}

size_t chunk_sums_size(uint32_t bytes)
{
    uint32_t granules = chunk_granules(bytes);

    return granules <= INSIDE_MOST ? 0 : granules * sizeof(uint32_t);
}

struct chunk *chunk_take_head(struct cache *c, uint32_t bytes)
{
    struct chunk *k = cells_take(c->cells, chunk_head_size(bytes));

    if (!k)
        return NULL;
    k->bytes = bytes;
    atomic_init(&k->crc, chunk_sums_size(bytes) == 0 ? k->sums : NULL);
    return k;
}

struct chunk *chunk_take(struct cache *c, uint32_t bytes)
{
    struct chunk *k = chunk_take_head(c, bytes);

    if (!k || atomic_load(&k->crc))
        return k;
    atomic_init(&k->crc, cells_take(c->sums, chunk_sums_size(bytes)));
    if (atomic_load(&k->crc))
        return k;
    cells_give(c->cells, k, chunk_head_size(bytes));
    return NULL;
}

unsigned chunk_take_heads(struct cache *c, unsigned count, void **out)
{
    unsigned taken = cells_take_many(c->cells, chunk_head_size(CHUNK_BYTES), count, out);

    for (unsigned i = 0; i < taken; i++) {
        struct chunk *k = out[i];
        memset(k, 0, sizeof *k);
        k->bytes = CHUNK_BYTES;
        atomic_init(&k->crc, NULL);
    }
    return taken;
}

bool chunk_add_sums(struct cache *c, struct chunk *k, struct span crcs)
{
    size_t bytes = chunk_sums_size(k->bytes);
    void *sums;

    must(bytes > 0 && crcs.len == bytes && !chunk_sums(k));
    if (cells_take_many(c->sums, bytes, 1, &sums) == 0)
        return false;
    record_chunk_crcs(crcs, sums);
    atomic_store_explicit(&k->crc, sums, memory_order_release);
    return true;
}

void chunk_give_sums(struct cache *c, struct chunk *k)
{
    size_t bytes = chunk_sums_size(k->bytes);
    uint32_t *sums = chunk_sums(k);

    if (bytes > 0 && sums)
        cells_give(c->sums, sums, bytes);
}

void chunk_give(struct cache *c, struct chunk *k)
{
    chunk_give_sums(c, k);
    cells_give(c->cells, k, chunk_head_size(k->bytes));
}
