/* A prewarm: everything below a prefix is brought before anybody asks for it.
 *
 * Passes over upstream's list. The first only counts: what is wanted, what of it is here,
 * whether the rest fits. The second fetches. The third lists again and looks whether all of it is
 * here at the ETags of that list; what is not is fetched once more. If anything was, a fourth one
 * only looks: what is missing then was pushed out again, and failed. The counts of the last pass
 * are the job's: done is what was found here as a whole. A job that was given a list of keys goes
 * through that instead: it asks for each key in the first pass and in the third, as nobody listed
 * its size and ETag.
 *
 * Invariants:
 *  1. The place that is kept lies between two pages, with the counts up to there: behind a crash a
 *     page is looked at again, and nothing counts twice.
 *  2. Each object of the list that is wanted is counted once in a pass, as done or as failed.
 *  3. Demand goes first: it has permits, buffers and disk turns before this (ASK_PREFETCH,
 *     BUFFER_PREFETCH). Pinned chunks are never evicted for it, others as the policy says.
 *
 * Life: warm_open() at the job's begin on its core, warm_leave() in its DRAIN.
 * Failure: a list that upstream refuses, or that cannot be read, ends the job; while upstream is
 * away it waits, and says so. Of an object: it is tried again, then told by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "glob.h"
#include "http.h"
#include "log.h"
#include "server/jobs/inside.h"

enum {
    LOOK_STEP = 64,                  /* objects per turn that are only counted */
    MEASURE_STEP = 256,              /* chunks */
    LIST_TRIES = 5,
    EMPTY_PAGES_MAX = 1000,
    AGAIN_MS = 500, AGAIN_MOST_MS = 8000, AWAY_MS = 1000,
    SPARE_SHARE = 32,                /* of disks and quota: what replacing takes for a moment */
    FULL_MS = 20 * 1000,             /* background: it waits so long for room */
    OTHERS_SHARE = 10,               /* what is left to others, by force */
};

static struct cache *cache_of(const struct job *j)
{
    return j->jobs->server->cache;
}

static bool is_background(const struct job *j)
{
    return j->view.spec.kind == KIND_BACKGROUND;
}

/* ---- places and counts ---- */
static void save_place(struct job *j, struct span after)
{
    struct job_view *v = &j->view;
    struct job_tally *t = &j->place.tally;

    t->objects_wanted = v->objects_wanted;
    t->objects_done = v->objects_done;
    t->objects_failed = v->objects_failed;
    t->objects_skipped = v->objects_skipped;
    t->bytes_wanted = v->bytes_wanted;
    t->bytes_done = v->bytes_done;
    t->bytes_failed = v->bytes_failed;
    t->bytes_here = v->bytes_here;
    t->bytes_loose = v->bytes_loose;
    t->bytes_needed = v->bytes_needed;
    t->room = v->room;
    t->used = j->warm->used;
    t->fetched = j->warm->fetched;
    t->failure_count = v->failure_count;
    j->place.pass = v->pass;
    j->place.at = 0;
    must(after.len <= KEY_BYTES_MAX);
    memmove(j->place.after, after.at, after.len); /* it may be this one */
    j->place.after[after.len] = '\0';
}

/* What was counted since the place is counted again. */
static void take_up(struct job *j)
{
    struct job_view *v = &j->view;
    const struct job_tally *t = &j->place.tally;

    jobs_lock(j->jobs);
    v->pass = j->place.pass;
    v->objects_wanted = t->objects_wanted;
    v->objects_done = t->objects_done;
    v->objects_failed = t->objects_failed;
    v->objects_skipped = t->objects_skipped;
    v->bytes_wanted = t->bytes_wanted;
    v->bytes_done = t->bytes_done;
    v->bytes_failed = t->bytes_failed;
    v->bytes_here = t->bytes_here;
    v->bytes_loose = t->bytes_loose;
    v->bytes_needed = t->bytes_needed;
    v->room = t->room;
    v->failure_count = t->failure_count;
    jobs_unlock(j->jobs);
    j->warm->used = t->used;         /* a place lies where no object is half done */
    /* What was fetched of the page that is looked at again is not known. */
    j->warm->fetched = t->fetched + 1;
}

/* Later passes keep what is wanted as the goal that is shown, until they have counted it. */
static void begin_pass(struct job *j, enum job_pass pass)
{
    struct job_view *v = &j->view;

    jobs_lock(j->jobs);
    v->pass = pass;
    v->objects_done = v->objects_failed = v->objects_skipped = 0;
    v->bytes_done = v->bytes_failed = v->failure_count = 0;
    if (pass == PASS_COUNT) {
        v->objects_wanted = v->bytes_wanted = v->bytes_here = v->bytes_loose = v->bytes_needed = 0;
        v->room = (struct job_room){0};
    }
    jobs_unlock(j->jobs);
    j->warm->used = j->warm->read = j->warm->fetched = 0;
    save_place(j, span_of(""));
}

/* ---- the passes ---- */
static uint64_t less(uint64_t all, uint64_t taken)
{
    return all > taken ? all - taken : 0;
}

/* Of what is needed, as much as its section can take: what nobody has there, or what others leave
 * if all but a part of it becomes the job's. */
static void limit_by_quota(struct job_view *v, const struct cache_room *r, uint64_t part)
{
    uint64_t had = max_u64(r->quota_free, less(r->quota - r->quota / part, v->room.ruled_loose));
    uint64_t rest = less(v->bytes_needed, less(v->room.ruled_needed, had));

    if (v->room.ruled_needed <= had || rest >= v->bytes_free)
        return;
    v->bytes_free = rest;
    v->limit = LIMIT_QUOTA;
}

/* The same of the index. */
static void limit_by_index(struct job_view *v, const struct cache_room *r, uint64_t part)
{
    uint64_t had = less(r->index - r->index / part, v->room.index_loose);

    if (v->room.index_needed <= had)
        return;
    double share = (double)had / (double)v->room.index_needed;
    uint64_t rest = (uint64_t)(share * (double)v->bytes_needed);
    if (rest >= v->bytes_free)
        return;
    v->bytes_free = rest;
    v->limit = LIMIT_INDEX;
}

/* What of it can be had, where spare bytes of the disks and one part in so many of all else stay
 * with others. */
static void find_free(struct job_view *v, const struct cache_room *r, uint64_t spare, uint64_t part)
{
    v->bytes_free = less(r->capacity, r->pinned + v->bytes_loose + spare);
    v->limit = LIMIT_DISKS;
    if (v->room.ruled_needed > 0)
        limit_by_quota(v, r, part);
    limit_by_index(v, r, part);
}

/* What could be had without touching pins, but for what is wanted and here already. With force the
 * job goes on all the same: objects come in its order as long as they fit (warm.c), and what is
 * left to others is so much that eviction, which looks at samples, finds those and not ours. */
static bool does_fit(struct job *j)
{
    struct job_view *v = &j->view;
    struct cache_room r;

    cache_room(cache_of(j), j->warm->section, v->room.small, &r);
    jobs_lock(j->jobs);
    find_free(v, &r, max_u64(r.capacity / SPARE_SHARE, r.reserve), SPARE_SHARE);
    v->does_not_fit = v->bytes_needed > v->bytes_free;
    if (v->does_not_fit && v->spec.force && !v->spec.dry_run) {
        find_free(v, &r, r.capacity / OTHERS_SHARE + r.reserve, OTHERS_SHARE);
        v->does_not_fit = false;
    }
    jobs_unlock(j->jobs);
    return !v->does_not_fit;
}

static void note_limit(struct job *j)
{
    static const char *const notes[] = {
        [LIMIT_DISKS] = "it does not fit beside what is pinned: force brings what fits, an include "
                        "glob takes less, unpin makes room",
        [LIMIT_QUOTA] = "it does not fit into the quota of its section: force brings what fits, an "
                        "include glob takes less",
        [LIMIT_INDEX] = "its objects are more than the index holds: force brings what fits, "
                        "cache.index_memory makes room",
    };

    job_note(j, notes[j->view.limit]);
}

/* All objects came in the last pass: what was wanted in it is what it met. */
static void settle(struct job *j)
{
    struct job_view *v = &j->view;

    jobs_lock(j->jobs);
    v->objects_wanted = v->objects_done + v->objects_failed;
    v->bytes_wanted = v->bytes_done + v->bytes_failed;
    v->pass = PASS_OVER;
    jobs_unlock(j->jobs);
    job_note(j, "");
}

/* The dataset is counted: is it worth to be filled, and is there room? Then it is a job that others
 * see. */
static enum warm_turn begin_filling(struct job *j)
{
    struct job_view *v = &j->view;

    jobs_lock(j->jobs);
    v->bytes_free = background_room(j);
    jobs_unlock(j->jobs);
    enum background_end how = background_judge(j);
    if (how != BACKGROUND_ALL || v->bytes_here == v->bytes_wanted) {
        background_ends(j, how);
        return WARM_DONE;
    }
    uint64_t id = v->id ? v->id : jobs_number(j->jobs);
    jobs_lock(j->jobs);
    v->id = id;
    jobs_unlock(j->jobs);
    log_event(EVENT_JOB, "job=j%llu kind=background state=running prefix=%s left=%llu",
              (unsigned long long)id, log_value(span_of(v->spec.prefix)),
              (unsigned long long)job_bytes_left(v));
    begin_pass(j, PASS_FETCH);
    job_save(j);
    return WARM_LIST;
}

static enum warm_turn end_background(struct job *j)
{
    if (j->view.pass == PASS_COUNT)
        return begin_filling(j);
    settle(j);
    background_ends(j, BACKGROUND_ALL);
    return WARM_DONE;
}

/* It is turned off, or was without room for so long that another dataset may have its turn. */
static bool is_stopped(struct job *j)
{
    const struct warm *w = j->warm;
    bool off = !background_is_on(j);

    if (!off && (w->full_ms == 0 || j->m.core->now_ms - w->full_ms < FULL_MS))
        return false;
    background_ends(j, off ? BACKGROUND_OFF : BACKGROUND_FULL);
    return true;
}

/* What it brings stays. Only now, just before the first byte of it: a job that ends without
 * fetching leaves no pin. */
static bool pin(struct job *j)
{
    const struct job_spec *spec = &j->view.spec;
    char note[sizeof j->view.note];
    enum err err = spec->pin ? cache_pin(cache_of(j), span_of(spec->prefix), spec->until_s) : OK;

    if (err == OK)
        return true;
    snprintf(note, sizeof note, "it cannot be pinned: %s",
             err == ERR_FULL ? "there are 256 pins, headpond pins lists them" : err_text(err));
    job_note(j, note);
    return false;
}

/* All that was missing was fetched again. Is it here now, or did one push out the other? */
static void begin_look(struct job *j)
{
    struct warm *w = j->warm;

    w->failed_count = j->view.failure_count;
    memcpy(w->failed, j->view.failure, sizeof w->failed);
    begin_pass(j, PASS_LOOK);
}

static enum warm_turn end_pass(struct job *j)
{
    struct job_view *v = &j->view;

    if (is_background(j))
        return end_background(j);
    switch (v->pass) {
    case PASS_COUNT:
        if (!does_fit(j)) {
            note_limit(j);
            return WARM_FAILED;
        }
        if (v->spec.dry_run)
            return WARM_DONE;
        if (!pin(j))
            return WARM_FAILED;
        begin_pass(j, PASS_FETCH);
        job_save(j);                 /* with its pin: behind a crash it is not counted again */
        return WARM_LIST;
    case PASS_FETCH:
        begin_pass(j, PASS_CHECK);
        return WARM_LIST;
    case PASS_CHECK:
        if (j->warm->fetched == 0)
            break;
        begin_look(j);
        return WARM_LIST;
    case PASS_LOOK: case PASS_NONE: case PASS_OVER: break;
    }
    settle(j);
    return WARM_DONE;
}

/* ---- counting ---- */
/* The rest of the key behind the last slash of the prefix, as people see names. */
static bool is_meant(const struct job *j, const struct listed *item)
{
    struct span prefix = j->scope.prefix;
    size_t from = prefix.len;

    while (from > 0 && prefix.at[from - 1] != '/')
        from--;
    return span_starts(item->key, prefix) &&
        (!is_background(j) || background_wants(j, item->key)) &&
        filter_has(span_of(j->view.spec.filter), span_from(item->key, from));
}

/* Is it ruled by the section whose quota is looked at? That is the first one that is met; of others
 * the last pass tells. */
static bool is_ruled(struct job *j, const struct okey *k)
{
    struct warm *w = j->warm;
    unsigned section = cache_section(cache_of(j), k);

    w->section = w->section ? w->section : section;
    return section > 0 && section == w->section;
}

void warm_count(struct job *j, const struct okey *k, uint64_t size, const struct cache_held *held)
{
    struct job_view *v = &j->view;
    struct cache_need need = cache_need(k, size);
    uint64_t chunks = max_u64((size + CHUNK_BYTES - 1) / CHUNK_BYTES, 1);
    uint64_t room = min_u64(held->room, need.room), slots = min_u64(held->slots, need.slots);
    uint64_t index = need.index / chunks * min_u64(held->chunks, chunks);
    bool ruled = is_ruled(j, k);

    jobs_lock(j->jobs);
    v->objects_wanted++;
    v->bytes_wanted += size;
    v->bytes_here += min_u64(held->bytes - held->away, size);
    v->bytes_needed += need.room - room;
    v->room.here += room;
    v->room.small += need.small;
    v->room.index_needed += need.index - index;
    v->room.ruled_needed += ruled ? need.slots - slots : 0;
    if (!held->pinned) {
        v->bytes_loose += room;
        v->room.index_loose += index;
        v->room.ruled_loose += ruled ? slots : 0;
    }
    jobs_unlock(j->jobs);
}

/* true: it was counted. */
static bool measure_item(struct job *j, const struct listed *item)
{
    struct warm *w = j->warm;
    struct okey k = {.bucket = j->scope.bucket, .key = item->key, .upstream = j->scope.upstream};
    bool all = true, was_read = false;

    cache_key(cache_of(j), &k);
    struct object *o = cache_find(cache_of(j), &k);
    if (o && listed_is(item, object_etag(o), o->size)) {
        all = cache_measure(cache_of(j), o, &w->held, MEASURE_STEP);
        was_read = object_was_read(o, &w->held, clock_wall_s());
    }
    if (o)
        object_drop(cache_of(j), o);
    if (!all)
        return false;
    w->read += was_read;
    warm_count(j, &k, item->size, &w->held);
    w->held = (struct cache_held){0};
    return true;
}

static enum warm_turn count_objects(struct job *j)
{
    struct warm *w = j->warm;

    for (unsigned step = 0; step < LOOK_STEP; step++) {
        if (w->taken == w->page.count)
            return WARM_LIST;
        if (measure_item(j, &w->page.item[w->taken]))
            w->taken++;
    }
    return WARM_MORE;
}

enum warm_turn warm_objects(struct job *j)
{
    struct warm *w = j->warm;
    bool counts = j->view.pass == PASS_COUNT && !w->page.given;

    if (is_background(j) && is_stopped(j))
        return WARM_DONE;
    enum warm_turn turn = counts ? count_objects(j) : warm_lanes(j);

    if (turn != WARM_LIST)
        return turn;
    w->paged = false;
    if (w->page.more) {
        uint64_t next = j->place.at + 1;
        save_place(j, w->page.given ? span_of("") : w->last);
        j->place.at = w->page.given ? next : 0;
        return WARM_LIST;
    }
    return end_pass(j);
}

/* ---- the list ---- */
void warm_leave_list(struct job *j)
{
    struct warm *w = j->warm;

    if (!w->listing || w->ending)
        return;
    w->ending = w->left = true;
    exchange_end(&w->list);
}

bool warm_has_page(const struct job *j)
{
    return j->warm->paged;
}

static void ask_page(struct job *j)
{
    struct warm *w = j->warm;
    struct text query;

    text_init(&query, w->query, sizeof w->query);
    text_addf(&query, "list-type=2&encoding-type=url&max-keys=%d", PAGE_KEYS_MAX);
    if (j->scope.prefix.len > 0) {
        text_adds(&query, "&prefix=");
        uri_encode(&query, j->scope.prefix, false);
    }
    if (w->token[0]) {
        text_adds(&query, "&continuation-token=");
        uri_encode(&query, span_of(w->token), false);
    } else if (j->place.after[0]) {
        text_adds(&query, "&start-after=");
        uri_encode(&query, span_of(j->place.after), false);
    }
    must(!query.over);
    w->ask = (struct ask){.method = HTTP_GET,
                          .class_ = is_background(j) ? ASK_BACKGROUND : ASK_PREFETCH,
                          .op = OP_LIST,
                          .purpose = is_background(j) ? PURPOSE_BACKGROUND : PURPOSE_PREWARM,
                          .upstream = j->scope.upstream,
                          .bucket = j->scope.bucket,
                          .query = text_span(&query),
                          .patient = true};
    w->listing = true;
    w->ending = w->whole = w->left = false;
    w->status = 0;
    exchange_begin(&w->list, j->m.core, &w->ask, &j->m);
}

static enum warm_turn try_again(struct job *j, uint64_t ms)
{
    j->warm->again_ms = j->m.core->now_ms + ms;
    warm_tick(j);
    return WARM_WAIT;
}

/* The exchange is over, and the page is not here. */
static enum warm_turn list_failed(struct job *j, enum err err, unsigned status)
{
    struct warm *w = j->warm;
    bool final = err == ERR_SYNTAX || err == ERR_TOO_LARGE ||
        (status >= 400 && status < 500 && status != 429);
    char note[sizeof j->view.note];

    if (!final && origin_is_down(j->jobs->server->origin[j->scope.upstream])) {
        job_note(j, "upstream does not answer: the job waits for it");
        return try_again(j, AWAY_MS);
    }
    if (!final && ++w->tries < LIST_TRIES)
        return try_again(j, min_u64((uint64_t)AGAIN_MS << w->tries, AGAIN_MOST_MS));
    if (status)
        snprintf(note, sizeof note, "upstream refuses to list the objects: %u %s", status,
                 status == 404 ? "NoSuchBucket" : fill_code_of_status((uint16_t)status));
    else
        snprintf(note, sizeof note, "the list of objects could not be read: %.100s", err_text(err));
    job_note(j, note);
    return WARM_FAILED;
}

/* Objects that are not meant leave the page. */
static void pick(struct job *j)
{
    struct warm *w = j->warm;
    struct page *p = &w->page;
    unsigned kept = 0;

    w->last = p->count > 0 ? p->item[p->count - 1].key : span_of(j->place.after);
    for (unsigned i = 0; i < p->count; i++)
        if (is_meant(j, &p->item[i]))
            p->item[kept++] = p->item[i];
    p->count = kept;
    w->taken = 0;
    w->paged = true;
}

/* The next piece of the list that was given. */
static enum warm_turn take_piece(struct job *j)
{
    if (kept_page(j, (unsigned)j->place.at, &j->warm->page) != OK) {
        job_note(j, "its list of keys cannot be read: make the job anew");
        return WARM_FAILED;
    }
    pick(j);
    return WARM_PAGE;
}

/* Of a page without keys, which the list goes on behind: no list does so for ever. */
static enum err keep_token(struct warm *w)
{
    bool empty = w->page.count == 0 && w->page.more;

    if (empty && (++w->empty_pages > EMPTY_PAGES_MAX || strcmp(w->token, w->page.token) == 0))
        return ERR_SYNTAX;
    if (!empty)
        w->empty_pages = 0;
    memcpy(w->token, empty ? w->page.token : "", empty ? sizeof w->token : 1);
    return OK;
}

static enum warm_turn end_list(struct job *j)
{
    struct warm *w = j->warm;
    enum err why = w->list.m.why != OK ? w->list.m.why : ERR_UPSTREAM_RESET;

    if (!w->list.over)
        return WARM_WAIT;
    w->listing = false;
    if (w->left)                     /* for a rest, which is over */
        return WARM_MORE;
    if (!w->whole)
        return list_failed(j, w->why != OK ? w->why : why, w->status);
    enum err err = page_end(&w->page, span_of(j->place.after));
    if (err == OK)
        err = keep_token(w);
    if (err != OK)
        return list_failed(j, err, 0);
    w->tries = 0;
    job_note(j, "");
    pick(j);
    return WARM_PAGE;
}

/* Bytes of the document, as they come. */
static void read_list(struct job *j)
{
    struct warm *w = j->warm;
    struct exchange *x = &w->list;

    if (x->read_got > 0 && w->why == OK)
        w->why = page_feed(&w->page, span_make(w->mem, x->read_got));
    x->read_got = 0;
    w->whole = x->at_end && w->why == OK && !x->failed;
    if (x->at_end || x->failed || w->why != OK) {
        w->ending = true;
        exchange_end(x);
        return;
    }
    exchange_read_some(x, w->mem, sizeof w->mem);
}

enum warm_turn warm_list(struct job *j)
{
    struct warm *w = j->warm;
    struct exchange *x = &w->list;

    if (j->view.spec.keys.count > 0)
        return take_piece(j);
    if (w->listing && w->ending)
        return end_list(j);
    if (w->listing && !x->reading && (x->head_known || x->failed)) {
        if (x->failed || x->head->status != 200) {
            w->status = x->failed ? 0 : x->head->status;
            w->ending = true;
            exchange_end(x);
        } else {
            read_list(j);
        }
    }
    if (w->listing)
        return w->ending ? end_list(j) : WARM_WAIT;
    timer_take(&j->timer);
    if (j->m.core->now_ms < w->again_ms) {
        warm_tick(j);
        return WARM_WAIT;
    }
    w->why = page_begin(&w->page);
    if (w->why != OK)
        return list_failed(j, w->why, 0);
    ask_page(j);
    return WARM_WAIT;
}

/* ---- begin and end ---- */
enum err warm_open(struct job *j)
{
    j->warm = mem_take(sizeof *j->warm);
    if (!j->warm)
        return ERR_MEMORY;
    /* How much of a dataset was read is no part of the place, nor which section was met. */
    bool ruled = j->place.tally.room.ruled_needed + j->place.tally.room.ruled_loose > 0;
    bool anew = j->place.pass == PASS_COUNT && (is_background(j) || ruled);
    if (anew || j->place.pass == PASS_NONE || j->place.pass == PASS_OVER)
        begin_pass(j, PASS_COUNT);
    else
        take_up(j);
    return OK;
}

bool warm_leave(struct job *j)
{
    struct warm *w = j->warm;

    if (!w)
        return true;
    warm_leave_list(j);
    bool left = warm_lanes_leave(j);
    if ((w->listing && !w->list.over) || !left)
        return false;
    page_close(&w->page);
    mem_give(w);
    j->warm = NULL;
    return true;
}
