/* What an exchange tells others: metrics, log lines, and what its answers teach about upstream's
 * clock, its regions, and whether it says 100.
 *
 * Invariants:
 *  1. Every exchange that fails is counted once under upstream_errors_total, by why; so is every
 *     answer that its owner refuses. An upstream that is known to be down was counted when it went.
 *  2. From an answer only four things are learnt, a region's name, a clock, whether it is worth
 *     waiting for a 100, and what our credentials may: nothing of it can choose whom we talk to.
 *
 * Life: called by the exchange's own steps, on its core; owners call exchange_refuse().
 * Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "log.h"
#include "server/origin/inside.h"

enum { SKEW_S_MIN = 240 };           /* S3 refuses 900; a smaller one is no reason to ask again */
/* A store may have been too slow for its 100, which it may leave out once the body comes. */
static const uint64_t MUTE_US = 10 * 60 * 1000000ull;

/* ---- counting ---- */

void exchange_count_request(struct exchange *x, enum label_code code)
{
    metric_add3(x->m.core->metrics, METRIC_UPSTREAM_REQUESTS_TOTAL, x->origin->label, x->ask->op,
                code, 1);
}

static enum label_code code_of(unsigned status)
{
    if (status == 304)
        return CODE_304;
    return status < 300 ? CODE_2XX : status < 500 ? CODE_4XX : CODE_5XX;
}

/* Some keys or buckets may be refused to credentials that are good for all others. */
enum { REFUSED_IN_A_ROW = 20 };

enum origin_right origin_right(const struct origin_rights *r)
{
    bool allowed = atomic_load_explicit(&r->allowed, memory_order_relaxed);
    uint32_t refused = atomic_load_explicit(&r->refused, memory_order_relaxed);

    if (refused >= (allowed ? REFUSED_IN_A_ROW : 1))
        return RIGHT_REFUSED;
    return allowed ? RIGHT_ALLOWED : RIGHT_UNKNOWN;
}

static void learn_right(const struct exchange *x, unsigned status)
{
    const struct ask *a = x->ask;
    struct origin_rights *r = a->op == OP_LIST ? &x->origin->lists : &x->origin->gets;
    bool about = a->op == OP_LIST ? a->bucket.len > 0 : a->op == OP_GET;

    if (!about || a->profile > 0)
        return;
    if (status / 100 == 2) {
        atomic_store_explicit(&r->allowed, true, memory_order_relaxed);
        atomic_store_explicit(&r->refused, 0, memory_order_relaxed);
    } else if (status == 401 || status == 403) {
        atomic_fetch_add_explicit(&r->refused, 1, memory_order_relaxed);
    }
}

void exchange_count_answer(struct exchange *x)
{
    struct errand *e = x->private_;
    uint64_t us = x->m.core->now_us - min_u64(e->out_us, x->m.core->now_us);

    e->answered = true;
    exchange_count_request(x, code_of(e->sheet->head.status));
    metric_observe(x->m.core->metrics, METRIC_UPSTREAM_SECONDS, x->origin->label, x->ask->op, us);
    origin_answered(x->origin, x->m.core,
                    &(struct answer_seen){e->sheet->head.status, e->asked_us});
    e->link->answers++;
    learn_right(x, e->sheet->head.status);
}

static void count_error(struct exchange *x, enum label_broken kind)
{
    metric_add3(x->m.core->metrics, METRIC_UPSTREAM_ERRORS_TOTAL, x->origin->label, kind, 0, 1);
}

/* ---- failures ---- */

static bool broken_kind(enum err why, enum label_broken *out)
{
    switch (why) {
    case ERR_UPSTREAM_DNS: *out = BROKEN_DNS; return true;
    case ERR_UPSTREAM_CONNECT: *out = BROKEN_CONNECT; return true;
    case ERR_UPSTREAM_TLS: *out = BROKEN_TLS; return true;
    case ERR_UPSTREAM_TIMEOUT: *out = BROKEN_TIMEOUT; return true;
    case ERR_UPSTREAM_RESET: *out = BROKEN_RESET; return true;
    case ERR_UPSTREAM_SHORT: *out = BROKEN_SHORT; return true;
    case ERR_UPSTREAM_PROTOCOL: *out = BROKEN_PROTOCOL; return true;
    default: return false;           /* a limit of ours, or an answer after all */
    }
}

void exchange_tell_failure(struct exchange *x)
{
    const struct errand *e = x->private_;
    enum label_broken kind;

    if (x->m.why == ERR_UPSTREAM_DOWN || x->ask->probe)
        return;                      /* told when it went down */
    if (broken_kind(x->m.why, &kind))
        count_error(x, kind);
    log_event(EVENT_UPSTREAM_ERROR,
              "upstream=%s error=%s detail=%s method=%s bucket=%s key=%s retries=%u",
              log_value(span_of(x->origin->store_name)), log_value(span_of(err_text(x->m.why))),
              log_value(span_of(e ? e->detail : "")), http_method_text(x->ask->method),
              log_value(x->ask->bucket),
              log_value(x->ask->key), e ? (unsigned)e->tries : 0);
}

void exchange_log_refusal(struct exchange *x, const char *what)
{
    log_event(EVENT_UPSTREAM_ANSWER, "upstream=%s bucket=%s key=%s reason=%s",
              log_value(span_of(x->origin->store_name)),
              log_value(x->ask->bucket), log_value(x->ask->key), log_value(span_of(what)));
}

void exchange_refuse(struct exchange *x, const char *what)
{
    count_error(x, BROKEN_ANSWER);
    exchange_log_refusal(x, what);
}

/* ---- learning ---- */

bool exchange_learn_clock(struct exchange *x)
{
    struct errand *e = x->private_;
    struct origin *o = x->origin;
    int64_t known = atomic_load_explicit(&o->clock_offset_s, memory_order_relaxed);
    int64_t offset = (int64_t)x->date_s - (int64_t)(x->sent_wall_ms / 1000);

    bool signed_ =
        x->ask->profile > 0 || settings_creds(x->m.core->settings, x->origin->number) != NULL;
    if (e->clock_learnt || !signed_ || x->date_s == 0 || llabs(offset - known) < SKEW_S_MIN)
        return false;
    e->clock_learnt = true;
    atomic_store_explicit(&o->clock_offset_s, offset, memory_order_relaxed);
    log_event(EVENT_CREDENTIALS, "upstream=%s clock_offset_s=%lld fix=%s",
              log_value(span_of(o->store_name)), (long long)offset,
              log_value(span_of("set this host's clock; requests carry upstream's time")));
    return true;
}

bool origin_is_mute(const struct exchange *x)
{
    uint64_t until = atomic_load_explicit(&x->origin->mute_until_us, memory_order_relaxed);

    return x->m.core->now_us < until;
}

void exchange_learn_mute(struct exchange *x)
{
    const struct errand *e = x->private_;
    bool took = e->sheet->head.status / 100 == 2 && upload_whole(x);

    if (upload_expects(x) && (e->upload.go || (e->upload.unheard && took)))
        atomic_store_explicit(&x->origin->mute_until_us,
                              e->upload.go ? 0 : x->m.core->now_us + MUTE_US, memory_order_relaxed);
}

bool exchange_learn_region(struct exchange *x, struct span region)
{
    struct errand *e = x->private_;

    if (e->region_learnt || x->ask->bucket.len == 0 || !region_is_name(region) ||
        span_is(region, e->region))
        return false;
    e->region_learnt = true;
    origin_learn_region(x->origin, x->ask->bucket, region);
    return true;
}
