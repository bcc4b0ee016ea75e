/* Ghosts of chunks: taken once, the oldest of a set forgotten first. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/ghosts.c"

#include <setjmp.h>

#include <cmocka.h>

static void they_are_remembered_and_the_oldest_forgotten(void **state)
{
    (void)state;
    struct ghosts g = {0};
    struct policy_mark m = {0}, back;
    unsigned known = 0, young = 0;

    assert_int_equal(ghosts_make(&g, 1024), OK);
    assert_int_equal(g.sets * GHOST_WAYS, 1024);
    for (uint32_t n = 0; n < 100000; n++) {      /* hash 0 among them */
        m.last = n;
        ghosts_add(&g, n, &m, n);
        m.last = n + 1;                          /* said again: replaced, not doubled */
        ghosts_add(&g, n, &m, n);
    }
    for (uint32_t n = 0; n < 100000; n++)
        if (ghosts_take(&g, n, &back)) {
            known++;
            young += n >= 100000 - 2048;
            assert_int_equal(back.last, n + 1);
            assert_false(ghosts_take(&g, n, &back));
        }
    assert_int_equal(known, 1024);
    assert_true(young > 1000);
    ghosts_add(&g, 0, &m, 0);
    assert_true(ghosts_take(&g, 0, &back));
    ghosts_free(&g);
}

static void few_and_none_are_fine(void **state)
{
    (void)state;
    struct ghosts g = {0};
    struct policy_mark back;

    assert_int_equal(ghosts_make(&g, 0), OK);
    ghosts_add(&g, 9, &(struct policy_mark){.count = 4}, 0);
    assert_false(ghosts_take(&g, 9, &back));
    ghosts_free(&g);
    assert_int_equal(ghosts_make(&g, 1), OK);
    ghosts_add(&g, 9, &(struct policy_mark){.count = 4}, 0);
    assert_true(ghosts_take(&g, 9, &back));
    assert_int_equal(back.count, 4);
    ghosts_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_remembered_and_the_oldest_forgotten),
        cmocka_unit_test(few_and_none_are_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
