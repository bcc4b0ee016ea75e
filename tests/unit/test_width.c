/* How wide a job's asking becomes, over upstreams of several kinds, under a clock of our own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/origin/width.c"

enum { STEP_US = 10 * 1000, MB = 1000 * 1000 };

static struct width w;
static uint64_t now_us;

/* What the upstream gives: so much a connection, and no more than so much in all. */
static double each, whole, noise;
static uint64_t seed;

static bool beside;

static int begin_again(void **state)
{
    (void)state;
    beside = true;
    width_init(&w);
    now_us = 1000 * 1000;
    width_took(&w, 0, true, 32, now_us);
    noise = 0;
    seed = 12345;
    return 0;
}

static void give(double each_mb, double whole_mb)
{
    each = each_mb * MB;
    whole = whole_mb * MB;
}

/* 1 - noise to 1 + noise, another one each half a second. */
static double luck(void)
{
    if (now_us % (WINDOW_US / STEP_US * STEP_US) < STEP_US)
        seed = seed * 6364136223846793005u + 1442695040888963407u;
    return 1 + noise * ((double)(seed >> 33) / (double)(1u << 30) - 1);
}

/* A job with more to fetch than it may; returns the mean width of the time. */
static double run(unsigned ms, uint32_t most)
{
    double sum = 0;
    unsigned steps = ms * 1000 / STEP_US;

    for (unsigned i = 0; i < steps; i++) {
        uint32_t wide = (uint32_t)min_u64(width_limit(&w), most);
        now_us += STEP_US;
        width_out(&w, wide);
        width_took(&w, (uint64_t)(fmin(each * wide, whole) * luck() * STEP_US / 1e6), beside, most,
                   now_us);
        sum += wide;
    }
    return sum / steps;
}

static void it_takes_all_where_each_connection_brings_as_much(void **state)
{
    (void)state;
    give(28, 1e6);
    run(6000, 32);
    assert_int_equal(width_limit(&w), 32);
    double mean = run(60000, 32);
    assert_true(mean > 30);
}

static void it_takes_no_more_than_bring_something(void **state)
{
    (void)state;
    give(58, 300);
    run(10000, 32);
    double mean = run(60000, 32);
    assert_true(mean > 5 && mean < 9);
    give(300, 300);
    run(20000, 32);
    mean = run(60000, 32);
    assert_true(mean >= LEAST && mean < 5);
}

/* A tenth up and down: it neither runs away nor falls far below what is needed. */
static void noise_does_not_carry_it_away(void **state)
{
    double mean[2];

    (void)state;
    noise = .1;
    give(58, 300);
    run(20000, 32);
    mean[0] = run(600000, 32);
    give(28, 1e6);
    run(60000, 32);
    mean[1] = run(600000, 32);
    assert_true(mean[0] > 4.5 && mean[0] < 12);
    assert_true(mean[1] > 26);
}

/* A store that gives a little more for each who asks: beside readers a job does not take that. */
static void a_little_more_is_not_worth_it(void **state)
{
    double mean = 0;

    (void)state;
    for (unsigned n = 0; n < 300; n++) {
        give(58, 200 + 5. * width_limit(&w));
        double wide = run(500, 32);
        mean += n < 100 ? 0 : wide / 200;
    }
    assert_true(mean < 8);
}

/* Without misses beside it a job has all it may have, some seconds behind the last one. */
static void alone_nothing_limits(void **state)
{
    (void)state;
    give(58, 300);
    run(10000, 32);
    assert_true(width_limit(&w) < 16);
    beside = false;
    run(9000, 32);
    assert_true(width_limit(&w) < 16);
    run(2000, 32);
    assert_true(width_limit(&w) == UINT32_MAX);
    run(60000, 32);
    beside = true;
    double rate = w.rate;
    now_us += STEP_US;
    assert_true(width_took(&w, 1, true, 32, now_us)); /* what it was before */
    assert_true(width_limit(&w) < 16);
    width_out(&w, 32);
    width_took(&w, 1000 * MB, true, 32, now_us + WINDOW_US); /* came while nothing limited */
    assert_true(w.rate >= rate && w.rate <= rate);
}

static void more_room_is_found(void **state)
{
    (void)state;
    give(58, 300);
    run(30000, 32);
    give(58, 1200);
    run(60000, 32);
    assert_true(width_limit(&w) >= 16);
}

/* A job has seven fetches at most, whatever it may have: then seven are what is tried from. */
static void what_is_not_used_is_not_held(void **state)
{
    (void)state;
    give(28, 1e6);
    run(6000, 32);
    for (unsigned i = 0; i < 300; i++) {
        now_us += STEP_US;
        width_out(&w, 7);
        width_took(&w, 7 * MB / 4, true, 32, now_us);
    }
    assert_in_range(width_limit(&w), 5, 7);
    run(8000, 32);                   /* and the way back is as fast as the first */
    assert_true(width_limit(&w) >= 24);
}

/* Less than the next trial, and more than the width: all of it is found, too. */
static void what_a_job_can_use_is_found(void **state)
{
    (void)state;
    give(28, 1e6);
    for (uint32_t most = 4; most < 32; most++) {
        begin_again(NULL);
        for (unsigned i = 0; i < 6000; i++) {
            uint32_t wide = (uint32_t)min_u64(width_limit(&w), most);
            now_us += STEP_US;
            width_out(&w, wide);
            width_took(&w, wide * MB / 4, true, 32, now_us);
        }
        assert_true(width_limit(&w) >= most * 3 / 4);
    }
}

/* Nobody took a connection: that says nothing. */
static void who_takes_none_changes_nothing(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 6000; i++) {
        now_us += STEP_US;
        assert_false(width_took(&w, i * 1000, true, 32, now_us));
    }
    assert_int_equal(width_limit(&w), FIRST);
    assert_true(w.rate <= 0);
}

static void a_pause_is_no_slow_window(void **state)
{
    (void)state;
    give(28, 1e6);
    run(6000, 32);
    double rate = w.rate;
    for (unsigned i = 0; i < 50; i++) {
        now_us += 3600ull * 1000 * 1000;
        run(600, 32);
        assert_true(width_limit(&w) >= 24 && w.rate > rate * .9);
    }
}

static void it_stays_within_what_there_is(void **state)
{
    (void)state;
    give(28, 1e6);
    for (uint32_t most = 1; most < 12; most++) {
        begin_again(NULL);
        run(30000, most);
        for (unsigned i = 0; i < 200; i++) {
            run(100, most);
            assert_in_range(width_limit(&w), 1, most > FIRST ? most : FIRST);
        }
    }
    begin_again(NULL);
    run(6000, 32);
    run(30000, 6);                   /* it throttles, or a reload allows less */
    assert_true(width_limit(&w) <= 32);
    run(60000, 32);
    assert_int_equal(width_limit(&w), 32);
}

static _Atomic uint64_t shared_us;

static void *take_fast(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 300000; i++) {
        uint64_t at = atomic_fetch_add(&shared_us, 700);
        width_out(&w, width_limit(&w));
        width_took(&w, 1000, true, 32, at);
    }
    return NULL;
}

/* Several find a window at its end at once: one of them judges it, and nobody an empty one. */
static void a_window_is_judged_once(void **state)
{
    pthread_t thread[4];

    (void)state;
    atomic_store(&shared_us, now_us);
    for (unsigned i = 0; i < ARRAY_COUNT(thread); i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_fast, NULL), 0);
    for (unsigned i = 0; i < ARRAY_COUNT(thread); i++)
        pthread_join(thread[i], NULL);
    assert_true(isfinite(w.rate) && w.rate > .5 && w.rate < 4);
    assert_in_range(width_limit(&w), LEAST, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_takes_all_where_each_connection_brings_as_much, begin_again),
        cmocka_unit_test_setup(it_takes_no_more_than_bring_something, begin_again),
        cmocka_unit_test_setup(noise_does_not_carry_it_away, begin_again),
        cmocka_unit_test_setup(a_little_more_is_not_worth_it, begin_again),
        cmocka_unit_test_setup(alone_nothing_limits, begin_again),
        cmocka_unit_test_setup(more_room_is_found, begin_again),
        cmocka_unit_test_setup(what_is_not_used_is_not_held, begin_again),
        cmocka_unit_test_setup(what_a_job_can_use_is_found, begin_again),
        cmocka_unit_test_setup(who_takes_none_changes_nothing, begin_again),
        cmocka_unit_test_setup(a_pause_is_no_slow_window, begin_again),
        cmocka_unit_test_setup(a_window_is_judged_once, begin_again),
        cmocka_unit_test_setup(it_stays_within_what_there_is, begin_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
