/* Answers of the control plane: made whole in memory of their own, then given to libmicrohttpd.
 *
 * Invariants:
 *  1. An answer that did not fit is an error, never cut.
 *  2. No answer may be kept by caches, or taken for another type than it says.
 *
 * Life: one request's. Failure: without memory the connection is closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <microhttpd.h>

#include "server/admin/admin.h"

enum { SMALL_BYTES = KIB, STREAM_BYTES = 4 * KIB };

bool answer_room(struct admin_answer *out, size_t bytes)
{
    char *memory = mem_take(bytes);

    if (memory)
        text_init(&out->body, memory, bytes);
    return memory != NULL;
}

void answer_refuse(struct admin_answer *out, unsigned status, const char *code, const char *message,
                   const char *hint)
{
    mem_give(out->body.at);
    out->body = (struct text){0};
    out->code = status;
    out->type = type_json;
    if (answer_room(out, SMALL_BYTES))
        status_error(&out->body, code, message, hint);
}

struct span visit_query(const struct visit *v, const char *key)
{
    const char *value = NULL;
    size_t len = 0;

    if (MHD_lookup_connection_value_n(v->connection, MHD_GET_ARGUMENT_KIND, key, strlen(key),
                                      &value, &len) != MHD_YES)
        return (struct span){NULL, 0};
    return span_make(value ? value : "", len);
}

/* NULL: there is no memory, and nothing of the answer is left. */
static struct MHD_Response *make_response(struct admin_answer *a)
{
    struct MHD_Response *r =
        a->more ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, a->more, a->of,
                                                    a->gone)
                : MHD_create_response_from_buffer_with_free_callback(a->body.len, a->body.at,
                                                                     mem_give);

    if (!r && a->more)
        a->gone(a->of);
    else if (!r)
        mem_give(a->body.at);
    return r;
}

int answer_send(const struct visit *v, struct admin_answer *a)
{
    if (a->body.over)
        answer_refuse(a, MHD_HTTP_INTERNAL_SERVER_ERROR, "too_large",
               "the answer did not fit into its memory", "report this");
    if (!a->body.at && !a->more)
        return MHD_NO;               /* no memory: the connection is closed */
    struct MHD_Response *r = make_response(a);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, "Content-Type", a->type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (a->policy[0])
        MHD_add_response_header(r, "Content-Security-Policy", a->policy);
    if (a->allow[0] && a->code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, "Allow", a->allow);
    enum MHD_Result queued = MHD_queue_response(v->connection, a->code, r);
    MHD_destroy_response(r);
    return queued;
}
