/* What a restart makes of damaged files: index, slab, header, lock; and of formats that are not
 * ours. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"

#include <lmdb.h>
#include <sys/wait.h>

#include "sign.h"

/* What a start commits by itself fails, as on a full disk; its child, which reads, commits, too. */
static pid_t full;
static int commit_unless_full(MDB_txn *txn);
#define mdb_txn_commit commit_unless_full
#include "server/cache/recover.c"
#undef mdb_txn_commit

static int commit_unless_full(MDB_txn *txn)
{
    if (getpid() != full)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return ENOSPC;
}

/* ---- damage ---- */
static void damage(const struct cache_case *t, const char *how)
{
    char path[PATH_BYTES];
    struct stat st;

    path_of(t, "index/data.mdb", path);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    if (strcmp(how, "truncate") == 0) {
        assert_int_equal(ftruncate(fd, st.st_size / 2 / 4096 * 4096), 0);
    } else {
        static uint8_t junk[4096];
        memset(junk, 0xA5, sizeof junk);
        /* Every page but the two meta pages. */
        for (off_t at = 8192; at < st.st_size; at += 4096)
            assert_int_equal(pwrite(fd, junk, sizeof junk, at), sizeof junk);
    }
    close(fd);
}

static void a_damaged_index_is_moved_aside_in_the_same_start(void **state)
{
    static const char *const hows[] = {"truncate", "junk", "truncate", "junk", "truncate"};
    struct cache_case *t = open_case(1);

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(hows); i++) {
        fill_objects(t, OBJECTS);
        close_case(t);
        damage(t, hows[i]);
        if (case_open(t) != OK)
            fail_msg("%s", t->why);
        assert_int_equal(count_objects(t, OBJECTS, 0), 0);
        assert_true(there(t, "index.damaged-1"));
    }
    /* No more than three are kept. */
    assert_true(there(t, "index.damaged-3"));
    assert_false(there(t, "index.damaged-4"));
    case_end(t);
}

/* One bit, or one in each of 16 bytes, anywhere in the file. Returns where. */
static size_t flip_bits(uint8_t *file, size_t len, unsigned bytes)
{
    size_t at = (size_t)random() % (len - bytes);

    for (unsigned b = 0; b < bytes; b++)
        file[at + b] ^= (uint8_t)(1 << random() % 8);
    return at;
}

static void any_single_damage_is_survived(void **state)
{
    struct cache_case *t = open_case(1);
    char path[PATH_BYTES], aside_path[PATH_BYTES];
    size_t len;
    unsigned lost = 0, aside = 0;

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    path_of(t, "index/data.mdb", path);
    path_of(t, "index.damaged-1", aside_path);
    uint8_t *good = scratch_read(path, &len), *bad = mem_take(len);
    assert_non_null(bad);
    srandom(20);
    for (unsigned i = 0; i < 60; i++) {
        memcpy(bad, good, len);
        size_t at = flip_bits(bad, len, i % 2 ? 1 : 16);
        scratch_write(path, bad, len);
        if (case_open(t) != OK)
            fail_msg("damage at %zu: %s", at, t->why);
        /* case_read compares every byte of what is there. */
        unsigned present = count_objects(t, OBJECTS, 0);
        assert_true(present <= OBJECTS);
        lost += present < OBJECTS;
        close_case(t);
        if (there(t, "index.damaged-1")) {
            aside++;
            scratch_remove(aside_path);
        }
    }
    print_message("60 damages: %u starts with losses, %u indexes moved aside\n", lost, aside);
    mem_give(good);
    mem_give(bad);
    case_end(t);
}

/* Bytes of the first three records of a sub-database, behind the library's back. */
static void damage_records(const struct cache_case *t, const char *name)
{
    char path[PATH_BYTES];
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_cursor *cursor;
    MDB_val key, value;

    snprintf(path, sizeof path, "%s/index", t->dir[0]);
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 4), 0);
    assert_int_equal(mdb_env_open(env, path, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, name, 0, &dbi), 0);
    assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
    for (unsigned i = 0; i < 3; i++) {
        uint8_t copy[512];
        assert_int_equal(mdb_cursor_get(cursor, &key, &value, MDB_NEXT), 0);
        assert_true(value.mv_size <= sizeof copy);
        memcpy(copy, value.mv_data, value.mv_size);
        copy[value.mv_size / 2] ^= 1;
        value.mv_data = copy;
        assert_int_equal(mdb_cursor_put(cursor, &key, &value, MDB_CURRENT), 0);
    }
    mdb_cursor_close(cursor);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void damaged_records_are_dropped_alone(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    damage_records(t, "chunks");
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS - 3);
    assert_int_equal(atomic_load(&t->c->dir[0].index_dropped), 3);
    assert_false(there(t, "index.damaged-1"));
    /* Their records are gone, so that their slots can be used again. */
    fill_objects(t, OBJECTS);
    case_reopen(t);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    case_end(t);
}

/* What cannot be deleted at once is by the first commit that works. */
static void damaged_records_on_a_full_disk_refuse_no_start(void **state)
{
    static const char *const names[] = {"objects", "chunks"};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        struct cache_case *t = open_case(1);
        fill_objects(t, OBJECTS);
        close_case(t);
        damage_records(t, names[i]);
        full = getpid();
        if (case_open(t) != OK)
            fail_msg("%s: %s", names[i], t->why);
        full = 0;
        assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS - 3);
        assert_true(atomic_load(&t->c->dir[0].index_dropped) >= 3);
        case_reopen(t);
        assert_int_equal(atomic_load(&t->c->dir[0].index_dropped), 0);
        assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS - 3);
        case_end(t);
    }
}

/* ---- by the library's own means ---- */
struct opened {
    MDB_env *env;
    MDB_txn *txn;
};
static struct opened open_index(const struct cache_case *t, unsigned flags)
{
    struct opened x;
    char path[PATH_BYTES];

    path_of(t, "index", path);
    assert_int_equal(mdb_env_create(&x.env), 0);
    assert_int_equal(mdb_env_set_maxdbs(x.env, 4), 0);
    assert_int_equal(mdb_env_open(x.env, path, flags, 0600), 0);
    assert_int_equal(mdb_txn_begin(x.env, NULL, flags, &x.txn), 0);
    return x;
}

static void close_index(struct opened *x)
{
    assert_int_equal(mdb_txn_commit(x->txn), 0);
    mdb_env_close(x->env);
}

static void put_state(const struct cache_case *t, const char *name, const uint8_t *bytes)
{
    struct opened x = open_index(t, 0);
    MDB_val key = {strlen(name), (void *)(uintptr_t)name}, value = {12, (void *)(uintptr_t)bytes};
    MDB_dbi dbi;

    assert_int_equal(mdb_dbi_open(x.txn, "state", 0, &dbi), 0);
    assert_int_equal(mdb_put(x.txn, dbi, &key, &value, 0), 0);
    close_index(&x);
}

static void put_number(const struct cache_case *t, const char *name, uint64_t n)
{
    uint8_t bytes[12];

    n = htobe64(n);
    memcpy(bytes, &n, sizeof n);
    uint32_t crc = htole32(crc32c(0, bytes, 8));
    memcpy(bytes + 8, &crc, sizeof crc);
    put_state(t, name, bytes);
}

/* Where in the file what the library shows at that address stands: pages begin with their
 * numbers. */
static off_t file_offset(const void *at)
{
    uint64_t number;

    memcpy(&number, (const uint8_t *)at - (uintptr_t)at % 4096, sizeof number);
    return (off_t)(number * 4096 + (uintptr_t)at % 4096);
}

/* A list of free pages gets a page in use as a member, its order kept. false: none fits. */
static bool name_live_page(const struct cache_case *t, uint64_t *was, off_t *where)
{
    struct opened x = open_index(t, MDB_RDONLY);
    MDB_cursor *cursor;
    MDB_val key, list, record;
    MDB_dbi dbi;
    bool found = false;

    assert_int_equal(mdb_dbi_open(x.txn, "objects", 0, &dbi), 0);
    assert_int_equal(mdb_cursor_open(x.txn, dbi, &cursor), 0);
    assert_int_equal(mdb_cursor_get(cursor, &key, &record, MDB_FIRST), 0);
    uint64_t live = (uint64_t)file_offset(key.mv_data) / 4096;
    mdb_cursor_close(cursor);
    assert_int_equal(mdb_cursor_open(x.txn, FREE_DBI, &cursor), 0);
    while (!found && mdb_cursor_get(cursor, &key, &list, MDB_NEXT) == 0) {
        const uint64_t *page = list.mv_data;
        for (uint64_t i = 1; i <= page[0] && !found; i++) {
            found = (i == 1 || page[i - 1] > live) && (i == page[0] || page[i + 1] < live);
            *where = file_offset(&page[i]);
            *was = live;
        }
    }
    mdb_cursor_close(cursor);
    close_index(&x);
    return found;
}

/* The free list of a closed cache's first index names a page that is in use. */
static void free_a_live_page(struct cache_case *t)
{
    char path[PATH_BYTES];
    uint64_t live = 0;
    off_t where = 0;

    assert_true(name_live_page(t, &live, &where));
    path_of(t, "index/data.mdb", path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &live, sizeof live, where), sizeof live);
    close(fd);
}

static void a_free_list_that_names_pages_in_use_is_damage(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    for (unsigned i = 0; i < OBJECTS; i += 10) {
        fill_objects(t, i + 10);
        case_settle(t);
    }
    close_case(t);
    free_a_live_page(t);
    assert_int_equal(case_open(t), OK);
    assert_true(there(t, "index.damaged-1"));
    assert_int_equal(atomic_load(&t->c->dir[0].index_moved), 1);
    case_end(t);
}

/* What the other directory held was loaded by then, and is loaded again; so is what counts to a
 * section. */
static void damage_that_shows_late_costs_one_directory(void **state)
{
    struct cache_case *t = case_make(2);
    const struct section *s;
    uint64_t there_of_1 = 0;

    (void)state;
    t->config.bucket_count = 2;      /* the general one stands before it */
    t->config.buckets[1] =
        (struct conf_bucket){.match = "bucket", .match_len = 6, .quota_bytes = CASE_SLAB};
    assert_int_equal(case_open(t), OK);
    for (unsigned i = 0; i < OBJECTS; i += 5) {
        fill_objects(t, i + 5);
        case_settle(t);
    }
    for (unsigned page = 0; page < t->c->dir[1].residents.pages; page++)
        there_of_1 += t->c->dir[1].residents.place[page].used;
    assert_true(there_of_1 > 0 && there_of_1 < OBJECTS);
    close_case(t);
    free_a_live_page(t);
    assert_int_equal(case_open(t), OK);
    assert_true(there(t, "index.damaged-1"));
    assert_int_equal(atomic_load(&t->c->dir[0].index_moved), 1);
    assert_int_equal(atomic_load(&t->c->dir[1].index_moved), 0);
    assert_int_equal(atomic_load(&t->c->chunk_count), there_of_1);
    s = &t->c->rules.section[1];
    assert_int_equal(s->count, there_of_1);
    assert_int_equal(atomic_load(&s->bytes), there_of_1 * space_class_bytes(space_class(200000)));
    assert_int_equal(count_objects(t, OBJECTS, 0), there_of_1);
    case_reopen(t);
    assert_int_equal(count_objects(t, OBJECTS, 0), there_of_1);
    case_end(t);
}

/* A census of eight pages, none met. */
static struct census eight_pages(uint8_t *seen)
{
    *seen = 0;
    return (struct census){.seen = seen, .last_page = 7, .page_bytes = 4096};
}

static void free_lists_that_lie_are_refused(void **state)
{
    static const struct {
        const char *what;
        size_t list[4], bytes;
        bool sound;
    } rows[] = {
        {"three pages, falling", {3, 6, 4, 2}, 32, true},
        {"none", {0}, 8, true},
        {"half a count", {0}, 4, false},
        {"more than there is room for", {4, 6, 4, 2}, 32, false},
        {"as many as wrap", {SIZE_MAX, 6, 4, 2}, 32, false},
        {"one page twice", {3, 6, 6, 2}, 32, false},
        {"rising", {3, 2, 4, 6}, 32, false},
        {"a meta page", {3, 6, 4, 1}, 32, false},
        {"past the end", {3, 8, 4, 2}, 32, false},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        uint8_t seen;
        struct census c = eight_pages(&seen);
        MDB_val value = {rows[i].bytes, (void *)(uintptr_t)rows[i].list};
        if (free_list_sound(&value, &c) != rows[i].sound)
            fail_msg("%s", rows[i].what);
    }
}

static void keys_of_free_lists_rise_up_to_the_last_transaction(void **state)
{
    uint64_t id[] = {1, 5, 5, 4, 9, 10};
    static const bool sound[] = {true, true, false, false, true, false};
    MDB_val short_key = {4, id};
    uint64_t before = 0;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(id); i++) {
        MDB_val key = {sizeof id[i], &id[i]};
        if (free_key_sound(&key, &before, 9) != sound[i])
            fail_msg("key %u", i);
    }
    before = 0;
    assert_false(free_key_sound(&short_key, &before, 9));
    id[0] = 0;
    MDB_val none = {sizeof id[0], id};
    assert_false(free_key_sound(&none, &before, 9));
}

/* In a child, as the server does: it lets its end close everything. */
static bool can_walk(const char *index, const char *file)
{
    int status = -1;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(walk(NULL, index, file) ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

static void what_cannot_be_walked_is_damage(void **state)
{
    struct cache_case *t = open_case(1);
    char path[PATH_BYTES], index[PATH_BYTES];

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    path_of(t, "index/data.mdb", path);
    path_of(t, "index", index);
    assert_true(can_walk(index, path));
    assert_false(can_walk(index, "/nonexistent"));
    assert_false(can_walk("/nonexistent", path));
    struct opened x = open_index(t, MDB_RDONLY);
    uint8_t seen;
    struct census c = eight_pages(&seen);
    struct walker w = {.census = &c};
    assert_false(walk_tree(x.txn, 77, &w));             /* no such tree */
    close_index(&x);
    case_end(t);
}

/* A reader that stays keeps every freed page on the list: it grows to a tree with branches. */
static void a_free_list_with_branches_is_walked(void **state)
{
    struct cache_case *t = open_case(1);
    char path[PATH_BYTES], index[PATH_BYTES];
    MDB_txn *reader;
    MDB_stat stat;
    MDB_dbi dbi;

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    path_of(t, "index/data.mdb", path);
    path_of(t, "index", index);
    struct opened x = open_index(t, 0);
    assert_int_equal(mdb_txn_begin(x.env, NULL, MDB_RDONLY, &reader), 0);
    assert_int_equal(mdb_dbi_open(x.txn, "state", 0, &dbi), 0);
    for (uint64_t n = 0; n < 600; n++) {
        MDB_val key = {5, (void *)(uintptr_t)"@none"}, value = {sizeof n, &n};
        assert_int_equal(mdb_put(x.txn, dbi, &key, &value, 0), 0);
        assert_int_equal(mdb_txn_commit(x.txn), 0);
        assert_int_equal(mdb_txn_begin(x.env, NULL, 0, &x.txn), 0);
    }
    assert_int_equal(mdb_stat(x.txn, FREE_DBI, &stat), 0);
    assert_true(stat.ms_depth > 1);
    mdb_txn_abort(reader);
    close_index(&x);
    assert_true(can_walk(index, path));
    case_end(t);
}

/* Parts of a small tree: most of them begin within a leaf, some are empty. */
static void parts_of_a_tree_meet_each_record_and_each_leaf_once(void **state)
{
    struct cache_case *t = open_case(1);
    static uint8_t seen[MIB];
    MDB_envinfo info;
    MDB_stat stat;
    MDB_dbi dbi;

    (void)state;
    fill_objects(t, 5 * OBJECTS);
    close_case(t);
    struct opened x = open_index(t, MDB_RDONLY);
    assert_int_equal(mdb_dbi_open(x.txn, "objects", 0, &dbi), 0);
    assert_int_equal(mdb_stat(x.txn, dbi, &stat), 0);
    assert_int_equal(mdb_env_info(x.env, &info), 0);
    assert_true(stat.ms_leaf_pages > 3);
    for (unsigned of = 1; of <= 64; of++) {
        struct census c = {.seen = seen, .last_page = info.me_last_pgno,
                           .page_bytes = stat.ms_psize};
        size_t records = 0, leaves = 0;
        memset(seen, 0, sizeof seen);
        for (unsigned i = of; i-- > 0;) {
            struct walker w = {.census = &c};
            struct part p = {.number = i, .of = of};
            assert_true(walk_part(x.txn, dbi, &w, &p));
            records += p.count;
        }
        for (size_t i = 0; i < sizeof seen; i++)
            leaves += (size_t)__builtin_popcount(seen[i]);
        assert_int_equal(records, stat.ms_entries);
        assert_int_equal(leaves, stat.ms_leaf_pages + stat.ms_overflow_pages);
        MDB_dbi main_dbi;
        assert_int_equal(mdb_dbi_open(x.txn, NULL, 0, &main_dbi), 0);
        assert_true(branches_sound(x.txn, dbi, root_of(x.txn, main_dbi, "objects"), &c));
        struct walker again = {.census = &c};
        assert_false(walk_tree(x.txn, dbi, &again));
    }
    close_index(&x);
    case_end(t);
}

/* As the child does where there are cores for it. */
static void threads_walk_the_parts_of_a_tree(void **state)
{
    struct cache_case *t = open_case(1);
    static uint8_t seen[MIB];
    char path[PATH_BYTES];
    struct opened x;
    MDB_envinfo info;
    MDB_stat stat;
    MDB_dbi dbi;

    (void)state;
    fill_objects(t, 5 * OBJECTS);
    close_case(t);
    path_of(t, "index", path);
    assert_int_equal(mdb_env_create(&x.env), 0);
    assert_int_equal(mdb_env_set_maxdbs(x.env, 4), 0);
    assert_int_equal(mdb_env_open(x.env, path, MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0600), 0);
    assert_true(open_handles(x.env));
    assert_int_equal(mdb_txn_begin(x.env, NULL, MDB_RDONLY, &x.txn), 0);
    assert_int_equal(mdb_dbi_open(x.txn, "chunks", 0, &dbi), 0);
    assert_int_equal(mdb_stat(x.txn, dbi, &stat), 0);
    assert_int_equal(mdb_env_info(x.env, &info), 0);
    assert_int_equal(stat.ms_entries, 5 * OBJECTS);
    for (unsigned round = 0; round < 20; round++) {
        struct census c = {.seen = seen, .last_page = info.me_last_pgno,
                           .page_bytes = stat.ms_psize};
        struct walker w = {.census = &c};
        memset(seen, 0, sizeof seen);
        /* As the main tree, which is walked before all others, makes it known. */
        MDB_val name = {6, (void *)(uintptr_t)"chunks"}, value;
        assert_int_equal(mdb_get(x.txn, 1, &name, &value), 0);
        uint64_t number;
        memcpy(&number, census_page_of(&c, value.mv_data), sizeof number);
        c.base = census_page_of(&c, value.mv_data) - number * c.page_bytes;
        assert_int_equal(walk_sides(x.env, dbi, &w, SIDES_MAX), stat.ms_entries);
        assert_int_equal(walk_sides(x.env, dbi, &w, SIDES_MAX), UINT64_MAX); /* met before */
    }
    close_index(&x);
    case_end(t);
}

static void damaged_state_makes_everything_doubtful(void **state)
{
    static const char *const names[] = {"session", "doubt"};
    const uint8_t junk[12] = {7, 7, 7};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        struct cache_case *t = open_case(1);
        fill_objects(t, 5);
        close_case(t);
        put_state(t, names[i], junk);
        assert_int_equal(case_open(t), OK);
        assert_int_equal(atomic_load(&t->c->dir[0].index_dropped), 1);
        assert_int_equal(count_objects(t, 5, OBJECT_DOUBT), 5);
        case_reopen(t);
        assert_int_equal(atomic_load(&t->c->dir[0].index_dropped), 0);
        assert_int_equal(count_objects(t, 5, OBJECT_DOUBT), 5);
        case_end(t);
    }
}

/* The newer of LMDB's two meta pages is lost to a flipped bit; the other one is older. */
static void the_older_meta_page_shows_everything_after_a_proper_end(void **state)
{
    enum { TXNID = 16 + 24 + 2 * 48 + 8, META_BYTES = TXNID + 8 };
    struct cache_case *t = open_case(1);
    char path[PATH_BYTES];
    uint64_t txnid[2], none = 0;

    (void)state;
    fill_objects(t, 3);
    case_settle(t);
    fill_objects(t, OBJECTS);
    close_case(t);
    path_of(t, "index/data.mdb", path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pread(fd, &txnid[i], 8, i * 4096 + TXNID), 8);
    assert_int_equal(max_u64(txnid[0], txnid[1]) - min_u64(txnid[0], txnid[1]), 1);
    assert_int_equal(pwrite(fd, &none, 8, (txnid[1] > txnid[0]) * 4096 + TXNID), 8);
    close(fd);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    case_end(t);
}

static void starts_that_fail_over_the_index_end_by_themselves(void **state)
{
    struct cache_case *t = open_case(1);
    char path[PATH_BYTES];
    size_t len;

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    path_of(t, "starts", path);
    scratch_write(path, "1", 1);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    mem_give(scratch_read(path, &len));
    assert_int_equal(len, 0);
    /* What a death between begin and end leaves behind. */
    directory_risk_begin(&t->c->dir[0]);
    mem_give(scratch_read(path, &len));
    assert_int_equal(len, 1);
    directory_risk_end(&t->c->dir[0]);
    close_case(t);
    scratch_write(path, "12", 2);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), 0);
    assert_true(there(t, "index.damaged-1"));
    fill_objects(t, OBJECTS);
    case_reopen(t);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    case_end(t);
}

static void a_lost_slab_empties_the_cache(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    remove_file(t, "slab");
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), 0);
    assert_int_equal(atomic_load(&t->c->chunk_count), 0);
    case_end(t);
}

static void a_truncated_slab_costs_what_it_held(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    cut_file(t, "slab", 4 * MIB);
    assert_int_equal(case_open(t), OK);
    unsigned present = count_objects(t, OBJECTS, 0);
    assert_true(present > 0 && present < OBJECTS);
    case_end(t);
}

static void a_garbage_lock_file_does_not_hang(void **state)
{
    struct cache_case *t = open_case(1);
    char path[PATH_BYTES];
    uint8_t garbage[8192];

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    random_bytes(garbage, sizeof garbage);
    path_of(t, "index/lock.mdb", path);
    scratch_write(path, garbage, sizeof garbage);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    case_end(t);
}

static void a_damaged_header_costs_the_contents_only(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, OBJECTS);
    close_case(t);
    cut_file(t, "headpond.id", 50);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), 0);
    fill_objects(t, OBJECTS);
    case_reopen(t);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    case_end(t);
}

/* ---- formats ---- */
static void an_index_of_a_newer_format_is_left_untouched(void **state)
{
    struct cache_case *t = open_case(1);
    char path[PATH_BYTES];
    size_t len, len_after;

    (void)state;
    fill_objects(t, 2);
    close_case(t);
    put_number(t, "format", RECORD_FORMAT + 1);
    path_of(t, "index/data.mdb", path);
    uint8_t *before = scratch_read(path, &len);
    for (unsigned i = 0; i < 3; i++)
        expect_refusal(t, ERR_NEWER, "newer");
    uint8_t *after = scratch_read(path, &len_after);
    assert_int_equal(len, len_after);
    assert_memory_equal(before, after, len);
    mem_give(before);
    mem_give(after);
    put_number(t, "format", RECORD_FORMAT);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, 2, 0), 2);
    case_end(t);
}

static void an_index_of_an_older_format_is_moved_aside(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, 2);
    close_case(t);
    put_number(t, "format", RECORD_FORMAT - 1);
    assert_int_equal(case_open(t), OK);
    assert_true(there(t, "index.damaged-1"));
    assert_int_equal(count_objects(t, 2, 0), 0);
    fill_objects(t, 2);
    case_reopen(t);
    assert_int_equal(count_objects(t, 2, 0), 2);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_index_is_moved_aside_in_the_same_start),
        cmocka_unit_test(any_single_damage_is_survived),
        cmocka_unit_test(damaged_records_are_dropped_alone),
        cmocka_unit_test(damaged_records_on_a_full_disk_refuse_no_start),
        cmocka_unit_test(a_free_list_that_names_pages_in_use_is_damage),
        cmocka_unit_test(damage_that_shows_late_costs_one_directory),
        cmocka_unit_test(free_lists_that_lie_are_refused),
        cmocka_unit_test(keys_of_free_lists_rise_up_to_the_last_transaction),
        cmocka_unit_test(what_cannot_be_walked_is_damage),
        cmocka_unit_test(a_free_list_with_branches_is_walked),
        cmocka_unit_test(parts_of_a_tree_meet_each_record_and_each_leaf_once),
        cmocka_unit_test(threads_walk_the_parts_of_a_tree),
        cmocka_unit_test(damaged_state_makes_everything_doubtful),
        cmocka_unit_test(the_older_meta_page_shows_everything_after_a_proper_end),
        cmocka_unit_test(starts_that_fail_over_the_index_end_by_themselves),
        cmocka_unit_test(a_lost_slab_empties_the_cache),
        cmocka_unit_test(a_truncated_slab_costs_what_it_held),
        cmocka_unit_test(a_garbage_lock_file_does_not_hang),
        cmocka_unit_test(a_damaged_header_costs_the_contents_only),
        cmocka_unit_test(an_index_of_a_newer_format_is_left_untouched),
        cmocka_unit_test(an_index_of_an_older_format_is_moved_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
