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
 *     the prior they would leave first (3 % of all hits of that epoch). A group shrinks more than
 *     its classes do, as the chunks of an object are read together and are one witness: with as
 *     little as for a class, one of eight loops over 168 chunks lost 15 % of its second epoch.
 *  2. The rank is a Gittins index: the best ratio of hits to time over all horizons. The age only
 *     grows, so horizons are runs of buckets, and those worth going through at all are found from
 *     the oldest bucket to the youngest in one pass.
 *
 * Life: nothing is kept between calls. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "server/policy/inside.h"

static const double SHRINK = 4, SHRINK_GROUP = 16, HAZARD_MOST = .999, PRIOR_LIVES = 4;
static const double STEEPEST = 4, TURN = .75;
static const double FEW = 2048;      /* reuses in a group */
/* of a class, in groups of far fewer: so many times in addition */
static const double SHRINK_MORE = 4;

struct run {                         /* of buckets, from its first one */
    double hits, time, survival;
};

struct behind {                      /* the older buckets, in runs of falling yield from the top */
    struct run run[EHD_BUCKETS];
    unsigned count;
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

/* Of those that reach a bucket, how many were at risk in it, by the parts of it that they passed:
 * most of those that wait have just begun theirs. */
static double at_risk_in(const struct ehd_curve *c, unsigned class_, unsigned bucket,
                         double *reach)
{
    uint64_t open = c->open[class_][bucket];

    *reach += (double)(c->reused.n[class_][bucket] + c->lost.n[class_][bucket]) +
              (double)(open >> 32);
    return *reach - (double)(uint32_t)open * (1. / EHD_PARTS);
}

static double hazard_of(double reused, double at_risk, double towards, double shrink)
{
    double hazard = (reused + shrink * towards) / (at_risk + shrink);

    return hazard < HAZARD_MOST ? hazard : HAZARD_MOST; /* fmin() would be a call */
}

/* Chances to be read again in a bucket of those that reach it, of the buckets before end. Returns
 * how many chunks it stands on. */
static double class_hazards(const struct ehd_curve *c, unsigned class_, unsigned end,
                            double shrink, const double *towards, double out[EHD_BUCKETS])
{
    double reach = 0;

    for (unsigned b = end; b-- > 0;) {
        double at_risk = at_risk_in(c, class_, b, &reach);
        out[b] = hazard_of((double)c->reused.n[class_][b], at_risk, towards[b], shrink);
    }
    return reach;
}

/* The same for a group, whose counts stand in class 0. What the ages before showed goes on, but no
 * steeper than is usual at such an age. A bucket in which most were read says nothing of who is
 * older: behind it goes on what was before it. That is nothing in a loop that is read in one order,
 * where he has missed the turn. In one of many orders the turn only comes later than it used to,
 * as the clock went faster, when somebody else reads something once: judged by the prior he would
 * leave just before he is read. */
static void group_hazards(const struct ehd_curve *c, const double *prior, double out[EHD_BUCKETS])
{
    double at_risk[EHD_BUCKETS], reach = 0, rate = 0, age = 0;

    for (unsigned b = EHD_BUCKETS; b-- > 0;)
        at_risk[b] = at_risk_in(c, 0, b, &reach);
    for (unsigned b = 0; b < EHD_BUCKETS; b++) {
        double width = width_of(b);
        age += width;
        double goes_on = 1 - exp(-fmin(rate, STEEPEST / age) * width);
        out[b] = hazard_of((double)c->reused.n[0][b], at_risk[b], fmax(goes_on, prior[b]),
                           SHRINK_GROUP);
        if (out[b] < TURN)
            rate = -log1p(-out[b]) / width;
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

static void behind_copy(struct behind *to, const struct behind *from)
{
    memcpy(to->run, from->run, from->count * sizeof *from->run);
    to->count = from->count;
}

static bool yields_more(const struct run *a, const struct run *than)
{
    return a->hits * than->time > than->hits * a->time;
}

/* Ranks of the buckets from..until - 1. In b, which it goes on with, are those behind them. */
static void ranks(const double hazard[EHD_BUCKETS], unsigned from, unsigned until,
                  struct behind *b, float out[EHD_BUCKETS])
{
    for (unsigned at = until; at-- > from;) {
        /* Half of its own bucket is over. */
        struct run own = run_through(width_of(at) / 2, hazard[at] / 2);
        own.time += .5;
        for (unsigned n = b->count; n-- > 0 && yields_more(&b->run[n], &own);)
            own = run_append(own, &b->run[n]);
        out[at] = (float)(own.hits / own.time);
        struct run whole = run_through(width_of(at), hazard[at]);
        while (b->count > 0 && yields_more(&b->run[b->count - 1], &whole))
            whole = run_append(whole, &b->run[--b->count]);
        b->run[b->count++] = whole;
    }
}

static void add_up(const struct ehd_curve *c, struct ehd_curve *all)
{
    for (unsigned class_ = 0; class_ < EHD_CLASSES; class_++)
        for (unsigned b = 0; b < EHD_BUCKETS; b++) {
            all->reused.n[0][b] += c->reused.n[class_][b];
            all->lost.n[0][b] += c->lost.n[class_][b];
            all->open[0][b] += c->open[class_][b];
        }
}

/* A group that was read little has few objects, each of several chunks: what its classes show is
 * the chance of some of them. With half as much of it, one in five loops over 168 chunks lost two
 * in a hundred of its hits behind a scan, as one class seemed worth thrice the others. Where much
 * was read it has to go: to shrink all twice as much costs Zipf's mixes .4 % of their hits. */
static double class_shrink(const struct ehd_curve *all)
{
    double seen = 0;

    for (unsigned b = 0; b < EHD_BUCKETS; b++)
        seen += (double)all->reused.n[0][b];
    return SHRINK * (1 + SHRINK_MORE * exp(-seen / FEW));
}

/* The first bucket that none has reached. */
static unsigned end_of(const struct ehd_curve *all)
{
    unsigned end = EHD_BUCKETS;

    while (end > 0 && all->reused.n[0][end - 1] + all->lost.n[0][end - 1] <= 0 &&
           all->open[0][end - 1] == 0)
        end--;
    return end;
}

/* At ages that none has reached, all classes are as their group: its runs are gone through once. */
void ehd_ranks(const struct ehd_curve *c, const double prior[EHD_BUCKETS], struct ehd_counts *out)
{
    struct ehd_curve all = {0};
    double group[EHD_BUCKETS], own[EHD_BUCKETS];
    struct behind oldest, of_group, of_class;
    float rank[EHD_BUCKETS];

    add_up(c, &all);
    unsigned end = end_of(&all);
    double shrink = class_shrink(&all);
    group_hazards(&all, prior, group);
    oldest.count = 0;
    ranks(group, end, EHD_BUCKETS, &oldest, rank);
    behind_copy(&of_group, &oldest);
    ranks(group, 0, end, &of_group, rank);
    for (unsigned class_ = 0; class_ < EHD_CLASSES; class_++) {
        memcpy(out->n[class_], rank, sizeof rank);
        if (class_hazards(c, class_, end, shrink, group, own) <= 0)
            continue;
        behind_copy(&of_class, &oldest);
        ranks(own, 0, end, &of_class, out->n[class_]);
    }
}
