/* Start: is the index sound enough to be opened here, and what does it hold.
 *
 * Invariants:
 *  1. A damaged LMDB file can kill who reads it. So a forked child reads it: every record of the
 *     main tree and of each sub-database with every byte touched, keys in order, counts as stated,
 *     each page where its own number says and in one tree only; every entry of the free list in
 *     range, free once, and in no tree. What the child survived we can open too. What only a writer
 *     looks at is compared with what was read (census.c): a long value's head that claims millions
 *     of pages costs a reader nothing, and who deletes it gives back each of them.
 *  2. On its way the child hands over what it reads (handover.c): first what `state` says of the
 *     directory, then objects, then chunks. They are loaded (load.c) while it goes on, and nothing
 *     of that is used before its last word: an index that is read once is read in half the time.
 *     Threads of the child's read parts of a tree side by side: their keys are ids, so equal parts
 *     of all ids are equal parts of the tree. A leaf counts to who reads its first record.
 *  3. The length of the file says nothing: a page that was freed in the transaction that took it is
 *     never written. The walk touches every live page.
 *  4. A record that does not verify, does not fit its object, or claims a slot that is taken is not
 *     loaded and is deleted before the slot can be used; on a full disk by the first commit, ahead
 *     of what may use the slot.
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
    TXN_DELETES = 4000,
    KEY_BYTES = 512,                 /* no key of LMDB's is longer */
    SIDES_MAX = 4,                   /* threads that read */
    SLICE_BYTES = 32 * MIB,          /* of the file, that one of them reads */
    PAGE_STEP = 512,                 /* bytes between touches: no page is smaller */
    FREE_DBI = 0, MAIN_DBI = 1,
};

/* ================= the child ================= */
static volatile uint8_t sink;

/* Who walks; one per thread. */
struct walker {
    struct census *census;
    const uint8_t *leaf;             /* where the last record stood */
    struct leaves leaves;
    struct handover_writer to;       /* who gets the records that are met */
    enum journal_db db;              /* what they are */
    bool trees;                      /* its records are trees: the main one */
};

static struct span span_of_val(const MDB_val *v)
{
    return span_make(v->mv_data, v->mv_size);
}

/* A record's leaf, and the pages of its own that a long value has. */
static bool meet_record(struct walker *w, const MDB_val *key, const MDB_val *value)
{
    const uint8_t *leaf = census_page_of(w->census, key->mv_data);

    if (leaf != w->leaf && !census_meet_leaf(w->census, leaf))
        return false;
    if (leaf != w->leaf)
        leaves_look_ahead(&w->leaves, leaf, span_of_val(key));
    w->leaf = leaf;
    return census_meet_node(w->census, span_of_val(key), span_of_val(value), w->trees);
}

static void touch(const MDB_val *v)
{
    const uint8_t *at = v->mv_data;

    for (size_t i = 0; i < v->mv_size; i += PAGE_STEP)
        sink = at[i];
    if (v->mv_size > 0)
        sink = at[v->mv_size - 1];
}

/* The file on its way into memory and into the map: threads take slices from front to back. */
struct reading {
    uint8_t *map;
    size_t bytes;
    _Atomic size_t taken;
    _Atomic bool broken;
};

static void *read_slices(void *arg)
{
    struct reading *r = arg;
    size_t at;

    while ((at = atomic_fetch_add(&r->taken, SLICE_BYTES)) < r->bytes && !atomic_load(&r->broken)) {
        size_t bytes = min_u64(r->bytes - at, SLICE_BYTES);
        if (madvise(r->map + at, bytes, MADV_POPULATE_READ) != 0 &&
            (errno == EFAULT || errno == EHWPOISON))
            atomic_store(&r->broken, true);
    }
    return NULL;
}

/* Brings all of the file into memory and into the map, from front to back: the trees in their own
 * order would be a random read, or a fault, for each page. Of a file that is in memory the map is
 * what takes time, and nothing can be handed over before: so all processors make it. false: it
 * cannot be read. */
static bool read_file(const struct census *c, const char *path)
{
    pthread_t thread[SIDES_MAX];
    unsigned made = 0;
    struct stat st;

    if (lstat(path, &st) != 0)
        return false;
    struct reading r = {.map = (uint8_t *)(uintptr_t)c->base,
                        .bytes = min_u64((uint64_t)st.st_size,
                                         (c->last_page + 1) * c->page_bytes)};
    if (!r.map)
        return true;                 /* there is no page */
    unsigned wanted = (unsigned)min_u64(load_threads(r.bytes / c->page_bytes), SIDES_MAX);
    (void)madvise(r.map, r.bytes, MADV_SEQUENTIAL);
    while (made + 1 < wanted && pthread_create(&thread[made], NULL, read_slices, &r) == 0)
        made++;
    (void)read_slices(&r);
    while (made > 0)
        pthread_join(thread[--made], NULL);
    (void)madvise(r.map, r.bytes, MADV_NORMAL);
    return !atomic_load(&r.broken);
}

static bool keys_rise(const MDB_val *before, const MDB_val *key)
{
    size_t shorter = min_u64(before->mv_size, key->mv_size);
    int order = memcmp(before->mv_data, key->mv_data, shorter);

    return order < 0 || (order == 0 && before->mv_size < key->mv_size);
}

/* Of a chunk whose CRCs a start leaves behind (sums.c) the head: the rest is four fifths of what
 * would be fetched, copied and read, for nothing. What is not sound goes as it is: the loading
 * thread judges. */
static bool hand_over(struct walker *w, const MDB_val *key, const MDB_val *value)
{
    struct handed r = {span_of_val(key), span_of_val(value), false};
    uint32_t bytes;

    if (w->db == JOURNAL_CHUNKS && record_chunk_verify(r.value, &bytes) == OK &&
        chunk_sums_size(bytes) > 0) {
        r.value.len = RECORD_CHUNK_HEAD_BYTES;
        r.verified = true;
    }
    return handover_put(&w->to, w->db, &r);
}

/* ---- a tree, or a part of it ---- */
struct part {
    unsigned number, of;             /* of equal parts of all keys */
    size_t count;                    /* records that were met in it */
};

/* Where that part begins; the one behind the last begins nowhere. */
static MDB_val part_begin(const struct part *p, unsigned number, uint64_t *first)
{
    *first = htobe64(UINT64_MAX / p->of * number);
    return (MDB_val){sizeof *first, first};
}

/* The first record of the part. *last: the one before it, or left as it is. */
static int seek(struct walker *w, MDB_cursor *cursor, const struct part *p, MDB_val *key,
                MDB_val *value, MDB_val *last)
{
    MDB_val before, unused;
    uint64_t first;

    if (p->number == 0)
        return mdb_cursor_get(cursor, key, value, MDB_FIRST);
    *key = part_begin(p, p->number, &first);
    int rc = mdb_cursor_get(cursor, key, value, MDB_SET_RANGE);
    if (rc != 0)
        return rc;
    rc = mdb_cursor_get(cursor, &before, &unused, MDB_PREV);
    if (rc != 0)
        return rc == MDB_NOTFOUND ? mdb_cursor_get(cursor, key, value, MDB_FIRST) : rc;
    *last = before;
    w->leaf = census_page_of(w->census, before.mv_data);
    return mdb_cursor_get(cursor, key, value, MDB_NEXT);
}

/* One record; *last: the one before it, or nothing. */
static bool look_at(struct walker *w, const MDB_val *key, const MDB_val *value, MDB_val *last)
{
    if (key->mv_size > KEY_BYTES || (last->mv_data && !keys_rise(last, key)) ||
        !meet_record(w, key, value))
        return false;
    *last = *key;
    if (!w->to.h || value->mv_size > RECORD_BYTES_MAX) /* else it is copied */
        touch(value);
    return !w->to.h || hand_over(w, key, value);
}

/* Each record of it once, in order. */
static bool walk_part(MDB_txn *txn, MDB_dbi dbi, struct walker *w, struct part *p)
{
    MDB_val key, value, last = {0, NULL}, end = {0, NULL};
    MDB_cursor *cursor;
    uint64_t first;
    bool sound = true;

    if (mdb_cursor_open(txn, dbi, &cursor) != 0)
        return false;
    if (p->number + 1 < p->of)
        end = part_begin(p, p->number + 1, &first);
    int rc = seek(w, cursor, p, &key, &value, &last);
    while (rc == 0 && sound && (!end.mv_data || keys_rise(&key, &end))) {
        sound = look_at(w, &key, &value, &last);
        p->count += sound;
        rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    return sound && (rc == 0 || rc == MDB_NOTFOUND);
}

/* Ordered by bytes, a value for each key: no tree of ours is anything else. */
static bool is_plain(MDB_txn *txn, MDB_dbi dbi)
{
    unsigned flags;

    return mdb_dbi_flags(txn, dbi, &flags) == 0 && flags == 0;
}

/* Each record once, in order, as many as the tree says. */
static bool walk_tree(MDB_txn *txn, MDB_dbi dbi, struct walker *w)
{
    struct part all = {.of = 1};
    MDB_stat stat;

    w->leaf = NULL;
    return is_plain(txn, dbi) && mdb_stat(txn, dbi, &stat) == 0 && walk_part(txn, dbi, w, &all) &&
        all.count == stat.ms_entries;
}

/* All of a tree by so many threads: how many records they met, or UINT64_MAX. */
struct side {
    struct walker walker;
    struct part part;
    MDB_env *env;
    MDB_dbi dbi;
    pthread_t thread;
    bool made, sound;
};

static void *walk_side(void *arg)
{
    struct side *s = arg;
    MDB_txn *txn;

    if (mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn) != 0)
        return NULL;
    s->sound = walk_part(txn, s->dbi, &s->walker, &s->part) && handover_flush(&s->walker.to);
    mdb_txn_abort(txn);
    return NULL;
}

static uint64_t walk_sides(MDB_env *env, MDB_dbi dbi, const struct walker *like, unsigned count)
{
    static struct side side[SIDES_MAX];
    uint64_t met = 0;
    bool sound = true;

    for (unsigned i = 0; i < count; i++) {
        side[i] = (struct side){.walker = *like, .part = {.number = i, .of = count}, .env = env,
                                .dbi = dbi};
        side[i].made = i > 0 && pthread_create(&side[i].thread, NULL, walk_side, &side[i]) == 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (side[i].made)
            pthread_join(side[i].thread, NULL);
        else
            (void)walk_side(&side[i]);
        sound = sound && side[i].sound;
        met += side[i].part.count;
    }
    return sound ? met : UINT64_MAX;
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
        if (page >= before || !census_meet(census, page))
            return false;
        before = page;
    }
    return true;
}

/* Its key is the transaction that freed them: behind the one before, none that is still to come. */
static bool free_key_sound(const MDB_val *key, uint64_t *before, uint64_t last)
{
    uint64_t id;

    if (key->mv_size != sizeof id)
        return false;
    memcpy(&id, key->mv_data, sizeof id);
    bool sound = id > *before && id <= last;
    *before = id;
    return sound;
}

static bool walk_free(MDB_txn *txn, struct walker *w)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    MDB_stat stat;
    uint64_t before = 0, count = 0;
    bool sound = true;
    int rc = 0;

    w->leaf = NULL;
    if (mdb_stat(txn, FREE_DBI, &stat) != 0 || mdb_cursor_open(txn, FREE_DBI, &cursor) != 0)
        return false;
    for (; sound && (rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0; count++)
        sound = free_key_sound(&key, &before, mdb_txn_id(txn)) && meet_record(w, &key, &value) &&
            free_list_sound(&value, w->census);
    mdb_cursor_close(cursor);
    return sound && rc == MDB_NOTFOUND && count == stat.ms_entries;
}

static bool is_handed_over(const char *name)
{
    return strcmp(name, "objects") == 0 || strcmp(name, "chunks") == 0;
}

/* Of each tree that the main one names. */
typedef bool tree_look(MDB_txn *txn, const char *name, MDB_dbi dbi, struct walker *w);

static bool each_tree(MDB_txn *txn, tree_look *look, struct walker *w)
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
        sound = mdb_dbi_open(txn, name, 0, &dbi) == 0 && look(txn, name, dbi, w);
    }
    mdb_cursor_close(cursor);
    return sound && rc == MDB_NOTFOUND;
}

/* Those that are handed over were walked. */
static bool walk_named(MDB_txn *txn, const char *name, MDB_dbi dbi, struct walker *w)
{
    return is_handed_over(name) || walk_tree(txn, dbi, w);
}

/* The number of a tree's root; 0: not known. */
static uint64_t root_of(MDB_txn *txn, MDB_dbi main_dbi, const char *name)
{
    MDB_val key = {strlen(name), (void *)(uintptr_t)name}, value;

    return mdb_get(txn, main_dbi, &key, &value) == 0 ? census_root_in(span_of_val(&value)) : 0;
}

/* Those that are loaded; one that is not there is empty. */
static bool walk_handed(MDB_txn *txn, struct walker *w, const char *name, enum journal_db db)
{
    MDB_dbi dbi, main_dbi;
    MDB_stat stat;
    int rc = mdb_dbi_open(txn, name, 0, &dbi);

    if (rc != 0)
        return rc == MDB_NOTFOUND;
    w->db = db;
    w->leaves = (struct leaves){.map = w->census->base, .page_bytes = w->census->page_bytes,
                                .last_page = w->census->last_page};
    if (mdb_dbi_open(txn, NULL, 0, &main_dbi) == 0)
        w->leaves.root = root_of(txn, main_dbi, name);
    if (!is_plain(txn, dbi) || mdb_stat(txn, dbi, &stat) != 0)
        return false;
    uint64_t count = min_u64((load_threads(stat.ms_entries) + 1) / 2, SIDES_MAX);
    return walk_sides(mdb_txn_env(txn), dbi, w, (unsigned)count) == stat.ms_entries;
}

/* What stands above the leaves of a tree. */
static bool branches_sound(MDB_txn *txn, MDB_dbi dbi, uint64_t root, struct census *census)
{
    MDB_stat stat;

    return mdb_stat(txn, dbi, &stat) == 0 && census_meet_branches(census, root, stat.ms_depth);
}

static bool walk_branches(MDB_txn *txn, const char *name, MDB_dbi dbi, struct walker *w)
{
    return branches_sound(txn, dbi, root_of(txn, MAIN_DBI, name), w->census);
}

/* The same of the two trees that have no name: that of the free list, and the main one. */
static bool walk_nameless(MDB_txn *txn, struct census *census)
{
    uint64_t id = mdb_txn_id(txn);

    return branches_sound(txn, FREE_DBI, census_root(census, id, FREE_DBI), census) &&
        branches_sound(txn, MAIN_DBI, census_root(census, id, MAIN_DBI), census);
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

/* Handles are a transaction's own until it ends well. */
static bool open_handles(MDB_env *env)
{
    static const char *const names[] = {"objects", "chunks"};
    MDB_txn *txn;
    MDB_dbi dbi;

    if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) != 0)
        return false;
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        int rc = mdb_dbi_open(txn, names[i], 0, &dbi);
        if (rc != 0 && rc != MDB_NOTFOUND)
            return false;
    }
    return mdb_txn_commit(txn) == 0;
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

    if (mdb_env_create(&env) != 0 || mdb_env_set_maxdbs(env, 64) != 0)
        return false;
    if (mdb_env_open(env, index, MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0600) != 0 ||
        mdb_env_info(env, &info) != 0 || !open_handles(env))
        return false;
    if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) != 0 ||
        mdb_dbi_open(txn, NULL, 0, &main_dbi) != 0 || mdb_env_stat(env, &stat) != 0)
        return false;
    struct census census = {.seen = mem_take(info.me_last_pgno / 8 + 1),
                            .last_page = info.me_last_pgno,
                            .page_bytes = stat.ms_psize};
    struct walker main = {.census = &census, .trees = true};
    struct walker other = {.census = &census}, handing = {.census = &census, .to = {.h = to}};
    /* The facts first: the parent makes tables of that size while the file is read in. */
    return census.seen && walk_tree(txn, main_dbi, &main) && (!to || tell_facts(d, txn, to)) &&
           read_file(&census, file) && walk_handed(txn, &handing, "objects", JOURNAL_OBJECTS) &&
           walk_handed(txn, &handing, "chunks", JOURNAL_CHUNKS) &&
           each_tree(txn, walk_named, &other) && walk_free(txn, &other) &&
           walk_nameless(txn, &census) && each_tree(txn, walk_branches, &other) &&
           census_is_complete(&census) && (!to || handover_sound(to));
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

void recover_end(struct directory *d)
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

/* The disk takes nothing now: the journal removes them, which goes on trying. */
static enum err queue_doomed(struct directory *d, enum journal_db db, uint32_t from)
{
    static const struct object_record nameless;
    const struct doomed *x =
        db == JOURNAL_OBJECTS ? &d->load.objects_doomed : &d->load.chunks_doomed;

    for (uint32_t i = from; i < x->count; i++) {
        const char *key = (const char *)x->key + (size_t)i * CHANGE_KEY_BYTES;
        struct journal_change change = {.id = key_id(key), .number = key_be64(key + 16),
                                        .object = db == JOURNAL_OBJECTS ? &nameless : NULL,
                                        .remove = true};
        enum err err = journal_queue(d->journal, &change, 1);
        if (err != OK)
            return err == ERR_BUSY ? ERR_DISK : err; /* a new index is better than so many */
    }
    return OK;
}

static enum err delete_doomed(struct directory *d, enum journal_db db, uint32_t count)
{
    MDB_txn *txn;

    for (uint32_t from = 0; from < count; from += TXN_DELETES) {
        if (mdb_txn_begin(journal_env(d->journal), NULL, 0, &txn) != 0)
            return ERR_DISK;
        int rc = delete_slice(d, txn, db, from);
        if (rc == 0)
            rc = mdb_txn_commit(txn);
        else
            mdb_txn_abort(txn);
        if (rc > 0)                  /* of the system; the library's own are negative */
            return queue_doomed(d, db, from);
        if (rc < 0)
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

void recover_tell_dropped(struct directory *d)
{
    uint64_t dropped = d->load.dropped;

    atomic_fetch_add(&d->index_dropped, dropped);
    if (dropped > 0)
        log_event(EVENT_RECORD, "disk=%s dropped=%llu", log_value(span_of(d->path)),
                  (unsigned long long)dropped);
}

enum err recover_finish(struct directory *d)
{
    const struct load *l = &d->load;

    TRY(load_rest(d));
    recover_tell_dropped(d);
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
