/* An object that is here as a whole, compared with the checksum that upstream names: also one that
 * fetches could not compare, since it came in pieces over a long time, or is not summed by a CRC.
 *
 * Invariants:
 *  1. The sum is of all bytes, each once and in order, all read by this pass; a block that is not
 *     here, or could not be read, ends it. So does a begin in the middle, behind a restart.
 *  2. Only what upstream names as of the object's bytes counts; an ETag is no such promise.
 *  3. What does not match is nowhere found again: neither on disk nor in memory.
 *
 * Life: part of a job that verifies; begun with each object.
 * Failure: counted and told like a mismatch of a fetch; the next reader fetches anew.
 * Limits: objects of up to 128 GiB, as all of one is dropped in one go. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/inside.h"

static const uint64_t WHOLE_BYTES_MAX = 128 * GIB;

void whole_begin(struct job *j, const struct object *o)
{
    struct job_whole *w = &j->whole;

    w->next = 0;
    w->on = o->size <= WHOLE_BYTES_MAX &&
        verify_names(object_headers(o), object_etag(o), o->size, &w->named) && !w->named.etag;
    if (w->on)
        payload_sum_begin(&w->sum, (enum payload_kind)w->named.kind);
}

void whole_add(struct job *j, uint64_t at, const void *mem, uint32_t len)
{
    struct job_whole *w = &j->whole;

    w->on = w->on && mem && at == w->next;
    if (!w->on)
        return;
    payload_sum_add(&w->sum, mem, len);
    w->next += len;
}

/* The first upstream of the object's store: that is who names checksums for it. */
static const struct origin *origin_of(const struct server *s, const struct object *o)
{
    unsigned i = 0;

    while (i + 1 < CONF_UPSTREAMS_MAX && s->origin[i + 1] && s->store_of[i] != o->store)
        i++;
    return s->origin[i];
}

bool whole_end(struct job *j, struct object *o)
{
    struct job_whole *w = &j->whole;
    uint8_t digest[PAYLOAD_DIGEST_MAX];

    if (!w->on || w->next != o->size)
        return true;
    w->on = false;
    size_t bytes = payload_sum_end(&w->sum, digest);
    if (memcmp(digest, w->named.digest, bytes) == 0)
        return true;
    verify_tell(j->m.core, origin_of(j->jobs->server, o), o, &w->named);
    cache_distrust(j->jobs->server->cache, o);
    return false;
}
