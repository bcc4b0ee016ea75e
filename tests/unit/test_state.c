/* Small named values: what a restart finds again, when directories agree and when they do not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_files.h"
#include "tests/lib/cache_kill.h"

#include "server/cache/state.c"

static void put(struct cache_case *t, const char *name, const char *value)
{
    assert_int_equal(cache_state_put(t->c, span_of(name), span_of(value)), OK);
}

static void expect(struct cache_case *t, const char *name, const char *value)
{
    char got[64];
    size_t len;

    enum err err = cache_state_get(t->c, span_of(name), got, sizeof got - 1, &len);
    if (!value) {
        assert_int_equal(err, ERR_NOT_FOUND);
        return;
    }
    assert_int_equal(err, OK);
    got[len] = '\0';
    assert_string_equal(got, value);
}

static const char *index_of(const struct cache_case *t, unsigned dir, const char *suffix)
{
    static char path[2][128];
    static unsigned next;
    char *out = path[next++ % 2];

    snprintf(out, sizeof path[0], "%.96s/index%s", t->dir[dir], suffix);
    return out;
}

static void save_index(const struct cache_case *t, unsigned dir)
{
    size_t len;
    uint8_t *bytes = scratch_read(index_of(t, dir, "/data.mdb"), &len);

    assert_int_equal(mkdir(index_of(t, dir, ".before"), 0700), 0);
    scratch_write(index_of(t, dir, ".before/data.mdb"), bytes, len);
    mem_give(bytes);
}

static void lose_index(const struct cache_case *t, unsigned dir)
{
    scratch_remove(index_of(t, dir, ""));
}

static void restore_index(const struct cache_case *t, unsigned dir)
{
    lose_index(t, dir);
    assert_int_equal(rename(index_of(t, dir, ".before"), index_of(t, dir, "")), 0);
}

struct seen {
    unsigned count;
    char names[256];
};

static void see(void *arg, struct span name, struct span value)
{
    struct seen *s = arg;

    (void)value;
    s->count++;
    snprintf(s->names + strlen(s->names), sizeof s->names - strlen(s->names), "%.*s ",
             (int)name.len, name.at);
}

static void values_are_found_changed_and_removed(void **state)
{
    struct cache_case *t = open_case(1);
    struct seen seen = {0};
    char small[2];
    size_t len;

    (void)state;
    expect(t, "job/00", NULL);
    put(t, "job/00", "first");
    put(t, "job/01", "other");
    put(t, "pin/x", "");
    expect(t, "pin/x", "");
    put(t, "job/00", "second");
    expect(t, "job/00", "second");
    cache_state_walk(t->c, span_of("job/"), see, &seen);
    assert_string_equal(seen.names, "job/00 job/01 ");
    assert_int_equal(cache_state_remove(t->c, span_of("job/01")), OK);
    assert_int_equal(cache_state_remove(t->c, span_of("job/01")), ERR_NOT_FOUND);
    expect(t, "job/01", NULL);
    assert_int_equal(cache_state_get(t->c, span_of("job/00"), small, sizeof small, &len),
                     ERR_TOO_LARGE);
    assert_int_equal(len, 6);
    static char big[STATE_VALUE_MAX + 1];
    assert_int_equal(cache_state_put(t->c, span_of("job/00"), span_make(big, sizeof big)),
                     ERR_TOO_LARGE);
    expect(t, "job/00", "second");
    case_end(t);
}

static void a_restart_finds_what_was_put_and_not_what_was_removed(void **state)
{
    static char big[STATE_VALUE_MAX];
    static char got[STATE_VALUE_MAX];
    struct cache_case *t = open_case(2);
    size_t len;

    (void)state;
    memset(big, 'x', sizeof big);
    put(t, "job/00", "old");
    put(t, "job/01", "gone");
    assert_int_equal(cache_state_put(t->c, span_of("policy"), span_make(big, sizeof big)), OK);
    case_reopen(t);
    put(t, "job/00", "new");
    assert_int_equal(cache_state_remove(t->c, span_of("job/01")), OK);
    for (unsigned i = 0; i < 3; i++) {
        case_reopen(t);
        expect(t, "job/00", "new");
        expect(t, "job/01", NULL);
        assert_int_equal(cache_state_get(t->c, span_of("policy"), got, sizeof got, &len), OK);
        assert_int_equal(len, sizeof big);
        assert_memory_equal(got, big, sizeof big);
    }
    assert_int_equal(t->c->values.count, 2); /* the mark of the removal went, too */
    case_end(t);
}

static void a_directory_that_is_behind_brings_nothing_back(void **state)
{
    struct cache_case *t = open_case(2);

    (void)state;
    put(t, "job/00", "old");
    put(t, "job/01", "gone");
    close_case(t);
    save_index(t, 1);
    assert_int_equal(case_open(t), OK);
    put(t, "job/00", "new");
    assert_int_equal(cache_state_remove(t->c, span_of("job/01")), OK);
    case_reopen(t);                  /* and now even the mark of the removal is forgotten */
    case_reopen(t);
    close_case(t);
    restore_index(t, 1);
    assert_int_equal(case_open(t), OK);
    expect(t, "job/00", "new");
    expect(t, "job/01", NULL);
    close_case(t);
    /* It was told: alone, it knows the same. */
    lose_index(t, 0);
    assert_int_equal(case_open(t), OK);
    expect(t, "job/00", "new");
    expect(t, "job/01", NULL);
    case_end(t);
}

static void a_lost_index_is_told_what_the_others_know(void **state)
{
    struct cache_case *t = open_case(2);

    (void)state;
    put(t, "pin/a", "1");
    close_case(t);
    for (unsigned i = 0; i < 2; i++) {
        lose_index(t, i);
        assert_int_equal(case_open(t), OK);
        expect(t, "pin/a", "1");
        close_case(t);
    }
    case_end(t);
}

/* Turns a byte of that text in a directory's index. */
static void damage(struct cache_case *t, unsigned dir, const char *text)
{
    FILE *f = fopen(index_of(t, dir, "/data.mdb"), "r+b");

    assert_non_null(f);
    static char bytes[MIB];
    size_t len = fread(bytes, 1, sizeof bytes, f);
    unsigned found = 0;
    for (char *at = bytes; (at = memmem(at, (size_t)(bytes + len - at), text, strlen(text)));
         at++) {
        assert_int_equal(fseek(f, at - bytes, SEEK_SET), 0);
        assert_int_equal(fputc('#', f), '#');
        found++;
    }
    assert_true(found > 0);
    fclose(f);
}

static void a_damaged_value_comes_from_the_other_directory_or_is_gone(void **state)
{
    struct cache_case *t = open_case(2);

    (void)state;
    put(t, "job/00", "needle");
    put(t, "job/01", "stays");
    close_case(t);
    damage(t, 0, "needle");
    assert_int_equal(case_open(t), OK);
    expect(t, "job/00", "needle");
    assert_int_equal(atomic_load(&t->c->dir[0].index_dropped), 1);
    case_reopen(t);
    assert_int_equal(atomic_load(&t->c->dir[0].index_dropped), 0);
    close_case(t);
    damage(t, 0, "needle");
    damage(t, 1, "needle");
    assert_int_equal(case_open(t), OK);
    expect(t, "job/00", NULL);
    expect(t, "job/01", "stays");
    put(t, "job/00", "again");
    case_reopen(t);
    expect(t, "job/00", "again");
    assert_int_equal(atomic_load(&t->c->dir[1].index_dropped), 0);
    case_end(t);
}

static bool put_and_sync(struct cache_case *t)
{
    put(t, "job/00", "kept");
    return cache_state_sync(t->c, 10000);
}

static void what_was_synced_survives_kill_9(void **state)
{
    struct cache_case *t = case_make(2);

    (void)state;
    case_open_killed(t, put_and_sync);
    expect(t, "job/00", "kept");
    case_end(t);
}

static void there_is_an_end_to_values_but_not_to_names_over_time(void **state)
{
    struct cache_case *t = open_case(1);
    char name[STATE_NAME_MAX + 1];

    (void)state;
    for (unsigned i = 0; i < 3 * STATE_VALUES_MAX; i++) {
        snprintf(name, sizeof name, "pin/%u", i);
        put(t, name, "x");
        assert_int_equal(cache_state_remove(t->c, span_of(name)), OK);
    }
    for (unsigned i = 0; i < STATE_VALUES_MAX; i++) {
        snprintf(name, sizeof name, "job/%u", i);
        put(t, name, "x");
    }
    assert_int_equal(cache_state_put(t->c, span_of("more"), span_of("x")), ERR_FULL);
    put(t, "job/0", "y");
    case_reopen(t);
    expect(t, "job/0", "y");
    expect(t, "pin/2500", NULL);
    assert_int_equal(t->c->values.count, STATE_VALUES_MAX);
    case_end(t);
}

static _Atomic bool told_enough;

static void *tell_on(void *arg)
{
    while (!atomic_load(&told_enough))
        cache_tell(arg);
    return NULL;
}

/* A journal's thread tells the metrics behind each commit, also while the cache closes. */
static void metrics_are_told_while_the_cache_closes(void **state)
{
    pthread_t thread;

    (void)state;
    for (unsigned n = 0; n < 20; n++) {
        struct cache_case *t = open_case(1);
        atomic_store(&told_enough, false);
        assert_int_equal(pthread_create(&thread, NULL, tell_on, t->c), 0);
        learner_close(t->c);
        atomic_store(&told_enough, true);
        pthread_join(thread, NULL);
        case_end(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_told_while_the_cache_closes),
        cmocka_unit_test(values_are_found_changed_and_removed),
        cmocka_unit_test(a_restart_finds_what_was_put_and_not_what_was_removed),
        cmocka_unit_test(a_directory_that_is_behind_brings_nothing_back),
        cmocka_unit_test(a_lost_index_is_told_what_the_others_know),
        cmocka_unit_test(a_damaged_value_comes_from_the_other_directory_or_is_gone),
        cmocka_unit_test(what_was_synced_survives_kill_9),
        cmocka_unit_test(there_is_an_end_to_values_but_not_to_names_over_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
