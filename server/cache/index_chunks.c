/* Chunks in RAM: where bytes lie and which of them are there; from admission to the last hold.
 *
 * Invariants:
 *  1. As for objects: a chunk in the table has the index's hold, finding adds one under the shard's
 *     lock, the last one to let go frees the chunk.
 *  2. A chunk enters and leaves the table, the residents and its object's count together, under the
 *     stripe of its object id. Its state belongs to that stripe.
 *  3. A chunk names its object by id and generation (serial). Its owner is the entry in the index
 *     with both; without an owner it is on its way out.
 *  4. Readers look at crc[] of a block only after they saw its bit in present; chunk_wrote() stores
 *     the CRCs first.
 *  5. A slot goes back when the last hold ended; if a record ever named it, only after the commit
 *     that removed the record.
 *
 * Life: chunk_admit() makes; the filler's writes make blocks present; chunk_filled() queues the
 * record; eviction, a newer generation or damage removes.
 * Failure: a record that cannot be queued leaves a chunk that a restart forgets; a removal that
 * cannot be queued keeps its slot taken until the restart. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "log.h"
#include "server/cache/packed.h"

/* chunks looked for per chunk that index_drop_data() may drop */
enum { STEPS_PER_DROP = 16 };

static bool item_is(const void *item, struct id data_id, uint64_t number)
{
    const struct chunk *k = item;

    if (item_is_packed(item))
        return number == 0 && id_eq(packed_data_id(item_packed(item)), data_id);
    return k->number == number && id_eq(k->data_id, data_id);
}

void *index_chunk_item(const struct index_shard *s, struct id data_id, uint64_t number)
{
    uint64_t hash = index_chunk_hash(data_id, number);
    uint32_t at = index_table_home(&s->table, hash);
    void *item;

    while ((item = index_table_next(&s->table, hash, &at)))
        if (item_is(item, data_id, number))
            return item;
    return NULL;
}

void chunk_expect(struct cache *c, struct id data_id, uint64_t number)
{
    index_prefetch(chunk_shard(c, data_id, number), index_chunk_hash(data_id, number));
    policy_prefetch(c->policy, chunk_hash(data_id, number), false);
}

static void unpack(struct cache *c, struct id object_id)
{
    struct index_shard *stripe = index_shard(c->stripe, object_id);

    pthread_mutex_lock(&stripe->lock);
    (void)entry_of(c, object_id);
    pthread_mutex_unlock(&stripe->lock);
}

struct chunk *chunk_find(struct cache *c, struct id data_id, uint64_t number)
{
    struct index_shard *s = chunk_shard(c, data_id, number);
    bool packed;
    struct id object_id;
    struct chunk *k;

    index_prefetch(s, index_chunk_hash(data_id, number)); /* on its way while the lock is taken */
    do {
        pthread_mutex_lock(&s->lock);
        k = index_chunk_item(s, data_id, number);
        packed = k && item_is_packed(k);
        if (packed)
            object_id = packed_id(item_packed(k));
        else if (k)
            atomic_fetch_add_explicit(&k->holds, 1, memory_order_relaxed);
        pthread_mutex_unlock(&s->lock);
        if (packed)                  /* in vain only if it was packed again meanwhile */
            unpack(c, object_id);
    } while (packed);
    return k;
}

bool chunk_disk_is_up(struct cache *c, const struct chunk *k)
{
    return directory_is_up(&c->dir[k->slot.dir]);
}

bool chunk_has_left(const struct chunk *k)
{
    return atomic_load_explicit(&k->state, memory_order_relaxed) & CHUNK_DEAD;
}

uint8_t chunk_present(struct cache *c, const struct chunk *k)
{
    const struct directory *d = &c->dir[k->slot.dir];

    if (!directory_is_up(d))
        return 0;
    /* As long as nothing was lost the head's first bytes are all that is looked at. */
    if (atomic_load_explicit(&d->sums.gone, memory_order_relaxed) && !chunk_sums(k))
        return 0;
    return atomic_load_explicit(&k->present, memory_order_acquire);
}

/* *packed: it is, so that it may be unpacked by its owner at any time. */
static struct chunk *peek(struct cache *c, struct id object_id, struct id data_id, uint64_t number,
                          bool *packed)
{
    struct index_shard *s = chunk_shard(c, data_id, number);

    pthread_mutex_lock(&s->lock);
    struct chunk *k = index_chunk_item(s, data_id, number);
    *packed = k && item_is_packed(k);
    if (k && (*packed || !id_eq(k->object_id, object_id)))
        k = NULL;
    pthread_mutex_unlock(&s->lock);
    return k;
}

struct chunk *chunk_peek(struct cache *c, struct id object_id, struct id data_id, uint64_t number)
{
    bool packed;
    struct chunk *k = peek(c, object_id, data_id, number, &packed);

    if (!packed || !entry_of(c, object_id))
        return k;
    return peek(c, object_id, data_id, number, &packed);
}

/* ---- the end ---- */
_Static_assert(sizeof(struct chunk) >= sizeof(struct limbo), "a dead chunk names its slot");

/* The dead chunk's memory as well: a slot that must wait for a commit waits in it. */
static void give_slot(struct cache *c, struct chunk *k)
{
    struct directory *d = &c->dir[k->slot.dir];
    struct slot slot = k->slot;
    bool recorded = k->state & CHUNK_RECORDED;

    size_t bytes = chunk_head_size(k->bytes);

    chunk_give_sums(c, k);
    if (k->state & CHUNK_STUCK) {
        cells_give(c->cells, k, bytes);
        return;
    }
    atomic_fetch_add(&d->limbo_bytes, space_class_bytes(slot.class_));
    if (recorded) {
        struct limbo *l = (struct limbo *)(void *)k;
        *l = (struct limbo){.slot = slot, .bytes = (uint32_t)bytes};
        journal_limbo(d->journal, l);
        return;
    }
    cells_give(c->cells, k, bytes);
    space_give(d->space, slot);
    atomic_fetch_sub(&d->limbo_bytes, space_class_bytes(slot.class_));
}

void chunk_drop(struct cache *c, struct chunk *k)
{
    uint32_t before = atomic_fetch_sub_explicit(&k->holds, 1, memory_order_acq_rel);

    must(before > 0);
    if (before > 1)
        return;
    index_uncharge(c, chunk_size(k->bytes));
    give_slot(c, k);
}

static struct entry *owner_of(struct cache *c, const struct chunk *k)
{
    struct entry *e = entry_of(c, k->object_id);

    return e && e->serial == k->serial && id_eq(e->o.data_id, k->data_id) ? e : NULL;
}

/* Out of the table, unless somebody holds it and that matters. */
static bool take_out(struct cache *c, struct chunk *k, bool even_held)
{
    struct index_shard *s = chunk_shard(c, k->data_id, k->number);

    pthread_mutex_lock(&s->lock);
    bool out = !(k->state & CHUNK_DEAD) && (even_held || atomic_load(&k->holds) == 1);
    if (out) {
        index_table_remove(&s->table, index_chunk_hash(k->data_id, k->number), k);
        k->state |= CHUNK_DEAD;
    }
    pthread_mutex_unlock(&s->lock);
    return out;
}

bool chunk_remove(struct cache *c, struct chunk *k, bool even_held, enum label_evict cause)
{
    struct directory *d = &c->dir[k->slot.dir];

    if (!take_out(c, k, even_held))
        return false;
    residents_remove(c, k->slot, k);
    quota_leave(c, k);
    atomic_fetch_sub(&c->chunk_count, 1);
    if (!chunk_sums(k))
        atomic_fetch_sub(&d->sums.left, 1);
    if (cause < LABEL_evict_COUNT)
        atomic_fetch_add(&c->evicted_bytes[cause], k->bytes);
    if (__atomic_load_n(&k->mark.flags, __ATOMIC_RELAXED) & MARK_AHEAD)
        atomic_fetch_add(&c->ahead_lost, k->bytes);
    if (k->state & CHUNK_RECORDED) {
        struct journal_change change = {.id = k->data_id, .number = k->number, .remove = true};
        if (journal_queue(d->journal, &change, 1) != OK)
            k->state |= CHUNK_STUCK;
    }
    struct entry *e = owner_of(c, k);
    if (e)
        entry_count(c, e, -1);
    chunk_drop(c, k);
    return true;
}

void index_drop_data(struct cache *c, struct reap *r, uint32_t most)
{
    struct index_shard *stripe = index_shard(c->stripe, r->object_id);
    uint64_t steps = (uint64_t)most * STEPS_PER_DROP;

    for (; r->left > 0 && r->number < r->count && most > 0 && steps > 0; r->number++, steps--) {
        pthread_mutex_lock(&stripe->lock);
        struct chunk *k = chunk_peek(c, r->object_id, r->data_id, r->number);
        bool ours = k && k->serial == r->serial; /* else of another generation, which lives */
        if (ours && chunk_remove(c, k, true, r->cause)) {
            r->left--;
            most--;
        }
        pthread_mutex_unlock(&stripe->lock);
    }
    if (r->number >= r->count)
        r->left = 0;
}

/* ---- admission ---- */
/* Highest random weight: each chunk has an order of directories of its own, in which big ones stand
 * first more often. */
static struct directory *choose(struct cache *c, struct id data_id, uint64_t number)
{
    struct directory *best = NULL;
    double best_score = -1;

    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        uint64_t dir_id;
        if (!directory_is_up(d))
            continue;                /* it may have no space at all */
        memcpy(&dir_id, d->header.directory_id, sizeof dir_id);
        uint64_t x = (chunk_hash(data_id, number) ^ dir_id) * 0xFF51AFD7ED558CCD;
        x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53;
        double u = ((double)(x >> 11) + 0.5) / 9007199254740992.0; /* 2^53 */
        double score = (double)space_capacity_bytes(d->space) / -log(u);
        if (score > best_score) {
            best = d;
            best_score = score;
        }
    }
    return best;
}

static bool any_is_up(const struct cache *c)
{
    bool up = false;

    for (unsigned i = 0; i < c->dir_count; i++)
        up = up || directory_is_up(&c->dir[i]);
    return up;
}

/* Is k still somebody's, and can it be used? A chunk left over from a dead generation goes instead,
 * as does one on a disk that is not up if there is another place for it. One that left since it was
 * found is nobody's. */
static bool settle(struct cache *c, struct chunk *k)
{
    struct index_shard *stripe = index_shard(c->stripe, k->object_id);
    bool away = !directory_is_up(&c->dir[k->slot.dir]) && choose(c, k->data_id, k->number);

    pthread_mutex_lock(&stripe->lock);
    bool owned = !chunk_has_left(k) && owner_of(c, k);
    if (!owned || away)
        chunk_remove(c, k, true, owned ? EVICT_DISK : EVICT_CHANGED);
    pthread_mutex_unlock(&stripe->lock);
    return owned && !away;
}

/* A chunk with a slot, held by nobody, not in the index. */
static enum err make_chunk(struct directory *d, const struct object *o, uint64_t number,
                           struct policy_mark mark, struct chunk **out)
{
    uint32_t bytes = object_chunk_bytes(o, number);
    struct cache *c = d->cache;
    struct slot slot;

    bool spare = mark.flags & MARK_SPARE;
    TRY(quota_room(d, o, bytes, &mark));
    if (!(spare ? index_charge_free : index_charge)(c, chunk_size(bytes)))
        return spare ? ERR_FULL : ERR_MEMORY;
    enum err err = evict_slot(d, space_class(bytes), &mark, &slot);
    struct chunk *k = err == OK ? chunk_take(c, bytes) : NULL;
    if (!k) {
        if (err == OK)
            space_give(d->space, slot);
        index_uncharge(c, chunk_size(bytes));
        return err == OK ? ERR_MEMORY : err;
    }
    halves_forget(d, slot);
    mark.flags &= MARK_KEEP | MARK_PLANNED | MARK_BEYOND;
    k->data_id = o->data_id;
    k->object_id = o->id;
    k->number = number;
    k->slot = slot;
    k->mark = mark;
    *out = k;
    return OK;
}

/* Into table, residents and count; stripe held. Another one may have been faster: then that one,
 * held, in *there. */
static enum err enter(struct cache *c, struct entry *e, struct chunk *k, uint32_t holds,
                      struct chunk **there)
{
    struct index_shard *s = chunk_shard(c, k->data_id, k->number);

    *there = NULL;
    if (!residents_add(c, k->slot, k))
        return ERR_MEMORY;
    k->serial = e->serial;
    atomic_store(&k->holds, holds);
    pthread_mutex_lock(&s->lock);
    void *item = index_chunk_item(s, k->data_id, k->number);
    *there = item && !item_is_packed(item) ? item : NULL; /* a version's that was packed just now */
    bool fits = !item && index_reserve(c, s);
    if (fits)
        index_table_add(&s->table, index_chunk_hash(k->data_id, k->number), k);
    else if (*there)
        atomic_fetch_add(&(*there)->holds, 1);
    pthread_mutex_unlock(&s->lock);
    if (!fits) {
        residents_remove(c, k->slot, k);
        return *there ? OK : ERR_MEMORY;
    }
    if (e->o.size <= PACKED_BYTES_MAX)
        packing_note(c, e);
    entry_count(c, e, 1);
    quota_enter(c, k, quota_judge(c, &e->o));
    atomic_fetch_add(&c->chunk_count, 1);
    return OK;
}

/* Whoever said that it shall be here waits for its disk; but a client who uploads waits for the
 * store alone. */
static bool waits_for_disk(const struct policy_mark *mark, const struct chunk_asked *asked)
{
    return asked->spare || (mark->flags & MARK_KEEP && !asked->upload);
}

/* What the policy knows of a chunk that is not here, and now of this reading, too. */
static struct policy_mark note_miss(struct cache *c, const struct object *o, uint64_t number,
                                    uint64_t asked)
{
    struct policy_mark mark;
    struct policy_miss miss = {
        .hash = chunk_hash(o->data_id, number),
        .bytes = asked,
        .chunk_bytes = object_chunk_bytes(o, number),
        .group = policy_group(c->policy, object_bucket(o), object_key(o), asked),
    };

    policy_missed(c->policy, &miss, &mark);
    return mark;
}

static enum err admit_new(struct cache *c, struct object *o, uint64_t number,
                          struct chunk_asked asked, struct chunk **out)
{
    struct index_shard *stripe = index_shard(c->stripe, o->id);
    struct policy_mark mark = note_miss(c, o, number, asked.bytes);
    struct chunk *k, *there = NULL;

    if (asked.keep)
        policy_keep(c->policy, &mark);
    if (asked.spare)
        mark.flags |= MARK_SPARE;
    struct directory *d = choose(c, o->data_id, number);
    bool behind = asked.behind || (d && !waits_for_disk(&mark, &asked) && disk_is_behind(d));
    /* Behind: before anything leaves for it. */
    enum err err = !d ? ERR_FULL : behind ? ERR_BEHIND : make_chunk(d, o, number, mark, &k);

    if (err != OK) {
        mark.flags &= (uint8_t)~MARK_SPARE;
        policy_remember(c->policy, chunk_hash(o->data_id, number), &mark);
        return err;
    }
    policy_expect(&k->mark, asked.again, k->bytes);
    if (asked.ahead)
        k->mark.flags |= MARK_AHEAD;
    if (asked.keep)                  /* else what is only written would never grow old */
        policy_served(c->policy, k->bytes);
    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(c, o->id);
    err = e && id_eq(e->o.data_id, o->data_id) ? enter(c, e, k, 2, &there) : ERR_DENIED;
    pthread_mutex_unlock(&stripe->lock);
    if (err != OK || there) {
        atomic_store(&k->holds, 1);
        chunk_drop(c, k);
    }
    if (err == OK)
        *out = there ? there : k;
    return err;
}

enum err chunk_admit(struct cache *c, struct object *o, uint64_t number, struct chunk_asked asked,
                     struct chunk **out)
{
    enum err err = ERR_FULL;

    must(number * CHUNK_BYTES < o->size);
    struct chunk *k = chunk_find(c, o->data_id, number);
    if (k && !settle(c, k)) {
        chunk_drop(c, k);
        k = NULL;
    }
    bool usable = !k || directory_is_up(&c->dir[k->slot.dir]);
    if (k && usable && (asked.behind || !chunk_sums(k))) {
        chunk_drop(c, k);            /* nobody may set some of its CRCs before the others came */
        return asked.behind ? ERR_BEHIND : ERR_BUSY;
    }
    if (k && usable) {
        *out = k;
        return OK;
    }
    if (k)
        chunk_drop(c, k);
    else if (c->dir_count > 0)
        err = admit_new(c, o, number, asked, out);
    if (err == ERR_FULL && usable && !asked.spare && any_is_up(c))
        log_event(EVENT_CACHE_FULL, "key=%s chunk=%llu", log_value(object_key(o)),
                  (unsigned long long)number);
    return err;
}

/* ---- life ---- */
void cache_served(struct cache *c, uint64_t bytes)
{
    policy_served(c->policy, bytes);
}

/* The first one that reads it; other flags are other threads'. */
static void note_read_ahead(struct cache *c, struct chunk *k)
{
    uint8_t was =
        __atomic_fetch_and(&k->mark.flags, (uint8_t)~MARK_AHEAD, __ATOMIC_RELAXED);

    if (was & MARK_AHEAD)
        atomic_fetch_add_explicit(&c->ahead_read, k->bytes, memory_order_relaxed);
}

void chunk_reference(struct cache *c, struct object *o, struct chunk *k, uint64_t bytes)
{
    uint16_t group = policy_tag(c->policy, &o->group, object_bucket(o), object_key(o));

    if (__atomic_load_n(&k->mark.group, __ATOMIC_RELAXED) != group)
        __atomic_store_n(&k->mark.group, group, __ATOMIC_RELAXED);
    if (__atomic_load_n(&k->mark.flags, __ATOMIC_RELAXED) & MARK_AHEAD)
        note_read_ahead(c, k);
    policy_reference(c->policy, chunk_hash(k->data_id, k->number), &k->mark, bytes, k->bytes);
}

void chunk_keep(struct cache *c, struct chunk *k)
{
    policy_keep(c->policy, &k->mark);
}

void chunk_plan(struct cache *c, struct chunk *k, uint64_t bytes_ahead)
{
    policy_plan(c->policy, &k->mark, bytes_ahead);
}

void chunk_plan_beyond(struct cache *c, struct chunk *k, uint64_t horizon_bytes)
{
    policy_plan_beyond(c->policy, &k->mark, horizon_bytes);
}

void chunk_unplan(struct cache *c, struct chunk *k)
{
    policy_unplan(c->policy, &k->mark);
}

void chunk_wrote(struct cache *c, struct chunk *k, unsigned block, const struct block_sums *sums)
{
    uint32_t granules = chunk_granules(chunk_block_bytes(k->bytes, block));

    memcpy(k->crc + block * GRANULES_PER_BLOCK, sums->crc, granules * sizeof *sums->crc);
    for (uint32_t i = 0; i < granules; i++)
        halves_set(c, k, block * GRANULES_PER_BLOCK + i, sums->half[i]);
    atomic_fetch_or_explicit(&k->present, (uint8_t)(1U << block), memory_order_release);
}

struct policy_mark chunk_mark(const struct chunk *k)
{
    return (struct policy_mark){
        .last = __atomic_load_n(&k->mark.last, __ATOMIC_RELAXED),
        .group = __atomic_load_n(&k->mark.group, __ATOMIC_RELAXED),
        .class_ = __atomic_load_n(&k->mark.class_, __ATOMIC_RELAXED),
        .count = __atomic_load_n(&k->mark.count, __ATOMIC_RELAXED),
        .credit = __atomic_load_n(&k->mark.credit, __ATOMIC_RELAXED),
        .flags = __atomic_load_n(&k->mark.flags, __ATOMIC_RELAXED),
        .spare = __atomic_load_n(&k->mark.spare, __ATOMIC_RELAXED),
    };
}

/* Only the CRCs of blocks in r->present: the others may be in the making. */
static void chunk_to_record(const struct chunk *k, uint8_t present, struct chunk_record *r)
{
    *r = (struct chunk_record){
        .object_id = k->object_id,
        .slot = k->slot,
        .bytes = k->bytes,
        .present = present,
        .crc_count = chunk_granules(k->bytes),
        .mark = chunk_mark(k),
    };
    if (r->mark.flags & MARK_PLANNED || !(r->mark.flags & MARK_KEEP))
        r->mark.spare = 0;           /* no plan is known after a restart */
    r->mark.flags &= (uint8_t)~(MARK_PLANNED | MARK_BEYOND | MARK_AHEAD);
    for (uint32_t i = 0; i < r->crc_count; i++)
        r->crc[i] = present >> (i / GRANULES_PER_BLOCK) & 1 ? k->crc[i] : 0;
}

/* The record of a live chunk as it is now, with its object's if the directory has none; stripe
 * held. One that lacks its CRCs leaves instead: what failed in it, or its index, is what they were
 * to be read from. */
static void record(struct cache *c, struct chunk *k)
{
    struct entry *e = owner_of(c, k);
    uint8_t present = atomic_load_explicit(&k->present, memory_order_acquire);

    if (!e || present == 0 || !chunk_sums(k)) {
        enum label_evict cause = present == 0 ? LABEL_evict_COUNT : EVICT_DISK;
        struct policy_mark mark = chunk_mark(k);
        if (e && present == 0)       /* it was let in, and passed by its disk */
            policy_remember(c->policy, chunk_hash(k->data_id, k->number), &mark);
        chunk_remove(c, k, true, e ? cause : EVICT_CHANGED);
        return;
    }
    struct object_record object;
    struct chunk_record chunk;
    uint32_t bit = 1U << k->slot.dir;
    struct journal_change change[2] = {
        {.id = k->data_id, .number = k->number, .chunk = &chunk},
        {.id = k->object_id, .object = &object},
    };
    chunk_to_record(k, present, &chunk);
    bool first = !(e->dirs & bit);
    if (first)
        entry_record(c, e, &object);
    if (journal_queue(c->dir[k->slot.dir].journal, change, first ? 2 : 1) != OK)
        return;
    k->state |= CHUNK_RECORDED;
    if (first)
        entry_recorded(e, &object, k->slot.dir);
}

void chunk_unrecord(struct chunk *k)
{
    k->state &= (uint8_t)~CHUNK_RECORDED;
}

/* What is not whole yet is recorded as far as it came; what is uploaded is nobody's yet. */
void chunk_record(struct cache *c, struct chunk *k)
{
    struct entry *e = owner_of(c, k);
    bool hidden = e && atomic_load(&e->vouched) == UINT64_MAX;

    if (e && !hidden && !(k->state & (CHUNK_RECORDED | CHUNK_DEAD)) && atomic_load(&k->present))
        record(c, k);
}

void chunk_filled(struct cache *c, struct chunk *k)
{
    struct index_shard *stripe = index_shard(c->stripe, k->object_id);

    pthread_mutex_lock(&stripe->lock);
    if (!(k->state & CHUNK_DEAD))
        record(c, k);
    pthread_mutex_unlock(&stripe->lock);
    chunk_drop(c, k);
}

static void tell_damage(struct cache *c, const struct chunk *k, unsigned block, enum err why)
{
    struct entry *e = owner_of(c, k);
    const char *dir = c->dir[k->slot.dir].path;
    enum event event = why == ERR_CHECKSUM ? EVENT_CHECKSUM : EVENT_DISK_ERROR;

    log_event(event, "disk=%s bucket=%s key=%s chunk=%llu block=%u error=%s",
              log_value(span_of(dir)),
              log_value(e ? object_bucket(&e->o) : span_of("")),
              log_value(e ? object_key(&e->o) : span_of("")),
              (unsigned long long)k->number, block, err_name(why));
}

void chunk_damaged(struct cache *c, struct chunk *k, unsigned block, enum err why)
{
    struct directory *d = &c->dir[k->slot.dir];
    struct index_shard *stripe = index_shard(c->stripe, k->object_id);
    uint8_t bit = (uint8_t)(1U << block);

    /* Several readers may find the same damage: it counts once. */
    if (!(atomic_fetch_and(&k->present, (uint8_t)~bit) & bit))
        return;
    atomic_fetch_add(why == ERR_CHECKSUM ? &d->checksum_failures : &d->read_errors, 1);
    if (why != ERR_CHECKSUM)
        disk_error(d);
    pthread_mutex_lock(&stripe->lock);
    tell_damage(c, k, block, why);
    /* Without any block the slot is given up: the next fill gets another place. */
    if (!(k->state & CHUNK_DEAD) && (k->state & CHUNK_RECORDED))
        record(c, k);
    pthread_mutex_unlock(&stripe->lock);
}

/* ---- what is uploaded through us ---- */
/* A chunk without place: the same bytes under the names of its new home. */
static struct chunk *rename_chunk(struct cache *c, const struct chunk *k, uint64_t to,
                                  const struct chunk_home *home)
{
    uint32_t bytes = (uint32_t)min_u64(CHUNK_BYTES, home->size - to * CHUNK_BYTES);
    uint32_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;

    if (bytes > k->bytes || !index_charge(c, chunk_size(bytes)))
        return NULL;
    struct chunk *n = chunk_take(c, bytes);
    if (!n) {
        index_uncharge(c, chunk_size(bytes));
        return NULL;
    }
    n->data_id = home->data_id;
    n->object_id = home->object_id;
    n->number = to;
    n->slot = k->slot;
    halves_forget(&c->dir[n->slot.dir], n->slot); /* theirs begin with the old names */
    n->mark = chunk_mark(k);
    memcpy(n->crc, k->crc, chunk_granules(bytes) * sizeof *n->crc);
    chunk_rename_crc((struct chunk_name){k->data_id, k->number},
                     (struct chunk_name){home->data_id, to}, bytes, n->crc);
    atomic_init(&n->present, (uint8_t)(atomic_load(&k->present) & ((1U << blocks) - 1)));
    return n;
}

/* Out of the index, with its slot: nobody else holds it and no record names it. NULL: it is not
 * so. */
static struct chunk *take_hidden(struct cache *c, const struct object *hidden, uint64_t number)
{
    struct index_shard *stripe = index_shard(c->stripe, hidden->id);

    pthread_mutex_lock(&stripe->lock);
    struct chunk *k = chunk_peek(c, hidden->id, hidden->data_id, number);
    struct entry *e = k ? owner_of(c, k) : NULL;
    if (!e || !take_out(c, k, false))
        k = NULL;
    if (k) {
        must(!(k->state & CHUNK_RECORDED));
        residents_remove(c, k->slot, k);
        quota_leave(c, k);
        atomic_fetch_sub(&c->chunk_count, 1);
        entry_count(c, e, -1);
    }
    pthread_mutex_unlock(&stripe->lock);
    return k;
}

/* Into the index with its record; false: its home is gone, or has such a chunk. */
static bool settle_in(struct cache *c, struct chunk *n, const struct chunk_home *home)
{
    struct index_shard *stripe = index_shard(c->stripe, home->object_id);
    struct chunk *there = NULL;

    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(c, home->object_id);
    bool lives = e && e->serial == home->serial && id_eq(e->o.data_id, home->data_id);
    bool in = lives && enter(c, e, n, 1, &there) == OK && !there;
    if (in)
        record(c, n);
    pthread_mutex_unlock(&stripe->lock);
    if (there)
        chunk_drop(c, there);
    return in;
}

void chunk_move(struct cache *c, const struct object *hidden, uint64_t number,
                const struct chunk_home *home, uint64_t to)
{
    struct chunk *k = take_hidden(c, hidden, number);

    if (!k)
        return;
    struct chunk *n = rename_chunk(c, k, to, home);
    if (n && atomic_load(&n->present) && settle_in(c, n, home)) {
        index_uncharge(c, chunk_size(k->bytes)); /* its slot is another's now */
        chunk_give(c, k);
        return;
    }
    if (n) {
        index_uncharge(c, chunk_size(n->bytes));
        chunk_give(c, n);
    }
    chunk_drop(c, k);
}

void chunk_blank(struct cache *c, const struct object *hidden, uint64_t number, uint8_t blocks)
{
    struct chunk *k = chunk_find(c, hidden->data_id, number);

    if (!k)
        return;
    atomic_fetch_and(&k->present, (uint8_t)~blocks);
    chunk_drop(c, k);
}
