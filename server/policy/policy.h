/* Admission and eviction: what a chunk is worth, and whether a new one may take its place.
 *
 * Invariants:
 *  1. A policy decides by marks alone; it holds no chunk and no pointer into the index. Neither
 *     clock nor I/O: time is bytes served, so that a benchmark in virtual time runs the same
 *     functions.
 *  2. A hit stores by relaxed accesses and takes no lock; what costs more is done at misses and by
 *     policy_refresh().
 *
 * Life: policy_make() by cache_open(), policy_free() by cache_close(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_POLICY_H
#define HEADPOND_POLICY_H

#include <stdatomic.h>

#include "base.h"
#include "mem.h"

/* 12 bytes, also in the record: what eviction knows of a chunk */
struct policy_mark {
    uint32_t last;                   /* virtual time of the last reference */
    uint16_t group;
    uint8_t class_, count, credit, flags;
    uint16_t spare;                  /* planned: when; kept: since when; else nothing */
};
struct policy;
/* In policy_mark.flags. PINNED: never a victim, and a new one is let in; quota.c sets it by atomic
 * operations, so must a policy its own flags. Of a miss: less than the chunk was asked for (PART),
 * and that was no new reference (TOUCH). KEEP: somebody said that it shall be here (an upload, a
 * prewarm, what a plan names next); a new one is let in whatever it promises, and stays until it
 * was read once or as much as the cache holds went by; those brought last stay longest. PLANNED:
 * somebody said when it is read next, or, BEYOND as well, until when it is not. AHEAD is nothing to
 * a policy: it was fetched before anybody asked for it, and nobody has read it. No record keeps
 * these three. SPARE: of a miss, that it takes only room that nobody has, so nothing is to leave
 * for it; no chunk has it. */
enum mark_flag {
    MARK_PINNED = 1, MARK_PART = 2, MARK_TOUCH = 4, MARK_KEEP = 8, MARK_PLANNED = 16,
    MARK_BEYOND = 32, MARK_AHEAD = 64, MARK_SPARE = 128,
};
/* residents: how many chunks there may be at most, of whatever size. NULL: no policy of that name,
 * or no memory. */
must_check struct policy *policy_make(const char *name, uint64_t capacity_chunks,
                                      uint64_t residents);
/* The same policy for another capacity, with the groups of p, which outlives it; residents: of
 * which it is told. NULL: no memory. */
must_check struct policy *policy_make_like(const struct policy *p, uint64_t capacity_chunks,
                                           uint64_t residents);
void policy_free(struct policy *p);
/* At load, once for every resident chunk, before the first reference; from any thread. */
void policy_resume(struct policy *p, uint64_t hash, const struct policy_mark *m);
/* The same, from one thread at a time: the clock goes on behind the newest of all marks, of which
 * each time comes in one call or another. */
void policy_resume_clock(struct policy *p, uint32_t last);
/* Of a chunk that is found while others are referenced: its mark may be of a clock that was ahead
 * of ours; such a reference was just now. */
void policy_join(const struct policy *p, struct policy_mark *m);
/* virtual time: all bytes for clients, and what is to be kept */
void policy_served(struct policy *p, uint64_t bytes);
/* Somebody said that the chunk, which is here, shall stay: as MARK_KEEP from now on. Ends what is
 * planned. To lru it is as if it were read. */
void policy_keep(struct policy *p, struct policy_mark *m);
/* Of a chunk, resident or of a miss: it will be read next when so many more bytes were served to
 * all clients. Relaxed stores; any thread. What is told last counts: of several plans the caller
 * tells the nearest use. To be told when the chunk was read to its end by the reading that comes
 * before that use: told sooner it may leave before. A reading ends a planned use that is due by
 * then, or nearly; one farther ahead stands, as the reader may be another: who knows that it was
 * this use tells the next one, or takes it back. While one job reads alone, and each chunk once an
 * epoch, it is better not to tell: the curves hit as often, and write a seventh to the disks
 * (bench/policy). lru does not plan. */
void policy_plan(struct policy *p, struct policy_mark *m, uint64_t bytes_ahead);
/* Its plan says: not within so many bytes. The next reading ends this. */
void policy_plan_beyond(struct policy *p, struct policy_mark *m, uint64_t horizon_bytes);
/* No plan speaks of it any longer. */
void policy_unplan(struct policy *p, struct policy_mark *m);
/* Keys that begin with that text, "bucket" or "bucket/prefix", are a group from the start. */
void policy_declare(struct policy *p, struct span match);
/* The group of a key of which bytes come in now: off the hit path. */
uint16_t policy_group(struct policy *p, struct span bucket, struct span key, uint64_t bytes);
/* The same on the hit path: memo is the object's, 0 at first. */
uint16_t policy_tag(struct policy *p, _Atomic uint32_t *memo, struct span bucket, struct span key);
/* A reference to that chunk follows soon: what it will look at comes into the processor's caches.
 * Two stages with other work between: where its entry stands, then (entry) the entry itself. */
void policy_prefetch(const struct policy *p, uint64_t hash, bool entry);
/* A reference to a resident chunk: hit path, relaxed stores. */
void policy_reference(struct policy *p, uint64_t hash, struct policy_mark *m, uint64_t bytes,
                      uint32_t chunk_bytes);
struct policy_miss {                 /* what was asked for and is not here */
    uint64_t hash, bytes;            /* of the chunk; of it that the reader asked for. 0: he comes
                                      * for what was told already, as fetched ahead of him */
    uint32_t chunk_bytes;
    uint16_t group;
};
/* A reference to what is not resident: *out is its mark as the ghosts remember it, or a new one. To
 * be given to policy_remember() if the chunk is not admitted. */
void policy_missed(struct policy *p, const struct policy_miss *miss, struct policy_mark *out);
/* So many bytes of a miss that was let in will be told again by policy_reference(). */
void policy_expect(struct policy_mark *m, uint64_t bytes, uint32_t chunk_bytes);
/* Of so many residents, taken at random, the one of the least value is the victim; of more if one
 * of those is planned, as it pays to find the farthest use (both measured: bench/policy). */
enum { POLICY_LOOKS = 32, POLICY_LOOKS_PLANNED = 64 };
/* The higher, the better to keep. Pinned: infinity. */
double policy_value(const struct policy *p, const struct policy_mark *m);
/* Is a missed chunk, by its mark, worth the place of a victim of that value and group? */
bool policy_admits(const struct policy *p, const struct policy_mark *new_, double victim_value,
                   uint16_t victim_group);
/* Of those that needed another's place of late (about 16), how many were not worth it: a share of
 * POLICY_DENIED_ALL, 0 at first. Who is denied may have what is lent of a cache's reserve; while
 * they are many, nothing more leaves to have it back. */
enum { POLICY_DENIED_ALL = 1 << 16, POLICY_DENIED_OF = 16 };
static inline uint32_t policy_denials(uint32_t was, bool denied)
{
    return was - was / POLICY_DENIED_OF + (denied ? POLICY_DENIED_ALL / POLICY_DENIED_OF : 0);
}
static inline bool policy_denies_many(uint32_t denials)
{
    return denials > POLICY_DENIED_ALL / 4;
}
/* Ghosts: what was evicted or bypassed is remembered by its hash for a while. */
void policy_remember(struct policy *p, uint64_t hash, const struct policy_mark *m);
/* Off the hit path, by one thread at a time: learns from what was referenced since. due: enough was
 * served. */
bool policy_is_due(const struct policy *p);
void policy_refresh(struct policy *p);
/* What was learnt of group n (below POLICY_GROUPS), for a restart; by the thread that refreshes. 0:
 * there is no such group. */
enum { POLICY_GROUPS = 64, POLICY_STATE_BYTES = 14 * KIB + 256 };
size_t policy_save(const struct policy *p, unsigned n, void *out, size_t cap);
/* Before the first refresh. ERR_RECORD, ERR_NEWER, ERR_FULL: nothing was taken from it. */
must_check enum err policy_restore(struct policy *p, struct span state);
unsigned policy_groups(const struct policy *p);        /* live ones; NULL is fine */
/* Bytes of the prefix of a group, "bucket/prefix/", cut where there is no more room; 0: the
 * catch-all's, or nobody's tag. */
enum { POLICY_NAME_BYTES = 256 };
size_t policy_group_name(const struct policy *p, uint16_t tag, char out[POLICY_NAME_BYTES]);

/* ---- sizing.c: what the cache would give at other sizes. One thread at a time ---- */
enum { SIZING_SIZES = 4, SIZING_CHUNKS = 16 * 1024 };
extern const double sizing_factor[SIZING_SIZES];       /* of the cache's size; one of them is 1 */
struct sizing_read {                 /* a request comes to a chunk */
    uint64_t hash;
    uint32_t bytes;                  /* asked for of the chunk, not 0 */
    uint32_t chunk_bytes;
    uint32_t stored_bytes;           /* that it takes on disk */
    uint16_t group;                  /* as policy_tag() says */
    uint8_t blocks;                  /* bit per block that is asked for, not 0 */
    bool once;                       /* the reader says that it is not worth keeping */
};
struct sizing_total {                /* bytes: of all chunks' reads, sampled or not, */
    uint64_t asked;
    uint64_t served, fetched;        /* that went to readers, and of these from upstream */
};
enum sizing_state {
    SIZING_EARLY,                    /* it was not read twice yet */
    SIZING_FEW,                      /* too few of its chunks are sampled */
    SIZING_READY,
};
struct sizing_line {                 /* a group, or all */
    uint16_t tag;
    enum sizing_state state;
    double asked;                    /* bytes since the start */
    double window;                   /* bytes that the ratios stand on */
    double distinct;                 /* bytes of chunks asked for at least once */
    double measured, predicted[SIZING_SIZES]; /* share of bytes that upstream is not asked for */
};
struct sizing_report {
    struct sizing_line all, group[POLICY_GROUPS];
    unsigned groups;
    double rate;                     /* share of chunks that are sampled */
    double half_life;                /* bytes behind which a read has half of its weight */
    uint64_t capacity[SIZING_SIZES];
};
struct sizing_room {                 /* of a cache of one of the sizes, in bytes */
    uint64_t whole;
    uint64_t used;                   /* at most, while its reserve is free, */
    uint64_t lent;                   /* and with what is lent of that to those it denies a place */
};
struct sizing;
/* room: for each of the factors; chunks: that the largest of the scaled caches has room for. NULL:
 * no memory. */
must_check struct sizing *sizing_make(const struct policy *like,
                                      const struct sizing_room room[SIZING_SIZES],
                                      uint32_t chunks);
void sizing_free(struct sizing *s);  /* NULL is fine */
/* Chunks at or below the limit are sampled. It changes with sizing_read() and sizing_settle(). */
uint32_t sizing_limit(const struct sizing *s);
static inline uint64_t sizing_place(uint64_t hash)
{
    hash += 0xD1B54A32D192ED03;
    hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9;
    hash = (hash ^ hash >> 27) * 0x94D049BB133111EB;
    return hash ^ hash >> 31;
}
static inline bool sizing_wants(uint32_t limit, uint64_t hash)
{
    return sizing_place(hash) >> 32 <= limit;
}
void sizing_read(struct sizing *s, const struct sizing_read *r);
void sizing_read_all(struct sizing *s, const struct sizing_read *r, uint32_t count);
/* To be told before the reads that are part of them; sizing_settle() behind those. */
void sizing_add(struct sizing *s, uint16_t group, const struct sizing_total *t);
void sizing_settle(struct sizing *s);
void sizing_report(const struct sizing *s, struct sizing_report *out);

#endif
