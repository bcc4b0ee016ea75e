/* Sockets of the simulation: streams with delay, windows and splits, listeners, event descriptors;
 * and the system calls that reach them.
 *
 * Invariants:
 *  1. Bytes of a direction arrive in the order in which they were sent, each at a moment that was
 *     fixed when it was sent; an end (FIN) or a reset is the last of them.
 *  2. A descriptor number is used once. Using one that is closed ends the run: the kernel might
 *     have given that number to somebody else.
 *
 * Life: a socket from its call to its close; a stream's bytes that are under way outlive the end
 * that sent them.
 * Failure: as TCP's: a write to who has gone brings a reset. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"
#include "tests/sim/sim.h"

enum {
    FDS_MAX = 1 << 21,
    SOCKS_MAX = 1024,
    PORT_FIRST = 40000,
    WINDOW_LEAST = 8 * KIB,
    WINDOW_MOST = 512 * KIB,
    LATENCY_US_MOST = 400,
};
enum sock_kind { SOCK_NEW, SOCK_LISTENS, SOCK_FLOWS, SOCK_EVENT };
enum part_kind { PART_BYTES, PART_END, PART_RESET };

struct part {                        /* of what is under way or not yet taken */
    struct part *next;
    uint64_t at_us;
    uint32_t len, used;
    uint8_t kind;
    uint8_t bytes[];
};
struct sock {
    enum sock_kind kind;
    struct sock *peer;               /* NULL: gone */
    struct sock *next;               /* in a listener's queue */
    struct part *first, *last;       /* inbound */
    uint64_t queued, window;         /* bytes in them; most that may be */
    uint64_t last_at_us, latency_us;
    uint64_t at_us;                  /* of a queued connection: when it can be accepted */
    uint64_t event;
    unsigned refs;                   /* descriptors that show it */
    unsigned place;                  /* in `all` */
    uint16_t port, peer_port;
    bool server, queued_up, shut_in, shut_out, hard, nonblock;
};

static struct sock *fds[FDS_MAX];
static int fd_next;
static struct sock *all[SOCKS_MAX];  /* that exist, in no order */
static unsigned all_count;
static uint16_t port_next;
static struct sock *waiting;         /* listeners' queues: all in one list, each by its port */

/* ---- descriptors ---- */

static struct sock *sock_of(int fd)
{
    must(sim_is_fd(fd));
    struct sock *s = fd - SIM_FD_FIRST < fd_next ? fds[fd - SIM_FD_FIRST] : NULL;
    if (!s)
        sim_fail("a descriptor is used that is closed");
    return s;
}

static void *take(size_t bytes)
{
    sim_enter();
    void *at = mem_take(bytes);
    sim_leave();
    must(at);
    return at;
}

static int show(struct sock *s)
{
    must(fd_next < FDS_MAX);
    fds[fd_next] = s;
    s->refs++;
    return SIM_FD_FIRST + fd_next++;
}

static struct sock *new_sock(enum sock_kind kind)
{
    struct sock *s = take(sizeof *s);
    const struct fiber *f = sim_self();

    must(all_count < SOCKS_MAX);
    s->place = all_count;
    all[all_count++] = s;
    s->kind = kind;
    s->server = f && (f->server || world.birth);
    s->latency_us = 1 + sim_below(LATENCY_US_MOST);
    s->window = WINDOW_LEAST << sim_below(7);
    return s;
}

unsigned wire_open_count(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < all_count; i++)
        count += all[i]->server && all[i]->refs > 0;
    return count;
}

/* ---- bytes under way ---- */

static void append(struct sock *to, enum part_kind kind, const void *bytes, uint32_t len)
{
    struct part *p = take(sizeof *p + len);

    to->last_at_us = max_u64(to->last_at_us, world.now_us + 1 + to->latency_us +
                             sim_below(to->latency_us));
    *p = (struct part){.kind = (uint8_t)kind, .len = len, .at_us = to->last_at_us};
    if (len)
        memcpy(p->bytes, bytes, len);
    to->queued += len;
    *(to->last ? &to->last->next : &to->first) = p;
    to->last = p;
}

static void drop_first(struct sock *s)
{
    struct part *p = s->first;

    s->first = p->next;
    if (!s->first)
        s->last = NULL;
    s->queued -= p->len - p->used;
    mem_give(p);
}

static bool arrived(const struct sock *s)
{
    return s->first && s->first->at_us <= world.now_us;
}

uint64_t wire_next_us(void)
{
    uint64_t next = UINT64_MAX;

    for (unsigned i = 0; i < all_count; i++) {
        const struct sock *s = all[i];
        if (s->first && s->first->at_us > world.now_us)
            next = min_u64(next, s->first->at_us);
        if (s->queued_up && s->at_us > world.now_us)
            next = min_u64(next, s->at_us);
    }
    return next;
}

bool wire_can_take(int fd)
{
    const struct sock *s = sock_of(fd);

    if (s->kind == SOCK_EVENT)
        return s->event > 0;
    return s->shut_in || arrived(s);
}

static int32_t take_event(struct sock *s, void *mem)
{
    if (s->event == 0)
        return -EAGAIN;
    memcpy(mem, &s->event, sizeof s->event);
    s->event = 0;
    return sizeof s->event;
}

/* As much of what has arrived as chance gives. */
static int32_t take_bytes(struct sock *s, uint8_t *mem, uint32_t len, bool peek)
{
    uint32_t got = 0;

    if (!peek && len > 1 && world.fine && sim_one_in(3))
        len = 1 + (uint32_t)sim_below(len);
    for (struct part *p = s->first; p && got < len; p = s->first) {
        if (p->at_us > world.now_us || p->kind != PART_BYTES)
            break;
        uint32_t n = (uint32_t)min_u64(len - got, p->len - p->used);
        memcpy(mem + got, p->bytes + p->used, n);
        got += n;
        if (peek)
            break;
        p->used += n;
        s->queued -= n;
        if (p->used == p->len)
            drop_first(s);
        if (sim_one_in(8))
            break;
    }
    return (int32_t)got;
}

int32_t wire_take(int fd, void *mem, uint32_t len, bool peek)
{
    struct sock *s = sock_of(fd);

    if (s->kind == SOCK_EVENT)
        return take_event(s, mem);
    if (s->kind != SOCK_FLOWS)
        return -ENOTCONN;
    if (s->shut_in)
        return 0;
    if (!arrived(s))
        return -EAGAIN;
    if (s->first->kind == PART_END)  /* it stays: every later receive says the same */
        return 0;
    if (s->first->kind == PART_RESET)
        return -ECONNRESET;
    return take_bytes(s, mem, len, peek);
}

static bool was_reset(const struct sock *s)
{
    for (const struct part *p = s->first; p; p = p->next)
        if (p->kind == PART_RESET && p->at_us <= world.now_us)
            return true;
    return false;
}

static uint64_t room_of(const struct sock *s)
{
    return s->peer && s->peer->window > s->peer->queued ? s->peer->window - s->peer->queued : 0;
}

bool wire_can_put(int fd)
{
    const struct sock *s = sock_of(fd);

    return s->kind != SOCK_FLOWS || s->shut_out || was_reset(s) || !s->peer || room_of(s) > 0;
}

int32_t wire_put(int fd, const void *mem, uint32_t len)
{
    struct sock *s = sock_of(fd);

    if (s->kind == SOCK_EVENT) {
        uint64_t n;
        memcpy(&n, mem, sizeof n);
        s->event += n;
        return sizeof n;
    }
    if (s->kind != SOCK_FLOWS)
        return -ENOTCONN;
    if (was_reset(s))
        return -ECONNRESET;
    if (s->shut_out)
        return -EPIPE;
    if (!s->peer) {                  /* who has gone answers with a reset */
        append(s, PART_RESET, NULL, 0);
        return (int32_t)len;
    }
    uint32_t n = (uint32_t)min_u64(len, room_of(s));
    if (n == 0)
        return -EAGAIN;
    for (uint32_t done = 0; done < n;) {
        uint32_t part = sim_one_in(6) ? 1 + (uint32_t)sim_below(n - done) : n - done;
        append(s->peer, PART_BYTES, (const uint8_t *)mem + done, part);
        done += part;
    }
    return (int32_t)n;
}

/* ---- connections ---- */

static struct sock *listener_at(uint16_t port)
{
    struct sock *found[64];
    unsigned count = 0;

    for (unsigned i = 0; i < all_count && count < ARRAY_COUNT(found); i++)
        if (all[i]->kind == SOCK_LISTENS && all[i]->port == port && !all[i]->shut_in &&
            all[i]->refs > 0)
            found[count++] = all[i];
    return count ? found[sim_below(count)] : NULL;
}

static struct sock *first_waiting(const struct sock *listener, bool take_out)
{
    for (struct sock **at = &waiting; *at; at = &(*at)->next) {
        struct sock *s = *at;
        if (s->port != listener->port || s->at_us > world.now_us)
            continue;
        if (take_out)
            *at = s->next;
        return s;
    }
    return NULL;
}

bool wire_is_listener(int fd)
{
    return sock_of(fd)->kind == SOCK_LISTENS;
}

bool wire_can_accept(int fd)
{
    const struct sock *s = sock_of(fd);
    return s->kind != SOCK_LISTENS || s->shut_in || first_waiting(s, false);
}

int32_t wire_accept(int fd)
{
    struct sock *l = sock_of(fd);

    if (l->kind != SOCK_LISTENS || l->shut_in)
        return -EINVAL;
    struct sock *s = first_waiting(l, true);
    if (!s)
        return -EAGAIN;
    s->next = NULL;
    s->queued_up = false;
    s->server = l->server;
    return show(s);
}

static void join(struct sock *a, struct sock *b, uint16_t port)
{
    a->kind = b->kind = SOCK_FLOWS;
    a->peer = b;
    b->peer = a;
    b->port = port;
    a->peer_port = port;
    b->peer_port = a->port = port_next = (uint16_t)(port_next < PORT_FIRST ? PORT_FIRST
                                                                           : port_next + 1);
    b->queued_up = true;
    b->at_us = world.now_us + 1 + sim_below(LATENCY_US_MOST);
    struct sock **at = &waiting;
    while (*at)
        at = &(*at)->next;
    *at = b;
}

int32_t wire_connect(int fd, const struct sockaddr *to)
{
    struct sock *s = sock_of(fd);
    uint16_t port = ntohs(((const struct sockaddr_in *)(const void *)to)->sin_port);

    if (!listener_at(port))
        return -ECONNREFUSED;
    struct sock *other = new_sock(SOCK_FLOWS);
    other->server = false;
    join(s, other, port);
    return 0;
}

int wire_client(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = show(new_sock(SOCK_NEW));

    if (wire_connect(fd, (const struct sockaddr *)(const void *)&to) == 0)
        return fd;
    wire_close(fd);
    return -1;
}

/* ---- ends ---- */

static void free_if_unseen(struct sock *s)
{
    if (s->refs || s->queued_up)
        return;
    while (s->first)
        drop_first(s);
    all[s->place] = all[--all_count];
    all[s->place]->place = s->place;
    mem_give(s);
}

static void part_from(struct sock *s, bool reset)
{
    struct sock *peer = s->peer;

    if (!peer)
        return;
    if (reset || !s->shut_out)
        append(peer, reset ? PART_RESET : PART_END, NULL, 0);
    peer->peer = NULL;
    s->peer = NULL;
    free_if_unseen(peer);
}

/* Nobody listens any more: who waited at this port is reset. */
static void refuse_waiting(uint16_t port)
{
    struct sock **at = &waiting;

    while (*at) {
        struct sock *s = *at;
        if (s->port != port) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->queued_up = false;
        part_from(s, true);
        free_if_unseen(s);
    }
}

int32_t wire_close(int fd)
{
    struct sock *s = sock_of(fd);

    fds[fd - SIM_FD_FIRST] = NULL;
    if (--s->refs > 0)
        return 0;
    if (s->kind == SOCK_FLOWS)
        part_from(s, s->hard || (arrived(s) && s->first->kind == PART_BYTES));
    if (s->kind == SOCK_LISTENS && !listener_at(s->port))
        refuse_waiting(s->port);
    free_if_unseen(s);
    return 0;
}

static int shut(struct sock *s, int how)
{
    if (s->kind == SOCK_LISTENS) {
        s->shut_in = true;
        return 0;
    }
    if (s->kind != SOCK_FLOWS)
        return -ENOTCONN;
    if (how != SHUT_WR)
        s->shut_in = true;
    if (how != SHUT_RD && !s->shut_out) {
        s->shut_out = true;
        if (s->peer)
            append(s->peer, s->hard && how == SHUT_RDWR ? PART_RESET : PART_END, NULL, 0);
    }
    return 0;
}

/* ---- system calls: on our descriptors ours, on others the real ones ---- */

int __wrap_socket(int domain, int type, int protocol);
int __wrap_bind(int fd, const struct sockaddr *at, socklen_t len);
int __wrap_listen(int fd, int backlog);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags);
int __wrap_getsockname(int fd, struct sockaddr *out, socklen_t *len);
int __wrap_getpeername(int fd, struct sockaddr *out, socklen_t *len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_shutdown(int fd, int how);
int __wrap_dup3(int from, int to, int flags);
int __wrap_eventfd(unsigned start, int flags);
int __wrap_poll(struct pollfd *p, nfds_t count, int ms);
int __wrap_ppoll(struct pollfd *p, nfds_t count, const struct timespec *t, const sigset_t *mask);
int __wrap_fcntl(int fd, int what, long argument);
int __real_fcntl(int fd, int what, long argument);
int __real_close(int fd);
int __wrap_close(int fd);
ssize_t __real_read(int fd, void *mem, size_t len);
ssize_t __wrap_read(int fd, void *mem, size_t len);
ssize_t __real_write(int fd, const void *mem, size_t len);
ssize_t __wrap_write(int fd, const void *mem, size_t len);
ssize_t __wrap_recv(int fd, void *mem, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *mem, size_t len, int flags);
int __real_poll(struct pollfd *p, nfds_t count, int ms);
int __wrap_fallocate(int fd, int mode, off_t from, off_t bytes);

static int told(int32_t res)
{
    if (res >= 0)
        return res;
    errno = -res;
    return -1;
}

int __wrap_socket(int domain, int type, int protocol)
{
    (void)domain;
    (void)type;
    (void)protocol;
    return show(new_sock(SOCK_NEW));
}

int __wrap_bind(int fd, const struct sockaddr *at, socklen_t len)
{
    struct sock *s = sock_of(fd);

    (void)len;
    s->port = ntohs(((const struct sockaddr_in *)(const void *)at)->sin_port);
    if (s->port == 0)
        s->port = port_next = (uint16_t)(port_next < PORT_FIRST ? PORT_FIRST : port_next + 1);
    return 0;
}

int __wrap_listen(int fd, int backlog)
{
    (void)backlog;
    sock_of(fd)->kind = SOCK_LISTENS;
    return 0;
}

static int name_out(uint16_t port, struct sockaddr *out, socklen_t *len)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(out, &at, min_u64(sizeof at, *len));
    *len = sizeof at;
    return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *out, socklen_t *len)
{
    return name_out(sock_of(fd)->port, out, len);
}

int __wrap_getpeername(int fd, struct sockaddr *out, socklen_t *len)
{
    const struct sock *s = sock_of(fd);
    return s->kind == SOCK_FLOWS ? name_out(s->peer_port, out, len) : told(-ENOTCONN);
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    struct sock *s = sock_of(fd);

    (void)len;
    if (level == SOL_SOCKET && name == SO_LINGER) {
        const struct linger *l = value;
        s->hard = l->l_onoff && l->l_linger == 0;
    }
    return 0;
}

int __wrap_shutdown(int fd, int how)
{
    return told(shut(sock_of(fd), how));
}

int __wrap_dup3(int from, int to, int flags)
{
    (void)flags;
    struct sock *s = sock_of(from);
    wire_close(to);
    fds[to - SIM_FD_FIRST] = s;
    s->refs++;
    return to;
}

int __wrap_eventfd(unsigned start, int flags)
{
    (void)flags;
    struct sock *s = new_sock(SOCK_EVENT);
    s->event = start;
    return show(s);
}

int __wrap_fcntl(int fd, int what, long argument)
{
    if (!sim_is_fd(fd))
        return __real_fcntl(fd, what, argument);
    if (what == F_SETFL)
        sock_of(fd)->nonblock = argument & O_NONBLOCK;
    return 0;
}

int __wrap_close(int fd)
{
    return sim_is_fd(fd) ? told(wire_close(fd)) : __real_close(fd);
}

static bool ready_to_take(void *fd)
{
    return wire_can_take((int)(intptr_t)fd);
}

static bool ready_to_put(void *fd)
{
    return wire_can_put((int)(intptr_t)fd);
}

ssize_t __wrap_recv(int fd, void *mem, size_t len, int flags)
{
    int32_t n;
    bool wait = !(flags & MSG_DONTWAIT) && !sock_of(fd)->nonblock;

    while ((n = wire_take(fd, mem, (uint32_t)min_u64(len, INT32_MAX), flags & MSG_PEEK)) ==
               -EAGAIN && wait)
        sim_block(ready_to_take, (void *)(intptr_t)fd, UINT64_MAX);
    return told(n);
}

ssize_t __wrap_read(int fd, void *mem, size_t len)
{
    return sim_is_fd(fd) ? __wrap_recv(fd, mem, len, 0) : __real_read(fd, mem, len);
}

ssize_t __wrap_send(int fd, const void *mem, size_t len, int flags)
{
    int32_t n;
    bool wait = !(flags & MSG_DONTWAIT) && !sock_of(fd)->nonblock;

    while ((n = wire_put(fd, mem, (uint32_t)min_u64(len, INT32_MAX))) == -EAGAIN && wait)
        sim_block(ready_to_put, (void *)(intptr_t)fd, UINT64_MAX);
    return told(n);
}

ssize_t __wrap_write(int fd, const void *mem, size_t len)
{
    if (sim_is_fd(fd))
        return told(wire_put(fd, mem, (uint32_t)len));
    bool log_line = fd == STDERR_FILENO && len > 2 && memcmp(mem, "t=", 2) == 0;
    return log_line && !world.verbose ? (ssize_t)len : __real_write(fd, mem, len);
}

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    (void)from;
    (void)len;
    int made = told(wire_accept(fd));
    if (made >= 0)
        sock_of(made)->nonblock = flags & SOCK_NONBLOCK;
    return made;
}

struct polled {
    struct pollfd *p;
    nfds_t count;
};

static short happens_at(const struct pollfd *p)
{
    const struct sock *s = sock_of(p->fd);
    short happens = 0;

    if ((p->events & POLLIN) &&
        (s->kind == SOCK_LISTENS ? wire_can_accept(p->fd) : wire_can_take(p->fd)))
        happens |= POLLIN;
    if (s->kind != SOCK_FLOWS)
        return happens;
    if ((p->events & POLLOUT) && wire_can_put(p->fd))
        happens |= POLLOUT;
    for (const struct part *at = s->first; at && at->at_us <= world.now_us; at = at->next) {
        if (at->kind != PART_BYTES)
            happens |= (short)(at->kind == PART_RESET ? POLLERR : p->events & POLLRDHUP);
    }
    return happens;
}

static bool something_happens(void *argument)
{
    const struct polled *w = argument;
    bool any = false;

    for (nfds_t i = 0; i < w->count; i++) {
        w->p[i].revents = happens_at(&w->p[i]);
        any |= w->p[i].revents != 0;
    }
    return any;
}

static int poll_until(struct pollfd *p, nfds_t count, uint64_t until_us)
{
    struct polled w = {p, count};
    int happened = 0;

    if (!something_happens(&w))
        sim_block(something_happens, &w, until_us);
    something_happens(&w);
    for (nfds_t i = 0; i < count; i++)
        happened += p[i].revents != 0;
    return happened;
}

int __wrap_poll(struct pollfd *p, nfds_t count, int ms)
{
    if (count == 0 || !sim_is_fd(p[0].fd))
        return __real_poll(p, count, ms);
    return poll_until(p, count, ms < 0 ? UINT64_MAX : world.now_us + (uint64_t)ms * 1000);
}

int __wrap_ppoll(struct pollfd *p, nfds_t count, const struct timespec *t, const sigset_t *mask)
{
    (void)mask;
    uint64_t us = t ? (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_nsec / 1000 + 1 : 0;
    return poll_until(p, count, t ? world.now_us + us : UINT64_MAX);
}

/* The slab's pages come when they are written: a run touches few of them. */
int __wrap_fallocate(int fd, int mode, off_t from, off_t bytes)
{
    (void)mode;
    return ftruncate(fd, from + bytes);
}
