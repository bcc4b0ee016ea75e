/* From an object at its full size to a packed one, and back.
 *
 * A hand goes round the tables of objects, a round a minute, and packs what nobody has read since;
 * whoever finds a packed one unpacks it first. Those that came or were unpacked last are noted, and
 * packed before that once there are many: so of a dataset which is read as fast as can be few are
 * at their full size.
 *
 * Invariants:
 *  1. One form takes the other's place under the stripe, in the table of objects, in that of
 *     chunks, in residents and in its section, each under its lock. Who finds the packed one in
 *     between waits for the stripe.
 *  2. Packed is what nobody holds: the last look at the holds is under the lock of the table that
 *     it is taken out of. What changed until then undoes it.
 *  3. Notes are ids: what became of the object since shows when its turn comes. What finds no room
 *     there the hand finds.
 *  4. What cannot be unpacked for want of memory leaves the index with its records: it must not be
 *     there for some and not for others.
 *
 * Life: the hand belongs to the policy's thread, which begins when all is loaded.
 * Failure: what cannot be packed stays as it is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/packed.h"

enum {
    LOOK_MS = 250,
    SLOTS_AT_ONCE = 64,              /* looked at under the lock, each may be a wait for memory */
    IDS_AT_ONCE = 16,
#ifdef HEADPOND_ASAN                 /* where faults are looked for it comes often */
    ROUND_MS = LOOK_MS, IDLE_S = 0,
#else
    ROUND_MS = 60 * 1000, IDLE_S = 60,
#endif
    NOTES_MOST = 128 * KIB,          /* of objects at their full size: half of them is 25 MiB */
    NOTED_BYTES = 400,               /* what such an object takes */
    LOST_IDLE_S = 1,
    AHEAD_S = 2,
    RELIEF_NOTES = 16,
    RELIEF_SLICES = 4,
};

/* ---- tables ---- */
static void swap_object(struct cache *c, struct id id, void *old, void *item)
{
    struct index_shard *s = index_shard(c->object, id);

    pthread_mutex_lock(&s->lock);
    index_table_swap(&s->table, index_hash(id), old, item);
    pthread_mutex_unlock(&s->lock);
}

static void swap_chunk(struct cache *c, struct id data_id, void *old, void *item)
{
    struct index_shard *s = chunk_shard(c, data_id, 0);

    pthread_mutex_lock(&s->lock);
    index_table_swap(&s->table, index_chunk_hash(data_id, 0), old, item);
    pthread_mutex_unlock(&s->lock);
}

/* ---- unpack ---- */
static struct entry *make_entry(struct cache *c, const struct small *s)
{
    struct object_facts f = {.size = s->size, .last_modified_s = s->modified_s,
                             .asked_ms = s->checked_ms, .etag = s->etag, .headers = s->headers};
    struct entry *e = entry_restore(c, &s->k, &f);

    if (!e)
        return NULL;
    e->o.data_id = s->data_id;
    e->serial = atomic_fetch_add(&c->serial, 1);
    e->commit = s->vouched;          /* looked at while a start reads: then they are the same */
    e->dirs = s->unrecorded ? 0 : 1U << s->slot.dir;
    e->doubted = s->doubted ? e->dirs : 0;
    atomic_store(&e->o.flags, s->flags);
    atomic_store(&e->o.holds, 1);
    atomic_store(&e->vouched, s->vouched);
    atomic_store(&e->saved_s, s->saved_s);
    atomic_store(&e->read_s, s->read_s);
    atomic_store(&e->saved_read_s, s->saved_read_s);
    atomic_store(&e->chunks, s->has_chunk);
    return e;
}

static struct chunk *make_chunk(struct cache *c, const struct small *s, uint32_t serial)
{
    struct chunk *k = chunk_take(c, (uint32_t)s->size);

    if (!k)
        return NULL;
    index_charge_always(c, chunk_size(k->bytes));
    k->data_id = s->data_id;
    k->object_id = s->k.id;
    k->serial = serial;
    k->slot = s->slot;
    k->state = s->unrecorded ? 0 : CHUNK_RECORDED;
    k->section = s->section;
    k->unpinned = s->unpinned;
    k->mark = s->mark;
    atomic_store(&k->holds, 1);
    atomic_store(&k->present, 1);
    memcpy(k->crc, s->crc, chunk_granules(k->bytes) * sizeof *k->crc);
    return k;
}

static void remove_chunk_record(struct cache *c, const struct small *s, bool *stuck)
{
    struct journal_change change = {.id = s->data_id, .remove = true};

    *stuck = journal_queue(c->dir[s->slot.dir].journal, &change, 1) != OK;
}

static void remove_object_record(struct cache *c, const struct small *s)
{
    struct object_record r = {.bucket = s->k.bucket, .key = s->k.key};
    struct journal_change change = {.id = s->k.id, .object = &r, .remove = true};
    struct journal *j = c->dir[s->slot.dir].journal;

    if (journal_queue(j, &change, 1) != OK)
        journal_distrust(j);
}

/* As chunk_remove() and entry_unrecord(). */
static void leave(struct cache *c, struct packed *p, const struct small *s, enum label_evict cause)
{
    struct index_shard *objects = index_shard(c->object, s->k.id);
    struct index_shard *chunks = chunk_shard(c, s->data_id, 0);
    bool stuck = false;

    pthread_mutex_lock(&objects->lock);
    index_table_remove(&objects->table, index_hash(s->k.id), packed_item(p));
    pthread_mutex_unlock(&objects->lock);
    if (!s->has_chunk) {             /* a start reads; the next one finds it again */
        packed_give(c, p);
        return;
    }
    pthread_mutex_lock(&chunks->lock);
    index_table_remove(&chunks->table, index_chunk_hash(s->data_id, 0), packed_item(p));
    pthread_mutex_unlock(&chunks->lock);
    residents_remove(c, s->slot, packed_item(p));
    quota_leave_packed(c, p, s);
    atomic_fetch_sub(&c->chunk_count, 1);
    atomic_fetch_sub(&c->object_count, 1);
    if (cause < LABEL_evict_COUNT)
        atomic_fetch_add(&c->evicted_bytes[cause], s->size);
    if (s->mark.flags & MARK_AHEAD)
        atomic_fetch_add(&c->ahead_lost, s->size);
    remove_chunk_record(c, s, &stuck);
    remove_object_record(c, s);
    if (!stuck)
        packed_limbo(c, p, s->slot);
    else
        packed_give(c, p);
}

static void read_all(struct cache *c, const struct packed *p, struct small *s,
                     char text[PACKED_TEXT])
{
    packed_read(p, s, text);
    s->k.id = index_object_id(c, &s->k);
    s->data_id = cache_data_id(c, &s->k, s->etag, s->size);
}

void packed_leave(struct cache *c, struct packed *p, enum label_evict cause)
{
    char text[PACKED_TEXT];
    struct small s;

    read_all(c, p, &s, text);
    leave(c, p, &s, cause);
}

struct entry *packed_unpack_shortly(struct cache *c, struct packed *p)
{
    char text[PACKED_TEXT];
    struct small s;

    read_all(c, p, &s, text);
    struct entry *e = make_entry(c, &s);
    struct chunk *k = e && s.has_chunk ? make_chunk(c, &s, e->serial) : NULL;
    if (!e || (s.has_chunk && !k)) {
        if (e)
            entry_free(c, e);
        leave(c, p, &s, LABEL_evict_COUNT);
        return NULL;
    }
    swap_object(c, s.k.id, packed_item(p), e);
    if (k) {
        swap_chunk(c, s.data_id, packed_item(p), k);
        residents_swap(c, s.slot, packed_item(p), k);
        quota_swap(c, s.section, packed_item(p), k);
    }
    packed_give(c, p);
    return e;
}

struct entry *packed_unpack(struct cache *c, struct packed *p)
{
    struct entry *e = packed_unpack_shortly(c, p);

    if (e)
        packing_note(c, e);
    return e;
}

/* ---- pack ---- */
/* Not those that never can be packed, or have no chunk. Only the object is looked at, under its
 * table's lock or the stripe, as below. */
static bool may_be_packed(const struct entry *e)
{
    return e->o.size > 0 && e->o.size <= PACKED_BYTES_MAX && e->version_len == 0 &&
           atomic_load(&e->chunks) == 1 && atomic_load(&e->o.part_bytes) == 0 &&
           atomic_load(&e->vouched) != UINT64_MAX;
}

static bool is_idle(const struct entry *e, uint32_t now_s, uint32_t idle_s)
{
    uint32_t ago = now_s - atomic_load(&e->read_s);

    /* A moment ahead of now it is when another core was faster; much, where the clock was set
     * back. */
    return atomic_load(&e->o.holds) == 1 && ago >= idle_s && ago < UINT32_MAX - AHEAD_S;
}

/* What both say; false: a packed one cannot say it. That it is young is left out: only answers of
 * several blocks are made with regard to that, and this has one. Stripe held. */
static bool read_both(const struct cache *c, const struct entry *e, const struct chunk *k,
                      struct small *s)
{
    const struct object *o = &e->o;

    *s = (struct small){
        .k = {.bucket = object_bucket(o), .key = object_key(o), .version = object_version(o),
              .store = o->store, .bucket_stripe = e->bucket_stripe, .id = o->id},
        .data_id = o->data_id, .size = o->size, .modified_s = o->last_modified_s,
        .checked_ms = atomic_load(&o->checked_ms), .vouched = atomic_load(&e->vouched),
        .flags = atomic_load(&o->flags) & ~(uint32_t)OBJECT_YOUNG,
        .saved_s = atomic_load(&e->saved_s), .read_s = atomic_load(&e->read_s),
        .saved_read_s = atomic_load(&e->saved_read_s),
        .etag = object_etag(o), .headers = object_headers(o), .slot = k->slot,
        .doubted = e->doubted != 0, .unrecorded = k->state == 0, .has_chunk = true,
        .unpinned = k->unpinned, .section = k->section, .mark = chunk_mark(k),
    };
    uint32_t granules = chunk_granules(k->bytes), dirs = s->unrecorded ? 0 : 1U << k->slot.dir;
    bool good = e->dirs == dirs && !(e->doubted & ~dirs) && atomic_load(&o->part_bytes) == 0 &&
                (s->unrecorded || k->state == CHUNK_RECORDED) &&
                atomic_load(&k->present) == 1 && k->bytes == o->size && chunk_sums(k) &&
                k->serial == e->serial && id_eq(k->object_id, o->id);
    if (good)
        memcpy(s->crc, k->crc, granules * sizeof *k->crc);
    return good && small_fits(c, s) && small_fits_chunk(c, s);
}

static bool is_same(const struct small *a, const struct small *b)
{
    return a->checked_ms == b->checked_ms && a->vouched == b->vouched && a->flags == b->flags &&
           a->saved_s == b->saved_s && a->read_s == b->read_s &&
           a->saved_read_s == b->saved_read_s && memcmp(&a->mark, &b->mark, sizeof a->mark) == 0 &&
           memcmp(a->crc, b->crc, sizeof a->crc) == 0;
}

static bool take_object(struct cache *c, struct entry *e, struct packed *p)
{
    struct index_shard *s = index_shard(c->object, e->o.id);

    pthread_mutex_lock(&s->lock);
    bool free = atomic_load(&e->o.holds) == 1;
    if (free)
        index_table_swap(&s->table, index_hash(e->o.id), e, packed_item(p));
    pthread_mutex_unlock(&s->lock);
    return free;
}

static bool take_chunk(struct cache *c, struct chunk *k, struct packed *p)
{
    struct index_shard *s = chunk_shard(c, k->data_id, 0);

    pthread_mutex_lock(&s->lock);
    bool free = atomic_load(&k->holds) == 1;
    if (free)
        index_table_swap(&s->table, index_chunk_hash(k->data_id, 0), k, packed_item(p));
    pthread_mutex_unlock(&s->lock);
    return free;
}

/* p says what s does. false: somebody came, and all is as before. Stripe held. */
static bool take_places(struct cache *c, struct entry *e, struct chunk *k, struct packed *p,
                        const struct small *s)
{
    struct small now;

    if (!take_object(c, e, p))
        return false;
    bool both = take_chunk(c, k, p);
    if (both && read_both(c, e, k, &now) && is_same(s, &now))
        return true;
    if (both)
        swap_chunk(c, k->data_id, packed_item(p), k);
    swap_object(c, e->o.id, packed_item(p), e);
    return false;
}

enum packing_end {
    IS_PACKED,
    IS_BUSY,                         /* somebody has it, or had it a moment ago: later */
    IS_ELSE,                         /* it cannot be packed, or needs not */
};

/* Stripe held. */
static enum packing_end pack_entry(struct cache *c, struct entry *e)
{
    struct small s;
    struct chunk *k = chunk_peek(c, e->o.id, e->o.data_id, 0);
    struct packed *p = k && read_both(c, e, k, &s) ? packed_make(c, &s) : NULL;

    if (!p)
        return k && !(k->state & CHUNK_RECORDED) ? IS_BUSY : IS_ELSE; /* it is being filled */
    if (!take_places(c, e, k, p, &s)) {
        packed_give(c, p);
        return IS_BUSY;
    }
    residents_swap(c, k->slot, k, packed_item(p));
    quota_swap(c, k->section, k, packed_item(p));
    index_uncharge(c, chunk_size(k->bytes));
    chunk_give(c, k);
    entry_free(c, e);
    return IS_PACKED;
}

/* note: it comes back to one that is busy. */
static enum packing_end pack(struct cache *c, struct id id, uint32_t idle_s, bool note)
{
    struct index_shard *stripe = index_shard(c->stripe, id);
    enum packing_end end = IS_ELSE;

    pthread_mutex_lock(&stripe->lock);
    struct entry *e = index_object_item(c, id);
    if (e && !item_is_packed(e) && may_be_packed(e))
        end = is_idle(e, (uint32_t)clock_wall_s(), idle_s) ? pack_entry(c, e) : IS_BUSY;
    if (end == IS_BUSY && note)
        packing_note(c, e);
    pthread_mutex_unlock(&stripe->lock);
    return end;
}

void object_leave(struct cache *c, struct object *o)
{
    struct id id = o->id;
    bool small = o->size <= PACKED_BYTES_MAX;

    object_drop(c, o);
    if (small)
        (void)pack(c, id, IDLE_S, true);
}

/* ---- notes ---- */
bool packing_open(struct cache *c)
{
    struct packing *n = &c->packing;

    n->cap = (uint32_t)min_u64(NOTES_MOST, c->index_limit_bytes / PACKING_PART / NOTED_BYTES * 2);
    n->cap = (uint32_t)max_u64(n->cap, 2);
    n->note = mem_take(n->cap * sizeof *n->note);
    n->first = n->noted = 0;
    n->lost = false;
    atomic_store(&n->larger, 0);
    return n->note != NULL;
}

void packing_close(struct cache *c)
{
    mem_give(c->packing.note);
    c->packing.note = NULL;
}

void packing_note(struct cache *c, struct entry *e)
{
    struct packing *n = &c->packing;

    pthread_mutex_lock(&n->lock);
    bool fits = n->noted < n->cap;
    if (fits)
        n->note[(n->first + n->noted++) % n->cap] = e->o.id;
    n->lost = n->lost || !fits;
    pthread_mutex_unlock(&n->lock);
    if (!fits || e->noted)
        return;
    e->noted = true;
    atomic_fetch_add_explicit(&n->larger, 1, memory_order_relaxed);
}

void packing_unnote(struct cache *c, struct entry *e)
{
    if (e->noted)
        atomic_fetch_sub_explicit(&c->packing.larger, 1, memory_order_relaxed);
}

/* The oldest, if there are more than so many. */
static bool take_note(struct packing *n, uint32_t but, struct id *out)
{
    pthread_mutex_lock(&n->lock);
    bool many = n->noted > but;
    if (many) {
        *out = n->note[n->first];
        n->first = (n->first + 1) % n->cap;
        n->noted--;
    }
    pthread_mutex_unlock(&n->lock);
    return many;
}

static uint32_t count_notes(struct packing *n)
{
    pthread_mutex_lock(&n->lock);
    uint32_t noted = n->noted;
    pthread_mutex_unlock(&n->lock);
    return noted;
}

/* At most so many notes, each once (who is busy comes back behind the others), down to `but`.
 * Returns how many objects were packed. */
static unsigned pack_noted(struct cache *c, uint32_t most, uint32_t but)
{
    unsigned packed = 0;
    struct id id;

    most = (uint32_t)min_u64(most, count_notes(&c->packing));
    for (; most > 0 && take_note(&c->packing, but, &id); most--)
        packed += pack(c, id, 0, true) == IS_PACKED;
    return packed;
}

static bool has_lost_some(struct packing *n)
{
    pthread_mutex_lock(&n->lock);
    bool lost = n->lost;
    n->lost = false;
    pthread_mutex_unlock(&n->lock);
    return lost;
}

/* ---- the hand ---- */
/* Of some slots of a table; *at: where it goes on, 0 behind its end. */
static unsigned find_idle(struct index_shard *s, uint32_t *at, uint32_t idle_s,
                          struct id out[IDS_AT_ONCE])
{
    uint32_t now_s = (uint32_t)clock_wall_s(), i = *at;
    unsigned count = 0;

    pthread_mutex_lock(&s->lock);
    for (unsigned n = 0; n < SLOTS_AT_ONCE && count < IDS_AT_ONCE && i < s->table.cap; n++, i++) {
        const void *item = index_table_at(&s->table, i);
        const struct entry *e = item && !item_is_packed(item) ? item : NULL;
        if (e && may_be_packed(e) && is_idle(e, now_s, idle_s))
            out[count++] = e->o.id;
    }
    *at = i < s->table.cap ? i : 0;
    pthread_mutex_unlock(&s->lock);
    return count;
}

static unsigned pack_slice(struct cache *c, uint32_t shard, uint32_t *at, uint32_t idle_s)
{
    struct id id[IDS_AT_ONCE];
    unsigned count = find_idle(&c->object[shard], at, idle_s, id), packed = 0;

    for (unsigned i = 0; i < count; i++)
        packed += pack(c, id[i], idle_s, false) == IS_PACKED;
    return packed;
}

/* One slice; false: it was the last one of the round. */
static bool go_on(struct cache *c, uint32_t *shard, uint32_t *at, uint32_t idle_s)
{
    (void)pack_slice(c, *shard, at, idle_s);
    if (*at == 0)
        *shard = (*shard + 1) % CACHE_SHARDS;
    return *at > 0 || *shard > 0;
}

void packing_round(struct cache *c, uint32_t idle_s)
{
    uint32_t shard = 0, at = 0;

    while (go_on(c, &shard, &at, idle_s))
        ;
}

bool packing_relieve(struct cache *c)
{
    unsigned packed = pack_noted(c, RELIEF_NOTES, 0);

    for (unsigned i = 0; i < RELIEF_SLICES && packed == 0; i++) {
        uint32_t shard = (uint32_t)(random_u64() % CACHE_SHARDS);
        uint32_t cap = __atomic_load_n(&c->object[shard].table.cap, __ATOMIC_RELAXED);
        uint32_t at = cap ? (uint32_t)(random_u64() % cap) : 0;
        packed = pack_slice(c, shard, &at, 0);
    }
    return packed > 0;
}

static void turn_hand(struct cache *c)
{
    struct packing *hand = &c->packing;
    uint64_t slots = 0;

    for (unsigned i = 0; i < CACHE_SHARDS; i++)
        slots += __atomic_load_n(&c->object[i].table.cap, __ATOMIC_RELAXED);
    for (uint64_t left = slots / (ROUND_MS / LOOK_MS) / SLOTS_AT_ONCE + 1; left > 0; left--)
        (void)go_on(c, &hand->shard, &hand->at, IDLE_S);
}

void packing_work(struct cache *c)
{
    struct packing *hand = &c->packing;
    uint64_t now_ms = clock_ms();

    if (now_ms - hand->worked_ms < LOOK_MS)
        return;
    hand->worked_ms = now_ms;
    bool full = atomic_load(&c->index_bytes) > index_limit(c);
    (void)pack_noted(c, hand->cap, full ? 0 : hand->cap / 2);
    if (has_lost_some(hand))
        packing_round(c, LOST_IDLE_S);
    else
        turn_hand(c);
}
