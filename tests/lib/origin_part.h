/* What the files of the test origin share among themselves: objects, knobs, the plan of an answer.
 *
 * Invariants:
 *  1. Everything in struct origin behind `lock` is read and written with it held; texts hung on
 *     rules and objects live
 *     until origin_stop(), so a plan may borrow them without it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_ORIGIN_PART_H
#define HEADPOND_TESTS_ORIGIN_PART_H

#include <pthread.h>
#include <stdatomic.h>

#include "tests/lib/bytes.h"
#include "tests/lib/origin.h"

#define ORIGIN_NUMBERS(X)                                                                          \
    X(MOST, "most")                                                                                \
    X(DELAY, "delay") X(RATE, "rate") X(TOTAL_RATE, "total_rate") X(STATUS, "status")              \
    X(RETRY_AFTER, "retry_after") X(CUT, "cut") X(RESET, "reset") X(STALL, "stall")                \
    X(SILENT, "silent") X(IGNORE_RANGE, "ignore_range") X(EXTRA, "extra") X(REPLACE, "replace")    \
    X(BUMP, "bump") X(VARY, "vary") X(CORRUPT, "corrupt") X(CHUNKED, "chunked")                    \
    X(CLOSE, "close") X(DRIP, "drip") X(PAD, "pad") X(VERSIONING, "versioning")                    \
    X(HEAD_CUT, "head_cut") X(CUT_LEFT, "cut_left") X(FIELDS, "fields") X(FLOOD, "flood")          \
    X(INTERIM, "interim") X(HALF, "half") X(SHIFT, "shift") X(IGNORE_MATCH, "ignore_match") \
    X(IGNORE_VERSION, "ignore_version")                                                            \
    X(MUTE, "mute") X(EARLY, "early") X(BODY_CUT, "body_cut") X(BODY_STALL, "body_stall")          \
    X(BODY_RATE, "body_rate") X(BLANKS, "blanks") X(BLANK_MS, "blank_ms")   \
    X(DISCARD, "discard")
#define ORIGIN_TEXTS(X)                                                                            \
    X(CODE, "code") X(REDIRECT, "redirect") X(LENGTH, "length") X(CONTENT_RANGE, "content_range")  \
    X(ETAG, "etag") X(RAW, "raw") X(BEFORE, "before") X(CHECKSUM, "checksum") X(TAIL, "tail")      \
    X(AFTER, "after") X(TOTAL, "total") X(DOCUMENT, "document") X(CLOCK, "clock") X(ONLY, "only")  \
    X(SUM, "sum")

enum knob_number {
#define X(name, text) NUMBER_##name,
    ORIGIN_NUMBERS(X)
#undef X
    NUMBER_COUNT
};
enum knob_text {
#define X(name, text) TEXT_##name,
    ORIGIN_TEXTS(X)
#undef X
    TEXT_COUNT
};

enum {
    KNOB_HEADERS_MAX = 16,           /* of a rule or an object, and of the sum in a plan */
    ORIGIN_BUCKETS_MAX = 64,
    ORIGIN_TABLE = 1 << 16,
    ORIGIN_LOG_MAX = 1 << 18,
    ORIGIN_LINE_MAX = 2000,
    ORIGIN_VERSIONS_MAX = 1000,      /* of an uploaded body */
    MODIFIED_STANDARD = 1767225600,  /* 2026-01-01: of objects that were never replaced */
};

struct knobs {
    uint64_t numbers_set;
    uint32_t texts_set;
    uint64_t number[NUMBER_COUNT];
    struct span text[TEXT_COUNT];
    struct span header[KNOB_HEADERS_MAX];
    unsigned headers;
};
static inline bool knob_is(const struct knobs *k, enum knob_number n)
{
    return k->numbers_set >> n & 1;
}
static inline uint64_t knob(const struct knobs *k, enum knob_number n)
{
    return knob_is(k, n) ? k->number[n] : 0;
}
static inline struct span knob_text(const struct knobs *k, enum knob_text t)
{
    return k->texts_set >> t & 1 ? k->text[t] : span_of("");
}

struct rule {                        /* a set or next line */
    struct rule *next;               /* in the order of the script */
    struct span where;               /* "" = everywhere */
    struct span method;              /* next: "" = any */
    uint64_t skip, count;            /* next: how often not yet, how often still */
    struct knobs knobs;
};

struct object {
    struct object *next;             /* in the table */
    struct span bucket, key;
    uint64_t size, version, modified_s;
    struct span etag;                /* literal; "" = bytes_etag() */
    struct span header[KNOB_HEADERS_MAX];
    unsigned headers;
    bool listed, gone;               /* listed: from an object line */
    _Atomic uint64_t requests, body_bytes;
};

enum ask_kind { ASKED_OBJECT, ASKED_LIST, ASKED_BUCKETS, ASKED_BUCKET, ASKED_LOCATION };

enum { REQUEST_HEAD_MAX = 64 * KIB, KEY_MAX = 3 * KIB };

struct request {
    enum ask_kind kind;
    struct span method, target, query;
    struct span bucket, key;         /* decoded, in name[] */
    struct span range, if_match, if_none_match, date;
    struct span fields;              /* all of them, as sent */
    bool checksum_mode, close, chunked, expect, wrapped, copies;
    uint64_t length;
    char name[KEY_MAX];
};

/* An answer, decided under the lock and sent without it. */
struct plan {
    uint16_t status;
    const char *code;                /* of an error document */
    struct knobs knobs;              /* merged */
    struct object *object;           /* NULL: none */
    uint64_t size, from, to;         /* body: bytes from..to-1 */
    uint64_t seed, version, modified_s;
    int64_t clock_s;                 /* the origin's clock minus ours */
    char etag[128];
    bool ranged;                     /* 206 */
};
/* origin_sum.c: the knob sum=. The ETag, if it is to be an MD5; a field, if it is another sum. */
bool origin_sum_etag(struct plan *p);
void origin_sum_field(const struct plan *p, struct text *out);
_Static_assert(NUMBER_COUNT <= 64 && TEXT_COUNT <= 32, "knobs that are set are bits");

/* A request's body while it is taken. */
struct intake {
    uint64_t got, object;            /* bytes on the wire; of the object in them */
    uint64_t left;                   /* aws-chunked: of the chunk under way */
    uint64_t first, last;            /* versions that it may still be the bytes of */
    bool matches[ORIGIN_VERSIONS_MAX + 1];
    uint8_t state;
    bool broken;                     /* malformed aws-chunked, or no version's bytes */
    char line[512];
    size_t line_len;
    char trailers[512];
};

struct connection {
    struct origin *origin;
    struct connection *next;         /* of all; under lock */
    int fd;
    pthread_t thread;
    _Atomic bool over;
    uint64_t paced_us;               /* when the next byte is due */
    unsigned marks;                  /* the origin's when bytes were counted that are being sent */
    struct request request;
    struct plan plan;
    struct intake intake;
    size_t filled;
    char in[REQUEST_HEAD_MAX];
    char out[256 * KIB];
};

struct origin {
    pthread_mutex_t lock;
    /* ---- objects and rules ---- */
    struct object *table[ORIGIN_TABLE];
    struct object **sorted;          /* listed objects by (bucket, key); NULL: to be made */
    unsigned listed, made;
    struct span bucket[ORIGIN_BUCKETS_MAX];
    unsigned buckets;
    bool closed_world;               /* a bucket line was seen */
    struct rule *set, *once;
    struct kept *kept;               /* every text ever hung somewhere */
    /* ---- counters ---- */
    struct origin_stats stats;
    _Atomic uint64_t body_bytes;
    unsigned marks;                  /* how often it began to count anew */
    _Atomic uint64_t paced_us;       /* of total_rate */
    char **log;
    unsigned logged;
    bool log_on;
    /* ---- sockets and threads ---- */
    struct connection *connections;
    int listener, reserve, control, stop;
    uint16_t port, control_port;
    char address[64];
    bool listening;
    pthread_t acceptor, controller;
    bool has_controller;
};

/* origin_rules.c */
struct object *origin_object(struct origin *o, struct span bucket, struct span key, bool make);
bool origin_has_bucket(struct origin *o, struct span bucket);
void origin_plan(struct origin *o, const struct request *r, struct plan *out); /* takes the lock */
void origin_note(struct origin *o, const struct request *r);                    /* takes the lock */
void origin_note_line(struct origin *o, struct span line);                      /* takes the lock */
bool request_writes(const struct request *r);
/* A PUT's body came whole: the object has this version and size from now on. Takes the lock. */
void origin_store(struct origin *o, const struct request *r, uint64_t version, uint64_t size,
                  struct plan *p);
void origin_forget(struct origin *o);       /* frees objects and the list of requests */

/* origin_script.c */
void origin_forget_rules(struct origin *o); /* frees rules and kept texts */

/* origin_list.c: documents, as text that the caller gives back by mem_give(); NULL without memory.
 * */
char *origin_list(struct origin *o, const struct request *r, size_t *len);      /* takes the lock */
char *origin_buckets(struct origin *o, size_t *len);                            /* takes the lock */
bool origin_query(struct span query, const char *name, char *out, size_t cap);
size_t origin_decode(struct span in, bool plus, char *out, size_t cap);
void origin_date(uint64_t unix_s, char out[40]);

/* origin_take.c: bodies of requests */
enum taken { TAKEN_WHOLE, TAKEN_EARLY, TAKEN_OVER };
/* The head has used bytes; *used grows by what of the body stood behind it. EARLY: answer now, then
 * end the connection. OVER: it has ended. */
enum taken origin_take(struct connection *c, size_t *used);

/* origin_answer.c */
bool origin_wait_until(struct connection *c, uint64_t due_us);
bool origin_send(struct connection *c, const char *at, size_t len, uint64_t *taken);
void origin_make_reset(struct connection *c);
void *origin_serve(void *connection);  /* a thread */

/* origin.c */
bool origin_listen(struct origin *o, bool on);  /* lock is held */
void origin_cut(struct origin *o);              /* lock is held */

#endif
