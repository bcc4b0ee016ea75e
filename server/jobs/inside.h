/* The parts of jobs as they know each other: for the files of this folder and their tests.
 *
 * Invariants: those of jobs.h; nothing outside the folder includes this header.
 * Life: the structs are those of the table (jobs.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_JOBS_INSIDE_H
#define HEADPOND_JOBS_INSIDE_H

#include <pthread.h>

#include "server/jobs/jobs.h"
#include "xml.h"

enum {
    SCRUB_SLOT = JOBS_MAX,           /* in the table, but in no list */
    /* in a list from when it fills until it looks at another one */
    BACKGROUND_SLOT,
    JOB_SLOTS,
    JOB_LANES = 8,                   /* questions to upstream under way */
};
static const uint64_t RATE_KEPT = UINT64_MAX;

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
/* What a prewarm has counted in a pass, up to its place. */
struct job_tally {
    uint64_t objects_wanted, objects_done, objects_failed, objects_skipped, bytes_wanted,
        bytes_done, bytes_failed, bytes_here, bytes_loose, bytes_needed;
    struct job_room room;
    uint64_t used;                   /* as in struct warm, as the next */
    uint64_t fetched;
    unsigned failure_count;
};
struct job_place {                   /* where it goes on */
    uint64_t at;                     /* of the walk: the slice that is not done yet; of a list: the
                                      * piece */
    struct id object;                /* of that slice, with chunks that are done; or zero */
    uint64_t chunk;
    /* prewarm: all keys up to this one are done in the pass */
    enum job_pass pass;
    struct job_tally tally;
    char after[KEY_BYTES_MAX + 1];
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
enum background_end {
    BACKGROUND_ALL,                  /* all of it is here, but for what failed */
    BACKGROUND_COLD,                 /* too few of its objects were read */
    BACKGROUND_NO_ROOM,              /* what is missing does not fit */
    BACKGROUND_FULL,                 /* others took the room meanwhile */
    BACKGROUND_OFF,                  /* it is not wanted any more */
};
struct warm;
struct job {
    struct machine m;
    struct jobs *jobs;
    unsigned slot;
    struct job_view view;            /* written by its core (or before it runs), under the lock */
    struct job_place place;          /* its core's */
    struct message msg;
    _Atomic bool sent, runs;
    _Atomic bool again;              /* it has ended, and shall begin anew: before any wish */
    _Atomic int wish;
    _Atomic uint64_t rate_wish;      /* RATE_KEPT: none */
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
    /* the object failed already; something of it could not be read for its disk */
    bool failed, unread;
    struct job_whole whole;
    /* revalidate */
    struct job_question lane[JOB_LANES];
    /* prewarm */
    struct warm *warm;               /* from BEGIN to DRAIN */
    enum background_end background_end;
};
struct jobs {
    struct server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;          /* the state of a job, or stopping */
    struct job *job[JOB_SLOTS];
    uint64_t next_id;
    _Atomic bool stopping;
    _Atomic uint64_t due_us;         /* prewarm, all together: when the next fetch may begin */
    struct background *background;   /* its job's */
    unsigned pieces;                 /* of all lists of keys, and */
    uint64_t piece_bytes;
};
/* To its core: begin, or look at the wish. */
void job_send(struct job *j);
uint64_t jobs_number(struct jobs *jobs); /* of one more job */
/* Keeps it as it is now; any thread that may touch it. */
void job_save(struct job *j);
/* The server ends and the job does not run: what was wished of it is kept for the next start. Under
 * the lock. */
void job_settle(struct job *j);
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
void job_fail_key(struct job *j, struct span key, const char *error, uint32_t tries);
void job_note(struct job *j, const char *note); /* what it waits for; "" */

/* ---- background.c: which dataset is filled up, and when that ends ---- */
enum { BACKGROUND_GROUPS = 128 };
struct background_group {            /* a dataset */
    char prefix[POLICY_NAME_BYTES + BUCKET_BYTES_MAX + 1]; /* as clients name it; "": free */
    bool always;                     /* prefetch.background */
    uint64_t read;                   /* of its objects, in the hour before this look */
    /* of the last time that the store listed it; 0: not known */
    uint64_t listed, left_bytes;
    uint64_t again_ms;               /* not before */
};
/* Pure. Were enough of so many objects read? */
bool background_is_warm(bool always, uint64_t read, uint64_t listed);
bool background_fits(uint64_t left_bytes, uint64_t spare_bytes);
/* By what is known without a list. */
bool background_may_begin(const struct background_group *g, uint64_t now_ms, uint64_t spare_bytes);
/* After an end: what is known, and when it is looked at again. */
void background_settle(struct background_group *g, enum background_end how, uint64_t now_ms);
/* Of a count: may it be filled? BACKGROUND_ALL: begin, if anything is left. */
enum background_end background_judge(const struct job *j);
must_check enum err background_open(struct jobs *jobs); /* ERR_MEMORY */
void background_close(struct jobs *jobs);
/* What is told of it: the view of its job, or while that counts the one before. NULL: it has not
 * filled anything yet. Under the lock. */
const struct job_view *background_shown(const struct jobs *jobs);
/* Step of its job: looks for a dataset. true: the view's spec names one. */
bool background_look(struct job *j);
/* May it go on, by the configuration of now? */
bool background_is_on(const struct job *j);
bool background_wants(const struct job *j, struct span key); /* one key of it */
/* Bytes that can come without anything leaving for them. */
uint64_t background_room(const struct job *j);
void background_ends(struct job *j, enum background_end how);
void background_over(struct job *j); /* its machine has ended */
bool object_was_read(const struct object *o, const struct cache_held *h, uint64_t now_s);

/* ---- page.c: one page of a store's list of objects (pure) ---- */
enum { PAGE_KEYS_MAX = 1000, PAGE_BYTES_MAX = 8 * MIB, PAGE_TOKEN_MAX = 2 * KIB };
struct listed {
    struct span key, etag;           /* into the page; the ETag as it was listed, or "" */
    uint64_t size;                   /* KEY_SIZE_ANY: nobody said it */
};
struct page {
    struct listed item[PAGE_KEYS_MAX];
    unsigned count;
    bool more;                       /* the list goes on behind it */
    char token[PAGE_TOKEN_MAX + 1];  /* where, if the page has no key; "": it was not said */
    bool given;                      /* of a list of keys, and not the store's */
    /* ---- private ---- */
    struct xml_reader *reader;
    bool encoded, listing;
    size_t used;
    char text[PAGE_KEYS_MAX * (3 * KEY_BYTES_MAX + 128)]; /* a byte is encoded by three */
};
/* ERR_MEMORY */
must_check enum err page_begin(struct page *p);
/* ERR_SYNTAX, ERR_TOO_LARGE, ERR_MEMORY */
must_check enum err page_feed(struct page *p, struct span bytes);
/* It is whole: keys are decoded. ERR_SYNTAX: no such list, or its keys are not in order behind
 * `after`, so that nobody could go on from the last one. */
must_check enum err page_end(struct page *p, struct span after);
void page_close(struct page *p);     /* at any time; what was read stays */
/* Is the listed ETag that one? Some stores list them without quotes. */
bool listed_has_etag(const struct listed *l, struct span etag);
bool listed_is(const struct listed *l, struct span etag, uint64_t size);

/* ---- key_list.c: a piece of a list of keys (pure) ---- */
/* From key *from on, which moves on; the bytes that were written. */
size_t key_list_write(const struct key_list *l, uint32_t *from, uint8_t *out, size_t cap);
must_check enum err key_list_read(struct span bytes, struct page *p); /* ERR_RECORD */

/* ---- kept.c: lists in the cache's state ---- */
must_check enum err kept_open(struct jobs *jobs); /* ERR_MEMORY */
/* Writes it down, under the number *id of the job to come. Not on a core. ERR_FULL,
 * ERR_TOO_LARGE: it never fits; ERR_MEMORY. */
must_check enum err kept_put(struct jobs *jobs, const struct key_list *list, uint64_t *id,
                             struct kept_keys *out);
/* Lists that nobody needs any more. Their pieces go behind the lock of all jobs, which cores wait
 * for: several hundred of them take milliseconds. */
struct kept_gone {
    unsigned count;
    struct {
        uint64_t id;
        unsigned pieces;
    } list[JOBS_MAX + 1];
};
/* Under the lock: that list of job id is no more. */
void kept_forget(struct jobs *jobs, uint64_t id, struct kept_keys *keys, struct kept_gone *gone);
void kept_clear(struct jobs *jobs, const struct kept_gone *gone); /* without it */
/* ERR_NOT_FOUND, ERR_RECORD, ERR_MEMORY */
must_check enum err kept_page(struct job *j, unsigned piece, struct page *p);

enum warm_turn {
    WARM_WAIT,                       /* woken by something */
    WARM_MORE,                       /* in the next turn of the core */
    WARM_PAGE,                       /* a page is here: go on with its objects */
    WARM_LIST,                       /* all of it is done: go on with the next one */
    WARM_DONE,                       /* all passes are over */
    WARM_FAILED,                     /* the view tells why */
};

/* ---- warm.c: objects that are brought, several at a time ---- */
enum { WARM_LANES = 32, WARM_FETCHES = 64, WARM_READ_BYTES = 64 * KIB };
enum lane_at {
    LANE_FREE,
    LANE_LOOK,                       /* what of it is here? */
    LANE_MEASURE,                    /* a key of a list: it is counted */
    LANE_LEARN,                      /* upstream is asked, the first chunk comes with the answer */
    LANE_FILL,                       /* chunk by chunk */
    LANE_REST,                       /* it failed, and is tried again */
};
struct warm_lane {                   /* one object */
    enum lane_at at;
    const struct listed *item;       /* of the page */
    struct okey key;
    struct epoch epoch;
    struct learn learn;
    bool learnt;                     /* in this pass, so that its ETag may differ from the list's */
    struct object *object;           /* held */
    uint64_t size;                   /* KEY_SIZE_ANY: not known yet */
    struct cache_held held;          /* LANE_MEASURE */
    uint64_t number;                 /* next chunk to look for */
    unsigned under_way;              /* of its chunks */
    uint64_t told;                   /* bytes of it that the view counts as done */
    bool taken_in;                   /* warm.used counts it, with so many bytes: */
    uint64_t taken_room;
    uint64_t again_ms;
    uint32_t tries;
    bool hopeless;                   /* it need not be tried again */
    bool passed;                     /* a reader's fetch went past the disk: that is no try */
    char error[64];                  /* "": nothing went wrong in this try */
};
struct warm_fetch {
    struct fetch_watch watch;
    struct warm_lane *lane;          /* NULL: free */
    uint64_t number;                 /* of the chunk */
    uint32_t bytes;
};
struct warm {
    struct page page;
    unsigned taken;                  /* of the page */
    bool paged;                      /* a page is here that is not done */
    struct span last;                /* its last key, also if that is not meant */
    /* ---- the list ---- */
    struct exchange list;
    struct ask ask;
    bool listing, ending, whole;
    bool left;                       /* it was ended by us */
    enum err why;                    /* its document cannot be read */
    unsigned status;                 /* of an answer that was no list; 0: none came */
    uint64_t again_ms;               /* the list failed */
    uint32_t tries;
    char query[12 * KIB];
    char token[PAGE_TOKEN_MAX + 1];  /* of the page before, which had no key; "": it had some */
    unsigned empty_pages;            /* one behind the other */
    char mem[WARM_READ_BYTES];
    /* ---- its objects ---- */
    struct cache_held held;          /* of the one that is being counted */
    uint64_t used;                   /* room of objects of the pass that are here, or will be */
    uint64_t fetched;                /* chunks, in the pass */
    unsigned section;                /* whose quota is looked at; 0: none was met */
    /* in PASS_LOOK: what had failed before, and why */
    struct job_failure failed[JOB_FAILURES_MAX];
    unsigned failed_count;
    /* ---- background ---- */
    uint64_t read;                   /* objects of the list that were read within the hour */
    uint64_t full_ms;                /* since when there is no room; 0: there is */
    uint64_t room_ms;                /* when it is looked for again */
    bool refused;                    /* a place was, since the last one that was had */
    struct warm_lane lane[WARM_LANES];
    struct warm_fetch fetch[WARM_FETCHES];
};
enum warm_turn warm_lanes(struct job *j); /* WARM_LIST: all objects of the page are done */
bool warm_lanes_leave(struct job *j);
/* j->timer, if it is not set: the lot is looked at again soon. */
void warm_tick(struct job *j);

/* ---- prewarm.c: passes, and what stops them ---- */
must_check enum err warm_open(struct job *j); /* ERR_MEMORY */
enum warm_turn warm_list(struct job *j);       /* the next page */
void warm_leave_list(struct job *j);           /* what is under way of it is asked for anew later */
bool warm_has_page(const struct job *j);       /* with objects that are not done */
enum warm_turn warm_objects(struct job *j);    /* the objects of the page */
bool warm_leave(struct job *j);                /* true: all is given back */
/* One more is wanted. */
void warm_count(struct job *j, const struct okey *k, uint64_t size, const struct cache_held *held);

#endif
