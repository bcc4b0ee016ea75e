/* The pieces of an answer, of server/s3/get.c: who waits for memory must not hold what another one
 * waits for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"
#include "server/s3/get.c"

#include <setjmp.h>

#include <cmocka.h>

/* ---- what stands in for pieces, pool and disk: counted frames ---- */

enum { FRAMES = 4 };
static unsigned frames_free;
static struct buffer frame[FRAMES];

static struct buffer *frame_take(void)
{
    return frames_free > 0 ? &frame[--frames_free] : NULL;
}

static void frame_give(struct buffer **b)
{
    assert_non_null(*b);
    *b = NULL;
    frame[frames_free++] = (struct buffer){.len = 1};
}

void piece_release(struct get *g, struct piece *p)
{
    (void)g;
    if (p->buffer)
        frame_give(&p->buffer);
    p->state = PIECE_EMPTY;
}

void piece_park(struct get *g, struct piece *p)
{
    piece_release(g, p);
}

/* the disk is fast */
static struct transfer at_once = {.ended_us = 1, .len = 1, .op.res = 1};

enum piece_turn piece_restart(struct get *g, struct piece *p) /* it is on disk */
{
    (void)g;
    p->buffer = frame_take();
    if (!p->buffer)
        return PIECE_NO_ROOM;
    p->state = PIECE_READ;
    p->transfer = &at_once;
    return PIECE_STARTED;
}

void piece_leave(struct get *g, struct piece *p)
{
    (void)g;
    (void)p;
}

void piece_expect(struct get *g, uint64_t at)
{
    (void)g;
    (void)at;
}

enum piece_turn piece_start(struct get *g, struct piece *p, uint64_t at)
{
    *p = (struct piece){.at = at, .len = 1};
    return piece_restart(g, p);
}

enum piece_turn piece_take_disk(struct get *g, struct piece *p)
{
    (void)g;
    p->state = PIECE_READY;
    return PIECE_STARTED;
}

enum piece_turn piece_take_wait(struct get *g, struct piece *p)
{
    (void)g;
    p->buffer = p->wait.got;
    p->wait.got = NULL;
    p->state = PIECE_READY;
    return PIECE_STARTED;
}

uint8_t get_blocks_asked(const struct get *g, uint64_t number)
{
    (void)g;
    (void)number;
    return 0xff;
}

uint32_t get_asked_upto(const struct get *g, uint64_t number)
{
    (void)g;
    (void)number;
    return CHUNK_BYTES;
}

/* ---- */

enum { PIECES = 3 };
static struct object object = {.holds = 2};
static struct server its_server;
static struct core its_core = {.server = &its_server};

/* A request that parked its first piece, which was evicted, and waits for two blocks of a fetch. */
static void make_waiting(struct get *g)
{
    *g = (struct get){.count = PIECES, .to = PIECES - 1, .next = PIECES, .object = &object};
    for (unsigned i = 0; i < PIECES; i++) {
        g->piece[i] = (struct piece){.at = i, .len = 1, .state = i ? PIECE_WAIT : PIECE_EMPTY};
        g->piece[i].wait.busy = i > 0;
    }
}

static void deliver(struct piece *p)
{
    p->wait.got = frame_take();
    assert_non_null(p->wait.got);
    p->wait.busy = false;
    p->wait.ended = true;
}

/* The part of the pump that moves memory. */
static void turn(struct get *g)
{
    g->waiting_room = false;
    assert_int_equal(take_arrivals(g), OK);
    make_pieces(g);
    park_blocked(g);
}

static void two_requests_that_wait_for_room_do_not_hold_each_others_blocks(void **state)
{
    static struct get one, two;

    (void)state;
    frames_free = FRAMES;
    make_waiting(&one);
    make_waiting(&two);
    for (unsigned i = 1; i < PIECES; i++) { /* their fetches bring all that the pool can hold */
        deliver(&one.piece[i]);
        deliver(&two.piece[i]);
    }
    assert_int_equal(frames_free, 0);
    for (unsigned n = 0; n < 4; n++) {
        turn(&one);
        turn(&two);
    }
    assert_int_equal(one.piece[0].state, PIECE_READY);
    assert_int_equal(two.piece[0].state, PIECE_READY);
}

static void who_waits_for_room_says_so_and_holds_nothing_behind(void **state)
{
    static struct get g;

    (void)state;
    frames_free = FRAMES;
    make_waiting(&g);
    deliver(&g.piece[1]);
    deliver(&g.piece[2]);
    struct buffer *others[2] = {frame_take(), frame_take()};
    turn(&g);
    assert_true(g.waiting_room);
    assert_int_equal(frames_free, 2); /* what was delivered behind the first piece came back */
    frame_give(&others[0]);
    frame_give(&others[1]);
}

static void what_is_ready_in_order_is_kept(void **state)
{
    static struct get g;

    (void)state;
    frames_free = FRAMES;
    make_waiting(&g);
    deliver(&g.piece[1]);            /* and piece 2 is still under way */
    turn(&g);
    turn(&g);
    turn(&g);
    assert_int_equal(g.piece[0].state, PIECE_READY);
    assert_int_equal(g.piece[1].state, PIECE_READY);
    assert_int_equal(g.piece[2].state, PIECE_WAIT);
    assert_int_equal(frames_free, FRAMES - 2);
}

/* Blocks that came from disk, behind a first one that is in this state already; of an object that
 * so many others read. */
static struct get *make_read(enum piece_state first, struct transfer *t, unsigned others)
{
    static struct get g;

    atomic_store(&object.holds, 2 + others);
    g = (struct get){.count = PIECES, .object = &object, .m.core = &its_core};
    for (unsigned i = 0; i < PIECES; i++)
        g.piece[i] = (struct piece){.len = BLOCK_BYTES,
                                    .state = i == 0 ? first : PIECE_READ,
                                    .transfer = t};
    assert_int_equal(take_arrivals(&g), OK);
    return &g;
}

static void what_came_from_disk_is_verified_a_block_at_a_time(void **state)
{
    struct transfer late = {.late = true};
    struct get *g = make_read(PIECE_READ, &at_once, 0);

    (void)state;
    assert_int_equal(g->piece[0].state, PIECE_READY);
    assert_int_equal(g->piece[1].state, PIECE_READ);
    g->piece[0].len = BLOCK_BYTES / 2; /* the half of it was sent */
    assert_int_equal(take_arrivals(g), OK);
    assert_int_equal(g->piece[1].state, PIECE_READ);
    g->piece[1].len = BLOCK_BYTES / 2;
    assert_int_equal(take_arrivals(g), OK);
    assert_int_equal(g->piece[1].state, PIECE_READY);
    assert_int_equal(g->piece[2].state, PIECE_READ);
    g = make_read(PIECE_SENDING, &at_once, 0);
    assert_int_equal(g->piece[1].state, PIECE_READ);
    g = make_read(PIECE_WAIT, &at_once, 0); /* it is given back */
    assert_int_equal(g->piece[2].state, PIECE_READY);
    g = make_read(PIECE_SENDING, &late, 0); /* it is had elsewhere */
    assert_int_equal(g->piece[2].state, PIECE_READY);
    g = make_read(PIECE_SENDING, &at_once, 1);
    assert_int_equal(g->piece[2].state, PIECE_READY);
}

static void who_joined_a_read_looks_again_when_it_is_over(void **state)
{
    static struct get g;

    (void)state;
    frames_free = FRAMES;
    make_waiting(&g);
    g.piece[0].state = PIECE_JOINS;
    g.piece[0].join.busy = true;
    deliver(&g.piece[1]);
    turn(&g);
    turn(&g);
    assert_int_equal(g.piece[0].state, PIECE_JOINS);
    assert_int_equal(g.piece[1].state, PIECE_READY); /* it holds up no one's memory */
    g.piece[0].join.busy = false;
    turn(&g);
    turn(&g);
    assert_int_equal(g.piece[0].state, PIECE_READY);
}

static void who_finds_no_fetch_is_relayed(void **state)
{
    static struct req r;

    (void)state;
    r.get.learn.err = ERR_BUSY;
    assert_int_equal(learn_failed(&r.get), AGAIN);
    assert_true(r.get.relay);
    r = (struct req){0};
    assert_int_equal(broken(&r.get, ERR_BUSY), AGAIN); /* a chunk that is to be under way first */
    assert_true(r.get.relay);
}

static void who_has_bytes_waits_for_a_fetch_and_not_for_ever(void **state)
{
    struct core core = {.now_ms = 1000};
    static struct get g;

    (void)state;
    g = (struct get){.m.core = &core, .waiting_room = true, .send_begun = true};
    g.timer.at_ms = 1;
    assert_false(too_long_without_room(&g));
    core.now_ms += ROOM_MS;
    assert_false(too_long_without_room(&g)); /* for a buffer he does */
    g.full = true;
    assert_false(too_long_without_room(&g));
    core.now_ms += ROOM_MS - 1;
    assert_false(too_long_without_room(&g));
    core.now_ms++;
    assert_true(too_long_without_room(&g));
}

static bool asks(uint64_t checked_ms, uint32_t flags, bool immutable)
{
    static struct core core;
    static struct object o;
    static struct req r;
    const struct conf_bucket rule = {.ttl_ms = 600000, .immutable = immutable};

    core.wall_ms = clock_wall_ms() - 5; /* the turn began then */
    atomic_store(&o.checked_ms, checked_ms);
    atomic_store(&o.flags, flags);
    r.get.m.core = &core;
    r.get.object = &o;
    return must_ask(&r.get, &rule);
}

static void with_the_clock_set_back_what_was_checked_before_is_asked_for(void **state)
{
    uint64_t now_ms = clock_wall_ms(), ahead_ms = now_ms + 8 * 3600000;

    (void)state;
    assert_false(asks(now_ms - 1000, 0, false));
    assert_true(asks(now_ms - 601000, 0, false));
    assert_false(asks(now_ms, 0, false)); /* by a core whose turn began later */
    assert_true(asks(ahead_ms, 0, false));
    assert_false(asks(ahead_ms, 0, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_requests_that_wait_for_room_do_not_hold_each_others_blocks),
        cmocka_unit_test(who_waits_for_room_says_so_and_holds_nothing_behind),
        cmocka_unit_test(what_is_ready_in_order_is_kept),
        cmocka_unit_test(what_came_from_disk_is_verified_a_block_at_a_time),
        cmocka_unit_test(who_joined_a_read_looks_again_when_it_is_over),
        cmocka_unit_test(who_finds_no_fetch_is_relayed),
        cmocka_unit_test(who_has_bytes_waits_for_a_fetch_and_not_for_ever),
        cmocka_unit_test(with_the_clock_set_back_what_was_checked_before_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
