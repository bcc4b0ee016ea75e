/* Uploads in signed chunks and what a forger makes of their bodies: the model of forge.h for what
 * follows a head. Chunks are signed here once more; only digests are shared with the server. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_FORGE_CHUNKS_H
#define HEADPOND_TESTS_FORGE_CHUNKS_H

#include "tests/lib/forge.h"

enum { FORGE_CHUNKS = 4, FORGE_BODY_BYTES = 40 * KIB, FORGE_DATA_BYTES = 8202 + 8202 + 8203 + 171 };
static const unsigned forge_chunk_bytes[FORGE_CHUNKS] = {8202, 8202, 8203, 171};
static const char forge_sum[] = "AAAAAA==";

struct forged_body {
    char at[FORGE_BODY_BYTES];
    size_t len;
    size_t chunk[FORGE_CHUNKS + 2];  /* where each begins; the last two: the empty one, its end */
};

static inline void forge_data(char data[FORGE_DATA_BYTES])
{
    for (unsigned i = 0; i < FORGE_DATA_BYTES; i++)
        data[i] = (char)(i * 31 + i / 251);
}

/* hex(HMAC(day key, text)). */
static inline void forge_sign_text(const char *text, char hex[65])
{
    uint8_t key[SHA256_BYTES], mac[SHA256_BYTES];
    char first[64] = "AWS4" FORGE_SECRET;
    hmac_sha256((uint8_t *)first, strlen(first), span_make(forge_scope, 8), key);
    hmac_sha256(key, sizeof(key), span_of("eu-central-1"), key);
    hmac_sha256(key, sizeof(key), span_of("s3"), key);
    hmac_sha256(key, sizeof(key), span_of("aws4_request"), key);
    hmac_sha256(key, sizeof(key), span_of(text), mac);
    hex_write(mac, sizeof(mac), hex);
    hex[64] = 0;
}

static inline void forge_hash(struct span data, char hex[65])
{
    uint8_t hash[SHA256_BYTES];
    sha256(data, hash);
    hex_write(hash, sizeof(hash), hex);
    hex[64] = 0;
}

/* One chunk behind those before it; previous is the signature before, then its own. */
static inline void forge_chunk(struct forged_body *b, struct span data, char previous[65])
{
    char hash[65], text[512];
    forge_hash(data, hash);
    snprintf(text, sizeof(text), "AWS4-HMAC-SHA256-PAYLOAD\n%s\n%s\n%s\n%s\n%s", forge_date,
             forge_scope, previous, sign_empty_sha256, hash);
    forge_sign_text(text, previous);
    b->len += (size_t)snprintf(b->at + b->len, sizeof(b->at) - b->len,
                               "%zx;chunk-signature=%s\r\n", data.len, previous);
    if (data.len > 0)
        memcpy(b->at + b->len, data.at, data.len);
    b->len += data.len;
}

/* The body of a request whose head has that signature. */
static inline void forge_body(struct forged_body *b, const char *signature, bool trailer)
{
    static char data[FORGE_DATA_BYTES];
    char previous[65], line[100], hash[65], text[512];
    size_t from = 0;
    forge_data(data);
    snprintf(previous, sizeof(previous), "%s", signature);
    b->len = 0;
    for (unsigned i = 0; i <= FORGE_CHUNKS; i++) {
        unsigned n = i < FORGE_CHUNKS ? forge_chunk_bytes[i] : 0;
        b->chunk[i] = b->len;
        forge_chunk(b, span_make(data + from, n), previous);
        from += n;
        if (n > 0)
            b->len += (size_t)snprintf(b->at + b->len, 3, "\r\n");
    }
    b->chunk[FORGE_CHUNKS + 1] = b->len;
    if (trailer) {
        snprintf(line, sizeof(line), "x-amz-checksum-crc32c:%s\n", forge_sum);
        forge_hash(span_of(line), hash);
        snprintf(text, sizeof(text), "AWS4-HMAC-SHA256-TRAILER\n%s\n%s\n%s\n%s", forge_date,
                 forge_scope, previous, hash);
        forge_sign_text(text, previous);
        line[strlen(line) - 1] = 0;
        b->len += (size_t)snprintf(b->at + b->len, sizeof(b->at) - b->len,
                                   "%s\r\nx-amz-trailer-signature:%s\r\n", line, previous);
    }
    b->len += (size_t)snprintf(b->at + b->len, 3, "\r\n");
}

static inline void forge_cut(struct forged_body *b, size_t at, size_t drop, const char *add,
                             size_t n)
{
    if (at + drop > b->len || b->len - drop + n > sizeof(b->at))
        return;
    memmove(b->at + at + n, b->at + at + drop, b->len - at - drop);
    memcpy(b->at + at, add, n);
    b->len = b->len - drop + n;
}

/* Where the framing is: a header's line, the trailer; three times of four, as data is most. */
static inline size_t forge_place(const struct forged_body *b, forge_roll *roll, void *from)
{
    unsigned i = roll(from, FORGE_CHUNKS + 2);
    size_t room = i > FORGE_CHUNKS ? b->len - b->chunk[i] : 90;
    if (roll(from, 4) == 0)
        return roll(from, (unsigned)b->len);
    return min_u64(b->chunk[i] + roll(from, (unsigned)room + 1), b->len - 1);
}

static inline void forge_body_byte(struct forged_body *b, forge_roll *roll, void *from)
{
    static const char likely[] = "0123456789abcdefABCDEF;=: \t\r\n-";
    size_t at = forge_place(b, roll, from);
    char add = likely[roll(from, sizeof(likely) - 1)];
    switch (roll(from, 4)) {
    case 0: b->at[at] = add; return;
    case 1: b->at[at] = (char)(b->at[at] ^ (1u << roll(from, 8))); return;
    case 2: forge_cut(b, at, 1, "", 0); return;
    default: forge_cut(b, at, 0, &add, 1);
    }
}

/* Whole chunks: dropped, sent twice, exchanged; a signature of another one; an early end. */
static inline void forge_body_chunk(struct forged_body *b, forge_roll *roll, void *from)
{
    static char copy[FORGE_BODY_BYTES];
    unsigned i = roll(from, FORGE_CHUNKS + 1), k = roll(from, FORGE_CHUNKS + 1);
    size_t at = b->chunk[i], len = b->chunk[i + 1] - at, other = b->chunk[k + 1] - b->chunk[k];
    const char *mine = memchr(b->at + at, '=', len), *its = memchr(b->at + b->chunk[k], '=', other);
    switch (roll(from, 5)) {
    case 0: forge_cut(b, at, len, "", 0); return;
    case 1:
        memcpy(copy, b->at + at, len);
        forge_cut(b, at, 0, copy, len);
        return;
    case 2:
        memcpy(copy, b->at + b->chunk[k], other);
        forge_cut(b, at, len, copy, other);
        return;
    case 3:
        memcpy(copy, its + 1, 64);
        memcpy(b->at + (mine - b->at) + 1, copy, 64);
        return;
    default: b->len = roll(from, (unsigned)b->len);
    }
}

static inline void forge_body_change(struct forged_body *b, forge_roll *roll, void *from)
{
    if (roll(from, 3) == 0)
        forge_body_chunk(b, roll, from);
    else
        forge_body_byte(b, roll, from);
}

#endif
