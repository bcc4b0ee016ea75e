/* Micro bench of the policy: what a hit, a miss and a look at a victim cost, and a refresh.
 *
 * Invariants:
 *  1. CHUNKS chunks are resident, of two datasets, and were read for some epochs before, each time
 *     in another order, so that curves, sample and ghosts are as in a cache that works.
 *  2. A call reads the next chunk of such an order; which one it is costs a multiplication. A
 *     refresh comes when it is due, so "reference" holds its share of it; "hit" leaves it out.
 *
 * Life: one run. Failure: must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/micro/micro.h"
#include "server/policy/policy.h"

enum { CHUNKS = 1 << 18, EPOCHS = 3, DATASETS = 2 };

static struct policy *policy;
static struct policy_mark *mark;
static _Atomic uint32_t memo[DATASETS];
static uint64_t reads;
static volatile double worth;

/* A walk through all of them that looks like a shuffle. */
static uint32_t next_chunk(void)
{
    uint64_t epoch = reads / CHUNKS, at = reads++ % CHUNKS;

    return (uint32_t)(at * ((0x9E3779B1u + 0x3C6EF372u * epoch) | 1) % CHUNKS);
}

static uint64_t hash_of(uint32_t chunk)
{
    return (chunk + 1) * 0x9E3779B97F4A7C15u;
}

static struct span key_of(uint32_t chunk)
{
    return chunk % DATASETS ? span_of("imagenet/train/shard-000123.tar")
                            : span_of("laion/part-7/shard-000456.tar");
}

static void hit(void)
{
    uint32_t chunk = next_chunk();

    policy_served(policy, CHUNK_BYTES);
    mark[chunk].group =
        policy_tag(policy, &memo[chunk % DATASETS], span_of("train-data"), key_of(chunk));
    policy_reference(policy, hash_of(chunk), &mark[chunk], CHUNK_BYTES, CHUNK_BYTES);
}

static void reference(void)
{
    hit();
    if (policy_is_due(policy))
        policy_refresh(policy);
}

static struct policy_mark miss_of(uint32_t chunk, uint64_t hash)
{
    struct policy_miss what = {
        .hash = hash, .bytes = CHUNK_BYTES, .chunk_bytes = CHUNK_BYTES,
        .group = policy_group(policy, span_of("train-data"), key_of(chunk), CHUNK_BYTES)};
    struct policy_mark m;

    policy_missed(policy, &what, &m);
    return m;
}

/* Of what passes through. */
static void miss(void)
{
    uint32_t chunk = next_chunk();
    uint64_t hash = hash_of(CHUNKS + chunk);
    struct policy_mark m = miss_of(chunk, hash);

    worth = policy_value(policy, &m);
    policy_remember(policy, hash, &m);
}

static void come_in(void)
{
    while (reads < CHUNKS) {
        uint32_t chunk = next_chunk();
        policy_served(policy, CHUNK_BYTES);
        mark[chunk] = miss_of(chunk, hash_of(chunk));
        mark[chunk].flags = 0;
        if (policy_is_due(policy))
            policy_refresh(policy);
    }
}

static void look_at_victim(void)
{
    worth = policy_value(policy, &mark[next_chunk()]);
}

static void refresh(void)
{
    policy_refresh(policy);
}

static void measure(const char *name)
{
    char line[64];

    policy = policy_make(name, CHUNKS, CHUNKS);
    mark = mem_take(CHUNKS * sizeof *mark);
    must(policy && mark);
    reads = 0;
    memset(memo, 0, sizeof memo);
    come_in();
    while (reads < (uint64_t)EPOCHS * CHUNKS)
        reference();
    static const struct {
        const char *what;
        void (*call)(void);
    } row[] = {{"hit", hit}, {"reference", reference}, {"miss", miss}, {"value", look_at_victim},
               {"refresh", refresh}};
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        snprintf(line, sizeof line, "policy_%s_%s", name, row[i].what);
        micro_run(line, row[i].call, 0);
    }
    policy_free(policy);
    mem_give(mark);
}

int main(void)
{
    measure("ehd");
    measure("lru");
    return 0;
}
