/* MACHINE exchange: permit -> link -> signed request [-> its body] -> head -> body -> back.
 *
 * Invariants:
 *  1. A permit is held from LINK until the link is given back; during a pause between two tries
 *     none is. Probes need none.
 *  2. The owner hears of a head or of a failure exactly once, and of a failure only when no op
 *     touches his memory any more.
 *  3. Only what is safe is sent again (retry.c): any request that never left, idempotent ones once
 *     they did, none of which a byte of a streamed body left.
 *  4. head's spans point into the sheet, which lives until over; body bytes of a chunked answer
 *     never pass over it.
 *  5. All tries together get one connect deadline, until upstream has shown that it is there: a
 *     request fails within it, not within (retries + 1) times it.
 *  6. While a body goes out, what comes in is read: an answer that comes early ends the sending
 *     (HALT), and then the link is of no further use.
 *
 * Life: PERMIT..HEAD is one try; JUDGE reports, or learns (LEARN), or throws the answer away
 * (THROW) and tries again (PAUSE). BODY serves reads; when the last byte was delivered the link
 * goes back at once and REST waits for exchange_end().
 *
 * Failure: before the head after all retries, or in the body: DRAIN drops the link and tells the
 * owner, then waits for his exchange_end(). The first error stays in m.why. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "conf.h"
#include "log.h"
#include "server/origin/inside.h"
#include "xml.h"

#define EXCHANGE_STEPS(S)                                                                          \
    S(exchange, PERMIT) S(exchange, QUEUE) S(exchange, LINK) S(exchange, DIAL) S(exchange, SHAKE)  \
    S(exchange, ASK) S(exchange, SEND) S(exchange, EXPECT) S(exchange, UPLOAD) S(exchange, HALT)   \
    S(exchange, HEAD) S(exchange, JUDGE) S(exchange, LEARN) S(exchange, THROW) S(exchange, DROP)   \
    S(exchange, PAUSE) S(exchange, BODY) S(exchange, GIVE) S(exchange, REST) S(exchange, DRAIN)    \
    S(exchange, END)
STEP_TABLE(exchange, EXCHANGE_STEPS)

enum {
    THROW_BYTES_MAX = 64 * KIB,      /* more of it costs more than a new connection */
    EXPECT_MS = 1000,                /* as long as the AWS SDKs wait for a 100 */
};

static struct origin_part *part_of(const struct exchange *x)
{
    return origin_part(x->m.core, x->origin->number);
}

static const struct conf_upstream *config_of(const struct exchange *x)
{
    return origin_config(x->origin, x->m.core);
}

/* ---- begin, read, end ---- */

static void exchange_over(struct machine *m)
{
    struct exchange *x = (struct exchange *)(void *)m;
    struct errand *e = x->private_;

    if (e) {
        must(!e->link && !e->permit.held && !e->permit.queued);
        node_remove(&e->node);
        if (e->sheet)
            stock_give(&part_of(x)->sheets, e->sheet);
        stock_give(&part_of(x)->errands, e);
    }
    x->head = NULL;
    x->m.detail = NULL;
    x->private_ = NULL;
    x->over = true;
    must(x->owner->inflight > 0);
    x->owner->inflight--;
    machine_wake(x->owner);
}

void exchange_begin(struct exchange *x, struct core *c, const struct ask *ask,
                    struct machine *owner)
{
    struct origin_part *part = origin_part(c, ask->upstream);

    *x = (struct exchange){.owner = owner, .origin = part->origin, .ask = ask};
    owner->inflight++;
    if (part->origin->endpoint.directory) {
        dir_begin(x, c);
        return;
    }
    struct errand *e = stock_take(&part->errands);
    if (e) {
        e->x = x;
        list_push(&part->errands_alive, &e->node);
    }
    MACHINE_BEGIN(exchange, x, c, exchange_over);
    x->private_ = e;
    x->runner = &x->m;
}

void exchange_read(struct exchange *x, void *mem, uint32_t len)
{
    must(x->head_known && !x->reading && !x->ending);
    x->reading = true;
    x->some = false;
    x->read_got = 0;
    x->mem = mem;
    x->len = len;
    machine_wake(x->runner);
}

void exchange_read_some(struct exchange *x, void *mem, uint32_t len)
{
    exchange_read(x, mem, len);
    x->some = true;
}

void exchange_end(struct exchange *x)
{
    must(!x->ending && !x->over);
    x->ending = true;
    machine_wake(x->runner);
}

void exchange_hurry(struct exchange *x)
{
    struct errand *e = x->private_;

    if (e && !x->origin->endpoint.directory)
        permit_hurry(&e->permit, x->ask->class_);
}

bool exchange_is_queued(const struct exchange *x)
{
    const struct errand *e = x->private_;

    return e && !x->origin->endpoint.directory && e->permit.queued;
}

void errand_wake_all(struct origin_part *part)
{
    LIST_EACH(&part->errands_alive, struct errand, node, e)
        machine_wake(&e->x->m);
}

/* ---- tries and failures ---- */

/* Drops the link, then goes on at `step`. */
static enum turn drop_then(struct exchange *x, uint8_t step)
{
    struct errand *e = x->private_;
    e->after = step;
    return GO(exchange, x, DROP);
}

static bool drop_link(struct exchange *x)
{
    struct errand *e = x->private_;

    if (!e->link)
        return true;
    if (!link_settle(e->link, &x->m))
        return false;
    if (e->sent && !upload_whole(x))
        link_tear(e->link);
    pool_link_bury(part_of(x), e->link);
    e->link = NULL;
    return true;
}

/* Upstream is down, and it is not for this one to find out whether it still is. */
static bool is_hopeless(const struct exchange *x)
{
    return origin_is_down(x->origin) && !x->ask->probe;
}

static void keep_detail(struct errand *e, const char *detail)
{
    snprintf(e->detail, sizeof(e->detail), "%s", detail ? detail : "");
}

/* The try failed before its head could be reported: once more, or for good. */
static enum turn missed(struct exchange *x, enum err why)
{
    struct errand *e = x->private_;
    bool silent = errand_met_nobody(e, why);

    timer_stop(&e->deadline);
    if (e->sent && !e->answered)
        exchange_count_request(x, CODE_ABORTED);
    if (silent)
        errand_blame(x, why);
    e->last = why;
    e->pause_ms = errand_pause_ms(x, 0);
    e->dial_left_ms = errand_dial_left_ms(x, silent);
    bool hopeless = is_hopeless(x) || why == ERR_UPSTREAM_PROTOCOL || why == ERR_MEMORY;
    if (hopeless || e->dial_left_ms == 0 || !errand_may_retry(x, why))
        return machine_fail(&x->m, why, e->detail);
    return drop_then(x, AT_exchange_PAUSE);
}

/* A kept connection that was closed meanwhile fails like this; it says nothing about upstream. So
 * does one on which more came than the answer before had announced: that is no answer to us. */
static enum turn missed_stale(struct exchange *x, enum err why)
{
    struct errand *e = x->private_;
    bool closed = e->in_len == 0 && why == ERR_UPSTREAM_RESET;
    bool stale = e->link->answers > 0 && (closed || why == ERR_UPSTREAM_PROTOCOL) &&
        errand_may_repeat(x);

    if (!stale)
        return missed(x, why);
    timer_stop(&e->deadline);
    e->fresh = true;
    e->dial_left_ms = 0;
    return drop_then(x, AT_exchange_LINK);
}

/* Upstream is down: what this exchange met itself is worth more than that. */
static enum turn refuse_down(struct exchange *x)
{
    const struct errand *e = x->private_;
    return machine_fail(&x->m, e->last ? e->last : ERR_UPSTREAM_DOWN, e->detail);
}

/* ---- steps ---- */

/* A try begins: no link, no permit. */
static enum turn exchange_PERMIT(struct exchange *x)
{
    struct errand *e = x->private_;

    if (!e)
        return FAIL(x, ERR_MEMORY);
    if (x->ending)
        return GO(exchange, x, DRAIN);
    e->fresh = x->ask->probe;        /* a kept connection could be a dead one */
    if (is_hopeless(x))
        return refuse_down(x);
    const struct ask *a = x->ask;
    bool go = a->probe || permit_ask(&e->permit, x->origin, &x->m, a->class_, a->op == OP_GET);
    if (!go && e->tries > 0)
        machine_wake(x->owner);      /* he may hold a permit that this one waits for */
    return go ? GO(exchange, x, LINK) : GO(exchange, x, QUEUE);
}

/* Woken by the permit, by the breaker, or by the end. */
static enum turn exchange_QUEUE(struct exchange *x)
{
    struct errand *e = x->private_;

    if (e->permit.held)
        return GO(exchange, x, LINK);
    if ((!is_hopeless(x) && !x->ending) || !permit_leave(&e->permit))
        return WAIT;
    return x->ending ? GO(exchange, x, DRAIN) : refuse_down(x);
}

/* The permit is held: a kept connection, or a new one. */
static enum turn exchange_LINK(struct exchange *x)
{
    struct errand *e = x->private_;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    if (is_hopeless(x))
        return refuse_down(x);
    if (!e->sheet)
        e->sheet = stock_take(&part_of(x)->sheets);
    if (!e->sheet)
        return FAIL(x, ERR_MEMORY);
    e->in_len = e->head_len = 0;
    e->informational = 0;
    upload_begin(x);
    e->sent = e->answered = e->slow = false;
    e->detail[0] = '\0';
    e->dial_by_ms = x->m.core->now_ms +
        (e->dial_left_ms ? e->dial_left_ms : config_of(x)->connect_timeout);
    e->dial_left_ms = 0;
    e->link = e->fresh ? NULL : pool_link_take(part_of(x));
    if (e->link)
        return GO(exchange, x, ASK);
    enum err why;
    e->link = link_open(part_of(x), &why);
    if (!e->link)
        return why == ERR_BUSY ? FAIL(x, why) : missed(x, why);
    timer_stop(&e->deadline);
    return GO(exchange, x, DIAL);
}

/* Nothing was sent yet; link.c tries the addresses. */
static enum turn exchange_DIAL(struct exchange *x)
{
    struct errand *e = x->private_;
    enum err why;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    enum link_state s = link_dial(e->link, &x->m, &e->deadline, e->dial_by_ms, &why);
    if (s == LINK_BUSY)
        return WAIT;
    if (s == LINK_BROKEN)
        return missed(x, why);
    uint64_t now_ms = x->m.core->now_ms;
    timer_set(&e->deadline, &x->m, e->dial_by_ms - min_u64(now_ms, e->dial_by_ms));
    return GO(exchange, x, SHAKE);
}

static enum turn exchange_SHAKE(struct exchange *x)
{
    struct errand *e = x->private_;
    enum err why = ERR_UPSTREAM_TIMEOUT;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    bool late = timer_take(&e->deadline);
    enum link_state s = link_shake(e->link, &x->m, &why);
    if (s == LINK_OK)
        return GO(exchange, x, ASK);
    if (s == LINK_BUSY && !late)
        return WAIT;
    if (s == LINK_BROKEN) {
        keep_detail(e, why == ERR_UPSTREAM_TLS ? e->link->detail : "closed during the handshake");
        why = why == ERR_MEMORY ? why : ERR_UPSTREAM_TLS;
    }
    return missed(x, why);
}

/* The link is connected and silent. */
static enum turn exchange_ASK(struct exchange *x)
{
    struct errand *e = x->private_;
    struct text out;
    enum err why = OK;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    origin_region(x->origin, x->ask->bucket, e->region);
    text_init(&out, e->sheet->out, SHEET_OUT_BYTES);
    why = ask_write(part_of(x), x->ask, span_of(e->region), upload_expects(x), &out);
    if (why != OK)
        return FAIL(x, why);
    x->sent_wall_ms = clock_wall_ms();
    e->asked_us = e->out_us = x->m.core->now_us;
    e->sent = true;
    timer_set(&e->deadline, &x->m, config_of(x)->read_timeout);
    if (link_send(e->link, &x->m, text_span(&out), &why) == LINK_BROKEN)
        return missed_stale(x, why);
    return GO(exchange, x, SEND);
}

/* All of the request is out. */
static enum turn await_answer(struct exchange *x)
{
    struct errand *e = x->private_;

    e->out_us = x->m.core->now_us;
    e->upload.queued = link_queued(e->link);
    timer_set(&e->deadline, &x->m, errand_answer_ms(x));
    return GO(exchange, x, HEAD);
}

/* A streamed body may come now. */
static enum turn want_body(struct exchange *x)
{
    struct errand *e = x->private_;

    timer_stop(&e->deadline);
    link_bear(e->link, config_of(x)->read_timeout);
    if (!x->body_wanted && upload_streams(x->ask)) {
        x->body_wanted = true;
        machine_wake(x->owner);
    }
    return GO(exchange, x, UPLOAD);
}

static enum turn exchange_SEND(struct exchange *x)
{
    struct errand *e = x->private_;
    enum err why = ERR_UPSTREAM_TIMEOUT;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    bool late = timer_take(&e->deadline);
    enum link_state s = link_sent(e->link, &x->m, &why);
    if (s == LINK_BUSY && !late)
        return WAIT;
    if (s != LINK_OK || late)
        return missed_stale(x, s == LINK_BROKEN ? why : ERR_UPSTREAM_TIMEOUT);
    if (upload_whole(x))
        return x->ask->answer_ms || x->ask->patient ? await_answer(x) : GO(exchange, x, HEAD);
    if (!upload_expects(x) || origin_is_mute(x))
        return want_body(x);
    timer_set(&e->deadline, &x->m, EXPECT_MS);
    return GO(exchange, x, EXPECT);
}

/* The head is out, and upstream is asked whether it wants the body. Not all can say: a second of
 * silence means yes (RFC 9110 10.1.1), and whoever then took the body is not waited for again. */
static enum turn exchange_EXPECT(struct exchange *x)
{
    struct errand *e = x->private_;
    enum err why;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    bool late = timer_take(&e->deadline);
    enum link_state s = head_pull(x, &why);
    if (s == LINK_OK)
        return GO(exchange, x, JUDGE);
    if (s == LINK_BROKEN)
        return missed_stale(x, why);
    e->upload.unheard = late && !e->upload.go;
    return late || e->upload.go ? want_body(x) : WAIT;
}

/* The head is out, the body follows. Looked at in this order: what was sent, then what was heard,
 * as the answer to a whole body can only have come behind its last byte. */
static enum turn exchange_UPLOAD(struct exchange *x)
{
    struct errand *e = x->private_;
    enum err why = ERR_UPSTREAM_TIMEOUT, unheard;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    enum link_state out = upload_move(x, &why), in = head_pull(x, &unheard);
    if (in == LINK_OK)
        return upload_whole(x) ? GO(exchange, x, JUDGE) : GO(exchange, x, HALT);
    if (e->upload.why != OK)         /* what broke it came before what is heard now */
        unheard = e->upload.why;
    if (out == LINK_BROKEN || in == LINK_BROKEN)
        return missed_stale(x, out == LINK_BROKEN ? why : unheard);
    if (out == LINK_OK)
        return await_answer(x);
    if (!upload_is_late(x))
        return WAIT;
    return missed_stale(x, e->upload.why != OK ? e->upload.why : ERR_UPSTREAM_TIMEOUT);
}

/* A whole head came before the body was out: no more of it leaves. */
static enum turn exchange_HALT(struct exchange *x)
{
    if (x->ending)
        return GO(exchange, x, DRAIN);
    return upload_halt(x) ? GO(exchange, x, JUDGE) : WAIT;
}

/* While upstream is down nobody waits longer for an answer than for a connection. But what has its
 * body, or may take its time, may already be doing it: its answer is worth its own deadline. */
static bool waits_in_vain(struct exchange *x)
{
    struct errand *e = x->private_;
    uint64_t most_us = config_of(x)->connect_timeout * 1000;
    uint64_t waited_us = x->m.core->now_us - min_u64(e->out_us, x->m.core->now_us);

    if (x->ask->has_body || x->ask->answer_ms)
        return false;

    if (!is_hopeless(x) || waited_us >= most_us)
        return is_hopeless(x);
    timer_set(&e->deadline, &x->m, (most_us - waited_us) / 1000 + 1);
    return false;
}

/* The request is out; the deadline covers the whole head, so that nobody can drip it. */
static enum turn exchange_HEAD(struct exchange *x)
{
    struct errand *e = x->private_;
    enum err why = ERR_UPSTREAM_TIMEOUT;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    bool late = (timer_take(&e->deadline) && !upload_drains(x)) || waits_in_vain(x);
    enum link_state s = head_pull(x, &why);
    if (s == LINK_OK)
        return GO(exchange, x, JUDGE);
    if (s == LINK_BUSY && !late)
        return WAIT;
    e->slow = s == LINK_BUSY && x->ask->patient;
    return missed_stale(x, s == LINK_BUSY ? ERR_UPSTREAM_TIMEOUT : why);
}

static bool tells_region(unsigned status)
{
    return status == 301 || status == 307 || status == 400;
}

/* The answer will not be used: read it away, so that the connection lives on, then go to `step`.
 * Where a body is owed it cannot live on. */
static enum turn throw_then(struct exchange *x, uint8_t step)
{
    struct errand *e = x->private_;

    if (!upload_whole(x))
        return drop_then(x, step);
    e->after = step;
    timer_set(&e->deadline, &x->m, config_of(x)->read_timeout);
    return GO(exchange, x, THROW);
}

static enum turn report(struct exchange *x)
{
    struct errand *e = x->private_;

    upload_end(x);
    x->head_known = true;
    x->body_refused = !upload_whole(x);
    x->at_end = e->body.at_end && e->body.peeked.len == 0;
    e->told = true;
    machine_wake(x->owner);
    return x->at_end ? GO(exchange, x, GIVE) : GO(exchange, x, BODY);
}

/* An answer that is not to the request: said before we asked, or about Expect alone. True: it is
 * asked again, without that. */
static bool answers_nothing(struct exchange *x)
{
    struct errand *e = x->private_;
    unsigned status = e->sheet->head.status;
    bool early = status == 408 && e->link->answers > 0;
    bool odd = status == 417 && upload_expects(x); /* RFC 9110 10.1.1: a client repeats it */

    if ((!early && !odd) || !errand_may_repeat(x))
        return false;
    e->upload.bare = e->upload.bare || odd;
    e->fresh = true;
    timer_stop(&e->deadline);
    return true;
}

/* A whole head is there: the answer, or a reason to ask again. What it teaches about clock and
 * region is kept also if this request cannot be sent again: the next will be right. */
static enum turn exchange_JUDGE(struct exchange *x)
{
    struct errand *e = x->private_;
    unsigned status = e->sheet->head.status;

    if (answers_nothing(x))
        return drop_then(x, AT_exchange_LINK);
    exchange_count_answer(x);
    exchange_learn_mute(x);
    body_begin(e);
    x->head = &e->sheet->head;
    exchange_note(x);
    if (status_is_transient(status) && errand_retries_status(x))
        return throw_then(x, AT_exchange_PAUSE);
    bool again = errand_may_repeat(x);
    if (status == 403 && exchange_learn_clock(x) && again)
        return throw_then(x, AT_exchange_LINK);
    if (!tells_region(status) || e->region_learnt)
        return report(x);
    struct span region = http_find(x->head, "x-amz-bucket-region");
    if (region.len)
        return exchange_learn_region(x, region) && again ? throw_then(x, AT_exchange_LINK)
                                                         : report(x);
    if (!again)
        return report(x);
    timer_set(&e->deadline, &x->m, config_of(x)->read_timeout);
    return e->body.at_end ? report(x) : GO(exchange, x, LEARN);
}

/* The region may stand in the error document: look at its beginning, but keep it for the owner. */
static enum turn exchange_LEARN(struct exchange *x)
{
    struct errand *e = x->private_;
    enum link_state s = LINK_OK;
    enum err why = ERR_UPSTREAM_TIMEOUT;
    struct xml_s3_error document;
    size_t got, have = e->body.seen;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    bool late = timer_take(&e->deadline);
    while (!e->body.at_end && have < SHEET_PEEK_BYTES &&
           (s = body_pull(x, e->sheet->peek + have, SHEET_PEEK_BYTES - have, &got,
                          &why)) == LINK_OK)
        have += got;
    e->body.seen = have;
    if (s == LINK_BUSY && !late)
        return WAIT;
    if (s == LINK_BUSY || s == LINK_BROKEN)
        return missed(x, why);
    e->body.seen = 0;
    if (xml_s3_error_read(span_make(e->sheet->peek, have), &document) == OK &&
        exchange_learn_region(x, span_of(document.region)))
        return throw_then(x, AT_exchange_LINK);
    e->body.peeked = span_make(e->sheet->peek, have);
    return report(x);
}

/* Reads an unwanted body away, while that is cheap. */
static enum turn exchange_THROW(struct exchange *x)
{
    struct errand *e = x->private_;
    enum link_state s = LINK_OK;
    enum err why;
    size_t got;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    bool late = timer_take(&e->deadline);
    while (!e->body.at_end && e->body.seen < THROW_BYTES_MAX &&
           (s = body_pull(x, e->sheet->peek, SHEET_PEEK_BYTES, &got, &why)) == LINK_OK)
        e->body.seen += got;
    if (s == LINK_BUSY && !late)
        return WAIT;
    timer_stop(&e->deadline);
    return GO(exchange, x, GIVE);
}

/* The link is of no use; what it still does is cancelled. */
static enum turn exchange_DROP(struct exchange *x)
{
    struct errand *e = x->private_;

    if (!drop_link(x))
        return WAIT;
    x->m.at = e->after;
    return AGAIN;
}

/* Between two tries: neither link nor permit. */
static enum turn exchange_PAUSE(struct exchange *x)
{
    struct errand *e = x->private_;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    if (e->permit.held)
        permit_give(&e->permit);
    if (is_hopeless(x))
        return machine_fail(&x->m, e->last, e->detail);
    if (e->pause_ms) {
        timer_set(&e->deadline, &x->m, e->pause_ms);
        e->pause_ms = 0;
    }
    return timer_take(&e->deadline) ? GO(exchange, x, PERMIT) : WAIT;
}

static void end_read(struct exchange *x)
{
    x->reading = false;
    machine_wake(x->owner);
}

/* An answer that may take its time may also pause: CompleteMultipartUpload sends its head and white
 * space long before its document. */
static uint64_t gap_ms(const struct exchange *x)
{
    return max_u64(config_of(x)->read_timeout, errand_answer_ms(x));
}

/* The head is reported: one read after the other into the owner's memory. */
static enum turn exchange_BODY(struct exchange *x)
{
    struct errand *e = x->private_;
    enum link_state s = LINK_OK;
    enum err why = ERR_UPSTREAM_TIMEOUT;
    size_t got;

    if (x->ending)
        return GO(exchange, x, DRAIN);
    if (!x->reading)
        return WAIT;
    bool late = timer_take(&e->deadline);
    while (x->read_got < (x->some ? 1 : x->len) &&
           (s = body_pull(x, (char *)x->mem + x->read_got, x->len - x->read_got, &got,
                          &why)) == LINK_OK) {
        x->read_got += (uint32_t)got;
        timer_stop(&e->deadline);
        late = false;
    }
    if (s == LINK_BROKEN || (s == LINK_BUSY && late)) {
        if (why == ERR_UPSTREAM_TIMEOUT && !(s == LINK_BUSY && x->ask->patient))
            errand_blame(x, why);
        return FAIL(x, why);
    }
    if (s == LINK_BUSY) {
        if (e->deadline.at_ms == 0)  /* a gap begins */
            timer_set(&e->deadline, &x->m, gap_ms(x));
        return WAIT;
    }
    timer_stop(&e->deadline);
    x->at_end = e->body.at_end && e->body.peeked.len == 0;
    end_read(x);
    return x->at_end ? GO(exchange, x, GIVE) : WAIT;
}

static bool may_keep(const struct exchange *x)
{
    const struct errand *e = x->private_;
    const struct http_head *h = &e->sheet->head;
    return upload_whole(x) && e->body.at_end && e->body.early.len == 0 && h->keep_alive &&
        h->framing != HTTP_BODY_UNTIL_CLOSE &&
           link_clean(e->link);
}

/* The answer is over, or will not be read further: the link goes back, or is dropped. */
static enum turn exchange_GIVE(struct exchange *x)
{
    struct errand *e = x->private_;

    if (e->told)
        e->after = AT_exchange_REST;
    if (!may_keep(x))
        return GO(exchange, x, DROP);
    link_bear(e->link, 0);
    pool_link_keep(part_of(x), e->link);
    e->link = NULL;
    x->m.at = e->after;
    return AGAIN;
}

/* Everything was delivered; the head stays readable until the end. */
static enum turn exchange_REST(struct exchange *x)
{
    struct errand *e = x->private_;

    if (e->permit.held)
        permit_give(&e->permit);
    if (x->reading)
        end_read(x);
    return x->ending ? GO(exchange, x, DRAIN) : WAIT;
}

static void tell_failure(struct exchange *x)
{
    x->failed = true;
    x->reading = false;
    machine_wake(x->owner);
    exchange_tell_failure(x);
}

/* Failed, or ended by the owner. The link is cut unless it went back before. */
static enum turn exchange_DRAIN(struct exchange *x)
{
    struct errand *e = x->private_;

    if (e) {
        timer_stop(&e->deadline);
        if (e->permit.queued && !permit_leave(&e->permit))
            return WAIT;
        if (!drop_link(x))
            return WAIT;
        upload_end(x);
        if (e->permit.held)
            permit_give(&e->permit);
    }
    if (x->m.inflight > 0)
        return WAIT;
    if (x->m.why != OK && !x->failed)
        tell_failure(x);
    if (x->reading)
        end_read(x);
    return x->ending ? GO(exchange, x, END) : WAIT;
}

static enum turn exchange_END(struct exchange *x)
{
    must(x->m.inflight == 0);
    return OVER;
}
