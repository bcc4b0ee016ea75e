/* The command line: what it orders of a server as a whole. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

/* ---- reload, drain ---- */

#define REFUSED                                                                                 \
    "HTTP/1.1 422 Unprocessable Content\r\nConnection: close\r\n\r\n{\"error\":{\"code\":"      \
    "\"bad_config\",\"message\":\"2 mistakes; nothing has changed\",\"hint\":\"correct them\"," \
    "\"count\":2,\"mistakes\":[\"f.toml:3:1: a\\u001b[2J\",\"f.toml:9:2: b\"]}}"

static void a_reload_that_is_refused_names_each_mistake(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, REFUSED, 2);
    assert_int_equal(RUN("--server", f.url, "config", "reload"), CTL_USAGE);
    assert_string_equal(err_text_, "f.toml:3:1: a?[2J\nf.toml:9:2: b\n"
                                   "2 errors, nothing has changed; correct them and reload "
                                   "again\n");
    assert_string_equal(out_text, "");
    assert_int_equal(RUN("--server", f.url, "--json", "config", "reload"), CTL_USAGE);
    shows("{\"v\":1,\"error\":\"f.toml:9:2: b\"}\n");
    fake_end(&f);
    assert_memory_equal(f.asked, "POST /v1/config/reload ", 23);
}

static void a_reload_tells_what_waits_for_a_restart(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir,
               BODY "{\"v\":1,\"ok\":true,\"restart_needed\":[\"cache.size\",\"server.name\"]}", 2);
    assert_int_equal(RUN("--server", f.url, "config", "reload"), CTL_DONE);
    assert_string_equal(out_text, "reloaded\n");
    assert_non_null(strstr(err_text_, "until a restart: cache.size, server.name\n"));
    assert_int_equal(RUN("--server", f.url, "-q", "config", "reload"), CTL_DONE);
    assert_string_equal(out_text, "");
    assert_string_equal(err_text_, "");
    fake_end(&f);
}

static void a_reload_that_fails_otherwise_has_its_exit_code(void **state)
{
    static const struct {
        const char *answer;
        int code;
    } rows[] = {
        {"HTTP/1.1 405 Method Not Allowed\r\nConnection: close\r\n\r\n{\"error\":{\"code\":"
         "\"read_only\",\"message\":\"m\",\"hint\":\"h\"}}", CTL_DENIED},
        {"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n{\"error\":{\"code\":\"timeout\","
         "\"message\":\"m\",\"hint\":\"h\"}}", CTL_FAILED},
        {"HTTP/1.1 422 No\r\nConnection: close\r\n\r\n{\"error\":[]}", CTL_USAGE},
        {"HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n{}", CTL_FAILED},
        {BODY "[]", CTL_FAILED},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fake f;
        fake_start(&f, dir, rows[i].answer, 1);
        int code = RUN("--server", f.url, "config", "reload");
        fake_end(&f);
        if (code != rows[i].code || !strchr(err_text_, ';') || out_text[0])
            fail_msg("row %u: %d, %s", i, code, err_text_);
    }
}

static void a_drain_says_how_long(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"v\":1,\"state\":\"draining\",\"drain_timeout_ms\":90000}", 2);
    assert_int_equal(RUN("--server", f.url, "drain"), CTL_DONE);
    shows("draining: not ready any more, it ends when what runs has finished, in 1m 30s at most\n");
    shows("again: sudo systemctl start headpond\n");
    assert_int_equal(RUN("--server", f.url, "--json", "drain"), CTL_DONE);
    shows("\"state\":\"draining\"");
    fake_end(&f);
    assert_memory_equal(f.asked, "POST /v1/drain ", 15);
}

/* ---- several servers ---- */

#define TWO(...) \
    RUN("--server", "unix:/nonexistent/a", "--server", "unix:/nonexistent/b", __VA_ARGS__)

/* Found as: a job of that number at another server was cancelled; only one of two was drained. */
static void what_changes_something_or_names_an_id_takes_one_server(void **state)
{
    (void)state;
    assert_int_equal(TWO("job", "cancel", "j7"), CTL_USAGE);
    assert_string_equal(err_text_, "headpond: more than one --server with \"job cancel\": it is "
                                   "for one server; run it for each, with its --server alone\n");
    assert_int_equal(TWO("drain"), CTL_USAGE);
    assert_int_equal(TWO("evict", "s3://b", "--yes"), CTL_USAGE);
    assert_int_equal(TWO("pin", "s3://b"), CTL_USAGE);
    assert_int_equal(TWO("pins"), CTL_UNREACHABLE);
    assert_int_equal(RUN("--server", "unix:/nonexistent/a", "drain"), CTL_UNREACHABLE);
}

static void a_configuration_is_shown_without_commands_to_the_terminal(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"s\\u001b\":{\"k\\u001b\":\"a\\u001b\\u009bb\",\"n\":7},"
                        "\"l\\u001b\":[{\"x\":[\"\\u007f\"]}]}", 1);
    assert_int_equal(RUN("--server", f.url, "config", "show"), CTL_DONE);
    fake_end(&f);
    assert_null(strpbrk(out_text, "\033\177\302"));
    shows("[s?]\n");
    shows("k? = \"a\\u001B?b\"\n");
    shows("n = 7\n");
    shows("[[l?]]\nx = [\"?\"]\n");
}

/* Of all verbs but these, so that one that comes is thought of. */
static void only_what_reads_may_have_several_servers(void **state)
{
    static const char *const reads[] = {
        "setup", "status", "env", "doctor", "ready", "disk ls", "ls", "du", "top", "hist", "pins",
        "config show", "version", "completion", "man",
    };

    (void)state;
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        bool found = false;
        for (unsigned k = 0; k < ARRAY_COUNT(reads); k++)
            found = found || strcmp(ctl_verbs[i].name, reads[k]) == 0;
        if (ctl_verbs[i].single == found)
            fail_msg("%s", ctl_verbs[i].name);
    }
}

/* ---- doctor ---- */

/* Found as: a disk that came back by itself was to be replaced. */
static void doctor_tells_why_a_disk_is_not_up_and_what_helps(void **state)
{
    static const struct {
        const char *disk, *line;
    } rows[] = {
        {"\"state\":\"suspect\",\"since_s\":3,\"why\":\"w\",\"fix\":\"f\"",
         "warn  /n is suspect for 3s, 0 errors: w; f\n"},
        {"\"state\":\"fenced\",\"since_s\":61,\"errors\":5,\"why\":\"w\",\"fix\":\"f\"",
         "FAIL  /n is fenced for 1m 01s, 5 errors: w; f\n"},
        {"\"state\":\"fenced\",\"why\":\"fenced by hand\",\"fix\":\"f\"",
         "warn  /n is fenced for 0s, 0 errors: fenced by hand; f\n"},
        {"\"state\":\"probation\",\"why\":\"\",\"fix\":\"\"",
         "warn  /n is on probation for 0s, 0 errors: it passes its tests, wait: it comes back by "
         "itself\n"},
        {"\"state\":\"up\",\"errors\":1", "warn  /n had 1 errors: look at dmesg"},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        char answer[KIB];
        struct fake f;
        snprintf(answer, sizeof answer,
                 BODY "{\"state\":\"ready\",\"disks\":[{\"dir\":\"/n\",%s}]}", rows[i].disk);
        fake_start(&f, dir, answer, 2);
        RUN("--server", f.url, "doctor");
        fake_end(&f);
        shows(rows[i].line);
    }
}

/* ---- setup ---- */

static const char *put_with(const char *verb, bool wrote)
{
    struct ctl c = {.dir = {"/nvme0/headpond"}, .dir_count = 1};
    static struct setup s;
    struct capture out;

    s = (struct setup){.c = &c, .root = "", .unit = true, .systemd = true, .wrote = wrote};
    out = capture_begin(stdout);
    int code = put_unit(&s);
    capture_end(&out, out_text);
    assert_int_equal(code, CTL_DONE);
    shows("ran systemctl enable headpond.service\n");
    return strstr(out_text, verb);
}

/* Found as: each run of setup ended the requests that were being served. */
static void a_setup_that_wrote_nothing_restarts_nothing(void **state)
{
    char *path = mem_copy(span_of(getenv("PATH"))), script[128];

    (void)state;
    snprintf(script, sizeof script, "%s/systemctl", dir);
    int fd = open(script, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(fd >= 0 && write(fd, "#!/bin/sh\n", 10) == 10 && close(fd) == 0);
    setenv("PATH", dir, 1);
    const char *started = put_with("ran systemctl start headpond.service\n", false);
    const char *restarted = put_with("ran systemctl restart headpond.service\n", true);
    setenv("PATH", path ? path : "/bin", 1);
    mem_give(path);
    unlink(script);
    assert_non_null(started);
    assert_non_null(restarted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reload_that_is_refused_names_each_mistake),
        cmocka_unit_test(a_reload_tells_what_waits_for_a_restart),
        cmocka_unit_test(a_reload_that_fails_otherwise_has_its_exit_code),
        cmocka_unit_test(a_drain_says_how_long),
        cmocka_unit_test(what_changes_something_or_names_an_id_takes_one_server),
        cmocka_unit_test(a_configuration_is_shown_without_commands_to_the_terminal),
        cmocka_unit_test(only_what_reads_may_have_several_servers),
        cmocka_unit_test(doctor_tells_why_a_disk_is_not_up_and_what_helps),
        cmocka_unit_test(a_setup_that_wrote_nothing_restarts_nothing),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
