/* Which fetches count as read-ahead and as bringing something, and whose blocks are written later.
 *
 * Life: fetches that were never begun, on a core without a loop; the end of a burst is noted.
 * Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

static void burst_over_noted(struct core *core);
#define cache_burst_over burst_over_noted
#include "server/fill/priority.c"
#undef cache_burst_over

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static unsigned bursts_over;
static struct fill_shard shard;
static struct fills fills = {.shard = &shard};
static struct server server = {.fills = &fills};
static struct fill_core fill;
static struct core core = {.server = &server, .fill = &fill};

static void burst_over_noted(struct core *of)
{
    assert_ptr_equal(of, &core);
    bursts_over++;
}

/* Its writes were put off, and a stream from a store 20 ms away took a third longer: fetches that
 * had nothing left to bring took up all of prefetch.inflight. */
static void read_ahead_that_waits_for_its_writes_holds_up_no_other(void **state)
{
    static struct fetch f = {.m.core = &core, .ahead = true};

    (void)state;
    bursts_over = 0;
    atomic_store(&fills.ahead, 1);
    fetch_brings(&f, true);
    assert_int_equal(atomic_load(&fills.ahead), 1);
    fetch_brings(&f, false);
    assert_int_equal(atomic_load(&fills.ahead), 0);
    fetch_brings(&f, false);         /* at its end */
    assert_int_equal(atomic_load(&fills.ahead), 0);
    assert_int_equal(bursts_over, 1);
}

static void the_last_that_brings_something_ends_a_burst(void **state)
{
    static struct fetch f[2] = {{.m.core = &core}, {.m.core = &core}};

    (void)state;
    bursts_over = 0;
    fetch_brings(&f[0], true);
    fetch_brings(&f[1], true);
    fetch_brings(&f[0], false);
    assert_int_equal(bursts_over, 0);
    fetch_brings(&f[0], true);       /* a reader came for more of it */
    fetch_brings(&f[1], false);
    assert_int_equal(bursts_over, 0);
    fetch_brings(&f[0], false);
    assert_int_equal(bursts_over, 1);
    assert_int_equal(fill.bringing, 0);
}

static void whole_blocks_that_no_job_waits_for_are_written_later(void **state)
{
    static struct fetch f = {.m.core = &core};
    struct fetch_watch watch = {0};
    struct buffer whole = {.len = BLOCK_BYTES}, small = {.len = BLOCK_BYTES - 1};

    (void)state;
    list_init(&f.watchers);
    assert_true(fetch_may_write_later(&f, &whole));
    assert_false(fetch_may_write_later(&f, &small));
    list_push(&f.watchers, &watch.node);
    assert_false(fetch_may_write_later(&f, &whole));
    node_remove(&watch.node);
    f.prewarm = true;
    assert_false(fetch_may_write_later(&f, &whole));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_ahead_that_waits_for_its_writes_holds_up_no_other),
        cmocka_unit_test(the_last_that_brings_something_ends_a_burst),
        cmocka_unit_test(whole_blocks_that_no_job_waits_for_are_written_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
