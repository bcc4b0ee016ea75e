/* What is kept of an upload (write = "through"), so that it is a hit when it is read back: the
 * request's side of the cache's uploads.
 *
 * Invariants:
 *  1. Keeping never changes what upstream or the client hears; at worst nothing is kept.
 *  2. What was kept becomes the key's generation before the doubt of its own write ends, and before
 *     the client hears the outcome.
 *  3. Bodies that belong to whoever has their key (SSE-C) are not kept.
 *
 * Life: keep_begin() with the body, keep_settle() when the outcome is known, keep_end() with the
 * request.
 * Failure: memory is short, or the answer cannot be read: not kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#include "conf.h"
#include "xml.h"
#include "xml_body.h"

enum { ANSWER_BYTES_MAX = 16 * KIB, PART_TEXT_BYTES_MIN = 24 };

static struct req *req_of(struct relay *l)
{
    return container_of(l, struct req, relay);
}

static struct cache *cache_of(const struct relay *l)
{
    return l->m.core->server->cache;
}

static struct okey key_of(struct relay *l)
{
    const struct req *r = req_of(l);
    struct okey k = {.bucket = r->route.bucket,
                     .key = r->ask.key,
                     .upstream = (uint8_t)r->route.upstream};
    cache_key(cache_of(l), &k);
    return k;
}

static bool is_wanted(struct relay *l)
{
    const struct s3_ask *a = &req_of(l)->ask;
    const struct config *conf = l->m.core->settings->config;
    return a->level == S3_OBJECT && !a->bypass &&
           conf_bucket(conf, a->bucket, a->key)->write_through;
}

void keep_begin(struct relay *l)
{
    struct put *p = l->put;
    const struct s3_ask *a = &req_of(l)->ask;
    uint64_t bytes = p->facts.bytes;
    struct upload_place place;
    if ((a->op != PutObject && a->op != UploadPart) || bytes == 0 || !is_wanted(l))
        return;
    struct okey k = key_of(l);
    p->kept = a->op == PutObject ? upload_make(cache_of(l), &k, bytes, &place)
                                 : upload_part_begin(cache_of(l), &k, a->upload_id, a->part_number,
                                                     bytes, &place);
    if (p->kept)
        upload_stream_begin(&p->stream, cache_of(l), &place, &l->m, bytes);
}

/* ---- CompleteMultipartUpload ---- */

struct part_list {                     /* of the parts that the body names */
    struct upload_listed *part;
    uint32_t count, room;
    char *text;                      /* behind the parts: their ETags */
    size_t text_left;
};

static bool each(void *user, uint32_t number, struct span etag)
{
    struct part_list *d = user;
    if (d->count == d->room || etag.len > d->text_left)
        return false;
    memcpy(d->text, etag.at, etag.len);
    d->part[d->count++] = (struct upload_listed){number, span_make(d->text, etag.len)};
    d->text += etag.len;
    d->text_left -= etag.len;
    return true;
}

static bool read_list(const struct put *p, struct part_list *d)
{
    struct xml_body *b = xml_complete_open(each, d);
    if (!b)
        return false;
    bool good = xml_body_feed(b, span_make(p->whole, p->whole_len)) == OK && xml_body_end(b) == OK;
    xml_body_close(b);
    return good;
}

/* The ETag as S3 makes it of those of the parts, for stores that leave theirs out of the answer:
 * RGW does. Whether it is true is for the HEAD to tell that every kept upload waits for. */
static void expect_etag(struct put *p, const struct part_list *d)
{
    char *digests = (char *)(d->part + d->room); /* in place of the texts they are read from */
    struct text t;
    for (uint32_t i = 0; i < d->count; i++) {
        uint8_t one[MD5_BYTES];
        if (hex_read(d->part[i].etag, one, sizeof(one)) != OK)
            return;
        memcpy(digests + i * sizeof(one), one, sizeof(one));
    }
    uint8_t all[MD5_BYTES];
    md5(span_make(digests, d->count * sizeof(all)), all);
    hex_write(all, sizeof(all), p->etag);
    text_init(&t, p->etag + 2 * sizeof(all), sizeof(p->etag) - 2 * sizeof(all));
    text_addf(&t, "-%u", d->count);
}

void keep_complete(struct relay *l)
{
    struct put *p = l->put;
    struct part_list d = {.room = p->whole_len / PART_TEXT_BYTES_MIN + 1,
                          .text_left = p->whole_len};
    if (req_of(l)->ask.op != CompleteMultipartUpload || !is_wanted(l))
        return;
    d.part = mem_take(d.room * sizeof(*d.part) + d.text_left);
    if (!d.part)
        return;
    d.text = (char *)(d.part + d.room);
    struct okey k = key_of(l);
    if (read_list(p, &d))            /* else upstream judges it, and nothing is kept */
        p->kept = upload_complete_begin(cache_of(l), &k, req_of(l)->ask.upload_id, d.part, d.count,
                                        &p->kept_bytes);
    if (p->kept)
        expect_etag(p, &d);
    mem_give(d.part);
    p->answer = p->kept ? arena_take(&req_of(l)->arena, ANSWER_BYTES_MAX) : NULL;
}

/* The document may tell of a failure behind a status of 200, and it tells the ETag. */
void keep_answer(struct relay *l, const void *bytes, size_t len)
{
    struct put *p = l->put;
    if (!p->answer)
        return;
    if (len > ANSWER_BYTES_MAX - p->answer_len) {
        p->answer = NULL;
        return;
    }
    memcpy(p->answer + p->answer_len, bytes, len);
    p->answer_len += (uint32_t)len;
}

struct completed {
    struct put *put;
    bool good;
};

static bool leaf(void *user, struct span path, struct span text)
{
    struct completed *d = user;
    struct put *p = d->put;
    if (!span_is(path, "CompleteMultipartUploadResult/ETag"))
        return true;
    d->good = text.len < sizeof(p->etag) && (text.len > 0 || p->etag[0]);
    if (d->good && text.len > 0) {
        memcpy(p->etag, text.at, text.len);
        p->etag[text.len] = '\0';
    }
    return d->good;
}

/* The ETag of what was completed, or nothing. */
static struct span read_etag(struct put *p)
{
    struct completed d = {.put = p};
    struct span doc = span_make(p->answer, p->answer ? p->answer_len : 0);
    while (doc.len > 0 && (doc.at[0] == ' ' || doc.at[0] == '\n' || doc.at[0] == '\r'))
        doc = span_from(doc, 1);     /* patience that upstream dripped before the declaration */
    struct xml_reader *r = doc.len > 0 ? xml_open(ANSWER_BYTES_MAX, leaf, &d) : NULL;
    if (!r)
        return span_of("");
    bool good = xml_feed(r, doc) == OK && xml_end(r) == OK;
    xml_close(r);
    return good && d.good ? span_of(p->etag) : span_of("");
}

/* ---- the outcome ---- */

static bool publish(struct relay *l, struct span etag, uint64_t bytes)
{
    struct put *p = l->put;
    struct okey k = key_of(l);
    if (etag.len == 0 || upload_publish(cache_of(l), p->kept, &p->change[0], &k, etag, bytes))
        return true;
    machine_wake(&l->m);             /* the rest in the core's next turn */
    return false;
}

bool keep_settle(struct relay *l, bool good)
{
    struct put *p = l->put;
    const struct req *r = req_of(l);
    if (!upload_stream_over(&p->stream))
        return false;
    if (!p->kept) {
        struct okey k = key_of(l);
        if (good && (r->ask.op == AbortMultipartUpload || r->ask.op == CompleteMultipartUpload))
            upload_abort(cache_of(l), &k, r->ask.upload_id);
        return true;
    }
    struct span etag = span_of("");
    if (good)
        etag = r->ask.op == CompleteMultipartUpload ? read_etag(p) : l->x.etag;
    if (r->ask.op == UploadPart)
        upload_part_end(cache_of(l), p->kept, r->ask.part_number, etag);
    else if (!publish(l, etag, r->ask.op == PutObject ? p->facts.bytes : p->kept_bytes))
        return false;
    if (r->ask.op == PutObject)
        upload_drop(cache_of(l), p->kept);
    else if (r->ask.op == CompleteMultipartUpload)
        upload_complete_end(cache_of(l), p->kept, etag.len > 0);
    p->kept = NULL;
    return true;
}
