/* The jobs' part of the control plane: what may be asked for, and what is told of it.
 *
 * Invariants:
 *  1. A body is a JSON object whose members are all known and of their type, or nothing happens.
 *  2. Texts of keys are JSON strings: what is no UTF-8 in them is shown with U+FFFD.
 *  3. Counting walks over the whole index on the thread of the one who asks: never on a core, nor
 *     on a thread that others wait for.
 *
 * Life: one request's. Failure: an error with its code, and what to do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>

#include "conf.h"
#include "server/admin/admin.h"
#include "sign.h"
#include "units.h"

enum { WHY_BYTES = 300 };

/* ---- telling ---- */
/* A time, left out where it is 0. */
static void add_time(json_t *to, const char *name, uint64_t wall_ms)
{
    if (wall_ms > 0)
        json_object_set_new(to, name, told_time(wall_ms));
}

static json_t *failures_of(const struct job_view *v)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < v->failure_count; i++) {
        const struct job_failure *f = &v->failure[i];
        json_t *one = json_object();
        json_object_set_new(one, "key", told_key(f->key));
        json_object_set_new(one, "error", json_string(f->error));
        json_object_set_new(one, "tries", json_integer(f->tries));
        json_array_append_new(list, one);
    }
    return list;
}

/* The globs of one sign, as they were given. */
static json_t *globs_of(const struct job_spec *spec, char sign)
{
    struct span rest = span_of(spec->filter);
    json_t *list = json_array();

    while (rest.len > 0) {
        struct span line = span_cut(&rest, '\n');
        if (line.at[0] == sign)
            json_array_append_new(list, json_stringn(line.at + 1, line.len - 1));
    }
    return list;
}

static const char *const orders[] = {
    [ORDER_ANY] = "name", [ORDER_NAME] = "name", [ORDER_GIVEN] = "manifest",
    [ORDER_SIZE] = "size",
};

static void add_prewarm(json_t *job, const struct job_view *v)
{
    static const char *const passes[] = {
        [PASS_NONE] = "queued", [PASS_COUNT] = "counting", [PASS_FETCH] = "fetching",
        [PASS_CHECK] = "checking", [PASS_OVER] = "over", [PASS_LOOK] = "checking",
    };
    static const char *const limits[] = {
        [LIMIT_DISKS] = "disks", [LIMIT_QUOTA] = "quota", [LIMIT_INDEX] = "index_memory",
    };
    json_t *bytes = json_object_get(job, "bytes");

    json_object_set_new(job, "include", globs_of(&v->spec, '+'));
    json_object_set_new(job, "exclude", globs_of(&v->spec, '-'));
    json_object_set_new(job, "bandwidth", json_integer((json_int_t)v->spec.bandwidth));
    json_object_set_new(job, "connections", json_integer(v->spec.connections));
    json_object_set_new(job, "pin", json_boolean(v->spec.pin));
    add_time(job, "until", v->spec.until_s * 1000);
    json_object_set_new(job, "force", json_boolean(v->spec.force));
    json_object_set_new(job, "order", json_string(orders[v->spec.order]));
    if (v->spec.keys.count > 0)
        json_object_set_new(job, "keys", json_integer(v->spec.keys.count));
    json_object_set_new(job, "dry_run", json_boolean(v->spec.dry_run));
    json_object_set_new(job, "pass", json_string(passes[v->pass]));
    json_object_set_new(bytes, "here", json_integer((json_int_t)v->bytes_here));
    if (v->pass <= PASS_COUNT && !v->does_not_fit && v->bytes_free == 0)
        return;
    json_object_set_new(bytes, "needed", json_integer((json_int_t)v->bytes_needed));
    json_object_set_new(bytes, "free", json_integer((json_int_t)v->bytes_free));
    if (!v->does_not_fit)
        return;
    json_object_set_new(job, "error", json_string("would_not_fit"));
    json_object_set_new(job, "limit", json_string(limits[v->limit]));
}

static json_t *job_json(const struct job_view *v, bool whole)
{
    char id[24];
    json_t *job = json_object();

    snprintf(id, sizeof id, "j%llu", (unsigned long long)v->id);
    json_object_set_new(job, "v", json_integer(1));
    json_object_set_new(job, "id", json_string(id));
    json_object_set_new(job, "kind", json_string(job_kind_name(v->spec.kind)));
    json_object_set_new(job, "state", json_string(job_state_name(v->state)));
    json_object_set_new(job, "prefix", told_key(v->spec.prefix));
    add_time(job, "created", v->created_ms);
    add_time(job, "started", v->started_ms);
    add_time(job, "ended", v->ended_ms);
    json_object_set_new(job, "objects",
                        json_pack("{s:I,s:I,s:I,s:I}", "wanted", (json_int_t)v->objects_wanted,
                                  "done", (json_int_t)v->objects_done, "failed",
                                  (json_int_t)v->objects_failed, "skipped",
                                  (json_int_t)v->objects_skipped));
    json_object_set_new(job, "bytes",
                        json_pack("{s:I,s:I}", "wanted", (json_int_t)v->bytes_wanted, "done",
                                  (json_int_t)v->bytes_done));
    if (job_warms(v->spec.kind))
        add_prewarm(job, v);
    if (v->spec.kind == KIND_BACKGROUND)
        json_object_set_new(json_object_get(job, "bytes"), "left",
                            json_integer((json_int_t)job_bytes_left(v)));
    json_object_set_new(job, "dropped", json_integer((json_int_t)v->dropped));
    bool runs = v->state == JOB_RUNNING && v->rate_bytes_per_s > 0;
    json_object_set_new(job, "rate_bytes_per_s",
                        json_integer(runs ? (json_int_t)v->rate_bytes_per_s : 0));
    if (runs && v->bytes_wanted > v->bytes_done)
        json_object_set_new(job, "eta_s", json_integer((json_int_t)(
            (v->bytes_wanted - v->bytes_done) / v->rate_bytes_per_s)));
    if (v->note[0])
        json_object_set_new(job, "note", json_string(v->note));
    if (whole)
        json_object_set_new(job, "failures", failures_of(v));
    return job;
}

char *job_line(const struct job_view *v, size_t *len)
{
    json_t *value = job_json(v, true);
    size_t need = value ? json_dumpb(value, NULL, 0, JSON_COMPACT) : 0;
    char *line = need ? mem_take(need + 1) : NULL;

    if (line) {
        json_dumpb(value, line, need, JSON_COMPACT);
        line[need] = '\n';
        *len = need + 1;
    }
    json_decref(value);
    return line;
}

void say_json(const struct visit *a, struct admin_answer *out, json_t *value)
{
    bool pretty = MHD_lookup_connection_value_n(a->connection, MHD_GET_ARGUMENT_KIND, "pretty", 6,
                                                NULL, NULL) == MHD_YES;

    out->type = type_json;
    if (told_text(value, pretty, &out->body) != OK)
        answer_refuse(out, MHD_HTTP_INTERNAL_SERVER_ERROR, "no_memory", "there is no memory",
                      "try again");
}

/* ---- reading a body ---- */
struct wanted {
    struct job_spec spec;
    bool dry_run;
};

/* A list of globs becomes lines of the filter. */
static bool read_globs(struct wanted *w, char sign, const json_t *list)
{
    struct text t;
    const json_t *one;
    size_t i;

    size_t used = strlen(w->spec.filter);
    text_init(&t, w->spec.filter + used, sizeof w->spec.filter - used);
    json_array_foreach(list, i, one) {
        struct span glob = span_make(json_string_value(one), json_string_length(one));
        if (glob.len == 0 || memchr(glob.at, '\0', glob.len) || memchr(glob.at, '\n', glob.len))
            return false;
        text_addc(&t, sign);
        text_add(&t, glob);
        text_addc(&t, '\n');
    }
    return json_is_array(list) && !t.over;
}

/* A number, or a text with a unit. */
static bool read_bytes(const json_t *value, uint64_t *out)
{
    bool number = json_is_integer(value) && json_integer_value(value) >= 0;

    if (number)
        *out = (uint64_t)json_integer_value(value);
    return number ||
        (json_is_string(value) && conf_read_bytes(span_of(json_string_value(value)), out) == OK);
}

static bool read_order(const json_t *value, enum job_order *out)
{
    for (unsigned i = ORDER_NAME; i < ARRAY_COUNT(orders); i++)
        if (json_is_string(value) && strcmp(json_string_value(value), orders[i]) == 0)
            *out = (enum job_order)i;
    return *out != ORDER_ANY;
}

static bool read_prewarm_member(struct wanted *w, const char *name, const json_t *value)
{
    json_int_t number = json_integer_value(value);

    if (strcmp(name, "include") == 0)
        return read_globs(w, '+', value);
    if (strcmp(name, "exclude") == 0)
        return read_globs(w, '-', value);
    if (strcmp(name, "order") == 0)
        return read_order(value, &w->spec.order);
    if (strcmp(name, "bandwidth") == 0)
        return read_bytes(value, &w->spec.bandwidth);
    if (strcmp(name, "connections") == 0) {
        w->spec.connections = (uint32_t)number;
        return json_is_integer(value) && number >= 0 && number <= 1024;
    }
    if (strcmp(name, "force") == 0) {
        w->spec.force = json_is_true(value);
        return json_is_boolean(value);
    }
    if (strcmp(name, "pin") == 0) {
        w->spec.pin = json_is_true(value);
        return json_is_boolean(value);
    }
    struct span until = span_of(json_string_value(value));
    return strcmp(name, "until") == 0 && until.len > 0 &&
        until_parse(until, clock_wall_s(), &w->spec.until_s) == OK;
}

static bool read_member(struct wanted *w, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    bool evict = w->spec.kind == KIND_EVICT;
    uint64_t ms;

    if (strcmp(name, "prefix") == 0) {
        bool fits = text && json_string_length(value) == strlen(text) &&
            strlen(text) <= JOB_PREFIX_MAX;
        if (fits)
            memcpy(w->spec.prefix, text, strlen(text) + 1);
        return fits;
    }
    if (strcmp(name, "dry_run") == 0) {
        w->dry_run = json_is_true(value);
        return json_is_boolean(value);
    }
    if (w->spec.kind == KIND_PREWARM)
        return read_prewarm_member(w, name, value);
    if (evict && strcmp(name, "keep_pinned") == 0) {
        w->spec.keep_pinned = json_is_true(value);
        return json_is_boolean(value);
    }
    if (!evict || strcmp(name, "unread_for") != 0 || !text ||
        conf_read_time_ms(span_of(text), &ms) != OK)
        return false;
    w->spec.unread_for_s = (ms + 999) / 1000;
    return true;
}

/* false: *out is the refusal. */
static bool read_body(const struct visit *a, struct wanted *w, struct admin_answer *out)
{
    json_error_t error;
    json_t *body = json_loadb(a->body.at, a->body.len, JSON_REJECT_DUPLICATES, &error);
    const char *name, *wrong = NULL;
    char why[WHY_BYTES];
    json_t *value;

    if (!json_is_object(body)) {
        json_decref(body);
        answer_refuse(out, MHD_HTTP_BAD_REQUEST, "bad_request", "the body is no JSON object",
                      "send {\"prefix\":\"BUCKET/PREFIX\"}");
        return false;
    }
    json_object_foreach(body, name, value)
        if (!wrong && !read_member(w, name, value))
            wrong = name;
    if (!wrong && w->spec.until_s && !w->spec.pin)
        wrong = "until";             /* of what? */
    if (wrong) {
        struct text t;
        text_init(&t, why, sizeof why);
        text_adds(&t, "not usable: member ");
        text_add_printable(&t, span_of(wrong), 60);
        answer_refuse(out, MHD_HTTP_BAD_REQUEST, "bad_request", why,
                      w->spec.kind == KIND_EVICT
                          ? "members are prefix (text), unread_for (\"7d\"), keep_pinned, dry_run"
                      : w->spec.kind == KIND_PREWARM
                          ? "members are prefix, include and exclude (lists of globs), order, "
                            "bandwidth, connections, pin, until (\"18h\"), force, dry_run"
                          : "members are prefix (text) and dry_run");
    } else if (w->spec.prefix[0] == '/' || (!w->spec.prefix[0] && w->spec.kind != KIND_VERIFY)) {
        wrong = "prefix";
        answer_refuse(out, MHD_HTTP_BAD_REQUEST, "bad_request", "prefix names no bucket",
                      "send {\"prefix\":\"BUCKET/PREFIX\"}");
    }
    json_decref(body);
    return !wrong;
}

/* ---- making jobs ---- */
static void refuse_err(struct admin_answer *out, enum err err)
{
    if (err == ERR_NOT_FOUND)
        answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "no upstream has that bucket",
                      "see upstream.match: headpond config show");
    else if (err == ERR_FULL)
        answer_refuse(out, MHD_HTTP_INSUFFICIENT_STORAGE, "too_many",
                      "there is no room for one more list of keys",
                      "wait for a job that has one, or take a prefix and globs instead");
    else if (err == ERR_BUSY)
        answer_refuse(out, MHD_HTTP_TOO_MANY_REQUESTS, "too_many_jobs",
                      "16 jobs have not ended yet", "wait for one or cancel one: headpond jobs");
    else
        answer_refuse(out, MHD_HTTP_INTERNAL_SERVER_ERROR, "no_memory", err_text(err), "try again");
}

static void say_count(const struct visit *a, const struct wanted *w, struct admin_answer *out)
{
    struct job_count count;
    enum err err = jobs_count(a->door->server, &w->spec, &count);

    if (err != OK) {
        refuse_err(out, err);
        return;
    }
    say_json(a, out, json_pack("{s:i,s:I,s:I,s:I,s:b}", "v", 1, "matched_objects",
                               (json_int_t)count.objects, "bytes", (json_int_t)count.bytes,
                               "pinned_skipped", (json_int_t)count.pinned_skipped, "dry_run", 1));
}

static void say_job(const struct visit *a, uint64_t id, struct admin_answer *out)
{
    struct job_view *v = mem_take(sizeof *v);
    bool known = v && jobs_view(a->door->server, id, v);

    if (known)
        say_json(a, out, job_json(v, true));
    else
        answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "there is no such job",
                      "headpond jobs lists those that are known");
    mem_give(v);
}

/* The job makes its pin when it begins to fetch; what could not be pinned then is not begun. */
static bool may_pin(const struct visit *a, const struct wanted *w, struct admin_answer *out)
{
    bool may = !w->spec.pin || w->dry_run ||
        cache_may_pin(a->door->server->cache, span_of(w->spec.prefix));

    if (!may)
        answer_refuse(out, MHD_HTTP_INSUFFICIENT_STORAGE, "too_many", "it cannot be pinned",
                      "headpond pins lists the 256 that there may be: end one");
    return may;
}

/* The list that came along, in its order; false: *out is the refusal. */
static bool settle_keys(const struct visit *a, struct wanted *w, struct admin_answer *out)
{
    struct span prefix = span_of(w->spec.prefix);
    char why[WHY_BYTES];

    span_cut(&prefix, '/');
    if (!a->keys && w->spec.order > ORDER_NAME) {
        answer_refuse(out, MHD_HTTP_BAD_REQUEST, "bad_request",
                      "there is no list whose order it is",
                      "send the keys as NDJSON behind the request (application/x-ndjson)");
        return false;
    }
    if (w->spec.order == ORDER_ANY)
        w->spec.order = a->keys ? ORDER_GIVEN : ORDER_NAME;
    if (!a->keys)
        return true;
    for (uint32_t i = 0; i < key_list_count(a->keys); i++) {
        if (span_starts(key_list_key(a->keys, i), prefix))
            continue;
        snprintf(why, sizeof why, "key %u is not below the prefix", i + 1);
        answer_refuse(out, MHD_HTTP_BAD_REQUEST, "bad_request", why,
                      "keys are whole, without the bucket, and begin like the rest of the prefix");
        return false;
    }
    enum err err = key_list_settle(a->keys, w->spec.order);
    if (err == ERR_SYNTAX)
        answer_refuse(out, MHD_HTTP_BAD_REQUEST, "bad_request",
                      "the list does not say the size of each key",
                      "send {\"key\":...,\"size\":...}, or take another order");
    else if (err != OK)
        refuse_err(out, err);
    return err == OK;
}

static void refuse_list(const struct key_list *keys, struct admin_answer *out)
{
    char why[120];
    struct text t;

    text_init(&t, why, sizeof why);
    text_adds(&t, "the list takes ");
    units_bytes_of(&t, jobs_list_bytes(keys), LISTS_BYTES);
    text_adds(&t, " that all lists have");
    answer_refuse(out, MHD_HTTP_CONTENT_TOO_LARGE, "too_large", why,
                  "leave out etags and sizes, or make several jobs, each behind the end of the one "
                  "before");
}

static void make(const struct visit *a, enum job_kind kind, struct admin_answer *out)
{
    struct wanted w = {.spec.kind = kind};
    uint64_t id;

    if (!read_body(a, &w, out))
        return;
    w.spec.dry_run = w.dry_run && kind == KIND_PREWARM;
    if (w.dry_run && !w.spec.dry_run) {
        say_count(a, &w, out);
        return;
    }
    if (!may_pin(a, &w, out))
        return;
    if (kind == KIND_PREWARM && !settle_keys(a, &w, out))
        return;
    enum err err = jobs_add(a->door->server, &w.spec, a->keys, &id);
    if (err == ERR_TOO_LARGE) {
        refuse_list(a->keys, out);
        return;
    }
    if (err != OK) {
        refuse_err(out, err);
        return;
    }
    out->code = MHD_HTTP_ACCEPTED;
    say_job(a, id, out);
}

void answer_evict(const struct visit *a, struct admin_answer *out)
{
    make(a, KIND_EVICT, out);
}

void answer_revalidate(const struct visit *a, struct admin_answer *out)
{
    make(a, KIND_REVALIDATE, out);
}

void answer_verify(const struct visit *a, struct admin_answer *out)
{
    make(a, KIND_VERIFY, out);
}

void answer_prewarm(const struct visit *a, struct admin_answer *out)
{
    make(a, KIND_PREWARM, out);
}

/* ---- those that are known ---- */
void answer_jobs(const struct visit *a, struct admin_answer *out)
{
    struct server *s = a->door->server;
    const char *state = MHD_lookup_connection_value(a->connection, MHD_GET_ARGUMENT_KIND, "state");
    struct job_view *v = mem_take(sizeof *v);
    uint64_t id[JOBS_LISTED_MAX];
    json_t *list = json_array();
    unsigned count = v ? jobs_list(s, id) : 0;

    for (unsigned i = 0; i < count; i++)
        if (jobs_view(s, id[i], v) && (!state || strcmp(state, job_state_name(v->state)) == 0))
            json_array_append_new(list, job_json(v, false));
    mem_give(v);
    say_json(a, out, json_pack("{s:i,s:o}", "v", 1, "jobs", list));
}

/* "/v1/jobs/j7/what": false: no id stands there. */
static bool read_path(const char *path, uint64_t *id, struct span *what)
{
    struct span rest = span_from(span_of(path), strlen("/v1/jobs/"));
    struct span word = span_cut(&rest, '/');

    *what = rest;
    return word.len > 1 && word.at[0] == 'j' && span_u64(span_from(word, 1), id) == OK;
}

static void wish(const struct visit *a, uint64_t id, enum job_wish what, struct admin_answer *out)
{
    enum err err = jobs_wish(a->door->server, id, what);

    if (err == OK || err == ERR_NOT_FOUND)
        say_job(a, id, out);
    else if (err == ERR_BUSY)
        refuse_err(out, err);
    else if (err == ERR_FULL)
        answer_refuse(out, MHD_HTTP_CONFLICT, "conflict",
                      "its list of keys had to make room for others",
                      "make the job anew, from the list");
    else if (err == ERR_TIMEOUT)
        answer_refuse(out, MHD_HTTP_CONFLICT, "conflict",
                      "the time until which it pins has passed",
                      "make the job anew, with another --until or without a pin");
    else
        answer_refuse(out, MHD_HTTP_CONFLICT, "conflict", "the job is not in a state for that",
                      "headpond job show tells its state: what runs can be paused or cancelled, "
                      "what is paused resumed, what has ended retried");
}

static void refuse_path(struct admin_answer *out)
{
    answer_refuse(
        out, MHD_HTTP_NOT_FOUND, "not_found", "there is nothing at this path",
        "GET /v1/jobs/ID or /v1/jobs/ID/events; POST /v1/jobs/ID/pause, /resume, /retry or "
        "/bandwidth; "
        "DELETE /v1/jobs/ID");
}

void answer_job(const struct visit *a, struct admin_answer *out)
{
    struct span what;
    uint64_t id;

    if (!read_path(a->path, &id, &what) || (what.len > 0 && !span_is(what, "events")))
        refuse_path(out);
    else if (what.len > 0 && jobs_known(a->door->server, id))
        answer_events(a, id, out);
    else
        say_job(a, id, out);
}

/* {"bandwidth":"200MB"}, or a number; 0: no limit. */
static void set_bandwidth(const struct visit *a, uint64_t id, struct admin_answer *out)
{
    json_t *body = json_loadb(a->body.at, a->body.len, JSON_REJECT_DUPLICATES, NULL);
    uint64_t rate = 0;
    bool good =
        json_object_size(body) == 1 && read_bytes(json_object_get(body, "bandwidth"), &rate);

    json_decref(body);
    if (!good) {
        answer_refuse(out, MHD_HTTP_BAD_REQUEST, "bad_request", "the body names no bandwidth",
                      "send {\"bandwidth\":\"200MB\"}, or 0 for no limit");
        return;
    }
    enum err err = jobs_set_bandwidth(a->door->server, id, rate);
    if (err == ERR_DENIED)
        answer_refuse(out, MHD_HTTP_CONFLICT, "conflict", "the job is no prewarm that still runs",
                      "headpond jobs lists those that do");
    else
        say_job(a, id, out);
}

void answer_job_wish(const struct visit *a, struct admin_answer *out)
{
    static const struct {
        const char *word;
        enum job_wish wish;
    } words[] = {{"pause", WISH_PAUSE}, {"resume", WISH_RESUME}, {"retry", WISH_RETRY}};
    struct span what;
    uint64_t id;

    if (read_path(a->path, &id, &what)) {
        for (unsigned i = 0; i < ARRAY_COUNT(words); i++)
            if (span_is(what, words[i].word)) {
                wish(a, id, words[i].wish, out);
                return;
            }
        if (span_is(what, "bandwidth")) {
            set_bandwidth(a, id, out);
            return;
        }
    }
    refuse_path(out);
}

void answer_job_cancel(const struct visit *a, struct admin_answer *out)
{
    struct span what;
    uint64_t id;

    if (!read_path(a->path, &id, &what) || what.len > 0)
        refuse_path(out);
    else
        wish(a, id, WISH_CANCEL, out);
}
