/* /v1/hist: how long GETs took since the start, hits and misses apart.
 *
 * Invariants:
 *  1. What is told is what /metrics tells, summed over results.
 *
 * Life: one request's. Failure: none but memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"

enum { HIST_BYTES = 4 * KIB };

static void add_up(struct metric_histogram *sum, enum label_result result)
{
    struct metric_histogram one;

    metric_histogram_read_of(METRIC_REQUEST_DURATION_SECONDS, OP_GET, result, &one);
    for (unsigned i = 0; i <= METRIC_BUCKETS; i++)
        sum->bucket[i] += one.bucket[i];
    sum->count += one.count;
    sum->sum_us += one.sum_us;
}

static void add_side(struct text *t, const char *name, const struct metric_histogram *h)
{
    json_open(t, name, '{');
    json_u64(t, "count", h->count);
    json_u64(t, "p50_us", metric_histogram_quantile_us(h, 0.5));
    json_u64(t, "p99_us", metric_histogram_quantile_us(h, 0.99));
    json_open(t, "buckets", '[');
    for (unsigned i = 0; i <= METRIC_BUCKETS; i++)
        text_addf(t, "%s%llu", i ? "," : "", (unsigned long long)h->bucket[i]);
    text_adds(t, "]}");
}

void answer_hist(const struct visit *v, struct admin_answer *out)
{
    static const enum label_result hit[] = {RESULT_HIT, RESULT_REVALIDATED, RESULT_STALE},
                                   miss[] = {RESULT_MISS, RESULT_JOINED, RESULT_PARTIAL};
    struct metric_histogram hits = {0}, misses = {0};

    (void)v;
    for (unsigned i = 0; i < ARRAY_COUNT(hit); i++)
        add_up(&hits, hit[i]);
    for (unsigned i = 0; i < ARRAY_COUNT(miss); i++)
        add_up(&misses, miss[i]);
    if (!answer_room(out, HIST_BYTES))
        return;
    text_addc(&out->body, '{');
    json_u64(&out->body, "v", 1);
    json_text(&out->body, "op", span_of("get"));
    json_open(&out->body, "le_us", '['); /* of the buckets but the last, which has no bound */
    for (unsigned i = 0; i < METRIC_BUCKETS; i++)
        text_addf(&out->body, "%s%llu", i ? "," : "", (unsigned long long)metric_bound_us(i));
    text_addc(&out->body, ']');
    add_side(&out->body, "hits", &hits);
    add_side(&out->body, "misses", &misses);
    text_adds(&out->body, "}\n");
}
