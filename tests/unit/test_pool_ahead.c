/* Memory of the pool is touched before it is lent: how much of it, and how far that moves on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/pool_ahead.c"

#include <setjmp.h>

#include <cmocka.h>

#include "tests/lib/await.h"

enum { FRAMES = 128, AHEAD = FRAMES / AHEAD_PART, PAGE = 4 * KIB, REST_MS = 50 };

static struct pool *make_of(uint32_t frames)
{
    struct pool *p = mem_take_aligned(sizeof *p, _Alignof(struct pool));
    void *map = mmap(NULL, FRAMES * (size_t)POOL_FRAME_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_non_null(p);
    assert_ptr_not_equal(map, MAP_FAILED);
    memset(p, 0, sizeof *p);
    (void)madvise(map, FRAMES * (size_t)POOL_FRAME_BYTES, MADV_NOHUGEPAGE); /* to the page */
    p->memory = map;
    p->frames = frames;
    return p;
}

static struct pool *make(void)
{
    return make_of(FRAMES);
}

static void drop(struct pool *p)
{
    pool_ahead_close(p);
    assert_int_equal(munmap(p->memory, FRAMES * (size_t)POOL_FRAME_BYTES), 0);
    mem_give(p);
}

/* Every page of that frame is there. */
static bool is_touched(const struct pool *p, uint32_t frame)
{
    unsigned char there[POOL_FRAME_BYTES / PAGE];

    assert_int_equal(mincore(p->memory + frame * (size_t)POOL_FRAME_BYTES, POOL_FRAME_BYTES, there),
                     0);
    for (unsigned i = 0; i < sizeof there; i++)
        if (!(there[i] & 1))
            return false;
    return true;
}

static uint32_t touched(const struct pool *p)
{
    uint32_t n = 0;

    while (n < FRAMES && is_touched(p, n))
        n++;
    return n;
}

/* So many come, and no more. */
static void expect_touched(const struct pool *p, uint32_t frames)
{
    AWAIT(touched(p) >= frames);
    poll(NULL, 0, REST_MS);          /* what is too much would come now */
    assert_int_equal(touched(p), frames);
}

static void lend(struct pool *p, uint32_t to)
{
    while (p->fresh < to) {
        p->fresh++;
        pool_ahead_move(p);
    }
}

static void a_quarter_is_touched_that_nobody_used_yet(void **state)
{
    struct pool *p = make();

    (void)state;
    pool_ahead_open(p);
    assert_true(p->ahead.runs);
    expect_touched(p, AHEAD);
    lend(p, POOL_AHEAD_STEP);        /* enough is left */
    expect_touched(p, AHEAD);
    lend(p, 2 * POOL_AHEAD_STEP);
    expect_touched(p, 2 * POOL_AHEAD_STEP + AHEAD);
    lend(p, FRAMES);
    expect_touched(p, FRAMES);
    drop(p);
}

static void a_small_pool_has_less_ahead_and_nothing_behind_its_end(void **state)
{
    enum { SMALL = 37 };
    struct pool *p = make_of(SMALL);

    (void)state;
    pool_ahead_open(p);
    expect_touched(p, 10);          /* nine, in steps of two */
    lend(p, SMALL);                  /* told at 16 and at 32 */
    expect_touched(p, SMALL);
    drop(p);
}

static void what_was_lent_keeps_its_bytes(void **state)
{
    struct pool *p = make();

    (void)state;
    for (uint32_t n = 0; n < FRAMES; n++)
        p->memory[n * (size_t)POOL_FRAME_BYTES + n] = (uint8_t)(n + 1);
    pool_ahead_open(p);
    lend(p, FRAMES);
    expect_touched(p, FRAMES);
    for (uint32_t n = 0; n < FRAMES; n++)
        assert_int_equal(p->memory[n * (size_t)POOL_FRAME_BYTES + n], n + 1);
    drop(p);
}

static void it_ends_while_it_waits(void **state)
{
    struct pool *p = make();

    (void)state;
    drop(p);                         /* was never opened */
    p = make();
    pool_ahead_open(p);
    expect_touched(p, AHEAD);
    drop(p);
}

static void without_a_thread_all_goes_on(void **state)
{
    struct pool *p = make();

    (void)state;
    lend(p, FRAMES);
    assert_int_equal(touched(p), 0);
    drop(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quarter_is_touched_that_nobody_used_yet),
        cmocka_unit_test(a_small_pool_has_less_ahead_and_nothing_behind_its_end),
        cmocka_unit_test(what_was_lent_keeps_its_bytes),
        cmocka_unit_test(it_ends_while_it_waits),
        cmocka_unit_test(without_a_thread_all_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
