/* Eviction policies behind one table of functions.
 *
 * Invariants:
 *  1. A policy decides by marks alone; it holds no chunk and no pointer into the index.
 *  2. A mark is read and written by relaxed accesses: two readers of one chunk may lose one of two
 *     references, never tear a field.
 *  3. References are counted as one per chunk of bytes read (the credit), so that eight reads of a
 *     block and one of the chunk weigh the same.
 *  4. Clocks are compared by their distance modulo 2^32, so that one which ran over, or went on
 *     after a restart, still orders what was used within half of its range.
 *
 * Life: policy_make() by cache_open(), policy_free() by cache_close().
 * Failure: only policy_make() can fail. A lost ghost or reference costs hits, nothing else. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/inside.h"

#include <math.h>

enum {
    CREDIT_PARTS = 256,              /* of a chunk: 32 KiB of a whole one */
    CREDIT_SLACK = 8,                /* what rounding may lack of a chunk read whole */
    TICKS_PER_CAPACITY = 64 * KIB,   /* LRU's resolution: finer orders nothing that matters */
    GHOST_CHUNKS = 1000 * 1000,      /* up to so many chunks the policy's number of ghosts each, */
    GHOSTS_BEYOND = 4,               /* for those beyond at most so many */
};

/* One row per policy. `counted` says whether the credit made this a reference or only a touch. */
struct policy_ops {
    const char *name;
    unsigned ghosts_each;            /* per chunk that may be resident; 0: none are kept */
    void (*reference)(struct policy *p, uint64_t hash, struct policy_mark *m, bool counted);
    double (*value)(const struct policy *p, const struct policy_mark *m);
    bool (*admits)(const struct policy *p, const struct policy_mark *new_, double victim_value,
                   uint16_t victim_group);
    uint32_t (*now)(const struct policy *p); /* the clock that marks' `last` shows */
    void (*set_now)(struct policy *p, uint32_t now); /* at load */
};

struct policy {
    const struct policy_ops *ops;
    _Atomic uint64_t references;     /* LRU's clock, times 2^tick_shift */
    unsigned tick_shift;
    bool resumed;
    struct ghosts ghosts;
    struct ehd *ehd;                 /* NULL: lru */
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
static void lru_reference(struct policy *p, uint64_t hash, struct policy_mark *m, bool counted)
{
    uint64_t n = atomic_fetch_add_explicit(&p->references, 1, memory_order_relaxed) + 1;

    (void)hash;
    (void)counted;
    POKE(m->last, (uint32_t)(n >> p->tick_shift));
}

static double lru_value(const struct policy *p, const struct policy_mark *m)
{
    return 1.0 / (1.0 + (double)(uint32_t)(lru_now(p) - PEEK(m->last)));
}

static bool lru_admits(const struct policy *p, const struct policy_mark *new_, double victim_value,
                       uint16_t victim_group)
{
    (void)p;
    (void)new_;
    (void)victim_group;
    return !isinf(victim_value);
}

/* ---- ehd: the fewest hits to be expected per unit of time go first ---- */

/* A newcomer must clearly beat the victim, or equals would push each other out; more so when its
 * fill costs more than was asked for. Those of one group are such equals. With that factor between
 * groups a dataset that is read twice as often as another hardly got the other's room: by what is
 * known of both it is worth 1.5 to 2 times as much; with as little within a group, what is written
 * to the disks for days and nights of two jobs grew by half (all measured: bench/policy,
 * tests/epochs). */
static const double ADMIT_FACTOR = 1.75, ADMIT_FACTOR_OTHER = 1.4, ADMIT_FACTOR_PART = 8;
static const double KEPT_WORTH = 1e6; /* ranks are hits per tick, so at most 1 */

static void on_ehd_reference(struct policy *p, uint64_t hash, struct policy_mark *m, bool counted)
{
    if (counted)
        ehd_reference(p->ehd, hash, m);
}

/* What is to be kept is worth more than anything else. */
static double on_ehd_value(const struct policy *p, const struct policy_mark *m)
{
    double kept = PEEK(m->flags) & MARK_KEEP ? ehd_kept(p->ehd, m) : 0;

    return kept > 0 ? KEPT_WORTH * (1 + kept) : ehd_value(p->ehd, m);
}

/* Of what is planned all will be read, whatever is asked for now. A touch is the rest of a pass
 * that was not worth it when it began: it is let in only if it will be read again soon. */
static bool on_ehd_admits(const struct policy *p, const struct policy_mark *new_,
                          double victim_value, uint16_t victim_group)
{
    bool planned = (new_->flags & (MARK_PLANNED | MARK_BEYOND)) == MARK_PLANNED;
    bool touch = new_->flags & MARK_TOUCH, part = new_->flags & MARK_PART;
    double factor = new_->group == victim_group ? ADMIT_FACTOR : ADMIT_FACTOR_OTHER;
    double costs = (planned ? touch : part) ? ADMIT_FACTOR_PART : 1;

    if (isinf(victim_value) || new_->flags & MARK_KEEP)
        return !isinf(victim_value);
    return (planned || !touch) && ehd_value(p->ehd, new_) > factor * costs * victim_value;
}

static uint32_t on_ehd_now(const struct policy *p)
{
    return ehd_now(p->ehd);
}

static void on_ehd_set_now(struct policy *p, uint32_t now)
{
    ehd_set_now(p->ehd, now);
}

static const struct policy_ops policies[] = {
    {"ehd", EHD_GHOSTS, on_ehd_reference, on_ehd_value, on_ehd_admits, on_ehd_now, on_ehd_set_now},
    {"lru", 0, lru_reference, lru_value, lru_admits, lru_now, lru_set_now},
};

/* ---- the face ---- */

void policy_prefetch(const struct policy *p, uint64_t hash, bool entry)
{
    if (p->ehd)
        ehd_prefetch(p->ehd, hash, entry);
}

static uint64_t ghost_count(unsigned each, uint64_t chunks)
{
    uint64_t near_ = min_u64(chunks, GHOST_CHUNKS), far_ = chunks - near_;

    return near_ * each + far_ * min_u64(each, GHOSTS_BEYOND);
}

static const struct policy_ops *ops_of(const char *name)
{
    for (size_t n = 0; n < ARRAY_COUNT(policies); n++)
        if (strcmp(policies[n].name, name) == 0)
            return &policies[n];
    return NULL;
}

/* For capacity_chunks where that matters; ehd: what has been made for it, its own from now on. */
static struct policy *make_with(const struct policy_ops *ops, uint64_t capacity_chunks,
                           uint64_t residents, struct ehd *ehd)
{
    struct policy *p = mem_take(sizeof *p);
    bool learns = ops->reference == on_ehd_reference;

    if (!p) {
        ehd_free(ehd);
        return NULL;
    }
    p->ops = ops;
    p->ehd = ehd;
    while (capacity_chunks >> p->tick_shift > TICKS_PER_CAPACITY)
        p->tick_shift++;
    if (ghosts_make(&p->ghosts, ghost_count(ops->ghosts_each, residents)) != OK ||
        (learns && !p->ehd)) {
        policy_free(p);
        return NULL;
    }
    return p;
}

struct policy *policy_make(const char *name, uint64_t capacity_chunks, uint64_t residents)
{
    const struct policy_ops *ops = ops_of(name);

    if (!ops)
        return NULL;
    bool learns = ops->reference == on_ehd_reference;
    return make_with(ops, capacity_chunks, residents, learns ? ehd_make(capacity_chunks) : NULL);
}

struct policy *policy_make_like(const struct policy *p, uint64_t capacity_chunks,
                                uint64_t residents)
{
    struct ehd *ehd = p->ehd ? ehd_make_like(p->ehd, capacity_chunks, residents) : NULL;

    return make_with(p->ops, capacity_chunks, residents, ehd);
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    ghosts_free(&p->ghosts);
    ehd_free(p->ehd);
    mem_give(p);
}

void policy_resume_clock(struct policy *p, uint32_t last)
{
    uint32_t now = p->ops->now(p);

    if (!p->resumed || (int32_t)(last - now) > 0)
        p->ops->set_now(p, last);
    p->resumed = true;
}

void policy_resume(struct policy *p, uint64_t hash, const struct policy_mark *m)
{
    if (p->ehd)
        ehd_resume(p->ehd, hash, m);
}

void policy_join(const struct policy *p, struct policy_mark *m)
{
    uint32_t now = p->ops->now(p);

    if ((int32_t)(m->last - now) > 0)
        m->last = now;
}

void policy_served(struct policy *p, uint64_t bytes)
{
    if (p->ehd)
        ehd_served(p->ehd, bytes);
}

void policy_declare(struct policy *p, struct span match)
{
    if (p->ehd)
        ehd_prefixes_declare(ehd_prefixes(p->ehd), match);
}

uint16_t policy_group(struct policy *p, struct span bucket, struct span key, uint64_t bytes)
{
    return p->ehd ? ehd_group(p->ehd, bucket, key, bytes) : 0;
}

/* The memo is a tag and, above it, the generation that it is of. */
uint16_t policy_tag(struct policy *p, _Atomic uint32_t *memo, struct span bucket, struct span key)
{
    if (!p->ehd)
        return 0;
    uint32_t known = atomic_load_explicit(memo, memory_order_relaxed);
    uint32_t generation = ehd_prefixes_generation(ehd_prefixes(p->ehd));
    if (known >> 16 == generation)
        return (uint16_t)known;
    uint16_t tag = ehd_group(p->ehd, bucket, key, 0);
    atomic_store_explicit(memo, generation << 16 | tag, memory_order_relaxed);
    return tag;
}

static uint64_t parts_of(uint64_t bytes, uint32_t chunk_bytes)
{
    uint64_t whole = max_u64(chunk_bytes, 1);

    return (min_u64(bytes, whole) * CREDIT_PARTS + whole / 2) / whole;
}

/* Adds the bytes to the mark's credit. True: this is a reference, not a touch. */
static bool credit(struct policy_mark *m, uint64_t bytes, uint32_t chunk_bytes)
{
    uint64_t parts = bytes > 0 ? max_u64(parts_of(bytes, chunk_bytes), 1) : 0;
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

void policy_reference(struct policy *p, uint64_t hash, struct policy_mark *m, uint64_t bytes,
                      uint32_t chunk_bytes)
{
    bool counted = credit(m, bytes, chunk_bytes);
    bool whole = counted || PEEK(m->credit) + CREDIT_SLACK >= CREDIT_PARTS;

    if (whole && PEEK(m->flags) & MARK_PLANNED && p->ehd)
        ehd_plan_read(p->ehd, m, counted);
    p->ops->reference(p, hash, m, counted);
    if (whole && PEEK(m->flags) & MARK_KEEP)
        __atomic_fetch_and(&m->flags, (uint8_t)~MARK_KEEP, __ATOMIC_RELAXED);
}

void policy_missed(struct policy *p, const struct policy_miss *miss, struct policy_mark *out)
{
    bool known = ghosts_take(&p->ghosts, miss->hash, out);

    if (!known || (p->ehd && ehd_is_old(p->ehd, out)))
        *out = (struct policy_mark){0};
    out->group = miss->group;
    bool counted = credit(out, miss->bytes, miss->chunk_bytes);
    p->ops->reference(p, miss->hash, out, counted);
    bool part = miss->bytes < miss->chunk_bytes;
    out->flags = (uint8_t)((part ? MARK_PART : 0) | (counted ? 0 : MARK_TOUCH));
}

void policy_keep(struct policy *p, struct policy_mark *m)
{
    if (p->ehd) {
        ehd_keep(p->ehd, m);
        return;
    }
    POKE(m->last, p->ops->now(p));
    __atomic_fetch_or(&m->flags, (uint8_t)MARK_KEEP, __ATOMIC_RELAXED);
}

void policy_plan(struct policy *p, struct policy_mark *m, uint64_t bytes_ahead)
{
    if (p->ehd)
        ehd_plan(p->ehd, m, bytes_ahead, false);
}

void policy_plan_beyond(struct policy *p, struct policy_mark *m, uint64_t horizon_bytes)
{
    if (p->ehd)
        ehd_plan(p->ehd, m, horizon_bytes, true);
}

void policy_unplan(struct policy *p, struct policy_mark *m)
{
    (void)p;
    due_forget(m);
}

void policy_expect(struct policy_mark *m, uint64_t bytes, uint32_t chunk_bytes)
{
    m->credit -= (uint8_t)min_u64(m->credit, parts_of(bytes, chunk_bytes));
}

double policy_value(const struct policy *p, const struct policy_mark *m)
{
    return PEEK(m->flags) & MARK_PINNED ? (double)INFINITY : p->ops->value(p, m);
}

bool policy_admits(const struct policy *p, const struct policy_mark *new_, double victim_value,
                   uint16_t victim_group)
{
    return p->ops->admits(p, new_, victim_value, victim_group);
}

void policy_remember(struct policy *p, uint64_t hash, const struct policy_mark *m)
{
    struct policy_mark ghost = *m;

    ghost.flags = 0;
    ghost.spare = 0;
    ghosts_add(&p->ghosts, hash, &ghost, p->ops->now(p));
}

bool policy_is_due(const struct policy *p)
{
    return p->ehd && ehd_is_due(p->ehd);
}

void policy_refresh(struct policy *p)
{
    if (p->ehd)
        ehd_refresh(p->ehd);
}

size_t policy_save(const struct policy *p, unsigned n, void *out, size_t cap)
{
    return p->ehd && n < EHD_GROUPS ? ehd_save(p->ehd, n, out, cap) : 0;
}

enum err policy_restore(struct policy *p, struct span state)
{
    return p->ehd ? ehd_restore(p->ehd, state) : ERR_FULL;
}

unsigned policy_groups(const struct policy *p)
{
    return p && p->ehd ? ehd_prefixes_count(ehd_prefixes(p->ehd)) : 0;
}

size_t policy_group_name(const struct policy *p, uint16_t tag, char out[POLICY_NAME_BYTES])
{
    return p->ehd ? ehd_prefixes_name(ehd_prefixes(p->ehd), tag, out) : 0;
}
