/* A table of chunks by their hash, of fixed room: what a scaled cache holds, or which were seen.
 *
 * Invariants:
 *  1. Entries stand close together, so that a random one is one look; a chain of places leads to
 *     each from its hash.
 *
 * Life: with its sizing. Failure: only sized_make() can fail, for want of memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/policy/inside.h"

enum err sized_make(struct sized_table *t, uint32_t cap)
{
    uint32_t heads = 64;

    while (heads < cap)
        heads *= 2;
    t->chunk = mem_take(cap * sizeof *t->chunk);
    t->head = mem_take(heads * sizeof *t->head);
    t->mask = heads - 1;
    t->cap = cap;
    t->count = 0;
    return t->chunk && t->head ? OK : ERR_MEMORY;
}

void sized_free(struct sized_table *t)
{
    mem_give(t->chunk);
    mem_give(t->head);
    *t = (struct sized_table){0};
}

static uint32_t *head_of(const struct sized_table *t, uint64_t hash)
{
    return &t->head[(uint32_t)sizing_place(hash) & t->mask];
}

void sized_prefetch(const struct sized_table *t, uint64_t hash, bool entry)
{
    const uint32_t *head = head_of(t, hash);

    if (!entry)
        __builtin_prefetch(head);
    else if (*head > 0)
        __builtin_prefetch(&t->chunk[*head - 1], 1);
}

struct sized_chunk *sized_find(const struct sized_table *t, uint64_t hash)
{
    for (uint32_t at = *head_of(t, hash); at > 0; at = t->chunk[at - 1].next)
        if (t->chunk[at - 1].hash == hash)
            return &t->chunk[at - 1];
    return NULL;
}

struct sized_chunk *sized_add(struct sized_table *t, uint64_t hash)
{
    uint32_t *head = head_of(t, hash);

    if (t->count == t->cap)
        return NULL;
    struct sized_chunk *k = &t->chunk[t->count++];
    *k = (struct sized_chunk){.hash = hash, .next = *head};
    *head = t->count;
    return k;
}

/* Where the chain says that it stands at that place. */
static uint32_t *link_to(const struct sized_table *t, uint32_t place)
{
    uint32_t *link = head_of(t, t->chunk[place].hash);

    while (*link != place + 1)
        link = &t->chunk[*link - 1].next;
    return link;
}

void sized_remove(struct sized_table *t, struct sized_chunk *k)
{
    uint32_t place = (uint32_t)(k - t->chunk), last = t->count - 1;
    uint32_t *link = link_to(t, place);

    *link = k->next;
    if (place != last) {
        link = link_to(t, last);
        *k = t->chunk[last];
        *link = place + 1;
    }
    t->count--;
}
