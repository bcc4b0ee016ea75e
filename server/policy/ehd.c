/* EHD, epoch-aware hit density: keeps the chunks that promise most hits per unit of time in the
 * cache, by what was learnt of their group: how likely one is read again, given the age since its
 * last read.
 *
 * Words: the clock counts bytes served, in *ticks*; an *age* is a number of ticks. The *class* of a
 * chunk says how long its last interval was and how often it was read. A *rank* is the worth of a
 * chunk by group, class and age.
 *
 * Invariants:
 *  1. A hit stores into the mark, into its group once a tick, and, if the chunk is in the sample,
 *     into its entry and a counter of this thread's stripe. It takes no lock but to enter the
 *     sample, and does not wait for that one.
 *  2. Ranks are read from a table that stands while it is read by anyone who looks for less than
 *     the time between two refreshes; a refresh writes the other one and swaps the pointer.
 *  3. A group that nobody reads decays: its curves are from when it was read. While a group is
 *     young, reading it counts as reading the one that it was part of, where the chunks that nobody
 *     read since still are.
 *  4. A mark whose tag is no group's any more is of one that was idle for longest: worth almost
 *     nothing.
 *
 * Life: ehd_make() by policy_make(), ehd_free() by policy_free(). ehd_refresh() by one thread at a
 * time.
 * Failure: none but at the start. What threads lose to each other by relaxed stores are counts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>

#include "server/policy/inside.h"

enum {
    STRIPES = 8,
    TICK_SHIFT = 23,                 /* a chunk's bytes, in caches of middling size */
    TICKS_FEW = 1024,                /* of the capacity: finer ticks below, coarser ones above */
    TICKS_MANY = 1 << 20,
    REFRESH_SHARE = 10,              /* as many hits as with 16 (bench/policy) */
    REFRESH_CHUNKS = 32,
    REFRESH_SHARE_SMALL = 8,         /* of small caches: those chunks would be too many */
    LEAN_CHUNKS = 8192,              /* of caches below, the sample is small */
    SERVED_TOGETHER = 512 * KIB,     /* what a thread keeps for itself before it tells */
    /* reads closer than a part in so many of the capacity are one */
    ONE_READING = 128,
    IDLE_GAPS = 8,
    GAP_PARTS = 1024,
    GAPS = 100,                      /* that the usual one is a mean of */
    IDLE_SHARE = 50,
    SAMPLE_HORIZON = 22,
    CLOSED_MOST = 2048,              /* counts of a class; beyond, the old ones fade */
    OCTAVES = 12,
    OCTAVE_OF_CAPACITY = 8,          /* an interval as long as the cache is large */
    FOLDED_WORTH = 64,               /* of a chunk whose group is gone: one part in so many */
};

struct ehd_stripe {
    _Atomic uint64_t served;         /* bytes not yet in ehd.served */
    _Atomic uint64_t dirty[EHD_GROUPS]; /* bit per class with counts below */
    uint32_t reused[EHD_GROUPS][EHD_CLASSES][EHD_BUCKETS];
} __attribute__((aligned(64)));

struct group {
    uint32_t last;                   /* its newest reference */
    uint64_t gap;                    /* smoothed, between references; in parts of a tick */
    uint16_t tag;                    /* as the curves know it */
    uint8_t parent;
    uint32_t born, resumed;          /* resumed: when it was read again after it had been idle */
    bool touched;                    /* since the last refresh */
};

struct ehd {
    uint64_t capacity;               /* in ticks */
    unsigned shift;                  /* a tick is 1 << shift bytes */
    uint32_t refreshed;
    uint32_t interval;
    _Atomic uint64_t served;
    struct group group[EHD_GROUPS];
    /* Zero pages until a group is read, as the curves and ranks are: most groups never are. */
    void *stripes;
    struct ehd_stripe *stripe;       /* in stripes, aligned */
    struct ehd_prefixes *prefixes;
    bool borrowed;                   /* they are another's */
    struct ehd_sample *sample;
    struct ehd_curve *curve;         /* per group */
    struct ehd_counts *rank;         /* two per group */
    struct ehd_counts *shown[EHD_GROUPS]; /* that of both which is read, or blank */
    struct ehd_counts blank;         /* of a group of which nothing is known */
    double prior[EHD_BUCKETS];
};

/* ---- birth and end ---- */

static void set_ticks(struct ehd *e, uint64_t capacity_chunks)
{
    uint64_t bytes = max_u64(capacity_chunks, 1) * CHUNK_BYTES;

    e->shift = TICK_SHIFT;
    while (bytes >> e->shift < TICKS_FEW)
        e->shift--;
    while (bytes >> e->shift > TICKS_MANY)
        e->shift++;
    e->capacity = bytes >> e->shift;
    uint64_t some = (uint64_t)REFRESH_CHUNKS * CHUNK_BYTES >> e->shift;
    e->interval = (uint32_t)(e->capacity / REFRESH_SHARE +
                             min_u64(some, e->capacity / REFRESH_SHARE_SMALL));
}

static void group_begin(struct ehd *e, unsigned g, uint16_t tag)
{
    POKE(e->group[g].last, ehd_now(e));
    POKE(e->group[g].gap, 0);
    POKE(e->group[g].born, ehd_now(e));
    POKE(e->group[g].parent, (uint8_t)ehd_prefixes_parent(e->prefixes, g));
    e->group[g].tag = tag;
    __atomic_store_n(&e->shown[g], &e->blank, __ATOMIC_RELEASE);
}

/* Its number was another's. */
static void group_renew(struct ehd *e, unsigned g, uint16_t tag)
{
    memset(&e->curve[g], 0, sizeof e->curve[g]);
    group_begin(e, g, tag);
}

/* Without prefixes it makes its own. */
static struct ehd *make_with(uint64_t capacity_chunks, uint64_t residents,
                        struct ehd_prefixes *prefixes)
{
    struct ehd *e = mem_take(sizeof *e);

    if (!e)
        return NULL;
    set_ticks(e, capacity_chunks);
    e->borrowed = prefixes != NULL;
    e->stripes = mem_take((STRIPES + 1) * sizeof *e->stripe);
    e->stripe = (void *)(((uintptr_t)e->stripes | (_Alignof(struct ehd_stripe) - 1)) + 1);
    e->prefixes = prefixes ? prefixes : ehd_prefixes_make(capacity_chunks * CHUNK_BYTES);
    e->sample = ehd_sample_make(residents, e->borrowed || capacity_chunks < LEAN_CHUNKS);
    e->curve = mem_take(EHD_GROUPS * sizeof *e->curve);
    e->rank = mem_take(2 * EHD_GROUPS * sizeof *e->rank);
    if (!e->stripes || !e->prefixes || !e->sample || !e->curve || !e->rank) {
        ehd_free(e);
        return NULL;
    }
    ehd_prior((double)e->capacity, e->prior);
    ehd_ranks(&e->curve[0], e->prior, &e->blank);
    for (unsigned g = 0; g < EHD_GROUPS; g++)
        group_begin(e, g, (uint16_t)g);
    return e;
}

struct ehd *ehd_make(uint64_t capacity_chunks)
{
    return make_with(capacity_chunks, max_u64(capacity_chunks, EHD_GROUPS * KIB), NULL);
}

struct ehd *ehd_make_like(struct ehd *e, uint64_t capacity_chunks, uint64_t residents)
{
    return make_with(capacity_chunks, residents, e->prefixes);
}

void ehd_free(struct ehd *e)
{
    if (!e)
        return;
    if (!e->borrowed)
        ehd_prefixes_free(e->prefixes);
    ehd_sample_free(e->sample);
    mem_give(e->stripes);
    mem_give(e->curve);
    mem_give(e->rank);
    mem_give(e);
}

struct ehd_prefixes *ehd_prefixes(struct ehd *e)
{
    return e->prefixes;
}

/* ---- the clock ---- */

static struct ehd_stripe *own_stripe(struct ehd *e)
{
    static _Atomic unsigned threads;
    static _Thread_local unsigned own; /* + 1 */

    if (own == 0)
        own = atomic_fetch_add(&threads, 1) % STRIPES + 1;
    return &e->stripe[own - 1];
}

uint32_t ehd_now(const struct ehd *e)
{
    return (uint32_t)(atomic_load_explicit(&e->served, memory_order_relaxed) >> e->shift);
}

void ehd_set_now(struct ehd *e, uint32_t now)
{
    atomic_store_explicit(&e->served, (uint64_t)now << e->shift, memory_order_relaxed);
    for (unsigned g = 0; g < EHD_GROUPS; g++)
        POKE(e->group[g].last, now);
    e->refreshed = now;
}

/* The common count moves in steps, or all cores would write it at each request. */
void ehd_served(struct ehd *e, uint64_t bytes)
{
    struct ehd_stripe *s = own_stripe(e);
    uint64_t sum = atomic_fetch_add_explicit(&s->served, bytes, memory_order_relaxed) + bytes;

    if (sum < min_u64(SERVED_TOGETHER, 1ull << e->shift))
        return;
    sum = atomic_exchange_explicit(&s->served, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->served, sum, memory_order_relaxed);
}

/* Marks of other threads may be a little younger than the clock that we saw. */
static uint32_t age_of(uint32_t now, uint32_t last)
{
    uint32_t age = now - last;

    return (int32_t)age < 0 ? 0 : age;
}

bool ehd_is_old(const struct ehd *e, const struct policy_mark *m)
{
    return age_of(ehd_now(e), m->last) > EHD_HORIZON * e->capacity;
}

/* ---- references ---- */

static uint32_t idle_of(const struct ehd *e, unsigned g)
{
    return age_of(ehd_now(e), PEEK(e->group[g].last));
}

uint16_t ehd_group(struct ehd *e, struct span bucket, struct span key, uint64_t bytes)
{
    struct ehd_idle idle = {idle_of, e, (uint32_t)e->capacity};

    return ehd_prefixes_find(e->prefixes, bucket, key, bytes, &idle);
}

static uint8_t class_of(const struct ehd *e, uint32_t age, unsigned count)
{
    int octave = (int)floor(log2((double)max_u64(age, 1) / (double)e->capacity));
    unsigned often = count <= 2 ? 0 : count <= 6 ? 1 : 2;

    octave += OCTAVE_OF_CAPACITY;
    octave = octave < 0 ? 0 : octave >= OCTAVES ? OCTAVES - 1 : octave;
    return (uint8_t)(1 + 3 * (unsigned)octave + often);
}

/* Beyond that it is idle. */
static double usual_gap(const struct ehd *e, unsigned g)
{
    double usual = IDLE_GAPS * (double)PEEK(e->group[g].gap) / GAP_PARTS;
    double least = (double)e->capacity / IDLE_SHARE;

    return usual > least ? usual : least;
}

static void note_time(struct ehd *e, unsigned g, uint32_t now)
{
    struct group *group = &e->group[g];
    uint32_t since = age_of(now, PEEK(group->last));

    if (since == 0)
        return;
    if (since > usual_gap(e, g))
        POKE(group->resumed, now);
    uint64_t gap = PEEK(group->gap), more = (uint64_t)since * GAP_PARTS;
    POKE(group->gap, more > gap ? gap + (more - gap) / GAPS : gap - (gap - more) / GAPS);
    POKE(group->last, now);
    if (!PEEK(group->touched))
        POKE(group->touched, true);
    for (unsigned n = 0; n < EHD_GROUPS && g > 0; n++) {
        if (age_of(now, PEEK(e->group[g].born)) > 2 * EHD_HORIZON * e->capacity)
            break;
        g = PEEK(e->group[g].parent);
        POKE(e->group[g].last, now);
    }
}

static void count_reuse(struct ehd *e, unsigned g, unsigned class_, uint32_t age)
{
    struct ehd_stripe *s = own_stripe(e);
    uint32_t *n = &s->reused[g][class_][ehd_bucket((uint32_t)max_u64(age, 1))];

    __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
    if (!(atomic_load_explicit(&s->dirty[g], memory_order_relaxed) >> class_ & 1))
        atomic_fetch_or_explicit(&s->dirty[g], 1ull << class_, memory_order_relaxed);
}

/* What the mark says, or the sample, which forgets less. Count is what it was before. */
static bool is_known(struct ehd *e, const struct ehd_seen *seen, const struct policy_mark *m,
                     struct ehd_seen *was)
{
    bool known = PEEK(m->count) > 1;

    *was = (struct ehd_seen){0};
    if (known)
        *was = (struct ehd_seen){.last = PEEK(m->last), .class_ = PEEK(m->class_)};
    else if (seen)
        *was = (struct ehd_seen){.last = PEEK(seen->last), .class_ = PEEK(seen->class_)};
    if (!known && seen)
        known = age_of(ehd_now(e), was->last) <= EHD_HORIZON * e->capacity;
    if (was->class_ >= EHD_CLASSES)  /* a mark from disk */
        was->class_ = 0;
    return known;
}

void ehd_prefetch(const struct ehd *e, uint64_t hash, bool entry)
{
    ehd_sample_prefetch(e->sample, hash, entry);
}

void ehd_reference(struct ehd *e, uint64_t hash, struct policy_mark *m)
{
    uint16_t tag = PEEK(m->group);
    unsigned g = tag % EHD_GROUPS, count = PEEK(m->count);
    struct ehd_seen was, *seen = ehd_sample_find(e->sample, hash, g);
    uint32_t now = ehd_now(e);
    uint8_t class_ = 0;

    note_time(e, g, now);
    if (is_known(e, seen, m, &was)) {
        uint32_t age = age_of(now, was.last);
        /* A chunk read in pieces may be told twice in one pass. A handful of such reuses would make
         * all that is fresh worth many times what waits for its next epoch. */
        if (age < e->capacity / ONE_READING) {
            POKE(m->last, was.last); /* the mark of a miss may be blank */
            POKE(m->class_, was.class_);
            return;
        }
        class_ = class_of(e, age, count > 1 ? count - 1 : 1);
        if (seen)
            count_reuse(e, g, was.class_, age);
    }
    POKE(m->last, now);
    POKE(m->class_, class_);
    struct ehd_seen next = {.hash = hash, .last = now, .tag = tag, .class_ = class_};
    if (!seen) {
        ehd_sample_add(e->sample, &next);
        return;
    }
    POKE(seen->last, now);
    POKE(seen->tag, tag);
    POKE(seen->class_, class_);
}

void ehd_resume(struct ehd *e, uint64_t hash, const struct policy_mark *m)
{
    struct ehd_seen seen = {hash, m->last, m->group, m->class_, 0};

    if (seen.class_ < EHD_CLASSES)
        ehd_sample_resume(e->sample, &seen);
}

/* By the curves, whatever is planned. */
static double curve_value(const struct ehd *e, const struct policy_mark *m)
{
    uint16_t tag = PEEK(m->group);
    unsigned g = tag % EHD_GROUPS, class_ = PEEK(m->class_);
    uint32_t now = ehd_now(e);
    bool folded = tag != ehd_prefixes_tag(e->prefixes, g);
    const struct ehd_counts *rank = __atomic_load_n(&e->shown[folded ? 0 : g], __ATOMIC_ACQUIRE);
    unsigned bucket = ehd_bucket(age_of(now, PEEK(m->last)));
    double value = (double)rank->n[class_ < EHD_CLASSES ? class_ : 0][bucket];

    if (folded)
        return value / FOLDED_WORTH;
    double idle = (double)age_of(now, PEEK(e->group[g].last));
    double usual = usual_gap(e, g);
    return idle > usual ? value * usual / idle : value;
}

/* ---- plans ---- */

static struct due_clock clock_of(const struct ehd *e)
{
    uint64_t served = atomic_load_explicit(&e->served, memory_order_relaxed);

    return (struct due_clock){served, e->capacity << e->shift, e->shift};
}

void ehd_plan(const struct ehd *e, struct policy_mark *m, uint64_t bytes, bool beyond)
{
    struct due_clock t = clock_of(e);

    due_tell(&t, m, bytes, beyond);
}

void ehd_plan_read(const struct ehd *e, struct policy_mark *m, bool counted)
{
    struct due_clock t = clock_of(e);
    uint32_t age = age_of(ehd_now(e), PEEK(m->last));

    due_read(&t, m, counted && age >= e->capacity / ONE_READING);
}

void ehd_keep(const struct ehd *e, struct policy_mark *m)
{
    struct due_clock t = clock_of(e);

    due_keep(&t, m);
}

double ehd_kept(const struct ehd *e, const struct policy_mark *m)
{
    struct due_clock t = clock_of(e);

    return due_kept(&t, m);
}

double ehd_value(const struct ehd *e, const struct policy_mark *m)
{
    if (!(PEEK(m->flags) & MARK_PLANNED))
        return curve_value(e, m);
    struct due_clock t = clock_of(e);
    double planned;
    enum due_says says = due_value(&t, m, &planned);
    if (says == DUE_WORTH)
        return planned;
    double value = curve_value(e, m);
    return says == DUE_AT_MOST && planned < value ? planned : value;
}

/* ---- refresh ---- */

bool ehd_is_due(const struct ehd *e)
{
    return age_of(ehd_now(e), PEEK(e->refreshed)) >= e->interval;
}

static void gather(struct ehd *e, struct ehd_stripe *s, unsigned g)
{
    uint64_t dirty = atomic_exchange_explicit(&s->dirty[g], 0, memory_order_relaxed);

    for (; dirty; dirty &= dirty - 1) {
        unsigned class_ = (unsigned)__builtin_ctzll(dirty);
        for (unsigned b = 0; b < EHD_BUCKETS; b++)
            if (PEEK(s->reused[g][class_][b]))
                e->curve[g].reused.n[class_][b] +=
                    (float)__atomic_exchange_n(&s->reused[g][class_][b], 0, __ATOMIC_RELAXED);
    }
}

struct sorting {
    struct ehd *e;
    uint32_t now;
    bool touched[EHD_GROUPS];        /* what waits in the others is asked for by nobody */
};

static bool sort_in(void *arg, const struct ehd_seen *seen)
{
    const struct sorting *s = arg;
    struct ehd *e = s->e;
    unsigned g = seen->tag % EHD_GROUPS;
    uint32_t age = (uint32_t)max_u64(age_of(s->now, seen->last), 1);

    if (seen->hash == 0 || seen->tag != e->group[g].tag || seen->class_ >= EHD_CLASSES)
        return false;
    unsigned bucket = ehd_bucket(age);
    bool for_good = seen->class_ == 0 && (int32_t)(seen->last - e->group[g].resumed) >= 0;
    bool stays = age <= SAMPLE_HORIZON * e->capacity;
    if (!stays)
        e->curve[g].lost.n[seen->class_][for_good ? EHD_BUCKETS - 1 : bucket] += 1;
    else if (s->touched[g])
        e->curve[g].open[seen->class_][bucket] += ehd_waits(age, bucket);
    return stays;
}

static void fade(struct ehd_curve *c)
{
    for (unsigned class_ = 0; class_ < EHD_CLASSES; class_++) {
        float sum = 0, *reused = c->reused.n[class_], *lost = c->lost.n[class_];
        for (unsigned b = 0; b < EHD_BUCKETS; b++)
            sum += reused[b] + lost[b];
        for (unsigned b = 0; sum > CLOSED_MOST && b < EHD_BUCKETS; b++) {
            reused[b] /= 2;
            lost[b] /= 2;
        }
    }
}

static void show(struct ehd *e, unsigned g)
{
    struct ehd_counts *first = &e->rank[2 * (size_t)g];
    struct ehd_counts *next = e->shown[g] == first ? first + 1 : first;

    ehd_ranks(&e->curve[g], e->prior, next);
    fade(&e->curve[g]);
    __atomic_store_n(&e->shown[g], next, __ATOMIC_RELEASE);
}

void ehd_refresh(struct ehd *e)
{
    struct sorting sorting = {.e = e, .now = ehd_now(e)};
    bool *touched = sorting.touched;

    POKE(e->refreshed, sorting.now);
    for (unsigned g = 0; g < EHD_GROUPS; g++) {
        uint16_t tag = ehd_prefixes_tag(e->prefixes, g);
        if (tag != e->group[g].tag)
            group_renew(e, g, tag);
        touched[g] = PEEK(e->group[g].touched);
        POKE(e->group[g].touched, false);
        if (!touched[g])
            continue;
        for (unsigned n = 0; n < STRIPES; n++)
            gather(e, &e->stripe[n], g);
        memset(e->curve[g].open, 0, sizeof e->curve[g].open);
    }
    ehd_sample_sweep(e->sample, sort_in, &sorting);
    for (unsigned g = 0; g < EHD_GROUPS; g++)
        if (touched[g])
            show(e, g);
}

/* ---- over a restart ---- */

enum {
    STATE_FORMAT = 1,
    STATE_HEAD = 8 + 8 + 8,          /* format, shape, ticks; the prefix's hash; the usual gap */
    STATE_PARTS = 16,                /* of a count */
    STATE_COUNTS = 2 * EHD_CLASSES * EHD_BUCKETS,
};
_Static_assert(STATE_HEAD + 2 * STATE_COUNTS <= POLICY_STATE_BYTES, "a group's state has room");

static void put_state(uint8_t *to, uint64_t n, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (uint8_t)(n >> 8 * i);
}

static uint64_t get_state(const char *from, unsigned bytes)
{
    uint64_t n = 0;

    for (unsigned i = bytes; i-- > 0;)
        n = n << 8 | (uint8_t)from[i];
    return n;
}

/* Age and class mean the same only with the same ticks. */
static uint64_t shape_of(const struct ehd *e)
{
    return STATE_FORMAT | EHD_CLASSES << 8 | EHD_BUCKETS << 16 | (uint64_t)e->shift << 32;
}

size_t ehd_save(const struct ehd *e, unsigned g, void *out, size_t cap)
{
    uint64_t hash = ehd_prefixes_hash(e->prefixes, g);
    const float *count[2] = {e->curve[g].reused.n[0], e->curve[g].lost.n[0]};
    uint8_t *to = out;

    if (hash == 0 || cap < STATE_HEAD + 2 * STATE_COUNTS ||
        e->group[g].tag != ehd_prefixes_tag(e->prefixes, g))
        return 0;
    put_state(to, shape_of(e), 8);
    put_state(to + 8, hash, 8);
    put_state(to + 16, PEEK(e->group[g].gap), 8);
    to += STATE_HEAD;
    for (unsigned n = 0; n < STATE_COUNTS; n++, to += 2) {
        double parts = (double)count[n % 2][n / 2] * STATE_PARTS + .5;
        put_state(to, parts < UINT16_MAX ? (uint64_t)parts : UINT16_MAX, 2);
    }
    return STATE_HEAD + 2 * STATE_COUNTS;
}

enum err ehd_restore(struct ehd *e, struct span state)
{
    if (state.len < 1 || state.at[0] != STATE_FORMAT)
        return state.len < 1 ? ERR_RECORD : ERR_NEWER;
    if (state.len != STATE_HEAD + 2 * STATE_COUNTS || get_state(state.at, 8) != shape_of(e))
        return ERR_RECORD;
    unsigned g = ehd_prefixes_adopt(e->prefixes, get_state(state.at + 8, 8));
    if (g == EHD_GROUPS)
        return ERR_FULL;
    group_renew(e, g, ehd_prefixes_tag(e->prefixes, g));
    POKE(e->group[g].gap, get_state(state.at + 16, 8));
    float *count[2] = {e->curve[g].reused.n[0], e->curve[g].lost.n[0]};
    for (unsigned n = 0; n < STATE_COUNTS; n++)
        count[n % 2][n / 2] =
            (float)get_state(state.at + STATE_HEAD + 2 * (size_t)n, 2) / STATE_PARTS;
    show(e, g);
    return OK;
}
