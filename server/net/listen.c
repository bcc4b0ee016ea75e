/* Listening sockets: one per address and core (SO_REUSEPORT), multishot accept, the connection
 * limit.
 *
 * Invariants:
 *  1. All sockets are bound on the main thread before any core starts, so that "address in use" is
 *     a start message.
 *  2. At server.max_connections accepting pauses; waiting clients stay in the kernel's queue and
 *     are served later.
 *  3. Socket options that connections inherit (TCP_NODELAY, TCP_CONGESTION) are set here once, not
 *     per connection.
 *
 * Life: net_open() binds; each core's listeners begin with the core and end in its drain.
 * Failure: no descriptors left (EMFILE): accepting pauses 100 ms and says so; other accept errors
 * go on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"
#include "server/net/net.h"

#define LISTENER_STEPS(S) \
    S(listener, ARM) S(listener, RUN) S(listener, PAUSE) S(listener, DRAIN) S(listener, END)

enum { ACCEPT_QUEUE = 512, BACKLOG = 4096, PAUSE_MS = 100 };

struct listener {
    struct machine m;
    struct op accept, cancel;
    struct timer pause;
    struct net_core *net;
    int fd;
    int error;                       /* of the accept that ended */
    unsigned count;
    int queue[ACCEPT_QUEUE];         /* accepted, not yet opened */
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
        close(res);                  /* more than a turn can open: the client tries again */
}

static bool at_limit(const struct listener *l)
{
    struct net *net = l->m.core->server->net;
    return atomic_load_explicit(&net->connections, memory_order_relaxed) >= net->connections_max;
}

static enum turn listener_ARM(struct listener *self) /* nothing is armed */
{
    if (self->net->draining)
        return GO(listener, self, DRAIN);
    self->error = 0;
    self->accept.each = accepted;
    op_accept_multi(&self->m, &self->accept, self->fd);
    return GO(listener, self, RUN);
}

static enum turn listener_RUN(struct listener *self) /* completions fill the queue */
{
    for (unsigned i = 0; i < self->count; i++)
        conn_open(self->m.core, self->queue[i]);
    self->count = 0;
    bool stop = self->net->draining || at_limit(self);
    if (stop && self->accept.busy && !self->cancel.busy)
        op_cancel(&self->m, &self->cancel, &self->accept);
    if (self->accept.busy || self->cancel.busy)
        return WAIT;
    if (self->net->draining)
        return GO(listener, self, DRAIN);
    if (self->error == EMFILE || self->error == ENFILE || self->error == ENOMEM ||
        self->error == ENOBUFS)
        log_event(EVENT_DESCRIPTORS, "error=%s", log_value(span_of(strerrordesc_np(self->error))));
    else if (at_limit(self))
        log_event(EVENT_CONNECTIONS, "limit=%llu",
                  (unsigned long long)self->m.core->server->net->connections_max);
    else
        return GO(listener, self, ARM);
    timer_set(&self->pause, &self->m, PAUSE_MS);
    return GO(listener, self, PAUSE);
}

/* a timer or the end of a connection wakes us */
static enum turn listener_PAUSE(struct listener *self)
{
    if (!self->net->draining && at_limit(self) && !timer_take(&self->pause))
        return WAIT;
    timer_stop(&self->pause);
    if (!self->net->draining && at_limit(self)) {
        timer_set(&self->pause, &self->m, PAUSE_MS);
        return WAIT;
    }
    return GO(listener, self, ARM);
}

static enum turn listener_DRAIN(struct listener *self)
{
    for (unsigned i = 0; i < self->count; i++)
        conn_open(self->m.core, self->queue[i]);
    self->count = 0;
    return self->m.inflight > 0 ? WAIT : GO(listener, self, END);
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
    int one = 1, fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(why, 256, "socket for %s: %s", text, strerrordesc_np(errno));
        return ERR_SYSTEM;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (congestion[0] &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)) != 0)
        note_congestion(congestion, errno);
    if (bind(fd, sa, net->address_len[address]) == 0 && listen(fd, BACKLOG) == 0) {
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
    if (fd < 0)
        return OK;                   /* bind_one will say it */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    bool free_ = bind(fd, sa, net->address_len[address]) == 0;
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
    return OK;
}

void net_close(struct server *s)
{
    if (!s->net)
        return;
    mem_give(s->net->fd);
    mem_give(s->net);
    s->net = NULL;
}
