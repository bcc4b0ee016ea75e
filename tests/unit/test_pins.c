/* Times of pins as the control plane reads them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/admin/pins.c"

enum { NOW = 1700000000 };           /* 2023-11-14T22:13:20Z */

static void a_pin_ends_after_a_while_or_at_a_date_but_not_in_the_past(void **state)
{
    static const struct {
        const char *text;
        uint64_t until_s;            /* 0: refused */
    } rows[] = {
        {"18h", NOW + 18 * 3600},
        {"1500ms", NOW + 2},
        {"2023-11-14T22:13:21Z", NOW + 1},
        {"2023-11-15", 1700006400},
        {"2023-11-14T22:13:20Z", 0},
        {"2023-11-14", 0},
        {"0s", 0},
        {"18", 0},
        {"2023-13-01", 0},
        {"2023-11-15T10:00", 0},
        {"2023-11-15T10:00:00Z and more than any time has", 0},
    };
    uint64_t until_s;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        until_s = 0;
        enum err e = until_parse(span_of(rows[i].text), NOW, &until_s);
        if ((e == OK) != (rows[i].until_s > 0) || until_s != rows[i].until_s)
            fail_msg("%s: %s, %llu", rows[i].text, err_name(e), (unsigned long long)until_s);
    }
    assert_int_equal(until_parse(span_of(""), NOW, &until_s), OK);
    assert_int_equal(until_s, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pin_ends_after_a_while_or_at_a_date_but_not_in_the_past),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
