/* The asking half of a fetch: what is this key now? Used by fetch.c while f->contact is set.
 *
 * Invariants:
 *  1. An answer becomes a generation only if it has an ETag, a size and nothing that forbids
 *     storing; else the learners relay.
 *  2. The fetch is listed under (data id, chunk) before its object is published, so that a reader
 *     who finds the object finds the fetch as well.
 *  3. Every learner hears exactly once.
 *  4. A GET that holds a permit never waits for its HEAD beside while that waits for one: else all
 *     could be held by such GETs. The HEAD queues first, in the GET's class, so that it is served
 *     first; one that queues again, to be repeated, counts as failed.
 *
 * Life: made by fill_learn(), given back when its learners have heard.
 * Failure: upstream's error statuses are passed to the learners; a 404 is remembered for whoever
 * asks within cache.negative_ttl. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"
#include "xml.h"

static bool copy_span(char **at, char *end, struct span in, struct span *out)
{
    if ((size_t)(end - *at) < in.len)
        return false;
    if (in.len > 0)
        memcpy(*at, in.at, in.len);
    *out = span_make(*at, in.len);
    *at += in.len;
    return true;
}

enum err contact_make(struct core *c, struct fetch *f, const struct okey *k, const struct learn *l)
{
    struct fill_core *fc = c->fill;
    struct contact *t = stock_take(&fc->contact_stock);
    if (!t)
        return ERR_BUSY;
    list_init(&t->learners);
    list_init(&t->readers);
    char *at = t->text, *end = t->text + sizeof(t->text);
    t->key = *k;                     /* but for the texts */
    if (!copy_span(&at, end, k->bucket, &t->key.bucket) ||
        !copy_span(&at, end, k->key, &t->key.key) ||
        !copy_span(&at, end, k->version, &t->key.version)) {
        stock_give(&fc->contact_stock, t);
        return ERR_TOO_LARGE;
    }
    t->kind = l->kind;
    t->from = l->from;
    t->to = l->to;
    t->chunk = contact_chunk(l);
    t->sums = l->sums;
    t->patient = l->patient;
    t->prewarm = l->prewarm;
    t->plan = l->plan;
    t->background = l->background;
    arena_init(&t->arena, t->memory, sizeof(t->memory), 64 * KIB);
    f->contact = t;
    return OK;
}

void contact_give(struct fetch *f)
{
    struct fill_core *fc = f->m.core->fill;
    struct contact *t = f->contact;
    if (!t)
        return;
    must(list_empty(&t->learners) && list_empty(&t->readers));
    arena_reset(&t->arena);
    stock_give(&fc->contact_stock, t);
    f->contact = NULL;
}

/* ---- asking ---- */

static enum ask_class class_of(const struct contact *t, enum http_method method)
{
    return t->plan               ? ASK_PLAN
           : t->background       ? ASK_BACKGROUND
           : t->patient          ? ASK_PREFETCH
           : method == HTTP_HEAD ? ASK_REVALIDATE
                                 : ASK_DEMAND;
}

static void describe(struct fetch *f, struct ask *a, enum http_method method)
{
    struct contact *t = f->contact;
    struct text query;
    text_init(&query, f->query, sizeof(f->query));
    if (t->key.version.len > 0) {
        text_adds(&query, "versionId=");
        uri_encode(&query, t->key.version, false);
    }
    bool head = method == HTTP_HEAD;
    *a = (struct ask){.method = method,
                      .class_ = class_of(t, method),
                      .op = head ? OP_HEAD : OP_GET,
                      .purpose = t->plan         ? PURPOSE_PLAN
                                 : t->background ? PURPOSE_BACKGROUND
                                 : t->prewarm    ? PURPOSE_PREWARM
                                 : head          ? PURPOSE_REVALIDATE
                                                 : PURPOSE_DEMAND,
                      .profile = f->profile,
                      .upstream = t->key.upstream,
                      .bucket = t->key.bucket,
                      .key = t->key.key,
                      .query = text_span(&query)};
    /* the only way to learn an object's checksums without its bytes */
    if (head) {
        t->head_field = (struct http_field){span_of("x-amz-checksum-mode"), span_of("ENABLED")};
        a->field = &t->head_field;
        a->field_count = 1;
    }
}

void contact_ask(struct fetch *f)
{
    struct contact *t = f->contact;
    struct fill_shard *s = fill_shard(f->m.core, f->ask_shard);
    shard_lock(s);
    t->sent = true;
    shard_unlock(s);
    if (t->kind == LEARN_HEAD) {
        describe(f, &f->ask, HTTP_HEAD);
        return;
    }
    describe(f, &f->ask, HTTP_GET);
    uint64_t chunk_end = round_down(t->from, CHUNK_BYTES) + CHUNK_BYTES - 1;
    f->ask.has_range = true;
    f->ask.from = round_down(t->from, BLOCK_BYTES);
    f->ask.to = t->to >= chunk_end
                    ? chunk_end
                    : min_u64(round_down(t->to, BLOCK_BYTES) + BLOCK_BYTES - 1, chunk_end);
    if (t->sums) {
        describe(f, &t->head_ask, HTTP_HEAD);
        t->head_ask.class_ = f->ask.class_; /* queued first, it goes first */
        exchange_begin(&t->head, f->m.core, &t->head_ask, &f->m);
        t->beside = true;
    }
}

/* ---- judging ---- */

static enum contact_turn answer(struct fetch *f, enum err err, struct object *o,
                                const struct upstream_error *e)
{
    struct learnt what = {.err = err, .object = o, .upstream = e};
    asking_answer(f->m.core, f, &what);
    return CONTACT_DONE;
}

void contact_fail(struct fetch *f, enum err why)
{
    answer(f, why, NULL, NULL);
}

const char *fill_code_of_status(uint16_t status)
{
    switch (status) {
    case 404: return "NoSuchKey";
    case 401:
    case 403: return "AccessDenied";
    case 405: return "MethodNotAllowed";
    case 412: return "PreconditionFailed";
    case 416: return "InvalidRange";
    case 429: return "SlowDown";
    case 503: return "ServiceUnavailable";
    default: return status >= 500 ? "InternalError" : "InvalidRequest";
    }
}

static void fill_text(char *out, size_t cap, const char *in)
{
    struct text t;
    text_init(&t, out, cap);
    text_adds(&t, in);
}

void contact_refused(struct fetch *f, struct span document)
{
    struct core *c = f->m.core;
    struct contact *t = f->contact;
    struct upstream_error e = {.status = f->x.head->status};
    struct xml_s3_error doc;
    if (document.len > 0 && xml_s3_error_read(document, &doc) == OK && doc.code[0]) {
        fill_text(e.code, sizeof(e.code), doc.code);
        fill_text(e.message, sizeof(e.message), doc.message);
    } else {
        fill_text(e.code, sizeof(e.code), fill_code_of_status(e.status));
    }
    fill_marker_keep(f->x.head, &e);
    enum err err = exchange_verdict(&f->x);
    if (err == OK || err == ERR_CHANGED || err == ERR_UNSUPPORTED)
        err = ERR_UPSTREAM_STATUS;
    if (err == ERR_NOT_FOUND)
        fill_note_missing(c, t->key.id, f->epoch, &e);
    answer(f, err, NULL, &e);
}

/* Headers from the HEAD beside, if it saw the same generation: only it carries checksums. */
static const struct http_head *richer_head(struct fetch *f)
{
    struct contact *t = f->contact;
    bool same = t->beside && t->head.head_known && !t->head.failed && t->head.head->status == 200 &&
                span_eq(t->head.etag, f->x.etag);
    return same ? t->head.head : f->x.head;
}

static bool is_young(const struct fetch *f)
{
    return f->x.date_s > 0 && f->x.last_modified_s > 0 && f->x.date_s <= f->x.last_modified_s + 2;
}

/* A version's bytes never change, but a store that does not know of versions tells of what is
 * current. "null" is replaced like any object. */
static bool is_of_version(const struct fetch *f)
{
    struct span asked = f->contact->key.version;
    return asked.len > 0 && !span_is(asked, "null") &&
           span_eq(http_find(f->x.head, "x-amz-version-id"), asked);
}

/* Is that another generation than upstream's answer is about? */
static bool is_old(const struct object *o, const struct exchange *x, struct span tag)
{
    uint64_t size = x->has_range                              ? x->range_size
                    : x->head->status == 200 && x->has_length ? x->length
                                                              : o->size;
    return o->size != size || (tag.len > 0 && !span_eq(object_etag(o), tag));
}

/* The store has something that cannot be kept: who comes next shall not get what was there before.
 * What a write has overtaken, or another answer, tells nothing. */
static void forget_old(struct fetch *f)
{
    struct cache *cache = f->m.core->server->cache;
    struct span tag = f->x.etag;
    if (!cache_epoch_holds(cache, f->epoch))
        return;
    struct object *o = cache_find(cache, &f->contact->key);
    if (!o)
        return;
    if (span_starts(tag, span_of("W/")))
        tag = span_from(tag, 2);
    uint64_t checked = atomic_load_explicit(&o->checked_ms, memory_order_relaxed);
    /* A check ahead of the clock was made before that was set back. */
    bool late = f->x.sent_wall_ms < checked && checked <= clock_wall_ms();
    if (!late && is_old(o, &f->x, tag))
        cache_forget(cache, o);
    else if (!late && tag.len == 0)
        cache_doubt(cache, o);
    object_drop(cache, o);
}

static enum contact_turn not_storable(struct fetch *f)
{
    forget_old(f);
    return answer(f, ERR_UNSUPPORTED, NULL, NULL);
}

static enum err enter_object(struct fetch *f, uint64_t size)
{
    struct core *c = f->m.core;
    struct contact *t = f->contact;
    struct object_facts facts = {.size = size,
                                 .last_modified_s = f->x.last_modified_s,
                                 .asked_ms = f->x.sent_wall_ms,
                                 .etag = f->x.etag,
                                 .epoch = f->epoch};
    facts.flags = (is_of_version(f) ? OBJECT_STABLE : 0u) | (is_young(f) ? OBJECT_YOUNG : 0u);
    enum err kept = fill_headers_keep(richer_head(f), &t->arena, &facts.headers);
    if (kept != OK)                  /* too large, or nothing that could be told again */
        return kept == ERR_MEMORY ? kept : ERR_UNSUPPORTED;
    return cache_learn(c->server->cache, &t->key, &facts, &f->object);
}

/* ERR_UNSUPPORTED, ERR_FULL: it is passed through. */
static enum err learn_object(struct fetch *f, uint64_t size)
{
    enum err err = enter_object(f, size);
    if (err != OK && err != ERR_CHANGED)
        forget_old(f);
    return err;
}

/* Lists the fetch under its chunk; false if somebody fetches that already. */
static bool list_chunk(struct fetch *f, uint64_t size, uint64_t from)
{
    struct core *c = f->m.core;
    struct fill_shard *s;
    f->data_id = cache_data_id(c->server->cache, &f->contact->key, f->x.etag, size);
    f->number = from / CHUNK_BYTES;
    f->bytes = (uint32_t)min_u64(CHUNK_BYTES, size - f->number * CHUNK_BYTES);
    f->blocks = (f->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    f->shard = shard_of_chunk(f->data_id, f->number);
    f->at = (unsigned)(from % CHUNK_BYTES / BLOCK_BYTES);
    f->last = (unsigned)(min_u64(f->ask.to, size - 1) % CHUNK_BYTES / BLOCK_BYTES);
    s = fill_shard(c, f->shard);
    shard_lock(s);
    inflight_ask_locked(f, (struct part){f->at * (uint32_t)BLOCK_BYTES,
                                         f->last * (uint32_t)BLOCK_BYTES +
                                             chunk_block_bytes(f->bytes, f->last)});
    bool first = !inflight_find_locked(c, f);
    if (first)
        inflight_list_locked(s, f);
    shard_unlock(s);
    return first;
}

/* Whether the object that was learnt is the one these bytes belong to: a newer answer may have
 * overtaken this one. */
static bool is_ours(const struct fetch *f)
{
    return id_eq(f->object->data_id, f->data_id);
}

/* From where we asked, as far as we asked or to the object's end, and no other number of bytes. */
static bool is_asked_range(const struct fetch *f)
{
    const struct exchange *x = &f->x;

    return x->has_range && x->range_from == f->ask.from && x->range_to < x->range_size &&
           x->range_to == min_u64(f->ask.to, x->range_size - 1) &&
           (!x->has_length || x->length == x->range_to - x->range_from + 1);
}

static enum contact_turn distrust(struct fetch *f, const char *what)
{
    exchange_refuse(&f->x, what);
    return answer(f, ERR_UPSTREAM_PROTOCOL, NULL, NULL);
}

bool contact_awaits_head(const struct contact *t)
{
    return t->beside && !t->head.head_known && !t->head.failed && !exchange_is_queued(&t->head);
}

/* A reader who wants checksums, and nobody who tells them, or not now (ERR_BUSY): his own request
 * brings them. What is not compared is not kept, since nobody would find it damaged later. */
static enum err judge_head(const struct contact *t)
{
    if (!t->beside || t->head.head_known)
        return OK;
    return t->head.failed ? ERR_UNSUPPORTED : ERR_BUSY;
}

static enum contact_turn judge_bytes(struct fetch *f)
{
    struct exchange *x = &f->x;
    bool ranged = x->head->status == 206;
    enum err e = judge_head(f->contact);
    if (e != OK)
        return answer(f, e, NULL, NULL);
    if (ranged && !is_asked_range(f))
        return distrust(f, "not the range that was asked for");
    if (!ranged && !x->has_length)
        return not_storable(f);
    uint64_t size = ranged ? x->range_size : x->length;
    uint64_t from = ranged ? x->range_from : f->ask.from;
    if (size <= from) {              /* a 200 to a range behind the end, or an empty object */
        e = learn_object(f, size);
        return answer(f, e, f->object, NULL);
    }
    bool first = list_chunk(f, size, from);
    f->skip = ranged ? 0 : from;
    e = learn_object(f, size);
    bool useful = e == OK && is_ours(f);
    if (!useful && first)            /* readers of the same generation may have joined already */
        inflight_fail(f->m.core, f, ERR_CHANGED);
    answer(f, e, f->object, NULL);
    return useful && first ? CONTACT_BYTES : CONTACT_DONE;
}

enum contact_turn contact_judge(struct fetch *f)
{
    struct exchange *x = &f->x;
    uint16_t status = x->head->status;
    if (status == 416 && f->contact->kind == LEARN_GET) {
        f->contact->kind = LEARN_HEAD; /* empty, or shorter than the range: its size tells */
        f->contact->sums = false;
        return CONTACT_BY_HEAD;
    }
    if (status < 400 && status != 200 && (status != 206 || !f->ask.has_range))
        return distrust(f, "a status that was not asked for");
    if (status != 200 && status != 206)
        return CONTACT_ERROR;
    if (x->etag.len == 0 || !fill_storable(x->head))
        return not_storable(f);
    if (f->contact->kind == LEARN_GET)
        return judge_bytes(f);
    if (!x->has_length)
        return not_storable(f);
    enum err e = learn_object(f, x->length);
    return answer(f, e, f->object, NULL);
}
