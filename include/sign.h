/* Digests, hex, base64 and SigV4: signing for upstream, verification for clients.
 *
 * Invariants:
 *  1. No implicit OpenSSL fetch and no allocation after sign_setup_thread(): a fetch takes locks
 *     and costs as much as the digest of a short text.
 *  2. A verdict "accepted" comes only from a real constant-time comparison.
 *  3. Secrets live in struct secret, which nothing can format. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_SIGN_H
#define HEADPOND_SIGN_H

#include "base.h"
#include "http.h"
#include "mem.h"

enum { SHA256_BYTES = 32, MD5_BYTES = 16, SECRET_BYTES_MAX = 256 };
extern const char sign_empty_sha256[];  /* e3b0c442... */

/* Initialises OpenSSL. Call on the main thread before any other thread exists and before anything
 * else of OpenSSL is used, TLS included: what it makes at its first use and then lacks, for want of
 * memory, it neither makes later nor does without. ERR_MEMORY is final: the process ends then.
 * ERR_SYSTEM: its digests are not to be had. */
must_check enum err sign_setup(void);
/* Prepares the calling thread; every thread that signs or verifies calls it once. ERR_SYSTEM. */
must_check enum err sign_setup_thread(void);
void sign_end_thread(void);

void sha256(struct span data, uint8_t out[SHA256_BYTES]);
void md5(struct span data, uint8_t out[MD5_BYTES]);
void hmac_sha256(const uint8_t *key, size_t key_len, struct span data, uint8_t out[SHA256_BYTES]);
/* lower case, 2*len, not terminated */
void hex_write(const uint8_t *in, size_t len, char *out);
must_check enum err hex_read(struct span in, uint8_t *out, size_t len); /* exactly 2*len digits */
/* length, 0 if it does not fit */
size_t base64_write(const uint8_t *in, size_t len, char *out, size_t cap);
must_check enum err base64_read(struct span in, uint8_t *out, size_t cap, size_t *len);
bool equal_in_constant_time(const void *a, const void *b, size_t len);
/* CRC32C of bytes continued from crc (0 at the start), by isa-l; the store's checksum. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t len);
/* A CRC32C of some bytes that was continued from `from`, as if it had been from `to`: without the
 * bytes, whose number gives the distance. */
uint32_t crc32c_distance(uint64_t bytes);
uint32_t crc32c_begun_at(uint32_t crc, uint32_t from, uint32_t to, uint32_t distance);

struct secret {
    uint16_t len;
    char bytes[SECRET_BYTES_MAX];
};

/* Day key: HMAC chain over date, region, "s3"; cached by the caller per (access key, day,
 * region). Kept as what SHA-256 is after the padded key, from where each HMAC goes on. */
struct sign_key {
    uint32_t inner[SHA256_BYTES / 4], outer[SHA256_BYTES / 4];
};
void sign_key_make(const struct secret *s, struct span yyyymmdd, struct span region,
                   struct sign_key *out);

/* One entry suffices per access key; owned by the caller, one thread. Zeroed = empty. */
struct sign_key_cache {
    char access_key[129], date[9], region[64];
    struct sign_key key;
    bool filled;
};
bool sign_key_cached(const struct sign_key_cache *cache, struct span access_key,
                     struct span yyyymmdd, struct span region); /* false for NULL */
void sign_key_keep(struct sign_key_cache *cache, struct span access_key, struct span yyyymmdd,
                   /* NULL and names too long: nothing */
                   struct span region, const struct sign_key *key);
/* YYYYMMDDTHHMMSSZ, terminated. */
void sign_date_write(uint64_t unix_s, char out[17]);

/* ---- what both directions share ---- */
struct sign_request {
    struct span method;              /* "GET" */
    /* raw path as on the wire; canonicalised by decode + encode, as S3 does */
    struct span path;
    struct span query;               /* raw, without '?', at most 128 pairs; '+' is a blank;
                                      * X-Amz-Signature is left out */
    const struct http_field *field;
    unsigned count;
    struct span signed_headers;      /* "a;b;c", lower case, sorted */
    struct span payload_hash;        /* literal text of the last canonical line */
    struct span service;             /* of the scope, for sign_v4; "" = s3 */
};
/* Appends the canonical request. ERR_SYNTAX for an undecodable path or query, ERR_TOO_LARGE when it
 * does not fit or repeats itself, ERR_DENIED if a signed header is absent. */
must_check enum err sign_canonical(const struct sign_request *r, struct text *out);
/* hex(HMAC(key, parts one after the other)): a string to sign that was not put together first. */
void sign_parts(const struct sign_key *key, const struct span *part, size_t count,
                char out_hex[64]);
/* hex(HMAC(key, string to sign)); scope is "date/region/s3/aws4_request". */
void sign_signature(const struct sign_key *key, struct span amz_date, struct span scope,
                    struct span canonical, char out_hex[64]);

/* ---- the client's side of a signature, taken apart (pure) ---- */
enum sign_form {
    SIGN_ANONYMOUS,
    SIGN_V4_HEADER,
    SIGN_V4_QUERY,
    SIGN_V2_HEADER,
    SIGN_V2_QUERY,
    SIGN_V4A,
    SIGN_OTHER,
    SIGN_TWICE,
};
struct sign_claim {
    enum sign_form form;
    struct span access_key;          /* decoded; may contain '/' */
    struct span date, region, scope; /* yyyymmdd, region, whole scope text behind the access key */
    struct span amz_date;            /* YYYYMMDDTHHMMSSZ */
    struct span signed_headers;      /* decoded */
    struct span signature;           /* as sent; only 64 lower-case hex digits can ever match */
    struct span payload_hash;
    struct span token;               /* X-Amz-Security-Token, decoded */
    uint64_t expires_s;              /* query form */
    uint64_t time_s;                 /* amz_date as Unix time */
    uint64_t until_s;                /* Version 2 in a query: Expires, as Unix time */
    struct span bucket;              /* Version 2: the caller's; of Host, "" = it names none */
    struct span not_signed;          /* on failure: the name for HeadersNotSigned, or empty */
    const char *argument;            /* on failure: ArgumentName of InvalidArgument, or NULL */
};
/* Takes a request's authentication apart. Decoded pieces go to the arena, others point into head.
 * Left to the caller: clock skew, not yet valid and expired, whether the key is known, streaming
 * payloads on the wrong operation. On failure *code is the S3 error to answer (its Code), *why a
 * sentence for its Message, and of *out only form, not_signed and argument hold (the one exception
 * to "set only on success": an anonymous range may serve what it cannot verify). ERR_SYNTAX:
 * malformed. ERR_DENIED: well-formed, but not acceptable as it is (no date, a field that is due and
 * not signed, X-Amz-Expires=0). ERR_UNSUPPORTED: V2, V4A and other mechanisms. ERR_MEMORY. An
 * anonymous request is OK with form SIGN_ANONYMOUS. */
must_check enum err sign_claim_read(const struct http_head *head, struct arena *arena,
                                    struct sign_claim *out, const char **code, const char **why);
/* Whether a request of that form may have the field only if it is signed: x-amz-*, and what other
 * stores read in their place. */
bool sign_is_due(enum sign_form form, struct span name);
/* A field that names what to copy, x-amz-copy-source or another store's: some stores copy by that,
 * too, though they were asked as S3 is. */
bool sign_is_source(struct span name);
/* The complete check of one claim against one secret: canonical request, signature, comparison. OK
 * or ERR_DENIED. key_cache may be NULL and is filled only by accepted claims; canonical (may be
 * NULL) receives the canonical request on ERR_DENIED, for SignatureDoesNotMatch, cut to its room.
 * Needs about 90 KiB of stack. */
must_check enum err sign_claim_verify(const struct sign_claim *c, const struct http_head *head,
                                      const struct secret *s, struct sign_key_cache *key_cache,
                                      struct text *canonical);

/* X-Amz-Date, else Date, each at most once, in ISO 8601 or RFC 9110 form: its text and Unix time.
 * ERR_SYNTAX. */
must_check enum err sign_date_of_head(const struct http_head *head, struct span *text,
                                      uint64_t *unix_s);

/* ---- Signature Version 2 (sign_v2.c) ---- */
/* Takes a claim apart whose form sign_claim_read() found to be SIGN_V2_HEADER or SIGN_V2_QUERY (and
 * refused). As there; ERR_UNSUPPORTED also for a request that asks for something that version 2
 * would not sign. Of *claim, amz_date is the Date or Expires as sent. */
must_check enum err sign_v2_read(const struct http_head *head, struct arena *arena,
                                 struct sign_claim *claim, const char **code, const char **why);
/* Of a query: ERR_TIMEOUT: it has expired; ERR_TOO_LARGE: it would be good for more than a week. */
must_check enum err sign_v2_times(const struct sign_claim *c, uint64_t now_s);
/* Part of sign_claim_verify(): on ERR_DENIED *string_to_sign (may be NULL) gets that. */
must_check enum err sign_v2_verify(const struct sign_claim *c, const struct http_head *head,
                                   const struct secret *s, struct text *string_to_sign);

/* ---- signing a request for upstream ---- */
struct sign_credentials {            /* borrowed */
    struct span access_key, token;   /* token may be empty */
    const struct secret *secret;
};
/* Computes x-amz-date and Authorization for a request whose other fields (host,
 * x-amz-content-sha256, x-amz-security-token, range, ...) are given; all fields given are signed
 * but those of the hop (connection, keep-alive, user-agent, expect, te, transfer-encoding, upgrade,
 * accept-encoding, via, x-amzn-trace-id). r->signed_headers is not read. A token must be among the
 * fields, too. ERR_TOO_LARGE, ERR_SYNTAX for an undecodable path or query. */
must_check enum err sign_v4(const struct sign_request *r, const struct sign_credentials *cred,
                            struct span region, uint64_t now_s, struct sign_key_cache *key_cache,
                            char amz_date[17], struct text *authorization);

#endif
