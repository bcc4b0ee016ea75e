/* The load of a lane, and the comparison after its server started again.
 *
 * Invariants:
 *  1. While the server is being hurt an answer may break or be refused; it is never wrong.
 *  2. An object counts as read from the first whole reading of its current version on.
 *
 * Life: lane_load() before the kill, lane_unload() behind it, then lane_compare().
 * Failure: wrong answers are told and counted in the lane. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>

#include "tests/crash/lane.h"

enum { RETRIES = 5, RETRY_MS = 100, SAMPLE = 12, BUMP_ONE_IN = 300, QUIET_MS = 5000,
       SLOW_MS = 3000 };

static void complain(struct lane *l, const struct reader *r)
{
    if (atomic_fetch_add(&l->wrongs, 1) < 3)
        tell("WRONG lane %u: %s", l->server.number, r->why);
}

static void note_read(struct thing *t, const struct ask *a, const struct got *got)
{
    if (a->head || a->ranged || strcmp(got->xcache, "bypass") == 0)
        return;
    pthread_mutex_lock(&t->lock);
    if (got->version == t->version && t->acked_ms == 0)
        t->acked_ms = clock_ms();
    pthread_mutex_unlock(&t->lock);
}

/* Read a while ago and not fetched again since: evicted and fetched anew, it is young again. */
static bool is_old(struct lane *l, struct thing *t, uint64_t now_ms)
{
    uint64_t bytes = origin_body_bytes(l->bucket, t->key);

    pthread_mutex_lock(&t->lock);
    if (t->acked_ms > 0 && t->acked_bytes != bytes) {
        t->acked_ms = now_ms;
        t->acked_bytes = bytes;
    }
    bool old = t->acked_ms > 0 && t->acked_ms + COMMITTED_MS < now_ms && t->size > 0;
    pthread_mutex_unlock(&t->lock);
    return old;
}

/* ---- load ---- */
static void choose(struct lane *l, uint64_t *state, struct ask *a)
{
    unsigned n = (unsigned)dice(state, dice(state, 3) ? l->count / 3 : l->count);
    struct thing *t = &l->thing[n];

    *a = (struct ask){.thing = t, .bucket = l->bucket, .ttl_ms = l->server.ttl_ms};
    if (atomic_load(&l->gentle) && l->due[n] == 0) {
        a->head = true;
        return;
    }
    a->head = dice(state, 10) == 0;
    a->ranged = !a->head && t->size > 1 && dice(state, 3) == 0;
    if (a->ranged) {
        a->from = dice(state, t->size);
        a->to = min_u64(a->from + dice(state, dice(state, 2) ? 200 * KIB : t->size), t->size - 1);
    }
}

static void *client_main(void *at)
{
    struct client *c = at;
    struct lane *l = c->lane;
    struct reader r;
    struct got got;
    struct ask a;

    if (!reader_make(&r, l->server.port))
        return NULL;
    while (!atomic_load(&l->over)) {
        choose(l, &c->dice, &a);
        if (dice(&c->dice, BUMP_ONE_IN) == 0 && !atomic_load(&l->gentle))
            thing_bump(a.thing, l->bucket);
        enum outcome out = reader_ask(&r, &a, &got);
        if (clock_ms() > r.asked_ms + SLOW_MS)
            tell("# lane %u: %s %s %llu-%llu took %llu ms: outcome %d, status %u", l->server.number,
                 a.head ? "HEAD" : "GET", a.thing->key, (unsigned long long)a.from,
                 (unsigned long long)a.to, (unsigned long long)(clock_ms() - r.asked_ms), out,
                 got.status);
        if (out == OUT_WHOLE)
            note_read(a.thing, &a, &got);
        else if (out == OUT_WRONG || out == OUT_LATE)
            complain(l, &r);
        else
            poll(NULL, 0, 2);
    }
    reader_end(&r);
    return NULL;
}

static void *scraper_main(void *at)
{
    static const char *const targets[] = {"/metrics", "/v1/status", "/readyz", "/livez"};
    struct lane *l = at;

    for (unsigned i = 0; !atomic_load(&l->over); i++) {
        mem_give(daemon_page(&l->server, targets[i % ARRAY_COUNT(targets)]));
        poll(NULL, 0, 20);
    }
    return NULL;
}

void lane_load(struct lane *l)
{
    atomic_store(&l->over, false);
    atomic_store(&l->gentle, false);
    for (unsigned i = 0; i < LANE_CLIENTS; i++) {
        struct client *c = &l->client[i];
        c->lane = l;
        c->dice = dice_of(dice(&l->dice, UINT64_MAX), i);
        must(pthread_create(&c->thread, NULL, client_main, c) == 0);
    }
    must(pthread_create(&l->scraper, NULL, scraper_main, l) == 0);
}

void lane_unload(struct lane *l)
{
    atomic_store(&l->over, true);
    for (unsigned i = 0; i < LANE_CLIENTS; i++)
        pthread_join(l->client[i].thread, NULL);
    pthread_join(l->scraper, NULL);
}

/* ---- what must be there ---- */
static bool becomes_quiet(struct lane *l)
{
    uint64_t until = clock_ms() + QUIET_MS;

    while (daemon_metric(&l->server, "headpond_fetches_in_flight", "") != 0 ||
           daemon_metric(&l->server, "headpond_requests_in_flight", "") > LANE_CLIENTS) {
        if (clock_ms() > until)
            return false;
        poll(NULL, 0, 5);
    }
    return true;
}

static double evicted(struct lane *l)
{
    return daemon_metric(&l->server, "headpond_cache_evicted_bytes_total", "cause=\"space\"");
}

void lane_mark_due(struct lane *l)
{
    struct reader r;
    struct got got;
    uint64_t now_ms = clock_ms();

    memset(l->due, 0, sizeof l->due);
    l->evicted = evicted(l);
    if (l->flows) {
        atomic_store(&l->gentle, dice(&l->dice, 2));
        if (!atomic_load(&l->gentle) || !becomes_quiet(l))
            return;
    }
    if (!reader_make(&r, l->server.port))
        return;
    for (unsigned i = 0; i < l->count; i++) {
        struct thing *t = &l->thing[i];
        struct ask a = {.thing = t, .bucket = l->bucket, .head = true};
        bool whole =
            is_old(l, t, now_ms) && reader_ask(&r, &a, &got) == OUT_WHOLE && got.cached == t->size;
        l->due[i] = whole ? got.version : 0;
    }
    reader_end(&r);
}

void lane_unmark_evicted(struct lane *l)
{
    if (evicted(l) != l->evicted)
        memset(l->due, 0, sizeof l->due);
}

/* A whole reading; the server may need a moment for the first ones. */
static bool read_whole(struct lane *l, struct reader *r, struct thing *t)
{
    struct ask a = {.thing = t, .bucket = l->bucket, .ttl_ms = l->server.ttl_ms};
    struct got got;
    enum outcome out = OUT_ERROR;

    for (unsigned i = 0; i < RETRIES && out != OUT_WHOLE; i++) {
        out = reader_ask(r, &a, &got);
        if (out == OUT_WRONG || out == OUT_LATE)
            complain(l, r);
        if (out == OUT_WRONG || out == OUT_LATE)
            return false;
        if (out != OUT_WHOLE)
            poll(NULL, 0, RETRY_MS);
    }
    if (out == OUT_WHOLE)
        note_read(t, &a, &got);
    else
        tell("lane %u: %s: outcome %d, status %u", l->server.number, t->key, out, got.status);
    return out == OUT_WHOLE;
}

bool lane_compare(struct lane *l, unsigned round, _Atomic uint64_t *due, _Atomic uint64_t *held)
{
    struct reader r;
    unsigned lost = 0, all = 0;
    bool good = reader_make(&r, l->server.port);

    for (unsigned i = 0; good && i < l->count; i++) {
        struct thing *t = &l->thing[i];
        uint64_t before = origin_body_bytes(l->bucket, t->key);
        if (l->due[i] != t->version)
            continue;                /* not due, or replaced since */
        good = read_whole(l, &r, t);
        bool hit = origin_body_bytes(l->bucket, t->key) == before;
        all++;
        lost += !hit;
        if (!hit)
            t->acked_ms = clock_ms();
    }
    /* Only now: what is fetched may push others out. */
    for (unsigned i = 0; good && i < l->count; i++)
        if (l->due[i] == 0 && dice(&l->dice, l->count) < SAMPLE)
            good = read_whole(l, &r, &l->thing[i]);
    if (lost > 0)
        tell("# round %u lane %u: %u of %u committed objects are lost", round, l->server.number,
             lost, all);
    atomic_fetch_add(due, all);
    atomic_fetch_add(held, all - lost);
    reader_end(&r);
    return good;
}

void lanes_run(struct lane *lanes, unsigned count, void *(*run)(void *))
{
    for (unsigned i = 0; i < count; i++)
        must(pthread_create(&lanes[i].thread, NULL, run, &lanes[i]) == 0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(lanes[i].thread, NULL);
}
