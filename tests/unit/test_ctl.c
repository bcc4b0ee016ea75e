/* The command line, of server/ctl/: the tables, what is printed, what is asked of a server. All
 * its files stand in one here: the tables name the verbs of each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

#define STATUS                                                                                     \
    "{\"v\":1,\"name\":\"dgx-03\",\"version\":\"0.1.0\",\"state\":\"ready\",\"uptime_s\":266400,"  \
    "\"upstream\":{\"endpoint\":\"https://s3.eu-central-1.amazonaws.com\",\"up\":true,"            \
    "\"rtt_ms\":11.8,\"throttled\":false,\"throttled_per_min\":0.0,\"warning\":\"\"},"             \
    "\"cache\":{\"capacity\":13194139533312,\"used\":9895604649984,\"pinned\":2199023255552,"      \
    "\"objects\":18233,\"chunks\":1179648},\"last_5m\":{\"requests\":412331,"                      \
    "\"hit_bytes_ratio\":0.986,\"sent_bytes_per_s\":3650722201,\"upstream_bytes_per_s\":51380224," \
    "\"stall_ratio\":0.004,\"p50_ms\":0.9,\"p99_ms\":6.2},\"disks\":[{\"dir\":\"/nvme0\","         \
    "\"state\":\"up\",\"errors\":0},{\"dir\":\"/nvme1\",\"state\":\"up\",\"errors\":0}],"          \
    "\"jobs\":{\"running\":0,\"queued\":0,\"failed\":0},\"warnings\":[],"                          \
    "\"clients\":[{\"host\":\"10.0.0.21\",\"agent\":\"Boto3\",\"seconds_ago\":1},"                 \
    "{\"host\":\"10.0.0.21\",\"agent\":\"curl\",\"seconds_ago\":2},"                               \
    "{\"host\":\"10.0.0.31\",\"agent\":\"streaming\",\"seconds_ago\":9}],"                         \
    "\"client_hosts\":2,\"client_hosts_more\":true,\"s3_url\":\"http://127.0.0.1:9000\"}"

/* ---- the tables ---- */

static void check_help(const char *text)
{
    if (strpbrk(text, "'\"\\$`"))
        fail_msg("a shell would stumble over: %s", text);
}

static void every_row_is_usable(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        const struct verb *v = &ctl_verbs[i];
        assert_true((v->run != NULL) != (v->instead != NULL));
        assert_true(v->args && v->help && v->help[0]);
        check_help(v->help);
        assert_null(strchr(v->help, ':'));
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(v->name, ctl_verbs[j].name);
        for (const struct option_row *o = v->option; o && o->name; o++)
            check_help(o->help);
    }
    for (const struct option_row *o = ctl_options; o->name; o++)
        check_help(o->help);
}

static void verbs_that_are_missing_say_what_to_do(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        char name[64];
        if (ctl_verbs[i].run)
            continue;
        snprintf(name, sizeof name, "%s", ctl_verbs[i].name);
        char *second = strchr(name, ' ');
        if (second)
            *second++ = '\0';
        assert_int_equal(second ? RUN(name, second, "--unknown") : RUN(name, "s3://x", "--pin"),
                         CTL_USAGE);
        assert_non_null(strstr(err_text_, "not in this version"));
        assert_non_null(strstr(err_text_, ctl_verbs[i].instead));
    }
}

static void mistakes_name_what_was_meant(void **state)
{
    static const struct {
        const char *words[4], *told;
    } rows[] = {
        {{"staus"}, "did you mean status?"},
        {{"status", "--wach"}, "did you mean --watch?"},
        {{"config"}, "behind it comes one of: show reload"},
        {{"config", "shw"}, "behind it comes one of: show reload"},
        {{"status", "twice"}, "one word too many"}, {{"pin", "a", "b"}, "\"b\"; one at a time"},
        {{"completion"}, "a word is missing"},
        {{"completion", "ksh"}, "bash, zsh and fish"},
        {{"--server", "ftp://x", "status"}, "unix:PATH or http://HOST:PORT"},
        {{"--server"}, "no value behind"},
        {{"--json=1", "status"}, "no value may follow"},
        {{"--timeout", "0s", "status"}, "how long a server may take"},
        {{"status", "--watch=1ms"}, "every 2s"},
        {{"env", "--shell", "tcsh"}, "sh, fish, python"},
        {{"-z"}, "unknown option"},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        int code = headpond(rows[i].words);
        if (code != CTL_USAGE || !strstr(err_text_, rows[i].told))
            fail_msg("row %u: %d, %s", i, code, err_text_);
    }
}

static void help_and_version_end_well(void **state)
{
    (void)state;
    assert_int_equal(RUN("--help"), CTL_DONE);
    shows("\n  status ");
    shows("\n  prewarm [s3://BUCKET/PREFIX] ");
    shows("7 does not fit");
    assert_int_equal(RUN("status", "-h"), CTL_DONE);
    shows("--watch[=TIME]");
    assert_int_equal(RUN("help", "status"), CTL_DONE);
    shows("--watch[=TIME]");
    assert_int_equal(RUN("help"), CTL_DONE);
    shows("\n  status ");
    assert_int_equal(RUN("help", "job", "wait"), CTL_DONE);
    shows("usage: headpond job wait ID");
    assert_int_equal(RUN("help", "staus"), CTL_USAGE);
    assert_int_equal(RUN("--version"), CTL_DONE);
    assert_string_equal(out_text, "headpond " HEADPOND_VERSION "\n");
}

static void options_stand_before_and_behind_the_verb(void **state)
{
    struct ctl c = {.timeout_ms = 1};
    char *argv[] = {"headpond", "--server", "unix:/a", "ready", "--server=http://b:1", "--timeout",
        "5s", "-q"};

    (void)state;
    assert_int_equal(read_command_line(&c, ARRAY_COUNT(argv), argv), -1);
    assert_ptr_equal(c.verb->run, ready_run);
    assert_int_equal(c.server_count, 2);
    assert_string_equal(c.server[1], "http://b:1");
    assert_int_equal(c.wait_ms, 5000); /* the verb's own option of that name */
    assert_int_equal(c.timeout_ms, 1);
    assert_true(c.quiet);
}

/* ---- status ---- */

static const char *shown(const char *json, const struct ctl *c)
{
    static char memory[TEXT_BYTES];
    json_t *s = json_loads(json, 0, NULL);
    struct text t;

    assert_non_null(s);
    text_init(&t, memory, sizeof memory);
    status_text(c, s, &t);
    json_decref(s);
    assert_false(t.over);
    return memory;
}

static void status_reads_as_documented(void **state)
{
    const struct ctl c = {0};

    (void)state;
    assert_string_equal(
        shown(STATUS, &c),
        "headpond 0.1.0 on dgx-03, ready, up 3d 2h\n"
        "  upstream  https://s3.eu-central-1.amazonaws.com   answering, 11.8 ms, 0 throttled/min\n"
        "  cache     9.00 of 12.00 TiB (75 %), 2.00 TiB pinned, 18 233 objects     disks 2 up, 0 "
        "fenced\n"
        "  last 5 m  3.65 GB/s out, 0.05 GB/s from upstream, hits 98.6 % of bytes, p50 0.9 ms, p99 "
        "6.2 ms\n"
        "  clients   over 2 hosts in the last 5 m: 10.0.0.21 (Boto3), 10.0.0.21 (curl), 10.0.0.31 "
        "(streaming)\n"
        "  GPUs      waited 0.4 % of client time for upstream\n");
}

static void status_names_the_jobs_that_work(void **state)
{
    const struct ctl c = {0};
    const char *text =
        shown("{\"jobs\":{\"running\":2,\"queued\":0},\"running_jobs\":[{\"id\":\"j7\","
              "\"kind\":\"prewarm\",\"prefix\":\"train-data/imagenet/\",\"objects\":{\"wanted\":2,"
              "\"done\":1},\"bytes\":{\"wanted\":200,\"done\":100},\"eta_s\":63},"
              "{\"id\":\"j8\",\"kind\":\"verify\",\"prefix\":\"\",\"pass\":\"counting\"}]}", &c);

    (void)state;
    assert_non_null(strstr(text, "\n  jobs      2 running: j7 prewarm train-data/imagenet/ 50 % "
                                 "(1m 03s left), j8 verify everything counting\n"));
}

static void status_tells_which_schedules_are_in_force(void **state)
{
    const struct ctl c = {0};

    (void)state;
    const char *text = shown("{\"schedules\":[{\"when\":\"Mon-Fri 08:00-20:00\",\"in_force\":true},"
                             "{\"when\":\"Sat\",\"in_force\":false},{\"when\":\"Mon\","
                             "\"in_force\":true}],\"schedule_changes_s\":7800}", &c);
    assert_non_null(strstr(text,
                           "\n  schedule  Mon-Fri 08:00-20:00; Mon in force, next change in 2h "
                           "10m\n"));
    text = shown("{\"schedules\":[{\"when\":\"Sat\",\"in_force\":false}]}", &c);
    assert_non_null(strstr(text, "\n  schedule  none in force\n"));
    assert_null(strstr(shown("{\"schedules\":[]}", &c), "schedule"));
}

static void status_asks_for_the_jobs_that_work(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"jobs\":{\"running\":1,\"queued\":3}}", 3);
    f.later[0] = BODY "{\"v\":1,\"jobs\":[{\"id\":\"j9\",\"kind\":\"evict\",\"prefix\":\"b/\"}]}";
    f.later[1] = BODY "{\"jobs\":{\"running\":1}}";
    assert_int_equal(RUN("--server", f.url, "status"), CTL_DONE);
    shows("  jobs      1 running, 3 queued: j9 evict b/ 0 %\n");
    assert_int_equal(RUN("--server", f.url, "--json", "status"), CTL_DONE);
    assert_string_equal(out_text, "{\"jobs\":{\"running\":1}}\n");
    fake_end(&f);
}

static void trouble_is_shown_and_silence_left_out(void **state)
{
    const struct ctl c = {0};
    const char *text = shown("{\"upstream\":{\"up\":false,\"endpoint\":\"http://x\"},"
                             "\"disks\":[{\"dir\":\"/n\",\"state\":\"fenced\",\"errors\":12}],"
                             "\"jobs\":{\"running\":1,\"queued\":2},"
                             "\"warnings\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", &c);

    (void)state;
    assert_non_null(strstr(text, "http://x   not answering\n"));
    assert_non_null(strstr(text, "disks 0 up, 1 fenced"));
    assert_non_null(strstr(text, "/n fenced, 12 errors\n"));
    assert_non_null(strstr(text, "1 running, 2 queued"));
    assert_non_null(strstr(text, "warning   d\n"));
    assert_non_null(strstr(text, "and 1 more"));
    assert_null(strstr(text, "warning   e"));
    assert_null(strstr(text, "GPUs"));
    assert_null(strstr(text, "pinned"));
    assert_non_null(strstr(text, "headpond env shows how"));
}

static void an_upstream_that_is_away_or_throttles_is_told(void **state)
{
    const struct ctl c = {0};

    (void)state;
    const char *text =
        shown("{\"upstream\":{\"up\":false,\"endpoint\":\"http://x\",\"down_s\":75}}", &c);
    assert_non_null(strstr(text, "http://x   not answering for 1m 15s\n"));
    text = shown("{\"upstream\":{\"up\":true,\"endpoint\":\"http://x\",\"throttled_per_min\":3,"
                 "\"concurrency_limit\":16,\"connections\":64}}", &c);
    assert_non_null(strstr(text, "3 throttled/min, at most 16 of 64 requests at once\n"));
}

static void a_hostile_server_does_not_command_the_terminal(void **state)
{
    const struct ctl c = {0};
    const char *text =
        shown("{\"name\":\"a\\u001b[2Jb\",\"state\":[],\"clients\":[{\"host\":\"\\u0007\"}],"
                             "\"warnings\":[\"x\\ny\",7],\"disks\":{},\"last_5m\":3}", &c);

    (void)state;
    assert_null(strpbrk(text, "\033\007"));
    assert_non_null(strstr(text, "on a?[2Jb,"));
    assert_non_null(strstr(text, "x?y\n"));
}

static void colours_only_where_they_are_wanted(void **state)
{
    const struct ctl plain = {0}, colored = {.color = true};

    (void)state;
    assert_null(strchr(shown(STATUS, &plain), '\033'));
    assert_non_null(strstr(shown(STATUS, &colored), "\033[32mready\033[0m"));
}

static void status_asks_a_server(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY STATUS, 3);
    assert_int_equal(RUN("--server", f.url, "status"), CTL_DONE);
    shows("on dgx-03, ready");
    assert_int_equal(RUN("--server", f.url, "--json", "status"), CTL_DONE);
    assert_memory_equal(out_text, "{\"v\":1,\"name\":\"dgx-03\"", 22);
    assert_ptr_equal(strchr(out_text, '\n'), out_text + strlen(out_text) - 1);
    assert_int_equal(RUN("--server", f.url, "--server", "unix:/nonexistent", "status"), CTL_PARTLY);
    shows("\ndgx-03 ");
    shows("\nunix:/nonexistent");
    fake_end(&f);
}

static void an_absent_server_is_exit_5_with_advice(void **state)
{
    (void)state;
    assert_int_equal(RUN("--server", "unix:/nonexistent", "status"), CTL_UNREACHABLE);
    assert_non_null(strstr(err_text_, "unix:/nonexistent: No such file"));
    assert_non_null(strstr(err_text_, "admin.listen"));
    assert_string_equal(out_text, "");
    assert_int_equal(RUN("--server", "unix:/nonexistent", "ready", "--timeout", "10ms"),
                     CTL_TIMEOUT);
}

/* ---- client ---- */

#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

static void answers_that_are_none_are_refused(void **state)
{
    static const struct {
        const char *answer;
        enum err err;
    } rows[] = {
        {HEAD("2") "{}", OK},
        {HEAD("2") "{}trailing", OK},
        {BODY "{}", OK},
        {HEAD("5") "{}", ERR_SYNTAX},
        {CHUNKED "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", OK},
        {CHUNKED "2\r\n{}\r\n0\r\n", ERR_SYNTAX},
        {CHUNKED "2\r\n{", ERR_SYNTAX},
        {CHUNKED "two\r\n{}\r\n0\r\n\r\n", ERR_SYNTAX},
        {"SSH-2.0-OpenSSH_9.2\r\n", ERR_SYNTAX},
        {"", ERR_SYNTAX},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fake f;
        struct reply r = {0};
        char why[CTL_WHY_BYTES] = "";
        fake_start(&f, dir, rows[i].answer, 1);
        assert_int_equal(client_get(f.url, "/v1/status", 5000, &r, why), rows[i].err);
        fake_end(&f);
        if (rows[i].err == OK)
            assert_string_equal(r.body, "{}");
        else
            assert_non_null(strstr(why, f.url));
        assert_true(rows[i].err != OK || r.peer_pid == getpid());
        reply_free(&r);
    }
}

static void a_server_that_is_silent_costs_the_timeout_only(void **state)
{
    struct fake f;
    struct reply r = {0};
    char why[CTL_WHY_BYTES] = "";

    (void)state;
    fake_start(&f, dir, NULL, 1);
    uint64_t began = clock_ms();
    assert_int_equal(client_get(f.url, "/", 100, &r, why), ERR_TIMEOUT);
    assert_true(clock_ms() - began < 3000);
    assert_non_null(strstr(why, "--timeout"));
    fake_end(&f);
}

static void errors_of_the_server_are_told(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n"
                   "{\"error\":{\"code\":\"forbidden\",\"message\":\"the Host "
                   "field\",\"hint\":\"ask by address\"}}", 1);
    assert_int_equal(RUN("--server", f.url, "config", "show"), CTL_DENIED);
    assert_non_null(strstr(err_text_, "the Host field; ask by address"));
    fake_end(&f);
}

static void config_is_shown_as_toml(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"v\":1,\"server\":{\"listen\":[\"a\", \"b\"],\"workers\":2},"
                        "\"cache\":{\"size\":\"90%\",\"immutable\":true},"
                        "\"bucket\":[{\"match\":\"x\"}]}", 1);
    assert_int_equal(RUN("--server", f.url, "config", "show"), CTL_DONE);
    assert_string_equal(out_text, "[server]\nlisten = [\"a\", \"b\"]\nworkers = 2\n\n"
                                  "[cache]\nsize = \"90%\"\nimmutable = true\n\n[[bucket]]\nmatch "
                                  "= \"x\"\n");
    fake_end(&f);
}

/* ---- env ---- */

static void env_speaks_the_shells(void **state)
{
    static const struct {
        const char *shell, *url, *text;
    } rows[] = {
        {"sh", "http://c:9000",
         "export AWS_ENDPOINT_URL_S3=http://c:9000 AWS_ENDPOINT_URL=http://c:9000 "
         "S3_ENDPOINT_URL=http://c:9000\n"},
        {"sh", "http://[::1]:9",
         "export AWS_ENDPOINT_URL_S3='http://[::1]:9' "
         "AWS_ENDPOINT_URL='http://[::1]:9' "
         "S3_ENDPOINT_URL='http://[::1]:9'\n"},
        {"fish", "http://c:9000",
         "set -gx AWS_ENDPOINT_URL_S3 http://c:9000;\nset -gx AWS_ENDPOINT_URL http://c:9000;\n"
         "set -gx S3_ENDPOINT_URL http://c:9000;\n"},
        {"python", "http://c:9",
         "import os\nos.environ.update(AWS_ENDPOINT_URL_S3=\"http://c:9\", "
         "AWS_ENDPOINT_URL=\"http://c:9\", "
         "S3_ENDPOINT_URL=\"http://c:9\")\n"},
        {"docker", "http://c:9", "-e AWS_ENDPOINT_URL_S3=http://c:9 -e AWS_ENDPOINT_URL=http://c:9 "
                                 "-e S3_ENDPOINT_URL=http://c:9\n"},
        {"k8s", "http://c:9",
         "env:\n  - name: AWS_ENDPOINT_URL_S3\n    value: \"http://c:9\"\n  - name: "
         "AWS_ENDPOINT_URL\n"
         "    value: \"http://c:9\"\n  - name: S3_ENDPOINT_URL\n    value: \"http://c:9\"\n"},
    };
    char memory[KIB];
    struct text t;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        text_init(&t, memory, sizeof memory);
        assert_int_equal(env_print(rows[i].shell, rows[i].url, &t), OK);
        assert_string_equal(memory, rows[i].text);
    }
    assert_int_equal(env_print("tcsh", "http://c:9", &t), ERR_NOT_FOUND);
}

static void nothing_that_a_shell_would_run_is_printed(void **state)
{
    static const char *const urls[] = {
        "http://c:9;rm -rf "
        "~", "http://$(id)", "http://`id`", "http://c'x", "http://c\nid", "http://c\"x",
        "http://c|id",         "http://c&id",  "http://a "
                                               "b",  "",           "file:///etc",  "http://",
        "http://c#x",          "x=1",
    };
    char memory[KIB];
    struct text t;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(urls); i++) {
        text_init(&t, memory, sizeof memory);
        assert_int_equal(env_print("sh", urls[i], &t), ERR_SYNTAX);
        assert_int_equal(t.len, 0);
    }
}

static void write_script(const char *name, const char *text)
{
    char path[128];
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void env_warns_of_tools_that_ignore_it(void **state)
{
    char *path = mem_copy(span_of(getenv("PATH")));
    struct fake f;

    (void)state;
    write_script("aws", "#!/bin/sh\necho 'aws-cli/2.9.19 Python/3.11.2 Linux/6.1'\n");
    write_script("python3", "#!/bin/sh\necho botocore/1.31.0\n");
    write_script("s5cmd", "#!/bin/sh\necho v2.2.2-48f7e59\n");
    setenv("PATH", dir, 1);
    fake_start(&f, dir, BODY STATUS, 3);
    assert_int_equal(RUN("--server", f.url, "env"), CTL_DONE);
    assert_memory_equal(out_text, "export AWS_ENDPOINT_URL_S3=http://127.0.0.1:9000 ", 49);
    assert_non_null(strstr(err_text_, "aws 2.9.19 ignores these variables"));
    assert_non_null(strstr(err_text_, "aws --endpoint-url http://127.0.0.1:9000 s3 ..."));
    assert_non_null(strstr(err_text_, "s5cmd 2.2.2 ignores"));
    assert_null(strstr(err_text_, "boto3"));
    assert_int_equal(RUN("--server", f.url, "-q", "env"), CTL_DONE);
    assert_string_equal(err_text_, "");
    assert_int_equal(RUN("--server", f.url, "env", "--shell", "docker"), CTL_DONE);
    shows("=http://dgx-03:9000");
    assert_non_null(strstr(err_text_, "container"));
    fake_end(&f);
    setenv("PATH", path ? path : "/bin", 1);
    mem_give(path);
}

static void versions_decide_who_ignores_the_variables(void **state)
{
    static const struct {
        const char *text, *prefix;
        unsigned tool;
        bool read, ignores;
    } rows[] = {
        {"aws-cli/1.28.9 x", "aws-cli/", 0, true, true},  {"aws-cli/1.29.0 x", "aws-cli/", 0, true,
            false},
        {"aws-cli/2.12.9 x", "aws-cli/", 0, true, true},  {"aws-cli/2.13.0", "aws-cli/", 0, true,
            false},
        {"aws-cli/2.13", "aws-cli/", 0, true, false},     {"botocore/1.30.1", "botocore/", 1, true,
            true},
        {"botocore/1.31.0\n", "botocore/", 1, true, false}, {"botocore/2.0.0", "botocore/", 1,
            true, false},
        {"v2.3.0", "v", 2, true, true},                   {"aws-cli/", "aws-cli/", 0, false, false},
        {"aws-cli/x", "aws-cli/", 0, false, false},       {"", "aws-cli/", 0, false, false},
    };
    struct version v;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        assert_int_equal(read_version(span_of(rows[i].text), rows[i].prefix, &v), rows[i].read);
        if (rows[i].read)
            assert_int_equal(tools[rows[i].tool].ignores(&v), rows[i].ignores);
    }
}

static void a_tool_that_hangs_is_killed(void **state)
{
    static const char *const hangs[] = {"sleep", "60", NULL}, *const fails[] = {"false", NULL},
                             *const missing[] = {"headpond-no-such-program", NULL};
    char memory[64];
    struct text t;

    (void)state;
    text_init(&t, memory, sizeof memory);
    uint64_t began = clock_ms();
    assert_false(program_run(hangs, 100, &t));
    assert_true(clock_ms() - began < 3000);
    assert_false(program_run(fails, 3000, &t));
    assert_false(program_run(missing, 3000, &t));
}

/* ---- doctor ---- */

static void doctor_judges_directories(void **state)
{
    char path[128], text[512];
    struct ctl c = {0};
    struct doctor d = {.ctl = &c};

    (void)state;
    struct capture out = capture_begin(stdout);
    chmod(dir, 0755);
    disk_check(&d, dir);
    chmod(dir, 0700);
    write_script("file", "");
    snprintf(path, sizeof path, "%s/file", dir);
    disk_check(&d, path);
    snprintf(path, sizeof path, "%s/absent", dir);
    disk_check(&d, path);
    capture_end(&out, out_text);
    snprintf(text, sizeof text, "FAIL  %s is open to other users (mode 755): chmod 700 '%s'\n",
             dir, dir);
    shows(text);
    snprintf(text, sizeof text, "FAIL  %s/file is no directory", dir);
    shows(text);
    snprintf(text, sizeof text, "warn  %s: No such file or directory; the server makes it", path);
    shows(text);
    assert_true(d.failed >= 2);
}

static void doctor_measures_what_a_directory_reads(void **state)
{
    struct ctl c = {0};
    struct doctor d = {.ctl = &c};

    (void)state;
    struct capture out = capture_begin(stdout);
    disk_check(&d, dir);
    capture_end(&out, out_text);
    const char *line = strstr(out_text, "accepts O_DIRECT (4096), ");
    if (line)
        assert_true(strtod(strchr(line, ',') + 1, NULL) > 0 && strstr(line, "B/s read\n"));
    else if (!strstr(out_text, "accepts O_DIRECT (4096)\n")) /* there is little room */
        shows("refuses O_DIRECT");   /* memory is no disk */
}

static void doctor_tells_what_the_server_tells(void **state)
{
    struct fake f;

    (void)state;
    fake_start(
        &f, dir,
        BODY
        "{\"state\":\"ready\",\"name\":\"n\","
        "\"upstream\":{\"up\":false,\"endpoint\":\"http://x\","
        "\"clock_offset_s\":-400.5,\"warning\":\"no upstream credentials: "
        "unsigned\"},"
        "\"disks\":[{\"dir\":\"/n\",\"state\":\"fenced\",\"errors\":3}],"
        "\"congestion\":\"bbr\",\"server\":{\"congestion\":\"bbr\",\"max_connections\":100000000}}",
        2);
    assert_int_equal(RUN("--server", f.url, "doctor"), CTL_FAILED);
    fake_end(&f);
    shows("FAIL  upstream http://x does not answer");
    shows("warn  upstream: no upstream credentials");
    shows("FAIL  clock differs 400 s");
    shows("FAIL  /n is fenced for 0s, 3 errors: look at");
    shows("warn  TCP congestion control is bbr");
    shows("(of the server), but server.max_connections wants 100000256");
    assert_null(strstr(out_text, "credentials: this server does not tell"));
}

/* Runs doctor at a server whose status has this upstream and this rest. */
static void ask_doctor(const char *upstream, const char *rest)
{
    static char answer[2 * KIB];
    struct fake f;

    snprintf(answer, sizeof answer,
             BODY "{\"state\":\"ready\",\"upstream\":{\"up\":true,%s}%s}", upstream, rest);
    fake_start(&f, dir, answer, 2);
    RUN("--server", f.url, "doctor");
    fake_end(&f);
}

static void doctor_knows_clock_and_credentials(void **state)
{
    char text[300];

    (void)state;
    ask_doctor("\"clock_offset_s\":-1,\"credentials\":\"environment\"", "");
    shows("ok    clock differs 1 s");
    shows("ok    credentials from environment\n");
    ask_doctor("\"credentials\":\"environment\",\"credentials_temporary\":true", "");
    shows("-     clock: upstream has not told its time yet");
    shows("warn  credentials from environment are temporary");
    ask_doctor("\"credentials\":\"environment\",\"credentials_temporary\":true,"
               "\"credentials_expire_s\":1000", "");
    shows("FAIL  credentials from environment have expired");
    snprintf(text, sizeof text, "\"credentials\":\"x\",\"credentials_temporary\":true,"
                                "\"credentials_expire_s\":%llu",
             (unsigned long long)clock_wall_s() + 20430);
    ask_doctor(text, "");
    shows("ok    credentials from x, expire in 5h 40m: before that, ");
    shows("the server has not asked it yet");
    ask_doctor("\"credentials\":\"role r\",\"credentials_renewed\":true", "");
    shows("FAIL  credentials from role r cannot be had: the server has not tried yet");
    ask_doctor("\"credentials\":\"role r\",\"credentials_renewed\":true,"
               "\"credentials_expire_s\":1000,\"credentials_error\":\"STS is away\"", "");
    shows("FAIL  credentials from role r have expired: STS is away");
    snprintf(text, sizeof text, "\"credentials\":\"x\",\"credentials_renewed\":true,"
                                "\"credentials_expire_s\":%llu",
             (unsigned long long)clock_wall_s() + 20430);
    ask_doctor(text, "");
    shows("ok    credentials from x, expire in 5h 40m; the server renews them before");
    snprintf(text, sizeof text, "\"credentials\":\"x\",\"credentials_renewed\":true,"
                                "\"credentials_expire_s\":%llu,\"credentials_error\":\"why\"",
             (unsigned long long)clock_wall_s() + 20430);
    ask_doctor(text, "");
    shows("warn  credentials from x expire in 5h 40m, and renewing them fails: why");
    ask_doctor("\"directory\":true", "");
    shows("is a directory");
    assert_null(strstr(out_text, "clock: "));
    assert_null(strstr(out_text, "credentials: "));
}

/* As the manual has it, and what stands there when upstream says no, or was not asked. */
static void doctor_tells_what_the_credentials_may(void **state)
{
    char text[300];

    (void)state;
    snprintf(text, sizeof text,
             "\"credentials\":\"role dgx-reader\",\"credentials_renewed\":true,"
             "\"credentials_expire_s\":%llu,\"get_allowed\":true,\"list_allowed\":true",
             (unsigned long long)clock_wall_s() + 20430);
    ask_doctor(text, "");
    shows("ok    credentials from role dgx-reader, expire in 5h 40m, ListBucket and GetObject "
          "allowed; the server renews them before\n");
    ask_doctor("\"credentials\":\"x\",\"get_allowed\":true", "");
    shows("ok    credentials from x, GetObject allowed\n");
    ask_doctor("\"credentials\":\"x\",\"get_allowed\":false,\"list_allowed\":true", "");
    shows("ok    credentials from x, ListBucket allowed\n");
    shows("warn  GetObject is refused (403): grant these credentials s3:GetObject");
    ask_doctor("\"credentials\":\"x\",\"get_allowed\":true,\"list_allowed\":false", "");
    shows("warn  ListBucket is refused (403): ");
    ask_doctor("\"credentials\":\"x\"", "");
    shows("ok    credentials from x\n");
    shows("-     GetObject: nobody has read from upstream");
    ask_doctor("\"directory\":true", "");
    assert_null(strstr(out_text, "GetObject"));
}

/* As the manual has it; without TLS nothing is said of it. */
static void doctor_tells_the_store_s_certificate(void **state)
{
    static const struct { int64_t left_s; const char *says; } rows[] = {
        {81 * 24 * 3600 + 60, " answers in 11.8 ms, TLS 1.3, certificate valid 81 days\n"},
        {6 * 24 * 3600 + 7260, "warn  upstream's certificate ends in 6d 2h: its operator must"},
        {-60, "warn  the certificate that upstream showed last has ended: read an object"},
    };
    char text[200];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        snprintf(text, sizeof text,
                 "\"rtt_ms\":11.8,\"tls\":\"1.3\",\"certificate_ends_s\":%lld",
                 (long long)clock_wall_s() + rows[i].left_s);
        ask_doctor(text, "");
        shows(rows[i].says);
    }
    ask_doctor("\"rtt_ms\":11.8", "");
    shows(" answers in 11.8 ms\n");
}

static void doctor_tells_a_refused_congestion_control(void **state)
{
    (void)state;
    ask_doctor("\"credentials\":\"x\"",
               ",\"congestion\":\"bbr\",\"server\":{\"congestion\":\"no_such\"}");
    shows("warn  TCP congestion control is bbr: the kernel refused "
                                     "server.congestion = \"no_such\": load its module");
    ask_doctor("\"credentials\":\"x\"",
               ",\"congestion\":\"cubic\",\"server\":{\"congestion\":\"cubic\"}");
    shows("ok    TCP congestion control cubic (server.congestion)");
    ask_doctor("\"credentials\":\"x\"", ",\"server\":{\"congestion\":\"cubic\"}");
    shows("-     TCP congestion control: this server does not tell");
}

static void doctor_tells_what_locked_memory_is_too_small(void **state)
{
    struct ctl c = {0};
    struct doctor d = {.ctl = &c};
    struct rlimit old, small;

    (void)state;
    getrlimit(RLIMIT_MEMLOCK, &old);
    small = (struct rlimit){8 * KIB, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &small), 0);
    struct capture out = capture_begin(stdout);
    say_no_memory(&d, "io_uring_setup", 2, 4);
    capture_end(&out, out_text);
    shows("FAIL  io_uring_setup: no memory for the ring of worker 3 of 4: RLIMIT_MEMLOCK is 8 KiB");
    shows("LimitMEMLOCK=infinity");
    assert_int_equal(d.failed, 1);
    setrlimit(RLIMIT_MEMLOCK, &old);
}

static void doctor_works_without_a_server(void **state)
{
    (void)state;
    RUN("--server", "unix:/nonexistent", "--json", "doctor", "--cache", dir);
    struct span rest = span_of(out_text);
    unsigned lines = 0;
    while (rest.len) {
        struct span line = span_cut(&rest, '\n');
        json_t *one = json_loadb(line.at, line.len, 0, NULL);
        assert_non_null(one);
        assert_string_not_equal(value_text(one, "check"), "");
        json_decref(one);
        lines++;
    }
    assert_true(lines >= 5);
    shows("admin.listen");
}

static void limits_are_read_from_the_server_s_process(void **state)
{
    uint64_t n = 0;

    (void)state;
    assert_true(read_limit("Max locked memory         8388608              8388608              "
                           "bytes     \n",
                           "Max locked memory ", &n));
    assert_int_equal(n, 8388608);
    assert_true(read_limit("Max locked memory         unlimited            unlimited            "
                           "bytes     \n",
                           "Max locked memory ", &n));
    assert_true(n == UINT64_MAX);
    assert_false(read_limit("Max open files            1024 4096 files\n", "Max locked memory ",
                            &n));
    assert_false(read_limit("Max open files            x 4096 files\n", "Max open files ", &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_usable),
        cmocka_unit_test(verbs_that_are_missing_say_what_to_do),
        cmocka_unit_test(mistakes_name_what_was_meant),
        cmocka_unit_test(help_and_version_end_well),
        cmocka_unit_test(options_stand_before_and_behind_the_verb),
        cmocka_unit_test(status_reads_as_documented),
        cmocka_unit_test(status_names_the_jobs_that_work),
        cmocka_unit_test(status_tells_which_schedules_are_in_force),
        cmocka_unit_test(status_asks_for_the_jobs_that_work),
        cmocka_unit_test(trouble_is_shown_and_silence_left_out),
        cmocka_unit_test(an_upstream_that_is_away_or_throttles_is_told),
        cmocka_unit_test(a_hostile_server_does_not_command_the_terminal),
        cmocka_unit_test(colours_only_where_they_are_wanted),
        cmocka_unit_test(status_asks_a_server),
        cmocka_unit_test(an_absent_server_is_exit_5_with_advice),
        cmocka_unit_test(answers_that_are_none_are_refused),
        cmocka_unit_test(a_server_that_is_silent_costs_the_timeout_only),
        cmocka_unit_test(errors_of_the_server_are_told),
        cmocka_unit_test(config_is_shown_as_toml),
        cmocka_unit_test(env_speaks_the_shells),
        cmocka_unit_test(nothing_that_a_shell_would_run_is_printed),
        cmocka_unit_test(env_warns_of_tools_that_ignore_it),
        cmocka_unit_test(versions_decide_who_ignores_the_variables),
        cmocka_unit_test(a_tool_that_hangs_is_killed),
        cmocka_unit_test(doctor_judges_directories),
        cmocka_unit_test(doctor_tells_what_the_server_tells),
        cmocka_unit_test(doctor_knows_clock_and_credentials),
        cmocka_unit_test(doctor_tells_what_the_credentials_may),
        cmocka_unit_test(doctor_tells_the_store_s_certificate),
        cmocka_unit_test(doctor_measures_what_a_directory_reads),
        cmocka_unit_test(doctor_tells_a_refused_congestion_control),
        cmocka_unit_test(doctor_tells_what_locked_memory_is_too_small),
        cmocka_unit_test(doctor_works_without_a_server),
        cmocka_unit_test(limits_are_read_from_the_server_s_process),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
