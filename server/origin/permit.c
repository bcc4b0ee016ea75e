/* Permits: who may hold a connection to upstream now.
 *
 * Invariants:
 *  1. New permits are given while out < throttle_limit() <= upstream.connections; of READAHEAD,
 *     PLAN, PREFETCH and BACKGROUND while ahead < throttle_limit_ahead(), to PLAN and PREFETCH no
 *     more than two thirds of those, to BACKGROUND one third: what a reader is about to need finds
 *     room. So a class that waits for its share keeps all below it waiting, too. Of PREFETCH and
 *     BACKGROUND no more than width_limit() together are out for objects' bytes: these are
 *     *behind*; what they only ask passes those. REST goes only while few readers wait for bytes,
 *     so that these never wait for what nobody asked for; the classes below pass it meanwhile.
 *     When a limit falls, those out stay out.
 *  2. A free permit and a waiter who may have it never exist together. One atomic word holds out,
 *     ahead, behind and waiting: a giver sees a waiter, or the waiter sees what was given. Who
 *     raises a limit looks for waiters after it, and so does a reader who waits no more.
 *  3. Nobody passes those who wait: with a waiter, all go through the queues and the lock. Without
 *     one, asking and giving are one compare-and-swap each.
 *  4. Queues are served by class, within a class in order of arrival over all cores. Every fourth
 *     permit looks at REVALIDATE first: hits past their ttl wait for that, and a storm of misses
 *     must not keep them waiting for ever.
 *
 * Life: a permit lives in whoever waits for it; queued, it counts in his inflight. Failure: none;
 * who waits may leave. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/inside.h"

enum {
    COUNT_BITS = 13,
    COUNT_MASK = (1 << COUNT_BITS) - 1,
    CALM_SHARE = 8,                  /* of the permits: readers that leave room for a REST */
};
#define ONE_OUT ((uint64_t)1)
#define ONE_AHEAD ((uint64_t)1 << COUNT_BITS)
#define ONE_BEHIND ((uint64_t)1 << 2 * COUNT_BITS)
#define ONE_WAITING ((uint64_t)1 << 3 * COUNT_BITS)
_Static_assert(PERMITS_MAX <= (int)COUNT_MASK, "out, ahead and behind have so many bits each");

static uint32_t out_of(uint64_t state)
{
    return state & COUNT_MASK;
}

static uint32_t ahead_of(uint64_t state)
{
    return state >> COUNT_BITS & COUNT_MASK;
}

static uint32_t behind_of(uint64_t state)
{
    return state >> 2 * COUNT_BITS & COUNT_MASK;
}

static uint32_t waiting_of(uint64_t state)
{
    return (uint32_t)(state >> 3 * COUNT_BITS);
}

bool permit_is_behind(const struct permit *p)
{
    return p->bulk && p->class_ >= ASK_PREFETCH;
}

/* A reader's. */
static bool is_miss(const struct permit *p)
{
    return p->bulk && p->class_ == ASK_DEMAND;
}

static bool are_few(const struct origin *o, uint32_t some)
{
    return some * CALM_SHARE <= throttle_limit(&o->throttle);
}

bool origin_is_calm(const struct origin *o)
{
    return are_few(o, atomic_load(&o->readers));
}

/* While any reader waits the rests beside them are few, too. */
static bool may_rest(const struct origin *o)
{
    uint32_t readers = atomic_load(&o->readers);

    return readers == 0 || are_few(o, readers + atomic_load(&o->rests) + 1);
}

static bool is_rest(const struct permit *p)
{
    return p->class_ == ASK_REST;
}

static uint64_t cost(const struct permit *p)
{
    return ONE_OUT + (p->class_ >= ASK_READAHEAD ? ONE_AHEAD : 0) +
           (permit_is_behind(p) ? ONE_BEHIND : 0);
}

uint32_t permits_most(const struct origin *o, enum ask_class class_)
{
    uint32_t most = throttle_limit_ahead(&o->throttle);

    if (most <= 2 || class_ < ASK_PLAN)
        return most;
    return class_ < ASK_BACKGROUND ? most * 2 / 3 : most / 3;
}

static bool may_take(const struct origin *o, uint64_t state, const struct permit *p)
{
    return out_of(state) < throttle_limit(&o->throttle) &&
           (p->class_ < ASK_READAHEAD || ahead_of(state) < permits_most(o, p->class_)) &&
           (!is_rest(p) || may_rest(o)) &&
           (!permit_is_behind(p) || behind_of(state) < width_limit(&o->width));
}

/* Takes one for p if there is one; `leaves`: and takes p out of those waiting. */
static bool take(struct origin *o, const struct permit *p, bool leaves)
{
    uint64_t state = atomic_load(&o->permit_state);

    while (may_take(o, state, p) && (leaves || waiting_of(state) == 0)) {
        uint64_t next = state + cost(p) - (leaves ? ONE_WAITING : 0);
        if (!atomic_compare_exchange_weak(&o->permit_state, &state, next))
            continue;
        if (permit_is_behind(p))
            width_out(&o->width, behind_of(next));
        if (is_miss(p))
            atomic_fetch_add(&o->permit_misses, 1);
        if (is_rest(p))
            atomic_fetch_add(&o->rests, 1);
        return true;
    }
    return false;
}

static void permit_arrived(struct permit *p)
{
    must(p->queued && !p->held && p->m->inflight > 0);
    p->queued = false;
    p->held = true;
    p->m->inflight--;
    machine_wake(p->m);
}

static void deliver_permit(struct core *c, struct message *msg)
{
    (void)c;
    permit_arrived(container_of(msg, struct permit, msg));
}

/* The first of a class who may have a permit, counted as its holder; NULL if none. Who asks for an
 * object's bytes, and may not for the width alone, lets the first pass who does not. */
static struct permit *first_holder(struct origin *o, const struct list *queue)
{
    struct node *n = list_first(queue);
    struct permit *p = n ? container_of(n, struct permit, node) : NULL;

    if (!p || take(o, p, true))
        return p;
    if (!permit_is_behind(p))
        return NULL;
    LIST_EACH(queue, struct permit, node, other)
        if (!permit_is_behind(other))
            return take(o, other, true) ? other : NULL;
    return NULL;
}

/* Under the lock: the next who may have a permit, counted as its holder; NULL if none. */
static struct permit *next_holder(struct origin *o)
{
    static const uint8_t order[2][ASK_CLASS_COUNT] = {
        {ASK_DEMAND, ASK_REVALIDATE, ASK_READAHEAD, ASK_REST, ASK_PLAN, ASK_PREFETCH,
         ASK_BACKGROUND},
        {ASK_REVALIDATE, ASK_DEMAND, ASK_READAHEAD, ASK_REST, ASK_PLAN, ASK_PREFETCH,
         ASK_BACKGROUND}};
    const uint8_t *class_ = order[o->permit_turn % 4 == 3];

    for (unsigned i = 0; i < ASK_CLASS_COUNT; i++) {
        struct permit *p = first_holder(o, &o->queue[class_[i]]);
        if (!p)
            continue;
        node_remove(&p->node);
        o->rests_queued -= is_rest(p);
        o->permit_turn++;
        return p;
    }
    return NULL;
}

/* Gives what is free to those who wait. */
static void hand_over(struct origin *o, struct core *own)
{
    while (waiting_of(atomic_load(&o->permit_state)) > 0) {
        pthread_mutex_lock(&o->lock);
        struct permit *next = next_holder(o);
        pthread_mutex_unlock(&o->lock);
        if (!next)
            return;
        if (next->m->core == own)
            permit_arrived(next);
        else
            core_send(next->m->core, &next->msg);
    }
}

bool permit_ask(struct permit *p, struct origin *o, struct machine *m, enum ask_class class_,
                bool bulk)
{
    must(!p->queued && !p->held && class_ < ASK_CLASS_COUNT);
    *p = (struct permit){.msg.deliver = deliver_permit, .m = m, .origin = o,
        .class_ = (uint8_t)class_, .bulk = bulk};
    p->held = take(o, p, false);
    if (p->held)
        return true;
    p->queued = true;
    m->inflight++;
    pthread_mutex_lock(&o->lock);
    list_push(&o->queue[class_], &p->node);
    o->rests_queued += is_rest(p);
    atomic_fetch_add(&o->permit_state, ONE_WAITING);
    pthread_mutex_unlock(&o->lock);
    hand_over(o, m->core);           /* one may have come free between our two looks */
    return p->held;
}

bool permit_leave(struct permit *p)
{
    struct origin *o = p->origin;

    must(p->queued);
    pthread_mutex_lock(&o->lock);
    bool waits = node_linked(&p->node);
    if (waits) {
        node_remove(&p->node);
        o->rests_queued -= is_rest(p);
        atomic_fetch_sub(&o->permit_state, ONE_WAITING);
    }
    pthread_mutex_unlock(&o->lock);
    if (waits) {
        p->queued = false;
        p->m->inflight--;
    }
    return waits;
}

void permit_hurry(struct permit *p, enum ask_class class_)
{
    struct origin *o = p->origin;

    if (!p->queued)
        return;                      /* it is held already, and counted as what it was asked for */
    pthread_mutex_lock(&o->lock);
    if (node_linked(&p->node) && class_ < p->class_) {
        node_remove(&p->node);
        o->rests_queued -= is_rest(p);
        p->class_ = (uint8_t)class_;
        list_push(&o->queue[class_], &p->node);
    }
    pthread_mutex_unlock(&o->lock);
    hand_over(o, p->m->core);        /* it may have waited for a share that it needs no more */
}

void permit_give(struct permit *p)
{
    struct origin *o = p->origin;

    must(p->held && !p->queued);
    p->held = false;
    uint64_t before = atomic_fetch_sub(&o->permit_state, cost(p));
    if (is_miss(p))
        atomic_fetch_sub(&o->permit_misses, 1);
    if (is_rest(p))
        atomic_fetch_sub(&o->rests, 1);
    must(out_of(before) > 0 && (p->class_ < ASK_READAHEAD || ahead_of(before) > 0) &&
         (!permit_is_behind(p) || behind_of(before) > 0));
    hand_over(o, p->m->core);
}

void origin_reader_waits(struct origin *o)
{
    atomic_fetch_add(&o->readers, 1);
}

void origin_reader_has(struct origin *o, struct core *own)
{
    uint32_t before = atomic_fetch_sub(&o->readers, 1);

    must(before > 0);
    if (o->rests_queued > 0)
        hand_over(o, own);
}

void permits_grown(struct origin *o, struct core *own)
{
    hand_over(o, own);
}

bool permits_awaited(const struct origin *o)
{
    return atomic_load_explicit(&o->permit_misses, memory_order_relaxed) > 0;
}

void permits_status(struct origin *o, uint32_t *active, uint32_t *queued)
{
    uint64_t state = atomic_load(&o->permit_state);
    *active = out_of(state);
    *queued = waiting_of(state);
}
