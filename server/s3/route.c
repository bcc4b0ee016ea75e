/* Which upstream has a bucket, and by what name: of the request, and of what it copies from. And
 * what follows from another name there: the source that goes upstream, and the names in its
 * answers.
 *
 * Invariants:
 *  1. Decided once per request, behind its authorisation: rights, settings of buckets and what the
 *     client hears go by the client's names; the cache and upstream by the store's.
 *  2. No store is asked what it would take for a call of its administration, as our credentials
 *     may have more rights there than the client has here.
 *  3. Nothing of a store's own name is shown to a client in documents whose place for it we know.
 *
 * Life: what is made lives in the request's arena.
 * Failure: an S3 error; ERR_MEMORY. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

static bool refuse(struct s3_error *e, uint16_t status, const char *code, const char *message)
{
    e->status = status;
    e->code = code;
    e->message = message;
    return false;
}

/* The source as its store calls it; only made anew if it is called differently there. */
static bool write_source(struct req *r, const struct s3_source *s, struct span bucket)
{
    size_t cap = 3 * (bucket.len + s->key.len + s->version.len) + 16;
    char *memory = arena_take(&r->arena, cap);
    struct text t;
    if (!memory)
        return false;
    text_init(&t, memory, cap);
    text_addc(&t, '/');
    uri_encode(&t, bucket, false);
    text_addc(&t, '/');
    uri_encode(&t, s->key, true);
    if (s->version.len > 0) {
        text_adds(&t, "?versionId=");
        uri_encode(&t, s->version, false);
    }
    must(!t.over);
    r->source = text_span(&t);
    return true;
}

/* Several sections may lead to one store. It is asked with the credentials of the target's. */
static bool is_same_store(const struct req *r, unsigned upstream)
{
    const struct server *s = r->core->server;
    return s->store_of[upstream] == s->store_of[r->route.upstream];
}

static bool route_source(struct req *r, struct s3_error *e)
{
    const struct config *conf = r->core->settings->config;
    struct s3_source s;
    struct conf_route from;
    enum err err = s3_source_read(&r->ask, &r->arena, &s);
    if (err == ERR_SYNTAX)
        return refuse(e, 400, "InvalidArgument", "The source of the copy names no object.");
    if (err == OK && !conf_route(conf, s.bucket, &from))
        return refuse(e, 404, "NoSuchBucket", "The source's bucket does not exist");
    if (err == OK && !is_same_store(r, from.upstream))
        return refuse(e, 501, "NotImplemented",
                      "The source's bucket is at another upstream than the target's, and no store "
                      "copies from another one: download the object and upload it, for example "
                      "with aws s3 cp by way of a file, or with rclone copy.");
    if (err == OK && (span_eq(from.bucket, s.bucket) || write_source(r, &s, from.bucket)))
        return true;
    s3_error_of(ERR_MEMORY, e);
    return false;
}

bool s3_route(struct req *r, struct s3_error *e)
{
    const struct config *conf = r->core->settings->config;
    r->route = (struct conf_route){0, r->ask.bucket};
    r->source = span_of("");
    *e = (struct s3_error){.bucket = r->ask.bucket, .resource = r->ask.path};
    if (r->ask.bucket.len > 0 && !conf_route(conf, r->ask.bucket, &r->route))
        return r->ask.op == CreateBucket
                   ? refuse(e, 403, "AccessDenied",
                            "Access Denied. No upstream is configured for buckets of this name: "
                            "no upstream.match has it, and there is no [[upstream]] without match.")
                   : refuse(e, 404, "NoSuchBucket", "The specified bucket does not exist");
    if (r->ask.bucket.len > 0 && conf_is_reserved(conf, &r->route, r->ask.key))
        return refuse(e, 403, "AccessDenied",
                      "Access Denied. The name is reserved for the administration of the store, "
                      "of which nothing is asked by way of this server. If it is a bucket of your "
                      "store, take the name out of upstream.reserved.");
    bool copies = conf->upstream_count > 1 || conf->upstream[0].match.count > 0;
    return r->ask.source.len == 0 || !copies || route_source(r, e);
}

/* ---- what goes upstream ---- */

void route_fields(const struct req *r, struct http_field *field, unsigned count)
{
    for (unsigned i = 0; r->source.len > 0 && i < count; i++)
        if (span_is_nocase(field[i].name, "x-amz-copy-source") ||
            span_is_nocase(field[i].name, "x-amz-rename-source"))
            field[i].value = r->source;
}

/* ---- what comes back ---- */

static bool is_renamed(const struct req *r)
{
    return !span_eq(r->route.bucket, r->ask.bucket);
}

static struct span escaped(struct req *r, struct span text)
{
    char *memory = arena_take(&r->arena, XML_RENAME_TEXT_BYTES);
    struct text t;
    if (!memory)
        return span_of("");
    text_init(&t, memory, XML_RENAME_TEXT_BYTES);
    xml_escape(&t, text);
    return t.over ? span_of("/") : text_span(&t);
}

/* Where the client finds the object: what a completed upload tells. */
static struct span location_of(struct req *r)
{
    char memory[XML_RENAME_TEXT_BYTES];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    text_adds(&t, r->core->settings->tls ? "https://" : "http://");
    text_add(&t, http_find(r->head, "host"));
    text_addc(&t, '/');
    if (!r->ask.virtual_host) {
        uri_encode(&t, r->ask.bucket, false);
        text_addc(&t, '/');
    }
    uri_encode(&t, r->ask.key, true);
    return escaped(r, t.over ? span_of("/") : text_span(&t));
}

bool route_answer(struct relay *l)
{
    struct req *r = container_of(l, struct req, relay);
    struct http_head *h = l->x.head;
    if (!is_renamed(r))
        return true;
    for (unsigned i = 0; i < h->count; i++)
        if (span_is_nocase(h->field[i].name, "location"))
            h->field[i].value = span_of("/"); /* of a bucket that was made; by its store's name */
    bool bytes = s3_operation_table[r->ask.op].action == S3_SERVE ||
                 r->ask.op == GetObjectAnnotation; /* the client's own, whatever they look like */
    if ((bytes && h->status < 300) || l->no_body)
        return true;
    struct xml_rename *x = arena_take(&r->arena, sizeof(*x));
    struct span from = escaped(r, r->route.bucket), to = escaped(r, r->ask.bucket),
                location = location_of(r);
    if (!x || from.len == 0 || to.len == 0 || location.len == 0)
        return false;
    xml_rename_open(x, from, to, location);
    l->rename = x;
    return true;
}

enum err route_answer_bytes(struct relay *l, void *mem, uint32_t *len)
{
    size_t out;
    if (!l->rename)
        return OK;
    struct span in = span_make((char *)mem + XML_RENAME_GROWTH, *len);
    enum err e = xml_rename_feed(l->rename, in, mem, &out);
    *len = (uint32_t)out;
    return e == OK ? OK : ERR_UPSTREAM_PROTOCOL;
}
