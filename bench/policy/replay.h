/* Eviction policies on traces of training reads, in virtual time: what the files of this folder
 * know of each other.
 *
 * Invariants:
 *  1. A trace is a list of reads of chunks, made from seeds: the same in every run.
 *  2. A read of what is cached costs nothing; a chunk that is let in costs all of its bytes, one
 *     that is not costs what was asked for.
 *
 * Life: one trace at a time, replayed by each policy. Failure: must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_BENCH_REPLAY_H
#define HEADPOND_BENCH_REPLAY_H

#include "base.h"
#include "mem.h"
#include "server/policy/policy.h"

struct request {
    uint32_t chunk, bytes;
};
struct trace {
    const char *name;
    struct request *request;         /* owned */
    uint32_t *bytes;                 /* owned; per chunk */
    uint16_t *dataset;               /* owned; per chunk: whose prefix it has */
    uint32_t count, cap, chunks, chunk_cap;
    uint64_t working_set;            /* bytes */
    unsigned epochs;                 /* each byte once in each of so many; 0: it is otherwise */
    unsigned fills;                  /* how often the whole cache must be filled */
    bool random_parts;               /* parts of chunks in no order */
};
struct score {
    uint64_t asked, fetched, written; /* bytes: by readers, from upstream, to the disk */
    uint64_t free_room;              /* of those written: without evicting anything */
    double ns;                       /* of processor time per read */
};

/* ---- traces.c ---- */
extern const char *const trace_names[];
must_check bool trace_make(struct trace *t, const char *name); /* false: there is no such */
void trace_free(struct trace *t);
uint64_t random_next(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t n);

/* ---- each policy: a trace through a cache of that many bytes ---- */
struct score replay_ehd(const struct trace *t, uint64_t capacity);     /* the server's own */
/* The same, and what the server would say of other sizes then: at the rate that so many chunks in
 * the largest of the scaled caches allow. */
void replay_sizing(const struct trace *t, uint64_t capacity, uint32_t chunks,
                   struct sizing_report *out);
struct score replay_lru(const struct trace *t, uint64_t capacity);
struct score replay_s3fifo(const struct trace *t, uint64_t capacity);
struct score replay_arc(const struct trace *t, uint64_t capacity);
struct score replay_wtinylfu(const struct trace *t, uint64_t capacity);
struct score replay_min(const struct trace *t, uint64_t capacity);     /* knows the future */
double score_ratio(const struct score *s); /* of bytes that did not come from upstream */

#endif
