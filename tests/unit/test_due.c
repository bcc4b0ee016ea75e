/* Next uses that plans know: their order, their end, their clock past its range, and other
 * flags. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/due.c"

#include <setjmp.h>

#include <cmocka.h>

static const uint64_t CAPACITY = 4096ull * CHUNK_BYTES;
static const double CURVE = 1e-4;

static struct due_clock clock_at(uint64_t served)
{
    return (struct due_clock){served, CAPACITY, 23};
}

static struct policy_mark told(uint64_t at, uint64_t bytes, bool beyond)
{
    struct due_clock t = clock_at(at);
    struct policy_mark m = {0};

    due_tell(&t, &m, bytes, beyond);
    return m;
}

static double worth(uint64_t at, const struct policy_mark *m)
{
    struct due_clock t = clock_at(at);
    double value;
    enum due_says says = due_value(&t, m, &value);

    return says == DUE_WORTH     ? value
           : says == DUE_AT_MOST ? fmin(value, CURVE)
                                  : CURVE;
}

/* Starts of the clock: anywhere in its range, and where it runs over. */
static const uint64_t starts[] = {
    0, 12345678, 31ull << 35, 32ull << 35, (64ull << 35) - CHUNK_BYTES, 1ull << 55};

static void the_nearer_use_is_worth_more(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(starts); s++) {
        double before = 3;
        for (uint64_t ahead = 0; ahead < 30 * CAPACITY; ahead += CAPACITY / 100) {
            struct policy_mark m = told(starts[s], ahead, false);
            double value = worth(starts[s], &m), ticks = (double)ahead / CHUNK_BYTES;
            assert_true(value < before);
            assert_true(value > 1 / (ticks + 7) && value < 1 / fmax(ticks - 5, .4));
            before = value;
        }
    }
}

/* Time goes by: it comes nearer, is late, and then is planned no longer. */
static void who_is_late_is_doubted_more_and_more(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(starts); s++) {
        struct policy_mark m = told(starts[s], CAPACITY, false);
        for (uint64_t n = 1; n < 31; n++)
            assert_true(worth(starts[s] + n * CAPACITY / 32, &m) >
                        worth(starts[s] + (n - 1) * CAPACITY / 32, &m));
        assert_true(worth(starts[s] + CAPACITY, &m) > .2);
        for (uint64_t n = 34; n < 62; n++)
            assert_true(worth(starts[s] + n * CAPACITY / 32, &m) <
                        worth(starts[s] + (n - 1) * CAPACITY / 32, &m));
        for (uint64_t n = 66; n < 30 * 32; n++)
            assert_true(worth(starts[s] + n * CAPACITY / 32, &m) == CURVE);
    }
}

/* However far it is, it is ahead: not late. */
static void what_is_too_far_for_the_clock_is_far(void **state)
{
    (void)state;
    static const uint64_t far_[] = {40 * 4096ull * CHUNK_BYTES, 1ull << 60, UINT64_MAX};

    for (size_t s = 0; s < ARRAY_COUNT(starts); s++)
        for (size_t n = 0; n < ARRAY_COUNT(far_); n++) {
            struct policy_mark m = told(starts[s], far_[n], false);
            assert_true(worth(starts[s], &m) < 1.0 / (15 * 4096));
            assert_true(worth(starts[s], &m) > 0);
            m = told(starts[s], far_[n], true);
            assert_true(worth(starts[s], &m) < 1.0 / (15 * 4096));
        }
}

static void beyond_it_is_worth_at_most_what_that_allows(void **state)
{
    (void)state;
    struct policy_mark m = told(7, 4 * CAPACITY, true);

    assert_true(worth(7, &m) < .51 / (4 * 4096) && worth(7, &m) > .49 / (4 * 4096));
    assert_true(worth(7 + 2 * CAPACITY, &m) > worth(7, &m));
    assert_true(worth(7 + 4 * CAPACITY, &m) == CURVE);   /* it says nothing of what comes now */
    assert_true(worth(7 + 20 * CAPACITY, &m) == CURVE);
    m = told(7, CAPACITY / 1024, true);
    assert_true(worth(7, &m) == CURVE);  /* never more than without it */
}

static void telling_again_replaces_what_was_told(void **state)
{
    (void)state;
    struct due_clock t = clock_at(CAPACITY);
    struct policy_mark m = {.flags = MARK_PINNED | MARK_KEEP, .last = 5, .group = 6, .class_ = 7};

    due_tell(&t, &m, CAPACITY, true);
    assert_int_equal(m.flags, MARK_PINNED | MARK_KEEP | MARK_PLANNED | MARK_BEYOND);
    due_tell(&t, &m, CAPACITY, false);
    assert_int_equal(m.flags, MARK_PINNED | MARK_KEEP | MARK_PLANNED);
    due_tell(&t, &m, 2 * CAPACITY, true);
    assert_int_equal(m.flags, MARK_PINNED | MARK_KEEP | MARK_PLANNED | MARK_BEYOND);
    due_forget(&m);
    due_forget(&m);
    assert_int_equal(m.flags, MARK_PINNED | MARK_KEEP);
    assert_true(m.last == 5 && m.group == 6 && m.class_ == 7);
}

static void what_is_kept_is_so_until_as_much_as_the_cache_holds_went_by(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(starts); s++) {
        struct due_clock t = clock_at(starts[s]);
        struct policy_mark m = told(starts[s], CAPACITY, true);
        m.last = 5;
        due_keep(&t, &m);
        assert_int_equal(m.flags, MARK_KEEP);
        assert_int_equal(m.last, 5);
        double before = 2;
        for (uint64_t n = 0; n < 32; n++) {
            t = clock_at(starts[s] + n * CAPACITY / 32);
            assert_true(due_kept(&t, &m) < before);
            before = due_kept(&t, &m);
            assert_true(before > 0 && before <= 1);
        }
        for (uint64_t n = 33; n < 30 * 32; n++) {
            t = clock_at(starts[s] + n * CAPACITY / 32);
            assert_true(due_kept(&t, &m) <= 0);
        }
        if (starts[s] > CAPACITY) {  /* a restart may begin a little before it */
            t = clock_at(starts[s] - CAPACITY / 2);
            assert_true(due_kept(&t, &m) >= 1);
        }
        due_tell(&t, &m, CAPACITY, false);
        assert_true(due_kept(&t, &m) <= 0); /* its time is another now */
    }
}

static void a_reading_ends_the_use_that_is_due(void **state)
{
    (void)state;
    static const struct {
        uint64_t ahead, later;       /* in thousandths of what the cache holds */
        bool beyond, begins, stands;
    } row[] = {
        {1000, 1000, false, true, false},    /* when it was said */
        {1000, 1000, false, false, false},   /* the last part of it */
        {1000, 990, false, true, false},
        {1000, 1700, false, true, false},    /* late */
        {1000, 500, false, true, true},      /* somebody else's reading */
        {1000, 0, false, false, true},
        {1000, 500, true, true, false},      /* it was said that nobody would */
        {1000, 0, true, false, true},        /* a part of the reading before */
        {1000, 2000, true, true, false},
    };

    for (size_t n = 0; n < ARRAY_COUNT(row); n++) {
        struct policy_mark m = told(99, row[n].ahead * CAPACITY / 1000, row[n].beyond);
        struct due_clock t = clock_at(99 + row[n].later * CAPACITY / 1000);
        due_read(&t, &m, row[n].begins);
        assert_int_equal((m.flags & MARK_PLANNED) != 0, row[n].stands);
        assert_true(row[n].stands || m.flags == 0);
    }
}

/* The smallest cache and the largest: a time is as exact as a thousandth of it. */
static void any_cache_has_units_that_fit(void **state)
{
    (void)state;
    static const uint64_t bytes[] = {0, 1, CHUNK_BYTES, 100 * (uint64_t)CHUNK_BYTES, 1ull << 50};

    for (size_t n = 0; n < ARRAY_COUNT(bytes); n++) {
        struct due_clock t = {.served = 5, .capacity = bytes[n], .tick_shift = 13};
        assert_true(bytes[n] >> unit_shift(&t) < 2 << UNITS_SHIFT);
        assert_true(bytes[n] < 1024 || bytes[n] >> unit_shift(&t) >= 1 << UNITS_SHIFT);
        struct policy_mark near_ = {0}, far_ = {0};
        due_tell(&t, &near_, bytes[n] / 2, false);
        due_tell(&t, &far_, bytes[n], false);
        double sooner, later;
        assert_int_equal(due_value(&t, &near_, &sooner), DUE_WORTH);
        assert_int_equal(due_value(&t, &far_, &later), DUE_WORTH);
        assert_true(bytes[n] > 1 ? sooner > later : sooner >= later);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearer_use_is_worth_more),
        cmocka_unit_test(who_is_late_is_doubted_more_and_more),
        cmocka_unit_test(what_is_too_far_for_the_clock_is_far),
        cmocka_unit_test(beyond_it_is_worth_at_most_what_that_allows),
        cmocka_unit_test(telling_again_replaces_what_was_told),
        cmocka_unit_test(what_is_kept_is_so_until_as_much_as_the_cache_holds_went_by),
        cmocka_unit_test(a_reading_ends_the_use_that_is_due),
        cmocka_unit_test(any_cache_has_units_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
