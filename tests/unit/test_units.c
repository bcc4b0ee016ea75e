/* Numbers as people read them, of common/units.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/units.c"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char memory[128];
static struct text text;

static struct text *fresh(void)
{
    text_init(&text, memory, sizeof memory);
    return &text;
}

static void counts_are_grouped_by_three(void **state)
{
    static const struct {
        uint64_t n;
        const char *text;
    } rows[] = {{0, "0"}, {7, "7"}, {999, "999"}, {1000, "1 000"}, {18233, "18 233"},
                {1000000, "1 000 000"}, {UINT64_MAX, "18 446 744 073 709 551 615"}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        units_count(fresh(), rows[i].n);
        assert_string_equal(memory, rows[i].text);
    }
}

static void sizes_are_iec(void **state)
{
    static const struct {
        uint64_t n;
        const char *text;
    } rows[] = {{0, "0 B"}, {512, "512 B"}, {1024, "1.00 KiB"}, {310 * (uint64_t)MIB, "310.0 MiB"},
                {149357842432, "139.1 GiB"}, {9 * TIB, "9.00 TiB"}, {UINT64_MAX, "16384.0 PiB"}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        units_bytes(fresh(), rows[i].n);
        assert_string_equal(memory, rows[i].text);
    }
}

static void a_part_has_the_unit_of_the_whole(void **state)
{
    (void)state;
    units_bytes_of(fresh(), 9 * TIB, 12 * TIB);
    assert_string_equal(memory, "9.00 of 12.00 TiB");
    units_bytes_of(fresh(), GIB, 2 * TIB);
    assert_string_equal(memory, "0.00 of 2.00 TiB");
    units_bytes_part(fresh(), 69 * GIB + 640 * MIB, 139 * GIB + 100 * MIB);
    assert_string_equal(memory, "69.6 / 139.1 GiB");
    units_bytes_part(fresh(), 0, 1023);
    assert_string_equal(memory, "0 / 1023 B");
    units_bytes_of(fresh(), 0, 0);
    assert_string_equal(memory, "0 of 0 B");
}

static void rates_are_decimal_and_comparable(void **state)
{
    static const struct {
        double n, like;
        const char *text;
    } rows[] = {{3650722201., 3650722201., "3.65 GB/s"}, {51380224, 3650722201., "0.05 GB/s"},
                {118e6, 118e6, "118 MB/s"},              {12.34e6, 12.34e6, "12.3 MB/s"},
                {0, 0, "0 B/s"},                         {NAN, NAN, "0 B/s"},
                {-5, -5, "0 B/s"},                       {INFINITY, INFINITY, "0 B/s"}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        units_rate(fresh(), rows[i].n, rows[i].like);
        assert_string_equal(memory, rows[i].text);
    }
}

static void durations_show_two_units(void **state)
{
    static const struct {
        uint64_t s;
        const char *text;
    } rows[] = {{0, "0s"}, {45, "45s"}, {63, "1m 03s"}, {131, "2m 11s"}, {20400, "5h 40m"},
                {266400, "3d 2h"}, {UINT64_MAX, "213503982334601d 7h"}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        units_duration(fresh(), rows[i].s);
        assert_string_equal(memory, rows[i].text);
    }
}

static void milliseconds_and_percent(void **state)
{
    (void)state;
    units_ms(fresh(), 0.9);
    assert_string_equal(memory, "0.9 ms");
    units_ms(fresh(), 118.4);
    assert_string_equal(memory, "118 ms");
    units_ms(fresh(), 1200);
    assert_string_equal(memory, "1.20 s");
    units_percent(fresh(), 0.986, 1);
    assert_string_equal(memory, "98.6 %");
    units_percent(fresh(), NAN, 0);
    assert_string_equal(memory, "0 %");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_grouped_by_three),
        cmocka_unit_test(sizes_are_iec),
        cmocka_unit_test(a_part_has_the_unit_of_the_whole),
        cmocka_unit_test(rates_are_decimal_and_comparable),
        cmocka_unit_test(durations_show_two_units),
        cmocka_unit_test(milliseconds_and_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
