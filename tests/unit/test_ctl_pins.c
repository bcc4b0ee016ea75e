/* headpond pin, unpin, pins: what is asked of the server, and what is shown. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

static void places_and_times_are_read_as_they_are_written(void **state)
{
    struct span place;
    char time[32];

    (void)state;
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    assert_true(place_read("s3://b/p/q", &place) && span_is(place, "b/p/q"));
    assert_true(place_read("b", &place) && span_is(place, "b"));
    assert_false(place_read("s3://", &place) || place_read("/k", &place));
    assert_true(until_read("18h", time) && strcmp(time, "18h") == 0);
    assert_true(until_read("2026-07-01T12:30", time));
    assert_string_equal(time, "2026-07-01T10:30:00Z");
    assert_true(until_read("2026-12-24", time) && strcmp(time, "2026-12-23T23:00:00Z") == 0);
    assert_true(until_read("2026-07-01T12:30:59Z", time));
    assert_string_equal(time, "2026-07-01T12:30:59Z");
    assert_false(until_read("0s", time) || until_read("tomorrow", time) ||
                 until_read("2026-07-01T12:30 o'clock", time));
}

static void pins_are_made_shown_and_ended(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"v\":1,\"prefix\":\"b/p\",\"until\":\"2026-07-01T10:00:00Z\"}", 2);
    assert_int_equal(RUN("--server", f.url, "pin", "--until", "18h", "s3://b/p"), CTL_DONE);
    shows("pinned b/p until 2026-07-01 12:00 CEST\n");
    assert_non_null(strstr(f.asked, "PUT /v1/pins?prefix=b/p&until=18h HTTP/1.1\r\n"));
    assert_non_null(strstr(f.asked, "\r\nContent-Length: 0\r\n"));
    assert_int_equal(RUN("--server", f.url, "unpin", "s3://b/p q"), CTL_DONE);
    assert_non_null(strstr(f.asked, "DELETE /v1/pins?prefix=b/p%20q HTTP"));
    fake_end(&f);
    fake_start(&f, dir,
               BODY "{\"v\":1,\"pinned\":1073741824,\"limit\":2147483648,\"over_limit\":1024,"
                    "\"marking\":true,\"pins\":[{\"prefix\":\"b/\\u001b[31m\",\"until\":\"\","
                    "\"section\":true,\"routed\":false}]}",
               1);
    assert_int_equal(RUN("--server", f.url, "pins"), CTL_DONE);
    assert_null(strchr(out_text, '\033'));
    shows("by the configuration  (no upstream has this bucket)\n1.00 GiB pinned of at most "
          "2.00 GiB; 1.00 KiB more");
    fake_end(&f);
    assert_int_equal(RUN("pin", "s3://"), CTL_USAGE);
    assert_int_equal(RUN("pin", "--until", "yesterday", "s3://b"), CTL_USAGE);
    assert_non_null(strstr(err_text_, "18h"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_times_are_read_as_they_are_written),
        cmocka_unit_test(pins_are_made_shown_and_ended),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
