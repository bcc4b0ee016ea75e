/* MACHINE dir: an exchange with a directory upstream: open the bucket, the file in it, stat, head,
 * reads, stat again.
 *
 * Invariants:
 *  1. Nothing outside the bucket is opened (openat2 RESOLVE_BENEATH of its descriptor; the bucket
 *     itself is below the root), only regular files are served, and a FIFO cannot hold us
 *     (O_NONBLOCK). So a link never leads from a bucket that a key may read into another one.
 *  2. Bytes are told only after a second look at the file: inode, size, mtime and ctime are still
 *     those of the head's ETag; else ERR_CHANGED, as a 412 of a remote store would be.
 *  3. A file has one version, "null", and one part, which is all of it.
 *  4. The answer looks like a remote one: a head is written as text and read by the parser that
 *     reads all heads.
 *
 * Life: taken from the core's stock by exchange_begin(), given back in over; the bucket's
 * descriptor is closed as soon as the file is open, or in DRAIN like the file's.
 * Failure: what a remote store would answer with an S3 error is such an answer; a directory that
 * cannot be read at all is ERR_UPSTREAM_CONNECT (before the head) or ERR_UPSTREAM_RESET (behind
 * it). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>

#include "server/origin/inside.h"

#define DIR_STEPS(S)                                                                               \
    S(dir, FIND) S(dir, BUCKET) S(dir, ROOT) S(dir, OPEN) S(dir, STAT) S(dir, LIST) S(dir, HEAD)   \
    S(dir, BODY) S(dir, CHECK) S(dir, DRAIN) S(dir, END)

enum { HEAD_TEXT_BYTES = 2 * KIB, AGAIN_MAX = 16, PARAMETER_BYTES = 16 };

struct dir {
    struct machine m;                /* first */
    struct exchange *x;
    struct op op;                    /* one at a time */
    struct op shut;                  /* closes the bucket beside it; nobody asks how that ended */
    struct open_how how;
    struct statx seen, again;        /* at the head; after a read */
    struct dir_job job;
    struct dir_answer answer;        /* status; body: made in memory, or NULL */
    struct http_head head;
    uint64_t at, left;               /* of the body: in the file, or in answer.body */
    uint64_t began_us;
    int bucket_fd, fd;               /* -1: none */
    uint8_t again_count;
    bool listing, rooted;            /* rooted: the root was looked at anew */
    char head_text[HEAD_TEXT_BYTES];
    char path[DIR_PATH_BYTES];
};

STEP_TABLE(dir, DIR_STEPS)

size_t dir_bytes(void)
{
    return sizeof(struct dir);
}

static void dir_over(struct machine *m)
{
    struct dir *d = (struct dir *)(void *)m;
    struct exchange *x = d->x;

    mem_give(d->answer.body);
    stock_give(&origin_part(m->core, x->origin->number)->dirs, d);
    x->head = NULL;
    x->private_ = NULL;
    x->runner = NULL;
    x->over = true;
    must(x->owner->inflight > 0);
    x->owner->inflight--;
    machine_wake(x->owner);
}

/* There was no memory to begin with: the exchange itself becomes a machine that has failed. */
static enum turn run_failed(struct machine *m)
{
    struct exchange *x = (struct exchange *)(void *)m;

    if (!x->failed) {
        x->failed = true;
        machine_wake(x->owner);
    }
    return x->ending ? OVER : WAIT;
}

static void failed_over(struct machine *m)
{
    struct exchange *x = (struct exchange *)(void *)m;

    x->over = true;
    x->owner->inflight--;
    machine_wake(x->owner);
}

static void begin_failed(struct exchange *x, struct core *c)
{
    static const char *const names[] = {"dir_REFUSED"};

    machine_begin(&x->m, c, run_failed, failed_over, names, 0);
    x->m.why = ERR_MEMORY;
    x->runner = &x->m;
}

void dir_begin(struct exchange *x, struct core *c)
{
    struct dir *d = stock_take(&origin_part(c, x->origin->number)->dirs);

    if (!d) {
        begin_failed(x, c);
        return;
    }
    MACHINE_BEGIN(dir, d, c, dir_over);
    d->x = x;
    d->bucket_fd = d->fd = -1;
    d->began_us = c->now_us;
    x->m.core = c;
    x->runner = &d->m;
    x->private_ = d;
    x->sent_wall_ms = clock_wall_ms();
}

/* ---- heads ---- */

static const char *type_of(struct span key)
{
    static const struct {
        const char *suffix, *type;
    } types[] = {
        {".json", "application/json"}, {".jsonl", "application/x-ndjson"}, {".txt", "text/plain"},
        {".csv", "text/csv"}, {".html", "text/html"}, {".htm", "text/html"},
        {".xml", "application/xml"}, {".yaml", "application/yaml"}, {".yml", "application/yaml"},
        {".md", "text/markdown"}, {".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"},
        {".png", "image/png"}, {".gif", "image/gif"}, {".webp", "image/webp"},
        {".svg", "image/svg+xml"}, {".mp4", "video/mp4"}, {".wav", "audio/wav"},
        {".flac", "audio/flac"}, {".mp3", "audio/mpeg"}, {".pdf", "application/pdf"},
        {".tar", "application/x-tar"}, {".gz", "application/gzip"}, {".zip", "application/zip"},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(types); i++) {
        if (span_ends(key, span_of(types[i].suffix)))
            return types[i].type;
    }
    return "binary/octet-stream";    /* S3's own default */
}

static void add_status(struct dir *d, struct text *t, unsigned status)
{
    text_addf(t, "HTTP/1.1 %u \r\nDate: %s\r\nServer: headpond\r\n", status, d->m.core->date);
    d->answer.status = (uint16_t)status;
}

static enum label_code code_of(unsigned status)
{
    return status == 304 ? CODE_304 : status < 300 ? CODE_2XX : status < 500 ? CODE_4XX : CODE_5XX;
}

/* The head is written: the owner may look. */
static enum turn report(struct dir *d, struct text *t)
{
    struct exchange *x = d->x;
    const struct origin *o = x->origin;
    struct core *c = d->m.core;
    size_t used;

    text_adds(t, "\r\n");
    must(!t->over);
    bool head = x->ask->method == HTTP_HEAD;
    must(http_parse_response(t->at, t->len, head, &d->head, &used) == HTTP_OK);
    if (head)
        d->left = 0;
    x->head = &d->head;
    exchange_note(x);
    x->head_known = true;
    x->body_refused = x->ask->has_body && x->ask->body_bytes > 0;
    x->at_end = d->left == 0;
    metric_add3(c->metrics, METRIC_UPSTREAM_REQUESTS_TOTAL, o->label, x->ask->op,
                code_of(d->answer.status), 1);
    metric_observe(c->metrics, METRIC_UPSTREAM_SECONDS, o->label, x->ask->op,
                   c->now_us - min_u64(d->began_us, c->now_us));
    machine_wake(x->owner);
    return GO(dir, d, BODY);
}

/* An answer that was made in memory: a listing or an error. */
static enum turn report_made(struct dir *d, struct span extra)
{
    struct text t;

    text_init(&t, d->head_text, sizeof(d->head_text));
    add_status(d, &t, d->answer.status);
    text_add(&t, extra);
    if (d->answer.body)
        text_addf(&t, "Content-Type: application/xml\r\nContent-Length: %zu\r\n", d->answer.len);
    else
        text_adds(&t, "Content-Length: 0\r\n");
    d->at = 0;
    d->left = d->answer.len;
    return report(d, &t);
}

static enum turn report_error(struct dir *d, unsigned status, const char *code, const char *message)
{
    enum err e = dir_error((uint16_t)status, code, message, d->x->ask->key, &d->answer);
    return e == OK ? report_made(d, span_make("", 0)) : FAIL(d, e);
}

/* A failed open or stat as a remote store would tell it. */
static enum turn report_errno(struct dir *d, int number)
{
    switch (number) {
    case EACCES:
    case EPERM: return report_error(d, 403, "AccessDenied", "Access Denied");
    case EMFILE:
    case ENFILE:
    case ENOMEM: return FAIL(d, ERR_BUSY);
    default: return FAIL(d, ERR_UPSTREAM_CONNECT);
    }
}

static bool is_absent(int number)
{
    return number == ENOENT || number == ENOTDIR || number == ELOOP || number == EXDEV ||
        number == ENAMETOOLONG ||
           number == ENXIO || number == ENODEV;
}

/* ---- steps ---- */

/* path below the root, and as soon as the bucket is open below that */
static void open_at(struct dir *d, uint64_t flags)
{
    int below_fd = d->bucket_fd >= 0 ? d->bucket_fd : d->x->origin->root_fd;
    d->how = (struct open_how){.flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    op_openat2(&d->m, &d->op, below_fd, d->path, &d->how, sizeof(d->how));
}

/* Takes a finished open: the descriptor or -errno in *out. False: not finished, or it must be done
 * again. */
static bool take_open(struct dir *d, uint64_t flags, int *out)
{
    if (!op_take(&d->op))
        return false;
    if (d->op.res == -EAGAIN && d->again_count++ < AGAIN_MAX) { /* a rename came between */
        open_at(d, flags);
        return false;
    }
    *out = d->op.res;
    return true;
}

static void set_path(struct dir *d, struct span path)
{
    struct text t;

    text_init(&t, d->path, sizeof(d->path));
    text_add(&t, path);
    must(!t.over);
}

/* A parameter, decoded into memory; empty: none. What does not fit is nothing that we know: '?'. */
static struct span parameter(const struct ask *a, const char *wanted, char memory[PARAMETER_BYTES])
{
    struct span query = a->query;
    struct uri_pair pair;
    char name[URI_NAME_BYTES_MAX];
    size_t len = PARAMETER_BYTES;

    while (uri_next_pair(&query, &pair)) {
        if (!span_is(uri_name(&pair, name), wanted))
            continue;
        if (uri_decode(pair.value, true, memory, PARAMETER_BYTES, &len) != OK)
            memset(memory, '?', PARAMETER_BYTES);
        return span_make(memory, len);
    }
    return span_make("", 0);
}

/* Nothing else may be kept under the name of a version: that would never be asked about again. */
static bool is_other_version(const struct ask *a)
{
    char memory[PARAMETER_BYTES];
    struct span version = parameter(a, "versionId", memory);
    return version.len > 0 && !span_is(version, "null");
}

/* What is asked: a file, or something that the lister's thread answers. */
static enum turn dir_FIND(struct dir *d)
{
    const struct ask *a = d->x->ask;

    if (d->x->ending)
        return GO(dir, d, DRAIN);
    if (a->key.len == 0) {
        d->job.ask = a;
        d->listing = true;
        lister_ask(d->x->origin->lister, &d->job, &d->m);
        return GO(dir, d, LIST);
    }
    if (a->method != HTTP_GET && a->method != HTTP_HEAD)
        return report_error(d, 501, "NotImplemented",
                            "This directory is read-only through headpond");
    if (dir_subresource(a->query).len)
        return report_error(d, 501, "NotImplemented",
                            "A directory as upstream has no sub-resources");
    if (!dir_bucket_name(a->bucket))
        return report_error(d, 404, "NoSuchBucket", "The specified bucket does not exist");
    set_path(d, a->bucket);
    open_at(d, O_PATH | O_DIRECTORY);
    return GO(dir, d, BUCKET);
}

/* The bucket is being opened: whatever its name leads to, it is this directory for this request. */
static enum turn dir_BUCKET(struct dir *d)
{
    int fd;

    if (!take_open(d, O_PATH | O_DIRECTORY, &fd))
        return WAIT;
    if (fd >= 0)
        d->bucket_fd = fd;
    if (d->x->ending)
        return GO(dir, d, DRAIN);
    if (fd < 0 && (is_absent(-fd) || fd == -ESTALE) && !d->rooted) {
        d->rooted = d->job.root_only = true;
        lister_ask(d->x->origin->lister, &d->job, &d->m);
        return GO(dir, d, ROOT);
    }
    if (fd < 0 && is_absent(-fd))
        return report_error(d, 404, "NoSuchBucket", "The specified bucket does not exist");
    if (fd < 0)
        return report_errno(d, -fd);
    if (is_other_version(d->x->ask))
        return report_error(d, 404, "NoSuchVersion", "The specified version does not exist.");
    if (!dir_key_name(d->x->ask->key))
        return report_error(d, 404, "NoSuchKey", "The specified key does not exist.");
    set_path(d, d->x->ask->key);
    open_at(d, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    return GO(dir, d, OPEN);
}

/* Before a bucket is said to be absent: is its file system mounted by now, or another one? */
static enum turn dir_ROOT(struct dir *d)
{
    if (!d->job.done)
        return WAIT;
    if (d->x->ending)
        return GO(dir, d, DRAIN);
    set_path(d, d->x->ask->bucket);
    open_at(d, O_PATH | O_DIRECTORY);
    return GO(dir, d, BUCKET);
}

static enum turn dir_OPEN(struct dir *d)
{
    int fd;

    if (!take_open(d, O_RDONLY | O_NONBLOCK | O_NOCTTY, &fd))
        return WAIT;
    if (fd >= 0)
        d->fd = fd;
    op_close(&d->m, &d->shut, d->bucket_fd);
    d->bucket_fd = -1;
    if (d->x->ending)
        return GO(dir, d, DRAIN);
    if (fd < 0 && is_absent(-fd))
        return report_error(d, 404, "NoSuchKey", "The specified key does not exist.");
    if (fd < 0)
        return report_errno(d, -fd);
    op_statx(&d->m, &d->op, d->fd, &d->seen);
    return GO(dir, d, STAT);
}

static enum turn dir_STAT(struct dir *d)
{
    if (!op_take(&d->op))
        return WAIT;
    if (d->x->ending)
        return GO(dir, d, DRAIN);
    if (d->op.res < 0)
        return report_errno(d, -d->op.res);
    if (!S_ISREG(d->seen.stx_mode))
        return report_error(d, 404, "NoSuchKey", "The specified key does not exist.");
    return GO(dir, d, HEAD);
}

static enum turn dir_LIST(struct dir *d)
{
    if (!d->job.done) {
        if (d->x->ending)            /* a list of millions takes minutes, and others wait for it */
            atomic_store(&d->job.unwanted, true);
        return WAIT;
    }
    d->answer = d->job.answer;
    d->job.answer.body = NULL;
    if (d->x->ending)
        return GO(dir, d, DRAIN);
    if (d->job.why != OK)
        return FAIL(d, d->job.why);
    bool good = d->answer.status == 200;
    return report_made(d, span_of(good ? "x-amz-bucket-region: us-east-1\r\n" : ""));
}

/* A field of the ask's, as relays bring them; empty: none. */
static struct span field_of(const struct ask *a, const char *name)
{
    for (unsigned i = 0; i < a->field_count; i++) {
        if (span_is_nocase(a->field[i].name, name))
            return a->field[i].value;
    }
    return span_make("", 0);
}

/* The range to serve, inclusive; the ask's own replaces a relayed one. */
static enum http_range range_of(const struct ask *a, uint64_t size, uint64_t *from, uint64_t *to)
{
    *from = a->from;
    *to = min_u64(a->to, size ? size - 1 : 0);
    if (!a->has_range)
        return http_range_apply(field_of(a, "range"), size, from, to);
    return a->from > a->to || a->from >= size ? HTTP_RANGE_UNSATISFIABLE : HTTP_RANGE_OK;
}

/* Relays bring the client's own conditions; an If-Match of the ask's replaces his. */
static uint16_t judge(const struct dir *d, const char *etag)
{
    const struct ask *a = d->x->ask;
    const char *failed;
    const struct http_conditions c = {
        .if_match = a->if_match.len ? a->if_match : field_of(a, "if-match"),
        .if_none_match = field_of(a, "if-none-match"),
        .if_modified_since = field_of(a, "if-modified-since"),
        .if_unmodified_since = field_of(a, "if-unmodified-since")};
    int64_t modified_s = d->seen.stx_mtime.tv_sec;
    return http_judge(&c, span_of(etag), modified_s > 0 ? (uint64_t)modified_s : 0,
                      d->m.core->wall_s, &failed);
}

static enum turn report_beyond(struct dir *d, uint64_t size)
{
    char memory[64];
    struct text range;

    text_init(&range, memory, sizeof(memory));
    text_addf(&range, "Content-Range: bytes */%llu\r\n", (unsigned long long)size);
    enum err e = dir_error(416, "InvalidRange", "The requested range is not satisfiable",
                           d->x->ask->key, &d->answer);
    return e == OK ? report_made(d, text_span(&range)) : FAIL(d, e);
}

static void add_identity(const struct dir *d, struct text *t, const char *etag)
{
    char date[HTTP_DATE_BYTES + 1];

    http_date_write((uint64_t)d->seen.stx_mtime.tv_sec, date);
    text_addf(t, "ETag: %s\r\nLast-Modified: %s\r\n", etag, date);
}

static enum turn report_unmodified(struct dir *d, const char *etag)
{
    struct text t;

    text_init(&t, d->head_text, sizeof(d->head_text));
    add_status(d, &t, 304);
    add_identity(d, &t, etag);
    d->at = d->left = 0;
    return report(d, &t);
}

/* 0: no part is asked for. */
static uint64_t part_of(const struct ask *a)
{
    char memory[PARAMETER_BYTES];
    uint64_t number = 0;
    return span_u64(parameter(a, "partNumber", memory), &number) == OK ? number : 0;
}

/* The file is open: conditions, range, head. */
static enum turn dir_HEAD(struct dir *d)
{
    const struct ask *a = d->x->ask;
    uint64_t size = d->seen.stx_size, from, to;
    char etag[DIR_ETAG_BYTES + 1];
    struct text t;

    dir_etag(&d->seen, etag);
    uint16_t verdict = judge(d, etag);
    if (verdict == 412)
        return report_error(d, 412, "PreconditionFailed",
                            "At least one of the pre-conditions you specified did not hold");
    if (verdict == 304)
        return report_unmodified(d, etag);
    uint64_t number = part_of(a);
    if (number > 1)
        return report_error(d, 416, "InvalidPartNumber",
                            "The requested partnumber is not satisfiable");
    enum http_range range = range_of(a, size, &from, &to);
    if (range == HTTP_RANGE_UNSATISFIABLE)
        return report_beyond(d, size);
    if (number == 1 && size > 0) {   /* all of it, as a range */
        range = HTTP_RANGE_OK;
        from = 0;
        to = size - 1;
    }
    bool part = range == HTTP_RANGE_OK;
    d->at = part ? from : 0;
    d->left = part ? to - from + 1 : size;
    text_init(&t, d->head_text, sizeof(d->head_text));
    add_status(d, &t, part ? 206 : 200);
    if (part)
        text_addf(&t, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)from,
                  (unsigned long long)to, (unsigned long long)size);
    text_addf(&t, "Content-Length: %llu\r\nContent-Type: %s\r\nAccept-Ranges: bytes\r\n",
              (unsigned long long)d->left, type_of(a->key));
    add_identity(d, &t, etag);
    text_adds(&t, number == 1 ? "x-amz-mp-parts-count: 1\r\n" : "");
    return report(d, &t);
}

static void end_read(struct dir *d)
{
    struct exchange *x = d->x;

    d->at += x->read_got;
    d->left -= x->read_got;
    x->at_end = d->left == 0;
    x->reading = false;
    metric_add3(d->m.core->metrics, METRIC_UPSTREAM_RECEIVED_BYTES_TOTAL, x->origin->label,
                x->ask->purpose, 0, x->read_got);
    machine_wake(x->owner);
}

/* Serves reads, one at a time. */
static enum turn dir_BODY(struct dir *d)
{
    struct exchange *x = d->x;

    if (d->op.busy)
        return WAIT;
    if (op_take(&d->op)) {
        if (d->op.res < 0)
            return FAIL(d, ERR_UPSTREAM_RESET);
        if (d->op.res == 0)
            return FAIL(d, ERR_CHANGED); /* shorter than it was */
        x->read_got += (uint32_t)d->op.res;
    }
    if (x->ending)
        return GO(dir, d, DRAIN);
    if (!x->reading)
        return WAIT;
    uint32_t want = (uint32_t)min_u64(x->len, d->left);
    if (d->answer.body) {
        memcpy(x->mem, d->answer.body + d->at, want);
        x->read_got = want;
    } else if (x->read_got < want) {
        op_read(&d->m, &d->op, d->fd, (char *)x->mem + x->read_got, want - x->read_got,
                d->at + x->read_got);
        return WAIT;
    } else if (want) {
        op_statx(&d->m, &d->op, d->fd, &d->again);
        return GO(dir, d, CHECK);
    }
    end_read(d);
    return WAIT;
}

/* Everything of this read is there: is it still the file of the head? */
static enum turn dir_CHECK(struct dir *d)
{
    char before[DIR_ETAG_BYTES + 1], after[DIR_ETAG_BYTES + 1];

    if (!op_take(&d->op))
        return WAIT;
    if (d->op.res < 0)
        return FAIL(d, ERR_UPSTREAM_RESET);
    dir_etag(&d->seen, before);
    dir_etag(&d->again, after);
    if (strcmp(before, after) != 0)
        return FAIL(d, ERR_CHANGED);
    end_read(d);
    return GO(dir, d, BODY);
}

static enum turn dir_DRAIN(struct dir *d)
{
    struct exchange *x = d->x;

    if (d->m.inflight > 0)
        return WAIT;
    if (d->listing && d->job.done && d->job.answer.body) { /* ended while it was made */
        mem_give(d->job.answer.body);
        d->job.answer.body = NULL;
    }
    if (d->op.ended && d->op.kind == OPK_OPENAT2 && d->op.res >= 0)
        d->fd = d->op.res;           /* the bucket's or the file's: nothing else is open yet */
    d->op.ended = d->shut.ended = false;
    int *held = d->fd >= 0 ? &d->fd : &d->bucket_fd;
    if (*held >= 0) {
        op_close(&d->m, &d->op, *held);
        *held = -1;
        return WAIT;
    }
    if (d->m.why != OK && !x->failed) {
        x->m.why = d->m.why;
        x->failed = true;
        x->read_got = 0;             /* nothing of an unchecked read is good */
        x->reading = false;
        machine_wake(x->owner);
    }
    if (x->reading) {
        x->reading = false;
        machine_wake(x->owner);
    }
    return x->ending ? GO(dir, d, END) : WAIT;
}

static enum turn dir_END(struct dir *d)
{
    must(d->m.inflight == 0);
    return OVER;
}
