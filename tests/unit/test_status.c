/* JSON of the control plane, of server/admin/status.c: read back with a real JSON reader. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/status.c"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static char memory[256 * KIB];
static struct text text;
static struct status filled;

static struct text *fresh(void)
{
    text_init(&text, memory, sizeof memory);
    return &text;
}

static json_t *parsed(void)
{
    json_error_t error;
    json_t *value = json_loads(memory, JSON_REJECT_DUPLICATES, &error);

    if (!value)
        fail_msg("%s at %d in %s", error.text, error.position, memory);
    assert_false(text.over);
    return value;
}

static const json_t *at(const json_t *value, const char *a, const char *b)
{
    return json_object_get(json_object_get(value, a), b);
}

static int fill_status(void **state)
{
    (void)state;
    filled = (struct status){
        .name = "dgx-03",
        .state = "ready",
        .pid = 42,
        .uptime_s = 266400,
        .now_wall_s = 1000,
        .pinned_bytes = 2199023255552,
        .s3_url = "http://127.0.0.1:9000",
        .upstream = {{.name = "s3.eu-central-1.amazonaws.com:443",
                      .up = true,
                      .endpoint = "https://s3.eu-central-1.amazonaws.com",
                      .rtt_ms = 11.8,
                      .clock_known = true,
                      .clock_offset_s = -7,
                      .gets = RIGHT_ALLOWED,
                      .lists = RIGHT_REFUSED,
                      .credentials = "shared credentials file",
                      .temporary = true,
                      .expire_s = 1795166183},
                     {.name = "minio", .label = 1, .endpoint = "http://minio", .down_ms = 7000}},
        .upstream_count = 2,
        .congestion = "cubic",
        .newest = {.p99_ms = 6.5},
        .note = 77,
        .cache = {.capacity_bytes = 13194139533312,
                  .used_bytes = 9895604649984,
                  .objects = 18233,
                  .chunks = 1179648,
                  .disk_count = 2},
        .last = {.requests = 412331,
                 .hit_bytes_ratio = 0.986,
                 .sent_bytes_per_s = 3650722201,
                 .upstream_bytes_per_s = 51380224,
                 .stall_ratio = 0.004,
                 .disk_ratio = 0.25,
                 .throttled_per_min = {0, 3.5},
                 .p50_ms = 0.9,
                 .p99_ms = 6.2},
        .client_count = 1,
        .hosts = {.count = 200, .more = true},
        .warning_count = 1,
    };
    filled.cache.disk[0] = (struct cache_disk_status){
        .dir = "/nvme0/headpond", .capacity_bytes = 6597069766656, .used_bytes = 4947802324992};
    filled.cache.disk[1] = (struct cache_disk_status){
        .dir = "/nvme1/headpond", .state = DISK_FENCED, .why = "it does not answer",
        .fix = "wait", .since_ms = 61500, .capacity_bytes = 1, .used_bytes = 2, .errors = 12,
        .stuck_ops = 3};
    filled.client[0] = (struct net_client){"10.0.0.21", "Boto3", 990};
    snprintf(filled.warning[0], sizeof filled.warning[0], "upstream: plain \"HTTP\"");
    return 0;
}

/* Found as: a store at rest was shown as throttled as often as the one beside it. */
static void each_upstream_tells_its_own_throttling(void **state)
{
    (void)state;
    status_print(&filled, fresh());
    json_t *s = parsed();
    const json_t *all = json_object_get(s, "upstreams");
    static const double told[] = {0, 3.5};
    for (unsigned i = 0; i < ARRAY_COUNT(told); i++)
        assert_float_equal(json_number_value(json_object_get(json_array_get(all, i),
                                                             "throttled_per_min")), told[i], 1e-9);
    json_decref(s);
}

static void status_has_the_documented_shape(void **state)
{
    (void)state;
    status_print(&filled, fresh());
    json_t *s = parsed();
    assert_int_equal(json_integer_value(json_object_get(s, "v")), 1);
    assert_string_equal(json_string_value(json_object_get(s, "name")), "dgx-03");
    assert_string_equal(json_string_value(json_object_get(s, "version")), HEADPOND_VERSION);
    assert_string_equal(json_string_value(json_object_get(s, "state")), "ready");
    assert_int_equal(json_integer_value(json_object_get(s, "uptime_s")), 266400);
    assert_true(json_is_true(at(s, "upstream", "up")));
    assert_float_equal(json_number_value(at(s, "upstream", "rtt_ms")), 11.8, 1e-9);
    assert_true(json_is_false(at(s, "upstream", "throttled")));
    const json_t *all = json_object_get(s, "upstreams");
    assert_int_equal(json_array_size(all), 2);
    assert_true(json_equal(json_array_get(all, 0), json_object_get(s, "upstream")));
    const json_t *other = json_array_get(all, 1);
    assert_string_equal(json_string_value(json_object_get(other, "name")), "minio");
    assert_true(json_is_false(json_object_get(other, "up")));
    assert_int_equal(json_integer_value(json_object_get(other, "down_s")), 7);
    assert_int_equal(json_integer_value(at(s, "cache", "capacity")), 13194139533312);
    assert_int_equal(json_integer_value(at(s, "cache", "used")), 9895604649984);
    assert_int_equal(json_integer_value(at(s, "cache", "pinned")), 2199023255552);
    assert_int_equal(json_integer_value(at(s, "cache", "objects")), 18233);
    assert_int_equal(json_integer_value(at(s, "cache", "chunks")), 1179648);
    assert_int_equal(json_integer_value(at(s, "last_5m", "requests")), 412331);
    assert_float_equal(json_number_value(at(s, "last_5m", "hit_bytes_ratio")), 0.986, 1e-9);
    assert_int_equal(json_integer_value(at(s, "last_5m", "sent_bytes_per_s")), 3650722201);
    assert_float_equal(json_number_value(at(s, "last_5m", "stall_ratio")), 0.004, 1e-9);
    assert_int_equal(json_integer_value(at(s, "last_10s", "note")), 77);
    assert_float_equal(json_number_value(at(s, "last_10s", "p99_ms")), 6.5, 1e-9);
    assert_float_equal(json_number_value(at(s, "last_5m", "disk_stall_ratio")), 0.25, 1e-9);
    assert_float_equal(json_number_value(at(s, "last_5m", "p99_ms")), 6.2, 1e-9);
    assert_int_equal(json_integer_value(at(s, "jobs", "running")), 0);
    assert_string_equal(json_string_value(json_object_get(s, "s3_url")), "http://127.0.0.1:9000");
    json_decref(s);
}

static void status_tells_clock_credentials_and_congestion(void **state)
{
    (void)state;
    status_print(&filled, fresh());
    json_t *s = parsed();
    assert_int_equal(json_integer_value(at(s, "upstream", "clock_offset_s")), -7);
    assert_true(json_is_true(at(s, "upstream", "get_allowed")));
    assert_true(json_is_false(at(s, "upstream", "list_allowed")));
    assert_string_equal(json_string_value(at(s, "upstream", "credentials")),
                        "shared credentials file");
    assert_true(json_is_true(at(s, "upstream", "credentials_temporary")));
    assert_int_equal(json_integer_value(at(s, "upstream", "credentials_expire_s")), 1795166183);
    assert_string_equal(json_string_value(json_object_get(s, "congestion")), "cubic");
    json_decref(s);
    struct status less = filled;
    less.upstream[0].clock_known = false;
    less.upstream[0].gets = RIGHT_UNKNOWN;
    less.upstream[0].expire_s = 0;
    less.upstream[0].credentials[0] = '\0';
    status_print(&less, fresh());
    s = parsed();
    assert_true(json_is_false(at(s, "upstream", "credentials_renewed")));
    assert_null(at(s, "upstream", "credentials_error"));
    json_decref(s);
    struct status failing = less;
    failing.upstream[0].renewed = true;
    snprintf(failing.upstream[0].credentials_error, sizeof failing.upstream[0].credentials_error,
             "why");
    failing.upstream[0].credentials_failed_s = 17;
    status_print(&failing, fresh());
    s = parsed();
    assert_true(json_is_true(at(s, "upstream", "credentials_renewed")));
    assert_string_equal(json_string_value(at(s, "upstream", "credentials_error")), "why");
    assert_int_equal(json_integer_value(at(s, "upstream", "credentials_failed_s")), 17);
    json_decref(s);
    status_print(&less, fresh());
    s = parsed();
    assert_null(at(s, "upstream", "clock_offset_s"));
    assert_null(at(s, "upstream", "get_allowed"));
    assert_null(at(s, "upstream", "credentials_expire_s"));
    assert_string_equal(json_string_value(at(s, "upstream", "credentials")), "");
    json_decref(s);
}

static void status_lists_disks_clients_and_warnings(void **state)
{
    (void)state;
    status_print(&filled, fresh());
    json_t *s = parsed();
    const json_t *disks = json_object_get(s, "disks"), *clients = json_object_get(s, "clients");
    const json_t *warnings = json_object_get(s, "warnings");
    assert_int_equal(json_array_size(disks), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(disks, 0), "state")),
                        "up");
    assert_string_equal(json_string_value(json_object_get(json_array_get(disks, 1), "state")),
                        "fenced");
    assert_string_equal(json_string_value(json_object_get(json_array_get(disks, 1), "why")),
                        "it does not answer");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(disks, 1), "since_s")), 61);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(disks, 1), "stuck_ops")),
                     3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(disks, 1), "errors")), 12);
    assert_int_equal(json_array_size(clients), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(clients, 0), "agent")),
                        "Boto3");
    assert_int_equal(json_integer_value(json_object_get(s, "client_hosts")), 200);
    assert_true(json_is_true(json_object_get(s, "client_hosts_more")));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(clients, 0),
                                                        "seconds_ago")), 10);
    assert_string_equal(json_string_value(json_array_get(warnings, 0)), "upstream: plain \"HTTP\"");
    json_decref(s);
}

static void hostile_text_stays_text(void **state)
{
    static const struct {
        const char *raw, *read;
    } rows[] = {
        {"a\"b\\c", "a\"b\\c"},           {"line\nend\r\t", "line\nend\r\t"},
        {"\x01\x1f\x7f", "\x01\x1f\x7f"}, {"\xff\xfe", "??"},
        {"\xc3\xa9", "\xc3\xa9"},         {"cut\xe2\x82", "cut??"},
        {"{[,", "{[,"},                   {"", ""},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        filled.name = rows[i].raw;
        status_print(&filled, fresh());
        json_t *s = parsed();
        assert_string_equal(json_string_value(json_object_get(s, "name")), rows[i].read);
        json_decref(s);
    }
    fill_status(NULL);
}

static void numbers_that_json_cannot_say_become_zero(void **state)
{
    (void)state;
    filled.last.p50_ms = NAN;
    filled.last.p99_ms = INFINITY;
    filled.upstream[0].rtt_ms = -INFINITY;
    status_print(&filled, fresh());
    json_t *s = parsed();
    assert_float_equal(json_number_value(at(s, "last_5m", "p50_ms")), 0, 0);
    assert_float_equal(json_number_value(at(s, "last_5m", "p99_ms")), 0, 0);
    json_decref(s);
    fill_status(NULL);
}

static void the_fullest_status_fits_its_memory(void **state)
{
    static char room[256 * KIB];     /* STATUS_BYTES of admin.c */

    (void)state;
    filled.client_count = STATUS_CLIENTS_MAX;
    filled.warning_count = STATUS_WARNINGS_MAX;
    filled.cache.disk_count = ARRAY_COUNT(filled.cache.disk);
    for (unsigned i = 0; i < STATUS_CLIENTS_MAX; i++) {
        memset(&filled.client[i], '\x01', sizeof filled.client[i]);
        filled.client[i].host[63] = filled.client[i].agent[31] = '\0';
    }
    for (unsigned i = 0; i < STATUS_WARNINGS_MAX; i++) {
        memset(filled.warning[i], '\x02', 255);
        filled.warning[i][255] = '\0';
    }
    for (unsigned i = 0; i < ARRAY_COUNT(filled.cache.disk); i++)
        filled.cache.disk[i] = filled.cache.disk[0];
    text_init(&text, room, sizeof room);
    status_print(&filled, &text);
    assert_false(text.over);
    fill_status(NULL);
}

static void errors_have_code_message_and_hint(void **state)
{
    (void)state;
    status_error(fresh(), "not_found", "no \"x\"", "try /");
    json_t *e = parsed();
    assert_string_equal(json_string_value(at(e, "error", "code")), "not_found");
    assert_string_equal(json_string_value(at(e, "error", "message")), "no \"x\"");
    assert_string_equal(json_string_value(at(e, "error", "hint")), "try /");
    json_decref(e);
}

static void s3_urls_are_what_a_client_can_reach(void **state)
{
    static const struct {
        const char *listen, *host, *url;
    } rows[] = {
        {"0.0.0.0:9000", "127.0.0.1", "http://127.0.0.1:9000"},
        {"0.0.0.0:9000", "dgx-03", "http://dgx-03:9000"},
        {"[::]:9000", "dgx-03", "http://dgx-03:9000"},
        {"[::]:9000", "fd00::1", "http://[fd00::1]:9000"},
        {"10.0.0.5:80", "127.0.0.1", "http://10.0.0.5:80"},
        {"[fd00::5]:80", "127.0.0.1", "http://[fd00::5]:80"},
        {"127.0.0.1:0", "127.0.0.1", ""},
        {"unix:/x", "127.0.0.1", ""},
        {"nonsense", "127.0.0.1", ""},
    };
    char url[S3_URL_BYTES];

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        status_s3_url(rows[i].listen, false, span_of(rows[i].host), url);
        assert_string_equal(url, rows[i].url);
    }
}

static void configuration_becomes_json(void **state)
{
    static struct conf_mistakes mistakes;
    static char toml[64 * KIB];
    static const char file[] = "[upstream]\nendpoint = \"https://s3.example.com\"\n"
                               "[cache]\ndirs = [\"/nvme0\", \"/nvme\\\"1\"]\nsize = \"80%\"\n"
                               "[[bucket]]\nmatch = \"a/\"\n[[bucket]]\nmatch = \"b\"\nimmutable = "
                               "true\n";
    char *const none[] = {NULL};
    struct config *c = NULL;
    struct text printed;

    (void)state;
    assert_int_equal(conf_parse(span_of(file), "f", none, NULL, 0, &c, &mistakes), OK);
    text_init(&printed, toml, sizeof toml);
    conf_print(c, &printed);
    status_config(text_span(&printed), fresh());
    json_t *j = parsed();
    assert_string_equal(json_string_value(at(j, "upstream", "endpoint")), "https://s3.example.com");
    assert_string_equal(json_string_value(json_array_get(at(j, "cache", "dirs"), 1)), "/nvme\"1");
    assert_string_equal(json_string_value(at(j, "cache", "size")), "80%");
    assert_int_equal(json_integer_value(at(j, "server", "max_connections")), 8192);
    assert_true(json_is_false(at(j, "upstream", "insecure")));
    const json_t *buckets = json_object_get(j, "bucket");
    assert_int_equal(json_array_size(buckets), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(buckets, 1), "match")),
                        "b");
    assert_true(json_is_true(json_object_get(json_array_get(buckets, 1), "immutable")));
    unsigned keys = 0;
    const char *section;
    json_t *value;
    json_object_foreach(j, section, value)
        keys += strcmp(section, "bucket") == 0 ? 0 : (unsigned)json_object_size(value);
    assert_int_equal(keys, CONF_OPTIONS);
    json_decref(j);
    conf_give(c);
}

static void a_configuration_without_buckets_has_no_list_of_them(void **state)
{
    (void)state;
    status_config(span_of("[a]\nb = 1\n\n[c]\nd = [\"\xff\", \"e = f\"]\n"), fresh());
    json_t *j = parsed();
    assert_string_equal(json_string_value(json_array_get(at(j, "c", "d"), 0)), "?");
    assert_string_equal(json_string_value(json_array_get(at(j, "c", "d"), 1)), "e = f");
    assert_null(json_object_get(j, "bucket"));
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_has_the_documented_shape),
        cmocka_unit_test(each_upstream_tells_its_own_throttling),
        cmocka_unit_test(status_tells_clock_credentials_and_congestion),
        cmocka_unit_test(status_lists_disks_clients_and_warnings),
        cmocka_unit_test(hostile_text_stays_text),
        cmocka_unit_test(numbers_that_json_cannot_say_become_zero),
        cmocka_unit_test(the_fullest_status_fits_its_memory),
        cmocka_unit_test(errors_have_code_message_and_hint),
        cmocka_unit_test(s3_urls_are_what_a_client_can_reach),
        cmocka_unit_test(configuration_becomes_json),
        cmocka_unit_test(a_configuration_without_buckets_has_no_list_of_them),
    };
    return cmocka_run_group_tests(tests, fill_status, NULL);
}
