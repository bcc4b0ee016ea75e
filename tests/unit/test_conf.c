/* The configuration from bytes, environment and flags: values, mistakes, printing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf.c"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "conf_case.h"

static void sizes_have_units(void **state)
{
    static const struct {
        const char *text;
        enum err err;
        uint64_t bytes;
    } cases[] = {
        {"0", OK, 0},
        {"512", OK, 512},
        {"512B", OK, 512},
        {"8MiB", OK, 8 * MIB},
        {"1 GiB", OK, GIB},
        {"2TiB", OK, 2 * TIB},
        {"3KiB", OK, 3072},
        {"1KB", OK, 1000},
        {"1MB", OK, 1000000},
        {"1GB", OK, 1000000000},
        {"1TB", OK, 1000000000000},
        {"8Mib", ERR_SYNTAX, 0},
        {"MiB", ERR_SYNTAX, 0},
        {"", ERR_SYNTAX, 0},
        {"-1", ERR_SYNTAX, 0},
        {"1.5GiB", ERR_SYNTAX, 0},
        {"8MiBx", ERR_SYNTAX, 0},
        {"9223372036854775807", OK, INT64_MAX},
        {"9223372036854775808", ERR_TOO_LARGE, 0},
        {"99999999999TiB", ERR_TOO_LARGE, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t n = 4711;
        assert_int_equal(conf_read_bytes(span_of(cases[i].text), &n), cases[i].err);
        assert_int_equal(n, cases[i].err == OK ? cases[i].bytes : 4711);
    }
}

static void times_have_units(void **state)
{
    static const struct {
        const char *text;
        enum err err;
        uint64_t ms;
    } cases[] = {
        {"0", OK, 0},        {"0s", OK, 0},         {"250ms", OK, 250},
        {"60s", OK, 60000},  {"2m", OK, 120000},    {"1h", OK, 3600000},
        {"7d", OK, 604800000}, {"60", ERR_SYNTAX, 0}, {"1y", ERR_SYNTAX, 0},
        {"s", ERR_SYNTAX, 0}, {"", ERR_SYNTAX, 0},  {"1 M", ERR_SYNTAX, 0},
        {"36500d", OK, 3153600000000}, {"36501d", ERR_TOO_LARGE, 0},
        {"99999999999999999d", ERR_TOO_LARGE, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t n = 4711;
        assert_int_equal(conf_read_time_ms(span_of(cases[i].text), &n), cases[i].err);
        assert_int_equal(n, cases[i].err == OK ? cases[i].ms : 4711);
    }
}

static void percentages_lie_between_0_and_100(void **state)
{
    struct conf_size size = {0};

    (void)state;
    assert_int_equal(conf_read_size(span_of("90%"), &size), OK);
    assert_true(size.percent == 90 && size.bytes == 0);
    assert_int_equal(conf_read_size(span_of("87.5 %"), &size), OK);
    assert_true(size.percent == 87.5);
    assert_int_equal(conf_read_size(span_of("2TiB"), &size), OK);
    assert_true(size.percent == 0 && size.bytes == 2 * TIB);
    static const char *const bad[] = {"0%", "%", "-1%", "90.%", "90.55%", "", "0", "90 % x"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_int_equal(conf_read_size(span_of(bad[i]), &size), ERR_SYNTAX);
    assert_int_equal(conf_read_size(span_of("100.1%"), &size), ERR_TOO_LARGE);
    assert_true(size.bytes == 2 * TIB);
}

static bool range_has(const char *range, const char *address)
{
    struct conf_cidr cidr;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    assert_int_equal(conf_cidr_read(span_of(range), &cidr), OK);
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        return conf_cidr_has(&cidr, 1, (struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
    return conf_cidr_has(&cidr, 1, (struct sockaddr *)&v6);
}

static void ranges_match_both_families(void **state)
{
    struct conf_cidr cidr;
    struct sockaddr unix_socket = {.sa_family = AF_UNIX};
    static const char *const bad[] = {"",          "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/",
                                      "10.0.0.0/x", "localhost",  "1.2.3.4.5", "::1/-1",
                                      "0000:0000:0000:0000:0000:ffff:0000:0000:0000:0000:0000:1"};

    (void)state;
    assert_true(range_has("10.0.0.0/8", "10.255.1.2"));
    assert_false(range_has("10.0.0.0/8", "11.0.0.0"));
    assert_true(range_has("10.1.2.3/8", "10.9.9.9"));
    assert_true(range_has("192.168.4.0/22", "192.168.7.255"));
    assert_false(range_has("192.168.4.0/22", "192.168.8.0"));
    assert_true(range_has("1.2.3.4", "1.2.3.4"));
    assert_false(range_has("1.2.3.4", "1.2.3.5"));
    assert_true(range_has("0.0.0.0/0", "8.8.8.8"));
    assert_false(range_has("0.0.0.0/0", "2001:db8::1"));
    assert_true(range_has("127.0.0.0/8", "::ffff:127.0.0.1"));
    assert_false(range_has("::/0", "::ffff:127.0.0.1"));
    assert_true(range_has("::ffff:10.0.0.0/104", "10.1.1.1"));
    assert_true(range_has("::1", "::1"));
    assert_false(range_has("::1", "::2"));
    assert_true(range_has("fe80::/10", "febf::1"));
    assert_false(range_has("fe80::/10", "fec0::1"));
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_int_equal(conf_cidr_read(span_of(bad[i]), &cidr), ERR_SYNTAX);
    assert_int_equal(conf_cidr_read(span_make("::1\0/8", 6), &cidr), ERR_SYNTAX);
    assert_int_equal(conf_cidr_read(span_of("::/0"), &cidr), OK);
    assert_false(conf_cidr_has(&cidr, 1, &unix_socket));
    assert_false(conf_cidr_has(NULL, 0, &unix_socket));
}

static void listen_addresses_are_literal(void **state)
{
    struct conf_listen at;
    char large[300];
    static const char *const bad[] = {"",     "9000",      ":9000",       "1.2.3.4",  "1.2.3.4:",
                                      "[::]", "[::]9000",  "::1:9000",    "host:9000",
                                      "1.2.3.4:65536",
                                      "unix:", "unix:x",   "1.2.3.4:-1",  "[1.2.3.4]:9000"};

    (void)state;
    assert_int_equal(conf_listen_read(span_of("127.0.0.1:9000"), &at), OK);
    assert_true(at.port == 9000 && !at.v6 && at.addr[0] == 127 && at.addr[3] == 1);
    assert_int_equal(conf_listen_read(span_of("[::1]:0"), &at), OK);
    assert_true(at.port == 0 && at.v6 && at.addr[15] == 1);
    assert_int_equal(conf_listen_read(span_of("unix:/run/x.sock"), &at), OK);
    assert_true(span_is(at.unix_path, "/run/x.sock"));
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_int_not_equal(conf_listen_read(span_of(bad[i]), &at), OK);
    snprintf(large, sizeof large, "unix:/%0200d", 1);
    assert_int_equal(conf_listen_read(span_of(large), &at), ERR_SYNTAX);
}

static void defaults_hold_without_a_file(void **state)
{
    char *env[] = {"HEADPOND_UPSTREAM_ENDPOINT=http://127.0.0.1:9", "HEADPOND_CACHE_DIRS=/a, /b",
                   NULL};
    struct config *c = NULL;

    (void)state;
    assert_int_equal(conf_load(NULL, env, NULL, 0, &c, &mistakes), OK);
    assert_null(c->file);
    assert_string_equal(c->server_listen.item[0], "0.0.0.0:9000");
    assert_int_equal(c->cache_dirs.count, 2);
    assert_string_equal(c->cache_dirs.item[1], "/b");
    assert_int_equal(c->cache_ttl, 60000);
    assert_true(c->cache_size.percent == 90);
    assert_int_equal(c->cache_memory, GIB);
    assert_int_equal(c->log_level, 2);
    assert_int_equal(c->upstream[0].offline, CONF_OFFLINE_SERVE);
    assert_int_equal(c->server_drain_timeout, 60000);
    assert_int_equal(c->anonymous_count, 2);
    assert_true(c->anonymous[1].v6);
    assert_int_equal(c->bucket_count, 1);
    conf_give(c);
}

static void later_layers_replace_whole_values(void **state)
{
    char *env[] = {"HEADPOND_CACHE_TTL=2s", "HEADPOND_SERVER_LISTEN=1.1.1.1:1,2.2.2.2:2",
                   "HEADPOND_LOG_LEVEL=debug", "HEADPOND_UPSTREAM_INSECURE=true", "PATH=/bin",
                   NULL};
    const struct conf_flag flags[] = {{"log.level", "error"}, {"cache.dirs", "/x,y"},
                                      {"cache.dirs", "/z"}};
    struct config *c = load_with("server.listen = ['9.9.9.9:9']\nlog.level = 'warn'\n" NEEDED
                                 "ttl = '1s'\nnegative_ttl = '3s'\n",
                                 env, flags, ARRAY_COUNT(flags));

    (void)state;
    assert_int_equal(c->cache_ttl, 2000);
    assert_int_equal(c->cache_negative_ttl, 3000);
    assert_int_equal(c->server_listen.count, 2);
    assert_string_equal(c->server_listen.item[1], "2.2.2.2:2");
    assert_int_equal(c->log_level, 0);
    assert_true(c->upstream[0].insecure);
    assert_int_equal(c->cache_dirs.count, 2);
    assert_string_equal(c->cache_dirs.item[0], "/x,y");
    assert_string_equal(c->cache_dirs.item[1], "/z");
    assert_string_equal(c->file, "f");
    conf_give(c);
}

static void toml_values_of_each_kind(void **state)
{
    struct config *c = load("\xEF\xBB\xBF# comment \xc3\xa4\r\n[upstream]\t# c\r\n"
                            "endpoint='https://h'#c\r\n"
                            "  \"name\" = \"a\\tb\\u00e4\\U0001F600\\\"\\\\\" \r\n"
                            "retries = +1_0\n[ cache ]\n"
                            "dirs = [ # c\n  '/a b',\n\n '/c\\d' , # c\n]\n"
                            "size = 1_000\nimmutable = true\nttl = 0\nmin_free = 4096");

    (void)state;
    assert_string_equal(c->upstream[0].name, "a\tb\xc3\xa4\xf0\x9f\x98\x80\"\\");
    assert_int_equal(c->upstream[0].retries, 10);
    assert_string_equal(c->cache_dirs.item[0], "/a b");
    assert_string_equal(c->cache_dirs.item[1], "/c\\d");
    assert_int_equal(c->cache_size.bytes, 1000);
    assert_true(c->cache_immutable);
    assert_int_equal(c->cache_ttl, 0);
    assert_int_equal(c->cache_min_free, 4096);
    conf_give(c);
}

static const struct {
    const char *text, *mistake;
} mistake_rows[] = {
    {NEEDED "verfiy = \"read\"\n",
     "f:5:1: unknown key \"verfiy\" in [cache]; did you mean \"verify\"?"},
    {NEEDED "[cahce]\nx = 1\n", "f:5:1: unknown section \"cahce\"; did you mean [cache]?"},
    {NEEDED "[zzz]\nx = 1\n", "f:5:1: unknown section \"zzz\""},
    {NEEDED "[cache.x]\ny = 1\n", "f:5:1: unknown section \"cache.x\"; did you mean [cache]?"},
    {NEEDED "[cache]\n", "f:5:1: section [cache] is given twice; it began in line 3"},
    {NEEDED "[[log]]\n", "f:5:1: [[log]] must be written [log]"},
    {NEEDED "[bucket]\nx = 1", "f:5:1: [bucket] must be written [[bucket]]"},
    {NEEDED "listen = 1\n", "f:5:1: unknown key \"listen\" in [cache]; it belongs to [server]"},
    {NEEDED "ttl.x = 1\n", "f:5:1: unknown key \"ttl.x\" in [cache]; did you mean \"ttl\"?"},
    {"x = 1\n" NEEDED, "f:1:1: key \"x\" stands before any section"},
    {NEEDED "ttl = '1s'\nttl = '1s'\n", "f:6:1: \"ttl\" is set twice; first in line 5"},
    {"cache.ttl='1s'\n" NEEDED "ttl = '1s'\n", "f:6:1: \"ttl\" is set twice; first in line 1"},
    {NEEDED "ttl = 60\n", "f:5:7: cache.ttl \"60\" is no time; write a number and ms, s, m, h "
                          "or d, as \"60s\""},
    {NEEDED "ttl = '99999d'\n", "f:5:7: cache.ttl \"99999d\" is too long"},
    {NEEDED "ttl = []\n", "f:5:7: cache.ttl must be a time in quotes, as \"60s\""},
    {NEEDED "min_free = '2Gb'\n", "f:5:12: cache.min_free \"2Gb\" is no size; write a number "
                                  "and B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, as \"8MiB\""},
    {NEEDED "size = '101%'\n", "f:5:8: cache.size \"101%\" is too large"},
    {NEEDED "size = true\n",
     "f:5:8: cache.size must be a size or percentage in quotes, as \"90%\""},
    {NEEDED "memory = '63MiB'\n",
     "f:5:10: cache.memory \"63MiB\" is too small; at least 64MiB are needed"},
    {NEEDED "immutable = 'yes'\n",
     "f:5:13: cache.immutable must be true or false, without quotes"},
    {NEEDED "policy = 'mru'\n",
     "f:5:10: cache.policy \"mru\" is none of \"ehd\" \"lru\"; did you mean \"lru\"?"},
    {NEEDED "verify = 'never'\n",
     "f:5:10: cache.verify \"never\" is not in this version; only \"read\" is"},
    {NEEDED "write = 'thru'\n",
     "f:5:9: cache.write \"thru\" is none of \"through\" \"around\""},
    {NEEDED "[log]\nlevel = 'inf'\n", "f:6:9: log.level \"inf\" is none of \"error\" \"warn\" "
                                      "\"info\" \"debug\"; did you mean \"info\"?"},
    {NEEDED "[server]\nworkers = 257\n",
     "f:6:11: server.workers \"257\" is out of limits; 0 to 256 are allowed"},
    {NEEDED "[server]\nworkers = -1\n",
     "f:6:11: server.workers \"-1\" is no whole number; 0 to 256 are allowed"},
    {NEEDED "[server]\nworkers = '1'\n",
     "f:6:11: server.workers must be a whole number, without quotes"},
    {NEEDED "[server]\nlisten = '1.1.1.1:1'\n",
     "f:6:10: server.listen must be an array of strings, as [\"a\", \"b\"]"},
    {NEEDED "[server]\nlisten = ['1.1.1.1:1', \"a:1\"]\n",
     "f:6:24: server.listen \"a:1\" is no listen address; write ADDRESS:PORT or [IPV6]:PORT"},
    {NEEDED "[server]\nlisten = ['1.1.1.1:1', '1.1.1.1:1']\n",
     "f:6:24: server.listen \"1.1.1.1:1\" is given twice"},
    {NEEDED "[server]\nidle_timeout = '0s'\n",
     "f:6:16: server.idle_timeout \"0s\" must be more than 0"},
    {NEEDED "[server]\ntls_cert = '/x'\n",
     "f:6:1: server.tls_cert needs server.tls_key as well"},
    {NEEDED "[server]\nname = 'a' # \x1b\n", "f:6:14: control character 0x1b"},
    {NEEDED "[server]\nname = \"a\\u001b\"\n",
     "f:6:8: server.name \"a?\" is no name; use letters, digits, \"-\", \"_\" and \".\""},
    {NEEDED "[server]\ndomain = 's3.example.com'\n", NULL},
    {NEEDED "[server]\ndomain = '*.example.com'\n",
     "f:6:10: server.domain \"*.example.com\" is no domain; write it as \"s3.example.com\""},
    {NEEDED "[server]\n"
            "a234567890123456789012345678901234567890123456789012345678901234 = 1\n",
     "f:6:1: unknown key \"a23456789012345678901234567890123456789012345678901234567890...\" in "
     "[server]"},
    {NEEDED "[auth]\nanonymous = ['10.0.0.0/33']\n",
     "f:6:14: auth.anonymous \"10.0.0.0/33\" is no address range; write it as \"10.0.0.0/8\" "
     "or \"fd00::/8\""},
    {NEEDED "[admin]\nlisten = ['unix:run/x']\n",
     "f:6:11: admin.listen \"unix:run/x\" is no listen address; write ADDRESS:PORT, "
     "[IPV6]:PORT or unix:/path"},
    {NEEDED "[admin]\nlisten = ['127.0.0.9:9001', '[::1]:9001', 'unix:/run/x']\n", NULL},
    {NEEDED "[admin]\nlisten = ['0.0.0.0:9001']\n",
     "f:6:11: admin.listen \"0.0.0.0:9001\" could be reached from elsewhere; use a loopback "
     "address or unix:/path, and admin.metrics_listen for Prometheus and probes"},
    {NEEDED "[admin]\nlisten = ['unix:/a', 'unix:/b', 'unix:/c', 'unix:/d', 'unix:/e', 'unix:/f', "
            "'unix:/g', 'unix:/h', 'unix:/i']\n",
     "f:6:1: admin.listen has 9 addresses, more than the 8 that there may be"},
    {"[cache]\ndirs = ['/c']\n",
     "f: upstream.endpoint is missing; set it in [upstream] or by HEADPOND_UPSTREAM_ENDPOINT"},
    {"[upstream]\nendpoint = 'http://a'\n[cache]\ndirs = []\n",
     "f: cache.dirs is missing; set it in [cache] or by HEADPOND_CACHE_DIRS"},
};

static void each_mistake_has_its_place_and_sentence(void **state)
{

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(mistake_rows); i++)
        check_only(mistake_rows[i].text, mistake_rows[i].mistake);
}

static void malformed_toml_is_told_with_its_column(void **state)
{
    static const struct {
        const char *line, *mistake;
    } cases[] = {
        {"ttl", "f:5:4: = is missing behind the key"},
        {"ttl =", "f:5:6: a value is expected here"},
        {"ttl = # 1", "f:5:7: a value is expected here"},
        {"= 1", "f:5:1: a name is expected here"},
        {"a.b.c.d.e = 1", "f:5:9: too many dots in a name"},
        {"ttl = '1s' x", "f:5:12: nothing may follow here on the same line"},
        {"ttl = '1s", "f:5:7: the string does not end on its line"},
        {"ttl = \"1s\\\"", "f:5:7: the string does not end on its line"},
        {"ttl = \"\\q\"", "f:5:8: unknown escape in a string; write \\\\ for a backslash"},
        {"ttl = \"\\u0000\"", "f:5:8: unknown escape in a string; write \\\\ for a backslash"},
        {"ttl = \"\\ud800\"", "f:5:8: unknown escape in a string; write \\\\ for a backslash"},
        {"ttl = \"\\u12g4\"", "f:5:8: unknown escape in a string; write \\\\ for a backslash"},
        {"ttl = \"\\u12\"", "f:5:8: unknown escape in a string; write \\\\ for a backslash"},
        {"ttl = \"\\U00110000\"", "f:5:8: unknown escape in a string; write \\\\ for a backslash"},
        {"ttl = \"\"\"x\"\"\"", "f:5:7: strings over several lines are not supported"},
        {"key = CANARY/abc", "f:5:7: neither a whole number nor true or false; write texts, sizes "
                             "and times in quotes"},
        {"key = 7CANARY/abcdefghijklmn", "f:5:7: neither a whole number nor true or false; write "
                                         "texts, sizes and times in quotes"},
        {"ttl = 60s", "f:5:7: neither a whole number nor true or false; write texts, sizes and "
                      "times in quotes: 60s"},
        {"size = 012", "f:5:8: neither a whole number nor true or false; write texts, sizes and "
                       "times in quotes: 012"},
        {"size = 1__0", "f:5:8: neither a whole number nor true or false; write texts, sizes and "
                        "times in quotes: 1__0"},
        {"size = 9223372036854775808", "f:5:8: neither a whole number nor true or false; write "
                                       "texts, sizes and times in quotes: 9223372036854775808"},
        {"size = {a=1}", "f:5:8: inline tables are not supported; use a [section]"},
        {"[]", "f:5:2: a name is expected here"},
        {"[[ ]]", "f:5:4: a name is expected here"},
        {"[server", "f:5:8: ] is missing behind the section's name"},
        {"[[bucket]", "f:5:9: ]] is missing behind the section's name"},
        {"[server] x", "f:5:10: nothing may follow here on the same line"},
        {"# \xc3\xa4\xff", "f:5:4: 0xff is not UTF-8"},
        {"# a\rb", "f:5:4: control character 0x0d"},
        {"# \x7f", "f:5:3: control character 0x7f"},
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        snprintf(text, sizeof text, NEEDED "%s\nttl = '2s'\n", cases[i].line);
        check_only(text, cases[i].mistake);
    }
}

/* Found by fuzzing: the word behind a mistake was copied with its control characters. */
static void mistakes_do_not_repeat_control_characters(void **state)
{
    struct config *c = NULL;

    (void)state;
    assert_int_equal(conf_parse(span_of("x = \x87\x7f\x1b[0m\n" NEEDED), "f", NULL, NULL, 0, &c,
                                &mistakes), ERR_CONFIG);
    assert_string_equal(mistakes.item[0].text, "f:1:5: 0x87 is not UTF-8");
    assert_string_equal(mistakes.item[1].text, "f:1:5: neither a whole number nor true or false; "
                                               "write texts, sizes and times in quotes");
}

static void a_broken_array_is_one_mistake(void **state)
{
    (void)state;
    check_only("[upstream]\nendpoint='http://a'\n[log]\nlevel='info'\n[server]\nlisten = [\n"
               " '1.1.1.1:1'\n '2.2.2.2:2',\n # c\n '3.3.3.3:3'\n]\nworkers=1\n"
               "[cache]\ndirs=['/c']\n",
               "f:8:2: a comma or ] is missing between array values");
    check_only(NEEDED "[server]\nlisten = [1, 2]\n",
               "f:6:11: only strings may stand in an array: 1");
    check_only(NEEDED "[server]\nlisten = ['1.1.1.1:1',\n", "f:6:10: the array is not closed by ]");
    check_only(NEEDED "[server]\nlisten = ['1.1.1.1:1', '2.2.2.2:2]\nworkers = 1\n",
               "f:6:24: the string does not end on its line");
}

static void the_65th_value_of_an_array_is_a_mistake(void **state)
{
    char memory[4 * KIB];
    struct text t;

    (void)state;
    for (unsigned values = 64; values <= 65; values++) {
        text_init(&t, memory, sizeof memory);
        text_adds(&t, NEEDED "[server]\nlisten = [");
        for (unsigned i = 1; i <= values; i++)
            text_addf(&t, "\n'1.1.1.1:%u',", i);
        text_adds(&t, "\n]\n");
        assert_false(t.over);
        struct config *c = NULL;
        enum err e = conf_parse(text_span(&t), "f", NULL, NULL, 0, &c, &mistakes);
        assert_int_equal(e, values == 64 ? OK : ERR_CONFIG);
        conf_give(c);
    }
    assert_int_equal(mistakes.count, 1);
    assert_string_equal(mistakes.item[0].text, "f:71:1: more than 64 values");
}

static void all_mistakes_are_reported_and_the_excess_is_counted(void **state)
{
    char text[4096] = NEEDED;
    size_t len = strlen(text);
    struct config *c = NULL;

    (void)state;
    for (int i = 0; i < 60; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "zzzzz%d = 1\n", i);
    assert_int_equal(conf_parse(span_of(text), "f", NULL, NULL, 0, &c, &mistakes), ERR_CONFIG);
    assert_int_equal(mistakes.count, 60);
    assert_string_equal(mistakes.item[49].text, "f:54:1: unknown key \"zzzzz49\" in [cache]");
}

static void endpoints_are_checked(void **state)
{
    static const char *const good[] = {
        "https://s3.eu-central-1.amazonaws.com", "http://10.0.0.1:9000", "https://[::1]",
        "https://[fd00::1]:443/",                "file:///mnt/data",     "http://minio_1:9000",
    };
    static const char *const bad[] = {
        "s3.amazonaws.com", "ftp://x",       "https://",      "https:///",      "http://a:0",
        "http://a:65536",   "http://a:",     "http://a:x",    "https://a/b",    "https://k:s@a",
        "file://rel",       "file://",       "http://[::1",   "http://[::1]x",  "http://[1.2.3.4]",
        "http://a b",       "http://-a",     "http://a..b",   "HTTPS://a",      "http://[::1/64]",
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        snprintf(text, sizeof text, "[upstream]\nendpoint = '%s'\n[cache]\ndirs=['/c']", good[i]);
        check_only(text, NULL);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct config *c;
        snprintf(text, sizeof text, "[upstream]\nendpoint = '%s'\n[cache]\ndirs=['/c']", bad[i]);
        assert_int_equal(conf_parse(span_of(text), "f", NULL, NULL, 0, &c, &mistakes), ERR_CONFIG);
        assert_int_equal(mistakes.count, 1);
        assert_memory_equal(mistakes.item[0].text, "f:2:12: upstream.endpoint \"", 27);
    }
}

static void check_environment(char *variable, const char *mistake)
{
    char *env[] = {variable, NULL};
    struct config *c = NULL;
    enum err e = conf_parse(span_of(NEEDED), "f", env, NULL, 0, &c, &mistakes);

    assert_int_equal(e, mistake ? ERR_CONFIG : OK);
    if (mistake)
        assert_string_equal(mistakes.item[0].text, mistake);
    conf_give(c);
}

static void unknown_variables_are_mistakes(void **state)
{
    (void)state;
    check_environment("HEADPOND_CACHE_TLL=1s", "environment: unknown variable "
                                               "\"HEADPOND_CACHE_TLL\"; did you mean "
                                               "HEADPOND_CACHE_TTL?");
    check_environment("HEADPOND_X=1", "environment: unknown variable \"HEADPOND_X\"");
    check_environment("HEADPOND_CACHE_TTL=5x", "environment: cache.ttl \"5x\" is no time; write a "
                                               "number and ms, s, m, h or d, as \"60s\"");
    check_environment("HEADPOND_SERVER_ALLOW_ROOT=1",
                      "environment: server.allow_root \"1\" is neither true nor false");
    check_environment("headpond_x=1", NULL);
    check_environment("HEADPOND_LOG_SLOW_MS=5", NULL);
}

/* Found as: a server did not start where HEADPOND_TOKEN_FILE was set for the command line. */
static void variables_of_the_command_line_stop_no_server(void **state)
{
    (void)state;
    check_environment("HEADPOND_SERVER=http://a", NULL);
    check_environment("HEADPOND_CONFIG=/x", NULL);
    check_environment("HEADPOND_TOKEN_FILE=/x", NULL);
    check_environment("HEADPOND_TOKEN_FILES=/x",
                      "environment: unknown variable \"HEADPOND_TOKEN_FILES\"");
}

/* Found as: pods of a namespace with a Service "headpond" did not start. */
static void variables_of_kubernetes_services_are_not_ours(void **state)
{
    static char *const names[] = {
        "HEADPOND_SERVICE_HOST=10.0.0.1",       "HEADPOND_SERVICE_PORT=9000",
        "HEADPOND_SERVICE_PORT_S3=9000",        "HEADPOND_PORT=tcp://10.0.0.1:9000",
        "HEADPOND_PORT_9000_TCP=tcp://10.0.0.1", "HEADPOND_PORT_9000_TCP_PROTO=tcp",
        "HEADPOND_ADMIN_SERVICE_HOST=10.0.0.1", "HEADPOND_ADMIN_PORT_9001_TCP_ADDR=10.0.0.1",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        check_environment(names[i], NULL);
    check_environment("HEADPOND_PORT_X=1", "environment: unknown variable \"HEADPOND_PORT_X\"");
}

static void unknown_flags_and_bad_files_are_mistakes(void **state)
{
    const struct conf_flag flag = {"cache.tll", "1s"};
    struct config *c = NULL;

    (void)state;
    assert_int_equal(conf_parse(span_of(NEEDED), "f", NULL, &flag, 1, &c, &mistakes), ERR_CONFIG);
    assert_string_equal(mistakes.item[0].text, "command line: unknown key cache.tll");
    assert_int_equal(conf_load("/nonexistent/x.toml", NULL, NULL, 0, &c, &mistakes), ERR_CONFIG);
    assert_string_equal(mistakes.item[0].text, "/nonexistent/x.toml: No such file or directory");
    assert_int_equal(conf_load("/tmp", NULL, NULL, 0, &c, &mistakes), ERR_CONFIG);
    assert_string_equal(mistakes.item[0].text, "/tmp: Is a directory");
    assert_int_equal(conf_load("/dev/zero", NULL, NULL, 0, &c, &mistakes), ERR_CONFIG);
    assert_string_equal(mistakes.item[0].text, "/dev/zero: is larger than 1 MiB");
    assert_null(c);
}

static char output[64 * KIB], again[64 * KIB];

static void the_reference_is_the_file_in_conf(void **state)
{
    struct text t;

    (void)state;
    text_init(&t, output, sizeof output);
    conf_reference(&t);
    assert_false(t.over);
    FILE *file = fopen("conf/headpond.toml", "r");
    assert_non_null(file);
    again[fread(again, 1, sizeof again - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(output, again);
}

/* ---- reload ---- */

static void options_that_need_a_restart_stay_and_are_named(void **state)
{
    static const char before[] = "[server]\nlisten = ['127.0.0.1:1', '[::1]:2']\nworkers = 2\n"
                                 "idle_timeout = '1m'\n[upstream]\nendpoint = 'http://a'\n"
                                 "[cache]\ndirs = ['/c']\nsize = '50%'\nttl = '1s'\n",
                      after[] = "[server]\nlisten = ['127.0.0.1:1', '[::1]:3']\nworkers = 3\n"
                                "idle_timeout = '2m'\n[upstream]\nendpoint = 'http://b'\n"
                                "[cache]\ndirs = ['/c']\nsize = '60%'\nttl = '2s'\n";
    char *env[] = {NULL};
    struct config *start = load_with(before, env, NULL, 0), *next = load_with(after, env, NULL, 0);
    struct text changed;

    (void)state;
    text_init(&changed, output, sizeof output);
    assert_int_equal(conf_keep_restart(next, start, &changed), 4);
    assert_string_equal(output, "server.listen, server.workers, upstream.endpoint, cache.size");
    assert_string_equal(next->server_listen.item[1], "[::1]:2");
    assert_int_equal(next->server_workers, 2);
    assert_string_equal(next->upstream[0].endpoint, "http://a");
    assert_int_equal(next->server_idle_timeout, 120000);
    assert_int_equal(next->buckets[0].ttl_ms, 2000);
    text_init(&changed, output, sizeof output);
    assert_int_equal(conf_keep_restart(next, start, &changed), 0);
    assert_string_equal(output, "");
    conf_give(next);
    conf_give(start);
}

/* Every key of the reference, with the comment signs of the keys taken away, is the default. */
static void the_reference_shows_the_defaults(void **state)
{
    char *env[] = {"HEADPOND_UPSTREAM_ENDPOINT=http://a", "HEADPOND_CACHE_DIRS=/c", NULL};
    struct text t;

    (void)state;
    text_init(&t, output, sizeof output);
    conf_reference(&t);
    for (size_t i = 0; i + 1 < t.len; i++) {
        bool starts_line = i == 0 || output[i - 1] == '\n';
        if (starts_line && output[i] == '#' && output[i + 1] != ' ')
            output[i] = ' ';
    }
    struct config *c = load_with(output, env, NULL, 0), *standard = load_with("", env, NULL, 0);
    assert_int_equal(c->bucket_count, 2);
    assert_true(c->buckets[1].immutable);
    assert_int_equal(c->schedule_count, 2);
    c->bucket_count = 1;
    c->schedule_count = 0;
    text_init(&t, output, sizeof output);
    conf_print(c, &t);
    text_init(&t, again, sizeof again);
    conf_print(standard, &t);
    assert_string_equal(output, again);
    conf_give(c);
    conf_give(standard);
}

static void what_is_printed_can_be_read_again(void **state)
{
    struct config *c = load(NEEDED "size = '87.5%'\nttl = '1500ms'\nmin_free = 1000001\n"
                                   "[server]\nname = 'x'\ncongestion = \"a\\\"\\\\\\u007f\"\n"
                                   "[log]\nlevel = 'debug'\n[[bucket]]\nmatch = \"a/\\\"\\u0001\"\n"
                                   "readahead = 'off'\nwrite = 'around'\n");
    struct text t;

    (void)state;
    text_init(&t, output, sizeof output);
    conf_print(c, &t);
    conf_give(c);
    assert_non_null(strstr(output, "\nsize = \"87.5%\"\n"));
    assert_non_null(strstr(output, "\nttl = \"1500ms\"\n"));
    assert_non_null(strstr(output, "\nmin_free = \"1000001B\"\n"));
    assert_non_null(strstr(output, "\nlist_ttl = \"30s\"\n"));
    assert_non_null(strstr(output, "\nlevel = \"debug\"\n"));
    c = load(output);
    text_init(&t, again, sizeof again);
    conf_print(c, &t);
    assert_string_equal(output, again);
    conf_give(c);
}

static void the_list_has_a_line_per_option(void **state)
{
    struct text t;
    unsigned lines = 0;

    (void)state;
    text_init(&t, output, sizeof output);
    conf_list_options(&t);
    for (size_t i = 0; i < t.len; i++)
        lines += output[i] == '\n';
    assert_int_equal(lines, CONF_OPTIONS);
    assert_non_null(strstr(output, "server.drain_timeout     time   \"60s\"            live on "
                                   "SIGTERM"));
    assert_non_null(strstr(output, "cache.write              choice \"through\"        live PUT"));
    assert_non_null(strstr(output, "CONNECT; not in this version\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_units),
        cmocka_unit_test(times_have_units),
        cmocka_unit_test(percentages_lie_between_0_and_100),
        cmocka_unit_test(ranges_match_both_families),
        cmocka_unit_test(listen_addresses_are_literal),
        cmocka_unit_test(defaults_hold_without_a_file),
        cmocka_unit_test(later_layers_replace_whole_values),
        cmocka_unit_test(toml_values_of_each_kind),
        cmocka_unit_test(each_mistake_has_its_place_and_sentence),
        cmocka_unit_test(malformed_toml_is_told_with_its_column),
        cmocka_unit_test(mistakes_do_not_repeat_control_characters),
        cmocka_unit_test(a_broken_array_is_one_mistake),
        cmocka_unit_test(the_65th_value_of_an_array_is_a_mistake),
        cmocka_unit_test(all_mistakes_are_reported_and_the_excess_is_counted),
        cmocka_unit_test(endpoints_are_checked),
        cmocka_unit_test(unknown_variables_are_mistakes),
        cmocka_unit_test(variables_of_the_command_line_stop_no_server),
        cmocka_unit_test(variables_of_kubernetes_services_are_not_ours),
        cmocka_unit_test(unknown_flags_and_bad_files_are_mistakes),
        cmocka_unit_test(options_that_need_a_restart_stay_and_are_named),
        cmocka_unit_test(the_reference_is_the_file_in_conf),
        cmocka_unit_test(the_reference_shows_the_defaults),
        cmocka_unit_test(what_is_printed_can_be_read_again),
        cmocka_unit_test(the_list_has_a_line_per_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
