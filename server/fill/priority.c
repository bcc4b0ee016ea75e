/* Who comes first: what a fetch takes of connections, buffers and bandwidth by who waits for it.
 *
 * Invariants:
 *  1. A fetch that a reader waits for is demand from then on, whatever it was begun as; so is a
 *     plan's asking what a key is, when somebody needs to know.
 *  2. What nobody waits for takes no buffer that fills for readers may have, and of the bandwidth
 *     what they leave.
 *  3. A reader does not wait for a disk that is behind with its writes; who wants a chunk to be
 *     here does.
 *  4. The rest of a chunk goes behind a burst of readers, then as read-ahead, and does not wait for
 *     long: who reads it later asks for it himself.
 *
 * Life: used by fetch.c. Failure: none; who may not go on now is woken when to ask again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

bool fetch_has_readers(struct fetch *f)
{
    struct fill_shard *s = fetch_lock(f);
    bool some = !list_empty(&f->waiters);
    shard_unlock(s);
    return some;
}

enum label_purpose fetch_purpose(const struct fetch *f)
{
    return f->plan         ? PURPOSE_PLAN
           : f->background ? PURPOSE_BACKGROUND
           : f->prewarm    ? PURPOSE_PREWARM
           : f->ahead      ? PURPOSE_READAHEAD
                           : PURPOSE_DEMAND;
}

enum ask_class fetch_class(const struct fetch *f)
{
    return f->plan         ? ASK_PLAN
           : f->background ? ASK_BACKGROUND
           : f->prewarm    ? ASK_PREFETCH
           : f->ahead      ? ASK_READAHEAD
                           : ASK_DEMAND;
}

void fetch_set_prewarm(struct fetch *f, bool plan, bool background)
{
    f->prewarm = true;
    f->plan = plan;
    f->background = background;
    metric_gauge_add(METRIC_FETCHES_IN_FLIGHT, PURPOSE_DEMAND, -1);
    metric_gauge_add(METRIC_FETCHES_IN_FLIGHT, fetch_purpose(f), 1);
}

/* A key of a plan that somebody else needs to know now. */
static bool is_asked_now(struct fetch *f)
{
    if (!f->contact || f->object || !f->contact->plan)
        return false;
    struct fill_shard *s = fill_shard(f->m.core, f->ask_shard);
    shard_lock(s);
    bool now = !f->contact->patient;
    shard_unlock(s);
    return now;
}

static bool is_awaited(struct fetch *f)
{
    struct fill_shard *s = fetch_lock(f);
    bool awaited = run_is_awaited_locked(f);
    shard_unlock(s);
    return awaited;
}

static void end_ahead(struct fetch *f)
{
    if (!f->ahead)
        return;
    f->ahead = false;
    atomic_fetch_sub_explicit(&f->m.core->server->fills->ahead, 1, memory_order_relaxed);
    metric_gauge_add(METRIC_FETCHES_IN_FLIGHT, PURPOSE_READAHEAD, -1);
    metric_gauge_add(METRIC_FETCHES_IN_FLIGHT, PURPOSE_DEMAND, 1);
}

void fetch_brings(struct fetch *f, bool brings)
{
    struct fill_core *fc = f->m.core->fill;

    if (!brings)
        end_ahead(f);
    if (f->brings == brings)
        return;
    f->brings = brings;
    fc->bringing += brings ? 1 : -1;
    if (fc->bringing == 0)
        cache_burst_over(f->m.core);
}

/* Read-ahead for which a reader waits by now is read-ahead no more: its connection must not wait
 * behind all that is asked after it, and another one may begin. */
void fetch_hurry(struct fetch *f)
{
    if (f->ask.class_ < ASK_READAHEAD || !(is_asked_now(f) || is_awaited(f)))
        return;
    end_ahead(f);
    bool revalidates = f->ask.method == HTTP_HEAD;
    f->ask.class_ = revalidates ? ASK_REVALIDATE : ASK_DEMAND;
    f->ask.purpose = revalidates ? PURPOSE_REVALIDATE : PURPOSE_DEMAND;
    exchange_hurry(&f->x);
}

/* The rest lets a burst of readers go first. Where many wait all the time it is what spares the
 * next ones their wait, so then it goes on as read-ahead; where that finds no connection either, it
 * is left out, as many such fetches would linger. 1 GiB read in ranges of 128 KiB in any order, 20
 * ms away: 24 clients took 1.2 s with the rest at once, 1.8 s with it after 250 ms, 1.3 to 1.4 s
 * after 60; with 64 clients the noise is more than the difference. */
enum { REST_WAIT_MS = 60, REST_LEAVE_MS = 2000 };

/* Does anybody want it by now, or the rest with it? */
static bool is_called_for(struct fetch *f)
{
    struct fill_shard *s = fetch_lock(f);
    bool called = run_is_awaited_locked(f) || f->follows || f->rest == 0;
    shard_unlock(s);
    return called;
}

/* It has waited. False: for long enough. */
static bool rest_waits_on(struct fetch *f)
{
    if (f->rest_hurried) {
        struct fill_shard *s = fetch_lock(f);
        run_drop_rest_locked(f);
        shard_unlock(s);
        return false;
    }
    f->rest_hurried = true;
    f->ask.class_ = ASK_READAHEAD;
    timer_set(&f->timer, &f->m, REST_LEAVE_MS);
    exchange_hurry(&f->x);
    return true;
}

bool fetch_may_rest(struct fetch *f)
{
    const struct fill_core *fc = f->m.core->fill;

    if (!f->resting)
        return true;
    bool over = timer_take(&f->timer);
    if (f->x.head_known) {
        timer_stop(&f->timer);
        return true;
    }
    if (exchange_is_queued(&f->x)) {
        bool stays = !is_called_for(f) && !fc->draining && (!over || rest_waits_on(f));
        if (!stays)
            timer_stop(&f->timer);
        if (!stays || over)
            return stays;
    }
    if (f->timer.at_ms == 0)
        timer_set(&f->timer, &f->m, REST_WAIT_MS);
    return true;
}

bool fetch_is_wished_locked(const struct fetch *f)
{
    bool wished = (f->prewarm && !f->background) || f->plan || f->hint & HINT_PREFETCH;

    LIST_EACH(&f->watchers, struct fetch_watch, node, w) {
        wished = wished || !w->background;
    }
    return wished;
}

/* From now on nothing comes but what was asked for. Lock held. */
static void pass_through(struct fetch *f)
{
    f->keeps = false;
    f->refuse = REFUSE_BEHIND;
    run_drop_rest_locked(f);
    uint8_t wanted = atomic_load_explicit(&f->wanted, memory_order_relaxed);
    while (f->last > f->at && !(wanted >> f->last & 1))
        f->sure &= (uint8_t) ~(1u << f->last--);
}

/* It would wait for writes. What a reader asked for is passed through; the rest is left out, else
 * it would keep a connection that others wait for. What is held until all of it match goes to disk
 * whole. */
static void judge_disk(struct fetch *f)
{
    if (f->verify.holds || !cache_is_behind(f->m.core->server->cache))
        return;
    struct fill_shard *s = fetch_lock(f);
    bool wished = fetch_is_wished_locked(f);
    if (!wished && list_empty(&f->waiters) && f->rest >> f->at & 1)
        run_drop_rest_locked(f);
    else if (!wished)
        pass_through(f);
    shard_unlock(s);
}

bool fetch_wants_block(const struct fetch *f)
{
    return atomic_load_explicit(&f->wanted, memory_order_relaxed) >> f->at & 1;
}

/* What nobody waits for takes none of the buffers that fills for readers may have. */
struct buffer *fetch_buffer(struct fetch *f, uint32_t bytes)
{
    struct cache *cache = f->m.core->server->cache;

    if (f->ask.class_ >= ASK_PLAN)
        fetch_hurry(f);
    if (f->ask.class_ >= ASK_PLAN)
        return pool_take(cache, bytes, BUFFER_PREFETCH);
    struct buffer *b = f->keeps ? NULL : pool_take(cache, bytes, BUFFER_PASS);
    if (!b)
        b = pool_take(cache, bytes, BUFFER_FILL);
    if (b || !f->keeps)
        return b;
    judge_disk(f);
    return f->keeps ? NULL : pool_take(cache, bytes, BUFFER_PASS);
}

/* Until their reader comes, bytes that are passed through have nothing but the pool's part for what
 * is on probation, where others pass, too. What goes beyond it would be fetched twice, so it is
 * left to him. */
void fetch_pass_ahead(struct fetch *f)
{
    struct fills *fills = f->m.core->server->fills;
    int64_t most =
        (int64_t)(f->m.core->server->config->cache_memory / POOL_PROBATION / CHUNK_BYTES);
    struct fill_shard *s = fetch_lock(f);
    bool alone = list_empty(&f->waiters);
    f->passed_ahead =
        alone && atomic_fetch_add_explicit(&fills->passed_ahead, 1, memory_order_relaxed) < most;
    if (alone && !f->passed_ahead) {
        atomic_fetch_sub_explicit(&fills->passed_ahead, 1, memory_order_relaxed);
        atomic_store_explicit(&f->wanted, 0, memory_order_relaxed);
    }
    shard_unlock(s);
}

/* Less at a time than a share of a second brings: all who read have their turn. */
enum { TURNS_PER_S = 16, TURN_BYTES_LEAST = 16 * KIB, LOOK_MS_MOST = 1000 };

static uint64_t rate_of(const struct fetch *f)
{
    return f->m.core->settings->config->upstream[f->epoch.upstream].bandwidth;
}

bool fetch_may_read(struct fetch *f)
{
    uint64_t now_us = f->m.core->now_us, wait_us;

    if (rate_of(f) == 0)
        return true;
    for (unsigned i = 0; i < 2; i++) {
        /* the rest holds a connection, so it is not kept behind those who read all the time */
        if (origin_may_take(f->x.origin, f->resting ? ASK_DEMAND : f->ask.class_, now_us, &wait_us))
            return true;
        fetch_hurry(f);
    }
    timer_set(&f->turn, &f->m, min_u64(wait_us / 1000 + 1, LOOK_MS_MOST));
    return false;
}

uint32_t fetch_may_take(const struct fetch *f, uint32_t room)
{
    uint64_t rate = rate_of(f);
    return rate == 0 ? room
                     : (uint32_t)min_u64(room, max_u64(rate / TURNS_PER_S, TURN_BYTES_LEAST));
}

void fetch_took(struct fetch *f, uint32_t bytes)
{
    uint64_t rate = rate_of(f);
    if (rate > 0)
        origin_took(f->x.origin, rate, bytes, f->m.core->now_us);
    origin_came(&f->x, bytes);
}

bool fetch_may_write_later(struct fetch *f, const struct buffer *b)
{
    struct fill_shard *s = fetch_lock(f);
    bool watched = !list_empty(&f->watchers);
    shard_unlock(s);
    return !watched && !f->prewarm && b->len == BLOCK_BYTES;
}
