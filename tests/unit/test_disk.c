/* Disks that hang, fail and are fenced, as the cache sees them: late transfers, the quarantine,
 * chunks that move to another disk, tests of the real directory.
 *
 * Life: a cache over temporary directories for each test; the test turns the core's clock.
 * Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/upload_case.h"

#include "server/cache/keeper.c"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct cache_case *open_case(unsigned dirs, uint64_t timeout_ms)
{
    struct cache_case *t = case_make(dirs);

    t->config.cache_disk_timeout = timeout_ms;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    return t;
}

static void turn(struct cache_case *t, uint64_t ms)
{
    struct keeper *self = keeper_of(&t->core);

    t->core.now_us += ms * 1000;
    self->timer.at_ms = 0;
    assert_int_equal(keeper_run(&self->m), WAIT);
}

static enum disk_state state_of(struct cache_case *t, unsigned dir)
{
    struct cache_status s;

    cache_status(t->c, &s);
    return s.disk[dir].state;
}

static struct object *filled(struct cache_case *t, const char *key, uint64_t size)
{
    struct object *o = case_learn(t, key, "\"1\"", size);

    assert_int_equal(case_fill(t, o, 0), OK);
    return o;
}

static struct transfer *hang(struct cache_case *t, struct chunk *k, struct buffer *b)
{
    case_hang_next = true;
    struct transfer *read = chunk_read(&t->machine, k, 0, BLOCK_BYTES, b);
    assert_non_null(read);
    assert_false(transfer_ended(read));
    return read;
}

static uint64_t held_bytes(struct cache_case *t)
{
    struct pool_status s;

    pool_status(cache_pool(t->c), &s);
    return s.held_bytes;
}

static void a_read_that_hangs_is_left_and_its_memory_kept(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", BLOCK_BYTES), *other = case_learn(t, "b", "\"2\"", 1);
    struct chunk *k = chunk_find(t->c, o->data_id, 0), *new_;
    struct directory *d = &t->c->dir[0];
    struct buffer *b = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND);

    (void)state;
    struct transfer *read = hang(t, k, b);
    turn(t, 999);
    assert_false(transfer_ended(read));
    turn(t, 2);
    assert_true(transfer_ended(read));
    assert_int_equal(chunk_read_done(read), ERR_TIMEOUT);
    pool_give(t->c, b);
    chunk_drop(t->c, k);
    /* Suspect: nothing new is begun, what it holds is missed, and not lost. */
    assert_int_equal(state_of(t, 0), DISK_SUSPECT);
    assert_int_equal(atomic_load(&d->disk.stuck_ops), 1);
    assert_int_equal(atomic_load(&d->disk.quarantined_bytes), BLOCK_BYTES);
    assert_int_equal(held_bytes(t), BLOCK_BYTES);
    assert_int_equal(case_read(t, o, 0, 0), ERR_NOT_FOUND);
    k = chunk_find(t->c, o->data_id, 0);
    assert_null(chunk_read(&t->machine, k, 0, BLOCK_BYTES, b));
    chunk_drop(t->c, k);
    assert_int_equal(chunk_admit(t->c, other, 0, case_asked, &new_), ERR_FULL);
    /* Its slot stays with it, whatever becomes of the object. */
    cache_forget(t->c, other);
    uint64_t used = space_used_bytes(d->space);
    assert_true(used >= BLOCK_BYTES);
    case_release();
    turn(t, 1);
    assert_int_equal(held_bytes(t), 0);
    assert_int_equal(atomic_load(&d->disk.stuck_ops), 0);
    AWAIT(state_of(t, 0) == DISK_UP);
    assert_int_equal(case_read(t, o, 0, 0), OK);
    object_drop(t->c, o);
    object_drop(t->c, other);
    case_end(t);
}

/* Only that place is slow: it is given up, the disk is not. */
static void a_slow_place_on_a_disk_that_answers(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 2 * BLOCK_BYTES);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    struct buffer *b = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND);

    (void)state;
    struct transfer *read = hang(t, k, b);
    turn(t, 500);
    assert_int_equal(case_read(t, o, 0, 1), OK);
    turn(t, 501);
    assert_int_equal(chunk_read_done(read), ERR_TIMEOUT);
    assert_int_equal(state_of(t, 0), DISK_UP);
    assert_int_equal(chunk_present(t->c, k), 2);
    assert_int_equal(atomic_load(&t->c->dir[0].read_errors), 1);
    case_release();
    turn(t, 1);
    assert_int_equal(atomic_load(&t->c->dir[0].disk.stuck_ops), 0);
    pool_give(t->c, b);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    case_end(t);
}

/* Its owner saw that it came, and compares its bytes later: the disk answers all the same. */
static void a_read_that_came_and_is_judged_later(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 2 * BLOCK_BYTES);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    struct buffer *b[2] = {pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND),
                           pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND)};

    (void)state;
    struct transfer *late = hang(t, k, b[0]);
    turn(t, 500);
    struct transfer *came = chunk_read(&t->machine, k, BLOCK_BYTES, BLOCK_BYTES, b[1]);
    assert_false(chunk_read_came(came));
    AWAIT(transfer_ended(came));
    assert_true(chunk_read_came(came));
    uint64_t seen_us = came->ended_us;
    turn(t, 501);
    assert_true(transfer_ended(late));
    assert_false(chunk_read_came(late));
    assert_int_equal(state_of(t, 0), DISK_UP);
    AWAIT(clock_us() > seen_us);
    assert_true(transfer_ended(came));
    assert_int_equal(came->ended_us, seen_us);
    assert_int_equal(chunk_read_done(came), OK);
    assert_int_equal(chunk_read_done(late), ERR_TIMEOUT);
    assert_int_equal(state_of(t, 0), DISK_UP);
    case_release();
    turn(t, 1);
    pool_give(t->c, b[0]);
    pool_give(t->c, b[1]);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    case_end(t);
}

static void without_a_limit_nothing_is_late(void **state)
{
    struct cache_case *t = open_case(1, 0);
    struct object *o = filled(t, "a", BLOCK_BYTES);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    struct buffer *b = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND);

    (void)state;
    struct transfer *read = hang(t, k, b);
    turn(t, 3600 * 1000);
    assert_false(transfer_ended(read));
    case_release();
    assert_true(transfer_ended(read));
    assert_int_equal(chunk_read_done(read), OK);
    pool_give(t->c, b);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    case_end(t);
}

/* The answer comes between the deadline and the owner's look: late all the same, and given back
 * once. */
static void an_answer_that_comes_just_behind_the_deadline(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", BLOCK_BYTES);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    struct buffer *b = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND);

    (void)state;
    struct transfer *read = hang(t, k, b);
    turn(t, 1001);
    case_release();
    turn(t, 1);
    transfer_drop(read);
    assert_int_equal(atomic_load(&t->c->dir[0].disk.stuck_ops), 0);
    pool_give(t->c, b);
    assert_int_equal(held_bytes(t), 0);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    case_end(t);
}

static void what_a_fenced_disk_held_is_fetched_to_another(void **state)
{
    struct cache_case *t = open_case(2, 1000);
    struct object *o = filled(t, "a", BLOCK_BYTES);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    unsigned dir = k->slot.dir;

    (void)state;
    assert_false(cache_disk_fence(t->c, "/nowhere"));
    assert_true(cache_disk_fence(t->c, t->dir[dir]));
    assert_int_equal(state_of(t, dir), DISK_FENCED);
    assert_int_equal(chunk_present(t->c, k), 0);
    chunk_drop(t->c, k);
    assert_int_equal(case_read(t, o, 0, 0), ERR_NOT_FOUND);
    assert_int_equal(case_fill(t, o, 0), OK);
    assert_int_equal(case_read(t, o, 0, 0), OK);
    k = chunk_find(t->c, o->data_id, 0);
    assert_int_equal(k->slot.dir, !dir);
    chunk_drop(t->c, k);
    /* The old place is free, and after a restart there is one. */
    case_settle(t);
    assert_int_equal(space_used_bytes(t->c->dir[dir].space), 0);
    case_reopen(t);
    object_drop(t->c, case_find(t, "a"));
    o = case_find(t, "a");
    assert_int_equal(case_read(t, o, 0, 0), OK);
    object_drop(t->c, o);
    case_end(t);
}

static void five_failed_reads_fence_and_tests_bring_it_back(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 6 * (uint64_t)BLOCK_BYTES);

    (void)state;
    for (unsigned block = 0; block < 5; block++) {
        case_fail_next = -EIO;
        assert_int_equal(case_read(t, o, 0, block), ERR_DISK);
    }
    assert_int_not_equal(state_of(t, 0), DISK_UP);
    AWAIT(state_of(t, 0) == DISK_PROBATION);
    assert_int_equal(case_read(t, o, 0, 5), ERR_NOT_FOUND);
    AWAIT(state_of(t, 0) == DISK_UP);
    assert_int_equal(case_read(t, o, 0, 5), OK);
    object_drop(t->c, o);
    case_end(t);
}

/* The bytes are lost, the disk is not: nothing is fenced, and what is fetched again is held. */
static void a_slab_that_was_cut_is_damage_and_no_failing_disk(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 6 * (uint64_t)BLOCK_BYTES);
    struct directory *d = &t->c->dir[0];
    struct stat st;

    (void)state;
    assert_int_equal(fstat(d->slab_fd, &st), 0);
    assert_int_equal(ftruncate(d->slab_fd, 0), 0);
    for (unsigned block = 0; block < 6; block++)
        assert_int_equal(case_read(t, o, 0, block), ERR_CHECKSUM);
    assert_int_equal(state_of(t, 0), DISK_UP);
    assert_int_equal(atomic_load(&d->checksum_failures), 6);
    object_drop(t->c, o);
    o = filled(t, "a", 6 * (uint64_t)BLOCK_BYTES);
    assert_int_equal(case_read(t, o, 0, 5), OK);
    /* For other reasons under test, it is found cut, and as long as before again. */
    assert_int_equal(ftruncate(d->slab_fd, 0), 0);
    for (unsigned error = 0; error < 5; error++)
        disk_error(d);
    AWAIT(state_of(t, 0) == DISK_UP);
    off_t before = st.st_size;
    assert_int_equal(fstat(d->slab_fd, &st), 0);
    assert_true(st.st_size == before);
    object_drop(t->c, o);
    case_end(t);
}

static enum disk_cause cause_of_dir(struct cache_case *t);

/* Others come back, so that it would stay in use; but what hangs keeps too much by now. */
static void what_hangs_may_keep_an_eighth_of_the_memory(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 2 * BLOCK_BYTES);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    struct buffer *b = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND);
    struct disk *s = &t->c->dir[0].disk;

    (void)state;
    atomic_store(&s->quarantined_bytes, t->config.cache_memory / 8); /* of earlier ones */
    struct transfer *read = hang(t, k, b);
    turn(t, 500);
    assert_int_equal(case_read(t, o, 0, 1), OK);
    turn(t, 501);
    assert_int_equal(chunk_read_done(read), ERR_TIMEOUT);
    assert_int_equal(state_of(t, 0), DISK_FENCED);
    assert_int_equal(cause_of_dir(t), DISK_HOLDS);
    assert_null(chunk_read(&t->machine, k, BLOCK_BYTES, BLOCK_BYTES, b));
    atomic_fetch_sub(&s->quarantined_bytes, t->config.cache_memory / 8);
    case_release();
    turn(t, 1);
    AWAIT(state_of(t, 0) == DISK_UP);
    pool_give(t->c, b);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    case_end(t);
}

static enum disk_cause cause_of_dir(struct cache_case *t)
{
    pthread_mutex_lock(&t->c->dir[0].disk.lock);
    enum disk_cause cause = t->c->dir[0].disk.health.cause;
    pthread_mutex_unlock(&t->c->dir[0].disk.lock);
    return cause;
}

/* Another directory stands at its path: it says so and stays out, until the right one is back. */
static void a_directory_that_was_replaced_stays_fenced(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 6 * (uint64_t)BLOCK_BYTES);
    char aside[120];

    (void)state;
    snprintf(aside, sizeof aside, "%s.aside", t->dir[0]);
    assert_int_equal(rename(t->dir[0], aside), 0);
    assert_int_equal(mkdir(t->dir[0], 0700), 0);
    for (unsigned block = 0; block < 5; block++) {
        case_fail_next = -EIO;
        assert_int_equal(case_read(t, o, 0, block), ERR_DISK);
    }
    AWAIT(cause_of_dir(t) == DISK_REPLACED);
    assert_int_equal(state_of(t, 0), DISK_FENCED);
    assert_int_equal(rmdir(t->dir[0]), 0);
    assert_int_equal(rename(aside, t->dir[0]), 0);
    AWAIT(state_of(t, 0) == DISK_UP);
    assert_int_equal(case_read(t, o, 0, 5), OK);
    object_drop(t->c, o);
    case_end(t);
}

/* All of it at once, as a mount brings it. */
static void copy_dir(const char *from, const char *to)
{
    char copy[140];
    int status;

    snprintf(copy, sizeof copy, "%s.copy", to);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("cp", "cp", "-a", "--sparse=always", from, copy, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(rename(copy, to), 0);
}

static void fail_reads(struct cache_case *t, struct object *o)
{
    for (unsigned block = 0; block < 5; block++) {
        case_fail_next = -EIO;
        assert_int_equal(case_read(t, o, 0, block), ERR_DISK);
    }
}

/* As a file system is that was mounted again: all in it is as it was, and no open file leads
 * there. */
static void a_directory_on_a_file_system_that_came_back_is_taken_again(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 6 * (uint64_t)BLOCK_BYTES), *b;
    char aside[120], slab[140];
    struct stat there, ours;

    (void)state;
    case_settle(t);
    snprintf(aside, sizeof aside, "%s.aside", t->dir[0]);
    assert_int_equal(rename(t->dir[0], aside), 0);
    fail_reads(t, o);
    AWAIT(cause_of_dir(t) == DISK_REPLACED);
    /* Until its files are closed what is committed reaches them, and would not be in the copy. */
    AWAIT(__atomic_load_n(&t->c->dir[0].away, __ATOMIC_ACQUIRE));
    /* What changes meanwhile is so on the disk afterwards: what is known of a chunk since some
     * reads of it failed, and that its object is doubtful. */
    uint64_t errors = atomic_load(&t->c->dir[0].index_errors);
    chunk_filled(t->c, chunk_find(t->c, o->data_id, 0));
    AWAIT(atomic_load(&t->c->dir[0].index_errors) > errors);
    cache_doubt(t->c, o);
    copy_dir(aside, t->dir[0]);
    scratch_remove(aside);
    AWAIT(state_of(t, 0) == DISK_UP);
    snprintf(slab, sizeof slab, "%s/slab", t->dir[0]);
    assert_int_equal(stat(slab, &there), 0);
    assert_int_equal(fstat(t->c->dir[0].slab_fd, &ours), 0);
    assert_int_equal(there.st_ino, ours.st_ino);
    assert_int_equal(case_read(t, o, 0, 5), OK);
    object_drop(t->c, o);
    b = filled(t, "b", 5000);
    object_drop(t->c, b);
    assert_int_equal(atomic_load(&t->c->dir[0].index_moved), 0);
    case_reopen(t);
    o = case_find(t, "a");
    b = case_find(t, "b");
    assert_non_null(o);
    assert_non_null(b);
    assert_true(atomic_load(&o->flags) & OBJECT_DOUBT);
    assert_int_equal(case_read(t, o, 0, 5), OK);
    assert_int_equal(case_read(t, b, 0, 0), OK);
    object_drop(t->c, o);
    object_drop(t->c, b);
    case_end(t);
}

/* Another server had it meanwhile, or its index is gone: what stands in RAM and verifies is right;
 * the index is written from that. */
static void a_directory_whose_index_changed_meanwhile_gets_another(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 6 * (uint64_t)BLOCK_BYTES);
    char aside[120], index[140];

    (void)state;
    case_settle(t);
    snprintf(aside, sizeof aside, "%s.aside", t->dir[0]);
    assert_int_equal(rename(t->dir[0], aside), 0);
    fail_reads(t, o);
    AWAIT(cause_of_dir(t) == DISK_REPLACED);
    snprintf(index, sizeof index, "%s/index/data.mdb", aside);
    assert_int_equal(unlink(index), 0);
    copy_dir(aside, t->dir[0]);
    scratch_remove(aside);
    AWAIT(state_of(t, 0) == DISK_UP && !journal_is_lost(t->c->dir[0].journal));
    assert_int_equal(case_read(t, o, 0, 5), OK);
    object_drop(t->c, o);
    AWAIT(!t->c->dir[0].disk.busy);
    case_settle(t);
    case_reopen(t);
    o = case_find(t, "a");
    assert_non_null(o);
    assert_int_equal(case_read(t, o, 0, 5), OK);
    object_drop(t->c, o);
    case_end(t);
}

/* The writer hung when it was told to close the index, and does so when all is well again: nobody
 * waits for it any more. */
static void an_index_that_was_closed_too_late_is_opened_again(void **state)
{
    struct cache_case *t = open_case(1, 1000);
    struct object *o = filled(t, "a", 5000), *b;
    struct directory *d = &t->c->dir[0];

    (void)state;
    case_settle(t);
    d->left = true;
    assert_int_equal(journal_obey(d->journal, JOURNAL_LEAVE), OK);
    disk_ask(d);
    b = filled(t, "b", 5000);
    AWAIT(journal_env(d->journal));
    case_settle(t);
    assert_int_equal(state_of(t, 0), DISK_UP);
    assert_false(journal_is_lost(d->journal));
    object_drop(t->c, o);
    object_drop(t->c, b);
    case_reopen(t);
    o = case_find(t, "a");
    b = case_find(t, "b");
    assert_non_null(o);
    assert_non_null(b);
    object_drop(t->c, o);
    object_drop(t->c, b);
    case_end(t);
}

/* How many of an object's chunks are let in, none of them by that directory. */
static unsigned let_in(struct cache_case *t, struct chunk_asked asked, unsigned not_by)
{
    enum { CHUNKS = 16 };
    struct object *o = case_learn(t, "a", "\"1\"", CHUNKS * (uint64_t)CHUNK_BYTES);
    unsigned in = 0;

    for (unsigned n = 0; n < CHUNKS; n++) {
        struct chunk *k;
        enum err err = chunk_admit(t->c, o, n, asked, &k);
        if (err == OK) {
            assert_int_not_equal(k->slot.dir, not_by);
            struct index_shard *stripe = index_shard(t->c->stripe, o->id);
            pthread_mutex_lock(&stripe->lock);
            assert_true(chunk_remove(t->c, k, true, EVICT_REQUEST));
            pthread_mutex_unlock(&stripe->lock);
            chunk_drop(t->c, k);
            in++;
        } else {
            assert_int_equal(err, ERR_BEHIND);
        }
    }
    object_drop(t->c, o);
    return in;
}

static void writes_take(struct directory *d, uint64_t us)
{
    for (unsigned i = 0; i < 40; i++)
        disk_write_took(d, us);
}

static void what_nobody_wished_for_passes_a_disk_that_is_behind(void **state)
{
    enum { NONE = 9, SLOW_US = 400000, SOON_US = 1000, LEFT = 7 };
    struct cache_case *t = case_make(2);
    struct chunk_asked kept = {.bytes = CHUNK_BYTES, .keep = true}, spare = {.spare = true};
    struct chunk_asked late = {.bytes = CHUNK_BYTES, .behind = true};
    struct chunk_asked put = {.bytes = CHUNK_BYTES, .keep = true, .upload = true};
    struct buffer *b[64];
    unsigned count = 0;

    (void)state;
    t->config.cache_memory = 64 * MIB;
    t->config.cache_max_write_delay = 250;
    assert_int_equal(case_open(t), OK);
    struct directory *d = &t->c->dir[0];
    uint32_t share = (uint32_t)pool_share_bytes(cache_pool(t->c), BUFFER_FILL);
    disk_write_begun(d, share / 2 + 1);  /* much, but it is fast */
    writes_take(d, SOON_US);
    assert_false(cache_is_behind(t->c));
    assert_int_equal(let_in(t, case_asked, NONE), 16);
    writes_take(d, SLOW_US);
    assert_true(cache_is_behind(t->c));
    assert_in_range(let_in(t, case_asked, 0), 1, 15); /* by the other one */
    assert_in_range(let_in(t, put, 0), 1, 15);
    assert_int_equal(let_in(t, kept, NONE), 16);
    assert_int_equal(let_in(t, spare, NONE), 16);
    disk_write_ended(d, share / 4);  /* slow, but there is room for others */
    assert_int_equal(let_in(t, case_asked, NONE), 16);
    while (pool_share_left(cache_pool(t->c), BUFFER_FILL) >= LEFT * (uint64_t)MIB)
        assert_non_null(b[count++] = pool_take(t->c, BLOCK_BYTES, BUFFER_FILL));
    assert_in_range(let_in(t, case_asked, 0), 1, 15);
    /* Nothing is under way: whether it is slow still, the next one will tell. */
    disk_write_ended(d, share / 2 + 1 - share / 4);
    assert_false(cache_is_behind(t->c));
    assert_int_equal(let_in(t, case_asked, NONE), 16);
    assert_int_equal(let_in(t, late, NONE), 0); /* who fills says that it is behind */
    while (count > 0)
        pool_give(t->c, b[--count]);
    case_end(t);
}

/* All blocks of a chunk begin to be written; four of them are under way at first. */
struct writing {
    struct cache_case *t;
    struct object *object;
    struct chunk *chunk;
    struct buffer *buffer[BLOCKS_PER_CHUNK];
    struct transfer *write[BLOCKS_PER_CHUNK];
};

static struct writing begin_writing(void)
{
    struct cache_case *t = open_case(1, 1000);
    struct writing w = {.t = t, .object = case_learn(t, "a", "\"1\"", CHUNK_BYTES)};

    assert_int_equal(chunk_admit(t->c, w.object, 0, case_asked, &w.chunk), OK);
    case_hold_writes = true;
    for (unsigned i = 0; i < BLOCKS_PER_CHUNK; i++) {
        w.buffer[i] = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND);
        memset(w.buffer[i]->mem, (int)i, BLOCK_BYTES);
        w.write[i] = chunk_write(&t->machine, w.chunk, i, w.buffer[i], false);
        assert_non_null(w.write[i]);
    }
    assert_int_equal(case_held_count, 4);
    assert_int_equal(t->machine.inflight, BLOCKS_PER_CHUNK - 4);
    return w;
}

static enum err end_write(struct writing *w, unsigned i)
{
    assert_true(transfer_ended(w->write[i]));
    enum err err = chunk_write_done(w->write[i]);
    pool_give(w->t->c, w->buffer[i]);
    return err;
}

static void end_writing(struct writing *w)
{
    assert_int_equal(w->t->machine.inflight, 0);
    chunk_filled(w->t->c, w->chunk);
    object_drop(w->t->c, w->object);
    case_hold_writes = false;
    case_end(w->t);
}

static void writes_wait_for_those_before_them(void **state)
{
    struct writing w = begin_writing();

    (void)state;
    turn(w.t, 10);
    case_release_write();            /* it was quick: another one, and one more */
    assert_int_equal(end_write(&w, 0), OK);
    assert_int_equal(case_held_count, 5);
    turn(w.t, 300);
    case_release_write();            /* that was slow: half of them */
    assert_int_equal(end_write(&w, 1), OK);
    assert_int_equal(case_held_count, 4);
    case_release_write();            /* this one was begun before that was known */
    assert_int_equal(end_write(&w, 2), OK);
    assert_int_equal(case_held_count, 4);
    /* The last one comes after a deadline's time, half of which it waited for: it is not late. */
    for (unsigned i = 3; i < BLOCKS_PER_CHUNK; i++) {
        turn(w.t, 200);
        case_release_write();
        assert_int_equal(end_write(&w, i), OK);
    }
    assert_int_equal(state_of(w.t, 0), DISK_UP);
    assert_int_equal(atomic_load(&w.t->c->dir[0].disk.late_ops), 0);
    end_writing(&w);
}

static void what_waits_to_be_written_on_a_disk_that_hangs_comes_back(void **state)
{
    struct writing w = begin_writing();
    struct directory *d = &w.t->c->dir[0];

    (void)state;
    turn(w.t, 1001);
    for (unsigned i = 0; i < BLOCKS_PER_CHUNK; i++)
        assert_int_equal(end_write(&w, i), i < 4 ? ERR_TIMEOUT : ERR_CANCELLED);
    assert_int_equal(state_of(w.t, 0), DISK_SUSPECT);
    assert_false(directory_is_quiet(d)); /* the kernel has four still */
    while (case_held_count > 0)
        case_release_write();
    turn(w.t, 1);
    assert_true(directory_is_quiet(d));
    end_writing(&w);
}

/* An object of some blocks, whose writes wait behind those. */
static struct upload *begin_put_of(struct writing *w, const char *key, unsigned blocks,
                                   struct upload_stream *s)
{
    struct okey k = case_key(w->t, key);
    struct upload_place place;
    struct upload *u = upload_make(w->t->c, &k, blocks * BLOCK_BYTES, &place);

    assert_non_null(u);
    upload_stream_begin(s, w->t->c, &place, &w->t->machine, blocks * BLOCK_BYTES);
    upload_case_send(s, 1, 0, blocks * BLOCK_BYTES);
    return u;
}

static struct upload *begin_put(struct writing *w, const char *key, struct upload_stream *s)
{
    return begin_put_of(w, key, 1, s);
}

static void an_upload_does_not_wait_for_what_others_write(void **state)
{
    enum { QUEUED = BLOCKS_PER_CHUNK - 4 };
    struct writing w = begin_writing();
    struct upload_stream first = {0}, last = {0};

    (void)state;
    struct upload *one = begin_put(&w, "one", &first);
    turn(w.t, 100);
    struct upload *two = begin_put(&w, "two", &last);
    assert_int_equal(w.t->machine.inflight, QUEUED + 2);
    assert_false(upload_stream_over(&first));
    assert_in_range(first.timer.at_ms, 150, 160);
    turn(w.t, 140);
    assert_false(upload_stream_over(&first));
    turn(w.t, 20);
    assert_true(upload_stream_over(&first));
    assert_int_equal(first.timer.at_ms, 0);
    assert_false(upload_stream_over(&last)); /* there is time yet */
    assert_int_equal(w.t->machine.inflight, QUEUED + 1);
    for (unsigned i = 0; i < BLOCKS_PER_CHUNK; i++) {
        case_release_write();
        assert_int_equal(end_write(&w, i), OK);
    }
    assert_int_equal(case_held_count, 1); /* now it is the disk's, until that is late */
    turn(w.t, 300);
    assert_false(upload_stream_over(&last));
    case_release_write();
    assert_true(upload_stream_over(&last));
    assert_int_equal(atomic_load(&w.t->c->dir[0].disk.writing_bytes), 0);
    upload_drop(w.t->c, one);
    upload_drop(w.t->c, two);
    end_writing(&w);
}

/* What waited behind the last writes of an upload came back as these ended, on a disk that was
 * taken out meanwhile; the timer of that wait rang when the request was over. */
static void an_upload_that_is_over_has_no_timer_left(void **state)
{
    enum { BLOCKS = 3, LEFT = 3 };
    struct writing w = begin_writing();
    struct upload_stream s = {0};
    unsigned i = 0;

    (void)state;
    for (; i < BLOCKS_PER_CHUNK - LEFT; i++) {
        turn(w.t, 150);              /* so slow that no more than four are begun at once */
        case_release_write();
        assert_int_equal(end_write(&w, i), OK);
    }
    struct upload *u = begin_put_of(&w, "put", BLOCKS, &s);
    assert_int_equal(case_held_count, LEFT + 1);
    assert_false(upload_stream_over(&s));
    assert_true(s.timer.at_ms > 0);
    assert_true(cache_disk_fence(w.t->c, w.t->dir[0]));
    while (case_held_count > 0)
        case_release_write();
    assert_true(upload_stream_over(&s));
    assert_int_equal(s.timer.at_ms, 0);
    for (; i < BLOCKS_PER_CHUNK; i++)
        assert_int_equal(end_write(&w, i), OK);
    upload_drop(w.t->c, u);
    end_writing(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_that_hangs_is_left_and_its_memory_kept),
        cmocka_unit_test(a_slow_place_on_a_disk_that_answers),
        cmocka_unit_test(a_read_that_came_and_is_judged_later),
        cmocka_unit_test(what_hangs_may_keep_an_eighth_of_the_memory),
        cmocka_unit_test(without_a_limit_nothing_is_late),
        cmocka_unit_test(an_answer_that_comes_just_behind_the_deadline),
        cmocka_unit_test(what_a_fenced_disk_held_is_fetched_to_another),
        cmocka_unit_test(five_failed_reads_fence_and_tests_bring_it_back),
        cmocka_unit_test(a_slab_that_was_cut_is_damage_and_no_failing_disk),
        cmocka_unit_test(a_directory_that_was_replaced_stays_fenced),
        cmocka_unit_test(a_directory_on_a_file_system_that_came_back_is_taken_again),
        cmocka_unit_test(a_directory_whose_index_changed_meanwhile_gets_another),
        cmocka_unit_test(an_index_that_was_closed_too_late_is_opened_again),
        cmocka_unit_test(what_nobody_wished_for_passes_a_disk_that_is_behind),
        cmocka_unit_test(writes_wait_for_those_before_them),
        cmocka_unit_test(what_waits_to_be_written_on_a_disk_that_hangs_comes_back),
        cmocka_unit_test(an_upload_does_not_wait_for_what_others_write),
        cmocka_unit_test(an_upload_that_is_over_has_no_timer_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
