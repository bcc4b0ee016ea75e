/* Machines that wait for a buffer: woken by events, none lost, never all at once.
 *
 * Invariants:
 *  1. An event is something after which a take that failed may succeed. A waiter is due when an
 *     event came since its take failed (its turn is older than the last event); they stand first.
 *  2. At most WAKES_MAX wakes are under way; each one delivered sends for the next due waiter,
 *     whatever the woken machine then does. So every waiter is tried after every event, and a burst
 *     of events costs one round, not one round each.
 *  3. A waiter that was not woken is linked; one whose wake is under way is busy and not linked.
 *  4. core_send() is called without any lock.
 *
 * Life: a wait begins with waiters_add() and ends by its wake or by waiters_leave(); its memory is
 * the waiting machine's, which cannot end before, as the wait counts in inflight.
 * Failure: nothing here can fail. A wake may be in vain; then the machine waits again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

/* The events before this thread's oldest failed take that no wait has followed: a later event may
 * be the one which that take needs. A wait that follows no failure is due at once. */
static _Thread_local struct {
    bool set;
    uint64_t events;
} failed;

void waiters_init(struct waiters *q)
{
    pthread_mutex_init(&q->lock, NULL);
    list_init(&q->list);
    atomic_init(&q->events, 1);      /* 0 is before every event */
    q->waking = 0;
}

void waiters_fini(struct waiters *q)
{
    pthread_mutex_destroy(&q->lock);
}

static void collect(struct waiters *q, struct wakes *out)
{
    uint64_t events = atomic_load(&q->events);

    out->count = 0;
    while (q->waking < WAKES_MAX && !list_empty(&q->list)) {
        struct pool_wait *w = container_of(list_first(&q->list), struct pool_wait, node);
        if (w->turn == events)
            break;                   /* not due, and so are all behind it */
        node_remove(&w->node);
        q->waking++;
        out->wait[out->count++] = w;
    }
}

void wakes_send(const struct wakes *wakes)
{
    for (unsigned n = 0; n < wakes->count; n++)
        core_send(wakes->wait[n]->m->core, &wakes->wait[n]->msg);
}

void waiters_failed(struct waiters *q, bool again)
{
    if (again || !failed.set)
        failed.events = again ? 0 : atomic_load(&q->events);
    failed.set = true;
}

void waiters_event(struct waiters *q, struct wakes *out)
{
    pthread_mutex_lock(&q->lock);
    atomic_fetch_add(&q->events, 1);
    collect(q, out);
    pthread_mutex_unlock(&q->lock);
}

/* On the waiter's core. */
static void wait_over(struct core *core, struct message *msg)
{
    struct pool_wait *w = container_of(msg, struct pool_wait, msg);
    struct waiters *q = w->waiters;
    struct wakes wakes;

    must(w->busy && w->m->core == core && w->m->inflight > 0);
    w->busy = false;
    w->m->inflight--;
    machine_wake(w->m);
    pthread_mutex_lock(&q->lock);
    must(q->waking > 0);
    q->waking--;
    collect(q, &wakes);
    pthread_mutex_unlock(&q->lock);
    wakes_send(&wakes);
}

void waiters_add(struct waiters *q, struct pool_wait *w, struct machine *m)
{
    struct wakes wakes;

    must(!w->busy);
    *w = (struct pool_wait){.msg.deliver = wait_over, .m = m, .busy = true, .waiters = q};
    m->inflight++;
    w->turn = failed.set ? failed.events : 0;
    failed.set = false;
    pthread_mutex_lock(&q->lock);
    if (w->turn == atomic_load(&q->events))
        list_push(&q->list, &w->node);
    else
        list_push_front(&q->list, &w->node);
    collect(q, &wakes);
    pthread_mutex_unlock(&q->lock);
    wakes_send(&wakes);
}

bool waiters_any(struct waiters *q)
{
    pthread_mutex_lock(&q->lock);
    bool any = !list_empty(&q->list);
    pthread_mutex_unlock(&q->lock);
    return any;
}

bool waiters_leave(struct waiters *q, struct pool_wait *w)
{
    if (!w->busy)
        return true;
    pthread_mutex_lock(&q->lock);
    bool waiting = node_linked(&w->node);
    if (waiting)
        node_remove(&w->node);
    pthread_mutex_unlock(&q->lock);
    if (waiting) {
        w->busy = false;
        must(w->m->inflight > 0);
        w->m->inflight--;
    }
    return waiting;
}
