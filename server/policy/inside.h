/* The parts of the policies as they know each other: for the files of this folder and their tests.
 *
 * Invariants:
 *  1. Nothing outside the folder includes this header.
 *  2. Order of locks: those of ghosts, prefixes and the sample never nest.
 *
 * Life: all of it belongs to struct policy. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_POLICY_INSIDE_H
#define HEADPOND_POLICY_INSIDE_H

#include <pthread.h>

#include "server/policy/policy.h"

/* ---- ghosts.c: what was known of chunks that are not here ---- */
struct ghosts {                      /* sets by hash */
    struct ghost *ghost;             /* owned; pages that were never used cost nothing */
    uint64_t sets;                   /* 0: none are kept */
    pthread_mutex_t lock[64];        /* by set */
};
must_check enum err ghosts_make(struct ghosts *g, uint64_t count);
void ghosts_free(struct ghosts *g);
/* May forget the oldest of its set. */
void ghosts_add(struct ghosts *g, uint64_t hash, const struct policy_mark *m, uint32_t now);
bool ghosts_take(struct ghosts *g, uint64_t hash, struct policy_mark *out);

/* ---- ehd.c: epoch-aware hit density ---- */
/* Relaxed accesses to what several threads write. */
#define PEEK(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define POKE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
enum { EHD_GROUPS = 64, EHD_CLASSES = 37, EHD_BUCKETS = 96, EHD_GHOSTS = 16, EHD_HORIZON = 16 };
struct ehd;
struct ehd *ehd_make(uint64_t capacity_chunks);
/* Of another capacity, for at most so many chunks, with the groups of e, which outlives it. */
struct ehd *ehd_make_like(struct ehd *e, uint64_t capacity_chunks, uint64_t residents);
void ehd_free(struct ehd *e);
uint32_t ehd_now(const struct ehd *e);
void ehd_set_now(struct ehd *e, uint32_t now);
void ehd_served(struct ehd *e, uint64_t bytes);
/* As policy_group(). */
uint16_t ehd_group(struct ehd *e, struct span bucket, struct span key, uint64_t bytes);
void ehd_prefetch(const struct ehd *e, uint64_t hash, bool entry); /* as policy_prefetch() */
void ehd_reference(struct ehd *e, uint64_t hash, struct policy_mark *m);
void ehd_resume(struct ehd *e, uint64_t hash, const struct policy_mark *m);
/* It left so long ago that nothing is known of it. */
bool ehd_is_old(const struct ehd *e, const struct policy_mark *m);
double ehd_value(const struct ehd *e, const struct policy_mark *m);
/* As policy_plan() and policy_plan_beyond(). */
void ehd_plan(const struct ehd *e, struct policy_mark *m, uint64_t bytes, bool beyond);
/* It is read, and planned. counted: as a reference, which is not told yet. */
void ehd_plan_read(const struct ehd *e, struct policy_mark *m, bool counted);
/* As policy_keep(). */
void ehd_keep(const struct ehd *e, struct policy_mark *m);
/* As due_kept(). */
double ehd_kept(const struct ehd *e, const struct policy_mark *m);
bool ehd_is_due(const struct ehd *e);
void ehd_refresh(struct ehd *e);
struct ehd_prefixes *ehd_prefixes(struct ehd *e);
/* As policy_save() and policy_restore(). */
size_t ehd_save(const struct ehd *e, unsigned g, void *out, size_t cap);
must_check enum err ehd_restore(struct ehd *e, struct span state);

/* ---- ehd_groups.c: which prefixes are groups ---- */
struct ehd_prefixes;
/* tag: number of the group (below EHD_GROUPS), and above it how often that number was given. 0 is
 * the catch-all's. */
struct ehd_prefixes *ehd_prefixes_make(uint64_t capacity_bytes);
void ehd_prefixes_free(struct ehd_prefixes *s);
void ehd_prefixes_declare(struct ehd_prefixes *s, struct span match);
struct ehd_idle {                    /* how long a group was not referenced */
    uint32_t (*of)(const struct ehd *e, unsigned group);
    const struct ehd *ehd;
    uint32_t most;                   /* those beyond may be folded */
};
uint16_t ehd_prefixes_find(struct ehd_prefixes *s, struct span bucket, struct span key,
                           uint64_t bytes, const struct ehd_idle *idle);
/* Bytes of the group's prefix, written to out; 0: the catch-all's, unknown, or no group's tag. */
size_t ehd_prefixes_name(struct ehd_prefixes *s, uint16_t tag, char out[POLICY_NAME_BYTES]);
/* For a restart: the hash of a group's prefix, 0: there is none; and the group of such a hash,
 * which becomes one if it is none. EHD_GROUPS: there is no room. */
uint64_t ehd_prefixes_hash(const struct ehd_prefixes *s, unsigned group);
unsigned ehd_prefixes_adopt(struct ehd_prefixes *s, uint64_t hash);
uint16_t ehd_prefixes_tag(const struct ehd_prefixes *s, unsigned group);
unsigned ehd_prefixes_parent(const struct ehd_prefixes *s, unsigned group);
uint16_t ehd_prefixes_generation(const struct ehd_prefixes *s);
unsigned ehd_prefixes_count(const struct ehd_prefixes *s);

/* ---- ehd_sample.c: some chunks of each group, for the curves ---- */
struct ehd_seen {                    /* one of them */
    uint64_t hash;
    uint32_t last;
    uint16_t tag;
    uint8_t class_, spare;
};
struct ehd_sample;
/* lean: few will be in it, or it may be slow; it takes memory as it fills, not 2 MiB at once. */
struct ehd_sample *ehd_sample_make(uint64_t residents, bool lean);
void ehd_sample_free(struct ehd_sample *s);
/* NULL: not among them. Its fields are to be accessed by PEEK and POKE. */
struct ehd_seen *ehd_sample_find(struct ehd_sample *s, uint64_t hash, unsigned group);
void ehd_sample_prefetch(const struct ehd_sample *s, uint64_t hash, bool entry);
/* Is it to be one of them? Without waiting: may be left out when another thread is at it. */
void ehd_sample_add(struct ehd_sample *s, const struct ehd_seen *seen);
/* The same at a start, when millions come before the first sweep: a group that has too many is
 * thinned at once. */
void ehd_sample_resume(struct ehd_sample *s, const struct ehd_seen *seen);
/* Visits all; those for which it says false go. */
void ehd_sample_sweep(struct ehd_sample *s, bool (*keep)(void *arg, const struct ehd_seen *seen),
                      void *arg);

/* ---- ehd_curve.c: from counts to ranks, pure ---- */
struct ehd_counts {                  /* by class and age */
    float n[EHD_CLASSES][EHD_BUCKETS];
};
struct ehd_curve {
    struct ehd_counts reused, lost;  /* at that age: read again, given up */
    uint64_t open[EHD_CLASSES][EHD_BUCKETS]; /* still waiting: sums of ehd_waits() */
};
static inline unsigned ehd_bucket(uint32_t age) /* 0..3 exact, then four per octave */
{
    if (age < 4)
        return age;
    unsigned octave = 31 - (unsigned)__builtin_clz(age);
    unsigned bucket = 4 * (octave - 1) + (age >> (octave - 2) & 3);
    return bucket < EHD_BUCKETS ? bucket : EHD_BUCKETS - 1;
}
/* One that waits at that age, in its bucket, ehd_bucket(age): in the upper half that it is one, in
 * the lower one the part of the bucket that is still before it, in EHD_PARTS. This is added up for
 * each chunk of the sample at each refresh; as two counts in floating point, which are two lines of
 * memory, it was a third of all that the policy costs on a small cache. */
enum { EHD_PARTS = 4096 };
static inline uint64_t ehd_waits(uint32_t age, unsigned bucket)
{
    unsigned octave = bucket < 4 ? 0 : bucket / 4 - 1;
    uint32_t end = bucket < 4 ? bucket + 1 : (5 + bucket % 4) << octave;
    uint64_t halves = age < end ? 2 * (uint64_t)(end - age) - 1 : 0;

    return 1ull << 32 | halves * (EHD_PARTS / 2) >> octave;
}
void ehd_prior(double capacity, double prior[EHD_BUCKETS]);
/* Hits to be expected per unit of cache time, at best, of a chunk of that class and age. */
void ehd_ranks(const struct ehd_curve *c, const double prior[EHD_BUCKETS], struct ehd_counts *out);

/* ---- due.c: next uses that somebody knows ---- */
struct due_clock {                  /* of one cache */
    uint64_t served, capacity;       /* bytes */
    unsigned tick_shift;             /* values are hits per 1 << tick_shift bytes */
};
/* It is read next in so many bytes; beyond: not before. */
void due_tell(const struct due_clock *t, struct policy_mark *m, uint64_t bytes, bool beyond);
void due_forget(struct policy_mark *m);
/* It shall stay, from now on. When it was read last is not touched: what is fetched ahead of every
 * reading would seem to be read again at once, and the curves would never see it come back. */
void due_keep(const struct due_clock *t, struct policy_mark *m);
/* 1 just now, 0 when it is not to be kept, or as much as the cache holds went by since. */
double due_kept(const struct due_clock *t, const struct policy_mark *m);
/* A planned one is read; begins: by a new reading. */
void due_read(const struct due_clock *t, struct policy_mark *m, bool begins);
enum due_says { DUE_UNKNOWN, DUE_WORTH, DUE_AT_MOST };
/* What a planned one is worth, or is at most; *out is not valid with DUE_UNKNOWN. */
enum due_says due_value(const struct due_clock *t, const struct policy_mark *m, double *out);

/* ---- sizing_table.c: chunks by hash ---- */
struct sized_chunk {
    uint64_t hash;
    struct policy_mark mark;
    uint32_t bytes;
    uint32_t next;                   /* place + 1 of the next one with that head; 0: none */
    uint8_t read;                    /* bit per block: since it came */
};
struct sized_table {
    struct sized_chunk *chunk;       /* owned */
    uint32_t *head;                  /* owned; place + 1 by hash */
    uint32_t count, cap, mask;
};
must_check enum err sized_make(struct sized_table *t, uint32_t cap);
void sized_free(struct sized_table *t);
struct sized_chunk *sized_find(const struct sized_table *t, uint64_t hash); /* or NULL */
void sized_prefetch(const struct sized_table *t, uint64_t hash, bool entry);
struct sized_chunk *sized_add(struct sized_table *t, uint64_t hash);        /* NULL: no room */
void sized_remove(struct sized_table *t, struct sized_chunk *k); /* the last one takes its place */

/* ---- sizing_cache.c: a scaled cache ---- */
struct scaled_cache {
    struct policy *policy;
    struct sized_table table;
    struct sizing_room room;         /* of the cache that it stands for */
    uint64_t used;                   /* bytes, of the sampled chunks in it */
    uint64_t random;
    uint32_t denied;                 /* policy_denials() */
    bool full;                       /* the table was: the rate is too high */
};
/* chunks: room of the table. */
must_check enum err scaled_make(struct scaled_cache *c, const struct policy *like,
                                const struct sizing_room *room, uint32_t chunks);
void scaled_free(struct scaled_cache *c);
/* Returns how many of the asked bytes it would have fetched. */
uint64_t scaled_read(struct scaled_cache *c, const struct sizing_read *r, double rate);
/* Chunks above the limit are sampled no more. */
void scaled_limit(struct scaled_cache *c, uint32_t limit);

#endif
