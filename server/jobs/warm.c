/* The objects of a page, brought several at a time: what is here is looked at, what is not known is
 * asked for, what is missing is fetched chunk by chunk.
 *
 * Invariants:
 *  1. A lane's object is done when each of its chunks was seen on disk as a whole, at first or when
 *     its fetch had ended; its ETag is the list's, or one that upstream told in this pass. (Of a
 *     list of keys: when it is checked. Before that what was found when it was counted will do, and
 *     behind it what was found then.)
 *  2. At most prefetch.inflight chunks are under way (or the job's own number), no more than a part
 *     of the buffers holds, and no more than the bandwidths allow.
 *  3. With force, which begins though not all fits, no object is fetched for which there is no room
 *     beside those before it: what was brought is not pushed out by what comes later.
 *  4. An object is tried TRIES_MAX times; while upstream is away nothing is asked, and no try
 *     counts.
 *  5. In the last pass nothing is fetched, nor asked: what is not here has failed.
 *
 * Life: lanes and fetches live in struct warm; called by the job's step only.
 * Failure: of an object: told by its key, and counted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "server/jobs/inside.h"

enum {
    START_STEP = 64,                 /* objects per turn */
    LOOK_STEP = 256,                 /* chunks of one object per turn */
    MEASURE_STEP = 256,
    TRIES_MAX = 5,
    TICK_MS = 50, AWAY_MS = 1000, AGAIN_MS = 250, ROOM_MS = 1000,
    EARLY_US = 200 * 1000,           /* of bandwidth may be used at once */
    LEFT_US = EARLY_US / 2,
    MEMORY_EACH = 12 * MIB,          /* of cache.memory for each chunk under way: a quarter is
                                      * prefetch's, three blocks are held at a time */
};

static struct cache *cache_of(const struct job *j)
{
    return j->jobs->server->cache;
}

void warm_tick(struct job *j)
{
    if (j->timer.at_ms == 0)
        timer_set(&j->timer, &j->m, TICK_MS);
}

static bool is_away(const struct job *j)
{
    return origin_is_down(j->jobs->server->origin[j->scope.upstream]);
}

static bool is_background(const struct job *j)
{
    return j->view.spec.kind == KIND_BACKGROUND;
}

/* ---- limits ---- */
static unsigned most_under_way(const struct job *j)
{
    const struct config *config = j->m.core->settings->config;
    uint64_t most = j->view.spec.connections ? j->view.spec.connections : WARM_FETCHES;

    most = min_u64(min_u64(most, config->prefetch_inflight), WARM_FETCHES);
    most = is_background(j) ? (most + 1) / 2 : most;
    return (unsigned)max_u64(min_u64(most, config->cache_memory / MEMORY_EACH), 1);
}

static unsigned count_under_way(const struct warm *w)
{
    unsigned count = 0;

    for (unsigned i = 0; i < WARM_FETCHES; i++)
        count += w->fetch[i].lane != NULL;
    for (unsigned i = 0; i < WARM_LANES; i++)
        count += w->lane[i].at == LANE_LEARN;
    return count;
}

/* All prewarm jobs share one bandwidth; the background has what they leave of it for a while.
 * False: not yet. */
static bool take_shared(struct job *j, uint64_t bytes)
{
    uint64_t rate = j->m.core->settings->config->prefetch_bandwidth, now = j->m.core->now_us;
    uint64_t due = atomic_load(&j->jobs->due_us), next, left = is_background(j) ? LEFT_US : 0;

    if (rate == 0)
        return true;
    do {
        if (due + left > now)
            return false;
        next = max_u64(due, now - EARLY_US) + bytes * 1000000 / rate;
    } while (!atomic_compare_exchange_weak(&j->jobs->due_us, &due, next));
    return true;
}

static void note_full(struct job *j)
{
    struct warm *w = j->warm;

    w->full_ms = w->full_ms ? w->full_ms : max_u64(j->m.core->now_ms, 1);
    w->room_ms = j->m.core->now_ms + ROOM_MS;
    job_note(j, "no room is free: it waits, as nothing leaves for it");
}

static void note_room(struct job *j)
{
    if (j->warm->full_ms > 0)
        job_note(j, "");
    j->warm->full_ms = 0;
    j->warm->refused = false;
}

/* Of the background: is room free for so many bytes beside those under way? It is looked for once a
 * second while there is none. */
static bool finds_room(struct job *j, uint64_t bytes)
{
    struct warm *w = j->warm;

    if (!is_background(j))
        return true;
    if (j->m.core->now_ms < w->room_ms)
        return false;
    if (background_room(j) >= max_u64(bytes, 1) + (uint64_t)count_under_way(w) * CHUNK_BYTES) {
        if (!w->refused)             /* else it is elsewhere than where it is needed */
            note_room(j);
        return true;
    }
    if (count_under_way(w) == 0)
        note_full(j);
    return false;
}

/* May so many bytes be asked for now? Then they are paid for. */
static bool may_ask(struct job *j, uint64_t bytes)
{
    uint64_t rate = j->view.spec.bandwidth, now = j->m.core->now_us;
    bool may = count_under_way(j->warm) < most_under_way(j) && finds_room(j, bytes) &&
               (rate == 0 || j->due_us <= now) && take_shared(j, bytes);

    if (may && rate > 0)
        j->due_us = max_u64(j->due_us, now - EARLY_US) + bytes * 1000000 / rate;
    if (!may)
        warm_tick(j);
    return may;
}

/* ---- counts ---- */
static void tell_bytes(struct job *j, struct warm_lane *l, uint64_t bytes)
{
    jobs_lock(j->jobs);
    j->view.bytes_done += bytes - l->told; /* may be less: modulo 2^64 */
    jobs_unlock(j->jobs);
    l->told = bytes;
}

static void let_object_go(struct job *j, struct warm_lane *l)
{
    if (l->object)
        object_drop(cache_of(j), l->object);
    l->object = NULL;
}

/* It was begun though not all fits. */
static bool is_forced(const struct job *j)
{
    const struct job_view *v = &j->view;

    return v->spec.force && v->bytes_needed > v->bytes_free && v->pass != PASS_COUNT;
}

/* false: an object of that size would push out what the job brought before it. What is counted is
 * whole objects, those that were here among them: so each pass comes to the same end. */
static bool has_room(const struct job *j, uint64_t size)
{
    uint64_t most = j->view.bytes_free + j->view.room.here, room = cache_need_room(size);

    return !is_forced(j) || (j->warm->used <= most && room <= most - j->warm->used);
}

/* In the order of the list, when it is begun; what has no size yet, when that is known. */
static bool take_in(struct job *j, struct warm_lane *l)
{
    if (l->taken_in)
        return true;
    if (l->size == KEY_SIZE_ANY || !has_room(j, l->size))
        return false;
    l->taken_in = true;
    l->taken_room = cache_need_room(l->size);
    j->warm->used += l->taken_room;
    return true;
}

static void leave_out(struct job *j, struct warm_lane *l)
{
    if (l->taken_in)
        j->warm->used -= l->taken_room;
    l->taken_in = false;
}

static void lane_done(struct job *j, struct warm_lane *l)
{
    if (!l->taken_in)
        j->warm->used += cache_need_room(l->object->size);
    tell_bytes(j, l, l->object->size);
    jobs_lock(j->jobs);
    j->view.objects_done++;
    jobs_unlock(j->jobs);
    let_object_go(j, l);
    *l = (struct warm_lane){0};
}

static void lane_failed(struct job *j, struct warm_lane *l)
{
    leave_out(j, l);
    tell_bytes(j, l, 0);
    jobs_lock(j->jobs);
    j->view.bytes_failed += l->size == KEY_SIZE_ANY ? 0 : l->size;
    j->view.objects_wanted += j->view.pass == PASS_COUNT;
    jobs_unlock(j->jobs);
    job_fail_key(j, l->item->key, l->error, l->tries);
    *l = (struct warm_lane){0};
}

/* Nothing of it is under way; l->error says why it is not done. */
static void lane_again(struct job *j, struct warm_lane *l)
{
    bool away = !l->hopeless && is_away(j), full = is_background(j) && j->warm->full_ms > 0;

    let_object_go(j, l);
    l->tries += !away && !full && !l->passed;
    l->passed = false;
    if (l->hopeless || l->tries >= TRIES_MAX) {
        lane_failed(j, l);
        return;
    }
    if (away)
        job_note(j, "upstream does not answer: the job waits for it");
    l->again_ms = j->m.core->now_ms + (away ? AWAY_MS : (uint64_t)AGAIN_MS << l->tries);
    l->at = LANE_REST;
    warm_tick(j);
}

static void set_error(struct warm_lane *l, const char *error, bool hopeless)
{
    snprintf(l->error, sizeof l->error, "%s", error);
    l->hopeless = l->hopeless || hopeless;
}

/* In the pass that only looks: it is not here. */
static void miss(struct job *j, struct warm_lane *l)
{
    const struct warm *w = j->warm;
    const char *why = l->taken_in || !is_forced(j) ? "NotKept" : "NoRoom";

    l->tries = 0;
    for (unsigned i = 0; i < w->failed_count; i++)
        if (span_is(l->item->key, w->failed[i].key)) {
            why = w->failed[i].error;
            l->tries = w->failed[i].tries > 0 ? w->failed[i].tries - 1 : 0;
        }
    set_error(l, why, true);
}

/* ---- asking upstream what it is ---- */
static bool is_final(enum err err, unsigned status)
{
    return err == ERR_NOT_FOUND || err == ERR_DENIED || err == ERR_UNSUPPORTED ||
        (err == ERR_UPSTREAM_STATUS && status < 500 && status != 429);
}

static bool ask(struct job *j, struct warm_lane *l)
{
    uint64_t first = min_u64(l->size, CHUNK_BYTES);
    bool counts = j->warm->page.given && j->view.pass != PASS_FETCH;

    if (j->view.pass == PASS_LOOK) {
        miss(j, l);
        lane_again(j, l);
        return false;
    }
    if (is_away(j)) {
        set_error(l, "UpstreamAway", false);
        lane_again(j, l);
        return false;
    }
    if (l->size != KEY_SIZE_ANY && !take_in(j, l)) {
        set_error(l, "NoRoom", true);
        lane_again(j, l);
        return false;
    }
    /* Only what it is, until it is known that all fits, or that it does. */
    if (counts || (l->size == KEY_SIZE_ANY && is_forced(j)))
        first = 0;
    if (!may_ask(j, first))
        return false;
    l->learn = (struct learn){.m = &j->m, .kind = first ? LEARN_GET : LEARN_HEAD,
        .to = first ? first - 1 : UINT64_MAX, .patient = true, .prewarm = true,
        .background = is_background(j)};
    l->at = LANE_LEARN;
    fill_learn(j->m.core, &l->key, &l->learn, l->learnt);
    return true;
}

/* Is it what a list of keys says that it is? */
static bool is_as_given(const struct job *j, struct warm_lane *l, const struct object *o)
{
    const struct listed *item = l->item;

    if (!j->warm->page.given)
        return true;
    if (item->size != KEY_SIZE_ANY && item->size != o->size)
        set_error(l, "OtherSize", true);
    else if (item->etag.len > 0 && !listed_has_etag(item, object_etag(o)))
        set_error(l, "OtherETag", true);
    return !l->error[0];
}

static void take_object(struct job *j, struct warm_lane *l, struct object *o)
{
    l->object = o;
    l->size = o->size;
    l->number = 0;
    l->at = j->view.pass == PASS_COUNT ? LANE_MEASURE : LANE_FILL;
}

static void judge_learn(struct job *j, struct warm_lane *l)
{
    const struct learn *a = &l->learn;

    if (a->err == OK) {
        l->epoch = a->epoch;
        l->learnt = true;
        job_note(j, "");
        take_object(j, l, a->object);
        if (!is_as_given(j, l, a->object))
            lane_again(j, l);
        return;
    }
    const char *code = a->upstream.code[0] ? a->upstream.code
        : a->err == ERR_UNSUPPORTED        ? "NotStorable"
                                           : err_name(a->err);
    set_error(l, code, is_final(a->err, a->upstream.status));
    lane_again(j, l);
}

/* Need upstream not be asked what it is now? In the pass that only looks the question is what was
 * pushed out: what changed since it was checked is still here. */
static bool is_known(const struct job *j, const struct warm_lane *l, const struct object *o)
{
    uint32_t flags = atomic_load(&o->flags);
    bool trusts = j->view.pass == PASS_FETCH && l->tries == 0;

    if (flags & (OBJECT_GONE | OBJECT_DISTRUSTED))
        return false;
    if (j->view.pass == PASS_LOOK)
        return true;
    if (flags & OBJECT_DOUBT)
        return false;
    return l->learnt ||
        (j->warm->page.given ? trusts : listed_is(l->item, object_etag(o), o->size));
}

static void look(struct job *j, struct warm_lane *l)
{
    l->error[0] = '\0';
    l->epoch = cache_epoch(cache_of(j), &l->key);
    struct object *o = cache_find(cache_of(j), &l->key);
    if (o && is_known(j, l, o)) {
        take_object(j, l, o);
        if (!is_as_given(j, l, o))
            lane_again(j, l);
        return;
    }
    if (o)
        object_drop(cache_of(j), o);
    ask(j, l);
}

/* ---- its chunks ---- */
static bool is_here(struct job *j, const struct object *o, uint64_t number)
{
    struct chunk *k = chunk_find(cache_of(j), o->data_id, number);
    uint32_t blocks = (object_chunk_bytes(o, number) + BLOCK_BYTES - 1) / BLOCK_BYTES;

    if (!k)
        return false;
    bool whole = chunk_present(cache_of(j), k) == (1U << blocks) - 1;
    if (whole && !is_background(j))
        chunk_keep(cache_of(j), k);
    chunk_drop(cache_of(j), k);
    return whole;
}

static struct warm_fetch *free_fetch(struct warm *w)
{
    for (unsigned i = 0; i < WARM_FETCHES; i++)
        if (!w->fetch[i].lane)
            return &w->fetch[i];
    return NULL;
}

/* false: not now. */
static bool begin_fetch(struct job *j, struct warm_lane *l)
{
    uint32_t bytes = object_chunk_bytes(l->object, l->number);
    /* What came with the answer is under way already, and paid for. */
    bool paid = l->learn.m && l->learn.kind == LEARN_GET && l->number == 0 && !l->learn.joined;
    struct warm_fetch *f = free_fetch(j->warm);

    if (!f || (!paid && !may_ask(j, bytes)))
        return false;
    f->watch = (struct fetch_watch){.m = &j->m, .epoch = l->epoch,
        .background = is_background(j)};
    f->number = l->number;
    f->bytes = bytes;
    if (!fill_prewarm(j->m.core, l->object, l->number, &f->watch)) {
        warm_tick(j);
        return false;
    }
    f->lane = l;
    l->under_way++;
    j->warm->fetched++;
    return true;
}

static void judge_fetch(struct job *j, struct warm_fetch *f)
{
    static const char *const refusals[LABEL_refuse_COUNT] = {
        [REFUSE_POLICY] = "NotWorthThePlace", [REFUSE_FULL] = "CacheFull",
        [REFUSE_QUOTA] = "QuotaReached", [REFUSE_PINNED] = "OnlyPinnedHere",
    };
    const struct fetch_watch *w = &f->watch;
    struct warm_lane *l = f->lane;

    f->lane = NULL;
    l->under_way--;
    /* A fetch that was joined may have been for some blocks only, or a write of it failed. */
    if (w->err == OK && w->kept && is_here(j, l->object, f->number)) {
        tell_bytes(j, l, l->told + f->bytes);
        note_room(j);
        return;
    }
    bool full = is_background(j) && !w->kept &&
        (w->refuse == REFUSE_FULL || w->refuse == REFUSE_QUOTA);
    if (w->err == OK && full) {      /* somebody was faster, or the chunk's disk has none */
        note_full(j);
        j->warm->refused = true;
        set_error(l, "CacheFull", false);
    } else if (w->err == OK && !w->kept && w->refuse == REFUSE_BEHIND) {
        l->passed = true;
        set_error(l, "NotKept", false);
    } else if (w->err == OK && !w->kept && refusals[w->refuse])
        set_error(l, refusals[w->refuse], w->refuse != REFUSE_FULL);
    else if (w->err == OK)
        set_error(l, "NotKept", false);
    else
        set_error(l, w->status ? fill_code_of_status(w->status) : err_name(w->err),
                  is_final(w->err, w->status));
}

static void fill(struct job *j, struct warm_lane *l)
{
    uint64_t count = (l->object->size + CHUNK_BYTES - 1) / CHUNK_BYTES;

    for (unsigned step = 0; l->number < count && !l->error[0]; step++, l->number++) {
        if (step == LOOK_STEP) {
            machine_wake(&j->m);
            return;
        }
        if (is_here(j, l->object, l->number))
            tell_bytes(j, l, l->told + object_chunk_bytes(l->object, l->number));
        else if (j->view.pass == PASS_LOOK)
            miss(j, l);
        else if (!take_in(j, l))
            set_error(l, "NoRoom", true);
        else if (!begin_fetch(j, l))
            return;
    }
    if (l->under_way > 0)
        return;
    if (l->error[0])
        lane_again(j, l);
    else
        lane_done(j, l);
}

/* How much of it is here, when it is only counted. */
static void measure(struct job *j, struct warm_lane *l)
{
    if (!cache_measure(cache_of(j), l->object, &l->held, MEASURE_STEP)) {
        machine_wake(&j->m);
        return;
    }
    warm_count(j, &l->key, l->object->size, &l->held);
    let_object_go(j, l);
    *l = (struct warm_lane){0};
}

/* ---- lanes ---- */
static void run_lane(struct job *j, struct warm_lane *l)
{
    switch (l->at) {
    case LANE_FREE: break;
    case LANE_REST:
        if (j->m.core->now_ms < l->again_ms) {
            warm_tick(j);
            break;
        }
        tell_bytes(j, l, 0);
        l->learn = (struct learn){0};
        l->at = LANE_LOOK;
        look(j, l);
        break;
    case LANE_LOOK: look(j, l); break;
    case LANE_LEARN:
        if (learn_take(&l->learn))
            judge_learn(j, l);
        break;
    case LANE_FILL: case LANE_MEASURE: break;
    }
    if (l->at == LANE_FILL)
        fill(j, l);
    else if (l->at == LANE_MEASURE)
        measure(j, l);
}

static void reap(struct job *j)
{
    struct warm *w = j->warm;

    for (unsigned i = 0; i < WARM_FETCHES; i++)
        if (w->fetch[i].lane && watch_take(&w->fetch[i].watch))
            judge_fetch(j, &w->fetch[i]);
}

/* The next object goes into a free lane. What is here as a whole leaves it at once. */
static void start(struct job *j, struct warm_lane *l)
{
    struct warm *w = j->warm;

    *l = (struct warm_lane){.at = LANE_LOOK, .item = &w->page.item[w->taken++]};
    l->size = l->item->size;
    l->key = (struct okey){.bucket = j->scope.bucket, .key = l->item->key,
        .upstream = j->scope.upstream};
    cache_key(cache_of(j), &l->key);
    (void)take_in(j, l);             /* else: what of it is missing is not fetched */
    run_lane(j, l);
}

enum warm_turn warm_lanes(struct job *j)
{
    struct warm *w = j->warm;
    bool busy = false;

    timer_take(&j->timer);
    reap(j);
    for (unsigned i = 0; i < WARM_LANES; i++)
        run_lane(j, &w->lane[i]);
    for (unsigned i = 0, step = 0; i < WARM_LANES && w->taken < w->page.count; step++) {
        if (step == START_STEP)
            return WARM_MORE;
        if (w->lane[i].at == LANE_FREE)
            start(j, &w->lane[i]);
        i += w->lane[i].at != LANE_FREE;
    }
    for (unsigned i = 0; i < WARM_LANES; i++)
        busy = busy || w->lane[i].at != LANE_FREE;
    return busy ? WARM_WAIT : WARM_LIST;
}

static bool leave_learn(struct job *j, struct warm_lane *l)
{
    if (l->at != LANE_LEARN)
        return true;
    if (!l->learn.ended && !fill_leave_learn(j->m.core, &l->learn))
        return false;                /* its answer is on the way */
    if (learn_take(&l->learn) && l->learn.err == OK)
        object_drop(cache_of(j), l->learn.object);
    return true;
}

bool warm_lanes_leave(struct job *j)
{
    struct warm *w = j->warm;
    bool left = true;

    for (unsigned i = 0; i < WARM_FETCHES; i++) {
        struct warm_fetch *f = &w->fetch[i];
        if (!f->lane)
            continue;
        if (f->watch.ended || fill_leave_prewarm(j->m.core, &f->watch))
            f->lane = NULL;
        left = left && !f->lane;
    }
    for (unsigned i = 0; i < WARM_LANES; i++) {
        struct warm_lane *l = &w->lane[i];
        if (!leave_learn(j, l)) {
            left = false;
            continue;
        }
        let_object_go(j, l);
        l->at = LANE_FREE;
    }
    return left;
}
