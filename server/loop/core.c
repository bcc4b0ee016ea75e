/* The driver: a core's thread, its ready list, timer wheel, operations and trace. Knows no kernel:
 * ring.c does.
 *
 * Invariants:
 *  1. A turn is: deliver the inbox, fire timers, step every machine that was ready at its begin
 *     (each at most once), the same once more if that sent messages to this core (so what was
 *     fetched leaves before more is received), then submit and wait - not at all if machines are
 *     still ready.
 *  2. A machine that returned OVER has inflight == 0, is in no list, and is not touched again after
 *     over().
 *  3. The trace costs two stores per step; it is read by panic and /trace only.
 *
 * Life: core_start() waits until the thread either turns or has failed; core_free() frees
 * everything.
 * Failure: start-up errors come back with words; afterwards a core has no error of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "http.h"
#include "log.h"
#include "server/loop/loop.h"
#if defined(HEADPOND_ASAN)
#include <sanitizer/asan_interface.h>
#endif

enum {
    WHEEL_SLOTS = 1024,
    WHEEL_SLOT_MS = 8,
    WHEEL_WORDS = WHEEL_SLOTS / 64,
    TRACE_ENTRIES = 4096,
    JOIN_LOOK_MS = 100,
    JOIN_LOOKS = 20,                 /* so often behind its last turn */
    STEPS_PER_TURN_MAX = 256,        /* a machine that steps more often without waiting is a bug */
};

struct trace {
    const struct machine *m;
    const char *step;
    uint64_t at_us;
};

struct core_private {
    struct core_plan plan;
    struct ring *ring;
    struct inbox inbox;
    struct list ready;
    struct list wheel[WHEEL_SLOTS];
    uint64_t occupied[WHEEL_WORDS];
    uint64_t wheel_tick;             /* last tick that was fired */
    uint64_t turn_began_us;
    bool drain_told;
    _Atomic bool stop, cut, ended;
    _Atomic uint64_t alive_ms;
    uint64_t traced;
    struct trace trace[TRACE_ENTRIES];
    pthread_t thread;
    pthread_mutex_t start_lock;
    pthread_cond_t start_cond;
    bool started;
    enum err start_err;
    struct core_start_error start_why;
};

static __thread struct core *this_core;

bool core_is_here(const struct core *c)
{
    return this_core == c;
}

/* ---- machines ---- */

void machine_begin(struct machine *m, struct core *core, enum turn (*run)(struct machine *),
                   void (*over)(struct machine *), const char *const *names, uint8_t drain)
{
    *m = (struct machine){
        .core = core, .run = run, .over = over, .names = names, .drain = drain, .alive = true};
    machine_wake(m);
}

enum turn machine_fail(struct machine *m, enum err why, const char *detail)
{
    must(why != OK);
    if (m->why == OK) {
        m->why = why;
        m->detail = detail;
    }
    m->at = m->drain;
    return AGAIN;
}

void machine_wake(struct machine *m)
{
    must(m->alive);
    if (!node_linked(&m->ready))
        list_push(&m->core->private_->ready, &m->ready);
}

static void trace_step(struct core *c, const struct machine *m)
{
    struct trace *t = &c->private_->trace[c->private_->traced++ % TRACE_ENTRIES];
    *t = (struct trace){m, m->names[m->at], c->now_us};
}

static void step(struct core *c, struct machine *m)
{
    enum turn turn = AGAIN;
    for (unsigned n = 0; turn == AGAIN; n++) {
        must(n < STEPS_PER_TURN_MAX);
        trace_step(c, m);
        turn = m->run(m);
    }
    if (turn == WAIT)
        return;
    must(m->inflight == 0);
    if (node_linked(&m->ready))
        node_remove(&m->ready);
    m->alive = false;
    m->over(m);
}

/* Steps what is ready now; what becomes ready meanwhile waits for the next turn. */
static void step_ready(struct core *c)
{
    struct list now;
    list_init(&now);
    struct list *ready = &c->private_->ready;
    if (list_empty(ready))
        return;
    now.head = ready->head;          /* move the whole chain */
    now.head.next->prev = &now.head;
    now.head.prev->next = &now.head;
    list_init(ready);
    for (struct node *n; (n = list_pop(&now));)
        step(c, container_of(n, struct machine, ready));
}

void core_trace_print(struct text *out)
{
    struct core *c = this_core;
    if (!c)
        return;
    uint64_t last = c->private_->traced;
    for (uint64_t i = 0; i < 200 && i < last && i < TRACE_ENTRIES; i++) {
        struct trace *t = &c->private_->trace[(last - 1 - i) % TRACE_ENTRIES];
        text_addf(out, "  -%llu us %p %s\n", (unsigned long long)(c->now_us - t->at_us),
                  (const void *)t->m, t->step);
    }
}

static void print_trace_on_panic(void)
{
    static char memory[32 * KIB];
    struct text out;
    text_init(&out, memory, sizeof(memory));
    core_trace_print(&out);
    ssize_t n = write(STDERR_FILENO, out.at, out.len);
    (void)n;
}

/* ---- operations ---- */

void core_submit(struct machine *m, struct op *op)
{
    must(!op->busy);
    op->busy = true;
    op->ended = false;
    op->m = m;
    if (m)
        m->inflight++;
#if defined(HEADPOND_ASAN)
    bool touches = op->kind == OPK_READ || op->kind == OPK_WRITE || op->kind == OPK_RECV ||
                   op->kind == OPK_SEND;
    if (touches && __asan_region_is_poisoned(op->mem, op->len))
        panic(__FILE__, __LINE__, "an operation on memory that is not its owner's");
#endif
    struct core *c = m ? m->core : container_of(op, struct inbox, op)->core;
    ring_submit(c->private_->ring, op);
}

void core_complete(struct core *c, struct op *op, int32_t res, uint32_t flags, bool more)
{
    (void)c;
    must(op->busy);
    op->res = res;
    op->flags = flags;
    op->ended = true;
    if (!more) {
        op->busy = false;
        if (op->m) {
            must(op->m->inflight > 0);
            op->m->inflight--;
        }
    }
    if (op->each)
        op->each(op, res);
    if (op->m)
        machine_wake(op->m);
}

static void describe(struct op *op, enum op_kind kind, int fd, const void *mem, uint32_t len)
{
    op->kind = (uint8_t)kind;
    op->fd = fd;
    op->mem = (void *)(uintptr_t)mem;
    op->len = len;
    op->off = 0;
}

void op_read(struct machine *m, struct op *op, int fd, void *mem, uint32_t len, uint64_t off)
{
    describe(op, OPK_READ, fd, mem, len);
    op->off = off;
    core_submit(m, op);
}

void op_write(struct machine *m, struct op *op, int fd, const void *mem, uint32_t len, uint64_t off)
{
    describe(op, OPK_WRITE, fd, mem, len);
    op->off = off;
    core_submit(m, op);
}

void op_recv(struct machine *m, struct op *op, int fd, void *mem, uint32_t len)
{
    describe(op, OPK_RECV, fd, mem, len);
    core_submit(m, op);
}

void op_recv_last(struct machine *m, struct op *op, int fd, void *mem, uint32_t len)
{
    describe(op, OPK_RECV, fd, mem, len);
    op->off = true;
    core_submit(m, op);
}

void op_recv_pool(struct machine *m, struct op *op, int fd, bool expect_idle)
{
    describe(op, OPK_RECV_POOL, fd, NULL, 0);
    op->off = expect_idle;
    core_submit(m, op);
}

void op_send(struct machine *m, struct op *op, int fd, const void *mem, uint32_t len)
{
    describe(op, OPK_SEND, fd, mem, len);
    core_submit(m, op);
}

void op_sendmsg(struct machine *m, struct op *op, int fd, struct msghdr *msg)
{
    describe(op, OPK_SENDMSG, fd, msg, sizeof(*msg));
    core_submit(m, op);
}

void op_send_some(struct machine *m, struct op *op, int fd, const void *mem, uint32_t len)
{
    describe(op, OPK_SEND, fd, mem, len);
    op->off = true;
    core_submit(m, op);
}

void op_sendmsg_some(struct machine *m, struct op *op, int fd, struct msghdr *msg)
{
    describe(op, OPK_SENDMSG, fd, msg, sizeof(*msg));
    op->off = true;
    core_submit(m, op);
}

void op_send_pages(struct machine *m, struct op *op, int fd, struct msghdr *msg, unsigned copied)
{
    describe(op, OPK_SEND_PAGES, fd, msg, sizeof(*msg));
    op->off = copied;
    core_submit(m, op);
}

void op_poll_out(struct machine *m, struct op *op, int fd)
{
    describe(op, OPK_POLL_OUT, fd, NULL, 0);
    core_submit(m, op);
}

void op_accept_multi(struct machine *m, struct op *op, int fd)
{
    must(op->each != NULL);
    describe(op, OPK_ACCEPT, fd, NULL, 0);
    core_submit(m, op);
}

void op_accept_one(struct machine *m, struct op *op, int fd)
{
    must(op->each != NULL);
    describe(op, OPK_ACCEPT_ONE, fd, NULL, 0);
    core_submit(m, op);
}

void op_connect(struct machine *m, struct op *op, int fd, const struct sockaddr *to, socklen_t len)
{
    describe(op, OPK_CONNECT, fd, to, len);
    core_submit(m, op);
}

void op_close(struct machine *m, struct op *op, int fd)
{
    describe(op, OPK_CLOSE, fd, NULL, 0);
    core_submit(m, op);
}

void op_fsync_data(struct machine *m, struct op *op, int fd)
{
    describe(op, OPK_FSYNC, fd, NULL, 0);
    core_submit(m, op);
}

void op_openat2(struct machine *m, struct op *op, int dir_fd, const char *path, void *open_how,
                size_t how_bytes)
{
    describe(op, OPK_OPENAT2, dir_fd, path, (uint32_t)how_bytes);
    op->off = (uint64_t)(uintptr_t)open_how;
    core_submit(m, op);
}

void op_statx(struct machine *m, struct op *op, int fd, void *statx_out)
{
    describe(op, OPK_STATX, fd, statx_out, 0);
    core_submit(m, op);
}

void op_cancel(struct machine *m, struct op *own, struct op *target)
{
    describe(own, OPK_CANCEL, -1, target, 0);
    core_submit(m, own);
}

void op_hand_over(struct op *op, struct machine *to)
{
    must(op->busy && op->m->inflight > 0 && op->m->core == to->core);
    op->m->inflight--;
    op->m = to;
    to->inflight++;
}

enum err op_socket_error(int32_t res, bool upstream)
{
    switch (res >= 0 ? 0 : -res) {
    case 0: return OK;
    case ENOMEM:
    case ENOBUFS: return ERR_MEMORY;
    case ECANCELED: return ERR_CANCELLED;
    case ETIMEDOUT: return upstream ? ERR_UPSTREAM_TIMEOUT : ERR_PEER;
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL: return upstream ? ERR_UPSTREAM_CONNECT : ERR_PEER;
    default: return upstream ? ERR_UPSTREAM_RESET : ERR_PEER;
    }
}

enum err op_disk_error(int32_t res)
{
    if (res >= 0)
        return OK;
    return res == -ECANCELED ? ERR_CANCELLED : res == -ENOSPC ? ERR_FULL : ERR_DISK;
}

struct span core_recv_bytes(struct core *c, const struct op *op)
{
    must(op->res > 0);
    return span_make(ring_recv_memory(c->private_->ring, op), (size_t)op->res);
}

void core_recv_give(struct core *c, struct op *op)
{
    ring_recv_give(c->private_->ring, op);
}

/* ---- timers ---- */

static void wheel_link(struct core_private *p, struct timer *t)
{
    uint64_t tick = max_u64(t->at_ms / WHEEL_SLOT_MS + 1, p->wheel_tick + 1);
    unsigned slot = (unsigned)(tick % WHEEL_SLOTS);
    list_push(&p->wheel[slot], &t->node);
    p->occupied[slot / 64] |= (uint64_t)1 << slot % 64;
}

void timer_set(struct timer *t, struct machine *m, uint64_t delay_ms)
{
    if (node_linked(&t->node))
        node_remove(&t->node);
    t->m = m;
    t->fired = false;
    t->at_ms = m->core->now_ms + delay_ms;
    wheel_link(m->core->private_, t);
}

void timer_stop(struct timer *t)
{
    if (node_linked(&t->node))
        node_remove(&t->node);
    t->at_ms = 0;
    t->fired = false;
}

static void fire_slot(struct core *c, unsigned slot)
{
    struct core_private *p = c->private_;
    LIST_EACH(&p->wheel[slot], struct timer, node, t) {
        if (t->at_ms > c->now_ms)
            continue;                /* of a later round of the wheel */
        node_remove(&t->node);
        t->at_ms = 0;
        t->fired = true;
        machine_wake(t->m);
    }
    if (list_empty(&p->wheel[slot]))
        p->occupied[slot / 64] &= ~((uint64_t)1 << slot % 64);
}

static void fire_timers(struct core *c)
{
    struct core_private *p = c->private_;
    uint64_t tick = c->now_ms / WHEEL_SLOT_MS;
    if (tick > p->wheel_tick + WHEEL_SLOTS)
        p->wheel_tick = tick - WHEEL_SLOTS;
    while (p->wheel_tick < tick) {
        p->wheel_tick++;
        unsigned slot = (unsigned)(p->wheel_tick % WHEEL_SLOTS);
        if (p->occupied[slot / 64] >> slot % 64 & 1)
            fire_slot(c, slot);
    }
}

/* How long the core may sleep: to the next occupied slot. */
static uint64_t next_timer_ms(const struct core *c)
{
    const struct core_private *p = c->private_;
    for (unsigned ahead = 1; ahead <= WHEEL_SLOTS; ahead++) {
        unsigned slot = (unsigned)((p->wheel_tick + ahead) % WHEEL_SLOTS);
        uint64_t rest = p->occupied[slot / 64] >> slot % 64;
        if (rest & 1) {
            uint64_t at_ms = (p->wheel_tick + ahead) * WHEEL_SLOT_MS;
            return at_ms > c->now_ms ? at_ms - c->now_ms : 1;
        }
        ahead += rest ? (unsigned)__builtin_ctzll(rest) - 1 : 63 - slot % 64; /* jump */
    }
    return UINT64_MAX;
}

/* ---- a core's thread ---- */

static void read_clocks(struct core *c)
{
    c->now_us = clock_us();
    c->now_ms = c->now_us / 1000;
    c->wall_ms = clock_wall_ms();
    if (c->wall_ms / 1000 != c->wall_s) {
        c->wall_s = c->wall_ms / 1000;
        http_date_write(c->wall_s, c->date);
    }
}

static void turn(struct core *c)
{
    struct core_private *p = c->private_;
    inbox_deliver(&p->inbox);
    fire_timers(c);
    step_ready(c);
    if (inbox_waits(&p->inbox)) {
        inbox_deliver(&p->inbox);
        step_ready(c);
    }
    uint64_t busy_us = clock_us() - p->turn_began_us;
    metric_add(c->metrics, METRIC_LOOP_BUSY_SECONDS_TOTAL, c->number, busy_us);
    metric_observe(c->metrics, METRIC_LOOP_DELAY_SECONDS, 0, 0, busy_us);
    bool pending = !list_empty(&p->ready) || inbox_waits(&p->inbox) ||
                   (p->drain_told && p->plan.idle(c));
    ring_turn(p->ring, pending ? 0 : min_u64(next_timer_ms(c), 1000));
    read_clocks(c);
    p->turn_began_us = c->now_us;
    atomic_store_explicit(&p->alive_ms, c->now_ms, memory_order_relaxed);
}

static bool finished(struct core *c)
{
    struct core_private *p = c->private_;
    if (!atomic_load_explicit(&p->stop, memory_order_acquire))
        return false;
    if (!p->drain_told) {
        p->drain_told = true;
        p->plan.drain(c);
    }
    return atomic_load_explicit(&p->cut, memory_order_acquire) || p->plan.idle(c);
}

static void report_start(struct core *c, enum err e)
{
    struct core_private *p = c->private_;
    pthread_mutex_lock(&p->start_lock);
    p->started = true;
    p->start_err = e;
    pthread_cond_signal(&p->start_cond);
    pthread_mutex_unlock(&p->start_lock);
}

static enum err begin(struct core *c)
{
    struct core_private *p = c->private_;
    read_clocks(c);
    p->wheel_tick = c->now_ms / WHEEL_SLOT_MS;
    p->turn_began_us = c->now_us;
    atomic_store_explicit(&p->alive_ms, c->now_ms, memory_order_relaxed);
    TRY(ring_make(c, &p->plan, &p->ring, &p->start_why));
    inbox_listen(&p->inbox);
    enum err e = p->plan.begin(c);
    if (e != OK && !p->start_why.text[0])
        snprintf(p->start_why.text, sizeof(p->start_why.text), "worker %u: %s", c->number,
                 err_text(e));
    return e;
}

static void *core_main(void *arg)
{
    struct core *c = arg;
    struct core_private *p = c->private_;
    char name[16];
    snprintf(name, sizeof(name), "hp-loop-%u", c->number);
    prctl(PR_SET_NAME, name);
    this_core = c;
    panic_hook = print_trace_on_panic;
    enum err e = begin(c);
    report_start(c, e);
    if (e == OK) {
        while (!finished(c))
            turn(c);
        p->plan.end(c);
    }
    if (p->ring)
        ring_free(p->ring);
    p->ring = NULL;
    atomic_store_explicit(&p->ended, true, memory_order_release);
    return NULL;
}

static struct core *make(const struct core_plan *plan)
{
    struct core *c = mem_take(sizeof(*c));
    struct core_private *p = c ? mem_take(sizeof(*p)) : NULL;
    if (!p) {
        mem_give(c);
        return NULL;
    }
    c->private_ = p;
    c->server = plan->server;
    c->settings = settings_hold(plan->server);
    c->number = plan->number;
    c->metrics = metric_set_make();
    p->plan = *plan;
    list_init(&p->ready);
    for (unsigned i = 0; i < WHEEL_SLOTS; i++)
        list_init(&p->wheel[i]);
    pthread_mutex_init(&p->start_lock, NULL);
    pthread_cond_init(&p->start_cond, NULL);
    if (c->metrics && inbox_open(&p->inbox, c) == OK)
        return c;
    settings_drop(c->settings);
    mem_give(p);
    mem_give(c);
    return NULL;
}

static void unmake(struct core *c)
{
    inbox_close(&c->private_->inbox);
    pthread_mutex_destroy(&c->private_->start_lock);
    pthread_cond_destroy(&c->private_->start_cond);
    settings_drop(c->settings);
    mem_give(c->private_);
    mem_give(c);
}

unsigned core_count_physical(void)
{
    cpu_set_t may;
    uint64_t seen[256];
    unsigned count = 0;
    if (sched_getaffinity(0, sizeof(may), &may) != 0)
        return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < ARRAY_COUNT(seen); cpu++) {
        char path[128];
        unsigned package = 0, number = (unsigned)cpu;
        if (!CPU_ISSET(cpu, &may))
            continue;
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", cpu,
                     i ? "core_id" : "physical_package_id");
            FILE *f = fopen(path, "re");
            /* The kernel's own small number: NOLINTNEXTLINE(cert-err34-c) */
            if (f && fscanf(f, "%u", i ? &number : &package) != 1)
                number = (unsigned)cpu;
            if (f)
                fclose(f);
        }
        uint64_t id = (uint64_t)package << 32 | number;
        bool known = false;
        for (unsigned i = 0; i < count; i++)
            known = known || seen[i] == id;
        if (!known)
            seen[count++] = id;
    }
    return count ? count : 1;
}

/* Signals are main's: a loop thread takes none. */
static int spawn(struct core *c)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&c->private_->thread, NULL, core_main, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

enum err core_start(const struct core_plan *plan, struct core **out, struct core_start_error *why)
{
    why->text[0] = '\0';
    struct core *c = make(plan);
    if (!c || spawn(c) != 0) {
        snprintf(why->text, sizeof(why->text), "worker %u: no memory or no thread", plan->number);
        return ERR_MEMORY;
    }
    struct core_private *p = c->private_;
    pthread_mutex_lock(&p->start_lock);
    while (!p->started)
        pthread_cond_wait(&p->start_cond, &p->start_lock);
    pthread_mutex_unlock(&p->start_lock);
    if (p->start_err != OK) {
        enum err e = p->start_err;
        *why = p->start_why;
        pthread_join(p->thread, NULL);
        unmake(c);
        return e;
    }
    *out = c;
    return OK;
}

void core_stop(struct core *c)
{
    atomic_store_explicit(&c->private_->stop, true, memory_order_release);
    inbox_ring(&c->private_->inbox);
}

void core_cut(struct core *c)
{
    atomic_store_explicit(&c->private_->cut, true, memory_order_release);
    inbox_ring(&c->private_->inbox);
}

void core_take_settings(struct core *c, const struct settings *next)
{
    settings_drop(c->settings);
    c->settings = next;
}

bool core_ended(const struct core *c)
{
    return atomic_load_explicit(&c->private_->ended, memory_order_acquire);
}

void core_join(struct core *c)
{
    pthread_join(c->private_->thread, NULL);
}

bool core_try_join(struct core *c)
{
    unsigned looks = 0;
    struct timespec until;

    do {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += JOIN_LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_timedjoin_np(c->private_->thread, NULL, &until) == 0)
            return true;
    } while (!core_ended(c) || ++looks < JOIN_LOOKS);
    return false;
}

void core_free(struct core *c)
{
    unmake(c);
}

uint64_t core_silent_ms(const struct core *c)
{
    uint64_t alive = atomic_load_explicit(&c->private_->alive_ms, memory_order_relaxed),
             now = clock_ms();
    return now > alive ? now - alive : 0;
}

uint64_t core_enter_count(const struct core *c)
{
    return ring_enter_count(c->private_->ring);
}

struct inbox *core_inbox(struct core *c)
{
    return &c->private_->inbox;
}
