/* What an answer says, and its body without the framing: counted, chunked, to the close of the
 * connection.
 *
 * Invariants:
 *  1. Counted bytes and those up to the close are received straight into the caller's memory, but
 *     for those that came with the head; chunked ones pass through the sheet's `out`, so that size
 *     lines never reach the caller.
 *  2. A body that ends early is an error, never an end: ERR_UPSTREAM_SHORT (RFC 9112 8).
 *  3. Bytes are counted once, when they arrive, for whoever asked for them; also those thrown away.
 *
 * Life: head_pull() until a head is there, body_begin() with each answer; all state is errand's.
 * Failure: LINK_BROKEN with the reason; the link is of no use then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "server/origin/inside.h"

enum { INFORMATIONAL_MAX = 8 };

/* ---- heads ---- */

static void refuse(struct exchange *x, const char *what)
{
    struct errand *e = x->private_;
    snprintf(e->detail, sizeof(e->detail), "%s", what);
    exchange_log_refusal(x, what);
}

/* Looks for a whole head in what came. LINK_BUSY: more is needed. */
static enum link_state read_head(struct exchange *x)
{
    struct errand *e = x->private_;
    struct http_head *h = &e->sheet->head;

    for (;;) {
        enum http_verdict v = http_parse_response(e->sheet->in, e->in_len,
                                                  x->ask->method == HTTP_HEAD, h, &e->head_len);
        if (v == HTTP_MORE && e->in_len < EXCHANGE_HEAD_BYTES)
            return LINK_BUSY;
        if (v != HTTP_OK || h->status == 101) {
            refuse(x, v == HTTP_OK     ? "101 without an upgrade"
                      : v == HTTP_MORE ? "head too large"
                                       : "malformed head");
            return LINK_BROKEN;
        }
        if (h->status >= 200)
            return LINK_OK;
        e->upload.go = e->upload.go || h->status == 100;
        if (++e->informational > INFORMATIONAL_MAX) {
            refuse(x, "too many 1xx answers");
            return LINK_BROKEN;
        }
        e->in_len -= e->head_len;    /* RFC 9110 15.2: any number of 1xx may come first */
        memmove(e->sheet->in, e->sheet->in + e->head_len, e->in_len);
    }
}

enum link_state head_pull(struct exchange *x, enum err *why)
{
    struct errand *e = x->private_;
    enum link_state s;
    size_t got;

    while ((s = link_pull(e->link, &x->m, e->sheet->in + e->in_len, EXCHANGE_HEAD_BYTES - e->in_len,
                          &got, why)) == LINK_OK) {
        e->in_len += got;
        s = read_head(x);
        if (s == LINK_BROKEN)
            *why = ERR_UPSTREAM_PROTOCOL;
        if (s != LINK_BUSY)
            return s;
    }
    if (s == LINK_BUSY)
        return s;
    if (s == LINK_END)
        *why = ERR_UPSTREAM_RESET;
    return LINK_BROKEN;
}

enum err exchange_verdict(const struct exchange *x)
{
    unsigned status = x->head->status;

    if (status >= 200 && status < 300)
        return OK;
    switch (status) {
    case 401:
    case 403: return ERR_DENIED;
    case 404: return ERR_NOT_FOUND;
    case 412: return ERR_CHANGED;
    case 416: return ERR_UNSUPPORTED;
    default: return ERR_UPSTREAM_STATUS;
    }
}

static void note_dates(struct exchange *x)
{
    uint64_t s;

    if (http_date_read(http_find(x->head, "last-modified"), &s) == OK)
        x->last_modified_s = s;
    if (http_date_read(http_find(x->head, "date"), &s) != OK)
        return;
    x->date_s = s;
    atomic_store_explicit(&x->origin->clock_seen_s, (int64_t)s - (int64_t)clock_wall_s(),
                          memory_order_relaxed);
}

void exchange_note(struct exchange *x)
{
    const struct http_head *h = x->head;
    struct span etag = http_find(h, "etag");
    uint64_t from, to, size;

    x->etag = etag.at ? etag : span_make("", 0);
    x->last_modified_s = x->date_s = x->length = 0;
    x->has_length = x->has_range = false;
    note_dates(x);
    if (x->ask->method == HTTP_HEAD) {
        x->has_length = span_u64(http_find(h, "content-length"), &x->length) == OK;
    } else if (h->framing == HTTP_BODY_LENGTH || h->framing == HTTP_BODY_NONE) {
        x->has_length = true;
        x->length = h->framing == HTTP_BODY_LENGTH ? h->length : 0;
    }
    if (h->status == 206 &&
        http_content_range(http_find(h, "content-range"), &from, &to, &size) == OK && from <= to) {
        x->has_range = true;
        x->range_from = from;
        x->range_to = to;
        x->range_size = size;
    }
}

/* ---- bodies ---- */

void body_begin(struct errand *e)
{
    const struct http_head *h = &e->sheet->head;

    e->body = (struct body){
        .early = span_make(e->sheet->in + e->head_len, e->in_len - e->head_len),
        .left = h->framing == HTTP_BODY_LENGTH ? h->length : 0,
    };
    e->body.at_end = h->framing == HTTP_BODY_NONE ||
        (h->framing == HTTP_BODY_LENGTH && h->length == 0);
}

static size_t take_span(struct span *from, void *mem, size_t cap)
{
    size_t n = (size_t)min_u64(from->len, cap);
    memcpy(mem, from->at, n);
    *from = span_from(*from, n);
    return n;
}

static enum link_state pull_counted(struct exchange *x, void *mem, size_t cap, size_t *got,
                                    enum err *why)
{
    struct errand *e = x->private_;
    struct body *b = &e->body;

    if (b->early.len) {
        *got = take_span(&b->early, mem, cap);
    } else {
        enum link_state s = link_pull(e->link, &x->m, mem, cap, got, why);
        if (s != LINK_OK) {
            if (s == LINK_END)
                *why = ERR_UPSTREAM_SHORT;
            return s == LINK_END ? LINK_BROKEN : s;
        }
    }
    b->left -= *got;
    b->at_end = b->left == 0;
    return LINK_OK;
}

static enum link_state pull_to_the_close(struct exchange *x, void *mem, size_t cap, size_t *got,
                                         enum err *why)
{
    struct errand *e = x->private_;

    if (e->body.early.len) {
        *got = take_span(&e->body.early, mem, cap);
        return LINK_OK;
    }
    enum link_state s = link_pull(e->link, &x->m, mem, cap, got, why);
    e->body.at_end = s == LINK_END;
    return s;
}

static enum link_state pull_chunked(struct exchange *x, void *mem, size_t cap, size_t *got,
                                    enum err *why)
{
    struct errand *e = x->private_;
    struct body *b = &e->body;
    struct http_chunked before;
    struct span data;
    size_t used, n;

    for (;;) {
        while (b->early.len) {
            before = b->chunked;
            enum http_verdict v = http_chunked_step(&b->chunked, b->early.at, b->early.len, &used,
                                                    &data);
            if (v == HTTP_BAD) {
                *why = ERR_UPSTREAM_PROTOCOL;
                return LINK_BROKEN;
            }
            if (data.len > cap) {    /* take what fits and do that part again */
                b->chunked = before;
                v = http_chunked_step(&b->chunked, b->early.at, used - (data.len - cap), &used,
                                      &data);
            }
            b->early = span_from(b->early, used);
            b->at_end = v == HTTP_OK;
            memcpy(mem, data.at, data.len);
            *got = data.len;
            if (data.len || b->at_end)
                return data.len ? LINK_OK : LINK_END;
        }
        enum link_state s = link_pull(e->link, &x->m, e->sheet->out, SHEET_OUT_BYTES, &n, why);
        if (s == LINK_END)
            *why = ERR_UPSTREAM_SHORT;
        if (s != LINK_OK)
            return s == LINK_END ? LINK_BROKEN : s;
        b->early = span_make(e->sheet->out, n);
    }
}

enum link_state body_pull(struct exchange *x, void *mem, size_t cap, size_t *got, enum err *why)
{
    struct errand *e = x->private_;
    enum link_state s;

    if (e->body.peeked.len) {
        *got = take_span(&e->body.peeked, mem, cap);
        return LINK_OK;
    }
    if (e->body.at_end)
        return LINK_END;
    switch (e->sheet->head.framing) {
    case HTTP_BODY_LENGTH: s = pull_counted(x, mem, min_u64(cap, e->body.left), got, why); break;
    case HTTP_BODY_CHUNKED: s = pull_chunked(x, mem, cap, got, why); break;
    default: s = pull_to_the_close(x, mem, cap, got, why); break;
    }
    if (s == LINK_OK)
        metric_add3(x->m.core->metrics, METRIC_UPSTREAM_RECEIVED_BYTES_TOTAL, x->origin->label,
                    x->ask->purpose, 0, *got);
    return s;
}
