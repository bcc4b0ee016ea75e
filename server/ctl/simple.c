/* Verbs of a few lines: ready, version, config show.
 *
 * Invariants:
 *  1. ready ends with the first 200 of /readyz, or when its time is up, whatever the server does.
 *
 * Life: each is one question, ready repeats it. Failure: the exit codes of ctl.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <poll.h>
#include <stdio.h>

enum { READY_EVERY_MS = 500, VALUE_BYTES = 4 * KIB };

/* ---- ready ---- */

/* OK: ready; ERR_CONFIG: never will be; anything else: not yet, with why. */
static enum err ask_ready(const struct ctl *c, uint64_t left_ms, char why[CTL_WHY_BYTES])
{
    struct ctl once = *c;
    struct reply r = {0};
    struct text t;

    once.timeout_ms = min_u64(c->timeout_ms, max_u64(left_ms, 1));
    TRY(client_ask(&once, "/readyz", &r, why));
    bool ready = r.status == 200;
    text_init(&t, why, CTL_WHY_BYTES);
    text_addf(&t, "%s says: ", r.server);
    struct span line = span_make(r.body, r.len);
    text_add_printable(&t, span_cut(&line, '\n'), 100);
    reply_free(&r);
    return ready ? OK : ERR_BUSY;
}

int ready_run(struct ctl *c)
{
    uint64_t end_ms = clock_ms() + c->wait_ms;
    char why[CTL_WHY_BYTES] = "";

    for (;;) {
        uint64_t now = clock_ms(), left_ms = end_ms > now ? end_ms - now : 0;
        enum err e = ask_ready(c, left_ms, why);
        if (e == OK)
            break;
        now = clock_ms();
        if (e == ERR_CONFIG || now >= end_ms) {
            fprintf(stderr, "headpond: %s%s\n", e == ERR_CONFIG ? "" : "not ready in time. ", why);
            return e == ERR_CONFIG ? CTL_USAGE : CTL_TIMEOUT;
        }
        poll(NULL, 0, (int)min_u64(READY_EVERY_MS, end_ms - now));
    }
    if (c->json)
        puts("{\"v\":1,\"ready\":true}");
    else if (!c->quiet)
        puts("ready");
    return CTL_DONE;
}

/* ---- version ---- */

int version_run(struct ctl *c)
{
    char why[CTL_WHY_BYTES], server[64] = "", name[300] = "";
    struct reply r = {0};
    json_t *status = client_ask(c, "/v1/status", &r, why) == OK ? reply_json(&r, why) : NULL;
    struct text t;

    text_init(&t, server, sizeof server);
    text_add_printable(&t, span_of(value_text(status, "version")), 50);
    text_init(&t, name, sizeof name);
    text_add_printable(&t, span_of(value_text(status, "name")), 256);
    if (c->json) {
        json_t *line = json_pack("{s:i,s:s,s:o}", "v", 1, "headpond", HEADPOND_VERSION, "server",
                                 status ? json_string(server) : json_null());
        ctl_print_json(line);
        json_decref(line);
    } else {
        puts("headpond " HEADPOND_VERSION);
        if (status)
            printf("headpondd %s on %s\n", server, name);
        else
            puts("headpondd: no server answers");
    }
    json_decref(status);
    reply_free(&r);
    return CTL_DONE;
}

/* ---- config show ---- */

/* JSON scalars and lists of texts are TOML too. */
static void print_pairs(const json_t *section)
{
    for (void *at = json_object_iter((json_t *)(uintptr_t)section); at;
         at = json_object_iter_next((json_t *)(uintptr_t)section, at)) {
        printf("%s = ", json_object_iter_key(at));
        json_dumpf(json_object_iter_value(at), stdout, JSON_ENCODE_ANY);
        putchar('\n');
    }
}

static void print_config(const json_t *config)
{
    const char *gap = "";

    for (void *at = json_object_iter((json_t *)(uintptr_t)config); at;
         at = json_object_iter_next((json_t *)(uintptr_t)config, at)) {
        const json_t *section = json_object_iter_value(at);
        for (size_t i = 0; i < json_array_size(section); i++) {
            printf("\n[[%s]]\n", json_object_iter_key(at));
            print_pairs(json_array_get(section, i));
        }
        if (!json_is_object(section))
            continue;
        printf("%s[%s]\n", gap, json_object_iter_key(at));
        gap = "\n";
        print_pairs(section);
    }
}

int config_show_run(struct ctl *c)
{
    struct reply r = {0};
    int code = CTL_DONE;
    json_t *config = client_json(c, "/v1/config", &r, &code);

    if (!config)
        return code;
    if (c->json)
        ctl_print_json(config);
    else
        print_config(config);
    json_decref(config);
    reply_free(&r);
    return CTL_DONE;
}
