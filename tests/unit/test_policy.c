/* Policies: the credit rule, the order of lru, its clock over restarts and past 2^32; what a miss
 * is under ehd; next uses that are known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/policy.c"

#include <setjmp.h>

#include <cmocka.h>

static struct policy *make(uint64_t chunks)
{
    struct policy *p = policy_make("lru", chunks, chunks);

    assert_non_null(p);
    return p;
}

static void only_known_policies_are_made(void **state)
{
    (void)state;
    assert_null(policy_make("mru", 10, 10));
    assert_null(policy_make("", 10, 10));
    struct policy *p = make(0);
    assert_int_equal(policy_group(p, span_of("bucket"), span_of("a/b/c"), 1), 0);
    policy_free(p);
    policy_free(NULL);
}

static void the_one_used_longest_ago_is_worth_least(void **state)
{
    (void)state;
    enum { CHUNKS = 100 };
    struct policy *p = make(CHUNKS);
    struct policy_mark mark[CHUNKS] = {0};

    for (unsigned n = 0; n < CHUNKS; n++)
        policy_reference(p, n, &mark[n * 37 % CHUNKS], CHUNK_BYTES, CHUNK_BYTES);
    for (unsigned n = 1; n < CHUNKS; n++) {
        double older = policy_value(p, &mark[(n - 1) * 37 % CHUNKS]);
        assert_true(policy_value(p, &mark[n * 37 % CHUNKS]) > older);
        assert_true(policy_admits(p, &(struct policy_mark){0}, older, 0));
    }
    policy_reference(p, 0, &mark[0], 4096, CHUNK_BYTES); /* a touch counts for recency */
    for (unsigned n = 1; n < CHUNKS; n++)
        assert_true(policy_value(p, &mark[0]) > policy_value(p, &mark[n]));
    policy_free(p);
}

static void a_pinned_chunk_is_never_worth_giving_up(void **state)
{
    (void)state;
    struct policy *p = make(10);
    struct policy_mark pinned = {.flags = MARK_PINNED}, young = {0};

    policy_reference(p, 1, &young, CHUNK_BYTES, CHUNK_BYTES);
    assert_true(isinf(policy_value(p, &pinned)));
    assert_true(policy_value(p, &pinned) > policy_value(p, &young));
    assert_false(policy_admits(p, &young, policy_value(p, &pinned), 0));
    policy_free(p);
}

static void a_reference_is_one_chunk_of_bytes(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        uint32_t chunk;
        unsigned reads, count;
    } row[] = {
        {CHUNK_BYTES, CHUNK_BYTES, 1, 1},
        {CHUNK_BYTES, CHUNK_BYTES, 2, 2},
        {CHUNK_BYTES, CHUNK_BYTES, 7, 7},
        {CHUNK_BYTES, CHUNK_BYTES, 300, 255},    /* capped */
        {MIB, CHUNK_BYTES, 8, 1},                /* one pass */
        {MIB, CHUNK_BYTES, 9, 2},
        {MIB, CHUNK_BYTES, 16, 2},
        {MIB, CHUNK_BYTES, 17, 3},
        {GRANULE_BYTES, CHUNK_BYTES, 64, 1},     /* 64 random samples */
        {GRANULE_BYTES, CHUNK_BYTES, 65, 2},
        {GRANULE_BYTES, CHUNK_BYTES, 640, 10},
        {1, CHUNK_BYTES, 256, 1},                /* never nothing */
        {5000, 5000, 3, 3},                      /* a small object */
        {2500, 5000, 4, 2},
        {1, 1, 2, 2},
        {0, 0, 1, 1},
    };

    for (size_t n = 0; n < ARRAY_COUNT(row); n++) {
        struct policy *p = make(10);
        struct policy_mark m = {0};
        for (unsigned i = 0; i < row[n].reads; i++)
            policy_reference(p, 1, &m, row[n].bytes, row[n].chunk);
        assert_int_equal(m.count, row[n].count);
        policy_free(p);
    }
}

/* Loaded marks keep their order, whatever comes first; new references are younger than all. */
static void the_order_survives_a_restart(void **state)
{
    (void)state;
    static const uint32_t base[] = {0, 1000000, UINT32_MAX - 50, INT32_MAX};

    for (size_t b = 0; b < ARRAY_COUNT(base); b++) {
        struct policy *p = make(100);
        struct policy_mark mark[100] = {0}, fresh = {0};
        for (unsigned n = 0; n < 100; n++)
            mark[n].last = base[b] + n;
        for (unsigned n = 0; n < 100; n++) {
            policy_resume(p, n, &mark[(n * 61 + 50) % 100]);
            policy_resume_clock(p, mark[(n * 61 + 50) % 100].last);
        }
        for (unsigned n = 1; n < 100; n++)
            assert_true(policy_value(p, &mark[n]) > policy_value(p, &mark[n - 1]));
        for (unsigned n = 0; n < 1000; n++)
            policy_reference(p, 1, &fresh, CHUNK_BYTES, CHUNK_BYTES);
        for (unsigned n = 1; n < 100; n++)
            assert_true(policy_value(p, &mark[n]) > policy_value(p, &mark[n - 1]));
        assert_true(policy_value(p, &fresh) > policy_value(p, &mark[99]));
        policy_free(p);
    }
}

/* Its directory was away at the start, so the clock does not go on behind its newest mark. */
static void a_chunk_that_joins_from_a_later_time_is_as_one_read_just_now(void **state)
{
    (void)state;
    struct policy *p = make(100);
    struct policy_mark read = {0}, joins = {.last = 1000000}, old = {0};

    for (unsigned n = 0; n < 50; n++)
        policy_reference(p, 1, &read, CHUNK_BYTES, CHUNK_BYTES);
    policy_join(p, &joins);
    policy_join(p, &old);
    assert_true(policy_value(p, &joins) == policy_value(p, &read));
    assert_true(policy_value(p, &old) < policy_value(p, &read));
    for (unsigned n = 0; n < 50; n++)
        policy_reference(p, 1, &read, CHUNK_BYTES, CHUNK_BYTES);
    assert_true(policy_value(p, &joins) < policy_value(p, &read));
    policy_free(p);
}

static void a_large_cache_has_a_coarser_clock(void **state)
{
    (void)state;
    struct policy *p = make(1500 * 1000);
    struct policy_mark old = {0}, young = {0};

    assert_true(p->tick_shift > 0);
    policy_reference(p, 1, &old, CHUNK_BYTES, CHUNK_BYTES);
    for (unsigned n = 0; n < 1u << p->tick_shift; n++)
        policy_reference(p, 1, &young, CHUNK_BYTES, CHUNK_BYTES);
    assert_true(policy_value(p, &young) > policy_value(p, &old));
    policy_free(p);
}

static void lru_keeps_no_ghosts(void **state)
{
    (void)state;
    struct policy *p = make(100);
    struct policy_mark m = {.count = 3};

    policy_remember(p, 7, &m);
    assert_false(ghosts_take(&p->ghosts, 7, &m));
    assert_null(p->ghosts.ghost);
    assert_false(policy_is_due(p));
    policy_refresh(p);
    assert_int_equal(policy_groups(p), 0);
    policy_free(p);
}

static void ghosts_have_a_bound(void **state)
{
    (void)state;
    assert_int_equal(ghost_count(0, 1 << 20), 0);
    assert_int_equal(ghost_count(16, 1000), 16000);
    assert_int_equal(ghost_count(16, 1000 * 1000), 16000000);
    assert_int_equal(ghost_count(16, 1500 * 1000), 18000000);
    assert_int_equal(ghost_count(2, 1500 * 1000), 3000000);
}

/* ---- ehd, by its face ---- */

static struct policy *make_ehd(uint64_t chunks)
{
    struct policy *p = policy_make("ehd", chunks, chunks);

    assert_non_null(p);
    return p;
}

static struct policy_mark miss_of(struct policy *p, uint64_t hash, uint64_t bytes)
{
    struct policy_miss miss = {hash, bytes, CHUNK_BYTES, 0};
    struct policy_mark m;

    policy_served(p, bytes);
    policy_missed(p, &miss, &m);
    return m;
}

static void a_bypassed_chunk_comes_back_with_what_was_known(void **state)
{
    (void)state;
    struct policy *p = make_ehd(1024);
    struct policy_mark m = miss_of(p, 7, CHUNK_BYTES);

    assert_int_equal(m.count, 1);
    assert_int_equal(m.class_, 0);
    assert_int_equal(m.flags, 0);
    policy_remember(p, 7, &m);
    for (unsigned n = 0; n < 1023; n++)
        policy_served(p, CHUNK_BYTES);
    m = miss_of(p, 7, CHUNK_BYTES);
    assert_int_equal(m.count, 2);
    assert_int_equal(m.class_, 1 + 3 * 8); /* after as many chunks as the cache has */
    policy_remember(p, 7, &m);
    for (unsigned n = 0; n < 17 * 1024; n++)
        policy_served(p, CHUNK_BYTES);
    struct policy_mark back;
    struct policy_miss late = {7, CHUNK_BYTES, CHUNK_BYTES, 0};
    assert_true(ghosts_take(&p->ghosts, 7, &back));
    policy_remember(p, 7, &back);
    assert_true(ehd_is_old(p->ehd, &back));
    policy_missed(p, &late, &back);
    assert_int_equal(back.count, 1);         /* too long ago */
    policy_free(p);
}

/* Fetched ahead of its reader and not let in: he comes for its blocks with nothing to tell. */
static void what_was_told_already_adds_nothing(void **state)
{
    (void)state;
    struct policy *p = make_ehd(1024);

    for (unsigned block = 0; block < 64; block++) {
        struct policy_mark m = miss_of(p, 7, MIB);
        uint8_t count = m.count, credit = m.credit;
        policy_remember(p, 7, &m);
        m = miss_of(p, 7, 0);
        assert_int_equal(m.count, count);
        assert_int_equal(m.credit, credit);
        assert_true(m.flags & MARK_TOUCH);
        policy_remember(p, 7, &m);
    }
    policy_free(p);
}

/* The parts of one pass are one reference; only the first may be let in. */
static void parts_of_a_pass_are_touches(void **state)
{
    (void)state;
    struct policy *p = make_ehd(1024);

    for (unsigned pass = 0; pass < 3; pass++)
        for (unsigned part = 0; part < 8; part++) {
            struct policy_mark m = miss_of(p, 9, MIB);
            assert_int_equal(m.count, pass + 1);
            assert_int_equal(m.flags, MARK_PART | (part > 0 ? MARK_TOUCH : 0));
            assert_int_equal(policy_admits(p, &m, 0, m.group), part == 0);
            policy_remember(p, 9, &m);
        }
    policy_free(p);
}

/* Equals do not push each other out, those of one group least of all, and a part has to be worth
 * far more. */
static void a_newcomer_must_clearly_beat_its_victim(void **state)
{
    (void)state;
    struct policy *p = make_ehd(1024);
    struct policy_mark m = miss_of(p, 3, CHUNK_BYTES);
    double own = policy_value(p, &m);

    assert_true(own > 0);
    assert_false(policy_admits(p, &m, own, m.group));
    assert_false(policy_admits(p, &m, own / 1.7, m.group));
    assert_true(policy_admits(p, &m, own / 1.8, m.group));
    assert_false(policy_admits(p, &m, own / 1.35, m.group + 1));
    assert_true(policy_admits(p, &m, own / 1.45, m.group + 1));
    m.flags = MARK_PART;
    assert_false(policy_admits(p, &m, own / 13.9, m.group));
    assert_true(policy_admits(p, &m, own / 14.1, m.group));
    m.flags = MARK_TOUCH;
    assert_false(policy_admits(p, &m, 0, m.group));
    m.flags = 0;
    assert_false(policy_admits(p, &m, (double)INFINITY, m.group));
    policy_free(p);
}

/* ---- known next uses ---- */

enum { CACHE = 1024 };               /* chunks, which are ticks */
static const uint64_t CACHE_BYTES = (uint64_t)CACHE * CHUNK_BYTES;

static void a_planned_chunk_is_worth_its_next_use(void **state)
{
    (void)state;
    struct policy *p = make_ehd(CACHE);
    struct policy_mark near_ = miss_of(p, 1, CHUNK_BYTES), far_ = near_, none = near_;
    double curve = policy_value(p, &none);

    policy_plan(p, &near_, CACHE_BYTES / 100);
    policy_plan(p, &far_, 8 * CACHE_BYTES);
    assert_true(policy_value(p, &near_) > 5 * curve);
    assert_true(policy_value(p, &far_) < curve);
    policy_plan_beyond(p, &far_, 2 * CACHE_BYTES);
    assert_true(policy_value(p, &far_) <= .5 / (2 * CACHE - 1));
    policy_unplan(p, &far_);
    assert_true(policy_value(p, &far_) == curve);
    near_.flags |= MARK_PINNED;
    assert_true(isinf(policy_value(p, &near_)));
    policy_keep(p, &none);
    near_.flags &= (uint8_t)~MARK_PINNED;
    assert_true(policy_value(p, &none) > policy_value(p, &near_)); /* an order goes first */
    policy_free(p);
}

static bool admits(struct policy *p, const struct policy_mark *new_,
                   const struct policy_mark *victim)
{
    return policy_admits(p, new_, policy_value(p, victim), victim->group);
}

/* By its plan against the victim's, whole or in part; in the midst of a pass only if it is near. */
static void a_planned_miss_is_let_in_by_its_next_use(void **state)
{
    (void)state;
    struct policy *p = make_ehd(CACHE);
    struct policy_mark victim = miss_of(p, 1, CHUNK_BYTES), new_ = miss_of(p, 2, CHUNK_BYTES);

    policy_plan(p, &victim, CACHE_BYTES);
    for (unsigned flags = 0; flags <= (MARK_PART | MARK_TOUCH); flags += MARK_PART) {
        new_.flags = (uint8_t)flags;
        policy_plan(p, &new_, CACHE_BYTES / 2);
        assert_int_equal(admits(p, &new_, &victim), !(flags & MARK_TOUCH));
        policy_plan(p, &new_, CACHE_BYTES / 20);
        assert_true(admits(p, &new_, &victim));
        assert_false(policy_admits(p, &new_, (double)INFINITY, victim.group));
        policy_plan(p, &new_, CACHE_BYTES);
        assert_false(admits(p, &new_, &victim));
        policy_plan_beyond(p, &new_, 4 * CACHE_BYTES);
        assert_false(admits(p, &new_, &victim));
    }
    policy_free(p);
}

/* A pass in eight parts: the plan of the use behind it, told at its first part, stands to its end
 * and until that use comes. */
static void parts_of_a_pass_end_one_planned_use(void **state)
{
    (void)state;
    struct policy *p = make_ehd(CACHE);
    struct policy_mark m = miss_of(p, 5, CHUNK_BYTES);

    m.flags = 0;
    for (unsigned pass = 0; pass < 5; pass++) {
        policy_plan(p, &m, CACHE_BYTES / 2);
        for (unsigned n = 0; n < CACHE / 4; n++)
            policy_served(p, CHUNK_BYTES);
        uint8_t before = m.flags;
        policy_reference(p, 5, &m, 4 * KIB, CHUNK_BYTES); /* somebody looks into it */
        assert_true(m.flags == before && before & MARK_PLANNED);
        for (unsigned n = 0; n < CACHE / 4; n++)
            policy_served(p, CHUNK_BYTES);
        for (unsigned part = 0; part < 8; part++) {
            policy_reference(p, 5, &m, MIB, CHUNK_BYTES);
            policy_served(p, MIB);
        }
        assert_int_equal(m.flags, 0);
    }
    policy_plan_beyond(p, &m, CACHE_BYTES);
    policy_reference(p, 5, &m, CHUNK_BYTES, CHUNK_BYTES);
    assert_int_equal(m.flags, MARK_PLANNED | MARK_BEYOND); /* still the reading before it */
    for (unsigned n = 0; n < CACHE / 4; n++)
        policy_served(p, CHUNK_BYTES);
    policy_reference(p, 5, &m, CHUNK_BYTES, CHUNK_BYTES);
    assert_int_equal(m.flags, 0);
    policy_free(p);
}

/* Brought before it was asked for: its first reader is a touch, which completes the chunk. */
static void the_first_reading_of_what_was_prefetched_ends_its_use(void **state)
{
    (void)state;
    struct policy *p = make_ehd(CACHE);
    struct policy_mark m = miss_of(p, 5, CHUNK_BYTES);

    policy_expect(&m, CHUNK_BYTES, CHUNK_BYTES);
    policy_plan(p, &m, CHUNK_BYTES);
    policy_served(p, CHUNK_BYTES);
    for (unsigned part = 0; part < 8; part++) {
        assert_true(m.flags & MARK_PLANNED);
        policy_reference(p, 5, &m, MIB, CHUNK_BYTES);
    }
    assert_int_equal(m.flags, 0);
    assert_int_equal(m.count, 1);
    policy_free(p);
}

static void what_left_is_planned_no_longer(void **state)
{
    (void)state;
    struct policy *p = make_ehd(CACHE);
    struct policy_mark m = miss_of(p, 5, CHUNK_BYTES);

    policy_plan(p, &m, CACHE_BYTES);
    policy_remember(p, 5, &m);
    m = miss_of(p, 5, CHUNK_BYTES);
    assert_int_equal(m.flags & (MARK_PLANNED | MARK_BEYOND), 0);
    assert_int_equal(m.spare, 0);
    policy_free(p);
}

static void lru_does_not_plan(void **state)
{
    (void)state;
    struct policy *p = make(CACHE);
    struct policy_mark m = {0};

    policy_reference(p, 1, &m, CHUNK_BYTES, CHUNK_BYTES);
    struct policy_mark before = m;
    policy_plan(p, &m, 0);
    policy_plan_beyond(p, &m, CACHE_BYTES);
    assert_memory_equal(&m, &before, sizeof m);
    policy_unplan(p, &m);
    assert_memory_equal(&m, &before, sizeof m);
    policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_known_policies_are_made),
        cmocka_unit_test(the_one_used_longest_ago_is_worth_least),
        cmocka_unit_test(a_pinned_chunk_is_never_worth_giving_up),
        cmocka_unit_test(a_reference_is_one_chunk_of_bytes),
        cmocka_unit_test(the_order_survives_a_restart),
        cmocka_unit_test(a_chunk_that_joins_from_a_later_time_is_as_one_read_just_now),
        cmocka_unit_test(a_large_cache_has_a_coarser_clock),
        cmocka_unit_test(lru_keeps_no_ghosts),
        cmocka_unit_test(ghosts_have_a_bound),
        cmocka_unit_test(a_bypassed_chunk_comes_back_with_what_was_known),
        cmocka_unit_test(what_was_told_already_adds_nothing),
        cmocka_unit_test(parts_of_a_pass_are_touches),
        cmocka_unit_test(a_newcomer_must_clearly_beat_its_victim),
        cmocka_unit_test(a_planned_chunk_is_worth_its_next_use),
        cmocka_unit_test(a_planned_miss_is_let_in_by_its_next_use),
        cmocka_unit_test(parts_of_a_pass_end_one_planned_use),
        cmocka_unit_test(the_first_reading_of_what_was_prefetched_ends_its_use),
        cmocka_unit_test(what_left_is_planned_no_longer),
        cmocka_unit_test(lru_does_not_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
