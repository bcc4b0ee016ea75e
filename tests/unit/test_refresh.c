/* Unit tests of server/origin/refresh.c: when the next credentials are asked for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/refresh.c"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { MINUTE_MS = 60 * 1000 };

/* From 5 minutes before the end at the latest, from 10 at the earliest. */
static void long_lives_are_renewed_in_time(void **state)
{
    (void)state;
    static const uint64_t life_ms[] = {15 * MINUTE_MS, 60 * MINUTE_MS, 12 * 60 * MINUTE_MS};
    for (unsigned i = 0; i < ARRAY_COUNT(life_ms); i++) {
        uint64_t first = UINT64_MAX, last = 0;
        for (uint64_t dice = 0; dice < 400000; dice += 997) {
            uint64_t after = refresh_after_ms(life_ms[i], dice);
            first = min_u64(first, after);
            last = max_u64(last, after);
            assert_true(after <= life_ms[i] - 5 * MINUTE_MS);
            assert_true(after >= life_ms[i] - 10 * MINUTE_MS);
        }
        assert_true(last - first > 4 * MINUTE_MS); /* spread */
    }
}

static void short_lives_are_renewed_at_half(void **state)
{
    (void)state;
    for (uint64_t life_ms = 0; life_ms <= 10 * MINUTE_MS; life_ms += 500)
        for (uint64_t dice = 0; dice < 10; dice++) {
            uint64_t after = refresh_after_ms(life_ms, dice * 104729);
            assert_true(after <= life_ms - life_ms / 2);
            assert_true(after >= life_ms / 4);
        }
}

static void failures_wait_longer_and_longer(void **state)
{
    (void)state;
    static const uint64_t most_ms[] = {1000, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
    for (unsigned n = 0; n < ARRAY_COUNT(most_ms); n++)
        for (uint64_t dice = 0; dice < 1000; dice++) {
            uint64_t again = refresh_again_ms(n, dice * 7919);
            assert_true(again >= most_ms[n] / 2 && again <= most_ms[n]);
        }
    assert_true(refresh_again_ms(UINT32_MAX, 5) <= 60000);
}

/* What still works for a little while is tried more often. */
static void a_near_end_hurries(void **state)
{
    (void)state;
    struct provider p = {.has = true, .failures = 20};
    p.creds.expire_s = clock_wall_s() + 20;
    plan_next(&p);
    assert_true(p.next_ms <= clock_ms() + 5000);
    p.creds.expire_s = clock_wall_s() - 1;
    plan_next(&p);
    assert_true(p.next_ms >= clock_ms() + 29000);
    p = (struct provider){.has = true};
    plan_next(&p);                   /* never expires: never asked again */
    assert_true(p.next_ms == UINT64_MAX && p.next_wall_s == UINT64_MAX);
    /* the wall clock alone is enough: a machine that slept */
    p.creds.expire_s = clock_wall_s() + 600;
    p.plan = (struct creds_plan *)&p; /* only looked at */
    plan_next(&p);
    assert_false(is_due(&p));
    p.next_wall_s = clock_wall_s();
    assert_true(is_due(&p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_lives_are_renewed_in_time),
        cmocka_unit_test(short_lives_are_renewed_at_half),
        cmocka_unit_test(failures_wait_longer_and_longer),
        cmocka_unit_test(a_near_end_hurries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
