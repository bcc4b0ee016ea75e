/* headpond pin, unpin, pins: what stays in the cache by the operator's word.
 *
 * Invariants:
 *  1. Dates are local where they are written and shown; the server hears UTC, or how long from its
 *     own now.
 *
 * Life: each is one question. Failure: the exit codes of ctl.h; 4 when there is no such pin. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>
#include <time.h>

#include "conf.h"
#include "http.h"
#include "units.h"

enum { PIN_PATH_BYTES = 8 * KIB, WHEN_BYTES = 64, PIN_SHOWN_BYTES = 200 };

bool place_read(const char *word, struct span *out)
{
    struct span place = span_of(word), rest;

    if (span_starts(place, span_of("s3://")))
        place = span_from(place, strlen("s3://"));
    rest = place;
    *out = place;
    return span_cut(&rest, '/').len > 0;
}

bool until_read(const char *text, char out[32])
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M",
                                        "%Y-%m-%d"};
    uint64_t ms;

    if (strlen(text) >= 32)
        return false;
    memcpy(out, text, strlen(text) + 1);
    if (conf_read_time_ms(span_of(text), &ms) == OK)
        return ms > 0;
    for (unsigned i = 0; i < ARRAY_COUNT(forms); i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, forms[i], &tm);
        bool utc = end && strcmp(end, "Z") == 0;
        if (!end || (*end && !utc))
            continue;
        time_t at = utc ? timegm(&tm) : mktime(&tm);
        struct tm *in_utc = at > 0 ? gmtime_r(&at, &tm) : NULL;
        return in_utc && strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", in_utc) > 0;
    }
    return false;
}

void when_add(struct text *t, const char *utc)
{
    struct tm tm = {0};
    char when[WHEN_BYTES];

    if (!strptime(utc, "%Y-%m-%dT%H:%M:%S", &tm)) {
        text_add_printable(t, span_of(utc), PIN_SHOWN_BYTES);
        return;
    }
    time_t at = timegm(&tm);
    if (localtime_r(&at, &tm) && strftime(when, sizeof when, "%Y-%m-%d %H:%M %Z", &tm) > 0)
        text_adds(t, when);
}

static int change_pin(struct ctl *c, const char *method, json_t **answer)
{
    char path[PIN_PATH_BYTES], until[32];
    struct reply r = {0};
    struct span place;
    struct text t;
    int code = CTL_DONE;

    if (!place_read(c->word[0], &place)) {
        fprintf(stderr, "headpond: \"%.80s\" names no bucket; write s3://BUCKET/PREFIX\n",
                c->word[0]);
        return CTL_USAGE;
    }
    text_init(&t, path, sizeof path);
    text_adds(&t, "/v1/pins?prefix=");
    uri_encode(&t, place, true);
    if (c->until && until_read(c->until, until)) {
        text_adds(&t, "&until=");
        uri_encode(&t, span_of(until), false);
    }
    if (t.over) {
        fprintf(stderr, "headpond: \"%.80s...\" is longer than any key; write a shorter prefix\n",
                c->word[0]);
        return CTL_USAGE;
    }
    const struct request ask = {.method = method, .path = path};
    *answer = client_change(c, &ask, &r, &code);
    reply_free(&r);
    return code;
}

static int show_change(struct ctl *c, const char *method, const char *what)
{
    char memory[KIB];
    json_t *answer = NULL;
    int code = change_pin(c, method, &answer);
    struct text t;

    if (!answer)
        return code;
    if (c->json) {
        ctl_print_json(answer);
    } else if (!c->quiet) {
        const char *until = value_text(answer, "until");
        text_init(&t, memory, sizeof memory);
        text_addf(&t, "%s ", what);
        text_add_printable(&t, span_of(value_text(answer, "prefix")), PIN_SHOWN_BYTES);
        text_adds(&t, until[0] ? " until " : "");
        when_add(&t, until);
        printf("%.*s\n", (int)t.len, t.at);
    }
    json_decref(answer);
    return code;
}

int pin_run(struct ctl *c)
{
    return show_change(c, "PUT", "pinned");
}

int unpin_run(struct ctl *c)
{
    return show_change(c, "DELETE", "unpinned");
}

/* ---- pins ---- */
static void print_pin(const json_t *pin)
{
    char memory[KIB];
    const char *until = value_text(pin, "until");
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_add_printable(&t, span_of(value_text(pin, "prefix")), PIN_SHOWN_BYTES);
    while (t.len < 40 && !t.over)
        text_addc(&t, ' ');
    if (until[0]) {
        text_adds(&t, "  until ");
        when_add(&t, until);
    } else {
        text_adds(&t, value_true(pin, "section") ? "  by the configuration" : "  for good");
    }
    if (!value_true(pin, "routed"))
        text_adds(&t, "  (no upstream has this bucket)");
    printf("%.*s\n", (int)t.len, t.at);
}

static void print_sum(const json_t *answer)
{
    char memory[KIB];
    struct text t;
    uint64_t over = value_u64(answer, "over_limit");

    text_init(&t, memory, sizeof memory);
    units_bytes(&t, value_u64(answer, "pinned"));
    text_adds(&t, " pinned of at most ");
    units_bytes(&t, value_u64(answer, "limit"));
    if (over) {
        text_adds(&t, "; ");
        units_bytes(&t, over);
        text_adds(&t, " more are kept like anything else");
    }
    if (value_true(answer, "marking"))
        text_adds(&t, " (what is here already is being marked)");
    printf("%.*s\n", (int)t.len, t.at);
}

int pins_run(struct ctl *c)
{
    struct reply r = {0};
    int code = CTL_DONE;
    json_t *answer = client_json(c, "/v1/pins", &r, &code);

    if (!answer)
        return code;
    const json_t *pins = json_object_get(answer, "pins");
    if (c->json) {
        ctl_print_json(answer);
    } else {
        for (size_t i = 0; i < json_array_size(pins); i++)
            print_pin(json_array_get(pins, i));
        print_sum(answer);
    }
    json_decref(answer);
    reply_free(&r);
    return CTL_DONE;
}
