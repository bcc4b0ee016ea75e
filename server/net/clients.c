/* Who was served in the last minutes: a small table for status, so that traffic that bypasses the
 * cache is noticed.
 *
 * Invariants:
 *  1. Written by a connection's first request and then every SEEN_EVERY_S, not by each; at most
 *     CLIENTS_MAX rows, the oldest goes.
 *
 * Life: part of the process; no allocation. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>

#include "server/net/net.h"

enum { CLIENTS_MAX = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct net_client table[CLIENTS_MAX];

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

void net_saw_client(struct conn *c, struct span user_agent)
{
    if (!conn_is_unseen(c))
        return;
    char agent[32];
    name_agent(user_agent, agent);
    pthread_mutex_lock(&lock);
    struct net_client *row = &table[0];
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        if (strcmp(table[i].host, conn_peer(c)) == 0 && strcmp(table[i].agent, agent) == 0) {
            row = &table[i];
            break;
        }
        if (table[i].last_wall_s < row->last_wall_s)
            row = &table[i];
    }
    snprintf(row->host, sizeof(row->host), "%s", conn_peer(c));
    memcpy(row->agent, agent, sizeof(row->agent));
    row->last_wall_s = clock_wall_s();
    pthread_mutex_unlock(&lock);
}

unsigned net_clients(struct server *s, struct net_client *out, unsigned cap)
{
    (void)s;
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < CLIENTS_MAX && count < cap; i++)
        if (table[i].last_wall_s > 0)
            out[count++] = table[i];
    pthread_mutex_unlock(&lock);
    for (unsigned i = 1; i < count; i++) /* newest first; insertion sort of at most 64 rows */
        for (unsigned j = i; j > 0 && out[j].last_wall_s > out[j - 1].last_wall_s; j--) {
            struct net_client swap = out[j];
            out[j] = out[j - 1];
            out[j - 1] = swap;
        }
    return count;
}
