/* What exchanges share: addresses, the breaker, permits, ends at any time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/pool.c"

#include "tests/lib/scripted.h"

/* ---- addresses, breaker ---- */

static void test_dead_address_is_passed_over(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, CLOSE, false}, {OK_ANSWER, CLOSE, false}};
    struct sockaddr_in dead = {.sin_family = AF_INET};
    BEGIN(lines, FAST);
    dead.sin_port = htons((uint16_t)up.port);
    inet_pton(AF_INET, "127.0.0.99", &dead.sin_addr); /* nobody listens there */
    assert_true(addresses_add(server.origin->addresses, (struct sockaddr *)&dead, sizeof(dead)));
    assert_int_equal(addresses_count(server.origin->addresses), 2);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
}

static void test_breaker(void **state)
{
    (void)state;
    static const struct line lines[] = {{OK_ANSWER, CLOSE, false}, {OK_ANSWER, KEEP, false}};
    char endpoint[64];
    struct origin_status status;
    int port = 0;

    int fd = listen_on("127.0.0.1", &port);
    close(fd);                       /* a port where nobody listens */
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
    begin_at(endpoint, "retries = 5\nconnect_timeout = \"1s\"\n");
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_CONNECT);
    assert_int_equal(retries(), 2);  /* the third failure says: down */
    origin_status(server.origin, &status);
    assert_false(status.up);
    o = get("b");
    assert_int_equal(o->why, ERR_UPSTREAM_DOWN);
    up.port = port;
    up.listener = listen_on("127.0.0.1", &up.port);
    listen_with(lines, ARRAY_COUNT(lines)); /* the probe is answered, then c */
    uint64_t until_ms = clock_ms() + 10000;
    do {
        o = get("c");
    } while (o->failed && o->why == ERR_UPSTREAM_DOWN && clock_ms() < until_ms);
    assert_string_equal(o->body, "hello");
    origin_status(server.origin, &status);
    assert_true(status.up);
}

/* ---- permits ---- */

static void test_demand_goes_before_prefetch(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {OK_ANSWER, KEEP, false},
        {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *a = prepare(0, HTTP_GET, "first"), *b = prepare(1, HTTP_GET, "ahead"),
        *c = prepare(2, HTTP_GET, "wanted");
    b->ask.class_ = ASK_PREFETCH;
    start(a);
    start(b);
    start(c);
    finish(a);
    finish(b);
    finish(c);
    join_upstream();
    assert_non_null(strstr(up.request[0], "/bkt/first"));
    assert_int_equal(up.requests, 3);
    assert_int_equal(up.connections, 1);
}

static void test_end_at_any_time(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *a = prepare(0, HTTP_GET, "a"), *b = prepare(1, HTTP_GET, "b");
    a->hasty = b->hasty = true;
    start(a);
    start(b);
    finish(a);
    finish(b);
    assert_false(a->failed || b->failed);
}

static void test_end_while_the_head_is_awaited(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *o = prepare(0, HTTP_GET, "a");
    start(o);
    pthread_mutex_lock(&lock);
    while (up.requests == 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    core_send(core, &o->cue_msg);
    finish(o);
    assert_false(o->failed);
    assert_int_equal(o->status, 0);
    assert_string_equal(get("b")->body, "hello"); /* and the permit came back */
    assert_int_equal(retries(), 0);
}

static void test_end_while_a_read_is_under_way(void **state)
{
    (void)state;
    const struct line lines[] =
        {{"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", STALL, false},
            {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *o = prepare(0, HTTP_GET, "a");
    start(o);
    pthread_mutex_lock(&lock);
    while (!o->began_read)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    core_send(core, &o->cue_msg);
    finish(o);
    assert_false(o->failed);
    assert_int_equal(o->status, 200);
    assert_string_equal(get("b")->body, "hello");
}

static void test_unread_body_cuts_the_connection(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, STALL, false}, {OK_ANSWER, KEEP, false}};
    BEGIN(lines, FAST "connections = 1\n");
    struct owner *o = prepare(0, HTTP_GET, "a");
    o->lazy = true;
    start(o);
    finish(o);
    assert_int_equal(o->status, 200);
    assert_string_equal(get("b")->body, "hello"); /* and the permit came back */
    join_upstream();
    assert_int_equal(up.connections, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAIN(test_dead_address_is_passed_over),
        PLAIN(test_breaker),
        JOINED(test_demand_goes_before_prefetch),
        PLAIN(test_end_at_any_time),
        PLAIN(test_end_while_the_head_is_awaited),
        PLAIN(test_end_while_a_read_is_under_way),
        JOINED(test_unread_body_cuts_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
