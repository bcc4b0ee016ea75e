/* Credentials that end: asks for the next ones in time, on the thread "headpond-creds".
 *
 * Invariants:
 *  1. A provider is one profile's plan and what it gave last. What works stays in use until it
 *     expires, whatever a refresh meets.
 *  2. The next ones are asked for at least 5 minutes before the end (credentials that live less
 *     than 10 minutes: at half their life), earlier by a random part, so that a cluster does not
 *     come all at once. Failures are tried again after 1 s, then twice as long, at most a minute.
 *  3. Nothing blocks but this thread; main waits for it only in refresher_fill(), 10 s at most.
 *  4. New credentials reach requests as settings that main publishes; the thread only wakes it.
 *  5. A plan is replaced by main, between two steps of the thread: what was asked by another plan
 *     is thrown away.
 *
 * Life: made by origin_open(), ended by origin_close(); the thread begins when there is somebody to
 * ask. An end does not wait for who is silent: the thread is left alone then.
 * Failure: an event with a sentence, a count, and words in status. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "creds.h"
#include "log.h"
#include "server/origin/inside.h"
#include "xml.h"

enum {
    FILL_S = 10,                     /* the longest that a start or a reload waits */
    LAST_ANSWER_S = 1,
    LOOK_S = 30,                     /* the wall clock may jump, the machine may sleep */
    LEAD_MS = 5 * 60 * 1000,
    AGAIN_MS = 1000,
    AGAIN_MS_MAX = 60 * 1000,
    NOBODY_TRIES = 6,                /* while a machine boots, its metadata may come late */
    NOBODY_MS = 5 * 60 * 1000,
    WHY_BYTES = 256,
};
_Static_assert(sizeof(((struct origin_status *)0)->credentials) == CREDS_SOURCE_BYTES, "one size");

struct answer {
    enum err err;
    struct creds creds;
    char why[WHY_BYTES];
};
struct provider {
    char name[sizeof(((struct profile *)0)->name)];
    struct creds_plan *plan;         /* held; NULL: an empty place */
    struct creds creds;
    bool has;                        /* creds are some */
    bool nobody;                     /* last resort: there is no instance metadata */
    bool news;                       /* not published yet */
    char error[WHY_BYTES];           /* of the last try, or "" */
    uint64_t failed_s;
    unsigned failures;
    uint64_t next_ms, next_wall_s;   /* whichever comes first */
    struct creds_plan *wanted;       /* held: main waits for its answer */
    bool answered;
    struct answer answer;            /* to wanted */
};
struct refresher {
    struct server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool threaded, stop;
    bool over, left;                 /* the thread's; its owner's: who comes last frees */
    struct provider place[PROFILES_MAX];
};

/* ---- when ---- */

uint64_t refresh_after_ms(uint64_t left_ms, uint64_t dice)
{
    uint64_t near = min_u64(LEAD_MS, left_ms / 2), far = min_u64(2 * LEAD_MS, left_ms / 4 * 3);
    return left_ms - near - (far > near ? dice % (far - near + 1) : 0);
}

uint64_t refresh_again_ms(unsigned failures, uint64_t dice)
{
    unsigned doubled = failures > 0 ? failures - 1 : 0;
    uint64_t most = doubled > 6 ? AGAIN_MS_MAX : min_u64((uint64_t)AGAIN_MS << doubled,
                                                         AGAIN_MS_MAX);
    return most / 2 + dice % (most / 2 + 1);
}

static uint64_t left_ms(const struct creds *c)
{
    uint64_t now_ms = clock_wall_ms(), end_ms = c->expire_s * 1000;
    return end_ms > now_ms ? end_ms - now_ms : 0;
}

static void plan_next(struct provider *p)
{
    uint64_t wait_ms;
    p->next_wall_s = UINT64_MAX;
    if (p->failures == 0 && p->creds.expire_s == 0) {
        p->next_ms = UINT64_MAX;
        return;
    }
    if (p->failures == 0) {
        wait_ms = refresh_after_ms(left_ms(&p->creds), random_u64());
        p->next_wall_s = clock_wall_s() + wait_ms / 1000 + 1;
    } else {
        wait_ms = refresh_again_ms(p->failures, random_u64());
        if (p->nobody && p->failures > NOBODY_TRIES)
            wait_ms = NOBODY_MS;
        if (p->has && left_ms(&p->creds) > 0)
            wait_ms = min_u64(wait_ms, max_u64(left_ms(&p->creds) / 4, AGAIN_MS / 2));
    }
    p->next_ms = clock_ms() + wait_ms;
}

/* ---- what came; all under the lock ---- */

static void count(enum label_refresh result)
{
    static _Thread_local struct metric_set *metrics;
    if (!metrics)
        metrics = metric_set_make();
    if (metrics)
        metric_add(metrics, METRIC_CREDENTIALS_REFRESHES_TOTAL, result, 1);
}

static void show_expiry(const struct refresher *r)
{
    uint64_t first = 0;
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        const struct provider *p = &r->place[i];
        if (p->plan && p->has && p->creds.expire_s && (!first || p->creds.expire_s < first))
            first = p->creds.expire_s;
    }
    metric_gauge_set(METRIC_CREDENTIALS_EXPIRE_TIME_SECONDS, 0, (int64_t)first);
}

static const char *shown_name(const struct provider *p)
{
    return p->name[0] ? p->name : "-";
}

static void take_over(struct provider *p, const struct answer *a)
{
    p->creds = a->creds;
    p->has = p->news = true;
    p->nobody = false;
    p->failures = 0;
    p->failed_s = 0;
    p->error[0] = '\0';
    count(REFRESH_RENEWED);
    log_event(EVENT_CREDENTIALS_RENEWED, "profile=%s source=%s access_key=%s expire_in_s=%llu",
              log_value(span_of(shown_name(p))), log_value(span_of(p->creds.source)),
              log_value(span_of(p->creds.access_key)),
              (unsigned long long)(left_ms(&p->creds) / 1000));
}

static void note_failure(struct provider *p, const struct answer *a)
{
    const char *why = a->why[0] ? a->why : err_text(a->err);
    p->failures++;
    if (p->failed_s == 0)
        p->failed_s = clock_wall_s();
    p->nobody = a->err == ERR_NOT_FOUND && creds_plan_is_last_resort(p->plan) && !p->has;
    snprintf(p->error, sizeof(p->error), "%s", why);
    if (p->nobody)
        return;                      /* nothing is configured, so nothing is missing */
    count(REFRESH_FAILED);
    log_event(EVENT_CREDENTIALS_FAILED, "profile=%s tries=%u usable_for_s=%llu why=%s",
              log_value(span_of(shown_name(p))), p->failures,
              (unsigned long long)(p->has ? left_ms(&p->creds) / 1000 : 0),
              log_value(span_of(why)));
}

static void settle(struct refresher *r, struct provider *p, const struct answer *a)
{
    if (a->err == OK)
        take_over(p, a);
    else
        note_failure(p, a);
    plan_next(p);
    show_expiry(r);
}

/* ---- the thread ---- */

static bool is_due(const struct provider *p)
{
    if (p->wanted)
        return !p->answered;
    return p->plan && (clock_ms() >= p->next_ms || clock_wall_s() >= p->next_wall_s);
}

static struct provider *find_due(struct refresher *r)
{
    struct provider *due = NULL;
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        struct provider *p = &r->place[i];
        if (is_due(p) && (!due || (p->wanted && !due->wanted)))
            due = p;
    }
    return due;
}

static struct timespec in_ms(uint64_t ms)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + ms % 1000 * 1000000;
    at.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

static void wait_for_due(struct refresher *r)
{
    uint64_t wait_ms = LOOK_S * 1000, now_ms = clock_ms();
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        const struct provider *p = &r->place[i];
        if (p->plan && !p->wanted)
            wait_ms = min_u64(wait_ms, p->next_ms - min_u64(p->next_ms, now_ms));
    }
    struct timespec until = in_ms(wait_ms + 1);
    pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

static void ask(const struct creds_plan *plan, struct answer *out)
{
    struct text why;
    text_init(&why, out->why, sizeof(out->why));
    out->err = issue_creds(plan, &out->creds, &why);
}

/* Under the lock, but for the asking. */
static void serve(struct refresher *r, struct provider *p, struct answer *a)
{
    struct creds_plan *plan = creds_plan_hold(p->wanted ? p->wanted : p->plan);
    *a = (struct answer){.err = OK};
    pthread_mutex_unlock(&r->lock);
    ask(plan, a);
    pthread_mutex_lock(&r->lock);
    if (p->wanted == plan) {
        p->answer = *a;
        p->answered = true;
    } else if (p->plan == plan && !r->stop) {
        settle(r, p, a);
        if (a->err == OK && r->server->renewed)
            r->server->renewed(r->server);
    }
    creds_wipe(&a->creds);
    creds_plan_drop(plan);
    pthread_cond_broadcast(&r->changed);
}

static void free_refresher(struct refresher *r)
{
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        creds_plan_drop(r->place[i].plan);
        creds_plan_drop(r->place[i].wanted);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    mem_give_secret(r, sizeof(*r));
}

static void *refresh_main(void *arg)
{
    struct refresher *r = arg;
    struct answer *a = mem_take(sizeof(*a));
    bool good = a && sign_setup_thread() == OK && xml_setup_thread() == OK;

    pthread_setname_np(pthread_self(), "headpond-creds");
    pthread_mutex_lock(&r->lock);
    while (good && !r->stop) {
        struct provider *due = find_due(r);
        if (due)
            serve(r, due, a);
        else
            wait_for_due(r);
    }
    r->over = true;
    pthread_cond_broadcast(&r->changed);
    bool mine = r->left;
    pthread_mutex_unlock(&r->lock);
    sign_end_thread();
    mem_give(a);
    if (mine)
        free_refresher(r);
    return NULL;
}

static enum err start_thread(struct refresher *r)
{
    sigset_t all, old;
    if (r->threaded)
        return OK;
    sigfillset(&all);                /* signals are main's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&r->thread, NULL, refresh_main, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    r->threaded = error == 0;
    return error ? ERR_SYSTEM : OK;
}

/* ---- main: filling settings ---- */

static struct provider *find_place(struct refresher *r, const char *name, bool take)
{
    struct provider *empty = NULL;
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        struct provider *p = &r->place[i];
        bool used = p->plan || p->wanted;
        if (used && strcmp(p->name, name) == 0)
            return p;
        if (!used && !empty)
            empty = p;
    }
    if (!take || !empty)
        return NULL;
    *empty = (struct provider){.has = false};
    snprintf(empty->name, sizeof(empty->name), "%s", name);
    return empty;
}

static bool is_asked_for(const struct profile *p)
{
    return p->plan && !creds_plan_is_static(p->plan);
}

static enum err want(struct refresher *r, const struct settings *t, unsigned *out)
{
    for (unsigned i = 0; i < t->profile_count; i++) {
        if (!is_asked_for(&t->profile[i]))
            continue;
        struct provider *p = find_place(r, t->profile[i].name, true);
        if (!p)
            return ERR_BUSY;
        p->wanted = creds_plan_hold(t->profile[i].plan);
        p->answered = false;
        ++*out;
    }
    return OK;
}

static void want_no_more(struct refresher *r)
{
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        struct provider *p = &r->place[i];
        creds_plan_drop(p->wanted);
        p->wanted = NULL;
        creds_wipe(&p->answer.creds);
    }
}

static bool all_answered(const struct refresher *r)
{
    for (unsigned i = 0; i < PROFILES_MAX; i++)
        if (r->place[i].wanted && !r->place[i].answered)
            return false;
    return true;
}

static void wait_for_answers(struct refresher *r)
{
    struct timespec until = in_ms(FILL_S * 1000);
    pthread_cond_broadcast(&r->changed);
    while (!r->over && !all_answered(r) &&
           pthread_cond_timedwait(&r->changed, &r->lock, &until) == 0)
        ;
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        struct provider *p = &r->place[i];
        if (!p->wanted || p->answered)
            continue;
        p->answer = (struct answer){.err = ERR_TIMEOUT};
        snprintf(p->answer.why, sizeof(p->answer.why), "no answer within %d s from %s", FILL_S,
                 creds_plan_source(p->wanted));
    }
}

/* A reload that asks in a new way must get an answer; the old way may fail as it did before. */
static enum err judge(const struct refresher *r, struct text *why)
{
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        const struct provider *p = &r->place[i];
        if (!p->wanted || p->answer.err == OK)
            continue;
        bool nobody = p->answer.err == ERR_NOT_FOUND && creds_plan_is_last_resort(p->wanted);
        if (nobody || (p->plan && creds_plan_same(p->plan, p->wanted)))
            continue;
        text_adds(why, p->answer.why[0] ? p->answer.why : err_text(p->answer.err));
        return ERR_CREDENTIALS;
    }
    return OK;
}

static void commit(struct refresher *r)
{
    for (unsigned i = 0; i < PROFILES_MAX; i++) {
        struct provider *p = &r->place[i];
        struct creds_plan *before = p->plan;
        if (!p->wanted && !before)
            continue;
        if (!p->wanted || !before || !creds_plan_same(before, p->wanted)) {
            creds_wipe(&p->creds);
            p->has = p->nobody = false;
            p->failures = 0;
            p->failed_s = 0;
        }
        p->plan = p->wanted;
        p->wanted = NULL;
        creds_plan_drop(before);
        if (p->plan)
            settle(r, p, &p->answer);
        p->news = false;
        creds_wipe(&p->answer.creds);
    }
    show_expiry(r);
}

static enum err fill_profile(struct refresher *r, struct settings *t, unsigned i)
{
    char why[sizeof(((struct profile *)0)->why)];
    const struct provider *p = find_place(r, t->profile[i].name, false);
    must(p);
    if (p->has)
        return settings_set_creds(t, i, &p->creds, "");
    if (p->nobody) {
        struct text sentence;
        text_init(&sentence, why, sizeof(why));
        text_adds(&sentence, "neither environment nor profile name any; ");
        text_adds(&sentence, p->error);
        return settings_set_creds(t, i, NULL, why);
    }
    struct creds none = {.renewed = true};
    snprintf(none.source, sizeof(none.source), "%s", creds_plan_source(p->plan));
    return settings_set_creds(t, i, &none, p->error);
}

static enum err fill(struct refresher *r, struct settings *t)
{
    enum err e = OK;
    for (unsigned i = 0; i < t->profile_count && e == OK; i++)
        if (is_asked_for(&t->profile[i]))
            e = fill_profile(r, t, i);
    return e;
}

enum err refresher_fill(struct refresher *r, struct settings *t, bool first, struct text *why)
{
    unsigned wanted = 0;
    pthread_mutex_lock(&r->lock);
    enum err e = want(r, t, &wanted);
    if (e == OK && wanted > 0)
        e = start_thread(r);
    if (e == OK && wanted > 0) {
        wait_for_answers(r);
        e = first ? OK : judge(r, why);
    }
    if (e == OK) {
        commit(r);
        e = fill(r, t);
    }
    want_no_more(r);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return e;
}

static bool has_news(const struct refresher *r)
{
    for (unsigned i = 0; i < PROFILES_MAX; i++)
        if (r->place[i].plan && r->place[i].news)
            return true;
    return false;
}

bool refresher_has_news(struct refresher *r)
{
    pthread_mutex_lock(&r->lock);
    bool news = has_news(r);
    pthread_mutex_unlock(&r->lock);
    return news;
}

struct settings *refresher_take(struct refresher *r)
{
    struct settings *t = NULL;
    pthread_mutex_lock(&r->lock);
    if (has_news(r) && settings_again(r->server, &t) == OK && fill(r, t) != OK) {
        settings_drop(t);            /* no memory: they come at the next look */
        t = NULL;
    }
    for (unsigned i = 0; i < PROFILES_MAX && t; i++)
        r->place[i].news = false;
    pthread_mutex_unlock(&r->lock);
    return t;
}

void refresher_status(struct refresher *r, const char *profile, struct refresher_status *out)
{
    *out = (struct refresher_status){.failed_s = 0};
    pthread_mutex_lock(&r->lock);
    const struct provider *p = find_place(r, profile, false);
    if (p && p->plan && !p->nobody) {
        memcpy(out->error, p->error, sizeof(out->error));
        out->failed_s = p->failed_s;
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- life ---- */

enum err refresher_open(struct server *s, struct refresher **out)
{
    struct refresher *r = mem_take(sizeof(*r));
    pthread_condattr_t monotonic;
    if (!r)
        return ERR_MEMORY;
    r->server = s;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = r;
    return OK;
}

/* False: it still asks. Then it frees `r`, if the process lives to see that. */
static bool end_thread(struct refresher *r)
{
    struct timespec until = in_ms(LAST_ANSWER_S * 1000);
    pthread_t thread = r->thread;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->changed);
    while (!r->over && pthread_cond_timedwait(&r->changed, &r->lock, &until) == 0)
        ;
    bool over = r->over;
    r->left = !over;
    pthread_mutex_unlock(&r->lock);
    if (over)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    return over;
}

void refresher_close(struct refresher *r)
{
    if (r && (!r->threaded || end_thread(r)))
        free_refresher(r);
}
