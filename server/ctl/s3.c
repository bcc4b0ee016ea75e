/* Requests to an S3 port, a balancer or the store itself: signed where there are keys, one after
 * the other on a connection that is kept, over TLS where the address says so.
 *
 * Invariants:
 *  1. Each wait has an end: a side that sends no byte for its timeout_ms has failed, and behind
 *     `end_us` nothing is waited for.
 *  2. A body is counted and continued in a CRC as it comes; only what is asked for is kept.
 *  3. An answer that ends early is a failure, never a short body.
 *
 * Life: s3_side_* once, then any number of threads with a line each: s3_line_open(), s3_ask() again
 * and again, s3_line_close(). A failure closes the connection; the next ask makes another one.
 * Failure: an error, and a sentence in line->why. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/ctl/ctl.h"
#include "sign.h"
#include "xml.h"

enum { LINE_BYTES = 256 * KIB, WIRE_BYTES = 64 * KIB, ASK_BYTES = 24 * KIB };

/* ---- who signs ---- */

extern char **environ;

/* Keys of the shell, as the AWS tools find them, without asking anybody. NULL: there are none.
 * *why: they exist, but only a server gets them. */
const struct creds *s3_find_creds(char why[CTL_WHY_BYTES])
{
    static struct creds found;
    const struct creds_place place = {.environ_ = environ, .profile = "", .region = "",
        .sts_endpoint = ""};
    struct creds_plan *plan = NULL;
    struct text t;

    text_init(&t, why, CTL_WHY_BYTES);
    enum err e = creds_find(&place, &plan, &t);
    if (e == OK && creds_plan_is_static(plan)) {
        found = *creds_plan_first(plan);
        creds_plan_drop(plan);
        return &found;
    }
    if (e == ERR_NOT_FOUND || (e == OK && creds_plan_is_last_resort(plan)))
        why[0] = '\0';
    else if (e == OK)
        text_addf(&t, "the keys of this shell come from %s, which only the server asks; put them "
                      "into the environment: eval \"$(aws configure export-credentials --format "
                      "env)\"", creds_plan_source(plan));
    creds_plan_drop(plan);
    return NULL;
}

/* As the server: what is configured, else what the name says, else what the shell says. */
static void find_region(const char *configured, struct s3_side *out)
{
    const struct creds_place place = {.environ_ = environ, .profile = "", .region = "",
        .sts_endpoint = ""};
    char found[CREDS_REGION_BYTES_MAX + 1] = "us-east-1", why[CTL_WHY_BYTES];
    struct text t;

    text_init(&t, why, sizeof why);
    if (configured && region_is_name(span_of(configured)))
        snprintf(found, sizeof found, "%s", configured);
    else if (!endpoint_region(span_of(out->at.host), found) &&
             creds_region(&place, found, &t) != OK)
        snprintf(found, sizeof found, "us-east-1");
    snprintf(out->region, sizeof out->region, "%s", found);
}

enum err s3_side_make(const char *url, const struct s3_how *how, struct s3_side *out,
                      char why[CTL_WHY_BYTES])
{
    const char *reason = "", *bundle = getenv("AWS_CA_BUNDLE");
    const char *ca_file = how->ca_file && how->ca_file[0] ? how->ca_file : bundle ? bundle : "";

    *out = (struct s3_side){.timeout_ms = how->timeout_ms};
    if (endpoint_read(span_of(url), how->path_style, &out->at, &reason) != OK) {
        snprintf(why, CTL_WHY_BYTES, "%.200s: %s", url, reason);
        return ERR_CONFIG;
    }
    if (out->at.directory)
        return OK;
    find_region(how->region, out);
    if (!out->at.tls)
        return OK;
    enum err e = tls_context_make(ca_file, how->insecure, &out->tls, &reason);
    if (e != OK)
        snprintf(why, CTL_WHY_BYTES, "%.200s: TLS: %.200s", url, reason);
    return e;
}

void s3_side_free(struct s3_side *s)
{
    tls_context_give(s->tls);
    s->tls = NULL;
}

/* ---- waiting ---- */

static enum err line_failed(struct s3_line *l, enum err e, const char *what)
{
    snprintf(l->why, sizeof l->why, "%.200s: %.300s", l->side->at.authority, what);
    return e;
}

static enum err line_wait(struct s3_line *l, short events)
{
    uint64_t silent_us = clock_us() + l->side->timeout_ms * 1000;

    for (;;) {
        struct pollfd p = {.fd = l->fd, .events = events};
        uint64_t now = clock_us(), end = l->end_us ? min_u64(silent_us, l->end_us) : silent_us;
        if (now >= end && l->end_us && now >= l->end_us)
            return line_failed(l, ERR_TIMEOUT, "the time is over");
        if (now >= end)
            return line_failed(l, ERR_UPSTREAM_TIMEOUT, "no answer in time (--timeout)");
        int n = poll(&p, 1, (int)min_u64((end - now + 999) / 1000, INT32_MAX));
        if (n > 0)
            return OK;
        if (n < 0 && errno != EINTR)
            return line_failed(l, ERR_SYSTEM, strerrordesc_np(errno));
    }
}

/* ---- connecting ---- */

static enum err line_connect_to(struct s3_line *l, const struct addrinfo *to)
{
    int error = 0;
    socklen_t len = sizeof error;

    l->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return line_failed(l, ERR_SYSTEM, strerrordesc_np(errno));
    if (connect(l->fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS)
        return line_failed(l, ERR_SYSTEM, strerrordesc_np(errno));
    TRY(line_wait(l, POLLOUT));
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error)
        return line_failed(l, ERR_SYSTEM, strerrordesc_np(error ? error : errno));
    return OK;
}

static enum err line_connect(struct s3_line *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    char port[8];
    enum err e = ERR_SYSTEM;

    snprintf(port, sizeof port, "%u", (unsigned)l->side->at.port);
    int error = getaddrinfo(l->side->at.host, port, &hints, &list);
    if (error)
        return line_failed(l, ERR_SYSTEM, gai_strerror(error));
    for (const struct addrinfo *i = list; i && e != OK && e != ERR_TIMEOUT; i = i->ai_next) {
        if (l->fd >= 0)
            close(l->fd);
        l->fd = -1;
        e = line_connect_to(l, i);
    }
    freeaddrinfo(list);
    return e;
}

/* ---- bytes ---- */

static enum err line_send_plain(struct s3_line *l, struct span bytes)
{
    while (bytes.len > 0) {
        ssize_t n = send(l->fd, bytes.at, bytes.len, MSG_NOSIGNAL);
        if (n > 0)
            bytes = span_from(bytes, (size_t)n);
        else if (n < 0 && errno == EAGAIN)
            TRY(line_wait(l, POLLOUT));
        else if (n < 0 && errno != EINTR)
            return line_failed(l, ERR_UPSTREAM_RESET, strerrordesc_np(errno));
    }
    return OK;
}

/* *got = 0: the other side has closed. */
static enum err line_receive_plain(struct s3_line *l, char *to, size_t cap, size_t *got)
{
    for (;;) {
        ssize_t n = recv(l->fd, to, cap, 0);
        if (n >= 0) {
            *got = (size_t)n;
            return OK;
        }
        if (errno == EAGAIN)
            TRY(line_wait(l, POLLIN));
        else if (errno != EINTR)
            return line_failed(l, ERR_UPSTREAM_RESET, strerrordesc_np(errno));
    }
}

static enum err line_flush(struct s3_line *l)
{
    for (struct span out = tls_out(l->tls); out.len > 0; out = tls_out(l->tls)) {
        TRY(line_send_plain(l, out));
        tls_sent(l->tls, out.len);
    }
    return OK;
}

static enum err line_feed(struct s3_line *l, size_t *got)
{
    TRY(line_receive_plain(l, l->wire, WIRE_BYTES, got));
    if (*got > 0 && tls_feed(l->tls, l->wire, *got) != *got)
        return line_failed(l, ERR_MEMORY, "no memory");
    return OK;
}

static enum err line_shake(struct s3_line *l)
{
    const struct endpoint *at = &l->side->at;

    l->tls = tls_open(l->side->tls, at->host, at->host_is_address);
    if (!l->tls)
        return line_failed(l, ERR_MEMORY, "no memory");
    for (;;) {
        enum tls_want want = tls_handshake(l->tls);
        size_t got = 1;
        if (want == TLS_FAILED)
            return line_failed(l, ERR_UPSTREAM_TLS, tls_error(l->tls));
        TRY(line_flush(l));
        if (want == TLS_DONE)
            return OK;
        if (want == TLS_WANT_IN)
            TRY(line_feed(l, &got));
        if (want == TLS_EOF || got == 0)
            return line_failed(l, ERR_UPSTREAM_TLS, "closed within the TLS handshake");
    }
}

static enum err line_send(struct s3_line *l, struct span bytes)
{
    if (!l->tls)
        return line_send_plain(l, bytes);
    if (tls_write(l->tls, bytes.at, bytes.len) != TLS_DONE)
        return line_failed(l, ERR_UPSTREAM_TLS, tls_error(l->tls));
    return line_flush(l);
}

static enum err line_receive(struct s3_line *l, char *to, size_t cap, size_t *got)
{
    if (!l->tls)
        return line_receive_plain(l, to, cap, got);
    for (;;) {
        enum tls_want want = tls_read(l->tls, to, cap, got);
        size_t fed = 1;
        if (want == TLS_DONE)
            return OK;
        if (want == TLS_FAILED)
            return line_failed(l, ERR_UPSTREAM_TLS, tls_error(l->tls));
        TRY(line_flush(l));
        if (want == TLS_WANT_IN)
            TRY(line_feed(l, &fed));
        if (want == TLS_EOF || fed == 0) {
            *got = 0;
            return OK;
        }
    }
}

/* ---- a line's life ---- */

static void line_hang_up(struct s3_line *l)
{
    tls_close(l->tls);
    l->tls = NULL;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->used = false;
}

enum err s3_line_open(struct s3_line *l, const struct s3_side *side)
{
    *l = (struct s3_line){.side = side, .fd = -1};
    l->memory = mem_take(LINE_BYTES + WIRE_BYTES);
    if (!l->memory)
        return line_failed(l, ERR_MEMORY, "no memory");
    l->wire = l->memory + LINE_BYTES;
    enum err e = sign_setup_thread();
    return e == OK ? OK : line_failed(l, e, err_text(e));
}

void s3_line_close(struct s3_line *l)
{
    line_hang_up(l);
    mem_give(l->memory);
    l->memory = NULL;
    sign_end_thread();
}

enum err s3_line_connect(struct s3_line *l)
{
    if (l->fd >= 0)
        return OK;
    enum err e = line_connect(l);
    if (e == OK && l->side->tls)
        e = line_shake(l);
    if (e != OK)
        line_hang_up(l);
    return e;
}

/* ---- the request ---- */

struct ask_text {                    /* what a request is made of, while it is written */
    char host[ENDPOINT_HOST_BYTES + BUCKET_BYTES_MAX + 16], path[8 * KIB], range[64];
    struct http_field field[8];
    unsigned count;
};

static void ask_add(struct ask_text *a, const char *name, const char *value)
{
    if (value && value[0])
        a->field[a->count++] = (struct http_field){span_of(name), span_of(value)};
}

static bool ask_collect(const struct s3_side *s, const struct s3_ask *q, struct ask_text *a)
{
    struct text t;

    text_init(&t, a->host, sizeof a->host);
    endpoint_host(&s->at, span_of(q->bucket), &t);
    bool fits = !t.over;
    text_init(&t, a->path, sizeof a->path);
    endpoint_path(&s->at, span_of(q->bucket), q->key, &t);
    fits = fits && !t.over;
    a->range[0] = '\0';
    if (q->ranged)
        snprintf(a->range, sizeof a->range, "bytes=%llu-%llu", (unsigned long long)q->from,
                 (unsigned long long)q->to);
    ask_add(a, "Host", a->host);
    ask_add(a, "Range", a->range);
    if (s->creds) {
        ask_add(a, "x-amz-content-sha256", sign_empty_sha256);
        ask_add(a, "x-amz-security-token", s->creds->token);
    }
    return fits;
}

static enum err ask_sign(struct s3_line *l, const struct s3_ask *q, const struct ask_text *a,
                         struct text *out)
{
    const struct creds *c = l->side->creds;
    const struct sign_credentials cred = {span_of(c->access_key), span_of(c->token), &c->secret};
    const struct sign_request r = {.method = span_of(q->method), .path = span_of(a->path),
        .query = span_of(q->query), .field = a->field, .count = a->count,
        .payload_hash = span_of(sign_empty_sha256)};
    char memory[2 * KIB], date[17];
    struct text authorization;

    text_init(&authorization, memory, sizeof memory);
    TRY(sign_v4(&r, &cred, span_of(l->side->region), clock_wall_s(), &l->key, date,
                &authorization));
    text_addf(out, "x-amz-date: %s\r\nAuthorization: ", date);
    text_add(out, text_span(&authorization));
    text_adds(out, "\r\n");
    return OK;
}

static enum err ask_send(struct s3_line *l, const struct s3_ask *q)
{
    struct ask_text a = {.count = 0};
    struct text t;

    text_init(&t, l->memory, ASK_BYTES);
    if (!ask_collect(l->side, q, &a))
        return line_failed(l, ERR_TOO_LARGE, "the key is too long");
    text_addf(&t, "%s %s", q->method, a.path);
    if (q->query && q->query[0])
        text_addf(&t, "?%s", q->query);
    text_adds(&t, " HTTP/1.1\r\nUser-Agent: headpond/" HEADPOND_VERSION
                  "\r\nAccept-Encoding: identity\r\n");
    if (q->hint)
        text_addf(&t, "x-headpond-hint: %s\r\n", q->hint);
    for (unsigned i = 0; i < a.count; i++)
        text_addf(&t, "%.*s: %.*s\r\n", (int)a.field[i].name.len, a.field[i].name.at,
                  (int)a.field[i].value.len, a.field[i].value.at);
    enum err e = l->side->creds ? ask_sign(l, q, &a, &t) : OK;
    text_adds(&t, "\r\n");
    if (e != OK || t.over)
        return line_failed(l, e != OK ? e : ERR_TOO_LARGE, "the request cannot be written");
    return line_send(l, text_span(&t));
}

/* ---- the answer ---- */

static void take_fields(const struct http_head *h, struct s3_answer *out)
{
    struct span cached = http_find(h, "x-headpond-cached"), range = http_find(h, "content-range");
    struct span part = span_cut(&cached, '/');
    uint64_t from, to;

    out->status = h->status;
    out->size = h->length;
    if (range.at && http_content_range(range, &from, &to, &out->size) != OK)
        out->size = 0;
    out->has_cached = span_u64(part, &out->cached) == OK;
    keep_text(out->x_cache, sizeof out->x_cache, http_find(h, "x-cache"));
    keep_text(out->region, sizeof out->region, http_find(h, "x-amz-bucket-region"));
    keep_text(out->etag, sizeof out->etag, http_unquote(http_find(h, "etag")));
}

/* Reads until the head is whole; *used: its bytes in memory, of *len that came. */
static enum err answer_head(struct s3_line *l, bool head_only, struct http_head *h, size_t *used,
                            size_t *len)
{
    *len = 0;
    for (;;) {
        size_t got;
        TRY(line_receive(l, l->memory + *len, LINE_BYTES - *len, &got));
        if (got == 0)
            return line_failed(l, *len ? ERR_UPSTREAM_SHORT : ERR_UPSTREAM_RESET,
                               "the connection was closed before an answer");
        *len += got;
        enum http_verdict v = http_parse_response(l->memory, *len, head_only, h, used);
        if (v == HTTP_OK && h->status >= 200)
            return OK;
        if ((v != HTTP_OK && v != HTTP_MORE) || *len == LINE_BYTES)
            return line_failed(l, ERR_UPSTREAM_PROTOCOL, "what answers there speaks no HTTP");
        if (v == HTTP_OK) {          /* an interim answer: what stands behind it comes first */
            memmove(l->memory, l->memory + *used, *len - *used);
            *len -= *used;
        }
    }
}

static void take_body(struct span data, struct s3_answer *out)
{
    if (data.len == 0)
        return;
    if (out->bytes == 0)
        out->first_us = clock_us();
    out->bytes += data.len;
    out->crc = crc32c(out->crc, data.at, data.len);
    if (out->keep)
        text_add(out->keep, data);
}

/* Of the bytes that came, those of the body; *over: it ends with them. */
static bool take_piece(const struct http_head *h, struct http_chunked *framing, struct span bytes,
                       struct s3_answer *out, bool *over)
{
    if (h->framing != HTTP_BODY_CHUNKED) {
        bool counted = h->framing == HTTP_BODY_LENGTH;
        take_body(bytes, out);
        *over = counted && out->bytes >= h->length;
        return !counted || out->bytes <= h->length;
    }
    while (bytes.len > 0 && !*over) {
        struct span data;
        size_t used;
        enum http_verdict v = http_chunked_step(framing, bytes.at, bytes.len, &used, &data);
        if (v == HTTP_BAD || (v == HTTP_MORE && used == 0))
            return v != HTTP_BAD;
        take_body(data, out);
        bytes = span_from(bytes, used);
        *over = v == HTTP_OK;
    }
    return true;
}

static enum err answer_body(struct s3_line *l, const struct http_head *h, struct span came,
                            struct s3_answer *out)
{
    struct http_chunked framing = {0};
    bool over = h->framing == HTTP_BODY_NONE || (h->framing == HTTP_BODY_LENGTH && h->length == 0);

    if (!over && !take_piece(h, &framing, came, out, &over))
        return line_failed(l, ERR_UPSTREAM_PROTOCOL, "its answer's body has no end of its own");
    while (!over) {
        size_t got;
        TRY(line_receive(l, l->memory, LINE_BYTES, &got));
        if (got == 0 && h->framing == HTTP_BODY_UNTIL_CLOSE)
            return OK;
        if (got == 0)
            return line_failed(l, ERR_UPSTREAM_SHORT, "the connection was closed within an answer");
        if (!take_piece(h, &framing, span_make(l->memory, got), out, &over))
            return line_failed(l, ERR_UPSTREAM_PROTOCOL, "its answer is longer than it says");
    }
    return OK;
}

static enum err ask_once(struct s3_line *l, const struct s3_ask *q, struct s3_answer *out)
{
    static _Thread_local struct http_head head;
    size_t used = 0, len = 0;

    TRY(s3_line_connect(l));
    out->sent_us = clock_us();
    TRY(ask_send(l, q));
    TRY(answer_head(l, strcmp(q->method, "HEAD") == 0, &head, &used, &len));
    take_fields(&head, out);
    bool stays = head.keep_alive && head.framing != HTTP_BODY_UNTIL_CLOSE;
    TRY(answer_body(l, &head, span_make(l->memory + used, len - used), out));
    l->used = true;
    if (!stays)
        line_hang_up(l);
    return OK;
}

enum err s3_ask(struct s3_line *l, const struct s3_ask *q, struct s3_answer *out)
{
    struct text *keep = out->keep;
    bool used = l->used;

    *out = (struct s3_answer){.keep = keep};
    enum err e = ask_once(l, q, out);
    if (e == OK)
        return OK;
    line_hang_up(l);
    /* A connection that was kept may have been closed meanwhile (RFC 9110 9.2.2). */
    if (e != ERR_UPSTREAM_RESET || !used || out->bytes > 0)
        return e;
    if (keep)
        keep->len = 0;
    *out = (struct s3_answer){.keep = keep};
    e = ask_once(l, q, out);
    if (e != OK)
        line_hang_up(l);
    return e;
}
