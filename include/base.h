/* The ground everything stands on: errors, always-on checks, spans of text, lists, clocks.
 *
 * Invariants:
 *  1. `enum err` is the only way in which a function tells failure; OK is 0.
 *  2. must() stays on in release builds: stopping beats serving wrong bytes. Input from the wire,
 *     from disk or from a file never reaches it; such input is verified and returns an error.
 *  3. A span does not own what it shows. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_BASE_H
#define HEADPOND_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HEADPOND_VERSION "0.1.0"

#define must_check __attribute__((warn_unused_result))
#define printf_like(at, first) __attribute__((format(printf, at, first)))
#define unused_ok __attribute__((unused))
/* What the function returns goes back as argument number `at` of `give`: gcc refuses another way,
 * and its analyzer (make analyze) finds paths on which it is used though it may be NULL, used after
 * it was given, or given twice. */
#ifdef __clang__
#define given_by(give, at)
#else
#define given_by(give, at) __attribute__((__malloc__(give, at)))
#endif

enum size {
    CACHE_LINE = 64,                 /* bytes; of x86-64 and most of arm64 */
    KIB = 1024,
    MIB = 1024 * 1024,
    GRANULE_BYTES = 128 * KIB,       /* unit of checksums */
    HALF_BYTES = GRANULE_BYTES / 2,  /* the smallest disk read */
    BLOCK_BYTES = MIB,               /* unit of presence and of I/O */
    CHUNK_BYTES = 8 * MIB,           /* unit of fetch, eviction and index */
    GRANULES_PER_BLOCK = 8,
    BLOCKS_PER_CHUNK = 8,
    GRANULES_PER_CHUNK = 64,
    KEY_BYTES_MAX = 1024,            /* S3 keys */
    BUCKET_BYTES_MAX = 255,
};
#define GIB ((uint64_t)1 << 30)
#define TIB ((uint64_t)1 << 40)

enum err {
    OK = 0,
#define X(name, text) name,
#include "table/errors.h"
#undef X
    ERR_COUNT
};

/* The sentence of an error, for log lines; never NULL. */
const char *err_text(enum err e);
/* The row's name ("ERR_BUSY"), for logs and tests. */
const char *err_name(enum err e);

/* Returns the error upward; legal only where nothing is owned. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err try_err_ = (call);                                                                \
        if (try_err_ != OK)                                                                        \
            return try_err_;                                                                       \
    } while (0)

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

/* Prints the sentence, then what the hook adds (the machine, the last steps of this core), then
 * aborts. */
_Noreturn void panic(const char *file, int line, const char *what);
/* Called once inside panic; set by loop/, so that common/ needs not know machines. */
extern void (*panic_hook)(void);
#define must(cond) ((cond) ? (void)0 : panic(__FILE__, __LINE__, #cond))

/* ---- spans ---- */
struct span {
    const char *at;                  /* borrowed, not terminated */
    size_t len;
};

static inline struct span span_of(const char *text) /* NULL gives an empty span */
{
    return (struct span){text, text ? strlen(text) : 0};
}
static inline struct span span_make(const void *at, size_t len)
{
    return (struct span){at, len};
}
static inline bool span_eq(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}
static inline bool span_is(struct span a, const char *text)
{
    return span_eq(a, span_of(text));
}
bool span_is_nocase(struct span a, const char *text); /* ASCII only */
bool span_starts(struct span a, struct span prefix);
bool span_ends(struct span a, struct span suffix);
int span_compare(struct span a, struct span b);       /* as bytes; shorter first */
struct span span_trim(struct span a);                 /* blanks and tabs at both ends */
struct span span_from(struct span a, size_t at);      /* the rest; empty when past the end */
/* Where byte c stands first, or a.len. */
size_t span_find(struct span a, char c);
/* Cuts at the first c: returns the part before and leaves the part behind it in *rest (empty if
 * none). */
struct span span_cut(struct span *rest, char c);
/* Length of the UTF-8 character at the start (RFC 3629), 0 when there is none or it is
 * malformed. */
size_t span_utf8(struct span a);
bool span_is_utf8(struct span text); /* all of it; so is nothing */
/* Decimal digits only, at least one, no sign; ERR_SYNTAX, or ERR_TOO_LARGE beyond 64 bit. */
must_check enum err span_u64(struct span a, uint64_t *out);

/* ---- intrusive lists ---- */
struct node {
    struct node *prev, *next;        /* both NULL while in no list */
};
struct list {
    struct node head;
};

static inline void list_init(struct list *l)
{
    l->head.prev = l->head.next = &l->head;
}
static inline bool list_empty(const struct list *l)
{
    return l->head.next == &l->head;
}
static inline bool node_linked(const struct node *n)
{
    return n->next != NULL;
}
static inline void node_insert_before(struct node *at, struct node *n)
{
    n->prev = at->prev;
    n->next = at;
    at->prev->next = n;
    at->prev = n;
}
static inline void list_push(struct list *l, struct node *n) /* at the end */
{
    node_insert_before(&l->head, n);
}
static inline void list_push_front(struct list *l, struct node *n)
{
    node_insert_before(l->head.next, n);
}
static inline void node_remove(struct node *n)
{
    /* A linked node has both neighbours, which the analyzer cannot know. */
    n->prev->next = n->next;         /* NOLINT(clang-analyzer-core.NullDereference) */
    n->next->prev = n->prev;
    n->prev = n->next = NULL;
}
static inline struct node *list_first(const struct list *l) /* NULL when empty */
{
    return list_empty(l) ? NULL : l->head.next;
}
static inline struct node *list_pop(struct list *l) /* the first, NULL when empty */
{
    struct node *n = list_first(l);
    if (n)
        node_remove(n);
    return n;
}
/* Walks a list; the current element may be removed inside the body. */
#define LIST_EACH(list_, type_, member_, var_)                                                     \
    for (struct node *n_ = (list_)->head.next, *after_ = n_->next;                                 \
         n_ != &(list_)->head; n_ = after_, after_ = n_->next)                                     \
        for (type_ *var_ = container_of(n_, type_, member_); var_; var_ = NULL)

/* ---- clocks and numbers ---- */
uint64_t clock_us(void);             /* monotonic */
uint64_t clock_ms(void);             /* monotonic */
uint64_t clock_wall_ms(void);        /* since 1970, UTC */
uint64_t clock_wall_s(void);

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}
static inline uint64_t round_down(uint64_t n, uint64_t unit)
{
    return n / unit * unit;
}

/* Fills memory from the kernel's generator; panics if that fails, as nothing secret may be
 * guessable. */
void random_bytes(void *out, size_t len);
/* A fast, not secret, per-thread generator (xorshift, seeded from random_bytes) for jitter and
 * sampling. */
uint64_t random_u64(void);

#endif
