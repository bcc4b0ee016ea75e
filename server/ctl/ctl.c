/* The command line: the table of verbs, options, help.
 *
 * Invariants:
 *  1. Options may stand before and behind the verb; the verb's own win over the general ones of
 * the same name.
 *  2. A verb that this version lacks says so, and what to do instead, whatever stands behind it.
 *  3. What changes something, or knows things by ids that are one server's, takes one --server.
 *
 * Life: ctl_run() is the process but for main().
 * Failure: what is not understood exits 2 with the nearest word that would be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "conf.h"

enum { USAGE_HELP = -2, USAGE_VERSION = -3 };

/* ---- options ---- */

static bool take_server(struct ctl *c, const char *value)
{
    bool known = strncmp(value, "unix:/", 6) == 0 || strncmp(value, "http://", 7) == 0;
    if (!known || c->server_count == CTL_SERVERS_MAX)
        return false;
    c->server[c->server_count++] = value;
    return true;
}

static bool take_json(struct ctl *c, const char *value)
{
    (void)value;
    return c->json = true;
}

static bool take_quiet(struct ctl *c, const char *value)
{
    (void)value;
    return c->quiet = true;
}

static bool take_no_color(struct ctl *c, const char *value)
{
    (void)value;
    c->color = false;
    return true;
}

static bool take_no_progress(struct ctl *c, const char *value)
{
    (void)value;
    return c->no_progress = true;
}

static bool take_token_file(struct ctl *c, const char *value)
{
    c->token_file = value;
    return value[0] != '\0';
}

static bool take_timeout(struct ctl *c, const char *value)
{
    return conf_read_time_ms(span_of(value), &c->timeout_ms) == OK && c->timeout_ms > 0;
}

static bool take_verbose(struct ctl *c, const char *value)
{
    (void)value;
    return c->verbose = true;
}

static bool take_sizing(struct ctl *c, const char *value)
{
    (void)value;
    return c->sizing = true;
}

static bool take_watch(struct ctl *c, const char *value)
{
    c->watch = true;
    return !value || (conf_read_time_ms(span_of(value), &c->watch_ms) == OK && c->watch_ms >= 100);
}

static bool take_shell(struct ctl *c, const char *value)
{
    char memory[KIB];
    struct text t;

    text_init(&t, memory, sizeof memory);
    c->shell = value;
    return env_print(value, "http://h", &t) == OK;
}

static bool take_dir(struct ctl *c, const char *value)
{
    if (c->dir_count == CTL_DIRS_MAX || !value[0])
        return false;
    c->dir[c->dir_count++] = value;
    return true;
}

static bool take_until(struct ctl *c, const char *value)
{
    char time[32];

    c->until = value;
    return until_read(value, time);
}

static bool take_cached(struct ctl *c, const char *value)
{
    (void)value;
    return c->cached = !c->missing;
}

static bool take_missing(struct ctl *c, const char *value)
{
    (void)value;
    return c->missing = !c->cached;
}

static bool take_long(struct ctl *c, const char *value)
{
    (void)value;
    return c->long_ = true;
}

static bool take_by(struct ctl *c, const char *value)
{
    c->by = value;
    return strcmp(value, "prefix") == 0 || strcmp(value, "client") == 0 ||
           strcmp(value, "object") == 0;
}

static bool take_depth(struct ctl *c, const char *value)
{
    uint64_t n;
    bool fits = span_u64(span_of(value), &n) == OK && n <= DU_DEPTH_MAX;

    c->depth = fits ? (unsigned)n : 0;
    return fits;
}

static bool take_unread_for(struct ctl *c, const char *value)
{
    uint64_t ms;

    c->unread_for = value;
    return conf_read_time_ms(span_of(value), &ms) == OK && ms >= 1000;
}

static bool take_keep_pinned(struct ctl *c, const char *value)
{
    (void)value;
    return c->keep_pinned = true;
}

static bool take_dry_run(struct ctl *c, const char *value)
{
    (void)value;
    return c->dry_run = true;
}

static bool take_yes(struct ctl *c, const char *value)
{
    (void)value;
    return c->yes = true;
}

static bool take_detach(struct ctl *c, const char *value)
{
    (void)value;
    return c->detach = true;
}

static bool take_glob(const char **glob, unsigned *count, const char *value)
{
    if (*count == CTL_GLOBS_MAX || !value[0])
        return false;
    glob[(*count)++] = value;
    return true;
}

static bool take_include(struct ctl *c, const char *value)
{
    return take_glob(c->include, &c->include_count, value);
}

static bool take_exclude(struct ctl *c, const char *value)
{
    return take_glob(c->exclude, &c->exclude_count, value);
}

static bool take_wds(struct ctl *c, const char *value)
{
    return take_glob(c->wds, &c->wds_count, value);
}

static bool take_manifest(struct ctl *c, const char *value)
{
    c->manifest = value;
    return value[0] != '\0';
}

static bool take_order(struct ctl *c, const char *value)
{
    c->order = value;
    return strcmp(value, "name") == 0 || strcmp(value, "manifest") == 0 ||
        strcmp(value, "size") == 0;
}

static bool take_bandwidth(struct ctl *c, const char *value)
{
    return conf_read_bytes(span_of(value), &c->bandwidth) == OK && c->bandwidth > 0 &&
        c->bandwidth <= INT64_MAX;
}

static bool take_connections(struct ctl *c, const char *value)
{
    return span_u64(span_of(value), &c->connections) == OK && c->connections > 0 &&
        c->connections <= 1024;
}

static bool take_verify(struct ctl *c, const char *value)
{
    (void)value;
    return c->verify = true;
}

static bool take_upstream(struct ctl *c, const char *value)
{
    c->upstream = value;
    return value[0] != '\0';
}

static bool take_via(struct ctl *c, const char *value)
{
    c->via = value;
    return strncmp(value, "http://", 7) == 0 || strncmp(value, "https://", 8) == 0;
}

static bool take_force(struct ctl *c, const char *value)
{
    (void)value;
    return c->force = true;
}

static bool take_pin(struct ctl *c, const char *value)
{
    (void)value;
    return c->pin = true;
}

static bool take_clients(struct ctl *c, const char *value)
{
    return span_u64(span_of(value), &c->clients) == OK && c->clients > 0 &&
        c->clients <= BENCH_CLIENTS_MAX;
}

static bool take_seconds(struct ctl *c, const char *value)
{
    return span_u64(span_of(value), &c->seconds) == OK && c->seconds > 0 &&
        c->seconds <= BENCH_SECONDS_MAX;
}

static bool take_wait(struct ctl *c, const char *value)
{
    c->wait_limited = true;
    return conf_read_time_ms(span_of(value), &c->wait_ms) == OK;
}

const struct option_row ctl_options[] = {
    {"server", NULL, OPTION_VALUE, "URL",
     "unix:PATH or http://HOST:PORT; of several status makes one table, others ask the first that "
     "answers, or refuse", take_server},
    {"json", NULL, OPTION_FLAG, NULL, "one JSON object per line", take_json},
    {"quiet", "q", OPTION_FLAG, NULL, "no talk on stderr", take_quiet},
    {"no-color", NULL, OPTION_FLAG, NULL, "no colours, as with NO_COLOR", take_no_color},
    {"no-progress", NULL, OPTION_FLAG, NULL, "no progress bars", take_no_progress},
    {"timeout", NULL, OPTION_VALUE, "TIME",
     "how long a server may take to answer (30s)", take_timeout},
    {"token-file", NULL, OPTION_VALUE, "FILE",
     "holds the token for changes over TCP; also HEADPOND_TOKEN_FILE", take_token_file},
    {"verbose", "v", OPTION_FLAG, NULL, "say on stderr which servers were asked", take_verbose},
    {"help", "h", OPTION_FLAG, NULL, "this text, or that of a verb", NULL},
    {"version", NULL, OPTION_FLAG, NULL, "the version of this program", NULL},
    {0},
};
static const struct option_row status_options[] = {
    {"watch", NULL, OPTION_MAYBE, "TIME", "again and again, every 2s", take_watch},
    {"sizing", NULL, OPTION_FLAG, NULL, "what the cache would give at other sizes instead",
     take_sizing},
    {0},
};
static const struct option_row env_options[] = {
    {"shell", NULL, OPTION_VALUE, "sh|fish|python|docker|k8s",
     "sh, fish, python, docker or k8s; the default is that of SHELL", take_shell},
    {0},
};
static const struct option_row doctor_options[] = {
    {"cache", NULL, OPTION_VALUE, "DIR",
     "look at this directory; repeatable; the default is those of the server", take_dir},
    {0},
};
static const struct option_row ready_options[] = {
    {"timeout", NULL, OPTION_VALUE, "TIME", "how long to wait (60s); then exit 124", take_wait},
    {0},
};

static const struct option_row ls_options[] = {
    {"cached", NULL, OPTION_FLAG, NULL, "only what is here; asks no list of the store",
     take_cached},
    {"missing", NULL, OPTION_FLAG, NULL, "only what the store has and is not here as a whole",
     take_missing},
    {"long", "l", OPTION_FLAG, NULL, "share that is here, p for pinned, last read in UTC, size",
     take_long},
    {0},
};
static const struct option_row du_options[] = {
    {"depth", NULL, OPTION_VALUE, "N", "levels below the prefix that have lines of their own (1)",
     take_depth},
    {"cached", NULL, OPTION_FLAG, NULL, "only of objects that are here; asks no list of the store",
     take_cached},
    {0},
};
static const struct option_row top_options[] = {
    {"by", NULL, OPTION_VALUE, "prefix|client|object", "prefix, client or object (prefix)",
     take_by},
    {0},
};
static const struct option_row pin_options[] = {
    {"until", NULL, OPTION_VALUE, "TIME",
     "a time from now (18h, 7d) or a date (2026-11-21, 2026-11-21T08:00); then the pin ends",
     take_until},
    {0},
};
static const struct option_row evict_options[] = {
    {"unread-for", NULL, OPTION_VALUE, "TIME", "only what was not read for so long, e.g. 7d",
     take_unread_for},
    {"keep-pinned", NULL, OPTION_FLAG, NULL, "leave what is pinned", take_keep_pinned},
    {"dry-run", NULL, OPTION_FLAG, NULL, "say what would go", take_dry_run},
    {"yes", NULL, OPTION_FLAG, NULL, "do not ask", take_yes},
    {"detach", NULL, OPTION_FLAG, NULL, "do not wait for the end", take_detach},
    {0},
};
static const struct option_row prewarm_options[] = {
    {"include", NULL, OPTION_VALUE, "GLOB",
     "only names below the prefix that match, as *.tar; repeatable", take_include},
    {"exclude", NULL, OPTION_VALUE, "GLOB", "not those; repeatable", take_exclude},
    {"wds", NULL, OPTION_VALUE, "PATTERN",
     "not all below the prefix but these shards, as train-{000000..000999}.tar; repeatable",
     take_wds},
    {"manifest", NULL, OPTION_VALUE, "FILE",
     "not all but the keys of this list or index.json; - or s3://BUCKET/KEY", take_manifest},
    {"order", NULL, OPTION_VALUE, "ORDER",
     "name; of a list also manifest (as it is, the default) and size (the smallest first)",
     take_order},
    {"bandwidth", NULL, OPTION_VALUE, "SIZE", "at most so much in a second, as 200MB",
     take_bandwidth},
    {"connections", NULL, OPTION_VALUE, "N", "at most so many chunks at once", take_connections},
    {"pin", NULL, OPTION_FLAG, NULL, "it stays, until it is unpinned", take_pin},
    {"until", NULL, OPTION_VALUE, "TIME", "it stays so long, as 18h or a date", take_until},
    {"verify", NULL, OPTION_FLAG, NULL, "behind it, read all of it again and compare checksums",
     take_verify},
    {"force", NULL, OPTION_FLAG, NULL, "if not all fits, bring what does, in its order",
     take_force},
    {"via", NULL, OPTION_VALUE, "URL",
     "through this balancer: each server behind it fetches the keys that it sends there", take_via},
    {"dry-run", NULL, OPTION_FLAG, NULL, "say how much it is, and whether it fits", take_dry_run},
    {"detach", NULL, OPTION_FLAG, NULL, "do not wait for the end", take_detach},
    {0},
};
static const struct option_row setup_options[] = {
    {"upstream", NULL, OPTION_VALUE, "URL",
     "the store: https://s3.eu-central-1.amazonaws.com, http://minio:9000, file:///srv/data",
     take_upstream},
    {"cache", NULL, OPTION_VALUE, "DIR", "a directory for the cache, best on an NVMe; repeatable",
     take_dir},
    {"force", NULL, OPTION_FLAG, NULL, "a file that is there already is put aside", take_force},
    {0},
};
static const struct option_row job_options[] = {
    {"dry-run", NULL, OPTION_FLAG, NULL, "say what is meant", take_dry_run},
    {"detach", NULL, OPTION_FLAG, NULL, "do not wait for the end", take_detach},
    {0},
};
static const struct option_row bench_options[] = {
    {"clients", NULL, OPTION_VALUE, "N", "connections that read at once (8)", take_clients},
    {"seconds", NULL, OPTION_VALUE, "N", "how long each line may take at most (20)", take_seconds},
    {"yes", NULL, OPTION_FLAG, NULL, "drop what is here of the object without asking", take_yes},
    {0},
};
static const struct option_row wait_options[] = {
    {"timeout", NULL, OPTION_VALUE, "TIME", "how long to wait; then exit 124", take_wait},
    {0},
};

/* ---- verbs ---- */

const struct code_row ctl_codes[] = {
    {CTL_DONE, "done"},
    {CTL_FAILED, "failed"},
    {CTL_USAGE, "usage, or a configuration that is wrong"},
    {CTL_PARTLY, "partly done"},
    {CTL_NOT_FOUND, "not found"},
    {CTL_UNREACHABLE, "server not reachable"},
    {CTL_DENIED, "not allowed"},
    {CTL_NO_ROOM, "does not fit"},
    {CTL_TIMEOUT, "waited too long"},
    {CTL_INTERRUPTED, "interrupted (a job goes on)"},
    {0},
};

const struct verb ctl_verbs[] = {
    {"setup", "", "makes a service of it, as root; user, file, directories, unit",
     setup_options, setup_run, NULL, false},
    {"status", "", "is it well, how full, how fast, what waits", status_options, status_run,
     NULL, false},
    {"env", "", "variables that point clients here", env_options, env_run, NULL, false},
    {"doctor", "", "kernel, io_uring, limits, disks, clock, upstream, credentials",
     doctor_options, doctor_run, NULL, false},
    {"ready", "", "waits until the server is ready", ready_options, ready_run, NULL, false},
    {"disk ls", "", "disks", NULL, disk_ls_run, NULL, false},
    {"disk fence", "DIR", "takes a disk out of use", NULL, disk_fence_run, NULL, true},
    {"disk readmit", "DIR", "takes a disk back, behind tests", NULL, disk_readmit_run, NULL, true},
    {"ls", "s3://B/P", "what is here, and what the store has", ls_options, ls_run, NULL, false},
    {"du", "s3://B/P", "cached and total bytes by prefix", du_options, du_run, NULL, false},
    {"top", "", "who asks for how much of what, in the last minutes", top_options, top_run,
     NULL, false},
    {"hist", "", "how long requests took, hits and misses on one axis", NULL, hist_run, NULL,
     false},
    {"pin", "s3://B/P", "what is read below the prefix stays, until the pin ends",
     pin_options, pin_run, NULL, true},
    {"unpin", "s3://B/P", "ends a pin", NULL, unpin_run, NULL, true},
    {"pins", "", "what is pinned", NULL, pins_run, NULL, false},
    {"config show", "", "the effective configuration", NULL, config_show_run, NULL, false},
    {"config reload", "", "the server reads its configuration anew, or says what is wrong with it",
     NULL, config_reload_run, NULL, true},
    {"drain", "", "not ready from now on; the server ends when what runs has finished", NULL,
     drain_run, NULL, true},
    {"version", "", "versions of this program and of the server", NULL, version_run, NULL, false},
    {"completion", "bash|zsh|fish", "a completion script", NULL, completion_run, NULL, false},
    {"man", "headpond|headpondd|headpond.toml", "a manual page, for man -l -", NULL, man_run, NULL,
     false},
    {"bench", "s3://BUCKET/KEY", "reads an object from the store, then through the server cold and "
     "warm", bench_options, bench_run, NULL, true},
    {"prewarm", "[s3://BUCKET/PREFIX]", "fetches all below a prefix before it is asked for",
     prewarm_options, prewarm_run, NULL, true},
    {"evict", "s3://BUCKET/PREFIX", "drops what is cached of a prefix", evict_options, evict_run,
     NULL, true},
    {"revalidate", "s3://BUCKET/PREFIX", "asks upstream for every ETag, drops what changed",
     job_options, revalidate_run, NULL, true},
    {"verify", "[s3://BUCKET/PREFIX]", "reads again and compares checksums, in the background",
     job_options, verify_run, NULL, true},
    {"jobs", "", "jobs that run and those that have ended", NULL, jobs_run, NULL, true},
    {"job show", "ID", "one job, with what failed", NULL, job_show_run, NULL, true},
    {"job wait", "ID", "waits until a job ends", wait_options, job_wait_run, NULL, true},
    {"job pause", "ID", "lets a job rest", NULL, job_pause_run, NULL, true},
    {"job resume", "ID", "goes on with a job that rests", NULL, job_resume_run, NULL, true},
    {"job retry", "ID", "does a job that has ended again", NULL, job_retry_run, NULL, true},
    {"job cancel", "ID", "ends a job", NULL, job_cancel_run, NULL, true},
    {"job bandwidth", "ID SIZE", "what a prewarm may fetch in a second from now on, as 200MB; 0 is "
     "no limit", NULL, job_bandwidth_run, NULL, true},
    {"plan load", "FILE|-", "says in which order a job will read, so that it is fetched ahead",
     NULL, plan_load_run, NULL, true},
    {"plan show", "[ID]", "how far the readers of plans are, and how far ahead of them it is", NULL,
     plan_show_run, NULL, true},
    {"plan drop", "ID", "forgets a plan", NULL, plan_drop_run, NULL, true},
};

unsigned ctl_verb_count(void)
{
    return ARRAY_COUNT(ctl_verbs);
}

/* The verb of one word, or of two; *prefix: the word is the first of a two-word verb. */
static const struct verb *find_verb(const char *first, const char *second, bool *prefix)
{
    char both[64];

    *prefix = false;
    snprintf(both, sizeof both, "%s %s", first, second ? second : "");
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        if (strcmp(ctl_verbs[i].name, second ? both : first) == 0)
            return &ctl_verbs[i];
        size_t len = strlen(first);
        *prefix = *prefix || (strncmp(ctl_verbs[i].name, first, len) == 0 &&
                              ctl_verbs[i].name[len] == ' ');
    }
    return NULL;
}

/* ---- output for all ---- */

void ctl_say(const struct ctl *c, const char *format, ...)
{
    va_list args;

    if (c->quiet)
        return;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}

const char *ctl_paint(const struct ctl *c, const char *code)
{
    static const struct {
        const char *code, *sequence;
    } paints[] = {{"0", "\033[0m"}, {"31", "\033[31m"}, {"32", "\033[32m"}, {"33", "\033[33m"}};

    for (unsigned i = 0; c->color && i < ARRAY_COUNT(paints); i++)
        if (strcmp(paints[i].code, code) == 0)
            return paints[i].sequence;
    return "";
}

void ctl_print_json(const json_t *value)
{
    if (value)
        json_dumpf(value, stdout, JSON_COMPACT);
    putchar('\n');
}

static void print_option_help(const struct option_row *o)
{
    for (; o && o->name; o++) {
        char name[64];
        bool maybe = o->kind == OPTION_MAYBE;
        struct text t;
        text_init(&t, name, sizeof name);
        if (o->letter)
            text_addf(&t, "-%s, ", o->letter);
        text_addf(&t, "--%s", o->name);
        if (o->value)
            text_addf(&t, "%s%s%s", maybe ? "[=" : " ", o->value, maybe ? "]" : "");
        printf("  %-20s %s\n", name, o->help);
    }
}

static void print_verbs(void)
{
    fputs("usage: headpond [OPTION]... COMMAND\n\n", stdout);
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s %s", ctl_verbs[i].name, ctl_verbs[i].args);
        if (ctl_verbs[i].run)
            printf("  %-31s %s\n", name, ctl_verbs[i].help);
    }
    fputs("\nNot in this version, but each says what to do instead:\n ", stdout);
    for (unsigned i = 0; i < ctl_verb_count(); i++)
        if (!ctl_verbs[i].run)
            printf(" %s%s", ctl_verbs[i].name, i + 1 < ctl_verb_count() ? "," : "\n");
}

static void print_help(const struct verb *v)
{
    if (v) {
        printf("usage: headpond %s%s%s%s\n  %s\n", v->name, v->args[0] ? " " : "", v->args,
               v->option ? " [OPTION]..." : "", v->help);
        print_option_help(v->option);
    } else {
        print_verbs();
    }
    fputs("\n", stdout);
    print_option_help(ctl_options);
    fputs("\nThe server is found by --server, HEADPOND_SERVER, unix:/run/headpond/admin.sock, "
          "http://127.0.0.1:9001.\nExit codes: ", stdout);
    for (const struct code_row *r = ctl_codes; r->help; r++)
        printf("%s%d %s", r == ctl_codes ? "" : ", ", r->code, r->help);
    fputs(".\n", stdout);
}

/* ---- the command line ---- */

static int fail_usage(const char *what, const char *given, const char *fix)
{
    fprintf(stderr, "headpond: %s \"%.80s\"%s\n", what, given, fix);
    return CTL_USAGE;
}

static const struct option_row *find_option(const struct option_row *o, struct span name,
                                            bool is_letter)
{
    for (; o && o->name; o++)
        if (is_letter ? o->letter && span_is(name, o->letter) : span_is(name, o->name))
            return o;
    return NULL;
}

static int fail_option(const struct ctl *c, const char *given, struct span name)
{
    struct conf_guess guess = {.word = name};
    char memory[200];
    struct text t;

    for (const struct option_row *o = c->verb ? c->verb->option : NULL; o && o->name; o++)
        conf_guess_at(&guess, span_of(o->name));
    for (const struct option_row *o = ctl_options; o->name; o++)
        conf_guess_at(&guess, span_of(o->name));
    text_init(&t, memory, sizeof memory);
    conf_guess_add(&t, &guess, "--", "");
    if (t.len == 0)
        text_adds(&t, "; see headpond --help");
    return fail_usage("unknown option", given, memory);
}

/* One option at argv[*at]; -1 to go on, USAGE_*, or an exit code. */
static int take_option(struct ctl *c, int argc, char **argv, int *at)
{
    const char *given = argv[*at], *value = NULL;
    bool is_letter = given[1] != '-';
    struct span rest = span_of(given + (is_letter ? 1 : 2));
    bool has_value = span_find(rest, '=') < rest.len;
    struct span name = span_cut(&rest, '=');
    const struct option_row *o = find_option(c->verb ? c->verb->option : NULL, name, is_letter);

    if (!o)
        o = find_option(ctl_options, name, is_letter);
    if (!o)
        return fail_option(c, given, name);
    if (has_value)
        value = rest.at ? rest.at : "";
    else if (o->kind == OPTION_VALUE && *at + 1 < argc)
        value = argv[++*at];
    if (o->kind == OPTION_VALUE && !value)
        return fail_usage("no value behind", given, "; see headpond --help");
    if (o->kind == OPTION_FLAG && has_value)
        return fail_usage("no value may follow", given, "; see headpond --help");
    if (!o->take)
        return strcmp(o->name, "help") == 0 ? USAGE_HELP : USAGE_VERSION;
    if (o->take(c, value))
        return -1;
    fprintf(stderr, "headpond: --%s \"%.80s\" is not usable: %s\n", o->name, value ? value : "",
            o->help);
    return CTL_USAGE;
}

static int fail_verb(const char *first, const char *second, bool prefix)
{
    struct conf_guess guess = {.word = span_of(first)};
    char memory[200];
    struct text t;

    text_init(&t, memory, sizeof memory);
    if (prefix) {
        text_addf(&t, "; behind it comes one of:");
        for (unsigned i = 0; i < ctl_verb_count(); i++) {
            struct span rest = span_of(ctl_verbs[i].name), word = span_cut(&rest, ' ');
            if (rest.len && span_is(word, first))
                text_addf(&t, " %.*s", (int)rest.len, rest.at);
        }
        return fail_usage(second ? "unknown word" : "unfinished command", second ? second : first,
                          memory);
    }
    for (unsigned i = 0; i < ctl_verb_count(); i++)
        conf_guess_at(&guess, span_of(ctl_verbs[i].name));
    conf_guess_add(&t, &guess, "", "");
    if (t.len == 0)
        text_adds(&t, "; see headpond --help");
    return fail_usage("unknown command", first, memory);
}

/* As many words as the help names. */
static unsigned words_of(const struct verb *v)
{
    struct span rest = span_of(v->args);
    unsigned count = 0;

    while (span_cut(&rest, ' ').len > 0)
        count++;
    return count;
}

/* One word; *first is a word that began a two-word verb. -1 to go on. */
static int take_word(struct ctl *c, const char *word, const char **first)
{
    bool prefix;

    if (c->verb) {
        if (c->verb->run && c->word_count == words_of(c->verb))
            return fail_usage("one word too many:", word, c->word_count ? "; one at a time"
                              : "; see headpond --help");
        if (c->word_count == CTL_WORDS_MAX)
            return -1;
        c->word[c->word_count++] = word;
        return -1;
    }
    c->verb = *first ? find_verb(*first, word, &prefix) : find_verb(word, NULL, &prefix);
    if (c->verb)
        return -1;
    if (*first || !prefix)
        return fail_verb(*first ? *first : word, *first ? word : NULL, *first != NULL);
    *first = word;
    return -1;
}

/* -1: c->verb can be run. */
static int read_command_line(struct ctl *c, int argc, char **argv)
{
    const char *first = NULL;
    bool help = false;
    int code = -1;

    for (int i = 1; i < argc && code == -1; i++) {
        bool is_option = argv[i][0] == '-' && argv[i][1];
        if (!c->verb && !first && strcmp(argv[i], "help") == 0) {
            help = true;             /* "help status" is "status --help" */
            continue;
        }
        code = is_option ? take_option(c, argc, argv, &i) : take_word(c, argv[i], &first);
        if (c->verb && !c->verb->run && code != USAGE_HELP && !help) {
            fprintf(stderr, "headpond: %s is not in this version; %s\n", c->verb->name,
                    c->verb->instead);
            return CTL_USAGE;
        }
    }
    if (code != -1)
        return code;
    if (!c->verb && first)
        return fail_verb(first, NULL, true);
    if (!c->verb || help)
        return USAGE_HELP;
    if (c->verb->args[0] != '[' && c->word_count < words_of(c->verb))
        return fail_usage("a word is missing behind", c->verb->name, "; see headpond --help");
    if (c->verb->single && c->server_count > 1)
        return fail_usage("more than one --server with", c->verb->name,
                          ": it is for one server; run it for each, with its --server alone");
    return -1;
}

int ctl_run(int argc, char **argv)
{
    const char *no_color = getenv("NO_COLOR"), *answered = NULL;
    struct ctl c = {.timeout_ms = 30000, .watch_ms = 2000, .wait_ms = 60000, .depth = 1,
        .clients = 8, .seconds = 20, .answered = &answered};

    c.color = isatty(STDOUT_FILENO) && !(no_color && no_color[0]);
    int code = read_command_line(&c, argc, argv);
    if (code == USAGE_HELP) {
        print_help(c.verb);
        code = argc > 1 ? CTL_DONE : CTL_USAGE;
    } else if (code == USAGE_VERSION) {
        puts("headpond " HEADPOND_VERSION);
        code = CTL_DONE;
    } else if (code == -1) {
        code = c.verb->run(&c);
    }
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CTL_DONE)
        code = CTL_FAILED;
    return code;
}
