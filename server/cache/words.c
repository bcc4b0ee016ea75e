/* The words of an object: bucket, key, version and ETag, one behind the other at the end of its
 * entry, and its fields, which it shares with others that have the same.
 *
 * Of ten million objects each byte here is 10 MB, so there are lengths where pointers would be.
 *
 * Invariants:
 *  1. They never change while the entry lives: what points into them is good for as long as the
 *     object is held.
 *  2. An entry is as long as its words say; so it is given back without knowing more.
 *
 * Life: that of the entry. Failure: words_fit() is asked before they are kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

bool words_fit(const struct okey *k, const struct object_facts *f)
{
    return k->bucket.len <= UINT16_MAX && k->key.len <= UINT16_MAX &&
        k->version.len <= UINT16_MAX && f->etag.len <= UINT16_MAX;
}

size_t words_entry_bytes(const struct okey *k, const struct object_facts *f)
{
    return offsetof(struct entry, text) + k->bucket.len + k->key.len + k->version.len + f->etag.len;
}

size_t entry_bytes(const struct entry *e)
{
    return offsetof(struct entry, text) + e->bucket_len + e->key_len + e->version_len +
        (size_t)e->etag_len;
}

static uint16_t keep(char **at, struct span text)
{
    if (text.len)
        memcpy(*at, text.at, text.len);
    *at += text.len;
    return (uint16_t)text.len;
}

void words_keep(struct entry *e, const struct okey *k, const struct object_facts *f)
{
    char *at = e->text;

    e->bucket_len = keep(&at, k->bucket);
    e->key_len = keep(&at, k->key);
    e->version_len = keep(&at, k->version);
    e->etag_len = keep(&at, f->etag);
}

struct span object_bucket(const struct object *o)
{
    const struct entry *e = const_entry(o);

    return span_make(e->text, e->bucket_len);
}

struct span object_key(const struct object *o)
{
    const struct entry *e = const_entry(o);

    return span_make(e->text + e->bucket_len, e->key_len);
}

struct span object_version(const struct object *o)
{
    const struct entry *e = const_entry(o);

    return span_make(e->text + e->bucket_len + e->key_len, e->version_len);
}

struct span object_etag(const struct object *o)
{
    const struct entry *e = const_entry(o);

    return span_make(e->text + e->bucket_len + e->key_len + e->version_len, e->etag_len);
}

struct span object_headers(const struct object *o)
{
    return headers_span(const_entry(o)->headers);
}
