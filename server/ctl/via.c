/* headpond prewarm --via URL: through a balancer, which alone knows which server keeps what.
 *
 * A range of one byte of each chunk is asked for, with the hint that others will read it: the
 * server to which the balancer sends that fetches the chunk, and keeps it. Then one byte of each
 * block is asked for, and must be a hit. Both hold whether the balancer hashes paths, or blocks of
 * 8 MiB and more. No server need be known here, and hardly a byte comes this way.
 *
 * Invariants:
 *  1. An object counts as done only if each of its blocks was a hit, behind the balancer.
 *  2. What was no hit is fetched again, ROUNDS times in all; then it is told by its name.
 *
 * Life: one run: it is this program that works, so an interrupt ends it.
 * Failure: as of other prewarms: 3 when objects failed; 4, 5, 6 when the list cannot be had. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "glob.h"
#include "server/ctl/ctl.h"
#include "units.h"
#include "xml.h"

enum {
    VIA_LINES = 32, VIA_ROUNDS = 3, VIA_TRIES = 5, VIA_AGAIN_MS = 200,
    VIA_PAGE_BYTES = 4 * MIB,
    VIA_FAILURES_TOLD = 16, VIA_LINE_MS = 10000,
    VIA_KEY_SHOWN = 200,
};
static const uint64_t SIZE_UNKNOWN = UINT64_MAX;

struct via_object {
    char error[24];                  /* "": none */
    uint64_t size, cold;             /* SIZE_UNKNOWN; blocks of this round that were no hits */
};
struct via {
    const struct ctl *c;
    struct s3_side side;
    char bucket[BUCKET_BYTES_MAX + 1];
    struct items items;              /* keys, and sizes as listed */
    struct via_object *object;       /* owned: as many */
    bool checks;                     /* the pass looks at blocks, else it fetches chunks */
    pthread_mutex_t lock;
    /* ---- under the lock ---- */
    size_t next;                     /* object, and which piece of it */
    uint64_t piece, asked_bytes;
    uint64_t due_us;                 /* when the next fetch may begin: --bandwidth */
    uint64_t wanted_bytes, seen_bytes, line_ms;
    unsigned opened;                 /* connections of this pass */
    bool stopped;
    char why[2 * CTL_WHY_BYTES];
};
struct via_piece {                   /* one byte is asked for */
    size_t object;
    uint64_t from, bytes;
};

static int fail_via(int code, const char *why)
{
    fprintf(stderr, "headpond: %s\n", why);
    return code;
}

/* ---- what is wanted ---- */

static int judge_list(const struct via *v, enum err e, const struct s3_line *line, unsigned status)
{
    char why[2 * CTL_WHY_BYTES];

    if (e != OK)
        return fail_via(CTL_UNREACHABLE, line->why);
    if (status == 404)
        return fail_via(CTL_NOT_FOUND, "there is no such bucket at the store");
    if (status == 401 || status == 403)
        return CTL_DENIED;
    snprintf(why, sizeof why, "%s answers the list with %u; headpond status tells more",
             v->side.at.authority, status);
    return fail_via(CTL_FAILED, why);
}

/* Whether the servers answer such requests, signed or not. */
static int probe_via(struct via *v)
{
    const struct s3_ask ask = {.method = "HEAD", .bucket = v->bucket};
    struct s3_answer a = {0};
    struct s3_line line;

    enum err e = s3_line_open(&line, &v->side);
    if (e == OK)
        e = s3_ask(&line, &ask, &a);
    int code = e == OK && a.status == 200 ? CTL_DONE : judge_list(v, e, &line, a.status);
    s3_line_close(&line);
    return code;
}

/* Page after page, as any client gets it. */
static int list_pages(struct via *v, struct s3_line *line, struct span prefix, struct text *page)
{
    struct listed l = {.items = &v->items};
    char query[8 * KIB];
    struct text t;

    do {
        struct s3_answer a = {.keep = page};
        text_init(&t, query, sizeof query);
        list_query(&t, prefix, l.token);
        if (t.over)
            return fail_via(CTL_USAGE, "the prefix is too long");
        page->len = 0;
        page->over = false;
        const struct s3_ask ask = {.method = "GET", .bucket = v->bucket, .query = query};
        enum err e = s3_ask(line, &ask, &a);
        if (e != OK || a.status != 200)
            return judge_list(v, e, line, a.status);
        if (page->over || !list_read(&l, text_span(page)))
            return fail_via(CTL_FAILED, v->items.no_memory || page->over
                            ? "there is no memory for the list" : l.wrong);
    } while (l.truncated);
    return CTL_DONE;
}

static int list_via(struct via *v, struct span prefix)
{
    struct s3_line line;
    struct text page;
    char *memory = mem_take(VIA_PAGE_BYTES);
    int code = CTL_FAILED;

    if (!memory || xml_setup() != OK) {
        mem_give(memory);
        return fail_via(CTL_FAILED, "there is no memory for the list");
    }
    text_init(&page, memory, VIA_PAGE_BYTES);
    if (s3_line_open(&line, &v->side) == OK)
        code = list_pages(v, &line, prefix, &page);
    else
        fail_via(CTL_FAILED, line.why);
    s3_line_close(&line);
    mem_give(memory);
    return code;
}

/* The globs, as the server would read them: of the name behind the prefix's last slash. */
static bool make_filter(const struct ctl *c, struct text *filter)
{
    for (unsigned i = 0; i < c->include_count; i++)
        text_addf(filter, "+%s\n", c->include[i]);
    for (unsigned i = 0; i < c->exclude_count; i++)
        text_addf(filter, "-%s\n", c->exclude[i]);
    return !filter->over;
}

static void pick_items(struct via *v, struct span prefix, struct span filter)
{
    size_t from = prefix.len, kept = 0;

    while (from > 0 && prefix.at[from - 1] != '/')
        from--;
    for (size_t i = 0; i < v->items.count; i++) {
        struct item *one = &v->items.item[i];
        if (filter_has(filter, span_from(span_of(one->key), from)))
            v->items.item[kept++] = *one;
        else
            item_free(one);
    }
    v->items.count = kept;
}

static bool take_line(struct via *v, const json_t *one)
{
    struct span etag = http_unquote(span_of(value_text(one, "etag")));
    struct item *item = items_add(&v->items, span_of(value_text(one, "key")));

    if (!item)
        return false;
    item->size = json_is_integer(json_object_get(one, "size")) ? value_u64(one, "size")
        : SIZE_UNKNOWN;
    item->etag = etag.len ? mem_copy(etag) : NULL;
    return item->etag || !etag.len;
}

/* Lines of JSON, as a server gets them. */
static bool take_lines(struct via *v, const struct wanted *l)
{
    struct span rest = span_make(l->bytes, l->len);
    bool good = true;

    while (good && rest.len > 0) {
        struct span line = span_cut(&rest, '\n');
        json_t *one = json_loadb(line.at, line.len, 0, NULL);
        good = take_line(v, one);
        json_decref(one);
    }
    return good;
}

static int by_size(const void *x, const void *y)
{
    const struct item *a = x, *b = y;

    return a->size != b->size ? (a->size > b->size) - (a->size < b->size)
        : strcmp(a->key, b->key);
}

static int by_name(const void *x, const void *y)
{
    const struct item *a = x, *b = y;

    return strcmp(a->key, b->key);
}

static int sort_items(struct via *v)
{
    const char *order = v->c->order ? v->c->order : "";
    bool size = strcmp(order, "size") == 0;

    for (size_t i = 0; size && i < v->items.count; i++)
        if (v->items.item[i].size == SIZE_UNKNOWN)
            return fail_via(CTL_USAGE, "--order size wants the size of each key in the list");
    if (v->items.count > 0 && (size || strcmp(order, "name") == 0))
        qsort(v->items.item, v->items.count, sizeof *v->items.item, size ? by_size : by_name);
    return CTL_DONE;
}

/* ---- pieces ---- */

static void fail_object(struct via *v, size_t object, const char *error)
{
    pthread_mutex_lock(&v->lock);
    struct via_object *o = &v->object[object];
    if (!o->error[0])
        snprintf(o->error, sizeof o->error, "%s", error);
    pthread_mutex_unlock(&v->lock);
}

/* Under the lock; false: this object has no more of them. */
static bool piece_of(struct via *v, struct via_piece *out)
{
    struct via_object *o = &v->object[v->next];
    uint64_t each = v->checks ? BLOCK_BYTES : CHUNK_BYTES, from = v->piece * each;

    if (o->error[0] || o->size == SIZE_UNKNOWN || from >= o->size || (!v->checks && o->cold == 0))
        return false;
    *out = (struct via_piece){v->next, from, min_u64(each, o->size - from)};
    v->piece++;
    return true;
}

/* false: the pass is over. *wait_us: how long that piece has to wait for its bandwidth. */
static bool next_piece(struct via *v, struct via_piece *out, uint64_t *wait_us)
{
    uint64_t now = clock_us();
    bool got = false;

    *wait_us = 0;
    pthread_mutex_lock(&v->lock);
    while (!v->stopped && v->next < v->items.count && !(got = piece_of(v, out))) {
        v->next++;
        v->piece = 0;
    }
    if (got && !v->checks && v->c->bandwidth) {
        v->due_us = max_u64(v->due_us, now);
        *wait_us = v->due_us - now;
        v->due_us += out->bytes * 1000000 / v->c->bandwidth;
    }
    pthread_mutex_unlock(&v->lock);
    return got;
}

/* The exchange with its tries. NULL: well; else what went wrong, as S3 calls it. */
static const char *ask_patiently(struct via *v, struct s3_line *line, const struct s3_ask *ask,
                                 struct s3_answer *a)
{
    enum err e = OK;

    for (unsigned try = 0; try < VIA_TRIES; try++) {
        e = s3_ask(line, ask, a);
        if (e == OK && a->status < 500 && a->status != 429)
            break;
        if (try + 1 < VIA_TRIES)
            poll(NULL, 0, VIA_AGAIN_MS << try);
    }
    if (e != OK) {
        pthread_mutex_lock(&v->lock);
        snprintf(v->why, sizeof v->why, "%s", line->why);
        pthread_mutex_unlock(&v->lock);
        return "NoAnswer";
    }
    switch (a->status) {
    case 200: case 206: return NULL;
    case 404: return "NoSuchKey";
    case 401: case 403: return "AccessDenied";
    case 429: case 503: return "SlowDown";
    default: return "InternalError";
    }
}

static void tell_via(struct via *v, uint64_t bytes)
{
    char memory[200];
    struct text t;

    pthread_mutex_lock(&v->lock);
    v->seen_bytes += bytes;
    bool due = clock_ms() >= v->line_ms && !v->c->json && !v->c->no_progress;
    if (due)
        v->line_ms = clock_ms() + VIA_LINE_MS;
    text_init(&t, memory, sizeof memory);
    units_percent(&t, (double)v->seen_bytes / (double)max_u64(v->wanted_bytes, 1), 0);
    text_adds(&t, "  ");
    units_bytes_part(&t, v->seen_bytes, v->wanted_bytes);
    pthread_mutex_unlock(&v->lock);
    if (due)
        ctl_say(v->c, "%s%s\n", v->checks ? "checking " : "", memory);
}

/* What was listed, or NULL: whether that is what came. */
static const char *judge_answer(const struct via *v, size_t at, const struct s3_answer *a)
{
    const char *etag = v->items.item[at].etag;
    uint64_t size = v->items.item[at].size;

    return size != SIZE_UNKNOWN && size != a->size ? "OtherSize"
        : etag && strcmp(etag, a->etag) != 0 ? "OtherETag" : NULL;
}

static void ask_piece(struct via *v, struct s3_line *line, const struct via_piece *p)
{
    const struct s3_ask ask = {.method = "GET", .bucket = v->bucket,
        .key = span_of(v->items.item[p->object].key), .ranged = true, .from = p->from,
        .to = p->from, .hint = v->checks ? "once, random" : "prefetch"};
    struct s3_answer a = {0};
    const char *error = ask_patiently(v, line, &ask, &a);

    if (!error && a.size != v->object[p->object].size)
        error = "OtherSize";
    if (!error)
        error = judge_answer(v, p->object, &a);
    if (error) {
        fail_object(v, p->object, error);
        return;
    }
    bool hit = strcmp(a.x_cache, "hit") == 0;
    pthread_mutex_lock(&v->lock);
    v->object[p->object].cold += v->checks && !hit;
    pthread_mutex_unlock(&v->lock);
    tell_via(v, p->bytes);
}

static void end_line(struct via *v, struct s3_line *line, bool opened)
{
    pthread_mutex_lock(&v->lock);
    v->opened += opened;
    pthread_mutex_unlock(&v->lock);
    s3_line_close(line);
}

static void *via_work(void *arg)
{
    struct via *v = arg;
    struct s3_line line;
    struct via_piece piece;
    uint64_t wait_us;
    bool opened = s3_line_open(&line, &v->side) == OK;

    if (opened)
        while (next_piece(v, &piece, &wait_us)) {
            if (wait_us > 0)
                poll(NULL, 0, (int)min_u64(wait_us / 1000 + 1, INT32_MAX));
            ask_piece(v, &line, &piece);
        }
    end_line(v, &line, opened);
    return NULL;
}

/* Sizes that no list told, and whether what is empty is there: of it no byte can be asked for. */
static void *via_measure(void *arg)
{
    struct via *v = arg;
    struct s3_line line;
    bool opened = s3_line_open(&line, &v->side) == OK;

    if (opened)
        for (;;) {
            pthread_mutex_lock(&v->lock);
            while (v->next < v->items.count && v->object[v->next].size != SIZE_UNKNOWN)
                v->next++;
            size_t at = v->next++;
            pthread_mutex_unlock(&v->lock);
            if (at >= v->items.count)
                break;
            struct s3_answer a = {0};
            const struct s3_ask ask = {.method = "HEAD", .bucket = v->bucket,
                .key = span_of(v->items.item[at].key)};
            const char *error = ask_patiently(v, &line, &ask, &a);
            if (!error)
                error = judge_answer(v, at, &a);
            if (error)
                fail_object(v, at, error);
            else
                v->object[at].size = a.size;
        }
    end_line(v, &line, opened);
    return NULL;
}

static int run_pass(struct via *v, void *(*work)(void *via))
{
    pthread_t thread[BENCH_CLIENTS_MAX];
    unsigned lines = v->c->connections ? (unsigned)v->c->connections : VIA_LINES, started = 0;

    v->next = 0;
    v->piece = v->seen_bytes = 0;
    v->opened = 0;
    lines = (unsigned)min_u64(lines, BENCH_CLIENTS_MAX);
    while (started < lines && pthread_create(&thread[started], NULL, work, v) == 0)
        started++;
    for (unsigned i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    return v->opened ? CTL_DONE : fail_via(CTL_FAILED, "there is no memory for a connection");
}

/* ---- rounds ---- */

/* Objects that are not known to be there. */
static size_t count_cold(struct via *v)
{
    size_t count = 0;

    v->wanted_bytes = 0;
    for (size_t i = 0; i < v->items.count; i++) {
        struct via_object *o = &v->object[i];
        bool left = o->cold > 0 && !o->error[0] && o->size != SIZE_UNKNOWN;
        count += left;
        v->wanted_bytes += left ? o->size : 0;
    }
    return count;
}

static int run_rounds(struct via *v)
{
    int code = CTL_DONE;

    for (unsigned round = 0; round < VIA_ROUNDS && code == CTL_DONE && count_cold(v) > 0; round++) {
        v->checks = false;
        code = run_pass(v, via_work);
        for (size_t i = 0; i < v->items.count; i++)
            v->object[i].cold = 0;
        v->checks = true;
        if (code == CTL_DONE)
            code = run_pass(v, via_work);
    }
    for (size_t i = 0; i < v->items.count; i++)
        if (v->object[i].cold > 0)
            fail_object(v, i, "NotKept");
    return code;
}

static json_t *failures_json(const struct via *v)
{
    json_t *list = json_array();

    for (size_t i = 0; i < v->items.count && json_array_size(list) < VIA_FAILURES_TOLD; i++)
        if (v->object[i].error[0])
            json_array_append_new(list, json_pack("{s:o,s:s}", "key",
                                                  key_json(span_of(v->items.item[i].key)),
                                                  "error", v->object[i].error));
    return list;
}

static void tell_result(const struct via *v, json_int_t failed, json_int_t bytes, uint64_t took_s)
{
    char memory[16 * KIB];
    json_t *failures = failures_json(v);
    json_int_t wanted = (json_int_t)v->items.count;
    struct text t;

    if (v->c->json) {
        json_t *line = json_pack("{s:i,s:s,s:s,s:s,s:{s:I,s:I,s:I},s:{s:I},s:o}", "v", 1, "kind",
                                 "prewarm", "via", v->c->via, "state", "done", "objects", "wanted",
                                 wanted, "done", wanted - failed, "failed", failed, "bytes", "done",
                                 bytes, "failures", failures);
        ctl_print_json(line);
        json_decref(line);
        return;
    }
    text_init(&t, memory, sizeof memory);
    text_adds(&t, "done in ");
    units_duration(&t, took_s);
    text_adds(&t, ": ");
    units_count(&t, (uint64_t)(wanted - failed));
    text_adds(&t, " of ");
    units_count(&t, (uint64_t)wanted);
    text_addf(&t, " object%s, ", wanted == 1 ? "" : "s");
    units_bytes(&t, (uint64_t)bytes);
    text_addc(&t, '\n');
    for (size_t i = 0; i < json_array_size(failures); i++) {
        const json_t *one = json_array_get(failures, i);
        text_adds(&t, i ? ", " : "");
        if (i == 0)
            text_addf(&t, "%lld failed: ", (long long)failed);
        text_add_printable(&t, span_of(value_text(one, "key")), VIA_KEY_SHOWN);
        text_addf(&t, " %s", value_text(one, "error"));
    }
    if (failed)
        text_adds(&t, (size_t)failed > json_array_size(failures) ? ", ...\n" : "\n");
    fputs(memory, stdout);
    json_decref(failures);
}

static int end_via(struct via *v, uint64_t began_ms)
{
    json_int_t failed = 0, bytes = 0;

    for (size_t i = 0; i < v->items.count; i++) {
        const struct via_object *o = &v->object[i];
        failed += o->error[0] != '\0';
        bytes += o->error[0] ? 0 : (json_int_t)o->size;
    }
    tell_result(v, failed, bytes, (clock_ms() - began_ms) / 1000);
    if (v->why[0])
        fprintf(stderr, "headpond: %s\n", v->why);
    return failed == 0 ? CTL_DONE : v->why[0] && failed == (json_int_t)v->items.count ?
        CTL_UNREACHABLE : CTL_PARTLY;
}

static int announce_via(struct via *v)
{
    char memory[KIB];
    struct text t;

    count_cold(v);
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s ", v->c->dry_run ? "would fetch" : "prewarm:");
    units_count(&t, v->items.count);
    text_addf(&t, " object%s, ", v->items.count == 1 ? "" : "s");
    units_bytes(&t, v->wanted_bytes);
    text_adds(&t, " through ");
    text_add_printable(&t, span_of(v->c->via), 200);
    if (!v->c->dry_run) {
        ctl_say(v->c, "%s\n", memory);
        return CTL_DONE;
    }
    if (v->c->json) {
        json_t *line = json_pack("{s:i,s:s,s:s,s:b,s:{s:I},s:{s:I}}", "v", 1, "kind", "prewarm",
                                 "via", v->c->via, "dry_run", 1, "objects", "wanted",
                                 (json_int_t)v->items.count, "bytes", "wanted",
                                 (json_int_t)v->wanted_bytes);
        ctl_print_json(line);
        json_decref(line);
    } else {
        puts(memory);
    }
    return CTL_DONE;
}

/* The keys are known. */
static int fetch_via(struct via *v)
{
    uint64_t began_ms = clock_ms();
    int code = CTL_DONE;
    bool unknown = false;

    v->object = mem_take(max_u64(v->items.count, 1) * sizeof *v->object);
    if (!v->object)
        return fail_via(CTL_FAILED, "there is no memory for that many objects");
    for (size_t i = 0; i < v->items.count; i++) {
        uint64_t size = v->items.item[i].size;
        v->object[i].size = size > 0 ? size : SIZE_UNKNOWN;
        v->object[i].cold = 1;
        unknown = unknown || v->object[i].size == SIZE_UNKNOWN;
    }
    if (unknown)
        code = run_pass(v, via_measure);
    if (code == CTL_DONE)
        code = announce_via(v);
    v->line_ms = clock_ms() + VIA_LINE_MS;
    if (code != CTL_DONE || v->c->dry_run)
        return code;
    code = run_rounds(v);
    return code == CTL_DONE ? end_via(v, began_ms) : code;
}

static int find_keys(struct via *v, const struct wanted *l, struct span prefix)
{
    char memory[16 * KIB], why[CTL_WHY_BYTES];
    const struct creds *creds = s3_find_creds(why);
    struct text filter;

    text_init(&filter, memory, sizeof memory);
    if (!make_filter(v->c, &filter))
        return fail_via(CTL_USAGE, "the globs are too long");
    int code = probe_via(v);
    if (code == CTL_DENIED && creds) {
        v->side.creds = creds;
        code = probe_via(v);
    }
    if (code == CTL_DONE && !l)
        code = list_via(v, prefix);
    if (code == CTL_DENIED)
        return fail_via(CTL_DENIED, why[0] ? why : "the servers behind it refuse to list the "
                        "bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key of their "
                        "auth.keys_file");
    if (code == CTL_DONE && l && !take_lines(v, l))
        code = fail_via(CTL_FAILED, "there is no memory for the list");
    if (code == CTL_DONE)
        pick_items(v, l ? span_make(l->prefix, l->prefix_len) : prefix, text_span(&filter));
    return code == CTL_DONE ? sort_items(v) : code;
}

static const char *contradiction(const struct ctl *c)
{
    return c->pin || c->until ? "--via cannot pin, as it does not know the servers: headpond "
                                "--server ... pin does, at each of them"
        : c->detach           ? "--via is done by this program and ends with it: leave --detach out"
        : c->verify           ? "--via cannot verify: headpond --server ... verify does, at each "
                                "server"
        : c->force            ? "--via cannot look how much room the servers have: leave --force "
                                "out"
                              : NULL;
}

int via_run(struct ctl *c, const struct wanted *l, struct span place)
{
    const struct s3_how how = {.path_style = CONF_PATH_STYLE_PATH, .region = "us-east-1",
        .timeout_ms = c->timeout_ms};
    static struct via v;
    char why[CTL_WHY_BYTES];
    const char *wrong = contradiction(c);
    struct span bucket = span_cut(&place, '/');

    v = (struct via){.c = c};
    if (l)
        bucket = span_make(l->bucket, l->bucket_len);
    if (wrong || bucket.len == 0 || bucket.len >= sizeof v.bucket)
        return fail_via(CTL_USAGE, wrong ? wrong : "the place names no bucket");
    memcpy(v.bucket, bucket.at, bucket.len);
    if (sign_setup() != OK)
        return fail_via(CTL_FAILED, "OpenSSL has no digests here");
    if (s3_side_make(c->via, &how, &v.side, why) != OK)
        return fail_via(CTL_USAGE, why);
    pthread_mutex_init(&v.lock, NULL);
    int code = find_keys(&v, l, place);
    if (code == CTL_DONE)
        code = fetch_via(&v);
    pthread_mutex_destroy(&v.lock);
    s3_side_free(&v.side);
    items_free(&v.items);
    mem_give(v.object);
    return code;
}
