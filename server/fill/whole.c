/* Objects of several chunks against the checksum that upstream names: a CRC of each block that
 * comes, whoever fetches it and in whatever order, put together by arithmetic when all have come.
 *
 * Invariants:
 *  1. Only CRCs can be put together, and only what upstream names as of all the bytes counts.
 *  2. A block is noted when others can find it, so that what is dropped when all do not match is
 *     all. The last one is judged before that, and before anybody gets it.
 *  3. Every entry is in one bucket and in the list by use; bytes is the sum of their memory.
 *
 * Life: an entry lives from the first block of an object that is noted until all were, or others
 * needed its memory. What came before it, or before a restart, is not known: then nothing is
 * compared here, but by the jobs that read all again (jobs/whole.c).
 * Failure: ERR_CHECKSUM; without memory for an entry nothing is compared.
 * Limits: 16 MiB for all entries, 8 bytes for each MiB of an object, which may have 128 GiB. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "payload.h"
#include "server/fill/fill.h"

enum { BUCKETS = 256, ENTRIES_BYTES_MAX = 16 * MIB };
static const uint64_t SIZE_MAX_BYTES = 128 * GIB;

struct whole {
    struct node by_use, in_bucket;
    struct id data_id;
    uint8_t kind;
    uint64_t size, known;            /* bytes of the object; blocks that were noted */
    uint64_t *map;                   /* bit per block: it was noted; behind crc[] */
    uint64_t crc[];                  /* per block */
};

struct wholes {
    pthread_mutex_t lock;
    struct list by_use;              /* the one that was not used for longest first */
    struct list bucket[BUCKETS];
    uint64_t bytes;
};

static uint64_t blocks_of(uint64_t size)
{
    return (size + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static size_t entry_bytes(uint64_t size)
{
    uint64_t blocks = blocks_of(size);

    return sizeof(struct whole) + (blocks + (blocks + 63) / 64) * sizeof(uint64_t);
}

/* ---- entries; the lock is held ---- */
static void forget(struct wholes *w, struct whole *e)
{
    node_remove(&e->by_use);
    node_remove(&e->in_bucket);
    w->bytes -= entry_bytes(e->size);
    mem_give(e);
}

static struct whole *find(struct wholes *w, const struct fetch *f, uint8_t kind)
{
    LIST_EACH(&w->bucket[f->data_id.a % BUCKETS], struct whole, in_bucket, e)
        if (id_eq(e->data_id, f->data_id) && e->kind == kind)
            return e;
    return NULL;
}

static struct whole *make(struct wholes *w, const struct fetch *f, uint8_t kind)
{
    uint64_t size = f->object->size;
    struct whole *e = mem_take(entry_bytes(size));

    if (!e)
        return NULL;
    e->data_id = f->data_id;
    e->kind = kind;
    e->size = size;
    e->map = e->crc + blocks_of(size);
    list_push(&w->by_use, &e->by_use);
    list_push(&w->bucket[f->data_id.a % BUCKETS], &e->in_bucket);
    w->bytes += entry_bytes(size);
    while (w->bytes > ENTRIES_BYTES_MAX)
        forget(w, container_of(list_first(&w->by_use), struct whole, by_use));
    return e;
}

static bool has(const struct whole *e, uint64_t block)
{
    return e->map[block / 64] >> block % 64 & 1;
}

static void set(struct whole *e, uint64_t block, uint64_t crc)
{
    e->known += !has(e, block);
    e->map[block / 64] |= (uint64_t)1 << block % 64;
    e->crc[block] = crc;
}

static bool is_right(const struct whole *e, const struct named_sum *named)
{
    enum payload_kind kind = (enum payload_kind)e->kind;
    uint64_t blocks = blocks_of(e->size), last = e->size - (blocks - 1) * BLOCK_BYTES;
    uint64_t shift = payload_crc_shift(kind, BLOCK_BYTES), all = e->crc[0];
    uint8_t digest[PAYLOAD_DIGEST_MAX];

    for (uint64_t b = 1; b < blocks; b++)
        all = payload_crc_join(kind, all, e->crc[b],
                               b + 1 < blocks ? shift : payload_crc_shift(kind, last));
    return memcmp(digest, named->digest, payload_crc_write(kind, all, digest)) == 0;
}

/* ---- the face ---- */
static struct wholes *wholes_of(const struct fetch *f)
{
    return f->m.core->server->fills->wholes;
}

/* What was named, if it can be compared so. */
static bool is_comparable(const struct fetch *f, struct named_sum *named)
{
    const struct object *o = f->object;

    return o->size > CHUNK_BYTES && o->size <= SIZE_MAX_BYTES &&
           verify_names(object_headers(o), object_etag(o), o->size, named) &&
           payload_crc_joins((enum payload_kind)named->kind);
}

enum err whole_check(struct fetch *f)
{
    struct wholes *w = wholes_of(f);
    struct named_sum *named = &f->verify.named;
    uint64_t number = f->number * BLOCKS_PER_CHUNK + f->at;

    /* Of a chunk that is passed through only what was asked for of a block may come. */
    f->verify.notes =
        f->got == chunk_block_bytes(f->bytes, f->at) && is_comparable(f, named);
    if (!f->verify.notes)
        return OK;
    f->verify.crc = payload_crc((enum payload_kind)named->kind, f->filling->mem, f->got);
    pthread_mutex_lock(&w->lock);
    struct whole *e = find(w, f, named->kind);
    bool last = e && e->known + 1 == blocks_of(e->size) && !has(e, number);
    bool right = true;
    if (last) {
        set(e, number, f->verify.crc);
        right = is_right(e, named);
        forget(w, e);
        f->verify.notes = false;
    }
    pthread_mutex_unlock(&w->lock);
    if (right)
        return OK;
    f->got = 0;                      /* nobody gets it */
    verify_tell(f->m.core, f->x.origin, f->object, named);
    return ERR_CHECKSUM;
}

bool whole_judges_next(const struct fetch *f)
{
    struct wholes *w = wholes_of(f);
    struct named_sum named;

    if (!is_comparable(f, &named))
        return false;
    pthread_mutex_lock(&w->lock);
    const struct whole *e = find(w, f, named.kind);
    bool last = e && e->known + 1 == blocks_of(e->size) &&
                !has(e, f->number * BLOCKS_PER_CHUNK + f->at);
    pthread_mutex_unlock(&w->lock);
    return last;
}

enum err whole_note(struct fetch *f, unsigned block)
{
    struct wholes *w = wholes_of(f);
    const struct named_sum *named = &f->verify.named;
    bool right = true;

    if (!f->verify.notes)
        return OK;
    f->verify.notes = false;
    pthread_mutex_lock(&w->lock);
    struct whole *e = find(w, f, named->kind);
    if (!e)
        e = make(w, f, named->kind);
    if (e) {
        node_remove(&e->by_use);
        list_push(&w->by_use, &e->by_use);
        set(e, f->number * BLOCKS_PER_CHUNK + block, f->verify.crc);
    }
    if (e && e->known == blocks_of(e->size)) { /* two were the last ones at a time */
        right = is_right(e, named);
        forget(w, e);
    }
    pthread_mutex_unlock(&w->lock);
    if (!right)
        verify_tell(f->m.core, f->x.origin, f->object, named);
    return right ? OK : ERR_CHECKSUM;
}

/* ---- start and end ---- */
enum err wholes_open(struct fills *fills)
{
    struct wholes *w = mem_take(sizeof *w);

    if (!w)
        return ERR_MEMORY;
    pthread_mutex_init(&w->lock, NULL);
    list_init(&w->by_use);
    for (unsigned i = 0; i < BUCKETS; i++)
        list_init(&w->bucket[i]);
    fills->wholes = w;
    return OK;
}

void wholes_close(struct fills *fills)
{
    struct wholes *w = fills->wholes;

    if (!w)
        return;
    while (!list_empty(&w->by_use))
        forget(w, container_of(list_first(&w->by_use), struct whole, by_use));
    pthread_mutex_destroy(&w->lock);
    mem_give(w);
    fills->wholes = NULL;
}
