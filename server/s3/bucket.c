/* Names of buckets: what one may be called, and where it stands in Host. Pure.
 *
 * Invariants:
 *  1. No bucket is called "." or "..", nor begins with a mark: a name is one segment of an upstream
 *     path, and "/-/" stays ours.
 *
 * Life: what is found borrows from the head.
 * Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

static bool is_ipv4_text(struct span host)
{
    for (size_t i = 0; i < host.len; i++)
        if ((host.at[i] < '0' || host.at[i] > '9') && host.at[i] != '.')
            return false;
    return host.len > 0;
}

struct span s3_bucket_of_host(struct span host, const char *domain)
{
    struct span none = {NULL, 0}, base = span_of(domain);
    if (base.len == 0 || host.len == 0 || host.at[0] == '[')
        return none;
    host.len = span_find(host, ':');
    if (host.len < base.len + 2 || is_ipv4_text(host))
        return none;
    size_t cut = host.len - base.len;
    if (host.at[cut - 1] != '.' || !span_is_nocase(span_from(host, cut), domain))
        return none;
    return span_make(host.at, cut - 1);
}

bool s3_is_bucket_name(struct span name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.at[i];
        bool inner = c == '-' || c == '.' || c == '_';
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            (!inner || i == 0))
            return false;
    }
    return name.len > 0 && name.len <= BUCKET_BYTES_MAX;
}
