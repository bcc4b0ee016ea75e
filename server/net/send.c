/* Bytes to a client: a gather list that goes out in one system call when the socket takes it.
 *
 * Invariants:
 *  1. Pieces leave in order; what they show must stay until the send is accepted as whole.
 *  2. One send of a connection is under way at a time.
 *  3. Lent pieces are memory that its owner will not write again in place (op_send_pages).
 *  4. With TLS `done` counts bytes that were sealed: their pieces are no longer looked at, and what
 *     is sealed goes out before anything else does, whatever becomes of the list.
 *  5. The send deadline counts the time in which the client takes nothing, whether a send is under
 *     way, was stopped, or room is waited for; it rests while the request has nothing to send.
 *
 * Life: embedded in the request's machine; reset for every list.
 * Failure: a completion with an error means that the peer is gone; a short one, or a stopped one,
 * is gone on with. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>

#include "server/net/net.h"

void send_reset(struct send *s)
{
    must(!send_busy(s));
    s->count = s->copied = 0;
    s->want = s->done = 0;
    s->lend = s->some = false;
}

bool send_room(const struct send *s)
{
    return s->count < SEND_PIECES;
}

void send_add(struct send *s, const void *mem, uint32_t len)
{
    must(send_room(s) && len > 0);
    s->piece[s->count++] = (struct iovec){(void *)(uintptr_t)mem, len};
    s->want += len;
}

void send_skip(struct send *s, uint32_t n)
{
    unsigned kept = 0, copied = s->copied;
    for (unsigned i = 0; i < s->count; i++) {
        struct iovec v = s->piece[i];
        size_t gone = min_u64(n, v.iov_len);
        n -= (uint32_t)gone;
        if (gone == v.iov_len && i < copied)
            s->copied--;
        if (gone < v.iov_len)
            s->piece[kept++] = (struct iovec){(char *)v.iov_base + gone, v.iov_len - gone};
    }
    s->count = kept;
}

bool send_lends(const struct send *s, struct conn *c)
{
    return s->want >= LEND_BYTES && !conn_session(c)->tls;
}

bool send_left(struct conn *c)
{
    return conn_session(c)->out != NULL;
}

/* A list that cannot be sealed fails as any other does: by a completion (EBADF). */
static void go_sealed(struct send *s, struct session *t, struct conn *c, struct machine *m)
{
    if (!t->out && !session_seal(t, net_core(conn_core(c)), s))
        op_send(m, &s->op, -1, "", 1);
    else
        (s->some ? op_send_some : op_send)(m, &s->op, conn_fd(c), t->out + t->from,
                                           t->to - t->from);
}

void send_go(struct send *s, struct conn *c, struct machine *m)
{
    struct session *t = conn_session(c);
    must(s->count > 0 || t->out);
    conn_sending(c);
    if (t->tls) {
        go_sealed(s, t, c, m);
        return;
    }
    s->msg = (struct msghdr){.msg_iov = s->piece, .msg_iovlen = s->count};
    if (s->lend && s->want - s->done >= LEND_BYTES) {
        op_send_pages(m, &s->op, conn_fd(c), &s->msg, s->copied);
        return;
    }
    if (s->count > 1) {
        (s->some ? op_sendmsg_some : op_sendmsg)(m, &s->op, conn_fd(c), &s->msg);
        return;
    }
    struct iovec one = s->piece[0];  /* SEND needs no copy of the list in the kernel */
    (s->some ? op_send_some : op_send)(m, &s->op, conn_fd(c), one.iov_base, (uint32_t)one.iov_len);
}

void send_stop(struct send *s, struct machine *m)
{
    if (s->op.busy && !s->cancel.busy)
        op_cancel(m, &s->cancel, &s->op);
}

void send_await(struct send *s, struct conn *c, struct machine *m)
{
    send_reset(s);
    conn_sending(c);
    op_poll_out(m, &s->op, conn_fd(c));
}

/* What the completion says: bytes taken, 0 for nothing yet, or below 0: the peer is gone. */
static int32_t taken(const struct send *s)
{
    if (s->op.kind == OPK_POLL_OUT && s->op.res != -ECANCELED)
        return s->op.res & (POLLERR | POLLHUP) ? -EPIPE : 0;
    if (s->op.res == -ECANCELED)
        return 0;
    return s->op.res == 0 ? -EPIPE : s->op.res;
}

bool send_accept(struct send *s, struct conn *c, enum err *why)
{
    int32_t n = taken(s);
    if (n == -ENOSYS && s->lend) {   /* no pipe: copy */
        s->lend = false;
        *why = OK;
        return false;
    }
    *why = op_socket_error(n, false);
    if (*why != OK)
        return false;
    struct session *t = conn_session(c);
    if (n > 0)
        conn_took(c);
    if (t->tls && n > 0)
        session_sent(t, net_core(conn_core(c)), (uint32_t)n);
    if (!t->tls) {
        s->done += (uint32_t)n;
        send_skip(s, (uint32_t)n);
    }
    bool all = s->done == s->want && !t->out;
    if (all || s->op.kind == OPK_POLL_OUT) /* with room the turn is the request's */
        conn_sent(c);
    return all;
}
