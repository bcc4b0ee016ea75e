/* JSON of the control plane: status, configuration, errors.
 *
 * Invariants:
 *  1. What is written is valid JSON (RFC 8259): UTF-8, control characters escaped, no number that
 * is not finite. Text from outside (directory names, client hosts, log lines) passes add_string().
 *  2. "v" stays 1: fields are only ever added.
 *
 * Life: pure functions over a text. Failure: a text that is too small says `over`; the caller
 * answers 500. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"

/* ---- values ---- */

static void add_string(struct text *t, struct span value)
{
    text_addc(t, '"');
    for (size_t i = 0; i < value.len;) {
        struct span rest = span_from(value, i);
        size_t len = span_utf8(rest);
        unsigned char c = (unsigned char)rest.at[0];
        if (len == 0) {
            text_addc(t, '?');
        } else if (c < ' ' || c == 0x7F) {
            text_addf(t, "\\u%04x", c);
        } else {
            if (c == '"' || c == '\\')
                text_addc(t, '\\');
            text_add(t, span_make(rest.at, len));
        }
        i += len ? len : 1;
    }
    text_addc(t, '"');
}

static void add_number(struct text *t, double n, int decimals)
{
    bool sane = n > -1e15 && n < 1e15;   /* false for NaN as well, which JSON cannot say */
    text_addf(t, "%.*f", decimals, sane ? n : 0);
}

/* `"name":` with the comma before it, where something stands before. */
static void add_name(struct text *t, const char *name)
{
    if (t->len && t->at[t->len - 1] != '{' && t->at[t->len - 1] != '[')
        text_addc(t, ',');
    if (!name)                       /* an item of a list */
        return;
    add_string(t, span_of(name));
    text_addc(t, ':');
}

static void add_text_field(struct text *t, const char *name, const char *value)
{
    add_name(t, name);
    add_string(t, span_of(value));
}

static void add_u64_field(struct text *t, const char *name, uint64_t value)
{
    add_name(t, name);
    text_addu(t, value);
}

static void add_number_field(struct text *t, const char *name, double value, int decimals)
{
    add_name(t, name);
    add_number(t, value, decimals);
}

static void add_bool_field(struct text *t, const char *name, bool value)
{
    add_name(t, name);
    text_adds(t, value ? "true" : "false");
}

static void open_field(struct text *t, const char *name, char bracket)
{
    add_name(t, name);
    text_addc(t, bracket);
}

/* ---- the same for other files of the folder ---- */

void json_text(struct text *t, const char *name, struct span value)
{
    add_name(t, name);
    add_string(t, value);
}

void json_u64(struct text *t, const char *name, uint64_t value)
{
    add_u64_field(t, name, value);
}

void json_bool(struct text *t, const char *name, bool value)
{
    add_bool_field(t, name, value);
}

void json_open(struct text *t, const char *name, char bracket)
{
    open_field(t, name, bracket);
}

/* ---- status ---- */

static void add_upstream(struct text *t, const struct status *s, const struct origin_status *u)
{
    bool counted = u->label < CONF_UPSTREAMS_MAX; /* else there was no memory for its name */

    add_text_field(t, "name", u->name);
    add_text_field(t, "endpoint", u->endpoint);
    add_bool_field(t, "up", u->up);
    add_u64_field(t, "down_s", u->down_ms / 1000);
    add_number_field(t, "rtt_ms", u->rtt_ms, 1);
    add_bool_field(t, "throttled", u->throttled);
    add_number_field(t, "throttled_per_min",
                     counted ? s->last.throttled_per_min[u->label] : 0, 1);
    add_u64_field(t, "active", u->active);
    add_u64_field(t, "idle", u->idle);
    add_u64_field(t, "queued", u->queued);
    add_u64_field(t, "concurrency_limit", u->limit);
    add_u64_field(t, "connections", u->connections);
    add_bool_field(t, "directory", u->directory);
    if (u->clock_known) {
        add_name(t, "clock_offset_s");
        text_addf(t, "%lld", (long long)u->clock_offset_s);
    }
    if (u->tls_minor)
        add_text_field(t, "tls", u->tls_minor == 3 ? "1.3" : "1.2");
    if (u->certificate_ends_s)
        add_u64_field(t, "certificate_ends_s", u->certificate_ends_s);
    add_text_field(t, "credentials", u->credentials);
    add_bool_field(t, "credentials_temporary", u->temporary);
    add_bool_field(t, "credentials_renewed", u->renewed);
    if (u->expire_s)
        add_u64_field(t, "credentials_expire_s", u->expire_s);
    if (u->credentials_error[0]) {
        add_text_field(t, "credentials_error", u->credentials_error);
        add_u64_field(t, "credentials_failed_s", u->credentials_failed_s);
    }
    if (u->gets != RIGHT_UNKNOWN)
        add_bool_field(t, "get_allowed", u->gets == RIGHT_ALLOWED);
    if (u->lists != RIGHT_UNKNOWN)
        add_bool_field(t, "list_allowed", u->lists == RIGHT_ALLOWED);
    add_text_field(t, "warning", u->warning);
}

/* "upstream" is the default, or the first. */
static void add_upstreams(struct text *t, const struct status *s)
{
    open_field(t, "upstream", '{');
    add_upstream(t, s, &s->upstream[0]);
    text_addc(t, '}');
    open_field(t, "upstreams", '[');
    for (unsigned i = 0; i < s->upstream_count; i++) {
        text_adds(t, i ? ",{" : "{");
        add_upstream(t, s, &s->upstream[i]);
        text_addc(t, '}');
    }
    text_addc(t, ']');
}

static void add_cache(struct text *t, const struct status *s)
{
    const struct cache_status *c = &s->cache;

    open_field(t, "cache", '{');
    add_u64_field(t, "capacity", c->capacity_bytes);
    add_u64_field(t, "used", c->used_bytes);
    add_u64_field(t, "lost", c->lost_bytes);
    add_u64_field(t, "pinned", s->pinned_bytes);
    add_u64_field(t, "objects", c->objects);
    add_u64_field(t, "chunks", c->chunks);
    add_u64_field(t, "memory", c->pool_bytes);
    add_u64_field(t, "memory_used", c->pool_used_bytes);
    text_addc(t, '}');
}

static void add_rates(struct text *t, const char *name, const struct rates *r)
{
    open_field(t, name, '{');
    add_u64_field(t, "requests", r->requests);
    add_number_field(t, "hit_bytes_ratio", r->hit_bytes_ratio, 4);
    add_number_field(t, "sent_bytes_per_s", r->sent_bytes_per_s, 0);
    add_number_field(t, "upstream_bytes_per_s", r->upstream_bytes_per_s, 0);
    add_number_field(t, "stall_ratio", r->stall_ratio, 4);
    add_number_field(t, "disk_stall_ratio", r->disk_ratio, 4);
    add_number_field(t, "p50_ms", r->p50_ms, 3);
    add_number_field(t, "p99_ms", r->p99_ms, 3);
}

const char *disk_state_name(enum disk_state state)
{
    static const char *const names[] = {[DISK_UP] = "up", [DISK_SUSPECT] = "suspect",
        [DISK_FENCED] = "fenced", [DISK_PROBATION] = "probation"};

    return names[state];
}

void status_disks(struct text *t, const struct cache_status *c)
{
    open_field(t, "disks", '[');
    for (unsigned i = 0; i < c->disk_count && i < ARRAY_COUNT(c->disk); i++) {
        const struct cache_disk_status *d = &c->disk[i];
        text_adds(t, i ? ",{" : "{");
        add_text_field(t, "dir", d->dir);
        add_text_field(t, "state", disk_state_name(d->state));
        add_u64_field(t, "capacity", d->capacity_bytes);
        add_u64_field(t, "used", d->used_bytes);
        add_u64_field(t, "lost", d->lost_bytes);
        add_u64_field(t, "errors", d->errors);
        add_u64_field(t, "slow", d->late_ops);
        add_u64_field(t, "stuck_ops", d->stuck_ops);
        add_u64_field(t, "quarantined", d->quarantined_bytes);
        add_u64_field(t, "since_s", d->since_ms / 1000);
        add_text_field(t, "why", d->why ? d->why : "");
        add_text_field(t, "fix", d->fix ? d->fix : "");
        text_addc(t, '}');
    }
    text_addc(t, ']');
}

static void add_clients(struct text *t, const struct status *s)
{
    open_field(t, "clients", '[');
    for (unsigned i = 0; i < s->client_count; i++) {
        uint64_t last = min_u64(s->client[i].last_wall_s, s->now_wall_s);
        text_adds(t, i ? ",{" : "{");
        add_text_field(t, "host", s->client[i].host);
        add_text_field(t, "agent", s->client[i].agent);
        add_u64_field(t, "seconds_ago", s->now_wall_s - last);
        text_addc(t, '}');
    }
    text_addc(t, ']');
    add_u64_field(t, "client_hosts", s->hosts.count);
    add_bool_field(t, "client_hosts_more", s->hosts.more);
}

static void add_schedules(struct text *t, const struct status *s)
{
    open_field(t, "schedules", '[');
    for (unsigned i = 0; i < s->schedule_count; i++) {
        text_adds(t, i ? ",{" : "{");
        add_text_field(t, "when", s->schedule[i].when);
        add_bool_field(t, "in_force", s->schedule[i].in_force);
        text_addc(t, '}');
    }
    text_addc(t, ']');
    add_u64_field(t, "schedule_changes_s", s->schedule_changes_s);
}

void status_print(const struct status *s, struct text *out)
{
    text_addc(out, '{');
    add_u64_field(out, "v", 1);
    add_text_field(out, "name", s->name);
    add_text_field(out, "version", HEADPOND_VERSION);
    add_text_field(out, "state", s->state);
    add_u64_field(out, "uptime_s", s->uptime_s);
    add_upstreams(out, s);
    add_cache(out, s);
    add_rates(out, "last_5m", &s->last);
    text_addc(out, '}');
    add_rates(out, "last_10s", &s->newest);
    add_u64_field(out, "note", s->note); /* another one: another interval */
    text_addc(out, '}');
    status_disks(out, &s->cache);
    open_field(out, "jobs", '{');
    add_u64_field(out, "running", s->jobs[JOB_RUNNING]);
    add_u64_field(out, "queued", s->jobs[JOB_QUEUED]);
    add_u64_field(out, "paused", s->jobs[JOB_PAUSED]);
    add_u64_field(out, "failed", s->jobs[JOB_FAILED]);
    text_addc(out, '}');
    add_schedules(out, s);
    open_field(out, "warnings", '[');
    for (unsigned i = 0; i < s->warning_count; i++) {
        text_adds(out, i ? "," : "");
        add_string(out, span_of(s->warning[i]));
    }
    text_addc(out, ']');
    add_clients(out, s);
    add_text_field(out, "congestion", s->congestion);
    add_text_field(out, "s3_url", s->s3_url);
    add_u64_field(out, "pid", (uint64_t)s->pid);
    text_adds(out, "}\n");
}

/* ---- errors ---- */

void status_error(struct text *out, const char *code, const char *message, const char *hint)
{
    text_adds(out, "{\"error\":{");
    add_text_field(out, "code", code);
    add_text_field(out, "message", message);
    add_text_field(out, "hint", hint);
    text_adds(out, "}}\n");
}

/* ---- the address for clients ---- */

static bool is_wildcard(const struct conf_listen *at)
{
    static const uint8_t zero[16];
    return memcmp(at->addr, zero, at->v6 ? 16 : 4) == 0;
}

void status_s3_url(const char *listen, bool tls, struct span host, char out[S3_URL_BYTES])
{
    struct conf_listen at;
    struct text t;

    out[0] = '\0';
    if (conf_listen_read(span_of(listen), &at) != OK || at.unix_path.len || at.port == 0)
        return;                      /* a port that the kernel chose is not known here */
    text_init(&t, out, S3_URL_BYTES);
    text_adds(&t, tls ? "https://" : "http://");
    if (is_wildcard(&at)) {
        bool v6 = span_find(host, ':') < host.len;
        text_adds(&t, v6 ? "[" : "");
        text_add(&t, host);
        text_addf(&t, "%s:%u", v6 ? "]" : "", at.port);
    } else {
        text_adds(&t, listen);
    }
    if (t.over)
        out[0] = '\0';
}

/* ---- configuration ---- */

/* A TOML value as conf_print() writes it is a JSON value too, but for bytes that are not UTF-8. */
static void add_toml_value(struct text *t, struct span value)
{
    for (size_t i = 0; i < value.len;) {
        struct span rest = span_from(value, i);
        size_t len = span_utf8(rest);
        text_add(t, len ? span_make(rest.at, len) : span_of("?"));
        i += len ? len : 1;
    }
}

void status_config(struct span toml, struct text *out)
{
    const char *close = "";          /* of the section */
    struct span list = {NULL, 0};    /* the name of the [[section]] that is open; "" = none is */

    text_adds(out, "{\"v\":1");
    while (toml.len) {
        struct span line = span_cut(&toml, '\n');
        bool again = list.len && span_eq(line, list);
        if (again) {
            text_adds(out, "},{");
        } else if (span_starts(line, span_of("["))) {
            bool several = span_starts(line, span_of("[["));
            size_t brackets = several ? 2 : 1;
            text_adds(out, close);
            text_adds(out, ",\"");
            text_add(out, span_make(line.at + brackets, line.len - 2 * brackets));
            text_adds(out, several ? "\":[{" : "\":{");
            close = several ? "}]" : "}";
            list = several ? line : span_of("");
        } else if (line.len) {
            struct span key = span_cut(&line, ' ');
            const char *quote = span_starts(key, span_of("\"")) ? "" : "\"";
            text_adds(out, out->at[out->len - 1] == '{' ? quote : ",");
            text_adds(out, out->at[out->len - 1] == ',' ? quote : "");
            text_add(out, key);
            text_addf(out, "%s:", quote);
            add_toml_value(out, span_from(line, strlen("= ")));
        }
    }
    text_adds(out, close);
    text_adds(out, "}\n");
}
