/* MACHINE that sends a ready text: errors, refusals, probes. And what errors of the house are to S3
 * clients.
 *
 * Invariants:
 *  1. The whole answer stands in r->out before the machine begins.
 *  2. An upstream failure never becomes a 404 or a 400: 503 where a retry may help, 502 where an
 *     answer could not be trusted.
 *
 * Life: embedded in a request; ends in req_over(). Failure: the client is gone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#define ANSWER_STEPS(S) S(answer, SEND) S(answer, DRAIN) S(answer, END)
STEP_TABLE(answer, ANSWER_STEPS)

static struct req *req_of(struct answer *a)
{
    return container_of(a, struct req, answer);
}

static enum turn answer_SEND(struct answer *self)
{
    struct req *r = req_of(self);
    if (!op_take(&r->send.op)) {
        if (r->send.op.busy)
            return WAIT;
        send_reset(&r->send);
        send_add(&r->send, r->out.at, (uint32_t)r->out.len);
        req_first_byte(r);
    } else {
        enum err why;
        if (send_accept(&r->send, r->conn, &why))
            return GO(answer, self, DRAIN);
        if (why != OK)
            return FAIL(self, why);
    }
    send_go(&r->send, r->conn, &self->m);
    return WAIT;
}

static enum turn answer_DRAIN(struct answer *self)
{
    return self->m.inflight > 0 ? WAIT : GO(answer, self, END);
}

static enum turn answer_END(struct answer *self)
{
    req_of(self)->cut = self->m.why != OK;
    return OVER;
}

static void answer_over(struct machine *m)
{
    req_over(req_of((struct answer *)m));
}

void answer_text(struct req *r, uint16_t status)
{
    r->status = status;
    MACHINE_BEGIN(answer, &r->answer, r->core, answer_over);
}

void answer_error(struct req *r, const struct s3_error *e)
{
    r->close = r->close || conn_stopping(r->conn);
    text_init(&r->out, r->out_memory, sizeof(r->out_memory));
    s3_reply_error(&r->out, e, &r->stamp, r->head_request, r->close);
    answer_text(r, e->status);
}

/* ---- errors ---- */

void s3_error_of(enum err why, struct s3_error *out)
{
    *out = (struct s3_error){.status = 503, .code = "ServiceUnavailable", .retry_after_s = 1};
    switch (why) {
    case ERR_MEMORY:
    case ERR_BUSY:
    case ERR_FULL:
        out->code = "SlowDown";
        out->message = "Please reduce your request rate: a limit of the cache is reached.";
        return;
    case ERR_UPSTREAM_PROTOCOL:
    case ERR_UPSTREAM_SHORT:
    case ERR_UPSTREAM_STATUS:
        out->status = 502;
        out->code = "BadGateway";
        out->message = "The upstream's answer could not be used. See the log of the cache.";
        out->retry_after_s = 0;
        return;
    case ERR_TOO_LARGE:              /* of the client's head and ours, signed, or of our answer's */
        out->status = 400;
        out->code = "RequestHeaderSectionTooLarge";
        out->message = "Your request's fields and parameters are too large to be passed on.";
        out->retry_after_s = 0;
        return;
    case ERR_CHANGED:
        out->message = "The object is changing too fast to be read. Please try again.";
        return;
    case ERR_CREDENTIALS:
        out->message = "The cache has no usable credentials for its upstream.";
        return;
    case ERR_UPSTREAM_DNS:
    case ERR_UPSTREAM_CONNECT:
    case ERR_UPSTREAM_TLS:
    case ERR_UPSTREAM_TIMEOUT:
    case ERR_UPSTREAM_RESET:
    case ERR_UPSTREAM_DOWN:
        out->message =
            "The upstream cannot be reached and the object is not cached. Please try again.";
        return;
    default:
        out->status = 500;
        out->code = "InternalError";
        out->message = "We encountered an internal error. Please try again.";
        out->retry_after_s = 0;
        return;
    }
}

void s3_error_of_upstream(const struct upstream_error *u, const struct s3_ask *a,
                          struct s3_error *out)
{
    *out = (struct s3_error){
        .status = u->status, .code = u->code, .message = u->message[0] ? u->message : u->code,
        .retry_after_s = u->status == 503 || u->status == 429};
    if (strcmp(u->code, "NoSuchBucket") == 0)
        out->bucket = a->bucket;
    else if (u->status == 404)
        out->key = a->key;
    else
        out->resource = a->path;
    if (u->status == 405)
        out->allow = span_of(u->marker ? "DELETE" : "GET, HEAD");
    out->marker = u->marker;
    out->marker_version = span_of(u->version);
    out->modified_s = u->last_modified_s;
}
