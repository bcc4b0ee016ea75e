/* One core's part of the clients' side: its connections' memory, its listeners, its drain.
 *
 * Invariants:
 *  1. Connections and requests have stocks that are made once; they grow up to the limit on
 *     connections and are given back when the core ends.
 *
 * Life: net_core_begin() on the core's thread, net_core_drain() once, net_core_end() behind the
 * last turn.
 * Failure: no memory at the start. After a cut what is left stays with the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/net.h"
#include "tls.h"

struct net_core *net_core(struct core *c)
{
    return c->net;
}

enum err net_core_begin(struct core *c)
{
    struct net *net = c->server->net;
    struct net_core *n = mem_take(sizeof(*n));
    if (!n)
        return ERR_MEMORY;
    c->net = n;
    n->core = c;
    uint32_t max = (uint32_t)net->connections_max + NET_SLACK;
    conns_begin(n, max);
    stock_init(&n->sealed_stock, SESSION_OUT_BYTES, SESSION_BIG_MAX);
    stock_init(&n->small_sealed_stock, SESSION_SMALL_BYTES, max);
    n->record = mem_take(TLS_RECORD_BYTES);
    n->listener = listeners_make(net->address_count);
    if (!n->listener || !n->record)
        return ERR_MEMORY;
    listeners_begin(n);
    return OK;
}

void net_core_drain(struct core *c)
{
    struct net_core *n = c->net;
    n->draining = true;
    listeners_drain(n);
    conns_drain(n);
}

bool net_core_idle(const struct core *c)
{
    const struct net_core *n = c->net;
    return n->listeners_alive == 0 && list_empty(&n->conns);
}

void net_core_end(struct core *c)
{
    struct net_core *n = c->net;
    if (!net_core_idle(c)) {         /* cut: the process ends with what is left */
        conns_cut(n);
        return;
    }
    stock_fini(&n->conn_stock);
    stock_fini(&n->request_stock);
    stock_fini(&n->big_stock);
    stock_fini(&n->sealed_stock);
    stock_fini(&n->small_sealed_stock);
    mem_give(n->record);
    mem_give(n->listener);
    mem_give(n);
    c->net = NULL;
}

uint64_t net_connection_count(const struct server *s)
{
    return atomic_load_explicit(&s->net->connections, memory_order_relaxed);
}
