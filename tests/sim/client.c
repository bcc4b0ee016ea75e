/* A client of the simulation: writes requests, reads answers, and checks what must hold of every
 * answer whatever went wrong.
 *
 * Invariants:
 *  1. Bytes of an object are compared with those of the version that the answer's ETag names; an
 *     answer that ends cleanly must have had all of them.
 *  2. Nothing of the server is used to read what it sends.
 *
 * Life: one asker per connection. Failure: an answer that cannot be right fills reply.wrong. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/bytes.h"
#include "tests/sim/sim.h"

enum { PATIENCE_MS = 900 * 1000 };

void asker_open(struct asker *a)
{
    a->filled = 0;
    a->until_us = world.now_us + (uint64_t)PATIENCE_MS * 1000;
    a->fd = wire_client(SIM_PORT);
    a->seal = a->fd >= 0 && life_is_sealed() ? seal_client() : NULL;
}

void asker_close(struct asker *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    seal_free(a->seal);
    a->seal = NULL;
}

static bool may_put(void *argument)
{
    return wire_can_put(*(int *)argument);
}

static bool may_take(void *argument)
{
    return wire_can_take(*(int *)argument);
}

bool asker_put(struct asker *a, const char *bytes, size_t len)
{
    if (a->seal)
        return a->fd >= 0 && seal_write(a->seal, a->fd, bytes, len);
    for (size_t done = 0; done < len && a->fd >= 0;) {
        int32_t n = wire_put(a->fd, bytes + done, (uint32_t)(len - done));
        if (n == -EAGAIN)
            sim_block(may_put, &a->fd, a->until_us);
        else if (n <= 0)
            return false;
        else
            done += (size_t)n;
        if (world.now_us >= a->until_us)
            return false;
    }
    return a->fd >= 0;
}

bool asker_send(struct asker *a, const char *format, ...)
{
    char text[16 * KIB];
    va_list arguments;

    va_start(arguments, format);
    int len = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    must(len >= 0 && (size_t)len < sizeof text);
    return asker_put(a, text, (size_t)len);
}

/* ---- receiving ---- */

enum came { CAME_BYTES, CAME_END, CAME_RESET, CAME_LATE };

/* Without its goodbye a sealed connection was cut. */
static int32_t take_sealed(struct asker *a, void *out, uint32_t cap)
{
    char raw[4096];
    int32_t n = seal_take(a->seal, NULL, 0, out, cap);

    if (n != -EAGAIN)
        return n;
    int32_t got = wire_take(a->fd, raw, sizeof raw, false);
    if (got <= 0)
        return got == 0 ? -ECONNRESET : got;
    n = seal_take(a->seal, raw, got, out, cap);
    return seal_flush(a->seal, a->fd) ? n : -ECONNRESET;
}

static enum came receive(struct asker *a)
{
    if (a->fd < 0)
        return CAME_RESET;
    for (;;) {
        uint32_t room = (uint32_t)(sizeof a->in - a->filled);
        int32_t n = a->seal ? take_sealed(a, a->in + a->filled, room)
                            : wire_take(a->fd, a->in + a->filled, room, false);
        if (n > 0) {
            a->filled += (size_t)n;
            return CAME_BYTES;
        }
        if (n != -EAGAIN)
            return n == 0 ? CAME_END : CAME_RESET;
        if (world.now_us >= a->until_us)
            return CAME_LATE;
        sim_block(may_take, &a->fd, a->until_us);
    }
}

static void drop(struct asker *a, size_t n)
{
    memmove(a->in, a->in + n, a->filled - n);
    a->filled -= n;
}

static void note_end(struct reply *r, enum came how)
{
    r->reset = how == CAME_RESET || how == CAME_END;
    r->late = how == CAME_LATE;
}

static void blame(struct reply *r, const char *format, ...) printf_like(2, 3);
static void blame(struct reply *r, const char *format, ...)
{
    va_list arguments;

    if (r->wrong[0])
        return;
    va_start(arguments, format);
    vsnprintf(r->wrong, sizeof r->wrong, format, arguments);
    va_end(arguments);
}

/* ---- heads ---- */

static struct span field(const struct reply *r, const char *name)
{
    struct span rest = span_of(r->head);

    span_cut(&rest, '\n');
    while (rest.len > 0) {
        struct span line = span_trim(span_cut(&rest, '\n'));
        if (line.len > 0 && line.at[line.len - 1] == '\r')
            line.len--;
        struct span label = span_cut(&line, ':');
        if (span_is_nocase(label, name))
            return span_trim(line);
    }
    return span_make(NULL, 0);
}

static void keep(struct span in, char *out, size_t cap)
{
    snprintf(out, cap, "%.*s", (int)in.len, in.len ? in.at : "");
}

static bool read_head(struct asker *a, struct reply *r)
{
    char *end;

    while (!(end = memmem(a->in, a->filled, "\r\n\r\n", 4))) {
        if (a->filled == sizeof a->in) {
            blame(r, "a head without end");
            return false;
        }
        enum came came = receive(a);
        if (came == CAME_BYTES)
            continue;
        note_end(r, came);
        if (a->filled > 0 && came == CAME_END)
            r->reset = true;
        return false;
    }
    size_t len = (size_t)(end - a->in) + 4;
    if (len >= sizeof r->head || memcmp(a->in, "HTTP/1.1 ", 9) != 0) {
        blame(r, "no head of HTTP/1.1: %.40s", a->in);
        return false;
    }
    memcpy(r->head, a->in, len);
    r->head[len] = '\0';
    drop(a, len);
    r->status = (int)strtol(r->head + 9, NULL, 10);
    return true;
}

static void read_fields(struct reply *r)
{
    struct span length = field(r, "content-length"), range = field(r, "content-range");

    keep(field(r, "x-cache"), r->x_cache, sizeof r->x_cache);
    keep(field(r, "etag"), r->etag, sizeof r->etag);
    r->closes = span_is_nocase(field(r, "connection"), "close");
    r->length = UINT64_MAX;
    if (length.at && span_u64(length, &r->length) != OK)
        blame(r, "content-length: %.*s", (int)length.len, length.at);
    r->from = 0;
    bool passed_on = strcmp(r->x_cache, "bypass") == 0; /* the store's own words, right or not */
    if (r->status == 206 && sscanf(range.at ? range.at : "", "bytes %lu-", &r->from) != 1 &&
        !passed_on)
        blame(r, "206 without a range");
}

/* ---- bodies ---- */

struct body {
    struct span bucket, key;         /* key.at == NULL: a document */
    uint64_t seed;
    bool checked;
};

static void check(struct reply *r, const struct body *b, const char *bytes, size_t len)
{
    if (b->checked) {
        size_t good = bytes_check(b->seed, r->from + r->got, bytes, len);
        if (good < len)
            blame(r, "byte %llu is wrong (ETag %s)", (unsigned long long)(r->from + r->got + good),
                  r->etag);
    }
    for (size_t i = 0; i < len && r->got + i < sizeof r->body - 1; i++)
        r->body[r->got + i] = bytes[i];
    r->got += len;
}

/* Until `want` bytes came (UINT64_MAX: to the end). */
static bool read_plain(struct asker *a, struct reply *r, const struct body *b, uint64_t want)
{
    for (;;) {
        size_t n = min_u64(a->filled, want);
        if (n > 0) {
            check(r, b, a->in, n);
            drop(a, n);
            want -= want == UINT64_MAX ? 0 : n;
        }
        if (want == 0)
            return true;
        enum came came = receive(a);
        if (came == CAME_BYTES)
            continue;
        if (came == CAME_END && want == UINT64_MAX)
            return true;
        note_end(r, came);
        return false;
    }
}

static bool read_line(struct asker *a, struct reply *r, char out[64])
{
    char *end;

    while (!(end = memmem(a->in, a->filled, "\r\n", 2))) {
        enum came came = a->filled < 60 ? receive(a) : CAME_RESET;
        if (came != CAME_BYTES) {
            note_end(r, came);
            return false;
        }
    }
    snprintf(out, 64, "%.*s", (int)(end - a->in), a->in);
    drop(a, (size_t)(end - a->in) + 2);
    return true;
}

static bool read_chunked(struct asker *a, struct reply *r, const struct body *b)
{
    char line[64];

    for (;;) {
        if (!read_line(a, r, line))
            return false;
        uint64_t n = strtoull(line, NULL, 16);
        if (n > 0 && !read_plain(a, r, b, n))
            return false;
        if (!read_line(a, r, line))
            return false;
        if (line[0])
            blame(r, "a chunk without its end");
        if (n == 0)
            return true;
    }
}

static void judge_object(struct reply *r, struct body *b)
{
    if (!b->key.at || (r->status != 200 && r->status != 206))
        return;
    if (!bytes_version(span_of(r->etag), b->bucket, b->key, &r->version)) {
        blame(r, "ETag %s is not of this object", r->etag);
        return;
    }
    b->seed = bytes_seed(b->bucket, b->key, r->version);
    b->checked = true;
}

static void keep_code(struct reply *r)
{
    const char *at = strstr(r->body, "<Code>");

    if (at)
        snprintf(r->code, sizeof r->code, "%.*s", (int)strcspn(at + 6, "<"), at + 6);
    if (r->status >= 400 && r->got > 0 && r->length != 0 && !strstr(r->body, "</Error>") &&
        !strstr(r->body, "not ready"))
        blame(r, "an error document that does not end");
}

bool asker_may_send(struct asker *a)
{
    static const char words[] = "HTTP/1.1 100 Continue\r\n\r\n";
    size_t len = sizeof words - 1;

    while (a->filled < len)
        if (receive(a) != CAME_BYTES)
            return false;
    if (memcmp(a->in, words, len) != 0)
        return false;
    drop(a, len);
    return true;
}

void asker_read(struct asker *a, const char *bucket, const char *key, bool head_only,
                struct reply *r)
{
    struct body b = {.bucket = span_of(bucket), .key = span_of(key)};

    memset(r, 0, offsetof(struct reply, body));
    r->body[0] = r->head[0] = '\0';
    do {
        if (!read_head(a, r))
            return;
    } while (r->status == 100);
    read_fields(r);
    judge_object(r, &b);
    if (head_only || r->status == 304 || r->status == 204) {
        r->complete = true;
        return;
    }
    bool chunked = span_is_nocase(field(r, "transfer-encoding"), "chunked");
    if (!chunked && r->length == UINT64_MAX && !r->closes)
        blame(r, "a body without an end on a connection that is kept");
    r->complete = chunked ? read_chunked(a, r, &b) : read_plain(a, r, &b, r->length);
    r->body[min_u64(r->got, sizeof r->body - 1)] = '\0';
    if (r->complete)
        keep_code(r);
}
