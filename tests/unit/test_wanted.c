/* Shard patterns and manifests on the command line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

static struct wanted w;
static char path[PATH_MAX];

/* With a word for the prefix, or NULL. */
static int read_pattern_of(const char *prefix, const char *pattern)
{
    struct ctl c = {.word = {prefix}, .word_count = prefix != NULL, .wds = {pattern},
                    .wds_count = 1};

    wanted_free(&w);
    return wanted_read(&c, &w);
}

static int read_manifest_of(const char *prefix, const char *text)
{
    struct ctl c = {.word = {prefix}, .word_count = prefix != NULL, .manifest = path};

    snprintf(path, sizeof path, "%s/file", dir);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    wanted_free(&w);
    return wanted_read(&c, &w);
}

static void has(const char *lines)
{
    assert_int_equal(w.len, strlen(lines));
    assert_memory_equal(w.bytes, lines, w.len);
}
#define KEY(key_) "{\"key\":\"" key_ "\"}\n"

static void braces_are_ranges_and_choices(void **state)
{
    (void)state;
    assert_int_equal(read_pattern_of(NULL, "s3://b/t-{08..11}{a,b}"), CTL_DONE);
    has(KEY("t-08a") KEY("t-08b") KEY("t-09a") KEY("t-09b") KEY("t-10a") KEY("t-10b")
        KEY("t-11a") KEY("t-11b"));
    assert_memory_equal(w.prefix, "t-", 2);
    assert_int_equal(w.prefix_len, 2);
    assert_int_equal(read_pattern_of("s3://b/p", "x{10..0..5}.tar"), CTL_DONE);
    has(KEY("p/x10.tar") KEY("p/x5.tar") KEY("p/x0.tar"));
    assert_int_equal(read_pattern_of("b/p/", "{000..002..2}"), CTL_DONE);
    has(KEY("p/000") KEY("p/002"));
    assert_int_equal(read_pattern_of("b", "{,x}y\\{{a\\,b,c}\\}"), CTL_DONE);
    has(KEY("y{a,b}") KEY("y{c}") KEY("xy{a,b}") KEY("xy{c}"));
    assert_int_equal(read_pattern_of("b", "no-braces"), CTL_DONE);
    has(KEY("no-braces"));
    assert_int_equal(read_pattern_of(NULL, "s3://b/train-{000000..000999}.tar"), CTL_DONE);
    assert_int_equal(w.count, 1000);
}

static void patterns_that_are_wrong_are_refused(void **state)
{
    static const char *const wrong[] = {
        "{", "a}", "{a", "{a}", "{}", "{1..}", "{..2}", "{1..2..0}", "{a..b}", "{{a,b},c}",
        "{0..500000}", "{0..999}{0..999}", "{1,2}{1,2", "s3://", "s3:///k", "s3://b",
        "{0..99999999999999999999}", "{0..999999999999999999..1}",
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(wrong); i++)
        assert_int_equal(read_pattern_of("b", wrong[i]), CTL_USAGE);
    assert_int_equal(read_pattern_of(NULL, "relative"), CTL_USAGE);
    assert_int_equal(read_pattern_of("b/p", "s3://b/q"), CTL_USAGE);
    assert_int_equal(read_pattern_of("b/p", "s3://c/p"), CTL_USAGE);
}

static void a_manifest_is_lines_of_keys(void **state)
{
    (void)state;
    assert_int_equal(read_manifest_of("s3://b/p", "a\r\n\n  \ns3://b/p/x y\nc#d"), CTL_DONE);
    has(KEY("p/a") KEY("p/x y") KEY("p/c#d"));
    assert_int_equal(read_manifest_of(NULL, "s3://b/k1\ns3://b/k22\n"), CTL_DONE);
    assert_int_equal(w.prefix_len, 1);
    assert_int_equal(w.bucket_len, 1);
    assert_int_equal(read_manifest_of("b", ""), CTL_USAGE);
    assert_int_equal(read_manifest_of("b", "a\ns3://c/a"), CTL_USAGE);
    assert_int_equal(read_manifest_of("b", "a\n\xff\n"), CTL_USAGE);
}

static void or_lines_of_json(void **state)
{
    (void)state;
    assert_int_equal(
        read_manifest_of("b", "\n{\"key\":\"a\\nb\",\"etag\":\"\\\"e\\\"\",\"size\":5,\"x\":1}\n"
                              "{\"key\":\"s3://b/c\"}"), CTL_DONE);
    has("{\"key\":\"a\\nb\",\"etag\":\"\\\"e\\\"\",\"size\":5}\n" KEY("c"));
    assert_int_equal(read_manifest_of("b", "{\"key\":\"a\"}\n{\"key\":5}"), CTL_USAGE);
    assert_int_equal(read_manifest_of("b", "{\"key\":\"a\"}\nb"), CTL_USAGE);
    assert_int_equal(read_manifest_of("b", "{\"kez\":\"a\"}"), CTL_USAGE);
}

static void or_the_index_of_a_data_set(void **state)
{
    (void)state;
    assert_int_equal(
        read_manifest_of("b/p", "{\"version\":2,\n\"shards\":[\n"
            "{\"raw_data\":{\"basename\":\"s0\",\"bytes\":9},\"zip_data\":null},\n"
            "{\"raw_data\":{\"basename\":\"s1\",\"bytes\":9},"
            "\"zip_data\":{\"basename\":\"s1.zstd\",\"bytes\":4},"
            "\"raw_meta\":{\"basename\":\"s1.meta\"}}]}"), CTL_DONE);
    has("{\"key\":\"p/s0\",\"size\":9}\n{\"key\":\"p/s1.zstd\",\"size\":4}\n" KEY("p/s1.meta"));
    assert_int_equal(read_manifest_of("b/p", "{\"shards\":[{}]}"), CTL_USAGE);
    assert_int_equal(read_manifest_of("b/p", "{\"shards\":[]}"), CTL_USAGE);
    assert_int_equal(read_manifest_of("b/p", "{\n\"shards\":["), CTL_USAGE);
}

static void what_is_wrong_is_told_by_line_and_column(void **state)
{
    (void)state;
    assert_int_equal(read_manifest_of("b", "a\n{b\n"), CTL_DONE);
    assert_int_equal(read_manifest_of("b", "{\"key\":\"a\",\"size\":-1}\n"), CTL_USAGE);
    assert_int_equal(read_manifest_of("b", "{\"key\":\"a\"}\n\n{\"key\":7}\n"), CTL_USAGE);
    assert_int_equal(RUN("prewarm", "b", "--manifest", path), CTL_USAGE);
    assert_non_null(strstr(err_text_, "/file:3:1: no \"key\" is named in this object; nothing was "
                                      "begun\n"));
    assert_int_equal(RUN("prewarm", "b", "--wds", "ab{c"), CTL_USAGE);
    assert_string_equal(err_text_, "--wds:1:3: this brace is not closed; nothing was begun\n");
    assert_int_equal(RUN("prewarm"), CTL_USAGE);
    assert_int_equal(RUN("prewarm", "b", "--order", "manifest"), CTL_USAGE);
    assert_int_equal(RUN("prewarm", "b", "--order", "random"), CTL_USAGE);
    assert_int_equal(RUN("prewarm", "b", "--wds", "a", "--verify", "--detach"), CTL_USAGE);
}

static void a_list_is_sent_and_its_job_followed(void **state)
{
    static const char answer[] = "HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n"
        "{\"id\":\"j3\",\"kind\":\"prewarm\",\"state\":\"done\",\"prefix\":\"b/\","
        "\"objects\":{\"wanted\":2,\"done\":1,\"failed\":1,\"skipped\":0}}";
    struct fake f;

    (void)state;
    fake_start(&f, dir, answer, 2);
    assert_int_equal(RUN("--server", f.url, "prewarm", "--wds", "s3://b/{a,b}"), CTL_PARTLY);
    fake_end(&f);
    shows("j3 done: 1 of 2 objects");
}

/* Two letters that begin with one byte: the prefix that was sent ended in the middle of them. */
static void keys_that_part_within_a_character_share_whole_ones(void **state)
{
    static const char answer[] = "HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n"
        "{\"id\":\"j3\",\"kind\":\"prewarm\",\"state\":\"done\",\"prefix\":\"b/\","
        "\"objects\":{\"wanted\":2,\"done\":2,\"failed\":0,\"skipped\":0}}";
    struct fake f;

    (void)state;
    fake_start(&f, dir, answer, 2);
    assert_int_equal(RUN("--server", f.url, "prewarm", "--wds", "s3://b/d{\xc3\xa9,\xc3\xa8}"),
                     CTL_DONE);
    fake_end(&f);
    shows("j3 done: 2 of 2 objects");
}

static int end(void **state)
{
    wanted_free(&w);
    return remove_dir(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(braces_are_ranges_and_choices),
        cmocka_unit_test(patterns_that_are_wrong_are_refused),
        cmocka_unit_test(a_manifest_is_lines_of_keys),
        cmocka_unit_test(or_lines_of_json),
        cmocka_unit_test(or_the_index_of_a_data_set),
        cmocka_unit_test(a_list_is_sent_and_its_job_followed),
        cmocka_unit_test(keys_that_part_within_a_character_share_whole_ones),
        cmocka_unit_test(what_is_wrong_is_told_by_line_and_column),
    };
    return cmocka_run_group_tests(tests, make_dir, end);
}
