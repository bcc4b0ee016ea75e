/* Whether upstream is there: the breaker, and the MACHINE prober that asks while it is not.
 *
 * Invariants:
 *  1. Down after BREAKER_FAILURES failures within BREAKER_WINDOW_MS and no answer in between. An
 *     answer forgives what was before it, whatever its status: an upstream that answers 503 to all
 *     is throttled, not down, and one bad address among good ones trips nothing.
 *  2. While upstream is down nobody waits: requests fail at once, those queued are woken to fail,
 *     those whose answer is awaited get the connect deadline instead of the read deadline. Idle
 *     links are closed: most are dead.
 *  3. Who asks meanwhile is the prober, once a second, on the core where it tripped. No client's
 *     request is ever a probe: it could wait for a whole deadline.
 *  4. Up again with the first answer that is not an error of the store's (500, 502, 503, 504, 429):
 *     a balancer without a backend does not make it well.
 *
 * Life: the prober is begun and abandoned with its core; between two times down it sleeps. Probes
 * are exchanges without a permit and without retries, unsigned while our own credentials cannot be
 * used (ask.c); one more is begun each second, at most
 * PROBES_MAX run, the oldest makes room.
 * Failure: a probe that fails says nothing new, and is not logged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/origin/inside.h"

enum { BREAKER_WINDOW_MS = 10 * 1000, PROBE_EVERY_MS = 1000 };

STEP_TABLE(prober, PROBER_STEPS)

bool origin_is_down(const struct origin *o)
{
    return atomic_load_explicit(&o->down, memory_order_acquire);
}

/* ---- tripping ---- */

/* On the core of the part. */
static void hear_down(struct origin_part *part)
{
    if (!origin_is_down(part->origin))
        return;
    pool_links_close(part);
    errand_wake_all(part);
    machine_wake(&part->prober.m);
}

void breaker_deliver(struct core *c, struct message *msg)
{
    struct origin_part *part = container_of(msg, struct origin_part, down_msg);
    (void)c;
    /* an exchange, as who finds it set sends nothing: then we see that it is down, again */
    atomic_exchange(&part->down_sent, false);
    hear_down(part);
}

static void tell_cores(struct origin *o, struct core *own)
{
    const struct server *s = o->server;

    hear_down(origin_part(own, o->number));
    for (unsigned i = 0; i < s->core_count && i < ORIGIN_CORES_MAX; i++) {
        struct origin_part *part = atomic_load(&o->part[i]);
        if (part && part->core != own && !atomic_exchange(&part->down_sent, true))
            core_send(part->core, &part->down_msg); /* parts and cores outlive all threads */
    }
}

/* What the probes will ask for: what a request asked in vain, as its answer is what is missed; and
 * its bucket in turn, as it may be this very key that upstream dies of. */
static void set_target(struct probe_target *t, const struct ask *ask)
{
    struct text bucket, key;

    text_init(&bucket, t->bucket, sizeof(t->bucket));
    text_init(&key, t->key, sizeof(t->key));
    text_add(&bucket, ask->bucket);
    text_add(&key, ask->key);
    t->bucket_len = bucket.over ? 0 : bucket.len;
    t->key_len = bucket.over || key.over ? 0 : key.len;
}

void origin_failed(struct origin *o, struct core *c, const struct ask *ask, enum err why)
{
    pthread_mutex_lock(&o->lock);
    for (unsigned i = BREAKER_FAILURES - 1; i > 0; i--)
        o->failed_ms[i] = o->failed_ms[i - 1];
    o->failed_ms[0] = c->now_ms;
    atomic_store_explicit(&o->failing, true, memory_order_relaxed);
    uint64_t oldest = o->failed_ms[BREAKER_FAILURES - 1];
    bool many = oldest != 0 && c->now_ms - min_u64(oldest, c->now_ms) <= BREAKER_WINDOW_MS;
    bool trips = many && !origin_is_down(o);
    if (trips) {
        set_target(&o->target, ask);
        atomic_store(&o->down_ms, c->now_ms);
        atomic_store(&o->prober, c->number);
        atomic_store_explicit(&o->down, true, memory_order_release);
        metric_gauge_set(METRIC_UPSTREAM_UP, o->label, 0); /* here: no answer comes between */
    }
    pthread_mutex_unlock(&o->lock);
    if (!trips)
        return;
    log_event(EVENT_UPSTREAM_DOWN, "upstream=%s error=%s offline=%s",
              log_value(span_of(o->store_name)), log_value(span_of(err_text(why))),
              origin_config(o, c)->offline == CONF_OFFLINE_SERVE ? "serve" : "fail");
    tell_cores(o, c);
}

/* ---- answers ---- */

static void note_rtt(struct origin *o, uint64_t us)
{
    uint32_t old = atomic_load_explicit(&o->rtt_us, memory_order_relaxed);
    uint32_t now = (uint32_t)min_u64(us, UINT32_MAX);
    uint32_t smooth = old ? (uint32_t)(((uint64_t)old * 7 + now) / 8) : now;

    /* a lost update is one sample less */
    atomic_store_explicit(&o->rtt_us, smooth, memory_order_relaxed);
}

static void forgive(struct origin *o, struct core *c, bool well)
{
    uint64_t since_ms = atomic_load(&o->down_ms);

    pthread_mutex_lock(&o->lock);
    memset(o->failed_ms, 0, sizeof(o->failed_ms));
    atomic_store_explicit(&o->failing, false, memory_order_relaxed);
    bool rises = well && atomic_exchange(&o->down, false);
    if (rises)
        metric_gauge_set(METRIC_UPSTREAM_UP, o->label, 1);
    pthread_mutex_unlock(&o->lock);
    if (!rises)
        return;
    log_event(EVENT_UPSTREAM_UP, "upstream=%s after_ms=%llu", log_value(span_of(o->store_name)),
              (unsigned long long)(c->now_ms - min_u64(since_ms, c->now_ms)));
}

static void note_slow(struct origin *o, const struct answer_seen *a, uint64_t now_us)
{
    uint32_t from, to;

    atomic_store_explicit(&o->throttled_ms, now_us / 1000, memory_order_relaxed);
    if (!throttle_slowed(&o->throttle, a->sent_us, now_us, &from, &to))
        return;
    origin_tell_limits(o);
    log_event(EVENT_UPSTREAM_SLOWDOWN, "upstream=%s status=%u concurrency=%u->%u",
              log_value(span_of(o->store_name)), a->status, from, to);
}

bool status_is_slow(unsigned status)
{
    return status == 503 || status == 429;
}

bool status_is_transient(unsigned status)
{
    return status_is_slow(status) || status == 500 || status == 502 || status == 504;
}

void origin_answered(struct origin *o, struct core *c, const struct answer_seen *a)
{
    bool well = !status_is_transient(a->status);

    note_rtt(o, c->now_us - min_u64(a->sent_us, c->now_us));
    if (status_is_slow(a->status)) {
        note_slow(o, a, c->now_us);
    } else if (well && throttle_worked(&o->throttle)) {
        origin_tell_limits(o);
        permits_grown(o, c);
    }
    if (atomic_load_explicit(&o->failing, memory_order_relaxed) || (well && origin_is_down(o)))
        forgive(o, c, well);
}

/* ---- the prober ---- */

/* Ends those that have their answer, or all. True: none is left. */
static bool reap(struct prober *p, bool all)
{
    bool none = true;

    for (unsigned i = 0; i < PROBES_MAX; i++) {
        struct probe *one = &p->probe[i];
        if (one->busy && one->x.over)
            one->busy = false;
        if (one->busy && !one->x.ending && (all || one->x.failed || one->x.head_known))
            exchange_end(&one->x);
        none = none && !one->busy;
    }
    return none;
}

static struct origin *origin_of(struct prober *p)
{
    return container_of(p, struct origin_part, prober)->origin;
}

/* Down, and this core is the one that asks? */
static bool is_needed(struct prober *p)
{
    const struct origin *o = origin_of(p);
    return !p->draining && origin_is_down(o) && atomic_load(&o->prober) == p->m.core->number;
}

static void take_target(struct prober *p)
{
    struct origin *o = origin_of(p);

    pthread_mutex_lock(&o->lock);
    p->target = o->target;
    pthread_mutex_unlock(&o->lock);
    struct span bucket = span_make(p->target.bucket, p->target.bucket_len);
    struct ask of_bucket = {.method = bucket.len > 0 ? HTTP_HEAD : HTTP_GET, /* S3: no HEAD / */
                            .op = bucket.len > 0 ? OP_HEAD : OP_LIST,
                            .purpose = PURPOSE_REVALIDATE, .class_ = ASK_REVALIDATE,
                            .probe = true, .bucket = bucket,
                            .upstream = (uint8_t)o->number};
    p->ask[0] = p->ask[1] = of_bucket;
    p->ask[0].key = span_make(p->target.key, p->target.key_len);
}

/* One more; none while the oldest still ends. */
static void begin_probe(struct prober *p)
{
    struct origin *o = origin_of(p);
    struct probe *one = &p->probe[p->next % PROBES_MAX];

    addresses_refresh(o->addresses); /* it may have moved */
    if (one->busy) {
        if (!one->x.ending)
            exchange_end(&one->x);
        return;
    }
    const struct ask *ask = &p->ask[p->next++ % ARRAY_COUNT(p->ask)];
    one->busy = true;
    metric_add(p->m.core->metrics, METRIC_UPSTREAM_PROBES_TOTAL, o->label, 1);
    exchange_begin(&one->x, p->m.core, ask, &p->m);
}

/* Upstream is there, or another core asks. */
static enum turn prober_SLEEP(struct prober *p)
{
    timer_stop(&p->timer);
    if (!reap(p, true) || !is_needed(p)) /* the ask of those that end is still read */
        return WAIT;
    take_target(p);
    timer_set(&p->timer, &p->m, PROBE_EVERY_MS);
    return GO(prober, p, PROBE);
}

/* Down: one probe a second. Woken by the timer, by probes, by the end of the core. */
static enum turn prober_PROBE(struct prober *p)
{
    if (!is_needed(p))
        return GO(prober, p, SLEEP);
    reap(p, false);
    if (timer_take(&p->timer)) {
        begin_probe(p);
        timer_set(&p->timer, &p->m, PROBE_EVERY_MS);
    }
    return WAIT;
}

static enum turn prober_DRAIN(struct prober *p)
{
    return reap(p, true) && p->m.inflight == 0 ? GO(prober, p, END) : WAIT;
}

static enum turn prober_END(struct prober *p)
{
    must(p->m.inflight == 0);
    return OVER;
}

static void prober_over(struct machine *m)
{
    (void)m;                         /* lives inside its core's part */
}

void prober_begin(struct prober *p, struct core *c)
{
    MACHINE_BEGIN(prober, p, c, prober_over);
}

void origin_core_drain(struct core *c)
{
    struct origin_core *mine = c->origin;

    for (unsigned i = 0; i < mine->count; i++) {
        struct prober *p = &mine->part[i]->prober;
        p->draining = true;
        machine_wake(&p->m);
    }
}

bool origin_core_idle(const struct core *c)
{
    const struct origin_core *mine = c->origin;
    bool none = true;

    for (unsigned i = 0; i < mine->count; i++)
        for (unsigned k = 0; k < PROBES_MAX; k++)
            none = none && !mine->part[i]->prober.probe[k].busy;
    return none;
}
