/* The real back end of loop.h: one io_uring per core.
 *
 * Invariants:
 *  1. One thread makes, uses and frees a ring (SINGLE_ISSUER); completions are run only when we ask
 *     (DEFER_TASKRUN): one enter a turn.
 *     These flags are not optional: without them a 4 KiB answer costs 1.6 times the CPU (9.3
 *     against 5.8 us), so start-up fails with words instead.
 *  2. Every SQE is made here from a described op; the user data of an SQE is its op.
 *  3. Received bytes of OPK_RECV_POOL stand in a provided buffer of 4 KiB until it is given back.
 *
 * Life: ring_make() on the core's thread, ring_free() after the last turn; the kernel cancels what
 * is still under way.
 * Failure: set-up errors become a sentence with the fix; a full submission queue is flushed; CQ
 * overflow is kept by the kernel and reaped by the next turns. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "log.h"
#include "server/loop/loop.h"
#if defined(HEADPOND_ASAN)
#include <sanitizer/asan_interface.h>
#endif

enum {
    SQ_ENTRIES = 1024,
    CQ_ENTRIES = 8192,
    RECV_BUFFER_BYTES = 4 * KIB,
    RECV_GROUP = 1,
    REAP_MAX = 256,
    OP_AHEAD = 8,                    /* completions; the line that names its machine comes first */
    MACHINE_AHEAD = 4,
    RING_KIB = 224,                  /* of queues and 1024 provided buffers, measured on 6.18 */
};

struct ring {
    struct io_uring uring;
    struct core *core;
    struct io_uring_buf_ring *provided;
    uint8_t *recv_memory;
    size_t provided_bytes, recv_bytes;
    unsigned recv_buffers;
    struct page_pipe pages;
    struct op *done;                 /* pages that were sent at once; told by the next turn */
    struct op *last, **last_end;     /* op_recv_last(): submitted when the turn ends, in order */
    uint64_t enters;
};

/* ---- set-up ---- */

/* Kernels count rings, and rings of provided buffers, as locked memory (6.18 does) or against the
 * memory group only (6.1): the fix differs. */
static void explain_memory(struct core_start_error *why, const char *call)
{
    struct rlimit limit = {0};
    struct text t;

    getrlimit(RLIMIT_MEMLOCK, &limit);
    text_init(&t, why->text, sizeof(why->text));
    text_addf(&t, "%s: %s: ", call, strerrordesc_np(ENOMEM));
    if (limit.rlim_cur == RLIM_INFINITY)
        text_adds(&t, "RLIMIT_MEMLOCK is unlimited; raise the memory limit of the container or "
                      "service");
    else
        text_addf(
            &t,
            "RLIMIT_MEMLOCK is %llu KiB for all processes of this user, a worker takes %u "
            "KiB; LimitMEMLOCK=infinity in the unit, --ulimit memlock=-1 in Docker, ulimit -l "
            "in a shell, or fewer server.workers; else more memory for the container",
            (unsigned long long)limit.rlim_cur / KIB, RING_KIB);
}

/* "cause; fix", neither longer than the log's values are. */
static void explain(struct core_start_error *why, int error)
{
    const char *fix =
        error == EPERM ? "io_uring is forbidden here; in Docker --security-opt "
                         "seccomp=" HEADPOND_PREFIX "/share/headpond/seccomp.json, in Kubernetes "
                         "a Localhost seccomp profile "
                         "with the three io_uring calls, elsewhere sysctl "
                         "kernel.io_uring_disabled=0"
        : error == ENOSYS
            ? "this kernel has no io_uring, or a sandbox hides it; Linux 6.1 or newer "
              "is needed"
        : error == EINVAL ? "this kernel lacks SINGLE_ISSUER or DEFER_TASKRUN; Linux 6.1 or newer "
                            "is needed"
                          : "no ring could be made";
    if (error == ENOMEM)
        explain_memory(why, "io_uring_setup");
    else
        snprintf(why->text, sizeof(why->text), "io_uring_setup: %s: %s", strerrordesc_np(error),
                 fix);
}

static int set_up(struct io_uring *uring, unsigned entries)
{
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE |
                 IORING_SETUP_CLAMP,
        .cq_entries = entries * (CQ_ENTRIES / SQ_ENTRIES),
    };
    return -io_uring_queue_init_params(entries, uring, &params);
}

enum err core_probe(struct core_start_error *why)
{
    struct io_uring uring;
    int error = set_up(&uring, 8);
    if (error) {
        explain(why, error);
        return error == EPERM ? ERR_DENIED : ERR_UNSUPPORTED;
    }
    io_uring_queue_exit(&uring);
    why->text[0] = '\0';
    return OK;
}

static void *map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static enum err provide_buffers(struct ring *r, unsigned count, struct core_start_error *why)
{
    r->recv_buffers = count;
    r->provided_bytes = count * sizeof(struct io_uring_buf);
    r->recv_bytes = (size_t)count * RECV_BUFFER_BYTES;
    r->provided = map(r->provided_bytes);
    r->recv_memory = map(r->recv_bytes);
    if (!r->provided || !r->recv_memory) {
        snprintf(why->text, sizeof(why->text), "no memory for %u receive buffers", count);
        return ERR_MEMORY;
    }
    io_uring_buf_ring_init(r->provided);
    struct io_uring_buf_reg reg = {
        .ring_addr = (uint64_t)(uintptr_t)r->provided, .ring_entries = count, .bgid = RECV_GROUP};
    int error = -io_uring_register_buf_ring(&r->uring, &reg, 0);
    if (error == ENOMEM) {
        explain_memory(why, "io_uring_register");
        return ERR_MEMORY;
    }
    if (error) {
        snprintf(why->text, sizeof(why->text),
                 "provided buffer rings are refused (%s): Linux 6.1 or newer is needed",
                 strerrordesc_np(error));
        return ERR_UNSUPPORTED;
    }
    for (unsigned i = 0; i < count; i++)
        io_uring_buf_ring_add(r->provided, r->recv_memory + (size_t)i * RECV_BUFFER_BYTES,
                              RECV_BUFFER_BYTES, (unsigned short)i, io_uring_buf_ring_mask(count),
                              (int)i);
    io_uring_buf_ring_advance(r->provided, (int)count);
    return OK;
}

enum err ring_make(struct core *c, const struct core_plan *plan, struct ring **out,
                   struct core_start_error *why)
{
    struct ring *r = mem_take(sizeof(*r));
    if (!r) {
        snprintf(why->text, sizeof(why->text), "no memory for a ring");
        return ERR_MEMORY;
    }
    r->core = c;
    r->last_end = &r->last;
    int error = set_up(&r->uring, SQ_ENTRIES);
    if (error) {
        explain(why, error);
        mem_give(r);
        return error == EPERM ? ERR_DENIED : ERR_UNSUPPORTED;
    }
    /* saves a descriptor look-up per enter; refusal changes nothing else */
    io_uring_register_ring_fd(&r->uring);
    pages_open(&r->pages);           /* without it large sends are copied */
    enum err e = provide_buffers(r, plan->recv_buffers, why);
    if (e != OK) {
        ring_free(r);
        return e;
    }
    *out = r;
    return OK;
}

void ring_free(struct ring *r)
{
    io_uring_queue_exit(&r->uring);
    pages_close(&r->pages);
    if (r->provided)
        munmap(r->provided, r->provided_bytes);
    if (r->recv_memory)
        munmap(r->recv_memory, r->recv_bytes);
    mem_give(r);
}

/* ---- the door ---- */

static struct io_uring_sqe *sqe_of(struct ring *r)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    if (!sqe) {                      /* more than SQ_ENTRIES in one turn: hand over what is there */
        r->enters++;
        io_uring_submit(&r->uring);
        sqe = io_uring_get_sqe(&r->uring);
        must(sqe != NULL);
    }
    return sqe;
}

/* Non-blocking for pages.c: to make them so for each send cost a 64 KiB hit three system calls. */
enum { ACCEPT_FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK };

static void prepare_socket(struct op *op, struct io_uring_sqe *sqe)
{
    /* off: op_send_some() */
    const int send_flags = op->off ? MSG_NOSIGNAL : MSG_NOSIGNAL | MSG_WAITALL;
    switch ((enum op_kind)op->kind) {
    case OPK_RECV: io_uring_prep_recv(sqe, op->fd, op->mem, op->len, 0); break;
    case OPK_RECV_POOL:
        io_uring_prep_recv(sqe, op->fd, NULL, RECV_BUFFER_BYTES, 0);
        sqe->flags |= IOSQE_BUFFER_SELECT;
        sqe->buf_group = RECV_GROUP;
        if (op->off)                 /* nothing is expected yet: do not try before polling */
            sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
        break;
    case OPK_SEND: io_uring_prep_send(sqe, op->fd, op->mem, op->len, send_flags); break;
    case OPK_SENDMSG: io_uring_prep_sendmsg(sqe, op->fd, op->mem, send_flags); break;
    case OPK_ACCEPT:
        io_uring_prep_multishot_accept(sqe, op->fd, NULL, NULL, ACCEPT_FLAGS);
        break;
    case OPK_ACCEPT_ONE: io_uring_prep_accept(sqe, op->fd, NULL, NULL, ACCEPT_FLAGS); break;
    case OPK_POLL_OUT: io_uring_prep_poll_add(sqe, op->fd, POLLOUT); break;
    case OPK_CONNECT: io_uring_prep_connect(sqe, op->fd, op->mem, op->len); break;
    default: panic(__FILE__, __LINE__, "unknown op");
    }
}

/* Lends as much as the socket takes now; the rest of the time it waits for room with a poll. */
static void send_pages(struct ring *r, struct op *op)
{
    op->res = pages_send(&r->pages, op);
    if (op->res != -EAGAIN) {
        op->next_done = r->done;     /* told by the next turn: a step is running now */
        r->done = op;
        return;
    }
    struct io_uring_sqe *sqe = sqe_of(r);
    io_uring_prep_poll_add(sqe, op->fd, POLLOUT);
    io_uring_sqe_set_data(sqe, op);
}

/* The kernel begins operations in the order of their submission, and does at once what it can. */
static void submit_last(struct ring *r)
{
    struct op *op = r->last;
    r->last = NULL;
    r->last_end = &r->last;
    while (op) {
        struct op *next = op->next_done;
        struct io_uring_sqe *sqe = sqe_of(r);
        prepare_socket(op, sqe);
        io_uring_sqe_set_data(sqe, op);
        op = next;
    }
}

void ring_submit(struct ring *r, struct op *op)
{
    if (op->kind == OPK_SEND_PAGES) {
        send_pages(r, op);
        return;
    }
    if (op->kind == OPK_RECV && op->off) {
        op->next_done = NULL;
        *r->last_end = op;
        r->last_end = &op->next_done;
        return;
    }
    if (op->kind == OPK_CANCEL)      /* finds only what was submitted before it */
        submit_last(r);
    struct io_uring_sqe *sqe = sqe_of(r);
    switch ((enum op_kind)op->kind) {
    case OPK_READ: io_uring_prep_read(sqe, op->fd, op->mem, op->len, op->off); break;
    case OPK_WRITE: io_uring_prep_write(sqe, op->fd, op->mem, op->len, op->off); break;
    case OPK_CLOSE: io_uring_prep_close(sqe, op->fd); break;
    case OPK_FSYNC: io_uring_prep_fsync(sqe, op->fd, IORING_FSYNC_DATASYNC); break;
    case OPK_OPENAT2:
        io_uring_prep_openat2(sqe, op->fd, op->mem, (struct open_how *)(uintptr_t)op->off);
        break;
    case OPK_STATX:
        io_uring_prep_statx(sqe, op->fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC,
                            STATX_BASIC_STATS, op->mem);
        break;
    case OPK_CANCEL: io_uring_prep_cancel(sqe, op->mem, 0); break;
    default: prepare_socket(op, sqe); break;
    }
    if (op->blocks && (op->kind == OPK_READ || op->kind == OPK_WRITE))
        sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data(sqe, op);
}

static void report_done(struct ring *r)
{
    struct op *op = r->done;
    r->done = NULL;
    while (op) {
        struct op *next = op->next_done;
        core_complete(r->core, op, op->res, 0, false);
        op = next;
    }
}

static bool is_transfer(const struct op *op)
{
    return op->kind == OPK_RECV || op->kind == OPK_RECV_POOL || op->kind == OPK_SEND ||
        op->kind == OPK_SENDMSG;
}

/* The ring waits until a socket is ready, also one that does not block. Should it say otherwise, as
 * it may after many polls in vain, it is asked again. */
static void again(struct ring *r, struct op *op, const struct io_uring_cqe *cqe)
{
    op->flags = cqe->flags;
    if (cqe->flags & IORING_CQE_F_BUFFER)
        ring_recv_give(r, op);
    ring_submit(r, op);
}

static void complete(struct ring *r, const struct io_uring_cqe *cqe)
{
    struct op *op = io_uring_cqe_get_data(cqe);
    if (op->kind == OPK_SEND_PAGES && cqe->res != -ECANCELED)
        send_pages(r, op);           /* there is room, or the peer is gone: trying tells */
    else if (cqe->res == -EAGAIN && is_transfer(op))
        again(r, op, cqe);
    else
        core_complete(r->core, op, cqe->res, cqe->flags, cqe->flags & IORING_CQE_F_MORE);
}

/* Between two answers of one of a thousand connections the processor's caches have lost what it
 * stands in: with it fetched while others complete, 4 KiB hits at 1024 connections were faster in
 * nine of twelve pairs of runs, by 4 % in the middle (at 64 no change). An operation whose
 * completion nobody has seen is there, and so is its machine. */
static void prefetch(struct io_uring_cqe *const *cqe, unsigned count)
{
    if (count > OP_AHEAD)
        __builtin_prefetch(io_uring_cqe_get_data(cqe[OP_AHEAD]), 1);
    if (count > MACHINE_AHEAD) {
        const struct op *op = io_uring_cqe_get_data(cqe[MACHINE_AHEAD]);
        __builtin_prefetch(op->m, 1);
    }
}

static void reap(struct ring *r)
{
    struct io_uring_cqe *cqe[REAP_MAX];
    unsigned count;
    do {
        count = io_uring_peek_batch_cqe(&r->uring, cqe, REAP_MAX);
        for (unsigned i = 0; i < count; i++) {
            prefetch(cqe + i, count - i);
            complete(r, cqe[i]);
        }
        io_uring_cq_advance(&r->uring, count);
    } while (count == REAP_MAX);
}

void ring_turn(struct ring *r, uint64_t wait_ms)
{
    struct io_uring_cqe *cqe;
    submit_last(r);
    r->enters++;
    if (wait_ms == 0 || r->done) {
        io_uring_submit_and_get_events(&r->uring);
    } else {
        struct __kernel_timespec limit = {.tv_sec = (long long)(wait_ms / 1000),
                                          .tv_nsec = (long long)(wait_ms % 1000) * 1000000};
        io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, wait_ms == UINT64_MAX ? NULL : &limit,
                                         NULL);
    /* EINTR, ETIME, EBUSY: whatever is there is reaped, the next turn goes on */
    }
    reap(r);
    report_done(r);
}

/* ---- small questions ---- */

uint64_t ring_enter_count(const struct ring *r)
{
    return r->enters;
}

static unsigned buffer_of(const struct op *op)
{
    must(op->flags & IORING_CQE_F_BUFFER);
    return op->flags >> IORING_CQE_BUFFER_SHIFT;
}

void *ring_recv_memory(struct ring *r, const struct op *op)
{
    return r->recv_memory + (size_t)buffer_of(op) * RECV_BUFFER_BYTES;
}

void ring_recv_give(struct ring *r, const struct op *op)
{
    unsigned number = buffer_of(op);
    io_uring_buf_ring_add(r->provided, r->recv_memory + (size_t)number * RECV_BUFFER_BYTES,
                          RECV_BUFFER_BYTES, (unsigned short)number,
                          io_uring_buf_ring_mask(r->recv_buffers), 0);
    io_uring_buf_ring_advance(r->provided, 1);
}
