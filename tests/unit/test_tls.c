/* Unit tests of common/tls.c against an OpenSSL server in memory; certificates are made here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tls.c"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- certificates ---- */
struct authority {
    EVP_PKEY *key;
    X509 *cert;
    char file[64];                   /* its PEM */
};

static struct authority authority, stranger;
static const char *why;

static void add_extension(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(e);
    assert_int_equal(X509_add_ext(cert, e, -1), 1);
    X509_EXTENSION_free(e);
}

/* A certificate from now + from_s to now + to_s; signer == NULL: by itself. */
static X509 *make_cert(const char *name, const char *san, EVP_PKEY *key,
                       const struct authority *signer, const long valid[2])
{
    static long serial = 1;
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), valid[0]);
    X509_gmtime_adj(X509_getm_notAfter(cert), valid[1]);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const uint8_t *)name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(signer ? signer->cert : cert));
    add_extension(cert, NID_basic_constraints, signer ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (san)
        add_extension(cert, NID_subject_alt_name, san);
    assert_true(X509_sign(cert, signer ? signer->key : key, EVP_sha256()) > 0);
    return cert;
}

static void make_authority(struct authority *a, const char *name)
{
    const long valid[] = {-3600, 86400};
    a->key = EVP_EC_gen("P-256");
    a->cert = make_cert(name, NULL, a->key, NULL, valid);
    snprintf(a->file, sizeof(a->file), "/tmp/headpond-test-ca-XXXXXX");
    FILE *f = fdopen(mkstemp(a->file), "w");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509(f, a->cert), 1);
    fclose(f);
}

static int set_up_group(void **state)
{
    (void)state;
    make_authority(&authority, "test authority");
    make_authority(&stranger, "someone else");
    return 0;
}

static void end_authority(struct authority *a)
{
    unlink(a->file);
    X509_free(a->cert);
    EVP_PKEY_free(a->key);
}

static int end_group(void **state)
{
    (void)state;
    end_authority(&authority);
    end_authority(&stranger);
    return 0;
}

/* ---- the server ---- */
static const char *asked_alpn;       /* what the client offered first */

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned in_len, void *user)
{
    (void)ssl, (void)user;
    asked_alpn = in_len == 9 && memcmp(in, "\x08http/1.1", 9) == 0 ? "http/1.1" : "?";
    *out = in + 1;
    *out_len = in[0];
    return SSL_TLSEXT_ERR_OK;
}

struct server_setting {
    const char *san;
    const struct authority *signer;
    int version;                     /* the only one; 0 = any */
    long valid[2];                   /* 0, 0 = now */
};

static SSL_CTX *make_server(const struct server_setting *s)
{
    const long now[] = {-3600, 86400};
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_cert("server", s->san, key, s->signer, s->valid[1] ? s->valid : now);
    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, NULL);
    if (s->version) {
        SSL_CTX_set_security_level(ctx, 0); /* as 1.1 signs with SHA-1 */
        SSL_CTX_set_min_proto_version(ctx, s->version);
        SSL_CTX_set_max_proto_version(ctx, s->version);
    }
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}

struct pair {
    struct tls *client;
    SSL *server;
    BIO *to_server, *to_client;      /* owned by server */
    size_t cut;                      /* bytes fed at once; 0 = all there are */
};

static void open_pair(struct pair *p, struct tls_context *c, SSL_CTX *server, const char *host,
                      bool is_address)
{
    *p = (struct pair){.client = tls_open(c, host, is_address), .server = SSL_new(server)};
    assert_non_null(p->client);
    p->to_server = BIO_new(BIO_s_mem());
    p->to_client = BIO_new(BIO_s_mem());
    SSL_set_bio(p->server, p->to_server, p->to_client);
    SSL_set_accept_state(p->server);
}

static void close_pair(struct pair *p)
{
    tls_close(p->client);
    SSL_free(p->server);
    ERR_clear_error();
}

/* All that waits goes to the server, in two steps as a short send would make them. */
static void send_out(struct pair *p)
{
    for (struct span out; (out = tls_out(p->client)).len > 0;) {
        size_t n = (out.len + 1) / 2;
        assert_int_equal(BIO_write(p->to_server, out.at, (int)n), n);
        tls_sent(p->client, n);
    }
}

/* Feeds from the server; the memory is of exactly that size and lives until the next call. */
static size_t receive(struct pair *p, uint8_t **memory)
{
    size_t waits = BIO_ctrl_pending(p->to_client), n = p->cut && p->cut < waits ? p->cut : waits;
    free(*memory);
    *memory = malloc(n + !n);
    if (n == 0)
        return 0;
    assert_int_equal(BIO_read(p->to_client, *memory, (int)n), n);
    assert_int_equal(tls_feed(p->client, *memory, n), n);
    return n;
}

static enum tls_want shake(struct pair *p)
{
    uint8_t *memory = NULL;
    enum tls_want want;
    for (unsigned turns = 0;; turns++) {
        assert_true(turns < 20000);
        want = tls_handshake(p->client);
        send_out(p);
        if (want == TLS_DONE || want == TLS_FAILED)
            break;
        assert_int_equal(want, TLS_WANT_IN);
        SSL_do_handshake(p->server);
        if (receive(p, &memory) == 0)
            break;
    }
    if (want == TLS_DONE)
        SSL_do_handshake(p->server);
    free(memory);
    ERR_clear_error();
    return want;
}

/* Reads until nothing comes any more; the last verdict. */
static enum tls_want drink(struct pair *p, char *out, size_t cap, size_t *sum)
{
    uint8_t *memory = NULL;
    enum tls_want want;
    *sum = 0;
    for (;;) {
        size_t got = 0, room = cap - *sum;
        char spare[16];
        want = tls_read(p->client, room ? out + *sum : spare, room ? room : sizeof(spare), &got);
        *sum += got;
        if (want == TLS_DONE)
            continue;
        send_out(p);
        if (want != TLS_WANT_IN || receive(p, &memory) == 0)
            break;
    }
    free(memory);
    return want;
}

static struct tls_context *make_context(const char *ca_file, bool insecure)
{
    struct tls_context *c = NULL;
    if (tls_context_make(ca_file, insecure, &c, &why) != OK)
        fail_msg("%s", why);
    return c;
}

/* ---- contexts ---- */
static void test_unusable_ca_files(void **state)
{
    (void)state;
    char empty[] = "/tmp/headpond-test-empty-XXXXXX";
    struct tls_context *c = NULL;
    close(mkstemp(empty));
    assert_int_equal(tls_context_make("/nowhere/ca.pem", false, &c, &why), ERR_CONFIG);
    assert_non_null(strstr(why, "/nowhere/ca.pem"));
    assert_int_equal(tls_context_make(empty, false, &c, &why), ERR_CONFIG);
    assert_non_null(strstr(why, empty));
    assert_null(c);
    unlink(empty);
    tls_context_give(NULL);
    tls_context_give(make_context("", false));
}

static void test_impossible_hosts(void **state)
{
    (void)state;
    struct tls_context *c = make_context("", false);
    char host[300];
    memset(host, 'a', sizeof(host));
    host[256] = '\0';
    assert_null(tls_open(c, host, false));
    assert_null(tls_open(c, "", false));
    assert_null(tls_open(c, "not an address", true));
    tls_close(NULL);
    tls_context_give(c);
}

/* ---- verification ---- */
struct trust_row {
    const char *host;
    bool is_address;
    struct server_setting server;
    const struct authority *trusted; /* NULL: the system's store */
    bool insecure;
    const char *error;               /* NULL: accepted */
};

static void check_trust(const struct trust_row *row)
{
    struct pair p;
    SSL_CTX *server = make_server(&row->server);
    struct tls_context *c = make_context(row->trusted ? row->trusted->file : "", row->insecure);
    open_pair(&p, c, server, row->host, row->is_address);
    enum tls_want want = shake(&p);
    const char *error = tls_error(p.client);
    if (row->error ? want != TLS_FAILED || !strstr(error, row->error) : want != TLS_DONE)
        fail_msg("%s, SAN %s: want %d, \"%s\"", row->host, row->server.san, (int)want, error);
    if (row->error)
        assert_int_equal(tls_handshake(p.client), TLS_FAILED);
    close_pair(&p);
    tls_context_give(c);
    SSL_CTX_free(server);
}

static void test_who_is_trusted(void **state)
{
    (void)state;
    const struct server_setting named = {"DNS:s3.test", &authority, 0, {0}};
    const struct trust_row row[] = {
        {"s3.test", false, named, &authority, false, NULL},
        {"S3.TEST", false, named, &authority, false, NULL},
        {"s3.test", false, {"DNS:s3.test", &authority, TLS1_2_VERSION, {0}}, &authority, false,
         NULL},
        {"b.s3.test", false, {"DNS:*.s3.test", &authority, 0, {0}}, &authority, false, NULL},
        {"a.b.s3.test", false, {"DNS:*.s3.test", &authority, 0, {0}}, &authority, false,
         "hostname mismatch"},
        {"xb.s3.test", false, {"DNS:x*.s3.test", &authority, 0, {0}}, &authority, false,
         "hostname mismatch"},
        {"other.test", false, named, &authority, false,
         "certificate verify failed: hostname mismatch"},
        {"10.0.0.7", true, {"IP:10.0.0.7", &authority, 0, {0}}, &authority, false, NULL},
        {"fd00::7", true, {"IP:fd00::7", &authority, 0, {0}}, &authority, false, NULL},
        {"10.0.0.8", true, {"IP:10.0.0.7", &authority, 0, {0}}, &authority, false,
         "IP address mismatch"},
        {"10.0.0.7", true, {"DNS:10.0.0.7", &authority, 0, {0}}, &authority, false,
         "IP address mismatch"},
        {"s3.test", false, named, &stranger, false, "unable to get local issuer certificate"},
        {"s3.test", false, named, NULL, false, "unable to get local issuer certificate"},
        {"s3.test", false, {"DNS:s3.test", NULL, 0, {0}}, NULL, false, "self-signed certificate"},
        {"s3.test", false, {"DNS:s3.test", &authority, 0, {-7200, -60}}, &authority, false,
         "has expired"},
        {"s3.test", false, {"DNS:s3.test", &authority, 0, {60, 7200}}, &authority, false,
         "not yet valid"},
        {"s3.test", false, {"DNS:s3.test", &authority, TLS1_1_VERSION, {0}}, &authority, false,
         "protocol"},
        {"s3.test", false, {"DNS:s3.test", &authority, TLS1_1_VERSION, {0}}, &authority, true,
         "protocol"},
        {"other.test", false, {"DNS:s3.test", NULL, 0, {-7200, -60}}, NULL, true, NULL},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++)
        check_trust(&row[i]);
}

/* ---- data ---- */
struct bench {
    SSL_CTX *server;
    struct tls_context *context;
    struct pair p;
};

static void open_bench(struct bench *b, int version, size_t cut)
{
    const struct server_setting s = {"DNS:s3.test", &authority, version, {0}};
    b->server = make_server(&s);
    b->context = make_context(authority.file, false);
    open_pair(&b->p, b->context, b->server, "s3.test", false);
    b->p.cut = cut;
    assert_int_equal(shake(&b->p), TLS_DONE);
}

static void close_bench(struct bench *b)
{
    close_pair(&b->p);
    tls_context_give(b->context);
    SSL_CTX_free(b->server);
}

static void fill_pattern(char *out, size_t len)
{
    uint32_t x = 12345;
    for (size_t i = 0; i < len; i++) {
        x = x * 1664525 + 1013904223;
        out[i] = (char)(x >> 24);
    }
}

static void test_names_and_protocols_offered(void **state)
{
    (void)state;
    struct bench b;
    asked_alpn = NULL;
    open_bench(&b, 0, 0);
    assert_string_equal(asked_alpn, "http/1.1");
    assert_string_equal(SSL_get_servername(b.p.server, TLSEXT_NAMETYPE_host_name), "s3.test");
    close_bench(&b);

    const struct server_setting s = {"IP:127.0.0.1", &authority, 0, {0}};
    b.server = make_server(&s);
    b.context = make_context(authority.file, false);
    open_pair(&b.p, b.context, b.server, "127.0.0.1", true);
    assert_int_equal(shake(&b.p), TLS_DONE);
    assert_null(SSL_get_servername(b.p.server, TLSEXT_NAMETYPE_host_name)); /* RFC 6066 3 */
    close_bench(&b);
}

/* 1, 2, ... bytes at once, in both protocols; a cut at every byte of every record is among them. */
static void test_every_way_to_cut_the_input(void **state)
{
    (void)state;
    static const size_t cut[] = {1, 2, 3, 4, 5, 6, 7, 16, 21, 22, 23, 100, 1460, 4096, 16384, 0};
    static const int version[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    static char sent[3000], got[4000];
    fill_pattern(sent, sizeof(sent));
    for (unsigned i = 0; i < ARRAY_COUNT(cut) * 2; i++) {
        struct bench b;
        size_t sum;
        open_bench(&b, version[i % 2], cut[i / 2]);
        assert_int_equal(SSL_write(b.p.server, sent, 1000), 1000);
        assert_int_equal(SSL_write(b.p.server, sent + 1000, 2000), 2000);
        assert_int_equal(drink(&b.p, got, sizeof(got), &sum), TLS_WANT_IN);
        assert_int_equal(sum, sizeof(sent));
        assert_memory_equal(sent, got, sum);
        assert_int_equal(SSL_shutdown(b.p.server), 0);
        assert_int_equal(drink(&b.p, got, sizeof(got), &sum), TLS_EOF);
        assert_int_equal(sum, 0);
        close_bench(&b);
    }
}

static void test_split_at_each_byte(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 0, 0);
    size_t wire_bytes = 200 + 22;    /* TLS 1.3: header 5, type 1, tag 16 */
    for (size_t split = 1; split < wire_bytes; split++) {
        char sent[200], got[300];
        uint8_t *memory = NULL;
        size_t n, sum = 0;
        fill_pattern(sent, sizeof(sent));
        assert_int_equal(SSL_write(b.p.server, sent, sizeof(sent)), sizeof(sent));
        b.p.cut = split;
        if (split == 1)              /* the tickets, which nobody has read yet */
            b.p.cut = BIO_ctrl_pending(b.p.to_client) - wire_bytes + 1;
        receive(&b.p, &memory);
        assert_int_equal(tls_read(b.p.client, got, sizeof(got), &n), TLS_WANT_IN);
        b.p.cut = 0;
        receive(&b.p, &memory);
        assert_int_equal(tls_read(b.p.client, got, sizeof(got), &sum), TLS_DONE);
        assert_int_equal(sum, sizeof(sent));
        assert_memory_equal(sent, got, sum);
        free(memory);
    }
    close_bench(&b);
}

/* Several records at once, small rooms to read into: what is left stays lent, nothing is copied. */
static void test_lent_bytes_are_read_in_place(void **state)
{
    (void)state;
    struct bench b;
    static char sent[40000], got[40000];
    char none[1];
    uint8_t *memory = NULL;
    size_t n, sum;
    fill_pattern(sent, sizeof(sent));
    open_bench(&b, 0, 0);
    assert_int_equal(drink(&b.p, none, 1, &sum), TLS_WANT_IN);
    assert_int_equal(SSL_write(b.p.server, sent, sizeof(sent)), sizeof(sent));
    receive(&b.p, &memory);
    uint64_t before = mem_take_count();
    for (sum = 0; sum < sizeof(sent); sum += n)
        assert_int_equal(tls_read(b.p.client, got + sum, min_u64(777, sizeof(got) - sum), &n),
                         TLS_DONE);
    assert_memory_equal(sent, got, sum);
    assert_int_equal(mem_take_count(), before);
    assert_int_equal(tls_read(b.p.client, got, 1, &n), TLS_WANT_IN);
    free(memory);
    close_bench(&b);
}

/* The lender takes its memory back in the middle of a record, and lends more before all is read. */
static void test_unread_bytes_are_kept(void **state)
{
    (void)state;
    struct bench b;
    static char sent[40000], got[40000];
    uint8_t *memory = NULL;
    size_t n, sum = 0;
    fill_pattern(sent, sizeof(sent));
    open_bench(&b, 0, 0);
    assert_int_equal(drink(&b.p, got, 1, &n), TLS_WANT_IN);
    assert_int_equal(SSL_write(b.p.server, sent, 30000), 30000);
    b.p.cut = 25000;
    receive(&b.p, &memory);
    assert_int_equal(tls_read(b.p.client, got, 100, &sum), TLS_DONE);
    assert_true(tls_keep(b.p.client));
    assert_true(tls_keep(b.p.client));
    memset(memory, 0xee, 25000);
    assert_int_equal(SSL_write(b.p.server, sent + 30000, 10000), 10000);
    b.p.cut = 3000;
    receive(&b.p, &memory);
    assert_true(tls_keep(b.p.client));
    b.p.cut = 0;
    receive(&b.p, &memory);
    while (tls_read(b.p.client, got + sum, min_u64(5000, sizeof(got) - sum + 1), &n) == TLS_DONE)
        sum += n;
    assert_int_equal(sum, sizeof(sent));
    assert_memory_equal(sent, got, sum);
    free(memory);
    close_bench(&b);
}

static size_t read_server(struct pair *p, char *out, size_t cap)
{
    size_t sum = 0, n;
    while (sum < cap && SSL_read_ex(p->server, out + sum, cap - sum, &n) == 1)
        sum += n;
    ERR_clear_error();
    return sum;
}

static void test_writing_up_to_the_bound(void **state)
{
    (void)state;
    struct bench b;
    char *sent = malloc(TLS_WRITE_BYTES_MAX), *got = malloc(TLS_WRITE_BYTES_MAX);
    fill_pattern(sent, TLS_WRITE_BYTES_MAX);
    open_bench(&b, 0, 0);
    assert_int_equal(tls_write(b.p.client, sent, 0), TLS_DONE);
    assert_int_equal(tls_out(b.p.client).len, 0);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(tls_write(b.p.client, sent, TLS_WRITE_BYTES_MAX), TLS_DONE);
        assert_int_equal(tls_write(b.p.client, sent, TLS_WRITE_BYTES_MAX), TLS_WANT_OUT);
        send_out(&b.p);
        assert_int_equal(read_server(&b.p, got, TLS_WRITE_BYTES_MAX), TLS_WRITE_BYTES_MAX);
        assert_memory_equal(sent, got, TLS_WRITE_BYTES_MAX);
    }
    assert_true(b.p.client->leaving.cap <= OUT_BYTES_KEPT); /* drained: given back */
    assert_true(b.p.client->gathering.cap <= OUT_BYTES_KEPT);
    free(sent);
    free(got);
    close_bench(&b);
}

/* A send under way must not see its memory move when the session writes on. */
static void test_bytes_shown_stay_while_more_is_written(void **state)
{
    (void)state;
    struct bench b;
    char text[30000], copy[64], got[90100];
    fill_pattern(text, sizeof(text));
    open_bench(&b, 0, 0);
    assert_int_equal(tls_write(b.p.client, text, 100), TLS_DONE);
    struct span shown = tls_out(b.p.client);
    assert_true(shown.len > 100);
    memcpy(copy, shown.at, sizeof(copy));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(tls_write(b.p.client, text, sizeof(text)), TLS_DONE);
    struct span again = tls_out(b.p.client);
    assert_ptr_equal(again.at, shown.at);
    assert_int_equal(again.len, shown.len);
    assert_memory_equal(shown.at, copy, sizeof(copy));
    send_out(&b.p);
    assert_int_equal(read_server(&b.p, got, sizeof(got)), sizeof(got));
    assert_memory_equal(got, text, 100);
    assert_memory_equal(got + 60100, text, sizeof(text));
    close_bench(&b);
}

static void test_damaged_record(void **state)
{
    (void)state;
    struct bench b;
    char got[300];
    uint8_t memory[400];
    size_t n = 0;
    open_bench(&b, 0, 0);
    assert_int_equal(drink(&b.p, got, sizeof(got), &n), TLS_WANT_IN);
    assert_int_equal(SSL_write(b.p.server, "0123456789", 10), 10);
    assert_int_equal(SSL_write(b.p.server, "abc", 3), 3);
    int len = BIO_read(b.p.to_client, memory, sizeof(memory));
    memory[len - 1] ^= 1;            /* in the second record: the first is still good */
    tls_feed(b.p.client, memory, (size_t)len);
    assert_int_equal(tls_read(b.p.client, got, sizeof(got), &n), TLS_DONE);
    assert_int_equal(n, 10);
    assert_int_equal(tls_read(b.p.client, got, sizeof(got), &n), TLS_FAILED);
    assert_true(strlen(tls_error(b.p.client)) > 0);
    assert_int_equal(tls_write(b.p.client, "x", 1), TLS_FAILED);
    assert_true(tls_out(b.p.client).len > 0); /* the alert */
    close_bench(&b);
}

static void test_something_else_than_tls(void **state)
{
    (void)state;
    struct tls_context *c = make_context("", false);
    struct tls *t = tls_open(c, "s3.test", false);
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    assert_int_equal(tls_handshake(t), TLS_WANT_IN);
    tls_feed(t, http, sizeof(http) - 1);
    assert_int_equal(tls_handshake(t), TLS_FAILED);
    assert_string_equal(tls_error(t), "wrong version number");
    tls_close(t);
    tls_context_give(c);
}

/* ---- resumption ---- */
/* A whole connection: handshake, tickets, one request and its answer. */
static bool connect_once(struct tls_context *c, SSL_CTX *server, const char *host)
{
    struct pair p;
    char got[10];
    size_t sum;
    open_pair(&p, c, server, host, false);
    assert_int_equal(shake(&p), TLS_DONE);
    assert_int_equal(SSL_write(p.server, "ok", 2), 2);
    assert_int_equal(drink(&p, got, sizeof(got), &sum), TLS_WANT_IN);
    assert_int_equal(sum, 2);
    bool resumed = SSL_session_reused(p.server);
    assert_int_equal(resumed, SSL_session_reused(p.client->ssl));
    /* also of a session that goes on: who looks has not seen the first */
    uint64_t ends_s = tls_peer_ends_s(p.client), now_s = clock_wall_s();
    assert_int_equal(tls_minor(p.client), SSL_version(p.server) == TLS1_3_VERSION ? 3 : 2);
    assert_true(ends_s > now_s && ends_s < now_s + 366 * 86400ull);
    close_pair(&p);
    return resumed;
}

static void test_resumption(void **state)
{
    (void)state;
    static const int version[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (unsigned i = 0; i < 2; i++) {
        const struct server_setting s = {"DNS:s3.test,DNS:other.test", &authority, version[i], {0}};
        SSL_CTX *server = make_server(&s);
        struct tls_context *c = make_context(authority.file, false);
        assert_false(connect_once(c, server, "s3.test"));
        assert_true(connect_once(c, server, "s3.test"));
        assert_true(connect_once(c, server, "s3.test"));
        assert_false(connect_once(c, server, "other.test"));
        assert_true(connect_once(c, server, "other.test"));
        assert_true(connect_once(c, server, "s3.test"));
        tls_context_give(c);
        SSL_CTX_free(server);
    }
}

/* Resumption skips the certificate: a session for a good name must not serve a bad one. */
static void test_session_of_one_name_does_not_serve_another(void **state)
{
    (void)state;
    const struct server_setting s = {"DNS:s3.test", &authority, 0, {0}};
    SSL_CTX *server = make_server(&s);
    struct tls_context *c = make_context(authority.file, false);
    struct pair p;
    assert_false(connect_once(c, server, "s3.test"));
    assert_true(c->kept_count > 0);
    open_pair(&p, c, server, "evil.test", false);
    assert_int_equal(shake(&p), TLS_FAILED);
    assert_string_equal(tls_error(p.client), "certificate verify failed: hostname mismatch");
    close_pair(&p);
    tls_context_give(c);
    SSL_CTX_free(server);
}

static void test_kept_sessions_are_bounded(void **state)
{
    (void)state;
    const struct server_setting s = {"DNS:*.s3.test", &authority, TLS1_2_VERSION, {0}};
    SSL_CTX *server = make_server(&s);
    struct tls_context *c = make_context(authority.file, false);
    char host[40];
    for (unsigned i = 0; i < TLS_KEPT_MAX + 3; i++) {
        snprintf(host, sizeof(host), "b%u.s3.test", i);
        assert_false(connect_once(c, server, host));
    }
    assert_int_equal(c->kept_count, TLS_KEPT_MAX);
    assert_true(connect_once(c, server, host));
    assert_false(connect_once(c, server, "b0.s3.test")); /* the oldest went */
    tls_context_give(c);
    SSL_CTX_free(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unusable_ca_files),
        cmocka_unit_test(test_impossible_hosts),
        cmocka_unit_test(test_who_is_trusted),
        cmocka_unit_test(test_names_and_protocols_offered),
        cmocka_unit_test(test_every_way_to_cut_the_input),
        cmocka_unit_test(test_split_at_each_byte),
        cmocka_unit_test(test_lent_bytes_are_read_in_place),
        cmocka_unit_test(test_unread_bytes_are_kept),
        cmocka_unit_test(test_writing_up_to_the_bound),
        cmocka_unit_test(test_bytes_shown_stay_while_more_is_written),
        cmocka_unit_test(test_damaged_record),
        cmocka_unit_test(test_something_else_than_tls),
        cmocka_unit_test(test_resumption),
        cmocka_unit_test(test_session_of_one_name_does_not_serve_another),
        cmocka_unit_test(test_kept_sessions_are_bounded),
    };
    return cmocka_run_group_tests(tests, set_up_group, end_group);
}
