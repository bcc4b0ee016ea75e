/* Response heads and the chunked bodies behind them: one verdict at any cut, the same body in any
 * pieces. The first byte says whether the request was a HEAD. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void demand(bool cond)
{
    if (!cond)
        abort();
}

struct outcome {
    enum http_verdict verdict;
    size_t used, len;
    uint64_t hash;
};

static struct outcome dechunk(const char *bytes, size_t len, size_t piece)
{
    struct outcome o = {HTTP_MORE, 0, 0, 0};
    struct http_chunked c = {0};
    while (o.used < len && o.verdict == HTTP_MORE) {
        size_t n = (size_t)min_u64(piece - o.used % piece, len - o.used), used;
        struct span data;
        o.verdict = http_chunked_step(&c, bytes + o.used, n, &used, &data);
        demand(used > 0 && used <= n && data.len <= used);
        demand(data.len == 0 || data.at + data.len == bytes + o.used + used);
        for (size_t i = 0; i < data.len; i++)
            o.hash = (o.hash ^ (uint8_t)data.at[i]) * 1099511628211u;
        o.len += data.len;
        o.used += used;
    }
    return o;
}

static void check_body(const char *bytes, size_t len)
{
    struct outcome whole = dechunk(bytes, len, SIZE_MAX);
    static const size_t pieces[] = {1, 2, 3, 7, 64};
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) {
        struct outcome o = dechunk(bytes, len, pieces[i]);
        demand(o.verdict == whole.verdict && o.used == whole.used);
        demand(o.len == whole.len && o.hash == whole.hash);
    }
}

static void check_head(const struct http_head *h, bool head_request)
{
    demand(h->status >= 100 && h->status <= 599 && h->status != 101 && h->minor <= 1);
    bool bodiless = head_request || h->status < 200 || h->status == 204 || h->status == 304;
    demand((h->framing == HTTP_BODY_NONE) == bodiless);
    demand(h->framing != HTTP_BODY_UNTIL_CLOSE || !h->keep_alive);
    demand(h->framing != HTTP_BODY_LENGTH || http_find(h, "content-length").at);
    demand(h->framing != HTTP_BODY_CHUNKED || !http_find(h, "content-length").at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct http_head head;
    if (len == 0)
        return 0;
    bool head_request = data[0] & 1;
    size_t used = 0, again = 0;
    char *text = malloc(len);        /* exact, for AddressSanitizer */
    demand(text != NULL);
    memcpy(text, data, len);
    const char *bytes = text + 1;
    len--;
    for (unsigned i = 0; i < 4; i++) {
        enum http_verdict v = http_parse_response(bytes, len, head_request, &head, &used);
        size_t cut = len * i / 4;
        enum http_verdict p = http_parse_response(bytes, cut, head_request, &head, &again);
        bool complete = v == HTTP_OK && cut >= used;
        if (complete)
            demand(p == HTTP_OK && again == used);
        else
            demand(p == HTTP_MORE || (v != HTTP_OK && p == v));
    }
    if (http_parse_response(bytes, len, head_request, &head, &used) == HTTP_OK) {
        demand(used <= len);
        check_head(&head, head_request);
        check_body(bytes + used, len - used);
    }
    check_body(bytes, len);
    free(text);
    return 0;
}
