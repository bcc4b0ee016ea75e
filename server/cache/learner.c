/* The policy's thread: lets it learn from what was served, keeps what it learnt over restarts, and
 * tries what other sizes of the cache would give. Beside that it packs small objects and makes
 * memory of the index ready.
 *
 * Invariants:
 *  1. Only this thread refreshes and saves; at the start and at the end, when it does not run, who
 *     opens and closes the cache does.
 *  2. A group's state that is damaged or of another shape is left out: that group learns anew.
 *
 * Life: learner_open() once the directories were read, learner_close() before they are closed.
 * Failure: without its thread the server does not start. What cannot be saved costs some hits after
 * a restart. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "server/cache/packed.h"

enum {
    LOOK_MS = 250,                   /* whether enough was served */
    LOOK_SOON_MS = 10,               /* there was much to go through */
    REFRESH_MS = 60 * 1000,          /* at least so often */
    SAVE_MS = 5 * 60 * 1000,
};
static const char STATE_PREFIX[] = "policy/";

static void save_all(struct cache *c)
{
    char name[24], state[POLICY_STATE_BYTES];

    for (unsigned n = 0; n < POLICY_GROUPS; n++) {
        size_t len = policy_save(c->policy, n, state, sizeof state);
        snprintf(name, sizeof name, "%s%u", STATE_PREFIX, n);
        if (len == 0 || cache_state_put(c, span_of(name), span_make(state, len)) != OK)
            (void)cache_state_remove(c, span_of(name));
    }
}

static void restore_one(void *arg, struct span name, struct span value)
{
    struct cache *c = arg;

    (void)name;
    (void)!policy_restore(c->policy, value);
}

/* The stop comes as a signal, so that closing never waits. Woken early, it only looks early. */
static bool pause_or_stop(struct learner *l, uint64_t ms)
{
    pthread_mutex_lock(&l->lock);
    if (!l->stop)
        cache_wait(&l->changed, &l->lock, ms);
    bool stop = l->stop;
    pthread_mutex_unlock(&l->lock);
    return stop;
}

/* A core that finds none stands still until the kernel has cleared 2 MiB. */
static void ready_memory(struct cache *c)
{
    cells_ready(c->cells);
    cells_ready(c->sums);
}

static void *learn_main(void *arg)
{
    struct cache *c = arg;
    uint64_t refreshed = clock_ms(), saved = refreshed;
    bool much = false;

    pthread_setname_np(pthread_self(), "headpond-policy");
    ready_memory(c);
    while (!pause_or_stop(&c->learner, much ? LOOK_SOON_MS : LOOK_MS)) {
        uint64_t now = clock_ms();
        if (policy_is_due(c->policy) || now - refreshed >= REFRESH_MS) {
            policy_refresh(c->policy);
            refreshed = now;
        }
        much = sizer_take(c);
        packing_work(c);
        ready_memory(c);
        if (now - saved >= SAVE_MS) {
            save_all(c);
            saved = now;
        }
    }
    return NULL;
}

enum err learner_open(struct cache *c)
{
    struct learner *l = &c->learner;
    pthread_condattr_t monotonic;
    sigset_t all, old;

    cache_state_walk(c, span_of(STATE_PREFIX), restore_one, c);
    sizer_open(c);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    l->made = true;
    sigfillset(&all);                /* signals are main's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    l->runs = pthread_create(&l->thread, NULL, learn_main, c) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return l->runs ? OK : ERR_SYSTEM;
}

void learner_close(struct cache *c)
{
    struct learner *l = &c->learner;

    if (!l->made)
        return;
    if (l->runs) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
        policy_refresh(c->policy);
        save_all(c);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    *l = (struct learner){0};
}
