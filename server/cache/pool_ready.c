/* Memory of the pool that the kernel has given before it is needed.
 *
 * At its first touch the kernel clears a page, 2 MiB at a time where it may: a loop that does that
 * stands still for a quarter of a millisecond, and of the first GiB that a server fetches it is a
 * fifth of all work. A thread of its own does it ahead of use, where there is a core for it.
 *
 * Invariants:
 *  1. It changes no byte: what is in use by the time it comes there stays as it is.
 *  2. A frame that is not ready yet is made so by whoever touches it. Who changes the process's map
 *     waits for one step at most.
 *  3. What is made ready before its use is near is little beside what the process may have: a limit
 *     that the pool would exceed once it is full is not met before.
 *
 * Life: pool_ready_begin() when the pool stands, pool_ready_end() before its memory goes.
 * Failure: a kernel that cannot do it (before 5.14) or refuses memory ends the thread; all goes on
 * without. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/cache/inside.h"

enum {
    STEP_FRAMES = 2 * MIB / POOL_FRAME_BYTES, /* at once */
    AT_START = 3,                    /* one part in so many, whether it is used or not, */
    AT_START_MOST = 1280,            /* and so many frames at most: a GiB and what is to be ahead */
                                     /* of it; in no hurry: */
    REST = 1,                        /* so many times as long as it works it rests */
    PATH_BYTES = 512,
};

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23       /* Linux 5.14; glibc 2.35 */
#endif

/* ---- what the process may have ---- */

static uint64_t number_in(const char *path)
{
    unsigned long long n = UINT64_MAX; /* also of "max" */
    FILE *f = fopen(path, "re");

    if (f && fscanf(f, "%llu", &n) != 1)
        n = UINT64_MAX;
    if (f)
        fclose(f);
    return n;
}

/* By the memory controllers of its cgroups, v2 and v1. UINT64_MAX: as much as there is. */
static uint64_t allowed(void)
{
    uint64_t least = number_in("/sys/fs/cgroup/memory.max"); /* in a container */
    char line[PATH_BYTES], path[PATH_BYTES + 64];
    FILE *f = fopen("/proc/self/cgroup", "re");

    while (f && fgets(line, sizeof line, f)) {
        const char *v1 = strstr(line, ":memory:");
        line[strcspn(line, "\n")] = '\0';
        if (v1)
            snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.limit_in_bytes", v1 + 8);
        else if (strncmp(line, "0::", 3) == 0)
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", line + 3);
        else
            continue;
        least = min_u64(least, number_in(path));
    }
    if (f)
        fclose(f);
    return least;
}

/* Frames that are made ready at the start. */
static uint32_t first_part(const struct pool *p)
{
    bool plenty = allowed() / 2 >= (uint64_t)p->frames * POOL_FRAME_BYTES;

    return plenty ? (uint32_t)min_u64(p->frames / AT_START, AT_START_MOST) : 0;
}

/* ---- the thread ---- */

static uint32_t ahead(const struct pool *p)
{
    return (uint32_t)min_u64((uint64_t)p->fresh + POOL_READY_AHEAD, p->frames);
}

/* Where to go on; of a step in which somebody is at work already nothing is left to do. */
static uint32_t next_frame(const struct pool *p)
{
    uint32_t ready = atomic_load(&p->ready);

    return ready >= p->fresh ? ready : (uint32_t)round_up(p->fresh, STEP_FRAMES);
}

/* Pages that `at` and what follows it are in. */
static bool touch(void *at, size_t bytes, size_t page)
{
    uintptr_t from = (uintptr_t)at / page * page;

    return madvise((void *)from, (uintptr_t)at + bytes - from, MADV_POPULATE_WRITE) == 0;
}

/* Frames and their headers. How long it took; UINT64_MAX: it cannot be done. */
static uint64_t populate(struct pool *p, uint32_t from, uint32_t count)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct pool_cell *cells = p->cells + (size_t)from * POOL_FRAME_CELLS;
    uint8_t *at = p->memory + (uint64_t)from * POOL_FRAME_BYTES;
    uint64_t began_us = clock_us();
    bool done = touch(cells, (size_t)count * POOL_FRAME_CELLS * sizeof *cells, page) &&
                touch(at, (size_t)count * POOL_FRAME_BYTES, page);

    return done ? clock_us() - began_us : UINT64_MAX;
}

static void *ready_main(void *arg)
{
    struct pool *p = arg;
    uint64_t took_us = 0;

    pthread_setname_np(pthread_self(), "headpond-memory");
    pthread_mutex_lock(&p->lock);
    while (took_us != UINT64_MAX && !p->ready_stop) {
        uint32_t from = next_frame(p);
        bool near = from < ahead(p);
        if (!near && from >= p->ready_first) {
            pthread_cond_wait(&p->ready_wake, &p->lock);
            continue;
        }
        if (!near && took_us > 0) {
            cache_wait(&p->ready_wake, &p->lock, took_us * REST / 1000 + 1);
            took_us = 0;
            continue;
        }
        uint32_t count = (uint32_t)min_u64(STEP_FRAMES, p->frames - from);
        pthread_mutex_unlock(&p->lock);
        took_us = populate(p, from, count);
        pthread_mutex_lock(&p->lock);
        if (took_us != UINT64_MAX)
            atomic_store(&p->ready, from + count);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void pool_ready_begin(struct pool *p)
{
    pthread_condattr_t monotonic;
    sigset_t all, old;

    p->ready_first = first_part(p);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->ready_wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
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
