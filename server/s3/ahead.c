/* Which chunks are fetched before the reader comes to them.
 *
 * Invariants:
 *  1. What the client says of its reads (x-headpond-hint) goes before what the configuration
 *     supposes: sequential goes on behind the answer, random never begins.
 *  2. At most g->window chunks are under way in front of the reader, and no chunk is begun that is
 *     here already.
 *
 * Life: part of a GET, called at each turn of its pump.
 * Failure: at the limit of read-ahead nothing is begun; the next turn tries again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

static struct cache *cache_of(const struct get *g)
{
    return g->m.core->server->cache;
}

/* By the names that clients use. */
static bool reads_ahead(struct get *g)
{
    const struct s3_ask *a = &container_of(g, struct req, get)->ask;
    return conf_bucket(g->m.core->settings->config, a->bucket, a->key)->readahead;
}

/* The last chunk worth fetching ahead: of the answer, or of the object. */
static uint64_t last_ahead(const struct get *g)
{
    return (get_hint(g) & HINT_SEQUENTIAL ? g->object->size - 1 : g->to) / CHUNK_BYTES;
}

/* Does anybody want to be ahead of the reader? What the client says of its reads goes before what
 * the configuration supposes. */
static bool may_be_ahead(struct get *g)
{
    return !(get_hint(g) & HINT_RANDOM) &&
           (get_hint(g) & HINT_SEQUENTIAL || reads_ahead(g));
}

/* What was fetched ahead, or came with the asking, and had left again when its reader came, is one
 * use all the same. */
uint32_t get_told(const struct get *g, uint64_t number)
{
    uint64_t base = number * CHUNK_BYTES;
    if (number > g->from / CHUNK_BYTES && number < g->ahead)
        return CHUNK_BYTES;
    return g->told > base ? (uint32_t)min_u64(g->told - base, CHUNK_BYTES) : 0;
}

/* Where it ends what will be read of a chunk: of one behind the answer all. */
static uint32_t upto_ahead(const struct get *g, uint64_t number)
{
    return number <= g->to / CHUNK_BYTES ? get_asked_upto(g, number)
                                         : object_chunk_bytes(g->object, number);
}

void get_fetch_ahead(struct get *g)
{
    uint64_t here = g->next / CHUNK_BYTES, last = last_ahead(g);
    bool asked = false;
    struct wait like = {.epoch = g->epoch, .profile = get_profile(g), .hint = get_hint(g)};
    while (g->ahead <= last && g->ahead <= here + g->window) {
        if (!asked && !may_be_ahead(g))
            return;
        asked = true;
        like.to = upto_ahead(g, g->ahead);
        uint8_t mask = (uint8_t)((1u << (like.to + BLOCK_BYTES - 1) / BLOCK_BYTES) - 1);
        struct chunk *k = chunk_find(cache_of(g), g->object->data_id, g->ahead);
        bool here_all =
            k && (chunk_present(cache_of(g), k) & mask) == mask;
        if (k)
            chunk_drop(cache_of(g), k);
        if (!here_all && !fill_ahead(g->m.core, g->object, g->ahead, &like))
            return;
        g->ahead++;
    }
}
