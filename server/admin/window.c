/* Rates of the last five minutes: counters are noted every ten seconds, and a rate is the
 * difference of two notes.
 *
 * Invariants:
 *  1. A counter that went back (which none does) gives 0, never a huge number.
 *  2. Before five minutes have passed, what there is counts: the oldest note is the one taken at
 * start.
 *
 * Life: part of struct admin; the sampler adds, any thread of the admin side reads, under admin's
 * lock.
 * Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"

enum { WINDOW_MS = 5 * 60 * 1000, SLACK_MS = 5000 };

static uint64_t grown(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

void sample_take(struct sample *out)
{
    struct sample s = {
        .at_ms = clock_ms(),
        .requests = metric_read_sum(METRIC_REQUESTS_TOTAL),
        .sent_bytes = metric_read_sum(METRIC_SENT_BYTES_TOTAL),
        .missed_bytes = metric_read(METRIC_SENT_BYTES_TOTAL, SOURCE_UPSTREAM, 0, 0),
        .upstream_bytes = metric_read_sum(METRIC_UPSTREAM_RECEIVED_BYTES_TOTAL),
        .stall_us = metric_read_sum(METRIC_STALL_SECONDS_TOTAL),
        .disk_us = metric_read(METRIC_STALL_SECONDS_TOTAL, STALL_DISK, 0, 0),
        .get_us = metric_read_sum(METRIC_GET_SECONDS_TOTAL),
    };
    s.stall_us = grown(s.disk_us, s.stall_us);
    for (unsigned i = 0; i < CONF_UPSTREAMS_MAX; i++)
        s.slowdowns[i] = metric_read(METRIC_UPSTREAM_RETRIES_TOTAL, i, RETRY_SLOWDOWN, 0) +
            metric_read(METRIC_UPSTREAM_RETRIES_DENIED_TOTAL, i, RETRY_SLOWDOWN, 0);
    metric_histogram_read(METRIC_REQUEST_DURATION_SECONDS, &s.duration);
    *out = s;
}

void window_add(struct window *w, const struct sample *s)
{
    w->sample[w->added++ % WINDOW_SAMPLES] = *s;
}

/* The i-th of the notes kept, the oldest first. */
static const struct sample *note(const struct window *w, unsigned i)
{
    unsigned kept = (unsigned)min_u64(w->added, WINDOW_SAMPLES);
    return &w->sample[(w->added - kept + i) % WINDOW_SAMPLES];
}

static void subtract(const struct metric_histogram *from, const struct metric_histogram *to,
                     struct metric_histogram *out)
{
    *out = (struct metric_histogram){.sum_us = grown(from->sum_us, to->sum_us)};
    for (unsigned i = 0; i <= METRIC_BUCKETS; i++) {
        out->bucket[i] = grown(from->bucket[i], to->bucket[i]);
        out->count += out->bucket[i];
    }
}

static double ratio(uint64_t part, uint64_t whole)
{
    return whole ? (double)min_u64(part, whole) / (double)whole : 0;
}

void rates_between(const struct sample *from, const struct sample *to, struct rates *out)
{
    struct metric_histogram duration;
    uint64_t sent = grown(from->sent_bytes, to->sent_bytes);
    uint64_t missed = grown(from->missed_bytes, to->missed_bytes);
    uint64_t get_us = grown(from->get_us, to->get_us);
    /* A status asked in the first second is told over a whole one: no rate of a blink. */
    double seconds = (double)max_u64(grown(from->at_ms, to->at_ms), 1000) / 1000;

    subtract(&from->duration, &to->duration, &duration);
    *out = (struct rates){
        .requests = grown(from->requests, to->requests),
        .sent_bytes_per_s = (double)sent / seconds,
        .upstream_bytes_per_s = (double)grown(from->upstream_bytes, to->upstream_bytes) / seconds,
        .hit_bytes_ratio = ratio(grown(missed, sent), sent),
        .stall_ratio = ratio(grown(from->stall_us, to->stall_us), get_us),
        .disk_ratio = ratio(grown(from->disk_us, to->disk_us), get_us),
        .p50_ms = (double)metric_histogram_quantile_us(&duration, 0.5) / 1000,
        .p99_ms = (double)metric_histogram_quantile_us(&duration, 0.99) / 1000,
    };
    for (unsigned i = 0; i < CONF_UPSTREAMS_MAX; i++)
        out->throttled_per_min[i] =
            (double)grown(from->slowdowns[i], to->slowdowns[i]) / seconds * 60;
}

void window_rates(const struct window *w, const struct sample *now, struct rates *out)
{
    unsigned kept = (unsigned)min_u64(w->added, WINDOW_SAMPLES);
    const struct sample *from = now;

    for (unsigned i = kept; i > 0; i--) {
        const struct sample *s = note(w, i - 1);
        if (grown(s->at_ms, now->at_ms) > WINDOW_MS + SLACK_MS)
            break;
        from = s;
    }
    rates_between(from, now, out);
}

void window_newest(const struct window *w, struct rates *out)
{
    unsigned kept = (unsigned)min_u64(w->added, WINDOW_SAMPLES);

    *out = (struct rates){0};
    if (kept > 1)
        rates_between(note(w, kept - 2), note(w, kept - 1), out);
}

unsigned window_series(const struct window *w, struct rates out[WINDOW_SAMPLES])
{
    unsigned kept = (unsigned)min_u64(w->added, WINDOW_SAMPLES), count = 0;

    for (unsigned i = 1; i < kept; i++)
        rates_between(note(w, i - 1), note(w, i), &out[count++]);
    return count;
}
