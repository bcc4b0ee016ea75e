/* S3 as clients speak it: what is asked, who may, what is answered. Floor 4: sees cache, origin,
 * fill and net.
 *
 * Invariants:
 *  1. Authorisation happens once, before any look-up, for every route (s3_authorize in auth.c); a
 *     verdict is per request.
 *  2. One decoded key is used for rights, cache id and upstream.
 *  3. Clients' conditions are evaluated here, never sent upstream; clients' ranges are computed
 *     here.
 *  4. Every answer carries x-amz-request-id; errors are S3 XML (no body on HEAD and 304). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_S3_H
#define HEADPOND_S3_H

#include "http.h"
#include "mem.h"
#include "payload.h"
#include "sign.h"
#include "xml.h"
#include "xml_rename.h"
#include "server/fill/fill.h"
#include "server/net/net.h"

/* ---- request.c: what does the client ask (pure) ---- */
enum s3_level { S3_SERVICE, S3_BUCKET, S3_OBJECT };
enum s3_action {
    S3_SERVE,                        /* from the cache, filled on a miss */
    S3_RELAY,                        /* passed through, re-signed */
    S3_REFUSE,                       /* 501 NotImplemented for good */
    S3_PROBE,                        /* our own /-/ready, /-/live, /minio/health/... */
    S3_PLAN,                         /* our own /-/plans */
    /* changes, passed through; what becomes doubtful by them: */
    S3_PASS,                         /* nothing */
    S3_WRITE,                        /* the object */
    S3_WRITE_BUCKET,                 /* every object of the bucket */
    S3_WRITE_KEYS,                   /* the objects that its body names */
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
    const char *keys, *header, *text; /* as table/s3_ops.h says */
};
extern const struct s3_operation_row s3_operation_table[S3_OPERATION_COUNT];
/* Needs the right to write. */
static inline bool s3_operation_changes(enum s3_operation op)
{
    return s3_operation_table[op].action >= S3_PASS;
}

enum s3_override {
    S3_CONTENT_TYPE,
    S3_CONTENT_LANGUAGE,
    S3_EXPIRES,
    S3_CACHE_CONTROL,
    S3_CONTENT_DISPOSITION,
    S3_CONTENT_ENCODING,
    S3_OVERRIDE_COUNT
};

struct s3_ask {
    const struct http_head *head;    /* borrowed: the one that was read */
    enum s3_operation op;
    /* of the target; the row's own for all but UnknownRead, UnknownWrite and PostObject */
    enum s3_level level;
    struct span bucket, key;         /* decoded, in the arena */
    struct span version;             /* decoded versionId; "" = current; "null" is kept as such */
    struct span path, query;         /* raw */
    struct span range;               /* Range field; "" = none */
    struct span if_match, if_none_match, if_modified_since, if_unmodified_since;
    struct span if_range;            /* see s3_range() */
    struct span overrides[S3_OVERRIDE_COUNT]; /* decoded values; at == NULL = not given */
    /* any: only for verified requests (s3_authorize refuses the others) */
    bool has_override;
    /* carries a query key that nobody knows: not for anonymous requests, nor for changes of
     * objects by keys with scopes */
    bool unknown_query;
    uint32_t part_number;            /* 0 = not given */
    bool checksum_mode;              /* x-amz-checksum-mode: ENABLED (header or query) */
    /* SSE-C, unknown query keys, expected owner, payer: relay uncached */
    bool bypass;
    uint8_t hint;                    /* x-headpond-hint: set of enum fill_hint */
    bool wide;                       /* a change of more of the bucket than of the key */
    struct span prefix;              /* of a list, decoded: for scope checks */
    /* a bare '+' in it: a blank to some stores, a plus to others */
    bool prefix_ambiguous;
    /* x-amz-copy-source or x-amz-rename-source; "" = none */
    struct span source;
    struct span upload_id;           /* decoded; "" = none */
    bool virtual_host;               /* the bucket stands in Host */
    bool has_fields;                 /* the query has parameters that are fields */
    bool v2_query;                   /* AWSAccessKeyId is given */
};

/* An S3 error to answer. */
struct s3_error {
    uint16_t status;
    const char *code;                /* "NoSuchKey" */
    const char *message;
    /* extra elements by code; unset = left out */
    struct span resource, bucket, key, version, region, argument_name, argument_value, condition,
        range_requested, method, resource_type, headers_not_signed, access_key, string_to_sign,
        signature, canonical, header;
    struct span request_time, server_time, expires; /* ISO 8601 */
    struct span allow;               /* the field Allow of a 405: "GET, HEAD" */
    bool marker;                     /* it is about a delete marker, these fields tell: */
    struct span marker_version;      /* "" = left out */
    uint64_t modified_s;             /* 0 = left out */
    uint64_t actual_size, part_number, parts, max_size, max_skew_ms, expires_s;
    uint64_t chunk, chunk_bytes;     /* Chunk (0 = none) and BadChunkSize */
    uint32_t retry_after_s;          /* the field Retry-After; 0 = none */
    const char *x_cache;             /* NULL = left out */
    /* with max_size, actual_size is shown as Size */
    bool has_actual_size, has_part_number, has_max_size;
};

/* domain: server.domain ("" = path style only). ERR_SYNTAX with *error filled (ERR_MEMORY: with 503
 * SlowDown). Key and bucket rules: KeyTooLongError, InvalidURI (bad escapes, %00, not UTF-8),
 * InvalidBucketName; MethodNotAllowed for what has no such operation; a query key twice and two
 * sub-resources at once are InvalidArgument. Unknown query keys: GET and HEAD of an object bypass
 * the cache, any other read becomes UnknownRead, any change UnknownWrite. A POST with a form is
 * PostObject, whatever its query says. On failure out->op, level, path and query hold as far as
 * they were read. */
must_check enum err s3_ask_read(const struct http_head *head, const char *domain,
                                struct arena *arena, struct s3_ask *out, struct s3_error *error);
/* The refusal of a S3_REFUSE operation: 501, naming it. */
void s3_not_implemented(const struct s3_ask *a, struct arena *arena, struct s3_error *error);

/* ---- bucket.c: names of buckets (pure) ---- */
/* The part of Host before ".domain"; empty for path style (RFC 9110 7.2: Host may carry a port). */
struct span s3_bucket_of_host(struct span host, const char *domain);
/* The rule of the SDKs, which is wider than that of AWS: other stores have short and long names.
 * The first character keeps "." and ".." from ever being a path segment of an upstream request. */
bool s3_is_bucket_name(struct span name);

/* ---- query.c: names of query keys, and what goes upstream (pure) ---- */
/* Names are decoded. Part of a signature, in any version and any case. */
bool s3_key_authenticates(struct span name);
/* x-amz-*, but not of the signature: the parameter is that field, in every respect. */
bool s3_key_is_field(struct span name);
bool s3_key_is_known(enum s3_level level, struct span name); /* and harmless */
/* Of fields x-amz-* and x-minio-*: without them a read would be answered the same. */
bool s3_fields_are_plain(const struct http_head *head);
extern const char *const s3_override_key[S3_OVERRIDE_COUNT]; /* response-* */
/* The query to send upstream: as it came, names in one encoding, without what authenticated the
 * client and without the parameters that are fields. In the arena. ERR_MEMORY. */
must_check enum err s3_query_relay(const struct s3_ask *a, struct arena *arena, struct span *out);
/* These, decoded, as fields to send; in the arena. ERR_MEMORY, ERR_TOO_LARGE. */
must_check enum err s3_query_fields(const struct s3_ask *a, struct arena *arena,
                                    struct http_field *out, unsigned room, unsigned *count);

/* "[/]bucket/key[?versionId=V]" of x-amz-copy-source or x-amz-rename-source, decoded; in the arena.
 * ERR_SYNTAX: it names no object; ERR_MEMORY. */
struct s3_source {
    struct span bucket, key, version;
};
must_check enum err s3_source_read(const struct s3_ask *a, struct arena *arena,
                                   struct s3_source *out);

/* ---- condition.c (pure) ---- */
/* Conditions against one generation, exactly the decision list of S3: 200, 304 or 412 (then
 * *condition = the field's name). */
uint16_t s3_conditions(const struct s3_ask *a, struct span etag, uint64_t last_modified_s,
                       uint64_t now_s, const char **condition);

/* The Range that counts: a->range, or "" when If-Range names another generation (RFC 9110
 * 13.1.5). */
struct span s3_range(const struct s3_ask *a, struct span etag, uint64_t last_modified_s);

/* ---- auth.c: may this client do that (pure) ---- */
struct keys;
enum { S3_GATE_KEYS = 64, S3_EXPLAINED_MAX = 50 };
/* one per core; only through s3_gate_open(), which empties the cache */
struct s3_gate {
    const struct keys *keys;         /* NULL: auth.keys_file is not set */
    struct span upstream_key;        /* the upstream's static pair; "" = it has none */
    const struct secret *upstream_secret;
    uint64_t skew_s;                 /* auth.clock_skew */
    bool sigv2;                      /* auth.sigv2; the opener's to set, like: */
    struct span upstream_host;       /* for explanations only; "" = none */
    uint64_t explained_s;            /* second of the last mismatch that was looked into ... */
    /* ... and how many were in it: they cost twenty verifications */
    unsigned explained;
    struct sign_key_cache cache[S3_GATE_KEYS]; /* day keys, direct-mapped by the key's number */
};
struct s3_who {
    bool anonymous_allowed;          /* in: the peer's address is in auth.anonymous */
    uint64_t now_s;                  /* in */
    bool anonymous;                  /* out: served without a verified key */
    /* out: of the verified key, in head or arena; "" when anonymous */
    struct span access_key;
    enum label_authfail reason;      /* out on ERR_DENIED */
    uint8_t profile;                 /* out: whose credentials go upstream for it: struct ask */
    bool filtered;                   /* out: of a list of buckets, only those of the key's scopes */
    bool has_seed;                   /* out: the body's chunks are signed, from this on */
    struct payload_seed seed;
};
void s3_gate_open(struct s3_gate *g, const struct keys *keys, struct span upstream_key,
                  const struct secret *upstream_secret, uint64_t skew_s);
/* The one verdict, for every operation: who is it, and may he do what he asks. Probes, preflights
 * and forms (whose credentials stand in their body, and which are refused) are let through. keys
 * set: whatever carries credentials is verified. keys not set: credentials of the upstream's own
 * access key are verified and may do everything; any others count for nothing: anonymous from an
 * anonymous range, AccessDenied from elsewhere. Anonymous requests may GetObject, HeadObject,
 * ListObjects, ListObjectsV2, ListBuckets, HeadBucket and GetBucketLocation. Any key may come with
 * plans; what of, loader.c asks. Keys with scopes:
 * objects and lists inside them, ListBuckets (filtered), HeadBucket and GetBucketLocation of their
 * buckets; no other sub-resources of buckets, no change that nobody here knows, and nothing whose
 * body may name another bucket. Keys of DeleteObjects bodies are the driver's to check. OK,
 * ERR_DENIED with *error filled, ERR_MEMORY with 503 SlowDown. Needs about 110 KiB of stack
 * (sign_claim_verify). */
must_check enum err s3_authorize(struct s3_gate *gate, const struct http_head *head,
                                 const struct s3_ask *ask, struct s3_who *who, struct arena *arena,
                                 struct s3_error *error);

/* May the client that was authorised as who change this object, too? For what a body names; asked
 * of the gate as it is now. */
bool s3_may_change(const struct s3_gate *gate, const struct s3_who *who, struct span bucket,
                   struct span key);
/* May it know of that bucket? For filtered lists. */
bool s3_may_see(const struct s3_gate *gate, const struct s3_who *who, struct span bucket);
/* auth_why.c: the sentence for a signature that does not match; terminated, in the arena. Looks for
 * a reason unless gate->explained is above S3_EXPLAINED_MAX. */
const char *s3_why_mismatch(const struct s3_gate *gate, const struct sign_claim *claim,
                            const struct s3_ask *ask, const struct secret *secret,
                            struct arena *arena);

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
    char request_id[17];             /* 16 upper-case hex digits */
    char host_id[33];                /* x-amz-id-2 and HostId */
};
void s3_stamp_make(struct s3_stamp *st, const char *date, uint64_t random);
/* Status line and x-amz-request-id, x-amz-id-2, Date, Server: the start of every answer; for relays
 * and probes. */
void s3_reply_begin(struct text *out, uint16_t status, const struct s3_stamp *st);
/* Writes the head of an object answer: replayed headers with overrides, ETag, Last-Modified,
 * Content-Length/Range, checksum fields only on a whole 200 in checksum mode. ERR_TOO_LARGE: it
 * does not fit out. */
must_check enum err s3_reply_object(struct text *out, const struct s3_reply *r,
                                    const struct s3_stamp *st, const struct s3_ask *a,
                                    struct span etag, uint64_t last_modified_s,
                                    struct span headers);
/* Head and XML body of an error; body left out for HEAD (but Content-Length: 0) and 304. What
 * explains a signature is left out when it does not fit; S3_ERROR_BYTES always suffice for the
 * rest. */
void s3_reply_error(struct text *out, const struct s3_error *e, const struct s3_stamp *st,
                    bool head_request, bool close);
enum { S3_ERROR_BYTES = 8 * KIB };
/* The fields of a relayed answer that go to the client, behind s3_reply_begin() (end-to-end ones;
 * Date, Server, request ids are ours, theirs as x-headpond-upstream-request-id; cookies and a
 * redirect's Location go nowhere). */
void s3_headers_relay(struct text *out, const struct http_head *upstream, bool keep_length);
/* Of them those that are as true for who asks the same again; without the length. */
void s3_headers_keep(struct text *out, const struct http_head *upstream);
/* Parts in an ETag ("abc-12" -> 12; 0 = single). */
uint32_t s3_etag_parts(struct span etag);

/* ---- the running request: req.c and its machines ---- */
enum {
    REQ_ARENA_BYTES = 3 * KIB,
    REQ_ARENA_MAX = 256 * KIB,
    GET_DEPTH = 8,
    GET_WINDOW_MOST = STREAM_WINDOW_MOST,
    RELAY_BUFFERS = 2,
    RELAY_BYTES = 256 * KIB,
    RELAY_DRIP_BYTES = 64 * KIB,     /* a client of less in relay.c's PAUSE_MS as good as pauses */
};

/* One piece of an answer on its way to the client: a block, a granule of one, or a half of that. */
enum piece_state {
    PIECE_EMPTY,
    PIECE_READ,
    PIECE_JOINS,                     /* another one's read of the same block */
    PIECE_WAIT,                      /* for a fetch */
    PIECE_READY,
    PIECE_SENDING,
};
struct piece {
    enum piece_state state;
    uint8_t source;                  /* label_source */
    uint8_t unit;                    /* enum buffer_kind */
    bool waited;                     /* a fetch was waited for */
    uint32_t len;                    /* bytes of the answer */
    uint64_t at;                     /* object offset of its first answered byte */
    uint64_t unit_at;                /* object offset of the unit */
    uint32_t unit_bytes;
    struct buffer *buffer;
    struct chunk *chunk;             /* held while it is read from disk */
    struct transfer *transfer;       /* while it is read from disk */
    struct block_read reading;       /* the same, of a block */
    struct block_read_wait join;     /* while JOINS */
    struct wait wait;
};

struct get {                         /* GET and HEAD of an object */
    struct machine m;
    struct learn learn;
    struct object *object;           /* held */
    struct okey key;
    struct epoch epoch;              /* before the object was found, or of its asking */
    uint64_t from, to;               /* last byte included */
    uint64_t next;                   /* first byte no piece was made for */
    uint64_t sent;                   /* bytes of the body sent */
    uint64_t ahead;                  /* next chunk to fetch ahead */
    uint64_t sized;                  /* what is asked of chunks before this one is counted */
    uint64_t unread_end;             /* of the block whose first reading is this answer's */
    uint64_t used;                   /* bytes below were looked for, */
    uint64_t told;                   /* bytes below were asked from fill/, so the policy knows */
    uint64_t waited;                 /* chunks below were waited for, or need not be */
    unsigned window;                 /* chunks ahead */
    bool streams;                    /* a range that others may follow: */
    bool stream_rests;               /* nothing to begin in front of it for now, */
    uint64_t stream_here;            /* of a reader in that chunk */
    struct stream_read stream;
    unsigned first, count;           /* ring of pieces */
    unsigned sending;                /* of those, with the kernel */
    unsigned dead;                   /* generations that died under this request */
    uint16_t refused;                /* the error status that a fetch of ours ended with */
    bool head_sent, send_begun, asked, stale, relay, waiting_room;
    bool later;                      /* a piece is neither here nor there right now: look again */
    bool full;                       /* as no fetch could be begun for it */
    /* pace.c: the client is slow; it has made room for a small piece; room is awaited */
    bool slow, has_room, awaits;
    bool stalled;                    /* slow without room: nothing is held but what is being sent */
    bool left;                       /* TLS: sealed bytes of a stopped send are still to go */
    uint32_t head_out, pace_bytes;   /* bytes of the head that are out; sent since pace_ms */
    uint32_t counted;                /* of the current list */
    uint64_t send_ms, pace_ms;       /* since when the kernel has the current send */
    uint64_t room_ms;                /* since when no buffer, or fetch, was free; 0: one was */
    uint64_t began_ms;               /* its range is known */
    struct timer timer;              /* tells stalled, and when to look again */
    struct s3_reply reply;
    /* some block is not sure yet: nothing is held meanwhile */
    bool pinning;
    struct wait pin;                 /* of a young object: for a block before the head leaves */
    uint64_t pin_at;                 /* block that is being made sure of; UINT64_MAX: none */
    struct pool_wait room;
    struct piece piece[GET_DEPTH];
};

struct put {                         /* put.c: of a change, or of a request with a body */
    bool has_body, streams;
    bool awaited, saying;            /* the client waits for "100 Continue"; it is being sent, */
    bool unsaid;                     /* or could not be: saying stays, as half of it may be out */
    bool body_over;                  /* all of it was received */
    bool doubted, settled;           /* put_doubt(), put_settle() */
    uint8_t turn, why;               /* how the streaming ended: enum put_turn, enum err */
    struct payload_upstream to;
    struct payload_facts facts;
    struct payload_decoder decoder;
    struct payload_plan plan;
    char *whole, *list;              /* not streamed: the body; list: it is memory of its own */
    uint32_t whole_len, whole_cap;
    /* streamed: bytes of the request's body, framing included */
    uint64_t filled_all, sent;
    uint64_t seen_all;               /* filled_all when the body went on last */
    uint32_t out, under_way;         /* of the buffer that leaves: gone, and with upstream */
    unsigned change_count, change_room;
    struct cache_write *change;      /* few, or memory of its own */
    struct cache_write few[3];
    struct s3_error error;           /* why the body is refused */
    /* put_keep.c */
    struct upload *kept;             /* NULL: nothing is kept of it */
    struct upload_stream stream;
    uint64_t kept_bytes;             /* of what a CompleteMultipartUpload makes */
    char *answer;                    /* to that: as it came, so far */
    uint32_t answer_len;
    char etag[256];
};

struct relay {                       /* a request passed through, and its answer */
    struct machine m;
    struct buckets *buckets;         /* the answer is filtered: buckets.c; else NULL */
    struct put *put;                 /* NULL: it changes nothing and has no body */
    struct xml_rename *rename;       /* the answer's bucket has another name; NULL: as it comes */
    struct exchange x;
    struct ask ask;
    struct http_field field[HTTP_FIELDS_MAX];
    struct buffer *buffer[RELAY_BUFFERS];
    uint32_t filled[RELAY_BUFFERS];
    unsigned fill_at, send_at;       /* which buffer is next to be filled, sent */
    struct pool_wait room;
    /* while a send or a streamed body is under way: does the client go on? */
    struct timer watch;
    uint64_t took_ms, took_at;       /* when it took enough last, and how much of the answer then;
                                      * or when its body went on */
    uint64_t sent, received;
    uint64_t whole;                  /* what a Content-Range promised; 0 = nothing */
    bool begun, ending, head_sent, chunked, last_sent, body_over, no_body;
    bool has_range, conditional;     /* what the client asked with */
    /* list.c: what is sent from memory, or comes in to be kept; else NULL */
    struct listing *listing;
    bool list_here;                  /* it is sent from memory */
    bool list_wanted;                /* the answer may be kept, under this name */
    struct okey list_name;
    struct listing_note list_note;
    char chunk_line[24];
};

struct merged;
struct merge {                       /* the list of buckets of several upstreams */
    struct machine m;
    struct merged *list;
    struct exchange x;
    struct ask ask;
    unsigned at;                     /* the upstream that is asked, or is asked next */
    enum err why;
    bool begun, ending;
};

struct loading;
struct loader {                      /* /-/plans: loader.c */
    struct machine m;
    struct loading *of;
};

struct answer {                      /* a ready text: errors and probes */
    struct machine m;
};

struct req {
    struct conn *conn;
    struct core *core;
    const struct http_head *head;
    struct arena arena;
    struct s3_ask ask;
    struct conf_route route;         /* of ask.bucket: whom it is asked of, and by what name */
    struct span source;              /* ask.source as its store calls it; "" = as it is */
    struct s3_who who;
    struct s3_stamp stamp;
    const char *x_cache;             /* hit, miss, ...; NULL: none */
    uint16_t status;                 /* answered; 0 = none */
    uint8_t result;                  /* label_result */
    bool head_request, close, cut, first_byte;
    uint64_t first_byte_us, body_bytes;
    uint64_t starved_us;             /* since when a GET has nothing to send; 0 = it has */
    uint64_t told_us;                /* up to when its time was counted */
    uint8_t starved_of;              /* label_stall */
    uint64_t source_bytes[LABEL_source_COUNT];
    struct send send;
    struct text out;                 /* over out_memory */
    union {
        struct get get;
        struct relay relay;
        struct merge merge;
        struct loader loader;
        struct answer answer;
    };
    char arena_memory[REQ_ARENA_BYTES];
    char out_memory[S3_ERROR_BYTES + KIB];
};

/* As whom upstream is asked. */
static inline uint8_t get_profile(const struct get *g)
{
    return container_of(g, struct req, get)->who.profile;
}
/* What the client says of its reads: set of enum fill_hint. */
static inline uint8_t get_hint(const struct get *g)
{
    return container_of(g, struct req, get)->ask.hint;
}
/* pin.c */
bool get_too_lively(const struct get *g);              /* relay it in one piece */
bool get_must_pin(const struct get *g);
bool get_pinned(struct get *g, enum err *why);         /* false: wait, or *why tells what failed */
void get_leave_pin(struct get *g);
static inline struct piece *get_piece(struct get *g, unsigned i)
{
    return &g->piece[(g->first + i) % GET_DEPTH];
}
/* ahead.c */
void get_begin_ahead(struct get *g); /* the range is known */
void get_fetch_ahead(struct get *g); /* keeps the chunks behind the reader coming */
bool get_reads_on(const struct get *g);                /* behind its range */
void get_waits(struct get *g, uint64_t number); /* for bytes of that chunk: wider windows */
/* pace.c */
bool pace_gather(struct get *g);     /* the next list; false: nothing is ready */
void pace_send(struct get *g);
enum err pace_sent(struct get *g);   /* after send_ended(): takes what is out; it may go on */
void pace_watch(struct get *g);      /* at each turn: does the client still take? */
void pace_await(struct get *g);      /* instead of a send, while stalled */
void pace_end(struct get *g);
/* piece.c */
enum piece_turn { PIECE_STARTED, PIECE_NO_ROOM /* nothing is held; try when the pool has room */ };
void piece_expect(struct get *g, uint64_t at); /* the next one will be a new piece from there */
/* a new piece from that object offset */
enum piece_turn piece_start(struct get *g, struct piece *p, uint64_t at);
enum piece_turn piece_restart(struct get *g, struct piece *p);
enum piece_turn piece_take_disk(struct get *g, struct piece *p);         /* its read has ended */
enum piece_turn piece_take_wait(struct get *g, struct piece *p);         /* its wait ended well */
void piece_release(struct get *g, struct piece *p);
/* Gives its buffer back; piece_restart() gets one again. */
void piece_park(struct get *g, struct piece *p);
/* Waits no more, unless it is being told already. */
void piece_leave(struct get *g, struct piece *p);
/* blocks of that chunk that the request reads */
uint8_t get_blocks_asked(const struct get *g, uint64_t number);
/* Where the answer's bytes end in a chunk of it. */
uint32_t get_asked_upto(const struct get *g, uint64_t number);
uint32_t get_told(const struct get *g, uint64_t number); /* for struct wait */

/* put.c */
enum put_turn { PUT_BUSY, PUT_MORE, PUT_DONE, PUT_REFUSED /* put->error */, PUT_BROKEN /* *why */ };
bool put_is_needed(const struct req *r);
/* ERR_MEMORY, or put->error tells. */
must_check enum err put_open(struct relay *l);
enum put_turn put_gather(struct relay *l, enum err *why);
enum put_turn put_pump(struct relay *l, enum err *why);
/* Has it gone on since that was said last? Also while it is not the client who is waited for. */
bool put_goes_on(struct relay *l);
enum put_turn put_late(struct relay *l, enum err *why); /* it does not, and is refused */
/* Nothing of the client's is under way any more, and the buffers are empty. False: again, when
 * woken, or *why tells that the client is gone. */
must_check bool put_halt(struct relay *l, enum err *why);
/* Tells the cache what changes; once. ERR_MEMORY, or put->error tells. */
must_check enum err put_doubt(struct relay *l);
bool put_is_doubting(const struct put *p); /* it is not durable yet */
/* bucket: as the store calls it. */
void put_doubt_object(struct relay *l, struct span bucket, struct span key, struct span version);
must_check enum err put_doubt_list(struct relay *l); /* put_list.c */
void put_refuse(struct relay *l, uint16_t status, const char *code, const char *why);
bool put_relays(const struct relay *l, struct span name);
must_check bool put_describe(struct relay *l);
/* The outcome is known, or never will be. False: again, when woken. */
must_check bool put_settle(struct relay *l);
must_check bool put_rest(struct relay *l); /* true: nothing of it is under way any more */
void put_close(struct relay *l);
/* put_keep.c */
void keep_begin(struct relay *l);    /* a body begins */
void keep_complete(struct relay *l); /* the list of a CompleteMultipartUpload is there */
void keep_answer(struct relay *l, const void *bytes, size_t len);
/* Before the doubt ends. good: upstream said so. False: again, when woken. */
must_check bool keep_settle(struct relay *l, bool good);
struct put *s3_put_take(struct core *c); /* zeroed; NULL: no memory */
void s3_put_give(struct core *c, struct put *p);

/* list.c */
/* Before upstream is asked, of a relay that is described. True: it is here. */
must_check bool list_open(struct relay *l);
void list_write_head(struct relay *l); /* of what is here */
void list_begin(struct relay *l);    /* the answer's head is known */
void list_add(struct relay *l, const void *bytes, size_t len);
void list_end(struct relay *l);      /* its body came whole */
void list_close(struct relay *l);    /* nothing of it is under way any more */

/* route.c */
/* Fills route and source. False: no upstream has the bucket, or its source is at another one; *e
 * tells the client. */
must_check bool s3_route(struct req *r, struct s3_error *e);
/* The source goes upstream by its store's name. */
void route_fields(const struct req *r, struct http_field *field, unsigned count);
/* The answer's head is known: false: no memory. With l->rename, bytes are received behind the first
 * XML_RENAME_GROWTH of a buffer, and route_answer_bytes() brings them to its front. */
must_check bool route_answer(struct relay *l);
/* *len of the bytes that came, and of those to be sent. ERR_UPSTREAM_PROTOCOL. */
must_check enum err route_answer_bytes(struct relay *l, void *mem, uint32_t *len);
/* buckets.c */
must_check struct buckets *buckets_open(struct req *r); /* NULL: no memory */
must_check enum err buckets_feed(struct buckets *b, struct span bytes);
/* The whole answer, in the request's arena. */
must_check enum err buckets_end(struct buckets *b, struct text *out);
void buckets_close(struct buckets *b); /* NULL is fine */

extern const struct request_ops s3_request_ops;
void get_begin(struct req *r);
void relay_begin(struct req *r);
bool merge_is_needed(const struct req *r); /* merge.c */
void merge_begin(struct req *r);
void loader_begin(struct req *r);
/* Writes the error into r->out and starts the machine that sends it. */
void answer_error(struct req *r, const struct s3_error *e);
void answer_text(struct req *r, uint16_t status); /* r->out holds a whole answer */
/* Every machine of a request ends here: counts, logs, hands the connection back. */
void req_over(struct req *r);
/* What an error of the house is to an S3 client (decisions on 502 and 503 in ARCHITECTURE). */
void s3_error_of(enum err why, struct s3_error *out);
void s3_error_of_upstream(const struct upstream_error *u, const struct s3_ask *a,
                          struct s3_error *out);
/* The first body or head byte leaves now. */
void req_first_byte(struct req *r);
/* A GET has nothing to send, to a client that would take it: the time until it has counts as
 * stalled, by the first cause; before the first byte that is since its head was here, or since
 * the stall before it. Nothing for other operations. */
void req_starves(struct req *r, enum label_stall why);
void req_feeds(struct req *r);       /* it has again, or ends */

/* Per process and core. */
struct keys;
must_check enum err s3_core_begin(struct core *c);
void s3_core_renew(struct core *c);  /* the core took other settings: keys may have changed */
void s3_core_end(struct core *c);
/* Main thread, about once a second: tells how many refused requests had no line in the log, when
 * their window is over; last: at once. */
void s3_tell_refusals(bool last);
/* The gate of the settings that the core works with in this turn. */
const struct s3_gate *s3_core_gate(const struct core *c);

#endif
