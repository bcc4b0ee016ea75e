/* Memory of chunks: heads and CRCs of all sizes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/chunk_memory.c"

#include <setjmp.h>

#include <cmocka.h>

static int begin(void **state)
{
    struct cache *c = mem_take(sizeof *c);

    c->cells = cells_make();
    c->sums = cells_make();
    *state = c;
    return c->cells && c->sums ? 0 : -1;
}

static int end(void **state)
{
    struct cache *c = *state;

    cells_free(c->sums);
    cells_free(c->cells);
    mem_give(c);
    return 0;
}

/* Heads and CRCs of every size have memory that nobody else has: each is written from end to
 * end. */
static void a_chunk_has_its_checksums(void **state)
{
    struct cache *c = *state;
    enum { COUNT = 150 };
    static const uint32_t size[] = {1, GRANULE_BYTES + 1, BLOCK_BYTES, BLOCK_BYTES + 1,
                                    CHUNK_BYTES};
    struct chunk *some[ARRAY_COUNT(size)];
    void *whole[COUNT];
    uint32_t most = CHUNK_BYTES / GRANULE_BYTES;

    for (unsigned i = 0; i < ARRAY_COUNT(size); i++) {
        some[i] = chunk_take(c, size[i]);
        assert_non_null(some[i]);
        assert_int_equal(some[i]->bytes, size[i]);
        memset(some[i]->crc, (int)i + 1, (size[i] + GRANULE_BYTES - 1) / GRANULE_BYTES * 4);
    }
    assert_int_equal(chunk_take_heads(c, COUNT, whole), COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        uint32_t crc[CHUNK_BYTES / GRANULE_BYTES];
        for (uint32_t g = 0; g < most; g++)
            crc[g] = htole32(i * most + g);
        assert_null(chunk_sums(whole[i]));
        assert_true(chunk_add_sums(c, whole[i], span_make(crc, sizeof crc)));
    }
    for (unsigned i = 0; i < COUNT; i++)
        for (uint32_t g = 0; g < most; g++)
            assert_int_equal(((struct chunk *)whole[i])->crc[g], i * most + g);
    for (unsigned i = 0; i < ARRAY_COUNT(size); i++) {
        assert_int_equal(some[i]->bytes, size[i]);
        for (uint32_t g = 0; g < (size[i] + GRANULE_BYTES - 1) / GRANULE_BYTES; g++)
            assert_int_equal(some[i]->crc[g], 0x01010101u * (i + 1));
        chunk_give(c, some[i]);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(((struct chunk *)whole[i])->bytes, CHUNK_BYTES);
        chunk_give(c, whole[i]);
    }
}

/* The sizes that are charged are those that are taken and given. */
static void the_parts_of_a_chunk_are_its_size(void **state)
{
    (void)state;
    for (uint32_t bytes = 1; bytes <= CHUNK_BYTES; bytes += GRANULE_BYTES / 2) {
        uint32_t sums = (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * 4;
        assert_int_equal(chunk_size(bytes), sizeof(struct chunk) + sums);
        assert_true(chunk_sums_size(bytes) == 0 || chunk_sums_size(bytes) == sums);
    }
    assert_int_equal(chunk_sums_size(BLOCK_BYTES), 0);
    assert_int_not_equal(chunk_sums_size(CHUNK_BYTES), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_chunk_has_its_checksums, begin, end),
        cmocka_unit_test(the_parts_of_a_chunk_are_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
