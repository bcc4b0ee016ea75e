/* MACHINE of one client connection: head, request, what is left of a body, the next head, close.
 *
 * Invariants:
 *  1. `intake` (head bytes, parsed head, the request's memory) exists from the first byte of a head
 *     to the end of its request; an idle connection has none.
 *  2. In BUSY the request owns the sending side; nothing is received, so a pipelining client is
 *     held back by TCP.
 *  3. The head deadline is absolute; the send deadline runs while a send is with the kernel and
 *     makes no progress.
 *  4. Whatever was refused is answered once and closed, reading a little so that the answer is not
 *     lost to a reset.
 *
 * Life: listen.c opens it; it ends by itself and gives itself back to its core's stock.
 * Failure: the peer vanishes, deadlines pass, memory is short: the socket is closed, with words
 * only in metrics. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "server/net/net.h"

#define CONN_STEPS(S)                                                                              \
    S(conn, HEAD) S(conn, REQUEST) S(conn, BUSY) S(conn, REFUSE) S(conn, BODY) S(conn, LINGER)     \
    S(conn, DRAIN) S(conn, END)

enum {
    RECV_BYTES = 4 * KIB,            /* what one receive brings at most */
    INTAKE_BYTES = 8 * KIB,          /* inline room: nearly every head */
    BIG_BYTES = HTTP_HEAD_BYTES_MAX + RECV_BYTES,
    DISCARD_BYTES_MAX = 64 * KIB,    /* of an unread body */
    LINGER_BYTES_MAX = 1 * MIB,
    LINGER_MS = 2000,
    NO_BUFFER_MS = 8,
    REFUSAL_BYTES = 2 * KIB,
};

struct intake {
    struct http_head head;
    char *bytes, *big;               /* bytes = small or big */
    uint32_t len, used;              /* received; of those, the head's */
    char small[INTAKE_BYTES];
    _Alignas(16) char request[];     /* ops->request_bytes */
};

struct conn {
    struct machine m;
    struct node node;                /* in the core's list */
    struct op recv, close;
    struct timer timer, pause;       /* pause: no provided buffer was free */
    struct net_core *net;
    struct intake *intake;
    struct send send;                /* refusals */
    char *refusal;
    uint64_t head_us, body_left, lingered;
    uint64_t took_ms, rest_ms;       /* the send deadline's clock, and when it was stopped */
    int fd;
    bool expect_idle, request_over, seen, counted_active, sending;
    uint8_t fate, end_label;
    enum http_verdict verdict;
    struct sockaddr_storage address;
    char peer[INET6_ADDRSTRLEN];
};

STEP_TABLE(conn, CONN_STEPS)

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
    in->len = in->used = 0;
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

/* Room for one more receive. */
static bool make_room(struct conn *c)
{
    struct intake *in = c->intake;
    if (in->len + RECV_BYTES <= (in->big ? BIG_BYTES : INTAKE_BYTES))
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
    bool fits = take_intake(c) && make_room(c);
    if (fits) {
        if (c->intake->len == 0)
            timer_set(&c->timer, &c->m, c->m.core->server->config->server_header_timeout);
        memcpy(c->intake->bytes + c->intake->len, got.at, got.len);
        c->intake->len += (uint32_t)got.len;
    }
    core_recv_give(c->m.core, &c->recv);
    return fits ? OK : ERR_MEMORY;
}

static enum turn parse(struct conn *c)
{
    struct intake *in = c->intake;
    size_t used = 0;
    c->verdict = http_parse_request(in->bytes, in->len, &in->head, &used);
    in->used = (uint32_t)used;
    if (c->verdict == HTTP_MORE)
        return WAIT;
    timer_stop(&c->timer);
    return c->verdict == HTTP_OK ? GO(conn, c, REQUEST) : GO(conn, c, REFUSE);
}

/* ---- steps ---- */

static enum turn conn_HEAD(struct conn *self) /* no request; perhaps the first bytes of one */
{
    bool starved = false;
    if (op_take(&self->recv)) {
        starved = self->recv.res == -ENOBUFS;
        enum err e = take_received(self);
        if (e != OK)
            return leave(self, e == ERR_PEER && !self->intake ? END_CLIENT : END_ERROR);
    }
    if (self->intake && self->intake->len > 0 && parse(self) == AGAIN)
        return AGAIN;
    if (self->net->draining && !self->intake)
        return leave(self, END_SERVER);
    if (timer_take(&self->timer))
        return leave(self, END_TIMEOUT);
    if (starved)
        timer_set(&self->pause, &self->m, NO_BUFFER_MS);
    if (self->recv.busy || self->pause.at_ms != 0)
        return WAIT;
    if (!self->intake)
        timer_set(&self->timer, &self->m, self->m.core->server->config->server_idle_timeout);
    op_recv_pool(&self->m, &self->recv, self->fd, self->expect_idle);
    return WAIT;
}

static enum turn conn_REQUEST(struct conn *self) /* a whole head; nothing is armed */
{
    struct intake *in = self->intake;
    self->head_us = self->m.core->now_us;
    self->request_over = false;
    self->body_left = in->head.framing == HTTP_BODY_LENGTH ? in->head.length : 0;
    const struct request_ops *ops = self->m.core->server->net->ops;
    ops->begin(self, in->request, &in->head);
    self->m.at = AT_conn_BUSY;
    return WAIT;
}

/* the request runs; its end or the send deadline wakes us */
static enum turn conn_BUSY(struct conn *self)
{
    if (timer_take(&self->timer) && self->sending && !self->request_over) {
        uint64_t limit = self->m.core->server->config->server_send_timeout;
        uint64_t waited = self->m.core->now_ms - self->took_ms;
        if (waited >= limit) {
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
    if (self->fate != CONN_KEEP)
        return self->fate == CONN_CUT ? leave(self, self->end_label) : GO(conn, self, LINGER);
    return GO(conn, self, BODY);
}

/* answered; drop what is left of the body, then the next head */
static enum turn conn_BODY(struct conn *self)
{
    struct intake *in = self->intake;
    if (in->head.framing == HTTP_BODY_CHUNKED || self->body_left > DISCARD_BYTES_MAX)
        return GO(conn, self, LINGER);
    if (op_take(&self->recv)) {
        enum err e = take_received(self);
        if (e != OK)
            return leave(self, END_CLIENT);
    }
    uint32_t there = in->len - in->used;
    uint32_t drop = (uint32_t)min_u64(there, self->body_left);
    self->body_left -= drop;
    memmove(in->bytes + in->used, in->bytes + in->used + drop, there - drop);
    in->len -= drop;
    if (timer_take(&self->timer))
        return leave(self, END_TIMEOUT);
    if (self->body_left > 0) {
        if (!self->recv.busy) {
            timer_set(&self->timer, &self->m, self->m.core->server->config->server_header_timeout);
            op_recv_pool(&self->m, &self->recv, self->fd, false);
        }
        return WAIT;
    }
    timer_stop(&self->timer);
    there -= drop;
    self->expect_idle = there == 0;
    if (there == 0) {
        give_intake(self);
    } else {                         /* the next head was pipelined */
        memmove(in->bytes, in->bytes + in->used, there);
        in->len = there;
        timer_set(&self->timer, &self->m, self->m.core->server->config->server_header_timeout);
    }
    return GO(conn, self, HEAD);
}

static enum turn conn_REFUSE(struct conn *self) /* the head is malformed */
{
    if (send_ended(&self->send)) {
        enum err why;
        if (send_accept(&self->send, self, &why))
            return GO(conn, self, LINGER);
        if (why != OK)
            return leave(self, END_ERROR);
        send_go(&self->send, self, &self->m);
        return WAIT;
    }
    if (self->send.op.busy) {
        if (timer_take(&self->timer))
            shutdown(self->fd, SHUT_RDWR);
        return WAIT;
    }
    self->refusal = stock_take_dirty(&self->net->big_stock);
    if (!self->refusal)
        return leave(self, END_ERROR);
    struct text t;
    text_init(&t, self->refusal, BIG_BYTES);
    self->m.core->server->net->ops->refuse(self, self->verdict, &t);
    self->end_label = END_ERROR;
    send_reset(&self->send);
    send_add(&self->send, t.at, (uint32_t)t.len);
    send_go(&self->send, self, &self->m);
    timer_set(&self->timer, &self->m, LINGER_MS);
    return WAIT;
}

/* The answer is out and the connection ends, but unread bytes in our queue would make the kernel
 * send a reset that may destroy the answer: read and drop for a short while (RFC 9112 9.6). */
static enum turn conn_LINGER(struct conn *self)
{
    if (op_take(&self->recv)) {
        if (self->recv.res > 0) {
            self->lingered += (uint64_t)self->recv.res;
            core_recv_give(self->m.core, &self->recv);
        } else if (self->recv.res != -ENOBUFS) {
            return leave(self, self->end_label);
        }
    } else if (!self->recv.busy) {
        shutdown(self->fd, SHUT_WR);
        timer_set(&self->timer, &self->m, LINGER_MS);
    }
    if (timer_take(&self->timer) || self->lingered > LINGER_BYTES_MAX)
        return leave(self, self->end_label);
    if (!self->recv.busy)
        op_recv_pool(&self->m, &self->recv, self->fd, false);
    return WAIT;
}

static enum turn conn_DRAIN(struct conn *self) /* the kernel may still hold our buffers */
{
    timer_stop(&self->timer);
    timer_stop(&self->pause);
    if (self->fate == CONN_CUT) {    /* a reset tells the client that the body is not whole */
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(self->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }
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
    give_intake(c);
    if (c->refusal)
        stock_give(&n->big_stock, c->refusal);
    metric_gauge_add(METRIC_CONNECTIONS, CONN_IDLE, -1);
    metric_add(m->core->metrics, METRIC_CONNECTIONS_TOTAL, c->end_label, 1);
    atomic_fetch_sub_explicit(&net->connections, 1, memory_order_relaxed);
    node_remove(&c->node);
    stock_give(&n->conn_stock, c);
    listeners_wake(n);
}

/* ---- for listen.c and for requests ---- */

static void name_peer(struct conn *c)
{
    socklen_t len = sizeof(c->address);
    if (getpeername(c->fd, (struct sockaddr *)&c->address, &len) != 0)
        c->address.ss_family = AF_UNSPEC;
    const struct sockaddr *sa = (const struct sockaddr *)&c->address;
    const void *at = sa->sa_family == AF_INET6
                         ? (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr
                         : (const void *)&((const struct sockaddr_in *)sa)->sin_addr;
    if (sa->sa_family == AF_UNSPEC || !inet_ntop(sa->sa_family, at, c->peer, sizeof(c->peer)))
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
    list_push(&n->conns, &c->node);
    atomic_fetch_add_explicit(&core->server->net->connections, 1, memory_order_relaxed);
    metric_gauge_add(METRIC_CONNECTIONS, CONN_IDLE, 1);
    MACHINE_BEGIN(conn, c, core, conn_over);
}

void conn_done(struct conn *c, enum conn_fate fate)
{
    must(c->m.at == AT_conn_BUSY && !c->request_over);
    c->request_over = true;
    c->fate = (uint8_t)fate;
    machine_wake(&c->m);
}

void conn_sending(struct conn *c)
{
    uint64_t now_ms = c->m.core->now_ms, limit = c->m.core->server->config->server_send_timeout;
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
    return (const struct sockaddr *)&c->address;
}

bool conn_stopping(const struct conn *c)
{
    return c->net->draining;
}

int conn_fd(const struct conn *c)
{
    return c->fd;
}

uint64_t conn_head_us(const struct conn *c)
{
    return c->head_us;
}

bool conn_first_request(struct conn *c)
{
    bool first = !c->seen;
    c->seen = true;
    return first;
}

/* ---- one core's part ---- */

struct net_core *net_core(struct core *c)
{
    return c->net;
}

enum err net_core_begin(struct core *c)
{
    struct net *net = c->server->net;
    struct net_core *n = mem_take(sizeof(*n));
    if (!n)
        return ERR_MEMORY;
    c->net = n;
    n->core = c;
    list_init(&n->conns);
    uint32_t max = (uint32_t)net->connections_max + 1024; /* a turn's accepts may pass the limit */
    stock_init(&n->conn_stock, sizeof(struct conn), max);
    stock_init(&n->request_stock, sizeof(struct intake) + net->ops->request_bytes, max);
    stock_init(&n->big_stock, BIG_BYTES, max);
    n->listener = listeners_make(net->address_count);
    if (!n->listener)
        return ERR_MEMORY;
    listeners_begin(n);
    return OK;
}

void net_core_drain(struct core *c)
{
    struct net_core *n = c->net;
    n->draining = true;
    listeners_drain(n);
    LIST_EACH(&n->conns, struct conn, node, conn)
        if (conn->m.at == AT_conn_HEAD)
            machine_wake(&conn->m);
}

bool net_core_idle(const struct core *c)
{
    const struct net_core *n = c->net;
    return n->listeners_alive == 0 && list_empty(&n->conns);
}

void net_core_end(struct core *c)
{
    struct net_core *n = c->net;
    if (net_core_idle(c)) {          /* after a cut the process ends with what is left */
        stock_fini(&n->conn_stock);
        stock_fini(&n->request_stock);
        stock_fini(&n->big_stock);
        mem_give(n->listener);
        mem_give(n);
        c->net = NULL;
    }
}

uint64_t net_connection_count(const struct server *s)
{
    return atomic_load_explicit(&s->net->connections, memory_order_relaxed);
}
