/* Who waits for a buffer: first come first woken, once per event, few at a time, none forgotten. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/waiters.c"

#include <setjmp.h>

#include <cmocka.h>

enum { MANY = 50 };

static struct message *inbox[2 * MANY]; /* in the order sent */
static unsigned sent, delivered;
static struct machine machine[MANY];
static struct pool_wait wait_[MANY];
static unsigned woken[MANY], order[2 * MANY], wakes;
static struct waiters q;
static struct core core;

void core_send(struct core *to, struct message *msg)
{
    must(to == &core && sent < ARRAY_COUNT(inbox));
    inbox[sent++] = msg;
}

void machine_wake(struct machine *m)
{
    order[wakes++] = (unsigned)(m - machine);
    woken[m - machine]++;
}

static bool deliver_one(void)
{
    if (delivered == sent)
        return false;
    inbox[delivered]->deliver(&core, inbox[delivered]);
    delivered++;
    return true;
}

static int begin(void **state)
{
    (void)state;
    memset(machine, 0, sizeof machine);
    memset(wait_, 0, sizeof wait_);
    memset(woken, 0, sizeof woken);
    sent = delivered = wakes = 0;
    failed.set = false;
    waiters_init(&q);
    for (unsigned n = 0; n < MANY; n++)
        machine[n].core = &core;
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (unsigned n = 0; n < MANY; n++)
        assert_int_equal(machine[n].inflight, 0);
    assert_true(list_empty(&q.list));
    assert_int_equal(q.waking, 0);
    waiters_fini(&q);
    return 0;
}

static void fail_and_wait(unsigned n)
{
    waiters_failed(&q, false);
    waiters_add(&q, &wait_[n], &machine[n]);
}

static void event(void)
{
    struct wakes out;

    waiters_event(&q, &out);
    wakes_send(&out);
}

static void without_an_event_nobody_is_woken(void **state)
{
    (void)state;
    fail_and_wait(0);
    assert_int_equal(sent, 0);
    assert_true(wait_[0].busy && machine[0].inflight == 1);
    assert_true(waiters_leave(&q, &wait_[0]));
    event();
    assert_int_equal(sent, 0);
}

static void an_event_before_the_wait_is_not_lost(void **state)
{
    (void)state;
    waiters_failed(&q, false);
    event();
    waiters_add(&q, &wait_[0], &machine[0]);
    assert_int_equal(sent, 1);
    assert_false(waiters_leave(&q, &wait_[0]));
    assert_true(deliver_one());
    assert_true(!wait_[0].busy && woken[0] == 1);
}

/* Two takes failed, an event between: the first wait may need that event. */
static void the_older_of_two_failures_counts(void **state)
{
    (void)state;
    waiters_failed(&q, false);
    event();
    waiters_failed(&q, false);
    waiters_add(&q, &wait_[0], &machine[0]);
    assert_true(deliver_one());
    waiters_add(&q, &wait_[1], &machine[1]);     /* whose failure it was is not known */
    assert_true(deliver_one());
    fail_and_wait(1);
    assert_false(deliver_one());
    assert_true(waiters_leave(&q, &wait_[1]));
}

static void who_is_due_does_not_stand_behind_the_others(void **state)
{
    (void)state;
    fail_and_wait(0);
    waiters_failed(&q, true);
    waiters_add(&q, &wait_[1], &machine[1]);
    assert_true(deliver_one());
    assert_int_equal(woken[1], 1);
    assert_true(waiters_leave(&q, &wait_[0]));
}

static void a_take_that_gave_up_early_waits_for_nothing(void **state)
{
    (void)state;
    waiters_failed(&q, true);
    waiters_add(&q, &wait_[0], &machine[0]);
    assert_true(deliver_one());
}

static void all_are_woken_in_order_and_few_at_a_time(void **state)
{
    (void)state;
    for (unsigned n = 0; n < MANY; n++)
        fail_and_wait(n);
    for (unsigned n = 0; n < 10; n++)
        event();                                 /* ten events, one round */
    while (sent > delivered) {
        assert_true(sent - delivered <= WAKES_MAX);
        deliver_one();
    }
    assert_int_equal(wakes, MANY);
    for (unsigned n = 0; n < MANY; n++)
        assert_int_equal(order[n], n);
}

/* Those who wait again stand behind those who were not tried yet, also when they leave between. */
static void who_fails_again_waits_behind_the_others(void **state)
{
    (void)state;
    for (unsigned n = 0; n < MANY; n++)
        fail_and_wait(n);
    event();
    for (unsigned n = 0; deliver_one(); n++)
        if (n % 2 == 0)
            fail_and_wait(order[n]);
    assert_int_equal(wakes, MANY);
    event();
    while (deliver_one())
        ;
    assert_int_equal(wakes, MANY + MANY / 2);
    for (unsigned n = 0; n < MANY; n++)
        assert_int_equal(woken[n], n % 2 ? 1 : 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_an_event_nobody_is_woken, begin, end),
        cmocka_unit_test_setup_teardown(an_event_before_the_wait_is_not_lost, begin, end),
        cmocka_unit_test_setup_teardown(the_older_of_two_failures_counts, begin, end),
        cmocka_unit_test_setup_teardown(who_is_due_does_not_stand_behind_the_others, begin, end),
        cmocka_unit_test_setup_teardown(a_take_that_gave_up_early_waits_for_nothing, begin, end),
        cmocka_unit_test_setup_teardown(all_are_woken_in_order_and_few_at_a_time, begin, end),
        cmocka_unit_test_setup_teardown(who_fails_again_waits_behind_the_others, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
