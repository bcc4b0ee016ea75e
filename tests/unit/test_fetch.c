/* What of a fetch other cores see: those that find it in a table while its own core makes it.
 *
 * Life: each test has a core without a loop; machines are begun, not stepped.
 * Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

static void begin_noted(struct machine *m, struct core *core, enum turn (*run)(struct machine *),
                        void (*over)(struct machine *), const char *const *names, uint8_t drain);
#define machine_begin begin_noted
#include "server/fill/fetch.c"
#undef machine_begin

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static unsigned begun;

static void begin_noted(struct machine *m, struct core *core, enum turn (*run)(struct machine *),
                        void (*over)(struct machine *), const char *const *names, uint8_t drain)
{
    *m = (struct machine){
        .core = core, .run = run, .over = over, .names = names, .drain = drain, .alive = true};
    begun++;
}

/* It was begun once it stood in a table and that was unlocked. The reader of another core that
 * joined it just then met a machine without a core, and the server died. */
static void a_fetch_is_begun_before_anybody_can_find_it(void **state)
{
    struct core core = {0};

    (void)state;
    assert_int_equal(fill_core_begin(&core), OK);
    struct fetch *f = fetch_make(&core);
    assert_non_null(f);
    assert_int_equal(begun, 1);
    assert_true(f->m.alive);
    assert_ptr_equal(f->m.core, &core);
    assert_false(node_linked(&f->table));
    assert_false(node_linked(&f->asking));
    node_remove(&f->all);
    stock_give(&((struct fill_core *)core.fill)->fetch_stock, f);
    fill_core_end(&core);
}

/* What is held until all of it match is given when memory is short. A reader waits for the block
 * that has no buffer yet: what it waits for is not the block that is given. It was taken for that
 * one, so the fetch went on without being wanted, and asked upstream again and again. */
static void a_block_that_readers_wait_for_is_wanted_after_a_write_came_between(void **state)
{
    struct fetch f = {.at = 2, .last = 4, .blocks = 8, .keeps = true, .sure = 0x1c};
    struct wait w[] = {{.block = 2}, {.block = 3}, {.block = 0}};

    (void)state;
    f.state[0] = f.state[1] = BLOCK_HERE;
    list_init(&f.waiters);
    for (size_t i = 0; i < ARRAY_COUNT(w); i++)
        list_push(&f.waiters, &w[i].node);
    detach(&f, 1);
    assert_int_equal(f.wanted, 1 << 2 | 1 << 3);
    assert_int_equal(f.last, 3);
    assert_false(f.keeps);
    assert_int_equal(f.sure, 0);
    detach(&f, 2);
    assert_int_equal(f.wanted, 1 << 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fetch_is_begun_before_anybody_can_find_it),
        cmocka_unit_test(a_block_that_readers_wait_for_is_wanted_after_a_write_came_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
