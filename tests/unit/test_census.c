/* Pages of an index that were met: each stands where it says, belongs to one, and its head does not
 * lie to who will write there. Over eight pages made by hand; real trees are
 * test_cache_damage.c's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/cache/census.c"

enum { PAGES = 8, PAGE = 4096, KEY = 24 };
static _Alignas(PAGE) uint8_t map[PAGES][PAGE];
static uint8_t seen[1];

static struct census fresh(void)
{
    memset(map, 0, sizeof map);
    for (uint64_t i = 0; i < PAGES; i++)
        memcpy(map[i], &i, sizeof i);
    seen[0] = 0;
    return (struct census){.seen = seen, .last_page = PAGES - 1, .page_bytes = PAGE};
}

static void put16(uint8_t *at, unsigned n)
{
    uint16_t value = (uint16_t)n;

    memcpy(at, &value, sizeof value);
}

/* What a page is, and the two numbers behind. */
static void set_head(unsigned page, unsigned kind, unsigned lower, unsigned upper)
{
    put16(map[page] + AT_FLAGS, kind);
    put16(map[page] + AT_LOWER, lower);
    put16(map[page] + AT_UPPER, upper);
}

static struct span bytes_at(unsigned page, unsigned at, size_t len)
{
    return span_make((const char *)map[page] + at, len);
}

static void pages_stand_where_they_say_and_belong_to_one(void **state)
{
    struct census c = fresh();
    const uint64_t too_high = PAGES, other = 4;

    (void)state;
    assert_true(census_meet_pages(&c, map[2], 1));
    assert_false(census_meet_pages(&c, map[2], 1));
    assert_false(census_meet_pages(&c, map[1], 1));     /* a meta page */
    memcpy(map[3], &too_high, sizeof too_high);
    assert_false(census_meet_pages(&c, map[3], 1));
    memcpy(map[3], &other, sizeof other);
    assert_false(census_meet_pages(&c, map[3], 1));
    c = fresh();
    assert_true(census_meet_pages(&c, map[4], 2 * PAGE + 1));
    assert_int_equal(seen[0], 1 << 4 | 1 << 5 | 1 << 6);
    assert_false(census_meet_pages(&c, map[3], PAGE + 1));       /* reaches into it */
    assert_false(census_meet_pages(&c, map[7], PAGE + 1));       /* leaves the map */
}

static void a_record_lies_in_its_leaf_or_in_pages_of_its_own(void **state)
{
    struct census c = fresh();

    (void)state;
    set_head(2, IS_LEAF, 20, 80);
    set_head(3, IS_LONG, 2, 0);
    put16(map[2] + 400 - NODE_HEAD + NODE_FLAGS, NODE_LONG);
    assert_true(census_meet_leaf(&c, map[2]));
    assert_true(census_meet_node(&c, bytes_at(2, 100, KEY), bytes_at(2, 124, 50), false));
    assert_true(census_meet_node(&c, bytes_at(2, 200, KEY), bytes_at(2, 224, 0), false));
    assert_true(census_meet_node(&c, bytes_at(2, 400, KEY), bytes_at(3, 16, 5000), false));
    assert_int_equal(seen[0], 1 << 2 | 1 << 3 | 1 << 4);
    set_head(4, IS_LEAF, 18, 80);
    assert_false(census_meet_leaf(&c, map[4]));         /* it is another's value */
    assert_false(census_meet_leaf(&c, map[2]));         /* one leaf in two trees */
    put16(map[2] + 100 - NODE_HEAD + NODE_FLAGS, NODE_TREE);
    assert_true(census_meet_node(&c, bytes_at(2, 100, KEY), bytes_at(2, 124, 48), true));
    assert_false(census_meet_node(&c, bytes_at(2, 100, KEY), bytes_at(2, 124, 48), false));
    assert_false(census_meet_node(&c, bytes_at(2, 200, KEY), bytes_at(2, 224, 48), true));
}

/* A long value's head that claimed more than the file holds kept a start busy for minutes, as
 * deleting the value gave all those pages back, one by one. */
static void a_head_that_lies_to_writers_is_damage(void **state)
{
    static const struct {
        const char *what;
        unsigned leaf, lower, upper, node, of_long, count, count_high;
        bool sound;
    } rows[] = {
        {"as it should be", IS_LEAF, 20, 80, NODE_LONG, IS_LONG, 2, 0, true},
        {"pages kept from a longer one", IS_LEAF, 20, 80, NODE_LONG, IS_LONG, 3, 0, true},
        {"fewer pages than its bytes", IS_LEAF, 20, 80, NODE_LONG, IS_LONG, 1, 0, false},
        {"none", IS_LEAF, 20, 80, NODE_LONG, IS_LONG, 0, 0, false},
        {"more than the file has", IS_LEAF, 20, 80, NODE_LONG, IS_LONG, 6, 0, false},
        {"millions", IS_LEAF, 20, 80, NODE_LONG, IS_LONG, 32, 1808, false},
        {"a leaf instead of a long value", IS_LEAF, 20, 80, NODE_LONG, IS_LEAF, 2, 0, false},
        {"a branch instead of a leaf", IS_BRANCH, 20, 80, NODE_LONG, IS_LONG, 2, 0, false},
        {"no room for the nodes' places", IS_LEAF, 14, 80, NODE_LONG, IS_LONG, 2, 0, false},
        {"free space that ends too early", IS_LEAF, 90, 80, NODE_LONG, IS_LONG, 2, 0, false},
        {"free space beyond the page", IS_LEAF, 20, 4097, NODE_LONG, IS_LONG, 2, 0, false},
        {"a node in the free space", IS_LEAF, 20, 393, NODE_LONG, IS_LONG, 2, 0, false},
        {"a node of a tree", IS_LEAF, 20, 80, NODE_TREE, IS_LONG, 2, 0, false},
        {"a value in the leaf that leaves it", IS_LEAF, 20, 80, 0, IS_LONG, 2, 0, false},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct census c = fresh();
        set_head(2, rows[i].leaf, rows[i].lower, rows[i].upper);
        set_head(3, rows[i].of_long, rows[i].count, rows[i].count_high);
        put16(map[2] + 400 - NODE_HEAD + NODE_FLAGS, rows[i].node);
        if ((census_meet_leaf(&c, map[2]) && census_meet_node(&c, bytes_at(2, 400, KEY),
                                                  bytes_at(3, 16, 5000), false)) != rows[i].sound)
            fail_msg("%s", rows[i].what);
    }
}

/* A branch on page 2 with nodes that name 3 and 4. */
static struct census with_branch(void)
{
    struct census c = fresh();

    set_head(2, IS_BRANCH, PAGE_HEAD + 4, 4000);
    for (unsigned i = 0; i < 2; i++) {
        put16(map[2] + PAGE_HEAD + 2 * i, 4000 + 40 * i);
        put16(map[2] + 4000 + 40 * i, 3 + i);
        put16(map[2] + 4000 + 40 * i + NODE_KEY, i * KEY);
    }
    c.base = map[0];
    return c;
}

static void branches_are_met_down_to_the_leaves(void **state)
{
    struct census c = with_branch();

    (void)state;
    assert_true(census_meet_branches(&c, UINT64_MAX, 0));        /* nothing in it: no root */
    assert_true(census_meet_branches(&c, 3, 1));
    assert_int_equal(seen[0], 0);                                /* leaves are met by records */
    assert_true(census_meet_branches(&c, 2, 2));
    assert_int_equal(seen[0], 1 << 2);
    assert_false(census_meet_branches(&c, 2, 2));                /* in two trees */
    c = with_branch();
    assert_false(census_meet_branches(&c, 2, 3));                /* leaves where branches must be */
    for (unsigned i = 3; i <= 4; i++)
        set_head(i, IS_BRANCH, PAGE_HEAD, PAGE);
    c.seen[0] = 0;
    assert_true(census_meet_branches(&c, 2, 3));
    assert_int_equal(seen[0], 1 << 2 | 1 << 3 | 1 << 4);
    c = with_branch();
    put16(map[2] + 4000 + 4, 1);                                 /* page 4294967299 */
    assert_false(census_meet_branches(&c, 2, 3));
}

static void a_branch_that_lies_is_damage(void **state)
{
    static const struct {
        const char *what;
        unsigned at, value;
    } rows[] = {
        {"another page's number", 0, 3},
        {"a leaf", AT_FLAGS, IS_LEAF},
        {"free space beyond the page", AT_UPPER, 4097},
        {"free space over its nodes", AT_UPPER, 4001},
        {"no room for the nodes' places", AT_LOWER, 14},
        {"a node in the free space", PAGE_HEAD, 3999},
        {"a node beyond the page", PAGE_HEAD, 4089},
        {"a key beyond the page", 4000 + NODE_KEY, 89},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct census c = with_branch();
        put16(map[2] + rows[i].at, rows[i].value);
        if (census_meet_branches(&c, 2, 2))
            fail_msg("%s", rows[i].what);
    }
    struct census c = with_branch();
    assert_false(census_meet_branches(&c, 2, DEPTH_MAX + 1));
    assert_false(census_meet_branches(&c, PAGES, 2));
    assert_false(census_meet_branches(&c, UINT64_MAX, 2));
    assert_int_equal(seen[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_stand_where_they_say_and_belong_to_one),
        cmocka_unit_test(a_record_lies_in_its_leaf_or_in_pages_of_its_own),
        cmocka_unit_test(a_head_that_lies_to_writers_is_damage),
        cmocka_unit_test(branches_are_met_down_to_the_leaves),
        cmocka_unit_test(a_branch_that_lies_is_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
