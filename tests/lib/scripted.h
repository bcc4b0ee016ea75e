/* For tests of exchanges: a small scripted server on loopback, one real core, and owners that read
 * one answer each. Included once, behind the .c under test. Blocking, and without sleeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TEST_SCRIPTED_H
#define HEADPOND_TEST_SCRIPTED_H

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "conf.h"
#include "server/origin/inside.h"
#include "xml.h"

/* ---- the scripted server ---- */

enum deed { KEEP, CLOSE,
    CUT /* without TLS's goodbye */, RESET, STALL /* until the client goes */ };
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
        ssize_t n = w->ssl ? SSL_write(w->ssl, bytes, (int)len)
            : send(w->fd, bytes, len, MSG_NOSIGNAL);
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

/* One line after the other; each either on the connection that the last one kept, or on the next.
 * */
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
            /* the client went away from a kept connection: same line, next one */
            wire_close(&w, CLOSE);
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

unused_ok static struct owner *prepare(unsigned i, enum http_method method, const char *key)
{
    struct owner *o = &owner[i];
    *o = (struct owner){.ask = {.method = method, .op = method == HTTP_HEAD ? OP_HEAD : OP_GET,
        .bucket = span_of("bkt"),
                                .key = span_of(key)}};
    o->msg.deliver = owner_deliver;
    o->cue_msg.deliver = cue_deliver;
    return o;
}

unused_ok static void start(struct owner *o)
{
    core_send(core, &o->msg);
}

unused_ok static void finish(struct owner *o)
{
    pthread_mutex_lock(&lock);
    while (!o->done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    o->body[o->len] = '\0';
}

unused_ok static struct owner *get(const char *key)
{
    struct owner *o = prepare(0, HTTP_GET, key);
    start(o);
    finish(o);
    return o;
}

unused_ok static uint64_t retries_before, answers_before;

static bool core_idle(struct core *c)
{
    return origin_core_idle(c);
}

static void open_core(void)
{
    static struct core *cores[1];
    const struct core_plan plan = {.server = &server, .recv_buffers = 16,
        .begin = origin_core_begin, .drain = origin_core_drain,
                                   .idle = core_idle, .end = origin_core_end};
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

    snprintf(text, sizeof(text), "[cache]\ndirs = [\"/tmp\"]\n[upstream]\nendpoint = \"%s\"\n%s\n",
             endpoint, extra);
    enum err e = conf_parse(span_of(text), "test", no_environment, NULL, 0, &config, mistakes);
    if (e != OK)
        fail_msg("%s", mistakes->item[0].text);
    server = (struct server){.config = config, .via = "test-0badcafe"};
    if (settings_open(&server, mistakes) != OK)
        fail_msg("%s", mistakes->item[0].text);
    mem_give(mistakes);
    return origin_open(&server, 0, why);
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

unused_ok static void begin(const struct line *line, unsigned count, const char *extra)
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
    core_free(core);
    origin_close(server.origin[0]);
    settings_close(&server);
    conf_give((struct config *)(uintptr_t)server.config);
}

unused_ok static int clean(void **state)
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
    if (xml_setup() != OK)
        return -1;
    memset(&up, 0, sizeof(up));
    return 0;
}

unused_ok static uint64_t retries(void)
{
    return metric_read_sum(METRIC_UPSTREAM_RETRIES_TOTAL) - retries_before;
}

/* What the thread wrote is only looked at when it has ended. */
unused_ok static void join_upstream(void)
{
    end_core();
    pthread_join(up.thread, NULL);
    up.thread = 0;
}

unused_ok static int clean_joined(void **state)
{
    (void)state;
    close(up.listener);
    SSL_CTX_free(up.tls);
    memset(&up, 0, sizeof(up));
    return 0;
}

#define FAST "connect_timeout = \"2s\"\nread_timeout = \"10s\"\nretries = 3\n"
#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e1\"\r\n\r\nhello"
#define CHUNKED_ANSWER "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

#define PLAIN(test) cmocka_unit_test_setup_teardown(test, clean_environment, clean)
#define JOINED(test) cmocka_unit_test_setup_teardown(test, clean_environment, clean_joined)

#endif
