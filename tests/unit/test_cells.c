/* Memory of the index: cells that do not touch each other, spans that change their class,
 * threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>

#include "server/cache/cells.c"

enum { LENT = 20000 };

struct lent {
    uint8_t *at;
    size_t bytes;
    uint8_t mark;
};
static struct lent lent[LENT];

static void check_and_give(struct cells *c, struct lent *l)
{
    for (size_t i = 0; i < l->bytes; i++)
        if (l->at[i] != l->mark)
            fail_msg("byte %zu of %zu is another's", i, l->bytes);
    cells_give(c, l->at, l->bytes);
    l->at = NULL;
}

static void take_and_mark(struct cells *c, struct lent *l, unsigned i)
{
    static const size_t sizes[] = {1, 16, 17, 84, 100, 300, 336, 1008, 1024, 1025, 5000};

    l->bytes = sizes[(unsigned)random() % ARRAY_COUNT(sizes)];
    l->mark = (uint8_t)(i * 7 + 1);
    l->at = cells_take(c, l->bytes);
    assert_non_null(l->at);
    assert_int_equal((uintptr_t)l->at % 8, 0);
    for (size_t b = 0; b < l->bytes; b++)
        assert_int_equal(l->at[b], 0);
    memset(l->at, l->mark, l->bytes);
}

static void cells_come_zeroed_and_do_not_touch(void **state)
{
    struct cells *c = cells_make();

    (void)state;
    assert_non_null(c);
    srandom(3);
    for (unsigned round = 0; round < 5 * LENT; round++) {
        unsigned i = (unsigned)random() % LENT;
        if (lent[i].at)
            check_and_give(c, &lent[i]);
        else
            take_and_mark(c, &lent[i], i);
    }
    for (unsigned i = 0; i < LENT; i += 2)
        if (lent[i].at)
            check_and_give(c, &lent[i]);
    for (unsigned i = 0; i < LENT; i++)
        lent[i].at = NULL;
    cells_free(c);                   /* what is still lent goes as well */
}

#ifndef HEADPOND_ASAN
static unsigned regions(const struct cells *c)
{
    unsigned count = 0;

    for (const struct region *r = c->region; r; r = r->next)
        count++;
    return count;
}

static void what_was_of_one_size_serves_another(void **state)
{
    struct cells *c = cells_make();
    static void *at[LENT];

    (void)state;
    for (unsigned i = 0; i < LENT; i++)
        assert_non_null(at[i] = cells_take(c, 336));
    unsigned before = regions(c);
    assert_true(before >= LENT * 336 / REGION_BYTES);
    for (unsigned i = 0; i < LENT; i++)
        cells_give(c, at[i], 336);
    for (unsigned i = 0; i < LENT; i++)
        assert_non_null(at[i] = cells_take(c, 100));
    assert_int_equal(regions(c), before);
    cells_free(c);
}
#endif

/* ---- threads ---- */
static struct cells *shared;
static _Atomic(void *) passed[256];

/* Takes, and gives what others took. */
static void *pass_around(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    for (unsigned i = 0; i < 50000; i++) {
        unsigned at = (unsigned)rand_r(&seed) % ARRAY_COUNT(passed);
        size_t bytes = 16 + at % 4 * 100;
        void *mine = cells_take(shared, bytes);
        if (!mine)
            return arg;
        memset(mine, 0x5a, bytes);
        void *others = atomic_exchange(&passed[at], mine);
        if (others)
            cells_give(shared, others, bytes);
    }
    return NULL;
}

static void cells_may_be_given_by_other_threads(void **state)
{
    pthread_t thread[4];

    (void)state;
    shared = cells_make();
    for (uintptr_t i = 0; i < ARRAY_COUNT(thread); i++)
        assert_int_equal(pthread_create(&thread[i], NULL, pass_around, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < ARRAY_COUNT(thread); i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    cells_free(shared);
}

static void many_at_once_do_not_touch_either(void **state)
{
    static void *many[3000];
    struct cells *c = cells_make();
    void *one = cells_take(c, 368);

    (void)state;
    assert_int_equal(cells_take_many(c, 368, ARRAY_COUNT(many), many), ARRAY_COUNT(many));
    assert_int_equal(cells_take_many(c, 368, 0, NULL), 0);
    for (unsigned i = 0; i < ARRAY_COUNT(many); i++)
        memset(many[i], (int)(i % 251 + 1), 368);
    for (size_t b = 0; b < 368; b++)
        assert_int_equal(((uint8_t *)one)[b], 0);
    for (unsigned i = 0; i < ARRAY_COUNT(many); i++) {
        struct lent l = {many[i], 368, (uint8_t)(i % 251 + 1)};
        check_and_give(c, &l);
    }
    cells_give(c, one, 368);
    cells_free(c);
}

#ifndef HEADPOND_ASAN
/* So none is cleared by who takes them; what nobody needs is not made twice. */
static void cells_made_ready_ask_the_system_for_nothing(void **state)
{
    enum { SPANS = REGION_BYTES / SPAN_BYTES };
    static void *many[SPANS];
    struct cells *c = cells_make();
    unsigned taken = 0;

    (void)state;
    cells_ready(c);
    assert_int_equal(c->spans, SPANS);
    uint64_t before = mem_take_count();
    for (; c->spans > SPANS_AHEAD; taken++) /* each of another size, so in a span of its own */
        many[taken] = cells_take(c, CELL_STEP * (taken + 1));
    cells_ready(c);
    assert_int_equal(c->spans, SPANS_AHEAD);
    many[taken] = cells_take(c, CELL_STEP * (taken + 1));
    taken++;
    assert_true(mem_take_count() == before);
    cells_ready(c);
    assert_int_equal(c->spans, SPANS_AHEAD - 1 + SPANS);
    for (unsigned i = 0; i < taken; i++)
        cells_give(c, many[i], CELL_STEP * (i + 1));
    assert_int_equal(c->spans, 2 * SPANS);
    cells_free(c);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_come_zeroed_and_do_not_touch),
        cmocka_unit_test(many_at_once_do_not_touch_either),
#ifndef HEADPOND_ASAN
        cmocka_unit_test(what_was_of_one_size_serves_another),
        cmocka_unit_test(cells_made_ready_ask_the_system_for_nothing),
#endif
        cmocka_unit_test(cells_may_be_given_by_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
