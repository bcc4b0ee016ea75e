/* Counts every allocation of the process, libraries' among them (OpenSSL's, for example), which
 * mem_take_count() does not see.
 *
 * Invariants:
 *  1. Only one file of a program includes this: it defines malloc, calloc and realloc, or a hook of
 *     the sanitizer, which has its own.
 *
 * Life: allocations_begin() once, then differences of allocations_made(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_ALLOCATIONS_H
#define HEADPOND_TESTS_ALLOCATIONS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

static _Atomic uint64_t allocations;

#ifdef HEADPOND_ASAN
/* sanitizer/allocator_interface.h, which gcc's packages lack */
int __sanitizer_install_malloc_and_free_hooks(void (*made)(const volatile void *, size_t),
                                              void (*freed)(const volatile void *));

static void count_allocation(const volatile void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
    allocations++;
}
static void count_nothing(const volatile void *at)
{
    (void)at;
}
static inline void allocations_begin(void)
{
    static bool begun;
    if (!begun)
        begun = __sanitizer_install_malloc_and_free_hooks(count_allocation, count_nothing) > 0;
}
#else
/* glibc's own entry points behind the interposed ones. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}
static inline void allocations_begin(void)
{
}
#endif

static inline uint64_t allocations_made(void)
{
    return allocations;
}

#endif
