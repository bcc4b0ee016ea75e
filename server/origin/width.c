/* How many connections what nobody waits for may have beside readers' misses: as many as bring more
 * bytes, and no more (pure: the clock is an argument).
 *
 * A store gives so much per connection, or so much in all. In the first case a job wants every
 * connection it can have; in the second more of them bring it little, but each one takes its share
 * from the misses of readers. Nobody can know which it is, so now and then another width is tried.
 *
 * Words: a *trial* is a width other than the one that was found good; a window is *full* if all of
 * the width was out at some time of it.
 *
 * Invariants:
 *  1. It is limited only while readers' misses are about, and for BESIDE_US behind the last. Then
 *     it is FIRST at the begin, never below LEAST, and no trial is wider than `most`.
 *  2. Only a full window counts: else the width was not what held bytes back, and becomes what was
 *     out. Behind each change, and each pause, one passes unjudged: what comes in it was asked for
 *     before.
 *  3. A connection is worth having if it brings a fifth of what the others bring each. By that
 *     wider trials are kept, and narrower ones.
 *  4. A trial that is kept is followed by one in the same direction, wider ones double until one
 *     fails; one that fails by HOLDS windows at the good width, and one in the other direction. So
 *     most of the time the width is the good one.
 *
 * Life: width_init() before the cores; then any thread: who finds a window at its end judges it
 * alone, others only add bytes.
 * Failure: none; a wrong verdict, as in a noisy minute, is tried again some seconds later. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/inside.h"

enum {
    FIRST = 8,
    LEAST = 4,
    WINDOW_US = 500 * 1000,
    VOID_US = 4 * WINDOW_US,         /* nothing came for a while: it says nothing */
    HOLDS = 8,
    BESIDE_US = 10 * 1000 * 1000,
};
static const double SHARE = 1 / 5., RATE_NEW = .25;

void width_init(struct width *w)
{
    *w = (struct width){.good = FIRST, .doubles = true, .settles = true};
    atomic_init(&w->limit, FIRST);
}

uint32_t width_limit(const struct width *w)
{
    return atomic_load(&w->limits) ? atomic_load(&w->limit) : UINT32_MAX;
}

void width_out(struct width *w, uint32_t out)
{
    uint32_t most = atomic_load_explicit(&w->out, memory_order_relaxed);

    while (out > most && !atomic_compare_exchange_weak(&w->out, &most, out))
        ;
}

static uint32_t tried(const struct width *w)
{
    return atomic_load_explicit(&w->limit, memory_order_relaxed);
}

static void set(struct width *w, uint32_t limit)
{
    w->settles = w->settles || limit != tried(w);
    atomic_store(&w->limit, limit);
}

static void try_wider(struct width *w, uint32_t most)
{
    uint32_t wider = w->doubles ? w->good * 2 : w->good + (uint32_t)max_u64(w->good / 4, 1);

    set(w, (uint32_t)max_u64(min_u64(wider, most), w->good));
}

static void try_narrower(struct width *w)
{
    uint32_t narrower = w->good - w->good / 4;

    set(w, (uint32_t)min_u64(max_u64(narrower, LEAST), w->good));
}

/* The next trial, or none: it cannot be wider, or narrower, than it is. */
static void try_another(struct width *w, uint32_t most)
{
    w->held = 0;
    w->widens = !w->widens;
    if (w->widens)
        try_wider(w, most);
    else
        try_narrower(w);
}

static bool is_kept(const struct width *w, double rate)
{
    return rate >= w->rate * (1 + ((double)tried(w) / w->good - 1) * SHARE);
}

/* What came in a window at the width that is set. */
static void judge(struct width *w, double rate, uint32_t most)
{
    uint32_t limit = tried(w);
    bool wider = limit > w->good, first = w->rate <= 0;

    if (limit == w->good) {
        w->rate = first ? rate : w->rate + (rate - w->rate) * RATE_NEW;
        if (first || ++w->held >= HOLDS)
            try_another(w, most);
        return;
    }
    w->held = 0;
    if (!is_kept(w, rate)) {
        w->doubles = w->doubles && !wider;
        set(w, w->good);
        return;
    }
    w->good = limit;
    w->rate = rate;
    if (wider)
        try_wider(w, most);
    else
        try_narrower(w);
}

/* Not all of it was used: a trial goes on with what was, and a good one is what was. */
static void shrink(struct width *w, uint32_t out)
{
    uint32_t used = (uint32_t)max_u64(out, LEAST);

    w->held = 0;
    if (used < w->good) {
        w->doubles = w->doubles || used <= w->good / 2; /* a short job is no reason to begin low */
        w->good = used;
        w->rate = 0;
    }
    set(w, used);
}

/* A window begins, or begins anew. */
static void begin(struct width *w, uint64_t now_us)
{
    atomic_store_explicit(&w->bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&w->out, 0, memory_order_relaxed);
    w->began_us = now_us;
    atomic_store_explicit(&w->until_us, now_us + WINDOW_US, memory_order_relaxed);
}

static void end(struct width *w, uint32_t most, uint64_t now_us)
{
    uint64_t took_us = now_us - min_u64(w->began_us, now_us);
    double came = (double)atomic_load_explicit(&w->bytes, memory_order_relaxed);
    uint32_t out = atomic_load_explicit(&w->out, memory_order_relaxed);

    if (atomic_exchange(&w->switched, false) || took_us >= VOID_US || !atomic_load(&w->limits))
        w->settles = true;
    else if (out > 0 && w->settles)
        w->settles = false;
    else if (out > 0 && out < min_u64(tried(w), most))
        shrink(w, out);
    else if (out > 0)
        judge(w, came / (double)took_us, (uint32_t)max_u64(most, 1));
    begin(w, now_us);
}

/* True: it begins to limit, or ends. */
static bool look_beside(struct width *w, bool beside, uint64_t now_us)
{
    bool limits = atomic_load(&w->limits);

    if (beside)
        atomic_store(&w->beside_us, now_us);
    uint64_t last_us = atomic_load(&w->beside_us);
    bool now = beside || (limits && now_us < last_us + BESIDE_US);
    if (now == limits)
        return false;
    atomic_store(&w->limits, now);
    atomic_store(&w->switched, true);
    if (!now && atomic_load(&w->beside_us) != last_us)
        atomic_store(&w->limits, true); /* another core saw one just now */
    return true;
}

bool width_took(struct width *w, uint64_t bytes, bool beside, uint32_t most, uint64_t now_us)
{
    bool changed = look_beside(w, beside, now_us), judging = false;

    atomic_fetch_add_explicit(&w->bytes, bytes, memory_order_relaxed);
    if (now_us < atomic_load_explicit(&w->until_us, memory_order_relaxed) ||
        !atomic_compare_exchange_strong(&w->judging, &judging, true))
        return changed;
    uint32_t before = tried(w);
    if (now_us >= atomic_load_explicit(&w->until_us, memory_order_relaxed))
        end(w, most, now_us);        /* else another one was just done with it */
    changed = changed || tried(w) != before;
    atomic_store(&w->judging, false);
    return changed;
}
