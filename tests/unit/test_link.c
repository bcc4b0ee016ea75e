/* Links over TLS: whole answers, cut ones, wrong names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/link.c"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "tests/lib/scripted.h"

/* ---- TLS ---- */

static char ca_file[64];

static SSL_CTX *make_tls(const char *san)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const uint8_t *)"test", -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, san);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    snprintf(ca_file, sizeof(ca_file), "/tmp/headpond-test-ca-XXXXXX");
    FILE *f = fdopen(mkstemp(ca_file), "w");
    assert_int_equal(PEM_write_X509(f, cert), 1);
    fclose(f);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}

static const char *with_ca(const char *extra)
{
    static char text[256];
    snprintf(text, sizeof(text), "ca_file = \"%s\"\n%s", ca_file, extra);
    return text;
}

static void test_tls(void **state)
{
    (void)state;
    enum { BIG = 100 * 1000 };
    static char answer[BIG + 128];
    int head = snprintf(answer, 128, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BIG);
    for (int i = 0; i < BIG; i++)
        answer[head + i] = (char)('a' + i % 23);
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {answer, KEEP, false},
        {OK_ANSWER, CLOSE, false},
                                 {"HTTP/1.1 200 OK\r\n\r\nuntil the end", CLOSE, false},
                                 {"HTTP/1.1 200 OK\r\n\r\ncut", CUT, false}};
    up.tls = make_tls("IP:127.0.0.1");
    BEGIN(lines, with_ca(FAST));
    unlink(ca_file);
    assert_string_equal(get("a")->body, "hello");
    struct owner *o = get("b");
    assert_int_equal(o->len, BIG);
    assert_memory_equal(o->body, answer + head, BIG);
    assert_string_equal(get("c")->body, "hello");
    assert_string_equal(get("d")->body, "until the end");
    assert_true(get("e")->failed);   /* no close_notify: cut, not ended */
    assert_int_equal(retries(), 0);
    struct origin_status status;
    origin_status(server.origin[0], &status);
    assert_int_equal(status.tls_minor, 3);
    assert_in_range(status.certificate_ends_s, clock_wall_s() + 86000, clock_wall_s() + 86400);
    join_upstream();
    assert_int_equal(up.connections, 3);
}

static void test_tls_wrong_name(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}};
    up.tls = make_tls("IP:127.0.0.2");
    BEGIN(lines, with_ca("retries = 0\n"));
    unlink(ca_file);
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_TLS);
    join_upstream();
    assert_int_equal(up.requests, 0); /* nothing was said to it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOINED(test_tls),
        JOINED(test_tls_wrong_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
