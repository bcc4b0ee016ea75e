/* Changes of a directory's records on their way to a commit: gathered by key, so that the last one
 * wins.
 *
 * Invariants:
 *  1. A key stands in a batch at most once; its last change is the one that counts.
 *  2. Values are made when they are added, and end with their CRC32C.
 *  3. A batch that is empty still knows which writes wait for its commit.
 *
 * Life: two per journal: one gathers while the other is committed. The journal's lock is held for
 * all that touches the gathering one.
 * Failure: no memory, or a value that does not fit: the change is not taken. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "server/cache/parts.h"
#include "sign.h"

enum {
    NAME_BYTES_MAX = 480,            /* LMDB keys end at 511 */
    BATCH_KEEP_BYTES = 4 * MIB,      /* memory kept between batches */
};

/* ---- keys and values ---- */
static void put_be64(uint8_t *out, uint64_t n)
{
    n = htobe64(n);
    memcpy(out, &n, sizeof n);
}

void batch_state(uint64_t n, uint8_t out[STATE_BYTES])
{
    put_be64(out, n);
    uint32_t crc = htole32(crc32c(0, out, 8));
    memcpy(out + 8, &crc, sizeof crc);
}

static enum journal_db db_of(const struct journal_change *x)
{
    return x->state ? JOURNAL_STATE : x->object ? JOURNAL_OBJECTS : JOURNAL_CHUNKS;
}

static void key_of(const struct journal_change *x, uint8_t key[CHANGE_KEY_BYTES], uint8_t *len)
{
    memset(key, 0, CHANGE_KEY_BYTES);
    if (x->state) {
        size_t bytes = strlen(x->state);
        must(bytes <= CHANGE_KEY_BYTES);
        memcpy(key, x->state, bytes);
        *len = (uint8_t)bytes;
        return;
    }
    put_be64(key, x->id.a);
    put_be64(key + 8, x->id.b);
    put_be64(key + 16, x->object ? 0 : x->number);
    *len = x->object ? 16 : CHANGE_KEY_BYTES;
}

static size_t write_name(const struct object_record *r, uint8_t *out)
{
    size_t bucket = min_u64(r->bucket.len, NAME_BYTES_MAX - 1);
    size_t key = min_u64(r->key.len, NAME_BYTES_MAX - 1 - bucket);

    if (bucket)
        memcpy(out, r->bucket.at, bucket);
    out[bucket] = '/';
    if (key)
        memcpy(out + bucket + 1, r->key.at, key);
    return bucket + 1 + key;
}

/* ---- batches; the lock is held ---- */
static uint64_t key_hash(uint8_t db, const uint8_t *key)
{
    uint64_t a, b, n;

    /* Ids are hashes already, names of states are not; numbers differ in their lowest bits, which
     * here are the last bytes. */
    memcpy(&a, key, sizeof a);
    memcpy(&b, key + 8, sizeof b);
    memcpy(&n, key + 16, sizeof n);
    return (a + be64toh(b) * 0x9FB21C651E98DF25 + be64toh(n)) * 0x9E3779B97F4A7C15 + db;
}

static uint32_t *map_slot(struct batch *b, uint8_t db, const uint8_t *key)
{
    uint32_t at = (uint32_t)(key_hash(db, key) >> 32) & (b->map_cap - 1);

    for (;; at = (at + 1) & (b->map_cap - 1)) {
        uint32_t index = b->map[at];
        if (index == 0 ||
            (b->change[index - 1].db == db &&
             memcmp(b->change[index - 1].key, key, CHANGE_KEY_BYTES) == 0))
            return &b->map[at];
    }
}

static bool grow_changes(struct batch *b, uint32_t more)
{
    if (b->count + more <= b->cap)
        return true;
    uint32_t cap = b->cap ? b->cap * 2 : 2048;
    struct batch_change *change = mem_grow(b->change, cap * sizeof *change);
    if (!change)
        return false;
    b->change = change;
    uint32_t *map = mem_take(2 * cap * sizeof *map);
    if (!map)
        return false;
    mem_give(b->map);
    b->map = map;
    b->map_cap = 2 * cap;
    b->cap = cap;
    for (uint32_t i = 0; i < b->count; i++)
        *map_slot(b, b->change[i].db, b->change[i].key) = i + 1;
    return true;
}

static bool grow_bytes(struct batch *b, size_t more)
{
    if (b->used + more <= b->room)
        return true;
    size_t room = max_u64(b->room * 2, b->used + more + MIB);
    uint8_t *bytes = mem_grow(b->bytes, room);
    if (!bytes)
        return false;
    b->bytes = bytes;
    b->room = room;
    return true;
}

/* Its value at `at`, where room was made; 0: it does not fit. */
static size_t write_value(const struct journal_change *x, uint8_t *at)
{
    if (x->object)
        return record_object_write(x->object, at, RECORD_BYTES_MAX);
    if (x->chunk)
        return record_chunk_write(x->chunk, at, RECORD_BYTES_MAX);
    if (x->bytes.len == 0) {
        batch_state(x->number, at);
        return STATE_BYTES;
    }
    memcpy(at, x->bytes.at, x->bytes.len);
    return x->bytes.len;
}

static enum err add_change(struct batch *b, const struct journal_change *x)
{
    struct batch_change n = {.remove = x->remove, .at = b->used, .db = (uint8_t)db_of(x)};
    uint8_t *at = b->bytes + b->used;

    key_of(x, n.key, &n.key_len);
    if (x->object)
        n.name_len = (uint16_t)write_name(x->object, at);
    if (!x->remove) {
        size_t len = write_value(x, at + n.name_len);
        if (len == 0)
            return ERR_TOO_LARGE;
        n.value_len = (uint32_t)len;
        n.sync = n.db == JOURNAL_CHUNKS;
    }
    b->used += n.name_len + n.value_len;
    uint32_t *slot = map_slot(b, n.db, n.key);
    if (*slot == 0) {
        b->count++;
        *slot = b->count;
    }
    b->change[*slot - 1] = n;
    return OK;
}

/* What one call may append at most. */
static size_t room_for(const struct journal_change *x, unsigned count)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < count; i++)
        bytes += NAME_BYTES_MAX + x[i].bytes.len +
            (x[i].remove ? 0 : x[i].object ? RECORD_BYTES_MAX : KIB);
    return bytes;
}

/* ---- the face ---- */
bool batch_init(struct batch *b)
{
    return grow_changes(b, 1) && grow_bytes(b, 1);
}

enum err batch_add(struct batch *b, const struct journal_change *change, unsigned count)
{
    enum err err = OK;

    if (!grow_changes(b, count) || !grow_bytes(b, room_for(change, count)))
        return ERR_MEMORY;
    uint32_t before = b->count;
    for (unsigned i = 0; i < count && err == OK; i++)
        err = add_change(b, &change[i]);
    if (before == 0 && b->count > 0)
        b->first_ms = clock_ms();
    return err;
}

bool batch_has_object(struct batch *b, struct id id)
{
    static const struct object_record any;
    struct journal_change x = {.id = id, .object = &any};
    uint8_t key[CHANGE_KEY_BYTES], len;

    key_of(&x, key, &len);
    return b->count > 0 && *map_slot(b, JOURNAL_OBJECTS, key) != 0;
}

void batch_clear(struct batch *b)
{
    if (b->room > BATCH_KEEP_BYTES) {
        mem_give(b->bytes);
        b->bytes = NULL;
        b->room = 0;
    }
    if (b->map)
        memset(b->map, 0, b->map_cap * sizeof *b->map);
    b->count = 0;
    b->used = 0;
    b->owed = false;
}

void batch_fini(struct batch *b)
{
    mem_give(b->change);
    mem_give(b->map);
    mem_give(b->bytes);              /* what is in limbo goes with the index */
}
