/* MACHINE that brings one chunk (or as much of it as is wanted) from upstream: into buffers, to
 * waiting readers, to disk.
 *
 * Invariants:
 *  1. Asked blocks come first, then the *rest* of an admitted chunk: in the same answer where few
 *     others wait for upstream, else behind them, or not at all; asked blocks far from the run come
 *     beside it (branch.c). Of a bypassed one comes only what was asked for, at most PACE blocks
 *     ahead of what is waited for.
 *  2. A block is named and written only as a whole, from an answer that matched generation, range
 *     and length; of a bypassed chunk, what was asked of it. Who waits for its first bytes has them
 *     before; but an object of one block always comes whole.
 *  3. The chunk's bytes are on disk before its record is queued; a block becomes readable from disk
 *     when its write has ended.
 *  4. Unlisted means: nobody waits and nothing is wanted; both are checked under one lock.
 *  5. An object of one block is compared with the checksum that upstream names before a byte of it
 *     is delivered or named; one of a chunk that is admitted, and comes in order, before its last
 *     block is delivered and any is named or written; one of several chunks before all of the
 *     block that comes last is (whole.c). Who has some of its bytes gets no more if they differ.
 *  6. A block that comes after a write of its key began goes to who waits for it, and nowhere else.
 *
 * Life: inflight.c makes it on the core of the first reader; it ends by itself.
 * Failure: a broken body is asked again from where it broke (Range + If-Match), so many times in a
 * row as upstream.retries says, and anew behind each answer that brought something; a changed
 * object ends the fetch, its generation and its waiters' reads; bytes that do not match their
 * checksum are asked for once more; a failed disk write makes a bypass of that block. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/fill/fill.h"

#define FETCH_STEPS(S)                                                                             \
    S(fetch, START) S(fetch, ASK) S(fetch, HEAD) S(fetch, REFUSED) S(fetch, PUMP) S(fetch, CLOSE)  \
    S(fetch, PAUSE) S(fetch, FINISH) S(fetch, DRAIN) S(fetch, END)

STEP_TABLE(fetch, FETCH_STEPS)

enum {
    PACE_WAIT_MS = 2000,             /* it holds a connection that others may wait for */
    ROOM_WAIT_MS = 2000,
    BACKOFF_FIRST_MS = 50,
    BACKOFF_MOST_MS = 5000,
    /* An answer of fewer bytes was a try in vain: else one byte at a time would be asked for. */
    BROUGHT_BYTES_LEAST = 16 * KIB,
};

static struct cache *cache_of(const struct fetch *f)
{
    return f->m.core->server->cache;
}

static void begin_exchange(struct fetch *f)
{
    f->exchanging = true;
    f->ending = false;
    f->fresh = true;
    f->brought = 0;
    f->began_us = f->m.core->now_us;
    exchange_begin(&f->x, f->m.core, &f->ask, &f->m);
}

/* Ends what runs with upstream; true when it is over. */
static bool close_exchanges(struct fetch *f)
{
    struct contact *t = f->contact;
    if (f->exchanging && !f->ending) {
        f->ending = true;
        exchange_end(&f->x);
    }
    if (f->exchanging && f->x.over)
        f->exchanging = false;
    if (t && t->beside && !t->head_over_asked) {
        t->head_over_asked = true;
        exchange_end(&t->head);
    }
    if (t && t->beside && t->head.over)
        t->beside = false;
    return !f->exchanging && !(t && t->beside);
}

/* ---- blocks ---- */

static unsigned writes_under_way(const struct fetch *f)
{
    unsigned n = 0;
    for (unsigned i = 0; i < FETCH_WRITES; i++)
        n += f->write[i].transfer != NULL;
    return n;
}

static struct fetch_write *free_write(struct fetch *f)
{
    for (unsigned i = 0; i < FETCH_WRITES; i++)
        if (!f->write[i].transfer)
            return &f->write[i];
    return NULL;
}

/* Nothing of it is under way to the disk any more. */
static void block_written(struct fetch *f, unsigned block, bool present)
{
    struct fill_shard *s = fetch_lock(f);
    struct buffer *b = f->here[block];
    f->here[block] = NULL;
    f->state[block] = present ? BLOCK_DISK : BLOCK_POOL;
    shard_unlock(s);
    pool_share_end(cache_of(f), b);
    pool_give(cache_of(f), b);
}

/* Where the disk takes nothing, the rest is only passed through. */
static void start_write(struct fetch *f, unsigned block, struct buffer *b)
{
    struct fill_core *fc = f->m.core->fill;
    struct fetch_write *w = free_write(f);
    must(w != NULL);
    w->block = block;
    chunk_crc(f->data_id, f->number, block, b->mem, b->len, &w->sums);
    w->transfer = chunk_write(&f->m, f->chunk, block, b, fetch_may_write_later(f, b));
    if (w->transfer) {
        fc->writing += writes_under_way(f) == 1;
        return;
    }
    f->keeps = false;
    block_written(f, block, false);
}

/* A write of the key came between: of the rest only what is waited for is worth it. Lock held. */
static void detach(struct fetch *f, unsigned given)
{
    uint8_t awaited = 0;
    unsigned last = f->at;
    f->keeps = false;
    f->sure = 0;
    LIST_EACH(&f->waiters, struct wait, node, w)
        if (w->block != given && f->state[w->block] == BLOCK_NEED) {
            awaited |= (uint8_t)(1u << w->block);
            if (w->block > last && w->block <= f->last)
                last = w->block;
        }
    atomic_store_explicit(&f->wanted, awaited, memory_order_relaxed);
    f->last = last;
}

/* A job brings it, so its reader may come in hours, and will have it from disk: nothing that is
 * read now leaves memory for it. Written, its frame is free for the next one. */
static bool is_for_later(struct fetch *f)
{
    bool later = (f->prewarm && !f->plan) || f->hint & HINT_PREFETCH;
    struct fill_shard *s = fetch_lock(f);
    later = later && list_empty(&f->waiters);
    LIST_EACH(&f->watchers, struct fetch_watch, node, w)
        later = later && !w->plan;
    shard_unlock(s);
    return later;
}

/* Named, if it is not overtaken, so that others find it once the fetch is over. What is written is
 * what was compared, not what others have by its name. */
static struct buffer *name_block(struct fetch *f, unsigned block, struct buffer *b, bool holds)
{
    struct buffer_key key;
    if (!holds || !run_name(f, block, &key))
        return b;
    if (!f->keeps)
        return pool_publish(cache_of(f), b, &key, true);
    if (is_for_later(f))
        pool_disown_block(cache_of(f), &key, b->len);
    else
        pool_replace(cache_of(f), b, &key);
    return b;
}

static struct buffer *take_filled(struct fetch *f)
{
    struct buffer *b = f->filling;
    f->filling = NULL;
    b->len = f->got;
    f->got = f->given = 0;
    buffer_set_unread(b);
    return b;
}

/* Name it, hand it out, write it. */
static void give_block(struct fetch *f, unsigned block, struct buffer *b)
{
    struct core *c = f->m.core;
    bool holds = cache_epoch_holds(cache_of(f), f->epoch);
    b = name_block(f, block, b, holds);
    struct fill_shard *s = fetch_lock(f);
    if (!holds)
        detach(f, block);
    f->state[block] = f->keeps ? BLOCK_HERE : BLOCK_POOL;
    f->here[block] = f->keeps ? b : NULL;
    inflight_deliver(c, f, block, b);
    if (f->passes && run_awaits_locked(f, block)) /* other bytes of it */
        f->state[block] = BLOCK_NEED;
    shard_unlock(s);
    if (f->keeps) {
        start_write(f, block, b);
    } else {
        metric_add(c->metrics, METRIC_CACHE_REFUSED_BYTES_TOTAL,
                   holds ? f->refuse : REFUSE_WRITTEN, b->len);
        pool_share_end(cache_of(f), b);
        pool_give(cache_of(f), b);
    }
}

/* ---- blocks that are held until all of the object match ---- */

/* The object begins to come as a whole, and will be kept: is there something to compare with? */
static bool may_hold(struct fetch *f)
{
    if (f->at > 0 || f->blocks < 2 || f->object->size != f->bytes || !f->keeps)
        return false;
    f->verify.next = 0;
    for (unsigned b = 0; b < f->blocks; b++)
        if (f->state[b] != BLOCK_NEED)
            return false;
    return cache_epoch_holds(cache_of(f), f->epoch) && verify_begin(f);
}

/* Named and written after all: they match, or nobody can tell any more. Who looks meanwhile finds
 * them in here[] still. */
static void release_held(struct fetch *f)
{
    if (!f->verify.holds)
        return;
    f->verify.holds = false;
    for (unsigned b = 0; b < f->verify.next; b++) {
        struct buffer *held = f->here[b];
        pool_hold(held);
        give_block(f, b, held);
        pool_give(cache_of(f), held);
    }
}

/* They are worth nothing. */
static void drop_held(struct fetch *f)
{
    struct fill_shard *s;

    if (!f->verify.holds)
        return;
    f->verify.holds = false;
    for (unsigned b = 0; b < f->verify.next; b++) {
        struct buffer *held = f->here[b];
        s = fetch_lock(f);
        f->here[b] = NULL;
        f->state[b] = BLOCK_NEED;
        shard_unlock(s);
        pool_share_end(cache_of(f), held);
        pool_give(cache_of(f), held);
    }
}

/* Delivered, and no more than that. */
static void hold_block(struct fetch *f, unsigned block, struct buffer *b)
{
    struct fill_shard *s = fetch_lock(f);
    f->state[block] = BLOCK_HERE;
    f->here[block] = b;
    inflight_deliver(f->m.core, f, block, b);
    shard_unlock(s);
    f->verify.next = block + 1;
}

/* A block is whole. */
static void finish_block(struct fetch *f)
{
    unsigned block = f->at;
    struct buffer *b = take_filled(f);
    f->tries = 0;                    /* they are for what does not come, not for a long way */
    f->breaks = 0;
    if (f->verify.holds && block + 1 < f->blocks) {
        hold_block(f, block, b);
    } else {
        release_held(f);
        give_block(f, block, b);
    }
    f->at++;
}

static void reap_writes(struct fetch *f)
{
    struct fill_core *fc = f->m.core->fill;
    for (unsigned i = 0; i < FETCH_WRITES; i++) {
        struct fetch_write *w = &f->write[i];
        if (!w->transfer || !transfer_ended(w->transfer))
            continue;
        enum err e = chunk_write_done(w->transfer);
        w->transfer = NULL;
        if (e == OK)
            chunk_wrote(cache_of(f), f->chunk, w->block, &w->sums);
        block_written(f, w->block, e == OK);
        fc->writing -= writes_under_way(f) == 0;
    }
}

/* ---- receiving ---- */

/* Bypassed bytes far ahead of those who read them would only push others out of the pool. */
static bool paced(struct fetch *f)
{
    return !f->keeps && f->at > atomic_load_explicit(&f->pace, memory_order_relaxed);
}

/* Does a reader wait for a block that the run will not bring? It left the pool again. */
static bool waited_behind(struct fetch *f)
{
    bool found = false;
    struct fill_shard *s = fetch_lock(f);
    LIST_EACH(&f->waiters, struct wait, node, w)
        found = found || (w->block < f->at && f->state[w->block] == BLOCK_NEED &&
                          !(f->branched >> w->block & 1));
    shard_unlock(s);
    return found;
}

static enum turn wait_for_readers(struct fetch *f)
{
    if (waited_behind(f))
        return GO(fetch, f, CLOSE);
    const struct fill_core *fc = f->m.core->fill;
    if (timer_take(&f->timer) || fc->draining)
        return GO(fetch, f, FINISH); /* they are gone or far behind: they will ask again */
    if (f->timer.at_ms == 0)
        timer_set(&f->timer, &f->m, PACE_WAIT_MS);
    return WAIT;
}

/* A fetch that was broken keeps its half block while it waits for a connection. If this one kept
 * its connection while it waits for a buffer, both could wait for ever. */
static enum turn wait_for_room(struct fetch *f)
{
    release_held(f);                 /* others may wait for what it holds, as it does for theirs */
    if (!f->room.busy)
        pool_wait(cache_of(f), &f->room, &f->m);
    if (timer_take(&f->timer))
        return GO(fetch, f, CLOSE);
    if (f->timer.at_ms == 0)
        timer_set(&f->timer, &f->m, ROOM_WAIT_MS);
    return WAIT;
}

/* Bytes that come of the current block. */
static uint32_t block_bytes(const struct fetch *f)
{
    struct part part = inflight_part(f, f->at);
    return part.to - part.from;
}

/* May who waits for the first bytes of the block have them before all of it is here? What has come
 * stays as it is then. Not of what is to be compared before anybody gets it; and where upstream
 * breaks off, no answer begins that is not sure of its block: an error is better than a cut. */
static bool gives_parts(const struct fetch *f)
{
    uint64_t size = f->object->size;
    bool last = f->number * CHUNK_BYTES + (f->at + 1ull) * BLOCK_BYTES >= size;
    return f->skip == 0 && f->breaks == 0 && size > BLOCK_BYTES &&
           !(size <= CHUNK_BYTES ? last : whole_judges_next(f));
}

/* As much as makes the block whole, or the next part of it that somebody waits for. Those who asked
 * what the key is hear of its answer when the first bytes are on their way, and come then. */
static void read_on(struct fetch *f)
{
    uint32_t rest = block_bytes(f) - f->got;
    bool learnt = f->fresh && f->contact;
    uint32_t next = learnt ? FIRST_BYTES : inflight_next_part(f->m.core, f);
    f->fresh = false;
    if (next > f->got && next - f->got < rest && gives_parts(f))
        rest = next - f->got;
    uint32_t room = fetch_may_take(f, rest);
    /* what is skipped is overwritten later */
    exchange_read(&f->x, f->filling->mem + f->got,
                  f->skip > 0 ? (uint32_t)min_u64(f->skip, room) : room);
}

/* The block is whole. Nobody has seen a byte of it yet. */
static enum err check_block(struct fetch *f)
{
    bool whole = f->object->size <= BLOCK_BYTES;
    if (f->verify.holds && (f->at != f->verify.next || !cache_epoch_holds(cache_of(f), f->epoch)))
        release_held(f);
    if (f->at == 0 && !whole)
        f->verify.holds = may_hold(f);
    if (f->object->size > CHUNK_BYTES)
        return whole_check(f);
    if (whole ? !verify_begin(f) : !f->verify.holds)
        return OK;
    verify_add(f, f->filling->mem, f->got);
    if (f->at + 1 < f->blocks)
        return OK;
    enum err e = verify_end(f);
    if (e != OK)
        f->got = 0;
    return e;
}

enum err fetch_take_block(struct fetch *f, unsigned block, struct buffer *b)
{
    struct buffer *filling = f->filling;
    uint32_t got = f->got, given = f->given;
    unsigned at = f->at, last = f->last;
    f->filling = b;
    f->at = block;
    f->got = block_bytes(f);
    enum err e = check_block(f);
    if (e == OK) {
        finish_block(f);
        e = whole_note(f, block);
    } else {
        pool_give(cache_of(f), b);
    }
    f->filling = filling;
    f->at = at;
    f->last = last;
    f->got = got;
    f->given = given;
    return e;
}

/* What the last read brought. OK, or why the run broke. */
static enum err take_read(struct fetch *f)
{
    struct exchange *x = &f->x;
    uint32_t n = x->read_got;
    x->read_got = 0;
    fetch_took(f, n);
    uint32_t useful = f->skip > 0 ? 0 : n;
    f->skip -= min_u64(n, f->skip);
    f->got += useful;
    f->brought += useful;
    if (f->got > 0 && f->got == block_bytes(f)) {
        TRY(check_block(f));
        finish_block(f);
        TRY(whole_note(f, f->at - 1));
    } else if (f->got > 0 && gives_parts(f)) {
        inflight_deliver_part(f->m.core, f);
    }
    if (x->failed)
        return x->m.why != OK ? x->m.why : ERR_UPSTREAM_RESET;
    if (!x->at_end || f->at > f->last)
        return OK;
    exchange_refuse(x, "fewer bytes than its range has");
    return ERR_UPSTREAM_SHORT;
}

static unsigned retry_label(enum err why)
{
    return why == ERR_CHECKSUM           ? RETRY_CHECKSUM
           : why == ERR_UPSTREAM_SHORT   ? RETRY_SHORT
           : why == ERR_UPSTREAM_TIMEOUT ? RETRY_TIMEOUT
                                         : RETRY_RESET;
}

/* Readers have some of the bytes already, or asking again brought no better ones. */
static enum err mismatched(struct fetch *f)
{
    enum err e = run_distrust(f, "bytes without the checksum that it names");
    if (f->object->size > BLOCK_BYTES) {
        drop_held(f);
        cache_distrust(cache_of(f), f->object);
    }
    return e;
}

static enum turn broken(struct fetch *f, enum err why)
{
    run_breaks(f);
    if (why == ERR_CHANGED)
        return FAIL(f, run_changed(f));
    if (why == ERR_CHECKSUM && (f->verify.again || f->object->size > BLOCK_BYTES))
        return FAIL(f, mismatched(f));
    /* That once is not one of the tries: without it nobody could say what the ETag means. */
    f->verify.again = f->verify.again || why == ERR_CHECKSUM;
    f->breaks++;
    if (f->brought >= BROUGHT_BYTES_LEAST && why != ERR_UPSTREAM_TIMEOUT)
        f->tries = 0;                /* each silence is long: no client waits for many */
    if (why != ERR_CHECKSUM &&
        f->tries++ >= f->m.core->settings->config->upstream[f->epoch.upstream].retries)
        return FAIL(f, why);
    metric_add3(f->m.core->metrics, METRIC_UPSTREAM_RETRIES_TOTAL,
                origin_label(f->x.origin), retry_label(why), 0, 1);
    f->retry = true;
    return GO(fetch, f, CLOSE);
}

/* ---- steps ---- */

static enum turn fetch_START(struct fetch *self)
{
    if (self->contact) {
        contact_ask(self);
        begin_exchange(self);
        return GO(fetch, self, HEAD);
    }
    if (!self->object)               /* nothing could be made to ask with; its learner has heard */
        return GO(fetch, self, DRAIN);
    fetch_take_place(self);
    if (self->ahead && self->passes)
        fetch_pass_ahead(self);
    return GO(fetch, self, ASK);
}

static enum turn fetch_ASK(struct fetch *self) /* nothing runs with upstream */
{
    if (!run_choose(self))
        return GO(fetch, self, FINISH);
    run_describe(self);
    begin_exchange(self);
    self->look = true;
    return GO(fetch, self, HEAD);
}

/* What is on disk already is neither received nor rewritten: a record may name it. */
static void trim_run(struct fetch *f)
{
    unsigned b = f->at;
    while (b <= f->last && f->state[b] == BLOCK_NEED)
        b++;
    if (b == f->at)
        f->at = f->last + 1;         /* nothing of this answer is of use */
    else
        f->last = b - 1;
}

static enum turn judge_contact(struct fetch *f)
{
    switch (contact_judge(f)) {
    case CONTACT_BYTES:
        fetch_take_place(f);
        trim_run(f);
        if (f->prewarm && !f->keeps && !fetch_has_readers(f))
            return GO(fetch, f, FINISH);
        run_comes(f);
        return GO(fetch, f, PUMP);
    case CONTACT_ERROR: return GO(fetch, f, REFUSED);
    case CONTACT_BY_HEAD: return GO(fetch, f, CLOSE);
    case CONTACT_DONE: break;
    }
    return GO(fetch, f, DRAIN);
}

/* The run failed before its body. Was it of what nobody waits for, and do readers wait for blocks
 * that branches bring? Then they are asked for with what readers are given, and the rest is left
 * out. */
static enum turn run_failed(struct fetch *f, enum err why)
{
    unsigned retries = f->m.core->settings->config->upstream[f->epoch.upstream].retries;
    bool ahead = f->object && f->ask.class_ >= ASK_READAHEAD && why != ERR_CHANGED;
    if (!ahead || !fetch_has_readers(f) || f->tries++ > retries)
        return FAIL(f, why);
    struct fill_shard *s = fetch_lock(f);
    run_drop_rest_locked(f);
    shard_unlock(s);
    f->refused = 0;
    return GO(fetch, f, CLOSE);
}

static enum turn fetch_HEAD(struct fetch *self) /* the answer's head is on its way */
{
    reap_writes(self);
    struct contact *t = self->contact;
    enum err branch = branches_run(self, true);
    if (branch != OK)
        return broken(self, branch);
    if (self->x.failed)
        return run_failed(self, self->x.m.why != OK ? self->x.m.why : ERR_UPSTREAM_RESET);
    if (!fetch_may_rest(self))
        return GO(fetch, self, CLOSE);
    if (!self->x.head_known) {
        fetch_hurry(self);
        return WAIT;
    }
    if (t && !self->object) {
        bool useful = self->x.head->status == 200 || self->x.head->status == 206;
        if (useful && contact_awaits_head(t))
            return WAIT;
        return judge_contact(self);
    }
    enum err e = run_judge(self);
    if (e == ERR_CHANGED)
        return FAIL(self, run_changed(self));
    if (e != OK)
        return run_failed(self, e);
    run_comes(self);
    return GO(fetch, self, PUMP);
}

/* an error status; its document tells the code */
static enum turn fetch_REFUSED(struct fetch *self)
{
    struct contact *t = self->contact;
    struct exchange *x = &self->x;
    if (self->ask.method != HTTP_HEAD && !t->document_asked) {
        t->document_asked = true;
        exchange_read(x, t->memory, sizeof(t->memory));
    }
    if (x->reading)
        return WAIT;
    exchange_blank_echo(x, (char *)t->memory, x->read_got);
    contact_refused(self, span_make(t->memory, x->read_got));
    return GO(fetch, self, DRAIN);
}

static enum turn fetch_PUMP(struct fetch *self) /* upstream -> buffers -> readers and disk */
{
    reap_writes(self);
    if (self->look && self->filling && self->got > 0 && gives_parts(self))
        inflight_deliver_part(self->m.core, self); /* who came while it reads on */
    enum err e = branches_run(self, true);
    if (e != OK)
        return broken(self, e);
    if (self->x.reading)
        return WAIT;
    if (self->x.read_got > 0 || self->x.failed || self->x.at_end) {
        e = take_read(self);
        if (e != OK)
            return broken(self, e);
    }
    if (self->at > self->last)
        return GO(fetch, self, CLOSE);
    if (paced(self))
        return wait_for_readers(self);
    if (!self->filling && !self->room.busy)
        self->filling = fetch_buffer(self, block_bytes(self));
    if (!self->filling)
        return fetch_wants_block(self) ? wait_for_room(self) : GO(fetch, self, CLOSE);
    if (!fetch_may_read(self))
        return WAIT;
    timer_stop(&self->timer);
    read_on(self);
    return WAIT;
}

static enum turn fetch_CLOSE(struct fetch *self) /* the run is over, or broke */
{
    reap_writes(self);
    if (!close_exchanges(self))
        return WAIT;
    if (self->contact && !self->object) { /* once more, by HEAD */
        self->contact->head_over_asked = false;
        contact_ask(self);
        begin_exchange(self);
        return GO(fetch, self, HEAD);
    }
    if (!self->retry)
        return GO(fetch, self, ASK);
    self->retry = false;
    unsigned in_vain = self->tries > 1 ? self->tries : 0;
    uint64_t most = min_u64((uint64_t)BACKOFF_FIRST_MS << min_u64(in_vain, 10), BACKOFF_MOST_MS);
    timer_set(&self->timer, &self->m, self->breaks <= 1 ? 0 : 1 + random_u64() % most);
    return GO(fetch, self, PAUSE);
}

static enum turn fetch_PAUSE(struct fetch *self) /* jitter before the broken run is asked again */
{
    reap_writes(self);
    enum err e = branches_run(self, false);
    if (e != OK)
        return broken(self, e);
    return timer_take(&self->timer) ? GO(fetch, self, ASK) : WAIT;
}

/* Nothing more is needed, so far as we know. Who comes while the last blocks are being written is
 * asked for at once: he does not wait for the disk. */
static enum turn fetch_FINISH(struct fetch *self)
{
    reap_writes(self);
    enum err e = branches_run(self, false);
    if (e != OK)
        return broken(self, e);
    if (!close_exchanges(self))
        return WAIT;
    bool busy = self->branches > 0 || writes_under_way(self) > 0;
    struct fill_shard *s = fetch_lock(self);
    self->sure = 0;
    bool more = run_is_due_locked(self);
    if (!more && !busy)
        inflight_unlist_locked(self);
    shard_unlock(s);
    fetch_brings(self, more || self->branches > 0);
    if (more)
        return GO(fetch, self, ASK);
    return busy ? WAIT : GO(fetch, self, DRAIN);
}

/* finished or failed: everybody hears, everything comes back */
static enum turn fetch_DRAIN(struct fetch *self)
{
    reap_writes(self);
    drop_held(self);
    if (self->contact && !self->object && self->m.why != OK)
        contact_fail(self, self->m.why);
    if (self->data_id.a || self->data_id.b)
        inflight_fail(self->m.core, self, self->m.why != OK ? self->m.why : ERR_CANCELLED);
    timer_stop(&self->timer);
    timer_stop(&self->turn);
    if (self->room.busy)
        pool_leave(cache_of(self), &self->room);
    bool branches = !branches_close(self);
    bool over = close_exchanges(self) && !branches && self->m.inflight == 0;
    /* A write that came back while others were reaped counts no more, and is to be looked at. */
    return over && writes_under_way(self) == 0 ? GO(fetch, self, END) : WAIT;
}

void fetch_drop_filling(struct fetch *f)
{
    if (!f->filling)
        return;
    if (f->given > 0)                /* to its readers it is no fill */
        pool_share_end(cache_of(f), f->filling);
    pool_give(cache_of(f), f->filling);
    f->filling = NULL;
    f->got = f->given = 0;
}

static bool is_called(struct fetch *f)
{
    if (!f->contact)
        return false;
    struct fill_shard *s = fill_shard(f->m.core, f->ask_shard);
    shard_lock(s);
    bool called = f->called;
    shard_unlock(s);
    return called;
}

static enum turn fetch_END(struct fetch *self)
{
    struct fill_shard *s = fetch_lock(self);
    bool poked = self->poked;
    shard_unlock(s);
    if (poked || is_called(self))    /* the delivery wakes us */
        return WAIT;
    fetch_drop_filling(self);
    if (self->chunk && self->fills)
        chunk_filled(cache_of(self), self->chunk);
    else if (self->chunk)
        chunk_drop(cache_of(self), self->chunk);
    return OVER;
}

/* ---- life ---- */

static void fetch_over(struct machine *m)
{
    struct fetch *f = (struct fetch *)m;
    struct fill_core *fc = m->core->fill;
    contact_give(f);
    run_end(f);
    if (f->object)
        object_drop(cache_of(f), f->object);
    fetch_brings(f, false);
    if (f->passed_ahead)
        atomic_fetch_sub_explicit(&m->core->server->fills->passed_ahead, 1, memory_order_relaxed);
    inflight_over(m->core, f);
    metric_gauge_add(METRIC_FETCHES_IN_FLIGHT, fetch_purpose(f), -1);
    node_remove(&f->all);
    stock_give(&fc->fetch_stock, f);
}

static void poke_heard(struct core *c, struct message *msg)
{
    struct fetch *f = container_of(msg, struct fetch, poke);
    struct fill_shard *s = fill_shard(c, f->shard);
    shard_lock(s);
    f->poked = false;
    shard_unlock(s);
    f->look = true;
    machine_wake(&f->m);
}

static void call_heard(struct core *c, struct message *msg)
{
    struct fetch *f = container_of(msg, struct fetch, call);
    struct fill_shard *s = fill_shard(c, f->ask_shard);
    shard_lock(s);
    f->called = false;
    shard_unlock(s);
    machine_wake(&f->m);
}

struct fetch *fetch_make(struct core *c)
{
    struct fill_core *fc = c->fill;
    struct fetch *f = stock_take(&fc->fetch_stock);
    if (!f)
        return NULL;
    MACHINE_BEGIN(fetch, f, c, fetch_over);
    fetch_brings(f, true);
    f->poke.deliver = poke_heard;
    f->call.deliver = call_heard;
    atomic_init(&f->pace, PACE);
    list_init(&f->waiters);
    list_init(&f->watchers);
    list_push(&fc->fetches, &f->all);
    metric_gauge_add(METRIC_FETCHES_IN_FLIGHT, PURPOSE_DEMAND, 1);
    return f;
}
