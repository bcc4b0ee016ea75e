/* /v1/disks: the state of each cache directory, and an operator's word about it.
 *
 * Invariants:
 *  1. A change is decided when it is answered: the answer shows the state that came of it.
 *
 * Life: one request's. Failure: a directory that is none is told with the way to list them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <microhttpd.h>

#include "server/admin/admin.h"

enum { DISKS_BYTES = 256 * KIB };

void answer_disks(const struct visit *v, struct admin_answer *out)
{
    struct cache_status s;

    cache_status(v->door->server->cache, &s);
    if (!answer_room(out, DISKS_BYTES))
        return;
    text_adds(&out->body, "{\"v\":1");
    status_disks(&out->body, &s);
    text_adds(&out->body, "}\n");
}

static void decide(const struct visit *v, struct admin_answer *out,
                   bool (*what)(struct cache *c, const char *dir))
{
    const char *dir = MHD_lookup_connection_value(v->connection, MHD_GET_ARGUMENT_KIND, "dir");

    if (!dir || !dir[0])
        answer_refuse(out, MHD_HTTP_UNPROCESSABLE_CONTENT, "bad_request",
                      "no directory is named", "write ?dir=/nvme0/headpond, as in cache.dirs");
    else if (!what(v->door->server->cache, dir))
        answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "there is no such cache directory",
                      "GET /v1/disks lists them");
    else
        answer_disks(v, out);
}

void answer_disk_fence(const struct visit *v, struct admin_answer *out)
{
    decide(v, out, cache_disk_fence);
}

void answer_disk_readmit(const struct visit *v, struct admin_answer *out)
{
    decide(v, out, cache_disk_readmit);
}
