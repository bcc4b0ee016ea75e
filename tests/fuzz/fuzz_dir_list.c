/* A listing asked of a directory: any query is understood or refused in words, tokens of ours lead
 * back to where they came from, and names come back from both ways of writing them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/dir_list.c"

#include "tests/fuzz/fuzz.h"

static void check_ask(struct span query)
{
    static struct list_ask l;
    read_list_ask(query, &l);
    if (l.wrong)
        return;
    demand(l.most <= KEYS_PER_PAGE);
    demand(l.prefix.len <= KEY_BYTES_MAX && l.delimiter.len <= KEY_BYTES_MAX);
    demand(l.marker.len <= KEY_BYTES_MAX && l.start_after.len <= KEY_BYTES_MAX);
    demand(!memchr(l.prefix.at, 0, l.prefix.len) && !memchr(l.marker.at, 0, l.marker.len));
    demand(l.resume_len <= sizeof(l.resume));
    demand(l.resume_len == 0 || l.resume[0] == 'k' || l.resume[0] == 'p');
    struct span sub = dir_subresource(query);
    demand(sub.len <= query.len);
}

/* What we send as a continuation token is what we read. */
static void check_token(struct span last, bool prefix)
{
    static struct list_page page;
    static struct list_ask ask, again;
    static char memory[64 * KIB], query[64 * KIB];
    struct text t, q;
    if (last.len == 0 || last.len > KEY_BYTES_MAX || memchr(last.at, 0, last.len))
        return;
    page.truncated = true;
    page.last_is_prefix = prefix;
    page.last_len = last.len;
    memcpy(page.last, last.at, last.len);
    ask.v2 = true;
    text_init(&t, memory, sizeof(memory));
    add_next(&t, &ask, &page);
    struct span rest = text_span(&t);
    (void)span_cut(&rest, '>');
    text_init(&q, query, sizeof(query));
    text_adds(&q, "list-type=2&continuation-token=");
    text_add(&q, span_cut(&rest, '<'));
    read_list_ask(text_span(&q), &again);
    demand(!again.wrong && again.resume_len == last.len + 1);
    demand(again.resume[0] == (prefix ? 'p' : 'k'));
    demand(memcmp(again.resume + 1, last.at, last.len) == 0);
}

static void check_coded(struct span key)
{
    static char memory[64 * KIB], back[16 * KIB];
    size_t len = 0;
    struct text t;
    if (key.len > sizeof(back) || memchr(key.at, 0, key.len))
        return;
    text_init(&t, memory, sizeof(memory));
    add_coded(&t, key);
    demand(!t.over && uri_decode(text_span(&t), true, back, sizeof(back), &len) == OK);
    demand(span_eq(key, span_make(back, len)));
}

/* An error document names the thing as it is, where XML can hold it. */
static void check_error(struct span resource)
{
    struct dir_answer a = {0};
    struct xml_s3_error e;
    demand(dir_error(404, "NoSuchKey", "no", resource, &a) == OK && a.body && a.status == 404);
    demand(xml_s3_error_read(span_make(a.body, a.len), &e) == OK);
    demand(strcmp(e.code, "NoSuchKey") == 0);
    mem_give(a.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = exact_copy(data, size);
    struct span in = span_make(bytes, size);
    check_ask(in);
    check_token(in, size & 1);
    check_coded(in);
    if (size <= KEY_BYTES_MAX)
        check_error(in);
    exact_give(bytes);
    return 0;
}
