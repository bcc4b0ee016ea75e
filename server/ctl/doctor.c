/* headpond doctor: what of this machine and of the server would make the cache fail or slow, and
 * the fix for each.
 *
 * Invariants:
 *  1. Every warn and FAIL ends with what to do.
 *  2. What cannot be known here is shown as "-", never as ok.
 *
 * Life: one pass over the checks. Failure: a FAIL makes the exit code 1. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <math.h>
#include <stdio.h>

#include "units.h"

enum { SAY_BYTES = 2 * KIB, SHOWN_BYTES = 300, TOKEN_SHORT_S = 15 * 60 };
enum { CERTIFICATE_SHORT_S = 7 * 24 * 3600 };

void doctor_say(struct doctor *d, enum grade grade, const char *check, const char *format, ...)
{
    static const struct {
        const char *mark, *word, *color;
    } grades[] = {
        [GRADE_OK] = {"ok   ", "ok", "32"},
        [GRADE_WARN] = {"warn ", "warn", "33"},
        [GRADE_FAIL] = {"FAIL ", "fail", "31"},
        [GRADE_UNKNOWN] = {"-    ", "unknown", "0"},
    };
    char raw[SAY_BYTES], memory[SAY_BYTES];
    struct text t;
    va_list args;

    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    for (char *end = raw; (end = strchr(end, '\n'));)
        *end = ' ';                  /* a reason of two sentences is one line here */
    text_init(&t, memory, sizeof memory);
    if (d->which) {
        text_add_printable(&t, span_of(d->which), SHOWN_BYTES);
        text_adds(&t, ": ");
    }
    text_add_printable(&t, span_of(raw), sizeof raw);
    d->failed += grade == GRADE_FAIL;
    if (d->ctl->json) {
        json_t *line = json_pack("{s:i,s:s,s:s,s:s}", "v", 1, "check", check, "result",
                                 grades[grade].word, "text", memory);
        ctl_print_json(line);
        json_decref(line);
    } else if (!d->ctl->quiet || grade != GRADE_OK) {
        printf("%s%s%s %s\n", ctl_paint(d->ctl, grades[grade].color), grades[grade].mark,
               ctl_paint(d->ctl, "0"), memory);
    }
}

/* ---- what the server tells ---- */

/* Behind what is said of an upstream that answers: what was spoken, and with whom, last. */
static void add_session(struct text *t, const json_t *u)
{
    uint64_t ends_s = value_u64(u, "certificate_ends_s"), now_s = clock_wall_s();
    const char *spoken = value_text(u, "tls");

    if (spoken[0])
        text_addf(t, ", TLS %.8s", spoken);
    if (spoken[0] && ends_s > now_s)
        text_addf(t, ", certificate valid %llu days",
                  (unsigned long long)((ends_s - now_s) / (24 * 3600)));
}

/* With upstream.insecure nobody else would look. */
static void check_certificate(struct doctor *d)
{
    uint64_t ends_s = value_u64(d->upstream, "certificate_ends_s"), now_s = clock_wall_s();
    uint64_t left_s = ends_s > now_s ? ends_s - now_s : 0;
    char left[32];
    struct text t;

    if (ends_s == 0 || left_s >= CERTIFICATE_SHORT_S)
        return;
    text_init(&t, left, sizeof left);
    units_duration(&t, left_s);
    if (left_s == 0)
        doctor_say(d, GRADE_WARN, "certificate", "the certificate that upstream showed last has "
                                                 "ended: read an object and look again; if that "
                                                 "changes nothing, its operator must renew it");
    else
        doctor_say(d, GRADE_WARN, "certificate", "upstream's certificate ends in %s: its operator "
                                                 "must renew it before", left);
}

static void check_upstream(struct doctor *d)
{
    const json_t *u = d->upstream;
    const char *endpoint = value_text(u, "endpoint"), *warning = value_text(u, "warning");
    char rtt[96];
    struct text t;

    text_init(&t, rtt, sizeof rtt);
    units_ms(&t, value_number(u, "rtt_ms"));
    bool throttles = value_true(u, "throttled");
    if (!throttles)
        add_session(&t, u);
    if (!value_true(u, "up"))
        doctor_say(d, GRADE_FAIL, "upstream", "upstream %s does not answer the server: check the "
                                              "address, DNS, the route and a firewall; "
                                              "the server's log says why it failed", endpoint);
    else if (throttles)
        doctor_say(d, GRADE_WARN, "upstream", "upstream %s answers in %s but throttles: lower "
                                              "upstream.connections or ask for a higher rate",
                   endpoint, rtt);
    else if (value_number(u, "rtt_ms") > 0)
        doctor_say(d, GRADE_OK, "upstream", "upstream %s answers in %s", endpoint, rtt);
    else if (value_true(u, "directory"))
        doctor_say(d, GRADE_OK, "upstream", "upstream %s is a directory: no clock and no "
                                            "credentials are needed", endpoint);
    else
        doctor_say(d, GRADE_UNKNOWN, "upstream", "upstream %s: the server has not asked it yet; "
                                                 "read an object, then look again", endpoint);
    if (warning[0])
        doctor_say(d, GRADE_WARN, "upstream", "upstream: %.*s", SHOWN_BYTES, warning);
}

static void check_clock(struct doctor *d)
{
    const json_t *u = d->upstream;
    const json_t *offset = json_object_get(u, "clock_offset_s");
    double s = fabs(json_number_value(offset));

    if (value_true(u, "directory"))
        return;
    if (!json_is_number(offset))
        doctor_say(d, GRADE_UNKNOWN, "clock", "clock: upstream has not told its time yet; "
                                              "timedatectl shows whether this host's is "
                                              "synchronized");
    else if (s >= 300)
        doctor_say(d, GRADE_FAIL, "clock", "clock differs %.0f s from upstream's: signatures fail "
                                           "from 15 min on; start chrony or systemd-timesyncd", s);
    else if (s >= 30)
        doctor_say(d, GRADE_WARN, "clock", "clock differs %.0f s from upstream's; start chrony or "
                                           "systemd-timesyncd", s);
    else
        doctor_say(d, GRADE_OK, "clock", "clock differs %.0f s from upstream's", s);
}

/* What upstream let the credentials do; -1: nobody knows yet. */
static int right_of(const struct doctor *d, const char *name)
{
    const json_t *right = json_object_get(d->upstream, name);

    return json_is_boolean(right) ? json_is_true(right) : -1;
}

/* Behind what is said of good credentials. */
static const char *rights_of(const struct doctor *d)
{
    bool lists = right_of(d, "list_allowed") > 0, gets = right_of(d, "get_allowed") > 0;

    return lists && gets ? ", ListBucket and GetObject allowed"
           : gets        ? ", GetObject allowed"
           : lists       ? ", ListBucket allowed"
                         : "";
}

/* A store's answer alone can tell: which keys a policy names, nobody else knows. */
static void check_rights(struct doctor *d)
{
    int gets = right_of(d, "get_allowed"), lists = right_of(d, "list_allowed");

    if (gets == 0)
        doctor_say(d, GRADE_WARN, "rights", "GetObject is refused (403): grant these credentials "
                                            "s3:GetObject on what is read, and kms:Decrypt where a "
                                            "key of KMS encrypts it");
    if (lists == 0)
        doctor_say(d, GRADE_WARN, "rights", "ListBucket is refused (403): lists fail, and a key "
                                            "that does not exist is 403 instead of 404; grant "
                                            "s3:ListBucket to these credentials");
    if (gets < 0 && value_true(d->upstream, "up"))
        doctor_say(d, GRADE_UNKNOWN, "rights", "GetObject: nobody has read from upstream since the "
                                               "server began; read an object, then look again");
}

/* The environment of a process does not change; files are read again by a reload. */
static void check_token(struct doctor *d, const char *source, uint64_t expire_s)
{
    const char *fix = strcmp(source, "environment") == 0 ? "restart the server with new ones"
                                                         : "renew them and reload the server";
    uint64_t now_s = clock_wall_s();
    char left[32];
    struct text t;

    text_init(&t, left, sizeof left);
    units_duration(&t, expire_s > now_s ? expire_s - now_s : 0);
    if (expire_s == 0)
        doctor_say(d, GRADE_WARN, "credentials", "credentials from %.*s are temporary, and nobody "
                                                 "told when they expire: before that, %s",
                   SHOWN_BYTES, source, fix);
    else if (expire_s <= now_s)
        doctor_say(d, GRADE_FAIL, "credentials", "credentials from %.*s have expired: %s",
                   SHOWN_BYTES, source, fix);
    else
        doctor_say(d, expire_s - now_s < TOKEN_SHORT_S ? GRADE_WARN : GRADE_OK, "credentials",
                   "credentials from %.*s, expire in %s%s: before that, %s", SHOWN_BYTES, source,
                   left, rights_of(d), fix);
}

/* The server gets the next ones by itself, in time. */
static void check_renewed(struct doctor *d, const char *source, uint64_t expire_s)
{
    const json_t *u = d->upstream;
    const char *error = value_text(u, "credentials_error");
    uint64_t now_s = clock_wall_s();
    char left[32];
    struct text t;

    text_init(&t, left, sizeof left);
    units_duration(&t, expire_s > now_s ? expire_s - now_s : 0);
    if (expire_s <= now_s)
        doctor_say(d, GRADE_FAIL, "credentials", "credentials from %.*s %s: %.*s", SHOWN_BYTES,
                   source, expire_s ? "have expired" : "cannot be had", SHOWN_BYTES,
                   error[0] ? error : "the server has not tried yet; look again");
    else if (error[0])
        doctor_say(d, GRADE_WARN, "credentials", "credentials from %.*s expire in %s, and renewing "
                                                 "them fails: %.*s",
                   SHOWN_BYTES, source, left, SHOWN_BYTES, error);
    else
        doctor_say(d, GRADE_OK, "credentials", "credentials from %.*s, expire in %s%s; the server "
                                               "renews them before",
                   SHOWN_BYTES, source, left, rights_of(d));
}

static void check_credentials(struct doctor *d)
{
    const json_t *u = d->upstream;
    const char *source = value_text(u, "credentials");

    if (value_true(u, "directory"))
        return;
    if (source[0] && value_true(u, "credentials_renewed"))
        check_renewed(d, source, value_u64(u, "credentials_expire_s"));
    else if (source[0] && value_true(u, "credentials_temporary"))
        check_token(d, source, value_u64(u, "credentials_expire_s"));
    else if (source[0])
        doctor_say(d, GRADE_OK, "credentials", "credentials from %.*s%s", SHOWN_BYTES, source,
                   rights_of(d));
    else if (!strstr(value_text(u, "warning"), "credentials"))
        doctor_say(d, GRADE_UNKNOWN, "credentials", "credentials: this server does not tell where "
                                                    "they come from; its log does when they are "
                                                    "missing");
}

/* A server that does not list several has one. */
static void check_upstreams(struct doctor *d)
{
    const json_t *all = json_object_get(d->status, "upstreams");
    size_t count = json_array_size(all);

    for (size_t i = 0; i < (count ? count : 1); i++) {
        d->upstream = count ? json_array_get(all, i) : json_object_get(d->status, "upstream");
        d->which = count > 1 ? value_text(d->upstream, "name") : NULL;
        check_upstream(d);
        check_certificate(d);
        check_clock(d);
        check_credentials(d);
        if (!value_true(d->upstream, "directory"))
            check_rights(d);
    }
    d->which = NULL;
}

/* The server knows why a disk is not up, and what helps. One that passes its tests comes back by
 * itself, and one that was fenced by hand was meant to be. */
static void check_disk(struct doctor *d, const json_t *disk)
{
    const char *dir = value_text(disk, "dir"), *state = value_text(disk, "state"),
               *why = value_text(disk, "why"), *fix = value_text(disk, "fix");
    unsigned long long errors = value_u64(disk, "errors");
    bool fails = strcmp(state, "fenced") == 0 && strcmp(why, "fenced by hand") != 0;
    char since[32];
    struct text t;

    if (strcmp(state, "up") == 0) {
        if (errors)
            doctor_say(d, GRADE_WARN, "disk", "%s had %llu errors: look at dmesg and at smartctl "
                                              "-a", dir, errors);
        return;
    }
    if (!fix[0])
        fix = strcmp(state, "probation") == 0 ? "it passes its tests, wait: it comes back by itself"
                                              : "look at the kernel's log for the device";
    text_init(&t, since, sizeof since);
    units_duration(&t, value_u64(disk, "since_s"));
    doctor_say(d, fails ? GRADE_FAIL : GRADE_WARN, "disk", "%s is %s for %s, %llu errors: %s%s%s",
               dir, strcmp(state, "probation") == 0 ? "on probation" : state, since, errors, why,
               why[0] ? "; " : "", fix);
}

static void check_server(struct doctor *d, const char *server)
{
    const char *state = value_text(d->status, "state");
    const json_t *disks = json_object_get(d->status, "disks");

    if (strcmp(state, "ready") == 0)
        doctor_say(d, GRADE_OK, "server", "server %s on %s is ready (%s)",
                   value_text(d->status, "version"),
                   value_text(d->status, "name"), server);
    else
        doctor_say(d, GRADE_WARN, "server", "server on %s is %s (%s): wait with headpond ready",
                   value_text(d->status, "name"), state, server);
    for (size_t i = 0; i < json_array_size(disks); i++)
        check_disk(d, json_array_get(disks, i));
}

/* ---- the pass ---- */

static bool is_local(const struct doctor *d, const struct reply *r)
{
    return d->server_pid > 0 || strncmp(r->server, "http://127.", 11) == 0 ||
        strncmp(r->server, "http://localhost", 16) == 0 ||
           strncmp(r->server, "http://[::1]", 12) == 0;
}

/* The server's own view, if one answers; doctor is most useful when none does. */
static void ask_server(struct doctor *d, struct reply *r, char why[CTL_WHY_BYTES])
{
    struct reply config = {0};

    if (client_ask(d->ctl, "/v1/status", r, why) != OK)
        return;
    d->status = reply_json(r, why);
    d->server_pid = r->peer_pid;
    if (d->status && client_get(r->server, "/v1/config", d->ctl->timeout_ms, &config, why) == OK)
        d->config = reply_json(&config, why);
    reply_free(&config);
}

static void check_dirs(struct doctor *d, bool local)
{
    const json_t *dirs = json_object_get(json_object_get(d->config, "cache"), "dirs");

    for (unsigned i = 0; i < d->ctl->dir_count; i++)
        disk_check(d, d->ctl->dir[i]);
    for (size_t i = 0; local && d->ctl->dir_count == 0 && i < json_array_size(dirs); i++) {
        const char *dir = json_string_value(json_array_get(dirs, i));
        if (dir)
            disk_check(d, dir);
    }
}

int doctor_run(struct ctl *c)
{
    struct doctor d = {.ctl = c};
    struct reply r = {0};
    char why[CTL_WHY_BYTES] = "";

    ask_server(&d, &r, why);
    kernel_check(&d);
    kernel_check_limits(&d);
    check_dirs(&d, d.status && is_local(&d, &r));
    kernel_check_congestion(&d);
    if (d.status) {
        check_server(&d, r.server);
        check_upstreams(&d);
    } else {
        doctor_say(&d, GRADE_WARN, "server", "%s", why);
        doctor_say(&d, GRADE_UNKNOWN, "upstream", "upstream, clock and credentials: not checked "
                                                  "without a server");
    }
    json_decref(d.status);
    json_decref(d.config);
    reply_free(&r);
    return d.failed ? CTL_FAILED : CTL_DONE;
}
