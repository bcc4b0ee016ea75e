/* The table of jobs: who may be made, what is known of each, what they are told.
 *
 * Invariants:
 *  1. The lock guards the table and every view, for microseconds; walks and disks are never waited
 *     for under it.
 *  2. A job is freed only when its machine has ended and no message to it is under way, by the one
 *     who makes another or at the end.
 *  3. Each slot of the table has one name in the cache's state: a new job takes the place of the
 *     old one there, too, so nothing has to be removed.
 *
 * Life: one table per process. The scrub is a job that stands in the last slot and in no list.
 * Failure: a job that cannot be kept runs all the same, and is forgotten by a restart. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/jobs.h"

#include <stdio.h>

#include "log.h"
#include "server/jobs/inside.h"

enum { SYNC_MS = 2000, NAME_BYTES = 16, MEASURE_STEP = 1024 };

static const char counter_name[] = "job/next";

const char *job_kind_name(enum job_kind kind)
{
    static const char *const names[] = {"evict", "revalidate", "verify", "scrub", "prewarm",
                                        "background"};

    return names[kind];
}

const char *job_state_name(enum label_jobstate state)
{
    static const char *const names[LABEL_jobstate_COUNT] = {
        [JOB_QUEUED] = "queued", [JOB_RUNNING] = "running", [JOB_PAUSED] = "paused",
        [JOB_DONE] = "done", [JOB_FAILED] = "failed", [JOB_CANCELLED] = "cancelled",
    };

    return names[state];
}

void jobs_lock(struct jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
}

void jobs_unlock(struct jobs *jobs)
{
    pthread_mutex_unlock(&jobs->lock);
}

/* ---- scopes ---- */
enum err scope_of(const struct server *s, const struct config *config, const struct job_spec *spec,
                  struct job_scope *out)
{
    struct span rest = span_of(spec->prefix), bucket = span_cut(&rest, '/');
    struct conf_route route;

    *out = (struct job_scope){.all = bucket.len == 0, .bucket = bucket, .prefix = rest};
    if (out->all)
        return OK;
    if (!conf_route(config, bucket, &route))
        return ERR_NOT_FOUND;
    out->bucket = route.bucket;
    out->upstream = (uint8_t)route.upstream;
    out->store = s->store_of[route.upstream];
    return OK;
}

bool scope_has(const struct job_scope *scope, const struct object *o)
{
    return scope->all || (o->store == scope->store && span_eq(object_bucket(o), scope->bucket) &&
                          span_starts(object_key(o), scope->prefix));
}

bool spec_wants_age(const struct job_spec *spec, const struct object *o)
{
    return spec->unread_for_s == 0 || object_read_s(o) + spec->unread_for_s <= clock_wall_s();
}

/* ---- keeping ---- */
static void name_of(unsigned slot, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "job/%02u", slot);
}

uint64_t jobs_number(struct jobs *jobs)
{
    jobs_lock(jobs);
    uint64_t id = jobs->next_id++, next = jobs->next_id;
    enum err err = cache_state_put(jobs->server->cache, span_of(counter_name),
                                   span_make((char *)&next, sizeof next));
    jobs_unlock(jobs);
    if (err != OK)
        log_event(EVENT_JOB, "job=j%llu note=%s", (unsigned long long)id,
                  log_value(span_of("its number could not be kept")));
    return id;
}

void job_save(struct job *j)
{
    char name[NAME_BYTES];
    bool counts = j->slot == BACKGROUND_SLOT && j->view.id == 0; /* the one before is kept */
    uint8_t *record = counts ? NULL : mem_take(JOB_RECORD_MAX);

    if (!record)
        return;                      /* the older one stands */
    name_of(j->slot, name);
    size_t len = job_record_write(&j->view, &j->place, record, JOB_RECORD_MAX);
    must(len > 0);
    enum err err = cache_state_put(j->jobs->server->cache, span_of(name),
                                   span_make((char *)record, len));
    if (err != OK)
        log_event(EVENT_JOB, "job=j%llu note=%s", (unsigned long long)j->view.id,
                  log_value(span_of("it could not be kept and would not survive a restart")));
    mem_give(record);
}

/* ---- the table; under the lock ---- */
/* What is told of a slot's job; NULL: there is none. The scrub is in no list; what fills the cache
 * in the background is, from when it fills until another one does. */
static const struct job_view *shown(const struct jobs *jobs, unsigned slot)
{
    if (slot == BACKGROUND_SLOT)
        return background_shown(jobs);
    return slot != SCRUB_SLOT && jobs->job[slot] ? &jobs->job[slot]->view : NULL;
}

static const struct job_view *find_view(const struct jobs *jobs, uint64_t id)
{
    for (unsigned i = 0; i < JOB_SLOTS; i++) {
        const struct job_view *v = shown(jobs, i);
        if (v && v->id == id)
            return v;
    }
    return NULL;
}

static struct job *find(struct jobs *jobs, uint64_t id)
{
    for (unsigned i = 0; i < JOB_SLOTS; i++)
        if (id && jobs->job[i] && i != SCRUB_SLOT && jobs->job[i]->view.id == id)
            return jobs->job[i];
    return NULL;
}

static bool may_go(struct job *j)
{
    return job_state_is_over(j->view.state) && !atomic_load(&j->runs) && !atomic_load(&j->sent);
}

/* An empty slot, or that of the oldest that has ended. JOBS_MAX: none. */
static unsigned free_slot(struct jobs *jobs)
{
    unsigned oldest = JOBS_MAX;

    for (unsigned i = 0; i < JOBS_MAX; i++) {
        if (!jobs->job[i])
            return i;
        if (may_go(jobs->job[i]) &&
            (oldest == JOBS_MAX || jobs->job[i]->view.id < jobs->job[oldest]->view.id))
            oldest = i;
    }
    return oldest;
}

static unsigned count_active(const struct jobs *jobs)
{
    unsigned count = 0;

    for (unsigned i = 0; i < JOBS_MAX; i++)
        count += jobs->job[i] && !job_state_is_over(jobs->job[i]->view.state);
    return count;
}

/* In place of the one that has ended there, whose list is gone. */
static struct job *make_job(struct jobs *jobs, unsigned slot, struct kept_gone *gone)
{
    struct job *j = mem_take(sizeof *j), *old = jobs->job[slot];

    if (!j)
        return NULL;
    if (old)
        kept_forget(jobs, old->view.id, &old->view.spec.keys, gone);
    mem_give(old);
    jobs->job[slot] = j;
    j->jobs = jobs;
    j->slot = slot;
    atomic_store(&j->rate_wish, RATE_KEPT);
    return j;
}

/* ---- counting ---- */
enum err jobs_count(struct server *s, const struct job_spec *spec, struct job_count *out)
{
    struct object *object[CACHE_WALK_MAX];
    struct settings *settings = settings_hold(s);
    struct job_scope scope;
    uint64_t at = 0;

    *out = (struct job_count){0};
    enum err err = scope_of(s, settings->config, spec, &scope);
    const struct okey below = {.store = scope.store, .bucket = scope.bucket, .key = scope.prefix};
    const struct cache_wanted wanted = {.below = scope.all ? NULL : &below};
    while (err == OK && at != CACHE_WALK_OVER) {
        if (atomic_load(&s->state) == SERVER_DRAINING)
            err = ERR_BUSY;          /* nobody waits for the end of a long walk */
        unsigned count = cache_walk(s->cache, &at, object, &wanted);
        for (unsigned i = 0; i < count; i++) {
            struct cache_held held = {0};
            bool meant = scope_has(&scope, object[i]) && spec_wants_age(spec, object[i]);
            while (meant && !cache_measure(s->cache, object[i], &held, MEASURE_STEP))
                ;
            bool skipped = meant && spec->keep_pinned && held.pinned;
            out->pinned_skipped += skipped;
            out->objects += meant && !skipped;
            out->bytes += meant && !skipped ? held.bytes : 0;
            object_leave(s->cache, object[i]);
        }
    }
    settings_drop(settings);
    return err;
}

/* What a job would meet; a prewarm asks upstream's list itself. */
static enum err count_new(struct server *s, const struct job_spec *spec, struct job_count *out)
{
    struct job_scope scope;

    if (!job_warms(spec->kind))
        return jobs_count(s, spec, out);
    struct settings *settings = settings_hold(s);
    enum err err = scope_of(s, settings->config, spec, &scope);
    settings_drop(settings);
    *out = (struct job_count){0};
    return err == OK && scope.all ? ERR_NOT_FOUND : err;
}

/* ---- the face ---- */
static enum err enter_new(struct jobs *jobs, const struct job_spec *spec,
                          const struct job_count *count, uint64_t *id, struct kept_gone *gone)
{
    unsigned slot = free_slot(jobs);

    if (slot == JOBS_MAX || count_active(jobs) >= JOBS_ACTIVE_MAX || atomic_load(&jobs->stopping))
        return ERR_BUSY;
    struct job *j = make_job(jobs, slot, gone);
    if (!j)
        return ERR_MEMORY;
    if (*id == 0)
        *id = jobs->next_id++;
    j->view = (struct job_view){
        .id = *id,
        .spec = *spec,
        .state = JOB_QUEUED,
        .created_ms = clock_wall_ms(),
        .objects_wanted = count->objects,
        .bytes_wanted = count->bytes,
    };
    uint64_t next = jobs->next_id;
    if (cache_state_put(jobs->server->cache, span_of(counter_name),
                        span_make((char *)&next, sizeof next)) == OK)
        job_save(j);
    job_send(j);
    return OK;
}

enum err jobs_add(struct server *s, const struct job_spec *spec, const struct key_list *keys,
                  uint64_t *id)
{
    struct job_spec whole = *spec;
    struct kept_gone gone = {.count = 0};
    struct job_count count;

    *id = 0;
    TRY(count_new(s, spec, &count));
    if (keys)
        TRY(kept_put(s->jobs, keys, id, &whole.keys));
    jobs_lock(s->jobs);
    enum err err = enter_new(s->jobs, &whole, &count, id, &gone);
    if (err != OK && keys)
        kept_forget(s->jobs, *id, &whole.keys, &gone);
    jobs_unlock(s->jobs);
    kept_clear(s->jobs, &gone);
    if (err == OK)
        (void)cache_state_sync(s->cache, SYNC_MS);
    return err;
}

bool jobs_view(struct server *s, uint64_t id, struct job_view *out)
{
    jobs_lock(s->jobs);
    const struct job_view *v = find_view(s->jobs, id);
    if (v)
        *out = *v;
    jobs_unlock(s->jobs);
    return v != NULL;
}

bool jobs_known(struct server *s, uint64_t id)
{
    jobs_lock(s->jobs);
    bool known = find_view(s->jobs, id) != NULL;
    jobs_unlock(s->jobs);
    return known;
}

/* The lock is held. */
static bool is_in_state(struct jobs *jobs, uint64_t id, enum label_jobstate state)
{
    const struct job_view *v = find_view(jobs, id);

    return v && v->state == state;
}

void jobs_await(struct server *s, uint64_t id, enum label_jobstate known, unsigned ms)
{
    struct jobs *jobs = s->jobs;
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + ms * 1000000ULL;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    jobs_lock(jobs);
    while (is_in_state(jobs, id, known) && !atomic_load(&jobs->stopping))
        if (pthread_cond_timedwait(&jobs->changed, &jobs->lock, &until) != 0)
            break;
    jobs_unlock(jobs);
}

unsigned jobs_list(struct server *s, uint64_t out[JOBS_LISTED_MAX])
{
    unsigned count = 0;

    jobs_lock(s->jobs);
    for (unsigned i = 0; i < JOB_SLOTS; i++) {
        const struct job_view *v = shown(s->jobs, i);
        if (!v)
            continue;
        uint64_t id = v->id;
        unsigned at = count++;
        for (; at > 0 && out[at - 1] > id; at--)
            out[at] = out[at - 1];
        out[at] = id;
    }
    jobs_unlock(s->jobs);
    return count;
}

static bool fits(enum label_jobstate state, enum job_wish wish)
{
    switch (wish) {
    case WISH_NONE: return false;
    case WISH_PAUSE: return state == JOB_RUNNING || state == JOB_QUEUED;
    case WISH_RESUME: return state == JOB_PAUSED;
    case WISH_RETRY: return job_state_is_over(state);
    case WISH_CANCEL: return !job_state_is_over(state);
    }
    return false;
}

static enum err count_again(struct server *s, uint64_t id, struct job_count *out)
{
    struct job_spec spec;

    jobs_lock(s->jobs);
    const struct job *j = find(s->jobs, id);
    if (j)
        spec = j->view.spec;
    bool busy = !j && find_view(s->jobs, id);
    jobs_unlock(s->jobs);
    return j ? count_new(s, &spec, out) : busy ? ERR_DENIED : ERR_NOT_FOUND;
}

/* It would pin what no pin keeps. */
static bool pin_is_over(const struct job_spec *spec)
{
    return spec->pin && spec->until_s && spec->until_s <= clock_wall_s();
}

/* Something is wished of it. While the server ends nobody begins it any more, who would look. */
static void pass_on(struct jobs *jobs, struct job *j)
{
    if (atomic_load(&jobs->stopping) && !atomic_load(&j->runs))
        job_settle(j);
    else
        job_send(j);
    pthread_cond_broadcast(&jobs->changed);
}

/* It fits. */
static void note_wish(struct job *j, enum job_wish wish, const struct job_count *count)
{
    if (wish == WISH_RETRY) {
        j->view.state = JOB_QUEUED;  /* nobody takes its slot any more */
        j->view.objects_wanted = count->objects;
        j->view.bytes_wanted = count->bytes;
        atomic_store(&j->again, true);
    }
    atomic_store(&j->wish, wish == WISH_RETRY ? WISH_NONE : wish);
}

enum err jobs_wish(struct server *s, uint64_t id, enum job_wish wish)
{
    struct job_count count = {0};

    if (wish == WISH_RETRY)
        TRY(count_again(s, id, &count));
    jobs_lock(s->jobs);
    struct job *j = find(s->jobs, id);
    enum err err = !j ? ERR_NOT_FOUND : fits(j->view.state, wish) ? OK : ERR_DENIED;
    if (!j && find_view(s->jobs, id))
        err = ERR_DENIED;            /* the background counts another dataset just now */
    if (err == OK && wish == WISH_RETRY && j->view.spec.keys.count > 0 &&
        j->view.spec.keys.pieces == 0)
        err = ERR_FULL;
    if (err == OK && wish == WISH_RETRY && pin_is_over(&j->view.spec))
        err = ERR_TIMEOUT;
    if (err == OK && wish == WISH_RETRY && count_active(s->jobs) >= JOBS_ACTIVE_MAX)
        err = ERR_BUSY;
    if (err == OK && wish != WISH_RETRY && atomic_load(&j->wish) == WISH_CANCEL)
        err = wish == WISH_CANCEL ? OK : ERR_DENIED; /* it ends */
    if (err == OK) {
        note_wish(j, wish, &count);
        pass_on(s->jobs, j);
    }
    jobs_unlock(s->jobs);
    return err;
}

enum err jobs_set_bandwidth(struct server *s, uint64_t id, uint64_t bytes_per_s)
{
    jobs_lock(s->jobs);
    struct job *j = find(s->jobs, id);
    enum err err = !j ? ERR_NOT_FOUND
        : !job_warms(j->view.spec.kind) || job_state_is_over(j->view.state) ? ERR_DENIED : OK;
    if (err == OK) {
        atomic_store(&j->rate_wish, bytes_per_s);
        pass_on(s->jobs, j);
    }
    jobs_unlock(s->jobs);
    return err;
}

/* The ids of jobs are no label: there would be ever more of them. */
static void add_bytes(const struct job_view *v, uint64_t sum[LABEL_jobbytes_COUNT])
{
    if (v->spec.kind != KIND_PREWARM || job_state_is_over(v->state))
        return;
    sum[JOB_BYTES_WANTED] += v->bytes_wanted;
    sum[JOB_BYTES_DONE] += v->bytes_done;
    sum[JOB_BYTES_FAILED] += v->bytes_failed;
}

uint64_t job_bytes_left(const struct job_view *v)
{
    uint64_t looked_at = min_u64(v->bytes_done + v->bytes_failed, v->bytes_wanted);

    return min_u64(v->bytes_wanted - looked_at,
                   v->bytes_wanted - min_u64(v->bytes_here, v->bytes_wanted));
}

/* Of what is filled in the background now. The lock is held. */
static uint64_t background_left(const struct jobs *jobs)
{
    const struct job_view *v = &jobs->job[BACKGROUND_SLOT]->view;

    return v->id && !job_state_is_over(v->state) ? job_bytes_left(v) : 0;
}

void jobs_tell(struct server *s, uint64_t out[LABEL_jobstate_COUNT])
{
    uint64_t sum[LABEL_jobbytes_COUNT] = {0};

    memset(out, 0, LABEL_jobstate_COUNT * sizeof *out);
    jobs_lock(s->jobs);
    for (unsigned i = 0; i < JOB_SLOTS; i++) {
        const struct job_view *v = shown(s->jobs, i);
        if (!v)
            continue;
        out[v->state]++;
        add_bytes(v, sum);
    }
    uint64_t left = background_left(s->jobs);
    jobs_unlock(s->jobs);
    metric_gauge_set(METRIC_BACKGROUND_LEFT_BYTES, 0, (int64_t)left);
    for (unsigned i = 0; i < LABEL_jobstate_COUNT; i++)
        metric_gauge_set(METRIC_JOBS, i, (int64_t)out[i]);
    for (unsigned i = 0; i < LABEL_jobbytes_COUNT; i++)
        metric_gauge_set(METRIC_JOB_BYTES, i, (int64_t)sum[i]);
}

/* ---- start and end ---- */
/* What was kept of a slot; true: there is something. */
static enum err load_slot(struct jobs *jobs, unsigned slot, uint8_t *record)
{
    char name[NAME_BYTES];
    size_t len;

    name_of(slot, name);
    if (cache_state_get(jobs->server->cache, span_of(name), record, JOB_RECORD_MAX, &len) != OK)
        return OK;
    struct job *j = make_job(jobs, slot, NULL); /* in an empty one */
    if (!j)
        return ERR_MEMORY;
    bool known = job_record_read(span_make((char *)record, len), &j->view, &j->place) == OK &&
        (j->view.spec.kind == KIND_SCRUB) == (slot == SCRUB_SLOT) &&
        (j->view.spec.kind == KIND_BACKGROUND) == (slot == BACKGROUND_SLOT);
    if (known) {
        jobs->next_id = max_u64(jobs->next_id, j->view.id + 1);
        return OK;
    }
    jobs->job[slot] = NULL;
    mem_give(j);
    return OK;
}

/* One that nobody asks for, unless it was kept. */
static enum err make_lasting(struct jobs *jobs, unsigned slot, enum job_kind kind,
                             enum label_jobstate state)
{
    struct job *j = jobs->job[slot] ? jobs->job[slot] : make_job(jobs, slot, NULL);

    if (!j)
        return ERR_MEMORY;
    if (j->view.spec.kind == kind)
        return OK;
    j->view.spec.kind = kind;
    j->view.state = state;
    return OK;
}

static enum err load_all(struct jobs *jobs)
{
    uint8_t *record = mem_take(JOB_RECORD_MAX);
    uint64_t next = 0;
    size_t len = 0;
    enum err err = record ? OK : ERR_MEMORY;

    if (err == OK && cache_state_get(jobs->server->cache, span_of(counter_name), &next, sizeof next,
                                     &len) == OK && len == sizeof next)
        jobs->next_id = max_u64(next, 1);
    for (unsigned i = 0; i < JOB_SLOTS && err == OK; i++)
        err = load_slot(jobs, i, record);
    mem_give(record);
    if (err == OK)
        err = make_lasting(jobs, SCRUB_SLOT, KIND_SCRUB, JOB_QUEUED);
    if (err == OK)
        err = make_lasting(jobs, BACKGROUND_SLOT, KIND_BACKGROUND, JOB_DONE);
    return err;
}

static void make_lock(struct jobs *jobs)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&jobs->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&jobs->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

enum err jobs_open(struct server *s)
{
    struct jobs *jobs = mem_take(sizeof *jobs);

    if (!jobs)
        return ERR_MEMORY;
    jobs->server = s;
    jobs->next_id = 1;
    make_lock(jobs);
    s->jobs = jobs;
    TRY(load_all(jobs));
    TRY(kept_open(jobs));
    TRY(background_open(jobs));
    jobs_lock(jobs);
    for (unsigned i = 0; i < JOB_SLOTS; i++)
        if (jobs->job[i] &&
            (i == BACKGROUND_SLOT || !job_state_is_over(jobs->job[i]->view.state)))
            job_send(jobs->job[i]);
    jobs_unlock(jobs);
    return OK;
}

void jobs_close(struct server *s)
{
    struct jobs *jobs = s->jobs;

    if (!jobs)
        return;
    for (unsigned i = 0; i < JOB_SLOTS; i++)
        if (jobs->job[i] && atomic_load(&jobs->job[i]->runs))
            return;                  /* its core was cut: it dies with the process */
    for (unsigned i = 0; i < JOB_SLOTS; i++)
        mem_give(jobs->job[i]);
    background_close(jobs);
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->lock);
    s->jobs = NULL;
    mem_give(jobs);
}

void jobs_core_drain(struct core *c)
{
    struct jobs *jobs = c->server->jobs;

    if (!jobs)
        return;
    atomic_store(&jobs->stopping, true);
    jobs_lock(jobs);
    pthread_cond_broadcast(&jobs->changed);
    for (unsigned i = 0; i < JOB_SLOTS; i++) {
        struct job *j = jobs->job[i];
        if (j && atomic_load(&j->runs) && j->m.core == c)
            machine_wake(&j->m);
    }
    jobs_unlock(jobs);
}

bool jobs_core_idle(const struct core *c)
{
    struct jobs *jobs = c->server->jobs;
    bool idle = true;

    if (!jobs)
        return true;
    jobs_lock(jobs);
    for (unsigned i = 0; i < JOB_SLOTS; i++) {
        const struct job *j = jobs->job[i];
        idle = idle && !(j && atomic_load(&j->runs) && j->m.core == c);
    }
    jobs_unlock(jobs);
    return idle;
}
