/* Halves of granules that are read and verified alone: when they can be, what is found in them, and
 * that nothing known of a slot outlives the chunk that stood there.
 *
 * Life: each test has a cache over one directory, filled and read without rings.
 * Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include <fcntl.h>

enum { SECTOR = 4096 };

static int begin(void **state)
{
    struct cache_case *t = case_make(1);

    *state = t;
    t->config.cache_memory = 64 * MIB;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    return 0;
}

static int end(void **state)
{
    case_end(*state);
    return 0;
}

static struct chunk *find(struct cache_case *t, const struct object *o, uint64_t number)
{
    struct chunk *k = chunk_find(t->c, o->data_id, number);

    assert_non_null(k);
    return k;
}

static bool known(struct cache_case *t, const struct object *o, uint32_t off)
{
    struct chunk *k = find(t, o, 0);
    bool reads = chunk_reads_half(t->c, k, off);

    chunk_drop(t->c, k);
    return reads;
}

/* Reads `len` bytes of chunk 0 and compares. */
static enum err read_at(struct cache_case *t, struct object *o, uint32_t off, uint32_t len)
{
    static uint8_t want[BLOCK_BYTES];
    struct chunk *k = find(t, o, 0);
    struct buffer buffer = {.mem = t->block, .cap = BLOCK_BYTES};
    struct transfer *transfer = chunk_read(&t->machine, k, off, len, &buffer);

    assert_non_null(transfer);
    case_await(t, transfer);
    enum err err = chunk_read_done(transfer);
    case_bytes(o, 0, off / BLOCK_BYTES, want, chunk_block_bytes(k->bytes, off / BLOCK_BYTES));
    if (err == OK)
        assert_memory_equal(t->block, want + off % BLOCK_BYTES, len);
    chunk_drop(t->c, k);
    return err;
}

/* Of bytes in the slab: moves so many from one place of the chunk to another. */
static void copy_in_slot(struct cache_case *t, const struct object *o, uint32_t from, uint32_t to,
                         uint32_t len)
{
    struct chunk *k = find(t, o, 0);
    uint8_t *bytes = aligned_alloc(SECTOR, len);
    off_t slot = (off_t)slot_offset(k->slot);
    int fd = t->c->dir[0].slab_fd;

    assert_int_equal(pread(fd, bytes, len, slot + from), len);
    assert_int_equal(pwrite(fd, bytes, len, slot + to), len);
    free(bytes);
    chunk_drop(t->c, k);
}

static struct object *filled(struct cache_case *t, const char *key, uint64_t size)
{
    struct object *o = case_learn(t, key, "\"1\"", size);

    assert_int_equal(case_fill(t, o, 0), OK);
    return o;
}

static struct object *filled_before_a_start(struct cache_case *t, const char *key, uint64_t size)
{
    object_drop(t->c, filled(t, key, size));
    case_settle(t);
    case_reopen(t);
    return case_find(t, key);
}

/* ---- what can be read ---- */
static void both_halves_of_what_was_filled_are_read_alone(void **state)
{
    struct cache_case *t = *state;
    struct object *o = filled(t, "a", CHUNK_BYTES);

    for (uint32_t off = 0; off < CHUNK_BYTES; off += HALF_BYTES) {
        assert_true(known(t, o, off));
        assert_int_equal(read_at(t, o, off, HALF_BYTES), OK);
    }
    object_drop(t->c, o);
}

static void a_granule_that_ends_early_has_a_short_second_half_or_none(void **state)
{
    struct cache_case *t = *state;
    struct object *o = filled(t, "a", 3 * BLOCK_BYTES + GRANULE_BYTES + HALF_BYTES + 5000);
    struct object *p = filled(t, "b", 3 * BLOCK_BYTES + GRANULE_BYTES + HALF_BYTES);
    uint32_t last = 3 * BLOCK_BYTES + GRANULE_BYTES;

    assert_true(known(t, o, last + HALF_BYTES));
    assert_int_equal(read_at(t, o, last, HALF_BYTES), OK);
    assert_int_equal(read_at(t, o, last + HALF_BYTES, 5000), OK);
    assert_true(known(t, p, last - HALF_BYTES));
    assert_false(known(t, p, last));
    assert_int_equal(read_at(t, p, last, HALF_BYTES), OK); /* it is all of the granule */
    object_drop(t->c, o);
    object_drop(t->c, p);
}

static void slots_that_share_a_page_keep_their_own(void **state)
{
    struct cache_case *t = *state;
    struct object *o[8];
    char key[2] = "a";

    for (unsigned i = 0; i < ARRAY_COUNT(o); i++, key[0]++)
        o[i] = filled(t, key, 5 * GRANULE_BYTES - 1000 * i);
    for (unsigned i = 0; i < ARRAY_COUNT(o); i++) {
        for (uint32_t off = 0; off < 4 * GRANULE_BYTES; off += HALF_BYTES) {
            assert_true(known(t, o[i], off));
            assert_int_equal(read_at(t, o[i], off, HALF_BYTES), OK);
        }
        object_drop(t->c, o[i]);
    }
    struct object *small = filled(t, "small", 2 * GRANULE_BYTES + 40000);
    assert_false(known(t, small, 0)); /* slots of 320 KiB do not begin at granules */
    assert_int_equal(read_at(t, small, 0, GRANULE_BYTES), OK);
    object_drop(t->c, small);
}

/* ---- what is found in them ---- */
static void a_damaged_half_is_found_by_who_reads_it_and_by_nobody_else(void **state)
{
    struct cache_case *t = *state;
    struct object *o = filled(t, "a", CHUNK_BYTES);
    uint32_t hurt[] = {5 * GRANULE_BYTES, 2 * BLOCK_BYTES + HALF_BYTES};

    for (unsigned i = 0; i < ARRAY_COUNT(hurt); i++) {
        uint32_t other = hurt[i] ^ HALF_BYTES;
        copy_in_slot(t, o, hurt[i] + SECTOR, hurt[i] + 2 * SECTOR, SECTOR);
        assert_int_equal(read_at(t, o, other, HALF_BYTES), OK);
        assert_int_equal(read_at(t, o, hurt[i], HALF_BYTES), ERR_CHECKSUM);
        struct chunk *k = find(t, o, 0);
        assert_false(chunk_present(t->c, k) >> hurt[i] / BLOCK_BYTES & 1);
        chunk_drop(t->c, k);
    }
    object_drop(t->c, o);
}

static void halves_in_each_others_place_do_not_verify(void **state)
{
    struct cache_case *t = *state;
    struct object *o = filled(t, "a", CHUNK_BYTES);

    copy_in_slot(t, o, 0, GRANULE_BYTES, HALF_BYTES);
    assert_int_equal(read_at(t, o, GRANULE_BYTES, HALF_BYTES), ERR_CHECKSUM);
    copy_in_slot(t, o, BLOCK_BYTES + HALF_BYTES, 2 * BLOCK_BYTES + HALF_BYTES, HALF_BYTES);
    assert_int_equal(read_at(t, o, 2 * BLOCK_BYTES + HALF_BYTES, HALF_BYTES), ERR_CHECKSUM);
    object_drop(t->c, o);
}

/* ---- how long it is known ---- */
static void behind_a_start_the_first_read_of_a_granule_is_whole(void **state)
{
    struct cache_case *t = *state;
    struct object *o = filled_before_a_start(t, "a", CHUNK_BYTES);

    assert_false(known(t, o, 0));
    assert_int_equal(read_at(t, o, 0, GRANULE_BYTES), OK);
    assert_true(known(t, o, HALF_BYTES));
    assert_false(known(t, o, GRANULE_BYTES));
    assert_int_equal(read_at(t, o, HALF_BYTES, HALF_BYTES), OK);
    assert_int_equal(read_at(t, o, BLOCK_BYTES, BLOCK_BYTES), OK);
    assert_true(known(t, o, 2 * BLOCK_BYTES - HALF_BYTES));
    object_drop(t->c, o);
}

/* What was learnt of a granule whose bytes did not verify would make good ones look bad. */
static void nothing_is_learnt_of_a_granule_that_does_not_verify(void **state)
{
    struct cache_case *t = *state;
    struct object *o = filled_before_a_start(t, "a", CHUNK_BYTES);

    copy_in_slot(t, o, SECTOR, 2 * SECTOR, SECTOR);
    assert_int_equal(read_at(t, o, 0, GRANULE_BYTES), ERR_CHECKSUM);
    assert_false(known(t, o, 0));
    object_drop(t->c, o);
}

static void who_takes_a_slot_knows_nothing_of_who_stood_there(void **state)
{
    struct cache_case *t = *state;
    struct object *o = filled(t, "a", CHUNK_BYTES);
    struct chunk *k = find(t, o, 0), *next;
    struct slot slot = k->slot;
    bool met = false;

    chunk_drop(t->c, k);
    cache_evict(t->c, o);
    object_drop(t->c, o);
    case_settle(t);
    for (unsigned i = 0; i < CASE_SLAB / CHUNK_BYTES / 2 && !met; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%u", i);
        o = case_learn(t, name, "\"1\"", CHUNK_BYTES);
        assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &next), OK);
        met = next->slot.page == slot.page;
        assert_false(chunk_reads_half(t->c, next, 0));
        case_write(t, o, next, 0);
        chunk_filled(t->c, next);
        assert_true(known(t, o, 0));
        assert_false(known(t, o, BLOCK_BYTES));
        assert_int_equal(read_at(t, o, HALF_BYTES, HALF_BYTES), OK);
        object_drop(t->c, o);
    }
    assert_true(met);
}

static void who_evicts_by_order_takes_halves_out_of_memory_too(void **state)
{
    struct cache_case *t = *state;
    struct object *o = filled(t, "a", CHUNK_BYTES);
    struct buffer_key name = {o->data_id, 3 * BLOCK_BYTES + HALF_BYTES + BUFFER_HALF};
    struct buffer *b = pool_take(t->c, HALF_BYTES, BUFFER_DEMAND);
    uint64_t number = 0;

    b->len = HALF_BYTES;
    pool_give(t->c, pool_publish(t->c, b, &name, false));
    b = pool_find(t->c, &name);
    assert_non_null(b);
    pool_give(t->c, b);
    assert_true(cache_disown(t->c, o, &number, 1));
    assert_null(pool_find(t->c, &name));
    object_drop(t->c, o);
}

/* ---- memory ---- */
static void no_more_of_the_memory_is_taken_than_the_disks_have_pages(void **state)
{
    struct cache_case *t = *state;
    struct pool_status pool;

    assert_int_equal(t->c->dir[0].half_pages, CASE_SLAB / CHUNK_BYTES);
    pool_status(t->c->pool, &pool);
    assert_true(pool.limit_bytes < t->config.cache_memory);
}

/* A sixty-fourth of 2 MiB is for 128 pages of the 192. */
static void the_last_pages_of_each_disk_have_none_where_memory_is_little(void **state)
{
    enum { PAGES = 96, KNOWN = 2 * MIB / 64 / 256 / 2 };
    struct cache_case *t = case_make(2);

    (void)state;
    t->config.cache_size.bytes = PAGES * (uint64_t)CHUNK_BYTES;
    t->config.cache_memory = 2 * MIB;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(t->c->dir[i].header.slab_bytes / CHUNK_BYTES, PAGES);
        assert_int_equal(t->c->dir[i].half_pages, KNOWN);
    }
    case_end(t);
}

static void behind_the_last_page_nothing_is_touched(void **state)
{
    enum { WORDS = GRANULES_PER_CHUNK };
    _Atomic uint32_t word[2 * WORDS] = {[0] = 7, [WORDS] = 7};
    struct directory d = {.half = word, .half_pages = 1};
    struct slot slot = {.page = 1, .class_ = (uint8_t)space_class(CHUNK_BYTES)};

    (void)state;
    halves_forget(&d, slot);
    assert_int_equal(word[WORDS], 7);
    slot.page = 0;
    halves_forget(&d, slot);
    assert_int_equal(word[0], 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(both_halves_of_what_was_filled_are_read_alone),
        CASE(a_granule_that_ends_early_has_a_short_second_half_or_none),
        CASE(slots_that_share_a_page_keep_their_own),
        CASE(a_damaged_half_is_found_by_who_reads_it_and_by_nobody_else),
        CASE(halves_in_each_others_place_do_not_verify),
        CASE(behind_a_start_the_first_read_of_a_granule_is_whole),
        CASE(nothing_is_learnt_of_a_granule_that_does_not_verify),
        CASE(who_takes_a_slot_knows_nothing_of_who_stood_there),
        CASE(who_evicts_by_order_takes_halves_out_of_memory_too),
        CASE(no_more_of_the_memory_is_taken_than_the_disks_have_pages),
        cmocka_unit_test(the_last_pages_of_each_disk_have_none_where_memory_is_little),
        cmocka_unit_test(behind_the_last_page_nothing_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
