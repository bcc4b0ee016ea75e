/* An ask as bytes on the wire: request line, fields, signature.
 *
 * Invariants:
 *  1. No byte of a query or field can end a line: control bytes are refused, so nothing that a
 *     client sent can become a second request (RFC 9112 11.2).
 *  2. The Host, the connection and the signature are ours: fields of the ask with these names are
 *     left out.
 *  3. Every try is signed anew: time, region and credentials may have changed. But for a preflight,
 *     which carries no credentials.
 *  4. The body is described, not read: its length and the hash that is signed are the ask's.
 *
 * Life: a pure writer over the caller's memory, but for the clock and the core's cached day key.
 * Failure: ERR_TOO_LARGE and ERR_SYNTAX are final for the ask. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"
#include "server/origin/inside.h"

struct fields {
    struct http_field at[HTTP_FIELDS_MAX];
    unsigned count;
};

static bool is_clean(struct span s, bool blanks)
{
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = (uint8_t)s.at[i];
        if (c < 0x20 || c == 0x7f || (c == ' ' && !blanks)) {
            if (c != '\t' || !blanks)
                return false;
        }
    }
    return true;
}

/* A range or condition of the ask's own replaces the client's. */
static bool is_ours(const struct ask *a, struct span name)
{
    if (span_is_nocase(name, "range"))
        return a->has_range;
    if (span_is_nocase(name, "if-match"))
        return a->if_match.len > 0;
    static const char *const ours[] = {
        "host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
        "expect", "content-length", "via", "user-agent", "accept-encoding", "authorization",
        "date", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token",
        "proxy-authorization", "proxy-connection",
    };
    for (unsigned i = 0; i < ARRAY_COUNT(ours); i++) {
        if (span_is_nocase(name, ours[i]))
            return true;
    }
    return false;
}

static void add(struct fields *f, const char *name, struct span value)
{
    f->at[f->count++] = (struct http_field){span_of(name), value};
}

static enum err add_fields_of_ask(struct fields *f, const struct ask *a)
{
    for (unsigned i = 0; i < a->field_count; i++) {
        struct http_field field = a->field[i];
        if (field.name.len == 0 || !is_clean(field.name, false) || !is_clean(field.value, true) ||
            span_find(field.name, ':') < field.name.len)
            return ERR_SYNTAX;
        if (is_ours(a, field.name))
            continue;
        if (f->count >= HTTP_FIELDS_MAX - 1)
            return ERR_TOO_LARGE;
        f->at[f->count++] = field;
    }
    return OK;
}

static void write_field(struct text *out, struct span name, struct span value)
{
    text_add(out, name);
    text_adds(out, ": ");
    text_add(out, value);
    text_adds(out, "\r\n");
}

/* Upstream's clock where it is known to differ from ours. */
static uint64_t now_upstream_s(const struct origin *o)
{
    int64_t offset = atomic_load_explicit(&o->clock_offset_s, memory_order_relaxed);
    return (uint64_t)((int64_t)clock_wall_s() + offset);
}

/* NULL: it goes unsigned, but only with ours: who is to go as somebody else goes as him or not at
 * all, also when a reload took his profile away. A probe wants an answer and no right: while ours
 * cannot be used it goes unsigned, as others may be well that keys of clients go by. */
static enum err find_creds(const struct origin_part *part, const struct ask *a,
                           const struct creds **out)
{
    const struct settings *t = part->core->settings;
    *out = NULL;
    /* A preflight has no credentials (Fetch standard, 4.8), and Ceph RGW verifies what it has as if
     * that were signed for the method that is asked about. */
    if (a->method == HTTP_OPTIONS)
        return OK;
    *out = a->profile == 0 ? settings_creds(t, part->origin->number)
           : a->profile < t->profile_count ? t->profile[a->profile].creds
                                           : NULL;
    if (a->probe && *out && !creds_usable(*out, now_upstream_s(part->origin)))
        *out = NULL;
    return a->profile == 0 || *out ? OK : ERR_CREDENTIALS;
}

void exchange_blank_echo(const struct exchange *x, char *at, size_t len)
{
    const struct creds *creds;
    if (find_creds(origin_part(x->m.core, x->origin->number), x->ask, &creds) == OK)
        creds_blank_echo(creds, at, len);
    else
        creds_blank_echo(NULL, at, len);
}

static enum err sign(struct origin_part *part, const struct creds *creds,
                     const struct sign_request *r, struct span region, struct text *out)
{
    char memory[2 * KIB], amz_date[17];
    struct text authorization;
    struct sign_credentials cred = {span_of(creds->access_key), span_of(creds->token),
        &creds->secret};

    if (!creds_usable(creds, now_upstream_s(part->origin)))
        return ERR_CREDENTIALS;
    text_init(&authorization, memory, sizeof(memory));
    TRY(sign_v4(r, &cred, region, now_upstream_s(part->origin), &part->key, amz_date,
                &authorization));
    write_field(out, span_of("x-amz-date"), span_of(amz_date));
    write_field(out, span_of("Authorization"), text_span(&authorization));
    return OK;
}

static void write_start(const struct origin *o, const struct ask *a, struct span path, bool expect,
                        struct text *out)
{
    text_adds(out, http_method_text(a->method));
    text_addc(out, ' ');
    text_add(out, path);
    if (a->query.len) {
        text_addc(out, '?');
        text_add(out, a->query);
    }
    text_adds(out, " HTTP/1.1\r\n");
    text_adds(out, "User-Agent: headpond/" HEADPOND_VERSION "\r\nAccept-Encoding: identity\r\n");
    text_addf(out, "Via: 1.1 %s\r\n", o->server->via);
    if (a->has_body || a->method == HTTP_PUT || a->method == HTTP_POST) { /* RFC 9110 8.6 */
        text_adds(out, "Content-Length: ");
        text_addu(out, a->has_body ? a->body_bytes : 0);
        text_adds(out, "\r\n");
    }
    if (expect)
        text_adds(out, "Expect: 100-continue\r\n");
}

static struct span hash_of(const struct ask *a)
{
    return a->payload_hash.len ? a->payload_hash : span_of(sign_empty_sha256);
}

static enum err collect(const struct ask *a, const struct creds *creds, struct text *host,
                        struct text *range, struct fields *f)
{
    add(f, "Host", text_span(host));
    if (a->has_range) {
        text_adds(range, "bytes=");
        text_addu(range, a->from);
        text_addc(range, '-');
        text_addu(range, a->to);
        add(f, "Range", text_span(range));
    }
    if (a->if_match.len)
        add(f, "If-Match", a->if_match);
    if (creds || a->payload_hash.len)
        add(f, "x-amz-content-sha256", hash_of(a));
    if (creds && creds->token[0])
        add(f, "x-amz-security-token", span_of(creds->token));
    if (!is_clean(a->query, false) || !is_clean(a->if_match, true) ||
        !is_clean(a->payload_hash, false) || !is_clean(text_span(host), false))
        return ERR_SYNTAX;
    return host->over ? ERR_TOO_LARGE : add_fields_of_ask(f, a);
}

enum err ask_write(struct origin_part *part, const struct ask *a, struct span region, bool expect,
                   struct text *out)
{
    const struct origin *o = part->origin;
    char host_memory[ORIGIN_HOST_BYTES * 2 + 16], range_memory[64], path_memory[8 * KIB];
    struct text host, range, path;
    struct fields f = {.count = 0};
    const struct creds *creds;

    TRY(find_creds(part, a, &creds));
    text_init(&host, host_memory, sizeof(host_memory));
    text_init(&range, range_memory, sizeof(range_memory));
    text_init(&path, path_memory, sizeof(path_memory));
    endpoint_host(&o->endpoint, a->bucket, &host);
    TRY(collect(a, creds, &host, &range, &f));
    endpoint_path(&o->endpoint, a->bucket, a->key, &path);
    if (path.over)
        return ERR_TOO_LARGE;
    write_start(o, a, text_span(&path), expect, out);
    for (unsigned i = 0; i < f.count; i++)
        write_field(out, f.at[i].name, f.at[i].value);
    if (creds) {
        const struct sign_request r = {
            .method = span_of(http_method_text(a->method)), .path = text_span(&path),
                .query = a->query,
            .field = f.at, .count = f.count, .payload_hash = hash_of(a),
        };
        TRY(sign(part, creds, &r, region, out));
    }
    text_adds(out, "\r\n");
    return out->over ? ERR_TOO_LARGE : OK;
}
