/* Digests, hex, base64, CRC32C, the canonical request of Signature Version 4, signing for upstream.
 *
 * Invariants:
 *  1. All EVP objects belong to one thread and are made by sign_setup_thread(); nothing is fetched
 *     later.
 *  2. Nothing here allocates after that, OpenSSL included: scratch is on the stack, at most 90 KiB
 *     deep in all.
 *  3. A canonical query is sorted by encoded name, then encoded value; duplicates stay; only
 *     X-Amz-Signature is left out. A path is encoded once and never normalised ("//", "." and ".."
 *     are parts of keys).
 * Life: the engine lives from sign_setup_thread() to sign_end_thread(); day keys with the callers.
 * Failure: undecodable, oversized and incomplete requests are errors of the call. OpenSSL refusing
 * to hash memory it was given is no event that can be served around: it stops the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sign.h"

#include <isa-l/crc.h>
#include <limits.h>

/* SHA-256 by its low-level functions, which OpenSSL 3.0 deprecates but keeps: the EVP layer
 * allocates at each restart of a context (three times per signature, with contexts kept ready, too;
 * bench/micro/sign.c) and cannot go on from the middle of an HMAC. Both run the same code below. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

enum {
    QUERY_PAIRS_MAX = 128,
    SIGNED_LIST_BYTES_MAX = 4 * KIB,
    CANONICAL_BYTES_MAX = 48 * KIB,  /* a target of 8 KiB encodes to at most 24 KiB */
};

const char sign_empty_sha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/* ---- the thread's engine: MD5, which no hot path needs ---- */
struct engine {
    EVP_MD *md5;
    EVP_MD_CTX *md5_ctx;
};
static _Thread_local struct engine engine;

/* In OpenSSL 3.0 a default library context that could not be made is still handed out, and its
 * first lock is a null pointer. This call alone tells. */
static bool openssl_is_up(void)
{
    return OSSL_LIB_CTX_get0_global_default() && OPENSSL_init_crypto(0, NULL) == 1;
}

enum err sign_setup(void)
{
    mem_plain_refused();
    if (!openssl_is_up())
        return ERR_MEMORY;
    enum err e = sign_setup_thread(); /* loads the provider, too */
    sign_end_thread();
    return e == OK && mem_plain_refused() ? ERR_MEMORY : e;
}

enum err sign_setup_thread(void)
{
    struct engine *e = &engine;
    if (e->md5_ctx)
        return OK;
    e->md5 = EVP_MD_fetch(NULL, "MD5", NULL);
    e->md5_ctx = EVP_MD_CTX_new();
    if (e->md5 && e->md5_ctx)
        return OK;
    sign_end_thread();
    return ERR_SYSTEM;
}

void sign_end_thread(void)
{
    struct engine *e = &engine;
    EVP_MD_CTX_free(e->md5_ctx);
    EVP_MD_free(e->md5);
    *e = (struct engine){NULL, NULL};
}

/* ---- digests ---- */
void md5(struct span data, uint8_t out[MD5_BYTES])
{
    const struct engine *e = &engine;
    must(e->md5_ctx);                /* sign_setup_thread() was called on this thread */
    must(EVP_DigestInit_ex2(e->md5_ctx, e->md5, NULL) == 1);
    must(EVP_DigestUpdate(e->md5_ctx, data.at, data.len) == 1);
    must(EVP_DigestFinal_ex(e->md5_ctx, out, NULL) == 1);
}

static void hash_add(SHA256_CTX *hash, struct span part)
{
    if (part.len > 0)
        must(SHA256_Update(hash, part.at, part.len) == 1);
}

void sha256(struct span data, uint8_t out[SHA256_BYTES])
{
    SHA256_CTX hash;
    must(SHA256_Init(&hash) == 1);
    hash_add(&hash, data);
    must(SHA256_Final(out, &hash) == 1);
}

/* ---- HMAC (RFC 2104) ---- */
/* The padded key is the first block of both hashes: what SHA-256 makes of it is kept instead. */
static void state_after(uint8_t pad[SHA256_CBLOCK], uint8_t mask, uint32_t out[8])
{
    SHA256_CTX hash;
    for (unsigned i = 0; i < SHA256_CBLOCK; i++)
        pad[i] ^= mask;
    must(SHA256_Init(&hash) == 1);
    must(SHA256_Update(&hash, pad, SHA256_CBLOCK) == 1);
    memcpy(out, hash.h, sizeof(hash.h));
    OPENSSL_cleanse(&hash, sizeof(hash));
}

static void set_key(struct sign_key *key, const uint8_t *bytes, size_t len)
{
    uint8_t pad[SHA256_CBLOCK] = {0};
    if (len > sizeof(pad))
        sha256(span_make(bytes, len), pad);
    else if (len > 0)
        memcpy(pad, bytes, len);
    state_after(pad, 0x36, key->inner);
    state_after(pad, 0x36 ^ 0x5c, key->outer);
    OPENSSL_cleanse(pad, sizeof(pad));
}

static void resume(SHA256_CTX *hash, const uint32_t state[8])
{
    must(SHA256_Init(hash) == 1);
    memcpy(hash->h, state, sizeof(hash->h));
    hash->Nl = SHA256_CBLOCK * 8;    /* bits so far: the padded key */
}

static void hmac_end(SHA256_CTX *hash, const struct sign_key *key, uint8_t out[SHA256_BYTES])
{
    must(SHA256_Final(out, hash) == 1);
    resume(hash, key->outer);
    must(SHA256_Update(hash, out, SHA256_BYTES) == 1);
    must(SHA256_Final(out, hash) == 1);
}

void hmac_sha256(const uint8_t *key, size_t key_len, struct span data, uint8_t out[SHA256_BYTES])
{
    struct sign_key set;
    SHA256_CTX hash;
    set_key(&set, key, key_len);
    resume(&hash, set.inner);
    hash_add(&hash, data);
    hmac_end(&hash, &set, out);
    OPENSSL_cleanse(&set, sizeof(set));
}

bool equal_in_constant_time(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}

uint32_t crc32c(uint32_t crc, const void *bytes, size_t len)
{
    uint8_t *at = (uint8_t *)(uintptr_t)bytes; /* isa-l does not write, its prototype lacks const */
    crc = ~crc;
    while (len > 0) {
        size_t part = len < INT_MAX ? len : INT_MAX;
        crc = crc32_iscsi(at, (int)part, crc);
        at += part;
        len -= part;
    }
    return ~crc;
}

/* Remainders modulo Castagnoli's polynomial, bits reflected: the highest is x^0. */
enum { CRC32C_POLYNOMIAL = 0x82F63B78 };

static uint32_t crc32c_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b & 1 ? b >> 1 ^ (uint32_t)CRC32C_POLYNOMIAL : b >> 1;
    }
    return product;
}

uint32_t crc32c_distance(uint64_t bytes)
{
    uint32_t power = 0x80000000 >> 8, distance = 0x80000000; /* x^8, x^0 */
    for (; bytes > 0; bytes >>= 1) {
        if (bytes & 1)
            distance = crc32c_multiply(distance, power);
        power = crc32c_multiply(power, power);
    }
    return distance;
}

/* CRCs of the same bytes differ only by what they began with, carried on over the bytes. */
uint32_t crc32c_begun_at(uint32_t crc, uint32_t from, uint32_t to, uint32_t distance)
{
    return crc ^ crc32c_multiply(from ^ to, distance);
}

/* ---- hex and base64 ---- */
void hex_write(const uint8_t *in, size_t len, char *out)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digit[in[i] >> 4];
        out[2 * i + 1] = digit[in[i] & 15];
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

enum err hex_read(struct span in, uint8_t *out, size_t len)
{
    if (in.len % 2 != 0 || in.len / 2 != len)
        return ERR_SYNTAX;
    for (size_t i = 0; i < in.len; i++)
        if (hex_digit(in.at[i]) < 0)
            return ERR_SYNTAX;
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)(hex_digit(in.at[2 * i]) * 16 + hex_digit(in.at[2 * i + 1]));
    return OK;
}

static const char base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_write(const uint8_t *in, size_t len, char *out, size_t cap)
{
    if (len > SIZE_MAX / 2 || (len + 2) / 3 * 4 > cap)
        return 0;
    size_t n = 0;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t bits = (uint32_t)in[i] << 16;
        if (left > 1)
            bits |= (uint32_t)in[i + 1] << 8;
        if (left > 2)
            bits |= in[i + 2];
        out[n++] = base64_alphabet[bits >> 18];
        out[n++] = base64_alphabet[bits >> 12 & 63];
        out[n++] = left > 1 ? base64_alphabet[bits >> 6 & 63] : '=';
        out[n++] = left > 2 ? base64_alphabet[bits & 63] : '=';
    }
    return n;
}

static int base64_digit(char c)
{
    const char *at = c ? strchr(base64_alphabet, c) : NULL;
    return at ? (int)(at - base64_alphabet) : -1;
}

/* RFC 4648 4, strict: padded, no blanks, no bits behind the end (3.5), so that one value has one
 * spelling. */
enum err base64_read(struct span in, uint8_t *out, size_t cap, size_t *len)
{
    if (in.len % 4 != 0)
        return ERR_SYNTAX;
    size_t digits = in.len;
    while (digits > 0 && in.len - digits < 2 && in.at[digits - 1] == '=')
        digits--;
    uint32_t bits = 0;
    for (size_t i = 0; i < digits; i++) {
        if (base64_digit(in.at[i]) < 0)
            return ERR_SYNTAX;
        bits = bits << 6 | (uint32_t)base64_digit(in.at[i]);
    }
    unsigned spare = digits % 4 == 2 ? 4 : digits % 4 == 3 ? 2 : 0;
    if (bits & ((1u << spare) - 1))
        return ERR_SYNTAX;
    if (digits * 3 / 4 > cap)
        return ERR_TOO_LARGE;
    size_t n = 0;
    bits = 0;
    for (size_t i = 0; i < digits; i++) {
        bits = bits << 6 | (uint32_t)base64_digit(in.at[i]);
        if (i % 4 > 0)
            out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    *len = n;
    return OK;
}

/* ---- day keys and signatures ---- */
static void make_key(const struct secret *s, struct span yyyymmdd, struct span region,
                     struct span service, uint8_t out[SHA256_BYTES])
{
    uint8_t first[4 + SECRET_BYTES_MAX] = "AWS4";
    must(s->len <= SECRET_BYTES_MAX);
    memcpy(first + 4, s->bytes, s->len);
    hmac_sha256(first, 4 + (size_t)s->len, yyyymmdd, out);
    hmac_sha256(out, SHA256_BYTES, region, out);
    hmac_sha256(out, SHA256_BYTES, service, out);
    hmac_sha256(out, SHA256_BYTES, span_of("aws4_request"), out);
    OPENSSL_cleanse(first, sizeof(first));
}

void sign_key_make(const struct secret *s, struct span yyyymmdd, struct span region,
                   struct sign_key *out)
{
    uint8_t bytes[SHA256_BYTES];
    make_key(s, yyyymmdd, region, span_of("s3"), bytes);
    set_key(out, bytes, sizeof(bytes));
    OPENSSL_cleanse(bytes, sizeof(bytes));
}

bool sign_key_cached(const struct sign_key_cache *cache, struct span access_key,
                     struct span yyyymmdd, struct span region)
{
    return cache && cache->filled && span_is(access_key, cache->access_key) &&
           span_is(yyyymmdd, cache->date) && span_is(region, cache->region);
}

static void copy_name(char *out, struct span in)
{
    if (in.len > 0)
        memcpy(out, in.at, in.len);
    out[in.len] = '\0';
}

void sign_key_keep(struct sign_key_cache *cache, struct span access_key, struct span yyyymmdd,
                   struct span region, const struct sign_key *key)
{
    /* A NUL inside would make two names look equal in the terminated copy. */
    if (!cache || access_key.len >= sizeof(cache->access_key) ||
        yyyymmdd.len >= sizeof(cache->date) || region.len >= sizeof(cache->region) ||
        span_find(access_key, '\0') < access_key.len || span_find(region, '\0') < region.len)
        return;
    copy_name(cache->access_key, access_key);
    copy_name(cache->date, yyyymmdd);
    copy_name(cache->region, region);
    cache->key = *key;
    cache->filled = true;
}

void sign_parts(const struct sign_key *key, const struct span *part, size_t count, char out_hex[64])
{
    uint8_t digest[SHA256_BYTES];
    SHA256_CTX hash;
    resume(&hash, key->inner);
    for (size_t i = 0; i < count; i++)
        hash_add(&hash, part[i]);
    hmac_end(&hash, key, digest);
    hex_write(digest, sizeof(digest), out_hex);
}

void sign_signature(const struct sign_key *key, struct span amz_date, struct span scope,
                    struct span canonical, char out_hex[64])
{
    uint8_t digest[SHA256_BYTES];
    char digest_hex[2 * SHA256_BYTES];
    sha256(canonical, digest);
    hex_write(digest, sizeof(digest), digest_hex);
    /* The string to sign goes into the HMAC piece by piece, as a scope has no maximum. */
    const struct span part[] = {
        span_of("AWS4-HMAC-SHA256\n"), amz_date, span_of("\n"), scope, span_of("\n"),
        span_make(digest_hex, sizeof(digest_hex)),
    };
    sign_parts(key, part, ARRAY_COUNT(part), out_hex);
}

/* ---- the canonical request ---- */
static const bool unreserved[256] = {
    ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['0' ... '9'] = true,
    ['-'] = true, ['.'] = true, ['_'] = true, ['~'] = true,
};

static bool is_canonical(struct span in, bool keep_slash)
{
    for (size_t i = 0; i < in.len; i++)
        if (!unreserved[(uint8_t)in.at[i]] && !(keep_slash && in.at[i] == '/'))
            return false;
    return true;
}

/* Nearly all paths are canonical as sent; the rest is decoded and encoded again, as servers do. */
static enum err add_path(struct span path, struct text *out)
{
    char decoded[HTTP_TARGET_BYTES_MAX];
    size_t len = 0;
    if (path.len == 0)
        text_addc(out, '/');
    if (is_canonical(path, true)) {
        text_add(out, path);
        return OK;
    }
    TRY(uri_decode(path, false, decoded, sizeof(decoded), &len));
    uri_encode(out, span_make(decoded, len), true);
    return OK;
}

struct pair {
    struct span name, value;         /* encoded */
};

/* The canonical spelling of one name or value: itself, or a copy at the end of room. */
static enum err recode(struct span in, struct text *room, struct span *out)
{
    char decoded[HTTP_TARGET_BYTES_MAX];
    size_t len = 0;
    if (is_canonical(in, false)) {
        *out = in;
        return OK;
    }
    TRY(uri_decode(in, true, decoded, sizeof(decoded), &len));
    size_t from = room->len;
    uri_encode(room, span_make(decoded, len), false);
    if (room->over)
        return ERR_TOO_LARGE;
    *out = span_make(room->at + from, room->len - from);
    return OK;
}

static int compare_pairs(const struct pair *a, const struct pair *b)
{
    int order = span_compare(a->name, b->name);
    return order != 0 ? order : span_compare(a->value, b->value);
}

/* Binary insertion behind equals: qsort() may allocate, and a hostile order must stay cheap. */
static void insert_pair(struct pair *sorted, unsigned count, struct pair add)
{
    unsigned from = 0, to = count;
    while (from < to) {
        unsigned middle = (from + to) / 2;
        if (compare_pairs(&add, &sorted[middle]) < 0)
            to = middle;
        else
            from = middle + 1;
    }
    memmove(sorted + from + 1, sorted + from, (count - from) * sizeof(*sorted));
    sorted[from] = add;
}

static enum err add_query(struct span query, struct text *out)
{
    char memory[3 * HTTP_TARGET_BYTES_MAX + 1];
    struct text room;
    struct pair sorted[QUERY_PAIRS_MAX];
    struct uri_pair raw;
    unsigned count = 0;
    text_init(&room, memory, sizeof(memory));
    while (uri_next_pair(&query, &raw)) {
        struct pair add;
        TRY(recode(raw.name, &room, &add.name));
        TRY(recode(raw.value, &room, &add.value));
        if (span_is(add.name, "X-Amz-Signature"))
            continue;
        if (count == QUERY_PAIRS_MAX)
            return ERR_TOO_LARGE;
        insert_pair(sorted, count++, add);
    }
    for (unsigned i = 0; i < count; i++) {
        if (i > 0)
            text_addc(out, '&');
        text_add(out, sorted[i].name);
        text_addc(out, '=');
        text_add(out, sorted[i].value);
    }
    return OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Outer blanks go, inner runs become one space, inside quotes too (as botocore does). */
static void add_folded(struct text *out, struct span value)
{
    value = span_trim(value);
    size_t from = 0;
    for (size_t i = 0; i + 1 < value.len; i++) {
        if (!is_blank(value.at[i]) || (value.at[i] == ' ' && !is_blank(value.at[i + 1])))
            continue;
        text_add(out, span_make(value.at + from, i - from));
        text_addc(out, ' ');
        while (is_blank(value.at[i + 1]))
            i++;                     /* ends: a trimmed value does not end in a blank */
        from = i + 1;
    }
    text_add(out, span_from(value, from));
}

static bool same_name(struct span lower, struct span any)
{
    if (lower.len != any.len)
        return false;
    for (size_t i = 0; i < any.len; i++) {
        char c = any.at[i];
        if (lower.at[i] != (c >= 'A' && c <= 'Z' ? (char)(c + 32) : c))
            return false;
    }
    return true;
}

/* One line "name:value[,value]\n"; repeated fields are joined in arrival order. */
static enum err add_field(const struct sign_request *r, struct span name, struct text *out)
{
    bool found = false;
    for (unsigned i = 0; i < r->count; i++) {
        if (!same_name(name, r->field[i].name))
            continue;
        if (found) {
            text_addc(out, ',');
        } else {
            text_add(out, name);
            text_addc(out, ':');
        }
        found = true;
        add_folded(out, r->field[i].value);
    }
    text_addc(out, '\n');
    return found ? OK : ERR_DENIED;
}

enum err sign_canonical(const struct sign_request *r, struct text *out)
{
    text_add(out, r->method);
    text_addc(out, '\n');
    TRY(add_path(r->path, out));
    text_addc(out, '\n');
    TRY(add_query(r->query, out));
    text_addc(out, '\n');
    struct span names = r->signed_headers;
    for (unsigned count = 0; names.len > 0; count++) {
        /* More names than a request can have fields: the list repeats itself to cost us time. */
        if (count > HTTP_FIELDS_MAX || out->over)
            return ERR_TOO_LARGE;
        TRY(add_field(r, span_cut(&names, ';'), out));
    }
    text_addc(out, '\n');
    text_add(out, r->signed_headers);
    text_addc(out, '\n');
    text_add(out, r->payload_hash);
    return out->over ? ERR_TOO_LARGE : OK;
}

/* ---- dates ---- */
/* Own arithmetic (Hinnant's civil_from_days): gmtime_r() takes the C library's time zone lock. */
void sign_date_write(uint64_t unix_s, char out[17])
{
    static const char digit[] = "0123456789";
    uint64_t day = unix_s / 86400 + 719468, second = unix_s % 86400;
    uint64_t era = day / 146097, of_era = day % 146097;
    uint64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint64_t shifted = (5 * of_year + 2) / 153; /* 0 = March */
    uint64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
    uint64_t year = era * 400 + year_of_era + (month <= 2);
    uint64_t day_of_month = of_year - (153 * shifted + 2) / 5 + 1;
    const uint64_t two[] = {year / 100 % 100, year % 100,       month,      day_of_month,
                            second / 3600,    second / 60 % 60, second % 60};
    for (unsigned i = 0, at = 0; i < ARRAY_COUNT(two); i++) {
        if (i == 4)
            out[at++] = 'T';
        out[at++] = digit[two[i] / 10];
        out[at++] = digit[two[i] % 10];
    }
    out[15] = 'Z';
    out[16] = '\0';
}

/* ---- signing for upstream ---- */
/* Fields of this hop, which proxies may rewrite, and the two that signing itself makes. */
static bool is_signed(struct span name)
{
    static const char *const left_out[] = {
        "connection", "keep-alive", "user-agent", "expect", "te", "transfer-encoding", "upgrade",
        "accept-encoding", "via", "x-amzn-trace-id", "authorization", "x-amz-date",
    };
    for (unsigned i = 0; i < ARRAY_COUNT(left_out); i++)
        if (same_name(span_of(left_out[i]), name))
            return false;
    return true;
}

/* Writes the names of `field` in lower case, sorted, each once, separated by ';'. */
static enum err list_names(const struct http_field *field, unsigned count, struct text *out)
{
    char memory[SIGNED_LIST_BYTES_MAX];
    struct text room;
    struct pair sorted[HTTP_FIELDS_MAX + 1];
    text_init(&room, memory, sizeof(memory));
    for (unsigned i = 0; i < count; i++) {
        size_t from = room.len;
        for (size_t j = 0; j < field[i].name.len; j++) {
            char c = field[i].name.at[j];
            text_addc(&room, c >= 'A' && c <= 'Z' ? (char)(c + 32) : c);
        }
        if (room.over)
            return ERR_TOO_LARGE;
        insert_pair(sorted, i, (struct pair){.name = span_make(room.at + from, room.len - from)});
    }
    for (unsigned i = 0; i < count; i++) {
        if (i > 0 && span_eq(sorted[i].name, sorted[i - 1].name))
            continue;
        if (i > 0)
            text_addc(out, ';');
        text_add(out, sorted[i].name);
    }
    return out->over ? ERR_TOO_LARGE : OK;
}

/* Another service's key is made for one request and not kept. */
static void other_key(const struct sign_credentials *cred, struct span date, struct span region,
                      struct span service, struct sign_key *out)
{
    uint8_t bytes[SHA256_BYTES];
    make_key(cred->secret, date, region, service, bytes);
    set_key(out, bytes, sizeof(bytes));
    OPENSSL_cleanse(bytes, sizeof(bytes));
}

static void day_key(const struct sign_credentials *cred, struct span date, struct span region,
                    struct sign_key_cache *cache, struct sign_key *out)
{
    if (sign_key_cached(cache, cred->access_key, date, region)) {
        *out = cache->key;
        return;
    }
    sign_key_make(cred->secret, date, region, out);
    sign_key_keep(cache, cred->access_key, date, region, out);
}

static void add_authorization(struct text *out, struct span access_key, struct span scope,
                              struct span signed_headers, const char signature[64])
{
    text_adds(out, "AWS4-HMAC-SHA256 Credential=");
    text_add(out, access_key);
    text_addc(out, '/');
    text_add(out, scope);
    text_adds(out, ", SignedHeaders=");
    text_add(out, signed_headers);
    text_adds(out, ", Signature=");
    text_add(out, span_make(signature, 64));
}

enum err sign_v4(const struct sign_request *r, const struct sign_credentials *cred,
                 struct span region, uint64_t now_s, struct sign_key_cache *key_cache,
                 char amz_date[17], struct text *authorization)
{
    struct http_field field[HTTP_FIELDS_MAX + 1];
    char canonical_memory[CANONICAL_BYTES_MAX], list_memory[SIGNED_LIST_BYTES_MAX];
    char scope_memory[128];
    struct text canonical, list, scope;
    struct sign_request all = *r;
    struct sign_key key;
    char date[17], signature[64];
    bool token = cred->token.len == 0;
    unsigned count = 0;

    for (unsigned i = 0; i < r->count; i++) {
        if (!is_signed(r->field[i].name))
            continue;
        if (count == HTTP_FIELDS_MAX)
            return ERR_TOO_LARGE;
        token = token || same_name(span_of("x-amz-security-token"), r->field[i].name);
        field[count++] = r->field[i];
    }
    must(token);                     /* without it temporary credentials are refused */
    sign_date_write(now_s, date);
    field[count++] = (struct http_field){span_of("x-amz-date"), span_of(date)};

    text_init(&list, list_memory, sizeof(list_memory));
    TRY(list_names(field, count, &list));
    all.field = field;
    all.count = count;
    all.signed_headers = text_span(&list);
    text_init(&canonical, canonical_memory, sizeof(canonical_memory));
    TRY(sign_canonical(&all, &canonical));

    text_init(&scope, scope_memory, sizeof(scope_memory));
    text_add(&scope, span_make(date, 8));
    text_addc(&scope, '/');
    text_add(&scope, region);
    text_addc(&scope, '/');
    text_add(&scope, r->service.len ? r->service : span_of("s3"));
    text_adds(&scope, "/aws4_request");
    if (scope.over)
        return ERR_TOO_LARGE;
    if (r->service.len)
        other_key(cred, span_make(date, 8), region, r->service, &key);
    else
        day_key(cred, span_make(date, 8), region, key_cache, &key);
    sign_signature(&key, span_of(date), text_span(&scope), text_span(&canonical), signature);
    add_authorization(authorization, cred->access_key, text_span(&scope), text_span(&list),
                      signature);
    if (authorization->over)
        return ERR_TOO_LARGE;
    memcpy(amz_date, date, sizeof(date));
    return OK;
}
