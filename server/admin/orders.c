/* /v1/config/reload and /v1/drain: what an operator orders of the server as a whole.
 *
 * Invariants:
 *  1. A reload is answered with its outcome: 200 when every core follows the new configuration, 422
 *     with every mistake and its place when nothing has changed.
 *  2. A drain is answered before the server begins to end.
 *
 * Life: one request's; it waits on its connection's thread.
 * Failure: an outcome that takes too long is told as 503; the log has it then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <microhttpd.h>
#include <stdio.h>

#include "server/admin/admin.h"

enum { RELOAD_MS = 25000, SMALL_BYTES = KIB, RELOAD_BYTES = 128 * KIB };

static void add_restart(struct text *t, struct span options)
{
    const char *between = "";

    text_adds(t, ",\"restart_needed\":[");
    for (; options.len; between = ",") {
        text_adds(t, between);
        struct span one = span_trim(span_cut(&options, ','));
        text_addf(t, "\"%.*s\"", (int)one.len, one.at);
    }
    text_addc(t, ']');
}

static void tell_mistakes(const struct reload_outcome *o, struct admin_answer *out)
{
    const struct conf_mistakes *m = &o->mistakes;
    unsigned shown = m->count < CONF_MISTAKES_MAX ? m->count : CONF_MISTAKES_MAX;
    struct text *t = &out->body;
    char message[100];

    snprintf(message, sizeof message, "%u mistake%s; nothing has changed", m->count,
             m->count == 1 ? "" : "s");
    out->code = MHD_HTTP_UNPROCESSABLE_CONTENT;
    text_adds(t, "{\"error\":{");
    json_text(t, "code", span_of("bad_config"));
    json_text(t, "message", span_of(m->count ? message : err_text(o->result)));
    json_text(t, "hint", span_of("correct them, then reload again; headpondd check --config FILE "
                                 "looks before"));
    json_u64(t, "count", m->count);
    json_open(t, "mistakes", '[');
    for (unsigned i = 0; i < shown; i++)
        json_text(t, NULL, span_of(m->item[i].text));
    text_adds(t, "]}}\n");
}

void answer_reload(const struct visit *a, struct admin_answer *out)
{
    struct reload_outcome *o = mem_take(sizeof *o);
    enum err e = o ? server_ask_reload(a->door->server, RELOAD_MS, o) : ERR_MEMORY;

    if (e == ERR_MEMORY) {
        answer_refuse(out, MHD_HTTP_SERVICE_UNAVAILABLE, "no_memory", "a memory limit is reached",
                      "try again");
    } else if (e == ERR_CANCELLED) {
        answer_refuse(out, MHD_HTTP_CONFLICT, "conflict", "the server is draining",
                      "its next start reads the configuration");
    } else if (e != OK) {
        answer_refuse(out, MHD_HTTP_SERVICE_UNAVAILABLE, "timeout",
                      "the reload goes on and has not ended yet",
                      "the log tells how it ends, and headpond_config_reload_success");
    } else if (answer_room(out, RELOAD_BYTES)) {
        if (o->result != OK) {
            tell_mistakes(o, out);
        } else {
            text_adds(&out->body, "{\"v\":1,\"ok\":true");
            add_restart(&out->body, span_of(o->restart));
            text_adds(&out->body, "}\n");
        }
    }
    mem_give(o);
}

void answer_drain(const struct visit *a, struct admin_answer *out)
{
    struct settings *now = settings_hold(a->door->server);

    out->ends_server = true;
    if (answer_room(out, SMALL_BYTES))
        text_addf(&out->body, "{\"v\":1,\"state\":\"draining\",\"drain_timeout_ms\":%llu}\n",
                  (unsigned long long)now->config->server_drain_timeout);
    settings_drop(now);
}
