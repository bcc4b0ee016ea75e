/* Loaders' plans on the control plane: posted, told of, dropped.
 *
 * Invariants:
 *  1. Who may not change anything brings no plan: it is asked before a byte of it is taken.
 *  2. A plan is parsed on the thread of its connection, never on a core.
 *
 * Life: one request's. Failure: an error with its code, its place, and what to do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>

#include "server/admin/admin.h"

struct plan_body *plans_body_begin(const struct visit *a)
{
    const char *type = MHD_lookup_connection_value(a->connection, MHD_HEADER_KIND, "Content-Type");
    struct span rest = span_of(type ? type : ""), word = span_trim(span_cut(&rest, ';'));
    struct admin_answer refusal = {0};

    if (strcmp(a->path, "/v1/plans") != 0 || strcmp(a->method, "POST") != 0)
        return NULL;
    bool welcome = is_welcome(a, &refusal);
    mem_give(refusal.body.at);
    return welcome ? plan_body_make(a->door->server,
                                    span_is_nocase(word, "application/x-ndjson"), NULL)
                   : NULL;
}

/* ---- answers ---- */
static void refuse(struct admin_answer *out, enum err err, const char *why)
{
    static const char hint[] = "nothing was begun; the README's \"Plans\" has the format";

    switch (err) {
    case ERR_SYNTAX: answer_refuse(out, MHD_HTTP_BAD_REQUEST, "bad_request", why, hint); break;
    case ERR_TOO_LARGE:
        answer_refuse(out, MHD_HTTP_CONTENT_TOO_LARGE, "too_large", why, hint);
        break;
    case ERR_NOT_FOUND:
        answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", why,
                      "upstream.match says which buckets are served");
        break;
    case ERR_BUSY:
        answer_refuse(out, MHD_HTTP_CONFLICT, "conflict", "16 plans are not over",
                      "headpond plan show lists them, headpond plan drop ID drops one");
        break;
    default:
        answer_refuse(out, MHD_HTTP_SERVICE_UNAVAILABLE, "no_memory",
                      "there is no memory for the plan", "post it again later");
    }
}

void answer_plan_post(const struct visit *a, struct admin_answer *out)
{
    json_t *said;
    const char *why = "";
    enum err err =
        a->plan ? plan_told_post(a->door->server, a->plan, NULL, &said, &why) : ERR_MEMORY;

    if (err == OK) {
        out->code = MHD_HTTP_ACCEPTED;
        say_json(a, out, said);
    } else {
        refuse(out, err, why);
    }
}

/* What was found, or why not. */
static void say_found(const struct visit *a, struct admin_answer *out, enum err err, json_t *said)
{
    if (err == OK)
        say_json(a, out, said);
    else if (err == ERR_NOT_FOUND)
        answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "there is no such plan",
                  "headpond plan show lists those that are known; they are lost at a restart");
    else
        refuse(out, err, "");
}

void answer_plans(const struct visit *a, struct admin_answer *out)
{
    json_t *said;
    enum err err = plan_told(a->door->server, 0, NULL, &said);

    say_found(a, out, err, said);
}

/* Of "/v1/plans/p7"; 0: it is none. */
static uint64_t read_id(const char *path)
{
    struct span word = span_from(span_of(path), strlen("/v1/plans/"));
    uint64_t id;

    return word.len > 1 && word.at[0] == 'p' && span_u64(span_from(word, 1), &id) == OK ? id : 0;
}

void answer_plan(const struct visit *a, struct admin_answer *out)
{
    json_t *said = NULL;
    uint64_t id = read_id(a->path);
    enum err err = id > 0 ? plan_told(a->door->server, id, NULL, &said) : ERR_NOT_FOUND;

    say_found(a, out, err, said);
}

void answer_plan_drop(const struct visit *a, struct admin_answer *out)
{
    json_t *said = NULL;
    uint64_t id = read_id(a->path);
    enum err err = id > 0 ? plan_told_drop(a->door->server, id, NULL, &said) : ERR_NOT_FOUND;

    say_found(a, out, err, said);
}
