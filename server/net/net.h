/* Clients: listening sockets, connections, sending. Knows HTTP heads, knows nothing of S3.
 *
 * The one upward call of the house: a complete head is handed to request_ops.begin, which main
 * fills with s3_request_ops.
 *
 * Invariants:
 *  1. A connection never moves to another core and has at most one request; pipelined bytes wait.
 *  2. While a request runs, the socket's sending side is the request's; from the receiving side
 *     it takes its body, and nothing else is received.
 *  3. Deadlines are absolute: a head must be complete header_timeout after its first byte, whatever
 *     trickles in. A body, which may be huge, must go on: each wait for its bytes has a deadline.
 *  4. After a refused head the connection is closed.
 *  5. A connection is plain or TLS from its first byte on; whoever sends through send.c and takes
 *     through body.c sees no difference. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_NET_H
#define HEADPOND_NET_H

#include <netinet/in.h>

#include "http.h"
#include "server/loop/loop.h"

struct conn;

/* What a request hands back when it is over. */
enum conn_fate { CONN_KEEP, CONN_CLOSE, CONN_CUT /* reset: the answer could not be completed */ };

struct request_ops {
    /* of the request's memory: not zeroed, lives from a head to conn_done() */
    size_t request_bytes;
    /* A complete head came. Its spans live until conn_done(). begin starts a machine, which ends
     * with conn_done(). */
    void (*begin)(struct conn *c, void *request, const struct http_head *head);
    /* A head was refused: write a whole answer (status line, fields, body) into t; the connection
     * closes behind it. */
    void (*refuse)(struct conn *c, enum http_verdict verdict, struct text *t);
};

enum { SEND_PIECES = 10, HEAD_OUT_BYTES = 8 * KIB };

/* One send to the client: a gather list, in order. Lives in the request's machine. */
struct send {
    struct op op, cancel;
    struct msghdr msg;
    struct iovec piece[SEND_PIECES];
    unsigned count;
    uint32_t want, done;             /* bytes */
    bool lend;                       /* pieces behind the first `copied` go out without a copy */
    bool some;                       /* completes as soon as anything was taken */
    unsigned copied;
};
void send_reset(struct send *s);
bool send_room(const struct send *s);
void send_add(struct send *s, const void *mem, uint32_t len);
/* From so many bytes on lending pages beats copying them (64 KiB: 0.09 against 0.22 CPU s/GB). */
enum { LEND_BYTES = 64 * KIB };
/* Whether lending pages is possible on that connection and worth it for this list. */
bool send_lends(const struct send *s, struct conn *c);
/* Starts, or goes on after a short completion. */
void send_go(struct send *s, struct conn *c, struct machine *m);
/* After send_ended(): true = all went out; false and *why OK = call send_go again (s->done tells
 * what went out so far); false and an error = the peer is gone. */
bool send_accept(struct send *s, struct conn *c, enum err *why);
/* ---- clients that are slow, or pause: a request can take its memory back and wait for room
 * ---- */
/* The kernel has our memory, or will say something. */
static inline bool send_busy(const struct send *s)
{
    return s->op.busy || s->cancel.busy;
}
static inline bool send_ended(struct send *s) /* once per completion */
{
    return !s->cancel.busy && op_take(&s->op);
}
/* TLS: what was sealed for a list that was stopped is still to go. The next send_go() begins with
 * it, and may have no list of its own. */
bool send_left(struct conn *c);
/* Asks a send under way to end with what was taken. It may have to be asked again later. */
void send_stop(struct send *s, struct machine *m);
/* Instead of a send: ends when the client makes room (or is gone, which the next send tells). The
 * list is empty meanwhile; the send deadline runs on. */
void send_await(struct send *s, struct conn *c, struct machine *m);

/* For the running request. */
struct core *conn_core(struct conn *c);
const char *conn_peer(const struct conn *c);             /* "10.0.0.21" */
const struct sockaddr *conn_address(const struct conn *c);
/* the server drains: answer with Connection: close */
bool conn_stopping(const struct conn *c);
int conn_fd(const struct conn *c);
uint64_t conn_head_us(const struct conn *c);             /* when the head was complete */
/* The request's memory is the connection's again. What was not taken of its body is discarded, up
 * to 64 KiB; beyond that, and when the client still waits for a 100, the connection is closed. */
void conn_done(struct conn *c, enum conn_fate fate);

/* ---- the body of the running request (body.c) ---- */
enum body_state { BODY_BUSY, BODY_OK, BODY_END, BODY_BROKEN };
/* The next bytes of the body, without their HTTP framing (Content-Length or chunked, RFC 9112 6),
 * into mem, at most cap (more than 0). Nothing is received unless it is asked for.
 *
 * BODY_OK: *got > 0 bytes. BODY_BUSY: a receive is under way in m, or will be; mem belongs to it:
 * call again with the same mem and cap when m was woken. BODY_END: the body is over, and so says
 * every further call; also of a request without one. BODY_BROKEN, from then on always: *why is
 * ERR_PEER (the client went away in the middle), ERR_SYNTAX (malformed chunks), ERR_TIMEOUT (no
 * byte of the body for server.body_timeout; only time in which the client is waited for counts) or
 * ERR_MEMORY. Unless it is BODY_BUSY, mem is the caller's again.
 *
 * Bytes of a Content-Length on a plain connection are received straight into mem. "100 Continue" is
 * the request's to send. */
enum body_state conn_body_take(struct conn *c, struct machine *m, void *mem, size_t cap,
                               size_t *got, enum err *why);
/* Cancels a receive that is under way in m. True: none is, mem is the caller's again; bytes that
 * had come for it are dropped, and then the connection closes behind the answer. False: ask again
 * when m was woken. */
must_check bool conn_body_settle(struct conn *c, struct machine *m);
/* All of the body was taken, or there is none. */
bool conn_body_over(const struct conn *c);

/* For send.c and session.c: drops what went out from the front of the list. */
void send_skip(struct send *s, uint32_t len);
/* For send.c: the send deadline runs from a conn_sending() to conn_sent(), and anew whenever the
 * client took something. */
void conn_sending(struct conn *c);
void conn_took(struct conn *c);
void conn_sent(struct conn *c);

/* Process and per core. ERR_SYSTEM with why filled ("0.0.0.0:9000: address in use"). */
must_check enum err net_open(struct server *s, const struct request_ops *ops, char why[256]);
must_check enum err net_core_begin(struct core *c);
void net_core_drain(struct core *c);
bool net_core_idle(const struct core *c);
void net_core_end(struct core *c);
void net_close(struct server *s);
/* Clients of the last minutes for status: host and user agent family, newest first; any thread. */
struct net_client {
    char host[64], agent[32];
    uint64_t last_wall_s;
};
struct net_hosts {
    unsigned count;                  /* each once, whatever programs it runs */
    bool more;                       /* the table is full of them: there may be more */
};
/* Seen since then, newest first. */
unsigned net_clients(uint64_t since_wall_s, struct net_client *out, unsigned cap,
                     struct net_hosts *hosts);
void net_saw_client(struct conn *c, struct span user_agent);
/* ---- top.c: the heaviest of the last one to two minutes ---- */
enum net_top { NET_TOP_CLIENT, NET_TOP_OBJECT, NET_TOP_PREFIX, NET_TOPS };
enum { TOP_NAME_BYTES = 160 };
struct net_top_row {
    char name[TOP_NAME_BYTES];       /* an address, bucket/key, bucket/folder/ */
    uint64_t requests, bytes;
};
struct net_request {                 /* one that was answered */
    struct span client, bucket, key; /* key "": of something of the bucket */
    uint64_t bytes;                  /* of the answer's body */
};
/* Hit path: no allocation. */
void net_top_count(struct core *c, const struct net_request *r);
/* The heaviest first; any thread but a core's. *over_ms: how long was counted. */
unsigned net_top(enum net_top what, struct net_top_row *out, unsigned cap, uint64_t *over_ms);
uint64_t net_connection_count(const struct server *s);
/* The congestion control that the S3 port has, whatever was configured; "" = unknown. Any
 * thread. */
enum { NET_CONGESTION_BYTES = 16 };
void net_congestion(const struct server *s, char out[NET_CONGESTION_BYTES]);

/* ================= inside the folder ================= */
struct net_core;
struct tls;
struct tls_context;
enum {
    SESSION_OUT_BYTES = 16 * (16 * KIB + 256), /* 256 KiB sealed: one send */
    SESSION_SMALL_BYTES = 16 * KIB + 1 * KIB, /* one record and what the session says itself */
    SESSION_BIG_MAX = 128,           /* of the larger ones, each core */
};
struct session {
    struct tls *tls;                 /* NULL: plain, or no byte came yet */
    char *out;                       /* sealed and not yet sent; NULL while there is nothing */
    uint32_t from, to, cap;
    bool ended;                      /* the peer said that nothing follows */
};

enum {
    INTAKE_RECV_BYTES = 4 * KIB,     /* what one receive brings at most */
    INTAKE_BYTES = 8 * KIB,          /* inline room: nearly every head */
    INTAKE_BIG_BYTES = HTTP_HEAD_BYTES_MAX + INTAKE_RECV_BYTES,
};
struct intake {
    struct http_head head;           /* its spans stay where they are until the request's end */
    char *bytes, *big;               /* bytes = small or big */
    uint32_t len, used;              /* received; of those, the head's */
    uint32_t at;                     /* the first behind the head that is of no body yet */
    char small[INTAKE_BYTES];
    _Alignas(16) char request[];     /* ops->request_bytes */
};

/* What is left of the running request's body. */
struct conn_body {
    struct timer timer;              /* while the client is waited for; wakes the request */
    struct http_chunked chunked;
    uint64_t left;                   /* of a counted one: bytes that are not taken */
    uint64_t dropped;                /* behind the answer */
    uint32_t fruitless;              /* sealed bytes since the last of the body */
    bool counted, over;              /* else chunked; all of it was taken */
    bool begun;                      /* a byte of it came */
    bool late;                       /* the deadline passed, the receive is being cancelled */
    uint8_t why;                     /* enum err: it is broken */
};

struct conn {
    struct machine m;
    struct node node, idle;          /* in the core's lists */
    struct op recv, cancel;          /* cancel: of a body's receive */
    struct timer timer, pause;       /* pause: no provided buffer was free */
    struct net_core *net;
    struct intake *intake;
    struct session session;
    struct op own;                   /* sends what the TLS session says on its own */
    struct conn_body body;
    struct refusal *refusal;         /* its answer to a head that makes no sense; else NULL */
    uint64_t head_us, lingered;
    uint64_t took_ms, rest_ms;       /* the send deadline's clock, and when it was stopped */
    uint64_t idle_ms;                /* since when it is idle */
    uint32_t place;                  /* of its address in peers */
    uint32_t seen_s;                 /* when its client was noted last; 0 = never */
    int fd;
    bool expect_idle, request_over, counted_active, sending;
    bool wants_https, drain_seen, lingering, shut, shed;
    uint8_t fate, end_label;
    enum http_verdict verdict;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    char peer[INET6_ADDRSTRLEN];
};
/* Room for one more receive behind what the intake has. False: no memory. */
must_check bool conn_make_room(struct conn *c);

/* body.c: the head is whole. */
void conn_body_begin(struct conn *c);
/* The request is over, and nothing is under way: a receive whose bytes nobody took is forgotten. */
void conn_body_end(struct conn *c);
/* What is left may be discarded, so that the connection is kept. */
bool conn_body_can_end(const struct conn *c);
/* Drops what the intake has of the body. BODY_BUSY: more must come. BODY_END. BODY_BROKEN: it is
 * too much, or makes no sense. */
enum body_state conn_body_drop(struct conn *c, bool *dropped);

/* Takes over an accepted socket; closes it when no memory is left, or when its address has too
 * many. */
void conn_open(struct core *c, int fd);
/* The connection of this core that has been idle for longest, and for a second at least, ends in
 * favour of a newcomer. False: there is none. */
bool conn_can_shed(const struct net_core *n);
bool conn_shed(struct net_core *n);
struct net_core *net_core(struct core *c);
void conns_begin(struct net_core *n, uint32_t max);
/* The process ends with those that are left: resets tell their clients that no answer is whole. */
void conns_cut(struct net_core *n);
void conns_drain(struct net_core *n);    /* idle ones see that it drains */
struct session *conn_session(struct conn *c);
/* It asks: true for its first request, then once in SEEN_EVERY_S. Hit path: the loop's clock. */
enum { SEEN_EVERY_S = 30 };
bool conn_is_unseen(struct conn *c);

/* session.c: what TLS adds to a connection. Nothing here waits or sends. */
enum session_step { SESSION_ON, SESSION_DONE, SESSION_FAILED };
/* What came from the wire. After session_feed() the bytes' memory is the caller's only when
 * session_keep() was called. Both false: no memory. */
must_check bool session_feed(struct session *t, struct span bytes);
must_check bool session_keep(struct session *t);
enum session_step session_shake(struct session *t);
/* Plain bytes, at most cap: ON with *got 0 = feed more (or look at t->ended). */
enum session_step session_read(struct session *t, void *out, size_t cap, size_t *got);
/* Seals from the front of the list as much as one send may carry, moves the list on by it, and
 * takes the memory for it. False: no memory, or the session is broken. */
struct net_core;
must_check bool session_seal(struct session *t, struct net_core *n, struct send *s);
void session_sent(struct session *t, struct net_core *n, uint32_t len);
void session_end(struct session *t, struct net_core *n);

/* peers.c: how many connections each address has */
struct peers;
must_check struct peers *peers_make(uint64_t connections, uint64_t most); /* most 0: no limit */
void peers_free(struct peers *p);
/* False: it has as many as it may. *place is for peers_leave(). */
must_check bool peers_enter(struct peers *p, const struct sockaddr *at, uint32_t *place);
void peers_leave(struct peers *p, uint32_t place);

struct net;
/* descriptors.c: raises our limit as far as it is needed and allowed. connections_max may shrink:
 * upstream and files get theirs first. ERR_SYSTEM: too few even for those. */
must_check enum err descriptors_settle(const struct server *s, struct net *net, char why[256]);

enum {
    NET_LISTEN_MAX = 16,
    NET_BACKLOG = 4096,
    NET_SLACK = 1024,                /* cores that open at the same time may pass the limit */
};
struct net {                         /* the process */
    const struct request_ops *ops;
    _Atomic uint64_t connections;
    uint64_t connections_max;        /* as far as there are descriptors */
    bool may_burst;                  /* there are some for all backlogs besides */
    struct peers *peers;
    char congestion[NET_CONGESTION_BYTES];
    unsigned address_count;
    struct sockaddr_storage address[NET_LISTEN_MAX];
    socklen_t address_len[NET_LISTEN_MAX];
    /* [core * address_count + i], bound at start so that mistakes show before any thread runs */
    int *fd;
};
struct listener;
struct net_core {                    /* one core's part */
    struct core *core;
    struct list conns;
    struct list idle;                /* of those: without a request, the longest first */
    uint64_t shedding;               /* were idle, and are about to end in favour of others */
    struct stock conn_stock, request_stock, big_stock, sealed_stock, small_sealed_stock;
    char *record;                    /* TLS: small pieces are gathered into one record */
    struct listener *listener;       /* [address_count] */
    unsigned listeners_alive;
    bool draining;
};
must_check struct listener *listeners_make(unsigned count);
void listeners_begin(struct net_core *n);
void listeners_drain(struct net_core *n);
void listeners_wake(struct net_core *n); /* a connection ended: one that paused may go on */

#endif
