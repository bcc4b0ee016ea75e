/* TLS of the load client, over OpenSSL on the socket itself; kernel TLS stays off. One cipher, so
 * that every server does the same work: TLS 1.3 with AES-128-GCM.
 *
 * Invariants:
 *  1. secure_send() and secure_recv() answer as send() and recv() do: EAGAIN when the socket would
 *     block, 0 from secure_recv() at the end.
 *
 * Life: one context for the process, made with the first session. Failure: NULL, or -1 with EIO.
 * Limits: certificates are not verified: nobody stands between this client and loopback. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "bench/load.h"

enum { READ_BYTES = 256 * KIB };

static SSL_CTX *context(void)
{
    static SSL_CTX *made;

    if (made)
        return made;
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    if (!c)
        return NULL;
    SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_verify(c, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_mode(c, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(c, 1);
    SSL_CTX_set_default_read_buffer_len(c, READ_BYTES);
    made = c;
    return made;
}

struct ssl_st *secure_open(int fd)
{
    SSL *ssl = context() ? SSL_new(context()) : NULL;

    if (ssl && SSL_set_fd(ssl, fd) == 1 && SSL_connect(ssl) == 1)
        return ssl;
    SSL_free(ssl);
    return NULL;
}

void secure_close(struct ssl_st *ssl)
{
    SSL_free(ssl);
}

static ssize_t verdict(SSL *ssl, int n)
{
    if (n > 0)
        return n;
    int why = SSL_get_error(ssl, n);
    if (why == SSL_ERROR_ZERO_RETURN)
        return 0;
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EIO;
    return -1;
}

ssize_t secure_send(struct ssl_st *ssl, const void *bytes, size_t len)
{
    ERR_clear_error();
    return verdict(ssl, SSL_write(ssl, bytes, (int)len));
}

ssize_t secure_recv(struct ssl_st *ssl, void *out, size_t cap)
{
    ERR_clear_error();
    return verdict(ssl, SSL_read(ssl, out, (int)cap));
}
