/* A hundred thousand forgeries: requests with a valid signature, changed in one place, are refused
 * unless they still mean the same; and as many bodies of signed chunks. `make forge` shows the
 * counts; FORGE_SEED chooses others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"
#include "server/s3/s3.h"
#include "payload.h"
#include "tests/lib/forge_chunks.h"

#include <setjmp.h>

#include <cmocka.h>

#ifdef HEADPOND_ASAN
enum { FORGERIES = 20000, BODY_FORGERIES = 4000 };
#else
enum { FORGERIES = 100000, BODY_FORGERIES = 100000 };
#endif

static const char keys_text[] = FORGE_ACCESS " " FORGE_SECRET " rw\nAKOTHER another-secret\n";
static struct keys *keys;
static struct s3_gate gate;
static struct arena arena;
static char arena_bytes[64 * KIB];

static struct s3_who who;            /* as judge() left it */

struct verdict {
    bool accepted;
    enum s3_operation op;
    char bucket[BUCKET_BYTES_MAX + 1], key[KEY_BYTES_MAX + 1];
};

static struct verdict judge(const struct http_head *head)
{
    struct s3_ask ask;
    struct s3_error error = {0};
    struct verdict v = {0};
    who = (struct s3_who){.now_s = FORGE_NOW_S};
    arena_reset(&arena);
    if (s3_ask_read(head, "", &arena, &ask, &error) != OK ||
        s3_authorize(&gate, head, &ask, &who, &arena, &error) != OK)
        return v;
    v.accepted = !who.anonymous;
    v.op = ask.op;
    snprintf(v.bucket, sizeof(v.bucket), "%.*s", (int)ask.bucket.len, ask.bucket.at);
    snprintf(v.key, sizeof(v.key), "%.*s", (int)ask.key.len, ask.key.at);
    return v;
}

static void mean(struct text *t, char memory[64 * KIB], const struct http_head *head)
{
    text_init(t, memory, 64 * KIB);
    forge_meaning(t, head);
    assert_false(t->over);
}

static uint64_t dice = 88172645463325252u;

static unsigned roll(void *from, unsigned below)
{
    (void)from;
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return below ? (unsigned)(dice >> 11) % below : 0;
}

static int setup(void **state)
{
    static struct conf_mistakes mistakes;
    (void)state;
    assert_int_equal(sign_setup_thread(), OK);
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 0);
    const char *seed = getenv("FORGE_SEED");
    if (seed && strtoull(seed, NULL, 10) > 0)
        dice = strtoull(seed, NULL, 10);
    assert_int_equal(keys_parse(span_of(keys_text), "keys", &keys, &mistakes), OK);
    s3_gate_open(&gate, keys, span_of(""), NULL, 900);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    keys_give(keys);
    sign_end_thread();
    return 0;
}

static void requests_signed_by_a_second_canonical_form_are_accepted(void **state)
{
    static struct http_head head;
    static struct forged f;
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(forge_shapes); i++) {
        forge_make(&forge_shapes[i], &f);
        assert_true(forge_parse(&f, &head));
        if (!judge(&head).accepted)
            fail_msg("refused: %.*s", (int)f.len, f.at);
    }
}

/* A part of a signed request replaced by another. */
struct change {
    unsigned shape;
    bool same;                       /* it means what it meant: accepted */
    const char *from, *to;
};
static const struct change changes[] = {
    /* the case of a field's name */
    {0, true, "X-Amz-Date:", "x-aMZ-dATE:"},
    {5, true, "X-Amz-Meta-A:", "x-amz-META-a:"},
    {9, true, "x-amz-request-payer:", "X-Amz-Request-Payer:"},
    {9, true, "Range:", "rANGE:"},
    {5, false, "\"q  q\"", "\"Q  q\""},
    {9, false, "requester", "Requester"},
    /* the order of fields */
    {5, true, "X-Amz-Meta-A: \"q  q\"\r\nx-amz-meta-b: again\r\n",
     "x-amz-meta-b: again\r\nX-Amz-Meta-A: \"q  q\"\r\n"},
    {9, true, "x-amz-request-payer: requester\r\nRange: bytes=5-\r\n",
     "Range: bytes=5-\r\nx-amz-request-payer: requester\r\n"},
    {5, false, "two   blanks \r\nX-Amz-Meta-A: \"q  q\"\r\nx-amz-meta-b: again\r\n",
     "again\r\nX-Amz-Meta-A: \"q  q\"\r\nx-amz-meta-b: two   blanks \r\n"},
    /* what they say, and whether they are signed */
    {5, true, "two   blanks \r\n", "two blanks\r\n"},
    {9, false, "bytes=5-", "bytes=6-"},
    {10, true, "Accept: x", "Accept: y"},
    {10, true, "Accept: x", "x-amz-: y"},
    {10, false, "Accept: x", "x-amz-a: y"},
    {0, false, "X-Amz-Date:", "X-Amz-Acl: public-read\r\nX-Amz-Date:"},
};

static void names_of_fields_have_no_case_and_only_equal_ones_an_order(void **state)
{
    static struct http_head head;
    static struct forged base, f;
    static char first[64 * KIB], second[64 * KIB];
    struct text before, after;
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(changes); i++) {
        const struct change *c = &changes[i];
        forge_make(&forge_shapes[c->shape], &base);
        assert_true(forge_parse(&base, &head));
        mean(&before, first, &head);
        f = base;
        assert_in_range(forge_find(&f, c->from), 1, f.len - 1);
        forge_splice(&f, forge_find(&f, c->from), strlen(c->from), c->to);
        assert_true(forge_parse(&f, &head));
        mean(&after, second, &head);
        if (span_eq(text_span(&before), text_span(&after)) != c->same)
            fail_msg("the model says it means %s:\n%.*s\n%s",
                     c->same ? "something else" : "the same", (int)f.len, f.at, second);
        if (judge(&head).accepted != c->same)
            fail_msg("%s: %.*s", c->same ? "refused" : "accepted", (int)f.len, f.at);
    }
}

static void nothing_forged_is_accepted(void **state)
{
    static struct http_head head;
    static struct forged base[ARRAY_COUNT(forge_shapes)], f;
    static char first[64 * KIB], second[64 * KIB];
    struct verdict honest[ARRAY_COUNT(forge_shapes)];
    unsigned same = 0, tried = 0;
    struct text before, after;
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(forge_shapes); i++) {
        forge_make(&forge_shapes[i], &base[i]);
        assert_true(forge_parse(&base[i], &head));
        honest[i] = judge(&head);
    }
    while (tried < FORGERIES) {
        unsigned i = tried % ARRAY_COUNT(forge_shapes);
        f = base[i];
        forge_change(&f, roll, NULL);
        if (f.len == base[i].len && memcmp(f.at, base[i].at, f.len) == 0)
            continue;                /* no change */
        tried++;
        if (!forge_parse(&f, &head))
            continue;
        struct verdict v = judge(&head);
        if (!v.accepted)
            continue;
        mean(&after, second, &head);
        assert_true(forge_parse(&base[i], &head));
        mean(&before, first, &head);
        if (!span_eq(text_span(&before), text_span(&after)) || v.op != honest[i].op ||
            strcmp(v.bucket, honest[i].bucket) != 0 || strcmp(v.key, honest[i].key) != 0)
            fail_msg("a forgery was accepted:\n%.*s\nof\n%.*s\n", (int)f.len, f.at,
                     (int)base[i].len, base[i].at);
        same++;
    }
    /* Cases of letters, blanks and escapes that mean nothing, and fields that nobody signs. */
    assert_in_range(same, tried / 200, tried / 4);
    print_message("heads: %u changed, %u mean the same and are accepted, 0 forged ones are\n",
                  tried, same);
}

/* ---- bodies of signed chunks ---- */
static const struct forge_shape streams[] = {
    {false, "PUT", "/bucket/key",
     "Content-Length: 25218\r\nx-amz-decoded-content-length: 24778\r\n",
     "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
     "content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length"},
    {false, "PUT", "/bucket/key?partNumber=1&uploadId=u",
     "Content-Length: 25340\r\nx-amz-decoded-content-length: 24778\r\n"
     "x-amz-trailer: x-amz-checksum-crc32c\r\n",
     "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
     "content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;"
     "x-amz-trailer"},
};

/* Does the body pass, cut anywhere, and with the signatures alone to tell? data gets the object. */
static bool body_passes(const struct http_head *head, const struct forged_body *b,
                        char data[FORGE_BODY_BYTES], size_t *len, char sum[])
{
    static struct payload_decoder decoder;
    struct payload_facts facts;
    struct payload_refusal no;
    *len = 0;
    assert_int_equal(payload_read(head, true, &facts, &no), OK);
    assert_true(who.has_seed);
    if (payload_begin(&decoder, &facts, &who.seed, 0) != OK)
        return false;
    for (size_t at = 0; at < b->len;) {
        size_t got, piece = min_u64(b->len - at, 1 + roll(NULL, 20000));
        memcpy(data + *len, b->at + at, piece);
        if (payload_decode(&decoder, data + *len, piece, &got) != OK)
            return false;
        *len += got;
        at += piece;
    }
    if (payload_end(&decoder) != OK)
        return false;
    memcpy(sum, decoder.value, sizeof(decoder.value));
    return true;
}

struct stream {
    struct forged head;
    struct http_head parsed;
    struct forged_body body;
    char sum[PAYLOAD_VALUE_MAX + 1];
};

static void make_stream(unsigned i, struct stream *s)
{
    static char data[FORGE_BODY_BYTES], wanted[FORGE_DATA_BYTES];
    char signature[65];
    size_t len;
    forge_make(&streams[i], &s->head);
    snprintf(signature, sizeof(signature), "%s",
             (char *)memmem(s->head.at, s->head.len, "Signature=", 10) + 10);
    forge_body(&s->body, signature, i == 1);
    assert_true(forge_parse(&s->head, &s->parsed));
    assert_true(judge(&s->parsed).accepted);
    assert_int_equal(s->parsed.length, s->body.len);
    forge_data(wanted);
    assert_true(body_passes(&s->parsed, &s->body, data, &len, s->sum));
    assert_int_equal(len, FORGE_DATA_BYTES);
    assert_memory_equal(data, wanted, len);
    assert_string_equal(s->sum, i == 1 ? forge_sum : "");
}

static void no_forged_body_passes(void **state)
{
    static struct stream stream[ARRAY_COUNT(streams)];
    static struct forged_body b;
    static char data[FORGE_BODY_BYTES], wanted[FORGE_DATA_BYTES];
    unsigned tried = 0, same = 0;
    (void)state;
    forge_data(wanted);
    for (unsigned i = 0; i < ARRAY_COUNT(streams); i++)
        make_stream(i, &stream[i]);
    while (tried < BODY_FORGERIES) {
        const struct stream *s = &stream[tried % ARRAY_COUNT(streams)];
        char sum[PAYLOAD_VALUE_MAX + 1] = "";
        size_t len;
        b = s->body;
        forge_body_change(&b, roll, NULL);
        if (b.len == s->body.len && memcmp(b.at, s->body.at, b.len) == 0)
            continue;                /* no change */
        tried++;
        assert_true(judge(&s->parsed).accepted); /* the seed of this stream */
        if (!body_passes(&s->parsed, &b, data, &len, sum))
            continue;
        if (len != FORGE_DATA_BYTES || memcmp(data, wanted, len) != 0 || strcmp(sum, s->sum) != 0)
            fail_msg("a forged body passed: %zu bytes, \"%s\"", len, sum);
        same++;
    }
    assert_in_range(same, 1, tried / 20); /* the case of a size, a blank, a line's end */
    print_message("bodies: %u changed, %u mean the same and pass, 0 forged ones do\n", tried, same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_signed_by_a_second_canonical_form_are_accepted),
        cmocka_unit_test(names_of_fields_have_no_case_and_only_equal_ones_an_order),
        cmocka_unit_test(nothing_forged_is_accepted),
        cmocka_unit_test(no_forged_body_passes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
