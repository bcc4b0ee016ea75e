/* How many connections each address has, so that one host cannot take them all.
 *
 * Invariants:
 *  1. An address is in the table exactly while it has a connection; so the table needs no more
 *     places than there may be connections, and is made once.
 *  2. An IPv6 host is its /64, since it has all of that; IPv4 in IPv6 is IPv4.
 *  3. The hash is seeded at start: nobody outside can choose addresses that collide.
 *
 * Life: made by net_open(), shared by the cores; a connection enters when it is accepted and leaves
 * when it is closed.
 * Failure: over the limit, or without a place, the newcomer is refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "server/net/net.h"

static const uint32_t NONE = UINT32_MAX;

struct peer {
    uint64_t key;
    uint32_t next, count;            /* in its bucket, or in the free list */
};
struct peers {
    pthread_mutex_t lock;
    uint64_t most, seed, mask;
    uint32_t *bucket;
    struct peer *peer;
    uint32_t free, fresh, places;    /* fresh: places from here on were never used */
};

static uint64_t key_of(const struct sockaddr *at)
{
    const uint64_t v4 = (uint64_t)0xffff << 32; /* as in ::ffff:0:0/96; no /64 looks like it */
    uint32_t low;
    uint64_t high;
    if (at->sa_family != AF_INET6)
        return v4 | ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr);
    const struct in6_addr *six = &((const struct sockaddr_in6 *)at)->sin6_addr;
    memcpy(&low, six->s6_addr + 12, sizeof(low));
    memcpy(&high, six->s6_addr, sizeof(high));
    return IN6_IS_ADDR_V4MAPPED(six) ? v4 | ntohl(low) : high;
}

/* Every bit of the key must move the low bits, whatever the seed: multiplied once, keys that differ
 * in their high bits only, as the prefixes of one IPv6 network do, would meet in one bucket. */
static uint32_t *bucket_of(const struct peers *p, uint64_t key)
{
    uint64_t h = key ^ p->seed;
    for (unsigned round = 0; round < 3; round++) {
        h ^= h >> 32;
        h *= 0x9E3779B97F4A7C15u;
    }
    return &p->bucket[(h ^ h >> 32) & p->mask];
}

struct peers *peers_make(uint64_t connections, uint64_t most)
{
    struct peers *p = mem_take(sizeof(*p));
    uint64_t buckets = 16;
    while (buckets < connections)
        buckets *= 2;
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    p->most = most;
    p->seed = random_u64();
    p->mask = buckets - 1;
    p->places = (uint32_t)min_u64(connections, NONE - 1);
    p->free = NONE;
    p->bucket = mem_take(buckets * sizeof(*p->bucket));
    p->peer = mem_take(p->places * sizeof(*p->peer));
    if (p->bucket && p->peer) {
        memset(p->bucket, 0xff, buckets * sizeof(*p->bucket)); /* NONE */
        return p;
    }
    peers_free(p);
    return NULL;
}

void peers_free(struct peers *p)
{
    if (!p)
        return;
    pthread_mutex_destroy(&p->lock);
    mem_give(p->bucket);
    mem_give(p->peer);
    mem_give(p);
}

/* A new one at the head of its bucket; NONE: there is no place. */
static uint32_t add(struct peers *p, uint32_t *bucket, uint64_t key)
{
    uint32_t i = p->free;
    if (i != NONE)
        p->free = p->peer[i].next;
    else if (p->fresh < p->places)
        i = p->fresh++;
    else
        return NONE;
    p->peer[i] = (struct peer){.key = key, .next = *bucket};
    *bucket = i;
    return i;
}

bool peers_enter(struct peers *p, const struct sockaddr *at, uint32_t *place)
{
    uint64_t key = key_of(at);
    *place = NONE;
    if (p->most == 0 || at->sa_family == AF_UNSPEC) /* no limit, or gone already */
        return true;
    pthread_mutex_lock(&p->lock);
    uint32_t *bucket = bucket_of(p, key), i = *bucket;
    while (i != NONE && p->peer[i].key != key)
        i = p->peer[i].next;
    if (i == NONE)
        i = add(p, bucket, key);
    bool may = i != NONE && p->peer[i].count < p->most;
    if (may) {
        p->peer[i].count++;
        *place = i;
    }
    pthread_mutex_unlock(&p->lock);
    return may;
}

void peers_leave(struct peers *p, uint32_t place)
{
    if (place == NONE)
        return;
    pthread_mutex_lock(&p->lock);
    struct peer *gone = &p->peer[place];
    must(gone->count > 0);
    if (--gone->count == 0) {
        uint32_t *link = bucket_of(p, gone->key);
        while (*link != place)
            link = &p->peer[*link].next;
        *link = gone->next;
        gone->next = p->free;
        p->free = place;
    }
    pthread_mutex_unlock(&p->lock);
}
