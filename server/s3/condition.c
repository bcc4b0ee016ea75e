/* Conditions of a request against one generation of an object (RFC 9110 13). Pure.
 *
 * Invariants:
 *  1. Conditions are judged here and never sent upstream.
 *
 * Life: stateless. Failure: none; a date that cannot be read is no condition. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

uint16_t s3_conditions(const struct s3_ask *a, struct span etag, uint64_t last_modified_s,
                       uint64_t now_s, const char **condition)
{
    const struct http_conditions c = {a->if_match, a->if_none_match, a->if_modified_since,
        a->if_unmodified_since};
    return http_judge(&c, etag, last_modified_s, now_s, condition);
}

struct span s3_range(const struct s3_ask *a, struct span etag, uint64_t last_modified_s)
{
    uint64_t date_s = 0;
    struct span whole = {NULL, 0};
    if (a->range.len == 0 || a->if_range.len == 0)
        return a->range;
    if (http_date_read(a->if_range, &date_s) == OK)
        return last_modified_s > 0 && date_s == last_modified_s ? a->range : whole;
    return span_eq(http_unquote(a->if_range), http_unquote(etag)) ? a->range : whole;
}
