/* Checksums of the first halves of granules: who wants less than half a granule reads that half.
 *
 * A range of 64 KiB costs twice its bytes of a disk that is read by granules, and disks are slow by
 * bytes. The index keeps one CRC per granule, as it has to fit into memory for all chunks of all
 * disks; what stands here need not be known. The CRC of a granule goes on from the one of its first
 * half: so one more word verifies either half alone, and who compares a whole granule meets it on
 * the way.
 *
 * Invariants:
 *  1. The words belong to the slot: only who holds a chunk that stands in it looks at them or sets
 *     them, and a chunk that takes a slot forgets them first. So they are about its bytes.
 *  2. A word is set from bytes that were verified, or came to be written, and stays known as long
 *     as its chunk. 0 says that it is not known (one of 2^32 halves has it: that is read by its
 *     granule).
 *  3. They take their memory from cache.memory, at most a sixty-fourth of it: where that is less
 *     than the disks have pages, the last pages of each have no words.
 *
 * Life: halves_open() when the directories are known, before their threads begin; one that joins
 * later has none until the next start. No record keeps them, and an upload that is kept changes
 * names: behind a start, or a publication, the first read of each granule is whole.
 * Failure: without memory nothing is known, and granules are read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

enum {
    SHARE = 64,                      /* one part in so many of cache.memory, at most */
    PAGE_BYTES = GRANULES_PER_CHUNK * sizeof(uint32_t), /* of a slab's page */
    HUGE_BYTES = 2 * MIB,            /* memory beyond it is taken by as much */
};

static uint64_t wanted(const struct directory *d)
{
    return directory_is_absent(d) ? 0 : d->header.slab_bytes / SPACE_PAGE_BYTES;
}

uint64_t halves_open(struct cache *c)
{
    uint64_t pages = 0, most = c->config->cache_memory / SHARE / PAGE_BYTES, taken = 0;

    for (unsigned i = 0; i < c->dir_count; i++)
        pages += wanted(&c->dir[i]);
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        uint64_t own = wanted(d);
        if (pages > most)
            own = (uint64_t)((double)own * (double)most / (double)pages);
        d->half = own > 0 ? mem_take_huge(own * PAGE_BYTES) : NULL;
        d->half_pages = d->half ? (uint32_t)own : 0;
        uint64_t bytes = d->half_pages * (uint64_t)PAGE_BYTES;
        taken += bytes < HUGE_BYTES ? bytes : round_up(bytes, HUGE_BYTES);
    }
    return taken;
}

void halves_close(struct cache *c)
{
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        mem_give_huge(d->half, d->half_pages * (uint64_t)PAGE_BYTES);
        d->half = NULL;
        d->half_pages = 0;
    }
}

/* Of a slot's first granule; NULL: it has none. Slots that do not stand at granules of their page
 * are of at most a few of them. */
static _Atomic uint32_t *words_of(const struct directory *d, struct slot slot)
{
    if (slot.page >= d->half_pages)
        return NULL;
    uint32_t bytes = space_class_bytes(slot.class_);
    uint64_t first = slot.at * (uint64_t)(bytes / GRANULE_BYTES);
    return bytes % GRANULE_BYTES == 0 ? d->half + slot.page * (uint64_t)GRANULES_PER_CHUNK + first
                                      : NULL;
}

void halves_forget(const struct directory *d, struct slot slot)
{
    _Atomic uint32_t *word = words_of(d, slot);

    for (uint32_t i = 0; word && i < space_class_bytes(slot.class_) / GRANULE_BYTES; i++)
        if (atomic_load_explicit(&word[i], memory_order_relaxed) != 0)
            atomic_store_explicit(&word[i], 0, memory_order_relaxed);
}

uint32_t halves_get(const struct cache *c, const struct chunk *k, uint32_t granule)
{
    const _Atomic uint32_t *word = words_of(&c->dir[k->slot.dir], k->slot);

    return word ? atomic_load_explicit(&word[granule], memory_order_relaxed) : 0;
}

void halves_set(const struct cache *c, const struct chunk *k, uint32_t granule, uint32_t crc)
{
    _Atomic uint32_t *word = words_of(&c->dir[k->slot.dir], k->slot);

    if (word && crc != 0 && atomic_load_explicit(&word[granule], memory_order_relaxed) != crc)
        atomic_store_explicit(&word[granule], crc, memory_order_relaxed);
}
