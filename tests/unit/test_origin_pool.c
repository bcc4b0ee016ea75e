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
    assert_true(addresses_add(server.origin[0]->addresses, (struct sockaddr *)&dead, sizeof(dead)));
    assert_int_equal(addresses_count(server.origin[0]->addresses), 2);
    assert_string_equal(get("a")->body, "hello");
    assert_string_equal(get("b")->body, "hello");
    assert_int_equal(retries(), 0);
}

static void test_a_kept_connection_to_an_address_that_was_dropped_is_not_used(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {OK_ANSWER, CLOSE, false}};
    struct sockaddr_in to = {.sin_family = AF_INET};
    BEGIN(lines, "retries = 0\n");
    struct addresses *all = server.origin[0]->addresses;
    assert_string_equal(get("a")->body, "hello");
    addresses_drop(all, clock_ms() + 60 * 60 * 1000); /* the name leads elsewhere, long since */
    assert_int_equal(addresses_count(all), 0);
    assert_int_equal(get("b")->why, ERR_UPSTREAM_DNS);
    to.sin_port = htons((uint16_t)up.port);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    assert_true(addresses_add(all, (struct sockaddr *)&to, sizeof(to)));
    assert_string_equal(get("c")->body, "hello");
    join_upstream();
    assert_int_equal(up.connections, 2);
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
    origin_status(server.origin[0], &status);
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
    origin_status(server.origin[0], &status);
    assert_true(status.up);
}

#define SAYS_503 "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"

static bool is_up(void)
{
    struct origin_status status;
    origin_status(server.origin[0], &status);
    return status.up;
}

static void test_one_silent_address_of_two_trips_nothing(void **state)
{
    (void)state;
    static struct line lines[8];
    struct sockaddr_in silent = {.sin_family = AF_INET};
    for (unsigned i = 0; i < ARRAY_COUNT(lines); i++)
        lines[i] = (struct line){OK_ANSWER, CLOSE, false};
    BEGIN(lines, "read_timeout = \"100ms\"\nretries = 1\n");
    int port = up.port, fd = listen_on("127.0.0.98", &port); /* accepts, never answers */
    silent.sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, "127.0.0.98", &silent.sin_addr);
    assert_true(addresses_add(server.origin[0]->addresses, (struct sockaddr *)&silent,
                              sizeof(silent)));
    for (unsigned i = 0; i < ARRAY_COUNT(lines); i++) {
        assert_string_equal(get("a")->body, "hello");
        assert_true(is_up());
    }
    assert_int_equal(retries(), 1);  /* it was met once and rests since */
    close(fd);
}

/* A list of a large prefix: upstream is there, and at work. */
static void test_patient_asks_in_vain_are_no_outage(void **state)
{
    (void)state;
    static const struct line lines[] = {{NULL, STALL, false}, {NULL, STALL, false},
        {NULL, STALL, false}, {NULL, STALL, false}, {NULL, STALL, false}, {NULL, STALL, false},
        {CHUNKED_ANSWER, STALL, false}, {OK_ANSWER, CLOSE, false}};
    BEGIN(lines, "read_timeout = \"250ms\"\nretries = 5\n");
    for (unsigned i = 0; i < 4; i++) { /* the last one falls silent behind its head */
        struct owner *o = prepare(0, HTTP_GET, "a");
        uint64_t began_ms = clock_ms();
        o->ask.patient = true;
        start(o);
        finish(o);
        assert_true(o->failed);
        assert_int_equal(o->why, ERR_UPSTREAM_TIMEOUT);
        assert_true(clock_ms() - began_ms >= (i < 3 ? 1900 : 900));
        assert_int_equal(retries(), min_u64(i + 1, 3));
        assert_true(is_up());
    }
    assert_string_equal(get("b")->body, "hello");
}

static void test_503_to_everything_is_throttled_not_down(void **state)
{
    (void)state;
    static struct line lines[6];
    struct origin_status status;
    for (unsigned i = 0; i < ARRAY_COUNT(lines); i++)
        lines[i] = (struct line){SAYS_503, KEEP, false};
    BEGIN(lines, "retries = 0\n");
    for (unsigned i = 0; i < ARRAY_COUNT(lines); i++)
        assert_int_equal(get("a")->status, 503);
    origin_status(server.origin[0], &status);
    assert_true(status.up && status.throttled);
    assert_int_equal(status.limit, 4); /* 64 halved, down to a few */
    assert_int_equal(status.connections, 64);
}

static void test_an_answer_forgives_failures_before_it(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {NULL, RESET, false}, {NULL, RESET, false}, {OK_ANSWER, CLOSE, false},
        {NULL, RESET, false}, {NULL, RESET, false}, {SAYS_503, CLOSE, false},
        {NULL, RESET, false}, {NULL, RESET, false}, {NULL, RESET, false}};
    BEGIN(lines, "retries = 0\n");
    for (unsigned i = 0; i + 1 < ARRAY_COUNT(lines); i++) {
        get("a");
        assert_true(is_up());
    }
    get("a");
    assert_false(is_up());           /* three in a row */
}

static void test_probes_ask_for_key_and_bucket_and_503_lifts_nothing(void **state)
{
    (void)state;
    static const struct line lines[] = {
        {NULL, RESET, false}, {NULL, RESET, false}, {NULL, RESET, false},
        {SAYS_503, CLOSE, false}, {OK_ANSWER, CLOSE, false}, {OK_ANSWER, CLOSE, false}};
    BEGIN(lines, "retries = 0\n");
    for (unsigned i = 0; i < 3; i++)
        get("a");
    uint64_t until_ms = clock_ms() + 10000;
    struct owner *o;
    do {
        o = get("b");
    } while (o->failed && o->why == ERR_UPSTREAM_DOWN && clock_ms() < until_ms);
    assert_string_equal(o->body, "hello");
    join_upstream();
    assert_int_equal(up.requests, 6);
    assert_non_null(strstr(up.request[3], "HEAD /bkt/a HTTP/1.1\r\n"));
    assert_non_null(strstr(up.request[4], "HEAD /bkt HTTP/1.1\r\n"));
    assert_non_null(strstr(up.request[5], "GET /bkt/b HTTP/1.1\r\n"));
}

/* A listener whose queue is full drops what comes, as a cut cable does. */
static void fill(int fd, int port, int filler[4])
{
    struct sockaddr_in at = {.sin_family = AF_INET};

    assert_int_equal(listen(fd, 0), 0);
    at.sin_port = htons((uint16_t)port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (unsigned i = 0; i < 4; i++) {
        filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(filler[i], (struct sockaddr *)&at, sizeof(at));
    }
}

static int listen_full(int *port, int filler[4])
{
    int fd = listen_on("127.0.0.1", port);

    fill(fd, *port, filler);
    return fd;
}

static void test_all_tries_share_one_connect_deadline(void **state)
{
    (void)state;
    char endpoint[64];
    int port = 0, filler[4], fd = listen_full(&port, filler);

    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
    begin_at(endpoint, "retries = 5\nconnect_timeout = \"300ms\"\n");
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_TIMEOUT);
    assert_int_equal(retries(), 0);
    assert_true(is_up());            /* one failure is one */
    for (unsigned i = 0; i < 4; i++)
        close(filler[i]);
    close(fd);
}

static void test_a_kept_connection_that_was_closed_gives_no_second_connect_deadline(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, KEEP, false}, {NULL, CLOSE, false}};
    uint64_t aborted = metric_read_sum(METRIC_UPSTREAM_REQUESTS_TOTAL);
    int filler[4];
    BEGIN(lines, "retries = 5\nconnect_timeout = \"300ms\"\n");
    assert_string_equal(get("a")->body, "hello");
    fill(up.listener, up.port, filler);  /* from here on nobody gets in */
    struct owner *o = get("b");      /* goes out on the kept one, then all is silent */
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_TIMEOUT);
    assert_int_equal(retries(), 0);
    assert_true(is_up());
    assert_int_equal(metric_read_sum(METRIC_UPSTREAM_REQUESTS_TOTAL) - aborted, 1); /* of a */
    for (unsigned i = 0; i < 4; i++)
        close(filler[i]);
}

/* ---- a reload ---- */

static struct message renewal;
static bool renewed;

static void deliver_renewal(struct core *c, struct message *msg)
{
    (void)msg;
    core_take_settings(c, settings_hold(&server));
    origin_core_renew(c);
    pthread_mutex_lock(&lock);
    renewed = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void renew(struct settings *next)
{
    settings_publish(&server, next);
    renewed = false;
    renewal.deliver = deliver_renewal;
    core_send(core, &renewal);
    pthread_mutex_lock(&lock);
    while (!renewed)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* As a reload does: other settings for the same core. */
static void reload(const char *upstream)
{
    char text[1024];
    struct conf_mistakes *mistakes = mem_take(sizeof(*mistakes));
    struct config *config = NULL;
    struct settings *next = NULL;
    char *const no_environment[] = {NULL};

    snprintf(text, sizeof(text), "[cache]\ndirs = [\"/tmp\"]\n[upstream]\nendpoint = \"%s\"\n%s\n",
             server.config->upstream[0].endpoint, upstream);
    assert_int_equal(conf_parse(span_of(text), "test", no_environment, NULL, 0, &config, mistakes),
                     OK);
    assert_int_equal(settings_make(&server, config, &next, mistakes), OK);
    mem_give(mistakes);
    renew(next);
}

/* Expired ones are not sent: the request fails here, and upstream hears nothing. */
static void test_expired_credentials_fail_before_upstream(void **state)
{
    (void)state;
    const struct line lines[] = {{SAYS_503, KEEP, false}};
    struct creds creds = {.access_key = "AK", .token = "t", .source = "x"};
    struct settings *next = NULL;
    BEGIN(lines, "retries = 0\n");
    creds.secret.len = 1;
    for (unsigned i = 0; i < 3; i++) {
        creds.expire_s = i == 0 ? clock_wall_s() : clock_wall_s() + 100;
        creds.access_key[0] = i == 1 ? '\0' : 'A'; /* configured, not had yet */
        assert_int_equal(settings_again(&server, &next), OK);
        assert_int_equal(settings_set_creds(next, 0, &creds, ""), OK);
        assert_int_equal(settings_wait(next), i == 1);
        renew(next);
        if (i < 2)
            assert_int_equal(get("a")->why, ERR_CREDENTIALS);
        else
            assert_int_equal(get("a")->status, 503);
    }
}

/* Others are asked by profiles of their own, which may be well. */
static void test_an_outage_ends_while_our_own_credentials_have_expired(void **state)
{
    (void)state;
    const struct line lines[] = {{NULL, RESET, false}, {NULL, RESET, false}, {NULL, RESET, false},
        {"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", CLOSE, false}};
    struct creds creds = {.access_key = "AK", .token = "t", .source = "x"};
    struct settings *next = NULL;
    BEGIN(lines, "retries = 0\n");
    for (unsigned i = 0; i < 3; i++)
        get("a");
    assert_false(is_up());
    creds.secret.len = 1;
    creds.expire_s = clock_wall_s();
    assert_int_equal(settings_again(&server, &next), OK);
    assert_int_equal(settings_set_creds(next, 0, &creds, ""), OK);
    renew(next);
    for (uint64_t until_ms = clock_ms() + 10000; !is_up() && clock_ms() < until_ms;)
        get("b");
    assert_true(is_up());
    join_upstream();
    assert_non_null(strstr(up.request[3], "HEAD /bkt/a HTTP/1.1\r\n"));
    assert_null(strstr(up.request[3], "Authorization"));
}

static void test_tries_and_deadlines_are_those_of_the_newest_configuration(void **state)
{
    (void)state;
    const struct line lines[] = {{SAYS_503, KEEP, false}, {SAYS_503, KEEP, false}};
    char endpoint[64];
    int port = 0, filler[4], fd = listen_full(&port, filler);
    BEGIN(lines, "retries = 1\n");
    reload("retries = 0\n");
    assert_int_equal(get("a")->status, 503);
    assert_int_equal(retries(), 0);
    end_core();
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
    begin_at(endpoint, "retries = 5\nconnect_timeout = \"1h\"\n");
    reload("retries = 5\nconnect_timeout = \"300ms\"\n");
    assert_int_equal(get("a")->why, ERR_UPSTREAM_TIMEOUT);
    assert_int_equal(retries(), 0);  /* the whole of the shorter deadline was used up */
    for (unsigned i = 0; i < 4; i++)
        close(filler[i]);
    close(fd);
}

static void test_without_budget_a_503_is_the_answer(void **state)
{
    (void)state;
    static const struct line lines[] = {{SAYS_503, KEEP, false}, {OK_ANSWER, KEEP, false}};
    uint64_t denied = metric_read_sum(METRIC_UPSTREAM_RETRIES_DENIED_TOTAL);
    BEGIN(lines, FAST);
    atomic_store(&server.origin[0]->throttle.tokens, 0);
    assert_int_equal(get("a")->status, 503);
    assert_int_equal(retries(), 0);
    assert_int_equal(metric_read_sum(METRIC_UPSTREAM_RETRIES_DENIED_TOTAL) - denied, 1);
    assert_string_equal(get("b")->body, "hello");
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
        JOINED(test_a_kept_connection_to_an_address_that_was_dropped_is_not_used),
        PLAIN(test_breaker),
        PLAIN(test_one_silent_address_of_two_trips_nothing),
        PLAIN(test_patient_asks_in_vain_are_no_outage),
        PLAIN(test_503_to_everything_is_throttled_not_down),
        PLAIN(test_an_answer_forgives_failures_before_it),
        JOINED(test_probes_ask_for_key_and_bucket_and_503_lifts_nothing),
        PLAIN(test_all_tries_share_one_connect_deadline),
        PLAIN(test_a_kept_connection_that_was_closed_gives_no_second_connect_deadline),
        PLAIN(test_expired_credentials_fail_before_upstream),
        JOINED(test_an_outage_ends_while_our_own_credentials_have_expired),
        PLAIN(test_tries_and_deadlines_are_those_of_the_newest_configuration),
        PLAIN(test_without_budget_a_503_is_the_answer),
        JOINED(test_demand_goes_before_prefetch),
        PLAIN(test_end_at_any_time),
        PLAIN(test_end_while_the_head_is_awaited),
        PLAIN(test_end_while_a_read_is_under_way),
        JOINED(test_unread_body_cuts_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
