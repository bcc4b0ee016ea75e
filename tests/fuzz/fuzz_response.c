/* Response heads: one verdict at any cut, and a framing that fits status and fields. The first byte
 * says whether the request was a HEAD. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http.c"

#include "tests/fuzz/fuzz.h"

static void check_head(const struct http_head *h, bool head_request)
{
    demand(h->status >= 100 && h->status <= 599 && h->status != 101 && h->minor <= 1);
    bool bodiless = head_request || h->status < 200 || h->status == 204 || h->status == 304;
    demand((h->framing == HTTP_BODY_NONE) == bodiless);
    demand(h->framing != HTTP_BODY_UNTIL_CLOSE || !h->keep_alive);
    demand(h->framing != HTTP_BODY_LENGTH || http_find(h, "content-length").at);
    demand(h->framing != HTTP_BODY_CHUNKED || !http_find(h, "content-length").at);
}

static void check_cut(struct span bytes, size_t cut, bool head_request, enum http_verdict v,
                      size_t used)
{
    static struct http_head part;
    size_t again = 0;
    enum http_verdict p = http_parse_response(bytes.at, cut, head_request, &part, &again);
    if (v == HTTP_OK && cut >= used)
        demand(p == HTTP_OK && again == used);
    else
        demand(p == HTTP_MORE || (v != HTTP_OK && p == v));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct http_head head;
    if (len == 0)
        return 0;
    bool head_request = data[0] & 1;
    size_t used = 0;
    struct span bytes = span_make(exact_copy(data + 1, len - 1), len - 1);
    enum http_verdict v = http_parse_response(bytes.at, bytes.len, head_request, &head, &used);
    for (size_t cut = 0; cut < bytes.len; cut += 1 + bytes.len / 200)
        check_cut(bytes, cut, head_request, v, used);
    if (v == HTTP_OK) {
        demand(used > 0 && used <= bytes.len);
        check_cut(bytes, used - 1, head_request, v, used);
        check_cut(bytes, used, head_request, v, used);
        check_head(&head, head_request);
    }
    exact_give(bytes.at);
    return 0;
}
