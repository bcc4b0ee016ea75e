/* A job as bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/jobs/record.c"

static uint8_t bytes[JOB_RECORD_MAX];

static void fill(struct job_view *v, struct job_place *p)
{
    *v = (struct job_view){
        .id = 77, .spec = {.kind = KIND_REVALIDATE, .keep_pinned = true, .unread_for_s = 604800},
        .state = JOB_PAUSED, .created_ms = 1700000000123, .started_ms = 5, .objects_wanted = 6,
        .objects_done = 7, .objects_failed = 8, .objects_skipped = 9, .bytes_wanted = 1ULL << 50,
        .bytes_done = 11, .dropped = 12, .failure_count = JOB_FAILURES_MAX,
    };
    memset(v->spec.prefix, 'p', JOB_PREFIX_MAX);
    snprintf(v->note, sizeof v->note, "waits");
    for (unsigned i = 0; i < JOB_FAILURES_MAX; i++) {
        memset(v->failure[i].key, 'a' + (int)i, KEY_BYTES_MAX);
        snprintf(v->failure[i].error, sizeof v->failure[i].error, "AccessDenied");
        v->failure[i].tries = i;
    }
    v->spec.dry_run = v->does_not_fit = true;
    v->spec.connections = 1024;
    v->spec.bandwidth = UINT64_MAX;
    v->spec.order = ORDER_GIVEN;
    v->spec.pin = v->spec.force = true;
    v->spec.until_s = 1800000000;
    v->spec.keys = (struct kept_keys){LIST_KEYS_MAX, LISTS_PIECES, LISTS_BYTES};
    memset(v->spec.filter, '*', JOB_FILTER_MAX);
    v->pass = PASS_LOOK;
    v->bytes_failed = 13;
    v->bytes_here = 14;
    v->bytes_loose = 15;
    v->bytes_needed = 16;
    v->bytes_free = 17;
    v->room = (struct job_room){28, 29, 30, 31, 32, 33};
    v->limit = LIMIT_INDEX;
    *p = (struct job_place){.at = UINT64_MAX, .object = {1, 2}, .chunk = 3, .pass = PASS_CHECK,
        .tally = {18, 19, 20, 21, 22, 23, 24, 25, 26, 27, {34, 35, 36, 37, 38, 39}, 40, 41,
                  .failure_count = JOB_FAILURES_MAX}};
    memset(p->after, 'z', KEY_BYTES_MAX);
}

static void the_longest_job_comes_back_as_it_was(void **state)
{
    static struct job_view v, got;
    struct job_place p, place;

    (void)state;
    fill(&v, &p);
    size_t len = job_record_write(&v, &p, bytes, sizeof bytes);
    assert_true(len > 0);
    assert_int_equal(job_record_read(span_make((char *)bytes, len), &got, &place), OK);
    assert_memory_equal(&v, &got, sizeof v);
    assert_memory_equal(&p, &place, sizeof p);
    assert_int_equal(job_record_write(&v, &p, bytes, len - 1), 0);
}

static void no_part_of_it_passes_for_a_job(void **state)
{
    static struct job_view v, got;
    struct job_place p, place;

    (void)state;
    fill(&v, &p);
    size_t len = job_record_write(&v, &p, bytes, sizeof bytes);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_not_equal(job_record_read(span_make((char *)bytes, cut), &got, &place), OK);
    bytes[0]++;
    assert_int_equal(job_record_read(span_make((char *)bytes, len), &got, &place), ERR_NEWER);
    bytes[0]--;
    static const unsigned places[] = {1, 2, 3, 4, 7};
    for (unsigned i = 0; i < ARRAY_COUNT(places); i++) {
        uint8_t was = bytes[places[i]];
        bytes[places[i]] = 0xff;
        assert_int_equal(job_record_read(span_make((char *)bytes, len), &got, &place), ERR_RECORD);
        bytes[places[i]] = was;
    }
    assert_int_equal(job_record_read(span_make((char *)bytes, len), &got, &place), OK);
}

enum {
    ROOM_BYTES = 1 + ROOM_COUNTS * 8, FORCE_BYTES = 1 + ROOM_BYTES,
    KEYS_BYTES = 1 + 1 + 8 + 4 + 4 + 8 + FORCE_BYTES,
};

static void jobs_of_before_room_was_counted_are_known(void **state)
{
    static struct job_view v, got;
    struct job_place p, place;

    (void)state;
    fill(&v, &p);
    size_t len = job_record_write(&v, &p, bytes, sizeof bytes);
    bytes[0] = FORMAT_WITHOUT_ROOM;
    assert_int_equal(job_record_read(span_make((char *)bytes, len - ROOM_BYTES), &got, &place), OK);
    assert_true(got.spec.force);
    assert_int_equal(got.room.here, got.bytes_here);
    assert_int_equal(place.tally.room.here, place.tally.bytes_here);
    assert_int_equal(place.tally.used, place.tally.bytes_done);
    assert_true(place.tally.used > 0);
    assert_int_equal(job_record_read(span_make((char *)bytes, len), &got, &place), ERR_RECORD);
}

static void jobs_of_before_there_was_force_are_known(void **state)
{
    static struct job_view v, got;
    struct job_place p, place;

    (void)state;
    fill(&v, &p);
    size_t len = job_record_write(&v, &p, bytes, sizeof bytes);
    bytes[0] = FORMAT_WITHOUT_FORCE;
    assert_int_equal(job_record_read(span_make((char *)bytes, len - FORCE_BYTES), &got, &place),
                     OK);
    assert_false(got.spec.force);
    assert_int_equal(got.spec.keys.count, LIST_KEYS_MAX);
    assert_int_equal(job_record_read(span_make((char *)bytes, len), &got, &place), ERR_RECORD);
}

static void jobs_of_before_there_were_lists_are_known(void **state)
{
    static struct job_view v, got;
    struct job_place p, place;

    (void)state;
    fill(&v, &p);
    size_t len = job_record_write(&v, &p, bytes, sizeof bytes);
    bytes[0] = FORMAT_WITHOUT_KEYS;
    assert_int_equal(job_record_read(span_make((char *)bytes, len - KEYS_BYTES), &got, &place), OK);
    assert_int_equal(got.spec.bandwidth, UINT64_MAX);
    assert_int_equal(got.spec.keys.count, 0);
    assert_int_equal(job_record_read(span_make((char *)bytes, len), &got, &place), ERR_RECORD);
}

static void jobs_of_before_there_was_prewarm_are_known(void **state)
{
    enum {
        BEHIND =
            KEYS_BYTES + 4 * 1 + 2 * 4 + WARM_COUNTS * 8 + 2 + JOB_FILTER_MAX + 2 + KEY_BYTES_MAX
    };
    static struct job_view v, got;
    struct job_place p, place;

    (void)state;
    fill(&v, &p);
    size_t len = job_record_write(&v, &p, bytes, sizeof bytes);
    bytes[0] = FORMAT_WITHOUT_PREWARM;
    assert_int_equal(job_record_read(span_make((char *)bytes, len - BEHIND), &got, &place), OK);
    assert_int_equal(got.objects_done, 7);
    assert_int_equal(got.pass, PASS_NONE);
    assert_int_equal(place.chunk, 3);
    assert_int_equal(job_record_read(span_make((char *)bytes, len), &got, &place), ERR_RECORD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_job_comes_back_as_it_was),
        cmocka_unit_test(no_part_of_it_passes_for_a_job),
        cmocka_unit_test(jobs_of_before_room_was_counted_are_known),
        cmocka_unit_test(jobs_of_before_there_was_force_are_known),
        cmocka_unit_test(jobs_of_before_there_were_lists_are_known),
        cmocka_unit_test(jobs_of_before_there_was_prewarm_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
