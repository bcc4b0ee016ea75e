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

/* ---- plans on the S3 port ---- */

/* tests/flow/sigv4.c */
void sigv4_add(struct text *head, const char *method, struct span target, const char *access,
               const char *secret);

static void send_signed(struct stage *s, const char *method, const char *target, size_t body)
{
    char memory[4 * KIB];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s %s HTTP/1.1\r\nHost: sim\r\nContent-Type: application/x-ndjson\r\n"
                  "Content-Length: %zu\r\n", method, target, body);
    sigv4_add(&t, method, span_of(target), "AKIDSIMULATION", "secretofthesimulation");
    text_adds(&t, "\r\n");
    must(!t.over);
    asker_put(&s->a, t.at, t.len);
}

static void ask_signed(struct stage *s, const char *method, const char *target, struct span body)
{
    asker_open(&s->a);
    send_signed(s, method, target, body.len);
    if (body.len > 0)
        asker_put(&s->a, body.at, body.len);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    asker_close(&s->a);
}

/* Of more than one piece that the loop takes at once. */
static void write_plan(struct stage *s, struct text *t)
{
    text_adds(t, "{\"job\":\"posted\",\"epoch\":1,\"prefix\":\"b/\"}\n");
    for (unsigned line = 0; line < 3; line++) {
        text_addf(t, "{\"stream\":%u,\"keys\":[\"%s\"%30000s]}\n", line % 2,
                  line == 1 ? s->key : "warm/a", "");
        must(!t->over);
    }
}

static void post_plan(struct stage *s)
{
    static char memory[100 * 1000];
    struct text t;

    text_init(&t, memory, sizeof memory);
    write_plan(s, &t);
    ask_signed(s, "POST", "/-/plans", text_span(&t));
    stage_judge(s, 202, ANY_LENGTH);
    if (s->r.complete && s->r.status == 202 && !strstr(s->r.body, "\"objects\":2,"))
        stage_fail(s, "posted: %.100s", s->r.body);
    ask_signed(s, "GET", "/-/plans", span_of(""));
    stage_judge(s, 200, ANY_LENGTH);
    if (s->r.complete && s->r.status == 200 && !strstr(s->r.body, "]}\n"))
        stage_fail(s, "a list that does not end: %.100s", s->r.body);
    life_plans_drop();
}

/* The client goes in the middle of what it sends. */
static void leave_plan(struct stage *s)
{
    static char memory[100 * 1000];
    struct text t;

    text_init(&t, memory, sizeof memory);
    write_plan(s, &t);
    asker_open(&s->a);
    send_signed(s, "POST", "/-/plans", t.len);
    asker_put(&s->a, t.at, sim_below(t.len));
    sim_wait_ms(sim_below(20));
    asker_close(&s->a);
    life_plans_drop();
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
    {"plan-post", .play = post_plan, .size = "5000", .script = "object b warm/a size=5000"},
    {"plan-leave", .play = leave_plan, .size = "5000", .script = "object b warm/a size=5000"},
    {"scrub", .set_up = stage_fill_disk, .play = scrub, .life = &scrubbed, .size = "2300000"},
    {0},
};
