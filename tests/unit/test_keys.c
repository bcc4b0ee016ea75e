/* Unit tests of common/keys.c: lines of a keys_file, every mistake with its place, and who may do
 * what. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/keys.c"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static struct conf_mistakes mistakes;

static struct keys *parse(const char *text)
{
    struct keys *k = NULL;
    if (keys_parse(span_of(text), "keys", &k, &mistakes) != OK)
        fail_msg("%s", mistakes.item[0].text);
    assert_int_equal(mistakes.count, 0);
    return k;
}

static void test_lines(void **state)
{
    (void)state;
    struct keys *k =
        parse("# our keys\n\n  ZED\tsecret-z rw\r\n"
              "alpha s3cr3t/+=,# ro data,models/llama/ # read only\n"
                           "mid m b.c_d-E\nlast l");
    assert_int_equal(keys_count(k), 4);
    const struct key *zed = keys_find(k, span_of("ZED")), *alpha = keys_find(k, span_of("alpha"));
    const struct key *mid = keys_find(k, span_of("mid")), *last = keys_find(k, span_of("last"));
    assert_true(zed && alpha && mid && last);
    assert_true(zed->write && !alpha->write && !mid->write && !last->write);
    assert_int_equal(zed->line, 3);
    assert_int_equal(alpha->secret.len, 11);
    assert_memory_equal(alpha->secret.bytes, "s3cr3t/+=,#", 11);
    assert_int_equal(alpha->scope_count, 2);
    assert_true(span_is(alpha->scope[0].bucket, "data") && span_is(alpha->scope[0].prefix, ""));
    assert_true(span_is(alpha->scope[1].bucket, "models") &&
                span_is(alpha->scope[1].prefix, "llama/"));
    assert_true(span_is(mid->scope[0].bucket, "b.c_d-E"));
    assert_int_equal(last->scope_count, 0);
    assert_null(keys_find(k, span_of("")));
    assert_null(keys_find(k, span_of("alph")));
    assert_null(keys_find(k, span_of("alphaa")));
    keys_give(k);
    keys_give(NULL);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const row[][2] = {
        {"", "keys:1:1: there is no key in this file"},
        {"# nothing\n", "keys:1:1: there is no key in this file"},
        {"AK", "keys:1:3: the secret key is missing"},
        {"\nAK # secret", "keys:2:12: the secret key is missing"},
        {"A,B s", "keys:1:1: the access key has a character"},
        {"A\x01 s", "keys:1:1: the access key has a character"},
        {"A s\x80", "keys:1:3: the secret key has a character"},
        {"A s RW", NULL},
        {"A s rw rw", "keys:1:8: ro or rw stands directly behind the secret key"},
        {"A s data rw", "keys:1:10: ro or rw stands directly behind the secret key"},
        {"A s rw data models", "keys:1:13: scopes are one list separated by commas"},
        {"A s profile=", "keys:1:5: profile= needs a name"},
        {"A s profile=x profile=y", "keys:1:15: a key has one profile"},
        {"A s profile=x rw", "keys:1:15: profile= stands at the end"},
        {"A s rw profile=x data", "keys:1:18: profile= stands at the end"},
        {"A s rw data profile=a]b", "keys:1:13: the profile's name has a character"},
        {"A s profile=12345678901234567890123456789012345678901234567890123456789012345",
         "keys:1:5: the profile's name is longer"},
        {"A s rw da*a", "keys:1:8: a scope is bucket or bucket/prefix"},
        {"A s rw /x", "keys:1:8: a scope is bucket or bucket/prefix"},
        {"A s rw a,,b", "keys:1:10: a scope is bucket or bucket/prefix"},
        {"A s rw a,", "keys:1:9: a scope must follow the comma"},
        {"A s rw ,", "keys:1:8: a scope is bucket or bucket/prefix"},
        {"A s\nB t\nA u", "keys:3:1: the access key stands in line 1 already"},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct keys *k = NULL;
        enum err e = keys_parse(span_of(row[i][0]), "keys", &k, &mistakes);
        bool told = row[i][1] && span_starts(span_of(mistakes.item[0].text), span_of(row[i][1]));
        if (e != (row[i][1] ? ERR_CONFIG : OK) || told != (row[i][1] != NULL))
            fail_msg("row %u: %s, \"%s\"", i, err_name(e), mistakes.item[0].text);
        assert_true((k != NULL) == (e == OK));
        keys_give(k);
    }
}

static void test_all_mistakes_are_told_and_no_secret(void **state)
{
    (void)state;
    struct keys *k = NULL;
    static const char text[] = "A topsecret1 rw x*y\nB\nC topsecret2 rw rw\nD topsecret3\x7f\n"
                               "E = topsecret4+5\n";
    assert_int_equal(keys_parse(span_of(text), "f", &k, &mistakes), ERR_CONFIG);
    assert_int_equal(mistakes.count, 5);
    for (unsigned i = 0; i < mistakes.count; i++) {
        assert_int_equal(mistakes.item[i].text[2], '1' + i);
        assert_null(strstr(mistakes.item[i].text, "topsecret"));
    }
}

static void test_limits(void **state)
{
    (void)state;
    static char text[64 * KIB];
    struct text t;
    struct keys *k = NULL;
    text_init(&t, text, sizeof(text));
    for (unsigned i = 0; i < KEYS_MAX; i++)
        text_addf(&t, "K%u secret%u %s b%u,b%u/p\n", i, i, i % 2 ? "rw" : "ro", i, i + 1);
    k = parse(text);
    for (unsigned i = 0; i < KEYS_MAX; i++) {
        char name[20];
        snprintf(name, sizeof(name), "K%u", i);
        const struct key *key = keys_find(k, span_of(name));
        snprintf(name, sizeof(name), "b%u", i);
        assert_true(key && key->write == i % 2 && key->line == i + 1 && key->index < KEYS_MAX);
        assert_true(span_is(key->scope[0].bucket, name) && span_is(key->scope[1].prefix, "p"));
    }
    keys_give(k);
    text_adds(&t, "one more\n");
    assert_int_equal(keys_parse(text_span(&t), "f", &k, &mistakes), ERR_CONFIG);
    assert_string_equal(mistakes.item[0].text, "f:1025:1: more than 1024 keys");

    text_init(&t, text, sizeof(text));
    text_adds(&t, "A s b0");
    for (unsigned i = 1; i < KEYS_SCOPES_MAX; i++)
        text_addf(&t, ",b%u", i);
    keys_give(parse(text));
    text_adds(&t, ",c");
    assert_int_equal(keys_parse(text_span(&t), "f", &k, &mistakes), ERR_CONFIG);

    text_init(&t, text, sizeof(text));
    text_addf(&t, "%0128d %0256d ro b/%01024d", 1, 1, 1);
    keys_give(parse(text));
    text_init(&t, text, sizeof(text));
    text_addf(&t, "%0129d %0257d ro %0256d/,b/%01025d", 1, 1, 1, 1);
    assert_int_equal(keys_parse(text_span(&t), "f", &k, &mistakes), ERR_CONFIG);
    assert_int_equal(mistakes.count, 4);
}

static void test_more_mistakes_than_are_kept(void **state)
{
    (void)state;
    char text[400] = "";
    struct keys *k = NULL;
    for (unsigned i = 0; i < CONF_MISTAKES_MAX + 5; i++)
        memcpy(text + 2 * i, "A\n", 3);
    assert_int_equal(keys_parse(span_of(text), "f", &k, &mistakes), ERR_CONFIG);
    assert_int_equal(mistakes.count, CONF_MISTAKES_MAX + 5);
}

static void test_rights(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool write;
        const char *bucket, *object;
        bool allowed;
    } row[] = {
        {"reader", false, "any", "k", true},
        {"reader", true, "any", "k", false},
        {"writer", true, "any", "k", true},
        {"writer", false, "any", "", true},
        {"scoped", false, "data", "k", true},
        {"scoped", false, "data", "", true},
        {"scoped", false, "data2", "k", false},
        {"scoped", false, "dat", "k", false},
        {"scoped", false, "models", "llama/7b", true},
        {"scoped", false, "models", "llama/", true},
        {"scoped", false, "models", "llama", false},
        {"scoped", false, "models", "", false},
        {"scoped", false, "models", "Llama/7b", false},
        {"scoped", false, "models", "x/llama/7b", false},
        {"scoped", true, "models", "llama/7b", true},
        {"scoped", true, "models", "gpt/7b", false},
    };
    struct keys *k = parse("reader r\nwriter w rw\nscoped s rw data,models/llama/\n");
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        const struct key *key = keys_find(k, span_of(row[i].key));
        struct span bucket = span_of(row[i].bucket), object = span_of(row[i].object);
        if (keys_allow(key, row[i].write, bucket, object) != row[i].allowed)
            fail_msg("row %u", i);
    }
    const struct key *scoped = keys_find(k, span_of("scoped"));
    const struct key *reader = keys_find(k, span_of("reader"));
    assert_true(keys_allow_bucket(scoped, span_of("models")));
    assert_false(keys_allow_bucket(scoped, span_of("model")));
    assert_true(keys_allow_bucket(reader, span_of("x")));
    assert_true(keys_allow_settings(reader, false));
    assert_false(keys_allow_settings(reader, true));
    assert_false(keys_allow_settings(scoped, false));
    assert_true(keys_allow_settings(keys_find(k, span_of("writer")), true));
    keys_give(k);
}

static void test_mode_of_the_file(void **state)
{
    (void)state;
    char path[] = "/tmp/headpond-test-keys-XXXXXX", want[200];
    static const struct {
        mode_t mode;
        enum err e;
    } row[] = {{0600, OK}, {0400, OK}, {0640, ERR_CONFIG}, {0604, ERR_CONFIG}, {0620, ERR_CONFIG},
               {0700, ERR_CONFIG}};
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "A s\n", 4), 4);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct keys *k = NULL;
        assert_int_equal(fchmod(fd, row[i].mode), 0);
        assert_int_equal(keys_read(path, &k, &mistakes), row[i].e);
        if (row[i].e != OK) {
            snprintf(want, sizeof(want),
                     "%s has mode %04o and must not be wider than 0600: chmod 600 %s", path,
                     row[i].mode, path);
            assert_string_equal(mistakes.item[0].text, want);
        }
        keys_give(k);
    }
    close(fd);
    unlink(path);
    struct keys *k = NULL;
    assert_int_equal(keys_read(path, &k, &mistakes), ERR_CONFIG);
    assert_non_null(strstr(mistakes.item[0].text, "No such file"));
    assert_int_equal(keys_read("/tmp", &k, &mistakes), ERR_CONFIG);
    assert_null(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_all_mistakes_are_told_and_no_secret),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_more_mistakes_than_are_kept),
        cmocka_unit_test(test_rights),
        cmocka_unit_test(test_mode_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
