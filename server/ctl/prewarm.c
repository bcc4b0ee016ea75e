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

/* NULL: one is no UTF-8. */
static json_t *globs_of(const char *const *glob, unsigned count)
{
    json_t *list = json_array();
    bool good = true;

    for (unsigned i = 0; i < count; i++)
        good = json_array_append_new(list, json_string(glob[i])) == 0 && good;
    if (good)
        return list;
    json_decref(list);
    return NULL;
}

static const char *prefix_of(const struct ctl *c)
{
    return strncmp(c->word[0], "s3://", 5) == 0 ? c->word[0] + 5 : c->word[0];
}

/* NULL: the prefix or a glob is no UTF-8. */
static json_t *wish_of(const struct ctl *c)
{
    char until[32];
    json_t *wish = json_object();

    if (json_object_set_new(wish, "prefix", json_string(prefix_of(c))) != 0 ||
        json_object_set_new(wish, "include", globs_of(c->include, c->include_count)) != 0 ||
        json_object_set_new(wish, "exclude", globs_of(c->exclude, c->exclude_count)) != 0) {
        json_decref(wish);
        return NULL;
    }
    if (c->bandwidth)
        json_object_set_new(wish, "bandwidth", json_integer((json_int_t)c->bandwidth));
    if (c->connections)
        json_object_set_new(wish, "connections", json_integer((json_int_t)c->connections));
    if (c->dry_run)
        json_object_set_new(wish, "dry_run", json_true());
    if (c->pin || c->until)
        json_object_set_new(wish, "pin", json_true());
    if (c->until && until_read(c->until, until))
        json_object_set_new(wish, "until", json_string(until));
    return wish;
}

/* Makes a job; takes the wish. false: *code says why not. */
static bool make_job(const struct ctl *c, const char *path, json_t *wish, char id[32], int *code)
{
    size_t len = wish ? json_dumpb(wish, NULL, 0, JSON_COMPACT) : 0;
    char *body = len > 0 ? mem_take(len + 1) : NULL;
    struct text t;

    *code = CTL_USAGE;
    if (!body) {
        fprintf(stderr, "headpond: the prefix or a glob is no text in UTF-8; write one that is\n");
        json_decref(wish);
        return false;
    }
    json_dumpb(wish, body, len, JSON_COMPACT);
    json_decref(wish);
    json_t *job = client_call(c, "POST", path, body, code);
    mem_give(body);
    if (!job)
        return false;
    text_init(&t, id, 32);
    text_add_printable(&t, span_of(value_text(job, "id")), 31);
    if (c->detach && c->json)
        ctl_print_json(job);
    json_decref(job);
    return true;
}

/* What was brought is read again and compared with its checksums. */
static int verify(const struct ctl *c)
{
    json_t *wish = json_object();
    char id[32];
    int code;

    json_object_set_new(wish, "prefix", json_string(prefix_of(c)));
    return make_job(c, "/v1/verify", wish, id, &code) ? job_watch(c, id) : code;
}

int prewarm_run(struct ctl *c)
{
    char id[32];
    int code;

    if (c->word_count > 1) {
        fprintf(stderr, "headpond: one prefix at a time: \"%.80s\" is one too many\n", c->word[1]);
        return CTL_USAGE;
    }
    if (c->verify && c->detach) {
        fprintf(stderr, "headpond: --verify waits for the end, --detach does not: leave one out, "
                        "headpond verify comes later as well\n");
        return CTL_USAGE;
    }
    if (!make_job(c, "/v1/prewarm", wish_of(c), id, &code))
        return code;
    if (!c->detach) {
        code = job_watch(c, id);
        return code == CTL_DONE && c->verify && !c->dry_run ? verify(c) : code;
    }
    ctl_say(c, "Follow: headpond job wait %s   Stop: headpond job cancel %s\n", id, id);
    return CTL_DONE;
}
