/* The pool's thread: touches memory before it is lent for the first time.
 *
 * The kernel clears a page when it is touched first: a sixth of what a first read costs the core
 * that does it (1 GiB from a store at hand, measured), and where a host has to find the memory of a
 * virtual machine at that moment, milliseconds for each 2 MiB, in which the core serves nobody. So
 * it is done here, beside the cores, for what comes next.
 *
 * Invariants:
 *  1. It only says "this is needed soon" of memory (MADV_POPULATE_WRITE), also of memory that was
 *     lent in the meantime: no byte changes.
 *  2. A quarter of the pool, and 1 GiB at most (and a step), is touched that nobody has used yet.
 *     It goes on once only a quarter of that is left: a burst finds all of it, and shares no core
 *     with this.
 *
 * Life: pool_ahead_open() when the server forks no more, pool_ahead_close() by pool_close().
 * Failure: without thread, or with a kernel before 5.14, cores touch memory themselves.
 * Limit: memory lies where this thread runs, which of several sockets that may be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "server/cache/inside.h"

enum {
    AHEAD_PART = 4,                  /* of the pool */
    AHEAD_FRAMES = GIB / POOL_FRAME_BYTES,
    LEFT_PART = 4,                   /* of what is ahead */
    STEP_FRAMES = 2,                 /* at once: a huge page. Who maps memory meanwhile waits */
};

/* Frames that are to be touched by now, of which so many are: as many as before while enough of
 * them are unused. */
static uint32_t wanted(const struct pool *p, uint32_t touched, bool going_on)
{
    uint64_t fresh = atomic_load(&p->ahead.fresh);
    uint64_t ahead = min_u64(p->frames / AHEAD_PART, AHEAD_FRAMES);

    if (!going_on && touched > fresh + ahead / LEFT_PART)
        return touched;
    return (uint32_t)min_u64(fresh + ahead, p->frames);
}

/* Until there is more to touch; false: the end. */
static bool await_need(struct pool *p, uint32_t touched)
{
    struct pool_ahead *a = &p->ahead;
    bool going_on = true;

    pthread_mutex_lock(&a->lock);
    while (!a->stop && touched >= wanted(p, touched, going_on)) {
        going_on = false;
        pthread_cond_wait(&a->changed, &a->lock);
    }
    bool stop = a->stop;
    pthread_mutex_unlock(&a->lock);
    return !stop;
}

static void *ahead_main(void *arg)
{
    struct pool *p = arg;
    uint32_t touched = 0;

    pthread_setname_np(pthread_self(), "headpond-memory");
    while (touched < p->frames && await_need(p, touched)) {
        uint32_t frames = (uint32_t)min_u64(STEP_FRAMES, p->frames - touched);
        uint8_t *at = p->memory + (uint64_t)touched * POOL_FRAME_BYTES;
        if (madvise(at, (size_t)frames * POOL_FRAME_BYTES, MADV_POPULATE_WRITE) != 0)
            break;
        touched += frames;
    }
    return NULL;
}

void pool_ahead_open(struct pool *p)
{
    struct pool_ahead *a = &p->ahead;
    sigset_t all, old;

    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->made = true;
    sigfillset(&all);                /* signals are main's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    a->runs = pthread_create(&a->thread, NULL, ahead_main, p) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void pool_ahead_close(struct pool *p)
{
    struct pool_ahead *a = &p->ahead;

    if (!a->made)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->runs)
        pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    *a = (struct pool_ahead){0};
}

/* Never waits: while the thread has its lock it is awake, and what it misses it hears with the next
 * step. */
void pool_ahead_move(struct pool *p)
{
    struct pool_ahead *a = &p->ahead;

    if (!a->made || p->fresh % POOL_AHEAD_STEP != 0)
        return;
    atomic_store(&a->fresh, p->fresh);
    if (pthread_mutex_trylock(&a->lock) != 0)
        return;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}
