/* The Host check, of server/admin/guard.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/guard.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char *const names[] = {"dgx-03", ""};

static void addresses_localhost_and_our_names_are_welcome(void **state)
{
    static const char *const good[] = {
        "127.0.0.1",  "127.0.0.1:9001", "10.0.0.5:9002", "[::1]:9001", "[::1]", "[fd00::7]:1",
        "localhost",  "LocalHost:9001", "dgx-03",        "DGX-03:9002",
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(good); i++)
        if (!guard_host(span_of(good[i]), names, ARRAY_COUNT(names)))
            fail_msg("refused %s", good[i]);
}

static void names_of_others_are_refused(void **state)
{
    static const char *const bad[] = {
        "",           "evil.example",    "evil.example:9001", "dgx-03.evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil", "::1",         "[::1",              "[evil]:1",            "[::1]x",
        "127.0.0.1:", "127.0.0.1:x",     "127.0.0.1:99999",   ":9001",               "127.1",
        "0x7f.0.0.1", "[127.0.0.1]:1",   "127.0.0.1 evil",    "dgx-03:1:2",          "[::1]:",
        "[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0001]", "[]:1",
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(bad); i++)
        if (guard_host(span_of(bad[i]), names, ARRAY_COUNT(names)))
            fail_msg("accepted \"%s\"", bad[i]);
    assert_false(guard_host(span_make("127.0.0.1\0.evil", 15), names, ARRAY_COUNT(names)));
    assert_false(guard_host(span_make("[::1\0]", 6), names, ARRAY_COUNT(names)));
}

static void the_host_comes_without_port_and_brackets(void **state)
{
    (void)state;
    assert_true(span_is(guard_host_name(span_of("10.0.0.5:9002")), "10.0.0.5"));
    assert_true(span_is(guard_host_name(span_of("[fd00::7]:1")), "fd00::7"));
    assert_true(span_is(guard_host_name(span_of("cache")), "cache"));
    assert_int_equal(guard_host_name(span_of("cache:")).len, 0);
    assert_int_equal(guard_host_name(span_of(NULL)).len, 0);
}

static void a_name_that_no_host_can_have_is_not_shown_again(void **state)
{
    static const char *const bad[] = {"a b", "a\"b:80", "<b>", "a/b", "caf\xc3\xa9", "a\nb", "u@a"};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(bad); i++)
        if (guard_host_name(span_of(bad[i])).len != 0)
            fail_msg("took \"%s\"", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_localhost_and_our_names_are_welcome),
        cmocka_unit_test(names_of_others_are_refused),
        cmocka_unit_test(the_host_comes_without_port_and_brackets),
        cmocka_unit_test(a_name_that_no_host_can_have_is_not_shown_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
