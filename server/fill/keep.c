/* What of an upstream answer is kept with a generation, and what must not be stored at all. Pure.
 *
 * Invariants:
 *  1. A kept value carries no control byte, so that it can be replayed into a head as it is.
 *  2. What belongs to one answer, one hop or one proxy is not kept; checksums only from whole
 *     answers.
 *
 * Life: the kept text lives in the caller's arena.
 * Failure: ERR_TOO_LARGE, ERR_SYNTAX: the object is relayed uncached. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

enum { ETAG_BYTES_MAX = 256 };

static bool is_printable(struct span text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = (uint8_t)text.at[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool starts_nocase(struct span text, const char *start)
{
    size_t len = strlen(start);
    return text.len >= len && span_is_nocase(span_make(text.at, len), start);
}

static bool is_one_of(struct span name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (span_is_nocase(name, list[i]))
            return true;
    return false;
}

/* Kept is what describes the object: S3's own five, the x- fields of S3 and of the stores that add
 * some; nothing that a proxy in between may have added for one answer. */
static bool is_kept(const struct http_head *upstream, struct span name)
{
    static const char *const kept[] = {
        "content-type", "content-language", "content-disposition", "content-encoding",
        "cache-control", "expires",
    };
    static const char *const per_answer[] = {
        "x-amz-id-2", "x-amz-mp-parts-count", "x-amz-request-charged", "x-amz-delete-marker",
        "x-amz-bucket-region", "x-amz-security-token", "x-amz-cf-id", "x-amz-cf-pop",
    };
    if (is_one_of(name, kept, ARRAY_COUNT(kept)) || starts_nocase(name, "x-amz-meta-"))
        return true;
    if (!starts_nocase(name, "x-amz-") && !starts_nocase(name, "x-rgw-") &&
        !starts_nocase(name, "x-goog-"))
        return false;
    if (starts_nocase(name, "x-amz-checksum-") && upstream->status != 200)
        return false;                /* of a part or of a range */
    struct span end = name.len >= 10 ? span_from(name, name.len - 10) : name;
    return !span_is_nocase(end, "request-id") &&
           !is_one_of(name, per_answer, ARRAY_COUNT(per_answer));
}

/* Of an object in parts, a checksum that does not say whether it is of the bytes or of the parts'
 * checksums ("-N" behind the value, or x-amz-checksum-type): some stores leave both out in answers
 * to HEAD, and clients would compare it with the bytes. */
static bool is_vague_sum(const struct http_head *upstream, const struct http_field *f)
{
    struct span etag = http_find(upstream, "etag");
    if (!starts_nocase(f->name, "x-amz-checksum-") || span_find(etag, '-') == etag.len ||
        http_find(upstream, "x-amz-checksum-type").at)
        return false;
    return !span_is_nocase(f->name, "x-amz-checksum-algorithm") &&
           span_find(f->value, '-') == f->value.len;
}

static void add_lower(struct text *out, struct span name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.at[i];
        text_addc(out, c >= 'A' && c <= 'Z' ? (char)(c + 32) : c);
    }
}

enum err fill_headers_keep(const struct http_head *upstream, struct arena *arena, struct span *out)
{
    size_t bytes = 0;
    struct text kept;
    for (unsigned i = 0; i < upstream->count; i++) {
        const struct http_field *f = &upstream->field[i];
        if (!is_kept(upstream, f->name) || is_vague_sum(upstream, f))
            continue;
        if (!is_printable(f->value) || !is_printable(f->name))
            return ERR_SYNTAX;
        bytes += f->name.len + f->value.len + 4;
    }
    if (bytes > KEPT_BYTES_MAX)
        return ERR_TOO_LARGE;
    char *memory = arena_take(arena, bytes + 1);
    if (!memory)
        return ERR_MEMORY;
    text_init(&kept, memory, bytes + 1);
    for (unsigned i = 0; i < upstream->count; i++) {
        const struct http_field *f = &upstream->field[i];
        if (!is_kept(upstream, f->name) || is_vague_sum(upstream, f))
            continue;
        add_lower(&kept, f->name);
        text_adds(&kept, ": ");
        text_add(&kept, f->value);
        text_adds(&kept, "\r\n");
    }
    must(!kept.over);                /* counted above */
    *out = text_span(&kept);
    return OK;
}

void fill_marker_keep(const struct http_head *upstream, struct upstream_error *e)
{
    struct span version = http_find(upstream, "x-amz-version-id");
    struct text t;
    uint64_t s;
    if (!span_is_nocase(http_find(upstream, "x-amz-delete-marker"), "true"))
        return;
    e->marker = true;
    text_init(&t, e->version, sizeof(e->version));
    if (version.len < sizeof(e->version) && is_printable(version))
        text_add(&t, version);
    if (http_date_read(http_find(upstream, "last-modified"), &s) == OK)
        e->last_modified_s = s;
}

bool fill_storable(const struct http_head *upstream)
{
    struct span etag = http_find(upstream, "etag");
    uint64_t from, to, size;
    if (etag.len == 0 || etag.len > ETAG_BYTES_MAX || starts_nocase(etag, "W/") ||
        !is_printable(etag))
        return false;                /* weak: If-Match could not hold the fetches together */
    if (http_find(upstream, "x-amz-server-side-encryption-customer-algorithm").at)
        return false;
    if (upstream->status == 206)
        return http_content_range(http_find(upstream, "content-range"), &from, &to, &size) == OK &&
               from <= to;
    return upstream->status == 200 && span_u64(http_find(upstream, "content-length"), &size) == OK;
}
