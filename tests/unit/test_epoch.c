/* Writes through us: what they take back, what must be on disk before they may go on, and what a
 * crash leaves of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/write_case.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "server/cache/epoch.c"

/* ---- what may be learnt ---- */
static void an_answer_asked_for_before_a_write_teaches_nothing(void **state)
{
    struct cache_case *t = open_case(0);
    struct okey k = key_at(t, "a", "");
    struct epoch before = cache_epoch(t->c, &k);
    struct cache_write w;

    (void)state;
    begin_write(t, &w, "a");
    assert_false(w.busy);            /* nothing is known: nothing to wait for */
    struct epoch during = cache_epoch(t->c, &k);
    assert_int_equal(learn_at(t, &k, "\"1\"", before), ERR_CHANGED);
    assert_int_equal(learn_at(t, &k, "\"1\"", during), ERR_CHANGED);
    assert_true(cache_is_written(t->c, during));
    cache_write_end(t->c, &w, false);
    assert_false(cache_is_written(t->c, during));
    assert_int_equal(learn_at(t, &k, "\"1\"", before), ERR_CHANGED);
    assert_int_equal(learn_at(t, &k, "\"1\"", during), ERR_CHANGED);
    assert_null(case_find(t, "a"));
    assert_int_equal(learn_now(t, "a", "\"2\""), OK);
    assert_false(is_doubtful(t, "a", ""));
    case_end(t);
}

static void doubt_outlives_answers_of_before_and_of_during(void **state)
{
    struct cache_case *t = open_case(0);
    struct okey k = key_at(t, "a", "");
    struct cache_write w;

    (void)state;
    assert_int_equal(learn_now(t, "a", "\"1\""), OK);
    struct epoch before = cache_epoch(t->c, &k);
    begin_write(t, &w, "a");
    struct epoch during = cache_epoch(t->c, &k);
    assert_true(is_doubtful(t, "a", ""));
    /* The same generation may be served to who asked, and stays in doubt. */
    assert_int_equal(learn_at(t, &k, "\"1\"", before), OK);
    assert_int_equal(learn_at(t, &k, "\"1\"", during), OK);
    assert_int_equal(learn_at(t, &k, "\"2\"", during), ERR_CHANGED);
    assert_true(is_doubtful(t, "a", ""));
    cache_write_end(t->c, &w, false);
    assert_int_equal(learn_at(t, &k, "\"1\"", during), OK);
    assert_true(is_doubtful(t, "a", ""));
    assert_int_equal(learn_now(t, "a", "\"1\""), OK);
    assert_false(is_doubtful(t, "a", ""));
    case_end(t);
}

/* A copy of an object onto itself had changed its fields, and another write came between the asking
 * and its answer: the fields of before were served as those of now. */
static void fields_of_before_a_copy_onto_itself_are_not_served_behind_it(void **state)
{
    struct cache_case *t = open_case(0);
    struct okey k = key_at(t, "a", "");
    struct cache_write copy, next;

    (void)state;
    assert_int_equal(learn_fields(t, &k, "\"1\"", "a: old\r\n", cache_epoch(t->c, &k)), OK);
    begin_write(t, &copy, "a");
    cache_write_end(t->c, &copy, false);
    struct epoch asked = cache_epoch(t->c, &k);
    begin_write(t, &next, "a");
    assert_int_equal(learn_fields(t, &k, "\"1\"", "a: new\r\n", asked), ERR_CHANGED);
    assert_int_equal(learn_fields(t, &k, "\"1\"", "a: old\r\n", asked), OK);
    cache_write_end(t->c, &next, false);
    assert_int_equal(learn_fields(t, &k, "\"1\"", "a: new\r\n", asked), ERR_CHANGED);
    assert_true(is_doubtful(t, "a", ""));
    asked = cache_epoch(t->c, &k);
    assert_int_equal(learn_fields(t, &k, "\"1\"", "a: new\r\n", asked), OK);
    assert_false(is_doubtful(t, "a", ""));
    case_end(t);
}

static void of_two_writes_at_a_time_the_last_end_counts(void **state)
{
    struct cache_case *t = open_case(0);
    struct cache_write first, second;

    (void)state;
    assert_int_equal(learn_now(t, "a", "\"1\""), OK);
    begin_write(t, &first, "a");
    begin_write(t, &second, "a");
    cache_write_end(t->c, &first, false);
    assert_int_equal(learn_now(t, "a", "\"2\""), ERR_CHANGED);
    assert_true(is_doubtful(t, "a", ""));
    cache_write_end(t->c, &second, false);
    assert_int_equal(learn_now(t, "a", "\"2\""), OK);
    assert_false(is_doubtful(t, "a", ""));
    case_end(t);
}

static void the_clock_of_an_older_check_does_not_defend_what_is_doubtful(void **state)
{
    struct cache_case *t = open_case(0);
    struct cache_write w;

    (void)state;
    t->asked_ms = clock_wall_ms() - 10;
    assert_int_equal(learn_now(t, "a", "\"1\""), OK);
    begin_write(t, &w, "a");
    cache_write_end(t->c, &w, false);
    t->asked_ms -= 50;               /* the clock was set back a little */
    assert_int_equal(learn_now(t, "a", "\"2\""), OK);
    struct object *o = case_find(t, "a");
    assert_true(span_is(object_etag(o), "\"2\""));
    object_drop(t->c, o);
    case_end(t);
}

/* Which version a write without one changes only the store knows: a legal hold was not seen where
 * its object was asked for by its version. */
static void a_write_hits_its_version_and_what_is_current(void **state)
{
    static const char *const versions[] = {"", "null", "v1", "v2"};
    static const bool hit[3][4] = {
        {true, true, true, true}, {true, true, false, false}, {true, false, true, false}};
    struct cache_case *t = open_case(0);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct okey k = key_at(t, "a", versions[i]);
        struct cache_write w;
        for (unsigned v = 0; v < 4; v++) {
            struct okey one = key_at(t, "a", versions[v]);
            assert_int_equal(learn_at(t, &one, "\"1\"", cache_epoch(t->c, &one)), OK);
            assert_false(is_doubtful(t, "a", versions[v]));
        }
        cache_write_begin(t->c, &w, &k, &t->machine);
        cache_write_end(t->c, &w, false);
        for (unsigned v = 0; v < 4; v++)
            assert_int_equal(is_doubtful(t, "a", versions[v]), hit[i][v]);
    }
    case_end(t);
}

static void what_is_deleted_for_sure_is_forgotten(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache_write w;

    (void)state;
    keep(t, "a");
    begin_surely(t, &w, "a");
    assert_non_null(case_find(t, "a"));
    struct object *held = case_find(t, "a");
    object_drop(t->c, held);
    object_drop(t->c, held);
    cache_write_end(t->c, &w, true);
    assert_null(case_find(t, "a"));
    case_settle(t);
    assert_int_equal(space_used_bytes(t->c->dir[0].space), 0);
    /* One that was never begun is left alone. */
    w = (struct cache_write){0};
    cache_write_end(t->c, &w, true);
    case_end(t);
}

/* ---- what must be on disk ---- */
static void only_what_has_a_record_is_waited_for(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache_write w;

    (void)state;
    begin_write(t, &w, "unknown");
    assert_false(w.busy);
    cache_write_end(t->c, &w, false);
    assert_int_equal(learn_now(t, "bare", "\"1\""), OK);
    begin_write(t, &w, "bare");      /* known, but in RAM only */
    assert_false(w.busy);
    cache_write_end(t->c, &w, false);
    keep(t, "kept");
    case_settle(t);
    begin_write(t, &w, "kept");
    assert_true(w.busy);
    await_write(t, &w);
    assert_int_equal(w.why, OK);
    cache_write_end(t->c, &w, false);
    /* The doubt of before is still on disk. */
    begin_write(t, &w, "kept");
    assert_false(w.busy);
    cache_write_end(t->c, &w, false);
    assert_int_equal(learn_now(t, "kept", "\"1\""), OK);
    begin_write(t, &w, "kept");
    assert_true(w.busy);
    await_write(t, &w);
    cache_write_end(t->c, &w, false);
    case_end(t);
}

static void a_record_that_is_only_about_to_be_removed_is_waited_for(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache_write w;

    (void)state;
    keep(t, "a");
    case_settle(t);
    struct object *o = case_find(t, "a");
    cache_forget(t->c, o);
    object_drop(t->c, o);
    begin_write(t, &w, "a");
    assert_true(w.busy);
    await_write(t, &w);
    begin_write(t, &w, "a");
    assert_false(w.busy);
    case_end(t);
}

static void every_directory_with_a_record_is_waited_for(void **state)
{
    struct cache_case *t = open_case(3);
    struct okey k = key_at(t, "wide", "");
    struct object_facts f = {.size = 24 * (uint64_t)CHUNK_BYTES, .asked_ms = t->asked_ms,
                             .etag = span_of("\"1\""), .headers = span_of("")};
    struct cache_write w;
    struct object *o;

    (void)state;
    assert_int_equal(cache_learn(t->c, &k, &f, &o), OK);
    for (uint64_t n = 0; n < 24; n++)
        assert_int_equal(case_fill(t, o, n), OK);
    assert_int_equal(entry_of(t->c, o->id)->dirs, 7);
    case_settle(t);
    begin_surely(t, &w, "wide");
    assert_int_equal(entry_of(t->c, o->id)->doubted, 7);
    assert_true(case_settled(t));
    cache_write_end(t->c, &w, false);
    object_drop(t->c, o);
    case_end(t);
}

/* ---- crashes ---- */
/* A process of its own opens the cache, plays, says so, and is killed where it stands. */
static struct cache_case *case_with(const char *const *keys, unsigned dirs)
{
    struct cache_case *t = open_case(dirs);

    for (; *keys; keys++)
        keep(t, *keys);
    close_case(t);
    return t;
}

static void a_crash_behind_the_doubt_leaves_doubt(void **state)
{
    struct cache_case *t = case_with((const char *[]){"a", "b", NULL}, 1);

    (void)state;
    crash_after(t, write_a);
    assert_true(is_doubtful(t, "a", ""));
    assert_false(is_doubtful(t, "b", ""));
    assert_int_equal(learn_now(t, "a", "\"1\""), OK);
    case_reopen(t);
    assert_false(is_doubtful(t, "a", ""));
    case_end(t);
}

static void forget_and_write_a(struct cache_case *t)
{
    struct object *o = case_find(t, "a");

    cache_forget(t->c, o);
    object_drop(t->c, o);
    write_a(t);
}

static void a_crash_behind_a_write_does_not_bring_back_what_was_forgotten(void **state)
{
    struct cache_case *t = case_with((const char *[]){"a", "b", NULL}, 1);

    (void)state;
    crash_after(t, forget_and_write_a);
    assert_null(case_find(t, "a"));
    assert_false(is_doubtful(t, "b", ""));
    case_end(t);
}

static void fill_more_of_a(struct cache_case *t)
{
    struct object *o;

    write_a(t);
    /* A reader of before ends its fill: the record is made anew. */
    o = case_find(t, "a");
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
    case_settle(t);
}

static void a_record_made_anew_in_doubt_says_so(void **state)
{
    struct cache_case *t = case_with((const char *[]){"a", NULL}, 1);

    (void)state;
    crash_after(t, fill_more_of_a);
    assert_true(is_doubtful(t, "a", ""));
    case_end(t);
}

/* ---- disks that fail ---- */
static struct rlimit file_limit;

/* No file grows any more: the index cannot be committed. */
static void break_disks(bool broken)
{
    struct rlimit l = {broken ? 8 * KIB : file_limit.rlim_max, file_limit.rlim_max};

    if (file_limit.rlim_max == 0) {
        getrlimit(RLIMIT_FSIZE, &file_limit);
        l.rlim_max = file_limit.rlim_max;
    }
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &l);
}

static off_t starts_of(const struct cache_case *t, unsigned dir)
{
    char path[128];
    struct stat st;

    snprintf(path, sizeof path, "%s/starts", t->dir[dir]);
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void keep_many(struct cache_case *t, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "m%u", i);
        keep(t, key);
    }
}

static void write_a_on_a_failing_disk(struct cache_case *t)
{
    static struct cache_write w;

    keep_many(t, 300);               /* so much that the file would have to grow */
    break_disks(true);
    begin_surely(t, &w, "a");
    if (w.why != ERR_DISK)
        _exit(1);
    /* And at once from now on. */
    begin_write(t, &w, "b");
    if (w.busy || w.why != ERR_DISK)
        _exit(1);
}

static void a_disk_that_cannot_commit_is_doubted_as_a_whole(void **state)
{
    struct cache_case *t = case_with((const char *[]){"a", "b", "c", NULL}, 1);

    (void)state;
    crash_after(t, write_a_on_a_failing_disk);
    assert_true(is_doubtful(t, "a", ""));
    assert_true(is_doubtful(t, "b", ""));
    assert_true(is_doubtful(t, "c", ""));
    assert_int_equal(starts_of(t, 0), 0);
    assert_int_equal(learn_now(t, "c", "\"1\""), OK);
    case_reopen(t);
    assert_true(is_doubtful(t, "a", ""));
    assert_false(is_doubtful(t, "c", ""));
    case_end(t);
}

static void a_disk_that_comes_back_is_trusted_again(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache_write w, later;

    (void)state;
    keep(t, "a");
    keep(t, "b");
    case_settle(t);
    keep_many(t, 300);
    break_disks(true);
    begin_surely(t, &w, "a");
    assert_int_equal(w.why, ERR_DISK);
    assert_true(starts_of(t, 0) >= 16);
    begin_write(t, &later, "b");
    assert_false(later.busy);
    assert_int_equal(later.why, ERR_DISK);
    break_disks(false);
    AWAIT(starts_of(t, 0) == 0);
    case_settle(t);
    cache_write_end(t->c, &w, false);
    cache_write_end(t->c, &later, false);
    case_reopen(t);
    assert_true(is_doubtful(t, "a", ""));
    assert_true(is_doubtful(t, "b", ""));
    assert_false(is_doubtful(t, "m0", ""));
    case_end(t);
}

static void a_change_that_cannot_be_queued_makes_a_directory_distrusted(void **state)
{
    struct cache_case *t = open_case(1);
    struct cache_write w;

    (void)state;
    keep(t, "a");
    case_settle(t);
    journal_distrust(t->c->dir[0].journal);
    begin_surely(t, &w, "unknown");
    assert_true(starts_of(t, 0) >= 16);
    cache_write_end(t->c, &w, false);
    case_reopen(t);
    assert_true(is_doubtful(t, "a", ""));
    case_end(t);
}

/* ---- buckets ---- */
static void write_bucket(struct cache_case *t, struct cache_write *w, const char *bucket)
{
    cache_bucket_write_begin(t->c, w, span_of(bucket), &t->machine);
    await_write(t, w);
}

static void a_bucket_write_makes_its_keys_doubtful(void **state)
{
    struct cache_case *t = open_case(1);
    struct okey k = key_at(t, "b", ""), other = k;
    struct cache_write w;

    (void)state;
    other.bucket = span_of("another");
    cache_key(t->c, &other);
    assert_int_not_equal(other.bucket_stripe, k.bucket_stripe);
    assert_int_equal(learn_at(t, &other, "\"1\"", cache_epoch(t->c, &other)), OK);
    keep(t, "a");
    keep(t, "b");
    case_settle(t);
    struct epoch before = cache_epoch(t->c, &k);
    write_bucket(t, &w, "bucket");
    assert_int_equal(w.why, OK);
    assert_true(is_doubtful(t, "a", ""));
    assert_int_equal(learn_at(t, &k, "\"1\"", before), OK);
    assert_true(is_doubtful(t, "b", ""));
    assert_int_equal(learn_now(t, "b", "\"2\""), ERR_CHANGED);
    cache_write_end(t->c, &w, false);
    assert_true(is_doubtful(t, "b", ""));
    assert_int_equal(learn_now(t, "b", "\"1\""), OK);
    assert_false(is_doubtful(t, "b", ""));
    struct object *o = cache_find(t->c, &other);
    assert_false(atomic_load(&o->flags) & OBJECT_DOUBT);
    object_drop(t->c, o);
    case_reopen(t);
    assert_true(is_doubtful(t, "a", ""));
    assert_false(is_doubtful(t, "b", ""));
    case_end(t);
}

/* Of two such writes the later one told its number first; who looked between them took the entry
 * for vouched beyond both, and the earlier one's doubt was never seen. */
static void a_bucket_write_is_seen_by_who_looked_as_it_began(void **state)
{
    struct cache_case *t = open_case(1);
    uint16_t at = key_at(t, "a", "").bucket_stripe;
    struct bucket_epoch *b = &t->c->epochs.bucket[at];
    struct cache_write w;

    (void)state;
    keep(t, "a");
    begin(&b->lists);                /* the earlier one, as far as its number */
    begin(&b->count);
    uint64_t after = next_number(t->c);
    write_bucket(t, &w, "another");
    cache_write_end(t->c, &w, false);
    assert_false(is_doubtful(t, "a", ""));
    move_up(&b->after, after);
    move_up(&t->c->epochs.newest, after);
    assert_true(is_doubtful(t, "a", ""));
    end(&b->count);
    end(&b->lists);
    case_end(t);
}

static void bucket_written(struct cache_case *t)
{
    static struct cache_write w;

    write_bucket(t, &w, "bucket");
    /* While it is under way a record is made anew, and so younger than the epoch. */
    struct okey k = key_at(t, "a", "");
    struct index_shard *stripe = index_shard(t->c->stripe, k.id);
    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(t->c, k.id);
    struct object_record r;
    entry_record(t->c, e, &r);
    struct journal_change change = {.id = k.id, .object = &r};
    if (journal_queue(t->c->dir[0].journal, &change, 1) != OK)
        _exit(1);
    pthread_mutex_unlock(&stripe->lock);
    case_settle(t);
}

static void a_crash_in_a_bucket_write_leaves_the_bucket_in_doubt(void **state)
{
    struct cache_case *t = case_with((const char *[]){"a", "b", NULL}, 2);

    (void)state;
    crash_after(t, bucket_written);
    assert_true(is_doubtful(t, "a", ""));
    assert_true(is_doubtful(t, "b", ""));
    assert_int_equal(learn_now(t, "a", "\"1\""), OK);
    assert_false(is_doubtful(t, "a", ""));
    case_end(t);
}

static void a_name_that_is_no_epoch_is_refused(void **state)
{
    static const char *const wrong[] = {"epoch/", "epoch/12", "epoch/1234", "epoch/00G",
                                        "epoch/00A", "epoch/-01", "epoch/k", "epoch/k123",
                                        "epoch/k12345", "epoch/k00G0", "epoch/K1234"};
    struct cache_case *t = open_case(0);

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(wrong); i++)
        assert_false(epoch_load(t->c, span_of(wrong[i]), 7));
    assert_true(epoch_load(t->c, span_of("epoch/fa0"), 7));
    assert_int_equal(atomic_load(&t->c->epochs.bucket[0xfa0].after), 7);
    assert_true(epoch_load(t->c, span_of("epoch/fa0"), 5));
    assert_int_equal(atomic_load(&t->c->epochs.bucket[0xfa0].after), 7);
    assert_int_equal(atomic_load(&t->c->epochs.newest), 7);
    assert_true(epoch_load(t->c, span_of("epoch/kfa01"), 9));
    assert_int_equal(atomic_load(&t->c->epochs.after[0xfa01]), 9);
    assert_int_equal(atomic_load(&t->c->epochs.newest), 7);
    assert_true(atomic_load(&t->c->sequence) >= 7);
    case_end(t);
}

/* ---- all at once ---- */
static void *learn_late(void *argument)
{
    struct cache_case *t = argument;

    assert_int_equal(learn_now(t, "a", "\"1\""), OK);
    return NULL;
}

/* The answer was found good, and the write begins before it has lifted the doubt. */
static void a_write_that_begins_while_an_answer_is_taken_keeps_its_doubt(void **state)
{
    struct cache_case *t = open_case(0);
    struct okey k = key_at(t, "a", "");
    struct index_shard *stripe = index_shard(t->c->stripe, k.id);
    pthread_t learner;

    (void)state;
    assert_int_equal(learn_now(t, "a", "\"1\""), OK);
    struct object *o = cache_find(t->c, &k);
    cache_doubt(t->c, o);
    t->asked_ms += 5;
    pthread_mutex_lock(&stripe->lock);
    assert_int_equal(pthread_create(&learner, NULL, learn_late, t), 0);
    AWAIT(atomic_load(&o->checked_ms) == t->asked_ms);
    begin(&t->c->epochs.key[k.key_stripe]);
    pthread_mutex_unlock(&stripe->lock);
    pthread_join(learner, NULL);
    assert_true(is_doubtful(t, "a", ""));
    object_drop(t->c, o);
    case_end(t);
}

enum { RACE_KEYS = 8, RACE_WRITES = 4000, RACE_STRETCH = 100, RACE_READERS = 3 };
static struct race {
    struct cache_case *t;
    _Atomic uint64_t truth[RACE_KEYS], ended[RACE_KEYS]; /* upstream's; of the last write ended */
    _Atomic bool over;
    _Atomic uint64_t stale, hits;
} race;

/* Asks, learns, and looks: what is there without doubt must be as new as the last write. */
static void *race_reader(void *argument)
{
    struct cache_case *t = race.t;

    (void)argument;
    while (!atomic_load(&race.over)) {
        unsigned n = (unsigned)(random_u64() % RACE_KEYS);
        char key[8], etag[32];
        snprintf(key, sizeof key, "r%u", n);
        struct okey k = key_at(t, key, "");
        uint64_t expected = atomic_load(&race.ended[n]);
        struct object *o = cache_find(t->c, &k);
        if (o && !(atomic_load(&o->flags) & OBJECT_DOUBT)) {
            snprintf(etag, sizeof etag, "\"%llu\"", (unsigned long long)expected);
            uint64_t seen = strtoull(object_etag(o).at + 1, NULL, 10);
            atomic_fetch_add(&race.hits, 1);
            if (seen < expected)
                atomic_fetch_add(&race.stale, 1);
        }
        if (o)
            object_drop(t->c, o);
        struct epoch epoch = cache_epoch(t->c, &k);
        snprintf(etag, sizeof etag, "\"%llu\"", (unsigned long long)atomic_load(&race.truth[n]));
        if (random_u64() % 4 == 0)
            sched_yield();           /* the answer is on its way */
        (void)!learn_at(t, &k, etag, epoch);
    }
    return NULL;
}

static void race_write(struct cache_case *t, unsigned i)
{
    unsigned n = (unsigned)(random_u64() % RACE_KEYS);
    char key[8];
    struct cache_write w;

    snprintf(key, sizeof key, "r%u", n);
    if (i % 50 == 49)
        cache_bucket_write_begin(t->c, &w, span_of("bucket"), &t->machine);
    else
        begin_write(t, &w, key);
    uint64_t now = atomic_fetch_add(&race.truth[n], 1) + 1;
    cache_write_end(t->c, &w, false);
    atomic_store(&race.ended[n], now);
}

static void no_reader_sees_what_was_before_a_write_that_ended(void **state)
{
    pthread_t reader[RACE_READERS];

    (void)state;
    race.t = open_case(0);
    for (unsigned i = 0; i < RACE_READERS; i++)
        assert_int_equal(pthread_create(&reader[i], NULL, race_reader, NULL), 0);
    for (unsigned i = 0; i < RACE_WRITES; i++) {
        uint64_t seen = atomic_load(&race.hits);
        race_write(race.t, i);
        for (unsigned k = 0; k < i % 7; k++)
            sched_yield();
        /* Without a look now and then the writes could all be over before a reader had its
         * first. */
        if (i % RACE_STRETCH == 0)
            AWAIT(atomic_load(&race.hits) > seen);
    }
    atomic_store(&race.over, true);
    for (unsigned i = 0; i < RACE_READERS; i++)
        pthread_join(reader[i], NULL);
    assert_int_equal(atomic_load(&race.stale), 0);
    case_end(race.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_asked_for_before_a_write_teaches_nothing),
        cmocka_unit_test(doubt_outlives_answers_of_before_and_of_during),
        cmocka_unit_test(fields_of_before_a_copy_onto_itself_are_not_served_behind_it),
        cmocka_unit_test(of_two_writes_at_a_time_the_last_end_counts),
        cmocka_unit_test(the_clock_of_an_older_check_does_not_defend_what_is_doubtful),
        cmocka_unit_test(a_write_hits_its_version_and_what_is_current),
        cmocka_unit_test(what_is_deleted_for_sure_is_forgotten),
        cmocka_unit_test(only_what_has_a_record_is_waited_for),
        cmocka_unit_test(a_record_that_is_only_about_to_be_removed_is_waited_for),
        cmocka_unit_test(every_directory_with_a_record_is_waited_for),
        cmocka_unit_test(a_crash_behind_the_doubt_leaves_doubt),
        cmocka_unit_test(a_crash_behind_a_write_does_not_bring_back_what_was_forgotten),
        cmocka_unit_test(a_record_made_anew_in_doubt_says_so),
        cmocka_unit_test(a_disk_that_cannot_commit_is_doubted_as_a_whole),
        cmocka_unit_test(a_disk_that_comes_back_is_trusted_again),
        cmocka_unit_test(a_change_that_cannot_be_queued_makes_a_directory_distrusted),
        cmocka_unit_test(a_bucket_write_makes_its_keys_doubtful),
        cmocka_unit_test(a_bucket_write_is_seen_by_who_looked_as_it_began),
        cmocka_unit_test(a_crash_in_a_bucket_write_leaves_the_bucket_in_doubt),
        cmocka_unit_test(a_name_that_is_no_epoch_is_refused),
        cmocka_unit_test(a_write_that_begins_while_an_answer_is_taken_keeps_its_doubt),
        cmocka_unit_test(no_reader_sees_what_was_before_a_write_that_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
