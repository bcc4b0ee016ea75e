/* A scripted client: one connection, requests written as the play says, answers left to answer.c.
 *
 * Invariants:
 *  1. A client touches its own memory only; what it shares with the play is the failure and the
 *     byte count.
 *  2. Every wait on a socket has a deadline.
 *
 * Life: client_run() makes the client, walks its statements and frees it.
 * Failure: client_fail() keeps the play's first failure and ends this client. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/flow/play.h"

enum { REQUEST_BYTES = 32 * KIB, FETCH_MS = 5000, AGAIN_MS = 20 };

bool client_fail(struct client *c, const char *format, ...)
{
    char words[500];
    va_list more;

    va_start(more, format);
    vsnprintf(words, sizeof words, format, more);
    va_end(more);
    return play_fail(c->play, &c->frame.now, "%s: %s", c->name, words);
}

/* ---- sockets ---- */

int client_connect(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static uint16_t port_of(const struct client *c)
{
    return c->admin ? c->play->daemon.admin_port : c->play->daemon.port;
}

static void forget_connection(struct client *c)
{
    wire_close(c);
    c->have = c->used = 0;
    c->next = c->asks;
    c->ended = false;
}

static bool open_connection(struct client *c)
{
    forget_connection(c);
    return wire_open(c, port_of(c)) || client_fail(c, "connect: %s", c->refused);
}

int client_wait(struct client *c, uint64_t deadline_us)
{
    for (;;) {
        uint64_t now = clock_us();
        int left = deadline_us <= now ? 0 : (int)((deadline_us - now) / 1000 + 1);
        struct pollfd p = {c->fd, POLLIN, 0};
        int n = c->tls && wire_has(c) ? 1 : poll(&p, 1, left);
        if (n < 0 && errno == EINTR)
            continue;
        if ((n == 0 && left > 0) || (n > 0 && !wire_has(c)))
            continue;
        return n > 0 ? 1 : 0;
    }
}

/* True also when the peer closes meanwhile: then c->ended tells. */
bool client_send(struct client *c, const char *at, size_t len, uint64_t split, uint64_t every_ms)
{
    size_t piece = split ? split : len;

    while (len > 0 && !c->ended) {
        ssize_t n = wire_send(c, at, min_u64(piece, len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            c->ended = true;
            return true;
        }
        at += n;
        len -= (size_t)n;
        /* An answer before the end of the request stops the drip. */
        if (every_ms && client_wait(c, clock_us() + every_ms * 1000) != 0)
            return true;
    }
    return true;
}

unsigned client_fetch(uint16_t port, const char *target, char *body, size_t cap)
{
    char request[400];
    size_t have = 0;
    unsigned status = 0;
    struct timeval limit = {FETCH_MS / 1000, 0};
    int fd = client_connect(port);

    if (fd < 0)
        return 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int len = snprintf(request, sizeof request,
                       "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", target);
    if (send(fd, request, (size_t)len, MSG_NOSIGNAL) == len) {
        ssize_t n;
        while (have + 1 < cap && (n = recv(fd, body + have, cap - 1 - have, 0)) > 0)
            have += (size_t)n;
    }
    close(fd);
    body[have] = 0;
    if (sscanf(body, "HTTP/1.1 %u", &status) != 1)
        return 0;
    char *from = strstr(body, "\r\n\r\n");
    if (from)
        memmove(body, from + 4, strlen(from + 4) + 1);
    return status;
}

/* ---- requests ---- */

struct request_made {
    struct text t;
    struct body_made body;
    uint64_t split;
    bool host;
};

static int hex_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static size_t decode(struct span in, char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < in.len && n < cap; i++) {
        bool escape = in.at[i] == '%' && i + 2 < in.len && hex_of(in.at[i + 1]) >= 0 &&
                      hex_of(in.at[i + 2]) >= 0;
        out[n++] = escape ? (char)(hex_of(in.at[i + 1]) * 16 + hex_of(in.at[i + 2])) : in.at[i];
        i += escape ? 2 : 0;
    }
    return n;
}

/* Keeps what the answer must be checked against. host: the bucket that Host names, or nothing. */
static void note_target(struct ask_made *a, struct span target, struct span host)
{
    struct span path = span_cut(&target, '?');
    struct span query = target, part;

    span_cut(&path, '/');
    struct span bucket = host.len ? host : span_cut(&path, '/');
    a->bucket_len = decode(bucket, a->bucket, sizeof a->bucket);
    a->key_len = decode(path, a->key, sizeof a->key);
    a->object = a->key_len > 0 && !span_is(bucket, "-") && !span_is(bucket, "minio");
    /* Sub-resources answer with documents, not with the object. */
    while (a->object && query.len > 0) {
        part = span_cut(&query, '&');
        static const char *const documents[] = {"acl", "tagging", "attributes", "uploads",
                                                "uploadId", "legal-hold", "retention", "torrent",
                                                "annotation"};
        for (size_t i = 0; i < ARRAY_COUNT(documents); i++)
            if (span_starts(part, span_of(documents[i])))
                a->object = false;
    }
    a->size_told = size_of_key(span_make(a->key, a->key_len), &a->size);
}

/* at=BUCKET: the bytes are of that bucket's key. */
static void note_store_name(struct ask_made *a, const struct statement *st, unsigned first)
{
    struct span value;

    for (unsigned i = first; i < st->count; i++)
        if (word_value(st->word[i], "at", &value))
            a->bucket_len = decode(value, a->bucket, sizeof a->bucket - 1);
    a->bucket[a->bucket_len] = 0;
}

static bool add_range(struct client *c, struct text *t, uint64_t from, uint64_t to)
{
    (void)c;
    text_addf(t, "Range: bytes=%llu-%llu\r\n", (unsigned long long)from, (unsigned long long)to);
    return true;
}

static bool add_random_range(struct client *c, struct text *t, struct span value,
                             const struct ask_made *a)
{
    uint64_t len;

    if (size_read(value, &len) != OK || len == 0 || !a->size_told || a->size < len)
        return client_fail(c, "random=SIZE needs a key with a size");
    uint64_t from = random_u64() % (a->size - len + 1);
    return add_range(c, t, from, from + len - 1);
}

/* One option of a request; answer options are read again when the answer is. */
static bool add_option(struct client *c, struct request_made *r, struct ask_made *a,
                       struct span word)
{
    static const char *const later[] = {"read", "rate", "cut", "within", "until"};
    struct span value;

    for (size_t i = 0; i < ARRAY_COUNT(later); i++)
        if (word_value(word, later[i], &value))
            return true;
    if (span_is(word, "nohost") || span_is(word, "signed") || span_is(word, "presigned") ||
        word_value(word, "http", &value) || word_value(word, "key", &value) ||
        word_value(word, "at", &value))
        return true;
    if (word_value(word, "host", &value))
        text_addf(&r->t, "Host: %s\r\n", value.at);
    else if (word_value(word, "virtual", &value))
        return true;
    else if (word_value(word, "range", &value))
        text_addf(&r->t, "Range: bytes=%s\r\n", value.at);
    else if (word_value(word, "rawrange", &value))
        text_addf(&r->t, "Range: %s\r\n", value.at);
    else if (word_value(word, "random", &value))
        return add_random_range(c, &r->t, value, a);
    else if (word_value(word, "header", &value))
        text_addf(&r->t, "%s\r\n", value.at);
    else if (body_is_option(word))
        return body_option(c, &r->body, word);
    else if (word_value(word, "split", &value))
        return size_read(value, &r->split) == OK || client_fail(c, "split=SIZE");
    else if (word_value(word, "version", &value))
        return size_read(value, &a->version) == OK || client_fail(c, "version=N");
    else if (word_value(word, "size", &value))
        a->size_told = size_read(value, &a->size) == OK;
    else if (word_value(word, "or_size", &value))
        return size_read(value, &a->other_size) == OK || client_fail(c, "or_size=SIZE");
    else
        return client_fail(c, "unknown option %s", word.at);
    return true;
}

/* from=SIZE to=SIZE */
static bool add_from_to(struct client *c, const struct statement *st, unsigned first,
                        struct text *t)
{
    struct span value;
    uint64_t from = UINT64_MAX, to = UINT64_MAX;

    for (unsigned i = first; i < st->count; i++) {
        if (word_value(st->word[i], "from", &value) && size_read(value, &from) != OK)
            return client_fail(c, "from=SIZE");
        if (word_value(st->word[i], "to", &value) && size_read(value, &to) != OK)
            return client_fail(c, "to=SIZE");
    }
    if (from != UINT64_MAX && to != UINT64_MAX)
        return add_range(c, t, from, to);
    return true;
}

static bool has_word(const struct statement *st, const char *word)
{
    for (unsigned i = 1; i < st->count; i++)
        if (span_is(st->word[i], word) || span_starts(st->word[i], span_of(word)))
            return true;
    return false;
}

static struct span find_virtual(const struct statement *st)
{
    struct span value = {NULL, 0};

    for (unsigned i = 0; i < st->count; i++)
        if (word_value(st->word[i], "virtual", &value))
            return value;
    return (struct span){NULL, 0};
}

/* key=ACCESS:SECRET, else the upstream's pair. True: it was given. */
static bool find_key(const struct statement *st, unsigned first, char access[100],
                     const char **secret)
{
    struct span key = {0};

    snprintf(access, 100, "%s", PLAY_ACCESS);
    *secret = PLAY_SECRET;
    for (unsigned i = first; i < st->count; i++)
        if (word_value(st->word[i], "key", &key)) {
            struct span name = span_cut(&key, ':');
            snprintf(access, 100, "%.*s", (int)name.len, name.at);
            *secret = key.at;
        }
    return key.at;
}

/* signed, key=ACCESS:SECRET, or a client that signs everything. */
static void add_signature(struct client *c, const struct statement *st, struct text *t,
                          const struct ask_made *a, unsigned first)
{
    char access[100];
    const char *secret;
    bool given = find_key(st, first, access, &secret);

    if (has_word(st, "presigned"))
        return;
    if (given || c->sign || has_word(st, "signed"))
        sigv4_add(t, a->method, st->word[first], access, secret);
}

static void add_line(struct client *c, const struct statement *st, struct text *t,
                     const struct ask_made *a, unsigned first)
{
    char access[100], host[100];
    const char *secret;

    text_addf(t, "%s ", a->method);
    snprintf(host, sizeof host, "127.0.0.1:%u", port_of(c));
    find_key(st, first, access, &secret);
    if (has_word(st, "presigned"))
        sigv4_presign(t, a->method, st->word[first], host, access, secret);
    else
        text_add(t, st->word[first]);
    text_addf(t, " HTTP/1.%s\r\n", has_word(st, "http=1.0") ? "0" : "1");
    if (!has_word(st, "nohost") && !has_word(st, "host="))
        text_addf(t, "Host: %s\r\n", host);
}

static bool write_request(struct client *c, const struct statement *st, struct request_made *r,
                          struct ask_made *a, unsigned first)
{
    struct span value;

    add_line(c, st, &r->t, a, first);
    for (unsigned i = first + 1; i < st->count; i++) {
        struct span word = st->word[i];
        bool bound = word_value(word, "from", &value) || word_value(word, "to", &value);
        if (!bound && !add_option(c, r, a, word))
            return false;
    }
    if (!add_from_to(c, st, first + 1, &r->t))
        return false;
    bool sends = strcmp(a->method, "PUT") == 0 || strcmp(a->method, "POST") == 0;
    if (r->body.object && !r->body.is_part)
        r->body.bytes = a->size;
    a->upload = sends || r->body.bytes > 0;
    if (a->upload)
        body_fields(&r->body, &r->t);
    add_signature(c, st, &r->t, a, first);
    text_adds(&r->t, "\r\n");
    return !r->t.over || client_fail(c, "the request is too long");
}

/* The target stands in word[first]. */
static bool do_request(struct client *c, const char *method, unsigned first)
{
    const struct statement *st = &c->frame.now;
    struct ask_made *a = &c->ask[c->asks % ASKS_MAX];
    struct request_made r = {0};
    char *room;

    if (st->count <= first || c->asks - c->next == ASKS_MAX)
        return client_fail(c, "no target, or too many requests at once");
    if ((c->fd < 0 || c->ended) && !open_connection(c))
        return false;
    a = &c->ask[c->asks % ASKS_MAX];
    *a = (struct ask_made){.version = 1, .sent_us = clock_us()};
    snprintf(a->method, sizeof a->method, "%s", method);
    note_target(a, st->word[first], find_virtual(st));
    a->object &= !c->admin;
    note_store_name(a, st, first);
    room = mem_take(REQUEST_BYTES);
    must(room);
    text_init(&r.t, room, REQUEST_BYTES);
    bool good = write_request(c, st, &r, a, first) &&
                client_send(c, r.t.at, r.t.len, r.split, 0) &&
                (!a->upload || body_send(c, &r.body, a));
    mem_give(room);
    c->asks++;
    return good;
}

/* ---- statements ---- */

static bool read_answer(struct client *c)
{
    const struct statement *st = &c->frame.now;
    struct answer_options o = {.within_ms = ANSWER_MS};
    struct span value;
    bool good = true;

    for (unsigned i = 1; good && i < st->count; i++) {
        if (word_value(st->word[i], "read", &value)) {
            o.stop_early = true;
            good = size_read(value, &o.read) == OK;
        } else if (word_value(st->word[i], "rate", &value)) {
            good = size_read(value, &o.rate) == OK;
        } else if (word_value(st->word[i], "within", &value)) {
            good = size_read(value, &o.within_ms) == OK;
        } else if (word_value(st->word[i], "cut", &value)) {
            o.cut_must = span_is(value, "yes");
            o.cut_may = o.cut_must || span_is(value, "may");
        }
    }
    if (!good)
        return client_fail(c, "bad value");
    return answer_read(c, &o);
}

/* get TARGET = ask and answer. A kept connection that the server closed meanwhile is opened again,
 * once:
 * HTTP lets a server close an idle connection at any time. */
static bool exchange_once(struct client *c, const char *method)
{
    if (c->fd >= 0 && c->next == c->asks && c->have == c->used) {
        char one;
        if (wire_recv(c, &one, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            forget_connection(c);
    }
    return do_request(c, method, 1) && read_answer(c);
}

/* until=STATUS: again and again, for as long as within= says. */
static bool do_exchange(struct client *c, const char *method)
{
    const struct statement *st = &c->frame.now;
    uint64_t until = 0, within = WAIT_MS;
    struct span value;

    for (unsigned i = 1; i < st->count; i++) {
        if (word_value(st->word[i], "until", &value) && size_read(value, &until) != OK)
            return client_fail(c, "until=STATUS");
        if (word_value(st->word[i], "within", &value) && size_read(value, &within) != OK)
            return client_fail(c, "within=MS");
    }
    uint64_t deadline = clock_ms() + within;
    for (;;) {
        if (!exchange_once(c, method))
            return false;
        if (until == 0 || c->got.status == until)
            return true;
        if (clock_ms() >= deadline)
            return client_fail(c, "status %u for all the time", c->got.status);
        poll(NULL, 0, AGAIN_MS);
    }
}

static bool do_send(struct client *c)
{
    const struct statement *st = &c->frame.now;
    struct span value;
    uint64_t split = 0, every = 0;

    if (st->count < 2)
        return client_fail(c, "send \"bytes\"");
    for (unsigned i = 2; i < st->count; i++) {
        bool good = false;
        if (word_value(st->word[i], "split", &value))
            good = size_read(value, &split) == OK;
        else if (word_value(st->word[i], "every", &value))
            good = size_read(value, &every) == OK;
        if (!good)
            return client_fail(c, "unknown option %s", st->word[i].at);
    }
    if ((c->fd < 0 || c->ended) && !open_connection(c))
        return false;
    if (every && !split)
        split = 1;
    return client_send(c, st->word[1].at, st->word[1].len, split, every);
}

static bool do_hold(struct client *c)
{
    uint64_t many;

    if (c->frame.now.count != 2 || size_read(c->frame.now.word[1], &many) != OK || c->held)
        return client_fail(c, "hold N, once");
    c->held = mem_take(many * sizeof *c->held);
    must(c->held);
    for (c->holds = 0; c->holds < many; c->holds++)
        if ((c->held[c->holds] = client_connect(port_of(c))) < 0)
            return client_fail(c, "connect: %s", strerror(errno));
    return true;
}

static bool do_release(struct client *c)
{
    for (unsigned i = 0; i < c->holds; i++)
        close(c->held[i]);
    mem_give(c->held);
    c->held = NULL;
    c->holds = 0;
    return true;
}

static bool do_drop(struct client *c)
{
    forget_connection(c);
    return true;
}

static bool do_reset(struct client *c)
{
    struct linger hard = {1, 0};

    if (c->fd >= 0)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    forget_connection(c);
    return true;
}

static bool do_half(struct client *c)
{
    wire_half(c);
    return true;
}

/* connect [refused] */
static bool do_connect(struct client *c)
{
    if (c->frame.now.count == 1)
        return open_connection(c);
    forget_connection(c);
    return !wire_open(c, port_of(c)) || client_fail(c, "the handshake was not refused");
}

static bool do_expect(struct client *c)
{
    const struct statement *st = &c->frame.now;

    return watch_knows(st) ? watch_run(c->play, st) : check_expect(c);
}

static bool do_wait(struct client *c)
{
    const struct statement *st = &c->frame.now;

    return watch_knows(st) ? watch_run(c->play, st)
                           : client_fail(c, "wait origin, saw, metric or log");
}

static bool do_ask(struct client *c)
{
    if (c->frame.now.count < 3)
        return client_fail(c, "ask METHOD TARGET");
    return do_request(c, c->frame.now.word[1].at, 2);
}

static const struct {
    const char *name;
    bool (*run)(struct client *c);
} verb_table[] = {
    {"ask", do_ask},         {"answer", read_answer}, {"expect", do_expect},
    {"send", do_send},       {"drop", do_drop},       {"reset", do_reset},
    {"half", do_half},       {"connect", do_connect}, {"hold", do_hold},
    {"release", do_release}, {"bad_heads", bad_heads_run}, {"wait", do_wait},
    {"keep", check_keep},
};

static bool run_statement(struct client *c)
{
    static const char *const methods[][2] = {{"get", "GET"}, {"head", "HEAD"}, {"put", "PUT"},
                                             {"post", "POST"}, {"delete", "DELETE"},
                                             {"options", "OPTIONS"}};
    struct span word = c->frame.now.word[0];

    for (size_t i = 0; i < ARRAY_COUNT(methods); i++)
        if (span_is(word, methods[i][0]))
            return do_exchange(c, methods[i][1]);
    for (size_t i = 0; i < ARRAY_COUNT(verb_table); i++)
        if (span_is(word, verb_table[i].name))
            return verb_table[i].run(c);
    return client_fail(c, "unknown statement");
}

struct client *client_make(struct play *p, const struct statement *st, const char *name)
{
    struct client *c = mem_take(sizeof *c);
    struct span to;

    must(c);
    c->play = p;
    for (unsigned i = 1; i < st->count; i++) {
        c->plain |= span_is(st->word[i], "plain");
        if (word_value(st->word[i], "tls", &to)) /* TLS1_1_VERSION is 0x0302 */
            c->most_version = span_is(to, "1.1") ? 0x0302 : 0x0303;
        c->admin |= word_value(st->word[i], "to", &to) && span_is(to, "admin");
        c->sign |= span_is(st->word[i], "signed");
    }
    c->fd = -1;
    snprintf(c->name, sizeof c->name, "%s", name);
    c->in = mem_take(READ_BYTES);
    c->got.head = mem_take(HEAD_BYTES);
    c->got.shown = mem_take(BODY_SHOWN_BYTES);
    must(c->in && c->got.head && c->got.shown);
    return c;
}

void client_place(struct client *c, const struct frame *outer, unsigned number)
{
    char text[16];

    frame_enter(&c->frame, outer);
    snprintf(text, sizeof text, "%u", number);
    frame_set(&c->frame, "i", text);
}

bool client_run(struct client *c)
{
    struct play *p = c->play;

    while (frame_next(&c->frame) && run_statement(c))
        continue;
    do_release(c);
    forget_connection(c);
    wire_forget(c);
    mem_give(c->in);
    mem_give(c->got.head);
    mem_give(c->got.shown);
    mem_give(c);
    return !p->failed;
}
