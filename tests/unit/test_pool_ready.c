/* Memory of the pool that is made ready ahead of use: how much of it, and that it changes nothing.
 *
 * Life: each test has a pool of its own and the thread that looks after it.
 * Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/pool_ready.c"

#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/pool_fakes.h"

#include "tests/lib/await.h"

enum { MANY = 4 * (2 * POOL_READY_AHEAD), TAKEN = 200 };

static uint64_t ready_frames(struct cache *c)
{
    return status(c).ready_bytes / POOL_FRAME_BYTES;
}

/* Of the pages of so many frames from `from` on those that have memory. */
static uint64_t resident(struct cache *c, uint32_t from, uint32_t frames)
{
    static unsigned char page[MANY * (POOL_FRAME_BYTES / 4096)];
    uint64_t count = 0, pages = frames * (uint64_t)POOL_FRAME_BYTES / 4096;

    assert_int_equal(mincore(c->pool->memory + from * (uint64_t)POOL_FRAME_BYTES,
                             frames * (size_t)POOL_FRAME_BYTES, page), 0);
    for (uint64_t i = 0; i < pages; i++)
        count += page[i] & 1;
    return count;
}

static void a_part_is_there_at_the_start_and_the_rest_ahead_of_use(void **state)
{
    (void)state;
    struct cache c = open_pool(MANY);
    struct buffer *b[TAKEN];

    assert_int_equal(resident(&c, 0, MANY), 0);
    pool_ready_begin(c.pool);
    assert_int_equal(c.pool->ready_first, allowed() / 2 >= MANY * MIB ? MANY / AT_START : 0);
    uint32_t first = c.pool->ready_first > 0 ? c.pool->ready_first : POOL_READY_AHEAD;
    AWAIT(ready_frames(&c) >= first);
    assert_int_equal(ready_frames(&c), first);
    assert_int_equal(resident(&c, 0, first), first * (MIB / 4096));
    assert_int_equal(resident(&c, first, MANY - first), 0);
    for (unsigned i = 0; i < TAKEN; i++) {
        b[i] = pool_take(&c, MIB, BUFFER_DEMAND);
        assert_non_null(b[i]);
    }
    /* It is told when half of what is ahead is gone. */
    AWAIT(ready_frames(&c) >= TAKEN + POOL_READY_AHEAD / 2);
    assert_true(ready_frames(&c) <= TAKEN + POOL_READY_AHEAD + STEP_FRAMES);
    for (unsigned i = 0; i < TAKEN; i++)
        pool_give(&c, b[i]);
    close_pool(&c);
}

/* Buffers are taken and filled where the thread is at work. */
static void bytes_that_are_written_meanwhile_stay(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        struct cache c = open_pool(MANY);
        struct buffer *b[MANY];
        unsigned count = 0;

        pool_ready_begin(c.pool);
        AWAIT(ready_frames(&c) > 0);
        for (; count < MANY && (b[count] = pool_take(&c, MIB, BUFFER_DEMAND)); count++)
            for (size_t at = 0; at < MIB; at += 4096)
                memcpy(b[count]->mem + at, &count, sizeof count);
        assert_int_equal(count, MANY);
        for (unsigned i = 0; i < count; i++) {
            for (size_t at = 0; at < MIB; at += 4096)
                assert_memory_equal(b[i]->mem + at, &i, sizeof i);
            pool_give(&c, b[i]);
        }
        close_pool(&c);
    }
}

static void a_small_pool_is_ready_as_a_whole(void **state)
{
    (void)state;
    struct cache c = open_pool(7);   /* no multiple of what is made at once */

    pool_ready_begin(c.pool);
    AWAIT(ready_frames(&c) == 7);
    assert_int_equal(resident(&c, 0, 7), 7 * (MIB / 4096));
    close_pool(&c);
}

static uint64_t number_of(const char *text)
{
    char path[] = "/tmp/headpond-limit-XXXXXX";
    int fd = mkstemp(path);

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    uint64_t n = number_in(path);
    close(fd);
    unlink(path);
    return n;
}

static void a_limit_is_a_number_or_none(void **state)
{
    (void)state;
    assert_int_equal(number_of("268435456\n"), 268435456);
    assert_true(number_of("max\n") == UINT64_MAX);
    assert_true(number_of("") == UINT64_MAX);
    assert_true(number_in("/nowhere/memory.max") == UINT64_MAX);
}

static void it_ends_in_the_middle_of_its_work(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 50; round++) {
        struct cache c = open_pool(64);

        pool_ready_begin(c.pool);
        pool_close(c.pool);
    }
    struct cache never = open_pool(8); /* nor without having begun */
    pool_close(never.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_there_at_the_start_and_the_rest_ahead_of_use),
        cmocka_unit_test(bytes_that_are_written_meanwhile_stay),
        cmocka_unit_test(a_small_pool_is_ready_as_a_whole),
        cmocka_unit_test(a_limit_is_a_number_or_none),
        cmocka_unit_test(it_ends_in_the_middle_of_its_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
