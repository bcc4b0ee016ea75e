/* What scenarios are made of: requests, their judgement, and an object that is already there.
 *
 * Invariants:
 *  1. The first failure of a run is kept.
 *
 * Life: a stage lives for one run. Failure: a sentence in stage.failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "mem.h"
#include "tests/lib/words.h"
#include "tests/sim/stage.h"

enum { SETTLE_MS = 200 * 1000, ACTORS_MAX = 16 };

void stage_fail(struct stage *s, const char *format, ...)
{
    va_list arguments;

    if (s->failure[0])
        return;
    va_start(arguments, format);
    vsnprintf(s->failure, sizeof s->failure, format, arguments);
    va_end(arguments);
}

uint64_t stage_size(const struct stage *s)
{
    uint64_t size = 0;

    must(size_of_key(span_of(s->key), &size));
    return size;
}

void stage_new_key(struct stage *s, const char *size)
{
    snprintf(s->key, sizeof s->key, "%s-%u@%s", s->scene->name, s->number, size);
}

void stage_judge(struct stage *s, int status, uint64_t length)
{
    const struct reply *r = &s->r;
    bool exact = s->strict || (!inject_fired() && !s->scene->loose);
    const char *how = r->complete ? "complete" : r->late ? "hanging" : "broken";

    if (r->wrong[0])
        stage_fail(s, "%s (status %d, %s)", r->wrong, r->status, how);
    else if (r->late)
        stage_fail(s, "the answer hangs: status %d, %llu bytes", r->status,
                   (unsigned long long)r->got);
    else if (exact && (!r->complete || r->status != status))
        stage_fail(s, "%sstatus %d %s, %s, instead of %d", s->strict ? "(plain) " : "", r->status,
                   r->code, how, status);
    else if (r->complete && r->status == status && length != ANY_LENGTH && r->got != length)
        stage_fail(s, "%llu bytes that look whole instead of %llu", (unsigned long long)r->got,
                   (unsigned long long)length);
    else if (r->complete && r->status != status && r->status < 500)
        stage_fail(s, "status %d %s instead of %d or an error of ours", r->status, r->code, status);
}

void stage_ask(struct stage *s, const char *method, const char *target, const char *fields)
{
    bool object = strncmp(target, "/b/", 3) == 0 && !strchr(target, '?');
    bool head = strcmp(method, "HEAD") == 0;

    asker_open(&s->a);
    asker_send(&s->a, "%s %s HTTP/1.1\r\nHost: sim\r\n%s\r\n", method, target, fields);
    asker_read(&s->a, "b", object ? target + 3 : NULL, head, &s->r);
    asker_close(&s->a);
}

void stage_get(struct stage *s, const char *fields, int status, uint64_t length)
{
    char target[STAGE_KEY_BYTES + 4];

    snprintf(target, sizeof target, "/b/%s", s->key);
    stage_ask(s, "GET", target, fields);
    stage_judge(s, status, length);
}

void stage_get_all(struct stage *s)
{
    stage_get(s, "", 200, stage_size(s));
}

void stage_fill(struct stage *s)
{
    stage_get_all(s);
    if (!life_settle(SETTLE_MS))
        stage_fail(s, "does not settle while it is prepared");
    if (!life_on_disk("b", s->key))
        stage_fail(s, "is not on disk while it is prepared");
}

void stage_fill_disk(struct stage *s)
{
    stage_fill(s);
    life_forget_memory();
}

/* ---- several at once ---- */

struct actor {
    struct stage stage;
    void (*play)(struct stage *);
    pthread_t thread;
};

static void *act(void *argument)
{
    struct actor *a = argument;

    a->play(&a->stage);
    return NULL;
}

void stage_together(struct stage *s, unsigned n, void (*play)(struct stage *))
{
    struct actor *all = mem_take(n * sizeof *all);

    must(all && n <= ACTORS_MAX);
    for (unsigned i = 0; i < n; i++) {
        all[i].stage = *s;
        all[i].play = play;
        must(pthread_create(&all[i].thread, NULL, act, &all[i]) == 0);
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        if (all[i].stage.failure[0])
            stage_fail(s, "%s", all[i].stage.failure);
    }
    mem_give(all);
}
