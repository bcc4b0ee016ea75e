/* The index of a directory that was absent, read while others are served.
 *
 * Invariants:
 *  1. What is read is what stood there when it was opened; what was recorded since is newer, and
 *     stays.
 *  2. All of it is doubtful: an object that nobody knew is asked about before it is used, chunks of
 *     a generation that is known join it. What is not taken is deleted, so that no record names a
 *     slot that will be another's.
 *  3. Nothing leaves for it: what has no room in cache.index_memory is not taken.
 *
 * Life: join_index() by the directory's thread, between JOURNAL_JOIN and its first use.
 * Failure: a damaged index is lost: what was read of it stays, and a new one is written (return.c).
 * Limits: an object of which no chunk is taken stays until the index is full. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/cache/start.h"

enum {
    ROOM_MS = 1000,                  /* for a commit, when much waits */
};

/* ---- records ---- */
/* Of one that was not taken nothing is left; unless it is the record of who is there. */
static void remove_object(struct directory *d, struct id id, const struct object_record *r)
{
    struct journal_change change = {.id = id, .object = r, .remove = true};
    const struct entry *e = entry_of(d->cache, id);

    bool kept = e && e->dirs >> d->number & 1;
    if (!kept && journal_queue(d->journal, &change, 1) != OK)
        journal_distrust(d->journal);
}

static enum err join_object(struct directory *d, const struct handed *h)
{
    struct object_record r;

    if (h->key.len != sizeof(struct id))
        return ERR_RECORD;
    TRY(record_object_read(h->value, &r));
    struct id id = key_id(h->key.at);
    struct index_shard *stripe = index_shard(d->cache->stripe, id);
    d->load.sequence = max_u64(d->load.sequence, r.commit + 1);
    pthread_mutex_lock(&stripe->lock);
    const struct entry *e = entry_of(d->cache, id);
    bool newer = e && e->dirs >> d->number & 1;
    enum err err = newer ? OK : index_load_object(d, id, &r, true);
    if (err != OK)
        remove_object(d, id, &r);
    pthread_mutex_unlock(&stripe->lock);
    d->load.objects += err == OK;
    return err;
}

static enum err join_chunk(struct directory *d, const struct handed *h)
{
    struct index_shard *stripe = index_shard(d->cache->stripe, record_chunk_object(h->value));
    struct index_loaded loaded = {.err = {OK}};

    if (h->key.len != CHANGE_KEY_BYTES)
        return ERR_RECORD;
    struct journal_change change = {.id = key_id(h->key.at), .number = key_be64(h->key.at + 16),
                                    .remove = true};
    pthread_mutex_lock(&stripe->lock);
    index_load_chunks(d, h, 1, &loaded);
    pthread_mutex_unlock(&stripe->lock);
    d->load.chunks += loaded.err[0] == OK;
    d->load.no_room += loaded.err[0] == ERR_MEMORY;
    if (loaded.err[0] != OK && journal_queue(d->journal, &change, 1) != OK)
        journal_distrust(d->journal);
    return loaded.err[0];
}

/* ---- all of them ---- */
static void join_copies(struct reader *r, enum err (*each)(struct directory *d,
                                                           const struct handed *h))
{
    struct journal *journal = r->d->journal;

    if (!journal_room(journal))
        (void)journal_wait(journal, journal_mark(journal), clock_ms() + ROOM_MS);
    for (unsigned i = 0; i < r->count; i++)
        r->d->load.dropped += each(r->d, &r->record[i]) != OK;
}

/* ERR_CANCELLED: the thread is to end. ERR_DISK: damaged. */
static enum err join_all(struct directory *d, enum journal_db db,
                         enum err (*each)(struct directory *d, const struct handed *h))
{
    struct reader *r = mem_take(sizeof *r);
    bool stopping = false;

    if (!r)
        return ERR_MEMORY;
    r->d = d;
    r->handle = journal_handle(d->journal, db);
    enum err err = reader_begin(r);
    while (err == OK && !stopping) {
        err = reader_copy(r);
        if (err == OK || err == ERR_NOT_FOUND)
            join_copies(r, each);
        stopping = disk_is_stopping(d);
    }
    if (reader_end(r) != OK)
        err = ERR_DISK;
    mem_give(r);
    return err == ERR_NOT_FOUND ? OK : err == OK ? ERR_CANCELLED : err;
}

void join_index(struct directory *d)
{
    struct load *l = &d->load;

    *l = (struct load){.began_ms = clock_ms(), .joins = true};
    enum err err = join_all(d, JOURNAL_OBJECTS, join_object);
    if (err == OK)
        err = join_all(d, JOURNAL_CHUNKS, join_chunk);
    move_up(&d->cache->sequence, l->sequence);
    if (err == OK)                   /* else all stays doubtful, or is written anew */
        atomic_store(&d->doubt_below, l->sequence);
    journal_poke(d->journal);
    recover_tell_dropped(d);
    log_event(EVENT_INDEX_LOADED,
              "disk=%s objects=%llu chunks=%llu dropped=%llu doubtful=%s ms=%llu",
              log_value(span_of(d->path)), (unsigned long long)l->objects,
              (unsigned long long)l->chunks, (unsigned long long)l->dropped,
              l->objects > 0 ? "yes" : "no", (unsigned long long)(clock_ms() - l->began_ms));
    /* Records that were not met name slots that others get now: without them, or not at all. */
    if (err == ERR_DISK || err == ERR_MEMORY || err == ERR_BUSY)
        journal_lose(d->journal, "not all of it could be read");
}
