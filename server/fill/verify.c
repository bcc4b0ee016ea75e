/* Bytes of a whole object, compared with the checksum that upstream names: pure but for what is
 * remembered of each upstream's ETags.
 *
 * Invariants:
 *  1. What is named comes from the object: fields that a HEAD or a whole answer brought, or an ETag
 *     that may be an MD5. Nothing more is asked of upstream for it.
 *  2. A value that is not of the object's bytes (COMPOSITE, "-N") or makes no sense is not
 *     compared.
 *  3. An ETag of 32 digits is only a hint, as S3 promises nothing about it: two equal answers that
 *     do not match it stand, and are counted. (A client without us would read the same; a checksum
 *     field it would check itself.) Until one of this upstream was the MD5 of its bytes they prove
 *     that none is, and ETags are compared no more.
 *
 * Life: chosen when the block has come; nothing is kept but a bit or two for each upstream.
 * Failure: ERR_CHECKSUM; the fetch asks once more, then it fails.
 *
 * An MD5 is compared up to MD5_BYTES_MOST only: of all sums it is the one that is nearly always
 * there, and it costs 1.4 ms per MiB of a core that serves others meanwhile (a CRC: 0.03 to 0.14
 * ms). Measured, CPU per miss over plain HTTP: of 16 KiB 0.14 ms with and without it, of 64 KiB
 * 0.36 ms with it and 0.21 without. The sums of SHA are slow as well, but upstream has them only of
 * objects whose uploader asked for them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "payload.h"
#include "server/fill/fill.h"

enum { MD5_BYTES_MOST = 16 * KIB };

/* Of those that an object has, the one that costs least. */
static const uint8_t by_cost[] = {
    PAYLOAD_CRC32C, PAYLOAD_CRC32, PAYLOAD_XXHASH3, PAYLOAD_XXHASH64, PAYLOAD_XXHASH128,
    PAYLOAD_CRC64NVME, PAYLOAD_SHA1, PAYLOAD_SHA256, PAYLOAD_SHA512, PAYLOAD_MD5,
};

/* ---- what is named ---- */

/* The value of a kept field (lower-case names); at NULL: it is not there. */
static struct span kept_field(struct span kept, const char *name)
{
    size_t len = strlen(name);

    while (kept.len > 0) {
        struct span line = span_cut(&kept, '\n');
        if (line.len > len + 1 && line.at[len] == ':' && memcmp(line.at, name, len) == 0)
            return span_trim(span_make(line.at + len + 1, line.len - len - 2)); /* not the CR */
    }
    return (struct span){0};
}

static bool read_digest(struct span value, enum payload_kind kind, uint8_t *out)
{
    size_t len;

    return base64_read(value, out, PAYLOAD_DIGEST_MAX, &len) == OK &&
           len == payload_digest_bytes(kind);
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* 32 digits in quotes, and nothing that says it is no MD5: stores that encrypt with keys of others
 * make up an ETag, appended objects have one of their own. */
static bool read_md5(struct span etag, struct span kept, uint8_t *out)
{
    struct span sealed = kept_field(kept, "x-amz-server-side-encryption");

    if (etag.len != 2 * MD5_BYTES + 2 || etag.at[0] != '"' || etag.at[etag.len - 1] != '"' ||
        (sealed.len > 0 && !span_is_nocase(sealed, "AES256")) ||
        kept_field(kept, "x-rgw-object-type").at)
        return false;
    for (size_t i = 0; i < MD5_BYTES; i++) {
        int high = digit_of(etag.at[1 + 2 * i]), low = digit_of(etag.at[2 + 2 * i]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool verify_names(struct span kept, struct span etag, uint64_t size, struct named_sum *out)
{
    struct span type = kept_field(kept, "x-amz-checksum-type");

    *out = (struct named_sum){.kind = PAYLOAD_NO_SUM};
    for (size_t i = 0; i < ARRAY_COUNT(by_cost) && !span_is_nocase(type, "COMPOSITE"); i++) {
        enum payload_kind kind = (enum payload_kind)by_cost[i];
        struct span value = kept_field(kept, payload_kind_field(kind));
        if (value.len > 0 && read_digest(value, kind, out->digest)) {
            out->kind = (uint8_t)kind;
            return true;
        }
    }
    if (size > MD5_BYTES_MOST || !read_md5(etag, kept, out->digest))
        return false;
    out->kind = PAYLOAD_MD5;
    out->etag = true;
    return true;
}

/* ---- whether an upstream's ETags are MD5s ---- */
enum { ETAGS_UNKNOWN, ETAGS_MD5, ETAGS_OTHER };

static _Atomic uint8_t *etags_of(const struct fetch *f)
{
    return &f->m.core->server->fills->etags[f->epoch.upstream];
}

void verify_tell(struct core *c, const struct origin *origin, const struct object *o,
                 const struct named_sum *named)
{
    metric_add(c->metrics, METRIC_UPSTREAM_CHECKSUM_MISMATCH_TOTAL, origin_label(origin), 1);
    log_event(EVENT_UPSTREAM_CHECKSUM, "upstream=%s bucket=%s key=%s checksum=%s%s",
              log_value(span_of(origin_store_name(origin))), log_value(object_bucket(o)),
              log_value(object_key(o)),
              payload_kind_name((enum payload_kind)named->kind), named->etag ? " in=ETag" : "");
}

static void tell(const struct fetch *f, const struct named_sum *named)
{
    verify_tell(f->m.core, f->x.origin, f->object, named);
}

/* The same bytes came twice: that is what the store has, so the ETag means something else. If none
 * of this upstream was ever right, no other will be. */
static bool is_no_md5(struct fetch *f, const struct named_sum *named, const uint8_t *digest)
{
    struct verify *v = &f->verify;
    uint8_t unknown = ETAGS_UNKNOWN;

    if (!named->etag || !v->again || memcmp(v->first, digest, MD5_BYTES) != 0)
        return false;
    if (atomic_compare_exchange_strong(etags_of(f), &unknown, ETAGS_OTHER))
        log_event(EVENT_UPSTREAM_ETAGS, "upstream=%s bucket=%s key=%s",
                  log_value(span_of(origin_store_name(f->x.origin))),
                  log_value(object_bucket(f->object)), log_value(object_key(f->object)));
    else if (unknown == ETAGS_MD5)
        tell(f, named);
    return true;
}

/* ---- the verdict ---- */

bool verify_begin(struct fetch *f)
{
    struct named_sum *named = &f->verify.named;

    if (!verify_names(object_headers(f->object), object_etag(f->object), f->object->size, named) ||
        (named->etag && atomic_load(etags_of(f)) == ETAGS_OTHER))
        return false;
    payload_sum_begin(&f->verify.sum, (enum payload_kind)named->kind);
    return true;
}

void verify_add(struct fetch *f, const void *mem, uint32_t len)
{
    payload_sum_add(&f->verify.sum, mem, len);
}

enum err verify_end(struct fetch *f)
{
    const struct named_sum *named = &f->verify.named;
    uint8_t digest[PAYLOAD_DIGEST_MAX];

    size_t bytes = payload_sum_end(&f->verify.sum, digest);
    if (memcmp(digest, named->digest, bytes) == 0) {
        if (named->etag)
            atomic_store(etags_of(f), ETAGS_MD5);
        return OK;
    }
    if (is_no_md5(f, named, digest))
        return OK;
    memcpy(f->verify.first, digest, MD5_BYTES);
    if (!named->etag || f->verify.again || atomic_load(etags_of(f)) == ETAGS_MD5)
        tell(f, named);
    return ERR_CHECKSUM;
}
