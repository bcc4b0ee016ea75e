/* Which store has a bucket: the look-up over the match lists of the upstream sections. Pure.
 *
 * Invariants:
 *  1. The same bucket always goes to the same store, whatever the order of the sections: an exact
 *     match beats a prefix, a longer prefix a shorter one, any of them the default. The loader
 *     refuses equal ones.
 *  2. With one section without match, which most servers have, nothing is compared.
 *  3. What a store would take for its administration is found by what stands first in the path
 *     that it gets.
 *
 * Life: pure functions over a config. Failure: none but "there is no such bucket". */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf.h"
#include "endpoint.h"

bool conf_match_is_exact(const char *match, struct span *prefix)
{
    *prefix = span_of(match);
    if (!span_ends(*prefix, span_of("*")))
        return true;
    prefix->len--;
    return false;
}

const struct conf_upstream *conf_default_upstream(const struct config *c)
{
    return c->upstream[0].match.count == 0 ? &c->upstream[0] : NULL;
}

/* How well a section matches: 0 = not at all; a longer prefix more than a shorter one, the exact
 * name most. */
static size_t grade(const struct conf_upstream *u, struct span bucket)
{
    size_t best = 0;

    for (unsigned i = 0; i < u->match.count; i++) {
        struct span text;
        if (conf_match_is_exact(u->match.item[i], &text)) {
            if (span_eq(text, bucket))
                return SIZE_MAX;
        } else if (span_starts(bucket, text) && text.len > best) {
            best = text.len;
        }
    }
    return best;
}

bool conf_route(const struct config *c, struct span bucket, struct conf_route *out)
{
    size_t best = 0;
    bool found = c->upstream[0].match.count == 0;

    *out = (struct conf_route){0, bucket};
    if (found && c->upstream_count == 1)
        return true;
    for (unsigned i = 0; i < c->upstream_count; i++) {
        size_t g = grade(&c->upstream[i], bucket);
        if (g <= best)
            continue;
        best = g;
        found = true;
        out->upstream = i;
    }
    if (found && best == SIZE_MAX && c->upstream[out->upstream].bucket[0])
        out->bucket = span_of(c->upstream[out->upstream].bucket);
    return found;
}

static bool is_in(const struct conf_list *list, struct span name)
{
    for (unsigned i = 0; i < list->count; i++)
        if (span_is(name, list->item[i]))
            return true;
    return false;
}

/* Ceph puts the bucket of Host before the path and then looks; MinIO looks at the path alone, so
 * where buckets stand in Host its own name is that of a folder. (A folder "admin" is anybody's.) */
bool conf_is_reserved(const struct config *c, const struct conf_route *to, struct span key)
{
    const struct conf_upstream *u = &c->upstream[to->upstream];
    struct span first = span_cut(&key, '/');
    bool bucket = is_in(&u->reserved, to->bucket);
    bool folder = span_is(first, "minio") && is_in(&u->reserved, first);
    struct endpoint at;
    const char *why;

    if (!bucket && !folder)
        return false;
    if (endpoint_read(span_of(u->endpoint), u->path_style, &at, &why) != OK)
        return true;                 /* a start refuses it */
    return !at.directory && !at.amazon && (bucket || at.virtual_host);
}
