/* headpond ls, du: what of a bucket is here, beside what the store lists.
 *
 * Invariants:
 *  1. What is here is told by the control plane, page by page; what the store has is its list
 *     through the S3 port, as any client without a signature gets it. They are joined here, so that
 *     the server holds neither for the other.
 *  2. Keys reach a terminal only through text_add_printable().
 *
 * Life: one run. Failure: the exit codes of ctl.h; a list that the S3 port refuses says what would
 * do without it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>

#include "http.h"
#include "units.h"
#include "xml.h"

enum {
    LS_PATH_BYTES = 8 * KIB,
    LS_PAGE = 10000,
    LS_ITEMS_MIN = 1024,
    LS_KEY_BYTES = 1100,             /* as shown */
    LS_LISTED_BYTES = 3 * KEY_BYTES_MAX, /* percent-encoded */
};

void item_free(struct item *one)
{
    mem_give(one->key);
    mem_give(one->etag);
}

void items_free(struct items *s)
{
    for (size_t i = 0; i < s->count; i++)
        item_free(&s->item[i]);
    mem_give(s->item);
    *s = (struct items){0};
}

struct item *items_add(struct items *s, struct span key)
{
    if (s->count == s->room) {
        size_t room = max_u64(2 * s->room, LS_ITEMS_MIN);
        struct item *grown = mem_grow(s->item, room * sizeof *grown);
        if (grown) {
            s->item = grown;
            s->room = room;
        }
    }
    char *copy = s->count < s->room ? mem_copy(key) : NULL;
    s->no_memory = s->no_memory || !copy;
    if (!copy)
        return NULL;
    s->item[s->count] = (struct item){.key = copy};
    return &s->item[s->count++];
}

static int by_key(const void *x, const void *y)
{
    const struct item *a = x, *b = y;
    int order = strcmp(a->key, b->key);

    return order ? order : (int)a->here - (int)b->here;
}

/* Of one key the listed and the cached become one. */
static void join_items(struct items *s)
{
    size_t kept = 0;

    if (s->count)
        qsort(s->item, s->count, sizeof *s->item, by_key);
    for (size_t i = 0; i < s->count; i++) {
        struct item *last = kept ? &s->item[kept - 1] : NULL;
        if (!last || strcmp(last->key, s->item[i].key) != 0) {
            s->item[kept++] = s->item[i];
            continue;
        }
        struct item *more = &s->item[i];
        if (more->here && more->cached >= last->cached)
            memcpy(last->last_read, more->last_read, sizeof last->last_read);
        last->size = last->listed ? last->size : more->size;
        last->cached = max_u64(last->cached, more->cached);
        last->here = last->here || more->here;
        last->listed = last->listed || more->listed;
        last->pinned = last->pinned || more->pinned;
        item_free(more);
    }
    s->count = kept;
}

/* ---- what is here ---- */
static void take_page(struct items *s, const json_t *answer)
{
    const json_t *objects = json_object_get(answer, "objects");

    for (size_t i = 0; i < json_array_size(objects); i++) {
        const json_t *o = json_array_get(objects, i);
        struct item *item = items_add(s, span_of(value_text(o, "key")));
        if (!item)
            return;
        item->here = true;
        item->size = value_u64(o, "size");
        item->cached = value_u64(o, "cached");
        item->pinned = value_true(o, "pinned");
        snprintf(item->last_read, sizeof item->last_read, "%s", value_text(o, "last_read"));
    }
}

/* CTL_DONE, or the exit code; the reason was told. */
static int read_cached(struct ctl *c, struct span place, struct items *s)
{
    char path[LS_PATH_BYTES];
    uint64_t after = 0;

    for (;;) {
        struct reply r = {0};
        struct text t;
        int code = CTL_DONE;
        text_init(&t, path, sizeof path);
        text_addf(&t, "/v1/objects?limit=%d&after=%llu&prefix=", LS_PAGE,
                  (unsigned long long)after);
        uri_encode(&t, place, true);
        json_t *answer = t.over ? NULL : client_json(c, path, &r, &code);
        if (!answer)
            return t.over ? CTL_USAGE : code;
        take_page(s, answer);
        bool more = json_object_get(answer, "next") != NULL && !s->no_memory;
        after = value_u64(answer, "next");
        json_decref(answer);
        reply_free(&r);
        if (!more)
            return CTL_DONE;
    }
}

/* ---- what the store lists ---- */
static bool take_leaf(void *user, struct span path, struct span text)
{
    struct listed *l = user;
    uint64_t size;

    if (span_is(path, "ListBucketResult/Contents/Key")) {
        l->last = text.len > LS_LISTED_BYTES ? NULL : items_add(l->items, text);
        if (l->last)
            l->last->listed = true;
        return l->last != NULL;
    }
    if (span_is(path, "ListBucketResult/Contents/Size") && l->last && span_u64(text, &size) == OK)
        l->last->size = size;
    else if (span_is(path, "ListBucketResult/IsTruncated"))
        l->truncated = span_is(text, "true");
    else if (span_is(path, "ListBucketResult/EncodingType"))
        l->encoded = span_is(text, "url");
    else if (span_is(path, "ListBucketResult/NextContinuationToken"))
        keep_text(l->token, sizeof l->token, text);
    return true;
}

/* Whether keys are encoded may be said behind them. In place: what is decoded is never longer. */
static bool decode_keys(struct listed *l, size_t from)
{
    char key[LS_LISTED_BYTES + 1];
    size_t len;

    for (size_t i = from; l->encoded && i < l->items->count; i++) {
        char *to = l->items->item[i].key;
        if (uri_decode(span_of(to), true, key, sizeof key, &len) != OK)
            return false;
        memcpy(to, key, len);
        to[len] = '\0';
    }
    return true;
}

bool list_read(struct listed *l, struct span document)
{
    struct xml_reader *r = xml_open(REPLY_BYTES_MAX, take_leaf, l);
    size_t from = l->items->count;
    char before[sizeof l->token];

    memcpy(before, l->token, sizeof before);
    l->truncated = l->encoded = false;
    l->token[0] = '\0';
    l->wrong = "what came is no list of objects";
    bool good = r && xml_feed(r, document) == OK && xml_end(r) == OK && decode_keys(l, from);
    if (good && l->truncated && (!l->token[0] || strcmp(l->token, before) == 0)) {
        l->wrong = "the store says that its list goes on, but not where";
        good = false;
    }
    if (r)
        xml_close(r);
    return good;
}

void list_query(struct text *t, struct span prefix, const char *token)
{
    text_adds(t, "list-type=2&encoding-type=url&prefix=");
    uri_encode(t, prefix, false);
    if (token[0]) {
        text_adds(t, "&continuation-token=");
        uri_encode(t, span_of(token), false);
    }
}

static int fail_list(const char *url, const char *why)
{
    fprintf(stderr, "headpond: the list of %s: %s; headpond ls --cached needs none\n", url, why);
    return CTL_FAILED;
}

static int refuse_list(const char *url, unsigned status)
{
    if (status == 404)
        fprintf(stderr, "headpond: there is no such bucket at the store\n");
    else if (status == 403)
        fprintf(stderr, "headpond: %s refuses a list without a signature (auth.anonymous); "
                        "headpond ls --cached needs none\n", url);
    else
        fprintf(stderr, "headpond: %s answers the list with %u; headpond ls --cached needs none\n",
                url, status);
    return status == 404 ? CTL_NOT_FOUND : status == 403 ? CTL_DENIED : CTL_FAILED;
}

/* Page after page. */
static int read_pages(struct ctl *c, const char *url, struct span place, struct items *s)
{
    char path[LS_PATH_BYTES], why[CTL_WHY_BYTES];
    struct listed l = {.items = s};

    do {
        struct reply r = {0};
        struct text t;
        text_init(&t, path, sizeof path);
        struct span prefix = place, bucket = span_cut(&prefix, '/');
        text_addc(&t, '/');
        uri_encode(&t, bucket, false);
        text_addc(&t, '?');
        list_query(&t, prefix, l.token);
        enum err e = t.over ? ERR_TOO_LARGE : client_get(url, path, c->timeout_ms, &r, why);
        if (e != OK)
            return fail_list(url, t.over ? "the prefix is too long" : why);
        unsigned status = r.status;
        bool good = status == 200 && list_read(&l, span_make(r.body, r.len));
        reply_free(&r);
        if (status != 200)
            return refuse_list(url, status);
        if (!good && !s->no_memory)
            return fail_list(url, l.wrong);
    } while (l.truncated && !s->no_memory);
    return CTL_DONE;
}

static int read_listed(struct ctl *c, struct span place, struct items *s)
{
    struct reply r = {0};
    int code = CTL_DONE;
    json_t *status = client_json(c, "/v1/status", &r, &code);
    const char *url = value_text(status, "s3_url");

    if (!status)
        return code;
    if (xml_setup() != OK)
        code = fail_list(url, "no memory");
    else if (strncmp(url, "http://", 7) != 0)
        code = fail_list(url[0] ? url : "the S3 port",
                         url[0] ? "it speaks TLS, which this command does not"
                             : "its address is not known");
    else
        code = read_pages(c, url, place, s);
    json_decref(status);
    reply_free(&r);
    return code;
}

/* ---- ls ---- */
static void add_key(struct text *t, const struct item *o)
{
    text_add_printable(t, span_of(o->key), LS_KEY_BYTES);
}

static void print_json_item(struct span bucket, const struct item *o)
{
    json_t *line = json_pack("{s:i,s:s%,s:o,s:I,s:I,s:b,s:s}", "v", 1, "bucket", bucket.at,
                             bucket.len, "key", key_json(span_of(o->key)), "size",
                             (json_int_t)o->size, "cached", (json_int_t)o->cached, "pinned",
                             (int)o->pinned, "last_read", o->last_read);

    ctl_print_json(line);
    json_decref(line);
}

static void print_item(const struct ctl *c, const struct item *o)
{
    char memory[2 * KIB];
    struct text t;

    text_init(&t, memory, sizeof memory);
    if (c->long_) {
        text_addf(&t, "%3.0f %%  %c  ", o->size ? 100.0 * (double)o->cached / (double)o->size
                      : o->here ? 100 : 0, o->pinned ? 'p' : '-');
        size_t at = t.len, minutes = strlen("2026-11-21T08:00");
        const char *read = o->here ? o->last_read : "-";
        text_add_printable(&t, span_make(read, min_u64(strlen(read), minutes)), minutes);
        while (t.len < at + minutes + 1)
            text_addc(&t, ' ');
        at = t.len;
        units_bytes(&t, o->size);
        while (t.len < at + 12)
            text_addc(&t, ' ');
    }
    add_key(&t, o);
    printf("%.*s\n", (int)t.len, t.at);
}

/* What is here, and what is listed, unless only one of them was asked for. */
static int gather(struct ctl *c, struct items *s, struct span *place, bool listed)
{
    if (!place_read(c->word[0], place)) {
        fprintf(stderr, "headpond: \"%.80s\" names no bucket; write s3://BUCKET/PREFIX\n",
                c->word[0]);
        return CTL_USAGE;
    }
    int code = read_cached(c, *place, s);
    if (code == CTL_DONE && listed)
        code = read_listed(c, *place, s);
    if (code == CTL_DONE && s->no_memory) {
        fprintf(stderr, "headpond: not enough memory for the list; take a longer prefix\n");
        code = CTL_FAILED;
    }
    if (code == CTL_DONE)
        join_items(s);
    return code;
}

int ls_run(struct ctl *c)
{
    struct items s = {0};
    struct span place;
    int code = gather(c, &s, &place, !c->cached);

    for (size_t i = 0; code == CTL_DONE && i < s.count; i++) {
        const struct item *o = &s.item[i];
        bool whole = o->here && o->cached >= o->size;
        if (c->missing ? whole || !o->listed : c->cached && !o->here)
            continue;
        if (c->json)
            print_json_item(span_cut(&(struct span){place.at, place.len}, '/'), o);
        else
            print_item(c, o);
    }
    items_free(&s);
    return code;
}

/* ---- du ---- */
/* How much of the key the group of that depth has: up to and with its last "/" behind from, where
 * a key ends that is not below the prefix (a store may send what it likes). */
static size_t group_len(const char *key, size_t from, unsigned depth)
{
    size_t len = min_u64(from, strlen(key));

    for (unsigned i = 0; i < depth; i++) {
        const char *slash = strchr(key + len, '/');
        if (!slash)
            break;
        len = (size_t)(slash - key) + 1;
    }
    return len;
}

struct sum {
    uint64_t objects, size, cached;
};

static void print_sum_of(const struct ctl *c, struct span bucket, struct span group,
                         const struct sum *sum)
{
    char memory[2 * KIB];
    struct text t;

    if (c->json) {
        json_t *line = json_pack("{s:i,s:s%,s:o,s:I,s:I,s:I}", "v", 1, "bucket", bucket.at,
                                 bucket.len, "prefix", key_json(group), "objects",
                                 (json_int_t)sum->objects, "size", (json_int_t)sum->size, "cached",
                                 (json_int_t)sum->cached);
        ctl_print_json(line);
        json_decref(line);
        return;
    }
    text_init(&t, memory, sizeof memory);
    units_bytes_of(&t, sum->cached, sum->size);
    while (t.len < 24)
        text_addc(&t, ' ');
    text_addf(&t, " %8llu objects  ", (unsigned long long)sum->objects);
    text_add_printable(&t, bucket, BUCKET_BYTES_MAX);
    text_addc(&t, '/');
    text_add_printable(&t, group, LS_KEY_BYTES);
    printf("%.*s\n", (int)t.len, t.at);
}

int du_run(struct ctl *c)
{
    struct items s = {0};
    struct span place;
    int code = gather(c, &s, &place, !c->cached);
    struct sum sum = {0};

    for (size_t i = 0; code == CTL_DONE && i < s.count; i++) {
        struct span prefix = place, bucket = span_cut(&prefix, '/');
        const char *key = s.item[i].key, *next = i + 1 < s.count ? s.item[i + 1].key : NULL;
        size_t len = group_len(key, prefix.len, c->depth);
        bool last = !next || strncmp(key, next, len) != 0 ||
                    group_len(next, prefix.len, c->depth) != len;
        sum.objects++;
        sum.size += s.item[i].size;
        sum.cached += s.item[i].cached;
        if (!last)
            continue;
        print_sum_of(c, bucket, span_make(key, len), &sum);
        sum = (struct sum){0};
    }
    items_free(&s);
    return code;
}
