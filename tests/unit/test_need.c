/* What an object would take, against what it takes when it is kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include "server/cache/need.c"

static struct cache_case *open_case(unsigned dirs)
{
    struct cache_case *t = case_make(dirs);

    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    return t;
}

static void keep(struct cache_case *t, const char *key, uint64_t size)
{
    struct object *o = case_learn(t, key, "\"0123456789abcdef0123456789abcdef\"", size);

    for (uint64_t n = 0; n * CHUNK_BYTES < size; n++)
        assert_int_equal(case_fill(t, o, n), OK);
    object_drop(t->c, o);
}

static void disks_give_what_slots_take_of_pages(void **state)
{
    static const uint64_t sizes[] = {1, 4096, 4097, 700000, 3 * MIB, 5 * MIB, CHUNK_BYTES,
                                     CHUNK_BYTES + 1, 2 * (uint64_t)CHUNK_BYTES + 6 * MIB};
    (void)state;
    for (unsigned n = 0; n < ARRAY_COUNT(sizes); n++) {
        struct cache_case *t = open_case(1);
        struct okey k = case_key(t, "dir/a");
        struct cache_need need = cache_need(&k, sizes[n]);
        struct cache_held held = {0};
        struct cache_status s;

        keep(t, "dir/a", sizes[n]);
        cache_status(t->c, &s);
        assert_int_equal(need.slots, s.used_bytes);
        assert_int_equal(need.room, s.used_bytes + s.lost_bytes);
        assert_int_equal(cache_need_room(sizes[n]), need.room);
        struct object *o = case_find(t, "dir/a");
        assert_true(cache_measure(t->c, o, &held, 8));
        assert_int_equal(held.room, need.room);
        assert_int_equal(held.slots, need.slots);
        assert_int_equal(held.away, 0);
        object_drop(t->c, o);
        case_end(t);
    }
    assert_int_equal(cache_need_room(0), 0);
    assert_int_equal(cache_need_room(5 * MIB), CHUNK_BYTES);
}

/* Within a sixth. */
static void assert_near(uint64_t a, uint64_t b)
{
    if (a < b - b / 6 || a > b + b / 6)
        fail_msg("%llu, wanted %llu", (unsigned long long)a, (unsigned long long)b);
}

static uint64_t tables_bytes(const struct cache *c)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < CACHE_SHARDS; i++)
        sum += index_table_bytes(&c->object[i].table) + index_table_bytes(&c->chunk[i].table);
    return sum;
}

static void the_index_takes_about_what_was_estimated(void **state)
{
    enum { COUNT = 3000, LARGE = 10 };
    struct cache_case *t = open_case(1);
    uint64_t need = 0, before = atomic_load(&t->c->index_bytes);
    char key[64];

    (void)state;
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "train/n01440764/n01440764_%u.JPEG", i);
        struct okey k = case_key(t, key);
        need += cache_need(&k, 4000).index;
        keep(t, key, 4000);
    }
    case_settle(t);
    packing_round(t->c, 0);
    assert_near(need, atomic_load(&t->c->index_bytes) - before);
    before = atomic_load(&t->c->index_bytes);
    need = 0;
    uint64_t tables = tables_bytes(t->c);
    for (unsigned i = 0; i < LARGE; i++) {
        snprintf(key, sizeof key, "shards/%u.tar", i);
        struct okey k = case_key(t, key);
        need += cache_need(&k, CHUNK_BYTES + 1).index;
        keep(t, key, CHUNK_BYTES + 1);
    }
    /* Tables grow by steps of 384 bytes here, none to five of them with so few objects. What
     * they take on average was seen above. */
    before += tables_bytes(t->c) - tables;
    assert_near(need, atomic_load(&t->c->index_bytes) - before);
    case_end(t);
}

static void a_fenced_disk_gives_no_room_and_what_is_there_is_away(void **state)
{
    struct cache_case *t = open_case(2);
    struct cache_room both, one;
    struct cache_held held = {0};

    (void)state;
    keep(t, "a", 16 * (uint64_t)CHUNK_BYTES);
    cache_room(t->c, 0, 0, &both);
    assert_int_equal(both.quota, UINT64_MAX);
    atomic_store(&t->c->dir[1].disk.state, DISK_FENCED);
    cache_room(t->c, 0, 0, &one);
    assert_int_equal(one.capacity, space_capacity_bytes(t->c->dir[0].space));
    assert_int_equal(both.capacity, one.capacity + space_capacity_bytes(t->c->dir[1].space));
    struct object *o = case_find(t, "a");
    assert_true(cache_measure(t->c, o, &held, 100));
    assert_int_equal(held.bytes, 16 * (uint64_t)CHUNK_BYTES);
    assert_int_equal(held.bytes, held.room + held.away);
    assert_true(held.away > 0 && held.room > 0);
    object_drop(t->c, o);
    atomic_store(&t->c->dir[1].disk.state, DISK_UP);
    case_end(t);
}

static void small_objects_leave_a_part_of_the_index_to_those_that_are_read(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache_room none, some, many;

    (void)state;
    cache_room(t->c, 0, 0, &none);
    cache_room(t->c, 0, 10, &some);
    cache_room(t->c, 0, UINT64_MAX, &many);
    assert_int_equal(none.index - some.index, 10 * PACKING_SAVES);
    assert_int_equal(none.index - many.index, t->c->index_limit_bytes / PACKING_PART);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disks_give_what_slots_take_of_pages),
        cmocka_unit_test(the_index_takes_about_what_was_estimated),
        cmocka_unit_test(a_fenced_disk_gives_no_room_and_what_is_there_is_away),
        cmocka_unit_test(small_objects_leave_a_part_of_the_index_to_those_that_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
