/* Runs plays: play [-k] [-t] [-v] FILE.flow...
 *
 * One TAP line per step ("ok 3 - 20-range.flow: suffix") and one for the end of each play.
 * HEADPONDD names the server
 * (default: headpondd beside this program's build folder); -k keeps the directory of a failed play,
 * -t runs them over TLS, -v tells each step's time.
 * Exit 0: all passed.
 *
 * Invariants:
 *  1. Each play has an origin, a directory, ports and a server of its own; nothing is shared but
 *     the machine.
 *  2. Whatever a play did, its server is ended and its threads are joined before the next one
 *     begins.
 *
 * Life: a play is read, its origin started, its statements run in order; then clients are joined,
 * the server is stopped by SIGTERM.
 * Failure: the first one ends the play. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/flow/play.h"

enum {
    PLAY_BYTES_MAX = 1 * MIB, PARALLEL_MAX = 2048, PLAYER_STACK_BYTES = 512 * KIB, DYING_MS = 200,
};

static unsigned tests, failures;
static bool verbose, keep, over_tls;

bool play_fail(struct play *p, const struct statement *st, const char *format, ...)
{
    va_list more;
    struct text t;

    pthread_mutex_lock(&p->lock);
    if (!p->failed) {
        char words[600];
        va_start(more, format);
        vsnprintf(words, sizeof words, format, more);
        va_end(more);
        text_init(&t, p->failure, sizeof p->failure);
        text_addf(&t, "%s:%u: ", p->file, st ? st->line : 0);
        for (unsigned i = 0; st && i < st->count && i < 12; i++)
            text_addf(&t, "%s ", st->word[i].at);
        text_addf(&t, "-- %s", words);
        p->failed = true;
    }
    pthread_mutex_unlock(&p->lock);
    return false;
}

/* ---- players ---- */

struct player {                      /* a client with a thread */
    struct player *next;
    struct client *client;
    char name[64];
    pthread_t thread;
};

static void *run_player(void *argument)
{
    struct player *one = argument;

    (void)client_run(one->client);
    return NULL;
}

static bool start_player(struct play *p, const struct frame *f, const char *name, unsigned number,
                         struct player *one)
{
    pthread_attr_t attr;

    snprintf(one->name, sizeof one->name, "%s", name);
    one->client = client_make(p, &f->now, name);
    client_place(one->client, f, number);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, PLAYER_STACK_BYTES);
    int bad = pthread_create(&one->thread, &attr, run_player, one);
    pthread_attr_destroy(&attr);
    return bad ? play_fail(p, &f->now, "no thread") : true;
}

/* name NULL: all. */
static bool join_players(struct play *p, const char *name)
{
    bool found = !name;

    for (struct player **at = &p->players; *at;) {
        struct player *one = *at;
        if (name && strcmp(one->name, name) != 0) {
            at = &one->next;
            continue;
        }
        pthread_join(one->thread, NULL);
        *at = one->next;
        mem_give(one);
        found = true;
    }
    return found;
}

/* ---- statements ---- */

static bool do_server(struct play *p, const struct frame *f)
{
    return daemon_configure(p, f) && (p->daemon.pid || daemon_start(p, &f->now));
}

static bool tell_origin(struct play *p, const struct frame *f, struct origin *origin)
{
    struct frame *inner = mem_take(sizeof *inner);
    char answer[400];
    struct text t;
    bool good = true;

    must(inner);
    frame_enter(inner, f);
    while (good && frame_next(inner)) {
        text_init(&t, answer, sizeof answer);
        good = origin_do(origin, &inner->now, &t);
        if (!good)
            play_fail(p, &inner->now, "%s", answer);
    }
    mem_give(inner);
    return !p->failed;
}

static bool do_origin(struct play *p, const struct frame *f)
{
    return tell_origin(p, f, p->origin);
}

static bool do_origin2(struct play *p, const struct frame *f)
{
    return tell_origin(p, f, p->origin2);
}

static const char *name_in(const struct statement *st, const char *standard)
{
    return st->count > 1 ? st->word[1].at : standard;
}

static bool do_client(struct play *p, const struct frame *f)
{
    struct client *c = client_make(p, &f->now, name_in(&f->now, "client"));

    client_place(c, f, 0);
    return client_run(c);
}

static bool do_background(struct play *p, const struct frame *f)
{
    struct player *one = mem_take(sizeof *one);

    must(one);
    if (!start_player(p, f, name_in(&f->now, "background"), 0, one)) {
        mem_give(one);
        return false;
    }
    one->next = p->players;
    p->players = one;
    return true;
}

static bool do_parallel(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;
    uint64_t many = 0;
    unsigned made = 0;
    char name[32];

    if (st->count < 2 || size_read(st->word[1], &many) != OK || many == 0 || many > PARALLEL_MAX)
        return play_fail(p, st, "parallel N { }");
    struct player *all = mem_take(many * sizeof *all);
    must(all);
    for (; made < many; made++) {
        snprintf(name, sizeof name, "parallel-%u", made);
        if (!start_player(p, f, name, made, &all[made]))
            break;
    }
    for (unsigned i = 0; i < made; i++)
        pthread_join(all[i].thread, NULL);
    mem_give(all);
    return !p->failed;
}

static bool do_join(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    if (!join_players(p, st->count > 1 ? st->word[1].at : NULL))
        return play_fail(p, st, "no such client");
    return !p->failed;
}

static bool do_start(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    return daemon_start(p, st);
}

static bool do_stop(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    return daemon_signal(p, st, SIGTERM) && daemon_ended(p, st, false);
}

static bool do_term(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    return daemon_signal(p, st, SIGTERM);
}

static bool do_reload(struct play *p, const struct frame *f)
{
    return daemon_reload(p, &f->now);
}

static bool do_ended(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    return daemon_ended(p, st, false);
}

static bool do_restart(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    return do_stop(p, f) && daemon_start(p, st);
}

static bool do_kill(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    return daemon_signal(p, st, SIGKILL) && daemon_ended(p, st, true) && daemon_start(p, st);
}

static bool do_mark(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    return watch_mark(p, st);
}

/* certificate NAME: the files; `reload` makes the server see them. */
static bool do_certificate(struct play *p, const struct frame *f)
{
    return f->now.count == 2 ? wire_certificate(p, f->now.word[1].at)
                             : play_fail(p, &f->now, "certificate NAME");
}

static bool do_watch(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    if (!watch_knows(st))
        return play_fail(p, st, "expect origin, saw, metric or log");
    return watch_run(p, st);
}

static const struct verb {
    const char *name;
    bool block;
    bool (*run)(struct play *p, const struct frame *f);
} verb_table[] = {
    {"server", true, do_server},      {"origin", true, do_origin},     {"client", true, do_client},
    {"origin2", true, do_origin2},
    {"background", true, do_background}, {"parallel", true, do_parallel}, {"join", false, do_join},
    {"start", false, do_start},       {"stop", false, do_stop},        {"term", false, do_term},
    {"ended", false, do_ended},       {"restart", false, do_restart},  {"kill", false, do_kill},
    {"certificate", false, do_certificate}, {"reload", false, do_reload},
    {"mark", false, do_mark},         {"expect", false, do_watch},     {"wait", false, do_watch},
};

static bool run_statement(struct play *p, const struct frame *f)
{
    const struct statement *st = &f->now;

    for (size_t i = 0; i < ARRAY_COUNT(verb_table); i++) {
        const struct verb *v = &verb_table[i];
        if (!span_is(st->word[0], v->name))
            continue;
        if (v->block != st->block)
            return play_fail(p, st, v->block ? "a block is missing" : "no block belongs here");
        return v->run(p, f);
    }
    return play_fail(p, st, "unknown statement");
}

/* ---- reports ---- */

static void report(struct play *p, const char *what)
{
    tests++;
    if (!p->failed) {
        printf("ok %u - %s: %s\n", tests, p->file, what);
    } else {
        failures++;
        printf("not ok %u - %s: %s\n# %s\n", tests, p->file, what, p->failure);
        poll(NULL, 0, DYING_MS);     /* a report of a sanitizer takes its time */
        daemon_tail(p, daemon_died(p) ? 60 : 15);
    }
    fflush(stdout);
}

/* Steps are reported when the next one begins. */
static void next_step(struct play *p, const char *name)
{
    if (p->step[0])
        report(p, p->step);
    snprintf(p->step, sizeof p->step, "%s", name);
    if (verbose && name[0])
        printf("# %llu ms: %s\n", (unsigned long long)clock_ms(), name);
}

static void run_statements(struct play *p)
{
    struct frame *f = mem_take(sizeof *f);
    char text[32];

    must(f);
    frame_init(f, p, 0, p->script.count);
    snprintf(text, sizeof text, "%u", p->daemon.port);
    frame_set(f, "port", text);
    snprintf(text, sizeof text, "%u", p->daemon.admin_port);
    frame_set(f, "admin", text);
    snprintf(text, sizeof text, "%u", origin_port(p->origin));
    frame_set(f, "origin", text);
    snprintf(text, sizeof text, "%u", origin_port(p->origin2));
    frame_set(f, "origin2", text);
    while (frame_next(f)) {
        if (span_is(f->now.word[0], "step") && f->now.count > 1)
            next_step(p, f->now.word[1].at);
        else if (!run_statement(p, f))
            break;
    }
    mem_give(f);
}

/* ---- one play ---- */

static bool read_play(struct play *p, const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = mem_take(PLAY_BYTES_MAX);
    char why[200] = "cannot be read";

    must(text);
    size_t len = f ? fread(text, 1, PLAY_BYTES_MAX, f) : 0;
    bool good = f && script_read(span_make(text, len), &p->script, why) == OK;
    if (f)
        fclose(f);
    mem_give(text);
    return good ? true : play_fail(p, NULL, "%s", why);
}

static void end_play(struct play *p)
{
    join_players(p, NULL);
    if (!p->failed && p->daemon.pid) {
        static const struct statement end = {0};
        (void)(daemon_signal(p, &end, SIGTERM) && daemon_ended(p, &end, false));
    }
    if (p->step[0] && p->failed)
        report(p, p->step);
    else
        next_step(p, "");
    if (!p->failed)
        report(p, "ends cleanly");
    else if (!p->step[0])
        report(p, "runs");
    daemon_remove(p, keep && p->failed);
    if (p->origin)
        origin_stop(p->origin);
    if (p->origin2)
        origin_stop(p->origin2);
    script_free(&p->script);
    wire_end(p);
    mem_give(p->metrics_then);
    mem_give(p->kept);
    mem_give(p->metrics_now);
}

static void run_play(const char *path, const char *program)
{
    struct play *p = mem_take(sizeof *p);
    const struct origin_options options = {0};
    const char *slash = strrchr(path, '/');
    char why[200];

    must(p);
    p->file = slash ? slash + 1 : path;
    p->program = program;
    p->tls = over_tls;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->watch, NULL);
    p->metrics_then = mem_take(METRICS_BYTES);
    p->metrics_now = mem_take(METRICS_BYTES);
    must(p->metrics_then && p->metrics_now);
    p->origin = origin_start(&options, why);
    p->origin2 = origin_start(&options, why);
    if (!p->origin || !p->origin2)
        play_fail(p, NULL, "origin: %s", why);
    else if (read_play(p, path) && daemon_prepare(p))
        run_statements(p);
    end_play(p);
    mem_give(p);
}

int main(int argc, char **argv)
{
    const char *program = getenv("HEADPONDD");
    struct rlimit limit;
    char beside[400];
    int c;

    while ((c = getopt(argc, argv, "ktv")) != -1) {
        keep |= c == 'k';
        over_tls |= c == 't';
        verbose |= c == 'v';
        if (c == '?')
            return 2;
    }
    if (!program || !*program) {
        const char *slash = strrchr(argv[0], '/');
        snprintf(beside, sizeof beside, "%.*s/../headpondd", slash ? (int)(slash - argv[0]) : 1,
                 slash ? argv[0] : ".");
        program = beside;
    }
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (int i = optind; i < argc; i++)
        run_play(argv[i], program);
    printf("1..%u\nplays: %u passed, %u failed\n", tests, tests - failures, failures);
    return failures || tests == 0 ? 1 : 0;
}
