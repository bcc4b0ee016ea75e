/* Memory of objects and chunks of the index: millions of small things, made and freed in any order.
 *
 * Regions of 2 MiB, which the kernel backs with huge pages where it may: a look-up among millions
 * of items waits as long for the processor's translation of small pages as for the memory itself,
 * and to map those at a start costs more than to load what stands in them. A region is cut into
 * spans, a span into cells of one size.
 *
 * Invariants:
 *  1. A span begins at a multiple of its size, so that a cell's address tells its span. It belongs
 *     to one shard and one class as long as a cell of it is lent.
 *  2. A span with room is in its class's list; a full one is in none; one without lent cells goes
 *     back, and may become one of any class.
 *  3. What is too large for a cell is allocated alone, and listed. With AddressSanitizer that is
 *     everything, so that each has red zones.
 *
 * Life: that of the index: cells_free() frees whatever is still lent.
 * Failure: NULL when the system refuses memory. Regions are reused, never given back before the
 * end: cache.index_memory bounds what is lent, and what was lent once may come again. Some 3 MiB
 * are made ahead, which that does not count. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/parts.h"

enum {
    REGION_BYTES = 2 * MIB,
    SPAN_BYTES = 64 * KIB,
    CELL_BYTES_MAX = KIB,
    CLASSES = CELL_BYTES_MAX / CELL_STEP,
    SPANS_AHEAD = REGION_BYTES / SPAN_BYTES / 2,
    SHARDS = 8,                      /* threads allocate in one each */
};

struct free_cell {
    struct free_cell *next;
};
struct span_head {                   /* at the beginning of each span */
    struct node link;                /* in its class's list, or in that of the free ones */
    struct free_cell *free;
    uint32_t cell_bytes, lent, fresh, cap; /* fresh: were lent once, from the front */
    uint8_t shard;
} __attribute__((aligned(64)));
struct large {
    struct node link;
} __attribute__((aligned(16)));
struct region {
    struct region *next;
    void *memory;
};
struct shard {
    pthread_mutex_t lock;
    struct list room[CLASSES];
    struct list large;
} __attribute__((aligned(64)));
struct cells {
    struct shard shard[SHARDS];
    pthread_mutex_t lock;            /* of what follows; nests inside a shard's */
    struct list free;                /* spans, */
    unsigned spans;                  /* so many */
    struct region *region;
};

#ifdef HEADPOND_ASAN
static const size_t cell_max;
#else
static const size_t cell_max = CELL_BYTES_MAX;
#endif

struct cells *cells_make(void)
{
    struct cells *c = mem_take_aligned(sizeof *c, 64);

    if (!c)
        return NULL;
    for (unsigned i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&c->shard[i].lock, NULL);
        list_init(&c->shard[i].large);
        for (unsigned n = 0; n < CLASSES; n++)
            list_init(&c->shard[i].room[n]);
    }
    pthread_mutex_init(&c->lock, NULL);
    list_init(&c->free);
    return c;
}

void cells_free(struct cells *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < SHARDS; i++) {
        for (struct node *n; (n = list_pop(&c->shard[i].large));)
            mem_give(container_of(n, struct large, link));
        pthread_mutex_destroy(&c->shard[i].lock);
    }
    while (c->region) {
        struct region *r = c->region;
        c->region = r->next;
        mem_give_huge(r->memory, REGION_BYTES);
        mem_give(r);
    }
    pthread_mutex_destroy(&c->lock);
    mem_give(c);
}

/* ---- spans ---- */
/* Of its spans all are free. The kernel clears memory at its first touch, which takes as long as
 * loading hundreds of chunks: so that is not done under the lock of all shards, and mostly
 * cells_ready() has done it before a core needs it. Several that find no
 * span at once make a region each. */
static bool add_region(struct cells *c)
{
    struct region *r = mem_take(sizeof *r);
    uint8_t *from = r ? mem_take_huge(REGION_BYTES) : NULL;

    if (!from) {
        mem_give(r);
        return false;
    }
    for (size_t at = 0; at < REGION_BYTES; at += SPAN_BYTES)
        *(volatile uint8_t *)(from + at) = 0;
    pthread_mutex_lock(&c->lock);
    *r = (struct region){c->region, from};
    c->region = r;
    for (unsigned i = 0; i < REGION_BYTES / SPAN_BYTES; i++) {
        struct span_head *s = (struct span_head *)(void *)(from + i * (size_t)SPAN_BYTES);
        s->link = (struct node){0};
        list_push(&c->free, &s->link);
    }
    c->spans += REGION_BYTES / SPAN_BYTES;
    pthread_mutex_unlock(&c->lock);
    return true;
}

#ifdef HEADPOND_ASAN
void cells_ready(struct cells *c)
{
    (void)c;                         /* no cell comes from a span */
}
#else
void cells_ready(struct cells *c)
{
    pthread_mutex_lock(&c->lock);
    bool few = c->spans < SPANS_AHEAD;
    pthread_mutex_unlock(&c->lock);
    if (few)
        (void)add_region(c);         /* refused: who takes a cell tries again */
}
#endif

static struct node *pop_span(struct cells *c)
{
    pthread_mutex_lock(&c->lock);
    struct node *n = list_empty(&c->free) ? NULL : list_pop(&c->free);
    c->spans -= n != NULL;
    pthread_mutex_unlock(&c->lock);
    return n;
}

static struct span_head *take_span(struct cells *c)
{
    struct node *n = pop_span(c);

    while (!n && add_region(c))      /* others may take all of it before us */
        n = pop_span(c);
    return n ? container_of(n, struct span_head, link) : NULL;
}

static void give_span(struct cells *c, struct span_head *s)
{
    pthread_mutex_lock(&c->lock);
    list_push_front(&c->free, &s->link);
    c->spans++;
    pthread_mutex_unlock(&c->lock);
}

static struct span_head *span_of_cell(void *at)
{
    return (struct span_head *)((uintptr_t)at / SPAN_BYTES * SPAN_BYTES);
}

/* ---- cells ---- */
static unsigned own_shard(void)
{
    static _Atomic unsigned next;
    static _Thread_local unsigned own; /* + 1 */

    if (own == 0)
        own = atomic_fetch_add(&next, 1) % SHARDS + 1;
    return own - 1;
}

/* Lock held. */
static void *take_cell(struct cells *c, struct shard *s, unsigned class_)
{
    struct span_head *span;
    void *cell;

    if (list_empty(&s->room[class_])) {
        span = take_span(c);
        if (!span)
            return NULL;
        uint32_t bytes = (class_ + 1) * CELL_STEP;
        *span = (struct span_head){.cell_bytes = bytes, .shard = (uint8_t)(s - c->shard),
                                   .cap = (uint32_t)(SPAN_BYTES - sizeof *span) / bytes};
        list_push(&s->room[class_], &span->link);
    }
    span = container_of(list_first(&s->room[class_]), struct span_head, link);
    if (span->free) {
        cell = span->free;
        span->free = span->free->next;
    } else {
        cell = (uint8_t *)(span + 1) + (size_t)span->fresh++ * span->cell_bytes;
    }
    if (++span->lent == span->cap)
        node_remove(&span->link);
    return cell;
}

static void *take_large(struct shard *s, size_t bytes)
{
    struct large *l = mem_take(sizeof *l + bytes);

    if (!l)
        return NULL;
    pthread_mutex_lock(&s->lock);
    list_push(&s->large, &l->link);
    pthread_mutex_unlock(&s->lock);
    return l + 1;
}

void *cells_take(struct cells *c, size_t bytes)
{
    struct shard *s = &c->shard[own_shard()];

    must(bytes > 0);
    if (bytes > cell_max)
        return take_large(&c->shard[0], bytes);
    pthread_mutex_lock(&s->lock);
    void *cell = take_cell(c, s, (unsigned)((bytes - 1) / CELL_STEP));
    pthread_mutex_unlock(&s->lock);
    if (cell)
        memset(cell, 0, bytes);
    return cell;
}

unsigned cells_take_many(struct cells *c, size_t bytes, unsigned count, void **out)
{
    struct shard *s = &c->shard[own_shard()];
    unsigned taken = 0;

    must(bytes > 0);
    if (bytes > cell_max) {
        while (taken < count && (out[taken] = take_large(&c->shard[0], bytes)))
            taken++;
        return taken;
    }
    pthread_mutex_lock(&s->lock);
    while (taken < count && (out[taken] = take_cell(c, s, (unsigned)((bytes - 1) / CELL_STEP))))
        taken++;
    pthread_mutex_unlock(&s->lock);
    return taken;
}

void cells_give(struct cells *c, void *at, size_t bytes)
{
    if (bytes > cell_max) {
        struct large *l = (struct large *)at - 1;
        pthread_mutex_lock(&c->shard[0].lock);
        node_remove(&l->link);
        pthread_mutex_unlock(&c->shard[0].lock);
        mem_give(l);
        return;
    }
    struct span_head *span = span_of_cell(at);
    struct shard *s = &c->shard[span->shard];
    struct free_cell *cell = at;

    pthread_mutex_lock(&s->lock);
    must(span->lent > 0 && span->cell_bytes == round_up(bytes, CELL_STEP));
    cell->next = span->free;
    span->free = cell;
    if (!node_linked(&span->link))
        list_push(&s->room[span->cell_bytes / CELL_STEP - 1], &span->link);
    bool empty = --span->lent == 0;
    if (empty)
        node_remove(&span->link);
    pthread_mutex_unlock(&s->lock);
    if (empty)
        give_span(c, span);
}
