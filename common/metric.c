/* Metrics: counting into one thread's cells, summing them, the Prometheus text format 0.0.4.
 *
 * Invariants:
 *  1. A cell of a set is written by the thread that owns the set only, with relaxed stores; readers
 *     load it relaxed. A sum may miss what is being counted, it never tears.
 *  2. Series s of metric m, of label indexes a, b, c, is ((a * n1) + b) * n2 + c; its cells begin
 *     at first + s * cells per series. Named labels have METRIC_NAMED_MAX indexes, so that names
 *     may still come while other threads count.
 *  3. Sets are only ever added to the list, the newest first, and are never freed.
 *  4. metric_print() fits into metric_print_bytes_max() bytes.
 *
 * Life: the layout is made once, by whichever call comes first; sets live until exit.
 * Failure: without memory for a set there is no set and the thread must not start; without memory
 * for a label's name the value counts as "other". A label index out of range panics. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "metric.h"

#include <pthread.h>

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

enum {
    LABELS_MAX = 3,
    HISTOGRAM_CELLS = METRIC_BUCKETS + 2,  /* the buckets, +Inf, the sum in us */
    GAUGE_CELLS_MAX = 4096,
    ZERO_SERIES_MAX = 8,                   /* of a counter, beside those of named labels */
    NUMBER_BYTES = 24,                     /* 20 digits, point, blank, newline */
};

static const struct {
    enum kind kind;
    const char *id, *labels, *help;
} rows[METRIC_COUNT] = {
#define COUNTER(name, id, labels, help) {KIND_COUNTER, id, labels, help},
#define GAUGE(name, id, labels, help) {KIND_GAUGE, id, labels, help},
#define HISTOGRAM(name, id, labels, help) {KIND_HISTOGRAM, id, labels, help},
#include "table/metrics.h"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
};

/* The values of the fixed sets, one NULL-terminated array each. */
#define X(set, name, text) text,
#define SET(set) static const char *const values_##set[] = {
#define END(set) NULL};
#include "table/labels.h"
#undef X
#undef SET
#undef END

static const struct {
    const char *name;
    const char *const *values;
    unsigned count;
} sets[] = {
#define X(set, name, text)
#define SET(set) {#set, values_##set, LABEL_##set##_COUNT},
#define END(set)
#include "table/labels.h"
#undef X
#undef SET
#undef END
};

static const struct {
    const char *token, *label;
} named[NAMED_COUNT] = {
    [NAMED_DISK] = {"DISK", "disk"},
    [NAMED_UPSTREAM] = {"UPSTREAM", "upstream"},
    [NAMED_BUCKET] = {"BUCKET", "bucket"},
    [NAMED_WORKER] = {"WORKER", "worker"},
};

static const struct {
    uint32_t us;
    const char *le;
} bounds[METRIC_BUCKETS] = {
    {100, "0.0001"},   {250, "0.00025"},  {500, "0.0005"},   {1000, "0.001"},    {2500, "0.0025"},
    {5000, "0.005"},   {10000, "0.01"},   {25000, "0.025"},  {50000, "0.05"},    {100000, "0.1"},
    {250000, "0.25"},  {500000, "0.5"},   {1000000, "1"},    {2500000, "2.5"},   {5000000, "5"},
    {10000000, "10"},  {30000000, "30"},
};

struct label {
    struct span name;                /* shows the table's text */
    const char *const *values;       /* NULL: named */
    unsigned count;
    enum metric_named named;
};

static struct layout {
    struct label label[LABELS_MAX];
    unsigned labels;
    unsigned size[LABELS_MAX];       /* 1 beyond labels */
    unsigned first;                  /* cell of series 0; of gauge_cells for a gauge */
    bool seconds;                    /* counted in us, printed in seconds */
} layouts[METRIC_COUNT];
static unsigned set_cells;           /* cells of a set */
static pthread_once_t layout_once = PTHREAD_ONCE_INIT;

struct metric_set {
    struct metric_set *older;
    uint64_t cell[];
};
static struct metric_set *newest;    /* atomic */
static int64_t gauge_cells[GAUGE_CELLS_MAX]; /* relaxed atomics */

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char *value[METRIC_NAMED_MAX];   /* escaped; atomic, set once */
    unsigned count;                  /* atomic; what is below it is set */
} names[NAMED_COUNT];
static char build_labels[256];

/* ---- layout ---- */

/* Takes one word of a row's labels: a set of labels.h as "set" or "set:name", or a named one. */
static void make_label(struct span word, struct label *out)
{
    struct span name = word;
    struct span set = span_cut(&name, ':');

    for (unsigned n = 0; n < NAMED_COUNT; n++) {
        if (!span_is(set, named[n].token))
            continue;
        *out = (struct label){.name = span_of(named[n].label),
                              .count = METRIC_NAMED_MAX,
                              .named = (enum metric_named)n};
        return;
    }
    for (unsigned s = 0; s < ARRAY_COUNT(sets); s++) {
        if (!span_is(set, sets[s].name))
            continue;
        *out = (struct label){.name = name.len ? name : set,
                              .values = sets[s].values,
                              .count = sets[s].count};
        return;
    }
    panic(__FILE__, __LINE__, "a label of metrics.h is unknown");
}

static void make_layout(void)
{
    unsigned gauges = 0;

    for (unsigned m = 0; m < METRIC_COUNT; m++) {
        struct layout *l = &layouts[m];
        /* build_info's values are texts known at start; it has one series and prints itself. */
        struct span rest = m == METRIC_BUILD_INFO ? span_of(NULL) : span_of(rows[m].labels);
        while (rest.len) {
            must(l->labels < LABELS_MAX);
            make_label(span_cut(&rest, ' '), &l->label[l->labels++]);
        }
        unsigned series = 1;
        for (unsigned i = 0; i < LABELS_MAX; i++) {
            l->size[i] = i < l->labels ? l->label[i].count : 1;
            series *= l->size[i];
        }
        unsigned *next = rows[m].kind == KIND_GAUGE ? &gauges : &set_cells;
        l->first = *next;
        *next += series * (rows[m].kind == KIND_HISTOGRAM ? HISTOGRAM_CELLS : 1);
        l->seconds = span_ends(span_of(rows[m].id), span_of("_seconds_total"));
    }
    must(gauges <= GAUGE_CELLS_MAX);
    gauge_cells[layouts[METRIC_BUILD_INFO].first] = 1;
}

static const struct layout *layout_of(enum metric m)
{
    must((unsigned)m < METRIC_COUNT);
    return &layouts[m];
}

static unsigned series_of(const struct layout *l, unsigned a, unsigned b, unsigned c)
{
    must(a < l->size[0] && b < l->size[1] && c < l->size[2]);
    return (a * l->size[1] + b) * l->size[2] + c;
}

static unsigned series_count(const struct layout *l)
{
    return l->size[0] * l->size[1] * l->size[2];
}

struct metric_set *metric_set_make(void)
{
    pthread_once(&layout_once, make_layout);
    /* Whole cache lines, so that two threads never write the same one. */
    size_t bytes = sizeof(struct metric_set) + set_cells * sizeof(uint64_t);
    struct metric_set *s = mem_take_aligned(round_up(bytes, CACHE_LINE), CACHE_LINE);
    if (!s)
        return NULL;
    s->older = __atomic_load_n(&newest, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&newest, &s->older, s, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
        ;
    return s;
}

/* ---- names ---- */

/* A label's value as the text format wants it: UTF-8; backslash, quote and newline escaped. */
static char *escaped(struct span value)
{
    size_t cap = 2 * value.len + 1;
    char *memory = mem_take(cap);
    struct text t;

    if (!memory)
        return NULL;
    text_init(&t, memory, cap);
    for (size_t i = 0; i < value.len;) {
        size_t len = span_utf8(span_from(value, i));
        if (len == 0)
            text_addc(&t, '?');
        else if (value.at[i] == '\n')
            text_adds(&t, "\\n");
        else if (value.at[i] == '"' || value.at[i] == '\\')
            text_addf(&t, "\\%c", value.at[i]);
        else
            text_add(&t, span_make(value.at + i, len));
        i += len ? len : 1;
    }
    must(!t.over);
    return memory;
}

static unsigned names_count(enum metric_named label)
{
    return __atomic_load_n(&names[label].count, __ATOMIC_ACQUIRE);
}

unsigned metric_name_label(enum metric_named label, const char *value)
{
    must((unsigned)label < NAMED_COUNT);
    pthread_mutex_lock(&names_lock);
    unsigned count = names[label].count, at = 0;
    char *text = escaped(span_of(value));
    while (text && at < count && strcmp(names[label].value[at], text) != 0)
        at++;
    if (text && at == count && count < METRIC_NAMED_MAX - 1) {
        names[label].value[at] = text;
        __atomic_store_n(&names[label].count, count + 1, __ATOMIC_RELEASE);
    } else {
        if (!text || at == count)
            at = METRIC_NAMED_MAX - 1;
        mem_give(text);
    }
    pthread_mutex_unlock(&names_lock);
    return at;
}

void metric_build_info(const char *version, const char *revision, const char *liburing,
                       const char *openssl)
{
    const char *name[] = {"version", "revision", "liburing", "openssl"};
    const char *value[] = {version, revision, liburing, openssl};
    struct text t;

    text_init(&t, build_labels, sizeof build_labels);
    for (unsigned i = 0; i < ARRAY_COUNT(name); i++) {
        char *text = escaped(span_of(value[i]));
        text_addf(&t, "%s%s=\"%.40s\"", i ? "," : "", name[i], text ? text : "");
        mem_give(text);
    }
    must(!t.over);
}

/* ---- counting ---- */

static void count(uint64_t *cell, uint64_t n)
{
    __atomic_store_n(cell, __atomic_load_n(cell, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

void metric_add3(struct metric_set *s, enum metric m, unsigned a, unsigned b, unsigned c,
                 uint64_t n)
{
    const struct layout *l = layout_of(m);

    must(s && rows[m].kind == KIND_COUNTER);
    count(&s->cell[l->first + series_of(l, a, b, c)], n);
}

void metric_observe(struct metric_set *s, enum metric m, unsigned a, unsigned b, uint64_t us)
{
    const struct layout *l = layout_of(m);
    unsigned bucket = 0;

    must(s && rows[m].kind == KIND_HISTOGRAM);
    uint64_t *cell = &s->cell[l->first + series_of(l, a, b, 0) * HISTOGRAM_CELLS];
    while (bucket < METRIC_BUCKETS && us > bounds[bucket].us)
        bucket++;
    count(&cell[bucket], 1);
    count(&cell[METRIC_BUCKETS + 1], us);
}

static int64_t *gauge_cell(enum metric m, unsigned a, unsigned b)
{
    pthread_once(&layout_once, make_layout);
    const struct layout *l = layout_of(m);

    must(rows[m].kind == KIND_GAUGE);
    return &gauge_cells[l->first + series_of(l, a, b, 0)];
}

void metric_gauge_set2(enum metric m, unsigned a, unsigned b, int64_t value)
{
    __atomic_store_n(gauge_cell(m, a, b), value, __ATOMIC_RELAXED);
}

void metric_gauge_add2(enum metric m, unsigned a, unsigned b, int64_t delta)
{
    __atomic_fetch_add(gauge_cell(m, a, b), delta, __ATOMIC_RELAXED);
}

/* ---- reading ---- */

/* The sum of one cell over all sets. */
static uint64_t sum_cell(unsigned cell)
{
    uint64_t sum = 0;

    for (const struct metric_set *s = __atomic_load_n(&newest, __ATOMIC_ACQUIRE); s; s = s->older)
        sum += __atomic_load_n(&s->cell[cell], __ATOMIC_RELAXED);
    return sum;
}

/* Adds one series of a histogram; its count is the sum of its buckets, so the two always agree. */
static void add_histogram(const struct layout *l, unsigned series, struct metric_histogram *h)
{
    unsigned cell = l->first + series * HISTOGRAM_CELLS;

    for (unsigned i = 0; i <= METRIC_BUCKETS; i++) {
        uint64_t n = sum_cell(cell + i);
        h->bucket[i] += n;
        h->count += n;
    }
    h->sum_us += sum_cell(cell + METRIC_BUCKETS + 1);
}

static uint64_t read_series(enum metric m, unsigned series)
{
    const struct layout *l = &layouts[m];
    struct metric_histogram h = {0};

    switch (rows[m].kind) {
    case KIND_COUNTER:
        return sum_cell(l->first + series);
    case KIND_GAUGE:
        return (uint64_t)__atomic_load_n(&gauge_cells[l->first + series], __ATOMIC_RELAXED);
    case KIND_HISTOGRAM:
        break;
    }
    add_histogram(l, series, &h);
    return h.count;
}

uint64_t metric_read(enum metric m, unsigned a, unsigned b, unsigned c)
{
    pthread_once(&layout_once, make_layout);
    return read_series(m, series_of(layout_of(m), a, b, c));
}

uint64_t metric_read_sum(enum metric m)
{
    uint64_t sum = 0;

    pthread_once(&layout_once, make_layout);
    for (unsigned s = 0; s < series_count(layout_of(m)); s++)
        sum += read_series(m, s);
    return sum;
}

void metric_histogram_read(enum metric m, struct metric_histogram *out)
{
    *out = (struct metric_histogram){0};
    pthread_once(&layout_once, make_layout);
    must(layout_of(m) && rows[m].kind == KIND_HISTOGRAM);
    for (unsigned s = 0; s < series_count(&layouts[m]); s++)
        add_histogram(&layouts[m], s, out);
}

void metric_histogram_read_of(enum metric m, unsigned a, unsigned b, struct metric_histogram *out)
{
    *out = (struct metric_histogram){0};
    pthread_once(&layout_once, make_layout);
    must(layout_of(m) && rows[m].kind == KIND_HISTOGRAM);
    add_histogram(&layouts[m], series_of(&layouts[m], a, b, 0), out);
}

uint64_t metric_bound_us(unsigned bucket)
{
    must(bucket < METRIC_BUCKETS);
    return bounds[bucket].us;
}

uint64_t metric_histogram_quantile_us(const struct metric_histogram *h, double q)
{
    uint64_t below = 0;

    must(q >= 0 && q <= 1);
    if (h->count == 0)
        return 0;
    double rank = q * (double)h->count;
    for (unsigned i = 0; i < METRIC_BUCKETS; i++) {
        double from = i ? bounds[i - 1].us : 0, in = (double)h->bucket[i];
        if (h->bucket[i] && (double)below + in >= rank) {
            double part = (rank - (double)below) / in;
            return (uint64_t)(from + (bounds[i].us - from) * (part > 0 ? part : 0));
        }
        below += h->bucket[i];
    }
    return bounds[METRIC_BUCKETS - 1].us; /* beyond the last bound nothing better is known */
}

uint64_t metric_quantile_us(enum metric m, double q)
{
    struct metric_histogram h;

    metric_histogram_read(m, &h);
    return metric_histogram_quantile_us(&h, q);
}

/* ---- printing ---- */

static const char *label_value(const struct label *l, unsigned index)
{
    if (l->values)
        return l->values[index];
    return index < names_count(l->named) ? names[l->named].value[index] : "other";
}

/* Whether a series may appear: its named labels have names; "other" is one while it has counts. */
static bool is_named(const struct layout *l, const unsigned index[LABELS_MAX], bool touched)
{
    must(l->labels <= LABELS_MAX);
    for (unsigned i = 0; i < l->labels; i++) {
        if (l->label[i].values || index[i] < names_count(l->label[i].named))
            continue;
        if (index[i] != METRIC_NAMED_MAX - 1 || !touched)
            return false;
    }
    return true;
}

/* `headpond_<id><suffix>{labels,le="..."} ` with the braces only where they hold something. */
static void add_series(struct text *t, enum metric m, const unsigned index[LABELS_MAX],
                       const char *suffix, const char *le)
{
    const struct layout *l = &layouts[m];
    const char *open = "{";

    text_adds(t, "headpond_");
    text_adds(t, rows[m].id);
    text_adds(t, suffix);
    if (m == METRIC_BUILD_INFO && build_labels[0]) {
        text_addf(t, "{%s", build_labels);
        open = ",";
    }
    unsigned labels = l->labels;
    must(labels <= LABELS_MAX);
    for (unsigned i = 0; i < labels; i++, open = ",") {
        text_adds(t, open);
        text_add(t, l->label[i].name);
        text_addf(t, "=\"%s\"", label_value(&l->label[i], index[i]));
    }
    if (le) {
        text_addf(t, "%sle=\"%s\"", open, le);
        open = ",";
    }
    text_adds(t, *open == ',' ? "} " : " ");
}

static void add_seconds(struct text *t, uint64_t us)
{
    text_addf(t, "%llu.%06llu\n", (unsigned long long)(us / 1000000),
              (unsigned long long)(us % 1000000));
}

static void print_histogram(struct text *t, enum metric m, const unsigned index[LABELS_MAX],
                            const struct metric_histogram *h)
{
    uint64_t so_far = 0;

    for (unsigned i = 0; i <= METRIC_BUCKETS; i++) {
        so_far += h->bucket[i];
        add_series(t, m, index, "_bucket", i < METRIC_BUCKETS ? bounds[i].le : "+Inf");
        text_addu(t, so_far);
        text_addc(t, '\n');
    }
    add_series(t, m, index, "_sum", NULL);
    add_seconds(t, h->sum_us);
    add_series(t, m, index, "_count", NULL);
    text_addu(t, h->count);
    text_addc(t, '\n');
}

static void print_head(struct text *t, enum metric m)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};

    text_addf(t, "# HELP headpond_%s %s\n# TYPE headpond_%s %s\n", rows[m].id, rows[m].help,
              rows[m].id, kinds[rows[m].kind]);
}

static void print_series(struct text *t, enum metric m, const unsigned index[LABELS_MAX],
                         uint64_t value)
{
    struct metric_histogram h = {0};

    if (rows[m].kind == KIND_HISTOGRAM) {
        add_histogram(&layouts[m], series_of(&layouts[m], index[0], index[1], index[2]), &h);
        print_histogram(t, m, index, &h);
        return;
    }
    add_series(t, m, index, "", NULL);
    if (rows[m].kind == KIND_GAUGE) {
        text_addf(t, "%lld\n", (long long)value);
    } else if (layouts[m].seconds) {
        add_seconds(t, value);
    } else {
        text_addu(t, value);
        text_addc(t, '\n');
    }
}

/* A counter with few values of its labels is shown from the start: Prometheus sees an increase only
 * between two values, so what appears with its first count would raise no alert. Those with many
 * stay out until they count: 0 of them says nothing, and takes hundreds of series. */
static bool shows_zero(enum metric m)
{
    const struct layout *l = &layouts[m];
    unsigned fixed = 1;

    for (unsigned i = 0; i < l->labels; i++)
        fixed *= l->label[i].values ? l->label[i].count : 1;
    return l->labels == 0 || rows[m].kind == KIND_GAUGE || /* "disk_up 0" says much */
           (rows[m].kind == KIND_COUNTER && fixed <= ZERO_SERIES_MAX);
}

/* Calls print_series for every series to be shown, with the head before the first. */
static void print_metric(struct text *t, enum metric m)
{
    const struct layout *l = &layouts[m];
    bool headed = false, zeros = shows_zero(m);

    for (unsigned s = 0; s < series_count(l); s++) {
        unsigned index[LABELS_MAX] = {s / l->size[2] / l->size[1], s / l->size[2] % l->size[1],
                                      s % l->size[2]};
        uint64_t value = read_series(m, s);
        if ((value == 0 && !zeros) || !is_named(l, index, value != 0))
            continue;
        if (!headed)
            print_head(t, m);
        headed = true;
        print_series(t, m, index, value);
    }
}

void metric_print(struct text *t)
{
    pthread_once(&layout_once, make_layout);
    for (unsigned m = 0; m < METRIC_COUNT; m++)
        print_metric(t, (enum metric)m);
}

/* The longest value of a label and how many of its values may be printed. */
static size_t longest_value(const struct label *l, unsigned *used)
{
    size_t longest = strlen("other");

    *used = l->values ? l->count : names_count(l->named) + 1;
    for (unsigned i = 0; i + !l->values < *used; i++)
        longest = (size_t)max_u64(longest, strlen(label_value(l, i)));
    return longest;
}

size_t metric_print_bytes_max(void)
{
    size_t total = sizeof build_labels + 1;

    pthread_once(&layout_once, make_layout);
    for (unsigned m = 0; m < METRIC_COUNT; m++) {
        const struct layout *l = &layouts[m];
        size_t id = strlen("headpond_") + strlen(rows[m].id);
        size_t line = id + strlen("_bucket{,le=\"0.00025\"} ") + NUMBER_BYTES, series = 1;
        for (unsigned i = 0; i < l->labels; i++) {
            unsigned used;
            line += l->label[i].name.len + strlen(",=\"\"") + longest_value(&l->label[i], &used);
            series *= used;
        }
        size_t lines = rows[m].kind == KIND_HISTOGRAM ? HISTOGRAM_CELLS + 1 : 1;
        total += series * lines * line;
        total += 2 * id + strlen("# HELP  \n# TYPE  histogram\n") + strlen(rows[m].help);
    }
    return total;
}
