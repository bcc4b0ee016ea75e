/* The body of a request: the same bytes, end or error however the wire cuts it, however much came
 * with the head, however much the request takes at once, and whether a session is between; and what
 * stands behind the body stays there. Judged by the framing's own verdict over all bytes at once.
 *
 * The first four bytes choose the length (0 to 254, 255: chunked), the cut, the early bytes, and
 * what is asked for; the rest is what comes until the connection is closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/body.c"

#include "tests/fuzz/fuzz.h"

/* ---- a loop with one receive, a session that hides nothing ---- */
static struct {
    struct span rest;                /* not yet received */
    size_t piece;                    /* most that one receive brings */
    char pool[INTAKE_RECV_BYTES];    /* what a pooled receive brought */
    struct span fed;                 /* not yet read from the session */
    char kept[INTAKE_RECV_BYTES];
    unsigned lent;
} wire;

static void come(struct op *op, char *mem, size_t len)
{
    size_t n = (size_t)min_u64(min_u64(wire.piece, len), wire.rest.len);
    demand(!op->busy && len > 0);
    if (n > 0)
        memcpy(mem, wire.rest.at, n);
    wire.rest = span_from(wire.rest, n);
    op->res = (int32_t)n;
    op->ended = true;
}

void op_recv(unused_ok struct machine *m, struct op *op, unused_ok int fd, void *mem, uint32_t len)
{
    op->kind = OPK_RECV;
    come(op, mem, len);
}

void op_recv_pool(unused_ok struct machine *m, struct op *op, unused_ok int fd,
                  unused_ok bool expect_idle)
{
    op->kind = OPK_RECV_POOL;
    come(op, wire.pool, sizeof(wire.pool));
    wire.lent += op->res > 0;
}

void op_cancel(unused_ok struct machine *m, unused_ok struct op *own, unused_ok struct op *target)
{
    demand(false);                   /* nothing is ever under way */
}

struct span core_recv_bytes(unused_ok struct core *c, const struct op *op)
{
    demand(wire.lent == 1);
    return span_make(wire.pool, (size_t)op->res);
}

void core_recv_give(unused_ok struct core *c, unused_ok struct op *op)
{
    demand(wire.lent-- == 1);
    memset(wire.pool, 0xee, sizeof(wire.pool));
}

enum err op_socket_error(int32_t res, unused_ok bool upstream)
{
    return res < 0 ? ERR_PEER : OK;
}

void timer_set(struct timer *t, unused_ok struct machine *m, uint64_t delay_ms)
{
    t->at_ms = 1 + delay_ms;
}

void timer_stop(struct timer *t)
{
    t->at_ms = 0;
}

bool session_feed(unused_ok struct session *t, struct span bytes)
{
    demand(wire.fed.len == 0);
    wire.fed = bytes;
    return true;
}

bool session_keep(unused_ok struct session *t)
{
    demand(wire.fed.len <= sizeof(wire.kept));
    if (wire.fed.len > 0)
        memmove(wire.kept, wire.fed.at, wire.fed.len);
    wire.fed.at = wire.kept;
    return true;
}

enum session_step session_read(unused_ok struct session *t, void *out, size_t cap, size_t *got)
{
    demand(cap > 0);
    *got = (size_t)min_u64(cap, wire.fed.len);
    if (*got > 0)
        memcpy(out, wire.fed.at, *got);
    wire.fed = span_from(wire.fed, *got);
    return SESSION_ON;
}

bool conn_make_room(struct conn *c)
{
    struct intake *in = c->intake;
    if (in->len + INTAKE_RECV_BYTES <= (in->big ? INTAKE_BIG_BYTES : INTAKE_BYTES))
        return true;
    demand(!in->big);
    in->bytes = in->big = malloc(INTAKE_BIG_BYTES);
    demand(in->big != NULL);
    memcpy(in->big, in->small, in->len);
    return true;
}

/* ---- one body ---- */
struct outcome {
    enum body_state end;
    enum err why;
    size_t len, behind;              /* behind: bytes that are left for the next head */
    uint64_t hash;
};

static struct core core;
static struct settings settings;
static struct config config;

static void begin(struct conn *c, struct span head, struct span stream, size_t early, bool tls)
{
    struct intake *in = c->intake;
    in->bytes = in->small;
    in->used = (uint32_t)head.len;
    in->len = (uint32_t)(head.len + early);
    memset(in->small, 'h', head.len);
    memcpy(in->small + head.len, stream.at, early);
    wire.rest = span_from(stream, early);
    wire.fed = span_make("", 0);
    c->m.core = &core;
    c->session.tls = tls ? (struct tls *)(void *)&wire : NULL;
    conn_body_begin(c);
}

/* What the request takes: cap bytes at once, into memory that ends there. */
static struct outcome take(struct conn *c, size_t cap)
{
    struct machine m = {.core = &core};
    struct outcome o = {.end = BODY_OK, .hash = 0};
    size_t got = 0;
    char *mem = malloc(cap);
    demand(mem != NULL);
    while (o.end == BODY_OK || o.end == BODY_BUSY) {
        o.end = conn_body_take(c, &m, mem, cap, &got, &o.why);
        demand(o.end == BODY_OK ? got > 0 && got <= cap : got == 0);
        for (size_t i = 0; i < got; i++)
            o.hash = (o.hash ^ (uint8_t)mem[i]) * 1099511628211u;
        o.len += got;
        demand(o.end != BODY_BUSY || c->recv.ended || c->recv.busy);
    }
    demand(conn_body_over(c) == (o.end == BODY_END));
    demand(conn_body_take(c, &m, mem, cap, &got, &o.why) == o.end);
    free(mem);
    return o;
}

/* The bytes behind the body come out of intake, session and wire in their order. */
static void check_behind(struct conn *c, struct outcome o, struct span stream)
{
    const struct intake *in = c->intake;
    struct span parts[] = {span_make(in->bytes + in->at, in->len - in->at), wire.fed, wire.rest};
    struct span want = span_from(stream, stream.len - o.behind);
    if (o.end != BODY_END)
        return;
    for (unsigned i = 0; i < ARRAY_COUNT(parts); i++) {
        demand(parts[i].len <= want.len);
        demand(span_eq(parts[i], span_make(want.at, parts[i].len)));
        want = span_from(want, parts[i].len);
    }
    demand(want.len == 0);
    demand(memcmp(in->small, "hhhh", (size_t)min_u64(4, in->used)) == 0);
}

static struct outcome judge(const struct http_head *h, struct span stream)
{
    struct outcome o = {.end = BODY_BROKEN, .why = ERR_PEER};
    if (h->framing == HTTP_BODY_LENGTH) {
        o.len = (size_t)min_u64(h->length, stream.len);
        for (size_t i = 0; i < o.len; i++)
            o.hash = (o.hash ^ (uint8_t)stream.at[i]) * 1099511628211u;
        o.end = o.len == h->length ? BODY_END : BODY_BROKEN;
        o.behind = stream.len - o.len;
        return o;
    }
    struct http_chunked chunked = {0};
    enum http_verdict v = HTTP_MORE;
    for (size_t used; v == HTTP_MORE && stream.len > 0; stream = span_from(stream, used)) {
        struct span data;
        v = http_chunked_step(&chunked, stream.at, stream.len, &used, &data);
        for (size_t i = 0; i < data.len; i++)
            o.hash = (o.hash ^ (uint8_t)data.at[i]) * 1099511628211u;
        o.len += data.len;
    }
    o.end = v == HTTP_OK ? BODY_END : BODY_BROKEN;
    o.why = v == HTTP_BAD ? ERR_SYNTAX : ERR_PEER;
    o.behind = stream.len;
    return o;
}

static void check(const uint8_t choice[4], struct span stream, size_t cap, bool tls)
{
    static char zeros[7 * KIB];
    struct outcome want;
    struct conn *c = calloc(1, sizeof(*c));
    demand(c != NULL);
    c->intake = calloc(1, sizeof(*c->intake));
    demand(c->intake != NULL);
    struct http_head *h = &c->intake->head;
    h->framing = choice[0] == 255 ? HTTP_BODY_CHUNKED : HTTP_BODY_LENGTH;
    h->length = choice[0] == 255 ? 0 : choice[0];
    want = judge(h, stream);
    size_t head = (choice[3] & 15) * 450 + 4;
    size_t early = (size_t)min_u64(min_u64(choice[2], stream.len), sizeof(c->intake->small) - head);
    begin(c, span_make(zeros, head), stream, early, tls);
    struct outcome o = take(c, cap);
    o.behind = want.behind;
    demand(o.end == want.end && (o.end == BODY_END || o.why == want.why));
    /* of a body that makes no sense, some bytes may not have been told */
    demand(o.why == ERR_SYNTAX ? o.len <= want.len : o.len == want.len && o.hash == want.hash);
    check_behind(c, o, stream);
    conn_body_end(c);
    demand(wire.lent == 0);
    free(c->intake->big);
    free(c->intake);
    free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const size_t caps[] = {1, 5, 100, 64 * KIB};
    if (len < 4)
        return 0;
    if (!core.metrics)
        core.metrics = metric_set_make();
    config.server_body_timeout = 1000;
    settings.config = &config;
    core.settings = &settings;
    char *stream = exact_copy(data + 4, len - 4);
    for (unsigned i = 0; i < ARRAY_COUNT(caps); i++) {
        wire.piece = 1 + (data[1] >> i) * (i + 1);
        check(data, span_make(stream, len - 4), caps[i], false);
        check(data, span_make(stream, len - 4), caps[i], true);
    }
    exact_give(stream);
    return 0;
}
