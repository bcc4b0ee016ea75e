/* Which store has a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf_route.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "conf_case.h"

static struct config *config;

static void leads(const char *bucket, unsigned upstream, const char *remote)
{
    struct conf_route r;

    assert_true(conf_route(config, span_of(bucket), &r));
    assert_int_equal(r.upstream, upstream);
    assert_true(span_is(r.bucket, remote));
}

static void one_upstream_has_every_bucket(void **state)
{
    (void)state;
    config = load("[upstream]\nendpoint = 'http://a'\n[cache]\ndirs = ['/c']\n");
    leads("x", 0, "x");
    leads("", 0, "");
    conf_give(config);
}

static void exact_beats_prefix_and_longer_beats_shorter(void **state)
{
    (void)state;
    config = load("[cache]\ndirs = ['/c']\n"
                  "[[upstream]]\nname = 'd'\nendpoint = 'http://d'\n"
                  "[[upstream]]\nname = 'one'\nendpoint = 'http://1'\nmatch = ['ab*', 'zz']\n"
                  "[[upstream]]\nname = 'two'\nendpoint = 'http://2'\nmatch = ['abc-*', 'a*']\n"
                  "[[upstream]]\nname = 'three'\nendpoint = 'http://3'\nmatch = ['abc-x']\n"
                  "bucket = 'Remote'\n");
    leads("other", 0, "other");
    leads("", 0, "");
    leads("a", 2, "a");
    leads("ab", 1, "ab");
    leads("abc", 1, "abc");
    leads("abc-", 2, "abc-");
    leads("abc-x", 3, "Remote");
    leads("abc-xy", 2, "abc-xy");
    leads("zz", 1, "zz");
    leads("zzz", 0, "zzz");
    leads("Remote", 0, "Remote");
    conf_give(config);
}

static void without_a_default_some_buckets_do_not_exist(void **state)
{
    struct conf_route r;

    (void)state;
    config = load("[cache]\ndirs = ['/c']\n[[upstream]]\nendpoint = 'http://1'\nmatch = ['a*']\n");
    leads("ab", 0, "ab");
    assert_false(conf_route(config, span_of("b"), &r));
    assert_false(conf_route(config, span_of(""), &r));
    conf_give(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_upstream_has_every_bucket),
        cmocka_unit_test(exact_beats_prefix_and_longer_beats_shorter),
        cmocka_unit_test(without_a_default_some_buckets_do_not_exist),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
