/* Blocks that many want are read from disk once: who reads, who waits, who is woken. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/readings.c"

#include <setjmp.h>

#include <cmocka.h>

enum { MANY = 20 };

static struct message *inbox[MANY];
static unsigned sent, woken;
static struct core core;
static struct pool pool;
static struct cache cache;
static struct machine machine[MANY];
static struct block_read reading[MANY];
static struct block_read_wait wait_[MANY];

void core_send(struct core *to, struct message *msg)
{
    must(to == &core && sent < MANY);
    inbox[sent++] = msg;
}

void machine_wake(struct machine *m)
{
    (void)m;
    woken++;
}

struct pool *cache_pool(struct cache *c)
{
    assert_ptr_equal(c, &cache);
    return &pool;
}

static void deliver_all(void)
{
    for (unsigned n = 0; n < sent; n++)
        inbox[n]->deliver(&core, inbox[n]);
    sent = 0;
}

static int begin(void **state)
{
    (void)state;
    readings_init(&pool.readings);
    memset(machine, 0, sizeof machine);
    memset(reading, 0, sizeof reading);
    memset(wait_, 0, sizeof wait_);
    sent = woken = 0;
    for (unsigned n = 0; n < MANY; n++)
        machine[n].core = &core;
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (unsigned n = 0; n < MANY; n++)
        assert_int_equal(machine[n].inflight, 0);
    for (unsigned i = 0; i < READING_SHARDS; i++)
        assert_true(list_empty(&pool.readings.shard[i].list));
    readings_fini(&pool.readings);
    return 0;
}

static bool wants(unsigned n, uint64_t at)
{
    const struct buffer_key key = {{7, 8}, at};

    return reading_begin(&cache, &reading[n], &key, &wait_[n], &machine[n]);
}

static void one_reads_and_the_others_wait_for_it(void **state)
{
    (void)state;
    assert_true(wants(0, 0));
    for (unsigned n = 1; n < MANY; n++) {
        assert_false(wants(n, 0));
        assert_int_equal(machine[n].inflight, 1);
    }
    assert_int_equal(sent, 0);
    reading_end(&cache, &reading[0]);
    assert_int_equal(sent, MANY - 1);
    deliver_all();
    assert_int_equal(woken, MANY - 1);
    assert_true(wants(1, 0));        /* it has left the pool by then */
    reading_end(&cache, &reading[1]);
    reading_end(&cache, &reading[1]);
}

static void other_blocks_and_objects_are_others(void **state)
{
    const struct buffer_key other = {{7, 9}, 0};

    (void)state;
    assert_true(wants(0, 0));
    for (unsigned n = 1; n < MANY - 1; n++)
        assert_true(wants(n, n * (uint64_t)BLOCK_BYTES));
    assert_true(reading_begin(&cache, &reading[MANY - 1], &other, &wait_[MANY - 1],
                              &machine[MANY - 1]));
    for (unsigned n = 0; n < MANY; n++)
        reading_end(&cache, &reading[n]);
    assert_int_equal(sent, 0);
}

static void what_lies_unverified_has_no_waiters(void **state)
{
    (void)state;
    assert_true(wants(0, 0));
    assert_false(wants(1, 0));
    assert_false(reading_may_rest(&cache, &reading[0]));
    assert_true(reading_leave(&wait_[1]));
    assert_true(reading_may_rest(&cache, &reading[0]));
    assert_true(reading_may_rest(&cache, &reading[0]));
    assert_true(wants(1, 0));        /* nor will it have any */
    reading_end(&cache, &reading[0]);
    reading_end(&cache, &reading[1]);
}

static void who_is_being_woken_cannot_leave(void **state)
{
    (void)state;
    assert_true(reading_leave(&wait_[0]));
    assert_true(wants(0, 0));
    assert_false(wants(1, 0));
    assert_false(wants(2, 0));
    assert_true(reading_leave(&wait_[2]));
    assert_int_equal(machine[2].inflight, 0);
    reading_end(&cache, &reading[0]);
    assert_int_equal(sent, 1);
    assert_false(reading_leave(&wait_[1]));
    assert_int_equal(machine[1].inflight, 1);
    deliver_all();
    assert_true(reading_leave(&wait_[1]));
    assert_int_equal(woken, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_reads_and_the_others_wait_for_it, begin, end),
        cmocka_unit_test_setup_teardown(other_blocks_and_objects_are_others, begin, end),
        cmocka_unit_test_setup_teardown(what_lies_unverified_has_no_waiters, begin, end),
        cmocka_unit_test_setup_teardown(who_is_being_woken_cannot_leave, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
