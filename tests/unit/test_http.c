/* HTTP heads and chunked bodies: what is refused, what real clients and servers send, any cut. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http.c"
#include "tests/lib/bad_heads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct http_head head;

/* A copy that ends where a heap block ends, so that AddressSanitizer sees a read past the end. */
static char *exact(const char *bytes, size_t len)
{
    enum { ROOM = 200 * KIB };
    static char *room;
    if (!room)
        room = malloc(ROOM);
    assert_true(room && len <= ROOM);
    return memcpy(room + ROOM - len, bytes, len);
}

static enum http_verdict request(const char *bytes, size_t len, size_t *used)
{
    return http_parse_request(exact(bytes, len), len, &head, used);
}

static enum http_verdict response(const char *bytes, size_t len, size_t *used)
{
    return http_parse_response(exact(bytes, len), len, false, &head, used);
}

typedef enum http_verdict parse(const char *bytes, size_t len, size_t *used);

static void refused_at_any_cut(const struct bad_head *b, parse *read)
{
    size_t used = 12345;
    bool refused = false;
    enum http_verdict whole = read(b->bytes, b->len, &used);
    if (whole != b->verdict)
        fail_msg("%s: verdict %d, not %d", b->name, whole, b->verdict);
    size_t step = b->len > 2000 ? 61 : 1; /* the long ones would take seconds */
    for (size_t len = 0; len <= b->len; len += step) {
        enum http_verdict v = read(b->bytes, len, &used);
        if (refused ? v != b->verdict : v != b->verdict && v != HTTP_MORE)
            fail_msg("%s: verdict %d after %zu bytes", b->name, v, len);
        refused = v != HTTP_MORE;
    }
    assert_int_equal(used, 12345);
}

static void accepted_at_no_earlier_cut(const char *bytes, size_t len, parse *read)
{
    size_t used = 12345;
    for (size_t cut = 0; cut < len; cut++) {
        if (read(bytes, cut, &used) != HTTP_MORE)
            fail_msg("not HTTP_MORE after %zu bytes of %s", cut, bytes);
    }
    assert_int_equal(used, 12345);
    if (read(bytes, len, &used) != HTTP_OK)
        fail_msg("refused: %s", bytes);
    assert_int_equal(used, len);
}

/* ---- requests ---- */
static void malformed_requests_are_refused_at_any_cut(unused_ok void **state)
{
    assert_true(ARRAY_COUNT(bad_heads) >= 60);
    for (size_t i = 0; i < ARRAY_COUNT(bad_heads); i++)
        refused_at_any_cut(&bad_heads[i], request);
}

/* Every byte at every kind of place: the class table against a second writing of RFC 9110. */
static bool token_byte(unsigned c)
{
    return c && (strchr("!#$%&'*+-.^_`|~", (int)c) || (c >= '0' && c <= '9') ||
                 (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
}

static void each_byte_is_judged_by_its_place(unused_ok void **state)
{
    size_t used = 0;
    for (unsigned c = 0; c < 256; c++) {
        char name[] = "GET / HTTP/1.1\r\nHost: a\r\nX_Y: b\r\n\r\n";
        char value[] = "GET / HTTP/1.1\r\nHost: a\r\nX: 0123456_89abcdef0123456789abcdef\r\n\r\n";
        char target[] = "GET /a_b HTTP/1.1\r\nHost: a\r\n\r\n";
        bool visible = c > ' ' && c < 0x7f;
        *strchr(name, '_') = (char)c;
        *strchr(value, '_') = (char)c;
        *strchr(target, '_') = (char)c;
        bool name_ok = token_byte(c) || c == ':';
        bool value_ok = visible || c == ' ' || c == '\t' || c >= 0x80;
        bool target_ok = visible && c != '#';
        assert_int_equal(request(name, sizeof(name) - 1, &used) == HTTP_OK, name_ok);
        assert_int_equal(request(value, sizeof(value) - 1, &used) == HTTP_OK, value_ok);
        assert_int_equal(request(target, sizeof(target) - 1, &used) == HTTP_OK, target_ok);
    }
}

static const char boto3_get[] =
    "GET /b/big HTTP/1.1\r\n"
    "Host: 127.0.0.1:5200\r\n"
    "Accept-Encoding: identity\r\n"
    "Range: bytes=8388608-16777215\r\n"
    "If-Match: \"9a642dae7ae0c32e560fb502491ae3ff\"\r\n"
    "x-amz-checksum-mode: ENABLED\r\n"
    "X-Amz-Date: 20261120T081607Z\r\n"
    "X-Amz-Content-SHA256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n"
    "Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261120/us-east-1/s3/aws4_request, "
    "SignedHeaders=host;if-match;range;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date, "
    "Signature=6f3a3f7b3c0f0a3c7bb1ce39e2a36ec0f0bdde4b9d3fc5c0a4dcf04bc8eb0b11\r\n"
    "amz-sdk-invocation-id: 4e0f2f5c-3a5c-4a2a-9d7a-3f6a1f5b0c11\r\n"
    "amz-sdk-request: attempt=1\r\n"
    "\r\n";

static void boto3_ranged_get(unused_ok void **state)
{
    size_t used, len = sizeof(boto3_get) - 1;
    assert_int_equal(http_parse_request(boto3_get, len, &head, &used), HTTP_OK);
    assert_int_equal(used, len);
    assert_int_equal(head.method, HTTP_GET);
    assert_true(span_is(head.target, "/b/big"));
    assert_true(span_is(head.host, "127.0.0.1:5200"));
    assert_int_equal(head.minor, 1);
    assert_true(head.keep_alive);
    assert_false(head.expect_continue);
    assert_int_equal(head.framing, HTTP_BODY_NONE);
    assert_int_equal(head.count, 10);
    assert_true(span_is(http_find(&head, "RANGE"), "bytes=8388608-16777215"));
    assert_true(span_is(http_find(&head, "amz-sdk-request"), "attempt=1"));
    assert_true(span_is(head.field[5].name, "X-Amz-Date"));
    assert_null(http_find(&head, "content-length").at);
    accepted_at_no_earlier_cut(boto3_get, len, request);
}

static void boto3_chunked_put_over_https(unused_ok void **state)
{
    static const char bytes[] =
        "PUT /b/p1 HTTP/1.1\r\nHost: s3.local\r\nExpect: 100-continue\r\n"
        "Transfer-Encoding: chunked\r\nContent-Encoding: aws-chunked\r\n"
        "X-Amz-Trailer: x-amz-checksum-crc32\r\nX-Amz-Decoded-Content-Length: 5\r\n"
        "x-amz-sdk-checksum-algorithm: CRC32\r\n"
        "X-Amz-Content-SHA256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=A/20261120/us-east-1/s3/aws4_request, "
        "SignedHeaders=content-encoding;host;x-amz-date, Signature=00\r\n\r\n";
    size_t used = 0;
    assert_int_equal(http_parse_request(bytes, sizeof(bytes) - 1, &head, &used), HTTP_OK);
    assert_int_equal(head.method, HTTP_PUT);
    assert_int_equal(head.framing, HTTP_BODY_CHUNKED);
    assert_true(head.expect_continue);
    accepted_at_no_earlier_cut(bytes, sizeof(bytes) - 1, request);
}

static void javascript_v3_get(unused_ok void **state)
{
    static const char bytes[] =
        "GET /bkt/dir/a%20b%2Bc?x-id=GetObject HTTP/1.1\r\nrange: bytes=1-2\r\n"
        "x-amz-checksum-mode: ENABLED\r\nx-amz-user-agent: aws-sdk-js/3.1\r\n"
        "host: 127.0.0.1:5200\r\nauthorization: AWS4-HMAC-SHA256 Credential=A/20261120/r/s3/"
        "aws4_request, SignedHeaders=amz-sdk-invocation-id;host;range, Signature=00\r\n"
        "Connection: keep-alive\r\n\r\n";
    size_t used = 0;
    assert_int_equal(http_parse_request(bytes, sizeof(bytes) - 1, &head, &used), HTTP_OK);
    assert_true(span_is(head.target, "/bkt/dir/a%20b%2Bc?x-id=GetObject"));
    assert_true(span_is(head.host, "127.0.0.1:5200"));
    assert_true(head.keep_alive);
    accepted_at_no_earlier_cut(bytes, sizeof(bytes) - 1, request);
}

/* s3cmd writes Authorization without blanks and a Content-Length of 0 into a GET. */
static void s3cmd_get_with_length_zero(unused_ok void **state)
{
    static const char bytes[] =
        "GET /bkt/small HTTP/1.1\r\nHost: 127.0.0.1:5200\r\nAccept-Encoding: identity\r\n"
        "content-length: 0\r\nx-amz-date: 20261120T081607Z\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=A/20261120/US/s3/aws4_request,SignedHeaders="
        "host;x-amz-content-sha256;x-amz-date,Signature=00\r\n\r\n";
    size_t used = 0;
    assert_int_equal(http_parse_request(bytes, sizeof(bytes) - 1, &head, &used), HTTP_OK);
    assert_int_equal(head.framing, HTTP_BODY_LENGTH);
    assert_int_equal(head.length, 0);
    accepted_at_no_earlier_cut(bytes, sizeof(bytes) - 1, request);
}

static void s5cmd_then_awscrt_pipelined(unused_ok void **state)
{
    static const char s5cmd[] = "GET /bkt/small HTTP/1.1\r\nHost: a\r\nRange: bytes=0-52428799\r\n"
                                "X-Amz-Content-Sha256: e3b0c4\r\n\r\n";
    static const char both[] = "GET /bkt/small HTTP/1.1\r\nHost: a\r\nRange: bytes=0-52428799\r\n"
                               "X-Amz-Content-Sha256: e3b0c4\r\n\r\n"
                               "GET /bkt/small HTTP/1.1\r\nRange: bytes=0-8388607\r\nHost: b\r\n"
                               "x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n\r\n";
    size_t first = 0, second = 0;
    assert_int_equal(http_parse_request(both, sizeof(both) - 1, &head, &first), HTTP_OK);
    assert_int_equal(first, sizeof(s5cmd) - 1);
    assert_true(span_is(head.host, "a"));
    assert_int_equal(http_parse_request(both + first, sizeof(both) - 1 - first, &head, &second),
                     HTTP_OK);
    assert_int_equal(first + second, sizeof(both) - 1);
    assert_true(span_is(head.host, "b"));
    assert_true(span_is(http_find(&head, "range"), "bytes=0-8388607"));
}

struct fate {
    const char *line, *fields;
    bool keep_alive, expect;
};

static void fate_of_the_connection(unused_ok void **state)
{
    static const struct fate fates[] = {
        {"GET / HTTP/1.1", "", true, false},
        {"GET / HTTP/1.1", "Connection: close\r\n", false, false},
        {"GET / HTTP/1.1", "connection: CLOSE\r\n", false, false},
        {"GET / HTTP/1.1", "Connection: keep-alive, close\r\n", false, false},
        {"GET / HTTP/1.1", "Connection: close\r\nConnection: keep-alive\r\n", false, false},
        {"GET / HTTP/1.1", "Connection: te ,\tclose \r\n", false, false},
        {"GET / HTTP/1.1", "Connection: closed\r\n", true, false},
        {"GET / HTTP/1.1", "Connection:\r\n", true, false},
        {"GET / HTTP/1.0", "", false, false},
        {"GET / HTTP/1.0", "Connection: Keep-Alive\r\n", true, false},
        {"GET / HTTP/1.0", "Connection: keep-alive, close\r\n", false, false},
        {"PUT / HTTP/1.1", "Expect: 100-Continue\r\nConnection: close\r\n", false, true},
        {"PUT / HTTP/1.1", "Expect:100-continue\r\n", true, true},
        {"PUT / HTTP/1.1", "Expect: nonsense\r\n", true, false},
        {"PUT / HTTP/1.0", "Expect: 100-continue\r\n", false, false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(fates); i++) {
        const struct fate *f = &fates[i];
        char bytes[200];
        size_t used;
        int n = snprintf(bytes, sizeof(bytes), "%s\r\nHost: a\r\n%s\r\n", f->line, f->fields);
        assert_int_equal(http_parse_request(bytes, (size_t)n, &head, &used), HTTP_OK);
        assert_int_equal(head.keep_alive, f->keep_alive);
        assert_int_equal(head.expect_continue, f->expect);
    }
}

#define NINE "a:\r\n" "b:\r\n" "c:\r\n" "d:\r\n" "e:\r\n" "f:\r\n" "g:\r\n" "h:\r\n" "i:\r\n"
static void what_is_unusual_and_valid(unused_ok void **state)
{
    static const struct bad_head good[] = {
        {"1.0 without Host", HEAD("GET / HTTP/1.0\r\n\r\n"), HTTP_OK},
        {"asterisk", LINE("OPTIONS * HTTP/1.1"), HTTP_OK},
        {"key with a leading slash", TARGET_OF("/bkt//lead"), HTTP_OK},
        {"dot segments", TARGET_OF("/b/a/../../c/./d"), HTTP_OK},
        {"what curl leaves bare", TARGET_OF("/b/{a}|[b]^`\"<>\\"), HTTP_OK},
        {"URL in a query", TARGET_OF("/b?x=http://a?b"), HTTP_OK},
        {"empty value", FIELDS("X:\r\n"), HTTP_OK},
        {"blank value", FIELDS("X: \t \r\n"), HTTP_OK},
        {"UTF-8 in a value", FIELDS("x-amz-meta-n: caf\xc3\xa9\r\n"), HTTP_OK},
        {"repeated other fields", FIELDS("x-a: 1\r\nx-a: 1\r\n"), HTTP_OK},
        {"length with leading zeros", UPLOAD("Content-Length: 0005\r\n"), HTTP_OK},
        {"largest length", UPLOAD("Content-Length: 9223372036854775807\r\n"), HTTP_OK},
        {"encoding in capitals", UPLOAD("TRANSFER-ENCODING:Chunked\r\n"), HTTP_OK},
        {"names that only resemble", UPLOAD("Content-Lengthy: x\r\nHosts: b\r\nXost: c\r\n"),
         HTTP_OK},
        {"IPv6 Host", HOST_OF("[fe80::1%25eth0]:9000"), HTTP_OK},
        {"Host of a container", HOST_OF("s3_cache-1.local."), HTTP_OK},
        {"Host with an empty port", HOST_OF("a:"), HTTP_OK},
        {"target of 8192 bytes", TARGET_OF("/" X1000("12345678") X100("1") X10("123456789") "1"),
         HTTP_OK},
        {"100 fields", FIELDS(X10(NINE) NINE), HTTP_OK},
    };
    for (size_t i = 0; i < ARRAY_COUNT(good); i++)
        accepted_at_no_earlier_cut(good[i].bytes, good[i].len, request);
}

/* A head whose empty line ends exactly at a size. */
static char *head_of(size_t size)
{
    static const char begin[] = "GET / HTTP/1.1\r\nHost: a\r\nX: ", end[] = "\r\n\r\n";
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, 'x', size);
    memcpy(bytes, begin, sizeof(begin) - 1);
    memcpy(bytes + size - (sizeof(end) - 1), end, sizeof(end) - 1);
    return bytes;
}

static void limit_of_a_request_head_is_exact(unused_ok void **state)
{
    size_t used = 0;
    char *fits = head_of(HTTP_HEAD_BYTES_MAX), *over = head_of(HTTP_HEAD_BYTES_MAX + 1);
    assert_int_equal(request(fits, HTTP_HEAD_BYTES_MAX, &used), HTTP_OK);
    assert_int_equal(used, HTTP_HEAD_BYTES_MAX);
    assert_int_equal(request(fits, HTTP_HEAD_BYTES_MAX - 1, &used), HTTP_MORE);
    assert_int_equal(request(over, HTTP_HEAD_BYTES_MAX - 1, &used), HTTP_MORE);
    assert_int_equal(request(over, HTTP_HEAD_BYTES_MAX, &used), HTTP_TOO_LARGE);
    assert_int_equal(request(over, HTTP_HEAD_BYTES_MAX + 1, &used), HTTP_TOO_LARGE);
    free(fits);
    free(over);
}

static void looking_up_fields(unused_ok void **state)
{
    static const char bytes[] = "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\nX-Ab: 3\r\n"
                                "x-A:\r\n\r\n";
    static const char *const values[] = {"1", "2", ""};
    size_t used = 0;
    unsigned at = 0, n = 0;
    struct span value;
    assert_int_equal(http_parse_request(bytes, sizeof(bytes) - 1, &head, &used), HTTP_OK);
    while (http_next(&head, "X-a", &at, &value)) {
        assert_true(n < 3);
        assert_true(span_is(value, values[n++]));
    }
    assert_int_equal(n, 3);
    assert_int_equal(at, head.count);
    assert_false(http_next(&head, "X-a", &at, &value));
    assert_true(span_is(http_find(&head, "x-AB"), "3"));
    assert_null(http_find(&head, "x-").at);
    assert_null(http_find(&head, "").at);
}

static void names_of_methods(unused_ok void **state)
{
    for (unsigned m = 0; m < HTTP_METHOD_COUNT; m++) {
        char bytes[64];
        size_t used;
        const char *name = http_method_text((enum http_method)m);
        int n = snprintf(bytes, sizeof(bytes), "%s / HTTP/1.0\r\n\r\n", name);
        assert_int_equal(http_parse_request(bytes, (size_t)n, &head, &used), HTTP_OK);
        assert_int_equal(head.method, m);
        assert_true(span_is(head.method_text, name));
    }
}

/* ---- responses ---- */
#define RESPONSE(fields_) HEAD("HTTP/1.1 200 OK\r\n" fields_ "\r\n")
static const struct bad_head bad_responses[] = {
    {"33 options of Connection", HEAD("HTTP/1.1 200 OK\r\nConnection: " X10("a, ") X10("b,,")
                                      ",,a\r\nContent-Length: 0\r\n\r\n"), HTTP_BAD},
    {"bare LF", HEAD("HTTP/1.1 200 OK\nContent-Length: 5\n\n"), HTTP_BAD},
    {"bare LF ends a field", RESPONSE("Content-Length: 5\nX: y\r\n"), HTTP_BAD},
    {"bare CR in a value", RESPONSE("X: a\rb\r\n"), HTTP_BAD},
    {"bare CR in the reason", HEAD("HTTP/1.1 200 O\rK\r\n\r\n"), HTTP_BAD},
    {"NUL in the reason", HEAD("HTTP/1.1 200 O\0K\r\n\r\n"), HTTP_BAD},
    {"NUL in a value", RESPONSE("X: \0\r\n"), HTTP_BAD},
    {"empty line before", HEAD("\r\nHTTP/1.1 200 OK\r\n\r\n"), HTTP_BAD},
    {"obs-fold", RESPONSE("X: a\r\n b\r\n"), HTTP_BAD},
    {"blank before the colon", RESPONSE("X : a\r\n"), HTTP_BAD},
    {"no colon", RESPONSE("X\r\n"), HTTP_BAD},
    {"empty name", RESPONSE(": x\r\n"), HTTP_BAD},
    {"another protocol", HEAD("ICY 200 OK\r\n\r\n"), HTTP_BAD},
    {"lower-case protocol", HEAD("http/1.1 200 OK\r\n\r\n"), HTTP_BAD},
    {"HTTP/2.0", HEAD("HTTP/2.0 200 OK\r\n\r\n"), HTTP_NO_VERSION},
    {"HTTP/1.2", HEAD("HTTP/1.2 200 OK\r\n\r\n"), HTTP_NO_VERSION},
    {"two blanks before the status", HEAD("HTTP/1.1  200 OK\r\n\r\n"), HTTP_BAD},
    {"tab before the status", HEAD("HTTP/1.1\t200 OK\r\n\r\n"), HTTP_BAD},
    {"no status", HEAD("HTTP/1.1\r\n\r\n"), HTTP_BAD},
    {"status of two digits", HEAD("HTTP/1.1 20 OK\r\n\r\n"), HTTP_BAD},
    {"status of four digits", HEAD("HTTP/1.1 2000 OK\r\n\r\n"), HTTP_BAD},
    {"status 099", HEAD("HTTP/1.1 099 OK\r\n\r\n"), HTTP_BAD},
    {"status 600", HEAD("HTTP/1.1 600 OK\r\n\r\n"), HTTP_BAD},
    {"status 2x0", HEAD("HTTP/1.1 2x0 OK\r\n\r\n"), HTTP_BAD},
    {"status +20", HEAD("HTTP/1.1 +20 OK\r\n\r\n"), HTTP_BAD},
    {"tab behind the status", HEAD("HTTP/1.1 200\tOK\r\n\r\n"), HTTP_BAD},
    {"switching protocols", HEAD("HTTP/1.1 101 S\r\nUpgrade: h2c\r\n\r\n"), HTTP_BAD},
    {"length and encoding", RESPONSE("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
     HTTP_BAD},
    {"two lengths", RESPONSE("Content-Length: 5\r\nContent-Length: 5\r\n"), HTTP_BAD},
    {"length 5, 5", RESPONSE("Content-Length: 5, 5\r\n"), HTTP_BAD},
    {"length 2^64", RESPONSE("Content-Length: 18446744073709551616\r\n"), HTTP_BAD},
    {"negative length", RESPONSE("Content-Length: -5\r\n"), HTTP_BAD},
    {"encoding gzip", RESPONSE("Transfer-Encoding: gzip\r\n"), HTTP_BAD},
    {"encoding gzip, chunked", RESPONSE("Transfer-Encoding: gzip, chunked\r\n"), HTTP_BAD},
    {"two encodings", RESPONSE("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
     HTTP_BAD},
    {"encoding in 1.0", HEAD("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), HTTP_BAD},
    {"body behind 204", HEAD("HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n"), HTTP_BAD},
    {"chunked body behind 204", HEAD("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n"),
     HTTP_BAD},
    {"body behind 100", HEAD("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n"), HTTP_BAD},
    {"101 fields", RESPONSE(X100("a: b\r\n") "a: b\r\n"), HTTP_TOO_LARGE},
    {"head over 64 KiB", RESPONSE(X10(X10("A: " X100("12345678") "\r\n"))), HTTP_TOO_LARGE},
    {"reason over 64 KiB", HEAD("HTTP/1.1 200 " X1000(X10("1234567")) "\r\n\r\n"), HTTP_TOO_LARGE},
};

static void malformed_responses_are_refused_at_any_cut(unused_ok void **state)
{
    size_t n = ARRAY_COUNT(bad_responses), used;
    for (size_t i = 0; i + 2 < n; i++)
        refused_at_any_cut(&bad_responses[i], response);
    /* 80 KiB of fields in 100 lines end above the limit, whichever is met first. */
    assert_int_equal(response(bad_responses[n - 2].bytes, bad_responses[n - 2].len, &used),
                     HTTP_TOO_LARGE);
    refused_at_any_cut(&bad_responses[n - 1], response);
}

struct answer {
    const char *bytes;
    bool head_request;
    unsigned status;
    enum http_framing framing;
    uint64_t length;
    bool keep_alive;
};

static void framing_of_responses(unused_ok void **state)
{
    static const struct answer answers[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, 200, HTTP_BODY_LENGTH, 5, true},
        {"HTTP/1.1 206 Partial Content\r\ncontent-length: 0\r\n\r\n", false, 206,
         HTTP_BODY_LENGTH, 0, true},
        {"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", false, 200, HTTP_BODY_LENGTH, 5, true},
        {"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n", false, 200, HTTP_BODY_LENGTH, 5, true},
        {"HTTP/1.1 404 Nicht\tgefunden \xe4\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
         false, 404, HTTP_BODY_LENGTH, 5, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", false, 200, HTTP_BODY_CHUNKED, 0,
         true},
        {"HTTP/1.1 200 OK\r\n\r\n", false, 200, HTTP_BODY_UNTIL_CLOSE, 0, false},
        {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", false, 200, HTTP_BODY_UNTIL_CLOSE, 0,
         false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", false, 200, HTTP_BODY_LENGTH, 5, false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", false, 200,
         HTTP_BODY_LENGTH, 5, true},
        {"HTTP/1.1 204 No Content\r\n\r\n", false, 204, HTTP_BODY_NONE, 0, true},
        {"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", false, 204, HTTP_BODY_NONE, 0,
         true},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false, 304, HTTP_BODY_NONE, 5,
         true},
        {"HTTP/1.1 100 Continue\r\n\r\n", false, 100, HTTP_BODY_NONE, 0, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, 200, HTTP_BODY_NONE, 5, true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, 200, HTTP_BODY_NONE, 0,
         true},
        {"HTTP/1.1 404 Not Found\r\n\r\n", true, 404, HTTP_BODY_NONE, 0, true},
        {"HTTP/1.1 200 OK\r\nUpgrade: h2,h2c\r\nConnection: Upgrade\r\nContent-Length: 1\r\n\r\n",
         false, 200, HTTP_BODY_LENGTH, 1, true},
        {"HTTP/1.1 599 x\r\nContent-Length: 1\r\n\r\n", false, 599, HTTP_BODY_LENGTH, 1, true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(answers); i++) {
        const struct answer *a = &answers[i];
        size_t used, len = strlen(a->bytes);
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(http_parse_response(a->bytes, cut, a->head_request, &head, &used),
                             HTTP_MORE);
        assert_int_equal(http_parse_response(a->bytes, len, a->head_request, &head, &used),
                         HTTP_OK);
        assert_int_equal(used, len);
        assert_int_equal(head.status, a->status);
        assert_int_equal(head.framing, a->framing);
        assert_int_equal(head.length, a->length);
        assert_int_equal(head.keep_alive, a->keep_alive);
    }
}

static void interim_response_then_final(unused_ok void **state)
{
    static const char bytes[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nETag: \"a\"\r\n"
                                "Content-Length: 0\r\n\r\n";
    size_t first = 0, second = 0;
    assert_int_equal(http_parse_response(bytes, sizeof(bytes) - 1, false, &head, &first), HTTP_OK);
    assert_int_equal(head.status, 100);
    assert_int_equal(http_parse_response(bytes + first, sizeof(bytes) - 1 - first, false, &head,
                                         &second), HTTP_OK);
    assert_int_equal(head.status, 200);
    assert_true(span_is(http_find(&head, "etag"), "\"a\""));
    assert_int_equal(first + second, sizeof(bytes) - 1);
}

/* ---- chunked bodies ---- */
struct decoded {
    enum http_verdict verdict;
    size_t used, len;
    char body[128];
};

/* Feeds a body in pieces of some size, as a caller does. */
static struct decoded dechunk(const char *bytes, size_t len, size_t piece)
{
    struct decoded d = {HTTP_MORE, 0, 0, ""};
    struct http_chunked c = {0};
    for (size_t at = 0; at < len && d.verdict == HTTP_MORE;) {
        size_t n = len - at < piece ? len - at : piece, from = 0;
        char *copy = exact(bytes + at, n);
        while (from < n && d.verdict == HTTP_MORE) {
            size_t used;
            struct span data;
            d.verdict = http_chunked_step(&c, copy + from, n - from, &used, &data);
            assert_true(used > 0 && used <= n - from);
            assert_true(data.at >= copy && data.at + data.len <= copy + from + used);
            assert_true(d.len + data.len < sizeof(d.body));
            memcpy(d.body + d.len, data.at, data.len);
            d.len += data.len;
            from += used;
        }
        at += from;
        d.used = at;
    }
    size_t used = 0;
    struct span data;
    if (d.verdict != HTTP_MORE) /* a verdict is final */
        assert_int_equal(http_chunked_step(&c, "0\r\n\r\n", 5, &used, &data), d.verdict);
    return d;
}

static void chunked_bodies_in_any_pieces(unused_ok void **state)
{
    static const struct { const char *bytes, *body; size_t rest; } good[] = {
        {"0\r\n\r\n", "", 0},
        {"5\r\nhello\r\n0\r\n\r\n", "hello", 0},
        {"3\r\na\r\n\r\na\r\n0123456789\r\n000\r\n\r\nGET /", "a\r\n0123456789", 5},
        {"0000000000000005\r\nhello\r\n0\r\n\r\n", "hello", 0},
        {"1A\r\nabcdefghijklmnopqrstuvwxyz\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n",
         "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", 0},
        {"5;a=\"b c\";d\r\nhello\r\n0;x\r\n\r\n", "hello", 0},
        {"5\r\nhello\r\n0\r\nX-Sum: a b\r\ny:\r\n\r\n0\r\n", "hello", 3},
        {"2e\r\n5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n\r\n0\r\n\r\n",
         "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        size_t len = strlen(good[i].bytes);
        for (size_t piece = 1; piece <= len; piece++) {
            struct decoded d = dechunk(good[i].bytes, len, piece);
            assert_int_equal(d.verdict, HTTP_OK);
            assert_int_equal(d.used, len - good[i].rest);
            assert_true(span_is(span_make(d.body, d.len), good[i].body));
            d = dechunk(good[i].bytes, len - good[i].rest - 1, piece);
            assert_int_equal(d.verdict, HTTP_MORE);
        }
    }
}

static void malformed_chunked_bodies_are_refused(unused_ok void **state)
{
    static const struct bad_head bad[] = {
        {"LF only", HEAD("5\nhello\n0\n\n"), HTTP_BAD},
        {"LF behind the size", HEAD("5\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"LF behind the data", HEAD("5\r\nhello\n0\r\n\r\n"), HTTP_BAD},
        {"LF behind the last chunk", HEAD("0\n\r\n"), HTTP_BAD},
        {"LF at the end", HEAD("0\r\n\n"), HTTP_BAD},
        {"LF in an extension", HEAD("5;a\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"CR without LF behind the size", HEAD("5\rhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"size and number behind a tab", HEAD("5\t6\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"size and number behind a blank", HEAD("5 6\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"blank behind the size", HEAD("5 \r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"blank before the size", HEAD(" 5\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"no size", HEAD("\r\nhello\r\n"), HTTP_BAD},
        {"extension without a size", HEAD(";a\r\n\r\n"), HTTP_BAD},
        {"negative size", HEAD("-5\r\nhello\r\n"), HTTP_BAD},
        {"plus", HEAD("+5\r\nhello\r\n"), HTTP_BAD},
        {"0x", HEAD("0x5\r\nhello\r\n"), HTTP_BAD},
        {"no digit", HEAD("g\r\nhello\r\n"), HTTP_BAD},
        {"underscore", HEAD("1_0\r\nhello\r\n"), HTTP_BAD},
        {"size of 2^63", HEAD("8000000000000000\r\nhello"), HTTP_BAD},
        {"size of 2^64 - 1", HEAD("ffffffffffffffff\r\nhello"), HTTP_BAD},
        {"size of 2^64", HEAD("10000000000000000\r\nhello"), HTTP_BAD},
        {"size of 2^64 + 5", HEAD("10000000000000005\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"17 digits", HEAD("00000000000000005\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"no CRLF behind the data", HEAD("5\r\nhello0\r\n\r\n"), HTTP_BAD},
        {"more data than announced", HEAD("4\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"less data than announced", HEAD("6\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"CR without LF behind the data", HEAD("5\r\nhello\r0\r\n\r\n"), HTTP_BAD},
        {"NUL in an extension", HEAD("5;a\0\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"extension of 2 KiB", HEAD("5;" X1000("ab") "\r\nhello\r\n0\r\n\r\n"), HTTP_BAD},
        {"trailer without a colon", HEAD("0\r\nabc\r\n\r\n"), HTTP_BAD},
        {"trailer with an empty name", HEAD("0\r\n: abc\r\n\r\n"), HTTP_BAD},
        {"trailer with a blank before the colon", HEAD("0\r\na : b\r\n\r\n"), HTTP_BAD},
        {"folded trailer", HEAD("0\r\na: b\r\n c\r\n\r\n"), HTTP_BAD},
        {"NUL in a trailer", HEAD("0\r\na: \0\r\n\r\n"), HTTP_BAD},
        {"LF ends a trailer", HEAD("0\r\na: b\n\r\n"), HTTP_BAD},
        {"trailers over 8 KiB", HEAD("0\r\n" X1000("a: 123456\r\n") "\r\n"), HTTP_BAD},
        {"trailer over 8 KiB", HEAD("0\r\na: " X1000("1234567890") "\r\n\r\n"), HTTP_BAD},
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        for (size_t piece = 1; piece <= 40; piece++) {
            if (dechunk(bad[i].bytes, bad[i].len, piece).verdict != HTTP_BAD)
                fail_msg("%s: not refused in pieces of %zu", bad[i].name, piece);
        }
    }
}

static void largest_chunk_does_not_wrap(unused_ok void **state)
{
    struct http_chunked c = {0};
    static const char bytes[] = "7fffffffffffffff\r\nabc";
    size_t used = 0;
    struct span data;
    assert_int_equal(http_chunked_step(&c, bytes, sizeof(bytes) - 1, &used, &data), HTTP_MORE);
    assert_int_equal(data.len, 3);
    assert_true(c.left == (uint64_t)INT64_MAX - 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_requests_are_refused_at_any_cut),
        cmocka_unit_test(each_byte_is_judged_by_its_place),
        cmocka_unit_test(boto3_ranged_get),
        cmocka_unit_test(boto3_chunked_put_over_https),
        cmocka_unit_test(javascript_v3_get),
        cmocka_unit_test(s3cmd_get_with_length_zero),
        cmocka_unit_test(s5cmd_then_awscrt_pipelined),
        cmocka_unit_test(fate_of_the_connection),
        cmocka_unit_test(what_is_unusual_and_valid),
        cmocka_unit_test(limit_of_a_request_head_is_exact),
        cmocka_unit_test(looking_up_fields),
        cmocka_unit_test(names_of_methods),
        cmocka_unit_test(malformed_responses_are_refused_at_any_cut),
        cmocka_unit_test(framing_of_responses),
        cmocka_unit_test(interim_response_then_final),
        cmocka_unit_test(chunked_bodies_in_any_pieces),
        cmocka_unit_test(malformed_chunked_bodies_are_refused),
        cmocka_unit_test(largest_chunk_does_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
