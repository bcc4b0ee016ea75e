/* Eviction policies behind one table of functions, and the ghosts: what each policy knows of chunks
 * that are no longer here.
 *
 * Invariants:
 *  1. A policy decides by marks alone; it holds no chunk and no pointer into the index.
 *  2. A mark is read and written by relaxed accesses: two readers of one chunk may lose one of two
 *     references, never tear a field.
 *  3. References are counted as one per chunk of bytes read (the credit), so that eight reads of a
 *     block and one of the chunk weigh the same.
 *  4. Clocks are compared by their distance modulo 2^32, so that one which ran over, or went on
 *     after a restart, still orders what was used within half of its range.
 *  5. The ghosts are a table of fixed size: remembering one may forget the oldest of its set.
 *
 * Life: policy_make() by cache_open(), policy_free() by cache_close().
 * Failure: only policy_make() can fail. A lost ghost or reference costs hits, nothing else. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

#include <math.h>
#include <pthread.h>

enum {
    CREDIT_PARTS = 256,              /* of a chunk: 32 KiB of a whole one */
    TICKS_PER_CAPACITY = 64 * KIB,   /* LRU's resolution: finer orders nothing that matters */
    GHOST_WAYS = 8,
    GHOST_LOCKS = 64,
    GHOST_CHUNKS = 1000 * 1000,      /* up to so many chunks the policy's number of ghosts each, */
    GHOSTS_BEYOND = 4,               /* for those beyond at most so many */
};

#define PEEK(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define POKE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

struct ghost_entry {
    uint64_t hash;                   /* 0: empty */
    struct policy_mark mark;
} __attribute__((packed, aligned(4)));
_Static_assert(sizeof(struct policy_mark) == 12, "a mark is 12 bytes, in RAM and in the record");
_Static_assert(sizeof(struct ghost_entry) == 20, "a ghost is 20 bytes");

struct ghosts {                      /* sets of GHOST_WAYS by hash */
    struct ghost_entry *entry;       /* owned; pages that were never used cost nothing */
    uint64_t set_mask;
    pthread_mutex_t lock[GHOST_LOCKS]; /* by set */
};

/* One row per policy. `counted` says whether the credit made this a reference or only a touch. */
struct policy_ops {
    const char *name;
    unsigned ghosts_each;            /* per chunk of capacity; 0: none are kept */
    void (*reference)(struct policy *p, struct policy_mark *m, bool counted);
    double (*value)(const struct policy *p, const struct policy_mark *m);
    bool (*admits)(const struct policy *p, const struct policy_mark *new_, double victim_value,
                   bool sub_chunk);
    uint16_t (*group)(struct policy *p, struct span bucket, struct span key);
    uint32_t (*now)(const struct policy *p); /* the clock that marks' `last` shows */
    void (*set_now)(struct policy *p, uint32_t now); /* at load */
};

struct policy {
    const struct policy_ops *ops;
    uint64_t capacity_chunks;
    _Atomic uint64_t served_bytes;   /* virtual time, times 8 MiB */
    _Atomic uint64_t references;     /* LRU's clock, times 2^tick_shift */
    unsigned tick_shift;
    bool resumed;
    struct ghosts ghosts;
};

/* ---- lru: the chunk used longest ago goes first, everything is admitted ---- */

static uint32_t lru_now(const struct policy *p)
{
    return (uint32_t)(atomic_load_explicit(&p->references, memory_order_relaxed) >> p->tick_shift);
}

static void lru_set_now(struct policy *p, uint32_t now)
{
    atomic_store_explicit(&p->references, (uint64_t)now << p->tick_shift, memory_order_relaxed);
}

/* A touch moves the chunk as well: recency is all that this policy knows. */
static void lru_reference(struct policy *p, struct policy_mark *m, bool counted)
{
    uint64_t n = atomic_fetch_add_explicit(&p->references, 1, memory_order_relaxed) + 1;

    (void)counted;
    POKE(m->last, (uint32_t)(n >> p->tick_shift));
}

static double lru_value(const struct policy *p, const struct policy_mark *m)
{
    return 1.0 / (1.0 + (double)(uint32_t)(lru_now(p) - PEEK(m->last)));
}

static bool lru_admits(const struct policy *p, const struct policy_mark *new_, double victim_value,
                       bool sub_chunk)
{
    (void)p;
    (void)new_;
    (void)sub_chunk;
    return !isinf(victim_value);
}

static uint16_t lru_group(struct policy *p, struct span bucket, struct span key)
{
    (void)p;
    (void)bucket;
    (void)key;
    return 0;
}

static const struct policy_ops policies[] = {
    {"lru", 0, lru_reference, lru_value, lru_admits, lru_group, lru_now,
     lru_set_now},
};

/* ---- ghosts ---- */

static uint64_t power_of_two_above(uint64_t n)
{
    uint64_t power = 1;

    while (power < n)
        power *= 2;
    return power;
}

static uint64_t ghost_count(unsigned each, uint64_t chunks)
{
    uint64_t near_ = min_u64(chunks, GHOST_CHUNKS), far_ = chunks - near_;

    return near_ * each + far_ * min_u64(each, GHOSTS_BEYOND);
}

/* Between half of the count and all of it. */
static enum err ghosts_make(struct ghosts *g, uint64_t count)
{
    if (count == 0)
        return OK;
    uint64_t sets = max_u64(power_of_two_above(count / GHOST_WAYS + 1) / 2, 1);
    g->entry = mem_take(sets * GHOST_WAYS * sizeof *g->entry);
    if (!g->entry)
        return ERR_MEMORY;
    g->set_mask = sets - 1;
    for (unsigned n = 0; n < GHOST_LOCKS; n++)
        pthread_mutex_init(&g->lock[n], NULL);
    return OK;
}

static void ghosts_free(struct ghosts *g)
{
    if (!g->entry)
        return;
    for (unsigned n = 0; n < GHOST_LOCKS; n++)
        pthread_mutex_destroy(&g->lock[n]);
    mem_give(g->entry);
    g->entry = NULL;
}

/* Locks the hash's set. */
static struct ghost_entry *ghosts_enter(struct ghosts *g, uint64_t hash)
{
    uint64_t set = hash & g->set_mask;

    pthread_mutex_lock(&g->lock[set % GHOST_LOCKS]);
    return &g->entry[set * GHOST_WAYS];
}

static void ghosts_leave(struct ghosts *g, uint64_t hash)
{
    pthread_mutex_unlock(&g->lock[(hash & g->set_mask) % GHOST_LOCKS]);
}

/* Where it stands, else an empty place, else the one of the oldest mark. */
static struct ghost_entry *ghost_place(struct ghost_entry *set, uint64_t hash, uint32_t now)
{
    struct ghost_entry *oldest = set;

    for (struct ghost_entry *e = set; e < set + GHOST_WAYS; e++)
        if (e->hash == hash)
            return e;
    for (struct ghost_entry *e = set; e < set + GHOST_WAYS; e++) {
        if (e->hash == 0)
            return e;
        if (now - e->mark.last > now - oldest->mark.last)
            oldest = e;
    }
    return oldest;
}

static void ghosts_add(struct ghosts *g, uint64_t hash, const struct policy_mark *m, uint32_t now)
{
    hash = hash ? hash : 1;
    struct ghost_entry *e = ghost_place(ghosts_enter(g, hash), hash, now);
    e->hash = hash;
    e->mark = *m;
    ghosts_leave(g, hash);
}

/* What comes back is a ghost no longer. */
static bool ghosts_take(struct ghosts *g, uint64_t hash, struct policy_mark *out)
{
    bool found = false;

    hash = hash ? hash : 1;
    struct ghost_entry *set = ghosts_enter(g, hash);
    for (struct ghost_entry *e = set; e < set + GHOST_WAYS && !found; e++)
        if (e->hash == hash) {
            *out = e->mark;
            e->hash = 0;
            found = true;
        }
    ghosts_leave(g, hash);
    return found;
}

/* ---- the face ---- */

struct policy *policy_make(const char *name, uint64_t capacity_chunks)
{
    const struct policy_ops *ops = NULL;

    for (size_t n = 0; n < ARRAY_COUNT(policies); n++)
        if (strcmp(policies[n].name, name) == 0)
            ops = &policies[n];
    struct policy *p = ops ? mem_take(sizeof *p) : NULL;
    if (!p)
        return NULL;
    p->ops = ops;
    p->capacity_chunks = capacity_chunks;
    while (capacity_chunks >> p->tick_shift > TICKS_PER_CAPACITY)
        p->tick_shift++;
    if (ghosts_make(&p->ghosts, ghost_count(ops->ghosts_each, capacity_chunks)) != OK) {
        mem_give(p);
        return NULL;
    }
    return p;
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    ghosts_free(&p->ghosts);
    mem_give(p);
}

void policy_resume(struct policy *p, const struct policy_mark *m)
{
    uint32_t now = p->ops->now(p);

    if (p->resumed && (int32_t)(m->last - now) <= 0)
        return;
    p->resumed = true;
    p->ops->set_now(p, m->last);
}

void policy_served(struct policy *p, uint64_t bytes)
{
    atomic_fetch_add_explicit(&p->served_bytes, bytes, memory_order_relaxed);
}

uint16_t policy_group(struct policy *p, struct span bucket, struct span key)
{
    return p->ops->group(p, bucket, key);
}

/* Adds the bytes to the mark's credit. True: this is a reference, not a touch. */
static bool credit(struct policy_mark *m, uint64_t bytes, uint32_t chunk_bytes)
{
    uint64_t whole = max_u64(chunk_bytes, 1);
    uint64_t parts = (min_u64(bytes, whole) * CREDIT_PARTS + whole / 2) / whole;
    parts = max_u64(parts, 1);
    uint64_t sum = PEEK(m->credit) + parts;
    bool counted = PEEK(m->count) == 0 || sum > CREDIT_PARTS;

    if (PEEK(m->count) == 0)
        sum = parts;
    else if (counted)
        sum -= CREDIT_PARTS;
    POKE(m->credit, (uint8_t)min_u64(sum, UINT8_MAX));
    if (counted && PEEK(m->count) < UINT8_MAX)
        POKE(m->count, (uint8_t)(PEEK(m->count) + 1));
    return counted;
}

void policy_reference(struct policy *p, struct policy_mark *m, uint64_t bytes, uint32_t chunk_bytes)
{
    p->ops->reference(p, m, credit(m, bytes, chunk_bytes));
}

double policy_value(const struct policy *p, const struct policy_mark *m)
{
    return PEEK(m->flags) & MARK_PINNED ? (double)INFINITY : p->ops->value(p, m);
}

bool policy_admits(const struct policy *p, const struct policy_mark *new_, double victim_value,
                   bool sub_chunk)
{
    return p->ops->admits(p, new_, victim_value, sub_chunk);
}

void policy_remember(struct policy *p, uint64_t hash, const struct policy_mark *m)
{
    if (p->ghosts.entry)
        ghosts_add(&p->ghosts, hash, m, p->ops->now(p));
}

bool policy_recall(struct policy *p, uint64_t hash, struct policy_mark *out)
{
    return p->ghosts.entry && ghosts_take(&p->ghosts, hash, out);
}
