/* The heaviest clients, objects and prefixes: what stays in tables of fixed size, and for how
 * long. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/net/top.c"

static struct core cores[3] = {{.number = 0}, {.number = 1}, {.number = 17}};
static struct net_top_row row[200];
static uint64_t over_ms;

static int begin(void **state)
{
    (void)state;
    for (unsigned i = 0; i < TOP_TABLES; i++)
        memset(tables[i].window, 0, sizeof tables[i].window);
    for (unsigned i = 0; i < ARRAY_COUNT(cores); i++)
        cores[i].now_ms = clock_ms();
    return 0;
}

static void ask(struct core *c, const char *client, const char *key, uint64_t bytes)
{
    const struct net_request r = {span_of(client), span_of("b"), span_of(key), bytes};
    net_top_count(c, &r);
}

static void sums_of_all_cores_are_ordered_by_bytes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(cores); i++) {
        ask(&cores[i], "10.0.0.1", "d/e/one", 100);
        ask(&cores[i], "10.0.0.2", "d/e/two", 300);
        ask(&cores[i], "10.0.0.2", "three", 50);
        ask(&cores[i], "10.0.0.2", "", 7);
    }
    assert_int_equal(net_top(NET_TOP_OBJECT, row, 200, &over_ms), 3);
    assert_string_equal(row[0].name, "b/d/e/two");
    assert_true(row[0].bytes == 900 && row[0].requests == 3);
    assert_string_equal(row[2].name, "b/three");
    assert_int_equal(net_top(NET_TOP_PREFIX, row, 200, &over_ms), 2);
    assert_string_equal(row[0].name, "b/d/e/");
    assert_string_equal(row[1].name, "b/");
    assert_true(row[1].bytes == 171 && row[1].requests == 6);
    assert_int_equal(net_top(NET_TOP_CLIENT, row, 1, &over_ms), 1);
    assert_string_equal(row[0].name, "10.0.0.2");
    assert_int_equal(row[0].bytes, 1071);
}

static void a_crowd_of_light_ones_does_not_push_out_the_heavy(void **state)
{
    char key[32];

    (void)state;
    for (unsigned i = 0; i < 100000; i++) {
        snprintf(key, sizeof key, "light%u", i);
        ask(&cores[0], "c", key, 0);
        if (i % 100 == 0)
            ask(&cores[0], "c", "heavy", 8 * MIB);
    }
    assert_true(net_top(NET_TOP_OBJECT, row, 200, &over_ms) <= TOP_SETS * TOP_WAYS);
    assert_string_equal(row[0].name, "b/heavy");
    assert_true(row[0].bytes == 1000 * 8 * (uint64_t)MIB && row[0].requests == 1000);
}

static void what_is_over_is_forgotten_after_a_window_more(void **state)
{
    (void)state;
    ask(&cores[0], "c", "before", 10);
    cores[0].now_ms += TOP_WINDOW_MS;
    ask(&cores[0], "c", "now", 5);
    assert_int_equal(net_top(NET_TOP_OBJECT, row, 200, &over_ms), 2);
    cores[0].now_ms += TOP_WINDOW_MS;
    ask(&cores[0], "c", "later", 5);
    assert_int_equal(net_top(NET_TOP_OBJECT, row, 200, &over_ms), 2);
    assert_true(strcmp(row[0].name, "b/before") != 0 && strcmp(row[1].name, "b/before") != 0);
}

static void long_names_are_cut(void **state)
{
    static char key[KEY_BYTES_MAX + 1];

    (void)state;
    memset(key, 'k', KEY_BYTES_MAX);
    ask(&cores[0], "c", key, 1);
    key[KEY_BYTES_MAX - 1] = 'x';
    ask(&cores[0], "c", key, 2);
    assert_int_equal(net_top(NET_TOP_OBJECT, row, 200, &over_ms), 2);
    assert_int_equal(strlen(row[0].name), TOP_NAME_BYTES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sums_of_all_cores_are_ordered_by_bytes, begin),
        cmocka_unit_test_setup(a_crowd_of_light_ones_does_not_push_out_the_heavy, begin),
        cmocka_unit_test_setup(what_is_over_is_forgotten_after_a_window_more, begin),
        cmocka_unit_test_setup(long_names_are_cut, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
