/* headpond plan load, show, drop: in which order a job will read.
 *
 * Invariants:
 *  1. What is loaded goes to the server as it stands: there it is judged, and mistakes are told
 *     with their places.
 *
 * Life: each is one question. Failure: the exit codes of ctl.h; 4 when there is no such plan. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "http.h"
#include "server/ctl/ctl.h"
#include "units.h"

enum { PLAN_FILE_MOST = 512 * MIB, PLAN_PATH_BYTES = KIB, PLAN_NAME_BYTES = 160, READ_BYTES = MIB };

/* ---- load ---- */
/* All of the file, in memory of its own. NULL: the reason was told. */
static char *read_all(const char *name, size_t *len)
{
    FILE *f = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
    size_t room = 0, got = 1;
    char *bytes = NULL;

    *len = 0;
    while (f && got > 0 && *len < PLAN_FILE_MOST) {
        if (room - *len < READ_BYTES) {
            char *grown = mem_grow(bytes, 2 * room + READ_BYTES);
            if (!grown)
                break;
            bytes = grown;
            room = 2 * room + READ_BYTES;
        }
        got = fread(bytes + *len, 1, room - *len, f);
        *len += got;
    }
    bool whole = f && got == 0 && !ferror(f);
    if (!whole)
        fprintf(stderr, "headpond: %.200s: %s\n", name,
                f && !ferror(f) ? "more than a plan can be, or than there is memory for"
                                : strerrordesc_np(errno));
    if (f && f != stdin)
        fclose(f);
    if (whole)
        return bytes;
    mem_give(bytes);
    return NULL;
}

/* The first line is a document of its own, and its streams stand behind it. */
static bool is_of_lines(struct span bytes)
{
    struct span rest = bytes, first = span_cut(&rest, '\n');
    json_t *document = json_loadb(first.at ? first.at : "", first.len, 0, NULL);
    bool lines = json_is_object(document) && !json_object_get(document, "streams");

    json_decref(document);
    return lines && rest.len > 0;
}

static void say_count(struct text *t, uint64_t n, const char *what)
{
    units_count(t, n);
    text_addf(t, " %s%s", what, n == 1 ? "" : "s");
}

static void print_posted(const json_t *plan)
{
    char memory[KIB];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_add_printable(&t, span_of(value_text(plan, "id")), 31);
    text_adds(&t, ": ");
    say_count(&t, value_u64(plan, "objects"), "object");
    if (json_object_get(plan, "bytes")) {
        text_adds(&t, ", ");
        units_bytes(&t, value_u64(plan, "bytes"));
    }
    text_adds(&t, ", ");
    units_bytes(&t, value_u64(plan, "cached_bytes"));
    text_adds(&t, " already here");
    printf("%.*s\n", (int)t.len, t.at);
}

int plan_load_run(struct ctl *c)
{
    struct request ask = {.method = "POST", .path = "/v1/plans"};
    struct reply r = {0};
    int code = CTL_FAILED;
    size_t len;

    char *bytes = read_all(c->word[0], &len);
    if (!bytes)
        return CTL_USAGE;
    ask.body = span_make(bytes, len);
    if (is_of_lines(ask.body))
        ask.type = "application/x-ndjson";
    json_t *plan = client_change(c, &ask, &r, &code);
    mem_give(bytes);
    if (!plan)
        return code;
    if (c->json)
        ctl_print_json(plan);
    else if (!c->quiet)
        print_posted(plan);
    json_decref(plan);
    reply_free(&r);
    return CTL_DONE;
}

/* ---- show ---- */
static void say_head(struct text *t, const json_t *plan)
{
    text_add_printable(t, span_of(value_text(plan, "id")), 31);
    text_adds(t, " ");
    text_add_printable(t, span_of(value_text(plan, "job")), PLAN_NAME_BYTES);
    text_adds(t, " epoch ");
    units_count(t, value_u64(plan, "epoch"));
    text_adds(t, " ");
    text_add_printable(t, span_of(value_text(plan, "state")), 31);
    text_adds(t, ", ");
}

static void say_progress(struct text *t, const json_t *plan)
{
    const json_t *objects = json_object_get(plan, "objects");
    uint64_t skipped = value_u64(objects, "skipped"), unknown = value_u64(objects, "unknown"),
             failed = value_u64(objects, "failed");

    units_count(t, value_u64(objects, "read"));
    text_adds(t, " of ");
    units_count(t, value_u64(objects, "entries"));
    text_adds(t, " read, ");
    units_count(t, value_u64(objects, "late"));
    text_adds(t, " late");
    if (skipped) {
        text_adds(t, ", ");
        units_count(t, skipped);
        text_adds(t, " left out");
    }
    if (unknown + failed) {
        text_adds(t, ", ");
        say_count(t, unknown + failed, "object");
        text_adds(t, " not to be had");
    }
    if (json_object_get(plan, "lead_s"))
        text_addf(t, ", %.1f s ahead", value_number(plan, "lead_s"));
    text_adds(t, ", ");
    text_add_printable(t, span_of(value_text(plan, "prefix")), PLAN_NAME_BYTES);
}

void plan_text(const json_t *plan, struct text *t)
{
    const json_t *unknown_names = json_object_get(plan, "first_unknown");

    say_head(t, plan);
    say_progress(t, plan);
    text_adds(t, "\n");
    if (value_text(plan, "note")[0]) {
        text_adds(t, "  ");
        text_add_printable(t, span_of(value_text(plan, "note")), PLAN_NAME_BYTES);
        text_adds(t, "\n");
    }
    for (size_t i = 0; i < json_array_size(unknown_names); i++) {
        const char *name = json_string_value(json_array_get(unknown_names, i));
        text_adds(t, "  not in the store: ");
        text_add_printable(t, span_of(name ? name : ""), PLAN_NAME_BYTES);
        text_adds(t, "\n");
    }
}

static void show_plan(const json_t *plan)
{
    char memory[8 * KIB];
    struct text t;

    text_init(&t, memory, sizeof memory);
    plan_text(plan, &t);
    fwrite(t.at, 1, t.len, stdout);
}

static void plan_path(const struct ctl *c, char out[PLAN_PATH_BYTES])
{
    struct text t;

    text_init(&t, out, PLAN_PATH_BYTES);
    text_adds(&t, "/v1/plans");
    if (c->word_count == 0)
        return;
    text_addc(&t, '/');
    uri_encode(&t, span_of(c->word[0]), false);
}

int plan_show_run(struct ctl *c)
{
    char path[PLAN_PATH_BYTES];
    struct reply r = {0};
    int code = CTL_DONE;

    plan_path(c, path);
    json_t *answer = client_json(c, path, &r, &code);
    if (!answer)
        return code;
    const json_t *list = json_object_get(answer, "plans");
    if (c->json)
        ctl_print_json(answer);
    else if (!list)
        show_plan(answer);
    else if (json_array_size(list) == 0)
        ctl_say(c, "no plans\n");
    for (size_t i = 0; i < json_array_size(list) && !c->json; i++)
        show_plan(json_array_get(list, i));
    json_decref(answer);
    reply_free(&r);
    return CTL_DONE;
}

/* ---- drop ---- */
int plan_drop_run(struct ctl *c)
{
    char path[PLAN_PATH_BYTES];
    int code = CTL_DONE;

    plan_path(c, path);
    json_t *answer = client_call(c, "DELETE", path, NULL, &code);
    if (!answer)
        return code;
    if (c->json)
        ctl_print_json(answer);
    else if (!c->quiet)
        puts("dropped");
    json_decref(answer);
    return CTL_DONE;
}
