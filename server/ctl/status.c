/* headpond status: is it well, how full, how fast, what waits.
 *
 * Invariants:
 *  1. A line with nothing to say is left out.
 *  2. Several servers make one table; one that does not answer is a row of it.
 *
 * Life: one look, or one every --watch until interrupted. Failure: no server answers: 5; some do
 * not: 3. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "units.h"

enum {
    TEXT_BYTES = 16 * KIB,
    CLIENTS_SHOWN = 8,
    WARNINGS_SHOWN = 4,
    JOBS_SHOWN = 3,
    FIELD_BYTES = 300
};

static void add_field(struct text *t, const json_t *object, const char *name)
{
    text_add_printable(t, span_of(value_text(object, name)), FIELD_BYTES);
}

/* ---- one server ---- */

static void add_first_line(const struct ctl *c, const json_t *s, struct text *t)
{
    bool ready = strcmp(value_text(s, "state"), "ready") == 0;

    text_adds(t, "headpond ");
    add_field(t, s, "version");
    text_adds(t, " on ");
    add_field(t, s, "name");
    text_addf(t, ", %s", ctl_paint(c, ready ? "32" : "33"));
    add_field(t, s, "state");
    text_addf(t, "%s, up ", ctl_paint(c, "0"));
    units_duration(t, value_u64(s, "uptime_s"));
    text_addc(t, '\n');
}

/* A server that does not list several has one. */
static size_t upstream_count(const json_t *s)
{
    size_t count = json_array_size(json_object_get(s, "upstreams"));

    return count ? count : 1;
}

static const json_t *upstream_at(const json_t *s, size_t i)
{
    const json_t *all = json_object_get(s, "upstreams");

    return json_array_size(all) ? json_array_get(all, i) : json_object_get(s, "upstream");
}

static void add_upstream(const struct ctl *c, const json_t *u, bool several, struct text *t)
{
    text_adds(t, "  upstream  ");
    if (several) {
        add_field(t, u, "name");
        text_addc(t, ' ');
    }
    add_field(t, u, "endpoint");
    if (!value_true(u, "up")) {
        text_addf(t, "   %snot answering", ctl_paint(c, "31"));
        if (value_u64(u, "down_s")) {
            text_adds(t, " for ");
            units_duration(t, value_u64(u, "down_s"));
        }
        text_addf(t, "%s\n", ctl_paint(c, "0"));
        return;
    }
    uint64_t limit = value_u64(u, "concurrency_limit"), most = value_u64(u, "connections");
    text_adds(t, "   answering");
    if (value_number(u, "rtt_ms") > 0) {
        text_adds(t, ", ");
        units_ms(t, value_number(u, "rtt_ms"));
    }
    text_addf(t, ", %.0f throttled/min", value_number(u, "throttled_per_min"));
    if (limit < most)
        text_addf(t, ", %sat most %u of %u requests at once%s", ctl_paint(c, "33"),
                  (unsigned)limit, (unsigned)most, ctl_paint(c, "0"));
    text_addc(t, '\n');
}

/* Of credentials that the server renews: whose, how long, and what went wrong. */
static void add_credentials(const struct ctl *c, const json_t *u, struct text *t)
{
    uint64_t now_s = clock_wall_s(), expire_s = value_u64(u, "credentials_expire_s");
    const char *error = value_text(u, "credentials_error");

    if (!value_true(u, "credentials_renewed"))
        return;
    text_adds(t, "  signs as  ");
    add_field(t, u, "credentials");
    if (expire_s > now_s) {
        text_adds(t, ", for ");
        units_duration(t, expire_s - now_s);
    } else {
        text_addf(t, ", %s%s%s", ctl_paint(c, "31"), expire_s ? "expired" : "none yet",
                  ctl_paint(c, "0"));
    }
    if (error[0]) {
        text_addf(t, ": %s", ctl_paint(c, "33"));
        text_add_printable(t, span_of(error), 300);
        text_adds(t, ctl_paint(c, "0"));
    }
    text_addc(t, '\n');
}

static void count_disks(const json_t *s, unsigned *up, unsigned *fenced)
{
    const json_t *disks = json_object_get(s, "disks");

    *up = *fenced = 0;
    for (size_t i = 0; i < json_array_size(disks); i++) {
        if (strcmp(value_text(json_array_get(disks, i), "state"), "up") == 0)
            ++*up;
        else
            ++*fenced;
    }
}

static void add_cache(const json_t *s, struct text *t)
{
    const json_t *cache = json_object_get(s, "cache");
    uint64_t used = value_u64(cache, "used"), capacity = value_u64(cache, "capacity");
    unsigned up, fenced;

    count_disks(s, &up, &fenced);
    text_adds(t, "  cache     ");
    units_bytes_of(t, used, capacity);
    if (capacity) {
        text_adds(t, " (");
        units_percent(t, (double)used / (double)capacity, 0);
        text_addc(t, ')');
    }
    disk_add_lost(t, cache);
    if (value_u64(cache, "pinned")) {
        text_adds(t, ", ");
        units_bytes(t, value_u64(cache, "pinned"));
        text_adds(t, " pinned");
    }
    text_adds(t, ", ");
    units_count(t, value_u64(cache, "objects"));
    text_addf(t, " object%s     disks %u up, %u fenced\n", value_u64(cache, "objects") == 1 ? ""
              : "s", up, fenced);
}

static void add_troubled_disks(const struct ctl *c, const json_t *s, struct text *t)
{
    const json_t *disks = json_object_get(s, "disks");

    for (size_t i = 0; i < json_array_size(disks); i++) {
        const json_t *d = json_array_get(disks, i);
        bool up = strcmp(value_text(d, "state"), "up") == 0;
        if (up && value_u64(d, "errors") == 0)
            continue;
        text_addf(t, "  disk      %s", ctl_paint(c, up ? "33" : "31"));
        add_field(t, d, "dir");
        text_adds(t, " ");
        add_field(t, d, "state");
        text_adds(t, ", ");
        units_count(t, value_u64(d, "errors"));
        text_addf(t, " errors%s", ctl_paint(c, "0"));
        if (value_text(d, "why")[0]) {
            text_adds(t, ": ");
            add_field(t, d, "why");
            text_adds(t, "; ");
            add_field(t, d, "fix");
        }
        text_addc(t, '\n');
    }
}

static void add_rates(const json_t *s, struct text *t)
{
    const json_t *r = json_object_get(s, "last_5m");
    double sent = value_number(r, "sent_bytes_per_s"), got = value_number(r,
                                                                          "upstream_bytes_per_s");

    if (value_u64(r, "requests") == 0) {
        text_adds(t, "  last 5 m  no request\n");
        return;
    }
    text_adds(t, "  last 5 m  ");
    units_rate(t, sent, sent > got ? sent : got);
    text_adds(t, " out, ");
    units_rate(t, got, sent > got ? sent : got);
    text_adds(t, " from upstream");
    if (sent > 0) {
        text_adds(t, ", hits ");
        units_percent(t, value_number(r, "hit_bytes_ratio"), 1);
        text_adds(t, " of bytes");
    }
    text_adds(t, ", p50 ");
    units_ms(t, value_number(r, "p50_ms"));
    text_adds(t, ", p99 ");
    units_ms(t, value_number(r, "p99_ms"));
    text_addc(t, '\n');
}

/* Who is served here: who is missing from this line bypasses the cache. */
static void add_clients(const json_t *s, struct text *t)
{
    const json_t *clients = json_object_get(s, "clients");
    size_t count = json_array_size(clients); /* the newest; a host once per program */
    uint64_t hosts = value_u64(s, "client_hosts");
    const char *over = json_is_true(json_object_get(s, "client_hosts_more")) ? "over " : "";

    if (count == 0) {
        text_adds(t, "  clients   none in the last 5 m; headpond env shows how to point them "
                     "here\n");
        return;
    }
    text_addf(t, "  clients   %s%llu %s in the last 5 m: ", over, (unsigned long long)hosts,
              hosts == 1 ? "host" : "hosts");
    for (size_t i = 0; i < count && i < CLIENTS_SHOWN; i++) {
        const json_t *one = json_array_get(clients, i);
        text_adds(t, i ? ", " : "");
        add_field(t, one, "host");
        text_adds(t, " (");
        add_field(t, one, "agent");
        text_addc(t, ')');
    }
    text_adds(t, count > CLIENTS_SHOWN ? ", ...\n" : "\n");
}

/* ": j7 prewarm train-data/imagenet/ 50 % (1m 03s left), ..." of those that work now. */
static void add_running(const json_t *s, struct text *t)
{
    const json_t *all = json_object_get(s, "running_jobs");
    size_t count = json_array_size(all);

    for (size_t i = 0; i < count && i < JOBS_SHOWN; i++) {
        text_adds(t, i ? ", " : ": ");
        job_brief(json_array_get(all, i), t);
    }
    text_adds(t, count > JOBS_SHOWN ? ", ...\n" : "\n");
}

static void add_waits(const json_t *s, struct text *t)
{
    const json_t *r = json_object_get(s, "last_5m"), *jobs = json_object_get(s, "jobs");
    uint64_t running = value_u64(jobs, "running"), queued = value_u64(jobs, "queued");

    if (value_u64(r, "requests")) {
        text_adds(t, "  GPUs      waited ");
        units_percent(t, value_number(r, "stall_ratio"), 1);
        text_adds(t, " of client time for upstream\n");
    }
    if (running == 0 && queued == 0)
        return;
    text_addf(t, "  jobs      %llu running", (unsigned long long)running);
    if (queued)
        text_addf(t, ", %llu queued", (unsigned long long)queued);
    add_running(s, t);
}

static void add_schedules(const json_t *s, struct text *t)
{
    const json_t *all = json_object_get(s, "schedules");
    unsigned in_force = 0;

    if (json_array_size(all) == 0)
        return;
    text_adds(t, "  schedule  ");
    for (size_t i = 0; i < json_array_size(all); i++) {
        if (!value_true(json_array_get(all, i), "in_force"))
            continue;
        text_adds(t, in_force++ ? "; " : "");
        add_field(t, json_array_get(all, i), "when");
    }
    text_adds(t, in_force ? " in force" : "none in force");
    if (value_u64(s, "schedule_changes_s")) {
        text_adds(t, ", next change in ");
        units_duration(t, value_u64(s, "schedule_changes_s"));
    }
    text_addc(t, '\n');
}

static void add_warnings(const struct ctl *c, const json_t *s, struct text *t)
{
    const json_t *warnings = json_object_get(s, "warnings");
    size_t count = json_array_size(warnings);

    for (size_t i = 0; i < count && i < WARNINGS_SHOWN; i++) {
        const char *text = json_string_value(json_array_get(warnings, i));
        text_addf(t, "  warning   %s", ctl_paint(c, "33"));
        text_add_printable(t, span_of(text), FIELD_BYTES);
        text_addf(t, "%s\n", ctl_paint(c, "0"));
    }
    if (count > WARNINGS_SHOWN)
        text_addf(t, "  warning   and %zu more: headpond status --json\n", count - WARNINGS_SHOWN);
}

void status_text(const struct ctl *c, const json_t *status, struct text *out)
{
    add_first_line(c, status, out);
    for (size_t i = 0; i < upstream_count(status); i++) {
        add_upstream(c, upstream_at(status, i), upstream_count(status) > 1, out);
        add_credentials(c, upstream_at(status, i), out);
    }
    add_cache(status, out);
    add_troubled_disks(c, status, out);
    add_rates(status, out);
    add_clients(status, out);
    add_waits(status, out);
    add_schedules(status, out);
    add_warnings(c, status, out);
}

/* ---- several servers ---- */

static const char row_format[] = "%-28s  %-9s  %-8s  %-10s  %-13s  %-7s  %-22s  %s\n";

static void print_row(const json_t *s)
{
    const json_t *r = json_object_get(s, "last_5m"), *cache = json_object_get(s, "cache");
    double sent = value_number(r, "sent_bytes_per_s"), got = value_number(r,
                                                                          "upstream_bytes_per_s");
    char memory[7][64];
    struct text t[7];

    for (unsigned i = 0; i < ARRAY_COUNT(t); i++)
        text_init(&t[i], memory[i], sizeof memory[i]);
    add_field(&t[0], s, "name");
    add_field(&t[1], s, "state");
    units_duration(&t[2], value_u64(s, "uptime_s"));
    units_rate(&t[3], sent, sent);
    units_rate(&t[4], got, got);
    units_percent(&t[5], value_number(r, "hit_bytes_ratio"), 1);
    units_bytes_of(&t[6], value_u64(cache, "used"), value_u64(cache, "capacity"));
    size_t count = upstream_count(s), up = 0;
    for (size_t i = 0; i < count; i++)
        up += value_true(upstream_at(s, i), "up");
    printf(row_format, memory[0], memory[1], memory[2], memory[3], memory[4], memory[5], memory[6],
           up == count ? "answering" : up > 0 ? "partly answering" : "not answering");
}

static void print_failed(const struct ctl *c, const char *server, const char *why)
{
    json_t *line = c->json ? json_pack("{s:i,s:s,s:s}", "v", 1, "server", server, "error", why)
        : NULL;

    if (line) {
        ctl_print_json(line);
        json_decref(line);
    } else {
        printf("%-28s  %s\n", server, why + (strncmp(why, server, strlen(server)) == 0
                                             ? strlen(server) + 2 : 0));
    }
}

static int show_table(const struct ctl *c)
{
    unsigned answered = 0;

    if (!c->json)
        printf(row_format, "server", "state", "up", "out", "from upstream", "hits", "cache",
               "upstream");
    for (unsigned i = 0; i < c->server_count; i++) {
        char why[CTL_WHY_BYTES];
        struct reply r = {0};
        bool got = client_get(c->server[i], "/v1/status", c->timeout_ms, &r, why) == OK;
        json_t *status = got ? reply_json(&r, why) : NULL;
        if (!status)
            print_failed(c, c->server[i], why);
        else if (c->json)
            ctl_print_json(status);
        else
            print_row(status);
        answered += status != NULL;
        json_decref(status);
        reply_free(&r);
    }
    return answered == c->server_count ? CTL_DONE : answered ? CTL_PARTLY : CTL_UNREACHABLE;
}

/* Which jobs work, for people; one that ends meanwhile is no mistake. */
static void add_jobs(const struct ctl *c, json_t *status)
{
    char why[CTL_WHY_BYTES];
    struct reply r = {0};

    if (c->json || value_u64(json_object_get(status, "jobs"), "running") == 0 ||
        client_ask(c, "/v1/jobs?state=running", &r, why) != OK)
        return;
    json_t *answer = reply_json(&r, why);
    json_object_set(status, "running_jobs", json_object_get(answer, "jobs"));
    json_decref(answer);
    reply_free(&r);
}

static int show_one(const struct ctl *c)
{
    static char memory[TEXT_BYTES];
    struct reply r = {0};
    struct text t;
    int code = CTL_DONE;
    json_t *status = client_json(c, "/v1/status", &r, &code);

    if (!status)
        return code;
    add_jobs(c, status);
    text_init(&t, memory, sizeof memory);
    status_text(c, status, &t);
    if (c->json)
        ctl_print_json(status);
    else
        fputs(t.at, stdout);
    json_decref(status);
    reply_free(&r);
    return CTL_DONE;
}

static int show(const struct ctl *c)
{
    return c->sizing             ? sizing_show(c)
           : c->server_count > 1 ? show_table(c)
                                 : show_one(c);
}

int status_run(struct ctl *c)
{
    bool screen = isatty(STDOUT_FILENO) && !c->json;
    int code = CTL_DONE;

    for (bool first = true; first || c->watch; first = false) {
        if (!first)
            poll(NULL, 0, (int)min_u64(c->watch_ms, INT32_MAX));
        if (c->watch && screen)
            fputs("\033[H\033[J", stdout);
        else if (!first && !c->json)
            putchar('\n');
        code = show(c);
        if (fflush(stdout) != 0)
            return CTL_FAILED;       /* who read it is gone */
    }
    return code;
}
