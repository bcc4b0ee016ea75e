/* The index of a directory that was absent, read while others are served.
 *
 * Invariants:
 *  1. The map may break under any look at it, and no lock may be held then: so records are copied
 *     first, some at a time, where a fault ends that (fault.c).
 *  2. What is read is what stood there when it was opened; what was recorded since is newer, and
 *     stays.
 *  3. All of it is doubtful: an object that nobody knew is asked about before it is used, chunks of
 *     a generation that is known join it. What is not taken is deleted, so that no record names a
 *     slot that will be another's.
 *  4. Nothing leaves for it: what has no room in cache.index_memory is not taken.
 *
 * Life: join_index() by the directory's thread, between JOURNAL_JOIN and its first use.
 * Failure: a damaged index is lost: what was read of it stays, and a new one is written (return.c).
 * Limits: an object of which no chunk is taken stays until the index is full. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <lmdb.h>

#include "log.h"
#include "server/cache/start.h"

enum {
    COPIES = 64,                     /* records at a time */
    NAME_BYTES_MAX = 511,             /* LMDB's longest */
    COPY_BYTES = 4 * RECORD_BYTES_MAX,
    ROOM_MS = 1000,                  /* for a commit, when much waits */
};

struct joining {                     /* one sub-database */
    struct directory *d;
    unsigned handle;
    MDB_txn *txn;
    MDB_cursor *cursor;
    uint8_t last[NAME_BYTES_MAX];     /* the key before */
    size_t last_len, used;
    struct handed record[COPIES];
    unsigned count;
    char bytes[COPY_BYTES];
};

/* ---- under the eyes of fault.c ---- */
static int begin(void *arg)
{
    struct joining *j = arg;
    int rc = mdb_txn_begin(journal_env(j->d->journal), NULL, MDB_RDONLY, &j->txn);

    return rc == 0 ? mdb_cursor_open(j->txn, j->handle, &j->cursor) : rc;
}

static bool rises(struct joining *j, const MDB_val *key)
{
    if (key->mv_size > sizeof j->last)
        return false;
    int order = memcmp(j->last, key->mv_data, min_u64(j->last_len, key->mv_size));
    bool rises = order < 0 || (order == 0 && j->last_len < key->mv_size);
    memcpy(j->last, key->mv_data, key->mv_size);
    j->last_len = key->mv_size;
    return rises;
}

static struct span keep(struct joining *j, const MDB_val *v)
{
    /* A longer one fails where it is read. */
    struct span kept = span_make(j->bytes + j->used, min_u64(v->mv_size, RECORD_BYTES_MAX));

    if (kept.len > 0)
        memcpy(j->bytes + j->used, v->mv_data, kept.len);
    j->used += kept.len;
    return kept;
}

static int copy(void *arg)
{
    struct joining *j = arg;
    MDB_val key, value;
    int rc = 0;

    j->used = 0;
    for (j->count = 0; j->count < COPIES; j->count++) {
        if (sizeof j->bytes - j->used < RECORD_BYTES_MAX + NAME_BYTES_MAX)
            break;
        rc = mdb_cursor_get(j->cursor, &key, &value, MDB_NEXT);
        if (rc == 0 && !rises(j, &key))
            rc = MDB_CORRUPTED;
        if (rc != 0)
            break;
        j->record[j->count].key = keep(j, &key);
        j->record[j->count].value = keep(j, &value);
    }
    return rc;
}

static int end(void *arg)
{
    struct joining *j = arg;

    mdb_cursor_close(j->cursor);
    mdb_txn_abort(j->txn);
    return 0;
}

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
static void join_copies(struct joining *j, enum err (*each)(struct directory *d,
                                                            const struct handed *h))
{
    struct journal *journal = j->d->journal;

    if (!journal_room(journal))
        (void)journal_wait(journal, journal_mark(journal), clock_ms() + ROOM_MS);
    for (unsigned i = 0; i < j->count; i++)
        j->d->load.dropped += each(j->d, &j->record[i]) != OK;
}

/* ERR_CANCELLED: the thread is to end. ERR_DISK: damaged. */
static enum err join_all(struct directory *d, enum journal_db db,
                         enum err (*each)(struct directory *d, const struct handed *h))
{
    struct joining *j = mem_take(sizeof *j);
    bool stopping = false;

    if (!j)
        return ERR_MEMORY;
    j->d = d;
    j->handle = journal_handle(d->journal, db);
    int rc = fault_run(begin, j, MDB_PANIC);
    while (rc == 0 && !stopping) {
        rc = fault_run(copy, j, MDB_PANIC);
        if (rc == 0 || rc == MDB_NOTFOUND)
            join_copies(j, each);
        stopping = disk_is_stopping(d);
    }
    if (j->cursor && rc != MDB_PANIC && fault_run(end, j, MDB_PANIC) != 0)
        rc = MDB_PANIC;
    mem_give(j);
    return rc == MDB_NOTFOUND ? OK : rc == 0 ? ERR_CANCELLED : ERR_DISK;
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
    atomic_fetch_add(&d->index_dropped, l->dropped);
    log_event(EVENT_INDEX_LOADED,
              "disk=%s objects=%llu chunks=%llu dropped=%llu doubtful=%s ms=%llu",
              log_value(span_of(d->path)), (unsigned long long)l->objects,
              (unsigned long long)l->chunks, (unsigned long long)l->dropped,
              l->objects > 0 ? "yes" : "no", (unsigned long long)(clock_ms() - l->began_ms));
    if (err == ERR_DISK || err == ERR_MEMORY)
        journal_lose(d->journal, "it is damaged");
}
