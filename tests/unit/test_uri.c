/* Percent coding, request targets and upstream addresses. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/uri.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void decoding(unused_ok void **state)
{
    static const struct { const char *in; bool plus; enum err e; const char *out; } cases[] = {
        {"", false, OK, ""},
        {"plain", false, OK, "plain"},
        {"a%20b%2Bc", false, OK, "a b+c"},
        {"a+b", false, OK, "a+b"},
        {"a+b%2B", true, OK, "a b+"},
        {"%c3%a9%C3%A9", false, OK, "\xc3\xa9\xc3\xa9"},
        {"a%2Fb", false, OK, "a/b"},
        {"%2e%2E/", false, OK, "../"},
        {"a//b/./../c", false, OK, "a//b/./../c"},
        {"%25", false, OK, "%"},
        {"100%2525", false, OK, "100%25"},
        {"%ff%01%0d%0a", false, OK, "\xff\x01\r\n"},
        {"\xc3\xa9", false, OK, "\xc3\xa9"},
        {"%", false, ERR_SYNTAX, ""},
        {"%2", false, ERR_SYNTAX, ""},
        {"a%", false, ERR_SYNTAX, ""},
        {"%%20", false, ERR_SYNTAX, ""},
        {"%2g", false, ERR_SYNTAX, ""},
        {"%g2", false, ERR_SYNTAX, ""},
        {"% 2", false, ERR_SYNTAX, ""},
        {"%+1", false, ERR_SYNTAX, ""},
        {"%0x", false, ERR_SYNTAX, ""},
        {"%00", false, ERR_SYNTAX, ""},
        {"a%00b", false, ERR_SYNTAX, ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char out[64];
        size_t len = 777;
        enum err e = uri_decode(span_of(cases[i].in), cases[i].plus, out, sizeof(out), &len);
        if (e != cases[i].e)
            fail_msg("%s: %s", cases[i].in, err_name(e));
        assert_int_equal(uri_is_decodable(span_of(cases[i].in)), e == OK);
        if (e == OK)
            assert_true(span_is(span_make(out, len), cases[i].out));
        else
            assert_int_equal(len, 777);
    }
    char out[3];
    size_t len;
    assert_int_equal(uri_decode(span_make("a\0b", 3), false, out, 3, &len), ERR_SYNTAX);
}

static void decoding_into_little_room(unused_ok void **state)
{
    char out[4] = "###";
    size_t len = 0;
    assert_int_equal(uri_decode(span_of("a%20b"), false, out, 3, &len), OK);
    assert_int_equal(len, 3);
    assert_int_equal(uri_decode(span_of("a%20bc"), false, out, 3, &len), ERR_TOO_LARGE);
    assert_int_equal(out[3], 0);
    assert_int_equal(uri_decode(span_of(""), false, NULL, 0, &len), OK);
    assert_int_equal(uri_decode(span_of("a"), false, NULL, 0, &len), ERR_TOO_LARGE);
}

static void all_bytes_survive_encoding_and_decoding(unused_ok void **state)
{
    static const char bare_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "abcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (unsigned c = 1; c < 256; c++) {
        char in = (char)c, memory[16], out[4];
        size_t len;
        struct text t;
        text_init(&t, memory, sizeof(memory));
        uri_encode(&t, span_make(&in, 1), false);
        assert_int_equal(t.len, strchr(bare_bytes, (int)c) ? 1 : 3);
        assert_int_equal(uri_decode(text_span(&t), true, out, sizeof(out), &len), OK);
        assert_int_equal(len, 1);
        assert_int_equal(out[0], in);
    }
}

static void encoding(unused_ok void **state)
{
    char memory[100];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    uri_encode(&t, span_of("~!$&'()*,;=:@-_."), true);
    assert_string_equal(t.at, "~%21%24%26%27%28%29%2A%2C%3B%3D%3A%40-_.");
    text_init(&t, memory, sizeof(memory));
    uri_encode(&t, span_of("/a b//\xc3\xa9/"), true);
    assert_string_equal(t.at, "/a%20b//%C3%A9/");
    text_init(&t, memory, sizeof(memory));
    uri_encode(&t, span_of("a/b"), false);
    assert_string_equal(t.at, "a%2Fb");
    text_init(&t, memory, sizeof(memory));
    uri_encode(&t, span_make("\0", 1), false);
    assert_string_equal(t.at, "%00");
    text_init(&t, memory, 4);
    uri_encode(&t, span_of("ab c"), false);
    assert_true(t.over);
}

static void targets_are_split_at_the_first_question_mark(unused_ok void **state)
{
    struct span path, query;
    uri_split(span_of("/b/k?a=1?2"), &path, &query);
    assert_true(span_is(path, "/b/k"));
    assert_true(span_is(query, "a=1?2"));
    uri_split(span_of("/b"), &path, &query);
    assert_true(span_is(path, "/b"));
    assert_int_equal(query.len, 0);
    uri_split(span_of("/b?"), &path, &query);
    assert_true(span_is(path, "/b"));
    assert_int_equal(query.len, 0);
}

static void pairs_of_a_query(unused_ok void **state)
{
    static const struct { const char *name, *value; bool equals; } want[] = {
        {"uploads", "", false}, {"delete", "", true}, {"a", "b=c", true}, {"", "x", true},
        {"k%20", "%26", true},
    };
    struct span query = span_of("&uploads&delete=&&a=b=c&=x&k%20=%26&");
    struct uri_pair pair;
    for (size_t i = 0; i < ARRAY_COUNT(want); i++) {
        assert_true(uri_next_pair(&query, &pair));
        assert_true(span_is(pair.name, want[i].name));
        assert_true(span_is(pair.value, want[i].value));
        assert_int_equal(pair.has_equals, want[i].equals);
    }
    assert_false(uri_next_pair(&query, &pair));
    assert_false(uri_next_pair(&query, &pair));
}

static void upstream_addresses(unused_ok void **state)
{
    static const struct {
        const char *text, *scheme, *host, *path;
        unsigned port;
        bool address;
    } good[] = {
        {"http://minio", "http", "minio", "", 0, false},
        {"http://minio:9000", "http", "minio", "", 9000, false},
        {"https://s3.eu-central-1.amazonaws.com/", "https", "s3.eu-central-1.amazonaws.com", "/", 0,
         false},
        {"HTTPS://S3.local:443/a/b%20c", "https", "S3.local", "/a/b%20c", 443, false},
        {"http://10.0.0.1:65535/x", "http", "10.0.0.1", "/x", 65535, true},
        {"http://[::1]:9000/x", "http", "::1", "/x", 9000, true},
        {"http://[2001:db8::7]", "http", "2001:db8::7", "", 0, true},
        {"http://s3_cache-1.svc", "http", "s3_cache-1.svc", "", 0, false},
        {"http://1and1.com", "http", "1and1.com", "", 0, false},
        {"file:///data/set", "file", "", "/data/set", 0, false},
        {"file:///", "file", "", "/", 0, false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        struct uri u;
        const char *why = NULL;
        if (uri_parse(span_of(good[i].text), &u, &why) != OK)
            fail_msg("%s: %s", good[i].text, why);
        assert_true(span_is(u.scheme, good[i].scheme));
        assert_true(span_is(u.host, good[i].host));
        assert_true(span_is(u.path, good[i].path));
        assert_int_equal(u.port, good[i].port);
        assert_int_equal(u.host_is_address, good[i].address);
    }
}

static void addresses_that_need_guessing_are_refused(unused_ok void **state)
{
    static const char *const bad[] = {
        "", "minio", "minio:9000", "//minio", "http:", "http:/minio", "http:minio", "http://",
        "http:///path", "http://:9000", "ftp://minio", "s3://bucket", "://minio", "http ://minio",
        "http://user@minio", "http://user:secret@minio", "http://minio:0", "http://minio:65536",
        "http://minio:", "http://minio:80x", "http://minio:-1", "http://minio:80:80",
        "http://a b", "http://a\tb", "http://a\r\nHost: b", "http://caf\xc3\xa9", "http://a?x=1",
        "http://a/b#c", "http://a/b c", "http://[::1", "http://::1", "http://[::1]9000",
        "http://[::g]", "http://[]", "http://[10.0.0.1]", "http://[fe80::1%25eth0]",
        "http://10.0.1", "http://1.2.3.4.5", "http://256.1.1.1", "http://10.0.0.1.", "http://a..b",
        "http://.a", "http://a.", "http://-a", "http://a/b?", "http://a,b", "http://a%41",
        "http://~a", "file://host/dir", "file://", "file:dir", "file:///dir?x",
        "http://[1111111111111111111111111111111111111111111111111111111111111111111111111111]",
        "http://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct uri u = {.port = 7};
        const char *why = NULL;
        if (uri_parse(span_of(bad[i]), &u, &why) != ERR_SYNTAX)
            fail_msg("accepted: %s", bad[i]);
        assert_non_null(why);
        assert_int_equal(u.port, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding),
        cmocka_unit_test(decoding_into_little_room),
        cmocka_unit_test(all_bytes_survive_encoding_and_decoding),
        cmocka_unit_test(encoding),
        cmocka_unit_test(targets_are_split_at_the_first_question_mark),
        cmocka_unit_test(pairs_of_a_query),
        cmocka_unit_test(upstream_addresses),
        cmocka_unit_test(addresses_that_need_guessing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
