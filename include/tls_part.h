/* Inside common/tls*.c: what a context is made of.
 *
 * Invariants:
 *  1. A context is held by its maker and by each session, and freed by the last.
 *  2. kept[] is of clients, tickets of servers; no context has both. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TLS_PART_H
#define HEADPOND_TLS_PART_H

#include <pthread.h>
#include <stdatomic.h>

#include "tls.h"

enum {
    TLS_HOST_BYTES_MAX = 255,        /* RFC 1035 2.3.4 */
    TLS_KEPT_MAX = 64,               /* sessions per context: an upstream's usual connections */
    TLS_ERROR_BYTES = 256,
    TLS_SENTENCE_BYTES = 512,
    TLS_MARK_BYTES = 32,
};

struct ssl_ctx_st;
struct ssl_method_st;
struct ssl_session_st;
struct tls_tickets;

struct tls_kept {
    struct ssl_session_st *session;
    char host[TLS_HOST_BYTES_MAX + 1];
};

struct tls_context {
    struct ssl_ctx_st *ssl;
    _Atomic unsigned holders;
    pthread_mutex_t lock;            /* guards kept[]; held for a walk over names */
    unsigned kept_count;
    struct tls_kept kept[TLS_KEPT_MAX]; /* oldest first */
    struct tls_tickets *tickets;
    uint8_t mark[TLS_MARK_BYTES];    /* digest of certificate and key files */
    int64_t ends_s;
};

/* One holder: the caller. NULL: no memory. */
must_check struct tls_context *tls_context_new(const struct ssl_method_st *method);
void tls_tickets_give(struct tls_tickets *t);
const char *tls_last_reason(void);   /* of OpenSSL's newest error; static text */

#endif
