/* Upstream: one exchange (a signed request and its answer) with the remote S3, or with a directory.
 *
 * Invariants:
 *  1. Only the configured endpoint is ever contacted; Location and Endpoint of answers are never followed. From 301/307/400 only the region is learnt.
 *  2. At most upstream.connections exchanges hold a connection; classes wait in order of priority; prefetch classes hold at most 3/4.
 *  3. A connection goes back to the pool only after its answer was read to the last byte and both sides keep it alive.
 *  4. Retries (connect, TLS, first byte, reset before the head, 500/502/503/504/429 with jittered back-off, Retry-After obeyed up to 5 s) happen before the head is reported;
 *     resuming a broken body is the caller's, who knows what he has.
 *  5. Body bytes are received straight into the caller's memory (plain) or decrypted into it (TLS).
 *
 * Life of an exchange: exchange_begin() -> owner is woken: head known (or failed) -> any number of exchange_read(), one at a time, each wakes the owner -> exchange_end(): owner is woken once more when
 * x->over; then its memory is free. It is a child machine: the owner counts it in its own inflight from begin to over. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_ORIGIN_H
#define HEADPOND_ORIGIN_H

#include "http.h"
#include "server/loop/loop.h"

struct origin;
struct link;

enum ask_class { ASK_DEMAND, ASK_REVALIDATE, ASK_READAHEAD, ASK_PREFETCH, ASK_CLASS_COUNT };

struct ask {                         /* borrowed until the exchange is over, but for *field spans: until the head is known */
    enum http_method method;
    enum ask_class class_;
    uint8_t op, purpose;             /* label_op, label_purpose, for metrics */
    struct span bucket;              /* "" = the service */
    struct span key;                 /* decoded bytes; "" = the bucket */
    struct span query;               /* raw, as it goes on the wire, without '?'; may be empty */
    bool has_range;
    uint64_t from, to;               /* bytes from..to inclusive */
    struct span if_match;            /* "" = none */
    const struct http_field *field;  /* further fields, sent as given and signed */
    unsigned field_count;
};

enum { EXCHANGE_HEAD_BYTES = 16 * KIB };

struct exchange {
    struct machine m;                /* first; private */
    /* ---- what the owner reads ---- */
    bool head_known;                 /* status, head, ... are valid */
    bool failed;                     /* m.why tells; before the head: after all retries */
    bool over;                       /* everything is given back */
    bool reading;                    /* an exchange_read is under way */
    bool at_end;                     /* the body's last byte was delivered */
    struct http_head *head;          /* of the final answer; spans live until over */
    bool has_length;
    uint64_t length;                 /* of the body */
    bool has_range;                  /* a valid Content-Range came (206) */
    uint64_t range_from, range_to, range_size;
    struct span etag;                /* as received; "" if absent */
    uint64_t last_modified_s;
    uint64_t sent_wall_ms;           /* when the request that was answered went out */
    uint64_t date_s;                 /* of the answer's Date field, 0 = absent */
    uint32_t read_got;               /* bytes of the last exchange_read */
    /* ---- private to origin/ ---- */
    struct machine *owner;
    struct origin *origin;
    const struct ask *ask;
    void *private_;
};

/* ---- start and end ---- */
/* Credentials, addresses, TLS context. why names cause and fix. ERR_CONFIG, ERR_CREDENTIALS, ERR_UPSTREAM_DNS is not fatal (logged, tried again). */
must_check enum err origin_open(struct server *s, char why[512], struct origin **out);
void origin_close(struct origin *o);
must_check enum err origin_core_begin(struct core *c);
void origin_core_end(struct core *c);                  /* closes idle connections; no exchange runs */
bool origin_is_directory(const struct origin *o);
/* Identity of the store (name, or host:port/path), for cache ids. */
const char *origin_store_name(const struct origin *o);
/* The upstream's static key pair if there is one (decisions: a valid rw key when keys_file is empty). false: none. */
struct secret;
bool origin_key(const struct origin *o, struct span *access_key, const struct secret **secret);

struct origin_status {
    const char *endpoint;
    bool up, throttled;
    double rtt_ms;                   /* of the last answers, smoothed */
    uint32_t active, idle, queued;
    char warning[160];               /* plain HTTP, insecure, credentials, ... or "" */
};
void origin_status(struct origin *o, struct origin_status *out); /* any thread */

/* ---- exchanges ---- */
/* Starts; x is the caller's memory. Never fails at once: failure comes as x->failed with a wake. Via is added; a directory upstream answers the same way. */
void exchange_begin(struct exchange *x, struct core *c, const struct ask *ask, struct machine *owner);
/* The next len body bytes into mem; wakes the owner when all are there, at the body's end (at_end, read_got may be short), or on failure (failed; read_got tells how many
 * bytes are good). Owner checks !x->reading. Chunked and close-delimited bodies are unframed. */
void exchange_read(struct exchange *x, void *mem, uint32_t len);
/* No more reads. A finished answer's connection is kept, any other is closed at once. Legal at any time after begin; wakes the owner when over. */
void exchange_end(struct exchange *x);
/* What an HTTP status of upstream means before any body is read: OK for 2xx, ERR_NOT_FOUND 404, ERR_DENIED 401/403, ERR_CHANGED 412, ERR_RANGE? no: 416 is ERR_UNSUPPORTED,
 * else ERR_UPSTREAM_STATUS. */
enum err exchange_verdict(const struct exchange *x);

#endif
