/* What the files of a start know of each other: the child that reads an index, what it hands over,
 * and who loads that.
 *
 * Invariants:
 *  1. Nothing but cache.c, journal_env.c, recover.c, census.c, leaves.c, handover.c, load.c,
 *     index_load.c, reader.c, join.c, sums.c and, for recover_end(), disk.c includes this header.
 *
 * Life: that of a start; a struct directory has a struct load and a handover for it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_START_H
#define HEADPOND_CACHE_START_H

#include <endian.h>

#include "server/cache/inside.h"

/* ---- keys of records: numbers and ids as LMDB orders them ---- */
static inline uint64_t key_be64(const char *at)
{
    uint64_t n;

    memcpy(&n, at, sizeof n);
    return be64toh(n);
}
static inline struct id key_id(const char *at)
{
    return (struct id){key_be64(at), key_be64(at + 8)};
}

/* ---- handover.c: records from the child that reads an index to the threads that load it ---- */
struct index_facts {                 /* what `state` says, and how much there is */
    uint64_t session, members, doubt_below;
    uint64_t objects, chunks;
    bool doubt_all;
    enum err err;                    /* OK, or ERR_NEWER, ERR_OLDER: it cannot be used, */
    char why[512];                   /* and what to do */
};
struct handover;
struct segment;
struct handed {
    struct span key, value;          /* in the segment */
    bool verified;                   /* its CRC was, by who handed it over */
};
must_check struct handover *handover_make(void);       /* before the fork; NULL: no memory */
void handover_to_parent(struct handover *h);           /* the child, first of all; false below: */
/* nobody listens */
must_check bool handover_facts(struct handover *h, const struct index_facts *f);
/* Each thread of the child's writes a segment of its own; zeroed but for h. */
struct handover_writer {
    struct handover *h;              /* NULL: what it reads is not handed over */
    struct segment *open;            /* NULL: none is being filled */
};
must_check bool handover_put(struct handover_writer *w, enum journal_db db,
                             const struct handed *r);
must_check bool handover_flush(struct handover_writer *w); /* what it put is on its way */
must_check bool handover_sound(struct handover *h);    /* the last word, all have flushed */
/* The parent, first of all. The child is late when we waited for it for so long, in all. */
void handover_from_child(struct handover *h, pid_t child, uint64_t wait_ms);
must_check bool handover_wait_facts(struct handover *h, struct index_facts *out);
/* The next records; NULL: no more, or no more in time. From any number of threads. */
const struct segment *handover_take(struct handover *h);
void handover_give(struct handover *h, const struct segment *s);
void handover_stop(struct handover *h);                /* nothing more is handed out */
enum journal_db handover_db(const struct segment *s);
/* The record at *at, which begins as 0 and moves on; false: that was the last one. */
bool handover_next(const struct segment *s, uint32_t *at, struct handed *out);
/* The child's last word came. It may still be ending: unmapping a large file takes a while. */
bool handover_was_sound(const struct handover *h);
/* Ends the child and frees. false: it died, found disorder, was late, or was not waited for. */
bool handover_end(struct handover *h);

/* ---- census.c: which pages of an index were met, and whether their heads are sound ---- */
struct census {
    uint8_t *seen;                   /* bit per page */
    uint64_t last_page;
    size_t page_bytes;
    const uint8_t *base;             /* of the map; the first page that is met tells */
};
const uint8_t *census_page_of(const struct census *c, const void *at);
/* These are false: met before, out of range, not where it says, or not what it must be. Threads may
 * call the first four side by side, once base is known. */
must_check bool census_meet(struct census *c, uint64_t page);
/* As many as hold so many bytes. */
must_check bool census_meet_pages(struct census *c, const uint8_t *first, size_t bytes);
must_check bool census_meet_leaf(struct census *c, const uint8_t *leaf);
/* A record of a leaf that was met, and the pages of its own that a long value has; is_tree: it says
 * where a tree stands. */
must_check bool census_meet_node(struct census *c, struct span key, struct span value,
                                 bool is_tree);
/* What stands above a tree's leaves, which were met, from the root down. depth: levels, the leaves'
 * one too; 0: the tree is empty. */
must_check bool census_meet_branches(struct census *c, uint64_t root, unsigned depth);
/* Roots, by their pages' numbers: of the tree of which a record of the main one tells (0: not in
 * it); of the free list's tree (0) or of the main one (1), as that transaction, the last one, left
 * it: UINT64_MAX if that is empty, or its meta page is not what a writer would take. */
uint64_t census_root_in(struct span record);
uint64_t census_root(const struct census *c, uint64_t txn, unsigned tree);
/* Once all was met: the file does not claim to be much longer. Who appends would begin there. */
must_check bool census_is_complete(const struct census *c);

/* ---- leaves.c: what a walk over an LMDB tree will meet next ---- */
struct leaves {
    const uint8_t *map;              /* where page 0 stands */
    size_t page_bytes, last_page;
    uint64_t root;                   /* a page's number; 0: not known, then nothing happens */
    const uint8_t *branch;           /* its own: above the leaf that was met last, */
    unsigned at;                     /* and which of its nodes that is */
};
/* The walk has come to that leaf and to a key in it. */
void leaves_look_ahead(struct leaves *l, const uint8_t *leaf, struct span key);

/* ---- recover.c: checks an index and hands over what it holds ---- */
/* A child begins to walk it, and to hand over its records; nothing to do for a new one. ERR_MEMORY,
 * ERR_SYSTEM. */
must_check enum err recover_begin(struct directory *d, char why[512]);
/* What the child found in `state` stands in d. ERR_RECORD: damaged; ERR_NEWER, ERR_OLDER. */
must_check enum err recover_facts(struct directory *d, char why[512]);
/* The last of it, once the journal is open: small values; wrong records are deleted. */
must_check enum err recover_finish(struct directory *d);
/* Counts what a load dropped, with a line in the log: whatever counts a damage names it, too. */
void recover_tell_dropped(struct directory *d);
void recover_end(struct directory *d);                 /* waits for the child, or ends it */

/* ---- reader.c: records of an index that is open, some at a time ---- */
/* ERR_NOT_FOUND: there is nothing, or nothing behind what came with it; ERR_DISK: damaged. */
enum {
    READER_RECORDS = 64,
    READER_NAME_BYTES = 511,         /* LMDB's longest key */
    READER_BYTES = 4 * RECORD_BYTES_MAX,
};
struct MDB_cursor;
struct reader {                      /* of one sub-database; too large for a stack */
    struct directory *d;
    unsigned handle;
    struct MDB_txn *txn;
    struct MDB_cursor *cursor;
    uint8_t last[READER_NAME_BYTES]; /* the key before */
    size_t last_len, used;
    struct handed record[READER_RECORDS]; /* copies, in bytes */
    unsigned count;
    bool broken;                     /* by a fault: nothing of it is touched again */
    char bytes[READER_BYTES];
};
/* What stands there now; copies of the next records; the end, also of what was not begun. */
must_check enum err reader_begin(struct reader *r);
must_check enum err reader_copy(struct reader *r);
must_check enum err reader_end(struct reader *r);
/* All three for the records behind `last`, as they stand there by then. */
must_check enum err reader_slice(struct reader *r);
must_check enum err reader_look(struct reader *r, struct span key); /* one */

/* ---- sums.c: CRCs that a start leaves behind ---- */
must_check enum err sums_begin(struct directory *d);   /* before anything is loaded; ERR_MEMORY */
void sums_end(struct directory *d);                    /* when its thread has ended; or without */

/* ---- load.c: the records into the RAM index ---- */
/* Reads every record; behind: the directory missed something, all its objects become doubtful.
 * ERR_RECORD: the index is damaged, what was loaded must not be used; ERR_MEMORY. */
must_check enum err load_directory(struct directory *d, bool behind);
void load_fini(struct load *l);
unsigned load_threads(uint64_t records);               /* how many are worth their beginning */

/* ---- index_load.c: many chunks at once ---- */
/* Chunks of one directory, at most INDEX_LOADS; from any number of threads. One alone may come
 * while others are served, its object's stripe held: then its pointer is of no use. What does not
 * verify, does not fit its object, or claims a slot that is taken gets its error. */
enum { INDEX_LOADS = 256 };
struct index_loaded {
    enum err err[INDEX_LOADS];
    const struct policy_mark *mark[INDEX_LOADS]; /* the chunk's, where it is OK */
};
void index_load_chunks(struct directory *d, const struct handed *r, unsigned count,
                       struct index_loaded *out);

#endif
