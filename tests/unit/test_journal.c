/* The journal when the disk does not do as it is told: failed syncs, failed commits, a full map. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include <lmdb.h>
#include <signal.h>
#include <sys/resource.h>

#include "server/cache/packed.h"

/* Commits of what this journal was told of that object fail, as on a full disk. */
static _Atomic(struct journal *) full;
static struct id full_of;
static int commit_unless_full(MDB_txn *txn);
#define mdb_txn_commit commit_unless_full
#include "server/cache/journal.c"
#undef mdb_txn_commit

static int commit_unless_full(MDB_txn *txn)
{
    struct journal *j = atomic_load(&full);

    if (!j || !batch_has_object(j->busy, full_of))
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return ENOSPC;
}

static struct cache_case *open_case(void)
{
    struct cache_case *t = case_make(1);

    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    return t;
}

static void fill_one(struct cache_case *t, unsigned i)
{
    char key[16];

    snprintf(key, sizeof key, "o%u", i);
    struct object *o = case_learn(t, key, "\"1\"", 5000);
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
}

static unsigned present(struct cache_case *t, unsigned count)
{
    unsigned n = 0;

    for (unsigned i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_find(t, key);
        n += o && case_read(t, o, 0, 0) == OK;
        if (o)
            object_drop(t->c, o);
    }
    return n;
}

static void records_of_unsynced_data_are_never_written(void **state)
{
    struct cache_case *t = open_case();
    struct directory *d = &t->c->dir[0];
    int pipe_fd[2];

    (void)state;
    fill_one(t, 0);
    case_settle(t);
    fill_one(t, 1);
    /* fdatasync of a pipe fails; the writer thread waits out its 100 ms first. */
    int slab = d->slab_fd;
    assert_int_equal(pipe(pipe_fd), 0);
    d->slab_fd = pipe_fd[0];
    case_settle(t);
    d->slab_fd = slab;
    assert_int_equal(atomic_load(&d->sync_errors), 1);
    assert_int_equal(present(t, 2), 2);
    case_reopen(t);
    assert_int_equal(present(t, 2), 1);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    case_end(t);
}

static void a_failed_commit_is_kept_and_tried_again(void **state)
{
    struct cache_case *t = open_case();
    struct rlimit old, none;
    struct cache_status s;

    (void)state;
    fill_one(t, 0);
    case_settle(t);
    signal(SIGXFSZ, SIG_IGN);
    for (unsigned i = 1; i < 200; i++)
        fill_one(t, i);
    getrlimit(RLIMIT_FSIZE, &old);
    none = (struct rlimit){8 * KIB, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    uint64_t session = atomic_load(&t->c->session);
    AWAIT(atomic_load(&t->c->session) > session);
    cache_status(t->c, &s);
    assert_true(s.dirty_entries > 0);
    /* Serving goes on. */
    assert_int_equal(present(t, 200), 200);
    setrlimit(RLIMIT_FSIZE, &old);
    case_settle(t);
    case_reopen(t);
    assert_int_equal(present(t, 200), 200);
    case_end(t);
}

/* Junk where LMDB reads next, or nothing there at all. */
static void hurt_index(struct cache_case *t, bool cut)
{
    static uint8_t junk[4096];
    char path[200];
    struct stat st;

    snprintf(path, sizeof path, "%s/index/data.mdb", t->dir[0]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    memset(junk, 0xA5, sizeof junk);
    if (cut)
        assert_int_equal(ftruncate(fd, 8192), 0);
    for (off_t at = 8192; !cut && at < st.st_size; at += 4096)
        assert_int_equal(pwrite(fd, junk, sizeof junk, at), sizeof junk);
    close(fd);
}

static size_t mdb_entries(struct journal *j, enum journal_db db)
{
    MDB_stat stat = {0};
    MDB_txn *txn;

    if (mdb_txn_begin(j->env, NULL, MDB_RDONLY, &txn) != 0)
        return 0;
    assert_int_equal(mdb_stat(txn, j->db[db], &stat), 0);
    mdb_txn_abort(txn);
    return stat.ms_entries;
}

static unsigned doubtful(struct cache_case *t, unsigned count)
{
    unsigned n = 0;

    for (unsigned i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_find(t, key);
        n += o && (atomic_load(&o->flags) & OBJECT_DOUBT);
        if (o)
            object_drop(t->c, o);
    }
    return n;
}

/* It fails at the first commit that meets the damage, and is written anew from memory. */
static void an_index_damaged_while_in_use_is_written_anew(void **state)
{
    (void)state;
    for (unsigned cut = 0; cut < 2; cut++) {
        struct cache_case *t = open_case();
        struct directory *d = &t->c->dir[0];
        for (unsigned i = 0; i < 50; i++)
            fill_one(t, i);
        case_settle(t);
        hurt_index(t, cut);
        for (unsigned i = 50; i < 100; i++)
            fill_one(t, i);
        AWAIT(atomic_load(&d->index_moved) == 1 && !journal_is_lost(d->journal));
        assert_true(atomic_load(&d->index_errors) > 0);
        assert_int_equal(present(t, 100), 100);
        struct okey k = case_key(t, "o7");
        struct object *o = cache_find(t->c, &k);
        uint64_t used = space_used_bytes(d->space);
        cache_forget(t->c, o);
        object_drop(t->c, o);
        case_settle(t);
        assert_true(space_used_bytes(d->space) < used);
        fill_one(t, 100);
        AWAIT(mdb_entries(d->journal, JOURNAL_CHUNKS) == 100);
        case_reopen(t);
        assert_int_equal(present(t, 101), 100);
        assert_null(case_find(t, "o7"));
        assert_int_equal(doubtful(t, 101), 0);
        assert_int_equal(atomic_load(&t->c->dir[0].index_moved), 0);
        case_end(t);
    }
}

/* Nobody has read them for long. */
static void pack_all(struct cache_case *t, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_find(t, key);
        atomic_store(&container_of(o, struct entry, o)->read_s, 1);
        object_drop(t->c, o);
    }
    packing_round(t->c, 60);
    assert_int_equal(atomic_load(&t->c->packing.packed), count);
}

/* All of them at their full size might be more than the index may take. */
static void small_objects_stay_packed_while_their_index_is_written_anew(void **state)
{
    enum { COUNT = 300 };
    struct cache_case *t = open_case();
    struct directory *d = &t->c->dir[0];

    (void)state;
    for (unsigned i = 0; i < COUNT; i++)
        fill_one(t, i);
    case_settle(t);
    pack_all(t, COUNT);
    hurt_index(t, false);
    fill_one(t, COUNT);
    AWAIT(atomic_load(&d->index_moved) == 1 && !journal_is_lost(d->journal));
    AWAIT(mdb_entries(d->journal, JOURNAL_CHUNKS) == COUNT + 1);
    AWAIT(!d->renewed);
    assert_true(atomic_load(&t->c->packing.packed) >= COUNT);
    case_settle(t);
    assert_int_equal(mdb_entries(d->journal, JOURNAL_OBJECTS), COUNT + 1);
    case_reopen(t);
    assert_int_equal(present(t, COUNT + 1), COUNT + 1);
    assert_int_equal(doubtful(t, COUNT + 1), 0);
    case_end(t);
}

static void a_full_map_grows(void **state)
{
    struct cache_case *t = open_case();
    MDB_envinfo info;

    (void)state;
    case_settle(t);
    assert_int_equal(mdb_env_set_mapsize(t->c->dir[0].journal->env, 256 * KIB), 0);
    for (unsigned i = 0; i < 1500; i++)
        fill_one(t, i);
    case_settle(t);
    assert_int_equal(mdb_env_info(t->c->dir[0].journal->env, &info), 0);
    assert_true(info.me_mapsize > 256 * KIB);
    case_reopen(t);
    assert_int_equal(present(t, 1500), 1500);
    case_end(t);
}

static void records_are_refused_long_before_removals(void **state)
{
    struct cache_case *t = open_case();
    struct journal *j = t->c->dir[0].journal;
    struct chunk_record r = {.object_id = {1, 1}, .bytes = 4096, .present = 1, .crc_count = 1};
    enum err err = OK;
    uint64_t records = 0, removals = 0;

    (void)state;
    journal_stop(j);                 /* nobody takes anything away */
    while (err == OK && records < 10 * RECORDS_MAX) {
        struct journal_change x = {.id = {9, 9}, .number = records, .chunk = &r};
        err = journal_queue(j, &x, 1);
        records += err == OK;
    }
    assert_int_equal(err, ERR_BUSY);
    assert_int_equal(records, RECORDS_MAX);
    assert_false(journal_room(j));
    /* The same key again needs no room of its own. */
    err = OK;
    while (err == OK) {
        struct journal_change x = {.id = {9, 8}, .number = removals, .remove = true};
        err = journal_queue(j, &x, 1);
        removals += err == OK;
    }
    assert_int_equal(err, ERR_BUSY);
    assert_int_equal(removals, REMOVALS_MAX - RECORDS_MAX);
    case_end(t);
}

static void the_last_change_of_a_key_wins(void **state)
{
    struct cache_case *t = open_case();
    struct journal *j = t->c->dir[0].journal;
    struct object_record r = {
        .bucket = span_of("b"), .key = span_of("k"), .etag = span_of("\"1\"")};
    MDB_txn *txn;
    MDB_val key, value;
    uint8_t id[16];

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct journal_change x = {.id = {5, 6}, .object = &r, .remove = i == 1};
        r.size = i;
        assert_int_equal(journal_queue(j, &x, 1), OK);
    }
    assert_int_equal(journal_dirty(j), 1);
    case_settle(t);
    memcpy(id, (uint8_t[16]){[7] = 5, [15] = 6}, sizeof id);
    key = (MDB_val){16, id};
    assert_int_equal(mdb_txn_begin(j->env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_get(txn, j->db[JOURNAL_OBJECTS], &key, &value), 0);
    assert_int_equal(record_object_read(span_make(value.mv_data, value.mv_size), &r), OK);
    assert_int_equal(r.size, 2);
    /* And it is listed by its name. */
    key =
        (MDB_val){19, (uint8_t[19]){'b', '/', 'k', 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6}};
    assert_int_equal(mdb_get(txn, j->db[JOURNAL_NAMES], &key, &value), 0);
    mdb_txn_abort(txn);
    case_end(t);
}

/* A disk on which nothing can be noted: another directory must say that this one is behind, before
 * the write goes on. */
static void a_write_waits_for_the_directory_that_knows_of_the_failed_one(void **state)
{
    struct cache_case *t = case_make(2);
    struct cache_write w = {0};
    int fd, nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)state;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    for (unsigned i = 0; i < 20; i++)
        fill_one(t, i);
    case_settle(t);
    for (unsigned i = 0; i < 20 && !w.begun; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct okey k = case_key(t, key);
        if (entry_of(t->c, k.id)->dirs != 1)
            continue;                /* in the first directory only */
        struct directory *d = &t->c->dir[0];
        int starts = d->starts_fd;
        assert_int_equal(mdb_env_get_fd(d->journal->env, &fd), 0);
        int index = dup(fd);
        d->starts_fd = nowhere;
        assert_int_equal(dup2(nowhere, fd), fd);
        cache_write_begin(t->c, &w, &k, &t->machine);
        assert_true(w.busy);
        AWAIT((case_deliver(t), !w.busy));
        assert_int_equal(w.why, ERR_DISK);
        assert_int_equal(w.unmarked, 1);
        assert_true(t->c->dir[1].session > d->session);
        /* So does the next one, as long as it lasts. */
        struct cache_write next;
        cache_write_begin(t->c, &next, &k, &t->machine);
        AWAIT((case_deliver(t), !next.busy));
        assert_int_equal(next.why, ERR_DISK);
        cache_write_end(t->c, &next, false);
        assert_int_equal(dup2(index, fd), fd);
        d->starts_fd = starts;
        close(index);
    }
    assert_true(w.begun);
    cache_write_end(t->c, &w, false);
    case_settle(t);
    close(nowhere);
    case_end(t);
}

/* The batch behind it would work: with it the directory would look as if nothing were missing. */
static void an_end_without_the_doubt_of_a_write_leaves_all_in_doubt(void **state)
{
    struct cache_case *t = open_case();
    struct cache_write w;

    (void)state;
    fill_one(t, 0);
    fill_one(t, 1);
    case_settle(t);
    struct okey k = case_key(t, "o0");
    full_of = k.id;
    atomic_store(&full, t->c->dir[0].journal);
    cache_write_begin(t->c, &w, &k, &t->machine);
    AWAIT((case_deliver(t), !w.busy));
    assert_int_equal(w.why, ERR_DISK);
    assert_int_equal(w.unmarked, 0);
    fill_one(t, 2);
    cache_write_end(t->c, &w, false);    /* nobody knows whether it came about */
    case_close(t);
    atomic_store(&full, NULL);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(present(t, 3), 2);
    assert_int_equal(doubtful(t, 3), 2);
    case_end(t);
}

/* Of an index that was lost on a file system that takes no more writes its own disk says nothing:
 * the next start would believe it. */
static void an_index_lost_where_nothing_can_be_noted_is_doubted_by_the_next_start(void **state)
{
    struct cache_case *t = case_make(2);
    struct cache_write w = {0};
    int nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)state;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    for (unsigned i = 0; i < 20; i++)
        fill_one(t, i);
    case_settle(t);
    struct directory *d = &t->c->dir[0];
    int starts = d->starts_fd;
    assert_true(disk_stop(d));       /* nobody writes it anew */
    d->starts_fd = nowhere;
    journal_lose(d->journal, "the test says so");
    for (unsigned i = 0; i < 20 && !w.begun; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct okey k = case_key(t, key);
        if (entry_of(t->c, k.id)->dirs == 1)
            cache_write_begin(t->c, &w, &k, &t->machine);
    }
    assert_true(w.begun);
    AWAIT((case_deliver(t), !w.busy));
    assert_int_equal(w.unmarked, 1);
    /* Durably, before the write goes on. */
    assert_true(t->c->dir[1].session > d->session);
    cache_write_end(t->c, &w, false);
    d->starts_fd = starts;
    case_reopen(t);
    assert_true(doubtful(t, 20) > 0);
    close(nowhere);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_unsynced_data_are_never_written),
        cmocka_unit_test(a_failed_commit_is_kept_and_tried_again),
        cmocka_unit_test(an_index_damaged_while_in_use_is_written_anew),
        cmocka_unit_test(small_objects_stay_packed_while_their_index_is_written_anew),
        cmocka_unit_test(a_full_map_grows),
        cmocka_unit_test(records_are_refused_long_before_removals),
        cmocka_unit_test(the_last_change_of_a_key_wins),
        cmocka_unit_test(a_write_waits_for_the_directory_that_knows_of_the_failed_one),
        cmocka_unit_test(
            an_index_lost_where_nothing_can_be_noted_is_doubted_by_the_next_start),
        cmocka_unit_test(an_end_without_the_doubt_of_a_write_leaves_all_in_doubt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
