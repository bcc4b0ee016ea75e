/* Fuzzes bodies that bring a loader's plan: any bytes end in a plan that can be settled, or in a
 * sentence that a terminal can bear; and pieces make the same of them as the whole. The first byte:
 * lines or a document, and how long the pieces are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/plan_body.c"

#include "tests/fuzz/fuzz.h"
#include "tests/lib/plan_case.h"

static enum err read_plan(struct span bytes, bool lines, size_t piece, struct plan **out)
{
    struct plan_body *b = plan_body_make(NULL, lines, NULL);

    demand(b != NULL);
    while (bytes.len > 0) {
        plan_body_take(b, span_make(bytes.at, min_u64(piece, bytes.len)));
        bytes = span_from(bytes, piece);
    }
    enum err err = plan_body_end(b, out);
    demand((err == OK) == (*out != NULL) && (err == OK) == (plan_body_why(b)[0] == '\0'));
    for (const char *at = plan_body_why(b); *at; at++)
        demand((unsigned char)*at >= ' ');
    plan_body_free(b);
    return err;
}

/* In order, and none touches the next. */
static void check_ranges(const struct plan *p, const struct plan_entry *e)
{
    for (unsigned n = 0; e->ranges != PLAN_NONE && n < e->range_count; n++) {
        const struct plan_range *r = &p->range[e->ranges + n];
        demand(r->length > 0 && r->from + r->length > r->from);
        demand(n == 0 || r[-1].from + r[-1].length < r->from);
    }
}

static void check(struct plan *p)
{
    uint32_t sum = 0, use = 0;

    if (plan_settle(p) != OK)
        return;
    for (uint32_t s = 0; s < p->stream_count; s++) {
        demand(p->stream[s].start == sum);
        demand(p->stream[s].at <= p->stream[s].count);
        sum += p->stream[s].count;
    }
    demand(sum == p->entry_count && plan_place(p) <= sum);
    for (uint32_t i = 0; i < p->object_count; i++) {
        uint32_t end = i + 1 < p->object_count ? p->object[i + 1].first : p->entry_count;
        demand(p->object[i].first == use);
        for (; use < end; use++) {
            demand(p->entry[p->use[use]].object == i);
            demand(use == p->object[i].first || p->use[use - 1] < p->use[use]);
        }
    }
    demand(use == sum);
    for (uint32_t n = 0; n < p->entry_count; n++)
        check_ranges(p, &p->entry[n]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan *whole, *pieces;

    if (size == 0)
        return 0;
    char *copy = exact_copy(data + 1, size - 1);
    struct span bytes = span_make(copy, size - 1);
    bool lines = data[0] & 1;
    enum err err = read_plan(bytes, lines, max_u64(bytes.len, 1), &whole);
    demand(read_plan(bytes, lines, 1 + data[0] / 2, &pieces) == err);
    demand(!whole || whole->entry_count == pieces->entry_count);
    if (whole)
        check(whole);
    plan_free(whole);
    plan_free(pieces);
    demand(atomic_load(&plan_case_account.bytes) == 0);
    demand(atomic_load(&plan_case_account.entries) == 0);
    exact_give(copy);
    return 0;
}
