/* TLS over memory: OpenSSL with BIOs of our own, so that every byte on the wire goes through loop/.
 *
 * Invariants:
 *  1. Nothing here touches a socket. Bytes from the wire go in by tls_feed(), bytes for the wire come out of tls_out().
 *  2. A client context always verifies chain and name (SSL_set1_host / IP SAN), TLS >= 1.2, ALPN http/1.1, unless `insecure`.
 *  3. Errors end a session: after one, only tls_close() is legal. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TLS_H
#define HEADPOND_TLS_H

#include "base.h"

struct tls_context;                  /* one per upstream; shared by the cores, internally locked by OpenSSL only */
struct tls;                          /* one per connection, one thread */

/* ca_file "" = the system's store. ERR_CONFIG with *why (static or per-thread text). */
must_check enum err tls_context_make(const char *ca_file, bool insecure, struct tls_context **out, const char **why);
void tls_context_give(struct tls_context *c);

/* host: name for SNI and verification; an address literal is checked against IP SANs. NULL: no memory. */
must_check struct tls *tls_open(struct tls_context *c, const char *host, bool host_is_address);
void tls_close(struct tls *t);       /* frees; keeps the session for resumption in the context */

enum tls_want { TLS_DONE, TLS_WANT_IN, TLS_WANT_OUT, TLS_EOF, TLS_FAILED };
/* Drives the handshake. After each call bytes may wait in tls_out(). TLS_FAILED: tls_error(). */
enum tls_want tls_handshake(struct tls *t);
/* Lends bytes from the wire; returns how many were taken (all, unless memory is short). They are copied at most once. */
size_t tls_feed(struct tls *t, const void *bytes, size_t len);
/* Decrypts into out: TLS_DONE with *got > 0, TLS_WANT_IN, TLS_EOF (close_notify), TLS_FAILED. */
enum tls_want tls_read(struct tls *t, void *out, size_t cap, size_t *got);
/* Encrypts bytes; all are taken or TLS_FAILED. */
enum tls_want tls_write(struct tls *t, const void *bytes, size_t len);
/* Bytes to put on the wire; valid until tls_sent(). */
struct span tls_out(struct tls *t);
void tls_sent(struct tls *t, size_t len);
/* What went wrong, one line ("certificate verify failed: hostname mismatch"). */
const char *tls_error(struct tls *t);

#endif
