/* Exchanges of one real core with a small scripted server on loopback: what is sent, what is made of each kind of answer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/exchange.c"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

/* ---- the scripted server ---- */

enum deed { KEEP, CLOSE, CUT /* without TLS's goodbye */, RESET, STALL /* until the client goes */ };
struct line {
    const char *answer;              /* NULL: none; the deed follows at once */
    enum deed deed;
    bool deaf;                       /* do the deed before any request was read */
};
enum { LINES_MAX = 16, REQUESTS_MAX = 16 };
struct upstream {
    int listener, port;
    SSL_CTX *tls;
    const struct line *line;
    unsigned count;
    pthread_t thread;
    char request[REQUESTS_MAX][4 * KIB];
    unsigned requests, connections;
};
static struct upstream up;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct wire {
    int fd;
    SSL *ssl;
};

static ssize_t wire_read(struct wire *w, void *mem, size_t cap)
{
    return w->ssl ? SSL_read(w->ssl, mem, (int)cap) : read(w->fd, mem, cap);
}

static void wire_write(struct wire *w, const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = w->ssl ? SSL_write(w->ssl, bytes, (int)len) : send(w->fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        bytes += n;
        len -= (size_t)n;
    }
}

static bool wire_request(struct wire *w, char *mem, size_t cap)
{
    size_t len = 0;

    while (len + 1 < cap) {
        ssize_t n = wire_read(w, mem + len, cap - 1 - len);
        if (n <= 0)
            return false;
        len += (size_t)n;
        mem[len] = '\0';
        if (strstr(mem, "\r\n\r\n"))
            return true;
    }
    return false;
}

static bool wire_open(struct upstream *u, struct wire *w)
{
    *w = (struct wire){.fd = accept(u->listener, NULL, NULL)};
    if (w->fd < 0)
        return false;
    u->connections++;
    if (!u->tls)
        return true;
    w->ssl = SSL_new(u->tls);
    SSL_set_fd(w->ssl, w->fd);
    return SSL_accept(w->ssl) == 1;
}

static void wire_close(struct wire *w, enum deed deed)
{
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    char rest[512];

    if (deed == STALL)
        while (wire_read(w, rest, sizeof(rest)) > 0)
            ;
    if (deed == RESET)
        setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    if (w->ssl && deed == CLOSE)
        SSL_shutdown(w->ssl);
    SSL_free(w->ssl);
    if (w->fd >= 0)
        close(w->fd);
    *w = (struct wire){.fd = -1};
}

/* One line after the other; each either on the connection that the last one kept, or on the next. */
static void *serve(void *arg)
{
    struct upstream *u = arg;
    struct wire w = {.fd = -1};

    for (unsigned i = 0; i < u->count;) {
        const struct line *l = &u->line[i];
        if (w.fd < 0 && !wire_open(u, &w)) {
            if (w.fd < 0)
                break;
            wire_close(&w, STALL);   /* a refused handshake uses its line up */
            i++;
            continue;
        }
        if (!l->deaf && !wire_request(&w, u->request[u->requests], sizeof(u->request[0]))) {
            wire_close(&w, CLOSE);   /* the client went away from a kept connection: same line, next one */
            continue;
        }
        pthread_mutex_lock(&lock);
        u->requests += !l->deaf;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (l->answer)
            wire_write(&w, l->answer, strlen(l->answer));
        if (l->deed != KEEP)
            wire_close(&w, l->deed);
        i++;
    }
    wire_close(&w, STALL);
    return NULL;
}

static int listen_on(const char *host, int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    inet_pton(AF_INET, host, &at.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    must(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 16) == 0);
    must(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* ---- our side: a core, and owners that read one answer each ---- */

#define OWNER_STEPS(S) S(owner, START) S(owner, READ) S(owner, DRAIN) S(owner, END)
struct owner {
    struct machine m;
    struct message msg, cue_msg;
    struct exchange x;
    struct ask ask;
    bool cued;                       /* told to end now */
    bool began_read;                 /* under lock */
    uint32_t piece;                  /* bytes per read; 0 = all at once */
    bool lazy;                       /* ends without reading */
    bool hasty;                      /* ends at once, before any answer */
    /* the result */
    unsigned status;
    bool failed, done;
    enum err why, verdict;
    struct exchange seen;            /* as of the head */
    char etag[64], body[128 * KIB];
    size_t len;
};
STEP_TABLE(owner, OWNER_STEPS)

enum { OWNERS = 4 };
static struct owner owner[OWNERS];
static struct server server;
static struct core *core;

static enum turn owner_START(struct owner *o)
{
    exchange_begin(&o->x, o->m.core, &o->ask, &o->m);
    if (o->hasty)
        return GO(owner, o, DRAIN);
    return GO(owner, o, READ);
}

static void note_head(struct owner *o)
{
    o->status = o->x.head->status;
    o->seen = o->x;
    o->verdict = exchange_verdict(&o->x);
    memcpy(o->etag, o->x.etag.at, o->x.etag.len);
    o->etag[o->x.etag.len] = '\0';
}

static enum turn owner_READ(struct owner *o)
{
    if (o->cued)
        return GO(owner, o, DRAIN);
    if (o->x.failed) {
        o->len += o->x.read_got;
        return GO(owner, o, DRAIN);
    }
    if (!o->x.head_known || o->x.reading)
        return WAIT;
    if (!o->status)
        note_head(o);
    else
        o->len += o->x.read_got;
    if (o->x.at_end || o->lazy)
        return GO(owner, o, DRAIN);
    size_t room = sizeof(o->body) - 1 - o->len;
    exchange_read(&o->x, o->body + o->len, (uint32_t)(o->piece ? min_u64(o->piece, room) : room));
    pthread_mutex_lock(&lock);
    o->began_read = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return WAIT;
}

static enum turn owner_DRAIN(struct owner *o)
{
    if (!o->x.ending) {
        o->failed = o->x.failed;
        o->why = o->x.m.why;
        exchange_end(&o->x);
    }
    return o->x.over ? GO(owner, o, END) : WAIT;
}

static enum turn owner_END(struct owner *o)
{
    must(o->m.inflight == 0);
    return OVER;
}

static void owner_over(struct machine *m)
{
    struct owner *o = (struct owner *)(void *)m;
    pthread_mutex_lock(&lock);
    o->done = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void owner_deliver(struct core *c, struct message *msg)
{
    struct owner *o = container_of(msg, struct owner, msg);
    MACHINE_BEGIN(owner, o, c, owner_over);
}

static void cue_deliver(struct core *c, struct message *msg)
{
    struct owner *o = container_of(msg, struct owner, cue_msg);
    (void)c;
    o->cued = true;
    machine_wake(&o->m);
}

static struct owner *prepare(unsigned i, enum http_method method, const char *key)
{
    struct owner *o = &owner[i];
    *o = (struct owner){.ask = {.method = method, .op = method == HTTP_HEAD ? OP_HEAD : OP_GET, .bucket = span_of("bkt"),
                                .key = span_of(key)}};
    o->msg.deliver = owner_deliver;
    o->cue_msg.deliver = cue_deliver;
    return o;
}

static void start(struct owner *o)
{
    core_send(core, &o->msg);
}

static void finish(struct owner *o)
{
    pthread_mutex_lock(&lock);
    while (!o->done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    o->body[o->len] = '\0';
}

static struct owner *get(const char *key)
{
    struct owner *o = prepare(0, HTTP_GET, key);
    start(o);
    finish(o);
    return o;
}

static void no_drain(struct core *c)
{
    (void)c;
}

static bool is_idle(struct core *c)
{
    (void)c;
    return true;
}

static uint64_t retries_before, answers_before;

static void open_core(void)
{
    static struct core *cores[1];
    const struct core_plan plan = {.server = &server, .recv_buffers = 16, .begin = origin_core_begin, .drain = no_drain,
                                   .idle = is_idle, .end = origin_core_end};
    struct core_start_error why;

    assert_int_equal(core_start(&plan, &core, &why), OK);
    cores[0] = core;
    server.core = cores;
    server.core_count = 1;
    retries_before = metric_read_sum(METRIC_UPSTREAM_RETRIES_TOTAL);
    answers_before = metric_read_sum(METRIC_UPSTREAM_REQUESTS_TOTAL);
}

static enum err open_origin(const char *endpoint, const char *extra, char why[512])
{
    char text[1024];
    struct conf_mistakes *mistakes = mem_take(sizeof(*mistakes));
    struct config *config = NULL;
    char *const no_environment[] = {NULL};

    snprintf(text, sizeof(text), "[cache]\ndirs = [\"/tmp\"]\n[upstream]\nendpoint = \"%s\"\n%s\n", endpoint, extra);
    enum err e = conf_parse(span_of(text), "test", no_environment, NULL, 0, &config, mistakes);
    if (e != OK)
        fail_msg("%s", mistakes->item[0].text);
    mem_give(mistakes);
    server = (struct server){.config = config, .via = "test-0badcafe"};
    return origin_open(&server, why, &server.origin);
}

static void begin_at(const char *endpoint, const char *extra)
{
    char why[512];
    enum err e = open_origin(endpoint, extra, why);
    if (e != OK)
        fail_msg("%s", why);
    open_core();
}

static void listen_with(const struct line *line, unsigned count)
{
    up.line = line;
    up.count = count;
    if (!up.listener)
        up.listener = listen_on("127.0.0.1", &up.port);
    assert_int_equal(pthread_create(&up.thread, NULL, serve, &up), 0);
}

static void begin(const struct line *line, unsigned count, const char *extra)
{
    char endpoint[64];

    listen_with(line, count);
    snprintf(endpoint, sizeof(endpoint), "%s://127.0.0.1:%d", up.tls ? "https" : "http", up.port);
    begin_at(endpoint, extra);
}
#define BEGIN(lines, extra) begin(lines, ARRAY_COUNT(lines), extra)

static void end_core(void)
{
    core_stop(core);
    core_join(core);
    origin_close(server.origin);
    conf_give((struct config *)(uintptr_t)server.config);
}

static int clean(void **state)
{
    (void)state;
    end_core();
    if (up.listener) {
        shutdown(up.listener, SHUT_RDWR);
        pthread_join(up.thread, NULL);
        close(up.listener);
    }
    SSL_CTX_free(up.tls);
    memset(&up, 0, sizeof(up));
    return 0;
}

static int clean_environment(void **state)
{
    (void)state;
    unsetenv("AWS_PROFILE");
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", 1);
    setenv("AWS_REGION", "eu-test-1", 1);
    signal(SIGPIPE, SIG_IGN);
    xml_setup();
    memset(&up, 0, sizeof(up));
    return 0;
}

static uint64_t retries(void)
{
    return metric_read_sum(METRIC_UPSTREAM_RETRIES_TOTAL) - retries_before;
}

/* What the thread wrote is only looked at when it has ended. */
static void join_upstream(void)
{
    end_core();
    pthread_join(up.thread, NULL);
    up.thread = 0;
}

static int clean_joined(void **state)
{
    (void)state;
    close(up.listener);
    SSL_CTX_free(up.tls);
    memset(&up, 0, sizeof(up));
    return 0;
}

#define FAST "connect_timeout = \"2s\"\nread_timeout = \"10s\"\nretries = 3\n"
#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e1\"\r\nLast-Modified: Mon, 02 Jan 2023 03:04:05 GMT\r\n\r\nhello"

/* ---- what is sent ---- */

static void test_request_on_the_wire(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}};
    const struct http_field field[] = {{span_of("x-amz-request-payer"), span_of("requester")},
                                       {span_of("Connection"), span_of("close")}};
    BEGIN(lines, FAST);
    struct owner *o = prepare(0, HTTP_GET, "a//b/../c d+e\xc3\xa9");
    o->ask.has_range = true;
    o->ask.from = 5;
    o->ask.to = 9;
    o->ask.if_match = span_of("\"e1\"");
    o->ask.query = span_of("versionId=7");
    o->ask.field = field;
    o->ask.field_count = ARRAY_COUNT(field);
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    join_upstream();
    const char *r = up.request[0];
    assert_non_null(strstr(r, "GET /bkt/a//b/../c%20d%2Be%C3%A9?versionId=7 HTTP/1.1\r\n"));
    char host[64];
    snprintf(host, sizeof(host), "\r\nHost: 127.0.0.1:%d\r\n", up.port);
    assert_non_null(strstr(r, host));
    assert_non_null(strstr(r, "\r\nRange: bytes=5-9\r\n"));
    assert_non_null(strstr(r, "\r\nIf-Match: \"e1\"\r\n"));
    assert_non_null(strstr(r, "\r\nVia: 1.1 test-0badcafe\r\n"));
    assert_non_null(strstr(r, "\r\nUser-Agent: headpond/" HEADPOND_VERSION "\r\n"));
    assert_non_null(strstr(r, "\r\nAccept-Encoding: identity\r\n"));
    assert_non_null(strstr(r, "\r\nx-amz-content-sha256: e3b0c442"));
    assert_non_null(strstr(r, "\r\nx-amz-request-payer: requester\r\n"));
    assert_null(strstr(r, "Connection"));
    assert_non_null(strstr(r, "Credential=AKIDEXAMPLE/"));
    assert_non_null(strstr(r, "/eu-test-1/s3/aws4_request"));
    assert_non_null(strstr(r, "SignedHeaders=host;if-match;range;x-amz-content-sha256;x-amz-date;x-amz-request-payer,"));
}

static void test_control_bytes_never_reach_the_wire(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}};
    const struct http_field field[] = {{span_of("x-evil"), span_of("a\r\nHost: b")}};
    BEGIN(lines, FAST);
    struct owner *o = prepare(0, HTTP_GET, "k");
    o->ask.field = field;
    o->ask.field_count = 1;
    start(o);
    finish(o);
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_SYNTAX);
    o = prepare(0, HTTP_GET, "k");
    o->ask.query = span_of("a b");
    start(o);
    finish(o);
    assert_int_equal(o->why, ERR_SYNTAX);
    assert_int_equal(get("k")->status, 200);
}

/* ---- answers and bodies ---- */

static void test_answer_is_taken_apart(void **state)
{
    (void)state;
    const struct line lines[] = {
        {"HTTP/1.1 206 Partial\r\nDate: Mon, 02 Jan 2023 03:04:05 GMT\r\nContent-Range: bytes 5-9/100\r\nContent-Length: 5\r\n"
         "ETag: \"e2\"\r\nLast-Modified: Mon, 02 Jan 2023 03:04:05 GMT\r\n\r\nworld", KEEP, false}};
    BEGIN(lines, FAST);
    struct owner *o = get("k");
    assert_false(o->failed);
    assert_int_equal(o->status, 206);
    assert_string_equal(o->body, "world");
    assert_true(o->seen.has_range && o->seen.has_length);
    assert_int_equal(o->seen.range_from, 5);
    assert_int_equal(o->seen.range_to, 9);
    assert_int_equal(o->seen.range_size, 100);
    assert_int_equal(o->seen.length, 5);
    assert_int_equal(o->seen.last_modified_s, 1672628645);
    assert_int_equal(o->seen.date_s, 1672628645);
    assert_string_equal(o->etag, "\"e2\"");
    assert_true(o->seen.sent_wall_ms > 1600000000000);
}

static void test_206_without_content_range(void **state)
{
    (void)state;
    const struct line lines[] = {{"HTTP/1.1 206 Partial\r\nContent-Length: 2\r\nContent-Range: bytes 9-5/3\r\n\r\nxx", KEEP, false}};
    BEGIN(lines, FAST);
    struct owner *o = get("k");
    assert_int_equal(o->status, 206);
    assert_false(o->seen.has_range);
}

static void test_kept_connection_is_used_again(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {"HTTP/1.1 100 Continue\r\n\r\n" OK_ANSWER, KEEP, false},
                                 {"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno!", KEEP, false},
                                 {"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", KEEP, false},
                                 {"HTTP/1.1 304 Not Modified\r\n\r\n", KEEP, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    struct owner *o = get("c");
    assert_int_equal(o->status, 404);
    assert_int_equal(o->verdict, ERR_NOT_FOUND);
    assert_string_equal(o->body, "no!");
    o = prepare(0, HTTP_HEAD, "d");
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    assert_true(o->seen.has_length && o->seen.at_end);
    assert_int_equal(o->seen.length, 77);
    o = get("e");
    assert_int_equal(o->status, 304);
    assert_true(o->seen.at_end);
    o = prepare(0, HTTP_GET, "f");
    o->piece = 2;
    start(o);
    finish(o);
    assert_string_equal(o->body, "hello");
    assert_int_equal(retries(), 0);
    join_upstream();
    assert_int_equal(up.connections, 1);
}

static void test_chunked_and_close_delimited(void **state)
{
    (void)state;
    const struct line lines[] = {
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX: y\r\n\r\n", KEEP, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", KEEP, false},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", CLOSE, false},
        {OK_ANSWER, KEEP, false},
    };
    BEGIN(lines, FAST);
    struct owner *o = get("a");
    assert_string_equal(o->body, "hello world");
    assert_false(o->seen.has_length);
    o = prepare(0, HTTP_GET, "b");
    o->piece = 1;
    start(o);
    finish(o);
    assert_string_equal(o->body, "hello");
    assert_string_equal(get("c")->body, "until the end");
    assert_string_equal(get("d")->body, "hello");
    join_upstream();
    assert_int_equal(up.connections, 2);
}

static void test_body_larger_than_buffers(void **state)
{
    (void)state;
    enum { BIG = 100 * 1000 };
    static char answer[BIG + 128];
    int head = snprintf(answer, 128, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BIG);
    for (int i = 0; i < BIG; i++)
        answer[head + i] = (char)('a' + i % 23);
    const struct line lines[] = {{answer, KEEP, false}, {answer, KEEP, false}};
    BEGIN(lines, FAST);
    struct owner *o = get("a");
    assert_int_equal(o->len, BIG);
    assert_memory_equal(o->body, answer + head, BIG);
    o = prepare(0, HTTP_GET, "b");
    o->piece = 777;
    start(o);
    finish(o);
    assert_int_equal(o->len, BIG);
    assert_memory_equal(o->body, answer + head, BIG);
}

static void test_short_body_is_a_failure(void **state)
{
    (void)state;
    const struct line lines[] = {{"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", CLOSE, false},
                                 {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", CLOSE, false},
                                 {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_SHORT);
    assert_string_equal(o->body, "hello");
    o = get("b");
    assert_int_equal(o->why, ERR_UPSTREAM_SHORT);
    assert_string_equal(o->body, "hello");
    assert_string_equal(get("c")->body, "hello");
}

static void test_longer_body_ends_the_connection(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", STALL, false},
                                 {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    join_upstream();
    assert_int_equal(up.connections, 2);
}

static void test_malformed_heads(void **state)
{
    (void)state;
    static char big[20 * KIB];
    memset(big, 'x', sizeof(big) - 1);
    memcpy(big, "HTTP/1.1 200 OK\r\nX: ", 20);
    const struct line lines[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", STALL, false},
        {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", STALL, false},
        {"HTTP/1.1 101 Switching\r\n\r\n", STALL, false},
        {big, STALL, false},
        {OK_ANSWER, KEEP, false},
    };
    BEGIN(lines, FAST);
    for (unsigned i = 0; i < 4; i++) {
        struct owner *o = get("a");
        assert_true(o->failed);
        assert_int_equal(o->why, ERR_UPSTREAM_PROTOCOL);
    }
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
}

/* ---- trying again ---- */

static void test_reset_before_the_head_is_tried_again(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, RESET, false}, {"HTTP/1.1 20", RESET, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_int_equal(retries(), 2);
}

static void test_retries_end(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, RESET, false}, {NULL, RESET, false}, {NULL, CLOSE, false}};
    BEGIN(lines, "connect_timeout = \"2s\"\nread_timeout = \"10s\"\nretries = 2\n");
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_RESET);
    assert_int_equal(retries(), 2);
}

static void test_post_is_not_repeated(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, RESET, false}};
    BEGIN(lines, FAST);
    struct owner *o = prepare(0, HTTP_POST, "a");
    start(o);
    finish(o);
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_RESET);
    assert_int_equal(retries(), 0);
}

static void test_stale_kept_connection_costs_no_retry(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {NULL, CLOSE, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
    join_upstream();
    assert_int_equal(up.connections, 2);
    assert_int_equal(up.requests, 3);
}

static void test_503_then_200(void **state)
{
    (void)state;
    const struct line lines[] = {{"HTTP/1.1 503 Slow Down\r\nContent-Length: 8\r\n\r\nslowdown", KEEP, false},
                                 {"HTTP/1.1 500 Internal\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", KEEP, false},
                                 {OK_ANSWER, KEEP, false}};
    struct origin_status status;
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_int_equal(retries(), 2);
    origin_status(server.origin, &status);
    assert_true(status.up && status.throttled);
    assert_true(status.rtt_ms > 0);
    join_upstream();
    assert_int_equal(up.connections, 1); /* the unwanted bodies were read away */
}

static void test_last_503_is_the_answer(void **state)
{
    (void)state;
    const struct line lines[] = {{"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n", KEEP, false},
                                 {"HTTP/1.1 503 Slow Down\r\nContent-Length: 3\r\n\r\n2nd", KEEP, false}};
    BEGIN(lines, "retries = 1\n");
    struct owner *o = get("a");
    assert_false(o->failed);
    assert_int_equal(o->status, 503);
    assert_int_equal(o->verdict, ERR_UPSTREAM_STATUS);
    assert_string_equal(o->body, "2nd");
}

static void test_first_byte_timeout(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, "read_timeout = \"150ms\"\nretries = 1\n");
    assert_string_equal(get("a")->body, "hello");
    assert_int_equal(retries(), 1);
}

static void test_stall_in_the_body(void **state)
{
    (void)state;
    const struct line lines[] = {{"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", STALL, false}};
    BEGIN(lines, "read_timeout = \"150ms\"\nretries = 1\n");
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_TIMEOUT);
    assert_string_equal(o->body, "hello");
}

static void test_408_on_a_kept_connection(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {"HTTP/1.1 408 Timeout\r\nConnection: close\r\n\r\n", CLOSE, false},
                                 {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    get("a");
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
}

/* ---- regions, clocks ---- */

static void test_region_is_learnt_from_the_field(void **state)
{
    (void)state;
    const struct line lines[] = {
        {"HTTP/1.1 301 Moved\r\nx-amz-bucket-region: ap-south-2\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
         KEEP, false},
        {OK_ANSWER, KEEP, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    join_upstream();
    assert_non_null(strstr(up.request[0], "/eu-test-1/s3/"));
    assert_non_null(strstr(up.request[1], "/ap-south-2/s3/"));
    assert_non_null(strstr(up.request[2], "/ap-south-2/s3/"));
}

#define WRONG_REGION "<?xml version=\"1.0\"?>\n<Error><Code>AuthorizationHeaderMalformed</Code><Region>sa-east-1</Region></Error>"
#define WRONG_OTHER "<?xml version=\"1.0\"?>\n<Error><Code>InvalidArgument</Code><Message>no</Message></Error>"

static void test_region_is_learnt_from_the_document(void **state)
{
    (void)state;
    char first[512], other[512];
    snprintf(first, sizeof(first), "HTTP/1.1 400 Bad\r\nContent-Length: %zu\r\n\r\n%s", strlen(WRONG_REGION), WRONG_REGION);
    snprintf(other, sizeof(other), "HTTP/1.1 400 Bad\r\nContent-Length: %zu\r\n\r\n%s", strlen(WRONG_OTHER), WRONG_OTHER);
    const struct line lines[] = {{first, KEEP, false}, {OK_ANSWER, KEEP, false}, {other, KEEP, false}, {first, KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    struct owner *o = get("b");      /* looked at, and still the owner's */
    assert_int_equal(o->status, 400);
    assert_string_equal(o->body, WRONG_OTHER);
    o = get("c");                    /* names the region that was used: final */
    assert_int_equal(o->status, 400);
    assert_string_equal(o->body, WRONG_REGION);
}

static void test_clock_is_learnt_from_a_403(void **state)
{
    (void)state;
    const struct line lines[] = {
        {"HTTP/1.1 403 Forbidden\r\nDate: Fri, 01 Jan 2100 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n", KEEP, false},
        {OK_ANSWER, KEEP, false},
        {"HTTP/1.1 403 Forbidden\r\nDate: Fri, 01 Jan 2100 00:00:00 GMT\r\nContent-Length: 2\r\n\r\nno", KEEP, false}};
    BEGIN(lines, FAST);
    assert_string_equal(get("a")->body, "hello");
    struct owner *o = get("b");
    assert_int_equal(o->status, 403);
    assert_int_equal(o->verdict, ERR_DENIED);
    join_upstream();
    assert_non_null(strstr(up.request[1], "x-amz-date: 21000101T0000"));
}

/* ---- addresses, breaker ---- */

static void test_dead_address_is_passed_over(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, CLOSE, false}, {OK_ANSWER, CLOSE, false}};
    struct sockaddr_in dead = {.sin_family = AF_INET};
    BEGIN(lines, FAST);
    dead.sin_port = htons((uint16_t)up.port);
    inet_pton(AF_INET, "127.0.0.99", &dead.sin_addr); /* nobody listens there */
    assert_true(addresses_add(server.origin->addresses, (struct sockaddr *)&dead, sizeof(dead)));
    assert_int_equal(addresses_count(server.origin->addresses), 2);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
}

static void test_breaker(void **state)
{
    (void)state;
    static const struct line lines[] = {{OK_ANSWER, KEEP, false}};
    char endpoint[64];
    struct origin_status status;
    int port = 0;

    int fd = listen_on("127.0.0.1", &port);
    close(fd);                       /* a port where nobody listens */
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
    begin_at(endpoint, "retries = 5\nconnect_timeout = \"1s\"\n");
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_CONNECT);
    assert_int_equal(retries(), 2);  /* the third failure says: down */
    origin_status(server.origin, &status);
    assert_false(status.up);
    o = get("b");
    assert_int_equal(o->why, ERR_UPSTREAM_DOWN);
    up.port = port;
    up.listener = listen_on("127.0.0.1", &up.port);
    listen_with(lines, 1);
    uint64_t until_ms = clock_ms() + 10000;
    do {
        o = get("c");
    } while (o->failed && o->why == ERR_UPSTREAM_DOWN && clock_ms() < until_ms);
    assert_string_equal(o->body, "hello"); /* the probe */
    origin_status(server.origin, &status);
    assert_true(status.up);
}

/* ---- permits ---- */

static void test_demand_goes_before_prefetch(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {OK_ANSWER, KEEP, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *a = prepare(0, HTTP_GET, "first"), *b = prepare(1, HTTP_GET, "ahead"), *c = prepare(2, HTTP_GET, "wanted");
    b->ask.class_ = ASK_PREFETCH;
    start(a);
    start(b);
    start(c);
    finish(a);
    finish(b);
    finish(c);
    join_upstream();
    assert_non_null(strstr(up.request[0], "/bkt/first"));
    assert_int_equal(up.requests, 3);
    assert_int_equal(up.connections, 1);
}

static void test_end_at_any_time(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *a = prepare(0, HTTP_GET, "a"), *b = prepare(1, HTTP_GET, "b");
    a->hasty = b->hasty = true;
    start(a);
    start(b);
    finish(a);
    finish(b);
    assert_false(a->failed || b->failed);
}

static void test_end_while_the_head_is_awaited(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *o = prepare(0, HTTP_GET, "a");
    start(o);
    pthread_mutex_lock(&lock);
    while (up.requests == 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    core_send(core, &o->cue_msg);
    finish(o);
    assert_false(o->failed);
    assert_int_equal(o->status, 0);
    assert_string_equal(get("b")->body, "hello"); /* and the permit came back */
    assert_int_equal(retries(), 0);
}

static void test_end_while_a_read_is_under_way(void **state)
{
    (void)state;
    const struct line lines[] = {{"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *o = prepare(0, HTTP_GET, "a");
    start(o);
    pthread_mutex_lock(&lock);
    while (!o->began_read)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    core_send(core, &o->cue_msg);
    finish(o);
    assert_false(o->failed);
    assert_int_equal(o->status, 200);
    assert_string_equal(get("b")->body, "hello");
}

static void test_unread_body_cuts_the_connection(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *o = prepare(0, HTTP_GET, "a");
    o->lazy = true;
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    assert_string_equal(get("b")->body, "hello"); /* and the permit came back */
    join_upstream();
    assert_int_equal(up.connections, 2);
}

/* ---- TLS ---- */

static char ca_file[64];

static SSL_CTX *make_tls(const char *san)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const uint8_t *)"test", -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, san);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    snprintf(ca_file, sizeof(ca_file), "/tmp/headpond-test-ca-XXXXXX");
    FILE *f = fdopen(mkstemp(ca_file), "w");
    assert_int_equal(PEM_write_X509(f, cert), 1);
    fclose(f);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}

static const char *with_ca(const char *extra)
{
    static char text[256];
    snprintf(text, sizeof(text), "ca_file = \"%s\"\n%s", ca_file, extra);
    return text;
}

static void test_tls(void **state)
{
    (void)state;
    enum { BIG = 100 * 1000 };
    static char answer[BIG + 128];
    int head = snprintf(answer, 128, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BIG);
    for (int i = 0; i < BIG; i++)
        answer[head + i] = (char)('a' + i % 23);
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {answer, KEEP, false}, {OK_ANSWER, CLOSE, false},
                                 {"HTTP/1.1 200 OK\r\n\r\nuntil the end", CLOSE, false},
                                 {"HTTP/1.1 200 OK\r\n\r\ncut", CUT, false}};
    up.tls = make_tls("IP:127.0.0.1");
    BEGIN(lines, with_ca(FAST));
    unlink(ca_file);
    assert_string_equal(get("a")->body, "hello");
    struct owner *o = get("b");
    assert_int_equal(o->len, BIG);
    assert_memory_equal(o->body, answer + head, BIG);
    assert_string_equal(get("c")->body, "hello");
    assert_string_equal(get("d")->body, "until the end");
    assert_true(get("e")->failed);   /* no close_notify: cut, not ended */
    assert_int_equal(retries(), 0);
    join_upstream();
    assert_int_equal(up.connections, 3);
}

static void test_tls_wrong_name(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}};
    up.tls = make_tls("IP:127.0.0.2");
    BEGIN(lines, with_ca("retries = 0\n"));
    unlink(ca_file);
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_TLS);
    join_upstream();
    assert_int_equal(up.requests, 0); /* nothing was said to it */
}

/* ---- opening ---- */

static void test_refusals_have_words(void **state)
{
    (void)state;
    static const struct {
        const char *endpoint, *extra, *words;
    } table[] = {
        {"http://8.8.8.8", "", "public address"},
        {"https://127.0.0.1", "ca_file = \"/nonexistent\"", "ca_file"},
        {"file:///nonexistent-dir", "", "must exist"},
        {"https://127.0.0.1", "path_style = \"virtual\"", "needs a host name"},
        {"http://127.0.0.1", "region = \"not a region\"", "upstream.region"},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        char why[512] = "";
        assert_int_not_equal(open_origin(table[i].endpoint, table[i].extra, why), OK);
        if (!strstr(why, table[i].words))
            fail_msg("%s: \"%s\"", table[i].endpoint, why);
        conf_give((struct config *)(uintptr_t)server.config);
    }
    char why[512];
    assert_int_equal(open_origin("http://8.8.8.8", "insecure = true", why), OK);
    origin_close(server.origin);
    conf_give((struct config *)(uintptr_t)server.config);
}

/* ---- a directory as upstream answers the same way ---- */

static char root[64];

static void put_file(const char *path, const char *content)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    FILE *f = fopen(whole, "w");
    must(f && fwrite(content, 1, strlen(content), f) == strlen(content) && fclose(f) == 0);
}

static void begin_directory(void)
{
    char path[128], endpoint[128];

    snprintf(root, sizeof(root), "/tmp/headpond-test-dir-XXXXXX");
    must(mkdtemp(root) != NULL);
    snprintf(path, sizeof(path), "%s/bkt", root);
    must(mkdir(path, 0755) == 0);
    put_file("bkt/a.json", "{\"a\": 1}");
    put_file("secret", "outside of all buckets");
    snprintf(path, sizeof(path), "%s/bkt/up", root);
    must(symlink("../../../../etc/passwd", path) == 0);
    snprintf(path, sizeof(path), "%s/bkt/pipe", root);
    must(mkfifo(path, 0600) == 0);
    snprintf(endpoint, sizeof(endpoint), "file://%s", root);
    begin_at(endpoint, "");
}

static int clean_directory(void **state)
{
    static const char *const paths[] = {"bkt/a.json", "bkt/up", "bkt/pipe", "secret"};
    char path[128];
    (void)state;
    end_core();
    for (unsigned i = 0; i < ARRAY_COUNT(paths); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, paths[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/bkt", root);
    rmdir(path);
    rmdir(root);
    return 0;
}

static void test_directory_get(void **state)
{
    (void)state;
    begin_directory();
    struct owner *o = get("a.json");
    assert_false(o->failed);
    assert_int_equal(o->status, 200);
    assert_string_equal(o->body, "{\"a\": 1}");
    assert_true(o->seen.has_length);
    assert_int_equal(o->seen.length, 8);
    assert_int_equal(strlen(o->etag), DIR_ETAG_BYTES);
    char etag[64];
    strcpy(etag, o->etag);
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.has_range = true;
    o->ask.from = 2;
    o->ask.to = 99;
    o->ask.if_match = span_of(etag);
    o->piece = 3;
    start(o);
    finish(o);
    assert_int_equal(o->status, 206);
    assert_string_equal(o->body, "a\": 1}");
    assert_int_equal(o->seen.range_from, 2);
    assert_int_equal(o->seen.range_to, 7);
    assert_int_equal(o->seen.range_size, 8);
    o = prepare(0, HTTP_HEAD, "a.json");
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    assert_int_equal(o->seen.length, 8);
    assert_true(o->seen.at_end);
}

static void test_directory_refusals(void **state)
{
    static const struct {
        const char *key, *code;
        unsigned status;
    } table[] = {
        {"missing", "NoSuchKey", 404}, {"a.json/", "NoSuchKey", 404}, {"../secret", "NoSuchKey", 404},
        {"./a.json", "NoSuchKey", 404}, {"x//a.json", "NoSuchKey", 404}, {"up", "NoSuchKey", 404},
        {"pipe", "NoSuchKey", 404}, {"a.json/b", "NoSuchKey", 404},
    };
    (void)state;
    begin_directory();
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        struct owner *o = get(table[i].key);
        assert_false(o->failed);
        assert_int_equal(o->status, table[i].status);
        assert_non_null(strstr(o->body, table[i].code));
    }
    struct owner *o = prepare(0, HTTP_GET, "k");
    o->ask.bucket = span_of("nobucket");
    start(o);
    finish(o);
    assert_int_equal(o->status, 404);
    assert_non_null(strstr(o->body, "NoSuchBucket"));
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.if_match = span_of("\"other\"");
    start(o);
    finish(o);
    assert_int_equal(o->status, 412);
    assert_int_equal(o->verdict, ERR_CHANGED);
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.has_range = true;
    o->ask.from = 8;
    o->ask.to = 9;
    start(o);
    finish(o);
    assert_int_equal(o->status, 416);
    o = prepare(0, HTTP_DELETE, "a.json");
    start(o);
    finish(o);
    assert_int_equal(o->status, 405);
}

static void test_directory_lists(void **state)
{
    (void)state;
    begin_directory();
    struct owner *o = prepare(0, HTTP_GET, "");
    o->ask.query = span_of("list-type=2");
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    assert_non_null(strstr(o->body, "<Key>a.json</Key>"));
    assert_null(strstr(o->body, "pipe"));
    assert_null(strstr(o->body, "up</Key>"));
    o = prepare(0, HTTP_GET, "");
    o->ask.bucket = span_of("");
    start(o);
    finish(o);
    assert_non_null(strstr(o->body, "<Name>bkt</Name>"));
    assert_null(strstr(o->body, "secret"));
    o = prepare(0, HTTP_HEAD, "");
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
}

static void test_directory_file_changes_between_reads(void **state)
{
    (void)state;
    begin_directory();
    struct owner *o = prepare(0, HTTP_GET, "a.json");
    o->lazy = true;
    start(o);
    finish(o);
    char etag[64];
    strcpy(etag, o->etag);
    put_file("bkt/a.json", "{\"b\": 22}");
    o = prepare(0, HTTP_GET, "a.json");
    o->ask.if_match = span_of(etag);
    start(o);
    finish(o);
    assert_int_equal(o->status, 412);
}

#define PLAIN(test) cmocka_unit_test_setup_teardown(test, clean_environment, clean)
#define JOINED(test) cmocka_unit_test_setup_teardown(test, clean_environment, clean_joined)
#define DIRECTORY(test) cmocka_unit_test_setup_teardown(test, clean_environment, clean_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOINED(test_request_on_the_wire), PLAIN(test_control_bytes_never_reach_the_wire), PLAIN(test_answer_is_taken_apart),
        PLAIN(test_206_without_content_range), JOINED(test_kept_connection_is_used_again),
        JOINED(test_chunked_and_close_delimited), PLAIN(test_body_larger_than_buffers), PLAIN(test_short_body_is_a_failure),
        JOINED(test_longer_body_ends_the_connection), PLAIN(test_malformed_heads),
        PLAIN(test_reset_before_the_head_is_tried_again), PLAIN(test_retries_end), PLAIN(test_post_is_not_repeated),
        JOINED(test_stale_kept_connection_costs_no_retry), JOINED(test_503_then_200), PLAIN(test_last_503_is_the_answer),
        PLAIN(test_first_byte_timeout), PLAIN(test_stall_in_the_body), PLAIN(test_408_on_a_kept_connection),
        JOINED(test_region_is_learnt_from_the_field), PLAIN(test_region_is_learnt_from_the_document),
        JOINED(test_clock_is_learnt_from_a_403), PLAIN(test_dead_address_is_passed_over), PLAIN(test_breaker),
        JOINED(test_demand_goes_before_prefetch), PLAIN(test_end_at_any_time), PLAIN(test_end_while_the_head_is_awaited),
        PLAIN(test_end_while_a_read_is_under_way), JOINED(test_unread_body_cuts_the_connection),
        JOINED(test_tls), JOINED(test_tls_wrong_name),
        cmocka_unit_test_setup(test_refusals_have_words, clean_environment), DIRECTORY(test_directory_get),
        DIRECTORY(test_directory_refusals), DIRECTORY(test_directory_lists),
        DIRECTORY(test_directory_file_changes_between_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
