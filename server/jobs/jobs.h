/* Jobs: work on what is cached that an operator asked for and that takes longer than a request.
 *
 * Invariants:
 *  1. A job is a machine on one core. What others know of it is its view, a copy that it renews
 *     under the table's lock; what others want of it is a wish, brought by a message.
 *  2. The table is bounded: when it is full the oldest job that has ended makes room; without one
 *     there is no further job.
 *  3. A job's view and its place in the walk are kept (cache_state_put): after a crash it goes on
 *     where it was saved last, at most a second before. What was done since is done again.
 *  4. Jobs wait for requests, not they for jobs: a job does little per turn, reads at a bounded
 *     rate, and has few questions under way.
 *
 * Life: jobs_open() after the cores have started, jobs_close() when they were joined. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_JOBS_H
#define HEADPOND_JOBS_H

#include "server/fill/fill.h"

enum job_kind { KIND_EVICT, KIND_REVALIDATE, KIND_VERIFY, KIND_SCRUB, KIND_PREWARM,
                KIND_BACKGROUND };
enum {
    JOBS_MAX = 64,                   /* known ones, beside the one of the background */
    JOBS_LISTED_MAX = JOBS_MAX + 1,
    JOBS_ACTIVE_MAX = 16,            /* of them that have not ended */
    JOB_FAILURES_MAX = 16,           /* told by name; all are counted */
    JOB_PREFIX_MAX = BUCKET_BYTES_MAX + 1 + KEY_BYTES_MAX,
    JOB_FILTER_MAX = 1023,
};
/* A list of keys that a prewarm is given. */
enum {
    LIST_KEYS_MAX = 500 * 1000,           /* of one list */
    LIST_TEXT_MAX = 64 * MIB,        /* while it is made */
    KEY_ETAG_MAX = 128,
    LISTS_PIECES = 512, LISTS_BYTES = 8 * MIB, /* of all lists, as they are kept */
};
static const uint64_t KEY_SIZE_ANY = UINT64_MAX;
struct key_wish {
    struct span key, etag;           /* "": whatever it is */
    uint64_t size;                   /* KEY_SIZE_ANY */
};
struct key_list;
struct key_list *key_list_make(void); /* NULL: no memory */
/* ERR_SYNTAX: no key, too long, or with a NUL; ERR_TOO_LARGE: the list is; ERR_MEMORY. */
must_check enum err key_list_add(struct key_list *l, const struct key_wish *key);
enum job_order { ORDER_ANY, ORDER_NAME, ORDER_GIVEN, ORDER_SIZE /* the smallest first */ };
/* Takes out what is there twice, and sorts. Once, before it is given to a job. ERR_MEMORY;
 * ERR_SYNTAX: by size, and the list does not say each. */
must_check enum err key_list_settle(struct key_list *l, enum job_order by);
uint32_t key_list_count(const struct key_list *l);
struct span key_list_key(const struct key_list *l, uint32_t n); /* borrowed */
void key_list_free(struct key_list *l);
uint64_t jobs_list_bytes(const struct key_list *l); /* as it is kept; 0: no memory to tell */

struct kept_keys {                   /* what of a list is in the cache's state */
    uint32_t count;                  /* of keys; 0: the job has no list */
    uint32_t pieces;                 /* 0: it had to make room for others' */
    uint64_t bytes;
};
struct job_spec {
    enum job_kind kind;
    bool keep_pinned;                /* evict: leaves what is pinned */
    uint64_t unread_for_s;           /* evict: only what was not read for so long; 0: all */
    char prefix[JOB_PREFIX_MAX + 1]; /* bucket, or bucket/prefix, as clients name it; "": all */
    /* ---- prewarm ---- */
    bool dry_run;                    /* only looks what it would fetch, and whether that fits */
    uint32_t connections;            /* chunks at once; 0: prefetch.inflight */
    uint64_t bandwidth;              /* bytes per second; 0: no limit of its own */
    char filter[JOB_FILTER_MAX + 1]; /* lines: + or -, and a glob; see filter_has() */
    enum job_order order;
    bool pin;                        /* what it brings is pinned, from when it fetches */
    bool force;                      /* also if not all fits: what does, in its order */
    uint64_t until_s;                /* so long; 0: for good */
    struct kept_keys keys;           /* set by jobs_add() */
};
/* What a prewarm does, in this order. */
enum job_pass {
    PASS_NONE,                       /* it is no prewarm, or did not begin */
    PASS_COUNT,                      /* lists what is wanted, and what of it is here */
    PASS_FETCH,
    PASS_CHECK,                      /* lists again; what is missing all the same is fetched */
    PASS_OVER,
    /* Between those two, if anything was: what is missing now was pushed out, and has failed. */
    PASS_LOOK,
};
enum job_limit {                     /* what does not let all of a prewarm in */
    LIMIT_DISKS,
    LIMIT_QUOTA,                     /* of its section */
    LIMIT_INDEX,                     /* cache.index_memory */
};
/* What objects take, summed up: as in struct cache_need. */
struct job_room {
    uint64_t here;                   /* of the disks, by what is wanted and here */
    uint64_t index_loose, index_needed; /* of the index: what is here and not pinned; what is not */
    uint64_t small;                  /* objects */
    uint64_t ruled_loose, ruled_needed; /* the same, of one section's quota */
};
struct job_failure {
    char key[KEY_BYTES_MAX + 1];
    char error[64];
    uint32_t tries;
};
struct job_view {                    /* times are wall clock, 0 = not yet */
    uint64_t id;
    struct job_spec spec;
    enum label_jobstate state;
    uint64_t created_ms, started_ms, ended_ms;
    /* wanted: what matched when the job was made. done: what was looked at to the end */
    uint64_t objects_wanted, objects_done, objects_failed, objects_skipped;
    uint64_t bytes_wanted, bytes_done;
    uint64_t dropped;                /* objects that had changed; blocks that were damaged */
    uint64_t rate_bytes_per_s;       /* of the last seconds */
    /* ---- prewarm: its counts are those of the pass ---- */
    enum job_pass pass;
    uint64_t bytes_failed;           /* of objects that failed */
    uint64_t bytes_here;             /* of what is wanted, at the begin; */
    /* of the disks: what of those takes that no pin names; what is wanted besides; and what of that
     * could be had without touching pins. does_not_fit: that is why it failed, by that limit */
    uint64_t bytes_loose, bytes_needed, bytes_free;
    struct job_room room;
    bool does_not_fit;
    enum job_limit limit;
    char note[160];                  /* what it waits for, or why it failed; "" */
    unsigned failure_count;
    struct job_failure failure[JOB_FAILURES_MAX];
};
const char *job_kind_name(enum job_kind kind);
/* It brings what a list names: a prewarm, or what fills the cache in the background. */
static inline bool job_warms(enum job_kind kind)
{
    return kind == KIND_PREWARM || kind == KIND_BACKGROUND;
}
/* Of what is wanted, bytes that are not here yet. */
uint64_t job_bytes_left(const struct job_view *v);
const char *job_state_name(enum label_jobstate state);
static inline bool job_state_is_over(enum label_jobstate state)
{
    return state == JOB_DONE || state == JOB_FAILED || state == JOB_CANCELLED;
}

/* ---- any thread but the cores' ---- */
struct job_count {                   /* what a job of that spec would meet now */
    uint64_t objects, bytes, pinned_skipped;
};
/* Walks over all that is cached. ERR_NOT_FOUND: no upstream has that bucket. */
must_check enum err jobs_count(struct server *s, const struct job_spec *spec,
                               struct job_count *out);
/* Makes a job; *id. It is on the disk when this returns, if that takes less than two seconds.
 * keys: those of a prewarm, settled, all below the spec's prefix; NULL: what the store lists.
 * ERR_BUSY: too many that have not ended; ERR_FULL: no room for the list; ERR_TOO_LARGE: it has
 * more than all lists may have; ERR_NOT_FOUND, ERR_MEMORY. */
must_check enum err jobs_add(struct server *s, const struct job_spec *spec,
                             const struct key_list *keys, uint64_t *id);
/* A copy. false: there is no such job. */
bool jobs_view(struct server *s, uint64_t id, struct job_view *out);
bool jobs_known(struct server *s, uint64_t id);
/* Waits until the job is in another state than the one that is known, or is forgotten; no longer
 * than ms, nor beyond the server's end. */
void jobs_await(struct server *s, uint64_t id, enum label_jobstate known, unsigned ms);
/* Ids of those known, the oldest first; returns how many. */
unsigned jobs_list(struct server *s, uint64_t out[JOBS_LISTED_MAX]);
enum job_wish { WISH_NONE, WISH_PAUSE, WISH_RESUME, WISH_RETRY, WISH_CANCEL };
/* ERR_NOT_FOUND; ERR_DENIED: not in its state; ERR_FULL: its list of keys had to make room;
 * ERR_TIMEOUT: the end of its pin has passed. It is done soon after. */
must_check enum err jobs_wish(struct server *s, uint64_t id, enum job_wish wish);
/* What a prewarm may fetch in a second, soon after; 0: no limit. ERR_NOT_FOUND; ERR_DENIED: it is
 * none, or has ended. */
must_check enum err jobs_set_bandwidth(struct server *s, uint64_t id, uint64_t bytes_per_s);
/* How many are in each state; refreshes the gauges. */
void jobs_tell(struct server *s, uint64_t out[LABEL_jobstate_COUNT]);

/* ---- plans: in which order loaders will read ---- */
enum {
    PLANS_MAX = 16,
    PLAN_STREAMS_MAX = 4096,
    PLAN_RANGES_MAX = 1024,          /* of an entry */
    PLAN_ENTRIES_MAX = 2 * 1000 * 1000, /* of all plans */
    PLAN_BYTES_MAX = 256 * MIB,      /* of memory, all plans */
    PLAN_JOB_MAX = 128,
    PLAN_NAMES_MAX = 10,             /* of keys that the store does not have, told by name */
};
struct plan_facts {
    char job[PLAN_JOB_MAX + 1];      /* of [A-Za-z0-9._-] */
    char prefix[JOB_PREFIX_MAX + 1]; /* bucket, or bucket/ and what all keys begin with */
    uint64_t epoch;
    uint64_t horizon;                /* entries fetched ahead at most; 0: all */
    uint64_t rate;                   /* bytes per second fetched at most; 0: no limit */
    uint64_t expires_s;              /* from now on */
    uint64_t from;                   /* so many entries are not wanted, by positions */
    uint8_t profile;                 /* as whom upstream is asked: struct ask */
};
struct plan_range {                  /* bytes [from, from + length) of an object */
    uint64_t from, length;
};
struct plan_item {                   /* what a stream reads next */
    uint32_t stream;
    struct span key;                 /* behind the prefix */
    const struct plan_range *range;
    unsigned range_count;            /* 0: all of the object */
};
struct plan_view {
    uint64_t id;                     /* 0: not posted yet */
    struct plan_facts facts;
    enum label_planstate state;
    uint64_t created_ms, expires_ms; /* wall clock */
    uint32_t streams, objects, entries;
    /* entries: read (begun), left out by their readers, asked for before they were here */
    uint64_t read, skipped, late;
    uint64_t place;                  /* entries behind all readers, as facts.from counts */
    uint64_t unknown, failed;        /* objects: the store has no such key; not to be had */
    /* of objects: whose size is known, and their bytes; of them those that were here at first */
    uint64_t known, known_bytes, here_bytes;
    uint64_t ahead_bytes;            /* fetched or here, in front of the slowest reader */
    uint64_t rate_bytes_per_s;       /* what all its readers read lately */
    unsigned name_count;
    char name[PLAN_NAMES_MAX][KEY_BYTES_MAX + 1]; /* keys, of unknown objects */
    char note[160];                  /* what it waits for; "" */
};
struct plan;                         /* in the making */
const char *plan_state_name(enum label_planstate state);
/* ERR_NOT_FOUND: no upstream has that bucket; ERR_SYNTAX: the job's name; ERR_MEMORY. */
must_check enum err plans_begin(struct server *s, const struct plan_facts *facts,
                                struct plan **out);
/* ERR_SYNTAX: no key of S3, or no range; ERR_TOO_LARGE: with what all plans hold; ERR_MEMORY. */
must_check enum err plans_add(struct plan *p, const struct plan_item *item);
void plans_give_up(struct plan *p);  /* one that is not posted; NULL is fine */
/* It is followed from now on, instead of another one of the same job and epoch. *out: what is known
 * of it. right: of who posts it; NULL: everything. Takes p, also in failure. ERR_SYNTAX: it has no
 * entry; ERR_BUSY: PLANS_MAX that have not ended; ERR_DENIED: a plan of that job may not be known
 * to him; ERR_TOO_LARGE, ERR_MEMORY. */
must_check enum err plans_post(struct server *s, struct plan *p, const struct plan_right *right,
                               struct plan_view *out);
bool plans_view(struct server *s, uint64_t id, struct plan_view *out);
unsigned plans_list(struct server *s, uint64_t out[PLANS_MAX]); /* the oldest first */
must_check enum err plans_drop(struct server *s, uint64_t id); /* ERR_NOT_FOUND */
/* Refreshes the gauges. */
void plans_tell(struct server *s);
must_check enum err plans_open(struct server *s);      /* ERR_MEMORY */
void plans_close(struct server *s);
void plans_core_drain(struct core *c);
bool plans_core_idle(const struct core *c);

/* ---- plan_body.c: a body that brings a plan; any thread but the cores' ---- */
struct plan_body;
/* right: of who sends it, as plans_post(); NULL: everything. NULL: no memory. It may come in any
 * pieces, before or behind it is known who sends it. */
struct plan_body *plan_body_make(struct server *s, bool lines, const struct plan_right *right);
/* false: something is wrong with it already; what comes behind is not looked at. */
bool plan_body_take(struct plan_body *b, struct span bytes);
/* It is whole. OK: *out is the caller's. Else ERR_SYNTAX, ERR_TOO_LARGE, ERR_NOT_FOUND (no upstream
 * has the bucket), ERR_DENIED (the prefix may not be read), ERR_MEMORY; plan_body_why() has the
 * words. Once. */
must_check enum err plan_body_end(struct plan_body *b, struct plan **out);
const char *plan_body_why(const struct plan_body *b);
void plan_body_free(struct plan_body *b);              /* NULL is fine */

/* ---- plan_told.c: what is said of plans, as JSON; any thread but the cores' ---- */
struct json_t;
/* The body is whole: posts its plan; right as it was made with. *out is the caller's. Else *why has
 * the words, for as long as the body lives; errors as plan_body_end() and plans_post(). */
must_check enum err plan_told_post(struct server *s, struct plan_body *b,
                                   const struct plan_right *right, struct json_t **out,
                                   const char **why);
/* id 0: all that he may know of. ERR_NOT_FOUND, also of one that he may not know of; ERR_MEMORY. */
must_check enum err plan_told(struct server *s, uint64_t id, const struct plan_right *right,
                              struct json_t **out);
must_check enum err plan_told_drop(struct server *s, uint64_t id, const struct plan_right *right,
                                   struct json_t **out);
/* One line in memory of its own: out->at is the caller's. Takes the value. ERR_MEMORY. */
must_check enum err told_text(struct json_t *value, bool pretty, struct text *out);
/* A time; a key, what is no UTF-8 replaced. NULL: no memory. */
struct json_t *told_time(uint64_t wall_ms);
struct json_t *told_key(const char *key);
/* The same three as texts, for who knows no JSON: *out is the answer or, of a post that failed, the
 * words; out->at is the caller's, or NULL. */
must_check enum err plan_text_post(struct server *s, struct plan_body *b,
                                   const struct plan_right *right, struct text *out);
must_check enum err plan_text(struct server *s, uint64_t id, const struct plan_right *right,
                              struct text *out);
must_check enum err plan_text_drop(struct server *s, uint64_t id, const struct plan_right *right,
                                   struct text *out);

/* ---- start and end ---- */
/* Finds the jobs of before; those that had not ended go on. ERR_MEMORY. */
must_check enum err jobs_open(struct server *s);
void jobs_close(struct server *s);
void jobs_core_drain(struct core *c); /* each saves where it stands and ends, to go on later */
bool jobs_core_idle(const struct core *c);

#endif
