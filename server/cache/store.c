/* Bytes of chunks to and from the slabs, and the checksums that make them trustworthy.
 *
 * Invariants:
 *  1. A granule's CRC32C begins with data id, chunk number and granule number: bytes of another
 *     object, another place or another time do not verify, although slots carry no headers.
 *  2. Nothing read leaves here with OK before all its granules were compared, or its half of one
 *     (halves.c). A granule is compared only if its block is present, as its CRC means nothing
 *     else.
 *  3. Transfers are multiples of 4 KiB at multiples of 4 KiB, in a slot that the caller's hold on
 *     the chunk keeps.
 *
 * Life: *_read/_write begin a transfer, *_done judge it once it has ended or is late (keeper.c).
 * Failure: errors, short transfers and mismatches are counted and logged here; a read's blocks are
 * then no longer present, so that the next reader asks upstream. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "log.h"
#include "server/cache/inside.h"
#include "sign.h"

enum { SECTOR_BYTES = 4 * KIB };

static uint32_t granule_seed(struct id data_id, uint64_t number, uint32_t granule)
{
    struct {
        struct id id;
        uint64_t number;
        uint64_t granule;
    } seed = {data_id, number, granule};

    return crc32c(0, &seed, sizeof seed);
}

/* of its first half, too, unless it is no longer: 0 */
static uint32_t granule_crcs(struct id data_id, uint64_t number, uint32_t granule,
                             const uint8_t *mem, uint32_t len, uint32_t *half)
{
    uint32_t first = (uint32_t)min_u64(len, HALF_BYTES);
    uint32_t crc = crc32c(granule_seed(data_id, number, granule), mem, first);

    *half = len > first ? crc : 0;
    return len > first ? crc32c(crc, mem + first, len - first) : crc;
}

void chunk_rename_crc(struct chunk_name from, struct chunk_name to, uint32_t bytes, uint32_t *crc)
{
    uint32_t whole = crc32c_distance(GRANULE_BYTES);

    for (uint32_t at = 0, i = 0; at < bytes; at += GRANULE_BYTES, i++) {
        bool last = bytes - at < GRANULE_BYTES;
        crc[i] = crc32c_begun_at(crc[i], granule_seed(from.data_id, from.number, i),
                                 granule_seed(to.data_id, to.number, i),
                                 last ? crc32c_distance(bytes - at) : whole);
    }
}

void chunk_crc(struct id data_id, uint64_t number, unsigned block, const void *mem, uint32_t len,
               struct block_sums *out)
{
    for (uint32_t at = 0, i = 0; at < len; at += GRANULE_BYTES, i++)
        out->crc[i] = granule_crcs(data_id, number, block * GRANULES_PER_BLOCK + i,
                                   (const uint8_t *)mem + at,
                                   (uint32_t)min_u64(GRANULE_BYTES, len - at), &out->half[i]);
}

static uint64_t disk_at(const struct chunk *k, uint32_t off)
{
    return slot_offset(k->slot) + off;
}

static struct cache *cache_of(const struct transfer *t)
{
    return t->op.m->core->server->cache;
}

bool transfer_ended(struct transfer *t)
{
    if (!t->late && !transfer_is_back(t))
        return false;
    transfer_seen(t);
    return true;
}

bool chunk_read_came(const struct transfer *t)
{
    return t->ended_us > 0 && t->op.res >= 0 && (uint32_t)t->op.res >= t->len;
}

/* ---- read ---- */
static uint32_t granule_bytes(const struct chunk *k, uint32_t granule)
{
    return (uint32_t)min_u64(GRANULE_BYTES, k->bytes - (uint64_t)granule * GRANULE_BYTES);
}

/* Not whole granules, but a half of one. */
static bool is_half(const struct chunk *k, uint32_t off, uint32_t len)
{
    return off % GRANULE_BYTES != 0 || len < granule_bytes(k, off / GRANULE_BYTES);
}

bool chunk_reads_half(struct cache *c, const struct chunk *k, uint32_t off)
{
    uint32_t granule = off / GRANULE_BYTES;

    return granule_bytes(k, granule) > HALF_BYTES && halves_get(c, k, granule) != 0;
}

/* A half is one of its granule's: the first one, or what is behind that. */
static bool is_readable(struct cache *c, const struct chunk *k, uint32_t off, uint32_t len)
{
    if (len == 0 || off >= k->bytes || len > k->bytes - off)
        return false;
    if (!is_half(k, off, len))
        return len % GRANULE_BYTES == 0 || off + len == k->bytes;
    uint32_t rest = granule_bytes(k, off / GRANULE_BYTES) - off % GRANULE_BYTES;
    return off % HALF_BYTES == 0 && len == min_u64(rest, HALF_BYTES) && chunk_reads_half(c, k, off);
}

struct transfer *chunk_read(struct machine *m, struct chunk *k, uint32_t off, uint32_t len,
                            struct buffer *b)
{
    struct cache *c = m->core->server->cache;

    must(is_readable(c, k, off, len));
    struct transfer *t = transfer_make(m->core, k, b);
    if (!t)
        return NULL;
    t->off = off;
    t->len = len;
    t->op.blocks = c->dir[k->slot.dir].blocks;
    op_read(m, &t->op, c->dir[k->slot.dir].slab_fd, b->mem, (uint32_t)round_up(len, SECTOR_BYTES),
            disk_at(k, off));
    transfer_begun(t);
    if (!chunk_sums(k))
        sums_await(t);               /* both at once */
    return t;
}

/* Of bytes that stand at `off`; whoever compares all of a granule knows its first half as well. */
static bool is_right(const struct transfer *t, uint32_t off, uint32_t bytes, const uint32_t *crc)
{
    const struct chunk *k = t->chunk;
    const uint8_t *mem = t->buffer->mem + (off - t->off);
    uint32_t granule = off / GRANULE_BYTES, half = 0;

    if (off % GRANULE_BYTES != 0)    /* the second half: its granule's goes on from the first's */
        return crc32c(halves_get(cache_of(t), k, granule), mem, bytes) == crc[granule];
    if (is_half(k, off, bytes))
        return crc32c(granule_seed(k->data_id, k->number, granule), mem, bytes) ==
            halves_get(cache_of(t), k, granule);
    if (granule_crcs(k->data_id, k->number, granule, mem, bytes, &half) != crc[granule])
        return false;
    halves_set(cache_of(t), k, granule, half);
    return true;
}

/* Compares every granule of the transfer; a block with a bad one is damaged. */
static enum err verify(const struct transfer *t)
{
    struct chunk *k = t->chunk;
    const uint32_t *crc = chunk_sums(k);
    enum err err = OK;

    if (!crc)                        /* nor will they come */
        return directory_is_up(&cache_of(t)->dir[k->slot.dir]) ? ERR_CHANGED : ERR_TIMEOUT;
    for (uint32_t at = 0; at < t->len; at += GRANULE_BYTES) {
        uint32_t bytes = (uint32_t)min_u64(GRANULE_BYTES, t->len - at);
        if (is_right(t, t->off + at, bytes, crc))
            continue;
        chunk_damaged(cache_of(t), k, (t->off + at) / BLOCK_BYTES, ERR_CHECKSUM);
        err = ERR_CHECKSUM;
    }
    return err;
}

static void lose_blocks(const struct transfer *t, enum err why)
{
    struct chunk *k = t->chunk;

    for (uint32_t b = t->off / BLOCK_BYTES; b <= (t->off + t->len - 1) / BLOCK_BYTES; b++)
        chunk_damaged(cache_of(t), k, b, why);
}

static enum err judge_read(const struct transfer *t)
{
    struct directory *d = &cache_of(t)->dir[t->chunk->slot.dir];
    struct metric_set *metrics = t->op.m->core->metrics;
    enum err err = t->late ? ERR_TIMEOUT : op_disk_error(t->op.res);

    if (err == ERR_CANCELLED)
        return err;
    if (t->unread) {                 /* the next reader is not to wait as long */
        sums_lose(cache_of(t), t->chunk);
        return err;
    }
    /* While others come back, it is this place that is slow: it is given up. A disk that hangs
     * comes back with all that it holds. */
    if (err == ERR_TIMEOUT && !directory_is_up(d))
        return err;
    if (err != ERR_TIMEOUT)
        metric_observe(metrics, METRIC_DISK_READ_SECONDS, d->metric, 0,
                       t->ended_us - t->began_us);
    if (err == OK && (uint32_t)t->op.res >= t->len) {
        metric_add(metrics, METRIC_DISK_READ_BYTES_TOTAL, d->metric, (uint64_t)t->op.res);
        return verify(t);
    }
    /* A file that ends before them has lost these bytes: damage, and no word on the device. */
    err = err == OK ? ERR_CHECKSUM : err == ERR_TIMEOUT ? err : ERR_DISK;
    lose_blocks(t, err);
    return err;
}

enum err chunk_read_done(struct transfer *t)
{
    transfer_seen(t);
    enum err err = judge_read(t);

    transfer_leave(t);
    return err;
}

/* ---- write ---- */
struct transfer *chunk_write(struct machine *m, struct chunk *k, unsigned block, struct buffer *b,
                             bool may_wait)
{
    struct cache *c = m->core->server->cache;
    uint32_t len = chunk_block_bytes(k->bytes, block);
    uint32_t whole = (uint32_t)round_up(len, SECTOR_BYTES);

    must(block * (uint32_t)BLOCK_BYTES < k->bytes);
    struct transfer *t = transfer_make(m->core, k, b);
    if (!t)
        return NULL;
    memset(b->mem + len, 0, whole - len);
    t->off = block * (uint32_t)BLOCK_BYTES;
    t->len = whole;
    t->op.blocks = c->dir[k->slot.dir].blocks;
    transfer_write(t, m, may_wait);
    disk_write_begun(&c->dir[k->slot.dir], whole);
    return t;
}

static enum err judge_write(const struct transfer *t)
{
    struct directory *d = &cache_of(t)->dir[t->chunk->slot.dir];
    struct metric_set *metrics = t->op.m->core->metrics;
    enum err err = t->late ? ERR_TIMEOUT : op_disk_error(t->op.res);

    if (err == ERR_CANCELLED)
        return err;
    if (err != ERR_TIMEOUT)
        metric_observe(metrics, METRIC_DISK_WRITE_SECONDS, d->metric, 0,
                       t->ended_us - t->began_us);
    if (err == OK && (uint32_t)t->op.res == t->len) {
        metric_add(metrics, METRIC_DISK_WRITTEN_BYTES_TOTAL, d->metric, t->len);
        return OK;
    }
    atomic_fetch_add(&d->write_errors, 1);
    log_event(EVENT_DISK_ERROR, "disk=%s op=write chunk=%llu block=%u result=%d",
              log_value(span_of(d->path)), (unsigned long long)t->chunk->number,
              (unsigned)(t->off / BLOCK_BYTES), t->late ? -ETIMEDOUT : t->op.res);
    if (err != ERR_FULL)
        disk_error(d);
    return err == OK ? ERR_DISK : err;
}

enum err chunk_write_done(struct transfer *t)
{
    struct directory *d = &cache_of(t)->dir[t->chunk->slot.dir];
    transfer_seen(t);
    enum err err = judge_write(t);

    disk_write_ended(d, t->len);
    if (err != ERR_CANCELLED)
        disk_write_took(d, clock_us() - t->made_us);
    transfer_leave(t);
    return err;
}

void transfer_drop(struct transfer *t)
{
    transfer_leave(t);
}
