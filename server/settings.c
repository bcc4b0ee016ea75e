/* What a reload replaces, made as one whole: configuration, local keys, credentials, certificate.
 *
 * Invariants:
 *  1. Nothing changes after settings_publish(): who holds settings may read them without a lock.
 *  2. Making is all or nothing; every file that is named was read, or there are mistakes to tell.
 *  3. Options that need a restart keep the values of the start, also as memory: the texts belong to
 *     the configuration of the start, which lives as long as the process.
 *
 * Life: the server holds the newest, each core the ones it works with; the last one who drops them
 * frees them.
 * Failure: mistakes with file and place, or ERR_MEMORY; what was made so far is freed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "creds.h"
#include "log.h"
#include "server/server.h"
#include "tls.h"

enum { CERTIFICATE_WARN_S = 14 * 24 * 3600 };

extern char **environ;

static void free_settings(struct settings *t)
{
    keys_give(t->keys);
    if (t->creds)
        creds_wipe(t->creds);
    mem_give(t->creds);
    tls_context_give(t->tls);
    conf_give(t->owned_config);
    mem_give(t);
}

static void add_mistake(struct conf_mistakes *m, const char *format, ...) printf_like(2, 3);
static void add_mistake(struct conf_mistakes *m, const char *format, ...)
{
    va_list more;
    va_start(more, format);
    if (m->count < CONF_MISTAKES_MAX)
        vsnprintf(m->item[m->count].text, sizeof(m->item[0].text), format, more);
    va_end(more);
    m->count++;
}

/* ---- parts ---- */

static enum err read_keys(struct settings *t, struct conf_mistakes *m)
{
    const char *file = t->config->auth_keys_file;
    if (!file[0])
        return OK;
    enum err e = keys_read(file, &t->keys, m);
    if (e != OK && m->count == 0)
        add_mistake(m, "auth.keys_file: %s: %s", file, err_text(e));
    return e;
}

static enum err read_creds(struct settings *t, struct conf_mistakes *m)
{
    const struct creds_place place = {environ, t->config->upstream_profile};
    struct text why;
    if (span_starts(span_of(t->config->upstream_endpoint), span_of("file:")))
        return OK;
    t->creds = mem_take(sizeof(*t->creds));
    if (!t->creds)
        return ERR_MEMORY;
    text_init(&why, t->no_creds, sizeof(t->no_creds));
    enum err e = creds_read(&place, t->creds, &why);
    if (e == ERR_NOT_FOUND) {
        mem_give_secret(t->creds, sizeof(*t->creds));
        t->creds = NULL;
        return OK;                   /* requests go unsigned */
    }
    if (e != OK)
        add_mistake(m, "upstream: %s", t->no_creds[0] ? t->no_creds : err_text(e));
    return e;
}

static enum err read_certificate(struct settings *t, struct conf_mistakes *m)
{
    const struct config *c = t->config;
    const char *why = "";
    if (!c->server_tls_cert[0])
        return OK;
    enum err e = tls_server_make(c->server_tls_cert, c->server_tls_key, &t->tls, &why);
    if (e != OK) {
        add_mistake(m, "server.tls_cert, tls_key: %s", why);
        return e;
    }
    int64_t left_s = tls_server_ends_s(t->tls) - (int64_t)clock_wall_s();
    if (left_s < CERTIFICATE_WARN_S)
        log_event(EVENT_CERTIFICATE, "file=%s days=%lld", log_value(span_of(c->server_tls_cert)),
                  (long long)left_s / (24 * 3600));
    return OK;
}

static enum err read_all(struct settings *t, struct conf_mistakes *m)
{
    enum err first = read_keys(t, m), e = read_creds(t, m);
    first = first == OK ? e : first;
    e = read_certificate(t, m);
    return first == OK ? e : first;
}

/* ---- making ---- */

static enum err make(const struct config *config, struct config *owned, struct settings **out,
                     struct conf_mistakes *m)
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
    enum err e = read_all(t, m);
    if (e == OK)
        *out = t;
    else
        free_settings(t);
    return e;
}

enum err settings_open(struct server *s, struct conf_mistakes *m)
{
    return make(s->config, NULL, &s->settings, m);
}

enum err settings_make(struct server *s, struct config *next, struct settings **out,
                       struct conf_mistakes *m)
{
    TRY(make(next, next, out, m));
    struct settings *t = *out;
    struct tls_context *before = s->settings->tls;
    if (t->tls && before && tls_server_same(t->tls, before)) {
        tls_context_give(t->tls);    /* its tickets live on */
        t->tls = tls_context_hold(before);
    }
    return OK;
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
    if (mine && atomic_fetch_sub_explicit(&mine->holders, 1, memory_order_acq_rel) == 1)
        free_settings(mine);
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
