/* Bodies for tests of kept uploads: made from a seed, sent in odd pieces, compared on disk. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_UPLOAD_CASE_H
#define HEADPOND_UPLOAD_CASE_H

#include "tests/lib/cache_case.h"

enum { UPLOAD_PIECE = 70001 };

static unused_ok void upload_case_bytes(uint64_t seed, uint64_t at, uint8_t *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint64_t x = (seed + (at + i) / 8) * 0x9E3779B97F4A7C15;
        out[i] = (uint8_t)((x ^ x >> 29) >> (at + i) % 8 * 8);
    }
}

static unused_ok void upload_case_send(struct upload_stream *s, uint64_t seed, uint64_t from,
                                       uint64_t bytes)
{
    static uint8_t piece[UPLOAD_PIECE];

    for (uint64_t at = 0; at < bytes; at += UPLOAD_PIECE) {
        size_t n = (size_t)min_u64(UPLOAD_PIECE, bytes - at);
        upload_case_bytes(seed, from + at, piece, n);
        upload_stream_reap(s);
        upload_stream_add(s, piece, n);
    }
}

/* from: of the body's first byte in the whole that it becomes. */
static unused_ok void upload_case_stream(struct cache_case *t, const struct upload_place *place,
                                         uint64_t seed, uint64_t from, uint64_t bytes)
{
    struct upload_stream s = {0};

    upload_stream_begin(&s, t->c, place, &t->machine, bytes);
    upload_case_send(&s, seed, from, bytes);
    assert_true(upload_stream_over(&s));
}

static unused_ok void upload_case_write(struct cache_case *t, struct cache_write *w,
                                        const char *key)
{
    struct okey k = case_key(t, key);

    cache_write_begin(t->c, w, &k, &t->machine);
    AWAIT((case_deliver(t), !w->busy));
}

static unused_ok void upload_case_publish(struct cache_case *t, struct upload *u,
                                          struct cache_write *w, const char *key, const char *etag,
                                          uint64_t size)
{
    struct okey k = case_key(t, key);
    unsigned turns = 0;

    while (!upload_publish(t->c, u, w, &k, span_of(etag), size))
        turns++;
    assert_true(turns <= size / CHUNK_BYTES / 64 + 1);
}

static unused_ok enum err upload_case_learn(struct cache_case *t, const char *key, const char *etag,
                                            uint64_t size)
{
    struct okey k = case_key(t, key);
    struct object_facts f = {.size = size, .last_modified_s = 1600000000, .asked_ms = t->asked_ms,
                             .etag = span_of(etag), .headers = span_of("a: b\r\n"),
                             .epoch = cache_epoch(t->c, &k)};
    struct object *o;
    enum err err = cache_learn(t->c, &k, &f, &o);

    if (err == OK)
        object_drop(t->c, o);
    return err;
}

/* Blocks of the key that are on disk and right; wrong ones fail the test. */
static unused_ok unsigned upload_case_blocks(struct cache_case *t, const char *key, uint64_t seed)
{
    static uint8_t want[BLOCK_BYTES];
    struct object *o = case_find(t, key);
    unsigned right = 0;

    if (!o)
        return 0;
    for (uint64_t at = 0; at < o->size; at += BLOCK_BYTES) {
        struct chunk *k = chunk_find(t->c, o->data_id, at / CHUNK_BYTES);
        unsigned block = (unsigned)(at % CHUNK_BYTES / BLOCK_BYTES);
        struct buffer buffer = {.mem = t->block, .cap = BLOCK_BYTES};
        if (k && atomic_load(&k->present) >> block & 1) {
            uint32_t len = (uint32_t)min_u64(BLOCK_BYTES, o->size - at);
            struct transfer *read =
                chunk_read(&t->machine, k, block * BLOCK_BYTES, len, &buffer);
            case_await(t, read);
            assert_int_equal(chunk_read_done(read), OK);
            upload_case_bytes(seed, at, want, len);
            assert_memory_equal(t->block, want, len);
            right++;
        }
        if (k)
            chunk_drop(t->c, k);
    }
    object_drop(t->c, o);
    return right;
}

static unused_ok bool upload_case_doubtful(struct cache_case *t, const char *key)
{
    struct object *o = case_find(t, key);

    assert_non_null(o);
    bool doubtful = atomic_load(&o->flags) & OBJECT_DOUBT;
    object_drop(t->c, o);
    return doubtful;
}

#endif
