/* What our parsers make of byte streams, for tests/differential: reads streams on standard input
 * and tells for each message where it ends and what follows.
 *
 * Input: 'Q' (requests), 'R' (answers to GET) or 'H' (answers to HEAD), the length as four bytes,
 * little-endian, the bytes. Output: one line per stream, one word per message:
 *
 *   VERDICT                       bad, more, long, large, method, version: nothing follows
 *   ok:HEAD:FRAMING:LENGTH:KEEP:END:WHAT
 *       HEAD     bytes of the head FRAMING  n (no body), l (counted), c (chunked), u (until the
 *       close) LENGTH   of the body, unframed KEEP     k (the next message follows), x (the
 *       connection ends here) END      offset of the first byte behind the message in the stream;
 *       more or bad: its body is
 *                not whole, or malformed
 *       WHAT     CRC-32 of what the head says (see add_said())
 *
 * A stream that means something else when it arrives in pieces is told as "cut". */
/* SPDX-License-Identifier: Apache-2.0 */
#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>

#include "http.h"
#include "mem.h"

enum { STREAM_BYTES_MAX = 4 * MIB };

static const char *const verdict_name[] = {
    [HTTP_OK] = "ok", [HTTP_MORE] = "more", [HTTP_BAD] = "bad", [HTTP_TOO_LONG] = "long",
    [HTTP_TOO_LARGE] = "large", [HTTP_NO_METHOD] = "method", [HTTP_NO_VERSION] = "version",
};

static uint32_t said;

static void add_said(struct span s)
{
    said = crc32_gzip_refl(said, (const unsigned char *)s.at, s.len);
    said = crc32_gzip_refl(said, (const unsigned char *)"\n", 1);
}

/* Method or status, target, each field's name and value, and for a request what it expects. */
static uint32_t say(const struct http_head *h, bool request)
{
    char status[16];
    said = 0;
    if (request) {
        add_said(h->method_text);
        add_said(h->target);
        add_said(h->host);
        add_said(span_of(h->expect_continue ? "expects" : ""));
    } else {
        snprintf(status, sizeof(status), "%u", h->status);
        add_said(span_of(status));
    }
    for (unsigned i = 0; i < h->count; i++) {
        add_said(h->field[i].name);
        add_said(h->field[i].value);
    }
    return said;
}

static enum http_verdict parse(char kind, struct span s, struct http_head *head, size_t *used)
{
    return kind == 'Q' ? http_parse_request(s.at, s.len, head, used)
                       : http_parse_response(s.at, s.len, kind == 'H', head, used);
}

/* A part of a head is incomplete, or refused as the whole is. */
static bool is_cut_right(char kind, struct span s, enum http_verdict v, size_t used)
{
    static struct http_head part;
    size_t again = 0, steps = s.len < 4000 ? 7 : 3;
    for (size_t i = 1; i <= steps; i++) {
        size_t cut = s.len * i / (steps + 1);
        enum http_verdict p = parse(kind, span_make(s.at, cut), &part, &again);
        if (v == HTTP_OK && cut >= used ? p != HTTP_OK || again != used
                                        : p != HTTP_MORE && (v == HTTP_OK || p != v))
            return false;
    }
    return true;
}

struct body {
    enum http_verdict verdict;       /* OK: whole */
    size_t end;                      /* of it in the stream */
    uint64_t length;
};

static struct body unchunk(struct span s, size_t at, size_t piece)
{
    struct body b = {HTTP_MORE, at, 0};
    struct http_chunked c = {0};
    while (b.verdict == HTTP_MORE && b.end < s.len) {
        size_t used, n = (size_t)min_u64(piece, s.len - b.end);
        struct span data;
        b.verdict = http_chunked_step(&c, s.at + b.end, n, &used, &data);
        b.end += used;
        b.length += data.len;
    }
    return b;
}

static struct body read_body(const struct http_head *h, struct span s, size_t at)
{
    struct body b = {HTTP_OK, at, 0};
    switch (h->framing) {
    case HTTP_BODY_NONE:
        break;
    case HTTP_BODY_LENGTH:
        b.length = min_u64(h->length, s.len - at);
        b.end = at + (size_t)b.length;
        b.verdict = b.length == h->length ? HTTP_OK : HTTP_MORE;
        break;
    case HTTP_BODY_CHUNKED:
        return unchunk(s, at, SIZE_MAX);
    case HTTP_BODY_UNTIL_CLOSE:
        b.length = s.len - at;
        b.end = s.len;
        break;
    }
    return b;
}

static bool is_unchunked_right(const struct http_head *h, struct span s, size_t at, struct body b)
{
    if (h->framing != HTTP_BODY_CHUNKED)
        return true;
    struct body cut = unchunk(s, at, 1 + s.len % 13);
    return cut.verdict == b.verdict && cut.end == b.end && cut.length == b.length;
}

static bool tell_message(char kind, struct span s, size_t *at)
{
    static struct http_head head;
    size_t used = 0;
    struct span rest = span_from(s, *at);
    enum http_verdict v = parse(kind, rest, &head, &used);
    if (!is_cut_right(kind, rest, v, used)) {
        fputs("cut ", stdout);
        return false;
    }
    if (v != HTTP_OK) {
        printf("%s ", verdict_name[v]);
        return false;
    }
    struct body b = read_body(&head, s, *at + used);
    if (!is_unchunked_right(&head, s, *at + used, b)) {
        fputs("cut ", stdout);
        return false;
    }
    printf("ok:%zu:%c:%llu:%c:", used, "nlcu"[head.framing], (unsigned long long)b.length,
           head.keep_alive ? 'k' : 'x');
    if (b.verdict == HTTP_OK)
        printf("%zu", b.end);
    else
        fputs(verdict_name[b.verdict], stdout);
    printf(":%08x ", say(&head, kind == 'Q'));
    *at = b.end;
    return b.verdict == HTTP_OK && head.keep_alive;
}

int main(void)
{
    int kind;
    while ((kind = getchar()) != EOF) {
        uint32_t len;
        if (fread(&len, sizeof(len), 1, stdin) != 1 || len > STREAM_BYTES_MAX)
            return 1;
        char *bytes = malloc(len + 1);  /* exact: AddressSanitizer sees a read past the end */
        if (!bytes || fread(bytes + 1, 1, len, stdin) != len)
            return 1;
        struct span s = span_make(bytes + 1, len);
        for (size_t at = 0; tell_message((char)kind, s, &at) && at < len;)
            continue;
        putchar('\n');
        free(bytes);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
