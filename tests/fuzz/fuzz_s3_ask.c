/* Any bytes as a request head: what is asked, who may, what is answered.
 * The first byte chooses the style: odd = virtual hosts below "cache.local". */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#include "creds.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct s3_gate gate;
static struct secret secret;
static struct arena arena;
static struct s3_stamp stamp;
static char arena_bytes[32 * KIB];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    demand(sign_setup_thread() == OK);
    random_bytes(secret.bytes, 40);
    secret.len = 40;
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 64 * KIB);
    s3_stamp_make(&stamp, "Fri, 20 Nov 2026 09:16:23 GMT", 1);
    return 0;
}

static bool is_printable(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (((uint8_t)text.at[i] < ' ' && text.at[i] != '\t') || text.at[i] == 0x7f)
            return false;
    return true;
}

/* Names have one encoding, and nothing but '&' parts them. */
static void check_relayed(struct span query)
{
    static char name[HTTP_TARGET_BYTES_MAX], again[3 * HTTP_TARGET_BYTES_MAX + 1];
    struct uri_pair pair;
    struct text t;
    size_t len = 0;
    while (uri_next_pair(&query, &pair)) {
        demand(uri_decode(pair.name, true, name, sizeof(name), &len) == OK);
        text_init(&t, again, sizeof(again));
        uri_encode(&t, span_make(name, len), false);
        demand(span_eq(text_span(&t), pair.name));
        demand(span_find(pair.value, ';') == pair.value.len);
    }
}

static void check_ask(const struct s3_ask *a)
{
    const char *condition = "";
    struct span query;
    demand(a->op < S3_OPERATION_COUNT);
    demand(a->bucket.len <= BUCKET_BYTES_MAX && a->key.len <= KEY_BYTES_MAX);
    demand((a->level == S3_OBJECT) == (a->key.len > 0));
    demand((a->level == S3_SERVICE) == (a->bucket.len == 0));
    for (size_t i = 0; i < a->bucket.len; i++)
        demand(a->bucket.at[i] != '/' && a->bucket.at[i] > ' ');
    demand(a->key.len == 0 || !memchr(a->key.at, 0, a->key.len));
    for (unsigned i = 0; i < S3_OVERRIDE_COUNT; i++)
        demand(is_printable(a->overrides[i]) && (!a->overrides[i].at || a->has_override));
    demand(is_printable(a->version) && a->part_number <= 10000);
    uint16_t status = s3_conditions(a, span_of("\"e-2\""), 1795000000, 1795166183, &condition);
    demand(status == 200 || status == 304 || (status == 412 && condition[0]));
    demand(s3_range(a, span_of("\"e-2\""), 1795000000).len <= a->range.len);
    demand(s3_query_relay(a, &arena, &query) == OK && query.len <= 3 * a->query.len);
    check_relayed(query);
}

/* A head has one empty line, at its end, and nothing that the client smuggled in. */
static void check_answer(const struct text *t, size_t head_len)
{
    size_t used;
    static struct http_head answer;
    demand(!t->over && http_parse_response(t->at, t->len, true, &answer, &used) == HTTP_OK);
    demand(head_len == 0 || used == head_len);
    demand(!http_find(&answer, "x-smuggled").at);
}

static void check_error(const struct s3_error *e)
{
    static char bytes[S3_ERROR_BYTES];
    struct text t;
    demand(e->status >= 400 && e->status < 600 && e->code && e->message);
    text_init(&t, bytes, sizeof(bytes));
    s3_reply_error(&t, e, &stamp, false, true);
    check_answer(&t, 0);
}

static void check_object(const struct s3_ask *a)
{
    static char bytes[32 * KIB];
    struct text t;
    struct s3_reply r = {.status = a->range.len ? 206 : 200, .to = 9, .size = 100,
                         .x_cache = "hit"};
    text_init(&t, bytes, sizeof(bytes));
    demand(s3_reply_object(&t, &r, &stamp, a, span_of("\"e-2\""), 1795000000,
                          span_of("content-type: a/b\r\nx-amz-checksum-crc32: AAAA\r\n")) == OK);
    check_answer(&t, t.len);
    demand(r.status == 200 || !strstr(t.at, "checksum"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_head head;
    struct s3_ask ask;
    struct s3_error error = {0};
    struct s3_who who = {.anonymous_allowed = true, .now_s = 1795166183};
    size_t used;
    if (size < 2 || http_parse_request((const char *)data + 1, size - 1, &head, &used) != HTTP_OK)
        return 0;
    arena_reset(&arena);
    if (s3_ask_read(&head, data[0] & 1 ? "cache.local" : "", &arena, &ask, &error) != OK) {
        check_error(&error);
        return 0;
    }
    check_ask(&ask);
    s3_gate_open(&gate, NULL, span_of("AKUP"), &secret, 900);
    if (s3_authorize(&gate, &head, &ask, &who, &arena, &error) != OK)
        check_error(&error);
    else
        demand(who.anonymous);        /* nobody guesses 40 random bytes */
    if (s3_operation_table[ask.op].action == S3_SERVE)
        check_object(&ask);
    s3_not_implemented(&ask, &arena, &error);
    check_error(&error);
    return 0;
}
