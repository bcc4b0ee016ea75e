/* Hand-written request heads, refused and accepted, whole, split at every byte and byte by byte:
 * one verdict and one meaning. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/good_heads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct http_head head;

static bool says(const struct good_head *g)
{
    struct span host = span_of(g->host);
    return head.method == g->method && span_is(head.target, g->target) &&
           span_eq(head.host, host) && head.count == g->fields && head.framing == g->framing &&
           head.length == g->length && head.keep_alive == g->keep_alive &&
           head.expect_continue == g->expect_continue;
}

static void there_are_at_least_200(void **state)
{
    (void)state;
    assert_true(ARRAY_COUNT(bad_heads) + ARRAY_COUNT(good_heads) >= 200);
}

static void accepted_heads_say_what_was_meant(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(good_heads); i++) {
        const struct good_head *g = &good_heads[i];
        size_t used = 0;
        if (http_parse_request(g->bytes, g->len, &head, &used) != HTTP_OK || used != g->len)
            fail_msg("refused: %.200s", g->bytes);
        if (!says(g))
            fail_msg("misread: %.200s", g->bytes);
    }
}

/* As a connection reads it: what has come is parsed anew from its start, in memory that ends
 * there. */
static enum http_verdict parse_prefix(const char *bytes, size_t len, size_t *used)
{
    char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy + 1, bytes, len);
    enum http_verdict v = http_parse_request(copy + 1, len, &head, used);
    free(copy);
    return v;
}

static void accepted_heads_at_every_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(good_heads); i++) {
        const struct good_head *g = &good_heads[i];
        size_t used = 0;
        for (size_t len = 0; len < g->len; len++)
            if (parse_prefix(g->bytes, len, &used) != HTTP_MORE)
                fail_msg("no longer waits after %zu bytes: %.200s", len, g->bytes);
        assert_int_equal(parse_prefix(g->bytes, g->len, &used), HTTP_OK);
        assert_int_equal(used, g->len);
    }
}

/* What follows a head is another message, whatever it is. */
static void accepted_heads_end_where_they_end(void **state)
{
    static const char *const behind[] = {"\r\n", "\n", "x", " ", "GET / HTTP/1.1\r\n", "\x80"};
    static char bytes[64 * KIB];
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(good_heads); i++)
        for (size_t k = 0; k < ARRAY_COUNT(behind); k++) {
            const struct good_head *g = &good_heads[i];
            size_t used = 0;
            memcpy(bytes, g->bytes, g->len);
            memcpy(bytes + g->len, behind[k], strlen(behind[k]));
            assert_int_equal(http_parse_request(bytes, g->len + strlen(behind[k]), &head, &used),
                             HTTP_OK);
            assert_int_equal(used, g->len);
            assert_true(says(g));
        }
}

/* Refused at the first byte that decides, and not taken back by any that follow. */
static void refused_heads_at_every_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad_heads); i++) {
        const struct bad_head *b = &bad_heads[i];
        size_t used = 0, len = 0;
        bool refused = false;
        /* Of the longest ones, every byte around the limits and some of the rest. */
        for (; len <= b->len;
             len += b->len < 4000 || len % 1024 < 3 || len % 8192 > 8180 ? 1 : 37) {
            enum http_verdict v = parse_prefix(b->bytes, len, &used);
            if (v != b->verdict && (refused || v != HTTP_MORE))
                fail_msg("%s: verdict %d after %zu bytes", b->name, v, len);
            refused = v != HTTP_MORE;
        }
        assert_int_equal(parse_prefix(b->bytes, b->len, &used), b->verdict);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_at_least_200),
        cmocka_unit_test(accepted_heads_say_what_was_meant),
        cmocka_unit_test(accepted_heads_at_every_split),
        cmocka_unit_test(accepted_heads_end_where_they_end),
        cmocka_unit_test(refused_heads_at_every_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
