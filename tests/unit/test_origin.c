/* Unit tests of the test instruments' pure parts: bytes, sizes, scripts, plans. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/words.c"

#include "tests/lib/origin_list.c"
#include "tests/lib/origin_rules.c"
#include "tests/lib/origin_script.c"
#include "tests/lib/origin_sum.c"

/* The sockets stay out of this program. */
bool origin_listen(struct origin *o, bool on)
{
    o->listening = on;
    return true;
}
void origin_cut(struct origin *o)
{
    (void)o;
}

/* ---- bytes ---- */

static void bytes_do_not_depend_on_the_cut(void **state)
{
    uint8_t whole[1000], part[1000];
    uint64_t seed = bytes_seed(span_of("b"), span_of("k"), 1);

    (void)state;
    bytes_make(seed, 0, whole, sizeof whole);
    for (size_t from = 0; from < 40; from++)
        for (size_t len = 0; len < 40; len++) {
            bytes_make(seed, from, part, len);
            assert_memory_equal(part, whole + from, len);
        }
    for (size_t i = 0; i < sizeof whole; i++)
        assert_int_equal(whole[i], bytes_at(seed, i));
}

static void bytes_differ_by_name_version_and_place(void **state)
{
    uint64_t seed = bytes_seed(span_of("b"), span_of("k"), 1);

    (void)state;
    assert_true(seed != bytes_seed(span_of("b"), span_of("k"), 2));
    assert_true(seed != bytes_seed(span_of("bk"), span_of(""), 1));
    assert_true(seed != bytes_seed(span_of(""), span_of("bk"), 1));
    assert_true(bytes_word(seed, 0) != bytes_word(seed, 1));
    assert_true(bytes_word(seed, 0) != bytes_word(seed, 128 * KIB / 8));
}

static void check_finds_the_first_wrong_byte(void **state)
{
    static uint8_t bytes[20000];
    uint64_t seed = bytes_seed(span_of("b"), span_of("k"), 7);
    const size_t places[] = {0, 1, 7, 8, 4095, 4096, 4097, 8191, 19999};

    (void)state;
    bytes_make(seed, 5, bytes, sizeof bytes);
    assert_int_equal(bytes_check(seed, 5, bytes, sizeof bytes), sizeof bytes);
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        bytes[places[i]] ^= 0x40;
        assert_int_equal(bytes_check(seed, 5, bytes, sizeof bytes), places[i]);
        bytes[places[i]] ^= 0x40;
    }
    assert_true(bytes_check(seed, 6, bytes, sizeof bytes) < 4);
}

static void etag_names_the_version_of_one_object(void **state)
{
    struct span b = span_of("bucket"), k = span_of("key");
    char tag[BYTES_ETAG_MAX];
    uint64_t versions[] = {0, 1, 15, 16, 0xabcdef, UINT64_MAX}, got;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(versions); i++) {
        bytes_etag(bytes_seed(b, k, versions[i]), versions[i], tag);
        assert_true(bytes_version(span_of(tag), b, k, &got));
        assert_true(got == versions[i]);
        assert_false(bytes_version(span_of(tag), b, span_of("other"), &got));
        tag[1] = tag[1] == '0' ? '1' : '0';
        assert_false(bytes_version(span_of(tag), b, k, &got));
    }
    assert_false(bytes_version(span_of("\"d41d8cd98f00b204e9800998ecf8427e\""), b, k, &got));
    assert_false(bytes_version(span_of(""), b, k, &got));
}

/* ---- sizes ---- */

static void sizes_are_read(void **state)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t size;
    } cases[] = {
        {"0", true, 0}, {"300", true, 300}, {"64K", true, 65536}, {"64KiB", true, 65536},
        {"8M", true, 8u << 20}, {"4G", true, (uint64_t)4 << 30}, {"2T", true, (uint64_t)2 << 40},
        {"1M+1", true, (1 << 20) + 1}, {"8M-1", true, (8 << 20) - 1}, {"1-2", false, 0},
        {"", false, 0}, {"K", false, 0}, {"1k", false, 0}, {"1M+", false, 0}, {"1M+1x", false, 0},
        {"1 ", false, 0}, {"-1", false, 0}, {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0}, {"18446744073709551615+1", false, 0},
        {"16777216T", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t n = 1;
        enum err e = size_read(span_of(cases[i].text), &n);
        assert_int_equal(e == OK, cases[i].good);
        if (e == OK)
            assert_true(n == cases[i].size);
    }
}

static void keys_tell_their_size(void **state)
{
    uint64_t n;

    (void)state;
    assert_true(size_of_key(span_of("a/b@64K"), &n) && n == 65536);
    assert_true(size_of_key(span_of("a@1/b@0"), &n) && n == 0);
    assert_false(size_of_key(span_of("a@1/b"), &n));
    assert_false(size_of_key(span_of("plain"), &n));
    assert_false(size_of_key(span_of("a@"), &n));
}

/* ---- scripts ---- */

static void script_becomes_statements(void **state)
{
    const char *text = "server { ttl = 0s }  # a comment\n"
                       "client a {\n  get /b/k; expect status=200 header ETag=\"\\\"x\\\"\"\n}\n"
                       "send \"a\\r\\n\\x41\\0b\" one \\\n two\n";
    struct script s;
    char why[200];

    (void)state;
    assert_int_equal(script_read(span_of(text), &s, why), OK);
    assert_int_equal(s.count, 6);
    assert_true(s.statement[0].block);
    assert_int_equal(s.statement[0].end, 2);
    assert_int_equal(s.statement[1].count, 3);
    assert_int_equal(s.statement[2].end, 5);
    assert_int_equal(s.statement[3].end, 4);
    assert_string_equal(s.statement[4].word[3].at, "ETag=\"x\"");
    assert_int_equal(s.statement[4].line, 3);
    assert_int_equal(s.statement[5].word[1].len, 6);
    assert_memory_equal(s.statement[5].word[1].at, "a\r\nA\0b", 6);
    assert_int_equal(s.statement[5].count, 4);
    script_free(&s);
}

static void a_metric_with_labels_is_one_word(void **state)
{
    struct script s;
    char why[200];

    (void)state;
    assert_int_equal(script_read(span_of("expect metric x{a=\"b\",c=\"d\"} == 1"), &s, why), OK);
    assert_int_equal(s.statement[0].count, 5);
    assert_string_equal(s.statement[0].word[2].at, "x{a=b,c=d}");
    script_free(&s);
}

static void mistakes_in_scripts_are_told(void **state)
{
    static const char *const bad[] = {"a {", "}", "{ }", "a \"b", "a \"b\nc\"", "a \"\\q\"",
                                      "\"\\x4\""};
    struct script s;
    char why[200];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        why[0] = 0;
        assert_int_equal(script_read(span_of(bad[i]), &s, why), ERR_SYNTAX);
        assert_memory_equal(why, "line ", 5);
    }
}

/* ---- plans ---- */

static struct origin *make_origin(const char *script)
{
    struct origin *o = mem_take(sizeof *o);
    char answer[400];
    struct text t;

    assert_non_null(o);
    pthread_mutex_init(&o->lock, NULL);
    text_init(&t, answer, sizeof answer);
    if (!origin_script(o, span_of(script), &t))
        fail_msg("%s", answer);
    return o;
}

static void drop_origin(struct origin *o)
{
    origin_forget_rules(o);
    origin_forget(o);
    mem_give(o);
}

static struct plan plan_of(struct origin *o, const char *key, const char *range,
                           const char *if_match)
{
    static struct request r;
    struct plan p;

    r = (struct request){.kind = ASKED_OBJECT, .method = span_of("GET"), .bucket = span_of("b"),
                         .key = span_of(key), .range = span_of(range),
                         .if_match = span_of(if_match)};
    origin_plan(o, &r, &p);
    return p;
}

static void ranges_are_applied_as_s3_does(void **state)
{
    static const struct {
        const char *range;
        unsigned status;
        uint64_t from, to;
    } cases[] = {
        {"", 200, 0, 100}, {"bytes=0-9", 206, 0, 10}, {"bytes=50-", 206, 50, 100},
        {"bytes=0-999", 206, 0, 100}, {"bytes=-10", 206, 90, 100}, {"bytes=-101", 206, 0, 100},
        {"bytes=-0", 416, 0, 0}, {"bytes=100-", 416, 0, 0}, {"bytes=10-5", 200, 0, 100},
        {"bytes=0-0,1-2", 200, 0, 100}, {"foo=0-1", 200, 0, 100},
    };
    struct origin *o = make_origin("");

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct plan p = plan_of(o, "k@100", cases[i].range, "");
        assert_int_equal(p.status, cases[i].status);
        if (p.status != 416)
            assert_true(p.from == cases[i].from && p.to == cases[i].to);
    }
    drop_origin(o);
}

static void rules_apply_by_prefix_and_in_order(void **state)
{
    struct origin *o = make_origin("set * delay=5\nset b/slow delay=9 rate=100\n"
                                   "next b/ status=503 count=2 skip=1");

    (void)state;
    struct plan p = plan_of(o, "fast@1", "", "");
    assert_int_equal(p.status, 200);
    assert_int_equal(knob(&p.knobs, NUMBER_DELAY), 5);
    p = plan_of(o, "slow@1", "", "");
    assert_int_equal(p.status, 503);
    assert_string_equal(p.code, "SlowDown");
    assert_int_equal(knob(&p.knobs, NUMBER_DELAY), 9);
    assert_int_equal(knob(&p.knobs, NUMBER_RATE), 100);
    assert_int_equal(plan_of(o, "fast@1", "", "").status, 503);
    assert_int_equal(plan_of(o, "fast@1", "", "").status, 200);
    drop_origin(o);
}

static void a_bumped_object_fails_the_old_if_match(void **state)
{
    struct origin *o = make_origin("");
    struct plan first = plan_of(o, "k@10", "", "");

    (void)state;
    assert_int_equal(plan_of(o, "k@10", "", first.etag).status, 200);
    char line[] = "bump b k@10", answer[100];
    struct text t;
    text_init(&t, answer, sizeof answer);
    assert_true(origin_script(o, span_of(line), &t));
    assert_int_equal(plan_of(o, "k@10", "", first.etag).status, 412);
    struct plan second = plan_of(o, "k@10", "", "");
    assert_true(second.seed != first.seed && second.modified_s > first.modified_s);
    drop_origin(o);
}

static void listings_page_with_delimiters(void **state)
{
    struct origin *o = make_origin("objects b d#/x 3\nobject b a size=1\nobject b z size=2");
    static struct request r;
    size_t len;

    (void)state;
    r = (struct request){.kind = ASKED_LIST, .method = span_of("GET"), .bucket = span_of("b"),
                         .query = span_of("list-type=2&delimiter=%2F&max-keys=2")};
    char *page = origin_list(o, &r, &len);
    assert_non_null(strstr(page, "<Key>a</Key>"));
    assert_non_null(strstr(page, "<Prefix>d0/</Prefix>"));
    assert_null(strstr(page, "d1/"));
    assert_non_null(strstr(page, "<NextContinuationToken>t-d0/</NextContinuationToken>"));
    mem_give(page);
    r.query = span_of("list-type=2&delimiter=/&continuation-token=t-d0/");
    page = origin_list(o, &r, &len);
    assert_null(strstr(page, "d0/</Prefix>"));
    assert_non_null(strstr(page, "<Key>z</Key>"));
    assert_non_null(strstr(page, "<KeyCount>3</KeyCount>"));
    assert_non_null(strstr(page, "<IsTruncated>false</IsTruncated>"));
    mem_give(page);
    drop_origin(o);
}

static void wrong_statements_change_nothing(void **state)
{
    static const char *const bad[] = {"set * nonsense=1", "object b", "next * status=x", "fly",
                                      "objects b k 3", "object b k size=big"};
    struct origin *o = make_origin("");
    char answer[400];
    struct text t;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        text_init(&t, answer, sizeof answer);
        assert_false(origin_script(o, span_of(bad[i]), &t));
        assert_true(t.len > 0);
    }
    assert_null(o->set);
    assert_null(o->once);
    drop_origin(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_do_not_depend_on_the_cut),
        cmocka_unit_test(bytes_differ_by_name_version_and_place),
        cmocka_unit_test(check_finds_the_first_wrong_byte),
        cmocka_unit_test(etag_names_the_version_of_one_object),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(keys_tell_their_size),
        cmocka_unit_test(script_becomes_statements),
        cmocka_unit_test(a_metric_with_labels_is_one_word),
        cmocka_unit_test(mistakes_in_scripts_are_told),
        cmocka_unit_test(ranges_are_applied_as_s3_does),
        cmocka_unit_test(rules_apply_by_prefix_and_in_order),
        cmocka_unit_test(a_bumped_object_fails_the_old_if_match),
        cmocka_unit_test(listings_page_with_delimiters),
        cmocka_unit_test(wrong_statements_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
