/* Names of sections and pins: where they lead, what they cover, what a restart finds again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"
#include "tests/lib/cache_kill.h"

#include "server/cache/rules.c"

static bool pinned(struct cache_case *t, const char *bucket, const char *key)
{
    const struct okey k = {.bucket = span_of(bucket), .key = span_of(key)};
    return rules_judge(t->c, &k).pinned;
}

static void a_pin_covers_its_bucket_or_what_begins_with_its_prefix(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    assert_false(pinned(t, "b", "k"));
    assert_int_equal(cache_pin(t->c, span_of("b/dir/part-"), 0), OK);
    assert_true(pinned(t, "b", "dir/part-1") && pinned(t, "b", "dir/part-"));
    assert_false(pinned(t, "b", "dir/part") || pinned(t, "bb", "dir/part-1"));
    assert_int_equal(cache_pin(t->c, span_of("c"), 0), OK);
    assert_int_equal(cache_pin(t->c, span_of("d/"), 0), OK);
    assert_true(pinned(t, "c", "any") && pinned(t, "d", "any") && pinned(t, "c", ""));
    assert_int_equal(cache_unpin(t->c, span_of("c")), OK);
    assert_false(pinned(t, "c", "any"));
    case_end(t);
}

static void names_that_are_none_are_refused(void **state)
{
    static char longest[CACHE_PIN_BYTES], longer[CACHE_PIN_BYTES + 1];
    struct cache_case *t = open_case(1);

    (void)state;
    memset(longest, 'k', sizeof longest - 1);
    longest[BUCKET_BYTES_MAX] = '/';
    memset(longer, 'k', sizeof longer - 1);
    longer[BUCKET_BYTES_MAX] = '/';
    assert_int_equal(cache_pin(t->c, span_of(""), 0), ERR_SYNTAX);
    assert_int_equal(cache_pin(t->c, span_of("/k"), 0), ERR_SYNTAX);
    assert_int_equal(cache_pin(t->c, span_make("b/k\0x", 5), 0), ERR_SYNTAX);
    assert_int_equal(cache_pin(t->c, span_of(longer), 0), ERR_TOO_LARGE);
    assert_int_equal(cache_pin(t->c, span_of(longest), 0), OK);
    case_reopen(t);
    assert_int_equal(cache_unpin(t->c, span_of(longest)), OK);
    case_end(t);
}

static void a_pin_ends_by_the_clock_and_can_be_given_another_end(void **state)
{
    struct cache_case *t = open_case(1);
    uint64_t now_s = clock_wall_s();
    struct cache_pin list[4];

    (void)state;
    assert_int_equal(cache_pin(t->c, span_of("b"), now_s + 1000), OK);
    assert_int_equal(cache_pin(t->c, span_of("b"), now_s + 2000), OK);
    assert_int_equal(cache_pins(t->c, list, 4), 1);
    assert_int_equal(list[0].until_s, now_s + 2000);
    assert_true(pinned(t, "b", "k"));
    assert_int_equal(cache_pin(t->c, span_of("b"), now_s), OK);
    assert_false(pinned(t, "b", "k"));
    cache_rules_tick(t->c, &t->config);
    assert_int_equal(cache_pins(t->c, list, 4), 0);
    case_reopen(t);
    assert_int_equal(cache_pins(t->c, list, 4), 0);
    case_end(t);
}

static void there_is_room_for_so_many_pins(void **state)
{
    struct cache_case *t = open_case(2);
    static struct cache_pin list[CACHE_PINS_MAX + 1];
    char name[32];

    (void)state;
    for (unsigned i = 0; i < CACHE_PINS_MAX; i++) {
        snprintf(name, sizeof name, "b/%u-", i);
        assert_int_equal(cache_pin(t->c, span_of(name), i), OK);
    }
    assert_false(cache_may_pin(t->c, span_of("more")));
    assert_true(cache_may_pin(t->c, span_of("b/77-")));
    assert_int_equal(cache_pin(t->c, span_of("more"), 0), ERR_FULL);
    assert_int_equal(cache_unpin(t->c, span_of("b/77-")), OK);
    assert_true(cache_may_pin(t->c, span_of("more")));
    assert_int_equal(cache_pin(t->c, span_of("more"), 0), OK);
    assert_int_equal(cache_pins(t->c, list, ARRAY_COUNT(list)), CACHE_PINS_MAX);
    case_end(t);
}

static bool fill_and_pin(struct cache_case *t)
{
    struct object *o = case_learn(t, "kept/1", "\"1\"", 3 * (uint64_t)CHUNK_BYTES);

    for (unsigned n = 0; n < 3; n++)
        if (case_fill(t, o, n) != OK)
            return false;
    return cache_pin(t->c, span_of("bucket/kept/"), 0) == OK && cache_state_sync(t->c, 10000);
}

static void pins_survive_kill_9_and_hold_before_anything_is_evicted(void **state)
{
    struct cache_case *t = case_make(1);
    struct cache_status s;

    (void)state;
    case_open_killed(t, fill_and_pin);
    cache_status(t->c, &s);
    assert_true(s.chunks == 3 && s.pinned_bytes == 3 * CHUNK_BYTES && !s.marking);
    case_end(t);
}

static void a_name_leads_to_its_upstream_and_what_that_calls_the_bucket(void **state)
{
    struct cache_case *t = case_make(1);
    struct config *c = &t->config;

    (void)state;
    c->upstream_count = 2;
    c->upstream[0].bucket = c->upstream[1].bucket = "";
    c->upstream[1].match.item[0] = "theirs";
    c->upstream[1].match.count = 1;
    c->upstream[1].bucket = "real";
    t->server.store_of[1] = 1;
    snprintf(t->server.store[1], sizeof t->server.store[1], "other.test:443/");
    t->server.store_count = 2;
    assert_int_equal(case_open(t), OK);
    assert_int_equal(cache_pin(t->c, span_of("theirs/x"), 0), OK);
    struct okey k = {.bucket = span_of("real"), .key = span_of("x1"), .store = 1};
    assert_true(rules_judge(t->c, &k).pinned);
    k.store = 0;
    assert_false(rules_judge(t->c, &k).pinned);
    k.bucket = span_of("theirs");
    assert_false(rules_judge(t->c, &k).pinned);
    case_end(t);
}

static void what_cannot_be_read_is_no_pin(void **state)
{
    static const struct {
        const char *name, *value;
    } rows[] = {
        {"pin/256", "0 b"}, {"pin/x", "0 b"}, {"pin/001", "b"}, {"pin/002", "0 /k"},
        {"pin/003", "-1 b"}, {"pin/004", "0 "},
    };
    struct cache_case *t = open_case(1);
    struct cache_pin list[4];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        assert_int_equal(cache_state_put(t->c, span_of(rows[i].name), span_of(rows[i].value)), OK);
    assert_int_equal(cache_state_put(t->c, span_of("pin/005"), span_of("0 b")), OK);
    assert_int_equal(cache_state_put(t->c, span_of("pin/006"), span_of("0 b")), OK);
    case_reopen(t);
    assert_int_equal(cache_pins(t->c, list, 4), 1);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pin_covers_its_bucket_or_what_begins_with_its_prefix),
        cmocka_unit_test(names_that_are_none_are_refused),
        cmocka_unit_test(a_pin_ends_by_the_clock_and_can_be_given_another_end),
        cmocka_unit_test(there_is_room_for_so_many_pins),
        cmocka_unit_test(pins_survive_kill_9_and_hold_before_anything_is_evicted),
        cmocka_unit_test(a_name_leads_to_its_upstream_and_what_that_calls_the_bucket),
        cmocka_unit_test(what_cannot_be_read_is_no_pin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
