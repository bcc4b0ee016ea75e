/* How much of the cache a section may hold, and how much may be pinned: sums, and who leaves.
 *
 * Invariants:
 *  1. A chunk counts to the section and to the pinned bytes that it was judged for, from when it
 *     stands in the index until it leaves it; both under the stripe of its object. To the section
 *     it counts with all bytes of its slot, as pinned with what that takes of the disk.
 *  2. A section's chunks stand in its array: a sample of them is a few random places. A chunk in
 *     the array has the index's hold.
 *  3. At most PINNED_PERCENT of each directory are pinned: what is over that is kept like any other
 *     chunk, so that the rest of what is read still finds room. (By slots it were all of one: of
 *     chunks of 5 MiB each has a page, and three eighths of that are nobody's.)
 *  4. Over its quota a section gives up its own chunks, never others'; if none can go, the new one
 *     is passed through.
 *
 * Life: sections belong to struct rules.
 * Failure: without memory for the array a chunk is not counted; the next walk tries again.
 * Limits: two admissions at one moment may both find the last room: the tick takes back what is
 * over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "server/cache/packed.h"

enum {
    EVICT_AT_ONCE = 32,              /* for one new chunk */
    TRIM_AT_ONCE = 4096,             /* per tick */
    ARRAY_MIN = 64,
    INDEX_SPARE = 64,                /* one part of the index in so many is for who is waited for */
};

static uint64_t slot_bytes(const struct chunk *k)
{
    return space_class_bytes(k->slot.class_);
}

/* ---- sections ---- */
/* Lock held. */
static bool array_room(struct cache *c, struct section *s)
{
    if (s->count < s->cap)
        return true;
    uint32_t cap = s->cap ? s->cap * 2 : ARRAY_MIN;
    void **grown = mem_grow(s->item, cap * sizeof(void *));
    if (!grown)
        return false;
    atomic_fetch_add(&c->index_bytes, (cap - s->cap) * sizeof(void *));
    s->item = grown;
    s->cap = cap;
    return true;
}

/* Where it stands in its section's array; lock held. */
static uint32_t place_of(const void *item)
{
    return item_is_packed(item) ? packed_in_section(item_packed(item))
                                : ((const struct chunk *)item)->in_section;
}

static void set_place(void *item, uint32_t at)
{
    if (item_is_packed(item))
        packed_set_in_section(item_packed(item), at);
    else
        ((struct chunk *)item)->in_section = at;
}

/* false: no memory; the next walk tries again. */
static bool join_array(struct cache *c, uint8_t section, void *item, uint64_t room)
{
    struct section *s = &c->rules.section[section];

    pthread_mutex_lock(&s->lock);
    bool fits = array_room(c, s);
    if (fits) {
        set_place(item, s->count);
        s->item[s->count++] = item;
        atomic_fetch_add(&s->bytes, room);
    }
    pthread_mutex_unlock(&s->lock);
    if (!fits)
        atomic_fetch_add(&c->rules.changes, 1);
    return fits;
}

static void join_section(struct cache *c, struct chunk *k, uint8_t number)
{
    k->section = number > 0 && join_array(c, number, k, slot_bytes(k)) ? number : 0;
}

static void leave_array(struct cache *c, uint8_t section, const void *item, uint64_t room)
{
    struct section *s = &c->rules.section[section];

    if (section == 0)
        return;
    pthread_mutex_lock(&s->lock);
    uint32_t at = place_of(item);
    must(at < s->count && s->item[at] == item);
    void *last = s->item[--s->count];
    s->item[at] = last;
    set_place(last, at);
    atomic_fetch_sub(&s->bytes, room);
    pthread_mutex_unlock(&s->lock);
}

static void leave_section(struct cache *c, struct chunk *k)
{
    leave_array(c, k->section, k, slot_bytes(k));
    k->section = 0;
}

void quota_swap(struct cache *c, uint8_t section, const void *old, void *item)
{
    struct section *s = &c->rules.section[section];

    if (section == 0)
        return;
    pthread_mutex_lock(&s->lock);
    uint32_t at = place_of(old);
    must(at < s->count && s->item[at] == old);
    s->item[at] = item;
    set_place(item, at);
    pthread_mutex_unlock(&s->lock);
}

/* ---- pins ---- */
static uint64_t pin_limit(const struct directory *d)
{
    return space_capacity_bytes(d->space) / 100 * PINNED_PERCENT;
}

/* Other bits of the flags are the policy's, which may change them meanwhile. */
static void set_pinned(struct chunk *k, bool pinned)
{
    if (pinned)
        __atomic_fetch_or(&k->mark.flags, (uint8_t)MARK_PINNED, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&k->mark.flags, (uint8_t)~MARK_PINNED, __ATOMIC_RELAXED);
}

static bool is_pinned(const struct chunk *k)
{
    return __atomic_load_n(&k->mark.flags, __ATOMIC_RELAXED) & MARK_PINNED;
}

/* It is counted; false: over the limit, and counted as such. */
static bool count_pinned(struct directory *d, struct slot slot)
{
    uint64_t bytes = space_class_room(slot.class_);

    if (atomic_fetch_add(&d->pinned_bytes, bytes) + bytes <= pin_limit(d))
        return true;
    atomic_fetch_sub(&d->pinned_bytes, bytes);
    atomic_fetch_add(&d->unpinned_bytes, bytes);
    return false;
}

static void pin_chunk(struct cache *c, struct chunk *k)
{
    bool fits = count_pinned(&c->dir[k->slot.dir], k->slot);

    if (fits)
        set_pinned(k, true);
    k->unpinned = !fits;
}

static void uncount_pinned(struct directory *d, struct slot slot, bool pinned, bool unpinned)
{
    uint64_t bytes = space_class_room(slot.class_);

    if (pinned)
        atomic_fetch_sub(&d->pinned_bytes, bytes);
    if (unpinned)
        atomic_fetch_sub(&d->unpinned_bytes, bytes);
}

static void unpin_chunk(struct cache *c, struct chunk *k)
{
    uncount_pinned(&c->dir[k->slot.dir], k->slot, is_pinned(k), k->unpinned);
    set_pinned(k, false);
    k->unpinned = false;
}

/* ---- chunks come and go; stripe held ---- */
struct verdict quota_judge(struct cache *c, const struct object *o)
{
    const struct okey name = {.store = o->store, .bucket = object_bucket(o), .key = object_key(o)};

    return rules_judge(c, &name);
}

void quota_enter(struct cache *c, struct chunk *k, struct verdict v)
{
    if (is_pinned(k))                /* the flag of a record, or of another name, says nothing */
        set_pinned(k, false);
    k->unpinned = false;
    join_section(c, k, v.section);
    if (v.pinned)
        pin_chunk(c, k);
}

void quota_leave(struct cache *c, struct chunk *k)
{
    leave_section(c, k);
    unpin_chunk(c, k);
}

void quota_enter_packed(struct cache *c, struct packed *p)
{
    struct slot slot = packed_slot(p);
    struct policy_mark *mark = packed_mark(p);
    uint64_t bytes = space_class_bytes(slot.class_);
    uint8_t section = packed_section(p);

    if (section > 0 && !join_array(c, section, packed_item(p), bytes))
        packed_leave_section(p);
    if (!(mark->flags & MARK_PINNED) || count_pinned(&c->dir[slot.dir], slot))
        return;
    mark->flags &= (uint8_t)~MARK_PINNED;
    packed_set_unpinned(p);
}

void quota_leave_packed(struct cache *c, struct packed *p, const struct small *s)
{
    leave_array(c, s->section, packed_item(p), space_class_bytes(s->slot.class_));
    uncount_pinned(&c->dir[s->slot.dir], s->slot, s->mark.flags & MARK_PINNED, s->unpinned);
}

void quota_judge_again(struct cache *c, struct chunk *k, struct verdict v)
{
    if (k->section != v.section) {
        leave_section(c, k);
        join_section(c, k, v.section);
    }
    if (v.pinned && is_pinned(k))
        return;
    unpin_chunk(c, k);
    if (v.pinned)
        pin_chunk(c, k);
}

/* ---- who leaves ---- */
static bool sample_section(struct cache *c, struct section *s, struct victim *best)
{
    *best = (struct victim){.value = INFINITY};
    for (unsigned i = 0; i < victim_looks(best, POLICY_LOOKS); i++) {
        pthread_mutex_lock(&s->lock);
        if (s->count > 0)
            victim_look(c->policy, s->item[random_u64() % s->count], best);
        pthread_mutex_unlock(&s->lock);
    }
    return !isinf(best->value) && journal_room(c->dir[best->slot.dir].journal);
}

enum err quota_room(struct directory *d, const struct object *o, uint32_t bytes,
                    struct policy_mark *mark)
{
    struct cache *c = d->cache;
    const struct okey name = {.store = o->store, .bucket = object_bucket(o), .key = object_key(o)};
    struct verdict v = rules_judge(c, &name);
    struct section *s = &c->rules.section[v.section];
    uint64_t quota = v.section ? atomic_load(&s->quota_bytes) : 0;
    unsigned class_ = space_class(bytes);
    uint64_t need = space_class_bytes(class_), room = space_class_room(class_);
    struct victim victim;

    bool stays = v.pinned && atomic_load(&d->pinned_bytes) + room <= pin_limit(d);
    mark->flags &= (uint8_t)~MARK_PINNED;
    mark->flags |= stays ? MARK_PINNED : 0;
    for (unsigned n = 0; quota && atomic_load(&s->bytes) + need > quota; n++) {
        if (mark->flags & MARK_SPARE || n == EVICT_AT_ONCE || need > quota ||
            !sample_section(c, s, &victim))
            return ERR_QUOTA;
        if (!stays && !policy_admits(c->policy, mark, victim.value, victim.group))
            return ERR_QUOTA;
        victim_evict(c, &victim, EVICT_QUOTA);
    }
    return OK;
}

void quota_trim(struct cache *c)
{
    struct victim victim;
    unsigned left = TRIM_AT_ONCE;

    for (unsigned i = 1; i < RULE_SECTIONS; i++) {
        struct section *s = &c->rules.section[i];
        uint64_t quota = atomic_load(&s->quota_bytes);
        for (; quota && atomic_load(&s->bytes) > quota && left > 0; left--) {
            if (!sample_section(c, s, &victim))
                break;
            victim_evict(c, &victim, EVICT_QUOTA);
        }
    }
}

/* ---- what is free ---- */
static uint64_t spare_of(const struct directory *d)
{
    uint64_t free_pages = space_free_pages(d->space), kept = evict_reserve(d->residents.pages);

    return free_pages > kept ? (free_pages - kept) * SPACE_PAGE_BYTES : 0;
}

uint64_t cache_spare(struct cache *c, const struct okey *k)
{
    const struct section *s = &c->rules.section[rules_judge(c, k).section];
    uint64_t quota = s == c->rules.section ? 0 : atomic_load(&s->quota_bytes);
    uint64_t held = atomic_load(&s->bytes), spare = 0;

    for (unsigned i = 0; i < c->dir_count; i++)
        if (directory_is_up(&c->dir[i]))
            spare += spare_of(&c->dir[i]);
    if (atomic_load(&c->index_bytes) > index_limit(c) - c->index_limit_bytes / INDEX_SPARE)
        return 0;
    if (quota)
        spare = min_u64(spare, quota > held ? quota - held : 0);
    return spare;
}

/* ---- what is told ---- */
void quota_tell(struct cache *c)
{
    uint64_t pinned = 0, others = 0;

    for (unsigned i = 0; i < c->dir_count; i++)
        pinned += atomic_load(&c->dir[i].pinned_bytes);
    metric_gauge_set(METRIC_CACHE_PINNED_BYTES, 0, (int64_t)pinned);
    pthread_mutex_lock(&c->rules.lock);
    for (unsigned i = 1; i < RULE_SECTIONS; i++) {
        const struct section *s = &c->rules.section[i];
        if (s->name.text && s->metric == METRIC_NAMED_OTHER)
            others += atomic_load(&s->bytes);
        else if (s->name.text)
            metric_gauge_set(METRIC_BUCKET_USED_BYTES, s->metric,
                             (int64_t)atomic_load(&s->bytes));
    }
    if (others > 0 || metric_read(METRIC_BUCKET_USED_BYTES, METRIC_NAMED_OTHER, 0, 0) > 0)
        metric_gauge_set(METRIC_BUCKET_USED_BYTES, METRIC_NAMED_OTHER, (int64_t)others);
    pthread_mutex_unlock(&c->rules.lock);
}

void quota_status(struct cache *c, struct cache_status *out)
{
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        out->pinned_bytes += atomic_load(&d->pinned_bytes);
        out->unpinned_bytes += atomic_load(&d->unpinned_bytes);
        out->pin_limit_bytes += directory_is_absent(d) ? 0 : pin_limit(d);
    }
    out->marking = atomic_load(&c->rules.walked) != atomic_load(&c->rules.changes);
}
