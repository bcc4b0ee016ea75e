/* A list of keys that a prewarm is given, instead of a prefix whose keys the store lists.
 *
 * Invariants:
 *  1. A key is in the list once: of those that are given twice the first counts.
 *  2. The list is kept in pieces of at most PAGE_KEYS_MAX keys and STATE_VALUE_MAX bytes. A key is
 *     written as what it shares with the one before it, and the rest; the first of a piece shares
 *     nothing, so each piece is read without the others.
 *  3. A piece is verified byte by byte when it is read; what does not fit is refused whole.
 *
 * Life: key_list_make(), key_list_add() for each key, key_list_settle() before it is written; one
 * thread's.
 * Failure: a list that is too large, or without memory, takes no more keys and says so. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stdlib.h>

#include "server/jobs/inside.h"

enum { LIST_ROOM = 64 * KIB, ENTRIES_ROOM = 1024, ENTRY_ETAG = 1, ENTRY_SIZE = 2 };

struct entry {
    uint32_t at;                     /* in text: the key, the ETag behind it */
    uint16_t len;                    /* 0: it is named twice, and taken out */
    uint8_t etag_len;
    uint64_t size;                   /* KEY_SIZE_ANY: not said */
};
struct key_list {
    char *text;
    size_t used, room;
    struct entry *entry;
    uint32_t count, entry_room;
};

struct key_list *key_list_make(void)
{
    return mem_take(sizeof(struct key_list));
}

void key_list_free(struct key_list *l)
{
    if (!l)
        return;
    mem_give(l->text);
    mem_give(l->entry);
    mem_give(l);
}

uint32_t key_list_count(const struct key_list *l)
{
    return l->count;
}

static struct span key_of(const struct key_list *l, uint32_t n)
{
    return span_make(l->text + l->entry[n].at, l->entry[n].len);
}

struct span key_list_key(const struct key_list *l, uint32_t n)
{
    must(n < l->count);
    return key_of(l, n);
}

/* ---- making ---- */
static enum err make_room(struct key_list *l, size_t len)
{
    if (l->used + len > l->room) {
        size_t room = max_u64(2 * l->room, LIST_ROOM) + len;
        char *grown = mem_grow(l->text, room);
        if (!grown)
            return ERR_MEMORY;
        l->text = grown;
        l->room = room;
    }
    if (l->count == l->entry_room) {
        uint32_t room = (uint32_t)max_u64(2 * (uint64_t)l->entry_room, ENTRIES_ROOM);
        struct entry *grown = mem_grow(l->entry, room * sizeof *grown);
        if (!grown)
            return ERR_MEMORY;
        l->entry = grown;
        l->entry_room = room;
    }
    return OK;
}

enum err key_list_add(struct key_list *l, const struct key_wish *key)
{
    size_t len = key->key.len + key->etag.len;

    if (key->key.len == 0 || key->key.len > KEY_BYTES_MAX ||
        memchr(key->key.at, '\0', key->key.len) || key->etag.len > KEY_ETAG_MAX)
        return ERR_SYNTAX;
    if (l->count == LIST_KEYS_MAX || l->used + len > LIST_TEXT_MAX)
        return ERR_TOO_LARGE;
    TRY(make_room(l, len));
    l->entry[l->count++] = (struct entry){.at = (uint32_t)l->used, .len = (uint16_t)key->key.len,
        .etag_len = (uint8_t)key->etag.len, .size = key->size};
    memcpy(l->text + l->used, key->key.at, key->key.len);
    if (key->etag.len)
        memcpy(l->text + l->used + key->key.len, key->etag.at, key->etag.len);
    l->used += len;
    return OK;
}

static int by_key(const void *x, const void *y, void *of)
{
    const struct key_list *l = of;
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    int order = span_compare(key_of(l, a), key_of(l, b));

    return order ? order : a < b ? -1 : a > b;
}

/* Of entries; those of one size stay as they were. */
static int by_size(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;

    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

enum err key_list_settle(struct key_list *l, enum job_order by)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; by == ORDER_SIZE && i < l->count; i++)
        if (l->entry[i].size == KEY_SIZE_ANY)
            return ERR_SYNTAX;
    uint32_t *order = mem_take(max_u64(l->count, 1) * sizeof *order);
    struct entry *sorted = mem_take(max_u64(l->count, 1) * sizeof *sorted);
    if (!order || !sorted) {
        mem_give(order);
        mem_give(sorted);
        return ERR_MEMORY;
    }
    for (uint32_t i = 0; i < l->count; i++)
        order[i] = i;
    if (l->count > 0)
        qsort_r(order, l->count, sizeof *order, by_key, l);
    for (uint32_t i = 0, first = 0; i < l->count; i++) {
        if (i > 0 && span_eq(key_of(l, order[first]), key_of(l, order[i])))
            l->entry[order[i]].len = 0;
        else
            first = i;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        const struct entry *e = &l->entry[by == ORDER_NAME ? order[i] : i];
        if (e->len > 0)
            sorted[kept++] = *e;
    }
    mem_give(order);
    mem_give(l->entry);
    l->entry = sorted;
    l->entry_room = (uint32_t)max_u64(l->count, 1);
    l->count = kept;
    if (by == ORDER_SIZE && kept > 0)
        qsort(sorted, kept, sizeof *sorted, by_size);
    return OK;
}

/* ---- a piece of it as bytes ---- */
static uint8_t *put(uint8_t *at, uint64_t n, unsigned len)
{
    n = htole64(n);
    memcpy(at, &n, len);
    return at + len;
}

static uint8_t *put_bytes(uint8_t *at, const char *bytes, size_t len)
{
    if (len > 0)
        memcpy(at, bytes, len);
    return at + len;
}

static size_t shared_bytes(struct span a, struct span b)
{
    size_t n = 0;

    while (n < a.len && n < b.len && a.at[n] == b.at[n])
        n++;
    return n;
}

size_t key_list_write(const struct key_list *l, uint32_t *from, uint8_t *out, size_t cap)
{
    uint8_t *at = out;
    struct span before = span_of("");

    for (unsigned n = 0; n < PAGE_KEYS_MAX && *from < l->count; n++, (*from)++) {
        const struct entry *e = &l->entry[*from];
        struct span key = key_of(l, *from);
        size_t shared = shared_bytes(before, key);
        if ((size_t)(out + cap - at) < 14 + key.len - shared + e->etag_len)
            break;
        bool sized = e->size != KEY_SIZE_ANY;
        at = put(at, shared, 2);
        at = put(at, key.len - shared, 2);
        at = put(at, (e->etag_len ? ENTRY_ETAG : 0) | (sized ? ENTRY_SIZE : 0), 1);
        at = put_bytes(at, key.at + shared, key.len - shared);
        if (e->etag_len) {
            at = put(at, e->etag_len, 1);
            at = put_bytes(at, key.at + key.len, e->etag_len);
        }
        if (sized)
            at = put(at, e->size, 8);
        before = key;
    }
    return (size_t)(at - out);
}

struct reading {
    struct span rest;
    bool bad;
};

static uint64_t get(struct reading *r, unsigned len)
{
    uint64_t n = 0;

    r->bad = r->bad || r->rest.len < len;
    if (r->bad)
        return 0;
    memcpy(&n, r->rest.at, len);
    r->rest = span_from(r->rest, len);
    return le64toh(n);
}

/* Into the page's text, which has room for the longest of keys and ETags. */
static void get_bytes(struct reading *r, struct page *p, size_t len)
{
    r->bad = r->bad || r->rest.len < len || sizeof p->text - p->used < len;
    if (r->bad || len == 0)
        return;
    memcpy(p->text + p->used, r->rest.at, len);
    p->used += len;
    r->rest = span_from(r->rest, len);
}

static void get_entry(struct reading *r, struct page *p, struct span before)
{
    struct listed *l = &p->item[p->count];
    size_t shared = get(r, 2), rest = get(r, 2), from = p->used;
    uint64_t flags = get(r, 1);

    r->bad = r->bad || shared > before.len || shared + rest == 0 || shared + rest > KEY_BYTES_MAX ||
        flags > (ENTRY_ETAG | ENTRY_SIZE) || sizeof p->text - p->used < shared;
    if (r->bad)
        return;
    if (shared > 0)
        memcpy(p->text + from, before.at, shared);
    p->used += shared;
    get_bytes(r, p, rest);
    *l = (struct listed){.key = span_make(p->text + from, shared + rest), .size = KEY_SIZE_ANY};
    if (flags & ENTRY_ETAG) {
        size_t len = get(r, 1), at = p->used;
        get_bytes(r, p, len);
        l->etag = span_make(p->text + at, len);
    }
    if (flags & ENTRY_SIZE)
        l->size = get(r, 8);
    r->bad = r->bad || memchr(l->key.at, '\0', l->key.len);
}

enum err key_list_read(struct span bytes, struct page *p)
{
    struct reading r = {.rest = bytes};
    struct span before = span_of("");

    p->count = 0;
    p->used = 0;
    p->more = false;
    p->given = true;
    while (r.rest.len > 0 && !r.bad) {
        r.bad = p->count == PAGE_KEYS_MAX;
        if (!r.bad)
            get_entry(&r, p, before);
        if (!r.bad)
            before = p->item[p->count++].key;
    }
    if (r.bad)
        p->count = 0;
    return r.bad || p->count == 0 ? ERR_RECORD : OK;
}
