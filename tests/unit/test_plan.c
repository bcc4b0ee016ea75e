/* A plan as data, and where its readers are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/jobs/plan.c"
#include "server/jobs/plan_cursor.c"

static struct plan_account account;

static struct id id_of(const char *key)
{
    struct id id = {14695981039346656037u, 7};

    for (; *key; key++)
        id.a = (id.a ^ (uint8_t)*key) * 1099511628211u;
    return id;
}

static enum err add(struct plan *p, uint32_t stream, const char *key)
{
    const struct plan_wish wish = {.stream = stream, .id = id_of(key), .rest = span_of(key)};

    return plan_add(p, &wish);
}

/* "a b c|d e": the streams' keys. */
static struct plan *made(const char *streams, uint64_t from)
{
    struct plan *p = plan_make(&account);
    struct span rest = span_of(streams);

    assert_non_null(p);
    for (uint32_t s = 0; rest.len > 0; s++) {
        struct span keys = span_cut(&rest, '|');
        while (keys.len > 0) {
            char key[64];
            struct span word = span_cut(&keys, ' ');
            snprintf(key, sizeof key, "%.*s", (int)word.len, word.at);
            assert_int_equal(add(p, s, key), OK);
        }
    }
    p->facts.from = from;
    assert_int_equal(plan_settle(p), OK);
    return p;
}

static enum plan_heard read_at(struct plan *p, const char *key, uint64_t from, bool waited)
{
    const struct follow_read read = {
        .id = id_of(key), .from = from, .bytes = MIB, .waited = waited};
    struct plan_match match;

    return plan_match(p, &read, &match) ? plan_heard(p, &read, &match) : HEARD_NOTHING;
}

static enum plan_heard hear(struct plan *p, const char *key)
{
    return read_at(p, key, 0, false);
}

static const char *key_at(const struct plan *p, uint32_t stream, uint32_t position)
{
    static char text[64];
    const struct plan_entry *e = &p->entry[p->stream[stream].start + position];
    struct span rest = plan_rest(p, &p->object[e->object]);

    assert_int_equal(e->stream, stream);
    snprintf(text, sizeof text, "%.*s", (int)rest.len, rest.at);
    return text;
}

static void streams_keep_their_order_however_their_entries_came(void **state)
{
    struct plan *p = plan_make(&account);

    (void)state;
    assert_int_equal(add(p, 1, "d"), OK);
    assert_int_equal(add(p, 0, "a"), OK);
    assert_int_equal(add(p, 3, "f"), OK);
    assert_int_equal(add(p, 1, "e"), OK);
    assert_int_equal(add(p, 0, "b"), OK);
    assert_int_equal(plan_settle(p), OK);
    assert_int_equal(p->stream_count, 4);
    assert_int_equal(p->stream[2].count, 0);
    assert_string_equal(key_at(p, 0, 0), "a");
    assert_string_equal(key_at(p, 0, 1), "b");
    assert_string_equal(key_at(p, 1, 0), "d");
    assert_string_equal(key_at(p, 1, 1), "e");
    assert_string_equal(key_at(p, 3, 0), "f");
    assert_int_equal(account.entries, 5);
    plan_free(p);
    assert_int_equal(account.entries, 0);
    assert_int_equal(account.bytes, 0);
}

static void a_key_that_is_named_often_stands_there_once(void **state)
{
    struct plan *p = plan_make(&account);

    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i % 3000);
        assert_int_equal(add(p, i % 7, key), OK);
    }
    assert_int_equal(plan_settle(p), OK);
    assert_int_equal(p->object_count, 3000);
    assert_int_equal(p->entry_count, 10000);
    for (unsigned i = 0; i < 3000; i++) {
        char key[16];
        unsigned named = 0;
        snprintf(key, sizeof key, "k%u", i);
        const struct plan_object *o = plan_find(p, id_of(key));
        assert_non_null(o);
        assert_true(span_is(plan_rest(p, o), key));
        for (uint32_t u = o->first; u < p->entry_count && p->entry[p->use[u]].object == i; u++) {
            assert_true(u == o->first || p->use[u - 1] < p->use[u]);
            named++;
        }
        assert_int_equal(named, i < 1000 ? 4 : 3);
    }
    assert_null(plan_find(p, id_of("k3000")));
    plan_free(p);
    assert_int_equal(account.bytes, 0);
}

/* Keys with one id are kept apart by their bytes. */
static void the_hash_alone_does_not_make_two_keys_one(void **state)
{
    struct plan *p = plan_make(&account);
    struct plan_wish wish = {.id = {1, 2}, .rest = span_of("one")};

    (void)state;
    assert_int_equal(plan_add(p, &wish), OK);
    wish.rest = span_of("two");
    assert_int_equal(plan_add(p, &wish), OK);
    assert_int_equal(plan_settle(p), OK);
    assert_int_equal(p->object_count, 2);
    plan_free(p);
}

static void what_is_too_much_is_refused_and_given_back(void **state)
{
    struct plan *p = plan_make(&account);
    struct plan_wish wish = {.stream = PLAN_STREAMS_MAX, .id = {1, 2}, .rest = span_of("one")};

    (void)state;
    assert_int_equal(plan_add(p, &wish), ERR_SYNTAX);
    assert_int_equal(plan_settle(p), ERR_SYNTAX);
    atomic_store(&account.entries, PLAN_ENTRIES_MAX);
    wish.stream = 0;
    assert_int_equal(plan_add(p, &wish), ERR_TOO_LARGE);
    atomic_store(&account.entries, 0);
    atomic_store(&account.bytes, PLAN_BYTES_MAX);
    assert_int_equal(plan_add(p, &wish), ERR_TOO_LARGE);
    assert_int_equal(atomic_load(&account.bytes), PLAN_BYTES_MAX);
    atomic_store(&account.bytes, 0);
    const struct plan_range none = {7, 0};
    wish.range = &none;
    wish.range_count = 1;
    assert_int_equal(plan_add(p, &wish), ERR_SYNTAX);
    assert_int_equal(atomic_load(&account.entries), 0);
    plan_free(p);
    assert_int_equal(atomic_load(&account.bytes), 0);
}

static void from_skips_places_over_all_streams(void **state)
{
    static const unsigned at[][3] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {2, 1, 1},
                                     {2, 1, 2}, {3, 1, 2}, {4, 1, 2}, {4, 1, 2}};

    (void)state;
    for (unsigned from = 0; from < ARRAY_COUNT(at); from++) {
        struct plan *p = made("a b c d|e|f g", from);
        for (unsigned s = 0; s < 3; s++)
            assert_int_equal(p->stream[s].at, at[from][s]);
        assert_true(plan_place(p) <= from);
        plan_free(p);
    }
}

static void a_read_moves_the_reader_whose_next_entry_it_is(void **state)
{
    struct plan *p = made("a b c|d e f", 0);

    (void)state;
    assert_int_equal(hear(p, "d"), HEARD_NEXT);
    assert_int_equal(hear(p, "a"), HEARD_NEXT);
    assert_int_equal(read_at(p, "a", MIB, false), HEARD_ON);
    assert_int_equal(p->stream[0].offset, 2 * MIB);
    assert_int_equal(hear(p, "x"), HEARD_NOTHING);
    assert_int_equal(hear(p, "e"), HEARD_NEXT);
    assert_int_equal(plan_place(p), 2); /* "a" and "d" */
    assert_int_equal(hear(p, "d"), HEARD_NOTHING); /* passed: it does not come back */
    assert_int_equal(p->stream[1].at, 1);
    assert_int_equal(p->now.read, 3);
    plan_free(p);
}

static void what_a_reader_leaves_out_is_skipped(void **state)
{
    struct plan *p = made("a b c d", 0);

    (void)state;
    assert_int_equal(hear(p, "a"), HEARD_NEXT);
    assert_int_equal(hear(p, "d"), HEARD_NEXT);
    assert_int_equal(p->now.read, 2);
    assert_int_equal(p->now.skipped, 2);
    assert_int_equal(plan_place(p), 4);
    plan_free(p);
}

/* Far in front one read is nobody's: another job may read these objects in its own order. Two that
 * follow each other are the reader's. */
static void a_read_far_in_front_is_believed_when_the_next_follows_it(void **state)
{
    char streams[1024];
    struct text t;
    struct plan *p;

    (void)state;
    text_init(&t, streams, sizeof streams);
    for (unsigned i = 0; i < 100; i++)
        text_addf(&t, "%sk%u", i ? " " : "", i);
    p = made(streams, 0);
    assert_int_equal(hear(p, "k0"), HEARD_NEXT);
    assert_int_equal(hear(p, "k70"), HEARD_NOTHING);
    assert_int_equal(read_at(p, "k70", MIB, false), HEARD_NOTHING);
    assert_int_equal(hear(p, "k40"), HEARD_NOTHING);
    assert_int_equal(hear(p, "k1"), HEARD_NEXT);
    assert_int_equal(hear(p, "k70"), HEARD_NOTHING);
    assert_int_equal(hear(p, "k71"), HEARD_NEXT);
    assert_int_equal(p->stream[0].at, 71);
    assert_int_equal(p->now.skipped, 69);
    plan_free(p);
}

/* Both streams read the same object: the second who begins at its front is the other one. */
static void two_readers_of_one_object_are_told_apart(void **state)
{
    struct plan *p = made("a b|c a", 0);

    (void)state;
    assert_int_equal(hear(p, "c"), HEARD_NEXT);
    assert_int_equal(hear(p, "a"), HEARD_NEXT);
    assert_int_equal(p->stream[0].begun, true);
    assert_int_equal(read_at(p, "a", 8 * MIB, false), HEARD_ON);
    assert_int_equal(hear(p, "a"), HEARD_NEXT);
    assert_int_equal(p->stream[1].at, 1);
    plan_free(p);
}

/* The next epoch may be the one that reads it again. */
static void what_was_read_to_its_end_and_is_begun_again_is_another_reading(void **state)
{
    struct plan *p = made("a b", 0);

    (void)state;
    p->object[0].size = MIB;
    p->object[0].state = PLANNED_KNOWN;
    assert_int_equal(hear(p, "a"), HEARD_NEXT);
    assert_int_equal(hear(p, "a"), HEARD_NOTHING);
    plan_free(p);
}

/* One who asks for several small objects at once over connections of his own. */
static void objects_that_are_read_at_once_are_read_in_any_order(void **state)
{
    static const char *const order[] = {"d", "b", "a", "g", "c", "f", "e", "h"};
    struct plan *p = made("a b c d e f g h", 0);

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(order); i++)
        assert_int_equal(hear(p, order[i]), HEARD_NEXT);
    assert_int_equal(p->now.read, 8);
    assert_int_equal(p->now.skipped, 0);
    assert_false(plan_awaits(p));
    assert_int_equal(hear(p, "b"), HEARD_NOTHING); /* once more: it is another one's */
    assert_int_equal(p->now.read, 8);
    plan_free(p);
}

static void what_is_left_out_is_awaited_unless_it_cannot_come(void **state)
{
    struct plan *p = made("a b c d", 0);

    (void)state;
    assert_int_equal(hear(p, "a"), HEARD_NEXT);
    assert_int_equal(hear(p, "d"), HEARD_NEXT);
    assert_true(plan_awaits(p));
    plan_find(p, id_of("b"))->state = PLANNED_MISSING;
    assert_true(plan_awaits(p));
    assert_int_equal(read_at(p, "c", 0, true), HEARD_NEXT);
    assert_false(plan_awaits(p));
    assert_int_equal(p->now.skipped, 1);
    assert_int_equal(p->now.late, 1);
    plan_free(p);
}

/* As far back as is known, and not farther. */
static void what_was_left_out_long_ago_does_not_come_back(void **state)
{
    enum { KEYS = 3 * PLAN_PASSED };
    char streams[KEYS * 6], key[16];
    struct text t;
    struct plan *p;

    (void)state;
    text_init(&t, streams, sizeof streams);
    for (unsigned i = 0; i < KEYS; i++)
        text_addf(&t, "%sk%u", i ? " " : "", i);
    p = made(streams, 0);
    hear(p, "k0");
    for (unsigned i = 3; i < 2 + PLAN_PASSED; i++) {
        snprintf(key, sizeof key, "k%u", i);
        hear(p, key);
    }
    assert_int_equal(p->now.skipped, 2);
    assert_int_equal(hear(p, "k1"), HEARD_NEXT);
    hear(p, "k66");
    hear(p, "k67");
    assert_int_equal(hear(p, "k2"), HEARD_NOTHING);
    assert_int_equal(p->now.skipped, 1);
    plan_free(p);
}

/* Ranges of an object over several connections, the first of them heard last. */
static void ranges_that_are_read_at_once_are_one_reading(void **state)
{
    static const unsigned order[] = {3, 1, 7, 0, 2, 6, 5, 4};
    struct plan *p = made("a b|c a", 0);

    (void)state;
    p->object[0].size = 8 * CHUNK_BYTES;
    p->object[0].state = PLANNED_KNOWN;
    for (unsigned i = 0; i < ARRAY_COUNT(order); i++)
        assert_int_equal(read_at(p, "a", order[i] * (uint64_t)CHUNK_BYTES, false),
                         i ? HEARD_ON : HEARD_NEXT);
    assert_int_equal(p->now.read, 1);
    assert_int_equal(p->stream[1].at, 0);
    assert_false(p->stream[1].begun);
    assert_int_equal(p->read_bytes, 8 * MIB);
    assert_int_equal(hear(p, "b"), HEARD_NEXT);
    /* his last one */
    assert_int_equal(read_at(p, "a", 5 * (uint64_t)CHUNK_BYTES, false), HEARD_ON);
    assert_int_equal(p->now.skipped, 0);
    assert_int_equal(hear(p, "c"), HEARD_NEXT);
    assert_int_equal(hear(p, "a"), HEARD_NEXT);
    assert_int_equal(p->stream[1].at, 1);
    plan_free(p);
}

static void steps_tell_whose_reader_is_nearer(void **state)
{
    struct plan *p = made("a b c d e f", 0), *q = made("f e d c b a", 0);
    struct follow_read read = {.id = id_of("b"), .bytes = MIB};
    struct plan_match match;

    (void)state;
    hear(p, "a");
    hear(q, "f");
    assert_true(plan_match(p, &read, &match));
    assert_int_equal(match.steps, 1);
    assert_true(plan_match(q, &read, &match));
    assert_int_equal(match.steps, 4);
    read.id = id_of("a");
    read.from = MIB;
    assert_true(plan_match(p, &read, &match));
    assert_int_equal(match.steps, 0);
    read.id = id_of("g");
    assert_false(plan_match(p, &read, &match));
    plan_free(p);
    plan_free(q);
}

static void who_came_too_early_is_late_once(void **state)
{
    struct plan *p = made("a b", 0);

    (void)state;
    assert_int_equal(read_at(p, "a", 0, true), HEARD_NEXT);
    assert_int_equal(read_at(p, "a", MIB, true), HEARD_ON);
    assert_int_equal(p->now.late, 1);
    assert_int_equal(read_at(p, "b", 0, false), HEARD_NEXT);
    assert_int_equal(p->now.late, 1);
    assert_int_equal(read_at(p, "b", MIB, true), HEARD_ON);
    assert_int_equal(p->now.late, 2);
    plan_free(p);
}

static void it_is_read_when_all_streams_are_at_their_ends(void **state)
{
    struct plan *p = made("a b|c", 0);

    (void)state;
    for (unsigned i = 0; i < p->object_count; i++) {
        p->object[i].size = 2 * MIB;
        p->object[i].state = PLANNED_KNOWN;
    }
    hear(p, "a");
    hear(p, "b");
    hear(p, "c");
    assert_false(plan_is_read(p));
    read_at(p, "b", MIB, false);
    assert_false(plan_is_read(p));
    read_at(p, "c", MIB, false);
    assert_true(plan_is_read(p));
    assert_int_equal(plan_place(p), 3);
    plan_free(p);
}

static void know(struct plan *p, const char *key, enum plan_object_state state, uint64_t size)
{
    struct plan_object *o = plan_find(p, id_of(key));

    o->state = (uint8_t)state;
    o->size = size;
}

static void a_stream_ends_with_its_last_entry_that_can_be_read(void **state)
{
    struct plan *p = made("a gone empty gone|gone|b failed", 0);

    (void)state;
    know(p, "a", PLANNED_KNOWN, MIB);
    know(p, "b", PLANNED_KNOWN, MIB);
    know(p, "gone", PLANNED_MISSING, 0);
    know(p, "empty", PLANNED_KNOWN, 0);
    know(p, "failed", PLANNED_FAILED, 0);
    for (uint32_t s = 0; s < p->stream_count; s++)
        p->stream[s].ahead = p->stream[s].count;
    assert_false(plan_is_read(p));
    hear(p, "b");
    hear(p, "a");
    assert_false(plan_is_read(p));   /* what cannot be fetched ahead is there to be read */
    hear(p, "failed");
    assert_true(plan_is_read(p));
    know(p, "empty", PLANNED_KNOWN, MIB); /* it was written meanwhile */
    assert_false(plan_is_read(p));
    plan_free(p);
}

/* Of a range behind its object's end nothing is read either. What nobody looked at yet may be. */
static void what_was_not_looked_at_may_be_read(void **state)
{
    struct plan *p = plan_make(&account);
    const struct plan_range behind = {8 * MIB, MIB};
    const struct plan_wish whole = {.id = id_of("a"), .rest = span_of("a")};
    const struct plan_wish part = {
        .id = id_of("a"), .rest = span_of("a"), .range = &behind, .range_count = 1};

    (void)state;
    assert_non_null(p);
    assert_int_equal(plan_add(p, &whole), OK);
    assert_int_equal(plan_add(p, &part), OK);
    assert_int_equal(plan_settle(p), OK);
    know(p, "a", PLANNED_KNOWN, MIB);
    hear(p, "a");
    p->stream[0].ahead = 1;
    assert_false(plan_is_read(p));
    p->stream[0].ahead = 2;
    assert_true(plan_is_read(p));
    plan_free(p);
}

static void ranges_want_their_chunks_and_tell_entries_apart(void **state)
{
    static const struct plan_range first[] = {{0, 100}, {20 * MIB, 5}}, second[] = {{9 * MIB, MIB}};
    struct plan *p = plan_make(&account);
    struct plan_wish wish = {.id = id_of("a"), .rest = span_of("a"), .range = first,
                             .range_count = 2};
    uint64_t chunk;

    (void)state;
    assert_int_equal(plan_add(p, &wish), OK);
    wish.range = second;
    wish.range_count = 1;
    assert_int_equal(plan_add(p, &wish), OK);
    assert_int_equal(plan_settle(p), OK);
    p->object[0].size = 30 * MIB;
    p->object[0].state = PLANNED_KNOWN;
    assert_true(plan_entry_wants(p, &p->entry[0], 0, &chunk) && chunk == 0);
    assert_true(plan_entry_wants(p, &p->entry[0], 1, &chunk) && chunk == 2);
    assert_false(plan_entry_wants(p, &p->entry[0], 3, &chunk));
    assert_true(plan_entry_wants(p, &p->entry[1], 0, &chunk) && chunk == 1);
    p->object[0].size = 9 * MIB;     /* it ends before the range begins */
    assert_false(plan_entry_wants(p, &p->entry[1], 0, &chunk));
    assert_int_equal(read_at(p, "a", 9 * MIB + 5, false), HEARD_NEXT);
    assert_int_equal(p->stream[0].at, 1);
    plan_free(p);
}

/* Many small ones, in any order. */
static void ranges_of_an_entry_are_found_whatever_their_order(void **state)
{
    enum { RANGES = PLAN_RANGES_MAX };
    struct plan_range range[RANGES];
    struct plan *p = plan_make(&account);
    struct plan_wish wish = {.id = id_of("a"), .rest = span_of("a"), .range = range,
                             .range_count = RANGES};
    struct plan_match match;

    (void)state;
    for (uint32_t i = 0; i < RANGES; i++) /* each second place of 10 bytes, and half of the next */
        range[i] = (struct plan_range){20 * ((i * 387ull) % RANGES), i % 2 ? 10 : 15};
    assert_int_equal(plan_add(p, &wish), OK);
    assert_int_equal(plan_settle(p), OK);
    assert_int_equal(p->entry[0].range_count, RANGES);
    for (uint32_t i = 0; i < RANGES; i++) {
        const struct plan_range *r = &range[i];
        struct follow_read read = {.id = id_of("a"), .from = r->from + r->length - 1, .bytes = 1};
        assert_true(plan_match(p, &read, &match));
        read.from++;
        assert_false(plan_match(p, &read, &match));
        read.bytes = 20 - (uint32_t)r->length;
        assert_false(plan_match(p, &read, &match));
        read.bytes++;                /* the first byte of the next one */
        assert_int_equal(plan_match(p, &read, &match), r->from != 20 * (RANGES - 1));
    }
    plan_free(p);
}

static void ranges_that_overlap_or_touch_are_one(void **state)
{
    static const struct plan_range ranges[] = {{50, 10}, {0, 20}, {10, 5},
                                               {20, 5},  {15, 1}, {26, 4}};
    struct plan *p = plan_make(&account);
    struct plan_wish wish = {.id = id_of("a"), .rest = span_of("a"), .range = ranges,
                             .range_count = ARRAY_COUNT(ranges)};

    (void)state;
    assert_int_equal(plan_add(p, &wish), OK);
    assert_int_equal(plan_add(p, &wish), OK);
    assert_int_equal(plan_settle(p), OK);
    assert_int_equal(p->range_count, 6);
    for (unsigned i = 0; i < 2; i++) {
        const struct plan_range *r = &p->range[p->entry[i].ranges];
        assert_int_equal(p->entry[i].range_count, 3);
        assert_true(r[0].from == 0 && r[0].length == 25);
        assert_true(r[1].from == 26 && r[1].length == 4);
        assert_true(r[2].from == 50 && r[2].length == 10);
    }
    plan_free(p);
}

/* ---- one packed file, of which several readers read samples in an order of their own ---- */
enum { SAMPLE_BYTES = 1000, READERS = 8 };

static void name_samples(struct plan *p, uint32_t stream, const uint64_t *sample, unsigned count)
{
    struct plan_range range[PLAN_RANGES_MAX];
    const struct plan_wish wish = {.stream = stream, .id = id_of("packed"),
        .rest = span_of("packed"), .range = range, .range_count = count};

    for (unsigned i = 0; i < count; i++)
        range[i] = (struct plan_range){sample[i] * SAMPLE_BYTES, SAMPLE_BYTES};
    assert_int_equal(plan_add(p, &wish), OK);
}

/* In place of a shuffle: samples are counted through all entries, of all readers. */
static uint64_t sample_at(uint64_t place, uint64_t samples)
{
    return place * 7919 % samples;
}

/* Each reader's entries, of so many samples each. */
static struct plan *packed(unsigned entries, unsigned each)
{
    struct plan *p = plan_make(&account);
    uint64_t sample[PLAN_RANGES_MAX], samples = (uint64_t)READERS * entries * each, place = 0;

    assert_non_null(p);
    for (uint32_t s = 0; s < READERS; s++)
        for (unsigned e = 0; e < entries; e++) {
            for (unsigned i = 0; i < each; i++)
                sample[i] = sample_at(place++, samples);
            name_samples(p, s, sample, each);
        }
    assert_int_equal(plan_settle(p), OK);
    p->object[0].state = PLANNED_KNOWN;
    p->object[0].size = samples * SAMPLE_BYTES;
    return p;
}

static enum plan_heard read_sample(struct plan *p, uint64_t place, uint32_t *most)
{
    const struct follow_read read = {.id = id_of("packed"), .bytes = SAMPLE_BYTES,
        .from = sample_at(place, p->object[0].size / SAMPLE_BYTES) * SAMPLE_BYTES};
    struct plan_match match;
    bool is = plan_match(p, &read, &match);

    *most = (uint32_t)max_u64(*most, match.compared);
    return is ? plan_heard(p, &read, &match) : HEARD_NOTHING;
}

static void the_last_reader_of_a_packed_file_is_followed(void **state)
{
    enum { ENTRIES = 10000, EACH = 1 };
    struct plan *p = packed(ENTRIES, EACH);
    uint32_t most = 0;

    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        for (uint64_t s = READERS; s > 0; s--)
            assert_int_equal(read_sample(p, (s - 1) * ENTRIES + i, &most), HEARD_NEXT);
    for (uint32_t s = 0; s < READERS; s++)
        assert_int_equal(p->stream[s].at, 99);
    assert_int_equal(p->now.skipped, 0);
    plan_free(p);
}

/* Each read is on a core that has others to serve: what it costs does not grow with the plan. */
static void what_a_read_of_a_packed_file_costs_does_not_grow_with_the_plan(void **state)
{
    enum { ENTRIES = 512, EACH = 256, OF_READER = ENTRIES * EACH };
    struct plan *p = packed(ENTRIES, EACH);
    uint32_t on = 0, lost = 0;

    (void)state;
    for (uint64_t s = 0; s < READERS; s++) /* somewhere in the middle */
        p->stream[s].at = ENTRIES / 2;
    for (uint64_t i = 0; i < 3ull * EACH; i++)
        for (uint64_t s = 0; s < READERS; s++) {
            enum plan_heard heard = read_sample(p, s * OF_READER + OF_READER / 2 + i, &on);
            assert_int_equal(heard, i % EACH ? HEARD_ON : HEARD_NEXT);
        }
    assert_in_range(on, READERS, 40 * READERS);
    assert_int_equal(read_sample(p, 7, &lost), HEARD_NOTHING); /* long ago */
    assert_in_range(lost, READERS, 16 * 1024);
    for (uint32_t s = 0; s < READERS; s++)
        assert_int_equal(p->stream[s].at, ENTRIES / 2 + 2);
    plan_free(p);
}

/* "To the end" as some write it: else the way in front of that reader would seem endless, and
 * nothing would be fetched for anybody. */
static void a_range_ends_with_its_object(void **state)
{
    static const struct plan_range endless[] = {{0, UINT64_MAX / 4}, {MIB, UINT64_MAX / 4}};
    struct plan *p = plan_make(&account);
    struct plan_wish wish = {.id = id_of("a"), .rest = span_of("a"), .range = endless,
                             .range_count = 2};

    (void)state;
    assert_int_equal(plan_add(p, &wish), OK);
    assert_int_equal(plan_settle(p), OK);
    p->object[0].size = 20 * MIB;
    p->object[0].state = PLANNED_KNOWN;
    p->stream[0].ahead = 1;
    plan_measure(p, &p->stream[0]);
    assert_int_equal(p->stream[0].distance, 20 * MIB); /* what both have is one way */
    read_at(p, "a", 0, false);
    assert_false(plan_is_read(p));
    p->stream[0].offset = 20 * MIB;
    assert_true(plan_is_read(p));
    plan_free(p);
}

static void the_way_to_what_is_fetched_is_measured_from_the_reader(void **state)
{
    struct plan *p = made("a b c", 0);
    struct plan_stream *t = &p->stream[0];

    (void)state;
    for (unsigned i = 0; i < p->object_count; i++) {
        p->object[i].size = 20 * MIB;
        p->object[i].state = PLANNED_KNOWN;
    }
    t->ahead = 2;
    t->chunk = 1;
    plan_measure(p, t);
    assert_int_equal(t->distance, 48 * MIB);
    read_at(p, "a", 9 * MIB, false);
    plan_measure(p, t);
    assert_int_equal(t->distance, 38 * MIB);
    hear(p, "b");
    read_at(p, "c", 15 * MIB, false); /* he is in front of it by now */
    plan_measure(p, t);
    assert_int_equal(t->ahead, 2);
    assert_int_equal(t->chunk, 2);
    assert_int_equal(t->distance, 0);
    plan_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_keep_their_order_however_their_entries_came),
        cmocka_unit_test(a_key_that_is_named_often_stands_there_once),
        cmocka_unit_test(the_hash_alone_does_not_make_two_keys_one),
        cmocka_unit_test(what_is_too_much_is_refused_and_given_back),
        cmocka_unit_test(from_skips_places_over_all_streams),
        cmocka_unit_test(a_read_moves_the_reader_whose_next_entry_it_is),
        cmocka_unit_test(what_a_reader_leaves_out_is_skipped),
        cmocka_unit_test(a_read_far_in_front_is_believed_when_the_next_follows_it),
        cmocka_unit_test(two_readers_of_one_object_are_told_apart),
        cmocka_unit_test(what_was_read_to_its_end_and_is_begun_again_is_another_reading),
        cmocka_unit_test(objects_that_are_read_at_once_are_read_in_any_order),
        cmocka_unit_test(what_is_left_out_is_awaited_unless_it_cannot_come),
        cmocka_unit_test(what_was_left_out_long_ago_does_not_come_back),
        cmocka_unit_test(ranges_that_are_read_at_once_are_one_reading),
        cmocka_unit_test(steps_tell_whose_reader_is_nearer),
        cmocka_unit_test(who_came_too_early_is_late_once),
        cmocka_unit_test(it_is_read_when_all_streams_are_at_their_ends),
        cmocka_unit_test(a_stream_ends_with_its_last_entry_that_can_be_read),
        cmocka_unit_test(what_was_not_looked_at_may_be_read),
        cmocka_unit_test(ranges_want_their_chunks_and_tell_entries_apart),
        cmocka_unit_test(ranges_of_an_entry_are_found_whatever_their_order),
        cmocka_unit_test(ranges_that_overlap_or_touch_are_one),
        cmocka_unit_test(the_last_reader_of_a_packed_file_is_followed),
        cmocka_unit_test(what_a_read_of_a_packed_file_costs_does_not_grow_with_the_plan),
        cmocka_unit_test(a_range_ends_with_its_object),
        cmocka_unit_test(the_way_to_what_is_fetched_is_measured_from_the_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
