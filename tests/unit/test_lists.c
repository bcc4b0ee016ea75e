/* Lists in memory: who finds what and for how long, what writes take back, and the limit. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"
#include "tests/lib/upload_case.h"

#include "server/cache/lists.c"

enum { NOW_MS = 1000000 };

static struct okey question(struct cache_case *t, const char *bucket, const char *text)
{
    struct okey k = {.bucket = span_of(bucket), .key = span_of(text), .version = span_of("AK")};

    cache_key(t->c, &k);
    return k;
}

/* One that came in whole, asked for at that time; not held. */
static void answer_at(struct cache_case *t, const struct okey *k, const struct listing_note *n,
                      const char *body)
{
    struct listing *l = listing_make(t->c, k, n, span_of("a: b\r\n"));

    assert_non_null(l);
    assert_true(listing_add(t->c, l, body, strlen(body)));
    listing_keep(t->c, l);
    listing_drop(t->c, l);
}

static void answer(struct cache_case *t, const char *bucket, const char *text, const char *body)
{
    struct okey k = question(t, bucket, text);
    struct listing_note n;

    listing_note(t->c, &n, &k, NOW_MS);
    answer_at(t, &k, &n, body);
}

/* Its body, or NULL; copied. */
static const char *found_at(struct cache_case *t, const char *bucket, const char *text,
                            uint64_t now_ms, uint64_t ttl_ms)
{
    static char body[100];
    struct okey k = question(t, bucket, text);
    struct listing *l = listing_find(t->c, &k, now_ms, ttl_ms);

    if (!l)
        return NULL;
    assert_true(span_is(l->head, "a: b\r\n"));
    snprintf(body, sizeof body, "%.*s", (int)l->body.len, l->body.at);
    listing_drop(t->c, l);
    return body;
}

static const char *found(struct cache_case *t, const char *bucket, const char *text)
{
    return found_at(t, bucket, text, NOW_MS, 1000);
}

static void what_was_asked_is_found_by_all_of_its_name(void **state)
{
    struct cache_case *t = open_case(0);
    struct okey k = question(t, "b", "q");

    (void)state;
    assert_null(found(t, "b", "q"));
    answer(t, "b", "q", "one");
    answer(t, "b", "qq", "two");
    answer(t, "bq", "", "three");
    assert_string_equal(found(t, "b", "q"), "one");
    assert_string_equal(found(t, "b", "qq"), "two");
    assert_string_equal(found(t, "bq", ""), "three");
    assert_null(found(t, "b", ""));
    k.version = span_of("other credentials");
    cache_key(t->c, &k);
    assert_null(listing_find(t->c, &k, NOW_MS, 1000));
    /* A collision of ids is no match. */
    struct okey forged = question(t, "b", "never asked");
    forged.id = question(t, "b", "q").id;
    assert_null(listing_find(t->c, &forged, NOW_MS, 1000));
    answer(t, "b", "q", "again");
    assert_string_equal(found(t, "b", "q"), "again");
    case_end(t);
}

static void it_ends_with_its_time(void **state)
{
    struct cache_case *t = open_case(0);

    (void)state;
    answer(t, "b", "q", "one");
    assert_non_null(found_at(t, "b", "q", NOW_MS + 999, 1000));
    assert_null(found_at(t, "b", "q", NOW_MS + 1000, 1000));
    assert_null(found_at(t, "b", "q", NOW_MS, 1000)); /* it is gone */
    assert_int_equal(t->c->listings.bytes, 0);
    /* The answer to a later question stays, whichever comes first. */
    struct okey k = question(t, "b", "q");
    struct listing_note early, late;
    listing_note(t->c, &early, &k, NOW_MS);
    listing_note(t->c, &late, &k, NOW_MS + 5);
    answer_at(t, &k, &late, "late");
    answer_at(t, &k, &early, "early");
    assert_string_equal(found(t, "b", "q"), "late");
    case_end(t);
}

static void a_write_takes_back_the_lists_of_its_bucket(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache_write w;

    (void)state;
    for (unsigned whole = 0; whole < 2; whole++) {
        struct okey k = case_key(t, "key");
        char bucket[64];
        snprintf(bucket, sizeof bucket, "%.*s", (int)k.bucket.len, k.bucket.at);
        struct okey q = question(t, bucket, "q");
        struct listing_note before, during, after;
        answer(t, bucket, "q", "old");
        answer(t, "another bucket", "q", "stays");
        listing_note(t->c, &before, &q, NOW_MS);
        if (whole)
            cache_bucket_write_begin(t->c, &w, k.bucket, &t->machine);
        else
            cache_write_begin(t->c, &w, &k, &t->machine);
        AWAIT((case_deliver(t), !w.busy));
        assert_null(found(t, bucket, "q"));
        listing_note(t->c, &during, &q, NOW_MS);
        answer_at(t, &q, &before, "before");
        assert_null(found(t, bucket, "q"));
        answer_at(t, &q, &during, "during");
        assert_null(found(t, bucket, "q"));
        cache_write_end(t->c, &w, false);
        listing_note(t->c, &after, &q, NOW_MS);
        answer_at(t, &q, &before, "before");
        answer_at(t, &q, &during, "during");
        assert_null(found(t, bucket, "q"));
        answer_at(t, &q, &after, "after");
        assert_string_equal(found(t, bucket, "q"), "after");
        assert_string_equal(found(t, "another bucket", "q"), "stays");
    }
    case_end(t);
}

/* Two writes that overlap: nothing is kept until the last one has ended. */
static void writes_side_by_side_are_both_waited_for(void **state)
{
    struct cache_case *t = open_case(0);
    struct okey one = case_key(t, "one"), two = case_key(t, "two");
    struct cache_write first, second;
    struct listing_note n;
    struct okey q = {.bucket = one.bucket, .key = span_of("q"), .version = span_of("AK")};

    (void)state;
    cache_key(t->c, &q);
    cache_write_begin(t->c, &first, &one, &t->machine);
    cache_write_begin(t->c, &second, &two, &t->machine);
    cache_write_end(t->c, &first, false);
    listing_note(t->c, &n, &q, NOW_MS);
    answer_at(t, &q, &n, "between");
    assert_null(listing_find(t->c, &q, NOW_MS, 1000));
    cache_write_end(t->c, &second, true);
    answer_at(t, &q, &n, "between");
    assert_null(listing_find(t->c, &q, NOW_MS, 1000));
    case_end(t);
}

static void the_least_used_go_first(void **state)
{
    struct cache_case *t = open_case(0);
    static char big[100 * KIB];
    char name[16];

    (void)state;
    t->c->listings.limit = MIB;
    for (unsigned i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "q%u", i);
        struct okey k = question(t, "b", name);
        struct listing_note n;
        listing_note(t->c, &n, &k, NOW_MS);
        struct listing *l = listing_make(t->c, &k, &n, span_of("a: b\r\n"));
        assert_non_null(l);
        for (unsigned at = 0; at < sizeof big; at += KIB)
            assert_true(listing_add(t->c, l, big + at, KIB));
        listing_keep(t->c, l);
        listing_drop(t->c, l);
        assert_true(t->c->listings.bytes <= t->c->listings.limit);
        assert_non_null(found(t, "b", "q0")); /* always used */
    }
    assert_non_null(found(t, "b", "q39"));
    assert_non_null(found(t, "b", "q36"));
    assert_null(found(t, "b", "q1"));
    assert_null(found(t, "b", "q20"));
    case_end(t);
}

/* What is held by those who send it counts until they let go. */
static void what_is_held_counts(void **state)
{
    struct cache_case *t = open_case(0);
    static char half[400 * KIB];
    struct okey k = question(t, "b", "held");
    struct listing_note n;

    (void)state;
    t->c->listings.limit = 900 * KIB;
    listing_note(t->c, &n, &k, NOW_MS);
    struct listing *l = listing_make(t->c, &k, &n, span_of("a: b\r\n"));
    assert_true(listing_add(t->c, l, half, sizeof half));
    listing_keep(t->c, l);
    struct okey other = question(t, "b", "other");
    struct listing *m = listing_make(t->c, &other, &n, span_of(""));
    assert_false(listing_add(t->c, m, half, sizeof half) &&
                 listing_add(t->c, m, half, sizeof half));
    listing_drop(t->c, m);
    assert_null(found(t, "b", "held")); /* it had to go, */
    assert_memory_equal(l->body.at, half, sizeof half); /* but not from under us */
    assert_true(t->c->listings.bytes >= sizeof half);
    listing_drop(t->c, l);
    assert_int_equal(t->c->listings.bytes, 0);
    case_end(t);
}

static void one_that_is_too_long_is_not_kept(void **state)
{
    struct cache_case *t = open_case(0);
    static char piece[64 * KIB];
    struct okey k = question(t, "b", "q");
    struct listing_note n;
    unsigned taken = 0;

    (void)state;
    listing_note(t->c, &n, &k, NOW_MS);
    struct listing *l = listing_make(t->c, &k, &n, span_of("a: b\r\n"));
    t->c->listings.limit = 8 * MIB;
    while (listing_add(t->c, l, piece, sizeof piece))
        taken++;
    assert_int_equal(taken, 16);
    listing_drop(t->c, l);
    listing_drop(t->c, NULL);
    assert_int_equal(t->c->listings.bytes, 0);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_asked_is_found_by_all_of_its_name),
        cmocka_unit_test(it_ends_with_its_time),
        cmocka_unit_test(a_write_takes_back_the_lists_of_its_bucket),
        cmocka_unit_test(writes_side_by_side_are_both_waited_for),
        cmocka_unit_test(the_least_used_go_first),
        cmocka_unit_test(what_is_held_counts),
        cmocka_unit_test(one_that_is_too_long_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
