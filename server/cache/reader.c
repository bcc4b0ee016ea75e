/* Records of an index that is open, read while others are served.
 *
 * Invariants:
 *  1. The map may break under any look at it, and no lock may be held then: so records are copied
 *     first, some at a time, where a fault ends that (fault.c).
 *  2. After a fault neither transaction nor cursor is touched again.
 *
 * Life: a struct reader is zeroed but for d and handle; a pass is begin, copies, end. All of it by
 * the directory's thread, which alone has the index closed.
 * Failure: ERR_DISK. What a fault leaves of a transaction is never freed: its index is lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <lmdb.h>

#include "server/cache/start.h"

/* ---- under the eyes of fault.c ---- */
static int begin(void *arg)
{
    struct reader *r = arg;
    int rc = mdb_txn_begin(journal_env(r->d->journal), NULL, MDB_RDONLY, &r->txn);

    return rc == 0 ? mdb_cursor_open(r->txn, r->handle, &r->cursor) : rc;
}

static bool rises(struct reader *r, const MDB_val *key)
{
    if (key->mv_size > sizeof r->last)
        return false;
    int order = memcmp(r->last, key->mv_data, min_u64(r->last_len, key->mv_size));
    bool rises = order < 0 || (order == 0 && r->last_len < key->mv_size);
    memcpy(r->last, key->mv_data, key->mv_size);
    r->last_len = key->mv_size;
    return rises;
}

static struct span keep(struct reader *r, const MDB_val *v)
{
    /* A longer one fails where it is read. */
    struct span kept = span_make(r->bytes + r->used, min_u64(v->mv_size, RECORD_BYTES_MAX));

    if (kept.len > 0)
        memcpy(r->bytes + r->used, v->mv_data, kept.len);
    r->used += kept.len;
    return kept;
}

static int copy(void *arg)
{
    struct reader *r = arg;
    MDB_val key, value;
    int rc = 0;

    r->used = 0;
    for (r->count = 0; r->count < READER_RECORDS; r->count++) {
        if (sizeof r->bytes - r->used < RECORD_BYTES_MAX + sizeof r->last)
            break;
        rc = mdb_cursor_get(r->cursor, &key, &value, MDB_NEXT);
        if (rc == 0 && !rises(r, &key))
            rc = MDB_CORRUPTED;
        if (rc != 0)
            break;
        r->record[r->count] = (struct handed){.key = keep(r, &key), .value = keep(r, &value)};
    }
    return rc;
}

static int end(void *arg)
{
    struct reader *r = arg;

    mdb_cursor_close(r->cursor);
    mdb_txn_abort(r->txn);
    r->cursor = NULL;
    r->txn = NULL;
    return 0;
}

/* So that MDB_NEXT gives what follows `last`, whether or not that is there still. */
static int seek(struct reader *r)
{
    MDB_val key = {r->last_len, r->last}, value;
    int rc = mdb_cursor_get(r->cursor, &key, &value, MDB_SET_RANGE);

    if (rc != 0)
        return rc;
    bool there = key.mv_size == r->last_len && memcmp(key.mv_data, r->last, r->last_len) == 0;
    if (there)
        return 0;
    rc = mdb_cursor_get(r->cursor, &key, &value, MDB_PREV);
    /* Before the first one a new cursor stands. */
    return rc == MDB_NOTFOUND ? mdb_cursor_renew(r->txn, r->cursor) : rc;
}

static int slice(void *arg)
{
    struct reader *r = arg;
    int rc = begin(r);

    r->count = 0;
    if (rc == 0 && r->last_len > 0)
        rc = seek(r);
    if (rc == 0)
        rc = copy(r);
    if (r->cursor)
        (void)end(r);
    else if (r->txn)
        mdb_txn_abort(r->txn);
    r->txn = NULL;
    return rc;
}

struct look {
    struct reader *r;
    struct span key;
};

static int look(void *arg)
{
    struct look *l = arg;
    struct reader *r = l->r;
    MDB_val key = {l->key.len, (void *)(uintptr_t)l->key.at}, value;
    int rc = mdb_txn_begin(journal_env(r->d->journal), NULL, MDB_RDONLY, &r->txn);

    if (rc != 0)
        return rc;
    r->used = r->count = 0;
    rc = mdb_get(r->txn, r->handle, &key, &value);
    if (rc == 0) {
        r->record[0] = (struct handed){.key = l->key, .value = keep(r, &value)};
        r->count = 1;
    }
    mdb_txn_abort(r->txn);
    r->txn = NULL;
    return rc;
}

/* ---- for the thread ---- */
static enum err run(struct reader *r, int (*work)(void *arg), void *arg)
{
    int rc = fault_run(work, arg, MDB_PANIC);

    r->broken = r->broken || rc == MDB_PANIC;
    if (rc > 0 || rc == MDB_READERS_FULL)
        return ERR_BUSY;             /* of the system, which has no memory for a transaction now */
    return rc == 0 ? OK : rc == MDB_NOTFOUND ? ERR_NOT_FOUND : ERR_DISK;
}

enum err reader_begin(struct reader *r)
{
    return run(r, begin, r);
}

enum err reader_copy(struct reader *r)
{
    return run(r, copy, r);
}

enum err reader_end(struct reader *r)
{
    if (r->broken)
        return ERR_DISK;
    return r->cursor ? run(r, end, r) : OK;
}

enum err reader_slice(struct reader *r)
{
    return run(r, slice, r);
}

enum err reader_look(struct reader *r, struct span key)
{
    struct look l = {r, key};

    return run(r, look, &l);
}
