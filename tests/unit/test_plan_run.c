/* What the machine behind the plans does in one turn is bounded; which plan of a job is over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/jobs/plan.c"
#include "server/jobs/plan_cursor.c"

/* In place of what the cores have noted: so often the same. */
static unsigned noted;
static struct follow_read noted_read;

static unsigned take_noted(struct server *s, struct follow_read *out, unsigned cap)
{
    unsigned count = (unsigned)min_u64(noted, cap);

    (void)s;
    for (unsigned i = 0; i < count; i++)
        out[i] = noted_read;
    noted -= count;
    return count;
}

#define follow_take take_noted
#include "server/jobs/plan_run.c"

static struct plan_account account;
static struct plans plans;
static struct planner *planner;

/* 8 readers of one packed file, whose entries are 64 samples of 2 bytes each. */
static struct plan *post(void)
{
    struct plan *p = plan_make(&account);
    struct plan_range range[64];
    struct plan_wish wish = {.id = {1, 7}, .rest = span_of("packed"), .range = range,
                             .range_count = ARRAY_COUNT(range)};

    assert_non_null(p);
    for (uint32_t i = 0; i < 8 * 1024; i++) {
        wish.stream = i % 8;
        for (uint64_t k = 0; k < ARRAY_COUNT(range); k++)
            range[k] = (struct plan_range){(k * 8 * 1024 + i) * 4, 2};
        assert_int_equal(plan_add(p, &wish), OK);
    }
    assert_int_equal(plan_settle(p), OK);
    return p;
}

static void begin(unsigned reads, uint64_t from)
{
    planner = mem_take(sizeof *planner);
    assert_non_null(planner);
    planner->plans = &plans;
    planner->plan[planner->count++] = post();
    noted_read = (struct follow_read){.id = {1, 7}, .from = from, .bytes = 1};
    noted = reads;
}

static void end(void)
{
    plan_free(planner->plan[0]);
    mem_give(planner);
}

/* Of bytes that no entry has, so that all that may be looked at is. */
static void reads_that_are_hard_to_place_are_heard_over_several_turns(void **state)
{
    enum { READS = 4096 };
    unsigned turns = 1;

    (void)state;
    begin(READS, 2);
    for (unsigned before = noted; !hear(planner); before = noted, turns++) {
        assert_true(noted < before);
        assert_in_range(planner->compared, 1, COMPARE_MOST + 16 * 1024);
    }
    assert_int_equal(noted, 0);
    assert_in_range(turns, 10, READS / 2);
    end();
}

static void reads_that_go_on_are_heard_together(void **state)
{
    (void)state;
    begin(1000, 0);
    assert_true(hear(planner));
    assert_int_equal(noted, 0);
    assert_int_equal(planner->plan[0]->now.read, 1);
    end();
}

/* ---- epochs ---- */
static struct core core;
static struct server server;

/* The job's next one: its streams, from that number on, read so many keys each, named "a0", "a1"
 * and so on, "b0" ... by their letters. */
static struct plan *epoch(uint32_t first, const char *letters, unsigned keys)
{
    struct plan *p = plan_make(&account);

    assert_non_null(p);
    for (uint32_t s = 0; letters[s]; s++)
        for (unsigned i = 0; i < keys; i++) {
            char key[] = {letters[s], (char)('0' + i), 0};
            const struct plan_wish wish = {.stream = first + s, .rest = span_of(key),
                                           .id = {(uint64_t)letters[s], i}};
            assert_int_equal(plan_add(p, &wish), OK);
        }
    assert_int_equal(plan_settle(p), OK);
    for (uint32_t i = 0; i < p->object_count; i++) {
        p->object[i].state = PLANNED_KNOWN;
        p->object[i].size = 24 * MIB;
    }
    memcpy(p->facts.job, "job", 4);
    p->facts.epoch = planner->count;
    planner->plan[planner->count++] = p;
    chain_plans(planner);
    return p;
}

static void begin_epochs(void)
{
    planner = mem_take(sizeof *planner);
    assert_non_null(planner);
    plans.server = &server;
    planner->plans = &plans;
    planner->m.core = &core;
}

static void end_epochs(void)
{
    while (planner->count > 0)
        plan_free(planner->plan[--planner->count]);
    mem_give(planner);
}

/* Somebody reads 9 MiB of it, and the machine judges behind each read. */
static void read_some(char letter, unsigned key)
{
    const struct id id = {(uint64_t)letter, key};

    hear_one(planner, &(struct follow_read){.id = id, .bytes = CHUNK_BYTES});
    judge_states(planner);
    hear_one(planner, &(struct follow_read){.id = id, .from = CHUNK_BYTES, .bytes = MIB});
    judge_states(planner);
}

static void epochs_of_one_object_for_each_reader_that_are_cut_short_follow_each_other(void **state)
{
    (void)state;
    begin_epochs();
    struct plan *one = epoch(0, "ab", 1), *two = epoch(0, "ba", 1), *three = epoch(0, "ab", 1);
    read_some('a', 0);
    read_some('b', 0);
    assert_int_equal(one->now.state, PLAN_RUNNING);
    read_some('a', 0);
    assert_int_equal(one->now.state, PLAN_RUNNING);
    read_some('b', 0);
    assert_int_equal(one->now.state, PLAN_OVERTAKEN);
    assert_int_equal(two->now.state, PLAN_RUNNING);
    assert_int_equal(three->now.state, PLAN_WAITING);
    read_some('b', 0);
    assert_int_equal(two->now.state, PLAN_RUNNING);
    read_some('a', 0);
    assert_int_equal(two->now.state, PLAN_OVERTAKEN);
    assert_int_equal(three->now.state, PLAN_RUNNING);
    end_epochs();
}

/* Who is early in the next one does not end this one for the others. */
static void a_plan_that_is_not_at_its_end_is_not_overtaken_by_each_readers_first_read(void **state)
{
    (void)state;
    begin_epochs();
    struct plan *one = epoch(0, "ab", 2), *two = epoch(0, "cd", 1);
    read_some('a', 0);
    read_some('a', 1);
    read_some('b', 0);
    read_some('c', 0);
    read_some('d', 0);
    assert_int_equal(one->now.state, PLAN_RUNNING);
    assert_int_equal(two->now.state, PLAN_WAITING);
    read_some('b', 1);
    assert_int_equal(one->now.state, PLAN_OVERTAKEN);
    end_epochs();
}

static void a_plan_of_which_nothing_can_be_read_overtakes_nothing(void **state)
{
    (void)state;
    begin_epochs();
    struct plan *one = epoch(0, "ab", 1), *two = epoch(0, "cd", 1);
    for (uint32_t i = 0; i < two->object_count; i++)
        two->object[i].state = PLANNED_MISSING;
    for (uint32_t s = 0; s < two->stream_count; s++)
        two->stream[s].ahead = two->stream[s].count;
    read_some('a', 0);
    read_some('b', 0);
    assert_int_equal(one->now.state, PLAN_RUNNING);
    end_epochs();
}

static void streams_without_entries_do_not_put_off_who_takes_over(void **state)
{
    (void)state;
    begin_epochs();
    struct plan *one = epoch(62, "ab", 2);
    (void)epoch(62, "cd", 2);
    read_some('c', 0);
    read_some('d', 0);
    assert_int_equal(one->now.state, PLAN_RUNNING);
    read_some('c', 1);
    assert_int_equal(one->now.state, PLAN_OVERTAKEN);
    end_epochs();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_that_are_hard_to_place_are_heard_over_several_turns),
        cmocka_unit_test(reads_that_go_on_are_heard_together),
        cmocka_unit_test(
            epochs_of_one_object_for_each_reader_that_are_cut_short_follow_each_other),
        cmocka_unit_test(
            a_plan_that_is_not_at_its_end_is_not_overtaken_by_each_readers_first_read),
        cmocka_unit_test(a_plan_of_which_nothing_can_be_read_overtakes_nothing),
        cmocka_unit_test(streams_without_entries_do_not_put_off_who_takes_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
