/* The verified buffers: buddies, eviction, shares, publishers, scan resistance, waiting. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/pool.c"
#include "server/cache/pool_evict.c"

#include "tests/unit/pool_fakes.h"

/* Takes, fills, publishes; the caller holds it. NULL: no room. */
static struct buffer *put_use(struct cache *c, uint64_t n, uint32_t bytes, bool probation)
{
    struct buffer_key k = key(n);
    struct buffer *b = pool_take(c, bytes, BUFFER_DEMAND);

    if (!b)
        return NULL;
    b->len = bytes;
    memcpy(b->mem, &n, sizeof n);
    memcpy(b->mem + b->cap - sizeof n, &n, sizeof n);
    return pool_publish(c, b, &k, probation);
}

static void put(struct cache *c, uint64_t n, uint32_t bytes)
{
    struct buffer *b = put_use(c, n, bytes, false);

    assert_non_null(b);
    pool_give(c, b);
}

static bool has(struct cache *c, uint64_t n)
{
    struct buffer_key k = key(n);
    struct buffer *b = pool_find(c, &k);

    if (!b)
        return false;
    assert_memory_equal(b->mem, &n, sizeof n);
    assert_memory_equal(b->mem + b->cap - sizeof n, &n, sizeof n);
    pool_give(c, b);
    return true;
}

/* ---- memory ---- */

static void the_whole_stays_within_what_was_given(void **state)
{
    (void)state;
    static const uint64_t bytes[] = {2 * MIB, 9 * MIB, 100 * MIB, 1000000000, GIB};

    assert_null(pool_make(0));
    assert_null(pool_make(MIB));
    for (size_t n = 0; n < ARRAY_COUNT(bytes); n++) {
        struct pool *p = pool_make(bytes[n]);
        void *at;
        size_t room;
        assert_non_null(p);
        pool_memory(p, &at, &room);
        assert_int_equal((uintptr_t)at % HUGE_BYTES, 0);
        uint64_t all = room + p->tables_map_bytes - HUGE_BYTES + sizeof *p; /* without alignment */
        assert_true(all <= bytes[n]);
        assert_true(all + bytes[n] / 100 + 2 * MIB > bytes[n]);
        pool_close(p);
    }
}

static void sizes_are_powers_of_two_and_aligned(void **state)
{
    (void)state;
    static const uint32_t row[][2] = {
        {1, 4096},         {4096, 4096},
        {4097, 8192},      {70000, 131072},
        {131072, 131072},  {524289, BLOCK_BYTES},
        {BLOCK_BYTES, BLOCK_BYTES},
    };
    struct cache c = open_pool(FRAMES);

    for (size_t n = 0; n < ARRAY_COUNT(row); n++) {
        struct buffer *b = pool_take(&c, row[n][0], BUFFER_DEMAND);
        assert_int_equal(b->cap, row[n][1]);
        assert_int_equal((uintptr_t)b->mem % 4096, 0);
        memset(b->mem, 0xaa, b->cap);
        assert_int_equal(status(&c).used_bytes, b->cap);
        assert_int_equal(status(&c).held_bytes, b->cap);
        pool_give(&c, b);
        assert_int_equal(status(&c).used_bytes, 0);
    }
    close_pool(&c);
}

static void buddies_split_and_merge_without_a_leak(void **state)
{
    (void)state;
    enum { LIVE_MAX = 700 };
    struct cache c = open_pool(FRAMES);
    struct buffer *live[LIVE_MAX];
    unsigned count = 0;
    uint64_t seed = 7;

    for (unsigned n = 0; n < 40000; n++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t dice = (uint32_t)(seed >> 33);
        struct buffer *b = NULL;
        if (count < LIVE_MAX && dice % 2)
            b = pool_take(&c, 1 + dice / 2 % (4096u << dice / 16 % 9), BUFFER_DEMAND);
        if (b) {
            memset(b->mem, 1, 64);
            memset(b->mem + b->cap - 64, 1, 64);
            live[count++] = b;
        } else if (count) {
            unsigned at = dice / 16 % count;
            b = live[at];
            live[at] = live[--count];
            pool_give(&c, b);
        }
        if (n % 1000 == 0)
            check(&c);
    }
    while (count)
        pool_give(&c, live[--count]);
    for (unsigned k = 0; k < POOL_ORDER_MAX; k++)
        assert_int_equal(c.pool->free[k].tail, POOL_NONE);
    close_pool(&c);
}

/* ---- names ---- */

static void what_was_published_is_found_until_evicted(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);

    for (uint64_t n = 0; n < 100; n++)
        put(&c, n, 8 * KIB);
    for (uint64_t n = 0; n < 100; n++)
        assert_true(has(&c, n));
    assert_false(has(&c, 100));
    struct buffer_key k = key(5);
    k.at |= BUFFER_GRANULE;                      /* another kind is another name */
    assert_null(pool_find(&c, &k));
    assert_int_equal(status(&c).used_bytes, 100 * 8 * KIB);
    assert_int_equal(status(&c).held_bytes, 0);
    close_pool(&c);
}

static void the_second_publisher_gets_the_first_ones_buffer(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);
    struct buffer *first = put_use(&c, 1, 4096, false);
    struct buffer *second = put_use(&c, 1, 4096, false);

    assert_ptr_equal(first, second);
    assert_int_equal(status(&c).used_bytes, 4096);
    pool_give(&c, first);
    assert_int_equal(status(&c).held_bytes, 4096);
    pool_give(&c, second);
    close_pool(&c);
}

static void who_replaces_has_the_name_and_the_other_keeps_his_bytes(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);
    struct buffer_key k = key(1);
    struct buffer *first = put_use(&c, 1, 4096, true), *found;
    struct buffer *second = pool_take(&c, 8192, BUFFER_DEMAND);

    second->len = 8000;
    pool_replace(&c, second, &k);
    found = pool_find(&c, &k);
    assert_ptr_equal(found, second);
    pool_give(&c, found);
    pool_give(&c, second);
    assert_int_equal(*(uint64_t *)first->mem, 1);
    pool_give(&c, first);            /* without a name that anybody asks for it leaves as any */
    for (uint64_t n = 10; n < 5000; n++)
        put(&c, n, 4096);
    assert_int_equal(status(&c).held_bytes, 0);

    struct buffer *only = pool_take(&c, 4096, BUFFER_DEMAND);
    k = key(2);
    only->len = 4096;
    pool_replace(&c, only, &k);      /* nobody has it */
    found = pool_find(&c, &k);
    assert_ptr_equal(found, only);
    pool_give(&c, found);
    pool_give(&c, only);
    close_pool(&c);
}

/* A part of it that was passed through may never have been compared. */
static void who_replaces_a_block_takes_the_names_of_its_granules(void **state)
{
    (void)state;
    enum { BLOCK_LEN = 3 * GRANULE_BYTES + 5 };
    struct cache c = open_pool(FRAMES);
    struct buffer *block = pool_take(&c, BLOCK_LEN, BUFFER_DEMAND), *held = NULL;
    struct buffer_key k = key(1);
    uint64_t first = round_down(k.at, BLOCK_BYTES);

    for (unsigned n = 0; n < 5; n++) {
        k.at = (first + n * GRANULE_BYTES) | BUFFER_GRANULE;
        struct buffer *b = pool_take(&c, 4096, BUFFER_DEMAND);
        b->len = 5;
        memset(b->mem, (int)n, 5);
        b = pool_publish(&c, b, &k, true);
        if (n == 2)
            held = b;
        else
            pool_give(&c, b);
    }
    k.at = first | BUFFER_BLOCK;
    block->len = BLOCK_LEN;
    pool_replace(&c, block, &k);
    for (unsigned n = 0; n < 5; n++) {
        k.at = (first + n * GRANULE_BYTES) | BUFFER_GRANULE;
        struct buffer *b = pool_find(&c, &k);
        assert_int_equal(!!b, n == 4); /* of what follows the block */
        if (b)
            pool_give(&c, b);
    }
    assert_int_equal(held->mem[4], 2);
    pool_give(&c, held);
    pool_give(&c, block);
    close_pool(&c);
}

static void a_held_buffer_is_never_evicted(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);
    struct buffer *held = put_use(&c, 1000, 4096, true), *lent = pool_take(&c, 4096, BUFFER_DEMAND);

    memset(lent->mem, 0x5a, 4096);
    for (uint64_t n = 0; n < 500; n++)
        put(&c, n, n % 3 ? BLOCK_BYTES / 4 : 4096);
    pool_hold(held);
    pool_give(&c, held);
    for (uint64_t n = 0; n < 100; n++)
        put(&c, n, BLOCK_BYTES);
    assert_true(has(&c, 1000));
    assert_int_equal(lent->mem[4095], 0x5a);
    pool_give(&c, lent);
    pool_give(&c, held);
    assert_true(has(&c, 1000));
    close_pool(&c);
}

/* The race that eviction can lose: somebody finds the victim before it is out of the table. */
static void a_victim_that_was_found_in_the_meantime_stays(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);
    struct buffer_key k = key(1);

    put(&c, 1, 4096);
    struct buffer *b = pool_find(&c, &k);
    pthread_mutex_lock(&c.pool->lock);
    assert_false(evict(c.pool, pool_cell_number(c.pool, cell_of(b))));
    pthread_mutex_unlock(&c.pool->lock);
    assert_true(has(&c, 1));
    pool_give(&c, b);
    close_pool(&c);
}

/* In any queue, held or not: not found again, its holder keeps the bytes, and it leaves in time. */
static void a_disowned_buffer_is_found_no_more(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);
    struct buffer_key k = key(1), held = key(2), never = key(3);
    uint64_t n = 2;

    put(&c, 1, 4096);
    put(&c, 2, 4096);
    struct buffer *b = pool_find(&c, &held);
    pool_disown(&c, &k);
    pool_disown(&c, &held);
    pool_disown(&c, &never);
    assert_false(has(&c, 1));
    assert_false(has(&c, 2));
    check(&c);
    put(&c, 2, 8192);                            /* the name is free for others */
    assert_memory_equal(b->mem, &n, sizeof n);
    pool_give(&c, b);
    assert_true(has(&c, 2));
    check(&c);
    for (uint64_t more = 10; more < 10 + 2 * FRAMES; more++)
        put(&c, more, BLOCK_BYTES);
    check(&c);
    assert_int_equal(status(&c).used_bytes, FRAMES * MIB);
    close_pool(&c);
}

/* ---- room ---- */

static void a_frame_comes_out_of_a_pool_of_small_buffers(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);

    for (uint64_t n = 0; n < FRAMES * POOL_FRAME_CELLS; n++)
        put(&c, n, 4096);
    assert_int_equal(status(&c).used_bytes, FRAMES * MIB);
    put(&c, 100000, BLOCK_BYTES);
    assert_int_equal(status(&c).used_bytes, FRAMES * MIB); /* one frame was emptied, not more */
    check(&c);
    put(&c, 100001, 4096);                       /* and split again */
    check(&c);
    close_pool(&c);
}

/* One held buffer in every frame but the last that eviction would come to. */
static void the_only_frame_without_a_held_buffer_is_found(void **state)
{
    (void)state;
    for (unsigned free_one = 0; free_one < FRAMES; free_one++) {
        struct cache c = open_pool(FRAMES);
        struct buffer *held[FRAMES] = {NULL}, *b;
        for (uint64_t n = 0; n < FRAMES * POOL_FRAME_CELLS; n++) {
            b = put_use(&c, n, 4096, false);
            size_t frame = (size_t)(b->mem - c.pool->memory) / POOL_FRAME_BYTES;
            if (!held[frame] && frame != free_one && n % 50 == 49)
                held[frame] = b;
            else
                pool_give(&c, b);
        }
        b = pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND);
        assert_non_null(b);
        assert_int_equal((b->mem - c.pool->memory) / POOL_FRAME_BYTES, free_one);
        assert_null(pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND));
        struct buffer *half = pool_take(&c, BLOCK_BYTES / 2, BUFFER_DEMAND);
        assert_non_null(half);                   /* halves are still to be had */
        pool_give(&c, half);
        pool_give(&c, b);
        for (unsigned n = 0; n < FRAMES; n++)
            if (held[n])
                pool_give(&c, held[n]);
        close_pool(&c);
    }
}

static void shares_limit_what_is_held_not_what_is_cached(void **state)
{
    (void)state;
    static const struct {
        enum buffer_use use;
        unsigned most;
    } row[] = {{BUFFER_DEMAND, FRAMES}, {BUFFER_FILL, FRAMES / 2}, {BUFFER_PREFETCH, FRAMES / 4},
               {BUFFER_PASS, FRAMES / 8}};

    for (size_t r = 0; r < ARRAY_COUNT(row); r++) {
        struct cache c = open_pool(FRAMES);
        struct buffer *b[FRAMES];
        for (unsigned round = 0; round < 3; round++) {
            unsigned n = 0;
            while ((b[n] = pool_take(&c, BLOCK_BYTES, row[r].use)) && ++n < FRAMES)
                ;
            assert_int_equal(n, row[r].most);
            if (n < FRAMES)
                assert_null(pool_take(&c, 1, row[r].use));
            for (unsigned i = 0; i < n; i++) {
                struct buffer_key k = key(round * 100 + i);
                b[i]->len = BLOCK_BYTES;
                assert_ptr_equal(pool_publish(&c, b[i], &k, false), b[i]);
                pool_hold(b[i]);
                pool_give(&c, b[i]);
            }
            assert_null(pool_take(&c, BLOCK_BYTES, row[r].use)); /* published, but held still */
            for (unsigned i = 0; i < n; i++)
                pool_give(&c, b[i]);
        }
        struct buffer_key k = key(200);
        b[0] = pool_find(&c, &k);                /* held again, but by a finder */
        assert_non_null(b[0]);
        assert_int_equal(c.pool->use_cells[row[r].use], 0);
        pool_give(&c, b[0]);
        close_pool(&c);
    }
}

/* A fetch has written its blocks; slow readers hold them still. */
static void readers_of_filled_buffers_leave_the_share_to_the_next_fills(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);
    struct fake_core core;
    struct fake_machine m = {0};
    struct pool_wait w = {0};
    struct buffer *b[FRAMES / 2];

    fake_init(&core);
    m.m.core = &core.core;
    for (unsigned i = 0; i < FRAMES / 2; i++) {
        struct buffer_key k = key(i);
        b[i] = pool_take(&c, BLOCK_BYTES, BUFFER_FILL);
        assert_non_null(b[i]);
        b[i]->len = BLOCK_BYTES;
        assert_ptr_equal(pool_publish(&c, b[i], &k, false), b[i]);
        pool_hold(b[i]);             /* a reader's */
    }
    assert_null(pool_take(&c, BLOCK_BYTES, BUFFER_FILL));
    pool_wait(&c, &w, &m.m);
    pool_share_end(&c, b[0]);
    assert_int_equal(deliver(&core), 1);
    assert_int_equal(m.woken, 1);
    struct buffer *next = pool_take(&c, BLOCK_BYTES, BUFFER_FILL);
    assert_non_null(next);
    assert_null(pool_take(&c, 1, BUFFER_FILL));
    pool_give(&c, next);
    pool_give(&c, b[0]);             /* the fetch's hold, then the reader's: counted once */
    pool_give(&c, b[0]);
    for (unsigned i = 1; i < FRAMES / 2; i++) {
        pool_give(&c, b[i]);
        pool_give(&c, b[i]);
    }
    assert_int_equal(c.pool->use_cells[BUFFER_FILL], 0);
    close_pool(&c);
}

/* ---- replacement ---- */

struct fifo {                        /* what is compared with: same size, first in first out */
    uint64_t at[FRAMES * 8];
    unsigned next;
};

static bool fifo_use(struct fifo *f, uint64_t n)
{
    for (unsigned i = 0; i < ARRAY_COUNT(f->at); i++)
        if (f->at[i] == n)
            return true;
    f->at[f->next++ % ARRAY_COUNT(f->at)] = n;
    return false;
}

/* A hot set of half the pool, read at random, while one scan after the other goes by. */
static void a_scan_does_not_drive_out_the_hot_set(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);
    struct fifo f = {.next = 0};
    unsigned hot_reads = 0, ours = 0, fifos = 0;
    uint64_t seed = 99, scan = 1000;

    for (unsigned n = 0; n < 6000; n++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bool hot = seed >> 40 & 1;
        uint64_t name_ = hot ? 1 + (seed >> 33) % (FRAMES * 4) : scan++;
        bool hit = has(&c, name_), fifo_hit = fifo_use(&f, name_);
        if (!hit)
            put(&c, name_, GRANULE_BYTES);
        if (n < 1000)
            continue;
        hot_reads += hot;
        ours += hot && hit;
        fifos += hot && fifo_hit;
    }
    assert_true(ours > hot_reads * 95 / 100);
    assert_true(fifos < hot_reads * 75 / 100);
    close_pool(&c);
}

/* What is read again and again was read first: it stands together, in whole frames, where the
 * first eviction looks for one. */
static void the_first_frame_of_a_job_does_not_cost_the_hot_set(void **state)
{
    (void)state;
    enum { ROOM = 64, HOT = 400, COLD = 1000 };
    struct cache c = open_pool(ROOM);
    struct buffer *job[20] = {NULL};
    unsigned lost = 0;

    for (uint64_t n = 0; n < HOT; n++)
        put(&c, n, 64 * KIB);
    for (uint64_t n = 0; n < 3 * HOT; n++)
        assert_true(has(&c, n % HOT));
    for (uint64_t n = 0; n < COLD; n++)
        put(&c, 1000000 + n, 64 * KIB);
    for (unsigned i = 0; i < ARRAY_COUNT(job); i++)
        assert_non_null(job[i] = pool_take(&c, BLOCK_BYTES / 2 + 1, BUFFER_DEMAND));
    for (uint64_t n = 0; n < HOT; n++)
        lost += !has(&c, n);
    for (unsigned i = 0; i < ARRAY_COUNT(job); i++)
        pool_give(&c, job[i]);
    assert_int_equal(lost, 0);
    close_pool(&c);
}

static void prefetched_buffers_go_unless_used_twice(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);

    for (uint64_t n = 0; n < 3; n++)
        pool_give(&c, put_use(&c, n, GRANULE_BYTES, n < 2));
    assert_true(has(&c, 0));                     /* the use that it was fetched for */
    assert_true(has(&c, 1) && has(&c, 1));
    assert_true(has(&c, 2));                     /* fetched on demand: its second use */
    for (uint64_t n = 100; n < 100 + FRAMES * 8; n++)
        put(&c, n, GRANULE_BYTES);
    assert_false(has(&c, 0));
    assert_true(has(&c, 1));
    assert_true(has(&c, 2));
    close_pool(&c);
}

static void what_comes_back_soon_goes_to_main(void **state)
{
    (void)state;
    struct cache c = open_pool(FRAMES);

    for (uint64_t n = 0; n < FRAMES * 8 + 4; n++)
        put(&c, n, GRANULE_BYTES);
    assert_false(has(&c, 0));
    put(&c, 0, GRANULE_BYTES);                   /* its ghost speaks for it */
    pool_give(&c, put_use(&c, 1, GRANULE_BYTES, true)); /* but not for a prefetch */
    assert_int_equal(c.pool->main.cells, GRANULE_BYTES / POOL_CELL_BYTES);
    for (uint64_t n = 1000; n < 1000 + FRAMES * 8; n++)
        put(&c, n, GRANULE_BYTES);
    assert_true(has(&c, 0));
    assert_false(has(&c, 1));
    close_pool(&c);
}

/* ---- waiting ---- */

static void a_wait_is_woken_when_memory_is_given(void **state)
{
    (void)state;
    struct cache c = open_pool(2);
    struct fake_core core;
    fake_init(&core);
    struct fake_machine m = {.m.core = &core.core};
    struct pool_wait w = {.busy = false};
    struct buffer *a = pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND);
    struct buffer *b = put_use(&c, 1, BLOCK_BYTES, false);

    assert_null(pool_take(&c, 4096, BUFFER_DEMAND));
    pool_wait(&c, &w, &m.m);
    assert_true(w.busy && m.m.inflight == 1);
    assert_int_equal(deliver(&core), 0);
    pool_hold(b);
    pool_give(&c, b);
    assert_int_equal(deliver(&core), 0);         /* still held */
    pool_give(&c, b);                            /* cached, and evictable now */
    assert_int_equal(deliver(&core), 1);
    assert_true(!w.busy && m.m.inflight == 0 && m.woken == 1);
    struct buffer *d = pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND);
    assert_non_null(d);

    assert_null(pool_take(&c, 4096, BUFFER_DEMAND));
    pool_give(&c, a);                            /* between the take and the wait */
    pool_wait(&c, &w, &m.m);
    assert_int_equal(deliver(&core), 1);
    assert_int_equal(m.woken, 2);
    pool_give(&c, d);
    close_pool(&c);
}

/* Held by finders only: the buffers are in their queues until eviction meets them. */
static void a_wait_sleeps_while_finders_hold_all_and_wakes_after(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {BLOCK_BYTES, 4096};

    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct cache c = open_pool(2);
        struct fake_core core;
        fake_init(&core);
        struct fake_machine m = {.m.core = &core.core};
        struct pool_wait w = {.busy = false};
        unsigned each = BLOCK_BYTES / sizes[s];
        struct buffer_key k[2] = {key(each / 2), key(each + each / 2)};
        for (uint64_t n = 0; n < 2 * each; n++)
            put(&c, n, sizes[s]);
        struct buffer *b[2] = {pool_find(&c, &k[0]), pool_find(&c, &k[1])};
        assert_null(pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND));
        pool_wait(&c, &w, &m.m);
        assert_int_equal(deliver(&core), 0);
        pool_give(&c, b[1]);
        assert_int_equal(deliver(&core), 1);
        b[1] = pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND);
        assert_non_null(b[1]);
        pool_give(&c, b[1]);
        pool_give(&c, b[0]);
        close_pool(&c);
    }
}

static void a_wait_for_a_share_is_woken_by_that_share(void **state)
{
    (void)state;
    struct cache c = open_pool(4);
    struct fake_core core;
    fake_init(&core);
    struct fake_machine m = {.m.core = &core.core};
    struct pool_wait w = {.busy = false};
    struct buffer *b = pool_take(&c, BLOCK_BYTES, BUFFER_PREFETCH);

    assert_null(pool_take(&c, 4096, BUFFER_PREFETCH));
    pool_wait(&c, &w, &m.m);
    put(&c, 1, 4096);
    deliver(&core);
    unsigned vain = m.woken;
    if (!w.busy) {                               /* a wake in vain is allowed */
        assert_null(pool_take(&c, 4096, BUFFER_PREFETCH));
        pool_wait(&c, &w, &m.m);
    }
    for (unsigned n = 0; n < 100; n++)
        assert_true(has(&c, 1));                 /* but hits wake nobody */
    assert_int_equal(deliver(&core), 0);
    pool_give(&c, b);
    assert_int_equal(deliver(&core), 1);
    assert_int_equal(m.woken, vain + 1);
    close_pool(&c);
}

static void who_leaves_is_not_woken(void **state)
{
    (void)state;
    struct cache c = open_pool(1);
    struct fake_core core;
    fake_init(&core);
    struct fake_machine m[2] = {{.m.core = &core.core}, {.m.core = &core.core}};
    struct pool_wait w[2] = {{.busy = false}, {.busy = false}};
    struct buffer *b = pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND);

    for (unsigned n = 0; n < 2; n++) {
        assert_null(pool_take(&c, 4096, BUFFER_DEMAND));
        pool_wait(&c, &w[n], &m[n].m);
    }
    assert_true(pool_leave(&c, &w[0]));
    assert_true(!w[0].busy && m[0].m.inflight == 0);
    assert_true(pool_leave(&c, &w[0]));          /* nothing to leave */
    assert_int_equal(m[0].m.inflight, 0);
    pool_give(&c, b);
    assert_false(pool_leave(&c, &w[1]));         /* its wake is on its way */
    assert_int_equal(m[1].m.inflight, 1);
    assert_int_equal(deliver(&core), 1);
    assert_true(m[0].woken == 0 && m[1].woken == 1 && m[1].m.inflight == 0);
    close_pool(&c);
}

/* A thousand wait, one buffer comes free: each is tried, few at a time, and none twice. */
static void one_event_tries_every_waiter_once(void **state)
{
    (void)state;
    enum { WAITERS = 1000 };
    struct cache c = open_pool(1);
    struct fake_core core;
    fake_init(&core);
    struct fake_machine *m = mem_take(WAITERS * sizeof *m);
    struct pool_wait *w = mem_take(WAITERS * sizeof *w);
    struct buffer *b = pool_take(&c, BLOCK_BYTES / 2, BUFFER_DEMAND);
    struct buffer *d = pool_take(&c, BLOCK_BYTES / 2, BUFFER_DEMAND);

    for (unsigned n = 0; n < WAITERS; n++) {
        m[n].m.core = &core.core;
        assert_null(pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND));
        pool_wait(&c, &w[n], &m[n].m);
    }
    pool_give(&c, b);                            /* not enough for any of them */
    assert_int_equal(core.sent, WAKES_MAX);
    for (unsigned round = 0; core.first; round++) {
        struct message *msg = core.first;
        core.first = msg->next;
        if (!core.first)
            core.last = &core.first;
        msg->deliver(&core.core, msg);
        assert_true(round < WAITERS);
        struct pool_wait *one = container_of(msg, struct pool_wait, msg);
        assert_null(pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND));
        pool_wait(&c, one, one->m);
    }
    for (unsigned n = 0; n < WAITERS; n++)
        assert_int_equal(m[n].woken, 1);
    for (unsigned n = 0; n < WAITERS; n++)
        assert_true(pool_leave(&c, &w[n]));
    pool_give(&c, d);
    mem_give(w);
    mem_give(m);
    close_pool(&c);
}

/* With so many frames one take does not look at all of them: its wait must not sleep for ever. */
static void a_take_that_gave_up_early_is_tried_again(void **state)
{
    (void)state;
    enum { MANY = 200, GAP = 131 };
    struct cache c = open_pool(MANY);
    struct fake_core core;
    fake_init(&core);
    struct fake_machine m = {.m.core = &core.core};
    struct pool_wait w = {.busy = false};
    static struct buffer *held[MANY];
    struct buffer *b = NULL;

    for (uint64_t n = 0; n < 2 * MANY; n++) {
        b = put_use(&c, n, BLOCK_BYTES / 2, false);
        if (n % 2 == 0 && n / 2 != GAP)
            held[n / 2] = b;
        else
            pool_give(&c, b);
    }
    /* Recent places of the queue say nothing about the gap: make the sweep find it. */
    unsigned rounds = 0;
    for (b = NULL; !b && rounds < 10; rounds++) {
        b = pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND);
        if (!b) {
            pool_wait(&c, &w, &m.m);
            assert_int_equal(deliver(&core), 1);
        }
    }
    assert_non_null(b);
    assert_in_range(rounds, 2, MANY / SWEEP_FRAMES + 1);
    for (rounds = 0; rounds < 10; rounds++) {    /* now none is left, and that ends the trying */
        assert_null(pool_take(&c, BLOCK_BYTES, BUFFER_DEMAND));
        pool_wait(&c, &w, &m.m);
        if (deliver(&core) == 0)
            break;
    }
    assert_in_range(rounds, 0, MANY / SWEEP_FRAMES + 1);
    assert_true(w.busy);
    pool_give(&c, held[0]);
    assert_int_equal(deliver(&core), 1);
    pool_give(&c, b);
    for (unsigned n = 1; n < MANY; n++)
        if (held[n])
            pool_give(&c, held[n]);
    close_pool(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_stays_within_what_was_given),
        cmocka_unit_test(sizes_are_powers_of_two_and_aligned),
        cmocka_unit_test(buddies_split_and_merge_without_a_leak),
        cmocka_unit_test(what_was_published_is_found_until_evicted),
        cmocka_unit_test(the_second_publisher_gets_the_first_ones_buffer),
        cmocka_unit_test(who_replaces_has_the_name_and_the_other_keeps_his_bytes),
        cmocka_unit_test(who_replaces_a_block_takes_the_names_of_its_granules),
        cmocka_unit_test(a_held_buffer_is_never_evicted),
        cmocka_unit_test(a_victim_that_was_found_in_the_meantime_stays),
        cmocka_unit_test(a_disowned_buffer_is_found_no_more),
        cmocka_unit_test(a_frame_comes_out_of_a_pool_of_small_buffers),
        cmocka_unit_test(the_only_frame_without_a_held_buffer_is_found),
        cmocka_unit_test(shares_limit_what_is_held_not_what_is_cached),
        cmocka_unit_test(readers_of_filled_buffers_leave_the_share_to_the_next_fills),
        cmocka_unit_test(a_scan_does_not_drive_out_the_hot_set),
        cmocka_unit_test(the_first_frame_of_a_job_does_not_cost_the_hot_set),
        cmocka_unit_test(prefetched_buffers_go_unless_used_twice),
        cmocka_unit_test(what_comes_back_soon_goes_to_main),
        cmocka_unit_test(a_wait_is_woken_when_memory_is_given),
        cmocka_unit_test(a_wait_sleeps_while_finders_hold_all_and_wakes_after),
        cmocka_unit_test(a_wait_for_a_share_is_woken_by_that_share),
        cmocka_unit_test(who_leaves_is_not_woken),
        cmocka_unit_test(one_event_tries_every_waiter_once),
        cmocka_unit_test(a_take_that_gave_up_early_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
