/* Index records from disk: whatever the bytes, a decoder refuses them or returns what encodes to
 * the same bytes.
 *
 * The first byte chooses the kind; its high bit asks for the CRC to be made right, so that the code
 * behind it is reached. A chunk's head is decoded alone too: it and the whole record agree. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/record.c"

#include "tests/fuzz/fuzz.h"

static uint8_t in[RECORD_BYTES_MAX + 16], out[RECORD_BYTES_MAX + 16];

static void seal_record(size_t len)
{
    struct out o = {in + len - CRC_BYTES};

    put(&o, crc32c(0, in, len - CRC_BYTES), CRC_BYTES);
}

static void check_object(size_t len)
{
    struct object_record r;

    if (record_object_read(span_make(in, len), &r) != OK)
        return;
    demand(record_object_write(&r, out, sizeof out) == len);
    demand(memcmp(in, out, len) == 0);
}

/* Not in a record of an earlier version. */
static bool has_head_crc(size_t len)
{
    return len >= CHUNK_FIXED && crc_at(in + CHUNK_FIXED - CRC_BYTES) != 0;
}

/* An earlier version's is given the checksum of its head that it would be written with. */
static void seal_head(size_t len)
{
    if (has_head_crc(len))
        return;
    seal_record(CHUNK_FIXED);
    seal_record(len);
}

static void check_head(size_t len)
{
    struct chunk_record r, whole;

    if (record_chunk_head(span_make(in, len), &r) != OK)
        return;
    demand(len >= RECORD_CHUNK_HEAD_BYTES);
    demand(r.crc_count <= GRANULES_PER_CHUNK);
    if (record_chunk_read(span_make(in, len), &whole) != OK)
        return;
    memcpy(r.crc, whole.crc, sizeof r.crc);
    demand(record_chunk_write(&r, out, sizeof out) == len);
    demand(memcmp(in, out, len) == 0);
}

static void check_chunk(size_t len)
{
    struct chunk_record r;

    check_head(len);
    if (record_chunk_read(span_make(in, len), &r) != OK)
        return;
    demand(r.crc_count <= GRANULES_PER_CHUNK);
    demand(record_chunk_write(&r, out, sizeof out) == len);
    seal_head(len);
    demand(memcmp(in, out, len) == 0);
}

static void check_header(size_t len)
{
    struct header_record r;

    if (record_header_read(span_make(in, len), &r) != OK)
        return;
    demand(record_header_write(&r, out, sizeof out) == len);
    demand(memcmp(in, out, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size - 1 > sizeof in)
        return 0;
    size_t len = size - 1;
    unsigned kind = data[0] % 0x80 % 3;
    memcpy(in, data + 1, len);
    if (kind == 2 && (data[0] & 0x80) && len >= HEADER_PREFIX + CRC_BYTES)
        seal_record(HEADER_PREFIX + CRC_BYTES);
    if (kind == 1 && (data[0] & 0x80) && has_head_crc(len))
        seal_record(CHUNK_FIXED);
    if ((data[0] & 0x80) && len >= CRC_BYTES)
        seal_record(len);
    kind == 0 ? check_object(len) : kind == 1 ? check_chunk(len) : check_header(len);
    return 0;
}
