/* What upstream's answers say of an object's age, and what becomes of that when it is packed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"

#include "server/cache/packed.h"

static int begin(void **state)
{
    struct cache_case *t = open_case(1);

    learner_close(t->c);             /* the hand moves when it is told to */
    *state = t;
    return 0;
}

static int end(void **state)
{
    case_end(*state);
    return 0;
}

/* Is it young behind such an answer? */
static bool answered(struct cache_case *t, uint64_t asked_ms, const char *headers, bool young)
{
    struct okey k = case_key(t, "a");
    struct object_facts f = {.size = 10, .last_modified_s = 1600000000, .asked_ms = asked_ms,
                             .etag = span_of("\"1\""), .headers = span_of(headers),
                             .flags = OBJECT_STABLE | (young ? OBJECT_YOUNG : 0u),
                             .epoch = cache_epoch(t->c, &k)};
    struct object *o;

    assert_int_equal(cache_learn(t->c, &k, &f, &o), OK);
    uint32_t flags = atomic_load(&o->flags);
    object_drop(t->c, o);
    assert_int_equal(flags & ~(uint32_t)OBJECT_YOUNG, OBJECT_STABLE);
    return flags & OBJECT_YOUNG;
}

static void the_last_answer_says_whether_it_is_young(void **state)
{
    struct cache_case *t = *state;
    uint64_t at = t->asked_ms;

    assert_true(answered(t, at, "", true));
    assert_false(answered(t, at + 3000, "", false));
    assert_false(answered(t, at + 1000, "", true)); /* overtaken */
    assert_true(answered(t, at + 4000, "", true));
    assert_true(answered(t, at + 2000, "", false));
    assert_false(answered(t, at + 5000, "", false));
    /* another entry of the same generation */
    assert_true(answered(t, at + 6000, "x-amz-meta-a: b\r\n", true));
    assert_false(answered(t, at + 7000, "x-amz-meta-a: c\r\n", false));
}

static bool is_packed(struct cache_case *t, const char *key)
{
    const void *item = index_object_item(t->c, case_key(t, key).id);

    assert_non_null(item);
    return item_is_packed(item);
}

/* Written and read at once; behind that it may be read for as long as it is here, and nobody asks
 * upstream again. */
static void a_young_one_is_packed_as_any_and_comes_back_without_that(void **state)
{
    static const uint32_t with[] = {0, OBJECT_STABLE};
    struct cache_case *t = *state;

    for (unsigned i = 0; i < 2; i++) {
        struct object *o = case_learn(t, i ? "b" : "a", "\"1\"", 4096);
        atomic_fetch_or(&o->flags, OBJECT_YOUNG | with[i]);
        assert_int_equal(case_fill(t, o, 0), OK);
        object_drop(t->c, o);
    }
    case_settle(t);
    packing_round(t->c, 0);
    for (unsigned i = 0; i < 2; i++) {
        const char *key = i ? "b" : "a";
        assert_true(is_packed(t, key));
        struct object *o = case_find(t, key);
        assert_int_equal(atomic_load(&o->flags), with[i]);
        assert_int_equal(case_read(t, o, 0, 0), OK);
        object_drop(t->c, o);
    }
}

/* Of the other flags that a packed one cannot say nothing is left out. */
static void one_whose_bytes_are_distrusted_stays_as_it_is(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", 4096);

    atomic_fetch_or(&o->flags, OBJECT_YOUNG | OBJECT_DISTRUSTED);
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
    case_settle(t);
    packing_round(t->c, 0);
    assert_false(is_packed(t, "a"));
}

#define WITH_CACHE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CACHE(the_last_answer_says_whether_it_is_young),
        WITH_CACHE(a_young_one_is_packed_as_any_and_comes_back_without_that),
        WITH_CACHE(one_whose_bytes_are_distrusted_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
