/* How the command line reaches a server: addresses, bounds, which servers are asked, what is
 * told. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/client.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/lib/fake_admin.h"

static char dir[64], said[KIB];

/* Of ctl.c, which names every verb. */
void ctl_say(const struct ctl *c, const char *format, ...)
{
    size_t len = strlen(said);
    va_list list;

    (void)c;
    va_start(list, format);
    vsnprintf(said + len, sizeof said - len, format, list);
    va_end(list);
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/headpond-client-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s/s", dir);
    unlink(path);
    return rmdir(dir);
}

static void addresses_that_are_none_are_told(void **state)
{
    static const struct {
        const char *server, *why;
        enum err err;
    } rows[] = {
        {"", "write unix:PATH or http://HOST:PORT", ERR_CONFIG},
        {"127.0.0.1:9001", "write unix:PATH or http://HOST:PORT", ERR_CONFIG},
        {"https://127.0.0.1:9001", "write unix:PATH or http://HOST:PORT", ERR_CONFIG},
        {"http://", "write unix:PATH or http://HOST:PORT", ERR_CONFIG},
        {"unix:", "unix:: ", ERR_SYSTEM},
        {"unix:/nonexistent/s", "No such file", ERR_SYSTEM},
        {"http://127.0.0.1:1", "refused", ERR_SYSTEM},
        {"http://[::1]:1", "http://[::1]:1: ", ERR_SYSTEM},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct reply r = {0};
        char why[CTL_WHY_BYTES] = "";
        if (client_get(rows[i].server, "/", 5000, &r, why) != rows[i].err ||
            !strstr(why, rows[i].why))
            fail_msg("%s: %s", rows[i].server, why);
        assert_null(r.body);
    }
}

/* The longest path that a socket can have, and one byte more. */
static void a_socket_path_of_108_bytes_is_too_long(void **state)
{
    char server[200], why[CTL_WHY_BYTES];
    struct reply r = {0};

    (void)state;
    snprintf(server, sizeof server, "unix:/%0106d", 1);
    assert_int_equal(client_get(server, "/", 5000, &r, why), ERR_SYSTEM);
    assert_non_null(strstr(why, "No such file"));
    snprintf(server, sizeof server, "unix:/%0107d", 1);
    assert_int_equal(client_get(server, "/", 5000, &r, why), ERR_CONFIG);
    assert_non_null(strstr(why, "longer than a socket path may be"));
}

static void a_request_that_does_not_fit_is_not_cut(void **state)
{
    static char path[20 * KIB];
    struct reply r = {0};
    char why[CTL_WHY_BYTES];
    struct fake f;

    (void)state;
    snprintf(path, sizeof path, "/%017000d", 1);
    fake_start(&f, dir, NULL, 1);
    assert_int_equal(client_get(f.url, path, 5000, &r, why), ERR_TOO_LARGE);
    assert_non_null(strstr(why, "the request is too long"));
    fake_end(&f);
}

static void an_answer_without_an_end_is_bounded(void **state)
{
    static const char first[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    size_t len = 3 * (size_t)REPLY_BYTES_MAX;
    char why[CTL_WHY_BYTES] = "", *answer = test_malloc(len + 1);
    struct reply r = {0};
    struct fake f;

    (void)state;
    memset(answer, ' ', len);
    memcpy(answer, first, sizeof first - 1);
    answer[len] = '\0';
    fake_start(&f, dir, answer, 1);
    assert_int_equal(client_get(f.url, "/", 30000, &r, why), ERR_TOO_LARGE);
    fake_end(&f);
    assert_non_null(strstr(why, "the answer is too long"));
    assert_null(r.body);
    test_free(answer);
}

/* What the command line names goes before the environment, and both before a guess. */
static void which_servers_are_asked(void **state)
{
    const char *server[CTL_SERVERS_MAX] = {0};
    struct ctl c = {0};
    bool guessed = true;

    (void)state;
    unsetenv("HEADPOND_SERVER");
    assert_int_equal(client_servers(&c, server, &guessed), 2);
    assert_true(guessed);
    assert_string_equal(server[0], "unix:/run/headpond/admin.sock");
    assert_string_equal(server[1], "http://127.0.0.1:9001");
    setenv("HEADPOND_SERVER", "", 1);
    assert_int_equal(client_servers(&c, server, &guessed), 2);
    assert_true(guessed);
    setenv("HEADPOND_SERVER", "http://a:1", 1);
    assert_int_equal(client_servers(&c, server, &guessed), 1);
    assert_false(guessed);
    assert_string_equal(server[0], "http://a:1");
    c.server[c.server_count++] = "http://b:1";
    c.server[c.server_count++] = "http://c:1";
    assert_int_equal(client_servers(&c, server, &guessed), 2);
    assert_false(guessed);
    assert_string_equal(server[0], "http://b:1");
    assert_string_equal(server[1], "http://c:1");
    unsetenv("HEADPOND_SERVER");
}

/* As whoever is not in the socket's group. */
static void a_socket_that_may_not_be_opened_is_told_with_advice(void **state)
{
    struct ctl c = {.timeout_ms = 5000, .server_count = 1};
    bool root = geteuid() == 0;
    char why[CTL_WHY_BYTES] = "";
    struct reply r = {0};
    struct fake f;

    (void)state;
    fake_start(&f, dir, NULL, 1);
    c.server[0] = f.url;
    assert_int_equal(chmod(f.url + strlen("unix:"), 0), 0);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    enum err e = client_ask(&c, "/", &r, why);
    if (root)
        assert_int_equal(seteuid(0), 0);
    shutdown(f.fd, SHUT_RDWR);
    fake_end(&f);
    assert_int_equal(e, ERR_DENIED);
    assert_non_null(strstr(why, "Permission denied.\nYou may not open the socket: join the group "
                                "headpond, or use sudo"));
}

static void *hang_up(void *fake)
{
    struct fake *f = fake;

    close(accept(f->fd, NULL, NULL));
    return NULL;
}

/* Closed with the request unread: the peer resets, as one that crashes does. */
static void a_server_that_hangs_up_is_told(void **state)
{
    char why[CTL_WHY_BYTES] = "";
    struct reply r = {0};
    pthread_t thread;
    struct fake f;

    (void)state;
    fake_start(&f, dir, NULL, 0);
    assert_int_equal(pthread_create(&thread, NULL, hang_up, &f), 0);
    enum err e = client_get(f.url, "/", 5000, &r, why);
    pthread_join(thread, NULL);
    fake_end(&f);
    /* Whether before or behind the request is a race. */
    assert_true(e == ERR_SYSTEM || e == ERR_SYNTAX);
    assert_memory_equal(why, f.url, strlen(f.url));
    assert_null(r.body);
}

static void the_next_server_is_asked_and_verbose_tells(void **state)
{
    struct ctl c = {.verbose = true, .timeout_ms = 5000, .server = {"unix:/nonexistent"},
                    .server_count = 1};
    char why[CTL_WHY_BYTES] = "";
    struct reply r = {0};
    struct fake f;

    (void)state;
    said[0] = '\0';
    assert_int_equal(client_ask(&c, "/v1/status", &r, why), ERR_SYSTEM);
    assert_string_equal(why, "unix:/nonexistent: No such file or directory.\nIs headpondd running "
                             "there, and is this its admin.listen?");
    fake_start(&f, dir, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", 1);
    c.server[c.server_count++] = f.url;
    assert_int_equal(client_ask(&c, "/v1/status", &r, why), OK);
    fake_end(&f);
    assert_string_equal(r.body, "{}");
    assert_string_equal(r.server, f.url);
    assert_non_null(strstr(said, "headpond: asked unix:/nonexistent for /v1/status: "));
    assert_non_null(strstr(said, "/s for /v1/status: answered\n"));
    reply_free(&r);
}

/* Found as: a watched job was looked for at another server while its own did not answer. */
static void who_answered_first_is_asked_alone_from_then_on(void **state)
{
    const char *answered = NULL;
    struct ctl c = {.verbose = true, .timeout_ms = 5000, .server = {"unix:/nonexistent"},
                    .server_count = 2, .answered = &answered};
    char why[CTL_WHY_BYTES] = "";
    struct reply r = {0};
    struct fake f;

    (void)state;
    fake_start(&f, dir, "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n{}", 1);
    c.server[1] = f.url;
    assert_int_equal(client_ask(&c, "/v1/jobs/j1", &r, why), OK);
    reply_free(&r);
    fake_end(&f);
    said[0] = '\0';
    assert_int_equal(client_ask(&c, "/v1/jobs/j1", &r, why), ERR_SYSTEM);
    assert_null(strstr(said, "nonexistent"));
    assert_non_null(strstr(said, "/s for /v1/jobs/j1: "));
    assert_null(strstr(why, "nonexistent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_that_are_none_are_told),
        cmocka_unit_test(a_socket_path_of_108_bytes_is_too_long),
        cmocka_unit_test(a_request_that_does_not_fit_is_not_cut),
        cmocka_unit_test(an_answer_without_an_end_is_bounded),
        cmocka_unit_test(which_servers_are_asked),
        cmocka_unit_test(a_socket_that_may_not_be_opened_is_told_with_advice),
        cmocka_unit_test(a_server_that_hangs_up_is_told),
        cmocka_unit_test(the_next_server_is_asked_and_verbose_tells),
        cmocka_unit_test(who_answered_first_is_asked_alone_from_then_on),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
