/* Checksums of objects in parts: kept only if they say what they are of. Delete markers. The other
 * fields that are kept stand in test_reply.c, as they are replayed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/fill/keep.c"

static char memory[16 * KIB];
static struct arena arena;

#define TEXT_19 "0123456789abcdef012"
#define TEXT_95 TEXT_19 TEXT_19 TEXT_19 TEXT_19 TEXT_19

static const struct http_head *head_of(const char *status, const char *fields)
{
    static char bytes[8 * KIB];
    static struct http_head head;
    size_t used;
    int len = snprintf(bytes, sizeof bytes, "HTTP/1.1 %s\r\nContent-Length: 1\r\n%s\r\n", status,
                       fields);

    assert_int_equal(http_parse_response(bytes, (size_t)len, false, &head, &used), HTTP_OK);
    return &head;
}

/* What is kept of these fields of an answer to a GET of all, or to a HEAD. */
static struct span kept_of(const char *fields)
{
    struct span kept = {NULL, 0};

    arena_reset(&arena);
    assert_int_equal(fill_headers_keep(head_of("200 OK", fields), &arena, &kept), OK);
    return kept;
}

static void vague_sums_are_not_kept(void **state)
{
    static const struct {
        const char *fields, *kept;
    } row[] = {
        /* in one piece: the bytes' */
        {"ETag: \"e\"\r\nx-amz-checksum-crc32: AAAAAA==\r\n", "x-amz-checksum-crc32: AAAAAA==\r\n"},
        /* in parts, and nobody says of what */
        {"ETag: \"e-2\"\r\nx-amz-checksum-crc32: AAAAAA==\r\n", ""},
        {"ETag: \"e-2\"\r\nX-Amz-Checksum-SHA256: AAAA\r\nx-amz-meta-a: 1\r\n",
         "x-amz-meta-a: 1\r\n"},
        {"x-amz-checksum-crc64nvme: AAAA\r\nETag: \"e-10000\"\r\n", ""},
        /* the type says it, whichever it is, before the sum or behind it */
        {"ETag: \"e-2\"\r\nx-amz-checksum-type: FULL_OBJECT\r\nx-amz-checksum-crc32: AAAAAA==\r\n",
         "x-amz-checksum-type: FULL_OBJECT\r\nx-amz-checksum-crc32: AAAAAA==\r\n"},
        {"ETag: \"e-2\"\r\nx-amz-checksum-crc32: AAAAAA==\r\nx-amz-checksum-type: COMPOSITE\r\n",
         "x-amz-checksum-crc32: AAAAAA==\r\nx-amz-checksum-type: COMPOSITE\r\n"},
        /* the number of parts behind the value says it */
        {"ETag: \"e-2\"\r\nx-amz-checksum-crc32: AAAAAA==-2\r\n",
         "x-amz-checksum-crc32: AAAAAA==-2\r\n"},
        /* not a sum */
        {"ETag: \"e-2\"\r\nx-amz-checksum-algorithm: CRC32\r\n",
         "x-amz-checksum-algorithm: CRC32\r\n"},
        /* one is vague, the other is not */
        {"ETag: \"e-2\"\r\nx-amz-checksum-sha1: AAAA\r\nx-amz-checksum-crc32: AAAAAA==-2\r\n",
         "x-amz-checksum-crc32: AAAAAA==-2\r\n"},
        /* a name that only begins like one; and an empty value */
        {"ETag: \"e-2\"\r\nx-amz-checksums: 7\r\n", "x-amz-checksums: 7\r\n"},
        {"ETag: \"e-2\"\r\nx-amz-checksum-crc32:\r\n", ""},
    };

    (void)state;
    arena_init(&arena, memory, sizeof memory, sizeof memory);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct span kept = kept_of(row[i].fields);
        if (!span_is(kept, row[i].kept))
            fail_msg("%u: %s -> %.*s", i, row[i].fields, (int)kept.len, kept.at);
    }
}

static void what_is_said_of_a_delete_marker_is_kept(void **state)
{
    static const struct {
        const char *fields, *version;
        bool marker;
        uint64_t modified_s;
    } row[] = {
        {"x-amz-version-id: v\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "", false, 0},
        {"x-amz-delete-marker: false\r\nx-amz-version-id: v\r\n", "", false, 0},
        {"x-amz-delete-marker: true\r\n", "", true, 0},
        {"X-Amz-Delete-Marker: True\r\nx-amz-version-id: v\r\nLast-Modified: never\r\n", "v", true,
         0},
        {"x-amz-delete-marker: true\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
         "x-amz-version-id: " TEXT_95 "\r\n", TEXT_95, true, 784111777},
        {"x-amz-delete-marker: true\r\nx-amz-version-id: " TEXT_95 "x\r\n", "", true, 0},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct upstream_error e = {.status = 404};
        fill_marker_keep(head_of("404 Not Found", row[i].fields), &e);
        assert_int_equal(e.marker, row[i].marker);
        assert_string_equal(e.version, row[i].version);
        assert_int_equal(e.last_modified_s, row[i].modified_s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vague_sums_are_not_kept),
        cmocka_unit_test(what_is_said_of_a_delete_marker_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
