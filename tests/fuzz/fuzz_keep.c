/* From an upstream's head to a client's: what is kept of any answer fits into a head of ours as
 * whole fields, once read back it is kept as the same, and what is relayed cannot add a field. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/reply.c"

#include "tests/fuzz/fuzz.h"

static struct s3_stamp stamp;

/* An answer of ours, read as a client reads it. */
static const struct http_head *read_back(const struct text *t)
{
    static struct http_head head;
    size_t used = 0;
    demand(!t->over && http_parse_response(t->at, t->len, true, &head, &used) == HTTP_OK);
    demand(used == t->len);
    return &head;
}

static void check_kept(const struct http_head *upstream, struct arena *arena)
{
    static char memory[64 * KIB];
    static struct http_head copy;
    struct span kept, again;
    struct text t;
    size_t used;
    const struct s3_ask ask = {.checksum_mode = true};
    const struct s3_reply r = {.status = 200, .to = 9, .size = 10, .x_cache = "miss"};
    if (fill_headers_keep(upstream, arena, &kept) != OK)
        return;
    demand(kept.len <= KEPT_BYTES_MAX);
    text_init(&t, memory, sizeof(memory));
    demand(s3_reply_object(&t, &r, &stamp, &ask, span_of("\"e\""), 1795000000, kept) == OK);
    const struct http_head *ours = read_back(&t);
    demand(ours->count <= upstream->count + 16u);
    unsigned at = 0, length = 0;
    struct span value;
    while (http_next(ours, "content-length", &at, &value))
        length++;
    demand(length == 1 && ours->length == 10);
    text_init(&t, memory, sizeof(memory));
    text_adds(&t, "HTTP/1.1 200 OK\r\n");
    text_add(&t, kept);
    text_adds(&t, "\r\n");
    demand(http_parse_response(t.at, t.len, true, &copy, &used) == HTTP_OK && used == t.len);
    demand(fill_headers_keep(&copy, arena, &again) == OK && span_eq(kept, again));
}

static void check_relayed(const struct http_head *upstream)
{
    static char memory[256 * KIB];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    s3_reply_begin(&t, upstream->status, &stamp);
    s3_headers_relay(&t, upstream, true);
    text_adds(&t, "\r\n");
    if (upstream->count > HTTP_FIELDS_MAX - 8 || t.len > 60 * KIB || upstream->status < 200)
        return;
    const struct http_head *ours = read_back(&t);
    demand(ours->status == upstream->status && ours->count <= upstream->count + 4u);
    demand(!http_find(ours, "transfer-encoding").at && !http_find(ours, "connection").at);
    demand(!http_find(ours, "set-cookie").at);
    demand(upstream->status / 100 != 3 || !http_find(ours, "location").at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_head head;
    static char arena_bytes[64 * KIB];
    struct arena arena;
    size_t used;
    if (!stamp.date)
        s3_stamp_make(&stamp, "Fri, 20 Nov 2026 09:16:23 GMT", 1);
    char *bytes = exact_copy(data, size);
    if (http_parse_response(bytes, size, true, &head, &used) == HTTP_OK) {
        arena_init(&arena, arena_bytes, sizeof(arena_bytes), 256 * KIB);
        (void)fill_storable(&head);
        check_kept(&head, &arena);
        check_relayed(&head);
        arena_reset(&arena);
    }
    exact_give(bytes);
    return 0;
}
