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
    uint16_t spare;
};
struct policy;
/* In policy_mark.flags. PINNED: never a victim, and a new one is let in; quota.c sets it by atomic
 * operations, so must a policy its own flags. Of a miss: less than the chunk was asked for, and
 * that was no new reference. */
enum mark_flag { MARK_PINNED = 1, MARK_PART = 2, MARK_TOUCH = 4 };
/* residents: how many chunks there may be at most, of whatever size. NULL: no policy of that name,
 * or no memory. */
must_check struct policy *policy_make(const char *name, uint64_t capacity_chunks,
                                      uint64_t residents);
void policy_free(struct policy *p);
/* At load, once for every resident chunk, before the first reference: the clock goes on behind the
 * newest mark. */
void policy_resume(struct policy *p, uint64_t hash, const struct policy_mark *m);
void policy_served(struct policy *p, uint64_t bytes);  /* virtual time: all bytes for clients */
/* Keys that begin with that text, "bucket" or "bucket/prefix", are a group from the start. */
void policy_declare(struct policy *p, struct span match);
/* The group of a key of which bytes come in now: off the hit path. */
uint16_t policy_group(struct policy *p, struct span bucket, struct span key, uint64_t bytes);
/* The same on the hit path: memo is the object's, 0 at first. */
uint16_t policy_tag(struct policy *p, _Atomic uint32_t *memo, struct span bucket, struct span key);
/* A reference to a resident chunk: hit path, relaxed stores. */
void policy_reference(struct policy *p, uint64_t hash, struct policy_mark *m, uint64_t bytes,
                      uint32_t chunk_bytes);
struct policy_miss {                 /* what was asked for and is not here */
    uint64_t hash, bytes;            /* of the chunk; of it that the reader asked for */
    uint32_t chunk_bytes;
    uint16_t group;
};
/* A reference to what is not resident: *out is its mark as the ghosts remember it, or a new one. To
 * be given to policy_remember() if the chunk is not admitted. */
void policy_missed(struct policy *p, const struct policy_miss *miss, struct policy_mark *out);
/* So many bytes of a miss that was let in will be told again by policy_reference(). */
void policy_expect(struct policy_mark *m, uint64_t bytes, uint32_t chunk_bytes);
/* The higher, the better to keep. Pinned: infinity. */
double policy_value(const struct policy *p, const struct policy_mark *m);
/* Is a missed chunk, by its mark, worth the victim's place? */
bool policy_admits(const struct policy *p, const struct policy_mark *new_, double victim_value);
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

#endif
