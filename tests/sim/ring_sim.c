/* The simulated back end of loop.h: operations on the simulation's sockets and on real files, each
 * completed at a moment and in an order that the seed chooses.
 *
 * Invariants:
 *  1. An operation is carried out when it completes, never before: its memory must be whole until
 *     then. A send may take its bytes piece by piece.
 *  2. What the kernel promises holds: MSG_WAITALL, one completion per operation but for accept, a
 *     cancelled one completes as well, an operation on a file cannot be cancelled.
 *  3. A provided buffer is readable only between its completion and its return.
 *
 * Life: ring_make() on the core's thread, ring_free() after its last turn; what is under way then
 * is forgotten.
 * Failure: none of its own; inject.c replaces completions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sanitizer/asan_interface.h>

#include "server/loop/loop.h"
#include "tests/sim/sim.h"

enum { SLOTS_MAX = 4096, RECV_BUFFER_BYTES = 4 * KIB, DELAY_US_MOST = 300, PAGES_MOST = 2 * MIB };

struct slot {                        /* an operation under way */
    struct op *op;
    uint64_t due_us;                 /* not before */
    uint32_t sent;                   /* of a send that waits for room */
    bool cancelled;
};
struct ring {
    struct core *core;
    uint8_t *recv_memory;
    unsigned recv_buffers, free_count;
    uint16_t *free_buffer;
    uint64_t enters;
    unsigned count;
    struct slot slot[SLOTS_MAX];
};

/* ---- set-up ---- */

enum err core_probe(struct core_start_error *why)
{
    why->text[0] = '\0';
    return OK;
}

enum err ring_make(struct core *c, const struct core_plan *plan, struct ring **out,
                   struct core_start_error *why)
{
    (void)why;
    sim_enter();
    struct ring *r = mem_take(sizeof *r);
    must(r);
    r->core = c;
    r->recv_buffers = r->free_count = plan->recv_buffers;
    r->recv_memory = mem_take_aligned((size_t)plan->recv_buffers * RECV_BUFFER_BYTES, 4096);
    r->free_buffer = mem_take(plan->recv_buffers * sizeof *r->free_buffer);
    must(r->recv_memory && r->free_buffer);
    for (unsigned i = 0; i < r->recv_buffers; i++)
        r->free_buffer[i] = (uint16_t)i;
    ASAN_POISON_MEMORY_REGION(r->recv_memory, (size_t)r->recv_buffers * RECV_BUFFER_BYTES);
    sim_self()->name = "core";
    sim_self()->private_ = r;
    sim_leave();
    *out = r;
    return OK;
}

void ring_free(struct ring *r)
{
    ASAN_UNPOISON_MEMORY_REGION(r->recv_memory, (size_t)r->recv_buffers * RECV_BUFFER_BYTES);
    mem_give(r->recv_memory);
    mem_give(r->free_buffer);
    mem_give(r);
}

void ring_submit(struct ring *r, struct op *op)
{
    if (r->count == SLOTS_MAX)
        sim_fail("too many operations are under way");
    uint64_t delay = sim_one_in(3) ? sim_below(DELAY_US_MOST) : sim_below(20);
    r->slot[r->count++] = (struct slot){.op = op, .due_us = world.now_us + delay};
}

/* ---- what may complete ---- */

static bool is_socket_op(const struct op *op)
{
    switch ((enum op_kind)op->kind) {
    case OPK_RECV:
    case OPK_RECV_POOL:
    case OPK_SEND:
    case OPK_SENDMSG:
    case OPK_SEND_PAGES:
    case OPK_POLL_OUT:
    case OPK_ACCEPT:
    case OPK_ACCEPT_ONE: return true;
    case OPK_READ: return sim_is_fd(op->fd);
    default: return false;
    }
}

static bool may_complete(const struct slot *s)
{
    const struct op *op = s->op;

    bool file = (op->kind == OPK_READ || op->kind == OPK_WRITE) && !sim_is_fd(op->fd);

    if (s->due_us > world.now_us || (file && world.frozen))
        return false;
    if (s->cancelled || !is_socket_op(op) || !sim_is_fd(op->fd))
        return true;
    switch ((enum op_kind)op->kind) {
    case OPK_ACCEPT:
    case OPK_ACCEPT_ONE: return wire_can_accept(op->fd);
    case OPK_SEND:
    case OPK_SENDMSG:
    case OPK_SEND_PAGES:
    case OPK_POLL_OUT: return wire_can_put(op->fd);
    default: return wire_can_take(op->fd);
    }
}

static bool something_completes(void *argument)
{
    const struct ring *r = argument;

    for (unsigned i = 0; i < r->count; i++)
        if (may_complete(&r->slot[i]))
            return true;
    return false;
}

static uint64_t next_due_us(const struct ring *r)
{
    uint64_t next = UINT64_MAX;

    for (unsigned i = 0; i < r->count; i++)
        if (r->slot[i].due_us > world.now_us)
            next = min_u64(next, r->slot[i].due_us);
    return next;
}

/* ---- carrying out ---- */

static uint32_t bytes_of(const struct op *op)
{
    const struct msghdr *msg = op->mem;
    uint32_t sum = 0;

    if (op->kind == OPK_RECV_POOL)
        return RECV_BUFFER_BYTES;
    if (op->kind != OPK_SENDMSG && op->kind != OPK_SEND_PAGES)
        return op->len;
    for (size_t i = 0; i < msg->msg_iovlen; i++)
        sum += (uint32_t)msg->msg_iov[i].iov_len;
    return sum;
}

/* Sends from byte `from` of the list on, at most `most`; what the socket takes, or an error. */
static int32_t put_list(const struct op *op, uint32_t from, uint32_t most)
{
    const struct iovec one = {op->mem, op->len};
    const struct msghdr *msg = op->mem;
    bool list = op->kind != OPK_SEND;
    const struct iovec *v = list ? msg->msg_iov : &one;
    size_t count = list ? msg->msg_iovlen : 1;
    uint32_t done = 0;

    for (size_t i = 0; i < count && done < most; i++) {
        if (from >= v[i].iov_len) {
            from -= (uint32_t)v[i].iov_len;
            continue;
        }
        uint32_t want = (uint32_t)min_u64(v[i].iov_len - from, most - done);
        int32_t n = wire_put(op->fd, (const char *)v[i].iov_base + from, want);
        if (n < 0)
            return done > 0 ? (int32_t)done : n;
        done += (uint32_t)n;
        if ((uint32_t)n < want)
            break;
        from = 0;
    }
    return (int32_t)done;
}

/* True: it is over, *res tells. A send waits until all of it went out, or an error. */
static bool send_on(struct slot *s, int32_t *res)
{
    uint32_t want = bytes_of(s->op), part;

    if (s->sent == 0 && inject_op(s->op, want, res, &part)) {
        if (part > 0)
            *res = put_list(s->op, 0, part);
        return *res != -EAGAIN || part == 0;
    }
    if (s->op->kind == OPK_SEND_PAGES) {
        *res = put_list(s->op, 0, PAGES_MOST);
        return *res != -EAGAIN;
    }
    int32_t n = put_list(s->op, s->sent, want - s->sent);
    if (n == -EAGAIN)
        return false;
    if (n < 0) {
        *res = s->sent > 0 ? (int32_t)s->sent : n;
        return true;
    }
    s->sent += (uint32_t)n;
    *res = (int32_t)s->sent;
    return s->sent == want || s->op->off; /* off: op_send_some() */
}

static int32_t take_pooled(struct ring *r, struct op *op, uint32_t most, uint32_t *flags)
{
    if (r->free_count == 0)
        return -ENOBUFS;
    unsigned at = (unsigned)sim_below(r->free_count);
    unsigned number = r->free_buffer[at];
    uint8_t *mem = r->recv_memory + (size_t)number * RECV_BUFFER_BYTES;
    ASAN_UNPOISON_MEMORY_REGION(mem, RECV_BUFFER_BYTES);
    int32_t n = wire_take(op->fd, mem, most, false);
    if (n <= 0) {
        ASAN_POISON_MEMORY_REGION(mem, RECV_BUFFER_BYTES);
        return n;
    }
    ASAN_POISON_MEMORY_REGION(mem + round_up((uint64_t)n, 8),
                              RECV_BUFFER_BYTES - round_up((uint64_t)n, 8));
    r->free_buffer[at] = r->free_buffer[--r->free_count];
    *flags = number + 1;
    return n;
}

static int32_t or_errno(int64_t n)
{
    return n < 0 ? -errno : (int32_t)n;
}

static int32_t connect_now(const struct op *op)
{
    return wire_connect(op->fd, op->mem);
}

static int32_t close_now(const struct op *op)
{
    return sim_is_fd(op->fd) ? wire_close(op->fd) : or_errno(close(op->fd));
}

/* The target goes on to complete, as cancelled if that is possible and the seed wants it. */
static int32_t cancel_now(struct ring *r, const struct op *op)
{
    for (unsigned i = 0; i < r->count; i++) {
        struct slot *s = &r->slot[i];
        if (s->op != op->mem)
            continue;
        bool may = is_socket_op(s->op) || s->op->kind == OPK_CONNECT;
        if (!may || (may_complete(s) && sim_one_in(2)))
            return -EALREADY;
        s->cancelled = true;
        s->due_us = world.now_us;
        return 0;
    }
    return -ENOENT;
}

static int32_t carry_out(struct ring *r, struct op *op, uint32_t most, uint32_t *flags)
{
    switch ((enum op_kind)op->kind) {
    case OPK_READ:
        return sim_is_fd(op->fd) ? wire_take(op->fd, op->mem, most, false)
                                 : or_errno(pread(op->fd, op->mem, most, (off_t)op->off));
    case OPK_WRITE: return or_errno(pwrite(op->fd, op->mem, most, (off_t)op->off));
    case OPK_RECV: return wire_take(op->fd, op->mem, most, false);
    case OPK_RECV_POOL: return take_pooled(r, op, most, flags);
    case OPK_ACCEPT:
    case OPK_ACCEPT_ONE: return wire_accept(op->fd);
    case OPK_POLL_OUT: return POLLOUT;
    case OPK_CONNECT: return connect_now(op);
    case OPK_CLOSE: return close_now(op);
    case OPK_FSYNC: return or_errno(fdatasync(op->fd));
    case OPK_OPENAT2:
        return or_errno(syscall(SYS_openat2, op->fd, op->mem, (void *)(uintptr_t)op->off,
                                (size_t)op->len));
    case OPK_STATX:
        return or_errno(statx(op->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, op->mem));
    case OPK_CANCEL: return cancel_now(r, op);
    default: panic(__FILE__, __LINE__, "unknown op");
    }
}

/* A short transfer to or from a disk ends at a sector. */
static uint32_t part_of(const struct op *op, uint32_t part)
{
    bool file = (op->kind == OPK_READ || op->kind == OPK_WRITE) && !sim_is_fd(op->fd);
    return file && part > 512 ? part / 512 * 512 : part;
}

/* True: it is over. */
static bool perform(struct ring *r, struct slot *s, int32_t *res, uint32_t *flags)
{
    struct op *op = s->op;
    uint32_t part = 0, len = bytes_of(op);

    if (s->cancelled) {
        *res = s->sent > 0 ? (int32_t)s->sent : -ECANCELED;
        return true;
    }
    if (is_socket_op(op) && !sim_is_fd(op->fd)) {
        *res = -EBADF;
        return true;
    }
    if (op->kind == OPK_SEND || op->kind == OPK_SENDMSG || op->kind == OPK_SEND_PAGES)
        return send_on(s, res);
    if (!inject_op(op, len, res, &part)) {
        *res = carry_out(r, op, len, flags);
        return *res != -EAGAIN || !is_socket_op(op);
    }
    if (part > 0)
        *res = carry_out(r, op, part_of(op, part), flags);
    else if (op->kind == OPK_CLOSE || op->kind == OPK_CANCEL)
        (void)carry_out(r, op, 0, flags); /* done in any case, whatever is said */
    return true;
}

static void drop_slot(struct ring *r, struct op *op)
{
    for (unsigned i = 0; i < r->count; i++)
        if (r->slot[i].op == op) {
            r->slot[i] = r->slot[--r->count];
            return;
        }
}

/* In an order that chance gives; some wait for the next turn. */
static void complete_some(struct ring *r)
{
    struct op *ready[SLOTS_MAX];
    unsigned count = 0;

    for (unsigned i = 0; i < r->count; i++)
        if (may_complete(&r->slot[i]))
            ready[count++] = r->slot[i].op;
    while (count > 0) {
        unsigned at = (unsigned)sim_below(count), i = 0;
        struct op *op = ready[at];
        ready[at] = ready[--count];
        while (i < r->count && r->slot[i].op != op)
            i++;
        int32_t res = 0;
        uint32_t flags = 0;
        if (i == r->count || !perform(r, &r->slot[i], &res, &flags))
            continue;
        bool more = op->kind == OPK_ACCEPT && res >= 0;
        if (!more)
            drop_slot(r, op);
        core_complete(r->core, op, res, flags, more);
        if (sim_one_in(5))
            break;
    }
}

void ring_turn(struct ring *r, uint64_t wait_ms)
{
    sim_enter();
    r->enters++;
    world.now_us += 1 + sim_below(10);
    uint64_t until = wait_ms >= UINT64_MAX / 1000 ? UINT64_MAX : world.now_us + wait_ms * 1000;
    do
        sim_block(something_completes, r, min_u64(until, next_due_us(r)));
    while (!something_completes(r) && world.now_us < until);
    complete_some(r);
    sim_leave();
}

/* ---- small questions ---- */

uint64_t ring_enter_count(const struct ring *r)
{
    return r->enters;
}

void *ring_recv_memory(struct ring *r, const struct op *op)
{
    must(op->flags > 0 && op->flags <= r->recv_buffers);
    return r->recv_memory + (size_t)(op->flags - 1) * RECV_BUFFER_BYTES;
}

void ring_recv_give(struct ring *r, const struct op *op)
{
    must(op->flags > 0 && op->flags <= r->recv_buffers && r->free_count < r->recv_buffers);
    ASAN_POISON_MEMORY_REGION(r->recv_memory + (size_t)(op->flags - 1) * RECV_BUFFER_BYTES,
                              RECV_BUFFER_BYTES);
    r->free_buffer[r->free_count++] = (uint16_t)(op->flags - 1);
}
