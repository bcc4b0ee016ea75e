/* What a head says of its body, and how the same object goes upstream. Pure.
 *
 * Invariants:
 *  1. Facts that contradict each other are refused before a byte of the body is asked for: two
 *     checksums, a trailer that is none, an algorithm that is another one, two lengths.
 *  2. A plan never claims more than will be true: a hash or checksum goes upstream only if it is of
 *     the bytes that go; what upstream cannot check itself stands in checks.
 *  3. A plan's wire length is exact before the first byte of the body is known.
 *
 * Life: facts and plan are the request's; fields of a plan show its own memory.
 * Failure: the client gets the S3 error's code and sentence. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "payload.h"

enum { VALUE_BYTES_MAX = 160 };      /* no value that is looked at here can be valid and longer */

struct reader {
    const struct http_head *head;
    struct payload_facts *out;
    struct payload_refusal no;
};

/* ---- looking things up ---- */
static enum err refuse(struct reader *r, uint16_t status, const char *code, const char *why)
{
    r->no = (struct payload_refusal){.status = status, .code = code, .why = why};
    return status == 501 ? ERR_UNSUPPORTED : ERR_SYNTAX;
}

static enum err bad_request(struct reader *r, const char *why)
{
    return refuse(r, 400, "InvalidRequest", why);
}

static enum err twice(struct reader *r, const char *name)
{
    enum err e = refuse(r, 400, "InvalidArgument", "A header of the body was given twice.");
    r->no.argument = name;
    return e;
}

/* The value of a query parameter, decoded into memory; false: absent, or no valid value fits. */
static bool find_param(const struct http_head *h, const char *name, char memory[VALUE_BYTES_MAX],
                       struct span *out)
{
    struct span path, query;
    struct uri_pair pair;
    char decoded[VALUE_BYTES_MAX];
    size_t len;
    uri_split(h->target, &path, &query);
    while (uri_next_pair(&query, &pair)) {
        if (uri_decode(pair.name, true, decoded, sizeof(decoded), &len) != OK ||
            !span_is_nocase(span_make(decoded, len), name))
            continue;
        if (uri_decode(pair.value, true, memory, VALUE_BYTES_MAX, &len) != OK)
            len = 0;
        *out = span_make(memory, len);
        return true;
    }
    return false;
}

/* An x-amz-* field, or the parameter of a presigned query that stands for it. at == NULL when it is
 * not given. */
static enum err find_amz(struct reader *r, const char *name, char memory[VALUE_BYTES_MAX],
                         struct span *out)
{
    struct span again;
    unsigned at = 0;
    *out = (struct span){NULL, 0};
    if (http_next(r->head, name, &at, out))
        return http_next(r->head, name, &at, &again) ? twice(r, name) : OK;
    if (!find_param(r->head, name, memory, out))
        *out = (struct span){NULL, 0};
    return OK;
}

/* ---- the form ---- */
static enum err read_form(struct reader *r)
{
    static const struct {
        const char *text;
        enum payload_form form;
    } forms[] = {
        {"UNSIGNED-PAYLOAD", PAYLOAD_UNSIGNED},
        {"STREAMING-UNSIGNED-PAYLOAD-TRAILER", PAYLOAD_TRAILER},
        {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", PAYLOAD_SIGNED},
        {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", PAYLOAD_SIGNED_TRAILER},
    };
    static const char name[] = "x-amz-content-sha256";
    char memory[VALUE_BYTES_MAX];
    struct span text;
    uint8_t hash[SHA256_BYTES];
    TRY(find_amz(r, name, memory, &text));
    r->out->form = PAYLOAD_UNSIGNED;
    if (!text.at)
        return OK;
    for (unsigned i = 0; i < ARRAY_COUNT(forms); i++)
        if (span_is(text, forms[i].text)) {
            r->out->form = forms[i].form;
            return OK;
        }
    if (hex_read(text, hash, sizeof(hash)) == OK) {
        r->out->form = PAYLOAD_HASH;
        hex_write(hash, sizeof(hash), r->out->hash);
        return OK;
    }
    if (span_starts(text, span_of("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")))
        return refuse(r, 501, "NotImplemented",
                      "Chunks signed with Signature Version 4A are not implemented.");
    enum err e = refuse(r, 400, "InvalidArgument",
                        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a STREAMING- form or a "
                        "valid sha256 value.");
    r->no.argument = name;
    return e;
}

/* ---- lengths ---- */
static enum err no_length(struct reader *r)
{
    return refuse(r, 411, "MissingContentLength",
                  "You must provide the Content-Length HTTP header.");
}

static enum err read_length(struct reader *r)
{
    const struct http_head *h = r->head;
    struct payload_facts *f = r->out;
    char memory[VALUE_BYTES_MAX];
    struct span text;
    TRY(find_amz(r, "x-amz-decoded-content-length", memory, &text));
    bool given = text.at != NULL;
    if (given && (span_u64(text, &f->bytes) != OK || f->bytes > INT64_MAX))
        return no_length(r);
    if (payload_is_chunked(f->form)) {
        if (given && h->framing == HTTP_BODY_LENGTH && h->length < f->bytes)
            return refuse(r, 400, "IncompleteBody",
                          "The body is announced shorter than the object in it.");
        return given ? OK : no_length(r);
    }
    if (h->framing == HTTP_BODY_LENGTH) {
        if (given && f->bytes != h->length)
            return bad_request(r, "Content-Length and x-amz-decoded-content-length contradict each "
                                  "other: this body is not aws-chunked.");
        f->bytes = h->length;
        return OK;
    }
    if (!given && h->framing == HTTP_BODY_NONE) /* RFC 9112 6.3: an empty body */
        return OK;
    return given ? OK : no_length(r);
}

/* ---- checksums ---- */
static enum err read_digest(struct span text, enum payload_kind kind, uint8_t *out)
{
    size_t len;
    TRY(base64_read(text, out, PAYLOAD_DIGEST_MAX, &len));
    return len == payload_digest_bytes(kind) ? OK : ERR_SYNTAX;
}

static enum err several_sums(struct reader *r)
{
    return bad_request(r, "Expecting a single x-amz-checksum- header. Multiple checksum Types are "
                          "not allowed.");
}

static enum err read_sum_fields(struct reader *r)
{
    struct payload_facts *f = r->out;
    for (enum payload_kind k = PAYLOAD_CRC32; k < PAYLOAD_KIND_COUNT; k++) {
        char memory[VALUE_BYTES_MAX];
        struct span text;
        TRY(find_amz(r, payload_kind_field(k), memory, &text));
        if (!text.at)
            continue;
        if (f->sum != PAYLOAD_NO_SUM)
            return several_sums(r);
        f->sum = k;
        if (read_digest(text, k, f->sum_digest) != OK) {
            enum err e = bad_request(r, "Value for an x-amz-checksum- header is invalid.");
            r->no.argument = payload_kind_field(k);
            return e;
        }
    }
    return OK;
}

static enum payload_kind kind_of_field(struct span name)
{
    for (enum payload_kind k = PAYLOAD_CRC32; k < PAYLOAD_KIND_COUNT; k++)
        if (span_is_nocase(name, payload_kind_field(k)))
            return k;
    return PAYLOAD_NO_SUM;
}

static enum err read_trailer_name(struct reader *r)
{
    struct payload_facts *f = r->out;
    char memory[VALUE_BYTES_MAX];
    struct span text;
    if (f->form != PAYLOAD_TRAILER && f->form != PAYLOAD_SIGNED_TRAILER)
        return OK;
    TRY(find_amz(r, "x-amz-trailer", memory, &text));
    if (!text.at)
        return OK;
    enum payload_kind kind = kind_of_field(span_trim(text));
    if (kind == PAYLOAD_NO_SUM)
        return bad_request(r, "The value specified in the x-amz-trailer header is not supported");
    if (f->sum != PAYLOAD_NO_SUM)
        return several_sums(r);
    f->sum = kind;
    f->sum_in_trailer = true;
    return OK;
}

/* x-amz-sdk-checksum-algorithm tells what the SDK did; it must be what came. */
static enum err check_algorithm(struct reader *r)
{
    char memory[VALUE_BYTES_MAX];
    struct span text;
    TRY(find_amz(r, "x-amz-sdk-checksum-algorithm", memory, &text));
    if (!text.at || r->out->sum == PAYLOAD_NO_SUM ||
        span_is_nocase(text, payload_kind_name(r->out->sum)))
        return OK;
    return bad_request(r, "Value for x-amz-sdk-checksum-algorithm header is invalid.");
}

static enum err read_md5(struct reader *r)
{
    struct payload_facts *f = r->out;
    struct span text, again;
    unsigned at = 0;
    size_t len;
    if (!http_next(r->head, "content-md5", &at, &text))
        return OK;
    if (http_next(r->head, "content-md5", &at, &again))
        return twice(r, "Content-MD5");
    if (base64_read(text, f->md5, sizeof(f->md5), &len) != OK || len != sizeof(f->md5))
        return refuse(r, 400, "InvalidDigest", "The Content-MD5 you specified was invalid.");
    f->has_md5 = true;
    return OK;
}

/* ---- Content-Encoding ---- */
static void add_codings(struct text *out, struct span list, bool *found)
{
    while (list.len > 0) {
        struct span coding = span_trim(span_cut(&list, ','));
        if (span_is_nocase(coding, "aws-chunked")) {
            *found = true;
        } else if (coding.len > 0) {
            if (out->len > 0)
                text_addc(out, ',');
            text_add(out, coding);
        }
    }
}

/* aws-chunked is a framing that ends here, the rest is the object's own. */
static enum err read_encoding(struct reader *r)
{
    struct payload_facts *f = r->out;
    struct text left;
    struct span list;
    unsigned at = 0;
    bool found = false;
    text_init(&left, f->encoding, sizeof(f->encoding));
    while (http_next(r->head, "content-encoding", &at, &list))
        add_codings(&left, list, &found);
    if (!payload_is_chunked(f->form)) {
        f->encoding[0] = '\0';       /* the field goes upstream as it is */
        return OK;
    }
    if (left.over) {
        enum err e = refuse(r, 400, "InvalidArgument", "Content-Encoding is too long.");
        r->no.argument = "Content-Encoding";
        return e;
    }
    f->reencoded = found;
    return OK;
}

static enum err read_facts(struct reader *r, bool sums_of_body)
{
    TRY(read_form(r));
    TRY(read_length(r));
    if (sums_of_body)
        TRY(read_sum_fields(r));
    TRY(read_trailer_name(r));
    TRY(check_algorithm(r));
    TRY(read_md5(r));
    return read_encoding(r);
}

enum err payload_read(const struct http_head *h, bool sums_of_body, struct payload_facts *out,
                      struct payload_refusal *no)
{
    struct reader r = {.head = h, .out = out};
    memset(out, 0, sizeof(*out));
    enum err e = read_facts(&r, sums_of_body);
    if (e != OK)
        *no = r.no;
    return e;
}

/* ---- the plan ---- */
static void set_hash(struct payload_plan *p, struct span text)
{
    must(text.len < sizeof(p->hash));
    memcpy(p->hash, text.at, text.len);
    p->hash[text.len] = '\0';
}

static void add_field(struct payload_plan *p, const char *name, struct span value)
{
    must(p->add_count < PAYLOAD_ADD_MAX);
    p->add[p->add_count++] = (struct http_field){span_of(name), value};
}

static void add_encoding(struct payload_plan *p, const struct payload_facts *f)
{
    struct text t;
    if (!p->framed && !f->reencoded)
        return;                      /* the client's own field goes */
    text_init(&t, p->encoding, sizeof(p->encoding));
    text_adds(&t, f->encoding);
    if (p->framed)
        text_adds(&t, t.len ? ",aws-chunked" : "aws-chunked");
    must(!t.over);
    if (t.len > 0)
        add_field(p, "content-encoding", text_span(&t));
}

/* One data chunk (none of an empty object), then the trailer:
 * HEX CRLF data CRLF "0" CRLF name ":" value CRLF CRLF. */
static void frame(struct payload_plan *p, const struct payload_facts *f)
{
    size_t value_len = (payload_digest_bytes(f->sum) + 2) / 3 * 4;
    struct text t;
    p->framed = true;
    set_hash(p, span_of("STREAMING-UNSIGNED-PAYLOAD-TRAILER"));
    text_init(&t, p->prefix, sizeof(p->prefix));
    if (f->bytes > 0)
        text_addf(&t, "%llx\r\n", (unsigned long long)f->bytes);
    must(!t.over);
    p->prefix_len = (uint16_t)t.len;
    p->suffix_len = (uint16_t)((f->bytes > 0 ? 2 : 0) + 3 + strlen(payload_kind_field(f->sum)) + 1 +
                               value_len + 4);
    text_init(&t, p->decoded, sizeof(p->decoded));
    text_addu(&t, f->bytes);
    add_field(p, "x-amz-decoded-content-length", text_span(&t));
    add_field(p, "x-amz-trailer", span_of(payload_kind_field(f->sum)));
}

/* A body without framing, whose hash is known only if the client told it. */
static void set_plain_hash(struct payload_plan *p, const struct payload_facts *f)
{
    if (f->form == PAYLOAD_HASH)
        set_hash(p, span_of(f->hash));
    else
        set_hash(p, span_of(f->bytes ? "UNSIGNED-PAYLOAD" : sign_empty_sha256));
}

void payload_plan_stream(struct payload_plan *p, const struct payload_facts *f,
                         const struct payload_upstream *to)
{
    memset(p, 0, sizeof(*p));
    if (f->sum_in_trailer && to->trailers) {
        frame(p, f);
    } else {
        set_plain_hash(p, f);
        p->dropped_sum = f->sum_in_trailer;
        /* A store that takes no trailers knows no x-amz-checksum-* either. */
        if (f->sum != PAYLOAD_NO_SUM && !to->trailers)
            p->checks |= PAYLOAD_CHECK_SUM;
    }
    add_encoding(p, f);
    p->wire_bytes = p->prefix_len + f->bytes + p->suffix_len;
}

void payload_plan_whole(struct payload_plan *p, const struct payload_decoder *d, struct span body,
                        const struct payload_upstream *to)
{
    const struct payload_facts *f = d->facts;
    must(d->ended && body.len == f->bytes);
    memset(p, 0, sizeof(*p));
    set_plain_hash(p, f);
    if (f->form != PAYLOAD_HASH && !to->tls) {
        uint8_t hash[SHA256_BYTES];
        char text[2 * SHA256_BYTES];
        sha256(body, hash);
        hex_write(hash, sizeof(hash), text);
        set_hash(p, span_make(text, sizeof(text)));
    }
    if (f->sum_in_trailer) {
        memcpy(p->value, d->value, sizeof(p->value));
        add_field(p, payload_kind_field(f->sum), span_of(p->value));
    }
    add_encoding(p, f);
    p->wire_bytes = f->bytes;
}

bool payload_relays(const struct payload_plan *p, const struct payload_facts *f, struct span name)
{
    static const char *const ours[] = {
        "x-amz-content-sha256",
        "x-amz-decoded-content-length",
        "x-amz-trailer",
        "content-length",
    };
    for (unsigned i = 0; i < ARRAY_COUNT(ours); i++)
        if (span_is_nocase(name, ours[i]))
            return false;
    if ((p->framed || f->reencoded) && span_is_nocase(name, "content-encoding"))
        return false;
    /* An algorithm without its checksum is an error to stores that know the field. */
    return !p->dropped_sum || !span_is_nocase(name, "x-amz-sdk-checksum-algorithm");
}

void payload_suffix(const struct payload_plan *p, const struct payload_decoder *d, struct text *out)
{
    size_t before = out->len;
    if (!p->framed)
        return;
    must(d->ended);
    text_adds(out, d->facts->bytes > 0 ? "\r\n0\r\n" : "0\r\n");
    text_adds(out, payload_kind_field(d->facts->sum));
    text_addc(out, ':');
    text_adds(out, d->value);
    text_adds(out, "\r\n\r\n");
    must(out->over || out->len - before == p->suffix_len);
}
