/* The frame of the micro benches: time and allocations per call.
 *
 * Invariants:
 *  1. The time is the least of BATCHES batches, so that another job's burst does not count.
 *  2. Every malloc, calloc and realloc of the process counts, also those of libraries (OpenSSL's,
 *     for example).
 *
 * Life: a program calls micro_run() per case and ends. Failure: must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_BENCH_MICRO_H
#define HEADPOND_BENCH_MICRO_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mem.h"

enum { BATCHES = 9, BATCH_NS = 20000000 };

static uint64_t micro_allocations;

/* glibc's own entry points behind the interposed ones. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    micro_allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    micro_allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes)
{
    micro_allocations++;
    return __libc_realloc(old, bytes);
}

static uint64_t micro_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t micro_batch(void (*call)(void), uint64_t calls)
{
    uint64_t from = micro_now();

    for (uint64_t i = 0; i < calls; i++)
        call();
    return micro_now() - from;
}

/* Prints "name ns=.. allocations=.." per call, and GB/s when a call works on that many bytes. */
static void micro_run(const char *name, void (*call)(void), uint64_t bytes)
{
    uint64_t calls = 1, best = UINT64_MAX;

    while (micro_batch(call, calls) < BATCH_NS)
        calls *= 2;
    uint64_t before = micro_allocations;
    for (int i = 0; i < BATCHES; i++)
        best = min_u64(best, micro_batch(call, calls));
    uint64_t made = micro_allocations - before;
    double ns = (double)best / (double)calls;

    printf("%-28s ns=%.1f allocations=%.2f", name, ns, (double)made / (double)calls / BATCHES);
    if (bytes > 0)
        printf(" GB/s=%.2f", (double)bytes / ns);
    printf("\n");
}

#endif
