/* Who leaves when room is needed: what stands where in the slabs, samples of it, and the choice.
 *
 * Invariants:
 *  1. A chunk of the index stands in residents at its slot; a page's class is that of all its
 *     chunks. Added and removed under the stripe of its object; the residents' lock is held for one
 *     look at a time, and nothing else is taken below it.
 *  2. A victim is remembered by its ids and looked up again under its stripe: between the look and
 *     the removal it may have gone or found a holder.
 *  3. Chunks that somebody holds, and pinned ones, are never victims.
 *  4. Slots evicted now come free at the next commit; the reserve bridges that time: empty pages,
 *     and slots free in pages of the class. So each admission gives back as much as it takes, also
 *     if it takes such a slot, and one page more while the reserve is short. (Whoever found a free
 *     slot was let in unasked once: of objects of a quarter of a page a cache lost 2 to 3 % of
 *     hits, to newcomers that the policy would not have, and to pages emptied for the reserve
 *     whose other chunks were warm.) Where the policy would have nothing leave, the reserve is of
 *     no use: most of it is lent to what comes, and not taken back for the few that are let in now
 *     and then: that cost an epoch in which a sixth of the misses were let in 10 % of its hits.
 *  5. For what takes spare room only (MARK_SPARE) nothing leaves, and the reserve is not touched.
 *
 * Life: residents_make() with the slab, residents_fini() at the end.
 * Failure: ERR_FULL when everything sampled is held, or the journal is so far behind that evicting
 * would only pile up: the bytes are served, not kept.
 * Limits: 32 samples find one of the coldest 10 % with a chance of 97 %; not the coldest. Where
 * some are planned there are twice as many. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "server/cache/packed.h"

enum {
    /* fewer than of the own class: a page moves only for a clear difference */
    SAMPLE_OTHERS = 8,
    PAGE_TRIES = 8,                  /* random pages looked at for one sample */
    SLOT_TRIES = 64,
    RESERVE_PAGES = 64,
    LENT_BUT = 16,                   /* one part of it in so many */
    BRIDGE_OF = 1024,                /* newcomers: many more than between two commits */
};

/* ---- residents ---- */
/* Touched at once: what a disk of that size costs, and cache.index_memory does not count, is not to
 * be asked of the machine as the disk fills. */
static struct resident_page *take_places(uint32_t pages)
{
    struct resident_page *place = mem_take_huge(pages * sizeof *place);

    if (place)
        memset(place, 0, pages * sizeof *place);
    return place;
}

enum err residents_make(struct residents *r, uint32_t pages)
{
    pthread_mutex_init(&r->lock, NULL);
    r->place = take_places(pages);
    r->pages = pages;
    return r->place || pages == 0 ? OK : ERR_MEMORY;
}

enum err residents_extend(struct residents *r, uint32_t pages)
{
    struct resident_page *place = take_places(pages);

    must(r->pages == 0);
    if (!place)
        return ERR_MEMORY;
    pthread_mutex_lock(&r->lock);
    mem_give_huge(r->place, r->pages * sizeof *r->place);
    r->place = place;
    r->pages = pages;
    pthread_mutex_unlock(&r->lock);
    return OK;
}

void residents_fini(struct residents *r)
{
    for (uint32_t i = 0; r->place && i < r->pages; i++)
        if (r->place[i].used > 0 && space_class_slots(r->place[i].class_) > 1)
            mem_give(r->place[i].many);
    for (unsigned i = 0; i < SPACE_CLASSES_MAX; i++)
        mem_give(r->list[i].page);
    mem_give_huge(r->place, r->pages * sizeof *r->place);
    pthread_mutex_destroy(&r->lock);
    *r = (struct residents){0};
}

/* The page gets its first chunk. */
static bool page_begin(struct cache *c, struct residents *r, uint32_t page, unsigned class_)
{
    struct page_list *l = &r->list[class_];
    struct resident_page *p = &r->place[page];
    unsigned slots = space_class_slots(class_);

    if (l->count == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 16;
        uint32_t *grown = mem_grow(l->page, cap * sizeof *grown);
        if (!grown)
            return false;
        l->page = grown;
        l->cap = cap;
    }
    if (slots > 1) {
        p->many = mem_take(slots * sizeof(void *));
        if (!p->many)
            return false;
        atomic_fetch_add(&c->index_bytes, slots * sizeof(void *));
    }
    p->class_ = (uint8_t)class_;
    p->where = l->count;
    l->page[l->count++] = page;
    return true;
}

static void page_end(struct cache *c, struct residents *r, uint32_t page)
{
    struct resident_page *p = &r->place[page];
    struct page_list *l = &r->list[p->class_];
    unsigned slots = space_class_slots(p->class_);

    if (slots > 1) {
        mem_give(p->many);
        atomic_fetch_sub(&c->index_bytes, slots * sizeof(void *));
    }
    uint32_t last = l->page[--l->count];
    l->page[p->where] = last;
    r->place[last].where = p->where;
    p->many = NULL;
}

static void **item_at(struct resident_page *p, unsigned at)
{
    return space_class_slots(p->class_) > 1 ? &p->many[at] : &p->one;
}

/* Lock held. */
static bool add_resident(struct cache *c, struct residents *r, struct slot slot, void *item)
{
    struct resident_page *p = &r->place[slot.page];

    must(slot.page < r->pages);
    if (p->used == 0 && !page_begin(c, r, slot.page, slot.class_))
        return false;
    must(p->class_ == slot.class_ && !*item_at(p, slot.at));
    *item_at(p, slot.at) = item;
    p->used++;
    return true;
}

bool residents_add(struct cache *c, struct slot slot, void *item)
{
    struct residents *r = &c->dir[slot.dir].residents;

    pthread_mutex_lock(&r->lock);
    bool fits = add_resident(c, r, slot, item);
    pthread_mutex_unlock(&r->lock);
    return fits;
}

/* Lock held. The place of a small chunk, which is behind that of its page. */
static void prefetch_place(const struct residents *r, const struct slot *slot)
{
    const struct resident_page *p = &r->place[slot->page];

    if (p->used > 0 && space_class_slots(p->class_) > 1)
        __builtin_prefetch(&p->many[slot->at], 1);
}

void residents_add_all(struct directory *d, const struct slot *slot, void *const *item,
                       unsigned count, enum err *err)
{
    pthread_mutex_lock(&d->residents.lock);
    for (unsigned i = 0; i < count; i++)
        if (err[i] == OK)
            prefetch_place(&d->residents, &slot[i]);
    for (unsigned i = 0; i < count; i++)
        if (err[i] == OK && !add_resident(d->cache, &d->residents, slot[i], item[i]))
            err[i] = ERR_MEMORY;
    pthread_mutex_unlock(&d->residents.lock);
}

void residents_remove(struct cache *c, struct slot slot, const void *item)
{
    struct residents *r = &c->dir[slot.dir].residents;
    struct resident_page *p = &r->place[slot.page];

    pthread_mutex_lock(&r->lock);
    must(p->used > 0 && *item_at(p, slot.at) == item);
    *item_at(p, slot.at) = NULL;
    if (--p->used == 0)
        page_end(c, r, slot.page);
    pthread_mutex_unlock(&r->lock);
}

void residents_swap(struct cache *c, struct slot slot, const void *old, void *item)
{
    struct residents *r = &c->dir[slot.dir].residents;

    pthread_mutex_lock(&r->lock);
    void **at = item_at(&r->place[slot.page], slot.at);
    must(*at == old);
    *at = item;
    pthread_mutex_unlock(&r->lock);
}

/* ---- samples ---- */
/* Whose it is and where. */
static struct victim victim_of(const void *item)
{
    const struct chunk *k = item;

    if (!item_is_packed(item))
        return (struct victim){.data_id = k->data_id, .object_id = k->object_id,
                               .number = k->number, .slot = k->slot};
    const struct packed *p = item_packed(item);
    return (struct victim){.data_id = packed_data_id(p), .object_id = packed_id(p),
                           .slot = packed_slot(p)};
}

/* A packed one is. */
static bool is_free(const void *item)
{
    return item_is_packed(item) || atomic_load(&((const struct chunk *)item)->holds) == 1;
}

void victim_look(const struct policy *policy, void *item, struct victim *best)
{
    const struct policy_mark *mark = item_mark(item);
    double value = policy_value(policy, mark);

    best->pinned = best->pinned || isinf(value);
    best->planned =
        best->planned || __atomic_load_n(&mark->flags, __ATOMIC_RELAXED) & MARK_PLANNED;
    if (!(value < best->value) || !is_free(item))
        return;
    struct victim found = victim_of(item);
    found.value = value;
    found.group = __atomic_load_n(&mark->group, __ATOMIC_RELAXED);
    found.pinned = best->pinned;
    found.planned = best->planned;
    *best = found;
}

unsigned victim_looks(const struct victim *best, unsigned count)
{
    return best->planned ? count * POLICY_LOOKS_PLANNED / POLICY_LOOKS : count;
}

/* One random chunk of the page becomes the victim if it is cheaper; lock held. */
static void look(const struct policy *policy, struct resident_page *p, struct victim *best)
{
    unsigned slots = space_class_slots(p->class_), at = (unsigned)(random_u64() % slots);
    void *item = NULL;

    for (unsigned i = 0; i < SLOT_TRIES && i < slots && !item; i++)
        item = *item_at(p, (at + i) % slots);
    if (item)
        victim_look(policy, item, best);
}

static void sample_class(struct directory *d, unsigned class_, unsigned count, struct victim *best)
{
    struct residents *r = &d->residents;

    for (unsigned i = 0; i < victim_looks(best, count); i++) {
        pthread_mutex_lock(&r->lock);
        struct page_list *l = &r->list[class_];
        if (l->count > 0)
            look(d->cache->policy, &r->place[l->page[random_u64() % l->count]], best);
        pthread_mutex_unlock(&r->lock);
    }
}

static void sample_any(struct directory *d, unsigned count, struct victim *best)
{
    struct residents *r = &d->residents;

    for (unsigned i = 0; i < victim_looks(best, count); i++) {
        struct resident_page *p = NULL;
        pthread_mutex_lock(&r->lock);
        for (unsigned tries = 0; tries < PAGE_TRIES && r->pages > 0 && !(p && p->used > 0); tries++)
            p = &r->place[random_u64() % r->pages];
        if (p && p->used > 0)
            look(d->cache->policy, p, best);
        pthread_mutex_unlock(&r->lock);
    }
}

/* ---- removal ---- */
/* It would be larger without its chunk than it is. Stripe held. */
static bool evict_packed(struct cache *c, struct packed *p, const struct victim *v,
                         enum label_evict cause)
{
    struct policy_mark mark = *packed_mark(p);
    struct slot slot = packed_slot(p);

    if (slot.page != v->slot.page || slot.at != v->slot.at || slot.dir != v->slot.dir ||
        isinf(policy_value(c->policy, &mark)))
        return false;
    packed_leave(c, p, cause);
    policy_remember(c->policy, chunk_hash(v->data_id, v->number), &mark);
    return true;
}

bool victim_evict(struct cache *c, const struct victim *v, enum label_evict cause)
{
    struct index_shard *stripe = index_shard(c->stripe, v->object_id);
    bool gone = false;

    pthread_mutex_lock(&stripe->lock);
    const void *item = index_object_item(c, v->object_id);
    if (item && item_is_packed(item) && id_eq(packed_data_id(item_packed(item)), v->data_id)) {
        gone = evict_packed(c, item_packed(item), v, cause);
        pthread_mutex_unlock(&stripe->lock);
        return gone;
    }
    struct chunk *k = chunk_peek(c, v->object_id, v->data_id, v->number);
    if (k && k->slot.page == v->slot.page && k->slot.at == v->slot.at &&
        !isinf(policy_value(c->policy, &k->mark))) {
        struct policy_mark mark = chunk_mark(k);
        gone = chunk_remove(c, k, false, cause);
        if (gone)
            policy_remember(c->policy, chunk_hash(v->data_id, v->number), &mark);
    }
    pthread_mutex_unlock(&stripe->lock);
    return gone;
}

static bool is_visited(const void *item, bool unrecorded)
{
    return !item_is_packed(item) || (unrecorded && packed_is_unrecorded(item_packed(item)));
}

/* It was packed, and its stripe is held: its object, to be left. */
static struct object *hold_unpacked(struct cache *c, struct id id)
{
    struct entry *e = entry_of(c, id);

    if (!e)
        return NULL;
    atomic_fetch_add(&e->o.holds, 1);
    return &e->o;
}

void residents_visit(struct directory *d, uint32_t page, bool unrecorded,
                     void (*visit)(struct cache *c, struct chunk *k))
{
    struct cache *c = d->cache;
    struct residents *r = &d->residents;
    struct resident_page *p = &r->place[page];

    for (unsigned at = 0, slots = 1; at < slots; at++) {
        struct victim v = {0};
        pthread_mutex_lock(&r->lock);
        slots = p->used > 0 ? space_class_slots(p->class_) : 0;
        const void *item = at < slots ? *item_at(p, at) : NULL;
        if (item && !is_visited(item, unrecorded))
            item = NULL;
        if (item)
            v = victim_of(item);
        pthread_mutex_unlock(&r->lock);
        if (!item)
            continue;
        struct index_shard *stripe = index_shard(c->stripe, v.object_id);
        pthread_mutex_lock(&stripe->lock);
        struct chunk *k = chunk_peek(c, v.object_id, v.data_id, v.number);
        struct object *o = item_is_packed(item) ? hold_unpacked(c, v.object_id) : NULL;
        if (k && k->slot.dir == d->number)
            visit(c, k);
        pthread_mutex_unlock(&stripe->lock);
        if (o)
            object_leave(c, o);
    }
}

/* Everything in a page of many slots that is not held; it is empty after the commit unless its
 * class was faster. */
static unsigned empty_page(struct directory *d, uint32_t page)
{
    struct residents *r = &d->residents;
    struct resident_page *p = &r->place[page];
    unsigned gone = 0, slots = 1;

    for (unsigned at = 0; at < slots; at++) {
        struct victim v = {.value = INFINITY};
        pthread_mutex_lock(&r->lock);
        slots = p->used > 0 ? space_class_slots(p->class_) : 0;
        void *item = at < slots ? *item_at(p, at) : NULL;
        if (item && !isinf(policy_value(d->cache->policy, item_mark(item))))
            v = victim_of(item);
        pthread_mutex_unlock(&r->lock);
        if (!isinf(v.value) && victim_evict(d->cache, &v, EVICT_SPACE))
            gone++;
    }
    return gone;
}

/* A page's worth of room, by the cheaper of the coldest chunk sampled (if it fills its page) and
 * the emptiest page. */
static bool evict_page(struct directory *d, unsigned class_, const struct policy_mark *mark,
                       struct victim *coldest)
{
    uint32_t page, other;
    unsigned taken;

    if (isinf(coldest->value))
        sample_any(d, POLICY_LOOKS, coldest);
    bool admits =
        mark->flags & MARK_PINNED ||
        policy_admits(d->cache->policy, mark, coldest->value, coldest->group);
    if (isinf(coldest->value) || !admits)
        return false;
    if (space_class_slots(coldest->slot.class_) == 1)
        return victim_evict(d->cache, coldest, EVICT_SPACE);
    page = coldest->slot.page;
    /* A page with one cold chunk among many may be full of warm ones; one with few chunks is the
     * smaller loss. */
    if (space_cheapest_page(d->space, class_, &other, &taken) && taken > 1)
        page = other;
    return empty_page(d, page) > 0;
}

/* ---- a slot for a new chunk ---- */
uint64_t evict_reserve(uint64_t pages)
{
    return min_u64(max_u64(pages / 100, RESERVE_PAGES), pages / 8);
}

uint64_t evict_least_free(uint64_t pages)
{
    return min_u64(max_u64(evict_reserve(pages) / LENT_BUT, 1), evict_reserve(pages));
}

static uint64_t reserve_bytes(const struct directory *d)
{
    return evict_reserve(d->residents.pages) * SPACE_PAGE_BYTES;
}

/* What chunks of that class can have now. */
static uint64_t at_hand(const struct directory *d, unsigned class_)
{
    return (uint64_t)space_free_pages(d->space) * SPACE_PAGE_BYTES +
           space_holes(d->space, class_);
}

/* Would they have less than the reserve behind so many bytes, even with what the next commit
 * brings? */
static bool runs_low(const struct directory *d, unsigned class_, uint64_t bytes)
{
    return at_hand(d, class_) + atomic_load(&d->limbo_bytes) < reserve_bytes(d) + bytes;
}

/* All that is free is little more than the reserve: somebody has to leave for who comes, or had to
 * already. A disk that has much free in pages of all classes is filled up first. */
static bool is_full(const struct directory *d)
{
    uint64_t empty = (uint64_t)space_free_pages(d->space) * SPACE_PAGE_BYTES;

    return empty + space_all_holes(d->space) + atomic_load(&d->limbo_bytes) <=
           2 * reserve_bytes(d);
}

/* One victim for a chunk of that class: of its own class, or a page of others where those are
 * clearly colder. Nobody leaves if there is room for it; but it has to be worth more all the
 * same. */
static enum err make_room(struct directory *d, unsigned class_, const struct policy_mark *mark)
{
    struct cache *c = d->cache;
    struct victim own = {.value = INFINITY}, any = {.value = INFINITY};

    sample_class(d, class_, POLICY_LOOKS, &own);
    sample_any(d, SAMPLE_OTHERS, &any);
    bool other = any.value < own.value && any.slot.class_ != class_;
    struct victim *v = other ? &any : &own;
    if (isinf(v->value))
        return own.pinned || any.pinned ? ERR_PINNED : ERR_FULL;
    if (!(mark->flags & MARK_PINNED) && !policy_admits(c->policy, mark, v->value, v->group))
        return ERR_DENIED;
    /* Without a reserve nobody comes here but for want of a slot. */
    if (reserve_bytes(d) > 0 && !runs_low(d, class_, space_class_bytes(class_)))
        return OK;
    if (other)
        return evict_page(d, class_, mark, v) ? OK : ERR_FULL;
    return victim_evict(c, v, EVICT_SPACE) ? OK : ERR_FULL;
}

/* To who is not worth another's place, while nothing is on its way. The others need what is at hand
 * until the next commit: half of those who were let in at another's cost found no slot. */
static bool may_lend(const struct directory *d, unsigned class_)
{
    uint64_t least = evict_least_free(d->residents.pages) * SPACE_PAGE_BYTES;

    return atomic_load(&d->limbo_bytes) == 0 &&
           at_hand(d, class_) > max_u64(least, atomic_load(&d->bridge));
}

/* Of what needs room. What threads lose to each other by this is little. */
static void note_outcome(struct directory *d, bool denied)
{
    uint32_t was = atomic_load_explicit(&d->denied, memory_order_relaxed);
    /* Half of the reserve may be lent in any case: so the policy learns of what is new here. */
    uint64_t limbo = min_u64(atomic_load(&d->limbo_bytes), reserve_bytes(d) / 2);
    uint64_t bridge = atomic_load_explicit(&d->bridge, memory_order_relaxed);

    bridge -= bridge / BRIDGE_OF;
    atomic_store_explicit(&d->denied, policy_denials(was, denied), memory_order_relaxed);
    atomic_store_explicit(&d->bridge, max_u64(bridge, limbo), memory_order_relaxed);
}

static bool many_are_denied(const struct directory *d)
{
    return policy_denies_many(atomic_load_explicit(&d->denied, memory_order_relaxed));
}

enum err evict_slot(struct directory *d, unsigned class_, const struct policy_mark *mark,
                    struct slot *out)
{
    struct victim coldest = {.value = INFINITY};
    bool spare = mark->flags & MARK_SPARE, has_hole = space_holes(d->space, class_) > 0;
    enum err err = ERR_FULL;

    if (spare || !has_hole || !is_full(d))
        err = space_take(d->space, class_, false, out);
    if (err != ERR_FULL || spare)
        return err;
    if (journal_room(d->journal)) {
        err = make_room(d, class_, mark);
        note_outcome(d, err == ERR_DENIED);
        if (err == ERR_DENIED)
            return may_lend(d, class_) ? space_take(d->space, class_, true, out) : err;
        if (err == OK && runs_low(d, class_, 0) && !many_are_denied(d))
            evict_page(d, class_, mark, &coldest);
        if (at_hand(d, class_) <= reserve_bytes(d) / 2)
            journal_poke(d->journal);
    }
    enum err taken = space_take(d->space, class_, true, out);
    return taken == ERR_FULL && err == ERR_PINNED ? ERR_PINNED : taken;
}

bool evict_any(struct cache *c)
{
    struct victim best = {.value = INFINITY};

    for (unsigned i = 0; i < c->dir_count; i++)
        if (journal_room(c->dir[i].journal))
            sample_any(&c->dir[i], POLICY_LOOKS, &best);
    return !isinf(best.value) && victim_evict(c, &best, EVICT_SPACE);
}
