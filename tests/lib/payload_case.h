/* Bodies of uploads for tests: written and signed here, not by what is tested. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_PAYLOAD_CASE_H
#define HEADPOND_TESTS_PAYLOAD_CASE_H

#include <stdio.h>

#include "mem.h"
#include "payload.h"

#define CASE_SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

/* Who signs: the key that HMACs, and the signature that the next one chains from. */
struct case_signer {
    uint8_t key[SHA256_BYTES];
    char amz_date[17], scope[64], previous[65];
};

static inline void case_signer_make(struct case_signer *s, const char *secret, const char *amz_date,
                                    const char *signature)
{
    char first[128];
    snprintf(first, sizeof(first), "AWS4%s", secret);
    snprintf(s->amz_date, sizeof(s->amz_date), "%s", amz_date);
    snprintf(s->scope, sizeof(s->scope), "%.8s/us-east-1/s3/aws4_request", amz_date);
    snprintf(s->previous, sizeof(s->previous), "%s", signature);
    hmac_sha256((const uint8_t *)first, strlen(first), span_make(amz_date, 8), s->key);
    hmac_sha256(s->key, SHA256_BYTES, span_of("us-east-1"), s->key);
    hmac_sha256(s->key, SHA256_BYTES, span_of("s3"), s->key);
    hmac_sha256(s->key, SHA256_BYTES, span_of("aws4_request"), s->key);
}

/* What the server knows of the same request. */
static inline void case_seed_make(struct payload_seed *seed, const struct case_signer *s,
                                  const char *secret)
{
    struct secret own = {.len = (uint16_t)strlen(secret)};
    memcpy(own.bytes, secret, own.len);
    memset(seed, 0, sizeof(*seed));
    sign_key_make(&own, span_make(s->amz_date, 8), span_of("us-east-1"), &seed->key);
    memcpy(seed->signature, s->previous, sizeof(seed->signature));
    memcpy(seed->amz_date, s->amz_date, sizeof(seed->amz_date));
    memcpy(seed->scope, s->scope, sizeof(s->scope));
}

static inline void case_hex_sha256(struct span data, char out[65])
{
    uint8_t hash[SHA256_BYTES];
    sha256(data, hash);
    hex_write(hash, sizeof(hash), out);
    out[64] = '\0';
}

static inline void case_sign(struct case_signer *s, const char *string_to_sign)
{
    uint8_t mac[SHA256_BYTES];
    hmac_sha256(s->key, SHA256_BYTES, span_of(string_to_sign), mac);
    hex_write(mac, sizeof(mac), s->previous);
    s->previous[64] = '\0';
}

/* Appends one chunk; without data the last one. */
static inline void case_chunk(struct text *out, struct case_signer *s, struct span data)
{
    char hash[65], sign[600];
    text_addf(out, "%zx", data.len);
    if (s) {
        case_hex_sha256(data, hash);
        snprintf(sign, sizeof(sign), "AWS4-HMAC-SHA256-PAYLOAD\n%s\n%s\n%s\n%s\n%s", s->amz_date,
                 s->scope, s->previous, sign_empty_sha256, hash);
        case_sign(s, sign);
        text_addf(out, ";chunk-signature=%s", s->previous);
    }
    text_adds(out, "\r\n");
    if (data.len > 0) {
        text_add(out, data);
        text_adds(out, "\r\n");
    }
}

/* Appends the trailer of that checksum (or none) and the end; line: how its lines end. */
static inline void case_trailer(struct text *out, struct case_signer *s, enum payload_kind kind,
                                struct span object, const char *line)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    char value[PAYLOAD_VALUE_MAX + 1] = "", hashed[160] = "", hash[65], sign[600];
    struct payload_sum sum;
    payload_sum_begin(&sum, kind);
    payload_sum_add(&sum, object.at, object.len);
    size_t len = payload_sum_end(&sum, digest);
    value[base64_write(digest, len, value, PAYLOAD_VALUE_MAX)] = '\0';
    if (kind != PAYLOAD_NO_SUM) {
        snprintf(hashed, sizeof(hashed), "%s:%s\n", payload_kind_field(kind), value);
        text_addf(out, "%s:%s%s", payload_kind_field(kind), value, line);
    }
    if (s) {
        case_hex_sha256(span_of(hashed), hash);
        snprintf(sign, sizeof(sign), "AWS4-HMAC-SHA256-TRAILER\n%s\n%s\n%s\n%s", s->amz_date,
                 s->scope, s->previous, hash);
        case_sign(s, sign);
        text_addf(out, "x-amz-trailer-signature:%s\r\n", s->previous);
    }
    text_adds(out, "\r\n");
}

#endif
