/* How much an upstream that throttles is asked: a limit on requests at once, and a budget for
 * asking again (pure: the clock is an argument).
 *
 * Invariants:
 *  1. least <= limit <= most. A slow-down halves it; a good answer lets it grow by a share, so that
 *     it is back in some GROW_ROUNDS round trips (additive increase, multiplicative decrease:
 *     Chiu and Jain 1989).
 *  2. One burst halves once: the answer to a request that left before the last cut says nothing
 *     new, as all that were under way then meet the same full house.
 *  3. Read-ahead and prefetch lose first: from 3/4 of the full limit they are at 1/4 when it was
 *     halved, and at one when it was halved twice.
 *  4. A retry costs RETRY_COST tokens, a good answer brings one: over any time retries are at most
 *     BUDGET / RETRY_COST and a fifth of the good answers, whatever upstream does. Half of the
 *     budget is kept for requests that somebody waits for.
 *
 *  5. Bytes beyond upstream.bandwidth are owed, and nothing is taken while something is. What no
 *     reader waits for is taken only when some of the bandwidth has been left for a while, so that
 *     it never keeps those who wait from theirs; what fills the cache in the background wants more
 *     of it to be left.
 *
 * Life: throttle_init() before the cores; then any thread, atomics only. A lost race is one step of
 * growth less.
 * Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/inside.h"

enum {
    LEAST = 4,                       /* enough to notice that it is well again */
    FIXED = 256,                     /* of `level`: 1 request */
    GROW_ROUNDS = 16,
    AHEAD_NUMERATOR = 3, AHEAD_DENOMINATOR = 4,
    BUDGET = 500, RETRY_COST = 5,    /* as the AWS SDKs' standard mode: 100 in a row */
    BUDGET_RESERVE = BUDGET / 2,
    LEFT_US = 100 * 1000,            /* of bandwidth that may be used at once */
    LEFT_AHEAD_US = LEFT_US / 4,     /* so much of it is left for who is waited for, */
    LEFT_BACKGROUND_US = LEFT_US / 2, /* and so much by what fills the cache in the background */
    /* after a reload nobody waits long for what an old rate cost */
    OWED_US_MOST = 4 * 1000 * 1000,
};

void throttle_init(struct throttle *t, uint32_t most)
{
    must(most > 0 && most <= UINT32_MAX / FIXED);
    atomic_init(&t->most, most);
    atomic_init(&t->least, most < LEAST ? most : LEAST);
    atomic_init(&t->level, most * FIXED);
    atomic_init(&t->cut_us, 0);
    atomic_init(&t->tokens, BUDGET);
    atomic_init(&t->paid_us, 0);
}

void throttle_set_most(struct throttle *t, uint32_t most)
{
    must(most > 0 && most <= UINT32_MAX / FIXED);
    uint32_t before = atomic_exchange(&t->most, most), level = atomic_load(&t->level);

    atomic_store(&t->least, most < LEAST ? most : LEAST);
    /* what it throttles to stays; a full limit stays one */
    if (before != most && (level == before * FIXED || level > most * FIXED))
        atomic_store(&t->level, most * FIXED);
}

bool throttle_may_take(const struct throttle *t, enum ask_class class_, uint64_t now_us,
                       uint64_t *wait_us)
{
    uint64_t free_us = atomic_load_explicit(&t->paid_us, memory_order_relaxed);

    free_us += class_ < ASK_READAHEAD    ? 0
               : class_ < ASK_BACKGROUND ? LEFT_AHEAD_US
                                         : LEFT_BACKGROUND_US;
    *wait_us = free_us > now_us ? free_us - now_us : 0;
    return *wait_us == 0;
}

void throttle_took(struct throttle *t, uint64_t rate, uint64_t bytes, uint64_t now_us)
{
    uint64_t paid_us = atomic_load_explicit(&t->paid_us, memory_order_relaxed), next;

    do {
        next = max_u64(paid_us, now_us - min_u64(now_us, LEFT_US)) + bytes * 1000000 / rate;
        next = min_u64(next, now_us + OWED_US_MOST);
    } while (!atomic_compare_exchange_weak(&t->paid_us, &paid_us, next));
}

uint32_t throttle_limit(const struct throttle *t)
{
    return atomic_load(&t->level) / FIXED;
}

uint32_t throttle_limit_ahead(const struct throttle *t)
{
    uint32_t limit = throttle_limit(t), most = atomic_load(&t->most);
    uint32_t lost = most > limit ? most - limit : 0;
    uint32_t share = limit * AHEAD_NUMERATOR / AHEAD_DENOMINATOR;
    uint32_t less = lost / 4;        /* 32 of 64: 24 - 8 = 16 */

    return share > less + 1 ? share - less : 1;
}

bool throttle_slowed(struct throttle *t, uint64_t sent_us, uint64_t now_us, uint32_t *from,
                     uint32_t *to)
{
    uint64_t cut_us = atomic_load_explicit(&t->cut_us, memory_order_relaxed);

    /* sent in the very turn of the cut: before it, for all we know */
    if (sent_us <= cut_us || !atomic_compare_exchange_strong(&t->cut_us, &cut_us, now_us))
        return false;
    uint32_t level = atomic_load(&t->level);
    uint32_t lower = (uint32_t)max_u64(level / 2 / FIXED, atomic_load(&t->least)) * FIXED;
    atomic_store(&t->level, lower);
    *from = level / FIXED;
    *to = lower / FIXED;
    return true;
}

bool throttle_worked(struct throttle *t)
{
    int32_t tokens = atomic_load_explicit(&t->tokens, memory_order_relaxed);
    uint32_t level = atomic_load_explicit(&t->level, memory_order_relaxed), full;

    full = atomic_load(&t->most) * FIXED;
    if (tokens < BUDGET)             /* BUDGET plus the number of cores is the worst of a race */
        atomic_fetch_add_explicit(&t->tokens, 1, memory_order_relaxed);
    if (level >= full)
        return false;
    uint32_t share = (uint32_t)max_u64((uint64_t)full * FIXED / GROW_ROUNDS / level, 1);
    uint32_t next = (uint32_t)min_u64((uint64_t)level + share, full);
    return atomic_compare_exchange_strong(&t->level, &level, next) &&
        next / FIXED != level / FIXED;
}

bool throttle_may_retry(struct throttle *t, bool awaited)
{
    int32_t keep = awaited ? 0 : BUDGET_RESERVE;
    int32_t tokens = atomic_load_explicit(&t->tokens, memory_order_relaxed);

    while (tokens - RETRY_COST >= keep)
        if (atomic_compare_exchange_weak(&t->tokens, &tokens, tokens - RETRY_COST))
            return true;
    return false;
}

uint64_t retry_after_ms(struct span field, uint64_t now_s, uint64_t most_ms)
{
    uint64_t s = 0;

    if (field.len == 0)
        return 0;
    if (span_u64(field, &s) != OK) { /* RFC 9110 10.2.3: seconds, or a date */
        if (http_date_read(field, &s) != OK)
            return 0;
        s = s > now_s ? s - now_s : 0;
    }
    return min_u64(s, most_ms / 1000) * 1000;
}
