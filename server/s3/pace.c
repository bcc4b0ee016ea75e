/* How fast a client takes its answer: sends for fast ones, nothing held for slow ones.
 *
 * A fast client is sent up to 2 MiB at once, which the kernel holds until they are taken. One that
 * needs longer than a second for that is *slow*, or pauses (loaders do, for minutes): its send is
 * stopped, everything is given back, and from then on a small piece is fetched whenever the socket
 * has room, sent as far as it is taken, and given back.
 *
 * Invariants:
 *  1. For a slow client nothing is held while it takes nothing: neither pieces nor buffers of the
 *     kernel's beyond the socket's own.
 *  2. Each byte that the socket took counts once, also those of a send that was stopped; a piece
 *     that was sent in part begins behind them.
 *  3. With TLS what was sealed is out as far as pieces are concerned; the rest of it leaves before
 *     anything else does, and the answer ends behind it.
 *  4. Slow clients are sent copies. Lent pages would stay in their sockets for as long as they
 *     pause, out of reach of the pool's limit.
 *
 * Life: part of a GET, from its first send to its end.
 * Failure: the client is gone, which ends the request; the send deadline is the connection's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

enum {
    /* with the kernel at once: fairness between connections of a core */
    SEND_BYTES_MAX = 2 * MIB,
    /* the first ones behind a stall: of eight whose bytes come in one turn the last would wait for
     * 14 MiB of others (the steps before its own took 1 to 6 ms, measured) */
    FEED_BYTES_MAX = 256 * KIB,
    STALLED_MS = 1000,               /* a send that takes longer: the client is slow, or pauses */
    FAST_BYTES = 2 * MIB,            /* taken within STALLED_MS: it is not slow any more */
};

static struct req *req_of(struct get *g)
{
    return container_of(g, struct req, get);
}

/* ---- what is sent ---- */

/* Bytes that were served before will be served again: their pages are lent. So are those of others
 * as long as nothing has to leave the memory: a cold GiB takes 0.41 s of CPU instead of 0.47.
 * Later they are copied (0.23 s of CPU per GB from disk instead of 0.44): what was lent gets new
 * pages when it leaves, and a data set that only streams through keeps its memory mapped. */
static bool may_lend(struct get *g)
{
    const struct req *r = req_of(g);

    for (unsigned i = 0; i < g->sending; i++) {
        const struct piece *p = get_piece(g, i);
        if (p->wait.part)
            return false;            /* it is still written to, behind these bytes */
        if (p->source != SOURCE_MEMORY && !pool_keeps(g->m.core->server->cache, p->buffer))
            return false;
    }
    return !g->slow && send_lends(&r->send, r->conn);
}

bool pace_gather(struct get *g)
{
    struct req *r = req_of(g);
    uint32_t bytes = 0, most = r->starved_us ? FEED_BYTES_MAX : SEND_BYTES_MAX;
    send_reset(&r->send);
    g->counted = 0;
    r->send.some = g->slow;
    if (g->count == 0 || get_piece(g, 0)->state != PIECE_READY)
        return g->left && g->count == 0;
    if (!g->head_sent) {
        send_add(&r->send, r->out.at + g->head_out, (uint32_t)r->out.len - g->head_out);
        r->send.copied = 1;
    }
    while (g->sending < g->count && send_room(&r->send) && bytes < most) {
        struct piece *p = get_piece(g, g->sending);
        if (p->state != PIECE_READY || (g->slow && g->sending > 0))
            break;
        uint32_t part = (uint32_t)min_u64(p->len, most - bytes);
        send_add(&r->send, p->buffer->mem + (p->at - p->unit_at), part);
        p->state = PIECE_SENDING;
        bytes += part;
        g->sending++;
    }
    r->send.lend = may_lend(g);
    for (unsigned i = 0; r->send.lend && i < g->sending; i++)
        buffer_set_lent(get_piece(g, i)->buffer);
    return true;
}

void pace_send(struct get *g)
{
    struct req *r = req_of(g);
    g->has_room = false;
    g->send_ms = g->m.core->now_ms;
    /* It may stand far out: for memory it waited longer. */
    if (g->timer.at_ms == 0 || g->timer.at_ms > g->send_ms + STALLED_MS)
        timer_set(&g->timer, &g->m, STALLED_MS);
    send_go(&r->send, r->conn, &g->m);
}

/* ---- what was taken ---- */

/* The next n bytes of the answer are out, the head's first. */
static void count_out(struct get *g, uint32_t n)
{
    struct req *r = req_of(g);
    if (!g->head_sent) {
        uint32_t head = (uint32_t)min_u64(n, r->out.len - g->head_out);
        g->head_out += head;
        g->head_sent = g->head_out == r->out.len;
        n -= head;
    }
    while (n > 0) {
        struct piece *p = get_piece(g, 0);
        uint32_t took = (uint32_t)min_u64(n, p->len);
        r->source_bytes[p->source] += took;
        g->sent += took;
        p->at += took;
        p->len -= took;
        n -= took;
        if (p->len > 0)
            return;
        piece_release(g, p);
        g->first = (g->first + 1) % GET_DEPTH;
        g->count--;
        g->sending--;
    }
}

static void go_slow(struct get *g)
{
    if (!g->slow)
        metric_gauge_add(METRIC_CONN_STALLED, 0, 1);
    g->slow = g->stalled = true;
    g->pace_ms = g->m.core->now_ms;
    g->pace_bytes = 0;
}

static void go_fast(struct get *g)
{
    if (g->slow)
        metric_gauge_add(METRIC_CONN_STALLED, 0, -1);
    g->slow = g->stalled = false;
}

/* A slow client took n bytes. */
static void judge_pace(struct get *g, uint32_t n)
{
    uint64_t now_ms = g->m.core->now_ms;
    g->pace_bytes += n;
    if (now_ms - g->pace_ms > STALLED_MS) {
        g->pace_ms = now_ms;
        g->pace_bytes = 0;
    } else if (g->pace_bytes >= FAST_BYTES) {
        go_fast(g);
    }
}

enum err pace_sent(struct get *g)
{
    struct req *r = req_of(g);
    enum err why;
    bool whole = send_accept(&r->send, r->conn, &why);
    if (why != OK)
        return why;
    if (g->awaits) {                 /* there is room */
        g->awaits = false;
        g->has_room = true;
        g->stalled = false;
        return OK;
    }
    uint32_t took = r->send.done - g->counted;
    g->counted = r->send.done;
    g->left = send_left(r->conn);
    count_out(g, took);
    if (!g->slow && !whole) {
        send_go(&r->send, r->conn, &g->m);
        return OK;
    }
    for (; g->sending > 0; g->sending--) /* what is left: a slow client's, or behind a first part */
        get_piece(g, g->sending - 1)->state = PIECE_READY;
    if (!g->slow)
        return OK;
    g->stalled = true;
    judge_pace(g, took);
    return OK;
}

/* ---- slow clients ---- */

void pace_watch(struct get *g)
{
    struct req *r = req_of(g);
    if (!timer_take(&g->timer) || !r->send.op.busy || g->awaits)
        return;
    uint64_t waited = g->m.core->now_ms - g->send_ms;
    if (waited < STALLED_MS) {
        timer_set(&g->timer, &g->m, STALLED_MS - waited);
        return;
    }
    if (!g->slow)
        go_slow(g);
    send_stop(&r->send, &g->m);
    timer_set(&g->timer, &g->m, STALLED_MS); /* to ask again, if that came between two polls */
}

void pace_await(struct get *g)
{
    struct req *r = req_of(g);
    g->awaits = true;
    send_await(&r->send, r->conn, &g->m);
}

void pace_end(struct get *g)
{
    go_fast(g);
}
