/* What small objects at rest share with their neighbours: the store, the bucket, the key up to its
 * last slash, and the fields. A dataset has a few of these, or a few thousand.
 *
 * Invariants:
 *  1. Equal ones exist once; one lives while a packed object counts on it.
 *  2. What stands in it never changes.
 *
 * Life: that of the objects. Failure: NULL, and what was to be packed stays as it is.
 * Limits: objects that are alone in their folder share it with nobody, and take as much more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/packed.h"

static size_t kin_bytes(const struct kin *n)
{
    return sizeof *n + n->bucket_len + n->prefix_len;
}

struct span kin_bucket(const struct kin *n)
{
    return span_make(n->text, n->bucket_len);
}

struct span kin_prefix(const struct kin *n)
{
    return span_make(n->text + n->bucket_len, n->prefix_len);
}

/* Lock held. */
static struct kin *find(struct cache *c, const struct okey *k, struct span prefix,
                        struct span headers, uint64_t hash)
{
    struct index_table *t = &c->kin.table;
    uint32_t at = index_table_home(t, hash);
    struct kin *n;

    while ((n = index_table_next(t, hash, &at)))
        if (n->store == k->store && span_eq(kin_prefix(n), prefix) &&
            span_eq(kin_bucket(n), k->bucket) && span_eq(headers_span(n->headers), headers))
            break;
    if (n)
        n->refs++;
    return n;
}

static struct kin *make(struct cache *c, const struct okey *k, struct span prefix,
                        struct span headers)
{
    struct kin *n = mem_take(sizeof *n + k->bucket.len + prefix.len);
    struct header_set *set = n ? headers_intern(c, headers) : NULL;

    if (!set) {
        mem_give(n);
        return NULL;
    }
    *n = (struct kin){.cache = c, .headers = set, .refs = 1, .store = k->store,
                      .bucket_stripe = index_bucket_stripe(c, k->bucket),
                      .bucket_len = (uint16_t)k->bucket.len, .prefix_len = (uint16_t)prefix.len};
    memcpy(n->text, k->bucket.at, k->bucket.len);
    if (prefix.len)
        memcpy(n->text + k->bucket.len, prefix.at, prefix.len);
    index_charge_always(c, kin_bytes(n));
    return n;
}

static void give(struct kin *n)
{
    headers_drop(n->cache, n->headers);
    index_uncharge(n->cache, kin_bytes(n));
    mem_give(n);
}

struct kin *kin_take(struct cache *c, const struct okey *k, size_t prefix_len, struct span headers)
{
    struct span prefix = span_make(k->key.at, prefix_len);
    const struct span text[] = {k->bucket, prefix, headers};
    uint64_t hash = index_texts_hash(c, text, ARRAY_COUNT(text));
    struct index_shard *s = &c->kin;

    pthread_mutex_lock(&s->lock);
    struct kin *n = find(c, k, prefix, headers, hash);
    pthread_mutex_unlock(&s->lock);
    if (n)
        return n;
    struct kin *fresh = make(c, k, prefix, headers);
    if (!fresh)
        return NULL;
    fresh->hash = hash;
    pthread_mutex_lock(&s->lock);
    n = find(c, k, prefix, headers, hash); /* another thread may have been faster */
    bool fits = !n && index_reserve(c, s);
    if (fits)
        index_table_add(&s->table, hash, fresh);
    pthread_mutex_unlock(&s->lock);
    if (fits)
        return fresh;
    give(fresh);
    return n;
}

void kin_drop(struct kin *n)
{
    struct index_shard *s = &n->cache->kin;

    pthread_mutex_lock(&s->lock);
    must(n->refs > 0);
    bool last = --n->refs == 0;
    if (last)
        index_table_remove(&s->table, n->hash, n);
    pthread_mutex_unlock(&s->lock);
    if (last)
        give(n);
}
