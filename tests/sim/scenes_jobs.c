/* Scenarios of jobs: what is evicted, compared and asked about while something goes wrong.
 *
 * Invariants:
 *  1. A job ends, whatever was refused to it; what it says when nothing went wrong is right.
 *
 * Life: a table that torture.c walks. Failure: stage_fail(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "server/jobs/jobs.h"
#include "tests/sim/scenes.h"

static struct job_view view;

/* The job over the stage's key alone. */
static void run(struct stage *s, enum job_kind kind, uint64_t done, uint64_t bytes)
{
    char prefix[STAGE_KEY_BYTES + 2];

    snprintf(prefix, sizeof prefix, "b/%s", s->key);
    bool made = life_job(kind, prefix, &view);
    if (!made && s->strict)
        stage_fail(s, "the job could not be made");
    if (!made || !s->strict)
        return;
    if (view.state != JOB_DONE || view.objects_done != done || view.bytes_done != bytes ||
        view.objects_failed || view.dropped)
        stage_fail(s, "%s: state %u, %llu objects, %llu bytes, %llu failed, %llu dropped",
                   job_kind_name(kind), view.state, (unsigned long long)view.objects_done,
                   (unsigned long long)view.bytes_done, (unsigned long long)view.objects_failed,
                   (unsigned long long)view.dropped);
}

static void evict(struct stage *s)
{
    run(s, KIND_EVICT, 1, stage_size(s));
}

static void verify(struct stage *s)
{
    run(s, KIND_VERIFY, 1, stage_size(s));
}

static void revalidate(struct stage *s)
{
    run(s, KIND_REVALIDATE, 1, 0);
}

/* What the store lists below a prefix: an object of several blocks, one of one, an empty one. */
static void prewarm(struct stage *s)
{
    bool made = life_job(KIND_PREWARM, "b/warm/", &view);

    if (!made && s->strict)
        stage_fail(s, "the job could not be made");
    if (!made || !s->strict)
        return;
    if (view.state != JOB_DONE || view.objects_done != 3 || view.bytes_done != 2305000 ||
        view.objects_wanted != 3 || view.bytes_wanted != 2305000 || view.objects_failed)
        stage_fail(s, "prewarm: state %u, %llu of %llu objects, %llu bytes, %llu failed, %s",
                   view.state, (unsigned long long)view.objects_done,
                   (unsigned long long)view.objects_wanted, (unsigned long long)view.bytes_done,
                   (unsigned long long)view.objects_failed, view.note);
}

/* A plan of what the store has, and of a key that it does not have: what can be had is here when
 * its reader comes, and the plan is over when it was read. */
static void plan(struct stage *s)
{
    static struct plan_view v;
    uint64_t id;
    char keys[STAGE_KEY_BYTES + 64];

    snprintf(keys, sizeof keys, "warm/a warm/none %s warm/b", s->key);
    bool made = life_plan("b", keys, &id);
    if (!made && s->strict)
        stage_fail(s, "the plan was refused");
    stage_get_all(s);
    sim_wait_ms(200);
    if (!made)
        return;
    if (!life_plan_view(id, &v) || (s->strict && (v.read != 1 || v.unknown != 1 || v.late != 0 ||
                                                  v.failed != 0 || v.known != 3)))
        stage_fail(s, "plan: %llu read, %llu unknown, %llu late, %llu failed, %llu known",
                   (unsigned long long)v.read, (unsigned long long)v.unknown,
                   (unsigned long long)v.late, (unsigned long long)v.failed,
                   (unsigned long long)v.known);
    if (!life_plan_drop(id))
        stage_fail(s, "the plan is not known any more");
}

/* Several read the object while it is evicted. */
static void evict_meanwhile(struct stage *s)
{
    stage_together(s, 3, stage_get_all);
    run(s, KIND_EVICT, 1, stage_size(s));
}

/* Long enough for the scrub's first pass, which begins ten minutes after the start. */
static void scrub(struct stage *s)
{
    sim_wait_ms(11 * 60 * 1000);
    if (s->strict && metric_read(METRIC_SCRUB_BYTES_TOTAL, 0, 0, 0) == 0)
        stage_fail(s, "nothing was scrubbed");
}

static const struct life scrubbed = {.set = {{"cache.scrub", "64MiB"}}};

const struct scene scenes_jobs[] = {
    {"job-evict", .set_up = stage_fill_disk, .play = evict, .size = "1100000"},
    {"job-evict-read", .set_up = stage_fill, .play = evict_meanwhile, .size = "1100000"},
    {"job-verify", .set_up = stage_fill_disk, .play = verify, .size = "2300000"},
    {"job-revalidate", .set_up = stage_fill_disk, .play = revalidate, .size = "1100000"},
    {"job-revalidate-away", .set_up = stage_fill_disk, .play = revalidate, .size = "5000",
     .script = "next b/ status=503"},
    {"job-prewarm", .play = prewarm, .size = "5000",
     .script = "object b warm/a size=2300000\nobject b warm/b size=5000\n"
               "object b warm/c size=0\nnext b/warm/b method=GET status=500"},
    {"plan", .play = plan, .size = "2300000",
     .script = "object b warm/a size=2300000\nobject b warm/b size=5000\ndelete b warm/none\n"
               "next b/warm/b method=GET status=500"},
    {"scrub", .set_up = stage_fill_disk, .play = scrub, .life = &scrubbed, .size = "2300000"},
    {0},
};
