/* A journal as its files know it: journal.c writes, journal_wait.c is for those who wait,
 * journal_env.c opens and closes what is written.
 *
 * Invariants:
 *  1. Nothing but those includes this header.
 *
 * Life: that of the journal. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_JOURNAL_H
#define HEADPOND_CACHE_JOURNAL_H

#include "server/cache/inside.h"

struct journal {
    struct directory *dir;
    struct MDB_env *env;
    unsigned db[JOURNAL_DBS];
    struct metric_set *metrics;      /* of the writer thread */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t settles;          /* a commit ended, well or not */
    uint64_t made, done;             /* number of the open batch; all below were committed */
    struct batch *open, *busy;       /* under the lock; busy belongs to the writer */
    struct batch batch[2];
    _Atomic uint64_t dirty;
    bool stopping, poked;
    bool settled;                    /* busy is committed, and about to be cleared */
    bool failing;                    /* the last commit failed: told once */
    bool distrust;                   /* until the end: a change was lost before it came here */
    /* env must not be touched any more, what comes is let go; set by the directory's thread, too */
    _Atomic bool lost;
    bool untold;                     /* it is, and nothing on its own disk says so */
    enum journal_order order;        /* for the writer; NONE: it has obeyed, with that result */
    enum err obeyed;
    uint64_t tried;                  /* the session's number that the last commit would write */
    bool ended;                      /* the thread is over */
    _Atomic uint64_t began_ms;       /* the writer has been with the disk since; 0: it is not */
};

/* ---- journal_env.c ---- */
struct MDB_txn;
enum err journal_error(int rc);      /* what LMDB says */
bool journal_is_damage(int rc);      /* and says of its file */
int journal_put_state(struct journal *j, struct MDB_txn *txn, const char *name, uint64_t n);
void journal_leave(struct journal *j); /* as it is: a fault met it */
void journal_shut(struct journal *j);
/* Again, or a new one in the place of a lost one. ERR_DISK; ERR_CHANGED: it is lost. */
must_check enum err journal_enter(struct journal *j, bool new);
/* For JOURNAL_JOIN. */
must_check enum err journal_join(struct journal *j);

/* ---- journal_wait.c ---- */
/* The commit failed: nobody waits for a disk that may never come back. What is not on it is noted
 * beside it. */
void journal_fail_writes(struct journal *j);
/* All that was queued before this commit is on the disk, or the index is lost. */
void journal_settle_writes(struct journal *j);
/* Lost from now on, and behind; noted: the next start knows that by itself. */
void journal_mark_lost(struct journal *j, bool noted);

#endif
