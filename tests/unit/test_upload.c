/* Bodies of requests on their way to a scripted upstream: ready and streamed, plain and TLS, wanted
 * and refused, cut on either side. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/upload.c"

#include "tests/lib/uploads.h"

enum { BIG = 5 * MIB + 77 };

/* ---- memory that is refused to the core's thread ---- */

#ifdef HEADPOND_ASAN
#define REAL(name) __interceptor_##name
#else
#define REAL(name) __libc_##name
#endif
void *REAL(malloc)(size_t bytes);
void *REAL(calloc)(size_t count, size_t bytes);
void *REAL(realloc)(void *old, size_t bytes);

static _Atomic int64_t refuse_at;    /* the how-manieth from now on; 0 = none */
static _Atomic uint64_t asked;       /* since then */
static _Thread_local bool is_core;

static bool is_refused(void)
{
    return is_core && refuse_at && (int64_t)++asked == refuse_at;
}

void *malloc(size_t bytes)
{
    return is_refused() ? NULL : REAL(malloc)(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return is_refused() ? NULL : REAL(calloc)(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return bytes && is_refused() ? NULL : REAL(realloc)(old, bytes);
}

static void deliver_mark(struct core *c, struct message *msg)
{
    (void)c;
    (void)msg;
    is_core = true;
}

static void assert_whole(unsigned i, uint64_t bytes)
{
    const struct seen *s = seen(i);
    assert_true(s->intact && !s->cut);
    assert_int_equal(s->announced, bytes);
    assert_int_equal(s->got, bytes);
}

/* Nothing of the exchange is left on the core. */
static void assert_nothing_held(void)
{
    struct origin_status status;
    origin_status(server.origin[0], &status);
    assert_int_equal(status.active + status.queued, 0);
}

/* ---- bodies that are ready ---- */

static void test_ready_body_on_the_wire(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = STORED}, {.read = ALL, .answer = STORED}};
    const struct http_field field[] = {{span_of("Content-Type"), span_of("text/x")},
                                       {span_of("Content-MD5"), span_of("abc==")},
                                       {span_of("Content-Length"), span_of("999")},
                                       {span_of("Expect"), span_of("100-continue")}};
    UPLOADS(acts, FAST);
    struct writer *w = ready(0, 100 * 1000);
    w->ask.payload_hash = span_of("0123abcd");
    w->ask.field = field;
    w->ask.field_count = ARRAY_COUNT(field);
    run(w);
    assert_false(w->failed || w->refused || w->wanted);
    assert_int_equal(w->status, 200);
    assert_string_equal(w->etag, "\"e9\"");
    assert_whole(0, 100 * 1000);
    assert_int_equal(sent_bytes(), 100 * 1000);
    const char *head = seen(0)->head;
    assert_non_null(strstr(head, "PUT /bkt/k HTTP/1.1\r\n"));
    assert_non_null(strstr(head, "\r\nContent-Length: 100000\r\n"));
    assert_null(strstr(head, ": 999\r\n"));
    assert_null(strstr(head, "Expect"));
    assert_non_null(strstr(head, "\r\nx-amz-content-sha256: 0123abcd\r\n"));
    assert_non_null(strstr(head, "\r\nContent-MD5: abc==\r\n"));
    assert_non_null(strstr(head, "SignedHeaders=content-md5;content-type;host;"
                                 "x-amz-content-sha256;x-amz-date,"));
    run(ready(0, 3));
    assert_whole(1, 3);
    assert_int_equal(seen(1)->connection, 1); /* the connection was kept */
}

static void test_body_of_no_bytes(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = STORED}, {.read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    struct writer *w = stream(0, 0, 1);
    w->ask.payload_hash = span_of("");
    run(w);
    assert_int_equal(w->status, 200);
    assert_false(w->refused || w->wanted);
    assert_whole(0, 0);
    assert_non_null(strstr(seen(0)->head, "\r\nContent-Length: 0\r\n"));
    assert_non_null(strstr(seen(0)->head, "\r\nx-amz-content-sha256: e3b0c442"));
    assert_int_equal(run(ready(0, 1))->status, 200);
    assert_int_equal(seen(1)->connection, 1);
}

static void test_unsigned_requests_send_no_hash_of_their_own(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = STORED}, {.read = ALL, .answer = STORED}};
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    UPLOADS(acts, FAST);
    struct writer *w = ready(0, 5);
    w->ask.payload_hash = span_of("");
    assert_int_equal(run(w)->status, 200);
    assert_int_equal(run(ready(0, 5))->status, 200);
    assert_null(strstr(seen(0)->head, "x-amz-content-sha256"));
    assert_non_null(strstr(seen(1)->head, "\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"));
    assert_null(strstr(seen(1)->head, "Authorization"));
}

static void test_ready_body_is_sent_again(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = SLOW_DOWN},
        {.read = ALL, .answer = STORED, .deed = CLOSE},
        {.read = 40 * 1000, .deed = RESET}, {.read = ALL, .answer = STORED}};
    struct origin_status status;
    UPLOADS(acts, FAST);
    assert_int_equal(run(ready(0, 200 * 1000))->status, 200);
    assert_whole(0, 200 * 1000);
    assert_whole(1, 200 * 1000);
    assert_int_equal(seen(1)->connection, 1);
    assert_int_equal(sent_bytes(), 400 * 1000);
    assert_int_equal(retries(), 1);
    origin_status(server.origin[0], &status);
    assert_true(status.throttled);
    assert_true(status.limit < status.connections);
    assert_int_equal(run(ready(0, 200 * 1000))->status, 200); /* broken in the middle */
    assert_whole(3, 200 * 1000);
    assert_int_equal(retries(), 2);
}

static void test_ready_body_on_a_stale_connection(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = STORED}, {.deed = CLOSE},
        {.read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    assert_int_equal(run(ready(0, 10))->status, 200);
    assert_int_equal(run(ready(0, 10))->status, 200);
    assert_whole(2, 10);
    assert_int_equal(seen(2)->connection, 2);
    assert_int_equal(retries(), 0);
}

static void test_what_is_not_idempotent_is_sent_once(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = SLOW_DOWN}, {.read = ALL, .deed = RESET},
        {.read = ALL, .answer = SLOW_DOWN}};
    UPLOADS(acts, FAST);
    struct writer *w = ready(0, 100);
    w->ask.once = true;
    assert_int_equal(run(w)->status, 503);
    assert_string_equal(w->body, "slow");
    assert_false(w->refused);
    w = ready(0, 100);
    w->ask.once = true;
    assert_int_equal(run(w)->why, ERR_UPSTREAM_RESET);
    w = ready(0, 100);
    w->ask.method = HTTP_POST;
    assert_int_equal(run(w)->status, 503);
    assert_int_equal(retries(), 0);
}

/* ---- streamed bodies ---- */

static void stream_big(void)
{
    const struct act acts[] = {{.before = GO_ON, .read = ALL, .answer = STORED},
        {.before = "HTTP/1.1 103 Early\r\n\r\n" GO_ON, .read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    struct writer *w = run(stream(0, BIG, 100 * 1000));
    assert_int_equal(w->status, 200);
    assert_false(w->failed || w->refused);
    assert_whole(0, BIG);
    assert_int_equal(sent_bytes(), BIG);
    assert_non_null(strstr(seen(0)->head, "\r\nExpect: 100-continue\r\n"));
    assert_non_null(strstr(seen(0)->head, "\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"));
    assert_null(strstr(seen(0)->head, "expect;"));
    assert_int_equal(run(stream(0, BIG, WRITE_BYTES_MAX))->status, 200);
    assert_whole(1, BIG);
    assert_int_equal(seen(1)->connection, 1);
    assert_nothing_held();
}

static void test_streamed_in_odd_pieces(void **state)
{
    (void)state;
    stream_big();
}

static void use_tls(char ca[64])
{
    char key[64];
    snprintf(ca, 64, "/tmp/headpond-test-ca-%d", getpid());
    snprintf(key, sizeof(key), "/tmp/headpond-test-key-%d", getpid());
    assert_true(certificate_write("test", "IP:127.0.0.1", ca, key, NULL));
    up.tls = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate_file(up.tls, ca, SSL_FILETYPE_PEM), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(up.tls, key, SSL_FILETYPE_PEM), 1);
    unlink(key);
}

static void test_streamed_over_tls(void **state)
{
    (void)state;
    char ca[64], extra[256];
    const struct act acts[] = {{.before = GO_ON, .read = ALL, .answer = STORED},
        {.read = ALL, .answer = STORED},
        {.before = GO_ON, .read = 600 * 1000,
         .answer = "HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno", .deed = HOLD},
        {.before = GO_ON, .read = 600 * 1000, .deed = RESET}};
    use_tls(ca);
    snprintf(extra, sizeof(extra), "ca_file = \"%s\"\n" FAST, ca);
    UPLOADS(acts, extra);
    unlink(ca);
    assert_int_equal(run(stream(0, BIG, WRITE_BYTES_MAX))->status, 200);
    assert_whole(0, BIG);
    assert_int_equal(run(ready(0, 250 * 1000))->status, 200);
    assert_whole(1, 250 * 1000);
    assert_int_equal(seen(1)->connection, 1);
    struct writer *w = run(stream(0, BIG, WRITE_BYTES_MAX));
    assert_int_equal(w->status, 400);
    assert_string_equal(w->body, "no");
    assert_true(w->refused && w->written < BIG);
    w = run(stream(0, BIG, WRITE_BYTES_MAX));
    assert_true(w->failed);
    assert_int_equal(w->why, ERR_UPSTREAM_RESET);
    assert_int_equal(retries(), 0);
    assert_nothing_held();
}

static void test_upstream_that_keeps_silent_gets_the_body_after_a_second(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = STORED}, {.read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    struct writer *w = run(stream(0, 2 * MIB, WRITE_BYTES_MAX));
    assert_int_equal(w->status, 200);
    assert_true(w->wanted_ms - w->began_ms >= 900);
    assert_true(seen(0)->before_body_ms >= 500);
    assert_whole(0, 2 * MIB);
    w = run(stream(0, 900 * KIB, WRITE_BYTES_MAX)); /* too small to ask first */
    assert_int_equal(w->status, 200);
    assert_true(w->wanted_ms - w->began_ms < 900);
    assert_null(strstr(seen(1)->head, "Expect"));
    assert_whole(1, 900 * KIB);
}

static void test_refused_before_the_body(void **state)
{
    (void)state;
    const struct act acts[] = {
        {.before = "HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nnope", .deed = STALL},
        {.before = "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n", .deed = STALL},
        {.before = SLOW_DOWN, .deed = STALL},
        {.before = GO_ON, .read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    struct writer *w = run(stream(0, 2 * MIB, 1000));
    assert_int_equal(w->status, 403);
    assert_string_equal(w->body, "nope");
    assert_true(w->refused && w->wanted == 0 && w->written == 0);
    w = run(stream(0, 2 * MIB, 1000));
    assert_int_equal(w->status, 412);
    assert_true(w->refused && w->wanted == 0);
    w = run(stream(0, 2 * MIB, WRITE_BYTES_MAX)); /* 503, then again */
    assert_int_equal(w->status, 200);
    assert_false(w->refused);
    assert_whole(3, 2 * MIB);
    assert_int_equal(seen(0)->got + seen(1)->got + seen(2)->got, 0);
    assert_int_equal(seen(3)->connection, 4); /* where a body is owed nothing else can be asked */
    assert_int_equal(retries(), 1);
    assert_nothing_held();
}

static void test_417_is_asked_again_without_expect(void **state)
{
    (void)state;
    const struct act acts[] = {
        {.before = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n", .deed = STALL},
        {.read = ALL, .answer = STORED},
        {.before = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n", .deed = STALL},
        {.before = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n", .deed = STALL}};
    UPLOADS(acts, FAST);
    struct writer *w = run(stream(0, 2 * MIB, WRITE_BYTES_MAX));
    assert_int_equal(w->status, 200);
    assert_null(strstr(seen(1)->head, "Expect"));
    assert_true(w->wanted_ms - w->began_ms < 900);
    assert_whole(1, 2 * MIB);
    assert_int_equal(run(stream(0, 2 * MIB, WRITE_BYTES_MAX))->status, 417);
    assert_int_equal(retries(), 0);
}

static void test_stale_connection_before_the_body(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = STORED}, {.deed = CLOSE},
        {.before = GO_ON, .read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    run(ready(0, 10));
    struct writer *w = run(stream(0, 2 * MIB, WRITE_BYTES_MAX));
    assert_int_equal(w->status, 200);
    assert_whole(2, 2 * MIB);
    assert_int_equal(retries(), 0);
}

/* The body was wanted, and then the connection broke: bytes that are given meanwhile wait for the
 * next one, or are given back when that refuses them. */
static void test_broken_when_the_body_is_wanted(void **state)
{
    (void)state;
    const struct act acts[] = {{.before = GO_ON, .deed = RESET},
        {.late = GO_ON, .rest_ms = 400, .read = ALL, .answer = STORED, .deed = CLOSE},
        {.before = GO_ON, .deed = RESET},
        {.rest_ms = 400, .answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
         .deed = STALL}};
    UPLOADS(acts, FAST);
    struct writer *w = stream(0, 2 * MIB, WRITE_BYTES_MAX);
    w->write_after_ms = 150;
    run(w);
    assert_int_equal(w->status, 200);
    assert_int_equal(w->written, 2 * MIB);
    assert_whole(1, 2 * MIB);
    w = stream(0, 2 * MIB, WRITE_BYTES_MAX);
    w->write_after_ms = 150;
    run(w);
    assert_int_equal(w->status, 403);
    assert_true(w->refused && w->written > 0 && w->written < 2 * MIB);
    assert_int_equal(seen(3)->got, 0);
    assert_nothing_held();
}

/* ---- broken in the middle ---- */

static void test_early_answer_ends_the_sending(void **state)
{
    (void)state;
    const struct act acts[] = {
        {.before = GO_ON, .read = 300 * 1000,
         .answer = "HTTP/1.1 400 Bad\r\nContent-Length: 5\r\n\r\nwrong", .deed = HOLD},
        {.before = GO_ON, .read = 300 * 1000,
         .answer = "HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: 4\r\n\r\nslow",
         .deed = CLOSE},
        {.read = 10, .answer = "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno",
         .deed = CLOSE},
        {.read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    struct writer *w = run(stream(0, BIG, WRITE_BYTES_MAX));
    assert_false(w->failed);
    assert_int_equal(w->status, 400);
    assert_string_equal(w->body, "wrong");
    assert_true(w->refused && w->written < BIG);
    w = run(stream(0, BIG, WRITE_BYTES_MAX)); /* with a reset behind it: bytes were unread */
    assert_int_equal(w->status, 503);
    assert_string_equal(w->body, "slow");
    assert_true(w->refused);
    w = run(ready(0, WRITE_BYTES_MAX));
    assert_int_equal(w->status, 413);
    assert_int_equal(retries(), 0);
    assert_int_equal(run(ready(0, 10))->status, 200);
    assert_int_equal(seen(3)->connection, 4);
    assert_nothing_held();
}

static void test_reset_in_mid_body(void **state)
{
    (void)state;
    const struct act acts[] = {{.before = GO_ON, .read = 300 * 1000, .deed = RESET},
        {.before = GO_ON, .read = 300 * 1000, .deed = CLOSE}, {.read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    for (unsigned i = 0; i < 2; i++) {
        struct writer *w = run(stream(0, BIG, WRITE_BYTES_MAX));
        assert_true(w->failed && !w->status);
        assert_int_equal(w->why, ERR_UPSTREAM_RESET);
    }
    assert_int_equal(retries(), 0);
    assert_int_equal(run(ready(0, 10))->status, 200);
    assert_nothing_held();
}

static void test_stall_in_mid_body(void **state)
{
    (void)state;
    const struct act acts[] = {{.before = GO_ON, .read = 100 * 1000, .deed = HOLD},
        {.read = ALL, .answer = STORED}};
    begin_uploads(acts, ARRAY_COUNT(acts), "read_timeout = \"300ms\"\n", 32 * KIB);
    struct writer *w = run(stream(0, 16 * MIB, WRITE_BYTES_MAX));
    assert_true(w->failed);
    assert_int_equal(w->why, ERR_UPSTREAM_TIMEOUT);
    assert_true(w->written < 16 * MIB);
    assert_int_equal(run(ready(0, 10))->status, 200);
    assert_nothing_held();
}

/* The whole takes several times the deadline; the socket's own buffer takes nothing for longer. */
static void test_slow_upstream_is_not_a_silent_one(void **state)
{
    (void)state;
    const struct act acts[] = {{.before = GO_ON, .read = ALL, .each_ms = 10, .answer = STORED}};
    begin_uploads(acts, ARRAY_COUNT(acts), "read_timeout = \"500ms\"\n", 8 * KIB);
    struct writer *w = run(stream(0, 2 * MIB, WRITE_BYTES_MAX));
    assert_int_equal(w->status, 200);
    assert_true(w->head_ms - w->began_ms > 1000);
    assert_whole(0, 2 * MIB);
}

/* To the kernel a peer without room is as silent as a dead one, which it gives half a connect
 * deadline. */
static void test_upstream_that_rests_is_not_dead(void **state)
{
    (void)state;
    const struct act acts[] = {{.before = GO_ON, .rest_ms = 1500, .read = ALL, .answer = STORED}};
    begin_uploads(acts, ARRAY_COUNT(acts), "connect_timeout = \"500ms\"\n", 8 * KIB);
    struct writer *w = run(stream(0, BIG, WRITE_BYTES_MAX));
    assert_int_equal(w->status, 200);
    assert_whole(0, BIG);
}

static void test_owner_ends_in_the_middle(void **state)
{
    (void)state;
    const struct act acts[] = {{.before = GO_ON, .read = ALL, .answer = STORED},
        {.before = GO_ON, .read = ALL, .answer = STORED},
        {.before = GO_ON, .read = ALL, .answer = STORED},
        {.read = ALL, .answer = STORED, .each_ms = 1},
        {.read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    struct writer *w = stream(0, BIG, WRITE_BYTES_MAX);
    w->stop_at = 1000 * 1000;        /* between two writes */
    run(w);
    assert_true(seen(0)->cut && seen(0)->intact);
    assert_true(seen(0)->got <= 1000 * 1000);
    w = stream(0, BIG, WRITE_BYTES_MAX);
    w->stop_at = BIG / 2;
    w->stop_inside = true;
    run(w);
    assert_true(seen(1)->cut && seen(1)->got < BIG);
    w = stream(0, BIG, WRITE_BYTES_MAX);
    w->stop_early = true;
    run(w);
    assert_true(seen(2)->cut && seen(2)->got == 0);
    w = stream(0, 900 * KIB, WRITE_BYTES_MAX);
    w->stop_whole = true;            /* its outcome is nobody's any more */
    run(w);
    w = ready(0, 10);
    w->stop_at_once = true;
    run(w);
    assert_int_equal(run(ready(0, 10))->status, 200);
    assert_nothing_held();
}

/* ---- long answers ---- */

static void test_answer_may_take_its_time(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .pause_ms = 1200, .later = {STORED}},
        {.read = ALL, .pause_ms = 4000, .later = {STORED}, .deed = STALL}};
    UPLOADS(acts, "read_timeout = \"500ms\"\nretries = 0\n");
    struct writer *w = ready(0, 1000);
    w->ask.answer_ms = 5000;
    assert_int_equal(run(w)->status, 200);
    w = ready(0, 1000);
    w->ask.answer_ms = 700;          /* and no longer */
    run(w);
    assert_true(w->failed);
    assert_int_equal(w->why, ERR_UPSTREAM_TIMEOUT);
}

static void test_white_space_before_a_late_document(void **state)
{
    (void)state;
    const struct act acts[] = {{.read = ALL, .answer = CHUNKED_ANSWER "1\r\n \r\n", .pause_ms = 700,
        .later = {"2\r\n\r\n\r\n", "1\r\n \r\n", "3\r\n<a>\r\n0\r\n\r\n"}}};
    UPLOADS(acts, "read_timeout = \"500ms\"\n");
    struct writer *w = ready(0, 1000);
    w->ask.method = HTTP_POST;
    w->ask.answer_ms = 5000;
    w->ask.once = true;
    run(w);
    assert_false(w->failed);
    assert_int_equal(w->status, 200);
    assert_true(w->head_ms - w->began_ms < 600);
    assert_string_equal(w->body, " \r\n <a>");
}

/* ---- what is learnt ---- */

static void test_region_and_clock_are_learnt_without_asking_again(void **state)
{
    (void)state;
    const struct act acts[] = {
        {.read = 100, .answer = "HTTP/1.1 301 Moved\r\nx-amz-bucket-region: ap-south-2\r\n"
                                "Connection: close\r\nContent-Length: 0\r\n\r\n", .deed = STALL},
        {.read = 100, .answer = "HTTP/1.1 403 Forbidden\r\nDate: Fri, 01 Jan 2100 00:00:00 GMT\r\n"
                                "Connection: close\r\nContent-Length: 0\r\n\r\n", .deed = STALL},
        {.before = "HTTP/1.1 301 Moved\r\nx-amz-bucket-region: eu-west-9\r\n"
                   "Content-Length: 0\r\n\r\n", .deed = STALL},
        {.before = GO_ON, .read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    assert_int_equal(run(stream(0, 500 * KIB, WRITE_BYTES_MAX))->status, 301);
    assert_int_equal(run(stream(0, 500 * KIB, WRITE_BYTES_MAX))->status, 403);
    assert_non_null(strstr(seen(1)->head, "/ap-south-2/s3/"));
    assert_int_equal(run(stream(0, MIB, WRITE_BYTES_MAX))->status, 200); /* nothing had left */
    assert_non_null(strstr(seen(2)->head, "x-amz-date: 2100"));
    assert_non_null(strstr(seen(3)->head, "/eu-west-9/s3/"));
    assert_whole(3, MIB);
}

/* ---- what goes wrong at home ---- */

static void refuse_each_allocation(const char *extra, const struct act *act)
{
    struct message mark = {.deliver = deliver_mark};
    unsigned failures = 0;

    for (int64_t n = 1;; n++) {
        begin_uploads(act, 1, extra, 0);
        core_send(core, &mark);
        asked = 0;
        refuse_at = n;
        struct writer *w = run(stream(0, 2 * MIB, WRITE_BYTES_MAX));
        refuse_at = 0;
        bool all = (int64_t)asked < n;
        failures += w->failed;
        if (!w->failed)
            assert_whole(0, 2 * MIB);
        assert_nothing_held();
        clean(NULL);
        if (all) {
            assert_false(w->failed);
            assert_true(n > 3 && failures > 0);
            return;
        }
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    const struct act act = {.before = GO_ON, .read = ALL, .answer = STORED};
    refuse_each_allocation(FAST, &act);
}

static void test_owner_ends_whatever_upstream_does(void **state)
{
    (void)state;
    const struct act acts[] = {{.before = GO_ON, .read = 1000, .deed = HOLD},
        {.rest_ms = 300, .deed = HOLD}, {.read = ALL, .deed = HOLD},
        {.before = GO_ON, .read = 10, .deed = HOLD,
         .answer = "HTTP/1.1 400 Bad\r\nContent-Length: 100\r\n\r\nx"},
        {.read = ALL, .answer = STORED}};
    UPLOADS(acts, FAST);
    struct writer *w = stream(0, 16 * MIB, WRITE_BYTES_MAX); /* the socket is full */
    w->stop_at = 12 * MIB;
    w->stop_inside = true;
    w->stop_after_ms = 300;
    run(w);
    w = stream(0, 16 * MIB, WRITE_BYTES_MAX); /* waits for a 100 */
    w->stop_after_ms = 50;
    run(w);
    assert_true(w->wanted == 0);
    w = ready(0, 100);               /* waits for an answer */
    w->stop_after_ms = 50;
    run(w);
    assert_true(!w->failed && w->status == 0);
    w = stream(0, 16 * MIB, WRITE_BYTES_MAX); /* reads one */
    w->stop_after_ms = 300;
    run(w);
    assert_int_equal(run(ready(0, 10))->status, 200);
    assert_nothing_held();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAIN(test_ready_body_on_the_wire),
        PLAIN(test_body_of_no_bytes),
        PLAIN(test_unsigned_requests_send_no_hash_of_their_own),
        PLAIN(test_ready_body_is_sent_again),
        PLAIN(test_ready_body_on_a_stale_connection),
        PLAIN(test_what_is_not_idempotent_is_sent_once),
        PLAIN(test_streamed_in_odd_pieces),
        PLAIN(test_streamed_over_tls),
        PLAIN(test_upstream_that_keeps_silent_gets_the_body_after_a_second),
        PLAIN(test_refused_before_the_body),
        PLAIN(test_417_is_asked_again_without_expect),
        PLAIN(test_stale_connection_before_the_body),
        PLAIN(test_broken_when_the_body_is_wanted),
        PLAIN(test_early_answer_ends_the_sending),
        PLAIN(test_reset_in_mid_body),
        PLAIN(test_stall_in_mid_body),
        PLAIN(test_slow_upstream_is_not_a_silent_one),
        PLAIN(test_upstream_that_rests_is_not_dead),
        PLAIN(test_owner_ends_in_the_middle),
        PLAIN(test_answer_may_take_its_time),
        PLAIN(test_white_space_before_a_late_document),
        cmocka_unit_test_setup(test_no_memory, clean_environment),
        PLAIN(test_owner_ends_whatever_upstream_does),
        PLAIN(test_region_and_clock_are_learnt_without_asking_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
