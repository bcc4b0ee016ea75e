/* The token that lets a change over TCP pass. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/admin/welcome.c"
#include "tests/lib/scratch.h"

static const char token[] = "0123456789abcdef";

static void only_the_whole_token_behind_bearer_is_it(void **state)
{
    static const char *const wrong[] = {
        "", "Bearer", "Bearer ", "0123456789abcdef", "Bearer 0123456789abcde",
        "Bearer 0123456789abcdef0", "Bearer 0123456789abcdeF", "Basic 0123456789abcdef",
        "Bearer 0123456789abcdef 0123456789abcdef",
    };

    (void)state;
    assert_true(token_is(token, span_of("Bearer 0123456789abcdef")));
    assert_true(token_is(token, span_of("bearer  0123456789abcdef ")));
    for (unsigned i = 0; i < ARRAY_COUNT(wrong); i++)
        if (token_is(token, span_of(wrong[i])))
            fail_msg("took \"%s\"", wrong[i]);
    assert_false(token_is("", span_of("Bearer ")));
    assert_false(token_is("", span_of("Bearer x")));
}

static enum err read_from(const char *text, mode_t mode, struct admin *a, char why[512])
{
    char dir[] = "/tmp/headpond-token-XXXXXX", path[64];

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/token", dir);
    scratch_write(path, text, strlen(text));
    assert_int_equal(chmod(path, mode), 0);
    enum err err = token_read(a, path, why);
    scratch_remove(dir);
    return err;
}

static void a_token_file_is_private_and_holds_a_token(void **state)
{
    static struct admin a;
    char why[512];

    (void)state;
    assert_int_equal(token_read(&a, "", why), OK);
    assert_string_equal(a.token, "");
    assert_int_equal(read_from("0123456789abcdef\r\nrest\n", 0600, &a, why), OK);
    assert_string_equal(a.token, token);
    assert_int_equal(read_from("0123456789abcdef", 0640, &a, why), ERR_CONFIG);
    assert_int_equal(read_from("0123456789abcde\n", 0600, &a, why), ERR_CONFIG);
    assert_int_equal(read_from("0123456789 abcdef\n", 0600, &a, why), ERR_CONFIG);
    assert_int_equal(read_from("", 0600, &a, why), ERR_CONFIG);
    assert_non_null(strstr(why, "admin.token_file"));
    assert_int_equal(token_read(&a, "/nowhere/token", why), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_whole_token_behind_bearer_is_it),
        cmocka_unit_test(a_token_file_is_private_and_holds_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
