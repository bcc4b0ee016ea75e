/* Counting, summing and the Prometheus text of common/metric.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/metric.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct metric_set *one, *two;
static char printed[MIB];

static const char *print(void)
{
    struct text t;

    assert_true(metric_print_bytes_max() < sizeof printed);
    text_init(&t, printed, metric_print_bytes_max() + 1);
    metric_print(&t);
    assert_false(t.over);
    return printed;
}

static void has_line(const char *line)
{
    char whole[512];

    snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(print(), whole))
        fail_msg("no line %s in\n%s", line, printed);
}

/* Counts are never reset, so each test uses metrics of its own or differences. */
static int make_sets(void **state)
{
    (void)state;
    one = metric_set_make();
    two = metric_set_make();
    return one && two ? 0 : -1;
}

static void counters_of_all_threads_add_up(void **state)
{
    (void)state;
    metric_add3(one, METRIC_REQUESTS_TOTAL, OP_GET, RESULT_HIT, CODE_2XX, 3);
    metric_add3(two, METRIC_REQUESTS_TOTAL, OP_GET, RESULT_HIT, CODE_2XX, 4);
    metric_add3(two, METRIC_REQUESTS_TOTAL, OP_OTHER, RESULT_BYPASS, CODE_ABORTED, 1);
    assert_int_equal(metric_read(METRIC_REQUESTS_TOTAL, OP_GET, RESULT_HIT, CODE_2XX), 7);
    assert_int_equal(metric_read(METRIC_REQUESTS_TOTAL, OP_OTHER, RESULT_BYPASS, CODE_ABORTED), 1);
    assert_int_equal(metric_read_sum(METRIC_REQUESTS_TOTAL), 8);
    has_line("headpond_requests_total{op=\"get\",result=\"hit\",code=\"2xx\"} 7");
    has_line("headpond_requests_total{op=\"other\",result=\"bypass\",code=\"aborted\"} 1");
    has_line("# TYPE headpond_requests_total counter");
    has_line("# HELP headpond_requests_total Finished S3 requests by operation, cache result and "
             "status class");
    assert_null(strstr(printed, "op=\"head\",result=\"hit\",code"));
}

/* Prometheus sees no increase in a counter's first value, so an alert would miss the first
 * event. */
static void untouched_series_are_zero_where_they_are_few(void **state)
{
    (void)state;
    has_line("headpond_fetch_joined_total 0");
    has_line("headpond_index_commit_seconds_count 0");
    has_line("headpond_auth_failures_total{reason=\"skew\"} 0");
    has_line("headpond_stall_seconds_total{cause=\"revalidate\"} 0.000000");
    assert_null(strstr(printed, "headpond_disk_errors_total"));
    assert_null(strstr(printed, "{op=\"get\",result=\"stale\""));
    assert_null(strstr(printed, "headpond_disk_up"));
}

static void times_are_counted_in_us_and_printed_in_seconds(void **state)
{
    (void)state;
    metric_add(one, METRIC_STALL_SECONDS_TOTAL, STALL_DISK, 1500001);
    metric_add(two, METRIC_STALL_SECONDS_TOTAL, STALL_DISK, 1000000);
    assert_int_equal(metric_read(METRIC_STALL_SECONDS_TOTAL, STALL_DISK, 0, 0), 2500001);
    has_line("headpond_stall_seconds_total{cause=\"disk\"} 2.500001");
}

static void gauges_are_set_and_added_to(void **state)
{
    (void)state;
    metric_gauge_set(METRIC_CONNECTIONS, CONN_IDLE, 5);
    metric_gauge_add(METRIC_CONNECTIONS, CONN_IDLE, -7);
    assert_int_equal((int64_t)metric_read(METRIC_CONNECTIONS, CONN_IDLE, 0, 0), -2);
    has_line("headpond_connections{state=\"idle\"} -2");
    has_line("headpond_connections{state=\"active\"} 0");
    unsigned upstream = metric_name_label(NAMED_UPSTREAM, "default");
    metric_gauge_set2(METRIC_UPSTREAM_CONNECTIONS, upstream, CONN_ACTIVE, 9);
    has_line("headpond_upstream_connections{upstream=\"default\",state=\"active\"} 9");
    has_line("headpond_upstream_up{upstream=\"default\"} 0");
}

static void histograms_have_17_buckets_sum_and_count(void **state)
{
    static const uint64_t us[] = {0, 100, 101, 1000, 29999999, 30000000, 30000001};
    unsigned disk = metric_name_label(NAMED_DISK, "/nvme0");

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(us); i++)
        metric_observe(i % 2 ? one : two, METRIC_DISK_READ_SECONDS, disk, 0, us[i]);
    assert_int_equal(metric_read(METRIC_DISK_READ_SECONDS, disk, 0, 0), 7);
    has_line("headpond_disk_read_seconds_bucket{disk=\"/nvme0\",le=\"0.0001\"} 2");
    has_line("headpond_disk_read_seconds_bucket{disk=\"/nvme0\",le=\"0.00025\"} 3");
    has_line("headpond_disk_read_seconds_bucket{disk=\"/nvme0\",le=\"0.001\"} 4");
    has_line("headpond_disk_read_seconds_bucket{disk=\"/nvme0\",le=\"10\"} 4");
    has_line("headpond_disk_read_seconds_bucket{disk=\"/nvme0\",le=\"30\"} 6");
    has_line("headpond_disk_read_seconds_bucket{disk=\"/nvme0\",le=\"+Inf\"} 7");
    has_line("headpond_disk_read_seconds_sum{disk=\"/nvme0\"} 90.001201");
    has_line("headpond_disk_read_seconds_count{disk=\"/nvme0\"} 7");
    unsigned lines = 0;
    for (const char *at = printed; (at = strstr(at, "headpond_disk_read_seconds_bucket")); at++)
        lines++;
    assert_int_equal(lines, METRIC_BUCKETS + 1);
    metric_observe(one, METRIC_LOOP_DELAY_SECONDS, 0, 0, 1);
    has_line("headpond_loop_delay_seconds_bucket{le=\"0.0001\"} 1");
}

static void quantiles_are_linear_inside_a_bucket(void **state)
{
    (void)state;
    assert_int_equal(metric_quantile_us(METRIC_UPSTREAM_SECONDS, 0.5), 0);
    unsigned upstream = metric_name_label(NAMED_UPSTREAM, "default");
    for (int i = 0; i < 100; i++)
        metric_observe(one, METRIC_UPSTREAM_SECONDS, upstream, i % 2 ? OP_GET : OP_HEAD, 700);
    assert_int_equal(metric_quantile_us(METRIC_UPSTREAM_SECONDS, 0.5), 750);
    assert_int_equal(metric_quantile_us(METRIC_UPSTREAM_SECONDS, 0), 500);
    assert_int_equal(metric_quantile_us(METRIC_UPSTREAM_SECONDS, 1), 1000);
    for (int i = 0; i < 900; i++)
        metric_observe(two, METRIC_UPSTREAM_SECONDS, upstream, OP_GET, 60000000);
    assert_int_equal(metric_quantile_us(METRIC_UPSTREAM_SECONDS, 0.99), 30000000);
}

static void names_are_escaped_found_again_and_bounded(void **state)
{
    char name[32];

    (void)state;
    unsigned odd = metric_name_label(NAMED_BUCKET, "a\"b\\c\nd\xff/\xc3\xa4");
    assert_int_equal(metric_name_label(NAMED_BUCKET, "a\"b\\c\nd\xff/\xc3\xa4"), odd);
    metric_add(one, METRIC_BUCKET_HIT_BYTES_TOTAL, odd, 1);
    has_line("headpond_bucket_hit_bytes_total{bucket=\"a\\\"b\\\\c\\nd?/\xc3\xa4\"} 1");
    for (unsigned i = 1; i < METRIC_NAMED_MAX - 1; i++) {
        snprintf(name, sizeof name, "b%u", i);
        assert_int_equal(metric_name_label(NAMED_BUCKET, name), i);
    }
    unsigned other = metric_name_label(NAMED_BUCKET, "one too many");
    assert_int_equal(other, METRIC_NAMED_MAX - 1);
    assert_int_equal(metric_name_label(NAMED_BUCKET, "two too many"), other);
    assert_null(strstr(print(), "bucket=\"other\""));
    metric_add(one, METRIC_BUCKET_HIT_BYTES_TOTAL, other, 2);
    has_line("headpond_bucket_hit_bytes_total{bucket=\"other\"} 2");
}

static void build_info_has_its_labels(void **state)
{
    (void)state;
    metric_build_info(HEADPOND_VERSION, "abc\"", "2.3", "OpenSSL 3.0.15");
    has_line("headpond_build_info{version=\"" HEADPOND_VERSION
             "\",revision=\"abc\\\"\",liburing=\"2.3\",openssl=\"OpenSSL 3.0.15\"} 1");
}

/* The limit the design sets, with two disks, one upstream and four bucket sections. */
static void all_series_touched_fit_the_stated_maximum(void **state)
{
    (void)state;
    for (unsigned m = 0; m < METRIC_COUNT; m++) {
        const struct layout *l = &layouts[m];
        for (unsigned s = 0; s < series_count(l); s++) {
            unsigned a = s / l->size[2] / l->size[1], b = s / l->size[2] % l->size[1];
            if (rows[m].kind == KIND_COUNTER)
                metric_add3(one, (enum metric)m, a, b, s % l->size[2], UINT64_MAX / 4);
            else if (rows[m].kind == KIND_HISTOGRAM)
                metric_observe(one, (enum metric)m, a, b, UINT64_MAX / 4);
            else
                metric_gauge_set2((enum metric)m, a, b, INT64_MIN);
        }
    }
    print();
}

static void each_metric_has_help_and_one_head(void **state)
{
    char head[256];

    (void)state;
    print();
    for (unsigned m = 0; m < METRIC_COUNT; m++) {
        assert_true(strlen(rows[m].help) > 5);
        snprintf(head, sizeof head, "# HELP headpond_%s ", rows[m].id);
        const char *at = strstr(printed, head);
        assert_non_null(at);
        assert_null(strstr(at + 1, head));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_of_all_threads_add_up),
        cmocka_unit_test(untouched_series_are_zero_where_they_are_few),
        cmocka_unit_test(times_are_counted_in_us_and_printed_in_seconds),
        cmocka_unit_test(gauges_are_set_and_added_to),
        cmocka_unit_test(histograms_have_17_buckets_sum_and_count),
        cmocka_unit_test(quantiles_are_linear_inside_a_bucket),
        cmocka_unit_test(names_are_escaped_found_again_and_bounded),
        cmocka_unit_test(build_info_has_its_labels),
        cmocka_unit_test(all_series_touched_fit_the_stated_maximum),
        cmocka_unit_test(each_metric_has_help_and_one_head),
    };
    return cmocka_run_group_tests(tests, make_sets, NULL);
}
