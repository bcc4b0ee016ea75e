/* Ghosts of the pool: taken once, until their span is over, the oldest of a set forgotten first. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/cache/pool_ghosts.c"

enum { GHOSTS = 64, SPAN = 100 };

static struct pool_ghost memory[GHOSTS];
static struct pool_ghosts ghosts;

static int begin(void **state)
{
    (void)state;
    memset(memory, 0, sizeof(memory));
    ghosts = (struct pool_ghosts){.ghost = memory, .mask = GHOSTS - 1, .span = SPAN};
    return 0;
}

/* Of one set if their low numbers are those of one set. */
static uint64_t hash_of(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 33 | low;
}

static void a_ghost_is_taken_once(void **state)
{
    (void)state;
    assert_false(pool_ghosts_take(&ghosts, hash_of(1, 5)));
    pool_ghosts_add(&ghosts, hash_of(1, 5), 1);
    assert_false(pool_ghosts_take(&ghosts, hash_of(2, 5)));
    assert_false(pool_ghosts_take(&ghosts, hash_of(1, 9)));
    assert_true(pool_ghosts_take(&ghosts, hash_of(1, 5)));
    assert_false(pool_ghosts_take(&ghosts, hash_of(1, 5)));
}

static void a_ghost_lives_for_its_span(void **state)
{
    (void)state;
    pool_ghosts_add(&ghosts, hash_of(1, 0), 1);
    pool_ghosts_add(&ghosts, hash_of(2, 0), 1);
    pool_ghosts_add(&ghosts, hash_of(3, 8), SPAN - 1);
    assert_true(pool_ghosts_take(&ghosts, hash_of(1, 0)));
    pool_ghosts_add(&ghosts, hash_of(4, 8), 1);
    assert_true(pool_ghosts_take(&ghosts, hash_of(2, 0)));
    pool_ghosts_add(&ghosts, hash_of(5, 8), SPAN);
    assert_false(pool_ghosts_take(&ghosts, hash_of(3, 8)));
    assert_true(pool_ghosts_take(&ghosts, hash_of(5, 8)));
}

static void a_full_set_forgets_its_oldest(void **state)
{
    (void)state;
    for (uint32_t n = 0; n <= POOL_GHOST_WAYS; n++)
        pool_ghosts_add(&ghosts, hash_of(n, 7), 1);
    pool_ghosts_add(&ghosts, hash_of(9, 8), 1);
    assert_false(pool_ghosts_take(&ghosts, hash_of(0, 7)));
    for (uint32_t n = 1; n <= POOL_GHOST_WAYS; n++)
        assert_true(pool_ghosts_take(&ghosts, hash_of(n, 7)));
    assert_true(pool_ghosts_take(&ghosts, hash_of(9, 8)));
}

static void the_clock_may_wrap(void **state)
{
    (void)state;
    ghosts.clock = UINT32_MAX - 1;
    for (uint32_t n = 0; n <= POOL_GHOST_WAYS; n++)
        pool_ghosts_add(&ghosts, hash_of(n, 0), 1);
    assert_false(pool_ghosts_take(&ghosts, hash_of(0, 0)));
    assert_true(pool_ghosts_take(&ghosts, hash_of(1, 0)));
    pool_ghosts_add(&ghosts, hash_of(8, 4), SPAN + 1);
    assert_false(pool_ghosts_take(&ghosts, hash_of(2, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_ghost_is_taken_once, begin),
        cmocka_unit_test_setup(a_ghost_lives_for_its_span, begin),
        cmocka_unit_test_setup(a_full_set_forgets_its_oldest, begin),
        cmocka_unit_test_setup(the_clock_may_wrap, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
