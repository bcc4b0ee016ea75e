/* The clients of a stress run: ask, read in all manners, check.
 *
 * Invariants:
 *  1. A client judges an answer only by what it asked, what the answer says, and the history of
 *     versions.
 *  2. Reads wait for a second at most and then look at the time: a client ends whatever the server
 *     does.
 *
 * Life: one thread each, from start to `over`. Failure: stress_wrong(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/stress/stress.h"

enum { ASKS_MAX = 6, SLOW_MS_MAX = 6000, STALE_SLACK_MS = 300 };

struct asked {
    struct thing *thing;
    bool head, ranged, conditional, list;
    uint64_t from, to;
    uint64_t sent_ms, began_ms;      /* a pipelined one begins when its turn comes */
};

struct answer {
    unsigned status;
    bool chunked, close, stale, has_length, has_range;
    uint64_t length, from, to, size;
    char etag[BYTES_ETAG_MAX + 8], xcache[24];
};

struct client {
    unsigned number;
    uint64_t *random;
    int fd;
    char *buffer;                    /* READ_BYTES + ANSWER_HEAD_BYTES */
    size_t at, len;                  /* unread bytes of it */
    bool slow;
    uint64_t slow_until_ms;
};

void stress_wrong(const char *format, ...)
{
    char text[600];
    va_list more;
    va_start(more, format);
    vsnprintf(text, sizeof text, format, more);
    va_end(more);
    if (atomic_fetch_add(&stress.wrongs, 1) < 20)
        printf("WRONG %s\n", text);
    fflush(stdout);
}

/* ---- sockets ---- */

static int dial(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval second = {.tv_sec = 1};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

static void hang_up(struct client *c, bool reset)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (c->fd < 0)
        return;
    if (reset)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(c->fd);
    c->fd = -1;
    c->at = c->len = 0;
}

static bool is_late(const struct asked *a)
{
    return clock_ms() > a->began_ms + REQUEST_MS || atomic_load(&stress.wrongs) > 200;
}

/* More bytes behind those unread. false: the peer ended, or it takes too long. */
static bool receive(struct client *c, const struct asked *a)
{
    if (c->at > 0) {
        memmove(c->buffer, c->buffer + c->at, c->len);
        c->at = 0;
    }
    size_t room = READ_BYTES + ANSWER_HEAD_BYTES - c->len;
    if (c->slow && clock_ms() < c->slow_until_ms) {
        room = min_u64(room, 1 + dice(c->random, 32 * KIB));
        poll(NULL, 0, (int)dice(c->random, 30));
    }
    for (;;) {
        ssize_t n = recv(c->fd, c->buffer + c->len, room, 0);
        if (n > 0) {
            c->len += (size_t)n;
            return true;
        }
        bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
        if (!again || is_late(a))
            return false;
    }
}

static bool send_all(int fd, const char *text, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, text + done, len - done, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

unsigned stress_fetch(uint16_t port, const char *target, char *out, size_t cap)
{
    char request[300];
    size_t len = 0;
    int fd = dial(port);
    out[0] = 0;
    if (fd < 0)
        return 0;
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", target);
    uint64_t until = clock_ms() + 20000;
    if (send_all(fd, request, (size_t)n))
        while (len + 1 < cap && clock_ms() < until) {
            ssize_t got = recv(fd, out + len, cap - 1 - len, 0);
            if (got == 0 || (got < 0 && errno != EAGAIN))
                break;
            len += got > 0 ? (size_t)got : 0;
        }
    close(fd);
    out[len] = 0;
    return len > 12 ? (unsigned)strtoul(out + 9, NULL, 10) : 0;
}

/* ---- heads ---- */

static bool field_is(struct span *line, const char *name)
{
    size_t n = strlen(name);
    if (line->len <= n || strncasecmp(line->at, name, n) != 0 || line->at[n] != ':')
        return false;
    *line = span_trim(span_from(*line, n + 1));
    return true;
}

static bool read_field(struct answer *h, struct span line)
{
    char text[100];
    if (field_is(&line, "content-length")) {
        h->has_length = true;
        return span_u64(line, &h->length) == OK;
    }
    if (field_is(&line, "transfer-encoding"))
        h->chunked = true;
    else if (field_is(&line, "connection"))
        h->close = span_is_nocase(line, "close");
    else if (field_is(&line, "etag"))
        snprintf(h->etag, sizeof h->etag, "%.*s", (int)line.len, line.at);
    else if (field_is(&line, "x-cache"))
        snprintf(h->xcache, sizeof h->xcache, "%.*s", (int)line.len, line.at);
    else if (field_is(&line, "content-range")) {
        unsigned long long from, to, size;
        snprintf(text, sizeof text, "%.*s", (int)line.len, line.at);
        h->has_range = sscanf(text, "bytes %llu-%llu/%llu", &from, &to, &size) == 3;
        h->from = from;
        h->to = to;
        h->size = size;
        return h->has_range || h->status == 416;
    }
    return true;
}

static bool read_head(struct client *c, const struct asked *a, struct answer *h)
{
    const char *end = NULL;
    *h = (struct answer){0};
    while (!(end = c->len ? memmem(c->buffer + c->at, c->len, "\r\n\r\n", 4) : NULL))
        if (c->len > ANSWER_HEAD_BYTES || !receive(c, a))
            return false;
    struct span head = span_make(c->buffer + c->at, (size_t)(end - c->buffer) - c->at + 2);
    c->at += head.len + 2;
    c->len -= head.len + 2;
    struct span line = span_cut(&head, '\n');
    h->status = line.len > 12 ? (unsigned)strtoul(line.at + 9, NULL, 10) : 0;
    while (head.len > 0) {
        line = span_trim(span_cut(&head, '\n'));
        if (line.len > 0 && line.at[line.len - 1] == '\r')
            line.len--;
        if (!read_field(h, line))
            stress_wrong("%s: a field that cannot be read: %.*s", a->thing->key, (int)line.len,
                         line.at);
    }
    h->stale = strcmp(h->xcache, "stale") == 0;
    return h->status >= 200 && h->status < 600;
}

/* ---- judging ---- */

/* The oldest version that may be served to a request that was sent then. */
static uint64_t oldest_version(struct thing *t, uint64_t sent_ms)
{
    uint64_t least = 0, limit = sent_ms - min_u64(sent_ms, stress.ttl_ms + STALE_SLACK_MS);
    if (stress.ttl_ms == 0)
        limit = sent_ms - 1;
    pthread_mutex_lock(&t->lock);
    for (unsigned i = 0; i < BUMPS_KEPT && i < t->bumps; i++)
        if (t->bump[i].at_ms < limit && t->bump[i].version > least)
            least = t->bump[i].version;
    pthread_mutex_unlock(&t->lock);
    return least;
}

static bool expected_status(const struct asked *a, unsigned status)
{
    if (atomic_load(&stress.calm_ms) && a->sent_ms > atomic_load(&stress.calm_ms))
        return status == 200 || status == 206 || (status == 416 && a->ranged) ||
               (a->conditional && (status == 304 || status == 412));
    return status == 200 || status == 206 || status == 304 || status == 404 || status == 412 ||
           status == 416 || status == 502 || status == 503;
}

static enum outcome wrong(const struct asked *a, const struct answer *h, const char *what)
{
    stress_wrong("%s %s%s [%llu-%llu] status=%u etag=%s xcache=%s: %s", a->head ? "HEAD" : "GET",
                 a->thing->key, a->ranged ? " ranged" : "", (unsigned long long)a->from,
                 (unsigned long long)a->to, h->status, h->etag, h->xcache, what);
    return OUT_WRONG;
}

/* Version, range and length of a 200 or 206. OUT_WHOLE so far, with the version. */
static enum outcome judge_head(const struct asked *a, const struct answer *h, uint64_t *version)
{
    struct thing *t = a->thing;
    uint64_t len = h->status == 206 ? h->to - h->from + 1 : t->size;
    *version = 0;
    if (h->etag[0] &&
        !bytes_version(span_of(h->etag), span_of(STRESS_BUCKET), span_of(t->key), version))
        return wrong(a, h, "an ETag of another object");
    if (*version && !h->stale && *version < oldest_version(t, a->sent_ms)) {
        char text[100];
        snprintf(text, sizeof text, "stale: version %llu, at least %llu was due",
                 (unsigned long long)*version,
                 (unsigned long long)oldest_version(t, a->sent_ms));
        return wrong(a, h, text);
    }
    if (h->status == 206 && (!a->ranged || !h->has_range || h->from != a->from ||
                             h->to != min_u64(a->to, t->size - 1) || h->size != t->size))
        return wrong(a, h, "a range that was not asked for");
    if (h->status == 200 && a->ranged && strcmp(h->xcache, "bypass") != 0)
        return wrong(a, h, "a whole answer to a range");
    if (h->has_length && h->length != len && strcmp(h->xcache, "bypass") != 0)
        return wrong(a, h, "a wrong length");
    return OUT_WHOLE;
}

/* ---- bodies ---- */

struct body {
    uint64_t seed, offset, left;     /* left: until the end or the next chunk line */
    bool check, chunked, last;
    uint64_t leave_at;               /* walk away behind so many bytes */
    uint64_t got;
};

/* The next chunk's length. false: cut. */
static bool read_chunk_line(struct client *c, const struct asked *a, struct body *b)
{
    for (;;) {
        const char *end = c->len ? memchr(c->buffer + c->at, '\n', c->len) : NULL;
        if (end) {
            size_t n = (size_t)(end - (c->buffer + c->at)) + 1;
            bool blank = n <= 2;
            b->left = blank ? 0 : strtoull(c->buffer + c->at, NULL, 16);
            c->at += n;
            c->len -= n;
            if (blank && !b->last && b->got > 0)
                continue;            /* the end of the chunk before */
            if (blank && b->last)
                return true;
            if (!blank && b->left > 0)
                return true;
            b->last = true;
            continue;
        }
        if (!receive(c, a))
            return false;
    }
}

static bool check_bytes(const struct asked *a, const struct answer *h, struct body *b,
                        const char *at, size_t n)
{
    size_t right = b->check ? bytes_check(b->seed, b->offset, at, n) : n;
    if (right == n)
        return true;
    char text[160];
    snprintf(text, sizeof text, "a wrong byte at object offset %llu (body byte %llu of %llu)",
             (unsigned long long)(b->offset + right), (unsigned long long)(b->got + right),
             (unsigned long long)h->length);
    wrong(a, h, text);
    return false;
}

static enum outcome read_body(struct client *c, const struct asked *a, const struct answer *h,
                              struct body *b)
{
    for (;;) {
        if (b->left == 0) {
            if (!b->chunked || b->last)
                return OUT_WHOLE;
            if (!read_chunk_line(c, a, b))
                return OUT_CUT;
            if (b->last)
                return OUT_WHOLE;
        }
        if (b->got >= b->leave_at)
            return OUT_LEFT;
        if (c->len == 0 && !receive(c, a))
            return OUT_CUT;
        size_t n = (size_t)min_u64(c->len, b->left);
        if (!check_bytes(a, h, b, c->buffer + c->at, n))
            return OUT_WRONG;
        c->at += n;
        c->len -= n;
        b->left -= n;
        b->got += n;
        b->offset += n;
        atomic_store_explicit(&stress.client[c->number].got, b->got, memory_order_relaxed);
        atomic_fetch_add_explicit(&stress.bytes, n, memory_order_relaxed);
    }
}

static enum outcome read_answer(struct client *c, const struct asked *a, uint64_t leave_at)
{
    struct answer h;
    uint64_t version = 0;
    if (!read_head(c, a, &h))
        return OUT_CUT;
    bool good = h.status == 200 || h.status == 206;
    if (!expected_status(a, h.status) && !a->list)
        wrong(a, &h, "not the status that is due");
    if (good && !a->list && judge_head(a, &h, &version) != OUT_WHOLE)
        return OUT_WRONG;
    bool empty = a->head || h.status == 304 || h.status == 204;
    uint64_t first = h.status == 206 ? h.from : 0;
    uint64_t due = h.status == 206 ? h.to - h.from + 1 : a->thing->size;
    struct body b = {.seed = bytes_seed(span_of(STRESS_BUCKET), span_of(a->thing->key), version),
                     .offset = first, .chunked = h.chunked, .leave_at = leave_at,
                     .check = good && version > 0 && !a->list,
                     .left = h.chunked ? 0 : h.has_length ? h.length : UINT64_MAX};
    enum outcome out = empty ? OUT_WHOLE : read_body(c, a, &h, &b);
    if (!h.chunked && !h.has_length && out == OUT_CUT)
        out = OUT_WHOLE;             /* until close */
    if (out == OUT_WHOLE && good && !empty && !a->list && b.got != due)
        return wrong(a, &h, "ended cleanly, but is not whole");
    if (h.close && out == OUT_WHOLE)
        hang_up(c, false);
    return out == OUT_WHOLE && !good && h.status >= 500 ? OUT_ERROR : out;
}

/* ---- asking ---- */

static void choose(struct client *c, struct asked *a)
{
    uint64_t *r = c->random;
    struct thing *t = &stress.thing[dice(r, 3) ? dice(r, THINGS / 4) : dice(r, THINGS)];
    *a = (struct asked){.thing = t};
    a->list = dice(r, 100) == 0;
    a->head = !a->list && dice(r, 8) == 0;
    a->conditional = dice(r, 12) == 0;
    if (a->list || a->head || dice(r, 3) > 0)
        return;
    a->ranged = true;
    a->from = dice(r, 40) == 0 ? t->size + dice(r, 10) : dice(r, t->size + 1);
    a->to = a->from + dice(r, dice(r, 2) ? 200000 : t->size + 1);
}

static void write_request(struct client *c, const struct asked *a, struct text *t)
{
    text_addf(t, "%s /%s%s%s HTTP/1.1\r\nHost: stress\r\n", a->head ? "HEAD" : "GET",
              STRESS_BUCKET, a->list ? "?list-type=2&max-keys=5" : "/",
              a->list ? "" : a->thing->key);
    if (a->ranged)
        text_addf(t, "Range: bytes=%llu-%llu\r\n", (unsigned long long)a->from,
                  (unsigned long long)a->to);
    if (a->conditional) {
        char etag[BYTES_ETAG_MAX];
        uint64_t seed = bytes_seed(span_of(STRESS_BUCKET), span_of(a->thing->key), 1);
        bytes_etag(seed, 1 + dice(c->random, 3), etag);
        text_addf(t, "%s: %s\r\n", dice(c->random, 3) ? "If-None-Match" : "If-Match", etag);
    }
    if (dice(c->random, 20) == 0)
        text_adds(t, "x-amz-checksum-mode: ENABLED\r\n");
    text_adds(t, "\r\n");
}

static bool connected(struct client *c)
{
    if (c->fd >= 0)
        return true;
    c->fd = dial(stress.port);
    c->at = c->len = 0;
    if (c->fd >= 0 && dice(c->random, 8) == 0) {
        int small = 256 * KIB;       /* less than a loopback segment crawls */
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    }
    return c->fd >= 0;
}

/* A slow reader whose object is replaced upstream, and whose rest has left the cache, can only be
 * cut: the bytes that its head promised exist nowhere any more. */
static bool replaced_meanwhile(const struct asked *a)
{
    struct thing *t = a->thing;
    bool found = false;
    pthread_mutex_lock(&t->lock);
    for (unsigned i = 0; i < BUMPS_KEPT && i < t->bumps; i++)
        found = found || t->bump[i].at_ms >= a->began_ms;
    pthread_mutex_unlock(&t->lock);
    return found;
}

static void count(const struct asked *a, enum outcome out)
{
    uint64_t calm = atomic_load(&stress.calm_ms), gone = atomic_load(&stress.gone_ms);
    bool cut = out == OUT_CUT && !replaced_meanwhile(a);
    atomic_fetch_add(&stress.outcome[out], 1);
    atomic_fetch_add(&stress.requests, 1);
    if (calm && a->sent_ms > calm && a->sent_ms > gone &&
        (cut || out == OUT_ERROR || out == OUT_REFUSED))
        stress_wrong("%s %s: %s in the calm, after %llu ms", a->head ? "HEAD" : "GET",
                     a->thing->key, cut ? "cut" : out == OUT_ERROR ? "an error" : "refused",
                     (unsigned long long)(clock_ms() - a->began_ms));
    if (clock_ms() > a->began_ms + REQUEST_MS)
        stress_wrong("%s [%llu-%llu]: no end after %llu ms", a->thing->key,
                     (unsigned long long)a->from, (unsigned long long)a->to,
                     (unsigned long long)(clock_ms() - a->began_ms));
}

static void one_round(struct client *c)
{
    char request[4 * KIB];
    struct asked asked[ASKS_MAX];
    struct text t;
    unsigned asks = dice(c->random, 10) == 0 ? 2 + (unsigned)dice(c->random, ASKS_MAX - 1) : 1;
    uint64_t leave_at = UINT64_MAX;
    text_init(&t, request, sizeof request);
    for (unsigned i = 0; i < asks; i++) {
        choose(c, &asked[i]);
        write_request(c, &asked[i], &t);
        asked[i].sent_ms = asked[i].began_ms = clock_ms();
    }
    must(!t.over);
    c->slow = dice(c->random, 10) == 0;
    c->slow_until_ms = clock_ms() + dice(c->random, SLOW_MS_MAX);
    if (dice(c->random, 12) == 0)
        leave_at = dice(c->random, asked[0].thing->size + 2);
    snprintf(stress.client[c->number].what, sizeof stress.client[0].what, "%s %s [%llu-%llu] x%u",
             asked[0].head ? "HEAD" : "GET", asked[0].thing->key,
             (unsigned long long)asked[0].from, (unsigned long long)asked[0].to, asks);
    atomic_store(&stress.client[c->number].began_ms, clock_ms());
    atomic_store(&stress.client[c->number].got, 0);
    size_t send_len = dice(c->random, 60) == 0 ? t.len / 2 : t.len;
    if (!connected(c) || !send_all(c->fd, request, send_len) || send_len < t.len) {
        count(&asked[0], send_len < t.len ? OUT_LEFT : OUT_REFUSED);
        hang_up(c, dice(c->random, 2));
        poll(NULL, 0, 20);
        atomic_store(&stress.client[c->number].began_ms, 0);
        return;
    }
    for (unsigned i = 0; i < asks && c->fd >= 0; i++) {
        if (i > 0)                   /* it waited behind the one before */
            atomic_store(&stress.client[c->number].began_ms, clock_ms());
        asked[i].began_ms = i == 0 ? asked[0].sent_ms : clock_ms();
        enum outcome out = read_answer(c, &asked[i], i == 0 ? leave_at : UINT64_MAX);
        count(&asked[i], out);
        if (out == OUT_ERROR)
            poll(NULL, 0, 10);
        if (out != OUT_WHOLE && out != OUT_ERROR)
            hang_up(c, dice(c->random, 2));
    }
    atomic_store(&stress.client[c->number].began_ms, 0);
}

void *client_main(void *number)
{
    unsigned n = (unsigned)(uintptr_t)number;
    struct client c = {.number = n, .random = &stress.client[n].random, .fd = -1};
    c.buffer = mem_take(READ_BYTES + ANSWER_HEAD_BYTES);
    must(c.buffer);
    while (!atomic_load(&stress.over)) {
        one_round(&c);
        if (dice(c.random, 30) == 0)
            hang_up(&c, dice(c.random, 2));
    }
    hang_up(&c, false);
    mem_give(c.buffer);
    return NULL;
}
