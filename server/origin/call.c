/* A small HTTP client for a thread that may block: one request on a connection of its own, and the
 * whole answer. For those who give credentials; the data plane never comes here.
 *
 * Invariants:
 *  1. Where plain HTTP may go is asked for each address, after the name was resolved: no name leads
 *     somewhere else.
 *  2. Everything has an end: connecting per address, all the rest by one deadline, the answer by
 *     its size. (A resolver's own time-outs are the system's.)
 *  3. Nothing is followed, nothing is kept: no redirect, no cookie, no second request.
 *  4. An answer may hold secrets: its memory is wiped, and no word of it gets into a message.
 * Life: call_make() to call_end().
 * Failure: an error and words; call_end() is due all the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "server/origin/inside.h"
#include "tls.h"

enum {
    HOST_BYTES = 256,
    REQUEST_BYTES_MAX = 48 * KIB,
    ANSWER_BYTES_MAX = HTTP_HEAD_BYTES_MAX + 2 * CALL_BODY_BYTES_MAX, /* chunks have their frames */
    RECEIVE_BYTES = 16 * KIB,
    ADDRESSES_TRIED_MAX = 8,
};

struct place {                       /* a URL taken apart */
    struct uri uri;
    struct span query;
    char host[HOST_BYTES], port[8];
    bool tls;
};
struct wire {
    int fd;
    struct tls_context *context;
    struct tls *tls;                 /* NULL: plain */
    uint64_t end_ms;
    char in[RECEIVE_BYTES];          /* lent to TLS */
    struct text *why;
};

/* ---- the URL ---- */
static enum err read_place(const char *url, struct place *out, const char **why)
{
    struct span text = span_of(url);
    struct span bare = span_make(text.at, span_find(text, '?'));
    *out = (struct place){.query = span_from(text, bare.len)};
    TRY(uri_parse(bare, &out->uri, why));
    *why = "neither http:// nor https://";
    out->tls = span_is(out->uri.scheme, "https");
    if (!out->tls && !span_is(out->uri.scheme, "http"))
        return ERR_SYNTAX;
    *why = "a blank or control character";
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] > '~' || text.at[i] == '#')
            return ERR_SYNTAX;
    snprintf(out->host, sizeof(out->host), "%.*s", (int)out->uri.host.len, out->uri.host.at);
    snprintf(out->port, sizeof(out->port), "%u",
             out->uri.port ? (unsigned)out->uri.port : out->tls ? 443 : 80);
    return OK;
}

static void write_host(const struct place *p, struct text *out)
{
    bool v6 = strchr(p->host, ':') != NULL;
    text_addf(out, v6 ? "[%s]" : "%s", p->host);
    if (p->uri.port && p->uri.port != (p->tls ? 443 : 80))
        text_addf(out, ":%s", p->port);
}

enum err call_host(const char *url, struct text *out)
{
    const char *why;
    struct place p;
    TRY(read_place(url, &p, &why));
    write_host(&p, out);
    return out->over ? ERR_TOO_LARGE : OK;
}

/* ---- waiting ---- */
/* False: the time is over. */
static bool wait_for(int fd, short events, uint64_t end_ms)
{
    for (;;) {
        uint64_t now_ms = clock_ms();
        struct pollfd p = {.fd = fd, .events = events};
        if (now_ms >= end_ms)
            return false;
        int n = poll(&p, 1, (int)min_u64(end_ms - now_ms, 60 * 1000));
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
    }
}

static enum err silent(struct wire *w)
{
    text_adds(w->why, "no answer in time");
    return ERR_UPSTREAM_TIMEOUT;
}

static enum err broken(struct wire *w, const char *what)
{
    text_adds(w->why, what);
    return ERR_UPSTREAM_RESET;
}

/* ---- connecting ---- */
static bool connect_one(const struct addrinfo *to, uint32_t limit_ms, int *out, int *error)
{
    socklen_t len = sizeof(*error);
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *error = errno;
    if (fd < 0)
        return false;
    *error = connect(fd, to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    if (*error == EINPROGRESS) {
        *error = ETIMEDOUT;
        if (wait_for(fd, POLLOUT, clock_ms() + limit_ms))
            getsockopt(fd, SOL_SOCKET, SO_ERROR, error, &len);
    }
    if (*error == 0) {
        *out = fd;
        return true;
    }
    close(fd);
    return false;
}

static enum err connect_any(const struct call *c, const struct place *p,
                            const struct addrinfo *list, struct wire *w)
{
    unsigned tried = 0;
    int error = 0;
    for (const struct addrinfo *i = list; i && tried < ADDRESSES_TRIED_MAX; i = i->ai_next) {
        if (!p->tls && c->plain_ok && !c->plain_ok(i->ai_addr))
            continue;
        tried++;
        if (connect_one(i, c->connect_ms, &w->fd, &error))
            return OK;
    }
    if (tried == 0) {
        text_addf(w->why, "plain HTTP to %s is not allowed: credentials would be readable on the "
                          "way", p->host);
        return ERR_DENIED;
    }
    text_addf(w->why, "cannot connect to %s port %s: %s", p->host, p->port, strerrordesc_np(error));
    return ERR_UPSTREAM_CONNECT;
}

static enum err connect_place(const struct call *c, const struct place *p, struct wire *w)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int error = getaddrinfo(p->host, p->port, &hints, &list);
    if (error != 0) {
        text_addf(w->why, "the name %s does not resolve: %s", p->host,
                  error == EAI_SYSTEM ? strerrordesc_np(errno) : gai_strerror(error));
        return ERR_UPSTREAM_DNS;
    }
    enum err e = connect_any(c, p, list, w);
    freeaddrinfo(list);
    return e;
}

/* ---- bytes ---- */
static enum err send_plain(struct wire *w, struct span bytes)
{
    while (bytes.len > 0) {
        if (!wait_for(w->fd, POLLOUT, w->end_ms))
            return silent(w);
        ssize_t n = send(w->fd, bytes.at, bytes.len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return broken(w, "the connection broke while the request was sent");
        if (n > 0)
            bytes = span_from(bytes, (size_t)n);
    }
    return OK;
}

/* *got = 0: the peer has closed. */
static enum err receive_plain(struct wire *w, char *to, size_t cap, size_t *got)
{
    for (;;) {
        if (!wait_for(w->fd, POLLIN, w->end_ms))
            return silent(w);
        ssize_t n = recv(w->fd, to, cap, 0);
        if (n >= 0) {
            *got = (size_t)n;
            return OK;
        }
        if (errno != EAGAIN && errno != EINTR)
            return broken(w, "the connection broke");
    }
}

static enum err tls_failed(struct wire *w)
{
    text_addf(w->why, "TLS: %s", tls_error(w->tls));
    return ERR_UPSTREAM_TLS;
}

static enum err flush(struct wire *w)
{
    struct span out;
    while ((out = tls_out(w->tls)).len > 0) {
        TRY(send_plain(w, out));
        tls_sent(w->tls, out.len);
    }
    return OK;
}

/* Everything fed before was read: w->in is free. *got = 0: the peer has closed. */
static enum err feed(struct wire *w, size_t *got)
{
    TRY(receive_plain(w, w->in, sizeof(w->in), got));
    if (*got > 0 && tls_feed(w->tls, w->in, *got) != *got)
        return ERR_MEMORY;
    return OK;
}

static enum err shake(struct wire *w)
{
    for (;;) {
        size_t got;
        enum tls_want want = tls_handshake(w->tls);
        if (want == TLS_FAILED)
            return tls_failed(w);
        TRY(flush(w));
        if (want == TLS_DONE)
            return OK;
        if (want == TLS_WANT_OUT)
            continue;
        TRY(feed(w, &got));
        if (want == TLS_EOF || got == 0)
            return broken(w, "the connection was closed within the TLS handshake");
    }
}

static enum err begin_tls(const struct call *c, const struct place *p, struct wire *w)
{
    const char *why = "";
    if (tls_context_make(c->ca_file, c->insecure, &w->context, &why) != OK) {
        text_addf(w->why, "TLS: %s", why);
        return ERR_UPSTREAM_TLS;
    }
    w->tls = tls_open(w->context, p->host, p->uri.host_is_address);
    return w->tls ? shake(w) : ERR_MEMORY;
}

static enum err send_all(struct wire *w, struct span bytes)
{
    if (!w->tls)
        return send_plain(w, bytes);
    if (tls_write(w->tls, bytes.at, bytes.len) != TLS_DONE)
        return tls_failed(w);
    return flush(w);
}

static enum err receive(struct wire *w, char *to, size_t cap, size_t *got)
{
    if (!w->tls)
        return receive_plain(w, to, cap, got);
    for (;;) {
        enum tls_want want = tls_read(w->tls, to, cap, got);
        if (want == TLS_DONE)
            return OK;
        if (want == TLS_FAILED)
            return tls_failed(w);
        TRY(flush(w));
        size_t fed = 0;
        if (want == TLS_WANT_IN)
            TRY(feed(w, &fed));
        if (want == TLS_EOF || (want == TLS_WANT_IN && fed == 0)) {
            *got = 0;
            return OK;
        }
    }
}

/* ---- the request ---- */
static void write_request(const struct call *c, const struct place *p, struct text *out)
{
    text_adds(out, http_method_text(c->method));
    text_addc(out, ' ');
    text_add(out, p->uri.path);
    text_adds(out, c->path);
    if (p->uri.path.len == 0 && !c->path[0])
        text_addc(out, '/');
    text_add(out, p->query);
    text_adds(out, " HTTP/1.1\r\nHost: ");
    write_host(p, out);
    text_adds(out, "\r\nUser-Agent: headpond/" HEADPOND_VERSION "\r\nAccept: */*\r\n"
                   "Connection: close\r\n");
    if (c->method == HTTP_POST || c->method == HTTP_PUT) /* RFC 9110 8.6 */
        text_addf(out, "Content-Length: %zu\r\n", c->body.len);
    text_add(out, c->fields);
    text_adds(out, "\r\n");
    text_add(out, c->body);
}

static enum err send_request(const struct call *c, const struct place *p, struct wire *w)
{
    struct text out;
    char *memory = mem_take(REQUEST_BYTES_MAX);
    if (!memory)
        return ERR_MEMORY;
    text_init(&out, memory, REQUEST_BYTES_MAX);
    write_request(c, p, &out);
    enum err e = out.over ? ERR_TOO_LARGE : send_all(w, text_span(&out));
    if (out.over)
        text_adds(w->why, "the request is too long");
    mem_give_secret(memory, REQUEST_BYTES_MAX);
    return e;
}

/* ---- the answer ---- */
enum have { HAVE_ALL, HAVE_PART, HAVE_NONSENSE, HAVE_TOO_MUCH };

static enum have read_chunked(struct call_answer *a, char *from, size_t len)
{
    struct http_chunked state = {0};
    char *to = from, *end = from + len;
    enum http_verdict verdict = HTTP_MORE;
    a->body = span_make(from, 0);
    /* In place: the data of a chunk stands behind its frame. */
    while (verdict == HTTP_MORE && from < end) {
        size_t used = 0;
        struct span data = {NULL, 0};
        verdict = http_chunked_step(&state, from, (size_t)(end - from), &used, &data);
        if (data.len > 0)
            memmove(to, data.at, data.len);
        to += data.len;
        from += used;
        if (used == 0)
            break;
    }
    a->body.len = (size_t)(to - a->body.at);
    if (verdict != HTTP_OK)
        return HAVE_NONSENSE;
    return a->body.len > CALL_BODY_BYTES_MAX ? HAVE_TOO_MUCH : HAVE_ALL;
}

/* Only whole bodies are unframed, as that is done in place. */
static bool chunks_are_whole(const char *from, size_t len)
{
    struct http_chunked state = {0};
    enum http_verdict verdict = HTTP_MORE;
    size_t used = 1;
    while (verdict == HTTP_MORE && used > 0 && len > 0) {
        struct span data;
        verdict = http_chunked_step(&state, from, len, &used, &data);
        from += used;
        len -= used;
    }
    return verdict != HTTP_MORE;
}

static enum have read_body(struct call_answer *a, const struct http_head *h, size_t at, bool closed)
{
    char *from = a->memory + at;
    size_t len = a->len - at;
    switch (h->framing) {
    case HTTP_BODY_NONE:
        a->body = span_make(from, 0);
        return HAVE_ALL;
    case HTTP_BODY_LENGTH:
        if (h->length > CALL_BODY_BYTES_MAX)
            return HAVE_TOO_MUCH;
        a->body = span_make(from, (size_t)h->length);
        return len >= h->length ? HAVE_ALL : HAVE_PART;
    case HTTP_BODY_CHUNKED:
        return chunks_are_whole(from, len) ? read_chunked(a, from, len) : HAVE_PART;
    case HTTP_BODY_UNTIL_CLOSE:
        if (len > CALL_BODY_BYTES_MAX)
            return HAVE_TOO_MUCH;
        a->body = span_make(from, len);
        return closed ? HAVE_ALL : HAVE_PART;
    }
    return HAVE_NONSENSE;
}

/* What the bytes so far are, from the start each time: answers are small. */
static enum have judge_answer(struct call_answer *a, bool closed)
{
    size_t at = 0, used = 0;
    struct http_head head;
    for (;;) {
        enum http_verdict v =
            http_parse_response(a->memory + at, a->len - at, false, &head, &used);
        if (v == HTTP_MORE)
            return a->len - at > HTTP_HEAD_BYTES_MAX ? HAVE_TOO_MUCH : HAVE_PART;
        if (v != HTTP_OK)
            return HAVE_NONSENSE;
        at += used;
        if (head.status >= 200)
            break;
    }
    a->status = head.status;
    return read_body(a, &head, at, closed);
}

static enum err refuse(struct wire *w, enum have have)
{
    text_adds(w->why, have == HAVE_NONSENSE  ? "the answer is no HTTP"
                      : have == HAVE_TOO_MUCH ? "the answer is larger than 64 KiB"
                                              : "the connection was closed within the answer");
    return have == HAVE_PART ? ERR_UPSTREAM_SHORT : ERR_UPSTREAM_PROTOCOL;
}

static enum err read_answer(struct wire *w, struct call_answer *a)
{
    for (;;) {
        size_t got = 0;
        if (a->len == a->cap)
            return refuse(w, HAVE_TOO_MUCH);
        TRY(receive(w, a->memory + a->len, a->cap - a->len, &got));
        a->len += got;
        enum have have = judge_answer(a, got == 0);
        if (have == HAVE_ALL)
            return OK;
        if (have != HAVE_PART || got == 0)
            return refuse(w, have);
    }
}

/* ---- all of it ---- */
static enum err talk(const struct call *c, const struct place *p, struct wire *w,
                     struct call_answer *out)
{
    TRY(connect_place(c, p, w));
    out->connected = true;
    w->end_ms = clock_ms() + c->answer_ms;
    if (p->tls)
        TRY(begin_tls(c, p, w));
    TRY(send_request(c, p, w));
    return read_answer(w, out);
}

enum err call_make(const struct call *c, struct call_answer *out, struct text *why)
{
    const char *reason = "";
    struct place p;
    *out = (struct call_answer){.cap = ANSWER_BYTES_MAX};
    if (read_place(c->url, &p, &reason) != OK) {
        text_addf(why, "the URL cannot be used: %s", reason);
        return ERR_SYNTAX;
    }
    struct wire *w = mem_take(sizeof(*w));
    out->memory = mem_take(out->cap);
    enum err e = w && out->memory ? OK : ERR_MEMORY;
    if (e == OK) {
        w->fd = -1;
        w->why = why;
        e = talk(c, &p, w, out);
        tls_close(w->tls);
        tls_context_give(w->context);
        if (w->fd >= 0)
            close(w->fd);
    }
    mem_give_secret(w, sizeof(*w));
    return e;
}

void call_end(struct call_answer *a)
{
    mem_give_secret(a->memory, a->cap);
    *a = (struct call_answer){.status = 0};
}
