/* A hash table of pointers: open addressing, linear probing, removal by shifting back.
 *
 * Invariants:
 *  1. cap is 0 or a power of two; count <= 3/4 of cap, so that every probe ends at a free entry.
 *  2. Between an item's home and its entry no entry is free. The homes stand in the order of the
 *     hashes: what comes in that order is written one after the other, and so is a table that
 *     grows, where any other order would wait for memory with each item.
 *  3. The hash stands beside the pointer: growing, removing and skipping never touch the items.
 *
 * Life: a zeroed struct is an empty table; index_table_fini() frees the entries, never the items.
 * The caller holds the lock.
 * Failure: index_table_reserve() alone takes memory; refused, the table stays as it was. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/parts.h"

enum { TABLE_CAP_MIN = 16 };

static uint32_t room(uint32_t cap)
{
    return cap / 4 * 3;
}

static void place_item(struct index_table *t, uint64_t hash, void *item)
{
    uint32_t at = index_table_home(t, hash);

    while (t->entry[at].item)
        at = (at + 1) & (t->cap - 1);
    t->entry[at] = (struct index_slot){hash, item};
}

bool index_table_reserve(struct index_table *t, uint32_t count)
{
    if (count <= room(t->cap))
        return true;
    uint32_t cap = t->cap ? t->cap : TABLE_CAP_MIN;
    while (room(cap) < count) {
        if (cap > UINT32_MAX / 2)
            return false;
        cap *= 2;
    }
    struct index_table old = *t;
    struct index_slot *entry = mem_take_huge(cap * sizeof *entry);
    if (!entry)
        return false;
    __atomic_store_n(&t->entry, entry, __ATOMIC_RELAXED);
    __atomic_store_n(&t->cap, cap, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.entry[i].item)
            place_item(t, old.entry[i].hash, old.entry[i].item);
    mem_give_huge(old.entry, old.cap * sizeof *old.entry);
    return true;
}

void *index_table_next(const struct index_table *t, uint64_t hash, uint32_t *at)
{
    if (t->cap == 0)
        return NULL;
    for (;;) {
        const struct index_slot *e = &t->entry[*at & (t->cap - 1)];
        ++*at;
        if (!e->item)
            return NULL;
        if (e->hash == hash)
            return e->item;
    }
}

void index_table_add(struct index_table *t, uint64_t hash, void *item)
{
    must(t->count < room(t->cap) && item);
    place_item(t, hash, item);
    t->count++;
}

static uint32_t entry_at(const struct index_table *t, uint64_t hash, const void *item)
{
    uint32_t at = index_table_home(t, hash);

    while (t->entry[at].item != item) {
        must(t->entry[at].item);
        at = (at + 1) & (t->cap - 1);
    }
    return at;
}

void index_table_swap(struct index_table *t, uint64_t hash, void *old, void *item)
{
    t->entry[entry_at(t, hash, old)].item = item;
}

void index_table_remove(struct index_table *t, uint64_t hash, void *item)
{
    uint32_t mask = t->cap - 1, hole = entry_at(t, hash, item);

    for (uint32_t at = (hole + 1) & mask; t->entry[at].item; at = (at + 1) & mask) {
        uint32_t home = index_table_home(t, t->entry[at].hash);
        /* Moves back unless its home lies behind the hole. */
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            t->entry[hole] = t->entry[at];
            hole = at;
        }
    }
    t->entry[hole].item = NULL;
    t->count--;
}

unsigned index_table_walk(const struct index_table *t, uint32_t *at, void **out, unsigned cap)
{
    uint32_t mask = t->cap - 1, home = index_table_home(t, (uint64_t)*at << 32);
    unsigned count = 0;

    if (t->cap == 0) {
        *at = 0;
        return 0;
    }
    for (uint32_t i = home; t->entry[i].item; i = (i + 1) & mask)
        if (index_table_home(t, t->entry[i].hash) == home && count < cap)
            out[count++] = t->entry[i].item;
    /* Where the next home's hashes begin; behind the last one that is 2^32. */
    *at = (uint32_t)((((uint64_t)home + 1) << 32) / t->cap);
    return count;
}

void *index_table_sample(const struct index_table *t)
{
    if (t->count == 0)
        return NULL;
    uint32_t at = (uint32_t)random_u64() & (t->cap - 1);
    while (!t->entry[at].item)
        at = (at + 1) & (t->cap - 1);
    return t->entry[at].item;
}

void index_table_fini(struct index_table *t)
{
    mem_give_huge(t->entry, t->cap * sizeof *t->entry);
    *t = (struct index_table){0};
}
