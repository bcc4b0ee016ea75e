/* Micro bench of the RAM tier: finding and giving back a hot buffer, taking and giving one,
 * checksums of a block.
 *
 * Invariants:
 *  1. Finds go to OBJECTS different buffers in turn, so that the table is not in the first cache.
 *
 * Life: one run over the real cache without directories. Failure: must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/micro/micro.h"
#include "server/cache/inside.h"
#include "server/server.h"

enum { OBJECTS = 20000, OBJECT_BYTES = 4 * KIB, POOL_BYTES = 256 * MIB };

static struct cache *cache;
static uint8_t *block;

static struct buffer_key key_of(uint64_t n)
{
    return (struct buffer_key){{n * 0x9E3779B97F4A7C15u, n}, 0};
}

static void fill(void)
{
    for (uint64_t n = 0; n < OBJECTS; n++) {
        struct buffer_key key = key_of(n);
        struct buffer *b = pool_take(cache, OBJECT_BYTES, BUFFER_DEMAND);
        must(b);
        b->len = OBJECT_BYTES;
        pool_give(cache, pool_publish(cache, b, &key, false));
    }
}

static void find_give(void)
{
    static uint64_t n;
    struct buffer_key key = key_of(n = (n + 7919) % OBJECTS);
    struct buffer *b = pool_find(cache, &key);

    must(b);
    pool_give(cache, b);
}

static void take_give(void)
{
    struct buffer *b = pool_take(cache, OBJECT_BYTES, BUFFER_DEMAND);

    must(b);
    pool_give(cache, b);
}

static void take_give_block(void)
{
    struct buffer *b = pool_take(cache, BLOCK_BYTES, BUFFER_FILL);

    must(b);
    pool_give(cache, b);
}

static void crc(void)
{
    struct block_sums out;

    chunk_crc((struct id){1, 2}, 3, 4, block, BLOCK_BYTES, &out);
}

int main(void)
{
    static struct config config = {.cache_memory = POOL_BYTES};
    static struct server server = {.config = &config};
    char why[512];

    if (cache_open(&server, why, &cache) != OK) {
        fprintf(stderr, "pool: %s\n", why);
        return 1;
    }
    block = mem_take_aligned(BLOCK_BYTES, 4 * KIB);
    must(block);
    fill();
    micro_run("pool_find_give", find_give, 0);
    micro_run("pool_take_give_4K", take_give, 0);
    micro_run("pool_take_give_1M", take_give_block, 0);
    micro_run("chunk_crc_1M", crc, BLOCK_BYTES);
    mem_give(block);
    cache_close(cache);
    return 0;
}
