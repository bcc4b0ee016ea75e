/* The cache's parts that know nothing of the whole: slots, records, tables, memory, batches.
 *
 * Invariants:
 *  1. Nothing outside the folder includes this header.
 *  2. The files that it speaks of include nothing else of the folder.
 *
 * Life: each belongs to who made it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_PARTS_H
#define HEADPOND_CACHE_PARTS_H

#include "server/cache/cache.h"

/* ---- space.c: slots of one slab; own lock; no I/O ---- */
struct space;
enum { SPACE_PAGE_BYTES = 8 * MIB, SPACE_CLASSES_MAX = 64 };
must_check struct space *space_make(uint64_t slab_bytes, unsigned dir);
void space_free(struct space *s);
/* Four classes per doubling, multiples of 4 KiB, 4 KiB .. 8 MiB. Returns the smallest class that
 * holds bytes (1 <= bytes <= 8 MiB). */
unsigned space_class(uint32_t bytes);
uint32_t space_class_bytes(unsigned class_);
unsigned space_class_slots(unsigned class_);          /* of a page */
/* What a slot takes of the disk: its part of a page, with what of that no slot can have. Above
 * 4 MiB that is all of it. */
uint64_t space_class_room(unsigned class_);
uint64_t slot_offset(struct slot s);                   /* in the slab file */
/* A free slot of that class; takes an empty page if needed. ERR_FULL, ERR_MEMORY. reserve_ok = may
 * go into the 1 % reserve. */
must_check enum err space_take(struct space *s, unsigned class_, bool reserve_ok, struct slot *out);
void space_give(struct space *s, struct slot slot);
/* At load: marks a slot as taken. ERR_RECORD if it lies outside, or its page has another class
 * already, or it is taken; ERR_MEMORY. */
must_check enum err space_claim(struct space *s, struct slot slot);
void space_prefetch(const struct space *s, struct slot slot); /* will be claimed soon */
/* The same for many, with one look at the lock: err[i] of those where it is OK before. */
void space_claim_all(struct space *s, const struct slot *slot, unsigned count, enum err *err);
uint64_t space_capacity_bytes(const struct space *s);
uint64_t space_used_bytes(const struct space *s);      /* sum of the slots taken */
uint64_t space_lost_bytes(const struct space *s);      /* what they take of the disk besides */
uint32_t space_free_pages(const struct space *s);
/* Bytes of the slots that are free in pages of that class, or of any. */
uint64_t space_holes(const struct space *s, unsigned class_);
uint64_t space_all_holes(const struct space *s);
/* Pages of other classes that would become empty most cheaply: a random one of at most 8 sampled,
 * with the fewest slots taken. false: none. */
bool space_cheapest_page(struct space *s, unsigned not_class, uint32_t *page, unsigned *taken);

/* ---- record.c: index values, pure ---- */
/* Values end with their own CRC32C; decoders verify it and every length. */
enum { RECORD_FORMAT = 1, RECORD_BYTES_MAX = 64 * KIB };
struct object_record {
    struct id data_id;
    uint64_t size, last_modified_s, checked_ms, commit;
    uint64_t read_s;                 /* wall clock of the last read; 0: not known */
    uint32_t flags;
    struct span bucket, key, version, etag, headers;   /* borrowed from the bytes decoded */
    struct span parts;               /* part table: u64 end offsets, big-endian; empty = unknown */
};
struct chunk_record {
    struct id object_id;
    struct slot slot;
    uint32_t bytes;
    uint8_t present;
    struct policy_mark mark;
    uint32_t crc_count;
    uint32_t crc[GRANULES_PER_CHUNK];
};
/* 0: does not fit */
size_t record_object_write(const struct object_record *r, void *out, size_t cap);
/* ERR_RECORD, ERR_NEWER */
must_check enum err record_object_read(struct span bytes, struct object_record *out);
size_t record_chunk_write(const struct chunk_record *r, void *out, size_t cap);
/* Whose record it seems to be, unverified: for prefetching. */
struct id record_chunk_object(struct span bytes);
must_check enum err record_chunk_read(struct span bytes, struct chunk_record *out);
/* All but the CRCs, which stay where they are: to be copied once, to where they belong. */
must_check enum err record_chunk_look(struct span bytes, struct chunk_record *out,
                                      struct span *crcs);
void record_chunk_crcs(struct span crcs, uint32_t *out);
/* The same of the first RECORD_CHUNK_HEAD_BYTES of a record alone, by their own checksum: what
 * follows is not looked at, and may be damaged, or not there. ERR_RECORD also for a record of an
 * earlier version, which has no such checksum. */
enum { RECORD_CHUNK_HEAD_BYTES = 52 };
must_check enum err record_chunk_head(struct span bytes, struct chunk_record *out);
/* Its two halves, for those who hand it on in between: whether the checksum holds, and how long the
 * chunk says it is; and what else it says, once that is known, which may still be impossible. */
must_check enum err record_chunk_verify(struct span bytes, uint32_t *chunk_bytes);
must_check enum err record_chunk_verified(struct span bytes, struct chunk_record *out);
/* A directory's header file: format, secret, directory number and size. */
struct header_record {
    uint32_t format;
    uint8_t secret[32];
    uint8_t directory_id[16];
    uint64_t slab_bytes;
};
enum { RECORD_HEADER_BYTES = 80 };
size_t record_header_write(const struct header_record *r, void *out, size_t cap);
/* ERR_RECORD, ERR_NEWER, ERR_OLDER */
must_check enum err record_header_read(struct span bytes, struct header_record *out);

/* ---- table.c: hash table of pointers, open addressing; the caller holds its lock ---- */
struct index_table {
    uint64_t *slot;                  /* 0: free */
    uint32_t cap, count;
    uint64_t (*hash)(const void *item); /* as it was added with; set by the owner */
};
/* room for count items altogether; false: no memory */
must_check bool index_table_reserve(struct index_table *t, uint32_t count);
enum { TABLE_LINE_SLOTS = 8 };       /* of a line of memory */
/* Where an item of that hash is looked for first, the begin of a line: homes rise with the hash's
 * upper half. */
static inline uint32_t index_table_home(const struct index_table *t, uint64_t hash)
{
    return (uint32_t)((hash >> 32) * t->cap >> 32) & ~(uint32_t)(TABLE_LINE_SLOTS - 1);
}
/* Walks the items that may have that hash, and a few others: *at starts as its home; NULL = no
 * more. */
void *index_table_next(const struct index_table *t, uint64_t hash, uint32_t *at);
void index_table_add(struct index_table *t, uint64_t hash, void *item);     /* room was reserved */
void index_table_swap(struct index_table *t, uint64_t hash, void *old, void *item);
void index_table_remove(struct index_table *t, uint64_t hash, void *item);
/* A walk by homes in their order: all items of the home of hashes with the upper half *at, at most
 * cap of them; *at is then that of the next home, 0: that was the last one. It stands for a hash
 * and not for a place, so nothing is missed when the table grows on the way. Returns how many. */
unsigned index_table_walk(const struct index_table *t, uint32_t *at, void **out, unsigned cap);
void *index_table_at(const struct index_table *t, uint32_t at);    /* at < cap; NULL: none there */
void *index_table_sample(const struct index_table *t);             /* any; NULL when empty */
void index_table_fini(struct index_table *t);
static inline uint64_t index_table_bytes(const struct index_table *t)
{
    return t->cap * sizeof *t->slot;
}

/* ---- cells.c: memory of objects and chunks ---- */
enum { CELL_STEP = 8 };              /* to which their sizes are rounded up */
struct cells;
must_check struct cells *cells_make(void);             /* NULL: no memory */
void cells_free(struct cells *c);                      /* with all that is lent; NULL is fine */
must_check void *cells_take(struct cells *c, size_t bytes); /* zeroed; NULL when refused */
/* Many of one size with one look at the lock, with whatever stood there. Returns how many: fewer
 * when refused. */
must_check unsigned cells_take_many(struct cells *c, size_t bytes, unsigned count, void **out);
void cells_give(struct cells *c, void *at, size_t bytes);   /* as many as were taken */
/* Off the hit path, now and then: memory for the next cells, where less than half a region is left
 * (of small pages the first of each span). */
void cells_ready(struct cells *c);

/* ---- batch.c: changes of one directory's records, gathered by key ---- */
struct journal_change {
    struct id id;                    /* of the object, or of the chunk's data */
    uint64_t number;                 /* of the chunk; the state's value */
    /* a number in `state` of that name, or these bytes, borrowed; else */
    const char *state;
    struct span bytes;
    const struct object_record *object; /* an object's record; remove: bucket and key suffice */
    const struct chunk_record *chunk;   /* else a chunk's; remove: NULL */
    bool remove;
};
enum journal_db { JOURNAL_OBJECTS, JOURNAL_CHUNKS, JOURNAL_NAMES, JOURNAL_STATE, JOURNAL_DBS };
/* The slot of a removed record: free after the next commit. It stands in memory that has no other
 * use any more (a dead chunk's), so that nothing must be allocated to give it back. */
struct limbo {
    struct limbo *next;
    struct slot slot;
    uint32_t bytes;                  /* of that memory, from struct cells */
};
enum {
    CHANGE_KEY_BYTES = 24,           /* data id, chunk number */
    STATE_BYTES = 12,
};
struct batch_change {
    uint8_t key[CHANGE_KEY_BYTES];
    uint8_t db, key_len;
    bool remove, sync;               /* sync: names new data */
    uint16_t name_len;               /* of objects: bucket/key, stands before the value */
    uint32_t value_len;
    size_t at;                       /* in batch.bytes */
};
struct batch {
    struct batch_change *change;
    uint32_t count, cap;
    uint32_t *map, map_cap;          /* by key: index + 1 */
    uint8_t *bytes;
    size_t used, room;
    struct limbo *limbo;             /* owned */
    struct cache_write *writes;      /* that wait for the commit */
    bool owed;                       /* it holds doubt that a write did not wait for */
    uint64_t first_ms;               /* when its first change came */
};
/* What a usual batch needs, so that removals find memory. */
must_check bool batch_init(struct batch *b);
void batch_fini(struct batch *b);
/* ERR_MEMORY, ERR_TOO_LARGE */
must_check enum err batch_add(struct batch *b, const struct journal_change *change, unsigned count);
bool batch_has_object(struct batch *b, struct id id);  /* its record changes with this batch */
void batch_clear(struct batch *b);   /* committed; limbo and writes were taken */
void batch_state(uint64_t n, uint8_t out[STATE_BYTES]);  /* a number as `state` holds it */

#endif
