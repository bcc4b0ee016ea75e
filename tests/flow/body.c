/* The body of a client's request: bytes of an object's version, framed as clients do.
 *
 * Invariants:
 *  1. Bytes are made where they are sent; nothing of the server is linked in.
 *  2. A client that awaits "100 Continue" sends nothing before it, and nothing at all when another
 *     answer comes.
 *
 * Life: of one request.
 * Failure: the play's, but not when the peer is gone: what it says decides. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <isa-l.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "tests/flow/play.h"

enum { PIECE_BYTES = 64 * KIB, LINE_BYTES = 64 };

bool body_option(struct client *c, struct body_made *b, struct span word)
{
    struct span value;

    if (word_value(word, "body", &value))
        return size_read(value, &b->bytes) == OK || client_fail(c, "body=SIZE");
    if (word_value(word, "upload", &value)) {
        b->object = true;
        return size_read(value, &b->version) == OK || client_fail(c, "upload=VERSION");
    }
    if (word_value(word, "offset", &value)) {
        b->is_part = true;
        return size_read(value, &b->offset) == OK || client_fail(c, "offset=SIZE");
    }
    if (word_value(word, "chunked", &value))
        return size_read(value, &b->chunk) == OK || client_fail(c, "chunked=SIZE");
    if (word_value(word, "aws_chunked", &value))
        return size_read(value, &b->aws_chunk) == OK || client_fail(c, "aws_chunked=SIZE");
    if (word_value(word, "send", &value)) {
        b->partly = true;
        return size_read(value, &b->most) == OK || client_fail(c, "send=SIZE");
    }
    if (word_value(word, "told", &value)) {
        b->untold = span_is(value, "none");
        b->is_told = !b->untold;
        return b->untold || size_read(value, &b->told) == OK || client_fail(c, "told=SIZE|none");
    }
    if (word_value(word, "deletes", &value))
        return size_read(value, &b->deletes) == OK || client_fail(c, "deletes=N");
    if (word_value(word, "raw", &b->raw))
        return true;
    if (word_value(word, "wrong", &value))
        return size_read(value, &b->wrong) == OK || client_fail(c, "wrong=OFFSET");
    if (span_is(word, "wrong_sum"))
        b->wrong_sum = true;
    else if (span_is(word, "await100"))
        b->awaits = true;
    else
        return false;
    return true;
}

bool body_is_option(struct span word)
{
    static const char *const names[] = {"body=", "upload=", "chunked=", "aws_chunked=",
                                        "send=", "wrong=", "wrong_sum", "await100",
                                        "told=", "raw=", "deletes=", "offset="};

    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (span_starts(word, span_of(names[i])))
            return true;
    return false;
}

static const char delete_head[] = "<Delete>", delete_end[] = "</Delete>",
                  delete_key[] = "<Object><Key>many%04u</Key></Object>";

static uint64_t deletes_bytes(uint64_t keys)
{
    return strlen(delete_head) + keys * (uint64_t)snprintf(NULL, 0, delete_key, 0U) +
           strlen(delete_end);
}

static uint64_t framed_bytes(const struct body_made *b)
{
    char line[LINE_BYTES];
    uint64_t whole = b->bytes / b->aws_chunk, rest = b->bytes % b->aws_chunk, n = b->bytes;

    n += whole * (uint64_t)(snprintf(line, sizeof line, "%llx\r\n\r\n",
                                     (unsigned long long)b->aws_chunk));
    if (rest > 0)
        n += (uint64_t)snprintf(line, sizeof line, "%llx\r\n\r\n", (unsigned long long)rest);
    return n + strlen("0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
}

void body_fields(struct body_made *b, struct text *t)
{
    if (b->awaits)
        text_adds(t, "Expect: 100-continue\r\n");
    if (b->aws_chunk > 0)
        text_addf(t,
                  "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n"
                  "x-amz-trailer: x-amz-checksum-crc32\r\nx-amz-decoded-content-length: %llu\r\n"
                  "Content-Encoding: aws-chunked\r\n",
                  (unsigned long long)(b->is_told ? b->told : b->bytes));
    if (b->raw.at)
        b->bytes = b->raw.len;
    else if (b->deletes > 0)
        b->bytes = deletes_bytes(b->deletes);
    b->wire = b->aws_chunk > 0 && !b->raw.at ? framed_bytes(b) : b->bytes;
    if (b->is_told && b->aws_chunk == 0)
        b->wire = b->told;
    if (b->chunk > 0)
        text_adds(t, "Transfer-Encoding: chunked\r\n");
    else if (!b->untold)
        text_addf(t, "Content-Length: %llu\r\n", (unsigned long long)b->wire);
}

/* ---- sending ---- */

/* Bytes of the body as it is on the wire without HTTP framing. */
static bool put_wire(struct client *c, struct body_made *b, const char *at, size_t len)
{
    char line[LINE_BYTES];

    if (b->partly)
        len = (size_t)min_u64(len, b->most - min_u64(b->most, b->sent));
    b->sent += len;
    while (len > 0 && !c->ended) {
        size_t n = b->chunk > 0 ? (size_t)min_u64(len, b->chunk) : len;
        int size = snprintf(line, sizeof line, "%zx\r\n", n);
        bool good = b->chunk == 0 || client_send(c, line, (size_t)size, 0, 0);
        good = good && client_send(c, at, n, 0, 0) &&
               (b->chunk == 0 || client_send(c, "\r\n", 2, 0, 0));
        if (!good)
            return false;
        at += n;
        len -= n;
    }
    return true;
}

static void make_piece(const struct body_made *b, uint64_t at, char *out, size_t len)
{
    memset(out, 0, len);
    if (b->object)
        bytes_make(b->seed, b->offset + at, out, len);
    if (b->wrong > at && b->wrong <= at + len)
        out[b->wrong - 1 - at] ^= 1;
}

static bool put_object(struct client *c, struct body_made *b, char *room)
{
    uint32_t crc = 0;
    char line[LINE_BYTES];

    for (uint64_t at = 0, chunk_left = 0; at < b->bytes && !c->ended;) {
        if (b->aws_chunk > 0 && chunk_left == 0) {
            chunk_left = min_u64(b->aws_chunk, b->bytes - at);
            int n = snprintf(line, sizeof line, "%llx\r\n", (unsigned long long)chunk_left);
            if (!put_wire(c, b, line, (size_t)n))
                return false;
        }
        size_t len = (size_t)min_u64(b->aws_chunk > 0 ? chunk_left : b->bytes - at, PIECE_BYTES);
        make_piece(b, at, room, len);
        crc = crc32_gzip_refl(crc, (const uint8_t *)room, len);
        at += len;
        if (!put_wire(c, b, room, len))
            return false;
        if (b->aws_chunk > 0 && (chunk_left -= len) == 0 && !put_wire(c, b, "\r\n", 2))
            return false;
    }
    if (b->aws_chunk == 0)
        return true;
    uint8_t sum[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
                      (uint8_t)(crc ^ b->wrong_sum)};
    unsigned char text[16];
    EVP_EncodeBlock(text, sum, 4);
    int n = snprintf(line, sizeof line, "0\r\nx-amz-checksum-crc32:%s\r\n\r\n", (char *)text);
    return put_wire(c, b, line, (size_t)n);
}

/* A DeleteObjects document. */
static bool put_deletes(struct client *c, struct body_made *b)
{
    char line[LINE_BYTES];
    bool good = put_wire(c, b, delete_head, strlen(delete_head));

    for (unsigned i = 0; good && i < b->deletes; i++)
        good = put_wire(c, b, line, (size_t)snprintf(line, sizeof line, delete_key, i));
    return good && put_wire(c, b, delete_end, strlen(delete_end));
}

/* False: another answer came, or none. */
static bool may_send(struct client *c)
{
    static const char go_on[] = "HTTP/1.1 100";
    char seen[sizeof go_on] = "";
    uint64_t deadline_us = clock_us() + (uint64_t)ANSWER_MS * 1000;

    if (client_wait(c, deadline_us) != 1)
        return false;
    return wire_recv(c, seen, sizeof go_on - 1, MSG_PEEK) == (ssize_t)sizeof go_on - 1 &&
           memcmp(seen, go_on, sizeof go_on - 1) == 0;
}

bool body_send(struct client *c, struct body_made *b, const struct ask_made *a)
{
    char *room = mem_take(PIECE_BYTES);

    must(room);
    b->seed = bytes_seed(span_make(a->bucket, a->bucket_len), span_make(a->key, a->key_len),
                         b->version);
    bool good = !b->awaits || may_send(c);
    if (!good) {                     /* what came instead is the answer */
        mem_give(room);
        return true;
    }
    if (b->raw.at)                   /* as it stands, whatever framing the head speaks of */
        good = client_send(c, b->raw.at, b->raw.len, 0, 0);
    else
        good = b->deletes > 0 ? put_deletes(c, b) : put_object(c, b, room);
    if (good && b->chunk > 0 && !b->raw.at && !b->partly && !c->ended)
        good = client_send(c, "0\r\n\r\n", 5, 0, 0);
    mem_give(room);
    return good;
}
