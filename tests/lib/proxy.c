/* A counting proxy between the server under test and its upstream: what passed is known from here,
 * not from a metric.
 *
 *   proxy [-p PORT] [-c CONTROL_PORT] UPSTREAM_PORT
 *
 * Everything is on 127.0.0.1. Prints "port=N control=N" when it listens; SIGTERM or SIGINT ends it.
 * Control port: a line in, lines out, then "ok" or "error: why":
 *
 *   stats        one line: connections= open= requests= get= head= other= body_bytes=
 *                object_bytes= broken=
 *   requests     one line each: GET /b/k range=bytes=0-9 if-match="..." status=206 body=10
 *   mark         counters and the list of requests begin again
 *   rate BYTES   bytes of bodies per second from the upstream, all connections together; 0 = as
 *                fast as they come
 *
 * body_bytes are the bytes of every answer's body without framing; object_bytes those of a 200 or
 * 206 to a GET of an object (a path with a key). They count what came out of the upstream, whether
 * or not the server took it.
 *
 * Invariants:
 *  1. Bytes are passed on unchanged and in order; parsing only looks at them.
 *  2. A request is listed before its first byte is passed on, so its answer always finds it.
 *  3. A message that this parser does not understand counts in broken, and the rest of its
 *     connection as body.
 *
 * Life: two threads per connection, one per direction; the second one to end frees the pair.
 * Failure: an upstream that refuses closes the client's connection; a peer's reset ends both
 * sides. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"

enum {
    BUFFER_BYTES = 256 * KIB, LINE_BYTES_MAX = 32 * KIB, WAITING_MAX = 64, BACKLOG = 1024,
    STACK_BYTES = 128 * KIB, ANSWER_BYTES = 32 * MIB, ENTRY_TEXT_MAX = 8 * KIB,
};

/* ---- what is counted ---- */

struct entry {                       /* a request and its answer; kept until the process ends */
    struct entry *next;
    bool get, head, object;
    _Atomic unsigned status;         /* 0 = no answer yet */
    _Atomic uint64_t body_bytes;
    char text[];                     /* "GET /b/k range=.." */
};

struct counters {
    _Atomic uint64_t connections, requests, get, head, other, body_bytes, object_bytes, broken;
};

static struct counters counters;
static _Atomic uint64_t open_now;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *first_entry, *last_entry; /* since the mark */

static pthread_mutex_t rate_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t rate_bytes, rate_due_ns;

static void add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t look(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* "/bucket/key": whether something stands behind the bucket. */
static bool names_object(struct span target)
{
    struct span path = target;

    path.len = span_find(target, '?');
    if (path.len == 0 || path.at[0] != '/')
        return false;
    path = span_from(path, 1);
    span_cut(&path, '/');
    return path.len > 0;
}

static void list_entry(struct entry *e)
{
    pthread_mutex_lock(&list_lock);
    if (last_entry)
        last_entry->next = e;
    else
        first_entry = e;
    last_entry = e;
    pthread_mutex_unlock(&list_lock);
    add(&counters.requests, 1);
    add(e->get ? &counters.get : e->head ? &counters.head : &counters.other, 1);
}

/* ---- one direction of a connection ---- */

enum place { IN_HEAD, IN_BODY, IN_CHUNK_SIZE, IN_CHUNK, IN_CHUNK_END, IN_TRAILER, IN_REST, BROKEN };

struct pair;
struct side {
    struct pair *pair;
    bool answers;                    /* from the upstream */
    int from, to;                    /* borrowed from the pair */
    enum place place;
    uint64_t left;                   /* of the body or chunk */
    struct entry *entry;             /* whose body this is; answers only */
    /* the head that is being read */
    bool begun, chunked, has_length;
    unsigned status;
    uint64_t length;
    struct text text;                /* of the entry to be: requests only */
    char text_memory[ENTRY_TEXT_MAX];
    bool get, head, object;
    size_t line_len;
    char line[LINE_BYTES_MAX];
    char buffer[BUFFER_BYTES];
};

struct pair {
    int client, upstream;
    _Atomic unsigned sides;          /* threads still running */
    pthread_mutex_t lock;
    struct entry *waiting[WAITING_MAX]; /* asked, not yet answered: a ring */
    unsigned first, count;
    struct side request, answer;
};

static void push_entry(struct side *s, struct entry *e)
{
    struct pair *p = s->pair;

    pthread_mutex_lock(&p->lock);
    bool full = p->count == WAITING_MAX;
    if (!full)
        p->waiting[(p->first + p->count++) % WAITING_MAX] = e;
    pthread_mutex_unlock(&p->lock);
    if (full)
        s->place = BROKEN;
}

/* The oldest request without an answer; an interim answer (1xx) leaves it there. */
static struct entry *pop_entry(struct side *s)
{
    struct pair *p = s->pair;
    struct entry *e = NULL;

    pthread_mutex_lock(&p->lock);
    if (p->count > 0) {
        e = p->waiting[p->first];
        p->first = (p->first + 1) % WAITING_MAX;
        p->count--;
    }
    pthread_mutex_unlock(&p->lock);
    return e;
}

static void break_side(struct side *s)
{
    add(&counters.broken, 1);
    s->place = BROKEN;
}

/* ---- heads ---- */

static void read_request_line(struct side *s, struct span line)
{
    struct span target = line, method = span_cut(&target, ' ');

    target.len = span_find(target, ' ');
    s->get = span_is(method, "GET");
    s->head = span_is(method, "HEAD");
    s->object = s->get && names_object(target);
    text_init(&s->text, s->text_memory, sizeof s->text_memory);
    text_add(&s->text, method);
    text_addc(&s->text, ' ');
    text_add(&s->text, target);
}

static void read_status_line(struct side *s, struct span line)
{
    struct span rest = line, version = span_cut(&rest, ' ');
    uint64_t status;

    rest.len = span_find(rest, ' ');
    if (!span_starts(version, span_of("HTTP/1.")) || span_u64(rest, &status) != OK ||
        status < 100 || status > 999)
        break_side(s);
    else
        s->status = (unsigned)status;
}

static void read_field(struct side *s, struct span line)
{
    static const char *const listed[] = {"range", "if-match"};
    struct span value = line, name = span_cut(&value, ':');

    value = span_trim(value);
    if (span_is_nocase(name, "content-length")) {
        s->has_length = true;
        if (span_u64(value, &s->length) != OK)
            break_side(s);
    } else if (span_is_nocase(name, "transfer-encoding")) {
        s->chunked = span_is_nocase(value, "chunked");
        if (!s->chunked)
            break_side(s);
    }
    for (size_t i = 0; !s->answers && i < ARRAY_COUNT(listed); i++)
        if (span_is_nocase(name, listed[i])) {
            text_addf(&s->text, " %s=", listed[i]);
            text_add(&s->text, value);
        }
}

static void begin_body(struct side *s)
{
    s->left = s->length;
    if (s->chunked)
        s->place = IN_CHUNK_SIZE;
    else if (s->length > 0)
        s->place = IN_BODY;
}

static void end_request_head(struct side *s)
{
    struct entry *e = mem_take(sizeof *e + s->text.len + 1);

    must(e);
    memcpy(e->text, s->text.at, s->text.len);
    e->get = s->get;
    e->head = s->head;
    e->object = s->object;
    list_entry(e);
    push_entry(s, e);
    if (s->place != BROKEN)
        begin_body(s);
}

/* RFC 9112 6.3: what has no body, what has a length, what lasts until the close. */
static void end_answer_head(struct side *s)
{
    if (s->status < 200 && s->status != 101)
        return;                      /* interim: the answer is still to come */
    s->entry = pop_entry(s);
    if (!s->entry) {
        break_side(s);
        return;
    }
    s->entry->status = s->status;
    if (s->entry->head || s->status == 204 || s->status == 304)
        return;
    if (!s->chunked && !s->has_length)
        s->place = IN_REST;
    else
        begin_body(s);
}

static void head_line(struct side *s, struct span line)
{
    if (!s->begun && line.len == 0)
        return;                      /* RFC 9112 2.2: empty lines before a message */
    if (!s->begun) {
        s->begun = true;
        s->chunked = s->has_length = false;
        s->length = 0;
        s->entry = NULL;
        if (s->answers)
            read_status_line(s, line);
        else
            read_request_line(s, line);
        return;
    }
    if (line.len > 0) {
        read_field(s, line);
        return;
    }
    s->begun = false;
    if (s->answers)
        end_answer_head(s);
    else
        end_request_head(s);
}

/* ---- bodies ---- */

static void chunk_size_line(struct side *s, struct span line)
{
    char digits[20] = "";
    char *end;

    line.len = span_find(line, ';');
    line = span_trim(line);
    if (line.len == 0 || line.len >= sizeof digits) {
        break_side(s);
        return;
    }
    memcpy(digits, line.at, line.len);
    errno = 0;
    s->left = strtoull(digits, &end, 16);
    if (*end || errno)
        break_side(s);
    else
        s->place = s->left > 0 ? IN_CHUNK : IN_TRAILER;
}

static void whole_line(struct side *s, struct span line)
{
    if (line.len > 0 && line.at[line.len - 1] == '\r')
        line.len--;
    switch (s->place) {
    case IN_HEAD:
        head_line(s, line);
        break;
    case IN_CHUNK_SIZE:
        chunk_size_line(s, line);
        break;
    case IN_CHUNK_END:
        s->place = IN_CHUNK_SIZE;
        break;
    default:                         /* trailer fields, until an empty line */
        if (line.len == 0)
            s->place = IN_HEAD;
    }
}

/* Appends to the line in work; what of bytes was used. */
static size_t take_line(struct side *s, struct span bytes)
{
    size_t end = span_find(bytes, '\n'), len = end;

    if (s->line_len + len > sizeof s->line) {
        break_side(s);
        return bytes.len;
    }
    memcpy(s->line + s->line_len, bytes.at, len);
    s->line_len += len;
    if (end == bytes.len)
        return len;
    struct span line = span_make(s->line, s->line_len);
    s->line_len = 0;
    whole_line(s, line);
    return len + 1;
}

static size_t take_body(struct side *s, struct span bytes)
{
    bool counted = s->place == IN_BODY || s->place == IN_CHUNK;
    uint64_t n = counted ? min_u64(bytes.len, s->left) : bytes.len;

    if (s->answers) {
        add(&counters.body_bytes, n);
        if (s->entry) {
            add(&s->entry->body_bytes, n);
            if (s->entry->object && (s->entry->status == 200 || s->entry->status == 206))
                add(&counters.object_bytes, n);
        }
    }
    s->left -= counted ? n : 0;
    if (counted && s->left == 0)
        s->place = s->place == IN_CHUNK ? IN_CHUNK_END : IN_HEAD;
    return (size_t)n;
}

static void take(struct side *s, struct span bytes)
{
    while (bytes.len > 0) {
        bool body = s->place == IN_BODY || s->place == IN_CHUNK || s->place == IN_REST ||
                    s->place == BROKEN;
        bytes = span_from(bytes, body ? take_body(s, bytes) : take_line(s, bytes));
    }
}

/* ---- moving bytes ---- */

/* Waits until n more bytes are due at the rate. */
static void pace(size_t n)
{
    struct timespec now, due;

    pthread_mutex_lock(&rate_lock);
    if (rate_bytes == 0) {
        pthread_mutex_unlock(&rate_lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    rate_due_ns = max_u64(rate_due_ns, now_ns) + n * 1000000000u / rate_bytes;
    due.tv_sec = (time_t)(rate_due_ns / 1000000000u);
    due.tv_nsec = (long)(rate_due_ns % 1000000000u);
    pthread_mutex_unlock(&rate_lock);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

static bool send_all(int fd, const char *at, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static void reset_socket(int fd)
{
    struct linger hard = {1, 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

static void free_pair(struct pair *p)
{
    close(p->client);
    close(p->upstream);
    pthread_mutex_destroy(&p->lock);
    mem_give(p);
    atomic_fetch_sub(&open_now, 1);
}

/* A clean end is passed on as one; anything else becomes a reset of both. */
static void *run_side(void *argument)
{
    struct side *s = argument;
    ssize_t n;

    for (;;) {
        n = recv(s->from, s->buffer, sizeof s->buffer, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        take(s, span_make(s->buffer, (size_t)n));
        if (s->answers)
            pace((size_t)n);
        if (!send_all(s->to, s->buffer, (size_t)n)) {
            n = -1;
            break;
        }
    }
    if (n < 0) {
        reset_socket(s->from);
        reset_socket(s->to);
        shutdown(s->from, SHUT_RDWR);
        shutdown(s->to, SHUT_RDWR);
    } else {
        shutdown(s->to, s->answers ? SHUT_RDWR : SHUT_WR);
    }
    if (atomic_fetch_sub(&s->pair->sides, 1) == 1)
        free_pair(s->pair);
    return NULL;
}

static int connect_port(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void start_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    must(pthread_create(&thread, &attr, run, argument) == 0);
    pthread_attr_destroy(&attr);
}

static void add_pair(int client, uint16_t upstream_port)
{
    int one = 1, upstream = connect_port(upstream_port);

    if (upstream < 0) {
        reset_socket(client);
        close(client);
        return;
    }
    struct pair *p = mem_take(sizeof *p);
    must(p);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pthread_mutex_init(&p->lock, NULL);
    p->client = client;
    p->upstream = upstream;
    p->sides = 2;
    p->request.pair = p->answer.pair = p;
    p->request.from = p->answer.to = client;
    p->request.to = p->answer.from = upstream;
    p->answer.answers = true;
    add(&counters.connections, 1);
    atomic_fetch_add(&open_now, 1);
    start_thread(run_side, &p->request);
    start_thread(run_side, &p->answer);
}

/* ---- control ---- */

static void tell_stats(struct text *t)
{
    text_addf(t, "connections=%llu open=%llu requests=%llu get=%llu head=%llu other=%llu"
              " body_bytes=%llu object_bytes=%llu broken=%llu\n",
              (unsigned long long)look(&counters.connections), (unsigned long long)look(&open_now),
              (unsigned long long)look(&counters.requests), (unsigned long long)look(&counters.get),
              (unsigned long long)look(&counters.head), (unsigned long long)look(&counters.other),
              (unsigned long long)look(&counters.body_bytes),
              (unsigned long long)look(&counters.object_bytes),
              (unsigned long long)look(&counters.broken));
}

static void tell_requests(struct text *t)
{
    pthread_mutex_lock(&list_lock);
    for (struct entry *e = first_entry; e; e = e->next)
        text_addf(t, "%s status=%u body=%llu\n", e->text, e->status,
                  (unsigned long long)look(&e->body_bytes));
    pthread_mutex_unlock(&list_lock);
}

static void mark(void)
{
    _Atomic uint64_t *all[] = {
        &counters.connections, &counters.requests, &counters.get, &counters.head, &counters.other,
        &counters.body_bytes, &counters.object_bytes, &counters.broken,
    };

    pthread_mutex_lock(&list_lock);
    first_entry = last_entry = NULL;
    pthread_mutex_unlock(&list_lock);
    for (size_t i = 0; i < ARRAY_COUNT(all); i++)
        atomic_store(all[i], 0);
}

static bool set_rate(struct span value)
{
    uint64_t n;

    if (span_u64(value, &n) != OK)
        return false;
    pthread_mutex_lock(&rate_lock);
    rate_bytes = n;
    rate_due_ns = 0;
    pthread_mutex_unlock(&rate_lock);
    return true;
}

static void command(struct span line, struct text *answer)
{
    struct span rest = span_trim(line), word = span_cut(&rest, ' ');

    if (span_is(word, "stats"))
        tell_stats(answer);
    else if (span_is(word, "requests"))
        tell_requests(answer);
    else if (span_is(word, "mark"))
        mark();
    else if (!span_is(word, "rate") || !set_rate(span_trim(rest))) {
        text_adds(answer, "error: stats, requests, mark, rate BYTES\n");
        return;
    }
    text_adds(answer, answer->over ? "error: too many requests to list\n" : "ok\n");
}

static void talk(FILE *in, int fd, struct text *answer)
{
    char line[256];

    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\r\n")] = 0;
        text_init(answer, answer->at, answer->cap);
        command(span_of(line), answer);
        if (!send_all(fd, answer->at, answer->len))
            return;
    }
}

/* One control connection after the other. */
static void *run_control(void *argument)
{
    int listener = *(int *)argument;
    struct text answer = {.at = mem_take(ANSWER_BYTES), .cap = ANSWER_BYTES};

    must(answer.at);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        FILE *in = fd >= 0 ? fdopen(fd, "re") : NULL;
        if (!in)
            continue;
        talk(in, fd, &answer);
        fclose(in);
    }
    return NULL;
}

/* ---- birth ---- */

static int listen_on(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t len = sizeof at;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
        perror("proxy: listen");
        exit(1);
    }
    *port = ntohs(at.sin_port);
    return fd;
}

struct door {
    int listener;
    uint16_t upstream_port;
};

static void *run_door(void *argument)
{
    const struct door *d = argument;

    for (;;) {
        int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            add_pair(fd, d->upstream_port);
    }
    return NULL;
}

static uint16_t read_port(const char *text)
{
    uint64_t n;

    if (!text || span_u64(span_of(text), &n) != OK || n > 65535) {
        fprintf(stderr, "usage: proxy [-p PORT] [-c CONTROL_PORT] UPSTREAM_PORT\n");
        exit(1);
    }
    return (uint16_t)n;
}

int main(int argc, char **argv)
{
    uint16_t port = 0, control_port = 0;
    sigset_t ends;
    int c, got;

    while ((c = getopt(argc, argv, "p:c:")) != -1) {
        if (c == 'p')
            port = read_port(optarg);
        else if (c == 'c')
            control_port = read_port(optarg);
        else
            return 1;
    }
    struct door door = {.upstream_port = read_port(argv[optind])};
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    door.listener = listen_on(&port);
    int control = listen_on(&control_port);
    start_thread(run_control, &control);
    start_thread(run_door, &door);
    printf("port=%u control=%u\n", port, control_port);
    fflush(stdout);
    sigwait(&ends, &got);
    return 0;
}
