/* TLS sessions over memory, of both sides: OpenSSL with a BIO of our own on each session.
 *
 * Invariants:
 *  1. Lent input is read in place; what is still unread is copied once, and only when the lender
 *     needs its memory back (tls_keep) or lends more.
 *  2. Bytes shown by tls_out() neither move nor change until tls_sent(): new output gathers in a
 *     second buffer, so a send may be under way while the session goes on.
 *  3. Output is bounded: tls_write() takes all or nothing and reserves its room before it encrypts.
 *  4. A kept session is offered only to the host name it was verified for: resumption skips the
 *     certificate, so a session of another name would skip that name's check.
 * Life: a context is shared and lives until its maker and its last session have left it; a session
 * belongs to one connection and one thread. Kept sessions of a client move into the context when
 * the server hands out tickets, and out at tls_open().
 * Failure: the first one is sticky and has a sentence; an alert may still wait in tls_out().
 * Limits: TLS 1.2 and 1.3, ALPN http/1.1, no client certificates, no renegotiation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tls_part.h"
#include "mem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <time.h>

enum {
    IN_BYTES_MAX = 4 * MIB,          /* unread input that was copied */
    OUT_BYTES_MIN = 4 * KIB,
    OUT_BYTES_KEPT = 256 * KIB,      /* a drained buffer above this is given back */
    OUT_BYTES_MAX = 2 * TLS_WRITE_BYTES_MAX,
};

struct bytes {
    uint8_t *at;                     /* owned */
    size_t from, to, cap;            /* at[from..to) waits */
};

struct tls {
    SSL *ssl;
    struct tls_context *context;     /* held */
    const uint8_t *lent;             /* borrowed from the caller; read behind `in` */
    size_t lent_len;
    struct bytes in;                 /* copied, as its lender needed the memory */
    struct bytes leaving;            /* shown by tls_out() */
    struct bytes gathering;
    struct bytes sealing;            /* the caller's memory, within tls_seal() */
    size_t kept_bytes;               /* a drained buffer above this is given back */
    bool failed;
    char *host;                      /* of a client's session */
    char error[TLS_ERROR_BYTES];
};

/* ---- growing bytes ---- */
/* Makes room for `more` bytes at the end; what waits may move. */
static bool reserve(struct bytes *b, size_t more, size_t max)
{
    size_t waiting = b->to - b->from;
    if (b->cap - b->to >= more)
        return true;
    if (more > max || waiting > max - more)
        return false;
    if (b->from > 0) {
        memmove(b->at, b->at + b->from, waiting);
        b->from = 0;
        b->to = waiting;
    }
    size_t cap = b->cap ? b->cap : OUT_BYTES_MIN;
    while (cap < waiting + more)
        cap *= 2;
    if (cap == b->cap)
        return true;
    uint8_t *at = mem_grow(b->at, cap);
    if (!at)
        return false;
    b->at = at;
    b->cap = cap;
    return true;
}

static void add(struct bytes *b, const void *from, size_t len)
{
    must(b->cap - b->to >= len);
    memcpy(b->at + b->to, from, len);
    b->to += len;
}

static void take(struct bytes *b, size_t len, size_t kept_bytes)
{
    must(len <= b->to - b->from);
    b->from += len;
    if (b->from < b->to)
        return;
    b->from = b->to = 0;
    if (b->cap > kept_bytes) {
        mem_give(b->at);
        *b = (struct bytes){0};
    }
}

/* ---- the BIO: one for both directions ---- */
static size_t read_part(struct tls *t, char *out, size_t cap)
{
    struct bytes *in = &t->in;
    size_t n = min_u64(cap, in->to - in->from);
    memcpy(out, in->at + in->from, n);
    take(in, n, t->kept_bytes);
    return n;
}

static int read_bio(BIO *bio, char *out, size_t cap, size_t *got)
{
    struct tls *t = BIO_get_data(bio);
    size_t n = 0;
    BIO_clear_retry_flags(bio);
    if (t->in.to > t->in.from)
        n = read_part(t, out, cap);
    size_t rest = min_u64(cap - n, t->lent_len);
    if (rest > 0) {
        memcpy(out + n, t->lent, rest);
        t->lent += rest;
        t->lent_len -= rest;
        n += rest;
    }
    *got = n;
    if (n == 0)
        BIO_set_retry_read(bio);
    return n > 0;
}

static int write_bio(BIO *bio, const char *from, size_t len, size_t *taken)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *taken = 0;
    if (t->sealing.at) {             /* room for whole records was seen to before */
        add(&t->sealing, from, len);
        *taken = len;
        return 1;
    }
    if (!reserve(&t->gathering, len, OUT_BYTES_MAX)) {
        BIO_set_retry_write(bio);
        return 0;
    }
    add(&t->gathering, from, len);
    *taken = len;
    return 1;
}

static long control_bio(BIO *bio, int command, long number, void *at)
{
    (void)bio, (void)number, (void)at;
    return command == BIO_CTRL_FLUSH; /* nothing is held back below us */
}

static BIO_METHOD *bio_method;       /* one for the process; never freed, as sessions point to it */
static pthread_once_t bio_once = PTHREAD_ONCE_INIT;

static void make_bio_method(void)
{
    int index = BIO_get_new_index();
    BIO_METHOD *m = index < 0 ? NULL : BIO_meth_new(index | BIO_TYPE_SOURCE_SINK, "headpond");
    if (!m || !BIO_meth_set_read_ex(m, read_bio) || !BIO_meth_set_write_ex(m, write_bio) ||
        !BIO_meth_set_ctrl(m, control_bio)) {
        BIO_meth_free(m);
        return;
    }
    bio_method = m;
}

/* ---- sessions kept for resumption ---- */
static void remove_kept(struct tls_context *c, unsigned i)
{
    c->kept_count--;
    memmove(&c->kept[i], &c->kept[i + 1], (c->kept_count - i) * sizeof(c->kept[0]));
}

/* OpenSSL's call for each new session (1.2) or ticket (1.3). Returning 1 keeps the reference. */
static int keep_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls *t = SSL_get_app_data(ssl);
    struct tls_context *c = t->context;
    SSL_SESSION *oldest = NULL;
    if (!SSL_SESSION_is_resumable(session))
        return 0;
    pthread_mutex_lock(&c->lock);
    if (c->kept_count == TLS_KEPT_MAX) {
        oldest = c->kept[0].session;
        remove_kept(c, 0);
    }
    struct tls_kept *k = &c->kept[c->kept_count++];
    k->session = session;
    snprintf(k->host, sizeof(k->host), "%s", t->host);
    pthread_mutex_unlock(&c->lock);
    SSL_SESSION_free(oldest);
    return 1;
}

/* The newest one for that host; the caller frees. A TLS 1.3 ticket is taken out, as it should be
 * used once (RFC 8446 C.4); an older session stays, since resuming it makes no new one. */
static SSL_SESSION *take_session(struct tls_context *c, const char *host)
{
    SSL_SESSION *found = NULL;
    pthread_mutex_lock(&c->lock);
    for (unsigned i = c->kept_count; i > 0 && !found; i--) {
        if (strcmp(c->kept[i - 1].host, host) != 0)
            continue;
        found = c->kept[i - 1].session;
        if (SSL_SESSION_get_protocol_version(found) >= TLS1_3_VERSION)
            remove_kept(c, i - 1);
        else if (!SSL_SESSION_up_ref(found))
            found = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* ---- contexts ---- */
const char *tls_last_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason ? reason : "unknown error";
}

static void *take_memory(size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return mem_plain(bytes);
}

static void *grow_memory(void *old, size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return mem_plain_grow(old, bytes);
}

static void give_memory(void *at, const char *file, int line)
{
    (void)file;
    (void)line;
    mem_give(at);
}

bool tls_watch_memory(void)
{
    return CRYPTO_set_mem_functions(take_memory, grow_memory, give_memory) == 1;
}

struct tls_context *tls_context_new(const SSL_METHOD *method)
{
    mem_plain_refused();
    pthread_once(&bio_once, make_bio_method);
    struct tls_context *c = mem_take(sizeof(*c));
    if (!c || !bio_method) {
        mem_give(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    atomic_init(&c->holders, 1);
    c->ssl = SSL_CTX_new(method);
    if (!c->ssl) {
        tls_context_give(c);
        return NULL;
    }
    return c;
}

struct tls_context *tls_context_hold(struct tls_context *c)
{
    atomic_fetch_add_explicit(&c->holders, 1, memory_order_relaxed);
    return c;
}

static bool set_up(SSL_CTX *ssl, bool insecure)
{
    static const uint8_t alpn[] = "\x08http/1.1";
    SSL_CTX_set_verify(ssl, insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(ssl, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ssl, keep_session);
    return SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_alpn_protos(ssl, alpn, sizeof(alpn) - 1) == 0;
}

static bool load_trust(SSL_CTX *ssl, const char *ca_file)
{
    if (ca_file[0] == '\0')
        return SSL_CTX_set_default_verify_paths(ssl) == 1;
    /* An intermediate or the server's own certificate may be the trusted one, as curl has it. */
    X509_STORE_set_flags(SSL_CTX_get_cert_store(ssl), X509_V_FLAG_PARTIAL_CHAIN);
    return SSL_CTX_load_verify_file(ssl, ca_file) == 1;
}

enum err tls_context_make(const char *ca_file, bool insecure, struct tls_context **out,
                          const char **why)
{
    static _Thread_local char sentence[TLS_SENTENCE_BYTES];
    static const char no_memory[] = "no memory for TLS";
    ERR_clear_error();
    struct tls_context *c = tls_context_new(TLS_client_method());
    *why = no_memory;
    if (!c)
        return ERR_MEMORY;
    if (!set_up(c->ssl, insecure)) {
        snprintf(sentence, sizeof(sentence), "TLS cannot be set up: %s", tls_last_reason());
        goto fail;
    }
    if (!load_trust(c->ssl, ca_file)) {
        snprintf(sentence, sizeof(sentence), "no certificates could be read from %s: %s",
                 ca_file[0] ? ca_file : "the system's store", tls_last_reason());
        goto fail;
    }
    if (mem_plain_refused()) {
        tls_context_give(c);
        return ERR_MEMORY;
    }
    *out = c;
    return OK;
fail:
    ERR_clear_error();
    tls_context_give(c);
    *why = sentence;
    return ERR_CONFIG;
}

void tls_context_give(struct tls_context *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->holders, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; i < c->kept_count; i++)
        SSL_SESSION_free(c->kept[i].session);
    SSL_CTX_free(c->ssl);
    tls_tickets_give(c->tickets);
    pthread_mutex_destroy(&c->lock);
    mem_give(c);
}

/* ---- a session's life ---- */
/* SNI is for names only (RFC 6066 3). */
static bool expect_host(SSL *ssl, const char *host, bool host_is_address)
{
    if (host_is_address)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

static bool attach_bio(struct tls *t)
{
    BIO *bio = BIO_new(bio_method);
    if (!bio)
        return false;
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);   /* the SSL owns it now, once for both directions */
    return true;
}

static void unmake(struct tls *t)
{
    SSL_free(t->ssl);
    tls_context_give(t->context);
    mem_give(t->host);
    mem_give(t->in.at);
    mem_give(t->leaving.at);
    mem_give(t->gathering.at);
    mem_give(t);
}

static struct tls *make(struct tls_context *c)
{
    struct tls *t = mem_take(sizeof(*t));
    if (!t)
        return NULL;
    t->context = tls_context_hold(c);
    t->ssl = SSL_new(c->ssl);
    if (t->ssl && attach_bio(t) && SSL_set_app_data(t->ssl, t) == 1) /* it may need memory */
        return t;
    unmake(t);
    ERR_clear_error();
    return NULL;
}

struct tls *tls_open(struct tls_context *c, const char *host, bool host_is_address)
{
    size_t host_len = strlen(host);
    if (host_len == 0 || host_len > TLS_HOST_BYTES_MAX)
        return NULL;
    struct tls *t = make(c);
    if (!t)
        return NULL;
    t->host = mem_copy(span_of(host));
    t->kept_bytes = OUT_BYTES_KEPT;
    if (!t->host || !expect_host(t->ssl, host, host_is_address)) {
        unmake(t);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_connect_state(t->ssl);
    SSL_SESSION *session = take_session(c, host);
    if (session)
        SSL_set_session(t->ssl, session);
    SSL_SESSION_free(session);
    return t;
}

struct tls *tls_accept(struct tls_context *c)
{
    struct tls *t = make(c);
    if (t)
        SSL_set_accept_state(t->ssl);
    return t;
}

void tls_close(struct tls *t)
{
    if (!t)
        return;
    /* Without this SSL_free() takes the end for a broken one and makes the kept session useless. */
    if (!t->failed)
        SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    unmake(t);
}

void tls_goodbye(struct tls *t)
{
    if (t->failed || !SSL_is_init_finished(t->ssl))
        return;
    ERR_clear_error();
    (void)SSL_shutdown(t->ssl);      /* what it could not say is not missed: the socket closes */
    ERR_clear_error();
}

/* ---- verdicts ---- */
/* The certificate's own verdict says more than the alert that it caused. */
static enum tls_want fail(struct tls *t, const char *sentence)
{
    unsigned long first = ERR_peek_error();
    long verdict = SSL_get_verify_result(t->ssl);
    const char *reason = ERR_reason_error_string(first);
    t->failed = true;
    if (sentence)
        snprintf(t->error, sizeof(t->error), "%s", sentence);
    else if (ERR_GET_REASON(first) == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK)
        snprintf(t->error, sizeof(t->error), "certificate verify failed: %s",
                 X509_verify_cert_error_string(verdict));
    else
        snprintf(t->error, sizeof(t->error), "%s",
                 reason ? reason : "the session ended without a reason");
    ERR_clear_error();
    return TLS_FAILED;
}

static enum tls_want want_of(struct tls *t, int result)
{
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return TLS_WANT_IN;
    case SSL_ERROR_WANT_WRITE:
        return TLS_WANT_OUT;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_EOF;
    default:
        return fail(t, NULL);
    }
}

const char *tls_error(struct tls *t)
{
    return t->error;
}

/* ---- bytes ---- */
enum tls_want tls_handshake(struct tls *t)
{
    if (t->failed)
        return TLS_FAILED;
    ERR_clear_error();
    int result = SSL_do_handshake(t->ssl);
    return result == 1 ? TLS_DONE : want_of(t, result);
}

bool tls_keep(struct tls *t)
{
    if (t->lent_len == 0)
        return true;
    if (!reserve(&t->in, t->lent_len, IN_BYTES_MAX))
        return false;
    add(&t->in, t->lent, t->lent_len);
    t->lent = NULL;
    t->lent_len = 0;
    return true;
}

size_t tls_feed(struct tls *t, const void *bytes, size_t len)
{
    if (!tls_keep(t))
        return 0;
    t->lent = bytes;
    t->lent_len = len;
    return len;
}

enum tls_want tls_read(struct tls *t, void *out, size_t cap, size_t *got)
{
    size_t sum = 0;
    must(cap > 0);
    if (t->failed)
        return TLS_FAILED;
    while (sum < cap) {
        size_t n = 0;
        ERR_clear_error();
        int result = SSL_read_ex(t->ssl, (char *)out + sum, cap - sum, &n);
        if (result != 1) {
            enum tls_want want = want_of(t, result);
            if (sum == 0)
                return want;
            break;                   /* the end or the failure is told by the next call */
        }
        sum += n;
    }
    *got = sum;
    return TLS_DONE;
}

bool tls_resumed(const struct tls *t)
{
    return SSL_session_reused(t->ssl) == 1;
}

unsigned tls_minor(const struct tls *t)
{
    return SSL_version(t->ssl) == TLS1_3_VERSION ? 3 : 2;
}

uint64_t tls_peer_ends_s(const struct tls *t)
{
    X509 *shown = SSL_get0_peer_certificate(t->ssl);
    struct tm at;

    if (!shown || ASN1_TIME_to_tm(X509_get0_notAfter(shown), &at) != 1)
        return 0;
    time_t s = timegm(&at);
    return s > 0 ? (uint64_t)s : 0;
}

bool tls_holds_input(const struct tls *t)
{
    return t->lent_len > 0 || t->in.to > t->in.from || SSL_pending(t->ssl) > 0;
}

size_t tls_sealable(size_t room)
{
    enum { SEALED_BYTES = TLS_RECORD_BYTES + TLS_RECORD_EXTRA_BYTES };
    size_t rest = room % SEALED_BYTES;
    return room / SEALED_BYTES * TLS_RECORD_BYTES +
           (rest > TLS_RECORD_EXTRA_BYTES ? rest - TLS_RECORD_EXTRA_BYTES : 0);
}

/* Encrypts into what reserve() or tls_sealable() has made sure of. */
static enum tls_want encrypt_bytes(struct tls *t, const void *bytes, size_t len)
{
    size_t taken = 0;
    ERR_clear_error();
    int result = SSL_write_ex(t->ssl, bytes, len, &taken);
    if (result == 1)
        return TLS_DONE;
    /* Nothing may be half taken: whatever else OpenSSL waits for ends the session. */
    enum tls_want want = want_of(t, result);
    if (want == TLS_FAILED)
        return want;
    return fail(t, want == TLS_EOF ? "the peer closed the session" : "the session is not ready");
}

enum tls_want tls_seal(struct tls *t, const void *bytes, size_t len, void *out, size_t cap,
                       size_t *sealed)
{
    must(len > 0 && len <= tls_sealable(cap) && tls_out(t).len == 0);
    if (t->failed)
        return TLS_FAILED;
    t->sealing = (struct bytes){.at = out, .cap = cap};
    enum tls_want want = encrypt_bytes(t, bytes, len);
    *sealed = t->sealing.to;
    t->sealing = (struct bytes){0};
    return want;
}

enum tls_want tls_write(struct tls *t, const void *bytes, size_t len)
{
    must(len <= TLS_WRITE_BYTES_MAX);
    if (t->failed)
        return TLS_FAILED;
    if (len == 0)
        return TLS_DONE;
    size_t sealed = len + (len / TLS_RECORD_BYTES + 1) * TLS_RECORD_EXTRA_BYTES;
    if (t->gathering.to - t->gathering.from + sealed > OUT_BYTES_MAX)
        return TLS_WANT_OUT;
    if (!reserve(&t->gathering, sealed, OUT_BYTES_MAX))
        return fail(t, "no memory for bytes to send");
    return encrypt_bytes(t, bytes, len);
}

struct span tls_out(struct tls *t)
{
    struct bytes *b = &t->leaving;
    if (b->to == b->from) {
        struct bytes empty = *b;
        *b = t->gathering;
        t->gathering = empty;
    }
    return b->at ? span_make(b->at + b->from, b->to - b->from) : span_of("");
}

void tls_sent(struct tls *t, size_t len)
{
    take(&t->leaving, len, t->kept_bytes);
}
