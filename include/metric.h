/* Metrics: one table makes the enum, the cells, the Prometheus text.
 *
 * Invariants:
 *  1. Counters and histograms are counted into the caller's own set (one per thread, no atomics but
 *     relaxed stores) and summed when read.
 *  2. Gauges are process-wide, set or added to with relaxed atomics.
 *  3. Label values are bounded sets known at start (enums in labels.h, or names given by
 *     metric_name_label); never keys or client addresses.
 *  4. The number of series is known at start and at most 2,000. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_METRIC_H
#define HEADPOND_METRIC_H

#include "base.h"
#include "mem.h"

/* Label sets: `enum label_op { OP_GET, ... }` and so on. */
#define X(set, name, text) name,
#define SET(set) enum label_##set {
#define END(set) LABEL_##set##_COUNT };
#include "table/labels.h"
#undef X
#undef SET
#undef END

enum metric {
#define COUNTER(name, id, labels, help) name,
#define GAUGE(name, id, labels, help) name,
#define HISTOGRAM(name, id, labels, help) name,
#include "table/metrics.h"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
    METRIC_COUNT
};

enum {
    METRIC_BUCKETS = 17,             /* le: 100us 250us 500us 1ms ... 10s 30s */
    METRIC_NAMED_MAX = 72,
    METRIC_NAMED_OTHER = METRIC_NAMED_MAX - 1, /* of what had no place */
};

struct metric_set;                   /* one thread's counters */
/* Called at start by each thread that counts; lives until exit. NULL: no memory. */
must_check struct metric_set *metric_set_make(void);

/* Names a value of a label whose values come from the configuration: disk, upstream, bucket,
 * worker. Returns its index, for a value named before the old one. The last of METRIC_NAMED_MAX
 * indexes is "other" and stands for all values that found no room. At start only, before any
 * counting with it. */
enum metric_named { NAMED_DISK, NAMED_UPSTREAM, NAMED_BUCKET, NAMED_WORKER, NAMED_COUNT };
unsigned metric_name_label(enum metric_named label, const char *value);
/* The labels of build_info; at start only. */
void metric_build_info(const char *version, const char *revision, const char *liburing,
                       const char *openssl);

/* Up to three label indexes, in the table's order; give 0 for the ones a metric lacks. */
void metric_add3(struct metric_set *s, enum metric m, unsigned a, unsigned b, unsigned c,
                 uint64_t n);
static inline void metric_add(struct metric_set *s, enum metric m, unsigned a, uint64_t n)
{
    metric_add3(s, m, a, 0, 0, n);
}
void metric_observe(struct metric_set *s, enum metric m, unsigned a, unsigned b, uint64_t us);
void metric_gauge_set2(enum metric m, unsigned a, unsigned b, int64_t value);
void metric_gauge_add2(enum metric m, unsigned a, unsigned b, int64_t delta);
static inline void metric_gauge_set(enum metric m, unsigned a, int64_t value)
{
    metric_gauge_set2(m, a, 0, value);
}
static inline void metric_gauge_add(enum metric m, unsigned a, int64_t delta)
{
    metric_gauge_add2(m, a, 0, delta);
}

/* Sums over all sets; for status, tests and the flow player. */
uint64_t metric_read(enum metric m, unsigned a, unsigned b, unsigned c);
uint64_t metric_read_sum(enum metric m);              /* over all label values */
/* Quantile in us of a histogram summed over its labels (linear inside a bucket); 0 if empty. */
uint64_t metric_quantile_us(enum metric m, double q);
/* A histogram summed over its labels; the difference of two readings is the histogram of the time
 * between them. */
struct metric_histogram {
    uint64_t bucket[METRIC_BUCKETS + 1];
    uint64_t count, sum_us;          /* count is the sum of the buckets */
};
void metric_histogram_read(enum metric m, struct metric_histogram *out);
/* One series of it. */
void metric_histogram_read_of(enum metric m, unsigned a, unsigned b, struct metric_histogram *out);
uint64_t metric_bound_us(unsigned bucket); /* of a histogram's buckets, but the last */
uint64_t metric_histogram_quantile_us(const struct metric_histogram *h, double q); /* as above */
/* Prometheus text 0.0.4 into t; series of counters that were never touched and have labels are left
 * out. */
void metric_print(struct text *t);
size_t metric_print_bytes_max(void);

#endif
