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
    core.wall_s = 1000000;
    return 0;
}

static void a_client_has_one_row_for_all_its_connections(void **state)
{
    struct net_client seen[CLIENTS_MAX];

    (void)state;
    net_saw_client(client_of("10.0.0.1"), span_of("Boto3/1.34.1 md/x"));
    net_saw_client(client_of("10.0.0.1"), span_of("Boto3/1.34.1 md/x"));
    net_saw_client(client_of("10.0.0.1"), span_of("<b>"));
    assert_int_equal(net_clients(NULL, seen, CLIENTS_MAX), 2);
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

static void the_oldest_makes_room(void **state)
{
    struct net_client seen[CLIENTS_MAX];
    char host[40];

    (void)state;
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        snprintf(host, sizeof host, "10.0.1.%u", i);
        net_saw_client(client_of(host), span_of("aws-cli"));
        table[i].last_wall_s = 100 + i;
    }
    net_saw_client(client_of("10.0.2.1"), span_of("aws-cli"));
    unsigned count = net_clients(NULL, seen, CLIENTS_MAX);
    assert_int_equal(count, CLIENTS_MAX);
    assert_string_equal(seen[0].host, "10.0.2.1");
    assert_string_equal(seen[1].host, "10.0.1.63");
    for (unsigned i = 0; i < count; i++)
        assert_string_not_equal(seen[i].host, "10.0.1.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_client_has_one_row_for_all_its_connections, forget),
        cmocka_unit_test_setup(a_client_that_keeps_its_connection_is_not_forgotten, forget),
        cmocka_unit_test_setup(the_oldest_makes_room, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
