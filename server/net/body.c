/* The body of the running request: bytes come when the request asks for them, without their HTTP
 * framing.
 *
 * Invariants:
 *  1. Nothing is received that was not asked for: a request that takes nothing holds its client
 *     back by TCP.
 *  2. Counted bytes of a plain connection are received straight into the request's memory, but for
 *     those that came with the head. Chunks are received there, too, and their framing is taken out
 *     in place; no receive can bring more than the intake has room for behind the body's end.
 *  3. What stands behind the body stays in the intake (or in the TLS session): it is the next head.
 *  4. The deadline runs while the client is waited for, and starts anew only with bytes of the body
 *     itself: framing that drips, or TLS records without a byte, do not move it.
 *  5. A receive is under way in the request's machine, whose memory it fills; it has ended before
 *     the request may end.
 *
 * Life: conn_body_begin() with the head, conn_body_end() with the request; conn_body_drop() behind
 * the answer.
 * Failure: the first one is kept, and the connection ends behind the answer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "server/net/net.h"
#include "tls.h"

enum {
    TAKE_BYTES_MAX = 1 << 30,        /* of one receive: its length has 32 bits, its result 31 */
    DISCARD_BYTES_MAX = 64 * KIB,    /* of an unread body */
    NO_BUFFER_MS = 8,
    FRUITLESS_BYTES_MAX = 64 * KIB,  /* of TLS records without a byte of the body: a few records */
};

void conn_body_begin(struct conn *c)
{
    const struct http_head *h = &c->intake->head;
    c->body = (struct conn_body){
        .left = h->framing == HTTP_BODY_LENGTH ? h->length : 0,
        .counted = h->framing != HTTP_BODY_CHUNKED,
    };
    c->body.over = c->body.counted && c->body.left == 0;
    c->intake->at = c->intake->used;
    timer_stop(&c->pause);           /* from here on it wakes the request */
}

bool conn_body_over(const struct conn *c)
{
    return c->body.over;
}

/* ---- framing ---- */

/* Takes the framing out of raw bytes, in place. Returns how many of them were the body's; *got is
 * what is left of those. */
static size_t unframe(struct conn_body *b, char *mem, size_t len, size_t *got)
{
    size_t at = 0, used;
    struct span data;
    b->begun = b->begun || len > 0;
    if (b->counted) {
        *got = (size_t)min_u64(len, b->left);
        b->left -= *got;
        b->over = b->left == 0;
        return *got;
    }
    for (*got = 0; at < len && !b->over && b->why == OK; at += used) {
        enum http_verdict v = http_chunked_step(&b->chunked, mem + at, len - at, &used, &data);
        if (data.at != mem + *got)
            memmove(mem + *got, data.at, data.len);
        *got += data.len;
        b->over = v == HTTP_OK;
        if (v == HTTP_BAD)
            b->why = ERR_SYNTAX;
    }
    return at;
}

/* How many raw bytes may be read into the request's memory: none behind a counted body, few behind
 * the last chunk. */
static size_t readable(const struct conn_body *b, size_t cap)
{
    uint64_t most = b->counted ? b->left : b->chunked.left + INTAKE_RECV_BYTES;
    return (size_t)min_u64(min_u64(cap, most), TAKE_BYTES_MAX);
}

/* Before bytes are read that may belong to what follows. */
static bool ready_intake(struct conn *c)
{
    c->intake->at = c->intake->len = c->intake->used;
    return c->body.counted || conn_make_room(c);
}

/* ---- taking ---- */

static void take_early(struct conn *c, void *mem, size_t cap, size_t *got)
{
    struct intake *in = c->intake;
    size_t n = (size_t)min_u64(cap, in->len - in->at);
    memcpy(mem, in->bytes + in->at, n);
    in->at += (uint32_t)unframe(&c->body, mem, n, got);
}

/* Raw bytes were read into mem. */
static void take_raw(struct conn *c, char *mem, size_t len, size_t *got)
{
    struct intake *in = c->intake;
    size_t mine = unframe(&c->body, mem, len, got);
    if (c->body.why != OK)
        return;
    must(in->len + (len - mine) <= (in->big ? INTAKE_BIG_BYTES : INTAKE_BYTES));
    memcpy(in->bytes + in->len, mem + mine, len - mine);
    in->len += (uint32_t)(len - mine);
}

/* What the session can give now. */
static void take_opened(struct conn *c, void *mem, size_t cap, size_t *raw)
{
    size_t most = readable(&c->body, cap), n = 1;
    while (*raw < most && n > 0 && !c->session.ended) {
        if (session_read(&c->session, (char *)mem + *raw, most - *raw, &n) == SESSION_FAILED) {
            c->body.why = ERR_PEER;
            return;
        }
        *raw += n;
    }
}

/* A receive has ended. With TLS its bytes go to the session, and *raw says what that gave. */
static void take_received(struct conn *c, void *mem, size_t cap, size_t *raw)
{
    int32_t res = c->recv.res;
    bool pooled = c->recv.kind == OPK_RECV_POOL;
    if (res == -ECANCELED || (pooled && res == -ENOBUFS))
        return;
    if (res <= 0) {
        c->body.why = (uint8_t)(res == 0 ? ERR_PEER : op_socket_error(res, false));
        return;
    }
    if (!pooled) {
        *raw = (size_t)res;
        return;
    }
    struct span sealed = core_recv_bytes(c->m.core, &c->recv);
    if (!session_feed(&c->session, sealed))
        c->body.why = ERR_MEMORY;
    else
        take_opened(c, mem, cap, raw);
    if (!session_keep(&c->session))
        c->body.why = ERR_MEMORY;
    c->body.fruitless = *raw > 0 ? 0 : c->body.fruitless + (uint32_t)sealed.len;
    if (c->body.fruitless > FRUITLESS_BYTES_MAX)
        c->body.why = ERR_PEER;      /* what the session would say to them costs memory */
    core_recv_give(c->m.core, &c->recv);
}

/* Raw bytes are read into mem; none: they must be received. */
static size_t read_raw(struct conn *c, struct machine *m, void *mem, size_t cap)
{
    size_t raw = 0;
    if (op_take(&c->recv)) {
        take_received(c, mem, cap, &raw);
        if (c->recv.res == -ENOBUFS && c->body.why == OK) {
            timer_stop(&c->body.timer); /* the buffers are missing, not the client's bytes */
            timer_set(&c->pause, m, NO_BUFFER_MS);
        }
    } else if (!ready_intake(c)) {
        c->body.why = ERR_MEMORY;
    } else if (c->session.tls) {
        take_opened(c, mem, cap, &raw);
    }
    return raw;
}

static void receive(struct conn *c, struct machine *m, void *mem, size_t cap)
{
    if (c->pause.at_ms != 0)
        return;
    if (c->body.timer.at_ms == 0)
        timer_set(&c->body.timer, m, m->core->settings->config->server_body_timeout);
    if (c->session.tls)
        op_recv_pool(m, &c->recv, c->fd, false);
    else
        op_recv(m, &c->recv, c->fd, mem, (uint32_t)readable(&c->body, cap));
}

/* The deadline ends a receive; what came meanwhile counts. */
static enum body_state wait_on(struct conn *c, struct machine *m)
{
    c->body.late = timer_take(&c->body.timer) || c->body.late;
    if (c->body.late && c->recv.busy && !c->cancel.busy)
        op_cancel(m, &c->cancel, &c->recv);
    return BODY_BUSY;
}

static enum body_state settled(struct conn *c, size_t *got, enum err *why)
{
    static const uint8_t labels[ERR_COUNT] = {[ERR_TIMEOUT] = END_TIMEOUT, [ERR_PEER] = END_CLIENT,
                                              [ERR_SYNTAX] = END_ERROR, [ERR_MEMORY] = END_ERROR};
    struct conn_body *b = &c->body;
    timer_stop(&b->timer);
    timer_stop(&c->pause);
    b->late = false;
    *why = b->why;
    if (b->why == OK && *got > 0)
        metric_add(c->m.core->metrics, METRIC_RECEIVED_BYTES_TOTAL, 0, *got);
    if (b->why == OK)
        return *got > 0 ? BODY_OK : BODY_END;
    *got = 0;
    c->end_label = labels[b->why];
    return BODY_BROKEN;
}

enum body_state conn_body_take(struct conn *c, struct machine *m, void *mem, size_t cap,
                               size_t *got, enum err *why)
{
    struct conn_body *b = &c->body;
    must(c->intake && !c->request_over && cap > 0);
    for (*got = 0; *got == 0 && !b->over && b->why == OK;) {
        if (c->recv.busy || c->cancel.busy)
            return wait_on(c, m);
        if (!c->recv.ended && c->intake->at < c->intake->len) {
            take_early(c, mem, cap, got);
            continue;
        }
        size_t raw = read_raw(c, m, mem, cap);
        if (raw > 0 && b->why == OK) {
            take_raw(c, mem, raw, got);
        } else if (b->why == OK && c->session.ended) {
            b->why = ERR_PEER;
        } else if (b->why == OK && (b->late || timer_take(&b->timer))) {
            metric_add(m->core->metrics, METRIC_DEADLINE_TOTAL, DEADLINE_BODY, 1);
            b->why = ERR_TIMEOUT;
        } else if (b->why == OK) {
            receive(c, m, mem, cap);
            return BODY_BUSY;
        }
    }
    return settled(c, got, why);
}

/* ---- giving up ---- */

/* A receive has ended and nobody asks for its bytes any more. */
static void forget(struct conn *c)
{
    op_take(&c->cancel);
    timer_stop(&c->body.timer);
    timer_stop(&c->pause);
    c->body.late = false;
    if (!op_take(&c->recv) || c->recv.res == -ECANCELED || c->recv.res == -ENOBUFS)
        return;
    if (c->recv.res > 0 && c->recv.kind == OPK_RECV_POOL)
        core_recv_give(c->m.core, &c->recv);
    c->body.why = ERR_PEER;
}

bool conn_body_settle(struct conn *c, struct machine *m)
{
    if (c->recv.busy && !c->cancel.busy)
        op_cancel(m, &c->cancel, &c->recv);
    if (c->recv.busy || c->cancel.busy)
        return false;
    forget(c);
    return true;
}

void conn_body_end(struct conn *c)
{
    must(!c->recv.busy && !c->cancel.busy);
    forget(c);
}

/* ---- behind the answer ---- */

bool conn_body_can_end(const struct conn *c)
{
    const struct intake *in = c->intake;
    const struct conn_body *b = &c->body;
    /* Whether a client that got no 100 sends its body now is its choice (RFC 9110 10.1.1). */
    bool waits = in->head.expect_continue && !b->begun && in->at == in->len;
    return b->why == OK && (b->over || !waits);
}

/* Bytes of the intake that belong to the body. */
static uint32_t drop_some(struct conn *c)
{
    struct intake *in = c->intake;
    size_t got, n = in->len - in->at;
    uint32_t mine = n > 0 ? (uint32_t)unframe(&c->body, in->bytes + in->at, n, &got) : 0;
    in->at += mine;
    return mine;
}

enum body_state conn_body_drop(struct conn *c, bool *dropped)
{
    struct intake *in = c->intake;
    struct conn_body *b = &c->body;
    uint32_t n = b->over ? 0 : drop_some(c);
    *dropped = n > 0;
    b->dropped += n;
    if (b->why == OK && b->over)
        return BODY_END;
    if (b->why != OK || b->dropped + (b->counted ? b->left : b->chunked.left) > DISCARD_BYTES_MAX)
        return BODY_BROKEN;
    in->at = in->len = in->used;
    return BODY_BUSY;
}
