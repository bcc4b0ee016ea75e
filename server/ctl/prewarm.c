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

enum { PLACE_BYTES = BUCKET_BYTES_MAX + 1 + KEY_BYTES_MAX + 1 };

/* What the command line names, or what the keys of its lists share: of characters, as keys may
 * part in the middle of one. */
static void prefix_of(const struct ctl *c, const struct wanted *l, char out[PLACE_BYTES])
{
    const char *word = c->word_count ? c->word[0] : "";
    size_t shared = l->prefix_len;

    while (shared > 0 && !span_is_utf8(span_make(l->prefix, shared)))
        shared--;

    if (c->word_count)
        snprintf(out, PLACE_BYTES, "%s", strncmp(word, "s3://", 5) == 0 ? word + 5 : word);
    else
        snprintf(out, PLACE_BYTES, "%.*s/%.*s", (int)l->bucket_len, l->bucket, (int)shared,
                 l->prefix);
}

/* NULL: the prefix or a glob is no UTF-8. */
static json_t *wish_of(const struct ctl *c, const char *prefix)
{
    char until[32];
    json_t *wish = json_object();

    if (json_object_set_new(wish, "prefix", json_string(prefix)) != 0 ||
        json_object_set_new(wish, "include", globs_of(c->include, c->include_count)) != 0 ||
        json_object_set_new(wish, "exclude", globs_of(c->exclude, c->exclude_count)) != 0) {
        json_decref(wish);
        return NULL;
    }
    if (c->bandwidth)
        json_object_set_new(wish, "bandwidth", json_integer((json_int_t)c->bandwidth));
    if (c->connections)
        json_object_set_new(wish, "connections", json_integer((json_int_t)c->connections));
    if (c->order)
        json_object_set_new(wish, "order", json_string(c->order));
    if (c->force)
        json_object_set_new(wish, "force", json_true());
    if (c->dry_run)
        json_object_set_new(wish, "dry_run", json_true());
    if (c->pin || c->until)
        json_object_set_new(wish, "pin", json_true());
    if (c->until && until_read(c->until, until))
        json_object_set_new(wish, "until", json_string(until));
    return wish;
}

/* The wish on one line, behind it the keys; NULL: no memory, or the wish is none. */
static char *prewarm_body(const json_t *wish, const struct wanted *l, size_t *len)
{
    size_t own = wish ? json_dumpb(wish, NULL, 0, JSON_COMPACT) : 0;
    char *body = own > 0 ? mem_take(own + 1 + l->len) : NULL;

    if (!body)
        return NULL;
    json_dumpb(wish, body, own, JSON_COMPACT);
    body[own] = '\n';
    if (l->len > 0)
        memcpy(body + own + 1, l->bytes, l->len);
    *len = own + 1 + l->len;
    return body;
}

/* Makes a job; takes the wish. false: *code says why not. */
static bool make_job(const struct ctl *c, struct request *ask, json_t *wish, const struct wanted *l,
                     char id[32], int *code)
{
    size_t len = 0;
    char *body = prewarm_body(wish, l, &len);
    struct reply r = {0};
    struct text t;

    json_decref(wish);
    *code = CTL_USAGE;
    if (!body) {
        fprintf(stderr, "headpond: the prefix or a glob is no text in UTF-8; write one that is\n");
        return false;
    }
    ask->method = "POST";
    ask->body = span_make(body, len);
    json_t *job = client_change(c, ask, &r, code);
    mem_give(body);
    if (!job)
        return false;
    reply_free(&r);
    text_init(&t, id, 32);
    text_add_printable(&t, span_of(value_text(job, "id")), 31);
    if (c->detach && c->json)
        ctl_print_json(job);
    json_decref(job);
    return true;
}

/* What was brought is read again and compared with its checksums. */
static int verify(const struct ctl *c, const char *prefix)
{
    struct request ask = {.path = "/v1/verify"};
    const struct wanted none = {0};
    json_t *wish = json_object();
    char id[32];
    int code;

    json_object_set_new(wish, "prefix", json_string(prefix));
    return make_job(c, &ask, wish, &none, id, &code) ? job_watch(c, id) : code;
}

static int run_with(struct ctl *c, const struct wanted *l)
{
    bool listed = c->wds_count > 0 || c->manifest;
    struct request ask = {.path = "/v1/prewarm", .type = listed ? "application/x-ndjson" : NULL};
    char id[32], prefix[PLACE_BYTES];
    int code;

    prefix_of(c, l, prefix);
    if (!make_job(c, &ask, wish_of(c, prefix), l, id, &code))
        return code;
    if (!c->detach) {
        code = job_watch(c, id);
        return code == CTL_DONE && c->verify && !c->dry_run ? verify(c, prefix) : code;
    }
    ctl_say(c, "Follow: headpond job wait %s   Stop: headpond job cancel %s\n", id, id);
    return CTL_DONE;
}

static int fail_prewarm(const char *why)
{
    fprintf(stderr, "headpond: %s\n", why);
    return CTL_USAGE;
}

static int run_via(struct ctl *c, bool listed)
{
    struct wanted l = {0};
    struct span place = span_of("");
    int code = CTL_DONE;

    if (c->word_count && !place_read(c->word[0], &place))
        return fail_prewarm("the place names no bucket: write s3://BUCKET/PREFIX");
    if (listed)
        code = wanted_read(c, &l);
    if (code == CTL_DONE)
        code = via_run(c, listed ? &l : NULL, place);
    wanted_free(&l);
    return code;
}

int prewarm_run(struct ctl *c)
{
    bool listed = c->wds_count > 0 || c->manifest;
    struct wanted l = {0};

    if (!listed && c->word_count == 0)
        return fail_prewarm("what is to be fetched? Name s3://BUCKET/PREFIX, --wds or --manifest");
    if (c->via)
        return run_via(c, listed);
    if (!listed && c->order && strcmp(c->order, "name") != 0)
        return fail_prewarm("--order manifest and size want a list: --manifest or --wds");
    if (c->verify && c->detach)
        return fail_prewarm("--verify waits for the end, --detach does not: leave one out, "
                            "headpond verify comes later as well");
    int code = listed ? wanted_read(c, &l) : CTL_DONE;
    if (code == CTL_DONE)
        code = run_with(c, &l);
    wanted_free(&l);
    return code;
}
