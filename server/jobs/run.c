/* A job at work: a walk over the objects that it is meant for, and what is done to each.
 *
 * Invariants:
 *  1. At most one slice of the walk is held. A turn of the core sees one bounded step of a job.
 *  2. The place that is kept is that of the slice which is not done: what comes later is never
 *     skipped by a crash.
 *  3. A wish is looked at between two objects, and wherever the job waits.
 *
 * Life: begun by a message on its core; ends when the walk is over, at an error, when it is
 * cancelled, or when the core drains (then it goes on at the next start).
 * Failure: of an object: counted, told, and the walk goes on. Of the job: a note says why. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "log.h"
#include "server/jobs/inside.h"

enum {
    SAVE_EVERY_MS = 1000,
    RATE_MS = 2000,                  /* over which the rate is told */
    SCRUB_SAVE_MS = 60 * 1000,
    SCRUB_DELAY_MS = 10 * 60 * 1000, /* a start is busy enough */
    SCRUB_PASS_MS = 24 * 3600 * 1000, /* from begin to begin, at least */
    SCRUB_LOOK_MS = 60 * 1000,       /* while it is off */
    LOOK_MS = 5000,                  /* for a dataset to fill: not just behind the last one */
};

#define JOB_STEPS(X) X(job, BEGIN) X(job, WALK) X(job, OBJECT) X(job, LIST) X(job, WARM) \
    X(job, REST) X(job, SLEEP) X(job, LOOK) X(job, DRAIN) X(job, END)
STEP_TABLE(job, JOB_STEPS)

static struct cache *cache_of(const struct job *j)
{
    return j->jobs->server->cache;
}

static bool is_scrub(const struct job *j)
{
    return j->slot == SCRUB_SLOT;
}

static bool is_background(const struct job *j)
{
    return j->slot == BACKGROUND_SLOT;
}

static void tell(const struct job *j)
{
    const struct job_view *v = &j->view;

    if (v->id == 0)
        return;                      /* nobody knows of it */
    log_event(EVENT_JOB, "job=j%llu kind=%s state=%s prefix=%s done=%llu failed=%llu dropped=%llu",
              (unsigned long long)v->id, job_kind_name(v->spec.kind), job_state_name(v->state),
              log_value(span_of(v->spec.prefix)), (unsigned long long)v->objects_done,
              (unsigned long long)v->objects_failed, (unsigned long long)v->dropped);
}

static void set_state(struct job *j, enum label_jobstate state)
{
    jobs_lock(j->jobs);
    j->view.state = state;
    if (state == JOB_RUNNING && j->view.started_ms == 0)
        j->view.started_ms = clock_wall_ms();
    if (job_state_is_over(state))
        j->view.ended_ms = clock_wall_ms();
    pthread_cond_broadcast(&j->jobs->changed);
    jobs_unlock(j->jobs);
    job_save(j);
    tell(j);
}

void job_note(struct job *j, const char *note)
{
    if (strcmp(j->view.note, note) == 0)
        return;
    jobs_lock(j->jobs);
    snprintf(j->view.note, sizeof j->view.note, "%s", note);
    jobs_unlock(j->jobs);
}

void job_fail_key(struct job *j, struct span key, const char *error, uint32_t tries)
{
    struct job_view *v = &j->view;

    jobs_lock(j->jobs);
    v->objects_failed++;
    if (v->failure_count < JOB_FAILURES_MAX) {
        struct job_failure *f = &v->failure[v->failure_count++];
        snprintf(f->key, sizeof f->key, "%.*s", (int)key.len, key.at);
        snprintf(f->error, sizeof f->error, "%s", error);
        f->tries = tries;
    }
    jobs_unlock(j->jobs);
}

void job_fail_object(struct job *j, const struct object *o, const char *error, uint32_t tries)
{
    job_fail_key(j, object_key(o), error, tries);
}

/* ---- wishes ---- */
static enum job_wish take_wish(struct job *j)
{
    return (enum job_wish)atomic_exchange(&j->wish, WISH_NONE);
}

/* A bandwidth that came since. */
static void take_rate(struct job *j)
{
    uint64_t rate = atomic_exchange(&j->rate_wish, RATE_KEPT);

    if (rate == RATE_KEPT)
        return;
    jobs_lock(j->jobs);
    j->view.spec.bandwidth = rate;
    jobs_unlock(j->jobs);
    j->due_us = 0;                   /* what the old one owes is not waited for */
    job_save(j);
}

/* Something is wished, or the core ends: *next says where to go. */
static bool is_interrupted(struct job *j, enum turn *next)
{
    if (atomic_load(&j->jobs->stopping)) {
        *next = GO(job, j, DRAIN);
        return true;
    }
    take_rate(j);
    switch (take_wish(j)) {
    case WISH_PAUSE:
        set_state(j, JOB_PAUSED);
        *next = GO(job, j, REST);
        return true;
    case WISH_CANCEL:
        set_state(j, JOB_CANCELLED);
        *next = GO(job, j, DRAIN);
        return true;
    case WISH_NONE: case WISH_RESUME: case WISH_RETRY: break;
    }
    return false;
}

/* ---- progress ---- */
static void count_rate(struct job *j)
{
    uint64_t now = j->m.core->now_ms, passed = now - j->rated_ms;

    if (passed < RATE_MS)
        return;
    jobs_lock(j->jobs);
    /* A pass begins to count anew. */
    j->view.rate_bytes_per_s = j->view.bytes_done < j->rated_bytes
        ? 0 : (j->view.bytes_done - j->rated_bytes) * 1000 / passed;
    jobs_unlock(j->jobs);
    j->rated_ms = now;
    j->rated_bytes = j->view.bytes_done;
}

static void progress(struct job *j)
{
    uint64_t now = j->m.core->now_ms;

    count_rate(j);
    if (now - j->saved_ms < (is_scrub(j) ? SCRUB_SAVE_MS : SAVE_EVERY_MS))
        return;
    j->saved_ms = now;
    job_save(j);
}

static void let_go(struct job *j, bool all)
{
    unsigned until = all ? j->count : j->taken;

    for (unsigned i = 0; i < until; i++)
        if (j->object[i])
            object_leave(cache_of(j), j->object[i]);
    for (unsigned i = 0; i < until; i++)
        j->object[i] = NULL;
}

/* ---- steps ---- */
static enum turn job_BEGIN(struct job *self)
{
    const struct config *config = self->m.core->settings->config;

    self->next_at = self->place.at;
    self->number = 0;                /* it may have been cancelled in the middle of an object */
    self->held = (struct cache_held){0};
    self->saved_ms = self->rated_ms = self->m.core->now_ms;
    self->rated_bytes = self->view.bytes_done;
    if (is_scrub(self)) {
        timer_set(&self->timer, &self->m, SCRUB_DELAY_MS);
        return GO(job, self, SLEEP);
    }
    if (is_background(self) && job_state_is_over(self->view.state)) {
        timer_set(&self->timer, &self->m, LOOK_MS);
        return GO(job, self, LOOK);
    }
    if (self->view.state == JOB_PAUSED)
        return GO(job, self, REST);
    if (scope_of(self->jobs->server, config, &self->view.spec, &self->scope) != OK) {
        job_note(self, "no upstream has that bucket any more: see upstream.match");
        set_state(self, JOB_FAILED);
        return GO(job, self, DRAIN);
    }
    /* A configuration may go, the spec of a job stays. */
    snprintf(self->bucket, sizeof self->bucket, "%.*s", (int)self->scope.bucket.len,
             self->scope.bucket.at);
    self->scope.bucket = span_of(self->bucket);
    self->scoped = true;
    job_note(self, "");
    bool warms = job_warms(self->view.spec.kind);
    if (warms && warm_open(self) != OK) {
        job_note(self, "there is no memory for it now");
        set_state(self, JOB_FAILED);
        return GO(job, self, DRAIN);
    }
    set_state(self, JOB_RUNNING);
    return warms ? GO(job, self, LIST) : GO(job, self, WALK);
}

/* The walk is over. */
static enum turn end_pass(struct job *self)
{
    struct job_view *v = &self->view;

    if (!is_scrub(self)) {
        job_note(self, "");
        set_state(self, JOB_DONE);
        return GO(job, self, DRAIN);
    }
    uint64_t took_ms = clock_wall_ms() - v->started_ms;
    log_event(EVENT_SCRUB, "objects=%llu bytes=%llu damaged=%llu seconds=%llu",
              (unsigned long long)v->objects_done, (unsigned long long)v->bytes_done,
              (unsigned long long)v->dropped, (unsigned long long)(took_ms / 1000));
    metric_gauge_set(METRIC_SCRUB_LAST_PASS_TIME_SECONDS, 0, (int64_t)clock_wall_s());
    *v = (struct job_view){.spec = v->spec};
    self->place = (struct job_place){0};
    self->next_at = 0;
    job_save(self);
    timer_set(&self->timer, &self->m,
              took_ms < SCRUB_PASS_MS ? SCRUB_PASS_MS - took_ms : SCRUB_DELAY_MS);
    return GO(job, self, SLEEP);
}

static enum turn job_WALK(struct job *self) /* nothing of a slice is held */
{
    enum turn next;

    if (is_interrupted(self, &next))
        return next;
    if (self->view.spec.kind == KIND_REVALIDATE && !revalidate_reap(self))
        return WAIT;                 /* questions of the slice before are under way */
    if (self->next_at == CACHE_WALK_OVER)
        return end_pass(self);
    self->place.at = self->next_at;
    const struct okey below = {.store = self->scope.store, .bucket = self->scope.bucket,
                               .key = self->scope.prefix};
    const struct cache_wanted wanted = {.below = self->scope.all ? NULL : &below};
    self->count = cache_walk(cache_of(self), &self->next_at, self->object, &wanted);
    self->taken = 0;
    self->held = (struct cache_held){0};
    self->number = 0;
    progress(self);
    return GO(job, self, OBJECT);
}

static enum work work_on(struct job *j, struct object *o)
{
    switch (j->view.spec.kind) {
    case KIND_EVICT: return evict_work(j, o);
    case KIND_REVALIDATE: return revalidate_work(j, o);
    case KIND_VERIFY: case KIND_SCRUB: break;
    case KIND_PREWARM: case KIND_BACKGROUND: must(!"what brings a list walks over no objects");
    }
    return verify_work(j, o);
}

/* There is no buffer for a block: an operator may try again, the scrub does by itself; or that was
 * turned off. */
static enum turn give_up(struct job *j)
{
    if (is_scrub(j)) {
        if (j->chunk)
            chunk_drop(cache_of(j), j->chunk);
        j->chunk = NULL;
        let_go(j, true);
        j->count = j->taken = 0;
        j->number = 0;
        j->next_at = j->place.at;
        timer_set(&j->timer, &j->m, SCRUB_LOOK_MS);
        return GO(job, j, SLEEP);
    }
    job_note(j, "no buffer or disk was free for half a minute: see headpond disk ls, cache.memory");
    set_state(j, JOB_FAILED);
    return GO(job, j, DRAIN);
}

static enum turn job_OBJECT(struct job *self)
{
    enum work work = WORK_DONE;
    enum turn next;

    if (self->view.spec.kind == KIND_REVALIDATE)
        revalidate_reap(self);
    if (!self->transfer && is_interrupted(self, &next))
        return next;
    for (; self->taken < self->count; self->taken++) {
        struct object *o = self->object[self->taken];
        work = scope_has(&self->scope, o) ? work_on(self, o) : WORK_DONE;
        if (work != WORK_DONE)
            break;
        self->held = (struct cache_held){0};
        self->number = 0;
    }
    let_go(self, false);
    progress(self);
    if (work == WORK_WAIT)
        return WAIT;
    if (work == WORK_STOP)
        return give_up(self);
    machine_wake(&self->m);          /* others have their turn first */
    if (work == WORK_DONE)
        self->m.at = AT_job_WALK;
    return WAIT;
}

/* Where a prewarm goes on. */
static enum turn warm_on(struct job *j, enum warm_turn turn)
{
    progress(j);
    switch (turn) {
    case WARM_WAIT: return WAIT;
    case WARM_MORE: machine_wake(&j->m); return WAIT;
    case WARM_PAGE: return GO(job, j, WARM);
    case WARM_LIST:                  /* a piece of a list of keys may hold nothing that is meant */
        machine_wake(&j->m);
        j->m.at = AT_job_LIST;
        return WAIT;
    case WARM_DONE: set_state(j, JOB_DONE); break;
    case WARM_FAILED: set_state(j, JOB_FAILED); break;
    }
    return GO(job, j, DRAIN);
}

static enum turn job_LIST(struct job *self) /* prewarm: all before its place is done */
{
    enum turn next;

    if (!is_interrupted(self, &next))
        return warm_on(self, warm_list(self));
    warm_leave_list(self);           /* a rest would hold its connection, or its turn for one */
    return next;
}

static enum turn job_WARM(struct job *self) /* prewarm: a page of the list is here */
{
    enum turn next;

    return is_interrupted(self, &next) ? next : warm_on(self, warm_objects(self));
}

/* What was being done when the job was told to rest. */
static enum turn go_on(struct job *j)
{
    if (!j->scoped)
        return GO(job, j, BEGIN);    /* it was paused before this start */
    if (!job_warms(j->view.spec.kind))
        return GO(job, j, OBJECT);
    return warm_has_page(j) ? GO(job, j, WARM) : GO(job, j, LIST);
}

static enum turn job_REST(struct job *self) /* paused: nothing of it is lost */
{
    if (atomic_load(&self->jobs->stopping))
        return GO(job, self, DRAIN);
    take_rate(self);
    switch (take_wish(self)) {
    case WISH_RESUME:
        set_state(self, JOB_RUNNING);
        return go_on(self);
    case WISH_CANCEL:
        set_state(self, JOB_CANCELLED);
        return GO(job, self, DRAIN);
    case WISH_NONE: case WISH_PAUSE: case WISH_RETRY: break;
    }
    return WAIT;
}

static enum turn job_SLEEP(struct job *self) /* the scrub, between two passes or while it is off */
{
    if (atomic_load(&self->jobs->stopping))
        return GO(job, self, DRAIN);
    if (!timer_take(&self->timer))
        return WAIT;
    if (self->m.core->settings->config->cache_scrub == 0) {
        timer_set(&self->timer, &self->m, SCRUB_LOOK_MS);
        return WAIT;
    }
    self->scope = (struct job_scope){.all = true};
    if (self->view.started_ms == 0)
        self->view.started_ms = clock_wall_ms();
    return GO(job, self, WALK);
}

/* From the start, as if it was new; under the lock. */
static void forget_all(struct job *j)
{
    struct job_view *v = &j->view;

    v->started_ms = v->ended_ms = 0;
    v->objects_done = v->objects_failed = v->objects_skipped = v->bytes_done = v->dropped = 0;
    v->failure_count = 0;
    v->pass = PASS_NONE;
    v->does_not_fit = false;
    v->note[0] = '\0';
    j->place = (struct job_place){0};
}

static void begin_again(struct job *j)
{
    jobs_lock(j->jobs);
    forget_all(j);
    jobs_unlock(j->jobs);
}

/* A job of the background that has ended shall be done again. */
static bool is_repeated(struct job *j)
{
    if (!atomic_exchange(&j->again, false))
        return false;
    begin_again(j);
    return true;
}

static enum turn job_LOOK(struct job *self) /* background: for a dataset that is worth it */
{
    if (atomic_load(&self->jobs->stopping))
        return GO(job, self, DRAIN);
    if (is_repeated(self) || background_look(self)) {
        timer_stop(&self->timer);
        return GO(job, self, BEGIN);
    }
    return WAIT;
}

static enum turn job_DRAIN(struct job *self)
{
    if (self->transfer && !transfer_ended(self->transfer))
        return WAIT;
    if (self->transfer)
        transfer_drop(self->transfer);
    if (self->buffer)
        pool_give(cache_of(self), self->buffer);
    self->transfer = NULL;
    self->buffer = NULL;
    bool left = revalidate_leave(self);
    if (!warm_leave(self) || !left)
        return WAIT;
    timer_stop(&self->timer);
    if (self->chunk)
        chunk_drop(cache_of(self), self->chunk);
    self->chunk = NULL;
    let_go(self, true);
    self->count = self->taken = 0;
    if (self->m.inflight > 0)
        return WAIT;
    job_save(self);
    return GO(job, self, END);
}

static enum turn job_END(struct job *self)
{
    (void)self;
    return OVER;
}

/* ---- begin and end ---- */
static void begin(struct core *c, struct job *j);

static void job_over(struct machine *m)
{
    struct job *j = container_of(m, struct job, m);
    struct jobs *jobs = j->jobs;

    if (is_background(j))
        background_over(j);
    jobs_lock(jobs);                 /* what does not run any more may be freed */
    atomic_store(&j->runs, false);
    if (job_state_is_over(j->view.state)) /* a wish that came too late is not for what follows */
        atomic_store(&j->wish, WISH_NONE);
    if (atomic_load(&jobs->stopping))
        job_settle(j);
    else if (atomic_load(&j->again) || is_background(j))
        job_send(j);
    jobs_unlock(jobs);
}

void job_settle(struct job *j)
{
    struct job_view *v = &j->view;

    if (atomic_exchange(&j->again, false))
        forget_all(j);
    switch (job_state_is_over(v->state) ? WISH_NONE : take_wish(j)) {
    case WISH_NONE: case WISH_RETRY: break;
    case WISH_PAUSE: v->state = JOB_PAUSED; break;
    case WISH_RESUME: v->state = JOB_RUNNING; break;
    case WISH_CANCEL:
        v->state = JOB_CANCELLED;
        v->ended_ms = clock_wall_ms();
        break;
    }
    uint64_t rate = atomic_exchange(&j->rate_wish, RATE_KEPT);
    if (rate != RATE_KEPT)
        v->spec.bandwidth = rate;
    job_save(j);
}

static void begin(struct core *c, struct job *j)
{
    if (atomic_load(&j->jobs->stopping))
        return;
    if (atomic_exchange(&j->again, false))
        begin_again(j);
    if (job_state_is_over(j->view.state) && !is_background(j))
        return;                      /* a wish that came too late */
    j->refused = 0;
    j->scoped = false;
    atomic_store(&j->runs, true);
    MACHINE_BEGIN(job, j, c, job_over);
}

static void deliver(struct core *c, struct message *msg)
{
    struct job *j = container_of(msg, struct job, msg);
    struct jobs *jobs = j->jobs;

    if (atomic_load(&j->runs))
        machine_wake(&j->m);
    else
        begin(c, j);
    jobs_lock(jobs);                 /* without a message it may be freed */
    atomic_store(&j->sent, false);
    /* A wish that came since the look at it found the message still under way. */
    bool again = atomic_load(&j->again), wished = again ||
        atomic_load(&j->wish) != WISH_NONE || atomic_load(&j->rate_wish) != RATE_KEPT;
    if (wished && atomic_load(&j->runs))
        machine_wake(&j->m);
    else if (again && !atomic_load(&jobs->stopping))
        job_send(j);
    jobs_unlock(jobs);
}

void job_send(struct job *j)
{
    const struct server *s = j->jobs->server;

    if (atomic_exchange(&j->sent, true))
        return;
    j->msg.deliver = deliver;
    core_send(s->core[j->slot % s->core_count], &j->msg);
}
