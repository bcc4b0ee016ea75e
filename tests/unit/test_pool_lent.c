/* Memory whose pages were lent to sockets: never written again, renewed by whole huge pages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/pool.c"
#include "server/cache/pool_evict.c"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/unit/pool_fakes.h"

enum { PAGE = 4096, SOCKETS = 16, NAMES = 64 };

/* ---- what stands in for a socket: a pipe that has a buffer's first and last page ---- */
struct socket {
    int fd[2];
    unsigned pages;                  /* 0: nobody waits for it */
    uint8_t stamp;
};

static void lend(struct socket *s, struct buffer *b, uint8_t stamp)
{
    struct iovec v[2] = {{b->mem, PAGE}, {b->mem + b->cap - PAGE, PAGE}};

    s->pages = b->cap == PAGE ? 1 : 2;
    s->stamp = stamp;
    buffer_set_lent(b);
    assert_int_equal(vmsplice(s->fd[1], v, s->pages, 0), s->pages * PAGE);
}

static void take_in(struct socket *s)
{
    uint8_t page[PAGE];

    for (; s->pages; s->pages--) {
        assert_int_equal(read(s->fd[0], page, PAGE), PAGE);
        for (unsigned i = 0; i < PAGE; i++)
            if (page[i] != s->stamp)
                fail_msg("byte %u is 0x%02x, sent was 0x%02x", i, page[i], s->stamp);
    }
}

/* ---- helpers ---- */
static struct buffer *put(struct cache *c, uint64_t name, uint32_t bytes, uint8_t stamp)
{
    struct buffer_key k = key(name);
    struct buffer *b = pool_take(c, bytes, BUFFER_DEMAND);

    assert_non_null(b);
    memset(b->mem, stamp, b->cap);
    b->len = b->cap;
    return pool_publish(c, b, &k, false);
}

static bool has(struct cache *c, uint64_t name)
{
    struct buffer_key k = key(name);
    struct buffer *b = pool_find(c, &k);

    if (b)
        pool_give(c, b);
    return b;
}

/* Each name a whole frame, in order, and all of the memory. */
static struct cache full_of_lent(void)
{
    struct cache c = open_pool(FRAMES);

    for (uint64_t n = 0; n < FRAMES; n++) {
        struct buffer *b = put(&c, n, BLOCK_BYTES, 1);
        buffer_set_lent(b);
        pool_give(&c, b);
    }
    assert_int_equal(status(&c).used_bytes, (uint64_t)FRAMES * BLOCK_BYTES);
    return c;
}

/* ---- tests ---- */
static void lent_bytes_stay_whatever_becomes_of_their_memory(void **state)
{
    struct cache c = open_pool(FRAMES);
    struct socket socket[SOCKETS];

    (void)state;
    srandom(11);
    for (unsigned i = 0; i < SOCKETS; i++) {
        socket[i] = (struct socket){.pages = 0};
        assert_int_equal(pipe2(socket[i].fd, O_CLOEXEC), 0);
    }
    for (unsigned n = 0; n < 6000; n++) {
        struct socket *s = &socket[random() % SOCKETS];
        uint32_t bytes = 1 + (uint32_t)random() % ((uint32_t)PAGE << random() % 9);
        uint8_t stamp = (uint8_t)random();
        take_in(s);
        struct buffer_key k = key((uint64_t)random() % NAMES);
        pool_disown(&c, &k);
        struct buffer *b = put(&c, k.data_id.b, bytes, stamp);
        if (random() % 3 > 0)
            lend(s, b, stamp);
        pool_give(&c, b);
        if (n % 500 == 0)
            check(&c);
    }
    for (unsigned i = 0; i < SOCKETS; i++) {
        take_in(&socket[i]);
        close(socket[i].fd[0]);
        close(socket[i].fd[1]);
    }
    close_pool(&c);
}

static void lent_frames_of_a_huge_page_leave_together(void **state)
{
    struct cache c = full_of_lent();

    (void)state;
    struct buffer *b = put(&c, 100, BLOCK_BYTES, 2);
    assert_false(has(&c, 0));
    assert_false(has(&c, 1));
    for (uint64_t n = 2; n < FRAMES; n++)
        assert_true(has(&c, n));
    uint32_t twin = twin_of(c.pool, pool_cell_number(c.pool, cell_of(b)));
    assert_true(is_free(c.pool, twin, POOL_ORDER_MAX));
    assert_false(is_lent(c.pool, twin)); /* new pages, as the one that was taken */
    pool_give(&c, b);
    close_pool(&c);
}

static void of_two_frames_the_one_that_is_used_stays(void **state)
{
    struct cache c = full_of_lent();

    (void)state;
    for (unsigned n = 0; n < 3; n++)
        assert_true(has(&c, 1));
    pool_give(&c, put(&c, 100, BLOCK_BYTES, 2));
    assert_false(has(&c, 0));
    for (uint64_t n = 1; n < FRAMES; n++)
        assert_true(has(&c, n));
    close_pool(&c);
}

/* In MAIN: the first of the two was read since, the second is the victim. */
static void a_frame_that_was_spared_just_now_stays(void **state)
{
    struct cache c = full_of_lent();

    (void)state;
    for (uint64_t n = 0; n < FRAMES; n++)
        for (unsigned i = 0; i < 3; i++)
            assert_true(has(&c, n));
    pool_give(&c, put(&c, 100, BLOCK_BYTES, 2)); /* all go to MAIN, and the first ones leave */
    unsigned tail = c.pool->main.tail, twin = twin_of(c.pool, tail);
    uint64_t first = c.pool->cells[tail].key.data_id.b, second = c.pool->cells[twin].key.data_id.b;
    assert_int_equal(c.pool->cells[twin].place, CELL_MAIN);
    assert_true(has(&c, first));
    struct buffer_key k = key(100);
    struct buffer *taken[FRAMES];
    unsigned count = 0;
    pool_disown(&c, &k);                         /* nothing is left in SMALL */
    while (count < FRAMES && c.pool->cells[twin].place == CELL_MAIN)
        taken[count++] = pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND);
    assert_false(has(&c, second));
    assert_true(has(&c, first));
    while (count > 0)
        pool_give(&c, taken[--count]);
    close_pool(&c);
}

static void of_two_frames_the_one_that_is_held_stays(void **state)
{
    struct cache c = full_of_lent();
    struct buffer_key k = key(1);
    struct buffer *held = pool_find(&c, &k);

    (void)state;
    pool_give(&c, put(&c, 100, BLOCK_BYTES, 2));
    assert_false(has(&c, 0));
    assert_int_equal(held->mem[BLOCK_BYTES - 1], 1);
    pool_give(&c, held);
    assert_true(has(&c, 1));
    close_pool(&c);
}

static void named_buffers_are_kept_while_memory_is_new(void **state)
{
    struct cache c = open_pool(FRAMES);
    struct buffer *b = pool_take(&c, PAGE, BUFFER_DEMAND);

    (void)state;
    assert_false(pool_keeps(&c, b)); /* nobody would find it */
    pool_give(&c, b);
    b = put(&c, 0, PAGE, 1);
    assert_true(pool_keeps(&c, b));
    for (uint64_t n = 1; n < FRAMES; n++) {
        assert_true(pool_keeps(&c, b));
        pool_give(&c, put(&c, n, BLOCK_BYTES, 1));
    }
    assert_false(pool_keeps(&c, b));
    pool_give(&c, b);
    close_pool(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lent_bytes_stay_whatever_becomes_of_their_memory),
        cmocka_unit_test(lent_frames_of_a_huge_page_leave_together),
        cmocka_unit_test(of_two_frames_the_one_that_is_used_stays),
        cmocka_unit_test(a_frame_that_was_spared_just_now_stays),
        cmocka_unit_test(of_two_frames_the_one_that_is_held_stays),
        cmocka_unit_test(named_buffers_are_kept_while_memory_is_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
