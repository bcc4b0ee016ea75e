/* MACHINE that passes a request through: every change, listings, bucket questions, and objects that
 * must not or cannot be cached. What is special about changes and bodies stands in put.c.
 *
 * Invariants:
 *  1. What upstream answered is what the client hears: status, end-to-end fields, body bytes;
 *     framing, date, server and request id are ours.
 *  2. Two buffers: one fills from upstream while the other leaves; nothing is buffered beyond.
 *  3. A client that pauses or drips, in its answer or in its body, holds a connection to upstream,
 *     and bytes that cannot be had again. It may while nobody waits for either; then it is cut.
 *  4. A body whose length upstream did not tell goes out chunked (or until close for HTTP/1.0); a
 *     broken one is cut, never ended cleanly.
 *  5. An answer to another question does not go out: a redirect, a 304 that no condition asked for,
 *     a range that was not asked for.
 *
 * Life: embedded in a request; ends in req_over(). Failure: before the head an honest error, after
 * it a reset. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#define RELAY_STEPS(S)                                                                             \
    S(relay, OPEN) S(relay, GATHER) S(relay, DOUBT) S(relay, ASK) S(relay, UPLOAD) S(relay, HALT)  \
    S(relay, HEAD) S(relay, LIST) S(relay, PUMP) S(relay, ANSWER) S(relay, DRAIN) S(relay, END)
STEP_TABLE(relay, RELAY_STEPS)

enum {
    WATCH_MS = 1000,
    PAUSE_MS = 10000,                /* a client that stands still for longer may have to go */
    CUT_EVERY_MS = 100,              /* one that goes makes room for one who waits */
};

static struct req *req_of(struct relay *l)
{
    return container_of(l, struct req, relay);
}

static struct cache *cache_of(const struct relay *l)
{
    return l->m.core->server->cache;
}

/* ---- clients that pause ---- */

/* Has every connection to upstream a holder while others wait for one, or are buffers short? */
static bool others_wait(struct relay *l)
{
    const struct server *s = l->m.core->server;
    struct origin *o = s->origin[req_of(l)->route.upstream];
    struct origin_status upstream;
    origin_status(o, &upstream);
    return pool_is_short(s->cache) || (upstream.queued > 0 && !origin_is_directory(o) &&
                                       upstream.active >= upstream.limit);
}

/* The client has paused for long, and what it holds is wanted. */
static bool is_cut(struct relay *l)
{
    static _Atomic uint64_t next_ms; /* of the process: when the next one may be cut */
    uint64_t now_ms = l->m.core->now_ms;
    uint64_t next = atomic_load_explicit(&next_ms, memory_order_relaxed);
    if (now_ms - l->took_ms < PAUSE_MS || now_ms < next || !others_wait(l) ||
        !atomic_compare_exchange_strong(&next_ms, &next, now_ms + CUT_EVERY_MS))
        return false;
    metric_add(l->m.core->metrics, METRIC_DEADLINE_TOTAL, DEADLINE_RELAY, 1);
    return true;
}

static void watch(struct relay *l)
{
    timer_set(&l->watch, &l->m, WATCH_MS);
}

/* Asked at each wake: a client that takes its answer too slowly. */
static bool must_go(struct relay *l)
{
    if (!timer_take(&l->watch) || !req_of(l)->send.op.busy)
        return false;
    watch(l);
    return is_cut(l);
}

/* The same of a client that sends its body. */
static bool must_yield(struct relay *l)
{
    if (!timer_take(&l->watch))
        return false;
    watch(l);
    if (put_goes_on(l))
        l->took_ms = l->m.core->now_ms;
    return is_cut(l);
}

/* ---- asking ---- */

/* Fields that belong to the client's hop or to its authentication; all others are the request's
 * own. */
static bool stays_here(struct span name)
{
    static const char *const ours[] = {"host",
                                       "connection",
                                       "keep-alive",
                                       "te",
                                       "trailer",
                                       "transfer-encoding",
                                       "upgrade",
                                       "expect",
                                       "content-length",
                                       "via",
                                       "user-agent",
                                       "accept-encoding",
                                       "authorization",
                                       "date",
                                       "x-amz-date",
                                       "x-amz-content-sha256",
                                       "x-amz-security-token",
                                       "proxy-authorization",
                                       "proxy-connection",
                                       "cookie",
                                       "x-headpond-hint",
                                       "amz-sdk-invocation-id",
                                       "amz-sdk-request",
                                       "x-amz-user-agent",
                                       "if-range"};
    for (unsigned i = 0; i < ARRAY_COUNT(ours); i++)
        if (span_is_nocase(name, ours[i]))
            return true;
    return false;
}

/* Is a field of the request itself named by Connection? Nobody may send that (RFC 9110 7.6.1), and
 * no signature covers Connection: whoever is on the way could make of a copy an empty object, or of
 * a write with a condition one without. */
static bool loses_its_own(const struct http_head *h)
{
    static const char *const own[] = {"x-amz-", "x-minio-", "content-", "cache-control",
                                      "expires", "if-", "range"};
    struct http_hop hop;
    http_hop_read(h, &hop);
    for (unsigned i = 0; i < h->count && hop.count > 0; i++) {
        struct span name = h->field[i].name;
        for (unsigned k = 0; k < ARRAY_COUNT(own); k++) {
            size_t len = strlen(own[k]);
            if (name.len >= len && span_is_nocase(span_make(name.at, len), own[k]) &&
                http_hop_has(&hop, name))
                return true;
        }
    }
    return false;
}

/* Parameters that are fields go as fields: upstream verifies a signature of the head. */
static bool describe_query(struct relay *l, unsigned *count)
{
    struct req *r = req_of(l);
    unsigned more, kept = *count;
    if (s3_query_fields(&r->ask, &r->arena, l->field + kept, HTTP_FIELDS_MAX - kept, &more) != OK)
        return false;
    for (unsigned i = *count; i < *count + more; i++)
        if (!stays_here(l->field[i].name) && (!l->put || put_relays(l, l->field[i].name)))
            l->field[kept++] = l->field[i];
    *count = kept;
    return true;
}

static bool describe(struct relay *l)
{
    struct req *r = req_of(l);
    const struct http_head *h = r->head;
    const struct s3_operation_row *row = &s3_operation_table[r->ask.op];
    struct span query;
    if (s3_query_relay(&r->ask, &r->arena, &query) != OK)
        return false;
    /* A part of what the object was is asked for, else all: not every store compares, so all. */
    bool whole = http_find(h, "if-range").at;
    unsigned count = 0;
    struct http_hop hop;
    http_hop_read(h, &hop);
    for (unsigned i = 0; i < h->count; i++)
        if (!stays_here(h->field[i].name) && !http_hop_has(&hop, h->field[i].name) &&
            !(whole && span_is_nocase(h->field[i].name, "range")) &&
            (!l->put || put_relays(l, h->field[i].name)))
            l->field[count++] = h->field[i];
    if (!describe_query(l, &count))
        return false;
    route_fields(r, l->field, count);
    l->has_range = (r->ask.range.len > 0 && !whole) || r->ask.part_number > 0;
    l->conditional = r->ask.if_none_match.len > 0 || r->ask.if_modified_since.len > 0;
    l->ask = (struct ask){.method = h->method,
                          .class_ = ASK_DEMAND,
                          .op = row->label,
                          .purpose = PURPOSE_DEMAND,
                          .profile = r->who.profile,
                          .upstream = (uint8_t)r->route.upstream,
                          .bucket = r->route.bucket,
                          .key = r->ask.key,
                          .query = query,
                          .field = l->field,
                          .field_count = count,
                          .patient = !l->put && row->action == S3_RELAY};
    return !l->put || put_describe(l);
}

/* What is left of the request's body is the connection's to drop, or a reason to close: nobody
 * knows how much of chunks is still to come, nor what a client does that got no 100 (put_open). */
static bool must_close(struct relay *l)
{
    const struct req *r = req_of(l);
    const struct http_head *h = r->head;
    bool over = conn_body_over(r->conn), chunks = l->put && h->framing == HTTP_BODY_CHUNKED;
    over = over && !(l->put && l->put->awaited);
    return (over ? !h->keep_alive : r->close || chunks) || conn_stopping(r->conn);
}

static enum turn say(struct relay *l, const struct s3_error *e)
{
    struct req *r = req_of(l);
    r->status = e->status;
    r->close = must_close(l);
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_error(&r->out, e, &r->stamp, r->head_request, r->close);
    return GO(relay, l, ANSWER);
}

static enum turn say_err(struct relay *l, enum err why)
{
    struct s3_error e;
    s3_error_of(why, &e);
    e.resource = req_of(l)->ask.path;
    return say(l, &e);
}

/* ---- changes: put.c knows how, here is when ---- */

/* The body is ours no more: it failed, the client is gone, or he hears why it is refused. */
static enum turn put_failed(struct relay *l, enum put_turn turn, enum err why)
{
    if (turn == PUT_REFUSED)
        return say(l, &l->put->error);
    bool gone = why == ERR_PEER || l->put->saying;
    return gone ? FAIL(l, why) : say_err(l, why);
}

static enum turn relay_OPEN(struct relay *self) /* nothing is begun */
{
    struct req *r = req_of(self);
    if (loses_its_own(r->head)) {
        const struct s3_error e = {.status = 400, .code = "InvalidRequest",
            .message = "Connection names a field that belongs to the request itself.",
            .resource = r->ask.path};
        return say(self, &e);
    }
    if (!put_is_needed(r))
        return GO(relay, self, ASK);
    enum err e = put_open(self);
    if (e == ERR_MEMORY)
        return say_err(self, e);
    if (e != OK)
        return put_failed(self, PUT_REFUSED, e);
    return self->put->has_body && !self->put->streams ? GO(relay, self, GATHER)
                                                      : GO(relay, self, DOUBT);
}

static enum turn relay_GATHER(struct relay *self) /* a body that is received before it is sent */
{
    enum err why;
    enum put_turn turn = put_gather(self, &why);
    if (turn == PUT_BUSY)
        return WAIT;
    return turn == PUT_DONE ? GO(relay, self, DOUBT) : put_failed(self, turn, why);
}

/* what may be sent now is sent only with doubt on disk; a stream's last byte waits for it */
static enum turn relay_DOUBT(struct relay *self)
{
    enum err e = put_doubt(self);
    if (e != OK)
        return e == ERR_MEMORY ? say_err(self, e) : put_failed(self, PUT_REFUSED, e);
    return put_is_doubting(self->put) && !self->put->streams ? WAIT : GO(relay, self, ASK);
}

static enum turn relay_ASK(struct relay *self)
{
    if (!describe(self))
        return say_err(self, ERR_MEMORY);
    if (list_open(self)) {
        req_of(self)->close = must_close(self);
        list_write_head(self);
        return GO(relay, self, ANSWER);
    }
    self->begun = true;
    req_starves(req_of(self), STALL_MISS);
    exchange_begin(&self->x, self->m.core, &self->ask, &self->m);
    if (!self->put || !self->put->streams)
        return GO(relay, self, HEAD);
    self->took_ms = self->m.core->now_ms;
    watch(self);
    return GO(relay, self, UPLOAD);
}

static enum turn relay_UPLOAD(struct relay *self) /* client -> two buffers -> upstream */
{
    enum err why;
    enum put_turn turn = put_pump(self, &why);
    if (turn == PUT_BUSY && must_yield(self))
        turn = put_late(self, &why);
    if (turn == PUT_BUSY)
        return WAIT;
    timer_stop(&self->watch);
    self->put->turn = (uint8_t)turn;
    self->put->why = (uint8_t)why;
    return GO(relay, self, HALT);
}

/* Upstream may have answered in the middle of it, also of a "100 Continue". */
/* what is under way with the client comes to rest */
static enum turn relay_HALT(struct relay *self)
{
    struct put *p = self->put;
    enum err why;
    if (!put_halt(self, &why))
        return why == OK ? WAIT : FAIL(self, why);
    return p->turn == PUT_DONE ? GO(relay, self, HEAD) : put_failed(self, p->turn, p->why);
}

/* ---- the answer's head ---- */

static void write_head(struct relay *l)
{
    struct req *r = req_of(l);
    const struct http_head *h = l->x.head;
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_begin(&r->out, h->status, &r->stamp);
    s3_headers_relay(&r->out, h, false);
    if (h->status >= 400)
        exchange_blank_echo(&l->x, r->out.at, r->out.len);
    /* an empty body's length, too */
    bool unended = false, told = h->status != 204 && h->status != 304;
    if (l->x.has_length && !l->rename && (told || r->head_request)) {
        text_adds(&r->out, "Content-Length: ");
        text_addu(&r->out, l->x.length);
        text_adds(&r->out, "\r\n");
    } else if (!l->no_body) {
        l->chunked = r->head->minor == 1;
        unended = !l->chunked;
        if (l->chunked)
            text_adds(&r->out, "Transfer-Encoding: chunked\r\n");
    }
    text_addf(&r->out, "x-cache: %s\r\n", r->x_cache);
    r->close = must_close(l) || unended;
    text_adds(&r->out, r->close ? "Connection: close\r\n\r\n" : "\r\n");
}

/* Of a 206. Several ranges (and a part's number) are upstream's to understand. */
static bool is_asked_range(struct relay *l)
{
    const struct exchange *x = &l->x;
    struct span asked = req_of(l)->ask.range; /* left out with an If-Range */
    if (!l->has_range)
        return false;
    uint64_t from, to, size = x->has_range ? x->range_size : UINT64_MAX;
    enum http_range range = http_range_apply(asked, size, &from, &to);
    if (range == HTTP_RANGE_NONE)
        return true;
    return range == HTTP_RANGE_OK && x->has_range && x->range_from == from && x->range_to == to;
}

/* What is wrong with the answer, or NULL. */
static const char *mistrust(struct relay *l)
{
    const struct exchange *x = &l->x;
    uint16_t status = x->head->status;
    if (x->body_refused && status < 300)
        return "success before it had the body";
    if (status == 200 || status >= 400 || (status == 304 && l->conditional) ||
        (l->put && status > 200 && status < 300)) /* 201, 202, 204: of changes */
        return NULL;
    if (status != 206)               /* a redirect, a 304 to no condition, a proxy's 203 */
        return "a status that was not asked for";
    if (!is_asked_range(l))
        return "not the range that was asked for";
    l->whole = x->has_range ? x->range_to - x->range_from + 1 : 0;
    bool fits = l->whole == 0 || !x->has_length || x->length == l->whole;
    return fits ? NULL : "another length than its range has";
}

static enum turn relay_HEAD(struct relay *self) /* the request is on its way */
{
    struct req *r = req_of(self);
    if (self->x.failed)
        return say_err(self, self->x.m.why != OK ? self->x.m.why : ERR_UPSTREAM_RESET);
    if (!self->x.head_known || (self->put && put_is_doubting(self->put)))
        return WAIT;
    const char *wrong = mistrust(self);
    if (wrong) {
        exchange_refuse(&self->x, wrong);
        return say_err(self, ERR_UPSTREAM_PROTOCOL);
    }
    uint16_t status = self->x.head->status;
    self->no_body = r->head_request || status == 204 || status == 304 ||
                    (self->x.has_length && self->x.length == 0);
    r->status = status;
    if (!route_answer(self))
        return say_err(self, ERR_MEMORY);
    if (r->who.filtered && status == 200 && !self->no_body) {
        self->buckets = buckets_open(r);
        return self->buckets ? GO(relay, self, LIST) : say_err(self, ERR_MEMORY);
    }
    write_head(self);
    if (r->out.over)
        return say_err(self, ERR_UPSTREAM_PROTOCOL);
    list_begin(self);
    return self->no_body ? GO(relay, self, ANSWER) : GO(relay, self, PUMP);
}

/* ---- the body ---- */

static unsigned waiting(const struct relay *l) /* full buffers that were not sent yet */
{
    return l->fill_at - l->send_at;
}

static bool is_error(const struct relay *l)
{
    return l->x.head->status >= 400;
}

static struct buffer **slot(struct relay *l, unsigned at)
{
    return &l->buffer[at % RELAY_BUFFERS];
}

/* What upstream brought into the buffer being filled. */
static enum err take_read(struct relay *l)
{
    struct exchange *x = &l->x;
    if (x->read_got > 0) {
        uint32_t len = x->read_got;
        TRY(route_answer_bytes(l, (*slot(l, l->fill_at))->mem, &len));
        if (is_error(l))
            exchange_blank_echo(x, (char *)(*slot(l, l->fill_at))->mem, len);
        l->filled[l->fill_at % RELAY_BUFFERS] = len;
        if (l->put)
            keep_answer(l, (*slot(l, l->fill_at))->mem, len);
        list_add(l, (*slot(l, l->fill_at))->mem, len);
        l->fill_at += len > 0;
        l->received += x->read_got;
        x->read_got = 0;
    }
    if (x->failed)
        return x->m.why != OK ? x->m.why : ERR_UPSTREAM_RESET;
    if (x->at_end && l->whole > 0 && l->received != l->whole)
        return ERR_UPSTREAM_SHORT;
    if (x->at_end && l->rename && !xml_rename_over(l->rename))
        return ERR_UPSTREAM_PROTOCOL;
    l->body_over = l->body_over || x->at_end;
    if (l->body_over)
        list_end(l);
    return OK;
}

static void read_on(struct relay *l)
{
    if (l->body_over || l->x.reading || waiting(l) >= RELAY_BUFFERS || l->room.busy)
        return;
    struct buffer **b = slot(l, l->fill_at), **other = slot(l, l->fill_at + 1);
    if (!*b)
        *b = pool_take(cache_of(l), RELAY_BYTES, BUFFER_DEMAND);
    /* No room for a second one: the first goes on alone. Waiting with one in hand, many relays
     * could wait for each other. */
    if (!*b && waiting(l) == 0 && !req_of(l)->send.op.busy) {
        *b = *other;
        *other = NULL;
    }
    uint32_t aside = l->rename ? XML_RENAME_GROWTH : 0;
    /* Upstream may drip white space, so that clients wait on; an error is looked at as a whole. */
    if (*b && l->put && !is_error(l))
        exchange_read_some(&l->x, (*b)->mem + aside, RELAY_BYTES - aside);
    else if (*b)
        exchange_read(&l->x, (*b)->mem + aside, RELAY_BYTES - aside);
    else if (l->fill_at == l->send_at)
        pool_wait(cache_of(l), &l->room, &l->m);
}

static void sent(struct relay *l)
{
    l->head_sent = true;
    if (waiting(l) > 0) {
        l->sent += l->filled[l->send_at % RELAY_BUFFERS];
        req_of(l)->source_bytes[SOURCE_UPSTREAM] += l->filled[l->send_at % RELAY_BUFFERS];
        l->send_at++;
    }
}

/* Who drips would hold upstream for hours, if each few bytes counted. */
static void note_taken(struct relay *l)
{
    uint64_t taken = l->sent + req_of(l)->send.done;
    if (taken - l->took_at < RELAY_DRIP_BYTES)
        return;
    l->took_at = taken;
    l->took_ms = l->m.core->now_ms;
}

static void go_on_sending(struct relay *l)
{
    struct req *r = req_of(l);
    r->send.some = true;             /* so that its end tells that something was taken */
    req_feeds(r);
    if (l->watch.at_ms == 0)
        watch(l);
    send_go(&r->send, r->conn, &l->m);
}

/* Some of what it has left. */
static void take_more(struct relay *l)
{
    note_taken(l);
    go_on_sending(l);
}

static void send_next(struct relay *l)
{
    struct req *r = req_of(l);
    bool last = l->body_over && waiting(l) <= 1;
    if (waiting(l) == 0 && !last)
        return;
    send_reset(&r->send);
    if (!l->head_sent)
        send_add(&r->send, r->out.at, (uint32_t)r->out.len);
    if (waiting(l) > 0) {
        uint32_t n = l->filled[l->send_at % RELAY_BUFFERS];
        if (l->chunked) {
            struct text t;
            text_init(&t, l->chunk_line, sizeof(l->chunk_line));
            text_addf(&t, "%x\r\n", n);
            send_add(&r->send, t.at, (uint32_t)t.len);
        }
        send_add(&r->send, (*slot(l, l->send_at))->mem, n);
        if (l->chunked)
            send_add(&r->send, "\r\n", 2);
    }
    if (last && l->chunked)
        send_add(&r->send, "0\r\n\r\n", 5);
    l->last_sent = last;
    if (r->send.count == 0)          /* a body that ended just behind a full buffer */
        return;
    req_first_byte(r);
    l->took_ms = l->m.core->now_ms;
    l->took_at = l->sent;
    go_on_sending(l);
}

/* a list of buckets comes, of which the client may see a part */
static enum turn relay_LIST(struct relay *self)
{
    struct req *r = req_of(self);
    if (self->x.reading || self->room.busy)
        return WAIT;
    enum err e = take_read(self);
    while (e == OK && waiting(self) > 0) {
        unsigned i = self->send_at++ % RELAY_BUFFERS;
        e = buckets_feed(self->buckets, span_make(self->buffer[i]->mem, self->filled[i]));
    }
    if (e == OK && !self->body_over) {
        read_on(self);
        return WAIT;
    }
    r->close = must_close(self);
    if (e == OK)
        e = buckets_end(self->buckets, &r->out);
    if (e == OK)
        return GO(relay, self, ANSWER);
    return say_err(self, e == ERR_SYNTAX || e == ERR_TOO_LARGE ? ERR_UPSTREAM_PROTOCOL : e);
}

static enum turn relay_PUMP(struct relay *self) /* upstream -> two buffers -> client */
{
    struct req *r = req_of(self);
    if (op_take(&r->send.op)) {
        enum err why;
        if (send_accept(&r->send, r->conn, &why))
            sent(self);
        else if (why != OK)
            return FAIL(self, why);
        else
            take_more(self);
    }
    if (must_go(self))
        return FAIL(self, ERR_TIMEOUT);
    if (!self->x.reading && !self->body_over) {
        enum err e = take_read(self);
        if (e != OK && !self->head_sent && !r->send.op.busy)
            return say_err(self, e);
        if (e != OK)
            return FAIL(self, e);
    }
    read_on(self);
    if (self->put && self->body_over && !put_settle(self))
        return WAIT;                 /* the outcome may stand in the last bytes */
    if (r->send.op.busy)
        return WAIT;
    if (self->last_sent)
        return GO(relay, self, DRAIN);
    send_next(self);
    if (!r->send.op.busy && self->last_sent)
        return GO(relay, self, DRAIN);
    if (!r->send.op.busy)
        req_starves(r, self->room.busy ? STALL_THROTTLED : STALL_MISS);
    return WAIT;
}

static void count_listed(struct relay *l) /* a list from memory is out */
{
    if (!l->list_here)
        return;
    l->sent = l->listing->body.len;
    req_of(l)->source_bytes[SOURCE_MEMORY] += l->sent;
}

/* r->out is the whole answer, but for a list's document */
static enum turn relay_ANSWER(struct relay *self)
{
    struct req *r = req_of(self);
    if (op_take(&r->send.op)) {
        enum err why;
        if (send_accept(&r->send, r->conn, &why)) {
            count_listed(self);
            return GO(relay, self, DRAIN);
        }
        if (why != OK)
            return FAIL(self, why);
        send_go(&r->send, r->conn, &self->m);
        return WAIT;
    }
    if (r->send.op.busy || (self->put && !put_settle(self)))
        return WAIT;
    send_reset(&r->send);
    send_add(&r->send, r->out.at, (uint32_t)r->out.len);
    if (self->list_here)
        send_add(&r->send, self->listing->body.at, (uint32_t)self->listing->body.len);
    req_feeds(r);
    req_first_byte(r);
    send_go(&r->send, r->conn, &self->m);
    return WAIT;
}

/* upstream and the kernel may still hold our buffers */
static enum turn relay_DRAIN(struct relay *self)
{
    if (self->begun && !self->ending) {
        self->ending = true;
        exchange_end(&self->x);
    }
    if (self->room.busy)
        pool_leave(cache_of(self), &self->room);
    timer_stop(&self->watch);
    if (self->m.why != OK)
        send_stop(&req_of(self)->send, &self->m);
    bool closed = !self->begun || self->x.over;
    if (self->put && !put_rest(self))
        return WAIT;
    return closed && self->m.inflight == 0 ? GO(relay, self, END) : WAIT;
}

static enum turn relay_END(struct relay *self)
{
    struct req *r = req_of(self);
    for (unsigned i = 0; i < RELAY_BUFFERS; i++)
        if (self->buffer[i])
            pool_give(cache_of(self), self->buffer[i]);
    if (self->put)
        put_close(self);
    buckets_close(self->buckets);
    list_close(self);
    r->body_bytes = self->sent;
    r->cut = self->m.why != OK;
    return OVER;
}

static void relay_over(struct machine *m)
{
    req_over(req_of((struct relay *)m));
}

void relay_begin(struct req *r)
{
    struct relay *l = &r->relay;
    memset(l, 0, sizeof(*l));
    r->result = RESULT_BYPASS;
    r->x_cache = "bypass";
    MACHINE_BEGIN(relay, l, r->core, relay_over);
}
