/* A core's part of fetching: its stocks of fetches and contacts, and the end of what runs.
 *
 * Invariants:
 *  1. A core that drains begins nothing that nobody waits for; asked blocks still come.
 *  2. A fetch lives until its writes have ended. Half of those that a core may have are never
 *     taken by what waits for a disk and was not wished for, however small it is.
 *
 * Life: fill_core_begin() on the core's thread before its first turn, fill_core_end() behind the
 * last. Failure: ERR_MEMORY at the begin. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

enum {
    FETCHES_PER_CORE_MAX = 4096,     /* 13 KiB each with its contact, as they are needed */
};

enum err fill_core_begin(struct core *c)
{
    struct fill_core *fc = mem_take(sizeof(*fc));
    if (!fc)
        return ERR_MEMORY;
    fc->core = c;
    list_init(&fc->fetches);
    stock_init(&fc->fetch_stock, sizeof(struct fetch), FETCHES_PER_CORE_MAX);
    stock_init(&fc->contact_stock, sizeof(struct contact), FETCHES_PER_CORE_MAX);
    stock_init(&fc->branch_stock, sizeof(struct branch), FETCHES_PER_CORE_MAX);
    c->fill = fc;
    return OK;
}

/* Small objects come to this before what waits to be written fills its part of the pool. */
bool fill_core_is_behind(const struct core *c)
{
    const struct fill_core *fc = c->fill;
    return fc->writing >= FETCHES_PER_CORE_MAX / 2;
}

bool fill_core_idle(const struct core *c)
{
    const struct fill_core *fc = c->fill;
    return list_empty(&fc->fetches);
}

/* Blocks nobody waits for are not fetched any more. */
void fill_core_drain(struct core *c)
{
    struct fill_core *fc = c->fill;
    fc->draining = true;
    LIST_EACH(&fc->fetches, struct fetch, all, f)
        machine_wake(&f->m);
}

void fill_core_end(struct core *c)
{
    struct fill_core *fc = c->fill;
    if (!fill_core_idle(c))          /* cut: the process ends with what is left */
        return;
    stock_fini(&fc->fetch_stock);
    stock_fini(&fc->contact_stock);
    stock_fini(&fc->branch_stock);
    mem_give(fc);
    c->fill = NULL;
}
