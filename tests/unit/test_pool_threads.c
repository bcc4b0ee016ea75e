/* The pool under four threads that find, take, publish, hold, fail and wait, in so little memory
 * that all is evicted and waited for again and again. Run it under ThreadSanitizer, too. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/pool.c"

#include <sched.h>

#include "tests/unit/pool_fakes.h"

enum { THREADS = 4, ROUNDS = 30000, NAMES = 3000, HOLD_MAX = 6 };

struct worker {
    struct cache *c;
    struct fake_core core;
    struct fake_machine m;
    struct pool_wait w;
    struct buffer *held[HOLD_MAX];
    uint64_t name[HOLD_MAX], seed;
    unsigned held_count, hits, waits, stuck;
    pthread_t thread;
};

static uint32_t name_bytes(uint64_t n)
{
    return 4096u << n * 2654435761u % 4294967296u / 268435456u % 9;
}

static void stamp_check(const struct buffer *b, uint64_t n)
{
    uint64_t seen[2];

    memcpy(seen, b->mem, 8);
    memcpy(seen + 1, b->mem + b->cap - 8, 8);
    must(seen[0] == n && seen[1] == n && b->len == name_bytes(n));
}

static void drop_one(struct worker *w, unsigned at)
{
    stamp_check(w->held[at], w->name[at]);
    pool_give(w->c, w->held[at]);
    w->held_count--;
    w->held[at] = w->held[w->held_count];
    w->name[at] = w->name[w->held_count];
}

/* Waits as a machine would: gives nothing until its wake has come. Stuck is a lost wake. */
static void sleep_until_woken(struct worker *w)
{
    uint64_t until = clock_ms() + 20000;

    while (w->held_count)
        drop_one(w, 0);
    pool_wait(w->c, &w->w, &w->m.m);
    w->waits++;
    while (w->w.busy && !w->stuck) {
        deliver(&w->core);
        sched_yield();
        w->stuck = clock_ms() > until;
    }
}

static struct buffer *bring(struct worker *w, uint64_t n, uint32_t dice)
{
    struct buffer_key k = key(n);
    struct buffer *b = pool_find(w->c, &k);

    w->hits += b != NULL;
    while (!b && !w->stuck) {
        b = pool_take(w->c, name_bytes(n), dice % 3);
        if (!b) {
            sleep_until_woken(w);
            continue;
        }
        if (dice++ % 64 == 0) {                  /* a fetch that failed: once more */
            pool_give(w->c, b);
            b = NULL;
            continue;
        }
        b->len = name_bytes(n);
        memcpy(b->mem, &n, 8);
        memcpy(b->mem + b->cap - 8, &n, 8);
        if (dice % 7 == 0) {
            pool_hold(b);
            pool_give(w->c, b);
        }
        b = pool_publish(w->c, b, &k, dice % 5 == 0);
    }
    return b;
}

static void *work(void *arg)
{
    struct worker *w = arg;

    for (unsigned round = 0; round < ROUNDS && !w->stuck; round++) {
        w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t dice = (uint32_t)(w->seed >> 33);
        uint64_t n = dice & 1 ? dice / 2 % NAMES : dice / 2 % (NAMES / 20);
        if (w->held_count == HOLD_MAX || (w->held_count && dice / 8192 % 3 == 0))
            drop_one(w, dice / 32768 % w->held_count);
        struct buffer *b = bring(w, n, dice / 16);
        if (!b)
            break;
        stamp_check(b, n);
        must(w->held_count < HOLD_MAX);
        w->held[w->held_count] = b;
        w->name[w->held_count++] = n;
        deliver(&w->core);
    }
    while (w->held_count)
        drop_one(w, 0);
    return NULL;
}

static void threads_find_take_publish_and_wait_at_once(void **state)
{
    (void)state;
    struct cache c = open_pool(THREADS * 2);
    static struct worker worker[THREADS];
    unsigned hits = 0, waits = 0;

    for (unsigned n = 0; n < THREADS; n++) {
        worker[n].c = &c;
        worker[n].seed = n + 1;
        fake_init(&worker[n].core);
        worker[n].m.m.core = &worker[n].core.core;
        assert_int_equal(pthread_create(&worker[n].thread, NULL, work, &worker[n]), 0);
    }
    for (unsigned n = 0; n < THREADS; n++) {
        pthread_join(worker[n].thread, NULL);
        hits += worker[n].hits;
        waits += worker[n].waits;
        assert_int_equal(worker[n].stuck, 0);
        assert_int_equal(worker[n].m.m.inflight, 0);
        assert_int_equal(worker[n].waits, worker[n].m.woken);
    }
    assert_true(hits > 1000);
    assert_true(waits > 100);
    close_pool(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_find_take_publish_and_wait_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
