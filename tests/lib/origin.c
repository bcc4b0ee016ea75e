/* Birth and end of the test origin: listener, acceptor, control port.
 *
 * Invariants:
 *  1. `reserve` stays bound without listening, so that a refusing origin keeps its port.
 *  2. `stop` is an eventfd that everything which waits looks at; once raised it stays so.
 *  3. The list of connections changes under the lock; only the acceptor (and origin_stop() behind
 *     it) joins and frees.
 *
 * Life: origin_start() makes sockets and the acceptor; the acceptor makes connection threads and
 * joins those
 *  that are over; origin_stop() raises `stop`, joins, frees.
 * Failure: start-up errors are told in why; a refused thread or connection is dropped. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/origin_part.h"

enum { STACK_BYTES = 512 * KIB, BACKLOG = 4096, ANSWER_BYTES = 8 * MIB, RELISTEN_MS = 5 };

/* ---- sockets ---- */

/* A bound socket; *port 0 = any, then set. -1 with errno. */
static int bind_socket(const char *address, uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t len = sizeof at;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || inet_pton(AF_INET, address, &at.sin_addr) != 1)
        goto bad;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        goto bad;
    *port = ntohs(at.sin_port);
    return fd;
bad:
    if (fd >= 0)
        close(fd);
    return -1;
}

static void raise_event(int fd)
{
    uint64_t one = 1;

    must(write(fd, &one, sizeof one) == sizeof one);
}

bool origin_listen(struct origin *o, bool on)
{
    if (o->listening == on)
        return true;
    o->listening = on;
    if (!on) {
        shutdown(o->listener, SHUT_RDWR);    /* the kernel refuses from here on */
        return true;
    }
    int fd = bind_socket(o->address, &o->port);
    if (fd < 0 || listen(fd, BACKLOG) != 0 || dup3(fd, o->listener, O_CLOEXEC) < 0) {
        if (fd >= 0)
            close(fd);
        o->listening = false;
        return false;
    }
    close(fd);
    return true;
}

void origin_cut(struct origin *o)
{
    struct linger hard = {1, 0};

    for (struct connection *c = o->connections; c; c = c->next)
        if (c->fd >= 0) {
            setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
            shutdown(c->fd, SHUT_RDWR);
        }
}

/* ---- connections ---- */

static void add_connection(struct origin *o, int fd)
{
    struct connection *c = mem_take(sizeof *c);
    pthread_attr_t attr;
    int one = 1;

    must(c);
    c->origin = o;
    c->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pthread_mutex_lock(&o->lock);
    struct origin_stats *s = &o->stats;
    s->max_connections = max_u64(s->max_connections, ++s->connections);
    c->next = o->connections;
    o->connections = c;
    pthread_mutex_unlock(&o->lock);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    must(pthread_create(&c->thread, &attr, origin_serve, c) == 0);
    pthread_attr_destroy(&attr);
}

/* Joins and frees connections that are over, or all of them. */
static void reap(struct origin *o, bool all)
{
    struct connection *dead = NULL;

    pthread_mutex_lock(&o->lock);
    for (struct connection **at = &o->connections; *at;) {
        struct connection *c = *at;
        if (!all && !c->over) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = dead;
        dead = c;
    }
    pthread_mutex_unlock(&o->lock);
    while (dead) {
        struct connection *c = dead;
        dead = c->next;
        pthread_join(c->thread, NULL);
        mem_give(c);
    }
}

static void *accept_all(void *argument)
{
    struct origin *o = argument;

    for (;;) {
        pthread_mutex_lock(&o->lock);
        bool listening = o->listening;
        pthread_mutex_unlock(&o->lock);
        struct pollfd p[2] = {{o->stop, POLLIN, 0}, {o->listener, POLLIN, 0}};
        poll(p, listening ? 2 : 1, listening ? 1000 : RELISTEN_MS);
        if (p[0].revents)
            return NULL;
        int fd = listening && p[1].revents
                     ? accept4(o->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (fd >= 0) {
            fcntl(fd, F_SETFL, 0);
            add_connection(o, fd);
        }
        reap(o, false);
    }
}

/* ---- the control port: a line in, lines out, then "ok" or "error: why" ---- */

static bool control_line(struct origin *o, int fd, struct span line, struct text *answer)
{
    text_init(answer, answer->at, answer->cap);
    bool good = origin_script(o, line, answer);
    text_adds(answer, good ? "ok\n" : "\n");
    if (!good && send(fd, "error: ", 7, MSG_NOSIGNAL | MSG_MORE) != 7)
        return false;
    for (size_t done = 0; done < answer->len;) {
        ssize_t n = send(fd, answer->at + done, answer->len - done, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static void talk(struct origin *o, int fd)
{
    char in[16 * KIB];
    size_t have = 0;
    struct text answer = {.at = mem_take(ANSWER_BYTES), .cap = ANSWER_BYTES};

    must(answer.at);
    for (;;) {
        char *end;
        struct pollfd p[2] = {{o->stop, POLLIN, 0}, {fd, POLLIN, 0}};
        poll(p, 2, -1);
        ssize_t n = p[0].revents ? 0 : recv(fd, in + have, sizeof in - have, 0);
        if (n <= 0)
            break;
        have += (size_t)n;
        while ((end = memchr(in, '\n', have))) {
            size_t len = (size_t)(end - in) + 1;
            if (!control_line(o, fd, span_make(in, len), &answer))
                goto over;
            memmove(in, in + len, have - len);
            have -= len;
        }
        if (have == sizeof in)
            break;
    }
over:
    mem_give(answer.at);
}

/* One control connection after the other: tests talk, they do not compete. */
static void *control_all(void *argument)
{
    struct origin *o = argument;

    for (;;) {
        struct pollfd p[2] = {{o->stop, POLLIN, 0}, {o->control, POLLIN, 0}};
        poll(p, 2, -1);
        if (p[0].revents)
            return NULL;
        int fd = accept4(o->control, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        talk(o, fd);
        close(fd);
    }
}

/* ---- birth and end ---- */

static bool open_sockets(struct origin *o, const struct origin_options *options)
{
    o->port = options->port;
    o->reserve = bind_socket(o->address, &o->port);
    o->listener = o->reserve < 0 ? -1 : bind_socket(o->address, &o->port);
    o->stop = eventfd(0, EFD_CLOEXEC);
    if (o->listener < 0 || o->stop < 0 || listen(o->listener, BACKLOG) != 0)
        return false;
    o->listening = true;
    if (!options->control)
        return true;
    o->control_port = options->control_port;
    o->control = bind_socket("127.0.0.1", &o->control_port);
    return o->control >= 0 && listen(o->control, BACKLOG) == 0;
}

static void close_sockets(struct origin *o)
{
    int fds[] = {o->reserve, o->listener, o->control, o->stop};

    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

struct origin *origin_start(const struct origin_options *options, char why[200])
{
    struct origin *o = mem_take(sizeof *o);

    must(o);
    pthread_mutex_init(&o->lock, NULL);
    o->listener = o->reserve = o->control = o->stop = -1;
    o->log_on = !options->quiet;
    const char *address = options->address ? options->address : "127.0.0.1";
    snprintf(o->address, sizeof o->address, "%s", address);
    if (!open_sockets(o, options)) {
        snprintf(why, 200, "%s:%u: %s", o->address, options->port, strerror(errno));
        close_sockets(o);
        mem_give(o);
        return NULL;
    }
    must(pthread_create(&o->acceptor, NULL, accept_all, o) == 0);
    if (options->control) {
        must(pthread_create(&o->controller, NULL, control_all, o) == 0);
        o->has_controller = true;
    }
    return o;
}

uint16_t origin_port(const struct origin *o)
{
    return o->port;
}

uint16_t origin_control_port(const struct origin *o)
{
    return o->control_port;
}

void origin_stop(struct origin *o)
{
    raise_event(o->stop);
    pthread_join(o->acceptor, NULL);
    if (o->has_controller)
        pthread_join(o->controller, NULL);
    pthread_mutex_lock(&o->lock);
    origin_cut(o);
    pthread_mutex_unlock(&o->lock);
    reap(o, true);
    close_sockets(o);
    origin_forget_rules(o);
    origin_forget(o);
    pthread_mutex_destroy(&o->lock);
    mem_give(o);
}
