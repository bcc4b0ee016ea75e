/* What an operator asks of the main thread over the control plane: a reload whose outcome he hears,
 * and the end.
 *
 * Invariants:
 *  1. Who asks for a reload is told of one that began after he asked: the files as they are now
 *     were read.
 *  2. Nobody waits for a main thread that takes no reloads any more (wishes_over).
 *  3. An end that is asked for again is the same end: it cuts nothing.
 *
 * Life: part of struct server, zeroed at start. Any thread asks and waits; main begins and ends.
 * Failure: no outcome in time; the reload goes on, and the log tells of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "server/server.h"

/* Signals wake main, who sleeps in sigtimedwait(); every other thread has them blocked. */
static void wake(int sig)
{
    kill(getpid(), sig);
}

enum err server_ask_reload(struct server *s, uint64_t timeout_ms, struct reload_outcome *out)
{
    struct wishes *w = &s->wishes;
    struct timespec end;
    int late = 0;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)(timeout_ms / 1000);
    pthread_mutex_lock(&w->lock);
    uint64_t mine = ++w->asked;
    wake(SIGHUP);
    while (w->done < mine && !w->over && late == 0)
        late = pthread_cond_clockwait(&w->told, &w->lock, CLOCK_MONOTONIC, &end);
    enum err e = w->done >= mine ? OK : w->over ? ERR_CANCELLED : ERR_TIMEOUT;
    if (e == OK)
        *out = w->outcome;
    pthread_mutex_unlock(&w->lock);
    return e;
}

void server_ask_end(struct server *s)
{
    struct wishes *w = &s->wishes;

    pthread_mutex_lock(&w->lock);
    bool first = !w->ends && !w->over;
    w->ends = w->ends || first;
    pthread_mutex_unlock(&w->lock);
    if (first)
        wake(SIGTERM);
}

bool wishes_same_end(struct server *s)
{
    struct wishes *w = &s->wishes;

    pthread_mutex_lock(&w->lock);
    bool same = w->ends;
    w->ends = false;
    pthread_mutex_unlock(&w->lock);
    return same;
}

void wishes_begin(struct server *s)
{
    struct wishes *w = &s->wishes;

    memset(&w->next, 0, sizeof w->next);
    pthread_mutex_lock(&w->lock);
    w->begun = w->asked;
    pthread_mutex_unlock(&w->lock);
}

void wishes_refused(struct server *s, enum err e, const struct conf_mistakes *m)
{
    s->wishes.next.result = e;
    s->wishes.next.mistakes = *m;
}

void wishes_keep(struct server *s, struct span options)
{
    struct text t;

    text_init(&t, s->wishes.next.restart, sizeof s->wishes.next.restart);
    text_add(&t, options);
}

void wishes_end(struct server *s)
{
    struct wishes *w = &s->wishes;

    pthread_mutex_lock(&w->lock);
    w->done = w->begun;
    w->outcome = w->next;
    pthread_cond_broadcast(&w->told);
    pthread_mutex_unlock(&w->lock);
}

void wishes_over(struct server *s)
{
    struct wishes *w = &s->wishes;

    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_broadcast(&w->told);
    pthread_mutex_unlock(&w->lock);
}
