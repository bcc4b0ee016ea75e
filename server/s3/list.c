/* Lists of objects from memory: which answers of relay.c are kept, and who may have them again.
 *
 * Invariants:
 *  1. What is found was asked for with the same question, in the same words but for the order of
 *     its parameters and their escapes, with the same fields, and with the same credentials of
 *     ours.
 *     Who asks was authorised before, as for a relay: rights are never part of what is kept.
 *  2. Kept is a 200 whose document came whole, as its framing and its last tag say.
 *  3. Nothing waits for this: without memory a list is relayed as ever.
 *
 * Life: list_open() before upstream is asked; the listing belongs to the relay until list_close().
 * Failure: none that anybody hears of. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf.h"
#include "creds.h"
#include "server/s3/s3.h"

enum { PAIRS_MAX = 16, QUESTION_BYTES_MAX = 4 * KIB, HEAD_BYTES_MAX = 2 * KIB };

static struct req *req_of(struct relay *l)
{
    return container_of(l, struct req, relay);
}

static struct cache *cache_of(const struct relay *l)
{
    return l->m.core->server->cache;
}

static uint64_t ttl_of(struct relay *l)
{
    const struct s3_ask *a = &req_of(l)->ask;
    struct span prefix = a->prefix;
    if (a->prefix_ambiguous)         /* who knows what the store takes the plus for */
        prefix.len = span_find(prefix, ' ');
    return conf_list_ttl_ms(l->m.core->settings->config, a->bucket, prefix);
}

static bool is_wanted(struct relay *l)
{
    const struct s3_ask *a = &req_of(l)->ask;
    bool lists = a->op == ListObjects || a->op == ListObjectsV2 || a->op == ListObjectVersions;
    return lists && !a->bypass && !l->put && !l->has_range && !l->conditional && ttl_of(l) > 0;
}

/* ---- what is asked ---- */

/* Escaped in one way only. A bare '+' stays: it is a blank to some stores. */
static void add_value(struct text *t, struct span value, struct arena *arena)
{
    size_t len = 0;
    char *memory = arena_take(arena, value.len + 1);
    if (memory && span_find(value, '+') == value.len &&
        uri_decode(value, false, memory, value.len, &len) == OK)
        uri_encode(t, span_make(memory, len), false);
    else
        text_add(t, value);
}

static bool stands_before(struct span a, struct span b)
{
    int order = memcmp(a.at, b.at, min_u64(a.len, b.len));
    return order < 0 || (order == 0 && a.len < b.len);
}

/* The parameters in the order of their names; each stands once. */
static bool add_query(struct text *t, struct span query, struct arena *arena)
{
    struct uri_pair pair[PAIRS_MAX + 1];
    unsigned count = 0;
    while (count <= PAIRS_MAX && uri_next_pair(&query, &pair[count])) {
        struct uri_pair one = pair[count];
        unsigned at = count++;
        for (; at > 0 && stands_before(one.name, pair[at - 1].name); at--)
            pair[at] = pair[at - 1];
        pair[at] = one;
    }
    for (unsigned i = 0; i < count; i++) {
        text_addc(t, '&');
        text_add(t, pair[i].name);
        text_addc(t, '=');
        add_value(t, pair[i].value, arena);
    }
    return count <= PAIRS_MAX;
}

/* The question in one text, in the arena. False: it is too long, or memory is short. */
static bool write_question(struct relay *l, struct span *out)
{
    struct req *r = req_of(l);
    char *memory = arena_take(&r->arena, QUESTION_BYTES_MAX);
    struct text t;
    if (!memory)
        return false;
    text_init(&t, memory, QUESTION_BYTES_MAX);
    text_adds(&t, s3_operation_table[r->ask.op].name);
    if (!span_eq(r->route.bucket, r->ask.bucket)) {
        text_addc(&t, ' ');          /* the document tells the client's name */
        text_add(&t, r->ask.bucket);
    }
    bool good = add_query(&t, l->ask.query, &r->arena);
    for (unsigned i = 0; i < l->ask.field_count; i++) {
        text_addc(&t, '\n');
        text_add(&t, l->ask.field[i].name);
        text_addc(&t, ':');
        text_add(&t, l->ask.field[i].value);
    }
    *out = text_span(&t);
    return good && !t.over;
}

static const struct creds *creds_of(struct relay *l)
{
    const struct settings *t = l->m.core->settings;
    const struct req *r = req_of(l);
    unsigned profile = r->who.profile;
    if (profile == 0)
        return settings_creds(t, r->route.upstream);
    return profile < t->profile_count ? t->profile[profile].creds : NULL;
}

static bool name_it(struct relay *l, struct okey *k)
{
    const struct req *r = req_of(l);
    const struct creds *creds = creds_of(l);
    struct span question;
    if (!write_question(l, &question))
        return false;
    *k = (struct okey){.bucket = r->route.bucket, .upstream = (uint8_t)r->route.upstream,
                       .key = question,
                       .version = span_of(creds ? creds->access_key : "")};
    cache_key(cache_of(l), k);
    return true;
}

bool list_open(struct relay *l)
{
    struct req *r = req_of(l);
    struct okey k;
    if (!is_wanted(l) || !name_it(l, &k))
        return false;
    uint64_t now_ms = l->m.core->now_ms;
    l->listing = listing_find(cache_of(l), &k, now_ms, ttl_of(l));
    r->result = l->listing ? RESULT_HIT : RESULT_MISS;
    r->x_cache = l->listing ? "hit" : "miss";
    l->list_here = l->listing;
    l->list_wanted = !l->list_here;
    if (l->list_wanted) {
        l->list_name = k;
        listing_note(cache_of(l), &l->list_note, &k, now_ms);
    }
    return l->list_here;
}

void list_write_head(struct relay *l)
{
    struct req *r = req_of(l);
    uint64_t now_ms = l->m.core->now_ms, asked_ms = l->listing->note.asked_ms;
    r->status = 200;
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_begin(&r->out, 200, &r->stamp);
    text_add(&r->out, l->listing->head);
    text_adds(&r->out, "Content-Length: ");
    text_addu(&r->out, l->listing->body.len);
    text_adds(&r->out, "\r\nAge: ");
    text_addu(&r->out, now_ms > asked_ms ? (now_ms - asked_ms) / 1000 : 0);
    text_adds(&r->out, "\r\nx-cache: hit\r\n");
    text_adds(&r->out, r->close ? "Connection: close\r\n\r\n" : "\r\n");
}

/* ---- what upstream answers ---- */

void list_begin(struct relay *l)
{
    const struct http_head *h = l->x.head;
    char head[HEAD_BYTES_MAX];
    struct text t;
    if (!l->list_wanted)
        return;
    bool framed = l->x.has_length || h->framing == HTTP_BODY_CHUNKED;
    if (h->status != 200 || l->no_body || !framed || http_find(h, "content-encoding").len > 0)
        return;
    text_init(&t, head, sizeof(head));
    s3_headers_keep(&t, h);
    if (!t.over)
        l->listing = listing_make(cache_of(l), &l->list_name, &l->list_note, text_span(&t));
}

void list_add(struct relay *l, const void *bytes, size_t len)
{
    if (!l->listing || listing_add(cache_of(l), l->listing, bytes, len))
        return;
    list_close(l);
}

/* A document may be an error's, or break off behind a status of 200. */
static bool is_whole(struct span doc)
{
    static const char *const ends[] = {"</ListBucketResult>", "</ListVersionsResult>"};
    while (doc.len > 0 && (doc.at[doc.len - 1] == '\n' || doc.at[doc.len - 1] == '\r'))
        doc.len--;
    for (unsigned i = 0; i < ARRAY_COUNT(ends); i++) {
        struct span end = span_of(ends[i]);
        if (doc.len > end.len && span_eq(span_from(doc, doc.len - end.len), end))
            return true;
    }
    return false;
}

void list_end(struct relay *l)
{
    if (l->listing && is_whole(l->listing->body))
        listing_keep(cache_of(l), l->listing);
    list_close(l);
}

void list_close(struct relay *l)
{
    listing_drop(cache_of(l), l->listing);
    l->listing = NULL;
}
