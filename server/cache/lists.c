/* Answers to lists of a bucket's objects, kept in memory for a short while.
 *
 * Invariants:
 *  1. A list is found only while no write of its bucket was begun since it was asked for, and kept
 *     only if none was under way then: so none is older than a write that its client heard of.
 *  2. All memory, of lists that still come in and of those that are gone but held, counts against
 *     one limit, 1/16 of cache.memory; over it the least recently used go.
 *  3. Names are compared on every find: the hash never decides.
 *
 * Life: listing_make() when the answer begins, listing_keep() when it is whole, listing_drop() by
 * each who holds it; from then on the table has it until it is too old, overtaken, or pushed out.
 * Failure: without room or memory nothing is kept.
 * Limits: 1 MiB each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

enum { LISTING_BYTES_MAX = MIB, LISTING_BYTES_FIRST = 16 * KIB, LISTINGS_SHARE = 16 };

static struct list *chain_of(struct cache *c, struct id id)
{
    return &c->listings.chain[id.a % LISTING_CHAINS];
}

static bool is_named(const struct listing *l, const struct okey *k)
{
    return id_eq(l->id, k->id) && l->store == k->store && span_eq(l->bucket, k->bucket) &&
           span_eq(l->key, k->key) && span_eq(l->version, k->version);
}

/* ---- memory; the lock is held ---- */
static void count_locked(struct cache *c, int64_t bytes)
{
    c->listings.bytes = (uint64_t)((int64_t)c->listings.bytes + bytes);
    metric_gauge_add(METRIC_LIST_CACHE_BYTES, 0, bytes);
}

static void close_locked(struct cache *c, struct listing *l)
{
    count_locked(c, -(int64_t)(l->bytes + l->room));
    mem_give(l->memory);
    mem_give(l);
}

static void drop_locked(struct cache *c, struct listing *l)
{
    must(l->holds > 0);
    if (--l->holds == 0)
        close_locked(c, l);
}

static void unlist_locked(struct cache *c, struct listing *l)
{
    node_remove(&l->in_chain);
    node_remove(&l->by_use);
    drop_locked(c, l);
}

static bool charge_locked(struct cache *c, uint64_t bytes)
{
    struct listings *t = &c->listings;

    while (t->bytes + bytes > t->limit) {
        struct node *oldest = list_first(&t->by_use);
        if (!oldest)
            return false;
        unlist_locked(c, container_of(oldest, struct listing, by_use));
    }
    count_locked(c, (int64_t)bytes);
    return true;
}

static bool charge(struct cache *c, uint64_t bytes)
{
    pthread_mutex_lock(&c->listings.lock);
    bool good = charge_locked(c, bytes);
    pthread_mutex_unlock(&c->listings.lock);
    return good;
}

static void uncharge(struct cache *c, uint64_t bytes)
{
    pthread_mutex_lock(&c->listings.lock);
    count_locked(c, -(int64_t)bytes);
    pthread_mutex_unlock(&c->listings.lock);
}

/* ---- one that comes in ---- */
void listing_note(struct cache *c, struct listing_note *n, const struct okey *k, uint64_t now_ms)
{
    n->bucket_stripe = k->bucket_stripe;
    n->count = epoch_lists(c, k->bucket_stripe);
    n->asked_ms = now_ms;
}

static struct span put(char **at, struct span text)
{
    struct span there = span_make(*at, text.len);

    if (text.len)
        memcpy(*at, text.at, text.len);
    *at += text.len;
    return there;
}

struct listing *listing_make(struct cache *c, const struct okey *k, const struct listing_note *n,
                             struct span head)
{
    size_t bytes = sizeof(struct listing) + k->bucket.len + k->key.len + k->version.len + head.len;

    if (!charge(c, bytes))
        return NULL;
    struct listing *l = mem_take(bytes);
    if (!l) {
        uncharge(c, bytes);
        return NULL;
    }
    char *at = l->text;
    l->bucket = put(&at, k->bucket);
    l->key = put(&at, k->key);
    l->version = put(&at, k->version);
    l->head = put(&at, head);
    l->id = k->id;
    l->store = k->store;
    l->note = *n;
    l->bytes = (uint32_t)bytes;
    l->holds = 1;
    return l;
}

/* Of that room; false: no memory. */
static bool resize(struct cache *c, struct listing *l, uint32_t room)
{
    if (!charge(c, room))
        return false;
    char *memory = mem_take(room);
    if (!memory) {
        uncharge(c, room);
        return false;
    }
    if (l->body.len)
        memcpy(memory, l->body.at, l->body.len);
    mem_give(l->memory);
    uncharge(c, l->room);
    l->memory = memory;
    l->room = room;
    l->body.at = memory;
    return true;
}

bool listing_add(struct cache *c, struct listing *l, const void *mem, size_t len)
{
    uint32_t room = l->room > 0 ? l->room : LISTING_BYTES_FIRST;

    if (len > LISTING_BYTES_MAX - l->body.len)
        return false;
    while (room < l->body.len + len)
        room *= 2;
    if (room > l->room && !resize(c, l, room))
        return false;
    memcpy(l->memory + l->body.len, mem, len);
    l->body.len += len;
    return true;
}

/* ---- the table ---- */
static struct listing *find_locked(struct cache *c, const struct okey *k)
{
    LIST_EACH(chain_of(c, k->id), struct listing, in_chain, l)
        if (is_named(l, k))
            return l;
    return NULL;
}

void listing_keep(struct cache *c, struct listing *l)
{
    const struct okey name = {.bucket = l->bucket, .key = l->key, .version = l->version,
                              .id = l->id, .store = l->store};

    if (l->body.len > 0 && l->body.len < l->room / 4 * 3)
        (void)resize(c, l, (uint32_t)l->body.len); /* else it keeps the room it has */
    pthread_mutex_lock(&c->listings.lock);
    struct listing *before = find_locked(c, &name);
    bool newer = !before || before->note.asked_ms <= l->note.asked_ms;
    if (newer && epoch_lists_hold(c, l->note.bucket_stripe, l->note.count)) {
        if (before)
            unlist_locked(c, before);
        list_push(chain_of(c, l->id), &l->in_chain);
        list_push(&c->listings.by_use, &l->by_use);
        l->holds++;
    }
    pthread_mutex_unlock(&c->listings.lock);
}

struct listing *listing_find(struct cache *c, const struct okey *k, uint64_t now_ms,
                             uint64_t ttl_ms)
{
    pthread_mutex_lock(&c->listings.lock);
    struct listing *l = find_locked(c, k);
    bool overtaken = l && !epoch_lists_hold(c, l->note.bucket_stripe, l->note.count);
    if (l && (overtaken || now_ms >= l->note.asked_ms + ttl_ms)) {
        unlist_locked(c, l);
        l = NULL;
    }
    if (l) {
        node_remove(&l->by_use);
        list_push(&c->listings.by_use, &l->by_use);
        l->holds++;
    }
    pthread_mutex_unlock(&c->listings.lock);
    return l;
}

void listing_drop(struct cache *c, struct listing *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&c->listings.lock);
    drop_locked(c, l);
    pthread_mutex_unlock(&c->listings.lock);
}

/* ---- the table's life ---- */
void listings_init(struct cache *c)
{
    struct listings *t = &c->listings;

    pthread_mutex_init(&t->lock, NULL);
    list_init(&t->by_use);
    for (unsigned i = 0; i < LISTING_CHAINS; i++)
        list_init(&t->chain[i]);
    t->limit = c->config->cache_memory / LISTINGS_SHARE;
}

void listings_fini(struct cache *c)
{
    LIST_EACH(&c->listings.by_use, struct listing, by_use, l)
        unlist_locked(c, l);         /* what a core that was cut holds goes with the process */
    pthread_mutex_destroy(&c->listings.lock);
}
