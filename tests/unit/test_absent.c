/* Directories that cannot be used when the cache is opened: it is opened without them, and takes
 * them in when they are there, with what they hold.
 *
 * Life: a cache over temporary directories for each test. Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cache_case.h"

#include "server/cache/absent.c"
#include "server/cache/start.h"

/* As where the system has no memory for the next part of an index that is read. */
static _Atomic bool refuses;

static enum err copy_or_refuse(struct reader *r)
{
    return atomic_load(&refuses) ? ERR_BUSY : reader_copy(r);
}

#define reader_copy(r) copy_or_refuse(r)
#include "server/cache/join.c"
#undef reader_copy

enum { OBJECTS = 40 };

static struct object *find(struct cache_case *t, unsigned i)
{
    char key[16];

    snprintf(key, sizeof key, "o%u", i);
    return case_find(t, key);
}

static void fill_all(struct cache_case *t)
{
    for (unsigned i = 0; i < OBJECTS; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_learn(t, key, "\"1\"", 5000 + i);
        assert_int_equal(case_fill(t, o, 0), OK);
        object_drop(t->c, o);
    }
    case_settle(t);
}

static struct cache_case *open_filled(unsigned dirs)
{
    struct cache_case *t = case_make(dirs);

    t->config.cache_disk_timeout = 1000;
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    fill_all(t);
    return t;
}

/* Readable ones, and how many of them are doubtful. */
static unsigned present(struct cache_case *t, unsigned *doubtful)
{
    unsigned n = 0;

    *doubtful = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        struct object *o = find(t, i);
        bool here = o && case_read(t, o, 0, 0) == OK;
        n += here;
        *doubtful += here && (atomic_load(&o->flags) & OBJECT_DOUBT);
        if (o)
            object_drop(t->c, o);
    }
    return n;
}

static enum disk_state state_of(struct cache_case *t, unsigned dir)
{
    return (enum disk_state)atomic_load(&t->c->dir[dir].disk.state);
}

/* Its probation lasts no longer than its tests. */
static bool comes_up(struct cache_case *t, unsigned dir)
{
    struct disk *s = &t->c->dir[dir].disk;

    pthread_mutex_lock(&s->lock);
    if (s->health.state == DISK_PROBATION)
        s->health.since_ms = 0;
    pthread_mutex_unlock(&s->lock);
    return state_of(t, dir) == DISK_UP;
}

/* Reads of the slab fail. */
static void break_slab(struct cache_case *t, unsigned dir, bool broken)
{
    char slab[120], aside[140];

    snprintf(slab, sizeof slab, "%s/slab", t->dir[dir]);
    snprintf(aside, sizeof aside, "%s.aside", slab);
    if (broken) {
        assert_int_equal(rename(slab, aside), 0);
        assert_int_equal(mkdir(slab, 0700), 0);
    } else {
        /* At once: a cache that looks just then must not find an index without a slab. */
        assert_int_equal(renameat2(AT_FDCWD, aside, AT_FDCWD, slab, RENAME_EXCHANGE), 0);
        assert_int_equal(rmdir(aside), 0);
    }
}

/* Those of the second directory: how many, and which. */
static unsigned held_by_second(struct cache_case *t, bool second[OBJECTS])
{
    unsigned held = 0;

    for (unsigned i = 0; i < OBJECTS; i++) {
        struct object *o = find(t, i);
        struct chunk *k = chunk_find(t->c, o->data_id, 0);
        second[i] = k->slot.dir == 1;
        held += second[i];
        chunk_drop(t->c, k);
        object_drop(t->c, o);
    }
    assert_true(held > 2 && held < OBJECTS);
    return held;
}

static unsigned take_one(bool second[OBJECTS])
{
    unsigned i = 0;

    while (!second[i])
        i++;
    second[i] = false;
    return i;
}

/* Upstream says the same, or something new, and what it says is here. */
static void renew(struct cache_case *t, unsigned i, const char *etag, uint64_t size)
{
    char key[16];

    snprintf(key, sizeof key, "o%u", i);
    t->asked_ms += 1000;
    struct object *o = case_learn(t, key, etag, size);
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
}

/* All are here, and those are doubtful that joined. */
static void assert_doubtful(struct cache_case *t, const bool joined[OBJECTS])
{
    for (unsigned i = 0; i < OBJECTS; i++) {
        struct object *o = find(t, i);
        assert_non_null(o);
        assert_int_equal(case_read(t, o, 0, 0), OK);
        assert_int_equal(!!(atomic_load(&o->flags) & OBJECT_DOUBT), joined[i]);
        object_drop(t->c, o);
    }
}

static void a_disk_that_fails_at_the_start_is_taken_in_when_it_works(void **state)
{
    struct cache_case *t = open_filled(2);
    bool joined[OBJECTS];
    unsigned doubtful, held = held_by_second(t, joined);

    (void)state;
    case_close(t);
    break_slab(t, 1, true);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(state_of(t, 1), DISK_FENCED);
    assert_int_equal(present(t, &doubtful), OBJECTS - held);
    struct cache_status s;
    cache_status(t->c, &s);
    assert_string_not_equal(s.disk[1].why, "");
    assert_int_equal(s.disk[1].capacity_bytes, 0);
    for (unsigned i = 0; i < OBJECTS; i++)
        if (!joined[i])
            renew(t, i, "\"1\"", 5000 + i);
    /* One that it holds is replaced meanwhile, another one is filled again. */
    unsigned replaced = take_one(joined), again = take_one(joined);
    renew(t, replaced, "\"2\"", 7000);
    renew(t, again, "\"1\"", 5000 + again);
    break_slab(t, 1, false);
    AWAIT(comes_up(t, 1));
    for (unsigned life = 0; life < 3; life++) {
        assert_doubtful(t, joined);
        struct object *o = find(t, replaced);
        assert_true(span_is(object_etag(o), "\"2\""));
        object_drop(t->c, o);
        case_settle(t);
        case_reopen(t);
    }
    /* What upstream vouches for is believed for good. */
    for (unsigned i = 0; i < OBJECTS; i++)
        renew(t, i, i == replaced ? "\"2\"" : "\"1\"", i == replaced ? 7000 : 5000 + i);
    case_settle(t);
    case_reopen(t);
    assert_int_equal(present(t, &doubtful), OBJECTS);
    assert_int_equal(doubtful, 0);
    case_end(t);
}

static const char *path_in(struct cache_case *t, unsigned dir, const char *name)
{
    static char path[4][140];
    static unsigned next;
    char *at = path[next++ % ARRAY_COUNT(path)];

    snprintf(at, sizeof path[0], "%s/%s", t->dir[dir], name);
    return at;
}

static enum disk_cause cause_now(struct cache_case *t, unsigned dir)
{
    struct disk *s = &t->c->dir[dir].disk;

    pthread_mutex_lock(&s->lock);
    enum disk_cause cause = s->health.cause;
    pthread_mutex_unlock(&s->lock);
    return cause;
}

/* Without any, it is a cache that keeps nothing. */
static void without_a_disk_at_the_start_it_is_opened_all_the_same(void **state)
{
    struct cache_case *t = open_filled(1);
    unsigned doubtful;

    (void)state;
    case_close(t);
    break_slab(t, 0, true);
    assert_int_equal(case_open(t), OK);
    assert_int_equal(state_of(t, 0), DISK_FENCED);
    assert_int_equal(present(t, &doubtful), 0);
    struct object *o = case_learn(t, "o1", "\"1\"", 5001);
    assert_int_equal(case_fill(t, o, 0), ERR_FULL);
    object_drop(t->c, o);
    /* What it holds is named by ids that nobody knows here; and what is written here meanwhile
     * stands nowhere. */
    break_slab(t, 0, false);
    AWAIT(cause_now(t, 0) == DISK_OTHER);
    struct cache_status s;
    cache_status(t->c, &s);
    assert_non_null(strstr(s.disk[0].fix, "restart"));
    assert_int_equal(state_of(t, 0), DISK_FENCED);
    case_reopen(t);
    assert_int_equal(present(t, &doubtful), OBJECTS);
    assert_int_equal(doubtful, OBJECTS);
    case_end(t);
}

/* It may be the mount point of a disk that went away. */
static void where_nothing_is_known_of_the_mount_nothing_is_made(void **state)
{
    struct cache_case *t = open_filled(1);
    char aside[140];
    struct stat st;

    (void)state;
    case_close(t);
    break_slab(t, 0, true);
    assert_int_equal(case_open(t), OK);
    snprintf(aside, sizeof aside, "%s.aside", t->dir[0]);
    assert_int_equal(rename(t->dir[0], aside), 0);
    AWAIT(cause_now(t, 0) == DISK_REPLACED);
    assert_int_not_equal(stat(t->dir[0], &st), 0);
    assert_int_equal(mkdir(t->dir[0], 0700), 0);
    uint64_t marks = journal_mark(t->c->dir[0].journal);
    AWAIT(journal_mark(t->c->dir[0].journal) >= marks && cause_now(t, 0) == DISK_REPLACED);
    case_close(t);
    assert_int_equal(rmdir(t->dir[0]), 0);
    scratch_remove(aside);
    case_end(t);
}

/* Pins and jobs that ended while it was away do not come back with it, even where nothing is left
 * that says so. */
static void small_values_of_before_are_not_believed(void **state)
{
    struct cache_case *t = open_filled(2);
    char text[16];
    size_t len;

    (void)state;
    assert_int_equal(cache_state_put(t->c, span_of("gone"), span_of("1")), OK);
    assert_int_equal(cache_state_put(t->c, span_of("other"), span_of("1")), OK);
    case_settle(t);
    case_close(t);
    t->config.cache_dirs.count = 1;
    assert_int_equal(case_open(t), OK);
    assert_int_equal(cache_state_remove(t->c, span_of("gone")), OK);
    assert_int_equal(cache_state_put(t->c, span_of("other"), span_of("22")), OK);
    case_settle(t);
    case_reopen(t);
    case_close(t);
    t->config.cache_dirs.count = 2;
    break_slab(t, 1, true);
    assert_int_equal(case_open(t), OK);
    break_slab(t, 1, false);
    AWAIT(comes_up(t, 1));
    case_settle(t);
    case_close(t);
    /* The directory that joined says so alone, too. */
    char aside[140];
    snprintf(aside, sizeof aside, "%s.aside", t->dir[0]);
    for (unsigned alone = 0; alone < 2; alone++) {
        if (alone)
            assert_int_equal(rename(t->dir[0], aside), 0);
        assert_int_equal(case_open(t), OK);
        assert_int_equal(cache_state_get(t->c, span_of("gone"), text, sizeof text, &len),
                         ERR_NOT_FOUND);
        assert_int_equal(cache_state_get(t->c, span_of("other"), text, sizeof text, &len), OK);
        assert_int_equal(len, 2);
        assert_memory_equal(text, "22", len);
        case_close(t);
    }
    scratch_remove(aside);
    case_end(t);
}

/* A directory that is not there takes no mark of a removal: what is put and removed each night
 * would fill the table with them, and pins would find no room. */
static void lists_of_keys_leave_room_to_others_while_it_is_away(void **state)
{
    struct cache_case *t = open_filled(2);
    char name[STATE_NAME_MAX + 1];

    (void)state;
    case_close(t);
    break_slab(t, 1, true);
    assert_int_equal(case_open(t), OK);
    for (unsigned i = 0; i < 2 * STATE_VALUES_MAX; i++) {
        snprintf(name, sizeof name, STATE_LOOSE "%u/0", i);
        assert_int_equal(cache_state_put(t->c, span_of(name), span_of("x")), OK);
        assert_int_equal(cache_state_remove(t->c, span_of(name)), OK);
    }
    assert_int_equal(cache_state_put(t->c, span_of("pin/000"), span_of("y")), OK);
    break_slab(t, 1, false);
    AWAIT(comes_up(t, 1));
    case_settle(t);
    case_end(t);
}

/* What the others hold is doubtful where the one that joined does not stand beside them. */
static void who_joined_is_missed_by_the_others(void **state)
{
    struct cache_case *t = open_filled(2);
    bool second[OBJECTS];
    unsigned doubtful, here, held = held_by_second(t, second);

    (void)state;
    case_close(t);
    break_slab(t, 1, true);
    assert_int_equal(case_open(t), OK);
    for (unsigned i = 0; i < OBJECTS; i++)
        if (!second[i])
            renew(t, i, "\"1\"", 5000 + i);
    for (unsigned life = 0; life < 2; life++) {
        case_settle(t);
        case_close(t);
        t->config.cache_dirs.count = 1;
        assert_int_equal(case_open(t), OK);
        here = present(t, &doubtful);
        assert_int_equal(here, OBJECTS - held);
        assert_int_equal(doubtful, life ? here : 0);
        if (life)
            break;
        case_close(t);
        t->config.cache_dirs.count = 2;
        assert_int_equal(case_open(t), OK);
        break_slab(t, 1, false);
        AWAIT(comes_up(t, 1));
    }
    case_end(t);
}

/* An index that cannot be read: the directory comes in empty. */
static void a_damaged_index_is_written_anew(void **state)
{
    struct cache_case *t = open_filled(2);
    bool second[OBJECTS];
    unsigned doubtful, held = held_by_second(t, second);
    size_t len;

    (void)state;
    case_close(t);
    break_slab(t, 1, true);
    assert_int_equal(case_open(t), OK);
    char *bytes = (char *)scratch_read(path_in(t, 1, "index/data.mdb"), &len);
    memset(bytes, 0x55, len);
    scratch_write(path_in(t, 1, "index/data.mdb"), bytes, len);
    mem_give(bytes);
    break_slab(t, 1, false);
    AWAIT(comes_up(t, 1));
    AWAIT(!journal_is_lost(t->c->dir[1].journal));
    assert_int_equal(present(t, &doubtful), OBJECTS - held);
    fill_all(t);
    assert_int_equal(present(t, &doubtful), OBJECTS);
    assert_int_equal(atomic_load(&t->c->dir[1].index_moved), 1);
    case_reopen(t);
    assert_int_equal(present(t, &doubtful), OBJECTS);
    assert_int_equal(doubtful, 0);
    case_end(t);
}

/* Leaves whose keys do not rise, in a file that is sound but for that. */
static void damage_that_shows_late_costs_the_rest(void **state)
{
    struct cache_case *t = open_filled(2);
    bool second[OBJECTS];
    unsigned doubtful, held = held_by_second(t, second);
    size_t len, hit = 0;

    (void)state;
    case_close(t);
    break_slab(t, 1, true);
    assert_int_equal(case_open(t), OK);
    char *bytes = (char *)scratch_read(path_in(t, 1, "index/data.mdb"), &len);
    for (size_t page = 2; page * 4096 + 4096 <= len; page++) {
        uint16_t flags, lower;
        memcpy(&flags, bytes + page * 4096 + 10, sizeof flags);
        memcpy(&lower, bytes + page * 4096 + 12, sizeof lower);
        if (flags != 2 || lower < 24)
            continue;
        /* The first two entries of a leaf change places. */
        uint16_t pair[2];
        memcpy(pair, bytes + page * 4096 + 16, sizeof pair);
        uint16_t turned[2] = {pair[1], pair[0]};
        memcpy(bytes + page * 4096 + 16, turned, sizeof turned);
        hit++;
    }
    assert_true(hit > 0);
    scratch_write(path_in(t, 1, "index/data.mdb"), bytes, len);
    mem_give(bytes);
    break_slab(t, 1, false);
    AWAIT(comes_up(t, 1));
    AWAIT(!journal_is_lost(t->c->dir[1].journal) && !t->c->dir[1].renewed);
    assert_true(present(t, &doubtful) >= OBJECTS - held);
    fill_all(t);
    assert_int_equal(present(t, &doubtful), OBJECTS);
    case_reopen(t);
    assert_int_equal(present(t, &doubtful), OBJECTS);
    case_end(t);
}

/* Records that were not met would name slots that others get: their index may not stay. */
static void what_was_not_read_for_want_of_memory_is_written_anew(void **state)
{
    struct cache_case *t = open_filled(2);
    bool second[OBJECTS];
    unsigned doubtful, held = held_by_second(t, second);

    (void)state;
    case_close(t);
    break_slab(t, 1, true);
    assert_int_equal(case_open(t), OK);
    atomic_store(&refuses, true);
    break_slab(t, 1, false);
    AWAIT(comes_up(t, 1));
    AWAIT(atomic_load(&t->c->dir[1].index_moved) == 1);
    AWAIT(!journal_is_lost(t->c->dir[1].journal));
    atomic_store(&refuses, false);
    assert_int_equal(present(t, &doubtful), OBJECTS - held);
    fill_all(t);
    case_reopen(t);
    assert_int_equal(present(t, &doubtful), OBJECTS);
    case_end(t);
}

struct looker {
    struct cache_case *t;
    pthread_t thread;
    _Atomic bool over;
    _Atomic uint64_t looks;
};

/* As readers do: finds objects and chunks, holds them, has some asked about and some admitted. */
static void *look_around(void *arg)
{
    struct looker *l = arg;
    struct cache_case *t = l->t;

    for (unsigned i = 0; !atomic_load(&l->over); i++) {
        struct object *o = i % 7 ? find(t, i % OBJECTS) : NULL;
        if (!o) {
            char key[16];
            snprintf(key, sizeof key, "o%u", i % OBJECTS);
            o = case_learn(t, key, "\"1\"", 5000 + i % OBJECTS);
        }
        struct chunk *k = chunk_find(t->c, o->data_id, 0);
        if (k && chunk_present(t->c, k))
            assert_int_equal(k->bytes, o->size);
        if (k)
            chunk_drop(t->c, k);
        if (i % 11 == 0 && chunk_admit(t->c, o, 0, case_asked, &k) == OK)
            chunk_drop(t->c, k);
        object_drop(t->c, o);
        atomic_fetch_add(&l->looks, 1);
    }
    return NULL;
}

static void it_joins_under_readers(void **state)
{
    struct cache_case *t = open_filled(2);
    struct looker l[2];

    (void)state;
    case_close(t);
    break_slab(t, 1, true);
    assert_int_equal(case_open(t), OK);
    for (unsigned i = 0; i < ARRAY_COUNT(l); i++) {
        l[i] = (struct looker){.t = t};
        assert_int_equal(pthread_create(&l[i].thread, NULL, look_around, &l[i]), 0);
    }
    break_slab(t, 1, false);
    AWAIT(comes_up(t, 1));
    uint64_t then[] = {atomic_load(&l[0].looks), atomic_load(&l[1].looks)};
    for (unsigned i = 0; i < ARRAY_COUNT(l); i++) {
        AWAIT(atomic_load(&l[i].looks) > then[i]);
        atomic_store(&l[i].over, true);
        assert_int_equal(pthread_join(l[i].thread, NULL), 0);
    }
    fill_all(t);
    unsigned doubtful;
    assert_int_equal(present(t, &doubtful), OBJECTS);
    case_reopen(t);
    assert_int_equal(present(t, &doubtful), OBJECTS);
    case_end(t);
}

/* Another directory knows that it was mounted: nothing is made in its place. */
static void a_mount_that_is_missing_is_not_filled(void **state)
{
    struct cache_case *t = open_filled(2);
    char list[140], text[400], aside[140];
    struct stat st;

    (void)state;
    case_close(t);
    snprintf(list, sizeof list, "%s/mounts", t->dir[0]);
    /* From its first start on each knows of all. */
    size_t len;
    char *known = (char *)scratch_read(list, &len);
    assert_non_null(strstr(known, t->dir[0]));
    assert_non_null(strstr(known, t->dir[1]));
    mem_give(known);
    snprintf(text, sizeof text, "/\t%s\n%s\t%s\n", t->dir[0], t->dir[1], t->dir[1]);
    scratch_write(list, text, strlen(text));
    snprintf(aside, sizeof aside, "%s.aside", t->dir[1]);
    assert_int_equal(rename(t->dir[1], aside), 0);
    for (unsigned empty = 0; empty < 2; empty++) {
        assert_int_equal(case_open(t), OK);
        assert_int_equal(state_of(t, 1), DISK_FENCED);
        assert_int_equal(t->c->dir[1].disk.health.cause, DISK_MISSING);
        case_close(t);
        if (empty)
            assert_int_equal(rmdir(t->dir[1]), 0);
        else
            assert_int_not_equal(stat(t->dir[1], &st), 0);
        assert_int_equal(mkdir(t->dir[1], 0700), 0);
    }
    assert_int_equal(rmdir(t->dir[1]), 0);
    scratch_remove(aside);
    case_end(t);
}

/* What the operator has to set right refuses the start, as ever. */
static void mistakes_of_configuration_refuse_the_start(void **state)
{
    struct cache_case *t = case_make(2);
    char path[120];

    (void)state;
    snprintf(path, sizeof path, "%s/nothing/here", t->root);
    t->config.cache_dirs.item[1] = path;
    assert_int_equal(case_open(t), ERR_SYSTEM);
    scratch_write(t->dir[1], "", 0);
    t->config.cache_dirs.item[1] = t->dir[1];
    assert_int_equal(case_open(t), ERR_DENIED);
    case_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_fails_at_the_start_is_taken_in_when_it_works),
        cmocka_unit_test(without_a_disk_at_the_start_it_is_opened_all_the_same),
        cmocka_unit_test(where_nothing_is_known_of_the_mount_nothing_is_made),
        cmocka_unit_test(small_values_of_before_are_not_believed),
        cmocka_unit_test(lists_of_keys_leave_room_to_others_while_it_is_away),
        cmocka_unit_test(who_joined_is_missed_by_the_others),
        cmocka_unit_test(a_damaged_index_is_written_anew),
        cmocka_unit_test(damage_that_shows_late_costs_the_rest),
        cmocka_unit_test(what_was_not_read_for_want_of_memory_is_written_anew),
        cmocka_unit_test(it_joins_under_readers),
        cmocka_unit_test(a_mount_that_is_missing_is_not_filled),
        cmocka_unit_test(mistakes_of_configuration_refuse_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
