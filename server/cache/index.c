/* What objects and chunks of the RAM index share: identities, memory accounting, header sets, their
 * birth and death.
 *
 * Invariants:
 *  1. index_bytes is the sum of what was charged: items as they were asked for plus 16 bytes each
 *     for the allocator, and the tables; packed objects and their kin as they are. It passes the
 *     limit by at most what one call charges, and what is unpacked at once beyond packing.c's
 *     notes.
 *  2. Identities are XXH3-128 under the directories' secret over length-prefixed texts: nobody
 *     outside can make two of them collide, and no two different lists of texts give the same
 *     bytes.
 *  3. Equal header sets exist once (a dataset shares one); a set lives while an object counts on
 *     it.
 *
 * Life: index_locks(), then index_make() before the directories are loaded; index_fini() when
 * nothing else runs, and frees whatever is left.
 * Failure: over the limit small objects at rest are packed; else an object without chunks, then a
 * chunk, is evicted; else the caller hears of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <xxhash.h>
#pragma GCC diagnostic pop

#include "server/cache/packed.h"

enum { ALLOCATION_BYTES = 16, HASHED_AT_ONCE = 4 * KIB, ROOM_TRIES = 32, PLENTY = 64,
       SAMPLE = 32 };

struct header_set {
    uint64_t hash;
    uint32_t refs;                   /* under the shard's lock */
    uint32_t len;
    char text[];
};

/* ---- identities ---- */
struct hashing {                     /* texts gathered so that short keys take the one-shot path */
    const uint8_t *secret;
    size_t len;
    uint8_t bytes[HASHED_AT_ONCE];
    XXH3_state_t state;
    bool streams;
};

static void hash_bytes(struct hashing *h, const void *bytes, size_t len)
{
    if (len > sizeof h->bytes - h->len) {
        if (!h->streams)
            XXH3_128bits_reset_withSecret(&h->state, h->secret,
                                          sizeof ((struct cache *)0)->hash_secret);
        h->streams = true;
        XXH3_128bits_update(&h->state, h->bytes, h->len);
        h->len = 0;
    }
    if (len > sizeof h->bytes)
        XXH3_128bits_update(&h->state, bytes, len);
    else if (len)
        memcpy(h->bytes + h->len, bytes, len);
    h->len += len > sizeof h->bytes ? 0 : len;
}

static void hash_text(struct hashing *h, struct span text)
{
    uint32_t len = (uint32_t)text.len;

    hash_bytes(h, &len, sizeof len);
    hash_bytes(h, text.at, text.len);
}

static struct id hash_end(struct hashing *h)
{
    XXH128_hash_t x;

    if (h->streams) {
        XXH3_128bits_update(&h->state, h->bytes, h->len);
        x = XXH3_128bits_digest(&h->state);
    } else {
        x = XXH3_128bits_withSecret(h->bytes, h->len, h->secret,
                                    sizeof ((struct cache *)0)->hash_secret);
    }
    return (struct id){x.low64, x.high64};
}

static void hash_begin(struct hashing *h, const struct cache *c, uint8_t store)
{
    h->secret = c->hash_secret;
    h->len = 0;
    h->streams = false;
    hash_text(h, span_of(c->server->store[store]));
}

struct id index_object_id(const struct cache *c, const struct okey *k)
{
    struct hashing h;

    hash_begin(&h, c, k->store);
    hash_text(&h, k->bucket);
    hash_text(&h, k->key);
    hash_text(&h, k->version);
    return hash_end(&h);
}

void index_find_store(const struct cache *c, struct okey *k)
{
    for (k->store = 0; k->store < c->server->store_count; k->store++)
        if (id_eq(index_object_id(c, k), k->id))
            return;
    k->store = STORE_NONE;
}

void cache_key(struct cache *c, struct okey *k)
{
    k->store = c->server->store_of[k->upstream];
    k->id = index_object_id(c, k);
    k->key_stripe = index_key_stripe(c, k);
    k->bucket_stripe = index_bucket_stripe(c, k->bucket);
}

uint16_t index_key_stripe(const struct cache *c, const struct okey *k)
{
    if (k->version.len == 0 || k->store == STORE_NONE)
        return (uint16_t)(k->id.a >> 48);
    struct okey current = *k;
    current.version = span_of("");
    return (uint16_t)(index_object_id(c, &current).a >> 48);
}

uint16_t index_bucket_stripe(struct cache *c, struct span bucket)
{
    return XXH3_64bits_withSecret(bucket.at, bucket.len, c->hash_secret, sizeof c->hash_secret) %
        EPOCH_BUCKETS;
}

struct id cache_data_id(const struct cache *c, const struct okey *k, struct span etag,
                        uint64_t size)
{
    struct hashing h;

    hash_begin(&h, c, k->store);
    hash_text(&h, k->bucket);
    hash_text(&h, k->key);
    hash_text(&h, etag);
    hash_bytes(&h, &size, sizeof size);
    return hash_end(&h);
}

uint64_t index_texts_hash(const struct cache *c, const struct span *text, unsigned count)
{
    uint64_t hash = 0;

    for (unsigned i = 0; i < count; i++)
        hash = hash * 0x9E3779B97F4A7C15 + XXH3_64bits_withSecret(text[i].at, text[i].len,
                                                                  c->hash_secret,
                                                                  sizeof c->hash_secret);
    return hash;
}

/* ---- memory ---- */
/* Of packed objects some will be read, and are larger then, whatever the limit: room for as many as
 * that may be (packing.c) is kept free for them, less what those take that are. */
uint64_t index_limit(const struct cache *c)
{
    const struct packing *p = &c->packing;
    uint64_t most = c->index_limit_bytes / PACKING_PART;
    uint64_t may = min_u64(atomic_load(&p->packed) * PACKING_SAVES, most);
    uint64_t taken = min_u64(atomic_load(&p->larger) * PACKING_SAVES, most);

    return c->index_limit_bytes - (may > taken ? may - taken : 0);
}

/* One without chunks: the longest unchecked of a sample. */
static bool evict_object(struct cache *c)
{
    uint64_t oldest = UINT64_MAX;
    struct id id = {0};

    for (unsigned i = 0; i < SAMPLE; i++) {
        struct index_shard *s = &c->object[random_u64() % CACHE_SHARDS];
        pthread_mutex_lock(&s->lock);
        struct entry *e = index_table_sample(&s->table);
        if (e && !item_is_packed(e) && atomic_load(&e->o.holds) == 1 &&
            atomic_load(&e->chunks) == 0 &&
            atomic_load(&e->o.checked_ms) < oldest) {
            oldest = atomic_load(&e->o.checked_ms);
            id = e->o.id;
        }
        pthread_mutex_unlock(&s->lock);
    }
    return oldest != UINT64_MAX && index_evict_idle(c, id);
}

bool index_charge(struct cache *c, uint64_t bytes)
{
    bytes += ALLOCATION_BYTES;
    for (unsigned tries = 0; atomic_load(&c->index_bytes) + bytes > index_limit(c); tries++)
        if (tries == ROOM_TRIES ||
            (!packing_relieve(c) && !evict_object(c) && !evict_any(c)))
            return false;
    atomic_fetch_add(&c->index_bytes, bytes);
    return true;
}

bool index_charge_free(struct cache *c, uint64_t bytes)
{
    bytes += ALLOCATION_BYTES;
    if (atomic_fetch_add(&c->index_bytes, bytes) + bytes <= index_limit(c))
        return true;
    atomic_fetch_sub(&c->index_bytes, bytes);
    return false;
}

void index_charge_always(struct cache *c, uint64_t bytes)
{
    atomic_fetch_add(&c->index_bytes, bytes + ALLOCATION_BYTES);
}

/* Of cells nothing is lost but what rounds them up. */
void index_charge_cell(struct cache *c, uint64_t bytes)
{
    atomic_fetch_add(&c->index_bytes, round_up(bytes, CELL_STEP));
}

void index_uncharge_cell(struct cache *c, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub(&c->index_bytes, round_up(bytes, CELL_STEP));

    must(before >= bytes);
}

bool index_charge_plenty(struct cache *c, uint64_t bytes, unsigned count)
{
    uint64_t all = count * (bytes + ALLOCATION_BYTES), now = atomic_load(&c->index_bytes);

    return count > 0 && now + PLENTY * all <= c->index_limit_bytes &&
           index_charge_free(c, all - ALLOCATION_BYTES);
}

void index_uncharge_many(struct cache *c, uint64_t bytes, unsigned count)
{
    if (count > 0)
        index_uncharge(c, count * (bytes + ALLOCATION_BYTES) - ALLOCATION_BYTES);
}

void index_uncharge(struct cache *c, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub(&c->index_bytes, bytes + ALLOCATION_BYTES);

    must(before >= bytes + ALLOCATION_BYTES);
}

bool index_reserve_many(struct cache *c, struct index_shard *s, uint64_t count)
{
    uint64_t before = index_table_bytes(&s->table);

    if (!index_table_reserve(&s->table, (uint32_t)min_u64(s->table.count + count, UINT32_MAX)))
        return false;
    uint64_t more = index_table_bytes(&s->table) - before;
    if (more > 0)                    /* else all who add would write a line that they share */
        atomic_fetch_add(&c->index_bytes, more);
    return true;
}

bool index_reserve(struct cache *c, struct index_shard *s)
{
    return index_reserve_many(c, s, 1);
}

void index_prefetch(const struct index_shard *s, uint64_t hash)
{
    const uint64_t *slot = __atomic_load_n(&s->table.slot, __ATOMIC_RELAXED);
    struct index_table t = {.cap = __atomic_load_n(&s->table.cap, __ATOMIC_RELAXED)};

    __builtin_prefetch(slot + index_table_home(&t, hash));
}

/* ---- header sets ---- */
struct header_set *headers_intern(struct cache *c, struct span text)
{
    uint64_t hash = XXH3_64bits_withSecret(text.at, text.len, c->hash_secret,
                                           sizeof c->hash_secret);
    struct index_shard *s = &c->header;
    struct header_set *h;

    pthread_mutex_lock(&s->lock);
    uint32_t at = index_table_home(&s->table, hash);
    while ((h = index_table_next(&s->table, hash, &at)))
        if (span_eq(headers_span(h), text))
            break;
    if (!h && index_reserve(c, s) && (h = mem_take(sizeof *h + text.len))) {
        h->hash = hash;
        h->len = (uint32_t)text.len;
        if (text.len)
            memcpy(h->text, text.at, text.len);
        index_table_add(&s->table, hash, h);
        atomic_fetch_add(&c->index_bytes, sizeof *h + text.len + ALLOCATION_BYTES);
    }
    if (h)
        h->refs++;
    pthread_mutex_unlock(&s->lock);
    return h;
}

void headers_drop(struct cache *c, struct header_set *h)
{
    struct index_shard *s = &c->header;

    pthread_mutex_lock(&s->lock);
    must(h->refs > 0);
    bool last = --h->refs == 0;
    if (last)
        index_table_remove(&s->table, h->hash, h);
    pthread_mutex_unlock(&s->lock);
    if (last) {
        index_uncharge(c, sizeof *h + h->len);
        mem_give(h);
    }
}

struct span headers_span(const struct header_set *h)
{
    return span_make(h->text, h->len);
}

/* ---- birth and death ---- */
static uint64_t hash_of_entry(const void *item)
{
    return index_hash(item_is_packed(item) ? packed_id(item_packed(item))
                                           : ((const struct entry *)item)->o.id);
}

static uint64_t hash_of_chunk(const void *item)
{
    const struct chunk *k = item;

    return item_is_packed(item) ? index_chunk_hash(packed_data_id(item_packed(item)), 0)
                                : index_chunk_hash(k->data_id, k->number);
}

static uint64_t hash_of_kin(const void *item)
{
    return ((const struct kin *)item)->hash;
}

static uint64_t hash_of_headers(const void *item)
{
    return ((const struct header_set *)item)->hash;
}

void index_locks(struct cache *c)
{
    c->header.table.hash = hash_of_headers;
    c->kin.table.hash = hash_of_kin;
    for (unsigned i = 0; i < CACHE_SHARDS; i++) {
        c->object[i].table.hash = hash_of_entry;
        c->chunk[i].table.hash = hash_of_chunk;
        pthread_mutex_init(&c->object[i].lock, NULL);
        pthread_mutex_init(&c->chunk[i].lock, NULL);
        pthread_mutex_init(&c->stripe[i].lock, NULL);
    }
    pthread_mutex_init(&c->header.lock, NULL);
    pthread_mutexattr_t spins;

    pthread_mutexattr_init(&spins);
    pthread_mutexattr_settype(&spins, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&c->kin.lock, &spins); /* of threads that load, held for a look */
    pthread_mutex_init(&c->packing.lock, &spins);
    pthread_mutexattr_destroy(&spins);
    pthread_mutex_init(&c->reap_lock, NULL);
    pthread_mutex_init(&c->count_lock, NULL);
}

bool index_make(struct cache *c)
{
    c->index_limit_bytes = c->config->cache_index_memory;
    if (c->index_limit_bytes == 0)
        c->index_limit_bytes = max_u64(c->config->cache_memory / 8, CACHE_INDEX_BYTES_MIN);
    atomic_store(&c->index_bytes, sizeof c->epochs);
    /* XXH3 wants a longer secret than a header should hold; stretched by the part of xxHash whose
     * results are fixed for good. */
    for (unsigned i = 0; i < sizeof c->hash_secret / 8; i++) {
        uint64_t word = XXH64(c->secret, sizeof c->secret, i + 1);
        memcpy(c->hash_secret + 8 * i, &word, sizeof word);
    }
    c->cells = cells_make();
    c->sums = c->cells ? cells_make() : NULL;
    /* Not charged: its pages have no memory before a key is written of which versions are here. */
    c->epochs.after = mem_take(EPOCH_STRIPES * sizeof *c->epochs.after);
    return c->sums && c->epochs.after && packing_open(c);
}

static void give_all(struct index_shard *s)
{
    for (uint32_t at = 0; at < s->table.cap; at++)
        mem_give(index_table_at(&s->table, at));
    index_table_fini(&s->table);
    pthread_mutex_destroy(&s->lock);
}

void index_fini(struct cache *c)
{
    for (unsigned i = 0; i < CACHE_SHARDS; i++) {
        index_table_fini(&c->chunk[i].table);
        index_table_fini(&c->object[i].table);
        pthread_mutex_destroy(&c->object[i].lock);
        pthread_mutex_destroy(&c->chunk[i].lock);
        pthread_mutex_destroy(&c->stripe[i].lock);
    }
    give_all(&c->kin);
    give_all(&c->header);
    packing_close(c);
    pthread_mutex_destroy(&c->packing.lock);
    cells_free(c->sums);
    cells_free(c->cells);
    c->sums = c->cells = NULL;
    mem_give(c->epochs.after);
    c->epochs.after = NULL;
    while (c->reap) {
        struct reap *r = c->reap;
        c->reap = r->next;
        mem_give(r);
    }
    pthread_mutex_destroy(&c->reap_lock);
    pthread_mutex_destroy(&c->count_lock);
}
