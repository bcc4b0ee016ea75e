/* A job as bytes, as it is kept over a restart.
 *
 * Invariants:
 *  1. Integers are little-endian at fixed places, texts follow with their lengths before them.
 *  2. Every length, kind and state is verified; whatever does not fit is refused whole. Damage was
 *     found before (the cache's checksum); this is against another version's bytes.
 *
 * Life: pure functions. Failure: ERR_RECORD, ERR_NEWER. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "server/jobs/inside.h"

enum {
    FORMAT = 5, FORMAT_WITHOUT_ROOM = 4, FORMAT_WITHOUT_FORCE = 3, FORMAT_WITHOUT_KEYS = 2,
    FORMAT_WITHOUT_PREWARM = 1,
};

/* ---- one direction at a time ---- */
struct bytes {
    uint8_t *at;
    size_t left;
    bool bad;                        /* it did not fit; or was no such text */
};

static void put(struct bytes *b, uint64_t n, unsigned len)
{
    n = htole64(n);
    if (len > b->left) {
        b->bad = true;
        return;
    }
    memcpy(b->at, &n, len);
    b->at += len;
    b->left -= len;
}

static void put_text(struct bytes *b, const char *text)
{
    size_t len = strlen(text);

    put(b, len, 2);
    if (b->bad || len > b->left) {
        b->bad = true;
        return;
    }
    memcpy(b->at, text, len);
    b->at += len;
    b->left -= len;
}

static uint64_t get(struct bytes *b, unsigned len)
{
    uint64_t n = 0;

    if (len > b->left) {
        b->bad = true;
        return 0;
    }
    memcpy(&n, b->at, len);
    b->at += len;
    b->left -= len;
    return le64toh(n);
}

static void get_text(struct bytes *b, char *out, size_t cap)
{
    size_t len = get(b, 2);

    out[0] = '\0';
    if (b->bad || len > b->left || len >= cap || memchr(b->at, '\0', len)) {
        b->bad = true;
        return;
    }
    memcpy(out, b->at, len);
    out[len] = '\0';
    b->at += len;
    b->left -= len;
}

/* ---- the face ---- */
/* The counts, in the order in which they are kept. */
enum { COUNTS = 13 };
static void counts_of(struct job_view *v, struct job_place *p, uint64_t *out[COUNTS])
{
    uint64_t *all[COUNTS] = {
        &v->created_ms, &v->started_ms, &v->ended_ms, &v->objects_wanted, &v->objects_done,
        &v->objects_failed, &v->objects_skipped, &v->bytes_wanted, &v->bytes_done, &v->dropped,
        &p->at, &p->chunk, &v->spec.unread_for_s,
    };

    memcpy(out, all, sizeof all);
}

/* Those of a prewarm, which stand behind all else. */
enum { WARM_COUNTS = 16 };
static void warm_counts_of(struct job_view *v, struct job_place *p, uint64_t *out[WARM_COUNTS])
{
    struct job_tally *t = &p->tally;
    uint64_t *all[WARM_COUNTS] = {
        &v->spec.bandwidth, &v->bytes_failed, &v->bytes_here, &v->bytes_loose, &v->bytes_needed,
        &v->bytes_free, &t->objects_wanted, &t->objects_done, &t->objects_failed,
        &t->objects_skipped, &t->bytes_wanted, &t->bytes_done, &t->bytes_failed, &t->bytes_here,
        &t->bytes_loose, &t->bytes_needed,
    };

    memcpy(out, all, sizeof all);
}

/* And those of what it takes, behind those. */
enum { ROOM_COUNTS = 14 };
static void room_counts_of(struct job_view *v, struct job_place *p, uint64_t *out[ROOM_COUNTS])
{
    struct job_room *now = &v->room, *then = &p->tally.room;
    uint64_t *all[ROOM_COUNTS] = {
        &now->here, &now->index_loose, &now->index_needed, &now->small, &now->ruled_loose,
        &now->ruled_needed, &then->here, &then->index_loose, &then->index_needed, &then->small,
        &then->ruled_loose, &then->ruled_needed, &p->tally.used, &p->tally.fetched,
    };

    memcpy(out, all, sizeof all);
}

static void write_room(struct bytes *b, struct job_view *v, struct job_place *p)
{
    uint64_t *count[ROOM_COUNTS];

    room_counts_of(v, p, count);
    put(b, v->limit, 1);
    for (unsigned i = 0; i < ROOM_COUNTS; i++)
        put(b, *count[i], 8);
}

static void write_prewarm(struct bytes *b, struct job_view *v, struct job_place *p)
{
    uint64_t *count[WARM_COUNTS];

    warm_counts_of(v, p, count);
    put(b, v->pass, 1);
    put(b, p->pass, 1);
    put(b, v->does_not_fit, 1);
    put(b, v->spec.dry_run, 1);
    put(b, v->spec.connections, 4);
    put(b, p->tally.failure_count, 4);
    for (unsigned i = 0; i < WARM_COUNTS; i++)
        put(b, *count[i], 8);
    put_text(b, v->spec.filter);
    put_text(b, p->after);
}

size_t job_record_write(const struct job_view *v, const struct job_place *p, void *out, size_t cap)
{
    struct bytes b = {.at = out, .left = cap};
    struct job_view copy = *v;
    struct job_place place = *p;
    uint64_t *count[COUNTS];

    counts_of(&copy, &place, count);
    put(&b, FORMAT, 1);
    put(&b, v->spec.kind, 1);
    put(&b, v->state, 1);
    put(&b, v->spec.keep_pinned, 1);
    put(&b, v->failure_count, 4);
    put(&b, v->id, 8);
    put(&b, p->object.a, 8);
    put(&b, p->object.b, 8);
    for (unsigned i = 0; i < COUNTS; i++)
        put(&b, *count[i], 8);
    put_text(&b, v->spec.prefix);
    put_text(&b, v->note);
    for (unsigned i = 0; i < v->failure_count; i++) {
        put(&b, v->failure[i].tries, 4);
        put_text(&b, v->failure[i].error);
        put_text(&b, v->failure[i].key);
    }
    write_prewarm(&b, &copy, &place);
    put(&b, v->spec.order, 1);
    put(&b, v->spec.pin, 1);
    put(&b, v->spec.until_s, 8);
    put(&b, v->spec.keys.count, 4);
    put(&b, v->spec.keys.pieces, 4);
    put(&b, v->spec.keys.bytes, 8);
    put(&b, v->spec.force, 1);
    write_room(&b, &copy, &place);
    return b.bad ? 0 : cap - b.left;
}

static void read_failures(struct bytes *b, struct job_view *v)
{
    b->bad |= v->failure_count > JOB_FAILURES_MAX;
    for (unsigned i = 0; i < v->failure_count && !b->bad; i++) {
        v->failure[i].tries = (uint32_t)get(b, 4);
        get_text(b, v->failure[i].error, sizeof v->failure[i].error);
        get_text(b, v->failure[i].key, sizeof v->failure[i].key);
    }
}

static void read_prewarm(struct bytes *b, struct job_view *v, struct job_place *p)
{
    uint64_t *count[WARM_COUNTS];
    uint64_t pass = get(b, 1), at = get(b, 1), fits = get(b, 1), dry = get(b, 1);

    warm_counts_of(v, p, count);
    v->spec.connections = (uint32_t)get(b, 4);
    p->tally.failure_count = (unsigned)get(b, 4);
    for (unsigned i = 0; i < WARM_COUNTS; i++)
        *count[i] = get(b, 8);
    get_text(b, v->spec.filter, sizeof v->spec.filter);
    get_text(b, p->after, sizeof p->after);
    b->bad = b->bad || pass > PASS_LOOK || at > PASS_LOOK || fits > 1 || dry > 1 ||
        p->tally.failure_count > v->failure_count;
    v->pass = b->bad ? PASS_NONE : (enum job_pass)pass;
    p->pass = b->bad ? PASS_NONE : (enum job_pass)at;
    v->does_not_fit = fits == 1;
    v->spec.dry_run = dry == 1;
}

static void read_keys(struct bytes *b, struct job_view *v)
{
    struct kept_keys *k = &v->spec.keys;
    uint64_t order = get(b, 1), pin = get(b, 1);

    v->spec.until_s = get(b, 8);
    v->spec.pin = pin == 1;
    k->count = (uint32_t)get(b, 4);
    k->pieces = (uint32_t)get(b, 4);
    k->bytes = get(b, 8);
    b->bad = b->bad || order > ORDER_SIZE || pin > 1 || k->count > LIST_KEYS_MAX ||
        k->pieces > LISTS_PIECES || k->bytes > LISTS_BYTES || k->pieces > k->count;
    v->spec.order = b->bad ? ORDER_ANY : (enum job_order)order;
}

static void read_room(struct bytes *b, struct job_view *v, struct job_place *p)
{
    uint64_t *count[ROOM_COUNTS], limit = get(b, 1);

    room_counts_of(v, p, count);
    for (unsigned i = 0; i < ROOM_COUNTS; i++)
        *count[i] = get(b, 8);
    b->bad = b->bad || limit > LIMIT_INDEX;
    v->limit = b->bad ? LIMIT_DISKS : (enum job_limit)limit;
}

/* As it was reckoned before: by bytes. */
static void guess_room(struct job_view *v, struct job_place *p)
{
    v->room.here = v->bytes_here;
    p->tally.room.here = p->tally.bytes_here;
    p->tally.used = p->tally.bytes_done;
}

enum err job_record_read(struct span bytes, struct job_view *v, struct job_place *p)
{
    struct bytes b = {.at = (uint8_t *)(uintptr_t)bytes.at, .left = bytes.len};
    uint64_t *count[COUNTS];

    *v = (struct job_view){0};
    *p = (struct job_place){0};
    uint64_t format = get(&b, 1);
    if (format < FORMAT_WITHOUT_PREWARM || format > FORMAT)
        return ERR_NEWER;
    uint64_t kind = get(&b, 1), state = get(&b, 1), keep = get(&b, 1);
    v->failure_count = (unsigned)get(&b, 4);
    v->id = get(&b, 8);
    p->object.a = get(&b, 8);
    p->object.b = get(&b, 8);
    counts_of(v, p, count);
    for (unsigned i = 0; i < COUNTS; i++)
        *count[i] = get(&b, 8);
    get_text(&b, v->spec.prefix, sizeof v->spec.prefix);
    get_text(&b, v->note, sizeof v->note);
    read_failures(&b, v);
    if (format >= FORMAT_WITHOUT_KEYS)
        read_prewarm(&b, v, p);
    if (format >= FORMAT_WITHOUT_FORCE)
        read_keys(&b, v);
    uint64_t force = format >= FORMAT_WITHOUT_ROOM ? get(&b, 1) : 0;
    if (format >= FORMAT)
        read_room(&b, v, p);
    else
        guess_room(v, p);
    if (b.bad || b.left > 0 || kind > KIND_BACKGROUND || state >= LABEL_jobstate_COUNT ||
        keep > 1 || force > 1)
        return ERR_RECORD;
    v->spec.kind = (enum job_kind)kind;
    v->state = (enum label_jobstate)state;
    v->spec.keep_pinned = keep;
    v->spec.force = force;
    return OK;
}
