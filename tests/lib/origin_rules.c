/* What the test origin answers: objects by name, knobs merged from rules, one plan per request.
 *
 * Invariants:
 *  1. origin_plan() decides everything under one lock, so version, size, ETag and bytes belong
 *     together.
 *  2. Objects and texts are never freed before origin_forget(): a plan borrows them.
 *  3. A `next` rule is used up by exactly one request each time.
 *
 * Life: objects are made by the script or by the first request for a key "...@SIZE".
 * Failure: without memory the process dies: it is an instrument, not a server. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/lib/origin_part.h"

enum { SKEW_S_MAX = 900 };

/* ---- objects ---- */

static struct object **slot_of(struct origin *o, struct span bucket, struct span key)
{
    struct object **at = &o->table[bytes_seed(bucket, key, 0) % ORIGIN_TABLE];

    while (*at && !(span_eq((*at)->bucket, bucket) && span_eq((*at)->key, key)))
        at = &(*at)->next;
    return at;
}

struct object *origin_object(struct origin *o, struct span bucket, struct span key, bool make)
{
    struct object **at = slot_of(o, bucket, key);

    if (*at || !make)
        return *at;
    struct object *obj = mem_take(sizeof *obj);
    char *name = mem_take(bucket.len + key.len + 1);
    must(obj && name);
    memcpy(name, bucket.at, bucket.len);
    memcpy(name + bucket.len, key.at, key.len);
    obj->bucket = span_make(name, bucket.len);
    obj->key = span_make(name + bucket.len, key.len);
    obj->version = 1;
    obj->modified_s = MODIFIED_STANDARD;
    if (!size_of_key(key, &obj->size))
        obj->size = 0;
    *at = obj;
    o->made++;
    return obj;
}

bool origin_has_bucket(struct origin *o, struct span bucket)
{
    for (unsigned i = 0; i < o->buckets; i++)
        if (span_eq(o->bucket[i], bucket))
            return true;
    return !o->closed_world;
}

/* The object that a request names, if it exists. */
static struct object *find_object(struct origin *o, const struct request *r)
{
    uint64_t size;

    if (!origin_has_bucket(o, r->bucket))
        return NULL;
    struct object *obj = origin_object(o, r->bucket, r->key, size_of_key(r->key, &size));

    if (!obj || obj->gone || (!obj->listed && !size_of_key(r->key, &size)))
        return NULL;
    return obj;
}

void origin_forget(struct origin *o)
{
    for (unsigned i = 0; i < ORIGIN_TABLE; i++)
        while (o->table[i]) {
            struct object *obj = o->table[i];
            o->table[i] = obj->next;
            mem_give((void *)(uintptr_t)obj->bucket.at);
            mem_give(obj);
        }
    for (unsigned i = 0; i < o->logged; i++)
        mem_give(o->log[i]);
    mem_give(o->log);
    mem_give(o->sorted);
}

/* ---- rules ---- */

static bool starts(struct span a, struct span prefix)
{
    return a.len >= prefix.len && memcmp(a.at, prefix.at, prefix.len) == 0;
}

/* where = "", "bucket" or "bucket/key-prefix" */
static bool rule_matches(const struct rule *rule, const struct request *r)
{
    struct span where = rule->where, bucket = r->bucket;

    if (rule->method.len > 0 && !span_eq(rule->method, r->method))
        return false;
    if (where.len <= bucket.len)
        return where.len == 0 || span_eq(where, bucket);
    return starts(where, bucket) && where.at[bucket.len] == '/' &&
           starts(r->key, span_make(where.at + bucket.len + 1, where.len - bucket.len - 1));
}

static void merge(struct knobs *into, const struct knobs *k)
{
    for (unsigned i = 0; i < NUMBER_COUNT; i++)
        if (k->numbers_set >> i & 1)
            into->number[i] = k->number[i];
    for (unsigned i = 0; i < TEXT_COUNT; i++)
        if (k->texts_set >> i & 1)
            into->text[i] = k->text[i];
    into->numbers_set |= k->numbers_set;
    into->texts_set |= k->texts_set;
    for (unsigned i = 0; i < k->headers && into->headers < KNOB_HEADERS_MAX; i++)
        into->header[into->headers++] = k->header[i];
}

static void merge_rules(struct origin *o, const struct request *r, struct knobs *out)
{
    *out = (struct knobs){0};
    for (const struct rule *rule = o->set; rule; rule = rule->next)
        if (rule_matches(rule, r))
            merge(out, &rule->knobs);
    for (struct rule *rule = o->once; rule; rule = rule->next) {
        if (rule->count == 0 || !rule_matches(rule, r))
            continue;
        if (rule->skip > 0) {
            rule->skip--;
            continue;
        }
        rule->count--;
        merge(out, &rule->knobs);
        return;
    }
}

/* ---- the plan ---- */

static const char *code_of(uint64_t status)
{
    static const struct {
        uint16_t status;
        const char *code;
    } known[] = {
        {301, "PermanentRedirect"}, {307, "TemporaryRedirect"}, {400, "InvalidRequest"},
        {403, "AccessDenied"}, {404, "NoSuchKey"}, {405, "MethodNotAllowed"},
        {409, "OperationAborted"}, {412, "PreconditionFailed"}, {416, "InvalidRange"},
        {429, "TooManyRequests"}, {500, "InternalError"}, {501, "NotImplemented"},
        {503, "SlowDown"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        if (known[i].status == status)
            return known[i].code;
    return "Error";
}

static void refuse(struct plan *p, uint16_t status, const char *code)
{
    p->status = status;
    p->code = code ? code : code_of(status);
}

/* Which generation this request sees. */
static void choose_version(struct object *obj, struct plan *p)
{
    uint64_t every = knob(&p->knobs, NUMBER_REPLACE);

    if (knob(&p->knobs, NUMBER_BUMP)) {
        obj->version++;
        obj->modified_s = clock_wall_s();
    }
    p->version = obj->version;
    p->modified_s = obj->modified_s;
    if (every > 0) {
        p->version = clock_ms() / every;
        p->modified_s = (clock_wall_ms() - clock_ms() + p->version * every) / 1000;
    }
}

/* ?versionId=N: an older generation by name. false: there is no such one. */
static bool choose_named_version(const struct request *r, struct plan *p)
{
    char text[32];
    uint64_t n;

    if (knob(&p->knobs, NUMBER_IGNORE_VERSION) ||
        !origin_query(r->query, "versionId", text, sizeof text) || strcmp(text, "null") == 0)
        return true;
    if (size_read(span_of(text), &n) != OK || n == 0 || n > p->version)
        return false;
    p->version = n;
    return true;
}

static void name_etag(const struct object *obj, struct plan *p)
{
    struct span literal = knob_text(&p->knobs, TEXT_ETAG);

    if (literal.len == 0 || span_is(literal, "none"))
        literal = obj->etag;
    if (literal.len > 0 && literal.len < sizeof p->etag) {
        memcpy(p->etag, literal.at, literal.len);
        p->etag[literal.len] = 0;
    } else if (!origin_sum_etag(p)) {
        bytes_etag(p->seed, p->version, p->etag);
    }
}

static bool tag_matches(struct span field, const char *etag)
{
    return span_is(field, "*") || span_is(field, etag);
}

/* Digits only; an empty text leaves the number as it is. */
static bool read_bound(struct span text, uint64_t *out)
{
    return text.len == 0 || span_u64(text, out) == OK;
}

/* bytes=a-b, bytes=a-, bytes=-n. false: 416. Anything else is ignored, as S3 does. */
static bool apply_range(struct span range, struct plan *p)
{
    struct span last = range, unit = span_cut(&last, '='), first = span_cut(&last, '-');
    uint64_t a = 0, b = UINT64_MAX - 1;

    p->from = 0;
    p->to = p->size;
    p->ranged = knob(&p->knobs, NUMBER_HALF);
    if (!span_is(unit, "bytes") || knob(&p->knobs, NUMBER_IGNORE_RANGE) ||
        span_find(range, '-') == range.len || first.len + last.len == 0)
        return true;
    if (!read_bound(first, &a) || !read_bound(last, &b) || (first.len > 0 && a > b))
        return true;
    if (first.len == 0) {
        if (b == 0 || p->size == 0)
            return false;
        a = b < p->size ? p->size - b : 0;
        b = p->size - 1;
    }
    if (a >= p->size)
        return false;
    a = min_u64(a + knob(&p->knobs, NUMBER_SHIFT), p->size - 1);
    p->from = a;
    p->to = min_u64(b + 1 + knob(&p->knobs, NUMBER_SHIFT), p->size);
    p->ranged = true;
    return true;
}

/* A store whose clock is wrong refuses what is signed by a right one, as S3 does. */
static bool is_skewed(const struct request *r, struct plan *p)
{
    struct span said = knob_text(&p->knobs, TEXT_CLOCK), rest = said;
    struct tm tm = {0};
    char text[24];
    uint64_t off = 0;

    p->clock_s = 0;
    if (said.len < 2)
        return false;
    rest = span_from(said, 1);
    if (size_read(rest, &off) == OK)
        p->clock_s = said.at[0] == '-' ? -(int64_t)off : (int64_t)off;
    snprintf(text, sizeof text, "%.*s", (int)min_u64(r->date.len, 20), r->date.at);
    if (!strptime(text, "%Y%m%dT%H%M%SZ", &tm))
        return r->date.len > 0;
    return llabs((int64_t)timegm(&tm) - (int64_t)clock_wall_s() - p->clock_s) > SKEW_S_MAX;
}

/* Signed by a key that may not do this. */
static bool is_other_key(const struct request *r, const struct plan *p)
{
    static const char name[] = "Credential=";
    struct span only = knob_text(&p->knobs, TEXT_ONLY), key = r->fields;
    const char *at = key.len > 0 ? memmem(key.at, key.len, name, strlen(name)) : NULL;

    if (only.len == 0)
        return false;
    key = at ? span_from(key, (size_t)(at - key.at) + strlen(name)) : span_of("");
    return !span_eq(span_cut(&key, '/'), only);
}

/* ---- writes ---- */

bool request_writes(const struct request *r)
{
    return !span_is(r->method, "GET") && !span_is(r->method, "HEAD");
}

static bool stores(const struct request *r)
{
    return r->kind == ASKED_OBJECT && r->query.len == 0 && !r->copies && span_is(r->method, "PUT");
}

static void plan_write(struct origin *o, const struct request *r, struct plan *p)
{
    bool document = knob_text(&p->knobs, TEXT_DOCUMENT).len > 0;
    struct object *obj = r->kind == ASKED_OBJECT ? find_object(o, r) : NULL;

    if (!origin_has_bucket(o, r->bucket))
        refuse(p, 404, "NoSuchBucket");
    else if (r->kind != ASKED_OBJECT || span_is(r->method, "POST"))
        refuse(p, document ? 200 : 501, NULL);
    if (p->status != 200 || r->kind != ASKED_OBJECT)
        return;
    if (obj) {
        p->seed = bytes_seed(obj->bucket, obj->key, obj->version);
        p->version = obj->version;
        name_etag(obj, p);
    }
    bool clash = obj && span_is(r->if_none_match, "*");
    bool other = r->if_match.len > 0 && !(obj && tag_matches(r->if_match, p->etag));
    if (clash || other)
        refuse(p, 412, NULL);
    else if (span_is(r->method, "DELETE") && !knob(&p->knobs, NUMBER_STATUS)) {
        p->status = 204;
        if (obj && r->query.len == 0) {
            obj->gone = true;
            mem_give(o->sorted);
            o->sorted = NULL;
        }
    }
}

void origin_store(struct origin *o, const struct request *r, uint64_t version, uint64_t size,
                  struct plan *p)
{
    if (p->status != 200 || !stores(r))
        return;
    pthread_mutex_lock(&o->lock);
    struct object *obj = origin_object(o, r->bucket, r->key, true);
    obj->size = size;
    obj->version = version ? version : obj->version + 1;
    obj->modified_s = clock_wall_s();
    obj->etag = span_of("");
    obj->headers = 0;
    obj->gone = false;
    obj->listed = true;
    mem_give(o->sorted);
    o->sorted = NULL;
    p->version = obj->version;
    p->seed = bytes_seed(obj->bucket, obj->key, obj->version);
    name_etag(obj, p);
    pthread_mutex_unlock(&o->lock);
}

static void plan_object(struct origin *o, const struct request *r, struct plan *p)
{
    struct object *obj = find_object(o, r);

    if (!obj) {
        refuse(p, 404, origin_has_bucket(o, r->bucket) ? "NoSuchKey" : "NoSuchBucket");
        return;
    }
    p->object = obj;
    obj->requests++;
    for (unsigned i = 0; i < obj->headers && p->knobs.headers < KNOB_HEADERS_MAX; i++)
        p->knobs.header[p->knobs.headers++] = obj->header[i];
    choose_version(obj, p);
    if (!choose_named_version(r, p)) {
        refuse(p, 404, "NoSuchVersion");
        return;
    }
    p->size = obj->size + p->version % 7 * knob(&p->knobs, NUMBER_VARY);
    p->seed = bytes_seed(obj->bucket, obj->key, p->version);
    name_etag(obj, p);
    bool conditions = !knob(&p->knobs, NUMBER_IGNORE_MATCH);
    if (conditions && r->if_match.len > 0 && !tag_matches(r->if_match, p->etag))
        refuse(p, 412, NULL);
    else if (conditions && r->if_none_match.len > 0 && tag_matches(r->if_none_match, p->etag))
        refuse(p, 304, NULL);
    else if (!apply_range(r->range, p))
        refuse(p, 416, NULL);
    else
        p->status = p->ranged ? 206 : 200;
    if (knob(&p->knobs, NUMBER_HALF))
        p->to = p->from + (p->to - p->from + 1) / 2;
}

static void count(struct origin *o, const struct request *r)
{
    struct origin_stats *s = &o->stats;

    s->requests++;
    if (r->kind == ASKED_LIST)
        s->list++;
    else if (span_is(r->method, "GET") && r->kind == ASKED_OBJECT)
        s->get++;
    else if (span_is(r->method, "HEAD") && r->kind == ASKED_OBJECT)
        s->head++;
    else
        s->other++;
    s->put += span_is(r->method, "PUT");
}

void origin_plan(struct origin *o, const struct request *r, struct plan *p)
{
    p->status = 200;
    p->code = NULL;
    p->object = NULL;
    p->size = p->from = p->to = p->modified_s = 0;
    p->ranged = false;
    p->etag[0] = 0;
    pthread_mutex_lock(&o->lock);
    count(o, r);
    merge_rules(o, r, &p->knobs);
    if (request_writes(r))
        plan_write(o, r, p);
    else if (r->kind == ASKED_OBJECT)
        plan_object(o, r, p);
    else if (r->kind != ASKED_BUCKETS && !origin_has_bucket(o, r->bucket))
        refuse(p, 404, "NoSuchBucket");
    if (knob_text(&p->knobs, TEXT_REDIRECT).len > 0)
        refuse(p, 307, NULL);
    uint64_t most = knob(&p->knobs, NUMBER_MOST);
    if (is_other_key(r, p))
        refuse(p, 403, "AccessDenied");
    if (is_skewed(r, p))
        refuse(p, 403, "RequestTimeTooSkewed");
    if (most && o->stats.running >= most)
        refuse(p, 503, "SlowDown");
    else if (knob(&p->knobs, NUMBER_STATUS))
        refuse(p, (uint16_t)knob(&p->knobs, NUMBER_STATUS), NULL);
    pthread_mutex_unlock(&o->lock);
}

/* ---- the list of requests ---- */

static bool is_told(struct span name)
{
    struct span own = span_of("x-"), content = span_of("content-");
    static const char *const hidden[] = {"x-amz-date", "x-amz-security-token", "content-length"};

    for (unsigned i = 0; i < ARRAY_COUNT(hidden); i++)
        if (span_is_nocase(name, hidden[i]))
            return false;
    return (name.len > own.len && strncasecmp(name.at, own.at, own.len) == 0) ||
           (name.len > content.len && strncasecmp(name.at, content.at, content.len) == 0);
}

static void add_write(struct text *t, const struct request *r)
{
    struct span rest = r->fields;
    bool is_signed = false;

    text_addf(t, " length=%llu%s", (unsigned long long)r->length, r->expect ? " expect" : "");
    while (rest.len > 0) {
        struct span value = span_cut(&rest, '\n'), name = span_cut(&value, ':');
        while (value.len > 0 && value.at[0] == ' ')
            value = span_from(value, 1);
        if (value.len > 0 && value.at[value.len - 1] == '\r')
            value.len--;
        is_signed |= span_is_nocase(name, "authorization");
        if (!is_told(name))
            continue;
        text_addc(t, ' ');
        for (size_t i = 0; i < name.len; i++)
            text_addc(t, (char)tolower((uint8_t)name.at[i]));
        text_addc(t, '=');
        text_add(t, value);
    }
    text_adds(t, is_signed ? " signed" : "");
}

void origin_note_line(struct origin *o, struct span line)
{
    char *copy = mem_copy(line);
    must(copy);
    pthread_mutex_lock(&o->lock);
    bool room = o->log_on && o->logged < ORIGIN_LOG_MAX;
    if (room && (o->logged & (o->logged - 1)) == 0) {   /* doubles at powers of two */
        o->log = mem_grow(o->log, (o->logged ? o->logged * 2 : 1) * sizeof *o->log);
        must(o->log);
    }
    if (room)
        o->log[o->logged++] = copy;
    pthread_mutex_unlock(&o->lock);
    if (!room)
        mem_give(copy);
}

void origin_note(struct origin *o, const struct request *r)
{
    char line[ORIGIN_LINE_MAX];
    struct text t;

    if (!o->log_on)
        return;
    text_init(&t, line, sizeof line);
    text_add(&t, r->method);
    text_addc(&t, ' ');
    text_add(&t, r->target);
    if (r->range.len > 0) {
        text_adds(&t, " range=");
        text_add(&t, r->range);
    }
    if (r->if_match.len > 0) {
        text_adds(&t, " if-match=");
        text_add(&t, r->if_match);
    }
    if (r->checksum_mode)
        text_adds(&t, " checksum-mode");
    if (request_writes(r))
        add_write(&t, r);
    origin_note_line(o, text_span(&t));
}
