/* Upstream as the files of this folder know it, and their tests.
 *
 * Invariants:
 *  1. Nothing outside the folder includes this header.
 *
 * Life: from origin_open() to origin_close(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_ORIGIN_INSIDE_H
#define HEADPOND_ORIGIN_INSIDE_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/origin/origin.h"

enum {
    ORIGIN_CORES_MAX = 256,
    ORIGIN_HOST_BYTES = ENDPOINT_HOST_BYTES,
    ORIGIN_REGION_BYTES = ENDPOINT_REGION_BYTES,
    ORIGIN_ADDRESSES_MAX = 32
};

/* ---- address.c: the endpoint's addresses, their health, the resolver's thread ---- */
struct address {
    struct sockaddr_storage at;
    socklen_t len;                   /* 0 = an empty place */
    uint64_t seen_ms;                /* last in an answer of the resolver */
    uint64_t rest_until_ms;          /* failed; tried before only when nothing else is left */
    uint32_t rest_ms;                /* of the next failure */
};
struct addresses;
/* Starts the thread for names and waits at most 3 s for the first answer. public_ok: plain HTTP to
 * public addresses is allowed (else they are not used; *refused tells that the first answer had
 * one). ERR_SYSTEM, ERR_MEMORY. */
must_check enum err addresses_open(const struct endpoint *p, bool public_ok, struct addresses **out,
                                   bool *refused);
void addresses_close(struct addresses *a);
bool addresses_add(struct addresses *a, const struct sockaddr *at, socklen_t len);
void addresses_refresh(struct addresses *a); /* asks the resolver now, not in 30 s */
unsigned addresses_count(struct addresses *a);
bool addresses_left(struct addresses *a, uint32_t tried); /* is there one that was not tried? */
void addresses_drop(struct addresses *a, uint64_t now_ms); /* those not seen for two minutes */
/* False: it was dropped. *drops is the caller's, 0 at first: so most looks take no lock. */
bool addresses_has(struct addresses *a, const struct sockaddr_storage *at, uint32_t *drops);
/* The next to try: healthy before resting ones, IPv6 first (RFC 8305), then the other family than
 * the last, spread over all. *tried has a bit for each place tried so far. -1: none is left. */
int addresses_pick(struct addresses *a, uint64_t now_ms, uint32_t *tried, struct address *out);
/* good: it took a connection. Who took one and is no good all the same (silent, TLS failed) is bad.
 * By address, since its place may be another's by then. */
void addresses_judge(struct addresses *a, const struct sockaddr_storage *at, bool good,
                     uint64_t now_ms);

/* ---- throttle.c: how much may be asked (pure; any thread) ---- */
struct throttle {
    _Atomic uint32_t most, least;
    _Atomic uint32_t level;          /* the limit, in 1/256 */
    _Atomic uint64_t cut_us;         /* when it was lowered last */
    _Atomic int32_t tokens;          /* of the retry budget */
    _Atomic uint64_t paid_us;        /* the bandwidth is used up to then */
};
void throttle_init(struct throttle *t, uint32_t most);
void throttle_set_most(struct throttle *t, uint32_t most); /* upstream.connections has changed */
/* upstream.bandwidth, rate in bytes per second: may more be taken now? *wait_us: when to ask
 * again. */
bool throttle_may_take(const struct throttle *t, enum ask_class class_, uint64_t now_us,
                       uint64_t *wait_us);
void throttle_took(struct throttle *t, uint64_t rate, uint64_t bytes, uint64_t now_us);
uint32_t throttle_limit(const struct throttle *t);     /* requests at once */
uint32_t throttle_limit_ahead(const struct throttle *t); /* of them read-ahead and prefetch */
/* An answer said: slow down. False: it was asked before the last cut, which was for it, too. */
bool throttle_slowed(struct throttle *t, uint64_t sent_us, uint64_t now_us, uint32_t *from,
                     uint32_t *to);
bool throttle_worked(struct throttle *t); /* a good answer; true: the limit has grown */
bool throttle_may_retry(struct throttle *t, bool awaited); /* true: it is paid for */
/* A Retry-After field as milliseconds from now_s (upstream's clock), at most most_ms; 0: none. */
uint64_t retry_after_ms(struct span field, uint64_t now_s, uint64_t most_ms);

/* ---- width.c: how many connections what nobody waits for may have (pure; any thread) ---- */
struct width {
    _Atomic uint32_t limit;
    _Atomic uint64_t bytes;          /* since the window began */
    _Atomic uint64_t until_us;       /* it ends */
    _Atomic uint32_t out;            /* in the window at once, at most; 0: nobody took one */
    _Atomic bool limits;             /* readers' misses are about, or were until a while ago */
    _Atomic bool switched;           /* in the window that began, or ended */
    _Atomic uint64_t beside_us;      /* the last was seen */
    _Atomic bool judging;            /* the rest belongs to who set it */
    uint64_t began_us;
    uint32_t good, held;             /* limit outside of trials; windows at it since the last one */
    double rate;                     /* bytes per us at it; 0: not known yet */
    bool doubles, widens, settles;
};
void width_init(struct width *w);
uint32_t width_limit(const struct width *w);           /* UINT32_MAX: none */
void width_out(struct width *w, uint32_t out);         /* one was taken: so many are out now */
/* So many bytes came of what nobody waits for; beside: while readers' misses are under way; most:
 * how many connections it could have at all. True: the limit has changed. */
bool width_took(struct width *w, uint64_t bytes, bool beside, uint32_t most, uint64_t now_us);

/* ---- permit.c ---- */
enum { PERMITS_MAX = 4096 };         /* upstream.connections */
struct permit {                      /* lives in whoever waits for it */
    struct message msg;
    struct node node;                /* in the class's queue; under the origin's lock */
    struct machine *m;
    struct origin *origin;
    uint8_t class_;                  /* under the lock while queued */
    bool bulk;
    bool queued;                     /* own thread: asked, not yet held */
    bool held;                       /* own thread */
};
/* True: held. False: queued (counted in m->inflight); m is woken when held. bulk: it is for an
 * object's bytes, not for what is known of it. */
bool permit_ask(struct permit *p, struct origin *o, struct machine *m, enum ask_class class_,
                bool bulk);
/* Leaves the queue. False: the permit is on its way, a wake comes with p->held. */
bool permit_leave(struct permit *p);
void permit_give(struct permit *p);
/* Queued: it goes on as of that class, if that comes sooner. */
void permit_hurry(struct permit *p, enum ask_class class_);
bool permit_is_behind(const struct permit *p);         /* width.c counts it */
void permits_grown(struct origin *o, struct core *own); /* a limit has grown */
uint32_t permits_most(const struct origin *o, enum ask_class class_); /* whatever width.c says */
bool permits_awaited(const struct origin *o);          /* one is held for a reader's miss */
void origin_tell_limits(const struct origin *o);         /* pool.c: to the metrics */
void permits_status(struct origin *o, uint32_t *active, uint32_t *queued);

/* ---- one exchange's private half ---- */
enum {
    SHEET_OUT_BYTES = 16 * KIB,
    SHEET_PEEK_BYTES = 4 * KIB /* an S3 error document has some 500 */
};
struct sheet {                       /* what only an exchange with a connection needs */
    struct http_head head;
    char out[SHEET_OUT_BYTES];             /* the request; later chunked bytes as received */
    char in[EXCHANGE_HEAD_BYTES];    /* the head, and what came with it */
    char peek[SHEET_PEEK_BYTES];           /* body bytes looked at before the owner gets them */
};

struct body {
    /* came with the head (raw), then with the last receive of a chunked body */
    struct span early;
    struct span peeked;              /* unframed, from peek */
    struct http_chunked chunked;
    uint64_t left;                   /* LENGTH */
    uint64_t seen;                   /* by LEARN or THROW so far */
    bool at_end;
};

struct outgoing {                    /* upload.c: of the request's body; all but the first two: of
                                      * this try */
    uint64_t given;                  /* bytes written by the owner so far */
    bool left;                       /* a byte of a streamed body may have left */
    bool bare;                       /* without Expect: upstream does not know it (417) */
    bool go;                         /* 100 came */
    bool unheard;                    /* it was waited for in vain */
    struct span piece;               /* given, and not yet out; may wait for the next try */
    size_t part;                     /* of it: what the link sends now; 0 = nothing */
    uint64_t out_bytes;              /* the link has sent them */
    uint64_t taken;                  /* by the socket, and what stood in it, when the */
    uint32_t queued;                 /* deadline was set */
    enum err why;                    /* no more can be sent; upstream may say why */
};

struct errand {
    struct node node;                /* errands_alive of its core */
    struct exchange *x;
    struct link *link;
    struct sheet *sheet;
    struct permit permit;
    struct timer deadline;
    struct body body;
    struct outgoing upload;
    uint64_t asked_us, out_us;       /* its head left; all of it left */
    uint64_t dial_by_ms, pause_ms;
    uint64_t dial_left_ms;           /* for the next try; 0 = all of it */
    size_t in_len, head_len;
    uint32_t tries;                  /* sent again so far */
    enum err last;                   /* how the last try failed */
    uint8_t after;                   /* the step behind DROP */
    uint8_t informational;
    bool sent, answered, fresh, region_learnt, clock_learnt, told;
    bool slow, was_slow;             /* this try, one before: a patient ask waited in vain */
    char region[ORIGIN_REGION_BYTES];
    char detail[128];
};

struct region_entry {
    char bucket[BUCKET_BYTES_MAX + 1], region[ORIGIN_REGION_BYTES];
};
enum { REGION_ENTRIES_MAX = 64, BREAKER_FAILURES = 3 };
struct probe_target {
    char bucket[BUCKET_BYTES_MAX + 1], key[KEY_BYTES_MAX + 1];
    size_t bucket_len, key_len;
};
#define CLOCK_UNKNOWN INT64_MIN

struct lister;
struct origin {
    struct server *server;
    unsigned number;                 /* in the configuration, and in server->origin */
    const struct conf_upstream *config; /* of the start */
    struct endpoint endpoint;
    char *store_name;
    char *region;
    unsigned label;                  /* NAMED_UPSTREAM */
    struct addresses *addresses;     /* NULL for a directory */
    struct tls_context *tls;         /* NULL for plain HTTP */
    struct lister *lister;           /* directory only */
    struct refresher *refresher;     /* of all upstreams, if it was opened for this one */
    int root_fd;                     /* directory only, else -1 */
    char warning[160];
    /* permits */
    /* of each core; freed by origin_close() */
    _Atomic(struct origin_part *) part[ORIGIN_CORES_MAX];
    pthread_mutex_t lock;
    struct list queue[ASK_CLASS_COUNT];    /* under lock */
    uint32_t permit_turn;            /* under lock */
    _Atomic uint64_t permit_state;   /* out, ahead, behind, waiting */
    _Atomic uint32_t permit_misses;  /* of those out: readers wait for an object's bytes */
    _Atomic uint32_t readers;        /* who wait for bytes, whether one is out for them or not */
    _Atomic uint32_t rests;          /* of those out, the ones of ASK_REST, */
    _Atomic uint32_t rests_queued;   /* and of those queued; this one under lock for changes */
    struct throttle throttle;
    struct width width;
    /* breaker */
    _Atomic bool down, failing;      /* failing: failed_ms holds something */
    _Atomic uint64_t down_ms;        /* since when */
    _Atomic unsigned prober;         /* number of the core that probes */
    uint64_t failed_ms[BREAKER_FAILURES]; /* newest first; under lock */
    struct probe_target target;      /* under lock */
    /* learnt */
    struct region_entry regions[REGION_ENTRIES_MAX]; /* under lock */
    _Atomic uint32_t region_count;   /* ever learnt */
    _Atomic int64_t clock_offset_s;  /* upstream's clock minus ours, once it complained */
    _Atomic uint64_t mute_until_us;  /* it took a body and never said 100: it is not waited for */
    _Atomic int64_t clock_seen_s;    /* the same by the last answer's Date; CLOCK_UNKNOWN */
    _Atomic uint32_t rtt_us, idle;
    _Atomic uint64_t throttled_ms;   /* last slow-down, 0 = never */
    _Atomic uint8_t tls_minor;       /* of the last handshake; 0: there was none */
    _Atomic uint64_t certificate_ends_s;
    /* GetObject and ListBucket by the server's own credentials */
    struct origin_rights {
        _Atomic bool allowed;        /* once, at least */
        _Atomic uint32_t refused;    /* since */
    } gets, lists;
};

#define KEEPER_STEPS(S) S(keeper, TEND) S(keeper, DRAIN) S(keeper, END)
struct keeper {                      /* closes links that idle too long, and those given up */
    struct machine m;
    struct timer timer;
    struct list dying;
};
#define PROBER_STEPS(S) S(prober, SLEEP) S(prober, PROBE) S(prober, DRAIN) S(prober, END)
enum { PROBES_MAX = 4 };
struct prober {
    struct machine m;
    struct timer timer;
    struct probe_target target;
    struct ask ask[2];               /* the probes take turns */
    struct probe {
        struct exchange x;
        bool busy;                   /* begun, not over */
    } probe[PROBES_MAX];
    unsigned next;
    bool draining;
};
struct origin_part {                 /* one core's share of an upstream */
    struct origin *origin;
    struct core *core;
    struct stock errands, sheets, links, dirs;
    struct list idle;                /* links, newest first */
    uint32_t idle_count;
    struct list errands_alive;
    struct keeper keeper;
    struct prober prober;
    struct sign_key_cache key;
    struct message down_msg;         /* "upstream is down": wakes every errand */
    _Atomic bool down_sent;
};
struct origin_core {                 /* core->origin */
    unsigned count;
    struct origin_part *part[CONF_UPSTREAMS_MAX];
};
static inline struct origin_part *origin_part(const struct core *c, unsigned number)
{
    const struct origin_core *mine = c->origin;
    return mine->part[number];
}
/* Its options as they are now. */
static inline const struct conf_upstream *origin_config(const struct origin *o,
                                                        const struct core *c)
{
    return &c->settings->config->upstream[o->number];
}
/* ---- breaker.c ---- */
/* No answer could be had: connect, DNS, TLS, time-outs, a connection closed before any byte. */
void origin_failed(struct origin *o, struct core *c, const struct ask *ask, enum err why);
struct answer_seen {
    unsigned status;
    uint64_t sent_us;                /* when its request left */
};
/* A head came, whatever it says. */
void origin_answered(struct origin *o, struct core *c, const struct answer_seen *a);
bool status_is_slow(unsigned status);      /* asks for fewer requests */
bool status_is_transient(unsigned status); /* may be another one next time */
void breaker_deliver(struct core *c, struct message *msg);
void prober_begin(struct prober *p, struct core *c);

/* ---- pool.c: idle links, what was learnt ---- */
/* The region to sign with for this bucket. */
void origin_region(struct origin *o, struct span bucket, char out[ORIGIN_REGION_BYTES]);
void origin_learn_region(struct origin *o, struct span bucket, struct span region);
/* an idle link that still seems alive and where the store still is, or NULL */
struct link *pool_link_take(struct origin_part *part);
void pool_link_keep(struct origin_part *part, struct link *l);
void pool_links_close(struct origin_part *part);       /* the idle ones */
void pool_link_bury(struct origin_part *part, struct link *l); /* no op of it is busy */

/* ---- link.c: one connection; its ops run in the machine of the exchange that holds it ---- */
enum link_state { LINK_BUSY, LINK_OK, LINK_END, LINK_BROKEN };
enum { LINK_LANES = 2 };
struct lane {                        /* an address that is being dialled, or was */
    struct sockaddr_storage to;
    socklen_t len;
    int fd;                          /* -1: none */
    uint64_t since_ms;               /* 0: not dialled yet */
    bool dialling;
};
struct tls;
struct link {
    struct node node;                /* idle, or dying */
    struct origin *origin;
    struct tls *tls;                 /* NULL: plain */
    uint8_t *cipher;                 /* received and not yet decrypted; TLS only */
    struct op send, recv, cancel_send, cancel_recv;
    struct lane lane[LINK_LANES];    /* while it connects; their ops are send and recv */
    struct lane *winner;             /* connected first; NULL: nobody yet */
    uint32_t tried;                  /* addresses, as addresses_pick() counts them */
    enum err dial_why;               /* how the last lane failed */
    bool due;                        /* it is the next address's turn */
    const char *out;                 /* plain: what is still to be sent */
    uint32_t out_len;
    uint64_t taken;                  /* bytes that the socket took, ever */
    enum err mute;                   /* why nothing more can be sent; OK: it can */
    int fd;                          /* -1: it connects */
    uint32_t silent_ms;              /* unacknowledged for so long = dead */
    uint32_t patient_ms;             /* what it is now; 0 = not set */
    uint64_t idle_since_ms;
    uint32_t drops;                  /* of addresses, when its own was looked for last */
    uint32_t answers;                /* > 0: it was used before */
    char detail[128];                /* of a TLS failure */
};
/* For the first address to try. NULL: ERR_UPSTREAM_DNS if none is known, ERR_BUSY if descriptors or
 * memory are used up. */
struct link *link_open(struct origin_part *part, enum err *why);
void link_free(struct origin_part *part, struct link *l); /* its descriptor is closed already */
/* Connects to whichever address answers first; called at each wake until it is no longer LINK_BUSY.
 * timer is the link's meanwhile. LINK_BROKEN: all failed, or by_ms has come. */
enum link_state link_dial(struct link *l, struct machine *m, struct timer *timer, uint64_t by_ms,
                          enum err *why);
enum link_state link_shake(struct link *l, struct machine *m, enum err *why);
/* bytes stay until link_sent() is no longer LINK_BUSY; l->taken shows progress meanwhile. Over TLS
 * at most TLS_WRITE_BYTES_MAX at a time. The link may be pulled from at the same time, also when it
 * cannot send any more. */
enum link_state link_send(struct link *l, struct machine *m, struct span bytes, enum err *why);
enum link_state link_sent(struct link *l, struct machine *m, enum err *why);
/* Nothing more will be sent: cancels what is under way; true when nothing is. What the link took to
 * the end all the same is told by link_sent(). */
bool link_hush(struct link *l, struct machine *m);
/* Bytes that the socket took and the peer did not acknowledge yet; 0 also if unknown. */
uint32_t link_queued(const struct link *l);
/* Received bytes into mem (LINK_OK, *got > 0), or LINK_BUSY: call again with the same mem when
 * woken. LINK_END: closed in order. */
enum link_state link_pull(struct link *l, struct machine *m, void *mem, size_t cap, size_t *got,
                          enum err *why);
/* A peer may take nothing for so long before it is dead, or silent_ms if that is longer. To the
 * kernel one that has no room for more is like one that does not acknowledge. */
void link_bear(struct link *l, uint64_t ms);
/* Its close will be a reset: what the socket still holds does not leave, and the peer hears of the
 * end now, not behind what it does not read. */
void link_tear(struct link *l);
/* Cancels what is under way; true when nothing is. */
bool link_settle(struct link *l, struct machine *m);
/* An answered link may be used again: no op, nothing unread. */
bool link_clean(struct link *l);

/* ---- ask.c: an ask as bytes on the wire ---- */
/* Writes the signed request head; expect: with Expect: 100-continue. ERR_TOO_LARGE, ERR_SYNTAX (a
 * control byte in query or fields), ERR_CREDENTIALS. */
must_check enum err ask_write(struct origin_part *part, const struct ask *a, struct span region,
                              bool expect, struct text *out);

/* ---- upload.c: the body of a request on its way out ---- */
bool upload_streams(const struct ask *a);              /* by exchange_write() */
/* Upstream is asked whether it wants the body, before any of it leaves. */
bool upload_expects(const struct exchange *x);
/* A store that took a body for which it never said 100 is not waited for in the next ten minutes;
 * one 100, which may come while the body is on its way, ends that. */
bool origin_is_mute(const struct exchange *x);
/* The answer has come: what its 100, or the lack of it, teaches. */
void exchange_learn_mute(struct exchange *x);
void upload_begin(struct exchange *x);                 /* a try begins: its link is new to it */
/* No byte of a body is still to be sent; also true of a request without one. */
bool upload_whole(const struct exchange *x);
/* Keeps the body going. LINK_OK: all of it is out. LINK_BUSY: a wake will come, by the link or by
 * the owner. LINK_BROKEN: no more can be sent, and no answer can be hoped for. */
enum link_state upload_move(struct exchange *x, enum err *why);
/* Asked when a wake came and nothing else: true when e->deadline passed without a byte taken. */
bool upload_is_late(struct exchange *x);
/* All of it is out: what still stands in the socket extends the wait for an answer. */
bool upload_drains(struct exchange *x);
/* An answer came before the body was out. True: no more is sent, the owner's memory is free. */
bool upload_halt(struct exchange *x);
/* Nothing of a body will be sent any more, and no op touches it: frees the owner's memory. */
void upload_end(struct exchange *x);

/* ---- answer.c: what an answer says ---- */
/* Reads until a whole head is in the sheet: LINK_OK. 1xx are skipped; a 100 is noted in upload.go.
 * LINK_BUSY: a wake will come. LINK_BROKEN: none will. */
enum link_state head_pull(struct exchange *x, enum err *why);
void body_begin(struct errand *e);                     /* sheet->head is an answer's */
/* Body bytes without their framing, as link_pull(). LINK_END: body.at_end, nothing more came;
 * at_end may also come with the last bytes. */
enum link_state body_pull(struct exchange *x, void *mem, size_t cap, size_t *got, enum err *why);

/* head is set: fills the fields made from it */
void exchange_note(struct exchange *x);

/* ---- account.c: what an exchange tells, and what it learns ---- */
void exchange_count_request(struct exchange *x, enum label_code code);
void exchange_count_answer(struct exchange *x);        /* a whole head is there */
enum origin_right origin_right(const struct origin_rights *r);
void exchange_tell_failure(struct exchange *x);        /* for good; m.why tells */
void exchange_log_refusal(struct exchange *x, const char *what);
/* The clock in an answer's Date differs so much that a 403 may come from it. True: ask again. */
bool exchange_learn_clock(struct exchange *x);
/* True: it is another region than the request was signed for. */
bool exchange_learn_region(struct exchange *x, struct span region);

/* ---- exchange.c, dir.c ---- */
void dir_begin(struct exchange *x, struct core *c);
/* of a directory exchange's memory, for its stock */
size_t dir_bytes(void);
void errand_wake_all(struct origin_part *part);

/* ---- retry.c: whether and when an exchange's request is sent again ---- */
bool errand_may_repeat(const struct exchange *x);      /* nothing is done twice by it */
/* One more try? It is paid for and counted. The pause before it, with what upstream asked for. */
bool errand_may_retry(struct exchange *x, enum err why);
bool errand_retries_status(struct exchange *x);        /* the same, for the answer that came */
uint64_t errand_pause_ms(const struct exchange *x, uint64_t asked_ms);
/* Does this failure say that upstream is not there? */
bool errand_met_nobody(const struct errand *e, enum err why);
void errand_blame(struct exchange *x, enum err why);   /* tells breaker and addresses so */
/* What is left of the connect deadline for a try after e->pause_ms. */
uint64_t errand_dial_left_ms(const struct exchange *x, bool silent);
uint64_t errand_answer_ms(const struct exchange *x);   /* how long an answer may take */

/* ---- call.c: one HTTP request of a thread that may block, and its whole answer ---- */
enum { CALL_BODY_BYTES_MAX = 64 * KIB };
struct call {                        /* borrowed */
    const char *url;                 /* http:// or https://, may have a query; what follows is */
    const char *path;                /* appended to its path */
    enum http_method method;
    struct span fields;              /* whole lines, of the caller's making; Host is added */
    struct span body;                /* of a POST */
    bool (*plain_ok)(const struct sockaddr *at); /* plain HTTP goes nowhere else; NULL: anywhere */
    const char *ca_file;             /* "" = the system's store */
    bool insecure;
    uint32_t connect_ms, answer_ms;  /* to each address; for all the rest */
};
struct call_answer {
    unsigned status;
    struct span body;                /* in memory; at most CALL_BODY_BYTES_MAX */
    bool connected;                  /* also of a failed call: somebody took the connection */
    char *memory;
    size_t len, cap;
};
/* Writes the Host field's value. ERR_SYNTAX, ERR_TOO_LARGE. */
must_check enum err call_host(const char *url, struct text *out);
/* Redirects are answers like others. ERR_UPSTREAM_* and ERR_SYNTAX (the URL), ERR_DENIED (plain
 * HTTP to where it must not go), ERR_TOO_LARGE, ERR_MEMORY, with words in *why that show nothing of
 * the answer. In every case call_end() wipes and frees. */
must_check enum err call_make(const struct call *c, struct call_answer *out, struct text *why);
void call_end(struct call_answer *a);
bool address_is_loopback(const struct sockaddr *at);

/* ---- process.c: what a command prints ---- */
/* Runs it without a shell; its answer is the caller's to wipe and free (mem_give_secret(at, cap)).
 * ERR_CREDENTIALS with words; ERR_MEMORY. */
must_check enum err process_run(const char *command, uint32_t limit_ms, char **out, size_t *len,
                                struct text *why);
enum { PROCESS_ANSWER_CAP = CALL_BODY_BYTES_MAX + 1 };

/* ---- issue.c: takes the steps of a plan (blocking) ---- */
struct creds;
struct creds_plan;
/* ERR_NOT_FOUND: instance metadata does not exist here, or there is no role. ERR_CREDENTIALS with a
 * sentence that shows nothing of an answer; ERR_MEMORY. */
must_check enum err issue_creds(const struct creds_plan *p, struct creds *out, struct text *why);

/* ---- refresh.c: credentials that end, and the thread that gets the next ones ---- */
struct refresher;
must_check enum err refresher_open(struct server *s, struct refresher **out);
void refresher_close(struct refresher *r);
/* Fills settings that nobody else sees yet; waits up to 10 s for those who are asked. first: what
 * cannot be had is tried again later, and the settings wait; else ERR_CREDENTIALS with *why when it
 * is asked for in a new way, and nothing changes. */
must_check enum err refresher_fill(struct refresher *r, struct settings *t, bool first,
                                   struct text *why);
bool refresher_has_news(struct refresher *r);
/* The newest settings with what came since, to be published; NULL: nothing did, or no memory. */
struct settings *refresher_take(struct refresher *r);
struct refresher_status {
    char error[256];                 /* of the last try; "" = it worked */
    uint64_t failed_s;               /* when it failed first since, Unix time */
};
void refresher_status(struct refresher *r, const char *profile, struct refresher_status *out);
/* When new ones are asked for, in ms from now (pure; dice: any number). */
uint64_t refresh_after_ms(uint64_t left_ms, uint64_t dice);
uint64_t refresh_again_ms(unsigned failures, uint64_t dice); /* after that many failures */

/* ---- dir_names.c: names of large directories, from one page of a list to the next ---- */
/* of one directory: 150 000 names of 20 bytes; a few of the longest */
enum { DIR_NAMES_BYTES = 4 * MIB, DIR_NAMES_LEAST = 4 * KIB };
struct names_of {                    /* compared as bytes */
    uint64_t bucket_inode, inode, path_len;
    uint64_t changed_ns, modified_ns; /* modulo 2^64 */
    uint32_t bucket_major, bucket_minor, major, minor;
};
struct dir_names;                    /* what is kept; of one thread */
/* bytes: of one directory, DIR_NAMES_LEAST or more. NULL: no memory. */
must_check struct dir_names *dir_names_make(size_t bytes);
void dir_names_free(struct dir_names *k); /* NULL is fine */
bool dir_names_tidy(struct dir_names *k); /* drops what is old; true: some are left */
/* The smallest of one directory that do not come before low, at most so many (2 or more), and as
 * fit into what k (NULL: DIR_NAMES_BYTES) gives to one. Added once each in any order, only those
 * that begin with prefix; then sorted. NULL: no memory. */
struct names;
must_check struct names *names_make(const struct dir_names *k, const struct names_of *of,
                                    struct span prefix, struct span low, size_t most);
void names_free(struct names *n);    /* NULL is fine */
must_check enum err names_add(struct names *n, struct span name); /* ERR_MEMORY */
void names_sort(struct names *n);
size_t names_count(const struct names *n);
struct span names_get(const struct names *n, size_t i); /* of those that were sorted */
size_t names_from(const struct names *n, struct span low); /* the first that is not before it */
bool names_more(const struct names *n); /* the directory has some behind the last */
/* All names that begin with prefix are here, from low on up to the last. Until the next call.
 * NULL: they are not kept. */
const struct names *names_find(struct dir_names *k, const struct names_of *of, struct span prefix,
                               struct span low);
bool names_known(const struct dir_names *k, const struct names_of *of); /* whatever its times */
/* It did not change just now: a change from now on shows in its times. */
bool names_are_settled(const struct names_of *of);
/* Takes sorted ones over, of a directory that was settled before the pass and was *after when that
 * was over: else they are freed. */
void names_keep(struct dir_names *k, struct names *n, const struct names_of *after);

/* ---- dir_walk.c: the keys below a directory, in order (blocking) ---- */
enum { DIR_ETAG_BYTES = 36, DIR_PATH_BYTES = KEY_BYTES_MAX + 1 };
struct statx;
void dir_etag(const struct statx *st, char out[DIR_ETAG_BYTES + 1]); /* with its quotes */
bool dir_bucket_name(struct span bucket);              /* may be a bucket at all */
/* names a file: UTF-8, no empty, "." or ".." segment, no NUL, no slash at its end */
bool dir_key_name(struct span key);
/* Opens below a directory (the root, a bucket) without leaving it, also by links: a descriptor or
 * -errno. */
int dir_open(int below_fd, const char *path, uint64_t flags);
int dir_stat(int below_fd, const char *path, struct statx *out); /* 0 or -errno */
/* What an -errno means to a list: OK: nothing is there for us; ERR_UPSTREAM_CONNECT, ERR_MEMORY */
must_check enum err dir_missing(int result);
struct walk;
struct walk_item {
    struct span key;                 /* a key, or a common prefix; until the next call */
    bool prefix;
    uint64_t size, modified_ms;
    char etag[DIR_ETAG_BYTES + 1];
};
struct dir_place {
    int fd;                          /* the bucket, or the root; O_PATH suffices */
    struct dir_names *kept;          /* NULL: every page reads its directories anew */
    const _Atomic bool *unwanted;    /* NULL, or ERR_TIMEOUT once it is set, by any thread */
};
/* Keys of a bucket that begin with prefix; with a delimiter, those that share the text up to it are
 * one common prefix. The bucket's descriptor outlives the walk. NULL: no memory. */
must_check struct walk *walk_open(const struct dir_place *bucket, struct span prefix,
                                  struct span delimiter);
void walk_close(struct walk *w);
/* begin behind a key (and the common prefix that it lies in) */
void walk_after_key(struct walk *w, struct span key);
/* begin behind all keys that start so */
void walk_after_prefix(struct walk *w, struct span prefix);
/* *more: out is the next item. ERR_MEMORY, ERR_UPSTREAM_CONNECT (unreadable), ERR_TIMEOUT. */
must_check enum err walk_next(struct walk *w, struct walk_item *out, bool *more);

/* ---- dir_list.c: buckets and listings of a directory, on a thread of its own ---- */
struct dir_answer {
    uint16_t status;
    char *body;                      /* mem_take'n; NULL: none */
    size_t len;
};
/* An S3 error document. ERR_MEMORY. */
must_check enum err dir_error(uint16_t status, const char *code, const char *message,
                              struct span resource, struct dir_answer *out);
/* Names a sub-resource in a raw query ("acl", "tagging"), or empty: a plain request. */
struct span dir_subresource(struct span query);
/* What a bucket or the service answers (blocking). ERR_MEMORY, ERR_UPSTREAM_CONNECT when the
 * directory cannot be read. */
must_check enum err dir_answer(const struct dir_place *root, const struct ask *a,
                               struct dir_answer *out);
struct dir_job {                     /* lives in whoever waits for it */
    struct message msg;
    struct dir_job *next;
    struct machine *m;               /* woken when done; counted in its inflight meanwhile */
    const struct ask *ask;
    struct dir_answer answer;
    enum err why;
    bool done;
    _Atomic bool unwanted;           /* its owner's: nobody waits for the answer any more */
    bool root_only;                  /* is another file system mounted at the root by now? */
};
/* path: the root's, which is opened again where a bucket is not found. */
must_check enum err lister_open(int root_fd, const char *path, struct lister **out);
void lister_close(struct lister *l);
void lister_ask(struct lister *l, struct dir_job *job, struct machine *m);

#endif
