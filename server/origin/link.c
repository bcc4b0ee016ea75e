/* One connection to upstream: a race between addresses, TCP, TLS over memory, sends that tell how
 * far they are, receives straight into the caller's memory, both at the same time.
 *
 * Invariants:
 *  1. A link belongs to one machine at a time, and its ops are that machine's: while it idles, none
 *     is busy.
 *  2. Plain bytes are received into the caller's memory; ciphertext goes to `cipher`, which is not
 *     touched again before the session has read all of it (TLS_WANT_IN).
 *  3. A connection without a clean TLS end was cut, whatever the sockets say.
 *  4. While it connects, two addresses at most are dialled at a time (RFC 8305): the next one
 *     begins when one fails or 250 ms passed; the first success wins, the other socket is closed
 *     before the link is used. One that was overtaken rests like a failed one.
 *
 * Life: link_open() -> link_dial() -> link_shake() -> any number of send and pull -> idle in the
 * pool, or link_settle() and the keeper's close. errno and -res become enum err here and in loop/.
 * Failure: an error is final for the link; its holder settles it and gives it to the keeper. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "conf.h"
#include "server/origin/inside.h"
#include "tls.h"

enum {
    CIPHER_BYTES = 64 * KIB,         /* four TLS records */
    HEAD_START_MS = 250,             /* RFC 8305 5: Connection Attempt Delay */
    LANE_MS_MAX = 1000,              /* of two silent ones, while others are left */
};

/* ---- birth and death ---- */

static int make_socket(const struct origin *o, int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP), on = 1;
    const char *congestion = o->server->config->server_congestion;

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
    int on = 1, every_s = 1;

    l->patient_ms = 0;
    link_bear(l, 0);
    setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPIDLE, &every_s, sizeof(every_s));
    setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    setsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

void link_bear(struct link *l, uint64_t ms)
{
    uint32_t most_ms = (uint32_t)min_u64(max_u64(ms, l->silent_ms), INT32_MAX);

    if (most_ms == l->patient_ms)
        return;
    l->patient_ms = most_ms;
    setsockopt(l->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most_ms, sizeof(most_ms));
}

void link_tear(struct link *l)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
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

/* The lane will dial this address. False: no descriptor; it stays as it was. */
static bool aim(struct lane *a, const struct origin *o, const struct address *to)
{
    int fd = make_socket(o, to->at.ss_family);

    if (fd < 0)
        return false;
    if (a->fd >= 0)
        close(a->fd);
    *a = (struct lane){.to = to->at, .len = to->len, .fd = fd};
    return true;
}

struct link *link_open(struct origin_part *part, enum err *why)
{
    uint64_t most_ms = origin_config(part->origin, part->core)->connect_timeout;
    uint32_t tried = 0;
    struct address to;
    int place = addresses_pick(part->origin->addresses, part->core->now_ms, &tried, &to);
    struct link *l = place < 0 ? NULL : stock_take(&part->links);

    *why = place < 0 ? ERR_UPSTREAM_DNS : ERR_BUSY;
    if (!l)
        return NULL;
    l->origin = part->origin;
    l->silent_ms = (uint32_t)min_u64(most_ms / 2 + 1, INT32_MAX);
    l->fd = l->lane[0].fd = l->lane[1].fd = -1;
    l->tried = tried;
    if (aim(&l->lane[0], part->origin, &to) && open_session(l, part->origin)) {
        metric_gauge_add2(METRIC_UPSTREAM_CONNECTIONS, part->origin->label, CONN_ACTIVE, 1);
        return l;
    }
    if (l->lane[0].fd >= 0)
        close(l->lane[0].fd);
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

/* Nothing is under way: one socket stays, the link no longer connects. */
static void end_race(struct link *l, struct lane *keep)
{
    struct lane *other = &l->lane[keep == l->lane];

    op_take(&l->send);               /* a result nobody took must not be the next op's */
    op_take(&l->recv);
    l->fd = keep->fd;
    if (other->fd >= 0)
        close(other->fd);
    keep->fd = other->fd = -1;
}

static bool call_back(struct machine *m, struct op *op, struct op *cancel)
{
    if (op->busy && !cancel->busy)
        op_cancel(m, cancel, op);
    return !op->busy && !cancel->busy;
}

bool link_settle(struct link *l, struct machine *m)
{
    bool sent = call_back(m, &l->send, &l->cancel_send);
    bool received = call_back(m, &l->recv, &l->cancel_recv);

    if (!sent || !received)
        return false;
    if (l->fd < 0)
        end_race(l, &l->lane[l->lane[0].fd < 0]);
    return true;
}

/* ---- connecting ---- */

/* A lane's ops are those that the link will send and receive with. */
static struct op *op_of(struct link *l, const struct lane *a)
{
    return a == l->lane ? &l->send : &l->recv;
}

static struct op *cancel_of(struct link *l, const struct lane *a)
{
    return a == l->lane ? &l->cancel_send : &l->cancel_recv;
}

static bool is_free(struct link *l, const struct lane *a)
{
    return !a->dialling && !op_of(l, a)->busy && !cancel_of(l, a)->busy;
}

static void dial(struct link *l, struct machine *m, struct lane *a)
{
    a->dialling = true;
    a->since_ms = m->core->now_ms;
    op_connect(m, op_of(l, a), a->fd, (const struct sockaddr *)&a->to, a->len);
}

/* True: it failed. A success is told by l->winner. */
static bool take_lane(struct link *l, struct lane *a, struct addresses *all, uint64_t now_ms)
{
    struct op *op = op_of(l, a);

    if (!a->dialling || l->winner || !op_take(op))
        return false;
    a->dialling = false;
    if (op->res >= 0) {
        l->winner = a;
        return false;
    }
    if (op->res == -ENOMEM || op->res == -ENOBUFS) {
        l->dial_why = ERR_MEMORY;    /* ours: no address is the worse for it */
        return true;
    }
    bool silent = op->res == -ETIMEDOUT || op->res == -ECANCELED;
    l->dial_why = silent ? ERR_UPSTREAM_TIMEOUT : ERR_UPSTREAM_CONNECT;
    addresses_judge(all, &a->to, false, now_ms);
    return true;
}

/* One is connected: the other is called back, and rests if it had begun before. */
static enum link_state finish_race(struct link *l, struct machine *m, struct addresses *all)
{
    struct lane *other = &l->lane[l->winner == l->lane];
    uint64_t now_ms = m->core->now_ms;

    if (other->dialling && other->since_ms < l->winner->since_ms)
        addresses_judge(all, &other->to, false, now_ms);
    other->dialling = false;
    if (!call_back(m, op_of(l, other), cancel_of(l, other)))
        return LINK_BUSY;
    addresses_judge(all, &l->winner->to, true, now_ms);
    end_race(l, l->winner);
    watch_peer(l);
    return LINK_OK;
}

static bool others_left(const struct link *l, struct addresses *all)
{
    return addresses_left(all, l->tried);
}

/* The next address, if there is one. With both lanes in use the elder one makes room for it: it is
 * called back, and fails. False: a lane is just being called back, its wake will come. */
static bool dial_next(struct link *l, struct machine *m, struct addresses *all)
{
    struct lane *a = &l->lane[!is_free(l, l->lane)];
    struct address to;

    if (!others_left(l, all))
        return true;
    if (is_free(l, a)) {
        int place = addresses_pick(all, m->core->now_ms, &l->tried, &to);
        if (place >= 0 && aim(a, l->origin, &to))
            dial(l, m, a);
        return true;
    }
    if (!l->lane[0].dialling || !l->lane[1].dialling)
        return false;
    a = &l->lane[l->lane[1].since_ms < l->lane[0].since_ms];
    call_back(m, op_of(l, a), cancel_of(l, a));
    return true;
}

/* Time is over. What the sockets still do is called back when the link is settled. */
static void give_up(struct link *l, struct addresses *all, uint64_t now_ms)
{
    for (unsigned i = 0; i < LINK_LANES; i++) {
        if (l->lane[i].dialling)
            addresses_judge(all, &l->lane[i].to, false, now_ms);
        l->lane[i].dialling = false;
    }
    l->due = false;
    l->dial_why = ERR_UPSTREAM_TIMEOUT;
}

/* Until when nothing more is dialled. */
static uint64_t lane_ms(const struct link *l, struct addresses *all, uint64_t left_ms)
{
    bool both = l->lane[0].dialling && l->lane[1].dialling;
    return others_left(l, all) ? min_u64(left_ms, both ? LANE_MS_MAX : HEAD_START_MS) : left_ms;
}

enum link_state link_dial(struct link *l, struct machine *m, struct timer *timer, uint64_t by_ms,
                          enum err *why)
{
    struct addresses *all = l->origin->addresses;
    uint64_t now_ms = m->core->now_ms;
    bool first = l->lane[0].since_ms == 0;

    l->due = timer_take(timer) || l->due;
    for (unsigned i = 0; i < LINK_LANES; i++)
        l->due = take_lane(l, &l->lane[i], all, now_ms) || l->due;
    if (l->winner)
        return finish_race(l, m, all);
    bool act = first || l->due;
    if (first)
        dial(l, m, l->lane);
    else if (now_ms >= by_ms)
        give_up(l, all, now_ms);
    else if (l->due)
        l->due = !dial_next(l, m, all);
    *why = l->dial_why;
    if (!l->due && !l->lane[0].dialling && !l->lane[1].dialling)
        return LINK_BROKEN;
    if (act && !l->due)
        timer_set(timer, m, lane_ms(l, all, by_ms - min_u64(now_ms, by_ms)));
    return LINK_BUSY;
}

/* ---- ciphertext ---- */

static enum link_state tls_broken(struct link *l, enum err *why)
{
    snprintf(l->detail, sizeof(l->detail), "%s", tls_error(l->tls));
    *why = ERR_UPSTREAM_TLS;
    return LINK_BROKEN;
}

/* Takes what the last send brought: the bytes that the socket took. LINK_BUSY: it is under way. */
static enum link_state take_sent(struct link *l, uint32_t *took, enum err *why)
{
    *took = 0;
    if (l->send.busy)
        return LINK_BUSY;
    if (!op_take(&l->send))
        return LINK_OK;
    if (l->send.res <= 0) {
        *why = l->send.res == 0 ? ERR_UPSTREAM_RESET : op_socket_error(l->send.res, true);
        l->mute = *why;
        return LINK_BROKEN;
    }
    *took = (uint32_t)l->send.res;
    l->taken += *took;
    return LINK_OK;
}

/* Takes what ended and keeps the sending side going. LINK_OK: nothing waits to be sent. */
static enum link_state flush(struct link *l, struct machine *m, enum err *why)
{
    uint32_t took;
    enum link_state s = take_sent(l, &took, why);

    if (s != LINK_OK)
        return s;
    if (took > 0)
        tls_sent(l->tls, took);
    struct span out = tls_out(l->tls);
    if (out.len == 0)
        return LINK_OK;
    *why = l->mute;
    if (l->mute != OK)
        return LINK_BROKEN;
    op_send_some(m, &l->send, l->fd, out.at, (uint32_t)out.len);
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

/* For doctor, who asks when it is too late to look. */
static void note_session(const struct link *l)
{
    atomic_store_explicit(&l->origin->tls_minor, (uint8_t)tls_minor(l->tls), memory_order_relaxed);
    atomic_store_explicit(&l->origin->certificate_ends_s, tls_peer_ends_s(l->tls),
                          memory_order_relaxed);
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
    if (want == TLS_DONE) {
        note_session(l);
        return LINK_OK;
    }
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
    return link_sent(l, m, why);
}

enum link_state link_sent(struct link *l, struct machine *m, enum err *why)
{
    uint32_t took;

    if (l->tls)
        return flush(l, m, why);
    enum link_state s = take_sent(l, &took, why);
    if (s != LINK_OK)
        return s;
    l->out += took;
    l->out_len -= took;
    if (l->out_len == 0)
        return LINK_OK;
    *why = l->mute;
    if (l->mute != OK)
        return LINK_BROKEN;
    op_send_some(m, &l->send, l->fd, l->out, l->out_len);
    return LINK_BUSY;
}

bool link_hush(struct link *l, struct machine *m)
{
    if (l->mute == OK)
        l->mute = ERR_CANCELLED;
    return call_back(m, &l->send, &l->cancel_send);
}

uint32_t link_queued(const struct link *l)
{
    int queued = 0;

    /* a socket that cannot tell has nothing: then only what it takes counts as progress */
    return ioctl(l->fd, SIOCOUTQ, &queued) == 0 && queued > 0 ? (uint32_t)queued : 0;
}

/* ---- receiving ---- */

static enum link_state pull_plain(struct link *l, struct machine *m, void *mem, size_t cap,
                                  size_t *got, enum err *why)
{
    if (l->recv.busy)
        return LINK_BUSY;
    if (!op_take(&l->recv)) {
        op_recv_last(m, &l->recv, l->fd, mem, (uint32_t)min_u64(cap, UINT32_MAX / 2));
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
    enum err unsent;                 /* if it is the end, the next receive tells, or who sends */
    flush(l, m, &unsent);            /* a key update wants an answer */
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

    if (l->send.busy || l->recv.busy || l->cancel_send.busy || l->cancel_recv.busy || l->mute != OK)
        return false;
    if (!l->tls)
        return true;                 /* the socket is looked at when it is taken again */
    return tls_read(l->tls, &byte, 1, &got) == TLS_WANT_IN && tls_out(l->tls).len == 0;
}
