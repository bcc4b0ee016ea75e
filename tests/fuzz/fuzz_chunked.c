/* Chunked bodies: any bytes, cut anywhere, mean what a second, slow reading of RFC 9112 7.1 says
 * that they mean; a body that is cut into chunks comes back as it was. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http.c"

#include "tests/fuzz/fuzz.h"

struct outcome {
    enum http_verdict verdict;
    size_t used, len;
    uint64_t hash;
};

static struct outcome read_in_pieces(const char *bytes, size_t len, size_t piece)
{
    struct outcome o = {.verdict = HTTP_MORE};
    struct http_chunked c = {0};
    while (o.used < len && o.verdict == HTTP_MORE) {
        size_t n = (size_t)min_u64(piece - o.used % piece, len - o.used), used;
        struct span data;
        o.verdict = http_chunked_step(&c, bytes + o.used, n, &used, &data);
        demand(used > 0 && used <= n && data.len <= used);
        demand(data.len == 0 || data.at + data.len == bytes + o.used + used);
        for (size_t i = 0; i < data.len; i++)
            o.hash = (o.hash ^ (uint8_t)data.at[i]) * 1099511628211u;
        o.len += data.len;
        o.used += used;
    }
    return o;
}

/* ---- the second reading: over all bytes at once, part by part ---- */
struct model {
    struct span rest;
    struct outcome o;
};

/* The line at the start; MORE when its end is missing and what is there could still be one. */
static enum http_verdict take_line(struct model *m, size_t most, struct span *line)
{
    size_t n = 0;
    while (n < m->rest.len && is(m->rest.at[n], VALUE))
        n++;
    if (n > most)
        return HTTP_BAD;
    *line = span_make(m->rest.at, n);
    struct span end = span_from(m->rest, n);
    if (end.len == 0)
        return HTTP_MORE;
    if (end.at[0] != '\r' || (end.len > 1 && end.at[1] != '\n'))
        return HTTP_BAD;
    if (end.len == 1)
        return HTTP_MORE;
    m->rest = span_from(end, 2);
    return HTTP_OK;
}

/* Hexadecimal digits, below 2^63, and perhaps an extension. Judged also when the line is not
 * whole. */
static enum http_verdict read_size(struct span line, bool whole, uint64_t *size)
{
    size_t n = 0;
    *size = 0;
    while (n < line.len && hex_digit(line.at[n]) >= 0) {
        if (n == CHUNK_DIGITS_MAX || *size >> 59)
            return HTTP_BAD;
        *size = *size * 16 + (unsigned)hex_digit(line.at[n++]);
    }
    if (n < line.len && (n == 0 || line.at[n] != ';'))
        return HTTP_BAD;
    if (whole && n == 0)
        return HTTP_BAD;
    return line.len - n < CHUNK_LINE_BYTES_MAX - n + 1 ? HTTP_OK : HTTP_BAD;
}

static bool is_trailer(struct span line, bool whole)
{
    size_t n = 0;
    while (n < line.len && is(line.at[n], TOKEN))
        n++;
    if (n < line.len)
        return n > 0 && line.at[n] == ':';
    return !whole && line.len > 0;
}

static enum http_verdict read_trailers(struct model *m)
{
    const char *began = m->rest.at;
    for (;;) {
        struct span line;
        enum http_verdict v = take_line(m, SIZE_MAX, &line);
        size_t before = (size_t)(m->rest.at - began);
        size_t counted = v == HTTP_OK ? before : before + m->rest.len;
        if (v == HTTP_BAD || counted > TRAILER_BYTES_MAX)
            return HTTP_BAD;
        if (line.len == 0)           /* the end, or the beginning of nothing yet */
            return v;
        if (!is_trailer(line, v == HTTP_OK || line.at + line.len < m->rest.at + m->rest.len))
            return HTTP_BAD;
        if (v == HTTP_MORE)
            return v;
    }
}

static void take_data(struct model *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        m->o.hash = (m->o.hash ^ (uint8_t)m->rest.at[i]) * 1099511628211u;
    m->o.len += n;
    m->rest = span_from(m->rest, n);
}

static enum http_verdict read_chunk(struct model *m, bool *last)
{
    static const char crlf[] = "\r\n";
    uint64_t size;
    struct span line;
    enum http_verdict v = take_line(m, SIZE_MAX, &line);
    bool ended = v == HTTP_OK || line.at + line.len < m->rest.at + m->rest.len;
    if (v == HTTP_BAD || read_size(line, ended, &size) == HTTP_BAD)
        return HTTP_BAD;
    if (v == HTTP_MORE)
        return v;
    *last = size == 0;
    if (*last)
        return HTTP_OK;
    if (m->rest.len < size) {
        take_data(m, m->rest.len);
        return HTTP_MORE;
    }
    take_data(m, (size_t)size);
    for (size_t i = 0; i < 2; i++, m->rest = span_from(m->rest, 1)) {
        if (m->rest.len == 0)
            return HTTP_MORE;
        if (m->rest.at[0] != crlf[i])
            return HTTP_BAD;
    }
    return HTTP_OK;
}

static struct outcome read_as_model(struct span bytes)
{
    struct model m = {.rest = bytes};
    bool last = false;
    m.o.verdict = HTTP_OK;
    while (m.o.verdict == HTTP_OK && !last)
        m.o.verdict = read_chunk(&m, &last);
    if (m.o.verdict == HTTP_OK)
        m.o.verdict = read_trailers(&m);
    m.o.used = (size_t)(m.rest.at - bytes.at);
    return m.o;
}

static void check_any(struct span bytes)
{
    static const size_t pieces[] = {1, 2, 3, 7, 64, SIZE_MAX};
    struct outcome model = read_as_model(bytes);
    struct outcome whole = read_in_pieces(bytes.at, bytes.len, SIZE_MAX);
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) {
        struct outcome o = read_in_pieces(bytes.at, bytes.len, pieces[i]);
        demand(o.verdict == whole.verdict && o.used == whole.used);
        demand(o.verdict == model.verdict);
        demand(o.len == model.len && o.hash == model.hash);
        demand(o.verdict != HTTP_OK || o.used == model.used);
    }
}

/* Cuts a body into chunks of chosen sizes, spelled in chosen ways. */
static void check_round_trip(struct feed f)
{
    static char memory[64 * KIB];
    struct span body = span_make(f.at + f.left / 2, f.left - f.left / 2);
    struct text t;
    uint64_t hash = 0;
    f.left /= 2;
    if (body.len > 4 * KIB)
        return;
    for (size_t i = 0; i < body.len; i++)
        hash = (hash ^ (uint8_t)body.at[i]) * 1099511628211u;
    text_init(&t, memory, sizeof(memory));
    for (size_t at = 0, n; at < body.len; at += n) {
        n = 1 + feed_below(&f, 600);
        n = (size_t)min_u64(n, body.len - at);
        char line[40];
        switch (feed_below(&f, 4)) {
        case 0: snprintf(line, sizeof(line), "%zx\r\n", n); break;
        case 1: snprintf(line, sizeof(line), "%zX\r\n", n); break;
        case 2: snprintf(line, sizeof(line), "00%zx\r\n", n); break;
        default: snprintf(line, sizeof(line), "%zx;a=\"b;c\"\r\n", n); break;
        }
        text_adds(&t, line);
        text_add(&t, span_make(body.at + at, n));
        text_adds(&t, "\r\n");
    }
    text_adds(&t, feed_below(&f, 2) ? "0\r\n\r\n" : "000;x\r\nX-Sum: a b\r\n\r\n");
    demand(!t.over);
    size_t len = t.len;
    text_adds(&t, "GET /");
    for (size_t piece = 1; piece < 100; piece += 31) {
        struct outcome o = read_in_pieces(t.at, t.len, piece);
        demand(o.verdict == HTTP_OK && o.used == len && o.len == body.len && o.hash == hash);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *bytes = exact_copy(data, len);
    check_any(span_make(bytes, len));
    check_round_trip((struct feed){data, len});
    exact_give(bytes);
    return 0;
}
