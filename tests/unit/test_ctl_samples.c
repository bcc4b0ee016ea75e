/* What the manual shows of the command line is what it prints, and says in JSON. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

#define ANSWER(status_, body_) "HTTP/1.1 " status_ "\r\nConnection: close\r\n\r\n" body_

static const char follow[] = "still running in the server. Follow: headpond job wait j7   Stop: "
                             "headpond job cancel j7\n";
#define JOB(state_, more_)                                                                         \
    "{\"v\":1,\"id\":\"j7\",\"kind\":\"prewarm\",\"state\":\"" state_ "\",\"prefix\":"             \
    "\"train-data/imagenet/\"," more_ "}"
#define AT_WORK                                                                                    \
    JOB("running", "\"pass\":\"fetching\",\"objects\":{\"wanted\":1281,\"done\":640,\"failed\":2," \
        "\"skipped\":0},\"bytes\":{\"wanted\":149358477312,\"done\":74780016640,\"here\":"         \
        "54760833024,\"free\":2133064929280},\"rate_bytes_per_s\":1181116006,\"eta_s\":63")
#define ENDED                                                                                      \
    JOB("done", "\"pass\":\"over\",\"started\":\"2026-11-20T18:00:00Z\",\"ended\":"                \
        "\"2026-11-20T18:02:11Z\",\"pin\":true,\"until\":\"2026-11-21T11:00:00Z\",\"objects\":"    \
        "{\"wanted\":1281,\"done\":1279,\"failed\":2,\"skipped\":0},\"bytes\":{\"wanted\":"        \
        "149338193920,\"done\":149142115123},\"failures\":[{\"key\":\"imagenet/shard-000411.tar\"" \
        ",\"error\":\"AccessDenied\",\"tries\":1},{\"key\":\"imagenet/shard-000902.tar\","         \
        "\"error\":\"NoSuchKey\",\"tries\":1}]")

/* The command line, of a server that says this to the first who asks, and that to the others. */
static int told(const char *first, const char *second, const char *const words[])
{
    const char *line[16] = {"--server"};
    struct fake f;

    fake_start(&f, dir, first, second ? 2 : 1);
    f.later[0] = second;
    line[1] = f.url;
    for (unsigned i = 0; words[i]; i++)
        line[2 + i] = words[i];
    setenv("TZ", "CET-1", 1);
    tzset();
    int code = headpond(line);
    fake_end(&f);
    return code;
}
#define TOLD(first_, second_, ...) \
    told(first_, second_, (const char *const[]){__VA_ARGS__, NULL})

/* Each line an object of version 1; how many. */
static unsigned json_lines(void)
{
    struct span rest = span_of(out_text);
    unsigned count = 0;

    for (; rest.len > 0; count++) {
        struct span line = span_cut(&rest, '\n');
        json_t *one = json_loadb(line.at, line.len, 0, NULL);
        assert_true(json_is_object(one));
        assert_int_equal(value_u64(one, "v"), 1);
        json_decref(one);
    }
    return count;
}

static void a_prewarm_is_announced_and_goes_on_behind_ctrl_c(void **state)
{
    (void)state;
    interrupted = 1;                 /* as the handler does */
    assert_int_equal(TOLD(ANSWER("202 Accepted", AT_WORK), ANSWER("200 OK", AT_WORK), "prewarm",
                          "s3://train-data/imagenet/", "--pin", "--until", "18h"),
                     CTL_INTERRUPTED);
    assert_string_equal(out_text, "");
    assert_memory_equal(err_text_, "j7 prewarm train-data/imagenet/: 1 281 objects, 139.1 GiB, "
                                   "51.0 GiB already here, 1.94 TiB free\n", 87);
    assert_string_equal(err_text_ + strlen(err_text_) - strlen(follow), follow);
    interrupted = 1;
    assert_int_equal(TOLD(ANSWER("202 Accepted", AT_WORK), ANSWER("200 OK", AT_WORK), "--json",
                          "-q", "prewarm", "s3://train-data/imagenet/"), CTL_INTERRUPTED);
    assert_string_equal(out_text, "");
    assert_string_equal(err_text_, "");
    interrupted = 0;
}

static void a_wait_ends_with_what_failed_and_exit_3(void **state)
{
    (void)state;
    assert_int_equal(TOLD(ANSWER("200 OK", ENDED), NULL, "job", "wait", "j7"), CTL_PARTLY);
    assert_string_equal(out_text, "j7 done in 2m 11s: 1 279 of 1 281 objects, 138.9 GiB, pinned "
                                  "until 2026-11-21 12:00 CET\n"
                                  "2 failed: imagenet/shard-000411.tar AccessDenied (1 try), "
                                  "imagenet/shard-000902.tar NoSuchKey (1 try)\n"
                                  "again: headpond job retry j7\n");
    assert_int_equal(TOLD(ANSWER("200 OK", ENDED), NULL, "--json", "job", "wait", "j7"),
                     CTL_PARTLY);
    assert_int_equal(json_lines(), 1);
    shows("\"failures\":[{\"key\":\"imagenet/shard-000411.tar\"");
}

static void a_dry_run_says_that_it_does_not_fit_and_exit_7(void **state)
{
#define TOO_LARGE                                                                                  \
    ANSWER("200 OK", "{\"v\":1,\"id\":\"j8\",\"kind\":\"prewarm\",\"state\":\"failed\","           \
           "\"prefix\":\"train-data/laion/\",\"dry_run\":true,\"error\":\"would_not_fit\","        \
           "\"objects\":{\"wanted\":41200,\"done\":0,\"failed\":0,\"skipped\":0},\"bytes\":"       \
           "{\"wanted\":3408486046106,\"done\":0,\"here\":44023414784,\"needed\":3364462631322,"   \
           "\"free\":2089072092774}}")
    (void)state;
    assert_int_equal(TOLD(TOO_LARGE, TOO_LARGE, "prewarm", "s3://train-data/laion/", "--dry-run"),
                     CTL_NO_ROOM);
    assert_string_equal(out_text,
                        "would fetch 41 200 objects, 3.10 TiB (41.0 GiB here). It does not fit: "
                        "1.90 TiB can be made free without pinned data.\n"
                        "--force brings what fits, --include '*-000?.tar' takes less, headpond "
                        "unpin makes room.\n");
#define OVER(limit)                                                                                \
    ANSWER("200 OK", "{\"v\":1,\"id\":\"j8\",\"kind\":\"prewarm\",\"state\":\"failed\","           \
           "\"error\":\"would_not_fit\",\"limit\":\"" limit "\",\"bytes\":{"                       \
           "\"wanted\":150323855360,\"free\":68719476736}}")
    assert_int_equal(TOLD(OVER("quota"), OVER("quota"), "prewarm", "s3://b/", "--dry-run"),
                     CTL_NO_ROOM);
    shows("It does not fit: 64.0 GiB can be had within the quota of its section.\n");
    shows(" takes less, a larger quota makes room.\n");
    assert_int_equal(TOLD(OVER("index_memory"), OVER("index_memory"), "prewarm", "s3://b/"),
                     CTL_NO_ROOM);
    shows("It does not fit: 64.0 GiB can be had with cache.index_memory as it is.\n");
    shows(" takes less, more of that makes room.\n");
    assert_int_equal(TOLD(TOO_LARGE, TOO_LARGE, "--json", "prewarm", "s3://train-data/laion/",
                          "--dry-run"), CTL_NO_ROOM);
    assert_int_equal(json_lines(), 1);
    shows("\"error\":\"would_not_fit\"");
}

static void a_bench_is_three_lines(void **state)
{
    static const struct bench_result lines[] = {
        {"origin directly", 118e6, 41.2, 0},
        {"through us, cold", 117e6, 43.4, 0},
        {"through us, warm", 6.42e9, 0.31, 54.4},
        {"through us, warm", 6.42e8, 1234, 5.44},
    };
    char memory[400];
    struct text t;

    (void)state;
    text_init(&t, memory, sizeof memory);
    for (unsigned i = 0; i < ARRAY_COUNT(lines); i++)
        bench_text(&lines[i], &t);
    assert_string_equal(memory, "origin directly     118 MB/s    first byte  41 ms\n"
                                "through us, cold    117 MB/s    first byte  43 ms\n"
                                "through us, warm   6.42 GB/s    first byte 0.3 ms     54 x\n"
                                "through us, warm    642 MB/s    first byte  1.2 s     5.4 x\n");
}

static void a_bench_that_cannot_be_says_why(void **state)
{
#define STATUS ANSWER("200 OK", "{\"v\":1,\"s3_url\":\"http://127.0.0.1:1\"}")
    (void)state;
    assert_int_equal(RUN("bench", "s3://b/"), CTL_USAGE);
    assert_int_equal(RUN("bench", "s3://b/k", "--clients", "0"), CTL_USAGE);
    assert_int_equal(TOLD(STATUS, ANSWER("200 OK", "{\"upstream\":{\"endpoint\":\"file:///x\"}}"),
                          "bench", "s3://b/k"), CTL_USAGE);
    assert_non_null(strstr(err_text_, "is a directory"));
    assert_int_equal(TOLD(STATUS, ANSWER("200 OK", "{\"upstream\":[{\"match\":[\"c*\"],"
                                                   "\"endpoint\":\"http://h\"}]}"),
                          "bench", "s3://b/k"), CTL_NOT_FOUND);
    assert_non_null(strstr(err_text_, "no upstream of the server has that bucket"));
    assert_int_equal(TOLD(STATUS, ANSWER("200 OK", "{\"upstream\":{\"endpoint\":\"http://h\"}}"),
                          "bench", "s3://b/k"), CTL_UNREACHABLE);
    assert_non_null(strstr(err_text_, "127.0.0.1:1: Connection refused"));
}

static void what_a_balancer_cannot_do_is_refused(void **state)
{
    static const char *const words[] = {"--pin", "--detach", "--verify", "--force"};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(words); i++) {
        assert_int_equal(RUN("prewarm", "s3://b", "--via", "http://127.0.0.1:1", words[i]),
                         CTL_USAGE);
        assert_non_null(strstr(err_text_, "--via "));
    }
    assert_int_equal(RUN("prewarm", "s3://b", "--via", "lb:80"), CTL_USAGE);
    assert_int_equal(RUN("prewarm", "s3://b", "--via", "http://127.0.0.1:1"), CTL_UNREACHABLE);
}

static void what_is_lost_beside_slots_is_told(void **state)
{
#define HALF "\"capacity\":1099511627776,\"used\":687194767360,\"lost\":"
#define CACHE(more_) ANSWER("200 OK", "{\"v\":1,\"cache\":{" HALF more_ "}}")
#define DISK(more_)                                                                                \
    ANSWER("200 OK", "{\"v\":1,\"disks\":[{\"dir\":\"/c\",\"state\":\"up\"," HALF more_ "}]}")
    (void)state;
    assert_int_equal(TOLD(CACHE("412316860416,\"pinned\":989560464998"), NULL, "status"), CTL_DONE);
    shows("(62 %), 384.0 GiB lost beside them, 921.6 GiB pinned, ");
    assert_int_equal(TOLD(DISK("412316860416"), NULL, "disk", "ls"), CTL_DONE);
    shows(", 384.0 GiB lost beside them  0 errors");
    assert_int_equal(TOLD(CACHE("99999"), NULL, "status"), CTL_DONE);
    assert_null(strstr(out_text, "lost"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prewarm_is_announced_and_goes_on_behind_ctrl_c),
        cmocka_unit_test(a_wait_ends_with_what_failed_and_exit_3),
        cmocka_unit_test(a_dry_run_says_that_it_does_not_fit_and_exit_7),
        cmocka_unit_test(what_is_lost_beside_slots_is_told),
        cmocka_unit_test(a_bench_is_three_lines),
        cmocka_unit_test(a_bench_that_cannot_be_says_why),
        cmocka_unit_test(what_a_balancer_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
