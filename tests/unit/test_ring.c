/* Sockets on the ring: accepted ones do not block, are waited for all the same, and lend pages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/loop/ring.c"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 10000, MUCH = 8 * MIB };

static unsigned told;
static int32_t last;

static void note(struct op *op, int32_t res)
{
    (void)op;
    told++;
    last = res;
}

static struct ring *open_ring(void)
{
    const struct core_plan plan = {.recv_buffers = 8};
    struct core_start_error why;
    struct ring *r;

    assert_int_equal(ring_make(NULL, &plan, &r, &why), OK);
    told = 0;
    return r;
}

static void begin(struct ring *r, struct op *op, enum op_kind kind, int fd, void *mem, uint32_t len)
{
    *op = (struct op){.kind = (uint8_t)kind, .fd = fd, .mem = mem, .len = len, .busy = true,
                      .each = note};
    ring_submit(r, op);
}

static void until_told(struct ring *r, unsigned count)
{
    uint64_t end = clock_ms() + PATIENCE_MS;

    while (told < count && clock_ms() < end)
        ring_turn(r, 100);
    assert_int_equal(told, count);
}

/* A connection: the client's end, and what the ring accepts of it. */
static int connect_and_accept(struct ring *r, int *client)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    struct op op;

    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    *client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(*client, (struct sockaddr *)&at, len), 0);
    begin(r, &op, OPK_ACCEPT_ONE, listener, NULL, 0);
    until_told(r, 1);
    assert_true(last >= 0);
    close(listener);
    told = 0;
    return last;
}

static void an_accepted_socket_is_not_blocking_and_waited_for(void **state)
{
    struct ring *r = open_ring();
    char got[8];
    int client, fd = connect_and_accept(r, &client);
    struct op op;

    (void)state;
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    begin(r, &op, OPK_RECV, fd, got, sizeof got);
    ring_turn(r, 20);
    assert_int_equal(told, 0);       /* nothing is there: no error */
    assert_int_equal(write(client, "here", 4), 4);
    until_told(r, 1);
    assert_int_equal(last, 4);
    assert_memory_equal(got, "here", 4);
    close(fd);
    close(client);
    ring_free(r);
}

/* As the kernel answers when it has polled too often in vain and a thread of its own tried. */
static void a_transfer_that_found_nothing_is_begun_again(void **state)
{
    static const enum op_kind kind[] = {OPK_RECV, OPK_RECV_POOL};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(kind); i++) {
        struct ring *r = open_ring();
        char got[8];
        int client, fd = connect_and_accept(r, &client);
        struct op op = {.kind = (uint8_t)kind[i], .fd = fd, .mem = got, .len = sizeof got,
                        .busy = true, .each = note};
        struct io_uring_cqe nothing = {.user_data = (uintptr_t)&op, .res = -EAGAIN};
        complete(r, &nothing);
        ring_turn(r, 20);
        assert_int_equal(told, 0);
        assert_int_equal(write(client, "here", 4), 4);
        until_told(r, 1);
        assert_int_equal(last, 4);
        close(fd);
        close(client);
        ring_free(r);
    }
}

static size_t drain(int fd)
{
    static char sink[256 * KIB];
    size_t all = 0;
    ssize_t n;

    while ((n = recv(fd, sink, sizeof sink, MSG_DONTWAIT)) > 0)
        all += (size_t)n;
    return all;
}

/* Nobody reads: pages are lent as far as there is room, then the rest waits, and never a call. */
static void pages_that_find_no_room_wait_for_it(void **state)
{
    struct ring *r = open_ring();
    int client, fd = connect_and_accept(r, &client);
    uint8_t *much = mem_take_aligned(MUCH, 4 * KIB);
    size_t sent = 0, read = 0;

    (void)state;
    for (unsigned i = 1; sent < MUCH; i++) {
        struct iovec piece = {much + sent, MUCH - sent};
        struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1};
        struct op op;
        begin(r, &op, OPK_SEND_PAGES, fd, &msg, sizeof msg);
        ring_turn(r, 20);
        while (told < i) {           /* full: it is told once there is room */
            read += drain(client);
            ring_turn(r, 20);
        }
        assert_true(last > 0);
        sent += (size_t)last;
    }
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    while (read < MUCH)
        read += drain(client);
    assert_int_equal(read, MUCH);
    close(fd);
    close(client);
    mem_give(much);
    ring_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accepted_socket_is_not_blocking_and_waited_for),
        cmocka_unit_test(a_transfer_that_found_nothing_is_begun_again),
        cmocka_unit_test(pages_that_find_no_room_wait_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
