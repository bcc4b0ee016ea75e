/* The index over a real directory and journal: objects, generations, chunks, damage, eviction,
 * limits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include "server/cache/index_chunks.c"

static int begin(void **state)
{
    struct cache_case *t = case_make(1);

    *state = t;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    return 0;
}

static int end(void **state)
{
    case_end(*state);
    return 0;
}

/* ---- objects ---- */
static void a_learnt_object_is_found_by_its_key_only(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", 10), *found = case_find(t, "a");
    struct okey k = case_key(t, "a");

    assert_ptr_equal(o, found);
    object_drop(t->c, found);
    assert_null(case_find(t, "b"));
    k.version = span_of("v");
    cache_key(t->c, &k);
    assert_null(cache_find(t->c, &k));
    /* The hash never decides. */
    struct okey forged = case_key(t, "other");
    forged.id = o->id;
    assert_null(cache_find(t->c, &forged));
    object_drop(t->c, o);
}

static void ids_keep_their_texts_apart(void **state)
{
    struct cache_case *t = *state;
    struct okey a = {.bucket = span_of("ab"), .key = span_of("c"), .version = span_of("")};
    struct okey b = {.bucket = span_of("a"), .key = span_of("bc"), .version = span_of("")};
    static char key[1024], version[8000];

    cache_key(t->c, &a);
    cache_key(t->c, &b);
    assert_false(id_eq(a.id, b.id));
    memset(key, 'k', sizeof key);
    memset(version, 'v', sizeof version);
    struct okey x = {.bucket = span_of("a"), .key = span_make(key, sizeof key),
        .version = span_make(version, sizeof version)};
    struct okey y = x;
    y.version.len--;
    cache_key(t->c, &x);
    cache_key(t->c, &y);
    assert_false(id_eq(x.id, y.id));
    struct id before = x.id;
    snprintf(t->server.store[0], sizeof t->server.store[0], "elsewhere:443/");
    cache_key(t->c, &x);
    assert_false(id_eq(x.id, before));
}

static void upstreams_of_one_store_share_ids_and_records_find_their_store(void **state)
{
    struct cache_case *t = *state;
    struct server *s = &t->server;
    struct okey k[3];

    snprintf(s->store[1], sizeof s->store[1], "other.test:443");
    s->store_count = 2;
    memcpy(s->store_of, (uint8_t[]){0, 1, 0}, 3);
    for (unsigned i = 0; i < 3; i++) {
        k[i] = (struct okey){.bucket = span_of("b"), .key = span_of("k"), .version = span_of(""),
                             .upstream = (uint8_t)i};
        cache_key(t->c, &k[i]);
    }
    assert_true(id_eq(k[0].id, k[2].id));
    assert_false(id_eq(k[0].id, k[1].id));
    assert_int_equal(k[0].bucket_stripe, k[1].bucket_stripe);
    struct id data[2];
    for (unsigned i = 0; i < 2; i++) {
        struct okey found = k[i];
        found.store = 77;
        index_find_store(t->c, &found);
        assert_int_equal(found.store, i);
        data[i] = cache_data_id(t->c, &k[i], span_of("\"e\""), 10);
    }
    assert_false(id_eq(data[0], data[1]));
    struct okey strange = k[0];
    strange.id.a++;
    index_find_store(t->c, &strange);
    assert_int_equal(strange.store, STORE_NONE);
    /* a forged id does not lead to another store's object */
    struct object_facts f = {.size = 10, .etag = span_of("\"e\""), .headers = span_of(""),
                             .asked_ms = t->asked_ms, .epoch = cache_epoch(t->c, &k[0])};
    struct object *o = NULL;
    assert_int_equal(cache_learn(t->c, &k[0], &f, &o), OK);
    object_drop(t->c, o);
    struct okey forged = k[1];
    forged.id = k[0].id;
    assert_null(cache_find(t->c, &forged));
    o = cache_find(t->c, &k[2]);
    assert_non_null(o);
    object_drop(t->c, o);
    s->store_count = 0;
}

static void the_same_answer_moves_the_time_on_and_ends_doubt(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", 10);

    cache_doubt(t->c, o);
    assert_true(atomic_load(&o->flags) & OBJECT_DOUBT);
    t->asked_ms += 5;
    struct object *again = case_learn(t, "a", "\"1\"", 10);
    assert_ptr_equal(o, again);
    assert_int_equal(atomic_load(&o->checked_ms), t->asked_ms);
    assert_false(atomic_load(&o->flags) & OBJECT_DOUBT);
    t->asked_ms -= 100;
    struct object *late = case_learn(t, "a", "\"1\"", 10);
    assert_int_equal(atomic_load(&o->checked_ms), t->asked_ms + 100);
    object_drop(t->c, late);
    object_drop(t->c, again);
    object_drop(t->c, o);
}

static void new_headers_keep_the_chunks_and_the_readers(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", BLOCK_BYTES), *n;
    struct okey k = case_key(t, "a");
    struct object_facts f = {.size = BLOCK_BYTES, .last_modified_s = 1600000001,
        .asked_ms = t->asked_ms,
                             .etag = span_of("\"1\""), .headers = span_of("x-amz-meta-a: b\r\n")};

    assert_int_equal(case_fill(t, o, 0), OK);
    assert_int_equal(cache_learn(t->c, &k, &f, &n), OK);
    assert_true(n != o);
    assert_true(span_is(object_headers(n), "x-amz-meta-a: b\r\n"));
    assert_true(span_is(object_headers(o), "content-type: application/x-tar\r\n"));
    assert_true(id_eq(n->data_id, o->data_id));
    assert_int_equal(case_read(t, n, 0, 0), OK);
    object_drop(t->c, o);
    object_drop(t->c, n);
    case_settle(t);
    case_reopen(t);
    n = case_find(t, "a");
    assert_non_null(n);
    assert_true(span_is(object_headers(n), "x-amz-meta-a: b\r\n"));
    assert_int_equal(case_read(t, n, 0, 0), OK);
    object_drop(t->c, n);
}

static void a_new_generation_drops_the_old_bytes(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", 20 * (uint64_t)CHUNK_BYTES), *n;

    for (uint64_t number = 0; number < 20; number += 2)
        assert_int_equal(case_fill(t, o, number), OK);
    n = case_learn(t, "a", "\"2\"", 20 * (uint64_t)CHUNK_BYTES);
    assert_true(atomic_load(&o->flags) & OBJECT_GONE);
    assert_int_equal(case_read(t, o, 2, 0), ERR_NOT_FOUND);
    assert_int_equal(atomic_load(&t->c->chunk_count), 0);
    assert_int_equal(atomic_load(&t->c->object_count), 0);
    struct chunk *k;
    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), ERR_DENIED);
    case_settle(t);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    object_drop(t->c, o);
    object_drop(t->c, n);
}

static void an_answer_that_was_overtaken_brings_no_old_generation_back(void **state)
{
    struct cache_case *t = *state;

    t->asked_ms = clock_wall_ms() - 1000;
    struct object *n = case_learn(t, "a", "\"2\"", BLOCK_BYTES);
    assert_int_equal(case_fill(t, n, 0), OK);
    t->asked_ms -= 10;
    struct object *late = case_learn(t, "a", "\"1\"", BLOCK_BYTES);
    assert_ptr_equal(late, n);
    assert_false(atomic_load(&n->flags) & OBJECT_GONE);
    assert_int_equal(case_read(t, n, 0, 0), OK);
    object_drop(t->c, late);
    object_drop(t->c, n);
}

static void a_clock_set_back_does_not_keep_new_generations_out(void **state)
{
    struct cache_case *t = *state;

    t->asked_ms = clock_wall_ms() + 3600000;
    struct object *o = case_learn(t, "a", "\"1\"", 10);
    t->asked_ms = clock_wall_ms();
    struct object *n = case_learn(t, "a", "\"2\"", 10);
    assert_true(span_is(object_etag(n), "\"2\""));
    object_drop(t->c, o);
    object_drop(t->c, n);
}

static void a_big_generation_is_dropped_in_the_background(void **state)
{
    struct cache_case *t = *state;
    enum { COUNT = 300 };
    uint64_t size = (uint64_t)COUNT * CHUNK_BYTES;
    struct object *o = case_learn(t, "big", "\"1\"", size);
    struct entry *e = entry_of(t->c, o->id);

    /* More than are dropped at once, of a size of our own so that they fit: entered behind
     * admission's back. */
    for (uint64_t number = 0; number < COUNT; number++) {
        struct chunk *k = chunk_take(t->c, 4096), *there;
        assert_true(index_charge(t->c, chunk_size(4096)));
        k->data_id = o->data_id;
        k->object_id = o->id;
        k->number = number;
        assert_int_equal(space_take(t->c->dir[0].space, 0, false, &k->slot), OK);
        assert_int_equal(enter(t->c, e, k, 1, &there), OK);
    }
    cache_forget(t->c, o);
    assert_null(case_find(t, "big"));
    AWAIT(atomic_load(&t->c->chunk_count) == 0);
    case_settle(t);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    object_drop(t->c, o);
}

static void a_held_chunk_of_a_dead_generation_keeps_its_bytes(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", BLOCK_BYTES);

    assert_int_equal(case_fill(t, o, 0), OK);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    cache_forget(t->c, o);
    AWAIT(journal_dirty(t->c->dir[0].journal) == 0);
    assert_true(space_used_bytes(t->c->dir[0].space) > 0);
    struct buffer buffer = {.mem = t->block, .cap = BLOCK_BYTES};
    struct transfer *read = chunk_read(&t->machine, k, 0, BLOCK_BYTES, &buffer);
    assert_int_equal(chunk_read_done(read), OK);
    chunk_drop(t->c, k);
    case_settle(t);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    object_drop(t->c, o);
}

static void the_same_generation_learnt_again_after_forgetting(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", BLOCK_BYTES);

    assert_int_equal(case_fill(t, o, 0), OK);
    cache_forget(t->c, o);
    cache_forget(t->c, o);
    object_drop(t->c, o);
    o = case_learn(t, "a", "\"1\"", BLOCK_BYTES);
    assert_int_equal(case_read(t, o, 0, 0), ERR_NOT_FOUND);
    assert_int_equal(case_fill(t, o, 0), OK);
    assert_int_equal(case_read(t, o, 0, 0), OK);
    case_reopen(t);
    struct object *found = case_find(t, "a");
    assert_non_null(found);
    assert_int_equal(case_read(t, found, 0, 0), OK);
    object_drop(t->c, found);
}

static void equal_headers_are_stored_once(void **state)
{
    struct cache_case *t = *state;
    struct object *a = case_learn(t, "a", "\"1\"", 1), *b = case_learn(t, "b", "\"2\"", 2);

    assert_ptr_equal(object_headers(a).at, object_headers(b).at);
    assert_int_equal(t->c->header.table.count, 1);
    cache_forget(t->c, a);
    cache_forget(t->c, b);
    object_drop(t->c, a);
    object_drop(t->c, b);
    assert_int_equal(t->c->header.table.count, 0);
}

/* ---- chunks ---- */
static void a_filled_chunk_is_read_back(void **state)
{
    struct cache_case *t = *state;
    uint64_t size = CHUNK_BYTES + 3 * (uint64_t)BLOCK_BYTES + 12345;
    struct object *o = case_learn(t, "a", "\"1\"", size);

    assert_int_equal(case_fill(t, o, 0), OK);
    assert_int_equal(case_fill(t, o, 1), OK);
    for (unsigned block = 0; block < 8; block++)
        assert_int_equal(case_read(t, o, 0, block), OK);
    for (unsigned block = 0; block < 4; block++)
        assert_int_equal(case_read(t, o, 1, block), OK);
    assert_int_equal(case_read(t, o, 1, 4), ERR_NOT_FOUND);
    /* A range smaller than a block: whole granules. */
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    struct buffer buffer = {.mem = t->block, .cap = BLOCK_BYTES};
    struct transfer *read =
        chunk_read(&t->machine, k, BLOCK_BYTES + GRANULE_BYTES, 2 * GRANULE_BYTES, &buffer);
    assert_int_equal(chunk_read_done(read), OK);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
}

static void a_chunk_without_blocks_gives_its_slot_back(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", CHUNK_BYTES);
    struct chunk *k, *same;

    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), OK);
    same = chunk_find(t->c, o->data_id, 0);
    assert_ptr_equal(k, same);
    chunk_filled(t->c, k);
    assert_null(chunk_find(t->c, o->data_id, 0));
    assert_true(space_used_bytes(t->c->dir[0].space) > 0);
    chunk_drop(t->c, same);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    object_drop(t->c, o);
}

static void missing_blocks_are_added_later(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", CHUNK_BYTES);
    struct chunk *k;

    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), OK);
    case_write(t, o, k, 5);
    chunk_filled(t->c, k);
    case_settle(t);
    case_reopen(t);
    o = case_find(t, "a");
    assert_int_equal(case_read(t, o, 0, 5), OK);
    assert_int_equal(case_read(t, o, 0, 4), ERR_NOT_FOUND);
    assert_int_equal(chunk_admit(t->c, o, 0, case_asked, &k), OK);
    assert_int_equal(atomic_load(&k->present), 1 << 5);
    case_write(t, o, k, 4);
    chunk_filled(t->c, k);
    case_reopen(t);
    o = case_find(t, "a");
    assert_int_equal(case_read(t, o, 0, 5), OK);
    assert_int_equal(case_read(t, o, 0, 4), OK);
    object_drop(t->c, o);
}

/* A miss that is planned stays so when it is let in; its record knows no plan, but the rest. */
static void a_plan_is_no_part_of_a_record(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", CHUNK_BYTES);
    struct policy_mark planned = {.flags = MARK_PART | MARK_KEEP | MARK_PLANNED | MARK_BEYOND,
                                  .spare = 77, .count = 3};
    struct chunk_record r;
    struct chunk *k;

    assert_int_equal(make_chunk(&t->c->dir[0], o, 0, planned, &k), OK);
    assert_int_equal(k->mark.flags, MARK_KEEP | MARK_PLANNED | MARK_BEYOND);
    assert_int_equal(k->mark.spare, 77);
    chunk_to_record(k, 1, &r);
    assert_int_equal(r.mark.flags, MARK_KEEP);
    assert_int_equal(r.mark.spare, 0);
    assert_int_equal(r.mark.count, 3);
    k->mark.flags = MARK_KEEP;       /* since when it is kept is remembered */
    chunk_to_record(k, 1, &r);
    assert_int_equal(r.mark.flags, MARK_KEEP);
    assert_int_equal(r.mark.spare, 77);
    k->mark.flags = 0;
    chunk_to_record(k, 1, &r);
    assert_int_equal(r.mark.spare, 0);
    atomic_store(&k->holds, 1);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
}

static void a_version_shares_the_bytes_of_its_data(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", BLOCK_BYTES), *v;
    struct okey k = case_key(t, "a");
    struct object_facts f = {.size = BLOCK_BYTES, .etag = span_of("\"1\""), .flags = OBJECT_STABLE};

    k.version = span_of("v1");
    cache_key(t->c, &k);
    assert_int_equal(cache_learn(t->c, &k, &f, &v), OK);
    assert_false(id_eq(o->id, v->id));
    assert_true(atomic_load(&v->flags) & OBJECT_STABLE);
    assert_int_equal(case_fill(t, o, 0), OK);
    assert_int_equal(case_read(t, v, 0, 0), OK);
    struct chunk *c;
    assert_int_equal(chunk_admit(t->c, v, 0, case_asked, &c), OK);
    assert_int_equal(atomic_load(&c->present), 1);
    chunk_filled(t->c, c);
    object_drop(t->c, o);
    object_drop(t->c, v);
}

/* ---- damage ---- */
static void overwrite(struct cache_case *t, const struct chunk *k, uint32_t off, uint8_t with)
{
    char path[160];
    uint8_t *sector = aligned_alloc(4096, 4096);

    memset(sector, with, 4096);
    snprintf(path, sizeof path, "%s/slab", t->dir[0]);
    int fd = open(path, O_RDWR | O_DIRECT);
    assert_int_equal(pwrite(fd, sector, 4096, (off_t)(slot_offset(k->slot) + off)), 4096);
    close(fd);
    free(sector);
}

static void a_damaged_block_is_missed_not_served(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", CHUNK_BYTES);
    struct cache_status s;

    assert_int_equal(case_fill(t, o, 0), OK);
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    overwrite(t, k, 3 * BLOCK_BYTES + 5 * GRANULE_BYTES + 8192, 0x55);
    chunk_drop(t->c, k);
    assert_int_equal(case_read(t, o, 0, 2), OK);
    assert_int_equal(case_read(t, o, 0, 3), ERR_CHECKSUM);
    assert_int_equal(case_read(t, o, 0, 3), ERR_NOT_FOUND);
    assert_int_equal(case_read(t, o, 0, 4), OK);
    cache_status(t->c, &s);
    assert_int_equal(s.disk[0].errors, 1);
    case_settle(t);
    case_reopen(t);
    o = case_find(t, "a");
    assert_int_equal(case_read(t, o, 0, 3), ERR_NOT_FOUND);
    assert_int_equal(case_read(t, o, 0, 2), OK);
    object_drop(t->c, o);
}

static void the_last_damaged_block_gives_the_slot_up(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", BLOCK_BYTES);

    assert_int_equal(case_fill(t, o, 0), OK);
    case_fail_next = -EIO;
    assert_int_equal(case_read(t, o, 0, 0), ERR_DISK);
    assert_null(chunk_find(t->c, o->data_id, 0));
    case_settle(t);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    assert_int_equal(case_fill(t, o, 0), OK);
    case_fail_next = 4096;               /* as behind the end of a slab that was cut */
    assert_int_equal(case_read(t, o, 0, 0), ERR_CHECKSUM);
    assert_int_equal(case_fill(t, o, 0), OK);
    case_fail_next = -ECANCELED;
    assert_int_equal(case_read(t, o, 0, 0), ERR_CANCELLED);
    assert_int_equal(case_read(t, o, 0, 0), OK);
    object_drop(t->c, o);
}

static void swapped_and_stale_bytes_do_not_verify(void **state)
{
    struct cache_case *t = *state;
    struct id a = {1, 2}, b = {1, 3};
    struct block_sums x, y;

    memset(t->block, 7, BLOCK_BYTES);
    chunk_crc(a, 0, 0, t->block, BLOCK_BYTES, &x);
    chunk_crc(b, 0, 0, t->block, BLOCK_BYTES, &y);
    assert_true(x.crc[0] != y.crc[0]);
    chunk_crc(a, 1, 0, t->block, BLOCK_BYTES, &y);
    assert_true(x.crc[0] != y.crc[0]);
    chunk_crc(a, 0, 1, t->block, BLOCK_BYTES, &y);
    assert_true(x.crc[0] != y.crc[0]);
    assert_true(x.crc[0] != x.crc[1]);
}

/* ---- room ---- */
static void a_full_disk_evicts_the_coldest_and_goes_on(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", 200 * (uint64_t)CHUNK_BYTES);
    unsigned refused = 0, early = 0, late = 0;

    for (uint64_t number = 0; number < 200; number++) {
        enum err err = case_fill(t, o, number);
        assert_true(err == OK || err == ERR_FULL);
        refused += err == ERR_FULL;
        if (number % 8 == 7)
            case_settle(t);
        if (number >= 8 && case_read(t, o, 0, 0) != OK)
            early++;                 /* chunk 0 is read all the time */
    }
    /* A slab of 32 pages has four in reserve: a slow commit may use them up. */
    assert_true(refused < 40);
    assert_true(early < 40);
    for (uint64_t number = 190; number < 200; number++)
        late += case_read(t, o, number, 7) == OK;
    assert_true(late >= 5);
    assert_true(atomic_load(&t->c->evicted_bytes[EVICT_SPACE]) > 120 * (uint64_t)CHUNK_BYTES);
    case_settle(t);
    uint64_t used = space_used_bytes(t->c->dir[0].space);
    assert_int_equal(used, atomic_load(&t->c->chunk_count) * CHUNK_BYTES);
    object_drop(t->c, o);
}

static void small_objects_find_room_on_a_disk_full_of_chunks(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "big", "\"1\"", 60 * (uint64_t)CHUNK_BYTES);
    unsigned kept = 0;

    for (uint64_t number = 0; number < 60; number++)
        if (case_fill(t, o, number) == ERR_FULL)
            case_settle(t);
    for (unsigned i = 0; i < 600; i++) {
        char key[16];
        snprintf(key, sizeof key, "small%u", i);
        struct object *s = case_learn(t, key, "\"s\"", 300000);
        bool fits = case_fill(t, s, 0) == OK;
        kept += fits;
        object_drop(t->c, s);
        if (!fits)                   /* on a slow disk the commits that free slots trail */
            case_settle(t);
    }
    assert_true(kept >= 500);
    /* And the other way: pages of small ones are emptied for chunks. */
    unsigned chunks = 0;
    for (uint64_t number = 0; number < 60; number++) {
        chunks += case_fill(t, o, number) == OK;
        if (number % 5 == 4)
            case_settle(t);
    }
    assert_true(chunks >= 30);
    object_drop(t->c, o);
}

static void nothing_is_evicted_while_all_is_held(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", 64 * (uint64_t)CHUNK_BYTES);
    struct chunk *held[64];
    unsigned count = 0;
    enum err err = OK;

    while (count < 64 && (err = chunk_admit(t->c, o, count, case_asked, &held[count])) == OK)
        count++;
    assert_int_equal(err, ERR_FULL);
    assert_int_equal(count, CASE_SLAB / CHUNK_BYTES);
    while (count > 0)
        chunk_filled(t->c, held[--count]);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    object_drop(t->c, o);
}

static void a_full_index_forgets_objects_before_chunks(void **state)
{
    struct cache_case *t = *state;
    struct object *kept = case_learn(t, "kept", "\"1\"", BLOCK_BYTES);
    unsigned found = 0;

    assert_int_equal(case_fill(t, kept, 0), OK);
    t->c->index_limit_bytes = atomic_load(&t->c->index_bytes) + 200 * KIB;
    for (unsigned i = 0; i < 3000; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        t->asked_ms++;
        struct object *o = case_learn(t, key, "\"1\"", 10);
        object_drop(t->c, o);
    }
    assert_true(atomic_load(&t->c->index_bytes) <= t->c->index_limit_bytes + 64 * KIB);
    for (unsigned i = 2900; i < 3000; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_find(t, key);
        found += o != NULL;
        if (o)
            object_drop(t->c, o);
    }
    assert_true(found > 60);
    assert_int_equal(case_read(t, kept, 0, 0), OK);
    object_drop(t->c, kept);
}

static void finding_and_dropping_do_not_allocate(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "a", "\"1\"", BLOCK_BYTES);
    struct okey k = case_key(t, "a");

    assert_int_equal(case_fill(t, o, 0), OK);
    uint64_t before = mem_take_count();
    for (unsigned i = 0; i < 100; i++) {
        struct object *found = cache_find(t->c, &k);
        struct chunk *c = chunk_find(t->c, found->data_id, 0);
        chunk_reference(t->c, found, c, 100);
        chunk_drop(t->c, c);
        object_drop(t->c, found);
    }
    /* The writer thread may have grown its batch meanwhile. */
    assert_true(mem_take_count() - before < 10);
    object_drop(t->c, o);
}

static void memory_comes_back_when_everything_is_forgotten(void **state)
{
    struct cache_case *t = *state;
    uint64_t before = 0;

    for (unsigned round = 0; round < 2; round++) {
        struct object *o = case_learn(t, "a", "\"1\"", 2 * CHUNK_BYTES);
        assert_int_equal(case_fill(t, o, 0), OK);
        assert_int_equal(case_fill(t, o, 1), OK);
        cache_forget(t->c, o);
        object_drop(t->c, o);
        if (round == 0)
            before = atomic_load(&t->c->index_bytes); /* the tables stay */
    }
    assert_int_equal(atomic_load(&t->c->index_bytes), before);
    case_settle(t);
}

static void an_empty_object_survives(void **state)
{
    struct cache_case *t = *state;
    struct object *o = case_learn(t, "empty", "\"0\"", 0);

    object_drop(t->c, o);
    case_reopen(t);
    o = case_find(t, "empty");
    assert_non_null(o);
    assert_int_equal(o->size, 0);
    object_drop(t->c, o);
}

/* ---- many threads ---- */
struct worker {
    struct cache_case of;            /* its own block and time, the common cache */
    pthread_t thread;
    unsigned number, filled, read, forgotten;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct cache_case *t = &w->of;

    for (unsigned step = 0; step < 1200; step++) {
        unsigned n = (unsigned)(random_u64() % 24), what = (unsigned)(random_u64() % 16);
        char key[16];
        snprintf(key, sizeof key, "k%u", n);
        t->asked_ms++;
        uint64_t size = n % 3 == 0 ? 2 * (uint64_t)CHUNK_BYTES : 5000 + n * 40000;
        struct object *o = case_learn(t, key, what == 0 ? "\"x\"" : "\"1\"", size);
        /* fill/ lets one filler in at a time: here each key has its worker. */
        if (what < 6 && n % 4 == w->number)
            w->filled += case_fill(t, o, 0) == OK;
        else if (what == 6)
            cache_forget(t->c, o), w->forgotten++;
        else if (what == 7)
            cache_doubt(t->c, o);
        else
            w->read += case_read(t, o, 0, 0) == OK;
        object_drop(t->c, o);
    }
    return NULL;
}

static void many_threads_keep_the_books(void **state)
{
    struct cache_case *t = *state;
    struct worker w[4] = {0};

    learner_close(t->c);             /* nothing is packed but what must be */
    t->c->index_limit_bytes = atomic_load(&t->c->index_bytes) + 40 * KIB;
    for (unsigned i = 0; i < 4; i++) {
        case_beside(t, &w[i].of);
        w[i].number = i;
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    unsigned filled = 0, read = 0;
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(w[i].thread, NULL);
        case_beside_end(&w[i].of);
        filled += w[i].filled;
        read += w[i].read;
    }
    assert_true(filled > 100 && read > 100);
    case_settle(t);
    uint64_t bytes = 0, chunks = 0;
    for (unsigned i = 0; i < CACHE_SHARDS; i++)
        for (uint32_t at = 0; at < t->c->chunk[i].table.cap; at++) {
            void *item = index_table_at(&t->c->chunk[i].table, at);
            if (!item)
                continue;
            const struct chunk *k = item_is_packed(item) ? NULL : item;
            struct slot slot = k ? k->slot : packed_slot(item_packed(item));
            assert_true(!k || atomic_load(&k->holds) == 1);
            bytes += space_class_bytes(slot.class_);
            chunks++;
        }
    assert_int_equal(chunks, atomic_load(&t->c->chunk_count));
    assert_int_equal(bytes, space_used_bytes(t->c->dir[0].space));
    for (unsigned i = 0; i < CACHE_SHARDS; i++)
        for (uint32_t at = 0; at < t->c->object[i].table.cap; at++) {
            void *item = index_table_at(&t->c->object[i].table, at);
            if (item)
                chunks -= item_is_packed(item) ? 1 : atomic_load(&((struct entry *)item)->chunks);
        }
    assert_int_equal(chunks, 0);
    case_reopen(t);
    assert_int_equal(bytes, space_used_bytes(t->c->dir[0].space));
}

/* ---- the table under everything ---- */
static uint64_t hash_of_number(const void *item)
{
    return *(const uint64_t *)item;
}

static void a_table_keeps_what_it_was_given(void **state)
{
    struct index_table table = {.hash = hash_of_number};
    static uint64_t items[500];
    static bool in[500];

    (void)state;
    for (unsigned i = 0; i < 500; i++)
        /* many of one hash, many homes in a row, before the end and behind the beginning */
        items[i] = (uint64_t)(i % 50 - 25) * 0x0040000000000001;
    for (unsigned step = 0; step < 20000; step++) {
        unsigned i = (unsigned)(random_u64() % 500);
        if (in[i]) {
            index_table_remove(&table, items[i], &items[i]);
        } else {
            assert_true(index_table_reserve(&table, table.count + 1));
            index_table_add(&table, items[i], &items[i]);
        }
        in[i] = !in[i];
        unsigned j = (unsigned)(random_u64() % 500);
        uint32_t at = index_table_home(&table, items[j]);
        bool found = false;
        for (void *item; (item = index_table_next(&table, items[j], &at));)
            found |= item == &items[j];
        assert_int_equal(found, in[j]);
    }
    index_table_fini(&table);
}

#define WITH_CACHE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_keeps_what_it_was_given),
        WITH_CACHE(a_learnt_object_is_found_by_its_key_only),
        WITH_CACHE(ids_keep_their_texts_apart),
        WITH_CACHE(upstreams_of_one_store_share_ids_and_records_find_their_store),
        WITH_CACHE(the_same_answer_moves_the_time_on_and_ends_doubt),
        WITH_CACHE(new_headers_keep_the_chunks_and_the_readers),
        WITH_CACHE(a_new_generation_drops_the_old_bytes),
        WITH_CACHE(an_answer_that_was_overtaken_brings_no_old_generation_back),
        WITH_CACHE(a_clock_set_back_does_not_keep_new_generations_out),
        WITH_CACHE(a_big_generation_is_dropped_in_the_background),
        WITH_CACHE(a_held_chunk_of_a_dead_generation_keeps_its_bytes),
        WITH_CACHE(the_same_generation_learnt_again_after_forgetting),
        WITH_CACHE(equal_headers_are_stored_once),
        WITH_CACHE(a_filled_chunk_is_read_back),
        WITH_CACHE(a_chunk_without_blocks_gives_its_slot_back),
        WITH_CACHE(missing_blocks_are_added_later),
        WITH_CACHE(a_plan_is_no_part_of_a_record),
        WITH_CACHE(a_version_shares_the_bytes_of_its_data),
        WITH_CACHE(a_damaged_block_is_missed_not_served),
        WITH_CACHE(the_last_damaged_block_gives_the_slot_up),
        WITH_CACHE(swapped_and_stale_bytes_do_not_verify),
        WITH_CACHE(a_full_disk_evicts_the_coldest_and_goes_on),
        WITH_CACHE(small_objects_find_room_on_a_disk_full_of_chunks),
        WITH_CACHE(nothing_is_evicted_while_all_is_held),
        WITH_CACHE(a_full_index_forgets_objects_before_chunks),
        WITH_CACHE(finding_and_dropping_do_not_allocate),
        WITH_CACHE(memory_comes_back_when_everything_is_forgotten),
        WITH_CACHE(an_empty_object_survives),
        WITH_CACHE(many_threads_keep_the_books),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
