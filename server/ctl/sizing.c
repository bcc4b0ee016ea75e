/* headpond status --sizing: what the cache would give at other sizes.
 *
 * Invariants:
 *  1. What is not known says why; a number stands there for what was read twice at least.
 *
 * Life: one look. Failure: the exit codes of ctl.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>

#include "units.h"

enum { SIZING_TEXT_BYTES = 32 * KIB, COLUMN = 12, PREFIX_COLUMN = 34, PREFIX_BYTES = 256 };

/* Up to that column of the line that began at `from`, at least by one. */
static void pad(struct text *t, size_t from, size_t column)
{
    do
        text_addc(t, ' ');
    while (t->len < from + column && !t->over);
}

static void add_line(struct text *t, const char *prefix, const json_t *line)
{
    const json_t *predicted = json_object_get(line, "predicted");
    size_t from = t->len, column = PREFIX_COLUMN;

    text_adds(t, "  ");
    text_add_printable(t, span_of(prefix), PREFIX_BYTES);
    pad(t, from, column);
    units_bytes(t, value_u64(line, "distinct"));
    column += COLUMN;
    pad(t, from, column);
    if (strcmp(value_text(line, "state"), "ready") == 0) {
        units_percent(t, value_number(line, "measured"), 1);
        for (size_t i = 0; i < json_array_size(predicted); i++) {
            pad(t, from, column += COLUMN);
            units_percent(t, json_number_value(json_array_get(predicted, i)), 1);
        }
    } else if (strcmp(value_text(line, "state"), "few") == 0) {
        text_adds(t, "too few of its chunks are sampled");
    } else {
        text_adds(t, "not enough seen yet: ");
        units_bytes(t, value_u64(line, "asked"));
        text_adds(t, " read, twice the data is needed");
    }
    text_addc(t, '\n');
}

static void add_head(struct text *t, const json_t *sizes)
{
    size_t from = t->len, column = PREFIX_COLUMN;

    text_adds(t, "  prefix");
    pad(t, from, column);
    text_adds(t, "data");
    pad(t, from, column += COLUMN);
    text_adds(t, "measured");
    for (size_t i = 0; i < json_array_size(sizes); i++) {
        const json_t *size = json_array_get(sizes, i);
        pad(t, from, column += COLUMN);
        units_bytes(t, value_u64(size, "capacity"));
    }
    text_addc(t, '\n');
}

void sizing_text(const json_t *answer, struct text *out)
{
    const json_t *groups = json_object_get(answer, "groups");
    size_t count = json_array_size(groups);

    if (!value_true(answer, "known")) {
        text_adds(out, "there was no memory for it when the server started\n");
        return;
    }
    text_adds(out, "share of bytes served without asking upstream, as measured and as forecast for "
                   "a cache of\nhalf the size, this one, twice and four times the size");
    if (value_u64(answer, "half_life")) {
        text_adds(out, " (what lies ");
        units_bytes(out, value_u64(answer, "half_life"));
        text_adds(out, " of reads back counts half)");
    }
    text_adds(out, "\n");
    add_head(out, json_object_get(answer, "sizes"));
    add_line(out, "all", json_object_get(answer, "all"));
    for (size_t i = 0; i < count && count > 1; i++) {
        const json_t *group = json_array_get(groups, i);
        const char *prefix = value_text(group, "prefix");
        add_line(out, prefix[0] ? prefix : "(others)", group);
    }
}

/* Ends the life of both. */
static void print_sizing(const struct ctl *c, const char *server, json_t *answer, struct reply *r)
{
    static char memory[SIZING_TEXT_BYTES];
    struct text t;

    text_init(&t, memory, sizeof memory);
    sizing_text(answer, &t);
    if (c->json)
        ctl_print_json(answer);
    else
        printf("%s%s%.*s", server, server[0] ? ": " : "", (int)t.len, t.at);
    json_decref(answer);
    reply_free(r);
}

static bool show_from(const struct ctl *c, const char *server)
{
    char why[CTL_WHY_BYTES];
    struct reply r = {0};
    bool got = client_get(server, "/v1/sizing", c->timeout_ms, &r, why) == OK;
    json_t *answer = got ? reply_json(&r, why) : NULL;

    if (answer) {
        print_sizing(c, server, answer, &r);
        return true;
    }
    fprintf(stderr, "headpond: %s\n", why);
    reply_free(&r);
    return false;
}

static int show_of_one(const struct ctl *c)
{
    struct reply r = {0};
    int code = CTL_DONE;
    json_t *answer = client_json(c, "/v1/sizing", &r, &code);

    if (answer)
        print_sizing(c, "", answer, &r);
    return code;
}

int sizing_show(const struct ctl *c)
{
    unsigned answered = 0;

    if (c->server_count <= 1)
        return show_of_one(c);
    for (unsigned i = 0; i < c->server_count; i++)
        answered += show_from(c, c->server[i]);
    return answered == c->server_count ? CTL_DONE : answered ? CTL_PARTLY : CTL_UNREACHABLE;
}
