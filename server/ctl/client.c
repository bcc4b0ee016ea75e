/* One request to a control plane, over a UNIX socket or TCP, and the JSON that came back.
 *
 * Invariants:
 *  1. No call takes longer than its timeout: each wait is what is left of it. (Only the resolver
 * has its own.)
 *  2. A change goes to one server only, the first that can be reached, and is sent once: what
 *     became of one that was cut is not known, so the next server is not asked.
 *  3. Who answered first is asked for all else in a run: a job's id, or the next page of a list, is
 *     another thing at another server.
 *  4. An answer is bounded by REPLY_BYTES_MAX and read by the strict HTTP parser; nothing else is
 * trusted.
 *
 * Life: one connection per call, closed before it returns.
 * Failure: each becomes a sentence that names the server and the cause. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "creds.h"
#include "http.h"

enum { HEAD_BYTES = 64 * KIB, REQUEST_BYTES = 16 * KIB, TOKEN_BYTES = 512 };

struct wire {
    const char *server;
    int fd;
    uint64_t end_ms;
    bool sent;                       /* the server may have the request */
    char *why;
    char *bytes;                     /* what has come, head and body */
    size_t len, cap;
};

static enum err fail_wire(struct wire *w, enum err err, const char *what)
{
    snprintf(w->why, CTL_WHY_BYTES, "%s: %s", w->server, what);
    return err;
}

static enum err fail_errno(struct wire *w)
{
    bool denied = errno == EACCES || errno == EPERM;
    enum err other = errno == ETIMEDOUT ? ERR_TIMEOUT : ERR_SYSTEM;
    return fail_wire(w, denied ? ERR_DENIED : other, strerrordesc_np(errno));
}

/* ---- connecting ---- */

static enum err wait_for(struct wire *w, short events)
{
    struct pollfd p = {.fd = w->fd, .events = events};
    uint64_t now = clock_ms();
    int n = now >= w->end_ms ? 0 : poll(&p, 1, (int)min_u64(w->end_ms - now, INT32_MAX));

    if (n > 0 || (n < 0 && errno == EINTR))
        return OK;
    return n == 0 ? fail_wire(w, ERR_TIMEOUT, "no answer in time (--timeout)") : fail_errno(w);
}

static enum err connect_to(struct wire *w, const struct sockaddr *at, socklen_t len)
{
    int error = 0;
    socklen_t error_len = sizeof error;

    w->fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->fd < 0)
        return fail_errno(w);
    if (connect(w->fd, at, len) == 0)
        return OK;
    if (errno != EINPROGRESS)
        return fail_errno(w);
    TRY(wait_for(w, POLLOUT));
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &error_len) != 0)
        return fail_errno(w);
    errno = error;
    return error ? fail_errno(w) : OK;
}

static enum err connect_unix(struct wire *w, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof at.sun_path)
        return fail_wire(w, ERR_CONFIG, "longer than a socket path may be");
    memcpy(at.sun_path, path, strlen(path) + 1);
    return connect_to(w, (const struct sockaddr *)&at, sizeof at);
}

static enum err connect_tcp(struct wire *w, const struct uri *u)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    char host[256], port[8];
    enum err e = ERR_SYSTEM;

    snprintf(host, sizeof host, "%.*s", (int)u->host.len, u->host.at);
    snprintf(port, sizeof port, "%u", (unsigned)(u->port ? u->port : 80));
    int error = getaddrinfo(host, port, &hints, &found);
    if (error)
        return fail_wire(w, ERR_SYSTEM, gai_strerror(error));
    for (const struct addrinfo *at = found; at && e != OK; at = at->ai_next) {
        if (w->fd >= 0)
            close(w->fd);
        w->fd = -1;
        e = connect_to(w, at->ai_addr, at->ai_addrlen);
    }
    freeaddrinfo(found);
    return e;
}

/* *host: for the Host field, borrowed. */
static enum err connect_server(struct wire *w, struct span *host)
{
    struct span server = span_of(w->server);
    const char *reason = "";
    struct uri u;

    if (span_starts(server, span_of("unix:"))) {
        *host = span_of("localhost");
        return connect_unix(w, w->server + strlen("unix:"));
    }
    if (uri_parse(server, &u, &reason) != OK || !span_is(u.scheme, "http"))
        return fail_wire(w, ERR_CONFIG, "no server address; write unix:PATH or http://HOST:PORT");
    struct span rest = span_from(server, strlen("http://"));
    *host = span_cut(&rest, '/');
    return connect_tcp(w, &u);
}

/* ---- the exchange ---- */

static enum err send_all(struct wire *w, struct span bytes)
{
    size_t sent = 0;

    while (sent < bytes.len) {
        ssize_t n = send(w->fd, bytes.at + sent, bytes.len - sent, MSG_NOSIGNAL);
        w->sent = w->sent || n > 0;
        if (n > 0)
            sent += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            TRY(wait_for(w, POLLOUT));
        else if (n < 0 && errno != EINTR)
            return fail_errno(w);
    }
    return OK;
}

/* At once: who answers after the first piece and closes would else cut the second. */
static enum err send_whole(struct wire *w, struct span head, struct span body)
{
    size_t len = head.len + body.len;
    char *whole = mem_take(len);

    if (!whole)
        return fail_wire(w, ERR_MEMORY, "no memory");
    memcpy(whole, head.at, head.len);
    if (body.len)
        memcpy(whole + head.len, body.at, body.len);
    enum err e = send_all(w, span_make(whole, len));
    mem_give_secret(whole, len);
    return e;
}

static enum err send_request(struct wire *w, struct span host, const struct request *r)
{
    char memory[REQUEST_BYTES];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s %s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: headpond/" HEADPOND_VERSION
                  "\r\nAccept: application/json\r\nConnection: close\r\n", r->method, r->path,
              (int)host.len, host.at);
    if (r->token[0] && strncmp(w->server, "unix:", 5) != 0)
        text_addf(&t, "Authorization: Bearer %s\r\n", r->token);
    if (strcmp(r->method, "GET") != 0)
        text_addf(&t, "Content-Type: %s\r\nContent-Length: %zu\r\n",
                  r->type ? r->type : "application/json", r->body.len);
    text_adds(&t, "\r\n");
    enum err e = t.over ? fail_wire(w, ERR_TOO_LARGE, "the request is too long")
                        : send_whole(w, text_span(&t), r->body);
    explicit_bzero(memory, sizeof memory);
    return e;
}

static enum err make_room(struct wire *w)
{
    if (w->len < w->cap)
        return OK;
    if (w->cap >= REPLY_BYTES_MAX + HEAD_BYTES)
        return fail_wire(w, ERR_TOO_LARGE, "the answer is too long");
    char *grown = mem_grow(w->bytes, w->cap * 2 + HEAD_BYTES);
    if (!grown)
        return fail_wire(w, ERR_MEMORY, "no memory");
    w->bytes = grown;
    w->cap = w->cap * 2 + HEAD_BYTES;
    return OK;
}

/* The whole answer: we asked for the connection to be closed behind it. */
static enum err receive(struct wire *w)
{
    for (;;) {
        TRY(make_room(w));
        ssize_t n = recv(w->fd, w->bytes + w->len, w->cap - w->len, 0);
        if (n == 0)
            return OK;
        if (n > 0)
            w->len += (size_t)n;
        else if (errno == EAGAIN)
            TRY(wait_for(w, POLLIN));
        else if (errno != EINTR)
            return fail_errno(w);
    }
}

/* The chunks from `from` on become one body, in place: so the S3 port sends lists of which it does
 * not know the length. */
static bool join_chunks(struct wire *w, size_t from, struct span *body)
{
    struct http_chunked framing = {0};
    size_t len = 0;

    for (size_t at = from; at < w->len;) {
        struct span data;
        size_t used;
        enum http_verdict v = http_chunked_step(&framing, w->bytes + at, w->len - at, &used, &data);
        if (v == HTTP_BAD || (v == HTTP_MORE && used == 0))
            return false;
        memmove(w->bytes + from + len, data.at, data.len);
        len += data.len;
        at += used;
        if (v != HTTP_OK)
            continue;
        *body = span_make(w->bytes + from, len);
        return true;
    }
    return false;
}

static enum err read_answer(struct wire *w, struct reply *out)
{
    struct http_head head;
    size_t used = 0;

    if (http_parse_response(w->bytes, w->len, false, &head, &used) != HTTP_OK)
        return fail_wire(w, ERR_SYNTAX, "what answers there is no headpond control plane");
    struct span body = span_make(w->bytes + used, w->len - used);
    if (head.framing == HTTP_BODY_LENGTH && body.len < head.length)
        return fail_wire(w, ERR_SYNTAX, "the answer was cut");
    if (head.framing == HTTP_BODY_CHUNKED && !join_chunks(w, used, &body))
        return fail_wire(w, ERR_SYNTAX, "the answer was cut");
    if (head.framing == HTTP_BODY_LENGTH)
        body.len = head.length;
    out->body = mem_copy(body);
    if (!out->body)
        return fail_wire(w, ERR_MEMORY, "no memory");
    out->len = body.len;
    out->status = head.status;
    return OK;
}

static enum err exchange(struct wire *w, const struct request *r, struct reply *out)
{
    struct ucred peer = {0};
    socklen_t peer_len = sizeof peer;
    struct span host = span_of("");

    TRY(connect_server(w, &host));
    if (strncmp(w->server, "unix:", 5) == 0 &&
        getsockopt(w->fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) == 0)
        out->peer_pid = peer.pid;
    TRY(send_request(w, host, r));
    TRY(receive(w));
    return read_answer(w, out);
}

static enum err send_to(struct wire *w, const struct request *ask, struct reply *out)
{
    struct reply r = {0};

    snprintf(r.server, sizeof r.server, "%s", w->server);
    enum err e = exchange(w, ask, &r);
    if (w->fd >= 0)
        close(w->fd);
    mem_give(w->bytes);
    if (e == OK)
        *out = r;
    return e;
}

enum err client_get(const char *server, const char *path, uint64_t timeout_ms, struct reply *out,
                    char why[CTL_WHY_BYTES])
{
    struct wire w = {.server = server, .fd = -1, .end_ms = clock_ms() + timeout_ms, .why = why};
    const struct request ask = {.method = "GET", .path = path, .token = ""};

    return send_to(&w, &ask, out);
}

void reply_free(struct reply *r)
{
    mem_give(r->body);
    r->body = NULL;
}

/* ---- which server ---- */

unsigned client_servers(const struct ctl *c, const char *out[CTL_SERVERS_MAX], bool *guessed)
{
    const char *named = getenv("HEADPOND_SERVER");

    *guessed = false;
    if (c->server_count > 0) {
        memcpy(out, c->server, c->server_count * sizeof *out);
        return c->server_count;
    }
    if (named && named[0]) {
        out[0] = named;
        return 1;
    }
    *guessed = true;
    out[0] = "unix:/run/headpond/admin.sock";
    out[1] = "http://127.0.0.1:9001";
    return 2;
}

/* The first line of --token-file, or of HEADPOND_TOKEN_FILE. */
static enum err read_token(const struct ctl *c, char token[TOKEN_BYTES + 1],
                           char why[CTL_WHY_BYTES])
{
    const char *file = c->token_file ? c->token_file : getenv("HEADPOND_TOKEN_FILE");
    char *bytes;
    struct text t;
    size_t len;

    if (!file || !file[0])
        return OK;
    text_init(&t, why, CTL_WHY_BYTES);
    text_adds(&t, "--token-file: ");
    if (creds_file(file, false, &bytes, &len, &t) != OK)
        return ERR_CONFIG;
    struct span rest = span_make(bytes, len), line = span_cut(&rest, '\n');
    bool fits = line.len > 0 && line.len <= TOKEN_BYTES;
    for (size_t i = 0; i < line.len; i++)
        fits = fits && line.at[i] > ' ' && line.at[i] < 0x7f;
    if (fits)
        memcpy(token, line.at, line.len);
    else
        text_addf(&t, "%.200s does not begin with a token", file);
    mem_give_secret(bytes, len + 1);
    return fits ? OK : ERR_CONFIG;
}

/* *may_be_done: it left, so that nobody else is to be asked for the same. */
static enum err ask_one(const struct ctl *c, const char *server, const struct request *ask,
                        struct reply *out, char why[CTL_WHY_BYTES], bool *may_be_done)
{
    struct wire w = {.server = server, .fd = -1, .end_ms = clock_ms() + c->timeout_ms, .why = why};
    enum err e = send_to(&w, ask, out);

    *may_be_done = w.sent;
    if (c->verbose)
        ctl_say(c, "headpond: asked %s for %s: %s\n", server, ask->path,
                e == OK ? "answered" : err_text(e));
    return e;
}

/* As client_servers(), but for one that has answered. */
static unsigned servers_to_ask(const struct ctl *c, const char *out[CTL_SERVERS_MAX], bool *guessed)
{
    unsigned count = client_servers(c, out, guessed);

    if (!c->answered || !*c->answered)
        return count;
    out[0] = *c->answered;
    return 1;
}

enum err client_ask(const struct ctl *c, const char *path, struct reply *out,
                    char why[CTL_WHY_BYTES])
{
    const struct request ask = {.method = "GET", .path = path};

    return client_send(c, &ask, out, why);
}

enum err client_send(const struct ctl *c, const struct request *what, struct reply *out,
                     char why[CTL_WHY_BYTES])
{
    const char *server[CTL_SERVERS_MAX];
    char one[CTL_WHY_BYTES] = "", token[TOKEN_BYTES + 1] = "";
    bool guessed, denied = false, change = strcmp(what->method, "GET") != 0, left = false;
    struct request ask = *what;
    enum err e = ERR_SYSTEM;
    struct text t;

    if (change)
        TRY(read_token(c, token, why));
    ask.token = token;
    text_init(&t, why, CTL_WHY_BYTES);
    unsigned count = servers_to_ask(c, server, &guessed);
    for (unsigned i = 0; i < count && !(change && left); i++) {
        e = ask_one(c, server[i], &ask, out, one, &left);
        if (e == OK && c->answered)
            *c->answered = server[i];
        if (e == OK)
            return OK;
        denied = denied || e == ERR_DENIED;
        text_adds(&t, i ? "; " : "");
        text_adds(&t, one);
    }
    if (denied)
        text_adds(&t, ".\nYou may not open the socket: join the group headpond, or use sudo");
    else if (guessed)
        text_adds(&t, ".\nIs headpondd running? systemctl status headpond; a server elsewhere is "
                      "named by --server or HEADPOND_SERVER");
    else
        text_adds(&t, ".\nIs headpondd running there, and is this its admin.listen?");
    return denied ? ERR_DENIED : e;
}

json_t *reply_json(const struct reply *r, char why[CTL_WHY_BYTES])
{
    json_error_t error;
    json_t *object = json_loadb(r->body, r->len, 0, &error);

    if (!json_is_object(object)) {
        json_decref(object);
        snprintf(why, CTL_WHY_BYTES, "%s: the answer is not of a headpond control plane; check the "
                                     "port", r->server);
        return NULL;
    }
    if (r->status >= 200 && r->status < 300)
        return object;
    const json_t *told = json_object_get(object, "error");
    struct text t;
    text_init(&t, why, CTL_WHY_BYTES);
    text_addf(&t, "%s: ", r->server);
    text_add_printable(&t, span_of(value_text(told, "message")), 200);
    text_adds(&t, "; ");
    text_add_printable(&t, span_of(value_text(told, "hint")), 200);
    json_decref(object);
    return NULL;
}

json_t *client_json(const struct ctl *c, const char *path, struct reply *out, int *code)
{
    const struct request ask = {.method = "GET", .path = path};

    return client_change(c, &ask, out, code);
}

static enum ctl_code code_of_status(unsigned status)
{
    switch (status) {
    case 401: case 403: case 405: return CTL_DENIED;
    case 404: return CTL_NOT_FOUND;
    case 400: case 422: return CTL_USAGE;
    default: return CTL_FAILED;
    }
}

json_t *client_call(const struct ctl *c, const char *method, const char *path, const char *body,
                    int *code)
{
    const struct request ask = {.method = method, .path = path, .body = span_of(body ? body : "")};
    struct reply r = {0};
    json_t *object = client_change(c, &ask, &r, code);

    if (object)
        reply_free(&r);
    return object;
}

int client_fail(enum err e, const struct reply *r, char why[CTL_WHY_BYTES])
{
    json_t *object = e == OK ? reply_json(r, why) : NULL;

    if (object)                      /* a success that the verb did not expect */
        snprintf(why, CTL_WHY_BYTES, "%s: the answer is of another version; headpond version "
                                     "tells both", r->server);
    json_decref(object);
    fprintf(stderr, "headpond: %s\n", why);
    if (e == OK)
        return code_of_status(r->status);
    return e == ERR_DENIED ? CTL_DENIED : e == ERR_CONFIG ? CTL_USAGE : CTL_UNREACHABLE;
}

json_t *client_change(const struct ctl *c, const struct request *ask, struct reply *out, int *code)
{
    char why[CTL_WHY_BYTES];
    enum err e = client_send(c, ask, out, why);
    json_t *object = e == OK ? reply_json(out, why) : NULL;

    if (object)
        return object;
    *code = client_fail(e, out, why);
    if (e == OK)
        reply_free(out);
    return NULL;
}

/* ---- values ---- */

void keep_text(char *to, size_t cap, struct span text)
{
    size_t len = min_u64(text.len, cap - 1);

    memcpy(to, text.len ? text.at : "", len);
    to[len] = '\0';
}

json_t *key_json(struct span key)
{
    char *memory = mem_take(3 * key.len + 1);
    struct text t;

    if (!memory)
        return NULL;
    text_init(&t, memory, 3 * key.len + 1);
    text_add_utf8(&t, key);
    json_t *text = json_stringn(t.at, t.len);
    mem_give(memory);
    return text;
}

const char *value_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

double value_number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

uint64_t value_u64(const json_t *object, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(object, name));
    return n > 0 ? (uint64_t)n : 0;
}

bool value_true(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}
