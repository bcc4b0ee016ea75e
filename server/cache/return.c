/* What the thread of a directory does about a loss: a file system that went away and is mounted
 * again, an index that failed while it was in use.
 *
 * What is cached stands in RAM, so neither costs it. Only what the next start reads has to be right
 * again: the index on the disk goes on where it was left, or is written anew.
 *
 * Invariants:
 *  1. Files are let go, and taken again, only while the directory is fenced and nothing is under
 *     way on it. Their numbers stay.
 *  2. A directory is taken again only if its header is the one that was opened: its slab is where
 *     our chunks are. Whoever wrote to it meanwhile is found out by checksums.
 *  3. A lost index takes nothing. Before a new one does, no object and no chunk is believed to have
 *     a record in it; then each gets one, and changes follow as ever. So at any moment the new
 *     index holds only what is true.
 *
 * Life: called by the thread of disk.c, between two tests.
 * Failure: what does not work is tried again behind the next test. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/cache/packed.h"

/* ---- a file system that comes back ---- */
static bool leave(struct directory *d)
{
    if (atomic_load(&d->disk.stuck_ops) > 0 || !directory_is_quiet(d))
        return false;
    d->left = true;                  /* also by a writer that obeys when nobody waits any more */
    if (journal_obey(d->journal, JOURNAL_LEAVE) != OK)
        return false;
    directory_let_go(d);
    d->away = true;
    return true;
}

/* The index goes on, or is known to be lost. */
static bool enter(struct directory *d)
{
    enum err err = journal_obey(d->journal, JOURNAL_ENTER);

    d->left = err != OK && err != ERR_CHANGED;
    return !d->left;
}

bool directory_return(struct directory *d)
{
    char why[512];

    if ((!d->away && !leave(d)) || directory_reopen(d, why) != OK)
        return false;
    if (!enter(d)) {
        directory_let_go(d);         /* with its locks, which the next try needs */
        return false;
    }
    d->away = false;
    return true;
}

/* ---- an index that was lost ---- */
static void forget_record(struct cache *c, const struct object *o, unsigned dir)
{
    struct index_shard *stripe = index_shard(c->stripe, o->id);

    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(c, o->id);
    if (e) {
        e->dirs &= ~(1U << dir);
        e->doubted &= ~(1U << dir);
    }
    /* At once with its chunk, so that it can be packed again: all at their full size would not fit
     * into the index. */
    struct chunk *k = e && e->o.size <= PACKED_BYTES_MAX
                          ? chunk_peek(c, e->o.id, e->o.data_id, 0) : NULL;
    if (k && k->slot.dir == dir)
        chunk_unrecord(k);
    pthread_mutex_unlock(&stripe->lock);
}

static void unrecord(struct cache *c, struct chunk *k)
{
    (void)c;
    chunk_unrecord(k);
}

static bool is_recorded_there(struct cache *c, const struct packed *p, const void *arg)
{
    const struct directory *d = arg;

    (void)c;
    return packed_slot(p).dir == d->number && !packed_is_unrecorded(p);
}

static void forget_records(struct directory *d)
{
    struct object *found[CACHE_WALK_MAX];
    struct cache *c = d->cache;

    for (uint64_t at = 0; at != CACHE_WALK_OVER;) {
        unsigned count = walk_wanted(c, &at, found, is_recorded_there, d);
        for (unsigned i = 0; i < count; i++) {
            forget_record(c, found[i], d->number);
            object_leave(c, found[i]);
        }
    }
    for (uint32_t page = 0; page < d->residents.pages; page++)
        residents_visit(d, page, false, unrecord);
}

static bool begin_anew(struct directory *d)
{
    sums_work(d);                    /* who waits for what stood in it waits no longer than this */
    d->left = true;
    /* Not lost any more: it was renewed, but too late for who ordered that. */
    if (journal_obey(d->journal, JOURNAL_LEAVE) != OK || !journal_is_lost(d->journal))
        return false;
    forget_records(d);
    d->condemned = false;
    if (directory_move_index(d, "use") != OK)
        return false;
    state_untold(d);
    d->rewritten = 0;                /* also if it is obeyed when nobody waits any more */
    d->renewed = true;
    d->left = journal_obey(d->journal, JOURNAL_RENEW) != OK;
    return !d->left;
}

bool index_renew(struct directory *d)
{
    if (d->left && !journal_is_lost(d->journal) && !enter(d))
        return true;                 /* it did not go away after all */
    if (journal_is_lost(d->journal) && !begin_anew(d))
        return true;
    for (; d->renewed && d->rewritten < d->residents.pages; d->rewritten++) {
        if (!journal_room(d->journal))
            return true;
        residents_visit(d, d->rewritten, true, chunk_record);
        if (!journal_room(d->journal))   /* which may have refused the last ones of that page */
            return true;
    }
    if (d->renewed)
        log_event(EVENT_INDEX_RENEWED, "disk=%s", log_value(span_of(d->path)));
    d->renewed = false;
    return false;
}
