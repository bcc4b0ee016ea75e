/* Reads one answer from a client's connection and checks its bytes while they come.
 *
 * Invariants:
 *  1. Bytes of an object are compared with the version that the answer's ETag names, at the offset
 *     that its Content-Range names.
 *  2. This parser shares nothing with the server's: it knows just enough HTTP to read what a
 *     correct server says, and fails on
 *     anything else.
 *
 * Life: the answer's facts (client.got) live until the next answer is read.
 * Failure: a broken answer, wrong bytes or a passed deadline fail the play. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "tests/flow/play.h"

struct reading {
    struct client *c;
    struct answered *a;
    const struct ask_made *ask;      /* NULL: nobody knows what was asked */
    const struct answer_options *options;
    uint64_t deadline_us, paced_us;
    size_t shown;
    bool stopped;                    /* options->read is reached */
};

struct span answer_header(const struct answered *a, const char *name)
{
    struct span rest = span_make(a->head, a->head_len);
    size_t len = strlen(name);

    while (rest.len > 0) {
        struct span line = span_cut(&rest, '\n');
        if (line.len > len && line.at[len] == ':' && strncasecmp(line.at, name, len) == 0) {
            struct span value = span_from(line, len + 1);
            if (value.len > 0 && value.at[value.len - 1] == '\r')
                value.len--;
            return span_trim(value);
        }
    }
    return (struct span){0};
}

/* ---- input ---- */

/* More input: 1, or 0 at the peer's end; -1 = failed (deadline). */
static int receive(struct reading *r, size_t most)
{
    struct client *c = r->c;

    if (c->used == c->have)
        c->used = c->have = 0;
    if (c->have == READ_BYTES) {
        memmove(c->in, c->in + c->used, c->have - c->used);
        c->have -= c->used;
        c->used = 0;
    }
    for (;;) {
        if (c->play->failed)
            return -1;
        if (client_wait(c, r->deadline_us) == 0) {
            client_fail(c, "no answer in time (status %u, %llu bytes so far)", r->a->status,
                        (unsigned long long)r->a->body_bytes);
            return -1;
        }
        ssize_t n = wire_recv(c, c->in + c->have, min_u64(READ_BYTES - c->have, most), 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) {
            c->ended = true;
            return 0;
        }
        c->have += (size_t)n;
        return 1;
    }
}

/* ---- the head ---- */

static bool take_head(struct reading *r, size_t len)
{
    struct client *c = r->c;
    struct answered *a = r->a;
    char *colon;

    if (len >= HEAD_BYTES)
        return client_fail(c, "the answer's head has %zu bytes", len);
    memcpy(a->head, c->in + c->used, len);
    a->head[len] = 0;
    a->head_len = len;
    c->used += len;
    a->status = (unsigned)strtoul(a->head + 9, &colon, 10);
    if (memcmp(a->head, "HTTP/1.1 ", 9) != 0 || a->status < 100 || a->status > 599)
        return client_fail(c, "not an HTTP/1.1 answer: %.60s", a->head);
    return true;
}

static bool read_head(struct reading *r)
{
    struct client *c = r->c;

    for (;;) {
        char *end = memmem(c->in + c->used, c->have - c->used, "\r\n\r\n", 4);
        if (end)
            return take_head(r, (size_t)(end - c->in) + 4 - c->used);
        if (c->have - c->used >= HEAD_BYTES)
            return client_fail(c, "the answer's head does not end");
        int more = receive(r, READ_BYTES);
        if (more == 0 && r->options->cut_may)
            return r->a->cut = true;
        if (more == 0)
            return client_fail(c, "closed before an answer (%zu bytes of a head)",
                               c->have - c->used);
        if (more < 0)
            return false;
    }
}

static bool read_framing(struct reading *r)
{
    struct answered *a = r->a;
    struct span length = answer_header(a, "content-length");
    struct span coding = answer_header(a, "transfer-encoding");
    bool none = a->status == 204 || a->status == 304 || (r->ask && !strcmp(r->ask->method, "HEAD"));

    a->close = span_is_nocase(answer_header(a, "connection"), "close");
    if (length.at && span_u64(length, &a->length) != OK)
        return client_fail(r->c, "Content-Length: %.*s", (int)length.len, length.at);
    if (length.at && coding.at)
        return client_fail(r->c, "Content-Length and Transfer-Encoding");
    a->has_length = length.at != NULL;
    a->chunked = coding.at != NULL && !none;
    a->until_close = !none && !a->has_length && !a->chunked;
    a->no_body = none;
    return true;
}

/* ---- what the bytes must be ---- */

static bool check_range(struct reading *r, uint64_t *size)
{
    struct answered *a = r->a;
    struct span value = answer_header(a, "content-range");
    unsigned long long from, to, all;
    char text[100];

    if (!value.at || value.len >= sizeof text)
        return client_fail(r->c, "206 without a usable Content-Range");
    memcpy(text, value.at, value.len);
    text[value.len] = 0;
    if (sscanf(text, "bytes %llu-%llu/%llu", &from, &to, &all) != 3 || from > to || to >= all)
        return client_fail(r->c, "Content-Range: %s", text);
    if (a->has_length && strcmp(r->ask->method, "GET") == 0 && a->length != to - from + 1)
        return client_fail(r->c, "Content-Range: %s with Content-Length: %llu", text,
                           (unsigned long long)a->length);
    a->offset = from;
    *size = all;
    return true;
}

/* A 200 or 206 of an object: its version, where it begins, how big it is. */
static bool prepare_check(struct reading *r)
{
    struct answered *a = r->a;
    const struct ask_made *ask = r->ask;
    uint64_t size = a->length;

    if (!ask || !ask->object || (a->status != 200 && a->status != 206))
        return true;
    struct span bucket = span_make(ask->bucket, ask->bucket_len);
    struct span key = span_make(ask->key, ask->key_len), etag = answer_header(a, "etag");
    a->version = ask->version;
    if (etag.len > 19 && etag.at[17] == '.' &&
        !bytes_version(etag, bucket, key, &a->version))
        return client_fail(r->c, "the ETag %.*s is of another object", (int)etag.len, etag.at);
    a->seed = bytes_seed(bucket, key, a->version);
    if (a->status == 206 && !check_range(r, &size))
        return false;
    bool get = strcmp(ask->method, "GET") == 0;
    bool reads = get || strcmp(ask->method, "HEAD") == 0;
    bool know = reads && (a->has_length || a->status == 206);
    bool other = ask->other_size > 0 && size == ask->other_size;
    if (know && ask->size_told && size != ask->size && !other)
        return client_fail(r->c, "the object has %llu bytes, not %llu",
                           (unsigned long long)ask->size, (unsigned long long)size);
    a->checked = get;
    return true;
}

/* ---- the body ---- */

static bool take_bytes(struct reading *r, const char *at, size_t len)
{
    struct answered *a = r->a;
    size_t keep = min_u64(len, BODY_SHOWN_BYTES - 1 - r->shown);

    memcpy(a->shown + r->shown, at, keep);
    r->shown += keep;
    a->shown[r->shown] = 0;
    if (a->checked) {
        size_t good = bytes_check(a->seed, a->offset + a->body_bytes, at, len);
        if (good < len)
            return client_fail(r->c, "WRONG BYTE at %llu of /%s/%s version %llu",
                               (unsigned long long)(a->offset + a->body_bytes + good),
                               r->ask->bucket, r->ask->key, (unsigned long long)a->version);
        r->c->play->checked_bytes += len;
    }
    a->body_bytes += len;
    return true;
}

/* Spaces reads out to options->rate. */
static void pace(struct reading *r, size_t len)
{
    if (r->options->rate == 0)
        return;
    uint64_t now = clock_us();
    r->paced_us = max_u64(r->paced_us, now) + len * 1000000 / r->options->rate;
    while (now < r->paced_us && !r->c->play->failed) {
        poll(NULL, 0, (int)min_u64((r->paced_us - now) / 1000 + 1, 100));
        now = clock_us();
    }
}

/* Up to left bytes of body; *over = the peer ended first or reading stopped as asked. */
static bool read_bytes(struct reading *r, uint64_t left, bool *over)
{
    struct client *c = r->c;
    uint64_t most = r->options->rate ? 16 * KIB : READ_BYTES;

    *over = false;
    while (left > 0) {
        if (r->options->stop_early && r->a->body_bytes >= r->options->read) {
            r->stopped = *over = true;
            return true;
        }
        if (c->used == c->have) {
            int more = receive(r, most);
            if (more < 0)
                return false;
            if (more == 0) {
                *over = true;
                return true;
            }
        }
        size_t part = min_u64(left, c->have - c->used);
        if (r->options->stop_early)
            part = min_u64(part, r->options->read - r->a->body_bytes);
        if (!take_bytes(r, c->in + c->used, part))
            return false;
        c->used += part;
        left -= part;
        pace(r, part);
    }
    return true;
}

/* A line of chunk framing, without its end; false: failed or over. */
static bool read_line(struct reading *r, char *out, size_t cap, bool *over)
{
    struct client *c = r->c;
    size_t n = 0;

    *over = false;
    for (;;) {
        if (c->used == c->have) {
            int more = receive(r, READ_BYTES);
            *over = more == 0;
            if (more <= 0)
                return more == 0;
        }
        char b = c->in[c->used++];
        if (b == '\n')
            break;
        if (n + 1 == cap)
            return client_fail(c, "a chunk line is too long");
        out[n++] = b;
    }
    if (n > 0 && out[n - 1] == '\r')
        n--;
    out[n] = 0;
    return true;
}

static bool read_chunked(struct reading *r, bool *over)
{
    char line[200], *end;

    for (;;) {
        if (!read_line(r, line, sizeof line, over) || *over)
            return *over;
        uint64_t size = strtoull(line, &end, 16);
        if (end == line)
            return client_fail(r->c, "chunk size %s", line);
        if (size > 0) {
            if (!read_bytes(r, size, over) || *over)
                return *over;
        }
        if (!read_line(r, line, sizeof line, over) || *over)
            return *over;
        if (line[0])
            return client_fail(r->c, "trailer or chunk end: %s", line);
        if (size == 0)
            return true;
    }
}

static bool read_body(struct reading *r)
{
    struct answered *a = r->a;
    bool over = false, good;

    if (a->chunked)
        good = read_chunked(r, &over);
    else
        good = read_bytes(r, a->no_body ? 0 : a->until_close ? UINT64_MAX : a->length, &over);
    if (!good)
        return false;
    a->cut = over && !r->stopped && !a->until_close;
    if (a->cut && !r->options->cut_may)
        return client_fail(r->c, "the body ended at %llu of %llu bytes",
                           (unsigned long long)a->body_bytes, (unsigned long long)a->length);
    if (!a->cut && r->options->cut_must)
        return client_fail(r->c, "the body was not cut");
    return true;
}

bool answer_read(struct client *c, const struct answer_options *options)
{
    struct answered *a = &c->got;
    char *head = a->head, *shown = a->shown;
    const struct ask_made *ask = c->next < c->asks ? &c->ask[c->next % ASKS_MAX] : NULL;
    uint64_t began = ask ? ask->sent_us : clock_us();
    struct reading r = {.c = c, .a = a, .ask = ask, .options = options,
                        .deadline_us = clock_us() + options->within_ms * 1000};

    if (c->fd < 0)
        return client_fail(c, "no connection");
    *a = (struct answered){.head = head, .shown = shown};
    shown[0] = 0;
    if (!read_head(&r))
        return false;
    if (a->cut) {                    /* no head at all, and that was allowed */
        c->next = c->asks;
        return true;
    }
    while (a->status >= 100 && a->status < 200) {
        a->interim++;
        if (!read_head(&r))
            return false;
    }
    a->first_ms = (clock_us() - began) / 1000;
    if (!read_framing(&r) || !prepare_check(&r) || !read_body(&r))
        return false;
    a->ms = (clock_us() - began) / 1000;
    if (ask)
        c->next++;
    if (r.stopped)
        c->next = c->asks;           /* nobody reads the rest */
    return true;
}
