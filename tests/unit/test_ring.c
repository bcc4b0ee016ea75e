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

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 31 + at / 251);
}

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

    if (ring_make(NULL, &plan, &r, &why) != OK)
        fail_msg("%s", why.text);
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

/* A completion that says "nothing now". The kernel is not brought to say it: it waits instead. */
static void a_transfer_that_found_nothing_is_begun_again(void **state)
{
    static const enum op_kind kind[] = {OPK_RECV, OPK_RECV_POOL, OPK_SEND, OPK_SENDMSG};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(kind); i++) {
        struct ring *r = open_ring();
        char room[8] = "there";
        struct iovec piece = {room, 5};
        struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1};
        int client, fd = connect_and_accept(r, &client);
        struct op op = {.kind = (uint8_t)kind[i], .fd = fd, .mem = room, .len = 5, .busy = true,
                        .each = note};
        struct io_uring_cqe nothing = {.user_data = (uintptr_t)&op, .res = -EAGAIN};
        if (kind[i] == OPK_SENDMSG)
            op.mem = &msg;
        complete(r, &nothing);
        assert_int_equal(told, 0);
        assert_int_equal(write(client, "here!", 5), 5);
        until_told(r, 1);
        assert_int_equal(last, 5);
        close(fd);
        close(client);
        ring_free(r);
    }
}

static void a_buffer_that_came_with_nothing_goes_back(void **state)
{
    struct ring *r = open_ring();
    int client, fd = connect_and_accept(r, &client);
    struct op op = {.kind = OPK_RECV_POOL, .fd = fd, .busy = true, .each = note};
    struct io_uring_cqe nothing = {.user_data = (uintptr_t)&op, .res = -EAGAIN,
                                   .flags = IORING_CQE_F_BUFFER};
    uint16_t before = r->provided->tail;

    (void)state;
    complete(r, &nothing);
    assert_int_equal((uint16_t)(r->provided->tail - before), 1);
    close(fd);
    close(client);
    ring_free(r);
}

/* What has come, behind *read bytes: those that were sent, in their order. */
static void drain(int fd, size_t *read)
{
    static uint8_t got[256 * KIB];
    ssize_t n;

    while ((n = recv(fd, got, sizeof got, MSG_DONTWAIT)) > 0)
        for (ssize_t i = 0; i < n; i++, ++*read)
            if (got[i] != pattern(*read))
                fail_msg("byte %zu is another one", *read);
}

/* Nobody reads: pages are lent as far as there is room, then the rest waits, and never a call. */
static void pages_that_find_no_room_wait_for_it(void **state)
{
    struct ring *r = open_ring();
    int client, fd = connect_and_accept(r, &client);
    uint8_t *much = mem_take_aligned(MUCH, 4 * KIB);
    size_t sent = 0, read = 0;

    (void)state;
    alarm(PATIENCE_MS / 1000);       /* a call that waits for room would never return */
    for (size_t i = 0; i < MUCH; i++)
        much[i] = pattern(i);
    for (unsigned i = 1; sent < MUCH; i++) {
        struct iovec piece = {much + sent, MUCH - sent};
        struct msghdr msg = {.msg_iov = &piece, .msg_iovlen = 1};
        struct op op;
        begin(r, &op, OPK_SEND_PAGES, fd, &msg, sizeof msg);
        ring_turn(r, 20);
        while (told < i) {           /* full: it is told once there is room */
            drain(client, &read);
            ring_turn(r, 20);
        }
        assert_true(last > 0);
        sent += (size_t)last;
    }
    while (read < MUCH)
        drain(client, &read);
    alarm(0);
    close(fd);
    close(client);
    mem_give(much);
    ring_free(r);
}

static struct op *told_first;

static void note_first(struct op *op, int32_t res)
{
    if (told == 0)
        told_first = op;
    note(op, res);
}

/* Its bytes are there, so the kernel would take them before it sends what was submitted behind. */
static void what_is_received_last_waits_for_the_turns_end(void **state)
{
    struct ring *r = open_ring();
    char got[8];
    int client, fd = connect_and_accept(r, &client);
    struct op receive = {.kind = OPK_RECV, .fd = fd, .mem = got, .len = sizeof got, .off = true,
                         .busy = true, .each = note_first};
    struct op send = {.kind = OPK_SEND, .fd = fd, .mem = got, .len = 1, .busy = true,
                      .each = note_first};

    (void)state;
    assert_int_equal(write(client, "here", 4), 4);
    ring_submit(r, &receive);
    ring_submit(r, &send);
    until_told(r, 2);
    assert_ptr_equal(told_first, &send);
    assert_memory_equal(got, "here", 4);
    close(fd);
    close(client);
    ring_free(r);
}

/* A cancellation finds only what the kernel has: one that was left for the turn's end would begin
 * behind it, and never end. */
static void what_is_received_last_can_be_cancelled_in_the_same_turn(void **state)
{
    struct ring *r = open_ring();
    char got[8];
    int client, fd = connect_and_accept(r, &client);
    struct op receive = {.kind = OPK_RECV, .fd = fd, .mem = got, .len = sizeof got, .off = true,
                         .busy = true, .each = note};
    struct op cancel;

    (void)state;
    ring_submit(r, &receive);
    begin(r, &cancel, OPK_CANCEL, -1, &receive, 0);
    until_told(r, 2);
    assert_int_equal(receive.res, -ECANCELED);
    close(fd);
    close(client);
    ring_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accepted_socket_is_not_blocking_and_waited_for),
        cmocka_unit_test(a_transfer_that_found_nothing_is_begun_again),
        cmocka_unit_test(a_buffer_that_came_with_nothing_goes_back),
        cmocka_unit_test(pages_that_find_no_room_wait_for_it),
        cmocka_unit_test(what_is_received_last_waits_for_the_turns_end),
        cmocka_unit_test(what_is_received_last_can_be_cancelled_in_the_same_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
