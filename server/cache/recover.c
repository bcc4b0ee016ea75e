/* Start: is the index sound enough to be opened here, and what does it hold.
 *
 * Invariants:
 *  1. A damaged LMDB file can kill who reads it. So a forked child walks it first: every record of
 *     the main tree and of each sub-database with every byte touched, keys in order, counts as
 *     stated, each leaf where its own number says and in one tree only; every entry of the free
 *     list in range, free once, and no leaf. What the child survived we can walk too.
 *  2. The length of the file says nothing: a page that was freed in the transaction that took it is
 *     never written. The walk touches every live page.
 *  3. A record that does not verify, does not fit its object, or claims a slot that is taken is not
 *     loaded and is deleted before the slot can be used.
 *  4. The directory of the highest session number is read first; one that is behind may have missed
 *     a removal, so its objects are doubtful, now and after further restarts, until upstream
 *     confirmed them.
 *
 * Life: before the first thread; recover_check() before journal_open(), recover_load() between that
 * and journal_start().
 * Failure: a child that died, found disorder or was late: the caller moves the index aside. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <fcntl.h>
#include <lmdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/inside.h"

enum {
    CHECK_MS = 10 * 1000,
    CHECK_BYTES_PER_MS = 50 * KIB,   /* a slow disk's reading */
    READ_BYTES = MIB,
    TXN_DELETES = 4000,
    PAGE_STEP = 512,                 /* bytes between touches: no page is smaller */
    FREE_DBI = 0, MAIN_DBI = 1,
    KEY_BYTES_CHUNK = 24, KEY_BYTES_OBJECT = 16,
    AHEAD = 16,                      /* records */
    FIRST_PAGE = 2,                  /* two meta pages stand before all others */
};

/* ================= the child ================= */
static volatile uint8_t sink;

/* Which pages were met. Every page begins with its own number (LMDB 0.9). */
struct census {
    uint8_t *seen;                   /* bit per page */
    size_t last_page, page_bytes;
    const uint8_t *base, *leaf;      /* of the map; where the last record stood */
};

/* false: met before, or out of range. */
static bool meet(struct census *c, size_t page)
{
    if (page < FIRST_PAGE || page > c->last_page || (c->seen[page / 8] & 1 << page % 8))
        return false;
    c->seen[page / 8] |= (uint8_t)(1 << page % 8);
    return true;
}

static const uint8_t *page_of(const struct census *c, const void *at)
{
    return (const uint8_t *)at - (uintptr_t)at % c->page_bytes;
}

/* The pages that begin here, which hold so many bytes. */
static bool meet_pages(struct census *c, const uint8_t *first, size_t bytes)
{
    size_t number;

    memcpy(&number, first, sizeof number);
    if (number > c->last_page)
        return false;
    if (!c->base)
        c->base = first - number * c->page_bytes;
    if (first != c->base + number * c->page_bytes)
        return false;
    for (size_t met = 0; met < bytes; met += c->page_bytes)
        if (!meet(c, number++))
            return false;
    return true;
}

/* A record's leaf, and the pages of its own that a long value has. */
static bool meet_record(struct census *c, const MDB_val *key, const MDB_val *value)
{
    const uint8_t *leaf = page_of(c, key->mv_data), *own = page_of(c, value->mv_data);

    if (leaf != c->leaf && !meet_pages(c, leaf, 1))
        return false;
    c->leaf = leaf;
    const uint8_t *end = (const uint8_t *)value->mv_data + value->mv_size;
    return value->mv_size == 0 || own == leaf || meet_pages(c, own, (size_t)(end - own));
}

static void touch(const MDB_val *v)
{
    const uint8_t *at = v->mv_data;

    for (size_t i = 0; i < v->mv_size; i += PAGE_STEP)
        sink = at[i];
    if (v->mv_size > 0)
        sink = at[v->mv_size - 1];
}

/* Sequentially first: the trees in their own order would be a random read each. */
static bool read_file(const char *path)
{
    static uint8_t buffer[READ_BYTES];
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t got = 1;

    if (fd < 0)
        return false;
    while (got > 0)
        got = read(fd, buffer, sizeof buffer);
    close(fd);
    return got == 0;
}

static bool keys_rise(const MDB_val *before, const MDB_val *key)
{
    size_t shorter = min_u64(before->mv_size, key->mv_size);
    int order = memcmp(before->mv_data, key->mv_data, shorter);

    return order < 0 || (order == 0 && before->mv_size < key->mv_size);
}

/* Each record once, in order, as many as the tree says. */
static bool walk_tree(MDB_txn *txn, MDB_dbi dbi, struct census *census)
{
    static uint8_t last_bytes[512];
    MDB_val key, value, last = {0, last_bytes};
    MDB_cursor *cursor;
    MDB_stat stat;
    size_t count = 0;
    int rc;

    if (mdb_stat(txn, dbi, &stat) != 0 || mdb_cursor_open(txn, dbi, &cursor) != 0)
        return false;
    while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        if (key.mv_size > sizeof last_bytes || (count > 0 && !keys_rise(&last, &key)) ||
            count++ > stat.ms_entries || !meet_record(census, &key, &value))
            return false;
        touch(&value);
        memcpy(last_bytes, key.mv_data, key.mv_size);
        last.mv_size = key.mv_size;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND && count == stat.ms_entries;
}

/* One list of free pages: its length, then page numbers, falling. Each in range, none twice. */
static bool free_list_sound(const MDB_val *value, struct census *census)
{
    size_t count, page, before = SIZE_MAX;
    const uint8_t *at = value->mv_data;

    if (value->mv_size < sizeof count)
        return false;
    memcpy(&count, at, sizeof count);
    if (count > value->mv_size / sizeof count - 1)
        return false;
    for (size_t i = 1; i <= count; i++) {
        memcpy(&page, at + i * sizeof page, sizeof page);
        if (page >= before || !meet(census, page))
            return false;
        before = page;
    }
    return true;
}

static bool walk_free(MDB_txn *txn, struct census *census)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    bool sound = true;
    int rc = 0;

    if (mdb_cursor_open(txn, FREE_DBI, &cursor) != 0)
        return false;
    while (sound && (rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0)
        sound = meet_record(census, &key, &value) && free_list_sound(&value, census);
    mdb_cursor_close(cursor);
    return sound && rc == MDB_NOTFOUND;
}

static bool walk_named(MDB_txn *txn, struct census *census)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    char name[64];
    bool sound = true;
    int rc;

    if (mdb_cursor_open(txn, MAIN_DBI, &cursor) != 0)
        return false;
    while (sound && (rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        MDB_dbi dbi;
        sound = key.mv_size < sizeof name;
        if (!sound)
            break;
        memcpy(name, key.mv_data, key.mv_size);
        name[key.mv_size] = '\0';
        sound = mdb_dbi_open(txn, name, 0, &dbi) == 0 && walk_tree(txn, dbi, census);
    }
    mdb_cursor_close(cursor);
    return sound && rc == MDB_NOTFOUND;
}

static bool walk(const char *index, const char *file)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_envinfo info;
    MDB_stat stat;
    MDB_dbi main_dbi;

    if (!read_file(file) || mdb_env_create(&env) != 0 || mdb_env_set_maxdbs(env, 64) != 0)
        return false;
    if (mdb_env_open(env, index, MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0600) != 0 ||
        mdb_env_info(env, &info) != 0)
        return false;
    if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) != 0 ||
        mdb_dbi_open(txn, NULL, 0, &main_dbi) != 0 || mdb_env_stat(env, &stat) != 0)
        return false;
    struct census census = {.seen = mem_take(info.me_last_pgno / 8 + 1),
                            .last_page = info.me_last_pgno,
                            .page_bytes = stat.ms_psize};
    return census.seen && walk_tree(txn, main_dbi, &census) && walk_named(txn, &census) &&
        walk_free(txn, &census);
}

static _Noreturn void child(pid_t parent, const char *index, const char *file, unsigned limit_s)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct rlimit none = {0, 0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    setrlimit(RLIMIT_CORE, &none);
    for (unsigned i = 0; i < ARRAY_COUNT(deadly); i++)
        signal(deadly[i], SIG_DFL);
    /* LMDB tells its broken assertions there; the caller logs one line of ours. */
    int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (quiet >= 0)
        dup2(quiet, STDERR_FILENO);
    alarm(limit_s);                  /* where the parent cannot wait with a limit */
    _exit(getppid() == parent && walk(index, file) ? 0 : 1);
}

bool recover_check(struct directory *d)
{
    char index[4096], file[4096];
    struct stat st;
    pid_t parent = getpid();
    int status = -1;

    snprintf(index, sizeof index, "%s/index", d->path);
    snprintf(file, sizeof file, "%s/index/data.mdb", d->path);
    if (lstat(file, &st) != 0)
        return true; /* a new one */
    int limit_ms = (int)min_u64(CHECK_MS + (uint64_t)st.st_size / CHECK_BYTES_PER_MS, INT32_MAX);
    pid_t pid = fork();
    if (pid == 0) {
        directory_unlock_child(d->cache);
        child(parent, index, file, (unsigned)limit_ms / 1000 + 1);
    }
    if (pid < 0)
        return true; /* as good as without the check */
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    if (fd >= 0 && poll(&end, 1, limit_ms) == 0)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0)
        ;
    if (fd >= 0)
        close(fd);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ================= loading ================= */
struct load {
    struct directory *d;
    bool behind;
    uint64_t objects, chunks, dropped, sequence;
    /* keys of records to delete: KEY_BYTES_CHUNK each, objects first */
    uint8_t *doomed;
    uint32_t doomed_objects, doomed_count, doomed_cap;
};

static uint64_t read_be64(const uint8_t *at)
{
    uint64_t n;

    memcpy(&n, at, sizeof n);
    return be64toh(n);
}

static struct id read_id(const uint8_t *at)
{
    return (struct id){read_be64(at), read_be64(at + 8)};
}

static enum err doom(struct load *l, const MDB_val *key)
{
    l->dropped++;
    if (l->doomed_count == l->doomed_cap) {
        uint32_t cap = l->doomed_cap ? l->doomed_cap * 2 : 1024;
        uint8_t *grown = mem_grow(l->doomed, (size_t)cap * KEY_BYTES_CHUNK);
        if (!grown)
            return ERR_MEMORY;
        l->doomed = grown;
        l->doomed_cap = cap;
    }
    uint8_t *at = l->doomed + (size_t)l->doomed_count++ * KEY_BYTES_CHUNK;
    memset(at, 0, KEY_BYTES_CHUNK);
    memcpy(at, key->mv_data, min_u64(key->mv_size, KEY_BYTES_CHUNK));
    return OK;
}

static enum err load_object(struct load *l, const MDB_val *key, const MDB_val *value)
{
    struct object_record r;
    enum err err = key->mv_size == KEY_BYTES_OBJECT ? OK : ERR_RECORD;

    if (err == OK)
        err = record_object_read(span_make(value->mv_data, value->mv_size), &r);
    if (err == OK) {
        l->sequence = max_u64(l->sequence, r.commit + 1);
        bool doubt = l->behind || r.commit < l->d->doubt_below;
        err = index_load_object(l->d, read_id(key->mv_data), &r, doubt);
    }
    if (err != OK)
        return doom(l, key);
    l->objects++;
    return OK;
}

static enum err load_chunk(struct load *l, const MDB_val *key, const MDB_val *value)
{
    static struct chunk_record r;
    const uint8_t *at = key->mv_data;
    enum err err = key->mv_size == KEY_BYTES_CHUNK ? OK : ERR_RECORD;

    if (err == OK)
        err = record_chunk_read(span_make(value->mv_data, value->mv_size), &r);
    if (err == OK)
        err = index_load_chunk(l->d, read_id(at), read_be64(at + 16), &r);
    if (err != OK)
        return doom(l, key);
    l->chunks++;
    return OK;
}

/* A record that was read and is loaded a little later: meanwhile its places in the tables come into
 * the caches. Both spans stay where they are as long as the transaction. */
struct ahead {
    MDB_val key, value;
};

static struct id object_of(enum journal_db db, const struct ahead *a)
{
    if (db == JOURNAL_OBJECTS)
        return a->key.mv_size == KEY_BYTES_OBJECT ? read_id(a->key.mv_data) : (struct id){0};
    return record_chunk_object(span_make(a->value.mv_data, a->value.mv_size));
}

static void prefetch(struct cache *c, enum journal_db db, const struct ahead *a, bool item)
{
    const uint8_t *key = a->key.mv_data;

    struct id object = object_of(db, a);

    index_prefetch(index_shard(c->object, object), object.b, item);
    if (db != JOURNAL_CHUNKS || a->key.mv_size != KEY_BYTES_CHUNK || item)
        return;
    struct id data_id = read_id(key);
    uint64_t number = read_be64(key + 16);
    index_prefetch(chunk_shard(c, data_id, number), chunk_hash(data_id, number), false);
}

static enum err scan(struct load *l, MDB_txn *txn, enum journal_db db,
                     enum err (*each)(struct load *, const MDB_val *, const MDB_val *))
{
    struct cache *c = l->d->cache;
    struct ahead ahead[AHEAD];
    MDB_cursor *cursor;
    enum err err = OK;
    uint64_t read = 0, done = 0;
    int rc;

    if (mdb_cursor_open(txn, journal_handle(l->d->journal, db), &cursor) != 0)
        return ERR_DISK;
    do {
        struct ahead *a = &ahead[read % AHEAD];
        rc = mdb_cursor_get(cursor, &a->key, &a->value, MDB_NEXT);
        if (rc == 0) {
            prefetch(c, db, a, false);
            read++;
            if (read > AHEAD / 2)
                prefetch(c, db, &ahead[(read - AHEAD / 2) % AHEAD], true);
        }
        for (; err == OK && done < read && (rc != 0 || read - done == AHEAD); done++)
            err = each(l, &ahead[done % AHEAD].key, &ahead[done % AHEAD].value);
    } while (rc == 0 && err == OK);
    mdb_cursor_close(cursor);
    return err != OK ? err : rc == MDB_NOTFOUND ? OK : ERR_DISK;
}

/* Small named values. A damaged one is not deleted but overwritten, once all were read. */
static enum err load_values(struct load *l, MDB_txn *txn)
{
    char mark = STATE_VALUE_MARK;
    MDB_val key = {1, &mark}, value;
    MDB_cursor *cursor;
    bool stale = l->d->session < atomic_load(&l->d->cache->session);

    if (mdb_cursor_open(txn, journal_handle(l->d->journal, JOURNAL_STATE), &cursor) != 0)
        return ERR_DISK;
    int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        struct span name = span_make(key.mv_data, key.mv_size);
        if (name.len == 0 || name.at[0] != STATE_VALUE_MARK)
            break;
        if (state_load(l->d, name, span_make(value.mv_data, value.mv_size), stale) != OK)
            l->dropped++;
    }
    mdb_cursor_close(cursor);
    return rc == 0 || rc == MDB_NOTFOUND ? OK : ERR_DISK;
}

static enum err delete_doomed(struct load *l)
{
    MDB_env *env = journal_env(l->d->journal);
    MDB_txn *txn;

    for (uint32_t from = 0; from < l->doomed_count; from += TXN_DELETES) {
        if (mdb_txn_begin(env, NULL, 0, &txn) != 0)
            return ERR_DISK;
        int rc = 0;
        for (uint32_t i = from; i < l->doomed_count && i < from + TXN_DELETES && rc == 0; i++) {
            bool object = i < l->doomed_objects;
            enum journal_db db = object ? JOURNAL_OBJECTS : JOURNAL_CHUNKS;
            MDB_val key = {.mv_size = object ? KEY_BYTES_OBJECT : KEY_BYTES_CHUNK,
                           .mv_data = l->doomed + (size_t)i * KEY_BYTES_CHUNK};
            rc = mdb_del(txn, journal_handle(l->d->journal, db), &key, NULL);
            rc = rc == MDB_NOTFOUND ? 0 : rc;
        }
        if (rc != 0)
            mdb_txn_abort(txn);
        if (rc != 0 || mdb_txn_commit(txn) != 0)
            return ERR_DISK;
    }
    return OK;
}

/* Tables of the final size: growing them entry by entry would rehash each of them a dozen times. */
static enum err reserve(struct directory *d, MDB_txn *txn)
{
    struct cache *c = d->cache;
    MDB_stat objects, chunks;

    if (mdb_stat(txn, journal_handle(d->journal, JOURNAL_OBJECTS), &objects) != 0 ||
        mdb_stat(txn, journal_handle(d->journal, JOURNAL_CHUNKS), &chunks) != 0)
        return ERR_DISK;
    uint64_t fits = c->index_limit_bytes / sizeof(struct chunk) / CACHE_SHARDS;
    for (unsigned i = 0; i < CACHE_SHARDS; i++) {
        uint64_t before = index_table_bytes(&c->object[i].table) +
            index_table_bytes(&c->chunk[i].table);
        uint64_t o = c->object[i].table.count + min_u64(objects.ms_entries / CACHE_SHARDS, fits);
        uint64_t k = c->chunk[i].table.count + min_u64(chunks.ms_entries / CACHE_SHARDS, fits);
        if (!index_table_reserve(&c->object[i].table, (uint32_t)o) ||
            !index_table_reserve(&c->chunk[i].table, (uint32_t)k))
            return ERR_MEMORY;
        uint64_t after = index_table_bytes(&c->object[i].table) +
            index_table_bytes(&c->chunk[i].table);
        atomic_fetch_add(&c->index_bytes, after - before);
    }
    return OK;
}

static enum err load_all(struct load *l)
{
    MDB_txn *txn;

    if (mdb_txn_begin(journal_env(l->d->journal), NULL, MDB_RDONLY, &txn) != 0)
        return ERR_DISK;
    enum err err = reserve(l->d, txn);
    if (err == OK)
        err = scan(l, txn, JOURNAL_OBJECTS, load_object);
    l->doomed_objects = l->doomed_count;
    if (err == OK)
        err = scan(l, txn, JOURNAL_CHUNKS, load_chunk);
    if (err == OK)
        err = load_values(l, txn);
    mdb_txn_abort(txn);
    return err;
}

enum err recover_load(struct directory *d, bool behind)
{
    struct load l = {.d = d, .behind = behind};
    struct cache *c = d->cache;
    uint64_t began = clock_ms();
    enum err err = load_all(&l);

    if (err == OK)
        err = delete_doomed(&l);
    mem_give(l.doomed);
    if (err != OK)
        return err;
    if (atomic_load(&c->sequence) < l.sequence)
        atomic_store(&c->sequence, l.sequence);
    if (behind)
        d->doubt_below = l.sequence;
    atomic_fetch_add(&d->index_dropped, l.dropped);
    if (l.dropped > 0)
        log_event(EVENT_RECORD, "disk=%s dropped=%llu", log_value(span_of(d->path)),
                  (unsigned long long)l.dropped);
    log_event(EVENT_INDEX_LOADED,
              "disk=%s objects=%llu chunks=%llu dropped=%llu doubtful=%s ms=%llu",
              log_value(span_of(d->path)), (unsigned long long)l.objects,
              (unsigned long long)l.chunks, (unsigned long long)l.dropped,
              behind && l.objects > 0 ? "yes" : "no",
              (unsigned long long)(clock_ms() - began));
    return OK;
}
