/* Uploads that are kept: from the stream to slots nobody knows, to a generation in doubt, to
 * hits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"
#include "tests/lib/upload_case.h"

#include "server/cache/upload.c"

/* PutObject from begin to end. */
static void put(struct cache_case *t, const char *key, const char *etag, uint64_t seed,
                uint64_t size)
{
    struct okey k = case_key(t, key);
    struct cache_write w;
    struct upload_place place;
    struct upload *u = upload_make(t->c, &k, size, &place);

    upload_case_write(t, &w, key);
    if (u) {
        upload_case_stream(t, &place, seed, 0, size);
        upload_case_publish(t, u, &w, key, etag, size);
    }
    cache_write_end(t->c, &w, false);
    upload_drop(t->c, u);
}

static unsigned blocks_of(uint64_t size)
{
    return (unsigned)((size + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

static void what_was_put_is_a_hit_once_upstream_was_asked(void **state)
{
    static const uint64_t sizes[] = {
        1, 4095, 4096, 131071, 131072, 131073, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES - 7,
        CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 5 * BLOCK_BYTES + 77,
    };
    struct cache_case *t = open_case(2);

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        put(t, key, i % 2 ? "\"e\"" : "e", i, sizes[i]);
        assert_true(upload_case_doubtful(t, key));
        assert_int_equal(upload_case_learn(t, key, "\"e\"", sizes[i]), OK);
        assert_false(upload_case_doubtful(t, key));
        assert_int_equal(upload_case_blocks(t, key, i), blocks_of(sizes[i]));
    }
    case_reopen(t);
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        assert_false(upload_case_doubtful(t, key));
        assert_int_equal(upload_case_blocks(t, key, i), blocks_of(sizes[i]));
    }
    case_end(t);
}

static bool reads_a_half(struct cache_case *t, const char *key)
{
    struct object *o = case_find(t, key);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);

    assert_non_null(k);
    bool reads = chunk_reads_half(t->c, k, HALF_BYTES);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    return reads;
}

/* Checksums begin with the names of chunks, which a publication changes. */
static void halves_are_not_judged_by_the_names_of_the_upload(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    put(t, "k", "\"e\"", 1, CHUNK_BYTES);
    assert_int_equal(upload_case_learn(t, "k", "\"e\"", CHUNK_BYTES), OK);
    assert_false(reads_a_half(t, "k"));
    assert_int_equal(upload_case_blocks(t, "k", 1), BLOCKS_PER_CHUNK);
    assert_true(reads_a_half(t, "k"));
    case_end(t);
}

static void what_is_pending_stays_so_over_a_restart(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    put(t, "a", "\"1\"", 1, 3000000);
    case_reopen(t);
    assert_true(upload_case_doubtful(t, "a"));
    assert_int_equal(upload_case_blocks(t, "a", 1), 3);
    assert_int_equal(upload_case_learn(t, "a", "\"1\"", 3000000), OK);
    assert_false(upload_case_doubtful(t, "a"));
    assert_int_equal(upload_case_blocks(t, "a", 1), 3);
    case_end(t);
}

/* Who asked behind it, and was overtaken by the next write, was given the pending entry: no header
 * field of the object's, and an age of decades. */
static void a_pending_upload_is_not_served_without_its_fields(void **state)
{
    struct cache_case *t = open_case(1);
    struct okey k = case_key(t, "a");
    struct object_facts f = {.size = 3000000, .last_modified_s = 1600000000,
                             .asked_ms = t->asked_ms, .etag = span_of("\"1\""),
                             .headers = span_of("a: b\r\n")};
    struct cache_write next;
    struct object *o;

    (void)state;
    put(t, "a", "\"1\"", 1, 3000000);
    f.epoch = cache_epoch(t->c, &k);
    upload_case_write(t, &next, "a");
    assert_int_equal(cache_learn(t->c, &k, &f, &o), ERR_CHANGED);
    cache_write_end(t->c, &next, false);
    assert_int_equal(cache_learn(t->c, &k, &f, &o), ERR_CHANGED);
    assert_true(upload_case_doubtful(t, "a"));
    assert_int_equal(upload_case_learn(t, "a", "\"1\"", 3000000), OK);
    assert_int_equal(upload_case_blocks(t, "a", 1), 3);
    case_end(t);
}

static void another_etag_or_size_drops_it(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    put(t, "a", "\"1\"", 1, 3000000);
    put(t, "b", "\"1\"", 1, 3000000);
    assert_int_equal(upload_case_learn(t, "a", "\"2\"", 3000000), OK);
    assert_int_equal(upload_case_learn(t, "b", "\"1\"", 2999999), OK);
    assert_int_equal(upload_case_blocks(t, "a", 1), 0);
    assert_int_equal(upload_case_blocks(t, "b", 1), 0);
    case_settle(t);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    case_end(t);
}

static void it_replaces_what_was_there(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    put(t, "a", "\"1\"", 1, 20000000);
    assert_int_equal(upload_case_learn(t, "a", "\"1\"", 20000000), OK);
    put(t, "a", "\"2\"", 2, 3000000);
    assert_int_equal(upload_case_learn(t, "a", "\"2\"", 3000000), OK);
    assert_int_equal(upload_case_blocks(t, "a", 2), 3);
    case_settle(t);
    assert_int_equal(atomic_load(&t->c->chunk_count), 1);
    case_end(t);
}

static void the_same_again_keeps_what_is_there_and_adds_what_lacks(void **state)
{
    struct cache_case *t = open_case(1);
    uint64_t size = 3 * (uint64_t)CHUNK_BYTES;

    (void)state;
    put(t, "a", "\"1\"", 1, size);
    assert_int_equal(upload_case_learn(t, "a", "\"1\"", size), OK);
    struct object *o = case_find(t, "a");
    struct chunk *k = chunk_find(t->c, o->data_id, 1);
    struct index_shard *stripe = index_shard(t->c->stripe, o->id);
    pthread_mutex_lock(&stripe->lock);
    assert_true(chunk_remove(t->c, k, true, EVICT_SPACE));
    pthread_mutex_unlock(&stripe->lock);
    chunk_drop(t->c, k);
    assert_int_equal(upload_case_blocks(t, "a", 1), 16);
    put(t, "a", "\"1\"", 1, size);
    struct object *again = case_find(t, "a");
    assert_ptr_equal(o, again);
    object_drop(t->c, again);
    object_drop(t->c, o);
    assert_int_equal(upload_case_blocks(t, "a", 1), 24);
    case_settle(t);
    assert_int_equal(atomic_load(&t->c->chunk_count), 3);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), size);
    case_end(t);
}

static void two_writes_at_a_time_publish_nothing(void **state)
{
    struct cache_case *t = open_case(1);
    struct okey k = case_key(t, "a");
    struct cache_write first, second;

    (void)state;
    for (unsigned later_ends = 0; later_ends < 2; later_ends++) {
        struct upload_place place;
        struct upload *u = upload_make(t->c, &k, 3000000, &place);
        assert_non_null(u);
        upload_case_write(t, &first, "a");
        upload_case_stream(t, &place, 1, 0, 3000000);
        upload_case_write(t, &second, "a");
        if (later_ends)
            cache_write_end(t->c, &second, false);
        upload_case_publish(t, u, &first, "a", "\"1\"", 3000000);
        cache_write_end(t->c, &first, false);
        if (!later_ends)
            cache_write_end(t->c, &second, false);
        upload_drop(t->c, u);
        assert_null(case_find(t, "a"));
    }
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    case_end(t);
}

static void what_ends_early_leaves_nothing(void **state)
{
    struct cache_case *t = open_case(1);
    struct okey k = case_key(t, "a");
    uint64_t bytes = atomic_load(&t->c->index_bytes), tables = 0;
    struct upload_place place;

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        struct upload_stream s = {0};
        struct upload *u = upload_make(t->c, &k, 20000000, &place);
        assert_non_null(u);
        upload_stream_begin(&s, t->c, &place, &t->machine, 20000000);
        upload_case_send(&s, 1, 0, round == 0 ? 0 : round == 1 ? 12345678 : 5);
        assert_true(upload_stream_over(&s));
        assert_true(upload_stream_over(&s));
        upload_drop(t->c, u);
        assert_int_equal(atomic_load(&t->c->chunk_count), 0);
        assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    }
    for (unsigned i = 0; i < CACHE_SHARDS; i++)
        tables += index_table_bytes(&t->c->object[i].table) +
            index_table_bytes(&t->c->chunk[i].table);
    tables += index_table_bytes(&t->c->header.table);
    assert_int_equal(atomic_load(&t->c->index_bytes), bytes + tables);
    /* One that is not kept costs nothing. */
    struct upload_stream none = {0};
    upload_stream_add(&none, "x", 1);
    assert_true(upload_stream_over(&none));
    upload_drop(t->c, NULL);
    assert_null(upload_make(t->c, &k, 0, &place));
    case_end(t);
}

static void what_there_is_no_room_for_is_left_out(void **state)
{
    struct cache_case *t = open_case(1);
    struct okey k = case_key(t, "a");
    uint64_t size = 12 * (uint64_t)BLOCK_BYTES;
    struct upload_stream s = {0};
    struct buffer *held[64];
    unsigned count = 0;
    struct cache_write w;

    struct upload_place place;

    (void)state;
    struct upload *u = upload_make(t->c, &k, size, &place);
    assert_non_null(u);
    upload_case_write(t, &w, "a");
    upload_stream_begin(&s, t->c, &place, &t->machine, size);
    upload_case_send(&s, 1, 0, 3 * BLOCK_BYTES);
    upload_stream_reap(&s);
    while (count < 64 && (held[count] = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND)))
        count++;
    upload_case_send(&s, 1, 3 * BLOCK_BYTES, 2 * BLOCK_BYTES);
    while (count > 0)
        pool_give(t->c, held[--count]);
    upload_case_send(&s, 1, 5 * BLOCK_BYTES, 2 * BLOCK_BYTES - 100);
    case_fail_next = -EIO;           /* and a disk that fails once */
    upload_case_send(&s, 1, 7 * BLOCK_BYTES - 100, 5 * BLOCK_BYTES + 100);
    assert_true(upload_stream_over(&s));
    upload_case_publish(t, u, &w, "a", "\"1\"", size);
    cache_write_end(t->c, &w, false);
    upload_drop(t->c, u);
    assert_int_equal(upload_case_blocks(t, "a", 1), 12 - 2 - 1);
    case_end(t);
}

static void a_crowd_of_chunks_is_published_in_several_turns(void **state)
{
    struct cache_case *t = open_case(1);
    struct okey k = case_key(t, "a");
    uint64_t size = 200 * (uint64_t)CHUNK_BYTES;
    struct upload_stream s = {0};
    struct cache_write w;
    unsigned turns = 1;

    struct upload_place place;

    (void)state;
    struct upload *u = upload_make(t->c, &k, size, &place);
    assert_non_null(u);
    upload_case_write(t, &w, "a");
    place.at = 190 * (uint64_t)CHUNK_BYTES;
    upload_stream_begin(&s, t->c, &place, &t->machine, 8 * BLOCK_BYTES);
    upload_case_send(&s, 1, 190 * (uint64_t)CHUNK_BYTES, 8 * BLOCK_BYTES);
    assert_true(upload_stream_over(&s));
    while (!upload_publish(t->c, u, &w, &k, span_of("\"1\""), size))
        turns++;
    assert_int_equal(turns, 200 / MOVES_AT_ONCE + 1);
    cache_write_end(t->c, &w, false);
    upload_drop(t->c, u);
    assert_int_equal(upload_case_blocks(t, "a", 1), 8);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_a_hit_once_upstream_was_asked),
        cmocka_unit_test(halves_are_not_judged_by_the_names_of_the_upload),
        cmocka_unit_test(what_is_pending_stays_so_over_a_restart),
        cmocka_unit_test(a_pending_upload_is_not_served_without_its_fields),
        cmocka_unit_test(another_etag_or_size_drops_it),
        cmocka_unit_test(it_replaces_what_was_there),
        cmocka_unit_test(the_same_again_keeps_what_is_there_and_adds_what_lacks),
        cmocka_unit_test(two_writes_at_a_time_publish_nothing),
        cmocka_unit_test(what_ends_early_leaves_nothing),
        cmocka_unit_test(what_there_is_no_room_for_is_left_out),
        cmocka_unit_test(a_crowd_of_chunks_is_published_in_several_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
