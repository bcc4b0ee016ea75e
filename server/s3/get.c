/* MACHINE GET and HEAD of an object: find or learn it, judge conditions and range, pump bytes to
 * the client.
 *
 * Invariants:
 *  1. Every byte of one answer belongs to the generation whose ETag its head carries.
 *  2. Nothing is sent before the first piece is in hand, so that an upstream failure is still an
 *     honest error; after the head an answer that cannot be completed is cut by a reset.
 *  3. Pieces are made, and sent, in order; only an unbroken run of ready ones from the first is
 *     held, so that no two requests can wait for each other's memory.
 *  4. The bytes of a piece are verified before it becomes READY: by CRC from disk, by the fetch
 *     from upstream.
 *
 * Life: embedded in a request; begins when the request is authorised, ends in req_over() or in a
 * relay.
 * Failure: a generation that dies before the head is sent starts the request anew; after two the
 * answer is relayed in one piece. So is what the store refuses, in its own words, and what there
 * is no fetch for; behind the head it waits for one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/s3/s3.h"

#define GET_STEPS(S)                                                                               \
    S(get, FIND) S(get, LEARN) S(get, JUDGE) S(get, PUMP) S(get, ANSWER) S(get, RESTART)           \
    S(get, DRAIN) S(get, END)

STEP_TABLE(get, GET_STEPS)

enum {
    DEAD_MOST = 2,
    CACHED_CHUNKS_MAX = 4096,        /* x-headpond-cached counts at most so many */
    LATER_MS = 16,
    ROOM_MS = 10000,                 /* without a buffer so long: too much is asked of us */
};

/* ---- helpers ---- */

static struct req *req_of(struct get *g)
{
    return container_of(g, struct req, get);
}

static struct cache *cache_of(const struct get *g)
{
    return g->m.core->server->cache;
}

static const struct config *config_of(const struct get *g)
{
    return g->m.core->settings->config;
}

static bool is_down(const struct get *g)
{
    return origin_is_down(g->m.core->server->origin[g->key.upstream]);
}

/* By the names that clients use. */
static const struct conf_bucket *rule_of(struct get *g)
{
    const struct s3_ask *a = &req_of(g)->ask;
    return conf_bucket(config_of(g), a->bucket, a->key);
}

static void set_result(struct req *r, enum label_result result)
{
    static const char *const words[LABEL_result_COUNT] = {
        [RESULT_HIT] = "hit",       [RESULT_PARTIAL] = "partial", [RESULT_MISS] = "miss",
        [RESULT_JOINED] = "joined", [RESULT_STALE] = "stale",     [RESULT_REVALIDATED] = "hit",
        [RESULT_BYPASS] = "bypass"};
    r->result = (uint8_t)result;
    r->x_cache = words[result];
}

/* Writes an error where the head would stand. */
static enum turn say(struct get *g, const struct s3_error *e)
{
    struct req *r = req_of(g);
    if (g->head_sent || g->send_begun)
        return FAIL(g, ERR_UPSTREAM_RESET);
    r->status = e->status;
    r->close = r->close || conn_stopping(r->conn);
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_error(&r->out, e, &r->stamp, r->head_request, r->close);
    return GO(get, g, ANSWER);
}

static enum turn say_err(struct get *g, enum err why)
{
    struct s3_error e;
    s3_error_of(why, &e);
    e.resource = req_of(g)->ask.path;
    return say(g, &e);
}

static enum turn pass_through(struct get *g)
{
    g->relay = true;
    return GO(get, g, DRAIN);
}

/* ---- knowing the object ---- */

static void ask_upstream(struct get *g, enum learn_kind kind, bool fresh)
{
    struct req *r = req_of(g);
    g->asked = true;
    g->learn.m = &g->m;
    g->learn.kind = kind;
    g->learn.profile = r->who.profile;
    g->learn.hint = r->ask.hint;
    g->learn.from = 0;
    g->learn.to = UINT64_MAX;
    g->learn.sums = false;
    if (kind == LEARN_GET) {
        uint64_t from = 0, to = UINT64_MAX;
        enum http_range_form form = http_range_read(r->ask.range, &from, &to);
        if (form == HTTP_FORM_SUFFIX || form == HTTP_FORM_BAD) {
            g->learn.kind = LEARN_HEAD; /* where the range begins depends on the size */
        } else if (form == HTTP_FORM_FROM || form == HTTP_FORM_FROM_TO) {
            g->learn.from = from;
            g->learn.to = form == HTTP_FORM_FROM_TO ? to : UINT64_MAX;
        }
        g->learn.sums = form == HTTP_FORM_NONE && r->ask.checksum_mode;
    }
    if (g->learn.from >= INT64_MAX || (g->learn.to != UINT64_MAX && g->learn.to < g->learn.from))
        g->learn.kind = LEARN_HEAD;
    req_starves(r, kind == LEARN_GET ? STALL_MISS : STALL_REVALIDATE);
    fill_learn(g->m.core, &g->key, &g->learn, fresh);
}

/* Would it fail a condition that another generation may meet? The client may know a newer one. */
static bool may_know_other(struct get *g, const struct object *o)
{
    const struct s3_ask *a = &req_of(g)->ask;
    uint32_t flags = atomic_load_explicit(&o->flags, memory_order_relaxed);
    const char *condition = NULL;
    return a->if_match.len > 0 && !(flags & OBJECT_STABLE) &&
           s3_conditions(a, object_etag(o), o->last_modified_s, g->m.core->wall_s, &condition) ==
               412;
}

/* Must upstream be asked before this generation may be used? */
static bool must_ask(struct get *g, const struct conf_bucket *rule)
{
    const struct req *r = req_of(g);
    struct object *o = g->object;
    uint32_t flags = atomic_load_explicit(&o->flags, memory_order_relaxed);
    if (g->asked)
        return false;
    if (flags & OBJECT_DOUBT)
        return true;
    uint64_t now_ms = g->m.core->wall_ms,
             checked = atomic_load_explicit(&o->checked_ms, memory_order_relaxed);
    uint64_t age_ms = now_ms > checked ? now_ms - checked : 0;
    if (may_know_other(g, o))
        return true;
    if (rule->immutable)
        return false;
    /* Another core may be ahead of this turn; ahead of the clock, that was set back: who knows how
     * old the answer is? */
    if (checked > now_ms && checked > clock_wall_ms())
        return true;
    if (age_ms >= rule->ttl_ms)
        return true;
    if (age_ms >= rule->ttl_ms / 4 * 3)
        fill_refresh(g->m.core, &g->key, r->who.profile);
    return false;
}

static bool upstream_is_away(enum err e)
{
    switch (e) {
    case ERR_UPSTREAM_DNS:
    case ERR_UPSTREAM_CONNECT:
    case ERR_UPSTREAM_TLS:
    case ERR_UPSTREAM_TIMEOUT:
    case ERR_UPSTREAM_RESET:
    case ERR_UPSTREAM_DOWN: return true;
    default: return false;
    }
}

/* Before the first byte: what we went by is gone. */
static enum turn begin_anew(struct get *g)
{
    g->dead++;
    return GO(get, g, RESTART);
}

/* The asking failed. With a generation in hand and upstream away, that one is served and marked. */
static enum turn learn_failed(struct get *g)
{
    struct req *r = req_of(g);
    enum err why = g->learn.err;
    enum { SERVE = 0 };
    uint16_t status = why == ERR_UPSTREAM_STATUS ? g->learn.upstream.status : 0;
    bool away = upstream_is_away(why) || status >= 500 || status == 429;
    bool doubt =
        g->object && atomic_load_explicit(&g->object->flags, memory_order_relaxed) & OBJECT_DOUBT;
    if (g->object && !doubt && away && config_of(g)->upstream[g->key.upstream].offline == SERVE) {
        g->stale = true;
        set_result(r, RESULT_STALE);
        return GO(get, g, JUDGE);
    }
    /* ERR_BUSY: there were too many fetches; a relay needs none. */
    if (why == ERR_UNSUPPORTED || why == ERR_FULL || why == ERR_BUSY ||
        (why == ERR_CHANGED && cache_is_written(cache_of(g), g->learn.epoch)))
        return pass_through(g);
    if (why == ERR_CHANGED)
        return begin_anew(g);
    if (why == ERR_NOT_FOUND && g->object)
        cache_forget(cache_of(g), g->object);
    if (why != ERR_NOT_FOUND && why != ERR_DENIED && why != ERR_UPSTREAM_STATUS)
        return say_err(g, why);
    struct s3_error e;
    s3_error_of_upstream(&g->learn.upstream, &r->ask, &e);
    return say(g, &e);
}

/* What was under way before the request came is joined for its bytes, though it may tell of a
 * moment that is too long ago (with ttl 0: any), or of one before the client heard of another
 * generation. One HEAD then tells all who joined what is current. */
static bool asks_again(struct get *g)
{
    const struct object *o = g->learn.object;
    const struct conf_bucket *rule = rule_of(g);
    uint64_t now_ms = g->m.core->wall_ms,
             checked = atomic_load_explicit(&o->checked_ms, memory_order_relaxed);
    uint64_t age_ms = now_ms > checked ? now_ms - checked : 0;
    return g->learn.early &&
           (may_know_other(g, o) || (!rule->immutable && age_ms >= rule->ttl_ms));
}

static enum turn get_FIND(struct get *self) /* nothing is held */
{
    struct req *r = req_of(self);
    self->epoch = cache_epoch(cache_of(self), &self->key);
    self->object = cache_find(cache_of(self), &self->key);
    if (self->object) {
        const struct conf_bucket *rule = rule_of(self);
        set_result(r, RESULT_HIT);
        if (!must_ask(self, rule))
            return GO(get, self, JUDGE);
        if (is_down(self)) {
            self->learn.err = ERR_UPSTREAM_DOWN;
            return learn_failed(self);
        }
        ask_upstream(self, LEARN_HEAD, rule->ttl_ms == 0);
        return GO(get, self, LEARN);
    }
    if (cache_is_written(cache_of(self), self->epoch)) /* nothing could be learnt now */
        return pass_through(self);
    struct upstream_error missing;
    if (fill_known_missing(self->m.core, &self->key, rule_of(self)->negative_ttl_ms, &missing)) {
        struct s3_error e;
        s3_error_of_upstream(&missing, &r->ask, &e);
        set_result(r, RESULT_HIT);
        e.x_cache = r->x_cache;
        return say(self, &e);
    }
    if (cache_learns_nothing(cache_of(self)))
        return pass_through(self);
    set_result(r, RESULT_MISS);
    ask_upstream(self, r->head_request ? LEARN_HEAD : LEARN_GET, false);
    return GO(get, self, LEARN);
}

static enum turn get_LEARN(struct get *self) /* upstream was asked what the key is */
{
    struct req *r = req_of(self);
    if (!learn_take(&self->learn))
        return WAIT;
    if (self->learn.err != OK) {
        req_feeds(r);
        return learn_failed(self);
    }
    bool same = self->object && id_eq(self->learn.object->data_id, self->object->data_id);
    bool again = asks_again(self);   /* once: the next asking is no earlier one */
    if (self->object && !(same && r->result == RESULT_JOINED))
        set_result(r, same ? RESULT_REVALIDATED : RESULT_MISS);
    else if (self->learn.joined)
        set_result(r, RESULT_JOINED);
    if (self->object)
        object_drop(cache_of(self), self->object);
    self->object = self->learn.object;
    self->epoch = self->learn.epoch;
    self->learn.object = NULL;
    if (!again)
        return GO(get, self, JUDGE);
    ask_upstream(self, LEARN_HEAD, true);
    return WAIT;
}

/* ---- judging ---- */

static enum turn not_satisfiable(struct get *g)
{
    struct req *r = req_of(g);
    struct s3_error e = {.status = 416,
                         .code = "InvalidRange",
                         .message = "The requested range is not satisfiable",
                         .range_requested = r->ask.range,
                         .actual_size = g->object->size,
                         .has_actual_size = true};
    return say(g, &e);
}

static enum turn failed_condition(struct get *g, const char *condition)
{
    struct s3_error e = {.status = 412, .code = "PreconditionFailed",
                         .message = "At least one of the pre-conditions you specified did not hold",
                         .condition = span_of(condition)};
    return say(g, &e);
}

/* partNumber of an object that was uploaded in one piece, or in one part: part 1 is all of it.
 * Parts of others are known where they were uploaded through us, else they are upstream's to
 * tell. */
static enum turn judge_part(struct get *g)
{
    struct req *r = req_of(g);
    uint64_t each = atomic_load_explicit(&g->object->part_bytes, memory_order_relaxed);
    uint64_t size = g->object->size, parts = each > 0 ? (size + each - 1) / each : 1;
    uint32_t told = s3_etag_parts(object_etag(g->object));
    if (each > 0 ? told != parts : told > 1)
        return pass_through(g);
    if (r->ask.part_number > parts) {
        struct s3_error e = {.status = 416, .code = "InvalidPartNumber",
                             .message = "The requested partnumber is not satisfiable",
                             .parts = parts, .part_number = r->ask.part_number,
                             .has_part_number = true};
        return say(g, &e);
    }
    if (each > 0) {
        g->from = (r->ask.part_number - 1) * each;
        g->to = min_u64(g->from + each, size) - 1;
    }
    g->reply.parts = told;           /* 0: it has no parts, and says nothing of them */
    g->reply.status = size > 0 ? 206 : 200;
    return AGAIN;
}

static uint64_t cached_bytes(struct get *g)
{
    uint64_t sum = 0;
    for (uint64_t n = 0; n * CHUNK_BYTES < g->object->size; n++) {
        struct chunk *k = chunk_find(cache_of(g), g->object->data_id, n);
        uint8_t present = k ? chunk_present(cache_of(g), k) : 0;
        for (unsigned b = 0; k && b < BLOCKS_PER_CHUNK; b++)
            if (present >> b & 1)
                sum += chunk_block_bytes(k->bytes, b);
        if (k)
            chunk_drop(cache_of(g), k);
    }
    return sum;
}

static enum turn write_head(struct get *g)
{
    struct req *r = req_of(g);
    struct s3_reply *p = &g->reply;
    uint64_t checked = atomic_load_explicit(&g->object->checked_ms, memory_order_relaxed),
             now = g->m.core->wall_ms;
    p->from = g->from;
    p->to = g->to;
    p->size = g->object->size;
    p->x_cache = r->x_cache;
    p->has_age = true;
    p->age_s = now > checked ? (now - checked) / 1000 : 0;
    p->stale = g->stale;
    if (g->stale)
        metric_add(g->m.core->metrics, METRIC_CACHE_STALE_SERVED_TOTAL, STALE_OFFLINE, 1);
    r->close = r->close || conn_stopping(r->conn);
    p->close = r->close;
    if (r->head_request && p->status == 200 &&
        p->size <= (uint64_t)CACHED_CHUNKS_MAX * CHUNK_BYTES) {
        p->has_cached = true;
        p->cached_bytes = cached_bytes(g);
    }
    r->status = p->status;
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    enum err e = s3_reply_object(&r->out, p, &r->stamp, &r->ask, object_etag(g->object),
                                 g->object->last_modified_s, object_headers(g->object));
    return e == OK ? AGAIN : say_err(g, e);
}

static enum turn head_only(struct get *g)
{
    enum turn unused_ok t = write_head(g);
    return GO(get, g, ANSWER);
}

/* While upstream is down a partly cached answer is refused before its head: it could only be
 * cut. */
static bool would_be_cut(struct get *g)
{
    if (!is_down(g))
        return false;
    bool whole = true;
    for (uint64_t n = g->from / CHUNK_BYTES; whole && n <= g->to / CHUNK_BYTES; n++) {
        uint8_t asked = get_blocks_asked(g, n);
        struct chunk *k = chunk_find(cache_of(g), g->object->data_id, n);
        whole = k && (chunk_present(cache_of(g), k) & asked) == asked;
        if (k)
            chunk_drop(cache_of(g), k);
    }
    return !whole;
}

static enum turn begin_pump(struct get *g)
{
    piece_expect(g, g->from);
    g->next = g->from;
    g->ahead = g->from / CHUNK_BYTES + 1;
    g->used = g->unread_end = 0;
    g->told = g->asked && g->learn.kind == LEARN_GET ? g->ahead * CHUNK_BYTES : 0;
    get_begin_ahead(g);
    g->pin_at = UINT64_MAX;
    if (get_must_pin(g)) {
        g->pin_at = g->from / BLOCK_BYTES;
        g->window = GET_WINDOW_MOST;
    }
    return GO(get, g, PUMP);
}

static enum turn get_JUDGE(struct get *self) /* the generation is known and may be used */
{
    struct req *r = req_of(self);
    struct object *o = self->object;
    const char *condition = NULL;
    self->reply = (struct s3_reply){.status = 200};
    uint16_t verdict = s3_conditions(&r->ask, object_etag(o), o->last_modified_s,
                                     self->m.core->wall_s, &condition);
    if (verdict == 412 && self->stale) /* the client may know what we cannot ask for */
        return say_err(self, ERR_UPSTREAM_DOWN);
    if (verdict == 412)
        return failed_condition(self, condition);
    self->from = 0;
    self->to = o->size ? o->size - 1 : 0;
    if (verdict == 304) {
        self->reply.status = 304;
        return head_only(self);
    }
    if (r->ask.part_number > 0) {
        enum turn t = judge_part(self);
        if (self->m.at != AT_get_JUDGE)
            return t;
    } else {
        switch (http_range_apply(s3_range(&r->ask, object_etag(o), o->last_modified_s), o->size,
                                 &self->from, &self->to)) {
        case HTTP_RANGE_UNSATISFIABLE: return not_satisfiable(self);
        case HTTP_RANGE_OK: self->reply.status = 206; break;
        case HTTP_RANGE_NONE: break;
        }
    }
    if (r->head_request || o->size == 0)
        return head_only(self);
    if (would_be_cut(self))
        return say_err(self, ERR_UPSTREAM_DOWN);
    if (get_too_lively(self) && !is_down(self))
        return pass_through(self);
    object_read(cache_of(self), o, self->m.core->wall_s);
    return begin_pump(self);
}

/* ---- pieces ---- */

/* Behind a piece that waits for a fetch nothing is held: the fetch may need just that memory, and
 * two requests could wait for each other for ever. Neither is anything for a client that takes
 * nothing. What is given back is found again in the pool or on disk. */
static void park_blocked(struct get *g)
{
    bool blocked = g->stalled || g->pinning;
    for (unsigned i = 0; i < g->count; i++) {
        struct piece *p = get_piece(g, i);
        if (blocked && p->state == PIECE_READY)
            piece_park(g, p);
        blocked = blocked || p->state == PIECE_WAIT || p->state == PIECE_EMPTY;
    }
    while (g->stalled && g->count > 0 && get_piece(g, g->count - 1)->state == PIECE_EMPTY)
        g->next = get_piece(g, --g->count)->at; /* made anew, and smaller */
}

/* What comes from disk is verified when its turn to leave has come, a block at a time. It is then
 * still in the core's own cache when the send copies it (whole shards, four at a time: a seventh
 * less CPU). What did not come, or not as it should, is not left waiting; nor is what others may be
 * about to read from disk as well: they find it once it is verified (eight readers of one object
 * had the disk read it up to three times as often). */
static bool is_early(struct get *g, unsigned i)
{
    struct piece *p = get_piece(g, i);
    uint32_t bytes = p->len;
    unsigned n = 0;
    for (; n < i && get_piece(g, n)->state == PIECE_READY; n++)
        bytes += get_piece(g, n)->len;
    bool next = n == i && bytes <= BLOCK_BYTES;
    return !next && chunk_read_came(p->transfer) && !object_is_shared(g->object) &&
        reading_may_rest(cache_of(g), &p->reading);
}

/* Takes what has arrived. OK, or the error of the first piece that failed for good. */
static enum err take_arrivals(struct get *g)
{
    bool blocked = g->stalled || g->pinning;
    for (unsigned i = 0; i < g->count; i++) {
        struct piece *p = get_piece(g, i);
        enum piece_turn t = PIECE_STARTED;
        if (p->state == PIECE_JOINS && !p->join.busy)
            p->state = PIECE_EMPTY;  /* it is in memory now, or is read after all */
        if (p->state == PIECE_READ && transfer_ended(p->transfer)) {
            if (!blocked && is_early(g, i))
                continue;
            t = piece_take_disk(g, p);
        } else if (p->state == PIECE_WAIT && wait_take(&p->wait)) {
            g->refused = p->wait.status;
            if (p->wait.err != OK)
                return p->wait.err;
            t = piece_take_wait(g, p);
        } else if (p->state == PIECE_EMPTY && !blocked && (i == 0 || !g->slow)) {
            t = piece_restart(g, p); /* it was parked, or there was no room */
        }
        /* Those behind are taken all the same: what was delivered to them must not be held while
         * this one waits, park_blocked() gives it back. */
        if (t == PIECE_NO_ROOM && !blocked)
            g->waiting_room = true;
        blocked = blocked || p->state == PIECE_WAIT || p->state == PIECE_EMPTY;
    }
    return OK;
}

static void make_pieces(struct get *g)
{
    bool hold_nothing = g->stalled || g->pinning || (g->slow && g->left);
    while (!hold_nothing && g->count < (g->slow ? 1 : GET_DEPTH) && g->next <= g->to &&
           !g->waiting_room) {
        struct piece *p = get_piece(g, g->count);
        if (piece_start(g, p, g->next) == PIECE_NO_ROOM) {
            g->waiting_room = g->count == 0; /* else later, when the first ones have left */
            return;
        }
        g->count++;
        g->next = p->at + p->len;
    }
}

/* The first piece has no room: whatever we hold beyond it must not be what it is waiting for. */
static void wait_for_room(struct get *g)
{
    bool moving = g->sending > 0 || (g->count > 0 && get_piece(g, 0)->state == PIECE_READY);
    if (g->room.busy || moving)
        return;                      /* what leaves makes room */
    while (g->count > 0) {           /* from the end, as far as nothing is under way */
        struct piece *p = get_piece(g, g->count - 1);
        if (p->state != PIECE_READY && p->state != PIECE_EMPTY)
            break;
        g->next = p->at;
        piece_release(g, p);
        g->count--;
    }
    pool_wait(cache_of(g), &g->room, &g->m);
}

/* Before the head that is an honest refusal; after it the client waits, as those before it do. But
 * where no fetch can be had for so long, nothing tells that one ever will. */
static bool too_long_without_room(struct get *g)
{
    uint64_t now_ms = g->m.core->now_ms;
    if (!g->waiting_room || (g->send_begun && !g->full)) {
        g->room_ms = 0;
        return false;
    }
    if (g->room_ms == 0)
        g->room_ms = now_ms;
    if (g->timer.at_ms == 0)
        timer_set(&g->timer, &g->m, ROOM_MS);
    return now_ms - g->room_ms >= ROOM_MS;
}

/* ---- sending ---- */

/* What the client is told about where the bytes come from: judged when the first piece is in
 * hand. */
static void judge_result(struct get *g)
{
    struct req *r = req_of(g);
    const struct piece *first = get_piece(g, 0);
    if (r->result != RESULT_HIT && r->result != RESULT_REVALIDATED)
        return;
    bool more = false;
    for (unsigned i = 1; i < g->count; i++)
        more = more || get_piece(g, i)->state == PIECE_WAIT || get_piece(g, i)->waited;
    if (first->waited)
        set_result(r, first->source == SOURCE_UPSTREAM ? RESULT_MISS : RESULT_JOINED);
    else if (more)
        set_result(r, RESULT_PARTIAL);
}

/* Not that it is asked too much, or that it failed: the object is in an archive, its key is not to
 * be used. Only the store's document tells. */
static bool is_refusal(uint16_t status)
{
    return status >= 400 && status < 500 && status != 408 && status != 429;
}

/* The store had no bytes of an object that we know: what it said, as far as its status tells. */
static enum turn say_refused(struct get *g)
{
    struct upstream_error u = {.status = g->refused};
    struct s3_error e;
    struct text code;
    text_init(&code, u.code, sizeof(u.code));
    text_adds(&code, fill_code_of_status(g->refused));
    s3_error_of_upstream(&u, &req_of(g)->ask, &e);
    return say(g, &e);
}

/* A piece failed for good. Before the first byte the request can begin anew or answer honestly. */
static enum turn broken(struct get *g, enum err why)
{
    if (g->send_begun)
        return FAIL(g, why);
    if (is_refusal(g->refused) || why == ERR_BUSY)
        return pass_through(g);
    if (g->refused)
        return say_refused(g);
    if (why != ERR_CHANGED)
        return say_err(g, why);
    return begin_anew(g);
}

static bool is_from_disk(const struct piece *p)
{
    return p->state == PIECE_READ || p->state == PIECE_JOINS;
}

static enum turn send_more(struct get *g)
{
    struct req *r = req_of(g);
    if (g->stalled) {
        pace_await(g);
        return WAIT;
    }
    if (!g->send_begun && g->count > 0 && get_piece(g, 0)->state == PIECE_READY) {
        judge_result(g);
        write_head(g);
        if (g->m.at != AT_get_PUMP)
            return AGAIN;
    }
    if (pace_gather(g)) {
        req_feeds(r);
        req_first_byte(r);
        g->send_begun = true;
        pace_send(g);
    } else if (g->count > 0 || g->waiting_room || g->pinning) {
        req_starves(r, g->count > 0 && is_from_disk(get_piece(g, 0)) ? STALL_DISK
                       : g->waiting_room                                   ? STALL_THROTTLED
                                                                           : STALL_MISS);
    }
    return WAIT;
}

/* pool, disk or fetch -> socket, GET_DEPTH pieces ahead */
static enum turn get_PUMP(struct get *self)
{
    struct req *r = req_of(self);
    enum err e = OK;
    if (send_ended(&r->send))
        e = pace_sent(self);
    if (e != OK)
        return FAIL(self, e);
    pace_watch(self);
    if (self->next > self->to && self->count == 0 && !self->left && !send_busy(&r->send))
        return GO(get, self, DRAIN);
    self->waiting_room = self->later = self->full = false;
    self->pinning = !self->head_sent && !get_pinned(self, &e);
    if (e == OK)
        e = take_arrivals(self);
    if (e != OK)
        return broken(self, e);
    make_pieces(self);
    get_fetch_ahead(self);
    park_blocked(self);
    if (self->full && self->waiting_room && !self->send_begun)
        return pass_through(self);
    if (self->later)
        timer_set(&self->timer, &self->m, LATER_MS);
    else if (self->waiting_room)
        wait_for_room(self);
    if (too_long_without_room(self))
        return self->send_begun ? FAIL(self, ERR_BUSY) : say_err(self, ERR_BUSY);
    return send_busy(&r->send) ? WAIT : send_more(self);
}

static enum turn get_ANSWER(struct get *self) /* r->out is the whole answer */
{
    struct req *r = req_of(self);
    if (op_take(&r->send.op)) {
        enum err why;
        if (send_accept(&r->send, r->conn, &why)) {
            self->head_sent = true;
            return GO(get, self, DRAIN);
        }
        if (why != OK)
            return FAIL(self, why);
        send_go(&r->send, r->conn, &self->m);
        return WAIT;
    }
    if (r->send.op.busy)
        return WAIT;
    req_feeds(r);
    send_reset(&r->send);
    send_add(&r->send, r->out.at, (uint32_t)r->out.len);
    req_first_byte(r);
    self->send_begun = true;
    send_go(&r->send, r->conn, &self->m);
    return WAIT;
}

/* ---- ends ---- */

/* Leaves every wait; true when nothing of ours is under way. */
static bool leave_all(struct get *g)
{
    for (unsigned i = 0; i < g->count; i++)
        piece_leave(g, get_piece(g, i));
    get_leave_pin(g);
    if (g->m.why != OK)
        send_stop(&req_of(g)->send, &g->m);
    if (g->learn.busy)
        fill_leave_learn(g->m.core, &g->learn);
    if (g->room.busy)
        pool_leave(cache_of(g), &g->room);
    return g->m.inflight == 0;
}

static void drop_all(struct get *g)
{
    for (unsigned i = 0; i < g->count; i++)
        piece_release(g, get_piece(g, i));
    g->count = g->first = g->sending = 0;
    if (g->learn.object)
        object_drop(cache_of(g), g->learn.object);
    if (g->object)
        object_drop(cache_of(g), g->object);
    g->learn.object = g->object = NULL;
}

static enum turn get_RESTART(struct get *self) /* the generation died before our first byte */
{
    if (!leave_all(self))
        return WAIT;
    timer_stop(&self->timer);
    drop_all(self);
    self->asked = self->stale = false;
    self->sized = 0;
    return self->dead >= DEAD_MOST ? pass_through(self) : GO(get, self, FIND);
}

/* the kernel and other cores may still hold our memory */
static enum turn get_DRAIN(struct get *self)
{
    return leave_all(self) ? GO(get, self, END) : WAIT;
}

static enum turn get_END(struct get *self)
{
    struct req *r = req_of(self);
    timer_stop(&self->timer);
    pace_end(self);
    if (self->object && self->sent > 0)
        cache_sent(cache_of(self), self->object, self->sent, r->source_bytes[SOURCE_UPSTREAM]);
    drop_all(self);
    r->body_bytes = self->sent;
    r->cut = self->m.why != OK;
    return OVER;
}

static void get_over(struct machine *m)
{
    struct req *r = req_of((struct get *)m);
    if (r->get.relay && m->why == OK)
        relay_begin(r);
    else
        req_over(r);
}

void get_begin(struct req *r)
{
    struct get *g = &r->get;
    memset(g, 0, offsetof(struct get, piece));
    g->key = (struct okey){.bucket = r->route.bucket,
                           .key = r->ask.key,
                           .version = r->ask.version,
                           .upstream = (uint8_t)r->route.upstream};
    cache_key(r->core->server->cache, &g->key);
    cache_expect(r->core->server->cache, &g->key); /* others of this turn begin before it runs */
    MACHINE_BEGIN(get, g, r->core, get_over);
}
