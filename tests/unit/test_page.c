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
static struct page_more more;
static bool with_more = true;

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
    with_more = true;
    more = (struct page_more){
        .top = {{"train/<i>net/", 90, 30000000}},
        .top_count = 1,
        .over_ms = 60000,
        .job = {{"verify", "running", "train/\"x", 1281, 640, 2, 1000, 501}, {"evict", "done", ""}},
        .job_count = 2,
    };
    for (unsigned i = 0; i < WINDOW_SAMPLES; i++)
        series[i] = (struct rates){.sent_bytes_per_s = 1e9 * i, .p99_ms = 6.2};
    return 0;
}

static const char *print(unsigned count)
{
    text_init(&text, memory, sizeof memory);
    struct page page = {&filled, series, count, with_more ? &more : NULL, "00ff"};
    page_print(&page, &text);
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
    assert_null(strstr(memory, "<i>"));
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
    more.top_count = more.job_count = PAGE_ROWS;
    for (unsigned i = 0; i < PAGE_ROWS; i++) {
        more.job[i] = more.job[0];
        memset(more.job[i].prefix, '"', sizeof more.job[i].prefix - 1);
        memset(more.top[i].name, '\'', sizeof more.top[i].name - 1);
    }
    print(WINDOW_SAMPLES - 1);
    fill_status(NULL);
}

static void a_page_of_the_first_seconds_has_no_chart_yet(void **state)
{
    (void)state;
    assert_non_null(strstr(print(0), "data-v=\"\" points=\"\""));
    assert_non_null(strstr(print(1), "data-v=\"0\" points=\"0.0,35.0\""));
}

static void prefixes_and_jobs_are_named(void **state)
{
    (void)state;
    print(3);
    assert_non_null(strstr(memory, "<td>train/&lt;i&gt;net/</td><td>500 KB/s</td><td>90</td>"));
    assert_non_null(strstr(memory, "<td>train/&quot;x</td><td>verify</td><td>640 of 1 281</td>"
                                   "<td>running, 50.1 %, 2 failed</td>"));
    assert_non_null(
        strstr(memory, "<td>everything</td><td>evict</td><td>0 of 0</td><td>done</td>"));
}

/* Everybody may reach admin.metrics_listen, so it names nothing of what is read. */
static void without_more_no_name_of_an_object_is_told(void **state)
{
    (void)state;
    with_more = false;
    print(3);
    assert_null(strstr(memory, "train/"));
    assert_null(strstr(memory, "id=\"top\""));
    assert_null(strstr(memory, "id=\"jobs\""));
    fill_status(NULL);
}

/* Of calls like set('gpu', ...) and set('up' + i, ...) in the script, and $('top'). */
static unsigned look_for_ids(const char *call)
{
    unsigned found = 0;

    for (const char *p = page_js; (p = strstr(p, call)) != NULL; found++) {
        char want[40];
        p += strlen(call);
        size_t len = strcspn(p, "'");
        snprintf(want, sizeof want, "id=\"%.*s%s\"", (int)len, p,
                 strncmp(p + len, "' +", 3) == 0 ? "0" : "");
        if (count_of(want) != 1)
            fail_msg("%s is not on the page once", want);
    }
    return found;
}

static void every_element_the_script_looks_for_is_there(void **state)
{
    (void)state;
    print(3);
    assert_true(look_for_ids("set('") >= 12);
    assert_true(look_for_ids("bad('") >= 3);
    assert_true(look_for_ids("rows('") >= 3);
    assert_true(look_for_ids("$('") >= 3);
}

static void it_can_be_read_aloud_and_walked_through_by_keys(void **state)
{
    (void)state;
    print(3);
    assert_non_null(strstr(memory, "<html lang=\"en\">"));
    assert_int_equal(count_of("<h1>"), 1);
    assert_int_equal(count_of("<main>"), 1);
    assert_int_equal(count_of("<th scope=\"col\">"), count_of("<th "));
    assert_int_equal(count_of("<svg"), count_of("aria-hidden=\"true\""));
    assert_int_equal(count_of("<table>"), count_of("role=\"region\" aria-label="));
    assert_int_equal(count_of("<table>"), count_of("tabindex=\"0\""));
    /* what is wrong is wrong in words: fenced, not answering */
    assert_non_null(strstr(memory, "class=\"bad\">fenced, 12 errors</td>"));
    assert_non_null(strstr(memory, "class=\"bad\">not answering</span>"));
}

static void nothing_comes_from_elsewhere(void **state)
{
    static const char *const ways[] = {" src=", "href=", "@import", "url(", "//cdn", "innerHTML"};

    (void)state;
    filled.warning_count = 0;          /* its text names an image; it is one only in quotes */
    print(3);
    for (unsigned i = 0; i < ARRAY_COUNT(ways); i++)
        if (strstr(memory, ways[i]))
            fail_msg("the page holds %s", ways[i]);
    fill_status(NULL);
}

static void what_is_lost_beside_slots_is_not_free(void **state)
{
    (void)state;
    filled.cache.disk[0].used_bytes = 62 * GIB;
    filled.cache.disk[0].lost_bytes = 37 * GIB;
    const char *page = print(0);
    assert_non_null(strstr(page, "id=\"du0\">62.0 GiB<"));
    assert_non_null(strstr(page, "id=\"df0\">1.00 GiB<"));
    assert_non_null(strstr(page, "width=\"99.0\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_waiting_of_gpus_comes_first),
        cmocka_unit_test(foreign_text_is_never_markup),
        cmocka_unit_test(an_ordinary_page_is_below_20_kb),
        cmocka_unit_test(the_fullest_page_fits_its_memory),
        cmocka_unit_test(a_page_of_the_first_seconds_has_no_chart_yet),
        cmocka_unit_test(prefixes_and_jobs_are_named),
        cmocka_unit_test(without_more_no_name_of_an_object_is_told),
        cmocka_unit_test(it_can_be_read_aloud_and_walked_through_by_keys),
        cmocka_unit_test(nothing_comes_from_elsewhere),
        cmocka_unit_test(what_is_lost_beside_slots_is_not_free),
        cmocka_unit_test(every_element_the_script_looks_for_is_there),
    };
    return cmocka_run_group_tests(tests, fill_status, NULL);
}
