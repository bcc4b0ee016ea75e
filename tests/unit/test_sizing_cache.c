/* A scaled cache: what a miss costs and brings, and that it holds its share of the capacity. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/sizing_cache.c"

#include <setjmp.h>

#include <cmocka.h>

enum { ROOM = 64 };

static struct policy *like;
static struct scaled_cache cache;

static int make_cache(void **state)
{
    (void)state;
    like = policy_make("lru", ROOM, ROOM);
    cache = (struct scaled_cache){0};
    const uint64_t bytes = (uint64_t)ROOM * CHUNK_BYTES;
    const struct sizing_room room = {bytes, bytes, bytes};
    return like && scaled_make(&cache, like, &room, 2 * ROOM) == OK ? 0 : -1;
}

static int free_cache(void **state)
{
    (void)state;
    scaled_free(&cache);
    policy_free(like);
    return 0;
}

static uint64_t ask(uint64_t hash, uint32_t bytes, uint8_t blocks, double rate)
{
    const struct sizing_read r = {
        .hash = hash,
        .bytes = bytes,
        .chunk_bytes = CHUNK_BYTES,
        .stored_bytes = CHUNK_BYTES,
        .blocks = blocks,
    };
    return scaled_read(&cache, &r, rate);
}

static void a_second_read_costs_nothing(void **state)
{
    (void)state;
    assert_int_equal(ask(1, CHUNK_BYTES, 0xff, 1), CHUNK_BYTES);
    assert_int_equal(ask(1, CHUNK_BYTES, 0xff, 1), 0);
    assert_int_equal(cache.used, CHUNK_BYTES);
}

/* The rest of a chunk came with its first part, but for whom it came it is a first reading. */
static void each_block_costs_once(void **state)
{
    (void)state;
    for (unsigned b = 0; b < BLOCKS_PER_CHUNK; b++)
        assert_int_equal(ask(2, BLOCK_BYTES, (uint8_t)(1u << b), 1), BLOCK_BYTES);
    assert_int_equal(ask(2, CHUNK_BYTES, 0xff, 1), 0);
    assert_int_equal(ask(3, 2 * BLOCK_BYTES, 3, 1), 2 * BLOCK_BYTES);
    assert_int_equal(ask(3, 4 * BLOCK_BYTES, 0xf, 1), 2 * BLOCK_BYTES);
}

static void what_is_read_once_by_its_readers_word_is_not_let_in(void **state)
{
    (void)state;
    struct sizing_read r = {4, CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, 0, 0xff, true};

    assert_int_equal(scaled_read(&cache, &r, 1), CHUNK_BYTES);
    assert_int_equal(scaled_read(&cache, &r, 1), CHUNK_BYTES);
    assert_int_equal(cache.table.count, 0);
}

/* lru: a loop of what fits hits, of one more misses. */
static void it_holds_the_share_that_is_sampled(void **state)
{
    (void)state;
    for (unsigned pass = 0; pass < 3; pass++)
        for (uint64_t n = 0; n < ROOM / 4; n++)
            assert_int_equal(ask(100 + n, CHUNK_BYTES, 0xff, .25), pass ? 0 : CHUNK_BYTES);
    assert_int_equal(cache.table.count, ROOM / 4);
    ask(99, CHUNK_BYTES, 0xff, .25);
    assert_int_equal(cache.table.count, ROOM / 4);
    assert_false(cache.full);
}

/* ehd, of chunks that were read as often: none of them leaves, and the newcomer has what is
 * lent. */
static void where_nothing_leaves_the_reserve_is_lent(void **state)
{
    (void)state;
    const uint64_t bytes = (uint64_t)ROOM * CHUNK_BYTES;
    const struct sizing_room room = {bytes, bytes / 2, 3 * bytes / 4};
    struct policy *ehd = policy_make("ehd", ROOM, ROOM);

    scaled_free(&cache);
    assert_int_equal(scaled_make(&cache, ehd, &room, 2 * ROOM), OK);
    for (unsigned pass = 0; pass < 8; pass++)
        for (uint64_t n = 0; n < 4 * ROOM; n++)
            ask(n, CHUNK_BYTES, 0xff, 1);
    assert_int_equal(cache.table.count, 3 * ROOM / 4);
    scaled_free(&cache);
    policy_free(ehd);
}

/* lru: everybody is let in. */
static void the_reserve_comes_back_page_by_page_unless_many_are_denied(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < ROOM; n++)
        ask(n, CHUNK_BYTES, 0xff, 1);
    assert_int_equal(cache.table.count, ROOM);
    cache.room.used = cache.room.whole / 2; /* all that it keeps free is in use */
    ask(ROOM, CHUNK_BYTES, 0xff, 1);
    assert_int_equal(cache.table.count, ROOM - 1);
    cache.denied = policy_denials(UINT16_MAX, true);
    assert_true(policy_denies_many(cache.denied));
    ask(ROOM + 1, CHUNK_BYTES, 0xff, 1);
    assert_int_equal(cache.table.count, ROOM - 1);
    for (uint64_t n = 2; n < ROOM; n++)
        ask(ROOM + n, CHUNK_BYTES, 0xff, 1);
    assert_int_equal(cache.table.count, ROOM / 2);
}

/* A page has many of them, of which a small model would have few. */
static void no_more_small_ones_leave_than_were_lent(void **state)
{
    enum { SMALL = 4 * KIB, FIT = ROOM / 2 };
    struct sizing_read r = {0, SMALL, SMALL, SMALL, 0, 1, false};
    (void)state;
    cache.room.used = FIT * SMALL;
    cache.room.lent = cache.room.whole = 2 * FIT * SMALL;
    for (r.hash = 0; r.hash < 2 * FIT; r.hash++)
        (void)scaled_read(&cache, &r, 1);
    assert_int_equal(cache.table.count, FIT);
    for (; cache.table.count < FIT + 4; r.hash++) { /* lent */
        cache.used += SMALL;
        sized_add(&cache.table, r.hash)->bytes = SMALL;
    }
    (void)scaled_read(&cache, &r, 1);
    assert_int_equal(cache.table.count, FIT);
}

static void chunks_above_the_limit_leave(void **state)
{
    (void)state;
    uint32_t limit = UINT32_MAX / 2;

    for (uint64_t n = 0; n < ROOM; n++)
        ask(n, CHUNK_BYTES, 0xff, 1);
    scaled_limit(&cache, limit);
    assert_in_range(cache.table.count, ROOM / 4, 3 * ROOM / 4);
    assert_int_equal(cache.used, (uint64_t)cache.table.count * CHUNK_BYTES);
    for (uint64_t n = 0; n < ROOM; n++)
        assert_int_equal(sized_find(&cache.table, n) != NULL, sizing_wants(limit, n));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, make_cache, free_cache)
    const struct CMUnitTest tests[] = {
        T(a_second_read_costs_nothing),
        T(each_block_costs_once),
        T(what_is_read_once_by_its_readers_word_is_not_let_in),
        T(it_holds_the_share_that_is_sampled),
        T(where_nothing_leaves_the_reserve_is_lent),
        T(the_reserve_comes_back_page_by_page_unless_many_are_denied),
        T(no_more_small_ones_leave_than_were_lent),
        T(chunks_above_the_limit_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
