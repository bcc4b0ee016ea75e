/* What an object would take if all of it were kept, and what there is for it: for who wants to know
 * before he asks for the first byte.
 *
 * Invariants:
 *  1. Of the disks it is what slots take of pages; of a section what its quota counts: their bytes.
 *  2. What is had by pushing out others counts as had. Pins are not pushed out, nor is the reserve
 *     of eviction had; a disk that is not up gives nothing.
 *  3. Of the index all is an estimate: of a small object as it is at rest, of what is pinned by its
 *     part of what is on the disks.
 *
 * Life: any thread; it holds nothing. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/packed.h"

enum {
    /* beside the memory of an object or a chunk: what is charged with it, and places in tables */
    ALLOCATION_BYTES = 16,
    PLACE_BYTES = 12,                /* 8, in tables that are two thirds full */
    ETAG_TEXT_BYTES = 34,            /* an MD5, with its quotes */
};

static bool is_small(uint64_t size)
{
    return size > 0 && size <= PACKED_BYTES_MAX;
}

static uint64_t small_bytes(struct span key, uint64_t size)
{
    size_t slash = key.len;

    while (slash > 0 && key.at[slash - 1] != '/')
        slash--;
    return packed_bytes_of(key.len - slash, (uint32_t)size) + 3 * PLACE_BYTES;
}

static uint64_t chunk_index_bytes(uint32_t bytes)
{
    uint64_t in_page = space_class_slots(space_class(bytes)) > 1 ? sizeof(void *) : 0;

    return chunk_size(bytes) + ALLOCATION_BYTES + PLACE_BYTES + in_page;
}

static uint64_t index_need(const struct okey *k, uint64_t size)
{
    uint32_t tail = (uint32_t)(size % CHUNK_BYTES);

    if (is_small(size))
        return small_bytes(k->key, size);
    return offsetof(struct entry, text) + k->bucket.len + k->key.len + ETAG_TEXT_BYTES +
           ALLOCATION_BYTES + PLACE_BYTES + size / CHUNK_BYTES * chunk_index_bytes(CHUNK_BYTES) +
           (tail ? chunk_index_bytes(tail) : 0);
}

struct cache_need cache_need(const struct okey *k, uint64_t size)
{
    uint32_t tail = (uint32_t)(size % CHUNK_BYTES);
    uint64_t whole = size - tail;

    return (struct cache_need){
        .room = whole + (tail ? space_class_room(space_class(tail)) : 0),
        .slots = whole + (tail ? space_class_bytes(space_class(tail)) : 0),
        .index = index_need(k, size),
        .small = is_small(size),
    };
}

uint64_t cache_need_room(uint64_t size)
{
    const struct okey none = {.store = 0};

    return cache_need(&none, size).room;
}

unsigned cache_section(struct cache *c, const struct okey *k)
{
    unsigned section = rules_judge(c, k).section;

    return section && atomic_load(&c->rules.section[section].quota_bytes) ? section : 0;
}

static void add_disk(struct directory *d, struct cache_room *r, uint64_t *pinned)
{
    uint64_t capacity = space_capacity_bytes(d->space);

    r->capacity += capacity;
    *pinned += atomic_load(&d->pinned_bytes);
    r->reserve += evict_reserve(d->residents.pages) * SPACE_PAGE_BYTES;
}

/* Of the index, what is pinned has as much as its part of what is on the disks. */
static uint64_t pinned_index(struct cache *c)
{
    uint64_t fixed = sizeof c->epochs, all = atomic_load(&c->index_bytes), pinned = 0, room = 0;

    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        if (directory_is_absent(d))
            continue;
        pinned += atomic_load(&d->pinned_bytes);
        room += space_used_bytes(d->space) + space_lost_bytes(d->space);
    }
    all -= min_u64(all, fixed);
    return fixed + (room ? (uint64_t)((double)all * (double)min_u64(pinned, room) / (double)room)
                         : 0);
}

void cache_room(struct cache *c, unsigned section, uint64_t small, struct cache_room *out)
{
    uint64_t pinned = 0, index = c->index_limit_bytes, taken = pinned_index(c);

    *out = (struct cache_room){.quota = UINT64_MAX, .quota_free = UINT64_MAX};
    for (unsigned i = 0; i < c->dir_count; i++)
        if (directory_is_up(&c->dir[i]))
            add_disk(&c->dir[i], out, &pinned);
    out->pinned = pinned;
    must(section < RULE_SECTIONS);
    const struct section *s = &c->rules.section[section];
    uint64_t quota = section ? atomic_load(&s->quota_bytes) : 0, held = atomic_load(&s->bytes);
    if (quota) {
        out->quota = quota;
        out->quota_free = quota > held ? quota - held : 0;
    }
    /* What is kept free for those of them that are read. */
    taken += min_u64(min_u64(small, index) * PACKING_SAVES, index / PACKING_PART);
    out->index = index > taken ? index - taken : 0;
}
