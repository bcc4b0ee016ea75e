/* Messages from any thread to a core: a lock-free stack and an event descriptor.
 *
 * Invariants:
 *  1. A message is delivered exactly once, on the core's thread, in the order in which its sender
 *     sent.
 *  2. Only the sender that finds the stack empty rings; the bell is heard even if the core is about
 *     to wait. A core that sends to itself does not ring: it looks again before it waits.
 *
 * Life: opened with its core; the sender owns a message again once deliver() ran.
 * Failure: none; sending never allocates and never blocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/loop/loop.h"

static void heard(struct op *op, int32_t res)
{
    struct inbox *b = container_of(op, struct inbox, op);
    (void)res;                       /* the count says nothing: the stack tells */
    inbox_listen(b);
}

enum err inbox_open(struct inbox *b, struct core *c)
{
    *b = (struct inbox){.core = c};
    b->event_fd = eventfd(0, EFD_CLOEXEC);
    return b->event_fd >= 0 ? OK : ERR_SYSTEM;
}

void inbox_listen(struct inbox *b)
{
    b->op = (struct op){.each = heard, .kind = OPK_READ, .fd = b->event_fd, .mem = &b->event_value,
                        .len = sizeof(b->event_value)};
    core_submit(NULL, &b->op);
}

void inbox_ring(struct inbox *b)
{
    uint64_t one = 1;
    ssize_t n = write(b->event_fd, &one, sizeof(one));
    (void)n;                         /* EAGAIN at 2^64-1 only: then the bell rings anyway */
}

void core_send(struct core *to, struct message *msg)
{
    struct inbox *b = core_inbox(to);
    struct message *newest = atomic_load_explicit(&b->newest, memory_order_relaxed);
    do {
        msg->next = newest;
    } while (!atomic_compare_exchange_weak_explicit(&b->newest, &newest, msg, memory_order_release,
                                                    memory_order_relaxed));
    if (!newest && !core_is_here(to))
        inbox_ring(b);
}

bool inbox_waits(const struct inbox *b)
{
    return atomic_load_explicit(&b->newest, memory_order_relaxed) != NULL;
}

void inbox_deliver(struct inbox *b)
{
    if (!inbox_waits(b))
        return;
    struct message *got = atomic_exchange_explicit(&b->newest, NULL, memory_order_acquire);
    struct message *oldest = NULL;
    while (got) {                    /* the stack holds the newest first */
        struct message *next = got->next;
        got->next = oldest;
        oldest = got;
        got = next;
    }
    while (oldest) {
        struct message *next = oldest->next;
        oldest->deliver(b->core, oldest); /* may reuse or free the message */
        oldest = next;
    }
}

void inbox_close(struct inbox *b)
{
    if (b->event_fd >= 0)
        close(b->event_fd);
    b->event_fd = -1;
}
