/* Memory with a stated maximum: the only callers of malloc; arenas, stocks of objects, texts.
 *
 * Invariants:
 *  1. mem_take_count() counts every call that asks libc for memory, so a difference of 0 proves
 *     that a path does not allocate.
 *  2. Arena: used_bytes is the sum over its extra pages and never passes limit_bytes; at and end
 *     show the free part of the newest page of normal size (or of the lent memory), at is aligned.
 *  3. Stock: out + length of the free list == made <= max.
 *  4. Text: len < cap and at[len] == 0 whenever cap > 0; once `over`, nothing more is appended, so
 *     a text never has a hole in its middle.
 *
 * Life: an arena's pages die by arena_reset(), a stock's objects by stock_fini() or stock_trim();
 * a text owns nothing.
 * Failure: a refused or over-limit request returns NULL (text: sets `over`); misuse panics. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "mem.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef HEADPOND_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { ARENA_PAGE_BYTES = 16 * KIB, ARENA_ALIGN = 16, HUGE_BYTES = 2 * MIB };

static uint64_t takes;

uint64_t mem_take_count(void)
{
    return __atomic_load_n(&takes, __ATOMIC_RELAXED);
}

static void count_take(void)
{
    __atomic_fetch_add(&takes, 1, __ATOMIC_RELAXED);
}

void *mem_take(size_t bytes)
{
    count_take();
    return calloc(1, bytes ? bytes : 1);
}

void *mem_take_aligned(size_t bytes, size_t align)
{
    void *at = NULL;

    must(align >= sizeof(void *) && (align & (align - 1)) == 0);
    count_take();
    if (posix_memalign(&at, align, bytes ? bytes : 1) != 0)
        return NULL;
    memset(at, 0, bytes);
    return at;
}

/* With AddressSanitizer it has red zones, as all else. */
#ifdef HEADPOND_ASAN
void *mem_take_huge(size_t bytes)
{
    return mem_take_aligned(bytes, bytes < HUGE_BYTES ? CACHE_LINE : HUGE_BYTES);
}

void mem_give_huge(void *at, size_t bytes)
{
    (void)bytes;
    mem_give(at);
}
#else
/* The kernel likes to put maps side by side: what is cut off here is where the next fits. */
void *mem_take_huge(size_t bytes)
{
    if (bytes < HUGE_BYTES)
        return mem_take_aligned(bytes, CACHE_LINE);
    count_take();
    bytes = round_up(bytes, HUGE_BYTES);
    uint8_t *map = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0)
        munmap(map, before);
    munmap(map + before + bytes, HUGE_BYTES - before);
    (void)madvise(map + before, bytes, MADV_HUGEPAGE); /* advice: small pages do as well */
    return map + before;
}

void mem_give_huge(void *at, size_t bytes)
{
    if (!at || bytes < HUGE_BYTES)
        mem_give(at);
    else
        munmap(at, round_up(bytes, HUGE_BYTES));
}
#endif

void *mem_grow(void *old, size_t bytes)
{
    count_take();
    /* realloc(p, 0) may free p and return NULL, which would look like a refusal. */
    return realloc(old, bytes ? bytes : 1);
}

static _Thread_local bool plain_refused;
static _Thread_local uint64_t plain_left;  /* while limited */
static _Thread_local bool plain_limited, plain_over;

void *mem_plain(size_t bytes)
{
    bool over = plain_limited && bytes > plain_left;
    void *at = over ? NULL : malloc(bytes);

    plain_over |= over;
    plain_refused |= !at && bytes > 0;
    if (at && plain_limited)
        plain_left -= min_u64(malloc_usable_size(at), plain_left);
    return at;
}

void mem_plain_limit(uint64_t bytes)
{
    plain_limited = true;
    plain_over = false;
    plain_left = bytes;
}

bool mem_plain_unlimit(void)
{
    plain_limited = false;
    return plain_over;
}

void *mem_plain_grow(void *old, size_t bytes)
{
    void *at = realloc(old, bytes);

    plain_refused |= !at && bytes > 0;
    return at;
}

void mem_plain_give(void *at)
{
    if (!at)
        return;
    if (plain_limited)
        plain_left += malloc_usable_size(at);
    mem_give_secret(at, malloc_usable_size(at));
}

bool mem_plain_refused(void)
{
    bool was = plain_refused;

    plain_refused = false;
    return was;
}

char *mem_copy(struct span text)
{
    count_take();
    char *copy = text.len < SIZE_MAX ? malloc(text.len + 1) : NULL;
    if (!copy)
        return NULL;
    if (text.len)
        memcpy(copy, text.at, text.len);
    copy[text.len] = '\0';
    return copy;
}

void mem_give(void *at)
{
    free(at);
}

void mem_give_secret(void *at, size_t bytes)
{
    if (at)
        explicit_bzero(at, bytes);
    free(at);
}

/* ---- arena ---- */

struct arena_page {
    struct arena_page *next;
    size_t bytes;                    /* with this head */
};
_Static_assert(sizeof(struct arena_page) % ARENA_ALIGN == 0, "what follows the head is aligned");

static void use_first(struct arena *a)
{
    uintptr_t start = (uintptr_t)a->first;
    size_t skip = a->first ? (size_t)(round_up(start, ARENA_ALIGN) - start) : 0;

    a->at = a->end = NULL;
    if (skip < a->first_bytes) {
        a->at = a->first + skip;
        a->end = a->first + a->first_bytes;
    }
}

void arena_init(struct arena *a, void *first, size_t first_bytes, size_t limit_bytes)
{
    must(first || first_bytes == 0);
    *a = (struct arena){.first = first, .first_bytes = first_bytes, .limit_bytes = limit_bytes};
    use_first(a);
}

void arena_reset(struct arena *a)
{
    while (a->pages) {
        struct arena_page *page = a->pages;
        a->pages = page->next;
        must(a->used_bytes >= page->bytes);
        a->used_bytes -= page->bytes;
        free(page);
    }
    must(a->used_bytes == 0);
    use_first(a);
}

/* A new page with room for bytes behind its head; NULL at the limit. */
static struct arena_page *add_page(struct arena *a, size_t bytes)
{
    if (bytes > a->limit_bytes || a->used_bytes > a->limit_bytes - bytes)
        return NULL;
    count_take();
    struct arena_page *page = malloc(bytes);
    if (!page)
        return NULL;
    *page = (struct arena_page){.next = a->pages, .bytes = bytes};
    a->pages = page;
    a->used_bytes += bytes;
    return page;
}

static void *take_from_new_page(struct arena *a, size_t bytes)
{
    size_t with_head = bytes + sizeof(struct arena_page);

    if (with_head > ARENA_PAGE_BYTES) {
        /* A page of its own; the rest of the current page stays in use. */
        struct arena_page *page = add_page(a, with_head);
        return page ? page + 1 : NULL;
    }
    struct arena_page *page = add_page(a, ARENA_PAGE_BYTES);
    if (!page)
        return NULL;
    a->at = (char *)(page + 1) + bytes;
    a->end = (char *)page + ARENA_PAGE_BYTES;
    return page + 1;
}

void *arena_take(struct arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    /* Two takes of 0 bytes must not be the same address. */
    bytes = round_up(bytes ? bytes : 1, ARENA_ALIGN);
    if (bytes > (size_t)(a->end - a->at))
        return take_from_new_page(a, bytes);
    void *taken = a->at;
    a->at += bytes;
    return taken;
}

struct span arena_copy(struct arena *a, struct span text)
{
    char *copy = text.len < SIZE_MAX ? arena_take(a, text.len + 1) : NULL;

    if (!copy)
        return span_make(NULL, 0);
    if (text.len)
        memcpy(copy, text.at, text.len);
    copy[text.len] = '\0';
    return span_make(copy, text.len);
}

struct span arena_printf(struct arena *a, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *out = len >= 0 ? arena_take(a, (size_t)len + 1) : NULL;
    if (!out)
        return span_make(NULL, 0);
    va_start(args, format);
    vsnprintf(out, (size_t)len + 1, format, args);
    va_end(args);
    return span_make(out, (size_t)len);
}

/* ---- stock ---- */

/* The link of the free list lies in the object's first bytes. The rest of a free object is poisoned
 * for AddressSanitizer; the link is not, so that its leak check still finds the list. */
struct free_object {
    struct free_object *next;
};
struct stock_slab {
    struct stock_slab *next;
    char *memory;                    /* SLAB_OBJECTS of them, at pages */
};
enum { PAGE_BYTES = 4 * KIB, SLAB_OBJECTS = 16 };

static size_t slab_stride(const struct stock *s)
{
    return round_up(s->object_bytes, PAGE_BYTES);
}

static bool add_slab(struct stock *s)
{
    size_t bytes = slab_stride(s) * SLAB_OBJECTS;
    struct stock_slab *slab = mem_take(sizeof *slab);
    void *memory = NULL;

    if (!slab)
        return false;
    count_take();
    if (posix_memalign(&memory, PAGE_BYTES, bytes) != 0) {
        mem_give(slab);
        return false;
    }
    *slab = (struct stock_slab){s->slabs, memory};
    s->slabs = slab;
    s->fresh = SLAB_OBJECTS;
    ASAN_POISON_MEMORY_REGION(memory, bytes); /* what is not lent, and the ends of last pages */
    return true;
}

/* An object that was never lent, not zeroed. */
static void *make_object(struct stock *s)
{
    if (s->made == s->max)
        return NULL;
    if (!s->paged) {
        count_take();
        return malloc(s->object_bytes);
    }
    if (s->fresh == 0 && !add_slab(s))
        return NULL;
    void *object = s->slabs->memory + --s->fresh * slab_stride(s);
    ASAN_UNPOISON_MEMORY_REGION(object, s->object_bytes);
    return object;
}

void stock_init(struct stock *s, size_t object_bytes, uint32_t max)
{
    bool paged = object_bytes >= STOCK_LARGE_BYTES;

#ifdef HEADPOND_ASAN
    paged = false;                   /* each has red zones around it */
#endif
    if (object_bytes < sizeof(struct free_object))
        object_bytes = sizeof(struct free_object);
    *s = (struct stock){.object_bytes = object_bytes, .paged = paged, .max = max};
}

void *stock_take_dirty(struct stock *s)
{
    struct free_object *object = s->free;

    if (object) {
        must(s->out < s->made);
        s->free = object->next;
        ASAN_UNPOISON_MEMORY_REGION(object, s->object_bytes);
    } else {
        object = make_object(s);
        if (!object)
            return NULL;
        s->made++;
    }
    s->out++;
    return object;
}

void *stock_take(struct stock *s)
{
    void *object = stock_take_dirty(s);

    if (object)
        memset(object, 0, s->object_bytes);
    return object;
}

void stock_give(struct stock *s, void *object)
{
    struct free_object *freed = object;

    must(object && s->out > 0);
    s->out--;
    freed->next = s->free;
    s->free = freed;
    ASAN_POISON_MEMORY_REGION(freed + 1, s->object_bytes - sizeof *freed);
}

static void give_slabs(struct stock *s)
{
    while (s->slabs) {
        struct stock_slab *slab = s->slabs;
        s->slabs = slab->next;
        ASAN_UNPOISON_MEMORY_REGION(slab->memory, slab_stride(s) * SLAB_OBJECTS);
        mem_give(slab->memory);
        mem_give(slab);
    }
    s->free = NULL;
    s->made = s->fresh = 0;
}

void stock_trim(struct stock *s)
{
    if (s->paged) {
        if (s->out == 0)
            give_slabs(s);
        return;
    }
    while (s->free) {
        struct free_object *object = s->free;
        s->free = object->next;
        s->made--;
        ASAN_UNPOISON_MEMORY_REGION(object, s->object_bytes);
        mem_give(object);
    }
}

void stock_fini(struct stock *s)
{
    must(s->out == 0);
    stock_trim(s);
    must(s->made == 0);
}

/* ---- text ---- */

void text_init(struct text *t, void *memory, size_t cap)
{
    must(memory || cap == 0);
    *t = (struct text){.at = memory, .cap = cap};
    if (cap > 0)
        t->at[0] = '\0';
}

void text_add(struct text *t, struct span part)
{
    if (part.len == 0 || t->over)
        return;
    size_t room = t->cap ? t->cap - 1 - t->len : 0;
    size_t fits = part.len <= room ? part.len : room;
    t->over = fits < part.len;
    if (fits == 0)
        return;
    memcpy(t->at + t->len, part.at, fits);
    t->len += fits;
    t->at[t->len] = '\0';
}

void text_addc(struct text *t, char c)
{
    text_add(t, span_make(&c, 1));
}

void text_addf(struct text *t, const char *format, ...)
{
    va_list args;

    if (t->over)
        return;
    size_t room = t->cap - t->len;
    va_start(args, format);
    int len = vsnprintf(t->cap ? t->at + t->len : NULL, room, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= room) {
        t->over = len != 0;
        len = len > 0 && room ? (int)room - 1 : 0;
    }
    t->len += (size_t)len;
    if (t->cap)
        t->at[t->len] = '\0';
}

void text_addu(struct text *t, uint64_t n)
{
    char digits[20];                 /* 18446744073709551615 */
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    text_add(t, span_make(digits + at, sizeof digits - at));
}

void text_add_utf8(struct text *t, struct span part)
{
    while (part.len) {
        size_t len = span_utf8(part);
        text_add(t, len ? span_make(part.at, len) : span_of("\xEF\xBF\xBD"));
        part = span_from(part, len ? len : 1);
    }
}

void text_add_printable(struct text *t, struct span part, size_t most)
{
    for (size_t i = 0; i < part.len;) {
        struct span rest = span_from(part, i);
        size_t len = span_utf8(rest);
        unsigned char c = (unsigned char)rest.at[0];
        bool c1 = len == 2 && c == 0xC2 && (unsigned char)rest.at[1] < 0xA0;
        if (i + (len ? len : 1) > most) {
            text_adds(t, "...");
            return;
        }
        if (len == 0 || c < ' ' || c == 0x7F || c1)
            text_addc(t, '?');
        else
            text_add(t, span_make(rest.at, len));
        i += len ? len : 1;
    }
}
