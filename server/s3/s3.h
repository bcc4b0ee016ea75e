/* S3 as clients speak it: what is asked, who may, what is answered. Floor 4: sees cache, origin, fill and net.
 *
 * Invariants:
 *  1. Authorisation happens once, before any look-up, for every route (s3_authorize in req.c); a verdict is per request.
 *  2. One decoded key is used for rights, cache id and upstream.
 *  3. Clients' conditions are evaluated here, never sent upstream; clients' ranges are computed here.
 *  4. Every answer carries x-amz-request-id; errors are S3 XML (no body on HEAD and 304). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_S3_H
#define HEADPOND_S3_H

#include "http.h"
#include "mem.h"
#include "sign.h"
#include "server/net/net.h"

/* ---- request.c: what does the client ask (pure) ---- */
enum s3_level { S3_SERVICE, S3_BUCKET, S3_OBJECT };
enum s3_action {
    S3_SERVE,                        /* from the cache, filled on a miss */
    S3_RELAY,                        /* passed through, re-signed */
    S3_REFUSE,                       /* 501 NotImplemented */
    S3_WRITE,                        /* passed through, then invalidates: refused in this version */
    S3_PROBE,                        /* our own /-/ready, /-/live, /minio/health/... */
};
enum s3_operation {
#define OPERATION(name, method, level, keys, header, action, label, text) name,
#include "table/s3_ops.h"
#undef OPERATION
    S3_OPERATION_COUNT
};
struct s3_operation_row {
    const char *name;                /* "GetObject" */
    uint8_t method, level, action, label; /* http_method, s3_level, s3_action, label_op */
};
extern const struct s3_operation_row s3_operation_table[S3_OPERATION_COUNT];

enum s3_override { S3_CONTENT_TYPE, S3_CONTENT_LANGUAGE, S3_EXPIRES, S3_CACHE_CONTROL, S3_CONTENT_DISPOSITION, S3_CONTENT_ENCODING, S3_OVERRIDE_COUNT };

struct s3_ask {
    enum s3_operation op;
    struct span bucket, key;         /* decoded, in the arena */
    struct span version;             /* decoded versionId; "" = current; "null" is kept as such */
    struct span path, query;         /* raw */
    struct span range;               /* Range field; "" = none */
    struct span if_match, if_none_match, if_modified_since, if_unmodified_since;
    struct span overrides[S3_OVERRIDE_COUNT]; /* decoded values; at == NULL = not given */
    uint32_t part_number;            /* 0 = not given */
    bool checksum_mode;              /* x-amz-checksum-mode: ENABLED (header or query) */
    bool bypass;                     /* SSE-C, unknown query keys, ...: relay uncached (s3.md 4.9) */
    bool once;                       /* x-headpond-hint: once */
    struct span prefix;              /* of a list, decoded: for scope checks */
};

/* An S3 error to answer. */
struct s3_error {
    uint16_t status;
    const char *code;                /* "NoSuchKey" */
    const char *message;
    /* extra elements by code; unset = left out */
    struct span resource, bucket, key, region, argument_name, argument_value, condition, range_requested, method, resource_type, headers_not_signed,
        access_key, string_to_sign, signature, canonical, header, extra_time;
    uint64_t actual_size, part_number, parts, max_size;
    bool has_actual_size, has_part_number, has_max_size;
};

/* domain: server.domain ("" = path style only). ERR_SYNTAX etc. with *error filled. Key and bucket rules: KeyTooLongError, InvalidURI (bad escapes, %00, not UTF-8), InvalidBucketName,
 * MethodNotAllowed for objects/buckets that have no such operation. Unknown sub-resources: relayed if GET/HEAD, else S3_WRITE. */
must_check enum err s3_ask_read(const struct http_head *head, const char *domain, struct arena *arena, struct s3_ask *out, struct s3_error *error);

/* Conditions against one generation, exactly the decision list of S3: 200, 304 or 412 (then *condition = the field's name). */
uint16_t s3_conditions(const struct s3_ask *a, struct span etag, uint64_t last_modified_s, uint64_t now_s, const char **condition);

/* ---- reply.c: what the client hears (pure) ---- */
struct s3_reply {                    /* of an object answer */
    uint16_t status;                 /* 200, 206, 304 */
    uint64_t from, to, size;         /* bytes of the object answered; size 0: from/to unused */
    const char *x_cache;             /* hit partial miss joined stale bypass */
    uint64_t age_s;
    bool has_age, close, stale;
    bool has_cached;                 /* x-headpond-cached: BYTES/TOTAL */
    uint64_t cached_bytes;
    uint32_t parts;                  /* x-amz-mp-parts-count; 0 = none */
};
/* Identity of one answer. */
struct s3_stamp {
    const char *date;                /* of the core's second */
    char request_id[17];
};
void s3_stamp_make(struct s3_stamp *st, const char *date, uint64_t random);
/* Writes the head of an object answer: replayed headers with overrides, ETag, Last-Modified, Content-Length/Range, checksum fields only on a whole 200 in checksum mode. ERR_TOO_LARGE. */
must_check enum err s3_reply_object(struct text *out, const struct s3_reply *r, const struct s3_stamp *st, const struct s3_ask *a, struct span etag,
                                    uint64_t last_modified_s, struct span headers);
/* Head and XML body of an error; body left out for HEAD (but Content-Length: 0) and 304. */
void s3_reply_error(struct text *out, const struct s3_error *e, const struct s3_stamp *st, bool head_request, bool close);
/* The fields of an upstream answer that a generation keeps, as "name: value\r\n"*, in the arena; drops per-answer ones. ERR_TOO_LARGE, ERR_MEMORY. */
must_check enum err s3_headers_keep(const struct http_head *upstream, struct arena *arena, struct span *out);
/* The fields of a relayed answer that go to the client (end-to-end ones; Date, Server, request ids are ours, theirs as x-headpond-upstream-request-id). */
void s3_headers_relay(struct text *out, const struct http_head *upstream, bool keep_length);
/* A generation that must not be stored: SSE-C, no ETag, ... (s3.md 4.9). */
bool s3_storable(const struct http_head *upstream);
/* Parts in an ETag ("abc-12" -> 12; 0 = single). */
uint32_t s3_etag_parts(struct span etag);

#endif
