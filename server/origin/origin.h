/* Upstream: one exchange (a signed request and its answer) with the remote S3, or with a directory.
 *
 * Invariants:
 *  1. Only the configured endpoint is ever contacted; Location and Endpoint of answers are never
 *     followed. From 301/307/400 only the region is learnt.
 *  2. At most upstream.connections exchanges hold a connection, fewer while upstream throttles;
 *     classes wait in order of priority; prefetch classes hold at most 3/4, and lose first.
 *  3. A connection goes back to the pool only after its answer was read to the last byte and both
 *     sides keep it alive.
 *  4. Retries (connect, TLS, first byte, reset before the head, 500/502/503/504/429 with jittered
 *     back-off, Retry-After obeyed up to 5 s) happen before the head is reported, within a budget
 *     that all share; resuming a broken body is the caller's, who knows what he has. Without any
 *     answer an exchange fails within upstream.connect_timeout of its permit.
 *  5. Body bytes are received straight into the caller's memory (plain) or decrypted into it (TLS),
 *     and sent straight from it (plain).
 *  6. A request of which a body byte left that cannot be had again is never sent again. A body is
 *     sent whole, or the connection is cut before its Content-Length: no upstream can take a part
 *     for the whole.
 *
 * Life of an exchange: exchange_begin() -> [streamed body: woken when body_wanted, any number of
 * exchange_write(), one at a time, each wakes the owner] -> owner is woken: head known (or failed)
 * -> any number of exchange_read(), one at a time, each wakes the owner -> exchange_end(): owner is
 * woken once more when x->over; then its memory is free. It is a child machine: from
 * exchange_begin() to x->over it counts itself in its owner's inflight. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_ORIGIN_H
#define HEADPOND_ORIGIN_H

#include "endpoint.h"
#include "http.h"
#include "sign.h"
#include "server/loop/loop.h"

struct origin;
struct link;

enum ask_class {
    ASK_DEMAND, ASK_REVALIDATE, ASK_READAHEAD, ASK_REST, ASK_PLAN, ASK_PREFETCH, ASK_BACKGROUND,
    ASK_CLASS_COUNT
};

/* borrowed until the exchange is over, but for *field spans: until the head is known */
struct ask {
    enum http_method method;
    enum ask_class class_;
    uint8_t op, purpose;             /* label_op, label_purpose, for metrics */
    uint8_t upstream;                /* whom to ask: its number */
    /* whose credentials sign: settings->profile; 0 = those of the upstream */
    uint8_t profile;
    struct span bucket;              /* "" = the service */
    struct span key;                 /* decoded bytes; "" = the bucket */
    struct span query;               /* raw, as it goes on the wire, without '?'; may be empty */
    bool probe;                      /* private to origin/: is it there? No permit, no retries */
    bool has_range;
    uint64_t from, to;               /* bytes from..to inclusive */
    struct span if_match;            /* "" = none */
    const struct http_field *field;  /* further fields, sent as given and signed */
    unsigned field_count;
    bool has_body;                   /* PUT or POST with one, possibly of 0 bytes */
    uint64_t body_bytes;             /* its length on the wire */
    /* goes out as x-amz-content-sha256 (signed); "" = the hash of the empty body */
    struct span payload_hash;
    /* ready: all of it, may be sent again; "" = the owner streams it by exchange_write() */
    struct span body;
    /* longest wait for the head once the body is out, and for more of the answer behind it; 0 =
     * upstream.read_timeout */
    uint32_t answer_ms;
    /* a read that has no bound, such as a list: instead of answer_ms, four times
     * upstream.read_timeout. One that takes longer says nothing about whether upstream is there,
     * and is sent again once */
    bool patient;
    bool once;                       /* once it left it is never sent again, whatever its method */
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
    /* a streamed body may be written: the request head is out, and upstream said 100 or kept silent
     * for a second; stays set */
    bool body_wanted;
    bool writing;                    /* an exchange_write is under way */
    bool body_refused;               /* the head came before all of the body was out */
    struct http_head *head;          /* of the final answer; spans live until over */
    bool has_length;
    /* of the body; answers to HEAD: of the body that a GET would bring */
    uint64_t length;
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
    struct machine *runner;          /* the machine behind it: m, or a directory's */
    void *mem;                       /* of the read under way */
    uint32_t len;
    bool some;                       /* the read under way ends with the first bytes */
    bool ending;                     /* exchange_end() was called */
    void *private_;
};

/* ---- start and end ---- */
/* Credentials, addresses, TLS context of the upstream with that number, which becomes
 * s->origin[number]. why names cause and fix. ERR_CONFIG, ERR_CREDENTIALS, ERR_UPSTREAM_DNS is not
 * fatal (logged, tried again). */
must_check enum err origin_open(struct server *s, unsigned number, char why[512]);
/* What a start would refuse of that upstream, asking nobody; main thread, also while a server runs.
 * runs: it is the one that is in use, so a directory, which may hang, is not looked at. What
 * origin_open() would return, with a mistake told. */
must_check enum err origin_check(const struct conf_upstream *u, bool runs, struct conf_mistakes *m);
void origin_close(struct origin *o);
/* This and what follows about a core: of all upstreams. */
must_check enum err origin_core_begin(struct core *c);
/* closes idle connections; no exchange runs */
void origin_core_end(struct core *c);
void origin_core_drain(struct core *c);                /* no more probes */
bool origin_core_idle(const struct core *c);           /* no probe runs */
bool origin_is_directory(const struct origin *o);
/* A reader waits for bytes of it, and has them, or waits no longer. Any core; own: the caller's. */
void origin_reader_waits(struct origin *o);
void origin_reader_has(struct origin *o, struct core *own);
/* few do: what is of ASK_REST may come, too */
bool origin_is_calm(const struct origin *o);
/* How upload bodies may go there. */
struct payload_upstream;
void origin_payload(const struct origin *o, const struct config *conf,
                    struct payload_upstream *out);
/* What operators call it: its name, or host:port/path. */
const char *origin_store_name(const struct origin *o);
unsigned origin_label(const struct origin *o);         /* in metrics: NAMED_UPSTREAM */
/* upstream.bandwidth, rate in bytes per second. False: nothing of a body may be read now, ask again
 * in *wait_us. What nobody waits for leaves some to others. */
bool origin_may_take(const struct origin *o, enum ask_class class_, uint64_t now_us,
                     uint64_t *wait_us);
void origin_took(struct origin *o, uint64_t rate, uint64_t bytes, uint64_t now_us);
/* Body bytes of it came: learns how many connections are worth having for what nobody waits for. */
struct exchange;
void origin_came(const struct exchange *x, uint64_t bytes);
/* Main thread. Settings that nobody else sees yet get the credentials that somebody has to be asked
 * for, within 10 s. ERR_CREDENTIALS with a sentence in why: nothing has changed; ERR_MEMORY. */
must_check enum err origin_fill(struct server *s, struct settings *t, struct text *why);
/* New credentials have come; main thread: settings with them, to be published; NULL: no memory. */
bool origin_has_news(struct server *s);
struct settings *origin_renewed(struct server *s);
/* The core took other settings: what was derived from the credentials of before is forgotten. */
void origin_core_renew(struct core *c);

enum origin_right { RIGHT_UNKNOWN, RIGHT_ALLOWED, RIGHT_REFUSED };
struct origin_status {
    const char *name, *endpoint;     /* name: as origin_store_name() */
    unsigned label;                  /* as origin_label() */
    bool up, throttled;
    double rtt_ms;                   /* of the last answers, smoothed */
    uint32_t active, idle, queued;
    uint32_t limit, connections;     /* requests at once now; and as configured */
    uint64_t down_ms;                /* since it is not up */
    bool directory;                  /* needs neither a clock nor credentials */
    bool clock_known;
    int64_t clock_offset_s;          /* upstream's clock minus ours, by the last answer's Date */
    uint8_t tls_minor;               /* of TLS 1.x, as spoken last; 0: not yet */
    uint64_t certificate_ends_s;     /* of the store; Unix time, 0: not known */
    char credentials[160];           /* where they come from; "" = none */
    bool temporary;                  /* with a session token */
    bool renewed;                    /* by the server itself */
    uint64_t expire_s;               /* Unix time; 0 = never, nobody told, or not had yet */
    char credentials_error[256];     /* why new ones could not be had; "" = all is well */
    uint64_t credentials_failed_s;   /* since when, Unix time */
    uint8_t gets, lists;             /* enum origin_right: what the server's own credentials got */
    char warning[160];               /* plain HTTP, insecure, credentials, ... or "" */
};
void origin_status(struct origin *o, struct origin_status *out); /* any thread */
/* any thread: exchanges fail at once; one probe a second asks whether it is back */
bool origin_is_down(const struct origin *o);

/* ---- exchanges ---- */
/* Starts; x is the caller's memory. Never fails at once: failure comes as x->failed with a wake.
 * Via is added; a directory upstream answers the same way. Fields of ask that belong to the hop or
 * are made here (Host, x-amz-date, ...; Range and If-Match if the ask has its own) are left out. */
void exchange_begin(struct exchange *x, struct core *c, const struct ask *ask,
                    struct machine *owner);
/* The next len body bytes into mem; wakes the owner when all are there, at the body's end (at_end,
 * read_got may be short), or on failure (failed; read_got tells how many bytes are good). Owner
 * checks !x->reading. Chunked and close-delimited bodies are unframed. */
void exchange_read(struct exchange *x, void *mem, uint32_t len);
/* The same, but done as soon as any bytes are there: for answers that drip to keep a client's
 * patience. */
void exchange_read_some(struct exchange *x, void *mem, uint32_t len);
/* Upstream may repeat our request in the head or body of an error: blanks in such bytes what only
 * those may know who have our credentials. Their length stays. */
void exchange_blank_echo(const struct exchange *x, char *at, size_t len);
/* The next len (> 0) bytes of a streamed body; mem stays until !x->writing, which wakes the owner.
 * Legal when body_wanted && !writing && !head_known && !failed. The sum never passes body_bytes. */
void exchange_write(struct exchange *x, const void *mem, uint32_t len);
/* Somebody waits for it now, as its ask says: it goes on as of that class, if it still waits for
 * its permit and that comes sooner. */
void exchange_hurry(struct exchange *x);
/* It waits for its permit. Its owner is woken when it does so again, to be repeated. */
bool exchange_is_queued(const struct exchange *x);
/* No more reads and writes. A finished answer's connection is kept, any other is closed at once, so
 * that upstream stores nothing of a body that was not whole. Legal at any time after begin; wakes
 * the owner when over. */
void exchange_end(struct exchange *x);
/* The owner does not trust this answer although it is well formed (another range, another length,
 * a redirect): counted and logged; what then happens is the owner's. */
void exchange_refuse(struct exchange *x, const char *what);
/* What an HTTP status of upstream means before any body is read: OK for 2xx, ERR_NOT_FOUND 404,
 * ERR_DENIED 401/403, ERR_CHANGED 412, ERR_UNSUPPORTED 416, else ERR_UPSTREAM_STATUS. */
enum err exchange_verdict(const struct exchange *x);

#endif
