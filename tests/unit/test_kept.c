/* Unit tests of server/jobs/kept.c: whose list has to go for another one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/inside.h"

static unsigned saved;

static void count_save(struct job *j)
{
    (void)j;
    saved++;
}

#define job_save count_save
#include "server/jobs/kept.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct jobs *jobs;
static struct job *job;
static struct kept_gone gone;

/* One job that has ended, with the list, and what other lists take. */
static int open_jobs(void **state)
{
    (void)state;
    jobs = mem_take(sizeof *jobs);
    job = mem_take(sizeof *job);
    if (!jobs || !job)
        return -1;
    job->view.id = 1;
    job->view.state = JOB_DONE;
    job->view.spec.keys = (struct kept_keys){.count = 2000, .pieces = 2, .bytes = MIB};
    jobs->job[0] = job;
    jobs->pieces = 4;
    jobs->piece_bytes = 7 * MIB;
    return 0;
}

static int close_jobs(void **state)
{
    (void)state;
    mem_give(job);
    mem_give(jobs);
    return 0;
}

static void nothing_has_gone(void)
{
    assert_int_equal(job->view.spec.keys.pieces, 2);
    assert_int_equal(jobs->pieces, 4);
    assert_int_equal(jobs->piece_bytes, 7 * MIB);
    assert_int_equal(gone.count, 0);
}

static void a_list_that_never_fits_drops_no_other(void **state)
{
    static const struct kept_keys large = {.count = 200000, .pieces = 200, .bytes = 9 * MIB};
    static const struct kept_keys many = {.count = 600000, .pieces = 600, .bytes = MIB};

    (void)state;
    assert_int_equal(reserve(jobs, &large, &gone), ERR_TOO_LARGE);
    nothing_has_gone();
    assert_int_equal(reserve(jobs, &many, &gone), ERR_TOO_LARGE);
    nothing_has_gone();
}

static void lists_stay_where_their_room_is_not_enough(void **state)
{
    static const struct kept_keys need = {.count = 5000, .pieces = 5, .bytes = 3 * MIB};

    (void)state;
    assert_int_equal(reserve(jobs, &need, &gone), ERR_FULL);
    nothing_has_gone();
}

static void what_fits_is_reserved(void **state)
{
    static const struct kept_keys need = {.count = 1000, .pieces = 1, .bytes = MIB};

    (void)state;
    assert_int_equal(reserve(jobs, &need, &gone), OK);
    assert_int_equal(job->view.spec.keys.pieces, 2);
    assert_int_equal(jobs->pieces, 5);
    assert_int_equal(jobs->piece_bytes, 8 * MIB);
}

/* What has gone is told, for its pieces to be removed behind the lock. */
static void a_list_that_makes_room_is_told(void **state)
{
    static const struct kept_keys need = {.count = 2000, .pieces = 2, .bytes = 2 * MIB};

    (void)state;
    assert_int_equal(reserve(jobs, &need, &gone), OK);
    assert_int_equal(job->view.spec.keys.pieces, 0);
    assert_int_equal(saved, 1);
    assert_int_equal(gone.count, 1);
    assert_int_equal(gone.list[0].id, 1);
    assert_int_equal(gone.list[0].pieces, 2);
    assert_int_equal(jobs->pieces, 4);
    assert_int_equal(jobs->piece_bytes, 8 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_list_that_never_fits_drops_no_other, open_jobs,
                                        close_jobs),
        cmocka_unit_test_setup_teardown(lists_stay_where_their_room_is_not_enough, open_jobs,
                                        close_jobs),
        cmocka_unit_test_setup_teardown(what_fits_is_reserved, open_jobs, close_jobs),
        cmocka_unit_test_setup_teardown(a_list_that_makes_room_is_told, open_jobs, close_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
