/* TLS over memory: OpenSSL with BIOs of our own, so that every byte on the wire goes through loop/.
 *
 * Invariants:
 *  1. Nothing here touches a socket. Bytes from the wire go in by tls_feed(), bytes for the wire
 *     come out of tls_out().
 *  2. A client context always verifies chain and name (SSL_set1_host / IP SAN), TLS >= 1.2, ALPN
 *     http/1.1, unless `insecure`.
 *  3. Errors end a session: after one, only tls_error(), tls_out() for the alert, and tls_close()
 *     are legal. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TLS_H
#define HEADPOND_TLS_H

#include "base.h"

enum { TLS_WRITE_BYTES_MAX = BLOCK_BYTES };

/* one per upstream; shared by the cores, locked inside for handshakes only */
struct tls_context;
struct tls;                          /* one per connection, one thread */

/* ca_file "" = the system's store. ERR_CONFIG, ERR_MEMORY with *why (static or per-thread text). */
must_check enum err tls_context_make(const char *ca_file, bool insecure, struct tls_context **out,
                                     const char **why);
void tls_context_give(struct tls_context *c); /* after its last session was closed; NULL is fine */

/* host: name for SNI and verification; an address literal (without brackets) is checked against IP
 * SANs.
 * NULL: no memory, or not a possible host. */
must_check struct tls *tls_open(struct tls_context *c, const char *host, bool host_is_address);
void tls_close(struct tls *t);       /* frees; keeps the session for resumption in the context */

enum tls_want { TLS_DONE, TLS_WANT_IN, TLS_WANT_OUT, TLS_EOF, TLS_FAILED };
/* Drives the handshake. After each call bytes may wait in tls_out(). TLS_FAILED: tls_error(). */
enum tls_want tls_handshake(struct tls *t);
/* Lends bytes from the wire; returns how many were taken: all, or 0 when memory is short. They are
 * read in place, so THEIR MEMORY MUST STAY until the session next answers TLS_WANT_IN (all is read
 * then), ends, or tls_keep() was called. Feeding again before that copies what is unread of the
 * earlier bytes, which must still be there. */
size_t tls_feed(struct tls *t, const void *bytes, size_t len);
/* Copies what is unread of the lent bytes, so that their memory may be used again; false when
 * memory is short (they stay lent). */
must_check bool tls_keep(struct tls *t);
/* Decrypts into out, as much as there is and fits: TLS_DONE with *got > 0, TLS_WANT_IN, TLS_EOF
 * (close_notify), TLS_FAILED. A connection that ends without TLS_EOF was cut. TLS_WANT_OUT: answers
 * wait unsent up to the bound; send, then read on. */
enum tls_want tls_read(struct tls *t, void *out, size_t cap, size_t *got);
/* Encrypts at most TLS_WRITE_BYTES_MAX bytes: TLS_DONE, all are taken; TLS_WANT_OUT, none was, as
 * too much waits in tls_out() already: send, then write again; TLS_FAILED. */
enum tls_want tls_write(struct tls *t, const void *bytes, size_t len);
/* Bytes to put on the wire; they stay where they are until tls_sent(), whatever else is called
 * meanwhile. Look again after tls_sent(): more may have gathered. */
struct span tls_out(struct tls *t);
void tls_sent(struct tls *t, size_t len);
/* What went wrong, one line ("certificate verify failed: hostname mismatch"). */
const char *tls_error(struct tls *t);

#endif
