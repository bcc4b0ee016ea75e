/* /v1/top: the heaviest clients, objects or prefixes of the last one to two minutes.
 *
 * Invariants:
 *  1. Tables are copied under their short locks; sums and order are made here.
 *
 * Life: one request's. Failure: an unknown `by` is refused with those that there are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <microhttpd.h>

#include "server/admin/admin.h"

enum { ROWS_STANDARD = 20, ROWS_MAX = 100, ROW_BYTES = 6 * TOP_NAME_BYTES + 100 };

static const char *const kinds[NET_TOPS] = {
    [NET_TOP_CLIENT] = "client",
    [NET_TOP_OBJECT] = "object",
    [NET_TOP_PREFIX] = "prefix",
};

void answer_top(const struct visit *v, struct admin_answer *out)
{
    static const char standard[] = "prefix";
    struct net_top_row row[ROWS_MAX];
    struct span by = visit_query(v, "by"), limit = visit_query(v, "limit");
    uint64_t rows = ROWS_STANDARD, over_ms;
    unsigned what = 0;

    by = by.len ? by : span_of(standard);
    while (what < NET_TOPS && !span_is(by, kinds[what]))
        what++;
    if (what == NET_TOPS || (limit.len && span_u64(limit, &rows) != OK) || rows > ROWS_MAX) {
        answer_refuse(out, MHD_HTTP_UNPROCESSABLE_CONTENT, "bad_request",
                      "by is prefix, client or object, limit at most 100",
                      "write /v1/top?by=prefix");
        return;
    }
    unsigned count = net_top((enum net_top)what, row, (unsigned)rows, &over_ms);
    if (!answer_room(out, ROW_BYTES * (count + 1)))
        return;
    text_addc(&out->body, '{');
    json_u64(&out->body, "v", 1);
    json_text(&out->body, "by", span_of(kinds[what]));
    json_u64(&out->body, "over_ms", over_ms);
    json_open(&out->body, "rows", '[');
    for (unsigned i = 0; i < count; i++) {
        text_adds(&out->body, i ? ",{" : "{");
        json_text(&out->body, "name", span_of(row[i].name));
        json_u64(&out->body, "requests", row[i].requests);
        json_u64(&out->body, "bytes", row[i].bytes);
        text_addc(&out->body, '}');
    }
    text_adds(&out->body, "]}\n");
}
