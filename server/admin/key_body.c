/* A list of keys on its way in: a change whose body is NDJSON. The first line is what else is
 * wanted, as it would be the whole body; each line behind it is one key, as a text or as an object
 * {"key":...,"etag":...,"size":...} of which only the key is needed.
 *
 * Invariants:
 *  1. Lines are read as they come: neither the body nor a line's JSON is held longer than needed.
 *  2. One bad line and nothing is begun; the first is told by its number and column.
 *  3. Who is not welcome brings no list: it is asked before a byte of it is taken.
 *
 * Life: one request's. Failure: told when the body is over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>

#include "server/admin/admin.h"

enum { KEY_LINE_BYTES = 16 * KIB };  /* a key whose every byte is escaped, and an ETag */

struct key_body {
    struct key_list *list;
    uint64_t line;                   /* number of the one that is being read */
    enum err err;                    /* ERR_SYNTAX, ERR_TOO_LARGE, ERR_MEMORY; why has the words */
    char why[200];
    size_t len;
    char text[KEY_LINE_BYTES];
};

struct key_body *key_body_begin(const struct visit *a)
{
    const char *type = MHD_lookup_connection_value(a->connection, MHD_HEADER_KIND, "Content-Type");
    struct span rest = span_of(type ? type : ""), word = span_trim(span_cut(&rest, ';'));
    struct admin_answer refusal = {0};

    if (strcmp(a->path, "/v1/prewarm") != 0 || !span_is_nocase(word, "application/x-ndjson"))
        return NULL;
    bool welcome = is_welcome(a, &refusal);
    mem_give(refusal.body.at);
    struct key_body *b = welcome ? mem_take(sizeof *b) : NULL;
    if (!b)
        return NULL;
    b->line = 1;
    b->list = key_list_make();
    if (b->list)
        return b;
    mem_give(b);
    return NULL;
}

void key_body_free(struct key_body *b)
{
    if (!b)
        return;
    key_list_free(b->list);
    mem_give(b);
}

static void fail(struct key_body *b, enum err err, int column, const char *what)
{
    struct text t;

    if (b->err != OK)
        return;
    b->err = err;
    text_init(&t, b->why, sizeof b->why);
    text_addf(&t, "line %llu, column %d: ", (unsigned long long)b->line, column > 0 ? column : 1);
    text_add_printable(&t, span_of(what), 120);
}

/* What a line says; false: one of its members is no such thing. */
static bool read_wish(const json_t *line, struct key_wish *out)
{
    const json_t *key = json_is_string(line) ? line : json_object_get(line, "key");
    const json_t *etag = json_object_get(line, "etag"), *size = json_object_get(line, "size");
    size_t known = json_is_string(line) ? 0 : 1U + (etag != NULL) + (size != NULL);

    *out = (struct key_wish){.size = KEY_SIZE_ANY, .etag = span_of("")};
    if (!json_is_string(key) || json_object_size(line) != known ||
        (etag && !json_is_string(etag)) ||
        (size && (!json_is_integer(size) || json_integer_value(size) < 0)))
        return false;
    out->key = span_make(json_string_value(key), json_string_length(key));
    if (etag)
        out->etag = span_make(json_string_value(etag), json_string_length(etag));
    if (size)
        out->size = (uint64_t)json_integer_value(size);
    return true;
}

static void take_line(struct key_body *b)
{
    struct key_wish wish;
    json_error_t error;

    if (span_trim(span_make(b->text, b->len)).len == 0)
        return;                      /* an empty line, as behind the last one */
    json_t *line = json_loadb(b->text, b->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!line) {
        fail(b, ERR_SYNTAX, error.column, error.text);
        return;
    }
    enum err err = read_wish(line, &wish) ? key_list_add(b->list, &wish) : ERR_SYNTAX;
    json_decref(line);
    if (err == ERR_SYNTAX)
        fail(b, err, 1, "no key: a text of 1 to 1024 bytes, or {\"key\":...,\"etag\":...,"
                        "\"size\":...}");
    else if (err == ERR_TOO_LARGE)
        fail(b, err, 1, "more than 500 000 keys, or 64 MiB of them: make several jobs");
    else if (err != OK)
        fail(b, err, 1, "there is no memory for the list");
}

/* The first line is the caller's. */
size_t key_body_take(struct key_body *b, struct span bytes)
{
    size_t own = 0;

    if (b->line == 1) {
        own = span_find(bytes, '\n');
        if (own == bytes.len)
            return own;
        b->line = 2;
        bytes = span_from(bytes, own + 1);
    }
    while (bytes.len > 0 && b->err == OK) {
        bool ends = span_find(bytes, '\n') < bytes.len;
        struct span part = span_cut(&bytes, '\n');
        if (part.len > sizeof b->text - b->len) {
            fail(b, ERR_SYNTAX, (int)sizeof b->text, "longer than a key can be");
            break;
        }
        if (part.len > 0)
            memcpy(b->text + b->len, part.at, part.len);
        b->len += part.len;
        if (!ends)
            break;
        take_line(b);
        b->len = 0;
        b->line++;
    }
    return own;
}

bool key_body_end(struct key_body *b, struct admin_answer *out)
{
    if (b->len > 0)
        take_line(b);
    b->len = 0;
    if (b->err == OK && key_list_count(b->list) == 0)
        fail(b, ERR_SYNTAX, 1, "the list has no key");
    if (b->err == OK)
        return true;
    bool large = b->err == ERR_TOO_LARGE, memory = b->err == ERR_MEMORY;
    answer_refuse(out, large ? MHD_HTTP_CONTENT_TOO_LARGE
                       : memory ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_BAD_REQUEST,
                  large ? "too_large" : memory ? "no_memory" : "bad_request", b->why,
                  "nothing was begun; the first line is the request, each further one a key");
    return false;
}

struct key_list *key_body_list(struct key_body *b)
{
    return b->list;
}
