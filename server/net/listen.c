/* Listening sockets: one per address and core (SO_REUSEPORT), multishot accept, the connection
 * limit.
 *
 * Invariants:
 *  1. All sockets are bound on the main thread before any core starts, so that "address in use" is
 *     a start message.
 *  2. At server.max_connections a newcomer takes the place of whoever is idle for longest. While
 *     none is idle accepting pauses; waiting clients stay in the kernel's queue and are served
 *     later.
 *  3. Socket options that connections inherit (TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_CONGESTION) are
 *     set here once, not per connection.
 *  4. In a drain no connection is lost that the kernel has promised to a client: new ones are no
 *     longer begun, those whose handshake is under way are still accepted, and then the socket is
 *     closed. A client that asks meanwhile asks again a second later, as after a lost packet.
 *  5. The kernel keeps the listeners of a killed server until its rings are taken down, a little
 *     after its death; so an address in use is tried again for IN_USE_MS.
 *
 * Life: net_open() binds; each core's listeners begin with the core and end in its drain.
 * Failure: no descriptors or memory left: accepting pauses 100 ms and says so; other accept errors
 * go on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"
#include "server/net/net.h"

#define LISTENER_STEPS(S) \
    S(listener, ARM) S(listener, RUN) S(listener, PAUSE) S(listener, DRAIN) S(listener, END)

enum {
    ACCEPT_QUEUE = 2 * NET_BACKLOG, PAUSE_MS = 100,
    LAST_MS = 100,                   /* for handshakes under way: a round trip within a cluster */
    /* Bytes of a connection that the kernel holds and has not sent: without this bound a client
     * that pauses costs 4 MiB there. */
    NOTSENT_BYTES = 128 * KIB,
    IN_USE_MS = 2000, IN_USE_EVERY_MS = 10,
};

struct listener {
    struct machine m;
    struct op accept, cancel;
    struct timer pause;
    struct net_core *net;
    int fd;
    int error;                       /* of the accept that ended */
    bool starved;                    /* it was for want of descriptors or memory */
    bool hushed, last_over;          /* a drain: nothing new begins; nor is anything under way */
    unsigned count;
    int queue[ACCEPT_QUEUE];         /* accepted, not yet opened: while the limit is reached */
};

STEP_TABLE(listener, LISTENER_STEPS)

/* Runs in the completion: stores only. */
static void accepted(struct op *op, int32_t res)
{
    struct listener *l = container_of(op, struct listener, accept);
    if (res < 0)
        l->error = -res;
    else if (l->count < ACCEPT_QUEUE)
        l->queue[l->count++] = res;
    else
        close(res);                  /* a backlog and more beyond the limit */
}

static bool at_limit(const struct listener *l)
{
    struct net *net = l->m.core->server->net;
    uint64_t now = atomic_load_explicit(&net->connections, memory_order_relaxed);
    return now - l->net->shedding >= net->connections_max;
}

/* No newcomer may be accepted. */
static bool is_full(const struct listener *l)
{
    return at_limit(l) && !conn_can_shed(l->net);
}

/* As many as there may be; the others wait. */
static void open_accepted(struct listener *l)
{
    unsigned n = 0;
    while (n < l->count && (l->net->draining || !at_limit(l) || conn_shed(l->net)))
        conn_open(l->m.core, l->queue[n++]);
    l->count -= n;
    memmove(l->queue, l->queue + n, l->count * sizeof(l->queue[0]));
}

/* A multishot accept may bring the whole backlog in one turn. Where that would pass the limit, or
 * what there is of descriptors, clients are accepted one by one. */
static bool may_burst(const struct listener *l)
{
    const struct net *net = l->m.core->server->net;
    uint64_t now = atomic_load_explicit(&net->connections, memory_order_relaxed);
    return net->may_burst && now + NET_BACKLOG <= net->connections_max;
}

static void arm(struct listener *l)
{
    l->error = 0;
    l->accept.each = accepted;
    bool burst = l->net->draining || may_burst(l); /* a drain takes whoever is left */
    (burst ? op_accept_multi : op_accept_one)(&l->m, &l->accept, l->fd);
}

static enum turn listener_ARM(struct listener *self) /* nothing is armed */
{
    if (self->net->draining)
        return GO(listener, self, DRAIN);
    arm(self);
    return GO(listener, self, RUN);
}

static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

static void tell_shortage(const struct listener *l)
{
    bool files = l->error == EMFILE || l->error == ENFILE;
    if (files)
        metric_add(l->m.core->metrics, METRIC_FD_EXHAUSTED_TOTAL, 0, 1);
    log_event(EVENT_DESCRIPTORS, "error=%s fix=%s", log_value(span_of(strerrordesc_np(l->error))),
              log_value(span_of(l->error == EMFILE   ? "raise LimitNOFILE (ulimit -n)"
                                : l->error == ENFILE ? "raise sysctl fs.file-max"
                                                     : "raise sysctl net.ipv4.tcp_mem, or the "
                                                       "memory limit of the container")));
}

static enum turn listener_RUN(struct listener *self) /* completions fill the queue */
{
    open_accepted(self);
    if (self->net->draining)
        return GO(listener, self, DRAIN);
    bool slower = self->accept.kind == OPK_ACCEPT && !may_burst(self);
    if ((is_full(self) || slower) && self->accept.busy && !self->cancel.busy)
        op_cancel(&self->m, &self->cancel, &self->accept);
    if (self->accept.busy || self->cancel.busy)
        return WAIT;
    self->starved = is_shortage(self->error);
    if (self->starved)
        tell_shortage(self);
    else if (is_full(self))
        log_event(EVENT_CONNECTIONS, "limit=%llu",
                  (unsigned long long)self->m.core->server->net->connections_max);
    else
        return GO(listener, self, ARM);
    timer_set(&self->pause, &self->m, PAUSE_MS);
    return GO(listener, self, PAUSE);
}

/* The timer wakes us; the end of a connection does, too, but after a shortage the whole pause is
 * kept: accepting fails at once then, whether or not a client waits, and would go round and
 * round. */
static enum turn listener_PAUSE(struct listener *self)
{
    bool over = timer_take(&self->pause);
    if (!self->net->draining && !over && (self->starved || is_full(self)))
        return WAIT;
    if (!self->net->draining && is_full(self)) {
        timer_set(&self->pause, &self->m, PAUSE_MS);
        return WAIT;
    }
    timer_stop(&self->pause);
    self->error = 0;
    return GO(listener, self, RUN);  /* whoever was accepted already is next */
}

/* Drops what would begin a connection: a SYN without ACK. Closing at once would reset whoever
 * stands in the kernel's queue, or comes to stand there after the last accept. */
static void hush(int fd)
{
    enum { TCP_FLAGS_AT = 13, SYN = 0x02, SYN_ACK = 0x12 };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, TCP_FLAGS_AT),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SYN_ACK),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYN, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };
    struct sock_fprog program = {.len = ARRAY_COUNT(code), .filter = code};
    /* refused: then those who come in the very last moment are reset, and ask again */
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* What came between the last completion and the end of accepting; with the flags that op_accept_*()
 * gives (op_send_pages). */
static void accept_rest(struct listener *l)
{
    int fd;
    (void)fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK);
    while ((fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
        conn_open(l->m.core, fd);
}

static enum turn listener_DRAIN(struct listener *self)
{
    open_accepted(self);
    if (!self->hushed) {
        self->hushed = true;
        hush(self->fd);
        timer_set(&self->pause, &self->m, LAST_MS);
        if (!self->accept.busy && !self->cancel.busy)
            arm(self);
    }
    self->last_over = self->last_over || timer_take(&self->pause);
    if (!self->last_over)
        return WAIT;
    if (self->accept.busy && !self->cancel.busy)
        op_cancel(&self->m, &self->cancel, &self->accept);
    if (self->m.inflight > 0)
        return WAIT;
    accept_rest(self);
    return GO(listener, self, END);
}

static enum turn listener_END(struct listener *self)
{
    timer_stop(&self->pause);
    close(self->fd);
    return OVER;
}

static void listener_over(struct machine *m)
{
    struct listener *l = (struct listener *)m;
    l->net->listeners_alive--;
}

struct listener *listeners_make(unsigned count)
{
    return mem_take(count * sizeof(struct listener));
}

void listeners_begin(struct net_core *n)
{
    const struct net *net = n->core->server->net;
    for (unsigned i = 0; i < net->address_count; i++) {
        struct listener *l = &n->listener[i];
        l->net = n;
        l->fd = net->fd[n->core->number * net->address_count + i];
        MACHINE_BEGIN(listener, l, n->core, listener_over);
        n->listeners_alive++;
    }
}

void listeners_drain(struct net_core *n)
{
    for (unsigned i = 0; i < n->core->server->net->address_count; i++)
        if (n->listener[i].m.alive)
            machine_wake(&n->listener[i].m);
}

void listeners_wake(struct net_core *n)
{
    for (unsigned i = 0; i < n->core->server->net->address_count; i++)
        if (n->listener[i].m.alive && n->listener[i].m.at == AT_listener_PAUSE)
            machine_wake(&n->listener[i].m);
}

/* ---- binding, on the main thread ---- */

static enum err read_address(const char *text, struct sockaddr_storage *out, socklen_t *len,
                             char why[256])
{
    char host[256];
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof(host)) {
        snprintf(why, 256, "server.listen \"%s\": use HOST:PORT or [IPv6]:PORT", text);
        return ERR_CONFIG;
    }
    bool bracketed = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    size_t host_len = (size_t)(colon - text) - (bracketed ? 2 : 0);
    memcpy(host, text + (bracketed ? 1 : 0), host_len);
    host[host_len] = '\0';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    int error = getaddrinfo(host_len ? host : NULL, colon + 1, &hints, &found);
    if (error) {
        snprintf(why, 256, "server.listen \"%s\": %s", text, gai_strerror(error));
        return ERR_CONFIG;
    }
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *len = found->ai_addrlen;
    freeaddrinfo(found);
    return OK;
}

/* Said once: it is the same for every socket. */
static void note_congestion(const char *name, int error)
{
    static bool said;
    if (!said)
        log_event(EVENT_CONFIG, "server.congestion=%s error=%s fix=%s", name,
                  log_value(span_of(strerrordesc_np(error))),
                  log_value(span_of(error == EPERM
                                        ? "add it to sysctl net.ipv4.tcp_allowed_congestion_control"
                                        : "load its module, or set server.congestion = \"\"")));
    said = true;
}

static enum err bind_one(const struct server *s, const struct net *net, unsigned address, int *out,
                         char why[256])
{
    const struct sockaddr *sa = (const struct sockaddr *)&net->address[address];
    const char *text = s->config->server_listen.item[address],
               *congestion = s->config->server_congestion;
    int one = 1, notsent = NOTSENT_BYTES;
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(why, 256, "socket for %s: %s", text, strerrordesc_np(errno));
        return ERR_SYSTEM;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &notsent, sizeof(notsent));
    if (congestion[0] &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)) != 0)
        note_congestion(congestion, errno);
    if (bind(fd, sa, net->address_len[address]) == 0 && listen(fd, NET_BACKLOG) == 0) {
        *out = fd;
        return OK;
    }
    snprintf(why, 256, "%s: %s; stop what listens there or set server.listen", text,
             strerrordesc_np(errno));
    close(fd);
    return ERR_SYSTEM;
}

/* SO_REUSEPORT would let a second server of the same user join silently; a plain bind first finds
 * it. */
static enum err bind_alone(const struct net *net, unsigned address, const char *text, char why[256])
{
    const struct sockaddr *sa = (const struct sockaddr *)&net->address[address];
    int one = 1, fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint64_t until_ms = clock_ms() + IN_USE_MS;
    bool free_;
    if (fd < 0)
        return OK;                   /* bind_one will say it */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    while (!(free_ = bind(fd, sa, net->address_len[address]) == 0) && errno == EADDRINUSE &&
           clock_ms() < until_ms)
        poll(NULL, 0, IN_USE_EVERY_MS);
    if (!free_)
        snprintf(why, 256, "%s: %s; stop what listens there or set server.listen", text,
                 strerrordesc_np(errno));
    close(fd);
    return free_ ? OK : ERR_SYSTEM;
}

enum err net_open(struct server *s, const struct request_ops *ops, char why[256])
{
    struct net *net = mem_take(sizeof(*net));
    if (!net)
        return ERR_MEMORY;
    s->net = net;
    net->ops = ops;
    net->connections_max = s->config->server_max_connections;
    TRY(descriptors_settle(s, net, why));
    net->peers = peers_make(net->connections_max + NET_SLACK * s->core_count,
                            s->config->server_max_connections_per_address);
    if (!net->peers)
        return ERR_MEMORY;
    net->address_count = (unsigned)min_u64(s->config->server_listen.count, NET_LISTEN_MAX);
    net->fd = mem_take(sizeof(int) * net->address_count * s->core_count);
    if (!net->fd)
        return ERR_MEMORY;
    for (unsigned i = 0; i < net->address_count; i++) {
        const char *text = s->config->server_listen.item[i];
        TRY(read_address(text, &net->address[i], &net->address_len[i], why));
        TRY(bind_alone(net, i, text, why));
        for (unsigned core = 0; core < s->core_count; core++)
            TRY(bind_one(s, net, i, &net->fd[core * net->address_count + i], why));
    }
    socklen_t len = sizeof(net->congestion) - 1;
    if (net->address_count > 0)      /* what was wanted may have been refused */
        getsockopt(net->fd[0], IPPROTO_TCP, TCP_CONGESTION, net->congestion, &len);
    return OK;
}

void net_congestion(const struct server *s, char out[NET_CONGESTION_BYTES])
{
    memcpy(out, s->net->congestion, NET_CONGESTION_BYTES);
}

void net_close(struct server *s)
{
    if (!s->net)
        return;
    mem_give(s->net->fd);
    peers_free(s->net->peers);
    mem_give(s->net);
    s->net = NULL;
}
