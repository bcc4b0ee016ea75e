/* Which leaf of an LMDB tree comes next, so that it is on its way from memory before it is asked
 * for.
 *
 * LMDB's cursor tells of a leaf when it stands there, and then waits for it: neighbours in the tree
 * lie anywhere in the file, so for each of them. The branch above a leaf names those behind it.
 *
 * Invariants:
 *  1. Nothing here says anything of a record: what is wrong with a branch costs time, and LMDB and
 *     the census find it. Only whole pages of the map are looked at.
 *  2. Pages are LMDB 0.9's: a head of 16 bytes with flags at 10 and the ends of the free space at
 *     12 and 14, then the nodes' places. A branch's node: 48 bits of a page's number, the length of
 *     its key, the key, which in the first node is none.
 *
 * Life: in the child that reads an index; a struct leaves belongs to one thread and one tree.
 * Failure: no leaf is known, and nothing is fetched ahead. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/start.h"

enum {
    PAGE_HEAD = 16, NODE_HEAD = 8,
    AT_FLAGS = 10, AT_LOWER = 12, AT_UPPER = 14, IS_BRANCH = 1,
    DEPTH_MAX = 32,                  /* as LMDB's cursors */
};

static uint16_t get16(const uint8_t *at)
{
    uint16_t n;

    memcpy(&n, at, sizeof n);
    return n;
}

static const uint8_t *page_at(const struct leaves *l, uint64_t number)
{
    return number <= l->last_page ? l->map + number * l->page_bytes : NULL;
}

/* How many nodes a branch has; 0: it is none. */
static unsigned nodes(const struct leaves *l, const uint8_t *page)
{
    unsigned lower = get16(page + AT_LOWER);
    bool branch = (get16(page + AT_FLAGS) & IS_BRANCH) && lower > PAGE_HEAD;

    return branch && lower <= l->page_bytes ? (lower - PAGE_HEAD) / 2 : 0;
}

static const uint8_t *node(const struct leaves *l, const uint8_t *page, unsigned i)
{
    unsigned at = get16(page + PAGE_HEAD + 2 * i);

    return at + NODE_HEAD <= l->page_bytes ? page + at : NULL;
}

static uint64_t child(const uint8_t *node)
{
    return get16(node) | (uint64_t)get16(node + 2) << 16 | (uint64_t)get16(node + 4) << 32;
}

/* The node's key is not higher. */
static bool begins_before(const struct leaves *l, const uint8_t *page, const uint8_t *node,
                          struct span key)
{
    size_t len = get16(node + 6), room = (size_t)(page + l->page_bytes - node) - NODE_HEAD;

    if (len > room)
        return false;
    int order = memcmp(node + NODE_HEAD, key.at, min_u64(len, key.len));
    return order < 0 || (order == 0 && len <= key.len);
}

/* The last node whose key is not higher; the first one has none. */
static unsigned node_of(const struct leaves *l, const uint8_t *page, unsigned count,
                        struct span key)
{
    unsigned low = 0, high = count;

    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        const uint8_t *n = node(l, page, middle);
        if (n && begins_before(l, page, n, key))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The number that the branch's node of that number names; UINT64_MAX: there is none. */
static uint64_t named(const struct leaves *l, unsigned i)
{
    const uint8_t *n = l->branch && i < nodes(l, l->branch) ? node(l, l->branch, i) : NULL;

    return n ? child(n) : UINT64_MAX;
}

/* From the root down to the branch above the leaf. */
static bool go_down(struct leaves *l, uint64_t leaf, struct span key)
{
    const uint8_t *page = page_at(l, l->root);

    for (unsigned depth = 0; page && depth < DEPTH_MAX; depth++) {
        unsigned count = nodes(l, page);
        l->branch = page;
        l->at = node_of(l, page, count, key);
        uint64_t below = count > 0 ? named(l, l->at) : UINT64_MAX;
        if (below == leaf)
            return true;
        page = count > 0 ? page_at(l, below) : NULL;
    }
    return false;
}

void leaves_look_ahead(struct leaves *l, const uint8_t *leaf, struct span key)
{
    if (l->root == 0)
        return;
    uint64_t number = (uint64_t)(leaf - l->map) / l->page_bytes;
    if (named(l, l->at + 1) == number)
        l->at++;
    else if (!go_down(l, number, key))
        l->branch = NULL;
    const uint8_t *next = page_at(l, named(l, l->at + 1));
    const uint8_t *second = page_at(l, named(l, l->at + 2));
    /* The head of the next one was fetched when this one was next. */
    if (next) {
        uint64_t upper = min_u64(get16(next + AT_UPPER), l->page_bytes);
        mem_expect(next + upper, l->page_bytes - upper);
    }
    if (second)
        mem_expect(second, 2 * CACHE_LINE);
}
