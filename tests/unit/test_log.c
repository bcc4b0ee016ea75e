/* Lines of common/log.c in each format: escaping, secrets, limits, losses. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.c"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jansson.h>

static char captured[64 * KIB];
static int saved_stderr, capture_file;

static void begin_capture(void)
{
    char name[] = "/tmp/test_log.XXXXXX";

    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    capture_file = mkstemp(name);
    assert_true(saved_stderr >= 0 && capture_file >= 0);
    unlink(name);
    dup2(capture_file, STDERR_FILENO);
}

static const char *end_capture(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    ssize_t got = pread(capture_file, captured, sizeof captured - 1, 0);
    close(capture_file);
    captured[got > 0 ? got : 0] = '\0';
    return captured;
}

static int fresh(void **state)
{
    (void)state;
    memset(limits, 0, sizeof limits);
    memset(&recent, 0, sizeof recent);
    unsetenv("JOURNAL_STREAM");
    log_setup(LOG_INFO, LOG_TEXT);
    return 0;
}

/* The line behind its time, which must look like one. */
static const char *behind_time(const char *line)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ ";

    for (size_t i = 0; shape[i]; i++) {
        bool digit = line[i] >= '0' && line[i] <= '9';
        assert_true(shape[i] == 'd' ? digit : line[i] == shape[i]);
    }
    return line + strlen(shape);
}

static void text_lines_have_words_first(void **state)
{
    (void)state;
    begin_capture();
    log_event(EVENT_STARTED, "job=j7 prefix=%s bytes=%d", "train-data/imagenet/", 42);
    const char *out = end_capture();
    assert_string_equal(behind_time(out),
                        "info  started job=j7 prefix=train-data/imagenet/ bytes=42\n");
}

static void logfmt_lines_are_pairs_only(void **state)
{
    (void)state;
    log_setup(LOG_INFO, LOG_LOGFMT);
    begin_capture();
    log_event(EVENT_UPSTREAM_SLOWDOWN, "host=h why=connection refused by peer n=3 v=%s",
              log_value(span_of("a \"b\"")));
    const char *out = end_capture();
    assert_non_null(strstr(out, "Z l=warn e=\"upstream slow-down\" host=h "
                                "why=\"connection refused by peer\" n=3 v=\"a \\\"b\\\"\"\n"));
    assert_memory_equal(out, "t=20", 4);
}

static json_t *json_line(const char *line)
{
    json_error_t error;
    json_t *object = json_loads(line, JSON_ALLOW_NUL, &error);

    if (!object)
        fail_msg("%s: %s", error.text, line);
    return object;
}

static const char *member(json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void json_lines_parse_with_numbers(void **state)
{
    (void)state;
    log_setup(LOG_INFO, LOG_JSON);
    begin_capture();
    log_event(EVENT_UPSTREAM_SLOWDOWN,
              "host=h status=503 part=0.25 minus=-7 req=10e45678 zero=007 why=a \\q\" b v=%s",
              log_value(span_of("tab\tquote\"slash\\nul\x01")));
    json_t *o = json_line(end_capture());
    assert_string_equal(member(o, "l"), "warn");
    assert_string_equal(member(o, "e"), "upstream slow-down");
    assert_string_equal(member(o, "host"), "h");
    assert_int_equal(json_integer_value(json_object_get(o, "status")), 503);
    assert_true(json_is_real(json_object_get(o, "part")));
    assert_int_equal(json_integer_value(json_object_get(o, "minus")), -7);
    assert_string_equal(member(o, "req"), "10e45678");
    assert_string_equal(member(o, "zero"), "007");
    json_decref(o);
}

static void json_survives_any_bytes(void **state)
{
    static const char set[] = "\"\\= u:%3\n\xc3\xa4\xff\x1b{}a0,";
    char bytes[64];

    (void)state;
    log_setup(LOG_INFO, LOG_JSON);
    for (unsigned round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof bytes - 1; i++)
            bytes[i] = set[random_u64() % (sizeof set - 1)];
        bytes[sizeof bytes - 1] = '\0';
        limits[EVENT_CONFIG].since_ms = 0;
        begin_capture();
        log_event(EVENT_CONFIG, "raw=%s v=%s", bytes, log_value(span_of(bytes)));
        json_decref(json_line(end_capture()));
    }
}

static void control_characters_never_leave(void **state)
{
    (void)state;
    begin_capture();
    log_event(EVENT_ADMIN, "a=%s", "x\ny\x1b[31m\x7f\xc2\x9b\xff");
    const char *out = end_capture();
    assert_string_equal(behind_time(out), "warn  admin request refused "
                                          "a=x\\ny\\u001b[31m\\u007f\\u009b\xef\xbf\xbd\n");
}

static void secrets_are_cut(void **state)
{
    static const struct {
        const char *pairs, *expected;
    } cases[] = {
        {"token=abc n=1", "token=(cut) n=1"},
        {"SECRET=\"a b \\\" c\" n=1", "SECRET=\"(cut)\" n=1"},
        {"x-amz-security-token: abc n=1", "x-amz-security-token:(cut) n=1"},
        {"u=/b/k?X-Amz-Signature=abc&x=1", "u=/b/k?X-Amz-Signature=(cut)&x=1"},
        {"u=/b/k%3FX-Amz-Signature%3dabc&x=1", "u=/b/k%3FX-Amz-Signature%3d(cut)&x=1"},
        {"u=\"/b?X-Amz-Security-Token=abc\" n=1", "u=\"/b?X-Amz-Security-Token=(cut)\" n=1"},
        {"Authorization: AWS4-HMAC-SHA256 Credential=A, Signature=abc", "Authorization:(cut)"},
        {"authorization=\"AWS4 Signature=abc\" n=1", "authorization=\"(cut)\" n=1"},
        {"token=", "token=(cut)"},
        {"token_file=/etc/x tokens=5", "token_file=/etc/x tokens=5"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char expected[256];
        fresh(NULL);
        begin_capture();
        log_event(EVENT_ADMIN, "%s", cases[i].pairs);
        log_access(span_of(cases[i].pairs));
        const char *out = end_capture();
        snprintf(expected, sizeof expected, "warn  admin request refused %s\n", cases[i].expected);
        assert_non_null(strstr(out, expected));
        snprintf(expected, sizeof expected, "info  access %s\n", cases[i].expected);
        assert_non_null(strstr(out, expected));
        assert_null(strstr(out, "abc"));
    }
}

static unsigned count_of(const char *out, const char *what)
{
    unsigned count = 0;

    while ((out = strstr(out, what)) != NULL) {
        out += strlen(what);
        count++;
    }
    return count;
}

static void the_same_event_prints_five_times_then_once(void **state)
{
    (void)state;
    begin_capture();
    for (int i = 0; i < 12; i++)
        log_event(EVENT_DISK_ERROR, "n=%d", i);
    log_event(EVENT_ADMIN, "other=1");
    log_tick();
    const char *out = end_capture();
    assert_int_equal(count_of(out, "disk error n="), 5);
    assert_int_equal(count_of(out, "suppressed"), 0);
    assert_int_equal(count_of(out, "other=1"), 1);
    /* The window passes. */
    limits[EVENT_DISK_ERROR].since_ms -= WINDOW_MS;
    begin_capture();
    log_tick();
    log_tick();
    log_event(EVENT_DISK_ERROR, "n=again");
    out = end_capture();
    assert_int_equal(count_of(out, "warn  disk error suppressed=7\n"), 1);
    assert_int_equal(count_of(out, "n=again"), 1);
}

static void a_window_without_losses_just_ends(void **state)
{
    (void)state;
    begin_capture();
    for (int i = 0; i < 5; i++)
        log_event(EVENT_DISK_ERROR, "n=%d", i);
    limits[EVENT_DISK_ERROR].since_ms -= WINDOW_MS;
    for (int i = 0; i < 5; i++)
        log_event(EVENT_DISK_ERROR, "n=%d", i);
    const char *out = end_capture();
    assert_int_equal(count_of(out, "disk error n="), 10);
    assert_int_equal(count_of(out, "suppressed"), 0);
}

static void levels_below_the_threshold_are_silent_but_warnings_are_kept(void **state)
{
    char lines[10][256];

    (void)state;
    log_setup(LOG_ERROR, LOG_TEXT);
    begin_capture();
    log_event(EVENT_STARTED, "n=1");
    log_event(EVENT_ADMIN, "n=2");
    log_event(EVENT_START_FAILED, "n=3");
    const char *out = end_capture();
    assert_int_equal(count_of(out, "\n"), 1);
    assert_non_null(strstr(out, "error cannot start n=3\n"));
    assert_int_equal(log_recent(lines), 2);
    assert_non_null(strstr(lines[0], "error cannot start n=3"));
    assert_non_null(strstr(lines[1], "warn  admin request refused n=2"));
}

static void the_newest_ten_warnings_are_kept_whole_characters_only(void **state)
{
    char lines[10][256], umlauts[300];

    (void)state;
    begin_capture();
    for (size_t i = 0; i < sizeof umlauts - 1; i++)
        umlauts[i] = i % 2 ? '\xa4' : '\xc3';
    umlauts[sizeof umlauts - 1] = '\0';
    for (int i = 0; i < 13; i++) {
        limits[EVENT_ADMIN].since_ms = 0;
        log_event(EVENT_ADMIN, "n=%d x=%s%s", i, i % 2 ? "" : "a", umlauts);
    }
    end_capture();
    assert_int_equal(log_recent(lines), 10);
    for (int i = 0; i < 10; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "refused n=%d ", 12 - i);
        assert_non_null(strstr(lines[i], expected));
        size_t len = strlen(lines[i]);
        assert_true(len >= 250 && len < 256 && lines[i][len - 1] == '\xa4');
    }
}

/* As systemd does for a unit; other: of another stream. */
static void name_stream(unsigned other)
{
    char name[64];
    struct stat s;

    assert_int_equal(fstat(STDERR_FILENO, &s), 0);
    snprintf(name, sizeof name, "%llu:%llu", (unsigned long long)s.st_dev,
             (unsigned long long)s.st_ino + other);
    setenv("JOURNAL_STREAM", name, 1);
}

static void a_stderr_that_is_not_the_journal_has_no_prefix(void **state)
{
    (void)state;
    begin_capture();
    name_stream(1);
    log_setup(LOG_INFO, LOG_JSON);
    log_event(EVENT_STARTED, "n=1");
    json_decref(json_line(end_capture()));
}

static void journald_gets_its_level_prefix(void **state)
{
    (void)state;
    begin_capture();
    name_stream(0);
    log_setup(LOG_INFO, LOG_TEXT);
    log_event(EVENT_START_FAILED, "n=1");
    log_event(EVENT_ADMIN, "n=1");
    log_event(EVENT_STARTED, "n=1");
    const char *out = end_capture();
    assert_memory_equal(out, "<3>20", 5);
    assert_non_null(strstr(out, "\n<4>20"));
    assert_non_null(strstr(out, "\n<6>20"));
}

static void access_words_get_names(void **state)
{
    static const char line[] = "10.0.0.21 GET \"train data/a\" bytes=0-8388607 206 8388608 hit "
                               "src=nvme dur=1.9ms agent=Boto3/1.34";

    (void)state;
    begin_capture();
    log_access(span_of(line));
    const char *out = end_capture();
    assert_non_null(strstr(out, "info  access 10.0.0.21 GET \"train data/a\" bytes=0-8388607 "));
    log_setup(LOG_INFO, LOG_JSON);
    begin_capture();
    log_access(span_of(line));
    json_t *o = json_line(end_capture());
    assert_string_equal(member(o, "e"), "access");
    assert_string_equal(member(o, "client"), "10.0.0.21");
    assert_string_equal(member(o, "target"), "train data/a");
    assert_int_equal(json_integer_value(json_object_get(o, "status")), 206);
    assert_int_equal(json_integer_value(json_object_get(o, "sent")), 8388608);
    assert_string_equal(member(o, "result"), "hit");
    assert_string_equal(member(o, "bytes"), "0-8388607");
    assert_string_equal(member(o, "agent"), "Boto3/1.34");
    json_decref(o);
}

static void values_are_quoted_when_needed_and_cut(void **state)
{
    char large[1000];

    (void)state;
    assert_string_equal(log_value(span_of("plain/value-1.tar")), "plain/value-1.tar");
    assert_string_equal(log_value(span_of("")), "\"\"");
    assert_string_equal(log_value(span_of("a b")), "\"a b\"");
    assert_string_equal(log_value(span_of("a=b")), "\"a=b\"");
    assert_string_equal(log_value(span_of("a\n\"\\")), "\"a\\n\\\"\\\\\"");
    memset(large, 'x', sizeof large);
    const char *cut = log_value(span_make(large, sizeof large));
    assert_true(strlen(cut) <= VALUE_BYTES && strlen(cut) > 180);
    assert_string_equal(cut + strlen(cut) - 4, "x...");
    memset(large, '\x01', sizeof large);
    cut = log_value(span_make(large, sizeof large));
    assert_true(strlen(cut) <= VALUE_BYTES);
    assert_string_equal(cut + strlen(cut) - 4, "...\"");
    /* Eight of them live at once. */
    const char *first = log_value(span_of("first"));
    for (int i = 0; i < 7; i++)
        log_value(span_of("other"));
    assert_string_equal(first, "first");
}

static void a_line_that_cannot_be_written_is_counted(void **state)
{
    uint64_t before = log_dropped_count();

    (void)state;
    int saved = dup(STDERR_FILENO), full = open("/dev/full", O_WRONLY);
    assert_true(saved >= 0 && full >= 0);
    dup2(full, STDERR_FILENO);
    log_event(EVENT_ADMIN, "n=1");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(full);
    assert_int_equal(log_dropped_count() - before, 1);
}

/* Fills what ends[1] is, puts it in place of stderr, and says how to go back. */
static int stand_in(const int ends[2])
{
    static const char bytes[PIPE_BUF];
    int saved = dup(STDERR_FILENO), flags = fcntl(ends[1], F_GETFL);

    fcntl(ends[1], F_SETFL, flags | O_NONBLOCK);
    while (write(ends[1], bytes, sizeof bytes) > 0)
        ;
    fcntl(ends[1], F_SETFL, flags);
    dup2(ends[1], STDERR_FILENO);
    alarm(10);                       /* whoever waits here would wait for ever */
    return saved;
}

static void step_back(int saved, const int ends[2])
{
    alarm(0);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[0]);
    close(ends[1]);
}

static void read_on(int fd, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = read(fd, captured, bytes < sizeof captured ? bytes : sizeof captured);
        assert_true(n > 0);
        bytes -= (size_t)n;
    }
}

static size_t held(int fd)
{
    int n = 0;

    assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
    return (size_t)n;
}

static void nobody_waits_for_a_log_that_nobody_reads(void **state)
{
    int ends[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        uint64_t before = log_dropped_count();
        assert_int_equal(i ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends), 0);
        int saved = stand_in(ends);
        log_event(EVENT_ADMIN, "n=1");
        log_access(span_of("10.0.0.21 GET"));
        assert_int_equal(log_dropped_count() - before, 2);
        read_on(ends[0], held(ends[0]));
        log_event(EVENT_ADMIN, "n=2");
        assert_int_equal(log_dropped_count() - before, 2);
        ssize_t got = read(ends[0], captured, sizeof captured - 1);
        step_back(saved, ends);
        assert_true(got > 0);
        captured[got] = '\0';
        assert_string_equal(behind_time(captured), "warn  admin request refused n=2\n");
    }
}

/* Room for its beginning is no room for a long one. */
static void behind_half_a_line_the_next_one_begins_anew(void **state)
{
    static char large[PAIRS_BYTES];
    uint64_t before = log_dropped_count();
    int ends[2];

    (void)state;
    memset(large, 'x', sizeof large - 1);
    assert_int_equal(pipe(ends), 0);
    int saved = stand_in(ends);
    read_on(ends[0], PIPE_BUF);
    log_access(span_of(large));
    assert_int_equal(log_dropped_count() - before, 1);
    read_on(ends[0], held(ends[0]));
    log_event(EVENT_ADMIN, "n=1");
    ssize_t got = read(ends[0], captured, sizeof captured - 1);
    step_back(saved, ends);
    assert_true(got > 1);
    captured[got] = '\0';
    assert_int_equal(captured[0], '\n');
    assert_string_equal(behind_time(captured + 1), "warn  admin request refused n=1\n");
}

static void an_endless_line_is_cut_and_still_json(void **state)
{
    static char large[3 * PAIRS_BYTES];

    (void)state;
    memset(large, '"', sizeof large - 1);
    log_setup(LOG_INFO, LOG_JSON);
    begin_capture();
    log_event(EVENT_ADMIN, "n=1 x=%s", large);
    json_t *o = json_line(end_capture());
    assert_int_equal(json_integer_value(json_object_get(o, "n")), 1);
    json_decref(o);
    begin_capture();
    log_access(span_make(large, sizeof large - 1));
    o = json_line(end_capture());
    assert_string_equal(member(o, "e"), "access");
    json_decref(o);
}

static void *log_much(void *arg)
{
    for (int i = 0; i < 300; i++) {
        log_event((enum event)(i % EVENT_COUNT), "thread=%s i=%d",
                  log_value(span_of((const char *)arg)), i);
        log_tick();
    }
    return NULL;
}

static void threads_share_the_limits(void **state)
{
    pthread_t threads[4];
    static char names[4][2] = {"a", "b", "c", "d"};

    (void)state;
    begin_capture();
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_much, names[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    const char *out = end_capture();
    /* Debug events do not exist in the table; each event printed at most its burst. */
    assert_true(count_of(out, "\n") <= EVENT_COUNT * BURST);
    assert_true(count_of(out, "\n") > EVENT_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(text_lines_have_words_first, fresh),
        cmocka_unit_test_setup(logfmt_lines_are_pairs_only, fresh),
        cmocka_unit_test_setup(json_lines_parse_with_numbers, fresh),
        cmocka_unit_test_setup(json_survives_any_bytes, fresh),
        cmocka_unit_test_setup(control_characters_never_leave, fresh),
        cmocka_unit_test_setup(secrets_are_cut, fresh),
        cmocka_unit_test_setup(the_same_event_prints_five_times_then_once, fresh),
        cmocka_unit_test_setup(a_window_without_losses_just_ends, fresh),
        cmocka_unit_test_setup(levels_below_the_threshold_are_silent_but_warnings_are_kept, fresh),
        cmocka_unit_test_setup(the_newest_ten_warnings_are_kept_whole_characters_only, fresh),
        cmocka_unit_test_setup(journald_gets_its_level_prefix, fresh),
        cmocka_unit_test_setup(a_stderr_that_is_not_the_journal_has_no_prefix, fresh),
        cmocka_unit_test_setup(access_words_get_names, fresh),
        cmocka_unit_test_setup(values_are_quoted_when_needed_and_cut, fresh),
        cmocka_unit_test_setup(a_line_that_cannot_be_written_is_counted, fresh),
        cmocka_unit_test_setup(nobody_waits_for_a_log_that_nobody_reads, fresh),
        cmocka_unit_test_setup(behind_half_a_line_the_next_one_begins_anew, fresh),
        cmocka_unit_test_setup(an_endless_line_is_cut_and_still_json, fresh),
        cmocka_unit_test_setup(threads_share_the_limits, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
