/* One page of a store's list of objects: keys, sizes and ETags.
 *
 * Invariants:
 *  1. Keys come in ascending order of their bytes, each behind the place from which was asked: so
 *     the last one is a place to go on from, and no list goes on for ever. A page may have no key
 *     and say where it goes on (a store that hides what it passed): its token is the place then.
 *  2. Keys stay as they came until the page is whole: only then it is known whether they are
 *     encoded.
 *
 * Life: page_begin(), any number of page_feed(), page_end(); the spans live until the next begin.
 * Failure: what is no such list is refused whole. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "http.h"
#include "server/jobs/inside.h"

static bool keep(struct page *p, struct span text, struct span *out)
{
    if (text.len > sizeof p->text - p->used)
        return false;
    memcpy(p->text + p->used, text.at, text.len);
    *out = span_make(p->text + p->used, text.len);
    p->used += text.len;
    return true;
}

/* Of the object whose end tag is still to come. */
static bool take_field(struct page *p, struct span name, struct span text)
{
    struct listed *l = &p->item[p->count];

    if (p->count == PAGE_KEYS_MAX)
        return false;
    if (span_is(name, "Key"))
        return keep(p, text, &l->key);
    if (span_is(name, "ETag"))
        return keep(p, text, &l->etag);
    if (span_is(name, "Size"))
        return span_u64(text, &l->size) == OK;
    return true;
}

static bool take_leaf(void *user, struct span path, struct span text)
{
    static const char root[] = "ListBucketResult", object[] = "ListBucketResult/Contents";
    struct page *p = user;

    if (span_starts(path, span_of("ListBucketResult/Contents/")))
        return take_field(p, span_from(path, sizeof object), text);
    if (span_is(path, object)) {
        bool named = p->count < PAGE_KEYS_MAX && p->item[p->count].key.len > 0;
        p->count += named;
        return named;
    }
    if (span_is(path, "ListBucketResult/IsTruncated"))
        p->more = span_is(text, "true");
    else if (span_is(path, "ListBucketResult/EncodingType"))
        p->encoded = span_is(text, "url");
    else if (span_is(path, "ListBucketResult/NextContinuationToken") && text.len <= PAGE_TOKEN_MAX)
        snprintf(p->token, sizeof p->token, "%.*s", (int)text.len, text.at);
    p->listing = p->listing || span_is(path, root);
    return span_starts(path, span_of(root));
}

enum err page_begin(struct page *p)
{
    page_close(p);
    memset(p->item, 0, sizeof p->item);
    p->count = 0;
    p->more = p->encoded = p->listing = p->given = false;
    p->token[0] = '\0';
    p->used = 0;
    p->reader = xml_open(PAGE_BYTES_MAX, take_leaf, p);
    return p->reader ? OK : ERR_MEMORY;
}

enum err page_feed(struct page *p, struct span bytes)
{
    return xml_feed(p->reader, bytes);
}

/* In place: what is decoded is never longer. */
static enum err decode_key(struct listed *l)
{
    char key[KEY_BYTES_MAX];
    size_t len;

    TRY(uri_decode(l->key, true, key, sizeof key, &len));
    if (len == 0)
        return ERR_SYNTAX;
    memcpy((char *)(uintptr_t)l->key.at, key, len);
    l->key.len = len;
    return OK;
}

enum err page_end(struct page *p, struct span after)
{
    enum err err = xml_end(p->reader);

    page_close(p);
    if (err != OK)
        return err;
    for (unsigned i = 0; i < p->count; i++) {
        struct listed *l = &p->item[i];
        if (p->encoded)
            TRY(decode_key(l));
        if (l->key.len > KEY_BYTES_MAX || memchr(l->key.at, '\0', l->key.len) ||
            span_compare(l->key, after) <= 0)
            return ERR_SYNTAX;
        after = l->key;
    }
    return p->listing && (p->count > 0 || !p->more || p->token[0]) ? OK : ERR_SYNTAX;
}

void page_close(struct page *p)
{
    if (p->reader)
        xml_close(p->reader);
    p->reader = NULL;
}

/* Without its quotes. */
static struct span bare(struct span etag)
{
    if (etag.len >= 2 && etag.at[0] == '"' && etag.at[etag.len - 1] == '"')
        return span_make(etag.at + 1, etag.len - 2);
    return etag;
}

bool listed_has_etag(const struct listed *l, struct span etag)
{
    return l->etag.len > 0 && span_eq(bare(l->etag), bare(etag));
}

bool listed_is(const struct listed *l, struct span etag, uint64_t size)
{
    return l->size == size && listed_has_etag(l, etag);
}
