/* MACHINE of /-/plans: loaders, who see no other port than this one, post in which order they will
 * read, ask how far that went, and drop it.
 *
 * Invariants:
 *  1. Only a verified key comes so far (s3_authorize), and it posts and hears of nothing that it
 *     may not read: asked of the keys as they are when it is done, by the desk (may_read).
 *  2. A plan is parsed, looked for and told of at the desk, never on the loop; the loop has 64 KiB
 *     of a body at a time, and checks what the client said of it. A plan is taken when all of its
 *     body was found good.
 *  3. Nothing that the desk may touch is freed before it is back, whatever became of the client.
 *
 * Life: embedded in a request, with memory of its own; ends in req_over().
 * Failure: an S3 error, with the place of a mistake in its message. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"
#include "server/s3/s3.h"

#define LOADER_STEPS(S)                                                                            \
    S(loader, OPEN) S(loader, CONTINUE) S(loader, TAKE) S(loader, READ) S(loader, TELL)            \
    S(loader, SEND) S(loader, DRAIN) S(loader, END)
STEP_TABLE(loader, LOADER_STEPS)

enum {
    IN_BYTES = 64 * KIB,
    BODY_BYTES_MAX = 256 * MIB,
    POSTS_MOST = 8,                  /* at once: each may hold a document of 16 MiB */
};

static _Atomic unsigned posts;

struct loading {                     /* what the desk works on */
    struct desk_work work;
    struct plan_right right;
    struct server *server;
    struct span access_key;          /* in the request's head, or its arena */
    bool all;                        /* it is the upstream's own: no keys_file */
    bool posts, lines;
    bool awaited;                    /* the client waits for "100 Continue" */
    bool well;                       /* nothing is wrong with the body so far */
    struct plan_body *body;          /* the desk's; NULL: not begun, or over */
    uint64_t id;
    size_t got;                      /* bytes in `in` */
    enum err err;
    struct text said;                /* memory of its own: JSON, or why not */
    struct s3_error error;
    struct payload_facts facts;
    struct payload_decoder decoder;
    char in[];                       /* of a post: IN_BYTES */
};

static struct req *req_of(struct loader *l)
{
    return container_of(l, struct req, loader);
}

/* ---- at the desk ---- */
static bool may_read(const struct plan_right *right, const char *prefix)
{
    const struct loading *d =
        container_of((struct plan_right *)(uintptr_t)right, struct loading, right);
    struct span rest = span_of(prefix), bucket = span_cut(&rest, '/');
    struct settings *now = settings_hold(d->server);
    const struct key *k = now->keys ? keys_find(now->keys, d->access_key) : NULL;
    bool may = now->keys ? k && keys_allow(k, false, bucket, rest) : d->all;

    settings_drop(now);
    return may;
}

static struct loading *loading_of(struct desk_work *e)
{
    return container_of(e, struct loading, work);
}

static bool has_body(struct loading *d)
{
    if (!d->body)
        d->body = d->server->plan_ops->make(d->server, d->lines, &d->right);
    return d->body;
}

static void take_piece(struct desk_work *e)
{
    struct loading *d = loading_of(e);
    d->err = has_body(d) ? OK : ERR_MEMORY;
    d->well = d->body && d->server->plan_ops->take(d->body, span_make(d->in, d->got));
}

static void leave_body(struct desk_work *e)
{
    struct loading *d = loading_of(e);
    d->server->plan_ops->leave(d->body);
    d->body = NULL;
}

static void post_plan(struct desk_work *e)
{
    struct loading *d = loading_of(e);
    if (d->err == OK)                /* else a piece of it found no memory */
        d->err = has_body(d) ? d->server->plan_ops->post(d->server, d->body, &d->right, &d->said)
                             : ERR_MEMORY;
    leave_body(e);
}

static void tell_plan(struct desk_work *e)
{
    struct loading *d = loading_of(e);
    d->err = d->server->plan_ops->tell(d->server, d->id, &d->right, &d->said);
}

static void drop_plan(struct desk_work *e)
{
    struct loading *d = loading_of(e);
    d->err = d->server->plan_ops->drop(d->server, d->id, &d->right, &d->said);
}

/* ---- answers ---- */

/* As of every body that is not relayed whole: what a client does that got no 100, nobody knows. */
static bool must_close(struct loader *l)
{
    const struct req *r = req_of(l);
    bool over = conn_body_over(r->conn) && !l->of->awaited;
    bool chunks = l->of->posts && r->head->framing == HTTP_BODY_CHUNKED;
    return (over ? !r->head->keep_alive : r->close || chunks) || conn_stopping(r->conn);
}

static enum turn say(struct loader *l, const struct s3_error *e)
{
    struct req *r = req_of(l);
    r->status = e->status;
    r->close = must_close(l);
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_error(&r->out, e, &r->stamp, false, r->close);
    send_reset(&r->send);
    send_add(&r->send, r->out.at, (uint32_t)r->out.len);
    return GO(loader, l, SEND);
}

static enum turn refuse(struct loader *l, uint16_t status, const char *code, const char *why)
{
    const struct s3_error e = {.status = status, .code = code, .message = why,
                               .resource = req_of(l)->ask.path,
                               .retry_after_s = status == 503};
    return say(l, &e);
}

static enum turn refuse_body(struct loader *l, const struct payload_refusal *no)
{
    const struct s3_error e = {.status = no->status, .code = no->code, .message = no->why,
                               .resource = req_of(l)->ask.path,
                               .argument_name = span_of(no->argument), .chunk = no->chunk,
                               .chunk_bytes = no->chunk_bytes};
    return say(l, &e);
}

/* What the desk found. */
static enum turn refuse_err(struct loader *l, enum err why)
{
    const struct loading *d = l->of;
    const char *words = d->said.len > 0 ? d->said.at : "There is no memory for it.";
    switch (why) {
    case ERR_SYNTAX: return refuse(l, 400, "InvalidRequest", words);
    case ERR_TOO_LARGE: return refuse(l, 413, "EntityTooLarge", words);
    case ERR_DENIED:
        metric_add(l->m.core->metrics, METRIC_AUTH_FAILURES_TOTAL, AUTH_FORBIDDEN, 1);
        return refuse(l, 403, "AccessDenied", words);
    case ERR_BUSY: return refuse(l, 409, "TooManyPlans", words);
    case ERR_NOT_FOUND:
        return d->posts ? refuse(l, 404, "NoSuchBucket", words)
                        : refuse(l, 404, "NoSuchPlan",
                                 "There is no such plan of what the key may read. Plans are lost "
                                 "when the server is started again.");
    default: return refuse(l, 503, "SlowDown", words);
    }
}

static enum turn say_done(struct loader *l)
{
    struct req *r = req_of(l);
    const struct text *said = &l->of->said;
    r->status = l->of->posts ? 202 : 200;
    r->close = must_close(l);
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_begin(&r->out, r->status, &r->stamp);
    text_adds(&r->out, "Content-Type: application/json\r\nCache-Control: no-store\r\n"
                       "Content-Length: ");
    text_addu(&r->out, said->len);
    text_adds(&r->out, r->close ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n");
    r->body_bytes = said->len;
    send_reset(&r->send);
    send_add(&r->send, r->out.at, (uint32_t)r->out.len);
    send_add(&r->send, said->at, (uint32_t)said->len);
    return GO(loader, l, SEND);
}

/* The list in r->send has left; false: not yet, or *why. */
static bool is_sent(struct loader *l, enum err *why)
{
    struct req *r = req_of(l);
    *why = OK;
    if (r->send.op.busy)
        return false;
    if (op_take(&r->send.op) && (send_accept(&r->send, r->conn, why) || *why != OK))
        return *why == OK;
    send_go(&r->send, r->conn, &l->m);
    return false;
}

/* ---- steps ---- */

/* Of "/-/plans/p7"; 0: it is none. */
static uint64_t read_id(struct span path)
{
    struct span word = span_from(path, strlen("/-/plans/"));
    uint64_t id;
    return word.len > 1 && word.at[0] == 'p' && span_u64(span_from(word, 1), &id) == OK ? id : 0;
}

static enum turn hand(struct loader *l, void (*work)(struct desk_work *e))
{
    desk_begin(&l->m, &l->of->work, work);
    return GO(loader, l, TELL);
}

static enum turn open_body(struct loader *l)
{
    struct loading *d = l->of;
    const struct http_head *h = req_of(l)->head;
    struct payload_refusal no;
    struct span type = http_find(h, "content-type");
    d->lines = span_is_nocase(span_trim(span_cut(&type, ';')), "application/x-ndjson");
    d->awaited = h->expect_continue;
    if (payload_read(h, true, &d->facts, &no) != OK)
        return refuse_body(l, &no);
    if (d->facts.bytes > BODY_BYTES_MAX)
        return refuse(l, 413, "EntityTooLarge", "A plan has at most 256 MiB.");
    if (payload_begin(&d->decoder, &d->facts, NULL, PAYLOAD_CHECK_ALL) != OK)
        return refuse_body(l, &d->decoder.no);
    if (!d->awaited)
        return GO(loader, l, TAKE);
    static const char words[] = "HTTP/1.1 100 Continue\r\n\r\n";
    send_reset(&req_of(l)->send);
    send_add(&req_of(l)->send, words, sizeof(words) - 1);
    return GO(loader, l, CONTINUE);
}

static enum turn loader_OPEN(struct loader *self) /* nothing is begun */
{
    struct loading *d = self->of;
    const struct req *r = req_of(self);
    if (atomic_load(&d->server->state) == SERVER_STARTING) /* who keeps plans may not be there */
        return refuse(self, 503, "ServiceUnavailable", "The server is not ready yet.");
    if (d->posts)
        return open_body(self);
    if (r->ask.op == ListPlans)
        return hand(self, tell_plan);
    d->id = read_id(r->ask.path);
    if (d->id == 0)
        return refuse_err(self, ERR_NOT_FOUND);
    return hand(self, r->ask.op == GetPlan ? tell_plan : drop_plan);
}

static enum turn loader_CONTINUE(struct loader *self) /* the 100 is under way */
{
    enum err why;
    if (!is_sent(self, &why))
        return why == OK ? WAIT : FAIL(self, why);
    self->of->awaited = false;
    return GO(loader, self, TAKE);
}

static enum turn broken(struct loader *l, enum err why)
{
    req_of(l)->close = true;
    if (why == ERR_TIMEOUT)
        return refuse(l, 400, "RequestTimeout", "The body did not go on for too long.");
    if (why == ERR_SYNTAX)
        return refuse(l, 400, "BadRequest", "The HTTP chunks of the body are malformed.");
    return FAIL(l, why);
}

static enum turn loader_TAKE(struct loader *self) /* more of the body comes */
{
    struct loading *d = self->of;
    enum err why;
    size_t raw;
    enum body_state s =
        conn_body_take(req_of(self)->conn, &self->m, d->in, IN_BYTES, &raw, &why);
    if (s == BODY_BUSY)
        return WAIT;
    if (s == BODY_BROKEN)
        return broken(self, why);
    enum err e = s == BODY_END ? payload_end(&d->decoder)
                               : payload_decode(&d->decoder, d->in, raw, &d->got);
    if (e != OK)
        return refuse_body(self, &d->decoder.no);
    if (s == BODY_END)
        return hand(self, post_plan);
    desk_begin(&self->m, &d->work, take_piece);
    return GO(loader, self, READ);
}

static enum turn loader_READ(struct loader *self) /* the desk has what came */
{
    if (self->of->work.busy)
        return WAIT;
    return self->of->well ? GO(loader, self, TAKE) : hand(self, post_plan); /* which says why */
}

static enum turn loader_TELL(struct loader *self) /* the desk makes the answer */
{
    struct loading *d = self->of;
    if (d->work.busy)
        return WAIT;
    return d->err == OK ? say_done(self) : refuse_err(self, d->err);
}

static enum turn loader_SEND(struct loader *self) /* the answer is in r->send */
{
    enum err why;
    req_first_byte(req_of(self));
    if (is_sent(self, &why))
        return GO(loader, self, DRAIN);
    return why == OK ? WAIT : FAIL(self, why);
}

static enum turn loader_DRAIN(struct loader *self)
{
    if (self->m.why != OK)
        send_stop(&req_of(self)->send, &self->m);
    if (self->m.inflight > 0)
        return WAIT;
    if (self->of->body) {
        desk_begin(&self->m, &self->of->work, leave_body);
        return WAIT;
    }
    return GO(loader, self, END);
}

static enum turn loader_END(struct loader *self)
{
    struct loading *d = self->of;
    if (d->posts)
        atomic_fetch_sub(&posts, 1);
    mem_give(d->said.at);
    mem_give(d);
    req_of(self)->cut = self->m.why != OK;
    return OVER;
}

static void loader_over(struct machine *m)
{
    req_over(req_of((struct loader *)m));
}

static struct loading *make(struct req *r)
{
    bool post = r->ask.op == PostPlan;
    struct loading *d = NULL;
    if (!post || atomic_fetch_add(&posts, 1) < POSTS_MOST)
        d = mem_take(sizeof(*d) + (post ? IN_BYTES : 0));
    if (!d && post)
        atomic_fetch_sub(&posts, 1);
    if (!d)
        return NULL;
    d->posts = post;
    d->server = r->core->server;
    d->access_key = r->who.access_key;
    d->all = !s3_core_gate(r->core)->keys;
    d->right = (struct plan_right){.may = may_read, .profile = r->who.profile};
    return d;
}

void loader_begin(struct req *r)
{
    struct s3_error e;
    struct loading *d = make(r);
    if (!d) {
        s3_error_of(ERR_MEMORY, &e);
        e.resource = r->ask.path;
        answer_error(r, &e);
        return;
    }
    struct loader *l = &r->loader;
    memset(l, 0, sizeof(*l));
    l->of = d;
    MACHINE_BEGIN(loader, l, r->core, loader_over);
}
