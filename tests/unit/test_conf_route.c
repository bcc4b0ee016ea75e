/* Which store has a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf_route.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

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

/* What stands first in a path that a store gets may be its administration. */
static void names_of_administration_are_reserved(void **state)
{
    static const char path[] = "endpoint = 'http://store.lan:9000'\n";
    static const char host[] = "endpoint = 'http://store.lan'\npath_style = 'virtual'\n";
    static const char none[] = "endpoint = 'http://store.lan'\nreserved = []\n";
    static const char other[] = "endpoint = 'http://store.lan'\nreserved = ['ops']\n";
    static const char amazon[] = "endpoint = 'https://s3.eu-central-1.amazonaws.com'\n";
    static const char files[] = "endpoint = 'file:///srv'\n";
    static const struct {
        const char *upstream, *bucket, *key;
        bool reserved;
    } row[] = {
        {path, "minio", "admin/v3/export-iam", true}, {path, "minio", "", true},
        {path, "admin", "user", true}, {path, "admin", "", true},
        {path, "Admin", "user", false}, {path, "administration", "k", false},
        {path, "b", "minio/admin/v3/info", false}, {path, "b", "admin/user", false},
        {host, "minio", "k", true}, {host, "admin", "user", true},
        {host, "b", "minio/admin/v3/info", true}, {host, "b", "minio", true},
        {host, "b", "minio-data/k", false}, {host, "b", "admin/user", false},
        {none, "minio", "admin/v3/info", false}, {none, "admin", "user", false},
        {other, "ops", "k", true}, {other, "admin", "user", false},
        {amazon, "admin", "k", false}, {amazon, "b", "minio/k", false},
        {files, "minio", "k", false}, {files, "admin", "k", false},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        char text[300];
        struct conf_route to;
        snprintf(text, sizeof text, "[cache]\ndirs = ['/c']\n[upstream]\n%s", row[i].upstream);
        config = load(text);
        assert_true(conf_route(config, span_of(row[i].bucket), &to));
        if (conf_is_reserved(config, &to, span_of(row[i].key)) != row[i].reserved)
            fail_msg("%s%s/%s", row[i].upstream, row[i].bucket, row[i].key);
        conf_give(config);
    }
}

/* What counts is what the store calls it, and each store's own list. */
static void the_name_at_the_store_is_the_one_that_counts(void **state)
{
    struct conf_route to;

    (void)state;
    config = load("[cache]\ndirs = ['/c']\n"
                  "[[upstream]]\nname = 'd'\nendpoint = 'http://d'\n"
                  "[[upstream]]\nname = 'one'\nendpoint = 'http://1'\nmatch = ['data']\n"
                  "bucket = 'admin'\n"
                  "[[upstream]]\nname = 'two'\nendpoint = 'http://2'\nmatch = ['admin']\n"
                  "bucket = 'data'\n"
                  "[[upstream]]\nname = 'three'\nendpoint = 'http://3'\nmatch = ['minio']\n"
                  "reserved = ['admin']\n");
    assert_true(conf_route(config, span_of("data"), &to) &&
                conf_is_reserved(config, &to, span_of("k")));
    assert_true(conf_route(config, span_of("admin"), &to) &&
                !conf_is_reserved(config, &to, span_of("k")));
    assert_true(conf_route(config, span_of("minio"), &to) &&
                !conf_is_reserved(config, &to, span_of("k")));
    conf_give(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_upstream_has_every_bucket),
        cmocka_unit_test(exact_beats_prefix_and_longer_beats_shorter),
        cmocka_unit_test(without_a_default_some_buckets_do_not_exist),
        cmocka_unit_test(names_of_administration_are_reserved),
        cmocka_unit_test(the_name_at_the_store_is_the_one_that_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
