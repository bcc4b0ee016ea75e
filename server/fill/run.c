/* One request of a fetch for a run of blocks: which ones, what is asked, and whether the answer is
 * one to it.
 *
 * Invariants:
 *  1. It is asked for with If-Match; an answer with another generation, range, length or status is
 *     refused before a byte of it is taken.
 *  2. While many wait for upstream a run ends where nobody asked for what follows: the rest of the
 *     chunk is a run of its own. But an object of one chunk is not left without it: what came is
 *     held until all of it is compared with its checksum.
 *
 * Life: used by fetch.c behind the contact. Failure: ERR_CHANGED ends the generation, all else is
 * upstream's refusal or an answer that cannot be trusted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/fill/fill.h"

enum { RESTS_PER_CONNECTION = 4 };

/* ---- what is asked ---- */

static bool is_wanted(const struct fetch *f, unsigned block)
{
    return atomic_load_explicit(&f->wanted, memory_order_relaxed) >> block & 1;
}

/* It is not here, and no branch brings it. */
static bool is_missing(const struct fetch *f, unsigned block)
{
    return f->state[block] == BLOCK_NEED && !(f->branched >> block & 1);
}

static bool is_needed(const struct fetch *f, unsigned block)
{
    return is_missing(f, block) && is_wanted(f, block);
}

/* Blocks that somebody waits for. Lock held. */
static uint8_t awaited(const struct fetch *f)
{
    uint8_t blocks = 0;

    LIST_EACH(&f->waiters, struct wait, node, w)
        blocks |= (uint8_t)(1u << w->block);
    return blocks;
}

/* What is wanted now that it is known whether the chunk is kept. Lock held. */
void run_settle_locked(struct fetch *f)
{
    uint8_t wanted = atomic_load_explicit(&f->wanted, memory_order_relaxed);

    if (f->keeps && !(f->hint & HINT_RANDOM)) {
        uint8_t all = (uint8_t)((1u << f->blocks) - 1);
        f->rest = list_empty(&f->watchers) ? (uint8_t)(all & ~wanted) : 0;
        wanted = all;
    }
    if (!f->keeps && f->prewarm)     /* what else came would be lost */
        wanted = awaited(f);
    atomic_store_explicit(&f->wanted, wanted, memory_order_relaxed);
}

static bool is_rest(const struct fetch *f, unsigned block)
{
    return f->rest >> block & 1;
}

/* The block that somebody waits for, the first one; else the first needed that was asked for, else
 * the first needed. Lock held. */
static unsigned choose_first(struct fetch *f, const struct wait **who)
{
    const struct fill_core *fc = f->m.core->fill;
    unsigned first = f->blocks;

    *who = NULL;
    LIST_EACH(&f->waiters, struct wait, node, w)
        if (w->block < first && is_missing(f, w->block)) {
            first = w->block;
            *who = w;
        }
    for (unsigned b = 0; first == f->blocks && !fc->draining && b < f->blocks; b++)
        if (is_needed(f, b) && !is_rest(f, b))
            first = b;
    for (unsigned b = 0; first == f->blocks && !fc->draining && b < f->blocks; b++)
        if (is_needed(f, b))
            first = b;
    return first;
}

/* Its reader goes on to the rest; or it has to come in order, held until all of it match. */
static bool in_one(const struct fetch *f)
{
    return f->follows || f->object->size <= CHUNK_BYTES;
}

/* May the rest come in the answer that brings what was asked for? */
static bool takes_rest(const struct fetch *f)
{
    return in_one(f) || origin_is_calm(f->m.core->server->origin[f->epoch.upstream]);
}

static void set_resting(struct fetch *f, bool resting)
{
    _Atomic int64_t *count = &f->m.core->server->fills->resting;

    if (resting != f->resting)
        atomic_fetch_add_explicit(count, resting ? 1 : -1, memory_order_relaxed);
    f->resting = resting;
    f->rest_hurried = false;
}

void run_end(struct fetch *f)
{
    set_resting(f, false);
}

/* Each keeps its fetch, of which a core has so many, and its chunk. */
static bool rests_are_many(const struct fetch *f)
{
    const struct config *config = f->m.core->settings->config;
    int64_t most = (int64_t)config->upstream[f->epoch.upstream].connections * RESTS_PER_CONNECTION;

    return atomic_load_explicit(&f->m.core->server->fills->resting, memory_order_relaxed) > most;
}

void run_drop_rest_locked(struct fetch *f)
{
    uint8_t wanted = atomic_load_explicit(&f->wanted, memory_order_relaxed);

    atomic_store_explicit(&f->wanted, (uint8_t)(wanted & ~f->rest), memory_order_relaxed);
    f->rest = 0;
}

/* Is anything wanted of a chunk that is kept? Lock held. */
static bool is_any_needed(const struct fetch *f)
{
    const struct fill_core *fc = f->m.core->fill;

    for (unsigned b = 0; f->keeps && !fc->draining && b < f->blocks; b++)
        if (is_needed(f, b))
            return true;
    return false;
}

bool run_is_awaited_locked(const struct fetch *f)
{
    LIST_EACH(&f->waiters, struct wait, node, w)
        if (!(f->branched >> w->block & 1))
            return true;
    return false;
}

bool run_awaits_locked(const struct fetch *f, unsigned block)
{
    LIST_EACH(&f->waiters, struct wait, node, w)
        if (w->block == block)
            return true;
    return false;
}

bool run_is_due_locked(const struct fetch *f)
{
    return run_is_awaited_locked(f) || is_any_needed(f);
}

/* What comes of the next block follows what comes of this one. */
static bool goes_on(const struct fetch *f, unsigned block)
{
    return block + 1 < f->blocks && is_needed(f, block + 1) &&
           inflight_part(f, block).to == inflight_part(f, block + 1).from;
}

/* The next run: from the first block somebody waits for, else the first needed one, as far as
 * blocks are needed, and asked for. */
bool run_choose(struct fetch *f)
{
    const struct wait *who;
    struct fill_shard *s = fill_shard(f->m.core, f->shard);
    shard_lock(s);
    f->sure = 0;
    unsigned first = choose_first(f, &who), last = first;
    bool other = f->at != first;
    if (who && f->passes &&
        (who->from < f->part[first].from || who->to > f->part[first].to)) {
        f->part[first] = (struct part){who->from, who->to};
        inflight_ask_locked(f, f->part[first]);
        other = true;
    }
    set_resting(f, first < f->blocks && !who && is_rest(f, first) && !in_one(f));
    if (f->resting && rests_are_many(f)) {
        set_resting(f, false);
        run_drop_rest_locked(f);
        first = last = f->blocks;
    }
    bool all = f->resting || takes_rest(f);
    while (last < f->blocks && goes_on(f, last) && (all || !is_rest(f, last + 1)))
        last++;
    shard_unlock(s);
    if (first == f->blocks)
        return false;
    /* half a block of a broken run, and another one is more urgent */
    if (other)
        fetch_drop_filling(f);
    f->at = first;
    f->last = last;
    return true;
}

/* What comes of the block has a name by which those who want the same will look for it. */
bool run_name(const struct fetch *f, unsigned block, struct buffer_key *out)
{
    struct part part = inflight_part(f, block);
    uint64_t at = f->number * CHUNK_BYTES + part.from, end = f->number * CHUNK_BYTES + part.to;
    uint64_t size = f->object->size, name = buffer_part(at, part.to - part.from);
    bool whole = at % BLOCK_BYTES == 0 && end == min_u64(at + BLOCK_BYTES, size);

    if (at % GRANULE_BYTES == 0 && end == min_u64(at + GRANULE_BYTES, size))
        name = at | BUFFER_GRANULE;
    *out = (struct buffer_key){f->data_id, whole ? at | BUFFER_BLOCK : name};
    return whole || name != 0;
}

struct ask run_ask(struct fetch *f, uint64_t from, uint64_t to)
{
    const struct object *o = f->object;
    struct text query, match;
    text_init(&query, f->query, sizeof(f->query)); /* the same for each run and branch */
    if (object_version(o).len > 0) {
        text_adds(&query, "versionId=");
        uri_encode(&query, object_version(o), false);
    }
    text_init(&match, f->if_match, sizeof(f->if_match));
    text_add(&match, object_etag(o));
    return (struct ask){.method = HTTP_GET,
                        .class_ = fetch_class(f),
                        .op = OP_GET,
                        .purpose = fetch_purpose(f),
                        .profile = f->profile,
                        .upstream = f->epoch.upstream,
                        .bucket = object_bucket(o),
                        .key = object_key(o),
                        .query = text_span(&query),
                        .has_range = true,
                        .from = from,
                        .to = to,
                        .if_match = text_span(&match)};
}

void run_describe(struct fetch *f)
{
    uint64_t base = f->number * CHUNK_BYTES;
    struct part first = inflight_part(f, f->at), last = inflight_part(f, f->last);
    f->skip = 0;
    f->ask = run_ask(f, base + first.from + f->got, base + last.to - 1);
    if (f->resting)
        f->ask.class_ = ASK_REST;
}

/* ---- what came ---- */

/* What we know of the object and what upstream says do not fit: it is asked for before it is used
 * again, else a wrong size once heard would fail every read for as long as the time to live. */
enum err run_distrust(struct fetch *f, const char *what)
{
    exchange_refuse(&f->x, what);
    cache_doubt(f->m.core->server->cache, f->object);
    return ERR_UPSTREAM_PROTOCOL;
}

/* An error status: readers whose head has not gone out hear it. */
static enum err refused(struct fetch *f, uint16_t status)
{
    f->refused = status;
    return exchange_verdict(&f->x);
}

enum err run_judge(struct fetch *f)
{
    const struct exchange *x = &f->x;
    const struct object *o = f->object;
    uint16_t status = x->head->status;
    if (status == 404 || status == 412 || status == 416)
        return ERR_CHANGED;
    if (status >= 400)
        return refused(f, status);
    if (status != 200 && status != 206) /* RFC 9110 15.3.4: a 203's bytes may be anybody's */
        return run_distrust(f, "a status that was not asked for");
    if (!span_eq(x->etag, object_etag(o)))
        return ERR_CHANGED;
    if (status == 200) {             /* the range was ignored: a stream from 0 */
        if (!x->has_length)
            return run_distrust(f, "neither the range nor a length");
        f->skip = f->ask.from;
        return x->length == o->size ? OK : ERR_CHANGED;
    }
    if (x->has_range && x->range_size != o->size)
        return ERR_CHANGED;
    if (!x->has_range || x->range_from != f->ask.from || x->range_to != f->ask.to)
        return run_distrust(f, "not the range that was asked for");
    bool fits = !x->has_length || x->length == f->ask.to - f->ask.from + 1;
    return fits ? OK : run_distrust(f, "another length than its range has");
}

void run_comes(struct fetch *f)
{
    struct fill_shard *s = fetch_lock(f);
    for (unsigned b = f->at; b <= f->last; b++)
        f->sure |= (uint8_t)(1u << b);
    shard_unlock(s);
}

void run_breaks(struct fetch *f)
{
    struct fill_shard *s = fetch_lock(f);
    f->sure = 0;
    shard_unlock(s);
}

/* The generation is dead: nobody may start on it, and for a while its key is read in one piece. */
enum err run_changed(struct fetch *f)
{
    struct core *c = f->m.core;
    fill_note_died(c, f->object->id);
    cache_forget(c->server->cache, f->object);
    log_event(EVENT_CHANGED, "bucket=%s key=%s", log_value(object_bucket(f->object)),
              log_value(object_key(f->object)));
    return ERR_CHANGED;
}
