/* What all fuzz targets share: checks that say where, inputs taken apart, memory that ends where
 * the input ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_FUZZ_H
#define HEADPOND_TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>

#include "base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define demand(cond_) ((cond_) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #cond_))
_Noreturn static inline void fuzz_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    abort();
}

/* A copy that ends where a heap block ends, so that AddressSanitizer sees a read past the end; the
 * byte in front makes it a block for no bytes, too. Give it back with exact_give(). */
static inline char *exact_copy(const void *bytes, size_t len)
{
    char *block = malloc(len + 1);
    demand(block != NULL);
    if (len)
        memcpy(block + 1, bytes, len);
    return block + 1;
}
static inline void exact_give(const char *copy)
{
    free((char *)(uintptr_t)copy - 1);
}

static inline uint64_t fuzz_mix(uint64_t hash, struct span s)
{
    for (size_t i = 0; i < s.len; i++)
        hash = (hash ^ (uint8_t)s.at[i]) * 1099511628211u;
    return (hash ^ 0x1ff) * 1099511628211u;
}

/* ---- an input as a source of decisions: when it is used up, all are 0 ---- */
struct feed {
    const uint8_t *at;
    size_t left;
};
static inline unsigned unused_ok feed_below(struct feed *f, unsigned limit)
{
    unsigned n = 0;
    for (unsigned i = 0; i < (limit > 256 ? 2u : 1u) && f->left; i++) {
        n = n << 8 | *f->at++;
        f->left--;
    }
    return limit ? n % limit : 0;
}
static inline struct span unused_ok feed_bytes(struct feed *f, size_t most)
{
    size_t n = (size_t)min_u64(most, f->left);
    struct span s = span_make(f->at, n);
    f->at += n;
    f->left -= n;
    return s;
}
/* The part up to a line feed. */
static inline struct span unused_ok feed_line(struct feed *f)
{
    struct span rest = span_make(f->at, f->left), line = span_cut(&rest, '\n');
    f->at = (const uint8_t *)rest.at;
    f->left = rest.len;
    return line;
}

#endif
