/* From counts of ages to ranks: how likely a chunk is read again, given class and age, and what it
 * yields per unit of time at best. Pure.
 *
 * Invariants:
 *  1. Survival is Kaplan and Meier's estimate: those that wait still count as at risk up to their
 *     age. Those that were given up count at every age: were they at risk only up to the age at
 *     which they were, the prior would promise reuse behind it (2 % fewer hits on Zipf's mixes).
 *     A class shrinks towards its group, a group towards the prior, or towards what it showed at
 *     the ages before, if that is more: in the second epoch of a dataset nobody was read again yet
 *     at the ages of those that have waited longest, and they are the next to be read. Judged by
 *     the prior they would leave first (3 % of all hits of that epoch).
 *  2. The rank is a Gittins index: the best ratio of hits to time over all horizons. The age only
 *     grows, so horizons are runs of buckets, and those worth going through at all are found from
 *     the oldest bucket to the youngest in one pass.
 *
 * Life: nothing is kept between calls. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "server/policy/inside.h"

static const double SHRINK = 4, HAZARD_MOST = .999, PRIOR_LIVES = 4, STEEPEST = 4, TURN = .75;

/* of an octave's buckets */
static const double WIDTH_RECIPROCAL[EHD_BUCKETS / 4 - 1] = {
    0x1p-0,  0x1p-1,  0x1p-2,  0x1p-3,  0x1p-4,  0x1p-5,  0x1p-6,  0x1p-7,
    0x1p-8,  0x1p-9,  0x1p-10, 0x1p-11, 0x1p-12, 0x1p-13, 0x1p-14, 0x1p-15,
    0x1p-16, 0x1p-17, 0x1p-18, 0x1p-19, 0x1p-20, 0x1p-21, 0x1p-22,
};

struct run {                         /* of buckets, from its first one */
    double hits, time, survival;
};

static double width_of(unsigned bucket)
{
    return bucket < 4 ? 1 : (double)(1u << (bucket / 4 - 1));
}

void ehd_prior(double capacity, double prior[EHD_BUCKETS])
{
    for (unsigned b = 0; b < EHD_BUCKETS; b++)
        prior[b] = 1 - exp(-width_of(b) / (PRIOR_LIVES * capacity));
}

/* The bucket's width is a power of two: its reciprocal costs no division and is exact. This runs
 * once per chunk of the sample at each refresh; with a division, and fmax() as a call, it was a
 * sixth of all that the policy costs on a small cache. */
float ehd_part_ahead(uint32_t age, unsigned bucket)
{
    unsigned octave = bucket < 4 ? 0 : bucket / 4 - 1;
    uint32_t begin = bucket < 4 ? bucket : (4 + bucket % 4) << octave;
    double behind = ((double)(age - begin) + .5) * WIDTH_RECIPROCAL[octave];

    return behind < 1 ? (float)(1 - behind) : 0;
}

/* Of those that reach a bucket, how many were at risk in it, by the parts of it that they passed:
 * most of those that wait have just begun theirs. */
static double at_risk_in(const struct ehd_curve *c, unsigned class_, unsigned bucket,
                         double *reach)
{
    *reach += (double)(c->reused.n[class_][bucket] + c->lost.n[class_][bucket] +
                       c->open.n[class_][bucket]);
    return *reach - (double)c->ahead.n[class_][bucket];
}

static double hazard_of(double reused, double at_risk, double towards)
{
    double hazard = (reused + SHRINK * towards) / (at_risk + SHRINK);

    return hazard < HAZARD_MOST ? hazard : HAZARD_MOST; /* fmin() would be a call */
}

/* Chances to be read again in a bucket of those that reach it. Returns how many chunks it stands
 * on. */
static double class_hazards(const struct ehd_curve *c, unsigned class_, const double *towards,
                            double out[EHD_BUCKETS])
{
    double reach = 0;

    for (unsigned b = EHD_BUCKETS; b-- > 0;) {
        double at_risk = at_risk_in(c, class_, b, &reach);
        out[b] = hazard_of((double)c->reused.n[class_][b], at_risk, towards[b]);
    }
    return reach;
}

/* The same for a group, whose counts stand in class 0. What the ages before showed goes on, but no
 * steeper than is usual at such an age, and not behind a bucket in which most were read: who is
 * older has missed the turn of a loop. */
static void group_hazards(const struct ehd_curve *c, const double *prior, double out[EHD_BUCKETS])
{
    double at_risk[EHD_BUCKETS], reach = 0, rate = 0, age = 0;

    for (unsigned b = EHD_BUCKETS; b-- > 0;)
        at_risk[b] = at_risk_in(c, 0, b, &reach);
    for (unsigned b = 0; b < EHD_BUCKETS; b++) {
        double width = width_of(b);
        age += width;
        double goes_on = 1 - exp(-fmin(rate, STEEPEST / age) * width);
        out[b] = hazard_of((double)c->reused.n[0][b], at_risk[b], fmax(goes_on, prior[b]));
        rate = out[b] < TURN ? -log1p(-out[b]) / width : 0;
    }
}

static struct run run_through(double width, double hazard)
{
    return (struct run){hazard, hazard * width / 2 + (1 - hazard) * width, 1 - hazard};
}

static struct run run_append(struct run a, const struct run *b)
{
    return (struct run){a.hits + a.survival * b->hits, a.time + a.survival * b->time,
                        a.survival * b->survival};
}

static void ranks(const double hazard[EHD_BUCKETS], float out[EHD_BUCKETS])
{
    /* the older ones, in runs of falling yield from the top */
    struct run behind[EHD_BUCKETS] = {0};
    unsigned count = 0;

    for (unsigned b = EHD_BUCKETS; b-- > 0;) {
        /* Half of its own bucket is over. */
        struct run own = run_through(width_of(b) / 2, hazard[b] / 2);
        own.time += .5;
        for (unsigned n = count; n-- > 0 && behind[n].hits * own.time > own.hits * behind[n].time;)
            own = run_append(own, &behind[n]);
        out[b] = (float)(own.hits / own.time);
        struct run whole = run_through(width_of(b), hazard[b]);
        while (count > 0 &&
               behind[count - 1].hits * whole.time > whole.hits * behind[count - 1].time)
            whole = run_append(whole, &behind[--count]);
        behind[count++] = whole;
    }
}

static void add_up(const struct ehd_counts *from, struct ehd_counts *to)
{
    for (unsigned class_ = 0; class_ < EHD_CLASSES; class_++)
        for (unsigned b = 0; b < EHD_BUCKETS; b++)
            to->n[0][b] += from->n[class_][b];
}

void ehd_ranks(const struct ehd_curve *c, const double prior[EHD_BUCKETS], struct ehd_counts *out)
{
    struct ehd_curve all = {0};
    double group[EHD_BUCKETS], own[EHD_BUCKETS];
    float of_group[EHD_BUCKETS];

    add_up(&c->reused, &all.reused);
    add_up(&c->lost, &all.lost);
    add_up(&c->open, &all.open);
    add_up(&c->ahead, &all.ahead);
    group_hazards(&all, prior, group);
    ranks(group, of_group);
    for (unsigned class_ = 0; class_ < EHD_CLASSES; class_++) {
        if (class_hazards(c, class_, group, own) > 0)
            ranks(own, out->n[class_]);
        else
            memcpy(out->n[class_], of_group, sizeof of_group);
    }
}
