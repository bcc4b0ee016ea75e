/* When a dataset is filled in the background, and when that is tried again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/jobs/background.c"

static void more_than_a_tenth_has_to_be_read(void **state)
{
    static const struct {
        uint64_t read, listed;
        bool warm;
    } rows[] = {
        {0, 0, false}, {0, 9, false}, {1, 9, true}, {1, 10, false}, {2, 10, true}, {1, 15, false},
        {2, 19, true}, {2, 20, false}, {100, 1000, false}, {101, 1000, true}, {7, 0, true},
        {1000, 1000, true}, {UINT64_MAX / 10, UINT64_MAX, false},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++)
        assert_int_equal(background_is_warm(false, rows[i].read, rows[i].listed), rows[i].warm);
}

static void with_always_one_object_is_enough(void **state)
{
    (void)state;
    assert_true(background_is_warm(true, 1, 1000 * 1000));
    assert_false(background_is_warm(true, 0, 10));
    assert_false(background_is_warm(true, 0, 0));
}

static void all_that_is_missing_has_to_fit_and_some_room_is_left(void **state)
{
    (void)state;
    assert_true(background_fits(0, 0));
    assert_false(background_fits(1, 0));
    assert_true(background_fits(31 * MIB, 32 * MIB));
    assert_false(background_fits(31 * MIB + 1, 32 * MIB));
    assert_true(background_fits(UINT64_MAX / 2, UINT64_MAX));
}

static void what_was_short_has_to_be_there_before_it_is_listed_again(void **state)
{
    struct background_group g = {.prefix = "b/train/", .read = 3};

    (void)state;
    assert_true(background_may_begin(&g, 1000, 8 * MIB)); /* nothing is known: a list tells */
    g.listed = 100;
    background_settle(&g, BACKGROUND_COLD, 1000);
    g.read = 11;
    assert_false(background_may_begin(&g, 1000 + AGAIN_MS - 1, 8 * MIB));
    assert_true(background_may_begin(&g, 1000 + AGAIN_MS, 8 * MIB));
    g.read = 10;
    assert_false(background_may_begin(&g, 1000 + AGAIN_MS, 8 * MIB));
    g.always = true;
    assert_true(background_may_begin(&g, 1000 + AGAIN_MS, 8 * MIB));
    g.left_bytes = 8 * MIB;
    background_settle(&g, BACKGROUND_NO_ROOM, 1000);
    assert_false(background_may_begin(&g, 1000 + AGAIN_MS, 8 * MIB));
    assert_true(background_may_begin(&g, 1000 + AGAIN_MS, 9 * MIB));
    background_settle(&g, BACKGROUND_FULL, 1000);
    assert_false(background_may_begin(&g, 1000 + AGAIN_MS, GIB));
    assert_true(background_may_begin(&g, 1000 + FULL_AGAIN_MS, GIB));
    assert_false(background_may_begin(&g, 1000 + FULL_AGAIN_MS, 0));
}

static void what_is_whole_is_looked_at_again_an_hour_later(void **state)
{
    struct background_group g = {.prefix = "b/", .read = 5, .listed = 5, .left_bytes = 1};

    (void)state;
    background_settle(&g, BACKGROUND_ALL, 7);
    assert_false(background_may_begin(&g, 7 + HOUR_MS - 1, MIB));
    assert_true(background_may_begin(&g, 7 + HOUR_MS, MIB));
    g.prefix[0] = '\0';
    assert_false(background_may_begin(&g, 7 + HOUR_MS, MIB));
}

static void one_that_was_turned_off_is_counted_anew(void **state)
{
    struct background_group g = {.prefix = "b/", .read = 1, .listed = 50, .left_bytes = GIB};

    (void)state;
    background_settle(&g, BACKGROUND_OFF, 0);
    assert_true(background_may_begin(&g, AGAIN_MS, MIB));
}

static void places_are_found_again_and_those_that_are_read_stay(void **state)
{
    static struct background b;
    char name[32];

    (void)state;
    for (unsigned i = 0; i < BACKGROUND_GROUPS; i++) {
        snprintf(name, sizeof name, "b/%u/", i);
        struct background_group *g = find(&b, name);
        assert_ptr_equal(find(&b, name), g);
        g->read = 1;
        g->again_ms = i;
    }
    assert_null(find(&b, "b/more/"));
    b.group[7].read = b.group[9].read = 0;
    struct background_group *g = find(&b, "b/more/");
    assert_ptr_equal(g, &b.group[7]);
    assert_true(g->read == 0 && g->again_ms == 0 && strcmp(g->prefix, "b/more/") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_a_tenth_has_to_be_read),
        cmocka_unit_test(with_always_one_object_is_enough),
        cmocka_unit_test(all_that_is_missing_has_to_fit_and_some_room_is_left),
        cmocka_unit_test(what_was_short_has_to_be_there_before_it_is_listed_again),
        cmocka_unit_test(what_is_whole_is_looked_at_again_an_hour_later),
        cmocka_unit_test(one_that_was_turned_off_is_counted_anew),
        cmocka_unit_test(places_are_found_again_and_those_that_are_read_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
