/* What the machine behind the plans does in one turn is bounded. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_that_are_hard_to_place_are_heard_over_several_turns),
        cmocka_unit_test(reads_that_go_on_are_heard_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
