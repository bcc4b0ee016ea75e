/* The RAM tier as its files know it: part of inside.h.
 *
 * Invariants:
 *  1. Nothing but inside.h includes this header.
 *
 * Life: from cache_open() to cache_close(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_POOL_H
#define HEADPOND_CACHE_POOL_H

#include <pthread.h>

#include "server/cache/cache.h"

/* ---- pool.c: the memory behind the face above ---- */
struct pool;
struct pool_status {
    /* of buffers: at most; taken or cached; held by someone */
    uint64_t limit_bytes, used_bytes, held_bytes;
    uint64_t ready_bytes;            /* of frames that were made ready before their use */
};
/* All that the pool will ever use, tables included, stays below bytes. NULL: too little for one
 * frame, or refused by the system. */
must_check struct pool *pool_make(uint64_t bytes);
void pool_close(struct pool *p);     /* nobody uses it any more; NULL is fine */
void pool_memory(const struct pool *p, void **at, size_t *bytes);
void pool_status(struct pool *p, struct pool_status *out); /* any thread */
uint64_t pool_share_bytes(const struct pool *p, enum buffer_use use); /* at most */
uint64_t pool_share_left(struct pool *p, enum buffer_use use);        /* of that */
struct pool *cache_pool(struct cache *c);              /* in cache.c */
/* As pool_disown() of all names that bytes of these data have. A tenth of a microsecond per MiB of
 * the pool, one or two where that is in small buffers. */
void pool_disown_data(struct cache *c, struct id data_id);

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

/* ---- pool_ready.c: memory that is there before it is needed ---- */
void pool_ready_begin(struct pool *p); /* a thread; without one all goes on */
void pool_ready_end(struct pool *p);   /* not begun is fine */

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

/* ---- readings.c: blocks on their way from disk ---- */
enum { READING_SHARDS = 64 };
struct reading_shard {
    _Alignas(64) pthread_mutex_t lock; /* nests nothing */
    struct list list;                /* of struct block_read */
};
struct readings {
    struct reading_shard shard[READING_SHARDS];
};
void readings_init(struct readings *r);
void readings_fini(struct readings *r); /* what is listed hangs, and is never looked at again */

/* ---- the pool's inside: pool.c, pool_evict.c and pool_ready.c ---- */
enum {
    POOL_CELL_BYTES = 4 * KIB,
    POOL_FRAME_BYTES = BLOCK_BYTES,
    POOL_ORDER_MAX = 8,              /* POOL_CELL_BYTES << POOL_ORDER_MAX is a frame */
    POOL_FRAME_CELLS = 1 << POOL_ORDER_MAX,
    POOL_SHARDS = 64,
    POOL_READY_AHEAD = 64,           /* frames before they are used */
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
    size_t memory_map_bytes, tables_map_bytes;
    uint32_t frames;
    _Atomic uint64_t used_cells;

    pthread_mutex_t lock;            /* the allocator's: guards all below */
    _Atomic uint32_t fresh;          /* frames from here on were never used, */
    _Atomic uint32_t ready;          /* those before this have memory; written under the lock */
    uint32_t ready_first;            /* as many shall have it whether they are used or not */
    bool ready_runs, ready_stop;
    pthread_t ready_thread;
    pthread_cond_t ready_wake;
    struct pool_queue free[POOL_ORDER_MAX + 1];
    struct pool_queue small, main;
    uint64_t small_cells;            /* SMALL's target: a tenth */
    uint64_t use_cells[BUFFER_USES], use_limit[BUFFER_USES];
    struct pool_ghosts ghosts;       /* of what left SMALL */
    uint32_t sweep_at, sweep_done;   /* next frame; how many were swept without an event */
    uint64_t sweep_events;
    unsigned sweep_order;
    struct waiters waiters;          /* has its own lock */
    struct readings readings;        /* have their own locks */
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

#endif
