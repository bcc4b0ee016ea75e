/* The body of a request on its way to upstream: ready bytes, or those that the owner writes piece
 * by piece.
 *
 * Invariants:
 *  1. A streamed body is sent once: from its first byte on (`left`) nothing sends the request
 *     again. A ready one begins anew with each try.
 *  2. The owner's memory is his again (!x->writing) only when no op touches it: after the last byte
 *     of a piece was taken, or after the link was hushed or dropped.
 *  3. Progress is what the socket takes, or what its peer takes out of it: a full socket may need
 *     longer than a deadline to ask for more. Time in which the owner has nothing to write does not
 *     count.
 *  4. A connection that takes no more may still hold an answer: upstreams that refuse a body
 *     answer, close, and reset what still comes (RFC 9112 9.6). It is listened to before it is
 *     given up.
 *
 * Life: part of an errand; upload_begin() with each try, then the steps EXPECT, UPLOAD and HALT of
 * exchange.c ask. Failure: told by upload_move(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf.h"
#include "server/origin/inside.h"
#include "tls.h"

enum {
    EXPECT_BYTES_MIN = MIB,          /* a round trip costs less than sending this in vain */
    SEAL_BYTES = 7 * TLS_RECORD_BYTES, /* sealed it fits into 128 KiB */
    PLAIN_BYTES = 1 << 30,
    LAST_WORDS_MS = 1000,            /* of a connection that was reset: they are here, or lost */
};

bool upload_streams(const struct ask *a)
{
    return a->has_body && a->body.len != a->body_bytes;
}

bool upload_expects(const struct exchange *x)
{
    const struct errand *e = x->private_;
    return upload_streams(x->ask) && x->ask->body_bytes >= EXPECT_BYTES_MIN && !e->upload.bare;
}

void upload_begin(struct exchange *x)
{
    struct errand *e = x->private_;
    struct outgoing *u = &e->upload;

    must(!u->left);
    u->go = u->unheard = false;
    u->part = 0;
    u->why = OK;
    u->out_bytes = 0;
    if (x->ask->has_body && !upload_streams(x->ask))
        u->piece = x->ask->body;
}

bool upload_whole(const struct exchange *x)
{
    const struct errand *e = x->private_;
    return !x->ask->has_body || e->upload.out_bytes == x->ask->body_bytes;
}

void exchange_write(struct exchange *x, const void *mem, uint32_t len)
{
    struct errand *e = x->private_;
    struct outgoing *u = &e->upload;

    must(x->body_wanted && !x->writing && !x->head_known && !x->failed && !x->ending && len > 0);
    must(len <= x->ask->body_bytes - u->given);
    u->given += len;
    u->piece = span_make(mem, len);
    x->writing = true;
    machine_wake(x->runner);
}

/* ---- progress ---- */

/* From now on a byte must be taken within the deadline. */
static void watch(struct exchange *x)
{
    struct errand *e = x->private_;

    e->upload.taken = e->link->taken;
    e->upload.queued = link_queued(e->link);
    timer_set(&e->deadline, &x->m, origin_config(x->origin, x->m.core)->read_timeout);
}

/* Did the peer take some of what the socket holds, since the last look? */
static bool shrinks(struct errand *e)
{
    uint32_t before = e->upload.queued;

    e->upload.queued = link_queued(e->link);
    return e->upload.queued < before;
}

bool upload_is_late(struct exchange *x)
{
    struct errand *e = x->private_;

    if (!timer_take(&e->deadline))
        return false;
    if (e->upload.why != OK || !shrinks(e))
        return true;
    watch(x);
    return false;
}

bool upload_drains(struct exchange *x)
{
    struct errand *e = x->private_;

    if (!x->ask->has_body || !shrinks(e))
        return false;
    timer_set(&e->deadline, &x->m, errand_answer_ms(x));
    return true;
}

/* ---- sending ---- */

static void end_write(struct exchange *x)
{
    if (!x->writing)
        return;
    x->writing = false;
    machine_wake(x->owner);
}

/* The link has sent the part that it was given. */
static void take_part(struct exchange *x)
{
    struct errand *e = x->private_;
    struct outgoing *u = &e->upload;

    metric_add(x->m.core->metrics, METRIC_UPSTREAM_SENT_BYTES_TOTAL, x->origin->label, u->part);
    u->out_bytes += u->part;
    u->piece = span_from(u->piece, u->part);
    u->part = 0;
    if (u->piece.len > 0)
        return;
    timer_stop(&e->deadline);
    end_write(x);
}

/* What cannot be sent any more may have been refused: if the peer closed, it may have said why. */
static enum link_state stop(struct exchange *x, enum err *why)
{
    struct errand *e = x->private_;

    if (*why != ERR_UPSTREAM_RESET)
        return LINK_BROKEN;
    e->upload.why = *why;
    timer_set(&e->deadline, &x->m, LAST_WORDS_MS);
    return LINK_BUSY;
}

static enum link_state send_part(struct exchange *x, enum err *why)
{
    struct errand *e = x->private_;
    struct outgoing *u = &e->upload;

    u->part = min_u64(u->piece.len, e->link->tls ? SEAL_BYTES : PLAIN_BYTES);
    u->left = upload_streams(x->ask);
    enum link_state s = link_send(e->link, &x->m, span_make(u->piece.at, u->part), why);
    watch(x);
    return s;
}

enum link_state upload_move(struct exchange *x, enum err *why)
{
    struct errand *e = x->private_;
    struct outgoing *u = &e->upload;
    enum link_state s = LINK_OK;

    if (u->why != OK)
        return LINK_BUSY;
    if (u->part > 0) {
        s = link_sent(e->link, &x->m, why);
        if (s == LINK_BUSY && e->link->taken != u->taken)
            watch(x);
        if (s == LINK_OK)
            take_part(x);
    }
    while (s == LINK_OK && u->piece.len > 0) {
        s = send_part(x, why);
        if (s == LINK_OK)
            take_part(x);
    }
    if (s == LINK_BROKEN)
        return stop(x, why);
    return s == LINK_OK && upload_whole(x) ? LINK_OK : LINK_BUSY;
}

/* ---- ends ---- */

bool upload_halt(struct exchange *x)
{
    struct errand *e = x->private_;
    enum err why;

    if (!link_hush(e->link, &x->m))
        return false;
    if (e->upload.part > 0 && link_sent(e->link, &x->m, &why) == LINK_OK)
        take_part(x);
    upload_end(x);
    return true;
}

void upload_end(struct exchange *x)
{
    struct errand *e = x->private_;

    e->upload.part = 0;
    e->upload.piece = span_make("", 0);
    timer_stop(&e->deadline);
    end_write(x);
}
