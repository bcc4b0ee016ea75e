/* Fetching: who already brings what, one fetch per chunk in the whole process, and what a key is.
 *
 * Invariants:
 *  1. At most one fetch per (data id, chunk), and while an object is not known one asking per chunk
 *     of it, run at a time in the process; readers on any core join it. A write of the key through
 *     us divides them: those of before run on for their readers, those of now are others. So does a
 *     chunk that leaves (an operator evicts it) when some of it was written.
 *  2. A fetch outlives the clients that caused it. A reader that leaves never stops it.
 *  3. A fetch asks upstream with If-Match; what does not match generation, range or length is
 *     discarded and never delivered.
 *  4. Asked blocks come first; the rest of an admitted chunk behind them.
 *  5. Who goes upstream as somebody else joins neither askings nor fetches of others: what they are
 *     refused for says nothing about him.
 *  6. What a write of the key overtook is neither learnt nor kept: its bytes go from hand to hand.
 *  7. A waiter's struct is its own until busy is false again; delivery is one message to its core,
 *     also on the same core.
 *
 * Life: fills_open() after the cache and the origin, fills_close() after the last core. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_FILL_H
#define HEADPOND_FILL_H

#include <pthread.h>

#include "payload.h"
#include "server/cache/cache.h"
#include "server/origin/origin.h"

/* So much of a long answer comes first. An upstream's first flight holds it beside its head (ten
 * segments, RFC 6928, on a new connection and on one that was idle): more waits for round trips. */
enum { FIRST_BYTES = 8 * KIB };

/* What a client says of its reads (x-headpond-hint). */
enum fill_hint {
    HINT_ONCE = 1,                   /* is not kept on disk */
    HINT_SEQUENTIAL = 2,             /* what follows will be read, too */
    HINT_RANDOM = 4,                 /* nothing but the asked blocks will be */
    HINT_PREFETCH = 8,               /* others will read the chunk: it is kept as a prewarm's */
};

/* ---- what is behind a key ---- */
enum learn_kind { LEARN_GET, LEARN_HEAD };

struct upstream_error {              /* an error answer of upstream, to be passed on */
    uint16_t status;
    char code[64], message[256];
    bool marker;                     /* what is there is a delete marker: */
    char version[96];                /* its version; "" = not told, or longer */
    uint64_t last_modified_s;        /* 0 = not told */
};
/* One asking. Filled by the caller: m, kind, profile, hint, from, to. */
struct learn {
    struct message msg;
    struct node node;
    struct machine *m;
    enum learn_kind kind;
    uint8_t profile;                 /* as whom upstream is asked: struct ask */
    uint8_t hint;                    /* set of enum fill_hint */
    uint64_t from, to;               /* GET: the asked bytes (to = UINT64_MAX: to the end) */
    /* GET of a whole object in checksum mode: ask HEAD beside it */
    bool sums;
    bool patient;                    /* asks upstream only when nobody else waits for it */
    bool prewarm;                    /* nobody will read it now: it is kept, or not fetched */
    bool plan;                       /* of those: a loader said that it will soon */
    bool background;                 /* of those: it is the rest of what others read */
    bool busy, ended;
    bool joined;                     /* another request's asking was joined, */
    bool early;                      /* which had been sent before */
    uint8_t shard;
    /* ---- result ---- */
    /* OK: object is held; ERR_UNSUPPORTED: not storable, relay it; ERR_CHANGED: a write of the key
     * came between; ERR_NOT_FOUND, ERR_DENIED, ERR_UPSTREAM_STATUS: upstream holds the answer */
    enum err err;
    struct object *object;
    struct epoch epoch;              /* of the asking: for the waits on this object's blocks */
    struct upstream_error upstream;
};
/* Asks upstream what the key is now; with LEARN_GET the asked blocks come with the answer. Always
 * ends with a wake, also on error. fresh = an asking that was sent before this call may not be
 * joined (ttl 0). */
void fill_learn(struct core *c, const struct okey *k, struct learn *l, bool fresh);
/* The same without a waiter: the early revalidation. */
void fill_refresh(struct core *c, const struct okey *k, uint8_t profile);
bool fill_leave_learn(struct core *c, struct learn *l);  /* as fill_leave */
static inline bool learn_take(struct learn *l)
{
    bool was = l->ended;
    l->ended = false;
    return was;
}
/* The S3 code of an error status that came without a document. */
const char *fill_code_of_status(uint16_t status);
/* A 404 that upstream said less than ttl_ms (cache.negative_ttl) ago, unless the key was written
 * since. */
bool fill_known_missing(struct core *c, const struct okey *k, uint64_t ttl_ms,
                        struct upstream_error *out);
/* A bucket was made: that some bucket is not there is remembered no longer. */
void fill_forget_buckets(struct core *c);
/* A generation of this key died during a fill in the last 10 s: it changes faster than it can be
 * fetched in pieces. */
bool fill_died_lately(struct core *c, struct id id);

/* ---- bytes ---- */
struct wait {
    struct message msg;
    struct node node;
    struct machine *m;
    /* Of the reader: noted before it found the object, or its learn's. A fetch of another epoch is
     * not joined. */
    struct epoch epoch;
    uint8_t profile;                 /* of the reader, too: as whom upstream is asked */
    uint8_t hint;                    /* set of enum fill_hint; counts for a fetch that begins */
    uint8_t block, shard;            /* private, found by fill_want() */
    bool busy, ended;
    bool early;                      /* its reader has yet to look for the chunk, and will */
    bool looked;                     /* a wait for the same has ended without bytes */
    bool follows;                    /* he reads on: what is behind his bytes is as good as asked */
    uint16_t status;                 /* of upstream's refusal; 0 = it was none */
    uint32_t from, to;               /* bytes of the chunk that are wanted, all of one block */
    uint32_t told;                   /* those below were asked for before, by the same reader */
    uint32_t got_at, got_bytes;      /* of the chunk: the first byte in got, and how many follow */
    bool part, first;                /* behind them got is in the making; nobody had them before */
    enum err err;                    /* OK: got is held */
    struct buffer *got;
};
enum fill_turn {
    FILL_WAITS,
    FILL_GOT /* w->got is held, no wait */,
    FILL_LOOK /* it is on disk now: look again */,
    FILL_FULL /* the core has no more fetches: nothing was begun, ask again later */
};
/* The reader wants w->from..to of a chunk, which are neither in the pool nor on disk. upto: the
 * same request will read on to there. What comes is the whole block, or, if the chunk is only
 * passed through, what readers asked for: at least from..to. */
enum fill_turn fill_want(struct core *c, struct object *o, uint64_t number, uint32_t upto,
                         struct wait *w);
/* Will w->from..to come without upstream being asked once more? They are here, or of an answer that
 * is on its way: whatever the key becomes meanwhile, they belong to this object. */
bool fill_is_sure(struct core *c, const struct object *o, uint64_t number, const struct wait *w);
/* True: left. False: the delivery is on its way; wait for it (DRAIN), then give w->got back. */
bool fill_leave(struct core *c, struct wait *w);
static inline bool wait_take(struct wait *w)
{
    bool was = w->ended;
    w->ended = false;
    return was;
}
/* Read-ahead inside a request: starts the fetch of a chunk nobody fetches yet. false: not now
 * (limit reached), ask again later. distance: chunks that its reader is behind it. Of *like, epoch,
 * profile and hint count: the reader's, and from..to, here of any length. */
bool fill_ahead(struct core *c, struct object *o, uint64_t number, unsigned distance,
                const struct wait *like);

/* ---- prewarm: what nobody reads yet ---- */
/* One chunk that is brought. Filled by the caller: m, epoch, profile, plan, background. */
struct fetch_watch {
    struct message msg;
    struct node node;
    struct machine *m;
    struct epoch epoch;              /* noted before the object was found, or its learn's */
    uint8_t profile;                 /* as whom upstream is asked: struct ask */
    bool plan;                       /* a loader said that it will read it: before other prewarm */
    bool background;                 /* behind all prewarm, into room that nobody has */
    uint8_t shard;
    bool busy, ended;
    /* ---- how the fetch ended ---- */
    bool kept;                       /* what came was written */
    uint8_t refuse;                  /* label_refuse: why not */
    uint16_t status;                 /* of upstream's refusal; 0 = it was none */
    enum err err;
};
/* Brings what is missing of a chunk behind all that is asked for, or waits for who does already; m
 * is woken when all of it is over. false: not now (prefetch.inflight, or memory), ask again
 * later. */
bool fill_prewarm(struct core *c, struct object *o, uint64_t number, struct fetch_watch *w);
/* True: left. False: the message is on its way. The fetch goes on. */
bool fill_leave_prewarm(struct core *c, struct fetch_watch *w);
static inline bool watch_take(struct fetch_watch *w)
{
    bool was = w->ended;
    w->ended = false;
    return was;
}

/* ---- stream.c: which ranged reads of an object follow each other (pure) ---- */
enum {
    STREAM_SETS = 128,
    STREAM_WAYS = 16,
    STREAM_WINDOW_FIRST = 4,
    STREAM_WINDOW_MOST = 16,
};
struct streams;
struct stream_read {                 /* one range [from, end) that is asked for: the caller's */
    uint64_t from, end;
    uint32_t window;                 /* chunks in front of a reader; who waits makes it wider */
    /* ---- found by streams_note() ---- */
    uint32_t slot;                   /* private, as the next */
    uint64_t serial;
    /* chunks [first, begun) were begun in front of the stream before; first 0: none was */
    uint64_t first, begun;
    bool follows;                    /* one of a stream: it continues it, or goes before it */
};
/* Any core; a lock of the object's set is held for a look at its streams. */
void streams_note(struct streams *t, struct id data_id, struct stream_read *r);
/* Is a chunk behind the stream's end worth fetching now? *number: the next one, whose fetch is told
 * by streams_took(). It may lie behind the end of the object. */
bool streams_next(struct streams *t, struct id data_id, const struct stream_read *r,
                  uint64_t *number);
void streams_took(struct streams *t, struct id data_id, const struct stream_read *r,
                  uint64_t number);
/* Nearest readers first: of `most` chunks fetched ahead at once, how many may be under way before
 * one begins that is so many chunks in front of its reader. So one reader's far chunks never keep
 * those away that another one is about to need. */
int64_t streams_room(uint32_t most, unsigned distance);
must_check struct streams *streams_open(void); /* NULL: no memory */
void streams_close(struct streams *t); /* NULL is fine */
struct streams *fill_streams(struct core *c);

/* ---- follow.c: what is read, for who has a plan of it ---- */
struct follow_read {                 /* a request comes to a chunk */
    uint64_t at_us;                  /* in the turn of its core that began then; set by the note */
    struct id id;                    /* of the object, without a version */
    uint64_t from;                   /* of the object's bytes that it asks for there */
    uint32_t bytes;
    bool waited;                     /* they were not here */
};
/* Hit path: a relaxed load while nobody follows, else a store into this core's ring. Where that is
 * full the read is not told. */
void follow_note(struct core *c, const struct follow_read *r);
/* From now on reads are noted. One follower at a time. false: no memory. */
must_check bool follow_begin(struct server *s);
void follow_end(struct server *s);
/* The follower's: what was read, in order of time as far as it is there; returns how many. */
unsigned follow_take(struct server *s, struct follow_read *out, unsigned cap);
void follow_close(struct server *s); /* with the last core */

/* ---- start and end ---- */
must_check enum err fills_open(struct server *s);
void fills_close(struct server *s);
must_check enum err fill_core_begin(struct core *c);
bool fill_core_idle(const struct core *c);             /* no fetch of this core runs */
/* read-ahead ends early; asked blocks still come */
void fill_core_drain(struct core *c);
void fill_core_end(struct core *c);

/* ---- keep.c: what of an answer is kept (pure) ---- */
enum { KEPT_BYTES_MAX = 5 * KIB };
/* The fields of an upstream answer that a generation keeps, as "name: value\r\n"* with lower-case
 * names, in the arena; per-answer ones are dropped. ERR_TOO_LARGE over KEPT_BYTES_MAX, ERR_MEMORY,
 * ERR_SYNTAX: a value with control bytes. */
must_check enum err fill_headers_keep(const struct http_head *upstream, struct arena *arena,
                                      struct span *out);
/* What an error answer says of a delete marker. */
void fill_marker_keep(const struct http_head *upstream, struct upstream_error *e);
/* Whether a 200 or 206 is a generation to store: strong ETag, known length, no SSE-C. */
bool fill_storable(const struct http_head *upstream);

/* ---- verify.c: the checksum that upstream names of a whole object ---- */
struct named_sum {
    uint8_t kind;                    /* enum payload_kind */
    bool etag;                       /* the ETag seems to be it */
    uint8_t digest[PAYLOAD_DIGEST_MAX];
};
/* The cheapest one that is of the object's bytes, by its kept fields and its ETag. False: nothing
 * to compare with. Pure. */
bool verify_names(struct span kept, struct span etag, uint64_t size, struct named_sum *out);
/* The object's bytes do not have that checksum: counted and logged. */
void verify_tell(struct core *c, const struct origin *origin, const struct object *o,
                 const struct named_sum *named);

/* ================= inside the folder ================= */

enum {
    FILL_SHARDS = 64,
    /* Blocks that a bypass is ahead of those that are waited for: readers wait for eight, and what
     * comes before anybody waits may have left the pool again when he does. */
    PACE = 1,
    FETCH_WRITES = BLOCKS_PER_CHUNK,
    BRANCHES = 4,                       /* of a fetch */
    /* Askings of a key at a time: nothing may be there, and each then costs a request in vain. */
    ASKINGS_BESIDE = 64,
    NEGATIVE_ENTRIES = 64,
    DIED_ENTRIES = 64,
    DIED_MS = 10000
};

enum block_state {
    BLOCK_NEED,                      /* not here yet */
    BLOCK_HERE,                      /* fetched, its buffer is held by the fetch (being written) */
    BLOCK_DISK,                      /* readable from disk */
    BLOCK_POOL,                      /* came, and is not on disk: in the pool, or gone */
};

struct part {                        /* bytes of a chunk: [from, to) */
    uint32_t from, to;
};

/* What a contact knows besides: allocated only while a key is being asked about. */
struct contact {
    struct list learners;            /* under the shard's lock */
    struct list readers;             /* likewise: they know the object, and want its chunk */
    struct okey key;                 /* spans into text */
    enum learn_kind kind;
    uint64_t from, to;
    uint64_t chunk;                  /* whose bytes come with the answer; NO_CHUNK: none do */
    bool sums, sent, beside;         /* beside: the HEAD runs */
    bool patient;                    /* nobody else waits for it; under the shard's lock */
    bool prewarm, plan, background;
    bool listed;                     /* in the shard's table of askings */
    struct exchange head;
    struct ask head_ask;
    struct http_field head_field;
    bool head_over_asked;            /* exchange_end(&head) was called */
    bool document_asked;             /* the error document is being read */
    struct arena arena;
    char text[BUCKET_BYTES_MAX + 2 * KEY_BYTES_MAX + 3];
    char memory[4 * KIB];
};

struct branch {                        /* branch.c's */
    struct exchange x;
    struct ask ask;                  /* its texts are the fetch's */
    bool ending;
    unsigned at, last;               /* current and last block */
    uint32_t got;                    /* bytes of the current one */
    struct buffer *filling;
};

struct fetch {
    struct machine m;
    struct node all;                 /* core's list */
    struct node table;               /* in its shard's list, under the lock */
    struct node asking;              /* likewise, while a contact */
    struct list waiters;             /* under the lock */
    struct list watchers;            /* likewise: who wants to hear of its end */
    struct contact *contact;
    struct object *object;           /* held; NULL until a contact has learnt */
    struct chunk *chunk;             /* held; NULL = there is none */
    bool fills;                      /* the only one that writes to it; under the lock */
    bool keeps;                      /* what comes is written; else it is passed through */
    bool passes;                     /* from the start: then only what is asked for comes */
    struct id data_id;
    uint64_t number;
    /* When it was asked for. Once that does not hold, what it brings goes to its readers only. */
    struct epoch epoch;
    uint8_t profile;                 /* as whom it is asked for: readers of others do not join */
    uint8_t hint;                    /* of the reader that began it: set of enum fill_hint */
    uint8_t refuse;                  /* label_refuse: why it is passed through */
    uint32_t bytes;                  /* of the chunk */
    unsigned blocks;
    uint8_t shard;                   /* of (data id, chunk) */
    uint8_t ask_shard;               /* of the object id, while a contact */
    _Atomic uint8_t wanted;          /* under the lock for changes */
    uint8_t rest;                    /* of those: nobody asked for them; likewise */
    bool follows;                    /* a reader reads on: to him the rest is no rest; likewise */
    uint8_t sure;                    /* blocks that an answer is bringing: it fits; likewise */
    bool resting;                    /* the run is one of the rest, */
    bool rest_hurried;               /* and goes on as read-ahead */
    uint8_t state[BLOCKS_PER_CHUNK]; /* under the lock */
    struct part part[BLOCKS_PER_CHUNK]; /* likewise: what of each block is asked for */
    struct buffer *here[BLOCKS_PER_CHUNK]; /* BLOCK_HERE: held; under the lock for changes */
    _Atomic uint8_t pace;            /* of a bypass: the last block that may be fetched by now */
    /* read-ahead that nobody was seen waiting for: counts against prefetch.inflight */
    bool ahead;
    bool brings;                     /* counts in its core's `bringing` */
    uint8_t distance;                /* chunks from its reader to it, when it began */
    bool passed_ahead;               /* it, and is only passed through: counts in fills */
    uint32_t told;                   /* as in struct wait, of the reader that began it */
    bool prewarm;                    /* nobody waited when it was started */
    bool plan;                       /* of those: it is of a loader's plan */
    bool background;                 /* of those: it takes spare room only, while nobody waits */
    bool warming;                    /* counted as such against prefetch.inflight */
    bool exchanging, ending;         /* x is begun; exchange_end() was called */
    bool fresh;                      /* no byte of the run's was read */
    struct verify {
        bool again;                  /* its bytes did not match once: the next time is the last */
        /* blocks that came are named and written when the last one has come, and all match */
        bool holds;
        unsigned next;               /* block that sum wants */
        struct named_sum named;
        struct payload_sum sum;
        uint8_t first[MD5_BYTES];    /* the digest (its begin) that they had then */
        bool notes;                  /* whole.c: the block that just came has this CRC */
        uint64_t crc;
    } verify;
    bool retry;                      /* the run broke and is asked again from where it broke */
    struct message poke;             /* from readers on other cores: look at wanted again */
    bool poked;                      /* under the lock: the poke is on its way */
    struct message call;             /* to a contact, from who joins it: look whether to hurry */
    bool called;                     /* under the asking's lock: it is on its way */
    /* the run being received */
    struct exchange x;
    struct ask ask;
    char if_match[300];
    char query[3200];
    struct http_field field[2];
    uint16_t refused;                /* the error status that ended the fetch */
    uint64_t skip;                   /* bytes to throw away first (200 to a range) */
    unsigned at, last;               /* current and last block of the run */
    uint32_t got;                    /* bytes of the current block, or of its part */
    uint32_t given;                  /* of those: readers have them */
    struct buffer *filling;
    struct branch *branch[BRANCHES];
    bool lone;                       /* no more branches: one had a wrong answer, or no buffer */
    uint8_t branches, branched;             /* how many; bit per block that one of them brings */
    bool look;                       /* readers came: do they wait for what nobody brings? */
    struct pool_wait room;
    struct timer timer;
    struct timer turn;               /* priority.c: it may read again */
    unsigned tries;                  /* in a row, of those that brought little */
    uint64_t brought;                /* bytes of the run that were of use */
    unsigned breaks;                 /* of upstream's answers in the current block */
    uint64_t began_us;
    struct fetch_write {
        struct transfer *transfer;   /* NULL: free */
        unsigned block;
        struct block_sums sums;
    } write[FETCH_WRITES];
};

struct negative {
    struct id id;
    struct epoch epoch;
    uint64_t at_ms;                  /* when upstream said so */
    struct upstream_error error;
};
struct died {
    struct id id;
    uint64_t at_ms;
};
struct fill_shard {
    pthread_mutex_t lock;
    struct list fetches, askings;
    struct negative negative[NEGATIVE_ENTRIES];
    struct died died[DIED_ENTRIES];
};
struct fill_shard *fill_shard(struct core *c, uint8_t number);
void shard_lock(struct fill_shard *s);
void shard_unlock(struct fill_shard *s);
/* That of its chunk. */
static inline struct fill_shard *fetch_lock(struct fetch *f)
{
    struct fill_shard *s = fill_shard(f->m.core, f->shard);
    shard_lock(s);
    return s;
}
uint8_t shard_of_chunk(struct id data_id, uint64_t number);
uint8_t shard_of_object(struct id id);

/* inflight.c: tables and deliveries. Functions named *_locked want the shard's lock. */
/* That which a reader of this profile and epoch may join: of the same, or both are current. */
struct fetch *inflight_find_locked(struct core *c, const struct fetch *like);
/* May f write to its chunk? Another one may be at it that readers of now do not join. */
bool inflight_may_fill_locked(struct core *c, struct fill_shard *s, const struct fetch *f);
void inflight_list_locked(struct fill_shard *s, struct fetch *f);
void inflight_unlist_locked(struct fetch *f);
/* Those bytes of the chunk are asked for. What does not touch others of its block is left to who
 * waits for it. */
void inflight_ask_locked(struct fetch *f, struct part bytes);
/* What comes of a block: all of it, or of a chunk that is passed through what was asked for. */
struct part inflight_part(const struct fetch *f, unsigned block);
/* It is over: nobody finds it any more, and who watched it hears. */
void inflight_over(struct core *c, struct fetch *f);
/* A block arrived: who waits for what came of it gets the buffer, each with a hold of his own. */
void inflight_deliver(struct core *c, struct fetch *f, unsigned block, struct buffer *b);
/* The block that is being filled has come so far that who waits for its first bytes gets them. */
void inflight_deliver_part(struct core *c, struct fetch *f);
/* How far it must have come for the next one of them; UINT32_MAX: none. */
uint32_t inflight_next_part(struct core *c, struct fetch *f);
/* The fetch ends badly: all waiters hear why. */
void inflight_fail(struct core *c, struct fetch *f, enum err why);
/* The reader's wait ends, with a hold on the buffer, or an error; OK without one: look again. The
 * lock of where he is linked is held. */
void wait_answer(struct core *c, struct wait *w, enum err err, struct buffer *b);
/* asking.c */
/* An asking under way will bring bytes of that chunk: he looks again when it is answered. */
bool asking_awaits(struct core *c, const struct object *o, uint64_t number, struct wait *w);
bool asking_brings(struct core *c, const struct object *o, uint64_t number,
                   const struct wait *like);
/* The asking ended: every learner hears (object is held anew for each). */
struct learnt {
    enum err err;
    struct object *object;
    const struct upstream_error *upstream;
};
void asking_answer(struct core *c, struct fetch *f, const struct learnt *what);
/* asked: the epoch of the asking */
void fill_note_missing(struct core *c, struct id id, struct epoch asked,
                       const struct upstream_error *e);
void fill_note_died(struct core *c, struct id id);

/* fetch.c */
/* New machine on this core, in no table yet; its first step is in the core's next turn. It is begun
 * here and not once it was listed, where other cores find it. NULL: the core's limit is reached. */
struct fetch *fetch_make(struct core *c);
/* Nobody waits for it: before its first step. */
void fetch_set_prewarm(struct fetch *f, bool plan, bool background);
enum label_purpose fetch_purpose(const struct fetch *f);
enum ask_class fetch_class(const struct fetch *f); /* as which it asks until somebody waits */
struct fill_core {
    struct core *core;
    struct list fetches;
    struct stock fetch_stock, contact_stock, branch_stock;
    unsigned writing;                /* fetches with a write under way */
    unsigned bringing;               /* that may have something to bring */
    bool draining;
};
/* core.c: so many fetches wait for their writes that what is new is not to be one of them. */
bool fill_core_is_behind(const struct core *c);
struct fills {                       /* the process */
    struct fill_shard *shard;
    _Atomic int64_t ahead;           /* read-ahead fetches under way */
    _Atomic int64_t passed_ahead;    /* those of them that are only passed through */
    struct wholes *wholes;           /* whole.c's */
    struct streams *streams;
    /* fetches under way of prewarm jobs, of plans, and of what fills the cache in the background */
    _Atomic int64_t warming, planning, filling;
    _Atomic int64_t resting;         /* whose run is one of the rest */
    _Atomic bool followed;           /* follow.c's, as the next: somebody wants to hear */
    _Atomic(struct read_ring *) *read_by; /* one per core; NULL: not needed yet */
    _Atomic uint8_t etags[CONF_UPSTREAMS_MAX]; /* verify.c: whether they are MD5s */
};
/* priority.c */
bool fetch_has_readers(struct fetch *f);
void fetch_hurry(struct fetch *f);   /* to be asked again while it waits for upstream */
/* False: it waits for nothing but its writes, or is over; then it is read-ahead no more, so that
 * another one may begin, and the last such fetch of a core ends the burst of their writes. */
void fetch_brings(struct fetch *f, bool brings);
/* Its block is not written at once (chunk_write()): no job waits for that, nor is it a small
 * object's, which would take up all fetches. */
bool fetch_may_write_later(struct fetch *f, const struct buffer *b);
/* Did somebody say that the chunk shall be here? */
bool fetch_is_wished_locked(const struct fetch *f);
/* For so many bytes that come next. NULL: none now. Where it would wait for writes of a disk that
 * is behind with them, what was asked for is passed through from then on, and no more kept, and
 * the rest is wanted no more. */
struct buffer *fetch_buffer(struct fetch *f, uint32_t bytes);
bool fetch_wants_block(const struct fetch *f); /* the one that the run is at */
/* It is read-ahead that is only passed through: not more of that than finds a place. */
void fetch_pass_ahead(struct fetch *f);
/* upstream.bandwidth. False: not now, a wake comes. */
bool fetch_may_read(struct fetch *f);
/* Of a run of the rest: may it go on waiting for upstream? False: it is to be closed, and another
 * one chosen, as a reader came, or it has waited for long enough. */
bool fetch_may_rest(struct fetch *f);
uint32_t fetch_may_take(const struct fetch *f, uint32_t room); /* bytes at once */
void fetch_took(struct fetch *f, uint32_t bytes);
/* place.c: asks for a place on disk, and marks what is there already. A chunk that is not admitted
 * is only passed through. */
void fetch_take_place(struct fetch *f);
/* fetch.c: that block of a chunk is whole, checked as any; takes the buffer. ERR_CHECKSUM as
 * whole_check() and whole_note(). */
must_check enum err fetch_take_block(struct fetch *f, unsigned block, struct buffer *b);
void fetch_drop_filling(struct fetch *f); /* the half block, if there is one */
/* branch.c */
/* In each step: takes what came by branches. runs: a run is under way, so readers who came may need
 * new ones. ERR_CHECKSUM as fetch_take_block(). */
must_check enum err branches_run(struct fetch *f, bool runs);
bool branches_close(struct fetch *f);   /* ends them all; true when they are over */
/* run.c */
/* The asking for those bytes of the object, of the fetch's class. */
struct ask run_ask(struct fetch *f, uint64_t from, uint64_t to);
/* Is anything wanted that no branch brings? */
bool run_is_due_locked(const struct fetch *f);
bool run_is_awaited_locked(const struct fetch *f); /* does a reader wait for it? */
bool run_awaits_locked(const struct fetch *f, unsigned block);
/* The next run, at..last. False: nothing is needed. */
bool run_choose(struct fetch *f);
void run_settle_locked(struct fetch *f); /* it is known whether the chunk is kept */
void run_drop_rest_locked(struct fetch *f); /* what nobody asked for is not wanted any more */
void run_end(struct fetch *f);       /* no more runs */
bool run_name(const struct fetch *f, unsigned block, struct buffer_key *out);
void run_describe(struct fetch *f);  /* blocks at..last into f->ask */
/* OK: its body is what was asked for, behind f->skip bytes. ERR_CHANGED, or whose refusal it is. */
must_check enum err run_judge(struct fetch *f);
void run_comes(struct fetch *f);     /* it was judged: its blocks are sure */
void run_breaks(struct fetch *f);    /* none is any more: what is asked next may be refused */
/* ERR_UPSTREAM_PROTOCOL, counted and told; the object is asked for before it is used again. */
enum err run_distrust(struct fetch *f, const char *what);
/* ERR_CHANGED: nobody may start on the generation any more. */
enum err run_changed(struct fetch *f);
/* verify.c */
/* The object's bytes begin to come. False: upstream names no checksum of them. */
bool verify_begin(struct fetch *f);
void verify_add(struct fetch *f, const void *mem, uint32_t len); /* in order */
/* All have come. ERR_CHECKSUM: they do not have the checksum; it was counted and told. */
must_check enum err verify_end(struct fetch *f);
/* whole.c: of objects of several chunks */
/* The block that is being filled is whole. ERR_CHECKSUM: it was the last one of the object that was
 * not known, and all together do not have the checksum; it was counted and told. */
must_check enum err whole_check(struct fetch *f);
/* It will be judged before anybody gets a byte of it: the one that is being filled. */
bool whole_judges_next(const struct fetch *f);
/* That block can be found by others now. ERR_CHECKSUM: as above. */
must_check enum err whole_note(struct fetch *f, unsigned block);
must_check enum err wholes_open(struct fills *fills);
void wholes_close(struct fills *fills);
/* contact.c: the asking half of a fetch. */
/* Of which chunk bytes come with the answer to that asking. */
static const uint64_t NO_CHUNK = UINT64_MAX;
static inline uint64_t contact_chunk(const struct learn *l)
{
    return l->kind == LEARN_GET ? l->from / CHUNK_BYTES : NO_CHUNK;
}
must_check enum err contact_make(struct core *c, struct fetch *f, const struct okey *k,
                                 const struct learn *l);
void contact_ask(struct fetch *f);   /* describes the request(s) in f->ask (and the HEAD beside) */
enum contact_turn {
    /* f->object, the run and the listing are set; the body follows */
    CONTACT_BYTES,
    CONTACT_DONE,                    /* learners have heard; no bytes to fetch */
    CONTACT_BY_HEAD,                 /* the range could not be answered: ask by HEAD */
    CONTACT_ERROR,                   /* an error status: its document has to be read first */
};
enum contact_turn contact_judge(struct fetch *f);
/* The HEAD beside may tell checksums yet, and nobody has to give a permit for that. */
bool contact_awaits_head(const struct contact *t);
/* Learners hear an error status; document is its body (may be empty). */
void contact_refused(struct fetch *f, struct span document);
void contact_fail(struct fetch *f, enum err why);
void contact_give(struct fetch *f);

#endif
