/* Which fields of a request leave a read what it is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/s3/query.c"

static bool are_plain(const char *fields)
{
    static char bytes[4 * KIB];
    struct http_head head;
    size_t used;
    int len = snprintf(bytes, sizeof(bytes), "GET /b/k HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", fields);

    assert_int_equal(http_parse_request(bytes, (size_t)len, &head, &used), HTTP_OK);
    return s3_fields_are_plain(&head);
}

/* A file of an archive was asked for (MinIO), and that there is no such key was remembered. */
static void a_field_of_a_store_that_is_not_known_makes_another_question(void **state)
{
    static const char *const other[] = {
        "x-minio-extract: true", "X-Minio-Extract: true", "x-amz-of-tomorrow: 1",
        "Range: bytes=0-1\r\nx-amz-server-side-encryption: aws:kms", "x-amz-sdk: 1",
        "x-amz-request-payer: requester", "x-amz-meta-a: b", "x-amz-date-of: x", "x-minio-: x",
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(other); i++)
        if (are_plain(other[i]))
            fail_msg("%s", other[i]);
}

static void what_sdks_and_proxies_send_with_each_read_is_none(void **state)
{
    static const char *const plain[] = {
        "Accept: */*",
        "x-amz-checksum-mode: ENABLED\r\nX-Amz-Date: d\r\nX-Amz-Content-SHA256: h\r\n"
        "amz-sdk-invocation-id: i\r\namz-sdk-request: attempt=1", /* boto3 */
        "x-amz-user-agent: a\r\nx-amz-security-token: t", /* JavaScript */
        "x-amz-api-version: 2006-03-01\r\nContent-Type: application/xml", /* C++ */
        "x-amz-te: append-md5\r\namz-sdk-retry: 0/0/", /* Java */
        "x-amz-sdk-checksum-algorithm: CRC32\r\nx-amz-decoded-content-length: 0",
        "X-Amzn-Trace-Id: t\r\nX-Amz-Cf-Id: c\r\nX-Forwarded-For: a\r\nx-request-id: r",
        "x-headpond-hint: once",
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(plain); i++)
        if (!are_plain(plain[i]))
            fail_msg("%s", plain[i]);
}

static void of_parameters_the_same_are_known(void **state)
{
    (void)state;
    assert_true(s3_key_is_known(S3_OBJECT, span_of("x-amz-user-agent")));
    assert_true(s3_key_is_known(S3_OBJECT, span_of("X-Amz-Checksum-Mode")));
    assert_true(s3_key_is_known(S3_OBJECT, span_of("X-Amz-Date")));
    assert_false(s3_key_is_known(S3_OBJECT, span_of("x-amz-date"))); /* the case of a signature */
    assert_false(s3_key_is_known(S3_OBJECT, span_of("x-amz-of-tomorrow")));
    assert_false(s3_key_is_known(S3_OBJECT, span_of("x-minio-extract")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_of_a_store_that_is_not_known_makes_another_question),
        cmocka_unit_test(what_sdks_and_proxies_send_with_each_read_is_none),
        cmocka_unit_test(of_parameters_the_same_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
