/* Unit tests of common/tls_server.c: our client against our server, in memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tls_server.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/lib/certificate.h"

static char dir[] = "/tmp/headpond-test-tls-XXXXXX";
static char cert_path[64], key_path[64], other_cert[64], other_key[64];
static const char *why;

static int set_up_group(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(cert_path, sizeof(cert_path), "%s/a.pem", dir);
    snprintf(key_path, sizeof(key_path), "%s/a.key", dir);
    snprintf(other_cert, sizeof(other_cert), "%s/b.pem", dir);
    snprintf(other_key, sizeof(other_key), "%s/b.key", dir);
    bool good = certificate_write("a", "DNS:cache", cert_path, key_path, NULL) &&
                certificate_write("b", "DNS:cache", other_cert, other_key, NULL);
    return good ? 0 : -1;
}

static int end_group(void **state)
{
    (void)state;
    const char *const paths[] = {cert_path, key_path, other_cert, other_key};
    for (unsigned i = 0; i < ARRAY_COUNT(paths); i++)
        unlink(paths[i]);
    return rmdir(dir);
}

static struct tls_context *make_server(const char *cert, const char *key)
{
    struct tls_context *c = NULL;
    if (tls_server_make(cert, key, &c, &why) != OK)
        fail_msg("%s", why);
    return c;
}

static struct tls_context *make_client(const char *trusted)
{
    struct tls_context *c = NULL;
    if (tls_context_make(trusted, false, &c, &why) != OK)
        fail_msg("%s", why);
    return c;
}

/* ---- two sessions and what is between them ---- */
struct pair {
    struct tls *client, *server;
};

static void open_pair(struct pair *p, struct tls_context *client, struct tls_context *server)
{
    *p = (struct pair){tls_open(client, "cache", false), tls_accept(server)};
    assert_non_null(p->client);
    assert_non_null(p->server);
}

static void close_pair(struct pair *p)
{
    tls_close(p->client);
    tls_close(p->server);
}

/* Moves all that waits, `step` bytes at once; the memory fed is gone after the call. */
static size_t carry(struct tls *from, struct tls *to, size_t step)
{
    size_t sum = 0;
    for (struct span out; (out = tls_out(from)).len > 0;) {
        size_t n = step && step < out.len ? step : out.len;
        char *copy = malloc(n);
        memcpy(copy, out.at, n);
        assert_int_equal(tls_feed(to, copy, n), n);
        assert_true(tls_keep(to));
        free(copy);
        tls_sent(from, n);
        sum += n;
    }
    return sum;
}

static enum tls_want shake(struct pair *p, size_t step)
{
    enum tls_want client = TLS_WANT_IN, server = TLS_WANT_IN;
    for (unsigned turns = 0; turns < 20; turns++) {
        client = tls_handshake(p->client);
        carry(p->client, p->server, step);
        server = tls_handshake(p->server);
        size_t moved = carry(p->server, p->client, step);
        if (server == TLS_FAILED || client == TLS_FAILED)
            return TLS_FAILED;
        if (client == TLS_DONE && server == TLS_DONE && moved == 0)
            return TLS_DONE;
    }
    return TLS_WANT_IN;
}

/* The client reads its tickets on the way to data. */
static void pass_tickets(struct pair *p)
{
    char byte;
    size_t got;
    assert_int_equal(tls_read(p->client, &byte, 1, &got), TLS_WANT_IN);
}

/* ---- files ---- */
static void test_unusable_files(void **state)
{
    (void)state;
    struct {
        const char *cert, *key, *words;
    } rows[] = {
        {"/nowhere/a.pem", key_path, "/nowhere/a.pem: No such file"},
        {cert_path, "/nowhere/a.key", "/nowhere/a.key: No such file"},
        {cert_path, other_key, "is not the key of the first certificate"},
        {key_path, key_path, "holds no PEM certificate"},
    };
    struct tls_context *c = NULL;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        assert_int_equal(tls_server_make(rows[i].cert, rows[i].key, &c, &why), ERR_CONFIG);
        if (!strstr(why, rows[i].words))
            fail_msg("row %u: %s", i, why);
    }
    chmod(cert_path, 0600);
    assert_int_equal(tls_server_make(cert_path, cert_path, &c, &why), ERR_CONFIG);
    assert_non_null(strstr(why, "holds no PEM key"));
    chmod(cert_path, 0644);
    assert_null(c);
}

static void test_key_that_others_can_read_is_refused_with_the_fix(void **state)
{
    (void)state;
    static const mode_t wide[] = {0640, 0604, 0660, 0700};
    struct tls_context *c = NULL;
    for (unsigned i = 0; i < ARRAY_COUNT(wide); i++) {
        chmod(key_path, wide[i]);
        assert_int_equal(tls_server_make(cert_path, key_path, &c, &why), ERR_CONFIG);
        assert_non_null(strstr(why, "chmod 600"));
    }
    chmod(key_path, 0400);
    tls_context_give(make_server(cert_path, key_path));
    chmod(key_path, 0600);
}

static void test_key_with_passphrase_is_refused_without_asking(void **state)
{
    (void)state;
    char path[80];
    struct tls_context *c = NULL;
    snprintf(path, sizeof(path), "%s/locked.key", dir);
    FILE *f = certificate_create(path, 0600);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    assert_int_equal(PEM_write_PKCS8PrivateKey(f, key, EVP_aes_256_cbc(), "open sesame", 11, NULL,
                                               NULL), 1);
    fclose(f);
    EVP_PKEY_free(key);
    assert_int_equal(tls_server_make(cert_path, path, &c, &why), ERR_CONFIG);
    assert_non_null(strstr(why, "passphrase"));
    unlink(path);
}

static void test_damaged_chain_is_refused(void **state)
{
    (void)state;
    char path[80], line[200];
    struct tls_context *c = NULL;
    snprintf(path, sizeof(path), "%s/chain.pem", dir);
    FILE *from = fopen(cert_path, "r"), *to = certificate_create(path, 0644);
    while (fgets(line, sizeof(line), from))
        fputs(line, to);
    fputs("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", to);
    fclose(from);
    fclose(to);
    assert_int_equal(tls_server_make(path, key_path, &c, &why), ERR_CONFIG);
    assert_non_null(strstr(why, "chain is damaged"));
    unlink(path);
}

static void test_same_files_are_told(void **state)
{
    (void)state;
    struct tls_context *a = make_server(cert_path, key_path), *b = make_server(cert_path, key_path),
                       *c = make_server(other_cert, other_key);
    assert_true(tls_server_same(a, b));
    assert_false(tls_server_same(a, c));
    int64_t left_s = tls_server_ends_s(a) - (int64_t)clock_wall_s();
    assert_in_range(left_s, 86400 * 29, 86400 * 31);
    tls_context_give(a);
    tls_context_give(b);
    tls_context_give(c);
}

/* ---- bytes ---- */
static void send_both_ways(struct pair *p, size_t step)
{
    enum { BYTES = 100000 };
    static char sent[BYTES], got[BYTES], room[8 * (TLS_RECORD_BYTES + TLS_RECORD_EXTRA_BYTES)];
    size_t sum = 0, sealed = 0, n;
    for (unsigned i = 0; i < BYTES; i++)
        sent[i] = (char)(i * 7 + i / 256);
    assert_int_equal(tls_write(p->client, sent, BYTES), TLS_DONE);
    carry(p->client, p->server, step);
    while (sum < BYTES && tls_read(p->server, got + sum, 1000, &n) == TLS_DONE)
        sum += n;
    assert_int_equal(sum, BYTES);
    assert_memory_equal(sent, got, BYTES);
    assert_false(tls_holds_input(p->server));
    assert_int_equal(tls_seal(p->server, sent, BYTES, room, sizeof(room), &sealed), TLS_DONE);
    assert_in_range(sealed, BYTES + 7 * 22, sizeof(room));
    for (size_t at = 0; at < sealed; at += n) {
        n = step && step < sealed - at ? step : sealed - at;
        assert_int_equal(tls_feed(p->client, room + at, n), n);
        assert_true(tls_keep(p->client));
    }
    for (sum = 0; sum < BYTES && tls_read(p->client, got + sum, BYTES - sum, &n) == TLS_DONE;)
        sum += n;
    assert_int_equal(sum, BYTES);
    assert_memory_equal(sent, got, BYTES);
}

static void test_bytes_both_ways_however_they_are_cut(void **state)
{
    (void)state;
    static const size_t steps[] = {0, 1, 7, 1460, 4096, 16385};
    struct tls_context *server = make_server(cert_path, key_path), *client = make_client(cert_path);
    for (unsigned i = 0; i < ARRAY_COUNT(steps); i++) {
        struct pair p;
        open_pair(&p, client, server);
        assert_int_equal(shake(&p, steps[i]), TLS_DONE);
        send_both_ways(&p, steps[i]);
        tls_goodbye(p.server);
        carry(p.server, p.client, steps[i]);
        char byte;
        size_t got;
        assert_int_equal(tls_read(p.client, &byte, 1, &got), TLS_EOF);
        close_pair(&p);
    }
    tls_context_give(client);
    tls_context_give(server);
}

static void test_what_fits_is_what_can_be_sealed(void **state)
{
    (void)state;
    assert_int_equal(tls_sealable(0), 0);
    assert_int_equal(tls_sealable(TLS_RECORD_EXTRA_BYTES), 0);
    assert_int_equal(tls_sealable(TLS_RECORD_EXTRA_BYTES + 1), 1);
    assert_int_equal(tls_sealable(TLS_RECORD_BYTES + TLS_RECORD_EXTRA_BYTES), TLS_RECORD_BYTES);
    struct tls_context *server = make_server(cert_path, key_path), *client = make_client(cert_path);
    struct pair p;
    open_pair(&p, client, server);
    assert_int_equal(shake(&p, 0), TLS_DONE);
    static char plain[5 * TLS_RECORD_BYTES];
    for (size_t cap = 300; cap < 4 * TLS_RECORD_BYTES; cap += 997) {
        char *room = malloc(cap);    /* exactly: the sanitizer sees one byte too many */
        size_t sealed = 0;
        assert_int_equal(tls_seal(p.server, plain, tls_sealable(cap), room, cap, &sealed),
                         TLS_DONE);
        assert_in_range(sealed, tls_sealable(cap), cap);
        free(room);
    }
    close_pair(&p);
    tls_context_give(client);
    tls_context_give(server);
}

/* ---- tickets ---- */
static bool comes_again(struct tls_context *client, struct tls_context *server)
{
    struct pair p;
    open_pair(&p, client, server);
    assert_int_equal(shake(&p, 0), TLS_DONE);
    pass_tickets(&p);
    bool resumed = tls_resumed(p.server);
    close_pair(&p);
    return resumed;
}

static void test_resumption_by_ticket(void **state)
{
    (void)state;
    struct tls_context *server = make_server(cert_path, key_path), *client = make_client(cert_path);
    assert_false(comes_again(client, server));
    for (unsigned i = 0; i < 5; i++)
        assert_true(comes_again(client, server));
    tls_context_give(client);
    tls_context_give(server);
}

static void test_ticket_keys_rotate_and_the_one_before_still_opens(void **state)
{
    (void)state;
    struct tls_context *server = make_server(cert_path, key_path), *client = make_client(cert_path);
    comes_again(client, server);
    struct ticket_key first = server->tickets->key[0];
    server->tickets->born_ms -= TICKET_MS;
    assert_true(comes_again(client, server));
    assert_memory_equal(&server->tickets->key[1], &first, sizeof(first));
    assert_memory_not_equal(&server->tickets->key[0], &first, sizeof(first));
    server->tickets->born_ms -= 2 * (uint64_t)TICKET_MS; /* nobody came for two turns */
    assert_false(comes_again(client, server));
    assert_true(comes_again(client, server));
    tls_context_give(client);
    tls_context_give(server);
}

static void test_new_certificate_is_seen_by_who_has_a_ticket(void **state)
{
    (void)state;
    struct tls_context *old = make_server(cert_path, key_path),
                       *new = make_server(other_cert, other_key), *client = make_client(cert_path);
    assert_false(comes_again(client, old));
    struct pair p;
    open_pair(&p, client, new);
    assert_int_equal(shake(&p, 0), TLS_FAILED); /* as it does not trust that one */
    assert_non_null(strstr(tls_error(p.client), "certificate"));
    close_pair(&p);
    tls_context_give(client);
    tls_context_give(old);
    tls_context_give(new);
}

static void test_session_outlives_its_context(void **state)
{
    (void)state;
    struct tls_context *server = make_server(cert_path, key_path), *client = make_client(cert_path);
    struct pair p;
    open_pair(&p, client, server);
    tls_context_give(server);        /* a reload, in the middle of the handshake */
    assert_int_equal(shake(&p, 0), TLS_DONE);
    send_both_ways(&p, 0);
    tls_context_give(client);
    close_pair(&p);
}

/* ---- senseless bytes ---- */
/* Runs a handshake whose client bytes are damaged: whatever comes, it ends or waits. */
static void damaged_handshake(struct tls_context *client, struct tls_context *server, unsigned n)
{
    struct pair p;
    open_pair(&p, client, server);
    for (unsigned turn = 0; turn < 4; turn++) {
        (void)tls_handshake(p.client);
        struct span out = tls_out(p.client);
        size_t len = out.len;
        char *bytes = malloc(len + 64);
        memcpy(bytes, out.at, len);
        tls_sent(p.client, len);
        for (unsigned i = 0; len > 0 && i <= n % 5; i++)
            bytes[random_u64() % len] = (char)random_u64();
        if (n % 7 == 0)
            len = len ? random_u64() % len : 0;
        else if (n % 11 == 0)
            for (unsigned i = 0; i < 64; i++)
                bytes[len++] = (char)random_u64();
        assert_int_equal(tls_feed(p.server, bytes, len), len);
        enum tls_want want = tls_handshake(p.server);
        assert_true(tls_keep(p.server));
        free(bytes);
        if (want == TLS_FAILED) {
            assert_true(tls_error(p.server)[0] != '\0');
            break;
        }
        carry(p.server, p.client, 0);
    }
    tls_goodbye(p.server);
    close_pair(&p);
}

static void test_damaged_handshakes(void **state)
{
    (void)state;
    struct tls_context *server = make_server(cert_path, key_path), *client = make_client(cert_path);
    for (unsigned n = 0; n < 2000; n++)
        damaged_handshake(client, server, n);
    tls_context_give(client);
    tls_context_give(server);
}

static void test_other_protocols(void **state)
{
    (void)state;
    static const char *const words[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                        "SSH-2.0-OpenSSH_9.2\r\n",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01"};
    struct tls_context *server = make_server(cert_path, key_path);
    for (unsigned i = 0; i < ARRAY_COUNT(words); i++) {
        struct tls *t = tls_accept(server);
        struct span s = span_of(words[i]);
        assert_int_equal(tls_feed(t, s.at, s.len), s.len);
        assert_int_equal(tls_handshake(t), i < 3 ? TLS_FAILED : TLS_WANT_IN);
        tls_close(t);
    }
    tls_context_give(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unusable_files),
        cmocka_unit_test(test_key_that_others_can_read_is_refused_with_the_fix),
        cmocka_unit_test(test_key_with_passphrase_is_refused_without_asking),
        cmocka_unit_test(test_damaged_chain_is_refused),
        cmocka_unit_test(test_same_files_are_told),
        cmocka_unit_test(test_bytes_both_ways_however_they_are_cut),
        cmocka_unit_test(test_what_fits_is_what_can_be_sealed),
        cmocka_unit_test(test_resumption_by_ticket),
        cmocka_unit_test(test_ticket_keys_rotate_and_the_one_before_still_opens),
        cmocka_unit_test(test_new_certificate_is_seen_by_who_has_a_ticket),
        cmocka_unit_test(test_session_outlives_its_context),
        cmocka_unit_test(test_damaged_handshakes),
        cmocka_unit_test(test_other_protocols),
    };
    return cmocka_run_group_tests(tests, set_up_group, end_group);
}
