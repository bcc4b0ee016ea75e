/* One connection to upstream: TCP, TLS over memory, whole sends, receives straight into the
 * caller's memory.
 *
 * Invariants:
 *  1. A link belongs to one machine at a time, and its ops are that machine's: while it idles, none
 *     is busy.
 *  2. Plain bytes are received into the caller's memory; ciphertext goes to `cipher`, which is not
 *     touched again before the session has read all of it (TLS_WANT_IN).
 *  3. A connection without a clean TLS end was cut, whatever the sockets say.
 *
 * Life: link_open() -> link_dial() -> link_shake() -> any number of send and pull -> idle in the
 * pool, or link_settle() and the keeper's close. errno and -res become enum err here and in loop/.
 * Failure: an error is final for the link; its holder settles it and gives it to the keeper. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <unistd.h>

#include "conf.h"
#include "server/origin/origin.h"
#include "tls.h"

enum {
    CIPHER_BYTES = 64 * KIB,         /* four TLS records */
};

/* ---- birth and death ---- */

static int make_socket(const struct origin *o, int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP), on = 1;
    const char *congestion = o->config->server_congestion;

    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (congestion && congestion[0]) /* a missing algorithm costs throughput, not service */
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion));
    return fd;
}

/* A peer that is gone does not say so. What it does not acknowledge for half a connect deadline, be
 * it bytes or the kernel's question on a silent connection, it will not: the other half is left for
 * a new connection. Only once it stands, as the limit would count for the SYN as well. */
static void watch_peer(struct link *l)
{
    unsigned silent_ms = l->silent_ms;
    int on = 1, every_s = 1;

    setsockopt(l->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms));
    setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPIDLE, &every_s, sizeof(every_s));
    setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    setsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static bool open_session(struct link *l, const struct origin *o)
{
    if (!o->tls)
        return true;
    l->cipher = mem_take_aligned(CIPHER_BYTES, 4096);
    if (l->cipher)
        l->tls = tls_open(o->tls, o->endpoint.host, o->endpoint.host_is_address);
    return l->tls != NULL;
}

struct link *link_open(struct origin_part *part, const struct address *to)
{
    struct link *l = stock_take(&part->links);

    if (!l)
        return NULL;
    l->to = to->at;
    l->silent_ms = (uint32_t)min_u64(part->origin->config->upstream_connect_timeout / 2 + 1,
                                     INT32_MAX);
    l->fd = make_socket(part->origin, to->at.ss_family);
    if (l->fd >= 0 && open_session(l, part->origin)) {
        metric_gauge_add2(METRIC_UPSTREAM_CONNECTIONS, part->origin->label, CONN_ACTIVE, 1);
        return l;
    }
    if (l->fd >= 0)
        close(l->fd);
    mem_give(l->cipher);
    stock_give(&part->links, l);
    return NULL;
}

void link_free(struct origin_part *part, struct link *l)
{
    must(!l->send.busy && !l->recv.busy);
    if (l->tls)
        tls_close(l->tls);
    mem_give(l->cipher);
    stock_give(&part->links, l);
}

bool link_settle(struct link *l, struct machine *m)
{
    if (l->send.busy && !l->cancel_send.busy)
        op_cancel(m, &l->cancel_send, &l->send);
    if (l->recv.busy && !l->cancel_recv.busy)
        op_cancel(m, &l->cancel_recv, &l->recv);
    return !l->send.busy && !l->recv.busy && !l->cancel_send.busy && !l->cancel_recv.busy;
}

/* ---- connecting ---- */

void link_dial(struct link *l, struct machine *m, socklen_t len)
{
    op_connect(m, &l->send, l->fd, (const struct sockaddr *)&l->to, len);
}

enum link_state link_dialled(struct link *l, enum err *why)
{
    if (l->send.busy || !op_take(&l->send))
        return LINK_BUSY;
    if (l->send.res >= 0) {
        watch_peer(l);
        return LINK_OK;
    }
    *why = l->send.res == -ETIMEDOUT ? ERR_UPSTREAM_TIMEOUT : ERR_UPSTREAM_CONNECT;
    return LINK_BROKEN;
}

/* ---- ciphertext ---- */

static enum link_state tls_broken(struct link *l, enum err *why)
{
    snprintf(l->detail, sizeof(l->detail), "%s", tls_error(l->tls));
    *why = ERR_UPSTREAM_TLS;
    return LINK_BROKEN;
}

/* Takes what ended and keeps the sending side going. LINK_OK: nothing waits to be sent. */
static enum link_state flush(struct link *l, struct machine *m, enum err *why)
{
    if (op_take(&l->send)) {
        if (l->send.res <= 0) {
            *why = l->send.res == 0 ? ERR_UPSTREAM_RESET : op_socket_error(l->send.res, true);
            return LINK_BROKEN;
        }
        tls_sent(l->tls, (size_t)l->send.res);
    }
    if (l->send.busy)
        return LINK_BUSY;
    struct span out = tls_out(l->tls);
    if (out.len == 0)
        return LINK_OK;
    op_send(m, &l->send, l->fd, out.at, (uint32_t)out.len);
    return LINK_BUSY;
}

/* Ciphertext that arrived goes to the session. LINK_OK: the session may be asked. */
static enum link_state feed(struct link *l, enum err *why)
{
    if (l->recv.busy)
        return LINK_BUSY;
    if (!op_take(&l->recv))
        return LINK_OK;
    if (l->recv.res <= 0) {
        *why = l->recv.res == 0 ? ERR_UPSTREAM_RESET : op_socket_error(l->recv.res, true);
        return LINK_BROKEN;
    }
    if (tls_feed(l->tls, l->cipher, (size_t)l->recv.res) == (size_t)l->recv.res)
        return LINK_OK;
    *why = ERR_MEMORY;
    return LINK_BROKEN;
}

enum link_state link_shake(struct link *l, struct machine *m, enum err *why)
{
    if (!l->tls)
        return LINK_OK;
    enum link_state in = feed(l, why);
    if (in == LINK_BROKEN)
        return in;
    enum tls_want want = in == LINK_OK ? tls_handshake(l->tls) : TLS_WANT_IN;
    if (want == TLS_FAILED || want == TLS_EOF) {
        flush(l, m, why);            /* the alert is worth a try */
        return tls_broken(l, why);
    }
    if (flush(l, m, why) == LINK_BROKEN)
        return LINK_BROKEN;
    if (want == TLS_DONE)
        return LINK_OK;
    if (in == LINK_OK && want == TLS_WANT_IN)
        op_recv(m, &l->recv, l->fd, l->cipher, CIPHER_BYTES);
    return LINK_BUSY;
}

/* ---- sending ---- */

enum link_state link_send(struct link *l, struct machine *m, struct span bytes, enum err *why)
{
    if (l->tls) {
        if (tls_write(l->tls, bytes.at, bytes.len) != TLS_DONE)
            return tls_broken(l, why);
        return link_sent(l, m, why);
    }
    l->out = bytes.at;
    l->out_len = (uint32_t)bytes.len;
    op_send(m, &l->send, l->fd, l->out, l->out_len);
    return LINK_BUSY;
}

enum link_state link_sent(struct link *l, struct machine *m, enum err *why)
{
    if (l->tls)
        return flush(l, m, why);
    if (l->send.busy)
        return LINK_BUSY;
    if (op_take(&l->send)) {
        if (l->send.res <= 0) {
            *why = l->send.res == 0 ? ERR_UPSTREAM_RESET : op_socket_error(l->send.res, true);
            return LINK_BROKEN;
        }
        l->out += l->send.res;
        l->out_len -= (uint32_t)l->send.res;
    }
    if (l->out_len == 0)
        return LINK_OK;
    op_send(m, &l->send, l->fd, l->out, l->out_len); /* a short send: the rest */
    return LINK_BUSY;
}

/* ---- receiving ---- */

static enum link_state pull_plain(struct link *l, struct machine *m, void *mem, size_t cap,
                                  size_t *got, enum err *why)
{
    if (l->recv.busy)
        return LINK_BUSY;
    if (!op_take(&l->recv)) {
        op_recv(m, &l->recv, l->fd, mem, (uint32_t)min_u64(cap, UINT32_MAX / 2));
        return LINK_BUSY;
    }
    must(l->recv.mem == mem || l->recv.res <= 0);
    if (l->recv.res == 0)
        return LINK_END;
    if (l->recv.res < 0) {
        *why = op_socket_error(l->recv.res, true);
        return LINK_BROKEN;
    }
    *got = (size_t)l->recv.res;
    return LINK_OK;
}

static enum link_state pull_tls(struct link *l, struct machine *m, void *mem, size_t cap,
                                size_t *got, enum err *why)
{
    enum link_state in = feed(l, why);

    if (in == LINK_BROKEN)
        return in;
    enum tls_want want = in == LINK_OK ? tls_read(l->tls, mem, cap, got) : TLS_WANT_IN;
    if (want == TLS_FAILED)
        return tls_broken(l, why);
    if (want == TLS_DONE)
        return LINK_OK;
    if (want == TLS_EOF)
        return LINK_END;
    if (flush(l, m, why) == LINK_BROKEN) /* a key update wants an answer */
        return LINK_BROKEN;
    if (in == LINK_OK && want == TLS_WANT_IN)
        op_recv(m, &l->recv, l->fd, l->cipher, CIPHER_BYTES);
    return LINK_BUSY;
}

enum link_state link_pull(struct link *l, struct machine *m, void *mem, size_t cap, size_t *got,
                          enum err *why)
{
    must(cap > 0);
    return l->tls ? pull_tls(l, m, mem, cap, got, why) : pull_plain(l, m, mem, cap, got, why);
}

bool link_clean(struct link *l)
{
    char byte;
    size_t got = 0;

    if (l->send.busy || l->recv.busy || l->cancel_send.busy || l->cancel_recv.busy)
        return false;
    if (!l->tls)
        return true;                 /* the socket is looked at when it is taken again */
    return tls_read(l->tls, &byte, 1, &got) == TLS_WANT_IN && tls_out(l->tls).len == 0;
}
