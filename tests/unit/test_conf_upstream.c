/* Sections of upstreams: which are accepted, what is wrong with the others, what a reload keeps. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf_upstream.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "conf_case.h"

#define CACHE "[cache]\ndirs = ['/c']\n"
#define TWO                                                                                        \
    "[[upstream]]\nname = 'm'\nendpoint = 'http://m'\nmatch = ['a', 'p-*']\n"                      \
    "[[upstream]]\nname = 'd'\nendpoint = 'https://d'\n"

static void sections_take_their_own_options_and_the_default_comes_first(void **state)
{
    struct config *c = load(CACHE "[[upstream]]\nname = 'm'\nendpoint = 'http://m'\n"
                                  "match = ['a', 'p-*']\nretries = 2\n"
                                  "[[upstream]]\nname = 'n'\nendpoint = 'file:///n'\n"
                                  "match = ['b']\nbucket = 'B'\n"
                                  "[[upstream]]\nname = 'd'\nendpoint = 'https://d'\n"
                                  "profile = 'p'\nread_timeout = '3s'\n");

    (void)state;
    assert_int_equal(c->upstream_count, 3);
    assert_ptr_equal(conf_default_upstream(c), &c->upstream[0]);
    assert_string_equal(c->upstream[0].name, "d");
    assert_string_equal(c->upstream[0].profile, "p");
    assert_int_equal(c->upstream[0].read_timeout, 3000);
    assert_int_equal(c->upstream[0].retries, 5);
    assert_string_equal(c->upstream[1].name, "m");
    assert_int_equal(c->upstream[1].retries, 2);
    assert_int_equal(c->upstream[1].read_timeout, 15000);
    assert_int_equal(c->upstream[1].match.count, 2);
    assert_string_equal(c->upstream[1].match.item[1], "p-*");
    assert_string_equal(c->upstream[1].bucket, "");
    assert_string_equal(c->upstream[2].endpoint, "file:///n");
    assert_string_equal(c->upstream[2].bucket, "B");
    conf_give(c);
}

static void variables_and_flags_set_the_default(void **state)
{
    char *env[] = {"HEADPOND_UPSTREAM_RETRIES=7", NULL};
    const struct conf_flag flags[] = {{"upstream.endpoint", "http://flag"}};
    struct config *c = load_with(TWO CACHE, env, flags, 1);

    (void)state;
    assert_string_equal(c->upstream[0].name, "d");
    assert_int_equal(c->upstream[0].retries, 7);
    assert_string_equal(c->upstream[0].endpoint, "http://flag");
    assert_int_equal(c->upstream[1].retries, 5);
    conf_give(c);
}

static void a_section_alone_may_match_and_needs_no_name(void **state)
{
    struct config *c = load("[[upstream]]\nendpoint = 'http://m'\nmatch = ['a']\n" CACHE);

    (void)state;
    assert_int_equal(c->upstream_count, 1);
    assert_null(conf_default_upstream(c));
    conf_give(c);
}

#define M(rest) "[[upstream]]\nname = 'm'\nendpoint = 'http://m'\n" rest "\n"
#define D "[[upstream]]\nname = 'd'\nendpoint = 'http://d'\n" CACHE
static const struct {
    const char *text, *mistake;
} rows[] = {
    {"[upstream]\nendpoint = 'http://a'\n[[upstream]]\nname = 'b'\n" CACHE,
     "f:3:1: [[upstream]] cannot stand beside [upstream], which began in line 1; write "
     "[[upstream]] for each"},
    {"[[upstream]]\nendpoint = 'http://a'\n[upstream]\nname = 'b'\n" CACHE,
     "f:3:1: [upstream] cannot stand beside [[upstream]], which began in line 1; write "
     "[[upstream]] for each"},
    {"upstream.endpoint = 'http://a'\n[[upstream]]\nname = 'b'\n" CACHE,
     "f:2:1: [[upstream]] cannot stand beside [upstream], which began in line 1; write "
     "[[upstream]] for each"},
    {"[upstream]\nendpoint = 'http://a'\n[upstream]\nname = 'b'\n" CACHE,
     "f:3:1: section [upstream] is given twice; it began in line 1"},
    {"[upstream]\nendpoint = 'http://a'\nmatch = ['b']\n" CACHE,
     "f:3:1: upstream.match belongs to [[upstream]]; write the section so"},
    {"[upstream]\nendpoint = 'http://a'\nbucket = 'b'\n" CACHE,
     "f:3:1: upstream.bucket belongs to [[upstream]]; write the section so"},
    {"[[upstream]]\nendpoint = 'http://m'\nmatch = ['a']\n" D,
     "f:1:1: upstream.name is missing; each of several [[upstream]] needs one of its own"},
    {"[[upstream]]\nname = 'M'\nendpoint = 'http://m'\nmatch = ['a']\n" D,
     "f:1:1: upstream.name \"M\" is no name of one of several; use 1 to 32 of a-z, 0-9 and \"-\""},
    {"[[upstream]]\nname = 'd'\nendpoint = 'http://m'\nmatch = ['a']\n" D,
     "f:5:1: upstream.name \"d\" is another section's name already"},
    {"[[upstream]]\nname = 'm'\nmatch = ['a']\n" D,
     "f:1:1: upstream.endpoint is missing in this section"},
    {"[[upstream]]\nname = 'm'\nendpoint = 'm'\nmatch = ['a']\n" D,
     "f:3:12: upstream.endpoint \"m\" is no endpoint; write https://host[:port], "
     "http://host[:port] or file:///dir"},
    {M("") D,
     "f:5:1: a second [[upstream]] without match; the one in line 1 takes what no other matches"},
    {M("match = 'a'") D, "f:4:9: upstream.match must be an array of strings, as [\"a\", \"b\"]"},
    {M("match = []") D,
     "f:4:9: upstream.match is empty; leave it out for what no other section matches"},
    {M("match = ['a', 'a']") D, "f:4:15: upstream.match \"a\" is given twice"},
    {M("match = ['a']\nmatch = ['b']") D, "f:5:1: \"match\" is set twice; first in line 4"},
    {M("match = ['a', '*']") D, "f:4:15: upstream.match \"*\" matches everything; leave match out "
                                "for what no other section matches"},
    {M("match = ['a*b']") D, "f:4:10: upstream.match \"a*b\" may have a \"*\" at its end only"},
    {M("match = ['a/b']") D,
     "f:4:10: upstream.match \"a/b\" must be a bucket's name, without keys"},
    {M("match = ['s3://a']") D, "f:4:10: upstream.match \"s3://a\" must be written without s3://"},
    {M("match = ['a', 'x*']") "[[upstream]]\nname = 'n'\nendpoint = 'http://n'\n"
                              "match = ['b',\n'x*']\n" D,
     "f:9:1: upstream.match \"x*\" leads to another upstream already, by line 4"},
    {M("match = ['a', 'b']\nbucket = 'c'") D,
     "f:5:10: upstream.bucket \"c\" renames one bucket: match must be one name, without \"*\""},
    {M("match = ['a*']\nbucket = 'c'") D,
     "f:5:10: upstream.bucket \"c\" renames one bucket: match must be one name, without \"*\""},
    {"[[upstream]]\nendpoint = 'http://m'\nbucket = 'c'\n" CACHE,
     "f:3:10: upstream.bucket \"c\" renames one bucket: match must be one name, without \"*\""},
    {M("match = ['a']\nbucket = 'c/d'") D,
     "f:5:10: upstream.bucket \"c/d\" must be a bucket's name, without keys"},
    {M("match = ['a']\nbuckte = 'c'") D,
     "f:5:1: unknown key \"buckte\" in [upstream]; did you mean \"bucket\"?"},
    {M("match = ['a']\nbucket = 'c'") D, NULL},
};

static void each_mistake_has_its_place_and_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if (rows[i].mistake)
            check_only(rows[i].text, rows[i].mistake);
        else
            conf_give(load(rows[i].text));
    }
}

static void what_sets_a_default_that_is_not_there_is_a_mistake(void **state)
{
    char *env[] = {"HEADPOND_UPSTREAM_RETRIES=7", NULL};
    const struct conf_flag flags[] = {{"upstream.endpoint", "http://flag"}};
    struct config *c = NULL;

    (void)state;
    assert_int_equal(conf_parse(span_of(M("match = ['a']") CACHE), "f", env, flags, 1, &c,
                                &mistakes), ERR_CONFIG);
    assert_int_equal(mistakes.count, 2);
    assert_string_equal(mistakes.item[0].text, "environment: HEADPOND_UPSTREAM_RETRIES sets the "
                                               "[[upstream]] without match, and there is none");
    assert_string_equal(mistakes.item[1].text, "command line: upstream.endpoint sets the "
                                               "[[upstream]] without match, and there is none");
}

static void seventeen_are_too_many(void **state)
{
    static char text[4096];
    struct text t;

    (void)state;
    text_init(&t, text, sizeof text - 1);
    text_adds(&t, CACHE);
    for (unsigned i = 0; i < 17; i++)
        text_addf(&t, "[[upstream]]\nname = 'n%u'\nendpoint = 'http://n%u'\nmatch = ['b%u']\n", i,
                  i, i);
    check_only(text, "f:67:1: more than 16 [[upstream]] sections");
}

static void what_is_printed_can_be_read_again(void **state)
{
    static char output[64 * KIB], again[64 * KIB];
    struct config *c = load(TWO "[[upstream]]\nname = 'r'\nendpoint = 'http://r'\n"
                                "match = ['q']\nbucket = 'Q'\n" CACHE);
    struct text t;

    (void)state;
    text_init(&t, output, sizeof output - 1);
    conf_print(c, &t);
    conf_give(c);
    assert_non_null(strstr(output, "match = [\"a\", \"p-*\"]\n"));
    assert_non_null(strstr(output, "match = [\"q\"]\nbucket = \"Q\"\n"));
    c = load(output);
    text_init(&t, again, sizeof again - 1);
    conf_print(c, &t);
    conf_give(c);
    assert_string_equal(output, again);
}

/* ---- reload ---- */

static unsigned reload(const char *before, const char *after, struct config **next, char *out)
{
    static struct config *start;
    struct text changed;

    conf_give(start);
    start = load(before);
    *next = load(after);
    text_init(&changed, out, 1024);
    return conf_keep_restart(*next, start, &changed);
}

static void a_reload_keeps_the_set_and_takes_live_options_by_name(void **state)
{
    struct config *c;
    char changed[1024 + 1] = "";

    (void)state;
    /* another order, live options, and one that is not */
    assert_int_equal(reload(TWO CACHE, "[[upstream]]\nname = 'd'\nendpoint = 'https://d'\n"
                                       "retries = 9\n[[upstream]]\nname = 'm'\nretries = 8\n"
                                       "endpoint = 'http://other'\nmatch = ['a', 'p-*']\n" CACHE,
                            &c, changed), 1);
    assert_string_equal(changed, "upstream.endpoint of m");
    assert_string_equal(c->upstream[0].name, "d");
    assert_int_equal(c->upstream[0].retries, 9);
    assert_int_equal(c->upstream[1].retries, 8);
    assert_string_equal(c->upstream[1].endpoint, "http://m");
    conf_give(c);
    /* another match */
    assert_int_equal(reload(TWO CACHE, M("match = ['a']\nretries = 8") D, &c, changed), 2);
    assert_string_equal(changed, "upstream.endpoint of d, upstream.match of m");
    assert_int_equal(c->upstream[1].match.count, 2);
    assert_int_equal(c->upstream[1].retries, 8);
    conf_give(c);
    /* fewer, and more */
    assert_int_equal(reload(TWO CACHE, "[upstream]\nname = 'd'\nendpoint = 'https://d'\n"
                                       "retries = 3\n" CACHE, &c, changed), 1);
    assert_string_equal(changed, "the set of upstreams");
    assert_int_equal(c->upstream_count, 2);
    assert_int_equal(c->upstream[0].retries, 3);
    assert_int_equal(c->upstream[1].retries, 5);
    conf_give(c);
    assert_int_equal(reload("[upstream]\nname = 'd'\nendpoint = 'https://d'\n" CACHE, TWO CACHE,
                            &c, changed), 1);
    assert_string_equal(changed, "the set of upstreams");
    assert_int_equal(c->upstream_count, 1);
    assert_string_equal(c->upstream[0].name, "d");
    conf_give(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_take_their_own_options_and_the_default_comes_first),
        cmocka_unit_test(variables_and_flags_set_the_default),
        cmocka_unit_test(a_section_alone_may_match_and_needs_no_name),
        cmocka_unit_test(each_mistake_has_its_place_and_sentence),
        cmocka_unit_test(what_sets_a_default_that_is_not_there_is_a_mistake),
        cmocka_unit_test(seventeen_are_too_many),
        cmocka_unit_test(what_is_printed_can_be_read_again),
        cmocka_unit_test(a_reload_keeps_the_set_and_takes_live_options_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
