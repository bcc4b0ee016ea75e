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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fetch_is_begun_before_anybody_can_find_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
