/* The remote store of the benches: files of a directory over HTTP, at once or as if far away. One
 * thread, sendfile, so that it takes as little as possible of the core that it shares with the
 * client.
 *
 *   store -d DIR [-p PORT] [-l DELAY_MS] [-r RATE] [-t TOTAL] [-j]   serves DIR/BUCKET/KEY
 *   store -d DIR -m BUCKET/KEY [-n COUNT]             makes objects and ends
 *
 * -l is the time to the first byte of each answer, -r the bytes per second of each connection, -t
 * of all together. With -j the time to the first byte is log-normal around -l (sigma 0.5), and ten
 * times that for one in a hundred, by a seed of its own. -p 0 lets the kernel choose. GET
 * /-/stats tells what was served: "get=.. head=.. other=.. body_bytes=.. max_connections=..". The
 * key of -m ends with @SIZE and may hold a run of '#' that becomes 0, 1, 2, ...; the bytes are
 * those of tests/lib/bytes.h, version 1.
 *
 * Invariants:
 *  1. The pace is kept by the kernel (SO_MAX_PACING_RATE): it is exact, and costs no wake-ups here.
 *  2. Connections that wait stand in one list, the first due first.
 *  3. What all may send together is shared evenly by those that send now: their pace is set anew
 *     when one begins or ends.
 *  4. A connection serves one request at a time; what a client sends ahead waits in its buffer.
 *
 * Life: until a signal. Failure: a socket error ends that connection; a start-up error is a
 * sentence and exit 1. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http.h"
#include "mem.h"
#include "tests/lib/bytes.h"
#include "tests/lib/words.h"

enum { IN_BYTES = 16 * KIB, OUT_BYTES = 2 * KIB, EVENTS = 64, BACKLOG = 4096, MAKE_BYTES = MIB };

struct options {
    const char *dir, *make;
    uint16_t port;
    uint64_t count, delay_us, rate, total;
    bool jitter;
};

enum phase { ASK, WAITING, ANSWER };
struct visit {                       /* one connection */
    int fd, file;                    /* file: -1 when the answer has no body */
    enum phase phase;
    uint64_t due_us;
    uint64_t from, to;               /* bytes of the file still to go */
    size_t filled, out_len, out_sent;
    bool close;
    struct node node;                /* in store.waiting, or in store.sending */
    char in[IN_BYTES], out[OUT_BYTES];
};

struct store {
    struct options options;
    int root, epoll, listener;
    struct list waiting, sending;
    uint64_t senders, seed;
    uint64_t get, head, other, body_bytes, connections, max_connections;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "store: %s: %s\n", what, why);
    exit(1);
}

/* ---- answers ---- */

static void begin_answer(struct visit *v, struct text *t, const char *status)
{
    char date[HTTP_DATE_BYTES + 1];

    http_date_write(clock_wall_s(), date);
    text_init(t, v->out, sizeof v->out);
    text_addf(t, "HTTP/1.1 %s\r\nServer: store\r\nDate: %s\r\n", status, date);
    text_addf(t, "x-amz-request-id: %016llX\r\n", (unsigned long long)clock_us());
}

static void answer_text(struct visit *v, const char *status, const char *body)
{
    struct text t;

    begin_answer(v, &t, status);
    text_addf(&t, "Content-Type: application/xml\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
              body);
    v->out_len = t.len;
}

static void answer_stats(struct store *s, struct visit *v)
{
    char body[200];

    snprintf(body, sizeof body,
             "get=%llu head=%llu other=%llu body_bytes=%llu max_connections=%llu\n",
             (unsigned long long)s->get, (unsigned long long)s->head, (unsigned long long)s->other,
             (unsigned long long)s->body_bytes, (unsigned long long)s->max_connections);
    answer_text(v, "200 OK", body);
}

static void answer_absent(struct store *s, struct visit *v)
{
    s->other++;
    answer_text(v, "404 Not Found", "<Error><Code>NoSuchKey</Code></Error>");
}

/* The head of an object's answer; from..to is left in the visit. */
static void answer_object(struct visit *v, const struct http_head *h, const struct stat *st)
{
    uint64_t size = (uint64_t)st->st_size, from = 0, last = size - 1;
    char etag[48], date[HTTP_DATE_BYTES + 1];
    struct span match = http_find(h, "if-match"), none = http_find(h, "if-none-match");
    struct text t;

    snprintf(etag, sizeof etag, "\"%llx-%llx\"", (unsigned long long)st->st_mtime,
             (unsigned long long)size);
    if (match.at && !span_is(match, etag) && !span_is(match, "*")) {
        answer_text(v, "412 Precondition Failed", "<Error><Code>PreconditionFailed</Code></Error>");
        return;
    }
    bool known = none.at && span_is(none, etag);
    enum http_range range = http_range_apply(http_find(h, "range"), size, &from, &last);
    if (range == HTTP_RANGE_UNSATISFIABLE) {
        answer_text(v, "416 Range Not Satisfiable", "<Error><Code>InvalidRange</Code></Error>");
        return;
    }
    if (range == HTTP_RANGE_NONE) {
        from = 0;
        last = size - 1;
    }
    begin_answer(v, &t, known                    ? "304 Not Modified"
                        : range == HTTP_RANGE_OK ? "206 Partial Content"
                                                 : "200 OK");
    http_date_write((uint64_t)st->st_mtime, date);
    text_addf(&t, "ETag: %s\r\nLast-Modified: %s\r\nAccept-Ranges: bytes\r\n", etag, date);
    if (!known) {
        text_addf(&t, "Content-Type: binary/octet-stream\r\nContent-Length: %llu\r\n",
                  (unsigned long long)(last + 1 - from));
        if (range == HTTP_RANGE_OK)
            text_addf(&t, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)from,
                      (unsigned long long)last, (unsigned long long)size);
    }
    text_adds(&t, "\r\n");
    v->out_len = t.len;
    v->from = from;
    v->to = known || h->method == HTTP_HEAD ? from : last + 1;
}

/* A relative path below the directory; false for what could leave it. */
static bool path_of(struct span target, char *out, size_t cap)
{
    struct span path, query;
    size_t len;

    uri_split(target, &path, &query);
    if (uri_decode(span_from(path, 1), false, out, cap - 1, &len) != OK || len == 0)
        return false;
    out[len] = 0;
    return out[0] != '/' && !memmem(out, len, "..", 2);
}

static void plan_answer(struct store *s, struct visit *v, const struct http_head *h)
{
    char path[KEY_BYTES_MAX + BUCKET_BYTES_MAX + 2];
    struct stat st;

    v->out_sent = 0;
    v->from = v->to = 0;
    v->close = !h->keep_alive;
    if (span_is(h->target, "/-/stats")) {
        answer_stats(s, v);
        return;
    }
    if ((h->method != HTTP_GET && h->method != HTTP_HEAD) ||
        !path_of(h->target, path, sizeof path) ||
        (v->file = openat(s->root, path, O_RDONLY | O_CLOEXEC)) < 0) {
        answer_absent(s, v);
        return;
    }
    if (fstat(v->file, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        answer_absent(s, v);
        return;
    }
    s->get += h->method == HTTP_GET;
    s->head += h->method == HTTP_HEAD;
    answer_object(v, h, &st);
}

/* ---- a connection ---- */

static void share_out(struct store *s)
{
    const struct options *o = &s->options;
    uint64_t rate;

    if (o->total == 0 || s->senders == 0)
        return;
    rate = o->total / s->senders;
    if (o->rate > 0)
        rate = min_u64(rate, o->rate);
    LIST_EACH(&s->sending, struct visit, node, v)
        setsockopt(v->fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}

static void begin_sending(struct store *s, struct visit *v)
{
    v->phase = ANSWER;
    list_push(&s->sending, &v->node);
    s->senders++;
    share_out(s);
}

/* It waits or sends no more. */
static void unlist(struct store *s, struct visit *v)
{
    if (!node_linked(&v->node))
        return;
    node_remove(&v->node);
    if (v->phase != ANSWER)
        return;
    s->senders--;
    share_out(s);
}

static void end_visit(struct store *s, struct visit *v)
{
    unlist(s, v);
    if (v->file >= 0)
        close(v->file);
    close(v->fd);
    s->connections--;
    mem_give(v);
}

/* False: the connection is over. */
static bool send_answer(struct store *s, struct visit *v)
{
    while (v->out_sent < v->out_len) {
        int more = v->from < v->to ? MSG_MORE : 0;
        ssize_t n = send(v->fd, v->out + v->out_sent, v->out_len - v->out_sent,
                         MSG_NOSIGNAL | more);
        if (n < 0)
            return errno == EAGAIN;
        v->out_sent += (size_t)n;
    }
    while (v->from < v->to) {
        off_t off = (off_t)v->from;
        ssize_t n = sendfile(v->fd, v->file, &off, v->to - v->from);
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        v->from += (uint64_t)n;
        s->body_bytes += (uint64_t)n;
    }
    if (v->file >= 0)
        close(v->file);
    v->file = -1;
    unlist(s, v);
    v->phase = ASK;
    return !v->close;
}

static double draw(struct store *s)
{
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(s->seed >> 11) + .5) / (double)(1ull << 53);
}

static uint64_t delay_of(struct store *s)
{
    double median = (double)s->options.delay_us, u = draw(s), w = draw(s);

    if (!s->options.jitter)
        return s->options.delay_us;
    double normal = sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * w);
    return (uint64_t)(median * exp(.5 * normal) * (draw(s) < .01 ? 10 : 1));
}

static void await(struct store *s, struct visit *v)
{
    struct node *before = &s->waiting.head;

    v->phase = WAITING;
    v->due_us = clock_us() + delay_of(s);
    LIST_EACH(&s->waiting, struct visit, node, other)
        if (before == &s->waiting.head && other->due_us > v->due_us)
            before = &other->node;
    node_insert_before(before, &v->node);
}

/* A whole head may stand in the buffer: begins its answer, now or when its time comes. */
static bool take_request(struct store *s, struct visit *v)
{
    static struct http_head head;
    size_t used;
    enum http_verdict verdict = http_parse_request(v->in, v->filled, &head, &used);

    if (verdict == HTTP_MORE)
        return v->filled < sizeof v->in;
    if (verdict != HTTP_OK || head.framing == HTTP_BODY_CHUNKED || head.length > 0)
        return false;
    bool local = span_is(head.target, "/-/stats");
    plan_answer(s, v, &head);
    v->filled -= used;
    memmove(v->in, v->in + used, v->filled);
    if (s->options.delay_us == 0 || local) {
        begin_sending(s, v);
        return send_answer(s, v);
    }
    await(s, v);
    return true;
}

static bool hear(struct store *s, struct visit *v)
{
    for (;;) {
        ssize_t n = recv(v->fd, v->in + v->filled, sizeof v->in - v->filled, 0);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            return false;
        v->filled += (size_t)n;
        if (v->phase == ASK && !take_request(s, v))
            return false;
        if (v->filled == sizeof v->in)
            return false;
    }
}

/* Edge-triggered: both directions are looked at until they would block. */
static void wake(struct store *s, struct visit *v)
{
    bool good = v->phase != ANSWER || send_answer(s, v);

    good = good && hear(s, v);
    while (good && v->phase == ASK && v->filled > 0) {
        size_t before = v->filled;
        good = take_request(s, v);
        if (v->filled == before)
            break;
    }
    if (!good)
        end_visit(s, v);
}

static void accept_all(struct store *s)
{
    uint64_t rate = s->options.rate;

    for (;;) {
        int one = 1, fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct visit *v = mem_take(sizeof *v);
        if (!v)
            die("accept", "no memory");
        v->fd = fd;
        v->file = -1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (rate > 0)
            setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
        s->max_connections = max_u64(s->max_connections, ++s->connections);
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = v};
        if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) != 0)
            die("epoll_ctl", strerror(errno));
    }
}

/* ---- serving ---- */

static void answer_due(struct store *s)
{
    for (struct node *n; (n = list_first(&s->waiting)) != NULL;) {
        struct visit *v = container_of(n, struct visit, node);
        if (v->due_us > clock_us())
            return;
        node_remove(n);
        begin_sending(s, v);
        wake(s, v);
    }
}

static void serve(struct store *s)
{
    struct epoll_event event[EVENTS];

    for (;;) {
        struct node *n = list_first(&s->waiting);
        struct timespec wait = {0, 0};
        if (n) {
            uint64_t now = clock_us(), due = container_of(n, struct visit, node)->due_us;
            uint64_t left = due > now ? due - now : 0;
            wait = (struct timespec){(time_t)(left / 1000000), (long)(left % 1000000 * 1000)};
        }
        int count = epoll_pwait2(s->epoll, event, EVENTS, n ? &wait : NULL, NULL);
        if (count < 0 && errno != EINTR)
            die("epoll_wait", strerror(errno));
        for (int i = 0; i < count; i++) {
            if (event[i].data.ptr)
                wake(s, event[i].data.ptr);
            else
                accept_all(s);
        }
        answer_due(s);
    }
}

static void begin_listening(struct store *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(s->options.port)};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    int one = 1;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->listener < 0 || s->epoll < 0)
        die("socket", strerror(errno));
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(s->listener, BACKLOG) != 0)
        die("listen", strerror(errno));
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener, &e) != 0)
        die("epoll_ctl", strerror(errno));
    socklen_t len = sizeof at;
    if (getsockname(s->listener, (struct sockaddr *)&at, &len) != 0)
        die("getsockname", strerror(errno));
    printf("port=%u\n", ntohs(at.sin_port));
    fflush(stdout);
}

/* ---- making objects ---- */

static void make_object(int root, struct span name, uint64_t size)
{
    struct span key = name, bucket = span_cut(&key, '/');
    uint64_t seed = bytes_seed(bucket, key, 1);
    char *room = mem_take(MAKE_BYTES), path[KEY_BYTES_MAX + BUCKET_BYTES_MAX + 2];

    snprintf(path, sizeof path, "%.*s", (int)name.len, name.at);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdirat(root, path, 0755) != 0 && errno != EEXIST)
            die(path, strerror(errno));
        *slash = '/';
    }
    int fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || !room)
        die(path, strerror(errno));
    for (uint64_t at = 0; at < size;) {
        size_t part = min_u64(size - at, MAKE_BYTES);
        bytes_make(seed, at, room, part);
        if (write(fd, room, part) != (ssize_t)part)
            die(path, strerror(errno));
        at += part;
    }
    close(fd);
    mem_give(room);
}

static void make_objects(const struct store *s)
{
    char name[KEY_BYTES_MAX];
    uint64_t size;

    if (!size_of_key(span_of(s->options.make), &size) || size == 0 ||
        strlen(s->options.make) >= sizeof name)
        die(s->options.make, "the key must end with @SIZE");
    for (uint64_t i = 0; i < s->options.count; i++) {
        uint64_t rest = i;
        snprintf(name, sizeof name, "%s", s->options.make);
        for (size_t at = strlen(name); at > 0; at--)
            if (name[at - 1] == '#') {
                name[at - 1] = (char)('0' + rest % 10);
                rest /= 10;
            }
        make_object(s->root, span_of(name), size);
    }
}

static uint64_t number(char option, const char *text)
{
    uint64_t n;
    char what[3] = {'-', option, 0};

    if (size_read(span_of(text), &n) != OK)
        die(what, "not a number");
    return n;
}

static void read_options(int argc, char **argv, struct options *o)
{
    int c;

    *o = (struct options){.port = 9100, .count = 1};
    while ((c = getopt(argc, argv, "d:p:l:r:t:jm:n:")) != -1) {
        switch (c) {
        case 'd': o->dir = optarg; break;
        case 't': o->total = number('t', optarg); break;
        case 'j': o->jitter = true; break;
        case 'm': o->make = optarg; break;
        case 'p': o->port = (uint16_t)number('p', optarg); break;
        case 'l': o->delay_us = number('l', optarg) * 1000; break;
        case 'r': o->rate = number('r', optarg); break;
        case 'n': o->count = number('n', optarg); break;
        default: exit(1);
        }
    }
    if (!o->dir || optind < argc)
        die("usage", "store -d DIR [-p PORT] [-l DELAY_MS] [-r RATE] [-t TOTAL] [-j], or"
                     " store -d DIR -m BUCKET/KEY [-n COUNT]");
}

int main(int argc, char **argv)
{
    static struct store s;

    read_options(argc, argv, &s.options);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1000);
    list_init(&s.waiting);
    list_init(&s.sending);
    s.seed = 30;
    s.root = open(s.options.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s.root < 0)
        die(s.options.dir, strerror(errno));
    if (s.options.make) {
        make_objects(&s);
        return 0;
    }
    begin_listening(&s);
    serve(&s);
}
