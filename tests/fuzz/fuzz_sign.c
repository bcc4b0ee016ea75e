/* Fuzzes what a stranger's request reaches before it is known who asks: head, claim, canonical
 * request. Checked: no claim is accepted by chance, what is read points to memory that exists,
 * verdicts repeat. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"
#include "mem.h"
#include "sign.h"

#include "tests/fuzz/fuzz.h"

static uint64_t sum;                 /* makes the compiler read what spans show */

static void touch(struct span s)
{
    for (size_t i = 0; i < s.len; i++)
        sum += (uint8_t)s.at[i];
}

static void touch_claim(const struct sign_claim *c)
{
    const struct span all[] = {c->access_key, c->date,  c->region,     c->scope,     c->amz_date,
                               c->signature,  c->token, c->not_signed, c->payload_hash,
                               c->signed_headers};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++)
        touch(all[i]);
}

/* Whatever the claim says, an upstream request with that target must sign or fail, and be
 * verifiable. */
static void sign_target(const struct http_head *head)
{
    static char memory[8 * KIB];
    static const struct secret secret = {6, "secret"};
    const struct sign_credentials cred = {span_of("AK"), span_of(""), &secret};
    struct sign_request r = {.method = head->method_text, .field = head->field,
                             .count = head->count, .payload_hash = span_of("UNSIGNED-PAYLOAD")};
    struct text authorization;
    char amz_date[17];
    uri_split(head->target, &r.path, &r.query);
    text_init(&authorization, memory, sizeof(memory));
    if (sign_v4(&r, &cred, span_of("r"), 1767323045, NULL, amz_date, &authorization) == OK)
        touch(text_span(&authorization));
}

/* A claim of Signature Version 2 that reads is refused for its signature, and can be explained. */
static void check_v2(const struct http_head *head, struct arena *arena,
                     const struct sign_claim *claim, const struct secret *secret)
{
    static char memory[4 * KIB];
    const char *code = NULL, *why = NULL;
    struct sign_claim mine = *claim;
    struct text string_to_sign;
    if (claim->form != SIGN_V2_HEADER && claim->form != SIGN_V2_QUERY)
        return;
    text_init(&string_to_sign, memory, sizeof(memory));
    enum err e = sign_v2_read(head, arena, &mine, &code, &why);
    demand((e == OK) == (code == NULL) && (e == OK) == (why == NULL));
    if (e != OK)
        return;
    touch_claim(&mine);
    demand(sign_claim_verify(&mine, head, secret, NULL, &string_to_sign) == ERR_DENIED);
    touch(text_span(&string_to_sign));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char first[2 * KIB], canonical_memory[4 * KIB];
    static const struct secret secret = {6, "secret"};
    struct sign_key_cache cache = {0};
    struct http_head head;
    struct arena arena;
    struct sign_claim claim;
    struct text canonical;
    const char *code = NULL, *why = NULL;
    size_t used;
    demand(sign_setup_thread() == OK);
    if (http_parse_request((const char *)data, size, &head, &used) != HTTP_OK)
        return 0;
    arena_init(&arena, first, sizeof(first), 64 * KIB);
    text_init(&canonical, canonical_memory, sizeof(canonical_memory));
    enum err e = sign_claim_read(&head, &arena, &claim, &code, &why);
    demand((e == OK) == (code == NULL) && (e == OK) == (why == NULL));
    touch_claim(&claim);
    check_v2(&head, &arena, &claim, &secret);
    if (e == OK && claim.form != SIGN_ANONYMOUS) {
        demand(claim.date.len == 8 && claim.amz_date.len == 16);
        demand(sign_claim_verify(&claim, &head, &secret, &cache, &canonical) == ERR_DENIED);
        demand(!cache.filled);
        touch(text_span(&canonical));
    }
    sign_target(&head);
    arena_reset(&arena);
    return 0;
}
