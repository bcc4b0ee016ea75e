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

enum { JOBS_MOST = 16 };
struct request {
    uint32_t chunk, bytes;
    uint16_t job;                    /* whose loader posts plans, from 1; 0: nobody's */
    bool first, last;                /* part of its chunk, of those read one behind the other */
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
    unsigned jobs;                   /* that post plans */
    uint64_t epoch_bytes[JOBS_MOST]; /* of each */
    bool draws[JOBS_MOST];           /* it reads some twice in an epoch, and others not */
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

/* ---- follower.c: what plans know when ---- */
struct follower;
/* false: of this trace nothing is told, as a job reads alone. */
bool follower_tells(const struct trace *t);
struct follower *follower_make(const struct trace *t, double epochs);
void follower_free(struct follower *f);
/* Request n comes: its job tells as much more as it reads. True: *chunk is used next at another
 * time than was known; to be asked until it is false. */
bool follower_learns(struct follower *f, uint32_t n, uint32_t *chunk);
/* Request n is over. */
void follower_passes(struct follower *f, uint32_t n);
struct next_use {                    /* of a chunk */
    enum { USE_UNKNOWN, USE_AT, USE_BEYOND } is;
    uint64_t bytes;                  /* of all jobs before it */
};
/* As known behind request n. */
struct next_use follower_next(const struct follower *f, uint32_t n, uint32_t chunk);

/* ---- each policy: a trace through a cache of that many bytes ---- */
struct score replay_ehd(const struct trace *t, uint64_t capacity);     /* the server's own */
/* The same with plans: each job tells so many of its epochs ahead what it reads. */
struct score replay_planned(const struct trace *t, uint64_t capacity, double epochs);
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
