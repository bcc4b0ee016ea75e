/* A client that uploads: each connection, a thread, puts one object after the other.
 *
 *   push -a ADDRESS:PORT -k /BUCKET/KEY@SIZE [-n OBJECTS] [-s SIZE] [-c CONNECTIONS] [-N UPLOADS]
 *        [-F plain|hash|trailer] [-v VERSION] [-r RATE] [-x BYTES] [-P PID,PID]
 *
 * A run of '#' in the key takes the numbers 0 .. OBJECTS-1, in turn. -v sends the bytes of
 * tests/lib/bytes.h of that version, else it is one buffer again and again, so that making them
 * costs nothing. -F says how the body is signed: not at all (UNSIGNED-PAYLOAD), by its SHA-256
 * in the head, or aws-chunked with a CRC32C behind it. -r is bytes per second and connection, -x
 * leaves behind so many bytes of the body. Requests are signed with SigV4 (AWS_ACCESS_KEY_ID,
 * AWS_SECRET_ACCESS_KEY, AWS_REGION). -P adds the CPU time of those processes.
 *
 * It prints one line of key=value: ok: 2xx answers, refused: other answers, broken: none, left: by
 * -x; status: the last one that was not 2xx; bytes are those of the objects of ok, MB are powers
 * of ten.
 *
 * Invariants:
 *  1. An upload's time is from its head's first byte to its answer's last.
 *  2. No upload is tried again; behind one that was not ok its connection is replaced.
 *
 * Life: one run. Failure: exit 1 with a sentence when it cannot go on, 2 when not all were ok, or
 * left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/load.h"
#include "sign.h"
#include "tests/lib/bytes.h"
#include "tests/lib/words.h"

enum {
    PIECE_BYTES = 1 * MIB, HEAD_ROOM = 16 * KIB, CONNECTIONS_MAX = 256, PATIENCE_S = 600,
};
#define SECOND 1000000000ull

enum form { PLAIN, HASH, TRAILER };

static struct {
    struct sockaddr_in to;
    const char *host, *key, *region, *pids;
    uint64_t objects, size, connections, uploads, version, rate, leave_at;
    enum form form;
    struct span before, after, bucket;
    unsigned digits;
    struct sign_credentials credentials;
    struct secret secret;
    char *same;                      /* PIECE_BYTES: what is sent without -v */
    _Atomic uint64_t next, ok, refused, broken, left, status;
    pthread_mutex_t lock;            /* of times */
    struct hist times;
} all = {.objects = 1, .connections = 1, .uploads = 1, .leave_at = UINT64_MAX,
         .lock = PTHREAD_MUTEX_INITIALIZER};

struct pusher {                      /* one connection */
    pthread_t thread;
    int fd;
    uint64_t seed, began_ns, sent;
    uint32_t crc;
    struct sign_key_cache key_cache;
    char *piece;
    size_t filled;
    char in[HEAD_ROOM];
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "push: %s: %s\n", what, why);
    exit(1);
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;

    return clock_gettime(id, &t) == 0 ? (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec : 0;
}

static uint64_t cpu_of_servers(void)
{
    struct span rest = span_of(all.pids ? all.pids : "");
    uint64_t sum = 0, pid;

    while (rest.len > 0) {
        clockid_t id;
        if (span_u64(span_cut(&rest, ','), &pid) == OK && clock_getcpuclockid((pid_t)pid, &id) == 0)
            sum += clock_ns(id);
    }
    return sum;
}

/* ---- the body ---- */

/* The next bytes of the object, at most most; they stand until the next call. */
static const char *next_bytes(struct pusher *p, uint64_t at, uint64_t most, size_t *len)
{
    *len = min_u64(min_u64(most, all.size - at), PIECE_BYTES);
    if (!all.version)
        return all.same;
    bytes_make(p->seed, at, p->piece, *len);
    return p->piece;
}

static void hash_of_body(struct pusher *p, char out[2 * SHA256_BYTES + 1])
{
    uint8_t digest[SHA256_BYTES];
    char *body = mem_take(all.size + 1);

    if (!body)
        die("-F hash", "no memory for all of the body");
    for (uint64_t at = 0; at < all.size;) {
        size_t len;
        const char *bytes = next_bytes(p, at, UINT64_MAX, &len);
        memcpy(body + at, bytes, len);
        at += len;
    }
    sha256(span_make(body, all.size), digest);
    hex_write(digest, sizeof digest, out);
    out[2 * SHA256_BYTES] = 0;
    mem_give(body);
}

/* ---- the wire ---- */

static bool send_all(struct pusher *p, const char *at, size_t len, int flags)
{
    while (len > 0) {
        ssize_t n = send(p->fd, at, len, MSG_NOSIGNAL | flags);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static void keep_pace(struct pusher *p)
{
    if (!all.rate)
        return;
    uint64_t due = p->began_ns + p->sent * SECOND / all.rate;
    struct timespec t = {.tv_sec = (time_t)(due / SECOND), .tv_nsec = (long)(due % SECOND)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* false: the server takes no more. */
static bool send_body(struct pusher *p)
{
    char line[64];

    p->sent = 0;
    p->crc = 0;
    while (p->sent < all.size && p->sent < all.leave_at) {
        size_t len;
        const char *bytes = next_bytes(p, p->sent, all.leave_at - p->sent, &len);
        if (all.form == TRAILER) {
            snprintf(line, sizeof line, "%s%zx\r\n", p->sent ? "\r\n" : "", len);
            p->crc = crc32c(p->crc, bytes, len);
            if (!send_all(p, line, strlen(line), MSG_MORE))
                return false;
        }
        if (!send_all(p, bytes, len, 0))
            return false;
        p->sent += len;
        keep_pace(p);
    }
    if (all.form != TRAILER || p->sent < all.size)
        return true;
    uint8_t sum[4] = {(uint8_t)(p->crc >> 24), (uint8_t)(p->crc >> 16), (uint8_t)(p->crc >> 8),
                      (uint8_t)p->crc};
    char text[16], last[128];
    size_t n = base64_write(sum, sizeof sum, text, sizeof text);
    snprintf(last, sizeof last, "%s0\r\nx-amz-checksum-crc32c:%.*s\r\n\r\n", p->sent ? "\r\n" : "",
             (int)n, text);
    return send_all(p, last, strlen(last), 0);
}

/* Bytes of the body with its framing. */
static uint64_t wire_bytes(void)
{
    uint64_t sum = all.size;

    if (all.form != TRAILER)
        return sum;
    for (uint64_t at = 0; at < all.size; at += PIECE_BYTES) {
        char line[64];
        sum += (uint64_t)snprintf(line, sizeof line, "%zx\r\n\r\n",
                                  (size_t)min_u64(PIECE_BYTES, all.size - at));
    }
    return sum + strlen("0\r\nx-amz-checksum-crc32c:AAAAAA==\r\n\r\n");
}

static void add_target(struct text *t, uint64_t object)
{
    char digits[24];

    text_add(t, all.before);
    for (unsigned i = all.digits; i > 0; i--) {
        digits[(i - 1) % sizeof digits] = (char)('0' + object % 10);
        object /= 10;
    }
    text_add(t, span_make(digits, min_u64(all.digits, sizeof digits)));
    text_add(t, all.after);
}

static void write_head(struct pusher *p, struct text *t, uint64_t object)
{
    char hash[2 * SHA256_BYTES + 1] = "UNSIGNED-PAYLOAD", amz_date[17], memory[KIB], decoded[24];
    struct text authorization;

    text_adds(t, "PUT ");
    add_target(t, object);
    struct span path = span_make(t->at + 4, t->len - 4);
    p->seed = bytes_seed(all.bucket, span_from(path, all.bucket.len + 2), all.version);
    if (all.form == HASH)
        hash_of_body(p, hash);
    snprintf(decoded, sizeof decoded, "%llu", (unsigned long long)all.size);
    struct http_field field[] = {
        {span_of("host"), span_of(all.host)},
        {span_of("x-amz-content-sha256"),
         span_of(all.form == TRAILER ? "STREAMING-UNSIGNED-PAYLOAD-TRAILER" : hash)},
        {span_of("x-amz-decoded-content-length"), span_of(decoded)},
        {span_of("x-amz-trailer"), span_of("x-amz-checksum-crc32c")},
    };
    struct sign_request r = {.method = span_of("PUT"), .path = path, .field = field,
                             .count = all.form == TRAILER ? 4 : 2, .payload_hash = field[1].value};
    text_init(&authorization, memory, sizeof memory);
    must(sign_v4(&r, &all.credentials, span_of(all.region), clock_wall_s(), &p->key_cache,
                 amz_date, &authorization) == OK);
    text_adds(t, " HTTP/1.1\r\n");
    for (unsigned i = 0; i < r.count; i++) {
        text_add(t, field[i].name);
        text_adds(t, ": ");
        text_add(t, field[i].value);
        text_adds(t, "\r\n");
    }
    if (all.form == TRAILER)
        text_adds(t, "content-encoding: aws-chunked\r\n");
    text_addf(t, "x-amz-date: %s\r\nauthorization: ", amz_date);
    text_add(t, text_span(&authorization));
    text_addf(t, "\r\ncontent-length: %llu\r\n\r\n", (unsigned long long)wire_bytes());
    must(!t->over);
}

static bool connected(struct pusher *p)
{
    int one = 1;
    struct timeval patience = {.tv_sec = PATIENCE_S};

    if (p->fd >= 0)
        return true;
    p->filled = 0;
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->fd < 0)
        return false;
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return connect(p->fd, (struct sockaddr *)&all.to, sizeof all.to) == 0;
}

static void hang_up(struct pusher *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

/* The status of the answer, whose body is read and dropped; 0: none came. */
static unsigned hear(struct pusher *p)
{
    char *end = NULL;

    while (!(end = p->filled ? memmem(p->in, p->filled, "\r\n\r\n", 4) : NULL)) {
        ssize_t n = recv(p->fd, p->in + p->filled, sizeof p->in - 1 - p->filled, 0);
        if (n <= 0)
            return 0;
        p->filled += (size_t)n;
    }
    *end = 0;
    const char *length = strcasestr(p->in, "\r\ncontent-length:");
    uint64_t body = length ? strtoull(length + 17, NULL, 10) : 0;
    uint64_t have = p->filled - (size_t)(end + 4 - p->in);
    unsigned status = (unsigned)strtoul(p->in + 9, NULL, 10);
    while (have < body) {
        ssize_t n = recv(p->fd, p->in, sizeof p->in, 0);
        if (n <= 0)
            return 0;
        have += (uint64_t)n;
    }
    p->filled = 0;
    return status;
}

/* ---- uploads ---- */

static void upload(struct pusher *p, uint64_t number)
{
    char head[2 * KIB];
    struct text t;

    text_init(&t, head, sizeof head);
    write_head(p, &t, number % all.objects);
    p->began_ns = clock_ns(CLOCK_MONOTONIC);
    bool sent = connected(p) && send_all(p, head, t.len, 0) && send_body(p);
    if (sent && all.leave_at < all.size) {
        atomic_fetch_add(&all.left, 1);
        hang_up(p);
        return;
    }
    unsigned status = p->fd >= 0 ? hear(p) : 0;
    bool good = sent && status / 100 == 2;
    atomic_fetch_add(good ? &all.ok : status ? &all.refused : &all.broken, 1);
    if (good) {
        pthread_mutex_lock(&all.lock);
        hist_add(&all.times, clock_ns(CLOCK_MONOTONIC) - p->began_ns);
        pthread_mutex_unlock(&all.lock);
        return;
    }
    atomic_store(&all.status, status);
    hang_up(p);
}

static void *push(void *at)
{
    struct pusher *p = at;
    uint64_t number;

    if (sign_setup_thread() != OK)
        die("OpenSSL", "does not start");
    while ((number = atomic_fetch_add(&all.next, 1)) < all.uploads)
        upload(p, number);
    hang_up(p);
    sign_end_thread();
    return NULL;
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

static bool take_option(int c)
{
    switch (c) {
    case 'a': all.host = optarg; return true;
    case 'k': all.key = optarg; return true;
    case 'n': all.objects = size_option(c, optarg); return true;
    case 's': all.size = size_option(c, optarg); return true;
    case 'c': all.connections = size_option(c, optarg); return true;
    case 'N': all.uploads = size_option(c, optarg); return true;
    case 'v': all.version = size_option(c, optarg); return true;
    case 'r': all.rate = size_option(c, optarg); return true;
    case 'x': all.leave_at = size_option(c, optarg); return true;
    case 'P': all.pids = optarg; return true;
    case 'F':
        all.form = strcmp(optarg, "hash") == 0 ? HASH
                   : strcmp(optarg, "trailer") == 0 ? TRAILER : PLAIN;
        return all.form != PLAIN || strcmp(optarg, "plain") == 0;
    default: return false;
    }
}

static void read_key(void)
{
    const char *run = strchr(all.key, '#');
    struct span rest = span_from(span_of(all.key), 1);

    all.before = run ? span_make(all.key, (size_t)(run - all.key)) : span_of(all.key);
    all.digits = run ? (unsigned)strspn(run, "#") : 0;
    all.after = run ? span_of(run + all.digits) : span_of("");
    all.bucket = span_cut(&rest, '/');
    if (all.key[0] != '/' || rest.len == 0 || strlen(all.key) > KEY_BYTES_MAX)
        die("-k", "wants /BUCKET/KEY");
    if (all.size == 0 && !size_of_key(span_of(all.key), &all.size))
        die(all.key, "no size: the key does not end with @SIZE and there is no -s");
}

static void read_address(void)
{
    char address[64];
    uint64_t port = 0;
    struct span host = span_of(all.host), where = span_cut(&host, ':');

    snprintf(address, sizeof address, "%.*s", (int)where.len, where.at);
    all.to.sin_family = AF_INET;
    if (inet_pton(AF_INET, address, &all.to.sin_addr) != 1 || span_u64(host, &port) != OK ||
        port > 65535)
        die(all.host, "not ADDRESS:PORT");
    all.to.sin_port = htons((uint16_t)port);
}

static void read_environment(void)
{
    const char *access = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");

    all.region = getenv("AWS_REGION");
    if (!access || !secret || !all.region || strlen(secret) > sizeof all.secret.bytes)
        die("environment", "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION are needed");
    all.secret.len = (uint16_t)strlen(secret);
    memcpy(all.secret.bytes, secret, all.secret.len);
    all.credentials.access_key = span_of(access);
    all.credentials.secret = &all.secret;
}

static void tell(uint64_t took_ns, uint64_t cpu_ns, uint64_t own_ns)
{
    double seconds = (double)took_ns / 1e9;
    double bytes = (double)(atomic_load(&all.ok) * all.size);

    printf("ok=%llu refused=%llu broken=%llu left=%llu status=%llu",
           (unsigned long long)atomic_load(&all.ok), (unsigned long long)atomic_load(&all.refused),
           (unsigned long long)atomic_load(&all.broken), (unsigned long long)atomic_load(&all.left),
           (unsigned long long)atomic_load(&all.status));
    printf(" bytes=%.0f seconds=%.3f mbps=%.1f p50_us=%.0f p99_us=%.0f", bytes, seconds,
           bytes / 1e6 / seconds, hist_us(&all.times, 0.5), hist_us(&all.times, 0.99));
    printf(" client_cpu=%.2f cpu_s=%.3f cpu_s_per_gb=%.3f\n", (double)own_ns / (double)took_ns,
           (double)cpu_ns / 1e9, bytes > 0 ? (double)cpu_ns / bytes : 0);
}

int main(int argc, char **argv)
{
    static struct pusher pusher[CONNECTIONS_MAX];
    int c;

    while ((c = getopt(argc, argv, "a:k:n:s:c:N:F:v:r:x:P:")) != -1)
        if (!take_option(c))
            die("usage", "bench/push.c tells the options");
    if (!all.host || !all.key || optind < argc || all.connections == 0 || all.objects == 0 ||
        all.connections > CONNECTIONS_MAX)
        die("usage", "push -a ADDRESS:PORT -k /BUCKET/KEY@SIZE ... (bench/push.c tells the rest)");
    if (sign_setup() != OK)
        die("OpenSSL", "does not start");
    read_address();
    read_key();
    read_environment();
    all.same = mem_take(PIECE_BYTES);
    must(all.same);
    bytes_make(1, 0, all.same, PIECE_BYTES);
    uint64_t began = clock_ns(CLOCK_MONOTONIC), cpu = cpu_of_servers();
    uint64_t own = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (uint64_t i = 0; i < all.connections; i++) {
        pusher[i].fd = -1;
        pusher[i].piece = mem_take(PIECE_BYTES);
        must(pusher[i].piece && pthread_create(&pusher[i].thread, NULL, push, &pusher[i]) == 0);
    }
    for (uint64_t i = 0; i < all.connections; i++)
        pthread_join(pusher[i].thread, NULL);
    tell(clock_ns(CLOCK_MONOTONIC) - began, cpu_of_servers() - cpu,
         clock_ns(CLOCK_PROCESS_CPUTIME_ID) - own);
    return atomic_load(&all.ok) + atomic_load(&all.left) == all.uploads ? 0 : 2;
}
