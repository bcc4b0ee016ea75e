/* What comes next in a tree of LMDB's: foretold in a real one, and never trusted in one that
 * lies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <lmdb.h>

#include "server/cache/leaves.c"

enum { RECORDS = 20000, VALUE_BYTES = 100, PAGE = 4096, PAGES = 8 };

/* ---- a real tree ---- */
static void fill(MDB_env *env)
{
    uint8_t bytes[VALUE_BYTES] = {0};
    MDB_txn *txn;
    MDB_dbi dbi;

    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "tree", MDB_CREATE, &dbi), 0);
    for (uint64_t n = 0; n < RECORDS; n++) {
        uint64_t id = htobe64(n * 0x9E3779B97F4A7C15);
        MDB_val key = {sizeof id, &id}, value = {sizeof bytes, bytes};
        assert_int_equal(mdb_put(txn, dbi, &key, &value, 0), 0);
    }
    assert_int_equal(mdb_txn_commit(txn), 0);
}

static struct leaves leaves_of(MDB_env *env, MDB_txn *txn)
{
    char name[] = "tree";
    MDB_val key = {4, name}, value;
    MDB_envinfo info;
    MDB_dbi main_dbi;
    struct leaves l = {.page_bytes = PAGE};

    assert_int_equal(mdb_env_info(env, &info), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &main_dbi), 0);
    assert_int_equal(mdb_get(txn, main_dbi, &key, &value), 0);
    uint64_t number;
    const uint8_t *at = value.mv_data, *page = at - (uintptr_t)at % PAGE;
    memcpy(&number, page, sizeof number);
    memcpy(&l.root, at + value.mv_size - sizeof l.root, sizeof l.root);
    l.map = page - number * PAGE;
    l.last_page = info.me_last_pgno;
    return l;
}

static void the_next_leaf_is_foretold_but_at_the_end_of_a_branch(void **state)
{
    char folder[] = "/tmp/test-leaves-XXXXXX", file[64];
    unsigned met = 0, right = 0, wrong = 0;
    const uint8_t *leaf = NULL;
    MDB_cursor *cursor;
    MDB_val key, value;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 4), 0);
    assert_int_equal(mdb_env_set_mapsize(env, 64 * MIB), 0);
    assert_int_equal(mdb_env_open(env, folder, MDB_NOSYNC, 0600), 0);
    fill(env);
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "tree", 0, &dbi), 0);
    struct leaves l = leaves_of(env, txn);
    assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
        const uint8_t *at = key.mv_data, *here = at - (uintptr_t)at % PAGE;
        if (here == leaf)
            continue;
        const uint8_t *told = leaf ? page_at(&l, named(&l, l.at + 1)) : NULL;
        right += told == here;
        wrong += told && told != here;
        met++;
        leaf = here;
        leaves_look_ahead(&l, leaf, span_make(key.mv_data, key.mv_size));
    }
    assert_true(met > 100);
    assert_int_equal(wrong, 0);
    assert_true(right > met / 10 * 9);
    mdb_cursor_close(cursor);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    snprintf(file, sizeof file, "%s/data.mdb", folder);
    unlink(file);
    snprintf(file, sizeof file, "%s/lock.mdb", folder);
    unlink(file);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- trees that lie ---- */
static _Alignas(PAGE) uint8_t map[PAGES][PAGE];

static void put16(uint8_t *at, unsigned n)
{
    uint16_t bytes = (uint16_t)n;

    memcpy(at, &bytes, sizeof bytes);
}

/* A branch in page 2, whose node i names page 3 + i by the key "i". */
static void make_branch(unsigned count)
{
    memset(map, 0, sizeof map);
    put16(map[2] + AT_FLAGS, IS_BRANCH);
    put16(map[2] + AT_LOWER, PAGE_HEAD + 2 * count);
    for (unsigned i = 0; i < count; i++) {
        uint8_t *n = map[2] + 100 + 16 * i;
        put16(map[2] + PAGE_HEAD + 2 * i, (unsigned)(n - map[2]));
        put16(n, 3 + i);
        put16(n + 6, i > 0);
        n[NODE_HEAD] = (uint8_t)('0' + i);
    }
}

static void a_branch_that_lies_is_not_followed_out_of_the_map(void **state)
{
    static const struct {
        const char *what;
        size_t at;
        unsigned value;
        uint64_t next;               /* of page 3, met with the key "0" */
    } rows[] = {
        {"as it should be", AT_FLAGS, IS_BRANCH, 4},
        {"no branch", AT_FLAGS, 2, UINT64_MAX},
        {"no node", AT_LOWER, PAGE_HEAD, UINT64_MAX},
        {"nodes past the page", AT_LOWER, PAGE + 2, UINT64_MAX},
        {"as many as wrap", AT_LOWER, UINT16_MAX, UINT64_MAX},
        {"a node past the page", PAGE_HEAD + 2, PAGE - 4, UINT64_MAX},
        {"a node that wraps", PAGE_HEAD + 2, UINT16_MAX, UINT64_MAX},
        {"a key past the page", 100 + 16 + 6, UINT16_MAX, 4},
        {"a page past the map", 100 + 16, PAGES, PAGES},
        {"its own child", 100, 2, UINT64_MAX},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct leaves l = {.map = map[0], .page_bytes = PAGE, .last_page = PAGES - 1, .root = 2};
        make_branch(3);
        put16(map[2] + rows[i].at, rows[i].value);
        leaves_look_ahead(&l, map[3], span_of("0"));
        if (named(&l, l.at + 1) != rows[i].next)
            fail_msg("%s", rows[i].what);
    }
}

static void without_a_root_nothing_is_looked_at(void **state)
{
    struct leaves l = {0};

    (void)state;
    leaves_look_ahead(&l, map[3], span_of("0"));
    assert_null(l.branch);
    l = (struct leaves){.map = map[0], .page_bytes = PAGE, .last_page = PAGES - 1, .root = PAGES};
    leaves_look_ahead(&l, map[3], span_of("0"));
    assert_null(l.branch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_leaf_is_foretold_but_at_the_end_of_a_branch),
        cmocka_unit_test(a_branch_that_lies_is_not_followed_out_of_the_map),
        cmocka_unit_test(without_a_root_nothing_is_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
