/* What plans know of a chunk's next use, and since when it is to be kept, in its mark: how that is
 * written there, and what it is worth. Pure.
 *
 * Words: the clock counts bytes served, in *units* of about a thousandth of the cache. A chunk that
 * is *planned* is read next when the clock shows its mark's `spare`; one *beyond* not before that.
 * One that is *kept* was said to be when the clock showed it; planned and kept it is planned.
 *
 * Invariants:
 *  1. The clock has 16 bits: times are compared by their distance modulo 2^16, which is between 32
 *     and 64 times what the cache holds. What is farther ahead than half of that is written as that
 *     half.
 *  2. Who is late by n ticks may be late by n more, so it is worth what one is that is due in n.
 *     One that is late by as much as the cache holds is planned no longer, whether its flag still
 *     stands or not, as is one that is kept: a plan that is wrong, or that nobody follows, costs
 *     the room of its chunks for so long. Nobody takes those flags away: such a chunk would be
 *     believed again when the clock came round, but is long past every curve before, and leaves at
 *     the first look.
 *  3. A flag is set and taken away by atomic operations, as others of the byte are other threads'.
 *     Flag and time are not written at once: who looks between takes one wrong look.
 *
 * Life: nothing is kept but in marks. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "server/policy/inside.h"

enum {
    UNITS_SHIFT = 10,                /* units of what the cache holds, at least */
    SOON_SHARE = 64,                 /* of it: a use so near is the one that is being read */
};
static const double BEYOND_WORTH = .5; /* it may be twice as far */

static unsigned unit_shift(const struct due_clock *t)
{
    unsigned log = 63 - (unsigned)__builtin_clzll(t->capacity | 1);

    return log > UNITS_SHIFT ? log - UNITS_SHIFT : 0;
}

static double ticks_of(const struct due_clock *t, double bytes)
{
    return bytes / (double)(1ull << t->tick_shift);
}

/* Bytes until the mark's time; less than 0: it is over. */
static double bytes_until(const struct due_clock *t, const struct policy_mark *m)
{
    unsigned unit = unit_shift(t);
    uint16_t now = (uint16_t)(t->served >> unit);

    return (double)(int16_t)(uint16_t)(PEEK(m->spare) - now) * (double)(1ull << unit);
}

static void set_flag(struct policy_mark *m, unsigned flag, bool on)
{
    bool is = PEEK(m->flags) & flag;

    if (on && !is)
        __atomic_fetch_or(&m->flags, (uint8_t)flag, __ATOMIC_RELAXED);
    else if (!on && is)
        __atomic_fetch_and(&m->flags, (uint8_t)~flag, __ATOMIC_RELAXED);
}

void due_tell(const struct due_clock *t, struct policy_mark *m, uint64_t bytes, bool beyond)
{
    unsigned unit = unit_shift(t);
    uint64_t most = (uint64_t)INT16_MAX << unit;

    POKE(m->spare, (uint16_t)((t->served + min_u64(bytes, most)) >> unit));
    set_flag(m, MARK_BEYOND, beyond);
    set_flag(m, MARK_PLANNED, true);
}

void due_forget(struct policy_mark *m)
{
    set_flag(m, MARK_PLANNED | MARK_BEYOND, false);
}

void due_keep(const struct due_clock *t, struct policy_mark *m)
{
    due_forget(m);
    POKE(m->spare, (uint16_t)(t->served >> unit_shift(t)));
    set_flag(m, MARK_KEEP, true);
}

double due_kept(const struct due_clock *t, const struct policy_mark *m)
{
    double age = -bytes_until(t, m), capacity = (double)t->capacity;

    if ((PEEK(m->flags) & (MARK_KEEP | MARK_PLANNED)) != MARK_KEEP || age > capacity)
        return 0;
    if (age < 0)                     /* the clock of before a restart was a little ahead */
        return age < -capacity ? 0 : 1;
    return 1 - age / capacity;
}

void due_read(const struct due_clock *t, struct policy_mark *m, bool begins)
{
    bool beyond = PEEK(m->flags) & MARK_BEYOND;
    bool soon = bytes_until(t, m) <= (double)(t->capacity / SOON_SHARE);

    if (beyond ? begins : soon)
        due_forget(m);
}

enum due_says due_value(const struct due_clock *t, const struct policy_mark *m, double *out)
{
    double bytes = bytes_until(t, m), ticks = ticks_of(t, bytes);
    double half = fmax(.5, ticks_of(t, (double)(1ull << unit_shift(t))) / 2);

    if (PEEK(m->flags) & MARK_BEYOND) {
        *out = BEYOND_WORTH / ticks;
        return bytes > 0 ? DUE_AT_MOST : DUE_UNKNOWN;
    }
    *out = 1 / (fabs(ticks) + half);
    return -bytes > (double)t->capacity ? DUE_UNKNOWN : DUE_WORTH;
}
