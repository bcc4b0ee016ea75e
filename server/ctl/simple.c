/* Verbs of a few lines: ready, version, config show and reload, drain.
 *
 * Invariants:
 *  1. ready ends with the first 200 of /readyz, or when its time is up, whatever the server does.
 *
 * Life: each is one question, ready repeats it. Failure: the exit codes of ctl.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <poll.h>
#include <stdio.h>

#include "units.h"

enum { READY_EVERY_MS = 500, VALUE_BYTES = 4 * KIB };

/* ---- ready ---- */

/* OK: ready; ERR_CONFIG: never will be; anything else: not yet, with why. */
static enum err ask_ready(const struct ctl *c, uint64_t left_ms, char why[CTL_WHY_BYTES])
{
    struct ctl once = *c;
    struct reply r = {0};
    struct text t;

    once.timeout_ms = min_u64(c->timeout_ms, max_u64(left_ms, 1));
    once.answered = NULL;            /* what starts may open one of its listeners after another */
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

/* What a server says is no command to a terminal. */
static void print_printable(struct span bytes)
{
    char *memory = mem_take(bytes.len + 1);
    struct text t;

    if (!memory)
        return;
    text_init(&t, memory, bytes.len + 1);
    text_add_printable(&t, bytes, bytes.len);
    fputs(memory, stdout);
    mem_give(memory);
}

static void print_value(const json_t *value)
{
    size_t len = json_dumpb(value, NULL, 0, JSON_ENCODE_ANY);
    char *memory = mem_take(len + 1);

    if (!memory)
        return;
    json_dumpb(value, memory, len, JSON_ENCODE_ANY);
    print_printable(span_make(memory, len));
    mem_give(memory);
}

/* JSON scalars and lists of texts are TOML too. */
static void print_pairs(const json_t *section)
{
    for (void *at = json_object_iter((json_t *)(uintptr_t)section); at;
         at = json_object_iter_next((json_t *)(uintptr_t)section, at)) {
        const char *key = json_object_iter_key(at), *quote = strchr(key, '.') ? "\"" : "";
        fputs(quote, stdout);
        print_printable(span_of(key));
        printf("%s = ", quote);
        print_value(json_object_iter_value(at));
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
            fputs("\n[[", stdout);
            print_printable(span_of(json_object_iter_key(at)));
            puts("]]");
            print_pairs(json_array_get(section, i));
        }
        if (!json_is_object(section))
            continue;
        printf("%s[", gap);
        print_printable(span_of(json_object_iter_key(at)));
        puts("]");
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

/* ---- config reload ---- */

static void print_mistakes(const struct ctl *c, const json_t *error)
{
    const json_t *all = json_object_get(error, "mistakes");
    uint64_t count = value_u64(error, "count");

    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *text = json_string_value(json_array_get(all, i));
        char memory[KIB];
        struct text t;
        if (c->json) {
            json_t *line = json_pack("{s:i,s:s}", "v", 1, "error", text ? text : "");
            ctl_print_json(line);
            json_decref(line);
            continue;
        }
        text_init(&t, memory, sizeof memory);
        text_add_printable(&t, span_of(text ? text : ""), sizeof memory - 1);
        fprintf(stderr, "%s\n", memory);
    }
    fprintf(stderr, "%llu error%s, nothing has changed; correct them and reload again\n",
            (unsigned long long)count, count == 1 ? "" : "s");
}

static void print_applied(const struct ctl *c, const json_t *answer)
{
    const json_t *kept = json_object_get(answer, "restart_needed");
    char memory[4 * KIB];
    struct text t;

    if (c->json) {
        ctl_print_json(answer);
        return;
    }
    text_init(&t, memory, sizeof memory);
    for (size_t i = 0; i < json_array_size(kept); i++) {
        const char *name = json_string_value(json_array_get(kept, i));
        text_adds(&t, i ? ", " : "");
        text_add_printable(&t, span_of(name ? name : ""), 100);
    }
    if (!c->quiet)
        puts("reloaded");
    if (t.len)
        ctl_say(c, "these keep their values until a restart: %s\n"
                   "sudo systemctl restart headpond\n", memory);
}

int config_reload_run(struct ctl *c)
{
    const struct request ask = {.method = "POST", .path = "/v1/config/reload"};
    char why[CTL_WHY_BYTES];
    struct reply r = {0};
    int code = CTL_DONE;

    enum err e = client_send(c, &ask, &r, why);
    json_t *answer = e == OK ? json_loadb(r.body, r.len, 0, NULL) : NULL;
    const json_t *error = json_object_get(answer, "error");
    if (e == OK && r.status == 422 && value_u64(error, "count")) {
        print_mistakes(c, error);
        code = CTL_USAGE;
    } else if (e == OK && r.status == 200 && value_true(answer, "ok")) {
        print_applied(c, answer);
    } else {
        code = client_fail(e, &r, why);
    }
    json_decref(answer);
    reply_free(&r);
    return code;
}

/* ---- drain ---- */

int drain_run(struct ctl *c)
{
    char limit[32];
    struct text t;
    int code = CTL_DONE;
    json_t *answer = client_call(c, "POST", "/v1/drain", NULL, &code);

    if (!answer)
        return code;
    text_init(&t, limit, sizeof limit);
    units_duration(&t, value_u64(answer, "drain_timeout_ms") / 1000);
    if (c->json)
        ctl_print_json(answer);
    else if (!c->quiet)
        printf("draining: not ready any more, it ends when what runs has finished, in %s at most\n"
               "again: sudo systemctl start headpond\n", limit);
    json_decref(answer);
    return CTL_DONE;
}
