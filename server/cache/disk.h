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
    /* of blocks that are being written, and how long that takes, as a moving average */
    _Atomic uint64_t writing_bytes, write_us;
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
enum disk_cause disk_cause_of(int error); /* what an errno means for a directory as a whole */
/* A block's write begins; it ended, or nobody waits for it any more; it took so long. Any
 * thread. */
void disk_write_begun(struct directory *d, uint32_t bytes);
void disk_write_ended(struct directory *d, uint32_t bytes);
void disk_write_took(struct directory *d, uint64_t us);
/* Its writes take longer than cache.max_write_delay, and the memory that fills may have is used up;
 * or they have half of it where other disks are up. */
bool disk_is_behind(struct directory *d);
/* Before its thread: it is not to be used. */
void disk_leave_out(struct directory *d, enum disk_cause cause);
bool disk_is_stopping(struct directory *d); /* its thread is to end */
const char *disk_why(enum disk_cause cause);
const char *disk_fix(enum disk_cause cause);

/* ---- absent.c: a directory that cannot be used when the server starts ---- */
/* Do their disks answer, and take a write? All of them at once; in forked children, as a disk that
 * hangs does not let go of who asks. Those that do not are left out. */
void directory_probe_all(struct cache *c);
/* At the start: it goes on without. */
void directory_leave_out(struct directory *d, enum disk_cause cause);
bool directory_has_header(const struct directory *d);   /* else errno tells */
/* Its number among `members`. */
uint64_t directory_member(const struct directory *d);
/* Was it refused for its disk, and not for what an operator has to set right? */
bool directory_disk_failed(const struct directory *d, enum err err);
/* Its file system was mounted somewhere, as its companions know, and is not. */
bool directory_is_unmounted(const struct directory *d);
/* Beside its other files each directory has a list of all, and of where they are mounted: what it
 * says is taken over; all that are in use write it. */
void directory_read_mounts(struct directory *d);
void directory_write_mounts(struct cache *c);
/* The thread of an absent one: takes it in, with what it holds. DISK_SOUND, or why not. */
enum disk_cause directory_join(struct directory *d);

/* ---- join.c: its index, read while others are served ---- */
/* Nothing is evicted for it, and all of it is doubtful. It ends early when the thread is to end. */
void join_index(struct directory *d);

/* ---- sums.c: CRCs that a start left behind ---- */
/* The read's chunk lacks them: the directory's thread reads them first, then t waits no more. They
 * are there, or the chunk has left, or the directory is not up. */
void sums_await(struct transfer *t);
/* Of a chunk that lacks them: it leaves. No stripe held. */
void sums_lose(struct cache *c, struct chunk *k);
/* The directory's thread; true: sums_work() has something to do now. Its lock is held. */
must_check bool sums_wanted(struct directory *d);
void sums_work(struct directory *d);    /* for a fraction of a millisecond, if the disk answers */

/* ---- keeper.c: transfers under way on a core, their deadlines ---- */
struct transfer {
    struct op op;
    struct node node;                /* of those under way, the oldest first; or of the late ones */
    struct chunk *chunk;             /* held by the owner; late: by the keeper as well */
    struct buffer *buffer;           /* the same, unless it is late for CRCs alone (unread) */
    uint64_t made_us, began_us;      /* a write waits in between while many are under way */
    uint64_t ended_us;               /* when its owner saw that it is back; 0: not yet, or late */
    uint32_t off, len;               /* in the chunk */
    struct core *core;               /* its machine's; of a transfer that waits, as the next two: */
    struct message told;
    struct node want;
    bool waits;                      /* for the chunk's CRCs; counts as an op of op.m's */
    bool queued, begun;              /* of a write: it waits; by then the kernel had it */
    bool put_off;                    /* it waits behind a burst */
    bool late;                       /* the owner need not wait for it any more */
    bool unread;                     /* late, and not for its own bytes but for the CRCs */
    bool left;                       /* nor does it know it */
};
/* NULL: none is left, or the directory is not up. */
struct transfer *transfer_make(struct core *core, struct chunk *k, struct buffer *b);
void transfer_begun(struct transfer *t);  /* its op is under way */
/* Of a write, whose off and len are set: begins it for m, now or once others ended; or behind the
 * burst of blocks that it is part of, if it may wait. */
void transfer_write(struct transfer *t, struct machine *m, bool may_wait);
/* Of one that is queued: its owner waits no more for its turn, and nothing of it was written. */
void transfer_take_back(struct transfer *t);
/* Neither the kernel nor the directory's thread has it any more. */
static inline bool transfer_is_back(const struct transfer *t)
{
    return !t->op.busy && !t->waits && !t->queued;
}
/* Its owner sees that it has ended: if it is back in time, this is when. */
void transfer_seen(struct transfer *t);
/* The owner has looked at it for the last time. */
void transfer_leave(struct transfer *t);
/* Of a directory that is not up, any thread: nothing is under way on it, and nothing will be. */
bool directory_is_quiet(const struct directory *d);
enum { KEEPERS = 64 };               /* cores beyond share places */
struct transfers {                   /* of one core, on a line of its own */
    _Atomic uint32_t under_way[16];
} __attribute__((aligned(64)));

#endif
