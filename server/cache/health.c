/* The health of one cache directory as a state machine: what is believed of its disk, and why.
 * Pure: no clock, no I/O, no lock.
 *
 *   up         used
 *   suspect    an operation hangs and nothing else comes back: nothing new is begun on it
 *   fenced     not used; tests show when that may change
 *   probation  tests pass; used again when they have done so for a while
 *
 * Invariants:
 *  1. Operations begin in the state up only.
 *  2. A way back leads over good tests, with nothing hanging on the disk any more: a late write
 *     must not meet what was written behind it.
 *  3. What an operator fenced stays fenced until an operator readmits it.
 *  4. A directory that fails again soon after its return waits twice as long the next time.
 *
 * Life: zeroed = up; each call tells the time of a clock that does not go back.
 * Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

enum {
    ERRORS_MS = 60 * 1000,           /* so many errors within that time */
    SUSPECT_MS = 5 * 1000,           /* then what hangs will not come back soon */
    SUSPECTS_MS = 60 * 1000,
    PROBATION_MS = 5 * 1000,
    PROBATION_DOUBLES_MAX = 6,
    RELAPSE_MS = 60 * 60 * 1000,     /* fenced again within that time: a relapse */
};

static void move_to(struct health *h, enum disk_state state, uint64_t now_ms)
{
    h->state = state;
    h->since_ms = now_ms;
}

static void fence(struct health *h, enum disk_cause cause, uint64_t now_ms)
{
    if (h->state == DISK_PROBATION ||
        (h->returned_ms > 0 && now_ms - h->returned_ms < RELAPSE_MS))
        h->relapses += h->relapses < PROBATION_DOUBLES_MAX;
    else
        h->relapses = 0;
    h->returned_ms = 0;
    h->cause = cause;
    h->fences++;
    move_to(h, DISK_FENCED, now_ms);
}

/* Writes down that it happened; true: so often in so short a time. */
static bool often(uint64_t *ring, unsigned most, uint64_t within_ms, uint64_t now_ms)
{
    memmove(ring, ring + 1, (most - 1) * sizeof *ring);
    ring[most - 1] = now_ms + 1;     /* 0 = never */
    return ring[0] > 0 && now_ms + 1 - ring[0] < within_ms;
}

void health_error(struct health *h, uint64_t now_ms)
{
    if (h->state != DISK_UP)
        return;                      /* of an operation begun before */
    if (often(h->errors, HEALTH_ERRORS, ERRORS_MS, now_ms))
        fence(h, DISK_ERRORS, now_ms);
}

void health_late(struct health *h, uint64_t now_ms)
{
    if (h->state != DISK_UP)
        return;
    if (often(h->suspects, HEALTH_SUSPECTS, SUSPECTS_MS, now_ms)) {
        fence(h, DISK_FROZEN, now_ms);
        return;
    }
    h->cause = DISK_FROZEN;
    move_to(h, DISK_SUSPECT, now_ms);
}

uint64_t health_probation_ms(const struct health *h)
{
    return (uint64_t)PROBATION_MS << h->relapses;
}

static void come_up(struct health *h, uint64_t now_ms)
{
    h->cause = DISK_SOUND;
    memset(h->errors, 0, sizeof h->errors);
    move_to(h, DISK_UP, now_ms);
}

void health_tested(struct health *h, enum disk_cause found, bool hanging, uint64_t now_ms)
{
    bool sound = found == DISK_SOUND && !hanging;

    switch (h->state) {
    case DISK_UP: break;
    case DISK_SUSPECT:
        if (sound)
            come_up(h, now_ms);
        else if (found != DISK_SOUND)
            fence(h, found, now_ms);
        break;
    case DISK_FENCED:
        if (h->cause == DISK_OPERATOR)
            break;
        if (sound)
            move_to(h, DISK_PROBATION, now_ms);
        else if (found != DISK_SOUND)
            h->cause = found;
        break;
    case DISK_PROBATION:
        if (!sound) {
            fence(h, hanging ? DISK_FROZEN : found, now_ms);
        } else if (now_ms - h->since_ms >= health_probation_ms(h)) {
            come_up(h, now_ms);
            h->returned_ms = now_ms;
        }
        break;
    }
}

void health_tick(struct health *h, uint64_t now_ms)
{
    if (h->state == DISK_SUSPECT && now_ms - h->since_ms >= SUSPECT_MS)
        fence(h, h->cause, now_ms);
}

void health_fence(struct health *h, enum disk_cause cause, uint64_t now_ms)
{
    if (h->state == DISK_FENCED) {
        h->cause = cause;
        return;
    }
    fence(h, cause, now_ms);
}

void health_readmit(struct health *h, uint64_t now_ms)
{
    if (h->state != DISK_FENCED)
        return;
    h->relapses = 0;
    h->cause = DISK_SOUND;
    move_to(h, DISK_PROBATION, now_ms);
}
