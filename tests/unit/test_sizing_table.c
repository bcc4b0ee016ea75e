/* The table of sampled chunks: found under their hash whatever was removed, no more than fit. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/sizing_table.c"

#include <setjmp.h>

#include <cmocka.h>

static void chunks_are_found_until_they_are_removed(void **state)
{
    (void)state;
    enum { ROOM = 1000 };
    struct sized_table t = {0};

    assert_int_equal(sized_make(&t, ROOM), OK);
    for (uint64_t n = 0; n < ROOM; n++)
        sized_add(&t, n)->bytes = (uint32_t)n;
    assert_null(sized_add(&t, ROOM));
    for (uint64_t n = 0; n < ROOM; n += 3)
        sized_remove(&t, sized_find(&t, n));
    assert_int_equal(t.count, ROOM - (ROOM + 2) / 3);
    for (uint64_t n = 0; n < ROOM; n++) {
        const struct sized_chunk *k = sized_find(&t, n);
        if (n % 3 == 0) {
            assert_null(k);
            continue;
        }
        assert_non_null(k);
        assert_int_equal(k->bytes, n);
    }
    for (uint64_t n = 0; n < ROOM; n += 3)
        assert_non_null(sized_add(&t, n));
    assert_int_equal(t.count, ROOM);
    sized_free(&t);
}

static void the_last_one_leaves_as_any_other(void **state)
{
    (void)state;
    struct sized_table t = {0};

    assert_int_equal(sized_make(&t, 4), OK);
    struct sized_chunk *k = sized_add(&t, 7);
    assert_ptr_equal(sized_find(&t, 7), k);
    sized_remove(&t, k);
    assert_null(sized_find(&t, 7));
    assert_int_equal(t.count, 0);
    sized_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_found_until_they_are_removed),
        cmocka_unit_test(the_last_one_leaves_as_any_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
