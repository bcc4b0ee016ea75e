/* Traces of ranged reads: which of them are streams, and what is fetched in front of those. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/fill/stream.c"

enum { PART = CHUNK_BYTES, PARALLEL = 10, CHUNKS = 32 };

static struct streams *t;
static const struct id one = {7, 1}, other = {7 + STREAM_SETS, 2}; /* in the same set */
static unsigned begun[CHUNKS * 64];                              /* how often each chunk of one */
static uint64_t seed;

static int begin(void **state)
{
    (void)state;
    t = streams_open();
    memset(begun, 0, sizeof begun);
    seed = 1;
    return t ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    streams_close(t);
    return 0;
}

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* A reader asks for [from, from + len) and fetches ahead all that it may. How many chunks. */
static unsigned ask_of(struct id id, uint64_t from, uint64_t len, uint32_t window)
{
    struct stream_read r = {.from = from, .end = from + len};
    uint64_t number;
    unsigned count = 0;

    streams_note(t, id, &r);
    if (r.window < window)
        r.window = window;
    while (streams_next(t, id, &r, &number)) {
        assert_true(number * CHUNK_BYTES >= r.end);
        if (number < ARRAY_COUNT(begun) && id.b == one.b)
            begun[number]++;
        streams_took(t, id, &r, number);
        assert_true(++count <= STREAM_WINDOW_MOST);
    }
    return count;
}

static unsigned ask(uint64_t from, uint64_t len)
{
    return ask_of(one, from, len, 0);
}

static unsigned streams_of(struct id id)
{
    unsigned count = 0;
    for (unsigned i = 0; i < STREAM_WAYS; i++)
        count += is_of(&t->set[id.a % STREAM_SETS].stream[i], id);
    return count;
}

static void a_lone_range_is_no_stream(void **state)
{
    (void)state;
    assert_int_equal(ask(5 * (uint64_t)PART, PART), 0);
    assert_int_equal(ask(9 * (uint64_t)PART, PART), 0); /* nor are two that do not touch */
}

static void the_begin_of_an_object_is_one(void **state)
{
    (void)state;
    assert_int_equal(ask(0, PART), STREAM_WINDOW_FIRST);
    for (unsigned n = 1; n <= STREAM_WINDOW_FIRST; n++)
        assert_int_equal(begun[n], 1);
}

static void a_look_at_the_first_bytes_is_not_worth_it(void **state)
{
    (void)state;
    assert_int_equal(ask(0, 8), 0);
    assert_int_equal(ask(8, 100 * KIB), 0); /* as who reads a header does */
}

static void the_second_range_makes_it_one_and_small_ones_go_slowly(void **state)
{
    uint64_t at = 3 * (uint64_t)CHUNK_BYTES;

    (void)state;
    assert_int_equal(ask(at, MIB), 0);
    assert_int_equal(ask(at + MIB, MIB), 1); /* 2 MiB read: 8 MiB ahead of 2 */
    assert_int_equal(begun[4], 1);
    assert_int_equal(ask(at + 2 * MIB, MIB), 0);
    assert_int_equal(ask(at + 3 * MIB, MIB), 1); /* 16 of 4 */
    for (unsigned i = 4; i < 80; i++)
        ask(at + i * MIB, MIB);
    assert_int_equal(begun[3], 0);
    for (unsigned n = 4; n <= 13 + 3; n++)
        assert_int_equal(begun[n], 1);
    assert_int_equal(begun[13 + STREAM_WINDOW_FIRST], 0);
}

static void parallel_parts_are_one_stream_in_any_order(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        unsigned part[CHUNKS];
        end(NULL);
        begin(NULL);
        seed = round + 1;
        for (unsigned i = 0; i < CHUNKS; i++)
            part[i] = i;
        /* ten at a time are under way, and come in whatever order */
        for (unsigned i = 0; i < CHUNKS; i++) {
            unsigned with = i + (unsigned)draw(min_u64(PARALLEL, CHUNKS - i)), was = part[i];
            part[i] = part[with];
            part[with] = was;
        }
        for (unsigned i = 0; i < CHUNKS; i++)
            ask_of(one, part[i] * (uint64_t)PART, PART, STREAM_WINDOW_MOST);
        assert_int_equal(streams_of(one), 1);
        /* by parts of it, too, whose windows overlapped: fill/ fetches a chunk once */
        for (unsigned n = CHUNKS; n < CHUNKS + STREAM_WINDOW_MOST; n++)
            assert_in_range(begun[n], 1, PARALLEL);
        assert_int_equal(begun[CHUNKS + STREAM_WINDOW_MOST], 0);
    }
}

static void strides_and_dots_are_none(void **state)
{
    unsigned ahead = 0;

    (void)state;
    for (uint64_t i = 1; i < 500; i++)
        assert_int_equal(ask(i * 2 * MIB, MIB), 0);
    for (unsigned i = 0; i < 10000; i++)     /* of 2 GiB */
        ahead += ask((1 + draw(16383)) * 128 * KIB, 128 * KIB);
    /* two of them touch now and then: of the bytes read not 2 % */
    assert_true((uint64_t)ahead * CHUNK_BYTES <= 10000ull * 128 * KIB / 50);
}

/* Each of 256 samples once, in a new order each time: late in an epoch nearly all touch what was
 * read, and many what was read just before. */
static void samples_of_a_whole_object_in_any_order_are_no_stream(void **state)
{
    enum { SAMPLES = 256, EPOCHS = 20 };
    unsigned ahead = 0, place[SAMPLES];

    (void)state;
    for (unsigned i = 0; i < SAMPLES; i++)
        place[i] = i;
    for (unsigned n = 0; n < EPOCHS; n++)
        for (unsigned i = 0; i < SAMPLES; i++) {
            unsigned with = i + (unsigned)draw(SAMPLES - i), was = place[i];
            place[i] = place[with];
            place[with] = was;
            ahead += ask(place[i] * 128ull * KIB, 128 * KIB);
        }
    assert_true(ahead <= EPOCHS / 4); /* chunks that would be taken for read whole */
}

static void who_reads_on_after_many_samples_is_a_stream_again(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 100; i++)
        ask_of(other, (1 + 2 * i) * (uint64_t)MIB, MIB, 0);
    assert_int_equal(ask(PART, MIB), 0);
    for (unsigned i = 1; i < 30; i++)
        ask(PART + i * (uint64_t)MIB, MIB);
    assert_int_equal(begun[4], 1);
}

/* What came by the first reading was not fetched ahead, and is not to be left out by who counts. */
static void a_range_is_told_which_chunks_were_begun_before_it(void **state)
{
    struct stream_read r = {.from = 0, .end = MIB};

    (void)state;
    streams_note(t, one, &r);
    assert_int_equal(r.first, 0);
    assert_int_equal(r.begun, 0);
    ask(MIB, MIB);
    r = (struct stream_read){.from = 2 * MIB, .end = 3 * MIB};
    streams_note(t, one, &r);
    assert_int_equal(r.first, 1);
    assert_int_equal(r.begun, 2);
    r = (struct stream_read){.from = 2 * (uint64_t)PART, .end = 3 * (uint64_t)PART};
    streams_note(t, one, &r);        /* another one */
    assert_int_equal(r.first, 0);
    ask(3 * (uint64_t)PART, PART);
    ask(3 * MIB, 2 * (uint64_t)PART - 3 * MIB); /* the hole */
    r = (struct stream_read){.from = 4 * (uint64_t)PART, .end = 5 * (uint64_t)PART};
    streams_note(t, one, &r);
    assert_int_equal(r.first, 1);
    assert_in_range(r.begun, 7, 9);
}

static void two_readers_at_two_places_are_two(void **state)
{
    unsigned far = 64, ahead = 0;

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        ahead += ask(i * (uint64_t)PART, PART);
        ahead += ask((far + i) * (uint64_t)PART, PART);
    }
    assert_int_equal(streams_of(one), 2);
    assert_int_equal(ahead, 19 + 4 + 18 + 4);
}

static void a_reader_behind_another_has_a_window_of_his_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++)
        ask(i * (uint64_t)PART, PART);
    assert_int_equal(ask(0, PART), STREAM_WINDOW_FIRST);
    assert_int_equal(ask(PART, PART), 1);
    assert_int_equal(begun[5], 2);
}

static void who_waits_widens_it_for_all_that_follow(void **state)
{
    struct stream_read r = {.from = 4 * (uint64_t)PART, .end = 5 * (uint64_t)PART};

    (void)state;
    /* not more than four times what was read */
    assert_int_equal(ask_of(one, 0, PART, 8), 4);
    assert_int_equal(ask_of(one, PART, PART, 0), 5);     /* 2 + 8 - 1 are under way */
    assert_int_equal(ask_of(one, 2 * (uint64_t)PART, PART, 64), 5);
    assert_int_equal(ask_of(one, 3 * (uint64_t)PART, PART, 0), 5);
    streams_note(t, one, &r);
    assert_int_equal(r.window, STREAM_WINDOW_MOST);
    assert_int_equal(r.begun, 4 + STREAM_WINDOW_MOST);
}

static void what_was_not_begun_is_offered_again(void **state)
{
    struct stream_read r = {.from = 0, .end = PART};
    uint64_t number = 0;

    (void)state;
    streams_note(t, one, &r);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(streams_next(t, one, &r, &number));
        assert_int_equal(number, 1);
    }
    streams_took(t, one, &r, number);
    assert_true(streams_next(t, one, &r, &number));
    assert_int_equal(number, 2);
}

static void a_full_set_forgets_the_oldest(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        ask(i * (uint64_t)PART, PART);
    for (unsigned i = 0; i < STREAM_WAYS - 1; i++)
        ask_of(other, (3 * i + 1) * (uint64_t)PART, PART, 0);
    assert_int_equal(streams_of(one), 1);
    assert_int_equal(ask(3 * (uint64_t)PART, PART), 1);  /* it was read, the others are older */
    for (unsigned i = 0; i < STREAM_WAYS; i++)
        ask_of(other, (500 + 3 * i) * (uint64_t)PART, PART, 0);
    assert_int_equal(streams_of(one), 0);
    for (unsigned i = 4; i < 4 + MANY_IN_A_ROW - 1; i++) /* of late few followed */
        assert_int_equal(ask(i * (uint64_t)PART, PART), 0);
    assert_true(ask((4 + MANY_IN_A_ROW - 1) * (uint64_t)PART, PART) > 0);
}

/* A reader whose stream was taken in by another one, or lost its place, goes on. */
static void a_range_outlives_its_stream(void **state)
{
    struct stream_read late = {.from = 2 * (uint64_t)PART, .end = 3 * (uint64_t)PART};
    uint64_t number;

    (void)state;
    streams_note(t, one, &late);
    assert_false(streams_next(t, one, &late, &number));
    ask(0, PART);
    ask(PART, PART);
    assert_int_equal(streams_of(one), 1);
    streams_took(t, one, &late, 40);
    assert_false(streams_next(t, one, &late, &number));
    for (unsigned i = 0; i < STREAM_WAYS; i++)
        ask_of(other, (3 * i + 1) * (uint64_t)PART, PART, 0);
    assert_int_equal(streams_of(one), 0);
    assert_false(streams_next(t, one, &late, &number));
    streams_took(t, one, &late, 50);                     /* it tells nobody */
    assert_int_equal(streams_of(one), 0);
}

static void far_chunks_leave_room_for_near_ones(void **state)
{
    (void)state;
    for (uint32_t most = 1; most <= 1024; most++) {
        for (unsigned d = 0; d <= STREAM_WINDOW_FIRST; d++)
            assert_int_equal(streams_room(most, d), most);
        for (unsigned d = 1; d <= 3 * STREAM_WINDOW_MOST; d++) {
            assert_true(streams_room(most, d) >= 1);
            assert_true(streams_room(most, d) <= streams_room(most, d - 1));
        }
    }
    assert_int_equal(streams_room(32, STREAM_WINDOW_MOST), 8);
    assert_int_equal(streams_room(32, 1000), 8);
}

/* Readers who all want as much as they may: those who come later get their near chunks. */
static void one_reader_does_not_take_all(void **state)
{
    enum { MOST = 32, READERS = 8 };
    unsigned has[READERS] = {0}, all = 0;

    (void)state;
    while (has[0] < STREAM_WINDOW_MOST && all < streams_room(MOST, has[0] + 1))
        all = ++has[0];
    for (unsigned i = 1; i < READERS; i++)
        while (has[i] < STREAM_WINDOW_FIRST - 1 && all < streams_room(MOST, has[i] + 1)) {
            has[i]++;
            all++;
        }
    assert_true(has[0] > STREAM_WINDOW_FIRST && has[0] < MOST / 2);
    assert_true(has[6] >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(a_lone_range_is_no_stream),
        TEST(the_begin_of_an_object_is_one),
        TEST(a_look_at_the_first_bytes_is_not_worth_it),
        TEST(the_second_range_makes_it_one_and_small_ones_go_slowly),
        TEST(parallel_parts_are_one_stream_in_any_order),
        TEST(strides_and_dots_are_none),
        TEST(samples_of_a_whole_object_in_any_order_are_no_stream),
        TEST(who_reads_on_after_many_samples_is_a_stream_again),
        TEST(a_range_is_told_which_chunks_were_begun_before_it),
        TEST(two_readers_at_two_places_are_two),
        TEST(a_reader_behind_another_has_a_window_of_his_own),
        TEST(who_waits_widens_it_for_all_that_follow),
        TEST(what_was_not_begun_is_offered_again),
        TEST(a_full_set_forgets_the_oldest),
        TEST(a_range_outlives_its_stream),
        TEST(far_chunks_leave_room_for_near_ones),
        TEST(one_reader_does_not_take_all),
    };
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
