/* MACHINE, one per core: watches the transfers that are under way on its disks, keeps those that do
 * not come back, and lets no more writes begin than a read can wait behind.
 *
 * Nothing frees a request from a disk that hangs but its own clock: a linked timeout completes no
 * earlier than the read does. So an owner whose transfer has passed its deadline goes on without
 * it. The transfer stays here with its operation, its chunk and its buffer, which are the kernel's
 * until the disk answers: the quarantine.
 *
 * Invariants:
 *  1. A transfer under way is in the list `busy`, the oldest first, or is late and in `late`. All
 *     have the same deadline, so that one timer for the oldest is enough.
 *  2. A late transfer holds its chunk, whose slot is therefore not written by others, and its
 *     buffer, unless the kernel is done with that and CRCs alone are late; its op or its wait for
 *     them counts in the keeper.
 *  3. It goes when it is back (its op has completed, and it waits for no CRCs) and its owner has
 *     left it, whichever comes last.
 *  4. While a write waits in a queue, and has no deadline yet, another one of its directory is
 *     under way and not late, whose end lets it begin; or sends it back, if that is not up. While
 *     a burst is on its timer is set, which is the same to those that are put off.
 *  5. A directory that is not up gets no new transfers. One whose late transfers keep more than an
 *     eighth of cache.memory is fenced: that, and what was under way, bounds the quarantine.
 *
 * Life: cache_core_begin() to cache_core_end(); it has no end of its own.
 * Failure: without memory for a transfer none is begun. What hangs at the end of the core is left
 * to the kernel, with the memory that it keeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "server/cache/inside.h"

#define KEEPER_STEPS(S) S(keeper, WATCH) S(keeper, DRAIN) S(keeper, END)

enum {
    TRANSFERS_MAX = 32 * KIB,
    QUARANTINE_PART = 8,             /* of cache.memory, at most by one disk that is in use */
    /* Of writes to one disk, by all cores: to keep any busy, and little for a read to wait behind:
     * 16 ms at 2 GB/s. */
    WRITING_BYTES = 32 * MIB,
    WRITING_OPS = 256,
    CORE_WRITING_BYTES = 4 * MIB,    /* but a core may always have so much of them */
    CORE_WRITING_OPS = 16,
    /* On a disk that takes longer fewer are under way, so that the time it takes is not that of a
     * queue, which would look like a disk that hangs. */
    WRITE_US = 100000,
    LEAST_OPS = 4,                   /* by all cores, but one by each */
    /* A burst: blocks come, none BURST_PAUSE_MS behind the last, for BURST_MS at most, and none
     * BURST_REST_US before. Their writes are put off to its end: disks then do not work beside a
     * core that receives and sends (of the CPU that a cold GiB takes, a tenth; on a virtual disk).
     * So many of a core, and all cores' this part of cache.memory, of which some was never used:
     * held, they drive nothing else out. */
    BURST_PAUSE_MS = 20,
    BURST_MS = 1000,
    BURST_REST_US = 1000000,
    PUT_OFF_OPS = 1024,
    PUT_OFF_PART = 4,
};

struct writes {                      /* of a core's to a directory */
    struct list queue;               /* transfers that are not begun yet */
    struct list put_off;             /* nor are these: behind the burst, and in turns with those */
    bool later_is_next;              /* of these two */
    uint32_t ops, ops_most;          /* under way, and not late */
    uint64_t bytes;
    uint64_t halved_us;              /* the last time; what began before tells no more */
};
struct burst {
    struct timer timer;              /* set while it is on */
    bool on;
    uint64_t began_us, last_us;      /* of writes that may be put off: its first, the last of all */
    uint64_t bytes, bytes_most;      /* put off, in this one or left from the one before */
    uint32_t ops;
};
struct keeper {
    struct machine m;
    struct burst burst;
    struct writes write[CACHE_DIRS_MAX];
    uint32_t ops_least, ops_most;
    uint64_t bytes_most;
    struct cache *cache;
    struct timer timer;
    struct list busy, late;
    struct stock stock;
    /* by directory: when the youngest transfer that came back in time was begun */
    uint64_t newest_us[CACHE_DIRS_MAX];
    _Atomic uint32_t *under_way;     /* by directory: this core's */
};

STEP_TABLE(keeper, KEEPER_STEPS)

static struct keeper *keeper_of(const struct core *core)
{
    return core->cache;
}

static struct directory *dir_of(const struct keeper *self, const struct transfer *t)
{
    return &self->cache->dir[t->chunk->slot.dir];
}

/* Neither its owner nor the kernel knows it any more. */
static void forget(struct keeper *self, struct directory *d, struct transfer *t)
{
    if (t)
        stock_give(&self->stock, t);
    atomic_fetch_sub(&self->under_way[d->number], 1);
}

/* ---- writes ---- */

static void count_write(struct keeper *self, const struct transfer *t, int by)
{
    struct writes *w = &self->write[dir_of(self, t)->number];

    w->ops += (uint32_t)by;
    w->bytes += (uint64_t)((int64_t)by * t->len);
}

static bool has_room(const struct keeper *self, const struct writes *w, uint32_t bytes)
{
    return w->ops == 0 || (w->ops < w->ops_most && w->bytes + bytes <= self->bytes_most);
}

/* The next that may begin, if there is room for it; or NULL. Neither queue is kept from the disk by
 * the other. */
static struct transfer *first_waiting(const struct keeper *self, const struct writes *w)
{
    struct node *asked = list_first(&w->queue);
    struct node *later = self->burst.on ? NULL : list_first(&w->put_off);
    struct node *n = later && (!asked || w->later_is_next) ? later : asked;

    return n ? container_of(n, struct transfer, node) : NULL;
}

/* As TCP finds what a path can take: one more with each that was quick, half of them once one was
 * not. */
static void learn_depth(struct keeper *self, const struct transfer *t)
{
    struct writes *w = &self->write[dir_of(self, t)->number];
    uint64_t now_us = self->m.core->now_us;

    if (now_us - t->began_us <= WRITE_US) {
        if (first_waiting(self, w) && w->ops_most < self->ops_most)
            w->ops_most++;
    } else if (t->began_us >= w->halved_us) {
        w->ops_most = (uint32_t)max_u64(w->ops_most / 2, self->ops_least);
        w->halved_us = now_us;
    }
}

static void begin_write(struct keeper *self, struct transfer *t)
{
    t->began_us = self->m.core->now_us;
    op_write(t->op.m, &t->op, dir_of(self, t)->slab_fd, t->buffer->mem, t->len,
             slot_offset(t->chunk->slot) + t->off);
    count_write(self, t, 1);
    transfer_begun(t);
}

static void leave_queue(struct transfer *t)
{
    struct burst *burst = &keeper_of(t->op.m->core)->burst;

    node_remove(&t->node);
    if (t->put_off) {
        burst->ops--;
        burst->bytes -= t->len;
    }
    t->queued = t->put_off = false;
    t->op.m->inflight--;
}

/* What waits goes on; on a directory that is not up it comes back, and nothing was written. */
static void begin_next(struct keeper *self, struct directory *d)
{
    struct writes *w = &self->write[d->number];
    struct transfer *t;

    while ((t = first_waiting(self, w))) {
        bool up = directory_is_up(d);
        if (up && !has_room(self, w, t->len))
            return;
        w->later_is_next = !t->put_off;
        leave_queue(t);
        if (up) {
            begin_write(self, t);
        } else {
            t->op.res = -ECANCELED;
            machine_wake(t->op.m);
        }
    }
}

static void begin_waiting(struct keeper *self)
{
    for (unsigned i = 0; i < self->cache->dir_count; i++)
        begin_next(self, &self->cache->dir[i]);
}

/* What was put off is in time from here on: that it was tells nothing of its disk. */
static void end_burst(struct keeper *self)
{
    timer_stop(&self->burst.timer);
    self->burst.on = false;
    for (unsigned i = 0; i < self->cache->dir_count; i++)
        LIST_EACH(&self->write[i].put_off, struct transfer, node, t)
            t->made_us = self->m.core->now_us;
}

/* The timer is due: has the burst ended? */
static void look_at_burst(struct keeper *self)
{
    struct burst *burst = &self->burst;
    uint64_t now_us = self->m.core->now_us, end_us = burst->last_us + BURST_PAUSE_MS * 1000;

    end_us = min_u64(end_us, burst->began_us + BURST_MS * 1000);
    if (now_us >= end_us)
        end_burst(self);
    else
        timer_set(&burst->timer, &self->m, (end_us - now_us) / 1000 + 1);
}

void cache_burst_over(struct core *core)
{
    struct keeper *self = keeper_of(core);

    if (!self->burst.on)
        return;
    end_burst(self);
    begin_waiting(self);
}

/* One that may be put off has come: it is part of a burst, begins one, or ends it. */
static void look_for_burst(struct keeper *self, const struct transfer *t)
{
    struct burst *burst = &self->burst;
    uint64_t now_us = self->m.core->now_us;
    bool rested = now_us - burst->last_us >= BURST_REST_US;
    bool room = pool_keeps(self->cache, t->buffer) && burst->ops < PUT_OFF_OPS &&
                burst->bytes + t->len <= burst->bytes_most;

    burst->last_us = now_us;
    if (!room)
        cache_burst_over(self->m.core);
    else if (!burst->on && rested && burst->ops == 0) {
        burst->on = true;
        burst->began_us = now_us;
        timer_set(&burst->timer, &self->m, BURST_PAUSE_MS);
    }
}

/* It waits for its turn; put off, also behind others that are. */
static void queue_up(struct keeper *self, struct transfer *t, bool put_off)
{
    struct writes *w = &self->write[dir_of(self, t)->number];

    t->queued = true;
    t->put_off = put_off;
    t->op.kind = OPK_WRITE;
    t->op.m->inflight++;
    list_push(put_off ? &w->put_off : &w->queue, &t->node);
    if (put_off) {
        self->burst.ops++;
        self->burst.bytes += t->len;
    }
}

void transfer_write(struct transfer *t, struct machine *m, bool may_wait)
{
    struct keeper *self = keeper_of(m->core);
    struct writes *w = &self->write[dir_of(self, t)->number];

    t->op.m = m;
    if (may_wait)
        look_for_burst(self, t);
    bool put_off = may_wait && (self->burst.on || !list_empty(&w->put_off));
    if (!put_off && list_empty(&w->queue) && has_room(self, w, t->len))
        begin_write(self, t);
    else
        queue_up(self, t, put_off);
}

void transfer_take_back(struct transfer *t)
{
    must(t->queued);
    leave_queue(t);
    t->op.res = -ECANCELED;
}

/* ---- late ones ---- */

/* The disk has answered and the owner is gone. */
static void release_held(struct keeper *self, struct directory *d, struct transfer *t)
{
    bool read = t->op.kind == OPK_READ;

    metric_observe(self->m.core->metrics,
                   read ? METRIC_DISK_READ_SECONDS : METRIC_DISK_WRITE_SECONDS, d->metric, 0,
                   clock_us() - t->began_us);
    atomic_fetch_sub(&d->disk.quarantined_bytes, t->buffer->cap);
    if (atomic_fetch_sub(&d->disk.stuck_ops, 1) == 1)
        disk_returned(d);
    pool_give(self->cache, t->buffer);
}

static void release(struct keeper *self, struct transfer *t)
{
    struct directory *d = dir_of(self, t);

    node_remove(&t->node);
    if (!t->unread)
        release_held(self, d, t);
    chunk_drop(self->cache, t->chunk);
    forget(self, d, t);
}

static void reap_late(struct keeper *self)
{
    LIST_EACH(&self->late, struct transfer, node, t)
        if (transfer_is_back(t) && t->left)
            release(self, t);
}

/* What the kernel has: its buffer, and what that says of the disk. */
static void take_held(struct keeper *self, struct directory *d, struct transfer *t)
{
    pool_hold(t->buffer);
    atomic_fetch_add(&d->disk.late_ops, 1);
    atomic_fetch_add(&d->disk.stuck_ops, 1);
    uint64_t kept = atomic_fetch_add(&d->disk.quarantined_bytes, t->buffer->cap) + t->buffer->cap;
    op_hand_over(&t->op, &self->m);
    if (kept > self->cache->config->cache_memory / QUARANTINE_PART)
        disk_holds_much(d);
    if (self->newest_us[d->number] <= t->began_us)
        disk_late(d);
}

static void take_over(struct keeper *self, struct transfer *t)
{
    struct directory *d = dir_of(self, t);
    struct machine *owner = t->op.m;

    node_remove(&t->node);
    list_push(&self->late, &t->node);
    t->late = true;
    if (t->op.kind == OPK_WRITE) {
        learn_depth(self, t);
        count_write(self, t, -1);
    }
    t->unread = !t->op.busy;         /* which is no word on the disk: others were read first */
    chunk_hold(t->chunk);
    if (!t->unread)
        take_held(self, d, t);
    if (t->waits) {
        owner->inflight--;
        self->m.inflight++;
        t->op.m = &self->m;
    }
    machine_wake(owner);
}

/* ---- the machine ---- */

static enum turn keeper_WATCH(struct keeper *self)
{
    uint64_t limit_us = self->cache->config->cache_disk_timeout * 1000, oldest_us = 0;
    uint64_t now_us = self->m.core->now_us;

    (void)timer_take(&self->timer);
    if (timer_take(&self->burst.timer))
        look_at_burst(self);
    reap_late(self);
    LIST_EACH(&self->busy, struct transfer, node, t) {
        uint64_t age_us = now_us - min_u64(t->began_us, now_us);
        if (age_us < limit_us)
            oldest_us = max_u64(oldest_us, age_us);
        else if (limit_us > 0 && !transfer_is_back(t)) /* else its owner is about to look */
            take_over(self, t);
    }
    if (limit_us > 0 && !list_empty(&self->busy) && self->timer.at_ms == 0)
        timer_set(&self->timer, &self->m, (limit_us - oldest_us) / 1000 + 1);
    /* Behind that, as the first of them would set the timer for itself. */
    begin_waiting(self);
    return WAIT;
}

static enum turn keeper_DRAIN(struct keeper *self)
{
    return GO(keeper, self, END);
}

static enum turn keeper_END(struct keeper *self)
{
    (void)self;
    return OVER;
}

/* ---- a transfer's life ---- */

struct transfer *transfer_make(struct core *core, struct chunk *k, struct buffer *b)
{
    struct keeper *self = keeper_of(core);
    struct directory *d = &self->cache->dir[k->slot.dir];

    /* Counted first, so that directory_is_quiet() cannot miss one that saw the disk up. */
    atomic_fetch_add(&self->under_way[d->number], 1);
    struct transfer *t = directory_is_up(d) ? stock_take(&self->stock) : NULL;
    if (!t) {
        forget(self, d, NULL);
        return NULL;
    }
    t->chunk = k;
    t->buffer = b;
    t->began_us = t->made_us = core->now_us;
    return t;
}

void transfer_begun(struct transfer *t)
{
    struct keeper *self = keeper_of(t->op.m->core);
    uint64_t limit_ms = self->cache->config->cache_disk_timeout;

    list_push(&self->busy, &t->node);
    t->begun = true;
    if (self->timer.at_ms == 0 && !self->timer.fired && limit_ms > 0)
        timer_set(&self->timer, &self->m, limit_ms);
}

void transfer_seen(struct transfer *t)
{
    if (t->late || t->ended_us > 0)
        return;
    uint64_t *newest_us = &keeper_of(t->op.m->core)->newest_us[t->chunk->slot.dir];
    t->ended_us = clock_us();
    if (t->begun)
        *newest_us = max_u64(*newest_us, t->began_us);
}

void transfer_leave(struct transfer *t)
{
    struct keeper *self = keeper_of(t->op.m->core);

    if (t->late) {
        t->left = true;
        if (transfer_is_back(t))
            release(self, t);
        return;
    }
    must(transfer_is_back(t));
    transfer_seen(t);
    struct directory *d = dir_of(self, t);
    if (t->begun) {
        node_remove(&t->node);
        if (t->op.kind == OPK_WRITE) {
            learn_depth(self, t);
            count_write(self, t, -1);
        }
    }
    forget(self, d, t);
    begin_next(self, d);
}

bool directory_is_quiet(const struct directory *d)
{
    uint32_t sum = 0;

    for (unsigned i = 0; i < KEEPERS; i++)
        sum += atomic_load(&d->cache->transfers[i].under_way[d->number]);
    return sum == 0;
}

/* ---- begin and end ---- */

static void keeper_over(struct machine *m)
{
    (void)m;
}

enum err cache_core_begin(struct core *core)
{
    struct keeper *self = mem_take(sizeof *self);

    if (!self)
        return ERR_MEMORY;
    MACHINE_BEGIN(keeper, self, core, keeper_over);
    self->cache = core->server->cache;
    self->under_way = self->cache->transfers[core->number % KEEPERS].under_way;
    unsigned cores = (unsigned)max_u64(core->server->core_count, 1);
    self->ops_least = (uint32_t)max_u64(LEAST_OPS / cores, 1);
    self->ops_most = (uint32_t)max_u64(WRITING_OPS / cores, CORE_WRITING_OPS);
    self->bytes_most = max_u64(WRITING_BYTES / cores, CORE_WRITING_BYTES);
    self->burst.bytes_most = self->cache->config->cache_memory / PUT_OFF_PART / cores;
    for (unsigned i = 0; i < CACHE_DIRS_MAX; i++) {
        self->write[i].ops_most = self->ops_least;
        list_init(&self->write[i].queue);
        list_init(&self->write[i].put_off);
    }
    list_init(&self->busy);
    list_init(&self->late);
    stock_init(&self->stock, sizeof(struct transfer), TRANSFERS_MAX);
    core->cache = self;
    return OK;
}

void cache_core_end(struct core *core)
{
    struct keeper *self = keeper_of(core);

    if (!list_empty(&self->busy) || !list_empty(&self->late) || self->stock.out > 0)
        return;                      /* the kernel's until the disk answers, or their owners' */
    timer_stop(&self->timer);
    timer_stop(&self->burst.timer);
    stock_fini(&self->stock);
    mem_give(self);
    core->cache = NULL;
}
