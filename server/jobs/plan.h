/* Loaders' plans as the files of this folder know them.
 *
 * Invariants: those of jobs.h; nothing outside the folder includes this header.
 * Life: the structs are those of the table (plans.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_JOBS_PLAN_H
#define HEADPOND_JOBS_PLAN_H

#include <pthread.h>

#include "server/jobs/jobs.h"

static const uint32_t PLAN_NONE = UINT32_MAX;
static const uint64_t PLAN_SIZE_UNKNOWN = UINT64_MAX;

/* ---- plan.c: the plan as data (pure) ---- */
struct plan_account {                /* of all plans, those in the making as well */
    _Atomic uint64_t bytes, entries;
};
enum plan_object_state {
    PLANNED_UNKNOWN,                 /* nobody looked yet, or it is being asked for */
    PLANNED_KNOWN,                   /* its size is known */
    PLANNED_MISSING,                 /* the store has no such key */
    PLANNED_FAILED,                  /* it cannot be fetched ahead */
};
struct plan_object {                 /* a key that the plan names */
    struct id id;
    uint64_t size;
    /* where its text stands; in plan.use: its first entry, by stream and place. The last one stands
     * before those of the next object. */
    uint32_t text, first;
    uint16_t len;                    /* of the text: what stands behind the prefix */
    uint8_t state;                   /* enum plan_object_state */
    uint8_t tries;                   /* that failed since a chunk of it came */
    bool asking;                     /* upstream is being asked what it is */
    bool asked;                      /* it was, for this plan */
};
struct plan_entry {
    uint32_t object;
    uint32_t ranges;                 /* its first range; PLAN_NONE: all of it is read */
    uint16_t stream, range_count;
};
struct plan_stream {
    uint32_t start, count;           /* of its entries */
    /* ---- the reader ---- */
    uint32_t at;                     /* position of the entry that he reads, or will; count: over */
    bool begun;                      /* he reads it */
    bool front;                      /* and did so from its first byte on */
    uint64_t offset;                 /* how far he came in it */
    uint64_t left_out;               /* bit n: the entry n + 1 behind him, which he never began */
    uint32_t jump;                   /* position of a read far in front, not believed yet */
    uint32_t late_at;                /* 1 + position of the last entry that was counted as late */
    /* ---- what is fetched for him ---- */
    uint32_t ahead;                  /* position of the next entry to look at, and */
    uint64_t chunk;                  /* the next chunk of it */
    uint64_t distance;               /* bytes between him and that */
    uint64_t again_ms;               /* not before, something failed */
    bool rests;                      /* nothing to do for it in this turn */
    /* ---- in plan.use, of the object that was looked for last: plan_match() ---- */
    uint32_t uses, uses_end;         /* the stream's first, behind its last */
    uint32_t use;                    /* the first that is not behind the reader */
};
struct plan {
    struct plan_facts facts;
    struct plan_account *account;
    struct plan_object *object;
    struct plan_entry *entry;
    struct plan_range *range;        /* an entry's: in order, none touches the next */
    struct plan_stream *stream;
    uint32_t *use;                   /* numbers of entries, by object, then their own order */
    char *text;
    uint32_t *slot;                  /* open addressing, by id: numbers of objects */
    uint32_t object_count, entry_count, range_count, stream_count, text_used, slots;
    uint32_t reader_count;           /* streams with entries that are wanted */
    uint32_t object_room, entry_room, range_room, text_room;
    uint64_t bytes;                  /* charged to the account */
    /* ---- its keys ---- */
    struct server *server;
    char bucket[BUCKET_BYTES_MAX + 1]; /* as its store knows it */
    /* of facts.prefix: as clients know it; what keys begin with */
    struct span client_bucket, prefix;
    uint8_t upstream;
    /* ---- under the table's lock ---- */
    struct plan_view view;
    bool dropped;
    /* ---- the machine's ---- */
    struct plan_view now;            /* what the next view will be */
    unsigned fetches;                /* of it under way */
    unsigned staged_count;           /* chunks that were fetched, and not read yet */
    uint64_t staged_bytes, distance; /* of these; of all its streams together */
    struct plan *before, *after;     /* of its job, by epoch; those that are not over */
    uint64_t since;                  /* entries begun since the one before it was last read */
    uint64_t ended_ms;               /* all its readers are at their ends; 0: not yet */
    bool done_looking;               /* nothing in front of its readers is left to be fetched */
    bool rests;                      /* till the next turn none of its streams may ask */
    uint64_t due_us;                 /* facts.rate: when the next fetch may begin */
    /* sum of the sizes of those objects whose size is known, and */
    uint64_t known_bytes;
    uint32_t known;                  /* how many they are */
    uint64_t read_bytes, rated_bytes, rated_ms; /* by its readers; what the rate was counted from */
};
struct plan_wish {                   /* one entry */
    uint32_t stream;
    struct id id;
    struct span rest;                /* of its key, behind the prefix */
    const struct plan_range *range;  /* NULL, 0: all of it */
    unsigned range_count;
};
struct plan *plan_make(struct plan_account *account);  /* NULL: no memory */
void plan_free(struct plan *p);      /* NULL is fine */
void plan_empty(struct plan *p);     /* it is over: nothing but its view stays */
/* ERR_SYNTAX, ERR_TOO_LARGE (with what all plans hold together), ERR_MEMORY; then it is as it was,
 * or of no use. */
must_check enum err plan_add(struct plan *p, const struct plan_wish *wish);
/* All entries are there, and facts. ERR_SYNTAX: there is none; ERR_TOO_LARGE, ERR_MEMORY. */
must_check enum err plan_settle(struct plan *p);
struct plan_object *plan_find(const struct plan *p, struct id id); /* or NULL */
struct span plan_rest(const struct plan *p, const struct plan_object *o);
/* How many entries, counted position by position over the streams, lie behind all readers. */
uint64_t plan_place(const struct plan *p);

/* ---- plan_cursor.c: where the readers are (pure) ---- */
enum { PLAN_PASSED = 64 };           /* entries behind a reader that are known */
struct plan_match {                  /* what a read may be of a plan */
    uint32_t entry;                  /* its number */
    uint32_t steps;                  /* of a reader to it; 0: he goes on in what he reads */
    uint32_t compared;               /* what it took: entries and ranges that were looked at */
};
/* The entry that is meant, if somebody of the plan reads that. false: it says nothing of the
 * plan. */
bool plan_match(struct plan *p, const struct follow_read *read, struct plan_match *out);
enum plan_heard {
    HEARD_NOTHING,                   /* too far in front to be believed */
    HEARD_ON,                        /* a reader goes on in what he reads */
    HEARD_NEXT,                      /* he began an entry */
};
/* A reader of the plan read that. */
enum plan_heard plan_heard(struct plan *p, const struct follow_read *read,
                           const struct plan_match *match);
/* Something that was left out may still be on its way, in another order. */
bool plan_awaits(const struct plan *p);
/* Behind the last of its entries that may be read: of those behind that, all looked at, nothing
 * can. */
uint32_t plan_stream_end(const struct plan *p, const struct plan_stream *t);
bool plan_is_begun(const struct plan *p); /* by the reader of each stream that has entries */
bool plan_is_in_last(const struct plan *p); /* all streams: their last entries are begun */
bool plan_is_read(const struct plan *p); /* all streams, to these ends */
static inline bool plan_is_over(const struct plan *p) /* for its machine */
{
    return p->now.state == PLAN_READ || p->now.state == PLAN_OVERTAKEN;
}
/* Does the entry at that position of the stream need chunk n of its object? first: the first one at
 * or behind n that it needs. False: none. */
bool plan_entry_wants(const struct plan *p, const struct plan_entry *e, uint64_t n,
                      uint64_t *first);
/* Counts the bytes between the reader and what is looked at next; brings the latter behind him. */
void plan_measure(struct plan *p, struct plan_stream *t);
/* What one of its objects has, as far as it is known. */
uint64_t plan_size_guess(const struct plan *p, const struct plan_object *o);

/* ---- plans.c: the table ---- */
enum { PLAN_SLOTS = 2 * PLANS_MAX }; /* also for those that are dropped and not let go of yet */
struct planner;
struct plans {
    struct server *server;
    pthread_mutex_t lock;
    struct plan *plan[PLAN_SLOTS];
    struct plan_account account;
    uint64_t next_id;
    struct planner *planner;
    struct message msg;
    _Atomic bool sent, runs, stopping;
    _Atomic uint64_t capacity;       /* of the cache, in bytes; 0: not known */
};
/* The key of an object of it, whole, in the memory. */
struct okey plan_key(const struct plan *p, const struct plan_object *o,
                     char memory[KEY_BYTES_MAX + 1]);

/* ---- plan_fetch.c: what is fetched ahead ---- */
enum {
    PLAN_FETCHES = 64,
    PLAN_STAGED_MAX = 4096,          /* of one plan; of all together twice as many, and one each */
};
struct plan_fetch {                  /* an asking, or a chunk */
    struct plan *plan;               /* NULL: free */
    uint32_t entry;                  /* its number */
    bool asks;                       /* upstream, what it is; else a chunk comes */
    uint64_t number;                 /* of the chunk, and */
    uint32_t bytes;                  /* what it has */
    uint64_t begun_ms;
    struct learn learn;
    struct fetch_watch watch;
};
struct plan_staged {                 /* a chunk that was fetched, and was not read yet */
    struct plan *plan;
    uint32_t stream, position, bytes;
    uint64_t number;
};
struct planner {
    struct machine m;
    struct plans *plans;
    struct timer timer;
    bool follows;                    /* what is read is told to us */
    struct plan *plan[PLAN_SLOTS];   /* those of the table that are not over, by id; this turn's */
    unsigned count;
    struct plan_fetch fetch[PLAN_FETCHES];
    struct plan_staged staged[2 * PLAN_STAGED_MAX + PLAN_SLOTS];
    unsigned staged_count;
    uint64_t staged_bytes, window;   /* of them; of one plan at most */
    /* In front of all readers of one plan together this is looked at. What is found is kept, so it
     * is a part of the cache only: were all of it kept, what is wanted first would leave first. */
    uint64_t far;
    uint64_t distance;               /* of all plans together */
    uint64_t compared;               /* for the reads that were heard in this turn */
    uint64_t ticked_ms;
    uint64_t came_bytes, rated_bytes, rated_ms, rate; /* what upstream gave lately */
};
/* Takes what has ended. */
void plan_fetch_reap(struct planner *n);
/* Begins what may be begun. false: there is more to look at, in the next turn; what waits for room
 * or for its rate is none of that. */
bool plan_fetch_more(struct planner *n);
/* Once in a while: what was read makes room, distances are counted anew. */
void plan_fetch_tick(struct planner *n);
/* Leaves those of the plan, or (NULL) all. true: none is under way. */
bool plan_fetch_leave(struct planner *n, const struct plan *p);

/* ---- plan_run.c: the machine that fetches ahead ---- */
must_check struct planner *planner_make(struct plans *plans); /* NULL: no memory */
void planner_free(struct planner *n);
void plans_send(struct plans *plans); /* to its core: look at the table */

#endif
