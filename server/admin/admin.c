/* The control plane's doors: which request gets which answer, and who may ask.
 *
 * Invariants:
 *  1. One libmicrohttpd daemon per listening socket, with a thread for each connection, as an
 *     answer may take its time (counting what a job means, a job's events). What they share is the
 *     window of notes, behind admin's lock, and what the parts of the server make readable.
 *  2. A request is judged before its path is looked at, and its body read (welcome.c).
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
    CONNECTIONS_MAX = 64,
    CONNECTIONS_PER_ADDRESS = 16,
    CONNECTION_TIMEOUT_S = 30,
    CONNECTION_BYTES = 64 * KIB,     /* head and answer's head of one connection */
    SMALL_BYTES = KIB,
    BODY_BYTES_MAX = 64 * KIB,       /* of a change */
    STATUS_BYTES = 256 * KIB,
    CONFIG_BYTES = 256 * KIB,
    LIVE_MS = 2000,
    NONCE_BYTES = 16,
    WHY_BYTES = 512,
};

static const char type_text[] = "text/plain; charset=utf-8";

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

static void copy_clients(struct status *out)
{
    uint64_t since_s = out->now_wall_s - min_u64(out->now_wall_s, STATUS_RECENT_S);

    out->client_count = net_clients(since_s, out->client, STATUS_CLIENTS_MAX, &out->hosts);
}

static void copy_schedules(const struct config *c, struct status *out)
{
    unsigned minute = conf_minute_of_week(out->now_wall_s), left = conf_next_change(c, minute);

    out->schedule_count = c->schedule_count;
    out->schedule_changes_s = left ? left * 60ull - out->now_wall_s % 60 : 0;
    for (unsigned i = 0; i < c->schedule_count; i++) {
        struct text t;
        text_init(&t, out->schedule[i].when, sizeof out->schedule[i].when);
        text_adds(&t, c->schedule[i].when);
        out->schedule[i].in_force = c->in_force >> i & 1;
    }
}

/* Lines of the log name keys: where that must not be only their number is told. */
static void copy_recent(bool named, struct status *out)
{
    char recent[10][256];
    size_t lines = log_recent(recent);

    if (!named && lines > 0)
        snprintf(out->warning[out->warning_count++], sizeof out->warning[0],
                 "%zu last lines of warnings and errors: see the log, or status on admin.listen",
                 lines);
    for (size_t i = 0; named && i < lines && out->warning_count < STATUS_WARNINGS_MAX; i++)
        memcpy(out->warning[out->warning_count++], recent[i], sizeof recent[i]);
}

static void copy_warnings(bool named, struct status *out)
{
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
    copy_recent(named, out);
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
    jobs_tell(s, out->jobs);
    out->upstream_count = s->config->upstream_count;
    for (unsigned i = 0; i < out->upstream_count; i++)
        origin_status(s->origin[i], &out->upstream[i]);
    net_congestion(s, out->congestion);
    struct settings *settings = settings_hold(s);
    status_s3_url(s->config->server_listen.item[0], settings->tls != NULL, reached_as(a, s),
                  out->s3_url);
    copy_schedules(settings->config, out);
    settings_drop(settings);
    copy_clients(out);
    copy_warnings(!a->door->metrics_only, out);
    sample_take(&now);
    pthread_mutex_lock(&s->admin->lock);
    window_rates(&s->admin->window, &now, &out->last);
    window_newest(&s->admin->window, &out->newest);
    out->note = s->admin->window.added;
    pthread_mutex_unlock(&s->admin->lock);
}

/* ---- answers ---- */

static void answer_live(const struct visit *a, struct admin_answer *out)
{
    const struct server *s = a->door->server;

    out->type = type_text;
    if (!answer_room(out, SMALL_BYTES))
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
        up += cache.disk[i].state == DISK_UP;
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

static void answer_ready(const struct visit *a, struct admin_answer *out)
{
    const struct server *s = a->door->server;
    const char *value;
    size_t len;

    out->type = type_text;
    if (!answer_room(out, SMALL_BYTES))
        return;
    bool ready = atomic_load(&s->state) == SERVER_READY;
    out->code = ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    if (MHD_lookup_connection_value_n(a->connection, MHD_GET_ARGUMENT_KIND, "verbose",
                                      strlen("verbose"), &value, &len) == MHD_YES)
        add_parts(s, &out->body);
    text_addf(&out->body, "%s\n", ready ? "ok" : state_name(s));
}

static void answer_metrics(const struct visit *a, struct admin_answer *out)
{
    struct cache_status cache;

    uint64_t jobs[LABEL_jobstate_COUNT];

    /* all refresh their gauges */
    cache_status(a->door->server->cache, &cache);
    jobs_tell(a->door->server, jobs);
    plans_tell(a->door->server);
    out->type = "text/plain; version=0.0.4; charset=utf-8";
    if (answer_room(out, metric_print_bytes_max() + 1))
        metric_print(&out->body);
}

static void answer_status(const struct visit *a, struct admin_answer *out)
{
    struct status s;

    gather(a, &s);
    if (answer_room(out, STATUS_BYTES))
        status_print(&s, &out->body);
}

static void answer_config(const struct visit *a, struct admin_answer *out)
{
    char *memory = mem_take(CONFIG_BYTES);
    struct settings *now = settings_hold(a->door->server);
    struct text toml;

    if (memory && answer_room(out, 2 * CONFIG_BYTES)) {
        text_init(&toml, memory, CONFIG_BYTES);
        conf_print(now->config, &toml);
        status_config(text_span(&toml), &out->body);
        out->body.over |= toml.over;
    }
    settings_drop(now);
    mem_give(memory);
}

static void gather_jobs(struct server *s, struct page_more *m)
{
    struct job_view *v = mem_take(sizeof *v);
    uint64_t id[JOBS_LISTED_MAX];
    unsigned count = v ? jobs_list(s, id) : 0;

    while (count > 0 && m->job_count < PAGE_ROWS) {
        struct page_job *j = &m->job[m->job_count];
        if (!jobs_view(s, id[--count], v))
            continue;
        *j = (struct page_job){job_kind_name(v->spec.kind), job_state_name(v->state), "",
                               v->objects_wanted, v->objects_done, v->objects_failed,
                               v->bytes_wanted, v->bytes_done};
        memcpy(j->prefix, v->spec.prefix,
               min_u64(strlen(v->spec.prefix), sizeof j->prefix - 1));
        m->job_count++;
    }
    mem_give(v);
}

/* What only those may read who may read /v1/top and /v1/jobs. */
static void gather_more(struct server *s, struct page_more *m)
{
    m->top_count = net_top(NET_TOP_PREFIX, m->top, PAGE_ROWS, &m->over_ms);
    gather_jobs(s, m);
}

static void answer_page(const struct visit *a, struct admin_answer *out)
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
    struct page_more *more = a->door->metrics_only ? NULL : mem_take(sizeof *more);
    if (more)
        gather_more(a->door->server, more);
    struct page page = {
        .s = &s, .series = series, .count = count, .more = more, .nonce = nonce};
    if (answer_room(out, PAGE_BYTES_MAX))
        page_print(&page, &out->body);
    mem_give(more);
}

/* ---- paths ---- */

enum { GET = 1, POST = 2, PUT = 4, DELETE = 8 }; /* GET: and HEAD */

/* The first row of a path and method counts; a path that ends in "/" stands for all below it, but
 * for the root. */
static const struct route {
    const char *path;
    unsigned methods;
    void (*answer)(const struct visit *a, struct admin_answer *out);
    bool everywhere;                 /* also on admin.metrics_listen */
} routes[] = {
    {"/", GET, answer_page, true},
    {"/livez", GET, answer_live, true},
    {"/readyz", GET, answer_ready, true},
    {"/healthz", GET, answer_ready, true},
    {"/metrics", GET, answer_metrics, true},
    {"/v1/status", GET, answer_status, true},
    {"/v1/config", GET, answer_config, false},
    {"/v1/disks", GET, answer_disks, false},
    {"/v1/disks/fence", POST, answer_disk_fence, false},
    {"/v1/disks/readmit", POST, answer_disk_readmit, false},
    {"/v1/top", GET, answer_top, false},
    {"/v1/hist", GET, answer_hist, false},
    {"/v1/sizing", GET, answer_sizing, false},
    {"/v1/objects", GET, answer_objects, false},
    {"/v1/pins", GET, answer_pins, false},
    {"/v1/pins", PUT, answer_pin, false},
    {"/v1/pins", DELETE, answer_unpin, false},
    {"/v1/evict", POST, answer_evict, false},
    {"/v1/revalidate", POST, answer_revalidate, false},
    {"/v1/verify", POST, answer_verify, false},
    {"/v1/prewarm", POST, answer_prewarm, false},
    {"/v1/jobs", GET, answer_jobs, false},
    {"/v1/jobs/", GET, answer_job, false},
    {"/v1/jobs/", POST, answer_job_wish, false},
    {"/v1/jobs/", DELETE, answer_job_cancel, false},
    {"/v1/plans", GET, answer_plans, false},
    {"/v1/plans", POST, answer_plan_post, false},
    {"/v1/plans/", GET, answer_plan, false},
    {"/v1/plans/", DELETE, answer_plan_drop, false},
    {"/v1/config/reload", POST, answer_reload, false},
    {"/v1/drain", POST, answer_drain, false},
};

static unsigned method_of(const char *name)
{
    static const struct {
        const char *name;
        unsigned method;
    } methods[] = {{"GET", GET}, {"HEAD", GET}, {"POST", POST}, {"PUT", PUT}, {"DELETE", DELETE}};

    for (unsigned i = 0; i < ARRAY_COUNT(methods); i++)
        if (strcmp(methods[i].name, name) == 0)
            return methods[i].method;
    return 0;
}

static bool path_is(const char *asked, const char *row)
{
    size_t len = strlen(row);
    bool below = len > 1 && row[len - 1] == '/';

    return below ? strncmp(asked, row, len) == 0 && asked[len] : strcmp(asked, row) == 0;
}

/* As the Allow field wants it. */
static void add_methods(struct admin_answer *out, unsigned methods)
{
    static const char *const names[] = {"GET, HEAD", "POST", "PUT", "DELETE"};
    struct text t;

    text_init(&t, out->allow, sizeof out->allow);
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++)
        if (methods >> i & 1)
            text_addf(&t, "%s%s", t.len ? ", " : "", names[i]);
}

static void find_answer(const struct visit *a, struct admin_answer *out)
{
    unsigned method = method_of(a->method), allowed = 0;

    for (unsigned i = 0; i < ARRAY_COUNT(routes); i++) {
        bool hidden = a->door->metrics_only && !routes[i].everywhere;
        if (hidden || !path_is(a->path, routes[i].path))
            continue;
        if (routes[i].methods & method) {
            routes[i].answer(a, out);
            return;
        }
        allowed |= routes[i].methods;
    }
    if (allowed) {
        add_methods(out, allowed);
        answer_refuse(out, MHD_HTTP_METHOD_NOT_ALLOWED, "method_not_allowed",
                      allowed == GET ? "this can only be read" : "not with this method",
                      allowed == GET ? "use GET" : "the Allow field names those that are possible");
        return;
    }
    answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "there is nothing at this path",
                  "try /, /livez, /readyz, /metrics, /v1/status; S3 is served on another port "
                  "(server.listen)");
}

/* ---- libmicrohttpd ---- */

/* What a change brings along, gathered piece by piece. */
struct change_body {
    struct key_body *keys;           /* NULL: it brings none */
    struct plan_body *plan;          /* likewise */
    size_t len;
    bool over, ends_server;
    char bytes[BODY_BYTES_MAX + 1];
};

static void take_piece(struct change_body *in, const char *body, size_t len)
{
    if (in->plan) {
        plan_body_take(in->plan, span_make(body, len));
        return;
    }
    if (in->keys)
        len = key_body_take(in->keys, span_make(body, len));
    in->over |= len > BODY_BYTES_MAX - in->len;
    if (in->over)
        return;
    memcpy(in->bytes + in->len, body, len);
    in->len += len;
}

static void answer_change(struct visit *a, struct change_body *in, struct admin_answer *out)
{
    if (in->over) {
        answer_refuse(out, MHD_HTTP_CONTENT_TOO_LARGE, "too_large",
                      "the body has more than 64 KiB", "say it in fewer words");
        return;
    }
    a->body = span_make(in->bytes, in->len);
    if (in->keys && !key_body_end(in->keys, out))
        return;
    a->keys = in->keys ? key_body_list(in->keys) : NULL;
    a->plan = in->plan;
    find_answer(a, out);
}

static struct change_body *begin_change(const struct visit *ask)
{
    struct change_body *in = mem_take(sizeof *in);

    if (in) {
        in->keys = key_body_begin(ask);
        in->plan = plans_body_begin(ask);
    }
    return in;
}

/* Called once with the head, then once per piece of a body, then once at the end. */
/* long: signature of libmicrohttpd */
static enum MHD_Result handle(void *door, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *body,
                              size_t *body_bytes, void **seen)
{
    struct visit ask = {.connection = connection, .door = door, .path = path, .method = method};
    struct admin_answer answer = {.code = MHD_HTTP_OK, .type = type_json};
    bool reads = method_of(method) == GET;

    (void)version;
    if (!*seen) {                    /* an answer before the end would cost keep-alive */
        *seen = reads ? door : begin_change(&ask);
        return *seen ? MHD_YES : MHD_NO;
    }
    if (*body_bytes) {               /* a GET's body means nothing */
        if (!reads)
            take_piece(*seen, body, *body_bytes);
        *body_bytes = 0;
        return MHD_YES;
    }
    if (is_welcome(&ask, &answer)) {
        if (reads)
            find_answer(&ask, &answer);
        else
            answer_change(&ask, *seen, &answer);
    }
    if (answer.ends_server)          /* forget_request() does, behind the answer's last byte */
        ((struct change_body *)*seen)->ends_server = true;
    return answer_send(&ask, &answer);
}

static void forget_request(void *door, struct MHD_Connection *connection, void **seen,
                           enum MHD_RequestTerminationCode how)
{
    struct change_body *change = *seen == door ? NULL : *seen;

    (void)connection;
    (void)how;
    if (change && change->ends_server)
        server_ask_end(((struct door *)door)->server);
    if (change) {
        key_body_free(change->keys);
        plan_body_free(change->plan);
    }
    mem_give(change);
    *seen = NULL;
}

static enum err start_door(struct door *d, char why[WHY_BYTES])
{
    d->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0, NULL,
        NULL, handle, d, MHD_OPTION_LISTEN_SOCKET, d->fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_PER_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)CONNECTION_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_NOTIFY_COMPLETED, forget_request, d, MHD_OPTION_END);
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

void admin_wake(struct admin *a)
{
    pthread_mutex_lock(&a->lock);
    pthread_cond_signal(&a->wake);
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

static void count_lost_lines(struct admin *a)
{
    uint64_t lost = log_dropped_count();

    if (a->metrics && lost > a->lost_lines)
        metric_add(a->metrics, METRIC_LOG_LINES_LOST_TOTAL, 0, lost - a->lost_lines);
    a->lost_lines = lost;
}

static void *sample(void *admin)
{
    struct admin *a = admin;
    uint64_t next_ms = clock_ms() + WINDOW_TICK_MS;

    a->metrics = metric_set_make();
    while (wait_second(a)) {
        struct settings *now = settings_hold(a->server);
        log_tick();
        count_lost_lines(a);
        cache_rules_tick(a->server->cache, now->config);
        settings_drop(now);
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

/* What they are was looked at as the configuration was read (conf_value.c). */
static enum err bind_doors(struct admin *a, char why[WHY_BYTES])
{
    const struct config *c = a->server->config;
    struct conf_listen at;

    for (unsigned i = 0; i < c->admin_listen.count; i++) {
        const char *text = c->admin_listen.item[i];
        must(conf_listen_read(span_of(text), &at) == OK && a->door_count + 1 < DOORS_MAX);
        TRY(at.unix_path.len ? bind_local(a, at.unix_path, why)
                             : door_bind_tcp(new_door(a), &at, text, why));
    }
    if (!c->admin_metrics_listen[0])
        return OK;
    must(conf_listen_read(span_of(c->admin_metrics_listen), &at) == OK && !at.unix_path.len);
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
    enum err e = token_read(a, s->config->admin_token_file, why);
    if (e == OK)
        e = start_all(a, why);
    if (e != OK)
        admin_close(s);
    return e;
}

enum err admin_check(const struct config *c, struct conf_mistakes *m)
{
    struct admin *a = mem_take(sizeof *a);
    char why[WHY_BYTES] = "";
    enum err e = a ? token_read(a, c->admin_token_file, why) : ERR_MEMORY;

    if (e != OK)
        conf_mistakes_tell(m, "%s", why[0] ? why : err_text(e));
    mem_give_secret(a, sizeof *a);
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
    mem_give_secret(a, sizeof *a);
}
