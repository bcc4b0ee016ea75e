/* Index records as bytes: objects, chunks, and the header of a cache directory.
 *
 * Invariants:
 *  1. Integers are little-endian at fixed places; texts follow the fixed part in the order of their
 *     lengths; the part table alone is big-endian, as its readers compare bytes.
 *  2. The last four bytes are the CRC32C of all before them. It is verified first, so whatever
 *     passes was written by some version of this file: a higher format is then ERR_NEWER,
 *     everything else that does not fit is ERR_RECORD.
 *  3. Every length is verified against the bytes that are there, and their sum must be exact.
 *  4. The fixed part of a chunk ends with a CRC32C of its own, so that a start can believe it
 *     without reading the chunk's CRCs behind it (sums.c). 0: an earlier version wrote it, and
 *     nothing but the CRC at the end tells.
 *  5. A header begins with magic, format and length under a CRC of their own, in every format that
 *     will ever be: an older server can tell a newer directory from a damaged one.
 *
 * Life: pure functions; what is decoded borrows from the bytes given.
 * Failure: a value that does not fit writes nothing (0); damaged bytes are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "server/cache/parts.h"
#include "sign.h"

enum {
    KIND_OBJECT = 'O',
    KIND_CHUNK = 'C',
    CRC_BYTES = 4,
    OBJECT_FIXED = 80,
    KIND_BYTES = 2,                  /* format and kind */
    CHUNK_FIXED = 52,                /* the last four are its CRC */
    AT_CHUNK_BYTES = 28,
    VERSION_BYTES_MAX = 1024,
    ETAG_BYTES_MAX = 1024,
    HEADER_PREFIX = 16,              /* magic, format, length; their CRC follows */
    OBJECT_FLAGS_KEPT = OBJECT_DOUBT | OBJECT_STABLE,
};
_Static_assert((int)CHUNK_FIXED == (int)RECORD_CHUNK_HEAD_BYTES, "a head is the fixed part");
static const char header_magic[8] = {'H', 'E', 'A', 'D', 'P', 'O', 'N', 'D'};

/* ---- one direction at a time; the caller has verified the room ---- */
struct out {
    uint8_t *at;
};
static void put(struct out *o, uint64_t value, unsigned bytes)
{
    value = htole64(value);
    memcpy(o->at, &value, bytes);
    o->at += bytes;
}
static void put_bytes(struct out *o, const void *bytes, size_t len)
{
    if (len)
        memcpy(o->at, bytes, len);
    o->at += len;
}
static void put_id(struct out *o, struct id id)
{
    put(o, id.a, 8);
    put(o, id.b, 8);
}
static void put_crc(struct out *o, const void *from)
{
    put(o, crc32c(0, from, (size_t)(o->at - (const uint8_t *)from)), CRC_BYTES);
}

struct in {
    const uint8_t *at;
};
static uint64_t get(struct in *i, unsigned bytes)
{
    uint64_t value = 0;

    memcpy(&value, i->at, bytes);
    i->at += bytes;
    return le64toh(value);
}
static struct id get_id(struct in *i)
{
    struct id id;

    id.a = get(i, 8);
    id.b = get(i, 8);
    return id;
}
static struct span get_span(struct in *i, size_t len)
{
    struct span s = span_make(i->at, len);

    i->at += len;
    return s;
}

/* Format and kind of what was verified; leaves *in behind those. */
static enum err open_kind(struct span bytes, char kind, struct in *in)
{
    in->at = (const uint8_t *)bytes.at;
    uint64_t format = get(in, 1);
    if (format > RECORD_FORMAT)
        return ERR_NEWER;
    return format == RECORD_FORMAT && get(in, 1) == (uint64_t)kind ? OK : ERR_RECORD;
}

static uint32_t crc_at(const uint8_t *at)
{
    struct in in = {at};

    return (uint32_t)get(&in, CRC_BYTES);
}

/* The CRC at the end, then the same. */
static enum err open_record(struct span bytes, size_t fixed, char kind, struct in *in)
{
    const uint8_t *at = (const uint8_t *)bytes.at;

    if (bytes.len < fixed + CRC_BYTES || bytes.len > RECORD_BYTES_MAX)
        return ERR_RECORD;
    if (crc_at(at + bytes.len - CRC_BYTES) != crc32c(0, at, bytes.len - CRC_BYTES))
        return ERR_RECORD;
    return open_kind(bytes, kind, in);
}

/* ---- objects ---- */
size_t record_object_write(const struct object_record *r, void *out, size_t cap)
{
    if (r->bucket.len > BUCKET_BYTES_MAX || r->key.len > KEY_BYTES_MAX ||
        r->version.len > VERSION_BYTES_MAX || r->etag.len > ETAG_BYTES_MAX)
        return 0;
    if (r->headers.len > RECORD_BYTES_MAX || r->parts.len > RECORD_BYTES_MAX ||
        r->parts.len % 8 != 0)
        return 0;
    size_t texts = r->bucket.len + r->key.len + r->version.len + r->etag.len;
    size_t bytes = OBJECT_FIXED + texts + r->headers.len + r->parts.len + CRC_BYTES;
    if (bytes > cap || bytes > RECORD_BYTES_MAX)
        return 0;
    struct out o = {out};
    put(&o, RECORD_FORMAT, 1);
    put(&o, KIND_OBJECT, 1);
    put(&o, r->bucket.len, 2);
    put(&o, r->key.len, 2);
    put(&o, r->version.len, 2);
    put(&o, r->etag.len, 2);
    put(&o, 0, 2);
    put(&o, r->headers.len, 4);
    put(&o, r->parts.len, 4);
    put(&o, r->flags & OBJECT_FLAGS_KEPT, 4);
    put(&o, r->read_s, 8);
    put_id(&o, r->data_id);
    put(&o, r->size, 8);
    put(&o, r->last_modified_s, 8);
    put(&o, r->checked_ms, 8);
    put(&o, r->commit, 8);
    must(o.at == (uint8_t *)out + OBJECT_FIXED);
    put_bytes(&o, r->bucket.at, r->bucket.len);
    put_bytes(&o, r->key.at, r->key.len);
    put_bytes(&o, r->version.at, r->version.len);
    put_bytes(&o, r->etag.at, r->etag.len);
    put_bytes(&o, r->headers.at, r->headers.len);
    put_bytes(&o, r->parts.at, r->parts.len);
    put_crc(&o, out);
    must(o.at == (uint8_t *)out + bytes);
    return bytes;
}

enum err record_object_read(struct span bytes, struct object_record *out)
{
    struct object_record r;
    struct in in;

    TRY(open_record(bytes, OBJECT_FIXED, KIND_OBJECT, &in));
    size_t bucket = get(&in, 2), key = get(&in, 2), version = get(&in, 2), etag = get(&in, 2);
    uint64_t spare = get(&in, 2);
    size_t headers = get(&in, 4), parts = get(&in, 4);
    if (bucket > BUCKET_BYTES_MAX || key > KEY_BYTES_MAX || version > VERSION_BYTES_MAX ||
        etag > ETAG_BYTES_MAX || parts % 8 != 0)
        return ERR_RECORD;
    size_t texts = bucket + key + version + etag;
    if (OBJECT_FIXED + texts + headers + parts + CRC_BYTES != bytes.len)
        return ERR_RECORD;
    r.flags = (uint32_t)get(&in, 4);
    if ((r.flags & ~(uint32_t)OBJECT_FLAGS_KEPT) != 0 || spare != 0)
        return ERR_RECORD;
    r.read_s = get(&in, 8);
    r.data_id = get_id(&in);
    r.size = get(&in, 8);
    r.last_modified_s = get(&in, 8);
    r.checked_ms = get(&in, 8);
    r.commit = get(&in, 8);
    r.bucket = get_span(&in, bucket);
    r.key = get_span(&in, key);
    r.version = get_span(&in, version);
    r.etag = get_span(&in, etag);
    r.headers = get_span(&in, headers);
    r.parts = get_span(&in, parts);
    *out = r;
    return OK;
}

/* ---- chunks ---- */
static uint32_t granules(uint32_t bytes)
{
    return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES;
}

static bool chunk_sound(const struct chunk_record *r)
{
    if (r->bytes == 0 || r->bytes > CHUNK_BYTES || r->crc_count != granules(r->bytes) ||
        r->present == 0)
        return false;
    uint32_t blocks = (r->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    return r->present >> blocks == 0 && r->slot.class_ < SPACE_CLASSES_MAX;
}

size_t record_chunk_write(const struct chunk_record *r, void *out, size_t cap)
{
    if (!chunk_sound(r))
        return 0;
    size_t bytes = CHUNK_FIXED + r->crc_count * CRC_BYTES + CRC_BYTES;
    if (bytes > cap)
        return 0;
    struct out o = {out};
    put(&o, RECORD_FORMAT, 1);
    put(&o, KIND_CHUNK, 1);
    put(&o, r->present, 1);
    put(&o, r->slot.class_, 1);
    put_id(&o, r->object_id);
    put(&o, r->slot.page, 4);
    put(&o, r->slot.at, 2);
    put(&o, r->slot.dir, 1);
    put(&o, 0, 1);
    must(o.at == (uint8_t *)out + AT_CHUNK_BYTES);
    put(&o, r->bytes, 4);
    put(&o, r->mark.last, 4);
    put(&o, r->mark.group, 2);
    put(&o, r->mark.class_, 1);
    put(&o, r->mark.count, 1);
    put(&o, r->mark.credit, 1);
    put(&o, r->mark.flags, 1);
    put(&o, r->mark.spare, 2);
    put(&o, r->crc_count, 4);
    put_crc(&o, out);
    must(o.at == (uint8_t *)out + CHUNK_FIXED);
    for (uint32_t i = 0; i < r->crc_count; i++)
        put(&o, r->crc[i], CRC_BYTES);
    put_crc(&o, out);
    return bytes;
}

/* The fixed part, from behind format and kind; bytes: that, and maybe what follows it. No
 * initialiser: it would zero 256 bytes of CRCs that nobody looks at. */
static enum err read_fixed(struct in in, struct chunk_record *out)
{
    struct chunk_record head;

    head.present = (uint8_t)get(&in, 1);
    head.slot.class_ = (uint8_t)get(&in, 1);
    head.object_id = get_id(&in);
    head.slot.page = (uint32_t)get(&in, 4);
    head.slot.at = (uint16_t)get(&in, 2);
    head.slot.dir = (uint8_t)get(&in, 1);
    uint64_t spare = get(&in, 1);
    head.bytes = (uint32_t)get(&in, 4);
    head.mark = (struct policy_mark){.last = (uint32_t)get(&in, 4)};
    head.mark.group = (uint16_t)get(&in, 2);
    head.mark.class_ = (uint8_t)get(&in, 1);
    head.mark.count = (uint8_t)get(&in, 1);
    head.mark.credit = (uint8_t)get(&in, 1);
    head.mark.flags = (uint8_t)get(&in, 1);
    head.mark.spare = (uint16_t)get(&in, 2);
    head.crc_count = (uint32_t)get(&in, 4);
    if (!chunk_sound(&head) || spare != 0)
        return ERR_RECORD;
    memcpy(out, &head, offsetof(struct chunk_record, crc));
    return OK;
}

static bool head_sound(const uint8_t *at)
{
    return crc_at(at + CHUNK_FIXED - CRC_BYTES) == crc32c(0, at, CHUNK_FIXED - CRC_BYTES);
}

enum err record_chunk_look(struct span bytes, struct chunk_record *out, struct span *crcs)
{
    const uint8_t *at = (const uint8_t *)bytes.at;
    struct in in;

    TRY(open_record(bytes, CHUNK_FIXED, KIND_CHUNK, &in));
    /* *out is set only when everything fits: the length first. */
    uint64_t crc_bytes = (uint64_t)crc_at(at + CHUNK_FIXED - 8) * CRC_BYTES;
    if (bytes.len != CHUNK_FIXED + crc_bytes + CRC_BYTES)
        return ERR_RECORD;
    if (crc_at(at + CHUNK_FIXED - CRC_BYTES) != 0 && !head_sound(at))
        return ERR_RECORD;
    TRY(read_fixed(in, out));
    *crcs = span_make(at + CHUNK_FIXED, crc_bytes);
    return OK;
}

enum err record_chunk_verify(struct span bytes, uint32_t *chunk_bytes)
{
    struct in in;

    if (bytes.len < CHUNK_FIXED || !head_sound((const uint8_t *)bytes.at))
        return ERR_RECORD;
    TRY(open_kind(bytes, KIND_CHUNK, &in));
    in.at = (const uint8_t *)bytes.at + AT_CHUNK_BYTES;
    *chunk_bytes = (uint32_t)get(&in, 4);
    return OK;
}

enum err record_chunk_verified(struct span bytes, struct chunk_record *out)
{
    struct in in = {(const uint8_t *)bytes.at + KIND_BYTES};

    return bytes.len < CHUNK_FIXED ? ERR_RECORD : read_fixed(in, out);
}

enum err record_chunk_head(struct span bytes, struct chunk_record *out)
{
    uint32_t unused;

    TRY(record_chunk_verify(bytes, &unused));
    return record_chunk_verified(bytes, out);
}

/* Nearly all chunks are whole ones: a copy of a length that the compiler knows. */
void record_chunk_crcs(struct span crcs, uint32_t *out)
{
    if (crcs.len == GRANULES_PER_CHUNK * CRC_BYTES)
        memcpy(out, crcs.at, GRANULES_PER_CHUNK * CRC_BYTES);
    else
        memcpy(out, crcs.at, crcs.len);
#if __BYTE_ORDER != __LITTLE_ENDIAN
    for (size_t i = 0; i < crcs.len / CRC_BYTES; i++)
        out[i] = le32toh(out[i]);
#endif
}

enum err record_chunk_read(struct span bytes, struct chunk_record *out)
{
    struct span crcs;

    TRY(record_chunk_look(bytes, out, &crcs));
    record_chunk_crcs(crcs, out->crc);
    return OK;
}

struct id record_chunk_object(struct span bytes)
{
    struct in in = {(const uint8_t *)bytes.at + 4};

    return bytes.len >= CHUNK_FIXED ? get_id(&in) : (struct id){0};
}

/* ---- the header of a directory ---- */
size_t record_header_write(const struct header_record *r, void *out, size_t cap)
{
    if (cap < RECORD_HEADER_BYTES)
        return 0;
    struct out o = {out};
    put_bytes(&o, header_magic, sizeof header_magic);
    put(&o, RECORD_FORMAT, 4);
    put(&o, RECORD_HEADER_BYTES, 4);
    put_crc(&o, out);
    put_bytes(&o, r->secret, sizeof r->secret);
    put_bytes(&o, r->directory_id, sizeof r->directory_id);
    put(&o, r->slab_bytes, 8);
    put_crc(&o, out);
    must(o.at == (uint8_t *)out + RECORD_HEADER_BYTES);
    return RECORD_HEADER_BYTES;
}

enum err record_header_read(struct span bytes, struct header_record *out)
{
    struct header_record r;
    struct in in = {(const uint8_t *)bytes.at};

    if (bytes.len < HEADER_PREFIX + CRC_BYTES ||
        memcmp(in.at, header_magic, sizeof header_magic) != 0)
        return ERR_RECORD;
    in.at += sizeof header_magic;
    r.format = (uint32_t)get(&in, 4);
    uint64_t len = get(&in, 4);
    if (get(&in, CRC_BYTES) != crc32c(0, bytes.at, HEADER_PREFIX))
        return ERR_RECORD;
    if (r.format != RECORD_FORMAT)
        return r.format > RECORD_FORMAT ? ERR_NEWER : ERR_OLDER;
    if (len != RECORD_HEADER_BYTES || bytes.len != RECORD_HEADER_BYTES)
        return ERR_RECORD;
    memcpy(r.secret, get_span(&in, sizeof r.secret).at, sizeof r.secret);
    memcpy(r.directory_id, get_span(&in, sizeof r.directory_id).at, sizeof r.directory_id);
    r.slab_bytes = get(&in, 8);
    if (get(&in, CRC_BYTES) != crc32c(0, bytes.at, RECORD_HEADER_BYTES - CRC_BYTES))
        return ERR_RECORD;
    *out = r;
    return OK;
}
