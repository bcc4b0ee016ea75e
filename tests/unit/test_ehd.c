/* EHD: its clock, classes, idle groups, and whole loops through a small cache in virtual time,
 * with plans and without. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/ehd.c"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

static void the_clock_has_enough_ticks_for_any_cache(void **state)
{
    (void)state;
    static const uint64_t chunks[] = {0, 1, 8, 1024, 16384, 4000 * 1000};

    for (size_t n = 0; n < ARRAY_COUNT(chunks); n++) {
        struct ehd *e = ehd_make(chunks[n]);
        assert_in_range(e->capacity, TICKS_FEW, TICKS_MANY);
        assert_in_range(e->interval, 1, e->capacity / 4);
        for (unsigned i = 0; i < 100; i++)
            ehd_served(e, CHUNK_BYTES);
        assert_int_equal(ehd_now(e), 100ull * CHUNK_BYTES >> e->shift);
        ehd_free(e);
    }
}

static void small_reads_move_the_clock_as_well(void **state)
{
    (void)state;
    struct ehd *e = ehd_make(1024);

    for (unsigned i = 0; i < 64 * 1024; i++)
        ehd_served(e, 4 * KIB);
    assert_int_equal(ehd_now(e), 32);
    ehd_free(e);
}

static void classes_tell_interval_and_count(void **state)
{
    (void)state;
    struct ehd *e = ehd_make(1024);

    assert_int_equal(class_of(e, 1, 1), 1);          /* 2^-10 of the capacity: clamped */
    assert_int_equal(class_of(e, 4, 2), 1);
    assert_int_equal(class_of(e, 8, 3), 1 + 3 + 1);
    assert_int_equal(class_of(e, 1024, 6), 1 + 24 + 1);
    assert_int_equal(class_of(e, 1024, 7), 1 + 24 + 2);
    assert_int_equal(class_of(e, 8 * 1024, 1), 1 + 33);
    assert_int_equal(class_of(e, UINT32_MAX, 255), EHD_CLASSES - 1);
    ehd_free(e);
}

/* ---- loops: a cache of chunks that decides by ehd alone ---- */

enum { SETS = 2, SET_CHUNKS = 2000, ROOM = 1000, VICTIMS = 32 };

struct store {
    struct policy *policy;
    struct policy_mark mark[SETS * SET_CHUNKS];
    uint32_t place[SETS * SET_CHUNKS], resident[ROOM], count;
    uint64_t random;
    unsigned hits, writes;
    uint64_t ahead;                  /* when what is read now is read next, if that is known */
};

static uint64_t next_random(struct store *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return s->random >> 33;
}

static void store_make(struct store *s)
{
    memset(s, 0, sizeof *s);
    s->policy = policy_make("ehd", ROOM, ROOM);
    assert_non_null(s->policy);
}

static void bring_in(struct store *s, uint32_t chunk, struct policy_mark *mark)
{
    uint32_t at = s->count;
    double least = 0;

    for (unsigned n = 0; s->count == ROOM && n < VICTIMS; n++) {
        uint32_t i = (uint32_t)(next_random(s) % ROOM);
        double value = policy_value(s->policy, &s->mark[s->resident[i]]);
        if (n == 0 || value < least) {
            least = value;
            at = i;
        }
    }
    if (s->count == ROOM &&
        !policy_admits(s->policy, mark, least, s->mark[s->resident[at]].group)) {
        policy_remember(s->policy, chunk + 1, mark);
        return;
    }
    if (s->count == ROOM) {
        uint32_t victim = s->resident[at];
        policy_remember(s->policy, victim + 1, &s->mark[victim]);
        s->place[victim] = 0;
    } else {
        s->count++;
    }
    s->resident[at] = chunk;
    s->place[chunk] = at + 1;
    s->mark[chunk] = *mark;
    s->writes++;
}

static void plan_next(struct store *s, struct policy_mark *m)
{
    if (s->ahead > 0)
        policy_plan(s->policy, m, s->ahead);
}

static void read_chunk(struct store *s, uint32_t chunk)
{
    static const char *const key[SETS] = {"one/x", "two/x"};
    struct span bucket = span_of("b"), name = span_of(key[chunk / SET_CHUNKS]);

    policy_served(s->policy, CHUNK_BYTES);
    if (s->place[chunk]) {
        s->hits++;
        s->mark[chunk].group = policy_group(s->policy, bucket, name, 0);
        policy_reference(s->policy, chunk + 1, &s->mark[chunk], CHUNK_BYTES, CHUNK_BYTES);
        plan_next(s, &s->mark[chunk]);
    } else {
        struct policy_miss miss = {chunk + 1, CHUNK_BYTES, CHUNK_BYTES,
                                   policy_group(s->policy, bucket, name, CHUNK_BYTES)};
        struct policy_mark mark;
        policy_missed(s->policy, &miss, &mark);
        plan_next(s, &mark);
        bring_in(s, chunk, &mark);
    }
    if (policy_is_due(s->policy))
        policy_refresh(s->policy);
}

static void shuffle(struct store *s, unsigned set, uint32_t order[SET_CHUNKS])
{
    for (uint32_t n = 0; n < SET_CHUNKS; n++)
        order[n] = set * SET_CHUNKS + n;
    for (uint32_t n = SET_CHUNKS; n > 1; n--) {
        uint64_t i = next_random(s) % n;
        uint32_t was = order[n - 1];
        order[n - 1] = order[i];
        order[i] = was;
    }
}

/* One epoch of a set in a new order; returns its hits. */
static unsigned epoch(struct store *s, unsigned set)
{
    static uint32_t order[SET_CHUNKS];
    unsigned before = s->hits;

    shuffle(s, set, order);
    for (uint32_t n = 0; n < SET_CHUNKS; n++)
        read_chunk(s, order[n]);
    return s->hits - before;
}

static struct store store;

static void shuffled_epochs_hit_all_that_fits(void **state)
{
    (void)state;
    store_make(&store);
    assert_int_equal(epoch(&store, 0), 0);
    for (unsigned n = 0; n < 6; n++)
        assert_true(epoch(&store, 0) >= ROOM * 97 / 100);
    assert_true(store.writes < ROOM * 115 / 100);
    policy_free(store.policy);
}

/* A chunk read in pieces may count twice while the reader is at it; that says nothing of epochs. */
static void what_counts_twice_in_one_pass_does_not_turn_the_first_epoch_over(void **state)
{
    (void)state;
    store_make(&store);
    for (uint32_t n = 0; n < SET_CHUNKS; n++) {
        read_chunk(&store, n);
        if (n % 96 == 5)
            read_chunk(&store, n - 2);
    }
    assert_true(store.writes < ROOM * 103 / 100);
    unsigned hits = epoch(&store, 0);
    assert_true(hits >= ROOM * 95 / 100);
    policy_free(store.policy);
}

/* Its ghost is lost, as when the bytes were damaged; the sample still knows it. */
static void what_comes_again_at_once_is_not_taken_for_the_oldest(void **state)
{
    struct policy_miss miss = {1, CHUNK_BYTES, CHUNK_BYTES, 0};
    struct policy_mark mark;

    (void)state;
    store_make(&store);
    for (unsigned n = 0; n < 4 * ROOM; n++)
        policy_served(store.policy, CHUNK_BYTES);
    policy_missed(store.policy, &miss, &mark);
    uint32_t last = mark.last;
    assert_true(last > 0);
    policy_missed(store.policy, &miss, &mark);
    assert_int_equal(mark.last, last);
    policy_free(store.policy);
}

static void a_new_set_takes_over_in_its_second_epoch(void **state)
{
    (void)state;
    store_make(&store);
    for (unsigned n = 0; n < 4; n++)
        epoch(&store, 0);
    epoch(&store, 1);
    epoch(&store, 1);
    for (unsigned n = 0; n < 3; n++)
        assert_true(epoch(&store, 1) >= ROOM * 95 / 100);
    assert_true(policy_groups(store.policy) >= 3);
    policy_free(store.policy);
}

/* One pass over another set beside it leaves the warm one where it is. */
static void a_scan_does_not_push_out_what_is_in_use(void **state)
{
    (void)state;
    store_make(&store);
    for (unsigned n = 0; n < 3; n++)
        epoch(&store, 0);
    unsigned before = store.hits, writes = store.writes;
    for (uint32_t n = 0; n < SET_CHUNKS; n++) {
        read_chunk(&store, n);
        read_chunk(&store, SET_CHUNKS + n);
    }
    assert_true(store.hits - before >= ROOM * 97 / 100);
    assert_true(store.writes - writes < ROOM / 10);
    policy_free(store.policy);
}

static unsigned residents_of(const struct store *s, uint32_t from, uint32_t count)
{
    unsigned here = 0;

    for (uint32_t n = from; n < from + count; n++)
        here += s->place[n] != 0;
    return here;
}

/* Chunks drawn at random, each time: there is nothing in that to learn. */
enum { DRAWS = 10 * SET_CHUNKS };

static unsigned hits_of_draws(bool planned)
{
    static uint32_t chunk[DRAWS], next[DRAWS], seen[SET_CHUNKS];

    store_make(&store);
    memset(seen, 0, sizeof seen);
    for (uint32_t n = 0; n < DRAWS; n++)
        chunk[n] = (uint32_t)(next_random(&store) % SET_CHUNKS);
    for (uint32_t n = DRAWS; n-- > 0;) {
        next[n] = seen[chunk[n]] ? seen[chunk[n]] : 2 * DRAWS;
        seen[chunk[n]] = n;
    }
    for (uint32_t n = 0; n < DRAWS; n++) {
        store.ahead = planned ? (uint64_t)(next[n] - n - 1) * CHUNK_BYTES + 1 : 0;
        read_chunk(&store, chunk[n]);
    }
    policy_free(store.policy);
    return store.hits;
}

static void what_no_one_can_learn_a_plan_knows(void **state)
{
    (void)state;
    unsigned blind = hits_of_draws(false), planned = hits_of_draws(true);

    assert_in_range(blind, DRAWS * 45 / 100, DRAWS * 52 / 100);
    assert_true(planned > DRAWS * 70 / 100);
}

/* A job that posts its plan and never comes. */
static void a_plan_that_nobody_follows_gives_its_room_back(void **state)
{
    (void)state;
    store_make(&store);
    for (unsigned n = 0; n < 3; n++)
        epoch(&store, 0);
    for (uint32_t n = 0; n < ROOM; n++)
        policy_plan(store.policy, &store.mark[store.resident[n]], n * (uint64_t)CHUNK_BYTES / 2);
    for (uint32_t n = 0; n < ROOM / 2; n++)
        read_chunk(&store, SET_CHUNKS + n);
    assert_int_equal(residents_of(&store, 0, SET_CHUNKS), ROOM);
    for (uint32_t n = 0; n < ROOM; n++)
        assert_true(policy_value(store.policy, &store.mark[store.resident[n]]) > .9 / ROOM);
    for (unsigned n = 0; n < 4; n++)
        epoch(&store, 1);
    assert_true(epoch(&store, 1) >= ROOM * 95 / 100);
    policy_free(store.policy);
}

/* As an upload, or what a prewarm brings. */
static void bring_by_order(struct store *s, uint32_t chunk)
{
    static const char *const key[SETS] = {"one/x", "two/x"};
    struct span bucket = span_of("b"), name = span_of(key[chunk / SET_CHUNKS]);
    struct policy_miss miss = {chunk + 1, CHUNK_BYTES, CHUNK_BYTES,
                               policy_group(s->policy, bucket, name, CHUNK_BYTES)};
    struct policy_mark mark;

    policy_missed(s->policy, &miss, &mark);
    policy_keep(s->policy, &mark);
    bring_in(s, chunk, &mark);
    policy_served(s->policy, CHUNK_BYTES);
}

static void what_shall_be_here_is_let_in_and_stays_until_it_was_read(void **state)
{
    enum { MANY = ROOM * 8 / 10 };

    (void)state;
    store_make(&store);
    for (unsigned n = 0; n < 3; n++)
        epoch(&store, 0);
    for (uint32_t n = 0; n < MANY; n++)
        bring_by_order(&store, SET_CHUNKS + n);
    assert_int_equal(residents_of(&store, SET_CHUNKS, MANY), MANY);
    for (uint32_t n = 0; n < ROOM / 10; n++)
        read_chunk(&store, n);       /* mostly misses: they push out nothing of it */
    assert_int_equal(residents_of(&store, SET_CHUNKS, MANY), MANY);
    for (uint32_t n = 0; n < MANY; n++) {
        read_chunk(&store, SET_CHUNKS + n);
        assert_int_equal(store.mark[SET_CHUNKS + n].flags & MARK_KEEP, 0);
    }
    policy_free(store.policy);
}

/* As a plan does: what is here is kept, what is not is brought. */
static void want_soon(struct store *s, uint32_t chunk)
{
    if (s->place[chunk])
        policy_keep(s->policy, &s->mark[chunk]);
    else
        bring_by_order(s, chunk);
}

/* Two jobs read the set, each in an order of its own; what comes is wanted `ahead` chunks before,
 * by a plan or by nobody. Returns how much of it was here then. */
static unsigned epoch_of_two(struct store *s, bool planned, unsigned ahead)
{
    static uint32_t order[2][SET_CHUNKS];
    unsigned here = 0;

    shuffle(s, 1, order[0]);
    shuffle(s, 1, order[1]);
    for (unsigned n = 0; n < 2 * (SET_CHUNKS + ahead); n++) {
        unsigned job = n % 2, at = n / 2;
        if (planned && at < SET_CHUNKS) {
            here += s->place[order[job][at]] > 0;
            want_soon(s, order[job][at]);
        }
        if (at < ahead)
            continue;
        here += !planned && s->place[order[job][at - ahead]] > 0;
        read_chunk(s, order[job][at - ahead]);
    }
    return here;
}

/* With plans of two jobs there were an eighth fewer hits than without: what was wanted soon seemed
 * to have been read just then, so nothing was ever seen to come back. */
static void what_is_fetched_ahead_is_seen_to_come_back(void **state)
{
    enum { LEARN = 4, EPOCHS = 8 };
    unsigned here[2] = {0};

    (void)state;
    for (unsigned planned = 0; planned < 2; planned++) {
        store_make(&store);
        for (unsigned n = 0; n < EPOCHS; n++) {
            unsigned found = epoch_of_two(&store, planned, ROOM / 100);
            here[planned] += n < LEARN ? 0 : found;
        }
        policy_free(store.policy);
    }
    assert_true(here[0] > (EPOCHS - LEARN) * 2 * ROOM && here[1] > here[0] * 95 / 100);
}

static void what_was_kept_and_not_read_is_no_longer_kept(void **state)
{
    (void)state;
    store_make(&store);
    for (unsigned n = 0; n < 3; n++)
        epoch(&store, 0);
    for (uint32_t n = 0; n < ROOM / 10; n++)
        bring_by_order(&store, SET_CHUNKS + n);
    assert_true(policy_value(store.policy, &store.mark[SET_CHUNKS]) > 1);
    for (unsigned n = 0; n < 3; n++)
        epoch(&store, 0);
    for (uint32_t n = 0; n < ROOM / 10; n++)
        assert_true(policy_value(store.policy, &store.mark[SET_CHUNKS + n]) < 1);
    assert_true(residents_of(&store, 0, SET_CHUNKS) >= ROOM * 85 / 100);
    policy_free(store.policy);
}

static void a_group_that_is_idle_decays(void **state)
{
    (void)state;
    store_make(&store);
    epoch(&store, 0);
    epoch(&store, 0);
    struct policy_mark *m = &store.mark[store.resident[0]];
    double before = policy_value(store.policy, m);
    for (unsigned n = 0; n < 10 * ROOM; n++)
        policy_served(store.policy, CHUNK_BYTES);
    double after = policy_value(store.policy, m);
    assert_true(after < before / 20);
    m->group = (uint16_t)(m->group + EHD_GROUPS);    /* another one has its number */
    assert_true(policy_value(store.policy, m) < before / 20);
    policy_free(store.policy);
}

static void what_was_learnt_outlives_a_restart(void **state)
{
    (void)state;
    static char blob[POLICY_STATE_BYTES];
    unsigned groups = 0;

    store_make(&store);
    for (unsigned n = 0; n < 4; n++)
        epoch(&store, 0);
    struct policy *next = policy_make("ehd", ROOM, ROOM), *other = policy_make("ehd", 20, 20);
    for (unsigned n = 0; n < POLICY_GROUPS; n++) {
        size_t len = policy_save(store.policy, n, blob, sizeof blob);
        assert_int_equal(policy_save(store.policy, n, blob, 100), 0);
        if (len == 0)
            continue;
        groups++;
        assert_int_equal(policy_restore(next, span_make(blob, len)), OK);
        assert_int_equal(policy_restore(other, span_make(blob, len)), ERR_RECORD); /* other ticks */
        for (size_t cut = 0; cut < len; cut += 997)
            assert_int_not_equal(policy_restore(other, span_make(blob, cut)), OK);
        blob[0]++;
        assert_int_equal(policy_restore(next, span_make(blob, len)), ERR_NEWER);
    }
    assert_int_equal(groups, policy_groups(store.policy));
    assert_int_equal(policy_groups(next), groups);
    assert_int_equal(policy_groups(other), 1);
    struct policy_mark fresh = {.group = policy_group(next, span_of("b"), span_of("one/x"), 0)};
    assert_int_not_equal(fresh.group, 0);
    double learnt = policy_value(next, &fresh);
    assert_true(learnt > 0 && learnt < 1);
    fresh.group = 0;
    assert_true(learnt > policy_value(next, &fresh)); /* a loop promises more than the unknown */
    policy_free(next);
    policy_free(other);
    policy_free(store.policy);
}

/* Marks from a disk may say anything. */
static void strange_marks_do_no_harm(void **state)
{
    (void)state;
    struct policy *p = policy_make("ehd", ROOM, ROOM);
    uint64_t random = 5;

    for (unsigned n = 0; n < 20000; n++) {
        struct policy_mark m;
        for (unsigned i = 0; i < sizeof m; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            ((uint8_t *)&m)[i] = (uint8_t)(random >> 50);
        }
        if (n % 3 == 0) {
            policy_resume(p, random, &m);
            policy_resume_clock(p, m.last);
        }
        policy_reference(p, random, &m, random >> 40, CHUNK_BYTES);
        m.flags = 0;
        assert_true(policy_value(p, &m) >= 0);
        policy_served(p, MIB);
        if (n % 1000 == 0)
            policy_refresh(p);
    }
    policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_has_enough_ticks_for_any_cache),
        cmocka_unit_test(small_reads_move_the_clock_as_well),
        cmocka_unit_test(classes_tell_interval_and_count),
        cmocka_unit_test(shuffled_epochs_hit_all_that_fits),
        cmocka_unit_test(what_counts_twice_in_one_pass_does_not_turn_the_first_epoch_over),
        cmocka_unit_test(what_comes_again_at_once_is_not_taken_for_the_oldest),
        cmocka_unit_test(a_new_set_takes_over_in_its_second_epoch),
        cmocka_unit_test(a_scan_does_not_push_out_what_is_in_use),
        cmocka_unit_test(what_no_one_can_learn_a_plan_knows),
        cmocka_unit_test(a_plan_that_nobody_follows_gives_its_room_back),
        cmocka_unit_test(what_shall_be_here_is_let_in_and_stays_until_it_was_read),
        cmocka_unit_test(what_is_fetched_ahead_is_seen_to_come_back),
        cmocka_unit_test(what_was_kept_and_not_read_is_no_longer_kept),
        cmocka_unit_test(a_group_that_is_idle_decays),
        cmocka_unit_test(what_was_learnt_outlives_a_restart),
        cmocka_unit_test(strange_marks_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
