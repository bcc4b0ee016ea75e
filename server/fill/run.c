/* One request of a fetch for a run of blocks: what is asked, and whether the answer is one to it.
 *
 * Invariants:
 *  1. It is asked for with If-Match; an answer with another generation, range, length or status is
 *     refused before a byte of it is taken.
 *
 * Life: used by fetch.c behind the contact. Failure: ERR_CHANGED ends the generation, all else is
 * upstream's refusal or an answer that cannot be trusted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/fill/fill.h"

void run_describe(struct fetch *f)
{
    const struct object *o = f->object;
    struct text query, match;
    text_init(&query, f->query, sizeof(f->query));
    if (o->version.len > 0) {
        text_adds(&query, "versionId=");
        uri_encode(&query, o->version, false);
    }
    text_init(&match, f->if_match, sizeof(f->if_match));
    text_add(&match, o->etag);
    uint64_t base = f->number * CHUNK_BYTES;
    f->skip = 0;
    f->ask = (struct ask){.method = HTTP_GET,
                          .class_ = f->ahead ? ASK_READAHEAD : ASK_DEMAND,
                          .op = OP_GET,
                          .purpose = PURPOSE_DEMAND,
                          .profile = f->profile,
                          .upstream = f->epoch.upstream,
                          .bucket = o->bucket,
                          .key = o->key,
                          .query = text_span(&query),
                          .has_range = true,
                          .from = base + (uint64_t)f->at * BLOCK_BYTES + f->got,
                          .to = base + min_u64((uint64_t)(f->last + 1) * BLOCK_BYTES, f->bytes) - 1,
                          .if_match = text_span(&match)};
}

/* What we know of the object and what upstream says do not fit: it is asked for before it is used
 * again, else a wrong size once heard would fail every read for as long as the time to live. */
enum err run_distrust(struct fetch *f, const char *what)
{
    exchange_refuse(&f->x, what);
    cache_doubt(f->m.core->server->cache, f->object);
    return ERR_UPSTREAM_PROTOCOL;
}

/* An error status: readers whose head has not gone out hear it. */
static enum err refused(struct fetch *f, uint16_t status)
{
    f->refused = status;
    return exchange_verdict(&f->x);
}

enum err run_judge(struct fetch *f)
{
    const struct exchange *x = &f->x;
    const struct object *o = f->object;
    uint16_t status = x->head->status;
    if (status == 404 || status == 412 || status == 416)
        return ERR_CHANGED;
    if (status >= 400)
        return refused(f, status);
    if (status != 200 && status != 206) /* RFC 9110 15.3.4: a 203's bytes may be anybody's */
        return run_distrust(f, "a status that was not asked for");
    if (!span_eq(x->etag, o->etag))
        return ERR_CHANGED;
    if (status == 200) {             /* the range was ignored: a stream from 0 */
        if (!x->has_length)
            return run_distrust(f, "neither the range nor a length");
        f->skip = f->ask.from;
        return x->length == o->size ? OK : ERR_CHANGED;
    }
    if (x->has_range && x->range_size != o->size)
        return ERR_CHANGED;
    if (!x->has_range || x->range_from != f->ask.from || x->range_to != f->ask.to)
        return run_distrust(f, "not the range that was asked for");
    bool fits = !x->has_length || x->length == f->ask.to - f->ask.from + 1;
    return fits ? OK : run_distrust(f, "another length than its range has");
}

/* The generation is dead: nobody may start on it, and for a while its key is read in one piece. */
enum err run_changed(struct fetch *f)
{
    struct core *c = f->m.core;
    fill_note_died(c, f->object->id);
    cache_forget(c->server->cache, f->object);
    log_event(EVENT_CHANGED, "bucket=%s key=%s", log_value(f->object->bucket),
              log_value(f->object->key));
    return ERR_CHANGED;
}
