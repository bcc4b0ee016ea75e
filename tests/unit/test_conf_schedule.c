/* Unit tests of common/conf_schedule.c: times of the week, what sections may set, what is in
 * force. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf_schedule.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "conf_case.h"

#define WHEN "[[schedule]]\nwhen = \"Mon-Fri 08:00-20:00\"\n"

enum { MON, TUE, WED, THU, FRI, SAT, SUN };

static unsigned at(unsigned day, unsigned hour, unsigned minute)
{
    return day * DAY + hour * 60 + minute;
}

/* ---- when ---- */

static bool holds(const char *when, unsigned minute)
{
    uint8_t minutes[MINUTE_BYTES] = {0};
    const char *why = conf_when_read(span_of(when), minutes);

    if (why)
        fail_msg("%s: %s", when, why);
    return minutes[minute / 8] >> minute % 8 & 1;
}

static unsigned count(const char *when)
{
    uint8_t minutes[MINUTE_BYTES] = {0};
    unsigned n = 0;

    assert_null(conf_when_read(span_of(when), minutes));
    for (unsigned i = 0; i < MINUTE_BYTES; i++)
        n += (unsigned)__builtin_popcount(minutes[i]);
    return n;
}

static void hours_and_days_mean_what_they_say(void **state)
{
    (void)state;
    assert_true(holds("Mon-Fri 08:00-20:00", at(MON, 8, 0)));
    assert_true(holds("Mon-Fri 08:00-20:00", at(FRI, 19, 59)));
    assert_false(holds("Mon-Fri 08:00-20:00", at(MON, 7, 59)));
    assert_false(holds("Mon-Fri 08:00-20:00", at(FRI, 20, 0)));
    assert_false(holds("Mon-Fri 08:00-20:00", at(SAT, 12, 0)));
    assert_int_equal(count("Mon-Fri 08:00-20:00"), 5 * 12 * 60);
    assert_int_equal(count("Sat,Sun"), 2 * DAY);
    assert_int_equal(count("00:00-24:00"), 7 * DAY);
    assert_int_equal(count("Mon-Sun"), 7 * DAY);
    assert_int_equal(count("Tue,Thu-Fri 08:00-12:00,14:00-18:30"), 3 * (4 * 60 + 4 * 60 + 30));
    assert_int_equal(count("Wed"), DAY);
}

static void a_night_ends_on_the_day_after(void **state)
{
    (void)state;
    assert_true(holds("Fri 22:00-06:00", at(FRI, 22, 0)));
    assert_true(holds("Fri 22:00-06:00", at(SAT, 5, 59)));
    assert_false(holds("Fri 22:00-06:00", at(SAT, 6, 0)));
    assert_false(holds("Fri 22:00-06:00", at(FRI, 5, 0)));
    assert_true(holds("Sun 23:00-01:00", at(MON, 0, 30)));
    assert_int_equal(count("22:00-06:00"), 7 * 8 * 60);
    assert_true(holds("Sat-Mon", at(SUN, 12, 0)));
    assert_int_equal(count("Sat-Mon"), 3 * DAY);
}

static void what_is_no_time_of_the_week_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "Mon ",
        "Mon  08:00-20:00",
        "mon",
        "Monday",
        "Mon-",
        "-Fri",
        "Mon-Fri-Sun",
        ",Mon",
        "Mon,",
        "Mon, 08:00-20:00",
        "Mon 08:00",
        "8:00-20:00",
        "08:00-20:00 Mon",
        "08:00 - 20:00",
        "08.00-20.00",
        "24:00-08:00",
        "08:60-20:00",
        "25:00-26:00",
        "08:00-24:01",
        ",08:00-20:00",
        "08:00-20:00,",
        "Mon 08:00-20:00 x",
        "always",
        "08:00-20:00-22:00",
        "-1:00-02:00",
        "+1:00-02:00",
    };
    uint8_t minutes[MINUTE_BYTES] = {0};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(bad); i++) {
        const char *why = conf_when_read(span_of(bad[i]), minutes);
        if (!why)
            fail_msg("\"%s\" was taken", bad[i]);
    }
    assert_string_equal(conf_when_read(span_of("Mon 08:00-08:00"), minutes),
                        "is no time at all; leave the hours out for whole days");
}

/* ---- sections ---- */

static void each_mistake_has_its_place_and_sentence(void **state)
{
    static const struct {
        const char *text, *mistake;
    } rows[] = {
        {NEEDED WHEN "\"prefetch.bandwidth\" = \"200MB\"\n", NULL},
        {NEEDED WHEN "prefetch.bandwidth = \"200MB\"\n", NULL},
        {NEEDED WHEN "\"prefetch.bandwidth\" = \"much\"\n",
         "f:7:24: prefetch.bandwidth \"much\" is no size; write a number and B, KiB, MiB, GiB, "
         "TiB, "
         "KB, MB, GB or TB, as \"8MiB\""},
        {NEEDED "[[schedule]]\nwhen = \"noon\"\n\"cache.ttl\" = \"1s\"\n",
         "f:6:8: schedule.when \"noon\" is no time of the week; write \"Mon-Fri 08:00-20:00\", "
         "\"22:00-06:00\" or \"Sat,Sun\""},
        {NEEDED "[[schedule]]\n\"cache.ttl\" = \"1s\"\n",
         "f:5:1: schedule.when is missing; set it to a time of the week, as \"Mon-Fri "
         "08:00-20:00\""},
        {NEEDED WHEN,
         "f:5:1: this [[schedule]] sets nothing; add keys, as \"prefetch.bandwidth\" = "
         "\"200MB\""},
        {NEEDED WHEN "when = \"Sat\"\n\"cache.ttl\" = \"1s\"\n",
         "f:7:1: \"when\" is set twice; first in line 6"},
        {NEEDED WHEN "\"cache.ttl\" = \"1s\"\n\"cache.ttl\" = \"2s\"\n",
         "f:8:1: \"cache.ttl\" is set twice; first in line 7"},
        {NEEDED WHEN "\"cache.size\" = \"1TiB\"\n",
         "f:7:1: cache.size needs a restart, so no schedule can set it; headpondd check --list "
         "tells "
         "which are live"},
        {NEEDED WHEN "\"auth.keys_file\" = \"/x\"\n",
         "f:7:1: auth.keys_file is no number, size, time or choice: no schedule can set it"},
        {NEEDED WHEN "\"cache.tll\" = \"1s\"\n",
         "f:7:1: unknown key \"cache.tll\" in [[schedule]]; did you mean \"cache.ttl\"?"},
        {NEEDED WHEN "\"a.b\" = 1\n", "f:7:1: unknown key \"a.b\" in [[schedule]]; write it as "
                                      "\"section.key\", or, with match, as "
                                      "a [[bucket]] has it"},
        {NEEDED WHEN "quota = \"1TiB\"\n",
         "f:7:1: quota is a key of [[bucket]] sections: name one by match"},
        {NEEDED WHEN "match = \"b/\"\nquota = \"1TiB\"\n",
         "f:7:1: there is no [[bucket]] with match \"b/\"; add one, it may hold nothing else"},
        {NEEDED "[[bucket]]\nmatch = \"b/\"\n" WHEN "match = \"b/\"\nquota = \"1TiB\"\n", NULL},
        {NEEDED WHEN "match = \"b/\"\nquota = \"1TiB\"\n[[bucket]]\nmatch = \"b/\"\n", NULL},
        {NEEDED "[schedule]\nwhen = \"Sat\"\n", "f:5:1: [schedule] must be written [[schedule]]"},
        {NEEDED WHEN "\"upstream.retries\" = 1\n", NULL},
        {NEEDED WHEN "\"log.access\" = \"everything\"\n",
         "f:7:16: log.access \"everything\" is none of \"off\" \"errors\" \"slow\" \"all\""},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++)
        check_only(rows[i].text, rows[i].mistake);
}

static void what_does_not_exist_yet_is_refused(void **state)
{
    struct config *c = NULL;

    (void)state;
    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        const struct conf_option *o = &conf_options[i];
        char text[KIB];
        if (!(o->flags & LATER))
            continue;
        snprintf(text, sizeof text, NEEDED WHEN "\"%s.%s\" = 1\n", o->section, o->key);
        assert_int_equal(conf_parse(span_of(text), "f", NULL, NULL, 0, &c, &mistakes), ERR_CONFIG);
        assert_non_null(strstr(mistakes.item[0].text, "is not in this version; remove it"));
    }
}

static void sections_and_keys_are_bounded(void **state)
{
    static char many[64 * KIB];
    struct config *c = NULL;
    struct text t;

    (void)state;
    text_init(&t, many, sizeof many);
    text_adds(&t, NEEDED);
    for (unsigned i = 0; i <= CONF_SCHEDULES_MAX; i++)
        text_adds(&t, WHEN "\"cache.ttl\" = \"1s\"\n");
    assert_int_equal(conf_parse(text_span(&t), "f", NULL, NULL, 0, &c, &mistakes), ERR_CONFIG);
    assert_int_equal(mistakes.count, 1);
    assert_non_null(strstr(mistakes.item[0].text, "more than 32 [[schedule]] sections"));
}

/* ---- in force ---- */

#define DAYS                                                                                       \
    NEEDED                                                                                         \
        "ttl = \"60s\"\n[prefetch]\ninflight = 32\n[[bucket]]\nmatch = \"b/\"\nquota = \"1TiB\"\n" \
        "[[bucket]]\nmatch = \"c/\"\nttl = \"10s\"\nlist_ttl = \"30s\"\n"                          \
        "[[schedule]]\nwhen = \"Mon-Fri 08:00-20:00\"\n\"prefetch.inflight\" = 8\n"                \
        "\"cache.ttl\" = \"5s\"\n"                                                                 \
        "[[schedule]]\nwhen = \"Mon 12:00-13:00\"\n\"prefetch.inflight\" = 4\n"                    \
        "[[schedule]]\nwhen = \"Sat,Sun\"\nmatch = \"b/\"\nquota = \"4TiB\"\npin = true\n"         \
        "[[schedule]]\nwhen = \"Sat,Sun\"\nmatch = \"c/\"\nttl = \"2m\"\n"

static struct config *scheduled_at(const struct config *base, unsigned minute)
{
    struct config *c = NULL;

    assert_int_equal(conf_scheduled(base, conf_in_force(base, minute), &c), OK);
    assert_int_equal(c->in_force, conf_in_force(base, minute));
    return c;
}

static void what_is_in_force_is_set_and_nothing_else(void **state)
{
    struct config *base = load(DAYS), *c;

    (void)state;
    assert_int_equal(base->in_force, 0);
    assert_int_equal(base->prefetch_inflight, 32);
    c = scheduled_at(base, at(TUE, 9, 0));
    assert_int_equal(c->prefetch_inflight, 8);
    assert_int_equal(c->cache_ttl, 5000);
    assert_int_equal(c->buckets[0].ttl_ms, 5000);
    assert_int_equal(c->buckets[1].ttl_ms, 5000);
    assert_int_equal(c->buckets[2].ttl_ms, 10000); /* its own */
    assert_int_equal(c->buckets[0].list_ttl_ms, 5000);
    assert_int_equal(c->buckets[1].quota_bytes, TIB);
    conf_give(c);
    c = scheduled_at(base, at(TUE, 21, 0));
    assert_int_equal(c->prefetch_inflight, 32);
    assert_int_equal(c->cache_ttl, 60000);
    assert_int_equal(c->buckets[1].ttl_ms, 60000);
    conf_give(c);
    assert_int_equal(base->prefetch_inflight, 32);
    conf_give(base);
}

static void of_two_in_force_the_last_counts(void **state)
{
    struct config *base = load(DAYS), *c = scheduled_at(base, at(MON, 12, 30));

    (void)state;
    assert_int_equal(c->in_force, 3);
    assert_int_equal(c->prefetch_inflight, 4);
    assert_int_equal(c->cache_ttl, 5000);
    conf_give(c);
    conf_give(base);
}

static void keys_of_a_bucket_are_set_for_it_alone(void **state)
{
    struct config *base = load(DAYS), *c = scheduled_at(base, at(SUN, 0, 0));

    (void)state;
    assert_int_equal(c->buckets[1].quota_bytes, 4 * TIB);
    assert_true(c->buckets[1].pin);
    assert_false(c->buckets[2].pin);
    assert_int_equal(c->buckets[2].ttl_ms, 120000);
    assert_int_equal(c->buckets[2].list_ttl_ms, 30000); /* no longer held down by ttl */
    assert_int_equal(base->buckets[2].list_ttl_ms, 10000);
    assert_int_equal(c->buckets[0].ttl_ms, 60000);
    assert_ptr_equal(conf_bucket(c, span_of("b"), span_of("x")), &c->buckets[1]);
    conf_give(c);
    conf_give(base);
}

static void flags_and_variables_win(void **state)
{
    char *const env[] = {"HEADPOND_PREFETCH_INFLIGHT=7", NULL};
    const struct conf_flag flag = {"cache.ttl", "9s"};
    struct config *base = load_with(DAYS, env, &flag, 1), *c = scheduled_at(base, at(MON, 12, 0));

    (void)state;
    assert_int_equal(c->prefetch_inflight, 7);
    assert_int_equal(c->cache_ttl, 9000);
    conf_give(c);
    conf_give(base);
}

static void the_next_change_is_known(void **state)
{
    struct config *base = load(DAYS), *none = load(NEEDED);

    (void)state;
    assert_int_equal(conf_next_change(base, at(MON, 7, 59)), 1);
    assert_int_equal(conf_next_change(base, at(MON, 8, 0)), 4 * 60);
    assert_int_equal(conf_next_change(base, at(FRI, 20, 0)), 4 * 60);
    assert_int_equal(conf_next_change(base, at(SUN, 23, 0)), 60);
    assert_int_equal(conf_next_change(none, at(MON, 8, 0)), 0);
    conf_give(base);
    conf_give(none);
}

static void what_is_printed_can_be_read_again(void **state)
{
    static char first[64 * KIB], second[64 * KIB];
    struct config *c = load(DAYS), *again;
    struct text t;

    (void)state;
    text_init(&t, first, sizeof first);
    conf_print(c, &t);
    assert_non_null(strstr(first, "\n[[schedule]]\nwhen = \"Mon 12:00-13:00\"\n"
                                  "\"prefetch.inflight\" = 4\n"));
    assert_non_null(strstr(first, "\nmatch = \"b/\"\nquota = \"4TiB\"\npin = true\n"));
    again = load(first);
    text_init(&t, second, sizeof second);
    conf_print(again, &t);
    assert_string_equal(first, second);
    conf_give(c);
    conf_give(again);
}

static void the_week_is_that_of_the_place(void **state)
{
    (void)state;
    setenv("TZ", "UTC0", 1);
    tzset();
    assert_int_equal(conf_minute_of_week(0), at(THU, 0, 0)); /* 1970-01-01 */
    assert_int_equal(conf_minute_of_week(3 * 86400 + 59), at(SUN, 0, 0));
    assert_int_equal(conf_minute_of_week(4 * 86400), at(MON, 0, 0));
    setenv("TZ", "HERE-5:30", 1);
    tzset();
    assert_int_equal(conf_minute_of_week(0), at(THU, 5, 30));
    setenv("TZ", "HERE8", 1);
    tzset();
    assert_int_equal(conf_minute_of_week(0), at(WED, 16, 0));
    unsetenv("TZ");
    tzset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hours_and_days_mean_what_they_say),
        cmocka_unit_test(a_night_ends_on_the_day_after),
        cmocka_unit_test(what_is_no_time_of_the_week_is_refused),
        cmocka_unit_test(each_mistake_has_its_place_and_sentence),
        cmocka_unit_test(what_does_not_exist_yet_is_refused),
        cmocka_unit_test(sections_and_keys_are_bounded),
        cmocka_unit_test(what_is_in_force_is_set_and_nothing_else),
        cmocka_unit_test(of_two_in_force_the_last_counts),
        cmocka_unit_test(keys_of_a_bucket_are_set_for_it_alone),
        cmocka_unit_test(flags_and_variables_win),
        cmocka_unit_test(the_next_change_is_known),
        cmocka_unit_test(what_is_printed_can_be_read_again),
        cmocka_unit_test(the_week_is_that_of_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
