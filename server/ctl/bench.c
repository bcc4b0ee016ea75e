/* headpond bench: one object read three times: at the store, through the server while it has
 * nothing of it, and again now that it has.
 *
 * Invariants:
 *  1. Cold is cold: before its line the server says that no byte of the object is here. What is
 *     here is dropped first, if the operator says so, and never what is pinned.
 *  2. The three lines read the same ranges, with as many clients, by the same code; each answer's
 *     bytes are compared with those of the lines before.
 *  3. Connections stand before the clock runs; what runs when a line's time is over is cut, and
 *     counts as far as it came.
 *
 * Life: one run; threads live within a line. Failure: exit codes of ctl.h, with what to do; 3 when
 * the server did not keep what it read, so that warm is not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "conf.h"
#include "server/ctl/ctl.h"
#include "sign.h"
#include "units.h"

enum {
    RANGE_BYTES_MAX = CHUNK_BYTES, RANGE_BYTES_MIN = BLOCK_BYTES,
    RANGES_MOST = 1 << 20,
    BENCH_TRIES = 3, BENCH_AGAIN_MS = 200,
    FIRSTS_MAX = 1 << 16,            /* samples of first bytes */
};

enum { LINE_DIRECT, LINE_COLD, LINE_WARM, LINE_COUNT };

struct bench_range {
    uint32_t crc;                    /* of its bytes, as they came first */
    bool known, cold;                /* crc is set; it came whole through the server, cold */
};
struct bench {
    struct ctl *c;
    char bucket[BUCKET_BYTES_MAX + 1];
    struct span key;                 /* of the command line */
    struct s3_side store, server;
    char store_bucket[BUCKET_BYTES_MAX + 1];
    uint64_t size, range_bytes, count, cached;
    struct bench_range *range;       /* owned: count of them */
    uint64_t *order;                 /* owned: those of the warm line */
};
struct bench_line {
    struct bench *b;
    const struct s3_side *side;
    const char *bucket;
    unsigned kind;
    uint64_t turns, at_least;        /* ranges in a round; to be read whatever the time */
    uint64_t stop_us;                /* no new one then; 0: when all were read once */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* ---- under the lock ---- */
    unsigned ready;
    bool go, stopped;
    uint64_t next, bytes, requests, not_hit, last_us, begin_us, end_us;
    float *first_ms;                 /* owned */
    unsigned firsts;
    int code;
    char why[2 * CTL_WHY_BYTES];
};

static int fail_bench(int code, const char *why)
{
    fprintf(stderr, "headpond: %s\n", why);
    return code;
}

/* ---- one line's clients ---- */

static void stop_line(struct bench_line *l, int code, const char *why)
{
    pthread_mutex_lock(&l->lock);
    if (!l->stopped) {
        l->code = code;
        snprintf(l->why, sizeof l->why, "%s", why);
    }
    l->stopped = true;
    pthread_mutex_unlock(&l->lock);
}

/* false: nothing is left to be read. */
static bool take_turn(struct bench_line *l, uint64_t *number)
{
    pthread_mutex_lock(&l->lock);
    bool all = l->next >= l->at_least && (l->stop_us == 0 || clock_us() >= l->stop_us);
    bool left = !l->stopped && !all && clock_us() < l->end_us;
    if (left)
        *number = l->next++ % l->turns;
    pthread_mutex_unlock(&l->lock);
    if (left && l->kind == LINE_WARM)
        *number = l->b->order[*number];
    return left;
}

static void count_answer(struct bench_line *l, const struct s3_answer *a, bool whole)
{
    pthread_mutex_lock(&l->lock);
    l->bytes += a->bytes;
    l->requests += whole;
    l->not_hit += whole && strcmp(a->x_cache, "hit") != 0;
    l->last_us = max_u64(l->last_us, min_u64(clock_us(), l->end_us));
    if (a->first_us && l->firsts < FIRSTS_MAX)
        l->first_ms[l->firsts++] = (float)(a->first_us - a->sent_us) / 1000;
    pthread_mutex_unlock(&l->lock);
}

/* Whether the bytes are those of the lines before. A range has one reader at a time, but for the
 * warm line, which only compares. */
static bool is_same(struct bench_line *l, uint64_t number, uint32_t crc)
{
    struct bench_range *r = &l->b->range[number];

    if (l->kind == LINE_WARM || r->known)
        return r->crc == crc;
    r->crc = crc;
    r->known = true;
    return true;
}

static void refuse_status(struct bench_line *l, const struct s3_answer *a)
{
    const char *who = l->side->at.authority;
    char why[CTL_WHY_BYTES];

    if (a->region[0] && strcmp(a->region, l->side->region) != 0 && l->kind == LINE_DIRECT)
        snprintf(why, sizeof why, "%s: the bucket is in region %s, and %s was signed for: set "
                                  "upstream.region in the server's file, or AWS_REGION here", who,
                 a->region, l->side->region);
    else if (a->status == 401 || a->status == 403)
        snprintf(why, sizeof why, "%s refuses to be read %s (%u): set AWS_ACCESS_KEY_ID and "
                                  "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to keys that may read "
                                  "there", who, l->side->creds ? "with the keys of this shell" :
                 "without a signature", a->status);
    else
        snprintf(why, sizeof why, "%s answers a range with %u; try headpond doctor", who,
                 a->status);
    stop_line(l, a->status == 404 ? CTL_NOT_FOUND : a->status == 403 || a->status == 401 ?
              CTL_DENIED : CTL_FAILED, why);
}

/* true: it may go better another time. */
static bool is_passing(enum err e, const struct s3_answer *a)
{
    return e != OK ? e != ERR_TIMEOUT : a->status == 429 || a->status >= 500;
}

static void read_one(struct bench_line *l, struct s3_line *line, uint64_t number)
{
    struct bench *b = l->b;
    uint64_t from = number * b->range_bytes, to = min_u64(from + b->range_bytes, b->size) - 1;
    const struct s3_ask ask = {.method = "GET", .bucket = l->bucket, .key = b->key, .ranged = true,
        .from = from, .to = to};
    struct s3_answer a = {0};
    enum err e = OK;

    for (unsigned try = 0; try < BENCH_TRIES; try++) {
        e = s3_ask(line, &ask, &a);
        if (try + 1 == BENCH_TRIES || !is_passing(e, &a) || clock_us() >= line->end_us)
            break;
        poll(NULL, 0, BENCH_AGAIN_MS << try);
    }
    if (e == OK && a.status != 206) {
        refuse_status(l, &a);
        return;
    }
    bool whole = e == OK && a.bytes == to - from + 1 && a.size == b->size;
    count_answer(l, &a, whole);
    if (e != OK && clock_us() < line->end_us)
        stop_line(l, CTL_FAILED, line->why);
    else if (e == OK && (!whole || !is_same(l, number, a.crc)))
        stop_line(l, CTL_FAILED, "the bytes differ from those of the line before: the object was "
                                 "replaced meanwhile; run it again");
    else if (whole && l->kind == LINE_COLD)
        b->range[number].cold = true;
}

static void *bench_client(void *arg)
{
    struct bench_line *l = arg;
    struct s3_line line;
    uint64_t number;

    enum err e = s3_line_open(&line, l->side);
    if (e == OK)
        e = s3_line_connect(&line);
    if (e != OK)
        stop_line(l, CTL_UNREACHABLE, line.why);
    pthread_mutex_lock(&l->lock);
    l->ready++;
    pthread_cond_broadcast(&l->changed);
    while (!l->go)
        pthread_cond_wait(&l->changed, &l->lock);
    line.end_us = l->end_us;
    pthread_mutex_unlock(&l->lock);
    while (take_turn(l, &number))
        read_one(l, &line, number);
    s3_line_close(&line);
    return NULL;
}

/* ---- a line ---- */

static void start_clock(struct bench_line *l, unsigned clients)
{
    pthread_mutex_lock(&l->lock);
    while (l->ready < clients)
        pthread_cond_wait(&l->changed, &l->lock);
    l->begin_us = l->last_us = clock_us();
    l->end_us = l->begin_us + l->b->c->seconds * 1000000;
    if (l->stop_us)
        l->stop_us += l->begin_us;
    l->go = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static int measure_line(struct bench_line *l)
{
    unsigned wanted = (unsigned)min_u64(l->b->c->clients, max_u64(l->turns, 1)), started = 0;
    pthread_t thread[BENCH_CLIENTS_MAX];

    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->first_ms = mem_take(FIRSTS_MAX * sizeof *l->first_ms);
    while (l->first_ms && started < wanted &&
           pthread_create(&thread[started], NULL, bench_client, l) == 0)
        started++;
    if (started < wanted)
        stop_line(l, CTL_FAILED, "no memory for that many clients; take fewer: --clients 2");
    start_clock(l, started);
    for (unsigned i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    if (l->code != CTL_DONE)
        return fail_bench(l->code, l->why);
    if (l->bytes == 0)
        return fail_bench(CTL_TIMEOUT, "not a byte came in --seconds; give it more");
    return CTL_DONE;
}

static int by_time(const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;

    return (a > b) - (a < b);
}

static double rate_of(const struct bench_line *l)
{
    return (double)l->bytes * 1e6 / (double)max_u64(l->last_us - l->begin_us, 1);
}

/* The median. */
static double first_byte_ms(struct bench_line *l)
{
    if (l->firsts == 0)
        return 0;
    qsort(l->first_ms, l->firsts, sizeof *l->first_ms, by_time);
    return l->first_ms[l->firsts / 2];
}

void bench_text(const struct bench_result *r, struct text *out)
{
    char rate[32], first[32];
    struct text t;

    text_init(&t, rate, sizeof rate);
    units_rate(&t, r->rate, r->rate);
    text_init(&t, first, sizeof first);
    if (r->first_ms < 1000)
        text_addf(&t, "%.*f ms", r->first_ms < 9.95 ? 1 : 0, r->first_ms);
    else
        text_addf(&t, "%.1f s", r->first_ms / 1000);
    text_addf(out, "%-16s%12s    first byte %6s", r->name, rate, first);
    if (r->times > 0)
        text_addf(out, "     %.*f x", r->times < 9.95 ? 1 : 0, r->times);
    text_addc(out, '\n');
}

static void tell_line(struct bench_line *l, double direct)
{
    static const char *const names[][2] = {
        [LINE_DIRECT] = {"origin directly", "direct"},
        [LINE_COLD] = {"through us, cold", "cold"},
        [LINE_WARM] = {"through us, warm", "warm"},
    };
    struct bench_result r = {.name = names[l->kind][0], .rate = rate_of(l),
        .first_ms = first_byte_ms(l)};
    char memory[200];
    struct text t;

    if (l->kind == LINE_WARM && direct > 0)
        r.times = r.rate / direct;
    text_init(&t, memory, sizeof memory);
    bench_text(&r, &t);
    if (l->b->c->json) {
        json_t *line = json_pack("{s:i,s:s,s:I,s:f,s:f,s:f,s:I,s:i}", "v", 1, "line",
                                 names[l->kind][1], "bytes", (json_int_t)l->bytes, "seconds",
                                 (double)(l->last_us - l->begin_us) / 1e6, "bytes_per_s", r.rate,
                                 "first_byte_ms", r.first_ms, "requests", (json_int_t)l->requests,
                                 "clients", (int)l->ready);
        if (r.times > 0)
            json_object_set_new(line, "times", json_real(r.times));
        if (l->kind != LINE_DIRECT)
            json_object_set_new(line, "hits", json_integer((json_int_t)(l->requests - l->not_hit)));
        ctl_print_json(line);
        json_decref(line);
    } else {
        fputs(memory, stdout);
    }
    fflush(stdout);
}

/* What came whole through the server is what the warm line reads again. */
static uint64_t order_warm(struct bench *b)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < b->count; i++)
        if (b->range[i].cold)
            b->order[count++] = i;
    return count;
}

static int check_warm(const struct bench_line *l)
{
    if (l->not_hit == 0)
        return CTL_DONE;
    fprintf(stderr, "headpond: %llu of %llu warm reads were no hits: the server did not keep all "
                    "that it read (headpond status tells how full it is; cache.policy)\n",
            (unsigned long long)l->not_hit, (unsigned long long)l->requests);
    return CTL_PARTLY;
}

static int measure(struct bench *b)
{
    struct bench_line line[LINE_COUNT] = {
        {.side = &b->store, .bucket = b->store_bucket},
        {.side = &b->server, .bucket = b->bucket},
        {.side = &b->server, .bucket = b->bucket},
    };
    int code = CTL_DONE;

    for (unsigned i = 0; i < LINE_COUNT && code == CTL_DONE; i++) {
        struct bench_line *l = &line[i];
        l->b = b;
        l->kind = i;
        l->turns = l->at_least = i == LINE_DIRECT ? b->count : line[i - 1].next;
        if (i == LINE_WARM) {        /* as long as cold took: rounds of a moment tell little */
            l->turns = l->at_least = order_warm(b);
            l->stop_us = line[LINE_COLD].last_us - line[LINE_COLD].begin_us;
        }
        code = l->turns > 0 ? measure_line(l)
            : fail_bench(CTL_TIMEOUT, "not one range came whole in --seconds; give it more");
        if (code == CTL_DONE)
            tell_line(l, i ? rate_of(&line[LINE_DIRECT]) : 0);
    }
    if (code == CTL_DONE)
        code = check_warm(&line[LINE_WARM]);
    for (unsigned i = 0; i < LINE_COUNT; i++)
        mem_give(line[i].first_ms);
    return code;
}

/* ---- cold ---- */

/* What the server has of the object, and how large it is. */
static int look_at_server(struct bench *b)
{
    const struct s3_ask ask = {.method = "HEAD", .bucket = b->bucket, .key = b->key};
    struct s3_answer a = {0};
    struct s3_line line;
    char why[2 * CTL_WHY_BYTES];

    enum err e = s3_line_open(&line, &b->server);
    if (e == OK)
        e = s3_ask(&line, &ask, &a);
    snprintf(why, sizeof why, "%s", line.why);
    s3_line_close(&line);
    if (e != OK)
        return fail_bench(CTL_UNREACHABLE, why);
    if (a.status == 404)
        return fail_bench(CTL_NOT_FOUND, "there is no such object; bench wants one, not a prefix: "
                                         "s3://BUCKET/KEY");
    if (a.status == 200 && a.size > 0 && a.has_cached) {
        b->size = a.size;
        b->cached = a.cached;
        return CTL_DONE;
    }
    if (a.status == 401 || a.status == 403)
        return CTL_DENIED;           /* another try with keys may follow */
    if (a.status != 200)
        snprintf(why, sizeof why, "the S3 port answers a HEAD with %u; see headpond status",
                 a.status);
    else
        snprintf(why, sizeof why, "%s; take another one",
                 a.has_cached ? "the object is empty: there is nothing to measure"
                     : "the server passes this object through and never keeps it");
    return fail_bench(CTL_FAILED, why);
}

/* Unsigned where that will do: a server has keys of its own. */
static int find_object(struct bench *b, const struct creds *creds)
{
    int code = look_at_server(b);

    if (code != CTL_DENIED)
        return code;
    if (creds && !creds->token[0]) {
        b->server.creds = creds;
        code = look_at_server(b);
    }
    if (code != CTL_DENIED)
        return code;
    return fail_bench(CTL_DENIED,
                      "the S3 port lets this address read nothing without a signature, and does "
                      "not take the keys of this shell: run it where auth.anonymous allows reads "
                      "(loopback by default), or with a key of auth.keys_file that the store "
                      "takes, too");
}

static json_t *ask_evict(struct bench *b, bool dry_run, int *code)
{
    char place[BUCKET_BYTES_MAX + KEY_BYTES_MAX + 2], body[8 * KIB];

    snprintf(place, sizeof place, "%s/%.*s", b->bucket, (int)b->key.len, b->key.at);
    json_t *wish = json_pack("{s:s,s:b,s:b}", "prefix", place, "keep_pinned", 1, "dry_run",
                             (int)dry_run);
    size_t len = wish ? json_dumpb(wish, body, sizeof body - 1, JSON_COMPACT) : 0;
    json_decref(wish);
    if (len == 0 || len >= sizeof body) {
        *code = fail_bench(CTL_USAGE, "the key is no UTF-8; take another object");
        return NULL;
    }
    body[len] = '\0';
    return client_call(b->c, "POST", "/v1/evict", body, code);
}

/* The object alone: a key may begin others, and an order to drop means all of them. */
static int drop_object(struct bench *b)
{
    char id[32];
    struct text t;
    int code;
    json_t *answer = ask_evict(b, true, &code);

    if (!answer)
        return code;
    uint64_t matched = value_u64(answer, "matched_objects");
    json_decref(answer);
    if (matched > 1)
        return fail_bench(CTL_USAGE, "other objects that are here begin with that key, and would "
                                     "be dropped with it; take another one");
    answer = ask_evict(b, false, &code);
    if (!answer)
        return code;
    text_init(&t, id, sizeof id);
    text_add_printable(&t, span_of(value_text(answer, "id")), sizeof id - 1);
    json_decref(answer);
    return job_end(b->c, id);
}

static int make_cold(struct bench *b)
{
    char memory[200], line[16] = "";
    struct text t;

    if (b->cached == 0)
        return CTL_DONE;
    text_init(&t, memory, sizeof memory);
    units_bytes_of(&t, b->cached, b->size);
    if (!b->c->yes && !isatty(STDIN_FILENO)) {
        text_adds(&t, " of it are here already; say --yes and they are dropped, so that cold is "
                      "cold, or take an object that nobody has read");
        return fail_bench(CTL_USAGE, memory);
    }
    if (!b->c->yes) {
        fprintf(stderr, "drop the %s that are here already? [y/N] ", memory);
        if (!fgets(line, sizeof line, stdin) || (line[0] != 'y' && line[0] != 'Y'))
            return CTL_INTERRUPTED;
    }
    int code = drop_object(b);
    if (code == CTL_DONE)
        code = look_at_server(b);
    if (code == CTL_DONE && b->cached > 0)
        code = fail_bench(CTL_FAILED, "it is still here: it is pinned (headpond pins), or others "
                                      "read it; take another object");
    return code;
}

/* ---- who is asked ---- */

/* As the server routes; *section borrows from the configuration. */
static bool find_section(const json_t *config, struct bench *b, const json_t **section)
{
    const json_t *all = json_object_get(config, "upstream");
    struct config *c = mem_take(sizeof *c);
    struct conf_route route = {0};
    bool found = false;

    for (size_t i = 0; c && i < json_array_size(all) && i < CONF_UPSTREAMS_MAX; i++) {
        const json_t *one = json_array_get(all, i), *match = json_object_get(one, "match");
        struct conf_upstream *u = &c->upstream[c->upstream_count++];
        /* conf_route() only reads them. */
        u->bucket = (char *)(uintptr_t)value_text(one, "bucket");
        for (size_t j = 0; j < json_array_size(match) && j < CONF_LIST_MAX; j++)
            u->match.item[u->match.count++] =
                (char *)(uintptr_t)json_string_value(json_array_get(match, j));
    }
    if (c && json_is_object(all)) {
        c->upstream_count = 1;
        c->upstream[0].bucket = (char *)(uintptr_t)"";
    }
    if (c && c->upstream_count)
        found = conf_route(c, span_of(b->bucket), &route);
    *section = json_is_object(all) ? all : json_array_get(all, route.upstream);
    snprintf(b->store_bucket, sizeof b->store_bucket, "%.*s", (int)route.bucket.len,
             found ? route.bucket.at : "");
    mem_give(c);
    return found;
}

static int make_sides(struct bench *b, const json_t *status, const json_t *config)
{
    static const char *const styles[] = {"auto", "path", "virtual"};
    const json_t *u = NULL;
    char why[CTL_WHY_BYTES];

    if (!find_section(config, b, &u))
        return fail_bench(CTL_NOT_FOUND, "no upstream of the server has that bucket; headpond "
                                         "config show tells which they match");
    struct s3_how how = {.region = value_text(u, "region"), .ca_file = value_text(u, "ca_file"),
        .insecure = value_true(u, "insecure"), .timeout_ms = b->c->timeout_ms};
    for (unsigned i = 0; i < ARRAY_COUNT(styles); i++)
        if (strcmp(value_text(u, "path_style"), styles[i]) == 0)
            how.path_style = i;
    if (s3_side_make(value_text(u, "endpoint"), &how, &b->store, why) != OK)
        return fail_bench(CTL_FAILED, why);
    if (b->store.at.directory)
        return fail_bench(CTL_USAGE, "the store of this bucket is a directory, which nobody reads "
                                     "over a network: there is nothing to compare with");
    how = (struct s3_how){.path_style = CONF_PATH_STYLE_PATH, .timeout_ms = b->c->timeout_ms,
        .region = "us-east-1"};
    if (s3_side_make(value_text(status, "s3_url"), &how, &b->server, why) != OK)
        return fail_bench(CTL_FAILED, why);
    return CTL_DONE;
}

static int cut_ranges(struct bench *b)
{
    uint64_t each = b->size / b->c->clients / RANGE_BYTES_MIN * RANGE_BYTES_MIN;

    b->range_bytes = min_u64(max_u64(each, RANGE_BYTES_MIN), RANGE_BYTES_MAX);
    b->count = min_u64((b->size + b->range_bytes - 1) / b->range_bytes, RANGES_MOST);
    b->range = mem_take(b->count * sizeof *b->range);
    b->order = mem_take(b->count * sizeof *b->order);
    return b->range && b->order ? CTL_DONE : fail_bench(CTL_FAILED, "there is no memory for that");
}

static void announce_bench(const struct bench *b)
{
    char memory[200];
    struct text t;

    text_init(&t, memory, sizeof memory);
    units_bytes(&t, b->size);
    text_adds(&t, " in ranges of ");
    units_bytes(&t, b->range_bytes);
    ctl_say(b->c, "%s by %u clients, at most %llu s each\n", memory, (unsigned)b->c->clients,
            (unsigned long long)b->c->seconds);
}

static int bench_with(struct bench *b, const json_t *status, const json_t *config)
{
    char why[CTL_WHY_BYTES];
    const struct creds *creds = s3_find_creds(why);
    int code = make_sides(b, status, config);

    if (code == CTL_DONE && !creds && why[0])
        code = fail_bench(CTL_FAILED, why);
    b->store.creds = creds;
    if (code == CTL_DONE)
        code = find_object(b, creds);
    if (code == CTL_DONE)
        code = make_cold(b);
    if (code == CTL_DONE)
        code = cut_ranges(b);
    if (code != CTL_DONE)
        return code;
    announce_bench(b);
    return measure(b);
}

int bench_run(struct ctl *c)
{
    struct bench b = {.c = c};
    struct span place = span_of(""), bucket;
    struct reply r = {0};
    int code = CTL_DONE;

    bool good = c->word_count == 1 && place_read(c->word[0], &place);
    bucket = span_cut(&place, '/');
    if (!good || place.len == 0 || place.len > KEY_BYTES_MAX || bucket.len >= sizeof b.bucket)
        return fail_bench(CTL_USAGE, "one object is read: write s3://BUCKET/KEY");
    memcpy(b.bucket, bucket.at, bucket.len);
    b.key = place;
    if (sign_setup() != OK)
        return fail_bench(CTL_FAILED, "OpenSSL has no digests here");
    json_t *status = client_json(c, "/v1/status", &r, &code), *config = NULL;
    reply_free(&r);
    if (status)
        config = client_json(c, "/v1/config", &r, &code);
    if (config)
        code = bench_with(&b, status, config);
    reply_free(&r);
    json_decref(status);
    json_decref(config);
    s3_side_free(&b.store);
    s3_side_free(&b.server);
    mem_give(b.range);
    mem_give(b.order);
    return code;
}
