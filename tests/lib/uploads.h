/* For tests of requests with a body: an upstream that reads, checks and interrupts bodies as its
 * script says, and a writer who streams one. Included once, behind the .c under test. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TEST_UPLOADS_H
#define HEADPOND_TEST_UPLOADS_H

#include <poll.h>

#include "tests/lib/certificate.h"
#include "tests/lib/scripted.h"

/* ---- the upstream's side ---- */

#define GO_ON "HTTP/1.1 100 Continue\r\n\r\n"
#define STORED "HTTP/1.1 200 OK\r\nETag: \"e9\"\r\nContent-Length: 0\r\n\r\n"
#define SLOW_DOWN "HTTP/1.1 503 Slow Down\r\nContent-Length: 4\r\n\r\nslow"
#define ALL UINT64_MAX

enum { ACTS_MAX = 8, LATER_MAX = 4, HOLD = STALL + 1 /* reads nothing until the client goes */ };
struct act {                         /* one request */
    const char *before, *late;       /* said before the body is read, and after rest_ms */
    uint64_t read;                   /* of the body; ALL: as announced; then */
    const char *answer;              /* is said, and then */
    const char *later[LATER_MAX];    /* these, each after pause_ms */
    unsigned pause_ms;
    unsigned rest_ms, each_ms;       /* pauses before the body and between two reads of it */
    int deed;                        /* enum deed, or HOLD */
};
struct seen {
    char head[4 * KIB];
    uint64_t announced, got;         /* bytes of the body */
    bool intact;                     /* they were those of the pattern */
    bool cut;                        /* the client went away before it was whole */
    uint64_t before_body_ms;         /* waited for its first byte */
    unsigned connection;
};
static struct {
    struct act act[ACTS_MAX];        /* copied: the thread may outlive the test's own */
    unsigned count, seen_count;
    struct seen seen[ACTS_MAX];
} play;

static char pattern(uint64_t at)
{
    return (char)(at * 7 + at / 251 + (at >> 16));
}

static void check_bytes(struct seen *s, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        s->intact = s->intact && bytes[i] == pattern(s->got + i);
    s->got += len;
}

/* The head, and what of the body came with it. */
static bool read_request_head(struct wire *w, struct seen *s)
{
    char memory[8 * KIB];
    size_t len = 0;
    char *end = NULL;

    while (!end) {
        ssize_t n = wire_read(w, memory + len, sizeof(memory) - 1 - len);
        if (n <= 0)
            return false;
        len += (size_t)n;
        memory[len] = '\0';
        end = strstr(memory, "\r\n\r\n");
    }
    *s = (struct seen){.intact = true, .connection = up.connections};
    size_t head = (size_t)(end + 4 - memory);
    must(head < sizeof(s->head));
    memcpy(s->head, memory, head);
    const char *length = strstr(s->head, "Content-Length: ");
    s->announced = length ? strtoull(length + 16, NULL, 10) : 0;
    check_bytes(s, memory + head, len - head);
    return true;
}

static void read_body(struct wire *w, const struct act *a, struct seen *s)
{
    static char memory[64 * KIB];
    uint64_t want = a->read == ALL ? s->announced : a->read, began_ms = clock_ms();
    bool first = s->got == 0;

    while (s->got < want) {
        size_t room = a->each_ms ? 16 * KIB : sizeof(memory);
        ssize_t n = wire_read(w, memory, (size_t)min_u64(room, want - s->got));
        if (n <= 0) {
            s->cut = true;
            return;
        }
        if (first)
            s->before_body_ms = clock_ms() - began_ms;
        first = false;
        check_bytes(s, memory, (size_t)n);
        if (a->each_ms)
            poll(NULL, 0, (int)a->each_ms); /* a slow disk */
    }
}

static void wire_hold(struct wire *w)
{
    struct pollfd p = {.fd = w->fd, .events = POLLRDHUP};
    poll(&p, 1, -1);
    wire_close(w, CUT);
}

static void act_out(struct wire *w, const struct act *a, struct seen *s)
{
    if (a->before)
        wire_write(w, a->before, strlen(a->before));
    if (a->rest_ms)
        poll(NULL, 0, (int)a->rest_ms);
    if (a->late)
        wire_write(w, a->late, strlen(a->late));
    read_body(w, a, s);
    if (s->cut)
        return;
    if (a->answer)
        wire_write(w, a->answer, strlen(a->answer));
    for (unsigned i = 0; i < LATER_MAX && a->later[i]; i++) {
        poll(NULL, 0, (int)a->pause_ms);
        wire_write(w, a->later[i], strlen(a->later[i]));
    }
}

static void *serve_uploads(void *arg)
{
    struct wire w = {.fd = -1};

    (void)arg;
    while (play.seen_count < play.count) {
        const struct act *a = &play.act[play.seen_count];
        struct seen *s = &play.seen[play.seen_count];
        if (w.fd < 0 && !wire_open(&up, &w))
            break;
        if (!read_request_head(&w, s)) {
            wire_close(&w, CLOSE);
            continue;
        }
        act_out(&w, a, s);
        pthread_mutex_lock(&lock);
        play.seen_count++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (a->deed == HOLD)
            wire_hold(&w);
        else if (a->deed != KEEP || s->cut)
            wire_close(&w, (enum deed)a->deed);
    }
    wire_close(&w, STALL);
    return NULL;
}

/* room: of the upstream's receive buffer, 0 = the system's */
unused_ok static void begin_uploads(const struct act *act, unsigned count, const char *extra,
                                    int room)
{
    char endpoint[64];

    must(count <= ACTS_MAX);
    memset(&play, 0, sizeof(play));
    memcpy(play.act, act, count * sizeof(*act));
    play.count = count;
    up.listener = listen_on("127.0.0.1", &up.port);
    if (room)
        setsockopt(up.listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    assert_int_equal(pthread_create(&up.thread, NULL, serve_uploads, NULL), 0);
    snprintf(endpoint, sizeof(endpoint), "%s://127.0.0.1:%d", up.tls ? "https" : "http", up.port);
    begin_at(endpoint, extra);
}
#define UPLOADS(acts, extra) begin_uploads(acts, ARRAY_COUNT(acts), extra, 0)

/* ---- our side: one who writes, then reads the answer ---- */

enum { WRITE_BYTES_MAX = 300 * KIB };
#define WRITER_STEPS(S) S(writer, START) S(writer, WRITE) S(writer, READ) S(writer, DRAIN) \
    S(writer, END)
struct writer {
    struct machine m;
    struct message msg;
    struct exchange x;
    struct ask ask;
    uint32_t piece;                  /* the longest write; they are of odd sizes */
    uint64_t stop_at;                /* ends when so many bytes were written; 0 = never */
    bool stop_inside;                /* ends while a write is under way */
    bool stop_early;                 /* ends when the body is wanted */
    bool stop_at_once;               /* right after the begin */
    bool stop_whole;                 /* ends when all is written */
    uint64_t stop_after_ms;          /* ends then, whatever it does; 0 = never */
    uint64_t write_after_ms;         /* lets upstream wait so long for the first bytes */
    struct timer timer;
    /* the result */
    uint64_t written;
    unsigned wanted, status;
    bool failed, refused, done;
    enum err why;
    uint64_t began_ms, head_ms, wanted_ms;
    size_t len;
    char etag[64], body[4 * KIB];
    char memory[WRITE_BYTES_MAX];
};
STEP_TABLE(writer, WRITER_STEPS)
static struct writer writer[2];
static uint64_t sent_before;

static enum turn writer_START(struct writer *w)
{
    w->began_ms = clock_ms();
    exchange_begin(&w->x, w->m.core, &w->ask, &w->m);
    if (w->stop_after_ms)
        timer_set(&w->timer, &w->m, w->stop_after_ms);
    return w->stop_at_once ? GO(writer, w, DRAIN) : GO(writer, w, WRITE);
}

static void write_next(struct writer *w)
{
    uint64_t left = w->ask.body_bytes - w->written;
    uint32_t len = (uint32_t)(w->written * 7919 % w->piece + 1);

    len = (uint32_t)min_u64(len, left);
    if (w->stop_at && !w->stop_inside)
        len = (uint32_t)min_u64(len, w->stop_at - w->written);
    for (uint32_t i = 0; i < len; i++)
        w->memory[i] = pattern(w->written + i);
    w->written += len;
    exchange_write(&w->x, w->memory, len);
}

static enum turn writer_WRITE(struct writer *w)
{
    struct exchange *x = &w->x;

    bool due = timer_take(&w->timer);
    if (due && w->stop_after_ms)
        return GO(writer, w, DRAIN);
    if (x->failed || x->head_known)
        return GO(writer, w, READ);
    if (!x->body_wanted)
        return WAIT;
    if (w->wanted++ == 0) {
        w->wanted_ms = clock_ms();
        if (w->write_after_ms)
            timer_set(&w->timer, &w->m, w->write_after_ms);
    }
    if (w->write_after_ms && w->written == 0 && !due)
        return WAIT;
    bool enough = (w->stop_at && w->written >= w->stop_at && (w->stop_inside || !x->writing)) ||
                  (w->stop_whole && w->written == w->ask.body_bytes && !x->writing);
    if (w->stop_early || enough)
        return GO(writer, w, DRAIN);
    if (!x->writing && w->written < w->ask.body_bytes)
        write_next(w);
    return w->stop_inside && w->written >= w->stop_at ? GO(writer, w, DRAIN) : WAIT;
}

static enum turn writer_READ(struct writer *w)
{
    struct exchange *x = &w->x;

    if (timer_take(&w->timer))
        return GO(writer, w, DRAIN);
    if (x->reading)
        return WAIT;
    if (x->failed) {
        w->len += x->read_got;
        return GO(writer, w, DRAIN);
    }
    must(!x->writing);               /* our memory is ours when the head is told */
    if (w->status)
        w->len += x->read_got;
    if (!w->status) {
        w->head_ms = clock_ms();
        w->status = x->head->status;
        w->refused = x->body_refused;
        snprintf(w->etag, sizeof(w->etag), "%.*s", (int)x->etag.len, x->etag.at);
    }
    if (x->at_end)
        return GO(writer, w, DRAIN);
    exchange_read(x, w->body + w->len, (uint32_t)(sizeof(w->body) - 1 - w->len));
    return WAIT;
}

static enum turn writer_DRAIN(struct writer *w)
{
    timer_stop(&w->timer);
    if (!w->x.ending) {
        w->failed = w->x.failed;
        w->why = w->x.m.why;
        exchange_end(&w->x);
    }
    return w->x.over ? GO(writer, w, END) : WAIT;
}

static enum turn writer_END(struct writer *w)
{
    must(w->m.inflight == 0 && !w->x.writing);
    return OVER;
}

static void writer_over(struct machine *m)
{
    struct writer *w = (struct writer *)(void *)m;
    pthread_mutex_lock(&lock);
    w->done = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void writer_deliver(struct core *c, struct message *msg)
{
    struct writer *w = container_of(msg, struct writer, msg);
    MACHINE_BEGIN(writer, w, c, writer_over);
}

/* A streamed PUT of that many bytes. */
unused_ok static struct writer *stream(unsigned i, uint64_t bytes, uint32_t piece)
{
    struct writer *w = &writer[i];
    must(piece <= WRITE_BYTES_MAX);
    memset(w, 0, sizeof(*w));
    w->ask = (struct ask){.method = HTTP_PUT, .op = OP_PUT, .bucket = span_of("bkt"),
        .key = span_of("k"), .has_body = true, .body_bytes = bytes,
        .payload_hash = span_of("UNSIGNED-PAYLOAD")};
    w->piece = piece;
    w->msg.deliver = writer_deliver;
    return w;
}

/* The same with a body that is ready. */
unused_ok static struct writer *ready(unsigned i, uint32_t bytes)
{
    struct writer *w = stream(i, bytes, 1);
    for (uint32_t at = 0; at < bytes; at++)
        w->memory[at] = pattern(at);
    w->ask.body = span_make(w->memory, bytes);
    return w;
}

unused_ok static void send_off(struct writer *w)
{
    sent_before = metric_read_sum(METRIC_UPSTREAM_SENT_BYTES_TOTAL);
    core_send(core, &w->msg);
}

unused_ok static struct writer *await(struct writer *w)
{
    pthread_mutex_lock(&lock);
    while (!w->done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    w->body[w->len] = '\0';
    return w;
}

unused_ok static struct writer *run(struct writer *w)
{
    send_off(w);
    return await(w);
}

unused_ok static uint64_t sent_bytes(void)
{
    return metric_read_sum(METRIC_UPSTREAM_SENT_BYTES_TOTAL) - sent_before;
}

/* What the upstream saw is whole once so many requests are over. */
unused_ok static const struct seen *seen(unsigned i)
{
    pthread_mutex_lock(&lock);
    while (play.seen_count <= i)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return &play.seen[i];
}

#endif
