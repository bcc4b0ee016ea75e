/* Micro bench of what each request costs before the cache is looked at: its head, its signature.
 *
 * Invariants:
 *  1. The request is what an SDK sends: a signed ranged GET.
 *
 * Life: one run. Failure: must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/micro/micro.h"
#include "http.h"
#include "sign.h"

static char wire[2 * KIB], first[4 * KIB];
static size_t wire_len;
static struct http_head head;
static struct secret secret = {40, "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
static struct sign_key_cache key_cache;

static void make_request(void)
{
    static const char host[] = "headpond.train.svc:9000", range[] = "bytes=8388608-16777215";
    const struct http_field field[] = {
        {span_of("host"), span_of(host)},
        {span_of("range"), span_of(range)},
        {span_of("x-amz-content-sha256"), span_of(sign_empty_sha256)},
    };
    struct sign_request r = {.method = span_of("GET"),
                             .path = span_of("/train-data/imagenet/shard-000123.tar"),
                             .field = field, .count = ARRAY_COUNT(field),
                             .payload_hash = span_of(sign_empty_sha256)};
    struct sign_credentials with = {span_of("AKIAIOSFODNN7EXAMPLE"), span_of(""), &secret};
    char amz_date[17], memory[KIB];
    struct text authorization, t;

    text_init(&authorization, memory, sizeof memory);
    must(sign_v4(&r, &with, span_of("us-east-1"), 1700000000, NULL, amz_date, &authorization) ==
         OK);
    text_init(&t, wire, sizeof wire);
    text_addf(&t,
              "GET %s HTTP/1.1\r\nHost: %s\r\nAccept-Encoding: identity\r\nRange: %s\r\n"
              "User-Agent: Boto3/1.28.62 md/Botocore#1.31.62 ua/2.0 os/linux#6.1.0 md/arch#x86_64 "
              "lang/python#3.11.2\r\n"
              "X-Amz-Date: %s\r\nX-Amz-Content-SHA256: %s\r\nAuthorization: %s\r\n"
              "amz-sdk-invocation-id: 0f2b9e9c-6a2c-4d0a-8a7e-0f1f2a3b4c5d\r\n"
              "amz-sdk-request: attempt=1\r\n\r\n",
              r.path.at, host, range, amz_date, sign_empty_sha256, authorization.at);
    must(!t.over);
    wire_len = t.len;
}

static void parse(void)
{
    size_t used;

    must(http_parse_request(wire, wire_len, &head, &used) == HTTP_OK && used == wire_len);
}

static void verify_with(struct sign_key_cache *keys)
{
    struct arena arena;
    struct sign_claim claim;
    const char *code, *why;

    arena_init(&arena, first, sizeof first, 64 * KIB);
    must(sign_claim_read(&head, &arena, &claim, &code, &why) == OK);
    must(sign_claim_verify(&claim, &head, &secret, keys, NULL) == OK);
    arena_reset(&arena);
}

static void verify_day_key_kept(void)
{
    verify_with(&key_cache);
}

static void verify_day_key_made(void)
{
    verify_with(NULL);
}

int main(void)
{
    must(sign_setup_thread() == OK);
    make_request();
    micro_run("head_parse", parse, 0);
    micro_run("sigv4_verify", verify_day_key_kept, 0);
    micro_run("sigv4_verify_new_day_key", verify_day_key_made, 0);
    sign_end_thread();
    return 0;
}
