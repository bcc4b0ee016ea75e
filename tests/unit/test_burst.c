/* Writes that are put off while blocks come in a burst: until when, how many, and what is not.
 *
 * Life: a cache over a temporary directory for each test; the test turns the core's clock. Writes
 * that were begun hang until they are released.
 * Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include "server/cache/keeper.c"

enum { PAUSE = BURST_PAUSE_MS, REST = BURST_REST_US / 1000, MOST = 16 / PUT_OFF_PART }; /* blocks */

struct burst_case {
    struct cache_case *t;
    struct object *object;
    struct chunk *chunk;
    struct buffer *buffer[BLOCKS_PER_CHUNK];
    struct transfer *write[BLOCKS_PER_CHUNK];
    unsigned count;
};

static struct burst_case open_case(void)
{
    struct burst_case w = {.t = case_make(1)};

    if (case_open(w.t) != OK)
        fail_msg("%s", w.t->why);
    w.t->core.now_us = 5 * BURST_REST_US;
    w.object = case_learn(w.t, "a", "\"1\"", CHUNK_BYTES);
    assert_int_equal(chunk_admit(w.t->c, w.object, 0, case_asked, &w.chunk), OK);
    case_hold_writes = true;
    return w;
}

/* The next block has come. */
static void come(struct burst_case *w, bool may_wait)
{
    unsigned i = w->count++;
    struct buffer_key key = {w->object->data_id, i * (uint64_t)BLOCK_BYTES};
    struct buffer *b = pool_take(w->t->c, BLOCK_BYTES, BUFFER_DEMAND);

    assert_non_null(b);
    memset(b->mem, (int)i, BLOCK_BYTES);
    b->len = BLOCK_BYTES;
    w->buffer[i] = pool_publish(w->t->c, b, &key, false);
    w->write[i] = chunk_write(&w->t->machine, w->chunk, i, b, may_wait);
    assert_non_null(w->write[i]);
}

/* So much later: the burst's timer rings if it is due. */
static void turn(struct burst_case *w, uint64_t ms)
{
    struct keeper *self = keeper_of(&w->t->core);
    struct timer *timer = &self->burst.timer;

    w->t->core.now_us += ms * 1000;
    if (timer->at_ms > 0 && timer->at_ms <= 1 + ms) {
        timer->at_ms = 0;
        timer->fired = true;
    } else if (timer->at_ms > 0) {
        timer->at_ms -= ms;
    }
    assert_int_equal(keeper_run(&self->m), WAIT);
}

static void end_write(struct burst_case *w, unsigned i, enum err err)
{
    assert_int_equal(chunk_write_done(w->write[i]), err);
    pool_give(w->t->c, w->buffer[i]);
    w->write[i] = NULL;
}

/* In the order in which they began. */
static void release_all(struct burst_case *w, enum err err)
{
    unsigned left = 0;

    for (unsigned i = 0; i < w->count; i++)
        left += w->write[i] != NULL;
    while (left > 0) {
        if (case_held_count > 0)
            case_release_write();
        for (unsigned i = 0; i < w->count; i++)
            if (w->write[i] && transfer_ended(w->write[i])) {
                end_write(w, i, err);
                left--;
            }
    }
    assert_int_equal(w->t->machine.inflight, 0);
}

static void close_case(struct burst_case *w)
{
    chunk_filled(w->t->c, w->chunk);
    object_drop(w->t->c, w->object);
    case_hold_writes = false;
    case_end(w->t);
}

static void they_begin_once_no_more_come(void **state)
{
    struct burst_case w = open_case();
    struct disk *disk = &w.t->c->dir[0].disk;

    (void)state;
    come(&w, true);
    turn(&w, PAUSE - 1);
    come(&w, true);
    turn(&w, PAUSE - 1);             /* of the second; the timer was the first one's */
    assert_int_equal(case_held_count, 0);
    assert_int_equal(w.t->machine.inflight, 2);
    assert_int_equal(atomic_load(&disk->writing_bytes), 2 * BLOCK_BYTES);
    turn(&w, 2);
    assert_int_equal(case_held_count, 2);
    assert_int_equal(keeper_of(&w.t->core)->burst.timer.at_ms, 0);
    assert_int_equal(w.write[0]->made_us, w.t->core.now_us); /* what it waited is not the disk's */
    release_all(&w, OK);
    assert_int_equal(atomic_load(&disk->writing_bytes), 0);
    close_case(&w);
}

static void nor_do_they_wait_for_that_once_the_end_is_known(void **state)
{
    struct burst_case w = open_case();

    (void)state;
    cache_burst_over(&w.t->core);    /* of none */
    come(&w, true);
    come(&w, true);
    cache_burst_over(&w.t->core);
    assert_int_equal(case_held_count, 2);
    come(&w, true);
    assert_int_equal(case_held_count, 3);
    release_all(&w, OK);
    close_case(&w);
}

static void what_may_not_wait_is_begun_beside_them(void **state)
{
    struct burst_case w = open_case();

    (void)state;
    come(&w, true);
    come(&w, false);
    assert_int_equal(case_held_count, 1);
    assert_true(case_held[0] == &w.write[1]->op);
    turn(&w, PAUSE);
    assert_int_equal(case_held_count, 2);
    release_all(&w, OK);
    close_case(&w);
}

/* Else a stream's writes would come by the second instead of as it comes. */
static void behind_a_burst_they_begin_at_once_until_it_has_rested(void **state)
{
    struct burst_case w = open_case();

    (void)state;
    come(&w, true);
    turn(&w, PAUSE);
    assert_int_equal(case_held_count, 1);
    come(&w, true);
    assert_int_equal(case_held_count, 2);
    turn(&w, REST - 1);
    come(&w, true);
    assert_int_equal(case_held_count, 3);
    turn(&w, REST);
    come(&w, true);
    assert_int_equal(case_held_count, 3);
    turn(&w, PAUSE);
    assert_int_equal(case_held_count, 4);
    release_all(&w, OK);
    close_case(&w);
}

static void a_burst_that_goes_on_ends_after_a_second(void **state)
{
    struct burst_case w = open_case();
    struct keeper *self = keeper_of(&w.t->core);

    (void)state;
    come(&w, true);
    for (unsigned ms = 0; ms + PAUSE / 2 < BURST_MS; ms += PAUSE / 2) {
        turn(&w, PAUSE / 2);
        self->burst.last_us = w.t->core.now_us; /* as if another one had come */
        assert_int_equal(case_held_count, 0);
    }
    turn(&w, PAUSE);
    assert_int_equal(case_held_count, 1);
    release_all(&w, OK);
    close_case(&w);
}

static void so_much_of_the_memory_waits_and_no_more(void **state)
{
    struct burst_case w = open_case();

    (void)state;
    for (unsigned i = 0; i < MOST; i++)
        come(&w, true);
    assert_int_equal(case_held_count, 0);
    come(&w, true);                  /* behind those before it; four at first */
    assert_int_equal(case_held_count, 4);
    assert_true(case_held[0] == &w.write[0]->op);
    assert_int_equal(w.t->machine.inflight, 1);
    come(&w, true);
    assert_int_equal(w.t->machine.inflight, 2);
    release_all(&w, OK);
    close_case(&w);
}

/* As uploads and small objects: it is in turns with what is left of the burst. */
static void what_may_not_wait_is_not_behind_them_either(void **state)
{
    struct burst_case w = open_case();

    (void)state;
    keeper_of(&w.t->core)->write[0].ops_most = 2;
    for (unsigned i = 0; i < MOST; i++)
        come(&w, true);
    turn(&w, PAUSE);
    come(&w, false);
    come(&w, false);
    assert_int_equal(case_held_count, 2);
    case_release_write();            /* it was quick: one of these, and one more */
    end_write(&w, 0, OK);
    assert_int_equal(case_held_count, 3);
    assert_true(case_held[1] == &w.write[MOST]->op);
    assert_true(case_held[2] == &w.write[2]->op);
    release_all(&w, OK);
    assert_int_equal(keeper_of(&w.t->core)->burst.ops, 0);
    assert_int_equal(keeper_of(&w.t->core)->burst.bytes, 0);
    close_case(&w);
}

/* What is held would drive others out. */
static void none_waits_once_all_memory_was_used(void **state)
{
    struct burst_case w = open_case();
    struct pool *pool = cache_pool(w.t->c);
    struct buffer *all[16];
    unsigned count = 0;

    (void)state;
    while (pool->fresh < pool->frames) {
        all[count] = pool_take(w.t->c, BLOCK_BYTES, BUFFER_DEMAND);
        assert_non_null(all[count++]);
    }
    for (unsigned i = 0; i < count; i++)
        pool_give(w.t->c, all[i]);
    come(&w, true);
    assert_int_equal(case_held_count, 1);
    release_all(&w, OK);
    close_case(&w);
}

static void on_a_disk_that_went_meanwhile_nothing_is_written(void **state)
{
    struct burst_case w = open_case();

    (void)state;
    come(&w, true);
    come(&w, true);
    assert_true(cache_disk_fence(w.t->c, w.t->dir[0]));
    turn(&w, PAUSE);
    assert_int_equal(case_held_count, 0);
    release_all(&w, ERR_CANCELLED);
    AWAIT(directory_is_quiet(&w.t->c->dir[0]));
    close_case(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_begin_once_no_more_come),
        cmocka_unit_test(nor_do_they_wait_for_that_once_the_end_is_known),
        cmocka_unit_test(what_may_not_wait_is_begun_beside_them),
        cmocka_unit_test(behind_a_burst_they_begin_at_once_until_it_has_rested),
        cmocka_unit_test(a_burst_that_goes_on_ends_after_a_second),
        cmocka_unit_test(so_much_of_the_memory_waits_and_no_more),
        cmocka_unit_test(what_may_not_wait_is_not_behind_them_either),
        cmocka_unit_test(none_waits_once_all_memory_was_used),
        cmocka_unit_test(on_a_disk_that_went_meanwhile_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
