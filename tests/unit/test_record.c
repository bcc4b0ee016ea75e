/* Index records: round trips, and that nothing damaged is ever taken for a record. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/cache/record.c"

static uint8_t bytes[RECORD_BYTES_MAX];

static const struct object_record an_object = {
    .data_id = {0x1122334455667788, 0x99AABBCCDDEEFF00},
    .size = 5 * TIB,
    .last_modified_s = 1700000000,
    .checked_ms = 1700000000123,
    .commit = 77,
    .flags = OBJECT_DOUBT | OBJECT_STABLE,
    .bucket = {"models", 6},
    .key = {"a/b\0c", 5},
    .version = {"v1", 2},
    .etag = {"\"abc-2\"", 7},
    .headers = {"content-type: x\r\n", 17},
    .parts = {"\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2", 16},
};

static struct chunk_record a_chunk(uint32_t size)
{
    struct chunk_record r = {
        .object_id = {1, 2},
        .slot = {.page = 3000000000, .at = 2047, .class_ = 39, .dir = 15},
        .bytes = size,
        .present = 1,
        .mark = {.last = 4000000000, .group = 65535, .class_ = 3, .count = 4, .credit = 5,
            .flags = 1, .spare = 9},
        .crc_count = (size + GRANULE_BYTES - 1) / GRANULE_BYTES,
    };
    for (uint32_t i = 0; i < r.crc_count; i++)
        r.crc[i] = 0xC0000000 + i;
    return r;
}

static void an_object_comes_back(void **state)
{
    struct object_record r;
    size_t len = record_object_write(&an_object, bytes, sizeof bytes);

    (void)state;
    assert_true(len > 0);
    assert_int_equal(record_object_read(span_make(bytes, len), &r), OK);
    assert_true(id_eq(r.data_id, an_object.data_id));
    assert_int_equal(r.size, an_object.size);
    assert_int_equal(r.last_modified_s, an_object.last_modified_s);
    assert_int_equal(r.checked_ms, an_object.checked_ms);
    assert_int_equal(r.commit, an_object.commit);
    assert_int_equal(r.flags, an_object.flags);
    assert_true(span_eq(r.bucket, an_object.bucket));
    assert_true(span_eq(r.key, an_object.key));
    assert_true(span_eq(r.version, an_object.version));
    assert_true(span_eq(r.etag, an_object.etag));
    assert_true(span_eq(r.headers, an_object.headers));
    assert_true(span_eq(r.parts, an_object.parts));
}

static void gone_is_never_stored(void **state)
{
    struct object_record r = an_object;

    (void)state;
    r.flags = OBJECT_GONE | OBJECT_STABLE;
    size_t len = record_object_write(&r, bytes, sizeof bytes);
    assert_int_equal(record_object_read(span_make(bytes, len), &r), OK);
    assert_int_equal(r.flags, OBJECT_STABLE);
}

static void assert_head_equal(const struct chunk_record *out, const struct chunk_record *in)
{
    assert_true(id_eq(out->object_id, in->object_id));
    assert_memory_equal(&out->mark, &in->mark, sizeof in->mark);
    assert_int_equal(out->slot.page, in->slot.page);
    assert_int_equal(out->slot.at, in->slot.at);
    assert_int_equal(out->slot.class_, in->slot.class_);
    assert_int_equal(out->slot.dir, in->slot.dir);
    assert_int_equal(out->bytes, in->bytes);
    assert_int_equal(out->present, in->present);
    assert_int_equal(out->crc_count, in->crc_count);
}

static void a_chunk_of_any_size_comes_back(void **state)
{
    static const uint32_t sizes[] = {1, 4096, GRANULE_BYTES, GRANULE_BYTES + 1, BLOCK_BYTES,
        CHUNK_BYTES};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct chunk_record in = a_chunk(sizes[i]), out;
        size_t len = record_chunk_write(&in, bytes, sizeof bytes);
        assert_true(len > 0);
        assert_int_equal(record_chunk_read(span_make(bytes, len), &out), OK);
        assert_head_equal(&out, &in);
        assert_memory_equal(out.crc, in.crc, in.crc_count * sizeof in.crc[0]);
    }
}

static void a_header_comes_back(void **state)
{
    struct header_record in = {.format = RECORD_FORMAT, .slab_bytes = 1 << 30}, out;

    (void)state;
    memset(in.secret, 7, sizeof in.secret);
    memset(in.directory_id, 9, sizeof in.directory_id);
    assert_int_equal(record_header_write(&in, bytes, sizeof bytes), RECORD_HEADER_BYTES);
    assert_int_equal(record_header_read(span_make(bytes, RECORD_HEADER_BYTES), &out), OK);
    assert_memory_equal(out.secret, in.secret, sizeof in.secret);
    assert_memory_equal(out.directory_id, in.directory_id, sizeof in.directory_id);
    assert_int_equal(out.slab_bytes, in.slab_bytes);
}

/* ---- damage ---- */
enum kind { AN_OBJECT, A_CHUNK, A_HEADER };

static enum err read_kind(enum kind kind, struct span s)
{
    struct object_record o;
    struct chunk_record k;
    struct header_record h;

    return kind == AN_OBJECT ? record_object_read(s, &o)
         : kind == A_CHUNK ? record_chunk_read(s, &k) : record_header_read(s, &h);
}

static size_t write_kind(enum kind kind)
{
    struct chunk_record k = a_chunk(CHUNK_BYTES - 5);
    struct header_record h = {.format = RECORD_FORMAT, .slab_bytes = 1 << 30};

    return kind == AN_OBJECT ? record_object_write(&an_object, bytes, sizeof bytes)
         : kind == A_CHUNK ? record_chunk_write(&k, bytes, sizeof bytes)
             : record_header_write(&h, bytes, sizeof bytes);
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    for (enum kind kind = AN_OBJECT; kind <= A_HEADER; kind++) {
        size_t len = write_kind(kind);
        for (size_t bit = 0; bit < len * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(read_kind(kind, span_make(bytes, len)), ERR_RECORD);
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        assert_int_equal(read_kind(kind, span_make(bytes, len)), OK);
    }
}

static void every_truncation_and_extension_is_refused(void **state)
{
    (void)state;
    for (enum kind kind = AN_OBJECT; kind <= A_HEADER; kind++) {
        size_t len = write_kind(kind);
        for (size_t shorter = 0; shorter < len; shorter++) {
            /* Of its own, so that reading past the end is seen. */
            uint8_t *copy = test_malloc(shorter + 1);
            memcpy(copy + 1, bytes, shorter);
            assert_int_equal(read_kind(kind, span_make(copy + 1, shorter)), ERR_RECORD);
            test_free(copy);
        }
        bytes[len] = 0;
        assert_int_equal(read_kind(kind, span_make(bytes, len + 1)), ERR_RECORD);
    }
}

/* Sound as bytes, but not as a record: the CRC is right. */
static void seal(size_t len)
{
    struct out o = {bytes + len - CRC_BYTES};

    put(&o, crc32c(0, bytes, len - CRC_BYTES), CRC_BYTES);
}

static void a_newer_format_is_told_from_damage(void **state)
{
    (void)state;
    for (enum kind kind = AN_OBJECT; kind <= A_CHUNK; kind++) {
        size_t len = write_kind(kind);
        bytes[0] = RECORD_FORMAT + 1;
        seal(len);
        assert_int_equal(read_kind(kind, span_make(bytes, len)), ERR_NEWER);
        bytes[0] = 0;
        seal(len);
        assert_int_equal(read_kind(kind, span_make(bytes, len)), ERR_RECORD);
    }
    write_kind(A_HEADER);
    bytes[8] = RECORD_FORMAT + 1;
    seal(HEADER_PREFIX + CRC_BYTES);
    /* Whatever follows, and however long it is. */
    memset(bytes + HEADER_PREFIX + CRC_BYTES, 0xEE, 200);
    assert_int_equal(read_kind(A_HEADER, span_make(bytes, 200)), ERR_NEWER);
}

static void kinds_are_not_confused(void **state)
{
    (void)state;
    size_t len = write_kind(AN_OBJECT);
    assert_int_equal(read_kind(A_CHUNK, span_make(bytes, len)), ERR_RECORD);
    len = write_kind(A_CHUNK);
    assert_int_equal(read_kind(AN_OBJECT, span_make(bytes, len)), ERR_RECORD);
}

/* earlier: as a version wrote it that knew no checksum of the fixed part. */
static void seal_head(bool earlier)
{
    uint32_t crc = earlier ? 0 : htole32(crc32c(0, bytes, CHUNK_FIXED - 4));

    memcpy(bytes + CHUNK_FIXED - 4, &crc, 4);
}

static void a_head_is_believed_whatever_follows_it(void **state)
{
    struct chunk_record in = a_chunk(CHUNK_BYTES - 5), out;
    size_t len = record_chunk_write(&in, bytes, sizeof bytes);
    uint32_t says;

    (void)state;
    for (size_t there = CHUNK_FIXED; there <= len; there += len - CHUNK_FIXED) {
        memset(bytes + CHUNK_FIXED, 0x55, there - CHUNK_FIXED);
        assert_int_equal(record_chunk_head(span_make(bytes, there), &out), OK);
        assert_head_equal(&out, &in);
        assert_int_equal(record_chunk_verify(span_make(bytes, there), &says), OK);
        assert_int_equal(says, in.bytes);
        assert_int_equal(record_chunk_read(span_make(bytes, there), &out), ERR_RECORD);
    }
    assert_int_equal(record_chunk_head(span_make(bytes, CHUNK_FIXED - 1), &out), ERR_RECORD);
}

static void no_flipped_bit_of_a_head_is_believed(void **state)
{
    struct chunk_record in = a_chunk(CHUNK_BYTES), out;
    size_t len = record_chunk_write(&in, bytes, sizeof bytes);

    (void)state;
    for (size_t bit = 0; bit < CHUNK_FIXED * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(record_chunk_head(span_make(bytes, len), &out), ERR_RECORD);
        seal(len);                   /* nor is what contradicts itself */
        if (bit / 8 < CHUNK_FIXED - 4)
            assert_int_not_equal(record_chunk_read(span_make(bytes, len), &out), OK);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void a_chunk_of_an_earlier_version_is_read_whole(void **state)
{
    struct chunk_record in = a_chunk(CHUNK_BYTES), out;
    size_t len = record_chunk_write(&in, bytes, sizeof bytes);

    (void)state;
    seal_head(true);
    seal(len);
    assert_int_equal(record_chunk_read(span_make(bytes, len), &out), OK);
    assert_head_equal(&out, &in);
    assert_int_equal(record_chunk_head(span_make(bytes, len), &out), ERR_RECORD);
}

static void impossible_chunks_are_refused_both_ways(void **state)
{
    static const struct {
        const char *what;
        uint32_t size;
        int present, crc_count, class_;
        size_t at;                   /* byte of the record that says it */
        uint8_t value;
    } rows[] = {
        {"no block present", BLOCK_BYTES, 0, 8, 0, 2, 0},
        {"a block past the end", BLOCK_BYTES, 3, 8, 0, 2, 3},
        {"a class that cannot be", BLOCK_BYTES, 1, 8, SPACE_CLASSES_MAX, 3, SPACE_CLASSES_MAX},
        {"more than a chunk", CHUNK_BYTES, 1, 64, 0, 28 + 3, 1},
        {"checksums of another size", BLOCK_BYTES, 1, 7, 0, 28 + 2, 0},
        {"fewer checksums than there are", BLOCK_BYTES, 1, 8, 0, CHUNK_FIXED - 8, 7},
        {"more checksums than a chunk has", CHUNK_BYTES, 1, 64, 0, CHUNK_FIXED - 8, 65},
        {"2^32 checksums less a few", BLOCK_BYTES, 1, 8, 0, CHUNK_FIXED - 5, 0xFF},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct chunk_record good = a_chunk(rows[i].size), bad = good, out;
        size_t len = record_chunk_write(&good, bytes, sizeof bytes);
        bytes[rows[i].at] = rows[i].value;
        for (int earlier = 0; earlier < 2; earlier++) {
            seal_head(earlier);
            seal(len);
            if (record_chunk_read(span_make(bytes, len), &out) != ERR_RECORD)
                fail_msg("%s", rows[i].what);
        }
        bad.present = (uint8_t)rows[i].present;
        bad.crc_count = (uint32_t)rows[i].crc_count;
        bad.slot.class_ = (uint8_t)rows[i].class_;
        if (i < 3)
            assert_int_equal(record_chunk_write(&bad, bytes, sizeof bytes), 0);
    }
}

static void lengths_that_lie_are_refused(void **state)
{
    (void)state;
    for (size_t at = 2; at < 20; at++)
        for (unsigned value = 1; value < 256; value += 50) {
            size_t len = write_kind(AN_OBJECT);
            bytes[at] = (uint8_t)(bytes[at] + value);
            seal(len);
            assert_int_equal(read_kind(AN_OBJECT, span_make(bytes, len)), ERR_RECORD);
        }
}

static void what_does_not_fit_writes_nothing(void **state)
{
    static char long_text[RECORD_BYTES_MAX + 1];
    struct chunk_record k = a_chunk(CHUNK_BYTES);
    struct header_record h = {0};

    (void)state;
    size_t len = record_object_write(&an_object, bytes, sizeof bytes);
    assert_int_equal(record_object_write(&an_object, bytes, len - 1), 0);
    assert_int_equal(record_object_write(&an_object, bytes, len), len);
    assert_int_equal(record_chunk_write(&k, bytes, 300), 0);
    assert_int_equal(record_header_write(&h, bytes, RECORD_HEADER_BYTES - 1), 0);
    struct object_record r = an_object;
    r.headers = span_make(long_text, sizeof long_text);
    assert_int_equal(record_object_write(&r, bytes, sizeof bytes), 0);
    r.headers = span_of("");
    r.key = span_make(long_text, KEY_BYTES_MAX + 1);
    assert_int_equal(record_object_write(&r, bytes, sizeof bytes), 0);
    r.key = an_object.key;
    r.parts = span_make(long_text, 7);
    assert_int_equal(record_object_write(&r, bytes, sizeof bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_comes_back),
        cmocka_unit_test(gone_is_never_stored),
        cmocka_unit_test(a_chunk_of_any_size_comes_back),
        cmocka_unit_test(a_header_comes_back),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(every_truncation_and_extension_is_refused),
        cmocka_unit_test(a_newer_format_is_told_from_damage),
        cmocka_unit_test(kinds_are_not_confused),
        cmocka_unit_test(a_head_is_believed_whatever_follows_it),
        cmocka_unit_test(no_flipped_bit_of_a_head_is_believed),
        cmocka_unit_test(a_chunk_of_an_earlier_version_is_read_whole),
        cmocka_unit_test(impossible_chunks_are_refused_both_ways),
        cmocka_unit_test(lengths_that_lie_are_refused),
        cmocka_unit_test(what_does_not_fit_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
