/* headpond: the command line. A program of its own that speaks HTTP to the control plane of
 * servers.
 *
 * Invariants:
 *  1. Results go to stdout, talk to stderr; --json prints one object per line with "v":1.
 *  2. Every error ends with what to do next.
 *  3. What came over the wire reaches a terminal only through text_add_printable() or as JSON.
 *
 * Life: ctl_run() reads the command line into a struct ctl, runs one verb of the table, returns its
 * exit code. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CTL_H
#define HEADPOND_CTL_H

#include <jansson.h>

#include "base.h"
#include "creds.h"
#include "endpoint.h"
#include "mem.h"
#include "sign.h"
#include "tls.h"

enum ctl_code {
    CTL_DONE = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2,
    CTL_PARTLY = 3,
    CTL_NOT_FOUND = 4,
    CTL_UNREACHABLE = 5,
    CTL_DENIED = 6,
    CTL_NO_ROOM = 7,
    CTL_TIMEOUT = 124,
    CTL_INTERRUPTED = 130,
};

enum { DU_DEPTH_MAX = 64 };
enum { CTL_SERVERS_MAX = 16, CTL_DIRS_MAX = 16, CTL_WORDS_MAX = 8, CTL_WHY_BYTES = 512 };
enum { CTL_GLOBS_MAX = 16, BENCH_CLIENTS_MAX = 256, BENCH_SECONDS_MAX = 3600 };

struct verb;
struct ctl {
    const char *server[CTL_SERVERS_MAX]; /* by --server, in order; texts are borrowed throughout */
    unsigned server_count;
    /* Who has answered in this run, and is asked alone from then on; NULL: each question finds
     * its server anew. */
    const char **answered;
    bool json, quiet, color, verbose, no_progress;
    const char *token_file;          /* NULL: HEADPOND_TOKEN_FILE, or none */
    uint64_t timeout_ms;             /* of one exchange with a server */
    const struct verb *verb;
    const char *word[CTL_WORDS_MAX]; /* behind the verb */
    unsigned word_count;
    /* ---- options of single verbs ---- */
    bool watch, sizing;
    uint64_t watch_ms, wait_ms;
    const char *shell, *until, *by, *upstream, *via;
    bool cached, missing, long_;     /* of ls */
    unsigned depth;                  /* of du */
    const char *dir[CTL_DIRS_MAX];
    unsigned dir_count;
    const char *unread_for;
    bool keep_pinned, dry_run, yes, detach;
    const char *include[CTL_GLOBS_MAX], *exclude[CTL_GLOBS_MAX]; /* of prewarm, as what follows */
    unsigned include_count, exclude_count;
    const char *wds[CTL_GLOBS_MAX], *manifest, *order; /* NULL: not given */
    unsigned wds_count;
    uint64_t bandwidth, connections; /* 0: not given */
    bool pin, verify, force;
    bool wait_limited;               /* wait_ms was given */
    uint64_t clients, seconds;       /* of bench */
};

enum option_kind { OPTION_FLAG, OPTION_VALUE, OPTION_MAYBE /* --watch, --watch=2s */ };
struct option_row {
    const char *name, *letter;       /* "json"; "q" or NULL */
    enum option_kind kind;
    /* value: what the help calls it; "FILE", "DIR" are completed as such, "a|b" to one of them */
    const char *value, *help;
    bool (*take)(struct ctl *c, const char *value); /* false: no such value */
};
struct verb {
    const char *name, *args, *help;
    const struct option_row *option; /* ended by a row without name; NULL: none */
    int (*run)(struct ctl *c);       /* NULL: not in this version */
    const char *instead;             /* what to do then */
    /* of one server: it changes something, or knows things by ids that no other server has */
    bool single;
};
extern const struct verb ctl_verbs[];
extern const struct option_row ctl_options[];  /* of every verb */
extern const struct code_row {
    enum ctl_code code;
    const char *help;
} ctl_codes[];                       /* ended by a row without help */
unsigned ctl_verb_count(void);
int ctl_run(int argc, char **argv);  /* the exit code */
/* A line on stderr, unless -q. */
void ctl_say(const struct ctl *c, const char *format, ...) printf_like(2, 3);
/* The escape sequence of a colour ("31"; "0" ends it), or "" where there are no colours. */
const char *ctl_paint(const struct ctl *c, const char *code);

/* One line on stdout. */
void ctl_print_json(const json_t *value);

/* ---- client.c: one request ---- */
enum { REPLY_BYTES_MAX = 16 * MIB };
struct request {
    const char *method, *path;
    struct span body;
    const char *type;                /* of the body; NULL: application/json */
    const char *token;               /* set by client_send(): of --token-file, for a change */
};
struct reply {
    unsigned status;
    char *body;                      /* owned, terminated; reply_free() */
    size_t len;
    int peer_pid;                    /* of a server behind a UNIX socket, else 0 */
    char server[300];                /* who answered */
};
/* server: unix:PATH or http://HOST:PORT. ERR_CONFIG: no such address; ERR_DENIED, ERR_TIMEOUT,
 * ERR_SYSTEM, ERR_SYNTAX (no HTTP), ERR_TOO_LARGE, ERR_MEMORY, each with a sentence in why. */
must_check enum err client_get(const char *server, const char *path, uint64_t timeout_ms,
                               struct reply *out, char why[CTL_WHY_BYTES]);
void reply_free(struct reply *r);
/* The servers to try: --server, else HEADPOND_SERVER, else the two usual places (*guessed). */
unsigned client_servers(const struct ctl *c, const char *out[CTL_SERVERS_MAX], bool *guessed);
/* From the first server that answers, in a run always the same one; else why names each and what to
 * do. */
must_check enum err client_ask(const struct ctl *c, const char *path, struct reply *out,
                               char why[CTL_WHY_BYTES]);
/* The same with any method. What changes anything goes to one server only. ERR_CONFIG: no token in
 * --token-file, too. */
must_check enum err client_send(const struct ctl *c, const struct request *what, struct reply *out,
                                char why[CTL_WHY_BYTES]);
/* The same as JSON: NULL with the exit code in *code, the reason already told on stderr. */
json_t *client_json(const struct ctl *c, const char *path, struct reply *out, int *code);
json_t *client_change(const struct ctl *c, const struct request *ask, struct reply *out, int *code);
/* Tells what became of a request that did not go well; the exit code. */
int client_fail(enum err e, const struct reply *r, char why[CTL_WHY_BYTES]);
/* The same from its parts; the reply is given back. */
json_t *client_call(const struct ctl *c, const char *method, const char *path, const char *body,
                    int *code);
/* The object in a reply's body, or NULL with why. */
json_t *reply_json(const struct reply *r, char why[CTL_WHY_BYTES]);

/* ---- s3.c: requests to an S3 port or a store, on a connection that is kept ---- */
struct s3_side {                     /* who is asked; not changed while lines use it */
    struct endpoint at;
    char region[CREDS_REGION_BYTES_MAX + 1];
    const struct creds *creds;       /* borrowed; NULL: unsigned */
    struct tls_context *tls;         /* owned; NULL: plain HTTP */
    uint64_t timeout_ms;             /* without a byte */
};
struct s3_how {
    const char *region, *ca_file;    /* NULL or "": as the shell and the address say */
    unsigned path_style;             /* enum conf_path_style */
    bool insecure;
    uint64_t timeout_ms;
};
struct s3_ask {
    const char *method, *bucket;
    struct span key;
    const char *query;               /* encoded; NULL: none */
    bool ranged;
    uint64_t from, to;               /* both included */
    const char *hint;                /* x-headpond-hint; NULL: none */
};
enum { S3_ETAG_BYTES_MAX = 130 };
struct s3_answer {
    unsigned status;
    uint64_t size;                   /* of the object, as Content-Range or Content-Length say */
    uint64_t bytes;                  /* of the body, as far as it came */
    uint32_t crc;                    /* CRC32C of those */
    uint64_t sent_us, first_us;      /* the request; the body's first byte, 0: none came */
    bool has_cached;
    uint64_t cached;                 /* x-headpond-cached */
    char x_cache[16], region[CREDS_REGION_BYTES_MAX + 1]; /* x-cache, x-amz-bucket-region */
    char etag[S3_ETAG_BYTES_MAX + 1]; /* without quotes */
    struct text *keep;               /* the caller's: gets the body; NULL: nobody wants it */
};
struct s3_line {                     /* one thread's */
    const struct s3_side *side;
    int fd;
    struct tls *tls;
    bool used;                       /* it has answered before */
    uint64_t end_us;                 /* the caller's: nothing is waited for then; 0: no end */
    char *memory, *wire;             /* owned */
    struct sign_key_cache key;
    char why[CTL_WHY_BYTES];
};
/* The static keys of this shell. NULL: it has none; why "", or what else it has and what to do. */
const struct creds *s3_find_creds(char why[CTL_WHY_BYTES]);
/* s3_side_free() in any case. ERR_CONFIG, ERR_MEMORY with why. */
must_check enum err s3_side_make(const char *url, const struct s3_how *how, struct s3_side *out,
                                 char why[CTL_WHY_BYTES]);
void s3_side_free(struct s3_side *s);
/* On the thread that will use it; s3_line_close() in any case. */
must_check enum err s3_line_open(struct s3_line *l, const struct s3_side *side);
must_check enum err s3_line_connect(struct s3_line *l); /* before the first ask, if it is timed */
void s3_line_close(struct s3_line *l);
/* One request, and all of its answer. ERR_TIMEOUT: it is end_us; any other error has line->why.
 * Whatever came stands in *out, of which the caller sets only keep. */
must_check enum err s3_ask(struct s3_line *l, const struct s3_ask *q, struct s3_answer *out);

/* ---- values of a JSON object; absent or of another type: the default ---- */
const char *value_text(const json_t *object, const char *name);       /* "" */
double value_number(const json_t *object, const char *name);          /* 0 */
uint64_t value_u64(const json_t *object, const char *name);           /* 0 */
bool value_true(const json_t *object, const char *name);              /* false */
void keep_text(char *to, size_t cap, struct span text); /* a copy, cut to fit, terminated */
/* A text of a key's bytes, with U+FFFD for what is no UTF-8; NULL: no memory. */
must_check json_t *key_json(struct span key);

/* ---- verbs ---- */
int status_run(struct ctl *c);
void status_text(const struct ctl *c, const json_t *status, struct text *out);
/* status --sizing: one look. The exit code. */
int sizing_show(const struct ctl *c);
void sizing_text(const json_t *answer, struct text *out);
int env_run(struct ctl *c);
/* ERR_SYNTAX: url is nothing that may be given to a shell; ERR_NOT_FOUND: no such shell. */
must_check enum err env_print(const char *shell, const char *url, struct text *out);
/* Tells which programs here ignore the variables. */
void tools_warn(const struct ctl *c, const char *url);
/* Runs a program without a shell and without input, at most so long. true: it ended well; what it
 * printed stands in out. */
bool program_run(const char *const argv[], uint64_t patience_ms, struct text *out);
int setup_run(struct ctl *c);
int doctor_run(struct ctl *c);
int ready_run(struct ctl *c);
int version_run(struct ctl *c);
int config_show_run(struct ctl *c);
int config_reload_run(struct ctl *c);
int drain_run(struct ctl *c);
int completion_run(struct ctl *c);
int man_run(struct ctl *c);
int disk_ls_run(struct ctl *c);
/* Of a disk, or of the cache: what is lost beside the bytes in use, if it is worth telling. */
void disk_add_lost(struct text *t, const json_t *of);
int disk_fence_run(struct ctl *c);
int disk_readmit_run(struct ctl *c);
int pin_run(struct ctl *c);
int unpin_run(struct ctl *c);
int pins_run(struct ctl *c);
int ls_run(struct ctl *c);
int du_run(struct ctl *c);
/* ---- objects.c: objects as they are here and as they are listed ---- */
struct item {
    char *key, *etag;                /* owned; etag: NULL, or what a list of keys says */
    uint64_t size, cached;
    char last_read[25];
    bool here, listed, pinned;
};
struct items {
    struct item *item;
    size_t count, room;
    bool no_memory;
};
/* A new one, or NULL and s->no_memory. */
struct item *items_add(struct items *s, struct span key);
void item_free(struct item *one);
void items_free(struct items *s);
struct listed {                      /* a store's list, page after page; zeroed but for items */
    struct items *items;
    struct item *last;
    char token[2 * KIB];             /* of the next page */
    bool truncated, encoded;
    const char *wrong;               /* with the last page */
};
/* The query of the next page. */
void list_query(struct text *t, struct span prefix, const char *token);
/* Adds a page, after xml_setup(). false: it is none (wrong), or items->no_memory. */
bool list_read(struct listed *l, struct span document);
int top_run(struct ctl *c);
int hist_run(struct ctl *c);
/* "s3://bucket/prefix", or without the scheme, to "bucket/prefix". false: it names no bucket. */
must_check bool place_read(const char *word, struct span *out);
/* "18h" stays; a date, local or with Z, becomes RFC 3339 in UTC. false: it is neither. */
must_check bool until_read(const char *text, char out[32]);
/* An RFC 3339 time in UTC as people here write it. */
void when_add(struct text *t, const char *utc);
int evict_run(struct ctl *c);
int revalidate_run(struct ctl *c);
int verify_run(struct ctl *c);
int prewarm_run(struct ctl *c);
/* prewarm --via: keys is NULL or the lines of a list. */
struct wanted;
int via_run(struct ctl *c, const struct wanted *l, struct span place);
/* ---- wanted.c: the keys of a prewarm ---- */
struct wanted {
    char *bytes;                     /* owned: a line of JSON for each key */
    size_t len, room;
    uint64_t count;
    bool fixed;                      /* the prefix was given; else it is what all keys share */
    char bucket[BUCKET_BYTES_MAX + 1], prefix[KEY_BYTES_MAX + 1];
    size_t bucket_len, prefix_len;
};
/* From --wds and --manifest. The exit code; the reason was told. wanted_free() in any case. */
int wanted_read(struct ctl *c, struct wanted *out);
void wanted_free(struct wanted *l);
/* ---- bench.c ---- */
int bench_run(struct ctl *c);
struct bench_result {
    const char *name;                /* "origin directly" */
    double rate, first_ms, times;    /* bytes a second; times 0: not shown */
};
void bench_text(const struct bench_result *r, struct text *out);
/* ---- plan.c ---- */
int plan_load_run(struct ctl *c);
int plan_show_run(struct ctl *c);
int plan_drop_run(struct ctl *c);
void plan_text(const json_t *plan, struct text *t);    /* as people read it */
/* ---- job.c ---- */
int jobs_run(struct ctl *c);
int job_show_run(struct ctl *c);
int job_wait_run(struct ctl *c);
int job_pause_run(struct ctl *c);
int job_resume_run(struct ctl *c);
int job_retry_run(struct ctl *c);
int job_cancel_run(struct ctl *c);
int job_bandwidth_run(struct ctl *c);
/* What is known of a job, as people read it; the exit code that says the same. */
int job_text(const json_t *job, struct text *out);
/* The same in a few words, of one that works: "j7 prewarm data/ 50 % (1m 03s left)". */
void job_brief(const json_t *job, struct text *out);
/* Waits for the end of a job, with a bar; prints it; the exit code. */
int job_watch(const struct ctl *c, const char *id);
/* The same without a word, unless it does not end well. */
int job_end(const struct ctl *c, const char *id);

/* ---- doctor's parts: doctor.c, kernel.c, disk.c ---- */
enum grade { GRADE_OK, GRADE_WARN, GRADE_FAIL, GRADE_UNKNOWN };
struct doctor {
    const struct ctl *ctl;
    json_t *status, *config;         /* of the server; NULL: none answers */
    const json_t *upstream;          /* of the status: the one that is looked at */
    const char *which;               /* its name, before each line; NULL: there is only one */
    int server_pid;                  /* 0: unknown */
    unsigned failed;
};
void doctor_say(struct doctor *d, enum grade grade, const char *check, const char *format, ...)
    printf_like(4, 5);
void kernel_check(struct doctor *d);
void kernel_check_limits(struct doctor *d);
void kernel_check_congestion(struct doctor *d);
void disk_check(struct doctor *d, const char *dir);

#endif
