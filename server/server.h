/* The process: what is made at start and does not change until exit, and what a reload replaces.
 *
 * Invariants:
 *  1. After birth (main.c) every field is constant but the atomics and `settings`, so that no lock
 *     is needed to read it. Cores read settings through their own pointer (loop.h), which changes
 *     between two turns; other threads through settings_hold().
 *  2. Parts are born in the order of the floors and die in the mirrored order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_SERVER_H
#define HEADPOND_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base.h"
#include "conf.h"
#include "metric.h"

struct core;
struct cache;
struct origin;
struct refresher;
struct fills;
struct creds;
struct creds_plan;
struct keys;
struct net;
struct desk;
struct admin;
struct jobs;
struct plans;
struct plan_ops;
struct tls_context;

enum { PROFILES_MAX = 16, PROFILE_NAME_BYTES = 128 };
struct profile {                     /* whose credentials sign for an upstream */
    char name[PROFILE_NAME_BYTES];   /* upstream.profile; "" = AWS_PROFILE, or "default" */
    bool used;                       /* named by this configuration or its keys_file */
    struct creds_plan *plan;         /* held; NULL: nothing is configured */
    /* NULL: requests go unsigned; without an access key: they are configured, but not to be had
     * yet, and requests fail */
    struct creds *creds;
    char why[256];                   /* why there are none */
};

/* settings.c: immutable once published; freed by the last who drops it */
struct settings {
    const struct config *config;     /* options that need a restart are those of the start */
    struct config *owned_config;     /* the same; NULL: that of the start, or root's */
    struct keys *keys;               /* NULL: keys_file is not set */
    /* each name once, at the number that it has for as long as the process lives; 0 is the start's
     * upstream.profile, which needs a restart to change */
    struct profile profile[PROFILES_MAX];
    unsigned profile_count;
    const struct creds *creds;       /* of the first upstream; NULL: requests go unsigned */
    /* profile that an upstream signs with, by the upstream's number; PROFILES_MAX: a directory */
    uint8_t profile_of[CONF_UPSTREAMS_MAX];
    uint8_t bucket_label[CONF_BUCKETS_MAX + 1]; /* index of the label `bucket`, by section */
    /* held: owns keys and certificate, and the configuration that ours is, or is made from by a
     * schedule; NULL: we do */
    struct settings *root;
    struct tls_context *tls;         /* of the listeners; NULL: plain */
    _Atomic unsigned holders;
};

/* wishes.c: how a reload ended */
struct reload_outcome {
    enum err result;                 /* OK: all cores have taken what was read */
    struct conf_mistakes mistakes;   /* of another result; none: the result says it */
    char restart[4 * KIB];           /* options that changed and wait for a restart: "a.b, c.d" */
};
struct wishes {                      /* zeroed = nobody asked */
    pthread_mutex_t lock;
    pthread_cond_t told;
    /* numbers of askers: all, those that the reload under way will have an answer for, those
     * answered */
    uint64_t asked, begun, done;
    bool over;
    bool ends;                       /* asked for, and no signal behind it was taken for the same */
    struct reload_outcome outcome;   /* of the last reload that ended */
    struct reload_outcome next;      /* main's own: of the one under way */
};

enum server_state { SERVER_STARTING, SERVER_READY, SERVER_DRAINING };

struct server {
    const struct config *config;     /* of the start: for options that need a restart */
    pthread_mutex_t settings_lock;   /* held to take or replace the pointer */
    struct settings *settings;       /* the newest */
    /* main thread: numbers of profiles, given once, so that requests need not hold the settings
     * that they were authorised by */
    char profile_name[PROFILES_MAX][PROFILE_NAME_BYTES];
    unsigned profile_names;
    struct core **core;              /* core[0..core_count), one thread each */
    unsigned core_count;
    struct cache *cache;
    struct origin *origin[CONF_UPSTREAMS_MAX]; /* one for each upstream of the configuration */
    struct refresher *refresher;     /* one of them owns it; NULL: all are directories */
    struct fills *fills;
    struct net *net;
    struct desk *desk;               /* loop/desk.c */
    const struct plan_ops *plan_ops;
    struct jobs *jobs;
    struct plans *plans;
    struct admin *admin;
    /* identities of the upstreams' stores, each once: part of every cache id */
    char store[CONF_UPSTREAMS_MAX][300];
    unsigned store_count;
    uint8_t store_of[CONF_UPSTREAMS_MAX]; /* by the upstream's number */
    char name[256];                  /* server.name or the host name */
    char via[300];                   /* name-8hex: finds request loops */
    uint64_t started_wall_s, started_ms;
    _Atomic int state;               /* enum server_state */
    struct wishes wishes;
    /* any thread: main has credentials to publish; may be NULL */
    void (*renewed)(struct server *s);
};

/* Who posts plans or asks for them, where not everybody may everything: embedded in what its owner
 * knows of him, who sees that it lives until he is answered. */
struct plan_right {
    /* May he read all that begins so? bucket, or bucket/ and what keys begin with. Any thread but a
     * core's. */
    bool (*may)(const struct plan_right *r, const char *prefix);
    uint8_t profile;                 /* as whom upstream is asked for him: struct ask */
};

/* What s3/ asks of jobs/, which are of one floor: main fills it, jobs.h says what they do. At the
 * desk only. */
struct plan_body;
struct text;
struct plan_ops {
    struct plan_body *(*make)(struct server *s, bool lines, const struct plan_right *right);
    bool (*take)(struct plan_body *b, struct span bytes);
    void (*leave)(struct plan_body *b);
    enum err (*post)(struct server *s, struct plan_body *b, const struct plan_right *right,
                     struct text *out);
    enum err (*tell)(struct server *s, uint64_t id, const struct plan_right *right,
                     struct text *out);
    enum err (*drop)(struct server *s, uint64_t id, const struct plan_right *right,
                     struct text *out);
};

/* ---- wishes.c: from any thread ---- */
/* Reads configuration, keys, credentials and certificate anew, and waits for the outcome.
 * ERR_TIMEOUT: it is not known yet; ERR_CANCELLED: the server ends. */
must_check enum err server_ask_reload(struct server *s, uint64_t timeout_ms,
                                      struct reload_outcome *out);
/* As a first SIGTERM, however often. */
void server_ask_end(struct server *s);
/* ---- by main ---- */
void wishes_begin(struct server *s);
void wishes_refused(struct server *s, enum err e, const struct conf_mistakes *m);
void wishes_keep(struct server *s, struct span options); /* these wait for a restart */
void wishes_end(struct server *s);
void wishes_over(struct server *s);                      /* no reload from now on */
/* A signal in the drain means the end that was asked for before it: true once at most. */
must_check bool wishes_same_end(struct server *s);

/* Main thread, as settings_make(). The first ones, of s->config. ERR_CONFIG and others with
 * mistakes to tell; ERR_MEMORY. */
must_check enum err settings_open(struct server *s, struct conf_mistakes *mistakes);
/* A file or directory that a start needs may lie on what is mounted late, or is broken for now. */
bool settings_await_file(const struct config *c);
/* Of another configuration, which they take over (also in failure). */
must_check enum err settings_make(struct server *s, struct config *next, struct settings **out,
                                  struct conf_mistakes *mistakes);
struct settings *settings_hold(struct server *s); /* any thread */
void settings_drop(const struct settings *t);     /* NULL is fine */
void settings_publish(struct server *s, struct settings *next);
/* The newest again, to be changed and published: with their own credentials, all else shared.
 * ERR_MEMORY. */
must_check enum err settings_again(struct server *s, struct settings **out);
/* With what the schedules in force set (conf.h: in_force), credentials as in `now`, all else
 * shared. ERR_MEMORY. */
must_check enum err settings_schedule(struct settings *now, uint32_t in_force,
                                      struct settings **out);
/* Other schedules are in force in this minute than in t. */
bool settings_are_due(const struct settings *t);
/* The same with those of this minute; takes t. t itself: it has them, or there is no memory. */
must_check struct settings *settings_follow(struct settings *t);
/* While they are not published. creds are copied; NULL: there are none. why: a sentence or "". */
must_check enum err settings_set_creds(struct settings *t, unsigned profile,
                                       const struct creds *creds, const char *why);
const struct profile *settings_profile(const struct settings *t, const char *name); /* or NULL */
/* Of an upstream, by its number. NULL: requests go unsigned, or it is a directory. */
const struct creds *settings_creds(const struct settings *t, unsigned upstream);
/* Credentials that are configured could not be had yet. */
bool settings_wait(const struct settings *t);
void settings_close(struct server *s);

/* Fills s->store: what each store is called in identities. A single upstream is its name or,
 * without one, where it is. Several are where they are: sections that lead to one place are one
 * store, so that a write by one is known to the other, and a section that joins changes nothing for
 * those that were there. ERR_SYNTAX, ERR_TOO_LARGE. */
must_check enum err server_name_stores(struct server *s);

#endif
