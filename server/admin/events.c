/* A job's events: a line of JSON once a second and when its state changes, until it has ended.
 *
 * Invariants:
 *  1. Each line is a job as GET /v1/jobs/ID tells it, made whole before a byte of it is sent.
 *  2. The last line tells the end, unless the server ends first, or the job is forgotten.
 *  3. It waits on its connection's own thread, and for no longer than a second or the server's end.
 *
 * Life: one request's; libmicrohttpd drops it when the answer is over or its client is gone.
 * Failure: without memory the stream ends; who follows looks again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <microhttpd.h>

#include "server/admin/admin.h"

enum { EVERY_MS = 1000 };

struct events {
    struct server *server;
    uint64_t id;
    struct job_view view;            /* as told last */
    bool begun, over;
    char *line;                      /* owned; NULL: there is none */
    size_t len, sent;
};

static bool next_line(struct events *e)
{
    mem_give(e->line);
    e->line = NULL;
    if (e->over)
        return false;
    if (e->begun)
        jobs_await(e->server, e->id, e->view.state, EVERY_MS);
    e->begun = true;
    if (!jobs_view(e->server, e->id, &e->view))
        return false;
    e->over = job_state_is_over(e->view.state) ||
              atomic_load(&e->server->state) == SERVER_DRAINING;
    e->line = job_line(&e->view, &e->len);
    e->sent = 0;
    return e->line != NULL;
}

static ssize_t more(void *of, uint64_t at, char *out, size_t cap)
{
    struct events *e = of;

    (void)at;
    if ((!e->line || e->sent == e->len) && !next_line(e))
        return MHD_CONTENT_READER_END_OF_STREAM;
    size_t n = min_u64(cap, e->len - e->sent);
    memcpy(out, e->line + e->sent, n);
    e->sent += n;
    return (ssize_t)n;
}

static void gone(void *of)
{
    struct events *e = of;

    mem_give(e->line);
    mem_give(e);
}

void answer_events(const struct visit *a, uint64_t id, struct admin_answer *out)
{
    struct events *e = mem_take(sizeof *e);

    if (!e)
        return;                      /* which answer_send() will notice */
    e->server = a->door->server;
    e->id = id;
    out->type = "application/x-ndjson";
    out->of = e;
    out->more = more;
    out->gone = gone;
}
