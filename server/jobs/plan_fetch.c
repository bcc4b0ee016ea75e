/* What is fetched ahead of a plan's readers: what a key is, then its chunks, the nearest to a
 * reader first.
 *
 * Invariants:
 *  1. Of all streams the one goes on whose reader has the fewest bytes in front of him. What he has
 *     passed is not begun any more.
 *  2. What was fetched for a plan and not read yet is no more than the window: enough for a second,
 *     and a quarter of the cache at most. At most prefetch.inflight fetches are under way.
 *  3. A plan may have as much of it as all plans leave of two windows, and always one chunk. So one
 *     alone has a whole window, n that fetch have 2/(n + 1) each, one that nobody reads leaves the
 *     next one half of what it found, and all together have two windows and a chunk each at most.
 *     The same goes for how far is looked, and for places in the table.
 *  4. What is here already, and may be used, is not asked for; what would be asked for when its
 *     reader comes, because it is too old, is asked for before.
 *
 * Life: called by the machine's step only (plan_run.c).
 * Failure: an object is tried TRIES_MAX times, then it is its reader's. What was under way when a
 * try failed belongs to that try, and a chunk that comes forgives them all. While upstream is away
 * nothing is asked, and no try counts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "server/jobs/plan.h"

enum {
    LOOKS_PER_TURN = 256,
    TRIES_MAX = 4,
    AGAIN_MS = 250,
    EARLY_US = 200 * 1000,           /* of facts.rate may be used at once */
    MEMORY_EACH = 12 * MIB,          /* of cache.memory for each fetch under way, as in warm.c */
    LEAD_LEAST = 64, LEADS = 64 * 1024, /* entries in front of one reader, and of all */
};

static struct cache *cache_of(const struct planner *n)
{
    return n->plans->server->cache;
}

/* ---- limits ---- */
static unsigned under_way(const struct planner *n)
{
    unsigned count = 0;

    for (unsigned i = 0; i < PLAN_FETCHES; i++)
        count += n->fetch[i].plan != NULL;
    return count;
}

static struct plan_fetch *free_fetch(struct planner *n)
{
    const struct config *config = n->m.core->settings->config;
    uint64_t most = min_u64(config->prefetch_inflight, config->cache_memory / MEMORY_EACH);

    if (under_way(n) >= min_u64(max_u64(most, 1), PLAN_FETCHES))
        return NULL;
    for (unsigned i = 0; i < PLAN_FETCHES; i++)
        if (!n->fetch[i].plan)
            return &n->fetch[i];
    return NULL;
}

/* Invariant 3, of a plan that has `own` of what all have. */
static bool has_room(uint64_t own, uint64_t all, uint64_t more, uint64_t limit)
{
    return own == 0 || own + all + 2 * more <= 2 * limit;
}

/* Is there anything that it may fetch, or look at? */
static bool may_go_on(const struct planner *n, const struct plan *p)
{
    return has_room(p->staged_bytes, n->staged_bytes, CHUNK_BYTES, n->window) &&
        has_room(p->distance, n->distance, 1, n->far);
}

/* May the plan ask for so many bytes now? Then they are paid for. What refuses one of its streams
 * whatever it asks for refuses all of them: the plan rests. */
static bool may_ask(struct planner *n, struct plan *p, uint64_t bytes)
{
    uint64_t now = n->m.core->now_us;

    p->rests = !has_room(p->staged_count, n->staged_count, 1, PLAN_STAGED_MAX) ||
        (p->facts.rate > 0 && p->due_us > now);
    if (p->rests || !has_room(p->staged_bytes, n->staged_bytes, bytes, n->window))
        return false;
    if (p->facts.rate == 0)
        return true;
    p->due_us = max_u64(p->due_us, now - EARLY_US) + bytes * 1000000 / p->facts.rate;
    return true;
}

static void stage(struct planner *n, const struct plan_fetch *f, uint64_t bytes)
{
    const struct plan_entry *e = &f->plan->entry[f->entry];

    must(n->staged_count < ARRAY_COUNT(n->staged)); /* invariant 3 */
    n->staged[n->staged_count++] = (struct plan_staged){
        .plan = f->plan, .stream = e->stream,
        .position = f->entry - f->plan->stream[e->stream].start, .bytes = (uint32_t)bytes,
        .number = f->number};
    n->staged_bytes += bytes;
    f->plan->staged_bytes += bytes;
    f->plan->staged_count++;
}

static void unstage_at(struct planner *n, unsigned i)
{
    struct plan *p = n->staged[i].plan;

    n->staged_bytes -= n->staged[i].bytes;
    p->staged_bytes -= n->staged[i].bytes;
    p->staged_count--;
    n->staged[i] = n->staged[--n->staged_count];
}

static void unstage(struct planner *n, const struct plan_fetch *f)
{
    const struct plan_entry *e = &f->plan->entry[f->entry];
    uint32_t position = f->entry - f->plan->stream[e->stream].start;

    for (unsigned i = 0; i < n->staged_count; i++) {
        const struct plan_staged *s = &n->staged[i];
        if (s->plan == f->plan && s->stream == e->stream && s->position == position &&
            s->number == f->number) {
            unstage_at(n, i);
            return;
        }
    }
}

static bool was_read(const struct plan_staged *s)
{
    const struct plan_stream *t = &s->plan->stream[s->stream];

    return t->at > s->position ||
        (t->at == s->position && t->begun && t->offset > s->number * CHUNK_BYTES);
}

/* ---- what becomes of an object ---- */
static struct plan_object *object_of(const struct plan_fetch *f)
{
    return &f->plan->object[f->plan->entry[f->entry].object];
}

static void give_up(struct plan *p, struct plan_object *o, enum plan_object_state state)
{
    char memory[KEY_BYTES_MAX + 1];
    bool missing = state == PLANNED_MISSING;

    if (o->state == PLANNED_KNOWN) {
        p->known--;
        p->known_bytes -= o->size;
    }
    o->state = (uint8_t)state;
    p->now.unknown += missing;
    p->now.failed += !missing;
    if (!missing || p->now.name_count == PLAN_NAMES_MAX)
        return;
    struct okey k = plan_key(p, o, memory);
    memcpy(p->now.name[p->now.name_count], k.key.at, k.key.len);
    p->now.name[p->now.name_count++][k.key.len] = '\0';
}

static void note_size(struct plan *p, struct plan_object *o, uint64_t size)
{
    if (o->state == PLANNED_KNOWN) {
        p->known--;
        p->known_bytes -= o->size;
    }
    o->state = PLANNED_KNOWN;
    o->size = size;
    p->known++;
    p->known_bytes += size;
}

/* The stream looks at the entry again, from that chunk on, if its reader is not behind it yet. */
static void look_again(const struct plan_fetch *f, uint64_t number)
{
    struct plan_stream *t = &f->plan->stream[f->plan->entry[f->entry].stream];
    uint32_t position = f->entry - t->start;
    bool passed = position < t->at;
    bool in_front = t->ahead < position || (t->ahead == position && t->chunk <= number);

    if (passed || in_front)
        return;
    t->ahead = position;
    t->chunk = number;
}

static bool is_final(enum err err, unsigned status)
{
    return err == ERR_NOT_FOUND || err == ERR_DENIED || err == ERR_UNSUPPORTED ||
        (err == ERR_UPSTREAM_STATUS && status < 500 && status != 429);
}

/* Many chunks of an object are under way at once, and what breaks one breaks all: those that were
 * begun before the stream rested for the last try failed with it. */
static void failed(struct planner *n, const struct plan_fetch *f, enum err err, unsigned status)
{
    struct plan_object *o = object_of(f);
    struct plan_stream *t = &f->plan->stream[f->plan->entry[f->entry].stream];

    unstage(n, f);
    if (o->state > PLANNED_KNOWN)
        return;
    bool final = is_final(err, status), same = f->begun_ms < t->again_ms;
    bool away = !final && origin_is_down(n->plans->server->origin[f->plan->upstream]);
    if (final || (!away && !same && ++o->tries >= TRIES_MAX)) {
        give_up(f->plan, o, err == ERR_NOT_FOUND ? PLANNED_MISSING : PLANNED_FAILED);
        return;
    }
    if (!same)
        t->again_ms = n->m.core->now_ms + ((uint64_t)AGAIN_MS << o->tries);
    look_again(f, f->number);
}

/* ---- what has ended ---- */
static bool is_here(struct planner *n, const struct object *o, uint64_t number)
{
    struct chunk *k = chunk_find(cache_of(n), o->data_id, number);
    uint32_t blocks = (object_chunk_bytes(o, number) + BLOCK_BYTES - 1) / BLOCK_BYTES;

    if (!k)
        return false;
    bool whole = chunk_present(cache_of(n), k) == (1U << blocks) - 1;
    if (whole)
        chunk_keep(cache_of(n), k);
    chunk_drop(cache_of(n), k);
    return whole;
}

/* false: not now. */
static bool watch(struct planner *n, struct plan_fetch *f, struct object *o, struct epoch epoch)
{
    f->asks = false;
    f->bytes = object_chunk_bytes(o, f->number);
    f->watch = (struct fetch_watch){
        .m = &n->m, .epoch = epoch, .profile = f->plan->facts.profile, .plan = true};
    return fill_prewarm(n->m.core, o, f->number, &f->watch);
}

static void let_go(struct plan_fetch *f)
{
    f->plan->fetches--;
    f->plan = NULL;
}

static void judge_learn(struct planner *n, struct plan_fetch *f)
{
    struct plan_object *o = object_of(f);
    struct object *known = f->learn.object;
    bool came = f->learn.kind == LEARN_GET;

    o->asking = false;
    o->asked = true;
    if (f->learn.err != OK) {
        failed(n, f, f->learn.err, f->learn.upstream.status);
        let_go(f);
        return;
    }
    note_size(f->plan, o, known->size);
    /* Its first chunk came along, or was here; what else it has is looked at now. */
    bool here = known->size == 0 || is_here(n, known, f->number);
    if (known->size > CHUNK_BYTES || (!came && !here))
        look_again(f, came || here ? f->number + 1 : 0);
    bool watched = came && !here && watch(n, f, known, f->learn.epoch);
    object_drop(cache_of(n), known);
    if (!watched)
        let_go(f);
}

static void judge_chunk(struct planner *n, struct plan_fetch *f)
{
    const struct fetch_watch *w = &f->watch;

    if (w->err != OK) {
        failed(n, f, w->err, w->status);
    } else if (!w->kept) {
        unstage(n, f);
        snprintf(f->plan->now.note, sizeof f->plan->now.note,
                 "there is no room in the cache for what is fetched ahead");
    } else {
        f->plan->now.note[0] = '\0';
        object_of(f)->tries = 0;
        n->came_bytes += f->bytes;
    }
    let_go(f);
}

void plan_fetch_reap(struct planner *n)
{
    for (unsigned i = 0; i < PLAN_FETCHES; i++) {
        struct plan_fetch *f = &n->fetch[i];
        if (!f->plan)
            continue;
        if (f->asks && learn_take(&f->learn))
            judge_learn(n, f);
        else if (!f->asks && watch_take(&f->watch))
            judge_chunk(n, f);
    }
}

bool plan_fetch_leave(struct planner *n, const struct plan *p)
{
    bool left = true;

    for (unsigned i = 0; i < PLAN_FETCHES; i++) {
        struct plan_fetch *f = &n->fetch[i];
        if (!f->plan || (p && f->plan != p))
            continue;
        bool over = f->asks ? f->learn.ended || fill_leave_learn(n->m.core, &f->learn)
                            : f->watch.ended || fill_leave_prewarm(n->m.core, &f->watch);
        if (over && f->asks && learn_take(&f->learn) && f->learn.err == OK)
            object_drop(cache_of(n), f->learn.object);
        if (over)
            let_go(f);
        left = left && over;
    }
    for (unsigned i = n->staged_count; i > 0; i--)
        if (!p || n->staged[i - 1].plan == p)
            unstage_at(n, i - 1);
    return left;
}

/* ---- looking ---- */
/* Did one of our fetches begin to bring it already, with its answer or for another stream? */
static bool is_coming(const struct planner *n, const struct plan *p, uint32_t object,
                      uint64_t number)
{
    bool comes = false;

    for (unsigned i = 0; i < PLAN_FETCHES && !comes; i++) {
        const struct plan_fetch *f = &n->fetch[i];
        bool bytes = !f->asks || f->learn.kind == LEARN_GET;
        comes = f->plan == p && bytes && f->number == number &&
            p->entry[f->entry].object == object;
    }
    return comes;
}

static void note_looked(struct planner *n, struct plan *p, struct plan_stream *t, uint64_t bytes)
{
    t->distance += bytes;
    p->distance += bytes;
    n->distance += bytes;
}

enum looked { LOOKED_ON, LOOKED_RESTS };

static enum looked next_entry(struct plan_stream *t)
{
    t->ahead++;
    t->chunk = 0;
    return LOOKED_ON;
}

/* Objects of several chunks each hide by themselves what it takes to ask for the next one. */
static bool objects_are_large(const struct plan *p)
{
    return p->known == 0 || p->known_bytes / p->known > CHUNK_BYTES;
}

/* Somebody asks what the entry's object is. */
static enum looked pass_asking(struct planner *n, struct plan *p, struct plan_stream *t,
                               const struct plan_object *o)
{
    if (objects_are_large(p))
        return LOOKED_RESTS;
    note_looked(n, p, t, plan_size_guess(p, o));
    return next_entry(t);
}

static enum looked ask(struct planner *n, struct plan *p, struct plan_stream *t, bool whole)
{
    uint32_t entry = t->start + t->ahead;
    struct plan_object *o = &p->object[p->entry[entry].object];
    char memory[KEY_BYTES_MAX + 1];

    if (o->asking)
        return pass_asking(n, p, t, o);
    bool bytes = whole && p->entry[entry].ranges == PLAN_NONE;
    struct plan_fetch *f = free_fetch(n);
    uint64_t staged = bytes ? min_u64(max_u64(plan_size_guess(p, o), 1), CHUNK_BYTES) : 0;
    if (!f || !may_ask(n, p, staged))
        return LOOKED_RESTS;
    struct okey k = plan_key(p, o, memory);
    *f = (struct plan_fetch){
        .plan = p, .entry = entry, .asks = true, .begun_ms = n->m.core->now_ms};
    f->learn = (struct learn){.m = &n->m, .kind = bytes ? LEARN_GET : LEARN_HEAD,
        .profile = p->facts.profile, .to = bytes ? CHUNK_BYTES - 1 : UINT64_MAX, .patient = true,
        .prewarm = true, .plan = true};
    p->fetches++;
    o->asking = true;
    if (bytes)
        stage(n, f, staged);
    fill_learn(n->m.core, &k, &f->learn, false);
    return pass_asking(n, p, t, o);
}

/* Would its reader ask upstream, for its age or for what is said of it? */
static bool is_old(const struct planner *n, const struct plan *p, const struct object *o,
                   struct span key)
{
    const struct conf_bucket *rule =
        conf_bucket(n->m.core->settings->config, p->client_bucket, key);
    uint64_t checked = atomic_load(&o->checked_ms), now_ms = clock_wall_ms();

    if (rule->immutable || rule->ttl_ms == 0)
        return false;
    return checked > now_ms || now_ms - checked >= rule->ttl_ms / 2; /* ahead: it was set back */
}

static bool is_usable(const struct object *o)
{
    return !(atomic_load(&o->flags) & (OBJECT_DOUBT | OBJECT_GONE | OBJECT_DISTRUSTED));
}

static enum looked bring(struct planner *n, struct plan *p, struct plan_stream *t,
                         struct object *known, struct epoch epoch)
{
    const struct plan_entry *e = &p->entry[t->start + t->ahead];
    uint64_t first;

    if (!plan_entry_wants(p, e, t->chunk, &first))
        return next_entry(t);
    uint32_t bytes = object_chunk_bytes(known, first);
    t->chunk = first;
    if (!is_coming(n, p, e->object, first) && !is_here(n, known, first)) {
        struct plan_fetch *f = free_fetch(n);
        if (!f || !may_ask(n, p, bytes))
            return LOOKED_RESTS;
        *f = (struct plan_fetch){.plan = p, .entry = t->start + t->ahead, .number = first,
                                 .begun_ms = n->m.core->now_ms};
        if (!watch(n, f, known, epoch)) {
            f->plan = NULL;
            return LOOKED_RESTS;
        }
        p->fetches++;
        stage(n, f, bytes);
    }
    t->chunk++;
    note_looked(n, p, t, bytes);
    return LOOKED_ON;
}

static enum looked look(struct planner *n, struct plan *p, struct plan_stream *t)
{
    struct plan_object *o = &p->object[p->entry[t->start + t->ahead].object];
    char memory[KEY_BYTES_MAX + 1];

    if (o->state > PLANNED_KNOWN)
        return next_entry(t);
    struct okey k = plan_key(p, o, memory);
    struct epoch epoch = cache_epoch(cache_of(n), &k);
    struct object *known = cache_find(cache_of(n), &k);
    bool usable = known && is_usable(known);
    bool old = usable && !o->asked && is_old(n, p, known, k.key);
    if (usable && (o->state != PLANNED_KNOWN || o->size != known->size))
        note_size(p, o, known->size);
    enum looked looked = usable && !old ? bring(n, p, t, known, epoch) : ask(n, p, t, !old);
    if (known)
        object_drop(cache_of(n), known);
    return looked;
}

/* ---- whose turn it is ---- */
/* Entries in front of a reader that may be looked at. */
static uint32_t most_leads(const struct plan *p)
{
    uint64_t most = max_u64(LEADS / p->stream_count, LEAD_LEAST);

    if (p->facts.horizon > 0)
        most = min_u64(most, max_u64(p->facts.horizon / p->stream_count, 1));
    return (uint32_t)most;
}

static bool may_look(const struct planner *n, const struct plan *p)
{
    if (p->entry_count == 0 || p->dropped || plan_is_over(p) ||
        origin_is_down(n->plans->server->origin[p->upstream]))
        return false;
    const struct plan *before = p->before;
    return !before || before->done_looking;
}

static struct plan_stream *nearest(struct planner *n, struct plan **of)
{
    struct plan_stream *best = NULL;

    for (unsigned i = 0; i < n->count; i++) {
        struct plan *p = n->plan[i];
        uint32_t most = may_look(n, p) ? most_leads(p) : 0;
        bool room = !p->rests && may_go_on(n, p);
        p->done_looking = most > 0;
        for (uint32_t s = 0; s < p->stream_count && most > 0; s++) {
            struct plan_stream *t = &p->stream[s];
            bool over = t->ahead >= t->count;
            p->done_looking = p->done_looking && over;
            if (over || !room || t->rests || t->ahead - t->at > most ||
                (best && best->distance <= t->distance))
                continue;
            best = t;
            *of = p;
        }
    }
    return best;
}

static void let_all_look(struct planner *n)
{
    uint64_t now_ms = n->m.core->now_ms;

    for (unsigned i = 0; i < n->count; i++) {
        struct plan *p = n->plan[i];
        p->rests = false;
        for (uint32_t s = 0; s < p->stream_count; s++)
            p->stream[s].rests = p->stream[s].again_ms > now_ms;
    }
}

bool plan_fetch_more(struct planner *n)
{
    bool moved = false;

    let_all_look(n);
    for (unsigned step = 0; step < LOOKS_PER_TURN; step++) {
        struct plan *p = NULL;
        struct plan_stream *t = free_fetch(n) ? nearest(n, &p) : NULL;
        if (!t)
            return true;
        t->rests = look(n, p, t) == LOOKED_RESTS;
        moved = moved || !t->rests;
    }
    return !moved;                   /* what so many rest for is not over in the next turn */
}

void plan_fetch_tick(struct planner *n)
{
    for (unsigned i = n->staged_count; i > 0; i--)
        if (was_read(&n->staged[i - 1]))
            unstage_at(n, i - 1);
    n->distance = 0;
    for (unsigned i = 0; i < n->count; i++) {
        struct plan *p = n->plan[i];
        uint64_t least = UINT64_MAX, readers = 0;
        p->distance = 0;
        for (uint32_t s = 0; s < p->stream_count; s++) {
            struct plan_stream *t = &p->stream[s];
            plan_measure(p, t);
            p->distance += t->distance;
            if (t->at + t->begun >= plan_stream_end(p, t))
                continue;
            readers++;
            least = min_u64(least, t->distance);
        }
        n->distance += p->distance;
        p->now.ahead_bytes = readers > 0 ? least * readers : 0;
    }
}
