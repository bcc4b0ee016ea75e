/* A write of a key through the server, as far as the cache knows of it: begun, doubted on the
 * disks, done to the store, ended; as a request's machine on the first core.
 *
 * Invariants:
 *  1. What is done to the store is done behind the doubt and before the end.
 *
 * Life: one of a few places, from life_write() until its machine is over. The server must not end
 * meanwhile.
 * Failure: a write that is not let go for long ends the run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/cache.h"
#include "tests/lib/bytes.h"
#include "tests/sim/sim.h"

enum { CHANGES_MAX = 8, LONGEST_S = 900, PIECE = 70001 };

struct scribe {
    struct machine m;
    struct message start, finish;
    struct cache_write write;
    struct okey key;
    bool used, whole_bucket, gone, may_act, acted, over;
    const struct life_body *body;    /* NULL: none is kept */
    struct upload *upload;
    struct upload_stream stream;
    uint64_t sent;
    char etag[BYTES_ETAG_MAX];
    uint8_t piece[PIECE];
};
#define SCRIBE_STEPS(S)                                                                            \
    S(scribe, BEGIN) S(scribe, DOUBT) S(scribe, BODY) S(scribe, KEPT) S(scribe, ACT)               \
    S(scribe, PUBLISH) S(scribe, DRAIN) S(scribe, END)
STEP_TABLE(scribe, SCRIBE_STEPS)

static struct scribe scribes[CHANGES_MAX];

static enum turn scribe_BEGIN(struct scribe *self) /* nothing has been touched */
{
    struct cache *c = self->m.core->server->cache;

    cache_key(c, &self->key);
    if (self->whole_bucket)
        cache_bucket_write_begin(c, &self->write, self->key.bucket, &self->m);
    else
        cache_write_begin(c, &self->write, &self->key, &self->m);
    return GO(scribe, self, DOUBT);
}

static struct cache *cache_of(const struct scribe *s)
{
    return s->m.core->server->cache;
}

static enum turn next_turn(struct scribe *s)
{
    machine_wake(&s->m);
    return WAIT;
}

static enum turn scribe_DOUBT(struct scribe *self) /* the disks are being told */
{
    const struct life_body *b = self->body;
    struct upload_place place;

    if (self->write.busy)
        return WAIT;
    if (b)
        self->upload = upload_make(cache_of(self), &self->key, b->size, &place);
    if (self->upload)
        upload_stream_begin(&self->stream, cache_of(self), &place, &self->m, b->size);
    return GO(scribe, self, BODY);
}

static enum turn scribe_BODY(struct scribe *self) /* a piece each turn, and perhaps not all */
{
    const struct life_body *b = self->body;

    if (!b || self->sent == b->sent)
        return GO(scribe, self, KEPT);
    size_t n = (size_t)min_u64(PIECE, b->sent - self->sent);
    bytes_make(bytes_seed(self->key.bucket, self->key.key, b->version), self->sent, self->piece, n);
    upload_stream_reap(&self->stream);
    upload_stream_add(&self->stream, self->piece, n);
    self->sent += n;
    return next_turn(self);
}

static enum turn scribe_KEPT(struct scribe *self) /* what is kept is on its way to the disk */
{
    if (!upload_stream_over(&self->stream))
        return WAIT;
    self->may_act = true;
    return GO(scribe, self, ACT);
}

static enum turn scribe_ACT(struct scribe *self) /* the store may change */
{
    return self->acted ? GO(scribe, self, PUBLISH) : WAIT;
}

static enum turn scribe_PUBLISH(struct scribe *self) /* upstream has answered */
{
    const struct life_body *b = self->body;
    bool whole = self->upload && self->sent == b->size;

    if (whole) {
        bytes_etag(bytes_seed(self->key.bucket, self->key.key, b->version), b->version, self->etag);
        if (!upload_publish(cache_of(self), self->upload, &self->write, &self->key,
                            span_of(self->etag), b->size))
            return next_turn(self);
    }
    cache_write_end(cache_of(self), &self->write, self->gone);
    upload_drop(cache_of(self), self->upload);
    return GO(scribe, self, DRAIN);
}

static enum turn scribe_DRAIN(struct scribe *self)
{
    return self->m.inflight > 0 ? WAIT : GO(scribe, self, END);
}

static enum turn scribe_END(struct scribe *self)
{
    (void)self;
    return OVER;
}

static void scribe_over(struct machine *m)
{
    ((struct scribe *)m)->over = true;
}

static void started(struct core *c, struct message *msg)
{
    struct scribe *s = container_of(msg, struct scribe, start);

    MACHINE_BEGIN(scribe, s, c, scribe_over);
}

static void finished(struct core *c, struct message *msg)
{
    struct scribe *s = container_of(msg, struct scribe, finish);

    (void)c;
    s->acted = true;
    machine_wake(&s->m);
}

static bool may_act(void *argument)
{
    return ((struct scribe *)argument)->may_act;
}

static bool is_over(void *argument)
{
    return ((struct scribe *)argument)->over;
}

static void await(bool (*ready)(void *), struct scribe *s)
{
    sim_block(ready, s, world.now_us + (uint64_t)LONGEST_S * 1000000);
    if (!ready(s))
        sim_fail("a write is not let go");
}

void life_write(const struct life_change *change, void (*act)(void *), void *argument)
{
    struct scribe *s = scribes;
    const char *key = change->key;

    while (s->used)
        s++;
    must(s < scribes + CHANGES_MAX);
    *s = (struct scribe){
        .used = true, .whole_bucket = !key, .gone = change->gone, .body = change->body,
        .start.deliver = started, .finish.deliver = finished,
        .key = {.bucket = span_of("b"), .key = span_of(key ? key : ""), .version = span_of("")}};
    core_send(life_core(), &s->start);
    await(may_act, s);
    if (!change->body || change->body->sent == change->body->size)
        act(argument);
    core_send(life_core(), &s->finish);
    await(is_over, s);
    s->used = false;
}
