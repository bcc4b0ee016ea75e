/* Objects that are packed and unpacked while they are found, read, replaced, evicted, forgotten. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"

static bool no_entry, no_chunk;      /* memory for it is refused */

#define chunk_take(c, bytes) (no_chunk ? NULL : chunk_take(c, bytes))
#define entry_restore(c, k, f) (no_entry ? NULL : entry_restore(c, k, f))
#include "server/cache/packing.c"
#undef chunk_take
#undef entry_restore

enum { COUNT = 60 };                 /* of fill_objects() */

/* Here the hand moves when it is told to. */
static struct cache_case *quiet(struct cache_case *t)
{
    learner_close(t->c);
    return t;
}

static void reopen(struct cache_case *t)
{
    case_reopen(t);
    quiet(t);
}

/* Returns how many were refused. */
static unsigned fill_small(struct cache_case *t, unsigned from, unsigned to)
{
    unsigned refused = 0;

    for (unsigned i = from; i < to; i++) {
        char key[32];
        snprintf(key, sizeof key, "folder/small-%08u", i);
        struct okey k = case_key(t, key);
        struct object_facts f = {.size = 4096, .asked_ms = t->asked_ms,
                                 .etag = span_of("\"9b2cf535f27731c974343645a3985328\""),
                                 .headers = span_of("content-type: image/jpeg\r\n")};
        struct object *o;
        if (cache_learn(t->c, &k, &f, &o) != OK) {
            refused++;
            continue;
        }
        refused += case_fill(t, o, 0) != OK;
        object_drop(t->c, o);
    }
    return refused;
}

static unsigned count_small(struct cache_case *t, unsigned count)
{
    unsigned here = 0;

    for (unsigned i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "folder/small-%08u", i);
        struct object *o = case_find(t, key);
        here += o && case_read(t, o, 0, 0) == OK;
        if (o)
            object_leave(t->c, o);
    }
    return here;
}

static unsigned packed_count(struct cache *c)
{
    unsigned count = 0;

    for (unsigned i = 0; i < CACHE_SHARDS; i++) {
        struct index_shard *s = &c->object[i];
        pthread_mutex_lock(&s->lock);
        for (uint32_t at = 0; at < s->table.cap; at++) {
            const void *item = index_table_at(&s->table, at);
            count += item && item_is_packed(item);
        }
        pthread_mutex_unlock(&s->lock);
    }
    return count;
}

static bool is_packed(struct cache_case *t, const char *key)
{
    const void *item = index_object_item(t->c, case_key(t, key).id);

    assert_non_null(item);
    return item_is_packed(item);
}

/* It samples, and may find none where few are left. */
static void evict_all(struct cache_case *t)
{
    for (unsigned tries = 0; atomic_load(&t->c->chunk_count) > 0; tries++) {
        assert_true(tries < 100000);
        (void)evict_any(t->c);
    }
}

static struct cache_case *packed_case(unsigned dirs)
{
    struct cache_case *t = quiet(open_case(dirs));

    fill_objects(t, COUNT);
    case_settle(t);
    packing_round(t->c, 0);
    assert_int_equal(packed_count(t->c), COUNT);
    return t;
}

/* As where the index that had them was lost: *recorded of them have one. */
static void look_at_records(struct cache_case *t, bool forget, unsigned *recorded)
{
    *recorded = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_find(t, key);
        struct chunk *k = chunk_find(t->c, o->data_id, 0);
        struct entry *e = container_of(o, struct entry, o);
        assert_int_equal(e->dirs, k->state == CHUNK_RECORDED);
        *recorded += k->state == CHUNK_RECORDED;
        if (forget) {
            chunk_unrecord(k);
            e->dirs = 0;
        }
        chunk_drop(t->c, k);
        object_drop(t->c, o);
    }
}

static void what_has_no_record_is_packed_as_such_until_it_gets_one(void **state)
{
    struct cache_case *t = packed_case(1);
    struct directory *d = &t->c->dir[0];
    unsigned recorded;

    (void)state;
    look_at_records(t, true, &recorded);
    assert_int_equal(recorded, COUNT);
    packing_round(t->c, 0);
    assert_int_equal(packed_count(t->c), COUNT);
    look_at_records(t, false, &recorded);
    assert_int_equal(recorded, 0);
    assert_int_equal(count_objects(t, COUNT, 0), COUNT);
    packing_round(t->c, 0);
    for (uint32_t page = 0; page < d->residents.pages; page++)
        residents_visit(d, page, true, chunk_record);
    look_at_records(t, false, &recorded);
    assert_int_equal(recorded, COUNT);
    case_settle(t);
    look_at_records(t, true, &recorded);
    packing_round(t->c, 0);
    evict_all(t);
    case_settle(t);
    assert_int_equal(space_used_bytes(d->space), 0);
    case_end(t);
}

static void packed_ones_take_a_third_and_come_back_as_they_were(void **state)
{
    struct cache_case *t = quiet(open_case(1));

    (void)state;
    fill_objects(t, COUNT);
    case_settle(t);
    struct object *o = case_find(t, "o7");
    struct chunk *k = chunk_find(t->c, o->data_id, 0);
    struct entry before = *entry_from(o);
    struct policy_mark mark = chunk_mark(k);
    struct slot slot = k->slot;
    uint64_t bytes = atomic_load(&t->c->index_bytes);
    packing_round(t->c, 0);
    assert_int_equal(packed_count(t->c), COUNT - 1); /* it is held */
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    packing_round(t->c, 1u << 30);
    assert_false(is_packed(t, "o7"));            /* it was read */
    packing_round(t->c, 0);
    assert_int_equal(packed_count(t->c), COUNT);
    uint64_t now = atomic_load(&t->c->index_bytes);
    assert_true((bytes - now) / COUNT > 150);
    struct cache_status s;
    cache_status(t->c, &s);
    assert_int_equal(s.objects, COUNT);
    assert_int_equal(s.chunks, COUNT);
    o = case_find(t, "o7");
    const struct entry *e = entry_from(o);
    assert_int_equal(packed_count(t->c), COUNT - 1);
    assert_true(id_eq(o->id, before.o.id) && id_eq(o->data_id, before.o.data_id));
    assert_int_equal(o->size, before.o.size);
    assert_int_equal(o->last_modified_s, before.o.last_modified_s);
    assert_int_equal(atomic_load(&o->checked_ms), atomic_load(&before.o.checked_ms));
    assert_int_equal(atomic_load(&o->flags), 0);
    assert_int_equal(atomic_load(&e->vouched), atomic_load(&before.vouched));
    assert_int_equal(atomic_load(&e->saved_s), atomic_load(&before.saved_s));
    assert_int_equal(atomic_load(&e->read_s), atomic_load(&before.read_s));
    assert_int_equal(e->dirs, before.dirs);
    assert_int_equal(e->bucket_stripe, before.bucket_stripe);
    assert_true(span_eq(object_etag(o), span_of("\"1\"")));
    assert_true(span_eq(object_headers(o), span_of("content-type: application/x-tar\r\n")));
    k = chunk_find(t->c, o->data_id, 0);
    struct policy_mark after = chunk_mark(k);
    assert_memory_equal(&after, &mark, sizeof mark);
    assert_int_equal(k->slot.page, slot.page);
    assert_int_equal(k->slot.at, slot.at);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
    assert_int_equal(count_readable(t, COUNT), COUNT);
    assert_int_equal(packed_count(t->c), 0);
    case_end(t);
}

static void a_chunk_is_found_by_its_data_though_its_object_is_packed(void **state)
{
    struct cache_case *t = packed_case(1);
    struct okey k = case_key(t, "o3");
    struct id data_id = cache_data_id(t->c, &k, span_of("\"1\""), 200003);
    struct chunk *chunk = chunk_find(t->c, data_id, 0);

    (void)state;
    assert_non_null(chunk);
    assert_null(chunk_find(t->c, data_id, 1));
    assert_int_equal(packed_count(t->c), COUNT - 1);
    packing_round(t->c, 0);
    assert_int_equal(packed_count(t->c), COUNT - 1); /* the chunk alone is held */
    assert_int_equal(count_readable(t, COUNT), COUNT);
    chunk_drop(t->c, chunk);
    case_end(t);
}

static void a_start_packs_what_it_reads(void **state)
{
    struct cache_case *t = quiet(open_case(2));

    (void)state;
    fill_objects(t, COUNT);
    struct object *o = case_learn(t, "big", "\"1\"", 2 * (uint64_t)CHUNK_BYTES);
    assert_int_equal(case_fill(t, o, 1), OK);
    object_drop(t->c, o);
    reopen(t);
    assert_int_equal(packed_count(t->c), COUNT);
    struct cache_status s;
    cache_status(t->c, &s);
    assert_int_equal(s.objects, COUNT + 1);
    assert_int_equal(s.chunks, COUNT + 1);
    assert_int_equal(count_readable(t, COUNT), COUNT);
    packing_round(t->c, 0);
    reopen(t);
    assert_int_equal(count_readable(t, COUNT), COUNT);
    case_end(t);
}

/* Its records went with its chunk; the next start finds neither. */
static void what_leaves_packed_is_gone_behind_a_restart(void **state)
{
    struct cache_case *t = packed_case(1);
    struct object *o = case_find(t, "o5");

    (void)state;
    cache_forget(t->c, o);
    object_drop(t->c, o);
    packing_round(t->c, 0);
    evict_all(t);
    case_settle(t);
    assert_int_equal(packed_count(t->c), 0);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    reopen(t);
    assert_int_equal(count_readable(t, COUNT), 0);
    case_end(t);
}

static void a_write_makes_a_packed_one_doubtful_for_good(void **state)
{
    struct cache_case *t = packed_case(1);
    struct okey k = case_key(t, "o9");
    struct cache_write w;

    (void)state;
    cache_write_begin(t->c, &w, &k, &t->machine);
    AWAIT(atomic_load(&case_sent) != NULL || !w.busy);
    case_deliver(t);
    cache_write_end(t->c, &w, false);
    packing_round(t->c, 0);
    assert_true(is_packed(t, "o9"));
    struct object *o = case_find(t, "o9");
    assert_true(atomic_load(&o->flags) & OBJECT_DOUBT);
    object_drop(t->c, o);
    packing_round(t->c, 0);
    reopen(t);
    assert_true(is_packed(t, "o9"));
    o = case_find(t, "o9");
    assert_true(atomic_load(&o->flags) & OBJECT_DOUBT);
    object_drop(t->c, o);
    o = case_find(t, "o8");
    assert_int_equal(atomic_load(&o->flags), 0);
    object_drop(t->c, o);
    case_end(t);
}

static void a_new_generation_takes_the_place_of_a_packed_one(void **state)
{
    struct cache_case *t = packed_case(1);
    uint64_t used = space_used_bytes(t->c->dir[0].space);

    (void)state;
    t->asked_ms += 1000;
    struct object *o = case_learn(t, "o4", "\"2\"", 200004);
    assert_int_equal(case_read(t, o, 0, 0), ERR_NOT_FOUND);
    case_settle(t);
    assert_true(space_used_bytes(t->c->dir[0].space) < used);
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
    packing_round(t->c, 0);
    assert_int_equal(packed_count(t->c), COUNT);
    o = case_find(t, "o4");
    assert_true(span_eq(object_etag(o), span_of("\"2\"")));
    assert_int_equal(case_read(t, o, 0, 0), OK);
    object_drop(t->c, o);
    case_end(t);
}

static void a_version_reads_the_bytes_of_a_packed_one(void **state)
{
    struct cache_case *t = packed_case(1);
    struct okey k = case_key(t, "o2");
    struct object_facts f = {.size = 200002, .asked_ms = t->asked_ms, .etag = span_of("\"1\""),
                             .headers = span_of(""), .flags = OBJECT_STABLE};
    struct object *version;

    (void)state;
    k.version = span_of("v1");
    cache_key(t->c, &k);
    assert_int_equal(cache_learn(t->c, &k, &f, &version), OK);
    assert_true(is_packed(t, "o2"));
    assert_int_equal(case_read(t, version, 0, 0), OK);
    assert_false(is_packed(t, "o2"));
    packing_round(t->c, 0);
    assert_true(is_packed(t, "o2"));
    cache_evict(t->c, version);      /* the bytes are not its own */
    object_drop(t->c, version);
    assert_int_equal(count_readable(t, COUNT), COUNT);
    case_end(t);
}

static void a_walk_meets_packed_ones(void **state)
{
    struct cache_case *t = packed_case(1);
    struct object *out[CACHE_WALK_MAX];
    unsigned met = 0;

    (void)state;
    for (uint64_t at = 0; at != CACHE_WALK_OVER;) {
        unsigned count = cache_walk(t->c, &at, out, NULL);
        for (unsigned i = 0; i < count; i++) {
            struct cache_held h = {0};
            assert_true(cache_measure(t->c, out[i], &h, 8));
            assert_int_equal(h.bytes, out[i]->size);
            object_drop(t->c, out[i]);
            met++;
        }
    }
    assert_int_equal(met, COUNT);
    case_end(t);
}

static void sections_and_pins_know_packed_ones(void **state)
{
    struct cache_case *t = case_make(1);

    (void)state;
    t->config.bucket_count = 2;
    t->config.buckets[1] = (struct conf_bucket){.match = "bucket/o", .match_len = 8, .pin = true};
    assert_int_equal(case_open(t), OK);
    quiet(t);
    fill_objects(t, COUNT);
    case_settle(t);
    uint64_t used = space_used_bytes(t->c->dir[0].space);
    uint64_t lost = space_lost_bytes(t->c->dir[0].space);
    struct section *s = &t->c->rules.section[1];
    for (unsigned restart = 0; restart < 2; restart++) {
        s = &t->c->rules.section[1];
        packing_round(t->c, 0);
        assert_int_equal(packed_count(t->c), COUNT);
        assert_int_equal(s->count, COUNT);
        assert_int_equal(atomic_load(&s->bytes), used);
        assert_int_equal(atomic_load(&t->c->dir[0].pinned_bytes), used + lost);
        assert_false(evict_any(t->c));
        reopen(t);
        assert_int_equal(packed_count(t->c), COUNT);
    }
    for (unsigned i = 0; i < COUNT; i += 2) { /* one takes the other's place in the array */
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_find(t, key);
        cache_evict(t->c, o);
        object_drop(t->c, o);
    }
    s = &t->c->rules.section[1];
    assert_int_equal(s->count, COUNT / 2);
    assert_int_equal(packed_count(t->c), COUNT / 2);
    struct config without = t->config;
    without.bucket_count = 1;
    cache_rules_tick(t->c, &without);
    assert_int_equal(atomic_load(&t->c->dir[0].pinned_bytes), 0);
    assert_int_equal(s->count, 0);
    case_settle(t);
    packing_round(t->c, 0);
    evict_all(t);
    case_settle(t);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    case_end(t);
}

/* There must be no object that a look-up does not find and a restart does. */
static void without_memory_to_unpack_it_leaves_with_its_records(void **state)
{
    (void)state;
    for (unsigned kept = 0; kept < 2; kept++) { /* none for the entry, or for the chunk */
        struct cache_case *t = case_make(1);
        t->config.bucket_count = 2;
        t->config.buckets[1] = (struct conf_bucket){.match = "bucket/o1", .match_len = 9,
                                                    .pin = true};
        assert_int_equal(case_open(t), OK);
        quiet(t);
        fill_objects(t, COUNT);
        case_settle(t);
        packing_round(t->c, 0);
        uint64_t pinned = atomic_load(&t->c->dir[0].pinned_bytes);
        uint64_t used = space_used_bytes(t->c->dir[0].space);
        assert_true(pinned > 0);
        for (unsigned i = 11; i < 13; i++) {
            char key[16];
            snprintf(key, sizeof key, "o%u", i);
            struct okey k = case_key(t, key);
            struct index_shard *stripe = index_shard(t->c->stripe, k.id);
            pthread_mutex_lock(&stripe->lock);
            struct packed *p = item_packed(index_object_item(t->c, k.id));
            no_entry = kept == 0;
            no_chunk = kept == 1;
            assert_null(packed_unpack(t->c, p));
            no_entry = no_chunk = false;
            pthread_mutex_unlock(&stripe->lock);
            assert_null(case_find(t, key));
        }
        case_settle(t);
        assert_int_equal(atomic_load(&t->c->dir[0].pinned_bytes), pinned / 11 * 9);
        assert_int_equal(space_used_bytes(t->c->dir[0].space), used / COUNT * (COUNT - 2));
        assert_int_equal(count_readable(t, COUNT), COUNT - 2);
        reopen(t);
        assert_int_equal(count_readable(t, COUNT), COUNT - 2);
        struct cache_status s;
        cache_status(t->c, &s);
        assert_int_equal(s.objects, COUNT - 2);
        assert_int_equal(s.chunks, COUNT - 2);
        case_end(t);
    }
}

/* ---- a full index ---- */
static struct cache_case *tight_case(uint64_t more)
{
    struct cache_case *t = case_make(1);

    t->config.cache_index_memory = 1 * GIB;
    assert_int_equal(case_open(t), OK);
    quiet(t);
    t->c->index_limit_bytes = atomic_load(&t->c->index_bytes) + more;
    return t;
}

static void a_full_index_packs_before_it_evicts(void **state)
{
    enum { MANY = 1500, ROOM = 320 * KIB };
    struct cache_case *t = tight_case(ROOM);

    (void)state;
    unsigned refused = 0;
    for (unsigned i = 0; i < MANY; i += 100) { /* they are packed once their records are queued */
        refused += fill_small(t, i, i + 100);
        case_settle(t);
    }
    assert_true(refused <= MANY / 100); /* where a page of slots began: it takes 16 KiB at once */
    assert_true(packed_count(t->c) > MANY / 2);
    assert_true(atomic_load(&t->c->index_bytes) <= t->c->index_limit_bytes + 4 * KIB);
    struct cache_status s;
    cache_status(t->c, &s);
    /* Those that are free are looked for at random: one may leave where a few slices had none. */
    assert_true(s.objects >= MANY * 98 / 100);
    assert_int_equal(atomic_load(&t->c->evicted_bytes[EVICT_SPACE]),
                     (MANY - refused - s.objects) * 4096);
    assert_int_equal(count_small(t, MANY), s.objects);
    case_end(t);
}

/* Where all are packed already, one leaves for one that comes, or for a few. */
static void an_index_full_of_packed_ones_evicts_as_few_as_it_can(void **state)
{
    enum { MANY = 1500, MORE = 200 };
    struct cache_case *t = tight_case(1 * MIB);

    (void)state;
    assert_int_equal(fill_small(t, 0, MANY), 0);
    case_settle(t);
    packing_round(t->c, 0);
    assert_int_equal(packed_count(t->c), MANY);
    t->c->index_limit_bytes += atomic_load(&t->c->index_bytes) - index_limit(t->c) + 16 * KIB;
    unsigned refused = 0;
    for (unsigned i = 0; i < MORE; i += 10) {
        refused += fill_small(t, MANY + i, MANY + i + 10);
        case_settle(t);
    }
    assert_true(refused <= MORE / 20); /* as above */
    assert_true(atomic_load(&t->c->index_bytes) <= t->c->index_limit_bytes + 4 * KIB);
    struct cache_status s;
    cache_status(t->c, &s);
    assert_true(s.objects >= MANY - MORE);
    assert_int_equal(atomic_load(&t->c->evicted_bytes[EVICT_SPACE]),
                     (MANY + MORE - refused - s.objects) * 4096);
    assert_int_equal(count_small(t, MANY + MORE), s.objects);
    case_end(t);
}

static void a_start_keeps_nearly_all_that_a_full_index_held(void **state)
{
    enum { MANY = 3000 };
    struct cache_case *t = tight_case(4 * MIB);
    uint64_t began = atomic_load(&t->c->index_bytes);

    (void)state;
    assert_int_equal(fill_small(t, 0, MANY), 0);
    case_settle(t);
    packing_round(t->c, 0);
    uint64_t took = atomic_load(&t->c->index_bytes) - began;
    assert_true(took / MANY < 150);
    assert_int_equal(atomic_load(&t->c->packing.larger), 0);
    t->config.cache_index_memory =   /* some room is for those that are read */
        atomic_load(&t->c->index_bytes) * PACKING_PART / (PACKING_PART - 1) + 8 * KIB;
    reopen(t);
    struct cache_status status;
    cache_status(t->c, &status);
    /* Its tables are larger than those that grew. */
    assert_true(packed_count(t->c) >= MANY * 95 / 100);
    assert_int_equal(count_small(t, MANY), status.objects); /* the last ones may be entries */
    case_end(t);
}

/* What is read from a full index is larger for a while, and nothing is refused for that. */
static void hits_on_packed_ones_leave_room_for_misses(void **state)
{
    enum { MANY = 6000, READ = 500 };
    struct cache_case *t = case_make(1);
    unsigned refused = 0;

    (void)state;
    t->config.cache_index_memory = 3 * MIB / 2;
    assert_int_equal(case_open(t), OK);
    quiet(t);
    for (unsigned i = 0; i < MANY; i += 50) {
        refused += fill_small(t, i, i + 50);
        case_settle(t);
    }
    assert_true(refused <= MANY / 100);
    packing_round(t->c, 0);
    struct cache_status s;
    cache_status(t->c, &s);
    assert_true(s.objects < MANY * 99 / 100); /* else it is not full */
    assert_true(packed_count(t->c) >= READ);
    unsigned read = 0;
    for (unsigned i = 0; i < MANY && read < READ; i++) {
        char key[32];
        snprintf(key, sizeof key, "folder/small-%08u", i);
        struct object *o = case_find(t, key);
        if (o)
            object_drop(t->c, o);
        read += o != NULL;
    }
    assert_int_equal(read, READ);
    assert_true(atomic_load(&t->c->index_bytes) <= t->c->index_limit_bytes);
    refused = 0;
    for (unsigned i = MANY; i < MANY + 100; i += 10) {
        refused += fill_small(t, i, i + 10);
        case_settle(t);
    }
    assert_true(refused <= 5);       /* a page of slots may have begun */
    case_end(t);
}

static void those_that_came_last_are_packed_once_they_are_many(void **state)
{
    struct cache_case *t = case_make(1);
    unsigned many;

    (void)state;
    t->config.cache_index_memory = 3 * MIB;
    assert_int_equal(case_open(t), OK);
    quiet(t);
    many = t->c->packing.cap;
    assert_int_equal(many, 3 * MIB / PACKING_PART / NOTED_BYTES * 2);
    assert_int_equal(fill_small(t, 0, many - 10), 0);
    case_settle(t);
    struct object *held = case_find(t, "folder/small-00000003");
    assert_int_equal(pack_noted(t->c, UINT32_MAX, many / 2), many / 2 - 10);
    assert_int_equal(packed_count(t->c), many / 2 - 10); /* the oldest, but for the one held, */
    assert_true(is_packed(t, "folder/small-00000004"));
    assert_false(is_packed(t, "folder/small-00000003"));
    assert_int_equal(t->c->packing.noted, many / 2);
    assert_int_equal(pack_noted(t->c, UINT32_MAX, 0), many / 2 - 1); /* does not turn round it */
    assert_int_equal(t->c->packing.noted, 1);
    object_drop(t->c, held);
    assert_int_equal(pack_noted(t->c, UINT32_MAX, 0), 1);
    assert_false(has_lost_some(&t->c->packing));
    assert_int_equal(fill_small(t, many, 2 * many + 1), 0); /* one finds no room, */
    case_settle(t);
    assert_int_equal(t->c->packing.noted, many);
    t->c->packing.worked_ms = 0;
    packing_work(t->c);
    assert_int_equal(packed_count(t->c), 2 * many - 9); /* so a round comes to all */
    assert_false(has_lost_some(&t->c->packing));
    case_end(t);
}

static void a_pin_that_was_kept_leaves_the_others_packed(void **state)
{
    struct cache_case *t = packed_case(1);

    (void)state;
    assert_int_equal(cache_pin(t->c, span_of("bucket/o1"), 0), OK);
    cache_rules_tick(t->c, &t->config);
    assert_int_equal(packed_count(t->c), COUNT); /* packed again behind the walk */
    struct cache_status s;
    cache_status(t->c, &s);
    uint64_t pinned = s.pinned_bytes;
    assert_true(pinned > 0);
    reopen(t);
    cache_rules_tick(t->c, &t->config);
    assert_int_equal(packed_count(t->c), COUNT);
    cache_status(t->c, &s);
    assert_int_equal(s.pinned_bytes, pinned);
    const struct okey below = {.store = 0, .bucket = span_of("bucket"), .key = span_of("o2")};
    struct cache_wanted wanted = {.below = &below};
    struct object *out[CACHE_WALK_MAX];
    unsigned met = 0;
    for (uint64_t at = 0; at != CACHE_WALK_OVER;) {
        unsigned count = cache_walk(t->c, &at, out, &wanted);
        for (unsigned i = 0; i < count; i++)
            object_drop(t->c, out[i]);
        met += count;
    }
    assert_int_equal(met, 11);       /* o2, o20 to o29; the others were not touched */
    assert_int_equal(packed_count(t->c), COUNT - 11);
    wanted = (struct cache_wanted){.read_since_s = t->asked_ms / 1000 + 10};
    for (uint64_t at = 0; at != CACHE_WALK_OVER;) {
        unsigned count = cache_walk(t->c, &at, out, &wanted);
        for (unsigned i = 0; i < count; i++)
            object_leave(t->c, out[i]);
    }
    assert_int_equal(packed_count(t->c), COUNT); /* the eleven were met, and packed again */
    case_end(t);
}

/* ---- many threads ---- */
struct worker {
    struct cache_case of;            /* its own block and time, the common cache */
    pthread_t thread;
    unsigned number, filled, read;
};
static atomic_bool over;

static void *pack_on(void *arg)
{
    struct cache *c = arg;

    while (!atomic_load(&over))
        packing_round(c, 0);
    return NULL;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct cache_case *t = &w->of;

    for (unsigned step = 0; step < 4000; step++) {
        unsigned n = (unsigned)(random_u64() % 32), what = (unsigned)(random_u64() % 24);
        char key[16];
        snprintf(key, sizeof key, "k%u", n);
        t->asked_ms++;
        uint64_t size = n % 8 == 0 ? 2 * (uint64_t)CHUNK_BYTES : 5000 + n * 30000;
        struct object *o = case_learn(t, key, what == 0 ? "\"x\"" : "\"1\"", size);
        /* fill/ lets one filler in at a time: here each key has its worker. */
        if (what < 6 && n % 3 == w->number)
            w->filled += case_fill(t, o, 0) == OK;
        else if (what == 6)
            cache_forget(t->c, o);
        else if (what == 7)
            cache_doubt(t->c, o);
        else if (what == 8)
            evict_any(t->c);
        else
            w->read += case_read(t, o, 0, 0) == OK;
        object_drop(t->c, o);
    }
    return NULL;
}

/* Each packed one is in both tables, and at its place. */
static uint64_t check_books(struct cache *c)
{
    uint64_t chunks = 0, of_objects = 0, bytes = 0;

    for (unsigned i = 0; i < CACHE_SHARDS; i++) {
        for (uint32_t at = 0; at < c->chunk[i].table.cap; at++) {
            void *item = index_table_at(&c->chunk[i].table, at);
            if (!item)
                continue;
            const struct chunk *k = item;
            struct slot slot = item_is_packed(item) ? packed_slot(item_packed(item)) : k->slot;
            const struct resident_page *p = &c->dir[slot.dir].residents.place[slot.page];
            assert_ptr_equal(space_class_slots(slot.class_) > 1 ? p->many[slot.at] : p->one, item);
            if (!item_is_packed(item))
                assert_int_equal(atomic_load(&k->holds), 1);
            bytes += space_class_bytes(slot.class_);
            chunks++;
        }
        for (uint32_t at = 0; at < c->object[i].table.cap; at++) {
            void *item = index_table_at(&c->object[i].table, at);
            if (item)
                of_objects += item_is_packed(item) ? 1
                                                   : atomic_load(&((struct entry *)item)->chunks);
        }
    }
    assert_int_equal(chunks, atomic_load(&c->chunk_count));
    assert_int_equal(chunks, of_objects);
    assert_int_equal(bytes, space_used_bytes(c->dir[0].space));
    return chunks;
}

static void many_threads_and_the_hand_keep_the_books(void **state)
{
    struct cache_case *t = quiet(open_case(1));
    struct worker w[3] = {0};
    pthread_t hand;

    (void)state;
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&hand, NULL, pack_on, t->c), 0);
    for (unsigned i = 0; i < 3; i++) {
        case_beside(t, &w[i].of);
        w[i].number = i;
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    unsigned filled = 0, read = 0;
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(w[i].thread, NULL);
        case_beside_end(&w[i].of);
        filled += w[i].filled;
        read += w[i].read;
    }
    atomic_store(&over, true);
    pthread_join(hand, NULL);
    assert_true(filled > 100 && read > 100);
    fill_objects(t, COUNT);
    case_settle(t);
    packing_round(t->c, 0);
    assert_true(packed_count(t->c) >= COUNT);
    uint64_t chunks = check_books(t->c);
    reopen(t);
    assert_int_equal(check_books(t->c), chunks);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_no_record_is_packed_as_such_until_it_gets_one),
        cmocka_unit_test(packed_ones_take_a_third_and_come_back_as_they_were),
        cmocka_unit_test(a_chunk_is_found_by_its_data_though_its_object_is_packed),
        cmocka_unit_test(a_start_packs_what_it_reads),
        cmocka_unit_test(what_leaves_packed_is_gone_behind_a_restart),
        cmocka_unit_test(a_write_makes_a_packed_one_doubtful_for_good),
        cmocka_unit_test(a_new_generation_takes_the_place_of_a_packed_one),
        cmocka_unit_test(a_version_reads_the_bytes_of_a_packed_one),
        cmocka_unit_test(a_walk_meets_packed_ones),
        cmocka_unit_test(sections_and_pins_know_packed_ones),
        cmocka_unit_test(without_memory_to_unpack_it_leaves_with_its_records),
        cmocka_unit_test(a_full_index_packs_before_it_evicts),
        cmocka_unit_test(an_index_full_of_packed_ones_evicts_as_few_as_it_can),
        cmocka_unit_test(a_start_keeps_nearly_all_that_a_full_index_held),
        cmocka_unit_test(hits_on_packed_ones_leave_room_for_misses),
        cmocka_unit_test(those_that_came_last_are_packed_once_they_are_many),
        cmocka_unit_test(a_pin_that_was_kept_leaves_the_others_packed),
        cmocka_unit_test(many_threads_and_the_hand_keep_the_books),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
