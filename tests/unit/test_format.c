/* Cache directories of every format that ever was are kept in tests/data/format and must be read,
 * or moved aside, by the server of today; this program also makes the one of today's format.
 *
 *   build/release/tests/unit/test_format make    writes tests/data/format/N/cache.tar.xz */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include <sys/wait.h>

enum { FIXTURE_SLAB = 128 * MIB, READ_FORMATS = 1 };

/* What every fixture holds: objects of bytes that compress well, some of them in part. */
static const struct kept {
    const char *key, *etag;
    uint64_t size, number;           /* the one chunk that is there */
} kept[] = {{"small", "\"s\"", 9, 0},
            {"folder/with \303\244", "\"0123456789abcdef0123456789abcdef-3\"", 5000, 0},
            {"two granules", "\"g\"", GRANULE_BYTES + 77, 0},
            {"second chunk only", "\"c\"", CHUNK_BYTES + 4000, 1},
            {"version", "\"v\"", 4096, 0}};

static void pattern(const struct kept *x, uint8_t *out, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        out[i] = (uint8_t)(x->key[i / 16 % strlen(x->key)] + x->size % 7);
}

static void run(char *const argument[])
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execvp(argument[0], argument);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void fixture_path(unsigned format, char path[200])
{
    snprintf(path, 200, "tests/data/format/%u/cache.tar.xz", format);
}

/* ---- making ---- */
static void keep(struct cache_case *t, const struct kept *x)
{
    struct block_sums sums;
    struct object *o = case_learn(t, x->key, x->etag, x->size);
    struct chunk *k;
    struct buffer buffer = {.mem = t->block, .cap = BLOCK_BYTES};

    assert_int_equal(chunk_admit(t->c, o, x->number, case_asked, &k), OK);
    pattern(x, t->block, k->bytes);
    chunk_crc(o->data_id, x->number, 0, t->block, k->bytes, &sums);
    assert_int_equal(chunk_write_done(chunk_write(&t->machine, k, 0, &buffer, false)), OK);
    chunk_wrote(t->c, k, 0, &sums);
    chunk_filled(t->c, k);
    if (strcmp(x->key, "version") == 0)
        cache_doubt(t->c, o);
    object_drop(t->c, o);
}

static void make_fixture(void **state)
{
    struct cache_case *t = case_make(1);
    char path[200];

    (void)state;
    fixture_path(RECORD_FORMAT, path);
    t->config.cache_size.bytes = FIXTURE_SLAB;
    assert_int_equal(case_open(t), OK);
    for (unsigned i = 0; i < ARRAY_COUNT(kept); i++)
        keep(t, &kept[i]);
    object_drop(t->c, case_learn(t, "empty", "\"e\"", 0));
    case_close(t);
    char *pack[] = {(char *)"tar", (char *)"--owner=0", (char *)"--group=0", (char *)"-cJSf", path,
                    (char *)"-C", t->root, (char *)"d0", NULL};
    run(pack);
    case_end(t);
}

/* ---- reading ---- */
static struct cache_case *unpack(unsigned format)
{
    struct cache_case *t = case_make(1);
    char path[200];

    fixture_path(format, path);
    char *unpack_[] = {(char *)"tar", (char *)"--no-same-owner", (char *)"-xpJf", path,
                       (char *)"-C", t->root, NULL};
    run(unpack_);
    t->config.cache_size.bytes = FIXTURE_SLAB;
    return t;
}

static void expect_kept(struct cache_case *t, const struct kept *x)
{
    static uint8_t want[BLOCK_BYTES];
    struct object *o = case_find(t, x->key);
    struct buffer buffer = {.mem = t->block, .cap = BLOCK_BYTES};

    assert_non_null(o);
    assert_int_equal(o->size, x->size);
    assert_true(span_is(object_etag(o), x->etag));
    assert_true(span_is(object_headers(o), "content-type: application/x-tar\r\n"));
    assert_int_equal(o->last_modified_s, 1600000000);
    assert_int_equal(atomic_load(&o->flags), strcmp(x->key, "version") == 0 ? OBJECT_DOUBT : 0);
    struct chunk *k = chunk_find(t->c, o->data_id, x->number);
    assert_non_null(k);
    assert_int_equal(atomic_load(&k->present), 1);
    struct transfer *read = chunk_read(&t->machine, k, 0, k->bytes, &buffer);
    case_await(t, read);
    assert_int_equal(chunk_read_done(read), OK);
    pattern(x, want, k->bytes);
    assert_memory_equal(t->block, want, k->bytes);
    chunk_drop(t->c, k);
    object_drop(t->c, o);
}

static void formats_that_can_be_read_are_hits(void **state)
{
    (void)state;
    for (unsigned format = RECORD_FORMAT + 1 - READ_FORMATS; format <= RECORD_FORMAT; format++) {
        struct cache_case *t = unpack(format);
        if (case_open(t) != OK)
            fail_msg("%s", t->why);
        assert_int_equal(atomic_load(&t->c->dir[0].index_dropped), 0);
        assert_int_equal(atomic_load(&t->c->dir[0].index_moved), 0);
        assert_int_equal(atomic_load(&t->c->chunk_count), ARRAY_COUNT(kept));
        for (unsigned i = 0; i < ARRAY_COUNT(kept); i++)
            expect_kept(t, &kept[i]);
        struct object *o = case_find(t, "empty");
        assert_non_null(o);
        object_drop(t->c, o);
        /* And it can be written on. */
        case_reopen(t);
        for (unsigned i = 0; i < ARRAY_COUNT(kept); i++)
            expect_kept(t, &kept[i]);
        case_end(t);
    }
}

static void formats_that_can_be_read_no_more_are_moved_aside(void **state)
{
    (void)state;
    for (unsigned format = 1; format < RECORD_FORMAT + 1 - READ_FORMATS; format++) {
        struct cache_case *t = unpack(format);
        assert_int_equal(case_open(t), OK);
        assert_int_equal(atomic_load(&t->c->dir[0].index_moved), 1);
        assert_int_equal(atomic_load(&t->c->chunk_count), 0);
        case_end(t);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest make[] = {cmocka_unit_test(make_fixture)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_that_can_be_read_are_hits),
        cmocka_unit_test(formats_that_can_be_read_no_more_are_moved_aside),
    };

    if (argc > 1 && strcmp(argv[1], "make") == 0)
        return cmocka_run_group_tests(make, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
