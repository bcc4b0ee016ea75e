/* How the test origin serves one connection: one thread each, so that every fault reads from top to
 * bottom.
 *
 * Invariants:
 *  1. A thread touches its own connection only; what is shared is planned under the lock
 *     (origin_rules.c).
 *  2. Whatever waits (delay, rate, stall) waits in origin_wait_until(), which ends when the peer
 *     leaves or the origin stops.
 *  3. The socket is closed under the lock, so that origin_cut() never meets a descriptor of
 *     somebody else.
 *
 * Life: origin.c makes the connection and its thread, and joins it when `over` is set.
 * Failure: a socket error ends that connection only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/origin_part.h"

enum { PIECE_BYTES = 256 * KIB, PACED_BYTES = 16 * KIB };

/* ---- waiting and sending ---- */

/* False when the peer left or the origin stops. */
bool origin_wait_until(struct connection *c, uint64_t due_us)
{
    for (;;) {
        uint64_t now = clock_us();
        if (due_us <= now)
            return true;
        struct pollfd p[2] = {{c->fd, POLLRDHUP, 0}, {c->origin->stop, POLLIN, 0}};
        uint64_t left = due_us - now;
        struct timespec t = {(time_t)(left / 1000000), (long)(left % 1000000 * 1000)};
        if (ppoll(p, 2, due_us == UINT64_MAX ? NULL : &t, NULL) > 0)
            return false;
    }
}

bool origin_send(struct connection *c, const char *at, size_t len, uint64_t *taken)
{
    while (len > 0) {
        ssize_t n = send(c->fd, at, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
        if (taken)
            *taken += (uint64_t)n;
    }
    return true;
}

static bool send_drip(struct connection *c, const char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!origin_send(c, at + i, 1, NULL) || !origin_wait_until(c, clock_us() + 200))
            return false;
    return true;
}

/* A reset throws away what the peer's kernel has not got yet: that must be nothing, else nobody
 * knows where the cut is. */
void origin_make_reset(struct connection *c)
{
    struct linger hard = {1, 0};
    int queued = 0;

    while (ioctl(c->fd, SIOCOUTQ, &queued) == 0 && queued > 0 &&
           origin_wait_until(c, clock_us() + 200))
        ;
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

/* ---- reading requests ---- */

static struct span field_of(const char *head, size_t len, const char *name)
{
    size_t want = strlen(name);

    for (const char *at = head; at && at < head + len; at = memchr(at, '\n', head + len - at)) {
        at += *at == '\n';
        bool room = (size_t)(head + len - at) > want;
        if (!room || at[want] != ':' || strncasecmp(at, name, want) != 0)
            continue;
        const char *stop = memchr(at, '\r', head + len - at);
        const char *from = at + want + 1;
        while (stop && from < stop && *from == ' ')
            from++;
        return stop ? span_make(from, (size_t)(stop - from)) : span_of("");
    }
    return span_of("");
}

static enum ask_kind kind_of(const struct request *r)
{
    char value[8];

    if (r->bucket.len == 0)
        return ASKED_BUCKETS;
    if (r->key.len > 0)
        return ASKED_OBJECT;
    if (origin_query(r->query, "location", value, sizeof value))
        return ASKED_LOCATION;
    if (span_is(r->method, "HEAD"))
        return ASKED_BUCKET;
    return ASKED_LIST;
}

static void read_target(struct request *r)
{
    const char *end = r->target.at + r->target.len;
    const char *mark = memchr(r->target.at, '?', r->target.len);
    struct span path = span_make(r->target.at, (size_t)((mark ? mark : end) - r->target.at));

    r->query = mark ? span_make(mark + 1, (size_t)(end - mark - 1)) : span_of("");
    if (path.len > 0)
        path = span_make(path.at + 1, path.len - 1);
    const char *slash = memchr(path.at, '/', path.len);
    size_t cut = slash ? (size_t)(slash - path.at) : path.len;
    size_t n = origin_decode(span_make(path.at, cut), false, r->name, KEY_MAX);
    r->bucket = span_make(r->name, n);
    size_t skip = min_u64(cut + 1, path.len);
    size_t m = origin_decode(span_make(path.at + skip, path.len - skip), false, r->name + n,
                             KEY_MAX - n);
    r->key = span_make(r->name + n, m);
}

/* The head is whole: in[0..len) ends with an empty line. false: not HTTP. */
static bool read_request(struct connection *c, size_t len)
{
    struct request *r = &c->request;
    const char *line = c->in, *stop = memchr(line, '\r', len);
    const char *one = memchr(line, ' ', (size_t)(stop - line));
    const char *two = one ? memchr(one + 1, ' ', (size_t)(stop - one - 1)) : NULL;
    uint64_t n;

    if (!two)
        return false;
    r->method = span_make(line, (size_t)(one - line));
    r->target = span_make(one + 1, (size_t)(two - one - 1));
    const char *fields = stop + 2;
    size_t rest = len - (size_t)(fields - c->in);
    r->fields = span_make(fields, rest);
    r->expect = field_of(fields, rest, "expect").len > 0;
    struct span coding = field_of(fields, rest, "content-encoding");
    r->copies = field_of(fields, rest, "x-amz-copy-source").len > 0;
    r->wrapped = memmem(coding.at, coding.len, "aws-chunked", 11) != NULL;
    r->range = field_of(fields, rest, "range");
    r->if_match = field_of(fields, rest, "if-match");
    r->if_none_match = field_of(fields, rest, "if-none-match");
    r->date = field_of(fields, rest, "x-amz-date");
    struct span mode = field_of(fields, rest, "x-amz-checksum-mode");
    r->checksum_mode = mode.len > 0;
    struct span end = field_of(fields, rest, "connection");
    r->close = end.len == 5 && strncasecmp(end.at, "close", 5) == 0;
    r->length = size_read(field_of(fields, rest, "content-length"), &n) == OK ? n : 0;
    r->chunked = field_of(fields, rest, "transfer-encoding").len > 0;
    read_target(r);
    r->kind = kind_of(r);
    return true;
}

/* Bytes of the next head, 0 when the connection is over. */
static size_t receive_head(struct connection *c)
{
    size_t seen = 0;

    for (;;) {
        char *end = memmem(c->in + seen, c->filled - seen, "\r\n\r\n", 4);
        if (end)
            return (size_t)(end - c->in) + 4;
        seen = c->filled > 3 ? c->filled - 3 : 0;
        if (c->filled == sizeof c->in)
            return 0;
        ssize_t n = recv(c->fd, c->in + c->filled, sizeof c->in - c->filled, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        c->filled += (size_t)n;
    }
}

/* ---- heads ---- */

static void add_field(struct text *t, struct span line)
{
    text_add(t, line);
    text_adds(t, "\r\n");
}

static const char *reason_of(uint16_t status)
{
    switch (status) {
    case 200: return "OK";
    case 206: return "Partial Content";
    case 304: return "Not Modified";
    case 404: return "Not Found";
    case 412: return "Precondition Failed";
    case 503: return "Slow Down";
    default: return "Whatever";
    }
}

/* +N or -N to n. */
static uint64_t shifted(struct span said, uint64_t n)
{
    uint64_t by = 0;

    if (said.len < 2 || size_read(span_from(said, 1), &by) != OK)
        return n;
    return said.at[0] == '+' ? n + by : n - min_u64(by, n);
}

static uint64_t total_of(const struct plan *p)
{
    return shifted(knob_text(&p->knobs, TEXT_TOTAL), p->size);
}

/* Content-Length as the plan or the script wants it; body is what we mean to send. */
static void add_length(struct text *t, const struct plan *p, uint64_t body)
{
    struct span said = knob_text(&p->knobs, TEXT_LENGTH);

    if (knob(&p->knobs, NUMBER_CHUNKED)) {
        text_adds(t, "Transfer-Encoding: chunked\r\n");
        return;
    }
    if (span_is(said, "none") || p->status == 304)
        return;
    if (said.len > 1 && (said.at[0] == '+' || said.at[0] == '-')) {
        body = shifted(said, body);
    } else if (said.len > 0) {
        text_adds(t, "Content-Length: ");
        add_field(t, said);
        return;
    }
    text_addf(t, "Content-Length: %llu\r\n", (unsigned long long)body);
}

static void add_pad(struct text *t, uint64_t bytes)
{
    for (unsigned i = 0; bytes > 0 && !t->over; i++) {
        uint64_t part = min_u64(bytes, 1000);
        text_addf(t, "x-amz-meta-pad-%u: ", i);
        for (uint64_t n = 0; n < part; n++)
            text_addc(t, 'p');
        text_adds(t, "\r\n");
        bytes -= part;
    }
}

static void add_fields(struct text *t, uint64_t many)
{
    for (uint64_t i = 0; i < many && !t->over; i++)
        text_addf(t, "x-amz-meta-%llu: v\r\n", (unsigned long long)i);
}

static void begin_head(struct text *t, struct connection *c)
{
    const struct plan *p = &c->plan;
    char date[40];

    text_init(t, c->out, sizeof c->out);
    text_addf(t, "HTTP/1.1 %u %s\r\n", p->status, reason_of(p->status));
    origin_date((uint64_t)((int64_t)clock_wall_s() + p->clock_s), date);
    text_addf(t, "Date: %s\r\nServer: origin\r\nx-amz-request-id: %016llX\r\n", date,
              (unsigned long long)clock_us());
    if (c->request.close || knob(&p->knobs, NUMBER_CLOSE))
        text_adds(t, "Connection: close\r\n");
    for (unsigned i = 0; i < p->knobs.headers; i++)
        add_field(t, p->knobs.header[i]);
    add_pad(t, knob(&p->knobs, NUMBER_PAD));
    add_fields(t, knob(&p->knobs, NUMBER_FIELDS));
}

static void add_content_range(struct text *t, const struct plan *p)
{
    struct span said = knob_text(&p->knobs, TEXT_CONTENT_RANGE);

    if (span_is(said, "none"))
        return;
    if (said.len > 0) {
        text_adds(t, "Content-Range: ");
        add_field(t, said);
    } else {
        text_addf(t, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)p->from,
                  (unsigned long long)p->to - 1, (unsigned long long)total_of(p));
    }
}

static bool has_field(const struct plan *p, const char *name)
{
    size_t len = strlen(name);

    for (unsigned i = 0; i < p->knobs.headers; i++)
        if (p->knobs.header[i].len > len && strncasecmp(p->knobs.header[i].at, name, len) == 0)
            return true;
    return false;
}

static void add_object_fields(struct text *t, const struct connection *c)
{
    const struct plan *p = &c->plan;
    char date[40];

    if (!span_is(knob_text(&p->knobs, TEXT_ETAG), "none"))
        text_addf(t, "ETag: %s\r\n", p->etag);
    origin_date(p->modified_s, date);
    text_addf(t, "Last-Modified: %s\r\nAccept-Ranges: bytes\r\n", date);
    if (!has_field(p, "content-type:"))
        text_adds(t, "Content-Type: binary/octet-stream\r\n");
    if (knob(&p->knobs, NUMBER_VERSIONING))
        text_addf(t, "x-amz-version-id: %llu\r\n", (unsigned long long)p->version);
    struct span sum = knob_text(&p->knobs, TEXT_CHECKSUM);
    if (sum.len > 0 && c->request.checksum_mode)
        add_field(t, sum);
    if (c->request.checksum_mode && !p->ranged)
        origin_sum_field(p, t);
    if (p->ranged)
        add_content_range(t, p);
}

/* Header fields without an end in sight: as many bytes of them as the peer takes. */
static bool send_flood(struct connection *c, uint64_t bytes)
{
    char line[1024];
    struct text t;

    text_init(&t, line, sizeof line);
    text_adds(&t, "x-amz-meta-flood: ");
    while (t.len < 1000)
        text_addc(&t, 'f');
    text_adds(&t, "\r\n");
    for (uint64_t sent = 0; sent < bytes; sent += t.len)
        if (!origin_send(c, t.at, t.len, NULL))
            return false;
    return true;
}

/* What stands at the place of a cut or a stall; always false. */
static bool stop_here(struct connection *c, bool stalls)
{
    struct span tail = knob_text(&c->plan.knobs, TEXT_TAIL);

    bool good = origin_send(c, tail.at, tail.len, NULL);
    if (good && stalls)
        origin_wait_until(c, UINT64_MAX);
    if (good && knob(&c->plan.knobs, NUMBER_RESET))
        origin_make_reset(c);
    return false;
}

static bool send_head(struct connection *c, struct text *t)
{
    const struct knobs *k = &c->plan.knobs;

    if (knob(k, NUMBER_FLOOD) &&
        !(origin_send(c, t->at, t->len, NULL) && send_flood(c, knob(k, NUMBER_FLOOD))))
        return false;
    if (knob(k, NUMBER_FLOOD))
        t->len = 0;
    text_adds(t, "\r\n");
    if (knob_is(k, NUMBER_HEAD_CUT))
        return origin_send(c, t->at, min_u64(knob(k, NUMBER_HEAD_CUT), t->len), NULL) &&
               stop_here(c, knob_is(k, NUMBER_STALL));
    if (knob(k, NUMBER_DRIP))
        return send_drip(c, t->at, t->len);
    return origin_send(c, t->at, t->len, NULL);
}

/* ---- bodies ---- */

/* The time at which the bytes sent so far have been paid for; total_rate is shared by all
 * connections. */
static uint64_t pay(struct connection *c, uint64_t bytes)
{
    uint64_t rate = knob(&c->plan.knobs, NUMBER_RATE);
    uint64_t total = knob(&c->plan.knobs, NUMBER_TOTAL_RATE);
    uint64_t now = clock_us(), due = now;

    if (rate > 0) {
        c->paced_us = max_u64(c->paced_us, now) + bytes * 1000000 / rate;
        due = c->paced_us;
    }
    if (total > 0) {
        uint64_t old = c->origin->paced_us, next;
        do
            next = max_u64(old, now) + bytes * 1000000 / total;
        while (!atomic_compare_exchange_weak(&c->origin->paced_us, &old, next));
        due = max_u64(due, next);
    }
    return due;
}

/* Counted before they are sent, and what the socket did not take is given back behind it: who has
 * read its whole answer finds it counted, even if this thread rests between send() and here. */
static void count_bytes(struct connection *c, uint64_t bytes)
{
    pthread_mutex_lock(&c->origin->lock);
    c->marks = c->origin->marks;
    c->origin->body_bytes += bytes;
    if (c->plan.object)
        c->plan.object->body_bytes += bytes;
    pthread_mutex_unlock(&c->origin->lock);
}

static void uncount_bytes(struct connection *c, uint64_t bytes)
{
    pthread_mutex_lock(&c->origin->lock);
    if (c->marks == c->origin->marks) { /* else they are counted no more */
        c->origin->body_bytes -= bytes;
        if (c->plan.object)
            c->plan.object->body_bytes -= bytes;
    }
    pthread_mutex_unlock(&c->origin->lock);
}

/* room bytes of out behind `lead` take the next piece. */
static size_t make_piece(struct connection *c, uint64_t at, size_t lead, uint64_t left)
{
    const struct plan *p = &c->plan;
    uint64_t bad = knob(&p->knobs, NUMBER_CORRUPT);
    bool paced = knob(&p->knobs, NUMBER_RATE) || knob(&p->knobs, NUMBER_TOTAL_RATE);
    size_t part = min_u64(left, paced ? PACED_BYTES : PIECE_BYTES - 64 - lead);

    bytes_make(p->seed, at, c->out + lead, part);
    if (bad > 0 && bad - 1 >= at && bad - 1 < at + part)
        c->out[lead + (bad - 1 - at)] ^= 1;
    return part;
}

/* Frames out[lead..lead+part) as a chunk: returns where it begins. */
static char *frame(struct connection *c, size_t lead, size_t *part)
{
    char size[32];
    int n = snprintf(size, sizeof size, "%zx\r\n", *part);
    char *at = c->out + lead - n;

    memcpy(at, size, (size_t)n);
    memcpy(c->out + lead + *part, "\r\n", 2);
    *part += (size_t)n + 2;
    return at;
}

/* Bytes from..from+len of the object, with head bytes already in out[0..head) in front. */
static bool send_bytes(struct connection *c, uint64_t len, size_t head)
{
    bool chunked = knob(&c->plan.knobs, NUMBER_CHUNKED);
    uint64_t at = c->plan.from, end = at + len;

    while (at < end || head > 0) {
        size_t lead = head > 0 ? head : 32;
        size_t part = make_piece(c, at, lead, end - at), framed = part;
        char *from = chunked ? frame(c, lead, &framed) : c->out + (head > 0 ? 0 : lead);
        uint64_t taken = 0, extra = (uint64_t)(c->out + lead + part - from) - part;
        count_bytes(c, part);
        bool good = origin_send(c, from, chunked ? framed : part + head, &taken);
        uint64_t sent = min_u64(taken - min_u64(taken, extra), part);
        if (sent < part)
            uncount_bytes(c, part - sent);
        if (!good || !origin_wait_until(c, pay(c, part)))
            return false;
        at += part;
        head = 0;
    }
    return true;
}

/* cut and stall: how many bytes go out before; UINT64_MAX = all. */
static uint64_t fault_at(const struct plan *p, uint64_t body, bool *stalls)
{
    uint64_t cut = knob_is(&p->knobs, NUMBER_CUT) ? knob(&p->knobs, NUMBER_CUT) : UINT64_MAX;
    uint64_t stall = knob_is(&p->knobs, NUMBER_STALL) ? knob(&p->knobs, NUMBER_STALL) : UINT64_MAX;

    if (knob_is(&p->knobs, NUMBER_CUT_LEFT))
        cut = body - min_u64(knob(&p->knobs, NUMBER_CUT_LEFT), body);
    *stalls = stall < cut;
    uint64_t at = min_u64(cut, stall);
    return at < body ? at : UINT64_MAX;
}

static bool send_object(struct connection *c)
{
    const struct plan *p = &c->plan;
    bool head_only = span_is(c->request.method, "HEAD"), stalls;
    uint64_t body = p->to - p->from;
    uint64_t fault = fault_at(p, body, &stalls);
    struct text t;

    begin_head(&t, c);
    add_length(&t, p, body);
    add_object_fields(&t, c);
    if (head_only)
        return send_head(c, &t);
    body += knob(&p->knobs, NUMBER_EXTRA);
    /* Head and body in one send where nothing is bent: a small object costs one system call. */
    bool plain = fault == UINT64_MAX && !knob(&p->knobs, NUMBER_CHUNKED) &&
                 !knob(&p->knobs, NUMBER_DRIP) && !knob(&p->knobs, NUMBER_FLOOD) &&
                 !knob_is(&p->knobs, NUMBER_HEAD_CUT) && t.len < PACED_BYTES;
    if (plain)
        text_adds(&t, "\r\n");
    else if (!send_head(c, &t))
        return false;
    if (!send_bytes(c, min_u64(body, fault), plain ? t.len : 0))
        return false;
    if (fault != UINT64_MAX)
        return stop_here(c, stalls);
    return !knob(&p->knobs, NUMBER_CHUNKED) || origin_send(c, "0\r\n\r\n", 5, NULL);
}

static bool send_document(struct connection *c, struct span body, const char *type)
{
    bool chunked = knob(&c->plan.knobs, NUMBER_CHUNKED) && c->plan.status != 304, stalls;
    uint64_t taken = 0, fault = fault_at(&c->plan, body.len, &stalls);
    char size[32];
    struct text t;

    begin_head(&t, c);
    add_length(&t, &c->plan, body.len);
    if (body.len > 0)
        text_addf(&t, "Content-Type: %s\r\n", type);
    if (!has_field(&c->plan, "x-amz-bucket-region:"))
        text_adds(&t, "x-amz-bucket-region: us-east-1\r\n");
    if (!send_head(c, &t))
        return false;
    if (span_is(c->request.method, "HEAD"))
        return true;
    int n = chunked && body.len > 0 ? snprintf(size, sizeof size, "%zx\r\n", body.len) : 0;
    uint64_t meant = min_u64(body.len, fault);
    count_bytes(c, meant);
    bool good = origin_send(c, size, (size_t)n, NULL) && origin_send(c, body.at, meant, &taken);
    if (taken < meant)
        uncount_bytes(c, meant - taken);
    if (good && fault != UINT64_MAX)
        return stop_here(c, stalls);
    const char *end = body.len > 0 ? "\r\n0\r\n\r\n" : "0\r\n\r\n";
    return good && (!chunked || origin_send(c, end, strlen(end), NULL));
}

static bool send_error(struct connection *c)
{
    const struct plan *p = &c->plan;
    struct span code = knob_text(&p->knobs, TEXT_CODE), url = knob_text(&p->knobs, TEXT_REDIRECT);
    char body[800], field[400];
    struct text t;

    text_init(&t, body, sizeof body);
    if (p->status >= 300 && p->status != 304) {
        text_adds(&t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>");
        text_add(&t, code.len > 0 ? code : span_of(p->code));
        text_adds(&t, "</Code><Message>said the origin</Message>");
        if (p->status == 416)
            text_addf(&t, "<ActualObjectSize>%llu</ActualObjectSize>", (unsigned long long)p->size);
        text_adds(&t, "<RequestId>0</RequestId><HostId>0</HostId></Error>");
    }
    struct span document = knob_text(&p->knobs, TEXT_DOCUMENT);
    if (document.len > 0)
        text_init(&t, body, sizeof body);
    text_add(&t, document);
    struct plan *mine = &c->plan;
    if (knob(&p->knobs, NUMBER_RETRY_AFTER) && mine->knobs.headers < KNOB_HEADERS_MAX) {
        snprintf(field, sizeof field, "Retry-After: %llu",
                 (unsigned long long)knob(&p->knobs, NUMBER_RETRY_AFTER));
        mine->knobs.header[mine->knobs.headers++] = span_of(field);
    }
    char location[400];
    if (url.len > 0 && mine->knobs.headers < KNOB_HEADERS_MAX) {
        snprintf(location, sizeof location, "Location: %.*s", (int)url.len, url.at);
        mine->knobs.header[mine->knobs.headers++] = span_of(location);
    }
    mine->object = NULL;             /* an error's text is not the object's bytes */
    return send_document(c, text_span(&t), "application/xml");
}

static bool send_made(struct connection *c, char *(*make)(struct connection *, size_t *))
{
    size_t len = 0;
    char *bytes = make(c, &len);
    bool good = bytes && send_document(c, span_make(bytes, len), "application/xml");

    mem_give(bytes);
    return good;
}

static char *make_list(struct connection *c, size_t *len)
{
    return origin_list(c->origin, &c->request, len);
}

static char *make_buckets(struct connection *c, size_t *len)
{
    return origin_buckets(c->origin, len);
}

/* ---- answers to writes ---- */

/* CompleteMultipartUpload: the head, then white space while it works, then the document. */
static bool send_slowly(struct connection *c, struct span document)
{
    uint64_t pause_us = knob(&c->plan.knobs, NUMBER_BLANK_MS) * 1000;
    char size[32];
    struct text t;

    begin_head(&t, c);
    text_adds(&t, "Content-Type: application/xml\r\nTransfer-Encoding: chunked\r\n");
    if (!send_head(c, &t))
        return false;
    for (uint64_t i = 0; i < knob(&c->plan.knobs, NUMBER_BLANKS); i++)
        if (!origin_wait_until(c, clock_us() + pause_us) || !origin_send(c, "1\r\n \r\n", 6, NULL))
            return false;
    int n = snprintf(size, sizeof size, "%zx\r\n", document.len);
    return origin_wait_until(c, clock_us() + pause_us) && origin_send(c, size, (size_t)n, NULL) &&
           origin_send(c, document.at, document.len, NULL) &&
           origin_send(c, "\r\n0\r\n\r\n", 7, NULL);
}

static bool send_written(struct connection *c)
{
    struct plan *p = &c->plan;
    struct span document = knob_text(&p->knobs, TEXT_DOCUMENT);
    struct text t;

    if (p->knobs.numbers_set >> NUMBER_BLANKS & 1)
        return send_slowly(c, document);
    if (document.len > 0)
        return send_document(c, document, "application/xml");
    begin_head(&t, c);
    if (p->status != 204)
        text_adds(&t, "Content-Length: 0\r\n");
    if (span_is(c->request.method, "PUT") && !span_is(knob_text(&p->knobs, TEXT_ETAG), "none"))
        text_addf(&t, "ETag: %s\r\n", p->etag[0] ? p->etag : "\"part\"");
    if (knob(&p->knobs, NUMBER_VERSIONING))
        text_addf(&t, "x-amz-version-id: %llu\r\n", (unsigned long long)p->version);
    return send_head(c, &t);
}

/* ---- an answer ---- */

static bool send_normal(struct connection *c)
{
    static const char location[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>";

    if (c->plan.status >= 300)
        return send_error(c);
    if (request_writes(&c->request))
        return send_written(c);
    switch (c->request.kind) {
    case ASKED_OBJECT:
        return c->plan.object ? send_object(c) : send_error(c);
    case ASKED_LIST:
        return send_made(c, make_list);
    case ASKED_BUCKETS:
        return send_made(c, make_buckets);
    case ASKED_LOCATION:
        return send_document(c, span_of(location), "application/xml");
    default:
        return send_document(c, span_of(""), "");
    }
}

/* The last bytes wait for those behind them. */
static void hold_back(struct connection *c, bool on)
{
    int cork = on;

    setsockopt(c->fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork);
}

/* True: the connection may be used again. */
static bool answer(struct connection *c)
{
    static const char interim[] = "HTTP/1.1 103 Early Hints\r\n\r\n";
    const struct knobs *k = &c->plan.knobs;
    struct span before = knob_text(k, TEXT_BEFORE), raw = knob_text(k, TEXT_RAW);
    struct span after = knob_text(k, TEXT_AFTER);
    bool bent = knob_is(k, NUMBER_CUT) || knob_is(k, NUMBER_CUT_LEFT) ||
                knob_is(k, NUMBER_HEAD_CUT);

    if (knob(k, NUMBER_SILENT))
        return origin_wait_until(c, UINT64_MAX);
    if (knob(k, NUMBER_RESET) && !bent && !knob_is(k, NUMBER_EARLY)) {
        origin_make_reset(c);
        return false;
    }
    if (!origin_wait_until(c, clock_us() + knob(k, NUMBER_DELAY) * 1000))
        return false;
    for (uint64_t i = 0; i < knob(k, NUMBER_INTERIM); i++)
        if (!origin_send(c, interim, sizeof interim - 1, NULL))
            return false;
    if (!origin_send(c, before.at, before.len, NULL))
        return false;
    hold_back(c, after.len > 0);     /* what is too much comes with the last bytes of what is not */
    bool good = raw.len > 0 ? origin_send(c, raw.at, raw.len, NULL) : send_normal(c);
    good = good && origin_send(c, after.at, after.len, NULL);
    hold_back(c, false);
    return good && !c->request.close && !knob(k, NUMBER_CLOSE) &&
           !span_is(knob_text(k, TEXT_LENGTH), "none");
}

/* The next request begins behind the bytes used. */
static void move_on(struct connection *c, size_t used)
{
    memmove(c->in, c->in + used, c->filled - used);
    c->filled -= used;
}

/* False: the connection is over. */
static bool take_and_answer(struct connection *c, size_t *used)
{
    enum taken t = origin_take(c, used);

    if (t == TAKEN_OVER)
        return false;
    bool kept = answer(c);
    if (t == TAKEN_WHOLE)
        return kept && !c->request.chunked;
    if (kept && knob(&c->plan.knobs, NUMBER_RESET))
        origin_make_reset(c);
    else if (!knob(&c->plan.knobs, NUMBER_CLOSE))
        origin_wait_until(c, UINT64_MAX); /* it reads no more, and so it cannot go on */
    return false;
}

static void count_running(struct origin *o, int change)
{
    pthread_mutex_lock(&o->lock);
    struct origin_stats *s = &o->stats;
    s->running += change;
    s->max_running = max_u64(s->max_running, s->running);
    pthread_mutex_unlock(&o->lock);
}

void *origin_serve(void *argument)
{
    struct connection *c = argument;
    struct origin *o = c->origin;
    size_t used;

    while ((used = receive_head(c)) > 0) {
        if (!read_request(c, used))
            break;
        origin_note(o, &c->request);
        origin_plan(o, &c->request, &c->plan);
        c->paced_us = 0;
        count_running(o, 1);
        bool kept = take_and_answer(c, &used);
        count_running(o, -1);
        if (!kept)
            break;
        move_on(c, used);
    }
    pthread_mutex_lock(&o->lock);
    o->stats.connections--;
    close(c->fd);
    c->fd = -1;
    pthread_mutex_unlock(&o->lock);
    c->over = true;
    return NULL;
}
