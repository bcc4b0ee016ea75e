/* Memory of the pool that the kernel has given before it is needed.
 *
 * At its first touch the kernel clears a page, 2 MiB at a time where it may: a loop that does that
 * stands still for a quarter of a millisecond, and of the first GiB that a server fetches it is a
 * fifth of all work. A thread of its own does it ahead of use, where there is a core for it.
 *
 * Invariants:
 *  1. It changes no byte: what is in use by the time it comes there stays as it is.
 *  2. It is never waited for: a frame that is not ready yet is made so by whoever touches it.
 *
 * Life: pool_ready_begin() when the pool stands, pool_ready_end() before its memory goes.
 * Failure: a kernel that cannot do it (before 5.14) or has no memory left ends the thread; all goes
 * on without. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/cache/inside.h"

enum {
    STEP_FRAMES = 2 * MIB / POOL_FRAME_BYTES, /* at once: others may wait for the map meanwhile */
    AT_START = 4,                    /* one part in so many, whether it is used or not */
    NICE = 10,                       /* loops first, where they have to share a core */
};

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23       /* Linux 5.14; glibc 2.35 */
#endif

/* How many frames shall be ready; the allocator's lock is held. */
static uint32_t goal(const struct pool *p)
{
    uint64_t ahead = (uint64_t)p->fresh + POOL_READY_AHEAD;

    return (uint32_t)min_u64(max_u64(ahead, p->frames / AT_START), p->frames);
}

static bool populate(struct pool *p, uint32_t from, uint32_t count)
{
    uint8_t *at = p->memory + (uint64_t)from * POOL_FRAME_BYTES;

    return madvise(at, (size_t)count * POOL_FRAME_BYTES, MADV_POPULATE_WRITE) == 0;
}

static void *ready_main(void *arg)
{
    struct pool *p = arg;
    bool can = true;

    pthread_setname_np(pthread_self(), "headpond-memory");
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* of this thread alone, on Linux */
    pthread_mutex_lock(&p->lock);
    while (can && !p->ready_stop) {
        uint32_t at = p->ready > p->fresh ? p->ready : p->fresh;
        uint32_t from = at / STEP_FRAMES * STEP_FRAMES;
        if (p->ready >= goal(p)) {
            pthread_cond_wait(&p->ready_wake, &p->lock);
            continue;
        }
        uint32_t count = (uint32_t)min_u64(STEP_FRAMES, p->frames - from);
        pthread_mutex_unlock(&p->lock);
        can = populate(p, from, count);
        pthread_mutex_lock(&p->lock);
        p->ready = can ? from + count : p->ready;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void pool_ready_begin(struct pool *p)
{
    sigset_t all, old;

    pthread_cond_init(&p->ready_wake, NULL);
    sigfillset(&all);                /* signals are main's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    p->ready_runs = pthread_create(&p->ready_thread, NULL, ready_main, p) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!p->ready_runs)
        pthread_cond_destroy(&p->ready_wake);
}

void pool_ready_end(struct pool *p)
{
    if (!p->ready_runs)
        return;
    pthread_mutex_lock(&p->lock);
    p->ready_stop = true;
    pthread_cond_signal(&p->ready_wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->ready_thread, NULL);
    pthread_cond_destroy(&p->ready_wake);
    p->ready_runs = false;
}
