/* Unit tests of server/origin/call.c: URLs taken apart, and answers however they arrive. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/call.c"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static char memory[ANSWER_BYTES_MAX];

/* What the first len bytes of an answer are. */
static enum have judge(const char *text, size_t len, bool closed, struct call_answer *out)
{
    *out = (struct call_answer){.memory = memory, .len = len, .cap = sizeof(memory)};
    memcpy(memory, text, len);
    return judge_answer(out, closed);
}

static void whole_answers_and_every_part_of_them(void **state)
{
    (void)state;
    static const struct {
        const char *text, *body;
        unsigned status;
        bool by_close;
    } row[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", 200, false},
        {"HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", "", 404, false},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nLink: x\r\n\r\n"
         "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", "a", 200, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n"
         "T: r\r\n\r\n", "abcde", 200, false},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", 200, true},
        {"HTTP/1.1 204 No Content\r\n\r\n", "", 204, false},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct call_answer a;
        size_t len = strlen(row[i].text);
        for (size_t part = 0; part < len; part++)
            assert_int_equal(judge(row[i].text, part, false, &a), HAVE_PART);
        assert_int_equal(judge(row[i].text, len, row[i].by_close, &a), HAVE_ALL);
        assert_int_equal(a.status, row[i].status);
        assert_int_equal(a.body.len, strlen(row[i].body));
        assert_memory_equal(a.body.at, row[i].body, a.body.len);
    }
}

static void answers_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum have have;
    } row[] = {
        {"SSH-2.0\r\n", HAVE_NONSENSE},
        {"HTTP/1.1 200 OK\n\n", HAVE_NONSENSE},
        {"HTTP/1.1 101 Switching Protocols\r\n\r\n", HAVE_NONSENSE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n", HAVE_TOO_MUCH},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", HAVE_NONSENSE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", HAVE_NONSENSE},
    };
    struct call_answer a;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++)
        assert_int_equal(judge(row[i].text, strlen(row[i].text), true, &a), row[i].have);
    static char large[ANSWER_BYTES_MAX];
    memset(large, 'x', sizeof(large));
    memcpy(large, "HTTP/1.1 200 OK\r\n\r\n", 19);
    assert_int_equal(judge(large, 19 + CALL_BODY_BYTES_MAX, true, &a), HAVE_ALL);
    assert_int_equal(judge(large, 20 + CALL_BODY_BYTES_MAX, true, &a), HAVE_TOO_MUCH);
    memcpy(large, "HTTP/1.1 200 OK\r\nA: ", 20);
    assert_int_not_equal(judge(large, sizeof(large), false, &a), HAVE_PART);
}

static void urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host, *line; /* line NULL: refused */
    } row[] = {
        {"http://a", "a", "GET /p HTTP/1.1"},
        {"http://a/", "a", "GET //p HTTP/1.1"},
        {"https://a:443", "a", "GET /p HTTP/1.1"},
        {"https://a:80/x?y=%20z", "a:80", "GET /x/p?y=%20z HTTP/1.1"},
        {"http://[::1]:8080", "[::1]:8080", "GET /p HTTP/1.1"},
        {"http://a?x", "a", "GET /p?x HTTP/1.1"},
        {"ftp://a", NULL, NULL}, {"file:///a", NULL, NULL}, {"a", NULL, NULL},
        {"http://a/ b", NULL, NULL}, {"http://a/\r\nX: y", NULL, NULL},
        {"http://a?x\r\nX: y", NULL, NULL}, {"http://u@a", NULL, NULL}, {"", NULL, NULL},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        char host_memory[300], request_memory[2 * KIB];
        struct text host, request;
        struct place p;
        const char *why = NULL;
        text_init(&host, host_memory, sizeof(host_memory));
        text_init(&request, request_memory, sizeof(request_memory));
        assert_int_equal(call_host(row[i].url, &host) == OK, row[i].host != NULL);
        if (!row[i].host)
            continue;
        assert_string_equal(host_memory, row[i].host);
        const struct call c = {.url = row[i].url, .path = "/p", .method = HTTP_GET};
        assert_int_equal(read_place(c.url, &p, &why), OK);
        write_request(&c, &p, &request);
        assert_true(span_starts(text_span(&request), span_of(row[i].line)));
        assert_non_null(strstr(request_memory, "\r\nConnection: close\r\n"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answers_and_every_part_of_them),
        cmocka_unit_test(answers_that_are_refused),
        cmocka_unit_test(urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
