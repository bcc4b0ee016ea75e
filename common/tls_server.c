/* What a TLS listener shows and keeps: certificate, key, protocol choice, session tickets.
 *
 * Invariants:
 *  1. A session may be resumed by a ticket only; nothing is kept per session, so any core accepts
 *     a ticket of any other.
 *  2. A ticket is sealed with the newest key, opened with that one or the one before: it lives for
 *     one to two hours. A context with another certificate has other keys, so that a client sees a
 *     new certificate at its next connection.
 *  3. The private key is read from a file that only its owner can read, and its bytes are wiped.
 *
 * Life: made at start and at reloads, freed with the last session that came through it.
 * Failure: unusable files are told with name and fix, and nothing is made; a ticket that cannot be
 * opened costs a full handshake. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tls_part.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>

#include "creds.h"

enum {
    TICKET_NAME_BYTES = 16,          /* fixed by OpenSSL's call */
    TICKET_MS = 3600 * 1000,
};

struct ticket_key {
    uint8_t name[TICKET_NAME_BYTES], cipher[32], mac[32];
};
struct tls_tickets {
    pthread_mutex_t lock;            /* held for a copy of 80 bytes */
    struct ticket_key key[2];        /* newest first */
    uint64_t born_ms;                /* of key[0] */
    EVP_CIPHER *aes;                 /* fetched once: fetching takes a lock and a search */
};

/* ---- tickets ---- */
void tls_tickets_give(struct tls_tickets *t)
{
    if (!t)
        return;
    EVP_CIPHER_free(t->aes);
    pthread_mutex_destroy(&t->lock);
    mem_give_secret(t, sizeof(*t));
}

static void renew_key(struct tls_tickets *t)
{
    t->key[1] = t->key[0];
    random_bytes((uint8_t *)&t->key[0], sizeof(t->key[0]));
    t->born_ms = clock_ms();
}

static struct tls_tickets *tickets_make(void)
{
    struct tls_tickets *t = mem_take(sizeof(*t));
    if (!t)
        return NULL;
    pthread_mutex_init(&t->lock, NULL);
    t->aes = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
    if (!t->aes) {
        tls_tickets_give(t);
        return NULL;
    }
    renew_key(t);
    renew_key(t);                    /* no key is all zero */
    return t;
}

static struct ticket_key newest_key(struct tls_tickets *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t age_ms = clock_ms() - t->born_ms;
    if (age_ms >= TICKET_MS)
        renew_key(t);
    if (age_ms >= 2 * TICKET_MS)     /* nobody came for long: the one before is too old as well */
        renew_key(t);
    struct ticket_key key = t->key[0];
    pthread_mutex_unlock(&t->lock);
    return key;
}

/* False: no key of ours that still counts. *newest: the ticket needs no replacement. */
static bool find_key(struct tls_tickets *t, const uint8_t name[TICKET_NAME_BYTES],
                     struct ticket_key *out, bool *newest)
{
    struct ticket_key now = newest_key(t);
    *newest = memcmp(now.name, name, TICKET_NAME_BYTES) == 0;
    *out = now;
    explicit_bzero(&now, sizeof(now));
    if (*newest)
        return true;
    pthread_mutex_lock(&t->lock);
    *out = t->key[1];
    pthread_mutex_unlock(&t->lock);
    return memcmp(out->name, name, TICKET_NAME_BYTES) == 0;
}

static bool set_mac(EVP_MAC_CTX *mac, struct ticket_key *key)
{
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key->mac, sizeof(key->mac)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* OpenSSL's call for each ticket. Sealing: 1 = go on, -1 = failed. Opening: 0 = unknown, 1 = good,
 * 2 = good, and hand out a new one. */
static int ticket_key(SSL *ssl, uint8_t name[TICKET_NAME_BYTES], uint8_t *iv, EVP_CIPHER_CTX *aes,
                      EVP_MAC_CTX *mac, int sealing)
{
    struct tls_tickets *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    struct ticket_key key;
    bool newest = true, good;
    if (sealing) {
        key = newest_key(t);
        memcpy(name, key.name, TICKET_NAME_BYTES);
        random_bytes(iv, (size_t)EVP_CIPHER_get_iv_length(t->aes));
        good = EVP_EncryptInit_ex2(aes, t->aes, key.cipher, iv, NULL) == 1;
    } else {
        if (!find_key(t, name, &key, &newest)) {
            explicit_bzero(&key, sizeof(key));
            return 0;
        }
        good = EVP_DecryptInit_ex2(aes, t->aes, key.cipher, iv, NULL) == 1;
    }
    good = good && set_mac(mac, &key);
    explicit_bzero(&key, sizeof(key));
    if (!good)
        return -1;
    /* A ticket of TLS 1.3 should be used once (RFC 8446 C.4): its user needs another. */
    return !sealing && (!newest || SSL_version(ssl) >= TLS1_3_VERSION) ? 2 : 1;
}

/* ---- what is offered ---- */
static int choose_protocol(SSL *ssl, const uint8_t **out, uint8_t *out_len, const uint8_t *in,
                           unsigned in_len, void *user)
{
    static const uint8_t ours[] = "\x08http/1.1";
    (void)ssl, (void)user;
    uint8_t *chosen = NULL;
    int found = SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len);
    *out = chosen;
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* AES-128-GCM first: the cheapest per byte where the CPU knows AES, and as safe as is needed. A
 * client without AES in hardware puts ChaCha20 first and gets it. */
static bool set_up(SSL_CTX *ssl)
{
    SSL_CTX_set_options(ssl, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_timeout(ssl, TICKET_MS / 1000);
    SSL_CTX_set_alpn_select_cb(ssl, choose_protocol, NULL);
    return SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_tlsext_ticket_key_evp_cb(ssl, ticket_key) == 1 &&
           SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                         "TLS_CHACHA20_POLY1305_SHA256") == 1 &&
           SSL_CTX_set_cipher_list(ssl, "ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20") == 1;
}

/* ---- certificate and key ---- */
struct files {
    const char *cert_path, *key_path;
    char *cert, *key;
    size_t cert_len, key_len;
};

static void wipe_files(struct files *f)
{
    if (f->cert)
        mem_give_secret(f->cert, f->cert_len + 1);
    if (f->key)
        mem_give_secret(f->key, f->key_len + 1);
}

/* A key with a passphrase would make OpenSSL ask at the terminal. */
static int no_passphrase(char *to, int cap, int writing, void *user)
{
    (void)to, (void)cap, (void)writing, (void)user;
    return -1;
}

static bool use_chain(SSL_CTX *ssl, const struct files *f, struct text *why)
{
    BIO *from = BIO_new_mem_buf(f->cert, (int)f->cert_len);
    X509 *own = from ? PEM_read_bio_X509(from, NULL, no_passphrase, NULL) : NULL, *more;
    bool good = own && SSL_CTX_use_certificate(ssl, own) == 1;
    if (!own)
        text_addf(why, "%s holds no PEM certificate", f->cert_path);
    else if (!good)
        text_addf(why, "%s: the first certificate cannot be used: %s", f->cert_path,
                  tls_last_reason());
    X509_free(own);
    while (good && (more = PEM_read_bio_X509(from, NULL, no_passphrase, NULL)) != NULL) {
        if (SSL_CTX_add0_chain_cert(ssl, more) == 1)
            continue;
        X509_free(more);
        text_addf(why, "%s: the chain cannot be used: %s", f->cert_path, tls_last_reason());
        good = false;
    }
    if (good && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
        text_addf(why, "%s: the chain is damaged: %s", f->cert_path, tls_last_reason());
        good = false;
    }
    ERR_clear_error();
    BIO_free(from);
    return good;
}

static bool use_key(SSL_CTX *ssl, const struct files *f, struct text *why)
{
    BIO *from = BIO_new_mem_buf(f->key, (int)f->key_len);
    EVP_PKEY *key = from ? PEM_read_bio_PrivateKey(from, NULL, no_passphrase, NULL) : NULL;
    bool good = false;
    if (!key)
        text_addf(why, "%s holds no PEM key that can be read without a passphrase; "
                       "openssl pkey -in %s -out NEW writes one", f->key_path, f->key_path);
    else if (SSL_CTX_use_PrivateKey(ssl, key) != 1 || SSL_CTX_check_private_key(ssl) != 1)
        text_addf(why, "%s is not the key of the first certificate in %s", f->key_path,
                  f->cert_path);
    else
        good = true;
    EVP_PKEY_free(key);
    BIO_free(from);
    return good;
}

static bool set_mark(struct tls_context *c, const struct files *f)
{
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    unsigned len = TLS_MARK_BYTES;
    bool good = digest && EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1 &&
                EVP_DigestUpdate(digest, f->cert, f->cert_len + 1) == 1 &&
                EVP_DigestUpdate(digest, f->key, f->key_len) == 1 &&
                EVP_DigestFinal_ex(digest, c->mark, &len) == 1;
    EVP_MD_CTX_free(digest);
    return good;
}

static bool read_end(struct tls_context *c)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(X509_get0_notAfter(SSL_CTX_get0_certificate(c->ssl)), &tm) != 1)
        return false;
    c->ends_s = timegm(&tm);
    return true;
}

static enum err make(const struct files *f, struct tls_context **out, struct text *why)
{
    struct tls_context *c = tls_context_new(TLS_server_method());
    if (c)
        c->tickets = tickets_make();
    if (!c || !c->tickets) {
        tls_context_give(c);
        text_adds(why, "no memory for TLS");
        return ERR_MEMORY;
    }
    bool set = SSL_CTX_set_app_data(c->ssl, c->tickets) == 1; /* it may need memory */
    bool good = use_chain(c->ssl, f, why) && use_key(c->ssl, f, why);
    if (good && !(set && set_up(c->ssl) && set_mark(c, f) && read_end(c))) {
        text_addf(why, "TLS cannot be set up: %s", tls_last_reason());
        good = false;
    }
    ERR_clear_error();
    bool starved = mem_plain_refused();
    if (starved && good)
        text_adds(why, "no memory for TLS");
    if (starved || !good) {
        tls_context_give(c);
        return starved ? ERR_MEMORY : ERR_CONFIG;
    }
    *out = c;
    return OK;
}

/* ---- the public face ---- */
enum err tls_server_make(const char *cert_file, const char *key_file, struct tls_context **out,
                         const char **why)
{
    static _Thread_local char sentence[TLS_SENTENCE_BYTES];
    struct files f = {.cert_path = cert_file, .key_path = key_file};
    struct text t;
    text_init(&t, sentence, sizeof(sentence));
    *why = sentence;
    ERR_clear_error();
    enum err e = creds_file(cert_file, false, &f.cert, &f.cert_len, &t);
    if (e == OK)
        e = creds_file(key_file, true, &f.key, &f.key_len, &t);
    e = e == OK ? make(&f, out, &t) : e == ERR_MEMORY ? e : ERR_CONFIG;
    wipe_files(&f);
    return e;
}

bool tls_server_same(const struct tls_context *a, const struct tls_context *b)
{
    return memcmp(a->mark, b->mark, TLS_MARK_BYTES) == 0;
}

int64_t tls_server_ends_s(const struct tls_context *c)
{
    return c->ends_s;
}
