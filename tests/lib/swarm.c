/* Many clients at once that read synthetic objects (tests/lib/bytes.h) and check every byte of
 * every answer.
 *
 *   swarm [options] PORT BUCKET [KEY@SIZE...]       unsigned GETs on 127.0.0.1:PORT, keep-alive
 *   swarm -m BUCKET KEY@SIZE                        version 1 of the object to standard output
 *
 *   -n CLIENTS   threads, one connection each (1)
 *   -k FILE      the names of further keys, one a line
 *   -g READS     ends after so many reads, all clients together; without -g and -t each client
 *                reads each key once
 *   -t BYTES     ends after so many body bytes ("20G")
 *   -e           the version stands in the answer's ETag (the scripted origin's); else it is 1
 *   -r PERCENT   so many of the reads ask for a random range
 *   -x BYTES     the first client leaves by a reset behind so many bytes; the others begin with
 *                its first byte
 *   -f           writes "first" and flushes when every client has its first body byte
 *   -w SECONDS   longest silence that a client bears (60)
 *
 * Writes "reads=N bytes=N failed=N versions=N us=N" at the end (us: from the first connection to
 * the last byte), and the first failures to standard error; exit 1 if any read failed: another
 * status than 200 or 206, a wrong length, Content-Range or byte, an early end.
 *
 * Invariants:
 *  1. A read counts once it has ended as announced, with all its bytes right.
 *  2. Keys are chosen by a counter, then by a seeded generator: the same arguments ask for the same
 *     things.
 *
 * Life: one thread per client until the goal is reached. Failure: counted, told, and the client
 * connects anew. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "mem.h"
#include "tests/lib/bytes.h"
#include "tests/lib/words.h"

enum {
    KEYS_MAX = 1000000, CLIENTS_MAX = 4096, IN_BYTES = 256 * KIB, STACK_BYTES = 128 * KIB,
    REQUEST_BYTES = 4 * KIB, FILE_BYTES_MAX = 256 * MIB, TOLD_MAX = 10, MADE_BYTES = 1 * MIB,
};

struct key {
    struct span name;
    uint64_t size;
};

static struct {
    uint16_t port;
    struct span bucket;
    struct key *key;
    unsigned keys, clients, range_percent;
    uint64_t goal_reads, goal_bytes, leave_bytes, patience_s;
    const char *file;
    bool each_once, etag_names, tell_first;
} plan = {.clients = 1, .patience_s = 60};

static _Atomic uint64_t reads_begun, reads, bytes_read, failed, told, last_version, versions,
    with_first;

/* The first client's first byte has come (-x). */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opens = PTHREAD_COND_INITIALIZER;
static bool gate_open;

struct client {
    pthread_t thread;
    unsigned number;
    int fd;
    uint64_t random;
    bool had_first;
    /* the answer that is being read */
    const struct key *key;
    uint64_t from, to;               /* asked; to is inclusive */
    bool ranged;
    /* of the bytes that come: offsets in the object, end exclusive */
    uint64_t seed, at, end;
    size_t used, have;
    char in[IN_BYTES];
};

/* ---- telling ---- */

static bool fail(const struct client *c, const char *why, uint64_t at)
{
    atomic_fetch_add(&failed, 1);
    if (atomic_fetch_add(&told, 1) < TOLD_MAX)
        fprintf(stderr, "swarm: client %u, %.*s%s: %s (%llu)\n", c->number, (int)c->key->name.len,
                c->key->name.at, c->ranged ? " ranged" : "", why, (unsigned long long)at);
    return false;
}

static void open_gate(void)
{
    pthread_mutex_lock(&gate_lock);
    gate_open = true;
    pthread_cond_broadcast(&gate_opens);
    pthread_mutex_unlock(&gate_lock);
}

static void wait_at_gate(void)
{
    pthread_mutex_lock(&gate_lock);
    while (!gate_open)
        pthread_cond_wait(&gate_opens, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

static void first_byte(struct client *c)
{
    c->had_first = true;
    if (plan.leave_bytes > 0 && c->number == 0)
        open_gate();
    if (atomic_fetch_add(&with_first, 1) + 1 == plan.clients && plan.tell_first) {
        puts("first");
        fflush(stdout);
    }
}

/* ---- the wire ---- */

static bool connect_client(struct client *c)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(plan.port)};
    struct timeval patience = {.tv_sec = (time_t)plan.patience_s};

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->used = c->have = 0;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return fail(c, strerror(errno), 0);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(c->fd, (struct sockaddr *)&at, sizeof at) == 0)
        return true;
    fail(c, strerror(errno), 0);
    close(c->fd);
    c->fd = -1;
    return false;
}

static void hang_up(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static bool ask(struct client *c)
{
    char request[REQUEST_BYTES];
    struct text t;

    text_init(&t, request, sizeof request);
    text_addf(&t, "GET /%.*s/%.*s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n", (int)plan.bucket.len,
              plan.bucket.at, (int)c->key->name.len, c->key->name.at, plan.port);
    if (c->ranged)
        text_addf(&t, "Range: bytes=%llu-%llu\r\n", (unsigned long long)c->from,
                  (unsigned long long)c->to);
    text_adds(&t, "\r\n");
    must(!t.over);
    return send(c->fd, t.at, t.len, MSG_NOSIGNAL) == (ssize_t)t.len;
}

static ssize_t receive(struct client *c)
{
    ssize_t n;

    if (c->used == c->have)
        c->used = c->have = 0;
    if (c->have == IN_BYTES)
        return 0;
    do
        n = recv(c->fd, c->in + c->have, IN_BYTES - c->have, 0);
    while (n < 0 && errno == EINTR);
    c->have += n > 0 ? (size_t)n : 0;
    return n;
}

/* ---- the head ---- */

static struct span field(struct span head, const char *name)
{
    size_t len = strlen(name);

    while (head.len > 0) {
        struct span line = span_cut(&head, '\n');
        if (line.len > len && line.at[len] == ':' && strncasecmp(line.at, name, len) == 0) {
            line = span_from(line, len + 1);
            line.len -= line.len > 0 && line.at[line.len - 1] == '\r';
            return span_trim(line);
        }
    }
    return (struct span){0};
}

static bool right_range(const struct client *c, struct span head)
{
    char right[100];

    snprintf(right, sizeof right, "bytes %llu-%llu/%llu", (unsigned long long)c->from,
             (unsigned long long)c->to, (unsigned long long)c->key->size);
    return span_is(field(head, "content-range"), right);
}

static bool judge_head(struct client *c, struct span head)
{
    uint64_t status = 0, length = 0, version = 1;
    struct span code = span_from(head, sizeof "HTTP/1.1");

    code.len = min_u64(code.len, 3);
    if (span_u64(code, &status) != OK || status != (c->ranged ? 206 : 200))
        return fail(c, "status", status);
    if (span_u64(field(head, "content-length"), &length) != OK || length != c->to + 1 - c->from)
        return fail(c, "Content-Length", length);
    if (c->ranged && !right_range(c, head))
        return fail(c, "Content-Range", c->from);
    if (plan.etag_names &&
        !bytes_version(field(head, "etag"), plan.bucket, c->key->name, &version))
        return fail(c, "ETag", 0);
    if (atomic_exchange(&last_version, version) != version)
        atomic_fetch_add(&versions, 1);
    c->seed = bytes_seed(plan.bucket, c->key->name, version);
    c->at = c->from;
    c->end = c->to + 1;
    return true;
}

static bool read_head(struct client *c)
{
    for (;;) {
        struct span got = span_make(c->in + c->used, c->have - c->used);
        const char *end = memmem(got.at, got.len, "\r\n\r\n", 4);
        if (end) {
            got.len = (size_t)(end - got.at) + 4;
            c->used += got.len;
            return judge_head(c, got);
        }
        ssize_t n = receive(c);
        if (n <= 0)
            return fail(c, n < 0 ? strerror(errno) : "closed before the head ended", 0);
    }
}

/* ---- the body ---- */

enum outcome { DONE, FAILED, LEFT };

static enum outcome read_body(struct client *c)
{
    for (;;) {
        size_t n = min_u64(c->have - c->used, c->end - c->at);
        size_t right = bytes_check(c->seed, c->at, c->in + c->used, n);
        if (n > 0 && !c->had_first)
            first_byte(c);
        if (right < n) {
            fail(c, "wrong byte", c->at + right);
            return FAILED;
        }
        c->used += n;
        c->at += n;
        atomic_fetch_add(&bytes_read, n);
        if (c->at == c->end)
            return DONE;
        if (plan.leave_bytes > 0 && c->number == 0 && c->at - c->from >= plan.leave_bytes)
            return LEFT;
        ssize_t got = receive(c);
        if (got <= 0) {
            fail(c, got < 0 ? strerror(errno) : "closed early at", c->at);
            return FAILED;
        }
    }
}

static void leave(struct client *c)
{
    struct linger hard = {1, 0};

    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    hang_up(c);
}

/* One read; false when this client is to end. */
static bool read_one(struct client *c)
{
    if (c->fd < 0 && !connect_client(c))
        return true;
    if (!ask(c)) {
        fail(c, "the request could not be sent", 0);
        hang_up(c);
        return true;
    }
    enum outcome o = read_head(c) ? read_body(c) : FAILED;
    if (o == LEFT) {
        leave(c);
        return false;
    }
    if (o == DONE)
        atomic_fetch_add(&reads, 1);
    else
        hang_up(c);
    return true;
}

/* ---- choosing ---- */

static uint64_t draw(struct client *c, uint64_t below)
{
    c->random += 0x9e3779b97f4a7c15u;
    return below ? bytes_mix(bytes_mix(c->random)) % below : 0;
}

static void choose(struct client *c, uint64_t number)
{
    c->key =
        &plan.key[plan.each_once || number < plan.keys ? number % plan.keys : draw(c, plan.keys)];
    c->from = 0;
    c->to = c->key->size - 1;
    c->ranged = c->key->size > 1 && draw(c, 100) < plan.range_percent;
    if (c->ranged) {
        c->from = draw(c, c->key->size);
        c->to = c->from + draw(c, c->key->size - c->from);
    }
}

static bool goes_on(uint64_t own, uint64_t begun)
{
    if (plan.each_once)
        return own < plan.keys;
    return (plan.goal_reads == 0 || begun < plan.goal_reads) &&
           (plan.goal_bytes == 0 || atomic_load(&bytes_read) < plan.goal_bytes);
}

static void *run_client(void *argument)
{
    struct client *c = argument;

    if (plan.leave_bytes > 0 && c->number > 0)
        wait_at_gate();
    for (uint64_t own = 0;; own++) {
        uint64_t begun = atomic_fetch_add(&reads_begun, 1);
        if (!goes_on(own, begun))
            break;
        choose(c, plan.each_once ? own : begun);
        if (!read_one(c))
            break;
    }
    if (plan.leave_bytes > 0 && c->number == 0)
        open_gate();                 /* also when it failed: nobody waits for ever */
    hang_up(c);
    return NULL;
}

static int run_all(void)
{
    struct client *all = mem_take(plan.clients * sizeof *all);
    pthread_attr_t attr;

    must(all);
    uint64_t began_us = clock_us();
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (unsigned i = 0; i < plan.clients; i++) {
        all[i].number = i;
        all[i].fd = -1;
        all[i].random = bytes_mix(i + 1);
        must(pthread_create(&all[i].thread, &attr, run_client, &all[i]) == 0);
    }
    for (unsigned i = 0; i < plan.clients; i++)
        pthread_join(all[i].thread, NULL);
    printf("reads=%llu bytes=%llu failed=%llu versions=%llu us=%llu\n",
           (unsigned long long)reads, (unsigned long long)bytes_read, (unsigned long long)failed,
           (unsigned long long)versions, (unsigned long long)(clock_us() - began_us));
    mem_give(all);
    return failed > 0;
}

/* ---- arguments ---- */

static int make_object(struct span bucket, struct span key)
{
    uint64_t size, seed = bytes_seed(bucket, key, 1);
    char *part = mem_take(MADE_BYTES);

    must(part);
    if (!size_of_key(key, &size))
        return 1;
    for (uint64_t at = 0; at < size; at += MADE_BYTES) {
        size_t len = min_u64(MADE_BYTES, size - at);
        bytes_make(seed, at, part, len);
        if (fwrite(part, 1, len, stdout) != len)
            return 1;
    }
    mem_give(part);
    return fflush(stdout) != 0;
}

static uint64_t read_number(const char *text, uint64_t most)
{
    uint64_t n;

    if (!text || size_read(span_of(text), &n) != OK || n > most) {
        fprintf(stderr, "swarm: not a number up to %llu: %s\n", (unsigned long long)most,
                text ? text : "");
        exit(2);
    }
    return n;
}

static bool read_options(int argc, char **argv)
{
    bool make = false;
    int c;

    while ((c = getopt(argc, argv, "n:k:g:t:r:x:w:efm")) != -1) {
        switch (c) {
        case 'n': plan.clients = (unsigned)read_number(optarg, CLIENTS_MAX); break;
        case 'k': plan.file = optarg; break;
        case 'g': plan.goal_reads = read_number(optarg, UINT64_MAX); break;
        case 't': plan.goal_bytes = read_number(optarg, UINT64_MAX); break;
        case 'r': plan.range_percent = (unsigned)read_number(optarg, 100); break;
        case 'x': plan.leave_bytes = read_number(optarg, UINT64_MAX); break;
        case 'w': plan.patience_s = read_number(optarg, 3600); break;
        case 'e': plan.etag_names = true; break;
        case 'f': plan.tell_first = true; break;
        case 'm': make = true; break;
        default: exit(2);
        }
    }
    plan.each_once = plan.goal_reads == 0 && plan.goal_bytes == 0;
    return make;
}

static void add_key(struct span name)
{
    must(plan.keys < KEYS_MAX);
    struct key *k = &plan.key[plan.keys++];
    k->name = name;
    if (!size_of_key(k->name, &k->size) || k->size == 0) {
        fprintf(stderr, "swarm: no size in the key %.*s\n", (int)name.len, name.at);
        exit(2);
    }
}

/* The text stays: keys are spans of it. */
static void read_file(const char *path)
{
    FILE *f = fopen(path, "re");
    struct stat st;

    if (!f || fstat(fileno(f), &st) != 0 || (uint64_t)st.st_size > FILE_BYTES_MAX) {
        fprintf(stderr, "swarm: %s cannot be read\n", path);
        exit(2);
    }
    char *text = mem_take((size_t)st.st_size + 1);
    must(text);
    struct span rest = span_make(text, fread(text, 1, (size_t)st.st_size, f));
    fclose(f);
    while (rest.len > 0) {
        struct span line = span_cut(&rest, '\n');
        if (line.len > 0)
            add_key(line);
    }
}

static void read_keys(int count, char **names)
{
    plan.key = mem_take(KEYS_MAX * sizeof *plan.key); /* those that are not used cost nothing */
    must(plan.key);
    for (int i = 0; i < count; i++)
        add_key(span_of(names[i]));
    if (plan.file)
        read_file(plan.file);
    must(plan.keys > 0);
}

static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    bool make = read_options(argc, argv);

    if (argc - optind < (make || plan.file ? 2 : 3)) {
        fputs("usage: swarm [options] PORT BUCKET [KEY@SIZE...] | swarm -m BUCKET KEY@SIZE\n",
              stderr);
        return 2;
    }
    if (make)
        return make_object(span_of(argv[optind]), span_of(argv[optind + 1]));
    raise_descriptors();
    plan.port = (uint16_t)read_number(argv[optind], 65535);
    plan.bucket = span_of(argv[optind + 1]);
    read_keys(argc - optind - 2, argv + optind + 2);
    return run_all();
}
