/* Keys that want out: whatever bytes are a key, the client's side, the cache and each kind of
 * upstream see one and the same, and none of them is ever a way out of a bucket's directory.
 *
 * The first byte odd: all bytes are escaped, else only what must be. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#include "tests/fuzz/fuzz.h"
#include "tests/lib/key_paths.h"

static char arena_bytes[32 * KIB];

/* The target of a request for the key. */
static void write_target(struct text *t, struct span key, unsigned style)
{
    static const char digits[] = "0123456789abcdef";
    text_adds(t, "GET /bucket/");
    for (size_t i = 0; i < key.len; i++) {
        uint8_t c = (uint8_t)key.at[i];
        bool raw = c > ' ' && c < 0x7f && !strchr("%#?", c);
        if (raw && !(style & 1)) {
            text_addc(t, (char)c);
        } else {
            text_addc(t, '%');
            text_addc(t, digits[c >> 4]);
            text_addc(t, digits[c & 15]);
        }
    }
    text_adds(t, " HTTP/1.1\r\nHost: a\r\n\r\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_head head;
    static char request[16 * KIB];
    struct text t;
    struct arena arena;
    struct s3_ask ask;
    struct s3_error error = {0};
    size_t used;
    if (size < 2 || size > 2 * KIB)
        return 0;
    struct span key = span_make(data + 1, size - 1);
    text_init(&t, request, sizeof(request));
    write_target(&t, key, data[0]);
    demand(!t.over && http_parse_request(t.at, t.len, &head, &used) == HTTP_OK);
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 64 * KIB);
    if (s3_ask_read(&head, "", &arena, &ask, &error) == OK) {
        demand(span_eq(ask.key, key) && span_is(ask.bucket, "bucket"));
        demand(key.len <= KEY_BYTES_MAX && !memchr(key.at, 0, key.len));
        demand(key_path_differs(ask.bucket, ask.key) == NULL);
    } else {
        demand(error.status == 400);
    }
    arena_reset(&arena);
    return 0;
}
