/* File descriptors: what is left for clients, and whether whole backlogs may be accepted at
 * once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>

static int get_limit(struct rlimit *out);
static int set_limit(const struct rlimit *limit);
#define getrlimit(which, out) get_limit(out)
#define setrlimit(which, limit) set_limit(limit)
#include "server/net/descriptors.c"

#include <setjmp.h>

#include <cmocka.h>

static struct rlimit limits;

static int get_limit(struct rlimit *out)
{
    *out = limits;
    return 0;
}

static int set_limit(const struct rlimit *limit)
{
    assert_true(limit->rlim_cur <= limit->rlim_max && limit->rlim_max == limits.rlim_max);
    limits = *limit;
    return 0;
}

enum { CONNECTIONS = 8192, CORES = 8, ADDRESSES = 2 };
static struct config config = {.upstream = {{.connections = 64}},
                               .upstream_count = 1,
                               .server_max_connections = CONNECTIONS,
                               .server_listen = {.count = ADDRESSES},
                               .cache_dirs = {.count = 1}};
static const struct server server = {.config = &config, .core_count = CORES};

static struct net settle(uint64_t hard)
{
    struct net net = {.connections_max = CONNECTIONS};
    char why[256] = "";
    limits = (struct rlimit){.rlim_cur = 1024, .rlim_max = hard};
    assert_int_equal(descriptors_settle(&server, &net, why), OK);
    return net;
}

static void a_burst_of_every_listener_leaves_upstream_its_descriptors(void **state)
{
    (void)state;
    uint64_t ours = aside(&server), all = (uint64_t)CORES * ADDRESSES * NET_BACKLOG;
    struct net net = settle(ours + CONNECTIONS + NET_BACKLOG);
    assert_false(net.may_burst);     /* each core and address has a backlog of its own */
    assert_int_equal(net.connections_max, CONNECTIONS);
    net = settle(ours + CONNECTIONS + all - 1);
    assert_false(net.may_burst);
    net = settle(ours + CONNECTIONS + all);
    assert_true(net.may_burst);
    assert_int_equal(limits.rlim_cur, ours + CONNECTIONS + all);
}

static void a_race_between_addresses_needs_two_for_each_connection(void **state)
{
    (void)state;
    uint64_t before = aside(&server);
    config.upstream[0].connections += 10;
    assert_int_equal(aside(&server) - before, 2 * 10);
    config.upstream[0].connections -= 10;
}

static void clients_get_what_is_left(void **state)
{
    (void)state;
    uint64_t ours = aside(&server);
    struct net net = settle(ours + 1000);
    assert_int_equal(net.connections_max, 1000);
    assert_false(net.may_burst);
    char why[256] = "";
    limits = (struct rlimit){ours + CLIENTS_MIN - 1, ours + CLIENTS_MIN - 1};
    assert_int_equal(descriptors_settle(&server, &net, why), ERR_SYSTEM);
    assert_non_null(strstr(why, "LimitNOFILE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_of_every_listener_leaves_upstream_its_descriptors),
        cmocka_unit_test(a_race_between_addresses_needs_two_for_each_connection),
        cmocka_unit_test(clients_get_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
