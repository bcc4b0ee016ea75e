/* For tests of request bodies: a core with listeners and nothing above them but requests that take
 * their body as their target says and answer what they got; clients, plain and TLS, that send what
 * they are told, cut where they are told. Included once, behind the .c under test. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TEST_BODIES_H
#define HEADPOND_TEST_BODIES_H

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/sockios.h>

#include "conf.h"
#include "mem.h"
#include "server/net/net.h"
#include "tests/lib/await.h"
#include "tests/lib/certificate.h"
#include "tls.h"

/* ---- requests ---- */

/* "/take/CAP/MOST" takes CAP bytes at once until the end, or MOST were taken; "/settle/CAP" gives
 * up at its first wait; "/drop/CAP" when it is woken from there; "/hold/CAP/MS" rests for so long
 * behind the first bytes; "/continue/CAP" says 100 first. */
#define JOB_STEPS(S) S(job, SPEAK) S(job, TAKE) S(job, HOLD) S(job, SETTLE) S(job, ANSWER)         \
    S(job, DRAIN) S(job, END)

enum { JOB_BYTES = 1 * MIB };
struct job {
    struct machine m;
    struct timer timer;
    struct conn *conn;
    const struct http_head *head;
    struct send send;
    char how[16];
    unsigned cap, most;
    bool held, gone, spoken;
    enum body_state state;
    enum err why;
    uint64_t len, hash;
    char text[300];
    char mem[JOB_BYTES + 1];         /* never more than cap bytes of it are lent */
};
STEP_TABLE(job, JOB_STEPS)

static struct server server;
static struct core *core;
static int port;
static bool sealed;                  /* clients speak TLS */
static struct tls_context *client_context;

/* What the test looks at while a request runs, or when its client cannot hear it. */
static _Atomic int job_fd;           /* -1: none runs */
static _Atomic unsigned job_waits, jobs_over; /* over: it answers */
static _Atomic int job_why;          /* of the last one that ended: enum err */

#define HASH_SEED 14695981039346656037u
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

static enum turn job_SPEAK(struct job *j)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    enum err why;
    if (strcmp(j->how, "continue") != 0)
        return GO(job, j, TAKE);
    if (!j->spoken) {
        j->spoken = true;
        send_reset(&j->send);
        send_add(&j->send, interim, sizeof(interim) - 1);
        send_go(&j->send, j->conn, &j->m);
        return WAIT;
    }
    if (!send_ended(&j->send))
        return WAIT;
    must(send_accept(&j->send, j->conn, &why));
    return GO(job, j, TAKE);
}

static enum turn job_TAKE(struct job *j)
{
    size_t got;
    if (j->most > 0 && j->len >= j->most && strcmp(j->how, "take") == 0)
        return GO(job, j, ANSWER);
    j->mem[j->cap] = 'x';
    j->state = conn_body_take(j->conn, &j->m, j->mem, j->cap, &got, &j->why);
    must(j->mem[j->cap] == 'x');
    switch (j->state) {
    case BODY_BUSY:
        job_waits++;
        /* no copy */
        must(j->conn->session.tls || (j->conn->recv.mem == j->mem && j->conn->recv.len <= j->cap));
        if (strcmp(j->how, "settle") == 0)
            return GO(job, j, SETTLE);
        if (strcmp(j->how, "drop") == 0)
            j->m.at = AT_job_SETTLE;
        return WAIT;
    case BODY_OK:
        must(got > 0 && got <= j->cap);
        j->len += got;
        j->hash = hash_bytes(j->hash, j->mem, got);
        return strcmp(j->how, "hold") == 0 && !j->held ? GO(job, j, HOLD) : GO(job, j, TAKE);
    case BODY_END:
        must(got == 0 && conn_body_over(j->conn));
        return GO(job, j, ANSWER);
    case BODY_BROKEN:
        must(got == 0 && !conn_body_over(j->conn));
        return GO(job, j, ANSWER);
    }
    return WAIT;
}

static enum turn job_HOLD(struct job *j) /* nothing is asked for, so nothing is received */
{
    must(!j->conn->recv.busy && !j->conn->recv.ended && j->m.inflight == 0);
    if (!j->held) {
        j->held = true;
        timer_set(&j->timer, &j->m, j->most);
    }
    return timer_take(&j->timer) ? GO(job, j, TAKE) : WAIT;
}

static enum turn job_SETTLE(struct job *j)
{
    size_t got;
    if (!conn_body_settle(j->conn, &j->m))
        return WAIT;
    memset(j->mem, 'y', j->cap);     /* it is ours again */
    if (strcmp(j->how, "drop") == 0)
        j->state = conn_body_take(j->conn, &j->m, j->mem, j->cap, &got, &j->why);
    return GO(job, j, ANSWER);
}

static enum turn job_ANSWER(struct job *j)
{
    char body[100];
    int len = j->state == BODY_BROKEN
                  ? snprintf(body, sizeof(body), "%s", err_name(j->why))
                  : snprintf(body, sizeof(body), "%s %llu %016llx",
                             j->state == BODY_END ? "end" : "left", (unsigned long long)j->len,
                             (unsigned long long)j->hash);
    snprintf(j->text, sizeof(j->text), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len,
             body);
    job_why = (int)j->why;           /* before the client can hear it */
    job_fd = -1;
    jobs_over++;
    send_reset(&j->send);
    send_add(&j->send, j->text, (uint32_t)strlen(j->text));
    send_go(&j->send, j->conn, &j->m);
    return GO(job, j, DRAIN);
}

static enum turn job_DRAIN(struct job *j)
{
    enum err why;
    if (!send_ended(&j->send))
        return WAIT;
    if (send_accept(&j->send, j->conn, &why))
        return GO(job, j, END);
    j->gone = why != OK;
    if (!j->gone)
        send_go(&j->send, j->conn, &j->m);
    return j->gone ? GO(job, j, END) : WAIT;
}

static enum turn job_END(struct job *j)
{
    timer_stop(&j->timer);
    return OVER;
}

static void job_over(struct machine *m)
{
    struct job *j = (struct job *)(void *)m;
    struct conn *c = j->conn;
    bool keep = j->head->keep_alive && !j->gone && !conn_stopping(c);
    memset(j, 0xee, sizeof(*j));     /* nothing may look at it any more */
    conn_done(c, keep ? CONN_KEEP : CONN_CLOSE);
}

static void begin_job(struct conn *c, void *request, const struct http_head *head)
{
    struct job *j = request;
    char target[64];
    *j = (struct job){.conn = c, .head = head, .hash = HASH_SEED};
    snprintf(target, sizeof(target), "%.*s", (int)min_u64(head->target.len, 63), head->target.at);
    must(sscanf(target, "/%15[a-z]/%u/%u", j->how, &j->cap, &j->most) >= 2);
    must(j->cap > 0 && j->cap <= JOB_BYTES);
    job_waits = 0;
    job_fd = conn_fd(c);
    MACHINE_BEGIN(job, j, conn_core(c), job_over);
}

static void refuse_job(struct conn *c, enum http_verdict verdict, struct text *t)
{
    (void)c;
    text_addf(t, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\nX-Verdict: %d\r\n\r\n", (int)verdict);
}

static const struct request_ops job_ops = {
    .request_bytes = sizeof(struct job), .begin = begin_job, .refuse = refuse_job};

/* ---- the server ---- */

static char cert_dir[] = "/tmp/headpond-test-body-XXXXXX", cert_path[64], key_path[64];

static int make_certificate(void **state)
{
    (void)state;
    const char *why;
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(cert_dir))
        return -1;
    snprintf(cert_path, sizeof(cert_path), "%s/a.pem", cert_dir);
    snprintf(key_path, sizeof(key_path), "%s/a.key", cert_dir);
    return certificate_write("a", "DNS:pond", cert_path, key_path, NULL) &&
                   tls_context_make(cert_path, false, &client_context, &why) == OK
               ? 0
               : -1;
}

static int drop_certificate(void **state)
{
    (void)state;
    tls_context_give(client_context);
    unlink(cert_path);
    unlink(key_path);
    return rmdir(cert_dir);
}

static enum err make_server(const char *extra, char why[256])
{
    char text[1024];
    static struct conf_mistakes mistakes;
    struct config *config = NULL;
    char *const no_environment[] = {NULL};
    snprintf(text, sizeof(text),
             "[cache]\ndirs = [\"/tmp\"]\n[upstream]\nendpoint = \"file:///tmp\"\n"
             "[server]\nlisten = [\"127.0.0.1:0\"]\nmax_connections = 16\n%s\n%s%s%s%s%s",
             extra, sealed ? "tls_cert = \"" : "", sealed ? cert_path : "",
             sealed ? "\"\ntls_key = \"" : "", sealed ? key_path : "", sealed ? "\"\n" : "");
    TRY(conf_parse(span_of(text), "test", no_environment, NULL, 0, &config, &mistakes));
    server = (struct server){.config = config, .core_count = 1};
    TRY(settings_open(&server, &mistakes));
    return net_open(&server, &job_ops, why);
}

static bool is_idle(struct core *c)
{
    return net_core_idle(c);
}

static void open_server(const char *extra)
{
    static struct core *cores[1];
    const struct core_plan plan = {.server = &server, .recv_buffers = 16, .begin = net_core_begin,
        .drain = net_core_drain, .idle = is_idle, .end = net_core_end};
    struct core_start_error error;
    struct sockaddr_in at;
    socklen_t len = sizeof(at);
    char why[256] = "";
    if (make_server(extra, why) != OK)
        fail_msg("%s", why);
    must(getsockname(server.net->fd[0], (struct sockaddr *)&at, &len) == 0);
    port = ntohs(at.sin_port);
    job_fd = -1;
    job_waits = jobs_over = 0;
    assert_int_equal(core_start(&plan, &core, &error), OK);
    cores[0] = core;
    server.core = cores;
}

static void close_server(void)
{
    core_stop(core);
    core_join(core);
    core_free(core);
    net_close(&server);
    settings_close(&server);
    conf_give((struct config *)(uintptr_t)server.config);
}

/* ---- clients ---- */

struct client {
    int fd;
    struct tls *tls;
    char in[64 * KIB];
    size_t len;
    bool ended, reset;
};

static void client_flush(struct client *c, size_t cut);

static void client_open(struct client *c)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    *c = (struct client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    assert_int_equal(connect(c->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    if (!sealed)
        return;
    c->tls = tls_open(client_context, "pond", false);
    char raw[4 * KIB];
    while (tls_handshake(c->tls) == TLS_WANT_IN) {
        client_flush(c, 0);
        ssize_t n = recv(c->fd, raw, sizeof(raw), 0);
        assert_true(n > 0);
        tls_feed(c->tls, raw, (size_t)n);
        assert_true(tls_keep(c->tls));
    }
    client_flush(c, 0);
}

static void client_close(struct client *c)
{
    if (c->tls)
        tls_close(c->tls);
    close(c->fd);
}

/* The peer may be gone: then its answer, or its end, tells. */
static void send_all(int fd, const char *bytes, size_t len)
{
    for (ssize_t n; len > 0; bytes += n, len -= (size_t)n)
        if ((n = send(fd, bytes, len, MSG_NOSIGNAL)) <= 0)
            return;
}

/* The server has read what was sent, and its request waits for more, or is over since `before`. */
static void await_taken(unsigned before)
{
    int left = 1;
    AWAIT(jobs_over > before ||
          (job_fd >= 0 && job_waits > 0 && ioctl(job_fd, SIOCINQ, &left) == 0 && left == 0));
}

static void send_cut(int fd, struct span bytes, size_t cut, bool waits)
{
    unsigned before = jobs_over;
    cut = (size_t)min_u64(cut, bytes.len);
    send_all(fd, bytes.at, cut);
    if (cut > 0 && waits)
        await_taken(before);
    send_all(fd, bytes.at + cut, bytes.len - cut);
}

static void client_flush(struct client *c, size_t cut)
{
    for (struct span out; (out = tls_out(c->tls)).len > 0; cut = 0) {
        send_cut(c->fd, out, cut, cut > 0);
        tls_sent(c->tls, out.len);
    }
}

static void client_send(struct client *c, const void *bytes, size_t len)
{
    if (!c->tls) {
        send_all(c->fd, bytes, len);
        return;
    }
    for (size_t at = 0, n; at < len; at += n) {
        n = (size_t)min_u64(len - at, BLOCK_BYTES);
        assert_int_equal(tls_write(c->tls, (const char *)bytes + at, n), TLS_DONE);
        client_flush(c, 0);
    }
}

static void client_say(struct client *c, const char *text)
{
    client_send(c, text, strlen(text));
}

/* A request that is not whole; it waits for the rest then. */
static void client_begin(struct client *c, const char *text)
{
    unsigned before = jobs_over;
    client_say(c, text);
    await_taken(before);
}

/* The second part leaves when the server has read the first, which has the whole head. */
static void client_send_cut(struct client *c, struct span bytes, size_t cut)
{
    unsigned before = jobs_over;
    client_send(c, bytes.at, cut);
    if (cut < bytes.len) {
        await_taken(before);
        client_send(c, bytes.at + cut, bytes.len - cut);
    }
}

/* More bytes for c->in. False: nothing more comes. */
static bool client_read(struct client *c)
{
    char raw[4 * KIB];
    size_t room = sizeof(c->in) - c->len, got = 0;
    for (;;) {
        enum tls_want want = c->tls ? tls_read(c->tls, c->in + c->len, room, &got) : TLS_WANT_IN;
        if (want == TLS_DONE) {
            c->len += got;
            return true;
        }
        c->ended = c->ended || want == TLS_EOF || want == TLS_FAILED;
        if (c->ended)
            return false;
        ssize_t n = recv(c->fd, c->tls ? raw : c->in + c->len, c->tls ? sizeof(raw) : room, 0);
        c->reset = c->reset || n < 0;
        c->ended = n <= 0;
        if (c->ended)
            return false;
        if (!c->tls) {
            c->len += (size_t)n;
            return true;
        }
        assert_int_equal(tls_feed(c->tls, raw, (size_t)n), n);
        assert_true(tls_keep(c->tls));
    }
}

/* The body of the next answer; "" when the connection ended instead. */
static const char *client_answer(struct client *c)
{
    static char body[200];
    unsigned len;
    char *end;
    for (;;) {
        c->in[min_u64(c->len, sizeof(c->in) - 1)] = '\0';
        end = strstr(c->in, "\r\n\r\n");
        bool interim = end && strncmp(c->in, "HTTP/1.1 100", 12) == 0;
        if (end && interim) {
            size_t used = (size_t)(end + 4 - c->in);
            memmove(c->in, c->in + used, c->len - used);
            c->len -= used;
            return "100";
        }
        if (end && sscanf(c->in, "HTTP/1.1 200 OK\r\nContent-Length: %u", &len) == 1 &&
            c->len >= (size_t)(end + 4 - c->in) + len)
            break;
        if (!client_read(c))
            return "";
    }
    snprintf(body, sizeof(body), "%.*s", (int)len, end + 4);
    size_t used = (size_t)(end + 4 - c->in) + len;
    memmove(c->in, c->in + used, c->len - used);
    c->len -= used;
    return body;
}

/* What a request says that took these bytes, and that they were all, or not. */
static const char *took(const char *end, const void *bytes, size_t len)
{
    static char text[100];
    snprintf(text, sizeof(text), "%s %zu %016llx", end, len,
             (unsigned long long)hash_bytes(HASH_SEED, bytes, len));
    return text;
}
static const char *whole(const void *bytes, size_t len)
{
    return took("end", bytes, len);
}
unused_ok static const char *part(const char *bytes)
{
    return took("left", bytes, strlen(bytes));
}

/* Nothing but the end of the connection comes. */
static void assert_closed(struct client *c)
{
    assert_string_equal(client_answer(c), "");
    assert_int_equal(c->len, 0);
    assert_true(c->ended);
}

#endif
