/* Sends every refusable request head over real sockets: whole, and byte by byte.
 *
 * Invariants:
 *  1. Each head has a connection of its own; the answer must be the status of its verdict, then a
 *     close.
 *  2. A reset counts as a close where the server could not read all that was sent: the answer may
 *     be lost then (RFC 9112 9.6).
 *
 * Life: one statement of a client. Failure: the first head that is answered otherwise is named. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/flow/play.h"
#include "tests/lib/bad_heads.h"

enum { REFUSED_MS = 5000, SURELY_READ_BYTES = 8 * KIB };

static unsigned status_of(enum http_verdict v)
{
    switch (v) {
    case HTTP_TOO_LONG: return 414;
    case HTTP_TOO_LARGE: return 431;
    case HTTP_NO_METHOD: return 501;
    case HTTP_NO_VERSION: return 505;
    default: return 400;
    }
}

/* Everything until the close, at most cap-1 bytes; -1: not closed in time. */
static ssize_t read_all(struct client *c, char *out, size_t cap)
{
    uint64_t deadline = clock_us() + REFUSED_MS * 1000;
    size_t have = 0;

    for (;;) {
        if (client_wait(c, deadline) == 0)
            return -1;
        ssize_t n = wire_recv(c, out + have, cap - 1 - have, 0);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    out[have] = 0;
    return (ssize_t)have;
}

/* Stops as soon as the server has something to say. */
static void send_slowly(struct client *c, const struct bad_head *head)
{
    for (size_t i = 0; i < head->len && !c->ended; i++) {
        (void)client_send(c, head->bytes + i, 1, 0, 0);
        if (client_wait(c, 0) != 0)
            return;
    }
}

static bool try_head(struct client *c, const struct bad_head *head, bool slowly)
{
    char answer[8 * KIB];
    unsigned status = 0;
    const char *how = slowly ? "byte by byte" : "whole";

    if (!wire_open(c, c->play->daemon.port))
        return client_fail(c, "%s: cannot connect: %s", head->name, c->refused);
    if (slowly)
        send_slowly(c, head);
    else
        (void)client_send(c, head->bytes, head->len, 0, 0);
    ssize_t got = read_all(c, answer, sizeof answer);
    wire_close(c);
    if (got < 0)
        return client_fail(c, "%s, %s: not closed", head->name, how);
    if (got == 0 && (slowly || head->len > SURELY_READ_BYTES))
        return true;
    if (sscanf(answer, "HTTP/1.1 %u", &status) != 1 || status != status_of(head->verdict))
        return client_fail(c, "%s, %s: %.60s", head->name, how, got ? answer : "closed silently");
    return true;
}

bool bad_heads_run(struct client *c)
{
    for (size_t i = 0; i < ARRAY_COUNT(bad_heads); i++)
        if (!try_head(c, &bad_heads[i], false) || !try_head(c, &bad_heads[i], true))
            return false;
    return true;
}
