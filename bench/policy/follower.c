/* What loaders' plans know of a trace, and when: each job tells the order of its reads so many of
 * its epochs ahead, and what it reads next as it goes on.
 *
 * Words: a *use* is the first read of a chunk in a pass of a job; the parts that follow are the
 * same use.
 *
 * Invariants:
 *  1. A job tells from its first read on. What it told is a row of its own reads: of them `told` is
 *     behind the last. Nothing is known of reads that are no job's.
 *  2. `due` is the nearest use known of a chunk, of all jobs; behind it lie others, along `after`.
 *  3. A chunk is beyond what was told only if its dataset has a job: until the nearest end of what
 *     those that still read told.
 *  4. While one job reads alone, and each of its chunks once an epoch, nothing is told: whatever
 *     stays is read once an epoch, so that what the curves keep hits as often as MIN, and plans
 *     would only make the disks write more (0.18 bytes per byte read instead of 0.03 in b_shuf at
 *     .25).
 *
 * Life: one replay. Failure: must() when memory is short.
 * Limits: when a use comes is told exactly, as if all knew how fast the others read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/policy/replay.h"

static const uint32_t NEVER = UINT32_MAX;

struct ahead {                       /* of a job */
    uint32_t told;                   /* request behind the last of it that was told */
    uint32_t last;                   /* its last request */
    uint64_t bytes, most;            /* told and not read; as much as is told */
    uint16_t dataset;
    bool reads;                      /* it began, and is not over */
};
struct follower {
    const struct trace *t;
    struct ahead job[JOBS_MOST];
    uint64_t *before;                /* per request: bytes of those before it */
    uint32_t *after;                 /* per request that is a use: the next one of its chunk */
    uint32_t *due;                   /* per chunk */
    bool pays;                       /* it is told */
    uint32_t untold;                 /* chunks from here on were not, since it pays */
};

static bool is_use(const struct request *r)
{
    return r->job > 0 && r->first;
}

static void link_uses(struct follower *f)
{
    const struct trace *t = f->t;

    for (uint32_t n = t->count; n-- > 0;) {
        if (!is_use(&t->request[n]))
            continue;
        f->after[n] = f->due[t->request[n].chunk];
        f->due[t->request[n].chunk] = n;
    }
    memset(f->due, 0xff, t->chunks * sizeof *f->due);
}

struct follower *follower_make(const struct trace *t, double epochs)
{
    struct follower *f = mem_take(sizeof *f);

    must(f);
    f->t = t;
    f->before = mem_take((t->count + 1) * sizeof *f->before);
    f->after = mem_take(t->count * sizeof *f->after);
    f->due = mem_take(t->chunks * sizeof *f->due);
    must(f->before && f->after && f->due);
    for (uint32_t n = 0; n < t->count; n++) {
        struct ahead *j = &f->job[t->request[n].job];
        f->before[n + 1] = f->before[n] + t->request[n].bytes;
        j->last = n;
        j->dataset = t->dataset[t->request[n].chunk];
    }
    for (unsigned n = 1; n <= t->jobs; n++)
        f->job[n].most = (uint64_t)(epochs * (double)t->epoch_bytes[n]);
    memset(f->due, 0xff, t->chunks * sizeof *f->due);
    link_uses(f);
    return f;
}

void follower_free(struct follower *f)
{
    mem_give(f->before);
    mem_give(f->after);
    mem_give(f->due);
    mem_give(f);
}

bool follower_tells(const struct trace *t)
{
    return t->jobs > 1 || (t->jobs == 1 && t->draws[1]);
}

static bool pays(const struct follower *f)
{
    unsigned reading = 0;
    bool draws = false;

    for (unsigned i = 1; i <= f->t->jobs; i++) {
        reading += f->job[i].reads;
        draws = draws || (f->job[i].reads && f->t->draws[i]);
    }
    return reading > 1 || draws;
}

/* A job begins, or is over. */
static void set_reading(struct follower *f, struct ahead *j, bool reads)
{
    if (j->reads == reads)
        return;
    bool paid = f->pays;
    j->reads = reads;
    f->pays = pays(f);
    f->untold = f->pays && !paid ? 0 : f->untold;
}

bool follower_learns(struct follower *f, uint32_t n, uint32_t *chunk)
{
    const struct request *r = f->t->request;
    struct ahead *j = &f->job[r[n].job];

    if (r[n].job == 0)
        return false;
    if (!j->reads) {
        set_reading(f, j, true);
        j->told = n;
    }
    while (j->bytes < j->most + r[n].bytes && j->told <= j->last) {
        uint32_t told = j->told++;
        if (r[told].job != r[n].job)
            continue;
        j->bytes += r[told].bytes;
        *chunk = r[told].chunk;
        if (is_use(&r[told]) && told > n && told < f->due[*chunk]) {
            f->due[*chunk] = told;
            return true;
        }
    }
    *chunk = f->untold++;
    if (f->pays && *chunk < f->t->chunks)
        return true;
    f->untold = f->t->chunks;
    return false;
}

static bool is_told(const struct follower *f, uint32_t n)
{
    return n < f->job[f->t->request[n].job].told;
}

void follower_passes(struct follower *f, uint32_t n)
{
    const struct request *r = &f->t->request[n];
    struct ahead *j = &f->job[r->job];

    if (r->job == 0)
        return;
    j->bytes -= r->bytes;
    set_reading(f, j, n < j->last);
    if (!r->first)
        return;
    uint32_t next = f->after[n];
    while (next != NEVER && !is_told(f, next))
        next = f->after[next];
    f->due[r->chunk] = next;
}

struct next_use follower_next(const struct follower *f, uint32_t n, uint32_t chunk)
{
    uint64_t now = f->before[n + 1], horizon = UINT64_MAX;

    if (!f->pays)
        return (struct next_use){.is = USE_UNKNOWN};
    if (f->due[chunk] != NEVER)
        return (struct next_use){USE_AT, f->before[f->due[chunk]] - now};
    for (unsigned i = 1; i <= f->t->jobs; i++) {
        const struct ahead *j = &f->job[i];
        if (j->reads && j->dataset == f->t->dataset[chunk])
            horizon = min_u64(horizon, f->before[j->told] - min_u64(now, f->before[j->told]));
    }
    if (horizon == UINT64_MAX || horizon == 0)
        return (struct next_use){.is = USE_UNKNOWN};
    return (struct next_use){USE_BEYOND, horizon};
}
