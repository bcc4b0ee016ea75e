/* Exchanges with a scripted server: what is sent, how answers are read, what is tried again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/exchange.c"

#include "tests/lib/scripted.h"

/* ---- what is sent ---- */

static void test_request_on_the_wire(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}};
    const struct http_field field[] = {{span_of("x-amz-request-payer"), span_of("requester")},
                                       {span_of("Connection"), span_of("close")}};
    BEGIN(lines, FAST);
    struct owner *o = prepare(0, HTTP_GET, "a//b/../c d+e\xc3\xa9");
    o->ask.has_range = true;
    o->ask.from = 5;
    o->ask.to = 9;
    o->ask.if_match = span_of("\"e1\"");
    o->ask.query = span_of("versionId=7");
    o->ask.field = field;
    o->ask.field_count = ARRAY_COUNT(field);
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    join_upstream();
    const char *r = up.request[0];
    assert_non_null(strstr(r, "GET /bkt/a//b/../c%20d%2Be%C3%A9?versionId=7 HTTP/1.1\r\n"));
    char host[64];
    snprintf(host, sizeof(host), "\r\nHost: 127.0.0.1:%d\r\n", up.port);
    assert_non_null(strstr(r, host));
    assert_non_null(strstr(r, "\r\nRange: bytes=5-9\r\n"));
    assert_non_null(strstr(r, "\r\nIf-Match: \"e1\"\r\n"));
    assert_non_null(strstr(r, "\r\nVia: 1.1 test-0badcafe\r\n"));
    assert_non_null(strstr(r, "\r\nUser-Agent: headpond/" HEADPOND_VERSION "\r\n"));
    assert_non_null(strstr(r, "\r\nAccept-Encoding: identity\r\n"));
    assert_non_null(strstr(r, "\r\nx-amz-content-sha256: e3b0c442"));
    assert_non_null(strstr(r, "\r\nx-amz-request-payer: requester\r\n"));
    assert_null(strstr(r, "Connection"));
    assert_non_null(strstr(r, "Credential=AKIDEXAMPLE/"));
    assert_non_null(strstr(r, "/eu-test-1/s3/aws4_request"));
    assert_non_null(strstr(r, "SignedHeaders=host;if-match;range;x-amz-content-sha256;x-amz-date;"
                              "x-amz-request-payer,"));
}

static void test_control_bytes_never_reach_the_wire(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}};
    const struct http_field field[] = {{span_of("x-evil"), span_of("a\r\nHost: b")}};
    BEGIN(lines, FAST);
    struct owner *o = prepare(0, HTTP_GET, "k");
    o->ask.field = field;
    o->ask.field_count = 1;
    start(o);
    finish(o);
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_SYNTAX);
    o = prepare(0, HTTP_GET, "k");
    o->ask.query = span_of("a b");
    start(o);
    finish(o);
    assert_int_equal(o->why, ERR_SYNTAX);
    assert_int_equal(get("k")->status, 200);
}

/* ---- answers and bodies ---- */

static void test_answer_is_taken_apart(void **state)
{
    (void)state;
    const struct line lines[] = {
        {"HTTP/1.1 206 Partial\r\nDate: Mon, 02 Jan 2023 03:04:05 GMT\r\n"
         "Content-Range: bytes 5-9/100\r\nContent-Length: 5\r\n"
         "ETag: \"e2\"\r\nLast-Modified: Mon, 02 Jan 2023 03:04:05 GMT\r\n\r\nworld", KEEP, false}};
    BEGIN(lines, FAST);
    struct owner *o = get("k");
    assert_false(o->failed);
    assert_int_equal(o->status, 206);
    assert_string_equal(o->body, "world");
    assert_true(o->seen.has_range && o->seen.has_length);
    assert_int_equal(o->seen.range_from, 5);
    assert_int_equal(o->seen.range_to, 9);
    assert_int_equal(o->seen.range_size, 100);
    assert_int_equal(o->seen.length, 5);
    assert_int_equal(o->seen.last_modified_s, 1672628645);
    assert_int_equal(o->seen.date_s, 1672628645);
    assert_string_equal(o->etag, "\"e2\"");
    assert_true(o->seen.sent_wall_ms > 1600000000000);
}

static void test_status_tells_clock_and_credentials_but_no_secret(void **state)
{
    (void)state;
    const struct line lines[] = {
        {"HTTP/1.1 200 OK\r\nDate: Mon, 02 Jan 2023 03:04:05 GMT\r\nContent-Length: 0\r\n\r\n",
         KEEP, false}};
    struct origin_status seen;
    BEGIN(lines, FAST);
    origin_status(server.origin[0], &seen);
    assert_false(seen.clock_known || seen.directory || seen.temporary);
    assert_string_equal(seen.credentials, "environment");
    int64_t before = 1672628645 - (int64_t)clock_wall_s();
    get("k");
    int64_t after = 1672628645 - (int64_t)clock_wall_s();
    origin_status(server.origin[0], &seen);
    assert_true(seen.clock_known);
    assert_true(seen.clock_offset_s <= before && seen.clock_offset_s >= after);
}

static void test_206_without_content_range(void **state)
{
    (void)state;
    const struct line lines[] =
        {{"HTTP/1.1 206 Partial\r\nContent-Length: 2\r\nContent-Range: bytes 9-5/3\r\n\r\nxx", KEEP,
            false}};
    BEGIN(lines, FAST);
    struct owner *o = get("k");
    assert_int_equal(o->status, 206);
    assert_false(o->seen.has_range);
}

static void test_kept_connection_is_used_again(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false},
        {"HTTP/1.1 100 Continue\r\n\r\n" OK_ANSWER, KEEP, false},
                                 {"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno!", KEEP,
                                     false},
                                 {"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", KEEP, false},
                                 {"HTTP/1.1 304 Not Modified\r\n\r\n", KEEP, false},
                                     {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    struct owner *o = get("c");
    assert_int_equal(o->status, 404);
    assert_int_equal(o->verdict, ERR_NOT_FOUND);
    assert_string_equal(o->body, "no!");
    o = prepare(0, HTTP_HEAD, "d");
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    assert_true(o->seen.has_length && o->seen.at_end);
    assert_int_equal(o->seen.length, 77);
    o = get("e");
    assert_int_equal(o->status, 304);
    assert_true(o->seen.at_end);
    o = prepare(0, HTTP_GET, "f");
    o->piece = 2;
    start(o);
    finish(o);
    assert_string_equal(o->body, "hello");
    assert_int_equal(retries(), 0);
    join_upstream();
    assert_int_equal(up.connections, 1);
}

static void test_chunked_and_close_delimited(void **state)
{
    (void)state;
    const struct line lines[] = {
        {CHUNKED_ANSWER "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX: y\r\n\r\n", KEEP, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", KEEP,
            false},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", CLOSE, false},
        {OK_ANSWER, KEEP, false},
    };
    BEGIN(lines, FAST);
    struct owner *o = get("a");
    assert_string_equal(o->body, "hello world");
    assert_false(o->seen.has_length);
    o = prepare(0, HTTP_GET, "b");
    o->piece = 1;
    start(o);
    finish(o);
    assert_string_equal(o->body, "hello");
    assert_string_equal(get("c")->body, "until the end");
    assert_string_equal(get("d")->body, "hello");
    join_upstream();
    assert_int_equal(up.connections, 2);
}

static void test_body_larger_than_buffers(void **state)
{
    (void)state;
    enum { BIG = 100 * 1000 };
    static char answer[BIG + 128];
    int head = snprintf(answer, 128, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BIG);
    for (int i = 0; i < BIG; i++)
        answer[head + i] = (char)('a' + i % 23);
    const struct line lines[] = {{answer, KEEP, false}, {answer, KEEP, false}};
    BEGIN(lines, FAST);
    struct owner *o = get("a");
    assert_int_equal(o->len, BIG);
    assert_memory_equal(o->body, answer + head, BIG);
    o = prepare(0, HTTP_GET, "b");
    o->piece = 777;
    start(o);
    finish(o);
    assert_int_equal(o->len, BIG);
    assert_memory_equal(o->body, answer + head, BIG);
}

static void test_short_body_is_a_failure(void **state)
{
    (void)state;
    const struct line lines[] =
        {{"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", CLOSE, false},
                                 {CHUNKED_ANSWER "5\r\nhello\r\n", CLOSE, false},
                                 {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_SHORT);
    assert_string_equal(o->body, "hello");
    o = get("b");
    assert_int_equal(o->why, ERR_UPSTREAM_SHORT);
    assert_string_equal(o->body, "hello");
    assert_string_equal(get("c")->body, "hello");
}

static void test_longer_body_ends_the_connection(void **state)
{
    (void)state;
    const struct line lines[] =
        {{OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", STALL, false},
                                 {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    join_upstream();
    assert_int_equal(up.connections, 2);
}

static void test_malformed_heads(void **state)
{
    (void)state;
    static char big[20 * KIB];
    memset(big, 'x', sizeof(big) - 1);
    memcpy(big, "HTTP/1.1 200 OK\r\nX: ", 20);
    const struct line lines[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", STALL, false},
        {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", STALL, false},
        {"HTTP/1.1 101 Switching\r\n\r\n", STALL, false},
        {big, STALL, false},
        {OK_ANSWER, KEEP, false},
    };
    BEGIN(lines, FAST);
    for (unsigned i = 0; i < 4; i++) {
        struct owner *o = get("a");
        assert_true(o->failed);
        assert_int_equal(o->why, ERR_UPSTREAM_PROTOCOL);
    }
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
}

/* ---- trying again ---- */

static void test_reset_before_the_head_is_tried_again(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, RESET, false}, {"HTTP/1.1 20", RESET, false},
        {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_int_equal(retries(), 2);
}

static void test_retries_end(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, RESET, false}, {NULL, RESET, false}, {NULL, CLOSE, false}};
    BEGIN(lines, "connect_timeout = \"2s\"\nread_timeout = \"10s\"\nretries = 2\n");
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_RESET);
    assert_int_equal(retries(), 2);
}

static void test_post_is_not_repeated(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, RESET, false}};
    BEGIN(lines, FAST);
    struct owner *o = prepare(0, HTTP_POST, "a");
    start(o);
    finish(o);
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_RESET);
    assert_int_equal(retries(), 0);
}

static void test_stale_kept_connection_costs_no_retry(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {NULL, CLOSE, false},
        {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
    join_upstream();
    assert_int_equal(up.connections, 2);
    assert_int_equal(up.requests, 3);
}

static void test_503_then_200(void **state)
{
    (void)state;
    const struct line lines[] =
        {{"HTTP/1.1 503 Slow Down\r\nContent-Length: 8\r\n\r\nslowdown", KEEP, false},
                                 {"HTTP/1.1 500 Internal\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "1\r\nx\r\n0\r\n\r\n", KEEP, false},
                                 {OK_ANSWER, KEEP, false}};
    struct origin_status status;
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_int_equal(retries(), 2);
    origin_status(server.origin[0], &status);
    assert_true(status.up && status.throttled);
    assert_true(status.rtt_ms > 0);
    join_upstream();
    assert_int_equal(up.connections, 1); /* the unwanted bodies were read away */
}

static void test_last_503_is_the_answer(void **state)
{
    (void)state;
    const struct line lines[] =
        {{"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n", KEEP, false},
                                 {"HTTP/1.1 503 Slow Down\r\nContent-Length: 3\r\n\r\n2nd", KEEP,
                                     false}};
    BEGIN(lines, "retries = 1\n");
    struct owner *o = get("a");
    assert_false(o->failed);
    assert_int_equal(o->status, 503);
    assert_int_equal(o->verdict, ERR_UPSTREAM_STATUS);
    assert_string_equal(o->body, "2nd");
}

static void test_first_byte_timeout(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, "read_timeout = \"150ms\"\nretries = 1\n");
    assert_string_equal(get("a")->body, "hello");
    assert_int_equal(retries(), 1);
}

static void test_stall_in_the_body(void **state)
{
    (void)state;
    const struct line lines[] =
        {{"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", STALL, false}};
    BEGIN(lines, "read_timeout = \"150ms\"\nretries = 1\n");
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_TIMEOUT);
    assert_string_equal(o->body, "hello");
}

static void test_408_on_a_kept_connection(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false},
        {"HTTP/1.1 408 Timeout\r\nConnection: close\r\n\r\n", CLOSE, false},
                                 {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    get("a");
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
}

/* ---- regions, clocks ---- */

static void test_region_is_learnt_from_the_field(void **state)
{
    (void)state;
    const struct line lines[] = {
        {"HTTP/1.1 301 Moved\r\nx-amz-bucket-region: ap-south-2\r\n"
         "Location: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
         KEEP, false},
        {OK_ANSWER, KEEP, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    join_upstream();
    assert_non_null(strstr(up.request[0], "/eu-test-1/s3/"));
    assert_non_null(strstr(up.request[1], "/ap-south-2/s3/"));
    assert_non_null(strstr(up.request[2], "/ap-south-2/s3/"));
}

#define WRONG_REGION "<Error><Code>AuthorizationHeaderMalformed</Code>" \
                     "<Region>sa-east-1</Region></Error>"
#define WRONG_OTHER "<Error><Code>InvalidArgument</Code><Message>no</Message></Error>"

static void test_region_is_learnt_from_the_document(void **state)
{
    (void)state;
    char first[512], other[512];
    snprintf(first, sizeof(first), "HTTP/1.1 400 Bad\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(WRONG_REGION), WRONG_REGION);
    snprintf(other, sizeof(other), "HTTP/1.1 400 Bad\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(WRONG_OTHER), WRONG_OTHER);
    const struct line lines[] = {{first, KEEP, false}, {OK_ANSWER, KEEP, false},
        {other, KEEP, false}, {first, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    struct owner *o = get("b");      /* looked at, and still the owner's */
    assert_int_equal(o->status, 400);
    assert_string_equal(o->body, WRONG_OTHER);
    o = get("c");                    /* names the region that was used: final */
    assert_int_equal(o->status, 400);
    assert_string_equal(o->body, WRONG_REGION);
}

static void test_clock_is_learnt_from_a_403(void **state)
{
    (void)state;
#define LATER_403 \
    "HTTP/1.1 403 Forbidden\r\nDate: Fri, 01 Jan 2100 00:00:00 GMT\r\nContent-Length: "
    const struct line lines[] = {
        {LATER_403 "0\r\n\r\n", KEEP, false},
        {OK_ANSWER, KEEP, false},
        {LATER_403 "2\r\n\r\nno", KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    struct owner *o = get("b");
    assert_int_equal(o->status, 403);
    assert_int_equal(o->verdict, ERR_DENIED);
    join_upstream();
    assert_non_null(strstr(up.request[1], "x-amz-date: 21000101T0000"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOINED(test_request_on_the_wire),
        PLAIN(test_control_bytes_never_reach_the_wire),
        PLAIN(test_answer_is_taken_apart),
        PLAIN(test_status_tells_clock_and_credentials_but_no_secret),
        PLAIN(test_206_without_content_range),
        JOINED(test_kept_connection_is_used_again),
        JOINED(test_chunked_and_close_delimited),
        PLAIN(test_body_larger_than_buffers),
        PLAIN(test_short_body_is_a_failure),
        JOINED(test_longer_body_ends_the_connection),
        PLAIN(test_malformed_heads),
        PLAIN(test_reset_before_the_head_is_tried_again),
        PLAIN(test_retries_end),
        PLAIN(test_post_is_not_repeated),
        JOINED(test_stale_kept_connection_costs_no_retry),
        JOINED(test_503_then_200),
        PLAIN(test_last_503_is_the_answer),
        PLAIN(test_first_byte_timeout),
        PLAIN(test_stall_in_the_body),
        PLAIN(test_408_on_a_kept_connection),
        JOINED(test_region_is_learnt_from_the_field),
        PLAIN(test_region_is_learnt_from_the_document),
        JOINED(test_clock_is_learnt_from_a_403),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
