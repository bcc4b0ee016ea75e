/* CRCs that a start leaves behind: reads that wait for them, chunks that lose them.
 *
 * The thread of the directory reads them only while the gate is open, so that a test can stand
 * where a request stands in the first seconds.
 *
 * Life: each test fills a cache, opens it again with the gate closed, and opens the gate.
 * Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include "server/cache/keeper.c"

static _Atomic bool gate = true;
/* false: as on a full file system, where no new index can be made. */
static _Atomic bool renews = true;

static bool renew(struct directory *d)
{
    if (atomic_load(&renews))
        return index_renew(d);
    d->left = true;                  /* as behind an order that was not obeyed */
    return true;
}

#define sums_wanted(d) (atomic_load(&gate) && (sums_wanted)(d))
#define index_renew(d) renew(d)
#include "server/cache/disk.c"
#undef sums_wanted
#undef index_renew

enum { CHUNKS = 3, DEADLINE_MS = 1000 };

static struct directory *dir(struct cache_case *t)
{
    return &t->c->dir[0];
}

static void open_gate(struct cache_case *t)
{
    atomic_store(&gate, true);
    disk_ask(dir(t));                /* the thread looks again */
}

static uint64_t unread(struct cache_case *t)
{
    struct cache_status s;

    cache_status(t->c, &s);
    return s.disk[0].unread_chunks;
}

static void reopen(struct cache_case *t)
{
    case_settle(t);
    atomic_store(&gate, false);
    case_reopen(t);
    assert_int_equal(unread(t), CHUNKS);
}

/* An object of three chunks, none of which has its CRCs; the last one has two blocks of eight. */
static int begin(void **state)
{
    struct cache_case *t = case_make(1);
    uint64_t size = 2 * CHUNK_BYTES + BLOCK_BYTES + 100000;

    *state = t;
    t->config.cache_disk_timeout = DEADLINE_MS;
    atomic_store(&gate, true);
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    struct object *o = case_learn(t, "a", "\"1\"", size);
    for (unsigned n = 0; n < CHUNKS; n++)
        assert_int_equal(case_fill(t, o, n), OK);
    object_drop(t->c, o);
    reopen(t);
    return 0;
}

static int end(void **state)
{
    atomic_store(&gate, true);
    case_end(*state);
    return 0;
}

struct reading {
    struct chunk *k;
    struct buffer b;
    struct transfer *transfer;
};

static void read_begins(struct cache_case *t, struct object *o, uint64_t number,
                        struct reading *r)
{
    static _Alignas(4096) uint8_t memory[CHUNKS][BLOCK_BYTES];

    *r = (struct reading){.k = chunk_find(t->c, o->data_id, number),
                          .b = {.mem = memory[number], .cap = BLOCK_BYTES}};
    assert_non_null(r->k);
    r->transfer = chunk_read(&t->machine, r->k, 0, BLOCK_BYTES, &r->b);
    assert_non_null(r->transfer);
    assert_false(transfer_ended(r->transfer));
}

static enum err read_ends(struct cache_case *t, struct reading *r)
{
    case_await(t, r->transfer);
    enum err err = chunk_read_done(r->transfer);
    chunk_drop(t->c, r->k);
    return err;
}

static bool is_there(struct cache_case *t, struct object *o, uint64_t number)
{
    struct chunk *k = chunk_find(t->c, o->data_id, number);

    if (k)
        chunk_drop(t->c, k);
    return k != NULL;
}

static void remove_chunk(struct cache_case *t, struct object *o, uint64_t number)
{
    struct index_shard *stripe = index_shard(t->c->stripe, o->id);

    pthread_mutex_lock(&stripe->lock);
    struct chunk *k = chunk_peek(t->c, o->id, o->data_id, number);

    assert_true(chunk_remove(t->c, k, true, EVICT_REQUEST));
    pthread_mutex_unlock(&stripe->lock);
}

/* ---- reads ---- */
static void a_read_in_the_first_seconds_waits_for_its_checksums(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct reading r;

    read_begins(t, o, 1, &r);
    assert_int_equal(t->machine.inflight, 1);
    open_gate(t);
    assert_int_equal(read_ends(t, &r), OK);
    assert_int_equal(t->machine.inflight, 0);
    for (unsigned n = 0; n < CHUNKS; n++)
        for (unsigned b = 0; b < (n == 2 ? 2 : BLOCKS_PER_CHUNK); b++)
            assert_int_equal(case_read(t, o, n, b), OK);
    AWAIT(unread(t) == 0);
    object_drop(t->c, o);
}

/* Many wait at once, also for the same chunk; each is told once. */
static void all_that_wait_are_told(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct reading r[30];

    for (unsigned i = 0; i < ARRAY_COUNT(r); i++)
        read_begins(t, o, i % CHUNKS, &r[i]);
    assert_int_equal(t->machine.inflight, ARRAY_COUNT(r));
    open_gate(t);
    for (unsigned i = 0; i < ARRAY_COUNT(r); i++)
        assert_int_equal(read_ends(t, &r[i]), OK);
    assert_int_equal(t->machine.inflight, 0);
    object_drop(t->c, o);
}

static void damage_is_found_by_checksums_that_came_later(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct chunk *k = chunk_find(t->c, o->data_id, 1);
    struct reading r;

    memset(t->block, 1, GRANULE_BYTES);
    assert_int_equal(pwrite(dir(t)->slab_fd, t->block, GRANULE_BYTES,
                            (off_t)slot_offset(k->slot)),
                     GRANULE_BYTES);
    chunk_drop(t->c, k);
    read_begins(t, o, 1, &r);
    open_gate(t);
    assert_int_equal(read_ends(t, &r), ERR_CHECKSUM);
    assert_int_equal(case_read(t, o, 1, 0), ERR_NOT_FOUND);
    assert_int_equal(case_read(t, o, 1, 1), OK);
    object_drop(t->c, o);
}

/* Nothing waits for longer than for a disk that hangs. */
static void who_waits_for_too_long_goes_on_without(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct keeper *self = keeper_of(&t->core);
    struct buffer *b = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    struct transfer *read = chunk_read(&t->machine, k, 0, BLOCK_BYTES, b);

    assert_false(transfer_ended(read));
    t->core.now_us += (DEADLINE_MS + 1) * 1000;
    assert_int_equal(keeper_run(&self->m), WAIT);
    assert_true(transfer_ended(read));
    assert_int_equal(t->machine.inflight, 0);
    assert_int_equal(self->m.inflight, 1);
    assert_int_equal(chunk_read_done(read), ERR_TIMEOUT);
    pool_give(t->c, b);
    chunk_drop(t->c, k);
    open_gate(t);
    AWAIT(atomic_load(&case_sent) != NULL);
    case_deliver(t);
    assert_int_equal(keeper_run(&self->m), WAIT);
    assert_int_equal(self->m.inflight, 0);
    assert_int_equal(atomic_load(&dir(t)->disk.stuck_ops), 0);
    assert_int_equal(atomic_load(&dir(t)->disk.quarantined_bytes), 0);
    assert_false(is_there(t, o, 0)); /* the next one is not to wait as long */
    assert_int_equal(case_read(t, o, 1, 0), OK);
    object_drop(t->c, o);
}

/* Five slow waits must not fence a disk that answered each read. */
static void who_waits_for_too_long_says_nothing_of_the_disk(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct keeper *self = keeper_of(&t->core);
    struct cache_status s;

    for (unsigned n = 0; n < CHUNKS; n++) {
        struct buffer *b = pool_take(t->c, BLOCK_BYTES, BUFFER_DEMAND);
        struct chunk *k = chunk_find(t->c, o->data_id, n);
        struct transfer *read = chunk_read(&t->machine, k, 0, BLOCK_BYTES, b);
        t->core.now_us += (DEADLINE_MS + 1) * 1000;
        assert_int_equal(keeper_run(&self->m), WAIT);
        assert_int_equal(chunk_read_done(read), ERR_TIMEOUT);
        pool_give(t->c, b);
        chunk_drop(t->c, k);
    }
    cache_status(t->c, &s);
    assert_int_equal(s.disk[0].errors, 0);
    assert_true(directory_is_up(dir(t)));
    atomic_store(&gate, true);
    disk_ask(dir(t));
    while (self->m.inflight > 0) {
        AWAIT(atomic_load(&case_sent) != NULL);
        case_deliver(t);
        assert_int_equal(keeper_run(&self->m), WAIT);
    }
    object_drop(t->c, o);
}

/* ---- what happens to chunks meanwhile ---- */
static void nothing_is_written_into_a_chunk_without_checksums(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct chunk *k;

    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), ERR_BUSY);
    open_gate(t);
    AWAIT(unread(t) == 0);
    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), OK);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
}

static void one_that_is_removed_and_comes_again_keeps_its_own(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");

    remove_chunk(t, o, 0);
    assert_int_equal(unread(t), CHUNKS - 1);
    assert_int_equal(case_fill(t, o, 0), OK);
    assert_int_equal(case_read(t, o, 0, 3), OK);
    open_gate(t);
    AWAIT(unread(t) == 0);
    for (unsigned n = 0; n < CHUNKS; n++)
        assert_int_equal(case_read(t, o, n, 1), OK);
    case_settle(t);
    object_drop(t->c, o);
    case_reopen(t);
    o = case_find(t, "a");
    for (unsigned n = 0; n < CHUNKS; n++)
        assert_int_equal(case_read(t, o, n, 1), OK);
    object_drop(t->c, o);
}

static void a_read_of_one_that_is_removed_ends(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct reading r;

    read_begins(t, o, 0, &r);
    remove_chunk(t, o, 0);
    open_gate(t);
    assert_int_equal(read_ends(t, &r), ERR_CHANGED);
    AWAIT(unread(t) == 0);
    assert_false(is_there(t, o, 0));
    assert_int_equal(case_read(t, o, 1, 0), OK);
    object_drop(t->c, o);
}

/* A record that cannot hold all that is known of its chunk must not be written. */
static void one_in_which_a_read_fails_leaves(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct chunk *k = chunk_find(t->c, o->data_id, 0);

    chunk_damaged(t->c, k, 2, ERR_DISK);
    chunk_drop(t->c, k);
    assert_false(is_there(t, o, 0));
    open_gate(t);
    AWAIT(unread(t) == 0);
    case_settle(t);
    object_drop(t->c, o);
    case_reopen(t);
    o = case_find(t, "a");
    assert_false(is_there(t, o, 0));
    assert_int_equal(case_read(t, o, 1, 0), OK);
    object_drop(t->c, o);
}

/* ---- records that cannot be had ---- */
static void lose_record(struct cache_case *t, const struct object *o, uint64_t number)
{
    struct journal_change change = {.id = o->data_id, .number = number, .remove = true};

    assert_int_equal(journal_queue(dir(t)->journal, &change, 1), OK);
    AWAIT(journal_dirty(dir(t)->journal) == 0);
}

static void one_whose_record_is_gone_leaves(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");

    lose_record(t, o, 0);
    lose_record(t, o, 2);
    struct reading r;

    read_begins(t, o, 0, &r);
    open_gate(t);
    assert_int_equal(read_ends(t, &r), ERR_CHANGED);
    assert_false(is_there(t, o, 0)); /* before its reader heard of it */
    AWAIT(unread(t) == 0);
    assert_false(is_there(t, o, 2)); /* for which nobody asked */
    assert_int_equal(case_read(t, o, 1, 0), OK);
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
}

/* A damage that only a counter knew of: nobody could have said which disk's, or of what. */
static void one_that_leaves_is_named_in_the_log(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    char lines[10][256];

    lose_record(t, o, 2);
    open_gate(t);
    AWAIT(unread(t) == 0);
    assert_int_equal(atomic_load(&dir(t)->index_dropped), 1);
    assert_true(log_recent(lines) > 0);
    assert_non_null(strstr(lines[0], "index record dropped"));
    assert_non_null(strstr(lines[0], "chunk=2"));
    object_drop(t->c, o);
}

static void all_leave_with_a_lost_index(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct reading r;

    read_begins(t, o, 1, &r);
    journal_lose(dir(t)->journal, "the test says so");
    open_gate(t);
    assert_int_equal(read_ends(t, &r), ERR_CHANGED);
    AWAIT(unread(t) == 0);
    for (unsigned n = 0; n < CHUNKS; n++)
        assert_false(is_there(t, o, n));
    AWAIT(!journal_is_lost(dir(t)->journal)); /* a new one takes what comes */
    assert_int_equal(case_fill(t, o, 1), OK);
    assert_int_equal(case_read(t, o, 1, 0), OK);
    object_drop(t->c, o);
}

/* Or else its reader would read the same block again and again, as long as no new index can be
 * made: on a full file system that is for good. */
static void a_read_behind_a_lost_index_is_not_repeated(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_find(t, "a");
    struct reading r;

    read_begins(t, o, 1, &r);
    atomic_store(&renews, false);
    journal_lose(dir(t)->journal, "the test says so");
    open_gate(t);
    assert_int_equal(read_ends(t, &r), ERR_CHANGED);
    struct chunk *k = chunk_find(t->c, o->data_id, 1);
    if (k) {
        assert_int_equal(chunk_present(t->c, k), 0);
        chunk_drop(t->c, k);
    }
    k = chunk_find(t->c, o->data_id, 2); /* nor does the next one wait */
    if (k) {
        assert_int_equal(chunk_present(t->c, k), 0);
        chunk_drop(t->c, k);
    }
    AWAIT(unread(t) == 0);
    atomic_store(&renews, true);
    disk_ask(dir(t));
    AWAIT(!journal_is_lost(dir(t)->journal));
    object_drop(t->c, o);
}

/* A cache that is closed while much is left loses nothing. */
static void what_was_not_read_is_there_at_the_next_start(void **state)
{
    struct cache_case *t = *state;

    reopen(t);
    reopen(t);
    open_gate(t);
    struct object *o = case_find(t, "a");
    for (unsigned n = 0; n < CHUNKS; n++)
        assert_int_equal(case_read(t, o, n, 0), OK);
    object_drop(t->c, o);
}

#define WITH_CACHE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: the log has one line of a kind, then counts for a while. */
        WITH_CACHE(one_that_leaves_is_named_in_the_log),
        WITH_CACHE(a_read_in_the_first_seconds_waits_for_its_checksums),
        WITH_CACHE(all_that_wait_are_told),
        WITH_CACHE(damage_is_found_by_checksums_that_came_later),
        WITH_CACHE(who_waits_for_too_long_goes_on_without),
        WITH_CACHE(who_waits_for_too_long_says_nothing_of_the_disk),
        WITH_CACHE(nothing_is_written_into_a_chunk_without_checksums),
        WITH_CACHE(one_that_is_removed_and_comes_again_keeps_its_own),
        WITH_CACHE(a_read_of_one_that_is_removed_ends),
        WITH_CACHE(one_in_which_a_read_fails_leaves),
        WITH_CACHE(one_whose_record_is_gone_leaves),
        WITH_CACHE(all_leave_with_a_lost_index),
        WITH_CACHE(a_read_behind_a_lost_index_is_not_repeated),
        WITH_CACHE(what_was_not_read_is_there_at_the_next_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
