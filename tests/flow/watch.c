/* What a play can expect of the origin's counters, the server's metrics and its log.
 *
 * Invariants:
 *  1. A condition is looked at again until it holds or its time is over; it is never waited for
 *     blindly.
 *  2. A metric is the sum over all series that carry the named labels; an absent one counts 0.
 *
 * Life: stateless but for the texts of the last mark, which the play owns.
 * Failure: a condition that does not hold in time fails the play and tells the value seen last. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/flow/play.h"

enum { LOOK_EVERY_MS = 10, LOG_BYTES_MAX = 8 * MIB };

/* ---- comparisons ---- */

static bool holds(const char *op, double have, double want)
{
    if (strcmp(op, "==") == 0)
        return have == want;
    if (strcmp(op, "!=") == 0)
        return have != want;
    if (strcmp(op, "<=") == 0)
        return have <= want;
    if (strcmp(op, ">=") == 0)
        return have >= want;
    return op[0] == '<' ? have < want : have > want;
}

/* Splits "name<=8M" behind the name: the operator into op. */
static bool read_operator(struct span rest, char op[3], struct span *value)
{
    size_t n = 0;

    while (n < rest.len && n < 2 && strchr("=<>!", rest.at[n]))
        n++;
    memcpy(op, rest.at, n);
    op[n] = 0;
    if (strcmp(op, "=") == 0)
        memcpy(op, "==", 3);
    *value = span_from(rest, n);
    return n > 0 && strcmp(op, "!") != 0;
}

bool watch_compare(struct span word, const char *name, uint64_t value, bool *known)
{
    struct span rest, want;
    char op[3];
    uint64_t n;

    *known = false;
    if (!span_starts(word, span_of(name)))
        return false;
    rest = span_from(word, strlen(name));
    if (!read_operator(rest, op, &want) || size_read(want, &n) != OK)
        return false;
    *known = true;
    return holds(op, (double)value, (double)n);
}

/* ---- the origin ---- */

struct verdict {
    bool good, known;                /* known: the statement makes sense */
    char seen[300];
};

static void look_origin(struct play *p, const struct statement *st, struct verdict *v)
{
    struct origin_stats s;
    struct span key = {0};
    uint64_t requests, bytes;
    bool of_key = false;

    struct origin *origin = span_is(st->word[1], "origin2") ? p->origin2 : p->origin;

    origin_stats(origin, &s);
    for (unsigned i = 2; i < st->count; i++)
        if (word_value(st->word[i], "key", &key)) {
            struct span bucket = span_cut(&key, '/');
            origin_key_stats(origin, bucket, key, &requests, &bytes);
            s = (struct origin_stats){.requests = requests, .body_bytes = bytes};
            of_key = true;
        }
    const struct {
        const char *name;
        uint64_t value;
    } known[] = {
        {"requests", s.requests}, {"body_bytes", s.body_bytes}, /* these are kept by key, too */
        {"get", s.get}, {"head", s.head}, {"list", s.list}, {"other", s.other},
        {"connections", s.connections},
        {"max_connections", s.max_connections}, {"max_running", s.max_running}, {"put", s.put},
        {"taken_bytes", s.taken_bytes},
    };
    struct span skip;
    v->good = v->known = true;
    for (unsigned i = 2; i < st->count; i++) {
        struct span word = st->word[i];
        bool found = word_value(word, "key", &skip) || word_value(word, "within", &skip);
        for (size_t k = 0; !found && k < (of_key ? 2 : ARRAY_COUNT(known)); k++)
            v->good &= watch_compare(word, known[k].name, known[k].value, &found) || !found;
        v->known &= found;
    }
    snprintf(v->seen, sizeof v->seen,
             "requests=%llu get=%llu head=%llu list=%llu body_bytes=%llu "
             "max_connections=%llu max_running=%llu put=%llu taken_bytes=%llu",
             (unsigned long long)s.requests, (unsigned long long)s.get, (unsigned long long)s.head,
             (unsigned long long)s.list, (unsigned long long)s.body_bytes,
             (unsigned long long)s.max_connections, (unsigned long long)s.max_running,
             (unsigned long long)s.put, (unsigned long long)s.taken_bytes);
}

static void look_saw(struct play *p, const struct statement *st, struct verdict *v)
{
    unsigned first = 0;

    v->known = st->count >= 3;
    if (!v->known)
        return;
    struct origin *origin = span_is(st->word[1], "saw2") ? p->origin2 : p->origin;
    unsigned times = origin_saw(origin, st->word[2], &first);
    v->good = times > 0;
    for (unsigned i = 3; i < st->count; i++) {
        bool times_said, first_said;
        bool a = watch_compare(st->word[i], "times", times, &times_said);
        bool b = watch_compare(st->word[i], "first", first, &first_said);
        if (times_said)
            v->good = a;
        else if (first_said)
            v->good &= b;
    }
    snprintf(v->seen, sizeof v->seen, "seen %u times", times);
}

/* ---- metrics ---- */

/* One label of the selector, name="value" or name=value, in the labels of a series. */
static bool has_label(struct span labels, struct span wanted)
{
    struct span name = span_cut(&wanted, '=');

    while (labels.len > 0) {
        struct span value = span_cut(&labels, ',');
        struct span key = span_cut(&value, '=');
        if (!span_eq(key, name) || value.len < 2)
            continue;
        return span_eq(span_make(value.at + 1, value.len - 2), wanted);
    }
    return false;
}

static bool series_matches(struct span series, struct span selector)
{
    struct span labels = series, wanted = selector;
    struct span name = span_cut(&labels, '{'), asked = span_cut(&wanted, '{');

    if (!span_eq(name, asked))
        return false;
    if (labels.len > 0)
        labels.len--;                /* '}' */
    if (wanted.len > 0)
        wanted.len--;
    while (wanted.len > 0)
        if (!has_label(labels, span_cut(&wanted, ',')))
            return false;
    return true;
}

static double sum_of(const char *metrics, struct span selector)
{
    struct span rest = span_of(metrics);
    double sum = 0;

    while (rest.len > 0) {
        struct span line = span_cut(&rest, '\n');
        size_t blank = line.len;
        while (blank > 0 && line.at[blank - 1] != ' ')
            blank--;
        if (blank == 0 || line.at[0] == '#')
            continue;
        if (series_matches(span_make(line.at, blank - 1), selector))
            sum += strtod(line.at + blank, NULL);
    }
    return sum;
}

/* metric NAME{..} OP N */
static void look_metric(struct play *p, const struct statement *st, struct verdict *v)
{
    char op[3];
    struct span rest, nothing;
    uint64_t want;

    v->known = st->count >= 5;
    if (!v->known || size_read(st->word[4], &want) != OK)
        return;
    bool delta = st->word[3].at[0] == '+';
    rest = span_from(st->word[3], delta);
    v->known = read_operator(rest, op, &nothing);
    if (client_fetch(p->daemon.admin_port, "/metrics", p->metrics_now, METRICS_BYTES) != 200) {
        snprintf(v->seen, sizeof v->seen, "no metrics on the admin port");
        return;
    }
    double now = sum_of(p->metrics_now, st->word[2]), then = sum_of(p->metrics_then, st->word[2]);
    v->good = holds(op, delta ? now - then : now, (double)want);
    snprintf(v->seen, sizeof v->seen, "now %g, at the mark %g", now, then);
}

/* ---- the log ---- */

static void look_log(struct play *p, const struct statement *st, struct verdict *v)
{
    FILE *f = fopen(p->daemon.log, "re");
    char *text = mem_take(LOG_BYTES_MAX);

    must(text);
    v->known = st->count >= 3;
    if (f && v->known) {
        fseek(f, p->daemon.log_mark, SEEK_SET);
        size_t len = fread(text, 1, LOG_BYTES_MAX, f);
        v->good = memmem(text, len, st->word[2].at, st->word[2].len) != NULL;
    }
    if (f)
        fclose(f);
    snprintf(v->seen, sizeof v->seen, "not in %s", p->daemon.log);
    mem_give(text);
}

/* ---- statements ---- */

static const struct {
    const char *name;
    void (*look)(struct play *p, const struct statement *st, struct verdict *v);
} look_table[] = {
    {"origin", look_origin}, {"origin2", look_origin}, {"saw", look_saw}, {"saw2", look_saw},
    {"metric", look_metric}, {"log", look_log},
};

bool watch_knows(const struct statement *st)
{
    for (size_t i = 0; st->count > 1 && i < ARRAY_COUNT(look_table); i++)
        if (span_is(st->word[1], look_table[i].name))
            return true;
    return false;
}

static uint64_t time_of(const struct statement *st)
{
    struct span value;
    uint64_t ms;

    for (unsigned i = 2; i < st->count; i++)
        if (word_value(st->word[i], "within", &value) && size_read(value, &ms) == OK)
            return ms;
    return span_is(st->word[0], "wait") ? WAIT_MS : SETTLE_MS;
}

bool watch_run(struct play *p, const struct statement *st)
{
    struct verdict v = {0};
    size_t which = 0;

    while (which < ARRAY_COUNT(look_table) && !span_is(st->word[1], look_table[which].name))
        which++;
    must(which < ARRAY_COUNT(look_table));
    uint64_t deadline = clock_ms() + time_of(st);
    for (;;) {
        bool last = clock_ms() >= deadline; /* before the look: a pause behind it is no answer */
        pthread_mutex_lock(&p->watch);
        v = (struct verdict){0};
        look_table[which].look(p, st, &v);
        pthread_mutex_unlock(&p->watch);
        if (!v.known)
            return play_fail(p, st, "this expectation cannot be read");
        if (v.good)
            return true;
        if (last || p->failed)
            break;
        poll(NULL, 0, LOOK_EVERY_MS);
    }
    return play_fail(p, st, "%s", v.seen);
}

static long log_length(const struct play *p)
{
    FILE *f = fopen(p->daemon.log, "re");

    if (!f)
        return 0;
    fseek(f, 0, SEEK_END);
    long at = ftell(f);
    fclose(f);
    return at;
}

bool watch_mark(struct play *p, const struct statement *st)
{
    char why[200];
    struct text t;

    text_init(&t, why, sizeof why);
    if (!origin_script(p->origin, span_of("mark"), &t) ||
        !origin_script(p->origin2, span_of("mark"), &t))
        return play_fail(p, st, "%s", why);
    pthread_mutex_lock(&p->watch);
    p->metrics_then[0] = 0;
    if (p->daemon.pid)
        (void)client_fetch(p->daemon.admin_port, "/metrics", p->metrics_then, METRICS_BYTES);
    p->daemon.log_mark = log_length(p);
    pthread_mutex_unlock(&p->watch);
    return true;
}
