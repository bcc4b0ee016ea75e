/* Micro bench of signatures: ours against the two ways that OpenSSL's EVP layer offers.
 *
 * Invariants:
 *  1. All three compute the same: SHA-256 of a canonical request, then HMAC of the string to sign
 *     under a day key that is kept.
 *  2. evp_mac sets its key once and restarts; evp_md has its contexts ready and hashes the padded
 *     key anew for each message.
 *
 * Life: one run. Failure: must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "bench/micro/micro.h"
#include "sign.h"

enum { BLOCK = 64 };

static const char canonical[] =
    "GET\n/train-data/imagenet/shard-000123.tar\n\nhost:headpond.train.svc:9000\n"
    "range:bytes=8388608-16777215\nx-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649"
    "b934ca495991b7852b855\nx-amz-date:20231114T221320Z\n\nhost;range;x-amz-content-sha256;x-amz-"
    "dat"
    "e\ne3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
static const char date[] = "20231114T221320Z", scope[] = "20231114/us-east-1/s3/aws4_request";
static struct secret secret = {40, "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
static struct sign_key_cache keys;
static struct sign_key day_key;
static char wanted[64], got[64];

/* ---- ours ---- */

static void ours(void)
{
    sign_signature(&day_key, span_of(date), span_of(scope), span_of(canonical), got);
}

static void sign_upstream(void)
{
    const struct http_field field[] = {
        {span_of("host"), span_of("headpond.train.svc:9000")},
        {span_of("range"), span_of("bytes=8388608-16777215")},
        {span_of("x-amz-content-sha256"), span_of(sign_empty_sha256)},
    };
    struct sign_request r = {.method = span_of("GET"),
                             .path = span_of("/train-data/imagenet/shard-000123.tar"),
                             .field = field, .count = ARRAY_COUNT(field),
                             .payload_hash = span_of(sign_empty_sha256)};
    struct sign_credentials with = {span_of("AKIAIOSFODNN7EXAMPLE"), span_of(""), &secret};
    char amz_date[17], memory[KIB];
    struct text authorization;

    text_init(&authorization, memory, sizeof memory);
    must(sign_v4(&r, &with, span_of("us-east-1"), 1700000000, &keys, amz_date, &authorization) ==
         OK);
}

/* ---- OpenSSL's ways ---- */

static EVP_MD *sha;
static EVP_MD_CTX *md;
static EVP_MAC_CTX *mac;
static uint8_t key_bytes[SHA256_BYTES], inner[BLOCK], outer[BLOCK];

static void digest_begin(void)
{
    must(EVP_DigestInit_ex2(md, sha, NULL) == 1);
}

static void digest_add(const void *at, size_t len)
{
    must(EVP_DigestUpdate(md, at, len) == 1);
}

static void digest_end(uint8_t out[SHA256_BYTES])
{
    must(EVP_DigestFinal_ex(md, out, NULL) == 1);
}

static void text_of(char text[300], size_t *len)
{
    uint8_t hash[SHA256_BYTES];
    char hex[2 * SHA256_BYTES];
    struct text t;

    digest_begin();
    digest_add(canonical, sizeof canonical - 1);
    digest_end(hash);
    hex_write(hash, sizeof hash, hex);
    text_init(&t, text, 300);
    text_adds(&t, "AWS4-HMAC-SHA256\n");
    text_adds(&t, date);
    text_adds(&t, "\n");
    text_adds(&t, scope);
    text_adds(&t, "\n");
    text_add(&t, span_make(hex, sizeof hex));
    *len = t.len;
}

static void evp_mac(void)
{
    char text[300];
    uint8_t out[SHA256_BYTES];
    size_t len, n;

    text_of(text, &len);
    must(EVP_MAC_init(mac, NULL, 0, NULL) == 1);
    must(EVP_MAC_update(mac, (const uint8_t *)text, len) == 1);
    must(EVP_MAC_final(mac, out, &n, sizeof out) == 1);
    hex_write(out, sizeof out, got);
}

static void evp_md(void)
{
    char text[300];
    uint8_t out[SHA256_BYTES];
    size_t len;

    text_of(text, &len);
    digest_begin();
    digest_add(inner, BLOCK);
    digest_add(text, len);
    digest_end(out);
    digest_begin();
    digest_add(outer, BLOCK);
    digest_add(out, sizeof out);
    digest_end(out);
    hex_write(out, sizeof out, got);
}

static void make_evp(void)
{
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        OSSL_PARAM_construct_end(),
    };
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    const char *part[] = {"20231114", "us-east-1", "s3", "aws4_request"};
    char first[64] = "AWS4";

    memcpy(first + 4, secret.bytes, secret.len);
    hmac_sha256((const uint8_t *)first, 4u + secret.len, span_of(part[0]), key_bytes);
    for (unsigned i = 1; i < ARRAY_COUNT(part); i++)
        hmac_sha256(key_bytes, SHA256_BYTES, span_of(part[i]), key_bytes);
    for (unsigned i = 0; i < BLOCK; i++) {
        uint8_t k = i < SHA256_BYTES ? key_bytes[i] : 0;
        inner[i] = k ^ 0x36;
        outer[i] = k ^ 0x5c;
    }
    sha = EVP_MD_fetch(NULL, "SHA256", NULL);
    md = EVP_MD_CTX_new();
    mac = EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac);
    must(EVP_MAC_CTX_set_params(mac, params) == 1);
    must(EVP_MAC_init(mac, key_bytes, sizeof key_bytes, NULL) == 1);
}

static void measure(const char *name, void (*call)(void))
{
    call();
    must(memcmp(got, wanted, sizeof wanted) == 0);
    micro_run(name, call, 0);
}

int main(void)
{
    must(sign_setup_thread() == OK);
    sign_key_make(&secret, span_of("20231114"), span_of("us-east-1"), &day_key);
    make_evp();
    ours();
    memcpy(wanted, got, sizeof got);
    measure("sigv4_signature", ours);
    measure("sigv4_signature_evp_mac", evp_mac);
    measure("sigv4_signature_evp_md", evp_md);
    micro_run("sigv4_sign", sign_upstream, 0);
    EVP_MAC_CTX_free(mac);
    EVP_MD_CTX_free(md);
    EVP_MD_free(sha);
    sign_end_thread();
    return 0;
}
