/* Who asks for how much of what, now: the heaviest clients, objects and prefixes of the last one to
 * two minutes.
 *
 * Invariants:
 *  1. Memory is fixed, and nothing is allocated: a core counts into one of a few tables, which it
 *     seldom shares, under that table's lock.
 *  2. What stands in a table was counted since it came in: never too much, at worst too little. The
 *     lightest of a set loses weight to each newcomer without a place, and its place once it has
 *     none: so the heavy ones stay, whatever crowd of light ones passes.
 *  3. Names are placed by a keyed hash: nobody outside can choose whom he pushes out.
 *
 * Life: part of the process. Failure: none.
 * Limits: names are cut to less than TOP_NAME_BYTES; two that differ behind that look alike. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>

#include "server/net/net.h"

enum {
    TOP_TABLES = 16,
    TOP_SETS = 32,
    TOP_WAYS = 4,
    TOP_WINDOW_MS = 60000,
    /* what a request weighs without any bytes, beside one with them */
    TOP_REQUEST_BYTES = 4 * KIB,
};

struct top_set {                     /* a line each for what is looked for and what is counted */
    uint64_t hash[TOP_WAYS];         /* 0: free */
    uint64_t weight[TOP_WAYS];
    struct {
        uint64_t requests, bytes;
    } count[TOP_WAYS];
} __attribute__((aligned(64)));
struct top_text {
    uint8_t len;
    char at[TOP_NAME_BYTES];
};
struct top_window {
    struct top_set set[NET_TOPS][TOP_SETS];
    struct top_text text[NET_TOPS][TOP_SETS][TOP_WAYS];
    uint64_t began_ms;               /* 0: not yet */
};
struct top_table {
    struct top_window window[2];
    pthread_mutex_t lock;
    unsigned now;                    /* the window that is counted into; the other is before it */
};

static struct top_table tables[TOP_TABLES] = {
    [0 ... TOP_TABLES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};
static _Atomic uint64_t seed;        /* 0: not yet chosen */

/* ---- counting ---- */
static uint64_t the_seed(void)
{
    uint64_t none = 0, mine = atomic_load_explicit(&seed, memory_order_relaxed);

    if (mine)
        return mine;
    mine = random_u64() | 1;
    return atomic_compare_exchange_strong(&seed, &none, mine) ? mine : none;
}

static uint64_t mix(uint64_t h, struct span bytes)
{
    for (size_t at = 0; at < bytes.len; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, bytes.at + at, min_u64(bytes.len - at, sizeof word));
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    return (h ^ bytes.len) * 0xD6E8FEB86659FD93u;
}

struct top_name {
    enum net_top what;
    struct span bucket, rest;        /* bucket: "" of a client; else rest is (part of) the key */
};

static void write_name(struct top_text *out, const struct top_name *n)
{
    struct text t;

    text_init(&t, out->at, sizeof out->at);
    text_add(&t, n->bucket);
    if (n->bucket.len)
        text_addc(&t, '/');
    text_add(&t, span_make(n->rest.at, min_u64(n->rest.len, sizeof out->at - 1 - t.len)));
    out->len = (uint8_t)t.len;
}

/* Lock held. */
static void count_name(struct top_window *w, const struct top_name *n, uint64_t bytes)
{
    uint64_t hash = mix(mix(the_seed() + n->what, n->bucket), n->rest) | 1;
    unsigned at = hash >> 32 & (TOP_SETS - 1), least = 0;
    struct top_set *s = &w->set[n->what][at];
    uint64_t weight = bytes + TOP_REQUEST_BYTES;

    for (unsigned i = 0; i < TOP_WAYS; i++) {
        if (s->hash[i] == hash) {
            s->count[i].requests++;
            s->count[i].bytes += bytes;
            s->weight[i] += weight;
            return;
        }
        if (s->weight[i] < s->weight[least])
            least = i;
    }
    if (s->weight[least] > weight) {
        s->weight[least] -= weight;
        return;
    }
    s->hash[least] = hash;
    s->weight[least] = weight;
    s->count[least].requests = 1;
    s->count[least].bytes = bytes;
    write_name(&w->text[n->what][at][least], n);
}

static struct top_window *turn_window(struct top_table *t, uint64_t now_ms)
{
    struct top_window *w = &t->window[t->now];

    if (w->began_ms && now_ms < w->began_ms + TOP_WINDOW_MS)
        return w;
    if (w->began_ms)
        t->now = !t->now;
    w = &t->window[t->now];
    memset(w, 0, sizeof *w);
    w->began_ms = now_ms;
    return w;
}

void net_top_count(struct core *c, const struct net_request *r)
{
    struct top_table *t = &tables[c->number % TOP_TABLES];
    size_t folder = r->key.len;

    while (folder > 0 && r->key.at[folder - 1] != '/')
        folder--;
    const struct top_name names[] = {
        {NET_TOP_CLIENT, span_of(""), r->client},
        {NET_TOP_OBJECT, r->bucket, r->key},
        {NET_TOP_PREFIX, r->bucket, span_make(r->key.at, folder)},
    };
    pthread_mutex_lock(&t->lock);
    struct top_window *w = turn_window(t, c->now_ms);
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++)
        if (r->key.len || names[i].what != NET_TOP_OBJECT)
            count_name(w, &names[i], r->bytes);
    pthread_mutex_unlock(&t->lock);
}

/* ---- reading ---- */
enum { TOP_ROWS_MAX = TOP_TABLES * 2 * TOP_SETS * TOP_WAYS };
struct top_entry {
    uint64_t hash, requests, bytes;
    struct top_text text;
};
struct gathered {
    struct top_entry *entry;         /* TOP_ROWS_MAX */
    unsigned count;
    uint64_t since_ms;
};

static void gather_window(struct gathered *g, const struct top_window *w, enum net_top what,
                          uint64_t now_ms)
{
    /* A table that nobody counted into for long shows what is no more. */
    if (!w->began_ms || now_ms > w->began_ms + 2 * TOP_WINDOW_MS)
        return;
    g->since_ms = min_u64(g->since_ms, w->began_ms);
    for (unsigned at = 0; at < TOP_SETS; at++)
        for (unsigned i = 0; i < TOP_WAYS; i++) {
            const struct top_set *s = &w->set[what][at];
            if (s->hash[i])
                g->entry[g->count++] =
                    (struct top_entry){s->hash[i], s->count[i].requests, s->count[i].bytes,
                                       w->text[what][at][i]};
        }
}

static int by_hash(const void *x, const void *y)
{
    const struct top_entry *a = x, *b = y;
    return a->hash < b->hash ? -1 : a->hash > b->hash;
}

static int by_bytes(const void *x, const void *y)
{
    const struct top_entry *a = x, *b = y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->requests < b->requests ? 1 : a->requests > b->requests ? -1 : 0;
}

/* One row per name. */
static void join_rows(struct gathered *g)
{
    unsigned kept = 0;

    qsort(g->entry, g->count, sizeof *g->entry, by_hash);
    for (unsigned i = 0; i < g->count; i++) {
        struct top_entry *last = kept ? &g->entry[kept - 1] : NULL;
        if (last && last->hash == g->entry[i].hash) {
            last->requests += g->entry[i].requests;
            last->bytes += g->entry[i].bytes;
        } else {
            g->entry[kept++] = g->entry[i];
        }
    }
    g->count = kept;
    qsort(g->entry, g->count, sizeof *g->entry, by_bytes);
}

unsigned net_top(enum net_top what, struct net_top_row *out, unsigned cap, uint64_t *over_ms)
{
    uint64_t now_ms = clock_ms();
    struct gathered g = {.entry = mem_take(TOP_ROWS_MAX * sizeof *g.entry), .since_ms = now_ms};
    unsigned rows = 0;

    for (unsigned i = 0; i < TOP_TABLES && g.entry; i++) {
        pthread_mutex_lock(&tables[i].lock);
        for (unsigned w = 0; w < 2; w++)
            gather_window(&g, &tables[i].window[w], what, now_ms);
        pthread_mutex_unlock(&tables[i].lock);
    }
    if (g.entry && g.count)
        join_rows(&g);
    for (; g.entry && rows < cap && rows < g.count; rows++) {
        const struct top_entry *e = &g.entry[rows];
        out[rows] = (struct net_top_row){.requests = e->requests, .bytes = e->bytes};
        memcpy(out[rows].name, e->text.at, e->text.len);
    }
    *over_ms = now_ms - g.since_ms;
    mem_give(g.entry);
    return rows;
}
