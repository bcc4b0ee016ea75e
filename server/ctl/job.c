/* headpond evict, revalidate, verify, jobs, job: work that a server does on what it has cached (and
 * what prewarm.c makes).
 *
 * Invariants:
 *  1. What drops data asks first, or is told --yes; --dry-run changes nothing.
 *  2. Who stops watching (Ctrl-C) stops nothing: the job goes on in the server, and that is said.
 *  3. The exit code is that of the job: 0 done, 3 some objects failed, 7 it does not fit, 1 failed
 *     or cancelled for another reason.
 *
 * Life: one job at a time, asked about four times a second while it is watched.
 * Failure: each message ends with the next command. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "conf.h"
#include "server/ctl/ctl.h"
#include "units.h"

enum {
    POLL_MS = 250,                   /* who waits for its end hears of it soon */
    FIRST_POLL_MS = 100,
    LINE_MS = 10000,
    JOB_TEXT_BYTES = 16 * KIB,
    KEY_SHOWN = 200,
    BAR = 26,
    JOB_PATH_BYTES = 80,
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

/* ---- how a job reads ---- */
static void add_words(struct text *t, const json_t *job, const char *name)
{
    text_add_printable(t, span_of(value_text(job, name)), KEY_SHOWN);
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void add_prefix(struct text *t, const json_t *job)
{
    if (value_text(job, "prefix")[0])
        add_words(t, job, "prefix");
    else
        text_adds(t, "everything");
}

/* "2026-11-20T18:00:02Z" as seconds; 0: it is none. */
static uint64_t seconds_of(const char *text)
{
    struct tm utc = {0};

    if (!strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc))
        return 0;
    return (uint64_t)timegm(&utc);
}

static void add_took(struct text *t, const json_t *job)
{
    uint64_t from = seconds_of(value_text(job, "started")),
             to = seconds_of(value_text(job, "ended"));

    if (from == 0 || to < from)
        return;
    text_adds(t, " in ");
    units_duration(t, to - from);
}

static bool is_prewarm(const json_t *job)
{
    return strcmp(value_text(job, "kind"), "prewarm") == 0;
}

static void add_pin(struct text *t, const json_t *job)
{
    const char *until = value_text(job, "until");

    if (!value_true(job, "pin"))
        return;
    text_adds(t, until[0] ? ", pinned until " : ", pinned");
    if (until[0])
        when_add(t, until);
}

static void add_counts(struct text *t, const json_t *job)
{
    const json_t *objects = json_object_get(job, "objects"), *bytes = json_object_get(job, "bytes");
    uint64_t wanted = value_u64(objects, "wanted"), done = value_u64(objects, "done");
    uint64_t dropped = value_u64(job, "dropped");
    const char *kind = value_text(job, "kind");

    units_count(t, done);
    text_adds(t, " of ");
    units_count(t, max_u64(wanted, done));
    text_addf(t, " object%s", plural(max_u64(wanted, done)));
    if (value_u64(bytes, "done")) {
        text_adds(t, ", ");
        units_bytes(t, value_u64(bytes, "done"));
    }
    if (value_u64(bytes, "left")) {
        text_adds(t, ", ");
        units_bytes(t, value_u64(bytes, "left"));
        text_adds(t, " left");
    }
    if (strcmp(kind, "revalidate") == 0)
        text_addf(t, ", %llu had changed", (unsigned long long)dropped);
    if (strcmp(kind, "verify") == 0)
        text_addf(t, ", %llu damaged block%s dropped", (unsigned long long)dropped,
                  plural(dropped));
    if (value_u64(objects, "skipped"))
        text_addf(t, ", %llu skipped", (unsigned long long)value_u64(objects, "skipped"));
}

static void add_failures(struct text *t, const json_t *job, const char *id)
{
    uint64_t failed = value_u64(json_object_get(job, "objects"), "failed");
    const json_t *list = json_object_get(job, "failures");
    size_t told = json_array_size(list);

    if (failed == 0)
        return;
    text_addf(t, "%llu failed", (unsigned long long)failed);
    for (size_t i = 0; i < told; i++) {
        const json_t *one = json_array_get(list, i);
        uint64_t tries = value_u64(one, "tries");
        text_adds(t, i ? ", " : ": ");
        add_words(t, one, "key");
        text_addc(t, ' ');
        add_words(t, one, "error");
        text_addf(t, " (%llu %s)", (unsigned long long)tries, tries == 1 ? "try" : "tries");
    }
    text_adds(t, failed > told && told ? ", ...\n" : "\n");
    text_addf(t, "again: headpond job retry %s\n", id);
}

/* What does not let all of a prewarm in, and what would. */
struct limit {
    const char *name, *can, *makes;
};
static const struct limit *limit_of(const json_t *job)
{
    static const struct limit limits[] = {
        {"disks", " can be made free without pinned data.", "headpond unpin makes room"},
        {"quota", " can be had within the quota of its section.", "a larger quota makes room"},
        {"index_memory", " can be had with cache.index_memory as it is.",
         "more of that makes room"},
    };
    unsigned n = ARRAY_COUNT(limits);

    while (--n > 0 && strcmp(limits[n].name, value_text(job, "limit")) != 0)
        ;
    return &limits[n];
}

/* What a prewarm has counted, and whether that fits. */
static void add_room(struct text *t, const json_t *job)
{
    const json_t *objects = json_object_get(job, "objects"), *bytes = json_object_get(job, "bytes");
    uint64_t wanted = value_u64(objects, "wanted");

    text_adds(t, "would fetch ");
    units_count(t, wanted);
    text_addf(t, " object%s, ", plural(wanted));
    units_bytes(t, value_u64(bytes, "wanted"));
    text_adds(t, " (");
    units_bytes(t, value_u64(bytes, "here"));
    text_adds(t, value_text(job, "error")[0] ? " here). It does not fit: " : " here). It fits: ");
    units_bytes(t, value_u64(bytes, "free"));
    text_adds(t, limit_of(job)->can);
}

static bool is_over(const json_t *job)
{
    const char *state = value_text(job, "state");

    return strcmp(state, "done") == 0 || strcmp(state, "failed") == 0 ||
        strcmp(state, "cancelled") == 0;
}

static int code_of(const json_t *job)
{
    const char *state = value_text(job, "state");
    bool failed = strcmp(state, "failed") == 0, cancelled = strcmp(state, "cancelled") == 0;

    if (failed && strcmp(value_text(job, "error"), "would_not_fit") == 0)
        return CTL_NO_ROOM;
    if (failed || cancelled)
        return CTL_FAILED;
    return value_u64(json_object_get(job, "objects"), "failed") > 0 ? CTL_PARTLY : CTL_DONE;
}

/* "j7 prewarm train/ done in 2m 11s: ", of a prewarm that is over "j7 done in 2m 11s: ". */
static void add_title(struct text *t, const json_t *job, const char *id)
{
    text_addf(t, "%s ", id);
    if (!is_prewarm(job) || !is_over(job)) {
        add_words(t, job, "kind");
        text_addc(t, ' ');
        add_prefix(t, job);
        text_addc(t, ' ');
    }
    add_words(t, job, "state");
    add_took(t, job);
    text_adds(t, ": ");
}

int job_text(const json_t *job, struct text *out)
{
    const char *state = value_text(job, "state");
    bool failed = strcmp(state, "failed") == 0, cancelled = strcmp(state, "cancelled") == 0;
    bool room = code_of(job) == CTL_NO_ROOM;
    bool dry = value_true(job, "dry_run") && is_over(job) && !cancelled && (room || !failed);
    char id[32];
    struct text t;

    text_init(&t, id, sizeof id);
    text_add_printable(&t, span_of(value_text(job, "id")), sizeof id - 1);
    if (!dry)
        add_title(out, job, id);
    if (room || dry)
        add_room(out, job);
    else
        add_counts(out, job);
    if (!room && !dry && strcmp(state, "done") == 0)
        add_pin(out, job);
    text_addc(out, '\n');
    if (room) {
        text_addf(out, "--force brings what fits, --include '*-000?.tar' takes less, %s.\n",
                  limit_of(job)->makes);
    } else if (value_text(job, "note")[0]) {
        text_adds(out, "note: ");
        add_words(out, job, "note");
        text_addc(out, '\n');
    }
    add_failures(out, job, id);
    if ((cancelled || failed) && !dry)
        text_addf(out, "%s: headpond job retry %s\n", cancelled ? "from the start" : "again", id);
    return code_of(job);
}

/* On stdout; takes nothing. The exit code. */
static int print_job(const struct ctl *c, const json_t *job)
{
    char memory[JOB_TEXT_BYTES];
    struct text t;

    text_init(&t, memory, sizeof memory);
    int code = job_text(job, &t);
    if (c->json)
        ctl_print_json(job);
    else
        fputs(memory, stdout);
    return code;
}

/* ---- watching ---- */
static double share_of(const json_t *job)
{
    const json_t *bytes = json_object_get(job, "bytes"), *objects = json_object_get(job, "objects");
    const json_t *by = value_u64(bytes, "done") ? bytes : objects;
    double wanted = value_number(by, "wanted"), done = value_number(by, "done");

    return wanted <= 0 ? 0 : done >= wanted ? 1 : done / wanted;
}

static void add_progress(struct text *t, const json_t *job, bool bar)
{
    double share = share_of(job);
    bool counts = strcmp(value_text(job, "pass"), "counting") == 0;
    uint64_t failed = value_u64(json_object_get(job, "objects"), "failed");

    if (counts) {
        text_adds(t, "counting: ");
        units_count(t, value_u64(json_object_get(job, "objects"), "wanted"));
        text_adds(t, " objects, ");
        units_bytes(t, value_u64(json_object_get(job, "bytes"), "wanted"));
        text_adds(t, "  ");
        add_words(t, job, "note");
        return;
    }
    if (strcmp(value_text(job, "pass"), "checking") == 0)
        text_adds(t, "checking ");
    if (bar) {
        text_addc(t, '[');
        for (unsigned i = 0; i < BAR; i++)
            text_addc(t, i < (unsigned)(share * BAR) ? '#' : '-');
        text_adds(t, share < 0.095 ? "]   " : share < 0.995 ? "]  " : "] ");
    }
    units_percent(t, share, 0);
    text_adds(t, "  ");
    if (bar && is_prewarm(job))
        units_bytes_part(t, value_u64(json_object_get(job, "bytes"), "done"),
                         value_u64(json_object_get(job, "bytes"), "wanted"));
    else
        add_counts(t, job);
    if (value_number(job, "rate_bytes_per_s") > 0) {
        double rate = value_number(job, "rate_bytes_per_s");
        text_adds(t, "  ");
        units_rate(t, rate, rate);
    }
    if (value_u64(job, "eta_s")) {
        text_adds(t, "  ");
        units_duration(t, value_u64(job, "eta_s"));
        text_adds(t, " left");
    }
    if (failed)
        text_addf(t, "  %llu failed", (unsigned long long)failed);
    if (value_text(job, "note")[0]) {
        text_adds(t, "  ");
        add_words(t, job, "note");
    }
}

void job_brief(const json_t *job, struct text *out)
{
    add_words(out, job, "id");
    text_addc(out, ' ');
    add_words(out, job, "kind");
    text_addc(out, ' ');
    add_prefix(out, job);
    text_addc(out, ' ');
    if (strcmp(value_text(job, "pass"), "counting") == 0)
        text_adds(out, "counting");
    else
        units_percent(out, share_of(job), 0);
    if (value_u64(job, "eta_s") == 0)
        return;
    text_adds(out, " (");
    units_duration(out, value_u64(job, "eta_s"));
    text_adds(out, " left)");
}

struct watch {
    const struct ctl *c;
    const char *id;
    bool bar, drawn, announced;
    uint64_t end_ms, line_ms;        /* end_ms 0: no limit */
};

static void clear_progress(struct watch *w)
{
    if (w->drawn)
        fputs("\r\033[K", stderr);
    w->drawn = false;
}

/* "j7 prewarm train/: 1 281 objects, 139.1 GiB, 51.0 GiB already here, 1.94 TiB free": once it is
 * counted, for who made the job. */
static void announce(struct watch *w, const json_t *job)
{
    const json_t *objects = json_object_get(job, "objects"), *bytes = json_object_get(job, "bytes");
    char memory[2 * KIB];
    struct text t;

    if (w->announced || strcmp(w->c->verb->name, "prewarm") != 0 || !is_prewarm(job) ||
        !json_object_get(bytes, "free") || value_true(job, "dry_run") || w->c->json)
        return;
    w->announced = true;
    if (value_text(job, "error")[0])
        return;
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s prewarm ", w->id);
    add_prefix(&t, job);
    text_adds(&t, ": ");
    units_count(&t, value_u64(objects, "wanted"));
    text_addf(&t, " object%s, ", plural(value_u64(objects, "wanted")));
    units_bytes(&t, value_u64(bytes, "wanted"));
    text_adds(&t, ", ");
    units_bytes(&t, value_u64(bytes, "here"));
    text_adds(&t, " already here, ");
    units_bytes(&t, value_u64(bytes, "free"));
    text_adds(&t, " free");
    clear_progress(w);
    ctl_say(w->c, "%s\n", memory);
}

static void show_progress(struct watch *w, const json_t *job)
{
    char memory[KIB];
    struct text t;

    if (w->c->quiet || w->c->json || w->c->no_progress)
        return;
    if (!w->bar && clock_ms() < w->line_ms)
        return;
    text_init(&t, memory, sizeof memory);
    add_progress(&t, job, w->bar);
    fprintf(stderr, w->bar ? "\r\033[K%s" : "%s\n", memory);
    w->line_ms = clock_ms() + LINE_MS;
    w->drawn = w->bar;
}

static int stop_watching(struct watch *w, int code)
{
    clear_progress(w);
    ctl_say(w->c, "%s in the server. Follow: headpond job wait %s   Stop: headpond job cancel %s\n",
            "still running", w->id, w->id);
    return code;
}

int job_watch(const struct ctl *c, const char *id)
{
    struct watch w = {.c = c, .id = id, .bar = isatty(STDERR_FILENO)};
    struct sigaction quit = {.sa_handler = on_interrupt}, before;
    char path[JOB_PATH_BYTES];
    int code = CTL_DONE;
    int pause_ms = FIRST_POLL_MS;

    snprintf(path, sizeof path, "/v1/jobs/%s", id);
    w.end_ms = c->wait_limited ? clock_ms() + c->wait_ms : 0;
    w.line_ms = clock_ms() + LINE_MS;
    sigaction(SIGINT, &quit, &before);
    for (;;) {
        struct reply r = {0};
        json_t *job = client_json(c, path, &r, &code);
        bool over = !job || is_over(job);
        if (job)
            announce(&w, job);
        if (job && !over)
            show_progress(&w, job);
        if (over)
            clear_progress(&w);
        if (job && over)
            code = print_job(c, job);
        json_decref(job);
        reply_free(&r);
        if (over)
            break;
        if (interrupted || (w.end_ms && clock_ms() >= w.end_ms)) {
            code = stop_watching(&w, interrupted ? CTL_INTERRUPTED : CTL_TIMEOUT);
            break;
        }
        poll(NULL, 0, pause_ms);
        pause_ms = POLL_MS;
    }
    sigaction(SIGINT, &before, NULL);
    return code;
}

int job_end(const struct ctl *c, const char *id)
{
    char path[JOB_PATH_BYTES], memory[JOB_TEXT_BYTES];
    struct text t;

    snprintf(path, sizeof path, "/v1/jobs/%s", id);
    for (;;) {
        struct reply r = {0};
        int code = CTL_FAILED;
        json_t *job = client_json(c, path, &r, &code);
        bool over = !job || is_over(job);
        text_init(&t, memory, sizeof memory);
        if (job && over)
            code = job_text(job, &t);
        if (job && over && code != CTL_DONE)
            fputs(memory, stderr);
        json_decref(job);
        reply_free(&r);
        if (over)
            return code;
        poll(NULL, 0, FIRST_POLL_MS);
    }
}

/* ---- making jobs ---- */
static char *body_of(const struct ctl *c, bool dry_run)
{
    const char *prefix = c->word_count ? c->word[0] : "";
    json_t *body = json_object();

    if (strncmp(prefix, "s3://", 5) == 0)
        prefix += 5;
    json_object_set_new(body, "prefix", json_string(prefix));
    if (dry_run)
        json_object_set_new(body, "dry_run", json_true());
    if (c->unread_for)
        json_object_set_new(body, "unread_for", json_string(c->unread_for));
    if (c->keep_pinned)
        json_object_set_new(body, "keep_pinned", json_true());
    size_t len = json_dumpb(body, NULL, 0, JSON_COMPACT);
    char *text = mem_take(len + 1);
    if (text)
        json_dumpb(body, text, len, JSON_COMPACT);
    json_decref(body);
    return text;
}

static json_t *send_job(const struct ctl *c, const char *path, bool dry_run, int *code)
{
    char *body = body_of(c, dry_run);

    *code = CTL_FAILED;
    json_t *answer = body ? client_call(c, "POST", path, body, code) : NULL;
    mem_give(body);
    return answer;
}

static void add_meant(struct text *t, const json_t *count)
{
    uint64_t objects = value_u64(count, "matched_objects");
    uint64_t pinned = value_u64(count, "pinned_skipped");

    units_count(t, objects);
    text_addf(t, " object%s, ", plural(objects));
    units_bytes(t, value_u64(count, "bytes"));
    if (pinned)
        text_addf(t, " (%llu pinned stay)", (unsigned long long)pinned);
}

static int say_dry(const struct ctl *c, const char *path)
{
    char memory[KIB];
    struct text t;
    int code;
    json_t *count = send_job(c, path, true, &code);

    if (!count)
        return code;
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "would %s ", c->verb->name);
    add_meant(&t, count);
    if (c->json)
        ctl_print_json(count);
    else
        printf("%s\n", memory);
    json_decref(count);
    return CTL_DONE;
}

/* false: *code says why not. */
static bool is_meant(const struct ctl *c, const char *path, int *code)
{
    char memory[KIB], line[16] = "";
    struct text t;

    if (c->yes)
        return true;
    if (!isatty(STDIN_FILENO)) {
        fprintf(stderr,
                "headpond: nobody can be asked here; look with --dry-run, then say --yes\n");
        *code = CTL_USAGE;
        return false;
    }
    json_t *count = send_job(c, path, true, code);
    if (!count)
        return false;
    text_init(&t, memory, sizeof memory);
    add_meant(&t, count);
    json_decref(count);
    fprintf(stderr, "%s %s? [y/N] ", c->verb->name, memory);
    *code = CTL_INTERRUPTED;
    return fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y');
}

static int run_job(struct ctl *c, const char *path)
{
    char id[32];
    struct span place;
    struct text t;
    int code;

    if (c->word_count && (!place_read(c->word[0], &place) || !span_is_utf8(place))) {
        fprintf(stderr, "headpond: \"%.80s\" names no bucket, or is no text in UTF-8; write "
                        "s3://BUCKET/PREFIX\n", c->word[0]);
        return CTL_USAGE;
    }
    if (c->dry_run)
        return say_dry(c, path);
    json_t *job = send_job(c, path, false, &code);
    if (!job)
        return code;
    text_init(&t, id, sizeof id);
    text_add_printable(&t, span_of(value_text(job, "id")), sizeof id - 1);
    const json_t *objects = json_object_get(job, "objects"), *bytes = json_object_get(job, "bytes");
    char memory[KIB];
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s %s ", id, c->verb->name);
    add_prefix(&t, job);
    text_adds(&t, ": ");
    units_count(&t, value_u64(objects, "wanted"));
    text_addf(&t, " object%s, ", plural(value_u64(objects, "wanted")));
    units_bytes(&t, value_u64(bytes, "wanted"));
    if (c->detach && c->json)
        ctl_print_json(job);
    else
        ctl_say(c, "%s\n", memory);
    json_decref(job);
    if (c->detach)
        ctl_say(c, "Follow: headpond job wait %s   Stop: headpond job cancel %s\n", id, id);
    return c->detach ? CTL_DONE : job_watch(c, id);
}

int evict_run(struct ctl *c)
{
    int code = CTL_DONE;

    if (!c->dry_run && !is_meant(c, "/v1/evict", &code))
        return code;
    return run_job(c, "/v1/evict");
}

int revalidate_run(struct ctl *c)
{
    return run_job(c, "/v1/revalidate");
}

int verify_run(struct ctl *c)
{
    return run_job(c, "/v1/verify");
}

/* ---- those that are known ---- */
/* A word of the server's, and blanks up to the next column. */
static void add_column(struct text *t, const char *word, size_t width)
{
    size_t end = t->len + width;

    text_add_printable(t, span_of(word), width + 1);
    do
        text_addc(t, ' ');
    while (t->len < end);
}

int jobs_run(struct ctl *c)
{
    struct reply r = {0};
    int code = CTL_DONE;
    json_t *answer = client_json(c, "/v1/jobs", &r, &code);
    const json_t *list = json_object_get(answer, "jobs");
    char memory[2 * KIB];
    struct text t;

    if (!answer)
        return code;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *job = json_array_get(list, i);
        text_init(&t, memory, sizeof memory);
        if (c->json) {
            ctl_print_json(job);
            continue;
        }
        add_column(&t, value_text(job, "id"), 6);
        add_column(&t, value_text(job, "kind"), 11);
        add_column(&t, value_text(job, "state"), 10);
        add_prefix(&t, job);
        text_adds(&t, "  ");
        add_progress(&t, job, false);
        puts(memory);
    }
    if (json_array_size(list) == 0)
        ctl_say(c, "no jobs; headpond prewarm, evict, revalidate and verify make some\n");
    json_decref(answer);
    reply_free(&r);
    return CTL_DONE;
}

/* false: no id; said. */
static bool path_of(const struct ctl *c, const char *what, char path[JOB_PATH_BYTES])
{
    struct span id = span_of(c->word[0]);
    uint64_t n;

    if (id.len < 2 || id.at[0] != 'j' ||
        span_u64(span_from(id, 1), &n) != OK) {
        fprintf(stderr, "headpond: \"%.40s\" is no job's id, which is j and a number; see headpond "
                        "jobs\n", c->word[0]);
        return false;
    }
    snprintf(path, JOB_PATH_BYTES, "/v1/jobs/j%llu%s", (unsigned long long)n, what);
    return true;
}

int job_show_run(struct ctl *c)
{
    char path[JOB_PATH_BYTES];
    struct reply r = {0};
    int code = CTL_DONE;

    if (!path_of(c, "", path))
        return CTL_USAGE;
    json_t *job = client_json(c, path, &r, &code);
    if (!job)
        return code;
    print_job(c, job);
    json_decref(job);
    reply_free(&r);
    return CTL_DONE;
}

int job_wait_run(struct ctl *c)
{
    char path[JOB_PATH_BYTES];

    return path_of(c, "", path) ? job_watch(c, path + strlen("/v1/jobs/")) : CTL_USAGE;
}

static int wish(struct ctl *c, const char *method, const char *what, const char *said,
                const char *next)
{
    char path[JOB_PATH_BYTES];
    int code = CTL_DONE;

    if (!path_of(c, what, path))
        return CTL_USAGE;
    json_t *job = client_call(c, method, path, NULL, &code);
    if (!job)
        return code;
    if (c->json)
        ctl_print_json(job);
    else
        ctl_say(c, "%s %s: headpond job %s %s\n", c->word[0], said, next, c->word[0]);
    json_decref(job);
    return CTL_DONE;
}

int job_pause_run(struct ctl *c)
{
    return wish(c, "POST", "/pause", "rests. Go on", "resume");
}

int job_resume_run(struct ctl *c)
{
    return wish(c, "POST", "/resume", "goes on. Follow", "wait");
}

int job_retry_run(struct ctl *c)
{
    return wish(c, "POST", "/retry", "begins again. Follow", "wait");
}

int job_cancel_run(struct ctl *c)
{
    return wish(c, "DELETE", "", "ends. From the start again", "retry");
}

int job_bandwidth_run(struct ctl *c)
{
    char path[JOB_PATH_BYTES], body[64];
    uint64_t bytes;
    int code = CTL_DONE;

    if (!path_of(c, "/bandwidth", path))
        return CTL_USAGE;
    if (conf_read_bytes(span_of(c->word[1]), &bytes) != OK || bytes > INT64_MAX) {
        fprintf(stderr, "headpond: \"%.40s\" is no size; write it as 200MB, or 0\n", c->word[1]);
        return CTL_USAGE;
    }
    snprintf(body, sizeof body, "{\"bandwidth\":%llu}", (unsigned long long)bytes);
    json_t *job = client_call(c, "POST", path, body, &code);
    if (!job)
        return code;
    if (c->json)
        ctl_print_json(job);
    else
        ctl_say(c, "%s fetches with that from now on. Follow: headpond job wait %s\n", c->word[0],
                c->word[0]);
    json_decref(job);
    return CTL_DONE;
}
