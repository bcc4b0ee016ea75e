/* Quotas of sections and the limit of pins, over a real directory: who leaves, who is let in. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include "server/cache/quota.c"

enum { PIECE = CHUNK_BYTES };

/* A [[bucket]] section more; the general ones stand before it. */
static struct conf_bucket *section(struct cache_case *t, char *match, uint64_t quota, bool pin)
{
    struct config *c = &t->config;

    c->bucket_count = c->bucket_count ? c->bucket_count : 1;
    struct conf_bucket *b = &c->buckets[c->bucket_count++];
    *b = (struct conf_bucket){.match = match, .match_len = strlen(match), .quota_bytes = quota,
                              .pin = pin};
    return b;
}

static struct cache_case *open_case(struct cache_case *t)
{
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    return t;
}

/* Objects of one chunk: as many of count as are admitted, once what left is free. */
static unsigned fill_with(struct cache_case *t, const char *prefix, unsigned count, uint32_t bytes)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s%u", prefix, i);
        struct object *o = case_learn(t, key, "\"1\"", bytes);
        enum err e = case_fill(t, o, 0);
        if (e != OK) {
            case_settle(t);
            e = case_fill(t, o, 0);
        }
        kept += e == OK;
        object_drop(t->c, o);
    }
    return kept;
}

static unsigned fill(struct cache_case *t, const char *prefix, unsigned count)
{
    return fill_with(t, prefix, count, PIECE);
}

static unsigned here(struct cache_case *t, const char *prefix, unsigned count)
{
    unsigned found = 0;

    for (unsigned i = 0; i < count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s%u", prefix, i);
        struct object *o = case_find(t, key);
        found += o && case_read(t, o, 0, 0) == OK;
        if (o)
            object_drop(t->c, o);
    }
    return found;
}

static uint64_t held(struct cache_case *t, const char *match)
{
    for (unsigned i = 1; i < RULE_SECTIONS; i++) {
        const struct section *s = &t->c->rules.section[i];
        if (s->live && strcmp(s->name.text, match) == 0)
            return atomic_load(&s->bytes);
    }
    return UINT64_MAX;
}

static void a_full_quota_evicts_its_own_section_only(void **state)
{
    struct cache_case *t = case_make(1);

    (void)state;
    section(t, "bucket/small/", 4 * PIECE, false);
    open_case(t);
    assert_int_equal(fill(t, "other/", 6), 6);
    assert_int_equal(fill(t, "small/", 12), 12);
    assert_int_equal(held(t, "bucket/small/"), 4 * PIECE);
    assert_int_equal(here(t, "small/", 12), 4);
    assert_int_equal(here(t, "other/", 6), 6);
    assert_int_equal(atomic_load(&t->c->evicted_bytes[EVICT_QUOTA]), 8 * PIECE);
    assert_int_equal(atomic_load(&t->c->evicted_bytes[EVICT_SPACE]), 0);
    case_end(t);
}

static void what_is_larger_than_its_quota_or_finds_only_held_ones_is_not_kept(void **state)
{
    struct cache_case *t = case_make(1);
    struct chunk *k, *other;

    (void)state;
    section(t, "bucket/none/", PIECE - 1, false);
    section(t, "bucket/one/", PIECE, false);
    open_case(t);
    struct object *o = case_learn(t, "none/a", "\"1\"", PIECE);
    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), ERR_QUOTA);
    object_drop(t->c, o);
    o = case_learn(t, "one/a", "\"1\"", 2 * (uint64_t)PIECE);
    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), OK);
    assert_int_equal(chunk_admit(t->c, o, 1, case_asked, &other), ERR_QUOTA);
    case_write(t, o, k, 0);
    chunk_filled(t->c, k);
    assert_int_equal(case_fill(t, o, 1), OK);
    assert_int_equal(case_read(t, o, 0, 0), ERR_NOT_FOUND);
    object_drop(t->c, o);
    case_end(t);
}

static void sums_follow_chunks_through_restarts_and_reloads(void **state)
{
    struct cache_case *t = case_make(1);
    struct config next;

    (void)state;
    section(t, "bucket/a/", 0, false);
    section(t, "bucket/a/b/", 8 * PIECE, true);
    open_case(t);
    assert_int_equal(fill(t, "a/x", 3), 3);
    assert_int_equal(fill(t, "a/b/x", 3), 3);
    assert_int_equal(held(t, "bucket/a/"), 3 * PIECE);
    assert_int_equal(held(t, "bucket/a/b/"), 3 * PIECE);
    case_reopen(t);
    assert_int_equal(held(t, "bucket/a/"), 3 * PIECE);
    assert_int_equal(held(t, "bucket/a/b/"), 3 * PIECE);
    struct cache_status s;
    cache_status(t->c, &s);
    assert_int_equal(s.pinned_bytes, 3 * PIECE);
    /* the longer section goes: its chunks are the shorter one's, and pinned no more */
    next = t->config;
    next.bucket_count--;
    cache_rules_tick(t->c, &next);
    assert_int_equal(held(t, "bucket/a/"), 6 * PIECE);
    cache_status(t->c, &s);
    assert_int_equal(s.pinned_bytes, 0);
    assert_false(s.marking);
    /* and a quota that comes is kept from the next tick on */
    next.buckets[1].quota_bytes = 2 * PIECE;
    cache_rules_tick(t->c, &next);
    assert_int_equal(held(t, "bucket/a/"), 2 * PIECE);
    assert_int_equal(here(t, "a/x", 3) + here(t, "a/b/x", 3), 2);
    case_end(t);
}

static void sections_that_come_and_go_do_not_run_out_of_numbers(void **state)
{
    struct cache_case *t = case_make(1);
    struct config next;
    char match[CONF_BUCKETS_MAX][32];

    (void)state;
    section(t, "bucket/x", 0, false);
    open_case(t);
    assert_int_equal(fill(t, "x", 2), 2);
    for (unsigned round = 0; round < 5; round++) {
        next = t->config;
        next.bucket_count = 1;
        for (unsigned i = 0; i < CONF_BUCKETS_MAX; i++) {
            snprintf(match[i], sizeof match[i], "bucket/%s%u", i ? "other" : "x", round + i);
            next.buckets[next.bucket_count++] =
                (struct conf_bucket){.match = match[i], .match_len = strlen(match[i])};
        }
        cache_rules_tick(t->c, &next);
        cache_rules_tick(t->c, &next);
        assert_int_not_equal(held(t, match[CONF_BUCKETS_MAX - 1]), UINT64_MAX);
        assert_int_equal(held(t, match[0]), round < 2 ? PIECE : 0);
    }
    case_end(t);
}

/* ---- pins ---- */
static void pinned_chunks_stay_and_a_tenth_of_the_disk_stays_free_of_them(void **state)
{
    struct cache_case *t = case_make(1);
    unsigned all = 128 * MIB / PIECE;
    struct cache_status s;

    (void)state;
    t->config.cache_size.bytes = 128 * MIB;
    open_case(t);
    assert_int_equal(fill(t, "keep/", 4), 4);
    assert_int_equal(cache_pin(t->c, span_of("bucket/keep/"), 0), OK);
    cache_status(t->c, &s);
    assert_true(s.marking);
    cache_rules_tick(t->c, &t->config);
    cache_status(t->c, &s);
    assert_int_equal(s.pinned_bytes, 4 * PIECE);
    assert_int_equal(s.pin_limit_bytes, space_capacity_bytes(t->c->dir[0].space) / 100 * 90);
    assert_int_equal(fill(t, "scan/", 3 * all), 3 * all);
    assert_int_equal(here(t, "keep/", 4), 4);
    /* more than fits: no more than the limit is pinned, and others still find room */
    fill(t, "keep/", 2 * all);
    cache_status(t->c, &s);
    assert_true(s.pinned_bytes <= s.pin_limit_bytes);
    assert_true(s.pinned_bytes + 2 * PIECE > s.pin_limit_bytes);
    assert_true(fill(t, "late/", 8) > 0);
    assert_int_equal(here(t, "keep/", 4), 4);
    assert_int_equal(cache_unpin(t->c, span_of("bucket/keep/")), OK);
    assert_int_equal(cache_unpin(t->c, span_of("bucket/keep/")), ERR_NOT_FOUND);
    cache_rules_tick(t->c, &t->config);
    cache_status(t->c, &s);
    assert_int_equal(s.pinned_bytes + s.unpinned_bytes, 0);
    assert_int_equal(fill(t, "scan2/", 3 * all), 3 * all);
    assert_true(here(t, "keep/", 4) < 4);
    case_end(t);
}

/* One of 5 MiB has a page of 8 MiB for itself, of 3 MiB half of one. Those of 700000 bytes share
 * pages, and pinned ones may be in each: what is left then is room for others of that size. */
static void pinned_objects_of_5_mib_leave_a_tenth_of_the_pages_to_others(void **state)
{
    static const uint32_t sizes[] = {5 * MIB, 3 * MIB, 6 * MIB + 1, 700000};

    (void)state;
    for (unsigned n = 0; n < ARRAY_COUNT(sizes); n++) {
        struct cache_case *t = case_make(1);
        struct cache_status s;
        unsigned all = 128 * MIB / sizes[n];

        t->config.cache_size.bytes = 128 * MIB;
        open_case(t);
        assert_int_equal(cache_pin(t->c, span_of("bucket/keep/"), 0), OK);
        fill_with(t, "keep/", 2 * all, sizes[n]);
        cache_status(t->c, &s);
        uint64_t room = space_class_room(space_class(sizes[n]));
        assert_true(fill_with(t, "late/", 8, sizes[n] < MIB ? sizes[n] : PIECE) > 0);
        assert_true(s.pinned_bytes <= s.pin_limit_bytes);
        assert_true(s.pinned_bytes + 2 * room > s.pin_limit_bytes);
        assert_true(s.pinned_bytes <= s.used_bytes + s.lost_bytes);
        assert_true(s.used_bytes + s.lost_bytes <= s.capacity_bytes);
        assert_int_equal(cache_unpin(t->c, span_of("bucket/keep/")), OK);
        cache_rules_tick(t->c, &t->config);
        cache_status(t->c, &s);
        assert_int_equal(s.pinned_bytes + s.unpinned_bytes, 0);
        case_end(t);
    }
}

/* As if the limit were the whole disk. */
static void pin_everything(struct directory *d)
{
    for (uint32_t page = 0; page < d->residents.pages; page++)
        if (d->residents.place[page].used > 0)
            set_pinned(d->residents.place[page].one, true);
}

static void a_cache_that_is_full_of_pins_says_why_it_keeps_nothing(void **state)
{
    struct cache_case *t = case_make(1);
    struct directory *d;
    struct chunk *k;

    (void)state;
    open_case(t);
    d = &t->c->dir[0];
    fill(t, "a", 2 * CASE_SLAB / PIECE);
    pin_everything(d);
    struct object *o = case_learn(t, "b", "\"1\"", 64 * (uint64_t)PIECE);
    enum err e = chunk_admit(t->c, o, 0, case_asked, &k);
    for (unsigned n = 1; n < 64 && e == OK; n++) {
        case_write(t, o, k, 0);
        chunk_filled(t->c, k);
        pin_everything(d);
        e = chunk_admit(t->c, o, n, case_asked, &k);
    }
    assert_int_equal(e, ERR_PINNED);
    object_drop(t->c, o);
    case_end(t);
}

static void ghosts_and_records_bring_no_pin_back(void **state)
{
    struct cache_case *t = case_make(1);
    struct cache_status s;

    (void)state;
    struct conf_bucket *b = section(t, "bucket", 0, true);
    open_case(t);
    assert_int_equal(fill(t, "a", 3), 3);
    cache_status(t->c, &s);
    assert_int_equal(s.pinned_bytes, 3 * PIECE);
    b->pin = false;
    case_reopen(t);
    cache_status(t->c, &s);
    assert_int_equal(s.pinned_bytes, 0);
    struct object *o = case_find(t, "a0");
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    assert_false(is_pinned(k));
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    case_end(t);
}

/* Each of them set the one series that they share. */
static void sections_without_a_name_in_metrics_are_told_together(void **state)
{
    struct cache_case *t = case_make(1);

    (void)state;
    section(t, "bucket/a", 0, false);
    section(t, "bucket/b", 0, false);
    open_case(t);
    for (unsigned i = 1; i <= 2; i++) {
        t->c->rules.section[i].metric = METRIC_NAMED_MAX - 1;
        atomic_store(&t->c->rules.section[i].bytes, i * 1000);
    }
    quota_tell(t->c);
    assert_int_equal(metric_read(METRIC_BUCKET_USED_BYTES, METRIC_NAMED_MAX - 1, 0, 0), 3000);
    for (unsigned i = 1; i <= 2; i++)
        atomic_store(&t->c->rules.section[i].bytes, 0);
    quota_tell(t->c);
    assert_int_equal(metric_read(METRIC_BUCKET_USED_BYTES, METRIC_NAMED_MAX - 1, 0, 0), 0);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_without_a_name_in_metrics_are_told_together),
        cmocka_unit_test(a_full_quota_evicts_its_own_section_only),
        cmocka_unit_test(what_is_larger_than_its_quota_or_finds_only_held_ones_is_not_kept),
        cmocka_unit_test(sums_follow_chunks_through_restarts_and_reloads),
        cmocka_unit_test(sections_that_come_and_go_do_not_run_out_of_numbers),
        cmocka_unit_test(pinned_chunks_stay_and_a_tenth_of_the_disk_stays_free_of_them),
        cmocka_unit_test(pinned_objects_of_5_mib_leave_a_tenth_of_the_pages_to_others),
        cmocka_unit_test(a_cache_that_is_full_of_pins_says_why_it_keeps_nothing),
        cmocka_unit_test(ghosts_and_records_bring_no_pin_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
