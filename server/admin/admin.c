/* The control plane's doors: which request gets which answer, and who may ask.
 *
 * Invariants:
 *  1. One libmicrohttpd daemon per listening socket, each on its own thread; what they share is the
 *     window of notes, behind admin's lock, and what the parts of the server make readable.
 *  2. A request is judged before its path is looked at: over TCP first Origin and Host, then the
 * method.
 *  3. An answer is made whole in memory of its own, which dies with it.
 *
 * Life: admin_open() binds, starts the sampler and the daemons; admin_close() ends them in
 * mirrored order.
 * Failure: without memory for an answer the connection is closed (libmicrohttpd) or 500 is said. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

enum {
    DOORS_MAX = 9,                   /* eight of admin.listen, and admin.metrics_listen */
    CONNECTIONS_MAX = 64,
    CONNECTIONS_PER_ADDRESS = 16,
    CONNECTION_TIMEOUT_S = 30,
    CONNECTION_BYTES = 64 * KIB,     /* head and answer's head of one connection */
    SMALL_BYTES = KIB,
    STATUS_BYTES = 256 * KIB,
    CONFIG_BYTES = 256 * KIB,
    LIVE_MS = 2000,
    NONCE_BYTES = 16,
    WHY_BYTES = 512,
};

struct admin {
    struct server *server;
    uint64_t opened_ms;              /* the cores had been started by then */
    struct door door[DOORS_MAX];
    unsigned door_count;
    char host[256];                  /* the machine's name, beside server.name */
    pthread_mutex_t lock;            /* of window and stop */
    pthread_cond_t wake;
    pthread_t sampler;
    bool sampling, stop;
    struct window window;
};

struct visit {                         /* one request */
    struct MHD_Connection *connection;
    const struct door *door;
    const char *path, *method;
    bool reads;                      /* GET or HEAD */
};
struct answer {
    unsigned code;
    const char *type, *allow;        /* allow: of a 405, else NULL */
    char policy[256];                /* Content-Security-Policy, or "" */
    struct text body;
};

static const char type_json[] = "application/json", type_text[] = "text/plain; charset=utf-8";

/* ---- what is told ---- */

static const char *state_name(const struct server *s)
{
    switch ((enum server_state)atomic_load(&s->state)) {
    case SERVER_STARTING: return "starting";
    case SERVER_READY: return "ready";
    case SERVER_DRAINING: return "draining";
    }
    return "starting";
}

/* What a client would write to reach us: over a UNIX socket and loopback this machine, else the
 * name by which we were reached. */
static struct span reached_as(const struct visit *a, const struct server *s)
{
    static const struct conf_cidr loopback[] = {
        {.addr = {127}, .bits = 8},
        {.addr = {[15] = 1}, .bits = 128, .v6 = true},
    };
    const union MHD_ConnectionInfo *peer =
        MHD_get_connection_info(a->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const char *field = MHD_lookup_connection_value(a->connection, MHD_HEADER_KIND, "Host");

    if (a->door->local || !peer ||
        conf_cidr_has(loopback, ARRAY_COUNT(loopback), peer->client_addr))
        return span_of("127.0.0.1");
    struct span host = guard_host_name(span_of(field));
    return host.len ? host : span_of(s->name);
}

static void copy_clients(struct server *s, struct status *out)
{
    unsigned count = net_clients(s, out->client, STATUS_CLIENTS_MAX);

    while (count > 0 && out->client[count - 1].last_wall_s + STATUS_RECENT_S < out->now_wall_s)
        count--;
    out->client_count = count;
}

static void copy_warnings(struct status *out)
{
    char recent[10][256];
    size_t lines = log_recent(recent);

    for (unsigned i = 0; i < out->upstream_count; i++) {
        const struct origin_status *u = &out->upstream[i];
        struct text t;
        if (!u->warning[0])
            continue;
        text_init(&t, out->warning[out->warning_count++], sizeof out->warning[0]);
        text_adds(&t, "upstream");
        if (out->upstream_count > 1)
            text_addf(&t, " %s", u->name);
        text_addf(&t, ": %s", u->warning);
    }
    for (size_t i = 0; i < lines && out->warning_count < STATUS_WARNINGS_MAX; i++)
        memcpy(out->warning[out->warning_count++], recent[i], sizeof recent[i]);
}

static void gather(const struct visit *a, struct status *out)
{
    struct server *s = a->door->server;
    struct sample now;

    *out = (struct status){.name = s->name, .state = state_name(s), .pid = getpid()};
    out->uptime_s = (clock_ms() - s->started_ms) / 1000;
    out->now_wall_s = clock_wall_s();
    out->pinned_bytes = metric_read(METRIC_CACHE_PINNED_BYTES, 0, 0, 0);
    cache_status(s->cache, &out->cache);
    out->upstream_count = s->config->upstream_count;
    for (unsigned i = 0; i < out->upstream_count; i++)
        origin_status(s->origin[i], &out->upstream[i]);
    net_congestion(s, out->congestion);
    struct settings *settings = settings_hold(s);
    status_s3_url(s->config->server_listen.item[0], settings->tls != NULL, reached_as(a, s),
                  out->s3_url);
    settings_drop(settings);
    copy_clients(s, out);
    copy_warnings(out);
    sample_take(&now);
    pthread_mutex_lock(&s->admin->lock);
    window_rates(&s->admin->window, &now, &out->last);
    pthread_mutex_unlock(&s->admin->lock);
}

/* ---- answers ---- */

static bool make_room(struct answer *out, size_t bytes)
{
    char *memory = mem_take(bytes);

    if (memory)
        text_init(&out->body, memory, bytes);
    return memory != NULL;
}

static void refuse(struct answer *out, unsigned status, const char *code, const char *message,
                   const char *hint)
{
    mem_give(out->body.at);
    out->body = (struct text){0};
    out->code = status;
    out->type = type_json;
    if (make_room(out, SMALL_BYTES))
        status_error(&out->body, code, message, hint);
}

static void answer_live(const struct visit *a, struct answer *out)
{
    const struct server *s = a->door->server;

    out->type = type_text;
    if (!make_room(out, SMALL_BYTES))
        return;
    for (unsigned i = 0; i < s->core_count; i++) {
        /* A loop that waits in its first turn has not told anything yet. */
        uint64_t known_ms = clock_ms() - s->admin->opened_ms;
        uint64_t silent_ms = min_u64(core_silent_ms(s->core[i]), known_ms);
        if (core_ended(s->core[i]) || silent_ms < LIVE_MS)
            continue;
        out->code = MHD_HTTP_SERVICE_UNAVAILABLE;
        text_addf(&out->body, "loop %u did not turn for %llu ms\n", i,
                  (unsigned long long)silent_ms);
    }
    if (out->code == MHD_HTTP_OK)
        text_adds(&out->body, "ok\n");
}

static void add_parts(const struct server *s, struct text *t)
{
    struct cache_status cache;
    unsigned up = 0, several = s->config->upstream_count > 1;

    cache_status(s->cache, &cache);
    for (unsigned i = 0; i < cache.disk_count; i++)
        up += cache.disk[i].up;
    bool ready = atomic_load(&s->state) == SERVER_READY;
    text_addf(t, "[%c] state: %s\n", ready ? '+' : '-', state_name(s));
    text_addf(t, "[%c] disks: %u of %u up\n", up == cache.disk_count ? '+' : '-', up,
              cache.disk_count);
    for (unsigned i = 0; i < s->config->upstream_count; i++) {
        bool there = !origin_is_down(s->origin[i]);
        text_addf(t, "[%c] upstream%s%s: %s\n", there ? '+' : '-', several ? " " : "",
                  several ? origin_store_name(s->origin[i]) : "",
                  there ? "up" : "down (what is cached is still served)");
    }
}

static void answer_ready(const struct visit *a, struct answer *out)
{
    const struct server *s = a->door->server;
    const char *value;
    size_t len;

    out->type = type_text;
    if (!make_room(out, SMALL_BYTES))
        return;
    bool ready = atomic_load(&s->state) == SERVER_READY;
    out->code = ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    if (MHD_lookup_connection_value_n(a->connection, MHD_GET_ARGUMENT_KIND, "verbose",
                                      strlen("verbose"), &value, &len) == MHD_YES)
        add_parts(s, &out->body);
    text_addf(&out->body, "%s\n", ready ? "ok" : state_name(s));
}

static void answer_metrics(const struct visit *a, struct answer *out)
{
    struct cache_status cache;

    cache_status(a->door->server->cache, &cache); /* refreshes its gauges */
    out->type = "text/plain; version=0.0.4; charset=utf-8";
    if (make_room(out, metric_print_bytes_max() + 1))
        metric_print(&out->body);
}

static void answer_status(const struct visit *a, struct answer *out)
{
    struct status s;

    gather(a, &s);
    if (make_room(out, STATUS_BYTES))
        status_print(&s, &out->body);
}

static void answer_config(const struct visit *a, struct answer *out)
{
    char *memory = mem_take(CONFIG_BYTES);
    struct settings *now = settings_hold(a->door->server);
    struct text toml;

    if (memory && make_room(out, 2 * CONFIG_BYTES)) {
        text_init(&toml, memory, CONFIG_BYTES);
        conf_print(now->config, &toml);
        status_config(text_span(&toml), &out->body);
        out->body.over |= toml.over;
    }
    settings_drop(now);
    mem_give(memory);
}

static void answer_page(const struct visit *a, struct answer *out)
{
    struct admin *admin = a->door->server->admin;
    struct rates series[WINDOW_SAMPLES];
    struct status s;
    uint8_t mark[NONCE_BYTES];
    char nonce[2 * NONCE_BYTES + 1];

    random_bytes(mark, sizeof mark);
    for (unsigned i = 0; i < sizeof mark; i++)
        snprintf(nonce + 2 * i, 3, "%02x", mark[i]);
    gather(a, &s);
    pthread_mutex_lock(&admin->lock);
    unsigned count = window_series(&admin->window, series);
    pthread_mutex_unlock(&admin->lock);
    out->type = "text/html; charset=utf-8";
    snprintf(out->policy, sizeof out->policy,
             "default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; connect-src 'self'; "
             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'", nonce, nonce);
    if (make_room(out, PAGE_BYTES_MAX))
        page_print(&s, series, count, nonce, &out->body);
}

/* ---- paths ---- */

static const struct route {
    const char *path;
    void (*answer)(const struct visit *a, struct answer *out);
    bool everywhere;                 /* also on admin.metrics_listen */
} routes[] = {
    {"/", answer_page, true},
    {"/livez", answer_live, true},
    {"/readyz", answer_ready, true},
    {"/healthz", answer_ready, true},
    {"/metrics", answer_metrics, true},
    {"/v1/status", answer_status, true},
    {"/v1/config", answer_config, false},
};

/* Paths of the interface that this version does not serve; what ends in "/" stands for all below
 * it. */
static const struct {
    const char *path, *hint;
} later[] = {
    {"/v1/disks", "GET /v1/status lists the disks; a change of cache.dirs needs a restart"},
    {"/v1/disks/", "GET /v1/status lists the disks; a change of cache.dirs needs a restart"},
    {"/v1/top", "log.access = \"all\" writes one line per request"},
    {"/v1/hist", "GET /metrics has headpond_request_duration_seconds"},
    {"/v1/objects", "a HEAD through the S3 port tells by x-headpond-cached how much is here"},
    {"/v1/prewarm", "read the objects once through the S3 port: they stay"},
    {"/v1/jobs", "there are no jobs in this version"},
    {"/v1/jobs/", "there are no jobs in this version"},
    {"/v1/plans", "whole-object reads are read ahead without a plan"},
    {"/v1/plans/", "whole-object reads are read ahead without a plan"},
    {"/v1/pins", "nothing can be pinned in this version"},
    {"/v1/evict", "what is read least goes by itself when room is needed"},
    {"/v1/revalidate", "objects are asked for upstream again after cache.ttl"},
    {"/v1/verify", "checksums are compared on every disk read"},
    {"/v1/config/reload", "SIGHUP reloads: systemctl reload headpond"},
    {"/v1/drain", "SIGTERM drains: systemctl stop headpond"},
};

static const char *later_hint(const char *path)
{
    struct span asked = span_of(path);

    for (unsigned i = 0; i < ARRAY_COUNT(later); i++) {
        struct span row = span_of(later[i].path);
        if (row.at[row.len - 1] == '/' ? span_starts(asked, row) : span_eq(asked, row))
            return later[i].hint;
    }
    return NULL;
}

static void find_answer(const struct visit *a, struct answer *out)
{
    for (unsigned i = 0; i < ARRAY_COUNT(routes); i++) {
        bool hidden = a->door->metrics_only && !routes[i].everywhere;
        if (hidden || strcmp(a->path, routes[i].path) != 0)
            continue;
        if (a->reads) {
            routes[i].answer(a, out);
            return;
        }
        out->allow = "GET, HEAD";
        refuse(out, MHD_HTTP_METHOD_NOT_ALLOWED, "method_not_allowed", "this can only be read",
               "use GET");
        return;
    }
    const char *hint = a->door->metrics_only ? NULL : later_hint(a->path);
    if (hint)
        refuse(out, MHD_HTTP_NOT_IMPLEMENTED, "not_implemented", "not in this version", hint);
    else
        refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "there is nothing at this path",
               "try /, /livez, /readyz, /metrics, /v1/status; S3 is served on another port "
               "(server.listen)");
}

/* ---- who may ask ---- */

static void report(const struct visit *a, const char *why, const char *value)
{
    log_event(EVENT_ADMIN, "why=%s path=%s value=%s", why, log_value(span_of(a->path)),
              log_value(span_of(value)));
}

/* Over TCP anyone's browser may be the one who asks; the UNIX socket is guarded by its mode. */
static bool is_welcome(const struct visit *a, struct answer *out)
{
    const struct admin *admin = a->door->server->admin;
    const char *names[] = {a->door->server->name, admin->host};
    const char *origin = MHD_lookup_connection_value(a->connection, MHD_HEADER_KIND, "Origin");
    const char *host = MHD_lookup_connection_value(a->connection, MHD_HEADER_KIND, "Host");

    if (a->door->local)
        return true;
    if (origin) {
        report(a, "origin", origin);
        refuse(out, MHD_HTTP_FORBIDDEN, "forbidden", "a page of another site may not ask here",
               "leave out the Origin field");
        return false;
    }
    if (host && !guard_host(span_of(host), names, ARRAY_COUNT(names))) {
        report(a, "host", host);
        refuse(out, MHD_HTTP_FORBIDDEN, "forbidden", "the Host field names someone else",
               "ask by address, or set server.name to the name that you use");
        return false;
    }
    if (!a->reads) {
        report(a, "method", a->method);
        out->allow = "GET, HEAD";
        refuse(out, MHD_HTTP_METHOD_NOT_ALLOWED, "read_only",
               "over TCP the control plane is read-only",
               "use the UNIX socket: curl --unix-socket PATH http://localhost/...");
        return false;
    }
    return true;
}

/* ---- libmicrohttpd ---- */

static enum MHD_Result send_answer(struct MHD_Connection *connection, struct answer *a)
{
    if (a->body.over)
        refuse(a, MHD_HTTP_INTERNAL_SERVER_ERROR, "too_large",
               "the answer did not fit into its memory", "report this");
    if (!a->body.at)
        return MHD_NO;               /* no memory: the connection is closed */
    struct MHD_Response *r =
        MHD_create_response_from_buffer_with_free_callback(a->body.len, a->body.at, mem_give);
    if (!r) {
        mem_give(a->body.at);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", a->type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (a->policy[0])
        MHD_add_response_header(r, "Content-Security-Policy", a->policy);
    if (a->allow && a->code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, "Allow", a->allow);
    enum MHD_Result queued = MHD_queue_response(connection, a->code, r);
    MHD_destroy_response(r);
    return queued;
}

/* Called once with the head, then once per piece of a body, then once at the end. */
/* long: signature of libmicrohttpd */
static enum MHD_Result handle(void *door, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *body,
                              size_t *body_bytes, void **seen)
{
    struct visit ask = {.connection = connection, .door = door, .path = path, .method = method};
    struct answer answer = {.code = MHD_HTTP_OK, .type = type_json};

    (void)version;
    (void)body;
    ask.reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    /* An answer before the end of the request would cost keep-alive. */
    if (!*seen && ask.reads) {
        *seen = door;
        return MHD_YES;
    }
    if (*body_bytes) {               /* nothing here takes a body */
        *body_bytes = 0;
        return MHD_YES;
    }
    if (is_welcome(&ask, &answer))
        find_answer(&ask, &answer);
    return send_answer(connection, &answer);
}

static enum err start_door(struct door *d, char why[WHY_BYTES])
{
    d->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, handle, d, MHD_OPTION_LISTEN_SOCKET, d->fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_PER_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)CONNECTION_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_END);
    if (!d->daemon) {
        snprintf(why, WHY_BYTES, "the control plane's thread cannot be started (memory or thread "
                                 "limit)");
        return ERR_SYSTEM;
    }
    d->fd = -1;                      /* the daemon's now */
    return OK;
}

/* ---- the sampler ---- */

static void add_note(struct admin *a)
{
    struct sample now;

    sample_take(&now);
    pthread_mutex_lock(&a->lock);
    window_add(&a->window, &now);
    pthread_mutex_unlock(&a->lock);
}

/* Waits a second, or for the end. */
static bool wait_second(struct admin *a)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&a->lock);
    if (!a->stop)
        pthread_cond_timedwait(&a->wake, &a->lock, &until);
    bool stop = a->stop;
    pthread_mutex_unlock(&a->lock);
    return !stop;
}

static void *sample(void *admin)
{
    struct admin *a = admin;
    uint64_t next_ms = clock_ms() + WINDOW_TICK_MS;

    while (wait_second(a)) {
        log_tick();
        if (clock_ms() < next_ms)
            continue;
        add_note(a);
        next_ms += WINDOW_TICK_MS;
    }
    return NULL;
}

static enum err start_sampler(struct admin *a, char why[WHY_BYTES])
{
    add_note(a);                     /* what five minutes count from at the start */
    int error = pthread_create(&a->sampler, NULL, sample, a);
    if (error) {
        snprintf(why, WHY_BYTES, "the sampler's thread cannot be started: %s",
                 strerrordesc_np(error));
        return ERR_SYSTEM;
    }
    a->sampling = true;
    pthread_setname_np(a->sampler, "admin-sampler");
    return OK;
}

/* ---- doors ---- */

static struct door *new_door(struct admin *a)
{
    struct door *d = &a->door[a->door_count++];

    d->server = a->server;
    d->fd = -1;
    return d;
}

/* Everyone on this machine may reach loopback; from elsewhere only the metrics' door may be
 * reached. */
static bool is_loopback(const struct conf_listen *at)
{
    static const uint8_t one[16] = {[15] = 1};
    return at->v6 ? memcmp(at->addr, one, sizeof one) == 0 : at->addr[0] == 127;
}

static enum err bind_local(struct admin *a, struct span path, char why[WHY_BYTES])
{
    const struct conf_list *dirs = &a->server->config->cache_dirs;
    struct door *d = new_door(a);
    char other[4096], refused[WHY_BYTES];

    d->local = true;
    if (door_bind_unix(d, path, refused) == OK)
        return OK;
    if (dirs->count == 0) {
        memcpy(why, refused, WHY_BYTES);
        return ERR_SYSTEM;
    }
    snprintf(other, sizeof other, "%s/admin.sock", dirs->item[0]);
    if (door_bind_unix(d, span_of(other), why) == OK) {
        log_event(EVENT_CONFIG, "note=%s why=%s use=%s",
                  log_value(span_of("admin socket made elsewhere")), log_value(span_of(refused)),
                  log_value(span_of(other)));
        return OK;
    }
    log_event(EVENT_CONFIG, "note=%s why=%s and=%s", log_value(span_of("no admin socket")),
              log_value(span_of(refused)), log_value(span_of(why)));
    a->door_count--;
    return OK;
}

static enum err bind_tcp(struct admin *a, const struct conf_listen *at, const char *text,
                         char why[WHY_BYTES])
{
    if (!is_loopback(at)) {
        snprintf(why, WHY_BYTES, "admin.listen \"%s\" could be reached from elsewhere: use a "
                                 "loopback address or unix:PATH; for Prometheus and probes set "
                                 "admin.metrics_listen", text);
        return ERR_CONFIG;
    }
    return door_bind_tcp(new_door(a), at, text, why);
}

static enum err bind_doors(struct admin *a, char why[WHY_BYTES])
{
    const struct config *c = a->server->config;
    struct conf_listen at;

    for (unsigned i = 0; i < c->admin_listen.count; i++) {
        const char *text = c->admin_listen.item[i];
        if (conf_listen_read(span_of(text), &at) != OK || a->door_count + 1 >= DOORS_MAX) {
            snprintf(why, WHY_BYTES, "admin.listen \"%s\": no listen address, or more than %d of "
                                     "them", text, DOORS_MAX - 1);
            return ERR_CONFIG;
        }
        TRY(at.unix_path.len ? bind_local(a, at.unix_path, why) : bind_tcp(a, &at, text, why));
    }
    if (!c->admin_metrics_listen[0])
        return OK;
    if (conf_listen_read(span_of(c->admin_metrics_listen), &at) != OK || at.unix_path.len) {
        snprintf(why, WHY_BYTES, "admin.metrics_listen \"%s\" is no ADDRESS:PORT",
                 c->admin_metrics_listen);
        return ERR_CONFIG;
    }
    struct door *d = new_door(a);
    d->metrics_only = true;
    return door_bind_tcp(d, &at, c->admin_metrics_listen, why);
}

static enum err start_all(struct admin *a, char why[WHY_BYTES])
{
    TRY(bind_doors(a, why));
    TRY(start_sampler(a, why));
    for (unsigned i = 0; i < a->door_count; i++)
        TRY(start_door(&a->door[i], why));
    return OK;
}

static void make_lock(struct admin *a)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&a->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

enum err admin_open(struct server *s, char why[WHY_BYTES])
{
    struct admin *a = mem_take(sizeof *a);

    if (!a)
        return ERR_MEMORY;
    a->server = s;
    a->opened_ms = clock_ms();
    s->admin = a;
    make_lock(a);
    if (gethostname(a->host, sizeof a->host - 1) != 0)
        a->host[0] = '\0';
    if (s->config->admin_token_file[0])
        log_event(EVENT_CONFIG, "note=%s",
                  log_value(span_of("admin.token_file has no effect in this version: over TCP the "
                                    "control plane is read-only")));
    enum err e = start_all(a, why);
    if (e != OK)
        admin_close(s);
    return e;
}

static void close_door(struct door *d)
{
    if (d->daemon)
        MHD_stop_daemon(d->daemon);
    if (d->fd >= 0)
        close(d->fd);
    door_unlink(d);
}

void admin_close(struct server *s)
{
    struct admin *a = s->admin;

    if (!a)
        return;
    while (a->door_count > 0)
        close_door(&a->door[--a->door_count]);
    if (a->sampling) {
        pthread_mutex_lock(&a->lock);
        a->stop = true;
        pthread_cond_signal(&a->wake);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->sampler, NULL);
    }
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    s->admin = NULL;
    mem_give(a);
}
