/* File descriptors: how many we may have, how many of them clients get.
 *
 * Invariants:
 *  1. Clients get what is left when upstream connections, disks, listeners and the admin plane have
 *     theirs; so a crowd of clients never makes a fetch fail for want of a descriptor.
 *
 * Life: once, before the listening sockets are made.
 * Failure: too few for the server itself is a start message; too few for server.max_connections is
 * a log line with the setting to raise, and fewer connections. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/resource.h>

#include "log.h"
#include "server/net/net.h"

enum {
    SPARE = 64,                      /* standard streams, log, libraries, files read now and then */
    PER_CORE = 16 + 32,              /* ring, pipe, inbox, listeners; idle upstream connections */
    PER_DIRECTORY = 8,               /* lock, slab, index */
    PER_UPSTREAM = 2,                /* while it connects, two addresses race */
    ADMIN = 64,                      /* its connections */
    CLIENTS_MIN = 16,
};

static uint64_t aside(const struct server *s)
{
    const struct config *c = s->config;
    uint64_t upstream = 0;
    for (unsigned i = 0; i < c->upstream_count; i++)
        upstream += c->upstream[i].connections;
    return SPARE + ADMIN + upstream * PER_UPSTREAM +
           (uint64_t)s->core_count * PER_CORE + c->cache_dirs.count * PER_DIRECTORY;
}

/* What all listeners may bring in one turn: each core has one for each address. */
static uint64_t backlogs(const struct server *s)
{
    return (uint64_t)NET_BACKLOG * s->core_count * s->config->server_listen.count;
}

/* The soft limit, raised to `wanted` as far as the hard one allows. */
static uint64_t raise_to(uint64_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return wanted;
    if (limit.rlim_cur < wanted) {
        struct rlimit more = {min_u64(wanted, limit.rlim_max), limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            limit = more;
    }
    return limit.rlim_cur;
}

enum err descriptors_settle(const struct server *s, struct net *net, char why[256])
{
    uint64_t ours = aside(s), least = ours + CLIENTS_MIN, wanted = ours + net->connections_max;
    uint64_t may = raise_to(wanted + backlogs(s));
    net->may_burst = may >= wanted + backlogs(s);
    if (may >= wanted)
        return OK;
    if (may < least) {
        snprintf(
            why, 256,
            "only %llu open files are allowed, the server itself needs %llu: raise LimitNOFILE "
            "(ulimit -n)",
            (unsigned long long)may, (unsigned long long)least);
        return ERR_SYSTEM;
    }
    log_event(EVENT_DESCRIPTORS, "open_files=%llu wanted=%llu connections=%llu fix=%s",
              (unsigned long long)may, (unsigned long long)wanted,
              (unsigned long long)(may - ours),
              log_value(span_of("raise LimitNOFILE (ulimit -n) or lower server.max_connections")));
    net->connections_max = may - ours;
    return OK;
}
