/* Unit tests of common/payload_sum.c: published check values, a bitwise CRC as the model, any
 * cuts, and not one allocation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/payload_sum.c"

#include "mem.h"
#include "tests/lib/allocations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { ROOM = 70000 };
static uint8_t bytes[ROOM];

static void fill(void)
{
    uint64_t x = 88172645463325252u;
    for (unsigned i = 0; i < ROOM; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (uint8_t)x;
    }
}

static size_t sum_in(enum payload_kind kind, struct span text, size_t piece,
                     uint8_t out[PAYLOAD_DIGEST_MAX])
{
    struct payload_sum s;
    payload_sum_begin(&s, kind);
    for (size_t at = 0; at < text.len; at += piece)
        payload_sum_add(&s, text.at + at, (size_t)min_u64(piece, text.len - at));
    return payload_sum_end(&s, out);
}

static void assert_value(enum payload_kind kind, const char *text, const char *base64)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    char value[PAYLOAD_VALUE_MAX + 1] = "";
    size_t len = sum_in(kind, span_of(text), 3, digest);
    assert_int_equal(len, payload_digest_bytes(kind));
    value[base64_write(digest, len, value, PAYLOAD_VALUE_MAX)] = '\0';
    assert_string_equal(value, base64);
}

static void assert_hex(enum payload_kind kind, const char *text, const char *wanted)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    char hex[2 * PAYLOAD_DIGEST_MAX + 1] = "";
    size_t len = sum_in(kind, span_of(text), 1, digest);
    hex_write(digest, len, hex);
    assert_string_equal(hex, wanted);
}

/* The check values of the CRC catalogues, of the RFCs and of xxHash's own documents. */
static void published_values(unused_ok void **state)
{
    assert_hex(PAYLOAD_CRC32, "123456789", "cbf43926");
    assert_hex(PAYLOAD_CRC32C, "123456789", "e3069283");
    assert_hex(PAYLOAD_CRC64NVME, "123456789", "ae8b14860a799888");
    assert_hex(PAYLOAD_SHA1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_hex(PAYLOAD_MD5, "abc", "900150983cd24fb0d6963f7d28e17f72");
    assert_hex(PAYLOAD_XXHASH64, "", "ef46db3751d8e999");
    assert_hex(PAYLOAD_XXHASH64, "abc", "44bc2cf5ad770999");
    assert_hex(PAYLOAD_XXHASH3, "", "2d06800538d394c2");
    assert_hex(PAYLOAD_XXHASH128, "", "99aa06d3014798d86001c324468d497f");
    assert_true(crc64_nvme(0, "123456789", 9) == 0xae8b14860a799888u);
}

/* As clients send them: base64 of the big-endian digest. */
static void values_of_s3(unused_ok void **state)
{
    assert_value(PAYLOAD_CRC32, "hello", "NhCmhg==");
    assert_value(PAYLOAD_CRC64NVME, "hello", "M3eFcAZSQlc=");
    assert_value(PAYLOAD_CRC32, "abcdefg", "MSpqpg==");
    assert_value(PAYLOAD_CRC32C, "abcdefg", "5if0QQ==");
    assert_value(PAYLOAD_CRC64NVME, "abcdefg", "SmzZ/LTp1CA=");
    assert_value(PAYLOAD_SHA1, "abcdefg", "L7XhNBn8iSRoZeejJPR27GJOh0A=");
    assert_value(PAYLOAD_SHA256, "abcdefg", "fRpUEnsiJQL1t5tfsIAwYRUqRPkrN+I8ZSe69mXU2po=");
    assert_value(PAYLOAD_SHA512, "abcdefg",
                 "1xakGIVptoqxtt+sF45XARTN8Oo6HMDjFIbD5BJBvGp2Qk6MN6sm8Jb8he+YhsjLY0GH9P3f9kX7"
                 "CZ8f9UxrjA==");
    assert_value(PAYLOAD_MD5, "abcdefg", "esZsDxSN6VGbi9JkMSxNZA==");
    assert_value(PAYLOAD_CRC32, "", "AAAAAA==");
    assert_value(PAYLOAD_CRC32C, "", "AAAAAA==");
    assert_value(PAYLOAD_CRC64NVME, "", "AAAAAAAAAAA=");
}

static uint64_t bitwise(uint64_t polynomial, uint64_t ones, const uint8_t *at, size_t len)
{
    uint64_t crc = ones;
    for (size_t i = 0; i < len; i++) {
        crc ^= at[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    }
    return crc ^ ones;
}

static uint64_t read_digest(enum payload_kind kind, struct span text, size_t piece)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    uint64_t n = 0;
    for (size_t i = 0, len = sum_in(kind, text, piece, digest); i < len; i++)
        n = n << 8 | digest[i];
    return n;
}

/* Every length around the widths of the fast paths, from addresses of any alignment. */
static void crcs_are_those_of_the_bitwise_model(unused_ok void **state)
{
    for (size_t len = 0; len < 700; len++) {
        struct span text = span_make(bytes + len % 17, len);
        const uint8_t *at = bytes + len % 17;
        assert_true(read_digest(PAYLOAD_CRC32, text, ROOM) ==
                    bitwise(0xedb88320u, UINT32_MAX, at, len));
        assert_true(read_digest(PAYLOAD_CRC32C, text, ROOM) ==
                    bitwise(0x82f63b78u, UINT32_MAX, at, len));
        uint64_t wanted = bitwise(0x9a6c9329ac4bc9b5u, UINT64_MAX, at, len);
        assert_true(read_digest(PAYLOAD_CRC64NVME, text, ROOM) == wanted);
        assert_true(~crc64_by_table(UINT64_MAX, at, len) == wanted);
    }
    assert_true(read_digest(PAYLOAD_CRC64NVME, span_make(bytes, ROOM), ROOM) ==
                bitwise(0x9a6c9329ac4bc9b5u, UINT64_MAX, bytes, ROOM));
}

static void cuts_mean_nothing(unused_ok void **state)
{
    static const size_t pieces[] = {1, 7, 63, 64, 65, 240, 4096, ROOM};
    for (enum payload_kind k = PAYLOAD_CRC32; k < PAYLOAD_KIND_COUNT; k++) {
        uint8_t whole[PAYLOAD_DIGEST_MAX], cut[PAYLOAD_DIGEST_MAX];
        size_t len = sum_in(k, span_make(bytes, ROOM), ROOM, whole);
        for (unsigned i = 0; i < ARRAY_COUNT(pieces); i++) {
            assert_int_equal(sum_in(k, span_make(bytes, ROOM), pieces[i], cut), len);
            assert_memory_equal(whole, cut, len);
        }
    }
}

static void one_shot_forms_agree(unused_ok void **state)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    XXH64_canonical_t xxh64;
    XXH128_canonical_t xxh128;
    for (size_t len = 0; len < 2000; len += 37) {
        struct span text = span_make(bytes, len);
        XXH64_canonicalFromHash(&xxh64, XXH64(bytes, len, 0));
        sum_in(PAYLOAD_XXHASH64, text, 100, digest);
        assert_memory_equal(digest, xxh64.digest, 8);
        XXH64_canonicalFromHash(&xxh64, XXH3_64bits(bytes, len));
        sum_in(PAYLOAD_XXHASH3, text, 100, digest);
        assert_memory_equal(digest, xxh64.digest, 8);
        XXH128_canonicalFromHash(&xxh128, XXH3_128bits(bytes, len));
        sum_in(PAYLOAD_XXHASH128, text, 100, digest);
        assert_memory_equal(digest, xxh128.digest, 16);
    }
}

/* The struct may lie at any word. */
static void any_address_will_do(unused_ok void **state)
{
    static uint64_t memory[(sizeof(struct payload_sum) + 128) / 8];
    uint8_t digest[PAYLOAD_DIGEST_MAX], wanted[PAYLOAD_DIGEST_MAX];
    for (enum payload_kind k = PAYLOAD_CRC32; k < PAYLOAD_KIND_COUNT; k++)
        for (unsigned i = 0; i < 16; i++) {
            struct payload_sum *s = (struct payload_sum *)(void *)(memory + i);
            payload_sum_begin(s, k);
            payload_sum_add(s, bytes, 1000);
            size_t len = payload_sum_end(s, digest);
            assert_int_equal(sum_in(k, span_make(bytes, 1000), 1000, wanted), len);
            assert_memory_equal(digest, wanted, len);
        }
}

static void no_sum_is_nothing(unused_ok void **state)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    assert_int_equal(sum_in(PAYLOAD_NO_SUM, span_of("abc"), 1, digest), 0);
    assert_string_equal(payload_kind_field(PAYLOAD_NO_SUM), "");
    assert_string_equal(payload_kind_name(PAYLOAD_NO_SUM), "");
}

static void names_and_lengths_fit(unused_ok void **state)
{
    for (enum payload_kind k = PAYLOAD_CRC32; k < PAYLOAD_KIND_COUNT; k++) {
        assert_true(strlen(payload_kind_field(k)) <= PAYLOAD_FIELD_MAX);
        assert_true(span_starts(span_of(payload_kind_field(k)), span_of("x-amz-checksum-")));
        assert_true(span_is_nocase(span_of(payload_kind_field(k) + strlen("x-amz-checksum-")),
                                   payload_kind_name(k)));
        assert_true((payload_digest_bytes(k) + 2) / 3 * 4 <= PAYLOAD_VALUE_MAX);
    }
}

static void nothing_is_allocated(unused_ok void **state)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    uint64_t before = allocations;
    for (enum payload_kind k = PAYLOAD_CRC32; k < PAYLOAD_KIND_COUNT; k++)
        sum_in(k, span_make(bytes, ROOM), 1000, digest);
    assert_true(allocations == before);
}

/* Any kind, cut anywhere, also before the first byte and behind the last. */
static void crcs_of_parts_are_put_together(void **state)
{
    (void)state;
    static const enum payload_kind kinds[] = {PAYLOAD_CRC32, PAYLOAD_CRC32C, PAYLOAD_CRC64NVME};
    static const size_t cuts[] = {0, 1, 7, 4096, 65537, ROOM - 1, ROOM};

    fill();
    for (unsigned i = 0; i < PAYLOAD_KIND_COUNT; i++)
        assert_int_equal(payload_crc_joins((enum payload_kind)i),
                         i == PAYLOAD_CRC32 || i == PAYLOAD_CRC32C || i == PAYLOAD_CRC64NVME);
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        uint8_t all[PAYLOAD_DIGEST_MAX], joined[PAYLOAD_DIGEST_MAX];
        size_t len = sum_in(kinds[i], span_make((char *)bytes, ROOM), ROOM, all);
        for (size_t n = 0; n < ARRAY_COUNT(cuts); n++) {
            uint64_t first = payload_crc(kinds[i], bytes, cuts[n]);
            uint64_t second = payload_crc(kinds[i], bytes + cuts[n], ROOM - cuts[n]);
            uint64_t shift = payload_crc_shift(kinds[i], ROOM - cuts[n]);
            uint64_t crc = payload_crc_join(kinds[i], first, second, shift);
            assert_int_equal(payload_crc_write(kinds[i], crc, joined), len);
            assert_memory_equal(joined, all, len);
        }
    }
}

/* Lengths that no memory has: shifts add up. */
static void shifts_of_terabytes_are_those_of_their_parts(void **state)
{
    (void)state;
    const uint64_t tera = (uint64_t)1 << 40;
    uint64_t crc = payload_crc(PAYLOAD_CRC64NVME, "head", 4);
    uint64_t once = payload_crc_join(PAYLOAD_CRC64NVME, crc, 0,
                                     payload_crc_shift(PAYLOAD_CRC64NVME, 5 * tera + 3));

    for (unsigned i = 0; i < 5; i++)
        crc = payload_crc_join(PAYLOAD_CRC64NVME, crc, 0,
                               payload_crc_shift(PAYLOAD_CRC64NVME, tera));
    crc = payload_crc_join(PAYLOAD_CRC64NVME, crc, 0, payload_crc_shift(PAYLOAD_CRC64NVME, 3));
    assert_true(once == crc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values),
        cmocka_unit_test(values_of_s3),
        cmocka_unit_test(crcs_are_those_of_the_bitwise_model),
        cmocka_unit_test(cuts_mean_nothing),
        cmocka_unit_test(one_shot_forms_agree),
        cmocka_unit_test(any_address_will_do),
        cmocka_unit_test(no_sum_is_nothing),
        cmocka_unit_test(names_and_lengths_fit),
        cmocka_unit_test(crcs_of_parts_are_put_together),
        cmocka_unit_test(shifts_of_terabytes_are_those_of_their_parts),
        cmocka_unit_test(nothing_is_allocated),
    };
    fill();
    allocations_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
