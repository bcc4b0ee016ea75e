/* Versions of a key by their names: a write without version may be one of the current version's
 * fields, and which one that is only the store knows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/write_case.h"

static void an_answer_about_a_version_of_before_a_write_without_one_teaches_nothing(void **state)
{
    struct cache_case *t = open_case(0);
    struct okey k = key_at(t, "a", "v1");
    struct epoch before = cache_epoch(t->c, &k);
    struct cache_write w;

    (void)state;
    begin_write(t, &w, "a");
    assert_int_equal(learn_at(t, &k, "\"1\"", before), ERR_CHANGED);
    assert_true(cache_is_written(t->c, cache_epoch(t->c, &k)));
    cache_write_end(t->c, &w, false);
    assert_int_equal(learn_at(t, &k, "\"1\"", before), ERR_CHANGED);
    assert_int_equal(learn_at(t, &k, "\"1\"", cache_epoch(t->c, &k)), OK);
    assert_false(is_doubtful(t, "a", "v1"));
    case_end(t);
}

static void keep_version(struct cache_case *t, const char *key, const char *version)
{
    struct okey k = key_at(t, key, version);

    assert_int_equal(learn_at(t, &k, "\"1\"", cache_epoch(t->c, &k)), OK);
    struct object *o = cache_find(t->c, &k);
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
}

static void write_a_and_record_its_version(struct cache_case *t)
{
    struct okey k = key_at(t, "a", "v1");
    struct object *o = cache_find(t->c, &k);

    write_a(t);
    /* While it is under way a record is made anew, and so younger than the write's number. */
    index_save(t->c, o);
    object_drop(t->c, o);
    case_settle(t);
}

static void a_crash_behind_a_write_leaves_versions_of_its_key_in_doubt(void **state)
{
    static void (*const plays[])(struct cache_case *) = {write_a, write_a_and_record_its_version};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(plays); i++) {
        struct cache_case *t = open_case(2);
        keep_version(t, "a", "v1");
        keep_version(t, "b", "v1");
        close_case(t);
        crash_after(t, plays[i]);
        assert_true(is_doubtful(t, "a", "v1"));
        assert_false(is_doubtful(t, "b", "v1"));
        struct okey k = key_at(t, "a", "v1");
        assert_int_equal(learn_at(t, &k, "\"1\"", cache_epoch(t->c, &k)), OK);
        assert_false(is_doubtful(t, "a", "v1"));
        case_reopen(t);
        assert_false(is_doubtful(t, "a", "v1"));
        case_end(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_about_a_version_of_before_a_write_without_one_teaches_nothing),
        cmocka_unit_test(a_crash_behind_a_write_leaves_versions_of_its_key_in_doubt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
