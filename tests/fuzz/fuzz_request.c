/* Request heads: any bytes, cut anywhere, give one verdict; an accepted head means what a second,
 * slow and independent reading of RFC 9112 says that it means. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http.c"

#include "tests/fuzz/fuzz.h"

/* ---- the second reading: line by line, over a head that was accepted ---- */
struct model {
    unsigned lengths, encodings, hosts, fields;
    uint64_t length;
    bool close, keep_alive;
};

static bool named(struct span line, const char *name, struct span *value)
{
    struct span rest = line, first = span_cut(&rest, ':');
    *value = span_trim(rest);
    return span_is_nocase(first, name);
}

static void read_options(struct span value, struct model *m)
{
    while (value.len) {
        struct span option = span_trim(span_cut(&value, ','));
        m->close |= span_is_nocase(option, "close");
        m->keep_alive |= span_is_nocase(option, "keep-alive");
    }
}

static void read_line(struct span line, struct model *m)
{
    struct span value;
    demand(span_find(line, ':') < line.len && line.at[0] != ' ' && line.at[0] != '\t');
    demand(span_find(line, '\r') == line.len && span_find(line, 0) == line.len);
    m->fields++;
    if (named(line, "Content-Length", &value)) {
        m->lengths++;
        demand(span_u64(value, &m->length) == OK);
    } else if (named(line, "Transfer-Encoding", &value)) {
        m->encodings++;
        demand(span_is_nocase(value, "chunked"));
    } else if (named(line, "Host", &value)) {
        m->hosts++;
    } else if (named(line, "Connection", &value)) {
        read_options(value, m);
    }
}

static void compare_with_model(struct span text, const struct http_head *h)
{
    struct model m = {0};
    demand(span_ends(text, span_of("\r\n\r\n")));
    text.len -= 4;
    struct span line = span_cut(&text, '\n');
    while (text.len) {
        line = span_cut(&text, '\n');
        demand(line.len > 0);
        if (text.len) {
            demand(line.at[line.len - 1] == '\r');
            line.len--;
        }
        read_line(line, &m);
    }
    bool one = h->minor == 1;
    demand(m.fields == h->count && m.lengths + m.encodings <= 1 && m.hosts <= 1);
    demand(!one || m.hosts == 1);
    demand(one || m.encodings == 0);
    demand(h->keep_alive == (!m.close && (one || m.keep_alive)));
    demand(h->framing == (m.encodings ? HTTP_BODY_CHUNKED : m.lengths ? HTTP_BODY_LENGTH
                                                                      : HTTP_BODY_NONE));
    demand(h->length == m.length);
}

/* Every span lies in the head and shows bytes of its kind. */
static void check_spans(const char *bytes, size_t used, const struct http_head *h)
{
    demand(h->target.at > bytes && h->target.at + h->target.len < bytes + used);
    demand(h->target.len && h->target.len <= HTTP_TARGET_BYTES_MAX);
    for (unsigned i = 0; i < h->count; i++) {
        const struct http_field *f = &h->field[i];
        demand(f->name.at > bytes && f->name.at + f->name.len < f->value.at && f->name.len);
        demand(f->value.at + f->value.len < bytes + used);
        demand(span_eq(f->value, span_trim(f->value)));
    }
    demand(span_eq(h->host, http_find(h, "host")));
}

static void check_cut(const char *text, size_t cut, enum http_verdict v, size_t used)
{
    static struct http_head part;
    size_t again = 0;
    enum http_verdict p = http_parse_request(text, cut, &part, &again);
    if (v == HTTP_OK && cut >= used)
        demand(p == HTTP_OK && again == used);
    else
        demand(p == HTTP_MORE || (v != HTTP_OK && p == v));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct http_head whole;
    char *text = exact_copy(data, len);
    size_t used = 0;
    enum http_verdict v = http_parse_request(text, len, &whole, &used);
    for (size_t cut = 0; cut < len; cut += 1 + len / 200)
        check_cut(text, cut, v, used);
    size_t last = v == HTTP_OK ? used : len;
    check_cut(text, last ? last - 1 : 0, v, used);
    check_cut(text, last, v, used);
    if (v == HTTP_OK) {
        demand(used <= len && used <= HTTP_HEAD_BYTES_MAX);
        check_spans(text, used, &whole);
        compare_with_model(span_make(text, used), &whole);
    }
    exact_give(text);
    return 0;
}
