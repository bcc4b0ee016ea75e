/* How long a start takes with many records: writes COUNT objects of one small chunk each straight
 * into the index, opens the cache, prints.
 *
 *   load_index DIR [COUNT]     DIR must not exist; it is left behind for a second look
 *
 * Goal: ready within 2 s for 1 M chunks (index check in the child included). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "log.h"
#include "server/cache/inside.h"

enum { BATCH = 4000 };

static struct config config;
static struct server server;

static struct cache *open_cache(void)
{
    char why[512];
    struct cache *c;

    if (cache_open(&server, why, &c) == OK)
        return c;
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void make_records(struct cache *c, uint64_t i)
{
    static char key[64];
    struct okey k = {.bucket = span_of("dataset"), .version = span_of("")};
    struct object_facts f = {
        .size = 4096,
        .last_modified_s = 1700000000,
        .asked_ms = 1700000000000,
        .etag = span_of("\"9b2cf535f27731c974343645a3985328\""),
        .headers = span_of("content-type: application/octet-stream\r\nx-amz-meta-set: train\r\n"),
    };
    struct chunk_asked asked = {.bytes = f.size};
    struct object *o;
    struct chunk *chunk;

    snprintf(key, sizeof key, "train/part-%04llu/sample-%08llu.jpg",
             (unsigned long long)(i / 10000), (unsigned long long)i);
    k.key = span_of(key);
    cache_key(c, &k);
    if (cache_learn(c, &k, &f, &o) != OK || chunk_admit(c, o, 0, asked, &chunk) != OK) {
        fprintf(stderr, "record %llu does not fit\n", (unsigned long long)i);
        exit(1);
    }
    /* No bytes are written: nobody reads them. */
    static const uint32_t crc[GRANULES_PER_BLOCK];
    for (unsigned block = 0; block * (uint32_t)BLOCK_BYTES < chunk->bytes; block++)
        chunk_wrote(c, chunk, block, crc);
    chunk_filled(c, chunk);
    object_drop(c, o);
}

static void wait_committed(struct cache *c)
{
    struct cache_status s;

    do {
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
        cache_status(c, &s);
    } while (s.dirty_entries > 0);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: load_index DIR [COUNT]\n");
        return 1;
    }
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    config.cache_dirs.item[0] = argv[1];
    config.cache_dirs.count = 1;
    config.cache_size.bytes = round_up(count * 4096 * 5 / 4 + 128 * MIB, 8 * MIB);
    config.cache_memory = 64 * MIB;
    config.cache_index_memory = 4 * GIB;
    server.config = &config;
    snprintf(server.store[0], sizeof server.store[0], "bench");

    struct cache *c = open_cache();
    uint64_t began = clock_ms();
    for (uint64_t i = 0; i < count; i++) {
        make_records(c, i);
        if (i % BATCH == BATCH - 1)
            wait_committed(c);
    }
    wait_committed(c);
    printf("written\t%llu records\t%llu ms\n", (unsigned long long)count,
           (unsigned long long)(clock_ms() - began));
    cache_close(c);

    for (unsigned round = 0; round < 3; round++) {
        struct cache_status s;
        clock_t cpu_began = clock();
        began = clock_ms();
        c = open_cache();
        uint64_t ms = clock_ms() - began;
        uint64_t cpu = (uint64_t)(clock() - cpu_began) / (CLOCKS_PER_SEC / 1000);
        cache_status(c, &s);
        uint64_t each = s.index_bytes / max_u64(s.chunks, 1);
        printf("load\t%llu chunks\t%llu objects\t%llu ms\t%llu ms CPU but for the child\t"
               "%llu bytes each\n",
               (unsigned long long)s.chunks, (unsigned long long)s.objects, (unsigned long long)ms,
               (unsigned long long)cpu, (unsigned long long)each);
        cache_close(c);
    }
    return 0;
}
