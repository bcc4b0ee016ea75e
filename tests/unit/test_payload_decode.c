/* Unit tests of common/payload_decode.c: the published chunked uploads, bodies of all five forms at
 * any cut, each way to be refused, and not one allocation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/payload_decode.c"

#include "tests/lib/allocations.h"
#include "tests/lib/payload_case.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define VECTORS "tests/data/sigv4/s3-doc-vectors.json"
enum { ROOM = 256 * KIB };
static char body[ROOM], object[ROOM], came[ROOM];
static struct payload_decoder decoder;
static struct payload_seed seed;

/* ---- running a body through ---- */
struct outcome {
    enum err e;
    const char *code;
    uint16_t status;
    uint64_t got;
    bool same;                       /* what came out is the object, as far as it goes */
};

static enum err feed(const char *bytes, size_t len, uint64_t *got)
{
    size_t n = 0;
    char *copy = malloc(len + 1);    /* a block that ends where the piece does */
    assert_non_null(copy);
    memcpy(copy + 1, bytes, len);
    enum err e = payload_decode(&decoder, copy + 1, len, &n);
    assert_true(n <= len && *got + n <= ROOM && (e == OK || n == 0));
    memcpy(came + *got, copy + 1, n);
    *got += n;
    free(copy);
    return e;
}

/* The first piece ends at `cut`, all others have `piece` bytes. */
static struct outcome run(const struct payload_facts *f, const struct payload_seed *by,
                          struct span in, size_t cut, size_t piece)
{
    uint64_t got = 0;
    enum err e = payload_begin(&decoder, f, by, PAYLOAD_CHECK_ALL);
    for (size_t at = 0, n; at < in.len && e == OK; at += n) {
        n = (size_t)min_u64(at < cut ? cut - at : piece, in.len - at);
        e = feed(in.at + at, n, &got);
        assert_true(payload_sendable(&decoder) < max_u64(f->bytes, 1));
    }
    enum err end = payload_end(&decoder);
    assert_int_equal(end, e == OK ? end : e);
    assert_int_equal(payload_end(&decoder), end);
    assert_int_equal(decoder.ended, end == OK);
    assert_true((end == OK) == (decoder.no.code == NULL));
    return (struct outcome){end, decoder.no.code, decoder.no.status, got,
                            memcmp(came, object, (size_t)got) == 0};
}

static void assert_outcome(struct outcome o, const char *code, size_t where)
{
    if (o.code != code && (!o.code || !code || strcmp(o.code, code) != 0))
        fail_msg("%s instead of %s, cut at %zu", o.code ? o.code : "OK", code ? code : "OK", where);
    assert_true(code || o.same);
}

static bool near_framing(struct span in, size_t at)
{
    size_t from = at < 100 ? 0 : at - 100;
    return at < 200 || at + 200 > in.len ||
           memmem(in.at + from, min_u64(200, in.len - from), "\r\n", 2) != NULL;
}

/* Whole, in bytes, and cut at every byte (inside long runs of data at every 61st). */
static void assert_at_any_cut(const struct payload_facts *f, const struct payload_seed *by,
                              struct span in, const char *code)
{
    assert_outcome(run(f, by, in, in.len, ROOM), code, in.len);
    assert_outcome(run(f, by, in, 0, 1), code, 1);
    for (size_t cut = 1; cut < in.len; cut++) {
        if (in.len > 8 * KIB && cut % 61 != 0 && !near_framing(in, cut))
            continue;
        assert_outcome(run(f, by, in, cut, ROOM), code, cut);
    }
    if (!code)
        assert_true(decoder.got == f->bytes && payload_sendable(&decoder) == f->bytes);
}

static struct payload_facts facts_of(enum payload_form form, uint64_t bytes,
                                     enum payload_kind trailer)
{
    return (struct payload_facts){.form = form, .bytes = bytes, .sum = trailer,
                                  .sum_in_trailer = trailer != PAYLOAD_NO_SUM};
}

/* ---- the published examples ---- */
static const char *text_of(json_t *v, const char *name)
{
    return json_string_value(json_object_get(v, name));
}

/* Builds the wire from the vector's own lines, so that nothing here computes a signature. */
static size_t build_vector(json_t *v, struct text *out)
{
    size_t i, bytes = 0;
    json_t *chunk, *line, *trailer = json_object_get(v, "trailer");
    json_array_foreach(json_object_get(v, "chunks"), i, chunk) {
        size_t size = (size_t)json_integer_value(json_object_get(chunk, "size"));
        text_adds(out, text_of(chunk, "header"));
        text_adds(out, "\r\n");
        for (size_t n = 0; n < size; n++)
            text_adds(out, text_of(chunk, "fill"));
        text_adds(out, size > 0 ? "\r\n" : "");
        bytes += size;
    }
    json_array_foreach(json_object_get(trailer, "wire_lines"), i, line) {
        text_adds(out, json_string_value(line));
        text_adds(out, "\r\n");
    }
    text_adds(out, "\r\n");
    return bytes;
}

static void seed_of_vector(json_t *v)
{
    struct case_signer s;
    case_signer_make(&s, text_of(v, "secret_key"), text_of(v, "timestamp"),
                     text_of(v, "signature"));
    case_seed_make(&seed, &s, text_of(v, "secret_key"));
}

static void accept_vector(json_t *v)
{
    struct text t;
    text_init(&t, body, sizeof(body));
    bool trailer = json_object_get(v, "trailer") != NULL;
    size_t bytes = build_vector(v, &t);
    assert_false(t.over);
    struct payload_facts f = facts_of(trailer ? PAYLOAD_SIGNED_TRAILER : PAYLOAD_SIGNED, bytes,
                                      trailer ? PAYLOAD_CRC32C : PAYLOAD_NO_SUM);
    memset(object, 'a', sizeof(object));
    seed_of_vector(v);
    assert_at_any_cut(&f, &seed, text_span(&t), NULL);
    assert_string_equal(decoder.value, trailer ? "sOO8/Q==" : "");
    body[70000 - 4000]++;            /* a byte of data */
    assert_outcome(run(&f, &seed, text_span(&t), t.len, ROOM), "SignatureDoesNotMatch", 0);
    body[70000 - 4000]--;
    seed.signature[0] ^= 1;
    assert_outcome(run(&f, &seed, text_span(&t), t.len, ROOM), "SignatureDoesNotMatch", 0);
}

static void published_chunked_uploads(unused_ok void **state)
{
    size_t i, count = 0;
    json_t *v, *file = json_load_file(VECTORS, 0, NULL);
    assert_non_null(file);
    json_array_foreach(file, i, v) {
        if (!json_object_get(v, "chunks"))
            continue;
        accept_vector(v);
        count++;
    }
    assert_int_equal(count, 2);
    json_decref(file);
}

/* ---- bodies of all forms ---- */
static void fill_object(size_t len)
{
    for (size_t i = 0; i < len; i++)
        object[i] = (char)(i * 7 + i / 251);
}

struct shape {
    size_t bytes, chunk;             /* the last chunk may be shorter */
    enum payload_kind kind;
    const char *line_end;            /* of the trailer's first line; NULL: CRLF */
};

static struct payload_facts build(struct text *t, const struct shape *s, enum payload_form form)
{
    static const char date[] = "20261122T004018Z", first[] = "4f232c4386841ef735655705268965c44a0e4"
                                                             "690baa4adea153f7db9fa80a0a9";
    struct case_signer signer, *by = payload_is_signed(form) ? &signer : NULL;
    bool trailer = form != PAYLOAD_SIGNED && s->kind != PAYLOAD_NO_SUM;
    case_signer_make(&signer, CASE_SECRET, date, first);
    case_seed_make(&seed, &signer, CASE_SECRET);
    fill_object(s->bytes);
    text_init(t, body, sizeof(body));
    for (size_t at = 0; at < s->bytes; at += s->chunk)
        case_chunk(t, by, span_make(object + at, (size_t)min_u64(s->chunk, s->bytes - at)));
    case_chunk(t, by, span_of(""));
    case_trailer(t, form == PAYLOAD_SIGNED_TRAILER ? by : NULL, trailer ? s->kind : PAYLOAD_NO_SUM,
                 span_make(object, s->bytes), s->line_end ? s->line_end : "\r\n");
    assert_false(t->over);
    return facts_of(form, s->bytes, trailer ? s->kind : PAYLOAD_NO_SUM);
}

static void good_bodies_at_any_cut(unused_ok void **state)
{
    static const struct shape shapes[] = {
        {5, 5, PAYLOAD_CRC32, NULL},
        {0, 1, PAYLOAD_CRC64NVME, NULL},
        {1, 1, PAYLOAD_NO_SUM, NULL},
        {700, 700, PAYLOAD_SHA256, "\r\n"},
        {10, 10, PAYLOAD_CRC32C, "\n\r\n"},
        {20000, 8192, PAYLOAD_SHA512, NULL},
        {16384, 8192, PAYLOAD_SHA1, NULL},
        {3, 3, PAYLOAD_MD5, NULL},
        {3, 3, PAYLOAD_XXHASH64, NULL},
        {9000, 9000, PAYLOAD_XXHASH3, NULL},
        {300, 300, PAYLOAD_XXHASH128, NULL},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(shapes); i++)
        for (enum payload_form form = PAYLOAD_TRAILER; form <= PAYLOAD_SIGNED_TRAILER; form++) {
            struct text t;
            struct payload_facts f = build(&t, &shapes[i], form);
            assert_at_any_cut(&f, &seed, text_span(&t), NULL);
        }
}

/* Any flipped byte of a signed body is noticed, whatever it belongs to. */
static void no_byte_of_a_signed_body_may_change(unused_ok void **state)
{
    static const struct shape shape = {40, 40, PAYLOAD_CRC32, NULL};
    for (enum payload_form form = PAYLOAD_SIGNED; form <= PAYLOAD_SIGNED_TRAILER; form++) {
        struct text t;
        struct payload_facts f = build(&t, &shape, form);
        for (size_t i = 0; i < t.len; i++) {
            body[i] ^= 1;
            struct outcome o = run(&f, &seed, text_span(&t), t.len, ROOM);
            if (o.e == OK)
                fail_msg("form %d accepts a change of byte %zu", form, i);
            assert_true(payload_sendable(&decoder) < f.bytes);
            body[i] ^= 1;
        }
        assert_at_any_cut(&f, &seed, text_span(&t), NULL);
    }
}

static void no_prefix_is_whole(unused_ok void **state)
{
    static const struct shape shape = {40, 40, PAYLOAD_CRC32, NULL};
    for (enum payload_form form = PAYLOAD_TRAILER; form <= PAYLOAD_SIGNED_TRAILER; form++) {
        struct text t;
        struct payload_facts f = build(&t, &shape, form);
        for (size_t len = 0; len < t.len; len++)
            assert_outcome(run(&f, &seed, span_make(body, len), len, ROOM), "IncompleteBody", len);
    }
}

/* A chunk of another upload by the same client, or this one's in another order. */
static void chunks_cannot_be_exchanged(unused_ok void **state)
{
    static const struct shape shape = {3 * 8192, 8192, PAYLOAD_NO_SUM, NULL};
    static char swap[9000];
    struct text t;
    struct payload_facts f = build(&t, &shape, PAYLOAD_SIGNED);
    size_t one = (t.len - 1 - 17 - 64 - 4) / 3;
    assert_memory_equal(body + one, "2000;", 5);
    memcpy(swap, body, one);
    memmove(body, body + one, one);
    memcpy(body + one, swap, one);
    struct outcome o = run(&f, &seed, text_span(&t), t.len, ROOM);
    assert_string_equal(o.code, "SignatureDoesNotMatch");
    assert_int_equal(o.status, 403);
    assert_int_equal(o.e, ERR_DENIED);
}

/* ---- refusals ---- */
struct refusal {
    const char *code;                /* NULL: accepted */
    uint64_t bytes;
    enum payload_kind trailer;
    const char *body;
};
#define CRC64 PAYLOAD_CRC64NVME

/* "hello" has the CRC32 NhCmhg== and the CRC64NVME M3eFcAZSQlc=. */
static const struct refusal refusals[] = {
    {NULL, 5, PAYLOAD_CRC32, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"},
    {NULL, 5, PAYLOAD_CRC32, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\n\r\n\r\n"},
    {NULL, 5, PAYLOAD_CRC32, "5\r\nhello\r\n0\r\nX-Amz-Checksum-CRC32: NhCmhg== \r\n\r\n"},
    {NULL, 5, PAYLOAD_CRC32, "0005\r\nhello\r\n00\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"},
    {NULL, 5, PAYLOAD_NO_SUM, "5\r\nhello\r\n0\r\n\r\n"},
    {NULL, 0, PAYLOAD_NO_SUM, "0\r\n\r\n"},
    /* the trailer */
    {"MalformedTrailerError", 5, CRC64, "5\r\nhello\r\n0\r\n\r\n"},
    {"MalformedTrailerError", 5, CRC64, "5\r\nhello\r\n0\r\n:M3eFcAZSQlc=\r\n\r\n"},
    {"MalformedTrailerError", 5, CRC64, "5\r\nhello\r\n0\r\ninvalid_trailer:M3eFcAZSQlc=\r\n\r\n"},
    {"MalformedTrailerError", 5, CRC64, "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"},
    {"MalformedTrailerError", 5, CRC64, "5\r\nhello\r\n0\r\nno colon\r\n\r\n"},
    {"MalformedTrailerError", 5, CRC64, "5\r\nhello\r\n0\r\n\n\r\n"},
    {"MalformedTrailerError", 5, PAYLOAD_NO_SUM,
     "5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:M3eFcAZSQlc=\r\n\r\n"},
    {"MalformedTrailerError", 5, PAYLOAD_CRC32,
     "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"},
    {"MalformedTrailerError", 5, PAYLOAD_CRC32,
     "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\nx-amz-trailer-signature:00\r\n\r\n"},
    {"InvalidRequest", 5, CRC64, "5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:invalid\r\n\r\n"},
    {"InvalidRequest", 5, CRC64, "5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:NhCmhg==\r\n\r\n"},
    {"InvalidRequest", 5, CRC64, "5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:\r\n\r\n"},
    {"InvalidRequest", 5, PAYLOAD_CRC32,
     "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhh==\r\n\r\n"},
    {"BadDigest", 5, PAYLOAD_CRC32, "5\r\nhullo\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"},
    {"BadDigest", 5, CRC64, "5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:QFRKMGE3tuw=\r\n\r\n"},
    /* the framing */
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, ""},
    {"IncompleteBody", 0, PAYLOAD_NO_SUM, ""},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\nhello0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\nhello\r0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\nhello\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\nhello\r\n0\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\nhello\r\n0\r\n\r"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\nhello\r\n0\r\n\r\n\r"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\nhello\r\n0\r\n\r\nx"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\nhello\r\n0\r\n\r\n\r\n"},
    {"IncompleteBody", 5, CRC64, "5\r\nhello\r\n0\r\nx-amz-checksum-crc64nvme:M3eFcAZSQlc=\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "five\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5 \r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, " 5\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "+5\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "-5\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "0x5\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5;a=b\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "00000000000000005\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "ffffffffffffffff\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "5\r\n5\r\nhello\r\n0\r\n\r\n"},
    /* the announced length */
    {"IncompleteBody", 4, PAYLOAD_NO_SUM, "5\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 6, PAYLOAD_NO_SUM, "5\r\nhello\r\n0\r\n\r\n"},
    {"IncompleteBody", 0, PAYLOAD_NO_SUM, "1\r\nh\r\n0\r\n\r\n"},
    {"IncompleteBody", 5, PAYLOAD_NO_SUM, "0\r\n\r\n"},
    {"InvalidChunkSizeError", 10, PAYLOAD_NO_SUM, "5\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n"},
};

static void refusals_at_any_cut(unused_ok void **state)
{
    for (unsigned i = 0; i < ARRAY_COUNT(refusals); i++) {
        const struct refusal *r = &refusals[i];
        struct payload_facts f = facts_of(PAYLOAD_TRAILER, r->bytes, r->trailer);
        memcpy(object, "hello", 5);
        struct outcome o = run(&f, NULL, span_of(r->body), 1000, ROOM);
        if ((r->code == NULL) != (o.code == NULL) || (o.code && strcmp(o.code, r->code) != 0))
            fail_msg("row %u: %s", i, o.code ? o.code : "accepted");
        assert_at_any_cut(&f, NULL, span_of(r->body), r->code);
    }
}

static void a_small_chunk_must_be_the_last(unused_ok void **state)
{
    struct payload_facts f = facts_of(PAYLOAD_TRAILER, 3 * 8192, PAYLOAD_NO_SUM);
    struct text t;
    fill_object(3 * 8192);
    text_init(&t, body, sizeof(body));
    case_chunk(&t, NULL, span_make(object, 8192));
    case_chunk(&t, NULL, span_make(object + 8192, 8191));
    case_chunk(&t, NULL, span_make(object + 16383, 8193));
    case_chunk(&t, NULL, span_of(""));
    text_adds(&t, "\r\n");
    assert_at_any_cut(&f, NULL, text_span(&t), "InvalidChunkSizeError");
    assert_true(decoder.no.chunk == 2 && decoder.no.chunk_bytes == 8191);
    assert_int_equal(decoder.no.status, 400);
}

static void a_line_has_a_limit(unused_ok void **state)
{
    static char zeros[3000];
    struct payload_facts f = facts_of(PAYLOAD_TRAILER, 5, PAYLOAD_CRC32);
    size_t got = 0;
    memset(zeros, '0', sizeof(zeros));
    assert_int_equal(payload_begin(&decoder, &f, NULL, 0), OK);
    assert_int_equal(payload_decode(&decoder, zeros, sizeof(zeros), &got), ERR_SYNTAX);
    assert_string_equal(decoder.no.code, "IncompleteBody");
    char start[] = "5\r\nhello\r\n0\r\n";
    assert_int_equal(payload_begin(&decoder, &f, NULL, 0), OK);
    assert_int_equal(payload_decode(&decoder, start, sizeof(start) - 1, &got), OK);
    assert_int_equal(payload_decode(&decoder, zeros, sizeof(zeros), &got), ERR_SYNTAX);
}

/* ---- signatures and who may make them ---- */
static void signed_chunks_need_a_seed(unused_ok void **state)
{
    struct payload_facts f = facts_of(PAYLOAD_SIGNED, 5, PAYLOAD_NO_SUM);
    assert_int_equal(payload_begin(&decoder, &f, NULL, 0), ERR_DENIED);
    assert_string_equal(decoder.no.code, "AccessDenied");
    size_t got;
    assert_int_equal(payload_decode(&decoder, body, 1, &got), ERR_DENIED);
    assert_int_equal(payload_end(&decoder), ERR_DENIED);
}

static void malformed_signatures(unused_ok void **state)
{
    static const struct shape shape = {5, 5, PAYLOAD_CRC32, NULL};
    static const struct {
        const char *find, *replace, *code;
    } rows[] = {
        {";chunk-signature=", ";chunk_signature=", "IncompleteBody"},
        {"5;", "5 ", "IncompleteBody"},
        {"x-amz-trailer-signature:", "x-amz-trailer-signatura:", "MalformedTrailerError"},
        {"x-amz-checksum-crc32:", "x-amz-checksum-crc33:", "MalformedTrailerError"},
        {"x-amz-trailer-signature:", "x-amz-trailer-signature\r", "MalformedTrailerError"},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct text t;
        struct payload_facts f = build(&t, &shape, PAYLOAD_SIGNED_TRAILER);
        char *at = memmem(body, t.len, rows[i].find, strlen(rows[i].find));
        assert_non_null(at);
        memcpy(at, rows[i].replace, strlen(rows[i].replace));
        assert_at_any_cut(&f, &seed, text_span(&t), rows[i].code);
    }
}

static void a_trailer_of_a_signed_body_is_signed(unused_ok void **state)
{
    static const struct shape shape = {5, 5, PAYLOAD_CRC32, NULL};
    struct text t;
    struct payload_facts f = build(&t, &shape, PAYLOAD_SIGNED_TRAILER);
    char *at = memmem(body, t.len, "x-amz-trailer-signature", 23);
    assert_non_null(at);
    memcpy(at, "\r\n", 2);
    t.len = (size_t)(at - body) + 2;
    assert_at_any_cut(&f, &seed, text_span(&t), "MalformedTrailerError");
    /* Signature first, checksum behind it: nobody signed that. */
    f = build(&t, &shape, PAYLOAD_SIGNED_TRAILER);
    f.sum_in_trailer = false;
    f.sum = PAYLOAD_NO_SUM;
    assert_at_any_cut(&f, &seed, text_span(&t), "MalformedTrailerError");
}

/* ---- bodies without framing ---- */
static void raw_bodies(unused_ok void **state)
{
    char hash[65];
    memcpy(object, "hellohello", 10);
    struct payload_facts f = {.form = PAYLOAD_UNSIGNED, .bytes = 10};
    struct span in = span_make(object, 10);
    assert_at_any_cut(&f, NULL, in, NULL);
    f.bytes = 11;
    assert_at_any_cut(&f, NULL, in, "IncompleteBody");
    f.bytes = 9;
    assert_at_any_cut(&f, NULL, in, "IncompleteBody");
    f = (struct payload_facts){.form = PAYLOAD_HASH, .bytes = 10};
    case_hex_sha256(in, hash);
    memcpy(f.hash, hash, sizeof(hash));
    assert_at_any_cut(&f, NULL, in, NULL);
    f.hash[0] = f.hash[0] == '0' ? '1' : '0';
    assert_at_any_cut(&f, NULL, in, "XAmzContentSHA256Mismatch");
    assert_int_equal(payload_begin(&decoder, &f, NULL, PAYLOAD_CHECK_MD5), OK);
    uint64_t got = 0;
    assert_int_equal(feed(object, 10, &got), OK);
    assert_int_equal(payload_end(&decoder), OK); /* upstream compares it */
}

static void raw_bodies_with_checksums(unused_ok void **state)
{
    struct payload_facts f = {.form = PAYLOAD_UNSIGNED, .bytes = 5, .has_md5 = true,
                              .sum = PAYLOAD_CRC32};
    size_t len;
    memcpy(object, "hello", 5);
    assert_int_equal(base64_read(span_of("NhCmhg=="), f.sum_digest, 64, &len), OK);
    assert_int_equal(base64_read(span_of("XUFAKrxLKna5cZ2REBfFkg=="), f.md5, 16, &len), OK);
    assert_at_any_cut(&f, NULL, span_of("hello"), NULL);
    f.md5[3] ^= 1;
    assert_at_any_cut(&f, NULL, span_of("hello"), "BadDigest");
    f.md5[3] ^= 1;
    f.sum_digest[3] ^= 1;
    assert_at_any_cut(&f, NULL, span_of("hello"), "BadDigest");
    f.bytes = 0;
    f.sum = PAYLOAD_NO_SUM;
    f.has_md5 = false;
    assert_at_any_cut(&f, NULL, span_of(""), NULL);
}

/* ---- what it costs ---- */
static void whole_buffers_do_not_move(unused_ok void **state)
{
    static char buffer[100000];
    struct payload_facts f = facts_of(PAYLOAD_TRAILER, 90000, PAYLOAD_NO_SUM);
    size_t got = 0;
    assert_int_equal(payload_begin(&decoder, &f, NULL, 0), OK);
    memcpy(buffer, "15f90\r\n", 7);
    assert_int_equal(payload_decode(&decoder, buffer, 7, &got), OK);
    assert_int_equal(got, 0);
    memset(buffer, 'x', 90000);
    assert_int_equal(payload_decode(&decoder, buffer, 60000, &got), OK);
    assert_int_equal(got, 60000);
    assert_true(payload_sendable(&decoder) == 60000);
    assert_int_equal(payload_decode(&decoder, buffer + 60000, 30000, &got), OK);
    assert_int_equal(got, 30000);
    assert_true(payload_sendable(&decoder) == 89999);
}

static void nothing_is_allocated(unused_ok void **state)
{
    static const struct shape shape = {20000, 8192, PAYLOAD_CRC64NVME, NULL};
    struct text t;
    size_t got;
    struct payload_facts f = build(&t, &shape, PAYLOAD_SIGNED_TRAILER);
    uint64_t before = allocations;
    assert_int_equal(payload_begin(&decoder, &f, &seed, PAYLOAD_CHECK_ALL), OK);
    assert_int_equal(payload_decode(&decoder, body, t.len, &got), OK);
    assert_int_equal(payload_end(&decoder), OK);
    assert_true(allocations == before);
    assert_true(sizeof(decoder) <= 2688);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_chunked_uploads),
        cmocka_unit_test(good_bodies_at_any_cut),
        cmocka_unit_test(no_byte_of_a_signed_body_may_change),
        cmocka_unit_test(no_prefix_is_whole),
        cmocka_unit_test(chunks_cannot_be_exchanged),
        cmocka_unit_test(refusals_at_any_cut),
        cmocka_unit_test(a_small_chunk_must_be_the_last),
        cmocka_unit_test(a_line_has_a_limit),
        cmocka_unit_test(signed_chunks_need_a_seed),
        cmocka_unit_test(malformed_signatures),
        cmocka_unit_test(a_trailer_of_a_signed_body_is_signed),
        cmocka_unit_test(raw_bodies),
        cmocka_unit_test(raw_bodies_with_checksums),
        cmocka_unit_test(whole_buffers_do_not_move),
        cmocka_unit_test(nothing_is_allocated),
    };
    allocations_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
