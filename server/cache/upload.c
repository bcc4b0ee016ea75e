/* Bodies of uploads on their way to the slots of a hidden object, and the moment in which that
 * becomes the key's new generation.
 *
 * Invariants:
 *  1. No key leads to a hidden object, and no record names its chunks: a restart, a crash, and a
 *     drop leave nothing of it.
 *  2. A block is present when it was written whole, from the bytes that went to upstream.
 *  3. Publishing renames: slots stay where they are, checksums are carried over by arithmetic.
 *  4. What is published is doubtful: only upstream's word for the same ETag and size makes it a
 *     hit.
 *
 * Life: upload_make() to upload_drop(); its streams end before it does.
 * Failure: a block that cannot be kept, or not soon, is left out; never the upload's trouble.
 * Limits: bytes are copied once, from the relay's buffers into blocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

enum {
    MOVES_AT_ONCE = 64,
    ETAG_BYTES_MAX = 256,
    QUEUED_US_MAX = 250000,          /* once the body's outcome is waited for */
};

/* ---- the hidden object ---- */
bool upload_open(struct cache *c, struct upload *u, const struct okey *k, uint64_t size)
{
    u->object = c->dir_count > 0 && size > 0 ? index_hide(c, k, size) : NULL;
    return u->object != NULL;
}

void upload_close_tail(struct cache *c, struct upload *u)
{
    if (!u->tail)
        return;
    index_forget(c, u->tail->id, NULL, EVICT_CHANGED);
    object_drop(c, u->tail);
    u->tail = NULL;
}

void upload_close(struct cache *c, struct upload *u)
{
    upload_close_tail(c, u);
    index_forget(c, u->object->id, NULL, EVICT_CHANGED);
    object_drop(c, u->object);
    u->object = NULL;
}

struct upload *upload_make(struct cache *c, const struct okey *k, uint64_t size,
                           struct upload_place *place)
{
    if (!index_charge(c, sizeof(struct upload)))
        return NULL;
    struct upload *u = mem_take(sizeof *u);
    if (u && upload_open(c, u, k, size)) {
        *place = (struct upload_place){u->object, 0};
        return u;
    }
    mem_give(u);
    index_uncharge(c, sizeof *u);
    return NULL;
}

void upload_drop(struct cache *c, struct upload *u)
{
    if (!u)
        return;
    must(!u->listed);                /* that one belongs to the table */
    upload_close(c, u);
    mem_give(u);
    index_uncharge(c, sizeof *u);
}

/* ---- one body ---- */
void upload_stream_begin(struct upload_stream *s, struct cache *c, const struct upload_place *place,
                         struct machine *m, uint64_t bytes)
{
    must(place->at % BLOCK_BYTES == 0 && bytes <= place->object->size - place->at);
    *s = (struct upload_stream){.cache = c, .m = m, .object = place->object, .at = place->at,
                                .end = place->at + bytes};
}

static void give_back(struct upload_stream *s, struct upload_write *w)
{
    pool_share_end(s->cache, w->buffer);
    pool_give(s->cache, w->buffer);
    chunk_drop(s->cache, w->chunk);
    w->buffer = NULL;
    w->chunk = NULL;
    w->used = false;
}

void upload_stream_reap(struct upload_stream *s)
{
    for (unsigned i = 0; i < UPLOAD_WRITES; i++) {
        struct upload_write *w = &s->write[i];
        if (!w->used || !transfer_ended(w->transfer))
            continue;
        if (chunk_write_done(w->transfer) == OK)
            chunk_wrote(s->cache, w->chunk, w->block, &w->sums);
        give_back(s, w);
    }
}

static void count_behind(const struct upload_stream *s, uint64_t bytes)
{
    metric_add(s->m->core->metrics, METRIC_CACHE_REFUSED_BYTES_TOTAL, REFUSE_BEHIND, bytes);
}

/* A place, a slot and a buffer for the block that begins at s->at; without one of them it is
 * skipped. */
static void begin_block(struct upload_stream *s)
{
    struct upload_write *w = s->write;
    uint64_t number = s->at / CHUNK_BYTES;
    /* A chunk that comes whole is asked for once, by its first block. */
    struct chunk_asked asked = {
        .bytes = s->at % CHUNK_BYTES == 0 ? object_chunk_bytes(s->object, number) : 0,
        .keep = true,                /* a checkpoint is read back, or leaves before anything else */
        .upload = true,
    };
    uint64_t bytes = min_u64(BLOCK_BYTES, s->end - s->at);

    while (w < s->write + UPLOAD_WRITES && w->used)
        w++;
    if (w == s->write + UPLOAD_WRITES)
        return;
    enum err err = chunk_admit(s->cache, s->object, number, asked, &w->chunk);
    if (err == ERR_FULL)
        atomic_fetch_add(&s->cache->refused_bytes, bytes);
    if (err == ERR_BEHIND)
        count_behind(s, bytes);
    if (err != OK)
        return;
    w->block = (uint8_t)(s->at % CHUNK_BYTES / BLOCK_BYTES);
    w->buffer = pool_take(s->cache, chunk_block_bytes(w->chunk->bytes, w->block), BUFFER_PREFETCH);
    if (w->buffer) {
        s->next = w;
        return;
    }
    chunk_drop(s->cache, w->chunk);
    w->chunk = NULL;
}

/* The block in hand is whole: it is written. */
static void finish_block(struct upload_stream *s)
{
    struct upload_write *w = s->next;
    uint32_t len = (uint32_t)((s->at - 1) % BLOCK_BYTES) + 1;
    uint32_t room = chunk_block_bytes(w->chunk->bytes, w->block);

    s->next = NULL;
    memset(w->buffer->mem + len, 0, room - len); /* of a last part, whose chunk has room for more */
    w->sums = (struct block_sums){0};
    chunk_crc(s->object->data_id, w->chunk->number, w->block, w->buffer->mem, len, &w->sums);
    w->transfer = chunk_write(s->m, w->chunk, w->block, w->buffer, false);
    w->used = w->transfer != NULL;
    if (!w->used)
        give_back(s, w);
}

void upload_stream_add(struct upload_stream *s, const void *mem, size_t len)
{
    const uint8_t *from = mem;

    if (!s->cache)
        return;
    must(len <= s->end - s->at);
    while (len > 0) {
        uint32_t in_block = (uint32_t)(s->at % BLOCK_BYTES);
        uint32_t n = (uint32_t)min_u64(len, BLOCK_BYTES - in_block);
        if (in_block == 0)
            begin_block(s);
        if (s->next)
            memcpy(s->next->buffer->mem + in_block, from, n);
        s->at += n;
        from += n;
        len -= n;
        if (s->next && (s->at % BLOCK_BYTES == 0 || s->at == s->end))
            finish_block(s);
    }
}

/* The client hears nothing before its last write has ended, and what stands before that in the
 * disk's queue are other people's reads: of half of cache.memory. So no write waits there for long;
 * those that the disk has already have its deadline. */
static void wait_no_longer(struct upload_stream *s)
{
    uint64_t now_us = s->m->core->now_us, left_us = UINT64_MAX;

    for (unsigned i = 0; i < UPLOAD_WRITES; i++) {
        struct transfer *t = s->write[i].transfer;
        if (!s->write[i].used || !t->queued)
            continue;
        uint64_t waits_us = now_us - min_u64(t->made_us, now_us);
        if (waits_us < QUEUED_US_MAX) {
            left_us = min_u64(left_us, QUEUED_US_MAX - waits_us);
            continue;
        }
        transfer_take_back(t);
        count_behind(s, t->len);
    }
    if (left_us < UINT64_MAX)
        timer_set(&s->timer, s->m, left_us / 1000 + 1);
    else
        timer_stop(&s->timer);
}

bool upload_stream_over(struct upload_stream *s)
{
    bool over = true;

    if (!s->cache)
        return true;
    if (s->next)                     /* a block that will never be whole */
        give_back(s, s->next);
    s->next = NULL;
    wait_no_longer(s);
    upload_stream_reap(s);
    for (unsigned i = 0; i < UPLOAD_WRITES; i++)
        over = over && !s->write[i].used;
    if (over)                        /* what was queued may have come back just now */
        timer_stop(&s->timer);
    return over;
}

/* ---- publishing ---- */
/* The generation is entered; false: nothing is to be moved. */
static bool pend(struct cache *c, struct upload *u, const struct cache_write *w,
                 const struct okey *k, struct span etag)
{
    char quoted[ETAG_BYTES_MAX + 2];
    struct object_facts f = {.size = u->home.size, .etag = etag, .headers = span_of(""),
                             .part_bytes = u->part_bytes};

    if (etag.len == 0 || etag.len > ETAG_BYTES_MAX || u->home.size == 0)
        return false;
    if (etag.at[0] != '"') {
        struct text t;
        text_init(&t, quoted, sizeof quoted);
        text_addc(&t, '"');
        text_add(&t, etag);
        text_addc(&t, '"');
        f.etag = text_span(&t);
    }
    return index_pend(c, k, &f, w, &u->home) == OK;
}

static void move(struct cache *c, const struct upload *u, uint64_t number)
{
    bool in_tail = u->tail && number >= u->tail_first && number < u->tail_end;

    if (in_tail)
        chunk_move(c, u->tail, u->tail_from + number - u->tail_first, &u->home, number);
    else
        chunk_move(c, u->object, number, &u->home, number);
}

bool upload_publish(struct cache *c, struct upload *u, const struct cache_write *w,
                    const struct okey *k, struct span etag, uint64_t size)
{
    if (!u->pended) {
        u->pended = true;
        u->home.size = size;
        if (!pend(c, u, w, k, etag))
            u->home.size = 0;
    }
    for (unsigned i = 0; i < MOVES_AT_ONCE; i++, u->moved++) {
        if (u->moved * CHUNK_BYTES >= u->home.size)
            return true;
        move(c, u, u->moved);
    }
    return false;
}
