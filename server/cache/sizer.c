/* What other sizes of the cache would give: brings what is read here to policy/sizing.c.
 *
 * Invariants:
 *  1. A request tells its reads to the lane of its thread: counters for all of them, and an entry
 *     for those of sampled chunks. The policy's thread exchanges the lane's entries for an empty
 *     list, so that nobody waits while they are gone through.
 *  2. A lane that is full counts nothing until it was emptied: counters and entries are of the same
 *     reads.
 *
 * Life: sizer_open() with the policy, sizer_close() when neither cores run nor the journals'
 * threads, who tell the metrics; sizer_take() by the policy's thread.
 * Failure: without memory at the start there is no forecast, and status says so; the server
 * runs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "metric.h"
#include "server/cache/inside.h"

enum {
    LANE_READS = 4096,               /* 24 bytes each */
    LANE_MUCH = LANE_READS / 32,
};

static struct sizing_room room_at(const struct cache *c, double factor)
{
    struct sizing_room sum = {0};

    for (unsigned i = 0; i < c->dir_count; i++) {
        uint64_t pages = (uint64_t)((double)c->dir[i].residents.pages * factor);
        sum.whole += pages * SPACE_PAGE_BYTES;
        sum.used += (pages - evict_reserve(pages)) * SPACE_PAGE_BYTES;
        sum.lent += (pages - evict_least_free(pages)) * SPACE_PAGE_BYTES;
    }
    return sum;
}

void sizer_open(struct cache *c)
{
    struct sizer *s = &c->sizer;
    struct sizing_room room[SIZING_SIZES];
    bool whole = true;

    for (unsigned n = 0; n < SIZING_SIZES; n++)
        room[n] = room_at(c, sizing_factor[n]);
    pthread_mutex_init(&s->lock, NULL);
    for (unsigned n = 0; n < SIZER_LANES; n++) {
        pthread_mutex_init(&s->lane[n].lock, NULL);
        s->lane[n].read = mem_take(LANE_READS * sizeof *s->lane[n].read);
        whole = whole && s->lane[n].read;
    }
    s->spare = mem_take(LANE_READS * sizeof *s->spare);
    if (whole && s->spare)
        s->sizing = sizing_make(c->policy, room, SIZING_CHUNKS);
    atomic_store(&s->limit, s->sizing ? sizing_limit(s->sizing) : 0);
}

void sizer_close(struct cache *c)
{
    struct sizer *s = &c->sizer;

    sizing_free(s->sizing);
    for (unsigned n = 0; n < SIZER_LANES; n++) {
        mem_give(s->lane[n].read);
        pthread_mutex_destroy(&s->lane[n].lock);
    }
    mem_give(s->spare);
    pthread_mutex_destroy(&s->lock);
    *s = (struct sizer){0};
}

/* ---- requests ---- */

static struct sizer_lane *own_lane(struct sizer *s)
{
    static _Atomic unsigned threads;
    static _Thread_local unsigned own; /* + 1 */

    if (own == 0)
        own = atomic_fetch_add(&threads, 1) % SIZER_LANES + 1;
    return &s->lane[own - 1];
}

static void add(_Atomic uint64_t *to, uint64_t n)
{
    atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

/* False: there is no room, and from now on nothing is counted. */
static bool append(struct sizer_lane *l, const struct sizing_read *r)
{
    pthread_mutex_lock(&l->lock);
    bool fits = l->count < LANE_READS;
    if (fits)
        l->read[l->count++] = *r;
    else
        atomic_store_explicit(&l->full, true, memory_order_relaxed);
    pthread_mutex_unlock(&l->lock);
    return fits;
}

/* The lane that counts for the object's group, or NULL. */
static struct sizer_lane *lane_for(struct cache *c, struct object *o, uint16_t *tag)
{
    struct sizer_lane *l = own_lane(&c->sizer);

    if (!c->sizer.sizing || atomic_load_explicit(&l->full, memory_order_relaxed))
        return NULL;
    *tag = policy_tag(c->policy, &o->group, object_bucket(o), object_key(o));
    _Atomic uint16_t *known = &l->tag[*tag % POLICY_GROUPS];
    if (atomic_load_explicit(known, memory_order_relaxed) != *tag)
        atomic_store_explicit(known, *tag, memory_order_relaxed);
    return l;
}

void cache_asked(struct cache *c, struct object *o, const struct chunk_read *r)
{
    uint64_t hash = chunk_hash(o->data_id, r->number);
    uint32_t limit = atomic_load_explicit(&c->sizer.limit, memory_order_relaxed);
    uint16_t tag;
    struct sizer_lane *l = lane_for(c, o, &tag);

    if (!l)
        return;
    if (sizing_wants(limit, hash)) {
        uint32_t bytes = object_chunk_bytes(o, r->number);
        const struct sizing_read read = {
            .hash = hash,
            .bytes = r->bytes,
            .chunk_bytes = bytes,
            .stored_bytes = space_class_bytes(space_class(bytes)),
            .group = tag,
            .blocks = r->blocks,
            .once = r->once,
        };
        if (!append(l, &read))
            return;
    }
    add(&l->asked[tag % POLICY_GROUPS], r->bytes);
}

void cache_sent(struct cache *c, struct object *o, uint64_t bytes, uint64_t from_upstream)
{
    uint16_t tag;
    struct sizer_lane *l = lane_for(c, o, &tag);

    if (!l)
        return;
    add(&l->served[tag % POLICY_GROUPS], bytes);
    if (from_upstream > 0)
        add(&l->fetched[tag % POLICY_GROUPS], from_upstream);
}

/* ---- the policy's thread ---- */

static uint64_t taken(_Atomic uint64_t *n)
{
    return atomic_load_explicit(n, memory_order_relaxed) ? atomic_exchange(n, 0) : 0;
}

/* The lane's entries stand in s->spare then. */
static uint32_t empty_lane(struct sizer *s, struct sizer_lane *l)
{
    struct sizing_read *read = s->spare;

    pthread_mutex_lock(&l->lock);
    uint32_t count = l->count;
    s->spare = l->read;
    l->read = read;
    l->count = 0;
    pthread_mutex_unlock(&l->lock);
    for (unsigned g = 0; g < POLICY_GROUPS; g++) {
        struct sizing_total t = {taken(&l->asked[g]), taken(&l->served[g]), taken(&l->fetched[g])};
        if (t.asked > 0 || t.served > 0)
            sizing_add(s->sizing, atomic_load_explicit(&l->tag[g], memory_order_relaxed), &t);
    }
    atomic_store_explicit(&l->full, false, memory_order_relaxed);
    return count;
}

bool sizer_take(struct cache *c)
{
    struct sizer *s = &c->sizer;
    bool much = false;

    if (!s->sizing)
        return false;
    pthread_mutex_lock(&s->lock);
    for (unsigned n = 0; n < SIZER_LANES; n++) {
        uint32_t count = empty_lane(s, &s->lane[n]);
        sizing_read_all(s->sizing, s->spare, count);
        much = much || count > LANE_MUCH;
    }
    sizing_settle(s->sizing);
    atomic_store_explicit(&s->limit, sizing_limit(s->sizing), memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
    return much;
}

/* ---- what comes out ---- */

bool cache_sizing(struct cache *c, struct sizing_report *out)
{
    struct sizer *s = &c->sizer;

    if (!s->sizing)
        return false;
    pthread_mutex_lock(&s->lock);
    sizing_report(s->sizing, out);
    pthread_mutex_unlock(&s->lock);
    return true;
}

uint16_t cache_group(struct cache *c, struct object *o)
{
    return policy_tag(c->policy, &o->group, object_bucket(o), object_key(o));
}

size_t cache_group_name(struct cache *c, uint16_t tag, char out[POLICY_NAME_BYTES])
{
    return policy_group_name(c->policy, tag, out);
}

void sizer_tell(struct cache *c)
{
    struct sizing_report r;

    if (!cache_sizing(c, &r))
        return;
    double read = r.all.state == SIZING_READY ? r.all.window : 0;
    metric_gauge_set(METRIC_SIZING_READ_BYTES, 0, (int64_t)read);
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        metric_gauge_set(METRIC_SIZING_HIT_BYTES, n, (int64_t)(read * r.all.predicted[n]));
}
