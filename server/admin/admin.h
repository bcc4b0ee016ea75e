/* The control plane: metrics, health, status, on libmicrohttpd's own threads. Never sees S3
 * traffic.
 *
 * Invariants:
 *  1. Nothing here is called from a loop thread; what it reads of cores is atomic, summed, or
 * copied under a short lock.
 *  2. No answer carries a configuration value that could be a secret, a key or a token.
 *  3. Over TCP what changes anything needs the token of admin.token_file, without one it is
 *     read-only; requests with a foreign Origin or Host are refused (a browser must not be made to
 *     ask for someone).
 *  4. The control plane proper listens on UNIX sockets and loopback only; what may be reached from
 *     elsewhere is admin.metrics_listen.
 *
 * Life: admin_open() after the cores have started, admin_close() before they are joined. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_ADMIN_H
#define HEADPOND_ADMIN_H

#include "server/cache/cache.h"
#include "server/jobs/jobs.h"
#include "server/net/net.h"
#include "server/origin/origin.h"
#include "server/server.h"

/* Listens on admin.listen (unix:PATH, ADDRESS:PORT; a socket path that cannot be made falls back to
 * <first cache dir>/admin.sock) and admin.metrics_listen (only /metrics, health, /v1/status and the
 * status page). why names cause and fix. ERR_CONFIG, ERR_SYSTEM, ERR_MEMORY. */
must_check enum err admin_open(struct server *s, char why[512]);
/* What a start would refuse of that configuration, with a mistake told; main thread, also while a
 * server runs. */
must_check enum err admin_check(const struct config *c, struct conf_mistakes *m);
void admin_close(struct server *s);

/* ================= inside the folder ================= */

struct MHD_Daemon;

/* ---- window.c: rates of the last five minutes ---- */
enum { WINDOW_TICK_MS = 10000, WINDOW_SAMPLES = 31 };
struct sample {                      /* counters at one moment */
    uint64_t at_ms;
    uint64_t requests, sent_bytes, missed_bytes, upstream_bytes;
    uint64_t slowdowns[CONF_UPSTREAMS_MAX]; /* by NAMED_UPSTREAM, which nobody else names */
    uint64_t stall_us, disk_us;      /* GETs waited for upstream or room, and for a disk */
    uint64_t get_us;                 /* their whole time */
    struct metric_histogram duration;
};
struct window {                      /* zeroed = empty */
    struct sample sample[WINDOW_SAMPLES];
    uint64_t added;
};
struct rates {
    uint64_t requests;
    double hit_bytes_ratio;          /* of the bytes sent; 0 when none were */
    double sent_bytes_per_s, upstream_bytes_per_s;
    double throttled_per_min[CONF_UPSTREAMS_MAX]; /* as sample.slowdowns */
    double stall_ratio, disk_ratio;  /* of the time of GETs: waited for upstream, for a disk */
    double p50_ms, p99_ms;
};
void sample_take(struct sample *out);
void window_add(struct window *w, const struct sample *s);
void rates_between(const struct sample *from, const struct sample *to, struct rates *out);
/* From the oldest note within five minutes to now. */
void window_rates(const struct window *w, const struct sample *now, struct rates *out);
/* One entry per interval between notes, oldest first; returns how many. */
unsigned window_series(const struct window *w, struct rates out[WINDOW_SAMPLES]);
/* The last of them, or zeros. */
void window_newest(const struct window *w, struct rates *out);

/* ---- status.c: JSON (pure) ---- */
enum {
    STATUS_CLIENTS_MAX = 64,
    STATUS_WARNINGS_MAX = CONF_UPSTREAMS_MAX + 10,
    STATUS_RECENT_S = 300
};
enum { S3_URL_BYTES = 320 };
struct status {                      /* copied at one moment; texts are borrowed */
    const char *name, *state;
    int pid;
    uint64_t uptime_s, now_wall_s, pinned_bytes;
    char s3_url[S3_URL_BYTES];       /* as the one who asks would reach it; "" = unknown */
    char congestion[NET_CONGESTION_BYTES]; /* in effect on the S3 port; "" = unknown */
    struct origin_status upstream[CONF_UPSTREAMS_MAX];
    unsigned upstream_count;         /* >= 1 */
    struct cache_status cache;
    uint64_t jobs[LABEL_jobstate_COUNT];
    struct rates last, newest;       /* of five minutes; of the newest whole interval */
    uint64_t note;                   /* of the window: the interval's number */
    struct status_schedule {
        char when[80];               /* cut, if it is longer */
        bool in_force;
    } schedule[CONF_SCHEDULES_MAX];
    unsigned schedule_count;
    uint64_t schedule_changes_s;     /* until others are in force; 0: never */
    unsigned client_count, warning_count;
    struct net_hosts hosts;          /* of all clients, not only of those here */
    struct net_client client[STATUS_CLIENTS_MAX]; /* newest first, of STATUS_RECENT_S */
    char warning[STATUS_WARNINGS_MAX][256];
};
void status_print(const struct status *s, struct text *out);
/* From what conf_print() wrote: section -> key -> value, and "bucket" -> list. No option holds a
 * secret: credentials never stand in the configuration; keys and tokens are named by their file. */
void status_config(struct span toml, struct text *out);
const char *disk_state_name(enum disk_state state);
/* The member "disks". */
void status_disks(struct text *t, const struct cache_status *c);
/* `"name":value`, with the comma before it where something stands before; name NULL: the value, as
 * an item of a list. */
void json_text(struct text *t, const char *name, struct span value);
void json_u64(struct text *t, const char *name, uint64_t value);
void json_bool(struct text *t, const char *name, bool value);
void json_open(struct text *t, const char *name, char bracket); /* '{' or '[' begins the value */
void status_error(struct text *out, const char *code, const char *message, const char *hint);
/* The URL of the S3 port for a client: listen is an item of server.listen, host stands in for a
 * wildcard address (an IPv6 one gets its brackets). */
void status_s3_url(const char *listen, bool tls, struct span host, char out[S3_URL_BYTES]);

/* ---- page.c: HTML (pure) ---- */
enum { PAGE_BYTES_MAX = 128 * KIB, PAGE_SERIES = 4, PAGE_ROWS = 8 };
struct page_job {
    const char *kind, *state;
    char prefix[TOP_NAME_BYTES];     /* cut, if it is longer */
    uint64_t objects_wanted, objects_done, objects_failed, bytes_wanted, bytes_done;
};
struct page_more {                   /* names of what is read: not for admin.metrics_listen */
    struct net_top_row top[PAGE_ROWS];
    struct page_job job[PAGE_ROWS];  /* the newest first */
    unsigned top_count, job_count;
    uint64_t over_ms;                /* top was counted for so long */
};
struct page {
    const struct status *s;
    const struct rates *series;      /* window_series() */
    unsigned count;
    const struct page_more *more;    /* NULL: without */
    const char *nonce;               /* allows our own script and style, and no other */
};
void page_print(const struct page *p, struct text *out);

/* ---- guard.c: what a browser could be made to ask (pure) ---- */
/* The host of a Host field without port and brackets; empty if malformed. */
struct span guard_host_name(struct span field);
/* May a request over TCP name this host? An address literal, localhost, or one of our names; a name
 * of someone else's may have been pointed at us (DNS rebinding). */
bool guard_host(struct span field, const char *const *names, unsigned count);

/* ---- door.c: sockets ---- */
enum { DOORS_MAX = CONF_ADMIN_LISTEN_MAX + 1 }; /* and admin.metrics_listen */
struct door {
    struct MHD_Daemon *daemon;
    struct server *server;
    int fd;                          /* -1: none, or given to the daemon */
    bool local;                      /* a UNIX socket: guarded by its file mode */
    bool metrics_only;
    char path[108];                  /* of the socket file that we made; "" = none */
    struct door_file {               /* to unlink our own only; inode numbers are used again */
        uint64_t dev, inode;
        int64_t changed_ns;
    } file;
};
/* ERR_SYSTEM with why ("127.0.0.1:9001: address in use; ..."). */
must_check enum err door_bind_tcp(struct door *d, const struct conf_listen *at, const char *text,
                                  char why[512]);
/* Replaces a socket file that nobody answers; leaves anything else alone. ERR_LOCKED: another
 * server answers there; ERR_TOO_LARGE: the path does not fit; ERR_SYSTEM. */
must_check enum err door_bind_unix(struct door *d, struct span path, char why[512]);
void door_unlink(struct door *d);

/* ---- admin.c: the whole ---- */
enum { TOKEN_BYTES_MIN = 16, TOKEN_BYTES_MAX = 512 };
struct admin {
    struct server *server;
    uint64_t opened_ms;              /* the cores had been started by then */
    struct door door[DOORS_MAX];
    unsigned door_count;
    char host[256];                  /* the machine's name, beside server.name */
    char token[TOKEN_BYTES_MAX + 1]; /* "": over TCP nothing can be changed */
    pthread_mutex_t lock;            /* of window and stop */
    pthread_cond_t wake;
    pthread_t sampler;
    bool sampling, stop;
    struct metric_set *metrics;      /* the sampler's; NULL: no memory */
    uint64_t lost_lines;             /* of the log, as counted */
    struct window window;
};

/* ---- answer.c: what is said ---- */
struct MHD_Connection;
struct visit {                       /* one request */
    struct MHD_Connection *connection;
    const struct door *door;
    const char *path, *method;
    struct span body;                /* of a change; terminated */
    struct key_list *keys;           /* that came with it; NULL: none did */
    struct plan_body *plan;          /* likewise */
};
struct admin_answer {
    unsigned code;
    const char *type;
    char allow[40];                  /* of a 405, or "" */
    char policy[256];                /* Content-Security-Policy, or "" */
    struct text body;
    /* Instead of a body: the next bytes of one that is made while it is sent, on a thread of its
     * own, as libmicrohttpd wants them; or NULL. */
    ssize_t (*more)(void *of, uint64_t at, char *out, size_t cap);
    void (*gone)(void *of);
    void *of;                        /* the answer's, ended by gone() */
    bool ends_server;                /* once it was sent */
};
static const char type_json[] unused_ok = "application/json";
/* Memory for the body. false: there is none, which answer_send() will notice. */
bool answer_room(struct admin_answer *out, size_t bytes);
/* An error in place of whatever was there; code is a word of the closed list in the README. */
void answer_refuse(struct admin_answer *out, unsigned status, const char *code, const char *message,
                   const char *hint);
/* Takes the body's memory; what libmicrohttpd wants to hear (enum MHD_Result). */
int answer_send(const struct visit *v, struct admin_answer *a);

/* ---- disks.c: /v1/disks ---- */
void answer_disks(const struct visit *v, struct admin_answer *out);
void answer_disk_fence(const struct visit *v, struct admin_answer *out);
void answer_disk_readmit(const struct visit *v, struct admin_answer *out);
/* The value of a key in the query, decoded; at == NULL: it was not given. */
struct span visit_query(const struct visit *v, const char *key);
/* The sampler's next turn begins at once: it applies what was changed. */
void admin_wake(struct admin *a);

/* ---- pins.c: /v1/pins ---- */
void answer_pins(const struct visit *v, struct admin_answer *out);
void answer_pin(const struct visit *v, struct admin_answer *out);
void answer_unpin(const struct visit *v, struct admin_answer *out);
/* "18h" from now on, RFC 3339 in UTC, or a day; "" is 0, for good. ERR_SYNTAX: none of them, or it
 * has passed. */
must_check enum err until_parse(struct span text, uint64_t now_s, uint64_t *out);

/* ---- objects.c, top.c, hist.c ---- */
void answer_objects(const struct visit *v, struct admin_answer *out);
void answer_top(const struct visit *v, struct admin_answer *out);
void answer_hist(const struct visit *v, struct admin_answer *out);

/* ---- sizing.c: /v1/sizing ---- */
void answer_sizing(const struct visit *v, struct admin_answer *out);

/* ---- jobs.c: what an operator asks for ---- */
void answer_evict(const struct visit *a, struct admin_answer *out);
void answer_revalidate(const struct visit *a, struct admin_answer *out);
void answer_verify(const struct visit *a, struct admin_answer *out);
void answer_prewarm(const struct visit *a, struct admin_answer *out);
void answer_jobs(const struct visit *a, struct admin_answer *out);
void answer_job(const struct visit *a, struct admin_answer *out);
/* One line; mem_give() it. NULL: there is no memory. */
char *job_line(const struct job_view *v, size_t *len);
void answer_job_wish(const struct visit *a, struct admin_answer *out);
void answer_job_cancel(const struct visit *a, struct admin_answer *out);

struct json_t;
/* One line; takes the value. */
void say_json(const struct visit *a, struct admin_answer *out, struct json_t *value);

/* ---- plans.c: /v1/plans ---- */
struct plan_body *plans_body_begin(const struct visit *a); /* NULL: it is none, or may not come */
void answer_plan_post(const struct visit *a, struct admin_answer *out);
void answer_plans(const struct visit *a, struct admin_answer *out);
void answer_plan(const struct visit *a, struct admin_answer *out);
void answer_plan_drop(const struct visit *a, struct admin_answer *out);

/* ---- orders.c: /v1/config/reload, /v1/drain ---- */
void answer_reload(const struct visit *a, struct admin_answer *out);
void answer_drain(const struct visit *a, struct admin_answer *out);

/* ---- key_body.c: a body that brings a list of keys ---- */
struct key_body;
struct key_body *key_body_begin(const struct visit *a); /* NULL: it is none, or may not come */
/* Returns how many of the first bytes are the request's own line. */
size_t key_body_take(struct key_body *b, struct span bytes);
bool key_body_end(struct key_body *b, struct admin_answer *out); /* false: *out is the refusal */
struct key_list *key_body_list(struct key_body *b);  /* it stays the body's */
void key_body_free(struct key_body *b);

/* ---- events.c: /v1/jobs/ID/events ---- */
void answer_events(const struct visit *a, uint64_t id, struct admin_answer *out);

/* ---- welcome.c: who may ask ---- */
/* Else *out is the refusal. */
bool is_welcome(const struct visit *a, struct admin_answer *out);
/* path "": there is none. ERR_CONFIG with why: the file is not private, or holds no token. */
must_check enum err token_read(struct admin *a, const char *path, char why[512]);
/* The Authorization field is "Bearer" and the token. */
bool token_is(const char *token, struct span field);

#endif
