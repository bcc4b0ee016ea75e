/* One request from head to access line: read it, authorise it, start its machine, account for it.
 *
 * Invariants:
 *  1. Nothing is looked up before s3_authorize() said yes.
 *  2. Each request is counted once, in req_over(), whatever became of it.
 *  3. The request's memory is not zeroed by net/: req_begin() sets every field that is read.
 *
 * Life: begun by net/conn.c through s3_request_ops, ended by conn_done().
 * Failure: each refusal is a complete S3 error document. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>

#include "creds.h"
#include "log.h"
#include "server/s3/s3.h"

enum { REFUSED_LINES = 50, REFUSED_WINDOW_US = 10000000 };
struct s3_core {                     /* one core's part */
    struct s3_gate gate;
    struct stock puts;
    uint64_t refused_since_us;       /* the window of lines of refused requests: its start, */
    unsigned refused_lines;          /* those that were written in it */
};

static _Atomic unsigned left_out;    /* refused requests without a line, of all cores, not told */

/* ---- beginning ---- */

static bool is_anonymous_peer(const struct config *conf, struct conn *c)
{
    return conf_cidr_has(conf->anonymous, conf->auth_anonymous.count, conn_address(c));
}

/* A request that carries our own mark came from us: the upstream is configured to this cache. */
static bool is_loop(const struct req *r)
{
    struct span mark = span_of(r->core->server->via), value;
    unsigned at = 0;
    while (http_next(r->head, "via", &at, &value)) {
        for (size_t i = 0; i + mark.len <= value.len; i++)
            if (memcmp(value.at + i, mark.at, mark.len) == 0)
                return true;
    }
    return false;
}

static const char *not_ready(const struct server *s)
{
    return atomic_load(&((struct server *)(uintptr_t)s)->state) == SERVER_STARTING
               ? "not ready: upstream credentials are still waited for\n"
               : "not ready: the server is draining\n";
}

static void probe(struct req *r)
{
    const struct server *s = r->core->server;
    bool ready = atomic_load(&((struct server *)(uintptr_t)s)->state) == SERVER_READY;
    bool live = r->ask.op == ProbeLive || r->ask.op == ProbeLiveHead;
    uint16_t status = live || ready ? 200 : 503;
    const char *word = status == 200 ? "ok\n" : not_ready(s);
    r->close = r->close || conn_stopping(r->conn);
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_begin(&r->out, status, &r->stamp);
    text_adds(&r->out, "Content-Type: text/plain\r\nContent-Length: ");
    text_addu(&r->out, strlen(word));
    text_adds(&r->out, r->close ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n");
    if (!r->head_request)
        text_adds(&r->out, word);
    answer_text(r, status);
}

static void set_up(struct req *r, struct conn *c, const struct http_head *head)
{
    r->conn = c;
    r->core = conn_core(c);
    r->head = head;
    r->x_cache = NULL;
    r->status = 0;
    r->result = RESULT_BYPASS;
    r->head_request = head->method == HTTP_HEAD;
    r->close = !head->keep_alive ||
               (head->framing == HTTP_BODY_LENGTH && head->length > 64 * KIB) ||
               (head->expect_continue &&
                (head->framing == HTTP_BODY_CHUNKED || head->length > 0 ||
                 head->method == HTTP_PUT || head->method == HTTP_POST));
    r->cut = r->first_byte = false;
    r->first_byte_us = r->body_bytes = r->starved_us = 0;
    r->told_us = conn_head_us(c);
    memset(r->source_bytes, 0, sizeof(r->source_bytes));
    memset(&r->send, 0, sizeof(r->send));
    arena_init(&r->arena, r->arena_memory, sizeof(r->arena_memory), REQ_ARENA_MAX);
    s3_stamp_make(&r->stamp, r->core->date, random_u64());
    metric_gauge_add(METRIC_REQUESTS_IN_FLIGHT, 0, 1);
}

static void dispatch(struct req *r)
{
    struct s3_error e = {0};
    if (merge_is_needed(r)) {
        merge_begin(r);
        return;
    }
    switch ((enum s3_action)s3_operation_table[r->ask.op].action) {
    case S3_PROBE: probe(r); return;
    case S3_PLAN: loader_begin(r); return;
    case S3_SERVE:
        if (r->ask.bypass)
            relay_begin(r);
        else
            get_begin(r);
        return;
    case S3_REFUSE: break;
    case S3_RELAY:
    case S3_PASS:
    case S3_WRITE:
    case S3_WRITE_BUCKET:
    case S3_WRITE_KEYS: relay_begin(r); return;
    }
    s3_not_implemented(&r->ask, &r->arena, &e);
    answer_error(r, &e);
}

static void begin(struct conn *c, void *memory, const struct http_head *head)
{
    struct req *r = memory;
    set_up(r, c, head);
    struct core *core = r->core;
    struct s3_core *mine = core->s3;
    struct s3_error e = {0};
    if (s3_ask_read(head, core->settings->config->server_domain, &r->arena, &r->ask, &e) != OK) {
        if (r->ask.op >= S3_OPERATION_COUNT) /* refused before it was known what it asks */
            r->ask.op = UnknownRead;
        answer_error(r, &e);
        return;
    }
    if (is_loop(r)) {
        log_event(EVENT_LOOP, "peer=%s fix=%s", conn_peer(c),
                  log_value(span_of("upstream.endpoint must not lead back to this cache")));
        e = (struct s3_error){
            .status = 508,
            .code = "LoopDetected",
            .message =
                "This request came from this very cache: its upstream.endpoint leads back to it."};
        answer_error(r, &e);
        return;
    }
    r->who = (struct s3_who){.anonymous_allowed = is_anonymous_peer(core->settings->config, c),
                             .now_s = core->wall_s};
    if (s3_authorize(&mine->gate, head, &r->ask, &r->who, &r->arena, &e) != OK) {
        if (e.status == 403 || e.status == 400)
            metric_add(core->metrics, METRIC_AUTH_FAILURES_TOTAL, r->who.reason, 1);
        answer_error(r, &e);
        return;
    }
    if (s3_operation_table[r->ask.op].action != S3_PROBE)
        net_saw_client(c, http_find(head, "user-agent"));
    if (s3_route(r, &e))
        dispatch(r);
    else
        answer_error(r, &e);
}

/* Anybody may cause them as often as he likes. */
static bool may_tell_refusal(struct core *c)
{
    struct s3_core *mine = c->s3;
    if (c->now_us - mine->refused_since_us >= REFUSED_WINDOW_US) {
        mine->refused_since_us = c->now_us;
        mine->refused_lines = 0;
    }
    if (mine->refused_lines < REFUSED_LINES) {
        mine->refused_lines++;
        return true;
    }
    atomic_fetch_add_explicit(&left_out, 1, memory_order_relaxed);
    return false;
}

enum { ACCESS_OFF, ACCESS_ERRORS, ACCESS_SLOW, ACCESS_ALL };

/* Of a head that is none there is nothing to tell but who sent it. */
static void tell_bad_head(struct conn *c, const struct s3_error *e, const struct s3_stamp *stamp)
{
    struct core *core = conn_core(c);
    uint32_t told = core->settings->config->log_access;
    char memory[256];
    struct text t;
    if (told == ACCESS_OFF || (told != ACCESS_ALL && !may_tell_refusal(core)))
        return;
    text_init(&t, memory, sizeof(memory));
    text_addf(&t, "%s - - %u 0 - why=%s req=%s", conn_peer(c), e->status, e->code,
              stamp->request_id);
    log_access(text_span(&t));
}

static void refuse(struct conn *c, enum http_verdict verdict, struct text *t)
{
    static const struct s3_error errors[] = {
        [HTTP_OK] = {0},
        [HTTP_MORE] = {0},
        [HTTP_BAD] = {.status = 400,
                      .code = "BadRequest",
                      .message = "The request head is malformed."},
        [HTTP_TOO_LONG] = {.status = 414,
                           .code = "RequestURITooLong",
                           .message = "The request line is too long."},
        [HTTP_TOO_LARGE] = {.status = 431,
                            .code = "RequestHeaderSectionTooLarge",
                            .message = "Your request header section exceeds 16 KiB or 100 fields."},
        [HTTP_NO_METHOD] = {.status = 501,
                            .code = "NotImplemented",
                            .message = "This HTTP method is not implemented."},
        [HTTP_NO_VERSION] = {.status = 505,
                             .code = "HTTPVersionNotSupported",
                             .message = "Use HTTP/1.1."},
    };
    struct core *core = conn_core(c);
    struct s3_stamp stamp;
    s3_stamp_make(&stamp, core->date, random_u64());
    s3_reply_error(t, &errors[verdict], &stamp, false, true);
    metric_add3(core->metrics, METRIC_REQUESTS_TOTAL, OP_OTHER, RESULT_BYPASS,
                errors[verdict].status >= 500 ? CODE_5XX : CODE_4XX, 1);
    tell_bad_head(c, &errors[verdict], &stamp);
}

const struct request_ops s3_request_ops = {
    .request_bytes = sizeof(struct req), .begin = begin, .refuse = refuse};

/* ---- the end ---- */

void req_first_byte(struct req *r)
{
    if (r->first_byte)
        return;
    r->first_byte = true;
    r->first_byte_us = r->core->now_us;
}

void req_starves(struct req *r, enum label_stall why)
{
    if (r->starved_us != 0 || s3_operation_table[r->ask.op].label != OP_GET)
        return;
    r->starved_us = r->first_byte ? clock_us() : r->told_us;
    r->starved_of = (uint8_t)why;
}

/* With each stall the time around it is counted, so that the one is a part of the other also while
 * a GET of hours runs. */
static void tell_time(struct req *r, uint64_t now_us)
{
    if (now_us <= r->told_us)        /* told in this turn, by the clock itself */
        return;
    metric_add(r->core->metrics, METRIC_GET_SECONDS_TOTAL, 0, now_us - r->told_us);
    r->told_us = now_us;
}

/* Not by the loop's clock: what other requests of the turn sent before this one took milliseconds
 * (measured: 1 to 6 with eight readers of shards), which this client waited too. */
void req_feeds(struct req *r)
{
    uint64_t now_us;
    if (r->starved_us == 0)
        return;
    now_us = clock_us();
    metric_add(r->core->metrics, METRIC_STALL_SECONDS_TOTAL, r->starved_of,
               now_us - r->starved_us);
    r->starved_us = 0;
    tell_time(r, now_us);
}

static enum label_code code_of(const struct req *r)
{
    if (r->cut)
        return CODE_ABORTED;
    return r->status == 304   ? CODE_304
           : r->status >= 500 ? CODE_5XX
           : r->status >= 400 ? CODE_4XX
                              : CODE_2XX;
}

static void log_line(const struct req *r, uint64_t duration_us)
{
    char memory[2 * KIB];
    struct text t;
    const char *source = r->source_bytes[SOURCE_UPSTREAM] ? "upstream"
                         : r->source_bytes[SOURCE_NVME]   ? "nvme"
                         : r->source_bytes[SOURCE_MEMORY] ? "memory"
                                                          : "-";
    text_init(&t, memory, sizeof(memory));
    text_addf(&t, "%s %s ", conn_peer(r->conn), http_method_text(r->head->method));
    if (s3_operation_table[r->ask.op].action == S3_PLAN)
        text_adds(&t, log_value(span_from(r->ask.path, 1)));
    else if (r->ask.bucket.len)
        text_adds(&t, log_value(r->ask.bucket));
    bool ranged = span_starts(r->ask.range, span_of("bytes=")) &&
                  r->ask.range.len == 6 + strspn(r->ask.range.at + 6, "0123456789-");
    text_addf(&t, "/%s %u %llu", r->ask.key.len ? log_value(r->ask.key) : "", r->status,
              (unsigned long long)r->body_bytes);
    text_addf(&t, " %s src=%s dur=%llu.%03llums agent=%s req=%s", r->x_cache ? r->x_cache : "-",
              source, (unsigned long long)duration_us / 1000,
              (unsigned long long)duration_us % 1000, log_value(http_find(r->head, "user-agent")),
              r->stamp.request_id);
    if (ranged)                      /* behind those that have a place instead of a name */
        text_addf(&t, " range=%.*s", (int)r->ask.range.len - 6, r->ask.range.at + 6);
    log_access(text_span(&t));
}

/* But for the noes that clients ask for in order to go on. */
static bool is_refusal(const struct req *r)
{
    return r->status >= 400 && r->status < 500 && r->status != 404 && r->status != 412 &&
           r->status != 416;
}

void s3_tell_refusals(bool last)
{
    static uint64_t seen_us;         /* when the first one was seen, 0: none */
    uint64_t now_us = clock_us();
    if (atomic_load_explicit(&left_out, memory_order_relaxed) == 0)
        return;
    if (seen_us == 0)
        seen_us = now_us;
    if (!last && now_us - seen_us < REFUSED_WINDOW_US)
        return;
    seen_us = 0;
    log_event(EVENT_REFUSALS, "more=%u", atomic_exchange(&left_out, 0));
}

/* Whether it has a line of its own in the log. */
static bool is_told(const struct req *r, enum label_code code, uint64_t duration_us)
{
    const struct config *conf = r->core->settings->config;
    if (conf->log_access == ACCESS_OFF || conf->log_access == ACCESS_ALL)
        return conf->log_access == ACCESS_ALL;
    if (code == CODE_5XX || code == CODE_ABORTED ||
        (conf->log_access == ACCESS_SLOW && duration_us / 1000 >= conf->log_slow_ms))
        return true;
    return is_refusal(r) && may_tell_refusal(r->core);
}

/* What a GET got, for the [[bucket]] section that rules its object. */
static void account_section(const struct req *r, uint64_t saved)
{
    struct core *c = r->core;
    const struct config *conf = c->settings->config;
    const struct conf_bucket *b;
    if (conf->bucket_count <= 1 || s3_operation_table[r->ask.op].label != OP_GET)
        return;
    b = conf_bucket(conf, r->ask.bucket, r->ask.key);
    unsigned label = c->settings->bucket_label[b - conf->buckets];
    if (b == conf->buckets)
        return;
    if (saved)
        metric_add(c->metrics, METRIC_BUCKET_HIT_BYTES_TOTAL, label, saved);
    if (r->source_bytes[SOURCE_UPSTREAM])
        metric_add(c->metrics, METRIC_BUCKET_MISS_BYTES_TOTAL, label,
                   r->source_bytes[SOURCE_UPSTREAM]);
}

static void account(struct req *r)
{
    struct core *c = r->core;
    enum label_code code = code_of(r);
    unsigned op = s3_operation_table[r->ask.op].label;
    uint64_t duration_us = c->now_us - conn_head_us(r->conn);
    req_feeds(r);
    if (op == OP_GET)
        tell_time(r, c->now_us);
    metric_gauge_add(METRIC_REQUESTS_IN_FLIGHT, 0, -1);
    metric_add3(c->metrics, METRIC_REQUESTS_TOTAL, op, r->result, code, 1);
    metric_observe(c->metrics, METRIC_REQUEST_DURATION_SECONDS, op, r->result, duration_us);
    if (r->first_byte)
        metric_observe(c->metrics, METRIC_FIRST_BYTE_SECONDS, op, r->result,
                       r->first_byte_us - conn_head_us(r->conn));
    uint64_t saved = 0;
    for (unsigned i = 0; i < LABEL_source_COUNT; i++) {
        if (r->source_bytes[i])
            metric_add(c->metrics, METRIC_SENT_BYTES_TOTAL, i, r->source_bytes[i]);
        saved += i == SOURCE_UPSTREAM ? 0 : r->source_bytes[i];
    }
    if (saved)
        metric_add(c->metrics, METRIC_SAVED_UPSTREAM_BYTES_TOTAL, 0, saved);
    account_section(r, saved);
    if (s3_operation_table[r->ask.op].action == S3_PROBE)
        return;                      /* balancers ask every second */
    if (r->ask.bucket.len && r->status && r->status < 400)
        net_top_count(c, &(struct net_request){span_of(conn_peer(r->conn)), r->ask.bucket,
                                               r->ask.key, r->body_bytes});
    if (is_told(r, code, duration_us))
        log_line(r, duration_us);
}

void req_over(struct req *r)
{
    struct conn *c = r->conn;
    account(r);
    enum conn_fate fate = r->cut ? CONN_CUT : r->close ? CONN_CLOSE : CONN_KEEP;
    arena_reset(&r->arena);
    conn_done(c, fate);
}

/* ---- start and end of the part ---- */

struct put *s3_put_take(struct core *c)
{
    struct s3_core *mine = c->s3;
    return stock_take(&mine->puts);
}

void s3_put_give(struct core *c, struct put *p)
{
    struct s3_core *mine = c->s3;
    stock_give(&mine->puts, p);
}

enum err s3_core_begin(struct core *c)
{
    struct s3_core *mine = mem_take(sizeof(*mine));
    if (!mine)
        return ERR_MEMORY;
    c->s3 = mine;
    stock_init(&mine->puts, sizeof(struct put), UINT32_MAX);
    TRY(sign_setup_thread());
    s3_core_renew(c);
    return OK;
}

/* As clients of that endpoint sign it: with a port that was given. */
static struct span host_of(const char *endpoint)
{
    struct span rest = span_of(endpoint);
    size_t scheme = span_find(rest, ':');
    if (!span_starts(span_from(rest, scheme), span_of("://")))
        return span_of("");
    rest = span_from(rest, scheme + 3);
    return span_cut(&rest, '/');
}

void s3_core_renew(struct core *c)
{
    struct s3_core *mine = c->s3;
    const struct settings *t = c->settings;
    bool pair = t->creds && t->creds->access_key[0] && !t->creds->token[0];
    s3_gate_open(&mine->gate, t->keys, span_of(pair ? t->creds->access_key : ""),
                 pair ? &t->creds->secret : NULL, t->config->auth_clock_skew / 1000);
    mine->gate.sigv2 = t->config->auth_sigv2;
    mine->gate.upstream_host = host_of(t->config->upstream[0].endpoint);
}

const struct s3_gate *s3_core_gate(const struct core *c)
{
    const struct s3_core *mine = c->s3;
    return &mine->gate;
}

void s3_core_end(struct core *c)
{
    struct s3_core *mine = c->s3;
    sign_end_thread();
    if (mine->puts.out > 0)          /* cut: changes that still ran stay, the process ends */
        return;
    stock_fini(&mine->puts);
    mem_give(mine);
    c->s3 = NULL;
}
