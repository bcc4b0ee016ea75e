/* Branches: more ways to upstream for a chunk, for blocks that readers wait for far from its run.
 *
 * A run brings its blocks in order. Who wants another block of that chunk would wait for the run's
 * end, and then for a way to upstream: of 64 clients at a cold GiB every third one would.
 *
 * Invariants:
 *  1. By a branch come only blocks that somebody waits for, of a chunk that is kept, of an object
 *     of several chunks (one of a single chunk comes in order). A block is brought by one branch,
 *     or by the run.
 *  2. A branch judges nothing. An answer that is not all that was asked for, or that breaks, ends
 *     it: then its blocks are the next run's, which asks, judges and tries again. Behind an answer
 *     of the first kind the fetch has no more branches.
 *  3. What it brings goes the way of what the run brings: fetch_take_block().
 *
 * Life: in the steps of their fetch, which does not end before they have.
 * Failure: as said in 2; without memory for one there is none, without a buffer none any more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

static struct cache *cache_of(const struct fetch *f)
{
    return f->m.core->server->cache;
}

static uint64_t position(const struct fetch *f, unsigned block)
{
    return f->number * CHUNK_BYTES + (uint64_t)block * BLOCK_BYTES;
}

static uint8_t bits(unsigned first, unsigned last)
{
    return (uint8_t)((1u << (last + 1)) - (1u << first));
}

/* ---- begin ---- */

static bool is_of_use(const struct fetch *f)
{
    const struct config *config = f->m.core->settings->config;

    return f->keeps && !f->lone && f->object->size > CHUNK_BYTES &&
           config->upstream[f->epoch.upstream].bandwidth == 0; /* they would share it */
}

/* Blocks that somebody waits for and nobody brings. */
static uint8_t left_out(struct fetch *f)
{
    uint8_t blocks = 0;
    struct fill_shard *s = fetch_lock(f);

    LIST_EACH(&f->waiters, struct wait, node, w)
        if (f->state[w->block] == BLOCK_NEED)
            blocks |= (uint8_t)(1u << w->block);
    shard_unlock(s);
    if (f->at <= f->last)
        blocks &= (uint8_t)~bits(f->at, f->last);
    return blocks & (uint8_t)~f->branched;
}

static bool begin(struct fetch *f, unsigned first, unsigned last)
{
    struct fill_core *fc = f->m.core->fill;
    unsigned i = 0;

    while (i < BRANCHES && f->branch[i])
        i++;
    struct branch *l = i < BRANCHES ? stock_take(&fc->branch_stock) : NULL;
    if (!l)
        return false;
    f->branch[i] = l;
    f->branches++;
    f->branched |= bits(first, last);
    l->at = first;
    l->last = last;
    l->ask = run_ask(f, position(f, first),
                     position(f, last) + chunk_block_bytes(f->bytes, last) - 1);
    l->ask.class_ = ASK_DEMAND;
    l->ask.purpose = PURPOSE_DEMAND;
    exchange_begin(&l->x, f->m.core, &l->ask, &f->m);
    return true;
}

static void begin_all(struct fetch *f)
{
    uint8_t blocks = is_of_use(f) ? left_out(f) : 0;

    while (blocks) {
        unsigned first = (unsigned)__builtin_ctz(blocks), last = first;
        while (last + 1 < f->blocks && blocks >> (last + 1) & 1)
            last++;
        if (!begin(f, first, last))
            return;
        blocks &= (uint8_t)~bits(first, last);
    }
}

/* ---- end ---- */

/* What it has not brought is the next run's. */
static void end(struct fetch *f, struct branch *l)
{
    if (l->ending)
        return;
    l->ending = true;
    if (l->at <= l->last)
        f->branched &= (uint8_t)~bits(l->at, l->last);
    exchange_end(&l->x);
}

/* It is over: until then its last read may still write into its buffer. */
static void give_back(struct fetch *f, unsigned i)
{
    struct fill_core *fc = f->m.core->fill;

    if (f->branch[i]->filling)
        pool_give(cache_of(f), f->branch[i]->filling);
    if (f->branch[i]->at > f->branch[i]->last) /* another one may have waited for its place */
        f->look = true;
    stock_give(&fc->branch_stock, f->branch[i]);
    f->branch[i] = NULL;
    f->branches--;
}

bool branches_close(struct fetch *f)
{
    for (unsigned i = 0; f->branches > 0 && i < BRANCHES; i++) {
        if (!f->branch[i])
            continue;
        end(f, f->branch[i]);
        if (f->branch[i]->x.over)
            give_back(f, i);
    }
    return f->branches == 0;
}

/* ---- between ---- */

static bool fits(const struct fetch *f, const struct branch *l)
{
    const struct exchange *x = &l->x;

    return x->head->status == 206 && span_eq(x->etag, object_etag(f->object)) && x->has_range &&
           x->range_from == l->ask.from && x->range_to == l->ask.to &&
           x->range_size == f->object->size &&
           (!x->has_length || x->length == l->ask.to - l->ask.from + 1);
}

/* What the last read brought. */
static enum err take_read(struct fetch *f, struct branch *l)
{
    uint32_t n = l->x.read_got;

    l->x.read_got = 0;
    origin_came(&l->x, n);
    l->got += n;
    if (l->got == 0 || l->got < chunk_block_bytes(f->bytes, l->at))
        return OK;
    struct buffer *b = l->filling;
    unsigned block = l->at++;
    l->filling = NULL;
    l->got = 0;
    f->branched &= (uint8_t)~bits(block, block);
    return fetch_take_block(f, block, b);
}

static enum err go_on(struct fetch *f, struct branch *l)
{
    struct exchange *x = &l->x;

    if (l->ending || x->reading || !(x->head_known || x->failed))
        return OK;
    bool good = x->head_known && fits(f, l);
    f->lone = f->lone || (x->head_known && !good);
    if (good)
        TRY(take_read(f, l));
    if (!good || x->failed || x->at_end || l->at > l->last) {
        end(f, l);
        return OK;
    }
    uint32_t bytes = chunk_block_bytes(f->bytes, l->at);
    if (!l->filling)
        l->filling = pool_take(cache_of(f), bytes, BUFFER_FILL);
    if (!l->filling) {               /* the run waits for one, and is not alone in that */
        f->lone = true;
        end(f, l);
        return OK;
    }
    exchange_read(x, l->filling->mem + l->got, bytes - l->got);
    return OK;
}

enum err branches_run(struct fetch *f, bool runs)
{
    for (unsigned i = 0; f->branches > 0 && i < BRANCHES; i++) {
        if (!f->branch[i])
            continue;
        TRY(go_on(f, f->branch[i]));
        if (f->branch[i]->ending && f->branch[i]->x.over)
            give_back(f, i);
    }
    if (f->look && runs && f->object) {
        f->look = false;
        begin_all(f);
    }
    return OK;
}
