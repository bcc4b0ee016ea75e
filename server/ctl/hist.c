/* headpond hist: how long GETs took, hits and misses on one axis.
 *
 * Invariants:
 *  1. A bar is as long as its share of the longest; what happened at all has at least one mark.
 *
 * Life: one question. Failure: the exit codes of ctl.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>

#include "units.h"

enum { HIST_BARS = 60 };

static uint64_t bucket_of(const json_t *side, size_t i)
{
    json_int_t n = json_integer_value(json_array_get(json_object_get(side, "buckets"), i));
    return n > 0 ? (uint64_t)n : 0;
}

static unsigned bar_of(uint64_t n, uint64_t most)
{
    return n ? (unsigned)max_u64(n * HIST_BARS / max_u64(most, 1), 1) : 0;
}

static void print_bars(const char *label, uint64_t hits, uint64_t misses, uint64_t most)
{
    char bars[2 * HIST_BARS + 3];
    struct text t;

    text_init(&t, bars, sizeof bars);
    for (unsigned i = bar_of(hits, most); i > 0; i--)
        text_addc(&t, '|');
    for (unsigned i = bar_of(misses, most); i > 0; i--)
        text_addc(&t, '#');
    printf("%10s %10llu %10llu  %.*s\n", label, (unsigned long long)hits,
           (unsigned long long)misses, (int)t.len, t.at);
}

static void print_side(const char *name, const json_t *side)
{
    char memory[100];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_adds(&t, "p50 ");
    units_ms(&t, value_number(side, "p50_us") / 1000);
    text_adds(&t, ", p99 ");
    units_ms(&t, value_number(side, "p99_us") / 1000);
    printf("%s: %llu, %.*s\n", name, (unsigned long long)value_u64(side, "count"), (int)t.len,
           t.at);
}

static void print_hist(const json_t *answer)
{
    const json_t *le = json_object_get(answer, "le_us"), *hits = json_object_get(answer, "hits");
    const json_t *misses = json_object_get(answer, "misses");
    size_t rows = json_array_size(le) + 1, first = rows, last = 0;
    uint64_t most = 0;

    for (size_t i = 0; i < rows; i++) {
        uint64_t n = bucket_of(hits, i) + bucket_of(misses, i);
        most = max_u64(most, n);
        first = n && first == rows ? i : first;
        last = n ? i : last;
    }
    printf("%10s %10s %10s\n", "up to", "hits |", "misses #");
    for (size_t i = first; i <= last && i < rows; i++) {
        char label[32];
        struct text t;
        text_init(&t, label, sizeof label - 1);
        if (i + 1 < rows)
            units_ms(&t, (double)json_integer_value(json_array_get(le, i)) / 1000);
        else
            text_adds(&t, "more");
        label[t.len] = '\0';
        print_bars(label, bucket_of(hits, i), bucket_of(misses, i), most);
    }
    print_side("hits", hits);
    print_side("misses", misses);
}

int hist_run(struct ctl *c)
{
    struct reply r = {0};
    int code = CTL_DONE;
    json_t *answer = client_json(c, "/v1/hist", &r, &code);

    if (!answer)
        return code;
    if (c->json)
        ctl_print_json(answer);
    else
        print_hist(answer);
    json_decref(answer);
    reply_free(&r);
    return CTL_DONE;
}
