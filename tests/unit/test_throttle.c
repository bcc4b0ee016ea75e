/* An upstream that asks for less gets less, at once, and more again soon; under a clock of our
 * own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/origin/throttle.c"

static struct throttle t;
static uint32_t from, to;

static void a_burst_halves_once(void **state)
{
    (void)state;
    throttle_init(&t, 64);
    assert_int_equal(throttle_limit(&t), 64);
    assert_true(throttle_slowed(&t, 1000, 2000, &from, &to));
    assert_int_equal(from, 64);
    assert_int_equal(to, 32);
    for (unsigned i = 0; i < 63; i++) /* the others of the burst left before it was known */
        assert_false(throttle_slowed(&t, 1000 + i, 2001 + i, &from, &to));
    assert_int_equal(throttle_limit(&t), 32);
    assert_true(throttle_slowed(&t, 2001, 3000, &from, &to));
    assert_int_equal(throttle_limit(&t), 16);
}

static void it_stops_at_a_few(void **state)
{
    (void)state;
    throttle_init(&t, 64);
    for (uint64_t us = 1; us < 100; us++)
        throttle_slowed(&t, us * 1000 + 1, us * 1000 + 2, &from, &to);
    assert_int_equal(throttle_limit(&t), LEAST);
    assert_int_equal(throttle_limit_ahead(&t), 1);
    throttle_init(&t, 2);
    throttle_slowed(&t, 1, 2, &from, &to);
    assert_int_equal(throttle_limit(&t), 2); /* less than a few were never allowed */
}

static void read_ahead_loses_first(void **state)
{
    static const uint32_t share[] = {48, 16, 1, 1, 1};

    (void)state;
    throttle_init(&t, 64);
    for (unsigned i = 0; i < ARRAY_COUNT(share); i++) {
        assert_int_equal(throttle_limit_ahead(&t), share[i]);
        throttle_slowed(&t, i * 10 + 1, i * 10 + 2, &from, &to);
    }
    throttle_init(&t, 1);
    assert_int_equal(throttle_limit_ahead(&t), 1);
}

static void good_answers_bring_it_back_in_some_rounds(void **state)
{
    unsigned rounds = 0;

    (void)state;
    throttle_init(&t, 64);
    for (uint64_t us = 1; us < 10; us++)
        throttle_slowed(&t, us * 1000 + 1, us * 1000 + 2, &from, &to);
    for (; throttle_limit(&t) < 64; rounds++) {
        uint32_t limit = throttle_limit(&t);
        for (uint32_t i = 0; i < limit; i++)
            throttle_worked(&t);
        assert_true(throttle_limit(&t) <= limit + 64 / GROW_ROUNDS + 1); /* additive */
    }
    assert_in_range(rounds, GROW_ROUNDS - 4, GROW_ROUNDS + 4);
    assert_false(throttle_worked(&t));
    assert_int_equal(throttle_limit(&t), 64);
}

static void one_connection_grows_too(void **state)
{
    (void)state;
    throttle_init(&t, 1);
    throttle_slowed(&t, 1, 2, &from, &to);
    throttle_worked(&t);
    assert_int_equal(throttle_limit(&t), 1);
    throttle_init(&t, PERMITS_MAX);
    throttle_slowed(&t, 1, 2, &from, &to);
    assert_int_equal(throttle_limit(&t), PERMITS_MAX / 2);
    for (unsigned i = 0; i < 40 * PERMITS_MAX && throttle_limit(&t) < PERMITS_MAX; i++)
        throttle_worked(&t);
    assert_int_equal(throttle_limit(&t), PERMITS_MAX);
}

static void retries_are_a_fraction_of_good_answers(void **state)
{
    uint64_t good = 0, retries = 0, seed = 7;

    (void)state;
    throttle_init(&t, 64);
    for (unsigned i = 0; i < 200000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned weather = i / 20000 % 3; /* fine, mixed, storm */
        if (seed >> 33 & 3 && weather != 2) {
            throttle_worked(&t);
            good++;
        } else if (throttle_may_retry(&t, seed >> 40 & 1)) {
            retries++;
        }
        assert_true(retries <= BUDGET / RETRY_COST + good / RETRY_COST);
    }
    assert_true(retries > 1000);
}

static void half_the_budget_is_for_those_who_are_waited_for(void **state)
{
    unsigned ahead = 0, awaited = 0;

    (void)state;
    throttle_init(&t, 64);
    while (throttle_may_retry(&t, false))
        ahead++;
    while (throttle_may_retry(&t, true))
        awaited++;
    assert_int_equal(ahead, BUDGET_RESERVE / RETRY_COST);
    assert_int_equal(awaited, BUDGET_RESERVE / RETRY_COST);
}

/* 500 clients, each asks again as soon as it has an answer; an upstream 20 ms away that says 503 to
 * all for five seconds, then is well. One turn = one round trip. */
static void a_storm_passes(void **state)
{
    enum { RTT_US = 20000, STORM_ROUNDS = 250 };
    uint64_t sent_in_storm = 0, now_us = 1, calm_us = 0;

    (void)state;
    throttle_init(&t, 64);
    for (unsigned round = 0; round < STORM_ROUNDS; round++, now_us += RTT_US) {
        uint32_t limit = throttle_limit(&t);
        sent_in_storm += limit;
        for (uint32_t i = 0; i < limit; i++)
            throttle_slowed(&t, now_us, now_us + RTT_US - 1, &from, &to);
    }
    assert_true(sent_in_storm <= 64 + 32 + 16 + 8 + STORM_ROUNDS * LEAST); /* 16,000 without */
    while (throttle_limit(&t) < 64) {
        uint32_t limit = throttle_limit(&t);
        for (uint32_t i = 0; i < limit; i++)
            throttle_worked(&t);
        calm_us += RTT_US;
    }
    assert_true(calm_us < 1000000);
}

static void retry_after_in_seconds_or_as_a_date(void **state)
{
    const uint64_t now_s = 784111777; /* Sun, 06 Nov 1994 08:49:37 GMT */
    static const struct {
        const char *field;
        uint64_t ms;
    } rows[] = {
        {"", 0}, {"0", 0}, {"1", 1000}, {"5", 5000}, {"6", 5000}, {"86400", 5000},
        {"18446744073709551615", 5000}, {"99999999999999999999", 0}, {"-1", 0}, {"1.5", 0},
        {"soon", 0}, {"Sun, 06 Nov 1994 08:49:39 GMT", 2000},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 0}, {"Sun, 06 Nov 1994 08:00:00 GMT", 0},
        {"Sun, 06 Nov 1994 09:49:37 GMT", 5000}, {"Sunday, 06-Nov-94 08:49:40 GMT", 3000},
        {"Sun Nov  6 08:49:41 1994", 4000},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++)
        assert_int_equal(retry_after_ms(span_of(rows[i].field), now_s, 5000), rows[i].ms);
}

/* A reload: a full limit stays one, a lowered one stays as it is, and nothing is above the new. */
static void how_many_is_changed_while_it_runs(void **state)
{
    (void)state;
    throttle_init(&t, 64);
    throttle_set_most(&t, 100);
    assert_int_equal(throttle_limit(&t), 100);
    throttle_set_most(&t, 8);
    assert_int_equal(throttle_limit(&t), 8);
    throttle_set_most(&t, 64);
    assert_true(throttle_slowed(&t, 1000, 2000, &from, &to));
    assert_int_equal(throttle_limit(&t), 32);
    throttle_set_most(&t, 128);
    throttle_set_most(&t, 128);
    assert_int_equal(throttle_limit(&t), 32);
    throttle_set_most(&t, 2);
    assert_int_equal(throttle_limit(&t), 2);
    assert_int_equal(throttle_limit_ahead(&t), 1);
    for (unsigned i = 0; i < 1000; i++)
        throttle_worked(&t);
    assert_int_equal(throttle_limit(&t), 2);
}

/* Ten takers at a millisecond each: bytes that each of them got in so many seconds. */
static void take_for(uint64_t rate, uint64_t s, bool reader, uint64_t got[2])
{
    uint64_t wait_us, now_us = 1000000;

    got[0] = got[1] = 0;
    for (uint64_t end_us = now_us + s * 1000000; now_us < end_us; now_us += 1000)
        for (unsigned i = 0; i < 10; i++) {
            bool awaited = reader && i == 0;
            if (!throttle_may_take(&t, awaited ? ASK_DEMAND : ASK_READAHEAD, now_us, &wait_us))
                continue;
            throttle_took(&t, rate, rate / 16, now_us);
            got[awaited] += rate / 16;
        }
}

static void a_bandwidth_is_kept_and_used(void **state)
{
    uint64_t got[2];

    (void)state;
    throttle_init(&t, 64);
    take_for(1000000, 20, false, got);
    assert_in_range(got[0], 19000000, 21000000);
}

static void readers_come_first(void **state)
{
    uint64_t got[2];

    (void)state;
    throttle_init(&t, 64);
    take_for(1000000, 20, true, got);
    assert_in_range(got[1], 19000000, 21000000);
    assert_true(got[0] <= 1000000);
}

/* Two takers at a millisecond each: bytes that each of them got in ten seconds. */
static void take_two(enum ask_class one, enum ask_class other, uint64_t got[2])
{
    const enum ask_class class_[2] = {one, other};
    uint64_t wait_us, now_us = 1000000;

    got[0] = got[1] = 0;
    for (uint64_t end_us = now_us + 10000000; now_us < end_us; now_us += 1000)
        for (unsigned i = 0; i < 2; i++)
            if (throttle_may_take(&t, class_[i], now_us, &wait_us)) {
                throttle_took(&t, 1000000, 62500, now_us);
                got[i] += 62500;
            }
}

static void the_background_has_what_all_others_leave(void **state)
{
    uint64_t got[2];

    (void)state;
    throttle_init(&t, 64);
    take_two(ASK_PREFETCH, ASK_BACKGROUND, got);
    assert_in_range(got[0], 9000000, 11000000);
    assert_true(got[1] <= 500000);
    throttle_init(&t, 64);
    take_two(ASK_BACKGROUND, ASK_BACKGROUND, got);
    assert_in_range(got[0] + got[1], 9000000, 11000000);
}

static void what_an_old_rate_cost_is_soon_forgotten(void **state)
{
    uint64_t wait_us;

    (void)state;
    throttle_init(&t, 64);
    throttle_took(&t, 1, MIB, 5000000);
    assert_false(throttle_may_take(&t, ASK_DEMAND, 5000000, &wait_us));
    assert_true(wait_us <= OWED_US_MOST);
    assert_true(throttle_may_take(&t, ASK_DEMAND, 5000000 + wait_us, &wait_us));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_halves_once),
        cmocka_unit_test(it_stops_at_a_few),
        cmocka_unit_test(read_ahead_loses_first),
        cmocka_unit_test(good_answers_bring_it_back_in_some_rounds),
        cmocka_unit_test(one_connection_grows_too),
        cmocka_unit_test(retries_are_a_fraction_of_good_answers),
        cmocka_unit_test(half_the_budget_is_for_those_who_are_waited_for),
        cmocka_unit_test(a_storm_passes),
        cmocka_unit_test(retry_after_in_seconds_or_as_a_date),
        cmocka_unit_test(how_many_is_changed_while_it_runs),
        cmocka_unit_test(a_bandwidth_is_kept_and_used),
        cmocka_unit_test(readers_come_first),
        cmocka_unit_test(the_background_has_what_all_others_leave),
        cmocka_unit_test(what_an_old_rate_cost_is_soon_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
