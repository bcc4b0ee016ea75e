/* Objects in RAM: what is known of a key, found by its id; the durable copy follows.
 *
 * Invariants:
 *  1. Table and holds: an entry in the table has the index's own hold; finding adds one under the
 *     shard's lock. Whoever drops the last hold frees the entry, which then is in no table.
 *  2. An entry never changes but in its atomics and in what the stripe protects. New headers or a
 *     new time of the same generation make another entry with the same serial, so that readers of
 *     the old one keep what they see.
 *  3. dirs names the directories that have a record of it, or will have by what is queued. A record
 *     is queued under the stripe of the object's id, so that records and removals of one object are
 *     queued in the order in which they became true.
 *  4. An object without chunks has no record, but for size 0.
 *  5. What an answer changes it changes under the stripe, after its epoch was found to hold there.
 *
 * Life: cache_learn() makes; cache_forget(), a newer generation, or a full index takes it out of
 * the table; the last holder frees.
 * Failure: a record that cannot be queued leaves an object that a restart forgets; a removal that
 * cannot be queued leaves one that a restart finds again as it was then, to be asked about after
 * its time to live. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/cache/packed.h"

enum {
    SAVE_CHECKED_MS = 10 * 60 * 1000, /* how often checked_ms alone is worth a record */
    /* After so many that found no room, each soon after the one before, nothing is learnt for a
     * while: one alone may have had bad luck with what the evicting sampled. */
    LEARNT_NOT_MOST = 8,
    LEARNT_NOT_SOON_MS = 1000,
    LEARNT_NOT_MS = 100,
    OVER_PART = 16,                  /* of the index: what replacing may take beyond its limit */
    /* chunks dropped by the caller; a writer thread drops the rest */
    DROP_AT_ONCE = 256,
    PREFETCHED_TEXT = 64,            /* most of a key */
};

/* ---- entries ---- */
static bool item_is(const void *item, struct id id)
{
    return id_eq(item_is_packed(item) ? packed_id(item_packed(item))
                                      : ((const struct entry *)item)->o.id, id);
}

/* As it is. */
static void *find_item(const struct index_shard *s, struct id id)
{
    uint32_t at = index_table_home(&s->table, index_hash(id));
    void *item;

    while ((item = index_table_next(&s->table, index_hash(id), &at)))
        if (item_is(item, id))
            return item;
    return NULL;
}

void *index_object_item(struct cache *c, struct id object_id)
{
    struct index_shard *s = index_shard(c->object, object_id);

    pthread_mutex_lock(&s->lock);
    void *item = find_item(s, object_id);
    pthread_mutex_unlock(&s->lock);
    return item;
}

struct entry *entry_of(struct cache *c, struct id object_id)
{
    void *item = index_object_item(c, object_id);

    return item && item_is_packed(item) ? packed_unpack(c, item_packed(item)) : item;
}

void entry_prefetch(struct cache *c, struct id object_id)
{
    const struct index_table *t = &index_shard(c->object, object_id)->table;
    uint32_t at = index_table_home(t, index_hash(object_id));
    const char *e = index_table_next(t, index_hash(object_id), &at);

    for (size_t i = 0; e && i < sizeof(struct entry) + PREFETCHED_TEXT; i += CACHE_LINE)
        __builtin_prefetch(e + i, 1);
}

static bool key_is(const struct object *o, const struct okey *k)
{
    return o->store == k->store && span_eq(object_key(o), k->key) &&
        span_eq(object_bucket(o), k->bucket) && span_eq(object_version(o), k->version);
}

/* A new entry, held by nobody, in no table; its bytes were charged. */
static struct entry *make_charged(struct cache *c, const struct okey *k,
                                  const struct object_facts *f)
{
    size_t bytes = words_entry_bytes(k, f);
    struct entry *e = cells_take(c->cells, bytes);
    if (k->version.len > 0)
        epoch_note_version(c, k->key_stripe);
    struct header_set *headers = e ? headers_intern(c, f->headers) : NULL;
    if (!headers) {
        if (e)
            cells_give(c->cells, e, bytes);
        index_uncharge(c, bytes);
        return NULL;
    }
    e->o.id = k->id;
    e->o.store = k->store;
    e->o.size = f->size;
    e->o.last_modified_s = f->last_modified_s;
    atomic_init(&e->o.checked_ms, f->asked_ms);
    atomic_init(&e->o.flags, f->flags & (OBJECT_STABLE | OBJECT_YOUNG));
    words_keep(e, k, f);
    e->headers = headers;
    e->bucket_stripe = index_bucket_stripe(c, k->bucket);
    atomic_init(&e->read_s, (uint32_t)(f->asked_ms / 1000));
    atomic_init(&e->saved_read_s, (uint32_t)(f->asked_ms / 1000));
    return e;
}

/* Evicts when the index is full. */
static struct entry *entry_make(struct cache *c, const struct okey *k, const struct object_facts *f)
{
    return words_fit(k, f) && index_charge(c, words_entry_bytes(k, f)) ? make_charged(c, k, f)
                                                                       : NULL;
}

struct entry *entry_restore(struct cache *c, const struct okey *k, const struct object_facts *f)
{
    index_charge_always(c, words_entry_bytes(k, f));
    return make_charged(c, k, f);
}

void entry_free(struct cache *c, struct entry *e)
{
    size_t bytes = entry_bytes(e);

    packing_unnote(c, e);
    headers_drop(c, e->headers);
    index_uncharge(c, bytes);
    cells_give(c->cells, e, bytes);
}

void object_hold(struct object *o)
{
    uint32_t before = atomic_fetch_add_explicit(&o->holds, 1, memory_order_relaxed);

    must(before > 0);
}

void object_drop(struct cache *c, struct object *o)
{
    uint32_t before = atomic_fetch_sub_explicit(&o->holds, 1, memory_order_acq_rel);

    must(before > 0);
    if (before == 1)
        entry_free(c, entry_from(o));
}

void cache_expect(const struct cache *c, const struct okey *k)
{
    epoch_prefetch(c, k);
    index_prefetch(&c->object[k->id.a % CACHE_SHARDS], index_hash(k->id));
}

/* One that is not packed, held; *packed: there is one that is. */
static struct entry *hold_entry(struct cache *c, const struct okey *k, bool *packed)
{
    struct index_shard *s = index_shard(c->object, k->id);

    pthread_mutex_lock(&s->lock);
    void *item = find_item(s, k->id);
    *packed = item && item_is_packed(item);
    struct entry *e = *packed ? NULL : item;
    if (e && !key_is(&e->o, k))
        e = NULL;
    if (e)
        atomic_fetch_add_explicit(&e->o.holds, 1, memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
    return e;
}

/* Has a write made it doubtful that did not look for it? */
static bool is_overtaken(struct cache *c, struct entry *e, uint16_t key_stripe)
{
    struct epoch at = {.key_stripe = key_stripe, .bucket_stripe = e->bucket_stripe};

    return e->version_len > 0 ? epoch_doubts_version(c, at, &e->vouched)
                              : epoch_doubts(c, e->bucket_stripe, &e->vouched);
}

static struct object *found(struct cache *c, const struct okey *k, struct entry *e)
{
    if (e && is_overtaken(c, e, k->key_stripe))
        atomic_fetch_or(&e->o.flags, OBJECT_DOUBT);
    return e ? &e->o : NULL;
}

/* Stripe held. */
static struct object *find_below(struct cache *c, const struct okey *k)
{
    bool packed;

    (void)entry_of(c, k->id);        /* as long as the stripe is held it stays unpacked */
    return found(c, k, hold_entry(c, k, &packed));
}

struct object *cache_find(struct cache *c, const struct okey *k)
{
    bool packed;

    index_prefetch(index_shard(c->object, k->id), index_hash(k->id));
    struct entry *e = hold_entry(c, k, &packed);
    if (!packed)
        return found(c, k, e);
    struct index_shard *stripe = index_shard(c->stripe, k->id);
    pthread_mutex_lock(&stripe->lock);
    struct object *o = find_below(c, k);
    pthread_mutex_unlock(&stripe->lock);
    return o;
}

/* ---- records ---- */
/* With a number taken now its record is younger than a write that has just begun. */
static bool is_behind(struct cache *c, struct entry *e)
{
    const struct okey k = {.bucket = object_bucket(&e->o), .key = object_key(&e->o),
                           .version = object_version(&e->o), .store = e->o.store, .id = e->o.id};
    struct epoch at = {.bucket_stripe = e->bucket_stripe};

    if (k.version.len == 0)
        return epoch_bucket_is_written(c, e->bucket_stripe) || is_overtaken(c, e, 0);
    at.key_stripe = index_key_stripe(c, &k);
    return cache_is_written(c, at) || is_overtaken(c, e, at.key_stripe);
}

void entry_record(struct cache *c, struct entry *e, struct object_record *out)
{
    uint64_t checked = atomic_load(&e->o.checked_ms);

    e->commit = atomic_fetch_add(&c->sequence, 1);
    if (is_behind(c, e))
        atomic_fetch_or(&e->o.flags, OBJECT_DOUBT);
    uint32_t read_s = atomic_load(&e->read_s);
    atomic_store(&e->saved_s, (uint32_t)(checked / 1000));
    atomic_store(&e->saved_read_s, read_s);
    *out = (struct object_record){
        .data_id = e->o.data_id,
        .size = e->o.size,
        .last_modified_s = e->o.last_modified_s,
        .checked_ms = checked,
        .commit = e->commit,
        .read_s = read_s,
        .flags = atomic_load(&e->o.flags) & (OBJECT_DOUBT | OBJECT_STABLE),
        .bucket = object_bucket(&e->o),
        .key = object_key(&e->o),
        .version = object_version(&e->o),
        .etag = object_etag(&e->o),
        .headers = object_headers(&e->o),
    };
}

void entry_recorded(struct entry *e, const struct object_record *r, unsigned dir)
{
    e->dirs |= 1U << dir;
    e->doubted &= ~(1U << dir);
    if (r->flags & OBJECT_DOUBT)
        e->doubted |= 1U << dir;
}

/* The record anew in every directory of the set; those that refuse it leave e->dirs as it was. */
static void record_in(struct cache *c, struct entry *e, uint32_t dirs)
{
    struct object_record r;

    if (dirs == 0)
        return;
    entry_record(c, e, &r);
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct journal_change change = {.id = e->o.id, .object = &r};
        if ((dirs >> i & 1) && journal_queue(c->dir[i].journal, &change, 1) == OK)
            entry_recorded(e, &r, i);
    }
}

/* No record of it in that directory from the next commit on. If so much waits there that this
 * cannot be queued, its records are not to be believed at the next start. */
static void remove_in(struct cache *c, struct entry *e, unsigned dir)
{
    struct object_record r = {.bucket = object_bucket(&e->o), .key = object_key(&e->o)};
    struct journal_change change = {.id = e->o.id, .object = &r, .remove = true};

    if (journal_queue(c->dir[dir].journal, &change, 1) != OK)
        journal_distrust(c->dir[dir].journal);
    e->dirs &= ~(1U << dir);
    e->doubted &= ~(1U << dir);
}

void entry_doubt(struct cache *c, struct entry *e)
{
    uint32_t before = e->dirs;

    atomic_fetch_or(&e->o.flags, OBJECT_DOUBT);
    record_in(c, e, e->dirs & ~e->doubted);
    for (unsigned i = 0; i < c->dir_count; i++)
        if ((before & ~e->doubted) >> i & 1)
            remove_in(c, e, i);      /* records are refused before removals are */
}

void entry_unrecord(struct cache *c, struct entry *e)
{
    for (unsigned i = 0; i < c->dir_count; i++)
        if (e->dirs >> i & 1)
            remove_in(c, e, i);
}

void entry_count(struct cache *c, struct entry *e, int delta)
{
    uint32_t before = atomic_fetch_add(&e->chunks, (uint32_t)delta);

    must(delta > 0 || before > 0);
    if (before == 0)
        atomic_fetch_add(&c->object_count, 1);
    if (before + (uint32_t)delta > 0)
        return;
    atomic_fetch_sub(&c->object_count, 1);
    entry_unrecord(c, e);
}

void index_save(struct cache *c, struct object *o)
{
    struct index_shard *stripe = index_shard(c->stripe, o->id);

    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(c, o->id);
    if (e && id_eq(e->o.data_id, o->data_id))
        record_in(c, e, e->dirs);
    pthread_mutex_unlock(&stripe->lock);
}

/* ---- learning ---- */
static bool same_generation(const struct object *o, const struct object_facts *f)
{
    return o->size == f->size && span_eq(object_etag(o), f->etag);
}

/* Nothing but the time is news. The entry of an upload that was kept has no fields yet, and a copy
 * of an object onto itself changes them alone: an answer that may not be learnt is no answer of
 * such an entry's. */
static bool same_words(const struct object *o, const struct object_facts *f)
{
    return same_generation(o, f) && o->last_modified_s == f->last_modified_s &&
        span_eq(object_headers(o), f->headers);
}

/* Upstream vouches for the known generation, if it was asked after all that made it doubtful. */
static void lift_doubt(struct cache *c, struct object *o, struct epoch epoch)
{
    struct index_shard *stripe = index_shard(c->stripe, o->id);

    pthread_mutex_lock(&stripe->lock);
    uint64_t now = atomic_load(&c->sequence);
    if (cache_epoch_holds(c, epoch)) {
        atomic_store(&entry_from(o)->vouched, now);
        atomic_fetch_and(&o->flags, ~(uint32_t)OBJECT_DOUBT);
    }
    pthread_mutex_unlock(&stripe->lock);
}

/* Answers come in any order, and the youngest one counts. True: there was a check in the future,
 * made before the clock was set back, which any answer replaces. */
static bool move_check(struct object *o, uint64_t asked_ms)
{
    uint64_t checked = atomic_load(&o->checked_ms);
    bool ahead;

    do {
        ahead = checked > clock_wall_ms();
        if (checked >= asked_ms && !ahead)
            break;
    } while (!atomic_compare_exchange_weak(&o->checked_ms, &checked, asked_ms));
    return ahead;
}

/* What each answer says anew; of when it was modified the one that was asked for last. Returns the
 * flags of before. */
static uint32_t move_flags(struct object *o, const struct object_facts *f)
{
    bool last = atomic_load(&o->checked_ms) == f->asked_ms;
    uint32_t said = OBJECT_STABLE | (last ? OBJECT_YOUNG : 0u), before = atomic_load(&o->flags);

    while (!atomic_compare_exchange_weak(&o->flags, &before,
                                         (before & ~said) | (f->flags & said)))
        ;
    return before;
}

/* The usual answer: nothing but the time changed. Held, or NULL. */
static struct object *confirm(struct cache *c, const struct okey *k, const struct object_facts *f)
{
    struct object *o = cache_find(c, k);

    if (!o)
        return NULL;
    if (!same_words(o, f)) {
        object_drop(c, o);
        return NULL;
    }
    if (!cache_epoch_holds(c, f->epoch))
        return o;
    bool ahead = move_check(o, f->asked_ms);
    uint32_t stable = f->flags & OBJECT_STABLE, before = move_flags(o, f);
    if (before & OBJECT_DOUBT)
        lift_doubt(c, o, f->epoch);
    uint64_t saved_ms = atomic_load(&entry_from(o)->saved_s) * 1000ULL;
    bool changed = ahead || (before & OBJECT_DOUBT) || (before & OBJECT_STABLE) != stable;
    if (changed || f->asked_ms > saved_ms + SAVE_CHECKED_MS)
        index_save(c, o);
    return o;
}

bool entry_install(struct cache *c, struct entry *e, struct entry **old)
{
    struct index_shard *s = index_shard(c->object, e->o.id);

    pthread_mutex_lock(&s->lock);
    *old = find_item(s, e->o.id);
    must(!*old || !item_is_packed(*old));
    bool fits = *old || index_reserve(c, s);
    if (fits) {
        atomic_store(&e->o.holds, 2);
        if (*old)
            index_table_swap(&s->table, index_hash(e->o.id), *old, e);
        else
            index_table_add(&s->table, index_hash(e->o.id), e);
    }
    pthread_mutex_unlock(&s->lock);
    return fits;
}

/* Answers may overtake each other: what was asked for before the known generation was last seen
 * tells of one that is gone. Held, or NULL; stripe held. A check in the future means that the clock
 * was set back: then nothing can be said. What is doubtful is no better than any answer. */
static struct object *newer_than(struct cache *c, const struct okey *k,
                                 const struct object_facts *f)
{
    struct object *o = find_below(c, k);

    if (!o)
        return NULL;
    uint64_t checked = atomic_load(&o->checked_ms);
    bool doubtful = atomic_load(&o->flags) & OBJECT_DOUBT;
    if (!doubtful && !same_generation(o, f) && f->asked_ms < checked && checked <= clock_wall_ms())
        return o;
    object_drop(c, o);
    return NULL;
}

static struct reap reap_of(const struct entry *e)
{
    return (struct reap){
        .data_id = e->o.data_id,
        .object_id = e->o.id,
        .count = (e->o.size + CHUNK_BYTES - 1) / CHUNK_BYTES,
        .serial = e->serial,
        .left = atomic_load(&e->chunks),
        .cause = EVICT_CHANGED,
    };
}

/* Drops the chunks of a generation that is gone: a few at once, many in the background. No lock is
 * held. */
static void drop_chunks(struct cache *c, struct reap r)
{
    index_drop_data(c, &r, DROP_AT_ONCE);
    if (r.left == 0)
        return;
    struct reap *later = mem_take(sizeof *later);
    if (!later) {
        index_drop_data(c, &r, UINT32_MAX);
        return;
    }
    *later = r;
    pthread_mutex_lock(&c->reap_lock);
    later->next = c->reap;
    c->reap = later;
    pthread_mutex_unlock(&c->reap_lock);
    for (unsigned i = 0; i < c->dir_count; i++)
        journal_poke(c->dir[i].journal);
}

struct reap entry_retire(struct cache *c, struct entry *e)
{
    struct reap r = reap_of(e);

    atomic_fetch_or(&e->o.flags, OBJECT_GONE);
    if (r.left > 0)
        atomic_fetch_sub(&c->object_count, 1);
    entry_unrecord(c, e);
    return r;
}

/* What the old entry of the same generation knew goes over to the new one; stripe held. */
static void inherit(struct cache *c, struct entry *e, struct entry *old)
{
    e->serial = old->serial;
    e->dirs = old->dirs;
    e->doubted = old->doubted;
    atomic_store(&e->read_s, atomic_load(&old->read_s));
    atomic_store(&e->chunks, atomic_load(&old->chunks));
    atomic_store(&e->o.part_bytes, atomic_load(&old->o.part_bytes));
    atomic_fetch_or(&old->o.flags, OBJECT_GONE);
    record_in(c, e, e->dirs);
}

static void tell_changed(const struct object *old, const struct object *o)
{
    log_event(EVENT_CHANGED, "bucket=%s key=%s etag=%s was=%s", log_value(object_bucket(o)),
              log_value(object_key(o)),
              log_value(object_etag(o)), log_value(object_etag(old)));
}

/* What overtook the answer, or, of one that may not be learnt, the entry that says the same; held,
 * or NULL; stripe held. */
static struct object *other_answer(struct cache *c, const struct okey *k,
                                   const struct object_facts *f, bool may_teach)
{
    struct object *o = may_teach ? newer_than(c, k, f) : find_below(c, k);

    if (o && !may_teach && !same_words(o, f)) {
        object_drop(c, o);
        o = NULL;
    }
    return o;
}

/* A new entry in the place of what is there; stripe held. */
static enum err enter_new(struct cache *c, struct entry *e, const struct okey *k,
                          struct entry **old, struct reap *dead)
{
    (void)entry_of(c, e->o.id);      /* unpacked, if it must be */
    if (!entry_install(c, e, old))
        return ERR_MEMORY;
    struct object_facts f = {.size = e->o.size, .etag = object_etag(&e->o)};
    if (*old && same_generation(&(*old)->o, &f) && key_is(&(*old)->o, k))
        inherit(c, e, *old);
    else if (*old)
        *dead = entry_retire(c, *old);
    /* An empty object has no chunk to bring its record along. */
    if (e->o.size == 0 && c->dir_count > 0 && e->dirs == 0)
        record_in(c, e, 1);
    return OK;
}

bool cache_learns_nothing(struct cache *c)
{
    return atomic_load_explicit(&c->learnt_not.in_a_row, memory_order_relaxed) >= LEARNT_NOT_MOST &&
           clock_ms() - atomic_load_explicit(&c->learnt_not.ms, memory_order_relaxed) <
               LEARNT_NOT_MS;
}

static void note_no_room(struct cache *c)
{
    uint64_t now = clock_ms(), last = atomic_exchange(&c->learnt_not.ms, now);

    if (now > last + LEARNT_NOT_SOON_MS)
        atomic_store(&c->learnt_not.in_a_row, 0);
    atomic_fetch_add(&c->learnt_not.in_a_row, 1);
}

static void note_room(struct cache *c)
{
    if (atomic_load_explicit(&c->learnt_not.in_a_row, memory_order_relaxed) > 0)
        atomic_store(&c->learnt_not.in_a_row, 0);
}

/* What takes the place of another entry needs little more than that one had: so also a full index
 * learns what became of what it has. */
static bool may_replace(struct cache *c, const struct okey *k)
{
    uint64_t most = c->index_limit_bytes + c->index_limit_bytes / OVER_PART;
    struct object *o = atomic_load(&c->index_bytes) <= most ? cache_find(c, k) : NULL;

    if (o)
        object_drop(c, o);
    return o;
}

static enum err make_learnt(struct cache *c, const struct okey *k, const struct object_facts *f,
                            struct entry **out)
{
    if (!words_fit(k, f))
        return ERR_MEMORY;
    if (index_charge(c, words_entry_bytes(k, f))) {
        note_room(c);
        *out = make_charged(c, k, f);
    } else if (may_replace(c, k)) {
        *out = entry_restore(c, k, f);
    } else {
        note_no_room(c);
        return ERR_FULL;
    }
    return *out ? OK : ERR_MEMORY;
}

enum err cache_learn(struct cache *c, const struct okey *k, const struct object_facts *f,
                     struct object **out)
{
    struct object *known = confirm(c, k, f);

    if (known) {
        *out = known;
        return OK;
    }
    struct entry *e, *old = NULL;
    TRY(make_learnt(c, k, f, &e));
    e->o.data_id = cache_data_id(c, k, f->etag, f->size);
    e->serial = atomic_fetch_add(&c->serial, 1);
    struct index_shard *stripe = index_shard(c->stripe, k->id);
    struct reap dead = {0};
    pthread_mutex_lock(&stripe->lock);
    atomic_store(&e->vouched, atomic_load(&c->sequence));
    bool may_teach = cache_epoch_holds(c, f->epoch);
    known = other_answer(c, k, f, may_teach);
    enum err err = may_teach ? OK : ERR_CHANGED;
    if (!known && may_teach)
        err = enter_new(c, e, k, &old, &dead);
    pthread_mutex_unlock(&stripe->lock);
    if (known || err != OK)
        entry_free(c, e);
    if (known || err == OK)
        *out = known ? known : &e->o;
    if (old && old->serial != e->serial)
        tell_changed(&old->o, &e->o);
    if (old)
        object_drop(c, &old->o);
    if (dead.left > 0)
        drop_chunks(c, dead);
    return known ? OK : err;
}

/* ---- what is uploaded through us ---- */
struct object *index_hide(struct cache *c, const struct okey *of, uint64_t size)
{
    struct okey k = {.bucket = of->bucket, .key = of->key, .version = span_of(""),
                     .store = of->store};
    struct object_facts f = {.size = size, .etag = span_of(""), .headers = span_of("")};
    struct entry *e, *old;

    random_bytes(&k.id, sizeof k.id);
    e = entry_make(c, &k, &f);
    if (!e)
        return NULL;
    random_bytes(&e->o.data_id, sizeof e->o.data_id);
    e->serial = atomic_fetch_add(&c->serial, 1);
    atomic_store(&e->vouched, UINT64_MAX);
    if (entry_install(c, e, &old)) {
        must(!old);
        return &e->o;
    }
    entry_free(c, e);
    return NULL;
}

enum err index_pend(struct cache *c, const struct okey *k, const struct object_facts *f,
                    const struct cache_write *w, struct chunk_home *home)
{
    struct index_shard *stripe = index_shard(c->stripe, k->id);
    struct entry *e = entry_make(c, k, f), *old = NULL, *used;
    struct reap dead = {0};

    if (!e)
        return ERR_MEMORY;
    e->o.data_id = cache_data_id(c, k, f->etag, f->size);
    e->serial = atomic_fetch_add(&c->serial, 1);
    atomic_store(&e->o.flags, OBJECT_DOUBT);
    pthread_mutex_lock(&stripe->lock);
    enum err err = write_is_alone(c, w) ? OK : ERR_CHANGED;
    used = err == OK ? entry_of(c, k->id) : NULL;
    if (used && !(same_generation(&used->o, f) && key_is(&used->o, k)))
        used = NULL;
    bool fresh = err == OK && !used;
    if (fresh) {
        err = enter_new(c, e, k, &old, &dead);
        used = e;
    }
    if (err == OK)
        atomic_store(&used->o.part_bytes, f->part_bytes);
    if (err == OK)
        *home = (struct chunk_home){.object_id = k->id, .data_id = used->o.data_id,
                                    .serial = used->serial, .size = f->size};
    pthread_mutex_unlock(&stripe->lock);
    if (!fresh || err != OK)
        entry_free(c, e);
    else
        object_drop(c, &e->o);
    if (old)
        object_drop(c, &old->o);
    if (dead.left > 0)
        drop_chunks(c, dead);
    return err;
}

/* Takes e out of the table; stripe held, so that it is still there. */
static void uninstall(struct cache *c, struct entry *e)
{
    struct index_shard *s = index_shard(c->object, e->o.id);

    pthread_mutex_lock(&s->lock);
    index_table_remove(&s->table, index_hash(e->o.id), e);
    pthread_mutex_unlock(&s->lock);
}

void index_forget(struct cache *c, struct id id, const struct id *data_id, enum label_evict cause)
{
    struct index_shard *stripe = index_shard(c->stripe, id);
    struct reap dead = {0};

    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(c, id);
    if (e && data_id && !id_eq(e->o.data_id, *data_id))
        e = NULL;
    if (e) {
        uninstall(c, e);
        dead = entry_retire(c, e);
        dead.cause = cause;
    }
    pthread_mutex_unlock(&stripe->lock);
    if (e)
        object_drop(c, &e->o);
    if (dead.left > 0)
        drop_chunks(c, dead);
}

void cache_forget(struct cache *c, struct object *o)
{
    atomic_fetch_or(&o->flags, OBJECT_GONE);
    index_forget(c, o->id, &o->data_id, EVICT_CHANGED);
}

void cache_doubt(struct cache *c, struct object *o)
{
    struct index_shard *stripe = index_shard(c->stripe, o->id);

    atomic_fetch_or(&o->flags, OBJECT_DOUBT);
    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(c, o->id);
    if (e && id_eq(e->o.data_id, o->data_id))
        entry_doubt(c, e);
    pthread_mutex_unlock(&stripe->lock);
}

bool index_reap(struct cache *c, uint32_t most)
{
    for (unsigned i = 0; i < c->dir_count; i++)
        if (!journal_room(c->dir[i].journal))
            return false;
    pthread_mutex_lock(&c->reap_lock);
    struct reap *r = c->reap;
    if (r)
        c->reap = r->next;
    pthread_mutex_unlock(&c->reap_lock);
    if (!r)
        return false;
    index_drop_data(c, r, most);
    if (r->left == 0) {
        mem_give(r);
        return true;
    }
    pthread_mutex_lock(&c->reap_lock);
    r->next = c->reap;
    c->reap = r;
    pthread_mutex_unlock(&c->reap_lock);
    return true;
}

/* ---- a full index ---- */
bool index_evict_idle(struct cache *c, struct id id)
{
    struct index_shard *stripe = index_shard(c->stripe, id), *s = index_shard(c->object, id);

    pthread_mutex_lock(&stripe->lock);
    pthread_mutex_lock(&s->lock);
    struct entry *e = find_item(s, id);
    if (e && (item_is_packed(e) || atomic_load(&e->o.holds) != 1 || atomic_load(&e->chunks) != 0))
        e = NULL;                    /* a packed one has its chunk */
    if (e)
        index_table_remove(&s->table, index_hash(id), e);
    pthread_mutex_unlock(&s->lock);
    if (e)
        entry_unrecord(c, e);
    pthread_mutex_unlock(&stripe->lock);
    if (e)
        object_drop(c, &e->o);
    return e != NULL;
}
