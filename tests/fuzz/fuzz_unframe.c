/* What an upstream sends as one answer: the same body, end or error however the wire cuts it and
 * however much the owner takes at once; and what the owner gets is what the framing announced.
 *
 * The first byte: bit 0 = the request was a HEAD; the second: how the wire cuts; the rest is what
 * comes until the connection is closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/answer.c"

#include "tests/fuzz/fuzz.h"

/* ---- a wire that brings pieces of some size, then a close ---- */
static struct {
    struct span rest;
    size_t piece;
    uint64_t told;                   /* bytes counted by metric_add3() */
} wire;

enum link_state link_pull(unused_ok struct link *l, unused_ok struct machine *m, void *mem,
                          size_t cap, size_t *got, unused_ok enum err *why)
{
    size_t n = (size_t)min_u64(min_u64(wire.piece, cap), wire.rest.len);
    demand(cap > 0);
    if (n == 0)
        return LINK_END;
    memcpy(mem, wire.rest.at, n);
    wire.rest = span_from(wire.rest, n);
    *got = n;
    return LINK_OK;
}

/* A refused head is told to the log, which is not asked here. */
void exchange_log_refusal(unused_ok struct exchange *x, unused_ok const char *what)
{
}

/* ---- one exchange that reads it ---- */
struct outcome {
    enum link_state end;             /* LINK_END or LINK_BROKEN */
    enum err why;
    size_t len;
    uint64_t hash;
};

static struct sheet sheet;
static struct core core;
static struct origin origin;

static struct outcome unframe(struct span all, size_t head_len, size_t early, size_t cap)
{
    static char mem[8 * KIB];
    struct ask ask = {.method = HTTP_GET};
    struct errand e = {.sheet = &sheet, .head_len = head_len, .in_len = head_len + early};
    struct exchange x = {.private_ = &e, .ask = &ask, .origin = &origin, .head = &sheet.head};
    struct outcome o = {.end = LINK_OK, .why = OK};
    x.m.core = &core;
    wire.rest = span_from(all, head_len + early);
    body_begin(&e);
    while (o.end == LINK_OK) {
        size_t got = 0;
        if (e.body.at_end) {         /* may be told with the last bytes */
            o.end = LINK_END;
            break;
        }
        o.end = body_pull(&x, mem, cap, &got, &o.why);
        if (o.end != LINK_OK)
            break;
        demand(got > 0 && got <= cap);
        for (size_t i = 0; i < got; i++)
            o.hash = (o.hash ^ (uint8_t)mem[i]) * 1099511628211u;
        o.len += got;
    }
    demand(o.end == LINK_END || (o.end == LINK_BROKEN && o.why != OK));
    return o;
}

/* The owner's view of the head. */
static void check_note(bool head_request)
{
    struct ask ask = {.method = head_request ? HTTP_HEAD : HTTP_GET};
    struct exchange x = {.ask = &ask, .origin = &origin, .head = &sheet.head};
    exchange_note(&x);
    demand(!x.has_range || (x.range_from <= x.range_to && x.range_to < x.range_size));
    demand(!x.has_range || sheet.head.status == 206);
    demand(x.etag.at != NULL);
    if (sheet.head.framing == HTTP_BODY_LENGTH)
        demand(x.has_length && x.length == sheet.head.length);
    demand(sheet.head.framing != HTTP_BODY_CHUNKED || !x.has_length);
    demand((exchange_verdict(&x) == OK) == (sheet.head.status / 100 == 2));
}

static void check_outcome(struct outcome o, struct span body)
{
    uint64_t announced = sheet.head.length, hash = 0;
    switch (sheet.head.framing) {
    case HTTP_BODY_NONE:
        demand(o.end == LINK_END && o.len == 0);
        return;
    case HTTP_BODY_CHUNKED:
        demand(o.end == LINK_END || o.why == ERR_UPSTREAM_SHORT || o.why == ERR_UPSTREAM_PROTOCOL);
        demand(o.len <= body.len);
        return;
    case HTTP_BODY_LENGTH:
        demand((o.end == LINK_END) == (announced <= body.len));
        demand(o.end == LINK_END || o.why == ERR_UPSTREAM_SHORT);
        body.len = (size_t)min_u64(body.len, announced);
        break;
    case HTTP_BODY_UNTIL_CLOSE:
        demand(o.end == LINK_END);
        break;
    }
    for (size_t i = 0; i < body.len; i++)
        hash = (hash ^ (uint8_t)body.at[i]) * 1099511628211u;
    demand(o.len == body.len && o.hash == hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const size_t caps[] = {1, 3, 64, 8 * KIB};
    size_t used = 0;
    if (len < 2 || len > EXCHANGE_HEAD_BYTES)
        return 0;
    if (!core.metrics)
        core.metrics = metric_set_make();
    struct span all = span_make(data + 2, len - 2);
    memcpy(sheet.in, all.at, all.len);
    all.at = sheet.in;
    bool head_request = data[0] & 1;
    if (http_parse_response(all.at, all.len, head_request, &sheet.head, &used) != HTTP_OK)
        return 0;
    check_note(head_request);
    struct span body = span_from(all, used);
    wire.piece = SIZE_MAX;
    struct outcome whole = unframe(all, used, body.len, sizeof(sheet.peek));
    check_outcome(whole, body);
    for (size_t i = 0; i < ARRAY_COUNT(caps); i++) {
        size_t early = body.len ? data[1] * i % (body.len + 1) : 0;
        wire.piece = 1 + (data[1] >> i) % 61;
        struct outcome o = unframe(all, used, early, caps[i]);
        demand(o.end == whole.end && o.len == whole.len && o.hash == whole.hash);
        demand(o.end == LINK_END || o.why == whole.why);
    }
    return 0;
}
