/* Conditions of a request against one generation of an object (RFC 9110 13). Pure.
 *
 * Invariants:
 *  1. Conditions are judged here and never sent upstream; the order is that of S3.
 *
 * Life: stateless. Failure: none; a date that cannot be read is no condition. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

static struct span unquote(struct span etag)
{
    if (etag.len >= 2 && etag.at[0] == '"' && etag.at[etag.len - 1] == '"')
        return span_make(etag.at + 1, etag.len - 2);
    return etag;
}

static bool etag_matches(struct span wanted, struct span etag)
{
    return span_is(wanted, "*") || span_eq(unquote(wanted), unquote(etag));
}

/* A date that counts: readable, not in the future, and the object has one to compare with. */
static bool read_since(struct span field, uint64_t last_modified_s, uint64_t now_s,
                       uint64_t *since_s)
{
    return field.len > 0 && last_modified_s > 0 && http_date_read(field, since_s) == OK &&
           *since_s <= now_s;
}

uint16_t s3_conditions(const struct s3_ask *a, struct span etag, uint64_t last_modified_s,
                       uint64_t now_s, const char **condition)
{
    uint64_t since_s = 0;
    bool none_match = a->if_none_match.len == 0 || !etag_matches(a->if_none_match, etag);
    bool unmodified = !read_since(a->if_unmodified_since, last_modified_s, now_s, &since_s) ||
                      last_modified_s <= since_s;
    bool modified = !read_since(a->if_modified_since, last_modified_s, now_s, &since_s) ||
                    last_modified_s > since_s;
    if (a->if_match.len > 0) {
        if (!etag_matches(a->if_match, etag)) {
            *condition = "If-Match";
            return 412;
        }
    } else if (!unmodified) {
        *condition = "If-Unmodified-Since";
        return 412;
    }
    if (a->if_none_match.len > 0)
        return none_match ? 200 : 304;
    return modified ? 200 : 304;
}

struct span s3_range(const struct s3_ask *a, struct span etag, uint64_t last_modified_s)
{
    uint64_t date_s = 0;
    struct span whole = {NULL, 0};
    if (a->range.len == 0 || a->if_range.len == 0)
        return a->range;
    if (http_date_read(a->if_range, &date_s) == OK)
        return last_modified_s > 0 && date_s == last_modified_s ? a->range : whole;
    return span_eq(unquote(a->if_range), unquote(etag)) ? a->range : whole;
}
