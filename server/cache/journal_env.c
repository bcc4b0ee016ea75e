/* The environment of a journal: LMDB opened, closed, opened again, and what its `state` says.
 *
 * Invariants:
 *  1. Only the writer's thread opens and closes it once that runs; before, main does.
 *  2. Whatever may meet a damaged or missing page of the map runs where a fault ends it (fault.c).
 *     An environment that met one is neither used nor freed any more.
 *  3. An index that was left is taken again only where its last commit is the journal's last one.
 *     One of which the journal knows nothing is taken with all that it holds in doubt, and says so
 *     on the disk before anything else is written there.
 *
 * Life: that of the journal, or shorter: a directory that goes leaves none.
 * Failure: the caller hears whether the disk failed (it may come back) or the index is damaged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <lmdb.h>
#include <stdio.h>

#include "log.h"
#include "server/cache/journal.h"
#include "server/cache/start.h"

/* ---- errors ---- */
enum err journal_error(int rc)
{
    return rc == 0 ? OK : rc == ENOMEM ? ERR_MEMORY : rc == MDB_MAP_FULL ? ERR_FULL : ERR_DISK;
}

/* Errors of the system pass (positive), and we answer a full map; what else the library says it
 * says of its file. */
bool journal_is_damage(int rc)
{
    return rc < 0 && rc != MDB_MAP_FULL;
}

/* A lost environment is neither used nor freed any more; leak checkers find it here. */
void journal_leave(struct journal *j)
{
    static MDB_env *volatile lost_env[2 * CACHE_DIRS_MAX] unused_ok;
    static _Atomic unsigned count;

    lost_env[atomic_fetch_add(&count, 1) % ARRAY_COUNT(lost_env)] = j->env;
    j->env = NULL;
}

/* LMDB's own checks; its default would be to abort. */
static void on_assert(MDB_env *env, const char *what)
{
    (void)env;
    (void)what;
    fault_raise();
}

/* ---- numbers in `state` ---- */
int journal_put_state(struct journal *j, MDB_txn *txn, const char *name, uint64_t n)
{
    uint8_t bytes[STATE_BYTES];
    MDB_val key = {strlen(name), (void *)name}, value = {sizeof bytes, bytes};

    batch_state(n, bytes);
    return mdb_put(txn, j->db[JOURNAL_STATE], &key, &value, 0);
}

static bool read_number(const MDB_val *value, uint64_t *out)
{
    uint8_t bytes[STATE_BYTES];

    if (value->mv_size != sizeof bytes)
        return false;
    uint64_t n;
    memcpy(&n, value->mv_data, sizeof n);
    batch_state(be64toh(n), bytes);
    if (memcmp(bytes, value->mv_data, sizeof bytes) != 0)
        return false;
    *out = be64toh(n);
    return true;
}

static void count_dropped(struct directory *d, struct span name)
{
    atomic_fetch_add(&d->index_dropped, 1);
    log_event(EVENT_RECORD, "disk=%s state=%s", log_value(span_of(d->path)), log_value(name));
}

/* false: not there (*out is 0), or damaged, which is counted. */
static bool get_state(struct directory *d, MDB_txn *txn, MDB_dbi state, const char *name,
                      uint64_t *out)
{
    MDB_val key = {strlen(name), (void *)name}, value;

    *out = 0;
    if (mdb_get(txn, state, &key, &value) != 0)
        return false;
    if (read_number(&value, out))
        return true;
    count_dropped(d, span_of(name));
    return false;
}

/* What bucket writes made doubtful. false: not all could be read. */
static bool get_epochs(struct directory *d, MDB_txn *txn, MDB_dbi state)
{
    const size_t key_len = sizeof EPOCH_NAMES - 1;
    MDB_val key = {key_len, (void *)EPOCH_NAMES}, value;
    MDB_cursor *cursor;
    uint64_t after;
    bool sound = true;

    if (mdb_cursor_open(txn, state, &cursor) != 0)
        return false;
    int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        struct span name = span_make(key.mv_data, key.mv_size);
        if (name.len < key_len || memcmp(name.at, EPOCH_NAMES, key_len) != 0)
            break;
        if (read_number(&value, &after) && epoch_load(d->cache, name, after))
            continue;
        count_dropped(d, name);
        sound = false;
    }
    mdb_cursor_close(cursor);
    return sound && (rc == 0 || rc == MDB_NOTFOUND);
}

/* ---- the environment ---- */
/* Handles of all sub-databases, in one transaction. */
static int open_databases(struct journal *j, unsigned txn_flags, unsigned db_flags)
{
    static const char *const names[JOURNAL_DBS] = {"objects", "chunks", "names", "state"};
    MDB_txn *txn;
    int rc = mdb_txn_begin(j->env, NULL, txn_flags, &txn);

    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < JOURNAL_DBS && rc == 0; i++)
        rc = mdb_dbi_open(txn, names[i], db_flags, &j->db[i]);
    if (rc == 0 && db_flags == MDB_CREATE)
        rc = journal_put_state(j, txn, "format", RECORD_FORMAT);
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

static int open_environment(struct journal *j)
{
    char path[4096];
    int dead;
    int rc = mdb_env_create(&j->env);

    if (rc != 0)
        return rc;
    /* Address space, not disk; grown when it is not enough after all. */
    size_t map = max_u64(64 * GIB, round_up(j->dir->header.slab_bytes / 2, GIB));
    rc = mdb_env_set_mapsize(j->env, map);
    if (rc == 0)
        rc = mdb_env_set_maxdbs(j->env, JOURNAL_DBS);
    snprintf(path, sizeof path, "%s/index", j->dir->path);
    if (rc == 0)
        rc = mdb_env_set_assert(j->env, on_assert);
    if (rc == 0)
        rc = mdb_env_open(j->env, path, MDB_NOTLS, 0600);
    return rc == 0 ? mdb_reader_check(j->env, &dead) : rc;
}

void journal_shut(struct journal *j)
{
    struct fault fault;
    volatile bool closed = false;

    if (!j->env)
        return;
    fault_begin(&fault);
    if (sigsetjmp(fault.back, 1) == 0) {
        mdb_env_close(j->env);
        closed = true;
    }
    fault_end();
    if (closed)
        j->env = NULL;
    else
        journal_leave(j);
}

/* Its last commit is the last one of this journal, or one whose end was not seen. */
static int is_as_left(struct journal *j)
{
    uint64_t session;
    MDB_txn *txn;
    int rc = mdb_txn_begin(j->env, NULL, MDB_RDONLY, &txn);

    if (rc != 0)
        return rc;
    bool known = get_state(j->dir, txn, j->db[JOURNAL_STATE], "session", &session);
    mdb_txn_abort(txn);
    return known && (session == j->dir->session || session == j->tried) ? 0 : MDB_INVALID;
}

struct entering {
    struct journal *j;
    bool new;
};

static int enter(void *arg)
{
    const struct entering *e = arg;
    int rc = open_environment(e->j);

    if (rc == 0)
        rc = open_databases(e->j, e->new ? 0 : MDB_RDONLY, e->new ? MDB_CREATE : 0);
    return rc == 0 && !e->new ? is_as_left(e->j) : rc;
}

/* Behind a failure. */
static void give_back(struct journal *j, int rc)
{
    if (rc == MDB_PANIC)
        journal_leave(j);
    else
        journal_shut(j);
}

enum err journal_enter(struct journal *j, bool new)
{
    struct entering e = {j, new};
    int rc = fault_run(enter, &e, MDB_PANIC);

    if (rc == 0)
        return OK;
    give_back(j, rc);
    if (new || (rc > 0 && rc != ENOENT))
        return ERR_DISK;
    journal_lose(j, "it is not as it was left");
    return ERR_CHANGED;
}

void journal_facts(struct directory *d, MDB_txn *txn, unsigned state, struct index_facts *out)
{
    uint64_t format;
    bool known = get_state(d, txn, state, "format", &format);

    out->doubt_all = d->distrusted;
    out->doubt_all |= !get_state(d, txn, state, "session", &out->session);
    out->doubt_all |= !get_state(d, txn, state, "doubt", &out->doubt_below);
    out->doubt_all |= !get_epochs(d, txn, state);
    (void)get_state(d, txn, state, "members", &out->members);
    out->err = !known || format == RECORD_FORMAT ? OK : /* each record says its format, too */
        format < RECORD_FORMAT ? ERR_OLDER : ERR_NEWER;
    if (out->err == ERR_NEWER)
        snprintf(out->why, sizeof out->why,
                 "%s/index was written by a newer version (format %llu, this one knows %d): "
                 "use that version, or another directory",
                 d->path, (unsigned long long)format, RECORD_FORMAT);
}

/* The child told us the numbers; what is damaged of them is counted here, and the epochs stay. */
static int read_state(struct journal *j)
{
    struct index_facts facts = {0};
    MDB_txn *txn;
    int rc = mdb_txn_begin(j->env, NULL, MDB_RDONLY, &txn);

    if (rc != 0)
        return rc;
    journal_facts(j->dir, txn, j->db[JOURNAL_STATE], &facts);
    mdb_txn_abort(txn);
    return 0;
}

/* One that is there, or a new one; LMDB's errors. */
static int begin(struct journal *j)
{
    int rc = open_environment(j);

    if (rc == 0)
        rc = open_databases(j, MDB_RDONLY, 0);
    if (rc == MDB_NOTFOUND)          /* a new one */
        rc = open_databases(j, 0, MDB_CREATE);
    return rc;
}

static int begin_reading(void *arg)
{
    struct journal *j = arg;
    int rc = begin(j);

    return rc == 0 ? read_state(j) : rc;
}

/* Of room, or of descriptors: that says nothing of the index. */
static bool is_shortage(int rc)
{
    return rc == ENOSPC || rc == EDQUOT || rc == EMFILE || rc == ENFILE;
}

enum err journal_open(struct journal *j, char why[512])
{
    int rc = fault_run(begin_reading, j, MDB_PANIC);

    if (rc != 0)
        snprintf(why, 512, "%s/index: %s", j->dir->path,
                 rc == MDB_PANIC ? "a page of it cannot be used" : mdb_strerror(rc));
    if (rc == MDB_PANIC)
        journal_leave(j);
    return is_shortage(rc) ? ERR_FULL : journal_error(rc);
}

/* ---- an index of which nothing is known ---- */
/* Its small values are of before: it is told those that are true now. */
static int clear_values(struct journal *j, MDB_txn *txn)
{
    char mark = STATE_VALUE_MARK;
    MDB_val key = {1, &mark}, value;
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, j->db[JOURNAL_STATE], &cursor);

    if (rc != 0)
        return rc;
    while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE)) == 0) {
        if (key.mv_size == 0 || *(const char *)key.mv_data != mark)
            break;
        rc = mdb_cursor_del(cursor, 0);
        if (rc != 0)
            break;
        key = (MDB_val){1, &mark};
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

struct joining {
    struct journal *j;
    enum err err;
};

static int join(void *arg)
{
    struct joining *x = arg;
    struct journal *j = x->j;
    struct index_facts facts = {0};
    MDB_txn *txn;
    int rc = begin(j);

    if (rc == 0)
        rc = mdb_txn_begin(j->env, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    journal_facts(j->dir, txn, j->db[JOURNAL_STATE], &facts);
    x->err = facts.err;
    j->dir->session = facts.session;
    atomic_store(&j->dir->doubt_below, UINT64_MAX);
    rc = facts.err == OK ? clear_values(j, txn) : 0;
    if (rc == 0 && facts.err == OK)
        rc = journal_put_state(j, txn, "doubt", UINT64_MAX);
    if (rc == 0 && facts.err == OK)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

enum err journal_join(struct journal *j)
{
    struct joining x = {.j = j};
    int rc = fault_run(join, &x, MDB_PANIC);

    if (rc == 0 && x.err == OK)
        return OK;
    give_back(j, rc);
    if (rc == 0)
        return x.err == ERR_OLDER ? ERR_CHANGED : x.err;
    return journal_is_damage(rc) ? ERR_CHANGED : ERR_DISK;
}
