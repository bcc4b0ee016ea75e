/* Blocks that are being read from disk, so that whoever wants one too waits for it instead of
 * having the disk read it again.
 *
 * Invariants:
 *  1. One read of a name is listed at a time; it has its memory, so it ends without its waiters.
 *  2. What is listed is verified as soon as it has come: its reader takes it off the list before it
 *     leaves it lying, which it may only do while nobody waits.
 *  3. A waiter is linked (then it may leave) or its message is under way (then it waits for it).
 *  4. core_send() is called without any lock.
 *
 * Life: reading_begin() lists a read or makes the caller wait; reading_end() wakes who waits, when
 * the block has its name in the pool, or will not get it. The memory of both is their machines'.
 * Failure: none here. Who is woken looks again, and may find nothing: then it reads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

void readings_init(struct readings *r)
{
    for (unsigned i = 0; i < READING_SHARDS; i++) {
        pthread_mutex_init(&r->shard[i].lock, NULL);
        list_init(&r->shard[i].list);
    }
}

void readings_fini(struct readings *r)
{
    for (unsigned i = 0; i < READING_SHARDS; i++)
        pthread_mutex_destroy(&r->shard[i].lock);
}

static struct reading_shard *shard_of(struct cache *c, const struct buffer_key *k)
{
    return &cache_pool(c)->readings.shard[pool_key_hash(k) % READING_SHARDS];
}

static struct block_read *find(const struct reading_shard *s, const struct buffer_key *k)
{
    LIST_EACH(&s->list, struct block_read, node, r)
        if (r->key.at == k->at && id_eq(r->key.data_id, k->data_id))
            return r;
    return NULL;
}

/* On the waiter's core. */
static void wait_over(struct core *core, struct message *msg)
{
    struct block_read_wait *w = container_of(msg, struct block_read_wait, msg);

    must(w->busy && w->m->core == core && w->m->inflight > 0);
    w->busy = false;
    w->m->inflight--;
    machine_wake(w->m);
}

bool reading_begin(struct cache *c, struct block_read *r, const struct buffer_key *k,
                   struct block_read_wait *w, struct machine *m)
{
    struct reading_shard *s = shard_of(c, k);

    must(!r->listed && !w->busy);
    pthread_mutex_lock(&s->lock);
    struct block_read *other = find(s, k);
    if (other) {
        *w = (struct block_read_wait){.msg.deliver = wait_over, .m = m, .shard = s, .busy = true};
        m->inflight++;
        list_push(&other->waiters, &w->node);
    } else {
        r->key = *k;
        r->listed = true;
        list_init(&r->waiters);
        list_push(&s->list, &r->node);
    }
    pthread_mutex_unlock(&s->lock);
    return !other;
}

bool reading_may_rest(struct cache *c, struct block_read *r)
{
    if (!r->listed)
        return true;
    struct reading_shard *s = shard_of(c, &r->key);
    pthread_mutex_lock(&s->lock);
    bool alone = list_empty(&r->waiters);
    if (alone)
        node_remove(&r->node);
    pthread_mutex_unlock(&s->lock);
    r->listed = !alone;
    return alone;
}

void reading_end(struct cache *c, struct block_read *r)
{
    struct message *told = NULL;

    if (!r->listed)
        return;
    struct reading_shard *s = shard_of(c, &r->key);
    pthread_mutex_lock(&s->lock);
    node_remove(&r->node);
    LIST_EACH(&r->waiters, struct block_read_wait, node, w) {
        node_remove(&w->node);
        w->msg.next = told;
        told = &w->msg;
    }
    pthread_mutex_unlock(&s->lock);
    r->listed = false;
    while (told) {
        struct message *next = told->next;
        core_send(container_of(told, struct block_read_wait, msg)->m->core, told);
        told = next;
    }
}

bool reading_leave(struct block_read_wait *w)
{
    if (!w->busy)
        return true;
    pthread_mutex_lock(&w->shard->lock);
    bool waiting = node_linked(&w->node);
    if (waiting)
        node_remove(&w->node);
    pthread_mutex_unlock(&w->shard->lock);
    if (waiting) {
        w->busy = false;
        w->m->inflight--;
    }
    return waiting;
}
