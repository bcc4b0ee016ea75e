/* headpond prewarm: what is below a prefix is brought before anybody asks for it.
 *
 * Invariants:
 *  1. The server lists and fetches; here the wish is written down, and its job is watched.
 *  2. The exit code is the job's: 0 only when all that is wanted is there.
 *
 * Life: one run. Failure: as of other jobs (job.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>

static json_t *globs_of(const char *const *glob, unsigned count)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < count; i++)
        json_array_append_new(list, json_string(glob[i]));
    return list;
}

/* Theirs to mem_give(); NULL: no memory, or a word is no UTF-8. */
static char *wish_of(const struct ctl *c)
{
    const char *prefix = c->word[0];
    char until[32];
    json_t *body = json_object();

    if (strncmp(prefix, "s3://", 5) == 0)
        prefix += 5;
    bool good = json_object_set_new(body, "prefix", json_string(prefix)) == 0;
    json_object_set_new(body, "include", globs_of(c->include, c->include_count));
    json_object_set_new(body, "exclude", globs_of(c->exclude, c->exclude_count));
    if (c->bandwidth)
        json_object_set_new(body, "bandwidth", json_integer((json_int_t)c->bandwidth));
    if (c->connections)
        json_object_set_new(body, "connections", json_integer((json_int_t)c->connections));
    if (c->dry_run)
        json_object_set_new(body, "dry_run", json_true());
    if (c->pin || c->until)
        json_object_set_new(body, "pin", json_true());
    if (c->until && until_read(c->until, until))
        json_object_set_new(body, "until", json_string(until));
    size_t len = good ? json_dumpb(body, NULL, 0, JSON_COMPACT) : 0;
    char *text = len > 0 ? mem_take(len + 1) : NULL;
    if (text)
        json_dumpb(body, text, len, JSON_COMPACT);
    json_decref(body);
    return text;
}

int prewarm_run(struct ctl *c)
{
    char id[32];
    struct text t;
    int code = CTL_FAILED;

    if (c->word_count > 1) {
        fprintf(stderr, "headpond: one prefix at a time: \"%.80s\" is one too many\n", c->word[1]);
        return CTL_USAGE;
    }
    char *body = wish_of(c);
    if (!body) {
        fprintf(stderr, "headpond: the prefix is no text in UTF-8; name a shorter one\n");
        return CTL_USAGE;
    }
    json_t *job = client_call(c, "POST", "/v1/prewarm", body, &code);
    mem_give(body);
    if (!job)
        return code;
    text_init(&t, id, sizeof id);
    text_add_printable(&t, span_of(value_text(job, "id")), sizeof id - 1);
    if (c->detach && c->json)
        ctl_print_json(job);
    json_decref(job);
    if (!c->detach)
        return job_watch(c, id);
    ctl_say(c, "Follow: headpond job wait %s   Stop: headpond job cancel %s\n", id, id);
    return CTL_DONE;
}
