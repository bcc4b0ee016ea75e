/* A cache over temporary directories for tests: made, filled and read without rings.
 *
 * The operations of loop.h that cache/ uses are defined here over pread and pwrite, complete at
 * once; so no ring is linked. Include it once per program. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_CASE_H
#define HEADPOND_CACHE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>

#include "server/cache/inside.h"
#include "tests/lib/await.h"
#include "tests/lib/scratch.h"

enum { CASE_SLAB = 256 * MIB, CASE_EHD = 0, CASE_LRU = 1 };

/* ---- loop.h, at once ---- */
/* -errno, or a short count: the next transfer's result */
static _Thread_local int case_fail_next;

static void case_complete(struct op *op, ssize_t n)
{
    op->res = n < 0 ? -errno : (int32_t)n;
    if (case_fail_next) {
        op->res = case_fail_next;
        case_fail_next = 0;
    }
    op->ended = true;
}
/* The next read hangs: it is told here, until case_release(). */
static _Thread_local bool case_hang_next;
static _Thread_local struct op *case_hanging;
void op_read(struct machine *m, struct op *op, int fd, void *mem, uint32_t len, uint64_t off)
{
    op->m = m;
    op->kind = OPK_READ;
    if (case_hang_next) {
        case_hang_next = false;
        *op = (struct op){.m = m, .kind = OPK_READ, .fd = fd, .mem = mem, .len = len, .off = off,
                          .busy = true};
        case_hanging = op;
        return;
    }
    case_complete(op, pread(fd, mem, len, (off_t)off));
}
static unused_ok void case_release(void)
{
    struct op *op = case_hanging;

    case_hanging = NULL;
    op->busy = false;
    case_complete(op, pread(op->fd, op->mem, op->len, (off_t)op->off));
}
/* Writes hang while that is set, until case_release_write(), the oldest first. */
enum { CASE_HELD = 16 };
static _Thread_local bool case_hold_writes;
static _Thread_local struct op *case_held[CASE_HELD];
static _Thread_local unsigned case_held_count;
void op_write(struct machine *m, struct op *op, int fd, const void *mem, uint32_t len, uint64_t off)
{
    if (case_hold_writes) {
        *op = (struct op){.m = m, .kind = OPK_WRITE, .fd = fd, .mem = (void *)(uintptr_t)mem,
                          .len = len, .off = off, .busy = true};
        must(case_held_count < CASE_HELD);
        case_held[case_held_count++] = op;
        return;
    }
    op->m = m;
    op->kind = OPK_WRITE;
    case_complete(op, pwrite(fd, mem, len, (off_t)off));
}
static unused_ok void case_release_write(void)
{
    struct op *op = case_held[0];

    must(case_held_count > 0);
    memmove(case_held, case_held + 1, --case_held_count * sizeof *case_held);
    op->busy = false;
    case_complete(op, pwrite(op->fd, op->mem, op->len, (off_t)op->off));
}
void op_hand_over(struct op *op, struct machine *to)
{
    op->m = to;
}
void timer_set(struct timer *t, struct machine *m, uint64_t delay_ms)
{
    t->m = m;
    t->at_ms = 1 + delay_ms;
}
void timer_stop(struct timer *t)
{
    t->at_ms = 0;
}
void machine_begin(struct machine *m, struct core *core, enum turn (*run)(struct machine *),
                   void (*over)(struct machine *), const char *const *names, uint8_t drain)
{
    *m = (struct machine){
        .core = core, .run = run, .over = over, .names = names, .drain = drain, .alive = true};
}
enum err op_disk_error(int32_t res)
{
    return res >= 0 ? OK : res == -ECANCELED ? ERR_CANCELLED : ERR_DISK;
}
void machine_wake(struct machine *m)
{
    (void)m;
}
static _Atomic(struct message *) case_sent; /* any thread's, the newest first */
void core_send(struct core *to, struct message *msg)
{
    (void)to;
    msg->next = atomic_load(&case_sent);
    while (!atomic_compare_exchange_weak(&case_sent, &msg->next, msg))
        ;
}

/* ---- the case ---- */
struct cache_case {
    char root[64];
    char dir[4][96];
    struct config config;
    struct server server;
    struct core core;
    struct machine machine;
    struct cache *c;
    char why[512];
    uint8_t *block;                  /* 1 MiB, aligned */
    uint64_t asked_ms;
};

/* Of what the core's transfers still hold nothing is left. */
static unused_ok void case_close(struct cache_case *t)
{
    cache_core_end(&t->core);
    assert_null(t->core.cache);
    assert_true(cache_close(t->c));
    t->c = t->server.cache = NULL;
}

static unused_ok enum err case_open(struct cache_case *t)
{
    TRY(cache_open(&t->server, t->why, &t->c));
    t->server.cache = t->c;
    return cache_core_begin(&t->core);
}

static unused_ok void case_reopen(struct cache_case *t)
{
    case_close(t);
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
}

/* Another thread's: a core and a block of its own, the same cache. */
static unused_ok void case_beside(const struct cache_case *t, struct cache_case *out)
{
    *out = *t;
    out->machine.core = &out->core;
    out->core.metrics = metric_set_make();
    assert_int_equal(cache_core_begin(&out->core), OK);
    out->block = aligned_alloc(4096, BLOCK_BYTES);
}

static unused_ok void case_beside_end(struct cache_case *of)
{
    free(of->block);
    cache_core_end(&of->core);
}

/* What the core was sent, as its next turn would deliver it. */
static unused_ok void case_deliver(struct cache_case *t)
{
    struct message *msg = atomic_exchange(&case_sent, NULL);

    while (msg) {
        struct message *next = msg->next;
        msg->deliver(&t->core, msg);
        msg = next;
    }
}

/* For CRCs that a start left behind. */
static unused_ok void case_await(struct cache_case *t, struct transfer *transfer)
{
    while (!transfer_ended(transfer)) {
        AWAIT(atomic_load(&case_sent) != NULL);
        case_deliver(t);
    }
}

/* Nothing is opened yet. */
static unused_ok struct cache_case *case_make(unsigned dirs)
{
    struct cache_case *t = calloc(1, sizeof *t);

    snprintf(t->root, sizeof t->root, "/tmp/headpond-case-XXXXXX");
    assert_non_null(mkdtemp(t->root));
    for (unsigned i = 0; i < dirs; i++) {
        snprintf(t->dir[i], sizeof t->dir[i], "%s/d%u", t->root, i);
        t->config.cache_dirs.item[i] = t->dir[i];
    }
    t->config.cache_dirs.count = dirs;
    t->config.cache_size.bytes = CASE_SLAB;
    t->config.cache_memory = 16 * MIB;
    t->config.cache_policy = CASE_LRU; /* it lets all in, so that room is made */
    t->server.config = &t->config;
    snprintf(t->server.store[0], sizeof t->server.store[0], "store.test:443/");
    t->server.store_count = 1;
    t->core.server = &t->server;
    t->core.metrics = metric_set_make();
    t->machine.core = &t->core;
    t->block = aligned_alloc(4096, BLOCK_BYTES);
    t->asked_ms = 1700000000000;
    return t;
}

static unused_ok void case_end(struct cache_case *t)
{
    if (t->c)
        case_close(t);
    scratch_remove(t->root);
    free(t->block);
    free(t);
}

static unused_ok struct okey case_key(struct cache_case *t, const char *key)
{
    struct okey k = {.bucket = span_of("bucket"), .key = span_of(key), .version = span_of("")};

    cache_key(t->c, &k);
    return k;
}

static unused_ok struct object *case_learn(struct cache_case *t, const char *key, const char *etag,
                                           uint64_t size)
{
    struct okey k = case_key(t, key);
    struct object_facts f = {
        .size = size,
        .last_modified_s = 1600000000,
        .asked_ms = t->asked_ms,
        .etag = span_of(etag),
        .headers = span_of("content-type: application/x-tar\r\n"),
    };
    struct object *o;

    assert_int_equal(cache_learn(t->c, &k, &f, &o), OK);
    return o;
}

/* Bytes that depend on everything that must not be confused. */
static unused_ok void case_bytes(const struct object *o, uint64_t number, unsigned block,
                                 uint8_t *out, uint32_t len)
{
    uint64_t x = o->data_id.a ^ (number << 32) ^ ((uint64_t)block << 56);

    for (uint32_t i = 0; i + 8 <= len; i += 8) {
        x = x * 6364136223846793005 + 1442695040888963407;
        memcpy(out + i, &x, 8);
    }
    for (uint32_t i = len / 8 * 8; i < len; i++)
        out[i] = (uint8_t)(x >> i % 8);
}

static unused_ok void case_write(struct cache_case *t, const struct object *o, struct chunk *k,
                                 unsigned block)
{
    uint32_t len = chunk_block_bytes(k->bytes, block);
    struct block_sums sums;
    struct buffer buffer = {.mem = t->block, .cap = BLOCK_BYTES};

    case_bytes(o, k->number, block, t->block, len);
    chunk_crc(o->data_id, k->number, block, t->block, len, &sums);
    struct transfer *transfer = chunk_write(&t->machine, k, block, &buffer, false);
    assert_non_null(transfer);
    assert_int_equal(chunk_write_done(transfer), OK);
    chunk_wrote(t->c, k, block, &sums);
}

static const struct chunk_asked case_asked = {.bytes = CHUNK_BYTES};

/* All blocks of one chunk; the admission's verdict. */
static unused_ok enum err case_fill_as(struct cache_case *t, struct object *o, uint64_t number,
                                       struct chunk_asked asked)
{
    struct chunk *k;

    TRY(chunk_admit(t->c, o, number, asked, &k));
    for (unsigned block = 0; block * (uint32_t)BLOCK_BYTES < k->bytes; block++)
        case_write(t, o, k, block);
    chunk_filled(t->c, k);
    return OK;
}

static unused_ok enum err case_fill(struct cache_case *t, struct object *o, uint64_t number)
{
    return case_fill_as(t, o, number, case_asked);
}

/* Reads one block and compares; ERR_NOT_FOUND when it is not there. */
static unused_ok enum err case_read(struct cache_case *t, struct object *o, uint64_t number,
                                    unsigned block)
{
    static _Thread_local uint8_t want[BLOCK_BYTES];
    struct chunk *k = chunk_find(t->c, o->data_id, number);
    struct buffer buffer = {.mem = t->block, .cap = BLOCK_BYTES};

    if (!k || !(chunk_present(t->c, k) >> block & 1)) {
        if (k)
            chunk_drop(t->c, k);
        return ERR_NOT_FOUND;
    }
    uint32_t len = chunk_block_bytes(k->bytes, block);
    struct transfer *transfer =
        chunk_read(&t->machine, k, block * BLOCK_BYTES, len, &buffer);
    assert_non_null(transfer);
    case_await(t, transfer);
    enum err err = chunk_read_done(transfer);
    case_bytes(o, number, block, want, len);
    if (err == OK)
        assert_memory_equal(t->block, want, len);
    chunk_reference(t->c, o, k, len);
    chunk_drop(t->c, k);
    return err;
}

/* Is everything queued committed, and every slot of a removed record free? */
static unused_ok bool case_settled(struct cache_case *t)
{
    struct cache_status s;
    uint64_t limbo = 0;

    cache_status(t->c, &s);
    for (unsigned d = 0; d < t->c->dir_count; d++)
        limbo += atomic_load(&t->c->dir[d].limbo_bytes);
    return s.dirty_entries == 0 && limbo == 0;
}

static unused_ok void case_settle(struct cache_case *t)
{
    AWAIT(case_settled(t));
}

static unused_ok struct object *case_find(struct cache_case *t, const char *key)
{
    struct okey k = case_key(t, key);

    return cache_find(t->c, &k);
}

#endif
