/* Opening and closing upstream: endpoint, credentials, region, TLS, addresses or directory, with
 * words for every refusal.
 *
 * Invariants:
 *  1. Only the configured endpoint counts: AWS_ENDPOINT_URL and endpoints in profiles are ignored,
 *     as they point clients at us.
 *  2. Plain HTTP to public addresses and unverified certificates happen only with
 *     upstream.insecure, and each is told.
 *
 * Life: origin_open() at start on the main thread; origin_close() after the last core ended.
 * Failure: every refusal fills `why` with cause and fix; what can heal by itself (names that do not
 * resolve yet, missing credentials where buckets may be public) is a warning. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "creds.h"
#include "log.h"
#include "server/origin/inside.h"
#include "tls.h"

enum { WHY_BYTES = 512 };
extern char **environ;

static void say(char why[WHY_BYTES], const char *format, ...) printf_like(2, 3);
static void say(char why[WHY_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, WHY_BYTES, format, arguments); /* cut at the end: cause first, fix last */
    va_end(arguments);
}

/* The first warning is the one that status shows. */
static void warn(struct origin *o, const char *text)
{
    if (!o->warning[0])
        snprintf(o->warning, sizeof(o->warning), "%s", text);
}

static enum err open_endpoint(struct origin *o, char why[WHY_BYTES])
{
    const struct conf_upstream *config = o->config;
    const char *text = config->endpoint, *reason = "";

    if (!text || !text[0]) {
        say(why, "upstream.endpoint is not set; use https://host[:port], http://host[:port] "
                 "or file:///dir");
        return ERR_CONFIG;
    }
    if (endpoint_read(span_of(text), config->path_style, &o->endpoint, &reason) == OK)
        return OK;
    say(why, "upstream.endpoint \"%s\": %s; use https://host[:port], http://host[:port] or "
             "file:///dir", text,
             reason);
    return ERR_CONFIG;
}

static enum err open_name(struct origin *o)
{
    const char *name = o->config->name;
    const struct endpoint *p = &o->endpoint;
    char memory[2 * KIB];

    if (!name || !name[0]) {
        if (p->directory)
            snprintf(memory, sizeof(memory), "%s", p->path);
        else
            snprintf(memory, sizeof(memory), "%s:%u%s", p->host, (unsigned)p->port, p->path);
        name = memory;
    }
    o->store_name = mem_copy(span_of(name));
    return o->store_name ? OK : ERR_MEMORY;
}

static void tell_missing_creds(struct origin *o)
{
    const struct settings *t = o->server->settings;
    const struct creds *creds = settings_creds(t, o->number);
    const struct profile *p = settings_profile(t, o->config->profile);
    const char *reason = p ? p->why : "";

    if (creds && creds->access_key[0])
        return;
    if (creds) {                     /* told in status by the refresher, which goes on trying */
        log_event(EVENT_CREDENTIALS, "upstream=%s found=%s effect=%s why=%s",
                  log_value(span_of(o->store_name)), log_value(span_of(creds->source)),
                  log_value(span_of("not ready; what is not cached is refused")),
                  log_value(span_of(reason)));
        return;
    }
    warn(o, "no upstream credentials: requests go unsigned");
    log_event(EVENT_CREDENTIALS, "upstream=%s found=none effect=%s fix=%s",
              log_value(span_of(o->store_name)),
              log_value(span_of("requests go unsigned; only public buckets work")),
              log_value(span_of(reason)));
}

static enum err open_region(struct origin *o, const struct creds_place *place, char why[WHY_BYTES])
{
    const char *configured = o->config->region;
    char found[CREDS_REGION_BYTES_MAX + 1] = "us-east-1";
    struct text reason;

    text_init(&reason, why, WHY_BYTES);
    if (configured && configured[0]) {
        if (!region_is_name(span_of(configured))) {
            say(why, "upstream.region \"%s\" is not a region's name, such as eu-central-1",
                configured);
            return ERR_CONFIG;
        }
        o->region = mem_copy(span_of(configured));
        return o->region ? OK : ERR_MEMORY;
    }
    enum err e = creds_region(place, found, &reason);
    if (e == ERR_NOT_FOUND) {
        why[0] = '\0';
        endpoint_region(span_of(o->endpoint.host), found);
    } else if (e != OK) {
        return e;
    }
    o->region = mem_copy(span_of(found));
    return o->region ? OK : ERR_MEMORY;
}

static enum err make_tls(struct origin *o, char why[WHY_BYTES])
{
    const struct conf_upstream *config = o->config;
    const char *ca_file = config->ca_file, *reason = "", *bundle = getenv("AWS_CA_BUNDLE");

    if (!ca_file || !ca_file[0])
        ca_file = bundle ? bundle : "";
    enum err e = tls_context_make(ca_file, config->insecure, &o->tls, &reason);
    if (e != OK)
        say(why, "upstream.ca_file \"%s\": %s", ca_file, reason);
    return e;
}

static enum err open_tls(struct origin *o, char why[WHY_BYTES])
{
    TRY(make_tls(o, why));
    if (o->config->insecure) {
        warn(o, "certificates are not verified (upstream.insecure)");
        log_event(EVENT_INSECURE, "upstream=%s", log_value(span_of(o->store_name)));
    }
    return OK;
}

static enum err make_addresses(struct origin *o, char why[WHY_BYTES])
{
    const struct endpoint *p = &o->endpoint;
    bool refused = false;

    enum err e = addresses_open(p, p->tls || o->config->insecure, &o->addresses, &refused);
    if (e != OK) {
        say(why, "upstream.endpoint: the resolver's thread cannot be started: %s", err_text(e));
        return e;
    }
    if (refused) {
        say(why, "upstream.endpoint: %s has a public address, and plain HTTP would send "
                 "everything readable over the Internet; use https://%s, or set "
                 "upstream.insecure = true if you mean it",
            p->host, p->host);
        return ERR_CONFIG;
    }
    return OK;
}

static enum err open_addresses(struct origin *o, char why[WHY_BYTES])
{
    TRY(make_addresses(o, why));
    if (!o->endpoint.tls) {
        warn(o, "plain HTTP: bytes are not encrypted on the way");
        log_event(EVENT_PLAIN_UPSTREAM, "upstream=%s", log_value(span_of(o->store_name)));
    }
    if (addresses_count(o->addresses) == 0)
        warn(o, "the endpoint's name does not resolve");
    return OK;
}

static enum err open_root(struct origin *o, char why[WHY_BYTES])
{
    o->root_fd = open(o->endpoint.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (o->root_fd < 0) {
        say(why, "upstream.endpoint: directory \"%s\": %s; it must exist and be readable for "
                 "the server's user",
                 o->endpoint.path, strerrordesc_np(errno));
        return ERR_CONFIG;
    }
    return OK;
}

static enum err open_directory(struct origin *o, char why[WHY_BYTES])
{
    TRY(open_root(o, why));
    return lister_open(o->root_fd, o->endpoint.path, &o->lister);
}

/* The first one opens it, for the profiles of all. */
static enum err open_refresher(struct origin *o, char why[WHY_BYTES])
{
    struct server *s = o->server;
    struct text reason;

    if (s->refresher)
        return OK;
    text_init(&reason, why, WHY_BYTES);
    TRY(refresher_open(s, &o->refresher));
    s->refresher = o->refresher;
    return refresher_fill(s->refresher, s->settings, true, &reason);
}

static enum err open_remote(struct origin *o, char why[WHY_BYTES])
{
    const struct creds_place place = {.environ_ = environ, .profile = o->config->profile,
        .region = "", .sts_endpoint = ""};

    TRY(open_refresher(o, why));
    tell_missing_creds(o);
    TRY(open_region(o, &place, why));
    if (o->endpoint.tls)
        TRY(open_tls(o, why));
    return open_addresses(o, why);
}

static void set_permits(struct origin *o)
{
    throttle_init(&o->throttle, o->config->connections);
    width_init(&o->width);
    for (unsigned i = 0; i < ASK_CLASS_COUNT; i++)
        list_init(&o->queue[i]);
}

enum err origin_fill(struct server *s, struct settings *t, struct text *why)
{
    return s->refresher ? refresher_fill(s->refresher, t, false, why) : OK;
}

bool origin_has_news(struct server *s)
{
    return s->refresher && refresher_has_news(s->refresher);
}

struct settings *origin_renewed(struct server *s)
{
    return s->refresher ? refresher_take(s->refresher) : NULL;
}

static struct origin *make_origin(const struct conf_upstream *u)
{
    struct origin *o = mem_take(sizeof(*o));

    if (!o)
        return NULL;
    o->config = u;
    o->root_fd = -1;
    atomic_init(&o->clock_seen_s, CLOCK_UNKNOWN);
    pthread_mutex_init(&o->lock, NULL);
    set_permits(o);
    return o;
}

/* All of an opening that neither asks nor starts anybody. */
static enum err try_parts(struct origin *o, bool runs, char why[WHY_BYTES])
{
    const struct creds_place place = {.environ_ = environ, .profile = o->config->profile,
        .region = "", .sts_endpoint = ""};

    TRY(open_endpoint(o, why));
    if (o->endpoint.directory)
        return runs ? OK : open_root(o, why);
    TRY(open_region(o, &place, why));
    if (o->endpoint.tls)
        TRY(make_tls(o, why));
    return o->endpoint.host_is_address ? make_addresses(o, why) : OK;
}

/* As that of a profile's file, by who looked for credentials there, or by another upstream. */
static bool is_told(const struct conf_mistakes *m, const char *why)
{
    for (unsigned i = 0; i < m->count && i < CONF_MISTAKES_MAX; i++)
        if (span_ends(span_of(m->item[i].text), span_of(why)))
            return true;
    return false;
}

enum err origin_check(const struct conf_upstream *u, bool runs, struct conf_mistakes *m)
{
    struct origin *o = make_origin(u);
    char why[WHY_BYTES] = "";
    enum err e = o ? try_parts(o, runs, why) : ERR_MEMORY;

    if (e != OK && !is_told(m, why[0] ? why : err_text(e)))
        conf_mistakes_tell(m, "%s", why[0] ? why : err_text(e));
    origin_close(o);
    return e;
}

enum err origin_open(struct server *s, unsigned number, char why[WHY_BYTES])
{
    struct origin *o = make_origin(&s->config->upstream[number]);

    why[0] = '\0';
    if (!o) {
        say(why, "no memory for the upstream");
        return ERR_MEMORY;
    }
    o->server = s;
    o->number = number;
    enum err e = open_endpoint(o, why);
    if (e == OK)
        e = open_name(o);
    if (e == OK)
        e = o->endpoint.directory ? open_directory(o, why) : open_remote(o, why);
    if (e != OK) {
        if (!why[0])
            say(why, "upstream: %s", err_text(e));
        origin_close(o);
        return e;
    }
    o->label = metric_name_label(NAMED_UPSTREAM, o->store_name);
    metric_gauge_set(METRIC_UPSTREAM_UP, o->label, 1);
    origin_tell_limits(o);
    s->origin[number] = o;
    return OK;
}

void origin_close(struct origin *o)
{
    if (!o)
        return;
    lister_close(o->lister);
    if (o->refresher)
        o->server->refresher = NULL;
    refresher_close(o->refresher);
    for (unsigned i = 0; i < ORIGIN_CORES_MAX; i++)
        mem_give(atomic_load(&o->part[i]));
    if (o->root_fd >= 0)
        close(o->root_fd);
    addresses_close(o->addresses);
    tls_context_give(o->tls);
    mem_give(o->region);
    mem_give(o->store_name);
    pthread_mutex_destroy(&o->lock);
    mem_give(o);
}
