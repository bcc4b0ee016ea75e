/* What would a cache of another size give? The server's own policy runs in scaled caches of several
 * sizes, on a sample of the chunks that are read.
 *
 * Words: *asked* are the bytes that readers ask for; *missed* those that a cache of that size would
 * have fetched for them; *distinct* those of chunks asked for at least once.
 *
 * Invariants:
 *  1. Whether a chunk is in the sample says its hash alone: at first all are, then as many as the
 *     scaled caches have room for. So up to that many chunks nothing is estimated.
 *  2. A sampled byte stands for 1 / rate bytes. What the sample lacks of all the bytes asked for,
 *     or has too much, goes with misses as it does among the chunks that were counted (a
 *     regression), if chance explains it; else it hits, as it is of chunks that are read at every
 *     step.
 *  3. Of each group, and of all, sums begin when a tenth of its bytes were asked for a second time,
 *     as a first pass misses at any size, and are shown when as much was asked for as two passes
 *     need. They fade: what lies two working sets back has half of its weight.
 *  4. What was asked for longest ago is forgotten, so that the working set is that of now.
 *
 * Life: sizing_make() beside a policy, which outlives it; one thread at a time. Nothing is kept
 * over a restart.
 * Failure: only sizing_make() can fail.
 * Limits: pins, quotas, the RAM tier and chunks that were replaced or evicted by order are not
 * known here; a group of few sampled chunks is not told. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "server/policy/inside.h"

enum {
    SEEN = 8192,                     /* chunks that are counted for the working set */
    SPARE_SHARE = 4,                 /* the caches' tables have room for so much more */
    FEW_SHARE = 8,                   /* of the room: beyond, the rate may rise */
    LOWER_SHARE = 4,
    SEEN_HORIZON = 64,               /* capacities */
    CHUNKS_LEAST = 64,               /* of a group, unless all are sampled */
    TICK_SHIFT = 20,                 /* of seen chunks' time */
    SWEEP_SHARE = 4,                 /* of the capacity is asked for between two sweeps */
    FADE_STEPS = 64,
};
static const double BEGIN_PASSES = 1.1, READY_PASSES = 2, HALF_LIFE = 2,
                    USUAL_DEVIATIONS = 2;

const double sizing_factor[SIZING_SIZES] = {.5, 1, 2, 4};

struct sums {
    uint16_t tag;
    bool begun;
    uint32_t chunks;                 /* of it in seen */
    uint64_t distinct;               /* their bytes */
    double asked_ever;
    double asked, sampled, served, fetched, missed[SIZING_SIZES];
};
struct seen {                        /* of a chunk in the table of that name; chunks' bytes */
    float asked, missed[SIZING_SIZES];
};
/* sums over chunks: of asked times asked, asked times missed */
struct slope {
    double asked, missed[SIZING_SIZES];
};
struct sizing {
    struct scaled_cache cache[SIZING_SIZES];
    uint32_t limit, seen_limit;      /* of the upper half of a hash's place */
    struct sized_table seen;
    struct seen count[SEEN];         /* by place in it */
    struct sums group[POLICY_GROUPS], all;
    uint64_t capacity;               /* at factor 1 */
    uint64_t asked;                  /* since the start */
    uint64_t faded, swept, changed;  /* asked when that was done last */
};

/* ---- birth and end ---- */

struct sizing *sizing_make(const struct policy *like, const struct sizing_room room[SIZING_SIZES],
                           uint32_t chunks)
{
    struct sizing *s = mem_take(sizeof *s);
    enum err err = s ? sized_make(&s->seen, SEEN) : ERR_MEMORY;

    for (unsigned n = 0; err == OK && n < SIZING_SIZES; n++) {
        double share = sizing_factor[n] / sizing_factor[SIZING_SIZES - 1];
        uint32_t most = (uint32_t)(chunks * share);
        most = (uint32_t)max_u64(most + most / SPARE_SHARE, 64);
        err = scaled_make(&s->cache[n], like, &room[n], most);
        s->capacity = sizing_factor[n] == 1 ? room[n].whole : s->capacity;
    }
    if (err != OK) {
        sizing_free(s);
        return NULL;
    }
    s->limit = s->seen_limit = UINT32_MAX;
    return s;
}

void sizing_free(struct sizing *s)
{
    for (unsigned n = 0; s && n < SIZING_SIZES; n++)
        scaled_free(&s->cache[n]);
    if (s)
        sized_free(&s->seen);
    mem_give(s);
}

uint32_t sizing_limit(const struct sizing *s)
{
    return s->limit;
}

static double rate_of(uint32_t limit)
{
    return ((double)limit + 1) / 4294967296.0; /* 2^32 */
}

/* ---- the working set ---- */

static uint32_t ticks(const struct sizing *s)
{
    return (uint32_t)(s->asked >> TICK_SHIFT);
}

static struct sums *group_of(struct sizing *s, uint16_t tag)
{
    struct sums *g = &s->group[tag % POLICY_GROUPS];

    if (g->tag != tag) {             /* its number is another's now */
        uint32_t chunks = g->chunks;
        uint64_t distinct = g->distinct;
        *g = (struct sums){.tag = tag, .chunks = chunks, .distinct = distinct};
    }
    return g;
}

/* A chunk is counted to the number of its group. */
static void count_seen(struct sizing *s, const struct sized_chunk *k, int by)
{
    struct sums *g = &s->group[k->mark.group % POLICY_GROUPS];

    g->chunks += (uint32_t)by;
    s->all.chunks += (uint32_t)by;
    g->distinct += (uint64_t)((int64_t)k->bytes * by);
    s->all.distinct += (uint64_t)((int64_t)k->bytes * by);
}

static void forget_seen(struct sizing *s, bool all)
{
    uint32_t horizon = (uint32_t)min_u64(SEEN_HORIZON * s->capacity >> TICK_SHIFT, INT32_MAX);

    for (uint32_t n = 0; n < s->seen.count;) {
        struct sized_chunk *k = &s->seen.chunk[n];
        bool stays = !all && sizing_place(k->hash) >> 32 <= s->seen_limit &&
                     ticks(s) - k->mark.last <= horizon;
        if (stays) {
            n++;
            continue;
        }
        count_seen(s, k, -1);
        sized_remove(&s->seen, k);
        s->count[n] = s->count[s->seen.count];
    }
}

/* NULL: it is not counted. */
static struct seen *note_seen(struct sizing *s, const struct sizing_read *r)
{
    if (sizing_place(r->hash) >> 32 > s->seen_limit)
        return NULL;
    struct sized_chunk *k = sized_find(&s->seen, r->hash);
    if (k) {
        count_seen(s, k, -1);
    } else {
        k = sized_add(&s->seen, r->hash);
        if (!k) {
            s->seen_limit -= s->seen_limit / LOWER_SHARE;
            forget_seen(s, false);
            return NULL;
        }
        s->count[k - s->seen.chunk] = (struct seen){0};
    }
    k->bytes = r->chunk_bytes;
    k->mark.group = r->group;
    k->mark.last = ticks(s);
    count_seen(s, k, 1);
    return &s->count[k - s->seen.chunk];
}

static double distinct_of(const struct sizing *s, const struct sums *g)
{
    return (double)g->distinct / rate_of(s->seen_limit);
}

/* ---- the rate ---- */

static void set_limit(struct sizing *s, uint32_t limit)
{
    s->limit = limit;
    s->seen_limit = (uint32_t)min_u64(s->seen_limit, limit);
    s->changed = s->asked;
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        scaled_limit(&s->cache[n], limit);
}

/* Chunks that were not sampled before are unknown at every size: all begins again. */
static void raise_limit(struct sizing *s)
{
    uint64_t limit = min_u64(2 * (uint64_t)s->limit + 1, UINT32_MAX);

    set_limit(s, (uint32_t)limit);
    s->seen_limit = s->limit;
    forget_seen(s, true);
    for (unsigned n = 0; n < POLICY_GROUPS; n++)
        s->group[n] = (struct sums){.tag = s->group[n].tag};
    s->all = (struct sums){0};
}

static bool may_rise(const struct sizing *s)
{
    const struct sized_table *largest = &s->cache[SIZING_SIZES - 1].table;
    double since = (double)(s->asked - s->changed);

    return s->limit < UINT32_MAX && largest->count < largest->cap / FEW_SHARE &&
           since > 2 * sizing_factor[SIZING_SIZES - 1] * (double)s->capacity;
}

/* ---- what comes in ---- */

/* The places that a read looks at first, one in each table; next to none was looked at lately. */
static void expect(const struct sizing *s, uint64_t hash, bool entry)
{
    sized_prefetch(&s->seen, hash, entry);
    for (unsigned n = 0; n < SIZING_SIZES; n++) {
        sized_prefetch(&s->cache[n].table, hash, entry);
        policy_prefetch(s->cache[n].policy, hash, entry);
    }
}

void sizing_read_all(struct sizing *s, const struct sizing_read *r, uint32_t count)
{
    enum { AHEAD = 4 };

    for (uint32_t i = 0; i < count; i++) {
        if (i + 2 * AHEAD < count)
            expect(s, r[i + 2 * AHEAD].hash, false);
        if (i + AHEAD < count)
            expect(s, r[i + AHEAD].hash, true);
        sizing_read(s, &r[i]);
    }
}

void sizing_read(struct sizing *s, const struct sizing_read *r)
{
    struct sums *g = group_of(s, r->group);
    bool full = false;

    if (!sizing_wants(s->limit, r->hash))
        return;
    struct seen *seen = note_seen(s, r), none = {0};
    seen = seen && g->begun ? seen : &none;
    double rate = rate_of(s->limit);
    g->sampled += g->begun ? r->bytes / rate : 0;
    s->all.sampled += s->all.begun ? r->bytes / rate : 0;
    seen->asked += (float)r->bytes / CHUNK_BYTES;
    for (unsigned n = 0; n < SIZING_SIZES; n++) {
        double missed = (double)scaled_read(&s->cache[n], r, rate);
        seen->missed[n] += (float)missed / CHUNK_BYTES;
        g->missed[n] += g->begun ? missed / rate : 0;
        s->all.missed[n] += s->all.begun ? missed / rate : 0;
        full = full || s->cache[n].full;
    }
    if (full)
        set_limit(s, s->limit - s->limit / LOWER_SHARE);
}

static void add_up(struct sums *g, const struct sizing_total *t)
{
    g->asked_ever += (double)t->asked;
    if (!g->begun)
        return;
    g->asked += (double)t->asked;
    g->served += (double)t->served;
    g->fetched += (double)t->fetched;
}

void sizing_add(struct sizing *s, uint16_t tag, const struct sizing_total *t)
{
    s->asked += t->asked;
    add_up(group_of(s, tag), t);
    add_up(&s->all, t);
}

static void fade(struct sums *g, double by)
{
    g->asked *= by;
    g->sampled *= by;
    g->served *= by;
    g->fetched *= by;
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        g->missed[n] *= by;
}

static void fade_all(struct sizing *s, double by)
{
    fade(&s->all, by);
    for (unsigned n = 0; n < POLICY_GROUPS; n++)
        fade(&s->group[n], by);
    for (uint32_t n = 0; n < s->seen.count; n++) {
        s->count[n].asked *= (float)by;
        for (unsigned size = 0; size < SIZING_SIZES; size++)
            s->count[n].missed[size] *= (float)by;
    }
    s->faded = s->asked;
}

static void begin(const struct sizing *s, struct sums *g)
{
    g->begun = g->begun || (g->chunks > 0 && g->asked_ever >= BEGIN_PASSES * distinct_of(s, g));
}

void sizing_settle(struct sizing *s)
{
    double half_life = HALF_LIFE * distinct_of(s, &s->all);
    double since = (double)(s->asked - s->faded);

    if (since * FADE_STEPS > half_life)
        fade_all(s, half_life > 0 ? exp2(-since / half_life) : 0);
    if (s->asked - s->swept > s->capacity / SWEEP_SHARE) {
        forget_seen(s, false);
        s->swept = s->asked;
    }
    if (may_rise(s))
        raise_limit(s);
    begin(s, &s->all);
    for (unsigned n = 0; n < POLICY_GROUPS; n++)
        begin(s, &s->group[n]);
}

/* ---- what comes out ---- */

static void add_slope(struct slope *to, const struct seen *k)
{
    to->asked += (double)k->asked * (double)k->asked;
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        to->missed[n] += (double)k->asked * (double)k->missed[n];
}

static double between(double low, double n, double high)
{
    return n < low ? low : n > high ? high : n;
}

/* Bytes that the sample lacks or has too much, as far as chance makes it among chunks like those
 * that were counted. What is beyond comes from few chunks of which most reads are: it hits. */
static double usual_lack(const struct sizing *s, const struct sums *g, const struct slope *slope)
{
    double rate = rate_of(s->limit);
    double variance = slope->asked / rate_of(s->seen_limit) * (1 - rate) / rate;
    double most = USUAL_DEVIATIONS * sqrt(variance) * CHUNK_BYTES;

    return between(-most, g->asked - g->sampled, most);
}

static enum sizing_state state_of(const struct sizing *s, const struct sums *g)
{
    if (g->chunks < CHUNKS_LEAST && s->seen_limit < UINT32_MAX)
        return SIZING_FEW;
    bool twice = g->asked_ever >= READY_PASSES * distinct_of(s, g);
    return g->begun && twice && g->asked > 0 && g->served > 0 ? SIZING_READY : SIZING_EARLY;
}

static void tell(const struct sizing *s, const struct sums *g, const struct slope *slope,
                 struct sizing_line *out)
{
    *out = (struct sizing_line){
        .tag = g->tag,
        .state = state_of(s, g),
        .asked = g->asked_ever,
        .window = g->asked,
        .distinct = distinct_of(s, g),
    };
    if (out->state != SIZING_READY)
        return;
    out->measured = between(0, 1 - g->fetched / g->served, 1);
    double lacks = usual_lack(s, g, slope);
    for (unsigned n = 0; n < SIZING_SIZES; n++) {
        double with = slope->asked > 0 ? between(0, slope->missed[n] / slope->asked, 1) : 0;
        double missed = g->missed[n] + with * lacks;
        out->predicted[n] = between(0, 1 - missed / g->asked, 1);
    }
}

void sizing_report(const struct sizing *s, struct sizing_report *out)
{
    struct slope all = {0}, group[POLICY_GROUPS] = {0};

    *out = (struct sizing_report){
        .rate = rate_of(s->limit),
        .half_life = HALF_LIFE * distinct_of(s, &s->all),
    };
    for (uint32_t n = 0; n < s->seen.count; n++) {
        add_slope(&all, &s->count[n]);
        add_slope(&group[s->seen.chunk[n].mark.group % POLICY_GROUPS], &s->count[n]);
    }
    tell(s, &s->all, &all, &out->all);
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        out->capacity[n] = s->cache[n].room.whole;
    for (unsigned n = 0; n < POLICY_GROUPS; n++)
        if (s->group[n].chunks > 0)
            tell(s, &s->group[n], &group[n], &out->group[out->groups++]);
}
