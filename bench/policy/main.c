/* Runs traces through the server's policy and through others, and holds the figures against goals.
 *
 * Invariants:
 *  1. A trace is one child process; at most two run at a time. What it found comes through a pipe.
 *  2. A goal that was not measured is no row.
 *
 * Life: main() forks, collects in the order of the traces, prints. Failure: exit 1 when a row
 * fails, 2 when nothing could be run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/policy/replay.h"

enum { SIZES = 5, AT_ONCE = 2, RIVALS = 4, TRACES_MAX = 32, HORIZONS = 5 };
enum column { EHD, PLAN, MIN, LRU, S3FIFO, ARC, WTINYLFU, COLUMNS };

static const double sizes[SIZES] = {.1, .25, .5, .75, .9};
static const char *const column_names[COLUMNS] = {"ehd",     "ehd_plan", "min",      "lru",
                                                  "s3-fifo", "arc",      "w-tinylfu"};
/* of its epoch, that each job tells ahead */
static const double horizons[HORIZONS] = {.02, .1, .5, 1, 2};

struct row {                         /* one trace at one size */
    double size;                     /* of the cache, in working sets; 0: not measured */
    double ratio[COLUMNS];           /* of bytes that did not come from upstream; NAN: not run */
    double fills;                    /* of EHD: bytes written per byte served */
    double planned_fills;            /* with plans */
    double churn;                    /* the same, beyond filling the cache as often as must be */
    double ns;
};
struct sized {                       /* what the cache says of other sizes, and what those do */
    double rate;                     /* of the sample; 0: was not asked */
    double forecast[SIZING_SIZES], real[SIZING_SIZES];
};
struct found {                       /* what a child tells */
    struct row row[SIZES];
    bool told;                       /* the next: was asked */
    double planned[HORIZONS];        /* by how far plans tell */
    struct sized sized;
};
struct options {
    const char *trace;               /* NULL: all */
    double size;                     /* 0: all */
    bool rivals;                     /* on every trace */
    bool sizing;                     /* other sizes, too */
    bool horizons;                   /* shorter and longer plans, too */
    const char *csv;
};

double score_ratio(const struct score *s)
{
    return 1 - (double)s->fetched / (double)s->asked;
}

/* ---- goals ---- */

struct goal {
    const char *trace;
    double small, rest;              /* least share of MIN at the smallest size, at the others */
};

static const struct goal goals[] = {
    {"a_seq1", .99, .99}, {"a_seq64", .99, .99},  {"b_shuf", .99, .99},     {"b_1m", .98, .98},
    {"c_rand", .99, .99}, {"d_off5", .97, .97},   {"d_off25", .80, .80},    {"e_multi", .94, .97},
    {"g_scan", .98, .98}, {"h_ckpt", .95, .95},   {"f_daynight", .99, .99}, {"i_ver", .99, .99},
    {"i_seq", .99, .99},
};
static const char *const loops[] = {"a_seq1", "a_seq64",    "b_shuf", "b_1m",
                                    "c_rand", "f_daynight", "i_ver",  "i_seq"};
static const char *const skewed[] = {"j_zipf08", "j_zipf10", "j_drift"};
static const double RIVAL_SHARE = .99, CHURN_MOST = .06, NS_MOST = 3000, FORECAST_OFF = .03;
static bool timed = true;            /* what a reference costs is judged, and not only told */
static const double PLANNED_SHARE = .95, PLANNED_SHARE_ELSE = .92; /* of MIN; at other sizes */
static const double SIZED = .25;     /* of the working set: the cache that is asked */
static const double NOT_RUN = -99;

static unsigned passed, failed;

static void judge(const char *trace, double size, const char *what, bool good)
{
    passed += good;
    failed += !good;
    if (!good)
        printf("FAILED  %s f=%.2f %s\n", trace, size, what);
}

static bool is_among(const char *name, const char *const *list, size_t count)
{
    for (size_t n = 0; n < count; n++)
        if (strcmp(name, list[n]) == 0)
            return true;
    return false;
}

static double share_of_min(const struct row *r, enum column c)
{
    return r->ratio[c] == NOT_RUN ? NOT_RUN : r->ratio[c] / r->ratio[MIN];
}

static double best_rival(const struct row *r)
{
    double best = r->ratio[S3FIFO];

    best = r->ratio[ARC] > best ? r->ratio[ARC] : best;
    return r->ratio[WTINYLFU] > best ? r->ratio[WTINYLFU] : best;
}

static void judge_row(const char *trace, const struct row *r)
{
    char what[100];

    for (size_t n = 0; n < ARRAY_COUNT(goals); n++) {
        double least = r->size < .15 ? goals[n].small : goals[n].rest;
        if (strcmp(goals[n].trace, trace) != 0)
            continue;
        snprintf(what, sizeof what, "%.4f of MIN, wanted %.2f", r->ratio[EHD] / r->ratio[MIN],
                 least);
        judge(trace, r->size, what, r->ratio[EHD] >= least * r->ratio[MIN]);
    }
    if (r->ratio[PLAN] != NOT_RUN) {
        double least = r->size == SIZED ? PLANNED_SHARE : PLANNED_SHARE_ELSE;
        snprintf(what, sizeof what, "with plans %.4f of MIN, wanted %.2f", share_of_min(r, PLAN),
                 least);
        judge(trace, r->size, what, share_of_min(r, PLAN) >= least);
    }
    if (is_among(trace, skewed, ARRAY_COUNT(skewed))) {
        snprintf(what, sizeof what, "%.4f of the best other one", r->ratio[EHD] / best_rival(r));
        judge(trace, r->size, what, r->ratio[EHD] >= RIVAL_SHARE * best_rival(r));
    }
    if (is_among(trace, loops, ARRAY_COUNT(loops))) {
        snprintf(what, sizeof what, "%.4f bytes written per byte served after the fill", r->churn);
        judge(trace, r->size, what, r->churn <= CHURN_MOST);
    }
    snprintf(what, sizeof what, "%.0f ns per reference", r->ns);
    if (timed)
        judge(trace, r->size, what, r->ns <= NS_MOST);
}

static void judge_sized(const char *trace, const struct sized *s)
{
    char what[100];

    for (unsigned n = 0; n < SIZING_SIZES; n++) {
        double off = s->forecast[n] - s->real[n];
        snprintf(what, sizeof what, "forecast %.4f for %.1f times the size, which gives %.4f",
                 s->forecast[n], sizing_factor[n], s->real[n]);
        judge(trace, SIZED, what, off <= FORECAST_OFF && off >= -FORECAST_OFF);
    }
}

/* ---- one trace ---- */

/* The forecast at the server's rate of sampling, against caches of those sizes in the same window
 * of reads. */
static struct sized measure_sized(const struct trace *t)
{
    static struct sizing_report report;
    struct sized s;
    double capacity = SIZED * (double)t->working_set;

    replay_sizing(t, (uint64_t)capacity, SIZING_CHUNKS, &report);
    s.rate = report.rate;
    memcpy(s.forecast, report.all.predicted, sizeof s.forecast);
    for (unsigned n = 0; n < SIZING_SIZES; n++) {
        s.real[n] = report.all.measured;
        if (sizing_factor[n] == 1)
            continue;
        static struct sizing_report other;
        replay_sizing(t, (uint64_t)(capacity * sizing_factor[n]), SIZING_CHUNKS, &other);
        s.real[n] = other.all.measured;
    }
    return s;
}

static struct score replay_plan(const struct trace *t, uint64_t capacity)
{
    return replay_planned(t, capacity, 1);
}

/* What else runs on the machine only adds to the time: the lowest of three counts. */
static double fastest(const struct trace *t, uint64_t capacity, double ns)
{
    for (unsigned again = 0; again < 2 && ns > NS_MOST; again++)
        ns = fmin(ns, replay_ehd(t, capacity).ns);
    return ns;
}

static struct row measure(const struct trace *t, double size, bool rivals)
{
    static struct score (*const replays[COLUMNS])(const struct trace *t, uint64_t capacity) = {
        replay_ehd,    replay_plan, replay_min,     replay_lru,
        replay_s3fifo, replay_arc,  replay_wtinylfu};
    uint64_t capacity = (uint64_t)(size * (double)t->working_set);
    struct row r = {.size = size, .planned_fills = NOT_RUN};

    for (unsigned c = 0; c < COLUMNS; c++) {
        r.ratio[c] = NOT_RUN;
        if (c == MIN && t->epochs > 0) {
            /* Nothing that is read once an epoch can hit before the next one. */
            r.ratio[c] = size * (t->epochs - 1) / t->epochs;
            continue;
        }
        if ((c >= LRU && !rivals) || (c == PLAN && !follower_tells(t)))
            continue;
        struct score s = replays[c](t, capacity);
        r.ratio[c] = score_ratio(&s);
        if (c == PLAN)
            r.planned_fills = (double)s.written / (double)s.asked;
        if (c != EHD)
            continue;
        double need = (double)s.free_room * t->fills;
        r.fills = (double)s.written / (double)s.asked;
        r.churn = ((double)s.written - need) / (double)s.asked;
        r.ns = fastest(t, capacity, s.ns);
    }
    return r;
}

static void run_trace(const struct options *o, const char *name, struct found *out)
{
    struct trace t;

    must(trace_make(&t, name));
    bool rivals = o->rivals || is_among(name, skewed, ARRAY_COUNT(skewed));
    for (unsigned n = 0; n < SIZES; n++)
        if (o->size == 0 || o->size == sizes[n])
            out->row[n] = measure(&t, sizes[n], rivals);
    for (unsigned n = 0; o->horizons && follower_tells(&t) && n < HORIZONS; n++) {
        uint64_t capacity = (uint64_t)(SIZED * (double)t.working_set);
        struct score s = replay_planned(&t, capacity, horizons[n]);
        out->planned[n] = score_ratio(&s);
        out->told = true;
    }
    if (o->sizing)
        out->sized = measure_sized(&t);
    trace_free(&t);
}

struct child {
    pid_t pid;
    int from;
};

static struct child start(const struct options *o, const char *name)
{
    int ends[2];

    must(pipe(ends) == 0);
    fflush(stdout);
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        struct found found = {0};
        run_trace(o, name, &found);
        bool told = write(ends[1], &found, sizeof found) == sizeof found;
        _exit(told ? 0 : 1);
    }
    close(ends[1]);
    return (struct child){pid, ends[0]};
}

static bool finish(const struct child *c, struct found *out)
{
    int status;
    bool heard = read(c->from, out, sizeof *out) == sizeof *out;

    close(c->from);
    waitpid(c->pid, &status, 0);
    return heard && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- what comes out ---- */

static void print_head(FILE *csv)
{
    printf("%-11s %4s %7s %7s %7s %7s %7s %7s %7s | %7s %8s %7s %7s %7s %6s\n", "trace", "f", "ehd",
           "plan", "min", "lru", "s3-fifo", "arc", "w-tlfu", "ehd/min", "plan/min", "fills",
           "p-fills", "churn", "ns");
    if (!csv)
        return;
    fprintf(csv, "trace,f");
    for (unsigned c = 0; c < COLUMNS; c++)
        fprintf(csv, ",%s", column_names[c]);
    fprintf(csv, ",share_of_min,planned_share_of_min,fills,planned_fills,churn,ns\n");
}

static void print_ratio(double ratio, int width)
{
    if (ratio == NOT_RUN)
        printf(" %*s", width, "-");
    else
        printf(" %*.4f", width, ratio);
}

static void write_ratio(FILE *csv, double ratio)
{
    if (ratio == NOT_RUN)
        fprintf(csv, ",");
    else
        fprintf(csv, ",%.4f", ratio);
}

static void print_row(FILE *csv, const char *name, const struct row *r)
{
    printf("%-11s %4.2f", name, r->size);
    for (unsigned c = 0; c < COLUMNS; c++)
        print_ratio(r->ratio[c], 7);
    printf(" |");
    print_ratio(share_of_min(r, EHD), 7);
    print_ratio(share_of_min(r, PLAN), 8);
    print_ratio(r->fills, 7);
    print_ratio(r->planned_fills, 7);
    printf(" %7.4f %6.0f\n", r->churn, r->ns);
    if (!csv)
        return;
    fprintf(csv, "%s,%.2f", name, r->size);
    for (unsigned c = 0; c < COLUMNS; c++)
        write_ratio(csv, r->ratio[c]);
    write_ratio(csv, share_of_min(r, EHD));
    write_ratio(csv, share_of_min(r, PLAN));
    write_ratio(csv, r->fills);
    write_ratio(csv, r->planned_fills);
    fprintf(csv, ",%.4f,%.0f\n", r->churn, r->ns);
}

static void print_planned(const char *name, const struct found *found)
{
    printf("%-11s %4.2f with plans of", name, SIZED);
    for (unsigned n = 0; n < HORIZONS; n++)
        printf("%s %.2f epochs %.4f", n ? "," : "", horizons[n], found->planned[n]);
    printf("\n");
}

static void print_sized(const char *name, const struct sized *s)
{
    printf("%-11s %4.2f of other sizes, %.0f %% sampled:", name, SIZED, 100 * s->rate);
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        printf("%s %.1fx %.4f (%.4f)", n ? "," : "", sizing_factor[n], s->forecast[n], s->real[n]);
    printf("\n");
}

static void tell(const struct found *found, const char *name, FILE *csv)
{
    for (unsigned n = 0; n < SIZES; n++) {
        if (found->row[n].size == 0)
            continue;
        print_row(csv, name, &found->row[n]);
        judge_row(name, &found->row[n]);
    }
    if (found->told)
        print_planned(name, found);
    if (found->sized.rate > 0) {
        print_sized(name, &found->sized);
        judge_sized(name, &found->sized);
    }
    fflush(stdout);
}

static void run_all(const struct options *o, FILE *csv)
{
    struct child child[TRACES_MAX];
    const char *name[TRACES_MAX];
    unsigned count = 0, started = 0;

    for (unsigned n = 0; trace_names[n]; n++)
        if (!o->trace || strcmp(o->trace, trace_names[n]) == 0)
            name[count++] = trace_names[n];
    for (unsigned n = 0; n < count; n++) {
        struct found found;
        while (started < count && started < n + AT_ONCE) {
            child[started] = start(o, name[started]);
            started++;
        }
        bool good = finish(&child[n], &found);
        if (good)
            tell(&found, name[n], csv);
        else
            judge(name[n], 0, "died", false);
    }
}

static bool read_options(int count, char **word, struct options *o)
{
    int c;

    while ((c = getopt(count, word, "t:f:rpsuc:")) != -1) {
        if (c == 't')
            o->trace = optarg;
        else if (c == 'f')
            o->size = strtod(optarg, NULL);
        else if (c == 'r')
            o->rivals = true;
        else if (c == 'p')
            o->horizons = true;
        else if (c == 's')
            o->sizing = true;
        else if (c == 'u')
            timed = false;
        else if (c == 'c')
            o->csv = optarg;
        else
            return false;
    }
    return optind == count;
}

int main(int count, char **word)
{
    struct options o = {0};

    if (!read_options(count, word, &o)) {
        fprintf(stderr, "usage: policy [-t TRACE] [-f SIZE] [-r] [-p] [-s] [-u] [-c CSV]\n"
                        "  -t  one trace only; -f one size: .1 .25 .5 .75 .9\n"
                        "  -r  the other policies on every trace; -c a file for the figures\n"
                        "  -p  with plans that tell less than an epoch, and more\n"
                        "  -s  what the server forecasts for other sizes of the cache\n"
                        "  -u  what a reference costs is no verdict: others work beside it\n");
        return 2;
    }
    FILE *csv = o.csv ? fopen(o.csv, "w") : NULL;
    if (o.csv && !csv) {
        perror(o.csv);
        return 2;
    }
    print_head(csv);
    run_all(&o, csv);
    if (csv)
        fclose(csv);
    printf("bench-policy: %u passed, %u failed\n", passed, failed);
    return failed > 0 ? 1 : passed > 0 ? 0 : 2;
}
