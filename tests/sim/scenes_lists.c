/* Scenarios of lists and of several upstreams: lists from memory, those that a client leaves or a
 * write overtakes, lists of buckets of several stores, and a bucket with another name at its store.
 *
 * Invariants:
 *  1. A list that was asked for behind a change that was acknowledged shows it.
 *  2. No document tells the name that a bucket has at its store.
 *
 * Life: tables that torture.c walks. Failure: stage_fail(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "mem.h"
#include "tests/lib/bytes.h"
#include "tests/sim/scenes.h"

/* tests/flow/sigv4.c */
void sigv4_add(struct text *head, const char *method, struct span target, const char *access,
               const char *secret);

enum { BODY_BYTES_MAX = 32 * KIB, NEW_VERSION = 2, TARGET_BYTES = STAGE_KEY_BYTES + 100 };

/* ---- requests ---- */

/* A signed one; body: of the key's new version in that bucket, so many bytes. */
static void ask_signed(struct stage *s, const char *method, const char *target, const char *fields,
                       struct span body)
{
    char memory[4 * KIB];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s %s HTTP/1.1\r\nHost: sim\r\n%s", method, target, fields);
    if (strcmp(method, "GET") != 0 && strcmp(method, "DELETE") != 0)
        text_addf(&t, "Content-Length: %zu\r\n", body.len);
    sigv4_add(&t, method, span_of(target), "AKIDSIMULATION", "secretofthesimulation");
    text_adds(&t, "\r\n");
    must(!t.over);
    asker_open(&s->a);
    if (asker_put(&s->a, t.at, t.len) && body.len > 0)
        asker_put(&s->a, body.at, body.len);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    asker_close(&s->a);
}

static bool was(const struct stage *s, int status)
{
    return s->r.complete && s->r.status == status;
}

static void put_key(struct stage *s, const char *bucket, const char *at)
{
    char body[BODY_BYTES_MAX], target[TARGET_BYTES];
    uint64_t size = stage_size(s);

    must(size <= sizeof body);
    bytes_make(bytes_seed(span_of(at), span_of(s->key), NEW_VERSION), 0, body, size);
    snprintf(target, sizeof target, "/%s/%s", bucket, s->key);
    ask_signed(s, "PUT", target, "", span_make(body, size));
    stage_judge(s, 200, 0);
}

static void get_key(struct stage *s, const char *bucket, const char *at)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /%s/%s HTTP/1.1\r\nHost: sim\r\n\r\n", bucket, s->key);
    asker_read(&s->a, at, s->key, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, stage_size(s));
}

/* ---- lists of objects ---- */

/* Each run has a question of its own: about its key, or about those that are there for all. */
static void list_target(const struct stage *s, char out[TARGET_BYTES])
{
    const char *about = s->scene->size ? s->key : "k-";

    snprintf(out, TARGET_BYTES, "/listed?list-type=2&prefix=%.*s&start-after=%u",
             (int)strcspn(about, "@"), about, s->number);
}

static void ask_list(struct stage *s)
{
    char target[TARGET_BYTES];

    list_target(s, target);
    stage_ask(s, "GET", target, "");
    stage_judge(s, 200, ANY_LENGTH);
    if (was(s, 200) && s->r.got < sizeof s->r.body && !strstr(s->r.body, "</ListBucketResult>"))
        stage_fail(s, "a list that does not end");
}

static void keep_list(struct stage *s)
{
    ask_list(s);
    ask_list(s);
    if (strcmp(s->r.x_cache, "hit") != 0)
        stage_fail(s, "the list is not kept while it is prepared");
    snprintf(s->note, sizeof s->note, "%llu", (unsigned long long)s->r.got);
}

static void ask_list_again(struct stage *s)
{
    ask_list(s);
    if (was(s, 200) && s->r.got != strtoull(s->note, NULL, 10))
        stage_fail(s, "a list of %llu bytes that had %s", (unsigned long long)s->r.got, s->note);
}

static void ask_many_times(struct stage *s)
{
    stage_together(s, 4, ask_list_again);
}

static void make_short(struct stage *s)
{
    if (s->number == 1)
        store_do("objects listed k-### 5 size=1");
}

/* Longer than what sockets take at once. */
static void make_long(struct stage *s)
{
    if (s->number == 1)
        store_do("objects listed k-%0150d-### 500 size=1", 0);
}

static void keep_short(struct stage *s)
{
    make_short(s);
    keep_list(s);
}

static void keep_long(struct stage *s)
{
    make_long(s);
    keep_list(s);
}

static void leave_list(struct stage *s)
{
    char target[TARGET_BYTES];

    list_target(s, target);
    asker_open(&s->a);
    asker_send(&s->a, "GET %s HTTP/1.1\r\nHost: sim\r\n\r\n", target);
    sim_wait_ms(sim_below(20));
    asker_close(&s->a);
    ask_list(s);
}

static void leave_kept_list(struct stage *s)
{
    leave_list(s);
    if (was(s, 200) && s->r.got != strtoull(s->note, NULL, 10))
        stage_fail(s, "a list of %llu bytes that had %s", (unsigned long long)s->r.got, s->note);
}

/* What was acknowledged is listed, and what was listed then is not forgotten. */
static void expect_listed(struct stage *s, bool told)
{
    for (unsigned i = 0; i < 2; i++) {
        ask_list(s);
        if (told && was(s, 200) && !strstr(s->r.body, s->key))
            stage_fail(s, "a list without the key whose upload was acknowledged");
    }
}

static void upload_behind_list(struct stage *s)
{
    put_key(s, "listed", "listed");
    expect_listed(s, was(s, 200));
}

static void remove_behind_list(struct stage *s)
{
    char target[TARGET_BYTES];

    snprintf(target, sizeof target, "/listed/%s", s->key);
    ask_signed(s, "DELETE", target, "", span_of(""));
    stage_judge(s, 204, 0);
    bool told = was(s, 204);
    ask_list(s);
    if (told && was(s, 200) && strstr(s->r.body, s->key))
        stage_fail(s, "a list with the key whose removal was acknowledged");
}

static void upload_and_list(struct stage *s)
{
    put_key(s, "listed", "listed");
    keep_list(s);
}

/* The list is on its way while the key is written. */
static void list_slowly(struct stage *s)
{
    if (sim_one_in(2)) {
        ask_list(s);
        return;
    }
    sim_wait_ms(sim_below(60));
    put_key(s, "listed", "listed");
    s->note[0] = was(s, 200) ? 'w' : 0;
    if (s->note[0])
        expect_listed(s, true);
}

static void overtake_list(struct stage *s)
{
    s->note[0] = 0;
    stage_together(s, 4, list_slowly);
    ask_list(s);
}

/* ---- several upstreams ---- */

static const struct life several = {.several = true};

static void get_second(struct stage *s)
{
    get_key(s, "o-1", "o-1");
}

static void get_renamed(struct stage *s)
{
    get_key(s, "near", "far");
}

/* The store's name is in no answer. */
static void judge_names(struct stage *s)
{
    if (strstr(s->r.body, "far<") || strstr(s->r.body, "/far"))
        stage_fail(s, "the store's name is shown: %.200s", s->r.body);
    if (was(s, s->scene->script ? 200 : 0) && !strstr(s->r.body, "near"))
        stage_fail(s, "the client's name is missing: %.200s", s->r.body);
}

static void list_renamed(struct stage *s)
{
    char target[TARGET_BYTES];

    snprintf(target, sizeof target, "/near?list-type=2&start-after=%u", s->number);
    for (unsigned i = 0; i < 2; i++) {
        stage_ask(s, "GET", target, "");
        stage_judge(s, 200, ANY_LENGTH);
        judge_names(s);
        if (was(s, 200) && !strstr(s->r.body, "</ListBucketResult>"))
            stage_fail(s, "a list that does not end");
    }
}

static void list_no_bucket(struct stage *s)
{
    stage_ask(s, "GET", "/near?list-type=2", "");
    stage_judge(s, 404, ANY_LENGTH);
    judge_names(s);
    if (was(s, 404) && !strstr(s->r.body, "<BucketName>near</BucketName>"))
        stage_fail(s, "an error without the bucket's name: %.200s", s->r.body);
}

static void put_renamed(struct stage *s)
{
    put_key(s, "near", "far");
    bool stored = was(s, 200);
    get_renamed(s);
    if (stored && was(s, 200) && s->r.version != NEW_VERSION)
        stage_fail(s, "version %llu is read behind an upload that was acknowledged",
                   (unsigned long long)s->r.version);
}

/* Other than a document, it goes out as it comes. */
static void ask_page(struct stage *s)
{
    stage_ask(s, "GET", "/near?list-type=2", "");
    stage_judge(s, 403, ANY_LENGTH);
    if (was(s, 403) && !strstr(s->r.body, "<hr></html>"))
        stage_fail(s, "a page that does not end: %.200s", s->r.body);
}

static void leave_and_put(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /near?list-type=2&start-after=%u HTTP/1.1\r\nHost: sim\r\n\r\n",
               s->number);
    sim_wait_ms(sim_below(20));
    asker_close(&s->a);
    put_renamed(s);
}

static void complete_renamed(struct stage *s)
{
    char target[TARGET_BYTES];

    snprintf(target, sizeof target, "/near/%s?uploadId=u1", s->key);
    ask_signed(s, "POST", target, "",
               span_of("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"x\"</ETag>"
                       "</Part></CompleteMultipartUpload>"));
    stage_judge(s, 200, ANY_LENGTH);
    judge_names(s);
}

static void copy_renamed(struct stage *s)
{
    char target[TARGET_BYTES], fields[TARGET_BYTES];

    snprintf(target, sizeof target, "/near/copy-%s", s->key);
    snprintf(fields, sizeof fields, "x-amz-copy-source: /near/%s\r\n", s->key);
    ask_signed(s, "PUT", target, fields, span_of(""));
    stage_judge(s, 200, ANY_LENGTH);
}

static void expect_once(struct stage *s, const char *name)
{
    char element[40];

    snprintf(element, sizeof element, "<Name>%s</Name>", name);
    const char *at = strstr(s->r.body, element);
    if (!at || strstr(at + 1, element))
        stage_fail(s, "%s is listed %s", name, at ? "twice" : "never");
}

static void ask_merged(struct stage *s)
{
    ask_signed(s, "GET", "/", "", span_of(""));
    stage_judge(s, 200, ANY_LENGTH);
    if (!was(s, 200))
        return;
    expect_once(s, "a");
    expect_once(s, "near");
    expect_once(s, "o-1");
    if (!strstr(s->r.body, "</ListAllMyBucketsResult>"))
        stage_fail(s, "a list of buckets that does not end");
}

static void leave_merged(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET / HTTP/1.1\r\nHost: sim\r\n\r\n");
    sim_wait_ms(sim_below(20));
    asker_close(&s->a);
}

#define BUCKETS "bucket a\nbucket b\nbucket o-1"

const struct scene scenes_lists[] = {
    {"list-again", .set_up = keep_short, .play = ask_list_again, .after = ask_list_again},
    {"list-many", .set_up = keep_short, .play = ask_many_times, .after = ask_list_again},
    {"list-long", .set_up = make_long, .play = ask_list, .script = "set listed chunked=1"},
    {"list-cut", .set_up = make_long, .play = ask_list, .script = "set listed cut=50000",
     .loose = true, .after = ask_list},
    {"list-stalls", .set_up = make_short, .play = ask_list, .script = "next listed stall=100",
     .loose = true, .after = ask_list},
    {"list-leaves", .set_up = make_long, .play = leave_list},
    {"list-kept-leaves", .set_up = keep_long, .play = leave_kept_list},
    {"list-upload", .set_up = keep_list, .play = upload_behind_list, .size = "3000"},
    {"list-delete", .set_up = upload_and_list, .play = remove_behind_list, .size = "300"},
    {"list-overtaken", .play = overtake_list, .script = "set listed delay=40",
     .size = "300"},
    {"second", .play = get_second, .life = &several, .size = "1100000"},
    {"second-slow-down", .play = get_second, .life = &several, .script = "next o-1 status=503"},
    {"renamed", .play = get_renamed, .life = &several, .size = "70000"},
    {"renamed-list", .play = list_renamed, .life = &several,
     .script = "objects far p-### 5 size=10"},
    {"renamed-error", .play = list_no_bucket, .life = &several,
     .script = "set far status=404 document=\"<Error><Code>NoSuchBucket</Code>"
               "<BucketName>far</BucketName><Resource>/far</Resource></Error>\""},
    {"renamed-leaves", .play = leave_and_put, .life = &several, .size = "3000",
     .script = "objects far p-### 100 size=10"},
    {"renamed-page", .play = ask_page, .life = &several,
     .script = "set far status=403 document=\"<!DOCTYPE html><html><body>no</Error><hr></html>"
               "</Error>\""},
    {"renamed-upload", .play = put_renamed, .life = &several, .size = "3000"},
    {"renamed-complete", .play = complete_renamed, .life = &several,
     .script = "set far blanks=3 blank_ms=100 document=\"<CompleteMultipartUploadResult>"
               "<Location>http://x/far/k</Location><Bucket>far</Bucket><ETag>&quot;x-1&quot;"
               "</ETag></CompleteMultipartUploadResult>\""},
    {"renamed-copy", .play = copy_renamed, .life = &several},
    {"merged", .play = ask_merged, .life = &several, .script = BUCKETS},
    {"merged-cut", .play = ask_merged, .life = &several, .script = BUCKETS "\nnext * cut=100",
     .loose = true},
    {"merged-slow-down", .play = ask_merged, .life = &several, .script = BUCKETS
     "\nnext * status=503"},
    {"merged-leaves", .play = leave_merged, .life = &several, .script = BUCKETS},
    {"birth-several", .birth = true, .life = &several},
    {0},
};
