/* Bodies of requests over real sockets and a real core: framing, cuts, deadlines, clients that go,
 * and what stands behind a body. Each test runs plain and over TLS. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

/* Memory that the server asks for may be refused: mem.c is made with these, and nothing else. */
static void *may_malloc(size_t bytes);
static void *may_calloc(size_t count, size_t bytes);
static void *may_realloc(void *old, size_t bytes);
static int may_memalign(void **out, size_t align, size_t bytes);
#define malloc may_malloc
#define calloc may_calloc
#define realloc may_realloc
#define posix_memalign may_memalign
#include "common/mem.c"
#undef malloc
#undef calloc
#undef realloc
#undef posix_memalign

#include "server/net/body.c"

#include <openssl/ssl.h>

#include "tests/lib/bodies.h"

enum { SHORT_MS = 300 };
#define SHORT_TIMEOUT "body_timeout = \"300ms\""

static struct client client;

/* The n-th allocation of the server from now on is refused; counts on beyond. 0: none is. */
static _Atomic int refuse_at, allocations;
static __thread bool is_client;

static bool refused(void)
{
    return refuse_at > 0 && !is_client && ++allocations == refuse_at;
}
static void *may_malloc(size_t bytes)
{
    return refused() ? NULL : malloc(bytes);
}
static void *may_calloc(size_t count, size_t bytes)
{
    return refused() ? NULL : calloc(count, bytes);
}
static void *may_realloc(void *old, size_t bytes)
{
    return refused() ? NULL : realloc(old, bytes);
}
static int may_memalign(void **out, size_t align, size_t bytes)
{
    return refused() ? ENOMEM : posix_memalign(out, align, bytes);
}

static int plain(void **state)
{
    (void)state;
    sealed = false;
    return 0;
}

static int over_tls(void **state)
{
    (void)state;
    sealed = true;
    return 0;
}

static uint64_t late_bodies(void)
{
    return metric_read(METRIC_DEADLINE_TOTAL, DEADLINE_BODY, 0, 0);
}

/* Another request on the same connection. */
static void assert_kept(void)
{
    client_say(&client, "POST /take/10/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok");
    assert_string_equal(client_answer(&client), whole("ok", 2));
}

/* ---- framing, at every cut ---- */

#define NEXT "PUT /take/3/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnext"
#define CHUNKED "\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

static const unsigned caps[] = {1, 7, JOB_BYTES};

/* The body, and a request pipelined behind it, cut at each byte behind the head. */
static void check_every_cut(const char *fields, const char *framed, const char *body)
{
    char text[2 * KIB];
    for (unsigned i = 0; i < ARRAY_COUNT(caps); i++) {
        int head = snprintf(text, sizeof(text), "PUT /take/%u/0 HTTP/1.1%s", caps[i], fields);
        int len = head + snprintf(text + head, sizeof(text) - (size_t)head, "%s%s", framed, NEXT);
        for (int cut = head; cut < head + (int)strlen(framed); cut++) {
            client_send_cut(&client, span_make(text, (size_t)len), (size_t)cut);
            assert_string_equal(client_answer(&client), whole(body, strlen(body)));
            assert_string_equal(client_answer(&client), whole("next", 4));
        }
        client_send(&client, text, (size_t)len);
        assert_string_equal(client_answer(&client), whole(body, strlen(body)));
        assert_string_equal(client_answer(&client), whole("next", 4));
    }
}

static void counted_bodies_at_every_cut(void **state)
{
    (void)state;
    open_server("");
    client_open(&client);
    check_every_cut("\r\nHost: x\r\nContent-Length: 26\r\n\r\n", "abcdefghijklmnopqrstuvwxyz",
                    "abcdefghijklmnopqrstuvwxyz");
    check_every_cut("\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "", "");
    check_every_cut("\r\nHost: x\r\n\r\n", "", "");
    client_close(&client);
    close_server();
}

static void chunked_bodies_at_every_cut(void **state)
{
    static const struct {
        const char *framed, *body;
    } rows[] = {
        {"0\r\n\r\n", ""},
        {"5\r\nhello\r\n0\r\n\r\n", "hello"},
        {"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n", "abc"},
        {"00A\r\n0123456789\r\n00b;name=value;q=\"a b\"\r\nhello world\r\n000;last\r\n\r\n",
         "0123456789hello world"},
        {"3\r\n\r\n0\r\n2\r\n\r\n\r\n0\r\nX-Sum: 77\r\nX-More:\r\n\r\n", "\r\n0\r\n"},
    };
    (void)state;
    open_server("");
    client_open(&client);
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++)
        check_every_cut(CHUNKED, rows[i].framed, rows[i].body);
    client_close(&client);
    close_server();
}

/* Sealed bytes are cut within records. */
static void records_at_every_cut(void **state)
{
    static const char text[] = "PUT /take/9/0 HTTP/1.1" CHUNKED,
                      rest[] = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    (void)state;
    open_server("");
    client_open(&client);
    for (size_t cut = 1; cut < sizeof(rest) + 20; cut++) {
        client_begin(&client, text);
        assert_int_equal(tls_write(client.tls, rest, sizeof(rest) - 1), TLS_DONE);
        client_flush(&client, cut);
        assert_string_equal(client_answer(&client), whole("hello world", 11));
    }
    client_close(&client);
    close_server();
}

static void malformed_chunks_are_told_and_the_connection_ends(void **state)
{
    static const char *const rows[] = {
        "x\r\n", "\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhelloo\r\n", "5\r\nhello\n0\r\n\r\n",
        "-1\r\n", "5 \r\nhello\r\n", "ffffffffffffffffff\r\n", "5;\x01\r\nhello\r\n",
        "0\r\nno colon\r\n\r\n", "0\r\n: x\r\n\r\n", "0\r\n\rX",
    };
    char text[500];
    (void)state;
    open_server("");
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++)
        for (size_t cut = 0; cut < strlen(rows[i]); cut++) {
            int head = snprintf(text, sizeof(text), "PUT /take/%u/0 HTTP/1.1" CHUNKED, caps[i % 3]);
            snprintf(text + head, sizeof(text) - (size_t)head, "%s", rows[i]);
            client_open(&client);
            client_send_cut(&client, span_of(text), (size_t)head + cut);
            assert_string_equal(client_answer(&client), "ERR_SYNTAX");
            assert_closed(&client);
            client_close(&client);
        }
    close_server();
}

/* 1 KiB of extensions, 8 KiB of trailers. */
static void endless_framing_is_malformed(void **state)
{
    static char filler[9 * KIB];
    static const char *const rows[] = {"5;", "0\r\nx:"};
    (void)state;
    open_server("");
    memset(filler, 'a', sizeof(filler));
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        client_open(&client);
        client_say(&client, "PUT /take/100/0 HTTP/1.1" CHUNKED);
        client_say(&client, rows[i]);
        client_send(&client, filler, sizeof(filler));
        assert_string_equal(client_answer(&client), "ERR_SYNTAX");
        client_close(&client);
    }
    close_server();
}

/* ---- large ---- */

static void send_large(const char *bytes, size_t len, size_t piece, bool chunked)
{
    char line[200];
    snprintf(line, sizeof(line), chunked ? "PUT /take/%u/0 HTTP/1.1%s"
                                         : "PUT /take/%u/0 HTTP/1.1\r\nHost: x\r\n"
                                           "Content-Length: %s\r\n\r\n",
             JOB_BYTES / 2, chunked ? CHUNKED : "50331648");
    client_say(&client, line);
    for (size_t at = 0, n; at < len; at += n) {
        n = (size_t)min_u64(piece, len - at);
        snprintf(line, sizeof(line), "%zx;p=%zu\r\n", n, at);
        client_say(&client, chunked ? line : "");
        client_send(&client, bytes + at, n);
        client_say(&client, chunked ? "\r\n" : "");
    }
    client_say(&client, chunked ? "0\r\nX-Sum: 1\r\n\r\n" : "");
}

static void large_bodies_arrive_whole(void **state)
{
    enum { LARGE = 48 * MIB };
    (void)state;
    char *bytes = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (char)(i * 31 + i / 253);
    open_server("");
    client_open(&client);
    send_large(bytes, LARGE, BLOCK_BYTES + 77, false);
    assert_string_equal(client_answer(&client), whole(bytes, LARGE));
    send_large(bytes, LARGE, 128 * KIB, true);
    assert_string_equal(client_answer(&client), whole(bytes, LARGE));
    send_large(bytes, LARGE / 48, 1000, true);
    assert_string_equal(client_answer(&client), whole(bytes, LARGE / 48));
    assert_kept();
    client_close(&client);
    close_server();
    free(bytes);
}

/* Behind a large head there is no room in the intake itself. */
static void bodies_behind_a_large_head(void **state)
{
    static char text[32 * KIB], filler[12 * KIB];
    (void)state;
    open_server("");
    client_open(&client);
    memset(filler, 'f', sizeof(filler) - 1);
    for (size_t len = 3 * KIB; len < sizeof(filler); len += 997)
        for (unsigned early = 0; early < 2; early++) {
            int head = snprintf(text, sizeof(text), "PUT /take/9/0 HTTP/1.1\r\nX: %s" CHUNKED,
                                filler + (sizeof(filler) - 1 - len));
            snprintf(text + head, sizeof(text) - (size_t)head,
                     "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n%s", NEXT);
            client_send_cut(&client, span_of(text), (size_t)head + early * 4);
            assert_string_equal(client_answer(&client), whole("hello!", 6));
            assert_string_equal(client_answer(&client), whole("next", 4));
        }
    client_close(&client);
    close_server();
}

/* ---- clients that go ---- */

static const char *const begun[] = {
    "PUT /take/100/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
    "PUT /take/2/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
    "PUT /take/100/0 HTTP/1.1" CHUNKED "5\r\nhel",
    "PUT /take/100/0 HTTP/1.1" CHUNKED "5\r\nhello\r\n",
    "PUT /take/100/0 HTTP/1.1" CHUNKED "5\r\nhello\r\n0\r\n",
    "PUT /take/100/0 HTTP/1.1" CHUNKED "5;ab",
};

static void end_sending(bool politely)
{
    if (sealed && politely) {
        tls_goodbye(client.tls);
        client_flush(&client, 0);
    }
    shutdown(client.fd, SHUT_WR);
}

static void bodies_that_end_early_are_never_whole(void **state)
{
    (void)state;
    open_server("");
    for (unsigned i = 0; i < ARRAY_COUNT(begun); i++)
        for (unsigned politely = 0; politely < 2; politely++) {
            client_open(&client);
            client_say(&client, begun[i]);
            end_sending(politely);
            assert_string_equal(client_answer(&client), "ERR_PEER");
            client_close(&client);
        }
    close_server();
}

static void a_client_that_resets(void **state)
{
    (void)state;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    open_server("");
    for (unsigned i = 0; i < ARRAY_COUNT(begun); i++) {
        unsigned before = jobs_over;
        client_open(&client);
        client_begin(&client, begun[i]);
        setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        client_close(&client);
        AWAIT(jobs_over == before + 1);
        assert_int_equal(job_why, ERR_PEER);
    }
    close_server();
}

static void a_side_that_ends_behind_the_body_gets_its_answer(void **state)
{
    (void)state;
    open_server("");
    client_open(&client);
    client_say(&client, NEXT);
    end_sending(true);
    assert_string_equal(client_answer(&client), whole("next", 4));
    assert_closed(&client);
    client_close(&client);
    close_server();
}

/* Each asks for an answer, for which there is no time to leave. */
static void key_updates_instead_of_a_body_end_it(void **state)
{
    static const char text[] = "PUT /take/9/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n";
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    (void)state;
    open_server("");
    sealed = false;
    client_open(&client);
    SSL_set_fd(ssl, client.fd);
    assert_int_equal(SSL_connect(ssl), 1);
    assert_int_equal(SSL_write(ssl, text, sizeof(text) - 1), sizeof(text) - 1);
    unsigned before = jobs_over;
    await_taken(before);
    for (unsigned i = 0; i < 10000 && jobs_over == before; i++) {
        SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
        if (SSL_do_handshake(ssl) != 1)
            break;
    }
    AWAIT(jobs_over > before);
    assert_int_equal(job_why, ERR_PEER);
    SSL_free(ssl);
    SSL_CTX_free(context);
    client_close(&client);
    close_server();
}

/* ---- deadlines ---- */

static void silence_ends_a_body(void **state)
{
    (void)state;
    open_server(SHORT_TIMEOUT);
    for (unsigned i = 0; i < ARRAY_COUNT(begun); i++) {
        uint64_t before = late_bodies(), began_ms = clock_ms();
        client_open(&client);
        client_say(&client, begun[i]);
        assert_string_equal(client_answer(&client), "ERR_TIMEOUT");
        assert_true(clock_ms() - began_ms >= SHORT_MS);
        assert_int_equal(late_bodies(), before + 1);
        assert_closed(&client);
        client_close(&client);
    }
    close_server();
}

/* Until the connection ends; a reset is what its last bytes may meet. */
static void drip(const char *bytes, size_t len, int every_ms)
{
    struct pollfd end = {.fd = client.fd, .events = POLLRDHUP};
    for (size_t i = 0; i < len && poll(&end, 1, every_ms) == 0; i++)
        client_send(&client, bytes + i, 1);
}

static void framing_that_drips_is_late(void **state)
{
    static char extension[900];
    static const char *const rows[] = {"5;", "0\r\nx:"};
    (void)state;
    open_server(SHORT_TIMEOUT);
    memset(extension, 'a', sizeof(extension));
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        uint64_t before = late_bodies();
        client_open(&client);
        client_say(&client, "PUT /take/100/0 HTTP/1.1" CHUNKED);
        client_say(&client, rows[i]);
        drip(extension, sizeof(extension), 20);
        assert_string_equal(client_answer(&client), "ERR_TIMEOUT");
        assert_int_equal(late_bodies(), before + 1);
        client_close(&client);
    }
    close_server();
}

static void a_body_that_comes_slowly_is_waited_for(void **state)
{
    enum { MS = 800, EVERY_MS = 100, BYTES = 20 };
    (void)state;
    uint64_t before = late_bodies();
    open_server("body_timeout = \"800ms\"");
    client_open(&client);
    uint64_t began_ms = clock_ms();
    client_say(&client, "PUT /take/100/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n");
    drip("01234567890123456789", BYTES, EVERY_MS);
    assert_string_equal(client_answer(&client), whole("01234567890123456789", BYTES));
    assert_true(clock_ms() - began_ms > 2 * MS);
    assert_int_equal(late_bodies(), before);
    client_close(&client);
    close_server();
}

static void what_the_request_takes_for_itself_does_not_count(void **state)
{
    static const char *const rows[] = {
        "PUT /hold/2/900 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", "hello",
        "PUT /hold/2/900 HTTP/1.1" CHUNKED, "5\r\nhello\r\n0\r\n\r\n",
    };
    (void)state;
    open_server(SHORT_TIMEOUT);
    client_open(&client);
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i += 2) {
        client_begin(&client, rows[i]);
        client_say(&client, rows[i + 1]);
        assert_string_equal(client_answer(&client), whole("hello", 5));
    }
    client_close(&client);
    close_server();
}

/* ---- giving up ---- */

static void who_settles_before_bytes_came_keeps_the_connection(void **state)
{
    (void)state;
    open_server("");
    client_open(&client);
    client_say(&client, "PUT /settle/50/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
    assert_string_equal(client_answer(&client), part(""));
    client_say(&client, "hello");
    assert_kept();
    client_say(&client, "PUT /settle/50/0 HTTP/1.1" CHUNKED);
    assert_string_equal(client_answer(&client), part(""));
    client_say(&client, "5\r\nhello\r\n0\r\n\r\n");
    assert_kept();
    client_close(&client);
    close_server();
}

static void who_drops_bytes_loses_the_connection(void **state)
{
    (void)state;
    open_server("");
    client_open(&client);
    client_begin(&client, "PUT /drop/50/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
    client_say(&client, "hello");
    assert_string_equal(client_answer(&client), "ERR_PEER");
    assert_closed(&client);
    client_close(&client);
    close_server();
}

/* ---- what is left behind the answer ---- */

/* "/take/1/1" takes one byte. */
static void what_is_left_is_discarded_up_to_64_kib(void **state)
{
    static char filler[70 * KIB], line[100];
    (void)state;
    open_server("");
    client_open(&client);
    memset(filler, 'z', sizeof(filler));
    for (unsigned size = 2; size < 65000; size = size * 3 + 11) {
        snprintf(line, sizeof(line),
                 "PUT /take/1/1 HTTP/1.1\r\nHost: x\r\nContent-Length: %u\r\n\r\n", size);
        client_say(&client, line);
        client_send(&client, filler, size);
        assert_string_equal(client_answer(&client), part("z"));
        snprintf(line, sizeof(line), "PUT /take/1/1 HTTP/1.1" CHUNKED "%x\r\n", size / 2);
        client_say(&client, line);
        client_send(&client, filler, size / 2);
        snprintf(line, sizeof(line), "\r\n%x;x\r\n", size - size / 2);
        client_say(&client, line);
        client_send(&client, filler, size - size / 2);
        client_say(&client, "\r\n0\r\nX: y\r\n\r\n");
        assert_string_equal(client_answer(&client), part("z"));
        assert_kept();
    }
    client_close(&client);
    close_server();
}

static void more_than_64_kib_close_the_connection_behind_a_whole_answer(void **state)
{
    static char filler[200 * KIB];
    static const char *const rows[] = {
        "PUT /take/1/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 204800\r\n\r\n",
        "PUT /take/1/1 HTTP/1.1" CHUNKED "32000\r\n",
        "PUT /take/1/1 HTTP/1.1" CHUNKED "1\r\nz\r\nffffffff\r\n",
    };
    (void)state;
    open_server("");
    memset(filler, 'z', sizeof(filler));
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        client_open(&client);
        client_say(&client, rows[i]);
        client_send(&client, filler, sizeof(filler));
        assert_string_equal(client_answer(&client), part("z"));
        assert_closed(&client);
        assert_false(client.reset);
        client_close(&client);
    }
    close_server();
}

/* Chunks of one byte: their framing counts, too. */
static void small_chunks_are_not_discarded_for_ever(void **state)
{
    static char chunks[6 * 20 * KIB + 1];
    (void)state;
    open_server("");
    for (unsigned i = 0; i < 20 * KIB; i++)
        memcpy(chunks + 6 * i, "1\r\nz\r\n", 6);
    client_open(&client);
    client_say(&client, "PUT /take/1/1 HTTP/1.1" CHUNKED);
    client_send(&client, chunks, sizeof(chunks) - 1);
    assert_string_equal(client_answer(&client), part("z"));
    assert_closed(&client);
    client_close(&client);
    close_server();
}

static void malformed_rests_end_the_connection(void **state)
{
    (void)state;
    open_server("");
    client_open(&client);
    client_say(&client, "PUT /take/1/1 HTTP/1.1" CHUNKED "5\r\nzello\r\nX\r\n\r\n" NEXT);
    assert_string_equal(client_answer(&client), part("z"));
    assert_closed(&client);
    client_close(&client);
    close_server();
}

static void rests_that_drip_end_at_the_deadline(void **state)
{
    static char filler[500];
    (void)state;
    open_server("header_timeout = \"300ms\"");
    uint64_t before = late_bodies();
    memset(filler, 'z', sizeof(filler));
    client_open(&client);
    client_say(&client, "PUT /take/1/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nz");
    assert_string_equal(client_answer(&client), part("z"));
    drip(filler, sizeof(filler), 20);
    assert_closed(&client);
    assert_int_equal(late_bodies(), before + 1);
    client_close(&client);
    close_server();
}

/* ---- 100-continue ---- */

static void a_hundred_is_the_requests_to_say(void **state)
{
    (void)state;
    open_server("");
    client_open(&client);
    client_say(&client, "PUT /continue/9/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
               "Expect: 100-continue\r\n\r\n");
    assert_string_equal(client_answer(&client), "100");
    client_say(&client, "hello");
    assert_string_equal(client_answer(&client), whole("hello", 5));
    assert_kept();
    client_say(&client, "PUT /settle/9/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
               "Expect: 100-continue\r\n\r\n");
    assert_string_equal(client_answer(&client), part(""));
    assert_closed(&client);          /* would "hello" come now, or a head? */
    client_close(&client);
    close_server();
}

/* ---- memory ---- */

/* Early bytes, a large head, framing, a rest that is discarded, a next head: whatever is refused,
 * the answers are right or the connection ends. */
static bool ask_all(const char *head, size_t len)
{
    static const char rest[] = "5\r\nhello\r\n1;x\r\n!\r\n0\r\n\r\n"
                               "PUT /take/1/1 HTTP/1.1" CHUNKED "5\r\nzello\r\n0\r\n\r\n" NEXT;
    char want[3][100];               /* what tells them has memory for one */
    snprintf(want[0], sizeof(want[0]), "%s", whole("hello!", 6));
    snprintf(want[1], sizeof(want[1]), "%s", part("z"));
    snprintf(want[2], sizeof(want[2]), "%s", whole("next", 4));
    struct pollfd end = {.fd = client.fd, .events = POLLRDHUP};
    unsigned before = jobs_over;
    client_send(&client, head, len);
    AWAIT(poll(&end, 1, 0) > 0 || jobs_over > before || (job_fd >= 0 && job_waits > 0));
    client_say(&client, rest);
    for (unsigned i = 0; i < 3; i++) {
        const char *said = client_answer(&client);
        if (strcmp(said, "") == 0 || strcmp(said, "ERR_MEMORY") == 0)
            return false;
        assert_string_equal(said, want[i]);
    }
    return true;
}

static void refused_memory_breaks_nothing_but_its_connection(void **state)
{
    static char head[8 * KIB];
    enum { FILLER = 5 * KIB };
    (void)state;
    size_t len = (size_t)snprintf(head, sizeof(head), "PUT /take/900/0 HTTP/1.1\r\nX: %0*d" CHUNKED,
                                  FILLER, 7);
    bool hit = true;
    is_client = true;
    int n = 0;
    while (hit) {
        n++;
        open_server("");
        client_open(&client);
        assert_kept();               /* what a connection needs is there */
        allocations = 0;
        refuse_at = n;
        bool good = ask_all(head, len);
        hit = allocations >= n;
        assert_true(good || hit);
        refuse_at = 0;
        client_close(&client);
        client_open(&client);
        assert_true(ask_all(head, len));
        client_close(&client);
        close_server();
        assert_true(n < 100);
    }
    assert_true(n > 1);              /* something was refused */
}

/* ---- a drain ---- */

static void a_body_that_comes_in_a_drain_is_taken_to_its_end(void **state)
{
    (void)state;
    open_server("");
    client_open(&client);
    client_begin(&client, "PUT /take/9/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe");
    core_stop(core);
    poll(NULL, 0, 10);               /* whether it drains already shows no difference */
    client_say(&client, "llo");
    assert_string_equal(client_answer(&client), whole("hello", 5));
    assert_closed(&client);
    client_close(&client);
    close_server();
}

#define BOTH(test)                                                                                 \
    {"plain_" #test, test, plain, NULL, NULL}, {"tls_" #test, test, over_tls, NULL, NULL}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(counted_bodies_at_every_cut),
        BOTH(chunked_bodies_at_every_cut),
        cmocka_unit_test_setup(records_at_every_cut, over_tls),
        BOTH(malformed_chunks_are_told_and_the_connection_ends),
        BOTH(endless_framing_is_malformed),
        BOTH(large_bodies_arrive_whole),
        BOTH(bodies_behind_a_large_head),
        BOTH(bodies_that_end_early_are_never_whole),
        BOTH(a_client_that_resets),
        BOTH(a_side_that_ends_behind_the_body_gets_its_answer),
        cmocka_unit_test_setup(key_updates_instead_of_a_body_end_it, over_tls),
        BOTH(silence_ends_a_body),
        BOTH(framing_that_drips_is_late),
        BOTH(a_body_that_comes_slowly_is_waited_for),
        BOTH(what_the_request_takes_for_itself_does_not_count),
        BOTH(who_settles_before_bytes_came_keeps_the_connection),
        BOTH(who_drops_bytes_loses_the_connection),
        BOTH(what_is_left_is_discarded_up_to_64_kib),
        BOTH(more_than_64_kib_close_the_connection_behind_a_whole_answer),
        BOTH(small_chunks_are_not_discarded_for_ever),
        BOTH(malformed_rests_end_the_connection),
        BOTH(rests_that_drip_end_at_the_deadline),
        BOTH(a_hundred_is_the_requests_to_say),
        BOTH(refused_memory_breaks_nothing_but_its_connection),
        BOTH(a_body_that_comes_in_a_drain_is_taken_to_its_end),
    };
    return cmocka_run_group_tests(tests, make_certificate, drop_certificate);
}
