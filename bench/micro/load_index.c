/* How long a start takes with many records, and how long a look-up: writes COUNT chunks straight
 * into the index, opens the cache, looks some up, prints.
 *
 *   load_index DIR [COUNT [EACH [ROUNDS]]]
 *
 * Objects of EACH whole chunks of 8 MiB, or, where that is 0 (so by default), of one small chunk.
 * DIR may be on any file system that knows big files with holes: nothing but the index has bytes.
 * If it is there, with an index of so many chunks, it is opened as it is; it is left behind for a
 * second look. The object "dataset/hit" has 2 MiB of zeros, so that a server can answer from it, by
 * CRCs that a start leaves behind as those of all large chunks: bench/index.py does that. Look-ups
 * are those of a chunk by its number that a hit does, random over all, each timed on its own; the
 * clock's own time is taken out. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bench/sparse.h"
#include "log.h"
#include "server/cache/inside.h"

enum { BATCH = 4000, SMALL_BYTES = 4096, HIT_BYTES = 2 * BLOCK_BYTES, LOOKS = 1000000 };

static struct config config;
static struct server server;
static uint64_t each;                /* chunks per object; 0: one small one */

static struct cache *open_cache(void)
{
    char why[512];
    struct cache *c;

    if (cache_open(&server, why, &c) == OK)
        return c;
    fprintf(stderr, "%s\n", why);
    exit(1);
}

/* The object of that number, or the one that is to be read; text has its key. */
static struct okey key_of(struct cache *c, uint64_t object, char text[64])
{
    struct okey k = {.bucket = span_of("dataset"), .version = span_of("")};

    snprintf(text, 64, "train/part-%04llu/sample-%08llu.tar", (unsigned long long)(object / 10000),
             (unsigned long long)object);
    if (object == UINT64_MAX)
        snprintf(text, 64, "hit");
    k.key = span_of(text);
    cache_key(c, &k);
    return k;
}

static struct object *learn(struct cache *c, uint64_t object, uint64_t bytes)
{
    char text[64];
    struct okey k = key_of(c, object, text);
    struct object_facts f = {
        .size = bytes,
        .last_modified_s = 1700000000,
        .asked_ms = 1700000000000,
        .etag = span_of("\"9b2cf535f27731c974343645a3985328\""),
        .headers = span_of("content-type: application/octet-stream\r\nx-amz-meta-set: train\r\n"),
    };
    struct object *o;

    if (cache_learn(c, &k, &f, &o) == OK)
        return o;
    fprintf(stderr, "object %s does not fit\n", text);
    exit(1);
}

/* Its bytes are those of a hole. */
static void fill(struct cache *c, struct object *o, uint64_t number)
{
    static const uint8_t zeros[BLOCK_BYTES];
    struct chunk_asked asked = {.bytes = object_chunk_bytes(o, number)};
    struct block_sums sums = {0};
    struct chunk *k;

    if (chunk_admit(c, o, number, asked, &k) != OK) {
        fprintf(stderr, "chunk %llu of %.*s does not fit\n", (unsigned long long)number,
                (int)object_key(o).len, object_key(o).at);
        exit(1);
    }
    for (unsigned block = 0; block * (uint32_t)BLOCK_BYTES < k->bytes; block++) {
        if (o->size <= HIT_BYTES)
            chunk_crc(o->data_id, number, block, zeros, chunk_block_bytes(k->bytes, block),
                      &sums);
        chunk_wrote(c, k, block, &sums);
    }
    chunk_filled(c, k);
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

static void make_all(uint64_t count)
{
    struct cache *c = open_cache();
    uint64_t began = clock_ms(), per = max_u64(each, 1);
    struct object *o = learn(c, UINT64_MAX, HIT_BYTES);

    fill(c, o, 0);
    object_drop(c, o);
    for (uint64_t i = 0; i < count; i++) {
        if (i % per == 0)
            o = learn(c, i / per, each ? each * CHUNK_BYTES : SMALL_BYTES);
        fill(c, o, i % per);
        if (i % per == per - 1 || i == count - 1)
            object_drop(c, o);
        if (i % BATCH == BATCH - 1)
            wait_committed(c);
    }
    wait_committed(c);
    printf("written\t%llu chunks\t%llu ms\n", (unsigned long long)count,
           (unsigned long long)(clock_ms() - began));
    cache_close(c);
}

/* ---- look-ups ---- */
static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* What asking for the time takes, which each of the times below holds once. */
static uint32_t clock_itself_ns(uint32_t *ns)
{
    for (unsigned i = 0; i < LOOKS; i++) {
        uint64_t began = now_ns();
        ns[i] = (uint32_t)(now_ns() - began);
    }
    qsort(ns, LOOKS, sizeof *ns, by_size);
    return ns[LOOKS / 2];
}

static void print_looks(const char *what, uint32_t *ns, uint32_t clock)
{
    qsort(ns, LOOKS, sizeof *ns, by_size);
    clock = (uint32_t)min_u64(clock, ns[LOOKS / 2]);
    printf("lookup\t%s\tmedian %u ns\tp90 %u ns\tp99 %u ns\twithout the clock's %u ns\n", what,
           ns[LOOKS / 2] - clock, ns[LOOKS / 10 * 9] - clock, ns[LOOKS / 100 * 99] - clock, clock);
}

static void look_up(struct cache *c, uint64_t count)
{
    static uint32_t objects[LOOKS], chunks[LOOKS];
    uint64_t per = max_u64(each, 1), seed = 88172645463325252;
    uint32_t clock = clock_itself_ns(objects);

    for (unsigned i = 0; i < LOOKS; i++) {
        char text[64];
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        uint64_t at = seed % count;
        struct okey k = key_of(c, at / per, text);
        uint64_t began = now_ns();
        struct object *o = cache_find(c, &k);
        uint64_t found = now_ns();
        struct chunk *chunk = o ? chunk_find(c, o->data_id, at % per) : NULL;
        uint64_t ended = now_ns();
        if (!chunk) {
            fprintf(stderr, "chunk %llu is missing\n", (unsigned long long)at);
            exit(1);
        }
        chunk_drop(c, chunk);
        object_drop(c, o);
        objects[i] = (uint32_t)(found - began);
        chunks[i] = (uint32_t)(ended - found);
    }
    print_looks("object", objects, clock);
    print_looks("chunk", chunks, clock);
}

/* What a read takes here that waits for memory, anywhere within so many bytes of huge pages: the
 * more bytes, the more of the wait is for the translation of addresses. */
static uint64_t waiting_read_ns(const volatile uint8_t *at, uint64_t bytes)
{
    uint64_t seed = 88172645463325252, began = now_ns();
    uint8_t last = 0;

    for (unsigned i = 0; i < LOOKS; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        last = at[(seed + last) % bytes]; /* where depends on what was read before */
    }
    return (now_ns() - began) / LOOKS;
}

/* What the machine itself takes now: the two reads of a look-up, one of the tables and one of the
 * chunk, and the first touch of memory, which a start does to all that it fills. */
static void print_memory(uint64_t table_bytes, uint64_t chunk_bytes)
{
    uint64_t bytes = max_u64(table_bytes, chunk_bytes), began = now_ns();
    uint8_t *at = mem_take_huge(bytes);

    if (!at)
        return;
    for (uint64_t i = 0; i < bytes; i += SMALL_BYTES)
        at[i] = 1;
    uint64_t touched = now_ns();
    printf(
        "memory\ta read that waits %llu ns in %llu MiB of tables\t%llu ns in %llu MiB of chunks\t"
        "first touch %llu MB/s\n",
        (unsigned long long)waiting_read_ns(at, table_bytes),
        (unsigned long long)(table_bytes / MIB),
        (unsigned long long)waiting_read_ns(at, chunk_bytes),
        (unsigned long long)(chunk_bytes / MIB),
        (unsigned long long)(bytes * 1000ULL / max_u64(touched - began, 1)));
    mem_give_huge(at, bytes);
}

static uint64_t table_bytes(const struct cache *c)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < CACHE_SHARDS; i++)
        bytes += index_table_bytes(&c->chunk[i].table);
    return bytes;
}

/* Until what the start left behind is there: look-ups beside that are others. */
static void wait_read(struct cache *c)
{
    struct timespec pause = {0, 1000000};
    struct cache_status s;
    uint64_t began = clock_ms(), unread = 0;

    for (cache_status(c, &s); s.disk[0].unread_chunks > 0; cache_status(c, &s)) {
        unread = max_u64(unread, s.disk[0].unread_chunks);
        nanosleep(&pause, NULL);
    }
    printf("behind\tchecksums of %llu chunks\t%llu ms\n", (unsigned long long)unread,
           (unsigned long long)(clock_ms() - began));
}

static void load_once(uint64_t count, bool last)
{
    struct cache_status s;
    clock_t cpu_began = clock();
    uint64_t began = clock_ms();
    struct cache *c = open_cache();
    uint64_t ms = clock_ms() - began;
    uint64_t cpu = (uint64_t)(clock() - cpu_began) / (CLOCKS_PER_SEC / 1000);

    cache_status(c, &s);
    printf("load\t%llu chunks\t%llu objects\t%llu ms\t%llu ms CPU but for the child\t"
           "%llu bytes each\n",
           (unsigned long long)s.chunks, (unsigned long long)s.objects, (unsigned long long)ms,
           (unsigned long long)cpu, (unsigned long long)(s.index_bytes / max_u64(s.chunks, 1)));
    fflush(stdout);
    wait_read(c);
    if (last && s.chunks > count) {
        look_up(c, count);
        print_memory(table_bytes(c), s.index_bytes - table_bytes(c));
    }
    cache_close(c);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !sparse_begin()) {
        fprintf(stderr, "usage: load_index DIR [COUNT [EACH [ROUNDS]]]\n");
        return 1;
    }
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    each = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    unsigned rounds = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 3;
    uint64_t bytes = count * (each ? CHUNK_BYTES : SMALL_BYTES);
    config.cache_dirs.item[0] = argv[1];
    config.cache_dirs.count = 1;
    config.cache_size.bytes = round_up(bytes / 100 * 104 + 1024 * (uint64_t)MIB, 8 * MIB);
    config.cache_memory = 64 * MIB;
    config.cache_index_memory = 16 * (uint64_t)GIB;
    server.config = &config;
    snprintf(server.store[0], sizeof server.store[0], "bench");
    server.store_count = 1;
    if (access(argv[1], F_OK) != 0)
        make_all(count);
    for (unsigned round = 0; round < rounds; round++)
        load_once(count, round == rounds - 1);
    return 0;
}
