/* Rates of the last five minutes, of server/admin/window.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/window.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct sample at_second(uint64_t s)
{
    struct sample one = {
        .at_ms = s * 1000,
        .requests = s * 10,
        .sent_bytes = s * 1000000,
        .missed_bytes = s * 100000,
        .upstream_bytes = s * 200000,
        .stall_us = s * 1000,
        .disk_us = s * 500,
        .get_us = s * 10000,
        .slowdowns = {s, 0, 2 * s},
        .duration = {.count = s * 10, .sum_us = s * 50000},
    };
    one.duration.bucket[3] = s * 10;  /* 500 us .. 1 ms */
    return one;
}

static void rates_are_differences_over_time(void **state)
{
    struct sample from = at_second(100), to = at_second(160);
    struct rates r;

    (void)state;
    rates_between(&from, &to, &r);
    assert_int_equal(r.requests, 600);
    assert_float_equal(r.sent_bytes_per_s, 1e6, 1e-6);
    assert_float_equal(r.upstream_bytes_per_s, 2e5, 1e-6);
    assert_float_equal(r.hit_bytes_ratio, 0.9, 1e-9);
    assert_float_equal(r.stall_ratio, 0.1, 1e-9); /* of GETs: uploads take their time */
    assert_float_equal(r.disk_ratio, 0.05, 1e-9);
    assert_float_equal(r.throttled_per_min[0], 60, 1e-6);
    assert_float_equal(r.throttled_per_min[1], 0, 0);
    assert_float_equal(r.throttled_per_min[2], 120, 1e-6);
    assert_float_equal(r.p50_ms, 0.75, 1e-6);
    assert_true(r.p99_ms > 0.98 && r.p99_ms <= 1.0);
}

static void nothing_happened_gives_zeros_and_no_division_by_zero(void **state)
{
    struct sample one = at_second(100);
    struct rates r;

    (void)state;
    rates_between(&one, &one, &r);
    assert_int_equal(r.requests, 0);
    assert_float_equal(r.sent_bytes_per_s, 0, 0);
    assert_float_equal(r.hit_bytes_ratio, 0, 0);
    assert_float_equal(r.stall_ratio, 0, 0);
    assert_float_equal(r.p99_ms, 0, 0);
}

static void the_first_second_is_told_over_a_whole_one(void **state)
{
    struct sample from = at_second(0), to = at_second(0);
    struct rates r;

    (void)state;
    to.at_ms = 10;
    to.sent_bytes = 5000;
    rates_between(&from, &to, &r);
    assert_float_equal(r.sent_bytes_per_s, 5000, 1e-9);
}

static void a_counter_that_went_back_gives_zero(void **state)
{
    struct sample from = at_second(100), to = at_second(110);
    struct rates r;

    (void)state;
    to.sent_bytes = 0;
    to.stall_us = UINT64_MAX;
    rates_between(&from, &to, &r);
    assert_float_equal(r.sent_bytes_per_s, 0, 0);
    assert_float_equal(r.hit_bytes_ratio, 0, 0);
    assert_float_equal(r.stall_ratio, 1, 0); /* no more than all of the time */
}

static void before_five_minutes_what_there_is_counts(void **state)
{
    static struct window w;
    struct sample now = at_second(25), note_;
    struct rates r;

    (void)state;
    for (uint64_t s = 0; s <= 20; s += 10) {
        note_ = at_second(s);
        window_add(&w, &note_);
    }
    window_rates(&w, &now, &r);
    assert_int_equal(r.requests, 250);
}

static void what_is_older_than_five_minutes_is_forgotten(void **state)
{
    static struct window w;
    struct sample now = at_second(1007), note_;
    struct rates r;

    (void)state;
    for (uint64_t s = 0; s <= 1000; s += 10) {
        note_ = at_second(s);
        note_.requests *= s < 700 ? 1000 : 1; /* would show */
        window_add(&w, &note_);
    }
    window_rates(&w, &now, &r);
    assert_true(r.requests >= 2900 && r.requests <= 3070);
}

static void notes_from_before_a_pause_are_not_used(void **state)
{
    static struct window w;
    struct sample now = at_second(5000), note_ = at_second(10);
    struct rates r;

    (void)state;
    window_add(&w, &note_);          /* the machine slept for an hour */
    window_rates(&w, &now, &r);
    assert_int_equal(r.requests, 0);
}

static void the_series_has_one_entry_per_interval(void **state)
{
    static struct window w;
    struct rates series[WINDOW_SAMPLES];
    struct sample note_;

    (void)state;
    assert_int_equal(window_series(&w, series), 0);
    for (uint64_t s = 0; s <= 1000; s += 10) {
        note_ = at_second(s);
        window_add(&w, &note_);
    }
    assert_int_equal(window_series(&w, series), WINDOW_SAMPLES - 1);
    for (unsigned i = 0; i < WINDOW_SAMPLES - 1; i++)
        assert_int_equal(series[i].requests, 100);
}

static void the_newest_interval_is_the_series_last(void **state)
{
    static struct window w;
    struct rates series[WINDOW_SAMPLES], newest;
    struct sample one = at_second(10), two = at_second(20);

    (void)state;
    window_add(&w, &one);
    window_newest(&w, &newest);
    assert_int_equal(newest.requests, 0);
    two.sent_bytes = one.sent_bytes + 70;
    window_add(&w, &two);
    window_newest(&w, &newest);
    assert_float_equal(newest.sent_bytes_per_s, 7, 1e-9);
    unsigned count = window_series(&w, series);
    assert_memory_equal(&newest, &series[count - 1], sizeof newest);
}

static void a_sample_reads_the_metrics(void **state)
{
    struct metric_set *set = metric_set_make();
    struct sample before, after;

    (void)state;
    assert_non_null(set);
    sample_take(&before);
    metric_add3(set, METRIC_REQUESTS_TOTAL, OP_GET, RESULT_HIT, CODE_2XX, 2);
    metric_add(set, METRIC_SENT_BYTES_TOTAL, SOURCE_NVME, 1000);
    metric_add(set, METRIC_SENT_BYTES_TOTAL, SOURCE_UPSTREAM, 24);
    metric_add(set, METRIC_STALL_SECONDS_TOTAL, STALL_MISS, 70);
    metric_add(set, METRIC_STALL_SECONDS_TOTAL, STALL_THROTTLED, 7);
    metric_add(set, METRIC_STALL_SECONDS_TOTAL, STALL_DISK, 5);
    metric_observe(set, METRIC_REQUEST_DURATION_SECONDS, OP_PUT, RESULT_BYPASS, 30);
    metric_add(set, METRIC_GET_SECONDS_TOTAL, 0, 800);
    metric_add3(set, METRIC_UPSTREAM_RETRIES_TOTAL, 1, RETRY_SLOWDOWN, 0, 3);
    metric_add3(set, METRIC_UPSTREAM_RETRIES_TOTAL, 1, RETRY_TIMEOUT, 0, 9);
    metric_add3(set, METRIC_UPSTREAM_RECEIVED_BYTES_TOTAL, 0, PURPOSE_DEMAND, 0, 55);
    metric_observe(set, METRIC_REQUEST_DURATION_SECONDS, OP_GET, RESULT_HIT, 800);
    sample_take(&after);
    assert_int_equal(after.requests - before.requests, 2);
    assert_int_equal(after.sent_bytes - before.sent_bytes, 1024);
    assert_int_equal(after.missed_bytes - before.missed_bytes, 24);
    assert_int_equal(after.stall_us - before.stall_us, 77); /* a disk is local */
    assert_int_equal(after.disk_us - before.disk_us, 5);
    assert_int_equal(after.get_us - before.get_us, 800);
    assert_int_equal(after.slowdowns[1] - before.slowdowns[1], 3); /* and of no other upstream */
    assert_int_equal(after.slowdowns[0] - before.slowdowns[0], 0);
    assert_int_equal(after.upstream_bytes - before.upstream_bytes, 55);
    assert_int_equal(after.duration.count - before.duration.count, 2);
    assert_int_equal(after.duration.sum_us - before.duration.sum_us, 830);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_differences_over_time),
        cmocka_unit_test(nothing_happened_gives_zeros_and_no_division_by_zero),
        cmocka_unit_test(the_first_second_is_told_over_a_whole_one),
        cmocka_unit_test(a_counter_that_went_back_gives_zero),
        cmocka_unit_test(before_five_minutes_what_there_is_counts),
        cmocka_unit_test(what_is_older_than_five_minutes_is_forgotten),
        cmocka_unit_test(notes_from_before_a_pause_are_not_used),
        cmocka_unit_test(the_series_has_one_entry_per_interval),
        cmocka_unit_test(the_newest_interval_is_the_series_last),
        cmocka_unit_test(a_sample_reads_the_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
