/* Start: is the index sound enough to be opened here, and what does it hold.
 *
 * Invariants:
 *  1. A damaged LMDB file can kill who reads it. So a forked child reads it: every record of the
 *     main tree and of each sub-database with every byte touched, keys in order, counts as stated,
 *     each leaf where its own number says and in one tree only; every entry of the free list in
 *     range, free once, and no leaf. What the child survived we can open too.
 *  2. On its way the child hands over what it reads (handover.c): first what `state` says of the
 *     directory, then objects, then chunks. They are loaded (load.c) while it goes on, and nothing
 *     of that is used before its last word: an index that is read once is read in half the time.
 *  3. The length of the file says nothing: a page that was freed in the transaction that took it is
 *     never written. The walk touches every live page.
 *  4. A record that does not verify, does not fit its object, or claims a slot that is taken is not
 *     loaded and is deleted before the slot can be used.
 *
 * Life: before the first thread; recover_begin() of all directories, recover_facts(),
 * load_directory() and, between journal_open() and journal_start(), recover_finish() of each.
 * Failure: a child that died, found disorder or was late: the caller moves the index aside and
 * loads anew. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/start.h"

enum {
    CHECK_MS = 10 * 1000,
    CHECK_BYTES_PER_MS = 50 * KIB,   /* a slow disk's reading */
    READ_BYTES = MIB,
    READ_PAGES = READ_BYTES / (4 * KIB),
    TXN_DELETES = 4000,
    PAGE_STEP = 512,                 /* bytes between touches: no page is smaller */
    FREE_DBI = 0, MAIN_DBI = 1,
    FIRST_PAGE = 2,                  /* two meta pages stand before all others */
};

/* ================= the child ================= */
static volatile uint8_t sink;

/* Which pages were met. Every page begins with its own number (LMDB 0.9). */
struct census {
    uint8_t *seen;                   /* bit per page */
    size_t last_page, page_bytes;
    const uint8_t *base, *leaf;      /* of the map; where the last record stood */
    struct handover *to;             /* who gets the records that are met; NULL: nobody */
    enum journal_db db;              /* what they are */
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

/* What is not in memory, sequentially: the trees in their own order would be a random read each. */
static bool read_file(const char *path)
{
    static uint8_t buffer[READ_BYTES], there[READ_PAGES];
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t got = 1;

    if (fd < 0)
        return false;
    for (off_t at = 0; got > 0; at += READ_BYTES) {
        void *map = mmap(NULL, READ_BYTES, PROT_READ, MAP_SHARED, fd, at);
        bool known = map != MAP_FAILED && mincore(map, READ_BYTES, there) == 0;
        if (map != MAP_FAILED)
            munmap(map, READ_BYTES);
        for (unsigned i = 0; i < READ_PAGES && known; i++)
            known = there[i] & 1;
        got = known ? READ_BYTES : pread(fd, buffer, sizeof buffer, at);
    }
    close(fd);
    return got == 0;
}

static bool keys_rise(const MDB_val *before, const MDB_val *key)
{
    size_t shorter = min_u64(before->mv_size, key->mv_size);
    int order = memcmp(before->mv_data, key->mv_data, shorter);

    return order < 0 || (order == 0 && before->mv_size < key->mv_size);
}

static bool hand_over(const struct census *c, const MDB_val *key, const MDB_val *value)
{
    return handover_put(c->to, c->db, span_make(key->mv_data, key->mv_size),
                        span_make(value->mv_data, value->mv_size));
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
        if (census->to && !hand_over(census, &key, &value))
            return false;
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

static bool is_handed_over(const char *name)
{
    return strcmp(name, "objects") == 0 || strcmp(name, "chunks") == 0;
}

/* All sub-databases but those that are handed over, which were walked. */
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
        if (!is_handed_over(name))
            sound = mdb_dbi_open(txn, name, 0, &dbi) == 0 && walk_tree(txn, dbi, census);
    }
    mdb_cursor_close(cursor);
    return sound && rc == MDB_NOTFOUND;
}

/* Those that are loaded; one that is not there is empty. */
static bool walk_handed(MDB_txn *txn, struct census *census, struct handover *to, const char *name,
                        enum journal_db db)
{
    MDB_dbi dbi;
    int rc = mdb_dbi_open(txn, name, 0, &dbi);

    if (rc != 0)
        return rc == MDB_NOTFOUND;
    census->to = to;
    census->db = db;
    bool sound = walk_tree(txn, dbi, census);
    census->to = NULL;
    return sound;
}

static uint64_t entries(MDB_txn *txn, const char *name)
{
    MDB_dbi dbi;
    MDB_stat stat;
    bool there = mdb_dbi_open(txn, name, 0, &dbi) == 0 && mdb_stat(txn, dbi, &stat) == 0;

    return there ? stat.ms_entries : 0;
}

/* What the parent must know before the first record. */
static bool tell_facts(struct directory *d, MDB_txn *txn, struct handover *to)
{
    struct index_facts facts = {.doubt_all = true};
    MDB_dbi state;

    if (mdb_dbi_open(txn, "state", 0, &state) == 0)
        journal_facts(d, txn, state, &facts);
    facts.objects = entries(txn, "objects");
    facts.chunks = entries(txn, "chunks");
    return handover_facts(to, &facts);
}

/* In the child, whose end closes everything. d: NULL for a look without handing over. */
static bool walk(struct directory *d, const char *index, const char *file)
{
    struct handover *to = d ? d->handover : NULL;
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
    return census.seen && walk_tree(txn, main_dbi, &census) && (!to || tell_facts(d, txn, to)) &&
        walk_handed(txn, &census, to, "objects", JOURNAL_OBJECTS) &&
        walk_handed(txn, &census, to, "chunks", JOURNAL_CHUNKS) && walk_named(txn, &census) &&
        walk_free(txn, &census) && (!to || handover_sound(to));
}

static _Noreturn void child(struct directory *d, pid_t parent, const char *index, const char *file)
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
    handover_to_parent(d->handover);
    _exit(getppid() == parent && walk(d, index, file) ? 0 : 1);
}

enum err recover_begin(struct directory *d, char why[512])
{
    char index[4096], file[4096];
    struct stat st;
    pid_t parent = getpid();

    snprintf(index, sizeof index, "%s/index", d->path);
    snprintf(file, sizeof file, "%s/index/data.mdb", d->path);
    if (lstat(file, &st) != 0)
        return OK; /* a new one */
    d->handover = handover_make();
    if (!d->handover)
        return ERR_MEMORY;
    pid_t pid = fork();
    if (pid == 0) {
        directory_unlock_child(d->cache);
        child(d, parent, index, file);
    }
    if (pid < 0) {
        snprintf(why, 512, "%s: no process can be made that checks the index: %s", d->path,
                 strerrordesc_np(errno));
        return ERR_SYSTEM;           /* what was made is freed with the rest */
    }
    handover_from_child(d->handover, pid, CHECK_MS + (uint64_t)st.st_size / CHECK_BYTES_PER_MS);
    return OK;
}

enum err recover_facts(struct directory *d, char why[512])
{
    struct index_facts facts = {.doubt_all = true};

    if (d->handover && !handover_wait_facts(d->handover, &facts))
        return ERR_RECORD;
    d->session = facts.session;
    d->members = facts.members;
    atomic_store(&d->doubt_below, facts.doubt_below);
    d->doubt_all = facts.doubt_all;
    d->load.objects_said = facts.objects;
    d->load.chunks_said = facts.chunks;
    if (facts.err == ERR_NEWER)
        snprintf(why, 512, "%s", facts.why);
    return facts.err == OK || facts.err == ERR_NEWER || facts.err == ERR_OLDER ? facts.err
                                                                               : ERR_RECORD;
}

void recover_give_up(struct directory *d)
{
    if (d->handover)
        (void)handover_end(d->handover);
    d->handover = NULL;
}

/* ================= the rest, with the environment open ================= */
/* Small named values. A damaged one is not deleted but overwritten, once all were read. */
static enum err load_values(struct directory *d, MDB_txn *txn)
{
    char mark = STATE_VALUE_MARK;
    MDB_val key = {1, &mark}, value;
    MDB_cursor *cursor;
    bool stale = d->session < atomic_load(&d->cache->session);

    if (mdb_cursor_open(txn, journal_handle(d->journal, JOURNAL_STATE), &cursor) != 0)
        return ERR_DISK;
    int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        struct span name = span_make(key.mv_data, key.mv_size);
        if (name.len == 0 || name.at[0] != STATE_VALUE_MARK)
            break;
        if (state_load(d, name, span_make(value.mv_data, value.mv_size), stale) != OK)
            d->load.dropped++;
    }
    mdb_cursor_close(cursor);
    return rc == 0 || rc == MDB_NOTFOUND ? OK : ERR_DISK;
}

static int delete_slice(struct directory *d, MDB_txn *txn, enum journal_db db, uint32_t from)
{
    struct doomed *x = db == JOURNAL_OBJECTS ? &d->load.objects_doomed : &d->load.chunks_doomed;
    int rc = 0;

    for (uint32_t i = from; i < x->count && i - from < TXN_DELETES && rc == 0; i++) {
        MDB_val key = {.mv_size = db == JOURNAL_OBJECTS ? sizeof(struct id) : CHANGE_KEY_BYTES,
                       .mv_data = x->key + (size_t)i * CHANGE_KEY_BYTES};
        rc = mdb_del(txn, journal_handle(d->journal, db), &key, NULL);
        rc = rc == MDB_NOTFOUND ? 0 : rc;
    }
    return rc;
}

static enum err delete_doomed(struct directory *d, enum journal_db db, uint32_t count)
{
    MDB_txn *txn;

    for (uint32_t from = 0; from < count; from += TXN_DELETES) {
        if (mdb_txn_begin(journal_env(d->journal), NULL, 0, &txn) != 0)
            return ERR_DISK;
        int rc = delete_slice(d, txn, db, from);
        if (rc != 0)
            mdb_txn_abort(txn);
        if (rc != 0 || mdb_txn_commit(txn) != 0)
            return ERR_DISK;
    }
    return OK;
}

static enum err load_rest(struct directory *d)
{
    MDB_txn *txn;

    if (mdb_txn_begin(journal_env(d->journal), NULL, MDB_RDONLY, &txn) != 0)
        return ERR_DISK;
    enum err err = load_values(d, txn);
    mdb_txn_abort(txn);
    TRY(err);
    TRY(delete_doomed(d, JOURNAL_OBJECTS, d->load.objects_doomed.count));
    return delete_doomed(d, JOURNAL_CHUNKS, d->load.chunks_doomed.count);
}

enum err recover_finish(struct directory *d)
{
    const struct load *l = &d->load;

    TRY(load_rest(d));
    atomic_fetch_add(&d->index_dropped, l->dropped);
    if (l->dropped > 0)
        log_event(EVENT_RECORD, "disk=%s dropped=%llu", log_value(span_of(d->path)),
                  (unsigned long long)l->dropped);
    if (l->no_room > 0)
        log_event(EVENT_CONFIG, "disk=%s note=%s records=%llu", log_value(span_of(d->path)),
                  log_value(span_of("cache.index_memory does not hold this index: "
                                    "what had no room is forgotten")),
                  (unsigned long long)l->no_room);
    log_event(EVENT_INDEX_LOADED,
              "disk=%s objects=%llu chunks=%llu dropped=%llu doubtful=%s ms=%llu",
              log_value(span_of(d->path)), (unsigned long long)l->objects,
              (unsigned long long)l->chunks, (unsigned long long)l->dropped,
              l->behind && l->objects > 0 ? "yes" : "no",
              (unsigned long long)(clock_ms() - l->began_ms));
    load_fini(&d->load);
    return OK;
}
