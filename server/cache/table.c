/* A hash table of pointers: open addressing, linear probing, removal by shifting back.
 *
 * Invariants:
 *  1. count <= 3/4 of cap, so that every probe ends at a free slot.
 *  2. Homes are lines of memory, and cap is a multiple of one: where half of the slots are taken 99
 *     of 100 items stand in their own line, and are found with one wait for memory (simulated; with
 *     a home for each slot 94, the others in a line behind it).
 *  3. Between an item's home and its slot no slot is free. The homes stand in the order of the
 *     hashes: what comes in that order is written one after the other, and so is a table that
 *     grows, where any other order would wait for memory with each item.
 *  4. A slot is a pointer, and 16 bits of its hash above: so skipping touches few items in vain,
 *     and a table of ten million is half as large as with the whole hash beside each pointer. What
 *     moves items to other lines, growing and removing, asks them for their hashes.
 *
 * Life: a zeroed struct with a hash function is an empty table; index_table_fini() frees the slots,
 * never the items. The caller holds the lock.
 * Failure: index_table_reserve() alone takes memory; refused, the table stays as it was. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/parts.h"

enum {
    TABLE_CAP_MIN = 16,
    ADDRESS_BITS = 48,               /* of a program's memory on x86-64 */
    TAG_SHIFT = 16,                  /* homes are of the upper half, shards of the lowest bits */
    SAMPLE_TRIES = 16,
    ITEMS_AHEAD = 16,                /* asked of memory before they are asked for their hashes */
};

static const uint64_t ADDRESS = ((uint64_t)1 << ADDRESS_BITS) - 1;

static uint64_t tag_of(uint64_t hash)
{
    return hash >> TAG_SHIFT << ADDRESS_BITS;
}

static void *item_of(uint64_t slot)
{
    return (void *)(uintptr_t)(slot & ADDRESS); /* NOLINT: the address is all of a pointer */
}

static uint64_t slot_of(uint64_t hash, const void *item)
{
    must(item && ((uintptr_t)item & ~ADDRESS) == 0);
    return tag_of(hash) | (uintptr_t)item;
}

static uint32_t behind(const struct index_table *t, uint32_t at)
{
    return at + 1 < t->cap ? at + 1 : 0;
}

static uint32_t room(uint32_t cap)
{
    return (uint32_t)((uint64_t)cap * 3 / 4);
}

static void place_slot(struct index_table *t, uint64_t hash, uint64_t slot)
{
    uint32_t at = index_table_home(t, hash);

    while (t->slot[at])
        at = behind(t, at);
    t->slot[at] = slot;
}

/* What its hash is of: of a packed object that is all of it. */
static void prefetch(const void *item)
{
    __builtin_prefetch(item);
    __builtin_prefetch((const char *)item + CACHE_LINE);
}

static void place_all(struct index_table *t, const struct index_table *old)
{
    for (uint32_t i = 0; i < old->cap; i++) {
        if (i + ITEMS_AHEAD < old->cap)
            prefetch(item_of(old->slot[i + ITEMS_AHEAD]));
        if (old->slot[i])
            place_slot(t, t->hash(item_of(old->slot[i])), old->slot[i]);
    }
}

/* Twice as many as asked for: so few lines are full. A look-up among ten million takes 0.5 us,
 * nearly all of it two waits for memory. */
static uint64_t cap_for(const struct index_table *t, uint32_t count)
{
    uint64_t cap = max_u64((uint64_t)count * 2 + TABLE_CAP_MIN, (uint64_t)t->cap * 3 / 2);
    return round_up(cap, TABLE_LINE_SLOTS);
}

bool index_table_reserve(struct index_table *t, uint32_t count)
{
    if (count <= room(t->cap))
        return true;
    uint64_t cap = cap_for(t, count);
    uint64_t *slot = cap <= UINT32_MAX ? mem_take_huge(cap * sizeof *slot) : NULL;
    if (!slot)
        return false;
    struct index_table old = *t;
    __atomic_store_n(&t->slot, slot, __ATOMIC_RELAXED);
    __atomic_store_n(&t->cap, (uint32_t)cap, __ATOMIC_RELAXED);
    place_all(t, &old);
    mem_give_huge(old.slot, old.cap * sizeof *old.slot);
    return true;
}

void *index_table_next(const struct index_table *t, uint64_t hash, uint32_t *at)
{
    uint64_t tag = tag_of(hash), slot;

    if (t->cap == 0)
        return NULL;
    do {
        slot = t->slot[*at];
        *at = behind(t, *at);
    } while (slot && (slot & ~ADDRESS) != tag);
    return item_of(slot);
}

void index_table_add(struct index_table *t, uint64_t hash, void *item)
{
    must(t->count < room(t->cap));
    place_slot(t, hash, slot_of(hash, item));
    t->count++;
}

static uint32_t slot_at(const struct index_table *t, uint64_t hash, const void *item)
{
    uint64_t slot = slot_of(hash, item);
    uint32_t at = index_table_home(t, hash);

    while (t->slot[at] != slot) {
        must(t->slot[at]);
        at = behind(t, at);
    }
    return at;
}

void index_table_swap(struct index_table *t, uint64_t hash, void *old, void *item)
{
    t->slot[slot_at(t, hash, old)] = slot_of(hash, item);
}

/* How far behind `from` it stands, around the end. */
static uint32_t distance(const struct index_table *t, uint32_t from, uint32_t at)
{
    return at >= from ? at - from : at + (t->cap - from);
}

/* Unless its home lies behind the hole. In one line it never does: no item is asked then. */
static bool may_move_back(const struct index_table *t, uint32_t at, uint32_t hole)
{
    if (hole < at && at / TABLE_LINE_SLOTS == hole / TABLE_LINE_SLOTS)
        return true;
    uint32_t home = index_table_home(t, t->hash(item_of(t->slot[at])));
    return distance(t, home, at) >= distance(t, hole, at);
}

void index_table_remove(struct index_table *t, uint64_t hash, void *item)
{
    uint32_t hole = slot_at(t, hash, item);

    for (uint32_t at = behind(t, hole); t->slot[at]; at = behind(t, at)) {
        if (may_move_back(t, at, hole)) {
            t->slot[hole] = t->slot[at];
            hole = at;
        }
    }
    t->slot[hole] = 0;
    t->count--;
}

void *index_table_at(const struct index_table *t, uint32_t at)
{
    return item_of(t->slot[at]);
}

unsigned index_table_walk(const struct index_table *t, uint32_t *at, void **out, unsigned cap)
{
    uint32_t home = index_table_home(t, (uint64_t)*at << 32);
    unsigned count = 0;

    if (t->cap == 0) {
        *at = 0;
        return 0;
    }
    for (uint32_t i = home; t->slot[i]; i = behind(t, i)) {
        void *item = item_of(t->slot[i]);
        if (index_table_home(t, t->hash(item)) == home && count < cap)
            out[count++] = item;
    }
    /* Where the next home's hashes begin; behind the last one that is 2^32. */
    uint64_t next = (uint64_t)home + TABLE_LINE_SLOTS;
    *at = (uint32_t)(((next << 32) + t->cap - 1) / t->cap);
    return count;
}

void *index_table_sample(const struct index_table *t)
{
    if (t->count == 0)
        return NULL;
    uint32_t at = (uint32_t)(random_u64() % t->cap);
    /* Each as likely as any other: the next one from a free slot is most often a line's first. */
    for (unsigned i = 0; i < SAMPLE_TRIES && !t->slot[at]; i++)
        at = (uint32_t)(random_u64() % t->cap);
    while (!t->slot[at])             /* few are left of many */
        at = behind(t, at);
    return item_of(t->slot[at]);
}

void index_table_fini(struct index_table *t)
{
    mem_give_huge(t->slot, t->cap * sizeof *t->slot);
    *t = (struct index_table){.hash = t->hash};
}
