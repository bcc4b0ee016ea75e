/* Permits: who gets the next one, and that none is lost between threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/origin/inside.h"

/* In place of cores: a wake is a note, a message lies in the letter box of its core. */
static void note_wake(struct machine *m);
static void post(struct core *to, struct message *msg);
#define machine_wake note_wake
#define core_send post
#include "server/origin/permit.c"

enum { THREADS = 4, ROUNDS = 40000, MOST = 3 };

static struct origin origin;
static struct core core[THREADS];
static struct box {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct message *newest;
} box[THREADS];

static void note_wake(struct machine *m)
{
    must(m->core != NULL);
}

static void post(struct core *to, struct message *msg)
{
    struct box *b = &box[to->number];
    pthread_mutex_lock(&b->lock);
    msg->next = b->newest;
    b->newest = msg;
    pthread_cond_signal(&b->filled);
    pthread_mutex_unlock(&b->lock);
}

static int open_all(void **state)
{
    (void)state;
    memset(&origin, 0, sizeof origin);
    pthread_mutex_init(&origin.lock, NULL);
    for (unsigned i = 0; i < ASK_CLASS_COUNT; i++)
        list_init(&origin.queue[i]);
    throttle_init(&origin.throttle, MOST);
    width_init(&origin.width);
    atomic_store(&origin.width.limits, true);
    for (unsigned i = 0; i < THREADS; i++) {
        core[i].number = i;
        box[i] = (struct box){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL};
    }
    return 0;
}

struct asker {
    struct permit permit;
    struct machine m;
};

static bool ask(struct asker *a, enum ask_class class_)
{
    *a = (struct asker){.m.core = &core[0]};
    return permit_ask(&a->permit, &origin, &a->m, class_, true);
}

static void classes_go_in_order_and_revalidation_is_not_forgotten(void **state)
{
    struct asker first[MOST], demand[8], revalidate, ahead;
    unsigned before = 0;

    (void)state;
    for (unsigned i = 0; i < MOST; i++)
        assert_true(ask(&first[i], ASK_DEMAND));
    assert_false(ask(&ahead, ASK_READAHEAD));
    assert_false(ask(&revalidate, ASK_REVALIDATE));
    for (unsigned i = 0; i < ARRAY_COUNT(demand); i++)
        assert_false(ask(&demand[i], ASK_DEMAND));
    struct asker *gives = &first[0];
    while (!revalidate.permit.held) {
        permit_give(&gives->permit);
        assert_true(revalidate.permit.held || demand[before].permit.held);
        gives = &demand[before];
        before += !revalidate.permit.held;
        assert_true(before < 4);
    }
    assert_false(ahead.permit.held);
}

static void read_ahead_that_is_waited_for_goes_before(void **state)
{
    struct asker first[MOST], ahead[2], prefetch;

    (void)state;
    for (unsigned i = 0; i < MOST; i++)
        assert_true(ask(&first[i], ASK_DEMAND));
    assert_false(ask(&ahead[0], ASK_READAHEAD));
    assert_false(ask(&ahead[1], ASK_READAHEAD));
    assert_false(ask(&prefetch, ASK_PREFETCH));
    permit_hurry(&prefetch.permit, ASK_DEMAND);
    permit_give(&first[0].permit);
    assert_true(prefetch.permit.held && !ahead[0].permit.held);
    permit_give(&prefetch.permit);
    assert_true(ahead[0].permit.held);
    permit_hurry(&ahead[0].permit, ASK_DEMAND);  /* too late: nothing changes */
    permit_give(&ahead[0].permit);
    assert_true(ahead[1].permit.held);
}

/* Of 12, read-ahead may have 9, and prefetch takes no seventh. */
static void prefetch_leaves_room_for_read_ahead(void **state)
{
    struct asker prefetch[7], ahead[4], demand[3];

    (void)state;
    throttle_init(&origin.throttle, 12);
    for (unsigned i = 0; i < 6; i++)
        assert_true(ask(&prefetch[i], ASK_PREFETCH));
    assert_false(ask(&prefetch[6], ASK_PREFETCH));
    for (unsigned i = 0; i < 3; i++)
        assert_true(ask(&ahead[i], ASK_READAHEAD));
    assert_false(ask(&ahead[3], ASK_READAHEAD));
    for (unsigned i = 0; i < 3; i++)
        assert_true(ask(&demand[i], ASK_DEMAND));
    permit_give(&prefetch[0].permit);
    assert_true(ahead[3].permit.held && !prefetch[6].permit.held);
    for (unsigned i = 0; i < 3; i++)
        permit_give(&ahead[i].permit);
    assert_false(prefetch[6].permit.held);
    permit_give(&prefetch[1].permit);
    assert_true(prefetch[6].permit.held);
}

/* Of 12, the background has 3 at most; as long as another class waits it gets none that comes
 * free. */
static void the_background_gets_nothing_while_others_wait(void **state)
{
    struct asker background[4], other[9], waits[4], late;

    (void)state;
    throttle_init(&origin.throttle, 12);
    for (unsigned i = 0; i < 3; i++)
        assert_true(ask(&background[i], ASK_BACKGROUND));
    assert_false(ask(&background[3], ASK_BACKGROUND));
    for (unsigned i = 0; i < 9; i++)
        assert_true(ask(&other[i], ASK_DEMAND));
    assert_false(ask(&waits[0], ASK_PREFETCH));
    assert_false(ask(&waits[1], ASK_PLAN));
    assert_false(ask(&waits[2], ASK_READAHEAD));
    assert_false(ask(&waits[3], ASK_DEMAND));
    for (unsigned i = 0; i < 4; i++) {
        if (i < 3)
            permit_give(&background[i].permit);
        else
            permit_give(&other[0].permit);
        assert_true(waits[3 - i].permit.held && !background[3].permit.held);
    }
    assert_false(ask(&late, ASK_DEMAND));
    permit_give(&waits[0].permit);
    assert_true(late.permit.held && !background[3].permit.held);
    permit_give(&waits[1].permit);
    assert_true(background[3].permit.held);
}

/* Of 16 permits two are an eighth: with one reader there is room for one rest beside him. */
static void the_rest_of_chunks_goes_while_few_readers_wait(void **state)
{
    struct asker rest[4], demand;

    (void)state;
    throttle_init(&origin.throttle, 16);
    for (unsigned i = 0; i < 3; i++)
        origin_reader_waits(&origin);
    assert_false(origin_is_calm(&origin));
    for (unsigned i = 0; i < 3; i++)
        assert_false(ask(&rest[i], ASK_REST));
    assert_true(ask(&demand, ASK_DEMAND)); /* keeps nobody else waiting */
    origin_reader_has(&origin, &core[0]);
    assert_true(origin_is_calm(&origin));
    assert_false(rest[0].permit.held);
    origin_reader_has(&origin, &core[0]);
    assert_true(rest[0].permit.held && !rest[1].permit.held);
    permit_hurry(&rest[2].permit, ASK_DEMAND);
    assert_true(rest[2].permit.held && !rest[1].permit.held);
    origin_reader_has(&origin, &core[0]);
    assert_true(rest[1].permit.held);
    assert_true(ask(&rest[3], ASK_REST));
}

static void who_reads_what_the_background_waits_for_goes_first(void **state)
{
    struct asker first[MOST], background[2], prefetch, demand;

    (void)state;
    for (unsigned i = 0; i < MOST; i++)
        assert_true(ask(&first[i], ASK_DEMAND));
    assert_false(ask(&background[0], ASK_BACKGROUND));
    assert_false(ask(&prefetch, ASK_PREFETCH));
    assert_false(ask(&background[1], ASK_BACKGROUND));
    permit_hurry(&background[1].permit, ASK_DEMAND);
    assert_false(ask(&demand, ASK_DEMAND));
    permit_give(&first[0].permit);
    assert_true(background[1].permit.held);
    permit_give(&first[1].permit);
    assert_true(demand.permit.held && !prefetch.permit.held);
    permit_give(&first[2].permit);
    assert_true(prefetch.permit.held && !background[0].permit.held);
}

/* What a job may have is its own affair: who reads, and who is about to, has more. */
static void jobs_have_no_more_than_their_width(void **state)
{
    struct asker job[16], last, other[3];
    uint32_t wide = width_limit(&origin.width);

    (void)state;
    throttle_init(&origin.throttle, 64);
    assert_in_range(wide, 1, ARRAY_COUNT(job));
    for (unsigned i = 0; i < wide; i++)
        assert_true(ask(&job[i], i % 2 ? ASK_PREFETCH : ASK_BACKGROUND));
    assert_false(ask(&last, ASK_PREFETCH));
    assert_int_equal(atomic_load(&origin.width.out), wide);
    assert_true(ask(&other[0], ASK_PLAN) && ask(&other[1], ASK_READAHEAD));
    assert_false(permits_awaited(&origin));
    assert_true(ask(&other[2], ASK_DEMAND));
    assert_true(permits_awaited(&origin));
    permit_give(&other[0].permit);
    assert_false(last.permit.held);
    permit_hurry(&last.permit, ASK_DEMAND);
    assert_true(last.permit.held);
    assert_false(ask(&other[0], ASK_PREFETCH));
    permit_give(&job[0].permit);
    assert_true(other[0].permit.held);
    struct asker more, head = {.m.core = &core[0]};
    assert_false(ask(&more, ASK_PREFETCH));
    assert_true(permit_ask(&head.permit, &origin, &head.m, ASK_PREFETCH, false));
    assert_false(more.permit.held);
}

static void a_lower_limit_takes_nothing_back(void **state)
{
    struct asker a[8];
    uint32_t from, to, active, queued;

    (void)state;
    throttle_init(&origin.throttle, 8);
    for (unsigned i = 0; i < 8; i++)
        assert_true(ask(&a[i], ASK_DEMAND));
    assert_true(throttle_slowed(&origin.throttle, 1, 2, &from, &to));
    assert_int_equal(to, 4);
    for (unsigned i = 0; i < 4; i++) {
        struct asker late;
        permit_give(&a[i].permit);
        if (i < 3) {
            assert_false(ask(&late, ASK_DEMAND));
            assert_true(permit_leave(&late.permit));
        }
    }
    permits_status(&origin, &active, &queued);
    assert_int_equal(active, 4);
    assert_int_equal(queued, 0);
    assert_false(ask(&a[0], ASK_DEMAND));
    while (!throttle_worked(&origin.throttle))
        ;
    assert_false(a[0].permit.held);
    permits_grown(&origin, &core[0]);
    assert_true(a[0].permit.held);
}

static void take_letters(struct box *b)
{
    struct message *msg = b->newest;
    b->newest = NULL;
    while (msg) {
        struct message *next = msg->next;
        msg->deliver(NULL, msg);
        msg = next;
    }
}

static _Atomic uint32_t holders, most_holders, gone;

static void hold(struct asker *a)
{
    uint32_t now = atomic_fetch_add(&holders, 1) + 1, most = atomic_load(&most_holders);
    while (now > most && !atomic_compare_exchange_weak(&most_holders, &most, now))
        ;
    atomic_fetch_sub(&holders, 1);
    permit_give(&a->permit);
}

/* Asks, waits or leaves, gives back. A wake that is lost hangs the test. */
static void *ask_and_give(void *arg)
{
    struct core *own = arg;
    struct box *b = &box[own->number];
    uint64_t seed = own->number + 1;

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct asker a = {.m.core = own};
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bool held = permit_ask(&a.permit, &origin, &a.m, (seed >> 40) % ASK_CLASS_COUNT,
                               seed >> 51 & 1);
        if (!held && seed >> 50 & 1)
            permit_hurry(&a.permit, ASK_DEMAND);
        if (!a.permit.held && (seed >> 45 & 7) == 0 && permit_leave(&a.permit)) {
            atomic_fetch_add(&gone, 1);
            continue;
        }
        pthread_mutex_lock(&b->lock);
        while (!a.permit.held) {
            if (!b->newest)
                pthread_cond_wait(&b->filled, &b->lock);
            take_letters(b);
        }
        pthread_mutex_unlock(&b->lock);
        must(a.m.inflight == 0 && !a.permit.queued);
        hold(&a);
    }
    return NULL;
}

static void none_is_lost_between_threads(void **state)
{
    pthread_t thread[THREADS];

    (void)state;
    atomic_store(&origin.width.limit, 1); /* so that this is waited for as well */
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask_and_give, &core[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_true(atomic_load(&origin.permit_state) == 0 && !permits_awaited(&origin));
    assert_true(atomic_load(&most_holders) <= MOST);
    for (unsigned i = 0; i < ASK_CLASS_COUNT; i++)
        assert_true(list_empty(&origin.queue[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(classes_go_in_order_and_revalidation_is_not_forgotten, open_all),
        cmocka_unit_test_setup(read_ahead_that_is_waited_for_goes_before, open_all),
        cmocka_unit_test_setup(prefetch_leaves_room_for_read_ahead, open_all),
        cmocka_unit_test_setup(the_background_gets_nothing_while_others_wait, open_all),
        cmocka_unit_test_setup(the_rest_of_chunks_goes_while_few_readers_wait, open_all),
        cmocka_unit_test_setup(who_reads_what_the_background_waits_for_goes_first, open_all),
        cmocka_unit_test_setup(jobs_have_no_more_than_their_width, open_all),
        cmocka_unit_test_setup(a_lower_limit_takes_nothing_back, open_all),
        cmocka_unit_test_setup(none_is_lost_between_threads, open_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
