/* The status page, of server/admin/page.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/page.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static char memory[PAGE_BYTES_MAX];
static struct text text;
static struct status filled;
static struct rates series[WINDOW_SAMPLES];

static int fill_status(void **state)
{
    (void)state;
    filled = (struct status){
        .name = "dgx<script>alert(1)</script>",
        .state = "ready",
        .uptime_s = 266400,
        .now_wall_s = 1000,
        .s3_url = "http://127.0.0.1:9000",
        .upstream = {{.name = "a", .endpoint = "https://s3.example.com/\"onload=", .up = true,
                      .rtt_ms = 11.8}, {.name = "<b>", .endpoint = "http://b"}},
        .upstream_count = 2,
        .cache = {.objects = 18233, .disk_count = 2},
        .last = {.stall_ratio = 0.004, .sent_bytes_per_s = 3650722201},
        .client_count = 1,
        .warning_count = 1,
    };
    filled.cache.disk[0] = (struct cache_disk_status){
        .dir = "/nvme0/a&b", .capacity_bytes = 100 * GIB, .used_bytes = 25 * GIB};
    filled.cache.disk[1] = (struct cache_disk_status){
        .dir = "/nvme1", .state = DISK_FENCED, .errors = 12};
    filled.client[0] = (struct net_client){"10.0.0.21", "Boto3", 990};
    snprintf(filled.warning[0], sizeof filled.warning[0], "it's </pre><img src=x>\x1b[31m\xff");
    for (unsigned i = 0; i < WINDOW_SAMPLES; i++)
        series[i] = (struct rates){.sent_bytes_per_s = 1e9 * i, .p99_ms = 6.2};
    return 0;
}

static const char *print(unsigned count)
{
    text_init(&text, memory, sizeof memory);
    page_print(&filled, series, count, "00ff", &text);
    assert_false(text.over);
    return memory;
}

static unsigned count_of(const char *what)
{
    unsigned count = 0;

    for (const char *p = memory; (p = strstr(p, what)) != NULL; p++)
        count++;
    return count;
}

static void the_waiting_of_gpus_comes_first(void **state)
{
    (void)state;
    const char *page = print(WINDOW_SAMPLES - 1);
    const char *gpus = strstr(page, "GPUs waited <span id=\"gpu\">0.4 %");
    const char *out = strstr(page, "3.65 GB/s");
    assert_non_null(gpus);
    assert_non_null(out);
    assert_true(gpus < out);
    assert_non_null(strstr(page, "ready, up 3d 2h"));
    assert_non_null(strstr(page, "18 233"));
    assert_non_null(strstr(page, "export AWS_ENDPOINT_URL_S3=http://127.0.0.1:9000"));
}

static void foreign_text_is_never_markup(void **state)
{
    (void)state;
    print(WINDOW_SAMPLES - 1);
    assert_null(strstr(memory, "<script>"));
    assert_null(strstr(memory, "<img"));
    assert_null(strstr(memory, "\x1b"));
    assert_null(strstr(memory, "\xff"));
    assert_null(strstr(memory, "\"onload"));
    assert_non_null(strstr(memory, "/nvme0/a&amp;b"));
    assert_non_null(strstr(memory, "it&#39;s &lt;/pre&gt;"));
    assert_int_equal(count_of("<script nonce=\"00ff\">"), 1);
    assert_int_equal(count_of("<style nonce=\"00ff\">"), 1);
    assert_int_equal(count_of(" style="), 0); /* the policy would refuse it */
}

static void an_ordinary_page_is_below_20_kb(void **state)
{
    (void)state;
    filled.client_count = 8;
    print(WINDOW_SAMPLES - 1);
    assert_true(text.len < 20000);
    fill_status(NULL);
}

static void the_fullest_page_fits_its_memory(void **state)
{
    (void)state;
    filled.client_count = STATUS_CLIENTS_MAX;
    filled.warning_count = STATUS_WARNINGS_MAX;
    filled.cache.disk_count = ARRAY_COUNT(filled.cache.disk);
    for (unsigned i = 0; i < STATUS_CLIENTS_MAX; i++) {
        memset(&filled.client[i], '\'', sizeof filled.client[i]);
        filled.client[i].host[63] = filled.client[i].agent[31] = '\0';
    }
    for (unsigned i = 0; i < STATUS_WARNINGS_MAX; i++) {
        memset(filled.warning[i], '"', 255);
        filled.warning[i][255] = '\0';
    }
    for (unsigned i = 0; i < ARRAY_COUNT(filled.cache.disk); i++)
        filled.cache.disk[i] = filled.cache.disk[0];
    print(WINDOW_SAMPLES - 1);
    fill_status(NULL);
}

static void a_page_of_the_first_seconds_has_no_chart_yet(void **state)
{
    (void)state;
    assert_non_null(strstr(print(0), "data-v=\"\" points=\"\""));
    assert_non_null(strstr(print(1), "data-v=\"0\" points=\"0.0,35.0\""));
}

static void every_element_the_script_looks_for_is_there(void **state)
{
    static const char *const ids[] = {"state", "gpu", "n0",  "n1",      "n2",      "n3",
                                      "c0",    "c3",  "up0", "up1",     "objects", "du0",
                                      "df0",   "ds0", "db1", "clients", "warnings"};
    char want[32];

    (void)state;
    print(3);
    for (unsigned i = 0; i < ARRAY_COUNT(ids); i++) {
        snprintf(want, sizeof want, "id=\"%s\"", ids[i]);
        assert_int_equal(count_of(want), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_waiting_of_gpus_comes_first),
        cmocka_unit_test(foreign_text_is_never_markup),
        cmocka_unit_test(an_ordinary_page_is_below_20_kb),
        cmocka_unit_test(the_fullest_page_fits_its_memory),
        cmocka_unit_test(a_page_of_the_first_seconds_has_no_chart_yet),
        cmocka_unit_test(every_element_the_script_looks_for_is_there),
    };
    return cmocka_run_group_tests(tests, fill_status, NULL);
}
