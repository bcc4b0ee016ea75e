/* Lists of keys as they are kept: in the cache's state, piece by piece, under the job's number.
 *
 * Invariants:
 *  1. The pieces of a list are on the disk before the job that names them is.
 *  2. All lists together stay below LISTS_PIECES and LISTS_BYTES, so that pins and jobs find room
 *     in the state. When that is not enough the lists of jobs that have ended go, the oldest first,
 *     if that makes room enough; such a job is still known, and cannot be done again.
 *  3. A list that no job names is removed at the start: a crash came before its job.
 *
 * Life: a list goes with the job whose slot is taken by another.
 * Failure: ERR_FULL, ERR_TOO_LARGE: nothing was begun, and no list has gone; a piece that is not
 * there ends its job. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "server/jobs/inside.h"

enum { NAME_BYTES = STATE_NAME_MAX + 1, SYNC_MS = 2000 };

static const char area[] = STATE_LOOSE; /* what comes back is removed at the start */

/* false: no such name fits. */
static bool name_of(uint64_t id, unsigned piece, char out[NAME_BYTES])
{
    return snprintf(out, NAME_BYTES, "%s%llx/%x", area, (unsigned long long)id, piece) < NAME_BYTES;
}

void kept_clear(struct jobs *jobs, const struct kept_gone *gone)
{
    char name[NAME_BYTES];

    for (unsigned k = 0; k < gone->count; k++)
        for (unsigned i = 0; i < gone->list[k].pieces; i++)
            if (name_of(gone->list[k].id, i, name))
                (void)cache_state_remove(jobs->server->cache, span_of(name));
}

/* ---- room; under the lock ---- */
/* Whether its list may go. */
static bool may_lose_list(const struct job *j)
{
    return j && j->view.spec.keys.pieces > 0 && job_state_is_over(j->view.state) &&
           !atomic_load(&j->runs) && !atomic_load(&j->sent);
}

static struct job *oldest_with_list(struct jobs *jobs)
{
    struct job *oldest = NULL;

    for (unsigned i = 0; i < JOBS_MAX; i++) {
        struct job *j = jobs->job[i];
        if (may_lose_list(j) && (!oldest || j->view.id < oldest->view.id))
            oldest = j;
    }
    return oldest;
}

static bool have_room(uint64_t pieces, uint64_t bytes, const struct kept_keys *need)
{
    return pieces + need->pieces <= LISTS_PIECES && bytes + need->bytes <= LISTS_BYTES;
}

/* Would it fit if all lists went that may? ERR_TOO_LARGE: not even alone. */
static enum err may_fit(const struct jobs *jobs, const struct kept_keys *need)
{
    uint64_t pieces = jobs->pieces, bytes = jobs->piece_bytes;

    for (unsigned i = 0; i < JOBS_MAX; i++) {
        const struct job *j = jobs->job[i];
        pieces -= may_lose_list(j) ? j->view.spec.keys.pieces : 0;
        bytes -= may_lose_list(j) ? j->view.spec.keys.bytes : 0;
    }
    if (!have_room(0, 0, need))
        return ERR_TOO_LARGE;
    return have_room(pieces, bytes, need) ? OK : ERR_FULL;
}

void kept_forget(struct jobs *jobs, uint64_t id, struct kept_keys *keys, struct kept_gone *gone)
{
    if (keys->pieces == 0)
        return;
    must(gone->count < ARRAY_COUNT(gone->list));
    gone->list[gone->count].id = id;
    gone->list[gone->count++].pieces = keys->pieces;
    jobs->pieces -= keys->pieces;
    jobs->piece_bytes -= keys->bytes;
    keys->pieces = 0;
    keys->bytes = 0;
}

static enum err reserve(struct jobs *jobs, const struct kept_keys *need, struct kept_gone *gone)
{
    TRY(may_fit(jobs, need));
    while (!have_room(jobs->pieces, jobs->piece_bytes, need)) {
        struct job *j = oldest_with_list(jobs);
        if (!j)                      /* one was sent again meanwhile */
            return ERR_FULL;
        kept_forget(jobs, j->view.id, &j->view.spec.keys, gone);
        job_save(j);
    }
    jobs->pieces += need->pieces;
    jobs->piece_bytes += need->bytes;
    return OK;
}

/* ---- putting ---- */
/* Writes all pieces; cache NULL: only counts them. */
static enum err write_all(struct cache *cache, const struct key_list *list, uint64_t id,
                          struct kept_keys *out)
{
    uint8_t *piece = mem_take(STATE_VALUE_MAX);
    char name[NAME_BYTES];
    enum err err = piece ? OK : ERR_MEMORY;
    uint32_t at = 0;

    *out = (struct kept_keys){.count = key_list_count(list)};
    while (err == OK && at < out->count) {
        size_t len = key_list_write(list, &at, piece, STATE_VALUE_MAX);
        must(len > 0);
        err = name_of(id, out->pieces, name) ? OK : ERR_TOO_LARGE;
        if (err == OK && cache)
            err = cache_state_put(cache, span_of(name), span_make((char *)piece, len));
        out->pieces++;
        out->bytes += len;
    }
    mem_give(piece);
    return err;
}

uint64_t jobs_list_bytes(const struct key_list *list)
{
    struct kept_keys need;

    return write_all(NULL, list, 0, &need) == OK ? need.bytes : 0;
}

enum err kept_put(struct jobs *jobs, const struct key_list *list, uint64_t *id,
                  struct kept_keys *out)
{
    struct cache *cache = jobs->server->cache;
    struct kept_gone gone = {.count = 0};
    struct kept_keys need;

    TRY(write_all(NULL, list, 0, &need));
    jobs_lock(jobs);
    enum err err = reserve(jobs, &need, &gone);
    *id = err == OK ? jobs->next_id++ : 0;
    jobs_unlock(jobs);
    kept_clear(jobs, &gone);
    TRY(err);
    err = write_all(cache, list, *id, out);
    if (err == OK) {
        (void)cache_state_sync(cache, SYNC_MS);
        return OK;
    }
    gone.count = 0;
    jobs_lock(jobs);
    kept_forget(jobs, *id, &need, &gone);
    jobs_unlock(jobs);
    kept_clear(jobs, &gone);
    return err;
}

/* ---- reading ---- */
enum err kept_page(struct job *j, unsigned piece, struct page *p)
{
    const struct kept_keys *keys = &j->view.spec.keys;
    uint8_t *bytes = mem_take(STATE_VALUE_MAX);
    char name[NAME_BYTES];
    size_t len = 0;

    if (!bytes)
        return ERR_MEMORY;
    enum err err = piece < keys->pieces && name_of(j->view.id, piece, name) ? OK : ERR_NOT_FOUND;
    if (err == OK)
        err = cache_state_get(j->jobs->server->cache, span_of(name), bytes, STATE_VALUE_MAX, &len);
    if (err == OK)
        err = key_list_read(span_make((char *)bytes, len), p);
    p->more = err == OK && piece + 1 < keys->pieces;
    mem_give(bytes);
    return err;
}

/* ---- start ---- */
struct orphans {
    struct jobs *jobs;
    unsigned count;
    char name[STATE_VALUES_MAX][NAME_BYTES];
};

static void look_at(void *of, struct span name, struct span value)
{
    struct orphans *o = of;
    struct span rest = span_from(name, strlen(area));
    char text[NAME_BYTES];

    (void)value;
    snprintf(text, sizeof text, "%.*s", (int)rest.len, rest.at);
    uint64_t id = strtoull(text, NULL, 16);
    for (unsigned i = 0; i < JOBS_MAX; i++) {
        const struct job *j = o->jobs->job[i];
        if (j && j->view.id == id && j->view.spec.keys.pieces > 0)
            return;
    }
    if (o->count < STATE_VALUES_MAX)
        snprintf(o->name[o->count++], NAME_BYTES, "%.*s", (int)name.len, name.at);
}

enum err kept_open(struct jobs *jobs)
{
    struct orphans *o = mem_take(sizeof *o);

    if (!o)
        return ERR_MEMORY;
    o->jobs = jobs;
    for (unsigned i = 0; i < JOBS_MAX; i++) {
        if (!jobs->job[i])
            continue;
        jobs->pieces += jobs->job[i]->view.spec.keys.pieces;
        jobs->piece_bytes += jobs->job[i]->view.spec.keys.bytes;
    }
    cache_state_walk(jobs->server->cache, span_of(area), look_at, o);
    for (unsigned i = 0; i < o->count; i++)
        (void)cache_state_remove(jobs->server->cache, span_of(o->name[i]));
    mem_give(o);
    return OK;
}
