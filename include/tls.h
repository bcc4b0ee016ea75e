/* TLS over memory: OpenSSL with BIOs of our own, so that every byte on the wire goes through loop/.
 *
 * Invariants:
 *  1. Nothing here touches a socket. Bytes from the wire go in by tls_feed(), bytes for the wire
 *     come out of tls_out().
 *  2. A client context always verifies chain and name (SSL_set1_host / IP SAN), TLS >= 1.2, ALPN
 *     http/1.1, unless `insecure`.
 *  3. A server context serves one certificate, to any name; TLS >= 1.2, ALPN http/1.1 where the
 *     client speaks ALPN; its tickets are sealed with keys that change every hour and die with it.
 *  4. Errors end a session: after one, only tls_error(), tls_out() for the alert, and tls_close()
 *     are legal. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TLS_H
#define HEADPOND_TLS_H

#include "base.h"

enum {
    TLS_WRITE_BYTES_MAX = BLOCK_BYTES,
    TLS_RECORD_BYTES = 16 * KIB,     /* RFC 8446 5.1 */
    TLS_RECORD_EXTRA_BYTES = 256,    /* header, IV, tag, padding; RFC 8446 5.2 */
};

/* one per upstream or certificate; shared by the cores, locked inside for handshakes only */
struct tls_context;
struct tls;                          /* one per connection, one thread */

/* First of all in a process, before anything of OpenSSL: it allocates through mem_plain(). OpenSSL
 * goes on without what it had no memory for (a signature algorithm, an authority's key) and calls
 * the context whole; watched, such a context is refused. False: too late, nothing is watched. */
bool tls_watch_memory(void);
/* ca_file "" = the system's store. ERR_CONFIG, ERR_MEMORY with *why (static or per-thread text). */
must_check enum err tls_context_make(const char *ca_file, bool insecure, struct tls_context **out,
                                     const char **why);
struct tls_context *tls_context_hold(struct tls_context *c); /* one more to give it back */
/* Its sessions go on; the last of them frees it. NULL is fine. */
void tls_context_give(struct tls_context *c);

/* For listeners. cert_file: PEM, the server's own certificate first, then its chain; key_file: the
 * PEM key of that certificate, not encrypted, its mode not wider than 0600. ERR_CONFIG with *why
 * (per-thread text, with the fix), ERR_MEMORY. */
must_check enum err tls_server_make(const char *cert_file, const char *key_file,
                                    struct tls_context **out, const char **why);
/* Both were made from the same bytes: a reload then keeps the older, whose tickets live on. */
bool tls_server_same(const struct tls_context *a, const struct tls_context *b);
/* Unix time at which the certificate ends. */
int64_t tls_server_ends_s(const struct tls_context *c);

/* host: name for SNI and verification; an address literal (without brackets) is checked against IP
 * SANs.
 * NULL: no memory, or not a possible host. */
must_check struct tls *tls_open(struct tls_context *c, const char *host, bool host_is_address);
/* A session of a server context; NULL: no memory. */
must_check struct tls *tls_accept(struct tls_context *c);
/* After the handshake: the client came with a ticket, and no certificate was shown. */
bool tls_resumed(const struct tls *t);
/* After the handshake: 3 of TLS 1.3; when the peer's certificate ends, Unix time, 0: it is not
 * known. */
unsigned tls_minor(const struct tls *t);
uint64_t tls_peer_ends_s(const struct tls *t);
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
/* Whether tls_read() may give more without being fed. */
bool tls_holds_input(const struct tls *t);
/* Encrypts at most TLS_WRITE_BYTES_MAX bytes: TLS_DONE, all are taken; TLS_WANT_OUT, none was, as
 * too much waits in tls_out() already: send, then write again; TLS_FAILED. */
enum tls_want tls_write(struct tls *t, const void *bytes, size_t len);
/* The same into the caller's memory, so that a session that rests holds none: *sealed bytes are for
 * the wire. Nothing may wait in tls_out(), as it was said before; len at most tls_sealable(cap).
 * TLS_DONE or TLS_FAILED. */
enum tls_want tls_seal(struct tls *t, const void *bytes, size_t len, void *out, size_t cap,
                       size_t *sealed);
size_t tls_sealable(size_t room);    /* plain bytes that fit into it, whatever the cipher */
/* Says that nothing follows (close_notify), into tls_out(). */
void tls_goodbye(struct tls *t);
/* Bytes to put on the wire; they stay where they are until tls_sent(), whatever else is called
 * meanwhile. Look again after tls_sent(): more may have gathered. */
struct span tls_out(struct tls *t);
void tls_sent(struct tls *t, size_t len);
/* What went wrong, one line ("certificate verify failed: hostname mismatch"). */
const char *tls_error(struct tls *t);

#endif
