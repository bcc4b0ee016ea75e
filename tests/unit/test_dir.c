/* A directory as upstream answers like a remote store. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/dir.c"

#include "tests/lib/scripted.h"

/* ---- a directory as upstream answers the same way ---- */

static char root[64];

static void put_file(const char *path, const char *content)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    FILE *f = fopen(whole, "w");
    must(f && fwrite(content, 1, strlen(content), f) == strlen(content) && fclose(f) == 0);
}

static void put_link(const char *to, const char *path)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    must(symlink(to, whole) == 0);
}

static void begin_directory(void)
{
    char path[128], endpoint[128];

    snprintf(root, sizeof(root), "/tmp/headpond-test-dir-XXXXXX");
    must(mkdtemp(root) != NULL);
    snprintf(path, sizeof(path), "%s/bkt", root);
    must(mkdir(path, 0755) == 0);
    put_file("bkt/a.json", "{\"a\": 1}");
    put_file("secret", "outside of all buckets");
    snprintf(path, sizeof(path), "%s/other", root);
    must(mkdir(path, 0755) == 0);
    put_file("other/private", "another bucket's");
    put_link("../../../../etc/passwd", "bkt/up");
    put_link("../other/private", "bkt/aside");
    put_link("../other", "bkt/beside");
    put_link("../bkt/a.json", "bkt/round");
    put_link("a.json", "bkt/inside");
    put_link("bkt", "linked");
    put_link("..", "out");
    snprintf(path, sizeof(path), "%s/bkt/pipe", root);
    must(mkfifo(path, 0600) == 0);
    snprintf(endpoint, sizeof(endpoint), "file://%s", root);
    begin_at(endpoint, "");
}

static int clean_directory(void **state)
{
    static const char *const paths[] = {"bkt/a.json", "bkt/up", "bkt/pipe", "bkt/aside",
        "bkt/beside", "bkt/round", "bkt/inside", "linked", "out", "other/private", "secret"};
    char path[128];
    (void)state;
    end_core();
    for (unsigned i = 0; i < ARRAY_COUNT(paths); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, paths[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/bkt", root);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/other", root);
    rmdir(path);
    rmdir(root);
    return 0;
}

static void test_directory_get(void **state)
{
    (void)state;
    begin_directory();
    struct owner *o = get("a.json");
    assert_false(o->failed);
    assert_int_equal(o->status, 200);
    assert_string_equal(o->body, "{\"a\": 1}");
    assert_true(o->seen.has_length);
    assert_int_equal(o->seen.length, 8);
    assert_int_equal(strlen(o->etag), DIR_ETAG_BYTES);
    char etag[64];
    memcpy(etag, o->etag, sizeof(etag));
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.has_range = true;
    o->ask.from = 2;
    o->ask.to = 99;
    o->ask.if_match = span_of(etag);
    o->piece = 3;
    start(o);
    finish(o);
    assert_int_equal(o->status, 206);
    assert_string_equal(o->body, "a\": 1}");
    assert_int_equal(o->seen.range_from, 2);
    assert_int_equal(o->seen.range_to, 7);
    assert_int_equal(o->seen.range_size, 8);
    const struct http_field suffix[] = {{span_of("Range"), span_of("bytes=-3")}};
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.field = suffix;
    o->ask.field_count = 1;
    start(o);
    finish(o);
    assert_int_equal(o->status, 206);
    assert_string_equal(o->body, " 1}");
    o = prepare(0, HTTP_HEAD, "a.json");
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    assert_int_equal(o->seen.length, 8);
    assert_true(o->seen.at_end);
}

static void test_directory_refusals(void **state)
{
    static const struct {
        const char *key, *code;
        unsigned status;
    } table[] = {
        {"missing", "NoSuchKey", 404}, {"a.json/", "NoSuchKey", 404},
            {"../secret", "NoSuchKey", 404},
        {"./a.json", "NoSuchKey", 404}, {"x//a.json", "NoSuchKey", 404}, {"up", "NoSuchKey", 404},
        {"pipe", "NoSuchKey", 404}, {"a.json/b", "NoSuchKey", 404},
    };
    (void)state;
    begin_directory();
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        struct owner *o = get(table[i].key);
        assert_false(o->failed);
        assert_int_equal(o->status, table[i].status);
        assert_non_null(strstr(o->body, table[i].code));
    }
    struct owner *o = prepare(0, HTTP_GET, "k");
    o->ask.bucket = span_of("nobucket");
    start(o);
    finish(o);
    assert_int_equal(o->status, 404);
    assert_non_null(strstr(o->body, "NoSuchBucket"));
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.if_match = span_of("\"other\"");
    start(o);
    finish(o);
    assert_int_equal(o->status, 412);
    assert_int_equal(o->verdict, ERR_CHANGED);
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.has_range = true;
    o->ask.from = 8;
    o->ask.to = 9;
    start(o);
    finish(o);
    assert_int_equal(o->status, 416);
    o = prepare(0, HTTP_DELETE, "a.json");
    start(o);
    finish(o);
    assert_int_equal(o->status, 501);
}

static void ask_of(struct owner *o, const char *bucket)
{
    o->ask.bucket = span_of(bucket);
    start(o);
    finish(o);
    assert_false(o->failed);
}

/* A key with a scope of one bucket, and somebody who may write there and knows of another one. */
static void test_a_link_does_not_lead_into_another_bucket(void **state)
{
    static const char *const away[] = {"aside", "beside/private", "round"};
    (void)state;
    begin_directory();
    for (unsigned i = 0; i < ARRAY_COUNT(away); i++) {
        struct owner *o = get(away[i]);
        assert_int_equal(o->status, 404);
        assert_non_null(strstr(o->body, "NoSuchKey"));
        o = prepare(0, HTTP_HEAD, away[i]);
        start(o);
        finish(o);
        assert_int_equal(o->status, 404);
    }
    assert_string_equal(get("inside")->body, "{\"a\": 1}");
    struct owner *o = prepare(0, HTTP_GET, "a.json");
    ask_of(o, "linked");             /* the operator's own */
    assert_string_equal(o->body, "{\"a\": 1}");
    o = prepare(0, HTTP_GET, "secret");
    ask_of(o, "out");
    assert_int_equal(o->status, 404);
    assert_non_null(strstr(o->body, "NoSuchBucket"));
}

static void test_exchanges_leave_nothing_open(void **state)
{
    (void)state;
    begin_directory();
    int before = dup(0);
    close(before);
    for (unsigned i = 0; i < 200; i++) {
        struct owner *o = prepare(0, HTTP_GET, i % 2 ? "a.json" : "missing");
        o->lazy = true;
        start(o);
        finish(o);
    }
    int after = dup(0);
    close(after);
    assert_int_equal(after, before);
}

static void test_a_file_has_no_version_but_null(void **state)
{
    static const char *const other[] = {"versionId=7", "x-id=GetObject&versionId=nul",
        "%76ersionId=7", "versionId=nullnullnullnullnull", "versionId=%zz"};
    static const char *const own[] = {"", "versionId=null", "versionId=%6eull", "versionId="};
    (void)state;
    begin_directory();
    for (unsigned i = 0; i < 2 * ARRAY_COUNT(other); i++) {
        struct owner *o = prepare(0, i % 2 ? HTTP_HEAD : HTTP_GET, "a.json");
        o->ask.query = span_of(other[i / 2]);
        ask_of(o, "bkt");
        assert_int_equal(o->status, 404);
        assert_true(i % 2 || strstr(o->body, "<Code>NoSuchVersion</Code>"));
    }
    for (unsigned i = 0; i < ARRAY_COUNT(own); i++) {
        struct owner *o = prepare(0, HTTP_GET, "a.json");
        o->ask.query = span_of(own[i]);
        ask_of(o, "bkt");
        assert_int_equal(o->status, 200);
        assert_string_equal(o->body, "{\"a\": 1}");
    }
}

/* A relay brings the client's conditions as they came. */
static void test_conditions_that_a_relay_brings(void **state)
{
    char etag[64], bare[64];
    const struct {
        const char *name, *value;
        unsigned status;
    } table[] = {
        {"If-Match", etag, 200}, {"if-match", bare, 200}, {"If-Match", "*", 200},
        {"If-Match", "\"other\"", 412}, {"If-None-Match", etag, 304},
        {"If-None-Match", bare, 304}, {"If-None-Match", "*", 304},
        {"If-None-Match", "\"other\"", 200},
        {"If-Modified-Since", "Thu, 01 Jan 2015 00:00:00 GMT", 200},
        {"If-Modified-Since", "Fri, 02 Jan 2026 00:00:00 GMT", 304},
        {"If-Unmodified-Since", "Thu, 01 Jan 2015 00:00:00 GMT", 412},
        {"If-Unmodified-Since", "Fri, 02 Jan 2026 00:00:00 GMT", 200},
        {"If-Modified-Since", "yesterday", 200},
    };
    char path[128];
    const struct timespec times[2] = {{.tv_sec = 1600000000}, {.tv_sec = 1600000000}}; /* 2020 */
    (void)state;
    begin_directory();
    snprintf(path, sizeof(path), "%s/bkt/a.json", root);
    must(utimensat(AT_FDCWD, path, times, 0) == 0);
    struct owner *o = get("a.json");
    memcpy(etag, o->etag, sizeof(etag));
    snprintf(bare, sizeof(bare), "%.*s", DIR_ETAG_BYTES - 2, etag + 1);
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        const struct http_field field = {span_of(table[i].name), span_of(table[i].value)};
        o = prepare(0, HTTP_GET, "a.json");
        o->ask.field = &field;
        o->ask.field_count = 1;
        ask_of(o, "bkt");
        if (o->status != table[i].status)
            fail_msg("%s: %s: %u", table[i].name, table[i].value, o->status);
        assert_int_equal(strcmp(o->body, "{\"a\": 1}") == 0, o->status == 200);
        assert_true(o->status == 412 || strcmp(o->etag, etag) == 0);
        assert_true(o->status != 304 || o->len == 0);
    }
}

static void test_a_file_is_its_only_part(void **state)
{
    (void)state;
    begin_directory();
    struct owner *o = prepare(0, HTTP_GET, "a.json");
    o->ask.query = span_of("partNumber=1");
    ask_of(o, "bkt");
    assert_int_equal(o->status, 206);
    assert_string_equal(o->body, "{\"a\": 1}");
    assert_int_equal(o->seen.range_from, 0);
    assert_int_equal(o->seen.range_to, 7);
    assert_int_equal(o->seen.range_size, 8);
    put_file("bkt/a.json", "");
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.query = span_of("partNumber=1");
    ask_of(o, "bkt");
    assert_int_equal(o->status, 200);
    for (unsigned i = 0; i < 2; i++) {
        o = prepare(0, i ? HTTP_HEAD : HTTP_GET, "a.json");
        o->ask.query = span_of("partNumber=2");
        ask_of(o, "bkt");
        assert_int_equal(o->status, 416);
        assert_true(i || strstr(o->body, "InvalidPartNumber"));
    }
}

static void test_directory_lists(void **state)
{
    (void)state;
    begin_directory();
    struct owner *o = prepare(0, HTTP_GET, "");
    o->ask.query = span_of("list-type=2");
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    assert_non_null(strstr(o->body, "<Key>a.json</Key>"));
    assert_null(strstr(o->body, "pipe"));
    assert_null(strstr(o->body, "up</Key>"));
    assert_null(strstr(o->body, "aside"));
    assert_null(strstr(o->body, "beside"));
    o = prepare(0, HTTP_GET, "");
    o->ask.bucket = span_of("");
    start(o);
    finish(o);
    assert_non_null(strstr(o->body, "<Name>bkt</Name>"));
    assert_null(strstr(o->body, "secret"));
    o = prepare(0, HTTP_HEAD, "");
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
}

static void test_directory_file_changes_between_reads(void **state)
{
    (void)state;
    begin_directory();
    struct owner *o = prepare(0, HTTP_GET, "a.json");
    o->lazy = true;
    start(o);
    finish(o);
    char etag[64];
    memcpy(etag, o->etag, sizeof(etag));
    put_file("bkt/a.json", "{\"b\": 22}");
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.if_match = span_of(etag);
    start(o);
    finish(o);
    assert_int_equal(o->status, 412);
}

#define DIRECTORY(test) cmocka_unit_test_setup_teardown(test, clean_environment, clean_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIRECTORY(test_directory_get),
        DIRECTORY(test_directory_refusals),
        DIRECTORY(test_a_link_does_not_lead_into_another_bucket),
        DIRECTORY(test_exchanges_leave_nothing_open),
        DIRECTORY(test_a_file_has_no_version_but_null),
        DIRECTORY(test_conditions_that_a_relay_brings),
        DIRECTORY(test_a_file_is_its_only_part),
        DIRECTORY(test_directory_lists),
        DIRECTORY(test_directory_file_changes_between_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
