/* Groups: found by bytes, the longest prefix first, declared ones, their limit, tags and
 * generations. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/ehd_groups.c"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

static uint32_t idle_for[EHD_GROUPS];

static uint32_t idle_of(const struct ehd *e, unsigned group)
{
    (void)e;
    return idle_for[group];
}

static const struct ehd_idle idle = {idle_of, NULL, 1000};

static struct ehd_prefixes *make(void)
{
    struct ehd_prefixes *s = ehd_prefixes_make(1000 * GROUP_BYTES);

    assert_non_null(s);
    assert_int_equal(s->group_bytes, GROUP_BYTES);
    memset(idle_for, 0, sizeof idle_for);
    return s;
}

static unsigned find(struct ehd_prefixes *s, const char *key, uint64_t bytes)
{
    return ehd_prefixes_find(s, span_of("b"), span_of(key), bytes, &idle);
}

static void the_longest_prefix_with_enough_bytes_is_a_group(void **state)
{
    (void)state;
    struct ehd_prefixes *s = make();

    assert_int_equal(find(s, "train/a/1", GROUP_BYTES / 2), 0);
    assert_int_equal(find(s, "train/a/2", GROUP_BYTES / 2 - 1), 0);
    unsigned tag = find(s, "train/a/3", 1);
    assert_int_not_equal(tag, 0);
    assert_int_equal(find(s, "train/a/9", 0), tag);
    assert_int_equal(find(s, "train/b/1", 0), 0); /* a neighbour */
    assert_int_equal(find(s, "train/a", 0), 0);
    assert_int_equal(find(s, "top", 0), 0);
    assert_int_equal(ehd_prefixes_count(s), 2);
    ehd_prefixes_free(s);
}

/* A thousand directories of a little each are one group: what they have in common. */
static void small_directories_join_in_their_parent(void **state)
{
    (void)state;
    struct ehd_prefixes *s = make();
    char key[40];

    for (unsigned n = 0; n < 1000; n++) {
        snprintf(key, sizeof key, "images/n%04u/1.jpeg", n);
        find(s, key, GROUP_BYTES / 1000 + 1);
    }
    unsigned tag = find(s, "images/n0001/2.jpeg", 0);
    assert_int_not_equal(tag, 0);
    assert_int_equal(find(s, "images/new/1.jpeg", 0), tag);
    assert_int_equal(find(s, "other/1.jpeg", 0), 0);
    /* One of them grows: it is told apart from then on. */
    unsigned own = find(s, "images/n0001/3.jpeg", GROUP_BYTES);
    assert_int_not_equal(own, tag);
    assert_int_equal(ehd_prefixes_parent(s, own % EHD_GROUPS), tag % EHD_GROUPS);
    assert_int_equal(find(s, "images/n0002/2.jpeg", 0), tag);
    ehd_prefixes_free(s);
}

static void a_group_tells_the_prefix_it_stands_for(void **state)
{
    (void)state;
    struct ehd_prefixes *s = make(), *next = make();
    char name[POLICY_NAME_BYTES];

    uint16_t tag = (uint16_t)find(s, "train/a/1", GROUP_BYTES);
    assert_int_equal(ehd_prefixes_name(s, tag, name), 10);
    assert_memory_equal(name, "b/train/a/", 10);
    assert_int_equal(ehd_prefixes_name(s, 0, name), 0);
    assert_int_equal(ehd_prefixes_name(s, (uint16_t)(tag + EHD_GROUPS), name), 0);
    ehd_prefixes_declare(s, span_of("b/im"));
    ehd_prefixes_declare(s, span_of("c"));
    tag = (uint16_t)find(s, "images/1", 0);
    assert_int_equal(ehd_prefixes_name(s, tag, name), 4);
    assert_memory_equal(name, "b/im", 4);
    tag = ehd_prefixes_find(s, span_of("c"), span_of("k"), 0, &idle);
    assert_int_equal(ehd_prefixes_name(s, tag, name), 2);
    assert_memory_equal(name, "c/", 2);
    /* One that was restored is known by its hash until a key of it is seen. */
    unsigned g =
        ehd_prefixes_adopt(next, ehd_prefixes_hash(s, find(s, "train/a/1", 0) % EHD_GROUPS));
    tag = ehd_prefixes_tag(next, g);
    assert_int_equal(ehd_prefixes_name(next, tag, name), 0);
    assert_int_equal(find(next, "train/a/2", 0), tag);
    assert_int_equal(ehd_prefixes_name(next, tag, name), 10);
    ehd_prefixes_free(s);
    ehd_prefixes_free(next);
}

static void declared_ones_are_groups_from_the_start(void **state)
{
    (void)state;
    struct ehd_prefixes *s = make();

    ehd_prefixes_declare(s, span_of(""));
    ehd_prefixes_declare(s, span_of("b/train/imagenet-"));
    ehd_prefixes_declare(s, span_of("b/eval/"));
    ehd_prefixes_declare(s, span_of("b"));
    ehd_prefixes_declare(s, span_of("b"));       /* said twice */
    assert_int_equal(ehd_prefixes_count(s), 4);
    unsigned bucket = find(s, "x", 0), train = find(s, "train/imagenet-1k/0.tar", 0);
    unsigned eval = find(s, "eval/0.tar", 0);
    assert_true(bucket && train && eval && bucket != train && train != eval && eval != bucket);
    assert_int_equal(find(s, "train/image", 0), bucket);
    assert_int_equal(ehd_prefixes_find(s, span_of("bb"), span_of("x"), 0, &idle), 0);
    ehd_prefixes_free(s);
}

static void the_one_idle_for_longest_makes_room(void **state)
{
    (void)state;
    struct ehd_prefixes *s = make();
    unsigned tag[EHD_GROUPS];
    char key[40];

    ehd_prefixes_declare(s, span_of("declared"));
    for (unsigned n = 2; n < EHD_GROUPS; n++) {
        snprintf(key, sizeof key, "d%u/1", n);
        tag[n] = find(s, key, GROUP_BYTES);
        assert_int_equal(tag[n] % EHD_GROUPS, n);
    }
    assert_int_equal(ehd_prefixes_count(s), EHD_GROUPS);
    assert_int_equal(find(s, "new/1", GROUP_BYTES), 0); /* all are in use */
    idle_for[1] = 9000;              /* declared: stays */
    idle_for[7] = 2000;
    idle_for[9] = 3000;
    uint16_t generation = ehd_prefixes_generation(s);
    unsigned next = find(s, "new/1", GROUP_BYTES);
    assert_int_equal(next % EHD_GROUPS, 9);
    assert_int_not_equal(next, tag[9]);          /* old marks are not its own */
    assert_int_not_equal(generation, ehd_prefixes_generation(s));
    assert_int_equal(find(s, "d9/1", 0), 0);
    assert_int_equal(find(s, "d7/1", 0), tag[7]);
    ehd_prefixes_free(s);
}

static void a_long_key_is_looked_at_as_far_as_it_goes(void **state)
{
    (void)state;
    struct ehd_prefixes *s = make();
    char key[KEY_BYTES_MAX + 1];

    memset(key, '/', sizeof key);
    key[KEY_BYTES_MAX] = '\0';
    for (unsigned n = 0; n < 2 * EHD_GROUPS; n++)
        find(s, key, GROUP_BYTES);
    assert_true(ehd_prefixes_count(s) <= EHD_GROUPS);
    ehd_prefixes_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_prefix_with_enough_bytes_is_a_group),
        cmocka_unit_test(small_directories_join_in_their_parent),
        cmocka_unit_test(a_group_tells_the_prefix_it_stands_for),
        cmocka_unit_test(declared_ones_are_groups_from_the_start),
        cmocka_unit_test(the_one_idle_for_longest_makes_room),
        cmocka_unit_test(a_long_key_is_looked_at_as_far_as_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
