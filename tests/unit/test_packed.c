/* The packed form of a small object: it says what it was told; what it cannot say is refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"

#include "server/cache/packed.c"

enum { ROUNDS = 2000 };

static const char HEADERS[] = "content-type: image/jpeg\r\n";

/* Ids are those that its names give. */
static struct small small_of(struct cache_case *t, const char *key, const char *etag, uint64_t size)
{
    struct small s = {.k = case_key(t, key), .size = size, .etag = span_of(etag),
                      .headers = span_of(HEADERS), .checked_ms = 1700000000123,
                      .read_s = 1700000005, .saved_s = 1700000000, .saved_read_s = 1700000001,
                      .vouched = 77};

    s.data_id = cache_data_id(t->c, &s.k, s.etag, size);
    s.slot.class_ = (uint8_t)space_class((uint32_t)size);
    return s;
}

static void assert_says(const struct packed *p, const struct small *s)
{
    char text[PACKED_TEXT];
    struct small r;

    packed_read(p, &r, text);
    assert_true(span_eq(r.k.bucket, s->k.bucket));
    assert_true(span_eq(r.k.key, s->k.key));
    assert_int_equal(r.k.store, s->k.store);
    assert_int_equal(r.k.bucket_stripe, s->k.bucket_stripe);
    assert_true(id_eq(packed_id(p), s->k.id));
    assert_true(id_eq(packed_data_id(p), s->data_id));
    assert_true(span_eq(r.etag, s->etag));
    assert_true(span_eq(r.headers, s->headers));
    assert_int_equal(r.size, s->size);
    assert_int_equal(r.modified_s, s->modified_s);
    assert_int_equal(r.checked_ms, s->checked_ms);
    assert_int_equal(r.vouched, s->vouched);
    assert_int_equal(r.flags, s->flags);
    assert_int_equal(r.read_s, s->read_s);
    assert_int_equal(r.saved_s, s->saved_s);
    assert_int_equal(r.saved_read_s, s->saved_read_s);
    assert_int_equal(r.doubted, s->doubted);
    assert_int_equal(r.unpinned, s->unpinned);
    assert_int_equal(r.unrecorded, s->unrecorded);
    assert_int_equal(r.has_chunk, s->has_chunk);
    assert_int_equal(r.section, s->section);
    assert_memory_equal(&r.mark, &s->mark, sizeof r.mark);
    assert_int_equal(r.slot.page, s->slot.page);
    assert_int_equal(r.slot.at, s->slot.at);
    assert_int_equal(r.slot.dir, s->slot.dir);
    assert_int_equal(r.slot.class_, s->slot.class_);
    assert_memory_equal(r.crc, s->crc, chunk_granules((uint32_t)s->size) * sizeof *s->crc);
}

static void random_rest(struct small *s)
{
    s->modified_s = (uint32_t)random_u64();
    s->checked_ms = random_u64() % ((uint64_t)UINT32_MAX * 1000);
    s->vouched = random_u64() >> 16;
    s->flags = (uint32_t)random_u64() & (OBJECT_DOUBT | OBJECT_STABLE);
    s->read_s = (uint32_t)(random_u64() | 0x10000);
    s->saved_s = (uint32_t)(s->checked_ms / 1000 - min_u64(random_u64() % 65536,
                                                           s->checked_ms / 1000));
    s->saved_read_s = s->read_s - (uint32_t)(random_u64() % 65536);
    s->doubted = random_u64() & 1;
    s->unpinned = random_u64() & 1;
    s->unrecorded = random_u64() & 1;
    s->has_chunk = random_u64() & 1;
    s->slot.page = (uint32_t)random_u64();
    s->slot.at = (uint16_t)random_u64();
    s->slot.dir = (uint8_t)(random_u64() % CACHE_DIRS_MAX);
    random_bytes(&s->mark, sizeof s->mark);
    random_bytes(s->crc, sizeof s->crc);
}

static void it_says_what_it_was_told(void **state)
{
    static const char *const etags[] = {
        "\"9b2cf535f27731c974343645a3985328\"", "\"9b2cf535f27731c974343645a3985328-17\"",
        "\"9b2cf535f27731c974343645a3985328-65535\"", "\"9b2cf535f27731c974343645a3985328-65536\"",
        "\"9B2CF535F27731C974343645A3985328\"", "\"9b2cf535f27731c974343645a3985328-\"",
        "\"9b2cf535f27731c974343645a3985328-07\"", "\"9b2cf535f27731c974343645a398532g\"",
        "9b2cf535f27731c974343645a3985328", "\"\"", "", "\"6\"", "W/\"9b2cf535\"",
        "\"9b2cf535f27731c974343645a3985328x\"", "\"00000000000000000000000000000000-0\"",
    };
    static const char *const keys[] = {
        "a", "train/n01440764/n01440764_10026.JPEG", "folder/", "a/b/c", "/", "//", "x/",
    };
    struct cache_case *t = open_case(1);
    uint64_t before = atomic_load(&t->c->index_bytes);

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t size = 1 + random_u64() % PACKED_BYTES_MAX;
        struct small s = small_of(t, keys[i % ARRAY_COUNT(keys)],
                                  etags[random_u64() % ARRAY_COUNT(etags)], size);
        random_rest(&s);
        s.section = (uint8_t)(random_u64() % 3);
        assert_true(small_fits(t->c, &s) && small_fits_chunk(t->c, &s));
        struct packed *p = packed_make(t->c, &s);
        assert_non_null(p);
        assert_false(item_is_packed(p));
        assert_true(item_is_packed(packed_item(p)));
        assert_ptr_equal(item_packed(packed_item(p)), p);
        assert_says(p, &s);
        random_rest(&s);
        packed_set(p, &s);
        if (s.section > 0) {
            packed_set_in_section(p, 0x12345678);
            assert_int_equal(packed_in_section(p), 0x12345678);
        }
        assert_says(p, &s);
        packed_lose_chunk(p);
        assert_false(packed_has_chunk(p));
        packed_give(t->c, p);
    }
    /* The table of what they share grew, and it is counted. */
    assert_int_equal(atomic_load(&t->c->index_bytes) - before,
                     index_table_bytes(&t->c->kin.table) + index_table_bytes(&t->c->header.table));
    assert_int_equal(t->c->kin.table.count, 0);
    case_end(t);
}

static void an_image_of_a_dataset_takes_a_hundred_bytes(void **state)
{
    struct cache_case *t = open_case(1);
    struct small s = small_of(t, "train/n01440764/n01440764_10026.JPEG",
                              "\"9b2cf535f27731c974343645a3985328\"", 110000);
    struct packed *p = packed_make(t->c, &s);

    (void)state;
    assert_int_equal(packed_bytes(p), 56 + 4 + 16 + strlen("n01440764_10026.JPEG"));
    packed_give(t->c, p);
    case_end(t);
}

/* Not by one byte more, and not with ids of something else. */
static void what_it_cannot_say_is_refused(void **state)
{
    struct cache_case *t = open_case(1);
    char tail[TAIL_MAX + 2] = "", etag[ETAG_MAX + 2] = "", deep[PREFIX_MAX + 3] = "";
    struct small s = small_of(t, "a/b", "\"1\"", 4096);

    (void)state;
    memset(tail, 'k', TAIL_MAX + 1);
    memset(etag, 'e', ETAG_MAX + 1);
    memset(deep, 'd', PREFIX_MAX);
    memcpy(deep + PREFIX_MAX, "/x", 3);
    assert_true(small_fits(t->c, &s));
#define REFUSED(change)                       \
    do {                                      \
        struct small x = s;                   \
        change;                               \
        assert_false(small_fits(t->c, &x));   \
    } while (0)
    REFUSED(x.size = 0);
    REFUSED(x.k.version = span_of("v"));
    REFUSED(x.k.store = STORE_NONE);
    REFUSED(x.k.id.a ^= 1);
    REFUSED(x.modified_s = (uint64_t)1 << 32);
    REFUSED(x.checked_ms = (uint64_t)1 << 48);
    REFUSED(x.vouched = UINT64_MAX);
    REFUSED(x.flags = OBJECT_GONE);
    REFUSED(x.flags = OBJECT_DISTRUSTED);
    assert_true(small_fits_chunk(t->c, &s));
    struct small other = s;
    other.slot.class_++;
    assert_false(small_fits_chunk(t->c, &other));
    other = s;
    other.data_id.b ^= 1;
    assert_false(small_fits_chunk(t->c, &other));
    other = s;
    other.size++;
    assert_false(small_fits_chunk(t->c, &other));
    s = small_of(t, "a", "\"1\"", PACKED_BYTES_MAX + 1);
    assert_false(small_fits(t->c, &s));
    s = small_of(t, tail, "\"1\"", 4096);
    assert_false(small_fits(t->c, &s));
    s = small_of(t, deep, "\"1\"", 4096);
    assert_false(small_fits(t->c, &s));
    s = small_of(t, "a", etag, 4096);
    assert_false(small_fits(t->c, &s));
    tail[TAIL_MAX] = etag[ETAG_MAX] = 0;
    s = small_of(t, tail, etag, 4096);
    assert_true(small_fits(t->c, &s));
    struct packed *p = packed_make(t->c, &s);
    assert_says(p, &s);
    packed_give(t->c, p);
    s = small_of(t, deep + 1, "\"1\"", 4096);
    assert_true(small_fits(t->c, &s));
    p = packed_make(t->c, &s);
    assert_says(p, &s);
    packed_give(t->c, p);
    case_end(t);
}

/* Times of before are due again however long ago they were. */
static void what_was_saved_long_ago_is_still_due(void **state)
{
    struct cache_case *t = open_case(1);
    struct small s = small_of(t, "a", "\"1\"", 4096), r;
    char text[PACKED_TEXT];

    (void)state;
    s.saved_s = 5;
    s.saved_read_s = 7;
    struct packed *p = packed_make(t->c, &s);
    packed_read(p, &r, text);
    assert_int_equal(r.saved_s, s.checked_ms / 1000 - UINT16_MAX);
    assert_int_equal(r.saved_read_s, s.read_s - UINT16_MAX);
    s.saved_s = UINT32_MAX;          /* later than what is saved: just now */
    packed_set(p, &s);
    packed_read(p, &r, text);
    assert_int_equal(r.saved_s, s.checked_ms / 1000);
    packed_give(t->c, p);
    case_end(t);
}

static void neighbours_share_what_is_the_same(void **state)
{
    struct cache_case *t = open_case(1);
    struct small s = small_of(t, "train/a", "\"1\"", 4096);
    struct packed *p[4];

    (void)state;
    p[0] = packed_make(t->c, &s);
    s = small_of(t, "train/b", "\"2\"", 8192);
    uint64_t before = atomic_load(&t->c->index_bytes);
    p[1] = packed_make(t->c, &s);
    assert_int_equal(atomic_load(&t->c->index_bytes) - before,
                     round_up(packed_bytes(p[1]), CELL_STEP));
    assert_int_equal(t->c->kin.table.count, 1);
    assert_ptr_equal(p[0]->kin, p[1]->kin);
    s.headers = span_of("content-type: text/plain\r\n");
    p[2] = packed_make(t->c, &s);
    s = small_of(t, "test/b", "\"2\"", 8192);
    p[3] = packed_make(t->c, &s);
    assert_int_equal(t->c->kin.table.count, 3);
    for (unsigned i = 0; i < 4; i++)
        packed_give(t->c, p[i]);
    assert_int_equal(t->c->kin.table.count, 0);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_it_was_told),
        cmocka_unit_test(an_image_of_a_dataset_takes_a_hundred_bytes),
        cmocka_unit_test(what_it_cannot_say_is_refused),
        cmocka_unit_test(what_was_saved_long_ago_is_still_due),
        cmocka_unit_test(neighbours_share_what_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
