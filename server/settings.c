/* What a reload replaces, made as one whole: configuration, local keys, credentials, certificate.
 *
 * Invariants:
 *  1. Nothing changes after settings_publish(): who holds settings may read them without a lock.
 *  2. Making is all or nothing; every file that is named was read, or there are mistakes to tell.
 *  3. Options that need a restart keep the values of the start, also as memory: the texts belong to
 *     the configuration of the start, which lives as long as the process.
 *  4. Settings that differ in credentials only (settings_again) or in what schedules set
 *     (settings_schedule) share the rest with those they were made from, and hold them:
 *     credentials, then schedules, then the whole, never a longer chain.
 *
 * Life: the server holds the newest, each core the ones it works with; the last one who drops them
 * frees them.
 * Failure: mistakes with file and place, or ERR_MEMORY; what was made so far is freed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "creds.h"
#include "endpoint.h"
#include "log.h"
#include "server/server.h"
#include "tls.h"

enum { CERTIFICATE_WARN_S = 14 * 24 * 3600 };

extern char **environ;

static void free_settings(struct settings *t)
{
    for (unsigned i = 0; i < t->profile_count; i++) {
        mem_give_secret(t->profile[i].creds, sizeof(struct creds));
        creds_plan_drop(t->profile[i].plan);
    }
    conf_give(t->owned_config);
    if (!t->root) {
        keys_give(t->keys);
        tls_context_give(t->tls);
    }
    mem_give(t);
}

/* ---- parts ---- */

static enum err read_keys(struct settings *t, struct conf_mistakes *m)
{
    const char *file = t->config->auth_keys_file;
    if (!file[0])
        return OK;
    enum err e = keys_read(file, &t->keys, m);
    if (e != OK && m->count == 0)
        conf_mistakes_tell(m, "auth.keys_file: %s: %s", file, err_text(e));
    return e;
}

static bool is_directory(const struct conf_upstream *u)
{
    return span_starts(span_of(u->endpoint), span_of("file:"));
}

static void use_profile(struct server *s, struct settings *t, unsigned number)
{
    struct profile *p = &t->profile[number];
    memcpy(p->name, s->profile_name[number], sizeof(p->name));
    p->used = true;
}

/* Its number, a new one if need be. False: there is none left. */
static bool number_profile(struct server *s, struct span name, unsigned *out)
{
    for (*out = 0; *out < s->profile_names; ++*out)
        if (span_is(name, s->profile_name[*out]))
            return true;
    if (*out == PROFILES_MAX || name.len >= PROFILE_NAME_BYTES)
        return false;
    memcpy(s->profile_name[*out], name.at, name.len);
    s->profile_name[*out][name.len] = '\0';
    s->profile_names++;
    return true;
}

/* Nobody may believe that his key has credentials of its own upstream while it has not; nor may
 * credentials for one upstream be shown to another. */
static void name_profile_of(struct server *s, struct settings *t, const struct key *k,
                            struct conf_mistakes *m)
{
    const char *file = t->config->auth_keys_file;
    unsigned number;
    if (t->config->upstream_count > 1) {
        conf_mistakes_tell(m, "%s:%u: profile= is for servers with one upstream; with several, "
                              "each has the profile of its [[upstream]]; remove it", file, k->line);
    } else if (is_directory(&t->config->upstream[0])) {
        conf_mistakes_tell(m, "%s:%u: profile= means nothing to a directory: nobody signs for it; "
                              "remove it", file, k->line);
    } else if (!number_profile(s, k->profile, &number)) {
        conf_mistakes_tell(m, "%s:%u: more than %u profiles since the start: name fewer, or "
                              "restart", file, k->line, PROFILES_MAX);
    } else {
        use_profile(s, t, number);
        keys_set_profile(t->keys, k->index, (uint8_t)number);
    }
}

/* The first upstream with that profile: its region and STS are those of the profile. One of a key
 * has those of the only upstream. */
static const struct conf_upstream *home_of(const struct settings *t, unsigned profile)
{
    for (unsigned i = 0; i < t->config->upstream_count; i++)
        if (t->profile_of[i] == profile)
            return &t->config->upstream[i];
    return &t->config->upstream[0];
}

static enum err name_upstream_profile(struct server *s, struct settings *t, unsigned upstream,
                                      struct conf_mistakes *m)
{
    const struct conf_upstream *u = &t->config->upstream[upstream], *home;
    unsigned number;
    _Static_assert((int)PROFILES_MAX >= (int)CONF_UPSTREAMS_MAX, "each may have one of its own");
    if (is_directory(u))
        return OK;
    if (!number_profile(s, span_of(u->profile), &number)) {
        conf_mistakes_tell(m, "upstream.profile: the name is longer than %u bytes",
                           PROFILE_NAME_BYTES - 1);
        return ERR_CONFIG;
    }
    t->profile_of[upstream] = (uint8_t)number;
    home = home_of(t, number);
    if (strcmp(home->sts_endpoint, u->sts_endpoint) != 0) {
        conf_mistakes_tell(m, "upstream.sts_endpoint: upstreams %s and %s share a profile, so they "
                              "must have the same", home->name, u->name);
        return ERR_CONFIG;
    }
    if (u->sts_endpoint[0] &&
        (strcmp(home->ca_file, u->ca_file) != 0 || home->insecure != u->insecure)) {
        conf_mistakes_tell(m, "upstream.sts_endpoint: upstreams %s and %s share a profile and its "
                              "STS, so they must have the same ca_file and insecure", home->name,
                           u->name);
        return ERR_CONFIG;
    }
    use_profile(s, t, number);
    return OK;
}

/* The profiles that configuration and keys name, each once; that of the first upstream is the
 * first. */
static enum err name_profiles(struct server *s, struct settings *t, struct conf_mistakes *m)
{
    const char *first = t->config->upstream[0].profile;
    memset(t->profile_of, PROFILES_MAX, sizeof(t->profile_of));
    if (strlen(first) < PROFILE_NAME_BYTES) {
        snprintf(s->profile_name[0], PROFILE_NAME_BYTES, "%s", first);
        s->profile_names = s->profile_names > 0 ? s->profile_names : 1;
    }
    for (unsigned i = 0; i < t->config->upstream_count; i++)
        TRY(name_upstream_profile(s, t, i, m));
    for (unsigned i = 0; t->keys && i < keys_count(t->keys); i++)
        if (keys_at(t->keys, i)->profile.at)
            name_profile_of(s, t, keys_at(t->keys, i), m);
    t->profile_count = s->profile_names;
    return m->count ? ERR_CONFIG : OK;
}

static enum err make_creds(struct creds **out)
{
    if (!*out)
        *out = mem_take(sizeof(struct creds));
    return *out ? OK : ERR_MEMORY;
}

/* Who has to be asked is asked by origin/; until then there is nothing to sign with. */
static enum err read_profile(struct settings *t, unsigned number, struct conf_mistakes *m)
{
    struct profile *p = &t->profile[number];
    const struct conf_upstream *u = home_of(t, number);
    const struct creds_place place = {.environ_ = environ, .profile = p->name, .region = u->region,
        .sts_endpoint = u->sts_endpoint, .ca_file = u->ca_file, .insecure = u->insecure};
    struct text why;
    text_init(&why, p->why, sizeof(p->why));
    enum err e = creds_find(&place, &p->plan, &why);
    if (e == ERR_NOT_FOUND)
        return OK;                   /* requests go unsigned */
    if (e != OK) {
        bool of_key = t->config->upstream_count == 1 && number > 0;
        const char *who = of_key ? t->config->auth_keys_file : "upstream";
        conf_mistakes_tell(m, "%s: %s", who, p->why[0] ? p->why : err_text(e));
        return e;
    }
    TRY(make_creds(&p->creds));
    if (creds_plan_is_static(p->plan))
        *p->creds = *creds_plan_first(p->plan);
    return OK;
}

static enum err read_creds(struct server *s, struct settings *t, struct conf_mistakes *m)
{
    enum err first = name_profiles(s, t, m);
    for (unsigned i = 0; i < t->profile_count; i++) {
        enum err e = t->profile[i].used ? read_profile(t, i, m) : OK;
        first = first == OK ? e : first;
    }
    t->creds = settings_creds(t, 0);
    return first;
}

static enum err read_certificate(struct settings *t, struct conf_mistakes *m)
{
    const struct config *c = t->config;
    const char *why = "";
    if (!c->server_tls_cert[0])
        return OK;
    enum err e = tls_server_make(c->server_tls_cert, c->server_tls_key, &t->tls, &why);
    if (e != OK) {
        conf_mistakes_tell(m, "server.tls_cert, tls_key: %s", why);
        return e;
    }
    int64_t left_s = tls_server_ends_s(t->tls) - (int64_t)clock_wall_s();
    if (left_s < CERTIFICATE_WARN_S)
        log_event(EVENT_CERTIFICATE, "file=%s days=%lld", log_value(span_of(c->server_tls_cert)),
                  (long long)left_s / (24 * 3600));
    return OK;
}

static enum err read_all(struct server *s, struct settings *t, struct conf_mistakes *m)
{
    enum err first = read_keys(t, m), e = read_creds(s, t, m);
    first = first == OK ? e : first;
    e = read_certificate(t, m);
    return first == OK ? e : first;
}

/* ---- identities of stores ---- */

/* Where it is: never the credentials, so that they may be rotated. */
static enum err place_of(const struct conf_upstream *u, char *out, size_t cap)
{
    struct uri p;
    const char *why;
    TRY(uri_parse(span_of(u->endpoint), &p, &why));
    unsigned port = p.port ? p.port : span_is(p.scheme, "https") ? 443 : 80;
    int n = snprintf(out, cap, "%.*s:%u%.*s", (int)p.host.len, p.host.at, port, (int)p.path.len,
                     p.path.at ? p.path.at : "");
    for (char *at = out; *at && at < out + p.host.len; at++)
        *at = (char)tolower((unsigned char)*at);
    return n > 0 && (size_t)n < cap ? OK : ERR_TOO_LARGE;
}

/* Slashes at the end of a path mean nothing to who asks there. */
static bool is_same_place(const char *a, const char *b)
{
    struct span x = span_of(a), y = span_of(b);
    while (span_ends(x, span_of("/")))
        x.len--;
    while (span_ends(y, span_of("/")))
        y.len--;
    return span_eq(x, y);
}

enum err server_name_stores(struct server *s)
{
    const struct config *c = s->config;
    for (unsigned i = 0; i < c->upstream_count; i++) {
        char *name = s->store[s->store_count];
        if (c->upstream_count == 1 && c->upstream[i].name[0])
            snprintf(name, sizeof(s->store[0]), "%s", c->upstream[i].name);
        else
            TRY(place_of(&c->upstream[i], name, sizeof(s->store[0])));
        unsigned same = 0;
        while (!is_same_place(s->store[same], name))
            same++;
        s->store_of[i] = (uint8_t)same;
        s->store_count += same == s->store_count;
    }
    return OK;
}

/* ---- making ---- */

static enum err make(struct server *s, const struct config *config, struct config *owned,
                     struct settings **out, struct conf_mistakes *m)
{
    struct settings *t = mem_take(sizeof(*t));
    m->count = 0;
    if (!t) {
        conf_give(owned);
        return ERR_MEMORY;
    }
    t->config = config;
    t->owned_config = owned;
    atomic_init(&t->holders, 1);
    unsigned names = s->profile_names;
    enum err e = read_all(s, t, m);
    if (e != OK) {
        s->profile_names = names;    /* nobody has seen the numbers of new ones */
        free_settings(t);
        return e;
    }
    /* Names are few and never taken back: one that is refused gets none. */
    for (unsigned i = 1; i < config->bucket_count; i++)
        t->bucket_label[i] = (uint8_t)metric_name_label(NAMED_BUCKET, config->buckets[i].match);
    *out = t;
    return OK;
}

enum err settings_open(struct server *s, struct conf_mistakes *m)
{
    return make(s, s->config, NULL, &s->settings, m);
}

/* Not there, or on a mount that does not answer for it: all but what somebody has to set right. */
static bool may_come(const char *path)
{
    return path[0] && access(path, F_OK) != 0 && errno != EACCES && errno != ELOOP &&
           errno != ENAMETOOLONG;
}

static bool awaits_file_of(const struct conf_upstream *u)
{
    const char *bundle = getenv("AWS_CA_BUNDLE"), *why;
    struct endpoint at;
    if (endpoint_read(span_of(u->endpoint), u->path_style, &at, &why) != OK)
        return false;
    if (at.directory)
        return may_come(at.path);
    return at.tls && may_come(u->ca_file[0] || !bundle ? u->ca_file : bundle);
}

bool settings_await_file(const struct config *c)
{
    bool awaited = may_come(c->auth_keys_file) || may_come(c->server_tls_cert) ||
                   may_come(c->server_tls_key) || may_come(c->admin_token_file);
    for (unsigned i = 0; i < c->upstream_count; i++)
        awaited = awaited || awaits_file_of(&c->upstream[i]);
    return awaited;
}

enum err settings_make(struct server *s, struct config *next, struct settings **out,
                       struct conf_mistakes *m)
{
    TRY(make(s, next, next, out, m));
    struct settings *t = *out;
    struct tls_context *before = s->settings->tls;
    if (t->tls && before && tls_server_same(t->tls, before)) {
        tls_context_give(t->tls);    /* its tickets live on */
        t->tls = tls_context_hold(before);
    }
    return OK;
}

/* ---- credentials that change ---- */

const struct profile *settings_profile(const struct settings *t, const char *name)
{
    for (unsigned i = 0; i < t->profile_count; i++)
        if (t->profile[i].used && strcmp(t->profile[i].name, name) == 0)
            return &t->profile[i];
    return NULL;
}

const struct creds *settings_creds(const struct settings *t, unsigned upstream)
{
    unsigned i = t->profile_of[upstream];
    return i < t->profile_count ? t->profile[i].creds : NULL;
}

bool settings_wait(const struct settings *t)
{
    for (unsigned i = 0; i < t->profile_count; i++)
        if (t->profile[i].creds && !t->profile[i].creds->access_key[0])
            return true;
    return false;
}

enum err settings_set_creds(struct settings *t, unsigned profile, const struct creds *creds,
                            const char *why)
{
    must(profile < t->profile_count);
    struct profile *p = &t->profile[profile];
    snprintf(p->why, sizeof(p->why), "%s", why);
    if (creds) {
        TRY(make_creds(&p->creds));
        *p->creds = *creds;
    } else {
        mem_give_secret(p->creds, sizeof(*p->creds));
        p->creds = NULL;
    }
    t->creds = settings_creds(t, 0);
    return OK;
}

static enum err copy_profile(const struct settings *from, unsigned i, struct settings *to)
{
    const struct profile *p = &from->profile[i];
    struct profile *copy = &to->profile[to->profile_count++];
    memcpy(copy->name, p->name, sizeof(copy->name));
    copy->used = p->used;
    copy->plan = p->plan ? creds_plan_hold(p->plan) : NULL;
    return settings_set_creds(to, i, p->creds, p->why);
}

/* As `now`, but for what the caller changes; all that root owns is shared. NULL: no memory. */
static struct settings *copy_settings(const struct settings *now, struct settings *root)
{
    struct settings *t = mem_take(sizeof(*t));
    enum err e = OK;
    if (!t)
        return NULL;
    t->config = now->config;
    t->keys = now->keys;
    t->tls = now->tls;
    t->root = root;
    memcpy(t->profile_of, now->profile_of, sizeof(t->profile_of));
    memcpy(t->bucket_label, now->bucket_label, sizeof(t->bucket_label));
    atomic_fetch_add_explicit(&root->holders, 1, memory_order_relaxed);
    atomic_init(&t->holders, 1);
    for (unsigned i = 0; i < now->profile_count && e == OK; i++)
        e = copy_profile(now, i, t);
    if (e == OK)
        return t;
    settings_drop(t);
    return NULL;
}

/* Who owns the configuration that they work with. */
static struct settings *home_of_config(struct settings *t)
{
    return t->root && !t->owned_config ? t->root : t;
}

enum err settings_again(struct server *s, struct settings **out)
{
    struct settings *now = settings_hold(s), *t = copy_settings(now, home_of_config(now));
    settings_drop(now);
    if (!t)
        return ERR_MEMORY;
    *out = t;
    return OK;
}

enum err settings_schedule(struct settings *now, uint32_t in_force, struct settings **out)
{
    struct settings *base = now;
    struct config *config = NULL;
    while (base->root)
        base = base->root;
    if (in_force)
        TRY(conf_scheduled(base->config, in_force, &config));
    struct settings *t = copy_settings(now, base);
    if (!t) {
        conf_give(config);
        return ERR_MEMORY;
    }
    t->config = config ? config : base->config;
    t->owned_config = config;
    *out = t;
    return OK;
}

/* ---- schedules ---- */

static uint32_t wanted_now(const struct settings *t)
{
    return conf_in_force(t->config, conf_minute_of_week(clock_wall_s()));
}

bool settings_are_due(const struct settings *t)
{
    return wanted_now(t) != t->config->in_force;
}

static void tell_schedules(const struct config *c)
{
    char memory[KIB];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    for (unsigned i = 0; i < c->schedule_count; i++)
        if (c->in_force >> i & 1)
            text_addf(&t, "%s%s", t.len ? "; " : "", c->schedule[i].when);
    log_event(EVENT_SCHEDULE, "in_force=%s", log_value(t.len ? text_span(&t) : span_of("none")));
}

struct settings *settings_follow(struct settings *t)
{
    struct settings *next = NULL;
    if (!settings_are_due(t) || settings_schedule(t, wanted_now(t), &next) != OK)
        return t;
    settings_drop(t);
    tell_schedules(next->config);
    return next;
}

/* ---- holding ---- */

struct settings *settings_hold(struct server *s)
{
    pthread_mutex_lock(&s->settings_lock);
    struct settings *t = s->settings;
    if (t)
        atomic_fetch_add_explicit(&t->holders, 1, memory_order_relaxed);
    pthread_mutex_unlock(&s->settings_lock);
    return t;
}

void settings_drop(const struct settings *t)
{
    struct settings *mine = (struct settings *)(uintptr_t)t;
    while (mine && atomic_fetch_sub_explicit(&mine->holders, 1, memory_order_acq_rel) == 1) {
        struct settings *root = mine->root;
        free_settings(mine);
        mine = root;
    }
}

void settings_publish(struct server *s, struct settings *next)
{
    pthread_mutex_lock(&s->settings_lock);
    struct settings *before = s->settings;
    s->settings = next;
    pthread_mutex_unlock(&s->settings_lock);
    settings_drop(before);
}

void settings_close(struct server *s)
{
    settings_publish(s, NULL);
}
