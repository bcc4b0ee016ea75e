/* MACHINE of one client connection: TLS handshake, head, request, what is left of a body, the next
 * head, close.
 *
 * Invariants:
 *  1. `intake` (head bytes, parsed head, the request's memory) exists from the first byte of a head
 *     to the end of its request; an idle connection has none.
 *  2. In BUSY the request owns the sending side; nothing is received but the body, as far as the
 *     request asks for it (body.c), so a pipelining client is held back by TCP.
 *  3. The deadlines of a head and of a body that is discarded are absolute, whatever drips; the
 *     send deadline counts the time in which the client takes nothing.
 *  4. Whatever was refused is answered once and closed. Whoever is closed is read from for a little
 *     while, so that neither an answer nor the end itself is lost to a reset.
 *  5. With TLS the steps are the same: bytes are decrypted on their way into the intake, and what
 *     the session says on its own leaves while no request owns the sending side.
 *  6. In a drain an idle connection is kept for a moment: a request that was on its way is
 *     answered.
 *
 * Life: listen.c opens it; it ends by itself and gives itself back to its core's stock.
 * Failure: the peer vanishes, deadlines pass, memory is short: the socket is closed, with words
 * only in metrics. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "log.h"
#include "server/net/net.h"
#include "tls.h"

#define CONN_STEPS(S)                                                                              \
    S(conn, SHAKE) S(conn, HEAD) S(conn, REQUEST) S(conn, BUSY) S(conn, REFUSE) S(conn, BODY)      \
    S(conn, LINGER) S(conn, DRAIN) S(conn, END)

enum {
    LINGER_BYTES_MAX = 1 * MIB,
    LINGER_MS = 2000,
    DRAIN_IDLE_MS = 500,             /* more than a round trip of the slowest network we serve */
    TLS_HANDSHAKE = 0x16,            /* first byte of a ClientHello's record, RFC 8446 5.1 */
    NO_BUFFER_MS = 8,
    SHED_MS = 1000,                  /* idle for less: its next request is on its way */
};

STEP_TABLE(conn, CONN_STEPS)

_Static_assert(sizeof(struct conn) <= 704, "what an idle connection takes, and ten thousand do");

/* ---- helpers ---- */

static void set_active(struct conn *c, bool active)
{
    if (c->counted_active == active)
        return;
    c->counted_active = active;
    metric_gauge_add(METRIC_CONNECTIONS, CONN_ACTIVE, active ? 1 : -1);
    metric_gauge_add(METRIC_CONNECTIONS, CONN_IDLE, active ? -1 : 1);
}

static bool take_intake(struct conn *c)
{
    if (c->intake)
        return true;
    struct intake *in = stock_take_dirty(&c->net->request_stock);
    if (!in)
        return false;
    in->bytes = in->small;
    in->big = NULL;
    in->len = in->used = in->at = 0;
    c->intake = in;
    set_active(c, true);
    return true;
}

static void give_intake(struct conn *c)
{
    struct intake *in = c->intake;
    if (!in)
        return;
    if (in->big)
        stock_give(&c->net->big_stock, in->big);
    stock_give(&c->net->request_stock, in);
    c->intake = NULL;
    set_active(c, false);
}

bool conn_make_room(struct conn *c)
{
    struct intake *in = c->intake;
    if (in->len + INTAKE_RECV_BYTES <= (in->big ? INTAKE_BIG_BYTES : INTAKE_BYTES))
        return true;
    if (in->big)
        return false;
    in->big = stock_take_dirty(&c->net->big_stock);
    if (!in->big)
        return false;
    memcpy(in->big, in->small, in->len);
    in->bytes = in->big;
    return true;
}

static enum turn leave(struct conn *c, unsigned end_label)
{
    c->end_label = (uint8_t)end_label;
    return GO(conn, c, DRAIN);
}

static void count_late(struct conn *c, enum label_deadline which)
{
    metric_add(c->m.core->metrics, METRIC_DEADLINE_TOTAL, which, 1);
}

/* Nothing was begun: who is so for longest is the first to go when connections are short. */
static void set_idle(struct conn *c, bool idle)
{
    if (idle == node_linked(&c->idle))
        return;
    c->idle_ms = c->m.core->now_ms;
    if (idle)
        list_push(&c->net->idle, &c->idle);
    else
        node_remove(&c->idle);
}

/* Until when a connection without a request may be silent. */
static void limit_idle(struct conn *c)
{
    uint64_t idle_ms = c->m.core->settings->config->server_idle_timeout;
    c->drain_seen = c->net->draining;
    timer_set(&c->timer, &c->m, c->drain_seen ? min_u64(idle_ms, DRAIN_IDLE_MS) : idle_ms);
    set_idle(c, true);
}

static void limit_head(struct conn *c)
{
    set_idle(c, false);
    timer_set(&c->timer, &c->m, c->m.core->settings->config->server_header_timeout);
}

/* ---- receiving ---- */

static enum err take_plain(struct conn *c, struct span got)
{
    if (!take_intake(c) || !conn_make_room(c))
        return ERR_MEMORY;
    if (c->intake->len == 0)
        limit_head(c);
    memcpy(c->intake->bytes + c->intake->len, got.at, got.len);
    c->intake->len += (uint32_t)got.len;
    return OK;
}

/* Moves what the session can give now to the intake, as far as there is room. */
static enum err decrypt(struct conn *c)
{
    bool any = false;
    while (tls_holds_input(c->session.tls) && !c->session.ended) {
        size_t got = 0;
        if (!take_intake(c))
            return ERR_MEMORY;
        if (!conn_make_room(c))
            return any ? OK : ERR_MEMORY;
        struct intake *in = c->intake;
        size_t cap = (in->big ? INTAKE_BIG_BYTES : INTAKE_BYTES) - in->len;
        if (session_read(&c->session, in->bytes + in->len, cap, &got) == SESSION_FAILED)
            return ERR_PEER;
        if (got == 0)
            break;                   /* half a record */
        if (in->len == 0)
            limit_head(c);
        in->len += (uint32_t)got;
        any = true;
    }
    if (c->intake && c->intake->len == 0)
        give_intake(c);
    return OK;
}

static enum err take_sealed(struct conn *c, struct span got)
{
    if (!session_feed(&c->session, got))
        return ERR_MEMORY;
    enum err e = decrypt(c);
    return e == OK && !session_keep(&c->session) ? ERR_MEMORY : e;
}

/* What a completed receive brought: bytes are stored, the buffer is back. OK, or why the connection
 * ends. */
static enum err take_received(struct conn *c)
{
    int32_t res = c->recv.res;
    if (res == -ENOBUFS)             /* all provided buffers are lent: try again soon */
        return OK;
    if (res <= 0)
        return res == 0 ? ERR_PEER : op_socket_error(res, false);
    struct span got = core_recv_bytes(c->m.core, &c->recv);
    enum err e = c->session.tls ? take_sealed(c, got) : take_plain(c, got);
    core_recv_give(c->m.core, &c->recv);
    return e;
}

/* Bytes for the intake: received now, or held back by the session when there was no room. */
static enum err take_input(struct conn *c, bool *starved)
{
    *starved = false;
    if (op_take(&c->recv)) {
        *starved = c->recv.res == -ENOBUFS;
        return take_received(c);
    }
    return c->session.tls ? decrypt(c) : OK;
}

/* Receives, unless it is under way or no buffer was free just now. */
static void receive(struct conn *c, bool starved, bool expect_idle)
{
    if (starved)
        timer_set(&c->pause, &c->m, NO_BUFFER_MS);
    if (!c->recv.busy && c->pause.at_ms == 0)
        op_recv_pool(&c->m, &c->recv, c->fd, expect_idle);
}

/* ---- what a TLS session says on its own ---- */

/* False: the peer is gone. */
static bool take_flushed(struct conn *c)
{
    if (!c->session.tls || !op_take(&c->own))
        return true;
    if (c->own.res <= 0)
        return false;
    tls_sent(c->session.tls, (size_t)c->own.res);
    return true;
}

/* True: all of it is out. */
static bool flush(struct conn *c)
{
    if (!c->session.tls)
        return true;
    if (c->own.busy)
        return false;
    struct span own = tls_out(c->session.tls);
    if (own.len == 0)
        return true;
    op_send(&c->m, &c->own, c->fd, own.at, (uint32_t)own.len);
    return false;
}

/* ---- heads ---- */

static enum turn parse(struct conn *c)
{
    struct intake *in = c->intake;
    size_t used = 0;
    if (c->own.busy)                 /* the request will own the sending side */
        return WAIT;
    c->verdict = http_parse_request(in->bytes, in->len, &in->head, &used);
    in->used = (uint32_t)used;
    if (c->verdict == HTTP_MORE)
        return WAIT;
    timer_stop(&c->timer);
    return c->verdict == HTTP_OK ? GO(conn, c, REQUEST) : GO(conn, c, REFUSE);
}

/* ---- steps ---- */

/* The first bytes tell whether the client speaks TLS; then the session goes on with them. */
static enum session_step take_hello(struct conn *c)
{
    struct session *t = &c->session;
    enum session_step step = SESSION_FAILED;
    struct span got = core_recv_bytes(c->m.core, &c->recv);
    if (!t->tls) {
        limit_head(c);
        c->wants_https = got.at[0] != TLS_HANDSHAKE;
        if (!c->wants_https)
            t->tls = tls_accept(c->m.core->settings->tls);
    }
    if (t->tls && session_feed(t, got)) {
        step = session_shake(t);
        if (!session_keep(t))
            step = SESSION_FAILED;
    }
    core_recv_give(c->m.core, &c->recv);
    return step;
}

static enum turn shake_failed(struct conn *c, const char *why, unsigned end_label)
{
    metric_add(c->m.core->metrics, METRIC_TLS_HANDSHAKES_TOTAL, HANDSHAKE_FAILED, 1);
    log_event(EVENT_TLS, "peer=%s why=%s", c->peer, log_value(span_of(why)));
    c->end_label = (uint8_t)end_label;
    return c->wants_https ? GO(conn, c, REFUSE) : GO(conn, c, LINGER);
}

static enum turn shake_done(struct conn *c)
{
    bool resumed = tls_resumed(c->session.tls);
    metric_add(c->m.core->metrics, METRIC_TLS_HANDSHAKES_TOTAL,
               resumed ? HANDSHAKE_RESUMED : HANDSHAKE_FULL, 1);
    timer_stop(&c->timer);
    return GO(conn, c, HEAD);
}

/* Up to the first byte a reload may change it. */
static bool speaks_tls(const struct conn *c)
{
    return c->session.tls || c->m.core->settings->tls;
}

static enum turn conn_SHAKE(struct conn *self) /* until both sides have keys; plain: nothing */
{
    bool starved = false;
    if (!speaks_tls(self))
        return GO(conn, self, HEAD);
    if (!take_flushed(self))
        return leave(self, END_CLIENT);
    if (op_take(&self->recv)) {
        starved = self->recv.res == -ENOBUFS;
        if (self->recv.res <= 0 && !starved)
            return self->session.tls ? shake_failed(self, "the client went away", END_CLIENT)
                                     : leave(self, END_CLIENT);
        enum session_step step = starved ? SESSION_ON : take_hello(self);
        if (step == SESSION_DONE)
            return shake_done(self);
        if (step == SESSION_FAILED)
            return shake_failed(self, self->wants_https      ? "a request without TLS"
                                      : !self->session.tls   ? "no memory"
                                                             : tls_error(self->session.tls),
                                END_ERROR);
    }
    if (timer_take(&self->timer)) {
        if (self->session.tls)
            count_late(self, DEADLINE_HEAD);
        if (self->session.tls)
            return shake_failed(self, "it took too long", END_TIMEOUT);
        if (!self->net->draining)
            count_late(self, DEADLINE_IDLE);
        self->end_label = self->net->draining ? END_SERVER : END_TIMEOUT;
        return GO(conn, self, LINGER);
    }
    if (self->shed && !self->session.tls)
        return leave(self, END_SERVER);
    flush(self);
    if (!self->session.tls &&
        (self->timer.at_ms == 0 || self->net->draining != self->drain_seen))
        limit_idle(self);
    receive(self, starved, false);
    return WAIT;
}

/* No head is complete. True: the connection ends, by *turn. */
static bool idle_ends(struct conn *c, enum turn *turn)
{
    bool late = timer_take(&c->timer), left = c->session.ended && !c->own.busy;
    c->end_label = left ? END_CLIENT : c->net->draining && !c->intake ? END_SERVER : END_TIMEOUT;
    if (late && c->end_label == END_TIMEOUT)
        count_late(c, c->intake ? DEADLINE_HEAD : DEADLINE_IDLE);
    if (late || left) {
        *turn = c->intake ? GO(conn, c, DRAIN) : GO(conn, c, LINGER);
        return true;
    }
    if (c->shed && !c->intake) {     /* at once: its place is taken already */
        *turn = leave(c, END_SERVER);
        return true;
    }
    if (!c->intake && (c->timer.at_ms == 0 || c->net->draining != c->drain_seen))
        limit_idle(c);
    return false;
}

/* Nothing more comes from this client: it went away, or its bytes make no sense. */
static enum turn input_failed(struct conn *c, enum err why)
{
    bool senseless = c->session.tls && tls_error(c->session.tls)[0];
    c->end_label = why == ERR_PEER && !c->intake && !senseless ? END_CLIENT : END_ERROR;
    return senseless ? GO(conn, c, LINGER) : GO(conn, c, DRAIN); /* there is an alert to send */
}

static enum turn conn_HEAD(struct conn *self) /* no request; perhaps the first bytes of one */
{
    bool starved;
    if (!take_flushed(self))
        return leave(self, END_CLIENT);
    enum err e = take_input(self, &starved);
    if (e != OK)
        return input_failed(self, e);
    if (self->intake && self->intake->len > 0 && parse(self) == AGAIN)
        return AGAIN;
    enum turn turn;
    if (idle_ends(self, &turn))
        return turn;
    flush(self);
    if (!self->intake || !self->own.busy) /* else a whole head may wait for that send */
        receive(self, starved, self->expect_idle);
    return WAIT;
}

static enum turn conn_REQUEST(struct conn *self) /* a whole head; nothing is armed */
{
    struct intake *in = self->intake;
    self->head_us = self->m.core->now_us;
    self->request_over = false;
    conn_body_begin(self);
    const struct request_ops *ops = self->m.core->server->net->ops;
    ops->begin(self, in->request, &in->head);
    self->m.at = AT_conn_BUSY;
    return WAIT;
}

/* the request runs; its end or the send deadline wakes us */
static enum turn conn_BUSY(struct conn *self)
{
    if (timer_take(&self->timer) && self->sending && !self->request_over) {
        uint64_t limit = self->m.core->settings->config->server_send_timeout;
        uint64_t waited = self->m.core->now_ms - self->took_ms;
        if (waited >= limit) {
            count_late(self, DEADLINE_SEND);
            self->end_label = END_TIMEOUT;
            shutdown(self->fd, SHUT_RDWR); /* the request's send fails and the request ends */
        } else {
            timer_set(&self->timer, &self->m, limit - waited);
        }
    }
    if (!self->request_over)
        return WAIT;
    timer_stop(&self->timer);
    self->sending = false;
    self->took_ms = 0;
    if (self->fate == CONN_CUT)
        return leave(self, self->end_label);
    return self->fate == CONN_KEEP && conn_body_can_end(self) ? GO(conn, self, BODY)
                                                         : GO(conn, self, LINGER);
}

/* answered; drop what is left of the body, then the next head */
static enum turn conn_BODY(struct conn *self)
{
    struct intake *in = self->intake;
    bool starved, dropped;
    if (take_input(self, &starved) != OK)
        return leave(self, END_CLIENT);
    enum body_state s = conn_body_drop(self, &dropped);
    if (s == BODY_BROKEN)
        return GO(conn, self, LINGER);
    if (timer_take(&self->timer)) {
        count_late(self, DEADLINE_BODY);
        return leave(self, END_TIMEOUT);
    }
    if (s == BODY_BUSY) {
        if (dropped && self->session.tls && tls_holds_input(self->session.tls))
            return AGAIN;            /* there was no room for all that the session has */
        if (self->session.ended)
            return leave(self, END_CLIENT);
        if (self->timer.at_ms == 0)  /* for all of it, whatever drips */
            limit_head(self);
        receive(self, starved, false);
        return WAIT;
    }
    timer_stop(&self->timer);
    uint32_t there = in->len - in->at;
    self->expect_idle = there == 0;
    if (there == 0) {
        give_intake(self);
    } else {                         /* the next head was pipelined */
        memmove(in->bytes, in->bytes + in->at, there);
        in->len = there;
        in->used = in->at = 0;
        limit_head(self);
    }
    return GO(conn, self, HEAD);
}

/* To whoever speaks plain HTTP to a TLS listener; curl and browsers show it. */
static void write_wants_https(struct text *t)
{
    static const char words[] = "This port speaks HTTPS: use https:// in the URL.\n";
    text_addf(t,
              "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
              "Connection: close\r\n\r\n%s",
              sizeof(words) - 1, words);
}

/* The answer, in what is lent from the stock of big heads: an idle connection needs none of it. */
struct refusal {
    struct send send;
    char text[];
};

static enum turn refuse(struct conn *c)
{
    struct refusal *r = c->refusal = stock_take_dirty(&c->net->big_stock);
    if (!r)
        return leave(c, END_ERROR);
    struct text t;
    text_init(&t, r->text, INTAKE_BIG_BYTES - sizeof *r);
    if (c->wants_https)
        write_wants_https(&t);
    else
        c->m.core->server->net->ops->refuse(c, c->verdict, &t);
    c->end_label = END_ERROR;
    r->send.op = r->send.cancel = (struct op){0};
    send_reset(&r->send);
    send_add(&r->send, t.at, (uint32_t)t.len);
    send_go(&r->send, c, &c->m);
    timer_set(&c->timer, &c->m, LINGER_MS);
    return WAIT;
}

static enum turn conn_REFUSE(struct conn *self) /* the head is malformed, or no TLS */
{
    struct send *send = self->refusal ? &self->refusal->send : NULL;
    if (!send)
        return refuse(self);
    if (send_ended(send)) {
        enum err why;
        if (send_accept(send, self, &why))
            return GO(conn, self, LINGER);
        if (why != OK)
            return leave(self, END_ERROR);
        send_go(send, self, &self->m);
    } else if (timer_take(&self->timer)) {
        shutdown(self->fd, SHUT_RDWR);
    }
    return WAIT;
}

/* The connection ends, but unread bytes in our queue would make the kernel send a reset that may
 * destroy the answer, or our end: read and drop for a short while (RFC 9112 9.6). */
static enum turn conn_LINGER(struct conn *self)
{
    if (!self->lingering) {
        self->lingering = true;
        set_idle(self, false);
        timer_set(&self->timer, &self->m, self->drain_seen ? DRAIN_IDLE_MS : LINGER_MS);
        if (self->session.tls)
            tls_goodbye(self->session.tls);
    }
    if (!take_flushed(self))
        return leave(self, self->end_label);
    if (!self->shut && flush(self)) {
        self->shut = true;
        shutdown(self->fd, SHUT_WR);
    }
    bool starved = false;
    if (op_take(&self->recv)) {
        starved = self->recv.res == -ENOBUFS;
        if (self->recv.res > 0) {
            self->lingered += (uint64_t)self->recv.res;
            core_recv_give(self->m.core, &self->recv);
        } else if (!starved) {
            return leave(self, self->end_label);
        }
    }
    if (timer_take(&self->timer) || self->lingered > LINGER_BYTES_MAX)
        return leave(self, self->end_label);
    receive(self, starved, false);
    return WAIT;
}

/* A reset tells the client that the body is not whole. */
static void reset_at_close(struct conn *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

static enum turn conn_DRAIN(struct conn *self) /* the kernel may still hold our buffers */
{
    timer_stop(&self->timer);
    timer_stop(&self->pause);
    set_idle(self, false);
    if (self->fate == CONN_CUT)
        reset_at_close(self);
    if (self->m.inflight > 0) {
        shutdown(self->fd, SHUT_RDWR);
        return WAIT;
    }
    if (op_take(&self->recv) && self->recv.res > 0)
        core_recv_give(self->m.core, &self->recv);
    return GO(conn, self, END);
}

static enum turn conn_END(struct conn *self)
{
    close(self->fd);
    return OVER;
}

static void conn_over(struct machine *m)
{
    struct conn *c = (struct conn *)m;
    struct net_core *n = c->net;
    struct net *net = m->core->server->net;
    session_end(&c->session, n);
    give_intake(c);
    if (c->refusal)
        stock_give(&n->big_stock, c->refusal);
    metric_gauge_add(METRIC_CONNECTIONS, CONN_IDLE, -1);
    metric_add(m->core->metrics, METRIC_CONNECTIONS_TOTAL, c->end_label, 1);
    atomic_fetch_sub_explicit(&net->connections, 1, memory_order_relaxed);
    n->shedding -= c->shed;
    peers_leave(net->peers, c->place);
    node_remove(&c->node);
    stock_give(&n->conn_stock, c);
    listeners_wake(n);
}

/* ---- for listen.c and for requests ---- */

static void name_peer(struct conn *c)
{
    socklen_t len = sizeof(c->address);
    if (getpeername(c->fd, &c->address.any, &len) != 0)
        c->address.any.sa_family = AF_UNSPEC;
    int family = c->address.any.sa_family;
    const void *at = family == AF_INET6 ? (const void *)&c->address.v6.sin6_addr
                                        : (const void *)&c->address.v4.sin_addr;
    if (family == AF_UNSPEC || !inet_ntop(family, at, c->peer, sizeof(c->peer)))
        snprintf(c->peer, sizeof(c->peer), "unknown");
}

void conn_open(struct core *core, int fd)
{
    struct net_core *n = net_core(core);
    struct conn *c = stock_take(&n->conn_stock);
    if (!c) {
        close(fd);
        return;
    }
    c->fd = fd;
    c->net = n;
    name_peer(c);
    if (!peers_enter(core->server->net->peers, conn_address(c), &c->place)) {
        metric_add(core->metrics, METRIC_CONNECTIONS_REFUSED_TOTAL, 0, 1);
        log_event(EVENT_PEER_CONNECTIONS, "peer=%s limit=%llu", c->peer,
                  (unsigned long long)core->settings->config->server_max_connections_per_address);
        close(fd);
        stock_give(&n->conn_stock, c);
        return;
    }
    list_push(&n->conns, &c->node);
    atomic_fetch_add_explicit(&core->server->net->connections, 1, memory_order_relaxed);
    metric_gauge_add(METRIC_CONNECTIONS, CONN_IDLE, 1);
    MACHINE_BEGIN(conn, c, core, conn_over);
}

bool conn_can_shed(const struct net_core *n)
{
    if (list_empty(&n->idle))
        return false;
    const struct conn *oldest = container_of(n->idle.head.next, struct conn, idle);
    return n->core->now_ms - oldest->idle_ms >= SHED_MS;
}

bool conn_shed(struct net_core *n)
{
    if (!conn_can_shed(n))
        return false;
    struct conn *oldest = container_of(list_first(&n->idle), struct conn, idle);
    set_idle(oldest, false);
    oldest->shed = true;
    n->shedding++;
    machine_wake(&oldest->m);
    return true;
}

void conn_done(struct conn *c, enum conn_fate fate)
{
    must(c->m.at == AT_conn_BUSY && !c->request_over);
    conn_body_end(c);
    c->request_over = true;
    c->fate = (uint8_t)fate;
    machine_wake(&c->m);
}

void conn_sending(struct conn *c)
{
    uint64_t now_ms = c->m.core->now_ms, limit = c->m.core->settings->config->server_send_timeout;
    if (c->sending)                  /* it goes on, or waits on */
        return;
    c->sending = true;
    c->took_ms = c->took_ms ? c->took_ms + (now_ms - c->rest_ms) : now_ms;
    if (c->m.at == AT_conn_BUSY && c->timer.at_ms == 0)
        timer_set(&c->timer, &c->m, limit - min_u64(limit, now_ms - c->took_ms));
}

void conn_took(struct conn *c)
{
    c->took_ms = c->m.core->now_ms;
}

void conn_sent(struct conn *c)
{
    c->sending = false;
    c->rest_ms = c->m.core->now_ms;
}

struct core *conn_core(struct conn *c)
{
    return c->m.core;
}

const char *conn_peer(const struct conn *c)
{
    return c->peer;
}

const struct sockaddr *conn_address(const struct conn *c)
{
    return &c->address.any;
}

bool conn_stopping(const struct conn *c)
{
    return c->net->draining;
}

int conn_fd(const struct conn *c)
{
    return c->fd;
}

struct session *conn_session(struct conn *c)
{
    return &c->session;
}

uint64_t conn_head_us(const struct conn *c)
{
    return c->head_us;
}

bool conn_is_unseen(struct conn *c)
{
    uint32_t now_s = (uint32_t)c->m.core->wall_s;
    if (c->seen_s != 0 && now_s - c->seen_s < SEEN_EVERY_S)
        return false;
    c->seen_s = now_s;
    return true;
}

/* ---- for net.c ---- */

void conns_begin(struct net_core *n, uint32_t max)
{
    list_init(&n->conns);
    list_init(&n->idle);
    stock_init(&n->conn_stock, sizeof(struct conn), max);
    stock_init(&n->request_stock,
               sizeof(struct intake) + n->core->server->net->ops->request_bytes, max);
    stock_init(&n->big_stock, INTAKE_BIG_BYTES, max);
}

void conns_drain(struct net_core *n)
{
    LIST_EACH(&n->conns, struct conn, node, conn)
        if (conn->m.at == AT_conn_HEAD || conn->m.at == AT_conn_SHAKE)
            machine_wake(&conn->m);
}

void conns_cut(struct net_core *n)
{
    LIST_EACH(&n->conns, struct conn, node, conn)
        reset_at_close(conn);
}
