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
                                    span_is_nocase(word, "application/x-ndjson"))
                   : NULL;
}

/* ---- telling ---- */
static void set_number(json_t *to, const char *name, uint64_t value)
{
    json_object_set_new(to, name, json_integer((json_int_t)value));
}

static json_t *id_json(uint64_t id)
{
    char text[24];

    snprintf(text, sizeof text, "p%llu", (unsigned long long)id);
    return json_string(text);
}

static void set_names(json_t *to, const struct plan_view *v)
{
    json_t *names = json_array();

    for (unsigned i = 0; i < v->name_count; i++)
        json_array_append_new(names, text_of(v->name[i]));
    json_object_set_new(to, "first_unknown", names);
}

static json_t *objects_json(const struct plan_view *v)
{
    json_t *objects = json_object();

    set_number(objects, "planned", v->objects);
    set_number(objects, "entries", v->entries);
    set_number(objects, "read", v->read);
    set_number(objects, "skipped", v->skipped);
    set_number(objects, "late", v->late);
    set_number(objects, "unknown", v->unknown);
    set_number(objects, "failed", v->failed);
    return objects;
}

static json_t *plan_json(const struct plan_view *v, bool whole)
{
    json_t *plan = json_object();

    set_number(plan, "v", 1);
    json_object_set_new(plan, "id", id_json(v->id));
    json_object_set_new(plan, "job", json_string(v->facts.job));
    set_number(plan, "epoch", v->facts.epoch);
    json_object_set_new(plan, "prefix", text_of(v->facts.prefix));
    json_object_set_new(plan, "state", json_string(plan_state_name(v->state)));
    add_time(plan, "created", v->created_ms);
    add_time(plan, "expires", v->expires_ms);
    set_number(plan, "streams", v->streams);
    json_object_set_new(plan, "objects", objects_json(v));
    if (v->known + v->unknown + v->failed >= v->objects)
        set_number(plan, "bytes", v->known_bytes);
    set_number(plan, "cursor", v->place);
    set_number(plan, "ahead_bytes", v->ahead_bytes);
    set_number(plan, "rate_bytes_per_s", v->rate_bytes_per_s);
    if (v->rate_bytes_per_s > 0)
        json_object_set_new(plan, "lead_s",
                            json_real((double)v->ahead_bytes / (double)v->rate_bytes_per_s));
    if (v->note[0])
        json_object_set_new(plan, "note", json_string(v->note));
    if (whole)
        set_names(plan, v);
    return plan;
}

/* What is known at once. */
static json_t *posted_json(const struct plan_view *v)
{
    json_t *plan = json_object();

    set_number(plan, "v", 1);
    json_object_set_new(plan, "id", id_json(v->id));
    set_number(plan, "objects", v->objects);
    set_number(plan, "cached_bytes", v->here_bytes);
    if (v->known < v->objects)
        return plan;
    set_number(plan, "bytes", v->known_bytes);
    set_number(plan, "unknown", 0);
    set_names(plan, v);
    return plan;
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
    struct plan_view *v = mem_take(sizeof *v);
    struct plan *plan = NULL;
    const char *why = "";
    enum err err = ERR_MEMORY;

    if (a->plan && v) {
        err = plan_body_end(a->plan, &plan);
        why = plan_body_why(a->plan);
    }
    if (err == OK) {
        err = plans_post(a->door->server, plan, v);
        why = err == ERR_SYNTAX ? "the plan has no entry" : "all plans together hold too much";
    }
    if (err == OK) {
        out->code = MHD_HTTP_ACCEPTED;
        say_json(a, out, posted_json(v));
    } else {
        refuse(out, err, why);
    }
    mem_give(v);
}

void answer_plans(const struct visit *a, struct admin_answer *out)
{
    struct server *s = a->door->server;
    struct plan_view *v = mem_take(sizeof *v);
    json_t *list = json_array();
    uint64_t id[PLANS_MAX];
    unsigned count = v ? plans_list(s, id) : 0;

    for (unsigned i = 0; i < count; i++)
        if (plans_view(s, id[i], v))
            json_array_append_new(list, plan_json(v, false));
    mem_give(v);
    say_json(a, out, json_pack("{s:i,s:o}", "v", 1, "plans", list));
}

/* Of "/v1/plans/p7". */
static bool read_id(const char *path, uint64_t *id)
{
    struct span word = span_from(span_of(path), strlen("/v1/plans/"));

    return word.len > 1 && word.at[0] == 'p' && span_u64(span_from(word, 1), id) == OK;
}

static void refuse_id(struct admin_answer *out)
{
    answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "there is no such plan",
                  "headpond plan show lists those that are known; they are lost at a restart");
}

void answer_plan(const struct visit *a, struct admin_answer *out)
{
    struct plan_view *v = mem_take(sizeof *v);
    uint64_t id;

    if (!v)
        refuse(out, ERR_MEMORY, "");
    else if (read_id(a->path, &id) && plans_view(a->door->server, id, v))
        say_json(a, out, plan_json(v, true));
    else
        refuse_id(out);
    mem_give(v);
}

void answer_plan_drop(const struct visit *a, struct admin_answer *out)
{
    uint64_t id;

    if (!read_id(a->path, &id) || plans_drop(a->door->server, id) != OK) {
        refuse_id(out);
        return;
    }
    json_t *said = json_pack("{s:i,s:o,s:b}", "v", 1, "id", id_json(id), "dropped", 1);
    say_json(a, out, said);
}
