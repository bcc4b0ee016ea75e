/* Micro bench of uploads: what unwrapping and verifying cost, against the bare digest.
 *
 * Invariants:
 *  1. A call takes one body of 8 MiB in buffers of 256 KiB, as the PUT machine does; chunks are of
 *     64 KiB, as minio-go makes them, or 1 MiB, as boto3 does.
 *  2. Bodies are copied anew for each call, as decoding moves them: copy alone is a line, too.
 *
 * Life: one run. Failure: must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/micro/micro.h"
#include "payload.h"
#include "tests/lib/payload_case.h"

enum { OBJECT = 8 * MIB, ROOM = OBJECT + 64 * KIB, BUFFER = 256 * KIB };

static char object[OBJECT], body[ROOM], buffer[BUFFER];
static size_t body_len;
static struct payload_facts facts;
static struct payload_seed seed;
static struct payload_decoder decoder;
static enum payload_kind kind;

static void build(enum payload_form form, size_t chunk)
{
    static const char first[] = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    struct case_signer signer;
    struct text t;
    bool is_signed = payload_is_signed(form), trailer = form != PAYLOAD_SIGNED;

    case_signer_make(&signer, CASE_SECRET, "20261122T004018Z", first);
    case_seed_make(&seed, &signer, CASE_SECRET);
    facts = (struct payload_facts){.form = form, .bytes = OBJECT};
    facts.sum = trailer ? PAYLOAD_CRC32 : PAYLOAD_NO_SUM;
    facts.sum_in_trailer = trailer;
    text_init(&t, body, sizeof(body));
    for (size_t at = 0; at < OBJECT; at += chunk)
        case_chunk(&t, is_signed ? &signer : NULL, span_make(object + at, chunk));
    case_chunk(&t, is_signed ? &signer : NULL, span_of(""));
    case_trailer(&t, NULL, facts.sum, span_make(object, OBJECT), "\r\n");
    must(!t.over);
    body_len = t.len;
}

static void copy(void)
{
    for (size_t at = 0; at < OBJECT; at += BUFFER) {
        memcpy(buffer, object + at, BUFFER);
        __asm__ volatile("" : : "r"(buffer) : "memory");
    }
}

static void decode(unsigned checks)
{
    must(payload_begin(&decoder, &facts, &seed, checks) == OK);
    for (size_t at = 0, got; at < body_len; at += BUFFER) {
        size_t n = (size_t)min_u64(BUFFER, body_len - at);
        memcpy(buffer, body + at, n);
        must(payload_decode(&decoder, buffer, n, &got) == OK);
    }
    must(payload_end(&decoder) == OK);
}

static void decode_only(void)
{
    decode(0);
}

static void decode_checked(void)
{
    decode(PAYLOAD_CHECK_ALL);
}

static void sum(void)
{
    struct payload_sum s;
    uint8_t digest[PAYLOAD_DIGEST_MAX];

    payload_sum_begin(&s, kind);
    payload_sum_add(&s, object, OBJECT);
    must(payload_sum_end(&s, digest) > 0);
}

int main(void)
{
    char name[32];

    must(sign_setup_thread() == OK);
    memset(object, 'x', sizeof(object));
    micro_run("payload_copy", copy, OBJECT);
    build(PAYLOAD_SIGNED, 64 * KIB);
    micro_run("payload_signed_64k", decode_only, OBJECT);
    build(PAYLOAD_SIGNED, MIB);
    micro_run("payload_signed_1m", decode_only, OBJECT);
    build(PAYLOAD_TRAILER, 64 * KIB);
    micro_run("payload_unwrap_64k", decode_only, OBJECT);
    build(PAYLOAD_TRAILER, MIB);
    micro_run("payload_unwrap_1m", decode_only, OBJECT);
    micro_run("payload_unwrap_crc32_1m", decode_checked, OBJECT);
    for (kind = PAYLOAD_CRC32; kind < PAYLOAD_KIND_COUNT; kind++) {
        snprintf(name, sizeof(name), "payload_%s", payload_kind_name(kind));
        micro_run(name, sum, OBJECT);
    }
    sign_end_thread();
    return 0;
}
