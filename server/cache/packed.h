/* Small objects at rest: an object of one block with its chunk, which nobody has read for a while,
 * in a third of the memory that it takes while it is used.
 *
 * An entry and a chunk hold what can be had otherwise: ids that are hashes of what stands beside
 * them, a key of which most is its neighbours' as well, an ETag in hexadecimal. A packed object has
 * what is left; what is asked for it is unpacked.
 *
 * Invariants:
 *  1. In the tables of objects and chunks, in residents and in a section's array the same pointer
 *     stands, with its lowest bit set; so whoever looks there sees what it is.
 *  2. Packed or unpacked it is the same object: ids, times, marks and CRCs come back as they were.
 *  3. Names, size and ETag never change; the rest does at a start only, by one thread.
 *
 * Life: made by packing.c or at a start; freed when unpacked. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_PACKED_H
#define HEADPOND_CACHE_PACKED_H

#include "server/cache/inside.h"

enum {
    PACKED_BYTES_MAX = BLOCK_BYTES,  /* of an object */
    PACKED_GRANULES = BLOCK_BYTES / GRANULE_BYTES,
    PACKED_TEXT = 2 * KIB,           /* a key and an ETag */
    /* Of cache.index_memory at most, as long as the hand keeps up: what those take that were
     * unpacked or came last, and were not packed yet. */
    PACKING_PART = 8,
    PACKING_SAVES = 250,             /* bytes, by packing one */
};
struct packed;
/* All that it says, in plain fields. */
struct small {
    struct okey k;                   /* with store and id */
    struct id data_id;
    uint64_t size, modified_s, checked_ms, vouched;
    uint32_t flags;                  /* OBJECT_DOUBT, OBJECT_STABLE */
    uint32_t saved_s, read_s, saved_read_s;
    struct span etag, headers;
    struct slot slot;                /* dir: also of its record */
    bool doubted;                    /* as which it stands in that record */
    bool unrecorded;                 /* its index was lost, and has no record of it yet */
    bool has_chunk;                  /* false only while a start reads; then nothing follows */
    bool unpinned;
    uint8_t section;                 /* 0: none; where it stands there: packed_in_section() */
    struct policy_mark mark;
    uint32_t crc[PACKED_GRANULES];
};

/* ---- items of tables ---- */
static inline bool item_is_packed(const void *item)
{
    return (uintptr_t)item & 1;
}
static inline struct packed *item_packed(const void *item)
{
    return (struct packed *)((uintptr_t)item & ~(uintptr_t)1); /* NOLINT: the same object's */
}
static inline void *packed_item(const struct packed *p)
{
    return (void *)((uintptr_t)p | 1); /* NOLINT: as above */
}

/* ---- kin.c: what the objects of one folder share ---- */
/* Store, bucket, the key up to its last slash, and the fields. */
struct kin {
    struct cache *cache;
    struct header_set *headers;
    uint64_t hash;
    uint32_t refs;                   /* under the shard's lock */
    uint16_t bucket_stripe, bucket_len, prefix_len;
    uint8_t store;
    char text[];                     /* bucket, prefix */
};
/* Counted; NULL: no memory. prefix: of k->key. */
must_check struct kin *kin_take(struct cache *c, const struct okey *k, size_t prefix,
                                struct span headers);
void kin_drop(struct kin *n);
struct span kin_bucket(const struct kin *n);
struct span kin_prefix(const struct kin *n);

/* ---- packed.c: the form ---- */
/* It says nothing that a packed one cannot say, and its id is the one that its names give. */
bool small_fits(const struct cache *c, const struct small *s);
/* So is its data id, and a chunk's slot is as large as that one needs. */
bool small_fits_chunk(const struct cache *c, const struct small *s);
/* Memory of the index, charged whatever the limit: it is less than what it stands for. NULL: no
 * memory. */
must_check struct packed *packed_make(struct cache *c, const struct small *s);
void packed_give(struct cache *c, struct packed *p);
/* The same, but its slot waits in its memory for the commit that removes its record. */
void packed_limbo(struct cache *c, struct packed *p, struct slot slot);
/* What may change, anew: all but names, size, ETag and whether there is a section. */
void packed_set(struct packed *p, const struct small *s);
void packed_lose_chunk(struct packed *p); /* at a start: it waits for another one */
/* Spans are p's, or stand in text. Without the ids. */
void packed_read(const struct packed *p, struct small *s, char text[PACKED_TEXT]);
struct id packed_id(const struct packed *p);
struct id packed_data_id(const struct packed *p);
size_t packed_bytes(const struct packed *p);
/* Of one whose key has so many bytes behind its last slash, and whose ETag is an MD5. */
size_t packed_bytes_of(size_t tail_len, uint32_t size);
bool packed_has_chunk(const struct packed *p);
bool packed_is_unrecorded(const struct packed *p);
struct policy_mark *packed_mark(struct packed *p);
struct slot packed_slot(const struct packed *p);
void packed_set_unpinned(struct packed *p);
uint8_t packed_section(const struct packed *p);
void packed_leave_section(struct packed *p); /* what it was made for */
uint32_t packed_in_section(const struct packed *p);    /* its section's lock is held, as next */
void packed_set_in_section(struct packed *p, uint32_t at);

/* The chunk's, in either form. */
static inline struct policy_mark *item_mark(void *item)
{
    return item_is_packed(item) ? packed_mark(item_packed(item)) : &((struct chunk *)item)->mark;
}

/* ---- packing.c: from one form into the other ---- */
/* The item is an object's of the index; its stripe is held, or a start reads. Where memory for it
 * is refused it leaves the index: NULL. */
struct entry *packed_unpack(struct cache *c, struct packed *p);
/* The same, and the hand is not told: for who gives it to object_leave(). */
struct entry *packed_unpack_shortly(struct cache *c, struct packed *p);
/* It leaves the index, and what was cached of it the disk, without being unpacked; stripe held.
 * LABEL_evict_COUNT: for no cause that is counted. */
void packed_leave(struct cache *c, struct packed *p, enum label_evict cause);
must_check bool packing_open(struct cache *c);         /* false: no memory */
void packing_close(struct cache *c);
/* That one is at its full size from now on: the hand comes to it. Stripe held. */
void packing_note(struct cache *c, struct entry *e);
void packing_unnote(struct cache *c, struct entry *e); /* it is about to be freed */
/* What is due: packs what has not been read for a while. The policy's thread. */
void packing_work(struct cache *c);
/* All of the index that can be packed, and was not read in the last idle_s seconds. */
void packing_round(struct cache *c, uint32_t idle_s);
/* The index is full: a few anywhere; true: one was. No stripe is held. */
bool packing_relieve(struct cache *c);

/* ---- walk.c ---- */
/* Of a packed object, whose stripe is held: whether a walk should unpack it. */
typedef bool packed_wanted(struct cache *c, const struct packed *p, const void *arg);
unsigned walk_wanted(struct cache *c, uint64_t *at, struct object *out[CACHE_WALK_MAX],
                     packed_wanted *wanted, const void *arg);

#endif
