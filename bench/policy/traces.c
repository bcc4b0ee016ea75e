/* Traces of training reads, and of mixes that resemble other uses, made from seeds.
 *
 * Invariants:
 *  1. A dataset is shards of 252 MiB: 31 whole chunks and one of 4 MiB, numbered in a row.
 *  2. A job has random numbers of its own, so that what runs beside it does not change its order.
 *
 * Life: trace_make(), replayed, trace_free(). Failure: must() when memory is short. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "bench/policy/replay.h"

enum { SHARD_CHUNKS = 32, LAST_BYTES = 4 * MIB, WORKERS_MAX = 64, SAME_SEED = 12345 };
enum mode { SEQ, SHUF, SAME, DRAW };

/* ---- random numbers: splitmix64 ---- */

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

uint64_t random_below(uint64_t *state, uint64_t n)
{
    return (uint64_t)((unsigned __int128)random_next(state) * n >> 64);
}

static double uniform(uint64_t *state)
{
    return (double)(random_next(state) >> 11) / 9007199254740992.0; /* 2^53 */
}

static void shuffle(uint32_t *a, uint32_t n, uint64_t *state)
{
    for (uint32_t i = n; i >= 2; i--) {
        uint64_t j = random_below(state, i);
        uint32_t was = a[i - 1];
        a[i - 1] = a[j];
        a[j] = was;
    }
}

struct zipf {
    double *below;                   /* cumulative */
    uint32_t n;
};

static struct zipf zipf_make(uint32_t n, double alpha)
{
    struct zipf z = {mem_take(n * sizeof(double)), n};
    double sum = 0;

    must(z.below);
    for (uint32_t i = 0; i < n; i++)
        z.below[i] = sum += pow(i + 1, -alpha);
    return z;
}

static uint32_t zipf_draw(const struct zipf *z, uint64_t *state)
{
    double at = uniform(state) * z->below[z->n - 1];
    uint32_t low = 0, high = z->n - 1;

    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (z->below[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- chunks and reads ---- */

static void *grown(void *old, uint64_t count, size_t each)
{
    void *bigger = mem_grow(old, count * each);

    must(bigger);
    return bigger;
}

static uint32_t add_chunk(struct trace *t, uint32_t bytes, unsigned dataset)
{
    if (t->chunks == t->chunk_cap) {
        t->chunk_cap = t->chunk_cap ? 2 * t->chunk_cap : 4096;
        t->bytes = grown(t->bytes, t->chunk_cap, sizeof *t->bytes);
        t->dataset = grown(t->dataset, t->chunk_cap, sizeof *t->dataset);
    }
    t->bytes[t->chunks] = bytes;
    t->dataset[t->chunks] = (uint16_t)dataset;
    return t->chunks++;
}

static void add(struct trace *t, uint32_t chunk, uint32_t bytes)
{
    if (t->count == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 65536;
        t->request = grown(t->request, t->cap, sizeof *t->request);
    }
    t->request[t->count++] = (struct request){chunk, bytes, 0, true, true};
}

struct dataset {
    uint32_t first, shards;          /* chunk; how many */
};

static struct dataset dataset_make(struct trace *t, uint32_t shards, unsigned number)
{
    struct dataset d = {t->chunks, shards};

    for (uint32_t n = 0; n < shards * SHARD_CHUNKS; n++) {
        uint32_t bytes = n % SHARD_CHUNKS == SHARD_CHUNKS - 1 ? LAST_BYTES : CHUNK_BYTES;
        add_chunk(t, bytes, number);
        t->working_set += bytes;
    }
    return d;
}

/* ---- a job ---- */

struct job {
    struct dataset d;
    unsigned workers;
    enum mode mode;
    uint16_t number;                 /* in the trace, from 1; 0: it did not begin */
    uint32_t range;
    unsigned epochs, epoch;          /* to do (0: no end), done */
    uint64_t random;
    uint32_t *order;                 /* owned */
    struct worker {
        uint32_t at, chunk, byte;    /* in order; in the shard; in the chunk */
    } worker[WORKERS_MAX];
    unsigned busy;
};

static void job_epoch(struct job *j)
{
    uint64_t same = SAME_SEED;

    for (uint32_t i = 0; i < j->d.shards; i++)
        j->order[i] = j->mode == DRAW ? (uint32_t)random_below(&j->random, j->d.shards) : i;
    if (j->mode == SHUF)
        shuffle(j->order, j->d.shards, &j->random);
    if (j->mode == SAME)
        shuffle(j->order, j->d.shards, &same);
    j->busy = 0;
    for (unsigned w = 0; w < j->workers; w++) {
        j->worker[w] = (struct worker){.at = w};
        j->busy += w < j->d.shards;
    }
}

static struct job *job_make(struct dataset d, unsigned workers, enum mode mode, unsigned epochs,
                            uint64_t seed)
{
    struct job *j = mem_take(sizeof *j);

    must(j && workers <= WORKERS_MAX);
    j->order = mem_take(d.shards * sizeof *j->order);
    must(j->order);
    j->d = d;
    j->workers = workers;
    j->mode = mode;
    j->range = CHUNK_BYTES;
    j->epochs = epochs;
    j->random = seed;
    job_epoch(j);
    return j;
}

static void job_free(struct job *j)
{
    mem_give(j->order);
    mem_give(j);
}

static bool job_over(const struct job *j)
{
    return j->epochs > 0 && j->epoch == j->epochs;
}

/* A job reads: what its plan tells. */
static void add_planned(struct trace *t, struct job *j, uint32_t chunk, uint32_t bytes)
{
    if (j->number == 0) {
        must(t->jobs + 1 < JOBS_MOST);
        j->number = (uint16_t)++t->jobs;
        t->draws[j->number] = j->mode == DRAW;
        for (uint32_t n = 0; n < j->d.shards * SHARD_CHUNKS; n++)
            t->epoch_bytes[j->number] += t->bytes[j->d.first + n];
    }
    add(t, chunk, bytes);
    t->request[t->count - 1].job = j->number;
}

/* One piece of one worker. */
static void job_step(struct job *j, struct trace *t)
{
    unsigned w = 0;

    if (j->workers > 1)
        do
            w = (unsigned)random_below(&j->random, j->workers);
        while (j->worker[w].at >= j->d.shards);
    struct worker *k = &j->worker[w];
    uint32_t chunk = j->d.first + j->order[k->at] * SHARD_CHUNKS + k->chunk;
    uint32_t bytes = (uint32_t)min_u64(j->range, t->bytes[chunk] - k->byte);
    add_planned(t, j, chunk, bytes);
    t->request[t->count - 1].first = k->byte == 0;
    k->byte += bytes;
    t->request[t->count - 1].last = k->byte == t->bytes[chunk];
    if (k->byte < t->bytes[chunk])
        return;
    k->byte = 0;
    if (++k->chunk < SHARD_CHUNKS)
        return;
    k->chunk = 0;
    k->at += j->workers;
    if (k->at < j->d.shards || --j->busy > 0)
        return;
    j->epoch++;
    if (!job_over(j))
        job_epoch(j);
}

static void run_out(struct trace *t, struct job *j)
{
    while (!job_over(j))
        job_step(j, t);
    job_free(j);
}

/* ---- the traces ---- */

static void one_job(struct trace *t, uint32_t shards, unsigned workers, enum mode mode,
                    uint64_t seed)
{
    t->epochs = 10;
    run_out(t, job_make(dataset_make(t, shards, 0), workers, mode, t->epochs, seed));
}

static void a_seq1(struct trace *t)
{
    one_job(t, 512, 1, SEQ, 1);
}

static void a_seq64(struct trace *t)
{
    one_job(t, 512, 64, SEQ, 2);
}

static void b_shuf(struct trace *t)
{
    one_job(t, 512, 64, SHUF, 3);
}

static void b_samp(struct trace *t)
{
    one_job(t, 512, 64, DRAW, 4);
    t->epochs = 0;
}

static void b_1m(struct trace *t)
{
    struct job *j = job_make(dataset_make(t, 256, 0), 64, SHUF, 6, 5);

    t->epochs = 6;
    j->range = MIB;
    run_out(t, j);
}

static void b_samp1m(struct trace *t)
{
    struct job *j = job_make(dataset_make(t, 128, 0), 32, DRAW, 6, 9);

    j->range = MIB;
    run_out(t, j);
}

static void c_rand(struct trace *t)
{
    struct dataset d = dataset_make(t, 64, 0);
    uint32_t shard = ((SHARD_CHUNKS - 1) * CHUNK_BYTES + LAST_BYTES) / GRANULE_BYTES;
    uint32_t samples = d.shards * shard, *order = mem_take(samples * sizeof *order);
    uint64_t random = 6;

    must(order);
    t->epochs = 6;
    t->random_parts = true;
    for (unsigned epoch = 0; epoch < t->epochs; epoch++) {
        for (uint32_t i = 0; i < samples; i++)
            order[i] = i;
        shuffle(order, samples, &random);
        for (uint32_t i = 0; i < samples; i++)
            add(t, order[i] / shard * SHARD_CHUNKS + order[i] % shard / GRANULES_PER_CHUNK,
                GRANULE_BYTES);
    }
    mem_give(order);
}

/* Two jobs on one dataset, the second behind by so many steps. */
static void two_jobs(struct trace *t, enum mode mode, unsigned percent)
{
    struct dataset d = dataset_make(t, 512, 0);
    struct job *a = job_make(d, 16, mode, 8, 7), *b = job_make(d, 16, mode, 8, 8);

    for (unsigned n = 0; n < d.shards * SHARD_CHUNKS * percent / 100; n++)
        job_step(a, t);
    while (!job_over(a) || !job_over(b)) {
        if (!job_over(a))
            job_step(a, t);
        if (!job_over(b))
            job_step(b, t);
    }
    job_free(a);
    job_free(b);
}

static void d_off5(struct trace *t)
{
    two_jobs(t, SAME, 5);
}

static void d_off25(struct trace *t)
{
    two_jobs(t, SAME, 25);
}

static void d_diff(struct trace *t)
{
    two_jobs(t, SHUF, 25);
}

enum { MULTI = 4 };

static void multi_make(struct trace *t, struct job *job[MULTI], uint64_t seed)
{
    for (unsigned n = 0; n < MULTI; n++)
        job[n] = job_make(dataset_make(t, 34u << n, n), 16, SHUF, 0, seed + n);
}

static void multi_free(struct job *job[MULTI])
{
    for (unsigned n = 0; n < MULTI; n++)
        job_free(job[n]);
}

static void e_multi(struct trace *t)
{
    struct job *job[MULTI];
    uint64_t random = 15;

    multi_make(t, job, 10);
    while (job[MULTI - 1]->epoch < 6)
        job_step(job[random_below(&random, MULTI)], t);
    multi_free(job);
}

static void f_daynight(struct trace *t)
{
    struct dataset big = dataset_make(t, 512, 0), small = dataset_make(t, 26, 1);

    for (unsigned day = 0; day < 5; day++) {
        run_out(t, job_make(small, 16, SHUF, 40, 20 + day));
        run_out(t, job_make(big, 64, SHUF, 3, 30 + day));
    }
}

static void g_scan(struct trace *t)
{
    struct job *a = job_make(dataset_make(t, 160, 0), 32, SHUF, 0, 40);
    struct job *b = job_make(dataset_make(t, 352, 1), 4, SEQ, 1, 41);

    while (a->epoch < 3)
        job_step(a, t);
    while (!job_over(b)) {
        job_step(a, t);
        job_step(b, t);
    }
    for (unsigned until = a->epoch + 3; a->epoch < until;)
        job_step(a, t);
    job_free(a);
    job_free(b);
}

static void h_ckpt(struct trace *t)
{
    enum { OBJECTS = 20, OBJECT_CHUNKS = 64 };
    struct job *j = job_make(dataset_make(t, 384, 0), 32, SHUF, 8, 51);
    struct zipf z = zipf_make(OBJECTS, .8);
    uint64_t random = 50, next = 2000, steps = 0;
    uint32_t first = t->chunks;

    for (unsigned n = 0; n < OBJECTS * OBJECT_CHUNKS; n++)
        add_chunk(t, CHUNK_BYTES, 1);
    t->working_set += (uint64_t)OBJECTS * OBJECT_CHUNKS * CHUNK_BYTES;
    for (; !job_over(j); steps++) {
        job_step(j, t);
        if (steps < next)
            continue;
        uint32_t at = first + zipf_draw(&z, &random) * OBJECT_CHUNKS;
        for (unsigned n = 0; n < OBJECT_CHUNKS; n++)
            add(t, at + n, CHUNK_BYTES);
        next = steps + 1000 + random_below(&random, 4000);
    }
    mem_give(z.below);
    job_free(j);
}

static void versions(struct trace *t, unsigned workers, enum mode mode, uint64_t seed)
{
    struct dataset old = dataset_make(t, 512, 0);
    uint64_t one = t->working_set;
    struct dataset young = dataset_make(t, 512, 1);

    t->working_set = one;
    t->fills = 2;
    run_out(t, job_make(old, workers, mode, 4, seed));
    run_out(t, job_make(young, workers, mode, 6, seed + 1));
}

static void i_ver(struct trace *t)
{
    versions(t, 64, SHUF, 60);
}

static void i_seq(struct trace *t)
{
    versions(t, 16, SEQ, 62);
}

static uint32_t log_size(uint64_t *random)
{
    double low = log(64), high = log(8192);

    return (uint32_t)floor(exp(low + uniform(random) * (high - low))) * KIB;
}

enum { POPULAR = 20000, DRAWS = 400000 };

static uint32_t *popular_make(struct trace *t, uint64_t *random)
{
    uint32_t *rank = mem_take(POPULAR * sizeof *rank);

    must(rank);
    for (uint32_t n = 0; n < POPULAR; n++) {
        uint32_t bytes = log_size(random);
        rank[n] = add_chunk(t, bytes, 0);
        t->working_set += bytes;
    }
    shuffle(rank, POPULAR, random);
    return rank;
}

static void zipf_trace(struct trace *t, double alpha)
{
    uint64_t random = 70;
    uint32_t *rank = popular_make(t, &random);
    struct zipf z = zipf_make(POPULAR, alpha);

    for (unsigned n = 0; n < DRAWS; n++) {
        bool unseen = random_below(&random, 5) == 0;
        uint32_t chunk = unseen ? add_chunk(t, log_size(&random), 0) : rank[zipf_draw(&z, &random)];
        add(t, chunk, t->bytes[chunk]);
    }
    mem_give(z.below);
    mem_give(rank);
}

static void j_zipf08(struct trace *t)
{
    zipf_trace(t, .8);
}

static void j_zipf10(struct trace *t)
{
    zipf_trace(t, 1.0);
}

static void j_drift(struct trace *t)
{
    uint64_t random = 71;
    uint32_t *rank = popular_make(t, &random);
    struct zipf z = zipf_make(POPULAR, .9);

    for (unsigned n = 0; n < DRAWS; n++) {
        uint32_t chunk = rank[zipf_draw(&z, &random)];
        add(t, chunk, t->bytes[chunk]);
        for (unsigned swap = 0; n % 40 == 39 && swap < 2; swap++) {
            uint32_t a = zipf_draw(&z, &random), was = rank[a];
            uint64_t b = random_below(&random, POPULAR);
            rank[a] = rank[b];
            rank[b] = was;
        }
    }
    mem_give(z.below);
    mem_give(rank);
}

static void k_mix(struct trace *t)
{
    enum { OBJECTS = 4000 };
    struct job *job[MULTI];
    struct zipf z = zipf_make(OBJECTS, .9);
    uint64_t random = 85;

    multi_make(t, job, 80);
    uint32_t first = t->chunks;
    for (unsigned n = 0; n < OBJECTS; n++) {
        uint32_t bytes = (uint32_t)(4096 + random_below(&random, 4096)) * KIB;
        add_chunk(t, bytes, MULTI);
        t->working_set += bytes;
    }
    while (job[MULTI - 1]->epoch < 6) {
        uint32_t chunk = first + zipf_draw(&z, &random);
        if (random_below(&random, 10) < 7)
            job_step(job[random_below(&random, MULTI)], t);
        else
            add(t, chunk, t->bytes[chunk]);
    }
    mem_give(z.below);
    multi_free(job);
}

static void l_hetero(struct trace *t)
{
    struct job *a = job_make(dataset_make(t, 200, 0), 16, SHUF, 12, 90);
    struct job *b = job_make(dataset_make(t, 300, 1), 16, SHUF, 6, 91);
    struct dataset c = dataset_make(t, 60, 2);
    uint32_t at = 100, chunks = c.shards * SHARD_CHUNKS;
    uint64_t random = 92, steps = 0;

    for (; !job_over(a) || !job_over(b); steps++) {
        uint64_t draw = random_below(&random, 10);
        struct job *j = draw < 6 ? a : b;
        if (draw < 2) {
            uint32_t chunk = c.first + (at - (uint32_t)random_below(&random, 100)) % chunks;
            add(t, chunk, t->bytes[chunk]);
            at += random_below(&random, 4) == 0;
        } else if (!job_over(j) && (j == a || steps >= 30000)) {
            job_step(j, t);
        }
    }
    job_free(a);
    job_free(b);
}

#define TRACES(X)                                                                                  \
    X(a_seq1) X(a_seq64) X(b_shuf) X(b_samp) X(b_samp1m) X(b_1m) X(c_rand) X(d_off5) X(d_off25)    \
    X(d_diff) X(e_multi) X(f_daynight) X(g_scan) X(h_ckpt) X(i_ver) X(i_seq) X(j_zipf08)           \
    X(j_zipf10) X(j_drift) X(k_mix) X(l_hetero)

#define X(name) #name,
const char *const trace_names[] = {TRACES(X) NULL};
#undef X
#define X(name) name,
static void (*const makers[])(struct trace *t) = {TRACES(X)};
#undef X

bool trace_make(struct trace *t, const char *name)
{
    for (unsigned n = 0; trace_names[n]; n++)
        if (strcmp(trace_names[n], name) == 0) {
            *t = (struct trace){.name = trace_names[n], .fills = 1};
            makers[n](t);
            return true;
        }
    return false;
}

void trace_free(struct trace *t)
{
    mem_give(t->request);
    mem_give(t->bytes);
    mem_give(t->dataset);
    *t = (struct trace){0};
}
