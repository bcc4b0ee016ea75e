/* The table of loaders' plans: who is posted, what is known of each, which one is followed.
 *
 * Invariants:
 *  1. The lock guards the table, the views and who is dropped, for microseconds. All else of a plan
 *     is the machine's (plan_run.c) once it is in the table, and only that frees it.
 *  2. Of a job one plan runs: that of its lowest epoch that is not over. Others wait behind it.
 *  3. A job and an epoch name a plan: the same again takes the place of the first.
 *
 * Life: plans_open() after the cores have started, plans_close() when they were joined. Plans die
 * with the process: loaders post them again.
 * Failure: a table that is full of plans that are not over takes no more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "log.h"
#include "server/jobs/plan.h"

static const char *const state_names[LABEL_planstate_COUNT] = {
    [PLAN_WAITING] = "waiting", [PLAN_RUNNING] = "running", [PLAN_READ] = "read",
    [PLAN_OVERTAKEN] = "overtaken",
};

const char *plan_state_name(enum label_planstate state)
{
    return state_names[state];
}

static void lock(struct plans *plans)
{
    pthread_mutex_lock(&plans->lock);
}

static void unlock(struct plans *plans)
{
    pthread_mutex_unlock(&plans->lock);
}

/* ---- making ---- */
static bool is_job_name(const char *name)
{
    static const char good[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(name);

    return len > 0 && strspn(name, good) == len;
}

enum err plans_begin(struct server *s, const struct plan_facts *facts, struct plan **out)
{
    struct conf_route route;

    *out = NULL;
    if (!is_job_name(facts->job))
        return ERR_SYNTAX;
    struct plan *p = plan_make(&s->plans->account);
    if (!p)
        return ERR_MEMORY;
    p->server = s;
    p->facts = *facts;
    p->prefix = span_of(p->facts.prefix);
    p->client_bucket = span_cut(&p->prefix, '/');
    struct settings *settings = settings_hold(s);
    bool routed =
        p->client_bucket.len > 0 && conf_route(settings->config, p->client_bucket, &route) &&
        !conf_is_reserved(settings->config, &route, p->prefix);
    if (routed) {
        snprintf(p->bucket, sizeof p->bucket, "%.*s", (int)route.bucket.len, route.bucket.at);
        p->upstream = (uint8_t)route.upstream;
        *out = p;
    }
    settings_drop(settings);
    if (!routed)
        plan_free(p);
    return routed ? OK : ERR_NOT_FOUND;
}

static struct okey key_of(const struct plan *p, struct span rest, char memory[KEY_BYTES_MAX + 1])
{
    struct text t;

    text_init(&t, memory, KEY_BYTES_MAX + 1);
    text_add(&t, p->prefix);
    text_add(&t, rest);
    struct okey k = {.bucket = span_of(p->bucket), .key = text_span(&t), .upstream = p->upstream};
    cache_key(p->server->cache, &k);
    return k;
}

struct okey plan_key(const struct plan *p, const struct plan_object *o,
                     char memory[KEY_BYTES_MAX + 1])
{
    return key_of(p, plan_rest(p, o), memory);
}

enum err plans_add(struct plan *p, const struct plan_item *item)
{
    char memory[KEY_BYTES_MAX + 1];
    size_t len = p->prefix.len + item->key.len;

    if (len == 0 || len > KEY_BYTES_MAX ||
        (item->key.len > 0 && memchr(item->key.at, '\0', item->key.len)))
        return ERR_SYNTAX;
    struct okey k = key_of(p, item->key, memory);
    const struct plan_wish wish = {.stream = item->stream, .id = k.id, .rest = item->key,
        .range = item->range, .range_count = item->range_count};
    return plan_add(p, &wish);
}

void plans_give_up(struct plan *p)
{
    plan_free(p);
}

/* ---- the table; under the lock ---- */
static bool is_over(const struct plan *p)
{
    return p->dropped || p->view.state == PLAN_READ || p->view.state == PLAN_OVERTAKEN;
}

static struct plan *find(struct plans *plans, uint64_t id)
{
    for (unsigned i = 0; i < PLAN_SLOTS; i++)
        if (plans->plan[i] && !plans->plan[i]->dropped && plans->plan[i]->view.id == id)
            return plans->plan[i];
    return NULL;
}

/* Those of the same name go. */
static void drop_namesakes(struct plans *plans, const struct plan_facts *facts)
{
    for (unsigned i = 0; i < PLAN_SLOTS; i++) {
        struct plan *p = plans->plan[i];
        if (p && p->facts.epoch == facts->epoch && strcmp(p->facts.job, facts->job) == 0)
            p->dropped = true;
    }
}

/* A free slot. When as many as may be are known, the oldest that is over goes. PLAN_SLOTS: none. */
static unsigned make_slot(struct plans *plans)
{
    unsigned oldest = PLAN_SLOTS, count = 0, slot = PLAN_SLOTS;

    for (unsigned i = 0; i < PLAN_SLOTS; i++) {
        const struct plan *p = plans->plan[i];
        count += p && !p->dropped;
        if (!p)
            slot = i;
        else if (!p->dropped && is_over(p) &&
                 (oldest == PLAN_SLOTS || p->view.id < plans->plan[oldest]->view.id))
            oldest = i;
    }
    if (count < PLANS_MAX)
        return slot;
    if (oldest == PLAN_SLOTS)
        return PLAN_SLOTS;
    plans->plan[oldest]->dropped = true;
    return slot;
}

/* ---- the face ---- */
static void begin_view(struct plan *p)
{
    struct plan_view *v = &p->now;

    v->facts = p->facts;
    v->state = PLAN_WAITING;
    v->created_ms = clock_wall_ms();
    v->expires_ms = v->created_ms + p->facts.expires_s * 1000;
    v->streams = p->stream_count;
    v->objects = p->object_count;
    v->entries = p->entry_count;
    v->place = plan_place(p);
}

/* What is here of an object already, by the one who posts; not under the lock. */
static void look_at(struct plan *p, struct plan_object *o)
{
    char memory[KEY_BYTES_MAX + 1];
    struct okey k = plan_key(p, o, memory);
    struct object *known = cache_find(p->server->cache, &k);
    struct cache_held held = {0};

    if (!known)
        return;
    if (!(atomic_load(&known->flags) & (OBJECT_DOUBT | OBJECT_GONE))) {
        while (!cache_measure(p->server->cache, known, &held, UINT32_MAX))
            ;
        o->state = PLANNED_KNOWN;
        o->size = known->size;
        p->known++;
        p->known_bytes += known->size;
        p->now.here_bytes += held.bytes;
    }
    object_drop(p->server->cache, known);
}

static void look_at_all(struct plan *p)
{
    enum { LOOK_MS = 1000 };         /* the rest is found on the way */
    uint64_t until_ms = clock_ms() + LOOK_MS;

    for (uint32_t i = 0; i < p->object_count; i++) {
        if (i % 64 == 0 && clock_ms() >= until_ms)
            break;
        look_at(p, &p->object[i]);
    }
    p->now.known = p->known;
    p->now.known_bytes = p->known_bytes;
}

/* Plans of one job wait for each other and take each other's place, so nobody else's may join. */
static bool may_name(const struct plans *plans, const struct plan *p,
                     const struct plan_right *right)
{
    for (unsigned i = 0; i < PLAN_SLOTS && right; i++) {
        const struct plan *q = plans->plan[i];
        if (q && !q->dropped && strcmp(q->facts.job, p->facts.job) == 0 &&
            !right->may(right, q->facts.prefix))
            return false;
    }
    return true;
}

static enum err enter(struct plans *plans, struct plan *p, const struct plan_right *right)
{
    if (!may_name(plans, p, right))
        return ERR_DENIED;
    drop_namesakes(plans, &p->facts);
    unsigned slot = make_slot(plans);
    if (slot == PLAN_SLOTS || atomic_load(&plans->stopping))
        return ERR_BUSY;
    p->now.id = plans->next_id++;
    p->view = p->now;
    plans->plan[slot] = p;
    return OK;
}

enum err plans_post(struct server *s, struct plan *p, const struct plan_right *right,
                    struct plan_view *out)
{
    struct plans *plans = s->plans;
    enum err err = plan_settle(p);
    struct cache_status cache;

    cache_status(s->cache, &cache);
    atomic_store(&plans->capacity, cache.capacity_bytes);
    if (err == OK) {
        begin_view(p);
        look_at_all(p);
        lock(plans);
        err = enter(plans, p, right);
        if (err == OK)
            *out = p->view;
        unlock(plans);
    }
    if (err != OK) {
        plan_free(p);
        return err;
    }
    log_event(EVENT_PLAN, "plan=p%llu job=%s epoch=%llu prefix=%s streams=%u objects=%u entries=%u",
              (unsigned long long)out->id, log_value(span_of(out->facts.job)),
              (unsigned long long)out->facts.epoch, log_value(span_of(out->facts.prefix)),
              out->streams, out->objects, out->entries);
    plans_send(plans);
    return OK;
}

bool plans_view(struct server *s, uint64_t id, struct plan_view *out)
{
    lock(s->plans);
    const struct plan *p = find(s->plans, id);
    if (p)
        *out = p->view;
    unlock(s->plans);
    return p != NULL;
}

unsigned plans_list(struct server *s, uint64_t out[PLANS_MAX])
{
    unsigned count = 0;

    lock(s->plans);
    for (unsigned i = 0; i < PLAN_SLOTS; i++) {
        const struct plan *p = s->plans->plan[i];
        if (!p || p->dropped)
            continue;
        unsigned at = count++;
        for (; at > 0 && out[at - 1] > p->view.id; at--)
            out[at] = out[at - 1];
        out[at] = p->view.id;
    }
    unlock(s->plans);
    return count;
}

enum err plans_drop(struct server *s, uint64_t id)
{
    lock(s->plans);
    struct plan *p = find(s->plans, id);
    if (p)
        p->dropped = true;
    unlock(s->plans);
    if (!p)
        return ERR_NOT_FOUND;
    log_event(EVENT_PLAN, "plan=p%llu dropped=yes", (unsigned long long)id);
    plans_send(s->plans);
    return OK;
}

void plans_tell(struct server *s)
{
    uint64_t count[LABEL_planstate_COUNT] = {0};

    lock(s->plans);
    for (unsigned i = 0; i < PLAN_SLOTS; i++) {
        const struct plan *p = s->plans->plan[i];
        if (p && !p->dropped)
            count[p->view.state]++;
    }
    unlock(s->plans);
    for (unsigned i = 0; i < LABEL_planstate_COUNT; i++)
        metric_gauge_set(METRIC_PLANS, i, (int64_t)count[i]);
    metric_gauge_set(METRIC_PLAN_ENTRIES, 0, (int64_t)atomic_load(&s->plans->account.entries));
}

/* ---- start and end ---- */
enum err plans_open(struct server *s)
{
    struct plans *plans = mem_take(sizeof *plans);

    if (!plans)
        return ERR_MEMORY;
    plans->server = s;
    plans->next_id = 1;
    pthread_mutex_init(&plans->lock, NULL);
    s->plans = plans;
    plans->planner = planner_make(plans);
    return plans->planner ? OK : ERR_MEMORY;
}

void plans_close(struct server *s)
{
    struct plans *plans = s->plans;

    if (!plans || atomic_load(&plans->runs))
        return;                      /* its core was cut: it dies with the process */
    for (unsigned i = 0; i < PLAN_SLOTS; i++)
        plan_free(plans->plan[i]);
    planner_free(plans->planner);
    pthread_mutex_destroy(&plans->lock);
    s->plans = NULL;
    mem_give(plans);
}
