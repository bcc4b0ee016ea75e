/* /v1/pins: what stays in the cache by the operator's word.
 *
 * Invariants:
 *  1. A pin is told as made when a disk has it, so that it outlives a kill -9.
 *  2. Nothing here walks over the cache: the sampler's thread marks what is there already.
 *
 * Life: one request's. Failure: each refusal says what to write. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <microhttpd.h>
#include <stdio.h>
#include <time.h>

#include "http.h"
#include "server/admin/admin.h"

enum {
    PINS_SHOWN_MAX = CACHE_PINS_MAX + CONF_BUCKETS_MAX,
    /* a prefix of control bytes is six times as long in JSON */
    PIN_BYTES = 6 * CACHE_PIN_BYTES + 200,
    SYNC_MS = 3000,
};

/* ---- times ---- */
static bool read_date(struct span text, const char *form, uint64_t *out)
{
    char memory[40];
    struct tm tm = {0};

    if (text.len >= sizeof memory)
        return false;
    memcpy(memory, text.at, text.len);
    memory[text.len] = '\0';
    const char *end = strptime(memory, form, &tm);
    time_t at = end && !*end ? timegm(&tm) : -1;
    *out = at > 0 ? (uint64_t)at : 0;
    return at > 0;
}

enum err until_parse(struct span text, uint64_t now_s, uint64_t *out)
{
    uint64_t ms, at;

    if (text.len == 0) {
        *out = 0;
        return OK;
    }
    if (conf_read_time_ms(text, &ms) == OK)
        at = now_s + (ms + 999) / 1000;
    else if (!read_date(text, "%Y-%m-%dT%H:%M:%SZ", &at) && !read_date(text, "%Y-%m-%d", &at))
        return ERR_SYNTAX;
    if (at <= now_s)
        return ERR_SYNTAX;
    *out = at;
    return OK;
}

static void add_until(struct text *t, uint64_t until_s)
{
    char date[25];

    iso_date_write(until_s * 1000, date);
    json_text(t, "until", span_of(until_s ? date : ""));
}

/* ---- answers ---- */
void answer_pins(const struct visit *v, struct admin_answer *out)
{
    struct cache *cache = v->door->server->cache;
    struct cache_pin *pin = mem_take(PINS_SHOWN_MAX * sizeof *pin);
    struct cache_status s;

    if (!pin)
        return;                      /* answer_send() closes the connection */
    unsigned count = cache_pins(cache, pin, PINS_SHOWN_MAX);
    cache_status(cache, &s);
    if (answer_room(out, PIN_BYTES * (count + 1))) {
        text_addc(&out->body, '{');
        json_u64(&out->body, "v", 1);
        json_u64(&out->body, "pinned", s.pinned_bytes);
        json_u64(&out->body, "limit", s.pin_limit_bytes);
        json_u64(&out->body, "over_limit", s.unpinned_bytes);
        json_bool(&out->body, "marking", s.marking);
        json_open(&out->body, "pins", '[');
        for (unsigned i = 0; i < count; i++) {
            text_adds(&out->body, i ? ",{" : "{");
            json_text(&out->body, "prefix", span_of(pin[i].prefix));
            add_until(&out->body, pin[i].until_s);
            json_bool(&out->body, "section", pin[i].section);
            json_bool(&out->body, "routed", pin[i].routed);
            text_addc(&out->body, '}');
        }
        text_adds(&out->body, "]}\n");
    }
    mem_give(pin);
}

static void refuse_prefix(struct admin_answer *out)
{
    answer_refuse(out, MHD_HTTP_UNPROCESSABLE_CONTENT, "bad_request",
                  "prefix must be a bucket's name, or BUCKET/PREFIX, as clients say it",
                  "write /v1/pins?prefix=train-data/imagenet/");
}

static void tell_done(const struct visit *v, struct admin_answer *out, struct span prefix,
                      uint64_t until_s)
{
    if (!cache_state_sync(v->door->server->cache, SYNC_MS)) {
        answer_refuse(out, MHD_HTTP_SERVICE_UNAVAILABLE, "not_durable",
                      "it holds now, but no cache directory has noted it yet: a restart may undo "
                      "it", "look at headpond_index_errors_total and the disks, then try again");
        return;
    }
    if (!answer_room(out, PIN_BYTES))
        return;
    text_addc(&out->body, '{');
    json_u64(&out->body, "v", 1);
    json_text(&out->body, "prefix", prefix);
    add_until(&out->body, until_s);
    text_adds(&out->body, "}\n");
}

void answer_pin(const struct visit *v, struct admin_answer *out)
{
    struct span prefix = visit_query(v, "prefix"), until = visit_query(v, "until");
    uint64_t until_s;

    if (until_parse(until, clock_wall_s(), &until_s) != OK) {
        answer_refuse(out, MHD_HTTP_UNPROCESSABLE_CONTENT, "bad_request",
                      "until is no time in the future",
                      "write 18h, 7d, 2026-11-21 or 2026-11-21T08:00:00Z, or leave it out");
        return;
    }
    switch (prefix.len ? cache_pin(v->door->server->cache, prefix, until_s) : ERR_SYNTAX) {
    case OK: break;
    case ERR_FULL:
        answer_refuse(out, MHD_HTTP_INSUFFICIENT_STORAGE, "too_many",
                      "there are 256 pins already", "end one, or pin a shorter prefix");
        return;
    case ERR_MEMORY:
        answer_refuse(out, MHD_HTTP_SERVICE_UNAVAILABLE, "no_memory", "a memory limit is reached",
                      "try again");
        return;
    default: refuse_prefix(out); return;
    }
    admin_wake(v->door->server->admin);
    tell_done(v, out, prefix, until_s);
}

void answer_unpin(const struct visit *v, struct admin_answer *out)
{
    struct span prefix = visit_query(v, "prefix");

    switch (cache_unpin(v->door->server->cache, prefix)) {
    case OK: break;
    case ERR_NOT_FOUND:
        answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "there is no pin of just that prefix",
                      "GET /v1/pins lists them; those of the configuration end there");
        return;
    default:
        answer_refuse(out, MHD_HTTP_SERVICE_UNAVAILABLE, "no_memory", "a memory limit is reached",
                      "try again");
        return;
    }
    admin_wake(v->door->server->admin);
    tell_done(v, out, prefix, 0);
}
