/* Asks one thing at a time over a kept connection and compares every byte that comes.
 *
 * Invariants:
 *  1. OUT_WHOLE means: the head fits what was asked, the body is complete, and every byte is that
 *     of the version that the ETag names.
 *  2. Nothing waits longer than ASK_MS: a server that hangs is OUT_LATE, not a test that hangs.
 *
 * Life: reader_make(), any number of reader_ask(), reader_end(); one thread each.
 * Failure: an outcome; the connection is then closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/crash/crash.h"

enum { STALE_SLACK_MS = 500 };

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

unsigned fetch_page(uint16_t port, const char *target, char *out, size_t cap)
{
    char request[300];
    size_t len = 0;
    int fd = dial(port);

    out[0] = '\0';
    if (fd < 0)
        return 0;
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", target);
    uint64_t until = clock_ms() + ASK_MS;
    if (send_all(fd, request, (size_t)n))
        while (len + 1 < cap && clock_ms() < until) {
            ssize_t got = recv(fd, out + len, cap - 1 - len, 0);
            if (got == 0 || (got < 0 && errno != EAGAIN))
                break;
            len += got > 0 ? (size_t)got : 0;
        }
    close(fd);
    out[len] = '\0';
    return len > 12 ? (unsigned)strtoul(out + 9, NULL, 10) : 0;
}

/* ---- life ---- */
bool reader_make(struct reader *r, uint16_t port)
{
    *r = (struct reader){.port = port, .fd = -1};
    r->buffer = mem_take(READ_BYTES + HEAD_BYTES);
    return r->buffer != NULL;
}

void reader_hang_up(struct reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    r->at = r->len = 0;
}

void reader_end(struct reader *r)
{
    reader_hang_up(r);
    mem_give(r->buffer);
    r->buffer = NULL;
}

static bool is_late(const struct reader *r)
{
    return clock_ms() > r->asked_ms + ASK_MS;
}

/* More bytes behind those unread. false: the peer ended, or it takes too long. */
static bool receive(struct reader *r)
{
    if (r->at > 0)
        memmove(r->buffer, r->buffer + r->at, r->len);
    r->at = 0;
    for (;;) {
        ssize_t n = recv(r->fd, r->buffer + r->len, READ_BYTES + HEAD_BYTES - r->len, 0);
        if (n > 0) {
            r->len += (size_t)n;
            return true;
        }
        bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
        if (!again || is_late(r))
            return false;
    }
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

static void keep(struct span line, char *out, size_t cap)
{
    snprintf(out, cap, "%.*s", (int)line.len, line.at);
}

static void read_field(struct got *h, struct span line)
{
    char text[100];
    unsigned long long a, b, c;

    if (field_is(&line, "content-length")) {
        h->has_length = span_u64(line, &h->length) == OK;
    } else if (field_is(&line, "connection")) {
        h->close = span_is_nocase(line, "close");
    } else if (field_is(&line, "etag")) {
        keep(line, h->etag, sizeof h->etag);
    } else if (field_is(&line, "x-cache")) {
        keep(line, h->xcache, sizeof h->xcache);
    } else if (field_is(&line, "content-range")) {
        keep(line, text, sizeof text);
        h->has_range = sscanf(text, "bytes %llu-%llu/%llu", &a, &b, &c) == 3;
        h->from = h->has_range ? a : 0;
        h->to = h->has_range ? b : 0;
    } else if (field_is(&line, "x-headpond-cached")) {
        keep(line, text, sizeof text);
        h->cached = sscanf(text, "%llu/%llu", &a, &b) == 2 ? a : 0;
    }
}

static bool read_head(struct reader *r, struct got *h)
{
    const char *end = NULL;

    while (!(end = r->len ? memmem(r->buffer + r->at, r->len, "\r\n\r\n", 4) : NULL))
        if (r->len > HEAD_BYTES || !receive(r))
            return false;
    struct span head = span_make(r->buffer + r->at, (size_t)(end - r->buffer) - r->at + 2);
    r->at += head.len + 2;
    r->len -= head.len + 2;
    struct span line = span_cut(&head, '\n');
    h->status = line.len > 12 ? (unsigned)strtoul(line.at + 9, NULL, 10) : 0;
    while (head.len > 0) {
        line = span_trim(span_cut(&head, '\n'));
        if (line.len > 0 && line.at[line.len - 1] == '\r')
            line.len--;
        read_field(h, line);
    }
    return h->status >= 200 && h->status < 600;
}

/* ---- judging ---- */
static enum outcome wrong(struct reader *r, const struct ask *a, const struct got *h,
                          const char *what)
{
    snprintf(r->why, sizeof r->why, "%s %s/%s %llu-%llu status=%u etag=%s x-cache=%s: %s",
             a->head ? "HEAD" : "GET", a->bucket, a->thing->key, (unsigned long long)a->from,
             (unsigned long long)a->to, h->status, h->etag, h->xcache, what);
    return OUT_WRONG;
}

/* Was this version replaced longer ago than it may be served? */
static bool is_too_old(const struct ask *a, uint64_t version, uint64_t asked_ms)
{
    struct thing *t = a->thing;
    bool old = false;

    if (a->ttl_ms == 0)
        return false;
    pthread_mutex_lock(&t->lock);
    if (version < t->version && t->version - version < BUMPS_KEPT) {
        uint64_t replaced_ms = t->bumped_ms[version % BUMPS_KEPT];
        old = replaced_ms + a->ttl_ms + STALE_SLACK_MS < asked_ms;
    }
    pthread_mutex_unlock(&t->lock);
    return old;
}

static enum outcome judge_head(struct reader *r, const struct ask *a, struct got *h)
{
    struct thing *t = a->thing;
    uint64_t due = a->ranged ? a->to - a->from + 1 : t->size;

    if (!bytes_version(span_of(h->etag), span_of(a->bucket), span_of(t->key), &h->version))
        return wrong(r, a, h, "an ETag of another object");
    if (strcmp(h->xcache, "stale") != 0 && is_too_old(a, h->version, r->asked_ms))
        return wrong(r, a, h, "a version that was replaced too long ago");
    if (h->status != (a->ranged ? 206u : 200u) ||
        (a->ranged && (!h->has_range || h->from != a->from || h->to != a->to)))
        return wrong(r, a, h, "not the range that was asked for");
    if (!h->has_length || h->length != due)
        return wrong(r, a, h, "a wrong length");
    return OUT_WHOLE;
}

static enum outcome read_body(struct reader *r, const struct ask *a, const struct got *h)
{
    bool check = h->status < 300;
    uint64_t seed = bytes_seed(span_of(a->bucket), span_of(a->thing->key), h->version);
    uint64_t offset = a->ranged ? a->from : 0;

    for (uint64_t left = h->length; left > 0;) {
        if (r->len == 0 && !receive(r))
            return is_late(r) ? OUT_LATE : OUT_CUT;
        size_t n = (size_t)min_u64(r->len, left);
        size_t right = check ? bytes_check(seed, offset, r->buffer + r->at, n) : n;
        if (right < n) {
            char what[80];
            snprintf(what, sizeof what, "a wrong byte at offset %llu",
                     (unsigned long long)(offset + right));
            return wrong(r, a, h, what);
        }
        r->at += n;
        r->len -= n;
        left -= n;
        offset += n;
    }
    atomic_fetch_add_explicit(&world.bytes, check ? h->length : 0, memory_order_relaxed);
    return check ? OUT_WHOLE : OUT_ERROR;
}

static enum outcome answer(struct reader *r, const struct ask *a, struct got *h)
{
    if (!read_head(r, h))
        return is_late(r) ? OUT_LATE : OUT_CUT;
    bool good = h->status < 300;
    enum outcome out = good ? judge_head(r, a, h) : OUT_ERROR;
    if (out == OUT_WRONG || a->head || h->status == 304)
        return out;
    return h->has_length ? read_body(r, a, h) : wrong(r, a, h, "no length");
}

enum outcome reader_ask(struct reader *r, const struct ask *a, struct got *got)
{
    char request[600], range[80] = "";

    *got = (struct got){0};
    atomic_fetch_add_explicit(&world.asks, 1, memory_order_relaxed);
    r->asked_ms = clock_ms();
    if (r->fd < 0)
        r->fd = dial(r->port);
    if (r->fd < 0)
        return OUT_REFUSED;
    if (a->ranged)
        snprintf(range, sizeof range, "Range: bytes=%llu-%llu\r\n", (unsigned long long)a->from,
                 (unsigned long long)a->to);
    int n = snprintf(request, sizeof request, "%s /%s/%s HTTP/1.1\r\nHost: crash\r\n%s\r\n",
                     a->head ? "HEAD" : "GET", a->bucket, a->thing->key, range);
    enum outcome out = send_all(r->fd, request, (size_t)n) ? answer(r, a, got) : OUT_REFUSED;
    if (out == OUT_LATE)
        snprintf(r->why, sizeof r->why, "GET %s/%s: no end within %d s", a->bucket, a->thing->key,
                 ASK_MS / 1000);
    if ((out != OUT_WHOLE && out != OUT_ERROR) || got->close)
        reader_hang_up(r);
    return out;
}
