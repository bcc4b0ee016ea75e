/* MACHINE that answers ListBuckets where there are several upstreams: what each of them has that is
 * routed to it, as one list by the clients' names.
 *
 * Invariants:
 *  1. A name is in the list if and only if requests for it go where it was found: names that other
 *     sections match, and those that are called differently here, are left out.
 *  2. What match names exactly is listed without asking anybody, also while its upstream is away.
 *     Others are asked, one after the other: the default, and those with prefixes, as the key that
 *     asks (its profile). One that says that we may not list adds nothing; one that does not
 *     answer, or with a page, fails the whole list, since a part of it would look like all of it.
 *  3. A key sees what it may see at the moment at which the list is written; who may ask without a
 *     signature sees all of it.
 *
 * Life: embedded in a request; ends in req_over(). Its memory is taken at the start and given back
 * at the end.
 * Failure: an honest error; the list may have 10,000 buckets. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "server/s3/s3.h"

#define MERGE_STEPS(S)                                                                             \
    S(merge, NEXT) S(merge, HEAD) S(merge, READ) S(merge, CLOSE) S(merge, WRITE) S(merge, ANSWER)  \
    S(merge, DRAIN) S(merge, END)
STEP_TABLE(merge, MERGE_STEPS)

enum {
    FOUND_FIRST = 64,
    FOUND_MOST = 10000,
    DATE_BYTES = 32,
    READ_BYTES = 16 * KIB,
    DOCUMENT_BYTES_MAX = 8 * MIB,
    AROUND_BYTES = KIB,              /* of the answer: its head, and the document's */
    RUNNING_MOST = 16,               /* in the process: each may have 3 MiB */
};

static _Atomic unsigned running;

struct found {
    char name[BUCKET_BYTES_MAX + 1], date[DATE_BYTES];
};

struct merged {
    struct found *found;
    unsigned count, room;
    struct xml_reader *reader;       /* of the answer that is being read */
    bool list, no_room, no_memory;   /* that is a list of buckets; it has too many */
    unsigned upstream;
    const struct config *conf;       /* of this turn */
    struct found now;                /* the <Bucket> that is being read */
    char *out;
    char in[READ_BYTES];
};

static struct req *req_of(struct merge *g)
{
    return container_of(g, struct req, merge);
}

static void forget(struct merged *d)
{
    mem_give(d->found);
    mem_give(d->out);
    mem_give(d);
    atomic_fetch_sub(&running, 1);
}

bool merge_is_needed(const struct req *r)
{
    const struct config *conf = r->core->settings->config;
    return r->ask.op == ListBuckets &&
           (conf->upstream_count > 1 || !conf_default_upstream(conf));
}

/* ---- names ---- */

static struct found *add(struct merged *d)
{
    if (d->count == d->room) {
        unsigned room = d->room ? 2 * d->room : FOUND_FIRST;
        d->no_room = d->count >= FOUND_MOST;
        struct found *more = d->no_room ? NULL : mem_take(room * sizeof(*more));
        d->no_memory = !more && !d->no_room;
        if (!more)
            return NULL;
        if (d->count > 0)
            memcpy(more, d->found, d->count * sizeof(*more));
        mem_give(d->found);
        d->found = more;
        d->room = room;
    }
    memset(&d->found[d->count], 0, sizeof(*d->found));
    return &d->found[d->count++];
}

/* What the sections name. Since when they were made is not asked: since we know them. */
static bool add_named(struct merged *d, const struct server *s)
{
    char date[25];
    iso_date_write(s->started_wall_s * 1000, date);
    for (unsigned i = 0; i < s->config->upstream_count; i++) {
        const struct conf_list *match = &s->config->upstream[i].match;
        for (unsigned k = 0; k < match->count; k++) {
            struct span name;
            if (!conf_match_is_exact(match->item[k], &name))
                continue;
            struct found *f = add(d);
            if (!f)
                return false;
            memcpy(f->name, name.at, name.len);
            memcpy(f->date, date, sizeof(date));
        }
    }
    return true;
}

static bool is_asked(const struct conf_upstream *u)
{
    struct span prefix;
    bool asked = u->match.count == 0;
    for (unsigned i = 0; i < u->match.count; i++)
        asked = asked || !conf_match_is_exact(u->match.item[i], &prefix);
    return asked;
}

static bool is_named(const struct conf_upstream *u, struct span name)
{
    struct span text;
    for (unsigned i = 0; i < u->match.count; i++)
        if (conf_match_is_exact(u->match.item[i], &text) && span_eq(text, name))
            return true;
    return false;
}

/* A bucket of the upstream that is being asked. */
static bool end_bucket(struct merged *d)
{
    struct span name = span_of(d->now.name);
    struct conf_route to;
    bool ours = name.len > 0 && conf_route(d->conf, name, &to) && to.upstream == d->upstream &&
                !is_named(&d->conf->upstream[d->upstream], name);
    struct found *f = ours ? add(d) : NULL;
    if (f)
        *f = d->now;
    memset(&d->now, 0, sizeof(d->now));
    return f || !ours;
}

static void keep(char *to, size_t cap, struct span text)
{
    if (text.len < cap)
        memcpy(to, text.at, text.len);
}

static bool each(void *user, struct span path, struct span text)
{
    static const char root[] = "ListAllMyBucketsResult";
    struct merged *d = user;
    if (!span_starts(path, span_of(root)))
        return false;
    path = span_from(path, sizeof(root) - 1);
    d->list = d->list || path.len == 0;
    if (span_is(path, "/Buckets/Bucket/Name"))
        keep(d->now.name, sizeof(d->now.name), text);
    if (span_is(path, "/Buckets/Bucket/CreationDate"))
        keep(d->now.date, sizeof(d->now.date), text);
    if (span_is(path, "/ContinuationToken") && text.len > 0)
        return false;                /* a page, though none was asked for */
    return !span_is(path, "/Buckets/Bucket") || end_bucket(d);
}

/* ---- the answer ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct found *)a)->name, ((const struct found *)b)->name);
}

static void write_bucket(struct text *t, const struct found *f)
{
    xml_open_tag(t, "Bucket");
    xml_leaf_text(t, "Name", span_of(f->name));
    if (f->date[0])
        xml_leaf_text(t, "CreationDate", span_of(f->date));
    xml_close_tag(t, "Bucket");
}

static bool is_shown(struct req *r, const struct found *f)
{
    return span_starts(span_of(f->name), r->ask.prefix) &&
           (r->who.anonymous || s3_may_see(s3_core_gate(r->core), &r->who, span_of(f->name)));
}

/* Their size first: then memory for exactly that is taken. */
static size_t list_bytes(struct req *r, const struct merged *d)
{
    char memory[8 * BUCKET_BYTES_MAX];
    size_t sum = 0;
    for (unsigned i = 0; i < d->count; i++) {
        struct text t;
        text_init(&t, memory, sizeof(memory));
        if (is_shown(r, &d->found[i]))
            write_bucket(&t, &d->found[i]);
        must(!t.over);
        sum += t.len;
    }
    return sum;
}

static enum err write_list(struct req *r, struct merged *d)
{
    static const char open[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListAllMyBucketsResult "
        "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Owner><ID>headpond</ID>"
        "<DisplayName>headpond</DisplayName></Owner><Buckets>",
        close[] = "</Buckets></ListAllMyBucketsResult>";
    if (d->count > 0)
        qsort(d->found, d->count, sizeof(*d->found), by_name);
    size_t bytes = list_bytes(r, d);
    d->out = mem_take(bytes + AROUND_BYTES + sizeof(open) + sizeof(close));
    if (!d->out)
        return ERR_MEMORY;
    r->close = !r->head->keep_alive || r->close || conn_stopping(r->conn);
    text_init(&r->out, d->out, bytes + AROUND_BYTES + sizeof(open) + sizeof(close));
    s3_reply_begin(&r->out, 200, &r->stamp);
    text_adds(&r->out, "Content-Type: application/xml\r\nx-cache: bypass\r\nContent-Length: ");
    text_addu(&r->out, strlen(open) + bytes + strlen(close));
    text_adds(&r->out, r->close ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n");
    text_adds(&r->out, open);
    for (unsigned i = 0; i < d->count; i++)
        if (is_shown(r, &d->found[i]))
            write_bucket(&r->out, &d->found[i]);
    text_adds(&r->out, close);
    must(!r->out.over);
    return OK;
}

static enum turn say(struct merge *g, const struct s3_error *e)
{
    struct req *r = req_of(g);
    r->status = e->status;
    r->close = !r->head->keep_alive || r->close || conn_stopping(r->conn);
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_error(&r->out, e, &r->stamp, r->head_request, r->close);
    return GO(merge, g, ANSWER);
}

static enum turn say_err(struct merge *g, enum err why)
{
    struct s3_error e;
    s3_error_of(why, &e);
    e.resource = req_of(g)->ask.path;
    return say(g, &e);
}

/* ---- steps ---- */

/* Pages are of one upstream's making. */
static bool wants_page(const struct req *r)
{
    static const char *const keys[] = {"max-buckets", "continuation-token", "bucket-region"};
    struct span rest = r->ask.query;
    struct uri_pair pair;
    char memory[URI_NAME_BYTES_MAX];
    while (uri_next_pair(&rest, &pair)) {
        struct span name = uri_name(&pair, memory);
        for (unsigned i = 0; i < ARRAY_COUNT(keys); i++)
            if (span_is(name, keys[i]))
                return true;
    }
    return false;
}

static enum turn merge_NEXT(struct merge *self) /* no exchange runs */
{
    const struct config *conf = self->m.core->settings->config;
    struct merged *d = self->list;
    while (self->at < conf->upstream_count && !is_asked(&conf->upstream[self->at]))
        self->at++;
    if (self->at == conf->upstream_count)
        return GO(merge, self, WRITE);
    d->upstream = self->at;
    d->list = false;
    memset(&d->now, 0, sizeof(d->now));
    self->ask = (struct ask){.method = HTTP_GET,
                             .class_ = ASK_DEMAND,
                             .op = OP_LIST,
                             .purpose = PURPOSE_DEMAND,
                             .profile = req_of(self)->who.profile,
                             .patient = true,
                             .upstream = (uint8_t)self->at};
    self->begun = true;
    self->ending = false;
    exchange_begin(&self->x, self->m.core, &self->ask, &self->m);
    return GO(merge, self, HEAD);
}

/* Of an answer without a list: OK if there is none for us. Who is asked too often, too slowly, or
 * does not like our question has said nothing about his buckets. */
static enum err judge_status(uint16_t status)
{
    switch (status) {
    case 401:
    case 403:
    case 404:
    case 405:
    case 501: return OK;
    case 408:
    case 429: return ERR_UPSTREAM_DOWN;
    default: return status >= 500 ? ERR_UPSTREAM_DOWN : ERR_UPSTREAM_PROTOCOL;
    }
}

static enum turn merge_HEAD(struct merge *self) /* the request is on its way */
{
    const struct exchange *x = &self->x;
    if (x->failed)
        self->why = x->m.why != OK ? x->m.why : ERR_UPSTREAM_RESET;
    else if (!x->head_known)
        return WAIT;
    else if (x->head->status != 200)
        self->why = judge_status(x->head->status);
    if (self->why != OK || x->head->status != 200)
        return GO(merge, self, CLOSE);
    self->list->reader = xml_open(DOCUMENT_BYTES_MAX, each, self->list);
    self->why = self->list->reader ? OK : ERR_MEMORY;
    return self->list->reader ? GO(merge, self, READ) : GO(merge, self, CLOSE);
}

/* How the reader failed. */
static enum err why_of(const struct merged *d, enum err e)
{
    return d->no_memory || e == ERR_MEMORY ? ERR_MEMORY : ERR_UPSTREAM_PROTOCOL;
}

static enum turn merge_READ(struct merge *self) /* a document comes */
{
    struct exchange *x = &self->x;
    struct merged *d = self->list;
    enum err e = OK;
    if (x->reading)
        return WAIT;
    d->conf = self->m.core->settings->config;
    if (x->read_got > 0)
        e = xml_feed(d->reader, span_make(d->in, x->read_got));
    x->read_got = 0;
    if (e == OK && x->at_end)
        e = xml_end(d->reader);
    if (e != OK || (x->at_end && !d->list))
        self->why = why_of(d, e);
    else if (x->failed)
        self->why = x->m.why != OK ? x->m.why : ERR_UPSTREAM_RESET;
    if (self->why != OK || x->at_end)
        return GO(merge, self, CLOSE);
    exchange_read(x, d->in, sizeof(d->in));
    return WAIT;
}

static enum turn merge_CLOSE(struct merge *self) /* the exchange ends */
{
    if (!self->ending) {
        if (self->why == ERR_UPSTREAM_PROTOCOL && !self->x.failed)
            exchange_refuse(&self->x, "no whole list of buckets");
        self->ending = true;
        exchange_end(&self->x);
    }
    if (!self->x.over)
        return WAIT;
    self->begun = false;
    self->at++;
    xml_close(self->list->reader);
    self->list->reader = NULL;
    return self->why != OK ? say_err(self, self->why) : GO(merge, self, NEXT);
}

static enum turn merge_WRITE(struct merge *self)
{
    struct req *r = req_of(self);
    enum err e = write_list(r, self->list);
    if (e != OK)
        return say_err(self, e);
    r->status = 200;
    return GO(merge, self, ANSWER);
}

static enum turn merge_ANSWER(struct merge *self) /* r->out is the whole answer */
{
    struct req *r = req_of(self);
    if (op_take(&r->send.op)) {
        enum err why;
        if (send_accept(&r->send, r->conn, &why))
            return GO(merge, self, DRAIN);
        if (why != OK)
            return FAIL(self, why);
        send_go(&r->send, r->conn, &self->m);
        return WAIT;
    }
    if (r->send.op.busy)
        return WAIT;
    send_reset(&r->send);
    send_add(&r->send, r->out.at, (uint32_t)r->out.len);
    req_first_byte(r);
    send_go(&r->send, r->conn, &self->m);
    return WAIT;
}

static enum turn merge_DRAIN(struct merge *self)
{
    if (self->m.why != OK)
        send_stop(&req_of(self)->send, &self->m);
    must(!self->begun);
    return self->m.inflight == 0 ? GO(merge, self, END) : WAIT;
}

static enum turn merge_END(struct merge *self)
{
    struct merged *d = self->list;
    forget(d);
    req_of(self)->cut = self->m.why != OK;
    return OVER;
}

static void merge_over(struct machine *m)
{
    req_over(req_of((struct merge *)m));
}

static struct merged *make(const struct server *s)
{
    struct merged *d = NULL;
    if (atomic_fetch_add(&running, 1) < RUNNING_MOST)
        d = mem_take(sizeof(*d));
    if (!d)
        atomic_fetch_sub(&running, 1);
    if (!d || add_named(d, s))
        return d;
    forget(d);
    return NULL;
}

void merge_begin(struct req *r)
{
    struct s3_error e;
    r->result = RESULT_BYPASS;
    r->x_cache = "bypass";
    if (wants_page(r)) {
        e = (struct s3_error){
            .status = 501,
            .code = "NotImplemented",
            .message = "With several upstreams, buckets are listed whole: without max-buckets, "
                       "continuation-token and bucket-region."};
        answer_error(r, &e);
        return;
    }
    struct merged *d = make(r->core->server);
    if (!d) {
        s3_error_of(ERR_MEMORY, &e);
        answer_error(r, &e);
        return;
    }
    struct merge *g = &r->merge;
    memset(g, 0, sizeof(*g));
    g->list = d;
    MACHINE_BEGIN(merge, g, r->core, merge_over);
}
