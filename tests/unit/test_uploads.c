/* Multipart uploads that are kept: which parts fit together, what makes an upload be given up, and
 * that bytes of a part that failed or was sent again are never anybody's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"
#include "tests/lib/upload_case.h"

#include "server/cache/uploads.c"

static struct upload *begin_part(struct cache_case *t, const char *id, uint32_t number,
                                 uint64_t bytes, uint64_t *at)
{
    struct okey k = case_key(t, "m");

    return upload_part_begin(t->c, &k, span_of(id), number, bytes, at);
}

/* A part that upstream took; its ETag says its number. false: it is not kept. */
static bool part(struct cache_case *t, const char *id, uint32_t number, uint64_t bytes,
                 uint64_t seed)
{
    uint64_t at;
    char etag[16];
    struct upload *u = begin_part(t, id, number, bytes, &at);

    if (!u)
        return false;
    snprintf(etag, sizeof etag, "\"p%u\"", number);
    upload_case_stream(t, u, seed, at, bytes);
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

static void a_part_alone_may_have_any_size_of_whole_blocks(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    assert_true(part(t, "id", 1, 3 * BLOCK_BYTES, 7));
    assert_true(complete(t, "id", 1, 3 * BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 7), 3);
    assert_false(part(t, "odd", 1, 3 * BLOCK_BYTES + 1, 7));
    assert_int_equal(t->c->uploads.count, 0);
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
        {{2, 3}, {1, 5}, {3, 5}},    /* the last one was seen first */
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
    uint64_t size, at;

    (void)state;
    assert_true(part(t, "id", 1, BLOCK_BYTES, 1));
    struct upload *u = begin_complete(t, "id", 1, &size);
    assert_non_null(u);
    assert_null(begin_complete(t, "id", 1, &size)); /* one at a time */
    assert_null(begin_part(t, "id", 1, BLOCK_BYTES, &at));
    upload_complete_end(t->c, u, false);
    assert_true(complete(t, "id", 1, BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 1), 1);
    case_end(t);
}

/* Sends some of a part and lets it fail. */
static void fail_part(struct cache_case *t, uint32_t number, uint64_t bytes, uint64_t sent)
{
    struct upload_stream s = {0};
    uint64_t at;
    struct upload *u = begin_part(t, "id", number, bytes, &at);

    assert_non_null(u);
    upload_stream_begin(&s, t->c, u, &t->machine, at, bytes);
    upload_case_send(&s, 999, at, sent);
    assert_true(upload_stream_over(&s));
    upload_part_end(t->c, u, number, span_of(""));
}

static void bytes_of_a_failed_part_are_nobodys(void **state)
{
    struct cache_case *t = open_case(1);
    struct upload_stream s = {0};
    uint64_t at;

    (void)state;
    assert_true(part(t, "id", 1, 6 * BLOCK_BYTES, 1));
    fail_part(t, 2, 6 * BLOCK_BYTES, 6 * BLOCK_BYTES);
    assert_false(complete(t, "id", 2, 0));
    fail_part(t, 2, 6 * BLOCK_BYTES, 3 * BLOCK_BYTES + 9);
    /* Again, and most of it cannot be kept: what lacks is not taken from the try before. */
    struct upload *u = begin_part(t, "id", 2, 6 * BLOCK_BYTES, &at);
    assert_non_null(u);
    upload_stream_begin(&s, t->c, u, &t->machine, at, 6 * BLOCK_BYTES);
    case_fail_next = -EIO;
    upload_case_send(&s, 1, at, 6 * BLOCK_BYTES);
    assert_true(upload_stream_over(&s));
    upload_part_end(t->c, u, 2, span_of("\"p2\""));
    assert_true(complete(t, "id", 2, 12 * BLOCK_BYTES));
    assert_int_equal(upload_case_blocks(t, "m", 1), 11);
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
    uint64_t at;

    (void)state;
    struct upload *u = begin_part(t, "id", 1, 5 * BLOCK_BYTES, &at);
    upload_stream_begin(&s, t->c, u, &t->machine, at, 5 * BLOCK_BYTES);
    upload_case_send(&s, 1, at, 2 * BLOCK_BYTES);
    assert_null(begin_part(t, "id", 1, 5 * BLOCK_BYTES, &at));
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
    uint64_t at, before = atomic_load(&t->c->index_bytes), tables = 0;

    (void)state;
    assert_true(part(t, "id", 1, 5 * BLOCK_BYTES, 1));
    struct upload *u = begin_part(t, "id", 2, 5 * BLOCK_BYTES, &at);
    upload_stream_begin(&s, t->c, u, &t->machine, at, 5 * BLOCK_BYTES);
    upload_case_send(&s, 1, at, 2 * BLOCK_BYTES);
    abort_all(t, "id");
    abort_all(t, "id");
    upload_case_send(&s, 1, at, 3 * BLOCK_BYTES);
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
        uint64_t at;
        snprintf(id, sizeof id, "id%u", i);
        struct upload *u = begin_part(t, id, 1, BLOCK_BYTES, &at);
        kept += u != NULL;
        if (u)
            upload_part_end(t->c, u, 1, span_of("\"p1\""));
    }
    assert_int_equal(kept, UPLOADS_MAX);
    abort_all(t, "id5");
    assert_true(part(t, "late", 1, BLOCK_BYTES, 1));
    case_end(t);
}

static void many_parts_grow_the_list(void **state)
{
    struct cache_case *t = open_case(1);
    uint64_t at;

    (void)state;
    for (uint32_t n = 1; n <= 10000; n += 333) {
        struct upload *u = begin_part(t, "id", n, 5 * BLOCK_BYTES, &at);
        assert_non_null(u);
        assert_int_equal(at, (n - 1) * 5 * (uint64_t)BLOCK_BYTES);
        upload_part_end(t->c, u, n, span_of("x"));
    }
    abort_all(t, "id");
    settle_empty(t);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_in_any_order_become_one_object),
        cmocka_unit_test(a_part_alone_may_have_any_size_of_whole_blocks),
        cmocka_unit_test(parts_that_do_not_fit_end_the_keeping),
        cmocka_unit_test(the_list_must_name_what_was_seen),
        cmocka_unit_test(a_complete_that_failed_may_be_asked_for_again),
        cmocka_unit_test(bytes_of_a_failed_part_are_nobodys),
        cmocka_unit_test(a_part_sent_again_replaces_the_first),
        cmocka_unit_test(a_part_sent_twice_at_a_time_ends_the_keeping),
        cmocka_unit_test(an_abort_under_running_parts_leaves_nothing),
        cmocka_unit_test(old_uploads_go_and_a_restart_drops_all),
        cmocka_unit_test(the_table_is_bounded),
        cmocka_unit_test(many_parts_grow_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
