/* Listings of the test origin: ListObjects v1 and v2, ListBuckets; query values, dates.
 *
 * Invariants:
 *  1. Only objects from `object` lines are listed, in byte order of their keys.
 *  2. Keys and common prefixes share one order and one count (max-keys).
 *
 * Life: a document is one block of text, the caller's to give back.
 * Failure: without memory NULL. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/lib/origin_part.h"

#define XML_HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define XML_SPACE " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

enum { ENTRY_BYTES = 600, LIST_KEYS_MAX = 1000 };

void origin_date(uint64_t unix_s, char out[40])
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t t = (time_t)unix_s;
    struct tm tm;

    gmtime_r(&t, &tm);
    snprintf(out, 40, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * tm.tm_wday, tm.tm_mday,
             months + 3 * tm.tm_mon, (tm.tm_year + 1900) % 10000, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bad escapes stay as they are: an upstream need not be strict. */
size_t origin_decode(struct span in, bool plus, char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < in.len && n < cap; i++) {
        char c = in.at[i];
        bool escape = c == '%' && i + 2 < in.len && digit_of(in.at[i + 1]) >= 0 &&
                      digit_of(in.at[i + 2]) >= 0;
        if (escape) {
            out[n++] = (char)(digit_of(in.at[i + 1]) * 16 + digit_of(in.at[i + 2]));
            i += 2;
        } else {
            out[n++] = plus && c == '+' ? ' ' : c;
        }
    }
    return n;
}

/* The decoded value of a query parameter; false if it is absent. */
bool origin_query(struct span query, const char *name, char *out, size_t cap)
{
    size_t len = strlen(name);

    for (size_t at = 0; at < query.len;) {
        struct span part = {query.at + at, query.len - at};
        char *stop = memchr(part.at, '&', part.len);
        if (stop)
            part.len = (size_t)(stop - part.at);
        at += part.len + 1;
        if (part.len < len || memcmp(part.at, name, len) != 0)
            continue;
        if (part.len > len && part.at[len] != '=')
            continue;
        size_t skip = min_u64(len + 1, part.len);
        out[origin_decode((struct span){part.at + skip, part.len - skip}, true, out, cap - 1)] = 0;
        return true;
    }
    return false;
}

/* ---- texts ---- */

static void add_escaped(struct text *t, struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        switch (s.at[i]) {
        case '&': text_adds(t, "&amp;"); break;
        case '<': text_adds(t, "&lt;"); break;
        case '>': text_adds(t, "&gt;"); break;
        case '"': text_adds(t, "&quot;"); break;
        case '\r': text_adds(t, "&#13;"); break;
        default: text_addc(t, s.at[i]);
        }
    }
}

/* encoding-type=url keeps A-Z a-z 0-9 - _ . / * and writes '+' for a blank. */
static void add_name(struct text *t, struct span s, bool url)
{
    if (!url) {
        add_escaped(t, s);
        return;
    }
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = (uint8_t)s.at[i];
        bool bare = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    (c && strchr("-_./*", c));
        if (bare || c == ' ')
            text_addc(t, c == ' ' ? '+' : (char)c);
        else
            text_addf(t, "%%%02X", c);
    }
}

static void add_element(struct text *t, const char *name, struct span value, bool url)
{
    text_addf(t, "<%s>", name);
    add_name(t, value, url);
    text_addf(t, "</%s>", name);
}

/* ---- the sorted view ---- */

static int compare_spans(struct span a, struct span b)
{
    int order = memcmp(a.at, b.at, min_u64(a.len, b.len));
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_objects(const void *a, const void *b)
{
    const struct object *x = *(struct object *const *)a, *y = *(struct object *const *)b;
    int order = compare_spans(x->bucket, y->bucket);
    return order ? order : compare_spans(x->key, y->key);
}

static void sort_objects(struct origin *o)
{
    if (o->sorted)
        return;
    o->sorted = mem_take((o->made + 1) * sizeof *o->sorted);
    must(o->sorted);
    o->listed = 0;
    for (unsigned i = 0; i < ORIGIN_TABLE; i++)
        for (struct object *obj = o->table[i]; obj; obj = obj->next)
            if (obj->listed && !obj->gone)
                o->sorted[o->listed++] = obj;
    qsort(o->sorted, o->listed, sizeof(struct object *), compare_objects);
}

/* ---- ListObjects ---- */

struct listing {
    bool v2, url, owner;
    uint64_t max;
    char prefix[KEY_MAX], delimiter[64], after[KEY_MAX], token[KEY_MAX], start_after[KEY_MAX];
    bool has_token;
    struct text body;
    uint64_t count;
    bool truncated;
    struct span last;                /* key or common prefix that was listed last */
};

static void read_listing(const struct request *r, struct listing *l)
{
    char value[64];

    l->v2 = origin_query(r->query, "list-type", value, sizeof value) && strcmp(value, "2") == 0;
    l->url = origin_query(r->query, "encoding-type", value, sizeof value) && !strcmp(value, "url");
    l->owner = origin_query(r->query, "fetch-owner", value, sizeof value) && !strcmp(value, "true");
    l->max = LIST_KEYS_MAX;
    if (origin_query(r->query, "max-keys", value, sizeof value) &&
        size_read(span_of(value), &l->max) != OK)
        l->max = LIST_KEYS_MAX;
    l->max = min_u64(l->max, LIST_KEYS_MAX);
    origin_query(r->query, "prefix", l->prefix, sizeof l->prefix);
    origin_query(r->query, "delimiter", l->delimiter, sizeof l->delimiter);
    origin_query(r->query, l->v2 ? "start-after" : "marker", l->start_after, sizeof l->start_after);
    l->has_token = l->v2 && origin_query(r->query, "continuation-token", l->token, sizeof l->token);
    /* Our token is the last name, marked so that nobody mistakes it for a key. */
    if (l->has_token && strncmp(l->token, "t-", 2) == 0)
        memcpy(l->after, l->token + 2, strlen(l->token + 2) + 1);
    else
        memcpy(l->after, l->start_after, sizeof l->after);
}

static void add_object(struct listing *l, const struct object *obj)
{
    struct text *t = &l->body;
    char etag[BYTES_ETAG_MAX];
    time_t at = (time_t)obj->modified_s;
    struct tm tm;

    gmtime_r(&at, &tm);
    bytes_etag(bytes_seed(obj->bucket, obj->key, obj->version), obj->version, etag);
    text_adds(t, "<Contents>");
    add_element(t, "Key", obj->key, l->url);
    text_addf(t, "<LastModified>%04d-%02d-%02dT%02d:%02d:%02d.000Z</LastModified>",
              tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    add_element(t, "ETag", obj->etag.len > 0 ? obj->etag : span_of(etag), false);
    text_addf(t, "<Size>%llu</Size>", (unsigned long long)obj->size);
    if (!l->v2 || l->owner)
        text_adds(t, "<Owner><ID>origin</ID><DisplayName>origin</DisplayName></Owner>");
    text_adds(t, "<StorageClass>STANDARD</StorageClass></Contents>");
}

/* The common prefix that a key rolls up into, or an empty span. */
static struct span rolled(const struct listing *l, struct span key)
{
    size_t from = strlen(l->prefix), len = strlen(l->delimiter);

    if (len == 0)
        return span_of("");
    char *at = memmem(key.at + from, key.len - from, l->delimiter, len);
    return at ? span_make(key.at, (size_t)(at - key.at) + len) : span_of("");
}

/* One object of the bucket in order; false ends the walk. */
static bool list_one(struct listing *l, const struct object *obj)
{
    struct span prefix = span_of(l->prefix), after = span_of(l->after);
    struct span key = obj->key;

    if (key.len < prefix.len || memcmp(key.at, prefix.at, prefix.len) != 0)
        return true;
    struct span name = rolled(l, key);
    bool common = name.len > 0;
    if (!common)
        name = key;
    else if (l->last.len > 0 && span_eq(name, l->last))
        return true;
    if (after.len > 0 && compare_spans(name, after) <= 0)
        return true;
    if (l->count == l->max) {
        l->truncated = l->max > 0;
        return false;
    }
    l->count++;
    l->last = name;
    if (common) {
        text_adds(&l->body, "<CommonPrefixes>");
        add_element(&l->body, "Prefix", name, l->url);
        text_adds(&l->body, "</CommonPrefixes>");
    } else {
        add_object(l, obj);
    }
    return true;
}

static void add_tail(struct listing *l)
{
    struct text *t = &l->body;

    text_addf(t, "<MaxKeys>%llu</MaxKeys><IsTruncated>%s</IsTruncated>", (unsigned long long)l->max,
              l->truncated ? "true" : "false");
    if (l->v2) {
        text_addf(t, "<KeyCount>%llu</KeyCount>", (unsigned long long)l->count);
        if (l->has_token)
            add_element(t, "ContinuationToken", span_of(l->token), false);
        else if (l->start_after[0])
            add_element(t, "StartAfter", span_of(l->start_after), l->url);
    } else {
        add_element(t, "Marker", span_of(l->start_after), l->url);
    }
    if (!l->truncated)
        return;
    if (l->v2) {
        text_adds(t, "<NextContinuationToken>t-");
        add_escaped(t, l->last);
        text_adds(t, "</NextContinuationToken>");
    } else if (l->delimiter[0]) {
        add_element(t, "NextMarker", l->last, l->url);
    }
}

static void write_listing(struct origin *o, const struct request *r, struct listing *l)
{
    struct text *t = &l->body;

    text_adds(t, XML_HEAD "<ListBucketResult" XML_SPACE ">");
    add_element(t, "Name", r->bucket, false);
    add_element(t, "Prefix", span_of(l->prefix), l->url);
    if (l->delimiter[0])
        add_element(t, "Delimiter", span_of(l->delimiter), l->url);
    if (l->url)
        text_adds(t, "<EncodingType>url</EncodingType>");
    for (unsigned i = 0; i < o->listed; i++)
        if (span_eq(o->sorted[i]->bucket, r->bucket) && !list_one(l, o->sorted[i]))
            break;
    add_tail(l);
    text_adds(t, "</ListBucketResult>");
}

char *origin_list(struct origin *o, const struct request *r, size_t *len)
{
    struct listing *l = mem_take(sizeof *l);

    must(l);
    read_listing(r, l);
    /* Worst case: every byte of a key becomes six. */
    size_t cap = 8 * KEY_MAX * 6 + (l->max + 1) * (ENTRY_BYTES + KEY_BYTES_MAX * 6);
    char *bytes = mem_take(cap);
    if (bytes) {
        text_init(&l->body, bytes, cap);
        pthread_mutex_lock(&o->lock);
        sort_objects(o);
        write_listing(o, r, l);
        pthread_mutex_unlock(&o->lock);
        *len = l->body.len;
    }
    mem_give(l);
    return bytes;
}

char *origin_buckets(struct origin *o, size_t *len)
{
    size_t cap = 1024 + ORIGIN_BUCKETS_MAX * 2 * KIB;
    char *bytes = mem_take(cap);
    struct text t;

    if (!bytes)
        return NULL;
    text_init(&t, bytes, cap);
    text_adds(&t, XML_HEAD "<ListAllMyBucketsResult" XML_SPACE ">");
    text_adds(&t, "<Owner><ID>origin</ID></Owner><Buckets>");
    pthread_mutex_lock(&o->lock);
    for (unsigned i = 0; i < o->buckets; i++) {
        text_adds(&t, "<Bucket>");
        add_element(&t, "Name", o->bucket[i], false);
        text_adds(&t, "<CreationDate>2026-01-01T00:00:00.000Z</CreationDate></Bucket>");
    }
    pthread_mutex_unlock(&o->lock);
    text_adds(&t, "</Buckets></ListAllMyBucketsResult>");
    *len = t.len;
    return bytes;
}
