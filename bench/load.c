/* An HTTP/1.1 load client on epoll: closed loop (each connection asks again as soon as it was
 * answered) or open loop (requests begin at a fixed rate whatever the server does); bodies are
 * dropped in the kernel.
 *
 *   load -a ADDRESS:PORT -k /BUCKET/KEY@SIZE [-n OBJECTS] [-s SIZE] [-r RANGE [-f OFFSET]]
 *        [-q | -e] [-c CONNECTIONS] [-w WARM_S] [-t SECONDS | -N REQUESTS] [-R PER_SECOND]
 *        [-l LINGER_MS] [-S REGION] [-P PID,PID [-M]] [-C CORE] [-T] [-v]
 *
 * A run of '#' in the key takes the numbers 0 .. OBJECTS-1; -q asks in order, -e each range once in
 * a random order that is always the same, else at random. -r asks ranges of that size, -f always
 * the same one. -v compares the bytes with tests/lib/bytes.h (version 1). -T speaks TLS. -S signs
 * each request with SigV4 (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY). -P adds the CPU time of those
 * processes, -C looks at that core; -l waits that long before it reads them, for what a server does
 * behind its last answer. -M tells what -P's resident memory grew by for each connection, -l
 * included. It prints one line: first_*_us are of first bytes, client_cpu is a share of a core,
 * others the share of core -C that did not go to -P, GB and MB are powers of ten.
 *
 * Invariants:
 *  1. Only requests that end inside the measured time count as requests; bytes count when they
 *     arrive inside it.
 *  2. In the open loop a request's time begins when it was due, not when a connection was free.
 *  3. An answer that is not 200 (206 for ranges) with exactly the bytes asked is an error; its
 *     connection is replaced.
 *
 * Life: one run. Failure: exit 1 with a sentence when it cannot go on, 2 for wrong answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/load.h"
#include "tests/lib/bytes.h"
#include "tests/lib/words.h"

enum { HEAD_ROOM = 16 * KIB, CHECK_ROOM = 256 * KIB, EVENTS = 256, MOUTHFUL = 64 * MIB };
#define SECOND 1000000000ull

struct client {                      /* one connection */
    int fd;
    struct ssl_st *tls;              /* NULL without -T */
    bool asked, headed;              /* a request is under way; its head has come */
    uint64_t due_ns, first_ns;
    size_t sent, filled;
    uint64_t got;                    /* body bytes */
    struct node node;                /* in load.idle */
    struct ask ask;                  /* its text: load.text, or own_text while it cannot go */
    char *in;                        /* the head: load.head, or own_head once it came in pieces */
    char *own_text, *own_head;
};

struct meter {                       /* what is read at both ends of the measured time */
    uint64_t at_ns, cpu_ns, own_ns;
    double core_s;
};

struct load {
    struct plan plan;
    struct sockaddr_in to;
    int epoll;
    struct list idle;
    uint64_t started, ended;         /* requests, warming ones included */
    uint64_t begin_ns;               /* of the open loop's clock */
    bool measuring, over;
    uint64_t requests, bytes, errors;
    uint64_t heard_ns, last_ns;      /* when the last byte came; when measuring ended */
    struct hist whole, first;
    struct meter from, to_;
    uint64_t memory_kib, grown_kib;  /* resident, of -P: at first; what came to it */
    char *room;                      /* for bodies that are compared */
    /* Of whoever is served just now: as good as all requests go, and heads come, in one piece. A
     * thousand connections with 20 KiB each would take from the server what it has of the caches
     * that cores share. */
    char *text, *head;
    char why[200];                   /* of the first error */
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

_Noreturn static void die(const char *what, const char *why)
{
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

/* ---- meters ---- */

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;

    return clock_gettime(id, &t) == 0 ? (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec : 0;
}

/* The process clock holds all threads, io-wq's among them, and those that ended. */
static uint64_t cpu_of(const char *pids)
{
    uint64_t sum = 0, pid;
    struct span rest = span_of(pids);

    while (rest.len > 0) {
        clockid_t id;
        if (span_u64(span_cut(&rest, ','), &pid) == OK && clock_getcpuclockid((pid_t)pid, &id) == 0)
            sum += clock_ns(id);
    }
    return sum;
}

/* VmRSS: what is private, mapped from files and shared, as far as it is in memory. */
static uint64_t resident_kib(const char *pids)
{
    uint64_t sum = 0, pid;
    struct span rest = span_of(pids);
    char path[64], line[256];

    while (rest.len > 0) {
        unsigned long long kib;
        if (span_u64(span_cut(&rest, ','), &pid) != OK)
            continue;
        snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)pid);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "VmRSS: %llu", &kib) == 1)
                sum += kib;
        if (f)
            fclose(f);
    }
    return sum;
}

/* Seconds in which the core was not idle, from /proc/stat. */
static double busy_of(int core)
{
    char line[512], name[16];
    unsigned long long t[8];
    double busy = 0;
    FILE *f = core >= 0 ? fopen("/proc/stat", "re") : NULL;

    snprintf(name, sizeof name, "cpu%d", core);
    while (f && fgets(line, sizeof line, f)) {
        size_t len = strlen(name);
        if (strncmp(line, name, len) != 0 || line[len] != ' ')
            continue;
        if (sscanf(line + len, "%llu %llu %llu %llu %llu %llu %llu", t, t + 1, t + 2, t + 3, t + 4,
                   t + 5, t + 6) == 7)
            busy = (double)(t[0] + t[1] + t[2] + t[5] + t[6]) / (double)sysconf(_SC_CLK_TCK);
    }
    if (f)
        fclose(f);
    return busy;
}

static void read_meter(const struct load *l, struct meter *m)
{
    m->at_ns = now_ns();
    m->cpu_ns = cpu_of(l->plan.pids);
    m->own_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    m->core_s = busy_of(l->plan.core);
}

/* ---- connections ---- */

static void connect_client(struct load *l, struct client *c)
{
    int one = 1;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&l->to, sizeof l->to) != 0)
        die(l->plan.host, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->tls = l->plan.tls ? secure_open(c->fd) : NULL;
    if (l->plan.tls && !c->tls)
        die(l->plan.host, "no TLS session");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &e) != 0)
        die("epoll_ctl", strerror(errno));
}

/* In memory of its own, made once, from where it is now. */
static char *keep(char **own, size_t room, const char *from, size_t len)
{
    if (!*own && (*own = mem_take(room)) == NULL)
        die("a connection's memory", strerror(errno));
    if (from != *own)
        memcpy(*own, from, len);
    return *own;
}

static bool send_rest(struct client *c)
{
    while (c->sent < c->ask.len) {
        const char *rest = c->ask.text + c->sent;
        size_t len = c->ask.len - c->sent;
        ssize_t n = c->tls ? secure_send(c->tls, rest, len) : send(c->fd, rest, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0) {
            c->ask.text = keep(&c->own_text, REQUEST_BYTES_MAX, c->ask.text, c->ask.len);
            return true;
        }
        c->sent += (size_t)n;
    }
    return true;
}

static bool may_start(const struct load *l)
{
    return !l->over && (l->plan.requests == 0 || l->started < l->plan.requests);
}

/* False: the connection is broken. */
static bool start(struct load *l, struct client *c, uint64_t due_ns)
{
    ask_make(&l->plan, l->text, &c->ask);
    l->started++;
    c->asked = true;
    c->headed = false;
    c->sent = c->filled = 0;
    c->got = 0;
    c->due_ns = due_ns;
    return send_rest(c);
}

/* When request number `started` is due in the open loop. */
static uint64_t due_next(const struct load *l)
{
    return l->begin_ns + (uint64_t)((double)l->started * (double)SECOND / l->plan.rate);
}

/* Free for the next request: begins it, or waits until one is due. */
static bool go_on(struct load *l, struct client *c, uint64_t now)
{
    c->asked = false;
    if (!may_start(l))
        return true;
    if (l->plan.rate <= 0)
        return start(l, c, now);
    if (due_next(l) <= now)
        return start(l, c, due_next(l));
    list_push(&l->idle, &c->node);
    return true;
}

/* ---- answers ---- */

static bool wrong(struct load *l, const struct client *c, const char *why)
{
    if (l->errors++ == 0) {
        struct span line = span_of("");
        if (c->filled > 0 && !c->headed)
            line = span_make(c->in, span_find(span_make(c->in, min_u64(c->filled, 80)), '\r'));
        snprintf(l->why, sizeof l->why, "%s (%.*s)", why, (int)line.len, line.at ? line.at : "");
    }
    return false;
}

static bool length_of(struct span head, uint64_t *out)
{
    static const char name[] = "\ncontent-length:";
    const char *at = strcasestr(head.at, name);

    if (!at || at >= head.at + head.len)
        return false;
    struct span rest = span_from(span_make(at, (size_t)(head.at + head.len - at)), strlen(name));
    return span_u64(span_trim(span_cut(&rest, '\r')), out) == OK;
}

/* in[0..filled) may hold a whole head; what stands behind it is body. */
static bool take_head(struct load *l, struct client *c)
{
    c->in[c->filled] = 0;
    char *end = memmem(c->in, c->filled, "\r\n\r\n", 4);
    const char *want = l->plan.range > 0 ? "HTTP/1.1 206" : "HTTP/1.1 200";
    uint64_t length;

    if (!end && c->filled >= HEAD_ROOM - 1)
        return wrong(l, c, "head too large");
    if (!end) {
        c->in = keep(&c->own_head, HEAD_ROOM, c->in, c->filled);
        return true;
    }
    size_t head = (size_t)(end - c->in) + 4;
    if (memcmp(c->in, want, strlen(want)) != 0)
        return wrong(l, c, "status");
    if (!length_of(span_make(c->in, head), &length) || length != c->ask.bytes)
        return wrong(l, c, "Content-Length");
    c->headed = true;
    c->got = c->filled - head;
    if (c->got > c->ask.bytes)
        return wrong(l, c, "more bytes than announced");
    if (l->plan.check && bytes_check(c->ask.seed, c->ask.from, c->in + head, c->got) < c->got)
        return wrong(l, c, "wrong bytes");
    return true;
}

/* One recv; 0 = nothing there now, -1 = broken. *drained: it took all that was there. */
static ssize_t hear(struct load *l, struct client *c, bool *drained)
{
    bool dropped = c->headed && !l->plan.check && !c->tls;

    if (!c->headed && c->filled == 0)
        c->in = l->head;
    char *into = c->headed ? l->room : c->in + c->filled;
    size_t room = c->headed ? min_u64(c->ask.bytes - c->got, dropped ? MOUTHFUL : CHECK_ROOM)
                            : HEAD_ROOM - 1 - c->filled;
    ssize_t n = c->tls ? secure_recv(c->tls, into, room)
                       : recv(c->fd, into, room, dropped ? MSG_TRUNC : 0);

    *drained = n < 0 || (!c->tls && (size_t)n < room); /* TLS gives one record at a time */
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        (void)wrong(l, c, c->asked ? "connection ended inside an answer" : "connection ended");
        return -1;
    }
    return n;
}

static bool take_bytes(struct load *l, struct client *c, uint64_t n, uint64_t now)
{
    if (!c->asked)
        return wrong(l, c, "bytes that nobody asked for");
    if (!c->headed) {
        c->first_ns = c->filled == 0 ? now : c->first_ns;
        c->filled += n;
        if (!take_head(l, c))
            return false;
        n = c->got;
    } else {
        if (l->plan.check && bytes_check(c->ask.seed, c->ask.from + c->got, l->room, n) < n)
            return wrong(l, c, "wrong bytes");
        c->got += n;
    }
    if (l->measuring)
        l->bytes += n;
    return true;
}

static void record(struct load *l, const struct client *c, uint64_t now)
{
    l->ended++;
    if (!l->measuring)
        return;
    l->requests++;
    hist_add(&l->whole, now - c->due_ns);
    hist_add(&l->first, c->first_ns - c->due_ns);
}

static bool listen_to(struct load *l, struct client *c)
{
    bool drained = false;

    while (!drained) {
        ssize_t n = hear(l, c, &drained);
        if (n <= 0)
            return n == 0;
        uint64_t now = now_ns();
        l->heard_ns = now;
        if (!take_bytes(l, c, (uint64_t)n, now))
            return false;
        if (c->headed && c->got == c->ask.bytes) {
            record(l, c, now);
            if (!go_on(l, c, now))
                return wrong(l, c, "send");
        }
    }
    return true;
}

/* After an error: a new connection, and the request counts as ended. */
static void replace(struct load *l, struct client *c)
{
    if (node_linked(&c->node))
        node_remove(&c->node);
    secure_close(c->tls);
    close(c->fd);
    l->ended += c->asked;
    if (l->errors > 1000)
        die("too many errors", l->why);
    connect_client(l, c);
    if (!go_on(l, c, now_ns()))
        die(l->plan.host, "a new connection broke at once");
}

static void wake(struct load *l, struct client *c, uint32_t events)
{
    if ((events & EPOLLOUT) && c->asked && !send_rest(c)) {
        (void)wrong(l, c, "send");
        replace(l, c);
        return;
    }
    if ((events & ~(uint32_t)EPOLLOUT) && !listen_to(l, c))
        replace(l, c);
}

/* ---- the run ---- */

static void start_due(struct load *l)
{
    uint64_t now = now_ns();
    struct node *n;

    while (may_start(l) && due_next(l) <= now && (n = list_pop(&l->idle)) != NULL) {
        struct client *c = container_of(n, struct client, node);
        if (!start(l, c, due_next(l)))
            replace(l, c);
    }
}

static void begin_measuring(struct load *l)
{
    l->measuring = true;
    read_meter(l, &l->from);
}

/* Until when epoll may sleep. */
static uint64_t next_event(const struct load *l, uint64_t edge_ns)
{
    uint64_t next = min_u64(edge_ns, now_ns() + SECOND / 4);

    if (l->plan.rate > 0 && !list_empty(&l->idle) && may_start(l))
        next = min_u64(next, due_next(l));
    return next;
}

static void turn(struct load *l, uint64_t edge_ns)
{
    struct epoll_event event[EVENTS];
    uint64_t now = now_ns(), next = next_event(l, edge_ns), left = next > now ? next - now : 0;
    struct timespec wait = {(time_t)(left / SECOND), (long)(left % SECOND)};
    int count = epoll_pwait2(l->epoll, event, EVENTS, &wait, NULL);

    if (count < 0 && errno != EINTR)
        die("epoll_wait", strerror(errno));
    for (int i = 0; i < count; i++)
        wake(l, event[i].data.ptr, event[i].events);
    if (l->plan.rate > 0)
        start_due(l);
    if (now_ns() > l->heard_ns + l->plan.stuck_ns)
        die(l->plan.host, l->errors ? l->why : "no byte came for too long");
}

/* Leaves the server alone, but for what it does to connections whose memory is counted. */
static void linger(struct load *l)
{
    uint64_t until = now_ns() + l->plan.linger_ns;

    if (!l->plan.memory && l->plan.linger_ns > 0)
        poll(NULL, 0, (int)(l->plan.linger_ns / 1000000));
    if (!l->plan.memory)
        return;
    while (now_ns() < until)
        turn(l, until);
    uint64_t kib = resident_kib(l->plan.pids);
    l->grown_kib = kib > l->memory_kib ? kib - l->memory_kib : 0;
}

static void run(struct load *l, struct client *clients)
{
    const struct plan *p = &l->plan;

    if (p->requests > 0 || p->warm_ns == 0)
        begin_measuring(l);
    l->begin_ns = l->heard_ns = now_ns();
    uint64_t warm_ns = l->begin_ns + p->warm_ns, end_ns = warm_ns + p->measure_ns;
    for (uint64_t i = 0; i < p->connections; i++)
        if (!go_on(l, clients + i, p->rate > 0 ? l->begin_ns : now_ns()))
            replace(l, clients + i);
    if (p->requests > 0) {
        while (l->ended < p->requests)
            turn(l, UINT64_MAX);
    } else {
        while (now_ns() < warm_ns)
            turn(l, warm_ns);
        if (!l->measuring)
            begin_measuring(l);
        end_ns = l->from.at_ns + p->measure_ns;
        while (now_ns() < end_ns)
            turn(l, end_ns);
    }
    l->last_ns = now_ns();
    l->over = true;
    l->measuring = false;
    linger(l);
    read_meter(l, &l->to_);
}

static void print(const struct load *l)
{
    static const struct { const char *name; double share; } mark[] = {
        {"p50", 0.50}, {"p90", 0.90}, {"p99", 0.99}, {"max", 1}};
    double seconds = (double)(l->last_ns - l->from.at_ns) / 1e9;
    double metered_s = (double)(l->to_.at_ns - l->from.at_ns) / 1e9;
    double cpu_s = (double)(l->to_.cpu_ns - l->from.cpu_ns) / 1e9;
    double own_s = (double)(l->to_.own_ns - l->from.own_ns) / 1e9;

    printf("requests=%llu bytes=%llu seconds=%.6f rps=%.1f mbps=%.1f",
           (unsigned long long)l->requests, (unsigned long long)l->bytes, seconds,
           (double)l->requests / seconds, (double)l->bytes / 1e6 / seconds);
    for (size_t i = 0; i < ARRAY_COUNT(mark); i++)
        printf(" %s_us=%.1f", mark[i].name, hist_us(&l->whole, mark[i].share));
    for (size_t i = 0; i < ARRAY_COUNT(mark); i++)
        printf(" first_%s_us=%.1f", mark[i].name, hist_us(&l->first, mark[i].share));
    printf(" errors=%llu client_cpu=%.2f others=%.2f", (unsigned long long)l->errors,
           own_s / seconds, (l->to_.core_s - l->from.core_s - cpu_s) / metered_s);
    if (l->plan.memory)
        printf(" resident_kib=%llu kib_per_connection=%.3f",
               (unsigned long long)(l->memory_kib + l->grown_kib),
               (double)l->grown_kib / (double)l->plan.connections);
    printf(" cpu_s=%.6f cpu_us_per_request=%.2f cpu_s_per_gb=%.4f\n", cpu_s,
           l->requests ? cpu_s * 1e6 / (double)l->requests : 0,
           l->bytes ? cpu_s * 1e9 / (double)l->bytes : 0);
    if (l->errors > 0)
        fprintf(stderr, "load: %llu wrong answers, the first: %s\n", (unsigned long long)l->errors,
                l->why);
}

/* ---- options ---- */

static uint64_t size_option(int option, const char *text)
{
    uint64_t n;
    char what[3] = {'-', (char)option, 0};

    if (size_read(span_of(text), &n) != OK)
        die(what, "not a number");
    return n;
}

static double real_option(int option, const char *text)
{
    char *end, what[3] = {'-', (char)option, 0};
    double n = strtod(text, &end);

    if (*text == 0 || *end != 0 || n < 0)
        die(what, "not a number");
    return n;
}

static bool take_option(struct plan *p, int c)
{
    switch (c) {
    case 'a': p->host = optarg; return true;
    case 'k': p->key = optarg; return true;
    case 'n': p->objects = size_option(c, optarg); return true;
    case 's': p->size = size_option(c, optarg); return true;
    case 'r': p->range = size_option(c, optarg); return true;
    case 'f': p->offset = size_option(c, optarg); p->fixed = true; return true;
    case 'q': p->sequential = true; return true;
    case 'e': p->each = true; return true;
    case 'c': p->connections = size_option(c, optarg); return true;
    case 'w': p->warm_ns = (uint64_t)(real_option(c, optarg) * 1e9); return true;
    case 't': p->measure_ns = (uint64_t)(real_option(c, optarg) * 1e9); return true;
    case 'N': p->requests = size_option(c, optarg); return true;
    case 'R': p->rate = real_option(c, optarg); return true;
    case 'l': p->linger_ns = size_option(c, optarg) * 1000000; return true;
    case 'S': p->region = optarg; return true;
    case 'P': p->pids = optarg; return true;
    case 'M': p->memory = true; return true;
    case 'C': p->core = (int)size_option(c, optarg); return true;
    case 'T': p->tls = true; return true;
    case 'v': p->check = true; return true;
    default: return false;
    }
}

static void read_options(int argc, char **argv, struct load *l)
{
    static char address[64];
    struct plan *p = &l->plan;
    uint64_t port = 0;
    int c;

    *p = (struct plan){.objects = 1, .connections = 1, .warm_ns = SECOND / 5, .measure_ns = SECOND,
                       .stuck_ns = 60 * SECOND, .core = -1};
    while ((c = getopt(argc, argv, "a:k:n:s:r:f:qec:w:t:N:R:l:S:P:MC:Tv")) != -1)
        if (!take_option(p, c))
            exit(1);
    if (!p->host || !p->key || optind < argc)
        die("usage", "load -a ADDRESS:PORT -k /BUCKET/KEY@SIZE ... (bench/load.c tells the rest)");
    struct span host = span_of(p->host), where = span_cut(&host, ':');
    snprintf(address, sizeof address, "%.*s", (int)where.len, where.at);
    l->to.sin_family = AF_INET;
    if (inet_pton(AF_INET, address, &l->to.sin_addr) != 1 || span_u64(host, &port) != OK ||
        port > 65535)
        die(p->host, "not ADDRESS:PORT");
    l->to.sin_port = htons((uint16_t)port);
    if (p->size == 0 && (!size_of_key(span_of(p->key), &p->size) || p->size == 0))
        die(p->key, "no size: the key does not end with @SIZE and there is no -s");
    if (p->memory && !p->pids)
        die("-M", "wants -P");
    if (p->connections == 0 || p->objects == 0 || (p->requests > 0 && p->requests < p->connections))
        die("-c, -n, -N", "at least one connection, one object, one request per connection");
}

static void raise_descriptors(uint64_t need)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < need + 16)
        die("-c", "more connections than descriptors (ulimit -n)");
}

int main(int argc, char **argv)
{
    static struct load l;

    read_options(argc, argv, &l);
    if (!ask_setup(&l.plan))
        return 1;
    raise_descriptors(l.plan.connections);
    prctl(PR_SET_TIMERSLACK, 1000);
    list_init(&l.idle);
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.room = mem_take(CHECK_ROOM);
    l.text = mem_take(REQUEST_BYTES_MAX);
    l.head = mem_take(HEAD_ROOM);
    struct client *clients = mem_take(l.plan.connections * sizeof *clients);
    if (l.epoll < 0 || !l.room || !l.text || !l.head || !clients)
        die("start", strerror(errno));
    l.memory_kib = l.plan.memory ? resident_kib(l.plan.pids) : 0;
    for (uint64_t i = 0; i < l.plan.connections; i++)
        connect_client(&l, clients + i);
    run(&l, clients);
    print(&l);
    for (uint64_t i = 0; i < l.plan.connections; i++) {
        mem_give(clients[i].own_text);
        mem_give(clients[i].own_head);
    }
    mem_give(clients);
    mem_give(l.text);
    mem_give(l.head);
    mem_give(l.room);
    return l.errors > 0 ? 2 : 0;
}
