/* Micro bench of what cores share on a hit: the tables, their locks, the counts of who holds what,
 * and the policy. Nothing of a socket: the same hit, without its request and its answer.
 *
 * Each line is a number of threads that do it at once, to objects of their own, as the cores of a
 * server have it where readers are spread over a dataset, or all of them to one: the worst that
 * there is. ns is the CPU time of one hit of the thread that had the most, so a perfect server
 * shows the same figure for any number.
 *
 * Invariants:
 *  1. All threads of a line run between the same two barriers, pinned to cores of their own.
 *
 * Life: one run over the real cache in a directory of its own below TMPDIR, which is removed.
 * Failure: a sentence and exit 1, or must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "bench/micro/micro.h"
#include "server/cache/inside.h"
#include "server/server.h"

enum {
    THREADS_MAX = 16, EACH = 500,    /* objects of a thread: more than its first cache holds */
    OBJECT_BYTES = 4 * KIB, HITS = 100000,
    POOL_BYTES = 256 * MIB, DISK_BYTES = 512 * MIB,
};

struct known {                       /* an object that is here */
    struct okey key;
    struct id data_id;
    char text[64];
};

static struct cache *cache;
static struct known known[THREADS_MAX * EACH];

struct thread {
    unsigned first, count;           /* of its objects */
    unsigned core;
    pthread_barrier_t *barrier;
    uint64_t ns;                     /* of the last round */
};

/* ---- the cache ---- */
static void fill(struct known *x, struct object *o)
{
    static const uint8_t zeros[OBJECT_BYTES];
    struct buffer_key key = {o->data_id, BUFFER_BLOCK};
    struct chunk_asked asked = {.bytes = OBJECT_BYTES};
    struct block_sums sums = {0};
    struct chunk *k;

    x->data_id = o->data_id;
    must(chunk_admit(cache, o, 0, asked, &k) == OK);
    chunk_crc(o->data_id, 0, 0, zeros, OBJECT_BYTES, &sums);
    chunk_wrote(cache, k, 0, &sums);
    chunk_filled(cache, k);
    struct buffer *b = pool_take(cache, OBJECT_BYTES, BUFFER_DEMAND);
    must(b);
    b->len = OBJECT_BYTES;
    pool_give(cache, pool_publish(cache, b, &key, false));
}

static void make(unsigned n)
{
    struct known *x = &known[n];
    struct object_facts f = {
        .size = OBJECT_BYTES, .last_modified_s = 1700000000, .asked_ms = 1700000000000,
        .etag = span_of("\"9b2cf535f27731c974343645a3985328\""),
        .headers = span_of("content-type: application/octet-stream\r\n"),
    };
    struct object *o;

    snprintf(x->text, sizeof x->text, "train/%08u.tar", n);
    x->key = (struct okey){.bucket = span_of("dataset"), .key = span_of(x->text),
                           .version = span_of("")};
    cache_key(cache, &x->key);
    must(cache_learn(cache, &x->key, &f, &o) == OK);
    fill(x, o);
    object_drop(cache, o);
}

/* ---- a hit ---- */
static void hit(const struct known *x)
{
    struct buffer_key key = {x->data_id, BUFFER_BLOCK};
    struct object *o = cache_find(cache, &x->key);
    must(o);
    struct chunk *k = chunk_find(cache, o->data_id, 0);
    struct buffer *b = pool_find(cache, &key);
    must(k && b);
    cache_served(cache, OBJECT_BYTES);
    chunk_reference(cache, o, k, OBJECT_BYTES);
    chunk_drop(cache, k);
    pool_give(cache, b);
    object_drop(cache, o);
}

static void *work(void *arg)
{
    struct thread *t = arg;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(t->core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* refused: it may wander */
    for (int round = 0; round < BATCHES; round++) {
        pthread_barrier_wait(t->barrier);
        uint64_t from = micro_now();
        for (unsigned i = 0; i < HITS; i++)
            hit(&known[t->first + i * 37 % t->count]);
        t->ns = micro_now() - from;
        pthread_barrier_wait(t->barrier);
    }
    return NULL;
}

/* Prints a line; one: all threads have the same object. */
static void run(const char *name, unsigned threads, bool one)
{
    struct thread thread[THREADS_MAX];
    pthread_t id[THREADS_MAX];
    pthread_barrier_t barrier;
    uint64_t best = UINT64_MAX, before = 0, made = 0;

    pthread_barrier_init(&barrier, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        thread[i] = (struct thread){.first = one ? 0 : i * EACH, .count = one ? 1 : EACH,
                                    .core = i, .barrier = &barrier};
        must(pthread_create(&id[i], NULL, work, &thread[i]) == 0);
    }
    for (int round = 0; round < BATCHES; round++) {
        uint64_t most = 0;
        before = micro_allocations;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        made += micro_allocations - before;
        for (unsigned i = 0; i < threads; i++)
            most = max_u64(most, thread[i].ns);
        best = min_u64(best, most);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(id[i], NULL);
    pthread_barrier_destroy(&barrier);
    printf("%-16s threads=%-2u ns=%.1f allocations=%.2f\n", name, threads, (double)best / HITS,
           (double)made / HITS / BATCHES / threads);
}

/* By itself, before any other thread was there. */
static void hit_next(void)
{
    static unsigned n;

    hit(&known[n = (n + 37) % EACH]);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

int main(void)
{
    static struct config config = {.cache_memory = POOL_BYTES, .cache_index_memory = 64 * MIB,
                                   .cache_size = {.bytes = DISK_BYTES}};
    static struct server server = {.config = &config, .store_count = 1};
    const char *tmp = getenv("TMPDIR");
    char folder[256], why[512];

    snprintf(folder, sizeof folder, "%s/headpond-shared-XXXXXX", tmp ? tmp : "/var/tmp");
    if (!mkdtemp(folder)) {
        fprintf(stderr, "shared: %s: %s\n", folder, strerrordesc_np(errno));
        return 1;
    }
    snprintf(server.store[0], sizeof server.store[0], "bench");
    config.cache_dirs.item[0] = folder;
    config.cache_dirs.count = 1;
    unsigned cpus = (unsigned)min_u64((uint64_t)sysconf(_SC_NPROCESSORS_ONLN), THREADS_MAX);
    if (cache_open(&server, why, &cache) != OK) {
        fprintf(stderr, "shared: %s\n", why);
        return 1;
    }
    for (unsigned n = 0; n < cpus * EACH; n++)
        make(n);
    micro_run("hit_alone", hit_next, 0);
    for (unsigned threads = 1; threads <= cpus; threads *= 2) {
        run("hit_own_objects", threads, false);
        run("hit_one_object", threads, true);
    }
    cache_close(cache);
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : 1;
}
