/* Plans in the making without a server: what plan_body.c calls of jobs/plans.c, over plan.c alone.
 * Buckets are all known but "nobody". */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_PLAN_CASE_H
#define HEADPOND_TESTS_PLAN_CASE_H

#include "server/jobs/plan.h"

static struct plan_account plan_case_account;

enum err plans_begin(struct server *s, const struct plan_facts *facts, struct plan **out)
{
    struct span rest = span_of(facts->prefix), bucket = span_cut(&rest, '/');

    (void)s;
    *out = NULL;
    if (strcmp(facts->job, "no job") == 0)
        return ERR_SYNTAX;
    if (bucket.len == 0 || span_is(bucket, "nobody"))
        return ERR_NOT_FOUND;
    *out = plan_make(&plan_case_account);
    if (!*out)
        return ERR_MEMORY;
    (*out)->facts = *facts;
    return OK;
}

enum err plans_add(struct plan *p, const struct plan_item *item)
{
    struct plan_wish wish = {.stream = item->stream, .id = {14695981039346656037u, 1},
                             .rest = item->key, .range = item->range,
                             .range_count = item->range_count};

    if (item->key.len == 0)
        return ERR_SYNTAX;
    for (size_t i = 0; i < item->key.len; i++)
        wish.id.a = (wish.id.a ^ (uint8_t)item->key.at[i]) * 1099511628211u;
    return plan_add(p, &wish);
}

void plans_give_up(struct plan *p)
{
    plan_free(p);
}

#endif
