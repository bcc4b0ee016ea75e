/* Range, Content-Range and dates. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http_value.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct range_case {
    const char *field;
    uint64_t size;
    enum http_range result;
    uint64_t from, to;
};

/* What AWS S3 answers, GET and HEAD alike. */
static const struct range_case range_cases[] = {
    {"bytes=0-9", 100, HTTP_RANGE_OK, 0, 9},
    {"bytes=50-", 100, HTTP_RANGE_OK, 50, 99},
    {"bytes=0-", 100, HTTP_RANGE_OK, 0, 99},
    {"bytes=99-", 100, HTTP_RANGE_OK, 99, 99},
    {"bytes=0-0", 100, HTTP_RANGE_OK, 0, 0},
    {"bytes=0-999999", 100, HTTP_RANGE_OK, 0, 99},
    {"bytes=0-100", 100, HTTP_RANGE_OK, 0, 99},
    {"bytes=0-99", 100, HTTP_RANGE_OK, 0, 99},
    {"bytes=00-01", 100, HTTP_RANGE_OK, 0, 1},
    {"bytes=-10", 100, HTTP_RANGE_OK, 90, 99},
    {"bytes=-100", 100, HTTP_RANGE_OK, 0, 99},
    {"bytes=-101", 100, HTTP_RANGE_OK, 0, 99},
    {"bytes=0-18446744073709551615", 100, HTTP_RANGE_OK, 0, 99},
    {"bytes=-0", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-000", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=100-", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=100-110", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=18446744073709551616-", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=0-18446744073709551616", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-18446744073709551616", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=99999999999999999999-5", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=10-5", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=abc", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=a-z", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=,", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=--1", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes= -1", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=0 -1", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=0- 1", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=0-1 ", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=100-x", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=5", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=-", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes 0-1", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes =0-1", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=+0-1", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=0x0-1", 100, HTTP_RANGE_NONE, 0, 0},
    {"foo=0-1", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=0-0,1-2", 100, HTTP_RANGE_NONE, 0, 0},
    {"bytes=0-0,", 100, HTTP_RANGE_NONE, 0, 0},
    {"", 100, HTTP_RANGE_NONE, 0, 0},
    /* an empty object */
    {"bytes=0-", 0, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=0-0", 0, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=00-01", 0, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-0", 0, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-1", 0, HTTP_RANGE_NONE, 0, 0},
    {"bytes=10-5", 0, HTTP_RANGE_NONE, 0, 0},
    {"bytes=abc", 0, HTTP_RANGE_NONE, 0, 0},
    {"bytes=0-0,1-2", 0, HTTP_RANGE_NONE, 0, 0},
    /* sizes and numbers at the end of 64 bit */
    {"bytes=18446744073709551614-", UINT64_MAX, HTTP_RANGE_OK, UINT64_MAX - 1, UINT64_MAX - 1},
    {"bytes=18446744073709551615-", UINT64_MAX, HTTP_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-18446744073709551615", UINT64_MAX, HTTP_RANGE_OK, 0, UINT64_MAX - 1},
    {"bytes=5497558138880-5497558138889", UINT64_MAX, HTTP_RANGE_OK, 5497558138880, 5497558138889},
};

static void ranges_as_s3_applies_them(unused_ok void **state)
{
    for (size_t i = 0; i < ARRAY_COUNT(range_cases); i++) {
        const struct range_case *r = &range_cases[i];
        uint64_t from = 12345, to = 12345;
        enum http_range got = http_range_apply(span_of(r->field), r->size, &from, &to);
        if (got != r->result)
            fail_msg("%s of %lu: %d", r->field, (unsigned long)r->size, got);
        bool set = got == HTTP_RANGE_OK;
        assert_true(from == (set ? r->from : 12345));
        assert_true(to == (set ? r->to : 12345));
    }
}

static void forms_of_ranges(unused_ok void **state)
{
    static const struct {
        const char *field;
        enum http_range_form form;
        uint64_t from, to;
    } forms[] = {
        {"bytes=5-", HTTP_FORM_FROM, 5, 9},
        {"bytes=5-7", HTTP_FORM_FROM_TO, 5, 7},
        {"bytes=-7", HTTP_FORM_SUFFIX, 7, 9},
        {"bytes=-0", HTTP_FORM_BAD, 9, 9},
        {"bytes=18446744073709551616-", HTTP_FORM_BAD, 9, 9},
        {"bytes=7-5", HTTP_FORM_NONE, 9, 9},
        {"bytes=1-2,3-4", HTTP_FORM_NONE, 9, 9},
        {"", HTTP_FORM_NONE, 9, 9},
    };
    for (size_t i = 0; i < ARRAY_COUNT(forms); i++) {
        uint64_t from = 9, to = 9;
        assert_int_equal(http_range_read(span_of(forms[i].field), &from, &to), forms[i].form);
        assert_int_equal(from, forms[i].from);
        assert_int_equal(to, forms[i].to);
    }
}

static void content_ranges(unused_ok void **state)
{
    static const struct { const char *value; enum err e; uint64_t from, to, size; } cases[] = {
        {"bytes 0-9/100", OK, 0, 9, 100},
        {"bytes 0-0/1", OK, 0, 0, 1},
        {"bytes 8388608-16777215/9223372036854775807", OK, 8388608, 16777215, INT64_MAX},
        {"bytes */100", OK, 1, 0, 100},
        {"bytes */0", OK, 1, 0, 0},
        {"bytes 0-100/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes 0-0/0", ERR_SYNTAX, 0, 0, 0},
        {"bytes 9-0/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes 0-9/*", ERR_SYNTAX, 0, 0, 0},
        {"bytes */*", ERR_SYNTAX, 0, 0, 0},
        {"bytes 0-9", ERR_SYNTAX, 0, 0, 0},
        {"bytes 0-/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes -9/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes 0-9/100/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes 0-9-9/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes 0 - 9/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes=0-9/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes  0-9/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes +0-9/100", ERR_SYNTAX, 0, 0, 0},
        {"items 0-9/100", ERR_SYNTAX, 0, 0, 0},
        {"bytes 0-9/9223372036854775808", ERR_TOO_LARGE, 0, 0, 0},
        {"bytes 0-9/18446744073709551615", ERR_TOO_LARGE, 0, 0, 0},
        {"bytes 0-9/18446744073709551616", ERR_TOO_LARGE, 0, 0, 0},
        {"", ERR_SYNTAX, 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t from = 7, to = 7, size = 7;
        enum err e = http_content_range(span_of(cases[i].value), &from, &to, &size);
        if (e != cases[i].e)
            fail_msg("%s: %s", cases[i].value, err_name(e));
        assert_true(from == (e ? 7 : cases[i].from));
        assert_true(to == (e ? 7 : cases[i].to));
        assert_true(size == (e ? 7 : cases[i].size));
    }
}

static void dates_written(unused_ok void **state)
{
    static const struct { uint64_t s; const char *text; } dates[] = {
        {0, "Thu, 01 Jan 1970 00:00:00 GMT"},
        {784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},
        {951782399, "Mon, 28 Feb 2000 23:59:59 GMT"},
        {951782400, "Tue, 29 Feb 2000 00:00:00 GMT"},
        {1709251199, "Thu, 29 Feb 2024 23:59:59 GMT"},
        {1709251200, "Fri, 01 Mar 2024 00:00:00 GMT"},
        {4107542400, "Mon, 01 Mar 2100 00:00:00 GMT"},
        {253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"},
        {UINT64_MAX, "Fri, 31 Dec 9999 23:59:59 GMT"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(dates); i++) {
        char out[HTTP_DATE_BYTES + 1];
        http_date_write(dates[i].s, out);
        assert_string_equal(out, dates[i].text);
    }
    char iso[25];
    iso_date_write(1255369830000, iso);
    assert_string_equal(iso, "2009-10-12T17:50:30.000Z");
    iso_date_write(951782400007, iso);
    assert_string_equal(iso, "2000-02-29T00:00:00.007Z");
    iso_date_write(UINT64_MAX, iso);
    assert_int_equal(strlen(iso), 24);
}

/* Every day of 400 years, each at another time of day. */
static void each_day_is_read_as_written(unused_ok void **state)
{
    for (uint64_t day = 0; day < 146097 + 366; day++) {
        uint64_t s = day * DAY_S + day * 7919 % DAY_S, again = 0;
        char out[HTTP_DATE_BYTES + 1];
        http_date_write(s, out);
        assert_int_equal(http_date_read(span_of(out), &again), OK);
        assert_true(again == s);
    }
}

static void dates_read(unused_ok void **state)
{
    static const struct { const char *text; uint64_t s; } good[] = {
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
        {"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
        {"Sun Nov  6 08:49:37 1994", 784111777},
        {"Wed Nov 16 08:49:37 1994", 784975777},
        {"Wednesday, 16-Nov-94 08:49:37 GMT", 784975777},
        {"Friday, 01-Jan-70 00:00:00 GMT", 0},
        {"Sunday, 06-Nov-69 08:49:37 GMT", 3150953377},
        {"Mon, 01 Jan 0001 00:00:00 GMT", 0},
        {"Wed, 31 Dec 1969 23:59:59 GMT", 0},
        {"Sat, 31 Dec 2016 23:59:60 GMT", 1483228800},
        {"Mon, 06 Nov 1994 08:49:37 GMT", 784111777}, /* the name of the day is not checked */
    };
    static const char *const bad[] = {
        "", "0", "784111777", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37 GMT ", " Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT", "Sun,06 Nov 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 31 Nov 1994 08:49:37 GMT",
        "Wed, 29 Feb 2023 00:00:00 GMT", "Thu, 29 Feb 1900 00:00:00 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT", "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Nov 94 08:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT", "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT", "Sun Nov 6 08:49:37 1994",
        "Sun Nov  6 08:49:37 1994 GMT", "1994-11-06T08:49:37Z", "Son, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov -994 08:49:37 GMT", "Sunday, 06-Nov-9x 08:49:37 GMT", "Sunday, 06-Nov-",
    };
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        uint64_t s = 12345;
        if (http_date_read(span_of(good[i].text), &s) != OK || s != good[i].s)
            fail_msg("%s: %lu", good[i].text, (unsigned long)s);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        uint64_t s = 12345;
        if (http_date_read(span_of(bad[i]), &s) != ERR_SYNTAX || s != 12345)
            fail_msg("%s", bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_as_s3_applies_them),
        cmocka_unit_test(forms_of_ranges),
        cmocka_unit_test(content_ranges),
        cmocka_unit_test(dates_written),
        cmocka_unit_test(each_day_is_read_as_written),
        cmocka_unit_test(dates_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
