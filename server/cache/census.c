/* Which pages of an index were met, by whom, and whether their heads say what was read.
 *
 * Who reads a damaged LMDB file may be killed by it; who writes there may do worse. A reader never
 * looks at how much room a page has or how many pages a long value owns. A writer believes both: a
 * branch whose free space ends elsewhere is written across its end, and a value that claims
 * millions of pages gives each of them back.
 *
 * Invariants:
 *  1. No page belongs to two: a leaf, a branch, a long value, the free list.
 *  2. Every page stands where its own number says; every node lies behind its page's free space and
 *     ends within the page.
 *  3. Only bytes of whole pages up to the last one are looked at. A file that is shorter kills the
 *     child that does this.
 *
 * Pages are LMDB 0.9's: a head of 16 bytes with the page's number, flags at 10, and then the ends
 * of the free space or, of a long value's first page, how many there are; behind the head the
 * nodes' places. A leaf's node: the size of its value, flags at 4, the length of its key at 6, the
 * key, the value or the number of its first page. A branch's: 48 bits of a page's number.
 *
 * Life: in the child that reads an index. Failure: false, the index is damaged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/start.h"

enum {
    FIRST_PAGE = 2,                  /* two meta pages stand before all others */
    AT_FLAGS = 10, AT_LOWER = 12, AT_UPPER = 14, AT_COUNT = 12, PAGE_HEAD = 16,
    KINDS = 0x6f, IS_BRANCH = 1, IS_LEAF = 2, IS_LONG = 4,
    NODE_HEAD = 8, NODE_FLAGS = 4, NODE_KEY = 6, NODE_LONG = 1, NODE_TREE = 2,
    DEPTH_MAX = 32,                  /* as LMDB's cursors */
    /* A meta page: what it says of the two trees that have no name, and its transaction. */
    META_TREES = 40, META_TREE_BYTES = 48, META_TREE_ROOT = 40, META_TXN = 144,
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

/* A page of nodes: its kind, and its free space between the nodes' places and the nodes. */
static bool has_nodes(const struct census *c, const uint8_t *page, unsigned kind)
{
    unsigned lower = get16(page + AT_LOWER), upper = get16(page + AT_UPPER);

    return (get16(page + AT_FLAGS) & KINDS) == kind && lower >= PAGE_HEAD && lower <= upper &&
           upper <= c->page_bytes;
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
           (get16(first + AT_FLAGS) & KINDS) == IS_LONG &&
           PAGE_HEAD + value.len <= count * c->page_bytes &&
           census_meet_pages(c, first, count * c->page_bytes);
}

bool census_meet_node(struct census *c, struct span key, struct span value, bool is_tree)
{
    const uint8_t *leaf = census_page_of(c, key.at), *node = (const uint8_t *)key.at - NODE_HEAD;

    if (node < leaf + get16(leaf + AT_UPPER))
        return false;
    if (get16(node + NODE_FLAGS) == NODE_LONG)
        return meet_long(c, value);
    return get16(node + NODE_FLAGS) == (is_tree ? NODE_TREE : 0) && value.at >= key.at &&
           (const uint8_t *)value.at + value.len <= leaf + c->page_bytes;
}

/* The place of a branch's node; NULL: not in its page. */
static const uint8_t *node_of(const struct census *c, const uint8_t *branch, unsigned i)
{
    unsigned at = get16(branch + PAGE_HEAD + 2 * i);

    if (at < get16(branch + AT_UPPER) || at + NODE_HEAD > c->page_bytes ||
        at + NODE_HEAD + get16(branch + at + NODE_KEY) > c->page_bytes)
        return NULL;
    return branch + at;
}

bool census_meet_branches(struct census *c, uint64_t root, unsigned depth)
{
    if (depth < 2)
        return true;                 /* its root is a leaf, or there is none */
    if (depth > DEPTH_MAX || !c->base || !census_meet(c, root))
        return false;
    const uint8_t *branch = c->base + root * c->page_bytes;
    if (get64(branch) != root || !has_nodes(c, branch, IS_BRANCH))
        return false;
    for (unsigned i = 0; PAGE_HEAD + 2 * i < get16(branch + AT_LOWER); i++) {
        const uint8_t *node = node_of(c, branch, i);
        if (!node)
            return false;
        uint64_t child = get64(node) & ((UINT64_C(1) << 48) - 1);
        if (!census_meet_branches(c, child, depth - 1))
            return false;
    }
    return true;
}

uint64_t census_root(const struct census *c, uint64_t txn, unsigned tree)
{
    for (unsigned i = 0; c->base && i < FIRST_PAGE; i++) {
        const uint8_t *meta = c->base + i * c->page_bytes;
        if (get64(meta + META_TXN) == txn)
            return get64(meta + META_TREES + tree * META_TREE_BYTES + META_TREE_ROOT);
    }
    return UINT64_MAX;
}
