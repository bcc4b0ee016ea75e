/* Plays: small scripts that run the real server between a scripted origin and scripted clients.
 *
 * A play is a text of statements (tests/lib/words.h). At its top:
 *
 *   server { key = value... }  config over the defaults of daemon.c ("cache.ttl = 0s"; a list by
 *                              several words, an empty one by ""), `dirs N` for N cache
 *                              directories, `tls` for a listener with TLS (player -t: in every
 *                              play), `bucket PREFIX key=value...` for a [[bucket]] section, `key
 *                              ACCESS SECRET ...` for a line of a keys_file, `profile NAME ACCESS
 *                              SECRET` for upstream credentials by that name; `upstream NAME
 *                              key=value...` for a [[upstream]] section instead of [upstream], with
 *                              match=a,b-* and endpoint=http://127.0.0.1:$origin2 or
 *                              endpoint=directory (files: `file BUCKET KEY SIZE`, version 1 of it);
 *                              starts the server if it does not run and waits until it is ready
 *   origin { statements }      tests/lib/origin.h; an origin is there from the start, and
 *   origin2 { statements }     another one
 *   client NAME [to=admin] [signed] [plain] [tls=1.1|1.2] { ... }   one client on a connection of
 *                              its own, statement by statement; signed: all its requests are;
 *                              plain: without TLS whatever the server speaks; tls=: that version
 *   certificate NAME           a new certificate and key for the listener, with NAME in it
 *   reload [applied|refused]   SIGHUP, and waits until its outcome is counted
 *   background NAME { ... }    the same beside the play; `join NAME` waits for it, `join` and the
 *                              end of the play for all
 *   parallel N { ... }         N clients at once, $i = 0..N-1
 *   step "words"               what follows is reported under this name
 *   mark                       origin counters, metric differences and log begin again
 *   restart | kill             SIGTERM (exit 0 wanted) or SIGKILL, then start again
 *   stop | term | ended        SIGTERM and wait; SIGTERM alone; wait for exit 0 ([within=MS])
 *   start                      again
 *
 * Anywhere:
 *
 *   repeat N { ... }           $n = round, from 0
 *   for NAME a b c { ... }     $NAME = the word; also $port $admin (the server's), $origin
 *                              and $origin2 (ports)
 *   expect origin requests==1 body_bytes<=8M [key=bucket/key]   since the mark; also get head list
 *                              other connections max_connections max_running put taken_bytes
 *   expect origin2 ..., expect saw2 ...   of the other one
 *   expect saw "text" [times==1]   in a request that the origin got:
 *                              "GET /b/k range=bytes=0-9 if-match=\"..\""; those of writes and
 *                              of their bodies: tests/lib/origin.h
 *   expect metric NAME{label="x"} == 1   sum over the series with these labels; == != <= >= < >,
 *                              with + in front (+=, +<=): the difference since the mark
 *   expect log "words"         the server's standard error since the mark
 *   wait ... [within=MS]       the same, for up to 20 s (expect: 2 s, as counters may trail)
 *
 * In a client:
 *
 *   get TARGET [options]       ask and answer; also head put post delete options
 *   ask METHOD TARGET [...]    sends only (several = pipelining)
 *   answer [options]           reads the next answer
 *       range=a-b|a-|-n  from=SIZE to=SIZE  random=SIZE (a random range of that length)
 *       rawrange=TEXT  header="X: y"...  host=TEXT  nohost  http=1.0
 *       virtual=BUCKET (which host= names: the whole path is the key)
 *       signed (SigV4, with the upstream's own key)  key=ACCESS:SECRET (with another)
 *       presigned (as a URL, with either)
 *       body=N (N zeros are sent)  upload=V (the bytes of version V of that key)
 *       offset=N (of them, body= bytes from the N-th on: a part)
 *       chunked=N (HTTP chunks of N bytes)  aws_chunked=N (with a CRC32 behind it; wrong_sum)
 *       send=N (no more than N bytes of the body)  wrong=N (its N-th byte is)
 *       raw=TEXT (these bytes, with the fields of chunked= and aws_chunked=)  told=N|none (the
 *       length that the head tells)  deletes=N (a DeleteObjects document of many0000, many0001..)
 *       await100 (Expect: 100-continue, and waits for it)  split=N (sent N bytes at a time)
 *       read=N (stop in the body behind N bytes)  rate=N (bytes per second)
 *       cut=yes|may (the answer must or may end early)  until=STATUS (asks until it comes)
 *       size=N (of the object, if its key does not tell; or_size=N: or this)
 *       version=N (if its ETag does not)  at=BUCKET (what the store calls the bucket)
 *       within=MS
 *   expect status=200|206 length=N announced=N bytes=ok xcache=hit|miss code=NoSuchKey version=N
 *          closed [notified: with close_notify] open resumed certificate=NAME interim=N whole cut
 *          ms<N first_ms>N body~TEXT header NAME[=VALUE] no NAME
 *          same: byte for byte what the last kept answer was, but for its ids and its date
 *   keep                       keeps the last answer, for any client of the play
 *   send "bytes" [split=N] [every=MS]    then `answer`, or `expect closed [within=MS]`
 *   connect [refused]          opens a connection, or sees its handshake fail
 *   drop | reset | half        close, abort, shut the sending side
 *   hold N | release           N idle connections more
 *   bad_heads                  every head of tests/lib/bad_heads.h, whole and byte by byte: the
 *                              status of its verdict and a close
 *
 * Invariants:
 *  1. Every body of an object is compared byte by byte with the version that its ETag names; a
 *     length, a range or an ETag that does not fit
 *     fails the play whether or not it is expected.
 *  2. Nothing waits without a bound, nothing sleeps for a time where a condition can be watched.
 *  3. The first failure of a play is told with file and line; the rest of that play is not run. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_PLAY_H
#define HEADPOND_TESTS_PLAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "tests/lib/bytes.h"
#include "tests/lib/origin.h"

enum {
    FRAME_LOOPS_MAX = 4, FRAME_WORDS_MAX = 96, FRAME_TEXT_BYTES = 32 * KIB, FRAME_VARS_MAX = 16,
    PATH_BYTES = 200, SERVER_LINES_MAX = 40, METRICS_BYTES = 1 * MIB,
    SETTLE_MS = 10000, WAIT_MS = 20000, ANSWER_MS = 30000,
    ASKS_MAX = 64, HEAD_BYTES = 64 * KIB, BODY_SHOWN_BYTES = 64 * KIB, READ_BYTES = 256 * KIB,
    SECRET_BYTES = 100,
};

struct play;

/* The upstream's key pair, which the server takes from its environment and accepts from clients
 * (rw). */
#define PLAY_ACCESS "AKIDPLAY"
#define PLAY_SECRET "secret-of-the-play"

/* ---- frame.c: walking through statements ---- */
struct variable {
    char name[32];
    char value[512];
};
struct loop {
    unsigned head, end;              /* statements of the body: head+1 .. end-1 */
    uint64_t round, count;
    unsigned variable;
};
struct frame {
    struct play *play;
    unsigned at, end;
    struct loop loop[FRAME_LOOPS_MAX];
    unsigned depth;
    struct variable variable[FRAME_VARS_MAX];
    unsigned variables;
    struct statement now;            /* the current statement, variables put in */
    unsigned index;                  /* of it in the script */
    struct span word[FRAME_WORDS_MAX];
    char text[FRAME_TEXT_BYTES];
};
void frame_init(struct frame *f, struct play *p, unsigned at, unsigned end);
/* Over the block of the outer frame's current statement, with its variables. */
void frame_enter(struct frame *f, const struct frame *outer);
void frame_set(struct frame *f, const char *name, const char *value);
/* The next statement to carry out; loops are walked inside. False at the end or after a failure. */
bool frame_next(struct frame *f);

/* ---- play.c ---- */
struct player;                       /* a client that runs beside the play */
struct daemon {
    pid_t pid;                       /* 0 = not running */
    uint16_t port, admin_port;
    int keeps_port, keeps_admin_port;    /* sockets, until the program's end */
    char dir[PATH_BYTES];            /* everything of this play */
    char log[PATH_BYTES + 20], config[PATH_BYTES + 20];
    unsigned dirs;
    long log_mark;
    unsigned starts;
};
struct play {
    const char *file, *program;
    struct script script;
    struct origin *origin, *origin2;
    struct daemon daemon;
    bool tls;                        /* clients of the S3 port speak TLS */
    struct ssl_ctx_st *trust;        /* what they trust; made with the first certificate */
    char *metrics_then, *metrics_now; /* at the mark; scratch */
    pthread_mutex_t watch;           /* scratch of watch.c */
    _Atomic bool failed;
    pthread_mutex_t lock;            /* of the failure */
    char failure[1000];
    char *kept;                      /* the answer of `keep`, without ids and date; NULL: none */
    char step[200];
    struct player *players;
    _Atomic uint64_t checked_bytes;
};
/* Keeps the first failure; returns false. */
bool play_fail(struct play *p, const struct statement *st, const char *format, ...)
    printf_like(3, 4);

/* ---- daemon.c: the server under test ---- */
bool daemon_prepare(struct play *p);                     /* directory, ports */
bool daemon_configure(struct play *p, const struct frame *outer); /* server { } */
bool daemon_start(struct play *p, const struct statement *st);
bool daemon_signal(struct play *p, const struct statement *st, int signal);
bool daemon_reload(struct play *p, const struct statement *st);
bool daemon_ended(struct play *p, const struct statement *st, bool killed);
bool daemon_died(struct play *p);                        /* tells how, if it did unasked */
void daemon_remove(struct play *p, bool keep);           /* kills it, removes the directory */
/* The last lines of its log, for a report. */
void daemon_tail(struct play *p, unsigned lines);

/* ---- watch.c: what can be expected of origin, metrics and log ---- */
/* word[0] is expect or wait. False: failed. */
bool watch_run(struct play *p, const struct statement *st);
bool watch_mark(struct play *p, const struct statement *st);
/* expect origin ..., saw, metric, log */
bool watch_knows(const struct statement *st);
/* Compares "name<=8M" with a value; *known = the name fits. */
bool watch_compare(struct span word, const char *name, uint64_t value, bool *known);

/* ---- client.c, answer.c, check.c ---- */
struct ask_made {                    /* a request that was sent and not yet answered */
    char method[16];
    char bucket[256], key[KEY_BYTES_MAX * 3 + 1];
    size_t bucket_len, key_len;
    uint64_t version, size, other_size; /* told by options; 0 = not told */
    bool size_told, object, upload;
    uint64_t sent_us;
};
struct body_made {                   /* body.c */
    uint64_t bytes, version, seed, offset, most, wrong, wire, sent;
    uint64_t chunk, aws_chunk;       /* 0: not so framed */
    bool object, is_part, partly, awaits, wrong_sum, is_told, untold;
    uint64_t told, deletes;
    struct span raw;                 /* of the statement */
};
struct answer_options {
    uint64_t read, rate, within_ms;
    bool stop_early, cut_may, cut_must;
};
struct answered {
    unsigned status, interim;
    char *head;                      /* HEAD_BYTES, terminated; from the status line on */
    size_t head_len;
    char *shown;                     /* the first BODY_SHOWN_BYTES of the body, terminated */
    uint64_t body_bytes, length, offset;
    bool has_length, chunked, until_close, no_body, cut, checked, close;
    uint64_t version, seed;
    uint64_t first_ms, ms;
};
struct client {
    struct play *play;
    char name[64];
    bool admin, sign, plain;
    int most_version;                /* of TLS; 0 = any */
    int fd;
    struct ssl_st *tls;              /* NULL: plain */
    struct ssl_session_st *session;  /* of the connection before */
    char refused[200];               /* why the last connection was not made */
    bool ended;                      /* the peer closed or reset */
    bool unclean;                    /* and that without close_notify */
    struct frame frame;
    struct ask_made ask[ASKS_MAX];
    unsigned asks, next;             /* ring: asks made, next to be answered */
    struct answered got;
    char *in;                        /* READ_BYTES: received and not used */
    size_t have, used;
    int *held;
    unsigned holds;
};
/* A client of its own, or none without memory. */
struct client *client_make(struct play *p, const struct statement *st, const char *name);
/* Puts the client in front of the outer frame's block, as its number $i. */
void client_place(struct client *c, const struct frame *outer, unsigned number);
/* Runs the block, then frees the client; false: failed. */
bool client_run(struct client *c);
bool client_fail(struct client *c, const char *format, ...) printf_like(2, 3);
int client_connect(uint16_t port);   /* -1 */
bool client_send(struct client *c, const char *at, size_t len, uint64_t split, uint64_t every_ms);
/* Waits for input: 1 = there is some, 0 = time is over, -1 = the peer is gone. */
int client_wait(struct client *c, uint64_t deadline_us);
bool answer_read(struct client *c, const struct answer_options *options);
struct span answer_header(const struct answered *a, const char *name);
bool check_expect(struct client *c);
bool check_keep(struct client *c);
bool check_closed(struct client *c, uint64_t within_ms);
/* body.c */
bool body_is_option(struct span word);
bool body_option(struct client *c, struct body_made *b, struct span word);
void body_fields(struct body_made *b, struct text *t);   /* ... that go with it, length included */
bool body_send(struct client *c, struct body_made *b, const struct ask_made *a);
/* wire.c */
bool wire_certificate(struct play *p, const char *name); /* tls.pem and tls.key, anew */
void wire_end(struct play *p);
bool wire_open(struct client *c, uint16_t port);         /* false: c->refused tells */
void wire_close(struct client *c);
void wire_forget(struct client *c);                      /* and its session */
void wire_half(struct client *c);
bool wire_has(struct client *c);     /* after poll(): bytes or an end, not just TLS's own words */
ssize_t wire_recv(struct client *c, void *to, size_t cap, int flags);
ssize_t wire_send(struct client *c, const void *from, size_t len);
bool wire_shown(const struct client *c, struct span name);
bool wire_resumed(const struct client *c);
/* sigv4.c: adds the fields of a SigV4 signature to a head that has its request line and fields. */
void sigv4_presign(struct text *url, const char *method, struct span target, const char *host,
                   const char *access, const char *secret);
void sigv4_add(struct text *head, const char *method, struct span target, const char *access,
               const char *secret);
/* bad_heads.c */
bool bad_heads_run(struct client *c);
/* One plain exchange with 127.0.0.1: status and body (terminated) or 0. */
unsigned client_fetch(uint16_t port, const char *target, char *body, size_t cap);

#endif
