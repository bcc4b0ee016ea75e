/* Slots of one slab file: pages of 8 MiB, each lent to one size class or empty.
 *
 * Invariants:
 *  1. A page is in exactly one list: the empty ones, its class's with room, its class's full ones.
 *  2. taken counts the bits set in a page's map; a page whose last slot is given back is empty
 *     again and belongs to no class.
 *  3. A slot is given to one taker at a time; giving back what is not taken is a bug and panics, a
 *     claim from disk that collides is ERR_RECORD.
 *  4. Only who may use the reserve takes one of the last empty pages: fills go on while evicted
 *     slots wait for the commit that deletes their records.
 *  5. Own lock, no I/O; nothing but one map per split page is allocated after space_make().
 *
 * Life: space_make() when its directory is opened, space_free() at the end. Pages: empty -> class
 * (at take or claim) -> empty.
 * Failure: ERR_FULL when neither the class nor the empty pages have a slot, ERR_MEMORY when a map
 * is refused; nothing is changed then.
 * Limits: a class above 4 MiB has one slot a page, so the rest of that page is not used. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/parts.h"

#include <pthread.h>

enum {
    UNIT_BYTES = 4 * KIB,
    PAGE_UNITS = SPACE_PAGE_BYTES / UNIT_BYTES,
    CLASSES = 40,                    /* 4, 8, 12, 16 KiB, then four for each of nine doublings */
    MAP_WORDS = PAGE_UNITS / 64,
    INLINE_SLOTS = 64,               /* a page of at most so many slots needs no map of its own */
    RESERVE_CHUNKS = 64,
    SAMPLES = 8,
    PROBES = 32,                     /* random pages looked at to find the samples */
};
static const uint32_t NONE = UINT32_MAX;
_Static_assert((int)CLASSES <= (int)SPACE_CLASSES_MAX, "classes fit the contract");

enum { EMPTY = 0xff };               /* a page's class while it has none */

struct page {
    uint32_t prev, next;
    uint16_t taken;
    uint8_t class_;
    bool full;                       /* in the list of full pages */
};
_Static_assert(sizeof(struct page) <= 16, "1.5 million pages for a disk of 12 TiB");

/* Which slots of a page are taken (1). Of a page that is one slot nobody looks at it: `taken` says
 * the same, and most pages are such, so that most of these are never touched. */
union slots {
    uint64_t bits;                   /* of at most INLINE_SLOTS slots */
    uint64_t *map;                   /* of more; owned, from the stock */
};

struct pages {                       /* a list of pages by number; taken and added at the head */
    uint32_t head, tail, count;
};

struct space {
    pthread_mutex_t lock;
    struct page *page;
    union slots *slots;              /* per page */
    uint32_t page_count, reserve;
    unsigned dir;
    struct pages empty, room[CLASSES], full[CLASSES];
    struct stock maps;
    _Atomic uint64_t used_bytes, lost_bytes; /* of slots taken, and beside them */
    /* all readable without the lock: of empty, and slots free in pages of each class */
    _Atomic uint32_t empty_count, holes[CLASSES];
    _Atomic uint64_t hole_bytes;     /* sum of these */
};

/* ---- classes ---- */

unsigned space_class(uint32_t bytes)
{
    must(bytes >= 1 && bytes <= SPACE_PAGE_BYTES);
    uint32_t units = (bytes + UNIT_BYTES - 1) / UNIT_BYTES;

    if (units <= 4)
        return units - 1;
    /* 2^k < units <= 2^(k+1), in steps of a quarter of 2^k. */
    unsigned k = 31 - (unsigned)__builtin_clz(units - 1);
    uint32_t step = 1u << (k - 2), past = units - (1u << k);
    return 4 + (k - 2) * 4 + (past + step - 1) / step - 1;
}

/* 1 to 4 units, then 5, 6, 7 and 8 times 1, 2, 4 and so on. */
#define CLASS_UNITS(c) ((c) < 4 ? (c) + 1 : ((c) % 4 + 5) << (c) / 4 >> 1)

uint32_t space_class_bytes(unsigned class_)
{
    must(class_ < CLASSES);
    return CLASS_UNITS(class_) * UNIT_BYTES;
}

/* A table: each chunk of a start asks half a dozen times, mostly with a lock held. */
#define SLOTS(c) PAGE_UNITS / CLASS_UNITS(c)
#define FOUR_SLOTS(c) SLOTS(c), SLOTS((c) + 1), SLOTS((c) + 2), SLOTS((c) + 3)
static const uint16_t slots_of[CLASSES] = {
    FOUR_SLOTS(0),  FOUR_SLOTS(4),  FOUR_SLOTS(8),  FOUR_SLOTS(12), FOUR_SLOTS(16),
    FOUR_SLOTS(20), FOUR_SLOTS(24), FOUR_SLOTS(28), FOUR_SLOTS(32), FOUR_SLOTS(36),
};

unsigned space_class_slots(unsigned class_)
{
    must(class_ < CLASSES);
    return slots_of[class_];
}

uint64_t space_class_room(unsigned class_)
{
    return SPACE_PAGE_BYTES / space_class_slots(class_);
}

static unsigned class_slots(unsigned class_)
{
    return slots_of[class_];
}

uint64_t slot_offset(struct slot s)
{
    return (uint64_t)s.page * SPACE_PAGE_BYTES + (uint64_t)s.at * space_class_bytes(s.class_);
}

/* ---- lists of pages ---- */

static void pages_add(struct space *s, struct pages *l, uint32_t n, bool at_tail)
{
    uint32_t prev = at_tail ? l->tail : NONE, next = at_tail ? NONE : l->head;

    s->page[n].prev = prev;
    s->page[n].next = next;
    *(prev == NONE ? &l->head : &s->page[prev].next) = n;
    *(next == NONE ? &l->tail : &s->page[next].prev) = n;
    l->count++;
}

static void pages_remove(struct space *s, struct pages *l, uint32_t n)
{
    uint32_t prev = s->page[n].prev, next = s->page[n].next;

    *(prev == NONE ? &l->head : &s->page[prev].next) = next;
    *(next == NONE ? &l->tail : &s->page[next].prev) = prev;
    must(l->count > 0);
    l->count--;
}

static void show_empty(struct space *s)
{
    atomic_store_explicit(&s->empty_count, s->empty.count, memory_order_relaxed);
}

/* ---- a page and its map ---- */

/* Of a page of several slots. */
static uint64_t *page_words(struct space *s, uint32_t n, unsigned slots)
{
    return slots <= INLINE_SLOTS ? &s->slots[n].bits : s->slots[n].map;
}

static bool slot_is_taken(struct space *s, uint32_t n, unsigned at)
{
    unsigned slots = class_slots(s->page[n].class_);

    return slots == 1 ? s->page[n].taken > 0
                      : page_words(s, n, slots)[at / 64] >> at % 64 & 1;
}

static void slot_set(struct space *s, uint32_t n, unsigned at, bool taken)
{
    unsigned slots = class_slots(s->page[n].class_);

    must(at < slots && slot_is_taken(s, n, at) != taken);
    if (slots > 1)
        page_words(s, n, slots)[at / 64] ^= (uint64_t)1 << at % 64;
    s->page[n].taken = (uint16_t)(s->page[n].taken + (taken ? 1 : -1));
}

/* One slot more is taken, or one less. */
static void count_used(struct space *s, unsigned class_, int by)
{
    uint64_t bytes = space_class_bytes(class_), lost = space_class_room(class_) - bytes;

    atomic_fetch_add_explicit(&s->used_bytes, by > 0 ? bytes : -bytes, memory_order_relaxed);
    if (lost > 0)
        atomic_fetch_add_explicit(&s->lost_bytes, by > 0 ? lost : -lost, memory_order_relaxed);
}

static void count_holes(struct space *s, unsigned class_, int by)
{
    int64_t bytes = (int64_t)space_class_bytes(class_) * by;

    atomic_fetch_add_explicit(&s->holes[class_], (uint32_t)by, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->hole_bytes, (uint64_t)bytes, memory_order_relaxed);
}

/* An empty page becomes one of the class, with room. */
static enum err page_assign(struct space *s, uint32_t n, unsigned class_)
{
    struct page *p = &s->page[n];
    uint64_t *map = NULL;

    must(p->class_ == EMPTY && p->taken == 0);
    if (class_slots(class_) > INLINE_SLOTS) {
        map = stock_take(&s->maps);
        if (!map)
            return ERR_MEMORY;
    }
    pages_remove(s, &s->empty, n);
    show_empty(s);
    if (map)
        s->slots[n].map = map;
    else if (class_slots(class_) > 1)
        s->slots[n].bits = 0;
    p->class_ = (uint8_t)class_;
    p->full = false;
    pages_add(s, &s->room[class_], n, false);
    count_holes(s, class_, (int)class_slots(class_));
    return OK;
}

static void page_retire(struct space *s, uint32_t n)
{
    struct page *p = &s->page[n];

    must(p->taken == 0 && !p->full);
    pages_remove(s, &s->room[p->class_], n);
    count_holes(s, p->class_, -(int)class_slots(p->class_));
    if (class_slots(p->class_) > INLINE_SLOTS)
        stock_give(&s->maps, s->slots[n].map);
    p->class_ = EMPTY;
    pages_add(s, &s->empty, n, false);
    show_empty(s);
}

/* Marks one slot, whose bit is clear. */
static void slot_mark(struct space *s, uint32_t n, unsigned at)
{
    struct page *p = &s->page[n];

    slot_set(s, n, at, true);
    count_holes(s, p->class_, -1);
    count_used(s, p->class_, 1);
    if (p->taken == class_slots(p->class_)) {
        pages_remove(s, &s->room[p->class_], n);
        pages_add(s, &s->full[p->class_], n, false);
        p->full = true;
    }
}

static unsigned first_clear(const uint64_t *words, unsigned slots)
{
    for (unsigned w = 0; w * 64 < slots; w++)
        if (~words[w]) {
            unsigned at = w * 64 + (unsigned)__builtin_ctzll(~words[w]);
            must(at < slots);
            return at;
        }
    panic(__FILE__, __LINE__, "a page with room has a clear bit");
}

/* ---- the face ---- */

static void give_pages(struct space *s)
{
    mem_give_huge(s->page, s->page_count * sizeof *s->page);
    mem_give_huge(s->slots, s->page_count * sizeof *s->slots);
    mem_give(s);
}

struct space *space_make(uint64_t slab_bytes, unsigned dir)
{
    struct space *s = mem_take(sizeof *s);

    must(dir <= UINT8_MAX);
    if (!s)
        return NULL;
    s->page_count = (uint32_t)min_u64(slab_bytes / SPACE_PAGE_BYTES, NONE - 1);
    s->page = mem_take_huge(s->page_count * sizeof *s->page);
    s->slots = mem_take_huge(s->page_count * sizeof *s->slots);
    if (!s->page || !s->slots) {
        give_pages(s);
        return NULL;
    }
    s->dir = dir;
    s->reserve = (uint32_t)min_u64(max_u64(s->page_count / 100, RESERVE_CHUNKS), s->page_count / 8);
    pthread_mutex_init(&s->lock, NULL);
    stock_init(&s->maps, MAP_WORDS * sizeof(uint64_t), s->page_count);
    s->empty = (struct pages){NONE, NONE, 0};
    for (unsigned c = 0; c < CLASSES; c++)
        s->room[c] = s->full[c] = (struct pages){NONE, NONE, 0};
    for (uint32_t n = 0; n < s->page_count; n++) {
        s->page[n].class_ = EMPTY;
        pages_add(s, &s->empty, n, true); /* the front of the slab is used first */
    }
    show_empty(s);
    return s;
}

void space_free(struct space *s)
{
    if (!s)
        return;
    for (uint32_t n = 0; n < s->page_count; n++)
        if (s->page[n].class_ != EMPTY && class_slots(s->page[n].class_) > INLINE_SLOTS)
            stock_give(&s->maps, s->slots[n].map);
    stock_fini(&s->maps);
    pthread_mutex_destroy(&s->lock);
    give_pages(s);
}

/* The lock is held. */
static enum err take_slot(struct space *s, unsigned class_, bool reserve_ok, struct slot *out)
{
    if (s->room[class_].head == NONE) {
        if (s->empty.count <= (reserve_ok ? 0 : s->reserve))
            return ERR_FULL;
        TRY(page_assign(s, s->empty.head, class_));
    }
    uint32_t n = s->room[class_].head;
    unsigned slots = class_slots(class_);
    unsigned at = slots == 1 ? 0 : first_clear(page_words(s, n, slots), slots);
    slot_mark(s, n, at);
    *out = (struct slot){n, (uint16_t)at, (uint8_t)class_, (uint8_t)s->dir};
    return OK;
}

enum err space_take(struct space *s, unsigned class_, bool reserve_ok, struct slot *out)
{
    must(class_ < CLASSES);
    pthread_mutex_lock(&s->lock);
    enum err err = take_slot(s, class_, reserve_ok, out);
    pthread_mutex_unlock(&s->lock);
    return err;
}

void space_give(struct space *s, struct slot slot)
{
    must(slot.dir == s->dir && slot.page < s->page_count);
    pthread_mutex_lock(&s->lock);
    struct page *p = &s->page[slot.page];
    must(p->class_ == slot.class_ && slot.at < class_slots(slot.class_));
    slot_set(s, slot.page, slot.at, false);
    count_holes(s, p->class_, 1);
    count_used(s, p->class_, -1);
    if (p->full) {
        /* First in line: filling full pages up again lets the emptier ones run empty. */
        pages_remove(s, &s->full[p->class_], slot.page);
        pages_add(s, &s->room[p->class_], slot.page, false);
        p->full = false;
    }
    if (p->taken == 0)
        page_retire(s, slot.page);
    pthread_mutex_unlock(&s->lock);
}

/* An empty page becomes one that has one slot, and that is taken: as assigning and marking, without
 * the list in between. */
static void take_whole(struct space *s, uint32_t n, unsigned class_)
{
    struct page *p = &s->page[n];

    pages_remove(s, &s->empty, n);
    show_empty(s);
    p->taken = 1;
    p->class_ = (uint8_t)class_;
    p->full = true;
    pages_add(s, &s->full[class_], n, false);
    count_used(s, class_, 1);
}

/* The lock is held; everything in slot came from disk. */
static enum err claim_slot(struct space *s, struct slot slot)
{
    if (slot.dir != s->dir || slot.page >= s->page_count || slot.class_ >= CLASSES)
        return ERR_RECORD;
    struct page *p = &s->page[slot.page];
    unsigned slots = class_slots(slot.class_);
    if (slot.at >= slots)
        return ERR_RECORD;
    if (p->class_ == EMPTY && slots == 1) {
        take_whole(s, slot.page, slot.class_);
        return OK;
    }
    if (p->class_ == EMPTY)
        TRY(page_assign(s, slot.page, slot.class_));
    if (p->class_ != slot.class_)
        return ERR_RECORD;
    if (slot_is_taken(s, slot.page, slot.at))
        return ERR_RECORD;
    slot_mark(s, slot.page, slot.at);
    return OK;
}

enum err space_claim(struct space *s, struct slot slot)
{
    pthread_mutex_lock(&s->lock);
    enum err err = claim_slot(s, slot);
    pthread_mutex_unlock(&s->lock);
    return err;
}

void space_prefetch(const struct space *s, struct slot slot)
{
    if (slot.page < s->page_count)
        __builtin_prefetch(&s->page[slot.page], 1);
}

/* Lock held: the bits of a page that has many. */
static void prefetch_bits(const struct space *s, struct slot slot)
{
    if (slot.page >= s->page_count || slot.class_ >= CLASSES ||
        s->page[slot.page].class_ != slot.class_ || slot.at >= class_slots(slot.class_))
        return;
    if (class_slots(slot.class_) > INLINE_SLOTS)
        __builtin_prefetch(&s->slots[slot.page].map[slot.at / 64], 1);
}

void space_claim_all(struct space *s, const struct slot *slot, unsigned count, enum err *err)
{
    pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < count; i++)
        if (err[i] == OK)
            prefetch_bits(s, slot[i]);
    for (unsigned i = 0; i < count; i++)
        if (err[i] == OK)
            err[i] = claim_slot(s, slot[i]);
    pthread_mutex_unlock(&s->lock);
}

uint64_t space_capacity_bytes(const struct space *s)
{
    return (uint64_t)s->page_count * SPACE_PAGE_BYTES;
}

uint64_t space_used_bytes(const struct space *s)
{
    return atomic_load_explicit(&s->used_bytes, memory_order_relaxed);
}

uint64_t space_lost_bytes(const struct space *s)
{
    return atomic_load_explicit(&s->lost_bytes, memory_order_relaxed);
}

uint64_t space_holes(const struct space *s, unsigned class_)
{
    must(class_ < CLASSES);
    return (uint64_t)atomic_load_explicit(&s->holes[class_], memory_order_relaxed) *
           space_class_bytes(class_);
}

uint64_t space_all_holes(const struct space *s)
{
    return atomic_load_explicit(&s->hole_bytes, memory_order_relaxed);
}

uint32_t space_free_pages(const struct space *s)
{
    return atomic_load_explicit(&s->empty_count, memory_order_relaxed);
}

/* ---- the cheapest page ---- */

static void keep_cheaper(const struct space *s, uint32_t n, uint32_t *best)
{
    if (*best == NONE || s->page[n].taken < s->page[*best].taken)
        *best = n;
}

/* When others are rare among the pages: the head of each list of another class. They move to the
 * tail, so that the next call looks at the next ones. */
static uint32_t walk_heads(struct space *s, unsigned not_class)
{
    uint32_t best = NONE;

    for (unsigned l = 0; l < 2 * CLASSES; l++) {
        struct pages *list = l < CLASSES ? &s->room[l] : &s->full[l - CLASSES];
        uint32_t n = list->head;
        if (n == NONE || l % CLASSES == not_class)
            continue;
        keep_cheaper(s, n, &best);
        pages_remove(s, list, n);
        pages_add(s, list, n, true);
    }
    return best;
}

bool space_cheapest_page(struct space *s, unsigned not_class, uint32_t *page, unsigned *taken)
{
    uint32_t best = NONE;
    unsigned samples = 0;

    if (s->page_count == 0)
        return false;
    pthread_mutex_lock(&s->lock);
    for (unsigned n = 0; n < PROBES && samples < SAMPLES; n++) {
        uint32_t at = (uint32_t)(random_u64() % s->page_count);
        if (s->page[at].class_ == EMPTY || s->page[at].class_ == not_class)
            continue;
        keep_cheaper(s, at, &best);
        samples++;
    }
    if (best == NONE)
        best = walk_heads(s, not_class);
    if (best != NONE) {
        *page = best;
        *taken = s->page[best].taken;
    }
    pthread_mutex_unlock(&s->lock);
    return best != NONE;
}
