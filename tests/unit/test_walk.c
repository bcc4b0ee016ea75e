/* Walks over what is cached, what a walk tells of an object, and its end on somebody's order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"

#include "server/cache/walk.c"

enum { MANY = 3000 };

/* How often each of MANY was met; grow: so many new ones come on the way. */
static unsigned walk_all(struct cache_case *t, uint8_t met[MANY], unsigned grow)
{
    struct object *out[CACHE_WALK_MAX];
    unsigned slices = 0;
    uint64_t at = 0;

    while (at != CACHE_WALK_OVER) {
        unsigned count = cache_walk(t->c, &at, out, NULL);
        for (unsigned i = 0; i < count; i++) {
            unsigned number = MANY;
            assert_int_equal(sscanf(object_key(out[i]).at, "o%u", &number), 1);
            if (number < MANY)
                met[number]++;
            object_drop(t->c, out[i]);
        }
        for (unsigned i = 0; i < grow && slices < 200; i++) {
            char key[16];
            snprintf(key, sizeof key, "o%u", MANY + slices * grow + i);
            object_drop(t->c, case_learn(t, key, "\"1\"", 0));
        }
        assert_true(++slices < 100000);
    }
    return slices;
}

static void learn_many(struct cache_case *t)
{
    for (unsigned i = 0; i < MANY; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        object_drop(t->c, case_learn(t, key, "\"1\"", 0)); /* empty ones need no chunk */
    }
}

static void a_walk_meets_each_object_once(void **state)
{
    struct cache_case *t = open_case(1);
    static uint8_t met[MANY];

    (void)state;
    memset(met, 0, sizeof met);
    learn_many(t);
    assert_true(walk_all(t, met, 0) > CACHE_SHARDS);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(met[i], 1);
    case_end(t);
}

static void a_walk_misses_nothing_while_the_tables_grow(void **state)
{
    struct cache_case *t = open_case(1);
    static uint8_t met[MANY];

    (void)state;
    memset(met, 0, sizeof met);
    learn_many(t);
    uint32_t before = t->c->object[CACHE_SHARDS - 1].table.cap;
    walk_all(t, met, 60);
    assert_true(t->c->object[CACHE_SHARDS - 1].table.cap > before);
    for (unsigned i = 0; i < MANY; i++)
        assert_true(met[i] > 0);
    case_end(t);
}

static void a_walk_goes_on_behind_a_restart_where_it_stood(void **state)
{
    struct cache_case *t = open_case(1);
    struct object *out[CACHE_WALK_MAX];
    uint64_t at = 0;
    unsigned seen = 0;

    (void)state;
    fill_objects(t, OBJECTS);
    while (at != CACHE_WALK_OVER) {
        unsigned count = cache_walk(t->c, &at, out, NULL);
        seen += count;
        for (unsigned i = 0; i < count; i++)
            object_drop(t->c, out[i]);
        case_reopen(t);
    }
    assert_int_equal(seen, OBJECTS);
    case_end(t);
}

static void heads_without_bytes_and_hidden_objects_are_not_met(void **state)
{
    struct cache_case *t = open_case(1);
    static uint8_t met[MANY];
    struct okey k;

    (void)state;
    memset(met, 0, sizeof met);
    object_drop(t->c, case_learn(t, "o1", "\"1\"", 5000));
    fill_objects(t, 1);
    k = case_key(t, "o2");
    struct object *hidden = index_hide(t->c, &k, 0);
    walk_all(t, met, 0);
    assert_int_equal(met[0], 1);
    assert_int_equal(met[1], 0);
    assert_int_equal(met[2], 0);
    index_forget(t->c, hidden->id, NULL, EVICT_CHANGED);
    object_drop(t->c, hidden);
    case_end(t);
}

static void what_is_here_is_measured_in_slices(void **state)
{
    struct cache_case *t = open_case(1);
    struct object *o = case_learn(t, "big", "\"2\"", 3 * (uint64_t)CHUNK_BYTES + 5);
    struct cache_held h = {0};

    (void)state;
    assert_int_equal(case_fill(t, o, 1), OK);
    assert_int_equal(case_fill(t, o, 3), OK);
    assert_false(cache_measure(t->c, o, &h, 1));
    assert_int_equal(h.bytes, 0);
    assert_false(cache_measure(t->c, o, &h, 1));
    assert_true(cache_measure(t->c, o, &h, 10));
    assert_int_equal(h.bytes, CHUNK_BYTES + 5);
    assert_int_equal(h.chunks, 2);
    assert_false(h.pinned);
    struct chunk *k = chunk_find(t->c, o->data_id, 3);
    k->mark.flags |= MARK_PINNED;
    chunk_drop(t->c, k);
    h = (struct cache_held){0};
    assert_true(cache_measure(t->c, o, &h, 10));
    assert_true(h.pinned);
    object_drop(t->c, o);
    case_end(t);
}

/* An upload is kept until somebody reads it; what was fetched ahead waits for its reader. */
static void what_nobody_came_to_yet_counts_as_unread(void **state)
{
    static const struct {
        struct chunk_asked asked;
        bool read;
    } rows[] = {
        {{.bytes = 5}, true}, {{.keep = true}, false}, {{.bytes = 5, .ahead = true}, false}};
    struct cache_case *t = open_case(1);

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char key[16];
        snprintf(key, sizeof key, "o%zu", i);
        struct object *o = case_learn(t, key, "\"1\"", 5);
        struct cache_held h = {0};
        assert_int_equal(case_fill_as(t, o, 0, rows[i].asked), OK);
        assert_true(cache_measure(t->c, o, &h, 10));
        assert_int_equal(h.read, rows[i].read);
        struct chunk *k = chunk_find(t->c, o->data_id, 0);
        chunk_reference(t->c, o, k, 5);
        chunk_drop(t->c, k);
        h = (struct cache_held){0};
        assert_true(cache_measure(t->c, o, &h, 10));
        assert_true(h.read);
        object_drop(t->c, o);
    }
    case_end(t);
}

static void prefixes_name_a_bucket_or_a_part_of_it(void **state)
{
    struct cache_case *t = open_case(1);
    struct object *o = case_learn(t, "train/a", "\"2\"", 5);

    (void)state;
    assert_true(object_is_below(o, span_of("")));
    assert_true(object_is_below(o, span_of("bucket")));
    assert_true(object_is_below(o, span_of("bucket/")));
    assert_true(object_is_below(o, span_of("bucket/train/")));
    assert_true(object_is_below(o, span_of("bucket/tr")));
    assert_false(object_is_below(o, span_of("buck")));
    assert_false(object_is_below(o, span_of("bucket/test")));
    object_drop(t->c, o);
    case_end(t);
}

static void an_order_to_evict_drops_the_bytes_and_the_record(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, 2);
    struct object *o = case_find(t, "o0");
    cache_evict(t->c, o);
    assert_true(atomic_load(&o->flags) & OBJECT_GONE);
    object_drop(t->c, o);
    assert_int_equal(atomic_load(&t->c->evicted_bytes[EVICT_REQUEST]), 200000);
    assert_int_equal(atomic_load(&t->c->evicted_bytes[EVICT_CHANGED]), 0);
    assert_null(case_find(t, "o0"));
    case_reopen(t);
    assert_null(case_find(t, "o0"));
    assert_int_equal(count_objects(t, 2, 0), 1);
    case_end(t);
}

static void put_into_memory(struct cache_case *t, const struct object *o, uint64_t name)
{
    const struct buffer_key key = {o->data_id, name};
    struct buffer *b = pool_take(t->c, HALF_BYTES, BUFFER_DEMAND);

    b->len = HALF_BYTES;
    pool_give(t->c, pool_publish(t->c, b, &key, false));
}

static bool is_in_memory(struct cache_case *t, const struct object *o, uint64_t name)
{
    const struct buffer_key key = {o->data_id, name};
    struct buffer *b = pool_find(t->c, &key);

    if (b)
        pool_give(t->c, b);
    return b;
}

static void what_is_distrusted_is_found_by_no_name(void **state)
{
    struct cache_case *t = open_case(1);
    struct object *o = case_learn(t, "a", "\"1\"", 3 * (uint64_t)CHUNK_BYTES);
    struct object *other = case_learn(t, "b", "\"1\"", 3 * (uint64_t)CHUNK_BYTES);
    const uint64_t names[] = {BUFFER_BLOCK, 2 * CHUNK_BYTES + BLOCK_BYTES,
                              CHUNK_BYTES + GRANULE_BYTES + BUFFER_GRANULE,
                              HALF_BYTES + BUFFER_HALF, buffer_part(CHUNK_BYTES + 77, 1000)};

    (void)state;
    assert_int_equal(case_fill(t, o, 1), OK);
    assert_int_equal(case_fill(t, other, 1), OK);
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        put_into_memory(t, o, names[i]);
        put_into_memory(t, other, names[i]);
    }
    cache_distrust(t->c, o);
    assert_null(case_find(t, "a"));
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        assert_false(is_in_memory(t, o, names[i]));
        assert_true(is_in_memory(t, other, names[i]));
    }
    struct object *again = case_learn(t, "a", "\"1\"", 3 * (uint64_t)CHUNK_BYTES);
    assert_true(id_eq(again->data_id, o->data_id));
    assert_int_equal(case_read(t, again, 1, 0), ERR_NOT_FOUND);
    assert_int_equal(case_read(t, other, 1, 0), OK);
    object_drop(t->c, again);
    object_drop(t->c, other);
    object_drop(t->c, o);
    case_end(t);
}

static uint64_t thread_us(void)
{
    struct timespec at;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (uint64_t)at.tv_sec * 1000000 + (uint64_t)at.tv_nsec / 1000;
}

/* The core that finds it out serves others: by a part of its names, in slices, it is told how long
 * all of them would take. */
static void a_large_object_is_distrusted_in_a_moment(void **state)
{
    enum { CHUNKS = 16 * KIB, PART = 16 };
    struct cache_case *t = open_case(1);
    struct object *o = case_learn(t, "a", "\"1\"", CHUNKS * (uint64_t)CHUNK_BYTES);
    uint64_t number = 0, began = thread_us();

    (void)state;
    assert_false(cache_disown(t->c, o, &number, CHUNKS / PART));
    uint64_t part_us = thread_us() - began;
    began = thread_us();
    cache_distrust(t->c, o);
    assert_in_range(thread_us() - began, 0, part_us * PART / 4);
    object_drop(t->c, o);
    case_end(t);
}

static void the_last_read_is_known_behind_a_restart_to_the_hour(void **state)
{
    struct cache_case *t = open_case(1);
    uint64_t filled_s = t->asked_ms / 1000;

    (void)state;
    fill_objects(t, 1);
    struct object *o = case_find(t, "o0");
    assert_int_equal(object_read_s(o), filled_s);
    object_read(t->c, o, filled_s + SAVE_READ_S - 1);
    assert_int_equal(object_read_s(o), filled_s + SAVE_READ_S - 1);
    object_drop(t->c, o);
    case_reopen(t);
    o = case_find(t, "o0");
    assert_int_equal(object_read_s(o), filled_s);
    object_read(t->c, o, filled_s + 5 * SAVE_READ_S);
    object_drop(t->c, o);
    case_reopen(t);
    o = case_find(t, "o0");
    assert_int_equal(object_read_s(o), filled_s + 5 * SAVE_READ_S);
    object_drop(t->c, o);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_meets_each_object_once),
        cmocka_unit_test(a_walk_misses_nothing_while_the_tables_grow),
        cmocka_unit_test(a_walk_goes_on_behind_a_restart_where_it_stood),
        cmocka_unit_test(heads_without_bytes_and_hidden_objects_are_not_met),
        cmocka_unit_test(what_is_here_is_measured_in_slices),
        cmocka_unit_test(what_nobody_came_to_yet_counts_as_unread),
        cmocka_unit_test(prefixes_name_a_bucket_or_a_part_of_it),
        cmocka_unit_test(an_order_to_evict_drops_the_bytes_and_the_record),
        cmocka_unit_test(what_is_distrusted_is_found_by_no_name),
        cmocka_unit_test(a_large_object_is_distrusted_in_a_moment),
        cmocka_unit_test(the_last_read_is_known_behind_a_restart_to_the_hour),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
