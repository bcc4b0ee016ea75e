/* Whether a fetch's chunk is kept: what is asked of the cache before anything comes, and what is
 * there already.
 *
 * Invariants:
 *  1. One fetch at a time writes to a chunk, and none that a write of the key has overtaken.
 *
 * Life: used by fetch.c once it is known what the key is. Failure: none; what finds no place is
 * passed through, and f->refuse tells why. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

static struct cache *cache_of(const struct fetch *f)
{
    return f->m.core->server->cache;
}

static uint8_t refusal_of(enum err e)
{
    return e == ERR_QUOTA    ? REFUSE_QUOTA
           : e == ERR_PINNED ? REFUSE_PINNED
           : e == ERR_DENIED ? REFUSE_POLICY
           : e == ERR_BUSY   ? REFUSE_UNREAD
           : e == ERR_BEHIND ? REFUSE_BEHIND
                             : REFUSE_FULL;
}

/* Of the chunk's bytes those that the asking was for. */
static uint64_t asked_by_contact(const struct fetch *f)
{
    uint64_t base = f->number * CHUNK_BYTES, from = max_u64(f->contact->from, base);
    uint64_t end = base + f->bytes, to = f->contact->to < end ? f->contact->to + 1 : end;

    return to > from ? to - from : 0;
}

/* Bytes of the chunk that readers want now. Those who wait already have looked for the chunk, and
 * will not do so again. Lock held. */
static struct chunk_asked asked_of(const struct fetch *f)
{
    unsigned blocks = atomic_load_explicit(&f->wanted, memory_order_relaxed);
    uint64_t bytes = f->contact ? asked_by_contact(f) : 0, looked = 0;

    for (unsigned b = 0; !f->contact && b < f->blocks; b++)
        if (blocks >> b & 1 && f->part[b].to > f->told)
            bytes += f->part[b].to - (uint32_t)max_u64(f->part[b].from, f->told);
    LIST_EACH(&f->waiters, struct wait, node, w)
        looked += w->early ? 0 : w->to - w->from;
    bool keep = fetch_is_wished_locked(f), alone = list_empty(&f->waiters);
    bool spare = alone && f->background && !keep;
    return (struct chunk_asked){
        .bytes = bytes,
        .again = bytes - min_u64(bytes, looked),
        .keep = keep,
        .ahead = alone && fetch_purpose(f) != PURPOSE_DEMAND,
        .spare = spare,
        .behind = !keep && !spare && fill_core_is_behind(f->m.core),
    };
}

/* A place on disk, unless it is too late to keep anything, or its reader wants it no more. */
static void admit(struct fetch *f)
{
    struct cache *cache = cache_of(f);
    struct fill_shard *s = fetch_lock(f);
    bool once = f->hint & HINT_ONCE;
    f->refuse = once ? REFUSE_HINT : REFUSE_FULL;
    f->fills = !once && inflight_may_fill_locked(f->m.core, s, f);
    struct chunk_asked asked = asked_of(f);
    shard_unlock(s);
    enum err e = f->fills ? chunk_admit(cache, f->object, f->number, asked, &f->chunk) : OK;
    if (e != OK) {
        f->refuse = refusal_of(e);
        f->chunk = NULL;
        s = fetch_lock(f);
        f->fills = false;
        shard_unlock(s);
    }
    f->keeps = f->fills;
    if (!f->chunk)
        f->chunk = chunk_find(cache, f->data_id, f->number);
}

void fetch_take_place(struct fetch *f)
{
    struct core *c = f->m.core;
    admit(f);
    struct fill_shard *s = fetch_lock(f);
    uint8_t present = f->chunk ? chunk_present(cache_of(f), f->chunk) : 0;
    f->passes = !f->keeps && f->object->size > BLOCK_BYTES;
    for (unsigned b = 0; b < f->blocks; b++) {
        if (!(present >> b & 1) || f->state[b] != BLOCK_NEED)
            continue;
        f->state[b] = BLOCK_DISK;
        inflight_deliver(c, f, b, NULL);
    }
    run_settle_locked(f);
    shard_unlock(s);
}
