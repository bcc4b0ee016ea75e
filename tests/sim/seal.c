/* TLS for both sides of the simulated server: a client's session, and a front that speaks it before
 * the scripted origin; one certificate for both, made for the run.
 *
 * Invariants:
 *  1. Sessions work over memory; their bytes go through the simulation's sockets.
 *
 * Life: seal_files() once per run; a session per connection; the front from seal_front() to
 * seal_front_end().
 * Failure: a session that breaks ends its connection, as a peer's would. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "mem.h"
#include "tests/sim/sim.h"

enum { PUMP_BYTES = 16 * KIB, FRONT_PORT = 9443, PUMPS_MAX = 256 };

struct seal {
    SSL *ssl;
    BIO *in, *out;
};

/* ---- the certificate ---- */

static X509 *make_certificate(EVP_PKEY *key)
{
    X509 *x = X509_new();
    X509_NAME *name = X509_get_subject_name(x);
    X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
    X509_EXTENSION *ca = X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints, "CA:TRUE");

    must(name && names && ca);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -86400L);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400L * 365);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"sim", -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_set_pubkey(x, key);
    X509_add_ext(x, names, -1);
    X509_add_ext(x, ca, -1);
    must(X509_sign(x, key, EVP_sha256()) > 0);
    X509_EXTENSION_free(names);
    X509_EXTENSION_free(ca);
    return x;
}

static FILE *create(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

    must(f);
    return f;
}

const char *seal_file(bool key_wanted)
{
    static char cert[300], key[300];

    snprintf(cert, sizeof cert, "%s/cert.pem", life_dir());
    snprintf(key, sizeof key, "%s/key.pem", life_dir());
    if (access(cert, R_OK) != 0) {
        EVP_PKEY *pair = EVP_EC_gen("P-256");
        must(pair);
        X509 *x = make_certificate(pair);
        FILE *f = create(cert), *g = create(key);
        must(PEM_write_X509(f, x) == 1);
        must(PEM_write_PrivateKey(g, pair, NULL, NULL, 0, NULL, NULL) == 1);
        fclose(f);
        fclose(g);
        X509_free(x);
        EVP_PKEY_free(pair);
    }
    return key_wanted ? key : cert;
}

/* ---- a session over a socket ---- */

static struct seal *new_seal(SSL_CTX *ctx)
{
    struct seal *s = mem_take(sizeof *s);

    must(s && ctx);
    s->ssl = SSL_new(ctx);
    s->in = BIO_new(BIO_s_mem());
    s->out = BIO_new(BIO_s_mem());
    must(s->ssl && s->in && s->out);
    BIO_set_mem_eof_return(s->in, -1);
    BIO_set_mem_eof_return(s->out, -1);
    SSL_set_bio(s->ssl, s->in, s->out);
    return s;
}

struct seal *seal_client(void)
{
    static SSL_CTX *ctx;

    if (!ctx) {
        ctx = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    }
    struct seal *s = new_seal(ctx);
    SSL_set_connect_state(s->ssl);
    return s;
}

void seal_free(struct seal *s)
{
    if (s)
        SSL_free(s->ssl);
    mem_give(s);
}

/* A socket may take them piece by piece. False: the peer is gone. */
static bool send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t m = send(fd, bytes, len, MSG_NOSIGNAL);
        if (m <= 0)
            return false;
        bytes += m;
        len -= (size_t)m;
    }
    return true;
}

/* Sends what the session has to say; false: the peer is gone. */
bool seal_flush(struct seal *s, int fd)
{
    char bytes[PUMP_BYTES];
    int n;

    while ((n = BIO_read(s->out, bytes, sizeof bytes)) > 0)
        if (!send_all(fd, bytes, (size_t)n))
            return false;
    return true;
}

bool seal_write(struct seal *s, int fd, const void *bytes, size_t len)
{
    while (len > 0) {
        int n = SSL_write(s->ssl, bytes, (int)min_u64(len, PUMP_BYTES));
        if (n <= 0 && SSL_get_error(s->ssl, n) != SSL_ERROR_WANT_READ)
            return false;
        if (!seal_flush(s, fd))
            return false;
        if (n > 0) {
            bytes = (const char *)bytes + n;
            len -= (size_t)n;
            continue;
        }
        char raw[PUMP_BYTES];        /* the handshake wants an answer */
        ssize_t got = recv(fd, raw, sizeof raw, 0);
        if (got <= 0)
            return false;
        BIO_write(s->in, raw, (int)got);
    }
    return true;
}

int32_t seal_take(struct seal *s, const void *raw, int32_t len, void *out, uint32_t cap)
{
    if (len > 0)
        BIO_write(s->in, raw, len);
    int n = SSL_read(s->ssl, out, (int)cap);
    if (n > 0)
        return n;
    int why = SSL_get_error(s->ssl, n);
    return why == SSL_ERROR_ZERO_RETURN ? 0 : why == SSL_ERROR_WANT_READ ? -EAGAIN : -ECONNRESET;
}

/* ---- the front ---- */

static struct {
    pthread_t acceptor, pump[PUMPS_MAX];
    unsigned pumps;
    int listener, stop;
    SSL_CTX *ctx;
    bool running;
} front;

/* Sealed bytes came. False: their side has ended. */
static bool unseal(struct seal *s, int sealed, int plain)
{
    char bytes[PUMP_BYTES], raw[PUMP_BYTES];
    ssize_t n = recv(sealed, raw, sizeof raw, 0);
    int32_t m = n > 0 ? seal_take(s, raw, (int32_t)n, bytes, sizeof bytes) : 0;

    for (; m > 0; m = seal_take(s, NULL, 0, bytes, sizeof bytes))
        if (!send_all(plain, bytes, (size_t)m))
            return false;
    return seal_flush(s, sealed) && m == -EAGAIN;
}

/* Plain bytes came. False: their side has ended. */
static bool seal_up(struct seal *s, int sealed, int plain)
{
    char bytes[PUMP_BYTES];
    ssize_t n = recv(plain, bytes, sizeof bytes, 0);

    if (n == 0)
        SSL_shutdown(s->ssl);
    bool on = n > 0 && seal_write(s, sealed, bytes, (size_t)n);
    return seal_flush(s, sealed) && on;
}

/* Plain bytes from the origin become sealed ones, and back; until either side ends. */
static void pump(struct seal *s, int sealed, int plain)
{
    for (;;) {
        struct pollfd p[3] = {{sealed, POLLIN, 0}, {plain, POLLIN, 0}, {front.stop, POLLIN, 0}};
        poll(p, 3, -1);
        if (p[2].revents || (p[0].revents && !unseal(s, sealed, plain)) ||
            (p[1].revents && !seal_up(s, sealed, plain)))
            return;
    }
}

static void *serve_one(void *argument)
{
    int sealed = (int)(intptr_t)argument, plain = wire_client(store_port());
    struct seal *s = new_seal(front.ctx);

    SSL_set_accept_state(s->ssl);
    if (plain >= 0) {
        pump(s, sealed, plain);
        close(plain);
    }
    close(sealed);
    seal_free(s);
    return NULL;
}

static void *accept_all(void *argument)
{
    (void)argument;
    for (;;) {
        struct pollfd p[2] = {{front.stop, POLLIN, 0}, {front.listener, POLLIN, 0}};
        poll(p, 2, -1);
        if (p[0].revents)
            return NULL;
        int fd = accept4(front.listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (front.pumps == PUMPS_MAX)
            pthread_join(front.pump[--front.pumps], NULL);
        must(pthread_create(&front.pump[front.pumps++], NULL, serve_one, (void *)(intptr_t)fd) ==
             0);
    }
}

uint16_t seal_front(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(FRONT_PORT)};

    if (front.running)
        return FRONT_PORT;
    front.ctx = SSL_CTX_new(TLS_server_method());
    must(front.ctx && SSL_CTX_use_certificate_file(front.ctx, seal_file(false),
                                                   SSL_FILETYPE_PEM) == 1);
    must(SSL_CTX_use_PrivateKey_file(front.ctx, seal_file(true), SSL_FILETYPE_PEM) == 1);
    front.listener = socket(AF_INET, SOCK_STREAM, 0);
    front.stop = eventfd(0, 0);
    must(bind(front.listener, (const struct sockaddr *)(const void *)&at, sizeof at) == 0);
    must(listen(front.listener, 100) == 0);
    must(pthread_create(&front.acceptor, NULL, accept_all, NULL) == 0);
    front.running = true;
    return FRONT_PORT;
}

void seal_front_end(void)
{
    uint64_t one = 1;

    if (!front.running)
        return;
    must(write(front.stop, &one, sizeof one) == sizeof one);
    pthread_join(front.acceptor, NULL);
    while (front.pumps > 0)
        pthread_join(front.pump[--front.pumps], NULL);
    close(front.listener);
    close(front.stop);
    SSL_CTX_free(front.ctx);
    front.running = false;
}
