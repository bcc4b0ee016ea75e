/* A thread beside the cores for what no loop may do: long documents are parsed and written there.
 *
 * Invariants:
 *  1. One work at a time, in the order in which they came; a core never waits for the lock longer
 *     than it takes to link one.
 *  2. What was begun counts as in flight of its machine until its core was told that it is done:
 *     nothing that it touches is freed before.
 *
 * Life: desk_open() before the cores start, desk_close() when none runs any more; then what is left
 * in the queue is left, as the cores were cut.
 * Failure: without its thread the server does not start. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "server/loop/loop.h"

struct desk {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    struct desk_work *first, *last;
    bool runs, stop;
};

/* On the core's thread. */
static void heard(struct core *c, struct message *msg)
{
    struct desk_work *e = container_of(msg, struct desk_work, msg);

    (void)c;
    e->busy = false;
    e->m->inflight--;
    machine_wake(e->m);
}

void desk_begin(struct machine *m, struct desk_work *e, void (*work)(struct desk_work *e))
{
    struct desk *d = m->core->server->desk;

    must(!e->busy);
    *e = (struct desk_work){.msg.deliver = heard, .m = m, .work = work, .busy = true};
    m->inflight++;
    pthread_mutex_lock(&d->lock);
    if (d->last)
        d->last->next = e;
    else
        d->first = e;
    d->last = e;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

/* NULL: it ends. */
static struct desk_work *take(struct desk *d)
{
    struct desk_work *e = NULL;

    pthread_mutex_lock(&d->lock);
    while (!d->stop && !d->first)
        pthread_cond_wait(&d->wake, &d->lock);
    if (!d->stop) {
        e = d->first;
        d->first = e->next;
        d->last = d->first ? d->last : NULL;
    }
    pthread_mutex_unlock(&d->lock);
    return e;
}

static void *work(void *desk)
{
    struct desk_work *e;

    pthread_setname_np(pthread_self(), "headpond-desk");
    while ((e = take(desk)) != NULL) {
        struct core *back = e->m->core;
        e->work(e);
        core_send(back, &e->msg);
    }
    return NULL;
}

enum err desk_open(struct server *s)
{
    struct desk *d = mem_take(sizeof *d);
    sigset_t all, old;

    if (!d)
        return ERR_MEMORY;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    s->desk = d;
    sigfillset(&all);                /* signals are main's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    d->runs = pthread_create(&d->thread, NULL, work, d) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return d->runs ? OK : ERR_SYSTEM;
}

void desk_close(struct server *s)
{
    struct desk *d = s->desk;

    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    if (d->runs)
        pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->wake);
    pthread_mutex_destroy(&d->lock);
    s->desk = NULL;
    mem_give(d);
}
