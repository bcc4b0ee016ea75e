/* Unit tests of common/creds_answer.c: what is taken from answers, what is refused, and that no
 * byte of an answer gets into words. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/creds_answer.c"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct creds creds;
static char words[300];

static enum err read_as(enum creds_form form, const char *answer)
{
    struct text why;
    text_init(&why, words, sizeof(words));
    return creds_answer_json(form, span_of(answer), &creds, &why);
}

static void refused(enum creds_form form, const char *answer, const char *expected)
{
    if (read_as(form, answer) != ERR_SYNTAX || !strstr(words, expected))
        fail_msg("%s: \"%s\", not \"%s\"", answer, words, expected);
    assert_null(strstr(words, "CANARY"));
}

static void json_of_a_process(void **state)
{
    (void)state;
    assert_int_equal(read_as(CREDS_OF_PROCESS,
                             " {\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"s\","
                             " \"SessionToken\": \"t\", \"More\": [{}],"
                             " \"Expiration\": \"2026-11-20T13:56:23.5Z\"}\n"),
                     OK);
    assert_string_equal(creds.access_key, "A");
    assert_int_equal(creds.secret.len, 1);
    assert_memory_equal(creds.secret.bytes, "s", 1);
    assert_string_equal(creds.token, "t");
    assert_int_equal(creds.expire_s, 1795182983);
    /* static keys from a vault */
    assert_int_equal(read_as(CREDS_OF_PROCESS, "{\"Version\":1,\"AccessKeyId\":\"A\","
                                               "\"SecretAccessKey\":\"s\",\"Expiration\":null}"),
                     OK);
    assert_string_equal(creds.token, "");
    assert_int_equal(creds.expire_s, 0);
}

static void json_that_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *why;
    } row[] = {
        {"", "not a JSON object"},
        {"CANARY", "not a JSON object"},
        {"[1]", "not a JSON object"},
        {"{\"CANARY\":1} CANARY", "not a JSON object"},
        {"{}", "\"Version\" is not 1"},
        {"{\"Version\":\"1\"}", "\"Version\" is not 1"},
        {"{\"Version\":2}", "\"Version\" is not 1"},
        {"{\"Version\":1}", "no access key"},
        {"{\"Version\":1,\"AccessKeyId\":\"CANARY\"}", "no secret key"},
        {"{\"Version\":1,\"SecretAccessKey\":\"CANARY\"}", "no access key"},
        {"{\"Version\":1,\"AccessKeyId\":1,\"SecretAccessKey\":\"CANARY\"}", "no access key"},
        {"{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"CAN ARY\"}", "character"},
        {"{\"Version\":1,\"AccessKeyId\":\"A\\r\\nX: y\",\"SecretAccessKey\":\"s\"}", "character"},
        {"{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"s\",\"SessionToken\":"
         "\"CANARY\\u0001\"}", "character"},
        {"{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"s\",\"Expiration\":"
         "\"CANARY\"}", "no time"},
        {"{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"s\",\"Expiration\":5}",
         "no time"},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++)
        refused(CREDS_OF_PROCESS, row[i].answer, row[i].why);
}

static void other_forms_must_end(void **state)
{
    (void)state;
    static const char pair[] = "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"s\",\"Token\":\"t\"}";
    static const char whole[] = "{\"Code\":\"Success\",\"AccessKeyId\":\"A\",\"SecretAccessKey\":"
                                "\"s\",\"Token\":\"t\",\"Expiration\":\"2026-11-20T13:56:23Z\"}";
    refused(CREDS_OF_CONTAINER, pair, "when they expire");
    refused(CREDS_OF_INSTANCE, pair, "\"Code\"");
    refused(CREDS_OF_INSTANCE, "{\"Code\":\"CANARY\"}", "\"Code\" is not \"Success\"");
    for (enum creds_form form = CREDS_OF_CONTAINER; form <= CREDS_OF_INSTANCE; form++) {
        assert_int_equal(read_as(form, whole), OK);
        assert_string_equal(creds.token, "t");
        assert_int_equal(creds.expire_s, 1795182983);
    }
}

static void an_answer_that_is_too_large(void **state)
{
    (void)state;
    static char large[CREDS_ANSWER_BYTES_MAX + 2];
    memset(large, ' ', sizeof(large) - 1);
    refused(CREDS_OF_PROCESS, large, "64 KiB");
    large[CREDS_ANSWER_BYTES_MAX] = '\0';
    refused(CREDS_OF_PROCESS, large, "not a JSON object");
    /* a token of 4 KiB is the longest */
    char token[CREDS_TOKEN_BYTES_MAX + 2], answer[2 * CREDS_TOKEN_BYTES_MAX];
    memset(token, 'x', sizeof(token));
    for (int len = CREDS_TOKEN_BYTES_MAX; len <= CREDS_TOKEN_BYTES_MAX + 1; len++) {
        snprintf(answer, sizeof(answer), "{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":"
                                         "\"s\",\"SessionToken\":\"%.*s\"}", len, token);
        assert_int_equal(read_as(CREDS_OF_PROCESS, answer) == OK, len == CREDS_TOKEN_BYTES_MAX);
    }
}

/* ---- XML ---- */
static enum err read_sts(const char *action, const char *body)
{
    char document[2 * KIB];
    struct text why;
    snprintf(document, sizeof(document),
             "<?xml version=\"1.0\"?><AssumeRoleResponse xmlns=\"https://x/\"><AssumeRoleResult>"
             "<Credentials>%s</Credentials></AssumeRoleResult></AssumeRoleResponse>", body);
    text_init(&why, words, sizeof(words));
    return creds_answer_sts(action, span_of(document), &creds, &why);
}

static void xml_of_sts(void **state)
{
    (void)state;
    static const char whole[] =
        "<AccessKeyId>A</AccessKeyId><SecretAccessKey>s&#x2F;&amp;</SecretAccessKey>"
        "<SessionToken>\n t\n</SessionToken><Expiration>2026-11-20T13:56:23Z</Expiration>";
    static const struct {
        const char *body, *why;
    } row[] = {
        {"", "no access key"},
        {"<AccessKeyId>A</AccessKeyId><SecretAccessKey>CANARY</SecretAccessKey>", "expire"},
        {"<AccessKeyId>A</AccessKeyId><AccessKeyId>B</AccessKeyId>", "not XML of STS"},
        {"<AccessKeyId>CANARY", "not XML of STS"},
        {"<AccessKeyId>A</AccessKeyId><SecretAccessKey>CANARY</SecretAccessKey><Expiration>x"
         "</Expiration>", "no time"},
        {"<X><AccessKeyId>A</AccessKeyId></X>", "no access key"},
    };
    assert_int_equal(read_sts("AssumeRole", whole), OK);
    assert_string_equal(creds.access_key, "A");
    assert_memory_equal(creds.secret.bytes, "s/&", 3);
    assert_string_equal(creds.token, "t");
    assert_int_equal(creds.expire_s, 1795182983);
    assert_int_equal(read_sts("AssumeRoleWithWebIdentity", whole), ERR_SYNTAX);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        assert_int_equal(read_sts("AssumeRole", row[i].body), ERR_SYNTAX);
        if (!strstr(words, row[i].why) || strstr(words, "CANARY"))
            fail_msg("%s: %s", row[i].body, words);
    }
    struct text why;
    text_init(&why, words, sizeof(words));
    assert_int_equal(creds_answer_sts("AssumeRole",
                                      span_of("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"), &creds,
                                      &why),
                     ERR_SYNTAX);
}

static void codes_of_errors(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *code;
    } row[] = {
        {"<ErrorResponse xmlns='x'><Error><Type>S</Type><Code> AccessDenied </Code><Message>CANARY"
         "</Message></Error><RequestId>r</RequestId></ErrorResponse>", "AccessDenied"},
        {"<ErrorResponse><Error><Code>can ary</Code></Error></ErrorResponse>", ""},
        {"<ErrorResponse><Error><Code>A</Code></Error>", ""},
        {"<html><Code>A</Code></html>", ""},
        {"{\"code\":\"a.B1\",\"message\":\"CANARY\"}", "a.B1"},
        {"{\"Code\":\"Failed\"}", "Failed"},
        {"{\"code\":\"CANARY CANARY\"}", ""},
        {"{\"code\":\"a23456789012345678901234567890123456789012345678\"}", ""},
        {"{\"code\":5}", ""}, {"CANARY", ""}, {"", ""},
    };
    char code[CREDS_CODE_BYTES];
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        creds_answer_code(span_of(row[i].answer), code);
        assert_string_equal(code, row[i].code);
    }
}

/* ---- times ---- */
static void times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t s;
    } row[] = {
        {"2026-11-20T13:56:23Z", 1795182983},      {"2026-11-20t13:56:23z", 1795182983},
        {"2026-11-20 13:56:23+00:00", 1795182983}, {"2026-11-20T15:56:23+02:00", 1795182983},
        {"2026-11-20T13:26:23-0030", 1795182983},  {"2026-11-20T13:56:23.123456789Z", 1795182983},
        {"2026-11-20T13:56:23", 0},                {"2026-11-20T13:56Z", 0},
        {"2026-13-20T13:56:23Z", 0},               {"2026-11-20T24:56:23Z", 0},
        {"2026-11-20T13:56:23Zx", 0},              {"2026-11-20T13:56:23+2:00", 0},
        {"2026-11-20T13:56:23+24:00", 0},          {"1960-11-20T13:56:23Z", 0},
        {"", 0},                                   {"-026-11-20T13:56:23Z", 0},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++)
        assert_int_equal(creds_time(span_of(row[i].text)), row[i].s);
}

/* ---- command lines ---- */
static void command_lines(void **state)
{
    (void)state;
    static const struct {
        const char *command, *word[6];
    } row[] = {
        {"a", {"a"}},
        {"  a \t b\n", {"a", "b"}},
        {"'a b' \"c d\" e\\ f", {"a b", "c d", "e f"}},
        {"a'b'\"c\"", {"abc"}},
        {"'' \"\" x", {"", "", "x"}},
        {"\"a\\\"b\\\\c\\d\" 'a\\b'", {"a\"b\\c\\d", "a\\b"}},
        {"$HOME `x` | y;", {"$HOME", "`x`", "|", "y;"}},
        {"a\\", {"a\\"}},
    };
    char memory[64], *argv[6];
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        assert_true(creds_split(row[i].command, memory, argv, 6));
        unsigned n = 0;
        for (; row[i].word[n]; n++)
            assert_string_equal(argv[n], row[i].word[n]);
        assert_null(argv[n]);
    }
    static const char *const bad[] = {"", "  ", "'a", "\"a", "a 'b", "a b c d e f"};
    for (unsigned i = 0; i < ARRAY_COUNT(bad); i++)
        assert_false(creds_split(bad[i], memory, argv, 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_of_a_process),
        cmocka_unit_test(json_that_is_refused),
        cmocka_unit_test(other_forms_must_end),
        cmocka_unit_test(an_answer_that_is_too_large),
        cmocka_unit_test(xml_of_sts),
        cmocka_unit_test(codes_of_errors),
        cmocka_unit_test(times),
        cmocka_unit_test(command_lines),
    };
    must(xml_setup() == OK);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
