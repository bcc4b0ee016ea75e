/* What is fetched ahead for several plans: who reads nothing keeps nothing from others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/jobs/plan.c"
#include "server/jobs/plan_cursor.c"

/* In place of cache and upstream: each key has so many bytes, nothing of it is here, and each chunk
 * has come by the next look. */
static struct object each_object;
static bool upstream_is_down;
static struct conf_bucket the_rule;

static struct epoch no_epoch(struct cache *c, const struct okey *k)
{
    (void)c;
    (void)k;
    return (struct epoch){0};
}

static struct object *find_known(struct cache *c, const struct okey *k)
{
    (void)c;
    (void)k;
    return &each_object;
}

static void drop_known(struct cache *c, struct object *o)
{
    (void)c;
    (void)o;
}

static struct chunk *find_nothing(struct cache *c, struct id data_id, uint64_t number)
{
    (void)c;
    (void)data_id;
    (void)number;
    return NULL;
}

static const struct conf_bucket *first_rule(const struct config *c, struct span bucket,
                                            struct span key)
{
    (void)c;
    (void)bucket;
    (void)key;
    return &the_rule;
}

static bool is_down(const struct origin *o)
{
    (void)o;
    return upstream_is_down;
}

static bool bring_chunk(struct core *c, struct object *o, uint64_t number, struct fetch_watch *w)
{
    (void)c;
    (void)o;
    (void)number;
    w->ended = w->kept = true;
    return true;
}

static struct okey key_by_text(const struct plan *p, const struct plan_object *o,
                               char memory[KEY_BYTES_MAX + 1])
{
    (void)memory;
    return (struct okey){.key = plan_rest(p, o)};
}

#define cache_epoch no_epoch
#define cache_find find_known
#define object_drop drop_known
#define chunk_find find_nothing
#define conf_bucket(config_, bucket_, key_) first_rule(config_, bucket_, key_)
#define origin_is_down is_down
#define fill_prewarm bring_chunk
#define plan_key key_by_text
#include "server/jobs/plan_fetch.c"

/* ---- plans ---- */
enum { WINDOW = 64 * MIB, FAR = 4 * WINDOW, PLANS = 16 };

static struct plan_account account;
static struct config config;
static const struct settings settings = {.config = &config};
static struct core core;
static struct server server;
static struct plans plans = {.server = &server};
static struct planner *planner;
static struct plan *plan[PLANS];

static void begin(uint64_t object_bytes)
{
    config.prefetch_inflight = 32;
    config.cache_memory = 1024 * (uint64_t)MIB;
    core.settings = &settings;
    the_rule.immutable = true;
    each_object.size = object_bytes;
    planner = mem_take(sizeof *planner);
    assert_non_null(planner);
    planner->m.core = &core;
    planner->plans = &plans;
    planner->window = WINDOW;
    planner->far = FAR;
}

static void end(void)
{
    for (unsigned i = 0; i < planner->count; i++) {
        assert_true(plan_fetch_leave(planner, plan[i]));
        plan_free(plan[i]);
    }
    assert_int_equal(planner->staged_bytes, 0);
    assert_int_equal(planner->staged_count, 0);
    mem_give(planner);
}

/* One more plan, of so many objects for one reader. */
static struct plan *post(unsigned objects)
{
    struct plan *p = plan_make(&account);

    assert_non_null(p);
    for (unsigned i = 0; i < objects; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        const struct plan_wish wish = {.id = {i, 7}, .rest = span_of(key)};
        assert_int_equal(plan_add(p, &wish), OK);
    }
    assert_int_equal(plan_settle(p), OK);
    plan[planner->count] = p;
    planner->plan[planner->count++] = p;
    return p;
}

/* Until nothing more is fetched. */
static void fetch(void)
{
    unsigned under_way_at_end;

    do {
        plan_fetch_reap(planner);
        plan_fetch_tick(planner);
        while (!plan_fetch_more(planner))
            ;
        under_way_at_end = under_way(planner);
    } while (under_way_at_end > 0);
}

/* How many of its objects, of a chunk each, were looked at. */
static uint64_t looked_at(const struct plan *p)
{
    return p->stream[0].ahead + p->stream[0].chunk;
}

static void read_next(struct plan *p)
{
    struct plan_stream *t = &p->stream[0];
    const struct follow_read read = {
        .id = p->object[p->entry[t->at + t->begun].object].id, .bytes = MIB};
    struct plan_match match;

    assert_true(plan_match(p, &read, &match));
    assert_int_equal(plan_heard(p, &read, &match), HEARD_NEXT);
}

static void a_plan_alone_has_the_whole_window(void **state)
{
    (void)state;
    begin(CHUNK_BYTES);
    struct plan *p = post(100);
    fetch();
    assert_int_equal(p->staged_bytes, WINDOW);
    assert_int_equal(planner->staged_bytes, WINDOW);
    for (unsigned i = 0; i < 3; i++)
        read_next(p);
    fetch();                         /* he is in the third, of which something was read */
    assert_int_equal(p->staged_bytes, WINDOW);
    assert_int_equal(looked_at(p), 3 + WINDOW / CHUNK_BYTES);
    end();
}

static void a_plan_that_nobody_reads_keeps_nothing_from_others(void **state)
{
    (void)state;
    begin(CHUNK_BYTES);
    struct plan *unread = post(100);
    fetch();
    struct plan *p = post(100);
    fetch();
    assert_int_equal(unread->staged_bytes, WINDOW);
    assert_int_equal(p->staged_bytes, WINDOW / 2);
    for (unsigned i = 0; i < 50; i++) {
        read_next(p);
        fetch();
        assert_int_equal(looked_at(p), i + 1 + WINDOW / 2 / CHUNK_BYTES);
    }
    assert_int_equal(unread->staged_bytes, WINDOW);
    end();
}

static void those_that_come_together_have_as_much_each(void **state)
{
    (void)state;
    begin(MIB);
    for (unsigned i = 0; i < 7; i++)
        post(1000);
    fetch();
    for (unsigned i = 0; i < 7; i++)
        assert_in_range(plan[i]->staged_bytes, 2 * WINDOW / 8 - 2 * MIB, 2 * WINDOW / 8);
    end();
}

/* All that there may be, one after the other, and none is read. */
static void however_many_are_not_read_each_has_something_and_all_are_bounded(void **state)
{
    (void)state;
    begin(CHUNK_BYTES);
    for (unsigned i = 0; i < PLANS; i++) {
        post(100);
        fetch();
        assert_true(plan[i]->staged_bytes >= CHUNK_BYTES);
    }
    assert_true(planner->staged_bytes <= 2 * WINDOW + PLANS * (uint64_t)CHUNK_BYTES);
    end();
}

/* Many small objects fill the table long before the window. */
static void small_objects_that_nobody_reads_leave_places_to_others(void **state)
{
    (void)state;
    begin(1024);
    struct plan *unread = post(PLAN_STAGED_MAX + 100);
    fetch();
    assert_int_equal(unread->staged_count, PLAN_STAGED_MAX);
    struct plan *p = post(PLAN_STAGED_MAX);
    fetch();
    assert_int_equal(p->staged_count, PLAN_STAGED_MAX / 2);
    for (unsigned i = 0; i < PLANS - 2; i++) {
        post(PLAN_STAGED_MAX);
        fetch();
        assert_true(plan[i]->staged_count > 0);
    }
    end();
}

/* Their readers come one after the other: so many streams are looked at in a turn, and there are
 * more. false: the core would never sleep. */
static bool rests_soon(void)
{
    unsigned turns = 0;

    while (turns < 100 && !plan_fetch_more(planner))
        turns++;
    return turns < 100;
}

static struct plan *post_streams(unsigned streams, unsigned each)
{
    struct plan *p = plan_make(&account);

    assert_non_null(p);
    for (unsigned i = 0; i < streams * each; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        const struct plan_wish wish = {
            .id = {i, 7}, .rest = span_of(key), .stream = i / each};
        assert_int_equal(plan_add(p, &wish), OK);
    }
    assert_int_equal(plan_settle(p), OK);
    plan[planner->count] = p;
    planner->plan[planner->count++] = p;
    return p;
}

static void many_streams_that_wait_for_room_or_their_rate_let_the_core_rest(void **state)
{
    (void)state;
    begin(1024);
    struct plan *p = post_streams(2 * LOOKS_PER_TURN, 20);
    for (unsigned turns = 0; p->staged_count < PLAN_STAGED_MAX && turns < 1000; turns++) {
        plan_fetch_reap(planner);
        plan_fetch_tick(planner);
        (void)rests_soon();
    }
    assert_int_equal(p->staged_count, PLAN_STAGED_MAX);
    plan_fetch_reap(planner);
    assert_int_equal(under_way(planner), 0);
    assert_true(rests_soon());
    end();
    begin(MIB);
    core.now_us = 1000000;
    post_streams(2 * LOOKS_PER_TURN, 20)->facts.rate = 1;
    assert_true(rests_soon());       /* one is under way */
    plan_fetch_reap(planner);
    assert_true(rests_soon());
    assert_int_equal(under_way(planner), 0);
    core.now_us = 0;
    end();
}

/* What is here already is not fetched: how far is looked then has its bound by itself. */
static void what_is_here_and_nobody_reads_does_not_stop_others(void **state)
{
    (void)state;
    begin(CHUNK_BYTES);
    planner->far = WINDOW / 2;
    struct plan *unread = post(100);
    fetch();
    assert_int_equal(unread->distance, WINDOW / 2);
    struct plan *p = post(100);
    fetch();
    assert_int_equal(p->distance, WINDOW / 4);
    assert_int_equal(planner->distance, WINDOW / 2 + WINDOW / 4);
    end();
}

static void with_the_clock_set_back_what_was_checked_before_is_old(void **state)
{
    uint64_t now_ms = clock_wall_ms();

    (void)state;
    begin(MIB);
    struct plan *p = post(1);
    the_rule = (struct conf_bucket){.ttl_ms = 600000};
    atomic_store(&each_object.checked_ms, now_ms);
    assert_false(is_old(planner, p, &each_object, span_of("k0")));
    atomic_store(&each_object.checked_ms, now_ms - 301000);
    assert_true(is_old(planner, p, &each_object, span_of("k0")));
    atomic_store(&each_object.checked_ms, now_ms + 8 * 3600000);
    assert_true(is_old(planner, p, &each_object, span_of("k0")));
    atomic_store(&each_object.checked_ms, 0);
    end();
}

/* ---- upstream goes away ---- */
/* What is under way ends, as was said, and what may follow begins. */
static void turn(void)
{
    plan_fetch_reap(planner);
    plan_fetch_tick(planner);
    while (!plan_fetch_more(planner))
        ;
}

/* Of one object eight chunks are under way. */
static struct plan *post_one(void)
{
    begin(WINDOW);
    core.now_ms = 1000;
    struct plan *p = post(1);
    turn();
    assert_int_equal(under_way(planner), WINDOW / CHUNK_BYTES);
    return p;
}

static void fail_under_way(void)
{
    for (unsigned i = 0; i < PLAN_FETCHES; i++)
        planner->fetch[i].watch.err = ERR_UPSTREAM_RESET;
}

static void all_is_fetched(struct plan *p)
{
    core.now_ms += AGAIN_MS << TRIES_MAX;
    turn();
    fetch();
    assert_int_equal(p->now.failed, 0);
    assert_int_equal(p->staged_bytes, WINDOW);
}

static void chunks_that_fail_together_are_one_try(void **state)
{
    (void)state;
    struct plan *p = post_one();
    fail_under_way();
    turn();
    assert_int_equal(p->staged_bytes, 0);
    all_is_fetched(p);
    end();
}

/* Slower ones are of the same try, though what failed first would be asked for again. */
static void a_chunk_that_fails_later_than_those_it_was_asked_with_is_of_their_try(void **state)
{
    (void)state;
    struct plan *p = post_one();
    planner->fetch[0].watch.err = ERR_UPSTREAM_RESET;
    for (unsigned i = 1; i < TRIES_MAX; i++)
        planner->fetch[i].watch.ended = false;
    turn();
    for (unsigned i = 1; i < TRIES_MAX; i++) {
        core.now_ms += AGAIN_MS << TRIES_MAX;
        planner->fetch[i].watch.ended = true;
        planner->fetch[i].watch.err = ERR_UPSTREAM_RESET;
        plan_fetch_reap(planner);
    }
    all_is_fetched(p);
    end();
}

static void while_upstream_is_away_no_try_counts(void **state)
{
    (void)state;
    struct plan *p = post_one();
    for (unsigned i = 0; i < 2 * TRIES_MAX; i++) {
        fail_under_way();
        upstream_is_down = true;
        turn();
        assert_int_equal(under_way(planner), 0);
        upstream_is_down = false;
        core.now_ms += AGAIN_MS << TRIES_MAX;
        turn();
    }
    all_is_fetched(p);
    end();
}

static void a_chunk_that_comes_forgives_what_failed_before(void **state)
{
    (void)state;
    struct plan *p = post_one();
    for (unsigned i = 0; i < TRIES_MAX; i++) {
        fail_under_way();
        planner->fetch[i].watch.err = OK; /* another one each time */
        turn();
        core.now_ms += AGAIN_MS << TRIES_MAX;
        turn();
    }
    all_is_fetched(p);
    end();
}

static void what_fails_time_after_time_is_its_readers(void **state)
{
    (void)state;
    struct plan *p = post_one();
    for (unsigned i = 0; i < TRIES_MAX; i++) {
        assert_int_equal(p->now.failed, 0);
        fail_under_way();
        turn();
        core.now_ms += AGAIN_MS << TRIES_MAX;
        turn();
    }
    assert_int_equal(p->now.failed, 1);
    assert_int_equal(under_way(planner), 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_alone_has_the_whole_window),
        cmocka_unit_test(a_plan_that_nobody_reads_keeps_nothing_from_others),
        cmocka_unit_test(those_that_come_together_have_as_much_each),
        cmocka_unit_test(however_many_are_not_read_each_has_something_and_all_are_bounded),
        cmocka_unit_test(small_objects_that_nobody_reads_leave_places_to_others),
        cmocka_unit_test(many_streams_that_wait_for_room_or_their_rate_let_the_core_rest),
        cmocka_unit_test(what_is_here_and_nobody_reads_does_not_stop_others),
        cmocka_unit_test(with_the_clock_set_back_what_was_checked_before_is_old),
        cmocka_unit_test(chunks_that_fail_together_are_one_try),
        cmocka_unit_test(a_chunk_that_fails_later_than_those_it_was_asked_with_is_of_their_try),
        cmocka_unit_test(while_upstream_is_away_no_try_counts),
        cmocka_unit_test(a_chunk_that_comes_forgives_what_failed_before),
        cmocka_unit_test(what_fails_time_after_time_is_its_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
