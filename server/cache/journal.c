/* The durable copy of one directory's index: LMDB, written by a thread of its own in batches.
 *
 * Invariants:
 *  1. Data before name: the slab is synced before the commit that holds a new chunk record. After a
 *     failed sync the chunk records of that batch are never written: what the disk holds of them is
 *     unknown.
 *  2. Batches are committed in the order of their making, each to the end before the next; a failed
 *     one is kept and tried again. In a batch the last change of a key wins.
 *  3. A slot in limbo goes back after the commit of the batch that was open when it came, hence
 *     after the removal of its record.
 *  4. Every value ends with its CRC32C. No sub-database has duplicates; a transaction holds at most
 *     TXN_CHANGES changes; the map is never written to directly (no MDB_WRITEMAP) and every commit
 *     is synced (no MDB_NOSYNC).
 *  5. Each commit writes the session's number. It grows when a directory falls behind or loses its
 *     index, so that the directory is known by its lower one.
 *  6. At a proper end both of LMDB's meta pages show everything: whichever of them a reader takes,
 *     damaged or not, nothing is missing.
 *
 * Life: journal_make() (it gathers), journal_open() (environment, journal_env.c), journal_start()
 * (thread), journal_close() (last commit, thread, environment). That of a directory which is absent
 * is lost from the beginning, until the directory joins.
 * Failure: a commit that fails is logged and tried every second; what is not durable stays usable
 * until the restart. When too much waits, new records are refused first, removals much later. An
 * index that turns out to be damaged while in use is lost: it is touched no more, its cache goes on
 * without, and a new one is written from memory (return.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <lmdb.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/journal.h"
#include "sign.h"

enum {
    COMMIT_EVERY_MS = 100,
    COMMIT_CHANGES = 1000,           /* commit at once when so many wait */
    RECORDS_MAX = 16 * KIB,          /* waiting changes up to which records are taken */
    REMOVALS_MAX = 256 * KIB,        /* and removals */
    RECORD_ROOM = 32 * MIB,          /* bytes of waiting records */
    TXN_CHANGES = 4000,
    RETRY_MS = 1000,
    IDLE_MS = 1000,
    CLOSE_TRIES = 3,
    REAP_SLICE = 2000,
    NAME_KEY_BYTES = 511,            /* LMDB's longest */
    STOP_LOOK_MS = 50,
    BUSY_DISK_TIMES = 10,            /* a commit may take so much longer than a transfer */
};

/* ---- what waits ---- */
/* Records must come again when there is a new index; nothing else is wanted there. */
static enum err queue_lost(const struct journal_change *change, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (!change[i].remove && (change[i].object || change[i].chunk || change[i].bytes.len > 0))
            return ERR_BUSY;
    return OK;
}

enum err journal_queue(struct journal *j, const struct journal_change *change, unsigned count)
{
    enum err err = OK;

    pthread_mutex_lock(&j->lock);
    if (j->lost) {
        err = queue_lost(change, count);
        pthread_mutex_unlock(&j->lock);
        return err;
    }
    struct batch *b = j->open;
    bool records = false;
    for (unsigned i = 0; i < count; i++)
        records |= !change[i].remove;
    if (b->count >= (records ? RECORDS_MAX : REMOVALS_MAX) || (records && b->used >= RECORD_ROOM))
        err = ERR_BUSY;
    uint32_t before = b->count;
    if (err == OK)
        err = batch_add(b, change, count);
    atomic_fetch_add(&j->dirty, b->count - before);
    if (before == 0 || (before < COMMIT_CHANGES && b->count >= COMMIT_CHANGES))
        pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    return err;
}

bool journal_room(struct journal *j)
{
    return atomic_load(&j->dirty) < RECORDS_MAX;
}

void journal_limbo(struct journal *j, struct limbo *l)
{
    pthread_mutex_lock(&j->lock);
    struct batch *b = j->open;
    l->next = b->limbo;
    b->limbo = l;
    if (!l->next)
        pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

uint64_t journal_dirty(struct journal *j)
{
    return atomic_load(&j->dirty);
}

void journal_poke(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->poked = true;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

/* ---- transactions; the writer's thread, or before it exists ---- */
/* bucket/key and the object's id -> nothing: for listings of what is cached. */
static int apply_name(struct journal *j, MDB_txn *txn, struct batch *b,
                      const struct batch_change *x)
{
    uint8_t bytes[NAME_KEY_BYTES];
    MDB_val key = {x->name_len + 16U, bytes}, empty = {0, NULL};

    memcpy(bytes, b->bytes + x->at, x->name_len);
    memcpy(bytes + x->name_len, x->key, 16);
    int rc = x->remove ? mdb_del(txn, j->db[JOURNAL_NAMES], &key, NULL)
                       : mdb_put(txn, j->db[JOURNAL_NAMES], &key, &empty, 0);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int apply_change(struct journal *j, MDB_txn *txn, struct batch *b,
                        const struct batch_change *x)
{
    MDB_val key = {x->key_len, (void *)x->key};
    MDB_val value = {x->value_len, b->bytes + x->at + x->name_len};
    int rc = x->remove ? mdb_del(txn, j->db[x->db], &key, NULL)
                       : mdb_put(txn, j->db[x->db], &key, &value, 0);

    if (rc == MDB_NOTFOUND)
        rc = 0;
    return rc == 0 && x->name_len > 0 ? apply_name(j, txn, b, x) : rc;
}

/* The number that a commit writes. While doubt that a write did not wait for is still to come, the
 * directory stays behind; and one whose index another thread has just found to be lost. */
static uint64_t session_of(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    bool behind = j->open->owed || j->lost;
    uint64_t session = behind ? j->dir->session : atomic_load(&j->dir->cache->session);
    pthread_mutex_unlock(&j->lock);
    return session;
}

static int commit_slice(struct journal *j, struct batch *b, uint32_t from, uint32_t to)
{
    MDB_txn *txn;
    uint64_t session = session_of(j);
    int rc = j->env ? mdb_txn_begin(j->env, NULL, 0, &txn) : ENOTCONN;

    if (rc != 0)
        return rc;
    j->tried = session;
    for (uint32_t i = from; i < to && rc == 0; i++)
        rc = apply_change(j, txn, b, &b->change[i]);
    if (rc == 0)
        rc = journal_put_state(j, txn, "format", RECORD_FORMAT);
    if (rc == 0)
        rc = journal_put_state(j, txn, "session", session);
    if (rc == 0)
        rc = journal_put_state(j, txn, "members", atomic_load(&j->dir->cache->members));
    if (rc == 0)
        rc = journal_put_state(j, txn, "doubt", atomic_load(&j->dir->doubt_below));
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    rc = mdb_txn_commit(txn);
    if (rc == 0)
        j->dir->session = session;
    return rc;
}

static int commit_changes(struct journal *j, struct batch *b)
{
    uint32_t from = 0;
    int rc = 0;

    do {
        uint32_t to = (uint32_t)min_u64(from + TXN_CHANGES, b->count);
        rc = commit_slice(j, b, from, to);
        MDB_envinfo info;
        if (rc == MDB_MAP_FULL && mdb_env_info(j->env, &info) == 0) {
            rc = mdb_env_set_mapsize(j->env, info.me_mapsize * 2);
            if (rc == 0)
                continue;
        }
        from = to;
    } while (rc == 0 && from < b->count);
    return rc;
}

static int commit_guarded(struct journal *j, struct batch *b)
{
    volatile int rc = MDB_PANIC;
    struct fault fault;

    fault_begin(&fault);
    if (sigsetjmp(fault.back, 1) == 0)
        rc = commit_changes(j, b);
    fault_end();
    return rc;
}

void journal_lose(struct journal *j, const char *why)
{
    if (why) {
        atomic_fetch_add(&j->dir->index_errors, 1);
        log_event(EVENT_INDEX_LOST, "disk=%s error=%s", log_value(span_of(j->dir->path)),
                  log_value(span_of(why)));
    }
    journal_mark_lost(j, directory_condemn_index(j->dir));
    disk_ask(j->dir);
}

/* Syncs the data that the batch names. If that fails, its chunk records must not be written. */
static void sync_data(struct journal *j, struct batch *b)
{
    struct directory *d = j->dir;
    bool needed = false;

    for (uint32_t i = 0; i < b->count; i++)
        needed |= b->change[i].sync;
    if (!needed || fdatasync(d->slab_fd) == 0)
        return;
    int error = errno;
    atomic_fetch_add(&d->sync_errors, 1);
    log_event(EVENT_DISK_ERROR, "disk=%s op=sync error=%s", log_value(span_of(d->path)),
              log_value(span_of(strerrordesc_np(error))));
    if (error != ENOSPC && error != EDQUOT)
        disk_error(d);
    /* Removed rather than left out: an older record of the chunk may name a slot that is about to
     * be free. */
    for (uint32_t i = 0; i < b->count; i++)
        b->change[i].remove |= b->change[i].sync;
}

static void log_failure(const struct journal *j, int rc)
{
    log_event(journal_is_damage(rc) ? EVENT_INDEX_LOST : EVENT_INDEX_COMMIT, "disk=%s error=%s",
              log_value(span_of(j->dir->path)), log_value(span_of(mdb_strerror(rc))));
}

static void tell_failure(struct journal *j, int rc)
{
    atomic_fetch_add(&j->dir->index_errors, 1);
    if (!j->failing) {
        log_failure(j, rc);
        journal_fall_behind(j);
    }
    journal_fail_writes(j);
}

/* No record names those slots any more. */
static void free_limbo(struct journal *j, struct batch *b)
{
    struct directory *d = j->dir;

    while (b->limbo) {
        struct limbo *l = b->limbo;
        b->limbo = l->next;
        space_give(d->space, l->slot);
        atomic_fetch_sub(&d->limbo_bytes, space_class_bytes(l->slot.class_));
        cells_give(d->cache->cells, l, l->bytes);
    }
}

/* All of the busy batch, or nothing that counts. */
static bool commit(struct journal *j, bool even_empty)
{
    struct batch *b = j->busy;
    int rc = 0;

    if (!j->lost && (b->count > 0 || even_empty)) {
        uint64_t began = clock_us();
        atomic_store(&j->began_ms, began / 1000);
        if (j->env)                  /* else its files are closed: nobody refused anything */
            sync_data(j, b);
        rc = commit_guarded(j, b);
        metric_observe(j->metrics, METRIC_INDEX_COMMIT_SECONDS, 0, 0, clock_us() - began);
        if (rc != 0)
            tell_failure(j, rc);
        if (journal_is_damage(rc)) {
            journal_leave(j);
            journal_lose(j, NULL);
        }
    }
    if (rc == 0 || j->lost)
        journal_settle_writes(j);
    atomic_store(&j->began_ms, 0);
    if (rc != 0 && !j->lost)
        return false;
    free_limbo(j, b);
    atomic_fetch_sub(&j->dirty, b->count);
    batch_clear(b);
    return true;
}

/* What was gathered is to be committed; lock held, or before the thread. */
static void swap_batches(struct journal *j)
{
    struct batch *b = j->open;

    j->open = j->busy;
    j->busy = b;
    j->settled = false;
    j->made++;
}

/* What was gathered for a lost index. */
static void let_go(struct journal *j)
{
    must(j->lost);
    (void)commit(j, false);
    pthread_mutex_lock(&j->lock);
    swap_batches(j);
    pthread_mutex_unlock(&j->lock);
    (void)commit(j, false);
}

/* What the directory's thread wants. The writer, between two commits. */
static void obey(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    enum journal_order order = j->order;
    pthread_mutex_unlock(&j->lock);
    enum err err = OK;
    bool renew = order == JOURNAL_RENEW;

    if (order == JOURNAL_NO_ORDER)
        return;
    if (renew)
        let_go(j);
    atomic_store(&j->began_ms, clock_ms());
    if (order == JOURNAL_LEAVE)
        journal_shut(j);
    else if (!j->env && order == JOURNAL_JOIN)
        err = journal_join(j);
    else if (!j->env)
        err = journal_enter(j, renew);
    atomic_store(&j->began_ms, 0);
    pthread_mutex_lock(&j->lock);
    if (renew && err == OK)
        j->lost = j->distrust = j->untold = false;
    j->order = JOURNAL_NO_ORDER;
    j->obeyed = err;
    pthread_cond_broadcast(&j->settles);
    pthread_mutex_unlock(&j->lock);
}

/* ---- the thread ---- */
static void wait_ms(struct journal *j, uint64_t ms)
{
    cache_wait(&j->wake, &j->lock, ms);
}

/* Until there is a batch worth a commit, or the end; true: even an empty one. Lock held. */
static bool wait_for_batch(struct journal *j)
{
    if (!j->stopping && j->open->count == 0 && !j->open->limbo && !j->poked)
        wait_ms(j, IDLE_MS);
    while (!j->stopping && !j->poked && j->open->count > 0 && j->open->count < COMMIT_CHANGES) {
        uint64_t age = clock_ms() - j->open->first_ms;
        if (age >= COMMIT_EVERY_MS)
            break;
        wait_ms(j, COMMIT_EVERY_MS - age);
    }
    bool poked = j->poked;
    j->poked = false;
    return poked;
}

/* Tries until it works; at the end only a few times: false, and nothing that came later may be
 * committed, nor the mark beside it go. Lock not held. */
static bool commit_surely(struct journal *j, bool even_empty)
{
    unsigned tries = 0;

    while (!commit(j, even_empty)) {
        obey(j);
        pthread_mutex_lock(&j->lock);
        bool give_up = j->stopping && ++tries >= CLOSE_TRIES;
        if (!give_up)
            wait_ms(j, j->stopping ? COMMIT_EVERY_MS : RETRY_MS);
        pthread_mutex_unlock(&j->lock);
        if (give_up)
            return false;
    }
    return true;
}

static void *writer(void *arg)
{
    struct journal *j = arg;
    bool over = false, committed = true;

    pthread_setname_np(pthread_self(), "index");
    while (!over && committed) {
        obey(j);
        bool more = index_reap(j->dir->cache, REAP_SLICE);
        uploads_expire(j->dir->cache);
        state_tell(j->dir);
        pthread_mutex_lock(&j->lock);
        j->poked |= more;
        bool even_empty = wait_for_batch(j) &&
            (j->open->writes || j->dir->session != atomic_load(&j->dir->cache->session));
        swap_batches(j);
        over = j->stopping;
        bool distrust = j->distrust;
        pthread_mutex_unlock(&j->lock);
        if (distrust) {
            atomic_store(&j->began_ms, clock_ms());
            directory_distrust(j->dir);
            atomic_store(&j->began_ms, 0);
        }
        committed = commit_surely(j, even_empty);
        cache_tell(j->dir->cache);
    }
    if (committed && !j->failing && j->env)
        (void)commit(j, true);       /* the other meta page */
    pthread_mutex_lock(&j->lock);
    j->ended = true;
    pthread_cond_broadcast(&j->wake);
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* ---- start and end ---- */
struct journal *journal_make(struct directory *d)
{
    struct journal *j = mem_take(sizeof *j);
    pthread_condattr_t attr;

    if (!j)
        return NULL;
    j->dir = d;
    j->lost = directory_is_absent(d);
    j->open = &j->batch[0];
    j->busy = &j->batch[1];
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->wake, &attr);
    pthread_cond_init(&j->settles, &attr);
    pthread_condattr_destroy(&attr);
    bool room = true;
    for (unsigned i = 0; i < ARRAY_COUNT(j->batch); i++)
        room = room && batch_init(&j->batch[i]);
    if (room)
        return j;
    journal_close(j);
    return NULL;
}

static enum err start_writer(struct journal *j)
{
    if (pthread_create(&j->thread, NULL, writer, j) != 0)
        return ERR_SYSTEM;
    j->running = true;
    return OK;
}

enum err journal_start(struct journal *j)
{
    j->metrics = metric_set_make();
    if (!j->metrics)
        return ERR_MEMORY;
    if (j->lost)
        return start_writer(j);
    swap_batches(j);                 /* with what was found missing: the session's number vouches */
    int rc = commit_guarded(j, j->busy);
    if (journal_is_damage(rc))
        return ERR_DISK;
    if (rc != 0) {                   /* a full disk: the thread goes on trying */
        tell_failure(j, rc);
        swap_batches(j);
        j->poked = true;
    } else {
        journal_settle_writes(j);            /* what was distrusted is recorded as doubtful now */
        atomic_fetch_sub(&j->dirty, j->busy->count);
        batch_clear(j->busy);
    }
    return start_writer(j);
}

struct MDB_env *journal_env(struct journal *j)
{
    return j->env;
}

unsigned journal_handle(const struct journal *j, enum journal_db db)
{
    return j->db[db];
}

bool journal_stop(struct journal *j)
{
    if (!j || !j->running)
        return true;
    uint64_t limit_ms = disk_timeout_ms(j->dir);
    pthread_mutex_lock(&j->lock);
    j->stopping = true;
    pthread_cond_broadcast(&j->wake);
    /* As long as the writer gets on. One that hangs is left where it is. */
    if (directory_is_up(j->dir))
        limit_ms *= BUSY_DISK_TIMES;
    while (!j->ended && journal_busy_ms(j) < limit_ms)
        wait_ms(j, STOP_LOOK_MS);
    bool over = j->ended;
    pthread_mutex_unlock(&j->lock);
    if (!over)
        return false;
    pthread_join(j->thread, NULL);
    j->running = false;
    return true;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    must(journal_stop(j));
    journal_shut(j);
    for (unsigned i = 0; i < ARRAY_COUNT(j->batch); i++)
        batch_fini(&j->batch[i]);
    pthread_cond_destroy(&j->wake);
    pthread_cond_destroy(&j->settles);
    pthread_mutex_destroy(&j->lock);
    mem_give(j);
}
