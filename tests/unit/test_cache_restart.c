/* What a restart finds: after a proper end, after kill -9, after damage; and which directories are
 * refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"

#include "sign.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* Has the index been committed since *metas was read? A commit writes one of LMDB's meta pages. */
struct metas {
    uint8_t bytes[2 * 4096];
};
static bool committed_since(const struct cache_case *t, struct metas *metas)
{
    char path[PATH_BYTES];
    struct metas now;

    path_of(t, "index/data.mdb", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, now.bytes, sizeof now.bytes, 0), sizeof now.bytes);
    close(fd);
    bool changed = memcmp(&now, metas, sizeof now) != 0;
    *metas = now;
    return changed;
}

/* ---- present again ---- */
static void all_is_present_after_a_proper_end(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, OBJECTS);
    struct object *big = case_learn(t, "big", "\"2\"", 3 * (uint64_t)CHUNK_BYTES + 5);
    for (uint64_t number = 0; number < 4; number++)
        assert_int_equal(case_fill(t, big, number), OK);
    struct chunk *k = chunk_find(t->c, big->data_id, 1);
    struct policy_mark mark = k->mark;
    chunk_drop(t->c, k);
    object_drop(t->c, big);
    uint64_t used = space_used_bytes(t->c->dir[0].space);
    case_reopen(t);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), used);
    big = case_find(t, "big");
    assert_true(span_is(object_headers(big), "content-type: application/x-tar\r\n"));
    assert_true(span_is(object_etag(big), "\"2\""));
    assert_int_equal(big->last_modified_s, 1600000000);
    assert_int_equal(atomic_load(&big->checked_ms), t->asked_ms);
    k = chunk_find(t->c, big->data_id, 1);
    assert_int_equal(k->mark.last, mark.last);
    chunk_drop(t->c, k);
    for (uint64_t number = 0; number < 4; number++)
        assert_int_equal(case_read(t, big, number, 0), OK);
    object_drop(t->c, big);
    case_end(t);
}

static void committed_objects_survive_kill_9(void **state)
{
    struct cache_case *t = case_make(1);
    int pipe_fd[2];
    char byte;
    struct metas metas = {0};

    (void)state;
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || case_open(t) != OK)
            _exit(1);
        fill_objects(t, OBJECTS);
        case_settle(t);
        /* Then work that nobody waits for. */
        if (write(pipe_fd[1], "x", 1) != 1)
            _exit(1);
        for (unsigned i = 0;; i++) {
            struct object *o = case_learn(t, "late", i % 2 ? "\"1\"" : "\"2\"", CHUNK_BYTES);
            if (case_fill(t, o, 0) == OK)
                object_drop(t->c, o);
        }
    }
    close(pipe_fd[1]);
    assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
    (void)committed_since(t, &metas);
    for (unsigned i = 0; i < 2; i++)
        AWAIT(committed_since(t, &metas));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    struct object *late = case_find(t, "late");
    if (late) {
        enum err err = case_read(t, late, 0, 0);
        assert_true(err == OK || err == ERR_NOT_FOUND);
        object_drop(t->c, late);
    }
    close(pipe_fd[0]);
    case_end(t);
}

static void doubt_survives(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, 2);
    struct object *o = case_find(t, "o1");
    cache_doubt(t->c, o);
    object_drop(t->c, o);
    case_reopen(t);
    assert_int_equal(count_objects(t, 2, 0), 2);
    assert_int_equal(count_objects(t, 2, OBJECT_DOUBT), 1);
    o = case_learn(t, "o1", "\"1\"", 200001);
    object_drop(t->c, o);
    case_reopen(t);
    assert_int_equal(count_objects(t, 2, OBJECT_DOUBT), 0);
    case_end(t);
}

static void expect_checked(struct cache_case *t, uint64_t ms)
{
    struct object *o = case_find(t, "a");

    assert_non_null(o);
    assert_int_equal(atomic_load(&o->checked_ms), ms);
    object_drop(t->c, o);
}

static void a_check_ahead_of_the_clock_ends_with_the_next_answer(void **state)
{
    struct cache_case *t = open_case(1);
    uint64_t now_ms = clock_wall_ms();

    (void)state;
    t->asked_ms = now_ms + 8 * 3600000;
    struct object *o = case_learn(t, "a", "\"1\"", BLOCK_BYTES);
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
    case_reopen(t);
    expect_checked(t, t->asked_ms);
    t->asked_ms = now_ms;
    object_drop(t->c, case_learn(t, "a", "\"1\"", BLOCK_BYTES));
    expect_checked(t, now_ms);
    case_reopen(t);                  /* and its record knows it as well */
    expect_checked(t, now_ms);
    case_end(t);
}

static void forgotten_and_replaced_objects_stay_away(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, 3);
    case_settle(t);
    struct object *o = case_find(t, "o0");
    cache_forget(t->c, o);
    object_drop(t->c, o);
    o = case_learn(t, "o1", "\"new\"", 77);
    object_drop(t->c, o);
    case_reopen(t);
    assert_null(case_find(t, "o0"));
    assert_null(case_find(t, "o1"));
    assert_int_equal(atomic_load(&t->c->chunk_count), 1);
    case_end(t);
}

/* ---- refusals ---- */
static void a_directory_in_use_is_refused_at_once(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache *first = t->c;

    (void)state;
    fill_objects(t, 2);
    uint64_t began = clock_ms();
    expect_refusal(t, ERR_LOCKED, "another server");
    assert_true(clock_ms() - began < 1000);
    t->c = first;
    assert_int_equal(count_objects(t, 2, 0), 2);
    case_end(t);
}

static void a_removed_lock_file_lets_nobody_in(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache *first = t->c;

    (void)state;
    remove_file(t, "lock");
    expect_refusal(t, ERR_LOCKED, "another server");
    t->c = first;
    case_end(t);
}

static void a_newer_format_is_left_untouched(void **state)
{
    struct cache_case *t = open_case(1);
    char path[PATH_BYTES];
    uint8_t bytes[20], after[20];

    (void)state;
    fill_objects(t, 2);
    close_case(t);
    snprintf(path, sizeof path, "%s/headpond.id", t->dir[0]);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, bytes, 20, 0), 20);
    bytes[8]++;
    uint32_t crc = crc32c(0, bytes, 16);
    memcpy(bytes + 16, &crc, 4);
    assert_int_equal(pwrite(fd, bytes, 20, 0), 20);
    expect_refusal(t, ERR_NEWER, "newer");
    assert_int_equal(pread(fd, after, 20, 0), 20);
    assert_memory_equal(bytes, after, 20);
    bytes[8]--;
    crc = crc32c(0, bytes, 16);
    memcpy(bytes + 16, &crc, 4);
    assert_int_equal(pwrite(fd, bytes, 20, 0), 20);
    close(fd);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, 2, 0), 2);
    case_end(t);
}

static void foreign_directories_are_refused(void **state)
{
    struct cache_case *t = open_case(1), *other = open_case(1);

    (void)state;
    close_case(t);
    close_case(other);
    t->config.cache_dirs.item[1] = other->dir[0];
    t->config.cache_dirs.count = 2;
    expect_refusal(t, ERR_FOREIGN, "another cache");
    /* A new one adopts the secret. */
    snprintf(t->dir[1], sizeof t->dir[1], "%s/d1", t->root);
    t->config.cache_dirs.item[1] = t->dir[1];
    assert_int_equal(case_open(t), OK);
    assert_memory_equal(t->c->dir[0].header.secret, t->c->dir[1].header.secret, 32);
    case_reopen(t);
    case_end(t);
    case_end(other);
}

static void a_directory_of_something_else_is_not_taken(void **state)
{
    struct cache_case *t = case_make(1);
    char path[PATH_BYTES];

    (void)state;
    assert_int_equal(mkdir(t->dir[0], 0700), 0);
    path_of(t, "thesis.tex", path);
    scratch_write(path, "precious", 8);
    expect_refusal(t, ERR_FOREIGN, "thesis.tex");
    assert_false(there(t, "slab"));
    case_end(t);
}

static void open_modes_and_links_are_refused(void **state)
{
    struct cache_case *t = case_make(1);
    const char *dir = t->dir[0];
    char real[PATH_BYTES], slab[PATH_BYTES];

    (void)state;
    snprintf(real, sizeof real, "%s.real", dir);
    path_of(t, "slab", slab);
    assert_int_equal(mkdir(dir, 0755), 0);
    expect_refusal(t, ERR_DENIED, "chmod go=");
    assert_int_equal(rename(dir, real), 0);
    assert_int_equal(chmod(real, 0700), 0);
    assert_int_equal(symlink(real, dir), 0);
    expect_refusal(t, ERR_DENIED, "symbolic link");
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(rename(real, dir), 0);
    assert_int_equal(symlink("/etc/passwd", slab), 0);
    assert_true(case_open(t) != OK);
    remove_file(t, "slab");
    assert_int_equal(case_open(t), OK);
    case_end(t);
}

static void a_disk_too_small_says_how_much_is_there(void **state)
{
    struct cache_case *t = case_make(1);

    (void)state;
    t->config.cache_size.bytes = 1000 * TIB;
    expect_refusal(t, ERR_FULL, "MiB are free");
    t->config.cache_size = (struct conf_size){.percent = 50};
    t->config.cache_min_free = 1000 * TIB;
    expect_refusal(t, ERR_FULL, "cache.min_free");
    t->config.cache_min_free = 0;
    t->config.cache_size = (struct conf_size){.bytes = 256 * MIB};
    assert_int_equal(case_open(t), OK);
    case_end(t);
}

static void expect_capacity(struct cache_case *t, uint64_t bytes)
{
    struct cache_status s;
    struct stat slab;

    cache_status(t->c, &s);
    assert_int_equal(s.capacity_bytes, bytes);
    assert_int_equal(fstat(t->c->dir[0].slab_fd, &slab), 0);
    assert_int_equal(slab.st_size, bytes);
}

static void a_bigger_size_keeps_all_that_is_there(void **state)
{
    struct cache_case *t = open_case(1);

    (void)state;
    fill_objects(t, OBJECTS);
    case_close(t);
    t->config.cache_size.bytes = CASE_SLAB + 64 * MIB;
    assert_int_equal(case_open(t), OK);
    expect_capacity(t, CASE_SLAB + 64 * MIB);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), 0);
    /* More than there is room for: all stays as it is. */
    case_close(t);
    t->config.cache_size.bytes = 1000 * TIB;
    assert_int_equal(case_open(t), OK);
    expect_capacity(t, CASE_SLAB + 64 * MIB);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    case_end(t);
}

static void a_smaller_size_loses_only_what_it_cuts_off(void **state)
{
    struct cache_case *t = open_case(1);
    enum { CUT = 24 };               /* chunks of a page each */
    const uint64_t small = 128 * MIB;

    (void)state;
    for (unsigned i = 0; i < CUT; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_learn(t, key, "\"1\"", CHUNK_BYTES);
        assert_int_equal(case_fill(t, o, 0), OK);
        object_drop(t->c, o);
    }
    assert_int_equal(count_readable(t, CUT), CUT);
    case_close(t);
    t->config.cache_size.bytes = small;
    assert_int_equal(case_open(t), OK);
    expect_capacity(t, small);
    unsigned left = count_readable(t, CUT);
    assert_true(left >= 10 && left <= small / CHUNK_BYTES);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), left * CHUNK_BYTES);
    case_reopen(t);
    assert_int_equal(count_readable(t, CUT), left);
    /* And there is room again. */
    case_close(t);
    t->config.cache_size.bytes = CASE_SLAB;
    assert_int_equal(case_open(t), OK);
    expect_capacity(t, CASE_SLAB);
    assert_int_equal(count_readable(t, CUT), left);
    case_end(t);
}

/* ---- several directories ---- */
static void chunks_spread_and_come_back_from_all_directories(void **state)
{
    struct cache_case *t = open_case(3);

    (void)state;
    fill_objects(t, 120);
    for (unsigned i = 0; i < 3; i++)
        assert_true(space_used_bytes(t->c->dir[i].space) > 20 * 200000);
    case_reopen(t);
    assert_int_equal(count_objects(t, 120, 0), 120);
    assert_int_equal(count_objects(t, 120, OBJECT_DOUBT), 0);
    /* In another order they are the same directories. */
    case_close(t);
    char *first = t->config.cache_dirs.item[0];
    t->config.cache_dirs.item[0] = t->config.cache_dirs.item[2];
    t->config.cache_dirs.item[2] = first;
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, 120, 0), 120);
    case_end(t);
}

/* Upstream says of all that is known that it is current. */
static void confirm_all(struct cache_case *t)
{
    for (unsigned i = 0; i < OBJECTS; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_find(t, key);
        if (!o)
            continue;
        object_drop(t->c, o);
        object_drop(t->c, case_learn(t, key, "\"1\"", 200000 + i));
    }
}

static void a_directory_that_missed_a_session_is_doubted_until_confirmed(void **state)
{
    struct cache_case *t = open_case(2);

    (void)state;
    fill_objects(t, OBJECTS);
    uint64_t away = atomic_load(&t->c->object_count);
    case_close(t);
    t->config.cache_dirs.count = 1;
    assert_int_equal(case_open(t), OK);
    away -= atomic_load(&t->c->object_count);
    assert_true(away > 5);
    /* The other one may have been in use without this one: it is not believed either. */
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), OBJECTS - away);
    confirm_all(t);
    case_reopen(t);
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), 0);
    case_close(t);
    t->config.cache_dirs.count = 2;
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), away);
    /* Still after one more restart, though now it missed nothing. */
    case_reopen(t);
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), away);
    confirm_all(t);
    case_reopen(t);
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), 0);
    case_end(t);
}

/* With only that directory of two. */
static void open_alone(struct cache_case *t, unsigned dir)
{
    case_close(t);
    t->config.cache_dirs.item[0] = t->dir[dir];
    t->config.cache_dirs.count = 1;
    assert_int_equal(case_open(t), OK);
}

/* One is away while the other one misses a write, and the other way round: neither is believed. */
static void directories_used_without_each_other_are_both_doubted(void **state)
{
    struct cache_case *t = open_case(2);

    (void)state;
    fill_objects(t, OBJECTS);
    open_alone(t, 1);
    confirm_all(t);
    open_alone(t, 0);
    unsigned there = count_objects(t, OBJECTS, 0);
    assert_true(there > 5 && there < OBJECTS);
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), there);
    confirm_all(t);
    case_close(t);
    t->config.cache_dirs.item[0] = t->dir[0];
    t->config.cache_dirs.count = 2;
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), OBJECTS - there);
    case_end(t);
}

static void a_new_directory_beside_the_old_ones_costs_nothing(void **state)
{
    struct cache_case *t = open_case(3);

    (void)state;
    case_close(t);
    scratch_remove(t->dir[2]);
    t->config.cache_dirs.count = 2;
    assert_int_equal(case_open(t), OK);
    fill_objects(t, OBJECTS);
    case_close(t);
    t->config.cache_dirs.count = 3;
    assert_int_equal(case_open(t), OK);
    assert_int_equal(count_objects(t, OBJECTS, 0), OBJECTS);
    assert_int_equal(count_objects(t, OBJECTS, OBJECT_DOUBT), 0);
    case_end(t);
}

static void no_directory_means_ram_only(void **state)
{
    struct cache_case *t = open_case(0);
    struct object *o = case_learn(t, "a", "\"1\"", 5);
    struct chunk *k;

    (void)state;
    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), ERR_FULL);
    object_drop(t->c, o);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_present_after_a_proper_end),
        cmocka_unit_test(committed_objects_survive_kill_9),
        cmocka_unit_test(doubt_survives),
        cmocka_unit_test(a_check_ahead_of_the_clock_ends_with_the_next_answer),
        cmocka_unit_test(forgotten_and_replaced_objects_stay_away),
        cmocka_unit_test(a_directory_in_use_is_refused_at_once),
        cmocka_unit_test(a_removed_lock_file_lets_nobody_in),
        cmocka_unit_test(a_newer_format_is_left_untouched),
        cmocka_unit_test(foreign_directories_are_refused),
        cmocka_unit_test(a_directory_of_something_else_is_not_taken),
        cmocka_unit_test(open_modes_and_links_are_refused),
        cmocka_unit_test(a_disk_too_small_says_how_much_is_there),
        cmocka_unit_test(chunks_spread_and_come_back_from_all_directories),
        cmocka_unit_test(a_directory_that_missed_a_session_is_doubted_until_confirmed),
        cmocka_unit_test(directories_used_without_each_other_are_both_doubted),
        cmocka_unit_test(a_new_directory_beside_the_old_ones_costs_nothing),
        cmocka_unit_test(a_bigger_size_keeps_all_that_is_there),
        cmocka_unit_test(a_smaller_size_loses_only_what_it_cuts_off),
        cmocka_unit_test(no_directory_means_ram_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
