/* A sample of the chunks of each group, resident or not, chosen by their hash: from it come the
 * curves.
 *
 * Invariants:
 *  1. Whether a chunk belongs to the sample says its hash alone, so that all its references are
 *     seen, or none. A group that has too many lowers its limit, one that has few raises it.
 *  2. Entries stand close together; the table leads from a hash to the place. A look-up takes no
 *     lock: it compares the hash where it was led to, and finds nothing when it was led astray.
 *  3. Adding never waits; the sweep holds the lock.
 *
 * Life: with its ehd. Failure: an entry that is missed, or changed while another moves into its
 * place, spoils one of thousands of counts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "server/policy/inside.h"

enum {
    SEEN_PER_GROUP = 8192,
    SEEN_FEW = SEEN_PER_GROUP / 3,
    MISLED_MOST = 64,                /* places that a look-up tries */
};
static const uint32_t GONE = UINT32_MAX;

struct ehd_sample {
    pthread_mutex_t lock;
    struct ehd_seen *seen;
    uint32_t *at;                    /* place + 1; 0: free; GONE: was used */
    uint32_t count, cap, mask, gone;
    bool lean;                       /* no huge pages */
    uint32_t limit[EHD_GROUPS], of_group[EHD_GROUPS]; /* of the hash's upper half; how many */
};

static uint64_t mixed(uint64_t hash)
{
    hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9;
    hash = (hash ^ hash >> 27) * 0x94D049BB133111EB;
    return hash ^ hash >> 31;
}

static bool within(const struct ehd_sample *s, uint64_t hash, unsigned group)
{
    return mixed(hash) >> 32 <= PEEK(s->limit[group]);
}

/* Huge pages cost no wait for their addresses, but all of each is memory once a byte of it is. */
static void *take(bool lean, size_t bytes)
{
    return lean ? mem_take(bytes) : mem_take_huge(bytes);
}

static void give(bool lean, void *at, size_t bytes)
{
    if (lean)
        mem_give(at);
    else
        mem_give_huge(at, bytes);
}

struct ehd_sample *ehd_sample_make(uint64_t residents, bool lean)
{
    struct ehd_sample *s = mem_take(sizeof *s);
    uint64_t most = min_u64((EHD_HORIZON + 1) * residents, EHD_GROUPS * SEEN_PER_GROUP), slots = 64;

    if (!s)
        return NULL;
    s->cap = (uint32_t)max_u64(most, 64);
    while (slots < 2 * (uint64_t)s->cap)
        slots *= 2;
    s->mask = (uint32_t)(slots - 1);
    s->lean = lean;
    s->seen = take(lean, s->cap * sizeof *s->seen);
    s->at = take(lean, slots * sizeof *s->at);
    pthread_mutex_init(&s->lock, NULL);
    memset(s->limit, 0xff, sizeof s->limit);
    if (!s->seen || !s->at) {
        ehd_sample_free(s);
        return NULL;
    }
    return s;
}

void ehd_sample_free(struct ehd_sample *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    give(s->lean, s->seen, s->cap * sizeof *s->seen);
    give(s->lean, s->at, ((size_t)s->mask + 1) * sizeof *s->at);
    mem_give(s);
}

/* Where the hash stands in the table; else, or if it was not found soon, UINT32_MAX. */
static uint32_t slot_of(struct ehd_sample *s, uint64_t hash)
{
    uint32_t slot = (uint32_t)mixed(hash) & s->mask;

    for (unsigned n = 0; n < MISLED_MOST; n++, slot = (slot + 1) & s->mask) {
        uint32_t at = PEEK(s->at[slot]);
        if (at == 0)
            break;
        if (at != GONE && PEEK(s->seen[at - 1].hash) == hash)
            return slot;
    }
    return UINT32_MAX;
}

void ehd_sample_prefetch(const struct ehd_sample *s, uint64_t hash, bool entry)
{
    const uint32_t *slot = &s->at[(uint32_t)mixed(hash) & s->mask];
    uint32_t at = entry ? PEEK(*slot) : 0;

    if (!entry)
        __builtin_prefetch(slot);
    else if (at != 0 && at != GONE)
        __builtin_prefetch(&s->seen[at - 1], 1);
}

struct ehd_seen *ehd_sample_find(struct ehd_sample *s, uint64_t hash, unsigned group)
{
    if (!within(s, hash, group))
        return NULL;
    uint32_t slot = slot_of(s, hash);
    uint32_t at = slot == UINT32_MAX ? 0 : PEEK(s->at[slot]);
    return at == 0 || at == GONE ? NULL : &s->seen[at - 1];
}

/* Into the table. False: it is too crowded there. */
static bool lead(struct ehd_sample *s, uint64_t hash, uint32_t place)
{
    uint32_t slot = (uint32_t)mixed(hash) & s->mask;

    for (unsigned n = 0; n < MISLED_MOST; n++, slot = (slot + 1) & s->mask)
        if (s->at[slot] == 0 || s->at[slot] == GONE) {
            POKE(s->at[slot], place + 1);
            return true;
        }
    return false;
}

/* Lock held. */
static void add(struct ehd_sample *s, const struct ehd_seen *seen, unsigned group)
{
    if (s->count == s->cap || slot_of(s, seen->hash) != UINT32_MAX ||
        !lead(s, seen->hash, s->count))
        return;
    struct ehd_seen *e = &s->seen[s->count++];
    POKE(e->hash, seen->hash);
    POKE(e->last, seen->last);
    POKE(e->tag, seen->tag);
    POKE(e->class_, seen->class_);
    s->of_group[group]++;
}

void ehd_sample_add(struct ehd_sample *s, const struct ehd_seen *seen)
{
    unsigned group = seen->tag % EHD_GROUPS;

    if (!within(s, seen->hash, group) || pthread_mutex_trylock(&s->lock) != 0)
        return;
    add(s, seen, group);
    pthread_mutex_unlock(&s->lock);
}

void ehd_sample_resume(struct ehd_sample *s, const struct ehd_seen *seen)
{
    unsigned group = seen->tag % EHD_GROUPS;

    if (!within(s, seen->hash, group))
        return;
    pthread_mutex_lock(&s->lock);
    if (s->of_group[group] >= 2 * SEEN_PER_GROUP) {
        /* About half of them are still within it; the next sweep takes the others, and counts. */
        POKE(s->limit[group], s->limit[group] / 2);
        s->of_group[group] /= 2;
    }
    if (within(s, seen->hash, group))
        add(s, seen, group);
    pthread_mutex_unlock(&s->lock);
}

/* The last one takes its place. */
static void drop_place(struct ehd_sample *s, uint32_t place)
{
    uint32_t slot = slot_of(s, s->seen[place].hash);
    struct ehd_seen *last = &s->seen[--s->count], *e = &s->seen[place];

    if (slot != UINT32_MAX) {
        POKE(s->at[slot], GONE);
        s->gone++;
    }
    if (e == last)
        return;
    slot = slot_of(s, last->hash);
    POKE(e->hash, last->hash);
    POKE(e->last, PEEK(last->last));
    POKE(e->tag, PEEK(last->tag));
    POKE(e->class_, PEEK(last->class_));
    if (slot != UINT32_MAX)
        POKE(s->at[slot], place + 1);
}

/* A table without traces of what is gone. */
static void lead_anew(struct ehd_sample *s)
{
    for (uint32_t n = 0; n <= s->mask; n++)
        POKE(s->at[n], 0);
    for (uint32_t n = 0; n < s->count; n++)
        if (!lead(s, s->seen[n].hash, n))
            s->seen[n].hash = 0;     /* found no more, and swept out once it is old */
    s->gone = 0;
}

static void set_limits(struct ehd_sample *s)
{
    for (unsigned g = 0; g < EHD_GROUPS; g++) {
        uint32_t limit = s->limit[g];
        if (s->of_group[g] > SEEN_PER_GROUP)
            limit -= limit / 8;
        else if (s->of_group[g] < SEEN_FEW)
            limit += (uint32_t)min_u64(limit / 8, UINT32_MAX - limit);
        POKE(s->limit[g], limit);
    }
}

void ehd_sample_sweep(struct ehd_sample *s, bool (*keep)(void *arg, const struct ehd_seen *seen),
                      void *arg)
{
    pthread_mutex_lock(&s->lock);
    set_limits(s);
    memset(s->of_group, 0, sizeof s->of_group);
    for (uint32_t n = 0; n < s->count;) {
        struct ehd_seen seen = {s->seen[n].hash, PEEK(s->seen[n].last), PEEK(s->seen[n].tag),
                                PEEK(s->seen[n].class_), 0};
        if (within(s, seen.hash, seen.tag % EHD_GROUPS) && keep(arg, &seen)) {
            s->of_group[seen.tag % EHD_GROUPS]++;
            n++;
        } else {
            drop_place(s, n);
        }
    }
    if (s->gone > s->mask / 4)
        lead_anew(s);
    pthread_mutex_unlock(&s->lock);
}
