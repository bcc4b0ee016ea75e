/* Memory with a stated maximum: arena, stock of equal objects, bounded text.
 *
 * Invariants:
 *  1. Nothing here grows without a limit that its maker gave; at the limit the call returns NULL or
 *     sets `over`, it never aborts.
 *  2. malloc is called only in common/mem.c and at start-up. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_MEM_H
#define HEADPOND_MEM_H

#include "base.h"

/* ---- start-up and cold-path memory ---- */
void mem_give(void *at);                               /* NULL is fine */
/* Wipes secrets so that the compiler cannot leave it out, then frees. */
void mem_give_secret(void *at, size_t bytes);
#define mem_given given_by(mem_give, 1) given_by(mem_give_secret, 1)
must_check mem_given void *mem_take(size_t bytes);     /* zeroed; NULL when refused */
must_check mem_given void *mem_take_aligned(size_t bytes, size_t align); /* zeroed */
/* Zeroed; of what is looked at here and there in many MiB: at the begin of a line of memory, and
 * from 2 MiB on in huge pages, if the kernel has them, at a multiple of that. Those cost nothing
 * until they are touched, which a start does to hundreds of MiB: by as many threads as it has. To
 * be given with the same size; NULL is fine. */
void mem_give_huge(void *at, size_t bytes);
must_check given_by(mem_give_huge, 1) void *mem_take_huge(size_t bytes);
must_check mem_given void *mem_grow(void *old, size_t bytes); /* as realloc */
must_check mem_given char *mem_copy(struct span text); /* terminated copy */
/* They will be read soon, by this core: asked of memory now, nobody waits for them. Any address. */
static inline void mem_expect(const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch((const char *)at + i);
}
/* For libraries that would call malloc and realloc: the same, but a refusal is remembered, as some
 * go on by halves. Theirs to mem_give(). */
void *mem_plain(size_t bytes);
void *mem_plain_grow(void *old, size_t bytes);
void mem_plain_give(void *at);       /* wiped; NULL is fine */
bool mem_plain_refused(void);        /* this thread, since it asked last */
/* From now on mem_plain() of this thread gives so many bytes and refuses more: what a library makes
 * of a document may be a hundred times as large. */
void mem_plain_limit(uint64_t bytes);
bool mem_plain_unlimit(void);        /* was more asked for? */
/* Tests: calls of mem_take and mem_grow so far in this process (allocs_hot is a difference of
 * two). */
uint64_t mem_take_count(void);

/* ---- arena: everything hung on a request dies by one reset ---- */
struct arena_page;
struct arena {
    char *at, *end;                  /* free part of the newest page */
    struct arena_page *pages;        /* extra pages, newest first */
    char *first;                     /* owner's memory, used before any page */
    size_t first_bytes;
    size_t used_bytes, limit_bytes;  /* used counts extra pages only */
};
/* The owner lends `first` (may be NULL); extra pages of 16 KiB come from mem_take up to
 * limit_bytes. */
void arena_init(struct arena *a, void *first, size_t first_bytes, size_t limit_bytes);
void arena_reset(struct arena *a);                     /* gives extra pages back */
/* 16-byte aligned, not zeroed; NULL at limit */
must_check void *arena_take(struct arena *a, size_t bytes);
/* Terminated copy in the arena; at == NULL on failure. */
struct span arena_copy(struct arena *a, struct span text);
must_check struct span arena_printf(struct arena *a, const char *format, ...) printf_like(2, 3);

/* ---- stock: equal objects, given back for reuse, one thread each ---- */
/* Objects of several pages begin at a page each, in slabs: what one never uses is never touched,
 * and costs no memory. Builds with AddressSanitizer allocate them one by one. */
enum { STOCK_LARGE_BYTES = 16 * KIB };
struct stock_slab;
struct stock {
    void *free;                      /* singly linked through the objects */
    struct stock_slab *slabs;        /* of a paged stock */
    uint32_t fresh;                  /* of the newest slab, not yet lent */
    size_t object_bytes;
    bool paged;                      /* large objects, in slabs */
    uint32_t made, max, out;         /* out = lent now */
};
void stock_init(struct stock *s, size_t object_bytes, uint32_t max);
void stock_give(struct stock *s, void *object);
must_check given_by(stock_give, 2) void *stock_take(struct stock *s); /* zeroed; NULL at max */
/* the same, not zeroed: for large objects on the hot path */
must_check given_by(stock_give, 2) void *stock_take_dirty(struct stock *s);
/* Frees the free ones, those in slabs only if none is lent; the stock goes on. For tests: an object
 * of a stock is no allocation that others could free. */
void stock_trim(struct stock *s);
void stock_fini(struct stock *s);                      /* frees them all; must(out == 0) */

/* ---- text: append-only, bounded, over caller's memory ---- */
struct text {
    char *at;                        /* kept terminated when cap > 0 */
    size_t len, cap;
    bool over;                       /* something was cut to fit; later appends are ignored */
};
void text_init(struct text *t, void *memory, size_t cap);
void text_add(struct text *t, struct span part);
void text_addc(struct text *t, char c);
static inline void text_adds(struct text *t, const char *part) /* the compiler measures literals */
{
    text_add(t, span_of(part));
}
void text_addf(struct text *t, const char *format, ...) printf_like(2, 3);
/* decimal, without printf: for the hot path */
void text_addu(struct text *t, uint64_t n);
/* Foreign bytes as UTF-8, at most three for each: what is malformed becomes U+FFFD. */
void text_add_utf8(struct text *t, struct span part);
/* Foreign bytes for a message: at most `most` of them ("..." says that more followed), whole UTF-8
 * characters; what is malformed or could command a terminal becomes "?". */
void text_add_printable(struct text *t, struct span part, size_t most);
static inline struct span text_span(const struct text *t)
{
    return (struct span){t->at, t->len};
}

#endif
