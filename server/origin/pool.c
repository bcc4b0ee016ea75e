/* The process's view of upstream: what was learnt, status, and each core's idle links.
 *
 * Invariants:
 *  1. An idle link has no op under way. It is looked at before it is used again: one that speaks
 *     unasked is dead, or would answer the next request with the wrong answer; one whose address
 *     the store has left leads to somebody else.
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
#include "payload.h"
#include "server/origin/inside.h"
#include "tls.h"
#include "xml.h"

enum {
    IDLE_LINKS_MAX = 32,             /* per core */
    IDLE_MS = 15 * 1000,             /* S3 closes idle connections after some 20 s */
    THROTTLED_MS = 60 * 1000,
};

STEP_TABLE(keeper, KEEPER_STEPS)

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

static bool is_good(const struct origin_part *part, struct link *l)
{
    return !speaks(l) && addresses_has(part->origin->addresses, &l->winner->to, &l->drops);
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
        if (is_good(part, l)) {
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

void pool_links_close(struct origin_part *part)
{
    struct node *n;

    while ((n = list_pop(&part->idle))) {
        part->idle_count--;
        count_links(part, 0, -1);
        close_later(part, container_of(n, struct link, node));
    }
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

static void begin_part(struct origin_part *part, struct core *c, struct origin *o)
{
    part->origin = o;
    part->core = c;
    part->down_msg.deliver = breaker_deliver;
    if (c->number < ORIGIN_CORES_MAX)
        atomic_store(&o->part[c->number], part);
    stock_init(&part->errands, sizeof(struct errand), 1 << 16);
    stock_init(&part->sheets, sizeof(struct sheet), 1 << 13);
    stock_init(&part->links, sizeof(struct link), 1 << 13);
    stock_init(&part->dirs, dir_bytes(), 1 << 16);
    list_init(&part->idle);
    list_init(&part->errands_alive);
    list_init(&part->keeper.dying);
    MACHINE_BEGIN(keeper, &part->keeper, c, keeper_over);
    prober_begin(&part->prober, c);
}

static enum err take_parts(struct origin_core *mine)
{
    for (unsigned i = 0; i < mine->count; i++)
        if (!(mine->part[i] = mem_take(sizeof(*mine->part[i]))))
            return ERR_MEMORY;
    TRY(sign_setup_thread());
    return xml_setup_thread();
}

enum err origin_core_begin(struct core *c)
{
    struct origin_core *mine = mem_take(sizeof(*mine));

    if (!mine)
        return ERR_MEMORY;
    mine->count = c->server->config->upstream_count;
    enum err e = take_parts(mine);
    for (unsigned i = 0; i < mine->count && e != OK; i++)
        mem_give(mine->part[i]);
    if (e != OK) {
        mem_give(mine);
        return e;
    }
    c->origin = mine;
    for (unsigned i = 0; i < mine->count; i++)
        begin_part(mine->part[i], c, c->server->origin[i]);
    return OK;
}

static void end_stock(struct stock *s)
{
    if (s->out == 0)                 /* a cut drain leaves some behind, the process ends */
        stock_fini(s);
}

void origin_tell_limits(const struct origin *o)
{
    uint32_t jobs = permits_most(o, ASK_PREFETCH);

    metric_gauge_set(METRIC_UPSTREAM_CONCURRENCY_LIMIT, o->label, throttle_limit(&o->throttle));
    metric_gauge_set(METRIC_UPSTREAM_PREFETCH_LIMIT, o->label,
                     min_u64(width_limit(&o->width), jobs));
}

void origin_core_renew(struct core *c)
{
    struct origin_core *mine = c->origin;

    for (unsigned i = 0; i < mine->count; i++) {
        struct origin *o = c->server->origin[i];
        explicit_bzero(&mine->part[i]->key, sizeof(mine->part[i]->key));
        throttle_set_most(&o->throttle, c->settings->config->upstream[i].connections);
        origin_tell_limits(o);
        permits_grown(o, c);
    }
}

bool origin_may_take(const struct origin *o, enum ask_class class_, uint64_t now_us,
                     uint64_t *wait_us)
{
    return throttle_may_take(&o->throttle, class_, now_us, wait_us);
}

void origin_took(struct origin *o, uint64_t rate, uint64_t bytes, uint64_t now_us)
{
    throttle_took(&o->throttle, rate, bytes, now_us);
}

void origin_came(const struct exchange *x, uint64_t bytes)
{
    const struct errand *e = x->private_;
    struct origin *o = x->origin;

    /* who was hurried behind his permit holds it as what it was asked for */
    if (o->endpoint.directory || !e || !permit_is_behind(&e->permit))
        return;
    uint32_t most = permits_most(o, ASK_PREFETCH);
    if (!width_took(&o->width, bytes, permits_awaited(o), most, x->m.core->now_us))
        return;
    origin_tell_limits(o);
    permits_grown(o, x->m.core);
}

static void end_part(struct origin_part *part)
{
    struct node *n;

    timer_stop(&part->keeper.timer);
    timer_stop(&part->prober.timer);
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
}

/* The parts are origin_close()'s to free: other cores may still tell them. */
void origin_core_end(struct core *c)
{
    struct origin_core *mine = c->origin;

    for (unsigned i = 0; i < mine->count; i++)
        end_part(mine->part[i]);
    mem_give(mine);
    c->origin = NULL;
    sign_end_thread();
}

/* ---- status ---- */

void origin_payload(const struct origin *o, const struct config *conf,
                    struct payload_upstream *out)
{
    enum { TRAILERS_AUTO, TRAILERS_ON, TRAILERS_OFF };
    uint32_t trailers = conf->upstream[o->number].trailers;
    out->trailers =
        trailers == TRAILERS_ON || (trailers == TRAILERS_AUTO && o->endpoint.amazon);
    out->tls = o->endpoint.tls;
}

bool origin_is_directory(const struct origin *o)
{
    return o->endpoint.directory;
}

const char *origin_store_name(const struct origin *o)
{
    return o->store_name;
}

unsigned origin_label(const struct origin *o)
{
    return o->label;
}

static void status_of_creds(struct origin *o, struct origin_status *s)
{
    struct settings *settings = settings_hold(o->server);
    const struct creds *creds = settings_creds(settings, o->number);
    if (creds) {
        snprintf(s->credentials, sizeof(s->credentials), "%s", creds->source);
        s->temporary = creds->token[0] != '\0';
        s->renewed = creds->renewed;
        s->expire_s = creds->expire_s;
    }
    settings_drop(settings);
    if (o->endpoint.directory)
        return;
    struct refresher_status refresh;
    refresher_status(o->server->refresher, o->config->profile, &refresh);
    memcpy(s->credentials_error, refresh.error, sizeof(s->credentials_error));
    s->credentials_failed_s = refresh.failed_s;
}

void origin_status(struct origin *o, struct origin_status *out)
{
    uint64_t now_ms = clock_ms();
    uint64_t throttled_ms = atomic_load_explicit(&o->throttled_ms, memory_order_relaxed);
    struct origin_status s = {
        .name = o->store_name,
        .endpoint = o->config->endpoint,
        .label = o->label,
        .up = !origin_is_down(o),
        .throttled = throttled_ms != 0 && now_ms - min_u64(throttled_ms, now_ms) < THROTTLED_MS,
        .rtt_ms = atomic_load_explicit(&o->rtt_us, memory_order_relaxed) / 1000.0,
        .idle = atomic_load_explicit(&o->idle, memory_order_relaxed),
        .limit = throttle_limit(&o->throttle),
        .connections = atomic_load(&o->throttle.most),
        .directory = o->endpoint.directory,
        .tls_minor = atomic_load_explicit(&o->tls_minor, memory_order_relaxed),
        .certificate_ends_s = atomic_load_explicit(&o->certificate_ends_s, memory_order_relaxed),
        .gets = (uint8_t)origin_right(&o->gets),
        .lists = (uint8_t)origin_right(&o->lists),
    };
    if (!s.up)
        s.down_ms = now_ms - min_u64(atomic_load(&o->down_ms), now_ms);
    int64_t offset_s = atomic_load_explicit(&o->clock_seen_s, memory_order_relaxed);
    s.clock_known = offset_s != CLOCK_UNKNOWN;
    s.clock_offset_s = s.clock_known ? offset_s : 0;
    status_of_creds(o, &s);
    permits_status(o, &s.active, &s.queued);
    memcpy(s.warning, o->warning, sizeof(s.warning));
    *out = s;
}
