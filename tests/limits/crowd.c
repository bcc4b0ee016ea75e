/* A crowd of badly behaved clients in one thread: idle, dripping, pausing, and one good reader
 * among them.
 *
 *   crowd PORT BUCKET [ADDRESS]        ADDRESS: what its connections come from (127.0.0.1)
 *
 * Commands on standard input, one answer line each:
 *
 *   idle N                    N connections that say nothing
 *   head N MS                 N that say one byte of a request head every MS, for ever
 *   body N MS KEY             N that GET, read the answer, and send a byte of the body that they
 *                             announced every MS
 *   get N PAUSE KEY...        N that GET the keys in turn and stop reading behind PAUSE body bytes;
 *                             0: they read nothing at all
 *   sip N MS KEY...           the same, but they read one byte every MS
 *   go N                      N of those that stopped read on, to the end
 *   until WHAT COUNT MS       waits for so many: open paused done closed
 *   read N KEY...             one good client: N reads in turn, each on a connection of its own
 *   keep N KEY...             the same on one connection
 *   rate MS KEY...            the same for so long, on one connection
 *   drop                      all connections are closed
 *   count                     tells the counters
 *
 * Answers: "open=N paused=N done=N closed=N wrong=N", behind "ok MS " or "late MS " for until;
 * "reads=N failed=N bytes=N us=N p50_us=N p99_us=N most_us=N" of the good client.
 *
 * Invariants:
 *  1. Every body byte of a get is compared with what the key's object has there
 *     (tests/lib/bytes.h); of a good client's, the first 64 of each piece that arrives.
 *  2. done: ended as announced; closed: ended by the server in any other way.
 *
 * Life: until the end of standard input. Failure: exit 2 with a sentence for what is misspelt. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mem.h"
#include "tests/lib/bytes.h"
#include "tests/lib/words.h"

enum {
    CLIENTS_MAX = 20000, WORDS_MAX = 2100, LINE_BYTES = 64 * KIB, HEAD_BYTES = 1536,
    IN_BYTES = 1 * MIB, EVENTS = 256, TIMES_MAX = 1000000, LOOK_BYTES = 64, BODY_BYTES = 50000,
    PATIENCE_MS = 60000, DRIP_TICK_MS = 20,
};

enum kind { IDLE, HEAD_DRIP, BODY_DRIP, GETTER, GOOD };
enum state { OPEN, PAUSED, DONE, CLOSED, STATES };
static const char *const state_name[STATES] = {"open", "paused", "done", "closed"};

struct client {
    enum kind kind;
    enum state state;
    int fd;
    bool in_body, every_byte;
    uint64_t at, end, pause, seed;   /* of the body: next offset, its end, where to stop */
    uint64_t drip_ms, next_ms;
    uint64_t dripped;
    struct span key;
    unsigned head_len;
    char head[HEAD_BYTES];
};

static struct {
    struct sockaddr_in to, from;
    struct span bucket;
    int epoll;
    struct client *client;
    unsigned clients, count[STATES], wrong;
    struct client good;
    char *in;
    uint32_t *time_us;               /* of the good client's reads */
} all;

static char line[LINE_BYTES];
static size_t line_len;
static struct span word[WORDS_MAX];
static unsigned words;

/* ---- connections ---- */

static void set_state(struct client *c, enum state state)
{
    if (c->kind != GOOD) {
        all.count[c->state]--;
        all.count[state]++;
    }
    c->state = state;
}

static void watch(struct client *c, uint32_t events)
{
    struct epoll_event e = {.events = events | EPOLLRDHUP, .data.ptr = c};
    must(epoll_ctl(all.epoll, EPOLL_CTL_MOD, c->fd, &e) == 0);
}

static void hang_up(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void ended(struct client *c, enum state how)
{
    hang_up(c);
    set_state(c, how);
}

static void wrong(struct client *c, const char *what, uint64_t where)
{
    if (all.wrong++ < 5)
        fprintf(stderr, "crowd: %.*s: %s (%llu)\n", (int)c->key.len, c->key.at, what,
                (unsigned long long)where);
    ended(c, CLOSED);
}

static bool dial(struct client *c)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->head_len = 0;
    c->in_body = false;
    if (c->fd < 0)
        return false;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(c->fd, (struct sockaddr *)&all.from, sizeof all.from) == 0 &&
        connect(c->fd, (struct sockaddr *)&all.to, sizeof all.to) == 0 &&
        fcntl(c->fd, F_SETFL, O_NONBLOCK) == 0 &&
        epoll_ctl(all.epoll, EPOLL_CTL_ADD, c->fd, &e) == 0)
        return true;
    hang_up(c);
    return false;
}

static bool say(struct client *c, const char *more)
{
    char request[2 * KIB];
    struct text t;

    text_init(&t, request, sizeof request);
    text_addf(&t, "GET /%.*s/%.*s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", (int)all.bucket.len,
              all.bucket.at, (int)c->key.len, c->key.at, more);
    must(!t.over);
    return send(c->fd, t.at, t.len, MSG_NOSIGNAL) == (ssize_t)t.len;
}

static void name_key(struct client *c, struct span key)
{
    uint64_t size;
    if (!size_of_key(key, &size)) {
        fprintf(stderr, "crowd: no size in the key %.*s\n", (int)key.len, key.at);
        exit(2);
    }
    c->key = key;
    c->at = 0;
    c->end = size;
    c->seed = bytes_seed(all.bucket, key, 1);
}

static struct client *add(enum kind kind)
{
    if (all.clients == CLIENTS_MAX)
        return NULL;
    struct client *c = &all.client[all.clients];
    *c = (struct client){.kind = kind, .fd = -1, .every_byte = true, .pause = UINT64_MAX};
    if (!dial(c))
        return NULL;
    all.clients++;
    all.count[OPEN]++;
    return c;
}

/* ---- what comes ---- */

/* The head's end in what has come so far; the rest of `got` is body. */
static size_t take_head(struct client *c, const char *got, size_t len)
{
    size_t take = min_u64(len, HEAD_BYTES - 1 - c->head_len);
    unsigned before = c->head_len;
    uint64_t length = 0;

    memcpy(c->head + before, got, take);
    c->head_len += (unsigned)take;
    c->head[c->head_len] = '\0';
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) {
        if (c->head_len == HEAD_BYTES - 1)
            wrong(c, "a long head", c->head_len);
        return take;
    }
    const char *field = strcasestr(c->head, "\r\ncontent-length:");
    if (!field || strncmp(c->head, "HTTP/1.1 200 ", 13) != 0 ||
        span_u64(span_trim(span_make(field + 17, strcspn(field + 17, "\r"))), &length) != OK ||
        length != c->end - c->at) {
        wrong(c, "status or length", strtoul(c->head + 9, NULL, 10));
        return take;
    }
    c->in_body = true;
    return (size_t)(end + 4 - c->head) - before;
}

static void answered(struct client *c)
{
    if (c->kind == BODY_DRIP) {      /* from now on it drips */
        c->next_ms = clock_ms() + c->drip_ms;
        return;
    }
    if (c->kind == GOOD)
        set_state(c, DONE);
    else
        ended(c, DONE);
}

static void take(struct client *c, const char *got, size_t len)
{
    size_t head = c->in_body ? 0 : take_head(c, got, len);
    if (c->fd < 0 || !c->in_body)
        return;
    got += head;
    len -= head;
    if (len > c->end - c->at) {
        wrong(c, "more than announced", c->at);
        return;
    }
    size_t look = c->every_byte ? len : min_u64(len, LOOK_BYTES);
    size_t right = bytes_check(c->seed, c->at, got, look);
    if (right < look) {
        wrong(c, "wrong byte", c->at + right);
        return;
    }
    c->at += len;
    if (c->at == c->end)
        answered(c);
    else if (c->at >= c->pause && c->drip_ms == 0) {
        set_state(c, PAUSED);
        watch(c, 0);
    }
}

static void receive(struct client *c, size_t most)
{
    ssize_t n = recv(c->fd, all.in, most, 0);
    if (n > 0)
        take(c, all.in, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        ended(c, CLOSED);
}

static void happened(struct client *c, uint32_t events)
{
    if (c->fd < 0)
        return;
    if (c->state == PAUSED && events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
        ended(c, CLOSED);
    else if (c->kind == GETTER && c->drip_ms > 0 && events & (EPOLLERR | EPOLLHUP))
        ended(c, CLOSED);
    else if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP) &&
             !(c->kind == GETTER && c->drip_ms > 0))
        receive(c, min_u64(IN_BYTES - HEAD_BYTES, c->pause - c->at) + HEAD_BYTES);
}

/* ---- time ---- */

static void drip(struct client *c, uint64_t now_ms)
{
    static const char head[] = "GET /b/k@64K HTTP/1.1\r\nX-Long: ";
    bool begins = c->kind == HEAD_DRIP && c->dripped < sizeof head - 1;
    char byte = begins ? head[c->dripped] : 'x';

    c->next_ms = now_ms + c->drip_ms;
    if (c->kind == GETTER) {
        receive(c, 1);
        return;
    }
    c->dripped++;
    if (send(c->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
        ended(c, CLOSED);
}

static void turn(uint64_t wait_ms)
{
    static uint64_t dripped_ms;
    struct epoll_event event[EVENTS];
    int n = epoll_wait(all.epoll, event, EVENTS, (int)min_u64(wait_ms, DRIP_TICK_MS));
    uint64_t now_ms = clock_ms();

    for (int i = 0; i < n; i++)
        if (event[i].data.ptr)
            happened(event[i].data.ptr, event[i].events);
    if (now_ms - dripped_ms < DRIP_TICK_MS)
        return;
    dripped_ms = now_ms;
    for (unsigned i = 0; i < all.clients; i++) {
        struct client *c = &all.client[i];
        if (c->drip_ms > 0 && c->fd >= 0 && c->next_ms > 0 && now_ms >= c->next_ms)
            drip(c, now_ms);
    }
}

/* ---- commands ---- */

static uint64_t number(unsigned i)
{
    uint64_t n;
    if (i >= words || size_read(word[i], &n) != OK) {
        fprintf(stderr, "crowd: a number is missing: %.*s\n", (int)line_len, line);
        exit(2);
    }
    return n;
}

static void tell(const char *before)
{
    printf("%sopen=%u paused=%u done=%u closed=%u wrong=%u\n", before, all.count[OPEN],
           all.count[PAUSED], all.count[DONE], all.count[CLOSED], all.wrong);
    fflush(stdout);
}

/* Keys outlive the line that names them. */
static struct span key_of(unsigned i)
{
    char *copy = mem_copy(word[i]);
    must(copy);
    return span_of(copy);
}

static void run_silent(enum kind kind, uint64_t count, uint64_t drip_ms)
{
    for (uint64_t i = 0; i < count; i++) {
        struct client *c = add(kind);
        if (!c)
            break;
        c->drip_ms = drip_ms;
        c->next_ms = drip_ms ? clock_ms() + 1 : 0;
        if (i % 64 == 63)
            turn(0);
    }
    tell("");
}

static void run_get(enum kind kind, uint64_t count, unsigned keys_from, uint64_t pause,
                    uint64_t drip_ms)
{
    struct span key[WORDS_MAX];
    char more[64] = "";

    must(words > keys_from);
    for (unsigned i = keys_from; i < words; i++)
        key[i] = key_of(i);
    if (kind == BODY_DRIP)
        snprintf(more, sizeof more, "Content-Length: %d\r\n", BODY_BYTES);
    for (uint64_t i = 0; i < count; i++) {
        struct client *c = add(kind);
        if (!c)
            break;
        name_key(c, key[keys_from + i % (words - keys_from)]);
        c->drip_ms = drip_ms;
        c->pause = pause;
        if (kind == GETTER && drip_ms > 0)
            c->next_ms = clock_ms() + drip_ms;
        if (!say(c, more))
            ended(c, CLOSED);
        else if (kind == GETTER && pause == 0 && drip_ms == 0)
            set_state(c, PAUSED);
        if (c->fd >= 0 && (c->state == PAUSED || (kind == GETTER && drip_ms > 0)))
            watch(c, 0);
        if (i % 16 == 15)
            turn(0);
    }
    tell("");
}

static void run_go(uint64_t count)
{
    for (unsigned i = 0; i < all.clients && count > 0; i++) {
        struct client *c = &all.client[i];
        if (c->state != PAUSED || c->fd < 0)
            continue;
        c->pause = UINT64_MAX;
        set_state(c, OPEN);
        watch(c, EPOLLIN);
        count--;
    }
    tell("");
}

static void run_until(void)
{
    uint64_t count = number(2), began = clock_ms(), limit = number(3);
    char before[40];
    unsigned s = 0;

    while (s < STATES && !span_is(word[1], state_name[s]))
        s++;
    must(s < STATES);
    while (all.count[s] < count && clock_ms() - began < limit)
        turn(DRIP_TICK_MS);
    snprintf(before, sizeof before, "%s %llu ", all.count[s] >= count ? "ok" : "late",
             (unsigned long long)(clock_ms() - began));
    tell(before);
}

/* One read of the good client. */
static bool read_one(struct client *c, struct span key)
{
    uint64_t began = clock_ms();

    name_key(c, key);
    c->in_body = false;
    c->head_len = 0;
    c->state = OPEN;
    if ((c->fd < 0 && !dial(c)) || !say(c, ""))
        return false;
    while (c->state == OPEN && clock_ms() - began < PATIENCE_MS)
        turn(DRIP_TICK_MS);
    return c->state == DONE;
}

static int by_value(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

static void run_good(uint64_t reads, uint64_t for_ms, bool keep)
{
    uint64_t done = 0, failed = 0, bytes = 0, began = clock_us();
    struct client *c = &all.good;
    struct span key[WORDS_MAX];

    must(words > 2);
    for (unsigned i = 2; i < words; i++)
        key[i] = key_of(i);
    *c = (struct client){.kind = GOOD, .fd = -1, .pause = UINT64_MAX};
    while (done < reads && done < TIMES_MAX && clock_us() - began < for_ms * 1000) {
        uint64_t start = clock_us();
        bool good = read_one(c, key[2 + done % (words - 2)]);
        all.time_us[done++] = (uint32_t)min_u64(clock_us() - start, UINT32_MAX);
        failed += !good;
        bytes += c->at;
        if (!keep || !good)
            hang_up(c);
    }
    hang_up(c);
    qsort(all.time_us, done, sizeof *all.time_us, by_value);
    printf("reads=%llu failed=%llu bytes=%llu us=%llu p50_us=%u p99_us=%u most_us=%u\n",
           (unsigned long long)done, (unsigned long long)failed, (unsigned long long)bytes,
           (unsigned long long)(clock_us() - began), done ? all.time_us[done / 2] : 0,
           done ? all.time_us[done * 99 / 100] : 0, done ? all.time_us[done - 1] : 0);
    fflush(stdout);
}

static void run_drop(void)
{
    for (unsigned i = 0; i < all.clients; i++)
        hang_up(&all.client[i]);
    all.clients = 0;
    memset(all.count, 0, sizeof all.count);
    tell("");
}

static void run_command(void)
{
    if (span_is(word[0], "idle"))
        run_silent(IDLE, number(1), 0);
    else if (span_is(word[0], "head"))
        run_silent(HEAD_DRIP, number(1), number(2));
    else if (span_is(word[0], "body"))
        run_get(BODY_DRIP, number(1), 3, UINT64_MAX, number(2));
    else if (span_is(word[0], "get"))
        run_get(GETTER, number(1), 3, number(2), 0);
    else if (span_is(word[0], "sip"))
        run_get(GETTER, number(1), 3, UINT64_MAX, number(2));
    else if (span_is(word[0], "go"))
        run_go(number(1));
    else if (span_is(word[0], "until"))
        run_until();
    else if (span_is(word[0], "read") || span_is(word[0], "keep"))
        run_good(number(1), UINT32_MAX, span_is(word[0], "keep"));
    else if (span_is(word[0], "rate"))
        run_good(UINT64_MAX, number(1), true);
    else if (span_is(word[0], "drop"))
        run_drop();
    else if (span_is(word[0], "count"))
        tell("");
    else {
        fprintf(stderr, "crowd: unknown command %.*s\n", (int)line_len, line);
        exit(2);
    }
}

static void split_line(void)
{
    struct span rest = span_make(line, line_len);

    words = 0;
    while (rest.len > 0) {
        struct span next = span_cut(&rest, ' ');
        must(words < WORDS_MAX);
        if (next.len > 0)
            word[words++] = next;
    }
}

/* Reads what standard input has; false at its end. */
static bool hear(void)
{
    char c;
    ssize_t n;

    while ((n = read(STDIN_FILENO, &c, 1)) == 1) {
        if (c != '\n') {
            must(line_len < LINE_BYTES);
            line[line_len++] = c;
            continue;
        }
        split_line();
        if (words > 0)
            run_command();
        line_len = 0;
    }
    return n < 0 && errno == EAGAIN;
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    uint64_t port;

    if (argc < 3 || argc > 4 || span_u64(span_of(argv[1]), &port) != OK || port > 65535) {
        fputs("usage: crowd PORT BUCKET [ADDRESS]\n", stderr);
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    all.to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    all.to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    all.from = (struct sockaddr_in){.sin_family = AF_INET};
    must(inet_pton(AF_INET, argc > 3 ? argv[3] : "127.0.0.1", &all.from.sin_addr) == 1);
    all.bucket = span_of(argv[2]);
    all.epoll = epoll_create1(EPOLL_CLOEXEC);
    all.client = mem_take(CLIENTS_MAX * sizeof *all.client);
    all.in = mem_take(IN_BYTES);
    all.time_us = mem_take(TIMES_MAX * sizeof *all.time_us);
    must(all.epoll >= 0 && all.client && all.in && all.time_us);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    must(epoll_ctl(all.epoll, EPOLL_CTL_ADD, STDIN_FILENO, &e) == 0);
    must(fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) == 0);
    while (hear())
        turn(DRIP_TICK_MS);
    return 0;
}
