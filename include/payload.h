/* The bodies of uploads: what the head says of them, their framing and checks, and how the same
 * object bytes go upstream.
 *
 * Invariants:
 *  1. Bytes here have no HTTP framing any more; chunks of aws-chunked begin and end anywhere in
 *     them, and no verdict depends on how they were cut.
 *  2. Object bytes come out before their chunk's signature, or a checksum, could be checked. Only
 *     payload_end() == OK says that all of them are what the client signed: until then at most
 *     payload_sendable() of them may have left, which never includes the last one.
 *  3. Nothing here allocates or waits; all state lies in the structs, of fixed size. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_PAYLOAD_H
#define HEADPOND_PAYLOAD_H

#include "base.h"
#include "http.h"
#include "sign.h"

/* ---- payload_sum.c: the checksums of S3 ---- */
enum payload_kind {
    PAYLOAD_NO_SUM,
    PAYLOAD_CRC32,
    PAYLOAD_CRC32C,
    PAYLOAD_CRC64NVME,
    PAYLOAD_SHA1,
    PAYLOAD_SHA256,
    PAYLOAD_SHA512,
    PAYLOAD_MD5,
    PAYLOAD_XXHASH64,
    PAYLOAD_XXHASH3,                 /* XXH3 of 64 bit */
    PAYLOAD_XXHASH128,               /* XXH3 of 128 bit */
    PAYLOAD_KIND_COUNT
};
enum {
    PAYLOAD_DIGEST_MAX = 64,         /* bytes of the longest digest */
    PAYLOAD_VALUE_MAX = 88,          /* of its base64 */
    PAYLOAD_FIELD_MAX = 24,          /* of the longest field name of a checksum */
    PAYLOAD_SUM_WORDS = 80,
};
/* A running checksum: 656 bytes. It cannot be moved while it runs. */
struct payload_sum {
    uint8_t kind;                    /* enum payload_kind */
    uint64_t state[PAYLOAD_SUM_WORDS + 1];
};
void payload_sum_begin(struct payload_sum *s, enum payload_kind kind);
void payload_sum_add(struct payload_sum *s, const void *bytes, size_t len);
/* Writes the digest, big-endian as S3 shows it; its length. The sum is over. */
size_t payload_sum_end(struct payload_sum *s, uint8_t out[PAYLOAD_DIGEST_MAX]);
size_t payload_digest_bytes(enum payload_kind kind);     /* 0 for PAYLOAD_NO_SUM */
const char *payload_kind_field(enum payload_kind kind);  /* "x-amz-checksum-crc32"; "" for none */
const char *payload_kind_name(enum payload_kind kind);   /* "CRC32", as x-amz-checksum-algorithm */
/* CRCs of runs of bytes can be put together: that of both = join(that of the first, that of the
 * second, shift(the second's length)). */
bool payload_crc_joins(enum payload_kind kind);          /* is it a CRC? */
uint64_t payload_crc(enum payload_kind kind, const void *bytes, size_t len);
uint64_t payload_crc_shift(enum payload_kind kind, uint64_t len); /* some microseconds */
uint64_t payload_crc_join(enum payload_kind kind, uint64_t first, uint64_t second, uint64_t shift);
/* As S3 writes it; its length. */
size_t payload_crc_write(enum payload_kind kind, uint64_t crc, uint8_t out[PAYLOAD_DIGEST_MAX]);
/* CRC-64/NVME of bytes continued from crc (0 at the start). */
uint64_t crc64_nvme(uint64_t crc, const void *bytes, size_t len);

/* ---- what the head says ---- */
enum payload_form {
    PAYLOAD_HASH,                    /* a literal SHA-256; also a request that names none and has
                                      * no body */
    PAYLOAD_UNSIGNED,                /* UNSIGNED-PAYLOAD, or nothing was said */
    PAYLOAD_TRAILER,                 /* STREAMING-UNSIGNED-PAYLOAD-TRAILER */
    PAYLOAD_SIGNED,                  /* STREAMING-AWS4-HMAC-SHA256-PAYLOAD */
    PAYLOAD_SIGNED_TRAILER,          /* STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER */
};
static inline bool payload_is_chunked(enum payload_form f)
{
    return f >= PAYLOAD_TRAILER;
}
static inline bool payload_is_signed(enum payload_form f)
{
    return f >= PAYLOAD_SIGNED;
}

enum { PAYLOAD_ENCODING_MAX = 256, PAYLOAD_HASH_TEXT_MAX = 64 };
struct payload_facts {
    enum payload_form form;
    uint64_t bytes;                  /* of the object: without any framing */
    char hash[2 * SHA256_BYTES + 1]; /* PAYLOAD_HASH: 64 digits, lower case; else "" */
    /* the one checksum that the client gives of the body */
    enum payload_kind sum;
    bool sum_in_trailer;             /* it was announced by x-amz-trailer and stands behind the
                                      * body, else it came in a field */
    uint8_t sum_digest[PAYLOAD_DIGEST_MAX]; /* of a field */
    bool has_md5;                    /* Content-MD5 */
    uint8_t md5[MD5_BYTES];
    bool reencoded;                  /* Content-Encoding names aws-chunked, which ends here */
    /* Content-Encoding without aws-chunked; "" when there is none */
    char encoding[PAYLOAD_ENCODING_MAX]; /* terminated */
};

/* An S3 error to answer. code NULL: nothing was refused. */
struct payload_refusal {
    uint16_t status;                 /* 400, 403, 411, 501 */
    const char *code, *why;          /* Code and Message; constant texts */
    const char *argument;            /* ArgumentName of InvalidArgument, or NULL */
    /* InvalidChunkSizeError: Chunk (from 1) and BadChunkSize */
    uint64_t chunk, chunk_bytes;
};

/* What the head says about its body; x-amz-* parameters of a presigned query count as fields.
 * sums_of_body: x-amz-checksum-* fields are about the body (false for CompleteMultipartUpload,
 * where they are about the object, and the body is a list). ERR_SYNTAX or ERR_UNSUPPORTED
 * with *no filled: MissingContentLength 411 (chunks without a length, an unreadable decoded one),
 * InvalidRequest (several checksums, an unknown trailer, an algorithm that contradicts them, a
 * malformed value), InvalidDigest, InvalidArgument, NotImplemented 501 (ECDSA). EntityTooLarge is
 * left to upstream. */
must_check enum err payload_read(const struct http_head *h, bool sums_of_body,
                                 struct payload_facts *out, struct payload_refusal *no);

/* ---- the decoder ---- */
/* Of a verified SigV4 claim: chunk signatures chain from it. */
struct payload_seed {
    struct sign_key key;
    char signature[2 * SHA256_BYTES + 1]; /* of the head */
    char amz_date[17];
    char scope[128];                 /* date/region/s3/aws4_request */
};

/* What is to be compared here, besides the framing and the signatures, which always are. */
enum payload_check {
    PAYLOAD_CHECK_SUM = 1,           /* x-amz-checksum-*, in the head or behind the body */
    PAYLOAD_CHECK_MD5 = 2,           /* Content-MD5 */
    PAYLOAD_CHECK_HASH = 4,          /* the literal SHA-256 */
    PAYLOAD_CHECK_ALL = 7,           /* whatever the client gave; what it did not give costs
                                      * nothing */
};

enum { PAYLOAD_LINE_MAX = 160, PAYLOAD_SUMS = 3 };
/* 2.6 KiB; lives in the request. Read: got, ended, no, value. */
struct payload_decoder {
    const struct payload_facts *facts; /* borrowed, like seed, until the request ends */
    const struct payload_seed *seed;
    uint64_t got;                    /* object bytes that came out so far */
    bool ended;                      /* payload_end() was OK: all bytes came and are good */
    struct payload_refusal no;       /* what was refused; final */
    char value[PAYLOAD_VALUE_MAX + 1]; /* base64 of the trailer's checksum, "" before it came */
    /* ---- private ---- */
    uint8_t state, checks;
    enum err why;
    bool small;                      /* a chunk below the least size came: it must be the last */
    bool bare;                       /* the trailer's last line ended with LF alone */
    bool sealed;                     /* the trailer's signature came and is good */
    uint64_t left;                   /* of the current chunk's data */
    uint64_t chunk, chunk_bytes;     /* number of the current one, from 1, and its size */
    uint16_t line_len;
    char line[PAYLOAD_LINE_MAX];     /* a chunk's header or a line of the trailer, so far */
    uint8_t value_digest[PAYLOAD_DIGEST_MAX]; /* of value */
    char previous[2 * SHA256_BYTES]; /* signature that the next one chains from */
    char claimed[2 * SHA256_BYTES];  /* the current chunk's own */
    struct payload_sum sum[PAYLOAD_SUMS]; /* checksum, MD5, SHA-256 (literal or of the chunk) */
};

/* checks: PAYLOAD_CHECK_* bits, usually plan.checks. seed may be NULL unless the chunks are signed:
 * then it is ERR_DENIED with d->no filled. No thread set-up is needed. */
must_check enum err payload_begin(struct payload_decoder *d, const struct payload_facts *facts,
                                  const struct payload_seed *seed, unsigned checks);
/* Takes all of len bytes of the body (without HTTP framing) and leaves the object bytes among them
 * in mem[0..*got), in place: data behind a chunk's header moves to the front. Of a body without
 * aws-chunked, and of whole buffers inside a chunk, nothing moves. ERR_SYNTAX, ERR_DENIED (a
 * signature) or ERR_CHECKSUM with d->no filled; *got is 0 then, and every later call fails alike:
 * break the request to upstream before its last byte. SignatureDoesNotMatch 403, IncompleteBody,
 * InvalidChunkSizeError, MalformedTrailerError, InvalidRequest (checksum that is none). */
must_check enum err payload_decode(struct payload_decoder *d, char *mem, size_t len, size_t *got);
/* The body is over (and the HTTP framing, too): is it whole, and do all checks hold? Then d->ended.
 * IncompleteBody, BadDigest, XAmzContentSHA256Mismatch, MalformedTrailerError. Legal any number of
 * times. */
must_check enum err payload_end(struct payload_decoder *d);
/* How many of the object bytes that came out may have left by now: all when ended, before that
 * never the last one of the object. */
static inline uint64_t payload_sendable(const struct payload_decoder *d)
{
    uint64_t most = d->facts->bytes ? d->facts->bytes - 1 : 0;
    return d->ended ? d->got : min_u64(d->got, most);
}

/* ---- how it goes upstream ---- */
struct payload_upstream {
    bool trailers;                   /* takes STREAMING-UNSIGNED-PAYLOAD-TRAILER (and knows
                                      * x-amz-checksum-*) */
    bool tls;
};

enum { PAYLOAD_ADD_MAX = 4 };
/* Must not move: its fields point into it. About 900 bytes. Wire bytes are prefix, the object's
 * bytes, and what payload_suffix() writes; prefix and suffix are empty without framing. */
struct payload_plan {
    char hash[PAYLOAD_HASH_TEXT_MAX + 1]; /* x-amz-content-sha256, to be signed */
    uint64_t wire_bytes;             /* Content-Length upstream */
    uint16_t prefix_len, suffix_len; /* suffix_len is known before the suffix is */
    bool framed;                     /* one data chunk and the client's trailer */
    bool dropped_sum;                /* the client's trailer does not go upstream */
    unsigned checks;                 /* what upstream cannot check, so that we must */
    char prefix[24];
    /* fields to send besides those of the client that payload_relays() */
    struct http_field add[PAYLOAD_ADD_MAX];
    unsigned add_count;
    /* ---- private: what add[] shows ---- */
    char encoding[PAYLOAD_ENCODING_MAX + 16], decoded[24], value[PAYLOAD_VALUE_MAX + 1];
};
/* For a body that streams: nothing behind the head is known yet. */
void payload_plan_stream(struct payload_plan *p, const struct payload_facts *f,
                         const struct payload_upstream *to);
/* For a body that is all in memory and for which payload_end() was OK on PAYLOAD_CHECK_ALL: goes
 * without framing to any store, its trailer's checksum as a field, and with a literal hash where
 * TLS does not protect it. */
void payload_plan_whole(struct payload_plan *p, const struct payload_decoder *d, struct span body,
                        const struct payload_upstream *to);
/* False for the client's fields that say something about the framing that is not so upstream:
 * x-amz-content-sha256, x-amz-decoded-content-length, x-amz-trailer, Content-Length, and
 * Content-Encoding if it is replaced. Fields of the hop are the caller's to leave out. */
bool payload_relays(const struct payload_plan *p, const struct payload_facts *f, struct span name);
/* Appends what follows the object's bytes: suffix_len bytes. After payload_end() == OK only. */
void payload_suffix(const struct payload_plan *p, const struct payload_decoder *d,
                    struct text *out);

#endif
