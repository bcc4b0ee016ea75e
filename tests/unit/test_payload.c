/* Unit tests of common/payload.c: heads of real clients and what they say of their bodies,
 * refusals, the table of how each form goes upstream, and wire captures through all layers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/payload.c"

#include "tests/lib/allocations.h"
#include "tests/lib/payload_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static struct http_head head;
static struct payload_facts facts;
static struct payload_refusal no;
static struct payload_decoder decoder;
static struct payload_plan plan;
static char wire[8 * KIB];

/* fields: lines that end with "\r\n". */
static enum err read_with(const char *start, const char *fields, bool sums_of_body)
{
    struct text t;
    size_t used;
    text_init(&t, wire, sizeof(wire));
    text_addf(&t, "%s HTTP/1.1\r\nHost: cache.local\r\n%s\r\n", start, fields);
    assert_false(t.over);
    assert_int_equal(http_parse_request(wire, t.len, &head, &used), HTTP_OK);
    memset(&no, 0, sizeof(no));
    return payload_read(&head, sums_of_body, &facts, &no);
}

static void accept_put(const char *fields)
{
    enum err e = read_with("PUT /b/k", fields, true);
    if (e != OK)
        fail_msg("%s: %s: %s", fields, no.code, no.why);
}

static void refuse_put(const char *fields, uint16_t status, const char *code)
{
    enum err e = read_with("PUT /b/k", fields, true);
    if (e != (status == 501 ? ERR_UNSUPPORTED : ERR_SYNTAX) || no.status != status ||
        strcmp(no.code, code) != 0)
        fail_msg("%s: %s %u %s", fields, err_name(e), no.status, no.code ? no.code : "");
    assert_non_null(no.why);
}

#define SHA(text) "X-Amz-Content-SHA256: " text "\r\n"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define DECODED(n) "X-Amz-Decoded-Content-Length: " n "\r\n"
#define LENGTH(n) "Content-Length: " n "\r\n"
#define TRAILER(name) "X-Amz-Trailer: " name "\r\n"
#define CHUNKED "Content-Encoding: aws-chunked\r\n"
#define UNSIGNED_TRAILER SHA("STREAMING-UNSIGNED-PAYLOAD-TRAILER") CHUNKED
#define SIGNED SHA("STREAMING-AWS4-HMAC-SHA256-PAYLOAD") CHUNKED
#define SIGNED_TRAILER SHA("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER") CHUNKED

/* ---- heads ---- */
static void forms_and_lengths(unused_ok void **state)
{
    accept_put(SHA("UNSIGNED-PAYLOAD") LENGTH("7"));
    assert_int_equal(facts.form, PAYLOAD_UNSIGNED);
    assert_true(facts.bytes == 7 && facts.sum == PAYLOAD_NO_SUM && !facts.reencoded);
    accept_put(LENGTH("0"));
    assert_true(facts.form == PAYLOAD_UNSIGNED && facts.bytes == 0);
    accept_put(SHA("E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855") LENGTH("0"));
    assert_int_equal(facts.form, PAYLOAD_HASH);
    assert_string_equal(facts.hash, EMPTY);
    accept_put(UNSIGNED_TRAILER DECODED("5") "Transfer-Encoding: chunked\r\n");
    assert_true(facts.form == PAYLOAD_TRAILER && facts.bytes == 5 && !facts.sum_in_trailer);
    accept_put(SIGNED DECODED("66560") LENGTH("66824"));
    assert_true(facts.form == PAYLOAD_SIGNED && facts.bytes == 66560);
    accept_put(SIGNED_TRAILER DECODED("66560") TRAILER("x-amz-checksum-crc32c") LENGTH("70000"));
    assert_true(facts.form == PAYLOAD_SIGNED_TRAILER && facts.sum == PAYLOAD_CRC32C &&
                facts.sum_in_trailer);
    accept_put(SHA("UNSIGNED-PAYLOAD") DECODED("9") "Transfer-Encoding: chunked\r\n");
    assert_true(facts.form == PAYLOAD_UNSIGNED && facts.bytes == 9);
    assert_int_equal(read_with("POST /b/k?uploads", SHA(EMPTY), true), OK);
    assert_true(facts.form == PAYLOAD_HASH && facts.bytes == 0);
    accept_put(SHA("UNSIGNED-PAYLOAD")); /* a copy, a new bucket: nothing is announced */
    assert_true(facts.form == PAYLOAD_UNSIGNED && facts.bytes == 0);
    assert_int_equal(read_with("PUT /b/k?X-Amz-Signature=0&X-Amz-Content-Sha256="
                               "STREAMING-UNSIGNED-PAYLOAD-TRAILER&x-amz-trailer=x-amz-checksum-"
                               "sha1",
                               DECODED("3") LENGTH("90"), true), OK);
    assert_true(facts.form == PAYLOAD_TRAILER && facts.sum == PAYLOAD_SHA1);
}

static void lengths_that_are_none(unused_ok void **state)
{
    refuse_put(SHA("UNSIGNED-PAYLOAD") "Transfer-Encoding: chunked\r\n", 411,
               "MissingContentLength");
    refuse_put(UNSIGNED_TRAILER LENGTH("46"), 411, "MissingContentLength");
    refuse_put(UNSIGNED_TRAILER LENGTH("46") DECODED("abc"), 411, "MissingContentLength");
    refuse_put(UNSIGNED_TRAILER LENGTH("46") DECODED("12x"), 411, "MissingContentLength");
    refuse_put(UNSIGNED_TRAILER LENGTH("46") DECODED("-1"), 411, "MissingContentLength");
    refuse_put(UNSIGNED_TRAILER LENGTH("46") DECODED("9223372036854775808"), 411,
               "MissingContentLength");
    refuse_put(UNSIGNED_TRAILER LENGTH("46") DECODED("47"), 400, "IncompleteBody");
    refuse_put(SHA("UNSIGNED-PAYLOAD") LENGTH("46") DECODED("40"), 400, "InvalidRequest");
    refuse_put(UNSIGNED_TRAILER LENGTH("46") DECODED("5") DECODED("5"), 400, "InvalidArgument");
    assert_string_equal(no.argument, "x-amz-decoded-content-length");
}

static void forms_that_are_none(unused_ok void **state)
{
    refuse_put(SHA("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD") LENGTH("5"), 501, "NotImplemented");
    refuse_put(SHA("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER") LENGTH("5"), 501,
               "NotImplemented");
    refuse_put(SHA("STREAMING-UNSIGNED-PAYLOAD") LENGTH("5"), 400, "InvalidArgument");
    assert_string_equal(no.argument, "x-amz-content-sha256");
    refuse_put(SHA("e3b0") LENGTH("5"), 400, "InvalidArgument");
    refuse_put(SHA("") LENGTH("5"), 400, "InvalidArgument");
    refuse_put(SHA("UNSIGNED-PAYLOAD") SHA("UNSIGNED-PAYLOAD") LENGTH("5"), 400,
               "InvalidArgument");
}

static void checksums(unused_ok void **state)
{
    accept_put(SHA(EMPTY) LENGTH("5") "x-amz-checksum-crc32: NhCmhg==\r\n"
               "x-amz-sdk-checksum-algorithm: CRC32\r\nContent-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n");
    assert_true(facts.sum == PAYLOAD_CRC32 && !facts.sum_in_trailer && facts.has_md5);
    assert_memory_equal(facts.sum_digest, "\x36\x10\xa6\x86", 4);
    assert_int_equal(facts.md5[0], 0x5d);
    accept_put(LENGTH("5") "x-amz-checksum-type: FULL_OBJECT\r\nx-amz-checksum-algorithm: CRC32\r\n"
               "x-amz-sdk-checksum-algorithm: CRC32\r\n");
    assert_int_equal(facts.sum, PAYLOAD_NO_SUM);
    assert_int_equal(read_with("PUT /b/k?x-amz-checksum-crc32=NhCmhg%3D%3D&"
                               "x-amz-sdk-checksum-algorithm=CRC32", LENGTH("5"), true), OK);
    assert_int_equal(facts.sum, PAYLOAD_CRC32);
    /* About the object, not about the list that is the body. */
    assert_int_equal(read_with("POST /b/k?uploadId=1", LENGTH("5")
                               "x-amz-checksum-crc32: NhCmhg==-3\r\n", false), OK);
    assert_int_equal(facts.sum, PAYLOAD_NO_SUM);
}

static void checksums_that_are_none(unused_ok void **state)
{
    refuse_put(LENGTH("5") "x-amz-checksum-crc32: NhCmhg==-2\r\n", 400, "InvalidRequest");
    assert_string_equal(no.argument, "x-amz-checksum-crc32");
    refuse_put(LENGTH("5") "x-amz-checksum-sha256: NhCmhg==\r\n", 400, "InvalidRequest");
    refuse_put(LENGTH("5") "x-amz-checksum-crc32:\r\n", 400, "InvalidRequest");
    refuse_put(LENGTH("5") "x-amz-checksum-crc32: NhCmhg==\r\nx-amz-checksum-crc32: NhCmhg==\r\n",
               400, "InvalidArgument");
    refuse_put(LENGTH("5") "x-amz-checksum-crc32: NhCmhg==\r\nx-amz-checksum-crc32c: NhCmhg==\r\n",
               400, "InvalidRequest");
    refuse_put(UNSIGNED_TRAILER DECODED("5") LENGTH("60") TRAILER("x-amz-checksum-crc64nvme")
               "x-amz-checksum-crc32: NhCmhg==\r\n", 400, "InvalidRequest");
    refuse_put(UNSIGNED_TRAILER DECODED("5") LENGTH("60") TRAILER("x-amz-checksum-foo"), 400,
               "InvalidRequest");
    refuse_put(UNSIGNED_TRAILER DECODED("5") LENGTH("60") TRAILER("content-md5"), 400,
               "InvalidRequest");
    refuse_put(UNSIGNED_TRAILER DECODED("5") LENGTH("60") TRAILER("x-amz-checksum-crc64nvme")
               "x-amz-sdk-checksum-algorithm: sha1\r\n", 400, "InvalidRequest");
    refuse_put(LENGTH("5") "Content-MD5: XUFAKrxLKna5cZ2REBfF\r\n", 400, "InvalidDigest");
    refuse_put(LENGTH("5") "Content-MD5: not base64\r\n", 400, "InvalidDigest");
    refuse_put(LENGTH("5") "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n"
               "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n", 400, "InvalidArgument");
}

static void aws_chunked_leaves_the_encoding(unused_ok void **state)
{
    static const struct {
        const char *fields, *left;
        bool reencoded;
    } rows[] = {
        {"", "", false},
        {"Content-Encoding: aws-chunked\r\n", "", true},
        {"Content-Encoding: gzip,aws-chunked\r\n", "gzip", true},
        {"Content-Encoding: aws-chunked, gzip\r\n", "gzip", true},
        {"Content-Encoding: gzip , AWS-Chunked,br\r\n", "gzip,br", true},
        {"Content-Encoding: gzip\r\nContent-Encoding: aws-chunked\r\n", "gzip", true},
        {"Content-Encoding: gzip\r\n", "gzip", false},
        {"Content-Encoding: ,\r\n", "", false},
    };
    char fields[400];
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        snprintf(fields, sizeof(fields), "%s%s", SHA("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
                 DECODED("5") LENGTH("60"), rows[i].fields);
        accept_put(fields);
        assert_string_equal(facts.encoding, rows[i].left);
        assert_int_equal(facts.reencoded, rows[i].reencoded);
    }
    static char long_field[400] = SHA("STREAMING-UNSIGNED-PAYLOAD-TRAILER") DECODED("5")
                                  LENGTH("60") "Content-Encoding: ";
    size_t at = strlen(long_field);
    memset(long_field + at, 'g', 260);
    memcpy(long_field + at + 260, "\r\n", 3);
    refuse_put(long_field, 400, "InvalidArgument");
    /* Without chunks it is the object's own, whatever it says. */
    accept_put(LENGTH("5") CHUNKED);
    assert_false(facts.reencoded);
}

/* ---- the plan ---- */
static struct span added(const char *name)
{
    for (unsigned i = 0; i < plan.add_count; i++)
        if (span_is_nocase(plan.add[i].name, name))
            return plan.add[i].value;
    return (struct span){NULL, 0};
}

static void assert_added(const char *name, const char *value)
{
    struct span got = added(name);
    if (value ? !span_is(got, value) : got.at != NULL)
        fail_msg("%s: %.*s instead of %s", name, (int)got.len, got.at, value ? value : "nothing");
}

static void plan_put(const char *fields, bool trailers)
{
    accept_put(fields);
    payload_plan_stream(&plan, &facts, &(struct payload_upstream){.trailers = trailers});
}

/* Each form, for a store with trailers and for an old one. */
static void relay_table(unused_ok void **state)
{
    plan_put(SHA(EMPTY) LENGTH("5"), true);
    assert_string_equal(plan.hash, EMPTY);
    assert_true(plan.wire_bytes == 5 && !plan.framed && plan.checks == 0 && plan.add_count == 0);
    plan_put(SHA(EMPTY) LENGTH("5") "x-amz-checksum-crc32: NhCmhg==\r\n", false);
    assert_string_equal(plan.hash, EMPTY);
    assert_true(plan.checks == PAYLOAD_CHECK_SUM && !plan.dropped_sum);
    plan_put(SHA("UNSIGNED-PAYLOAD") LENGTH("5"), false);
    assert_string_equal(plan.hash, "UNSIGNED-PAYLOAD");
    assert_true(plan.wire_bytes == 5 && plan.checks == 0);
    plan_put(UNSIGNED_TRAILER DECODED("5") TRAILER("x-amz-checksum-crc32") LENGTH("46"), true);
    assert_string_equal(plan.hash, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    assert_true(plan.framed && plan.checks == 0 && plan.wire_bytes == 46);
    assert_string_equal(plan.prefix, "5\r\n");
    assert_added("x-amz-trailer", "x-amz-checksum-crc32");
    assert_added("x-amz-decoded-content-length", "5");
    assert_added("content-encoding", "aws-chunked");
    plan_put(UNSIGNED_TRAILER DECODED("5") TRAILER("x-amz-checksum-crc32") LENGTH("46"), false);
    assert_string_equal(plan.hash, "UNSIGNED-PAYLOAD");
    assert_true(!plan.framed && plan.checks == PAYLOAD_CHECK_SUM && plan.wire_bytes == 5);
    assert_true(plan.dropped_sum && plan.add_count == 0);
    plan_put(SIGNED DECODED("66560") LENGTH("66824"), true);
    assert_string_equal(plan.hash, "UNSIGNED-PAYLOAD");
    assert_true(!plan.framed && plan.wire_bytes == 66560 && plan.checks == 0);
    plan_put(SIGNED_TRAILER DECODED("66560") TRAILER("x-amz-checksum-crc64nvme") LENGTH("67000"),
             true);
    assert_string_equal(plan.hash, "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    assert_string_equal(plan.prefix, "10400\r\n");
    assert_true(plan.wire_bytes == 7 + 66560 + 5 + 24 + 1 + 12 + 4);
    plan_put(SIGNED_TRAILER DECODED("66560") TRAILER("x-amz-checksum-crc64nvme") LENGTH("67000"),
             false);
    assert_string_equal(plan.hash, "UNSIGNED-PAYLOAD");
    assert_true(plan.checks == PAYLOAD_CHECK_SUM && plan.wire_bytes == 66560);
}

static void an_empty_object_has_the_empty_hash(unused_ok void **state)
{
    plan_put(SIGNED DECODED("0") LENGTH("86"), true);
    assert_string_equal(plan.hash, EMPTY);
    assert_true(plan.wire_bytes == 0);
    plan_put(UNSIGNED_TRAILER DECODED("0") TRAILER("x-amz-checksum-crc32") LENGTH("46"), true);
    assert_true(plan.framed && plan.prefix_len == 0);
    assert_true(plan.wire_bytes == 3 + 20 + 1 + 8 + 4);
}

static bool relays(const char *name)
{
    return payload_relays(&plan, &facts, span_of(name));
}

static void fields_of_the_framing_stay_here(unused_ok void **state)
{
    plan_put(SHA("STREAMING-UNSIGNED-PAYLOAD-TRAILER") DECODED("5") LENGTH("46")
             TRAILER("x-amz-checksum-crc32") "Content-Encoding: gzip,aws-chunked\r\n", false);
    assert_added("content-encoding", "gzip");
    assert_false(relays("Content-Encoding") || relays("X-Amz-Trailer") || relays("content-length"));
    assert_false(relays("x-amz-decoded-content-length") || relays("X-Amz-Content-SHA256"));
    assert_false(relays("x-amz-sdk-checksum-algorithm"));
    assert_true(relays("x-amz-meta-a") && relays("Content-MD5") && relays("x-amz-checksum-type"));
    payload_plan_stream(&plan, &facts, &(struct payload_upstream){.trailers = true});
    assert_added("content-encoding", "gzip,aws-chunked");
    assert_false(relays("Content-Encoding"));
    assert_true(relays("x-amz-sdk-checksum-algorithm"));
    plan_put(LENGTH("5") "Content-Encoding: gzip\r\nx-amz-checksum-crc32: NhCmhg==\r\n", false);
    assert_true(relays("Content-Encoding") && relays("x-amz-checksum-crc32") &&
                relays("x-amz-sdk-checksum-algorithm"));
    plan_put(SHA("STREAMING-UNSIGNED-PAYLOAD-TRAILER") DECODED("5") LENGTH("46")
             TRAILER("x-amz-checksum-crc32") "Content-Encoding: br\r\n", true);
    assert_added("content-encoding", "br,aws-chunked");
    assert_false(relays("Content-Encoding"));
}

/* Prefix, object and suffix are a body that we would accept ourselves, as long as was announced. */
static void what_is_framed_is_read_back(unused_ok void **state)
{
    static const uint64_t sizes[] = {0, 1, 5, 15, 16, 4096, 70000};
    static char object[70000], out[71000], fields[300];
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++)
        for (enum payload_kind k = PAYLOAD_CRC32; k < PAYLOAD_KIND_COUNT; k++) {
            struct text t;
            size_t got;
            snprintf(fields, sizeof(fields), UNSIGNED_TRAILER "X-Amz-Decoded-Content-Length: %llu"
                     "\r\nX-Amz-Trailer: %s\r\nTransfer-Encoding: chunked\r\n",
                     (unsigned long long)sizes[i], payload_kind_field(k));
            plan_put(fields, true);
            text_init(&t, out, sizeof(out));
            if (sizes[i] > 0)
                case_chunk(&t, NULL, span_make(object, sizes[i]));
            case_chunk(&t, NULL, span_of(""));
            case_trailer(&t, NULL, k, span_make(object, sizes[i]), "\r\n");
            for (unsigned again = 0; again < 2; again++) {
                assert_int_equal(payload_begin(&decoder, &facts, NULL, PAYLOAD_CHECK_ALL), OK);
                assert_true(t.len == plan.wire_bytes);
                assert_int_equal(payload_decode(&decoder, out, t.len, &got), OK);
                assert_int_equal(payload_end(&decoder), OK);
                assert_true(got == sizes[i] && memcmp(out, object, got) == 0);
                text_init(&t, out, sizeof(out));
                text_add(&t, span_make(plan.prefix, plan.prefix_len));
                text_add(&t, span_make(object, sizes[i]));
                payload_suffix(&plan, &decoder, &t);
            }
        }
}

static void a_whole_body_needs_no_framing(unused_ok void **state)
{
    char body[] = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
    size_t got;
    accept_put(UNSIGNED_TRAILER DECODED("5") TRAILER("x-amz-checksum-crc32") LENGTH("46"));
    assert_int_equal(payload_begin(&decoder, &facts, NULL, PAYLOAD_CHECK_ALL), OK);
    assert_int_equal(payload_decode(&decoder, body, sizeof(body) - 1, &got), OK);
    assert_int_equal(payload_end(&decoder), OK);
    struct payload_upstream to = {.trailers = false, .tls = false};
    payload_plan_whole(&plan, &decoder, span_make(body, got), &to);
    assert_string_equal(plan.hash, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b98"
                                   "24");
    assert_true(plan.wire_bytes == 5 && !plan.framed && plan.checks == 0 && plan.suffix_len == 0);
    assert_added("x-amz-checksum-crc32", "NhCmhg==");
    assert_added("content-encoding", NULL);
    assert_true(relays("x-amz-sdk-checksum-algorithm") && !relays("content-encoding"));
    to.tls = true;
    payload_plan_whole(&plan, &decoder, span_make(body, got), &to);
    assert_string_equal(plan.hash, "UNSIGNED-PAYLOAD");
    char none[1];
    struct text t;
    text_init(&t, none, 0);
    payload_suffix(&plan, &decoder, &t);
    assert_int_equal(t.len, 0);
    assert_false(t.over);
}

/* ---- captures, through all layers ---- */
static void read_capture(const char *bytes, const char *object, size_t piece)
{
    size_t used, len = strlen(bytes), at, got, n = 0;
    struct http_chunked http = {0};
    enum http_verdict v = HTTP_MORE;
    char out[64];
    assert_int_equal(http_parse_request(bytes, len, &head, &at), HTTP_OK);
    assert_int_equal(payload_read(&head, true, &facts, &no), OK);
    assert_int_equal(payload_begin(&decoder, &facts, NULL, PAYLOAD_CHECK_ALL), OK);
    while (v == HTTP_MORE && at < len) {
        struct span data;
        char copy[512];
        v = http_chunked_step(&http, bytes + at, min_u64(piece, len - at), &used, &data);
        at += used;
        memcpy(copy, data.at, data.len);
        assert_int_equal(payload_decode(&decoder, copy, data.len, &got), OK);
        memcpy(out + n, copy, got);
        n += got;
    }
    assert_int_equal(v, HTTP_OK);
    assert_int_equal(at, len);
    assert_int_equal(payload_end(&decoder), OK);
    assert_true(span_eq(span_make(out, n), span_of(object)));
}

static void captures_of_clients(unused_ok void **state)
{
    static const char boto3[] =
        "PUT /b/p1 HTTP/1.1\r\nHost: 127.0.0.1:5201\r\nAccept-Encoding: identity\r\n"
        "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\nContent-Encoding: aws-chunked\r\n"
        "X-Amz-Trailer: x-amz-checksum-crc32\r\nX-Amz-Decoded-Content-Length: 5\r\n"
        "x-amz-sdk-checksum-algorithm: CRC32\r\n"
        "X-Amz-Content-SHA256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n\r\n"
        "2e\r\n5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n\r\n0\r\n\r\n";
    static const char js[] =
        "PUT /b/k?x-id=PutObject HTTP/1.1\r\nhost: 127.0.0.1:5200\r\ntransfer-encoding: chunked\r\n"
        "content-encoding: aws-chunked\r\nx-amz-trailer: x-amz-checksum-crc32\r\n"
        "x-amz-decoded-content-length: 10\r\nx-amz-sdk-checksum-algorithm: CRC32\r\n"
        "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n\r\n"
        "3\r\na\r\n\r\na\r\n0123456789\r\n2\r\n\r\n\r\n3\r\n0\r\n\r\n1d\r\nx-amz-checksum-crc32:po"
        "THxg==\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n";
    for (size_t piece = 1; piece < 700; piece++) {
        read_capture(boto3, "hello", piece);
        assert_string_equal(decoder.value, "NhCmhg==");
        read_capture(js, "0123456789", piece);
    }
}

static void nothing_is_allocated(unused_ok void **state)
{
    accept_put(UNSIGNED_TRAILER DECODED("5") TRAILER("x-amz-checksum-crc32") LENGTH("46"));
    uint64_t before = allocations;
    assert_int_equal(payload_read(&head, true, &facts, &no), OK);
    payload_plan_stream(&plan, &facts, &(struct payload_upstream){.trailers = true});
    assert_true(allocations == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_and_lengths),
        cmocka_unit_test(lengths_that_are_none),
        cmocka_unit_test(forms_that_are_none),
        cmocka_unit_test(checksums),
        cmocka_unit_test(checksums_that_are_none),
        cmocka_unit_test(aws_chunked_leaves_the_encoding),
        cmocka_unit_test(relay_table),
        cmocka_unit_test(an_empty_object_has_the_empty_hash),
        cmocka_unit_test(fields_of_the_framing_stay_here),
        cmocka_unit_test(what_is_framed_is_read_back),
        cmocka_unit_test(a_whole_body_needs_no_framing),
        cmocka_unit_test(captures_of_clients),
        cmocka_unit_test(nothing_is_allocated),
    };
    allocations_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
