/* Globs, and filters made of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/glob.c"

static bool is(const char *glob, const char *text)
{
    return glob_match(span_of(glob), span_of(text));
}

static void patterns_match_what_they_say(void **state)
{
    static const struct {
        const char *glob, *text;
        bool match;
    } rows[] = {
        {"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a/b", true}, {"**", "x", true},
        {"*.tar", "shard-1.tar", true}, {"*.tar", "a/b/c.tar", true}, {"*.tar", "c.tar.gz", false},
        {"shard-000?.tar", "shard-0007.tar", true}, {"shard-000?.tar", "shard-0017.tar", false},
        {"?", "", false}, {"?", "/", true}, {"a*b*c", "abxbc", true}, {"a*b*c", "acb", false},
        {"[abc]", "b", true}, {"[abc]", "d", false}, {"[a-c]x", "bx", true}, {"[!a-c]", "b", false},
        {"[!a-c]", "z", true}, {"[^a]", "b", true}, {"[]]", "]", true}, {"[a-]", "-", true},
        {"[", "[", true}, {"[a", "[a", true}, {"x[!", "x[!", true}, {"\\*", "*", true},
        {"\\*", "a", false}, {"\\", "\\", true}, {"[\x80-\xff]", "\xc3", true}, {"*a", "aaa", true},
        {"*[0-9]", "a1b2", true}, {"*[0-9]", "a1b", false},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++)
        if (is(rows[i].glob, rows[i].text) != rows[i].match)
            fail_msg("%s and %s", rows[i].glob, rows[i].text);
}

/* Trying each star again for each other would take 50 to the power of 50. */
static void no_pattern_takes_long(void **state)
{
    char glob[201], text[1001];

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        memcpy(glob + 2 * i, "*a", 2);
    glob[200] = '\0';
    memset(text, 'a', 1000);
    text[1000] = '\0';
    assert_true(is(glob, text));
    text[999] = 'b';
    assert_false(is(glob, text));
}

static bool has(const char *filter, const char *text)
{
    return filter_has(span_of(filter), span_of(text));
}

static void filters_take_what_is_included_and_not_excluded(void **state)
{
    (void)state;
    assert_true(has("", "anything"));
    assert_true(has("+*.tar\n", "a.tar"));
    assert_false(has("+*.tar\n", "a.idx"));
    assert_true(has("+*.tar\n+*.idx\n", "a.idx"));
    assert_true(has("-*.idx\n", "a.tar"));
    assert_false(has("-*.idx\n", "a.idx"));
    assert_false(has("+*\n-2.*\n", "2.tar"));
    assert_false(has("-2.*\n+*\n", "2.tar"));
    assert_true(has("-2.*\n+*\n", "3.tar"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_what_they_say),
        cmocka_unit_test(no_pattern_takes_long),
        cmocka_unit_test(filters_take_what_is_included_and_not_excluded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
