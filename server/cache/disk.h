/* What is believed of disks, done about them, and under way on them: part of inside.h.
 *
 * Invariants:
 *  1. Nothing but inside.h includes this header.
 *
 * Life: struct disk is part of its directory, a transfer of its core's stock. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_DISK_H
#define HEADPOND_CACHE_DISK_H

#include <pthread.h>

#include "server/cache/cache.h"

/* ---- health.c: what is believed of a disk; pure ---- */
enum { HEALTH_ERRORS = 5, HEALTH_SUSPECTS = 3 };
struct health {                      /* zeroed: up */
    enum disk_state state;
    enum disk_cause cause;           /* of a state other than up */
    uint64_t since_ms;
    uint64_t errors[HEALTH_ERRORS], suspects[HEALTH_SUSPECTS]; /* when, the oldest first */
    uint64_t returned_ms;            /* from probation */
    unsigned relapses, fences;       /* fenced again soon after a return; fenced at all */
};
void health_error(struct health *h, uint64_t now_ms);  /* an operation failed */
void health_late(struct health *h, uint64_t now_ms);   /* one hangs, and nothing else comes back */
/* A test ended; hanging: something begun before is still under way. */
void health_tested(struct health *h, enum disk_cause found, bool hanging, uint64_t now_ms);
void health_tick(struct health *h, uint64_t now_ms);   /* time has passed */
void health_fence(struct health *h, enum disk_cause cause, uint64_t now_ms);
void health_readmit(struct health *h, uint64_t now_ms);
uint64_t health_probation_ms(const struct health *h);  /* how long the tests must pass */

struct disk {                        /* of a directory: disk.c */
    pthread_mutex_t lock;            /* of health and what is asked of the thread */
    pthread_cond_t wake;
    struct health health;
    pthread_t thread;
    bool running, stopping, ended;
    bool asked;                      /* for a test now */
    bool busy;                       /* the thread has more to do than to wait */
    _Atomic uint64_t test_began_ms; /* 0: none is under way */
    _Atomic uint64_t late_ops;
    /* under way behind their deadlines, and what memory they keep */
    _Atomic uint32_t stuck_ops;
    _Atomic uint64_t quarantined_bytes;
    _Atomic uint8_t state;           /* health.state, for all to read */
};

/* ---- disk.c: the thread of a directory, and what a change of its state means ---- */
struct directory;
/* The thread that tests it. ERR_SYSTEM. */
must_check enum err disk_start(struct directory *d);
void disk_init(struct directory *d);
/* false: the thread hangs in a system call, and goes on using the directory */
bool disk_stop(struct directory *d);
void disk_error(struct directory *d);   /* an operation failed; any thread, as all below */
void disk_late(struct directory *d);    /* one hangs, and nothing else comes back */
void disk_holds_much(struct directory *d); /* what hangs keeps too much memory */
void disk_returned(struct directory *d);  /* none hangs any more */
void disk_ask(struct directory *d);     /* for a test now */
uint64_t disk_timeout_ms(const struct directory *d); /* after which a disk is said to hang */
const char *disk_why(enum disk_cause cause);
const char *disk_fix(enum disk_cause cause);

/* ---- keeper.c: transfers under way on a core, their deadlines ---- */
struct transfer {
    struct op op;
    struct node node;                /* of those under way, the oldest first; or of the late ones */
    struct chunk *chunk;             /* held by the owner; late: by the keeper as well */
    struct buffer *buffer;           /* the same */
    uint64_t began_us;
    uint32_t off, len;               /* in the chunk */
    bool late;                       /* the owner need not wait for it any more */
    bool left;                       /* nor does it know it */
};
/* NULL: none is left, or the directory is not up. */
struct transfer *transfer_make(struct core *core, struct chunk *k, struct buffer *b);
void transfer_begun(struct transfer *t);  /* its op is under way */
/* The owner has looked at it for the last time. */
void transfer_leave(struct transfer *t);
/* Of a directory that is not up, any thread: nothing is under way on it, and nothing will be. */
bool directory_is_quiet(const struct directory *d);
enum { KEEPERS = 64 };               /* cores beyond share places */
struct transfers {                   /* of one core, on a line of its own */
    _Atomic uint32_t under_way[16];
} __attribute__((aligned(64)));

#endif
