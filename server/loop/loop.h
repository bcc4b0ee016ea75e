/* The idiom on a page: operations, machines, steps, timers, inboxes, cores.
 *
 * A flow is a machine: a table of named steps. A step runs to its end without waiting and returns
 * AGAIN (run the next step now), WAIT (something will wake me) or OVER (END only). What a step
 * starts are operations; a completion only marks its op and wakes the machine.
 *
 * Invariants:
 *  1. A core's machines, ops and timers are touched by its own thread only; others send messages to
 *     its inbox.
 *  2. Only the loop steps. Waking links a machine into the ready list; so there is no recursion,
 *     and no step ever frees another machine.
 *  3. An op is busy from op_*() to its completion; its memory belongs to the kernel for that time.
 *     op.res is read only when !op.busy.
 *  4. END is reached only with inflight == 0 (asserted); every error goes FAIL -> DRAIN -> END; the
 *     first error is kept.
 *  5. Every SQE passes core_submit(): the one door. In ASan builds it checks the whole region; a
 *     simulated back end implements the same door.
 *
 * Life: core_start() makes the thread, ring and pools; core_stop() asks it to end; core_join()
 * waits, core_free() frees when all were joined. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_LOOP_H
#define HEADPOND_LOOP_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "base.h"
#include "mem.h"
#include "metric.h"
#include "server/server.h"

/* ---- machines ---- */
enum turn { AGAIN, WAIT, OVER };

struct machine {
    struct node ready;               /* linked while woken */
    struct core *core;
    enum turn (*run)(struct machine *m); /* made by STEP_TABLE: one switch over `at` */
    /* called by the loop after OVER; gives the memory back, wakes the parent */
    void (*over)(struct machine *m);
    const char *const *names;        /* of the steps */
    const char *detail;              /* borrowed; a few words on `why` for logs */
    enum err why;                    /* first error */
    uint16_t inflight;               /* ops and waits that still hold our memory */
    uint8_t at;                      /* current step */
    uint8_t drain;                   /* the step that FAIL goes to */
    bool alive;
};

#define STEP_ENUM_(m_, S_) AT_##m_##_##S_,
#define STEP_NAME_(m_, S_) #m_ "_" #S_,
#define STEP_PROTO_(m_, S_) static enum turn m_##_##S_(struct m_ *);
#define STEP_CASE_(m_, S_) case AT_##m_##_##S_: return m_##_##S_(self);
/* Makes AT_<machine>_<STEP>, prototypes, names and <machine>_run(). The struct's first member is
 * `struct machine m`; the last two steps are DRAIN and END. */
#define STEP_TABLE(machine_, STEPS_)                                                               \
    enum { STEPS_(STEP_ENUM_) };                                                                   \
    STEPS_(STEP_PROTO_)                                                                            \
    static const char *const machine_##_names[] = {STEPS_(STEP_NAME_)};                            \
    static enum turn machine_##_run(struct machine *m)                                             \
    {                                                                                              \
        struct machine_ *self = (struct machine_ *)(void *)m;                                      \
        switch (m->at) { STEPS_(STEP_CASE_) }                                                      \
        panic(__FILE__, __LINE__, "unknown step");                                                 \
    }
/* Inside a step: go on at another step of the same machine. */
#define GO(machine_, self_, STEP_) ((self_)->m.at = AT_##machine_##_##STEP_, AGAIN)
/* Inside a step: keep the first error and go to DRAIN. */
#define FAIL(self_, err_) machine_fail(&(self_)->m, (err_), NULL)

/* Binds a machine whose STEP_TABLE is in scope: MACHINE_BEGIN(get, g, core, get_over). */
#define MACHINE_BEGIN(machine_, self_, core_, over_)                               \
    machine_begin(&(self_)->m, (core_), machine_##_run, (over_), machine_##_names, \
                  AT_##machine_##_DRAIN)

/* Makes it ready at step 0; it runs from the next turn on. Writes all of *m: before it stands where
 * other cores look. The memory is the caller's until over() is called. */
void machine_begin(struct machine *m, struct core *core, enum turn (*run)(struct machine *),
                   void (*over)(struct machine *), const char *const *names, uint8_t drain);
enum turn machine_fail(struct machine *m, enum err why, const char *detail); /* AGAIN, at DRAIN */
void machine_wake(struct machine *m); /* own core only; idempotent */
static inline const char *machine_step(const struct machine *m)
{
    return m->names[m->at];
}

/* ---- operations ---- */
enum op_kind {
    OPK_NONE,
    OPK_READ,
    OPK_WRITE,
    OPK_RECV,
    OPK_RECV_POOL,
    OPK_SEND,
    OPK_SENDMSG, OPK_SEND_PAGES,
    OPK_ACCEPT, OPK_ACCEPT_ONE,
    OPK_CONNECT,
    OPK_CLOSE,
    OPK_FSYNC,
    OPK_OPENAT2,
    OPK_STATX,
    OPK_POLL_OUT,
    OPK_CANCEL
};

struct op {
    struct machine *m;               /* woken at completion; NULL only inside loop/ (inbox) */
    /* accept and loop/'s own ops: one call per completion; may only store */
    void (*each)(struct op *op, int32_t res);
    void *mem;                       /* first byte the kernel may touch */
    uint64_t off;
    uint32_t len;
    int32_t fd;
    int32_t res;                     /* result: count or -errno; valid when !busy */
    uint32_t flags;                  /* of the completion */
    uint8_t kind;
    bool busy;
    bool ended;                      /* a completion came and op_take() has not consumed it */
    /* set before op_read() and op_write() where beginning it may wait: a thread of the kernel's
     * begins it then */
    bool blocks;
    struct op *next_done;            /* private to the back end */
};

static inline bool op_take(struct op *op) /* true once per completion: pump steps ask this */
{
    bool was = op->ended && !op->busy;
    if (was)
        op->ended = false;
    return was;
}
void op_read(struct machine *m, struct op *op, int fd, void *mem, uint32_t len, uint64_t off);
void op_write(struct machine *m, struct op *op, int fd, const void *mem, uint32_t len,
              uint64_t off);
void op_recv(struct machine *m, struct op *op, int fd, void *mem, uint32_t len);
/* The same behind all else that this turn submits, also when bytes are there already: to copy a MiB
 * of them takes 0.3 ms, and what is sent to clients should not wait for it. */
void op_recv_last(struct machine *m, struct op *op, int fd, void *mem, uint32_t len);
/* Receives into a buffer of the core's provided ring: no memory while idle. On res > 0 look with
 * core_recv_bytes(), then give back. */
void op_recv_pool(struct machine *m, struct op *op, int fd, bool expect_idle);
/* MSG_WAITALL | MSG_NOSIGNAL */
void op_send(struct machine *m, struct op *op, int fd, const void *mem, uint32_t len);
/* same; msg and iov stay the op's until completion */
void op_sendmsg(struct machine *m, struct op *op, int fd, struct msghdr *msg);
/* The same two, but they complete as soon as anything was taken, however little. */
void op_send_some(struct machine *m, struct op *op, int fd, const void *mem, uint32_t len);
void op_sendmsg_some(struct machine *m, struct op *op, int fd, struct msghdr *msg);
/* The same without a copy: the first `copied` pieces are copied, the pages of the others are lent
 * to the socket. They may still be read by it, or by the peer, after the completion: such memory is
 * never written again in place, its owner drops the pages instead (MADV_DONTNEED). fd: one that was
 * accepted here, hence non-blocking. */
void op_send_pages(struct machine *m, struct op *op, int fd, struct msghdr *msg, unsigned copied);
/* Completes when the socket has room, or the peer is gone; touches no memory. */
void op_poll_out(struct machine *m, struct op *op, int fd);
void op_accept_multi(struct machine *m, struct op *op, int fd);
void op_accept_one(struct machine *m, struct op *op, int fd);
void op_connect(struct machine *m, struct op *op, int fd, const struct sockaddr *to, socklen_t len);
void op_close(struct machine *m, struct op *op, int fd);
void op_fsync_data(struct machine *m, struct op *op, int fd);
void op_openat2(struct machine *m, struct op *op, int dir_fd, const char *path, void *open_how,
                size_t how_bytes);
/* AT_EMPTY_PATH, STATX_BASIC_STATS; NFS and FUSE ask for them anew (AT_STATX_FORCE_SYNC): what was
 * kept since the open would hide that a file has changed while it was read */
void op_statx(struct machine *m, struct op *op, int fd, void *statx_out);
/* target completes with -ECANCELED or normally; a send that was under way with what was taken */
void op_cancel(struct machine *m, struct op *own, struct op *target);

/* A busy op goes on as another machine's, which is woken instead. Same core. */
void op_hand_over(struct op *op, struct machine *to);

/* Maps -errno of an op to the house's errors: sockets (read or write side) and disks. OK for res >=
 * 0. */
enum err op_socket_error(int32_t res, bool upstream);
enum err op_disk_error(int32_t res);

/* The bytes behind a completed op_recv_pool (res > 0); borrowed until core_recv_give(). */
struct span core_recv_bytes(struct core *c, const struct op *op);
void core_recv_give(struct core *c, struct op *op);

/* ---- timers: coarse (8 ms), one wheel per core ---- */
struct timer {
    struct node node;
    struct machine *m;               /* woken when it fires */
    uint64_t at_ms;                  /* 0 = not set */
    bool fired;
};
void timer_set(struct timer *t, struct machine *m, uint64_t delay_ms); /* re-sets; clears fired */
void timer_stop(struct timer *t);
/* True once after it fired. */
static inline bool timer_take(struct timer *t)
{
    bool was = t->fired;
    t->fired = false;
    return was;
}

/* ---- inbox: from any thread to a core ---- */
struct message {
    struct message *next;
    /* runs on the core's thread; may wake, never step */
    void (*deliver)(struct core *c, struct message *msg);
};
void core_send(struct core *to, struct message *msg); /* any thread; msg lives until delivered */

/* ---- desk.c: what no loop may do ---- */
struct desk_work {
    struct message msg;
    struct desk_work *next;
    struct machine *m;               /* woken when it is done; in flight of it until then */
    void (*work)(struct desk_work *e);  /* on the desk's thread, one at a time: it may take long */
    bool busy;
};
/* On m's core. What work() touches lives until it is done. */
void desk_begin(struct machine *m, struct desk_work *e, void (*work)(struct desk_work *e));
/* before the cores; ERR_MEMORY, ERR_SYSTEM */
must_check enum err desk_open(struct server *s);
void desk_close(struct server *s);   /* behind the cores' last turns */

/* ---- cores ---- */
struct core {
    struct server *server;
    const struct settings *settings; /* held; replaced between two turns (core_take_settings) */
    unsigned number;
    struct metric_set *metrics;
    uint64_t now_ms, now_us;         /* of this turn */
    uint64_t wall_ms, wall_s;        /* of this turn */
    char date[32];                   /* "Date" of this second, IMF-fixdate */
    /* each folder's own per-core part, made by its *_core_begin() */
    void *net, *origin, *fill, *s3, *cache;
    struct core_private *private_;   /* ring, ready list, wheel */
};

struct core_plan {                   /* what main gives a core at start */
    struct server *server;
    unsigned number;
    unsigned recv_buffers;           /* of 4 KiB, power of two */
    enum err (*begin)(struct core *c);  /* on the core's thread, before the first turn */
    /* on the core's thread, when core_stop() was called: stop taking work */
    void (*drain)(struct core *c);
    bool (*idle)(struct core *c);       /* true: nothing runs any more, the thread may end */
    void (*end)(struct core *c);        /* on the core's thread, after the last turn */
};
/* Why a core could not start, "cause; fix" (EPERM: seccomp or sysctl; ENOMEM: memlock or memory
 * group; ENOSYS: kernel). */
struct core_start_error {
    char text[512];
};
must_check enum err core_start(const struct core_plan *plan, struct core **out,
                               struct core_start_error *why);
void core_stop(struct core *c);      /* any thread; drain begins */
/* any thread; the drain deadline passed: plan->idle is no longer asked */
void core_cut(struct core *c);
/* On the core's thread: works with these from now on, which it holds then, and drops the others. */
void core_take_settings(struct core *c, const struct settings *next);
bool core_ended(const struct core *c); /* any thread: its last turn is over */
void core_join(struct core *c);      /* waits for the thread; others may still send messages */
/* The same, but where transfers hang in a file system. false: its last turn is over, and the kernel
 * does not let the thread end before they do: nothing of it may be freed. */
must_check bool core_try_join(struct core *c);
void core_free(struct core *c);      /* when all cores were joined */
/* Wall time since the last turn began or ended, for /livez; any thread. */
uint64_t core_silent_ms(const struct core *c);
/* The kernel features the house needs; ERR_UNSUPPORTED or ERR_DENIED with the words for doctor and
 * start. */
enum err core_probe(struct core_start_error *why);
unsigned core_count_physical(void);  /* that we may run on */
/* The last steps of this thread's core, newest first, as text: panic and /trace. */
void core_trace_print(struct text *out);
/* For tests: number of io_uring_enter calls of this core so far. */
uint64_t core_enter_count(const struct core *c);

/* ================= inside the folder: what a back end is ================= */

/* ring.c is the real one; a simulated one implements the same functions over a seeded
 * clock. */
struct ring;
must_check enum err ring_make(struct core *c, const struct core_plan *plan, struct ring **out,
                              struct core_start_error *why);
void ring_free(struct ring *r);
/* The door: hands a described op to the kernel. The caller (core_submit) has done the
 * book-keeping. */
void ring_submit(struct ring *r, struct op *op);
/* Submits what was gathered, waits up to wait_ms (0: not at all, UINT64_MAX: for ever) for a
 * completion, and reports each one by core_complete(). */
void ring_turn(struct ring *r, uint64_t wait_ms);
uint64_t ring_enter_count(const struct ring *r);
void *ring_recv_memory(struct ring *r, const struct op *op);
void ring_recv_give(struct ring *r, const struct op *op);
/* Called by the back end for each completion. more = further completions of this op will come
 * (multishot). */
void core_complete(struct core *c, struct op *op, int32_t res, uint32_t flags, bool more);
void core_submit(struct machine *m, struct op *op);

/* pages.c: a pipe through which pages are lent to sockets */
struct page_pipe {
    int read_fd, write_fd, null_fd;  /* -1: could not be made */
};
void pages_open(struct page_pipe *p);
void pages_close(struct page_pipe *p);
/* Bytes that the socket took, -EAGAIN if none, or -errno. */
int32_t pages_send(struct page_pipe *p, const struct op *op);

/* inbox.c */
struct inbox {
    /* a stack; reversed on delivery, so that order per sender holds */
    _Atomic(struct message *) newest;
    int event_fd;
    uint64_t event_value;            /* memory of the read that listens */
    struct op op;
    struct core *core;
};
must_check enum err inbox_open(struct inbox *b, struct core *c);
void inbox_listen(struct inbox *b);  /* arms the read of the event fd, on the core's thread */
bool inbox_waits(const struct inbox *b); /* is something to be delivered? */
void inbox_deliver(struct inbox *b); /* at least once a turn; one load when empty */
void inbox_ring(struct inbox *b);    /* any thread: makes the core turn */
void inbox_close(struct inbox *b);
struct inbox *core_inbox(struct core *c);
bool core_is_here(const struct core *c); /* is this its thread? */

#endif
