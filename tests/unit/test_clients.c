/* Who was served lately, of server/net/clients.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/clients.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct core core;

static struct conn *client_of(const char *host)
{
    static struct conn conns[CLIENTS_MAX + 1];
    static unsigned made;
    struct conn *c = &conns[made++ % ARRAY_COUNT(conns)];

    *c = (struct conn){.m.core = &core};
    snprintf(c->peer, sizeof c->peer, "%s", host);
    return c;
}

static int forget(void **state)
{
    (void)state;
    memset(table, 0, sizeof table);
    memset(head, 0, sizeof head);
    used = 0;
    core.wall_s = 1000000;
    return 0;
}

static void a_client_has_one_row_for_all_its_connections(void **state)
{
    struct net_client seen[3];
    struct net_hosts hosts;

    (void)state;
    net_saw_client(client_of("10.0.0.1"), span_of("Boto3/1.34.1 md/x"));
    net_saw_client(client_of("10.0.0.1"), span_of("Boto3/1.34.1 md/x"));
    net_saw_client(client_of("10.0.0.1"), span_of("<b>"));
    assert_int_equal(net_clients(1, seen, ARRAY_COUNT(seen), &hosts), 2);
    assert_int_equal(hosts.count, 1);
    assert_false(hosts.more);
    assert_string_equal(seen[0].host, "10.0.0.1");
    assert_true(strcmp(seen[0].agent, "unknown") == 0 || strcmp(seen[1].agent, "unknown") == 0);
}

/* A loader keeps its connections for hours; it was forgotten five minutes after the first
 * request. */
static void a_client_that_keeps_its_connection_is_not_forgotten(void **state)
{
    struct conn *c = client_of("10.0.0.1");

    (void)state;
    net_saw_client(c, span_of("Boto3"));
    table[0].last_wall_s = 1;
    core.wall_s += SEEN_EVERY_S - 1;
    net_saw_client(c, span_of("Boto3"));
    assert_int_equal(table[0].last_wall_s, 1); /* not by each request: that would take a lock */
    core.wall_s += 1;
    net_saw_client(c, span_of("Boto3"));
    assert_true(table[0].last_wall_s > 1);
    table[0].last_wall_s = 1;
    core.wall_s -= 500;                        /* the clock was set back */
    net_saw_client(c, span_of("Boto3"));
    assert_true(table[0].last_wall_s > 1);
}

static void see(unsigned n, unsigned hosts)
{
    char host[40];

    for (unsigned i = 0; i < n; i++) {
        snprintf(host, sizeof host, "10.0.1.%u", i % hosts);
        net_saw_client(client_of(host), span_of(i < hosts ? "aws-cli" : "curl"));
    }
}

static void the_oldest_makes_room(void **state)
{
    static struct net_client seen[CLIENTS_MAX];
    struct net_hosts hosts;

    (void)state;
    see(CLIENTS_MAX, CLIENTS_MAX);
    for (unsigned i = 0; i < CLIENTS_MAX; i++)
        table[i].last_wall_s = 100 + i;
    net_saw_client(client_of("10.0.2.1"), span_of("aws-cli"));
    unsigned count = net_clients(1, seen, CLIENTS_MAX, &hosts);
    assert_int_equal(count, CLIENTS_MAX);
    assert_string_equal(seen[0].host, "10.0.2.1");
    assert_string_equal(seen[1].host, "10.0.1.1023");
    for (unsigned i = 0; i < count; i++)
        assert_string_not_equal(seen[i].host, "10.0.1.0");
    /* Each is found again where it is, the one that took a place as well. */
    see(CLIENTS_MAX, CLIENTS_MAX);
    net_saw_client(client_of("10.0.2.1"), span_of("aws-cli"));
    assert_int_equal(net_clients(1, seen, CLIENTS_MAX, &hosts), CLIENTS_MAX);
    assert_int_equal(hosts.count, CLIENTS_MAX);
    assert_true(hosts.more);
    assert_int_equal(net_clients(UINT64_MAX, seen, CLIENTS_MAX, &hosts), 0);
    assert_false(hosts.more);
}

/* Of 200 hosts status said that there were 64. */
static void hosts_are_counted_beyond_those_that_are_shown(void **state)
{
    struct net_client seen[64];
    struct net_hosts hosts;

    (void)state;
    see(400, 200);
    assert_int_equal(net_clients(1, seen, ARRAY_COUNT(seen), &hosts), 64);
    assert_int_equal(hosts.count, 200);
    assert_false(hosts.more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_client_has_one_row_for_all_its_connections, forget),
        cmocka_unit_test_setup(a_client_that_keeps_its_connection_is_not_forgotten, forget),
        cmocka_unit_test_setup(the_oldest_makes_room, forget),
        cmocka_unit_test_setup(hosts_are_counted_beyond_those_that_are_shown, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
