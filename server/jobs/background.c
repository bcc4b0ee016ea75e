/* Which dataset is filled up in the background, and when that ends (prefetch.background).
 *
 * A dataset is what the eviction policy calls a group, or a [[bucket]] section. A look walks over
 * all that is cached and counts, of each, the objects that were read within the hour. For the one
 * with the most the store's list is counted; if enough of it was read, and what is missing fits
 * into room that nobody has, the job brings it in the order of the list (prewarm.c, warm.c).
 *
 * Invariants:
 *  1. One dataset is filled at a time; its job has a number from then on, and not while it counts.
 *  2. Nothing leaves the cache for it, and no quota is met: a place is only taken where one is
 *     free (chunk_asked.spare). What it brought is worth no more than read-ahead.
 *  3. It asks upstream as ASK_BACKGROUND: behind all others that wait there.
 *  4. What was counted is remembered, so that a list is asked for again only when what was short
 *     then (reads, or room) is there by now.
 *
 * Life: background_open() with the table of jobs; all else by steps of its job.
 * Failure: as of a prewarm's; a dataset whose list cannot be had is left alone for an hour, one
 * that an operator cancelled for a day.
 * Limits: what is remembered ends with the process. A record does not tell whether an object was
 * read or only fetched: so behind a restart what was fetched within the hour counts as read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "log.h"
#include "server/jobs/inside.h"

enum {
    OFF_MS = 10 * 1000,              /* while it is off: a reload may turn it on */
    LOOK_MS = 2000,                  /* from look to look, */
    LOOK_SHARE = 20,                 /* and at least so many times as long as one takes */
    PACE_MS = 10, SLICES = 4,        /* of the walk, at a time */
    CHUNKS_LOOKED_AT = 16,           /* of an object, for one that was read */
    MEMOS = 256,
    WARM_PART = 10,                  /* one of so many objects, and more */
    HOUR_S = 3600, HOUR_MS = HOUR_S * 1000, DAY_MS = 24 * HOUR_MS,
    AGAIN_MS = 10 * 1000,
    FULL_AGAIN_MS = 10 * 60 * 1000,  /* a list costs more than a look */
    SPARE_PART = 32,                 /* of the free room, left to others */
};
struct memo {                        /* of a group's tag and a section: their dataset */
    uint16_t tag;
    uint8_t store;
    bool known;
    const struct conf_bucket *rule;
    struct background_group *group;  /* NULL: there is none */
};
struct background {
    struct background_group group[BACKGROUND_GROUPS];
    struct memo memo[MEMOS];         /* of this look */
    const struct config *config;     /* for which memos hold */
    bool looking;
    uint64_t at, began_ms;           /* of the walk */
    struct job_view last;            /* under the lock: what was filled before; id 0: nothing */
};

/* ---- decisions (pure) ---- */
bool background_is_warm(bool always, uint64_t read, uint64_t listed)
{
    return read > 0 && (always || read > listed / WARM_PART);
}

bool background_fits(uint64_t left_bytes, uint64_t spare_bytes)
{
    return left_bytes <= spare_bytes - spare_bytes / SPARE_PART;
}

bool background_may_begin(const struct background_group *g, uint64_t now_ms, uint64_t spare_bytes)
{
    return g->prefix[0] && now_ms >= g->again_ms &&
        background_is_warm(g->always, g->read, g->listed) && spare_bytes > 0 &&
        background_fits(g->left_bytes, spare_bytes);
}

void background_settle(struct background_group *g, enum background_end how, uint64_t now_ms)
{
    g->again_ms = now_ms + (how == BACKGROUND_ALL    ? HOUR_MS
                            : how == BACKGROUND_FULL ? FULL_AGAIN_MS
                                                     : AGAIN_MS);
    if (how == BACKGROUND_ALL || how == BACKGROUND_OFF)
        g->listed = g->left_bytes = 0;
}

bool object_was_read(const struct object *o, const struct cache_held *h, uint64_t now_s)
{
    return h->read && object_read_s(o) + HOUR_S >= now_s;
}

/* ---- names ---- */
static struct cache *cache_of(const struct job *j)
{
    return j->jobs->server->cache;
}

static const struct config *config_of(const struct job *j)
{
    return j->m.core->settings->config;
}

static const struct conf_bucket *rule_of(const struct job *j, struct span key)
{
    struct span rest = span_of(j->view.spec.prefix), bucket = span_cut(&rest, '/');

    return conf_bucket(config_of(j), bucket, key.at ? key : rest);
}

bool background_is_on(const struct job *j)
{
    return rule_of(j, (struct span){0})->background != CONF_BACKGROUND_OFF;
}

bool background_wants(const struct job *j, struct span key)
{
    return rule_of(j, key)->background != CONF_BACKGROUND_OFF;
}

uint64_t background_room(const struct job *j)
{
    const struct okey k = {.store = j->scope.store, .bucket = j->scope.bucket,
        .key = j->scope.prefix};

    return cache_spare(cache_of(j), &k);
}

/* What clients call the object's bucket; "": nobody can name it. */
static struct span client_bucket(const struct job *j, const struct object *o)
{
    const struct config *config = config_of(j);
    struct conf_route route;

    for (unsigned i = 0; i < config->upstream_count; i++) {
        const struct conf_upstream *u = &config->upstream[i];
        if (j->jobs->server->store_of[i] != o->store)
            continue;
        if (u->bucket[0] && span_is(object_bucket(o), u->bucket))
            return span_of(u->match.item[0]);
        if (!u->bucket[0] && conf_route(config, object_bucket(o), &route) && route.upstream == i)
            return object_bucket(o);
    }
    return span_of("");
}

/* ---- the look ---- */
static bool is_wanted(const struct config *config)
{
    bool some = false;

    for (unsigned i = 0; i < config->bucket_count; i++)
        some = some || config->buckets[i].background != CONF_BACKGROUND_OFF;
    return some;
}

/* The place of a dataset; NULL: others that are read have them all. */
static struct background_group *find(struct background *b, const char *prefix)
{
    struct background_group *spare = NULL;

    for (unsigned i = 0; i < BACKGROUND_GROUPS; i++) {
        struct background_group *g = &b->group[i];
        if (strcmp(g->prefix, prefix) == 0)
            return g;
        if (!g->prefix[0] || g->read == 0)
            spare = !spare || g->again_ms < spare->again_ms ? g : spare;
    }
    if (!spare)
        return NULL;
    *spare = (struct background_group){0};
    snprintf(spare->prefix, sizeof spare->prefix, "%s", prefix);
    return spare;
}

/* Of group and section the one that says more. */
static struct background_group *find_for(struct job *j, const struct object *o, uint16_t tag,
                                         const struct conf_bucket *rule)
{
    char name[POLICY_NAME_BYTES], prefix[sizeof ((struct background_group *)0)->prefix];
    size_t len = cache_group_name(cache_of(j), tag, name);
    struct span group = span_make(name, len == sizeof name ? 0 : len), client = client_bucket(j, o);
    bool grouped = group.len > 0 && span_eq(span_cut(&group, '/'), object_bucket(o));
    size_t named = grouped ? client.len + 1 + group.len : 0;

    if (client.len == 0 || (named == 0 && rule->match_len == 0))
        return NULL;
    if (rule->match_len >= named && rule->match_len < sizeof prefix)
        snprintf(prefix, sizeof prefix, "%s", rule->match);
    else
        snprintf(prefix, sizeof prefix, "%.*s/%.*s", (int)client.len, client.at, (int)group.len,
                 group.at);
    struct background_group *g = find(j->jobs->background, prefix);
    if (g)
        g->always = rule->background == CONF_BACKGROUND_ALWAYS;
    return g;
}

static struct background_group *group_of(struct job *j, struct object *o)
{
    uint16_t tag = cache_group(cache_of(j), o);
    const struct conf_bucket *rule = conf_bucket(config_of(j), client_bucket(j, o), object_key(o));
    struct memo *m = &j->jobs->background->memo[(tag + (uintptr_t)rule / sizeof *rule) % MEMOS];

    if (rule->background == CONF_BACKGROUND_OFF)
        return NULL;
    if (!m->known || m->tag != tag || m->store != o->store || m->rule != rule)
        *m = (struct memo){tag, o->store, true, rule, find_for(j, o, tag, rule)};
    return m->group;
}

static void look_at(struct job *j, struct object *o, uint64_t now_s)
{
    struct cache_held held = {.read = true};

    if (object_version(o).len > 0 || !object_was_read(o, &held, now_s))
        return;
    held.read = false;
    for (unsigned i = 0; i < CHUNKS_LOOKED_AT && !held.read; i++)
        if (cache_measure(cache_of(j), o, &held, 1))
            break;
    if (!held.read)
        return;
    struct background_group *g = group_of(j, o);
    if (g)
        g->read++;
}

static void begin_look(struct job *j)
{
    struct background *b = j->jobs->background;

    for (unsigned i = 0; i < BACKGROUND_GROUPS; i++)
        b->group[i].read = 0;
    memset(b->memo, 0, sizeof b->memo);
    b->config = config_of(j);
    b->at = 0;
    b->began_ms = j->m.core->now_ms;
    b->looking = true;
}

/* true: it has met everything. */
static bool go_on(struct job *j)
{
    struct background *b = j->jobs->background;
    struct object *object[CACHE_WALK_MAX];
    const struct cache_wanted wanted = {.read_since_s = clock_wall_s() - HOUR_S};

    for (unsigned i = 0; i < SLICES && b->at != CACHE_WALK_OVER; i++) {
        unsigned count = cache_walk(cache_of(j), &b->at, object, &wanted);
        for (unsigned n = 0; n < count; n++) {
            look_at(j, object[n], clock_wall_s());
            object_leave(cache_of(j), object[n]);
        }
    }
    return b->at == CACHE_WALK_OVER;
}

static uint64_t room_for(const struct job *j, const struct background_group *g)
{
    struct job_spec spec;
    struct job_scope scope;

    snprintf(spec.prefix, sizeof spec.prefix, "%s", g->prefix);
    if (scope_of(j->jobs->server, config_of(j), &spec, &scope) != OK)
        return 0;
    const struct okey k = {.store = scope.store, .bucket = scope.bucket, .key = scope.prefix};
    return cache_spare(cache_of(j), &k);
}

/* Of those that may be filled, the one of which the most was read. */
static struct background_group *choose(const struct job *j)
{
    struct background *b = j->jobs->background;
    struct background_group *best = NULL;

    for (unsigned i = 0; i < BACKGROUND_GROUPS; i++) {
        struct background_group *g = &b->group[i];
        if (g->read > (best ? best->read : 0) &&
            background_may_begin(g, j->m.core->now_ms, room_for(j, g)))
            best = g;
    }
    return best;
}

static void begin_count(struct job *j, const struct background_group *g)
{
    jobs_lock(j->jobs);
    if (j->view.id)
        j->jobs->background->last = j->view;
    j->view = (struct job_view){.spec.kind = KIND_BACKGROUND, .state = JOB_RUNNING,
        .created_ms = clock_wall_ms()};
    snprintf(j->view.spec.prefix, sizeof j->view.spec.prefix, "%s", g->prefix);
    jobs_unlock(j->jobs);
    j->place = (struct job_place){0};
    j->background_end = BACKGROUND_OFF;
}

bool background_look(struct job *j)
{
    struct background *b = j->jobs->background;

    if (!timer_take(&j->timer))
        return false;
    if (b->looking && b->config != config_of(j))
        b->looking = false;          /* rules have gone */
    if (!is_wanted(config_of(j))) {
        timer_set(&j->timer, &j->m, OFF_MS);
        return false;
    }
    if (!b->looking)
        begin_look(j);
    if (!go_on(j)) {
        timer_set(&j->timer, &j->m, PACE_MS);
        return false;
    }
    b->looking = false;
    const struct background_group *g = choose(j);
    if (g)
        begin_count(j, g);
    else
        timer_set(&j->timer, &j->m,
                  max_u64(LOOK_MS, (j->m.core->now_ms - b->began_ms) * LOOK_SHARE));
    return g != NULL;
}

const struct job_view *background_shown(const struct jobs *jobs)
{
    const struct job_view *now = &jobs->job[BACKGROUND_SLOT]->view, *last = &jobs->background->last;

    return now->id ? now : last->id ? last : NULL;
}

/* ---- the end of a count, and of a job ---- */
enum background_end background_judge(const struct job *j)
{
    const struct job_view *v = &j->view;
    bool always = rule_of(j, (struct span){0})->background == CONF_BACKGROUND_ALWAYS;

    if (!background_is_on(j))
        return BACKGROUND_OFF;
    if (v->bytes_here == v->bytes_wanted)
        return BACKGROUND_ALL;
    if (!background_is_warm(always, j->warm->read, v->objects_wanted))
        return BACKGROUND_COLD;
    return background_fits(v->bytes_needed, v->bytes_free) ? BACKGROUND_ALL : BACKGROUND_NO_ROOM;
}

void background_ends(struct job *j, enum background_end how)
{
    const struct job_view *v = &j->view;
    char note[sizeof v->note] = "";

    if (how == BACKGROUND_COLD)
        snprintf(note, sizeof note, "%llu of %llu objects were read within an hour: too few",
                 (unsigned long long)j->warm->read, (unsigned long long)v->objects_wanted);
    else if (how == BACKGROUND_NO_ROOM || how == BACKGROUND_FULL)
        snprintf(note, sizeof note, "no room is free for the rest: %llu bytes are left",
                 (unsigned long long)job_bytes_left(v));
    else if (how == BACKGROUND_OFF)
        snprintf(note, sizeof note, "prefetch.background is off for it now");
    job_note(j, note);
    j->background_end = how;
}

void background_over(struct job *j)
{
    const struct job_view *v = &j->view;
    uint64_t now_ms = j->m.core->now_ms;

    if (!job_state_is_over(v->state) || !v->spec.prefix[0])
        return;
    struct background_group *g = find(j->jobs->background, v->spec.prefix);
    if (!g)
        return;
    g->listed = v->objects_wanted;
    g->left_bytes = job_bytes_left(v);
    /* Judged by what slots take, and by the list: what a look counts must not begin it again. */
    if (j->background_end == BACKGROUND_NO_ROOM)
        g->left_bytes = max_u64(g->left_bytes, v->bytes_needed);
    if (j->background_end == BACKGROUND_COLD)
        g->listed = max_u64(g->listed, g->read * WARM_PART);
    background_settle(g, j->background_end, now_ms);
    if (v->state == JOB_FAILED)
        g->again_ms = now_ms + HOUR_MS;
    if (v->state == JOB_CANCELLED)
        g->again_ms = now_ms + DAY_MS;
}

enum err background_open(struct jobs *jobs)
{
    const struct job_view *v = &jobs->job[BACKGROUND_SLOT]->view;

    jobs->background = mem_take(sizeof *jobs->background);
    if (!jobs->background)
        return ERR_MEMORY;
    if (v->state == JOB_CANCELLED && v->spec.prefix[0])
        find(jobs->background, v->spec.prefix)->again_ms = clock_ms() + DAY_MS;
    return OK;
}

void background_close(struct jobs *jobs)
{
    mem_give(jobs->background);
    jobs->background = NULL;
}
