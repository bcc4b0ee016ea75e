/* Checksums of objects of several chunks: blocks in any order, twice, from two fetches at a time;
 * memory for entries has an end. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The object's words are the test's. */
#define object_headers told_headers
#define object_etag told_etag
#include "server/fill/whole.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { SIZE = 9 * MIB + 5, BLOCKS = 10 };

/* ---- the object's words ---- */
static struct span object_says;      /* its fields */

struct span object_headers(const struct object *o)
{
    (void)o;
    return object_says;
}

struct span object_etag(const struct object *o)
{
    (void)o;
    return span_of("");
}

struct world {
    struct fills fills;
    struct server server;
    struct core core;
    struct object object;
    struct buffer buffer;
    char headers[100];
    uint8_t *bytes;                  /* of the object */
};

static void begin(struct world *w, enum payload_kind kind)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    char value[PAYLOAD_VALUE_MAX + 1] = "";

    *w = (struct world){.object = {.size = SIZE}};
    w->server.fills = &w->fills;
    w->core.server = &w->server;
    w->bytes = mem_take(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        w->bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    size_t len = payload_crc_write(kind, payload_crc(kind, w->bytes, SIZE), digest);
    assert_true(base64_write(digest, len, value, sizeof value) > 0);
    snprintf(w->headers, sizeof w->headers, "%s: %s\r\n", payload_kind_field(kind), value);
    object_says = span_of(w->headers);
    assert_int_equal(wholes_open(&w->fills), OK);
}

static void end(struct world *w)
{
    wholes_close(&w->fills);
    mem_give(w->bytes);
}

/* A fetch in which that block of the object has just come. */
static void arrive(struct world *w, struct fetch *f, unsigned block)
{
    *f = (struct fetch){.object = &w->object, .data_id = {.a = 7, .b = 8}};
    f->m.core = &w->core;
    f->number = block / BLOCKS_PER_CHUNK;
    f->at = block % BLOCKS_PER_CHUNK;
    f->bytes = object_chunk_bytes(&w->object, f->number);
    f->got = (uint32_t)min_u64(BLOCK_BYTES, SIZE - (uint64_t)block * BLOCK_BYTES);
    w->buffer.mem = w->bytes + (size_t)block * BLOCK_BYTES;
    f->filling = &w->buffer;
}

static void pass(struct world *w, unsigned block)
{
    struct fetch f;

    arrive(w, &f, block);
    assert_int_equal(whole_check(&f), OK);
    assert_int_equal(whole_note(&f, f.at), OK);
}

static void blocks_in_any_order_and_twice_are_one_object(void **state)
{
    (void)state;
    static const enum payload_kind kinds[] = {PAYLOAD_CRC32, PAYLOAD_CRC32C, PAYLOAD_CRC64NVME};
    static const uint8_t order[] = {9, 3, 0, 3, 8, 1, 2, 7, 9, 4, 6};
    struct fetch last;

    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        struct world w;
        begin(&w, kinds[i]);
        for (size_t n = 0; n < ARRAY_COUNT(order); n++)
            pass(&w, order[n]);
        assert_int_equal(w.fills.wholes->bytes, entry_bytes(SIZE));
        arrive(&w, &last, 5);
        assert_int_equal(whole_check(&last), OK);
        assert_false(last.verify.notes);             /* all is said: nothing is kept of it */
        assert_int_equal(w.fills.wholes->bytes, 0);
        end(&w);
    }
}

static void two_that_are_the_last_at_one_time_are_judged_by_the_later(void **state)
{
    (void)state;
    struct fetch one, other;
    struct world w;

    begin(&w, PAYLOAD_CRC64NVME);
    for (unsigned b = 0; b < BLOCKS - 2; b++)
        pass(&w, b);
    arrive(&w, &one, BLOCKS - 2);
    assert_int_equal(whole_check(&one), OK);
    arrive(&w, &other, BLOCKS - 1);
    assert_int_equal(whole_check(&other), OK);
    assert_int_equal(whole_note(&one, one.at), OK);
    assert_int_equal(w.fills.wholes->bytes, entry_bytes(SIZE));
    assert_int_equal(whole_note(&other, other.at), OK);
    assert_int_equal(w.fills.wholes->bytes, 0);
    end(&w);
}

static void what_cannot_be_put_together_costs_nothing(void **state)
{
    (void)state;
    struct world w;

    begin(&w, PAYLOAD_CRC32);
    object_says = span_of("x-amz-checksum-sha256: "
                               "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\r\n");
    pass(&w, 0);
    object_says = span_of("x-amz-checksum-crc32: NhCmhg==\r\n"
                               "x-amz-checksum-type: COMPOSITE\r\n");
    pass(&w, 0);
    object_says = span_of(w.headers);
    w.object.size = SIZE_MAX_BYTES + 1;
    pass(&w, 0);
    assert_int_equal(w.fills.wholes->bytes, 0);
    end(&w);
}

/* A block that was not fetched as a whole is none. */
static void parts_of_blocks_are_not_noted(void **state)
{
    (void)state;
    struct fetch f;
    struct world w;

    begin(&w, PAYLOAD_CRC32);
    arrive(&w, &f, 1);
    f.got -= GRANULE_BYTES;
    assert_int_equal(whole_check(&f), OK);
    assert_int_equal(whole_note(&f, f.at), OK);
    assert_int_equal(w.fills.wholes->bytes, 0);
    end(&w);
}

static void memory_has_an_end_and_the_oldest_makes_room(void **state)
{
    (void)state;
    struct world w;
    struct fetch f;

    begin(&w, PAYLOAD_CRC32);
    w.object.size = 64 * GIB;
    for (uint64_t n = 0; n < 100; n++) {
        arrive(&w, &f, 0);
        f.data_id.a = n;
        assert_int_equal(whole_check(&f), OK);
        assert_int_equal(whole_note(&f, 0), OK);
        assert_true(w.fills.wholes->bytes <= ENTRIES_BYTES_MAX);
        assert_non_null(find(w.fills.wholes, &f, PAYLOAD_CRC32));
    }
    f.data_id.a = 0;
    assert_null(find(w.fills.wholes, &f, PAYLOAD_CRC32));
    f.data_id.a = 98;
    assert_non_null(find(w.fills.wholes, &f, PAYLOAD_CRC32));
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_in_any_order_and_twice_are_one_object),
        cmocka_unit_test(two_that_are_the_last_at_one_time_are_judged_by_the_later),
        cmocka_unit_test(what_cannot_be_put_together_costs_nothing),
        cmocka_unit_test(parts_of_blocks_are_not_noted),
        cmocka_unit_test(memory_has_an_end_and_the_oldest_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
