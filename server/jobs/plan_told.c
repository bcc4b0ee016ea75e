/* What is said of loaders' plans, as JSON: to who posts one, asks for them, drops one.
 *
 * Invariants:
 *  1. What he who asks may not read is not told of: such a plan is one that does not exist.
 *  2. An answer is whole, or there is none: a member that found no memory fails it.
 *
 * Life: one request's. Failure: an error of the house, and words for a post. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>

#include "server/jobs/jobs.h"
#include "sign.h"

/* ---- parts ---- */
json_t *told_time(uint64_t wall_ms)
{
    char date[17], text[32];

    sign_date_write(wall_ms / 1000, date);
    snprintf(text, sizeof text, "%.4s-%.2s-%.2sT%.2s:%.2s:%.2sZ", date, date + 4, date + 6,
             date + 9, date + 11, date + 13);
    return json_string(text);
}

json_t *told_key(const char *key)
{
    char memory[3 * KEY_BYTES_MAX + 1];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_add_utf8(&t, span_of(key));
    return json_stringn(t.at, t.len);
}

struct telling {                     /* an object in the making */
    json_t *to;
    bool failed;                     /* a member found no memory */
};

static void set(struct telling *t, const char *name, json_t *value)
{
    t->failed |= json_object_set_new(t->to, name, value) != 0;
}

static void set_number(struct telling *t, const char *name, uint64_t value)
{
    set(t, name, json_integer((json_int_t)value));
}

static struct telling begin(void)
{
    return (struct telling){.to = json_object()};
}

/* NULL: no memory. */
static json_t *end(struct telling *t)
{
    if (!t->failed)
        return t->to;
    json_decref(t->to);
    return NULL;
}

static enum err end_as(struct telling *t, json_t **out)
{
    *out = end(t);
    return *out ? OK : ERR_MEMORY;
}

/* ---- one plan ---- */
static void set_id(struct telling *t, uint64_t id)
{
    char text[24];

    set_number(t, "v", 1);
    snprintf(text, sizeof text, "p%llu", (unsigned long long)id);
    set(t, "id", json_string(text));
}

static void set_names(struct telling *t, const struct plan_view *v)
{
    json_t *names = json_array();

    for (unsigned i = 0; i < v->name_count; i++)
        t->failed |= json_array_append_new(names, told_key(v->name[i])) != 0;
    set(t, "first_unknown", names);
}

static json_t *objects_json(const struct plan_view *v)
{
    struct telling t = begin();

    set_number(&t, "planned", v->objects);
    set_number(&t, "entries", v->entries);
    set_number(&t, "read", v->read);
    set_number(&t, "skipped", v->skipped);
    set_number(&t, "late", v->late);
    set_number(&t, "unknown", v->unknown);
    set_number(&t, "failed", v->failed);
    return end(&t);
}

static void set_progress(struct telling *t, const struct plan_view *v)
{
    double rate = (double)v->rate_bytes_per_s;

    set(t, "objects", objects_json(v));
    if (v->known + v->unknown + v->failed >= v->objects)
        set_number(t, "bytes", v->known_bytes);
    set_number(t, "cursor", v->place);
    set_number(t, "ahead_bytes", v->ahead_bytes);
    set_number(t, "rate_bytes_per_s", v->rate_bytes_per_s);
    if (v->rate_bytes_per_s > 0)
        set(t, "lead_s", json_real((double)v->ahead_bytes / rate));
    if (v->note[0])
        set(t, "note", json_string(v->note));
}

static json_t *plan_json(const struct plan_view *v, bool whole)
{
    struct telling t = begin();

    set_id(&t, v->id);
    set(&t, "job", json_string(v->facts.job));
    set_number(&t, "epoch", v->facts.epoch);
    set(&t, "prefix", told_key(v->facts.prefix));
    set(&t, "state", json_string(plan_state_name(v->state)));
    set(&t, "created", told_time(v->created_ms));
    set(&t, "expires", told_time(v->expires_ms));
    set_number(&t, "streams", v->streams);
    set_progress(&t, v);
    if (whole)
        set_names(&t, v);
    return end(&t);
}

/* What is known at once. */
static json_t *posted_json(const struct plan_view *v)
{
    struct telling t = begin();

    set_id(&t, v->id);
    set_number(&t, "objects", v->objects);
    set_number(&t, "cached_bytes", v->here_bytes);
    if (v->known >= v->objects) {
        set_number(&t, "bytes", v->known_bytes);
        set_number(&t, "unknown", 0);
        set_names(&t, v);
    }
    return end(&t);
}

/* ---- asking ---- */
static bool may_know(const struct plan_right *right, const struct plan_view *v)
{
    return !right || right->may(right, v->facts.prefix);
}

static bool find(struct server *s, uint64_t id, const struct plan_right *right,
                 struct plan_view *out)
{
    return plans_view(s, id, out) && may_know(right, out);
}

static enum err tell_all(struct server *s, const struct plan_right *right, struct plan_view *v,
                         json_t **out)
{
    struct telling t = begin();
    json_t *list = json_array();
    uint64_t id[PLANS_MAX];
    unsigned count = plans_list(s, id);

    for (unsigned i = 0; i < count; i++)
        if (find(s, id[i], right, v))
            t.failed |= json_array_append_new(list, plan_json(v, false)) != 0;
    set_number(&t, "v", 1);
    set(&t, "plans", list);
    return end_as(&t, out);
}

enum err plan_told(struct server *s, uint64_t id, const struct plan_right *right, json_t **out)
{
    struct plan_view *v = mem_take(sizeof *v);
    enum err err = v ? OK : ERR_MEMORY;

    *out = NULL;
    if (v && id == 0) {
        err = tell_all(s, right, v, out);
    } else if (v && find(s, id, right, v)) {
        *out = plan_json(v, true);
        err = *out ? OK : ERR_MEMORY;
    } else if (v) {
        err = ERR_NOT_FOUND;
    }
    mem_give(v);
    return err;
}

enum err plan_told_drop(struct server *s, uint64_t id, const struct plan_right *right,
                        json_t **out)
{
    struct telling t = begin();

    set_id(&t, id);
    set(&t, "dropped", json_true());
    enum err err = end_as(&t, out);
    struct plan_view *v = err == OK ? mem_take(sizeof *v) : NULL;
    if (err == OK && !v)
        err = ERR_MEMORY;
    else if (err == OK && (!find(s, id, right, v) || plans_drop(s, id) != OK))
        err = ERR_NOT_FOUND;
    if (err != OK) {
        json_decref(*out);
        *out = NULL;
    }
    mem_give(v);
    return err;
}

/* ---- posting ---- */
static const char *words_of(enum err err)
{
    switch (err) {
    case OK: return "";
    case ERR_SYNTAX: return "the plan has no entry";
    case ERR_TOO_LARGE: return "all plans together hold too much";
    case ERR_BUSY: return "16 plans are not over";
    case ERR_DENIED: return "a plan of that job is of a prefix that the key may not read: name the "
                            "job otherwise";
    default: return "there is no memory for the plan";
    }
}

enum err plan_told_post(struct server *s, struct plan_body *b, const struct plan_right *right,
                        json_t **out, const char **why)
{
    struct plan_view *v = mem_take(sizeof *v);
    struct plan *plan = NULL;
    enum err err = v ? plan_body_end(b, &plan) : ERR_MEMORY;

    *out = NULL;
    *why = err != OK && v ? plan_body_why(b) : words_of(err);
    if (err == OK) {
        err = plans_post(s, plan, right, v);
        *why = words_of(err);
    }
    if (err == OK) {                 /* it runs: who is not told so posts it again */
        *out = posted_json(v);
        err = *out ? OK : ERR_MEMORY;
        *why = words_of(err);
    }
    mem_give(v);
    return err;
}

/* ---- texts ---- */
enum err told_text(json_t *value, bool pretty, struct text *out)
{
    size_t flags = pretty ? JSON_INDENT(2) : JSON_COMPACT;
    size_t len = value ? json_dumpb(value, NULL, 0, flags) : 0;
    char *memory = len > 0 ? mem_take(len + 2) : NULL;

    text_init(out, memory, memory ? len + 2 : 0);
    if (memory && json_dumpb(value, memory, len, flags) == len) {
        out->len = len;
        text_addc(out, '\n');
    }
    json_decref(value);
    return out->len > 0 ? OK : ERR_MEMORY;
}

enum err plan_text_post(struct server *s, struct plan_body *b, const struct plan_right *right,
                        struct text *out)
{
    json_t *said;
    const char *why;
    enum err err = plan_told_post(s, b, right, &said, &why);

    if (err == OK)
        return told_text(said, false, out);
    char *words = mem_copy(span_of(why));
    text_init(out, words, words ? strlen(words) + 1 : 0);
    text_adds(out, why);
    return err;
}

enum err plan_text(struct server *s, uint64_t id, const struct plan_right *right, struct text *out)
{
    json_t *said;

    text_init(out, NULL, 0);
    TRY(plan_told(s, id, right, &said));
    return told_text(said, false, out);
}

enum err plan_text_drop(struct server *s, uint64_t id, const struct plan_right *right,
                        struct text *out)
{
    json_t *said;

    text_init(out, NULL, 0);
    TRY(plan_told_drop(s, id, right, &said));
    return told_text(said, false, out);
}
