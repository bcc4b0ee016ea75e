/* Objects that are replaced while they are read: which answers are held back, which go out in one
 * piece.
 *
 * Invariants:
 *  1. Each answer of upstream is one version of the object. An answer of ours that needs several of
 *     them must not begin before it is likely that all of them will be the same.
 *
 * Life: part of a GET, between its judgement and its head.
 * Failure: a block that cannot be had before the head begins the request anew. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

enum { YOUNG_MS = 2500 };            /* how long OBJECT_YOUNG holds after the answer that said it */

static struct cache *cache_of(const struct get *g)
{
    return g->m.core->server->cache;
}

/* A generation of this key died under a fetch lately, and the answer would be put together from
 * several upstream answers that do not fit together: relay it in one piece. */
bool get_too_lively(const struct get *g)
{
    bool one_chunk = g->from / CHUNK_BYTES == g->to / CHUNK_BYTES;
    if (one_chunk || atomic_load_explicit(&g->object->flags, memory_order_relaxed) & OBJECT_STABLE)
        return false;
    return fill_died_lately(g->m.core, g->key.id);
}

/* An object that was modified just now may still be changing. Its head waits until all blocks of
 * the answer are here, or come with answers of upstream that are on their way: each of those is one
 * version, and all are the same. */
bool get_must_pin(const struct get *g)
{
    if (!(atomic_load_explicit(&g->object->flags, memory_order_relaxed) & OBJECT_YOUNG))
        return false;
    uint64_t checked = atomic_load_explicit(&g->object->checked_ms, memory_order_relaxed);
    uint64_t chunks = g->to / CHUNK_BYTES - g->from / CHUNK_BYTES + 1;
    bool one_block = g->from / BLOCK_BYTES == g->to / BLOCK_BYTES;
    return !one_block && chunks <= GET_WINDOW_MOST && clock_wall_ms() < checked + YOUNG_MS;
}

/* The wait for what the answer needs of block pin_at. */
static void describe(struct get *g, uint64_t number)
{
    uint64_t at = g->pin_at * BLOCK_BYTES;
    g->pin.m = &g->m;
    g->pin.epoch = g->epoch;
    g->pin.profile = get_profile(g);
    g->pin.hint = get_hint(g);
    g->pin.follows = get_reads_on(g);
    g->pin.early = true;
    g->pin.told = get_told(g, number);
    g->pin.from = (uint32_t)(max_u64(g->from, at) % CHUNK_BYTES);
    g->pin.to = (uint32_t)(min_u64(g->to, at + BLOCK_BYTES - 1) % CHUNK_BYTES) + 1;
}

static bool is_at_hand(struct get *g, uint64_t number)
{
    struct cache *cache = cache_of(g);
    struct buffer_key key = {g->object->data_id, g->pin_at * BLOCK_BYTES};
    struct buffer *b = pool_find(cache, &key);
    struct chunk *k = b ? NULL : chunk_find(cache, g->object->data_id, number);
    bool here = b || (k && chunk_present(cache, k) >> g->pin_at % BLOCKS_PER_CHUNK & 1);
    if (k)
        chunk_drop(cache, k);
    if (b)
        pool_give(cache, b);
    return here;
}

/* Is block pin_at sure? If not, it is waited for; *why: it cannot be. */
static bool block_is_sure(struct get *g, enum err *why)
{
    uint64_t number = g->pin_at / BLOCKS_PER_CHUNK;
    if (is_at_hand(g, number))
        return true;
    describe(g, number);
    if (fill_is_sure(g->m.core, g->object, number, &g->pin))
        return true;
    enum fill_turn turn =
        fill_want(g->m.core, g->object, number, get_asked_upto(g, number), &g->pin);
    if (turn == FILL_FULL)
        *why = ERR_BUSY;
    if (g->pin.got)
        pool_give(cache_of(g), g->pin.got);
    g->pin.got = NULL;
    return turn != FILL_WAITS && turn != FILL_FULL;
}

/* True when every block of the answer is sure. Sets *why if one cannot be had. */
bool get_pinned(struct get *g, enum err *why)
{
    while (g->pin_at <= g->to / BLOCK_BYTES && !g->pin.busy) {
        if (wait_take(&g->pin)) {
            if (g->pin.got)
                pool_give(cache_of(g), g->pin.got);
            g->pin.got = NULL;
            *why = g->pin.err;
            g->refused = g->pin.status;
            if (*why != OK)
                return false;
        } else if (!block_is_sure(g, why)) {
            return false;
        }
        g->pin_at++;
    }
    return !g->pin.busy;
}

void get_leave_pin(struct get *g)
{
    if (fill_leave(g->m.core, &g->pin) && wait_take(&g->pin) && g->pin.got) {
        pool_give(cache_of(g), g->pin.got);
        g->pin.got = NULL;
    }
}
