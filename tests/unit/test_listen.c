/* Who comes while a listener ends is a client like any other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/net.h"

static void note_client(struct core *c, int fd);
#define conn_open note_client
#include "server/net/listen.c"

#include <setjmp.h>

#include <cmocka.h>

enum { CLIENTS = 3 };

static int opened[CLIENTS];
static unsigned count;

static void note_client(struct core *c, int fd)
{
    (void)c;
    assert_true(count < CLIENTS);
    opened[count++] = fd;
}

/* A slow reader of them would stop the core: pages are lent by a call that must not wait. */
static void those_who_come_last_do_not_block_either(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    struct listener l = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
    int client[CLIENTS];

    (void)state;
    assert_int_equal(bind(l.fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(l.fd, CLIENTS), 0);
    assert_int_equal(getsockname(l.fd, (struct sockaddr *)&at, &len), 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        client[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(client[i], (struct sockaddr *)&at, len), 0);
    }
    accept_rest(&l);
    assert_int_equal(count, CLIENTS);
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_true(fcntl(opened[i], F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(opened[i], F_GETFD) & FD_CLOEXEC);
        close(opened[i]);
        close(client[i]);
    }
    close(l.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_come_last_do_not_block_either),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
