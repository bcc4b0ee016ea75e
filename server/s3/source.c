/* Where a copy or a rename takes its object from, as the client names it. Pure.
 *
 * Invariants:
 *  1. Rights, doubt and upstream see the same source: what does not read as one is refused here,
 *     before anybody else interprets it.
 *
 * Life: spans of the request's arena.
 * Failure: ERR_SYNTAX for what names no object, ERR_MEMORY. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

static enum err decode(struct arena *arena, struct span raw, struct span *out)
{
    size_t len = 0;
    char *memory = arena_take(arena, raw.len + 1);
    if (!memory)
        return ERR_MEMORY;
    TRY(uri_decode(raw, false, memory, raw.len, &len));
    *out = span_make(memory, len);
    return OK;
}

enum err s3_source_read(const struct s3_ask *a, struct arena *arena, struct s3_source *out)
{
    static const char version[] = "?versionId=";
    struct s3_source s = {.version = {NULL, 0}};
    struct span path = a->source, decoded;
    size_t at = span_find(path, '?');
    if (at < path.len) {             /* a literal question mark of the key is escaped */
        struct span query = span_from(path, at);
        if (!span_starts(query, span_of(version)))
            return ERR_SYNTAX;
        TRY(decode(arena, span_from(query, sizeof(version) - 1), &s.version));
        path.len = at;
    }
    TRY(decode(arena, path, &decoded));
    if (decoded.len > 0 && decoded.at[0] == '/')
        decoded = span_from(decoded, 1);
    s.bucket = span_cut(&decoded, '/');
    s.key = decoded;
    if (s.bucket.len == 0 || s.key.len == 0 || s.key.len > KEY_BYTES_MAX)
        return ERR_SYNTAX;
    *out = s;
    return OK;
}
