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
 *  5. Each commit writes the session's number. It grows when a directory falls behind, so that the
 *     directory is known by its lower one.
 *  6. At a proper end both of LMDB's meta pages show everything: whichever of them a reader takes,
 *     damaged or not, nothing is missing.
 *
 * Life: journal_open() (environment), recover_load(), journal_start() (thread), journal_close()
 * (last commit, thread, environment).
 * Failure: a commit that fails is logged and tried every second; what is not durable stays usable
 * until the restart. When too much waits, new records are refused first, removals much later. An
 * index that turns out to be damaged while in use is lost: it is touched no more and moved aside by
 * the next start, its cache goes on without. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/cache.h"
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
    KEY_BYTES = 24,                  /* data id, chunk number */
    NAME_BYTES_MAX = 480,            /* LMDB keys end at 511 */
    STATE_BYTES = 12,
    BATCH_KEEP_BYTES = 4 * MIB,      /* memory kept between batches */
};

struct change {
    uint8_t key[KEY_BYTES];
    uint8_t db, key_len;
    bool remove, sync;               /* sync: names new data */
    uint16_t name_len;               /* of objects: bucket/key, stands before the value */
    uint32_t value_len;
    size_t at;                       /* in batch.bytes */
};
struct batch {
    struct change *change;
    uint32_t count, cap;
    uint32_t *map, map_cap;          /* by key: index + 1 */
    uint8_t *bytes;
    size_t used, room;
    struct limbo *limbo;             /* owned */
    uint64_t first_ms;               /* when its first change came */
};

struct journal {
    struct directory *dir;
    MDB_env *env;
    MDB_dbi db[JOURNAL_DBS];
    struct metric_set *metrics;      /* of the writer thread */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct batch *open, *busy;       /* under the lock; busy belongs to the writer */
    struct batch batch[2];
    _Atomic uint64_t dirty;
    bool stopping, poked;
    bool failing;                    /* the last commit failed: told once */
    bool lost;                       /* env must not be touched any more */
};

/* ---- keys and values ---- */
static void put_be64(uint8_t *out, uint64_t n)
{
    n = htobe64(n);
    memcpy(out, &n, sizeof n);
}

static void key_of(const struct journal_change *x, uint8_t key[KEY_BYTES], uint8_t *len)
{
    put_be64(key, x->id.a);
    put_be64(key + 8, x->id.b);
    put_be64(key + 16, x->object ? 0 : x->number);
    *len = x->object ? 16 : KEY_BYTES;
}

static size_t write_name(const struct object_record *r, uint8_t *out)
{
    size_t bucket = min_u64(r->bucket.len, NAME_BYTES_MAX - 1);
    size_t key = min_u64(r->key.len, NAME_BYTES_MAX - 1 - bucket);

    if (bucket)
        memcpy(out, r->bucket.at, bucket);
    out[bucket] = '/';
    if (key)
        memcpy(out + bucket + 1, r->key.at, key);
    return bucket + 1 + key;
}

static enum err from_lmdb(int rc)
{
    return rc == 0 ? OK : rc == ENOMEM ? ERR_MEMORY : rc == MDB_MAP_FULL ? ERR_FULL : ERR_DISK;
}

/* ---- batches; the lock is held ---- */
static uint64_t key_hash(uint8_t db, const uint8_t *key)
{
    uint64_t a, n;

    /* Ids are hashes already; numbers differ in their lowest bits, which here are the last
     * bytes. */
    memcpy(&a, key, sizeof a);
    memcpy(&n, key + 16, sizeof n);
    return (a + be64toh(n)) * 0x9E3779B97F4A7C15 + db;
}

static uint32_t *map_slot(struct batch *b, uint8_t db, const uint8_t *key)
{
    uint32_t at = (uint32_t)(key_hash(db, key) >> 32) & (b->map_cap - 1);

    for (;; at = (at + 1) & (b->map_cap - 1)) {
        uint32_t index = b->map[at];
        if (index == 0 ||
            (b->change[index - 1].db == db &&
             memcmp(b->change[index - 1].key, key, KEY_BYTES) == 0))
            return &b->map[at];
    }
}

static bool grow_changes(struct batch *b, uint32_t more)
{
    if (b->count + more <= b->cap)
        return true;
    uint32_t cap = b->cap ? b->cap * 2 : 2048;
    struct change *change = mem_grow(b->change, cap * sizeof *change);
    if (!change)
        return false;
    b->change = change;
    uint32_t *map = mem_take(2 * cap * sizeof *map);
    if (!map)
        return false;
    mem_give(b->map);
    b->map = map;
    b->map_cap = 2 * cap;
    b->cap = cap;
    for (uint32_t i = 0; i < b->count; i++)
        *map_slot(b, b->change[i].db, b->change[i].key) = i + 1;
    return true;
}

static bool grow_bytes(struct batch *b, size_t more)
{
    if (b->used + more <= b->room)
        return true;
    size_t room = max_u64(b->room * 2, b->used + more + MIB);
    uint8_t *bytes = mem_grow(b->bytes, room);
    if (!bytes)
        return false;
    b->bytes = bytes;
    b->room = room;
    return true;
}

static enum err add_change(struct batch *b, const struct journal_change *x)
{
    struct change n = {.remove = x->remove, .at = b->used};
    uint8_t *at = b->bytes + b->used;

    n.db = x->object ? JOURNAL_OBJECTS : JOURNAL_CHUNKS;
    key_of(x, n.key, &n.key_len);
    if (x->object)
        n.name_len = (uint16_t)write_name(x->object, at);
    if (!x->remove) {
        at += n.name_len;
        size_t len = x->object ? record_object_write(x->object, at, RECORD_BYTES_MAX)
                               : record_chunk_write(x->chunk, at, RECORD_BYTES_MAX);
        if (len == 0)
            return ERR_TOO_LARGE;
        n.value_len = (uint32_t)len;
        n.sync = !x->object;
    }
    b->used += n.name_len + n.value_len;
    uint32_t *slot = map_slot(b, n.db, n.key);
    if (*slot == 0) {
        b->count++;
        *slot = b->count;
    }
    b->change[*slot - 1] = n;
    return OK;
}

/* What one call may append at most. */
static size_t room_for(const struct journal_change *x, unsigned count)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < count; i++)
        bytes += NAME_BYTES_MAX + (x[i].remove ? 0 : x[i].object ? RECORD_BYTES_MAX : KIB);
    return bytes;
}

enum err journal_queue(struct journal *j, const struct journal_change *change, unsigned count)
{
    enum err err = OK;

    pthread_mutex_lock(&j->lock);
    struct batch *b = j->open;
    bool records = false;
    for (unsigned i = 0; i < count; i++)
        records |= !change[i].remove;
    if (b->count >= (records ? RECORDS_MAX : REMOVALS_MAX) || (records && b->used >= RECORD_ROOM))
        err = ERR_BUSY;
    else if (!grow_changes(b, count) || !grow_bytes(b, room_for(change, count)))
        err = ERR_MEMORY;
    uint32_t before = b->count;
    for (unsigned i = 0; i < count && err == OK; i++)
        err = add_change(b, &change[i]);
    if (before == 0 && b->count > 0)
        b->first_ms = clock_ms();
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
static int put_state(struct journal *j, MDB_txn *txn, const char *name, uint64_t n)
{
    uint8_t bytes[STATE_BYTES];
    MDB_val key = {strlen(name), (void *)name}, value = {sizeof bytes, bytes};

    put_be64(bytes, n);
    uint32_t crc = htole32(crc32c(0, bytes, 8));
    memcpy(bytes + 8, &crc, sizeof crc);
    return mdb_put(txn, j->db[JOURNAL_STATE], &key, &value, 0);
}

/* false: not there (*out is 0), or damaged, which is counted. */
static bool get_state(struct journal *j, MDB_txn *txn, const char *name, uint64_t *out)
{
    MDB_val key = {strlen(name), (void *)name}, value;
    uint64_t n;
    uint32_t crc;

    *out = 0;
    if (mdb_get(txn, j->db[JOURNAL_STATE], &key, &value) != 0)
        return false;
    if (value.mv_size == STATE_BYTES) {
        memcpy(&n, value.mv_data, sizeof n);
        memcpy(&crc, (uint8_t *)value.mv_data + 8, sizeof crc);
        *out = be64toh(n);
        if (le32toh(crc) == crc32c(0, value.mv_data, 8))
            return true;
        *out = 0;
    }
    atomic_fetch_add(&j->dir->index_dropped, 1);
    log_event(EVENT_RECORD, "disk=%s state=%s", log_value(span_of(j->dir->path)), name);
    return false;
}

/* bucket/key and the object's id -> nothing: for listings of what is cached. */
static int apply_name(struct journal *j, MDB_txn *txn, struct batch *b, const struct change *x)
{
    uint8_t bytes[NAME_BYTES_MAX + 16];
    MDB_val key = {x->name_len + 16U, bytes}, empty = {0, NULL};

    memcpy(bytes, b->bytes + x->at, x->name_len);
    memcpy(bytes + x->name_len, x->key, 16);
    int rc = x->remove ? mdb_del(txn, j->db[JOURNAL_NAMES], &key, NULL)
                       : mdb_put(txn, j->db[JOURNAL_NAMES], &key, &empty, 0);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int apply_change(struct journal *j, MDB_txn *txn, struct batch *b, const struct change *x)
{
    MDB_val key = {x->key_len, (void *)x->key};
    MDB_val value = {x->value_len, b->bytes + x->at + x->name_len};
    int rc = x->remove ? mdb_del(txn, j->db[x->db], &key, NULL)
                       : mdb_put(txn, j->db[x->db], &key, &value, 0);

    if (rc == MDB_NOTFOUND)
        rc = 0;
    return rc == 0 && x->name_len > 0 ? apply_name(j, txn, b, x) : rc;
}

static int commit_slice(struct journal *j, struct batch *b, uint32_t from, uint32_t to)
{
    MDB_txn *txn;
    uint64_t session = atomic_load(&j->dir->cache->session);
    int rc = mdb_txn_begin(j->env, NULL, 0, &txn);

    if (rc != 0)
        return rc;
    for (uint32_t i = from; i < to && rc == 0; i++)
        rc = apply_change(j, txn, b, &b->change[i]);
    if (rc == 0)
        rc = put_state(j, txn, "format", RECORD_FORMAT);
    if (rc == 0)
        rc = put_state(j, txn, "session", session);
    if (rc == 0)
        rc = put_state(j, txn, "doubt", j->dir->doubt_below);
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

/* LMDB's own checks; its default would be to abort. */
static void on_assert(MDB_env *env, const char *what)
{
    (void)env;
    (void)what;
    fault_raise();
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

/* Errors of the system pass (positive), and we answer a full map; what else the library says it
 * says of its file. */
static bool is_damage(int rc)
{
    return rc < 0 && rc != MDB_MAP_FULL;
}

/* A lost environment is neither used nor freed any more; leak checkers find it here. */
static void lose(struct journal *j)
{
    static MDB_env *volatile lost_env[2 * CACHE_DIRS_MAX] unused_ok;
    static _Atomic unsigned count;

    lost_env[atomic_fetch_add(&count, 1) % ARRAY_COUNT(lost_env)] = j->env;
    j->lost = true;
    directory_condemn_index(j->dir);
    atomic_fetch_add(&j->dir->index_moved, 1);
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
    atomic_fetch_add(&d->sync_errors, 1);
    log_event(EVENT_DISK_ERROR, "disk=%s op=sync error=%s", log_value(span_of(d->path)),
              log_value(span_of(strerrordesc_np(errno))));
    /* Removed rather than left out: an older record of the chunk may name a slot that is about to
     * be free. */
    for (uint32_t i = 0; i < b->count; i++)
        b->change[i].remove |= b->change[i].sync;
}

static void log_failure(const struct journal *j, int rc)
{
    log_event(is_damage(rc) ? EVENT_INDEX_LOST : EVENT_INDEX_COMMIT, "disk=%s error=%s",
              log_value(span_of(j->dir->path)), log_value(span_of(mdb_strerror(rc))));
}

static void tell_commit(struct journal *j, int rc)
{
    struct cache *c = j->dir->cache;

    if (rc != 0)
        atomic_fetch_add(&j->dir->index_errors, 1);
    if (rc != 0 && !j->failing) {
        log_failure(j, rc);
        /* The others go on without this one: it is behind from now on. */
        atomic_fetch_add(&c->session, 1);
        for (unsigned i = 0; i < c->dir_count; i++)
            if (c->dir[i].journal && c->dir[i].journal != j)
                journal_poke(c->dir[i].journal);
    }
    j->failing = rc != 0;
}

static void batch_clear(struct batch *b)
{
    if (b->room > BATCH_KEEP_BYTES) {
        mem_give(b->bytes);
        b->bytes = NULL;
        b->room = 0;
    }
    if (b->map)
        memset(b->map, 0, b->map_cap * sizeof *b->map);
    b->count = 0;
    b->used = 0;
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
        mem_give(l);
    }
}

/* All of the busy batch, or nothing that counts. */
static bool commit(struct journal *j, bool even_empty)
{
    struct batch *b = j->busy;
    int rc = 0;

    if (!j->lost && (b->count > 0 || even_empty)) {
        uint64_t began = clock_us();
        sync_data(j, b);
        rc = commit_guarded(j, b);
        metric_observe(j->metrics, METRIC_INDEX_COMMIT_SECONDS, 0, 0, clock_us() - began);
        tell_commit(j, rc);
        if (is_damage(rc))
            lose(j);
    }
    if (rc != 0 && !j->lost)
        return false;
    free_limbo(j, b);
    atomic_fetch_sub(&j->dirty, b->count);
    batch_clear(b);
    return true;
}

/* ---- the thread ---- */
static void wait_ms(struct journal *j, uint64_t ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(ms / 1000);
    at.tv_nsec += (long)(ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&j->wake, &j->lock, &at);
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

/* Tries until it works; at the end only a few times. Lock not held. */
static void commit_surely(struct journal *j, bool even_empty)
{
    unsigned tries = 0;

    while (!commit(j, even_empty)) {
        pthread_mutex_lock(&j->lock);
        bool give_up = j->stopping && ++tries >= CLOSE_TRIES;
        if (!give_up)
            wait_ms(j, j->stopping ? COMMIT_EVERY_MS : RETRY_MS);
        pthread_mutex_unlock(&j->lock);
        if (give_up)
            return;
    }
}

static void *writer(void *arg)
{
    struct journal *j = arg;
    bool over = false;

    pthread_setname_np(pthread_self(), "index");
    while (!over) {
        bool more = index_reap(j->dir->cache, REAP_SLICE);
        pthread_mutex_lock(&j->lock);
        j->poked |= more;
        bool even_empty = wait_for_batch(j) &&
            j->dir->session != atomic_load(&j->dir->cache->session);
        struct batch *b = j->open;
        j->open = j->busy;
        j->busy = b;
        over = j->stopping;
        pthread_mutex_unlock(&j->lock);
        commit_surely(j, even_empty);
        cache_tell(j->dir->cache);
    }
    if (!j->failing)
        (void)commit(j, true);       /* the other meta page */
    return NULL;
}

/* ---- start and end ---- */
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
        rc = put_state(j, txn, "format", RECORD_FORMAT);
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

/* Is it ours to read, and what did it miss. */
static enum err read_state(struct journal *j, char why[512])
{
    struct directory *d = j->dir;
    uint64_t format;
    MDB_txn *txn;

    int rc = mdb_txn_begin(j->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return from_lmdb(rc);
    bool known = get_state(j, txn, "format", &format);
    d->doubt_all = !get_state(j, txn, "session", &d->session);
    d->doubt_all |= !get_state(j, txn, "doubt", &d->doubt_below);
    mdb_txn_abort(txn);
    if (known && format < RECORD_FORMAT)
        return ERR_OLDER;
    if (!known || format == RECORD_FORMAT)
        return OK;                   /* each record says its format, too */
    snprintf(why, 512,
             "%s/index was written by a newer version (format %llu, this one knows %d): "
             "use that version, or another directory",
             d->path, (unsigned long long)format, RECORD_FORMAT);
    return ERR_NEWER;
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

enum err journal_open(struct directory *d, char why[512], struct journal **out)
{
    struct journal *j = mem_take(sizeof *j);
    pthread_condattr_t attr;

    if (!j)
        return ERR_MEMORY;
    j->dir = d;
    j->open = &j->batch[0];
    j->busy = &j->batch[1];
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->wake, &attr);
    pthread_condattr_destroy(&attr);
    bool room = true;                /* what a usual batch needs, so that removals find memory */
    for (unsigned i = 0; i < ARRAY_COUNT(j->batch); i++)
        room = room && grow_changes(&j->batch[i], 1) && grow_bytes(&j->batch[i], 1);
    int rc = room ? open_environment(j) : ENOMEM;
    if (rc == 0)
        rc = open_databases(j, MDB_RDONLY, 0);
    if (rc == MDB_NOTFOUND)          /* a new one */
        rc = open_databases(j, 0, MDB_CREATE);
    enum err err = from_lmdb(rc);
    if (rc != 0)
        snprintf(why, 512, "%s/index: %s", d->path, mdb_strerror(rc));
    else
        err = read_state(j, why);
    if (err != OK) {
        journal_close(j);
        return err;
    }
    *out = j;
    return OK;
}

enum err journal_start(struct journal *j)
{
    j->metrics = metric_set_make();
    if (!j->metrics)
        return ERR_MEMORY;
    int rc = commit_guarded(j, j->busy);
    if (is_damage(rc))
        return ERR_DISK;
    if (rc != 0) {                   /* a full disk: the thread goes on trying */
        tell_commit(j, rc);
        j->poked = true;
    }
    if (pthread_create(&j->thread, NULL, writer, j) != 0)
        return ERR_SYSTEM;
    j->running = true;
    return OK;
}

struct MDB_env *journal_env(struct journal *j)
{
    return j->env;
}

unsigned journal_handle(const struct journal *j, enum journal_db db)
{
    return j->db[db];
}

void journal_stop(struct journal *j)
{
    if (!j || !j->running)
        return;
    pthread_mutex_lock(&j->lock);
    j->stopping = true;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->thread, NULL);
    j->running = false;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    journal_stop(j);
    if (j->env && !j->lost)
        mdb_env_close(j->env);
    for (unsigned i = 0; i < ARRAY_COUNT(j->batch); i++) {
        mem_give(j->batch[i].change);
        mem_give(j->batch[i].map);
        mem_give(j->batch[i].bytes);
        while (j->batch[i].limbo) {  /* never committed */
            struct limbo *l = j->batch[i].limbo;
            j->batch[i].limbo = l->next;
            mem_give(l);
        }
    }
    pthread_cond_destroy(&j->wake);
    pthread_mutex_destroy(&j->lock);
    mem_give(j);
}
