/* Why a signature does not match, as a sentence that tells what to change: the likely alternatives
 * are verified as well. Pure.
 *
 * Invariants:
 *  1. Nothing here accepts anything: it is asked about requests that are refused already, and only
 *     a sentence comes of it.
 *  2. What it tells is known to whoever holds a valid signature: that it is one, of what else.
 *
 * Life: a sentence lies in the request's arena.
 * Failure: without memory the sentence is a constant one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

enum { SHOWN_BYTES_MAX = 200 };

struct trial {
    const struct sign_claim *claim;
    const struct http_head *head;
    const struct s3_ask *ask;
    const struct secret *secret;
    struct span upstream_host;
    struct arena *arena;
};

static bool fits(const struct trial *t, const struct http_head *other)
{
    return sign_claim_verify(t->claim, other, t->secret, NULL, NULL) == OK;
}

static const char *sentence(struct span text)
{
    return text.at ? text.at : "The request signature we calculated does not match the signature "
                               "you provided.";
}

/* ---- the method ---- */
static const char *try_methods(const struct trial *t)
{
    for (unsigned m = 0; m < HTTP_METHOD_COUNT; m++) {
        struct http_head other = *t->head;
        other.method_text = span_of(http_method_text((enum http_method)m));
        if (other.method == (enum http_method)m || !fits(t, &other))
            continue;
        return sentence(arena_printf(
            t->arena, "The signature was made for the method %s, but this is a %s. A presigned URL "
                      "is good for one method: sign another one for %s.",
            other.method_text.at, http_method_text(t->head->method),
            http_method_text(t->head->method)));
    }
    return NULL;
}

/* ---- a field that something on the way has changed ---- */
static bool fits_with(const struct trial *t, const char *name, struct span value)
{
    struct http_head other = *t->head;
    bool found = false;
    for (unsigned i = 0; i < other.count; i++)
        if (span_is_nocase(other.field[i].name, name)) {
            found = true;
            other.field[i].value = value;
        }
    return found && fits(t, &other);
}

static const char *wrong_host(const struct trial *t, struct span host)
{
    char memory[2][SHOWN_BYTES_MAX + 8];
    struct text was, is;
    text_init(&was, memory[0], sizeof(memory[0]));
    text_init(&is, memory[1], sizeof(memory[1]));
    text_add_printable(&was, host, SHOWN_BYTES_MAX);
    text_add_printable(&is, t->head->host, SHOWN_BYTES_MAX);
    return sentence(arena_printf(
        t->arena, "The signature was made for the Host \"%s\", but \"%s\" arrived. What stands "
                  "between client and cache must pass Host on unchanged, with its port; or let the "
                  "client sign for the name that arrives here.",
        was.at, is.at));
}

static const char *try_host(const struct trial *t, struct span host)
{
    return host.len > 0 && fits_with(t, "host", host) ? wrong_host(t, host) : NULL;
}

static const char *try_ports(const struct trial *t)
{
    static const char *const ports[] = {"", ":80", ":443", ":9000"};
    struct span name = t->head->host;
    size_t end = name.len;
    while (end > 0 && name.at[end - 1] != ':' && name.at[end - 1] != ']')
        end--;
    if (end > 0 && name.at[end - 1] == ':')
        name.len = end - 1;
    for (unsigned i = 0; i < ARRAY_COUNT(ports); i++) {
        struct span host = arena_printf(t->arena, "%.*s%s", (int)name.len, name.at, ports[i]);
        const char *why = try_host(t, host);
        if (why)
            return why;
    }
    return NULL;
}

static const char *try_forwarded(const struct trial *t)
{
    struct span list = http_find(t->head, "x-forwarded-host");
    struct span host = span_trim(span_cut(&list, ','));
    struct span port = http_find(t->head, "x-forwarded-port");
    const char *why = try_host(t, host);
    if (why || port.len == 0 || host.len == 0)
        return why;
    return try_host(t, arena_printf(t->arena, "%.*s:%.*s", (int)host.len, host.at, (int)port.len,
                                    port.at));
}

/* A URL that was made for the store itself, with the bucket in its path or in its host. */
static const char *try_upstream(const struct trial *t)
{
    const char *why = try_host(t, t->upstream_host);
    struct span bucket = t->ask->bucket, path, query;
    if (why || t->upstream_host.len == 0 || bucket.len == 0 || t->ask->virtual_host)
        return why;
    struct trial virtual_ = *t;
    struct http_head head = *t->head;
    uri_split(head.target, &path, &query);
    size_t cut = 1 + span_find(span_from(path, 1), '/');
    if (cut >= path.len)
        return NULL;
    head.target = span_from(head.target, cut);
    virtual_.head = &head;
    return try_host(&virtual_, arena_printf(t->arena, "%.*s.%.*s", (int)bucket.len, bucket.at,
                                            (int)t->upstream_host.len, t->upstream_host.at));
}

static const char *try_encodings(const struct trial *t)
{
    static const char *const value[] = {"", "identity", "gzip", "gzip, deflate",
                                        "gzip, deflate, br"};
    for (unsigned i = 0; i < ARRAY_COUNT(value); i++)
        if (fits_with(t, "accept-encoding", span_of(value[i])))
            return "The signature covers Accept-Encoding, and something between client and cache "
                   "has changed that field. Let it pass unchanged, or let the client not sign it.";
    return NULL;
}

/* ---- the target ---- */
/* Each character `c` of the target in [0, len) replaced. */
static struct span replace(const struct trial *t, struct span target, char c, const char *by)
{
    struct text out;
    char *memory = arena_take(t->arena, 3 * target.len + 1);
    if (!memory)
        return (struct span){NULL, 0};
    text_init(&out, memory, 3 * target.len + 1);
    for (size_t i = 0; i < target.len; i++)
        if (target.at[i] == c)
            text_adds(&out, by);
        else
            text_addc(&out, target.at[i]);
    return text_span(&out);
}

static bool fits_target(const struct trial *t, struct span path, struct span query)
{
    struct http_head other = *t->head;
    if (!path.at)
        return false;
    other.target = arena_printf(t->arena, "%.*s%s%.*s", (int)path.len, path.at,
                                query.len ? "?" : "", (int)query.len, query.at ? query.at : "");
    return other.target.at && other.target.len < HTTP_TARGET_BYTES_MAX && fits(t, &other);
}

static struct span collapse(const struct trial *t, struct span path)
{
    struct text out;
    char *memory = arena_take(t->arena, path.len + 1);
    if (!memory)
        return (struct span){NULL, 0};
    text_init(&out, memory, path.len + 1);
    for (size_t i = 0; i < path.len; i++)
        if (path.at[i] != '/' || i == 0 || path.at[i - 1] != '/')
            text_addc(&out, path.at[i]);
    return text_span(&out);
}

static const char *try_targets(const struct trial *t)
{
    struct span path, query;
    uri_split(t->head->target, &path, &query);
    if (span_find(path, '%') < path.len && fits_target(t, replace(t, path, '%', "%25"), query))
        return "The signature was made over a path that was encoded twice. S3 encodes it once: use "
               "the S3 signer of the library, not its generic one.";
    if (span_find(query, '+') < query.len && fits_target(t, path, replace(t, query, '+', "%2B")))
        return "The signature was made over a query in which \"+\" means itself; in S3 it is a "
               "blank. Send it as %2B.";
    struct span once = collapse(t, path);
    if (once.len < path.len && fits_target(t, once, query))
        return "The signature was made over a path without empty segments (\"//\"), which are part "
               "of a key in S3.";
    return NULL;
}

/* ---- all of it ---- */
/* Fields that proxies and HTTP libraries write: whoever signs them depends on all of these. */
static const char *fragile_field(const struct sign_claim *c)
{
    static const char *const list[] = {
        "connection", "transfer-encoding", "te", "expect", "user-agent", "via", "content-length",
        "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-amzn-trace-id",
        "accept-encoding",
    };
    struct span names = c->signed_headers;
    while (names.len > 0) {
        struct span name = span_cut(&names, ';');
        for (unsigned i = 0; i < ARRAY_COUNT(list); i++)
            if (span_is(name, list[i]))
                return list[i];
    }
    return NULL;
}

static const char *no_idea(const struct trial *t)
{
    char memory[SHOWN_BYTES_MAX + 8];
    struct text host;
    const char *fragile = fragile_field(t->claim);
    text_init(&host, memory, sizeof(memory));
    text_add_printable(&host, t->head->host, SHOWN_BYTES_MAX);
    return sentence(arena_printf(
        t->arena, "The request signature we calculated does not match the signature you provided. "
                  "Check the secret key of this access key. The Host that arrived is \"%s\", the "
                  "path and the query as below: they must be those that the client signed.%s%s%s",
        host.at, fragile ? " (The signature covers " : "", fragile ? fragile : "",
        fragile ? ", which proxies and HTTP libraries change.)" : ""));
}

const char *s3_why_mismatch(const struct s3_gate *gate, const struct sign_claim *claim,
                            const struct s3_ask *ask, const struct secret *secret,
                            struct arena *arena)
{
    static const char *(*const tries[])(const struct trial *) = {
        try_methods, try_ports, try_forwarded, try_upstream, try_encodings, try_targets};
    const struct trial t = {claim, ask->head, ask, secret, gate->upstream_host, arena};
    if (gate->explained > S3_EXPLAINED_MAX)
        return no_idea(&t);          /* whoever sends many such wants to keep us busy */
    for (unsigned i = 0; i < ARRAY_COUNT(tries); i++) {
        const char *why = tries[i](&t);
        if (why)
            return why;
    }
    return no_idea(&t);
}
