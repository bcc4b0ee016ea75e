/* Bytes of chunks to and from the slabs, and the checksums that make them trustworthy.
 *
 * Invariants:
 *  1. A granule's CRC32C begins with data id, chunk number and granule number: bytes of another
 *     object, another place or another time do not verify, although slots carry no headers.
 *  2. Nothing read leaves here with OK before all its granules were compared. A granule is compared
 *     only if its block is present, as its CRC means nothing else.
 *  3. Transfers are multiples of 4 KiB at multiples of 4 KiB, in a slot that the caller's hold on
 *     the chunk keeps.
 *
 * Life: the op is the caller's; *_read/_write start it, *_done judge it once it ended.
 * Failure: errors, short transfers and mismatches are counted and logged here; a read's blocks are
 * then no longer present, so that the next reader asks upstream. */
/* SPDX-License-Identifier: Apache-2.0 */
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

static uint32_t granule_crc(struct id data_id, uint64_t number, uint32_t granule, const void *mem,
                            uint32_t len)
{
    return crc32c(granule_seed(data_id, number, granule), mem, len);
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
               uint32_t *crc)
{
    for (uint32_t at = 0, i = 0; at < len; at += GRANULE_BYTES, i++)
        crc[i] = granule_crc(data_id, number, block * GRANULES_PER_BLOCK + i,
                             (const uint8_t *)mem + at,
                             (uint32_t)min_u64(GRANULE_BYTES, len - at));
}

static uint64_t disk_at(const struct chunk *k, uint32_t off)
{
    return slot_offset(k->slot) + off;
}

/* ---- read ---- */
void chunk_read(struct cache *c, struct machine *m, struct op *op, struct chunk *k, uint32_t off,
                uint32_t len, void *mem)
{
    must(off % GRANULE_BYTES == 0 && len > 0 && len <= k->bytes - off);
    must(len % GRANULE_BYTES == 0 || off + len == k->bytes);
    op_read(m, op, c->dir[k->slot.dir].slab_fd, mem, (uint32_t)round_up(len, SECTOR_BYTES),
            disk_at(k, off));
}

/* Compares every granule of the transfer; a block with a bad one is damaged. */
static enum err verify(struct cache *c, struct chunk *k, uint32_t off, uint32_t len,
                       const uint8_t *mem)
{
    enum err err = OK;

    for (uint32_t at = 0; at < len; at += GRANULE_BYTES) {
        uint32_t granule = (off + at) / GRANULE_BYTES, block = granule / GRANULES_PER_BLOCK;
        uint32_t bytes = (uint32_t)min_u64(GRANULE_BYTES, len - at);
        if (granule_crc(k->data_id, k->number, granule, mem + at, bytes) == k->crc[granule])
            continue;
        chunk_damaged(c, k, block, ERR_CHECKSUM);
        err = ERR_CHECKSUM;
    }
    return err;
}

enum err chunk_read_done(struct cache *c, struct op *op, struct chunk *k, uint32_t off,
                         uint32_t len, void *mem, uint64_t began_us)
{
    struct directory *d = &c->dir[k->slot.dir];
    struct metric_set *metrics = op->m->core->metrics;
    enum err err = op_disk_error(op->res);

    if (err == ERR_CANCELLED)
        return err;
    metric_observe(metrics, METRIC_DISK_READ_SECONDS, d->metric, 0, clock_us() - began_us);
    if (err == OK && (uint32_t)op->res >= len) {
        metric_add(metrics, METRIC_DISK_READ_BYTES_TOTAL, d->metric, (uint64_t)op->res);
        return verify(c, k, off, len, mem);
    }
    for (uint32_t block = off / BLOCK_BYTES; block <= (off + len - 1) / BLOCK_BYTES; block++)
        chunk_damaged(c, k, block, ERR_DISK);
    return ERR_DISK;
}

/* ---- write ---- */
void chunk_write(struct cache *c, struct machine *m, struct op *op, struct chunk *k,
                 unsigned block, void *mem)
{
    uint32_t len = chunk_block_bytes(k->bytes, block);
    uint32_t whole = (uint32_t)round_up(len, SECTOR_BYTES);

    must(block * (uint32_t)BLOCK_BYTES < k->bytes);
    memset((uint8_t *)mem + len, 0, whole - len);
    op_write(m, op, c->dir[k->slot.dir].slab_fd, mem, whole, disk_at(k, block * BLOCK_BYTES));
}

enum err chunk_write_done(struct cache *c, struct op *op, struct chunk *k, unsigned block,
                          uint64_t began_us)
{
    struct directory *d = &c->dir[k->slot.dir];
    struct metric_set *metrics = op->m->core->metrics;
    uint32_t whole = (uint32_t)round_up(chunk_block_bytes(k->bytes, block), SECTOR_BYTES);
    enum err err = op_disk_error(op->res);

    if (err == ERR_CANCELLED)
        return err;
    metric_observe(metrics, METRIC_DISK_WRITE_SECONDS, d->metric, 0, clock_us() - began_us);
    if (err == OK && (uint32_t)op->res == whole) {
        metric_add(metrics, METRIC_DISK_WRITTEN_BYTES_TOTAL, d->metric, whole);
        return OK;
    }
    atomic_fetch_add(&d->write_errors, 1);
    log_event(EVENT_DISK_ERROR, "disk=%s op=write chunk=%llu block=%u result=%d",
              log_value(span_of(d->path)),
              (unsigned long long)k->number, block, op->res);
    return err == OK ? ERR_DISK : err;
}
