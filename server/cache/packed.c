/* The packed form of a small object: which it has, how long it is, and what it says.
 *
 *   struct packed | section, place in it | CRC32C of each granule | ETag | key behind the prefix
 *
 * Invariants:
 *  1. What packed_read() says is what packed_make() and packed_set() were told, if small_fits().
 *  2. An ETag that is an MD5 in lower-case hexadecimal, or such a one with the number of parts, as
 *     S3's are, stands as its bytes; any other as it is, behind its length.
 *  3. Seconds since something was written down are kept up to 18 hours, which is all that is asked
 *     of them: then it is due to be written again.
 *
 * Life: packed.h's. Failure: small_fits() is asked first; without memory there is none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "sign.h"
#include "server/cache/packed.h"

enum {
    IS_DOUBTFUL = 1, IS_STABLE = 2, IS_DOUBTED = 4, IS_UNPINNED = 8, HAS_CHUNK = 16,
    HAS_SECTION = 32, ETAG_MD5 = 64, ETAG_PARTS = 128, /* neither: any text */
    IS_UNRECORDED = 128,             /* beside the directory's number */
    MD5_HEX = 2 * MD5_BYTES,
    TAIL_MAX = 255, ETAG_MAX = 255,
    PREFIX_MAX = PACKED_TEXT - TAIL_MAX - ETAG_MAX - 1,
    SECTION_BYTES = 1 + 4,
    MADE_MAX = 640,                  /* the longest */
};

struct packed {
    struct kin *kin;
    struct policy_mark mark;
    uint32_t modified_s, read_s, page;
    uint16_t at;
    uint16_t saved_ago_s;            /* before checked_ms */
    uint16_t saved_read_ago_s;       /* before read_s */
    uint8_t dir, flags;              /* dir: and IS_UNRECORDED */
    uint8_t checked_ms[6], vouched[6], size[3]; /* little-endian */
    uint8_t tail_len;
    uint8_t rest[];
};
_Static_assert(offsetof(struct packed, rest) == 56, "of a hundred million each byte is 100 MB");
_Static_assert(sizeof(struct packed) >= sizeof(struct limbo), "it names its slot");
_Static_assert(CACHE_DIRS_MAX <= (unsigned)IS_UNRECORDED, "a number and a flag");
_Static_assert(MADE_MAX >= sizeof(struct packed) + SECTION_BYTES +
               PACKED_GRANULES * sizeof(uint32_t) + 1 + ETAG_MAX + TAIL_MAX, "any fits");

static void put(uint8_t *at, uint64_t n, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(n >> 8 * i);
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < bytes; i++)
        n |= (uint64_t)at[i] << 8 * i;
    return n;
}

/* ---- ETags ---- */
/* "hex" or "hex-parts", with the quotes. Returns which kind, 0: another one. */
static uint8_t etag_kind(struct span etag, uint8_t md5[MD5_BYTES], uint32_t *parts)
{
    struct span text = etag;
    uint64_t n;

    *parts = 0;
    if (etag.len < MD5_HEX + 2 || etag.at[0] != '"' || etag.at[etag.len - 1] != '"')
        return 0;
    text = span_make(etag.at + 1, etag.len - 2);
    for (unsigned i = 0; i < MD5_HEX; i++)
        if (text.at[i] >= 'A' && text.at[i] <= 'F')
            return 0;
    if (hex_read(span_make(text.at, MD5_HEX), md5, MD5_BYTES) != OK)
        return 0;
    text = span_from(text, MD5_HEX);
    if (text.len == 0)
        return ETAG_MD5;
    if (text.at[0] != '-' || text.len < 2 || text.at[1] == '0' ||
        span_u64(span_from(text, 1), &n) != OK || n > UINT16_MAX)
        return 0;
    *parts = (uint32_t)n;
    return ETAG_PARTS;
}

static size_t etag_bytes(const uint8_t *at, uint8_t flags)
{
    return flags & ETAG_MD5 ? MD5_BYTES : flags & ETAG_PARTS ? MD5_BYTES + 2 : 1U + at[0];
}

static size_t write_etag(uint8_t *at, struct span etag, uint8_t *flags)
{
    uint8_t md5[MD5_BYTES];
    uint32_t parts;
    uint8_t kind = etag_kind(etag, md5, &parts);

    *flags |= kind;
    if (kind == 0) {
        at[0] = (uint8_t)etag.len;
        if (etag.len)
            memcpy(at + 1, etag.at, etag.len);
    } else {
        memcpy(at, md5, MD5_BYTES);
        if (kind == ETAG_PARTS)
            put(at + MD5_BYTES, parts, 2);
    }
    return etag_bytes(at, *flags);
}

static struct span read_etag(const uint8_t *at, uint8_t flags, char out[ETAG_MAX])
{
    size_t len = MD5_HEX + 1;

    if (!(flags & (ETAG_MD5 | ETAG_PARTS)))
        return span_make((const char *)at + 1, at[0]);
    out[0] = '"';
    hex_write(at, MD5_BYTES, out + 1);
    if (flags & ETAG_PARTS)
        len += (size_t)snprintf(out + len, ETAG_MAX - len, "-%u",
                                (unsigned)get(at + MD5_BYTES, 2));
    out[len++] = '"';
    return span_make(out, len);
}

/* ---- where what stands ---- */
static unsigned granules(const struct packed *p)
{
    return chunk_granules((uint32_t)get(p->size, sizeof p->size));
}

static size_t crc_at(const struct packed *p)
{
    return p->flags & HAS_SECTION ? SECTION_BYTES : 0;
}

static size_t etag_at(const struct packed *p)
{
    return crc_at(p) + granules(p) * sizeof(uint32_t);
}

static size_t tail_at(const struct packed *p)
{
    return etag_at(p) + etag_bytes(p->rest + etag_at(p), p->flags);
}

static size_t prefix_of(struct span key)
{
    size_t n = key.len;

    while (n > 0 && key.at[n - 1] != '/')
        n--;
    return n == key.len ? 0 : n;     /* the name of a folder stands for itself */
}

size_t packed_bytes(const struct packed *p)
{
    return offsetof(struct packed, rest) + tail_at(p) + p->tail_len;
}

size_t packed_bytes_of(size_t tail_len, uint32_t size)
{
    return offsetof(struct packed, rest) + chunk_granules(size) * sizeof(uint32_t) + MD5_BYTES +
           min_u64(tail_len, TAIL_MAX);
}

/* ---- make ---- */
bool small_fits(const struct cache *c, const struct small *s)
{
    size_t prefix = prefix_of(s->k.key);

    return s->size > 0 && s->size <= PACKED_BYTES_MAX && s->k.version.len == 0 &&
           s->k.store < c->server->store_count && s->k.bucket.len > 0 &&
           s->k.bucket.len <= UINT8_MAX && prefix <= PREFIX_MAX &&
           s->k.key.len - prefix <= TAIL_MAX && s->etag.len <= ETAG_MAX &&
           s->modified_s <= UINT32_MAX && s->checked_ms >> 48 == 0 && s->vouched >> 48 == 0 &&
           !(s->flags & ~(uint32_t)(OBJECT_DOUBT | OBJECT_STABLE)) &&
           id_eq(index_object_id(c, &s->k), s->k.id);
}

bool small_fits_chunk(const struct cache *c, const struct small *s)
{
    return s->slot.class_ == space_class((uint32_t)s->size) &&
           id_eq(cache_data_id(c, &s->k, s->etag, s->size), s->data_id);
}

static uint16_t ago(uint64_t now_s, uint32_t then_s)
{
    return (uint16_t)(now_s > then_s ? min_u64(now_s - then_s, UINT16_MAX) : 0);
}

void packed_set(struct packed *p, const struct small *s)
{
    uint8_t stays = p->flags & (HAS_SECTION | ETAG_MD5 | ETAG_PARTS);

    p->mark = s->mark;
    p->modified_s = (uint32_t)s->modified_s;
    p->read_s = s->read_s;
    p->page = s->slot.page;
    p->at = s->slot.at;
    p->dir = (uint8_t)(s->slot.dir | (s->unrecorded ? IS_UNRECORDED : 0));
    p->saved_ago_s = ago(s->checked_ms / 1000, s->saved_s);
    p->saved_read_ago_s = ago(s->read_s, s->saved_read_s);
    put(p->checked_ms, s->checked_ms, sizeof p->checked_ms);
    put(p->vouched, s->vouched, sizeof p->vouched);
    p->flags = (uint8_t)(stays | (s->flags & OBJECT_DOUBT ? IS_DOUBTFUL : 0) |
                         (s->flags & OBJECT_STABLE ? IS_STABLE : 0) |
                         (s->doubted ? IS_DOUBTED : 0) | (s->unpinned ? IS_UNPINNED : 0) |
                         (s->has_chunk ? HAS_CHUNK : 0));
    if (p->flags & HAS_SECTION)
        p->rest[0] = s->section;
    memcpy(p->rest + crc_at(p), s->crc, granules(p) * sizeof(uint32_t));
}

struct packed *packed_make(struct cache *c, const struct small *s)
{
    uint8_t made[MADE_MAX] __attribute__((aligned(8))) = {0};
    struct packed *x = (struct packed *)(void *)made;
    size_t prefix = prefix_of(s->k.key);
    struct span tail = span_from(s->k.key, prefix);

    x->kin = kin_take(c, &s->k, prefix, s->headers);
    if (!x->kin)
        return NULL;
    put(x->size, s->size, sizeof x->size);
    x->flags = s->section ? HAS_SECTION : 0;
    size_t at = etag_at(x);
    at += write_etag(x->rest + at, s->etag, &x->flags);
    x->tail_len = (uint8_t)tail.len;
    if (tail.len)
        memcpy(x->rest + at, tail.at, tail.len);
    packed_set(x, s);
    size_t bytes = packed_bytes(x);
    struct packed *p = cells_take(c->cells, bytes);
    if (!p) {
        kin_drop(x->kin);
        return NULL;
    }
    memcpy(p, made, bytes);
    index_charge_cell(c, bytes);
    atomic_fetch_add(&c->packing.packed, 1);
    return p;
}

static void forget(struct cache *c, struct packed *p, size_t bytes)
{
    kin_drop(p->kin);
    index_uncharge_cell(c, bytes);
    atomic_fetch_sub(&c->packing.packed, 1);
}

void packed_give(struct cache *c, struct packed *p)
{
    size_t bytes = packed_bytes(p);

    forget(c, p, bytes);
    cells_give(c->cells, p, bytes);
}

void packed_lose_chunk(struct packed *p)
{
    p->flags &= (uint8_t)~HAS_CHUNK;
}

void packed_limbo(struct cache *c, struct packed *p, struct slot slot)
{
    struct directory *d = &c->dir[slot.dir];
    struct limbo *l = (struct limbo *)(void *)p;
    size_t bytes = packed_bytes(p);

    forget(c, p, bytes);
    *l = (struct limbo){.slot = slot, .bytes = (uint32_t)bytes};
    atomic_fetch_add(&d->limbo_bytes, space_class_bytes(slot.class_));
    journal_limbo(d->journal, l);
}

/* ---- read ---- */
static void read_names(const struct packed *p, struct small *s, char text[PACKED_TEXT])
{
    struct span prefix = kin_prefix(p->kin);
    char *at = text;

    if (prefix.len)
        memcpy(at, prefix.at, prefix.len);
    memcpy(at + prefix.len, p->rest + tail_at(p), p->tail_len);
    s->k = (struct okey){.bucket = kin_bucket(p->kin), .version = span_of(""),
                         .key = span_make(text, prefix.len + p->tail_len), .store = p->kin->store,
                         .bucket_stripe = p->kin->bucket_stripe};
    at += s->k.key.len;
    s->etag = read_etag(p->rest + etag_at(p), p->flags, at);
    s->size = get(p->size, sizeof p->size);
}

struct id packed_id(const struct packed *p)
{
    char text[PACKED_TEXT];
    struct small s;

    read_names(p, &s, text);
    return index_object_id(p->kin->cache, &s.k);
}

struct id packed_data_id(const struct packed *p)
{
    char text[PACKED_TEXT];
    struct small s;

    read_names(p, &s, text);
    return cache_data_id(p->kin->cache, &s.k, s.etag, s.size);
}

void packed_read(const struct packed *p, struct small *s, char text[PACKED_TEXT])
{
    *s = (struct small){.mark = p->mark, .modified_s = p->modified_s, .read_s = p->read_s};
    read_names(p, s, text);
    s->headers = headers_span(p->kin->headers);
    s->checked_ms = get(p->checked_ms, sizeof p->checked_ms);
    s->vouched = get(p->vouched, sizeof p->vouched);
    s->saved_s = (uint32_t)(s->checked_ms / 1000 - min_u64(p->saved_ago_s, s->checked_ms / 1000));
    s->saved_read_s = p->read_s - (uint32_t)min_u64(p->saved_read_ago_s, p->read_s);
    s->flags = (p->flags & IS_DOUBTFUL ? OBJECT_DOUBT : 0) |
               (p->flags & IS_STABLE ? (uint32_t)OBJECT_STABLE : 0);
    s->doubted = p->flags & IS_DOUBTED;
    s->unpinned = p->flags & IS_UNPINNED;
    s->unrecorded = packed_is_unrecorded(p);
    s->has_chunk = p->flags & HAS_CHUNK;
    s->slot = packed_slot(p);
    s->section = packed_section(p);
    memcpy(s->crc, p->rest + crc_at(p), granules(p) * sizeof(uint32_t));
}

bool packed_has_chunk(const struct packed *p)
{
    return p->flags & HAS_CHUNK;
}

bool packed_is_unrecorded(const struct packed *p)
{
    return p->dir & IS_UNRECORDED;
}

struct policy_mark *packed_mark(struct packed *p)
{
    return &p->mark;
}

struct slot packed_slot(const struct packed *p)
{
    return (struct slot){.page = p->page, .at = p->at,
                         .dir = (uint8_t)(p->dir & ~IS_UNRECORDED),
                         .class_ = (uint8_t)space_class((uint32_t)get(p->size, sizeof p->size))};
}

void packed_set_unpinned(struct packed *p)
{
    p->flags |= IS_UNPINNED;
}

uint8_t packed_section(const struct packed *p)
{
    return p->flags & HAS_SECTION ? p->rest[0] : 0;
}

void packed_leave_section(struct packed *p)
{
    if (p->flags & HAS_SECTION)
        p->rest[0] = 0;
}

uint32_t packed_in_section(const struct packed *p)
{
    return (uint32_t)get(p->rest + 1, 4);
}

void packed_set_in_section(struct packed *p, uint32_t at)
{
    must(p->flags & HAS_SECTION);
    put(p->rest + 1, at, 4);
}
