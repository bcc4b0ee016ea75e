/* How the test origin takes the body of a request: wanted or not, slowly, in part, checked.
 *
 * Invariants:
 *  1. Nothing is kept: a body is compared with the versions of its key while it comes, and what
 *     fits to its last byte names the version that is stored.
 *  2. Stored is only what came whole (Content-Length, and the last chunk of aws-chunked).
 *
 * Life: origin_take() once per request, on the connection's thread; c->out is its buffer until the
 * answer. Failure: the connection ends, or the answer becomes 400 BadDigest. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "tests/lib/origin_part.h"

enum { SIZE_LINE, DATA, DATA_END, TRAILER, DONE };
enum { STALLED_ROOM_BYTES = 16 * KIB, SLOW_BYTES = 16 * KIB, DISCARD_BYTES = 4 * MIB };

/* ---- the bytes of an object ---- */

static void begin_intake(struct intake *in)
{
    *in = (struct intake){.first = 1, .last = ORIGIN_VERSIONS_MAX};
    for (unsigned i = 1; i <= ORIGIN_VERSIONS_MAX; i++)
        in->matches[i] = true;
}

/* Strikes out the versions that these bytes do not belong to. */
static void compare(struct connection *c, const char *bytes, size_t len)
{
    struct intake *in = &c->intake;
    const struct request *r = &c->request;

    for (uint64_t v = in->first; v <= in->last; v++) {
        uint64_t seed = bytes_seed(r->bucket, r->key, v);
        if (in->matches[v] && bytes_check(seed, in->object, bytes, len) != len)
            in->matches[v] = false;
    }
    while (in->first <= in->last && !in->matches[in->first])
        in->first++;
    while (in->first <= in->last && !in->matches[in->last])
        in->last--;
    in->object += len;
}

/* ---- aws-chunked ---- */

static void end_line(struct intake *in)
{
    unsigned long long size;

    in->line[in->line_len] = '\0';
    in->line_len = 0;
    if (in->state == DATA_END) {     /* the empty rest of a chunk's last line */
        in->broken |= in->line[0] != '\0';
        in->state = SIZE_LINE;
    } else if (in->state == SIZE_LINE) {
        in->broken |= sscanf(in->line, "%llx", &size) != 1;
        in->left = in->broken ? 0 : size;
        in->state = in->left > 0 ? DATA : TRAILER;
    } else if (in->state == TRAILER && in->line[0] == '\0') {
        in->state = DONE;
    } else if (in->state == TRAILER) {
        size_t have = strlen(in->trailers);
        snprintf(in->trailers + have, sizeof in->trailers - have, " trailer=%.200s", in->line);
    }
}

static void unwrap_line(struct intake *in, char byte)
{
    if (byte == '\n')
        end_line(in);
    else if (byte != '\r' && in->line_len < sizeof in->line - 1)
        in->line[in->line_len++] = byte;
}

static void unwrap(struct connection *c, const char *bytes, size_t len)
{
    struct intake *in = &c->intake;

    while (len > 0 && !in->broken) {
        size_t part = 1;
        if (in->state == DATA) {
            part = min_u64(in->left, len);
            compare(c, bytes, part);
            in->left -= part;
            in->state = in->left > 0 ? DATA : DATA_END;
        } else {
            in->broken |= in->state == DONE;
            unwrap_line(in, *bytes);
        }
        bytes += part;
        len -= part;
    }
}

/* ---- the wire ---- */

static void take_bytes(struct connection *c, const char *bytes, size_t len)
{
    bool discards = knob(&c->plan.knobs, NUMBER_DISCARD);
    if (c->request.wrapped && !discards)
        unwrap(c, bytes, len);
    else if (!discards)
        compare(c, bytes, len);
    c->intake.got += len;
    pthread_mutex_lock(&c->origin->lock);
    c->origin->stats.taken_bytes += len;
    pthread_mutex_unlock(&c->origin->lock);
}

/* Up to `until` bytes of the body; false when the peer left. */
static bool receive(struct connection *c, uint64_t until, size_t *used)
{
    struct intake *in = &c->intake;
    uint64_t rate = knob(&c->plan.knobs, NUMBER_BODY_RATE), began_us = clock_us();
    size_t behind = min_u64(c->filled - *used, until - in->got);
    bool discards = knob(&c->plan.knobs, NUMBER_DISCARD);
    size_t most = rate ? SLOW_BYTES : discards ? DISCARD_BYTES : sizeof c->out;

    take_bytes(c, c->in + *used, behind);
    *used += behind;
    while (in->got < until) {
        size_t room = min_u64(most, until - in->got);
        ssize_t n = discards ? recv(c->fd, NULL, room, MSG_TRUNC) /* TCP: nothing is copied */
                             : recv(c->fd, c->out, room, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        take_bytes(c, c->out, (size_t)n);
        if (rate && !origin_wait_until(c, began_us + in->got * 1000000 / rate))
            return false;
    }
    return true;
}

static uint64_t first_of(const struct knobs *k, enum knob_number n, uint64_t most)
{
    return knob_is(k, n) ? min_u64(knob(k, n), most) : UINT64_MAX;
}

static void tell(struct connection *c, uint64_t version)
{
    const struct intake *in = &c->intake;
    char line[ORIGIN_LINE_MAX];
    struct text t;

    text_init(&t, line, sizeof line);
    text_adds(&t, "body ");
    text_add(&t, c->request.method);
    text_addc(&t, ' ');
    text_add(&t, c->request.target);
    text_addf(&t, " bytes=%llu of=%llu", (unsigned long long)in->got,
              (unsigned long long)c->request.length);
    if (version)
        text_addf(&t, " object=%llu version=%llu", (unsigned long long)in->object,
                  (unsigned long long)version);
    text_adds(&t, in->trailers);
    origin_note_line(c->origin, text_span(&t));
}

/* All of it is here: what was stored, or why not. */
static void judge(struct connection *c)
{
    struct intake *in = &c->intake;
    struct plan *p = &c->plan;
    bool ended = !c->request.wrapped || in->state == DONE;
    bool synthetic = !in->broken && ended && in->first <= in->last;
    bool named = c->request.query.len == 0 || span_is(c->request.query, "x-id=PutObject");
    bool object = c->request.kind == ASKED_OBJECT && named && !c->request.copies &&
                  span_is(c->request.method, "PUT") && p->status == 200 &&
                  !knob(&p->knobs, NUMBER_DISCARD);

    if (object && synthetic)
        origin_store(c->origin, &c->request, in->object > 0 ? in->first : 0, in->object, p);
    else if (object) {
        p->status = 400;
        p->code = "BadDigest";
    }
    tell(c, object && synthetic ? p->version : 0);
}

enum taken origin_take(struct connection *c, size_t *used)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct request *r = &c->request;
    const struct knobs *k = &c->plan.knobs;
    uint64_t early = first_of(k, NUMBER_EARLY, r->length);
    uint64_t cut = first_of(k, NUMBER_BODY_CUT, r->length);
    uint64_t stall = first_of(k, NUMBER_BODY_STALL, r->length);
    uint64_t until = min_u64(min_u64(early, cut), min_u64(stall, r->length));
    int room = STALLED_ROOM_BYTES;

    if (r->length == 0 && !span_is(r->method, "PUT") && !span_is(r->method, "POST"))
        return TAKEN_WHOLE;
    begin_intake(&c->intake);
    if (r->expect && (early == 0 || c->plan.status >= 300))
        return TAKEN_EARLY;
    if (stall != UINT64_MAX)         /* else the kernel takes megabytes for us */
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (r->expect && !knob(k, NUMBER_MUTE) && !origin_send(c, go_on, sizeof go_on - 1, NULL))
        return TAKEN_OVER;
    if (!receive(c, until, used)) {
        tell(c, 0);
        return TAKEN_OVER;
    }
    if (until == stall && stall < r->length)
        origin_wait_until(c, UINT64_MAX);
    if (until < r->length || cut == until) {
        bool answers = early == until;
        tell(c, 0);
        if (!answers && knob(k, NUMBER_RESET))
            origin_make_reset(c);
        return answers ? TAKEN_EARLY : TAKEN_OVER;
    }
    judge(c);
    return TAKEN_WHOLE;
}
