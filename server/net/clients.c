/* Who was served in the last minutes: a table for status, so that traffic that bypasses the cache
 * is noticed.
 *
 * Invariants:
 *  1. Written by a connection's first request and then every SEEN_EVERY_S, not by each; at most
 *     CLIENTS_MAX rows, the oldest goes.
 *  2. A row is found by its host: rows of one host are in one chain, head[] to next[].
 *
 * Life: part of the process; no allocation but for who reads it. Failure: no memory to read it
 * with: it looks empty. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/net/net.h"

enum { CLIENTS_MAX = 1024, CHAINS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct net_client table[CLIENTS_MAX];
static uint16_t head[CHAINS], next[CLIENTS_MAX]; /* a row's number + 1; 0: the chain ends */
static unsigned used;                /* rows */

/* "Boto3/1.34.1 md/..." -> "Boto3"; only harmless bytes. */
static void name_agent(struct span agent, char out[32])
{
    size_t n = 0;
    while (n < agent.len && n < 31 &&
           ((agent.at[n] >= 'a' && agent.at[n] <= 'z') ||
            (agent.at[n] >= 'A' && agent.at[n] <= 'Z') ||
            (agent.at[n] >= '0' && agent.at[n] <= '9') || agent.at[n] == '-' || agent.at[n] == '_'))
        n++;
    if (n > 0)
        memcpy(out, agent.at, n);
    else
        memcpy(out, "unknown", n = 7);
    out[n] = '\0';
}

static uint16_t *chain_of(const char *host)
{
    uint32_t hash = 2166136261;      /* FNV-1a */
    for (const char *c = host; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619;
    return &head[(hash ^ hash >> 16) % CHAINS];
}

/* The oldest row, out of its chain. */
static struct net_client *take_oldest(void)
{
    unsigned oldest = 0;
    for (unsigned i = 1; i < CLIENTS_MAX; i++)
        if (table[i].last_wall_s < table[oldest].last_wall_s)
            oldest = i;
    uint16_t *link = chain_of(table[oldest].host);
    while (*link != oldest + 1)
        link = &next[*link - 1];
    *link = next[oldest];
    return &table[oldest];
}

static struct net_client *row_of(const char *host, const char *agent)
{
    uint16_t *chain = chain_of(host);
    for (unsigned i = *chain; i > 0; i = next[i - 1])
        if (strcmp(table[i - 1].host, host) == 0 && strcmp(table[i - 1].agent, agent) == 0)
            return &table[i - 1];
    struct net_client *row = used < CLIENTS_MAX ? &table[used++] : take_oldest();
    snprintf(row->host, sizeof(row->host), "%s", host);
    snprintf(row->agent, sizeof(row->agent), "%s", agent);
    next[row - table] = *chain;      /* behind take_oldest(): it may be its chain, too */
    *chain = (uint16_t)(row - table + 1);
    return row;
}

void net_saw_client(struct conn *c, struct span user_agent)
{
    if (!conn_is_unseen(c))
        return;
    char agent[32];
    name_agent(user_agent, agent);
    pthread_mutex_lock(&lock);
    row_of(conn_peer(c), agent)->last_wall_s = clock_wall_s();
    pthread_mutex_unlock(&lock);
}

static int by_host(const void *a, const void *b)
{
    const struct net_client *x = a, *y = b;
    return strcmp(x->host, y->host);
}

static int newest_first(const void *a, const void *b)
{
    const struct net_client *x = a, *y = b;
    return (x->last_wall_s < y->last_wall_s) - (x->last_wall_s > y->last_wall_s);
}

unsigned net_clients(uint64_t since_wall_s, struct net_client *out, unsigned cap,
                     struct net_hosts *hosts)
{
    struct net_client *all = mem_take(sizeof(table));
    unsigned count = 0;
    *hosts = (struct net_hosts){0};
    if (!all)
        return 0;
    pthread_mutex_lock(&lock);
    hosts->more = used == CLIENTS_MAX;
    for (unsigned i = 0; i < used; i++) {
        hosts->more = hosts->more && table[i].last_wall_s >= since_wall_s;
        if (table[i].last_wall_s >= since_wall_s)
            all[count++] = table[i];
    }
    pthread_mutex_unlock(&lock);
    qsort(all, count, sizeof(*all), by_host);
    for (unsigned i = 0; i < count; i++)
        hosts->count += i == 0 || strcmp(all[i].host, all[i - 1].host) != 0;
    qsort(all, count, sizeof(*all), newest_first);
    count = count < cap ? count : cap;
    memcpy(out, all, count * sizeof(*all));
    mem_give(all);
    return count;
}
