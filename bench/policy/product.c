/* The server's own policy on a trace: the very functions that decide there.
 *
 * Invariants:
 *  1. What is resident stands in one array: a victim is the least of some random ones, and again
 *     for each further victim that the sizes demand.
 *  2. What plans know is told of what is resident, and of what was just missed.
 *
 * Life: one replay. Failure: must() when memory is short. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "bench/policy/replay.h"
#include "server/policy/policy.h"

enum { SEED = 7 };

struct store {
    const struct trace *t;
    struct policy *policy;
    struct policy_mark *mark;        /* per chunk */
    uint32_t *place;                 /* per chunk: in resident + 1 */
    uint32_t *resident, count;
    uint64_t capacity, used, random;
    _Atomic uint32_t memo[16];       /* per dataset */
    struct score score;
    struct follower *plans;          /* NULL: there are none */
    struct sizing *sizing;           /* NULL: is not asked what other sizes would give */
    uint8_t *read;                   /* per chunk: its blocks that were read since it came, */
    uint32_t *at;                    /* and where the next part begins */
};

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t hash_of(uint32_t chunk)
{
    return (chunk + 1) * 0x9E3779B97F4A7C15u;
}

static struct span dataset_key(unsigned dataset, char key[32])
{
    snprintf(key, 32, "set%u/train/shard", dataset);
    return span_of(key);
}

static void remove_at(struct store *s, uint32_t at)
{
    uint32_t chunk = s->resident[at], last = s->resident[--s->count];

    s->resident[at] = last;
    s->place[last] = at + 1;
    s->place[chunk] = 0;
    s->used -= s->t->bytes[chunk];
    policy_remember(s->policy, hash_of(chunk), &s->mark[chunk]);
}

static bool make_room(struct store *s, const struct policy_mark *mark, uint64_t bytes)
{
    while (s->used + bytes > s->capacity) {
        double least = 0;
        uint32_t victim = UINT32_MAX;
        bool planned = false;
        for (unsigned n = 0; s->count > 0 && n < (planned ? POLICY_LOOKS_PLANNED : POLICY_LOOKS);
             n++) {
            uint32_t at = (uint32_t)random_below(&s->random, s->count);
            double value = policy_value(s->policy, &s->mark[s->resident[at]]);
            planned = planned || s->mark[s->resident[at]].flags & MARK_PLANNED;
            if (victim == UINT32_MAX || value < least) {
                least = value;
                victim = at;
            }
        }
        if (victim == UINT32_MAX || !policy_admits(s->policy, mark, least,
                                                   s->mark[s->resident[victim]].group))
            return false;
        remove_at(s, victim);
    }
    return true;
}

static void tell(struct store *s, const struct request *r, uint32_t chunk, struct policy_mark *m)
{
    struct next_use next = follower_next(s->plans, (uint32_t)(r - s->t->request), chunk);

    if (next.is == USE_AT)
        policy_plan(s->policy, m, next.bytes);
    else if (next.is == USE_BEYOND)
        policy_plan_beyond(s->policy, m, next.bytes);
    else
        policy_unplan(s->policy, m);
}

static void follow(struct store *s, const struct request *r)
{
    uint32_t n = (uint32_t)(r - s->t->request), chunk;

    while (follower_learns(s->plans, n, &chunk))
        if (s->place[chunk])
            tell(s, r, chunk, &s->mark[chunk]);
    follower_passes(s->plans, n);
}

static void miss(struct store *s, const struct request *r)
{
    uint32_t bytes = s->t->bytes[r->chunk];
    unsigned dataset = s->t->dataset[r->chunk];
    char key[32];
    struct policy_miss what = {hash_of(r->chunk), r->bytes, bytes,
                               policy_group(s->policy, span_of("bucket"),
                                            dataset_key(dataset, key), r->bytes)};
    struct policy_mark mark;
    bool full = s->used + bytes > s->capacity;

    policy_missed(s->policy, &what, &mark);
    if (s->plans)
        tell(s, r, r->chunk, &mark);
    if (!make_room(s, &mark, bytes)) {
        policy_remember(s->policy, what.hash, &mark);
        s->score.fetched += r->bytes;
        return;
    }
    mark.flags &= MARK_PLANNED | MARK_BEYOND;
    s->mark[r->chunk] = mark;
    s->resident[s->count++] = r->chunk;
    s->place[r->chunk] = s->count;
    s->used += bytes;
    s->score.fetched += bytes;
    s->score.written += bytes;
    s->score.free_room += full ? 0 : bytes;
}

static void read_one(struct store *s, const struct request *r)
{
    struct policy_mark *m = &s->mark[r->chunk];
    unsigned dataset = s->t->dataset[r->chunk];
    char key[32];

    s->score.asked += r->bytes;
    policy_served(s->policy, r->bytes);
    if (s->plans)
        follow(s, r);
    if (s->place[r->chunk] == 0) {
        miss(s, r);
    } else {
        m->group = policy_tag(s->policy, &s->memo[dataset], span_of("bucket"),
                              dataset_key(dataset, key));
        policy_reference(s->policy, hash_of(r->chunk), m, r->bytes, s->t->bytes[r->chunk]);
        if (s->plans && r->last)
            tell(s, r, r->chunk, m);
    }
    if (policy_is_due(s->policy))
        policy_refresh(s->policy);
}

static struct store store_make(const struct trace *t, uint64_t capacity)
{
    uint64_t bytes = 0;
    for (uint32_t n = 0; n < t->chunks; n++)
        bytes += t->bytes[n];
    uint64_t residents = capacity / (bytes / t->chunks) + 1;
    struct store s = {
        .t = t,
        .policy = policy_make("ehd", capacity / CHUNK_BYTES, residents),
        .mark = mem_take(t->chunks * sizeof(struct policy_mark)),
        .place = mem_take(t->chunks * sizeof(uint32_t)),
        .resident = mem_take(t->chunks * sizeof(uint32_t)),
        .capacity = capacity,
        .random = SEED,
    };

    must(s.policy && s.mark && s.place && s.resident);
    return s;
}

static void store_free(struct store *s)
{
    policy_free(s->policy);
    mem_give(s->mark);
    mem_give(s->place);
    mem_give(s->resident);
}

static struct score replay(const struct trace *t, uint64_t capacity, struct follower *plans)
{
    struct store s = store_make(t, capacity);

    s.plans = plans;
    double began = now_ns();
    for (uint32_t n = 0; n < t->count; n++)
        read_one(&s, &t->request[n]);
    s.score.ns = (now_ns() - began) / t->count;
    store_free(&s);
    return s.score;
}

struct score replay_ehd(const struct trace *t, uint64_t capacity)
{
    return replay(t, capacity, NULL);
}

struct score replay_planned(const struct trace *t, uint64_t capacity, double epochs)
{
    struct follower *f = follower_make(t, epochs);
    struct score score = replay(t, capacity, f);

    follower_free(f);
    return score;
}

/* ---- what other sizes would give ---- */

/* Parts of a chunk are read one behind the other. */
static uint8_t blocks_of(struct store *s, const struct request *r)
{
    uint32_t whole = s->t->bytes[r->chunk], from = s->at[r->chunk];
    unsigned blocks = 0;

    for (uint32_t at = from / BLOCK_BYTES; at <= (from + r->bytes - 1) / BLOCK_BYTES; at++)
        blocks |= 1u << at % BLOCKS_PER_CHUNK;
    s->at[r->chunk] = (from + r->bytes) % whole;
    return (uint8_t)blocks;
}

static void sized_read(struct store *s, const struct request *r)
{
    uint8_t blocks = blocks_of(s, r);
    uint8_t first = (uint8_t)(blocks & ~s->read[r->chunk]);
    bool here = s->place[r->chunk] > 0;

    read_one(s, r);
    uint64_t part = (uint64_t)r->bytes * (unsigned)__builtin_popcount(first) /
                    (unsigned)__builtin_popcount(blocks);
    s->read[r->chunk] = here ? s->read[r->chunk] | blocks : blocks;
    char key[32];
    unsigned dataset = s->t->dataset[r->chunk];
    struct sizing_total total = {r->bytes, r->bytes, here ? part : r->bytes};
    struct sizing_read read = {
        .hash = hash_of(r->chunk),
        .bytes = r->bytes,
        .chunk_bytes = s->t->bytes[r->chunk],
        .stored_bytes = s->t->bytes[r->chunk],
        .group = policy_tag(s->policy, &s->memo[dataset], span_of("bucket"),
                            dataset_key(dataset, key)),
        .blocks = blocks,
    };
    sizing_add(s->sizing, read.group, &total);
    if (sizing_wants(sizing_limit(s->sizing), read.hash))
        sizing_read(s->sizing, &read);
    sizing_settle(s->sizing);
}

void replay_sizing(const struct trace *t, uint64_t capacity, uint32_t chunks,
                   struct sizing_report *out)
{
    struct store s = store_make(t, capacity);
    struct sizing_room room[SIZING_SIZES];

    for (unsigned n = 0; n < SIZING_SIZES; n++) {
        uint64_t bytes = (uint64_t)((double)capacity * sizing_factor[n]);
        room[n] = (struct sizing_room){bytes, bytes, bytes};
    }
    s.sizing = sizing_make(s.policy, room, chunks);
    s.read = mem_take(t->chunks);
    s.at = mem_take(t->chunks * sizeof *s.at);
    must(s.sizing && s.read && s.at);
    for (uint32_t n = 0; n < t->count; n++)
        sized_read(&s, &t->request[n]);
    sizing_report(s.sizing, out);
    sizing_free(s.sizing);
    mem_give(s.read);
    mem_give(s.at);
    store_free(&s);
}
