/* A scaled cache: a small model of a large one, of the chunks that are sampled, in numbers only.
 *
 * Invariants:
 *  1. Of a cache that uses n bytes it holds n times the rate, and nothing but chunks at or below
 *     the limit; the rate is the share of all hashes that are. What the cache keeps free for what
 *     is written next is lent as there, where the policy would have nothing leave, and comes back
 *     as there: with a page for each chunk that is let in, unless many are denied.
 *  2. Its policy is the server's own, for the whole capacity: its clock counts every sampled byte
 *     as many as it stands for.
 *  3. What a miss costs is as the server counts it: the first reading of each block is what it was
 *     fetched for, whether it was fetched then or with the rest of its chunk. Who leaves is the
 *     least of 32.
 *
 * Life: with its sizing. Failure: only scaled_make() can fail; `full` asks for a lower rate. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "server/policy/inside.h"

enum err scaled_make(struct scaled_cache *c, const struct policy *like,
                     const struct sizing_room *room, uint32_t chunks)
{
    c->room = *room;
    c->random = room->whole;
    TRY(sized_make(&c->table, chunks));
    c->policy = policy_make_like(like, max_u64(room->whole / CHUNK_BYTES, 1), chunks);
    return c->policy ? OK : ERR_MEMORY;
}

void scaled_free(struct scaled_cache *c)
{
    sized_free(&c->table);
    policy_free(c->policy);
    *c = (struct scaled_cache){0};
}

static uint64_t random_below(struct scaled_cache *c, uint64_t n)
{
    c->random += 0x9E3779B97F4A7C15;
    return (uint64_t)((unsigned __int128)sizing_place(c->random) * n >> 64);
}

static void leave(struct scaled_cache *c, struct sized_chunk *k, bool remembered)
{
    c->used -= k->bytes;
    if (remembered)
        policy_remember(c->policy, k->hash, &k->mark);
    sized_remove(&c->table, k);
}

static bool fits(const struct scaled_cache *c, uint64_t bytes, double room)
{
    return (double)(c->used + bytes) <= room;
}

static struct sized_chunk *coldest(struct scaled_cache *c, double *value)
{
    struct sized_chunk *least = NULL;

    for (unsigned n = 0; c->table.count > 0 && n < POLICY_LOOKS; n++) {
        struct sized_chunk *k = &c->table.chunk[random_below(c, c->table.count)];
        double v = policy_value(c->policy, &k->mark);
        if (!least || v < *value) {
            least = k;
            *value = v;
        }
    }
    return least;
}

/* Until so many bytes have left. False: who would leave next is worth more than the newcomer, or
 * nobody is left; some may have left. */
static bool make_leave(struct scaled_cache *c, const struct policy_mark *mark, uint64_t bytes)
{
    for (uint64_t gone = 0; gone < bytes;) {
        double value = 0;
        struct sized_chunk *k = coldest(c, &value);
        if (!k || !policy_admits(c->policy, mark, value, k->mark.group))
            return false;
        gone += k->bytes;
        leave(c, k, true);
    }
    return true;
}

/* Bytes beyond what is used while the reserve is free. */
static uint64_t excess(const struct scaled_cache *c, uint64_t bytes, double rate)
{
    double n = (double)(c->used + bytes) - (double)c->room.used * rate;

    return n > 0 ? (uint64_t)ceil(n) : 0;
}

/* As evict_slot() does: a victim for who comes, and a page more where the reserve is in use; but
 * not while many are denied, so that what was lent to them stays lent. A page is of many chunks
 * there: here no more of it leaves than was lent. */
static bool make_room(struct scaled_cache *c, const struct policy_mark *mark, uint64_t bytes,
                      double rate)
{
    uint64_t over = excess(c, bytes, rate);

    if (over == 0)
        return true;
    bool comes = make_leave(c, mark, min_u64(bytes, over));
    c->denied = policy_denials(c->denied, !comes);
    if (!comes)
        return fits(c, bytes, (double)c->room.lent * rate);
    over = policy_denies_many(c->denied) ? 0 : excess(c, bytes, rate);
    (void)make_leave(c, mark, min_u64(CHUNK_BYTES, over));
    return fits(c, bytes, (double)c->room.whole * rate);
}

static void miss(struct scaled_cache *c, const struct sizing_read *r, double rate)
{
    struct policy_miss what = {r->hash, r->bytes, r->chunk_bytes, r->group};
    struct policy_mark mark;

    policy_missed(c->policy, &what, &mark);
    bool comes = make_room(c, &mark, r->stored_bytes, rate);
    struct sized_chunk *k = comes ? sized_add(&c->table, r->hash) : NULL;
    c->full = c->full || (comes && !k);
    if (!k) {
        policy_remember(c->policy, r->hash, &mark);
        return;
    }
    mark.flags = 0;
    k->mark = mark;
    k->bytes = r->stored_bytes;
    k->read = r->blocks;
    c->used += k->bytes;
}

/* Bytes of it that are read for the first time since it came. */
static uint64_t first_read(struct sized_chunk *k, const struct sizing_read *r)
{
    unsigned first = (unsigned)__builtin_popcount(r->blocks & ~k->read);

    k->read |= r->blocks;
    return (uint64_t)r->bytes * first / (unsigned)__builtin_popcount(r->blocks);
}

uint64_t scaled_read(struct scaled_cache *c, const struct sizing_read *r, double rate)
{
    struct sized_chunk *k = sized_find(&c->table, r->hash);
    uint64_t missed = r->bytes;

    policy_served(c->policy, (uint64_t)(r->bytes / rate));
    if (k) {
        missed = first_read(k, r);
        k->mark.group = r->group;
        if (!r->once)
            policy_reference(c->policy, r->hash, &k->mark, r->bytes, r->chunk_bytes);
    } else if (!r->once) {
        miss(c, r, rate);
    }
    if (policy_is_due(c->policy))
        policy_refresh(c->policy);
    return missed;
}

void scaled_limit(struct scaled_cache *c, uint32_t limit)
{
    for (uint32_t n = 0; n < c->table.count;) {
        if (sizing_place(c->table.chunk[n].hash) >> 32 > limit)
            leave(c, &c->table.chunk[n], false);
        else
            n++;
    }
    c->full = false;
}
