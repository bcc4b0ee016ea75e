/* Records between two processes: order, an end without the last word, a child that is late, and
 * lengths that lie. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/cache/handover.c"

enum { RECORDS = 60000, VALUE_BYTES = 300, PUTTERS = 3 };

static bool put(struct handover_writer *w, enum journal_db db, uint64_t n)
{
    uint8_t value[VALUE_BYTES];

    memset(value, (int)(n % 251), sizeof value);
    struct handed r = {span_make(&n, sizeof n), span_make(value, sizeof value), n % 2};

    return handover_put(w, db, &r);
}

/* By several threads of the child's, each a part. */
struct putter {
    struct handover_writer to;
    enum journal_db db;
    uint64_t from, until;
    bool heard;
    pthread_t thread;
};

static void *put_part(void *arg)
{
    struct putter *p = arg;

    p->heard = true;
    for (uint64_t n = p->from; n < p->until && p->heard; n++)
        p->heard = put(&p->to, p->db, n);
    p->heard = p->heard && handover_flush(&p->to);
    return NULL;
}

static bool put_all(struct handover *h, enum journal_db db, uint64_t count)
{
    struct putter part[PUTTERS];
    bool heard = true;

    for (unsigned i = 0; i < PUTTERS; i++) {
        part[i] = (struct putter){.to = {.h = h}, .db = db, .from = count * i / PUTTERS,
                                  .until = count * (i + 1) / PUTTERS};
        if (pthread_create(&part[i].thread, NULL, put_part, &part[i]) != 0)
            _exit(1);
    }
    for (unsigned i = 0; i < PUTTERS; i++) {
        pthread_join(part[i].thread, NULL);
        heard = heard && part[i].heard;
    }
    return heard;
}

/* What a child does; count: of each sub-database. */
static _Noreturn void be_child(struct handover *h, uint64_t count, bool last_word)
{
    struct index_facts facts = {.session = 7, .chunks = count};

    handover_to_parent(h);
    bool heard = handover_facts(h, &facts) && put_all(h, JOURNAL_OBJECTS, count) &&
        put_all(h, JOURNAL_CHUNKS, count);
    _exit(heard && last_word && handover_sound(h) ? 0 : 1);
}

static struct handover *begin(uint64_t count, bool last_word, uint64_t wait_ms)
{
    struct handover *h = handover_make();
    struct index_facts facts;

    assert_non_null(h);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        be_child(h, count, last_word);
    handover_from_child(h, pid, wait_ms);
    assert_true(handover_wait_facts(h, &facts));
    assert_int_equal(facts.session, 7);
    assert_int_equal(facts.chunks, count);
    return h;
}

struct seen {
    struct handover *h;
    pthread_mutex_t lock;
    uint64_t count[JOURNAL_DBS], sum[JOURNAL_DBS];
    bool chunks_began, disorder;
};

static void look(struct seen *x, const struct segment *s)
{
    enum journal_db db = handover_db(s);
    struct handed r;
    uint32_t at = 0;

    pthread_mutex_lock(&x->lock);
    x->chunks_began |= db == JOURNAL_CHUNKS;
    x->disorder |= db == JOURNAL_OBJECTS && x->chunks_began;
    while (handover_next(s, &at, &r)) {
        uint64_t n;
        x->disorder |= r.key.len != sizeof n || r.value.len != VALUE_BYTES;
        memcpy(&n, r.key.at, sizeof n);
        x->disorder |= (uint8_t)r.value.at[VALUE_BYTES - 1] != n % 251 || r.verified != n % 2;
        x->count[db]++;
        x->sum[db] += n;
    }
    pthread_mutex_unlock(&x->lock);
}

static void *take_all(void *arg)
{
    struct seen *x = arg;
    const struct segment *s;

    while ((s = handover_take(x->h))) {
        look(x, s);
        handover_give(x->h, s);
    }
    return NULL;
}

static void all_records_arrive_objects_first(void **state)
{
    struct seen x = {.h = begin(RECORDS, true, 60000), .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread[3];

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(thread); i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_all, &x), 0);
    take_all(&x);
    for (unsigned i = 0; i < ARRAY_COUNT(thread); i++)
        pthread_join(thread[i], NULL);
    assert_false(x.disorder);
    assert_int_equal(x.count[JOURNAL_OBJECTS], RECORDS);
    assert_int_equal(x.count[JOURNAL_CHUNKS], RECORDS);
    assert_int_equal(x.sum[JOURNAL_OBJECTS], (uint64_t)RECORDS * (RECORDS - 1) / 2);
    assert_int_equal(x.sum[JOURNAL_CHUNKS], (uint64_t)RECORDS * (RECORDS - 1) / 2);
    assert_true(handover_end(x.h));
}

static void a_child_that_dies_leaves_nothing_to_believe(void **state)
{
    struct seen x = {.h = begin(3000, false, 60000), .lock = PTHREAD_MUTEX_INITIALIZER};

    (void)state;
    take_all(&x);
    assert_false(x.disorder);
    assert_false(handover_end(x.h));
}

static void a_child_that_is_not_waited_for_is_ended(void **state)
{
    struct seen x = {.h = begin(RECORDS, true, 60000), .lock = PTHREAD_MUTEX_INITIALIZER};

    (void)state;
    const struct segment *s = handover_take(x.h);
    assert_non_null(s);
    handover_give(x.h, s);
    handover_stop(x.h);
    assert_null(handover_take(x.h));
    assert_false(handover_end(x.h));
}

static void who_is_late_is_not_waited_for(void **state)
{
    struct handover *h = handover_make();
    struct index_facts facts;

    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        handover_to_parent(h);
        for (;;)
            pause();
    }
    handover_from_child(h, pid, 20);
    assert_false(handover_wait_facts(h, &facts));
    assert_false(handover_end(h));
}

static void lengths_that_lie_end_the_segment(void **state)
{
    static const struct {
        const char *what;
        uint32_t used, value_len;
        uint16_t key_len;
    } rows[] = {
        {"less than a head", 7, 0, 0},
        {"a value past the end", 64, 64, 8},
        {"a key past the end", 64, 0, 64},
        {"lengths that wrap", 64, UINT32_MAX, UINT16_MAX},
        {"more than there is", UINT32_MAX, UINT32_MAX - 64, 8},
    };
    static struct segment s;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct record_head head = {rows[i].value_len, rows[i].key_len, 0};
        struct handed r;
        uint32_t at = 0;
        s.used = rows[i].used;
        memcpy(s.bytes, &head, sizeof head);
        if (handover_next(&s, &at, &r))
            fail_msg("%s", rows[i].what);
    }
    s.db = 77;
    assert_int_equal(handover_db(&s), JOURNAL_STATE);   /* which nobody loads */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_records_arrive_objects_first),
        cmocka_unit_test(a_child_that_dies_leaves_nothing_to_believe),
        cmocka_unit_test(a_child_that_is_not_waited_for_is_ended),
        cmocka_unit_test(who_is_late_is_not_waited_for),
        cmocka_unit_test(lengths_that_lie_end_the_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
