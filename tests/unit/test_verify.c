/* Which checksum of an object's fields and ETag is of its bytes, and comparable. The comparing
 * itself is in tests/flow/42-checksum.flow. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/fill/verify.c"

#define MD5_TEXT "\"5d41402abc4b2a76b9719d911017c592\"" /* of "hello" */

/* The name of the sum that is chosen, "" for none; "ETag" behind it if it is the ETag. */
static const char *chosen(const char *kept, const char *etag, uint64_t size)
{
    static char out[40];
    struct named_sum sum;

    bool found = verify_names(span_of(kept), span_of(etag), size, &sum);
    assert_int_equal(found, sum.kind != PAYLOAD_NO_SUM);
    snprintf(out, sizeof out, "%s%s", payload_kind_name((enum payload_kind)sum.kind),
             sum.etag ? " ETag" : "");
    return out;
}

static void the_cheapest_sum_of_the_bytes_is_chosen(void **state)
{
    static const struct {
        const char *kept, *etag, *wanted;
    } row[] = {
        {"", "\"e\"", ""},
        {"x-amz-checksum-crc32: NhCmhg==\r\n", "\"e\"", "CRC32"},
        {"x-amz-checksum-crc32:NhCmhg==\r\n", "\"e\"", "CRC32"},
        {"x-amz-meta-a: 1\r\nx-amz-checksum-crc32c: NhCmhg==\r\nx-b: 2\r\n", "\"e\"", "CRC32C"},
        {"x-amz-checksum-crc64nvme: AAAAAAAAAAA=\r\n", "\"e\"", "CRC64NVME"},
        {"x-amz-checksum-sha256: LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=\r\n"
         "x-amz-checksum-crc32: NhCmhg==\r\n",
         MD5_TEXT, "CRC32"},
        {"x-amz-checksum-sha1: qvTGHdzF6KLavt4PO0gs2a6pQ00=\r\n", MD5_TEXT, "SHA1"},
        {"x-amz-checksum-type: FULL_OBJECT\r\nx-amz-checksum-crc32: NhCmhg==\r\n", "\"e-2\"",
         "CRC32"},
        /* not of the bytes */
        {"x-amz-checksum-type: COMPOSITE\r\nx-amz-checksum-crc32: NhCmhg==\r\n", "\"e-2\"", ""},
        {"x-amz-checksum-crc32: NhCmhg==\r\nx-amz-checksum-type: composite\r\n", "\"e-2\"", ""},
        {"x-amz-checksum-crc32: NhCmhg==-2\r\n", "\"e-2\"", ""},
        /* no sense */
        {"x-amz-checksum-crc32: NhCm\r\n", "\"e\"", ""},
        {"x-amz-checksum-crc32: AAAAAAAAAAA=\r\n", "\"e\"", ""},
        {"x-amz-checksum-crc32: ????????\r\n", "\"e\"", ""},
        {"x-amz-checksum-crc32:\r\n", "\"e\"", ""},
        {"x-amz-checksum-crc32", "\"e\"", ""},
        {"x-amz-checksum-crc32:", "\"e\"", ""},
        {"x-amz-checksum-crc32x: NhCmhg==\r\n", "\"e\"", ""},
        {"y: x-amz-checksum-crc32: NhCmhg==\r\n", "\"e\"", ""},
        /* one makes no sense, the next does */
        {"x-amz-checksum-crc32c: zz\r\nx-amz-checksum-crc32: NhCmhg==\r\n", "\"e\"", "CRC32"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(row); i++)
        assert_string_equal(chosen(row[i].kept, row[i].etag, 5), row[i].wanted);
}

static void an_etag_may_be_an_md5(void **state)
{
    static const struct {
        const char *kept, *etag;
        bool wanted;
    } row[] = {
        {"", MD5_TEXT, true},
        {"", "\"5D41402ABC4B2A76B9719D911017C592\"", true},
        {"x-amz-server-side-encryption: AES256\r\n", MD5_TEXT, true},
        {"x-amz-server-side-encryption: aws:kms\r\n", MD5_TEXT, false},
        {"x-amz-server-side-encryption: aws:kms:dsse\r\n", MD5_TEXT, false},
        {"x-rgw-object-type: Appendable\r\n", MD5_TEXT, false},
        {"", "\"5d41402abc4b2a76b9719d911017c592-1\"", false},
        {"", "\"5d41402abc4b2a76b9719d911017c59\"", false},
        {"", "\"5d41402abc4b2a76b9719d911017c59g\"", false},
        {"", "5d41402abc4b2a76b9719d911017c592", false},
        {"", "5d41402abc4b2a76b9719d911017c592ab", false},
        {"", "", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(row); i++)
        assert_string_equal(chosen(row[i].kept, row[i].etag, 5), row[i].wanted ? "MD5 ETag" : "");
    assert_string_equal(chosen("", MD5_TEXT, MD5_BYTES_MOST), "MD5 ETag");
    assert_string_equal(chosen("", MD5_TEXT, MD5_BYTES_MOST + 1), "");
}

static void a_digest_is_read_as_it_stands(void **state)
{
    static const uint8_t md5[] = {0x5d, 0x41, 0x40, 0x2a, 0xbc, 0x4b, 0x2a, 0x76,
                                  0xb9, 0x71, 0x9d, 0x91, 0x10, 0x17, 0xc5, 0x92};
    static const uint8_t crc32[] = {0x36, 0x10, 0xa6, 0x86};
    struct named_sum sum;
    (void)state;

    assert_true(verify_names(span_of(""), span_of(MD5_TEXT), 5, &sum));
    assert_memory_equal(sum.digest, md5, sizeof md5);
    assert_true(verify_names(span_of("x-amz-checksum-crc32:  NhCmhg== \r\n"), span_of("\"e\""), 5,
                             &sum));
    assert_memory_equal(sum.digest, crc32, sizeof crc32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cheapest_sum_of_the_bytes_is_chosen),
        cmocka_unit_test(an_etag_may_be_an_md5),
        cmocka_unit_test(a_digest_is_read_as_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
