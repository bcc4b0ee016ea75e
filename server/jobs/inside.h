/* The parts of jobs as they know each other: for the files of this folder and their tests.
 *
 * Invariants: those of jobs.h; nothing outside the folder includes this header.
 * Life: the structs are those of the table (jobs.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_JOBS_INSIDE_H
#define HEADPOND_JOBS_INSIDE_H

#include <pthread.h>

#include "server/jobs/jobs.h"

enum {
    SCRUB_SLOT = JOBS_MAX,           /* in the table, but in no list */
    JOB_LANES = 8,                   /* questions to upstream under way */
};

/* ---- what a job works on: a bucket as its store knows it ---- */
struct job_scope {
    bool all;                        /* whatever is here */
    uint8_t upstream, store;
    struct span bucket, prefix;      /* borrowed from configuration and spec */
};
/* ERR_NOT_FOUND: no upstream has that bucket. */
must_check enum err scope_of(const struct server *s, const struct config *config,
                             const struct job_spec *spec, struct job_scope *out);
bool scope_has(const struct job_scope *scope, const struct object *o);
/* Not read for as long as the spec wants. */
bool spec_wants_age(const struct job_spec *spec, const struct object *o);

/* ---- record.c: a job as it is kept (pure) ---- */
struct job_place {                   /* where it goes on */
    uint64_t at;                     /* of the walk: the slice that is not done yet */
    struct id object;                /* of that slice, with chunks that are done; or zero */
    uint64_t chunk;
};
enum { JOB_RECORD_MAX = 32 * KIB };
/* 0: it does not fit */
size_t job_record_write(const struct job_view *v, const struct job_place *p, void *out, size_t cap);
must_check enum err job_record_read(struct span bytes, struct job_view *v, struct job_place *p);

/* ---- run.c: the machine ---- */
struct job_question {                        /* one object that upstream is asked about */
    struct learn learn;
    struct object *object;           /* held; NULL: free */
    bool again;                      /* upstream was away */
    uint32_t tries;
};
struct job_whole {                   /* whole.c: the object's bytes so far */
    bool on;                         /* all up to next were read, and there is a checksum */
    uint64_t next;
    struct named_sum named;
    struct payload_sum sum;
};
struct job {
    struct machine m;
    struct jobs *jobs;
    unsigned slot;
    struct job_view view;            /* written by its core (or before it runs), under the lock */
    struct job_place place;          /* its core's */
    struct message msg;
    _Atomic bool sent, runs;
    _Atomic int wish;
    /* ---- while it runs: its core's ---- */
    struct job_scope scope;
    bool scoped;
    char bucket[BUCKET_BYTES_MAX + 1]; /* what the scope borrows from, beside the view's spec */
    uint64_t next_at;
    struct object *object[CACHE_WALK_MAX]; /* of the slice; held */
    unsigned count, taken;
    struct cache_held held;
    struct timer timer;
    uint64_t saved_ms, rated_ms, rated_bytes;
    uint64_t due_us;                 /* when the next read may begin */
    /* verify */
    uint64_t number;
    struct chunk *chunk;             /* held */
    unsigned block;
    struct transfer *transfer;       /* NULL: none is under way */
    struct buffer *buffer;           /* held */
    unsigned refused;                /* buffers or transfers in a row */
    struct job_whole whole;
    /* revalidate */
    struct job_question lane[JOB_LANES];
};
struct jobs {
    struct server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;          /* the state of a job, or stopping */
    struct job *job[JOBS_MAX + 1];
    uint64_t next_id;
    _Atomic bool stopping;
};
/* To its core: begin, or look at the wish. */
void job_send(struct job *j);
/* Keeps it as it is now; any thread that may touch it. */
void job_save(struct job *j);
/* Under the lock: for changes of the view. */
void jobs_lock(struct jobs *jobs);
void jobs_unlock(struct jobs *jobs);

/* ---- kinds: what is done to one object of the slice; each says what comes next ---- */
enum work { WORK_DONE, WORK_MORE /* in the next turn */, WORK_WAIT /* woken by something */,
            WORK_STOP /* no buffer for a block, or the scrub is off */ };
enum work evict_work(struct job *j, struct object *o);
enum work verify_work(struct job *j, struct object *o);
enum work revalidate_work(struct job *j, struct object *o);
/* Takes what has come. true: no question is under way any more, and none is to be repeated. */
bool revalidate_reap(struct job *j);
/* true: nothing holds our memory any more. */
bool revalidate_leave(struct job *j);
/* whole.c */
void whole_begin(struct job *j, const struct object *o);
/* Of the object, from `at` on. mem NULL: they could not be had. */
void whole_add(struct job *j, uint64_t at, const void *mem, uint32_t len);
/* false: all of it was read, and is not what upstream has; it was told, and is dropped. */
bool whole_end(struct job *j, struct object *o);
void job_fail_object(struct job *j, const struct object *o, const char *error, uint32_t tries);

#endif
