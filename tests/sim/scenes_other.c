/* Scenarios of everything else: relays, lists, signatures, refused requests, connections, a
 * directory as upstream, restarts and ends.
 *
 * Invariants:
 *  1. A scenario's requests end before its play does.
 *
 * Life: tables that torture.c walks. Failure: stage_fail(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"
#include "tests/lib/bytes.h"
#include "tests/sim/scenes.h"

/* tests/flow/sigv4.c */
void sigv4_add(struct text *head, const char *method, struct span target, const char *access,
               const char *secret);

/* ---- relays ---- */

static void ask_list(struct stage *s)
{
    stage_ask(s, "GET", "/listed?list-type=2&prefix=p", "");
    stage_judge(s, 200, ANY_LENGTH);
    if (s->r.complete && s->r.status == 200 && !strstr(s->r.body, "</ListBucketResult>"))
        stage_fail(s, "a listing that does not end");
}

static void ask_buckets(struct stage *s)
{
    stage_ask(s, "GET", "/", "");
    stage_judge(s, 200, ANY_LENGTH);
    if (s->r.complete && s->r.status == 200 && !strstr(s->r.body, "</ListAllMyBucketsResult>"))
        stage_fail(s, "a list of buckets that does not end");
}

static void ask_bucket(struct stage *s)
{
    stage_ask(s, "HEAD", "/listed", "");
    stage_judge(s, 200, 0);
    stage_ask(s, "GET", "/listed?location", "");
    stage_judge(s, 200, ANY_LENGTH);
}

/* An answer without a strong ETag is passed on and not kept; so its bytes are judged by hand. */
static void get_untagged(struct stage *s)
{
    char target[STAGE_KEY_BYTES + 20];

    snprintf(target, sizeof target, "/b/%s?x-id=GetObject", s->key);
    stage_ask(s, "GET", target, "");
    stage_judge(s, 200, stage_size(s));
    uint64_t seed = bytes_seed(span_of("b"), span_of(s->key), 1);
    size_t len = min_u64(s->r.got, sizeof s->r.body - 1);
    if (s->r.complete && s->r.status == 200 && bytes_check(seed, 0, s->r.body, len) < len)
        stage_fail(s, "wrong bytes are passed on");
}

static void get_part_number(struct stage *s)
{
    char target[STAGE_KEY_BYTES + 24];

    snprintf(target, sizeof target, "/b/%s?partNumber=1", s->key);
    asker_open(&s->a);
    asker_send(&s->a, "GET %s HTTP/1.1\r\nHost: sim\r\n\r\n", target);
    asker_read(&s->a, "b", s->key, false, &s->r);
    asker_close(&s->a);
    /* Without a fetch it is relayed, and the store knows no parts. */
    bool relayed = s->scene->script || (inject_fired() && s->r.status == 200);
    stage_judge(s, relayed ? 200 : 206, stage_size(s));
}

static void leave_relay(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s?x-id=GetObject HTTP/1.1\r\nHost: sim\r\n\r\n", s->key);
    sim_wait_ms(2);
    asker_close(&s->a);
}

/* ---- refused ---- */

static void ask_nonsense(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/x HTTP/1.1\r\nHost : sim\r\n\r\n");
    asker_read(&s->a, NULL, NULL, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 400, ANY_LENGTH);
}

static void ask_write(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "PUT /b/%s HTTP/1.1\r\nHost: sim\r\nContent-Length: 10\r\n"
               "Expect: 100-continue\r\n\r\n", s->key);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 403, ANY_LENGTH);
}

/* A body that nobody wants stands before the next request. */
static void ask_behind_body(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "PUT /b/%s HTTP/1.1\r\nHost: sim\r\nContent-Length: 3000\r\n\r\n%03000d"
               "GET /b/%s HTTP/1.1\r\nHost: sim\r\n\r\n", s->key, 7, s->key);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    stage_judge(s, 403, ANY_LENGTH);
    if (s->r.complete && !s->r.closes) {
        asker_read(&s->a, "b", s->key, false, &s->r);
        stage_judge(s, 200, stage_size(s));
    }
    asker_close(&s->a);
}

/* The same in chunks, behind a head that leaves no room for them. */
static void ask_behind_chunks(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "PUT /b/%s HTTP/1.1\r\nHost: sim\r\nx-filler: %05000d\r\n"
               "Transfer-Encoding: chunked\r\n\r\nbb8;x=y\r\n%03000d\r\n1\r\nz\r\n0\r\nX: y\r\n\r\n"
               "GET /b/%s HTTP/1.1\r\nHost: sim\r\n\r\n", s->key, 1, 7, s->key);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    stage_judge(s, 403, ANY_LENGTH);
    if (s->r.complete && !s->r.closes) {
        asker_read(&s->a, "b", s->key, false, &s->r);
        stage_judge(s, 200, stage_size(s));
    }
    asker_close(&s->a);
}

static void ask_big_head(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s HTTP/1.1\r\nHost: sim\r\nx-filler: %012000d\r\n\r\n", s->key, 1);
    asker_read(&s->a, "b", s->key, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, stage_size(s));
}

static void ask_probe(struct stage *s)
{
    stage_ask(s, "GET", "/-/ready", "");
    stage_judge(s, 200, ANY_LENGTH);
}

/* ---- connections ---- */

static void ask_pipelined(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s HTTP/1.1\r\nHost: sim\r\n\r\nHEAD /b/%s HTTP/1.1\r\nHost: sim\r\n"
               "\r\nGET /b/%s HTTP/1.1\r\nHost: sim\r\nRange: bytes=0-9\r\n\r\n",
               s->key, s->key, s->key);
    asker_read(&s->a, "b", s->key, false, &s->r);
    stage_judge(s, 200, stage_size(s));
    if (s->r.complete && !s->r.closes) {
        asker_read(&s->a, "b", s->key, true, &s->r);
        stage_judge(s, 200, 0);
    }
    if (s->r.complete && !s->r.closes) {
        asker_read(&s->a, "b", s->key, false, &s->r);
        stage_judge(s, 206, 10);
    }
    asker_close(&s->a);
}

static void ask_kept(struct stage *s)
{
    asker_open(&s->a);
    for (unsigned i = 0; i < 3; i++) {
        asker_send(&s->a, "GET /b/%s HTTP/1.1\r\nHost: sim\r\n\r\n", s->key);
        asker_read(&s->a, "b", s->key, false, &s->r);
        stage_judge(s, 200, stage_size(s));
        if (!s->r.complete || s->r.closes)
            break;
        sim_wait_ms(5);
    }
    asker_close(&s->a);
}

static void ask_old(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s HTTP/1.0\r\nHost: sim\r\n\r\n", s->key);
    asker_read(&s->a, "b", s->key, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, stage_size(s));
}

static void idle_long(struct stage *s)
{
    char bytes[16];

    asker_open(&s->a);
    sim_wait_ms(130 * 1000);
    if (s->a.fd >= 0 && wire_take(s->a.fd, bytes, sizeof bytes, false) == -EAGAIN)
        stage_fail(s, "an idle connection is kept for ever");
    asker_close(&s->a);
}

/* ---- signatures ---- */

static const struct life with_keys = {.set = {{"auth.keys_file", "sim-keys"}}};
#define KEY_NAME "LOCALKEY"
#define KEY_SECRET "localsecretlocalsecret"

static void get_signed(struct stage *s)
{
    char memory[2 * KIB], target[STAGE_KEY_BYTES + 4];
    struct text t;

    snprintf(target, sizeof target, "/b/%s", s->key);
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "GET %s HTTP/1.1\r\nHost: sim\r\n", target);
    sigv4_add(&t, "GET", span_of(target), KEY_NAME, KEY_SECRET);
    asker_open(&s->a);
    asker_send(&s->a, "%s\r\n", t.at);
    asker_read(&s->a, "b", s->key, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, stage_size(s));
}

/* The answer is read and written anew. */
static void ask_filtered_buckets(struct stage *s)
{
    char memory[2 * KIB];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_adds(&t, "GET / HTTP/1.1\r\nHost: sim\r\n");
    sigv4_add(&t, "GET", span_of("/"), "SCOPEDKEY", "scopedsecretscopedsecret");
    asker_open(&s->a);
    asker_send(&s->a, "%s\r\n", t.at);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, ANY_LENGTH);
    if (s->r.complete && s->r.status == 200 && !strstr(s->r.body, "</ListAllMyBucketsResult>"))
        stage_fail(s, "a filtered list of buckets that does not end");
}

static void get_forged(struct stage *s)
{
    char memory[2 * KIB], target[STAGE_KEY_BYTES + 4];
    struct text t;

    snprintf(target, sizeof target, "/b/%s", s->key);
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "GET %s HTTP/1.1\r\nHost: sim\r\n", target);
    sigv4_add(&t, "GET", span_of(target), KEY_NAME, "anothersecretanother");
    asker_open(&s->a);
    asker_send(&s->a, "%s\r\n", t.at);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 403, ANY_LENGTH);
}

static void mac(const void *key, size_t key_len, const char *text, uint8_t out[32])
{
    unsigned len = 32;

    must(HMAC(EVP_sha256(), key, (int)key_len, (const uint8_t *)text, strlen(text), out, &len));
}

static void hex_of(const uint8_t *in, char out[65])
{
    for (unsigned i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", in[i]);
}

static void sign_query(const char *canonical, const char *stamp, char out[65])
{
    char digest[65], text[300], first[80];
    uint8_t sum[32], key[32], next[32];

    SHA256((const uint8_t *)canonical, strlen(canonical), sum);
    hex_of(sum, digest);
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%.8s/us-east-1/s3/aws4_request\n%s", stamp,
             stamp, digest);
    snprintf(first, sizeof first, "AWS4%s", KEY_SECRET);
    char day[9];
    snprintf(day, sizeof day, "%.8s", stamp);
    mac(first, strlen(first), day, key);
    mac(key, 32, "us-east-1", next);
    mac(next, 32, "s3", key);
    mac(key, 32, "aws4_request", next);
    mac(next, 32, text, sum);
    hex_of(sum, out);
}

static void get_presigned(struct stage *s)
{
    char stamp[32], query[600], canonical[1200], sum[65];
    time_t now = (time_t)clock_wall_s();
    struct tm tm;

    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
    snprintf(query, sizeof query, "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" KEY_NAME
             "%%2F%.8s%%2Fus-east-1%%2Fs3%%2Faws4_request&X-Amz-Date=%s&X-Amz-Expires=600&"
             "X-Amz-SignedHeaders=host", stamp, stamp);
    char path[STAGE_KEY_BYTES + 8];
    snprintf(path, sizeof path, "/b/%.*s%%40%s", (int)strcspn(s->key, "@"), s->key,
             strchr(s->key, '@') + 1);
    snprintf(canonical, sizeof canonical, "GET\n%s\n%s\nhost:sim\n\nhost\nUNSIGNED-PAYLOAD", path,
             query);
    sign_query(canonical, stamp, sum);
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s?%s&X-Amz-Signature=%s HTTP/1.1\r\nHost: sim\r\n\r\n", s->key,
               query, sum);
    asker_read(&s->a, "b", s->key, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, stage_size(s));
}

/* ---- upstream's errors and lessons ---- */

/* Of a bucket of its own, whose region nobody knows yet. */
static void get_from_region(struct stage *s)
{
    char target[STAGE_KEY_BYTES], bucket[32];

    snprintf(bucket, sizeof bucket, "region-%u", s->number);
    snprintf(target, sizeof target, "/%s/x@302", bucket);
    for (unsigned i = 0; i < 2; i++) {
        asker_open(&s->a);
        asker_send(&s->a, "GET %s HTTP/1.1\r\nHost: sim\r\n\r\n", target);
        asker_read(&s->a, bucket, "x@302", false, &s->r);
        asker_close(&s->a);
        stage_judge(s, 200, 302);
    }
}

static void get_sums(struct stage *s)
{
    stage_get(s, "x-amz-checksum-mode: ENABLED\r\n", 200, stage_size(s));
}

static void get_denied(struct stage *s)
{
    stage_get(s, "", 403, ANY_LENGTH);
}

/* ---- TLS ---- */

static const struct life sealed = {
    .set = {{"server.tls_cert", "sim-cert"}, {"server.tls_key", "sim-key"}}};
static const struct life sealed_upstream = {
    .set = {{"upstream.endpoint", "sim-https"}, {"upstream.ca_file", "sim-cert"}}};

static const struct life sealed_both = {
    .set = {{"server.tls_cert", "sim-cert"}, {"server.tls_key", "sim-key"},
            {"upstream.endpoint", "sim-https"}, {"upstream.ca_file", "sim-cert"}}};

/* ---- what the operator and the client say of names ---- */

/* Each run's object drives out that of the run before. */
static const struct life sections = {
    .sections = "[[bucket]]\nmatch = 'b'\nquota = '2MiB'\n"
                "[[bucket]]\nmatch = 'b/other/'\npin = true\n"};
static const struct life small_quota = {.sections = "[[bucket]]\nmatch = 'b'\nquota = '1MiB'\n"};
static const struct life pinned = {.sections = "[[bucket]]\nmatch = 'b'\npin = true\n"};

static void get_once(struct stage *s)
{
    stage_get(s, "x-headpond-hint: once\r\n", 200, stage_size(s));
}

static void get_dots(struct stage *s)
{
    stage_get(s, "Range: bytes=1100000-1100009\r\nx-headpond-hint: random\r\n", 206, 10);
}

static void get_on(struct stage *s)
{
    stage_get(s, "Range: bytes=0-9\r\nx-headpond-hint: sequential\r\n", 206, 10);
}

/* ---- ttl 0 ---- */

static const struct life always_ask = {.set = {{"cache.ttl", "0s"}}};

/* ---- a full disk ---- */

static void fill_all(struct stage *s)
{
    char key[STAGE_KEY_BYTES];

    snprintf(key, sizeof key, "%s", s->key);
    for (unsigned i = 0; i < 17 && s->number == 1; i++) {
        snprintf(s->key, sizeof s->key, "fill-%u@4500000", i);
        stage_get_all(s);
        (void)life_settle(1000);
    }
    snprintf(s->key, sizeof s->key, "%s", key);
}

/* ---- a directory as upstream ---- */

static const struct life directory = {.set = {{"upstream.endpoint", "sim-directory"}}};

static void write_file(struct stage *s)
{
    char path[400], bytes[4096];
    uint64_t size = stage_size(s), seed = bytes_seed(span_of("b"), span_of(s->key), 1);

    snprintf(path, sizeof path, "%s/tree", life_dir());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/tree/b", life_dir());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/tree/b/%s", life_dir(), s->key);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0);
    for (uint64_t at = 0; at < size; at += sizeof bytes) {
        size_t n = min_u64(sizeof bytes, size - at);
        bytes_make(seed, at, bytes, n);
        must(write(fd, bytes, n) == (ssize_t)n);
    }
    close(fd);
    sim_wait_ms(3000);
}

/* Its ETag is the file's, so the bytes are judged by hand. */
static void get_file(struct stage *s)
{
    char target[STAGE_KEY_BYTES + 20];

    snprintf(target, sizeof target, "/b/%s", s->key);
    asker_open(&s->a);
    asker_send(&s->a, "GET %s HTTP/1.1\r\nHost: sim\r\n\r\n", target);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, stage_size(s));
    uint64_t seed = bytes_seed(span_of("b"), span_of(s->key), 1);
    size_t len = min_u64(s->r.got, sizeof s->r.body - 1);
    if (s->r.complete && s->r.status == 200 && bytes_check(seed, 0, s->r.body, len) < len)
        stage_fail(s, "wrong bytes of a file");
}

static void list_directory(struct stage *s)
{
    stage_ask(s, "GET", "/b?list-type=2", "");
    stage_judge(s, 200, ANY_LENGTH);
}

static void get_no_file(struct stage *s)
{
    stage_ask(s, "GET", "/b/none", "");
    stage_judge(s, 404, ANY_LENGTH);
}

/* ---- ends and restarts ---- */

static void *drain_soon(void *argument)
{
    (void)argument;
    sim_wait_ms(sim_below(4));
    life_drain();
    return NULL;
}

/* The listener may close before the connection came: then it is refused. */
static void drain_meanwhile(struct stage *s)
{
    pthread_t drainer;

    must(pthread_create(&drainer, NULL, drain_soon, NULL) == 0);
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s HTTP/1.1\r\nHost: sim\r\n\r\n", s->key);
    asker_read(&s->a, "b", s->key, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, stage_size(s));
    pthread_join(drainer, NULL);
}

static void fill_and_restart(struct stage *s)
{
    static const struct life standard;

    stage_fill(s);
    life_end();
    life_begin(&standard);
}

static void restart(struct stage *s)
{
    static const struct life standard;

    stage_get_all(s);
    life_end();
    inject_disarm();                 /* a start that is refused memory says so and ends */
    life_begin(&standard);
    s->strict = true;
    stage_get_all(s);
    s->strict = false;
}

const struct scene scenes_other[] = {
    {"list", .play = ask_list, .script = "objects listed p-### 5 size=10"},
    {"buckets", .play = ask_buckets},
    {"bucket", .play = ask_bucket, .script = "object listed x size=10"},
    {"relay", .play = get_untagged, .size = "700000", .script = "set b/relay- etag=none"},
    {"relay-chunked", .play = get_untagged, .size = "70000",
     .script = "set b/relay-chunked etag=none chunked=1"},
    {"relay-empty", .play = get_untagged, .size = "0", .script = "set b/relay-empty etag=none"},
    {"relay-part", .play = get_part_number, .size = "300"},
    {"relay-leaves", .play = leave_relay, .size = "700000",
     .script = "set b/relay-leaves etag=none"},
    {"nonsense", .play = ask_nonsense},
    {"write", .play = ask_write},
    {"behind-body", .play = ask_behind_body},
    {"behind-chunks", .play = ask_behind_chunks},
    {"big-head", .play = ask_big_head},
    {"probe", .play = ask_probe},
    {"pipelined", .play = ask_pipelined, .size = "5000"},
    {"kept", .play = ask_kept},
    {"http-1.0", .play = ask_old},
    {"idle", .play = idle_long},
    {"region", .play = get_from_region,
     .script = "next * status=400 code=AuthorizationHeaderMalformed "
               "header=\"x-amz-bucket-region: eu-central-1\""},
    {"sums", .play = get_sums, .size = "3000"},
    {"denied", .play = get_denied, .script = "set b/denied- status=403"},
    {"full-disk", .set_up = fill_all, .play = stage_get_all, .size = "1100000", .heavy = true},
    {"signed", .play = get_signed, .life = &with_keys},
    {"presigned", .play = get_presigned, .life = &with_keys},
    {"forged", .play = get_forged, .life = &with_keys},
    {"buckets-filtered", .play = ask_filtered_buckets, .life = &with_keys},
    {"tls", .set_up = stage_fill, .play = stage_get_all, .life = &sealed, .size = "600000"},
    {"tls-kept", .play = ask_kept, .life = &sealed},
    {"tls-nonsense", .play = ask_nonsense, .life = &sealed},
    {"https", .play = stage_get_all, .life = &sealed_upstream, .size = "600000"},
    {"https-slow-down", .play = stage_get_all, .life = &sealed_upstream,
     .script = "next b/ status=503"},
    {"https-cut", .play = stage_get_all, .life = &sealed_upstream, .size = "600000",
     .script = "next b/ cut=300000"},
    {"ttl-0", .set_up = stage_fill, .play = stage_get_all, .life = &always_ask},
    {"file", .set_up = write_file, .play = get_file, .after = get_file, .life = &directory,
     .size = "1500000"},
    {"file-list", .set_up = write_file, .play = list_directory, .after = get_file,
     .life = &directory},
    {"file-none", .set_up = write_file, .play = get_no_file, .after = get_file,
     .life = &directory},
    {"drain", .play = drain_meanwhile, .size = "1100000", .ends = true, .loose = true},
    {"birth", .birth = true},
    {"birth-tls", .birth = true, .life = &sealed_both},
    {"birth-sections", .birth = true, .life = &sections},
    {"quota", .life = &sections, .play = stage_get_all, .size = "1500000"},
    {"quota-too-small", .life = &small_quota, .play = stage_get_all, .size = "1500000"},
    {"pinned", .life = &pinned, .play = stage_get_all, .size = "1500000"},
    {"hint-once", .play = get_once, .size = "1500000"},
    {"hint-random", .play = get_dots, .size = "3000000"},
    {"hint-sequential", .play = get_on, .size = "9M", .heavy = true},
    {"restart", .play = restart, .size = "1100000", .heavy = true},
    {"warm-start", .set_up = fill_and_restart, .play = stage_get_all, .size = "1100000",
     .heavy = true},
    {0},
};
