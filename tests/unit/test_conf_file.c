/* [[bucket]] sections: which of them rules, what they take from the general ones, mistakes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf_file.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "conf_case.h"

static const char *ruler(const struct config *c, const char *bucket, const char *key)
{
    return conf_bucket(c, span_of(bucket), span_of(key))->match;
}

static void the_longest_bucket_match_rules(void **state)
{
    struct config *c = load(NEEDED "[[bucket]]\nmatch = 'train'\nttl = '5s'\n"
                                   "[[bucket]]\nmatch = 'train/img/'\nimmutable = true\n"
                                   "[[bucket]]\nmatch = 'train/img/a'\nttl = '7s'\n"
                                   "[[bucket]]\nmatch = 'ckpt/'\nwrite = 'around'\n");
    uint64_t before = mem_take_count();

    (void)state;
    assert_string_equal(ruler(c, "train", "x"), "train");
    assert_string_equal(ruler(c, "train", ""), "train");
    assert_string_equal(ruler(c, "train", "img"), "train");
    assert_string_equal(ruler(c, "train", "img/"), "train/img/");
    assert_string_equal(ruler(c, "train", "img/b"), "train/img/");
    assert_string_equal(ruler(c, "train", "img/abc"), "train/img/a");
    assert_string_equal(ruler(c, "trainx", "img/abc"), "");
    assert_string_equal(ruler(c, "trai", "n"), "");
    assert_string_equal(ruler(c, "ckpt", "x"), "ckpt/");
    assert_string_equal(ruler(c, "ckpt", ""), "ckpt/");
    assert_string_equal(ruler(c, "", ""), "");
    assert_int_equal(mem_take_count(), before);
    conf_give(c);
}

static void a_list_is_as_young_as_the_strictest_section_of_what_it_shows(void **state)
{
    static const struct {
        const char *bucket, *prefix;
        uint64_t ms;
    } rows[] = {
        {"other", "", 20000}, {"b", "", 0}, {"b", "l", 0}, {"b", "live", 0}, {"b", "live/", 0},
        {"b", "live/x", 0}, {"b", "live/slow/", 9000}, {"b", "live/slow/x", 9000},
        {"b", "lively", 20000}, {"b", "m", 20000}, {"bb", "", 20000}, {"bb", "live/", 20000},
        {"c", "", 5000}, {"c", "x", 7000}, {"c", "y", 5000},
    };
    struct config *c = load(NEEDED "list_ttl = '20s'\n"
                                   "[[bucket]]\nmatch = 'b/live/'\nttl = '0s'\n"
                                   "[[bucket]]\nmatch = 'b/live/slow/'\nlist_ttl = '9s'\n"
                                   "[[bucket]]\nmatch = 'c'\nlist_ttl = '5s'\n"
                                   "[[bucket]]\nmatch = 'c/x'\nlist_ttl = '7s'\n");

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        assert_int_equal(
            conf_list_ttl_ms(c, span_of(rows[i].bucket), span_of(rows[i].prefix)), rows[i].ms);
    conf_give(c);
}

static void buckets_take_what_they_do_not_set_from_the_general_sections(void **state)
{
    char *env[] = {"HEADPOND_CACHE_TTL=9s", NULL};
    struct config *c =
        load_with("[[bucket]]\nmatch = 'a/'\nimmutable = true\n"
                  "background = 'off'\n[[bucket]]\nmatch = 'b/'\nttl = '1s'\n"
                  "write = 'through'\nreadahead = 'auto'\nnegative_ttl = '5s'\n"
                                 "pin = true\nquota = '2TiB'\n" NEEDED
                  "write = 'around'\n[prefetch]\nreadahead = 'off'\nbackground = 'always'\n",
                  env, NULL, 0);
    const struct conf_bucket *b = c->buckets;

    (void)state;
    assert_int_equal(c->bucket_count, 3);
    assert_true(b[0].ttl_ms == 9000 && !b[0].write_through && !b[0].readahead && !b[0].immutable);
    assert_true(b[1].ttl_ms == 9000 && !b[1].write_through && !b[1].readahead && b[1].immutable);
    assert_true(b[0].negative_ttl_ms == 1000 && b[1].negative_ttl_ms == 1000 &&
                b[2].negative_ttl_ms == 5000);
    assert_int_equal(b[0].background, CONF_BACKGROUND_ALWAYS);
    assert_int_equal(b[1].background, CONF_BACKGROUND_OFF);
    assert_int_equal(b[2].background, CONF_BACKGROUND_ALWAYS);
    assert_true(b[1].quota_bytes == 0 && !b[1].pin && b[1].line == 1);
    assert_true(b[2].ttl_ms == 1000 && b[2].write_through && b[2].readahead && !b[2].immutable);
    assert_true(b[2].quota_bytes == 2 * TIB && b[2].pin && b[2].line == 5);
    conf_give(c);
}

static void bucket_mistakes_are_told(void **state)
{
    static const struct {
        const char *lines, *mistake;
    } cases[] = {
        {"ttl = '1s'", "f:5:1: bucket.match is missing; set it to \"bucket\" or \"bucket/prefix\""},
        {"match = 's3://a'", "f:6:1: bucket.match \"s3://a\" must be written without s3://"},
        {"match = ''", "f:6:1: bucket.match \"\" must begin with a bucket's name: \"bucket\" or "
                       "\"bucket/prefix\""},
        {"match = '/a'", "f:6:1: bucket.match \"/a\" must begin with a bucket's name: \"bucket\" "
                         "or \"bucket/prefix\""},
        {"match = 'a'\n[[bucket]]\nmatch = 'a'", "f:8:1: bucket.match \"a\" has a section already"},
        {"match = 'a'\nsize = '90%'", "f:7:1: cache.size cannot be set for a bucket: all buckets "
                                      "share the disks; quota limits a "
                                      "section's part of them; set it in [cache]"},
        {"match = 'a'\ninflight = 3", "f:7:1: prefetch.inflight cannot be set for a bucket: it "
                                      "counts the chunks of all requests; "
                                      "set it in [prefetch]"},
        {"match = 'a'\nbackground = 'on'",
         "f:7:14: bucket.background \"on\" is none of \"off\" \"auto\" \"always\""},
        {"match = 'a'\ntll = '1s'",
         "f:7:1: unknown key \"tll\" in [[bucket]]; did you mean \"ttl\"?"},
        {"match = 'a'\npin = 1", "f:7:7: bucket.pin must be true or false, without quotes"},
        {"match = 'a'\npin = false\npin = false", "f:8:1: \"pin\" is set twice; first in line 7"},
        {"match = 'a'\nquota = '1x'", "f:7:9: bucket.quota \"1x\" is no size; write a number and "
                                      "B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, as \"8MiB\""},
        {"match = 1", "f:6:9: bucket.match must be a string in quotes"},
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        snprintf(text, sizeof text, NEEDED "[[bucket]]\n%s\n", cases[i].lines);
        check_only(text, cases[i].mistake);
    }
}

static void bucket_names_and_prefixes_have_the_length_of_keys(void **state)
{
    char text[3 * KIB], match[2 * KIB];
    static const struct {
        unsigned bucket, key;
        bool good;
    } rows[] = {{255, 1024, true}, {256, 0, false}, {255, 1025, false}, {1, 1024, true}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char at[] = "f:6:1: bucket.match \"";
        snprintf(match, sizeof match, "%0*d/%0*d", (int)rows[i].bucket, 1, (int)rows[i].key, 1);
        if (rows[i].key == 0)
            match[rows[i].bucket] = '\0';
        snprintf(text, sizeof text, NEEDED "[[bucket]]\nmatch = '%s'\n", match);
        if (rows[i].good) {
            check_only(text, NULL);
            continue;
        }
        struct config *c = NULL;
        assert_int_equal(conf_parse(span_of(text), "f", NULL, NULL, 0, &c, &mistakes), ERR_CONFIG);
        assert_int_equal(mistakes.count, 1);
        assert_memory_equal(mistakes.item[0].text, at, sizeof at - 1);
        assert_non_null(strstr(mistakes.item[0].text, "is longer than any bucket or key"));
    }
}

static void one_bucket_section_too_many_is_one_mistake(void **state)
{
    static char memory[CONF_BUCKETS_MAX * 64 + KIB];
    struct text t;

    (void)state;
    text_init(&t, memory, sizeof memory);
    text_adds(&t, NEEDED);
    for (unsigned i = 0; i < CONF_BUCKETS_MAX; i++)
        text_addf(&t, "[[bucket]]\nmatch = 'b%u'\n", i);
    check_only(t.at, NULL);
    text_adds(&t, "[[bucket]]\nmatch = 'more'\nnonsense = 1\n");
    assert_false(t.over);
    char mistake[64];
    snprintf(mistake, sizeof mistake, "f:%d:1: more than %d [[bucket]] sections",
             5 + 2 * CONF_BUCKETS_MAX, CONF_BUCKETS_MAX);
    check_only(t.at, mistake);
}

/* A section with KEY = VALUE, and beside it nothing but its match, as it is printed. */
static char *printed_with(const char *key, const char *value)
{
    static char memory[64 * KIB];
    bool other = strcmp(key, "match") != 0;
    char text[KIB];
    struct text t;

    snprintf(text, sizeof text, NEEDED "[[bucket]]\n%s%s = %s\n", other ? "match = 'b'\n" : "", key,
             value);
    struct config *c = load(text);
    text_init(&t, memory, sizeof memory);
    conf_print(c, &t);
    assert_false(t.over);
    conf_give(c);
    return memory;
}

/* Two values of its kind, as a file has them. */
static void two_values(const struct conf_option *o, char out[2][64])
{
    static const char *const values[][2] = {
        [CONF_TEXT] = {"\"b\"", "\"c\""},
        [CONF_BOOL] = {"true", "false"},
        [CONF_TIME] = {"\"1s\"", "\"2s\""},
        [CONF_BYTES] = {"\"1GiB\"", "\"2GiB\""},
    };
    struct span rest = span_of(o->values);

    for (unsigned i = 0; i < 2; i++) {
        struct span choice = span_cut(&rest, '|');
        if (o->kind == CONF_ENUM) {
            snprintf(out[i], 64, "\"%.*s\"", (int)choice.len, choice.at);
            continue;
        }
        assert_true(o->kind < ARRAY_COUNT(values) && values[o->kind][i]);
        snprintf(out[i], 64, "%s", values[o->kind][i]);
    }
}

/* Found as: the effective configuration said nothing of a section's background. */
static void each_key_of_a_section_is_printed_and_read_again(void **state)
{
    static char again[64 * KIB];

    (void)state;
    for (unsigned key = 0; key < BUCKET_KEYS; key++) {
        char value[2][64], line[256];
        struct conf_option o;
        struct text t;
        unsigned at;
        assert_true(conf_bucket_key(span_of(bucket_keys[key].key), &o, &at));
        two_values(&o, value);
        for (unsigned i = 0; i < 2; i++) {
            char *printed = printed_with(o.key, value[i]);
            snprintf(line, sizeof line, "\n%s = %s\n", o.key, value[i]);
            if (!strstr(strstr(printed, "[[bucket]]"), line))
                fail_msg("%s is not printed", o.key);
            struct config *c = load(printed);
            text_init(&t, again, sizeof again);
            conf_print(c, &t);
            assert_string_equal(printed, again);
            conf_give(c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_bucket_match_rules),
        cmocka_unit_test(a_list_is_as_young_as_the_strictest_section_of_what_it_shows),
        cmocka_unit_test(buckets_take_what_they_do_not_set_from_the_general_sections),
        cmocka_unit_test(bucket_mistakes_are_told),
        cmocka_unit_test(bucket_names_and_prefixes_have_the_length_of_keys),
        cmocka_unit_test(one_bucket_section_too_many_is_one_mistake),
        cmocka_unit_test(each_key_of_a_section_is_printed_and_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
