/* headpond ls, du, hist, top: pages of the server joined with a list of the store, and what is
 * shown. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

#define OBJECT(key, size, cached, pinned)                                                          \
    "{\"key\":\"" key "\",\"size\":" #size ",\"cached\":" #cached ",\"etag\":\"e\","               \
    "\"last_read\":\"2026-11-22T08:00:00.000Z\",\"pinned\":" #pinned "}"

static const char first_page[] = BODY "{\"v\":1,\"bucket\":\"b\",\"objects\":["
    OBJECT("d/two", 2048, 2048, true) "," OBJECT("d/one", 4096, 1024, false) "],\"next\":77}";
static const char last_page[] = BODY "{\"v\":1,\"bucket\":\"b\",\"objects\":["
    OBJECT("x/\\u001b[2J", 10, 10, false) "]}";

static void start_pages(struct fake *f)
{
    fake_start(f, dir, first_page, 2);
    f->later[0] = last_page;
}

static void what_is_here_is_listed_in_order_page_after_page(void **state)
{
    struct fake f;

    (void)state;
    start_pages(&f);
    assert_int_equal(RUN("--server", f.url, "ls", "--cached", "s3://b/d"), CTL_DONE);
    assert_memory_equal(out_text, "d/one\nd/two\nx/", 14);
    assert_null(strchr(out_text, '\033'));
    assert_non_null(strstr(f.asked, "GET /v1/objects?limit=10000&after=77&prefix=b/d HTTP"));
    fake_end(&f);
    start_pages(&f);
    assert_int_equal(RUN("--server", f.url, "ls", "-l", "--cached", "s3://b"), CTL_DONE);
    shows(" 25 %  -  2026-11-22T08:00 4.00 KiB    d/one\n");
    shows("100 %  p  2026-11-22T08:00 2.00 KiB    d/two\n");
    fake_end(&f);
    start_pages(&f);
    assert_int_equal(RUN("--server", f.url, "--json", "ls", "--cached", "b"), CTL_DONE);
    assert_memory_equal(out_text, "{\"v\":1,\"bucket\":\"b\",\"key\":\"d/one\",\"size\":4096,", 45);
    fake_end(&f);
    start_pages(&f);
    assert_int_equal(RUN("--server", f.url, "du", "--cached", "s3://b"), CTL_DONE);
    shows("3.00 of 6.00 KiB                2 objects  b/d/\n");
    fake_end(&f);
    start_pages(&f);
    assert_int_equal(RUN("--server", f.url, "du", "--cached", "--depth", "0", "s3://b"), CTL_DONE);
    shows("       3 objects  b/\n");
    fake_end(&f);
    assert_int_equal(RUN("ls", "s3://"), CTL_USAGE);
    assert_int_equal(RUN("ls", "--cached", "--missing", "s3://b"), CTL_USAGE);
    assert_int_equal(RUN("du", "--depth", "65", "s3://b"), CTL_USAGE);
}

static void the_listed_and_the_cached_of_one_key_are_one(void **state)
{
    static const char list[] =
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
        "<Contents><Key>d/one</Key><Size>4096</Size></Contents>"
        "<Contents><Key>d/a%2Bb+c</Key><Size>7</Size></Contents>"
        "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;k</NextContinuationToken>"
        "<EncodingType>url</EncodingType></ListBucketResult>";
    struct items s = {0};
    struct listed l = {.items = &s};

    (void)state;
    assert_int_equal(xml_setup(), OK);
    assert_true(list_read(&l, span_of(list)));
    assert_true(l.truncated && strcmp(l.token, "t&k") == 0);
    struct item *here = items_add(&s, span_of("d/one"));
    *here = (struct item){.key = here->key, .here = true, .size = 4096, .cached = 1024};
    join_items(&s);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.item[0].key, "d/a+b c");
    assert_true(s.item[0].listed && !s.item[0].here && s.item[0].size == 7);
    assert_true(s.item[1].listed && s.item[1].here && s.item[1].cached == 1024);
    assert_false(list_read(&l, span_of("<html><body>no list</body>")));
    items_free(&s);
}

/* The server's own reader of lists holds to both as well. */
static void a_store_that_ignores_what_it_was_asked_is_not_believed(void **state)
{
    static const char plain[] = "<ListBucketResult><Contents><Key>50%_a+b</Key></Contents>"
                                "<IsTruncated>false</IsTruncated></ListBucketResult>",
        lost[] = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        turns[] = "<ListBucketResult><IsTruncated>true</IsTruncated>"
                  "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>";
    struct items s = {0};
    struct listed l = {.items = &s};

    (void)state;
    assert_int_equal(xml_setup(), OK);
    assert_true(list_read(&l, span_of(plain)));
    assert_string_equal(s.item[0].key, "50%_a+b");
    assert_false(list_read(&l, span_of(lost)));
    assert_string_equal(l.wrong, "the store says that its list goes on, but not where");
    assert_true(list_read(&l, span_of(turns)));
    assert_false(list_read(&l, span_of(turns)));
    items_free(&s);
}

static void what_is_no_utf8_has_a_line_of_json_too(void **state)
{
    const struct item odd = {.key = (char[]){"d/\xe9"}};

    (void)state;
    print_json_item(span_of("b"), &odd);
    json_t *key = key_json(span_of(odd.key));
    assert_string_equal(json_string_value(key), "d/\xef\xbf\xbd");
    json_decref(key);
}

static void a_list_that_the_s3_port_refuses_says_what_needs_none(void **state)
{
    (void)state;
    assert_int_equal(refuse_list("http://127.0.0.1:9000", 403), CTL_DENIED);
    assert_int_equal(refuse_list("http://127.0.0.1:9000", 404), CTL_NOT_FOUND);
    assert_int_equal(refuse_list("http://127.0.0.1:9000", 503), CTL_FAILED);
}

static void groups_end_at_slashes(void **state)
{
    (void)state;
    assert_int_equal(group_len("a/b/c", 0, 1), 2);
    assert_int_equal(group_len("a/b/c", 0, 2), 4);
    assert_int_equal(group_len("a/b/c", 0, 9), 4);
    assert_int_equal(group_len("a/b/c", 2, 1), 4);
    assert_int_equal(group_len("abc", 2, 1), 2);
    assert_int_equal(group_len("abc", 0, 0), 0);
    assert_int_equal(group_len((const char[8]){"x"}, 3, 1), 1); /* none below the prefix */
}

static void hits_and_misses_stand_on_one_axis(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"v\":1,\"op\":\"get\",\"le_us\":[100,1000,10000],"
                        "\"hits\":{\"count\":120,\"p50_us\":300,\"p99_us\":900,"
                        "\"buckets\":[0,120,0,0]},\"misses\":{\"count\":2,\"p50_us\":9000,"
                        "\"p99_us\":9900,\"buckets\":[0,0,1,1]}}", 1);
    assert_int_equal(RUN("--server", f.url, "hist"), CTL_DONE);
    assert_null(strstr(out_text, "0.1 ms"));
    shows("1.0 ms        120          0  ||||||||||||||||||||||||||||||"
          "||||||||||||||||||||||||||||||\n");
    shows("          0          1  #\n      more");
    shows("hits: 120, p50 0.3 ms, p99 0.9 ms\n");
    fake_end(&f);
}

static void a_forecast_is_a_table_and_says_what_it_lacks(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY
               "{\"v\":1,\"known\":true,\"sampled\":1.0,\"half_life\":2147483648,\"sizes\":["
               "{\"factor\":0.5,\"capacity\":536870912},{\"factor\":1.0,\"capacity\":1073741824}],"
               "\"all\":{\"state\":\"ready\",\"asked\":9,\"distinct\":1073741824,\"window\":9,"
               "\"measured\":0.25,\"predicted\":[0.125,0.251]},\"groups\":["
               "{\"prefix\":\"b/\\u001bk/\",\"state\":\"early\",\"asked\":1048576,\"distinct\":9,"
               "\"window\":0,\"measured\":null,\"predicted\":null},"
               "{\"prefix\":\"\",\"state\":\"few\",\"asked\":1,\"distinct\":1,\"window\":0,"
               "\"measured\":null,\"predicted\":null}]}", 1);
    assert_int_equal(RUN("--server", f.url, "status", "--sizing"), CTL_DONE);
    assert_non_null(strstr(f.asked, "GET /v1/sizing HTTP"));
    shows("2.00 GiB of reads back counts half");
    shows("25.0 %      12.5 %      25.1 %");
    shows("not enough seen yet: 1.00 MiB read");
    shows("(others)");
    shows("too few of its chunks are sampled");
    assert_null(strchr(out_text, '\033'));
    fake_end(&f);
    fake_start(&f, dir, BODY "{\"v\":1,\"known\":false}", 1);
    assert_int_equal(RUN("--server", f.url, "status", "--sizing"), CTL_DONE);
    shows("there was no memory for it");
    fake_end(&f);
}

static void traffic_is_shown_per_second_and_heaviest_first(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"v\":1,\"by\":\"object\\u001b[2J\",\"over_ms\":10000,\"rows\":["
                        "{\"name\":\"b/\\u001b[2Jk\",\"requests\":25,\"bytes\":20000000000}]}", 1);
    assert_int_equal(RUN("--server", f.url, "top", "--by", "object"), CTL_DONE);
    assert_non_null(strstr(f.asked, "GET /v1/top?by=object HTTP"));
    shows("object?[2J, over 10 s\n");
    shows("2.00 GB/s         2.5/s  b/");
    assert_null(strchr(out_text, '\033'));
    fake_end(&f);
    assert_int_equal(RUN("top", "--by", "weight"), CTL_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_here_is_listed_in_order_page_after_page),
        cmocka_unit_test(the_listed_and_the_cached_of_one_key_are_one),
        cmocka_unit_test(a_store_that_ignores_what_it_was_asked_is_not_believed),
        cmocka_unit_test(what_is_no_utf8_has_a_line_of_json_too),
        cmocka_unit_test(a_list_that_the_s3_port_refuses_says_what_needs_none),
        cmocka_unit_test(groups_end_at_slashes),
        cmocka_unit_test(hits_and_misses_stand_on_one_axis),
        cmocka_unit_test(a_forecast_is_a_table_and_says_what_it_lacks),
        cmocka_unit_test(traffic_is_shown_per_second_and_heaviest_first),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
