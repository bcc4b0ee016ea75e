/* The parts of the cache as they know each other: for the files of this folder and their tests.
 *
 * Invariants:
 *  1. Nothing outside the folder includes this header; what others may do stands in cache.h.
 *  2. Order of locks: table of uploads before stripe before any other; then one of object shard,
 *     chunk shard, residents, space and journal at a time; pool allocator before pool shard before
 *     waiters.
 *
 * Life: the structs belong to struct cache, from cache_open() to cache_close(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_INSIDE_H
#define HEADPOND_CACHE_INSIDE_H

#include <pthread.h>
#include <setjmp.h>
#include <time.h>

#include "server/cache/cache.h"
#include "server/cache/disk.h"
#include "server/cache/parts.h"
#include "server/cache/pool.h"

/* ---- journal.c: the durable copy of one directory, its writer thread ---- */
struct directory;
struct journal;
struct MDB_env;
struct MDB_txn;
struct index_facts;
/* It gathers; no environment yet, and no thread. NULL: no memory. */
must_check struct journal *journal_make(struct directory *d);
/* Opens (or makes) the environment below d->path, which was found sound. ERR_DISK, ERR_MEMORY;
 * ERR_FULL: no room, or no descriptor, which says nothing of the index. No block is needed if an
 * index is there: it opens on a full disk, too. */
must_check enum err journal_open(struct journal *j, char why[512]);
/* What `state`, a handle of that transaction's, says of the directory. */
void journal_facts(struct directory *d, struct MDB_txn *txn, unsigned state,
                   struct index_facts *out);
struct MDB_env *journal_env(struct journal *j);
unsigned journal_handle(const struct journal *j, enum journal_db db);
/* commits the session's number (later, if the disk is full now), starts the writer */
must_check enum err journal_start(struct journal *j);
/* All of them in one commit, or none: ERR_BUSY (too much is waiting, or the index is lost),
 * ERR_MEMORY, ERR_TOO_LARGE. Removals find room when records no longer do. */
must_check enum err journal_queue(struct journal *j, const struct journal_change *change,
                                  unsigned count);
bool journal_room(struct journal *j);                  /* false: do not evict, commits are behind */
/* The memory becomes the journal's. The caller counted the slot in limbo_bytes. */
void journal_limbo(struct journal *j, struct limbo *l);
uint64_t journal_dirty(struct journal *j);             /* changes not yet committed */
/* If what w must wait for is not yet committed here, w hears when it is, or cannot be: then
 * write_go_on() is called by the writer. A commit begins at once. false: it need not wait; w->why
 * tells if that is for a failure. */
bool journal_await(struct journal *j, struct cache_write *w);
/* Something that must not be believed at the next start could not be queued: then all records of
 * this directory will be doubtful. */
void journal_distrust(struct journal *j);
/* All that is queued now is committed, or its commit was given up, once journal_wait() is true for
 * the mark: it waits for that until deadline_ms, not on a core. false: not in time, the disk fails,
 * or the index is lost. */
uint64_t journal_mark(struct journal *j);
bool journal_wait(struct journal *j, uint64_t mark, uint64_t deadline_ms);
/* The disk does not answer: nobody waits for its commits any more, until one has succeeded. What
 * was to be on it is told by another directory, as when a commit fails. */
void journal_give_up(struct journal *j);
/* How long the writer has been with the disk; 0: it is not. */
uint64_t journal_busy_ms(const struct journal *j);
/* What the directories in use say of those that are not has changed: all commit a newer session's
 * number. */
void journal_fall_behind(struct journal *j);
/* What a directory's thread wants of the writer while the disk is out of use. */
enum journal_order {
    JOURNAL_NO_ORDER,
    JOURNAL_LEAVE,                   /* closes the index, so that its file system can go */
    /* Opens it again; what waited is committed. ERR_DISK; ERR_CHANGED: it is not as it was left,
     * and lost. */
    JOURNAL_ENTER,
    /* Instead of a lost one that was left: begins with an empty one. What waited is let go. */
    JOURNAL_RENEW,
    /* Of a directory that was absent: opens what is there, or makes it. All that it holds is
     * doubtful from then on. It still takes nothing (journal_found()). ERR_DISK; ERR_NEWER;
     * ERR_CHANGED: it cannot be used. */
    JOURNAL_JOIN,
};
/* Waits for at most cache.disk_timeout: ERR_BUSY. */
must_check enum err journal_obey(struct journal *j, enum journal_order order);
/* The index failed while it was in use: it takes nothing until it is renewed. */
bool journal_is_lost(struct journal *j);
/* It was read, and is damaged; why NULL: that was told. The directory falls behind. The writer, or
 * the directory's thread. */
void journal_lose(struct journal *j, const char *why);
void journal_found(struct journal *j); /* behind JOURNAL_JOIN: it takes what comes */
/* commit now: room is short, the session's number changed, chunks wait to be reaped */
void journal_poke(struct journal *j);
/* Commits what it can, ends the thread; NULL is fine. false: it hangs in a system call, and goes on
 * using the directory. */
bool journal_stop(struct journal *j);
/* The same, then frees: when the other journals have stopped. Not one that hangs. */
void journal_close(struct journal *j);

/* ---- the whole ---- */
enum { CACHE_DIRS_MAX = 16, CACHE_SHARDS = 64, CACHE_INDEX_BYTES_MIN = 64 * MIB };

/* What stands in one page of a slab: eviction samples here. */
struct resident_page {
    union {
        void *one;                   /* the page is one slot: a chunk, or packed.h's item */
        void **many;                 /* by position; allocated while used > 0 */
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
struct doomed {                      /* keys of records to delete, CHANGE_KEY_BYTES each */
    uint8_t *key;
    uint32_t count, cap;
};
struct load {                        /* of one directory's index */
    bool behind;
    bool joins;                      /* while others are served */
    uint64_t began_ms;
    uint64_t objects_said, chunks_said; /* by the index */
    uint64_t objects, chunks, dropped, sequence;
    uint64_t no_room;                /* of those dropped: cache.index_memory is full */
    struct doomed objects_doomed, chunks_doomed;
};
struct sums {                        /* CRCs that the start left behind: sums.c */
    struct list wants;               /* transfers that wait for some; under disk.lock */
    _Atomic uint64_t left;           /* chunks in the index that lack theirs; grows at the start */
    atomic_bool gone;                /* no more can be had; who lacks them is about to leave */
    struct reader *reader;           /* the thread's own, as the next; NULL: all were met */
    uint64_t began_ms, read;
    uint32_t page;                   /* of residents: how far those who lack them have left */
};
struct directory {
    struct cache *cache;
    unsigned number, metric;         /* own index; index of the label `disk` */
    const char *path;                /* borrowed from the configuration */
    int fd, lock_fd, slab_fd, starts_fd;
    unsigned failed_starts;          /* in a row, before this one */
    bool fresh;                      /* no header stood here before this start */
    uint64_t grow_to;                /* the slab is to become so long; 0: it stays */
    uint64_t noted_bytes;            /* of the slab, as its header still says; 0: it is right */
    bool slab_made;                  /* the slab file is new: no record can be right */
    struct header_record header;
    /* of its last commit; lower than another's: it missed something */
    uint64_t session;
    uint64_t members;                /* as in struct cache, of its last commit; 0: not known */
    _Atomic uint64_t doubt_below;    /* object records with a lower commit number are doubtful */
    bool doubt_all;                  /* what says which are doubtful is damaged, or tells so */
    pthread_mutex_t starts_lock;     /* of the file of that name */
    _Atomic bool distrusted;         /* so noted for the next start */
    bool condemned;                  /* the next start moves the index aside */
    _Atomic bool absent;             /* left out at the start, and not joined since */
    int failed;                      /* errno of the last refusal of dir.c; 0: none */
    enum disk_cause refused;         /* as it was told last; its thread's own */
    char *mount;                     /* where its file system is; owned; NULL: not known */
    bool blocks;                     /* beginning to read or write may wait there */
    bool away;                       /* nothing of it is open; its thread's own */
    bool left;                       /* its index may be closed, now or soon; the same */
    bool renewed;                    /* pages below rewritten are in the new index; the same */
    uint32_t rewritten;
    struct handover *handover;       /* until the cache is open */
    struct sums sums;
    struct load load;
    struct space *space;
    struct journal *journal;
    struct residents residents;
    /* as space_class_room() counts: may not be evicted; a pin names it, but over PINNED_PERCENT */
    _Atomic uint64_t pinned_bytes, unpinned_bytes;
    struct disk disk;
    _Atomic uint32_t *half;          /* halves.c's: of each granule of the first pages */
    uint32_t half_pages;
    _Atomic uint64_t limbo_bytes;    /* out of the index, not yet free */
    _Atomic uint32_t denied;         /* policy_denials() */
    _Atomic uint64_t bridge;         /* limbo_bytes at its most of late, or half of the reserve */
    _Atomic uint64_t read_errors, write_errors, sync_errors, checksum_failures;
    _Atomic uint64_t index_errors, index_dropped, index_moved;
    _Atomic uint64_t told[9];        /* of those, late ones and fences: already in the metrics */
};
struct index_shard {
    pthread_mutex_t lock;
    struct index_table table;
} __attribute__((aligned(64)));
enum { EPOCH_STRIPES = 65536, EPOCH_BUCKETS = 4096 };
struct epochs {
    /* How often writes of such keys began or ended; in the lower half how many are under way. */
    _Atomic uint64_t key[EPOCH_STRIPES];
    struct bucket_epoch {
        _Atomic uint64_t count;      /* the same */
        _Atomic uint64_t lists;      /* the same, of writes to any key of the bucket, too */
        _Atomic uint64_t after;      /* what was vouched for before that is doubtful; durable */
    } bucket[EPOCH_BUCKETS];
    _Atomic uint64_t newest;         /* the highest `after` of them */
    _Atomic uint64_t *after;         /* the same, of versions of keys of EPOCH_STRIPES */
    _Atomic uint8_t versions[EPOCH_STRIPES / 8];  /* bit per stripe: some were here */
};
struct chunk_home {                  /* the generation that an upload became */
    struct id object_id, data_id;
    uint32_t serial;
    uint64_t size;
};
struct upload {
    struct object *object;           /* hidden; held */
    /* What came before the layout was known: a hidden object of its own, or NULL. Its chunks from
     * tail_from on are those of the whole from tail_first on, up to before tail_end. */
    struct object *tail;
    uint64_t tail_from, tail_first, tail_end;
    struct chunk_home home;          /* once it is pended; size 0: there is none */
    uint64_t part_bytes;             /* of a multipart upload */
    uint64_t moved;                  /* chunks looked at while it is published */
    bool pended;
    bool listed;                     /* in the table: under its lock */
};
struct upload_table {                /* multipart uploads under way */
    pthread_mutex_t lock;
    struct list list;                /* the oldest first */
    unsigned count;
};
enum { LISTING_CHAINS = 1024 };
struct listings {
    pthread_mutex_t lock;
    struct list chain[LISTING_CHAINS];
    struct list by_use;              /* the least recently used first */
    uint64_t bytes, limit;           /* of all, also of those that are held but gone */
};
enum { STATE_VALUES_BYTES = 16 * MIB }; /* of all, their records' heads included */
struct state_table {                 /* state.c: small named values */
    pthread_mutex_t lock;
    struct list list;
    unsigned count;
    size_t bytes;
    _Atomic uint32_t owed;           /* bit per directory that lacks some of them */
};
struct reap {                        /* chunks of a generation that is gone, still to be dropped */
    struct reap *next;
    struct id data_id, object_id;
    uint64_t number, count;          /* next chunk; chunks of the object */
    uint32_t serial, left;           /* left: resident ones at most */
    enum label_evict cause;
};
/* ---- rules.c: what the operator says of names ---- */
enum {
    RULE_SECTIONS = 2 * CONF_BUCKETS_MAX, /* 0 is none; half of them may be of before a reload */
    PINNED_PERCENT = 90,             /* of a directory, at most */
};
struct rule_name {
    char *text;                      /* owned, as clients say it; NULL: it is not used */
    char *bucket;                    /* owned, as the store says it; NULL: no upstream has it */
    struct span prefix;              /* of the keys; in text */
    uint8_t store;
};
struct pin {
    struct rule_name name;
    uint64_t until_s;                /* wall clock; 0: for good */
};
struct section {                     /* a [[bucket]] section, and what is here of it */
    struct rule_name name;
    bool live, pin;                  /* live: it is configured now */
    unsigned metric;                 /* index of the label `bucket` */
    _Atomic uint64_t quota_bytes;    /* 0: none */
    _Atomic uint64_t bytes;          /* of slots */
    pthread_mutex_t lock;            /* of what follows; nests inside a stripe and rules.lock */
    void **item;                     /* as in residents */
    uint32_t count, cap;
};
struct rules {
    pthread_mutex_t lock;            /* of names, live and pin; nests inside a stripe */
    pthread_mutex_t turn;            /* one tick at a time */
    _Atomic bool any;                /* there is a section or a pin */
    _Atomic uint64_t changes, walked; /* equal: all chunks are judged as the names say now */
    struct section section[RULE_SECTIONS];
    struct pin pin[CACHE_PINS_MAX];
};
struct verdict {
    uint8_t section;                 /* 0: none */
    bool pinned;
};
struct learner {                     /* learner.c: the policy's thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool made, runs, stop;           /* stop: under the lock */
};
struct sizer_lane {                  /* reads of some threads, until the policy's thread comes */
    pthread_mutex_t lock;            /* of count and read */
    _Atomic bool full;               /* then nothing is counted below either */
    uint32_t count;
    struct sizing_read *read;        /* owned */
    _Atomic uint16_t tag[POLICY_GROUPS]; /* by its number */
    _Atomic uint64_t asked[POLICY_GROUPS], served[POLICY_GROUPS], fetched[POLICY_GROUPS];
} __attribute__((aligned(64)));
enum { SIZER_LANES = 16 };
struct sizer {                       /* sizer.c */
    struct sizing *sizing;           /* NULL: it could not be made */
    pthread_mutex_t lock;            /* of it */
    _Atomic uint32_t limit;          /* which chunks it wants */
    struct sizing_read *spare;       /* owned */
    struct sizer_lane lane[SIZER_LANES];
};
struct cache {
    struct server *server;
    const struct config *config;
    uint8_t secret[32];
    uint8_t hash_secret[192];        /* made from it, as XXH3 wants it */
    struct index_shard object[CACHE_SHARDS], chunk[CACHE_SHARDS];
    struct index_shard header;             /* interned header sets */
    struct index_shard kin;                /* what packed objects share */
    struct packing {                       /* packing.c's */
        _Atomic uint64_t packed;           /* objects */
        pthread_mutex_t lock;              /* of the notes; nests inside a stripe */
        struct id *note;                   /* a ring */
        uint32_t first, cap;
        uint32_t noted;
        bool lost;                         /* one found no room */
        _Atomic uint64_t larger;           /* entries that were noted; each once */
        uint64_t worked_ms;                /* the policy's thread's, as the rest */
        uint32_t shard, at;                /* how far the hand is */
    } packing;
    struct cells *sums;                    /* CRCs of large chunks; NULL as long as the next is */
    struct cells *cells;                   /* what the tables' items stand in, but for those */
    /* Orders what happens to the records of one object and its chunks; taken before any shard,
     * journal or residents lock, on the hit path only to unpack what was not read for a while. */
    struct index_shard stripe[CACHE_SHARDS];
    struct directory dir[CACHE_DIRS_MAX];
    struct transfers transfers[KEEPERS];
    unsigned dir_count;
    _Atomic uint64_t members;        /* numbers of all directories in use, by exclusive or */
    struct pool *pool;
    struct policy *policy;
    struct learner learner;
    struct sizer sizer;
    uint64_t index_limit_bytes;
    _Atomic uint64_t index_bytes, object_count, chunk_count;
    struct { _Atomic uint64_t ms; _Atomic uint32_t in_a_row; } learnt_not; /* for want of room */
    _Atomic uint32_t serial;         /* of generations */
    _Atomic uint64_t sequence;       /* of object records: the higher one is newer */
    struct epochs epochs;
    struct upload_table uploads;
    struct listings listings;
    struct rules rules;
    struct state_table values;
    _Atomic uint64_t session;        /* grows at each start and whenever a directory falls behind */
    _Atomic uint64_t evicted_bytes[LABEL_evict_COUNT], refused_bytes;
    uint64_t told_evicted[LABEL_evict_COUNT], told_refused; /* under count_lock */
    _Atomic uint64_t ahead_read, ahead_lost; /* bytes of chunks that were fetched ahead */
    uint64_t told_ahead_read, told_ahead_lost; /* likewise */
    struct metric_set *metrics;
    pthread_mutex_t count_lock;
    pthread_mutex_t reap_lock;
    struct reap *reap;
};

/* ---- cache.c ---- */
/* On the monotonic clock, which the condition uses; the lock is held. */
static inline void cache_wait(pthread_cond_t *wake, pthread_mutex_t *lock, uint64_t ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + ms % 1000 * 1000000;
    at.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(wake, lock, &at);
}
/* what was counted here goes to the metrics */
void cache_tell(struct cache *c);

/* ---- disk.h's functions on what stands here ---- */
static inline bool directory_is_up(const struct directory *d)
{
    return atomic_load_explicit(&d->disk.state, memory_order_acquire) == DISK_UP;
}
/* It has nothing yet but a journal, which is lost; nobody but its thread looks at the rest. */
static inline bool directory_is_absent(const struct directory *d)
{
    return atomic_load(&d->absent);
}
enum chunk_state {
    CHUNK_RECORDED = 1,              /* a record names it, or is queued */
    CHUNK_DEAD = 2,                  /* out of the index */
    CHUNK_STUCK = 4,                 /* its removal could not be queued: the slot stays taken */
};
/* ---- chunk_memory.c: a chunk of so many bytes, and its CRCs ---- */
must_check struct chunk *chunk_take(struct cache *c, uint32_t bytes); /* zeroed; NULL: no memory */
/* The same, but CRCs that do not stand in the head come later. */
must_check struct chunk *chunk_take_head(struct cache *c, uint32_t bytes);
/* Of whole chunks so. Returns how many: fewer when memory is refused. */
must_check unsigned chunk_take_heads(struct cache *c, unsigned count, void **out);
/* Here they are, as a record has them, so many as the chunk has granules; stripe held. false: no
 * memory. */
must_check bool chunk_add_sums(struct cache *c, struct chunk *k, struct span crcs);
/* CRCs by granule; NULL: they are still to be read (sums.c). */
static inline uint32_t *chunk_sums(const struct chunk *k)
{
    return atomic_load_explicit(&k->crc, memory_order_acquire);
}
void chunk_give(struct cache *c, struct chunk *k);
/* The rest is given by its head's size. */
void chunk_give_sums(struct cache *c, struct chunk *k);
static inline uint32_t chunk_granules(uint32_t bytes)
{
    return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES;
}
size_t chunk_head_size(uint32_t bytes);
size_t chunk_sums_size(uint32_t bytes);                /* 0: they stand in its head */
static inline size_t chunk_size(uint32_t bytes)        /* what is charged */
{
    return chunk_head_size(bytes) + chunk_sums_size(bytes);
}
/* One more hold of who has one. */
static inline void chunk_hold(struct chunk *k)
{
    atomic_fetch_add_explicit(&k->holds, 1, memory_order_relaxed);
}
/* ---- halves.c: checksums of the first halves of granules, as far as they are known ---- */
uint64_t halves_open(struct cache *c); /* bytes of cache.memory that it took */
void halves_close(struct cache *c);
void halves_forget(const struct directory *d, struct slot slot); /* a chunk takes it */
/* 0: it is not known. The chunk is held, the granule is one of its own. */
uint32_t halves_get(const struct cache *c, const struct chunk *k, uint32_t granule);
/* crc 0: nothing */
void halves_set(const struct cache *c, const struct chunk *k, uint32_t granule, uint32_t crc);

/* ---- learner.c: the policy learns, and what it learnt is kept ---- */
must_check enum err learner_open(struct cache *c);     /* the directories are read */
void learner_close(struct cache *c); /* before the journals stop; not opened is fine */
/* ---- sizer.c: what other sizes of the cache would give ---- */
void sizer_open(struct cache *c);    /* the policy is there */
void sizer_close(struct cache *c);   /* neither cores nor journals run; not opened is fine */
/* The policy's thread: takes what was read since. True: there was much. */
bool sizer_take(struct cache *c);
void sizer_tell(struct cache *c);    /* to the metrics */

/* ---- dir.c: one directory's files ---- */
/* Lock, header, never the index. Leaves d->fresh for a new one. */
must_check enum err directory_open(struct directory *d, char why[512]);
/* After the secret is known: header of a fresh directory, slab. */
must_check enum err directory_prepare(struct directory *d, char why[512]);
void directory_close(struct directory *d);
/* Behind the load: what a smaller cache.size cuts off. */
void directory_trim_slab(struct directory *d);
/* Renames index/ to index.damaged-N, at most three of which are kept. */
must_check enum err directory_move_index(struct directory *d, const char *cause);
/* A start that dies or fails between those two counts as failed; after STARTS_FAILED_MAX of them in
 * a row the index is moved aside. */
void directory_risk_begin(struct directory *d);
void directory_risk_end(struct directory *d);
bool directory_start_failed_often(const struct directory *d);
/* All records of this directory are doubtful for the next start. Kept beside the index, where no
 * commit and no free block is needed. false: it could not be noted. */
bool directory_distrust(struct directory *d);
void directory_trust(struct directory *d);
void directory_started(struct directory *d);           /* this one did not fail */
/* The next start is to move the index aside, whatever becomes of us. false: that is not noted. */
bool directory_condemn_index(struct directory *d);
/* In a forked child: the locks are the parent's alone. */
void directory_unlock_child(struct cache *c);

/* Lets go of all files, so that their file system can go: nothing is under way on them. */
void directory_let_go(struct directory *d);
/* The same directory, opened afresh; nothing is made or changed unless it is. */
must_check enum err directory_reopen(struct directory *d, char why[512]);

/* Closes what is open: of one that cannot be used. */
void directory_shut(struct directory *d);

/* ---- return.c: what the thread of a directory does about a loss ---- */
/* The file system at its path is no more the one that was opened: lets go of that, and takes the
 * directory from the one that is there now. false: it is not (yet) there. */
bool directory_return(struct directory *d);
/* Writes a lost index anew from memory; a part at a time. true: more is to be done. */
bool index_renew(struct directory *d);
/* index_chunks.c; stripe held: no record names it; one is made if it has none. */
void chunk_unrecord(struct chunk *k);
void chunk_record(struct cache *c, struct chunk *k);
/* evict.c: visit is called for each chunk in that page, under the stripe of its object; of packed
 * ones, which have their CRCs, for none, or for those that have no record. */
void residents_visit(struct directory *d, uint32_t page, bool unrecorded,
                     void (*visit)(struct cache *c, struct chunk *k));
void state_untold(struct directory *d); /* state.c: that directory has none of the values */

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
/* Such work as a function: what it returns, or `faulted`. */
int fault_run(int (*work)(void *arg), void *arg, int faulted);

/* ---- epoch.c: writes through us ---- */
void epoch_prefetch(const struct cache *c, const struct okey *k); /* will be looked at soon */
/* At load: what is known durably of the stripe of that name in `state`. false: no such. */
bool epoch_load(struct cache *c, struct span name, uint64_t after);
enum { EPOCH_NAME_BYTES = 12 };
static const char EPOCH_NAMES[] = "epoch/";            /* what those names begin with */
/* A bucket write made doubtful what was vouched for then. Else *vouched moves on. */
bool epoch_doubts(struct cache *c, uint16_t bucket_stripe, _Atomic uint64_t *vouched);
/* A bucket write is under way, even if it has only just begun. */
bool epoch_bucket_is_written(struct cache *c, uint16_t bucket_stripe);
/* A version of such a key is about to be here; before its epoch is found to hold. */
void epoch_note_version(struct cache *c, uint16_t key_stripe);
/* Of a version, which a write of its key without version hits as well. */
bool epoch_doubts_version(struct cache *c, struct epoch e, const _Atomic uint64_t *vouched);
/* Writes of the bucket, or of keys in it: a count that moves when one begins or ends. */
uint64_t epoch_lists(struct cache *c, uint16_t bucket_stripe);
/* It stands where it stood, and none was under way then. */
bool epoch_lists_hold(struct cache *c, uint16_t bucket_stripe, uint64_t count);
/* The writer: as for the failure of a commit. noted: the directory will not be trusted. */
void write_failed(struct cache_write *w, unsigned dir, bool noted);
/* The writer: on to the next directory, or the owner is woken. */
void write_go_on(struct cache_write *w);

/* Nobody else has written, or writes, the key since w began; the key's stripe is held. */
bool write_is_alone(struct cache *c, const struct cache_write *w);

/* ---- upload.c: bodies on their way; what they need of the index ---- */
/* An object that no key leads to: held, without records. NULL: no memory. */
struct object *index_hide(struct cache *c, const struct okey *of, uint64_t size);
/* The answer's generation becomes the key's, doubtful, if w was alone. ERR_CHANGED, ERR_MEMORY. */
must_check enum err index_pend(struct cache *c, const struct okey *k, const struct object_facts *f,
                               const struct cache_write *w, struct chunk_home *home);
/* The hidden object's chunk, if it is there and nobody has it, becomes the home's with the number
 * `to` and is recorded. */
void chunk_move(struct cache *c, const struct object *hidden, uint64_t number,
                const struct chunk_home *home, uint64_t to);
/* Those blocks are written anew, or not at all. */
void chunk_blank(struct cache *c, const struct object *hidden, uint64_t number, uint8_t blocks);
/* CRCs of a chunk's granules, of that many bytes, as they are under another name. */
struct chunk_name {
    struct id data_id;
    uint64_t number;
};
void chunk_rename_crc(struct chunk_name from, struct chunk_name to, uint32_t bytes, uint32_t *crc);
must_check bool upload_open(struct cache *c, struct upload *u, const struct okey *k, uint64_t size);
void upload_close(struct cache *c, struct upload *u);
void upload_close_tail(struct cache *c, struct upload *u); /* without one: nothing */
/* uploads.c: multipart ones */
void uploads_init(struct cache *c);
void uploads_fini(struct cache *c);
void uploads_expire(struct cache *c); /* those that are too old go */
/* lists.c */
void listings_init(struct cache *c);
void listings_fini(struct cache *c);

/* ---- state.c: small named values ---- */
enum { STATE_VALUE_MARK = '=' };     /* what their names begin with in `state` */
void state_init(struct cache *c);
void state_fini(struct cache *c);
/* At load, one record; stale: the directory is behind. ERR_RECORD, ERR_NEWER, ERR_FULL,
 * ERR_MEMORY. */
must_check enum err state_load(struct directory *d, struct span name, struct span record,
                               bool stale);
/* All directories were read and no writer runs: what they lack is queued. */
void state_loaded(struct cache *c);
/* The writer: what could not be queued for that directory is tried again. */
void state_tell(struct directory *d);
/* *at is at least that. */
static inline void move_up(_Atomic uint64_t *at, uint64_t to)
{
    uint64_t now = atomic_load(at);

    while (now < to && !atomic_compare_exchange_weak(at, &now, to))
        ;
}

/* ---- rules.c ---- */
void rules_init(struct cache *c);
void rules_fini(struct cache *c);
/* The sections of the start; before any record is loaded. ERR_MEMORY, ERR_BUSY. */
must_check enum err rules_open(struct cache *c);
void rules_loaded(struct cache *c);  /* the pins, once all directories were read */
/* ERR_MEMORY; ERR_BUSY: sections of before the reload must lose their chunks first. */
enum err rules_apply(struct cache *c, const struct config *config);
/* Of a name: store, bucket and key of *k. */
struct verdict rules_judge(struct cache *c, const struct okey *k);

/* ---- quota.c: how much a section may hold, and how much may be pinned ---- */
/* What the rules say of an object's chunks. */
struct verdict quota_judge(struct cache *c, const struct object *o);
/* The chunk stands in the index; it leaves it; its name is judged anew. Stripe held. */
void quota_enter(struct cache *c, struct chunk *k, struct verdict v);
void quota_leave(struct cache *c, struct chunk *k);
/* One form of it takes the other's place in the array of its section (0: none). */
void quota_swap(struct cache *c, uint8_t section, const void *old, void *item);
struct packed;
struct small;
/* As quota_enter() and quota_leave(), of a packed one: at a start, with MARK_PINNED as the verdict
 * says; and as s says. */
void quota_enter_packed(struct cache *c, struct packed *p);
void quota_leave_packed(struct cache *c, struct packed *p, const struct small *s);
void quota_judge_again(struct cache *c, struct chunk *k, struct verdict v);
/* Room within the quota of the section that rules the object, for a new chunk of it in that
 * directory; the section's own chunks may leave for it. Sets or clears MARK_PINNED of the new one's
 * mark. ERR_QUOTA: it is not to be kept. */
must_check enum err quota_room(struct directory *d, const struct object *o, uint32_t bytes,
                               struct policy_mark *mark);
void quota_trim(struct cache *c);    /* what is over a quota that was lowered leaves */
void quota_tell(struct cache *c);
void quota_status(struct cache *c, struct cache_status *out);

/* ---- index.c, index_objects.c, index_chunks.c ---- */
static inline struct index_shard *index_shard(struct index_shard *shards, struct id id)
{
    return &shards[id.a % CACHE_SHARDS];
}
static inline uint64_t chunk_hash(struct id data_id, uint64_t number)
{
    return data_id.b ^ (number + 1) * 0x9E3779B97F4A7C15;
}
/* In the tables. Records are loaded in the order of their keys, and places in the tables stand in
 * the order of the upper half of these: so a start writes its tables from front to back. The chunks
 * of an object follow each other there, but only so many of them, as what has one home is looked
 * for one after the other. */
enum { CHUNKS_NEAR = 2 * 64 };       /* two in each shard */
static inline uint64_t index_hash(struct id id)
{
    return id.a;
}
static inline uint64_t index_chunk_hash(struct id data_id, uint64_t number)
{
    uint64_t home = data_id.a + number / CHUNKS_NEAR * 0x9E3779B97F4A7C15;

    return (home & ~(uint64_t)UINT32_MAX) | (uint32_t)chunk_hash(data_id, number);
}
/* By number too: one big object must not gather all its readers at one lock. */
static inline struct index_shard *chunk_shard(struct cache *c, struct id data_id, uint64_t number)
{
    return &c->chunk[(data_id.a + number) % CACHE_SHARDS];
}
struct id index_object_id(const struct cache *c, const struct okey *k);
/* For tables; of texts that follow each other. */
uint64_t index_texts_hash(const struct cache *c, const struct span *text, unsigned count);
void index_locks(struct cache *c);                     /* first of all */
must_check bool index_make(struct cache *c);           /* the secret is known; false: no memory */
void index_fini(struct cache *c);
/* Memory of the index: false = the limit is reached and nothing more could be evicted. */
must_check bool index_charge(struct cache *c, uint64_t bytes);
void index_uncharge(struct cache *c, uint64_t bytes);
uint64_t index_limit(const struct cache *c);           /* how much of it may be charged now */
/* At load: nothing is evicted for it. */
must_check bool index_charge_free(struct cache *c, uint64_t bytes);
/* Whatever the limit: for what takes the place of something larger, or goes again at once. */
void index_charge_always(struct cache *c, uint64_t bytes);
void index_charge_cell(struct cache *c, uint64_t bytes); /* the same, of struct cells */
void index_uncharge_cell(struct cache *c, uint64_t bytes);
/* So many times so much, where that is little against the room that there is; of count 0 false.
 * What is not used goes back. */
must_check bool index_charge_plenty(struct cache *c, uint64_t bytes, unsigned count);
void index_uncharge_many(struct cache *c, uint64_t bytes, unsigned count);
/* The entry of that hash into the CPU's caches; needs no lock, as a wrong address does no harm. */
void index_prefetch(const struct index_shard *s, uint64_t hash);
/* At load: room for so many more. */
must_check bool index_reserve_many(struct cache *c, struct index_shard *s, uint64_t count);
/* room for one more, locked */
must_check bool index_reserve(struct cache *c, struct index_shard *s);
struct header_set *headers_intern(struct cache *c, struct span text); /* counted; NULL: no memory */
void headers_drop(struct cache *c, struct header_set *h);
struct span headers_span(const struct header_set *h);

/* The private half of an object. */
struct entry {
    struct object o;                 /* first */
    struct header_set *headers;
    _Atomic uint64_t vouched;        /* sequence when upstream last vouched for it, or later */
    uint64_t commit;                 /* under the stripe: of its newest record */
    _Atomic uint32_t saved_s;        /* checked_ms as last queued for the record, in seconds */
    _Atomic uint32_t read_s, saved_read_s; /* wall clock of the last read; as last queued */
    _Atomic uint32_t chunks;         /* under the stripe: resident ones; also read without it */
    /* generation: equal in entries that differ in headers or time only; under the stripe, too */
    uint32_t serial;
    uint32_t dirs;                   /* bit per directory that has (or will have) its record, */
    uint32_t doubted;                /* and has it as doubtful */
    uint16_t bucket_stripe;
    uint16_t bucket_len, key_len, version_len, etag_len; /* words.c's, as text */
    bool noted;                      /* packing.c's: counted there; under the stripe */
    char text[];
};
static inline struct entry *entry_from(struct object *o)
{
    return container_of(o, struct entry, o);
}
static inline const struct entry *const_entry(const struct object *o)
{
    return container_of(o, const struct entry, o);
}
/* ---- words.c: what stands in text ---- */
bool words_fit(const struct okey *k, const struct object_facts *f);
size_t words_entry_bytes(const struct okey *k, const struct object_facts *f); /* of their entry */
size_t entry_bytes(const struct entry *e);
void words_keep(struct entry *e, const struct okey *k, const struct object_facts *f);

/* The entry of that id in the index, or NULL; the stripe is held, so that it stays. A packed one is
 * unpacked. */
struct entry *entry_of(struct cache *c, struct id object_id);
void *index_object_item(struct cache *c, struct id object_id); /* the same, as it is */
/* Of an object that was packed, in no table; charged whatever the limit. NULL: no memory. */
must_check struct entry *entry_restore(struct cache *c, const struct okey *k,
                                       const struct object_facts *f);
void entry_free(struct cache *c, struct entry *e);     /* nobody holds it, and it is in no table */
/* Puts e into the table in the place of whatever is there, which is not packed, and is returned
 * with the index's hold; e is held once more. false: no memory. */
must_check bool entry_install(struct cache *c, struct entry *e, struct entry **old);
/* It leaves the index for good: flags, records; stripe held. What is left to be dropped. */
struct reap entry_retire(struct cache *c, struct entry *e);
/* Out of the table and freed, if nobody holds it and it has no chunks. */
bool index_evict_idle(struct cache *c, struct id id);
/* At load, while chunks are read and no object changes: what will be looked at of it. */
void entry_prefetch(struct cache *c, struct id object_id);
/* with a new commit number; stripe held */
void entry_record(struct cache *c, struct entry *e, struct object_record *out);
/* that one was queued for the directory; stripe held */
void entry_recorded(struct entry *e, const struct object_record *r, unsigned dir);
/* Doubtful from now on, also on disk; stripe held. */
void entry_doubt(struct cache *c, struct entry *e);
void entry_unrecord(struct cache *c, struct entry *e);  /* its records are deleted; stripe held */
void entry_count(struct cache *c, struct entry *e, int delta); /* of its chunks; stripe held */
must_check enum err index_load_object(struct directory *d, struct id id,
                                      const struct object_record *r, bool doubt);
uint16_t index_bucket_stripe(struct cache *c, struct span bucket);
uint16_t index_key_stripe(const struct cache *c, const struct okey *k); /* by its id and texts */
/* Records do not tell their store, but their ids do: finds the one that gives k->id. STORE_NONE: it
 * is none of those that are configured now, and no look-up will lead there. */
enum { STORE_NONE = UINT8_MAX };
void index_find_store(const struct cache *c, struct okey *k);
/* Whatever is known of that id (data_id: if it is of that generation) is forgotten, its chunks are
 * dropped for that cause; no stripe held. */
void index_forget(struct cache *c, struct id id, const struct id *data_id, enum label_evict cause);
/* The record again, if it has one and o is still the current generation. */
void index_save(struct cache *c, struct object *o);
void index_sweep_objects(struct cache *c);             /* those without chunks, at load */
/* chunks of a dead generation */
void index_drop_data(struct cache *c, struct reap *r, uint32_t most);
bool index_reap(struct cache *c, uint32_t most);       /* true: more is waiting */
/* As it is, and whosever; the lock is held. */
void *index_chunk_item(const struct index_shard *s, struct id data_id, uint64_t number);
/* The object's chunk, not held: for who holds the object's stripe. NULL: there is none, or it is
 * another object's with the same bytes. */
struct chunk *chunk_peek(struct cache *c, struct id object_id, struct id data_id, uint64_t number);
/* A copy; readers may go on referring to the chunk meanwhile. */
struct policy_mark chunk_mark(const struct chunk *k);
/* Takes a chunk out of the index; stripe of k->object_id held. false: held by someone (and
 * !even_held), or gone already. */
bool chunk_remove(struct cache *c, struct chunk *k, bool even_held, enum label_evict cause);

/* ---- evict.c: who leaves ---- */
must_check enum err residents_make(struct residents *r, uint32_t pages); /* may be none at first */
must_check enum err residents_extend(struct residents *r, uint32_t pages); /* instead of none */
void residents_fini(struct residents *r);
/* item: the chunk, or the packed object with it. */
must_check bool residents_add(struct cache *c, struct slot slot, void *item);
/* At load: many of one directory; err[i] of those where it is OK before: ERR_MEMORY. */
void residents_add_all(struct directory *d, const struct slot *slot, void *const *item,
                       unsigned count, enum err *err);
static inline void residents_prefetch(const struct residents *r, uint32_t page)
{
    if (page < r->pages)
        __builtin_prefetch(&r->place[page], 1);
}
void residents_remove(struct cache *c, struct slot slot, const void *item);
void residents_swap(struct cache *c, struct slot slot, const void *old, void *item);
struct victim {
    struct id data_id, object_id;
    uint64_t number;
    struct slot slot;
    double value;                    /* INFINITY: none was found */
    uint16_t group;
    bool pinned, planned;            /* such a one was looked at */
};
/* It becomes the victim if it may leave and is cheaper. Whoever calls keeps it in the index. */
void victim_look(const struct policy *policy, void *item, struct victim *best);
/* How many looks, where there would be so many without plans. */
unsigned victim_looks(const struct victim *best, unsigned count);
/* false: it is gone, or somebody holds it by now. */
bool victim_evict(struct cache *c, const struct victim *v, enum label_evict cause);
/* Of so many pages, those that stay free for what is to be written next. */
uint64_t evict_reserve(uint64_t pages);
uint64_t evict_least_free(uint64_t pages); /* while the policy would have nothing leave */
/* A slot for a new chunk. Evicts first when the directory runs low. ERR_FULL, ERR_DENIED,
 * ERR_PINNED (what could be found is pinned), ERR_MEMORY. */
must_check enum err evict_slot(struct directory *d, unsigned class_,
                               const struct policy_mark *mark, struct slot *out);
/* Any one chunk of the lowest value, to make room in RAM. */
bool evict_any(struct cache *c);

#endif
