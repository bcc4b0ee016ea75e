/* A request's body on its way to upstream, and what a change makes doubtful: the writing half of
 * the machine in relay.c.
 *
 * Invariants:
 *  1. A body streams through two buffers, with back-pressure both ways; only bodies that fit into
 *     one buffer, and the lists that have to be read (DeleteObjects, CompleteMultipartUpload), are
 *     received as a whole first. Such a one may be sent again; of others no byte goes twice.
 *  2. "100 Continue" is said when upstream is ready for the body, never before.
 *  3. The last byte of a body leaves when the whole body was found good (framing, signatures of
 *     chunks, checksums that upstream cannot see), and when the doubt about what we hold is
 *     durable. Until then upstream has a request that is not complete, and stores nothing.
 *  4. The doubt ends for its epoch before the client hears the outcome (put_settle), so that what
 *     he reads next was asked for after it.
 *
 * Life: put_open() takes a struct put from the core's stock, put_close() gives it back when nothing
 * of it is under way any more.
 * Failure: what is wrong with the body is an S3 error, and upstream's connection is cut; a client
 * that goes away cuts it as well. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

enum {
    WHOLE_BYTES = RELAY_BYTES - 4 * KIB, /* behind a whole body its last framing needs room */
    SUFFIX_ROOM = 512,               /* of a streamed body: chunk end and trailer */
    LIST_BYTES_MAX = 2 * MIB,        /* DeleteObjects, CompleteMultipartUpload */
    LISTS_BYTES_MAX = 64 * MIB,      /* of all requests that hold more than a buffer */
    ANSWER_MS = 2 * 60 * 1000,       /* upstream has everything: it may need time to store it */
    LONG_ANSWER_MS = 60 * 60 * 1000, /* copies of 5 GiB, 10,000 parts */
};

static _Atomic uint64_t lists_bytes;

static struct req *req_of(struct relay *l)
{
    return container_of(l, struct req, relay);
}

static struct cache *cache_of(const struct relay *l)
{
    return l->m.core->server->cache;
}

static struct origin *origin_of(struct relay *l)
{
    return l->m.core->server->origin[req_of(l)->route.upstream];
}

/* ---- refusals ---- */

void put_refuse(struct relay *l, uint16_t status, const char *code, const char *why)
{
    l->put->error = (struct s3_error){
        .status = status, .code = code, .message = why, .resource = req_of(l)->ask.path};
}

static enum err refuse_body(struct relay *l, const struct payload_refusal *no)
{
    struct s3_error *e = &l->put->error;
    put_refuse(l, no->status, no->code, no->why);
    e->argument_name = span_of(no->argument);
    e->chunk = no->chunk;
    e->chunk_bytes = no->chunk_bytes;
    return ERR_SYNTAX;
}

/* ---- opening ---- */

bool put_is_needed(const struct req *r)
{
    return s3_operation_changes(r->ask.op) || r->head->method == HTTP_POST;
}

/* The body is a list that says what becomes of which object. */
static bool is_list(const struct req *r)
{
    return r->ask.op == DeleteObjects || r->ask.op == CompleteMultipartUpload;
}

static bool has_body(const struct req *r)
{
    return r->head->method == HTTP_PUT || r->head->method == HTTP_POST;
}

/* A body that is not announced is empty, but S3 takes none for an object without its length. */
static bool lacks_length(const struct req *r)
{
    return (r->ask.op == PutObject || r->ask.op == UploadPart) &&
           r->head->framing == HTTP_BODY_NONE;
}

static enum err read_facts(struct relay *l)
{
    struct put *p = l->put;
    struct req *r = req_of(l);
    struct payload_refusal no;
    bool sums_of_body = r->ask.op != CompleteMultipartUpload;
    if (lacks_length(r)) {
        put_refuse(l, 411, "MissingContentLength",
                   "You must provide the Content-Length HTTP header.");
        return ERR_SYNTAX;
    }
    if (payload_read(r->head, sums_of_body, &p->facts, &no) != OK)
        return refuse_body(l, &no);
    if (is_list(r) && p->facts.bytes > LIST_BYTES_MAX) {
        put_refuse(l, 400, "MaxMessageLengthExceeded",
                   "Your request was too big: the limit is 2 MiB.");
        return ERR_TOO_LARGE;
    }
    return OK;
}

/* Without credentials of ours nobody else looks at the literal hash. */
static unsigned checks_of(struct relay *l, bool whole)
{
    bool unsigned_ = !settings_creds(l->m.core->settings, req_of(l)->route.upstream);
    return whole || unsigned_ ? PAYLOAD_CHECK_ALL : l->put->plan.checks;
}

enum err put_open(struct relay *l)
{
    struct req *r = req_of(l);
    struct put *p = l->put = s3_put_take(l->m.core);
    if (!p)
        return ERR_MEMORY;
    p->change = p->few;
    p->change_room = ARRAY_COUNT(p->few);
    if (!has_body(r)) {
        p->body_over = true;
        return OK;
    }
    TRY(read_facts(l));
    origin_payload(origin_of(l), l->m.core->settings->config, &p->to);
    p->has_body = true;
    /* Also of an empty body: botocore takes a final answer without a 100 before it for the answer
     * to its next request on the connection, too. */
    p->awaited = r->head->expect_continue;
    p->streams = !is_list(r) && p->facts.bytes > 0 && (p->facts.bytes > WHOLE_BYTES || p->awaited);
    if (p->streams)
        payload_plan_stream(&p->plan, &p->facts, &p->to);
    const struct payload_seed *seed = r->who.has_seed ? &r->who.seed : NULL;
    if (payload_begin(&p->decoder, &p->facts, seed, checks_of(l, !p->streams)) != OK)
        return refuse_body(l, &p->decoder.no);
    keep_begin(l);
    return OK;
}

/* ---- the head that goes upstream ---- */

bool put_relays(const struct relay *l, struct span name)
{
    const struct put *p = l->put;
    return !p->has_body || payload_relays(&p->plan, &p->facts, name);
}

static bool takes_long(enum s3_operation op)
{
    return op == CopyObject || op == UploadPartCopy || op == CompleteMultipartUpload ||
           op == RenameObject || op == RestoreObject || op == DeleteObjects;
}

/* What the first try did may fail the second, or be done twice: a condition that it made false,
 * bytes that are added to an object, and what nobody here knows. */
static bool is_for_once(const struct req *r)
{
    return r->ask.if_match.len > 0 || r->ask.if_none_match.len > 0 || r->ask.op == RenameObject ||
           r->ask.op == UnknownWrite || http_find(r->head, "x-amz-write-offset-bytes").at;
}

bool put_describe(struct relay *l)
{
    struct put *p = l->put;
    struct req *r = req_of(l);
    l->ask.answer_ms = takes_long(r->ask.op) ? LONG_ANSWER_MS : ANSWER_MS;
    l->ask.once = is_for_once(r);
    if (!p->has_body)
        return true;
    for (unsigned i = 0; i < p->plan.add_count; i++) {
        if (l->ask.field_count == HTTP_FIELDS_MAX)
            return false;
        l->field[l->ask.field_count++] = p->plan.add[i];
    }
    l->ask.has_body = true;
    l->ask.body_bytes = p->plan.wire_bytes;
    l->ask.payload_hash = span_of(p->plan.hash);
    if (!p->streams)
        l->ask.body = span_make(p->whole, p->whole_len);
    return true;
}

/* ---- 100 Continue ---- */

/* True: the client knows that it may send, or never waited for it. */
static bool say_continue(struct relay *l, enum err *why)
{
    static const char words[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct req *r = req_of(l);
    struct put *p = l->put;
    *why = OK;
    if (!p->awaited)
        return true;
    if (r->send.op.busy)
        return false;
    if (!p->saying) {
        send_reset(&r->send);
        send_add(&r->send, words, sizeof(words) - 1);
        p->saying = true;
        send_go(&r->send, r->conn, &l->m);
        return false;
    }
    if (!op_take(&r->send.op))
        return false;
    if (send_accept(&r->send, r->conn, why)) {
        p->awaited = p->saying = false;
        return true;
    }
    p->unsaid = *why != OK;
    if (!p->unsaid)
        send_go(&r->send, r->conn, &l->m);
    return false;
}

/* ---- whole bodies ---- */

static bool take_room(struct relay *l)
{
    struct put *p = l->put;
    if (p->whole)
        return true;
    if (p->facts.bytes <= WHOLE_BYTES) {
        if (!l->buffer[0])
            l->buffer[0] = pool_take(cache_of(l), RELAY_BYTES, BUFFER_DEMAND);
        if (!l->buffer[0] && !l->room.busy)
            pool_wait(cache_of(l), &l->room, &l->m);
        p->whole = l->buffer[0] ? (char *)l->buffer[0]->mem : NULL;
        p->whole_cap = RELAY_BYTES;
        return p->whole;
    }
    p->whole_cap = (uint32_t)p->facts.bytes + 4 * KIB;
    if (atomic_fetch_add(&lists_bytes, p->whole_cap) + p->whole_cap <= LISTS_BYTES_MAX)
        p->whole = p->list = mem_take(p->whole_cap);
    if (!p->whole)
        atomic_fetch_sub(&lists_bytes, p->whole_cap);
    return p->whole;
}

/* What the client has done wrong with the body he hears; nothing behind it makes sense. */
static enum put_turn broken(struct relay *l, enum err why)
{
    if (why != ERR_TIMEOUT && why != ERR_SYNTAX)
        return PUT_BROKEN;
    if (why == ERR_TIMEOUT)
        put_refuse(l, 400, "RequestTimeout", "The body did not go on for too long.");
    else
        put_refuse(l, 400, "BadRequest", "The HTTP chunks of the body are malformed.");
    req_of(l)->close = true;
    return PUT_REFUSED;
}

/* More of the body into mem; *got bytes of the object are what is left of it. */
static enum put_turn take(struct relay *l, char *mem, size_t room, size_t *got, enum err *why)
{
    struct put *p = l->put;
    size_t raw = 0;
    *got = 0;
    enum body_state s = conn_body_take(req_of(l)->conn, &l->m, mem, room, &raw, why);
    if (s == BODY_BUSY)
        return PUT_BUSY;
    if (s == BODY_BROKEN)
        return broken(l, *why);
    p->body_over = s == BODY_END;
    enum err e =
        s == BODY_OK ? payload_decode(&p->decoder, mem, raw, got) : payload_end(&p->decoder);
    if (e == OK) {
        upload_stream_add(&p->stream, mem, *got);
        return p->body_over ? PUT_DONE : PUT_MORE;
    }
    *why = refuse_body(l, &p->decoder.no);
    return PUT_REFUSED;
}

enum put_turn put_gather(struct relay *l, enum err *why)
{
    struct put *p = l->put;
    enum put_turn turn = PUT_MORE;
    *why = ERR_UPSTREAM_DOWN;
    if (p->awaited && origin_is_down(origin_of(l)))
        return PUT_BROKEN;
    *why = ERR_BUSY;
    if (!take_room(l))
        return l->room.busy ? PUT_BUSY : PUT_BROKEN;
    if (!say_continue(l, why))
        return *why == OK ? PUT_BUSY : PUT_BROKEN;
    while (turn == PUT_MORE) {
        size_t got;
        if (p->whole_len == p->whole_cap) {
            put_refuse(l, 400, "InvalidRequest", "The body has more framing than content.");
            return PUT_REFUSED;
        }
        turn = take(l, p->whole + p->whole_len, p->whole_cap - p->whole_len, &got, why);
        p->whole_len += (uint32_t)got;
    }
    if (turn == PUT_DONE) {
        payload_plan_whole(&p->plan, &p->decoder, span_make(p->whole, p->whole_len), &p->to);
        keep_complete(l);
    }
    return turn;
}

/* ---- bodies that stream ---- */

/* How many bytes of the request may have left by now, framing included. */
static uint64_t may_have_left(const struct put *p)
{
    uint64_t most = p->plan.prefix_len + payload_sendable(&p->decoder);
    if (!p->decoder.ended)
        return most;
    most += p->plan.suffix_len;
    return put_is_doubting(p) && most > 0 ? most - 1 : most;
}

static bool take_buffer(struct relay *l)
{
    struct put *p = l->put;
    struct buffer **b = &l->buffer[l->fill_at % RELAY_BUFFERS];
    if (l->fill_at - l->send_at == RELAY_BUFFERS)
        return false;                /* both are on their way */
    if (*b)
        return true;
    *b = pool_take(cache_of(l), RELAY_BYTES, BUFFER_DEMAND);
    if (!*b && l->fill_at == l->send_at && !l->room.busy) /* with one in hand it goes on alone */
        pool_wait(cache_of(l), &l->room, &l->m);
    if (*b && p->filled_all == 0) {
        memcpy((*b)->mem, p->plan.prefix, p->plan.prefix_len);
        l->filled[l->fill_at % RELAY_BUFFERS] = p->plan.prefix_len;
        p->filled_all = p->plan.prefix_len;
    }
    return *b;
}

/* What upstream hears behind the object's bytes stands in the last buffer. */
static void add_suffix(struct relay *l)
{
    struct put *p = l->put;
    unsigned i = l->fill_at % RELAY_BUFFERS;
    struct text t;
    text_init(&t, (char *)l->buffer[i]->mem + l->filled[i], SUFFIX_ROOM);
    payload_suffix(&p->plan, &p->decoder, &t);
    must(!t.over && t.len == p->plan.suffix_len);
    l->filled[i] += (uint32_t)t.len;
    p->filled_all += t.len;
}

/* Client -> buffers. PUT_BUSY: as far as it goes now; PUT_DONE: all of it is here. */
static enum put_turn fill(struct relay *l, enum err *why)
{
    struct put *p = l->put;
    while (!p->body_over && take_buffer(l)) {
        unsigned i = l->fill_at % RELAY_BUFFERS;
        size_t got, room = RELAY_BYTES - SUFFIX_ROOM - l->filled[i];
        if (room == 0) {
            l->fill_at++;
            continue;
        }
        enum put_turn t = take(l, (char *)l->buffer[i]->mem + l->filled[i], room, &got, why);
        l->filled[i] += (uint32_t)got;
        p->filled_all += got;
        if (t == PUT_DONE)
            add_suffix(l);
        if (t != PUT_MORE)
            return t;
    }
    return p->body_over ? PUT_DONE : PUT_BUSY;
}

/* A write has ended: its bytes are upstream's, and a buffer without any is free again. */
static void take_written(struct relay *l)
{
    struct put *p = l->put;
    unsigned i = l->send_at % RELAY_BUFFERS;
    if (l->x.writing)
        return;
    p->sent += p->under_way;
    p->out += p->under_way;
    p->under_way = 0;
    if (p->out < l->filled[i] || l->send_at == l->fill_at)
        return;
    l->filled[i] = p->out = 0;
    l->send_at++;
}

/* Buffers -> upstream. */
static void write_on(struct relay *l)
{
    struct put *p = l->put;
    unsigned i = l->send_at % RELAY_BUFFERS;
    if (l->x.writing || !l->buffer[i])
        return;
    uint64_t most = may_have_left(p) - p->sent;
    uint32_t n = (uint32_t)min_u64(l->filled[i] - p->out, most);
    if (n == 0)
        return;
    p->under_way = n;
    exchange_write(&l->x, l->buffer[i]->mem + p->out, n);
}

enum put_turn put_pump(struct relay *l, enum err *why)
{
    struct put *p = l->put;
    take_written(l);
    upload_stream_reap(&p->stream);
    *why = l->x.m.why != OK ? l->x.m.why : ERR_UPSTREAM_RESET;
    if (l->x.failed)
        return PUT_BROKEN;
    if (l->x.head_known || p->sent == p->plan.wire_bytes) /* an early answer: it wants no more */
        return PUT_DONE;
    if (!l->x.body_wanted)
        return PUT_BUSY;
    if (!say_continue(l, why))
        return *why == OK ? PUT_BUSY : PUT_BROKEN;
    enum put_turn t = fill(l, why);
    if (t == PUT_REFUSED || t == PUT_BROKEN)
        return t;
    write_on(l);
    return PUT_BUSY;
}

bool put_goes_on(struct relay *l)
{
    struct put *p = l->put;
    /* There is room for what he sends, be it that a little of it goes on just now. */
    bool room = l->fill_at - l->send_at < RELAY_BUFFERS && l->buffer[l->fill_at % RELAY_BUFFERS];
    bool awaited = l->x.body_wanted && room && !p->awaited && !p->body_over && !l->room.busy;
    if (awaited && p->filled_all - p->seen_all < RELAY_DRIP_BYTES)
        return false;
    p->seen_all = p->filled_all;
    return true;
}

enum put_turn put_late(struct relay *l, enum err *why)
{
    *why = ERR_TIMEOUT;
    return broken(l, *why);
}

bool put_halt(struct relay *l, enum err *why)
{
    struct put *p = l->put;
    *why = OK;
    bool says = p->saying && !p->unsaid;
    if (!conn_body_settle(req_of(l)->conn, &l->m) || (says && !say_continue(l, why)))
        return false;
    l->fill_at = l->send_at = 0;     /* the buffers are the answer's from here on */
    memset(l->filled, 0, sizeof(l->filled));
    return true;
}

/* ---- what becomes doubtful ---- */

void put_doubt_object(struct relay *l, struct span bucket, struct span key, struct span version)
{
    struct put *p = l->put;
    const struct req *r = req_of(l);
    struct okey k = {.bucket = bucket,
                     .key = key,
                     .version = version,
                     .upstream = (uint8_t)r->route.upstream};
    cache_key(cache_of(l), &k);
    must(p->change_count < p->change_room);
    cache_write_begin(cache_of(l), &p->change[p->change_count++], &k, &l->m);
}

/* What a rename takes away. s3_route() found its bucket at the target's store. */
static void doubt_source(struct relay *l, const struct s3_source *source)
{
    struct conf_route from;
    must(conf_route(l->m.core->settings->config, source->bucket, &from));
    put_doubt_object(l, from.bucket, source->key, source->version);
}

static void doubt_bucket(struct relay *l)
{
    struct put *p = l->put;
    cache_bucket_write_begin(cache_of(l), &p->few[p->change_count++], req_of(l)->route.bucket,
                             &l->m);
}

enum err put_doubt(struct relay *l)
{
    struct put *p = l->put;
    struct req *r = req_of(l);
    const struct s3_ask *a = &r->ask;
    struct s3_source source = {.key = {NULL, 0}};
    if (p->doubted)
        return OK;
    if (a->op == RenameObject) {
        enum err e = s3_source_read(a, &r->arena, &source);
        if (e == ERR_SYNTAX)
            put_refuse(l, 400, "InvalidArgument", "x-amz-rename-source names no object.");
        TRY(e);
    }
    p->doubted = true;
    switch ((enum s3_action)s3_operation_table[a->op].action) {
    case S3_WRITE:
        if (a->level == S3_OBJECT)
            put_doubt_object(l, req_of(l)->route.bucket, a->key, a->version);
        if (source.key.len > 0)
            doubt_source(l, &source);
        if (a->wide)
            doubt_bucket(l);
        return OK;
    case S3_WRITE_BUCKET:
        doubt_bucket(l);
        return OK;
    case S3_WRITE_KEYS:
        return put_doubt_list(l);
    default:
        return OK;
    }
}

bool put_is_doubting(const struct put *p)
{
    for (unsigned i = 0; i < p->change_count; i++)
        if (p->change[i].busy)
            return true;
    return false;
}

bool put_settle(struct relay *l)
{
    struct put *p = l->put;
    const struct s3_ask *a = &req_of(l)->ask;
    const struct exchange *x = &l->x;
    if (p->settled)
        return true;
    /* no more once the exchange is over */
    bool heard = l->begun && x->head_known && x->head && !x->body_refused;
    bool good = heard && x->head->status / 100 == 2 && l->m.why == OK;
    if (put_is_doubting(p) || !keep_settle(l, good))
        return false;
    p->settled = true;
    bool gone = good && a->op == DeleteObject && a->version.len == 0;
    for (unsigned i = 0; i < p->change_count; i++)
        cache_write_end(cache_of(l), &p->change[i], gone);
    if (good && a->op == CreateBucket)
        fill_forget_buckets(l->m.core);
    return true;
}

/* ---- the end ---- */

bool put_rest(struct relay *l)
{
    return conn_body_settle(req_of(l)->conn, &l->m) && put_settle(l);
}

void put_close(struct relay *l)
{
    struct put *p = l->put;
    if (p->list) {
        mem_give(p->list);
        atomic_fetch_sub(&lists_bytes, p->whole_cap);
    }
    if (p->change != p->few)
        mem_give(p->change);
    s3_put_give(l->m.core, p);
    l->put = NULL;
}
