/* The sample: found by hash, swept, bounded per group without losing sight of small groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/ehd_sample.c"

#include <setjmp.h>

#include <cmocka.h>

static void put(struct ehd_sample *s, uint64_t hash, unsigned group)
{
    ehd_sample_add(
        s, &(struct ehd_seen){.hash = hash, .last = (uint32_t)hash, .tag = (uint16_t)group});
}

static bool keep_even(void *arg, const struct ehd_seen *seen)
{
    (*(unsigned *)arg)++;
    return seen->hash % 2 == 0;
}

static bool keep_none(void *arg, const struct ehd_seen *seen)
{
    (void)arg;
    (void)seen;
    return false;
}

static bool keep_all(void *arg, const struct ehd_seen *seen)
{
    (void)seen;
    (*(unsigned *)arg)++;
    return true;
}

static void what_was_added_is_found_until_it_is_swept_out(void **state)
{
    (void)state;
    struct ehd_sample *s = ehd_sample_make(1000, false);
    unsigned seen = 0;

    for (unsigned round = 0; round < 30; round++) {  /* places are used again */
        for (uint64_t hash = 1; hash <= 4000; hash++) {
            put(s, hash + 10000 * round, 3);
            put(s, hash + 10000 * round, 3);
        }
        seen = 0;
        ehd_sample_sweep(s, keep_even, &seen);
        assert_int_equal(seen, 4000);
        for (uint64_t hash = 1; hash <= 4000; hash++) {
            struct ehd_seen *e = ehd_sample_find(s, hash + 10000 * round, 3);
            assert_int_equal(e != NULL, hash % 2 == 0);
            if (e)
                assert_int_equal(e->last, hash + 10000 * round);
        }
        ehd_sample_sweep(s, keep_none, &seen);
        assert_int_equal(s->count, 0);
    }
    ehd_sample_free(s);
}

/* All of them would be the first two million of the index, and each refresh would sort them. */
static void a_start_with_millions_takes_as_few_as_are_wanted_of_all(void **state)
{
    (void)state;
    enum { MANY = 3 * 1000 * 1000, PARTS = 8 };
    struct ehd_sample *s = ehd_sample_make(MANY, false);
    unsigned seen = 0, part[PARTS] = {0};

    for (uint64_t n = 0; n < MANY; n++)
        ehd_sample_resume(s, &(struct ehd_seen){.hash = n * 0x9E3779B97F4A7C15, .tag = 2});
    for (uint64_t n = 0; n < 500; n++)
        ehd_sample_resume(s, &(struct ehd_seen){.hash = n << 40 | 1, .tag = 1});
    assert_true(s->count < 20 * SEEN_PER_GROUP);
    ehd_sample_sweep(s, keep_all, &seen);
    assert_in_range(s->of_group[2], SEEN_PER_GROUP / 2, 2 * SEEN_PER_GROUP);
    assert_int_equal(s->of_group[1], 500);
    for (uint64_t n = 0; n < MANY; n++)
        part[n / (MANY / PARTS)] += ehd_sample_find(s, n * 0x9E3779B97F4A7C15, 2) != NULL;
    for (unsigned i = 0; i < PARTS; i++)
        assert_in_range(part[i], s->of_group[2] / PARTS / 2, s->of_group[2] / PARTS * 2);
    ehd_sample_free(s);
}

static void a_large_group_is_thinned_and_a_small_one_is_not(void **state)
{
    (void)state;
    struct ehd_sample *s = ehd_sample_make(1000 * 1000, false);
    unsigned seen = 0, small = 0;

    for (uint64_t hash = 1; hash <= 500; hash++)
        put(s, hash << 40, 1);
    for (uint64_t hash = 1; hash <= 200 * 1000; hash++) {
        put(s, hash, 2);
        if (hash % 1000 == 0)
            ehd_sample_sweep(s, keep_all, &seen);
    }
    for (unsigned n = 0; n < 5; n++)
        ehd_sample_sweep(s, keep_all, &seen);
    assert_in_range(s->of_group[2], SEEN_PER_GROUP / 2, SEEN_PER_GROUP);
    assert_int_equal(s->of_group[1], 500);
    for (uint64_t hash = 1; hash <= 500; hash++)
        small += ehd_sample_find(s, hash << 40, 1) != NULL;
    assert_int_equal(small, 500);
    ehd_sample_free(s);
}

static void it_is_never_fuller_than_its_memory(void **state)
{
    (void)state;
    struct ehd_sample *s = ehd_sample_make(1, false);

    for (uint64_t hash = 1; hash <= 10000; hash++)
        put(s, hash, (unsigned)(hash % EHD_GROUPS));
    assert_true(s->count <= s->cap);
    ehd_sample_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_found_until_it_is_swept_out),
        cmocka_unit_test(a_start_with_millions_takes_as_few_as_are_wanted_of_all),
        cmocka_unit_test(a_large_group_is_thinned_and_a_small_one_is_not),
        cmocka_unit_test(it_is_never_fuller_than_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
