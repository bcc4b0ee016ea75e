/* A hundred thousand forgeries: requests with a valid signature, changed in one place, are refused
 * unless they still mean the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"
#include "server/s3/s3.h"
#include "tests/lib/forge.h"

#include <setjmp.h>

#include <cmocka.h>

#ifdef HEADPOND_ASAN
enum { FORGERIES = 20000 };
#else
enum { FORGERIES = 100000 };
#endif

static const char keys_text[] = FORGE_ACCESS " " FORGE_SECRET " rw\nAKOTHER another-secret\n";
static struct keys *keys;
static struct s3_gate gate;
static struct arena arena;
static char arena_bytes[64 * KIB];

struct verdict {
    bool accepted;
    enum s3_operation op;
    char bucket[BUCKET_BYTES_MAX + 1], key[KEY_BYTES_MAX + 1];
};

static struct verdict judge(const struct http_head *head)
{
    struct s3_ask ask;
    struct s3_error error = {0};
    struct s3_who who = {.now_s = FORGE_NOW_S};
    struct verdict v = {0};
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_signed_by_a_second_canonical_form_are_accepted),
        cmocka_unit_test(names_of_fields_have_no_case_and_only_equal_ones_an_order),
        cmocka_unit_test(nothing_forged_is_accepted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
