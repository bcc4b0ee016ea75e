/* What is believed of a disk: errors, hangs, tests, ways back, on a clock that the test turns.
 *
 * Life: pure functions only. Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/health.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const uint64_t NOON = 1000000;

static void errors_at(struct health *h, uint64_t from_ms, uint64_t every_ms, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        health_error(h, from_ms + i * every_ms);
}

/* Good tests until it is up, from a moment on; how long that took. */
static uint64_t recover(struct health *h, uint64_t from_ms)
{
    uint64_t now_ms = from_ms;

    for (; h->state != DISK_UP; now_ms += 100) {
        health_tested(h, DISK_SOUND, false, now_ms);
        assert_true(now_ms - from_ms < 1000 * 1000);
    }
    return now_ms - from_ms;
}

static void five_errors_in_a_minute_fence(void **state)
{
    struct health h = {0};

    (void)state;
    errors_at(&h, NOON, 14000, 4);
    assert_int_equal(h.state, DISK_UP);
    health_error(&h, NOON + 56000);
    assert_int_equal(h.state, DISK_FENCED);
    assert_int_equal(h.cause, DISK_ERRORS);
    assert_int_equal(h.fences, 1);
}

static void rare_errors_do_not(void **state)
{
    struct health h = {0};

    (void)state;
    errors_at(&h, NOON, 15000, 1000);
    assert_int_equal(h.state, DISK_UP);
}

static void the_first_millisecond_is_a_moment_too(void **state)
{
    struct health h = {0};

    (void)state;
    errors_at(&h, 0, 0, 5);
    assert_int_equal(h.state, DISK_FENCED);
}

static void a_hang_makes_it_suspect_and_an_answer_ends_that(void **state)
{
    struct health h = {0};

    (void)state;
    health_late(&h, NOON);
    assert_int_equal(h.state, DISK_SUSPECT);
    health_tested(&h, DISK_SOUND, true, NOON + 100); /* the test passes, an operation still hangs */
    assert_int_equal(h.state, DISK_SUSPECT);
    health_error(&h, NOON + 150);
    health_late(&h, NOON + 150);
    assert_int_equal(h.state, DISK_SUSPECT);
    health_tested(&h, DISK_SOUND, false, NOON + 200);
    assert_int_equal(h.state, DISK_UP);
    assert_int_equal(h.cause, DISK_SOUND);
    assert_int_equal(h.fences, 0);
}

static void a_hang_that_lasts_fences(void **state)
{
    struct health h = {0};

    (void)state;
    health_late(&h, NOON);
    health_tick(&h, NOON + 4999);
    assert_int_equal(h.state, DISK_SUSPECT);
    health_tick(&h, NOON + 5000);
    assert_int_equal(h.state, DISK_FENCED);
    assert_int_equal(h.cause, DISK_FROZEN);
}

static void the_third_hang_in_a_minute_fences(void **state)
{
    struct health h = {0};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        health_late(&h, NOON + i * 1000);
        health_tested(&h, DISK_SOUND, false, NOON + i * 1000 + 500);
        assert_int_equal(h.state, DISK_UP);
    }
    health_late(&h, NOON + 59000);
    assert_int_equal(h.state, DISK_FENCED);
}

static void a_failed_test_of_a_suspect_fences(void **state)
{
    struct health h = {0};

    (void)state;
    health_late(&h, NOON);
    health_tested(&h, DISK_READ_ONLY, true, NOON + 100);
    assert_int_equal(h.state, DISK_FENCED);
    assert_int_equal(h.cause, DISK_READ_ONLY);
}

static void the_way_back_leads_over_probation(void **state)
{
    struct health h = {0};

    (void)state;
    errors_at(&h, NOON, 1, 5);
    health_tested(&h, DISK_SOUND, true, NOON + 1000);
    assert_int_equal(h.state, DISK_FENCED); /* something still hangs */
    health_tested(&h, DISK_REPLACED, false, NOON + 2000);
    assert_int_equal(h.state, DISK_FENCED);
    assert_int_equal(h.cause, DISK_REPLACED);
    health_tested(&h, DISK_SOUND, false, NOON + 3000);
    assert_int_equal(h.state, DISK_PROBATION);
    health_error(&h, NOON + 3100);   /* of an operation that was begun before */
    health_tested(&h, DISK_SOUND, false, NOON + 7999);
    assert_int_equal(h.state, DISK_PROBATION);
    health_tested(&h, DISK_SOUND, false, NOON + 8000);
    assert_int_equal(h.state, DISK_UP);
    errors_at(&h, NOON + 8000, 1, 4);
    assert_int_equal(h.state, DISK_UP); /* those of before are forgotten */
}

static void a_failed_test_ends_probation(void **state)
{
    struct health h = {0};

    (void)state;
    errors_at(&h, NOON, 1, 5);
    health_tested(&h, DISK_SOUND, false, NOON + 1000);
    health_tested(&h, DISK_TEST, false, NOON + 2000);
    assert_int_equal(h.state, DISK_FENCED);
    assert_int_equal(h.fences, 2);
    health_tested(&h, DISK_SOUND, false, NOON + 3000);
    health_tested(&h, DISK_SOUND, true, NOON + 4000);
    assert_int_equal(h.state, DISK_FENCED);
    assert_int_equal(h.cause, DISK_FROZEN);
}

static void who_fails_again_soon_waits_longer(void **state)
{
    struct health h = {0};
    uint64_t now_ms = NOON, before_ms = 0;

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        errors_at(&h, now_ms, 1, 5);
        uint64_t took_ms = recover(&h, now_ms + 10);
        assert_true(i == 0 || i > 6 || took_ms > before_ms * 3 / 2);
        assert_true(took_ms < 6 * 60 * 1000);
        before_ms = took_ms;
        now_ms += took_ms + 60000;
    }
    now_ms += 2 * 60 * 60 * 1000;    /* well for two hours */
    errors_at(&h, now_ms, 1, 5);
    assert_true(recover(&h, now_ms + 10) < 6000);
}

static void what_an_operator_fenced_an_operator_readmits(void **state)
{
    struct health h = {0};

    (void)state;
    health_readmit(&h, NOON);        /* it is up: nothing to do */
    assert_int_equal(h.state, DISK_UP);
    health_fence(&h, DISK_OPERATOR, NOON);
    for (unsigned i = 0; i < 1000; i++)
        health_tested(&h, DISK_SOUND, false, NOON + i * 1000);
    assert_int_equal(h.state, DISK_FENCED);
    health_tested(&h, DISK_TEST, false, NOON + 1000000);
    assert_int_equal(h.cause, DISK_OPERATOR);
    health_readmit(&h, NOON + 1000000);
    assert_int_equal(h.state, DISK_PROBATION);
    assert_true(recover(&h, NOON + 1000000) >= 5000);
    /* One that failed by itself becomes the operator's. */
    errors_at(&h, NOON + 2000000, 1, 5);
    health_fence(&h, DISK_OPERATOR, NOON + 2000010);
    health_tested(&h, DISK_SOUND, false, NOON + 2001000);
    assert_int_equal(h.state, DISK_FENCED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_errors_in_a_minute_fence),
        cmocka_unit_test(rare_errors_do_not),
        cmocka_unit_test(the_first_millisecond_is_a_moment_too),
        cmocka_unit_test(a_hang_makes_it_suspect_and_an_answer_ends_that),
        cmocka_unit_test(a_hang_that_lasts_fences),
        cmocka_unit_test(the_third_hang_in_a_minute_fences),
        cmocka_unit_test(a_failed_test_of_a_suspect_fences),
        cmocka_unit_test(the_way_back_leads_over_probation),
        cmocka_unit_test(a_failed_test_ends_probation),
        cmocka_unit_test(who_fails_again_soon_waits_longer),
        cmocka_unit_test(what_an_operator_fenced_an_operator_readmits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
