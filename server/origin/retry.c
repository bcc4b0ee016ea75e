/* Whether, when and at whose cost an exchange's request is sent again.
 *
 * Invariants:
 *  1. Every retry is paid for from the budget that all requests share; who cannot pay hears the
 *     failure as it is.
 *  2. Pauses are jittered, also behind a Retry-After, so that many who failed together do not come
 *     back together; Retry-After is obeyed up to PAUSE_MS_MAX.
 *  3. Until upstream has shown itself, all tries of an exchange share one connect deadline.
 *  4. What was sent is sent again only if doing it twice is the same as doing it once (RFC 9110
 *     9.2.2), and if its bytes are still there: of a streamed body none may have left. As long as
 *     none has, upstream cannot have done anything, so then the method does not matter.
 *  5. Who is patient has waited long: he is repeated once, and what he met is no outage. A peer
 *     that is gone is found sooner by the kernel (link.c).
 *
 * Life: steps of exchange.c ask. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf.h"
#include "server/origin/inside.h"

enum {
    PAUSE_MS = 50,
    PAUSE_MS_MAX = 5000,
    PATIENT_TIMES = 4,               /* of 15 s: a minute, as botocore waits for an answer */
};

static const struct conf_upstream *config_of(const struct exchange *x)
{
    return origin_config(x->origin, x->m.core);
}

bool errand_may_repeat(const struct exchange *x)
{
    const struct errand *e = x->private_;
    const struct ask *a = x->ask;

    if (upload_streams(a))
        return !e->upload.left;
    return !e->sent || (a->method != HTTP_POST && !a->once);
}

uint64_t errand_pause_ms(const struct exchange *x, uint64_t asked_ms)
{
    const struct errand *e = x->private_;
    uint64_t bound = min_u64((uint64_t)PAUSE_MS << min_u64(e->tries, 16), PAUSE_MS_MAX);
    return asked_ms + 1 + random_u64() % bound;
}

static enum label_retry reason_of(const struct exchange *x, enum err why)
{
    const struct errand *e = x->private_;

    switch (why) {
    case ERR_UPSTREAM_TIMEOUT: return RETRY_TIMEOUT;
    case ERR_UPSTREAM_SHORT: return RETRY_SHORT;
    case ERR_UPSTREAM_STATUS:
        return status_is_slow(e->sheet->head.status) ? RETRY_SLOWDOWN : RETRY_STATUS;
    default: return RETRY_RESET;
    }
}

bool errand_may_retry(struct exchange *x, enum err why)
{
    struct errand *e = x->private_;
    bool awaited = x->ask->class_ < ASK_READAHEAD;

    if (e->tries >= config_of(x)->retries || x->ask->probe || !errand_may_repeat(x))
        return false;
    if (e->slow && e->was_slow)
        return false;
    e->was_slow = e->was_slow || e->slow;
    bool paid = throttle_may_retry(&x->origin->throttle, awaited);
    metric_add3(x->m.core->metrics,
                paid ? METRIC_UPSTREAM_RETRIES_TOTAL : METRIC_UPSTREAM_RETRIES_DENIED_TOTAL,
                x->origin->label, reason_of(x, why), 0, 1);
    e->tries += paid;
    return paid;
}

bool errand_retries_status(struct exchange *x)
{
    struct errand *e = x->private_;
    uint64_t now_s = x->date_s ? x->date_s : x->m.core->wall_s;
    struct span field = http_find(&e->sheet->head, "retry-after");
    uint64_t pause_ms = errand_pause_ms(x, retry_after_ms(field, now_s, PAUSE_MS_MAX));

    if (!errand_may_retry(x, ERR_UPSTREAM_STATUS))
        return false;
    e->last = ERR_UPSTREAM_STATUS;
    e->pause_ms = pause_ms;
    return true;
}

/* A new connection that is closed before a byte came counts, too: so fail ports that something else
 * holds open for a store that is gone. */
bool errand_met_nobody(const struct errand *e, enum err why)
{
    bool mute = e->in_len == 0 && e->informational == 0;
    bool closed = why == ERR_UPSTREAM_RESET && e->link && e->link->answers == 0 && mute;
    return closed || why == ERR_UPSTREAM_CONNECT || why == ERR_UPSTREAM_DNS ||
           why == ERR_UPSTREAM_TLS || (why == ERR_UPSTREAM_TIMEOUT && !e->slow);
}

void errand_blame(struct exchange *x, enum err why)
{
    const struct errand *e = x->private_;
    struct core *c = x->m.core;

    if (e->link && e->link->winner)
        addresses_judge(x->origin->addresses, &e->link->winner->to, false, c->now_ms);
    if (!e->sent)
        addresses_refresh(x->origin->addresses); /* nobody is there: the name may lead elsewhere */
    origin_failed(x->origin, c, x->ask, why);
}

uint64_t errand_dial_left_ms(const struct exchange *x, bool silent)
{
    const struct errand *e = x->private_;
    const struct core *c = x->m.core;
    uint64_t most_ms = config_of(x)->connect_timeout, next_ms = c->now_ms + e->pause_ms;
    bool waited = e->sent && c->now_us - min_u64(e->asked_us, c->now_us) >= most_ms * 1000;

    if (!silent || waited)           /* it showed itself, or took the request and kept silent */
        return most_ms;
    return e->dial_by_ms - min_u64(next_ms, e->dial_by_ms);
}

uint64_t errand_answer_ms(const struct exchange *x)
{
    uint64_t read_ms = config_of(x)->read_timeout;

    if (x->ask->patient)
        return read_ms * PATIENT_TIMES;
    return x->ask->answer_ms ? x->ask->answer_ms : read_ms;
}
