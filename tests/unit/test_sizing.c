/* What other sizes would give: loops of which the answer is known, exact and sampled; that nothing
 * is told before it is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/sizing.c"

#include <setjmp.h>

#include <cmocka.h>

enum { ROOM = 200, SAMPLES = 4 * ROOM };

static struct policy *like;
static struct sizing_report report;

static struct sizing *make(const char *policy, uint64_t chunks, uint32_t samples)
{
    struct sizing_room room[SIZING_SIZES];

    for (unsigned n = 0; n < SIZING_SIZES; n++) {
        uint64_t bytes = (uint64_t)((double)chunks * sizing_factor[n]) * CHUNK_BYTES;
        room[n] = (struct sizing_room){bytes, bytes, bytes};
    }
    like = policy_make(policy, chunks, chunks);
    assert_non_null(like);
    struct sizing *s = sizing_make(like, room, samples);
    assert_non_null(s);
    return s;
}

static void end(struct sizing *s)
{
    sizing_free(s);
    policy_free(like);
}

static void ask(struct sizing *s, uint64_t hash, bool fetched)
{
    const struct sizing_total t = {CHUNK_BYTES, CHUNK_BYTES, fetched ? CHUNK_BYTES : 0};
    const struct sizing_read r = {
        .hash = hash * 0x9E3779B97F4A7C15,
        .bytes = CHUNK_BYTES,
        .chunk_bytes = CHUNK_BYTES,
        .stored_bytes = CHUNK_BYTES,
        .blocks = 0xff,
    };
    sizing_add(s, 0, &t);
    if (sizing_wants(sizing_limit(s), r.hash))
        sizing_read(s, &r);
    sizing_settle(s);
}

static void loop(struct sizing *s, uint64_t chunks, unsigned passes)
{
    for (unsigned pass = 0; pass < passes; pass++)
        for (uint64_t n = 0; n < chunks; n++)
            ask(s, n, n % 4 > 0);
}

/* The same loop, told a hundred at a time. */
static void loop_by_hundreds(struct sizing *s, uint64_t chunks, unsigned passes, bool at_once)
{
    enum { HUNDRED = 100 };
    struct sizing_read r[HUNDRED];

    for (uint64_t n = 0; n < chunks * passes; n += HUNDRED) {
        for (unsigned i = 0; i < HUNDRED; i++) {
            const struct sizing_total t = {CHUNK_BYTES, CHUNK_BYTES, 0};
            r[i] = (struct sizing_read){.hash = (n + i) % chunks * 0x9E3779B97F4A7C15,
                                        .bytes = CHUNK_BYTES,
                                        .chunk_bytes = CHUNK_BYTES,
                                        .stored_bytes = CHUNK_BYTES,
                                        .blocks = 0xff};
            sizing_add(s, 0, &t);
        }
        if (at_once)
            sizing_read_all(s, r, HUNDRED);
        for (unsigned i = 0; !at_once && i < HUNDRED; i++)
            sizing_read(s, &r[i]);
        sizing_settle(s);
    }
}

static void check_near(double seen, double wanted, double most)
{
    assert_true(fabs(seen - wanted) <= most);
}

static void many_at_once_are_as_one_by_one(void **state)
{
    struct sizing_report one;

    (void)state;
    for (unsigned at_once = 0; at_once < 2; at_once++) {
        struct sizing *s = make("ehd", ROOM, SAMPLES);
        loop_by_hundreds(s, 3 * ROOM / 2, 6, at_once);
        sizing_report(s, at_once ? &report : &one);
        end(s);
    }
    assert_int_equal(one.all.state, SIZING_READY);
    assert_memory_equal(report.all.predicted, one.all.predicted, sizeof one.all.predicted);
    check_near(report.all.window, one.all.window, 0);
    assert_true(one.all.predicted[0] > 0 && one.all.predicted[0] < 1);
}

/* Of a loop lru hits all or nothing. */
static void a_loop_hits_where_it_fits(void **state)
{
    (void)state;
    struct sizing *s = make("lru", ROOM, SAMPLES);

    loop(s, 3 * ROOM / 2, 5);
    sizing_report(s, &report);
    assert_int_equal(report.all.state, SIZING_READY);
    assert_true(report.rate == 1);
    check_near(report.all.distinct, 1.5 * ROOM * CHUNK_BYTES, 1);
    check_near(report.all.measured, .25, .01);
    check_near(report.all.predicted[SIZING_SIZES - 4], 0, 0);
    check_near(report.all.predicted[SIZING_SIZES - 3], 0, 0);
    check_near(report.all.predicted[SIZING_SIZES - 2], 1, 0);
    check_near(report.all.predicted[SIZING_SIZES - 1], 1, 0);
    assert_int_equal(report.groups, 1);
    end(s);
}

/* The policy of the server, not any other: ehd keeps a part of what does not fit. */
static void the_policy_is_the_one_that_was_given(void **state)
{
    (void)state;
    struct sizing *s = make("ehd", ROOM, SAMPLES);

    loop(s, 4 * ROOM, 12);
    sizing_report(s, &report);
    assert_int_equal(report.all.state, SIZING_READY);
    /* In a pass hits come first, and what is older weighs less. */
    check_near(report.all.predicted[0], .115, .02);
    check_near(report.all.predicted[1], .23, .03);
    check_near(report.all.predicted[2], .47, .03);
    check_near(report.all.predicted[3], 1, .01);
    end(s);
}

static void beyond_its_room_it_samples(void **state)
{
    (void)state;
    struct sizing *s = make("ehd", 20 * ROOM, 10 * ROOM);

    loop(s, 40 * ROOM, 6);
    sizing_report(s, &report);
    assert_int_equal(report.all.state, SIZING_READY);
    assert_true(report.rate < .5);
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        assert_true(s->cache[n].table.count <= s->cache[n].table.cap);
    check_near(report.all.distinct, 40. * ROOM * CHUNK_BYTES, 2. * ROOM * CHUNK_BYTES);
    check_near(report.all.predicted[1], .47, .03);
    check_near(report.all.predicted[3], 1, .01);
    end(s);
}

/* One chunk is half of all reads: that it is not in the sample must not matter. */
static void a_chunk_that_is_read_at_every_step_does_not_mislead(void **state)
{
    (void)state;
    for (uint64_t hot = 1000000; hot < 1000004; hot++) {
        struct sizing *s = make("lru", 20 * ROOM, 10 * ROOM);
        for (unsigned pass = 0; pass < 4; pass++)
            for (uint64_t n = 0; n < 50 * ROOM; n++) {
                ask(s, n, true);
                ask(s, hot, false);
            }
        sizing_report(s, &report);
        check_near(report.all.predicted[1], .5, .03);
        assert_true(report.all.predicted[3] > .94);
        end(s);
    }
}

static void nothing_is_told_before_it_was_read_twice(void **state)
{
    (void)state;
    struct sizing *s = make("lru", ROOM, SAMPLES);

    sizing_report(s, &report);
    assert_int_equal(report.all.state, SIZING_EARLY);
    assert_int_equal(report.groups, 0);
    loop(s, ROOM, 1);
    sizing_report(s, &report);
    assert_int_equal(report.all.state, SIZING_EARLY);
    check_near(report.all.distinct, (double)ROOM * CHUNK_BYTES, 1);
    loop(s, ROOM, 1);
    sizing_report(s, &report);
    assert_int_equal(report.all.state, SIZING_READY);
    check_near(report.all.predicted[1], 1, 0); /* the first pass, which misses anywhere, is out */
    end(s);
}

/* From small objects to large ones: the rate rises again, and what was known is known no more. */
static void the_rate_rises_when_there_is_room(void **state)
{
    (void)state;
    struct sizing *s = make("lru", ROOM, SAMPLES);

    set_limit(s, UINT32_MAX / 64);
    loop(s, ROOM, 4);
    sizing_report(s, &report);
    assert_true(report.rate < .1);
    loop(s, ROOM, 200);
    sizing_report(s, &report);
    assert_true(report.rate > .1);
    check_near(report.all.predicted[1], 1, .01);
    end(s);
}

static void groups_are_told_apart(void **state)
{
    (void)state;
    struct sizing *s = make("lru", ROOM, SAMPLES);

    for (unsigned pass = 0; pass < 4; pass++)
        for (uint64_t n = 0; n < ROOM; n++)
            for (unsigned g = 0; g < 2; g++) {
                const struct sizing_total t = {CHUNK_BYTES, CHUNK_BYTES, g ? CHUNK_BYTES : 0};
                const struct sizing_read r = {
                    .hash = g ? 1 + n + (uint64_t)pass * ROOM : n % 8 << 40,
                    .bytes = CHUNK_BYTES,
                    .chunk_bytes = CHUNK_BYTES,
                    .stored_bytes = CHUNK_BYTES,
                    .group = (uint16_t)(g + 1),
                    .blocks = 0xff,
                };
                sizing_add(s, r.group, &t);
                sizing_read(s, &r);
                sizing_settle(s);
            }
    sizing_report(s, &report);
    assert_int_equal(report.groups, 2);
    assert_int_equal(report.group[0].state, SIZING_READY);
    assert_true(report.group[0].predicted[0] > .99 && report.group[0].measured == 1);
    assert_int_equal(report.group[1].state, SIZING_EARLY); /* each of it is read once */
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_hits_where_it_fits),
        cmocka_unit_test(many_at_once_are_as_one_by_one),
        cmocka_unit_test(the_policy_is_the_one_that_was_given),
        cmocka_unit_test(beyond_its_room_it_samples),
        cmocka_unit_test(a_chunk_that_is_read_at_every_step_does_not_mislead),
        cmocka_unit_test(nothing_is_told_before_it_was_read_twice),
        cmocka_unit_test(the_rate_rises_when_there_is_room),
        cmocka_unit_test(groups_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
