/* Who joins a fetch: what he is told of a block, by what has become of it.
 *
 * Life: each test has a core without a loop and a fetch that is never stepped.
 * Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/inflight.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct scene {
    struct server server;
    struct origin origin;
    struct core core;
    struct machine reader;
    struct fetch f;
    struct wait w;
};

static struct scene *open_scene(void)
{
    struct scene *s = mem_take(sizeof *s);

    assert_non_null(s);
    s->server.origin[0] = &s->origin;
    s->core.server = &s->server;
    s->core.metrics = metric_set_make();
    s->reader.core = s->f.m.core = &s->core;
    s->f.bytes = CHUNK_BYTES;
    s->f.blocks = BLOCKS_PER_CHUNK;
    s->f.poked = true;               /* no loop would deliver it */
    list_init(&s->f.waiters);
    s->w = (struct wait){.m = &s->reader, .block = 2, .from = 2 * BLOCK_BYTES,
                         .to = 3 * BLOCK_BYTES};
    return s;
}

static void close_scene(struct scene *s)
{
    if (node_linked(&s->w.node))
        node_remove(&s->w.node);
    mem_give(s);
}

static void a_block_on_disk_is_looked_for_there(void **state)
{
    struct scene *s = open_scene();

    (void)state;
    s->f.state[2] = BLOCK_DISK;
    assert_int_equal(join(&s->f, &s->w, 0), FILL_LOOK);
    assert_false(node_linked(&s->w.node));
    assert_int_equal(s->f.state[2], BLOCK_DISK);
    close_scene(s);
}

/* It was damaged there, and its fetch said that it is on disk for as long as it went on: behind
 * others that wait for upstream, until the reader was refused. */
static void a_block_that_left_the_disk_while_its_chunk_is_fetched_is_asked_for(void **state)
{
    struct scene *s = open_scene();

    (void)state;
    s->f.state[2] = BLOCK_DISK;
    s->w.gone = true;
    assert_int_equal(join(&s->f, &s->w, 0), FILL_WAITS);
    assert_true(node_linked(&s->w.node));
    assert_int_equal(s->f.state[2], BLOCK_NEED);
    assert_true(atomic_load(&s->f.wanted) >> 2 & 1);
    assert_int_equal(atomic_load(&s->origin.readers), 1);
    close_scene(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_on_disk_is_looked_for_there),
        cmocka_unit_test(a_block_that_left_the_disk_while_its_chunk_is_fetched_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
