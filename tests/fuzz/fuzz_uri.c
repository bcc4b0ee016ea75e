/* URIs: decoding undoes encoding, pairs cover the query, accepted addresses have the parts they
 * claim. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/uri.c"

#include "tests/fuzz/fuzz.h"

static void check_coding(struct span in, bool plus_is_space)
{
    size_t len = 0, again = 0;
    char *decoded = malloc(in.len + 1), *back = malloc(in.len + 1);
    char *encoded = malloc(3 * in.len + 1);
    demand(decoded && encoded && back);
    if (uri_decode(in, plus_is_space, decoded, in.len, &len) == OK) {
        struct text t;
        demand(len <= in.len && !memchr(decoded, 0, len));
        text_init(&t, encoded, 3 * in.len + 1);
        uri_encode(&t, span_make(decoded, len), plus_is_space);
        demand(!t.over);
        demand(uri_decode(text_span(&t), !plus_is_space, back, in.len, &again) == OK);
        demand(span_eq(span_make(decoded, len), span_make(back, again)));
        demand(len == 0 || uri_decode(in, plus_is_space, back, len - 1, &again) == ERR_TOO_LARGE);
    }
    free(decoded);
    free(encoded);
    free(back);
}

static void check_pairs(struct span target)
{
    struct span path, query;
    struct uri_pair pair;
    uri_split(target, &path, &query);
    demand(path.len + query.len <= target.len && span_find(path, '?') == path.len);
    size_t total = query.len;
    while (uri_next_pair(&query, &pair)) {
        size_t length = pair.name.len + pair.value.len + pair.has_equals;
        demand(length > 0 && length <= total);
        total -= length;
        demand(span_find(pair.name, '=') == pair.name.len);
        demand(span_find(pair.value, '&') == pair.value.len);
    }
}

static void check_address(struct span text)
{
    struct uri u;
    const char *why = NULL;
    if (uri_parse(text, &u, &why) != OK) {
        demand(why != NULL);
        return;
    }
    bool file = span_is(u.scheme, "file");
    demand(file || span_is(u.scheme, "http") || span_is(u.scheme, "https"));
    demand(file ? u.host.len == 0 : u.host.len > 0);
    demand(u.path.len ? u.path.at[0] == '/' : !file);
    demand(span_find(u.host, '@') == u.host.len && span_find(u.host, '/') == u.host.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = malloc(len + 1);
    demand(text != NULL);
    memcpy(text + 1, data, len);
    struct span in = span_make(text + 1, len);
    check_coding(in, false);
    check_coding(in, true);
    check_pairs(in);
    check_address(in);
    free(text);
    return 0;
}
