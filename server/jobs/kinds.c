/* What jobs do to an object: evict it, compare it with its checksums, ask upstream about it.
 *
 * Invariants:
 *  1. Bytes are read at a bounded rate, into one buffer of read-ahead's share.
 *  2. What is found damaged is dropped by the cache itself, as if a request had read it.
 *  3. At most JOB_LANES questions are under way; while upstream is away nothing is asked.
 *  4. An object fails once, whatever number of its blocks is damaged; one of which something lies
 *     on a disk that is not up was not verified, and fails.
 *
 * Life: a job's; called by its steps only.
 * Failure: counted and told by key; the walk goes on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/inside.h"

enum {
    MEASURE_STEP = 256,              /* chunks per turn */
    LOOK_STEP = 256,
    DISOWN_STEP = 16,                /* chunks, of 200 names each */
    VERIFY_BYTES_PER_S = 256 * MIB,
    EARLY_US = 20 * 1000,            /* a timer is not worth less */
    AWAY_MS = 1000,
    TRIES_MAX = 5, REFUSED_MAX = 30,
};

static struct cache *cache_of(const struct job *j)
{
    return j->jobs->server->cache;
}

static void count_done(struct job *j, uint64_t objects, uint64_t bytes, uint64_t dropped)
{
    jobs_lock(j->jobs);
    j->view.objects_done += objects;
    j->view.bytes_done += bytes;
    j->view.dropped += dropped;
    jobs_unlock(j->jobs);
}

static void count_skipped(struct job *j)
{
    jobs_lock(j->jobs);
    j->view.objects_skipped++;
    jobs_unlock(j->jobs);
}

/* ---- evict ---- */
/* The object is gone, its bytes may be in memory: who asks for it anew would find those. */
static enum work disown(struct job *j, const struct object *o)
{
    uint64_t number = j->number - 1;
    bool all = cache_disown(cache_of(j), o, &number, DISOWN_STEP);

    j->number = number + 1;
    return all ? WORK_DONE : WORK_MORE;
}

enum work evict_work(struct job *j, struct object *o)
{
    const struct job_spec *spec = &j->view.spec;

    if (j->number > 0)
        return disown(j, o);
    if (!spec_wants_age(spec, o))
        return WORK_DONE;
    if (!cache_measure(cache_of(j), o, &j->held, MEASURE_STEP))
        return WORK_MORE;
    if (spec->keep_pinned && j->held.pinned) {
        count_skipped(j);
        return WORK_DONE;
    }
    cache_evict(cache_of(j), o);
    count_done(j, 1, j->held.bytes, 0);
    j->number = 1;                   /* from here on: the next chunk to disown, and 1 */
    return disown(j, o);
}

/* ---- verify, and the scrub ---- */
static uint64_t rate_of(const struct job *j)
{
    uint64_t scrub = j->m.core->settings->config->cache_scrub;

    /* 0: it was just turned off, and stops before it reads again. */
    return j->view.spec.kind == KIND_SCRUB && scrub > 0 ? scrub : VERIFY_BYTES_PER_S;
}

static void fail_verified(struct job *j, const struct object *o, const char *error)
{
    if (j->view.spec.kind == KIND_SCRUB || j->failed)
        return;
    j->failed = true;
    job_fail_object(j, o, error, 1);
}

/* The block that was being read has come, or is late. */
static void judge_block(struct job *j, const struct object *o)
{
    uint32_t len = chunk_block_bytes(j->chunk->bytes, j->block);
    enum err err = chunk_read_done(j->transfer);

    j->transfer = NULL;
    whole_add(j, j->number * CHUNK_BYTES + (uint64_t)j->block * BLOCK_BYTES,
              err == OK ? j->buffer->mem : NULL, len);
    pool_give(cache_of(j), j->buffer);
    j->buffer = NULL;
    j->block++;
    if (j->view.spec.kind == KIND_SCRUB)
        metric_add(j->m.core->metrics, METRIC_SCRUB_BYTES_TOTAL, 0, len);
    count_done(j, 0, len, err != OK && err != ERR_TIMEOUT && err != ERR_CHANGED);
    if (err != OK && err != ERR_CHANGED)
        fail_verified(j, o, err == ERR_CHECKSUM ? "ChecksumMismatch"
                            : err == ERR_TIMEOUT ? "DiskTimeout" : "DiskError");
    uint64_t now = j->m.core->now_us, cost = len * 1000000ULL / rate_of(j);
    j->due_us = max_u64(j->due_us, now - EARLY_US) + cost;
}

/* The next chunk that is here, held in j->chunk; false: there is none up to the step's end, and
 * *more tells whether any may follow. */
static bool next_chunk(struct job *j, const struct object *o, bool *more)
{
    uint64_t count = (o->size + CHUNK_BYTES - 1) / CHUNK_BYTES;

    for (unsigned step = 0; step < LOOK_STEP && j->number < count && !j->chunk; step++) {
        j->chunk = chunk_find(cache_of(j), o->data_id, j->number);
        j->number += !j->chunk;
        j->block = 0;
    }
    *more = j->number < count;
    return j->chunk != NULL;
}

/* The next block of the chunk that can be read; false: none. */
static bool next_block(struct job *j, const struct object *o)
{
    uint8_t noted = atomic_load(&j->chunk->present);
    uint8_t present = chunk_present(cache_of(j), j->chunk);
    unsigned blocks = (j->chunk->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;

    /* its blocks are all there when the disk is back */
    if (noted && !present && !chunk_disk_is_up(cache_of(j), j->chunk)) {
        fail_verified(j, o, "DiskNotUp");
        j->unread = true;
    }
    while (j->block < blocks && !(present >> j->block & 1))
        j->block++;
    return j->block < blocks;
}

/* Into a buffer of those that read-ahead may have: requests come first. Without one, or with a disk
 * that is busy, it is tried again a second later, a few times. */
static enum work read_block(struct job *j)
{
    j->buffer = pool_take(cache_of(j), BLOCK_BYTES, BUFFER_PREFETCH);
    if (j->buffer)
        j->transfer = chunk_read(&j->m, j->chunk, j->block * (uint32_t)BLOCK_BYTES,
                                 chunk_block_bytes(j->chunk->bytes, j->block), j->buffer);
    if (j->transfer) {
        j->refused = 0;
        return WORK_WAIT;
    }
    if (j->buffer)
        pool_give(cache_of(j), j->buffer);
    j->buffer = NULL;
    if (++j->refused > REFUSED_MAX)
        return WORK_STOP;
    timer_set(&j->timer, &j->m, AWAY_MS);
    return WORK_WAIT;
}

static bool is_early(struct job *j)
{
    uint64_t now = j->m.core->now_us;

    if (j->due_us <= now + EARLY_US)
        return false;
    if (j->timer.at_ms == 0)
        timer_set(&j->timer, &j->m, (j->due_us - now) / 1000);
    return true;
}

/* Behind a restart: what was compared in this object is not compared again, and if it failed, and
 * has a name among the failures, it has. */
static void take_up(struct job *j, const struct object *o)
{
    const struct job_view *v = &j->view;

    if (j->number > 0 || j->place.chunk == 0 || !id_eq(j->place.object, o->id))
        return;
    j->number = j->place.chunk;
    j->failed = v->failure_count > 0 &&
        span_is(object_key(o), v->failure[v->failure_count - 1].key);
}

/* Every chunk was looked at. */
static enum work end_object(struct job *j, struct object *o)
{
    bool right = whole_end(j, o);

    count_done(j, !j->unread, 0, !right);
    if (!right)
        fail_verified(j, o, "ObjectChecksumMismatch");
    return WORK_DONE;
}

static void begin_object(struct job *j, const struct object *o)
{
    j->failed = j->unread = false;
    whole_begin(j, o);
}

enum work verify_work(struct job *j, struct object *o)
{
    bool more = true;

    if (j->transfer && !transfer_ended(j->transfer))
        return WORK_WAIT;
    if (j->transfer)
        judge_block(j, o);
    timer_take(&j->timer);
    if (j->view.spec.kind == KIND_SCRUB && j->m.core->settings->config->cache_scrub == 0)
        return WORK_STOP;
    if (j->number == 0 && !j->chunk)
        begin_object(j, o);
    take_up(j, o);
    if (is_early(j))
        return WORK_WAIT;
    if (!j->chunk && !next_chunk(j, o, &more))
        return more ? WORK_MORE : end_object(j, o);
    if (next_block(j, o))
        return read_block(j);
    chunk_drop(cache_of(j), j->chunk);
    j->chunk = NULL;
    j->number++;
    j->place.object = o->id;
    j->place.chunk = j->number;
    return WORK_MORE;
}

/* ---- revalidate ---- */
static void ask(struct job *j, struct job_question *l)
{
    struct okey k = {.bucket = object_bucket(l->object), .key = object_key(l->object),
                     .version = object_version(l->object), .upstream = j->scope.upstream};

    cache_key(cache_of(j), &k);
    l->again = false;
    l->tries++;
    l->learn = (struct learn){.m = &j->m, .kind = LEARN_HEAD, .to = UINT64_MAX,
                               .patient = true};
    fill_learn(j->m.core, &k, &l->learn, true);
}

static bool is_down(const struct job *j)
{
    return origin_is_down(j->jobs->server->origin[j->scope.upstream]);
}

static void say_away(struct job *j, bool away)
{
    static const char words[] = "upstream does not answer: the job waits for it";

    if (away == (j->view.note[0] != '\0'))
        return;
    jobs_lock(j->jobs);
    memcpy(j->view.note, away ? words : "", away ? sizeof words : 1);
    jobs_unlock(j->jobs);
}

/* What upstream said of the lane's object. true: the lane is done. */
static bool judge_lane(struct job *j, struct job_question *l)
{
    struct learn *a = &l->learn;
    bool refused = a->err == ERR_UPSTREAM_STATUS && a->upstream.status < 500 &&
        a->upstream.status != 429;

    if (a->err == OK) {
        bool same = id_eq(a->object->data_id, l->object->data_id);
        object_drop(cache_of(j), a->object);
        count_done(j, 1, 0, !same);
        say_away(j, false);
        return true;
    }
    if (a->err == ERR_NOT_FOUND || a->err == ERR_UNSUPPORTED) {
        cache_forget(cache_of(j), l->object);
        count_done(j, 1, 0, 1);
        return true;
    }
    if (a->err == ERR_CHANGED) {     /* it was written meanwhile: the next reader asks */
        count_done(j, 1, 0, 0);
        return true;
    }
    if (a->err == ERR_DENIED || refused || (l->tries >= TRIES_MAX && !is_down(j))) {
        job_fail_object(j, l->object, a->upstream.code[0] ? a->upstream.code : err_name(a->err),
                        l->tries);
        return true;
    }
    return false;
}

static void free_lane(struct job *j, struct job_question *l)
{
    object_drop(cache_of(j), l->object);
    *l = (struct job_question){0};
}

bool revalidate_reap(struct job *j)
{
    bool tick = timer_take(&j->timer), idle = true, away = false;

    for (unsigned i = 0; i < JOB_LANES; i++) {
        struct job_question *l = &j->lane[i];
        if (!l->object)
            continue;
        if (l->again && tick && !is_down(j))
            ask(j, l);
        if (!l->again && learn_take(&l->learn)) {
            l->again = !judge_lane(j, l);
            if (!l->again)
                free_lane(j, l);
        }
        away |= l->object && l->again;
        idle &= !l->object;
    }
    if (away) {
        say_away(j, true);
        if (j->timer.at_ms == 0)
            timer_set(&j->timer, &j->m, AWAY_MS);
    }
    return idle;
}

enum work revalidate_work(struct job *j, struct object *o)
{
    struct job_question *free = NULL;

    for (unsigned i = 0; i < JOB_LANES; i++) {
        if (j->lane[i].object && j->lane[i].again)
            return WORK_WAIT;        /* no more questions while upstream is away */
        if (!j->lane[i].object)
            free = &j->lane[i];
    }
    if (!free)
        return WORK_WAIT;
    object_hold(o);
    free->object = o;
    ask(j, free);
    return WORK_DONE;
}

bool revalidate_leave(struct job *j)
{
    bool left = true;

    for (unsigned i = 0; i < JOB_LANES; i++) {
        struct job_question *l = &j->lane[i];
        if (!l->object)
            continue;
        if (!l->again && !l->learn.ended && !fill_leave_learn(j->m.core, &l->learn)) {
            left = false;            /* its answer is on the way */
            continue;
        }
        if (!l->again && learn_take(&l->learn) && l->learn.err == OK)
            object_drop(cache_of(j), l->learn.object);
        free_lane(j, l);
    }
    return left;
}
