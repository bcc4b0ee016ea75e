/* The cache: objects and chunks in RAM, slots on NVMe, verified buffers; LMDB behind it as the
 * durable copy.
 *
 * Words: an *object* is one generation (ETag, size) of a key; its bytes are *chunks* of 8 MiB; a
 * chunk is present by *blocks* of 1 MiB; a *granule* of 128 KiB is the unit of checksums, half
 * of one the smallest disk read. A *slot* is a place on disk, a *buffer* one in RAM.
 *
 * Invariants:
 *  1. Bytes leave this folder only verified: from disk against the granule's CRC32C (seeded with
 *     data id, chunk, granule: rejects stale, torn and misplaced bytes) or that of half of it, from
 *     upstream by the fetch that received them.
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

#include <stdatomic.h>

#include "server/loop/loop.h"
#include "server/policy/policy.h"

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
 * only. A directory whose disk fails, hangs or is not mounted is left out, fenced, and taken in
 * when it is there. It forks, so it is called before any thread exists. s->store is set. */
must_check enum err cache_open(struct server *s, char why[512], struct cache **out);
/* Commits everything, ends the threads. No core runs any more. false: a disk hangs, and with it
 * what still uses the cache's memory; all of that is left to the end of the process. */
bool cache_close(struct cache *c);
/* A core's part: its transfers. On its thread, before the first turn and after the last. */
must_check enum err cache_core_begin(struct core *core);
void cache_core_end(struct core *core);
/* The pool's memory, for registration with the rings. */
void cache_pool_memory(const struct cache *c, void **at, size_t *bytes);

enum disk_state { DISK_UP, DISK_SUSPECT, DISK_FENCED, DISK_PROBATION };
enum disk_cause {                    /* of a state other than up; or what a test has found */
    DISK_SOUND,
    DISK_ERRORS,                     /* too many operations failed */
    DISK_FROZEN,                     /* operations hang */
    DISK_HOLDS,                      /* so many that they keep too much memory */
    DISK_COMMITS,                    /* the index's writer hangs */
    DISK_TEST,                       /* a test failed */
    DISK_READ_ONLY,
    DISK_REPLACED,                   /* another directory, or none, stands at its path */
    DISK_MISSING,                    /* its file system is not mounted */
    DISK_OTHER,                      /* cannot be used beside what is in use */
    DISK_OPERATOR,                   /* fenced by hand */
};
struct cache_disk_status {
    const char *dir;
    enum disk_state state;
    const char *why, *fix;           /* sentences; "" while it is up */
    uint64_t since_ms;               /* in this state for so long */
    uint64_t capacity_bytes, used_bytes, errors;
    uint64_t lost_bytes;             /* beside what is used: of pages, what no slot can have */
    uint64_t stuck_ops, quarantined_bytes, late_ops;
    uint64_t unread_chunks;          /* whose CRCs a start left behind */
};
struct cache_status {
    uint64_t capacity_bytes, used_bytes, objects, chunks, pool_bytes, pool_used_bytes,
        dirty_entries, index_bytes;
    uint64_t lost_bytes;             /* of all disks */
    /* with what is lost beside them: that may not be evicted; at most; that a pin names, but over
     * that limit */
    uint64_t pinned_bytes, pin_limit_bytes, unpinned_bytes;
    bool marking;                    /* a change of pins or sections is still on its way */
    unsigned disk_count;
    struct cache_disk_status disk[16];
};
/* any thread; also refreshes the cache's gauges */
void cache_status(struct cache *c, struct cache_status *out);
/* What other sizes would give. False: there was no memory for that at the start. */
bool cache_sizing(struct cache *c, struct sizing_report *out);
/* As policy_group_name(). */
size_t cache_group_name(struct cache *c, uint16_t tag, char out[POLICY_NAME_BYTES]);

/* By an operator; any thread. false: no such directory. */
bool cache_disk_fence(struct cache *c, const char *dir);
bool cache_disk_readmit(struct cache *c, const char *dir);
/* Main, now and then: what only time tells. true: ask again within a tenth of a second. */
bool cache_watch(struct cache *c);

/* ---- objects ---- */
struct okey {                        /* borrowed spans */
    struct span bucket, key, version; /* bucket: the store's name of it; version "" = current */
    uint8_t upstream;                /* its number, whom to ask */
    uint8_t store;                   /* filled by cache_key(), as all that follows: which one it is
                                      * at; upstreams may share one */
    uint16_t key_stripe, bucket_stripe; /* all versions of a key have one key_stripe */
    struct id id;
};
/* computes id over (store, bucket, key, version) */
void cache_key(struct cache *c, struct okey *k);

/* ---- epochs: what a write through us makes of all that was asked before ---- */
/* A moment in the life of a key. Counts of two stripes, the key's and its bucket's: others that
 * share one move it on as well, which costs an asking. */
struct epoch {                       /* of all versions of the key */
    uint16_t key_stripe, bucket_stripe;
    uint8_t upstream;                /* whom the reader of that moment asks: as in struct okey */
    uint32_t key, bucket;
};
/* Now. Noted before upstream is asked; readers, too, note it before they look for an object. */
struct epoch cache_epoch(struct cache *c, const struct okey *k);
/* No write of the key was begun or ended since, and none is under way: what was asked for then may
 * be learnt and kept. */
bool cache_epoch_holds(struct cache *c, struct epoch e);
/* A write of the key is under way: nothing that is asked now can be learnt. */
bool cache_is_written(struct cache *c, struct epoch e);
static inline bool epoch_eq(struct epoch x, struct epoch y)
{
    return x.key == y.key && x.bucket == y.bucket;
}
/* A change of a key, or of a whole bucket, through us. Lives in the request; counts in m->inflight
 * while it is busy. */
struct cache_write {
    struct message msg;
    struct machine *m;
    bool busy;                       /* the doubt is on its way to the disks */
    /* Valid when it is busy no more. OK: every directory that knows the key says so durably.
     * ERR_DISK: one could not; it is distrusted at the next start if that could be noted. The write
     * may go on. */
    enum err why;
    /* private from here on */
    bool begun, whole_bucket;
    bool numbered;                   /* what it hits is told by a number, not by records alone */
    struct cache *cache;
    struct cache_write *next;        /* waits for the same commit */
    struct id id[2];                 /* what it hits: a version, the current one */
    struct epoch epoch;              /* behind its begin */
    /* bits per directory: still to be waited for; could neither commit nor be marked */
    uint32_t dirs, unmarked;
    bool elsewhere;                  /* another directory must say that those are behind */
};
/* Before anything that could change the key leaves: all that was asked about it so far is taken
 * back (it teaches nothing, is not kept, and nobody joins it any more), what is remembered as
 * missing is forgotten, what is known becomes doubtful. A write to a version hits that version and
 * the current one; one without hits the current one and all versions. Where a directory may have
 * a durable record, m is woken when the doubt (or the record's removal) is on disk: then w->busy is
 * false and the body, or a head without one, may leave. Without a record it is false at once; but a
 * write without version waits for all directories if versions of keys like this one were here. w
 * stays where it is until cache_write_end(); it cannot be taken back while it is busy. */
void cache_write_begin(struct cache *c, struct cache_write *w, const struct okey *k,
                       struct machine *m);
/* The same for all keys of a bucket. */
void cache_bucket_write_begin(struct cache *c, struct cache_write *w, struct span bucket,
                              struct machine *m);
/* The outcome is known, or never will be; before the client hears. What was known of the key stays
 * doubtful: the next reader asks. gone: a 2xx of a DeleteObject without version, it is forgotten.
 * Not while w is busy. A w that was never begun (zeroed) is left alone. */
void cache_write_end(struct cache *c, struct cache_write *w, bool gone);

enum object_flag {
    OBJECT_DOUBT = 1,                /* must be asked upstream before it may be used (durable) */
    OBJECT_GONE = 2,                 /* replaced or forgotten: no new reader may start on it */
    /* Was modified within two seconds before checked_ms: each answer says so, or takes it back (RAM
     * only; a small object at rest forgets it). */
    OBJECT_YOUNG = 8,
    /* The store calls it by the version that was asked for: its bytes never change; what is said of
     * them may. */
    OBJECT_STABLE = 4,
    /* Its bytes did not match their checksum, and who reads it may have some of them: he gets no
     * more (RAM only). */
    OBJECT_DISTRUSTED = 16,
};
struct object {
    struct id id, data_id;
    uint64_t size;
    uint64_t last_modified_s;        /* 0 = unknown */
    /* wall clock: when upstream last said that this is current (send time of the asking) */
    _Atomic uint64_t checked_ms;
    _Atomic uint32_t flags;
    _Atomic uint32_t holds;          /* private to cache/ */
    _Atomic uint32_t group;          /* private to cache/: the policy's memo */
    uint8_t store;                   /* as in struct okey */
    /* of each part but the last, of what was uploaded through us in parts; 0: not known (RAM
     * only) */
    _Atomic uint64_t part_bytes;
};
/* Others than its caller, who holds it once, hold it now: requests, fetches, jobs. */
static inline bool object_is_shared(const struct object *o)
{
    return atomic_load_explicit(&o->holds, memory_order_relaxed) > 2; /* the index does, too */
}
/* As long as it is held; the ETag with its quotes as received. */
struct span object_bucket(const struct object *o);
struct span object_key(const struct object *o);
struct span object_version(const struct object *o);
struct span object_etag(const struct object *o);
/* "name: value\r\n"* to replay; without Content-Length, ETag, Last-Modified */
struct span object_headers(const struct object *o);
/* What one upstream answer said. */
struct object_facts {
    uint64_t size, last_modified_s, asked_ms;
    struct span etag, headers;
    uint64_t part_bytes;             /* 0: not known */
    uint32_t flags;                  /* OBJECT_STABLE, OBJECT_YOUNG */
    struct epoch epoch;              /* of the asking */
};
/* It is looked for in this turn of the loop: what the look-up will read comes into the processor's
 * caches meanwhile. */
void cache_expect(const struct cache *c, const struct okey *k);
/* Held, or NULL. Also finds doubtful ones (look at flags). */
struct object *cache_find(struct cache *c, const struct okey *k);
/* The data id that (key, ETag, size) gives: lets a fetch be listed before its object is
 * published. */
struct id cache_data_id(const struct cache *c, const struct okey *k, struct span etag,
                        uint64_t size);
/* An answer: same ETag and size = the same generation (checked_ms moves on, headers are replaced,
 * doubt ends); else a new one that replaces the old, whose chunks are dropped. Returns it held. An
 * answer that was asked for before the known generation was last seen teaches nothing: then that
 * one is returned, so the caller compares before it stores bytes. Neither does one whose epoch does
 * not hold: if what is known says the same, fields included, that is returned as it is (it was
 * current when upstream was asked), else ERR_CHANGED: ask again, or pass through while a write is
 * under way.
 * ERR_FULL when the index is full and nothing could be evicted: pass it through; ERR_MEMORY. */
must_check enum err cache_learn(struct cache *c, const struct okey *k, const struct object_facts *f,
                                struct object **out);
/* That was so again and again, and a moment ago: who asks what a key is now would most likely ask
 * in vain, and its reader a second time for the bytes. */
bool cache_learns_nothing(struct cache *c);
/* Upstream says 404, or a fill met 412: no reader may start on this generation. */
void cache_forget(struct cache *c, struct object *o);
/* It must be asked upstream before it may be used; kept over a restart (queued, not awaited). */
void cache_doubt(struct cache *c, struct object *o);
/* Its bytes are not those that upstream has. Who reads it gets no more of them; they are found
 * nowhere any more, and it is forgotten. At once, so it takes a microsecond or two per chunk, and a
 * tenth of one per MiB of cache.memory, one or two where that is in small buffers. */
void cache_distrust(struct cache *c, struct object *o);
void object_hold(struct object *o);
void object_drop(struct cache *c, struct object *o);
/* Its bytes were asked for at that time (wall clock). Hit path: relaxed stores; once an hour the
 * record follows. */
void object_read(struct cache *c, struct object *o, uint64_t wall_s);
/* Bytes of the chunk: 8 MiB but for the last. */
static inline uint32_t object_chunk_bytes(const struct object *o, uint64_t number)
{
    return (uint32_t)min_u64(CHUNK_BYTES, o->size - number * CHUNK_BYTES);
}

/* ---- chunks on disk ---- */
struct slot {                        /* a place in a slab: page of 8 MiB, position in it */
    uint32_t page;
    uint16_t at;
    uint8_t class_, dir;
};
struct chunk {                       /* what a look-up compares and changes stands together */
    struct id data_id;
    uint64_t number;
    _Atomic uint32_t holds;          /* private to cache/ */
    uint32_t bytes;
    struct slot slot;
    /* private: the object it was made for; looked up, never pointed to */
    struct id object_id;
    _Atomic uint8_t present;         /* bit per block readable from disk */
    _Atomic uint8_t state;           /* private to cache/, as the next four: whose quota */
    uint8_t section;                 /* it counts to, where it stands there, */
    bool unpinned;                   /* that it should be pinned but for their limit, */
    struct policy_mark mark;
    uint32_t in_section;
    uint32_t serial;                 /* generation that this chunk was made for */
    /* per granule: sums, or memory of its own if they are many; private, may be NULL */
    _Atomic(uint32_t *) crc;
    uint32_t sums[];
};
/* Held, or NULL. A chunk may lack blocks. */
struct chunk *chunk_find(struct cache *c, struct id data_id, uint64_t number);
void chunk_expect(struct cache *c, struct id data_id, uint64_t number); /* as pool_expect() */
void chunk_drop(struct cache *c, struct chunk *k);     /* ends a hold */
/* So many bytes go to a reader, wherever from: the policy's clock. Hit path. */
void cache_served(struct cache *c, uint64_t bytes);
/* A reader used `bytes` of it; o: the object it read. Tells the policy. Hit path: relaxed stores
 * only. */
void chunk_reference(struct cache *c, struct object *o, struct chunk *k, uint64_t bytes);
/* A request comes to a chunk, be it here or not; once for each of both. Hit path: two counters and,
 * if the chunk is in the sample, one entry under a lock of this thread's. */
struct chunk_read {
    uint64_t number;
    uint32_t bytes;                  /* asked for of the chunk, not 0 */
    uint8_t blocks;                  /* bit per block that holds some of them */
    bool once;                       /* the client says that it is not worth keeping */
};
void cache_asked(struct cache *c, struct object *o, const struct chunk_read *r);
/* A request that came to chunks is over: what went to its reader, and of it from upstream. */
void cache_sent(struct cache *c, struct object *o, uint64_t bytes, uint64_t from_upstream);
struct chunk_asked {                 /* bytes of it that readers want now */
    uint64_t bytes;                  /* 0: it is wanted by one who asked before */
    uint64_t again;                  /* of them, those that chunk_reference() will tell as well */
    bool keep;                       /* somebody said that it shall be here: room is made for it */
    bool upload;                     /* but it waits for no disk: it comes from its client */
    bool ahead;                      /* nobody has asked for it yet */
    bool spare;                      /* it takes only room that nobody has: nothing leaves for it */
    bool behind;                     /* too many wait for their writes already: ERR_BEHIND */
};
/* A place to fill: finds the chunk or makes it with a slot, evicting as the policy says. Held. One
 * filler at a time is guaranteed by fill/. ERR_FULL: nothing can be freed now, or no disk is up;
 * ERR_PINNED: the same, for pins; ERR_QUOTA: its section may hold no more; ERR_DENIED: the policy
 * would not keep it, or the generation is gone (bypass); ERR_BEHIND: its disk is behind with
 * writes, and nobody said that it shall be here, or an upload did, or asked.behind; ERR_BUSY: it
 * can later, a start left its checksums behind; ERR_MEMORY. */
must_check enum err chunk_admit(struct cache *c, struct object *o, uint64_t number,
                                struct chunk_asked asked, struct chunk **out);
/* It shall stay until it was read: what a prewarm finds here is as good as what it brings. */
void chunk_keep(struct cache *c, struct chunk *k);
/* Of a chunk that is held, when it is read next: as policy_plan(), policy_plan_beyond() and
 * policy_unplan(). Any thread. */
void chunk_plan(struct cache *c, struct chunk *k, uint64_t bytes_ahead);
void chunk_plan_beyond(struct cache *c, struct chunk *k, uint64_t horizon_bytes);
void chunk_unplan(struct cache *c, struct chunk *k);
/* Of a block's granules, as stored, and of their first halves; 0: there is no second. */
struct block_sums {
    uint32_t crc[GRANULES_PER_BLOCK], half[GRANULES_PER_BLOCK];
};
/* Write of block b ended well: from now on readers may read it from disk. */
void chunk_wrote(struct cache *c, struct chunk *k, unsigned block, const struct block_sums *sums);
/* The filler leaves (also ends its hold): a record is queued if any block is present, else the slot
 * goes back. */
void chunk_filled(struct cache *c, struct chunk *k);
/* A read failed or did not verify: those blocks are no longer present; the record is replaced. */
void chunk_damaged(struct cache *c, struct chunk *k, unsigned block, enum err why);

/* Blocks of it that can be read now: none while its directory is not up. */
uint8_t chunk_present(struct cache *c, const struct chunk *k);
bool chunk_disk_is_up(struct cache *c, const struct chunk *k);
/* It is out of the index: who holds it goes on with it, nobody else finds it. No lock is needed. */
bool chunk_has_left(const struct chunk *k);

/* A transfer between a slot and a buffer, from a stock of its core. The machine that begins it
 * keeps its holds on chunk and buffer and is woken when it has ended, or is late: then it may let
 * go of both, as the transfer holds them until the disk has answered (the quarantine). */
struct transfer;
struct buffer;
/* Whole granules: off is inside the chunk and a multiple of GRANULE_BYTES; or just a half of one,
 * where chunk_reads_half(). The buffer has room for len rounded up to 4 KiB. NULL: the directory is
 * not up, or too much is under way. */
struct transfer *chunk_read(struct machine *m, struct chunk *k, uint32_t off, uint32_t len,
                            struct buffer *b);
/* One whole block (the last may be shorter: the rest up to 4 KiB is zeroed in the buffer). If it
 * may wait it is begun when no more come, in a second at most. NULL: as above. */
struct transfer *chunk_write(struct machine *m, struct chunk *k, unsigned block, struct buffer *b,
                             bool may_wait);
/* No more blocks come to this core for now: what was put off begins. */
void cache_burst_over(struct core *core);
bool transfer_ended(struct transfer *t);               /* or is late */
/* An ended read has brought its bytes in time: what chunk_read_done() has left to do is to compare
 * them, and that may be done later. */
bool chunk_read_came(const struct transfer *t);
/* Judges an ended one, and ends the owner's part in it: short transfers, errors, checksums; they
 * are counted and logged here, and what cannot be read is no longer present. ERR_TIMEOUT: it is
 * late; ERR_CHANGED: the chunk has left; the bytes are to be had elsewhere. */
enum err chunk_read_done(struct transfer *t);
enum err chunk_write_done(struct transfer *t);
/* Instead of that: whatever became of it. Ended only. */
void transfer_drop(struct transfer *t);
/* The half of a granule that stands at off, a multiple of HALF_BYTES, can be verified alone, and so
 * for as long as the chunk is held. */
bool chunk_reads_half(struct cache *c, const struct chunk *k, uint32_t off);
void chunk_crc(struct id data_id, uint64_t number, unsigned block, const void *mem, uint32_t len,
               struct block_sums *out);
static inline uint32_t chunk_block_bytes(uint32_t chunk_bytes, unsigned block)
{
    return (uint32_t)min_u64(BLOCK_BYTES, chunk_bytes - (uint64_t)block * BLOCK_BYTES);
}

/* ---- walks over all that is cached: for jobs and listings, not for requests ---- */
/* Where a walk stands: 0 is the begin. It may be kept over a restart. What is there from begin to
 * end is met, also when the tables grow meanwhile (then some of it twice); the order means
 * nothing. */
enum { CACHE_WALK_MAX = 64 };
static const uint64_t CACHE_WALK_OVER = UINT64_MAX;
/* The next objects that have bytes here (or are empty), held; locks for microseconds. May give none
 * before the end. wanted: small objects at rest that are others are left out, of the rest the
 * caller judges; NULL: all. */
struct cache_wanted {
    const struct okey *below;        /* store, bucket and begin of the keys; NULL: any */
    uint64_t read_since_s;           /* wall clock; 0: whenever */
};
unsigned cache_walk(struct cache *c, uint64_t *at, struct object *out[CACHE_WALK_MAX],
                    const struct cache_wanted *wanted);
/* As object_drop(); and if nobody reads it, it takes little memory again at once. */
void object_leave(struct cache *c, struct object *o);
struct cache_held {                  /* what is here of an object; zeroed at the begin */
    uint64_t number;                 /* next chunk to be looked at */
    uint64_t bytes;                  /* of blocks that are here */
    uint64_t away;                   /* of them, on disks that are not up */
    uint64_t room, slots;            /* on those that are: as in struct cache_need */
    uint32_t chunks;
    bool pinned;                     /* any of it, as the next: */
    bool read;                       /* somebody asked for it, or a record does not tell */
};
/* Looks at `most` more chunks; true: all were seen. */
bool cache_measure(struct cache *c, const struct object *o, struct cache_held *h, uint32_t most);
uint64_t object_read_s(const struct object *o);        /* wall clock of its last read, or fill */
uint16_t cache_group(struct cache *c, struct object *o); /* as policy_tag() */
/* Of the bucket, or bucket/prefix, that `prefix` names; "" is all. */
bool object_is_below(const struct object *o, struct span prefix);
/* Dropped by somebody's order. Readers under way end well. */
void cache_evict(struct cache *c, struct object *o);
/* Nobody finds its bytes in memory any more either: at most so many chunks from *number on, which
 * moves on. true: all of it. */
bool cache_disown(struct cache *c, const struct object *o, uint64_t *number, unsigned most);

/* ---- what stays: pins, and sections with quotas ---- */
/* Bytes of room below that name that can be taken without anything leaving for it: of the disks
 * that are up, within the quota of the section that rules it. Any thread. */
uint64_t cache_spare(struct cache *c, const struct okey *k);
/* What an object takes if all of it is kept. */
struct cache_need {
    uint64_t room;                   /* of the disks */
    uint64_t slots;                  /* of that, what counts to the quota of a section */
    uint64_t index;                  /* of cache.index_memory, more or less */
    bool small;                      /* it is packed when it is at rest */
};
struct cache_need cache_need(const struct okey *k, uint64_t size);
uint64_t cache_need_room(uint64_t size);
/* The section that rules the name, if that has a quota; 0: none. */
unsigned cache_section(struct cache *c, const struct okey *k);
/* What can be had where all may be pushed out that is not pinned; small: objects that will be
 * packed. Any thread. */
struct cache_room {
    uint64_t capacity, pinned;       /* of the disks that are up, as reserve: */
    uint64_t reserve;                /* eviction keeps that free */
    uint64_t quota, quota_free;      /* of the section: all, and what nobody has; or UINT64_MAX */
    uint64_t index;
};
void cache_room(struct cache *c, unsigned section, uint64_t small, struct cache_room *out);
enum {
    CACHE_PINS_MAX = 256,
    CACHE_PIN_BYTES = BUCKET_BYTES_MAX + 1 + KEY_BYTES_MAX + 1,
};
struct cache_pin {
    char prefix[CACHE_PIN_BYTES];    /* "bucket" or "bucket/prefix", as clients say it */
    uint64_t until_s;                /* wall clock; 0: for good */
    bool section;                    /* by pin = true of a section */
    bool routed;                     /* false: no upstream has the bucket */
};
/* From now on what is read below the prefix is pinned; what is here already is by the next tick. A
 * pin of the same prefix gets the new end. On a core not for each request. cache_state_sync()
 * tells that it is on disk. ERR_SYNTAX: no bucket; ERR_TOO_LARGE; ERR_FULL: CACHE_PINS_MAX;
 * ERR_MEMORY. */
must_check enum err cache_pin(struct cache *c, struct span prefix, uint64_t until_s);
/* Is there room for it, or the pin already? */
bool cache_may_pin(struct cache *c, struct span prefix);
/* ERR_NOT_FOUND, ERR_MEMORY */
must_check enum err cache_unpin(struct cache *c, struct span prefix);
unsigned cache_pins(struct cache *c, struct cache_pin *out, unsigned cap);
/* Once a second, by one thread: sections as the configuration has them now, pins that end, marks of
 * what is here, quotas that were lowered. May take seconds after a change. */
void cache_rules_tick(struct cache *c, const struct config *now);

/* ---- uploads that are kept ---- */
/* What is uploaded through us goes to slots of a hidden object while it streams. When the write has
 * ended well they become the chunks of the generation that its answer names, in doubt until
 * upstream was asked once. Nothing here delays an upload: a block for which there is no room, no
 * buffer, or a disk that is too slow is not kept, and fetched when it is read. */
struct upload;
struct upload_place {                /* where the bytes of one body belong */
    struct object *object;           /* borrowed from the upload */
    uint64_t at;                     /* of the first one; a multiple of BLOCK_BYTES */
};
/* For the body of a PutObject; size is of the object (decoded), not 0. NULL: it is not kept. */
struct upload *upload_make(struct cache *c, const struct okey *k, uint64_t size,
                           struct upload_place *place);
/* Ends the owner's part in it: what was not published goes. NULL is fine. */
void upload_drop(struct cache *c, struct upload *u);
/* It became the generation (etag, size) of k, as the answer to the write w says, which has not
 * ended. A few chunks at a time: false = call it again in the next turn of the core. Published
 * nothing if k was written by others as well. Quotes are added to an ETag that lacks them. */
bool upload_publish(struct cache *c, struct upload *u, const struct cache_write *w,
                    const struct okey *k, struct span etag, uint64_t size);

enum { UPLOAD_WRITES = 8 };
/* One body. Embedded in its request, zeroed before its begin; its ops count in m->inflight. */
struct upload_stream {
    struct cache *cache;             /* NULL: nothing is kept, all calls are harmless */
    struct machine *m;
    struct object *object;           /* borrowed from the upload */
    uint64_t at, end;                /* next byte in the object; where the body ends */
    struct timer timer;              /* how long its writes wait yet, behind its end */
    struct upload_write {
        struct transfer *transfer;   /* under way while used */
        struct chunk *chunk;         /* held while used */
        struct buffer *buffer;       /* held while used */
        struct block_sums sums;
        uint8_t block;
        bool used;
    } write[UPLOAD_WRITES], *next;   /* next: of the block that is being filled */
};
/* A body of so many bytes. The owner keeps the upload that gave the place until
 * upload_stream_over(). */
void upload_stream_begin(struct upload_stream *s, struct cache *c, const struct upload_place *place,
                         struct machine *m, uint64_t bytes);
/* The next bytes of the object, in order; copied. */
void upload_stream_add(struct upload_stream *s, const void *mem, size_t len);
void upload_stream_reap(struct upload_stream *s);      /* at each step of m: what has ended */
/* The body is whole, or will never be. True: nothing is under way any more; else m is woken, when
 * what the disk has was written or is late, and what waits for it has begun or waits for long. */
bool upload_stream_over(struct upload_stream *s);

/* Multipart uploads: known by key and upload id, for a day at most, not across a restart. A part
 * that is begun, in any order. Held: give it back by upload_part_end(). NULL: this upload is not
 * kept (parts but the last differ in size, or are no multiple of 1 MiB; too many uploads). */
struct upload *upload_part_begin(struct cache *c, const struct okey *k, struct span upload_id,
                                 uint32_t number, uint64_t bytes, struct upload_place *place);
/* etag: of upstream's good answer, "" when it failed. Not while a stream runs on it. */
void upload_part_end(struct cache *c, struct upload *u, uint32_t number, struct span etag);
struct upload_listed {
    uint32_t number;
    struct span etag;                /* with or without quotes */
};
/* Complete is asked for with these parts: held, with the object's size, if they are what is kept.
 * No part may begin from now on. NULL: not kept. Then, on a good answer, upload_publish(); in any
 * case upload_complete_end(). */
struct upload *upload_complete_begin(struct cache *c, const struct okey *k, struct span upload_id,
                                     const struct upload_listed *part, uint32_t count,
                                     uint64_t *size);
/* over: it is upstream's object now, or was aborted meanwhile; else it may be asked for again. */
void upload_complete_end(struct cache *c, struct upload *u, bool over);
/* Aborted, or completed without us: whatever is kept of it goes. */
void upload_abort(struct cache *c, const struct okey *k, struct span upload_id);

/* ---- lists: whole answers about a bucket's objects, in memory ---- */
/* Their names are okeys by cache_key(): key = what was asked, version = with whose credentials. */
struct listing_note {                /* when it was asked for */
    uint64_t asked_ms;               /* monotonic */
    uint64_t count;                  /* private, as is the stripe: of the bucket's writes */
    uint16_t bucket_stripe;
};
struct listing {
    struct span head, body;          /* fields, "name: value\r\n"*, and the document */
    struct listing_note note;
    /* private from here on */
    struct node in_chain, by_use;
    struct id id;
    uint8_t store;
    struct span bucket, key, version;
    char *memory;                    /* of the body */
    uint32_t room, bytes;            /* of that, and of this struct */
    uint32_t holds;                  /* under the lock */
    char text[];
};
/* Before upstream is asked. */
void listing_note(struct cache *c, struct listing_note *n, const struct okey *k, uint64_t now_ms);
/* Its answer begins: held, empty. NULL: no room. */
struct listing *listing_make(struct cache *c, const struct okey *k, const struct listing_note *n,
                             struct span head);
/* More of the body; false: no room, give it up. */
must_check bool listing_add(struct cache *c, struct listing *l, const void *mem, size_t len);
/* It is whole: others find it, unless the bucket was written since it was asked for, or was being
 * written then. The hold goes on. */
void listing_keep(struct cache *c, struct listing *l);
/* Held, or NULL: one that was asked for less than ttl ago, and later than the end of every write of
 * the bucket through us. */
struct listing *listing_find(struct cache *c, const struct okey *k, uint64_t now_ms,
                             uint64_t ttl_ms);
void listing_drop(struct cache *c, struct listing *l); /* ends a hold; NULL is fine */

/* ---- small named values that a restart finds again: jobs, pins, what a policy has learnt ---- */
/* All are in memory, and in `state` of every directory; at a start the newest one counts. Names are
 * printable, "area/...". Any thread; none of this is for the hit path. */
enum {
    STATE_NAME_MAX = 23,
    STATE_VALUE_MAX = 256 * KIB,
    STATE_VALUES_MAX = 1024,         /* and 16 MiB of all together */
};
/* Names of this area may come back at a start, with a directory that missed their removal: who puts
 * them removes them again. */
#define STATE_LOOSE "keys/"
/* Copied. It is on the disks within a tenth of a second or so (cache_state_sync() waits for that).
 * ERR_TOO_LARGE, ERR_FULL, ERR_MEMORY: the value is as it was. */
must_check enum err cache_state_put(struct cache *c, struct span name, struct span value);
enum err cache_state_remove(struct cache *c, struct span name); /* ERR_NOT_FOUND, ERR_MEMORY */
/* A copy. ERR_NOT_FOUND; ERR_TOO_LARGE: *len tells what room it needs. */
must_check enum err cache_state_get(struct cache *c, struct span name, void *out, size_t cap,
                                    size_t *len);
/* Those whose names begin so, in no order; each() must not call cache_state_*(). */
void cache_state_walk(struct cache *c, struct span prefix,
                      void (*each)(void *arg, struct span name, struct span value), void *arg);
/* True: all that was put or removed before is on the disk of at least one directory. Waits for
 * commits, so not on a core; false: not in time, or there is no directory. */
bool cache_state_sync(struct cache *c, unsigned timeout_ms);

/* ---- the pool: verified buffers, the RAM tier ---- */
/* shares: all, 1/2, 1/4, 1/8 (they count what is held, not what is merely cached, and only until
 * pool_share_end()). PASS: of a fill that is not kept, when FILL's is full of what is written. */
enum buffer_use { BUFFER_DEMAND, BUFFER_FILL, BUFFER_PREFETCH, BUFFER_PASS };
enum { BUFFER_USES = 4 };
enum { POOL_PROBATION = 10 };        /* one part in so many is for what was used once at most */
enum buffer_kind { BUFFER_BLOCK = 0, BUFFER_GRANULE = 1, BUFFER_HALF = 2 };
struct buffer_key {
    struct id data_id;
    /* object offset (multiple of the unit) | enum buffer_kind; or buffer_part() */
    uint64_t at;
};
enum { PART_OFFSET_BITS = 43 };      /* parts of what lies behind have no name */
/* The name of just these bytes of an object, fewer than a block. 0: they can have none. */
static inline uint64_t buffer_part(uint64_t from, uint32_t len)
{
    bool fits = from >> PART_OFFSET_BITS == 0 && len > 0 && len < BLOCK_BYTES;

    return fits ? (uint64_t)1 << 63 | (uint64_t)len << PART_OFFSET_BITS | from : 0;
}
struct buffer {
    uint8_t *mem;                    /* 4 KiB aligned */
    uint32_t len, cap;               /* verified bytes; room (4 KiB .. 1 MiB, a power of two) */
    uint32_t private_[2];
};
/* Before its pages are lent to a socket (op_send_pages), while it is held: from then on this memory
 * is not written again; before it is used anew its pages are dropped and new ones take their
 * place. */
void buffer_set_lent(struct buffer *b);
/* A held buffer that stays when it is given back, as nothing has to leave the pool by now: others
 * find it, and there is memory that was never used. Any thread. */
bool pool_keeps(struct cache *c, struct buffer *b);
/* A buffer that a fetch filled is unread until its bytes are served for the first time: these came
 * from upstream, all later ones were saved. Take is true once. */
void buffer_set_unread(struct buffer *b);
bool buffer_take_unread(struct buffer *b);
/* Held, or NULL. Counts as a use for replacement (S3-FIFO). */
struct buffer *pool_find(struct cache *c, const struct buffer_key *k);
/* It follows soon: its place in the table comes into the processor's caches meanwhile. */
void pool_expect(struct cache *c, const struct buffer_key *k);
/* A new, unnamed buffer, held once by the caller; evicts unheld ones. NULL: every buffer is held,
 * or the use's share is. */
struct buffer *pool_take(struct cache *c, uint32_t bytes, enum buffer_use use);
/* Names a filled buffer so that others find it. If the name is taken already, returns that one
 * (held) and gives ours back; else ours. */
struct buffer *pool_publish(struct cache *c, struct buffer *b, const struct buffer_key *k,
                            bool probation);
/* Names ours in any case, of a use by demand: who had the name, or that of a granule of it, keeps
 * his bytes, and loses it. For bytes that go to disk: the other's may never have been compared with
 * what upstream says. */
void pool_replace(struct cache *c, struct buffer *b, const struct buffer_key *k);
/* Whoever took it will not hold it any longer; readers may, but must not keep the share from the
 * next fills. */
void pool_share_end(struct cache *c, struct buffer *b);
/* Nobody finds a buffer by that name any more; who holds it keeps it. */
void pool_disown(struct cache *c, const struct buffer_key *k);
/* The same of a block of so many bytes and of its granules. Other parts of it (buffer_part()) keep
 * their names, but are looked for only when the block is not here. */
void pool_disown_block(struct cache *c, const struct buffer_key *k, uint32_t len);
void pool_hold(struct buffer *b);
void pool_give(struct cache *c, struct buffer *b);
/* A block that its reader, who has memory for it, reads from disk; and who waits for that instead
 * of reading it as well. Both zeroed before they are used first. */
struct block_read {
    bool listed;
    struct node node;                /* private from here on */
    struct buffer_key key;
    struct list waiters;
};
struct block_read_wait {
    bool busy;
    struct message msg;              /* private from here on */
    struct node node;
    struct machine *m;
    struct reading_shard *shard;
};
/* True: nobody reads it, so the caller does. False: somebody does; m is woken (through its core's
 * inbox) when that is over, and looks for the block again; counted in m->inflight until then. */
bool reading_begin(struct cache *c, struct block_read *r, const struct buffer_key *k,
                   struct block_read_wait *w, struct machine *m);
/* Its bytes have come and may lie unverified: nobody waits for them, nor will. */
bool reading_may_rest(struct cache *c, struct block_read *r);
/* It was published, or will not be; not listed is fine. */
void reading_end(struct cache *c, struct block_read *r);
bool reading_leave(struct block_read_wait *w); /* false: it is being woken; wait for that */
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
/* Writes of some disk take longer than cache.max_write_delay: a fill that finds no buffer waits for
 * them. */
bool cache_is_behind(struct cache *c);
/* true: left, inflight is corrected; false: the wake is on its way */
bool pool_leave(struct cache *c, struct pool_wait *w);

#endif
