/* The TLS side of a client connection: bytes that came, bytes to go, no socket.
 *
 * Invariants:
 *  1. Sealed bytes leave in the order in which they were sealed; what the session says on its own
 *     (tickets, key updates, alerts) goes before what is sealed later.
 *  2. Memory for sealed bytes is there from sealing to the last byte's leaving: a connection that
 *     rests, or waits for disk or upstream, has none.
 *  3. A core has SESSION_BIG_MAX large pieces of such memory; who finds none goes on with a small
 *     one, record by record.
 *
 * Life: embedded in a connection; the session exists from its first received byte to the
 * connection's end.
 * Failure: tells FAILED or false; the connection says why and ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/net.h"
#include "tls.h"

/* ---- in ---- */

bool session_feed(struct session *t, struct span bytes)
{
    return tls_feed(t->tls, bytes.at, bytes.len) == bytes.len;
}

bool session_keep(struct session *t)
{
    return tls_keep(t->tls);
}

enum session_step session_shake(struct session *t)
{
    switch (tls_handshake(t->tls)) {
    case TLS_DONE: return SESSION_DONE;
    case TLS_WANT_IN:
    case TLS_WANT_OUT: return SESSION_ON;
    case TLS_EOF:
    case TLS_FAILED: break;
    }
    return SESSION_FAILED;
}

enum session_step session_read(struct session *t, void *out, size_t cap, size_t *got)
{
    *got = 0;
    switch (tls_read(t->tls, out, cap, got)) {
    case TLS_DONE:
    case TLS_WANT_IN:
    case TLS_WANT_OUT: return SESSION_ON;
    case TLS_EOF: t->ended = true; return SESSION_ON;
    case TLS_FAILED: break;
    }
    return SESSION_FAILED;
}

/* ---- out ---- */

static bool take_room(struct session *t, struct net_core *n, uint32_t plain)
{
    t->from = t->to = 0;
    t->cap = SESSION_OUT_BYTES;
    t->out = plain > TLS_RECORD_BYTES ? stock_take_dirty(&n->sealed_stock) : NULL;
    if (t->out)
        return true;
    t->cap = SESSION_SMALL_BYTES;
    t->out = stock_take_dirty(&n->small_sealed_stock);
    return t->out != NULL;
}

static void give_room(struct session *t, struct net_core *n)
{
    if (t->out)
        stock_give(t->cap == SESSION_OUT_BYTES ? &n->sealed_stock : &n->small_sealed_stock,
                   t->out);
    t->out = NULL;
}

/* False: it fills the room alone. */
static bool add_own_words(struct session *t)
{
    for (struct span own; (own = tls_out(t->tls)).len > 0;) {
        size_t len = min_u64(own.len, t->cap - t->to);
        memcpy(t->out + t->to, own.at, len);
        t->to += (uint32_t)len;
        tls_sent(t->tls, len);
        if (len < own.len)
            return false;
    }
    return true;
}

/* The next plain bytes: in place when they fill a record, else gathered from several pieces. */
static struct span next_plain(const struct send *s, char record[TLS_RECORD_BYTES], size_t most)
{
    struct span first = span_make(s->piece[0].iov_base, s->piece[0].iov_len);
    size_t len = 0;
    if (first.len >= most)
        return span_make(first.at, most);
    if (first.len >= TLS_RECORD_BYTES)
        return span_make(first.at, round_down(first.len, TLS_RECORD_BYTES));
    if (s->count == 1)
        return first;
    most = min_u64(most, TLS_RECORD_BYTES);
    for (unsigned i = 0; i < s->count && len < most; i++) {
        size_t part = min_u64(s->piece[i].iov_len, most - len);
        memcpy(record + len, s->piece[i].iov_base, part);
        len += part;
    }
    return span_make(record, len);
}

bool session_seal(struct session *t, struct net_core *n, struct send *s)
{
    size_t sealed;
    if (!take_room(t, n, s->want - s->done))
        return false;
    if (!add_own_words(t))
        return true;
    while (s->count > 0) {
        size_t most = tls_sealable(t->cap - t->to);
        if (most == 0 || (most < TLS_RECORD_BYTES && most < s->want - s->done))
            break;                   /* rather a whole record in the next send */
        struct span plain = next_plain(s, n->record, most);
        if (tls_seal(t->tls, plain.at, plain.len, t->out + t->to, t->cap - t->to, &sealed) !=
            TLS_DONE)
            return false;
        t->to += (uint32_t)sealed;
        s->done += (uint32_t)plain.len;
        send_skip(s, (uint32_t)plain.len);
    }
    return true;
}

void session_sent(struct session *t, struct net_core *n, uint32_t len)
{
    must(len <= t->to - t->from);
    t->from += len;
    if (t->from == t->to)
        give_room(t, n);
}

void session_end(struct session *t, struct net_core *n)
{
    give_room(t, n);
    tls_close(t->tls);
    t->tls = NULL;
}
