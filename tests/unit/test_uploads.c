/* Multipart uploads that are kept: which parts fit together, what makes an upload be given up, and
 * that bytes of a part that failed or was sent again are never anybody's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"
#include "tests/lib/upload_case.h"

#include "server/cache/uploads.c"

static struct upload *begin_part(struct cache_case *t, const char *id, uint32_t number,
                                 uint64_t bytes, struct upload_place *place)
{
    struct okey k = case_key(t, "m");

    return upload_part_begin(t->c, &k, span_of(id), number, bytes, place);
}

/* A part that upstream took, whose first byte is the whole's byte `from`; its ETag says its number.
 * false: it is not kept. */
static bool part_from(struct cache_case *t, uint32_t number, uint64_t bytes, uint64_t seed,
                      uint64_t from)
{
    struct upload_place place;
    char etag[16];
    struct upload *u = begin_part(t, "id", number, bytes, &place);

    if (!u)
        return false;
    snprintf(etag, sizeof etag, "\"p%u\"", number);
    upload_case_stream(t, &place, seed, from, bytes);
    upload_part_end(t->c, u, number, span_of(etag));
    return true;
}

/* One whose size all before it have. */
static bool part(struct cache_case *t, const char *id, uint32_t number, uint64_t bytes,
                 uint64_t seed)
{
    struct upload_place place;
    char etag[16];
    struct upload *u = begin_part(t, id, number, bytes, &place);

    if (!u)
        return false;
    snprintf(etag, sizeof etag, "\"p%u\"", number);
    upload_case_stream(t, &place, seed, place.at, bytes);
    upload_part_end(t->c, u, number, span_of(etag));
    return true;
}

static void abort_all(struct cache_case *t, const char *id)
{
    struct okey k = case_key(t, "m");

    upload_abort(t->c, &k, span_of(id));
}

static struct upload *begin_complete(struct cache_case *t, const char *id, uint32_t count,
                                     uint64_t *size)
{
    static struct upload_listed listed[16];
    static char etag[16][16];
    struct okey k = case_key(t, "m");

    for (uint32_t i = 0; i < count; i++) {
        /* quotes or none, as clients like it */
        snprintf(etag[i], sizeof etag[i], i % 2 ? "p%u" : "\"p%u\"", i + 1);
        listed[i] = (struct upload_listed){i + 1, span_of(etag[i])};
    }
    return upload_complete_begin(t->c, &k, span_of(id), listed, count, size);
}

static bool complete(struct cache_case *t, const char *id, uint32_t count, uint64_t expected)
{
    struct cache_write w;
    uint64_t size = 0;
    struct upload *u = begin_complete(t, id, count, &size);

    if (!u)
        return false;
    assert_int_equal(size, expected);
    upload_case_write(t, &w, "m");
    upload_case_publish(t, u, &w, "m", "\"whole\"", size);
    cache_write_end(t->c, &w, false);
    upload_complete_end(t->c, u, true);
    return true;
}

static void forget(struct cache_case *t)
{
    struct object *o = case_find(t, "m");

    assert_non_null(o);
    cache_forget(t->c, o);
    object_drop(t->c, o);
}

static void settle_empty(struct cache_case *t)
{
    case_settle(t);
    assert_int_equal(atomic_load(&t->c->chunk_count), 0);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    assert_int_equal(t->c->uploads.count, 0);
}

static void parts_in_any_order_become_one_object(void **state)
{
    static const uint32_t orders[][4] = {{1, 2, 3, 4}, {3, 1, 4, 2}, {2, 4, 3, 1}};
    struct cache_case *t = open_case(1);
    const uint64_t part_bytes = 5 * BLOCK_BYTES, last = BLOCK_BYTES + 5000;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(orders); i++) {
        uint64_t size = 3 * part_bytes + last;
        for (unsigned n = 0; n < 4; n++)
            assert_true(part(t, "id", orders[i][n], orders[i][n] == 4 ? last : part_bytes, i));
        assert_null(case_find(t, "m"));
        assert_true(complete(t, "id", 4, size));
        assert_true(upload_case_doubtful(t, "m"));
        assert_int_equal(upload_case_learn(t, "m", "\"whole\"", size), OK);
        assert_int_equal(upload_case_blocks(t, "m", i), 17);
        assert_int_equal(t->c->uploads.count, 0);
        struct object *o = case_find(t, "m");
        if (i + 1 < ARRAY_COUNT(orders))
            cache_forget(t->c, o);
        object_drop(t->c, o);
    }
    /* The last chunk stands in a slot for a whole one. */
    case_reopen(t);
    assert_int_equal(upload_case_blocks(t, "m", ARRAY_COUNT(orders) - 1), 17);
    case_end(t);
}

static void a_part_alone_may_have_any_size(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    for (uint64_t bytes = 3 * BLOCK_BYTES - 1; bytes <= 3 * BLOCK_BYTES + 1; bytes++) {
        assert_true(part(t, "id", 1, bytes, 7));
        assert_true(complete(t, "id", 1, bytes));
        assert_int_equal(upload_case_blocks(t, "m", 7), (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
    }
    assert_false(part(t, "none", 0, BLOCK_BYTES, 7));
    assert_false(part(t, "none", 10001, BLOCK_BYTES, 7));
    assert_false(part(t, "none", 1, 0, 7));
    case_end(t);
}

static void parts_that_do_not_fit_end_the_keeping(void **state)
{
    static const struct { uint32_t number; uint64_t blocks; } wrong[][3] = {
        {{1, 5}, {2, 6}, {3, 5}},    /* longer than the first */
        {{1, 5}, {2, 4}, {3, 5}},    /* a shorter one that is not the last */
        {{3, 5}, {2, 4}, {1, 5}},
        {{2, 3}, {1, 5}, {3, 5}},    /* the one that seemed the last is not */
        {{3, 1}, {2, 2}, {1, 5}},    /* two of which each would be the last */
    };
    struct cache_case *t = open_case(1);

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(wrong); i++) {
        bool all = true;
        for (unsigned n = 0; n < 3; n++)
            all &= part(t, "id", wrong[i][n].number, wrong[i][n].blocks * BLOCK_BYTES, i);
        assert_false(all);
        assert_false(complete(t, "id", 3, 0));
        /* It stays known as given up, and holds nothing. */
        assert_int_equal(t->c->uploads.count, 1);
        assert_int_equal(atomic_load(&t->c->chunk_count), 0);
        assert_false(part(t, "id", 1, 5 * BLOCK_BYTES, i));
        abort_all(t, "id");
        settle_empty(t);
    }
    case_end(t);
}

static void the_list_must_name_what_was_seen(void **state)
{
    struct cache_case *t = open_case(1);
    struct okey k = case_key(t, "m");
    struct upload_listed listed[3] = {
        {1, span_of("p1")}, {2, span_of("p2")}, {3, span_of("p3")}};
    uint64_t size;

    (void)state;
    for (uint32_t n = 1; n <= 3; n++)
        assert_true(part(t, "id", n, BLOCK_BYTES, 1));
    struct upload_listed good[3] = {listed[0], listed[1], listed[2]};
    listed[1].etag = span_of("p9");
    assert_null(upload_complete_begin(t->c, &k, span_of("id"), listed, 3, &size));
    listed[1] = good[2];             /* 1, 3: part 2 is left out */
    assert_null(upload_complete_begin(t->c, &k, span_of("id"), listed, 2, &size));
    assert_null(upload_complete_begin(t->c, &k, span_of("id"), good, 0, &size));
    assert_null(upload_complete_begin(t->c, &k, span_of("other"), good, 3, &size));
    struct okey other = case_key(t, "n");
    assert_null(upload_complete_begin(t->c, &other, span_of("id"), good, 3, &size));
    /* Fewer than were uploaded is fine: the others are thrown away. */
    assert_true(complete(t, "id", 2, 2 * BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 1), 2);
    case_end(t);
}

static void a_complete_that_failed_may_be_asked_for_again(void **state)
{
    struct cache_case *t = open_case(1);
    struct upload_place place;
    uint64_t size;

    (void)state;
    assert_true(part(t, "id", 1, BLOCK_BYTES, 1));
    struct upload *u = begin_complete(t, "id", 1, &size);
    assert_non_null(u);
    assert_null(begin_complete(t, "id", 1, &size)); /* one at a time */
    assert_null(begin_part(t, "id", 1, BLOCK_BYTES, &place));
    upload_complete_end(t->c, u, false);
    assert_true(complete(t, "id", 1, BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 1), 1);
    case_end(t);
}

/* Sends some of a part and lets it fail. */
static void fail_part(struct cache_case *t, uint32_t number, uint64_t bytes, uint64_t sent)
{
    struct upload_stream s = {0};
    struct upload_place place;
    struct upload *u = begin_part(t, "id", number, bytes, &place);

    assert_non_null(u);
    upload_stream_begin(&s, t->c, &place, &t->machine, bytes);
    upload_case_send(&s, 999, place.at, sent);
    assert_true(upload_stream_over(&s));
    upload_part_end(t->c, u, number, span_of(""));
}

static void bytes_of_a_failed_part_are_nobodys(void **state)
{
    struct cache_case *t = open_case(1);
    struct upload_stream s = {0};
    struct upload_place place;

    (void)state;
    assert_true(part(t, "id", 1, 6 * BLOCK_BYTES, 1));
    fail_part(t, 2, 6 * BLOCK_BYTES, 6 * BLOCK_BYTES);
    assert_false(complete(t, "id", 2, 0));
    fail_part(t, 2, 6 * BLOCK_BYTES, 3 * BLOCK_BYTES + 9);
    /* Again, and most of it cannot be kept: what lacks is not taken from the try before. */
    struct upload *u = begin_part(t, "id", 2, 6 * BLOCK_BYTES, &place);
    assert_non_null(u);
    upload_stream_begin(&s, t->c, &place, &t->machine, 6 * BLOCK_BYTES);
    case_fail_next = -EIO;
    upload_case_send(&s, 1, place.at, 6 * BLOCK_BYTES);
    assert_true(upload_stream_over(&s));
    upload_part_end(t->c, u, 2, span_of("\"p2\""));
    assert_true(complete(t, "id", 2, 12 * BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 1), 11);
    case_end(t);
}

/* Some stores allow parts that are as short as only the last is elsewhere. */
static void short_parts_may_come_in_any_order(void **state)
{
    static const uint32_t orders[][4] = {{3, 1, 2, 4}, {2, 4, 3, 1}, {3, 4, 1, 2}, {2, 3, 4, 1}};
    struct cache_case *t = open_case(1);
    uint64_t seed = 900;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(orders); i++)
        for (uint64_t last = BLOCK_BYTES + 1; last <= 4 * BLOCK_BYTES;
             last += BLOCK_BYTES, seed++) {
            const uint64_t each = 4 * BLOCK_BYTES;
            for (unsigned n = 0; n < 4; n++) {
                uint32_t number = orders[i][n];
                assert_true(part_from(t, number, number == 4 ? last : each, seed,
                                      (number - 1) * each));
            }
            assert_true(complete(t, "id", 4, 3 * each + last));
            assert_true(upload_case_blocks(t, "m", seed) >= 8);
            forget(t);
        }
    settle_empty(t);
    case_end(t);
}

static void a_part_sent_again_replaces_the_first(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    assert_true(part(t, "id", 1, 5 * BLOCK_BYTES, 999));
    assert_true(part(t, "id", 2, 5 * BLOCK_BYTES, 1));
    assert_true(part(t, "id", 1, 5 * BLOCK_BYTES, 1));
    assert_true(complete(t, "id", 2, 10 * BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 1), 10);
    case_end(t);
}

static void a_part_sent_twice_at_a_time_ends_the_keeping(void **state)
{
    struct cache_case *t = open_case(1);
    struct upload_stream s = {0};
    struct upload_place place;

    (void)state;
    struct upload *u = begin_part(t, "id", 1, 5 * BLOCK_BYTES, &place);
    upload_stream_begin(&s, t->c, &place, &t->machine, 5 * BLOCK_BYTES);
    upload_case_send(&s, 1, place.at, 2 * BLOCK_BYTES);
    assert_null(begin_part(t, "id", 1, 5 * BLOCK_BYTES, &place));
    /* The first one goes on, for nothing. */
    upload_case_send(&s, 1, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES);
    assert_true(upload_stream_over(&s));
    upload_part_end(t->c, u, 1, span_of("\"p1\""));
    assert_false(complete(t, "id", 1, 0));
    abort_all(t, "id");
    settle_empty(t);
    case_end(t);
}

static void an_abort_under_running_parts_leaves_nothing(void **state)
{
    struct cache_case *t = open_case(1);
    struct upload_stream s = {0};
    struct upload_place place;
    uint64_t before = atomic_load(&t->c->index_bytes), tables = 0;

    (void)state;
    assert_true(part(t, "id", 1, 5 * BLOCK_BYTES, 1));
    struct upload *u = begin_part(t, "id", 2, 5 * BLOCK_BYTES, &place);
    upload_stream_begin(&s, t->c, &place, &t->machine, 5 * BLOCK_BYTES);
    upload_case_send(&s, 1, place.at, 2 * BLOCK_BYTES);
    abort_all(t, "id");
    abort_all(t, "id");
    upload_case_send(&s, 1, place.at, 3 * BLOCK_BYTES);
    assert_true(upload_stream_over(&s));
    upload_part_end(t->c, u, 2, span_of("\"p2\""));
    settle_empty(t);
    for (unsigned i = 0; i < CACHE_SHARDS; i++)
        tables += index_table_bytes(&t->c->object[i].table) +
            index_table_bytes(&t->c->chunk[i].table);
    tables += index_table_bytes(&t->c->header.table);
    assert_int_equal(atomic_load(&t->c->index_bytes), before + tables);
    case_end(t);
}

static void old_uploads_go_and_a_restart_drops_all(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    assert_true(part(t, "old", 1, BLOCK_BYTES, 1));
    assert_true(part(t, "young", 1, BLOCK_BYTES, 1));
    uploads_expire(t->c);
    assert_int_equal(t->c->uploads.count, 2);
    struct multipart *p = container_of(list_first(&t->c->uploads.list), struct multipart, node);
    p->since_ms = clock_ms() - LIFE_MS; /* wraps on a machine that is up for less */
    uploads_expire(t->c);
    assert_int_equal(t->c->uploads.count, 1);
    assert_false(complete(t, "old", 1, 0));
    case_reopen(t);
    assert_int_equal(t->c->uploads.count, 0);
    assert_false(complete(t, "young", 1, 0));
    settle_empty(t);
    case_end(t);
}

static void the_table_is_bounded(void **state)
{
    struct cache_case *t = open_case(1);
    unsigned kept = 0;

    (void)state;
    for (unsigned i = 0; i < UPLOADS_MAX + 10; i++) {
        char id[16];
        struct upload_place place;
        snprintf(id, sizeof id, "id%u", i);
        struct upload *u = begin_part(t, id, 1, BLOCK_BYTES, &place);
        kept += u != NULL;
        if (u)
            upload_part_end(t->c, u, 1, span_of("\"p1\""));
    }
    assert_int_equal(kept, UPLOADS_MAX);
    abort_all(t, "id5");
    assert_true(part(t, "late", 1, BLOCK_BYTES, 1));
    case_end(t);
}

/* Ten thousand such parts have no size: their sum began anew, below that of the first one. */
static void a_part_longer_than_any_store_takes_ends_no_server(void **state)
{
    static const uint64_t bytes[] = {((uint64_t)1 << 60) + 1, ((uint64_t)1 << 61) + 3, INT64_MAX,
                                     ((uint64_t)1 << 60) + MIB};
    struct cache_case *t = open_case(1);

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(bytes); i++) {
        struct upload_place place = {NULL, 0};
        struct upload *u = begin_part(t, "long", i + 1, bytes[i], &place);
        if (u) {
            struct upload_stream s = {0};
            upload_stream_begin(&s, t->c, &place, &t->machine, bytes[i]);
            assert_true(upload_stream_over(&s));
            upload_part_end(t->c, u, i + 1, span_of(""));
        }
        abort_all(t, "long");
    }
    case_end(t);
}

static void many_parts_grow_the_list(void **state)
{
    struct cache_case *t = open_case(1);
    struct upload_place place;

    (void)state;
    for (uint32_t n = 1; n <= 10000; n += 333) {
        struct upload *u = begin_part(t, "id", n, 5 * BLOCK_BYTES, &place);
        assert_non_null(u);
        assert_int_equal(place.at, (n - 1) * 5 * (uint64_t)BLOCK_BYTES);
        upload_part_end(t->c, u, n, span_of("x"));
    }
    abort_all(t, "id");
    settle_empty(t);
    case_end(t);
}

/* As they come from clients that send several at a time: the last one is shorter, and arrives
 * first. Where it begins a chunk of the whole, all of it is kept. */
static void a_last_part_that_comes_first_is_kept(void **state)
{
    static const struct { uint32_t blocks; uint64_t last; unsigned kept; } sizes[] = {
        {8, 1, 25}, {8, BLOCK_BYTES, 25}, {8, 3 * BLOCK_BYTES + 77, 28}, {8, 8 * BLOCK_BYTES, 32},
        {16, 8 * BLOCK_BYTES, 56}, {16, 9 * BLOCK_BYTES + 5, 58},
        {5, 4 * BLOCK_BYTES - 1, 15}, /* begins in the middle of a chunk: fetched when read */
        {12, 1, 36}, {12, 4 * BLOCK_BYTES, 36}, {12, 12 * BLOCK_BYTES - 1, 36},
        /* what stands in a chunk with the part before is left out */
        {12, 12 * BLOCK_BYTES, 48}, {20, 12 * BLOCK_BYTES, 68},
        {2, BLOCK_BYTES, 6}, {1, 5, 3}, /* parts as short as some stores allow */
    };
    static const uint32_t orders[][4] = {{4, 1, 2, 3}, {4, 3, 2, 1}, {4, 2, 3, 1}};
    struct cache_case *t = open_case(1);
    uint64_t seed = 50;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++)
        for (unsigned o = 0; o < ARRAY_COUNT(orders); o++, seed++) {
            uint64_t each = sizes[i].blocks * (uint64_t)BLOCK_BYTES;
            uint64_t size = 3 * each + sizes[i].last;
            for (unsigned n = 0; n < 4; n++) {
                uint32_t number = orders[o][n];
                assert_true(part_from(t, number, number == 4 ? sizes[i].last : each, seed,
                                      (number - 1) * each));
            }
            assert_true(complete(t, "id", 4, size));
            assert_int_equal(upload_case_blocks(t, "m", seed), sizes[i].kept);
            forget(t);
            settle_empty(t);
        }
    case_end(t);
}

/* Bytes of the tail are nobody's when its part is not the last of the list, failed, or was sent
 * again. */
static void a_tail_that_was_replaced_is_nobodys(void **state)
{
    struct cache_case *t = open_case(1);
    const uint64_t each = CHUNK_BYTES;

    (void)state;
    assert_true(part_from(t, 3, 5, 999, 2 * each));
    assert_true(part_from(t, 2, each, 1, each));
    assert_true(part_from(t, 1, each, 1, 0));
    assert_true(part_from(t, 3, 6, 1, 2 * each));
    assert_true(complete(t, "id", 3, 2 * each + 6));
    assert_int_equal(upload_case_blocks(t, "m", 1), 17);
    forget(t);

    /* it grows to a whole one, and a fourth comes */
    assert_true(part_from(t, 3, 5, 999, 2 * each));
    assert_true(part_from(t, 2, each, 2, each));
    assert_true(part_from(t, 1, each, 2, 0));
    assert_true(part_from(t, 3, each, 2, 2 * each));
    assert_true(part_from(t, 4, 7, 2, 3 * each));
    assert_true(complete(t, "id", 4, 3 * each + 7));
    assert_int_equal(upload_case_blocks(t, "m", 2), 25);
    forget(t);

    assert_true(part_from(t, 3, 5, 999, 2 * each)); /* the list leaves it out */
    assert_true(part_from(t, 2, each, 3, each));
    assert_true(part_from(t, 1, each, 3, 0));
    assert_true(complete(t, "id", 2, 2 * each));
    assert_int_equal(upload_case_blocks(t, "m", 3), 16);
    forget(t);

    fail_part(t, 3, 3 * BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 1);
    assert_true(part_from(t, 2, each, 4, each));
    assert_true(part_from(t, 1, each, 4, 0));
    assert_false(complete(t, "id", 3, 0));
    assert_true(part_from(t, 3, BLOCK_BYTES + 1, 4, 2 * each));
    assert_true(complete(t, "id", 3, 2 * each + BLOCK_BYTES + 1));
    assert_int_equal(upload_case_blocks(t, "m", 4), 18);
    forget(t);
    settle_empty(t);
    case_end(t);
}

/* The longer part begins, fails, and begins again while the last one is still on its way. */
static void a_tail_that_still_runs_stays_where_it_is(void **state)
{
    struct cache_case *t = open_case(1);
    struct upload_stream s = {0};
    struct upload_place place;
    const uint64_t each = 2 * (uint64_t)CHUNK_BYTES, last = 9 * BLOCK_BYTES + 1;

    (void)state;
    struct upload *u = begin_part(t, "id", 3, last, &place);
    upload_stream_begin(&s, t->c, &place, &t->machine, last);
    upload_case_send(&s, 1, 2 * each, 4 * BLOCK_BYTES);
    fail_part(t, 1, each, 3 * BLOCK_BYTES);
    assert_true(part_from(t, 1, each, 1, 0));
    upload_case_send(&s, 1, 2 * each + 4 * BLOCK_BYTES, last - 4 * BLOCK_BYTES);
    upload_stream_reap(&s);
    assert_true(part_from(t, 2, each, 1, each));
    assert_true(upload_stream_over(&s));
    upload_part_end(t->c, u, 3, span_of("\"p3\""));
    assert_true(complete(t, "id", 3, 2 * each + last));
    assert_int_equal(upload_case_blocks(t, "m", 1), 42);
    forget(t);
    settle_empty(t);
    case_end(t);
}

/* A part that is sent again in another size, by a client that thought better of it. */
static void parts_may_be_sent_again_in_another_size(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    assert_true(part_from(t, 1, 5 * BLOCK_BYTES, 999, 0));
    assert_true(part_from(t, 1, 8 * BLOCK_BYTES, 999, 0));
    assert_true(part_from(t, 1, 6 * BLOCK_BYTES + 1, 999, 0));
    assert_true(part_from(t, 1, 6 * BLOCK_BYTES, 1, 0));
    assert_true(part_from(t, 2, 6 * BLOCK_BYTES, 999, 6 * BLOCK_BYTES));
    assert_true(part_from(t, 2, 3 * BLOCK_BYTES, 1, 6 * BLOCK_BYTES));
    assert_true(complete(t, "id", 2, 9 * BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 1), 9);
    forget(t);
    assert_true(part_from(t, 1, 5 * BLOCK_BYTES, 999, 0)); /* all of them, the first one first */
    assert_true(part_from(t, 2, 5 * BLOCK_BYTES, 999, 5 * BLOCK_BYTES));
    assert_true(part_from(t, 1, 8 * BLOCK_BYTES, 2, 0));
    assert_true(part_from(t, 2, 8 * BLOCK_BYTES, 2, 8 * BLOCK_BYTES));
    assert_true(complete(t, "id", 2, 16 * BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 2), 16);
    forget(t);
    settle_empty(t);
    /* No place is a whole number of blocks away from the next. */
    assert_true(part_from(t, 1, 5 * BLOCK_BYTES + 1, 3, 0));
    assert_false(part_from(t, 2, 5 * BLOCK_BYTES, 3, 5 * BLOCK_BYTES + 1));
    abort_all(t, "id");
    assert_true(part_from(t, 2, 5 * BLOCK_BYTES + 1, 3, 5 * BLOCK_BYTES + 1));
    assert_false(part_from(t, 1, 5 * BLOCK_BYTES + 1, 3, 0));
    abort_all(t, "id");
    settle_empty(t);
    case_end(t);
}

/* Uploads in random orders with failures and repetitions: what is kept is always right. */
static void random_orders_never_keep_a_wrong_byte(void **state)
{
    struct cache_case *t = open_case(1);
    uint64_t dice = 7;
    unsigned kept = 0;

    (void)state;
    for (unsigned round = 0; round < 60; round++) {
        uint64_t each = (round % 3 ? 8 : 5) * (uint64_t)BLOCK_BYTES;
        uint64_t last = round % 5 ? 1 + round * 100003 % each : each, size = 3 * each + last;
        unsigned left = 15;          /* bit by part */
        while (left) {
            dice = dice * 6364136223846793005 + 1442695040888963407;
            uint32_t i = (uint32_t)(dice >> 33) % 4;
            uint64_t bytes = i == 3 ? last : each;
            struct upload_place place;
            if (dice >> 60 == 0) {
                struct upload *u = begin_part(t, "id", i + 1, bytes, &place);
                assert_non_null(u);
                upload_case_stream(t, &place, 999, place.at, bytes);
                upload_part_end(t->c, u, i + 1, span_of(""));
                left |= 1U << i;
            } else if (left >> i & 1 || dice >> 60 == 1) {
                assert_true(part_from(t, i + 1, bytes, round, i * each));
                left &= ~(1U << i);
            }
        }
        assert_true(complete(t, "id", 4, size));
        unsigned blocks = upload_case_blocks(t, "m", round);
        assert_true(blocks >= 3 * each / BLOCK_BYTES);
        kept += blocks == (size + BLOCK_BYTES - 1) / BLOCK_BYTES;
        forget(t);
        settle_empty(t);
    }
    /* those of 8 blocks all, those of 5 when the last was not first */
    assert_true(kept >= 40);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_in_any_order_become_one_object),
        cmocka_unit_test(a_part_alone_may_have_any_size),
        cmocka_unit_test(parts_that_do_not_fit_end_the_keeping),
        cmocka_unit_test(the_list_must_name_what_was_seen),
        cmocka_unit_test(a_last_part_that_comes_first_is_kept),
        cmocka_unit_test(short_parts_may_come_in_any_order),
        cmocka_unit_test(a_tail_that_was_replaced_is_nobodys),
        cmocka_unit_test(a_tail_that_still_runs_stays_where_it_is),
        cmocka_unit_test(parts_may_be_sent_again_in_another_size),
        cmocka_unit_test(random_orders_never_keep_a_wrong_byte),
        cmocka_unit_test(a_complete_that_failed_may_be_asked_for_again),
        cmocka_unit_test(bytes_of_a_failed_part_are_nobodys),
        cmocka_unit_test(a_part_sent_again_replaces_the_first),
        cmocka_unit_test(a_part_sent_twice_at_a_time_ends_the_keeping),
        cmocka_unit_test(an_abort_under_running_parts_leaves_nothing),
        cmocka_unit_test(old_uploads_go_and_a_restart_drops_all),
        cmocka_unit_test(the_table_is_bounded),
        cmocka_unit_test(many_parts_grow_the_list),
        cmocka_unit_test(a_part_longer_than_any_store_takes_ends_no_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
