/* The cache: objects and chunks in RAM, slots on NVMe, verified buffers; LMDB behind it as the
 * durable copy.
 *
 * Words: an *object* is one generation (ETag, size) of a key; its bytes are *chunks* of 8 MiB; a
 * chunk is present by *blocks* of 1 MiB; a *granule* of 128 KiB is the unit of checksums. A *slot*
 * is a place on disk, a *buffer* one in RAM.
 *
 * Invariants:
 *  1. Bytes leave this folder only verified: from disk against the granule's CRC32C (seeded with
 *     data id, chunk, granule: rejects stale, torn and misplaced bytes), from upstream by the fetch
 *     that received them.
 *  2. A held object, chunk or buffer keeps its memory and its slot. What is named by a record on
 *     disk is never rewritten before its slot was given back, and a slot is given back only after
 *     the commit that deletes its record (limbo).
 *  3. Data is durable (fdatasync) before the record that names it. A lost or damaged index is an
 *     empty cache, never a wrong byte.
 *  4. Key bytes are compared on every find: the hash never decides.
 *  5. Locks are sharded, held for less than a microsecond, never across I/O; order: pool allocator
 *     before pool shard; object shard, chunk shard and space never nest.
 *
 * Life: cache_open() at start, cache_close() after the last core ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_H
#define HEADPOND_CACHE_H

#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

#include "server/loop/loop.h"

struct cache;

struct id {                          /* 128 bit of XXH3, keyed with the directories' secret */
    uint64_t a, b;
};
static inline bool id_eq(struct id x, struct id y)
{
    return x.a == y.a && x.b == y.b;
}

/* ---- start and end ---- */
/* Opens or makes every cache directory: exclusive lock, secret, format version, slab (fallocate
 * once, never wider than 0700), index (checked by a forked child, loaded, moved aside if damaged).
 * why names cause and fix. ERR_FOREIGN, ERR_NEWER, ERR_LOCKED, ERR_DENIED (owner, mode), ERR_FULL
 * (file system too small), ERR_DISK, ERR_SYSTEM, ERR_MEMORY, ERR_CONFIG. With no directory: RAM
 * only (tests). It forks, so it is called before any thread exists. s->store is set. */
must_check enum err cache_open(struct server *s, char why[512], struct cache **out);
/* Commits everything, ends the writer threads. No core runs any more. */
void cache_close(struct cache *c);
/* The pool's memory, for registration with the rings. */
void cache_pool_memory(const struct cache *c, void **at, size_t *bytes);

struct cache_disk_status {
    const char *dir;
    bool up;
    uint64_t capacity_bytes, used_bytes, errors;
};
struct cache_status {
    uint64_t capacity_bytes, used_bytes, objects, chunks, pool_bytes, pool_used_bytes,
        dirty_entries, index_bytes;
    unsigned disk_count;
    struct cache_disk_status disk[16];
};
/* any thread; also refreshes the cache's gauges */
void cache_status(struct cache *c, struct cache_status *out);

/* ---- objects ---- */
struct okey {                        /* borrowed spans */
    struct span bucket, key, version; /* version "" = current */
    struct id id;                    /* filled by cache_key() */
};
/* computes id over (store, bucket, key, version) */
void cache_key(struct cache *c, struct okey *k);

enum object_flag {
    OBJECT_DOUBT = 1,                /* must be asked upstream before it may be used (durable) */
    OBJECT_GONE = 2,                 /* replaced or forgotten: no new reader may start on it */
    /* was modified within two seconds before checked_ms (RAM only) */
    OBJECT_YOUNG = 8,
    OBJECT_STABLE = 4,               /* versionId given: never asked again */
};
struct object {
    struct id id, data_id;
    uint64_t size;
    uint64_t last_modified_s;        /* 0 = unknown */
    /* wall clock: when upstream last said that this is current (send time of the asking) */
    _Atomic uint64_t checked_ms;
    _Atomic uint32_t flags;
    _Atomic uint32_t holds;          /* private to cache/ */
    struct span bucket, key, version, etag; /* owned; etag with its quotes as received */
    /* "name: value\r\n"* to replay, interned; without Content-Length, ETag, Last-Modified */
    struct span headers;
    void *private_;
};
/* What one upstream answer said. */
struct object_facts {
    uint64_t size, last_modified_s, asked_ms;
    struct span etag, headers;
    uint32_t flags;                  /* OBJECT_STABLE */
};
/* Held, or NULL. Also finds doubtful ones (look at flags). */
struct object *cache_find(struct cache *c, const struct okey *k);
/* The data id that (key, ETag, size) gives: lets a fetch be listed before its object is
 * published. */
struct id cache_data_id(struct cache *c, const struct okey *k, struct span etag, uint64_t size);
/* An answer: same ETag and size = the same generation (checked_ms moves on, headers are replaced,
 * doubt ends); else a new one that replaces the old, whose chunks are dropped. Returns it held. An
 * answer that was asked for before the known generation was last seen teaches nothing: then that
 * one is returned, so the caller compares before it stores bytes.
 * ERR_MEMORY when the index is full and nothing could be evicted. */
must_check enum err cache_learn(struct cache *c, const struct okey *k, const struct object_facts *f,
                                struct object **out);
/* Upstream says 404, or a fill met 412: no reader may start on this generation. */
void cache_forget(struct cache *c, struct object *o);
/* It must be asked upstream before it may be used; kept over a restart (queued, not awaited). */
void cache_doubt(struct cache *c, struct object *o);
void object_hold(struct object *o);
void object_drop(struct cache *c, struct object *o);
/* Bytes of the chunk: 8 MiB but for the last. */
static inline uint32_t object_chunk_bytes(const struct object *o, uint64_t number)
{
    return (uint32_t)min_u64(CHUNK_BYTES, o->size - number * CHUNK_BYTES);
}

/* ---- chunks on disk ---- */
/* 12 bytes, also in the record: what eviction knows of a chunk */
struct policy_mark {
    uint32_t last;                   /* virtual time of the last reference */
    uint16_t group;
    uint8_t class_, count, credit, flags;
    uint16_t spare;
};
struct slot {                        /* a place in a slab: page of 8 MiB, position in it */
    uint32_t page;
    uint16_t at;
    uint8_t class_, dir;
};
struct chunk {
    struct id data_id;
    /* private: the object it was made for; looked up, never pointed to */
    struct id object_id;
    uint64_t number;
    uint32_t bytes;
    struct slot slot;
    _Atomic uint32_t holds;          /* private to cache/ */
    _Atomic uint8_t present;         /* bit per block readable from disk */
    uint8_t state;                   /* private to cache/ */
    struct policy_mark mark;
    uint32_t serial;                 /* private: generation that this chunk was made for */
    uint32_t crc[];                  /* per granule */
};
/* Held, or NULL. A chunk may lack blocks. */
struct chunk *chunk_find(struct cache *c, struct id data_id, uint64_t number);
void chunk_drop(struct cache *c, struct chunk *k);     /* ends a hold */
/* A reader used `bytes` of it: tells the policy. Hit path: relaxed stores only. */
void chunk_reference(struct cache *c, struct chunk *k, uint64_t bytes);
/* A place to fill: finds the chunk or makes it with a slot, evicting as the policy says. Held. One
 * filler at a time is guaranteed by fill/. ERR_FULL: nothing can be freed now, or no disk is up;
 * ERR_DENIED: the policy would not keep it, or the generation is gone (bypass); ERR_MEMORY. */
must_check enum err chunk_admit(struct cache *c, struct object *o, uint64_t number,
                                struct chunk **out);
/* Write of block b ended well: its CRCs stand in crc[0..granules); from now on readers may read it
 * from disk. */
void chunk_wrote(struct cache *c, struct chunk *k, unsigned block, const uint32_t *crc);
/* The filler leaves (also ends its hold): a record is queued if any block is present, else the slot
 * goes back. */
void chunk_filled(struct cache *c, struct chunk *k);
/* A read failed or did not verify: those blocks are no longer present; the record is replaced. */
void chunk_damaged(struct cache *c, struct chunk *k, unsigned block, enum err why);

/* Disk transfer of whole granules of one chunk: off is inside the chunk and a multiple of
 * GRANULE_BYTES; mem is 4 KiB aligned with room for len rounded up to 4 KiB. The op's result is
 * judged by chunk_read_done(): short reads, errors and checksums; it counts, logs, and calls
 * chunk_damaged itself. */
void chunk_read(struct cache *c, struct machine *m, struct op *op, struct chunk *k, uint32_t off,
                uint32_t len, void *mem);
enum err chunk_read_done(struct cache *c, struct op *op, struct chunk *k, uint32_t off,
                         uint32_t len, void *mem, uint64_t began_us);
/* One whole block (the last may be shorter: the rest up to 4 KiB is zeroed in mem). */
void chunk_write(struct cache *c, struct machine *m, struct op *op, struct chunk *k, unsigned block,
                 void *mem);
enum err chunk_write_done(struct cache *c, struct op *op, struct chunk *k, unsigned block,
                          uint64_t began_us);
/* CRCs of a block's granules as stored; crc[] has GRANULES_PER_BLOCK places. */
void chunk_crc(struct id data_id, uint64_t number, unsigned block, const void *mem, uint32_t len,
               uint32_t *crc);
static inline uint32_t chunk_block_bytes(uint32_t chunk_bytes, unsigned block)
{
    return (uint32_t)min_u64(BLOCK_BYTES, chunk_bytes - (uint64_t)block * BLOCK_BYTES);
}

/* ---- the pool: verified buffers, the RAM tier ---- */
/* shares: all, 1/2, 1/4 (those three count what is held, not what is merely cached, and only until
 * pool_share_end()) */
enum buffer_use { BUFFER_DEMAND, BUFFER_FILL, BUFFER_PREFETCH };
enum buffer_kind { BUFFER_BLOCK = 0, BUFFER_GRANULE = 1 };
struct buffer_key {
    struct id data_id;
    uint64_t at;                     /* object offset (multiple of the unit) | enum buffer_kind */
};
struct buffer {
    uint8_t *mem;                    /* 4 KiB aligned */
    uint32_t len, cap;               /* verified bytes; room (4 KiB .. 1 MiB, a power of two) */
    uint32_t private_[2];
};
/* Before its pages are lent to a socket (op_send_pages), while it is held: from then on this memory
 * is not written again; when the buffer is evicted its pages are dropped and new ones take their
 * place. */
void buffer_set_lent(struct buffer *b);
/* A buffer that a fetch filled is unread until its bytes are served for the first time: these came
 * from upstream, all later ones were saved. Take is true once. */
void buffer_set_unread(struct buffer *b);
bool buffer_take_unread(struct buffer *b);
/* Held, or NULL. Counts as a use for replacement (S3-FIFO). */
struct buffer *pool_find(struct cache *c, const struct buffer_key *k);
/* A new, unnamed buffer, held once by the caller; evicts unheld ones. NULL: every buffer is held,
 * or the use's share is. */
struct buffer *pool_take(struct cache *c, uint32_t bytes, enum buffer_use use);
/* Names a filled buffer so that others find it. If the name is taken already, returns that one
 * (held) and gives ours back; else ours. */
struct buffer *pool_publish(struct cache *c, struct buffer *b, const struct buffer_key *k,
                            bool probation);
/* Whoever took it will not hold it any longer; readers may, but must not keep the share from the
 * next fills. */
void pool_share_end(struct cache *c, struct buffer *b);
void pool_hold(struct buffer *b);
void pool_give(struct cache *c, struct buffer *b);
/* pool_take gave NULL: m is woken (through its core's inbox) when buffers come free. At most one
 * wait per struct; counted in m->inflight until woken or left. */
struct pool_wait {
    struct message msg;
    struct node node;
    struct machine *m;
    bool busy;
    struct waiters *waiters;         /* private, as is turn: set by pool_wait() */
    uint64_t turn;
};
void pool_wait(struct cache *c, struct pool_wait *w, struct machine *m);
bool pool_is_short(struct cache *c); /* somebody waits */
/* true: left, inflight is corrected; false: the wake is on its way */
bool pool_leave(struct cache *c, struct pool_wait *w);

/* ================= inside the folder ================= */

/* ---- pool.c: the memory behind the face above ---- */
struct pool;
struct pool_status {
    /* of buffers: at most; taken or cached; held by someone */
    uint64_t limit_bytes, used_bytes, held_bytes;
};
/* All that the pool will ever use, tables included, stays below bytes. NULL: too little for one
 * frame, or refused by the system. */
must_check struct pool *pool_make(uint64_t bytes);
void pool_close(struct pool *p);     /* nobody uses it any more; NULL is fine */
void pool_memory(const struct pool *p, void **at, size_t *bytes);
void pool_status(struct pool *p, struct pool_status *out); /* any thread */
struct pool *cache_pool(struct cache *c);              /* in cache.c */

/* ---- pool_ghosts.c: what left the pool unproven a short while ago; pure, under its lock ---- */
struct pool_ghost {
    uint32_t tag, when;              /* part of the hash, 0 = empty; on the ghosts' clock */
};
struct pool_ghosts {                 /* ghost, mask and span are the pool's to set */
    struct pool_ghost *ghost;        /* zeroed; mask + 1, a power of two >= POOL_GHOST_WAYS */
    uint64_t mask;
    uint32_t clock;                  /* cells of all that were added */
    uint32_t span;                   /* how long a ghost lives */
};
enum { POOL_GHOST_WAYS = 4 };
/* May forget the oldest of its set. */
void pool_ghosts_add(struct pool_ghosts *g, uint64_t hash, uint32_t cells);
/* true: it left within the last span. A ghost is taken once. */
bool pool_ghosts_take(struct pool_ghosts *g, uint64_t hash);

/* ---- waiters.c: who waits for a buffer ---- */
enum { WAKES_MAX = 8 };
struct waiters {
    pthread_mutex_t lock;            /* nests inside the pool's allocator lock */
    struct list list;                /* of struct pool_wait */
    _Atomic uint64_t events;
    unsigned waking;                 /* wakes under way */
};
struct wakes {                       /* collected under locks, sent without */
    struct pool_wait *wait[WAKES_MAX];
    unsigned count;
};
void waiters_init(struct waiters *q);
void waiters_fini(struct waiters *q);
/* A take failed on this thread, after which waiters_add() may follow. again: it gave up early and
 * may succeed without any event. */
void waiters_failed(struct waiters *q, bool again);
/* Something came free; the caller sends *out once it holds no lock. */
void waiters_event(struct waiters *q, struct wakes *out);
void wakes_send(const struct wakes *wakes);
void waiters_add(struct waiters *q, struct pool_wait *w, struct machine *m); /* as pool_wait() */
bool waiters_leave(struct waiters *q, struct pool_wait *w); /* as pool_leave() */
bool waiters_any(struct waiters *q);

/* ---- the pool's inside: pool.c and pool_evict.c ---- */
enum {
    POOL_CELL_BYTES = 4 * KIB,
    POOL_FRAME_BYTES = BLOCK_BYTES,
    POOL_ORDER_MAX = 8,              /* POOL_CELL_BYTES << POOL_ORDER_MAX is a frame */
    POOL_FRAME_CELLS = 1 << POOL_ORDER_MAX,
    POOL_SHARDS = 64,
};
static const uint32_t POOL_NONE = UINT32_MAX;
/* of a cell's holds */
static const uint32_t POOL_NAMED = 1u << 31, POOL_PARKED = 1u << 30, POOL_COUNT = (1u << 30) - 1;

enum cell_place { CELL_INSIDE, CELL_FREE, CELL_LENT, CELL_PARKED, CELL_SMALL, CELL_MAIN };

struct pool_cell {
    struct buffer b;                 /* private_: neighbours, the one nearer the head first */
    struct buffer_key key;
    _Atomic uint32_t holds;          /* count, POOL_NAMED, POOL_PARKED */
    uint32_t chain;                  /* next in the table's bucket; by the shard's lock */
    uint8_t order, place, home, use; /* use: share + 1 while it counts to one */
    _Atomic uint8_t freq;
    _Atomic uint8_t unread;          /* fetched and not yet served to anyone */
    /* its pages may be in socket queues: never rewritten in place */
    _Atomic uint8_t lent;
    uint8_t spare_byte;
};
_Static_assert(sizeof(struct pool_cell) == 64, "one cache line for a find");
_Static_assert(POOL_CELL_BYTES << POOL_ORDER_MAX == POOL_FRAME_BYTES,
               "a frame is one block of the highest order");

struct pool_queue {                       /* pushed at the head, taken at the tail */
    uint32_t head, tail;
    uint64_t cells;
};
struct pool_part {
    _Alignas(64) pthread_mutex_t lock;
    _Atomic int64_t held_bytes;      /* a stripe of the pool's sum, not this shard's */
};

struct pool {
    struct pool_part shard[POOL_SHARDS];
    struct pool_cell *cells;              /* FRAME_CELLS of each frame */
    uint32_t *bucket;
    uint64_t bucket_mask;
    uint8_t *memory;                 /* frames, 2 MiB aligned */
    void *memory_map, *tables_map;
    size_t memory_map_bytes, tables_bytes;
    uint32_t frames;
    _Atomic uint64_t used_cells;

    pthread_mutex_t lock;            /* the allocator's: guards all below */
    uint32_t fresh;                  /* frames from here on were never used */
    struct pool_queue free[POOL_ORDER_MAX + 1];
    struct pool_queue small, main;
    uint64_t small_cells;            /* SMALL's target: a tenth */
    uint64_t use_cells[3], use_limit[3];
    struct pool_ghosts ghosts;       /* of what left SMALL */
    uint32_t sweep_at, sweep_done;   /* next frame; how many were swept without an event */
    uint64_t sweep_events;
    unsigned sweep_order;
    struct waiters waiters;          /* has its own lock */
};
static inline uint32_t pool_cell_number(const struct pool *p, const struct pool_cell *c)
{
    return (uint32_t)(c - p->cells);
}
static inline uint64_t pool_key_hash(const struct buffer_key *k)
{
    /* Data ids are keyed hashes already: nobody outside can choose collisions. */
    uint64_t h = k->data_id.a ^ (k->at * 0x9E3779B97F4A7C15u);
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}
static inline struct pool_part *pool_part_of(struct pool *p, uint64_t hash)
{
    return &p->shard[hash % POOL_SHARDS];
}
/* Out of the table; its shard is locked. */
void pool_unname(struct pool *p, uint32_t i, uint64_t hash);

/* pool_evict.c: all under the allocator's lock */
void pool_queue_init(struct pool_queue *q);
void pool_queue_push(struct pool *p, struct pool_queue *q, uint32_t i);
struct pool_queue *pool_queue_of(struct pool *p, enum cell_place place);
void pool_block_free(struct pool *p, uint32_t i, unsigned order);
/* A block of that order; its place is to be set. NULL: the share of its use is full, or what could
 * make room is held. *more: it gave up early and may succeed without any event. */
struct pool_cell *pool_block_take(struct pool *p, unsigned order, enum buffer_use use, bool *more);

/* ---- space.c: slots of one slab; own lock; no I/O ---- */
struct space;
enum { SPACE_PAGE_BYTES = 8 * MIB, SPACE_CLASSES_MAX = 64 };
must_check struct space *space_make(uint64_t slab_bytes, unsigned dir);
void space_free(struct space *s);
/* Four classes per doubling, multiples of 4 KiB, 4 KiB .. 8 MiB. Returns the smallest class that
 * holds bytes (1 <= bytes <= 8 MiB). */
unsigned space_class(uint32_t bytes);
uint32_t space_class_bytes(unsigned class_);
uint64_t slot_offset(struct slot s);                   /* in the slab file */
/* A free slot of that class; takes an empty page if needed. ERR_FULL, ERR_MEMORY. reserve_ok = may
 * go into the 1 % reserve. */
must_check enum err space_take(struct space *s, unsigned class_, bool reserve_ok, struct slot *out);
void space_give(struct space *s, struct slot slot);
/* At load: marks a slot as taken. ERR_RECORD if it lies outside, or its page has another class
 * already, or it is taken; ERR_MEMORY. */
must_check enum err space_claim(struct space *s, struct slot slot);
uint64_t space_capacity_bytes(const struct space *s);
uint64_t space_used_bytes(const struct space *s);      /* sum of the slots taken */
uint32_t space_free_pages(const struct space *s);
/* Pages of other classes that would become empty most cheaply: a random one of at most 8 sampled,
 * with the fewest slots taken. false: none. */
bool space_cheapest_page(struct space *s, unsigned not_class, uint32_t *page, unsigned *taken);

/* ---- policy.c: admission and eviction, pure ---- */
struct policy;
enum mark_flag { MARK_PINNED = 1 };  /* in policy_mark.flags: never a victim */
/* NULL: no policy of that name, or no memory. */
must_check struct policy *policy_make(const char *name, uint64_t capacity_chunks);
void policy_free(struct policy *p);
/* At load, once for every resident chunk, before the first reference: the clock goes on behind the
 * newest mark. */
void policy_resume(struct policy *p, const struct policy_mark *m);
void policy_served(struct policy *p, uint64_t bytes);  /* virtual time: bytes served / 8 MiB */
uint16_t policy_group(struct policy *p, struct span bucket, struct span key);
/* A reference to a resident chunk (hit path, relaxed stores), or the first to a new one. */
void policy_reference(struct policy *p, struct policy_mark *m, uint64_t bytes,
                      uint32_t chunk_bytes);
/* The higher, the better to keep. Pinned: infinity. */
double policy_value(const struct policy *p, const struct policy_mark *m);
/* Is a new chunk (its mark as the ghosts remember it) worth the victim's place? */
bool policy_admits(const struct policy *p, const struct policy_mark *new_, double victim_value,
                   bool sub_chunk);
/* Ghosts: what was evicted or bypassed is remembered by its hash for a while. */
void policy_remember(struct policy *p, uint64_t hash, const struct policy_mark *m);
bool policy_recall(struct policy *p, uint64_t hash, struct policy_mark *out);

/* ---- record.c: index values, pure ---- */
/* Values end with their own CRC32C; decoders verify it and every length. */
enum { RECORD_FORMAT = 1, RECORD_BYTES_MAX = 64 * KIB };
struct object_record {
    struct id data_id;
    uint64_t size, last_modified_s, checked_ms, commit;
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
struct index_slot {
    uint64_t hash;
    void *item;                      /* NULL = free */
};
struct index_table {
    struct index_slot *entry;
    uint32_t cap, count;             /* cap is 0 or a power of two */
};
/* room for count items altogether; false: no memory */
must_check bool index_table_reserve(struct index_table *t, uint32_t count);
/* Walks the items of equal hash: *at starts as (uint32_t)hash; NULL = no more. */
void *index_table_next(const struct index_table *t, uint64_t hash, uint32_t *at);
void index_table_add(struct index_table *t, uint64_t hash, void *item);     /* room was reserved */
void index_table_swap(struct index_table *t, uint64_t hash, void *old, void *item);
void index_table_remove(struct index_table *t, uint64_t hash, void *item);
void *index_table_sample(const struct index_table *t);             /* any; NULL when empty */
void index_table_fini(struct index_table *t);
static inline uint64_t index_table_bytes(const struct index_table *t)
{
    return t->cap * sizeof(struct index_slot);
}

/* ---- journal.c: the durable copy of one directory, its writer thread ---- */
struct directory;
struct journal;
struct MDB_env;
struct journal_change {
    struct id id;                    /* of the object, or of the chunk's data */
    uint64_t number;                 /* of the chunk */
    const struct object_record *object; /* an object's record; remove: bucket and key suffice */
    const struct chunk_record *chunk;   /* else a chunk's; remove: NULL */
    bool remove;
};
enum journal_db { JOURNAL_OBJECTS, JOURNAL_CHUNKS, JOURNAL_NAMES, JOURNAL_STATE, JOURNAL_DBS };
/* Opens (or makes) the environment below d->path; no thread yet, so that recover.c can load.
 * ERR_DISK, ERR_NEWER, ERR_OLDER, ERR_MEMORY. Nothing is written if a sound index is there: it
 * opens on a full disk, too. */
must_check enum err journal_open(struct directory *d, char why[512], struct journal **out);
struct MDB_env *journal_env(struct journal *j);
unsigned journal_handle(const struct journal *j, enum journal_db db);
/* commits the session's number (later, if the disk is full now), starts the writer */
must_check enum err journal_start(struct journal *j);
/* All of them in one commit, or none: ERR_BUSY (too much is waiting), ERR_MEMORY, ERR_TOO_LARGE.
 * Removals find room when records no longer do. */
must_check enum err journal_queue(struct journal *j, const struct journal_change *change,
                                  unsigned count);
bool journal_room(struct journal *j);                  /* false: do not evict, commits are behind */
/* The slot of a removed record: free after the next commit. It stands in memory that has no other
 * use any more (a dead chunk's), so that nothing must be allocated to give it back. */
struct limbo {
    struct limbo *next;
    struct slot slot;
};
/* The memory becomes the journal's. The caller counted the slot in limbo_bytes. */
void journal_limbo(struct journal *j, struct limbo *l);
uint64_t journal_dirty(struct journal *j);             /* changes not yet committed */
/* commit now: room is short, the session's number changed, chunks wait to be reaped */
void journal_poke(struct journal *j);
/* commits what it can, ends the thread; NULL is fine */
void journal_stop(struct journal *j);
/* the same, then frees: when the other journals have stopped */
void journal_close(struct journal *j);

/* ---- the whole ---- */
enum { CACHE_DIRS_MAX = 16, CACHE_SHARDS = 64, CACHE_INDEX_BYTES_MIN = 64 * MIB };

/* What stands in one page of a slab: eviction samples here. */
struct resident_page {
    union {
        struct chunk *one;           /* the page is one slot */
        struct chunk **many;         /* by position; allocated while used > 0 */
    };
    uint32_t where;                  /* in residents.page[class_] */
    uint16_t used;
    uint8_t class_;
};
struct residents {                   /* of one directory */
    pthread_mutex_t lock;
    struct resident_page *place;             /* per page */
    uint32_t pages;
    uint64_t chunks;
    struct page_list {
        uint32_t *page, count, cap;
    } list[SPACE_CLASSES_MAX];       /* pages in use by class */
};
struct directory {
    struct cache *cache;
    unsigned number, metric;         /* own index; index of the label `disk` */
    const char *path;                /* borrowed from the configuration */
    int fd, lock_fd, slab_fd, starts_fd;
    unsigned failed_starts;          /* in a row, before this one */
    bool fresh;                      /* no header stood here before this start */
    bool slab_made;                  /* the slab file is new: no record can be right */
    struct header_record header;
    /* of its last commit; lower than another's: it missed something */
    uint64_t session;
    uint64_t doubt_below;            /* object records with a lower commit number are doubtful */
    bool doubt_all;                  /* what says which are doubtful is damaged */
    struct space *space;
    struct journal *journal;
    struct residents residents;
    _Atomic bool up;
    _Atomic uint64_t limbo_bytes;    /* out of the index, not yet free */
    _Atomic uint64_t read_errors, write_errors, sync_errors, checksum_failures;
    _Atomic uint64_t index_errors, index_dropped, index_moved;
    _Atomic uint64_t told[7];        /* of those seven: already in the metrics */
};
struct index_shard {
    pthread_mutex_t lock;
    struct index_table table;
} __attribute__((aligned(64)));
struct reap {                        /* chunks of a generation that is gone, still to be dropped */
    struct reap *next;
    struct id data_id, object_id;
    uint64_t number, count;          /* next chunk; chunks of the object */
    uint32_t serial, left;           /* left: resident ones at most */
};
struct cache {
    struct server *server;
    const struct config *config;
    uint8_t secret[32];
    uint8_t hash_secret[192];        /* made from it, as XXH3 wants it */
    struct index_shard object[CACHE_SHARDS], chunk[CACHE_SHARDS];
    struct index_shard header;             /* interned header sets */
    /* Orders what happens to the records of one object and its chunks; taken before any shard,
     * journal or residents lock, never on the hit path. */
    struct index_shard stripe[CACHE_SHARDS];
    struct directory dir[CACHE_DIRS_MAX];
    unsigned dir_count;
    struct pool *pool;
    struct policy *policy;
    uint64_t index_limit_bytes;
    _Atomic uint64_t index_bytes, object_count, chunk_count;
    _Atomic uint32_t serial;         /* of generations */
    _Atomic uint64_t sequence;       /* of object records: the higher one is newer */
    _Atomic uint64_t session;        /* grows at each start and whenever a directory falls behind */
    _Atomic uint64_t evicted_bytes[LABEL_evict_COUNT], refused_bytes;
    uint64_t told_evicted[LABEL_evict_COUNT], told_refused; /* under count_lock */
    struct metric_set *metrics;
    pthread_mutex_t count_lock;
    pthread_mutex_t reap_lock;
    struct reap *reap;
};

/* ---- cache.c ---- */
/* what was counted here goes to the metrics */
void cache_tell(struct cache *c);

/* ---- dir.c: one directory's files ---- */
/* Lock, header, never the index. Leaves d->fresh for a new one. */
must_check enum err directory_open(struct directory *d, char why[512]);
/* After the secret is known: header of a fresh directory, slab. */
must_check enum err directory_prepare(struct directory *d, char why[512]);
void directory_close(struct directory *d);
/* Renames index/ to index.damaged-N, at most three of which are kept. */
must_check enum err directory_move_index(struct directory *d, const char *cause);
/* A start that dies or fails between those two counts as failed; after STARTS_FAILED_MAX of them in
 * a row the index is moved aside. */
void directory_risk_begin(struct directory *d);
void directory_risk_end(struct directory *d);
bool directory_start_failed_often(const struct directory *d);
void directory_started(struct directory *d);           /* this one did not fail */
/* The next start is to move the index aside, whatever becomes of this process. */
void directory_condemn_index(struct directory *d);
/* In a forked child: the locks are the parent's alone. */
void directory_unlock_child(struct cache *c);

/* ---- fault.c: work on a mapped file that may be damaged ---- */
struct fault {
    sigjmp_buf back;
};
void fault_setup(void);              /* before the first thread */
/* Around such work: sigsetjmp(f->back, 1) is 0 at first, and again 1 when the work met a page that
 * is not there (SIGBUS), went astray (SIGSEGV), or called fault_raise(). One at a time per
 * thread. */
void fault_begin(struct fault *f);
void fault_end(void);
_Noreturn void fault_raise(void);    /* within the work only */

/* ---- recover.c: checks and loads an index ---- */
/* Walks it in a forked child; false: damaged (the child died, was late, or found disorder). */
bool recover_check(struct directory *d);
/* Reads every record into the RAM index; behind: the directory missed something, all its objects
 * become doubtful. Wrong records are deleted. */
must_check enum err recover_load(struct directory *d, bool behind);

/* ---- index.c, index_objects.c, index_chunks.c ---- */
static inline struct index_shard *index_shard(struct index_shard *shards, struct id id)
{
    return &shards[id.a % CACHE_SHARDS];
}
static inline uint64_t chunk_hash(struct id data_id, uint64_t number)
{
    return data_id.b ^ (number + 1) * 0x9E3779B97F4A7C15;
}
/* By number too: one big object must not gather all its readers at one lock. */
static inline struct index_shard *chunk_shard(struct cache *c, struct id data_id, uint64_t number)
{
    return &c->chunk[(data_id.a + number) % CACHE_SHARDS];
}
void index_locks(struct cache *c);                     /* first of all */
void index_make(struct cache *c);                      /* the secret is known */
void index_fini(struct cache *c);
/* Memory of the index: false = the limit is reached and nothing more could be evicted. */
must_check bool index_charge(struct cache *c, uint64_t bytes);
void index_uncharge(struct cache *c, uint64_t bytes);
/* At load: the entry of that hash, or what it points to, into the CPU's caches. */
void index_prefetch(const struct index_shard *s, uint64_t hash, bool item);
/* room for one more, locked */
must_check bool index_reserve(struct cache *c, struct index_shard *s);
struct header_set *headers_intern(struct cache *c, struct span text); /* counted; NULL: no memory */
void headers_drop(struct cache *c, struct header_set *h);
struct span headers_span(const struct header_set *h);

/* The private half of an object. */
struct entry {
    struct object o;                 /* first */
    _Atomic uint64_t saved_ms;       /* checked_ms as last queued for the record */
    uint64_t commit;                 /* under the stripe, as all below: of its newest record */
    _Atomic uint32_t chunks;         /* resident ones; also read without the stripe */
    /* generation: equal in entries that differ in headers or time only */
    uint32_t serial;
    uint32_t dirs;                   /* bit per directory that has (or will have) its record */
    uint32_t bytes;                  /* charged */
    char text[];
};
/* The entry of that id in the index, or NULL; the stripe is held, so that it stays. */
struct entry *entry_of(struct cache *c, struct id object_id);
/* with a new commit number; stripe held */
void entry_record(struct cache *c, struct entry *e, struct object_record *out);
void entry_unrecord(struct cache *c, struct entry *e);  /* its records are deleted; stripe held */
void entry_count(struct cache *c, struct entry *e, int delta); /* of its chunks; stripe held */
must_check enum err index_load_object(struct directory *d, struct id id,
                                      const struct object_record *r, bool doubt);
must_check enum err index_load_chunk(struct directory *d, struct id data_id, uint64_t number,
                                     const struct chunk_record *r);
void index_sweep_objects(struct cache *c);             /* those without chunks, at load */
/* one without chunks, the longest unchecked of a sample */
bool index_evict_object(struct cache *c);
/* chunks of a dead generation */
void index_drop_data(struct cache *c, struct reap *r, uint32_t most);
bool index_reap(struct cache *c, uint32_t most);       /* true: more is waiting */
/* As chunk_find(), not held: for who holds the stripe of its object. */
struct chunk *chunk_peek(struct cache *c, struct id data_id, uint64_t number);
/* A copy; readers may go on referring to the chunk meanwhile. */
struct policy_mark chunk_mark(const struct chunk *k);
/* Takes a chunk out of the index; stripe of k->object_id held. false: held by someone (and
 * !even_held), or gone already. */
bool chunk_remove(struct cache *c, struct chunk *k, bool even_held, enum label_evict cause);

/* ---- evict.c: who leaves ---- */
must_check enum err residents_make(struct residents *r, uint32_t pages);
void residents_fini(struct residents *r);
must_check bool residents_add(struct cache *c, struct chunk *k);
void residents_remove(struct cache *c, struct chunk *k);
/* A slot for a new chunk. Evicts first when the directory runs low. ERR_FULL, ERR_DENIED,
 * ERR_MEMORY. */
must_check enum err evict_slot(struct directory *d, unsigned class_,
                               const struct policy_mark *mark, struct slot *out);
/* Any one chunk of the lowest value, to make room in RAM. */
bool evict_any(struct cache *c);

#endif
