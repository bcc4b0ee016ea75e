/* The race between an upstream's addresses, of server/origin/link.c: silent, refusing, slow
 * ones. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/inside.h"

static bool take_short(struct op *op);
#define op_take take_short
#include "server/origin/link.c"
#undef op_take

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>

#include "tests/lib/scripted.h"

/* ---- addresses that behave badly ---- */

struct place {
    struct sockaddr_in6 at;
    int listener, filler[4];
};

static void listen_v6(struct place *p, int backlog)
{
    socklen_t len = sizeof(p->at);
    *p = (struct place){.at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback}};
    p->listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&p->at, len), 0);
    assert_int_equal(listen(p->listener, backlog), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&p->at, &len), 0);
}

/* A listener whose queue is full drops every further SYN: to us it is a black hole. */
static void be_silent(struct place *p)
{
    listen_v6(p, 0);
    for (unsigned i = 0; i < ARRAY_COUNT(p->filler); i++) {
        p->filler[i] = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int r = connect(p->filler[i], (struct sockaddr *)&p->at, sizeof(p->at));
        assert_true(r == 0 || errno == EINPROGRESS);
    }
}

static void go_away(struct place *p)
{
    for (unsigned i = 0; i < ARRAY_COUNT(p->filler); i++)
        if (p->filler[i] > 0)
            close(p->filler[i]);
    if (p->listener > 0)
        close(p->listener);
    p->listener = 0;
    memset(p->filler, 0, sizeof(p->filler));
}

/* A port nobody listens at. */
static void refuse(struct place *p)
{
    listen_v6(p, 1);
    close(p->listener);
    p->listener = 0;
}

static void know(const struct place *p)
{
    assert_true(addresses_add(server.origin[0]->addresses, (const struct sockaddr *)&p->at,
                              sizeof(p->at)));
}

static unsigned sockets(void)
{
    unsigned count = 0;
    char path[300], to[64];
    DIR *d = opendir("/proc/self/fd");
    for (const struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, to, sizeof(to) - 1);
        count += n > 6 && memcmp(to, "socket", 6) == 0;
    }
    closedir(d);
    return count;
}

static uint64_t get_ms(const char *key)
{
    uint64_t from = clock_ms();
    struct owner *o = get(key);
    assert_string_equal(o->body, "hello");
    return clock_ms() - from;
}

static int place_of(const struct place *p)
{
    struct addresses *all = server.origin[0]->addresses;
    struct address to;
    uint32_t tried = 0;
    for (int place; (place = addresses_pick(all, clock_ms(), &tried, &to)) >= 0;)
        if (to.at.ss_family == AF_INET6 &&
            memcmp(&to.at, &p->at, offsetof(struct sockaddr_in6, sin6_scope_id)) == 0)
            return place;
    return -1;
}

static bool comes_first(const struct place *p)
{
    struct address to;
    uint32_t tried = 0;
    int place = place_of(p);
    return addresses_pick(server.origin[0]->addresses, clock_ms(), &tried, &to) == place;
}

/* ---- */

static void a_silent_address_costs_its_head_start_and_then_rests(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, CLOSE, false}, {OK_ANSWER, CLOSE, false}};
    struct place silent;
    BEGIN(lines, FAST);
    be_silent(&silent);
    know(&silent);
    unsigned before = sockets();
    uint64_t ms = get_ms("a");       /* IPv6 first, and it says nothing */
    assert_in_range(ms, HEAD_START_MS - 10, 900);
    assert_int_equal(retries(), 0);
    assert_false(comes_first(&silent));
    assert_true(get_ms("b") < 200);  /* it rests: no head start any more */
    join_upstream();
    assert_true(sockets() <= before); /* the loser's socket was closed */
    go_away(&silent);
}

static void a_refusal_costs_nothing(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, CLOSE, false}};
    struct place refusing;
    BEGIN(lines, FAST);
    refuse(&refusing);
    know(&refusing);
    assert_true(get_ms("a") < 200);
    assert_int_equal(retries(), 0);
    assert_false(comes_first(&refusing));
    join_upstream();
}

static void who_answers_at_once_runs_alone(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, CLOSE, false}};
    struct place other;
    BEGIN(lines, FAST);
    listen_v6(&other, 4);            /* accepts, as far as the kernel goes, and never answers */
    know(&other);
    struct sockaddr_storage at = {0};
    memcpy(&at, &other.at, sizeof(other.at));
    addresses_judge(server.origin[0]->addresses, &at, false, clock_ms());
    assert_true(get_ms("a") < 200);  /* the other family is well, so that it is tried first */
    int flags = fcntl(other.listener, F_GETFL);
    fcntl(other.listener, F_SETFL, flags | O_NONBLOCK);
    assert_int_equal(accept(other.listener, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    join_upstream();
    go_away(&other);
}

/* What a kernel without memory for a connection says of it. */
static _Atomic int short_of;

static bool take_short(struct op *op)
{
    bool taken = op_take(op);
    if (taken && op->kind == OPK_CONNECT && short_of)
        op->res = -short_of;
    return taken;
}

static void a_connection_for_which_we_lack_memory_says_nothing_about_upstream(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, CLOSE, false}};
    struct address to;
    uint32_t tried = 0;
    begin(lines, 0, "retries = 0\n");
    for (unsigned i = 0; i < BREAKER_FAILURES; i++) {
        short_of = i % 2 ? ENOMEM : ENOBUFS;
        struct owner *o = get("a");
        assert_true(o->failed);
        assert_int_equal(o->why, ERR_MEMORY);
    }
    short_of = 0;
    assert_false(origin_is_down(server.origin[0]));
    assert_true(addresses_pick(server.origin[0]->addresses, clock_ms(), &tried, &to) >= 0);
    assert_int_equal(to.rest_until_ms, 0);
}

static void three_silent_ones_before_the_living_one(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, CLOSE, false}};
    struct place silent[3];
    BEGIN(lines, "connect_timeout = \"8s\"\nretries = 0\n");
    unsigned before = sockets();
    for (unsigned i = 0; i < 3; i++) {
        be_silent(&silent[i]);
        know(&silent[i]);
    }
    /* the living one is the worst of all by its past */
    struct address to;
    uint32_t tried = 0;
    struct addresses *all = server.origin[0]->addresses;
    while (addresses_pick(all, clock_ms(), &tried, &to) >= 0)
        if (to.at.ss_family == AF_INET)
            addresses_judge(all, &to.at, false, clock_ms());
    uint64_t ms = get_ms("a");       /* 250 ms, then a second for each that makes room */
    assert_in_range(ms, 2 * LANE_MS_MAX, 4000);
    join_upstream();
    for (unsigned i = 0; i < 3; i++)
        go_away(&silent[i]);
    assert_true(sockets() <= before);
}

static void all_silent_is_a_time_out(void **state)
{
    (void)state;
    struct place silent[2];
    unsigned before = sockets();
    be_silent(&silent[0]);
    be_silent(&silent[1]);
    char endpoint[64];
    snprintf(endpoint, sizeof(endpoint), "http://[::1]:%u", ntohs(silent[0].at.sin6_port));
    begin_at(endpoint, "connect_timeout = \"1s\"\nretries = 0\n");
    know(&silent[1]);
    uint64_t from = clock_ms();
    struct owner *o = get("a");
    assert_true(o->failed);
    assert_int_equal(o->why, ERR_UPSTREAM_TIMEOUT);
    assert_in_range(clock_ms() - from, 950, 1900);
    end_core();
    go_away(&silent[0]);
    go_away(&silent[1]);
    assert_true(sockets() <= before);
}

static void an_end_in_the_middle_of_the_race_leaves_nothing(void **state)
{
    (void)state;
    struct place silent[2];
    unsigned before = sockets();
    be_silent(&silent[0]);
    be_silent(&silent[1]);
    char endpoint[64];
    snprintf(endpoint, sizeof(endpoint), "http://[::1]:%u", ntohs(silent[0].at.sin6_port));
    begin_at(endpoint, "connect_timeout = \"30s\"\nretries = 0\n");
    know(&silent[1]);
    unsigned started = sockets();
    struct owner *o = prepare(0, HTTP_GET, "a");
    start(o);
    for (uint64_t by = clock_ms() + 20000; sockets() < started + 2;) { /* both are dialled */
        assert_true(clock_ms() < by);
        poll(NULL, 0, 1);
    }
    core_send(core, &o->cue_msg);
    finish(o);
    end_core();
    go_away(&silent[0]);
    go_away(&silent[1]);
    assert_true(sockets() <= before);
}

static int no_upstream(void **state)
{
    (void)state;
    return 0;
}
#define ALONE(test) cmocka_unit_test_setup_teardown(test, clean_environment, no_upstream)

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOINED(a_silent_address_costs_its_head_start_and_then_rests),
        JOINED(a_refusal_costs_nothing),
        JOINED(who_answers_at_once_runs_alone),
        PLAIN(a_connection_for_which_we_lack_memory_says_nothing_about_upstream),
        JOINED(three_silent_ones_before_the_living_one),
        ALONE(all_silent_is_a_time_out),
        ALONE(an_end_in_the_middle_of_the_race_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
