/* Loader workers of an epoch: each reads its objects one after the other, one GET at a time, and
 * uses their bytes at a fixed rate, as GPUs do.
 *
 *   epoch -p PORT -r RATE [-w WORKERS] [-h HOLD] [-g RANGE] [-s SEED] BUCKET/KEY@SIZE...
 *
 * RATE is the bytes per second of one worker, HOLD what it takes before they are used (2 MiB),
 * RANGE the length of its ranged GETs (0: whole objects). The objects are shuffled by SEED; worker
 * w takes those at w, w + WORKERS, ... One line tells: bytes, elapsed (seconds of all workers),
 * used (of them, those in which bytes were used), waited (those in which a worker would have taken
 * bytes, and none came).
 *
 * Invariants:
 *  1. A worker takes what comes as long as it holds less than HOLD, and only then: what it has not
 *     room for stays in the server's hands, but for what the socket holds.
 *  2. used is bytes / RATE: with nothing to wait for it is elapsed. Bytes count from when the
 *     kernel had them: that a worker's thread runs late is not the server's doing.
 *  3. Every body is read to its end, as long as its head says.
 *
 * Life: until the last worker has read its last object. Failure: a sentence and exit 1. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http.h"
#include "mem.h"
#include "tests/lib/words.h"

/* A socket that holds little: bytes in it are out of the server's hands, and not used either. */
enum { WORKERS_MAX = 256, STEP_BYTES = 128 * KIB, SOCKET_BYTES = 512 * KIB, GIVE_UP_S = 60 };

static struct {
    uint16_t port;
    uint64_t rate, workers, hold, range, seed;
    char **object;
    unsigned objects;
} plan = {.workers = 8, .hold = 2 * MIB, .seed = 1};

struct worker {
    pthread_t thread;
    unsigned number;
    int fd;
    uint64_t bytes, began_us, waited_us;
    double empty_us;                 /* when all that came so far is used */
    size_t filled;
    char in[STEP_BYTES];
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "epoch: %s: %s\n", what, why);
    exit(1);
}

static void connect_worker(struct worker *w)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(plan.port)};
    struct timeval patience = {GIVE_UP_S, 0};
    int one = 1, room = SOCKET_BYTES;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->fd < 0)
        die("socket", strerror(errno));
    setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(w->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(w->fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(w->fd, (struct sockaddr *)&at, sizeof at) != 0)
        die("connect", strerror(errno));
}

static uint64_t wall_us(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_nsec / 1000;
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now); /* the clock of the kernel's timestamps */
    return wall_us(&now);
}

/* Until there is room for a step. */
static void use_until_room(const struct worker *w)
{
    double held = (w->empty_us - (double)now_us()) * (double)plan.rate / 1e6;
    double over = held + STEP_BYTES - (double)plan.hold;

    if (over <= 0)
        return;
    uint64_t us = (uint64_t)(over / (double)plan.rate * 1e6) + 1;
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    nanosleep(&t, NULL);
}

/* When the bytes came, by the kernel; 0: it does not tell. */
static uint64_t came_us(struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        struct timespec t;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&t, CMSG_DATA(c), sizeof t);
        return wall_us(&t);
    }
    return 0;
}

/* Bytes into `at`, and when the last of them came. */
static size_t receive(struct worker *w, char *at, size_t room, int flags, uint64_t *at_us)
{
    char control[256];
    struct iovec to = {at, room};
    struct msghdr m = {.msg_iov = &to, .msg_iovlen = 1, .msg_control = control,
                       .msg_controllen = sizeof control};
    ssize_t n = recvmsg(w->fd, &m, flags);
    if (n <= 0)
        die("recv", n == 0 ? "the server closed" : strerror(errno));
    *at_us = came_us(&m);
    if (*at_us == 0)
        die("recv", "no timestamp");
    return (size_t)n;
}

/* More bytes into w->in + at. There is room, so what passes until the first of them comes is
 * waited; not what passes until this thread runs again, nor while the others come, but for those
 * that the kernel merged with the first. */
static size_t take(struct worker *w, size_t at, uint64_t *at_us)
{
    uint64_t before = now_us(), came;
    char first;
    receive(w, &first, 1, MSG_PEEK, &came);
    w->waited_us += came > before ? came - before : 0;
    return receive(w, w->in + at, sizeof w->in - at, 0, at_us);
}

/* So many bytes came then: they are used as soon as those before them are. */
static void add(struct worker *w, uint64_t bytes, uint64_t at_us)
{
    if (w->empty_us < (double)at_us)
        w->empty_us = (double)at_us;
    w->empty_us += (double)bytes / (double)plan.rate * 1e6;
}

static void ask(struct worker *w, const char *name, uint64_t from, uint64_t bytes)
{
    char text[2 * KIB];
    struct text t;

    text_init(&t, text, sizeof text);
    text_addf(&t, "GET /%s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n", name, plan.port);
    if (plan.range > 0)
        text_addf(&t, "Range: bytes=%llu-%llu\r\n", (unsigned long long)from,
                  (unsigned long long)(from + bytes - 1));
    text_adds(&t, "\r\n");
    if (send(w->fd, t.at, t.len, MSG_NOSIGNAL) != (ssize_t)t.len)
        die("send", "the server closed");
}

static void get(struct worker *w, const char *name, uint64_t from, uint64_t bytes)
{
    static __thread struct http_head head;
    size_t filled = 0, used = 0;
    uint64_t at_us = 0;

    ask(w, name, from, bytes);
    enum http_verdict verdict = HTTP_MORE;
    while (verdict == HTTP_MORE && filled < sizeof w->in) {
        filled += take(w, filled, &at_us);
        verdict = http_parse_response(w->in, filled, false, &head, &used);
    }
    if (verdict != HTTP_OK || head.status != (plan.range > 0 ? 206 : 200) || head.length != bytes)
        die(name, "not the answer that was asked for");
    uint64_t got = filled - used;
    add(w, got, at_us);
    while (got < bytes) {
        use_until_room(w);
        size_t n = take(w, 0, &at_us);
        add(w, n, at_us);
        got += n;
    }
    if (got != bytes)
        die(name, "more bytes than its head says");
    w->bytes += bytes;
}

static void *work(void *argument)
{
    struct worker *w = argument;
    uint64_t size;

    connect_worker(w);
    w->began_us = now_us();
    w->empty_us = (double)w->began_us;
    for (unsigned i = w->number; i < plan.objects; i += (unsigned)plan.workers) {
        const char *name = plan.object[i];
        if (!size_of_key(span_of(name), &size) || size == 0)
            die(name, "the key must end with @SIZE");
        uint64_t step = plan.range > 0 ? plan.range : size;
        for (uint64_t at = 0; at < size; at += step)
            get(w, name, at, min_u64(step, size - at));
    }
    close(w->fd);
    return NULL;
}

static void shuffle(void)
{
    uint64_t seed = plan.seed;

    for (unsigned i = plan.objects; i > 1; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned with = (unsigned)((seed >> 33) % i);
        char *was = plan.object[i - 1];
        plan.object[i - 1] = plan.object[with];
        plan.object[with] = was;
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

static void read_options(int argc, char **argv)
{
    int c;

    while ((c = getopt(argc, argv, "p:r:w:h:g:s:")) != -1) {
        switch (c) {
        case 'p': plan.port = (uint16_t)number('p', optarg); break;
        case 'r': plan.rate = number('r', optarg); break;
        case 'w': plan.workers = number('w', optarg); break;
        case 'h': plan.hold = number('h', optarg); break;
        case 'g': plan.range = number('g', optarg); break;
        case 's': plan.seed = number('s', optarg); break;
        default: exit(1);
        }
    }
    plan.object = argv + optind;
    plan.objects = (unsigned)(argc - optind);
    if (plan.port == 0 || plan.rate == 0 || plan.hold < STEP_BYTES || plan.workers == 0 ||
        plan.workers > WORKERS_MAX || plan.objects < plan.workers)
        die("usage", "epoch -p PORT -r RATE [-w WORKERS] [-h HOLD] [-g RANGE] [-s SEED] OBJECTS,"
                     " at least one for each worker");
}

int main(int argc, char **argv)
{
    uint64_t bytes = 0, waited_us = 0;
    double elapsed_us = 0;

    read_options(argc, argv);
    shuffle();
    struct worker *w = mem_take(plan.workers * sizeof *w);
    if (!w)
        die("workers", "no memory");
    for (unsigned i = 0; i < plan.workers; i++) {
        w[i].number = i;
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
            die("workers", "no thread");
    }
    for (unsigned i = 0; i < plan.workers; i++) {
        pthread_join(w[i].thread, NULL);
        bytes += w[i].bytes;
        elapsed_us += w[i].empty_us - (double)w[i].began_us;
        waited_us += w[i].waited_us;
    }
    mem_give(w);
    printf("bytes=%llu elapsed=%.4f used=%.4f waited=%.4f\n", (unsigned long long)bytes,
           elapsed_us / 1e6, (double)bytes / (double)plan.rate, (double)waited_us / 1e6);
    return 0;
}
