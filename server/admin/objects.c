/* /v1/objects: what of a bucket is here, page by page.
 *
 * Invariants:
 *  1. A page looks at a bounded part of the index, in the order of its tables, and says where the
 *     next one goes on: no page takes long, however much is cached, and none sorts.
 *  2. Names are those of clients; where a bucket leads is asked of the routes.
 *
 * Life: one request's. Failure: a prefix without bucket is refused with what to write. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <microhttpd.h>

#include "http.h"
#include "server/admin/admin.h"

enum {
    PAGE_BYTES = 4 * MIB,
    /* one object at most: key and version as \u00xx, ETag, numbers */
    OBJECT_BYTES = 6 * (2 * KEY_BYTES_MAX + 300) + 400,
    LOOKS_MAX = 512,                 /* slices of the index per page */
    LIMIT_STANDARD = 1000,
    LIMIT_MAX = 10000,
};
_Static_assert(PAGE_BYTES > 2 * CACHE_WALK_MAX * OBJECT_BYTES, "a page holds a slice and more");

struct question {                    /* what is asked for */
    struct span bucket, prefix;      /* the store's bucket; what keys begin with */
    uint8_t store;
};

static bool fits(const struct question *q, const struct object *o)
{
    return o->store == q->store && span_eq(object_bucket(o), q->bucket) &&
        span_starts(object_key(o), q->prefix);
}

static void add_object(struct text *t, struct cache *c, const struct object *o)
{
    struct cache_held held = {0};
    char date[25];

    cache_measure(c, o, &held, UINT32_MAX);
    iso_date_write(object_read_s(o) * 1000, date);
    text_adds(t, t->at[t->len - 1] == '[' ? "{" : ",{");
    json_text(t, "key", object_key(o));
    if (object_version(o).len)
        json_text(t, "version", object_version(o));
    json_u64(t, "size", o->size);
    json_u64(t, "cached", held.bytes);
    json_text(t, "etag", object_etag(o));
    json_text(t, "last_read", span_of(date));
    json_bool(t, "pinned", held.pinned);
    text_addc(t, '}');
}

/* The page; where the next one begins. */
static uint64_t add_objects(struct text *t, struct cache *c, const struct question *q, uint64_t at,
                            uint64_t limit)
{
    struct object *o[CACHE_WALK_MAX];
    uint64_t added = 0;

    const struct okey below = {.store = q->store, .bucket = q->bucket, .key = q->prefix};
    const struct cache_wanted wanted = {.below = &below};

    for (unsigned looks = 0; at != CACHE_WALK_OVER && added < limit && looks < LOOKS_MAX; looks++) {
        if (t->cap - t->len < (size_t)CACHE_WALK_MAX * OBJECT_BYTES)
            break;
        unsigned count = cache_walk(c, &at, o, &wanted);
        for (unsigned i = 0; i < count; i++) {
            if (fits(q, o[i])) {
                add_object(t, c, o[i]);
                added++;
            }
            object_leave(c, o[i]);
        }
    }
    return at;
}

/* A number of the query; what is not given is `standard`. */
static bool read_number(const struct visit *v, const char *key, uint64_t standard, uint64_t *out)
{
    struct span text = visit_query(v, key);

    *out = standard;
    return text.len == 0 || span_u64(text, out) == OK;
}

static bool refuse_state(const struct visit *v, struct admin_answer *out)
{
    struct span state = visit_query(v, "state");

    if (state.len == 0 || span_is(state, "cached"))
        return false;
    if (span_is(state, "missing"))
        answer_refuse(out, MHD_HTTP_NOT_IMPLEMENTED, "not_implemented",
                      "what is not here is told by the store's list alone",
                      "headpond ls --missing compares a list through the S3 port with this one");
    else
        answer_refuse(out, MHD_HTTP_UNPROCESSABLE_CONTENT, "bad_request",
                      "state is cached or missing", "leave it out");
    return true;
}

void answer_objects(const struct visit *v, struct admin_answer *out)
{
    const struct server *s = v->door->server;
    struct question q = {.prefix = visit_query(v, "prefix")};
    struct span bucket = span_cut(&q.prefix, '/');
    struct conf_route route;
    uint64_t after, limit;

    if (refuse_state(v, out))
        return;
    if (bucket.len == 0 || !read_number(v, "after", 0, &after) ||
        !read_number(v, "limit", LIMIT_STANDARD, &limit) || limit == 0 || limit > LIMIT_MAX) {
        answer_refuse(out, MHD_HTTP_UNPROCESSABLE_CONTENT, "bad_request",
                      "prefix must be BUCKET or BUCKET/PREFIX, limit 1 to 10000, after a `next`",
                      "write /v1/objects?prefix=train-data/imagenet/");
        return;
    }
    if (!conf_route(s->config, bucket, &route)) {
        answer_refuse(out, MHD_HTTP_NOT_FOUND, "not_found", "no upstream has this bucket",
                      "GET /v1/config shows what the upstreams match");
        return;
    }
    q.bucket = route.bucket;
    q.store = s->store_of[route.upstream];
    if (!answer_room(out, PAGE_BYTES))
        return;
    text_addc(&out->body, '{');
    json_u64(&out->body, "v", 1);
    json_text(&out->body, "bucket", bucket);
    json_open(&out->body, "objects", '[');
    uint64_t next = add_objects(&out->body, s->cache, &q, after, limit);
    text_addc(&out->body, ']');
    if (next != CACHE_WALK_OVER)
        json_u64(&out->body, "next", next);
    text_adds(&out->body, "}\n");
}
