/* The process's view of upstream: permits, the breaker, what was learnt, status, and each core's
 * idle links.
 *
 * Invariants:
 *  1. permits taken == out <= upstream.connections; of them prefetch_out <= 3/4 are READAHEAD and
 *     PREFETCH. A free permit and a waiter who may have it never exist together: whoever gives one
 *     back hands it on under the same lock.
 *  2. Queues are served by class, within a class in order of arrival over all cores. (One short
 *     lock per exchange, which costs at least a round trip, buys exact fairness without messages
 *     between cores.)
 *  3. While upstream is down nobody waits: all but one probe a second fail at once, and those
 *     queued are woken to fail.
 *  4. An idle link has no op under way. It is looked at before it is used again: one that speaks
 *     unasked is dead, or would answer the next request with the wrong answer.
 *
 * Life: origin_open() -> origin_core_begin() per core -> ... -> origin_core_end() ->
 * origin_close().
 * Failure: start-up errors become sentences; a link that cannot be kept is closed by the core's
 * keeper. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "creds.h"
#include "log.h"
#include "server/origin/origin.h"
#include "tls.h"

enum {
    IDLE_LINKS_MAX = 32,             /* per core */
    IDLE_MS = 15 * 1000,             /* S3 closes idle connections after some 20 s */
    BREAKER_WINDOW_MS = 10 * 1000,
    PROBE_EVERY_MS = 1000,
    THROTTLED_MS = 60 * 1000,
};

STEP_TABLE(keeper, KEEPER_STEPS)

/* ---- permits ---- */

static bool may_take(const struct origin *o, unsigned class_)
{
    return o->out < o->permits && (class_ < ASK_READAHEAD || o->prefetch_out < o->prefetch_permits);
}

static void count_out(struct origin *o, unsigned class_)
{
    o->out++;
    o->prefetch_out += class_ >= ASK_READAHEAD;
}

static void permit_arrived(struct permit *p)
{
    must(p->queued && !p->held && p->m->inflight > 0);
    p->queued = false;
    p->held = true;
    p->m->inflight--;
    machine_wake(p->m);
}

static void deliver_permit(struct core *c, struct message *msg)
{
    (void)c;
    permit_arrived(container_of(msg, struct permit, msg));
}

bool permit_ask(struct permit *p, struct origin *o, struct machine *m, enum ask_class class_)
{
    must(!p->queued && !p->held && class_ < ASK_CLASS_COUNT);
    *p = (struct permit){.msg.deliver = deliver_permit, .m = m, .origin = o,
        .class_ = (uint8_t)class_};
    pthread_mutex_lock(&o->lock);
    p->held = may_take(o, class_) && list_empty(&o->queue[class_]);
    if (p->held) {
        count_out(o, class_);
    } else {
        p->queued = true;
        o->queued++;
        m->inflight++;
        list_push(&o->queue[class_], &p->node);
    }
    pthread_mutex_unlock(&o->lock);
    return p->held;
}

bool permit_leave(struct permit *p)
{
    struct origin *o = p->origin;

    must(p->queued);
    pthread_mutex_lock(&o->lock);
    bool waits = node_linked(&p->node);
    if (waits) {
        node_remove(&p->node);
        o->queued--;
    }
    pthread_mutex_unlock(&o->lock);
    if (waits) {
        p->queued = false;
        p->m->inflight--;
    }
    return waits;
}

/* Under the lock: the next who may have a permit, counted as its holder; NULL if none. */
static struct permit *next_holder(struct origin *o)
{
    for (unsigned class_ = 0; class_ < ASK_CLASS_COUNT; class_++) {
        struct node *first = list_first(&o->queue[class_]);
        if (!first || !may_take(o, class_))
            continue;
        node_remove(first);
        o->queued--;
        count_out(o, class_);
        return container_of(first, struct permit, node);
    }
    return NULL;
}

void permit_give(struct permit *p)
{
    struct origin *o = p->origin;
    struct core *own = p->m->core;

    must(p->held && !p->queued);
    p->held = false;
    pthread_mutex_lock(&o->lock);
    must(o->out > 0);
    o->out--;
    o->prefetch_out -= p->class_ >= ASK_READAHEAD;
    struct permit *next = next_holder(o);
    pthread_mutex_unlock(&o->lock);
    if (!next)
        return;
    if (next->m->core == own)
        permit_arrived(next);
    else
        core_send(next->m->core, &next->msg);
}

/* ---- the breaker ---- */

bool origin_is_down(const struct origin *o)
{
    return atomic_load_explicit(&o->down, memory_order_relaxed);
}

bool origin_probe_due(const struct origin *o, uint64_t now_ms)
{
    return origin_is_down(o) &&
           now_ms >= atomic_load_explicit(&o->probe_at_ms, memory_order_relaxed);
}

bool origin_may_try(struct origin *o, uint64_t now_ms, bool *probe)
{
    *probe = false;
    if (!atomic_load_explicit(&o->down, memory_order_acquire))
        return true;
    uint64_t due = atomic_load_explicit(&o->probe_at_ms, memory_order_relaxed);
    *probe = now_ms >= due &&
        atomic_compare_exchange_strong(&o->probe_at_ms, &due, now_ms + PROBE_EVERY_MS);
    return *probe;
}

static void deliver_down(struct core *c, struct message *msg)
{
    struct origin_part *part = container_of(msg, struct origin_part, down_msg);
    (void)c;
    atomic_store_explicit(&part->down_sent, false, memory_order_release);
    errand_wake_all(part);
}

static void tell_cores(struct origin *o, struct core *own)
{
    const struct server *s = o->server;

    errand_wake_all(own->origin);
    for (unsigned i = 0; i < s->core_count && i < ORIGIN_CORES_MAX; i++) {
        struct origin_part *part = atomic_load(&o->part[i]);
        if (part && part->core != own && !atomic_exchange(&part->down_sent, true))
            core_send(part->core, &part->down_msg); /* parts and cores outlive all threads */
    }
}

void origin_failed(struct origin *o, struct core *c, enum err why)
{
    pthread_mutex_lock(&o->lock);
    for (unsigned i = BREAKER_FAILURES - 1; i > 0; i--)
        o->failed_ms[i] = o->failed_ms[i - 1];
    o->failed_ms[0] = c->now_ms;
    uint64_t oldest = o->failed_ms[BREAKER_FAILURES - 1];
    bool many = oldest != 0 && c->now_ms - min_u64(oldest, c->now_ms) <= BREAKER_WINDOW_MS;
    bool trips = many && !atomic_load_explicit(&o->down, memory_order_relaxed);
    if (trips) {
        atomic_store_explicit(&o->probe_at_ms, c->now_ms + PROBE_EVERY_MS, memory_order_relaxed);
        atomic_store_explicit(&o->down, true, memory_order_release);
    }
    pthread_mutex_unlock(&o->lock);
    if (!trips)
        return;
    metric_gauge_set(METRIC_UPSTREAM_UP, o->label, 0);
    log_event(EVENT_UPSTREAM_ERROR, "upstream=%s state=down error=%s",
              log_value(span_of(o->store_name)),
              log_value(span_of(err_text(why))));
    tell_cores(o, c);
}

void origin_worked(struct origin *o, uint64_t us)
{
    uint32_t old = atomic_load_explicit(&o->rtt_us, memory_order_relaxed);
    uint32_t now = (uint32_t)min_u64(us, UINT32_MAX);
    uint32_t smooth = old ? (uint32_t)(((uint64_t)old * 7 + now) / 8) : now;

    /* a lost update is one sample less */
    atomic_store_explicit(&o->rtt_us, smooth, memory_order_relaxed);
    if (!atomic_load_explicit(&o->down, memory_order_acquire))
        return;
    pthread_mutex_lock(&o->lock);
    bool rises = atomic_exchange(&o->down, false);
    memset(o->failed_ms, 0, sizeof(o->failed_ms));
    pthread_mutex_unlock(&o->lock);
    if (rises) {
        metric_gauge_set(METRIC_UPSTREAM_UP, o->label, 1);
        log_event(EVENT_UPSTREAM_ERROR, "upstream=%s state=up", log_value(span_of(o->store_name)));
    }
}

/* ---- regions ---- */

/* Under the lock. */
static struct region_entry *find_region(struct origin *o, struct span bucket)
{
    uint32_t count = atomic_load_explicit(&o->region_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count && i < REGION_ENTRIES_MAX; i++) {
        if (span_is(bucket, o->regions[i].bucket))
            return &o->regions[i];
    }
    return NULL;
}

void origin_region(struct origin *o, struct span bucket, char out[ORIGIN_REGION_BYTES])
{
    struct region_entry *e = NULL;

    if (atomic_load_explicit(&o->region_count, memory_order_acquire) > 0) {
        pthread_mutex_lock(&o->lock);
        e = find_region(o, bucket);
        if (e)
            memcpy(out, e->region, ORIGIN_REGION_BYTES);
        pthread_mutex_unlock(&o->lock);
    }
    if (!e)
        snprintf(out, ORIGIN_REGION_BYTES, "%s", o->region);
}

void origin_learn_region(struct origin *o, struct span bucket, struct span region)
{
    if (bucket.len == 0 || bucket.len > BUCKET_BYTES_MAX || !region_is_name(region))
        return;
    pthread_mutex_lock(&o->lock);
    struct region_entry *e = find_region(o, bucket);
    if (!e) {
        uint32_t count = atomic_load_explicit(&o->region_count, memory_order_relaxed);
        e = &o->regions[count % REGION_ENTRIES_MAX]; /* full: the oldest makes room */
        *e = (struct region_entry){{0}, {0}};
        memcpy(e->bucket, bucket.at, bucket.len);
        atomic_store_explicit(&o->region_count, count + 1, memory_order_release);
    }
    memset(e->region, 0, sizeof(e->region));
    memcpy(e->region, region.at, region.len);
    pthread_mutex_unlock(&o->lock);
}

/* ---- idle links ---- */

static void count_links(struct origin_part *part, int active, int idle)
{
    struct origin *o = part->origin;
    metric_gauge_add2(METRIC_UPSTREAM_CONNECTIONS, o->label, CONN_ACTIVE, active);
    metric_gauge_add2(METRIC_UPSTREAM_CONNECTIONS, o->label, CONN_IDLE, idle);
    atomic_fetch_add_explicit(&o->idle, (uint32_t)idle, memory_order_relaxed);
}

static void close_later(struct origin_part *part, struct link *l)
{
    list_push(&part->keeper.dying, &l->node);
    op_close(&part->keeper.m, &l->send, l->fd);
}

/* Does it say something, or goodbye, while nothing was asked? */
static bool speaks(const struct link *l)
{
    char byte;
    ssize_t n = recv(l->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static struct link *newest_idle(struct origin_part *part)
{
    struct node *n = list_pop(&part->idle);
    if (!n)
        return NULL;
    part->idle_count--;
    return container_of(n, struct link, node);
}

struct link *pool_link_take(struct origin_part *part)
{
    struct link *l;

    while ((l = newest_idle(part))) {
        if (!speaks(l)) {
            count_links(part, 1, -1);
            return l;
        }
        count_links(part, 0, -1);
        close_later(part, l);
    }
    return NULL;
}

void pool_link_keep(struct origin_part *part, struct link *l)
{
    if (part->idle_count >= IDLE_LINKS_MAX) {
        pool_link_bury(part, l);
        return;
    }
    l->idle_since_ms = part->core->now_ms;
    list_push_front(&part->idle, &l->node);
    if (part->idle_count++ == 0)
        timer_set(&part->keeper.timer, &part->keeper.m, IDLE_MS);
    count_links(part, -1, 1);
}

void pool_link_bury(struct origin_part *part, struct link *l)
{
    count_links(part, -1, 0);
    close_later(part, l);
}

/* Closes what idles too long, frees what is closed. Woken by its timer and by closes. */
static enum turn keeper_TEND(struct keeper *k)
{
    struct origin_part *part = container_of(k, struct origin_part, keeper);
    uint64_t now_ms = part->core->now_ms;

    LIST_EACH(&k->dying, struct link, node, l) {
        if (op_take(&l->send)) {
            node_remove(&l->node);
            link_free(part, l);
        }
    }
    while (!list_empty(&part->idle)) {
        struct link *oldest = container_of(part->idle.head.prev, struct link, node);
        uint64_t until_ms = oldest->idle_since_ms + IDLE_MS;
        if (until_ms > now_ms) {
            timer_set(&k->timer, &k->m, until_ms - now_ms);
            break;
        }
        node_remove(&oldest->node);
        part->idle_count--;
        count_links(part, 0, -1);
        close_later(part, oldest);
    }
    return WAIT;
}

static enum turn keeper_DRAIN(struct keeper *k)
{
    return k->m.inflight > 0 ? WAIT : GO(keeper, k, END);
}

static enum turn keeper_END(struct keeper *k)
{
    must(k->m.inflight == 0);
    return OVER;
}

static void keeper_over(struct machine *m)
{
    (void)m;                         /* lives inside its core's part */
}

/* ---- per core ---- */

enum err origin_core_begin(struct core *c)
{
    struct origin_part *part = mem_take(sizeof(*part));

    if (!part)
        return ERR_MEMORY;
    enum err e = sign_setup_thread();
    if (e != OK) {
        mem_give(part);
        return e;
    }
    part->origin = c->server->origin;
    part->core = c;
    part->down_msg.deliver = deliver_down;
    if (c->number < ORIGIN_CORES_MAX)
        atomic_store(&part->origin->part[c->number], part);
    stock_init(&part->errands, sizeof(struct errand), 1 << 16);
    stock_init(&part->sheets, sizeof(struct sheet), 1 << 13);
    stock_init(&part->links, sizeof(struct link), 1 << 13);
    stock_init(&part->dirs, dir_bytes(), 1 << 16);
    list_init(&part->idle);
    list_init(&part->errands_alive);
    list_init(&part->keeper.dying);
    c->origin = part;
    MACHINE_BEGIN(keeper, &part->keeper, c, keeper_over);
    return OK;
}

static void end_stock(struct stock *s)
{
    if (s->out == 0)                 /* a cut drain leaves some behind, the process ends */
        stock_fini(s);
}

void origin_core_end(struct core *c)
{
    struct origin_part *part = c->origin;
    struct node *n;

    timer_stop(&part->keeper.timer);
    while ((n = list_pop(&part->idle))) { /* no turn comes any more: plain closes */
        struct link *l = container_of(n, struct link, node);
        count_links(part, 0, -1);
        close(l->fd);
        link_free(part, l);
    }
    while ((n = list_pop(&part->keeper.dying))) { /* their closes are the kernel's already */
        struct link *l = container_of(n, struct link, node);
        l->send.busy = false;
        link_free(part, l);
    }
    end_stock(&part->errands);
    end_stock(&part->sheets);
    end_stock(&part->links);
    end_stock(&part->dirs);
    c->origin = NULL;                /* origin_close() frees it: other cores may still tell it */
    sign_end_thread();
}

/* ---- status ---- */

bool origin_is_directory(const struct origin *o)
{
    return o->endpoint.directory;
}

const char *origin_store_name(const struct origin *o)
{
    return o->store_name;
}

bool origin_key(const struct origin *o, struct span *access_key, const struct secret **secret)
{
    if (!o->creds || o->creds->token[0])
        return false;
    *access_key = span_of(o->creds->access_key);
    *secret = &o->creds->secret;
    return true;
}

void origin_status(struct origin *o, struct origin_status *out)
{
    uint64_t throttled_ms = atomic_load_explicit(&o->throttled_ms, memory_order_relaxed);
    struct origin_status s = {
        .endpoint = o->config->upstream_endpoint,
        .up = !atomic_load_explicit(&o->down, memory_order_relaxed),
        .throttled = throttled_ms != 0 &&
            clock_ms() - min_u64(throttled_ms, clock_ms()) < THROTTLED_MS,
        .rtt_ms = atomic_load_explicit(&o->rtt_us, memory_order_relaxed) / 1000.0,
        .idle = atomic_load_explicit(&o->idle, memory_order_relaxed),
    };
    pthread_mutex_lock(&o->lock);
    s.active = o->out;
    s.queued = o->queued;
    pthread_mutex_unlock(&o->lock);
    memcpy(s.warning, o->warning, sizeof(s.warning));
    *out = s;
}
