/* The names of large directories in their order, from one page of a list to the next.
 *
 * readdir() tells names in no order, so a page of the smallest ones costs a pass over all of them:
 * a million names in one directory would be read a thousand times for one list. One pass collects
 * as many of the smallest as fit, and the pages behind the first are cut from them.
 *
 * Invariants:
 *  1. Sorted names are all that begin with their prefix, from low to the last, and to the
 *     directory's end unless `more`. Who adds them leaves out the others.
 *  2. They are used again only while the directory's times are those of the pass: adding, removing
 *     and renaming an entry changes them. They are not kept if it changed just before the pass, or
 *     during it, and never for longer than a minute, as there are file systems that do not keep
 *     such times. What links lead to changes without them: names that came by links are not kept.
 *  3. Memory is bounded: so many bytes for each of KEPT directories, and up to three times as much
 *     for the pass under way while its names are sorted out.
 *
 * Life: struct dir_names of a lister, used by its thread only; names are owned by whoever made
 * them until names_keep().
 * Failure: without memory a list fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "server/origin/inside.h"

enum {
    KEPT = 8,                        /* as many levels as a walk keeps names of */
    TEXT_BYTES = 16 * KIB,           /* at first */
    YOUNG_MS = 2500,                 /* FAT tells every other second, by a clock that lags a tick */
    KEEP_MS = 60 * 1000,
};

struct name {
    uint32_t at;                     /* in text */
    uint32_t len;
};

struct names {
    struct names_of of;
    char low[KEY_BYTES_MAX + 2], prefix[KEY_BYTES_MAX];
    size_t low_len, prefix_len;
    char *text;
    size_t used, room;
    struct name *name;
    size_t count, slots, most;
    size_t bytes;                    /* of text and names together, at most */
    size_t top;                      /* with more: none behind that name is taken */
    bool more;                       /* the last name is not the directory's last */
    uint64_t read_ms;                /* when the pass began */
};

struct dir_names {
    size_t bytes;                    /* of one directory */
    struct names *kept[KEPT];        /* owned; NULL: empty. The one used last comes first */
};

/* ---- one pass ---- */

static struct span least_of(const struct names *n)
{
    return span_make(n->low, n->low_len);
}

struct names *names_make(const struct dir_names *k, const struct names_of *of, struct span prefix,
                         struct span low, size_t most)
{
    struct names *n = mem_take(sizeof(*n));

    if (!n)
        return NULL;
    must(prefix.len <= sizeof(n->prefix) && low.len <= sizeof(n->low) && most >= 2);
    n->bytes = k ? k->bytes : DIR_NAMES_BYTES;
    n->of = *of;
    n->read_ms = clock_ms();
    n->most = most;
    n->prefix_len = prefix.len;
    n->low_len = low.len;
    memcpy(n->prefix, prefix.len ? prefix.at : "", prefix.len);
    memcpy(n->low, low.len ? low.at : "", low.len);
    return n;
}

void names_free(struct names *n)
{
    if (!n)
        return;
    mem_give(n->text);
    mem_give(n->name);
    mem_give(n);
}

struct span names_get(const struct names *n, size_t i)
{
    return span_make(n->text + n->name[i].at, n->name[i].len);
}

static int in_order(const void *a, const void *b, void *text)
{
    const struct name *x = a, *y = b;
    return span_compare(span_make((char *)text + x->at, x->len),
                        span_make((char *)text + y->at, y->len));
}

void names_sort(struct names *n)
{
    if (n->count > 1)
        qsort_r(n->name, n->count, sizeof(n->name[0]), in_order, n->text);
}

/* Only the smaller half of them stays. */
static enum err halve(struct names *n)
{
    char *text = mem_take(n->room);
    size_t used = 0;

    if (!text)
        return ERR_MEMORY;
    names_sort(n);
    n->count = (n->count + 1) / 2;
    for (size_t i = 0; i < n->count; i++) {
        memcpy(text + used, n->text + n->name[i].at, n->name[i].len);
        n->name[i].at = (uint32_t)used;
        used += n->name[i].len;
    }
    mem_give(n->text);
    n->text = text;
    n->used = used;
    n->top = n->count - 1;
    n->more = true;
    return OK;
}

static bool is_full(const struct names *n, size_t len)
{
    return n->count == n->most ||
           n->used + len + (n->count + 1) * sizeof(n->name[0]) > n->bytes;
}

static enum err make_room(struct names *n, size_t len)
{
    if (n->used + len > n->room) {
        size_t room = n->room ? 2 * n->room : TEXT_BYTES;
        char *text = mem_grow(n->text, room);
        if (!text)
            return ERR_MEMORY;
        n->text = text;
        n->room = room;
    }
    if (n->count == n->slots) {
        size_t slots = n->slots ? 2 * n->slots : TEXT_BYTES / sizeof(n->name[0]);
        struct name *name = mem_grow(n->name, slots * sizeof(*name));
        if (!name)
            return ERR_MEMORY;
        n->name = name;
        n->slots = slots;
    }
    return OK;
}

/* Another pass finds it. */
static bool is_behind(const struct names *n, struct span name)
{
    return n->more && span_compare(name, names_get(n, n->top)) > 0;
}

enum err names_add(struct names *n, struct span name)
{
    if (span_compare(name, least_of(n)) < 0 || is_behind(n, name))
        return OK;
    if (is_full(n, name.len)) {
        TRY(halve(n));
        if (is_behind(n, name))
            return OK;
    }
    TRY(make_room(n, name.len));
    memcpy(n->text + n->used, name.at, name.len);
    n->name[n->count++] = (struct name){(uint32_t)n->used, (uint32_t)name.len};
    n->used += name.len;
    return OK;
}

size_t names_count(const struct names *n)
{
    return n->count;
}

bool names_more(const struct names *n)
{
    return n->more;
}

size_t names_from(const struct names *n, struct span low)
{
    size_t from = 0, to = n->count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (span_compare(names_get(n, middle), low) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* ---- those that are kept ---- */

struct dir_names *dir_names_make(size_t bytes)
{
    struct dir_names *k = mem_take(sizeof(*k));

    must(bytes >= DIR_NAMES_LEAST);
    if (k)
        k->bytes = bytes;
    return k;
}

void dir_names_free(struct dir_names *k)
{
    if (!k)
        return;
    for (unsigned i = 0; i < KEPT; i++)
        names_free(k->kept[i]);
    mem_give(k);
}

bool dir_names_tidy(struct dir_names *k)
{
    uint64_t now = clock_ms();
    bool any = false;

    for (unsigned i = 0; i < KEPT; i++) {
        if (k->kept[i] && now - k->kept[i]->read_ms >= KEEP_MS) {
            names_free(k->kept[i]);
            k->kept[i] = NULL;
        }
        any = any || k->kept[i];
    }
    return any;
}

static bool has(const struct names *n, const struct names_of *of, struct span prefix,
                struct span low)
{
    return memcmp(&n->of, of, sizeof(*of)) == 0 &&
           span_eq(span_make(n->prefix, n->prefix_len), prefix) &&
           span_compare(low, least_of(n)) >= 0 &&
           (!n->more || span_compare(low, names_get(n, n->count - 1)) <= 0);
}

const struct names *names_find(struct dir_names *k, const struct names_of *of, struct span prefix,
                               struct span low)
{
    (void)dir_names_tidy(k);
    for (unsigned i = 0; i < KEPT; i++) {
        struct names *n = k->kept[i];
        if (!n || !has(n, of, prefix, low))
            continue;
        memmove(k->kept + 1, k->kept, i * sizeof(k->kept[0]));
        k->kept[0] = n;
        return n;
    }
    return NULL;
}

static bool is_same_directory(const struct names_of *a, const struct names_of *b)
{
    return a->bucket_inode == b->bucket_inode && a->bucket_major == b->bucket_major &&
           a->bucket_minor == b->bucket_minor && a->inode == b->inode && a->major == b->major &&
           a->minor == b->minor && a->path_len == b->path_len;
}

bool names_known(const struct dir_names *k, const struct names_of *of)
{
    bool any = false;

    for (unsigned i = 0; i < KEPT; i++)
        any = any || (k->kept[i] && is_same_directory(&k->kept[i]->of, of));
    return any;
}

bool names_are_settled(const struct names_of *of)
{
    return of->changed_ns / 1000000 + YOUNG_MS <= clock_wall_ms();
}

/* What it was before, or where the new ones begin as early and go on. */
static bool replaces(const struct names *n, const struct names *old)
{
    struct span prefix = span_make(old->prefix, old->prefix_len);
    bool same = is_same_directory(&n->of, &old->of) &&
        span_eq(span_make(n->prefix, n->prefix_len), prefix);
    bool changed = memcmp(&n->of, &old->of, sizeof(n->of)) != 0;

    return same && (changed || has(n, &n->of, prefix, least_of(old)));
}

/* What doubling left over goes back. */
static void trim(struct names *n)
{
    char *text = mem_grow(n->text, n->used);
    struct name *name = mem_grow(n->name, n->count * sizeof(*name));

    n->text = text ? text : n->text;
    n->name = name ? name : n->name;
    n->room = n->used;
    n->slots = n->count;
}

void names_keep(struct dir_names *k, struct names *n, const struct names_of *after)
{
    if (n->count == 0 || memcmp(&n->of, after, sizeof(*after)) != 0) {
        names_free(n);
        return;
    }
    trim(n);
    unsigned place = KEPT - 1;
    for (unsigned i = 0; i < KEPT; i++) {
        if (k->kept[i] && replaces(n, k->kept[i])) {
            names_free(k->kept[i]);
            k->kept[i] = NULL;
        }
        if (!k->kept[i] && place == KEPT - 1)
            place = i;
    }
    names_free(k->kept[place]);
    memmove(k->kept + 1, k->kept, place * sizeof(k->kept[0]));
    k->kept[0] = n;
}
