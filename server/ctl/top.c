/* headpond top: who asks for how much of what, now.
 *
 * Invariants:
 *  1. Names reach a terminal only through text_add_printable().
 *
 * Life: one question. Failure: the exit codes of ctl.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>

#include "http.h"
#include "units.h"

enum { TOP_SHOWN_BYTES = 200 };

static void print_traffic(const json_t *row, double seconds, double like)
{
    char memory[KIB];
    struct text t;

    text_init(&t, memory, sizeof memory);
    units_rate(&t, value_number(row, "bytes") / seconds, like);
    while (t.len < 12)
        text_addc(&t, ' ');
    text_addf(&t, " %8.1f/s  ", value_number(row, "requests") / seconds);
    text_add_printable(&t, span_of(value_text(row, "name")), TOP_SHOWN_BYTES);
    printf("%.*s\n", (int)t.len, t.at);
}

static void print_top(const json_t *answer)
{
    const json_t *rows = json_object_get(answer, "rows");
    double seconds = value_number(answer, "over_ms") / 1000;
    double most = value_number(json_array_get(rows, 0), "bytes");
    char memory[TOP_SHOWN_BYTES];
    struct text by;

    seconds = seconds > 1 ? seconds : 1;
    text_init(&by, memory, sizeof memory);
    text_add_printable(&by, span_of(value_text(answer, "by")), TOP_SHOWN_BYTES - 1);
    printf("%-12s %8s    %.*s, over %.0f s\n", "bytes", "requests", (int)by.len, by.at, seconds);
    for (size_t i = 0; i < json_array_size(rows); i++)
        print_traffic(json_array_get(rows, i), seconds, most / seconds);
}

int top_run(struct ctl *c)
{
    char path[KIB];
    struct reply r = {0};
    struct text t;
    int code = CTL_DONE;

    text_init(&t, path, sizeof path);
    text_adds(&t, "/v1/top?by=");
    uri_encode(&t, span_of(c->by ? c->by : "prefix"), false);
    json_t *answer = client_json(c, path, &r, &code);
    if (!answer)
        return code;
    if (c->json)
        ctl_print_json(answer);
    else
        print_top(answer);
    json_decref(answer);
    reply_free(&r);
    return CTL_DONE;
}
