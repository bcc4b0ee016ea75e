/* A loader's plan on its way in: one JSON document, or lines of it (NDJSON), of which the first is
 * the document without its streams and each further one {"stream":N,"keys":[...]}.
 *
 * Invariants:
 *  1. A member that nobody knows, or of another type, is a mistake, told with its place: the line,
 *     or the byte where the document cannot be read. The first mistake is the one that is told.
 *  2. A line, or the document, is held as text and as JSON; of lines only one at a time.
 *
 * Life: one request's. Failure: told when the body is over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>

#include "server/jobs/jobs.h"

enum {
    TEXT_FIRST = 64 * KIB,
    TEXT_MOST = 16 * MIB,            /* of a line, or of the document */
    /* As JSON: keys of 20 bytes take six times their text. What is nested or empty may take eighty
     * times it, and is no plan. */
    JSON_MOST = 256 * MIB,
    EXPIRES_S = 24 * 3600,
    EXPIRES_S_MOST = 366 * 24 * 3600,
};

struct plan_body {
    struct server *server;
    const struct plan_right *right;  /* borrowed; NULL: everything */
    struct plan *plan;               /* NULL: the facts did not come yet */
    bool lines;
    uint64_t line;                   /* the one that is being read */
    enum err err;
    char why[300];
    char *text;
    size_t len, room;
};

struct plan_body *plan_body_make(struct server *s, bool lines, const struct plan_right *right)
{
    struct plan_body *b = mem_take(sizeof *b);

    if (b)
        *b = (struct plan_body){.server = s, .right = right, .lines = lines, .line = 1};
    return b;
}

void plan_body_free(struct plan_body *b)
{
    if (!b)
        return;
    plans_give_up(b->plan);
    mem_give(b->text);
    mem_give(b);
}

const char *plan_body_why(const struct plan_body *b)
{
    return b->why;
}

/* ---- mistakes ---- */
static void mistake(struct plan_body *b, enum err err, const char *place, const char *what)
{
    struct text t;

    if (b->err != OK)
        return;
    b->err = err;
    text_init(&t, b->why, sizeof b->why);
    if (b->lines)
        text_addf(&t, "line %llu: ", (unsigned long long)b->line);
    text_add_printable(&t, span_of(place), 80);
    text_adds(&t, place[0] ? ": " : "");
    text_add_printable(&t, span_of(what), 160);
}

static void mistake_in(struct plan_body *b, const char *name, const char *wants)
{
    mistake(b, ERR_SYNTAX, name, wants);
}

/* ---- values ---- */
static bool read_number(struct plan_body *b, const char *name, const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        mistake_in(b, name, "a whole number from 0 on is wanted");
        return false;
    }
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_text(struct plan_body *b, const char *name, const json_t *value, char *out,
                      size_t cap)
{
    if (!json_is_string(value) || json_string_length(value) == 0 ||
        json_string_length(value) >= cap) {
        mistake_in(b, name, "a text is wanted, not empty and not longer than a name of S3 can be");
        return false;
    }
    memcpy(out, json_string_value(value), json_string_length(value) + 1);
    return true;
}

/* ---- entries ---- */
/* [[from,length],...] into ranges; *count of them. */
static bool read_ranges(const json_t *list, struct plan_range *range, unsigned *count)
{
    size_t i;
    const json_t *one;

    if (!json_is_array(list) || json_array_size(list) == 0 ||
        json_array_size(list) > PLAN_RANGES_MAX)
        return false;
    json_array_foreach(list, i, one) {
        const json_t *from = json_array_get(one, 0), *length = json_array_get(one, 1);
        if (json_array_size(one) != 2 || !json_is_integer(from) || !json_is_integer(length) ||
            json_integer_value(from) < 0 || json_integer_value(length) <= 0)
            return false;
        range[i] = (struct plan_range){(uint64_t)json_integer_value(from),
                                       (uint64_t)json_integer_value(length)};
    }
    *count = (unsigned)json_array_size(list);
    return true;
}

static bool read_item(const json_t *value, struct plan_range *range, struct plan_item *out)
{
    const json_t *key = json_is_string(value) ? value : json_object_get(value, "key");
    const json_t *ranges = json_object_get(value, "ranges");
    size_t known = json_is_string(value) ? 0 : 1U + (ranges != NULL);

    if (!json_is_string(key) || json_object_size(value) != known ||
        (ranges && !read_ranges(ranges, range, &out->range_count)))
        return false;
    out->key = span_make(json_string_value(key), json_string_length(key));
    out->range = range;
    return true;
}

/* What a stream reads. */
static void read_keys(struct plan_body *b, uint64_t stream, const json_t *keys)
{
    struct plan_range range[PLAN_RANGES_MAX];
    const json_t *one;
    char place[80];
    size_t i;

    if (!json_is_array(keys) || stream >= PLAN_STREAMS_MAX) {
        mistake_in(b, "stream", "a number from 0 to 4095 and a list of keys are wanted");
        return;
    }
    json_array_foreach(keys, i, one) {
        struct plan_item item = {.stream = (uint32_t)stream};
        enum err err = read_item(one, range, &item) ? plans_add(b->plan, &item) : ERR_SYNTAX;
        if (err == OK)
            continue;
        snprintf(place, sizeof place, "stream %llu, entry %zu", (unsigned long long)stream, i);
        mistake(b, err, place,
             err == ERR_SYNTAX ? "no key of S3: a text, or {\"key\":...,\"ranges\":[[from,length],"
                                 "...]}, with the prefix 1 to 1024 bytes"
             : err == ERR_TOO_LARGE ? "all plans together hold at most 2 000 000 entries, and 256 "
                                      "MiB of memory"
                                    : "there is no memory for the plan");
        return;
    }
}

static void read_streams(struct plan_body *b, const json_t *streams)
{
    const json_t *keys;
    size_t i;

    if (!json_is_array(streams)) {
        mistake_in(b, "streams", "a list of lists of keys is wanted");
        return;
    }
    json_array_foreach(streams, i, keys) {
        if (b->err == OK)
            read_keys(b, i, keys);
    }
}

/* ---- facts ---- */
static bool read_fact(struct plan_body *b, const char *name, const json_t *value,
                      struct plan_facts *f)
{
    if (strcmp(name, "job") == 0)
        return read_text(b, name, value, f->job, sizeof f->job);
    if (strcmp(name, "prefix") == 0)
        return read_text(b, name, value, f->prefix, sizeof f->prefix);
    if (strcmp(name, "epoch") == 0)
        return read_number(b, name, value, &f->epoch);
    if (strcmp(name, "horizon_objects") == 0)
        return read_number(b, name, value, &f->horizon);
    if (strcmp(name, "rate_bytes_per_s") == 0)
        return read_number(b, name, value, &f->rate);
    if (strcmp(name, "expires_s") == 0)
        return read_number(b, name, value, &f->expires_s);
    if (strcmp(name, "from") == 0)
        return read_number(b, name, value, &f->from);
    if (strcmp(name, "streams") == 0 && !b->lines)
        return true;
    mistake(b, ERR_SYNTAX, name, "no member of a plan's document");
    return false;
}

/* Into b->plan, but for the streams. */
static void read_facts(struct plan_body *b, json_t *document)
{
    struct plan_facts f = {.expires_s = EXPIRES_S};
    const struct plan_right *right = b->right;
    const char *name;
    json_t *value;
    bool good = json_is_object(document);

    if (!good)
        mistake(b, ERR_SYNTAX, "", "the document is no JSON object");
    json_object_foreach(document, name, value) {
        good = good && read_fact(b, name, value, &f);
    }
    if (good && (!f.job[0] || !f.prefix[0] || !json_object_get(document, "epoch")))
        mistake(b, ERR_SYNTAX, "", "a plan names its job, epoch and prefix");
    if (good && (f.expires_s == 0 || f.expires_s > EXPIRES_S_MOST))
        mistake_in(b, "expires_s", "from 1 second to 366 days is wanted");
    if (b->err == OK && right && !right->may(right, f.prefix))
        mistake(b, ERR_DENIED, "prefix", "the key may not read all that begins so");
    if (b->err != OK)
        return;
    f.profile = right ? right->profile : 0;
    enum err err = plans_begin(b->server, &f, &b->plan);
    if (err == ERR_SYNTAX)
        mistake_in(b, "job", "1 to 128 of A-Z a-z 0-9 . _ - are wanted");
    else if (err == ERR_NOT_FOUND)
        mistake(b, err, "prefix", "no upstream has that bucket");
    else if (err != OK)
        mistake(b, err, "", "there is no memory for the plan");
}

/* ---- documents ---- */
static json_t *parse(struct plan_body *b)
{
    json_error_t error;
    char place[80];

    json_set_alloc_funcs(mem_plain, mem_plain_give); /* as everywhere: which tells refusals */
    mem_plain_refused();
    mem_plain_limit(JSON_MOST);
    json_t *value = json_loadb(b->text ? b->text : "", b->len, JSON_REJECT_DUPLICATES, &error);
    bool over = mem_plain_unlimit();
    if (value)
        return value;
    if (over) {
        mistake(b, ERR_TOO_LARGE, "",
                b->lines ? "a line takes more than 256 MiB of memory: spread it over several"
                         : "the document takes more than 256 MiB of memory: send lines "
                           "(application/x-ndjson)");
        return NULL;
    }
    if (mem_plain_refused()) {
        mistake(b, ERR_MEMORY, "", "there is no memory for the plan");
        return NULL;
    }
    if (b->lines)
        snprintf(place, sizeof place, "column %d", error.column > 0 ? error.column : 1);
    else
        snprintf(place, sizeof place, "byte %d", error.position);
    mistake(b, ERR_SYNTAX, place, error.text);
    return NULL;
}

static void read_document(struct plan_body *b)
{
    json_t *document = parse(b);

    if (!document)
        return;
    read_facts(b, document);
    if (b->err == OK)
        read_streams(b, json_object_get(document, "streams"));
    json_decref(document);
}

static void read_line(struct plan_body *b)
{
    uint64_t stream = 0;

    if (b->line > 1 && span_trim(span_make(b->text, b->len)).len == 0)
        return;                      /* an empty one, as behind the last */
    json_t *line = parse(b);
    if (!line)
        return;
    if (b->line == 1)
        read_facts(b, line);
    else if (json_object_size(line) != 2 || !json_object_get(line, "stream") ||
             !json_object_get(line, "keys"))
        mistake(b, ERR_SYNTAX, "", "{\"stream\":N,\"keys\":[...]} is wanted");
    else if (read_number(b, "stream", json_object_get(line, "stream"), &stream))
        read_keys(b, stream, json_object_get(line, "keys"));
    json_decref(line);
}

/* ---- the body ---- */
static bool keep(struct plan_body *b, struct span bytes)
{
    if (bytes.len > TEXT_MOST - b->len) {
        mistake(b, ERR_TOO_LARGE, "",
             b->lines ? "a line has at most 16 MiB: spread a stream's keys over several"
                      : "a document has at most 16 MiB: send lines (application/x-ndjson)");
        return false;
    }
    if (b->len + bytes.len > b->room) {
        size_t room = (size_t)min_u64(max_u64(2 * b->room + bytes.len, TEXT_FIRST), TEXT_MOST);
        char *grown = mem_grow(b->text, room);
        if (!grown) {
            mistake(b, ERR_MEMORY, "", "there is no memory for the plan");
            return false;
        }
        b->text = grown;
        b->room = room;
    }
    if (bytes.len > 0)
        memcpy(b->text + b->len, bytes.at, bytes.len);
    b->len += bytes.len;
    return true;
}

bool plan_body_take(struct plan_body *b, struct span bytes)
{
    if (b->err == OK && !b->lines) {
        keep(b, bytes);
        return b->err == OK;
    }
    while (bytes.len > 0 && b->err == OK) {
        bool ends = span_find(bytes, '\n') < bytes.len;
        if (!keep(b, span_cut(&bytes, '\n')) || !ends)
            break;
        read_line(b);
        b->len = 0;
        b->line++;
    }
    return b->err == OK;
}

enum err plan_body_end(struct plan_body *b, struct plan **out)
{
    if (b->err == OK && !b->lines)
        read_document(b);
    else if (b->err == OK && (b->len > 0 || b->line == 1))
        read_line(b);
    *out = b->err == OK ? b->plan : NULL;
    if (*out)
        b->plan = NULL;
    return b->err;
}
