/* Who already fetches this: tables shared by the cores, joining, leaving, delivery.
 *
 * Invariants:
 *  1. A fetch is listed under (data id, chunk) from before its object is published until nothing is
 *     wanted of it any more; nobody of its epoch starts a second one meanwhile, but for bytes that
 *     it will not bring because its chunk is only passed through, or because that left under it
 *     with what was written there.
 *  2. A waiter is either linked here (then it may leave) or its message is under way (then it must
 *     wait for it).
 *  3. The locks are held for list work only.
 *
 * Life: the tables live as long as the process. Failure: none here; errors of fetches pass through
 * to the waiters. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

struct fill_shard *fill_shard(struct core *c, uint8_t number)
{
    return &c->server->fills->shard[number % FILL_SHARDS];
}

void shard_lock(struct fill_shard *s)
{
    pthread_mutex_lock(&s->lock);
}

void shard_unlock(struct fill_shard *s)
{
    pthread_mutex_unlock(&s->lock);
}

uint8_t shard_of_chunk(struct id data_id, uint64_t number)
{
    return (uint8_t)((data_id.a ^ number * 0x9e3779b97f4a7c15u) >> 32 & (FILL_SHARDS - 1));
}

uint8_t shard_of_object(struct id id)
{
    return (uint8_t)(id.a & (FILL_SHARDS - 1));
}

/* ---- tables ---- */

static bool is_same(struct core *c, struct epoch x, struct epoch y)
{
    struct cache *cache = c->server->cache;

    if (x.upstream != y.upstream)    /* credentials of one may not be good for the other */
        return false;
    if (x.key_stripe == y.key_stripe && x.bucket_stripe == y.bucket_stripe && epoch_eq(x, y))
        return true;
    /* a version, and what is current now: two keys with the same bytes */
    return cache_epoch_holds(cache, x) && cache_epoch_holds(cache, y);
}

/* ---- what of a chunk is asked for ---- */

struct part inflight_part(const struct fetch *f, unsigned block)
{
    uint32_t from = block * (uint32_t)BLOCK_BYTES;
    struct part whole = {from, from + chunk_block_bytes(f->bytes, block)};
    return f->passes ? f->part[block] : whole;
}

static bool holds(struct part p, uint32_t from, uint32_t to)
{
    return p.from <= from && to <= p.to;
}

void inflight_ask_locked(struct fetch *f, struct part bytes)
{
    unsigned wanted = atomic_load_explicit(&f->wanted, memory_order_relaxed);
    for (unsigned b = bytes.from / BLOCK_BYTES; b < f->blocks && bytes.from < bytes.to; b++) {
        struct part *p = &f->part[b];
        uint32_t to = (uint32_t)min_u64((b + 1ull) * BLOCK_BYTES, bytes.to);
        if (p->from == p->to)
            *p = (struct part){bytes.from, to};
        else if (bytes.from <= p->to && to >= p->from)
            *p = (struct part){(uint32_t)min_u64(p->from, bytes.from),
                               (uint32_t)max_u64(p->to, to)};
        bytes.from = to;
        wanted |= 1u << b;
        f->rest &= (uint8_t) ~(1u << b);
    }
    atomic_store_explicit(&f->wanted, (uint8_t)wanted, memory_order_relaxed);
}

/* Will the fetch bring those bytes of a block, so far as it is known what becomes of its chunk? */
static bool will_bring(const struct fetch *f, uint32_t from, uint32_t to)
{
    unsigned b = from / BLOCK_BYTES;
    return !f->passes ||
           (f->state[b] == BLOCK_NEED &&
            atomic_load_explicit(&f->wanted, memory_order_relaxed) >> b & 1 &&
            holds(f->part[b], from, to));
}

static bool is_of(const struct fetch *f, struct id data_id, uint64_t number)
{
    return f->number == number && id_eq(f->data_id, data_id);
}

/* Did its chunk leave with blocks that it says are on disk? It runs on for those who wait, and
 * fills what nobody will find; who comes now has a fetch and a chunk of his own. The chunk is
 * looked at only if there is such a block, which was noted under the lock: before, the fetch may
 * just be asking for its place. */
static bool is_lost(const struct fetch *f)
{
    bool written = false;
    for (unsigned b = 0; b < f->blocks; b++)
        written = written || f->state[b] == BLOCK_DISK;
    return written && f->chunk && chunk_has_left(f->chunk);
}

static struct fetch *find_locked(struct core *c, struct id data_id, uint64_t number,
                                 const struct wait *like)
{
    struct fill_shard *s = fill_shard(c, shard_of_chunk(data_id, number));
    uint32_t end = (like->from / BLOCK_BYTES + 1) * BLOCK_BYTES;
    LIST_EACH(&s->fetches, struct fetch, table, f)
        if (is_of(f, data_id, number) && f->profile == like->profile &&
            is_same(c, f->epoch, like->epoch) && !is_lost(f) &&
            will_bring(f, like->from, (uint32_t)min_u64(like->to, end)))
            return f;
    return NULL;
}

struct fetch *inflight_find_locked(struct core *c, const struct fetch *like)
{
    struct part first = like->part[like->at];
    const struct wait reader = {.epoch = like->epoch, .profile = like->profile,
                                .from = first.from, .to = first.to};
    return find_locked(c, like->data_id, like->number, &reader);
}

/* Is it being passed through to somebody? What else comes of it then is his. */
static bool is_passed_locked(struct fill_shard *s, struct id data_id, uint64_t number)
{
    LIST_EACH(&s->fetches, struct fetch, table, f)
        if (f->passes && is_of(f, data_id, number))
            return true;
    return false;
}

bool inflight_may_fill_locked(struct core *c, struct fill_shard *s, const struct fetch *f)
{
    LIST_EACH(&s->fetches, struct fetch, table, other)
        if (other != f && other->fills && is_of(other, f->data_id, f->number) && !is_lost(other))
            return false;
    return cache_epoch_holds(c->server->cache, f->epoch);
}

void inflight_list_locked(struct fill_shard *s, struct fetch *f)
{
    must(!node_linked(&f->table));
    list_push(&s->fetches, &f->table);
}

void inflight_unlist_locked(struct fetch *f)
{
    if (node_linked(&f->table))
        node_remove(&f->table);
}

/* ---- waiting for blocks ---- */

static void wait_heard(struct core *c, struct message *msg)
{
    struct wait *w = container_of(msg, struct wait, msg);
    (void)c;
    w->busy = false;
    w->ended = true;
    w->m->inflight--;
    machine_wake(w->m);
}

static struct origin *origin_of(struct core *c, const struct wait *w)
{
    return c->server->origin[w->epoch.upstream];
}

void wait_answer(struct core *c, struct wait *w, enum err err, struct buffer *b)
{
    node_remove(&w->node);
    origin_reader_has(origin_of(c, w), c);
    w->err = err;
    w->got = b;
    core_send(w->m->core, &w->msg);
}

void inflight_deliver(struct core *c, struct fetch *f, unsigned block, struct buffer *b)
{
    struct part came = inflight_part(f, block);
    f->sure &= (uint8_t) ~(1u << block);
    LIST_EACH(&f->waiters, struct wait, node, w) {
        if (w->block != block || (b && !holds(came, w->from, w->to)))
            continue;
        w->got_at = came.from;
        w->got_bytes = b ? b->len : 0;
        if (b)
            pool_hold(b);
        wait_answer(c, w, OK, b);    /* without a buffer: it is on disk, look again */
    }
}

/* Of the block that is being filled, from its first byte: does it end before the block does? */
static bool is_of_part(const struct fetch *f, const struct wait *w)
{
    struct part coming = inflight_part(f, f->at);

    return w->block == f->at && w->from >= coming.from && w->to < coming.to;
}

uint32_t inflight_next_part(struct core *c, struct fetch *f)
{
    struct fill_shard *s = fill_shard(c, f->shard);
    uint32_t next = UINT32_MAX, from = inflight_part(f, f->at).from;

    shard_lock(s);
    LIST_EACH(&f->waiters, struct wait, node, w)
        if (is_of_part(f, w) && w->to - from > f->got && w->to - from < next)
            next = w->to - from;
    shard_unlock(s);
    return next;
}

void inflight_deliver_part(struct core *c, struct fetch *f)
{
    struct fill_shard *s = fill_shard(c, f->shard);
    uint32_t from = inflight_part(f, f->at).from;

    shard_lock(s);
    LIST_EACH(&f->waiters, struct wait, node, w) {
        if (!is_of_part(f, w) || w->to - from > f->got)
            continue;
        w->got_at = from;
        w->got_bytes = f->got;
        w->part = true;
        w->first = w->to - from > f->given;
        f->given = (uint32_t)max_u64(f->given, w->to - from);
        pool_hold(f->filling);
        wait_answer(c, w, OK, f->filling);
    }
    shard_unlock(s);
}

void inflight_fail(struct core *c, struct fetch *f, enum err why)
{
    struct fill_shard *s = fill_shard(c, f->shard);
    shard_lock(s);
    inflight_unlist_locked(f);
    LIST_EACH(&f->waiters, struct wait, node, w) {
        w->status = f->refused;
        wait_answer(c, w, why, NULL);
    }
    shard_unlock(s);
}

/* Ends a wait on the spot: nothing could be started. */
static enum fill_turn refuse_wait(struct wait *w, enum err why)
{
    w->err = why;
    w->ended = true;
    machine_wake(w->m);
    return FILL_WAITS;
}

static void poke_locked(struct fetch *f)
{
    if (f->poked)
        return;
    f->poked = true;
    core_send(f->m.core, &f->poke);
}

/* What is passed through is settled: joined is what will come anyway. */
static void link_wait(struct fetch *f, struct wait *w, uint32_t upto)
{
    list_push(&f->waiters, &w->node);
    w->busy = true;
    w->m->inflight++;
    f->follows = f->follows || w->follows;
    origin_reader_waits(origin_of(f->m.core, w));
    if (!f->passes)
        inflight_ask_locked(f, (struct part){w->from, (uint32_t)max_u64(upto, w->to)});
    if (w->block + PACE > atomic_load_explicit(&f->pace, memory_order_relaxed))
        atomic_store_explicit(&f->pace, (uint8_t)(w->block + PACE), memory_order_relaxed);
    poke_locked(f);
}

static enum fill_turn join(struct fetch *f, struct wait *w, uint32_t upto)
{
    switch ((enum block_state)f->state[w->block]) {
    case BLOCK_HERE:
        w->got = f->here[w->block];
        w->got_at = inflight_part(f, w->block).from;
        w->got_bytes = w->got->len;
        w->err = OK;
        pool_hold(w->got);
        return FILL_GOT;
    case BLOCK_DISK: return FILL_LOOK;
    case BLOCK_POOL:                 /* it came, and is not in the pool */
        f->state[w->block] = BLOCK_NEED;
        break;
    case BLOCK_NEED: break;
    }
    metric_add(w->m->core->metrics, METRIC_FETCH_JOINED_TOTAL, 0, 1);
    link_wait(f, w, upto);
    return FILL_WAITS;
}

static struct fetch *make_chunk_fetch(struct core *c, struct object *o, uint64_t number,
                                      const struct wait *like)
{
    struct fetch *f = fetch_make(c);
    if (!f)
        return NULL;
    object_hold(o);
    f->object = o;
    f->data_id = o->data_id;
    f->number = number;
    f->epoch = like->epoch;
    f->profile = like->profile;
    f->hint = like->hint;
    f->told = like->told;
    f->bytes = object_chunk_bytes(o, number);
    f->blocks = (f->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    f->shard = shard_of_chunk(f->data_id, number);
    return f;
}

enum fill_turn fill_want(struct core *c, struct object *o, uint64_t number, uint32_t upto,
                         struct wait *w)
{
    must(!w->busy && number * CHUNK_BYTES < o->size && w->from < w->to);
    must(w->from / BLOCK_BYTES == (w->to - 1) / BLOCK_BYTES);
    w->msg.deliver = wait_heard;
    w->ended = false;
    w->got = NULL;
    w->part = false;
    w->status = 0;
    w->block = (uint8_t)(w->from / BLOCK_BYTES);
    w->shard = shard_of_chunk(o->data_id, number);
    if (atomic_load_explicit(&o->flags, memory_order_acquire) & OBJECT_DISTRUSTED)
        return refuse_wait(w, ERR_UPSTREAM_PROTOCOL);
    /* An early one is told that the chunk is under way, which an asking is not sure of. */
    if (!w->early && !w->looked && asking_awaits(c, o, number, w))
        return FILL_WAITS;
    struct fill_shard *s = fill_shard(c, w->shard);
    shard_lock(s);
    /* What nobody waits for would come twice, or be lost. */
    if (is_passed_locked(s, o->data_id, number) ||
        !cache_epoch_holds(c->server->cache, w->epoch))
        upto = w->to;
    struct fetch *f = find_locked(c, o->data_id, number, w);
    if (f) {
        enum fill_turn turn = join(f, w, upto);
        shard_unlock(s);
        return turn;
    }
    f = make_chunk_fetch(c, o, number, w);
    if (f) {
        /* Its first step comes anyway: nobody has to wake it. */
        f->poked = true;
        link_wait(f, w, upto);
        f->poked = false;
        inflight_list_locked(s, f);
    }
    shard_unlock(s);
    return f ? FILL_WAITS : FILL_FULL;
}

bool fill_is_sure(struct core *c, const struct object *o, uint64_t number, const struct wait *w)
{
    struct fill_shard *s = fill_shard(c, shard_of_chunk(o->data_id, number));
    unsigned block = w->from / BLOCK_BYTES;
    shard_lock(s);
    const struct fetch *f = find_locked(c, o->data_id, number, w);
    uint8_t state = f ? f->state[block] : BLOCK_POOL;
    bool sure = f && (f->sure >> block & 1 || state == BLOCK_HERE || state == BLOCK_DISK);
    shard_unlock(s);
    return sure;
}

/* false: it was taken out already, by who will send its message. */
static bool take_out(struct core *c, uint8_t shard, struct node *node)
{
    struct fill_shard *s = fill_shard(c, shard);
    shard_lock(s);
    bool linked = node_linked(node);
    if (linked)
        node_remove(node);
    shard_unlock(s);
    return linked;
}

bool fill_leave(struct core *c, struct wait *w)
{
    if (!w->busy)
        return true;
    bool linked = take_out(c, w->shard, &w->node);
    if (linked) {
        origin_reader_has(origin_of(c, w), c);
        w->busy = false;
        w->m->inflight--;
    }
    return linked;
}

bool fill_ahead(struct core *c, struct object *o, uint64_t number, unsigned distance,
                const struct wait *like)
{
    struct fills *fills = c->server->fills;
    if (!cache_epoch_holds(c->server->cache, like->epoch))
        return true;                 /* what it brings could not be kept for the reader */
    if (asking_brings(c, o, number, like))
        return true;
    struct fill_shard *s = fill_shard(c, shard_of_chunk(o->data_id, number));
    shard_lock(s);
    struct fetch *f = find_locked(c, o->data_id, number, like);
    if (f) {
        f->follows = true;
        poke_locked(f);
        shard_unlock(s);
        return true;
    }
    uint32_t most = c->settings->config->prefetch_inflight;
    if (atomic_load_explicit(&fills->ahead, memory_order_relaxed) < streams_room(most, distance))
        f = make_chunk_fetch(c, o, number, like);
    if (f) {
        f->ahead = true;
        f->distance = (uint8_t)min_u64(distance, UINT8_MAX);
        metric_gauge_add(METRIC_FETCHES_IN_FLIGHT, PURPOSE_DEMAND, -1);
        metric_gauge_add(METRIC_FETCHES_IN_FLIGHT, PURPOSE_READAHEAD, 1);
        atomic_fetch_add_explicit(&fills->ahead, 1, memory_order_relaxed);
        inflight_ask_locked(f, (struct part){like->from, like->to});
        atomic_store_explicit(&f->pace, 0, memory_order_relaxed);
        inflight_list_locked(s, f);
    }
    shard_unlock(s);
    return f != NULL;
}

/* ---- watching what nobody reads yet ---- */

static void watch_heard(struct core *c, struct message *msg)
{
    struct fetch_watch *w = container_of(msg, struct fetch_watch, msg);
    (void)c;
    w->busy = false;
    w->ended = true;
    w->m->inflight--;
    machine_wake(w->m);
}

static _Atomic int64_t *count_of(struct core *c, bool plan, bool background)
{
    struct fills *fills = c->server->fills;

    return plan ? &fills->planning : background ? &fills->filling : &fills->warming;
}

static struct fetch *make_warming(struct core *c, struct object *o, uint64_t number,
                                  const struct fetch_watch *w)
{
    const struct wait like = {.epoch = w->epoch, .profile = w->profile};
    _Atomic int64_t *count = count_of(c, w->plan, w->background);
    struct fetch *f = NULL;
    if (atomic_load_explicit(count, memory_order_relaxed) < c->settings->config->prefetch_inflight)
        f = make_chunk_fetch(c, o, number, &like);
    if (!f)
        return NULL;
    fetch_set_prewarm(f, w->plan, w->background);
    f->warming = true;
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    inflight_ask_locked(f, (struct part){0, f->bytes});
    return f;
}

bool fill_prewarm(struct core *c, struct object *o, uint64_t number, struct fetch_watch *w)
{
    const struct wait like = {.epoch = w->epoch, .profile = w->profile};
    must(!w->busy && number * CHUNK_BYTES < o->size);
    w->msg.deliver = watch_heard;
    w->ended = false;
    w->shard = shard_of_chunk(o->data_id, number);
    struct fill_shard *s = fill_shard(c, w->shard);
    shard_lock(s);
    struct fetch *f = find_locked(c, o->data_id, number, &like), *made = NULL;
    if (!f)
        f = made = make_warming(c, o, number, w);
    if (made)
        inflight_list_locked(s, made);
    if (f && !made && f->keeps) {    /* to him the rest is no rest */
        inflight_ask_locked(f, (struct part){0, f->bytes});
        poke_locked(f);
    }
    if (f) {
        list_push(&f->watchers, &w->node);
        w->busy = true;
        w->m->inflight++;
    }
    shard_unlock(s);
    return f != NULL;
}

bool fill_leave_prewarm(struct core *c, struct fetch_watch *w)
{
    if (!w->busy)
        return true;
    bool linked = take_out(c, w->shard, &w->node);
    if (linked) {
        w->busy = false;
        w->m->inflight--;
    }
    return linked;
}

void inflight_over(struct core *c, struct fetch *f)
{
    struct fill_shard *s = fill_shard(c, f->shard);
    shard_lock(s);
    must(!node_linked(&f->table));
    LIST_EACH(&f->watchers, struct fetch_watch, node, w) {
        node_remove(&w->node);
        w->err = f->m.why;
        w->status = f->refused;
        w->kept = f->keeps;
        w->refuse = f->refuse;
        core_send(w->m->core, &w->msg);
    }
    shard_unlock(s);
    if (f->warming)
        atomic_fetch_sub_explicit(count_of(c, f->plan, f->background), 1, memory_order_relaxed);
}

/* ---- short memories ---- */

void fill_note_missing(struct core *c, struct id id, struct epoch asked,
                       const struct upstream_error *e)
{
    struct fill_shard *s = fill_shard(c, shard_of_object(id));
    shard_lock(s);
    s->negative[id.b % NEGATIVE_ENTRIES] = (struct negative){id, asked, c->now_ms, *e};
    shard_unlock(s);
}

bool fill_known_missing(struct core *c, const struct okey *k, uint64_t ttl_ms,
                        struct upstream_error *out)
{
    if (ttl_ms == 0)
        return false;
    struct fill_shard *s = fill_shard(c, shard_of_object(k->id));
    shard_lock(s);
    const struct negative *n = &s->negative[k->id.b % NEGATIVE_ENTRIES];
    bool missing = id_eq(n->id, k->id) && c->now_ms < n->at_ms + ttl_ms &&
                   cache_epoch_holds(c->server->cache, n->epoch);
    if (missing)
        *out = n->error;
    shard_unlock(s);
    return missing;
}

void fill_forget_buckets(struct core *c)
{
    for (unsigned i = 0; i < FILL_SHARDS; i++) {
        struct fill_shard *s = fill_shard(c, (uint8_t)i);
        shard_lock(s);
        for (unsigned n = 0; n < NEGATIVE_ENTRIES; n++)
            if (span_is(span_of(s->negative[n].error.code), "NoSuchBucket"))
                s->negative[n].id = (struct id){0, 0};
        shard_unlock(s);
    }
}

void fill_note_died(struct core *c, struct id id)
{
    struct fill_shard *s = fill_shard(c, shard_of_object(id));
    shard_lock(s);
    s->died[id.b % DIED_ENTRIES] = (struct died){id, c->now_ms};
    shard_unlock(s);
}

bool fill_died_lately(struct core *c, struct id id)
{
    struct fill_shard *s = fill_shard(c, shard_of_object(id));
    shard_lock(s);
    const struct died *d = &s->died[id.b % DIED_ENTRIES];
    bool lately = id_eq(d->id, id) && d->at_ms + DIED_MS > c->now_ms;
    shard_unlock(s);
    return lately;
}

/* ---- start and end ---- */

struct streams *fill_streams(struct core *c)
{
    return c->server->fills->streams;
}

enum err fills_open(struct server *s)
{
    struct fills *fills = mem_take(sizeof(*fills));
    if (!fills)
        return ERR_MEMORY;
    fills->shard = mem_take(FILL_SHARDS * sizeof(*fills->shard));
    fills->streams = streams_open();
    fills->read_by = mem_take(s->core_count * sizeof *fills->read_by);
    if (!fills->shard || !fills->streams || !fills->read_by || wholes_open(fills) != OK) {
        mem_give(fills->read_by);
        streams_close(fills->streams);
        mem_give(fills->shard);
        mem_give(fills);
        return ERR_MEMORY;
    }
    for (unsigned i = 0; i < FILL_SHARDS; i++) {
        pthread_mutex_init(&fills->shard[i].lock, NULL);
        list_init(&fills->shard[i].fetches);
        list_init(&fills->shard[i].askings);
    }
    s->fills = fills;
    return OK;
}

void fills_close(struct server *s)
{
    if (!s->fills)
        return;
    for (unsigned i = 0; i < FILL_SHARDS; i++)
        pthread_mutex_destroy(&s->fills->shard[i].lock);
    follow_close(s);
    wholes_close(s->fills);
    streams_close(s->fills->streams);
    mem_give(s->fills->shard);
    mem_give(s->fills);
    s->fills = NULL;
}
