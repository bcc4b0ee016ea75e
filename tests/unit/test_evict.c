/* Who leaves a full disk when next uses are known; how many are looked at; what is told of chunks
 * that were fetched ahead. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include "server/cache/evict.c"

enum { CHUNKS = 28 };

static bool is_here(struct cache_case *t, const struct object *o, uint64_t number)
{
    struct chunk *k = chunk_find(t->c, o->data_id, number);

    if (k)
        chunk_drop(t->c, k);
    return k != NULL;
}

/* A disk full of an object's first chunks. Each one in so many is needed, one after the other; the
 * others are not, as their plan says. */
static struct object *fill_planned(struct cache_case *t, unsigned one_in)
{
    t->config.cache_policy = CASE_EHD;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    struct object *o = case_learn(t, "a", "\"1\"", 100 * (uint64_t)CHUNK_BYTES);
    for (uint64_t number = 0; number < CHUNKS; number++) {
        assert_int_equal(case_fill(t, o, number), OK);
        struct chunk *k = chunk_find(t->c, o->data_id, number);
        if (number % one_in)
            chunk_plan_beyond(t->c, k, 900 * (uint64_t)CHUNK_BYTES);
        else
            chunk_plan(t->c, k, (20 + number % CHUNKS) * CHUNK_BYTES);
        chunk_drop(t->c, k);
    }
    return o;
}

/* Every other chunk is needed. A few newcomers, let in by order, take room of the latter. */
static void a_full_disk_gives_up_what_no_plan_needs_soon(void **state)
{
    enum { NEWCOMERS = 3, GONE_MOST = 4 * NEWCOMERS };
    struct cache_case *t = case_make(1);
    struct object *o = fill_planned(t, 2);
    unsigned needed = 0, others = 0;

    (void)state;
    for (uint64_t number = CHUNKS; number < CHUNKS + NEWCOMERS; number++) {
        struct chunk_asked by_order = {.bytes = CHUNK_BYTES, .again = CHUNK_BYTES, .keep = true};
        case_settle(t);
        assert_int_equal(case_fill_as(t, o, number, by_order), OK);
    }
    for (uint64_t number = 0; number < CHUNKS; number += 2) {
        needed += is_here(t, o, number);
        others += is_here(t, o, number + 1);
    }
    assert_int_equal(needed, CHUNKS / 2);
    assert_in_range(others, CHUNKS / 2 - GONE_MOST, CHUNKS / 2 - 1);
    object_drop(t->c, o);
    case_end(t);
}

static unsigned all_here(struct cache_case *t, const struct object *o)
{
    unsigned count = 0;

    for (uint64_t number = 0; number < o->size / CHUNK_BYTES; number++)
        count += is_here(t, o, number);
    return count;
}

/* Half of what comes is denied, the other half let in: the reserve, lent before, is not taken back
 * for that. Two left for each: in a loop behind a scan that was 3 % of the hits. */
static void one_leaves_for_one_that_is_let_in_where_many_are_not(void **state)
{
    enum { ROUNDS = 24, WARM = 16 };
    struct cache_case *t = case_make(1);
    struct object *o = fill_planned(t, 1);

    (void)state;
    for (uint64_t n = 0; n < ROUNDS; n++) {
        struct chunk_asked by_order = {.bytes = CHUNK_BYTES, .again = CHUNK_BYTES, .keep = true};
        case_settle(t);
        enum err err = case_fill(t, o, CHUNKS + ROUNDS + n);
        case_settle(t);
        unsigned before = all_here(t, o);
        assert_int_equal(case_fill_as(t, o, CHUNKS + n, by_order), OK);
        if (n >= WARM) {
            assert_int_equal(err, ERR_DENIED);
            assert_int_equal(all_here(t, o), before);
        }
    }
    object_drop(t->c, o);
    case_end(t);
}

/* An object of a quarter of a page, which nobody knows yet. */
static enum err fill_quarter(struct cache_case *t, unsigned number, struct chunk_asked asked)
{
    char key[16];

    snprintf(key, sizeof key, "q%u", number);
    struct object *o = case_learn(t, key, "\"1\"", CHUNK_BYTES / 4);
    enum err err = case_fill_as(t, o, 0, asked);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    if (k) {
        chunk_plan(t->c, k, (20 + number % CHUNKS) * CHUNK_BYTES);
        chunk_drop(t->c, k);
    }
    object_drop(t->c, o);
    return err;
}

/* A disk full of such, all of which are needed; then rounds of three that are let in by order,
 * beside nine that are worth less, and a commit. Who found a free slot of the class was let in
 * unasked, and the others found none before the next commit: of popular objects of that size a
 * cache lost 5 % of its hits. */
static void free_slots_of_a_full_disk_are_for_those_who_are_let_in(void **state)
{
    enum { ROUNDS = 24, WARM = 16, EACH = 3, DENIED = 9 };
    struct cache_case *t = case_make(1);
    struct chunk_asked by_order = {
        .bytes = CHUNK_BYTES / 4, .again = CHUNK_BYTES / 4, .keep = true};
    struct chunk_asked once = {.bytes = CHUNK_BYTES / 4};
    unsigned next = 0;

    (void)state;
    t->config.cache_policy = CASE_EHD;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    while (next < 4 * CHUNKS)
        assert_int_equal(fill_quarter(t, next++, by_order), OK);
    for (unsigned n = 0; n < ROUNDS; n++) {
        for (unsigned i = 0; i < EACH + DENIED; i++) {
            enum err err = fill_quarter(t, next++, i % 4 ? once : by_order);
            if (n >= WARM)
                assert_int_equal(err, i % 4 ? ERR_DENIED : OK);
        }
        case_settle(t);
    }
    case_end(t);
}

static void more_are_looked_at_where_one_is_planned(void **state)
{
    (void)state;
    struct policy *p = policy_make("ehd", 100, 100);
    struct chunk plain = {.holds = 1}, planned = {.holds = 1}, held = {.holds = 2};
    struct victim best = {.value = INFINITY};

    assert_non_null(p);
    policy_plan(p, &planned.mark, CHUNK_BYTES);
    policy_plan_beyond(p, &held.mark, 400 * (uint64_t)CHUNK_BYTES);
    victim_look(p, &plain, &best);
    assert_false(best.planned);
    assert_int_equal(victim_looks(&best, POLICY_LOOKS), POLICY_LOOKS);
    victim_look(p, &planned, &best);
    assert_true(best.planned);
    assert_int_equal(victim_looks(&best, POLICY_LOOKS), POLICY_LOOKS_PLANNED);
    assert_true(best.value == policy_value(p, &plain.mark)); /* the nearer one stays */
    victim_look(p, &held, &best);
    assert_true(best.value == policy_value(p, &plain.mark)); /* nobody takes it from its holder */
    assert_true(best.planned && !best.pinned);
    policy_free(p);
}

/* Whether it was worth fetching ahead: by its first reader, or by nobody until it left. */
static void what_was_fetched_ahead_was_used_or_wasted_once(void **state)
{
    struct cache_case *t = case_make(1);
    struct chunk_asked ahead = {.bytes = CHUNK_BYTES, .ahead = true};

    (void)state;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    struct object *o = case_learn(t, "a", "\"1\"", 3 * (uint64_t)CHUNK_BYTES);
    assert_int_equal(case_fill_as(t, o, 0, ahead), OK);
    assert_int_equal(case_fill_as(t, o, 1, ahead), OK);
    assert_int_equal(case_fill(t, o, 2), OK);
    for (unsigned n = 0; n < 6; n++) {
        struct chunk *k = chunk_find(t->c, o->data_id, n % 2 * 2);
        chunk_reference(t->c, o, k, MIB);
        chunk_drop(t->c, k);
    }
    assert_int_equal(atomic_load(&t->c->ahead_read), CHUNK_BYTES);
    assert_int_equal(atomic_load(&t->c->ahead_lost), 0);
    cache_evict(t->c, o);
    assert_int_equal(atomic_load(&t->c->ahead_read), CHUNK_BYTES);
    assert_int_equal(atomic_load(&t->c->ahead_lost), CHUNK_BYTES);
    object_drop(t->c, o);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_gives_up_what_no_plan_needs_soon),
        cmocka_unit_test(one_leaves_for_one_that_is_let_in_where_many_are_not),
        cmocka_unit_test(free_slots_of_a_full_disk_are_for_those_who_are_let_in),
        cmocka_unit_test(more_are_looked_at_where_one_is_planned),
        cmocka_unit_test(what_was_fetched_ahead_was_used_or_wasted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
