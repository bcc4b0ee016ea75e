/* Verbs about the cache's disks: disk ls, disk fence, disk readmit.
 *
 * Invariants:
 *  1. What fences or readmits is one request to one server; the state is the server's to decide.
 *
 * Life: one question each. Failure: the exit codes of ctl.h; 4 if the server has no such disk. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>

#include "http.h"
#include "units.h"

enum {
    DISK_LINE_BYTES = 8 * KIB, DISK_PATH_BYTES = 8 * KIB, DIR_SHOWN_BYTES = 4 * KIB,
    LOST_PART = 100,                 /* less of the capacity is not told */
};

static void add_trouble(struct text *t, const json_t *d)
{
    uint64_t stuck = value_u64(d, "stuck_ops");

    if (value_text(d, "why")[0]) {
        text_adds(t, "\n    ");
        text_add_printable(t, span_of(value_text(d, "why")), 200);
        text_adds(t, "; ");
        text_add_printable(t, span_of(value_text(d, "fix")), 200);
    }
    if (stuck) {
        text_addf(t, "\n    %llu operation%s hang%s and keep%s ", (unsigned long long)stuck,
                  stuck == 1 ? "" : "s", stuck == 1 ? "s" : "", stuck == 1 ? "s" : "");
        units_bytes(t, value_u64(d, "quarantined"));
        text_adds(t, " of memory");
    }
}

void disk_add_lost(struct text *t, const json_t *of)
{
    uint64_t lost = value_u64(of, "lost");

    if (lost == 0 || lost < value_u64(of, "capacity") / LOST_PART)
        return;
    text_adds(t, ", ");
    units_bytes(t, lost);
    text_adds(t, " lost beside them");
}

/* One line, and further ones on what is wrong with it. */
static void disk_text(const struct ctl *c, const json_t *d, struct text *out)
{
    bool up = strcmp(value_text(d, "state"), "up") == 0;
    struct text t = *out;

    text_add_printable(&t, span_of(value_text(d, "dir")), DIR_SHOWN_BYTES);
    while (t.len < 32 && !t.over)
        text_addc(&t, ' ');
    text_addf(&t, "  %s", ctl_paint(c, up ? "32" : "31"));
    text_add_printable(&t, span_of(value_text(d, "state")), 20);
    text_adds(&t, ctl_paint(c, "0"));
    if (!up) {
        text_adds(&t, " for ");
        units_duration(&t, value_u64(d, "since_s"));
    }
    text_adds(&t, "  ");
    units_bytes_of(&t, value_u64(d, "used"), value_u64(d, "capacity"));
    disk_add_lost(&t, d);
    text_adds(&t, "  ");
    units_count(&t, value_u64(d, "errors"));
    text_adds(&t, " errors, ");
    units_count(&t, value_u64(d, "slow"));
    text_adds(&t, " slow");
    add_trouble(&t, d);
    *out = t;
}

static void print_disks(const struct ctl *c, json_t *answer)
{
    const json_t *disks = json_object_get(answer, "disks");
    char memory[DISK_LINE_BYTES];

    if (c->json)
        ctl_print_json(answer);
    for (size_t i = 0; i < json_array_size(disks) && !c->json; i++) {
        struct text t;
        text_init(&t, memory, sizeof memory);
        disk_text(c, json_array_get(disks, i), &t);
        printf("%.*s\n", (int)t.len, t.at);
    }
    json_decref(answer);
}

int disk_ls_run(struct ctl *c)
{
    struct reply r = {0};
    int code = CTL_DONE;
    json_t *answer = client_json(c, "/v1/disks", &r, &code);

    if (!answer)
        return code;
    print_disks(c, answer);
    reply_free(&r);
    return CTL_DONE;
}

static int change_disk(struct ctl *c, const char *what)
{
    char path[DISK_PATH_BYTES];
    struct reply r = {0};
    struct text t;
    int code = CTL_DONE;

    text_init(&t, path, sizeof path);
    text_addf(&t, "/v1/disks/%s?dir=", what);
    uri_encode(&t, span_of(c->word[0]), true);
    if (t.over) {
        fputs("headpond: no directory has so long a name; headpond disk ls lists them\n", stderr);
        return CTL_USAGE;
    }
    const struct request ask = {.method = "POST", .path = path};
    json_t *answer = client_change(c, &ask, &r, &code);
    if (!answer)
        return code;
    if (c->json || !c->quiet)
        print_disks(c, answer);
    else
        json_decref(answer);
    reply_free(&r);
    return CTL_DONE;
}

int disk_fence_run(struct ctl *c)
{
    return change_disk(c, "fence");
}

int disk_readmit_run(struct ctl *c)
{
    return change_disk(c, "readmit");
}
