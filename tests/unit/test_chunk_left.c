/* Chunks that leave the index while somebody fills or holds them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include "server/cache/index_chunks.c"

static int begin(void **state)
{
    struct cache_case *t = case_make(1);

    *state = t;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    return 0;
}

static int end(void **state)
{
    case_end(*state);
    return 0;
}

static void leave(struct cache_case *t, struct chunk *k)
{
    struct index_shard *stripe = index_shard(t->c->stripe, k->object_id);

    pthread_mutex_lock(&stripe->lock);
    assert_true(chunk_remove(t->c, k, true, EVICT_REQUEST));
    pthread_mutex_unlock(&stripe->lock);
}

/* Found, gone, and only then looked at: its object is still there, and of the same generation. */
static void one_that_left_since_it_was_found_is_no_place_to_fill(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", CHUNK_BYTES);

    assert_int_equal(case_fill(t, o, 0), OK);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    assert_true(settle(t->c, k));
    assert_false(chunk_has_left(k));
    leave(t, k);
    assert_true(chunk_has_left(k));
    assert_false(settle(t->c, k));
    chunk_drop(t->c, k);
    object_drop(t->c, o);
}

/* It is still being written when the next one is filled, and ends behind that. */
static void the_next_filler_has_a_place_of_his_own(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", 2 * BLOCK_BYTES);
    struct chunk *k, *next;

    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), OK);
    case_write(t, o, k, 0);
    leave(t, k);
    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &next), OK);
    assert_ptr_not_equal(next, k);
    assert_true(next->slot.page != k->slot.page || next->slot.at != k->slot.at);
    case_write(t, o, next, 1);
    case_write(t, o, k, 1);
    case_write(t, o, next, 0);
    chunk_filled(t->c, next);
    chunk_filled(t->c, k);
    assert_int_equal(atomic_load(&t->c->chunk_count), 1);
    object_drop(t->c, o);
    case_settle(t);
    case_reopen(t);
    o = case_find(t, "a");
    assert_non_null(o);
    for (unsigned block = 0; block < 2; block++)
        assert_int_equal(case_read(t, o, 0, block), OK);
    object_drop(t->c, o);
}

#define WITH_CACHE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CACHE(one_that_left_since_it_was_found_is_no_place_to_fill),
        WITH_CACHE(the_next_filler_has_a_place_of_his_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
