/* Which pages of an index were met, by whom, and whether their heads say what was read.
 *
 * Who reads a damaged LMDB file may be killed by it; who writes there may do worse. A reader never
 * looks at where a page's free space ends, at how long the nodes between are that it does not want,
 * or at how many pages a long value owns. A writer believes all of them: nodes that overlap are
 * moved over each other, and a value that claims millions of pages gives each of them back.
 *
 * Invariants:
 *  1. No page belongs to two: a leaf, a branch, a long value, the free list.
 *  2. Every page stands where its own number says and is nothing but what it was read as: what
 *     LMDB marks in memory (0x10 is being changed, 0x4000 and 0x8000 are not to be written) is
 *     never on disk. All nodes lie behind their page's free space, end within the page, and fill
 *     what is behind it: LMDB moves them together whenever one leaves or changes its length.
 *  3. Of what was read it is known which meta page said it, and that a writer would begin there.
 *
 * Not looked at: whether a branch's keys are those of its leaves. A record that is not found where
 * it belongs comes back at the next start or is met out of order there.
 *
 * Pages are LMDB 0.9's: a head of 16 bytes with the page's number, flags at 10, and then the ends
 * of the free space or, of a long value's first page, how many there are; behind the head the
 * nodes' places. A leaf's node: the size of its value, flags at 4, the length of its key at 6, the
 * key, the value or the number of its first page; nodes have even lengths. A branch's: 48 bits of a
 * page's number.
 *
 * Life: in the child that reads an index. Failure: false, the index is damaged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/start.h"

enum {
    FIRST_PAGE = 2,                  /* two meta pages stand before all others */
    AT_FLAGS = 10, AT_LOWER = 12, AT_UPPER = 14, AT_COUNT = 12, PAGE_HEAD = 16,
    IS_BRANCH = 1, IS_LEAF = 2, IS_LONG = 4,
    NODE_HEAD = 8, NODE_FLAGS = 4, NODE_KEY = 6, NODE_LONG = 1, NODE_TREE = 2,
    TREE_BYTES = 48, TREE_ROOT = 40, /* what the main tree says of each, and a meta page of two */
    DEPTH_MAX = 32,                  /* as LMDB's cursors */
    META_TREES = 40, META_TXN = 144,
    TREE_FLAGS = 4, ORDERED_BY_NUMBER = 8,
    SPARE_PAGES = 4096, SPARE_SHARE = 8,
};

static uint16_t get16(const uint8_t *at)
{
    uint16_t n;

    memcpy(&n, at, sizeof n);
    return n;
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t n;

    memcpy(&n, at, sizeof n);
    return n;
}

const uint8_t *census_page_of(const struct census *c, const void *at)
{
    return (const uint8_t *)at - (uintptr_t)at % c->page_bytes;
}

bool census_meet(struct census *c, uint64_t page)
{
    uint8_t bit = (uint8_t)(1 << page % 8);

    if (page < FIRST_PAGE || page > c->last_page)
        return false;
    return !(__atomic_fetch_or(&c->seen[page / 8], bit, __ATOMIC_RELAXED) & bit);
}

bool census_meet_pages(struct census *c, const uint8_t *first, size_t bytes)
{
    uint64_t number = get64(first);

    if (number > c->last_page)
        return false;
    if (!c->base)
        c->base = first - number * c->page_bytes;
    if (first != c->base + number * c->page_bytes)
        return false;
    for (size_t met = 0; met < bytes; met += c->page_bytes)
        if (!census_meet(c, number++))
            return false;
    return true;
}

/* The place of a node, and how long it is; 0: it leaves its page, or lies in the free space. */
static unsigned node_at(const struct census *c, const uint8_t *page, unsigned i, unsigned *bytes)
{
    unsigned at = get16(page + PAGE_HEAD + 2 * i);
    const uint8_t *node = page + at;

    if (at < get16(page + AT_UPPER) || at + NODE_HEAD > c->page_bytes)
        return 0;
    uint64_t len = NODE_HEAD + (uint64_t)get16(node + NODE_KEY);
    if (get16(page + AT_FLAGS) == IS_LEAF)
        len += get16(node + NODE_FLAGS) == NODE_LONG
            ? sizeof(uint64_t) : get16(node) | (uint64_t)get16(node + 2) << 16;
    *bytes = (unsigned)min_u64(len, UINT32_MAX);
    return at + len <= c->page_bytes ? at : 0;
}

static unsigned node_count(const uint8_t *page)
{
    return (get16(page + AT_LOWER) - (unsigned)PAGE_HEAD) / 2;
}

/* A page of nodes: its kind, its free space between the nodes' places and the nodes, and they. */
static bool has_nodes(const struct census *c, const uint8_t *page, unsigned kind)
{
    unsigned lower = get16(page + AT_LOWER), upper = get16(page + AT_UPPER), bytes;
    size_t sum = 0;

    if (get16(page + AT_FLAGS) != kind || lower < PAGE_HEAD || lower > upper ||
        upper > c->page_bytes)
        return false;
    for (unsigned i = 0; i < node_count(page); i++) {
        if (node_at(c, page, i, &bytes) == 0)
            return false;
        sum += round_up(bytes, 2);
    }
    return sum == c->page_bytes - upper;
}

bool census_meet_leaf(struct census *c, const uint8_t *leaf)
{
    return census_meet_pages(c, leaf, 1) && has_nodes(c, leaf, IS_LEAF);
}

/* A long value begins behind its first page's head. It may have kept more pages than it needs, from
 * a longer one: they are its own too. */
static bool meet_long(struct census *c, struct span value)
{
    const uint8_t *first = census_page_of(c, value.at);
    uint32_t count;

    memcpy(&count, first + AT_COUNT, sizeof count);
    return (const uint8_t *)value.at == first + PAGE_HEAD &&
           get16(first + AT_FLAGS) == IS_LONG &&
           PAGE_HEAD + value.len <= count * c->page_bytes &&
           census_meet_pages(c, first, count * c->page_bytes);
}

bool census_meet_node(struct census *c, struct span key, struct span value, bool is_tree)
{
    unsigned flags = get16((const uint8_t *)key.at - NODE_HEAD + NODE_FLAGS);

    if (is_tree)
        return flags == NODE_TREE && value.len == TREE_BYTES;
    return flags == 0 || (flags == NODE_LONG && meet_long(c, value));
}

static bool was_met(const struct census *c, uint64_t page)
{
    return page >= FIRST_PAGE && page <= c->last_page && (c->seen[page / 8] >> page % 8 & 1);
}

/* One more branch, on the way down to its children. */
struct level {
    const uint8_t *branch;
    unsigned at;                     /* the child that comes next */
};

static bool go_down(struct census *c, uint64_t page, struct level *to)
{
    if (!c->base || !census_meet(c, page))
        return false;
    *to = (struct level){c->base + page * c->page_bytes, 0};
    return get64(to->branch) == page && has_nodes(c, to->branch, IS_BRANCH);
}

bool census_meet_branches(struct census *c, uint64_t root, unsigned depth)
{
    struct level level[DEPTH_MAX];   /* the last one is that above the leaves */
    unsigned bytes, now = 0;

    if (depth == 0)
        return root == UINT64_MAX;
    if (depth == 1)
        return was_met(c, root);     /* a leaf */
    if (depth > DEPTH_MAX || !go_down(c, root, &level[0]))
        return false;
    for (;;) {
        struct level *l = &level[now];
        if (l->at == node_count(l->branch)) {
            if (now-- == 0)
                return true;
            continue;
        }
        uint64_t child = get64(l->branch + node_at(c, l->branch, l->at++, &bytes));
        child &= (UINT64_C(1) << 48) - 1;
        if (now + 2 == depth ? !was_met(c, child) : !go_down(c, child, &level[++now]))
            return false;
    }
}

uint64_t census_root_in(struct span record)
{
    return record.len == TREE_BYTES ? get64((const uint8_t *)record.at + TREE_ROOT) : 0;
}

uint64_t census_root(const struct census *c, uint64_t txn, unsigned tree)
{
    /* A writer looks for the last transaction's where it must stand, not for its number. */
    const uint8_t *meta = c->base ? c->base + txn % FIRST_PAGE * c->page_bytes : NULL;

    if (!meta || get64(meta + META_TXN) != txn ||
        get16(meta + META_TREES + TREE_FLAGS) != ORDERED_BY_NUMBER)
        return UINT64_MAX;
    return get64(meta + META_TREES + tree * TREE_BYTES + TREE_ROOT);
}

bool census_is_complete(const struct census *c)
{
    uint64_t last = c->last_page, spare = SPARE_PAGES + last / SPARE_SHARE;

    for (; last >= FIRST_PAGE && spare > 0 && !was_met(c, last); spare--)
        last--;
    return spare > 0;
}
