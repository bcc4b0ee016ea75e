/* /v1/sizing: what share of bytes the cache would serve by itself at other sizes.
 *
 * Invariants:
 *  1. A ratio that nothing is known of is null, with the reason as the line's state.
 *
 * Life: one request's. Failure: none but memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "server/admin/admin.h"

enum { LINE_BYTES = 6 * POLICY_NAME_BYTES + 400 };

static const char *const states[] = {
    [SIZING_EARLY] = "early",
    [SIZING_FEW] = "few",
    [SIZING_READY] = "ready",
};

static void add_ratios(struct text *t, const struct sizing_line *l)
{
    if (l->state != SIZING_READY) {
        text_adds(t, ",\"measured\":null,\"predicted\":null");
        return;
    }
    text_addf(t, ",\"measured\":%.4f", l->measured);
    json_open(t, "predicted", '[');
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        text_addf(t, "%s%.4f", n ? "," : "", l->predicted[n]);
    text_addc(t, ']');
}

static void add_line(struct text *t, const struct sizing_line *l)
{
    json_text(t, "state", span_of(states[l->state]));
    json_u64(t, "asked", (uint64_t)l->asked);
    json_u64(t, "distinct", (uint64_t)l->distinct);
    json_u64(t, "window", (uint64_t)l->window);
    add_ratios(t, l);
    text_addc(t, '}');
}

/* What was read most stands first. */
static int compare(const void *a, const void *b)
{
    double x = ((const struct sizing_line *)a)->asked, y = ((const struct sizing_line *)b)->asked;

    return (x < y) - (x > y);
}

static void add_groups(struct text *t, struct cache *cache, struct sizing_report *r)
{
    qsort(r->group, r->groups, sizeof r->group[0], compare);
    json_open(t, "groups", '[');
    for (unsigned n = 0; n < r->groups; n++) {
        char name[POLICY_NAME_BYTES];
        size_t len = cache_group_name(cache, r->group[n].tag, name);
        text_adds(t, n ? ",{" : "{");
        json_text(t, "prefix", span_make(name, len));
        add_line(t, &r->group[n]);
    }
    text_addc(t, ']');
}

void answer_sizing(const struct visit *v, struct admin_answer *out)
{
    struct sizing_report r = {0};
    struct text *t = &out->body;
    bool known = cache_sizing(v->door->server->cache, &r);

    if (!answer_room(out, LINE_BYTES * (r.groups + 2)))
        return;
    text_addc(t, '{');
    json_u64(t, "v", 1);
    json_bool(t, "known", known);
    text_addf(t, ",\"sampled\":%.6f", r.rate);
    json_u64(t, "half_life", (uint64_t)r.half_life);
    json_open(t, "sizes", '[');
    for (unsigned n = 0; n < SIZING_SIZES; n++)
        text_addf(t, "%s{\"factor\":%.1f,\"capacity\":%llu}", n ? "," : "", sizing_factor[n],
                  (unsigned long long)r.capacity[n]);
    text_addc(t, ']');
    json_open(t, "all", '{');
    add_line(t, &r.all);
    add_groups(t, v->door->server->cache, &r);
    text_adds(t, "}\n");
}
