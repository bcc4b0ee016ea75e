/* What the command line says of jobs, and asks of a server about them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

static char said[64 * KIB];

/* The exit code, with what job_text() wrote in said. */
static int text_of(const char *json)
{
    json_t *job = json_loads(json, 0, NULL);
    struct text t;

    assert_non_null(job);
    text_init(&t, said, sizeof said);
    int code = job_text(job, &t);
    json_decref(job);
    return code;
}

static void a_job_that_is_done_reads_as_documented(void **state)
{
    (void)state;
    assert_int_equal(
        text_of("{\"id\":\"j7\",\"kind\":\"revalidate\",\"state\":\"done\",\"prefix\":\"train/\","
                "\"started\":\"2026-11-20T18:00:00Z\",\"ended\":\"2026-11-20T18:02:11Z\","
                "\"objects\":{\"wanted\":1281,\"done\":1281,\"failed\":0,\"skipped\":2},"
                "\"bytes\":{\"wanted\":5,\"done\":0},\"dropped\":3,\"failures\":[]}"), CTL_DONE);
    assert_string_equal(said, "j7 revalidate train/ done in 2m 11s: 1 281 of 1 281 objects, 3 had "
                              "changed, 2 skipped\n");
}

static void failures_have_names_and_exit_3(void **state)
{
    (void)state;
    assert_int_equal(
        text_of("{\"id\":\"j7\",\"kind\":\"verify\",\"state\":\"done\",\"prefix\":\"\","
                "\"objects\":{\"wanted\":9,\"done\":7,\"failed\":2,\"skipped\":0},"
                "\"bytes\":{\"wanted\":5242880,\"done\":5242880},\"dropped\":2,\"failures\":["
                "{\"key\":\"a\",\"error\":\"ChecksumMismatch\",\"tries\":1},"
                "{\"key\":\"b\\u001b[2J\",\"error\":\"DiskError\",\"tries\":2}]}"), CTL_PARTLY);
    assert_non_null(strstr(said, "j7 verify everything done: 7 of 9 objects, 5.00 MiB, 2 damaged "
                                 "blocks dropped\n"));
    assert_non_null(strstr(said, "2 failed: a ChecksumMismatch (1 try), b"));
    assert_non_null(strstr(said, "again: headpond job retry j7\n"));
    assert_null(strchr(said, '\033'));
}

static void what_did_not_end_well_is_exit_1_with_advice(void **state)
{
    (void)state;
    assert_int_equal(
        text_of("{\"id\":\"j1\",\"kind\":\"evict\",\"state\":\"failed\",\"prefix\":\"b\","
                "\"note\":\"no upstream has that bucket any more\"}"),
        CTL_FAILED);
    assert_non_null(strstr(said, "note: no upstream has that bucket any more\n"));
    assert_non_null(strstr(said, "headpond job retry j1"));
    assert_int_equal(text_of("{\"id\":\"j1\",\"kind\":\"evict\",\"state\":\"cancelled\"}"),
                     CTL_FAILED);
    assert_non_null(strstr(said, "from the start: headpond job retry j1"));
}

/* A server that answers each of the requests so. */
static int ask(const char *answer, unsigned times, const char *const words[])
{
    const char *line[16] = {"-q", "--server"};
    struct fake f;

    fake_start(&f, dir, answer, times);
    line[2] = f.url;
    for (unsigned i = 0; words[i]; i++)
        line[3 + i] = words[i];
    int code = headpond(line);
    fake_end(&f);
    return code;
}
#define ASK(answer_, times_, ...) ask(answer_, times_, (const char *const[]){__VA_ARGS__, NULL})
#define ANSWER(status_, body_) "HTTP/1.1 " status_ "\r\nConnection: close\r\n\r\n" body_
#define JOB(state_, failed_)                                                                   \
    "{\"id\":\"j1\",\"kind\":\"evict\",\"state\":\"" state_ "\",\"prefix\":\"b\",\"objects\":" \
    "{\"wanted\":1,\"done\":1,\"failed\":" failed_ ",\"skipped\":0}}"

static void a_prewarm_says_whether_it_fits(void **state)
{
    (void)state;
    assert_int_equal(
        text_of("{\"id\":\"j8\",\"kind\":\"prewarm\",\"state\":\"failed\",\"prefix\":\"b/\","
                "\"error\":\"would_not_fit\",\"note\":\"it does not fit\",\"dry_run\":true,"
                "\"objects\":{\"wanted\":1,\"done\":0,\"failed\":0,\"skipped\":0},"
                "\"bytes\":{\"wanted\":4294967296,\"done\":0,\"here\":1048576,"
                "\"needed\":4293918720,\"free\":2147483648}}"), CTL_NO_ROOM);
    assert_non_null(strstr(said,
                           "would fetch 1 object, 4.00 GiB (1.00 MiB here). It does not fit: "
                           "2.00 GiB can be made free without pinned data.\n"
                           "--force brings what fits, --include '*-000?.tar' takes less, headpond "
                           "unpin makes room."
                           "\n"));
    assert_int_equal(
        text_of("{\"id\":\"j8\",\"kind\":\"prewarm\",\"state\":\"failed\",\"prefix\":\"b/\","
                "\"error\":\"would_not_fit\",\"objects\":{\"wanted\":1},\"bytes\":{}}"),
        CTL_NO_ROOM);
    assert_non_null(strstr(said, "j8 failed: would fetch 1 object, "));
    assert_non_null(strstr(said, "again: headpond job retry j8\n"));
    assert_int_equal(
        text_of("{\"id\":\"j8\",\"kind\":\"prewarm\",\"state\":\"done\",\"prefix\":\"b/\","
                "\"dry_run\":true,\"objects\":{\"wanted\":2},\"bytes\":{\"wanted\":1048576,"
                "\"free\":2147483648}}"), CTL_DONE);
    assert_non_null(strstr(said, "would fetch 2 objects, 1.00 MiB (0 B here). It fits: 2.00 GiB"));
    assert_int_equal(
        text_of("{\"id\":\"j8\",\"kind\":\"prewarm\",\"state\":\"failed\",\"prefix\":\"b/\","
                "\"note\":\"upstream refuses to list the objects: 403 AccessDenied\"}"),
        CTL_FAILED);
}

static void a_prewarm_that_is_over_reads_as_documented(void **state)
{
    (void)state;
    setenv("TZ", "CET-1", 1);
    tzset();
    assert_int_equal(
        text_of("{\"id\":\"j7\",\"kind\":\"prewarm\",\"state\":\"done\","
                "\"prefix\":\"train-data/imagenet/\",\"started\":\"2026-11-20T18:00:00Z\","
                "\"ended\":\"2026-11-20T18:02:11Z\",\"pin\":true,"
                "\"until\":\"2026-11-21T11:00:00Z\",\"objects\":{\"wanted\":1281,\"done\":1279,"
                "\"failed\":2,\"skipped\":0},\"bytes\":{\"wanted\":149338193920,"
                "\"done\":149142115123},\"failures\":[{\"key\":\"imagenet/shard-000411.tar\","
                "\"error\":\"AccessDenied\",\"tries\":1},{\"key\":\"imagenet/shard-000902.tar\","
                "\"error\":\"NoSuchKey\",\"tries\":1}]}"), CTL_PARTLY);
    assert_string_equal(said, "j7 done in 2m 11s: 1 279 of 1 281 objects, 138.9 GiB, pinned until "
                              "2026-11-21 12:00 CET\n"
                              "2 failed: imagenet/shard-000411.tar AccessDenied (1 try), "
                              "imagenet/shard-000902.tar NoSuchKey (1 try)\n"
                              "again: headpond job retry j7\n");
}

static void a_prewarm_at_work_has_a_bar(void **state)
{
    json_t *job = json_loads(
        "{\"id\":\"j7\",\"kind\":\"prewarm\",\"state\":\"running\",\"pass\":\"fetching\","
        "\"prefix\":\"train/\",\"objects\":{\"wanted\":1281,\"done\":640,\"failed\":2,"
        "\"skipped\":88},\"bytes\":{\"wanted\":149338193920,\"done\":74780016640},"
        "\"rate_bytes_per_s\":1181116006,\"eta_s\":63}", 0, NULL);
    struct text t;

    (void)state;
    text_init(&t, said, sizeof said);
    add_progress(&t, job, true);
    assert_string_equal(said, "[#############-------------]  50 %  69.6 / 139.1 GiB  1.18 GB/s  "
                              "1m 03s left  2 failed");
    text_init(&t, said, sizeof said);
    add_progress(&t, job, false);
    assert_string_equal(said, "50 %  640 of 1 281 objects, 69.6 GiB, 88 skipped  1.18 GB/s  "
                              "1m 03s left  2 failed");
    json_decref(job);
}

static void the_exit_code_is_the_job_s(void **state)
{
    (void)state;
    assert_int_equal(ASK(ANSWER("202 Accepted", JOB("done", "0")), 2, "evict", "s3://b", "--yes"),
                     CTL_DONE);
    assert_int_equal(ASK(ANSWER("200 OK", JOB("done", "1")), 1, "job", "wait", "j1"), CTL_PARTLY);
    assert_int_equal(ASK(ANSWER("200 OK", JOB("failed", "0")), 1, "job", "wait", "j1"), CTL_FAILED);
    assert_int_equal(ASK(ANSWER("200 OK", JOB("running", "0")), 1, "job", "wait", "j1",
                         "--timeout", "0s"), CTL_TIMEOUT);
    assert_int_equal(ASK(ANSWER("202 Accepted", JOB("running", "0")), 1, "verify", "--detach"),
                     CTL_DONE);
    assert_int_equal(ASK(ANSWER("200 OK", JOB("running", "0")), 1, "job", "show", "j1"), CTL_DONE);
}

static void refusals_have_their_exit_codes(void **state)
{
#define REFUSAL(status_) ANSWER(status_, "{\"error\":{\"message\":\"m\",\"hint\":\"h\"}}")
    (void)state;
    assert_int_equal(ASK(REFUSAL("404 Not Found"), 1, "job", "pause", "j9"), CTL_NOT_FOUND);
    assert_int_equal(ASK(REFUSAL("409 Conflict"), 1, "job", "resume", "j9"), CTL_FAILED);
    assert_int_equal(ASK(REFUSAL("401 Unauthorized"), 1, "job", "cancel", "j9"), CTL_DENIED);
    assert_int_equal(ASK(REFUSAL("409 Conflict"), 1, "job", "bandwidth", "j9", "1MB"), CTL_FAILED);
    assert_int_equal(ASK(REFUSAL("200 OK"), 0, "job", "bandwidth", "j9"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("200 OK"), 0, "job", "bandwidth", "j9", "fast"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("405 Method Not Allowed"), 1, "evict", "b", "--yes"), CTL_DENIED);
    assert_int_equal(ASK(REFUSAL("400 Bad Request"), 1, "revalidate", "b"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("200 OK"), 0, "revalidate", "/"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("202 Accepted"), 0, "verify", "/x", "--detach"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("202 Accepted"), 0, "verify", "b/\xe9", "--detach"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("200 OK"), 0, "job", "show", "7"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("200 OK"), 0, "job", "show", "j7x"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("200 OK"), 0, "verify", "s3://a", "s3://b"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("200 OK"), 0, "evict", "b", "--unread-for", "soon"), CTL_USAGE);
    assert_int_equal(ASK(REFUSAL("200 OK"), 0, "verify", "--token-file", "/nowhere"), CTL_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_is_done_reads_as_documented),
        cmocka_unit_test(failures_have_names_and_exit_3),
        cmocka_unit_test(what_did_not_end_well_is_exit_1_with_advice),
        cmocka_unit_test(a_prewarm_says_whether_it_fits),
        cmocka_unit_test(a_prewarm_that_is_over_reads_as_documented),
        cmocka_unit_test(a_prewarm_at_work_has_a_bar),
        cmocka_unit_test(the_exit_code_is_the_job_s),
        cmocka_unit_test(refusals_have_their_exit_codes),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
