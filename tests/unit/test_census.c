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

static void put_node(unsigned page, unsigned i, unsigned at, unsigned flags, unsigned value_bytes)
{
    put16(map[page] + PAGE_HEAD + 2 * i, at);
    put16(map[page] + at, value_bytes);
    put16(map[page] + at + NODE_FLAGS, flags);
    put16(map[page] + at + NODE_KEY, KEY);
}

/* Three records: of 50 bytes, of none, and one whose value of 5000 bytes stands on page 3. */
enum { SHORT = 4014, EMPTY = 3982, LONG = 3942 };
static struct census with_leaf(void)
{
    struct census c = fresh();

    set_head(2, IS_LEAF, PAGE_HEAD + 6, LONG);
    put_node(2, 0, SHORT, 0, 50);
    put_node(2, 1, EMPTY, 0, 0);
    put_node(2, 2, LONG, NODE_LONG, 5000);
    set_head(3, IS_LONG, 2, 0);
    return c;
}

/* As a walk meets it. */
static bool meet_all(struct census *c)
{
    return census_meet_leaf(c, map[2]) &&
        census_meet_node(c, bytes_at(2, SHORT + 8, KEY), bytes_at(2, SHORT + 32, 50), false) &&
        census_meet_node(c, bytes_at(2, EMPTY + 8, KEY), bytes_at(2, EMPTY + 32, 0), false) &&
        census_meet_node(c, bytes_at(2, LONG + 8, KEY), bytes_at(3, 16, 5000), false);
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
    struct census c = with_leaf();

    (void)state;
    assert_true(meet_all(&c));
    assert_int_equal(seen[0], 1 << 2 | 1 << 3 | 1 << 4);
    set_head(4, IS_LEAF, PAGE_HEAD, PAGE);
    assert_false(census_meet_leaf(&c, map[4]));         /* it is another's value */
    assert_false(census_meet_leaf(&c, map[2]));         /* one leaf in two trees */
    c = with_leaf();
    put_node(2, 0, SHORT, NODE_TREE, 48);
    struct span key = bytes_at(2, SHORT + 8, KEY);
    assert_true(census_meet_node(&c, key, bytes_at(2, SHORT + 32, 48), true));
    assert_false(census_meet_node(&c, key, bytes_at(2, SHORT + 32, 50), true));
    assert_false(census_meet_node(&c, key, bytes_at(2, SHORT + 32, 48), false));
    assert_false(census_meet_node(&c, bytes_at(2, EMPTY + 8, KEY), bytes_at(2, EMPTY + 32, 48),
                                  true));
}

/* A long value's head that claimed 118 million pages held up a start for more than half a minute,
 * as deleting the value gave all those pages back, one by one. */
static void a_head_that_lies_to_writers_is_damage(void **state)
{
    static const struct {
        const char *what;
        unsigned page, at, value;
        bool sound;
    } rows[] = {
        {"as it should be", 2, AT_FLAGS, IS_LEAF, true},
        {"pages kept from a longer one", 3, AT_COUNT, 3, true},
        {"fewer pages than its bytes", 3, AT_COUNT, 1, false},
        {"no pages", 3, AT_COUNT, 0, false},
        {"more pages than the file has", 3, AT_COUNT, 6, false},
        {"millions of pages", 3, AT_COUNT + 2, 1808, false},
        {"a leaf instead of a long value", 3, AT_FLAGS, IS_LEAF, false},
        {"a long value that is being changed", 3, AT_FLAGS, IS_LONG | 0x10, false},
        {"a branch instead of a leaf", 2, AT_FLAGS, IS_BRANCH, false},
        {"a leaf that is being changed", 2, AT_FLAGS, IS_LEAF | 0x10, false},
        {"a leaf that is never written", 2, AT_FLAGS, IS_LEAF | 0x4000, false},
        {"a leaf that is kept", 2, AT_FLAGS, IS_LEAF | 0x8000, false},
        {"no room for the nodes' places", 2, AT_LOWER, 14, false},
        {"a place that is none", 2, AT_LOWER, PAGE_HEAD + 8, false},
        {"free space that ends before it begins", 2, AT_UPPER, PAGE_HEAD, false},
        {"free space beyond the page", 2, AT_UPPER, PAGE + 1, false},
        {"free space that ends later", 2, AT_UPPER, LONG + 1, false},
        {"free space that ends earlier", 2, AT_UPPER, LONG - 100, false},
        {"a node in the free space", 2, PAGE_HEAD, LONG - 2, false},
        {"a node beyond the page", 2, PAGE_HEAD, PAGE - 4, false},
        {"nodes that overlap", 2, EMPTY, 2, false},
        {"a key into the next node", 2, EMPTY + NODE_KEY, KEY + 2, false},
        {"a key that leaves the page", 2, SHORT + NODE_KEY, KEY + 1, false},
        {"a value that leaves the page", 2, SHORT, 51, false},
        {"a shorter value", 2, SHORT, 48, false},
        {"a value of 64 KiB", 2, SHORT + 2, 1, false},
        {"a short value that says it is long", 2, SHORT + NODE_FLAGS, NODE_LONG, false},
        {"a long value that says it is short", 2, LONG + NODE_FLAGS, 0, false},
        {"a value that says it is a tree", 2, SHORT + NODE_FLAGS, NODE_TREE, false},
        {"a value that says it is many", 2, SHORT + NODE_FLAGS, 4, false},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct census c = with_leaf();
        put16(map[rows[i].page] + rows[i].at, rows[i].value);
        if (meet_all(&c) != rows[i].sound)
            fail_msg("%s", rows[i].what);
    }
}

/* A branch on page 2 with nodes that name 3 and 4, which were met. */
enum { FIRST = 4056, SECOND = 4064 };
static struct census with_branch(void)
{
    struct census c = fresh();

    set_head(2, IS_BRANCH, PAGE_HEAD + 4, FIRST);
    put16(map[2] + PAGE_HEAD, FIRST);
    put16(map[2] + FIRST, 3);
    put16(map[2] + PAGE_HEAD + 2, SECOND);
    put16(map[2] + SECOND, 4);
    put16(map[2] + SECOND + NODE_KEY, KEY);
    c.base = map[0];
    c.seen[0] = 1 << 3 | 1 << 4;
    return c;
}

static void branches_are_met_down_to_the_leaves(void **state)
{
    struct census c = with_branch();

    (void)state;
    assert_true(census_meet_branches(&c, UINT64_MAX, 0));        /* nothing in it: no root */
    assert_false(census_meet_branches(&c, 3, 0));
    assert_false(census_meet_branches(&c, UINT64_MAX, 1));
    assert_false(census_meet_branches(&c, 1, 1));
    assert_false(census_meet_branches(&c, 5, 1));                /* no leaf that was met */
    assert_true(census_meet_branches(&c, 3, 1));
    assert_true(census_meet_branches(&c, 2, 2));
    assert_int_equal(seen[0], 1 << 2 | 1 << 3 | 1 << 4);
    assert_false(census_meet_branches(&c, 2, 2));                /* in two trees */
    c = with_branch();
    assert_false(census_meet_branches(&c, 2, 3));                /* leaves where branches must be */
    c = with_branch();
    put16(map[2] + FIRST + 4, 1);                                /* page 4294967299 */
    assert_false(census_meet_branches(&c, 2, 2));
    c = with_branch();
    put16(map[2] + FIRST, 5);                                    /* a leaf that nobody met */
    assert_false(census_meet_branches(&c, 2, 2));
    c = with_branch();
    c.seen[0] = 1 << 5 | 1 << 6;
    for (unsigned i = 3; i <= 4; i++) {
        set_head(i, IS_BRANCH, PAGE_HEAD + 2, PAGE - NODE_HEAD);
        put16(map[i] + PAGE_HEAD, PAGE - NODE_HEAD);
        put16(map[i] + PAGE - NODE_HEAD, i + 2);
    }
    assert_true(census_meet_branches(&c, 2, 3));
    assert_int_equal(seen[0], 0x7c);
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
        {"free space over its nodes", AT_UPPER, FIRST + 1},
        {"free space that ends earlier", AT_UPPER, FIRST - 2},
        {"no room for the nodes' places", AT_LOWER, 14},
        {"a node in the free space", PAGE_HEAD, FIRST - 1},
        {"a node beyond the page", PAGE_HEAD, 4089},
        {"a key beyond the page", SECOND + NODE_KEY, KEY + 1},
        {"a key into the next node", FIRST + NODE_KEY, 1},
        {"a shorter key", SECOND + NODE_KEY, KEY - 2},
        {"what is being changed", AT_FLAGS, IS_BRANCH | 0x10},
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
    assert_int_equal(seen[0], 1 << 3 | 1 << 4);
}

/* The last transaction's meta page is the one that its number says. */
static void a_writer_and_a_reader_begin_at_the_same_meta_page(void **state)
{
    struct census c = fresh();
    const uint64_t txn = 7, root = 5;

    (void)state;
    assert_int_equal(census_root(&c, txn, 1), UINT64_MAX);       /* no page was met yet */
    c.base = map[0];
    memcpy(map[1] + META_TXN, &txn, sizeof txn);
    put16(map[1] + META_TREES + TREE_FLAGS, ORDERED_BY_NUMBER);
    memcpy(map[1] + META_TREES + TREE_BYTES + TREE_ROOT, &root, sizeof root);
    assert_int_equal(census_root(&c, txn, 1), root);
    assert_int_equal(census_root(&c, txn, 0), 0);
    /* many values for a key */
    put16(map[1] + META_TREES + TREE_FLAGS, ORDERED_BY_NUMBER | 4);
    assert_int_equal(census_root(&c, txn, 1), UINT64_MAX);
    put16(map[1] + META_TREES + TREE_FLAGS, ORDERED_BY_NUMBER);
    memcpy(map[0], map[1], PAGE);
    memset(map[1], 0, PAGE);
    assert_int_equal(census_root(&c, txn, 1), UINT64_MAX);
}

static void a_file_that_claims_to_be_much_longer_is_damage(void **state)
{
    static uint8_t many[MIB];
    struct census c = {.seen = many, .last_page = 8 * MIB - 1, .page_bytes = PAGE};
    uint64_t least = c.last_page - (SPARE_PAGES + c.last_page / SPARE_SHARE) + 1;

    (void)state;
    assert_false(census_is_complete(&c));
    assert_true(census_meet(&c, least - 1));
    assert_false(census_is_complete(&c));
    assert_true(census_meet(&c, least));
    assert_true(census_is_complete(&c));
    memset(many, 0, sizeof many);
    c.last_page = SPARE_PAGES / 2;                      /* a new one may have begun to grow */
    assert_true(census_is_complete(&c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_stand_where_they_say_and_belong_to_one),
        cmocka_unit_test(a_record_lies_in_its_leaf_or_in_pages_of_its_own),
        cmocka_unit_test(a_head_that_lies_to_writers_is_damage),
        cmocka_unit_test(branches_are_met_down_to_the_leaves),
        cmocka_unit_test(a_branch_that_lies_is_damage),
        cmocka_unit_test(a_writer_and_a_reader_begin_at_the_same_meta_page),
        cmocka_unit_test(a_file_that_claims_to_be_much_longer_is_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
