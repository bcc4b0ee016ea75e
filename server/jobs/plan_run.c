/* The machine behind the plans: it hears what is read, knows which plan of a job runs, and has what
 * comes next fetched.
 *
 * Invariants:
 *  1. One machine, on one core, works on all plans: the nearest deadline of all of them is next.
 *  2. It runs while there are plans, and reads are noted only so long.
 *  3. It alone frees what the table holds, and not before its fetches have ended.
 *
 * Life: begun by a message behind the first plan; ends with the last one, or when the core drains.
 * Failure: none of its own; a plan that cannot be followed costs its job what it would have had. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/jobs/plan.h"

enum {
    TICK_MS = 20,                    /* between two looks at what was read */
    HEAR_MOST = 8192,                /* reads in a turn, or as many as take */
    COMPARE_MOST = 100 * 1000,       /* so many looks at the plans, about a millisecond */
    RATE_MS = 2000,                  /* over which rates are told */
    AWAIT_MS = 1000,                 /* for what readers left out and may be reading */
    WINDOW_LEAST_PARTS = 4,          /* chunks that the smallest window has room for */
    CACHE_PART = 4,                  /* one part of the cache in so many */
    WINDOWS_FAR = 4,                 /* that are looked at */
};
static const uint64_t WINDOW_BYTES = 1000 * 1000 * 1000;

#define PLANNER_STEPS(X) X(planner, RUN) X(planner, DRAIN) X(planner, END)
STEP_TABLE(planner, PLANNER_STEPS)

struct planner *planner_make(struct plans *plans)
{
    struct planner *n = mem_take(sizeof *n);

    if (n)
        n->plans = plans;
    return n;
}

void planner_free(struct planner *n)
{
    mem_give(n);
}

static bool are_of_one_job(const struct plan *a, const struct plan *b)
{
    return strcmp(a->facts.job, b->facts.job) == 0;
}

static struct plan *planner_before(const struct planner *n, const struct plan *p)
{
    struct plan *best = NULL;

    for (unsigned i = 0; i < n->count; i++) {
        struct plan *q = n->plan[i];
        if (are_of_one_job(p, q) && q->facts.epoch < p->facts.epoch && !plan_is_over(q) &&
            (!best || q->facts.epoch > best->facts.epoch))
            best = q;
    }
    return best;
}

/* Which plans of a job follow each other: after a plan came, or was over. */
static void chain_plans(struct planner *n)
{
    for (unsigned i = 0; i < n->count; i++)
        n->plan[i]->after = NULL;
    for (unsigned i = 0; i < n->count; i++) {
        struct plan *p = n->plan[i];
        p->before = plan_is_over(p) ? NULL : planner_before(n, p);
        if (p->before)
            p->before->after = p;
    }
}

/* ---- the table ---- */
/* Those that are dropped, or have expired, go; *left: some are still held. The lock is held. */
static struct plan *take_out(struct planner *n, struct plan **place)
{
    struct plan *p = *place;

    p->dropped = p->dropped || clock_wall_ms() >= p->view.expires_ms;
    if (!p->dropped || !plan_fetch_leave(n, p))
        return NULL;
    *place = NULL;
    return p;
}

/* What the machine works on in this turn. false: the table is empty. */
static bool gather(struct planner *n)
{
    struct plan *gone[PLAN_SLOTS];
    unsigned gone_count = 0, over_count = 0;
    struct plan *over[PLAN_SLOTS];
    bool some = false;

    n->count = 0;
    pthread_mutex_lock(&n->plans->lock);
    for (unsigned i = 0; i < PLAN_SLOTS; i++) {
        struct plan **place = &n->plans->plan[i];
        struct plan *out = *place ? take_out(n, place) : NULL;
        if (out)
            gone[gone_count++] = out;
        some = some || *place;
        if (!*place || (*place)->dropped)
            continue;
        if (!plan_is_over(*place))
            n->plan[n->count++] = *place;
        else if ((*place)->fetches == 0 && (*place)->entry)
            over[over_count++] = *place;
    }
    pthread_mutex_unlock(&n->plans->lock);
    chain_plans(n);
    while (over_count > 0)
        plan_empty(over[--over_count]);
    while (gone_count > 0)
        plan_free(gone[--gone_count]);
    return some;
}

static void end_plan(struct planner *n, struct plan *p, enum label_planstate state)
{
    p->now.state = state;
    p->now.place = plan_place(p);
    log_event(EVENT_PLAN, "plan=p%llu state=%s read=%llu skipped=%llu late=%llu",
              (unsigned long long)p->now.id, plan_state_name(state),
              (unsigned long long)p->now.read, (unsigned long long)p->now.skipped,
              (unsigned long long)p->now.late);
    (void)plan_fetch_leave(n, p);
}

/* All its readers are at their ends, and what they asked for in another order was heard, or is
 * waited for no longer. */
static bool has_ended(const struct planner *n, struct plan *p)
{
    uint64_t now = max_u64(n->m.core->now_ms, 1);

    if (!plan_is_read(p)) {
        p->ended_ms = 0;
        return false;
    }
    if (p->ended_ms == 0)
        p->ended_ms = now;
    return now - p->ended_ms >= AWAIT_MS || !plan_awaits(p);
}

/* Each reader of the plan has begun, and some have gone on, since the one before it was last read;
 * or that has nothing more that anybody could begin. There may be no more to go on to: where each
 * stream has one object, and none is read to its end. */
static bool takes_over(const struct plan *p, const struct plan *before)
{
    return p->since > p->reader_count || (plan_is_in_last(before) && plan_is_begun(p));
}

/* Which one of each job runs, which are over. */
static void judge_states(struct planner *n)
{
    for (unsigned i = 0; i < n->count; i++) {
        struct plan *p = n->plan[i];
        struct plan *before = planner_before(n, p);
        if (before && takes_over(p, before))
            end_plan(n, before, PLAN_OVERTAKEN);
        if (!plan_is_over(p) && p->now.read > 0 && has_ended(n, p))
            end_plan(n, p, PLAN_READ);
        if (!plan_is_over(p))
            p->now.state = planner_before(n, p) ? PLAN_WAITING : PLAN_RUNNING;
    }
    chain_plans(n);
}

/* ---- what is read ---- */
struct hearer {                      /* a plan that a read may be of */
    struct plan *plan;
    struct plan_match match;
};

static bool match(struct planner *n, struct plan *p, const struct follow_read *read,
                  struct plan_match *out)
{
    bool is = plan_match(p, read, out);

    n->compared += out->compared;
    return is;
}

/* Of each job the plan that runs, or the one behind it if the read is nearer to a reader of that:
 * else a plan that nobody reads to its end would take the next epoch's reads, somewhere in front of
 * its readers, and never be overtaken. Of two that are as near it is the first, until the other
 * one's readers have gone on. */
static struct plan *match_of_job(struct planner *n, struct plan *p, const struct follow_read *read,
                                 struct plan_match *out)
{
    struct plan_match next;
    bool is = match(n, p, read, out);

    if (!p->after || !match(n, p->after, read, &next))
        return is ? p : NULL;
    bool goes_on = p->after->since > p->after->reader_count;
    if (is && (out->steps < next.steps || (out->steps == next.steps && !goes_on)))
        return p;
    *out = next;
    return p->after;
}

static unsigned find_hearers(struct planner *n, const struct follow_read *read,
                             struct hearer out[PLAN_SLOTS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < n->count; i++) {
        struct plan *p = n->plan[i];
        if (plan_is_over(p) || p->before)
            continue;
        struct hearer *h = &out[count];
        h->plan = match_of_job(n, p, read, &h->match);
        count += h->plan != NULL;
    }
    return count;
}

static void hear_in(struct planner *n, const struct hearer *h, const struct follow_read *read)
{
    struct plan *p = h->plan;
    uint64_t late = p->now.late;
    enum plan_heard heard = plan_heard(p, read, &h->match);

    if (p->now.late > late)
        metric_add(n->m.core->metrics, METRIC_PLAN_LATE_TOTAL, 0, p->now.late - late);
    if (heard != HEARD_NOTHING && p->after)
        p->after->since = 0;
}

/* Where several jobs read the same objects it is of the one to whose reader it is nearest, else
 * each would move the others' readers; of two that are equally near the other one is moved by who
 * comes second. What goes on in several is heard by them all. */
static void hear_one(struct planner *n, const struct follow_read *read)
{
    struct hearer h[PLAN_SLOTS];
    unsigned count = find_hearers(n, read, h);
    unsigned nearest = 0;

    for (unsigned i = 1; i < count; i++)
        if (h[i].match.steps < h[nearest].match.steps)
            nearest = i;
    for (unsigned i = 0; i < count; i++)
        if (i == nearest || h[i].match.steps == 0)
            hear_in(n, &h[i], read);
}

/* false: there is more. */
static bool hear(struct planner *n)
{
    struct follow_read read;

    n->compared = 0;
    for (unsigned heard = 0; heard < HEAR_MOST && n->compared < COMPARE_MOST; heard++) {
        if (follow_take(n->plans->server, &read, 1) == 0)
            return true;
        hear_one(n, &read);
    }
    return false;
}

/* ---- now and then ---- */
static void count_rates(struct planner *n)
{
    uint64_t now = n->m.core->now_ms;

    if (now - n->rated_ms >= RATE_MS) {
        n->rate = (n->came_bytes - n->rated_bytes) * 1000 / (now - n->rated_ms);
        n->rated_bytes = n->came_bytes;
        n->rated_ms = now;
    }
    for (unsigned i = 0; i < n->count; i++) {
        struct plan *p = n->plan[i];
        if (now - p->rated_ms < RATE_MS)
            continue;
        p->now.rate_bytes_per_s = (p->read_bytes - p->rated_bytes) * 1000 / (now - p->rated_ms);
        p->rated_bytes = p->read_bytes;
        p->rated_ms = now;
    }
    uint64_t most = atomic_load(&n->plans->capacity) / CACHE_PART;
    n->window = max_u64(min_u64(max_u64(WINDOW_BYTES, n->rate), most),
                        WINDOW_LEAST_PARTS * (uint64_t)CHUNK_BYTES);
    n->far = max_u64(min_u64(WINDOWS_FAR * n->window, most), n->window);
}

static const char *note_of(const struct planner *n, const struct plan *p)
{
    if (origin_is_down(n->plans->server->origin[p->upstream]))
        return "upstream does not answer: nothing is fetched ahead until it does";
    return NULL;
}

static void publish(struct planner *n)
{
    for (unsigned i = 0; i < n->count; i++) {
        struct plan *p = n->plan[i];
        const char *note = note_of(n, p);
        p->now.known = p->known;
        p->now.known_bytes = p->known_bytes;
        if (!plan_is_over(p))
            p->now.place = plan_place(p);
        pthread_mutex_lock(&n->plans->lock);
        p->view = p->now;
        if (note)
            memcpy(p->view.note, note, min_u64(strlen(note) + 1, sizeof p->view.note - 1));
        pthread_mutex_unlock(&n->plans->lock);
    }
}

static void tick(struct planner *n)
{
    uint64_t now = n->m.core->now_ms;

    if (now - n->ticked_ms < TICK_MS && n->window > 0)
        return;
    n->ticked_ms = now;
    judge_states(n);
    plan_fetch_tick(n);
    count_rates(n);
    publish(n);
}

/* ---- steps ---- */
static enum turn planner_RUN(struct planner *self)
{
    if (atomic_load(&self->plans->stopping))
        return GO(planner, self, DRAIN);
    timer_take(&self->timer);
    plan_fetch_reap(self);
    if (!gather(self))
        return GO(planner, self, DRAIN);
    if (!self->follows)              /* without memory for that: the next turn tries again */
        self->follows = follow_begin(self->plans->server);
    bool heard = hear(self);
    tick(self);
    bool looked = plan_fetch_more(self);
    if (!heard || !looked)
        machine_wake(&self->m);
    if (self->timer.at_ms == 0)
        timer_set(&self->timer, &self->m, TICK_MS);
    return WAIT;
}

static enum turn planner_DRAIN(struct planner *self)
{
    if (self->follows)
        follow_end(self->plans->server);
    self->follows = false;
    timer_stop(&self->timer);
    if (!plan_fetch_leave(self, NULL) || self->m.inflight > 0)
        return WAIT;
    return GO(planner, self, END);
}

static enum turn planner_END(struct planner *self)
{
    (void)self;
    return OVER;
}

/* ---- begin and end ---- */
static void planner_over(struct machine *m)
{
    struct planner *n = container_of(m, struct planner, m);

    n->count = 0;
    n->window = 0;
    atomic_store(&n->plans->runs, false);
}

static void deliver(struct core *c, struct message *msg)
{
    struct plans *plans = container_of(msg, struct plans, msg);
    struct planner *n = plans->planner;

    atomic_store(&plans->sent, false); /* a plan that comes from now on is told again */
    if (atomic_load(&plans->runs)) {
        if (n->m.at == AT_planner_RUN)
            machine_wake(&n->m);
        return;
    }
    if (atomic_load(&plans->stopping))
        return;
    atomic_store(&plans->runs, true);
    n->rated_ms = c->now_ms;
    MACHINE_BEGIN(planner, n, c, planner_over);
}

void plans_send(struct plans *plans)
{
    if (atomic_exchange(&plans->sent, true))
        return;
    plans->msg.deliver = deliver;
    core_send(plans->server->core[0], &plans->msg);
}

void plans_core_drain(struct core *c)
{
    struct plans *plans = c->server->plans;

    if (!plans)
        return;
    atomic_store(&plans->stopping, true);
    if (atomic_load(&plans->runs) && plans->planner->m.core == c)
        machine_wake(&plans->planner->m);
}

bool plans_core_idle(const struct core *c)
{
    struct plans *plans = c->server->plans;

    return !plans || !atomic_load(&plans->runs) || plans->planner->m.core != c;
}
