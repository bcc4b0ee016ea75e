/* What the pool's tests share: a cache that has only a pool, cores with an inbox, and the check of
 * a pool's memory. Included behind the .c under test. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TEST_POOL_FAKES_H
#define HEADPOND_TEST_POOL_FAKES_H

#include <setjmp.h>

#include <cmocka.h>

/* ---- what stands in for the cache and the loop ---- */

struct fake_core {                   /* one per thread; its inbox is emptied by deliver() */
    struct core core;
    pthread_mutex_t lock;
    struct message *first, **last;
    _Atomic unsigned sent;
};
struct fake_machine {
    struct machine m;
    unsigned woken;
};

struct pool *cache_pool(struct cache *c)
{
    return c->pool;
}

void core_send(struct core *to, struct message *msg)
{
    struct fake_core *f = container_of(to, struct fake_core, core);

    pthread_mutex_lock(&f->lock);
    msg->next = NULL;
    *f->last = msg;
    f->last = &msg->next;
    f->sent++;
    pthread_mutex_unlock(&f->lock);
}

void machine_wake(struct machine *m)
{
    container_of(m, struct fake_machine, m)->woken++;
}

static void fake_init(struct fake_core *f)
{
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    f->last = &f->first;
}

static unsigned deliver(struct fake_core *f)
{
    unsigned count = 0;

    for (;; count++) {
        pthread_mutex_lock(&f->lock);
        struct message *msg = f->first;
        if (msg) {
            f->first = msg->next;
            if (!f->first)
                f->last = &f->first;
        }
        pthread_mutex_unlock(&f->lock);
        if (!msg)
            return count;
        msg->deliver(&f->core, msg);
    }
}

/* ---- helpers ---- */

enum { FRAMES = 8 };

/* A failed take that no wait followed makes the thread's next wait due at once: ends that. */
static void wait_in_vain(struct cache *c)
{
    struct fake_core core;
    fake_init(&core);
    struct fake_machine m = {.m.core = &core.core};
    struct pool_wait w = {.busy = false};

    pool_wait(c, &w, &m.m);
    if (!pool_leave(c, &w))
        assert_int_equal(deliver(&core), 1);
    assert_false(w.busy);
}

static struct cache open_pool(unsigned frames)
{
    struct cache c = {.pool = pool_make((uint64_t)frames * (MIB + 18 * KIB) + sizeof(struct pool))};

    assert_non_null(c.pool);
    assert_int_equal(c.pool->frames, frames);
    wait_in_vain(&c);
    return c;
}

static struct pool_status status(struct cache *c)
{
    struct pool_status s;

    pool_status(c->pool, &s);
    return s;
}

static unused_ok struct buffer_key key(uint64_t n)
{
    return (struct buffer_key){{n * 0x9E3779B97F4A7C15u, n}, n * BLOCK_BYTES};
}

/* Walks every frame: blocks tile it, lists and counters agree, free buddies are merged. */
static void check(struct cache *c)
{
    struct pool *p = c->pool;
    uint64_t used = 0, cells[6] = {0}, listed = 0;

    for (uint32_t i = 0; i < p->fresh * POOL_FRAME_CELLS; i += 1u << p->cells[i].order) {
        struct pool_cell *t = &p->cells[i];
        assert_true(t->order <= POOL_ORDER_MAX && i % (1u << t->order) == 0 &&
                    t->place != CELL_INSIDE);
        cells[t->place] += 1u << t->order;
        used += t->place == CELL_FREE ? 0 : 1u << t->order;
        if (t->place == CELL_FREE && t->order < POOL_ORDER_MAX) {
            struct pool_cell *buddy = &p->cells[i ^ 1u << t->order];
            assert_false(buddy->place == CELL_FREE && buddy->order == t->order);
        }
        for (uint32_t n = i + 1; n < i + (1u << t->order); n++)
            assert_int_equal(p->cells[n].place, CELL_INSIDE);
    }
    for (unsigned n = 0; n <= POOL_ORDER_MAX; n++)
        listed += p->free[n].cells;
    assert_int_equal(listed, cells[CELL_FREE]);
    assert_int_equal(p->small.cells, cells[CELL_SMALL]);
    assert_int_equal(p->main.cells, cells[CELL_MAIN]);
    assert_int_equal(used, p->used_cells);
}

/* Wants a big buffer until nothing cached is left; then everything must be free and whole. */
static void close_pool(struct cache *c)
{
    struct buffer *b[512];
    unsigned frames = c->pool->frames;

    check(c);
    assert_int_equal(status(c).held_bytes, 0);
    for (unsigned n = 0; n < frames; n++) {
        b[n] = pool_take(c, BLOCK_BYTES, BUFFER_DEMAND);
        assert_non_null(b[n]);
    }
    assert_null(pool_take(c, 1, BUFFER_DEMAND));
    assert_int_equal(status(c).held_bytes, status(c).limit_bytes);
    for (unsigned n = 0; n < frames; n++)
        pool_give(c, b[n]);
    check(c);
    assert_int_equal(status(c).used_bytes, 0);
    assert_int_equal(status(c).held_bytes, 0);
    for (unsigned n = 0; n < 3; n++)
        assert_int_equal(c->pool->use_cells[n], 0);
    assert_true(list_empty(&c->pool->waiters.list));
    assert_int_equal(c->pool->waiters.waking, 0);
    pool_close(c->pool);
}

#endif
