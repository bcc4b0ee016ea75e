/* How a client's bytes travel: plain, or in TLS by OpenSSL over the socket itself, which shares
 * nothing with the server's way. And the certificates of a play.
 *
 * Invariants:
 *  1. A TLS socket does not block: every wait is client_wait()'s, which has a deadline.
 *  2. The server's certificate and the address it is for are verified at each full handshake.
 *  3. An end without close_notify is told apart from a clean one.
 *
 * Life: wire_open() to wire_close(); a client keeps its last session for the next connection.
 * Failure: opening fails the play; reading tells as recv() does. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/flow/play.h"
#include "tests/lib/certificate.h"

enum { SHAKE_MS = 10000, STALL_MS = 30000 };

/* ---- certificates ---- */

bool wire_certificate(struct play *p, const char *name)
{
    char cert_path[PATH_BYTES + 20], key_path[PATH_BYTES + 20];
    X509 *cert = NULL;

    snprintf(cert_path, sizeof cert_path, "%s/tls.pem", p->daemon.dir);
    snprintf(key_path, sizeof key_path, "%s/tls.key", p->daemon.dir);
    bool good = certificate_write(name, "IP:127.0.0.1", cert_path, key_path, &cert);
    if (!p->trust) {
        p->trust = SSL_CTX_new(TLS_client_method());
        must(p->trust);
        SSL_CTX_set_verify(p->trust, SSL_VERIFY_PEER, NULL);
        SSL_CTX_clear_mode(p->trust, SSL_MODE_AUTO_RETRY);
    }
    good &= X509_STORE_add_cert(SSL_CTX_get_cert_store(p->trust), cert) == 1;
    X509_free(cert);
    return good || play_fail(p, NULL, "no certificate could be made");
}

void wire_end(struct play *p)
{
    SSL_CTX_free(p->trust);
    p->trust = NULL;
}

bool wire_shown(const struct client *c, struct span name)
{
    char shown[100] = "";

    X509 *cert = c->tls ? SSL_get1_peer_certificate(c->tls) : NULL;
    if (cert)
        X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, shown,
                                  sizeof shown);
    X509_free(cert);
    return span_is(name, shown);
}

bool wire_resumed(const struct client *c)
{
    return c->tls && SSL_session_reused(c->tls) == 1;
}

/* ---- connections ---- */

/* 1: look again; 0: it takes too long. */
static int wait_for(struct client *c, int want, int limit_ms)
{
    struct pollfd p = {c->fd, want == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN, 0};

    return poll(&p, 1, limit_ms) > 0;
}

static bool shake(struct client *c)
{
    for (;;) {
        ERR_clear_error();
        int n = SSL_connect(c->tls), want = SSL_get_error(c->tls, n);
        if (n == 1)
            return true;
        if (want != SSL_ERROR_WANT_READ && want != SSL_ERROR_WANT_WRITE) {
            const char *reason = ERR_reason_error_string(ERR_peek_error());
            snprintf(c->refused, sizeof c->refused, "%s", reason ? reason : "closed");
            return false;
        }
        if (!wait_for(c, want, SHAKE_MS)) {
            snprintf(c->refused, sizeof c->refused, "no handshake in time");
            return false;
        }
    }
}

static bool begin_tls(struct client *c)
{
    c->tls = SSL_new(c->play->trust);
    must(c->tls);
    if (c->most_version)
        must(SSL_set_min_proto_version(c->tls, c->most_version < TLS1_2_VERSION
                                                   ? c->most_version : TLS1_2_VERSION) == 1 &&
             SSL_set_max_proto_version(c->tls, c->most_version) == 1);
    if (c->most_version && c->most_version < TLS1_2_VERSION)
        SSL_set_security_level(c->tls, 0); /* as 1.1 signs with SHA-1 */
    must(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(c->tls), "127.0.0.1") == 1);
    if (c->session)
        SSL_set_session(c->tls, c->session);
    must(SSL_set_fd(c->tls, c->fd) == 1);
    (void)fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
    return shake(c);
}

bool wire_open(struct client *c, uint16_t port)
{
    bool secure = c->play->tls && !c->admin && !c->plain;

    c->refused[0] = '\0';
    c->unclean = c->ended = false;
    c->fd = client_connect(port);
    if (c->fd < 0) {
        snprintf(c->refused, sizeof c->refused, "%s", strerror(errno));
        return false;
    }
    if (!secure || begin_tls(c))
        return true;
    wire_close(c);
    return false;
}

void wire_close(struct client *c)
{
    if (c->tls) {
        SSL_SESSION *now = SSL_get1_session(c->tls);
        if (now && SSL_SESSION_is_resumable(now)) {
            SSL_SESSION_free(c->session);
            c->session = now;
            SSL_SESSION_up_ref(now);
        }
        SSL_SESSION_free(now);
        SSL_set_shutdown(c->tls, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        SSL_free(c->tls);
        c->tls = NULL;
    }
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

void wire_forget(struct client *c)
{
    wire_close(c);
    SSL_SESSION_free(c->session);
    c->session = NULL;
}

void wire_half(struct client *c)
{
    if (c->tls)
        (void)SSL_shutdown(c->tls);
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_WR);
}

/* ---- bytes ---- */

/* What a call of OpenSSL that gave nothing means to a caller of recv(). */
static ssize_t nothing(struct client *c, int result)
{
    switch (SSL_get_error(c->tls, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: c->unclean = true; errno = ECONNRESET; return -1;
    }
}

bool wire_has(struct client *c)
{
    char byte;

    if (!c->tls)
        return true;
    ERR_clear_error();
    int n = SSL_peek(c->tls, &byte, 1);
    return n > 0 || nothing(c, n) == 0 || errno != EAGAIN;
}

ssize_t wire_recv(struct client *c, void *to, size_t cap, int flags)
{
    if (!c->tls)
        return recv(c->fd, to, cap, flags);
    ERR_clear_error();
    int most = (int)min_u64(cap, INT32_MAX);
    int n = flags & MSG_PEEK ? SSL_peek(c->tls, to, most) : SSL_read(c->tls, to, most);
    return n > 0 ? n : nothing(c, n);
}

ssize_t wire_send(struct client *c, const void *from, size_t len)
{
    if (!c->tls)
        return send(c->fd, from, len, MSG_NOSIGNAL);
    for (;;) {
        ERR_clear_error();
        int n = SSL_write(c->tls, from, (int)len), want = SSL_get_error(c->tls, n);
        if (n > 0)
            return n;
        if ((want != SSL_ERROR_WANT_WRITE && want != SSL_ERROR_WANT_READ) ||
            !wait_for(c, want, STALL_MS)) {
            errno = EPIPE;
            return -1;
        }
    }
}
