/* What a client hears: heads of object answers, error documents, fields kept and relayed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/s3/reply.c"

static const char date[] = "Fri, 20 Nov 2026 08:16:07 GMT";
static char answer[16 * KIB], upstream_bytes[64 * KIB], arena_bytes[32 * KIB];
static struct text out;
static struct s3_stamp stamp;
static struct http_head upstream;
static struct arena arena;

static int setup(void **state)
{
    (void)state;
    text_init(&out, answer, S3_ERROR_BYTES);
    s3_stamp_make(&stamp, date, 0x6f2c91d012345678u);
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 0);
    return 0;
}

/* An upstream answer; fields: "a: b\r\n"*. */
static void parse_upstream(unsigned status, const char *fields)
{
    size_t used;
    int len = snprintf(upstream_bytes, sizeof(upstream_bytes), "HTTP/1.1 %u X\r\n%s\r\n", status,
                       fields);
    assert_true(len > 0 && len < (int)sizeof(upstream_bytes));
    assert_int_equal(http_parse_response(upstream_bytes, (size_t)len, true, &upstream, &used),
                     HTTP_OK);
}

/* What every answer begins with. */
#define BEGIN(status)                                                                              \
    "HTTP/1.1 " status "\r\n"                                                                      \
    "x-amz-request-id: 6F2C91D012345678\r\n"                                                       \
    "x-amz-id-2: aGVhZHBvbmQ2RjJDOTFEMDEyMzQ1Njc4\r\n"                                             \
    "Date: Fri, 20 Nov 2026 08:16:07 GMT\r\n"                                                      \
    "Server: headpond\r\n"
#define IDENTITY                                                                                   \
    "Accept-Ranges: bytes\r\nETag: \"abc-2\"\r\nLast-Modified: Wed, 18 Nov 2026 10:06:40 GMT\r\n"

enum { MODIFIED_S = 1794996400 };
static const char kept[] =
    "content-type: text/plain\r\ncache-control: max-age=1\r\nx-amz-meta-a: \xc3\xa9\r\n"
    "x-amz-checksum-crc32: AAAA\r\nx-amz-checksum-type: FULL_OBJECT\r\nexpires: later\r\n"
    "x-amz-version-id: v1\r\n";

static void write_object(const struct s3_reply *r, const struct s3_ask *a)
{
    assert_int_equal(s3_reply_object(&out, r, &stamp, a, span_of("\"abc-2\""), MODIFIED_S,
                                     span_of(kept)), OK);
}

static void a_whole_object(void **state)
{
    struct s3_reply r = {.status = 200, .size = 18446744073709551615u, .x_cache = "hit", .age_s = 7,
                         .has_age = true};
    struct s3_ask a = {.op = GetObject};
    (void)state;
    write_object(&r, &a);
    assert_string_equal(answer, BEGIN("200 OK") IDENTITY
                        "content-type: text/plain\r\ncache-control: max-age=1\r\nx-amz-meta-a: "
                        "\xc3\xa9\r\n"
                        "expires: later\r\nx-amz-version-id: v1\r\n"
                        "Content-Length: 18446744073709551615\r\nx-cache: hit\r\nage: 7\r\n\r\n");
}

static void a_range_never_carries_the_checksum(void **state)
{
    struct s3_reply r = {.status = 206, .from = 5, .to = 9, .size = 100, .x_cache = "partial",
                         .parts = 2, .close = true};
    struct s3_ask a = {.op = GetObject, .checksum_mode = true};
    (void)state;
    write_object(&r, &a);
    assert_string_equal(answer, BEGIN("206 Partial Content") IDENTITY
                        "content-type: text/plain\r\ncache-control: max-age=1\r\nx-amz-meta-a: "
                        "\xc3\xa9\r\n"
                        "expires: later\r\nx-amz-version-id: v1\r\n"
                        "Content-Length: 5\r\nContent-Range: bytes 5-9/100\r\n"
                        "x-amz-mp-parts-count: 2\r\n"
                        "x-cache: partial\r\nConnection: close\r\n\r\n");
}

static void checksums_are_sent_when_asked_for(void **state)
{
    struct s3_reply r = {.status = 200, .size = 0, .x_cache = "stale", .stale = true,
                         .has_cached = true};
    struct s3_ask a = {.op = HeadObject, .checksum_mode = true};
    (void)state;
    write_object(&r, &a);
    assert_non_null(strstr(answer,
                           "\r\nx-amz-checksum-crc32: AAAA\r\nx-amz-checksum-type: "
                           "FULL_OBJECT\r\n"));
    assert_non_null(strstr(answer, "\r\nContent-Length: 0\r\nx-cache: stale\r\n"
                                   "warning: 110 headpond \"Response is Stale\"\r\n"
                                   "x-headpond-cached: 0/0\r\n\r\n"));
}

static void overrides_replace_what_is_stored(void **state)
{
    struct s3_reply r = {.status = 206, .from = 0, .to = 0, .size = 1, .x_cache = "hit"};
    struct s3_ask a = {.op = GetObject, .has_override = true};
    (void)state;
    a.overrides[S3_CONTENT_TYPE] = span_of("image/png");
    a.overrides[S3_CONTENT_DISPOSITION] = span_of("attachment");
    write_object(&r, &a);
    assert_null(strstr(answer, "text/plain"));
    assert_non_null(strstr(answer, "\r\ncontent-type: image/png\r\n"));
    assert_non_null(strstr(answer, "\r\ncontent-disposition: attachment\r\n"));
    assert_non_null(strstr(answer, "\r\ncache-control: max-age=1\r\n"));
}

static void a_304_is_short(void **state)
{
    struct s3_reply r = {.status = 304, .size = 100, .x_cache = "hit"};
    struct s3_ask a = {.op = GetObject, .has_override = true, .checksum_mode = true};
    (void)state;
    a.overrides[S3_CACHE_CONTROL] = span_of("no-store");
    write_object(&r, &a);
    assert_string_equal(answer, BEGIN("304 Not Modified")
                        "ETag: \"abc-2\"\r\nLast-Modified: Wed, 18 Nov 2026 10:06:40 GMT\r\n"
                        "cache-control: max-age=1\r\nexpires: later\r\nx-amz-version-id: v1\r\n"
                        "x-cache: hit\r\n\r\n");
}

static void a_bare_etag_gets_its_quotes(void **state)
{
    struct s3_reply r = {.status = 200};
    struct s3_ask a = {.op = GetObject};
    (void)state;
    assert_int_equal(s3_reply_object(&out, &r, &stamp, &a, span_of("abc"), 0, span_of("")), OK);
    assert_non_null(strstr(answer, "\r\nETag: \"abc\"\r\nContent-Length: 0\r\n\r\n"));
}

static void a_head_that_does_not_fit_is_an_error(void **state)
{
    struct s3_reply r = {.status = 200};
    struct s3_ask a = {.op = GetObject};
    struct text whole;
    (void)state;
    write_object(&r, &a);
    for (size_t cap = 1; cap <= out.len; cap++) {
        text_init(&whole, upstream_bytes, cap);
        assert_int_equal(s3_reply_object(&whole, &r, &stamp, &a, span_of("\"abc-2\""), MODIFIED_S,
                                         span_of(kept)),
                         ERR_TOO_LARGE);
    }
    text_init(&whole, upstream_bytes, out.len + 1);
    assert_int_equal(s3_reply_object(&whole, &r, &stamp, &a, span_of("\"abc-2\""), MODIFIED_S,
                                     span_of(kept)), OK);
}

/* ---- errors ---- */
static const char *body_of(void)
{
    const char *end = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "Content-Length: ");
    assert_non_null(end);
    assert_non_null(length);
    assert_int_equal(strtoul(length + 16, NULL, 10), strlen(end + 4));
    assert_int_equal(strlen(answer), out.len);
    return end + 4;
}

static void an_empty_object_is_told_by_its_416(void **state)
{
    struct s3_error e = {.status = 416, .code = "InvalidRange",
                         .message = "The requested range is not satisfiable",
                         .range_requested = span_of("bytes=0-8388607"), .has_actual_size = true};
    (void)state;
    s3_reply_error(&out, &e, &stamp, false, false);
    assert_string_equal(body_of(),
                        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidRange<"
                        "/Code>"
                        "<Message>The requested range is not satisfiable</Message>"
                        "<RangeRequested>bytes=0-8388607</RangeRequested><ActualObjectSize>0<"
                        "/ActualObjectSize>"
                        "<RequestId>6F2C91D012345678</RequestId>"
                        "<HostId>aGVhZHBvbmQ2RjJDOTFEMDEyMzQ1Njc4</HostId></Error>");
    assert_ptr_equal(strstr(answer,
                            BEGIN("416 Range Not Satisfiable") "Content-Type: application/xml\r\n"),
                     answer);
    assert_non_null(strstr(answer, "\r\nContent-Range: bytes */0\r\n"));
}

static void errors_of_head_have_no_body(void **state)
{
    struct s3_error e = {.status = 404, .code = "NoSuchKey", .message = "m", .key = span_of("k")};
    (void)state;
    s3_reply_error(&out, &e, &stamp, true, true);
    assert_string_equal(answer,
                        BEGIN("404 Not Found") "Content-Length: 0\r\nConnection: close\r\n\r\n");
    text_init(&out, answer, sizeof(answer));
    e.status = 304;
    s3_reply_error(&out, &e, &stamp, false, false);
    assert_string_equal(answer, BEGIN("304 Not Modified") "\r\n");
}

static void echoes_are_escaped(void **state)
{
    struct s3_error e = {.status = 404, .code = "NoSuchKey", .message = "m",
                         .key = span_make("a\r\n<&\"\x01\xff", 8), .resource = span_of("/b/<x>")};
    (void)state;
    s3_reply_error(&out, &e, &stamp, false, false);
    const char *body = body_of();
    assert_null(strstr(body, "a\r\n<"));
    assert_non_null(strstr(body, "&lt;&amp;"));
    assert_null(strchr(body, 1));
    assert_non_null(strstr(body, "<Resource>/b/&lt;x&gt;</Resource>"));
}

static void fields_of_405_and_503(void **state)
{
    struct s3_error e = {.status = 405, .code = "MethodNotAllowed", .message = "m",
                         .method = span_of("POST"),
                         .resource_type = span_of("OBJECT"), .allow = span_of("GET, HEAD")};
    (void)state;
    s3_reply_error(&out, &e, &stamp, false, false);
    assert_non_null(strstr(body_of(), "<Method>POST</Method><ResourceType>OBJECT</ResourceType>"));
    assert_non_null(strstr(answer, "\r\nAllow: GET, HEAD\r\n"));
    text_init(&out, answer, sizeof(answer));
    e = (struct s3_error){.status = 503, .code = "SlowDown", .message = "m", .retry_after_s = 3};
    s3_reply_error(&out, &e, &stamp, false, false);
    assert_non_null(strstr(answer, "503 Service Unavailable\r\n"));
    assert_non_null(strstr(answer, "\r\nRetry-After: 3\r\n"));
    (void)body_of();
}

static void sizes_parts_and_times(void **state)
{
    struct s3_error e = {.status = 400, .code = "KeyTooLongError", .message = "m",
                         .actual_size = 1025,
                         .has_actual_size = true, .max_size = 1024, .has_max_size = true};
    (void)state;
    s3_reply_error(&out, &e, &stamp, false, false);
    assert_non_null(strstr(body_of(), "<Size>1025</Size><MaxSizeAllowed>1024</MaxSizeAllowed>"));
    assert_null(strstr(answer, "Content-Range"));
    text_init(&out, answer, sizeof(answer));
    e = (struct s3_error){.status = 416, .code = "InvalidPartNumber", .message = "m",
                          .part_number = 9, .parts = 3,
                          .has_part_number = true};
    s3_reply_error(&out, &e, &stamp, false, false);
    assert_non_null(strstr(body_of(),
                           "<ActualPartCount>3</ActualPartCount><PartNumberRequested>9<"
                           "/PartNumberRequested>"));
    text_init(&out, answer, sizeof(answer));
    e = (struct s3_error){.status = 403, .code = "RequestTimeTooSkewed", .message = "m",
                          .request_time = span_of("r"),
                          .server_time = span_of("s"), .max_skew_ms = 900000};
    s3_reply_error(&out, &e, &stamp, false, false);
    assert_non_null(strstr(body_of(), "<RequestTime>r</RequestTime><ServerTime>s</ServerTime>"
                                      "<MaxAllowedSkewMilliseconds>900000<"
                                      "/MaxAllowedSkewMilliseconds>"));
}

/* However little room there is, what is written is a whole document with its length. */
static void an_explanation_shrinks_to_the_room(void **state)
{
    static char canonical[3000];
    unsigned bytes = 0, text = 0, plain = 0, none = 0;
    struct s3_error e = {.status = 403, .code = "SignatureDoesNotMatch", .message = "m",
                         .access_key = span_of("AK"),
                         .string_to_sign = span_of("AWS4\n1"), .signature = span_of("00"),
                         .canonical = span_make(canonical, sizeof(canonical)),
                         .resource = span_of("/b/k")};
    (void)state;
    memset(canonical, 'c', sizeof(canonical));
    for (size_t cap = 700; cap <= sizeof(answer); cap += 50) {
        text_init(&out, answer, cap);
        s3_reply_error(&out, &e, &stamp, false, false);
        if (strstr(answer, "Content-Length: 0\r\n")) {
            none++;
            continue;
        }
        assert_non_null(strstr(body_of(), "</Error>"));
        bytes += strstr(answer, "<StringToSignBytes>41 57 53 34 0a 31</StringToSignBytes>") != NULL;
        text += strstr(answer, "<CanonicalRequest>ccc") != NULL;
        plain += strstr(answer, "<AWSAccessKeyId>AK</AWSAccessKeyId>") != NULL;
    }
    assert_true(bytes > 0 && text > bytes && plain > text && none > 0);
}

/* ---- what upstream said ---- */
static void kept_fields(void **state)
{
    struct span have;
    (void)state;
    parse_upstream(200,
        "Content-Type: a/b\r\nETag: \"e\"\r\nLast-Modified: x\r\nContent-Length: 3\r\n"
        "Accept-Ranges: bytes\r\n"
        "Cache-Control: c\r\nContent-Disposition: d\r\nContent-Encoding: gzip\r\n"
        "Content-Language: de\r\nExpires: e\r\n"
        "X-Amz-Meta-Name: N\xc3\xa4me\r\nx-amz-meta-request-id: user's\r\nx-amz-missing-meta: 1\r\n"
        "x-amz-version-id: null\r\nx-amz-storage-class: GLACIER\r\n"
        "x-amz-server-side-encryption: aws:kms\r\nx-amz-checksum-crc32c: AAAA==\r\n"
        "x-rgw-object-type: Normal\r\n"
        "x-amz-request-id: R\r\nx-amz-id-2: I\r\nDate: D\r\nServer: S\r\nConnection: keep-alive\r\n"
        "x-amz-mp-parts-count: 2\r\nx-amz-request-charged: requester\r\nx-amz-delete-marker: "
        "false\r\n"
        "Access-Control-Allow-Origin: *\r\nVary: Origin\r\nStrict-Transport-Security: m\r\n"
        "Set-Cookie: s\r\n"
        "x-amz-bucket-region: r\r\nX-Cache: Hit from cloudfront\r\nAge: 3\r\nVia: v\r\n"
        "x-minio-deployment-id: m\r\n");
    assert_int_equal(fill_headers_keep(&upstream, &arena, &have), OK);
    assert_true(span_is(have,
        "content-type: a/b\r\ncache-control: c\r\ncontent-disposition: d\r\ncontent-encoding: "
        "gzip\r\n"
        "content-language: de\r\nexpires: e\r\n"
        "x-amz-meta-name: N\xc3\xa4me\r\nx-amz-meta-request-id: user's\r\nx-amz-missing-meta: 1\r\n"
        "x-amz-version-id: null\r\nx-amz-storage-class: GLACIER\r\nx-amz-server-side-encryption: "
        "aws:kms\r\n"
        "x-amz-checksum-crc32c: AAAA==\r\nx-rgw-object-type: Normal\r\n"));
}

static void a_checksum_of_a_range_is_not_kept(void **state)
{
    struct span have;
    (void)state;
    parse_upstream(206, "x-amz-checksum-crc32: AAAA\r\nx-amz-meta-a: b\r\n");
    assert_int_equal(fill_headers_keep(&upstream, &arena, &have), OK);
    assert_true(span_is(have, "x-amz-meta-a: b\r\n"));
}

static void limits_of_what_is_kept(void **state)
{
    static char fields[2 * KEPT_BYTES_MAX];
    struct span have;
    struct arena none;
    (void)state;
    int len = snprintf(fields, sizeof(fields), "x-amz-meta-a: ");
    memset(fields + len, 'v', KEPT_BYTES_MAX - 16);
    memcpy(fields + len + KEPT_BYTES_MAX - 16, "\r\n", 3);
    parse_upstream(200, fields);
    assert_int_equal(fill_headers_keep(&upstream, &arena, &have), OK);
    assert_int_equal(have.len, KEPT_BYTES_MAX);
    struct s3_reply r = {.status = 200, .x_cache = "hit"};
    struct s3_ask a = {.op = GetObject};
    assert_int_equal(s3_reply_object(&out, &r, &stamp, &a, span_of("\"e\""), MODIFIED_S, have), OK);
    memcpy(fields + len + KEPT_BYTES_MAX - 16, "v\r\n", 4);
    parse_upstream(200, fields);
    assert_int_equal(fill_headers_keep(&upstream, &arena, &have), ERR_TOO_LARGE);
    arena_init(&none, NULL, 0, 0);
    parse_upstream(200, "x-amz-meta-a: b\r\n");
    assert_int_equal(fill_headers_keep(&upstream, &none, &have), ERR_MEMORY);
    upstream.field[0].value = span_of("b\r\nSet-Cookie: c"); /* no parser lets this through */
    assert_int_equal(fill_headers_keep(&upstream, &arena, &have), ERR_SYNTAX);
}

static void relayed_fields(void **state)
{
    static const char fields[] =
        "Content-Type: application/xml\r\nContent-Length: 5\r\nDate: D\r\nServer: S\r\n"
        "x-amz-request-id: R\r\n"
        "x-amz-id-2: I\r\nConnection: close, X-Private\r\nX-Private: p\r\nKeep-Alive: timeout=5\r\n"
        "Transfer-Encoding: gone\r\nx-amz-bucket-region: eu-central-1\r\nSet-Cookie: s\r\n"
        "Location: http://elsewhere/\r\n"
        "x-headpond-cached: 1/2\r\nx-other: kept\r\n";
    (void)state;
    upstream = (struct http_head){.status = 301};
    struct span rest = span_of(fields);
    while (rest.len > 0) {
        struct span value = span_cut(&rest, '\n'), name = span_cut(&value, ':');
        struct http_field *f = &upstream.field[upstream.count++];
        *f = (struct http_field){name, span_make(value.at + 1, value.len - 2)};
    }
    s3_headers_relay(&out, &upstream, false);
    assert_string_equal(answer,
                        "Content-Type: application/xml\r\nx-headpond-upstream-request-id: R\r\n"
                                "x-amz-bucket-region: eu-central-1\r\nx-other: kept\r\n");
    text_init(&out, answer, sizeof(answer));
    upstream.status = 200;
    s3_headers_relay(&out, &upstream, true);
    assert_non_null(strstr(answer, "Content-Length: 5\r\n"));
    assert_non_null(strstr(answer, "Location: http://elsewhere/\r\n"));
}

static void what_may_be_stored(void **state)
{
    static const struct {
        unsigned status;
        const char *fields;
        bool storable;
    } row[] = {
        {200, "ETag: \"e\"\r\nContent-Length: 3\r\n", true},
        {200, "ETag: e\r\nContent-Length: 0\r\n", true},
        {206, "ETag: \"e\"\r\nContent-Length: 3\r\nContent-Range: bytes 0-2/9\r\n", true},
        {206, "ETag: \"e\"\r\nContent-Length: 3\r\nContent-Range: bytes 0-2/*\r\n", false},
        {206, "ETag: \"e\"\r\nContent-Length: 3\r\n", false},
        {206, "ETag: \"e\"\r\nContent-Range: bytes */9\r\n", false},
        {200, "Content-Length: 3\r\n", false},
        {200, "ETag: \"e\"\r\n", false},
        {200, "ETag: W/\"e\"\r\nContent-Length: 3\r\n", false},
        {200, "ETag: \r\nContent-Length: 3\r\n", false},
        {200, "ETag: \"e\"\r\nContent-Length: 3\r\n"
              "x-amz-server-side-encryption-customer-algorithm: AES256\r\n", false},
        {403, "ETag: \"e\"\r\nContent-Length: 3\r\n", false},
        {404, "ETag: \"e\"\r\nContent-Length: 3\r\n", false},
        {304, "ETag: \"e\"\r\nContent-Length: 3\r\n", false},
        {500, "ETag: \"e\"\r\nContent-Length: 3\r\n", false},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        parse_upstream(row[i].status, row[i].fields);
        if (fill_storable(&upstream) != row[i].storable)
            fail_msg("%u %s", row[i].status, row[i].fields);
    }
}

static void parts_of_an_etag(void **state)
{
    static const struct {
        const char *etag;
        uint32_t parts;
    } row[] = {
        {"\"abc-12\"", 12}, {"abc-12", 12}, {"\"abc-10000\"", 10000}, {"\"abc-10001\"", 0},
        {"\"abc\"", 0}, {"\"abc-\"", 0}, {"\"a-b-3\"", 3}, {"", 0}, {"\"", 0}, {"\"abc-1x\"", 0},
        {"\"abc-99999999999999999999\"", 0},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++)
        assert_int_equal(s3_etag_parts(span_of(row[i].etag)), row[i].parts);
}

static void stamps_differ(void **state)
{
    struct s3_stamp a, b;
    (void)state;
    s3_stamp_make(&a, date, 0);
    s3_stamp_make(&b, date, 1);
    assert_string_equal(a.request_id, "0000000000000000");
    assert_string_equal(b.request_id, "0000000000000001");
    assert_string_not_equal(a.host_id, b.host_id);
    assert_int_equal(strlen(a.host_id), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_whole_object, setup),
        cmocka_unit_test_setup(a_range_never_carries_the_checksum, setup),
        cmocka_unit_test_setup(checksums_are_sent_when_asked_for, setup),
        cmocka_unit_test_setup(overrides_replace_what_is_stored, setup),
        cmocka_unit_test_setup(a_304_is_short, setup),
        cmocka_unit_test_setup(a_bare_etag_gets_its_quotes, setup),
        cmocka_unit_test_setup(a_head_that_does_not_fit_is_an_error, setup),
        cmocka_unit_test_setup(an_empty_object_is_told_by_its_416, setup),
        cmocka_unit_test_setup(errors_of_head_have_no_body, setup),
        cmocka_unit_test_setup(echoes_are_escaped, setup),
        cmocka_unit_test_setup(fields_of_405_and_503, setup),
        cmocka_unit_test_setup(sizes_parts_and_times, setup),
        cmocka_unit_test_setup(an_explanation_shrinks_to_the_room, setup),
        cmocka_unit_test_setup(kept_fields, setup),
        cmocka_unit_test_setup(a_checksum_of_a_range_is_not_kept, setup),
        cmocka_unit_test_setup(limits_of_what_is_kept, setup),
        cmocka_unit_test_setup(relayed_fields, setup),
        cmocka_unit_test_setup(what_may_be_stored, setup),
        cmocka_unit_test_setup(parts_of_an_etag, setup),
        cmocka_unit_test_setup(stamps_differ, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
