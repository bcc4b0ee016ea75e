/* Who waits for a commit: writes through us, and those who must know that what they said is kept.
 *
 * Invariants:
 *  1. A write waits in the batch that holds what it waits for. It is woken once: when that was
 *     committed, when a commit failed, or when the disk was given up.
 *  2. What a write did not wait for is owed: until it is on the disk the directory is not trusted,
 *     and its commits do not write the newest session's number.
 *
 * Life: the journal's. Failure: a commit that fails, a writer that hangs, or an index that is lost
 * lets everybody go on; then another directory's session number tells that this one is behind. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "server/cache/journal.h"

/* What w must wait for is in this batch: doubt just queued, or a removal under way. */
static bool names(struct batch *b, const struct cache_write *w)
{
    return batch_has_object(b, w->id[0]) || batch_has_object(b, w->id[1]);
}

static bool concerns(struct journal *j, const struct cache_write *w, struct batch **out)
{
    bool whole = w->numbered || w->elsewhere || (j->distrust && !j->dir->distrusted);

    *out = whole || names(j->open, w) ? j->open : j->busy;
    return *out == j->open || (!j->settled && names(j->busy, w));
}

bool journal_await(struct journal *j, struct cache_write *w)
{
    struct batch *b;

    pthread_mutex_lock(&j->lock);
    bool waits = !j->lost && concerns(j, w, &b);
    if (j->untold || (waits && (j->failing || j->stopping))) {
        j->open->owed = true;
        write_failed(w, j->dir->number, j->dir->distrusted);
        waits = false;
    }
    if (waits) {
        w->next = b->writes;
        b->writes = w;
        j->poked = true;
        pthread_cond_signal(&j->wake);
    }
    pthread_mutex_unlock(&j->lock);
    return waits;
}

void journal_distrust(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->distrust = true;
    j->poked = true;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

enum err journal_obey(struct journal *j, enum journal_order order)
{
    uint64_t until_ms = clock_ms() + disk_timeout_ms(j->dir), now_ms;
    bool given = false;

    pthread_mutex_lock(&j->lock);
    while (!(given && j->order == JOURNAL_NO_ORDER) && !j->stopping &&
           (now_ms = clock_ms()) < until_ms) {
        if (j->order == JOURNAL_NO_ORDER) { /* not one of before, that came too late */
            j->order = order;
            given = true;
            j->poked = true;
            pthread_cond_signal(&j->wake);
        }
        cache_wait(&j->settles, &j->lock, until_ms - now_ms);
    }
    enum err err = given && j->order == JOURNAL_NO_ORDER ? j->obeyed : ERR_BUSY;
    pthread_mutex_unlock(&j->lock);
    return err;
}

void journal_found(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->lost = j->distrust = j->untold = false;
    pthread_mutex_unlock(&j->lock);
}

bool journal_is_lost(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    bool lost = j->lost;
    pthread_mutex_unlock(&j->lock);
    return lost;
}

uint64_t journal_mark(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    uint64_t mark = j->made + 1;
    j->poked = true;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    return mark;
}

static struct timespec monotonic(uint64_t ms)
{
    return (struct timespec){.tv_sec = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000};
}

bool journal_wait(struct journal *j, uint64_t mark, uint64_t deadline_ms)
{
    struct timespec until = monotonic(deadline_ms);
    int rc = 0;

    pthread_mutex_lock(&j->lock);
    while (j->done < mark && !j->lost && !j->failing && !j->stopping && rc == 0)
        rc = pthread_cond_timedwait(&j->settles, &j->lock, &until);
    bool saved = j->done >= mark && !j->lost;
    pthread_mutex_unlock(&j->lock);
    return saved;
}

static void wake_writes(struct journal *j, struct cache_write *w, bool failed)
{
    while (w) {
        struct cache_write *next = w->next;
        if (failed)
            write_failed(w, j->dir->number, j->dir->distrusted);
        else
            w->elsewhere = false;
        write_go_on(w);
        w = next;
    }
}

static void release_writes(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    struct cache_write *now = j->busy->writes, *next = j->open->writes;
    j->busy->writes = j->open->writes = NULL;
    j->open->owed = true;
    j->failing = true;
    pthread_cond_broadcast(&j->settles);
    pthread_mutex_unlock(&j->lock);
    wake_writes(j, now, true);
    wake_writes(j, next, true);
}

void journal_fail_writes(struct journal *j)
{
    directory_distrust(j->dir);
    release_writes(j);
}

static void poke_others(struct journal *j)
{
    struct cache *c = j->dir->cache;

    for (unsigned i = 0; i < c->dir_count; i++)
        if (c->dir[i].journal && c->dir[i].journal != j)
            journal_poke(c->dir[i].journal);
}

void journal_fall_behind(struct journal *j)
{
    atomic_fetch_add(&j->dir->cache->session, 1);
    poke_others(j);
}

/* In one step: a commit that is under way here writes the number of before, and who finds the index
 * lost waits for one of the others that writes the new one. */
void journal_mark_lost(struct journal *j, bool noted)
{
    pthread_mutex_lock(&j->lock);
    j->lost = true;
    j->untold = !noted;
    atomic_fetch_add(&j->dir->cache->session, 1);
    pthread_mutex_unlock(&j->lock);
    poke_others(j);
}

void journal_give_up(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    bool again = j->failing || j->lost;
    j->poked = true;                 /* the next commit that works ends it */
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    if (again)
        return;
    journal_fall_behind(j);
    release_writes(j);
}

uint64_t journal_busy_ms(const struct journal *j)
{
    uint64_t began_ms = atomic_load(&j->began_ms), now_ms = clock_ms();

    return began_ms > 0 && now_ms > began_ms ? now_ms - began_ms : 0;
}

void journal_settle_writes(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    struct cache_write *w = j->busy->writes;
    j->busy->writes = NULL;
    j->settled = true;
    j->failing = false;
    j->done = j->made;
    pthread_cond_broadcast(&j->settles);
    bool trust = !j->open->owed && !j->distrust && !j->lost;
    bool failed = j->untold || (j->distrust && !j->dir->distrusted);
    j->poked |= j->open->owed;
    pthread_mutex_unlock(&j->lock);
    if (trust)
        directory_trust(j->dir);
    wake_writes(j, w, failed);
}
