/* What a client hears: heads of object answers, error documents, fields kept from upstream. Pure.
 *
 * Invariants:
 *  1. No value leaves here with a control byte: what upstream sent is checked when kept (fill/) or
 *     relayed, what a client sent when read, and error documents escape.
 *  2. A checksum of a whole object is only sent with the whole object: clients compare.
 *  3. The object path formats without printf.
 *  4. RequestId and HostId of an error document are those of its head.
 *
 * Life: writes into the caller's text; kept headers live in the caller's arena.
 *
 * What can fail: room (ERR_TOO_LARGE; an error document gets shorter instead) and the arena. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#include "xml.h"

enum {
    ERROR_HEAD_BYTES = KIB,          /* the longest head of an error, with room to spare */
    MULTIPART_PARTS_MAX = 10000,
};

/* ---- fields ---- */
static void add_field(struct text *out, const char *name, struct span value)
{
    text_adds(out, name);
    text_add(out, span_make(": ", 2));
    text_add(out, value);
    text_add(out, span_make("\r\n", 2));
}

static void add_number(struct text *out, const char *name, uint64_t value)
{
    text_adds(out, name);
    text_add(out, span_make(": ", 2));
    text_addu(out, value);
    text_add(out, span_make("\r\n", 2));
}

static const char *reason_of(uint16_t status)
{
    static const struct {
        uint16_t status;
        const char *reason;
    } row[] = {
        {200, "OK"}, {206, "Partial Content"}, {304, "Not Modified"},
        {416, "Range Not Satisfiable"}, {404, "Not Found"}, {403, "Forbidden"},
        {412, "Precondition Failed"}, {400, "Bad Request"}, {204, "No Content"},
        {301, "Moved Permanently"}, {307, "Temporary Redirect"}, {401, "Unauthorized"},
        {405, "Method Not Allowed"}, {408, "Request Timeout"}, {409, "Conflict"},
        {411, "Length Required"}, {413, "Content Too Large"}, {414, "URI Too Long"},
        {417, "Expectation Failed"}, {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
        {501, "Not Implemented"}, {502, "Bad Gateway"}, {503, "Service Unavailable"},
        {504, "Gateway Timeout"}, {505, "HTTP Version Not Supported"}, {508, "Loop Detected"},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++)
        if (row[i].status == status)
            return row[i].reason;
    return "Unknown";                /* a relayed status without a name of ours */
}

void s3_stamp_make(struct s3_stamp *st, const char *date, uint64_t random)
{
    static const char digits[] = "0123456789ABCDEF";
    char opaque[24];
    st->date = date;
    for (unsigned i = 0; i < 16; i++)
        st->request_id[i] = digits[random >> (60 - 4 * i) & 15];
    st->request_id[16] = 0;
    memcpy(opaque, "headpond", 8);   /* NOLINT(bugprone-not-null-terminated-result): bytes */
    memcpy(opaque + 8, st->request_id, 16);
    size_t len = base64_write((const uint8_t *)opaque, sizeof(opaque), st->host_id, 32);
    must(len == 32);                 /* 24 bytes are 32 digits */
    st->host_id[len] = 0;
}

void s3_reply_begin(struct text *out, uint16_t status, const struct s3_stamp *st)
{
    text_add(out, span_make("HTTP/1.1 ", 9));
    text_addu(out, status);
    text_addc(out, ' ');
    text_adds(out, reason_of(status));
    text_add(out, span_make("\r\n", 2));
    add_field(out, "x-amz-request-id", span_make(st->request_id, 16));
    add_field(out, "x-amz-id-2", span_make(st->host_id, 32));
    add_field(out, "Date", span_of(st->date));
    add_field(out, "Server", span_make("headpond", 8));
}

/* ---- object answers ---- */
static const char *const override_field[S3_OVERRIDE_COUNT] = {
    [S3_CONTENT_TYPE] = "content-type",
    [S3_CONTENT_LANGUAGE] = "content-language",
    [S3_EXPIRES] = "expires",
    [S3_CACHE_CONTROL] = "cache-control",
    [S3_CONTENT_DISPOSITION] = "content-disposition",
    [S3_CONTENT_ENCODING] = "content-encoding",
};

static bool starts_nocase(struct span text, const char *start)
{
    size_t len = strlen(start);
    return text.len >= len && span_is_nocase(span_make(text.at, len), start);
}

static bool is_one_of(struct span name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (span_is_nocase(name, list[i]))
            return true;
    return false;
}

/* RFC 9110 15.4.5: a 304 shows what its 200 would, as far as caches need it. */
static bool replays(const struct s3_reply *r, const struct s3_ask *a, struct span name)
{
    static const char *const not_modified[] = {"cache-control", "expires", "x-amz-version-id"};
    if (r->status == 304)
        return is_one_of(name, not_modified, ARRAY_COUNT(not_modified));
    if (starts_nocase(name, "x-amz-checksum-"))
        return r->status == 200 && a->checksum_mode;
    if (!a->has_override)
        return true;
    for (unsigned i = 0; i < S3_OVERRIDE_COUNT; i++)
        if (a->overrides[i].at && span_is_nocase(name, override_field[i]))
            return false;
    return true;
}

static void add_headers(struct text *out, const struct s3_reply *r, const struct s3_ask *a,
                        struct span headers)
{
    while (headers.len > 0) {
        struct span line = headers;
        size_t end = span_find(headers, '\n');
        line.len = end < headers.len ? end + 1 : headers.len;
        headers = span_from(headers, line.len);
        if (replays(r, a, span_make(line.at, span_find(line, ':'))))
            text_add(out, line);
    }
    for (unsigned i = 0; r->status != 304 && i < S3_OVERRIDE_COUNT; i++)
        if (a->overrides[i].at)
            add_field(out, override_field[i], a->overrides[i]);
}

static void add_identity(struct text *out, struct span etag, uint64_t last_modified_s)
{
    char date[HTTP_DATE_BYTES + 1];
    bool quoted = etag.len > 0 && etag.at[0] == '"';
    if (etag.len > 0) {
        text_adds(out, quoted ? "ETag: " : "ETag: \"");
        text_add(out, etag);
        text_adds(out, quoted ? "\r\n" : "\"\r\n");
    }
    if (last_modified_s > 0) {
        http_date_write(last_modified_s, date);
        add_field(out, "Last-Modified", span_make(date, HTTP_DATE_BYTES));
    }
}

static void add_size(struct text *out, const struct s3_reply *r)
{
    bool part = r->status == 206;
    add_number(out, "Content-Length", part ? r->to - r->from + 1 : r->size);
    if (!part)
        return;
    text_adds(out, "Content-Range: bytes ");
    text_addu(out, r->from);
    text_addc(out, '-');
    text_addu(out, r->to);
    text_addc(out, '/');
    text_addu(out, r->size);
    text_add(out, span_make("\r\n", 2));
}

static void add_cache_fields(struct text *out, const struct s3_reply *r)
{
    if (r->parts > 0)
        add_number(out, "x-amz-mp-parts-count", r->parts);
    if (r->x_cache)
        add_field(out, "x-cache", span_of(r->x_cache));
    if (r->has_age)
        add_number(out, "age", r->age_s);
    if (r->stale)
        text_adds(out, "warning: 110 headpond \"Response is Stale\"\r\n");
    if (r->has_cached) {
        text_adds(out, "x-headpond-cached: ");
        text_addu(out, r->cached_bytes);
        text_addc(out, '/');
        text_addu(out, r->size);
        text_add(out, span_make("\r\n", 2));
    }
    if (r->close)
        text_adds(out, "Connection: close\r\n");
}

enum err s3_reply_object(struct text *out, const struct s3_reply *r, const struct s3_stamp *st,
                         const struct s3_ask *a, struct span etag, uint64_t last_modified_s,
                         struct span headers)
{
    s3_reply_begin(out, r->status, st);
    if (r->status != 304)
        text_adds(out, "Accept-Ranges: bytes\r\n");
    add_identity(out, etag, last_modified_s);
    add_headers(out, r, a, headers);
    if (r->status != 304)
        add_size(out, r);
    add_cache_fields(out, r);
    text_add(out, span_make("\r\n", 2));
    return out->over ? ERR_TOO_LARGE : OK;
}

/* ---- error documents ---- */
/* How much an error tells: each step shorter than the one before. */
enum detail { DETAIL_ALL, DETAIL_NO_BYTES, DETAIL_NO_SIGNATURE, DETAIL_LEAST, DETAIL_COUNT };

static const struct element {
    const char *name;
    size_t at;                       /* of the span in struct s3_error */
    enum detail until;               /* the last detail that still shows it */
    bool bytes;                      /* in hex, byte by byte */
} element[] = {
#define ELEMENT(name, field, until, bytes) {name, offsetof(struct s3_error, field), until, bytes}
    ELEMENT("Key", key, DETAIL_NO_SIGNATURE, false),
    ELEMENT("BucketName", bucket, DETAIL_NO_SIGNATURE, false),
    ELEMENT("VersionId", version, DETAIL_NO_SIGNATURE, false),
    ELEMENT("Resource", resource, DETAIL_NO_SIGNATURE, false),
    ELEMENT("Region", region, DETAIL_NO_SIGNATURE, false),
    ELEMENT("ArgumentName", argument_name, DETAIL_NO_SIGNATURE, false),
    ELEMENT("ArgumentValue", argument_value, DETAIL_NO_SIGNATURE, false),
    ELEMENT("Condition", condition, DETAIL_NO_SIGNATURE, false),
    ELEMENT("Method", method, DETAIL_NO_SIGNATURE, false),
    ELEMENT("ResourceType", resource_type, DETAIL_NO_SIGNATURE, false),
    ELEMENT("Header", header, DETAIL_NO_SIGNATURE, false),
    ELEMENT("HeadersNotSigned", headers_not_signed, DETAIL_NO_SIGNATURE, false),
    ELEMENT("RequestTime", request_time, DETAIL_NO_SIGNATURE, false),
    ELEMENT("Expires", expires, DETAIL_NO_SIGNATURE, false),
    ELEMENT("ServerTime", server_time, DETAIL_NO_SIGNATURE, false),
    ELEMENT("AWSAccessKeyId", access_key, DETAIL_NO_SIGNATURE, false),
    ELEMENT("StringToSign", string_to_sign, DETAIL_NO_BYTES, false),
    ELEMENT("SignatureProvided", signature, DETAIL_NO_BYTES, false),
    ELEMENT("StringToSignBytes", string_to_sign, DETAIL_ALL, true),
    ELEMENT("CanonicalRequest", canonical, DETAIL_NO_BYTES, false),
    ELEMENT("CanonicalRequestBytes", canonical, DETAIL_ALL, true),
#undef ELEMENT
};

static void add_bytes(struct text *t, const char *name, struct span value)
{
    static const char digits[] = "0123456789abcdef";
    xml_open_tag(t, name);
    for (size_t i = 0; i < value.len; i++) {
        uint8_t c = (uint8_t)value.at[i];
        char hex[3] = {' ', digits[c >> 4], digits[c & 15]};
        text_add(t, i ? span_make(hex, 3) : span_make(hex + 1, 2));
    }
    xml_close_tag(t, name);
}

static void add_spans(struct text *t, const struct s3_error *e, enum detail detail)
{
    for (unsigned i = 0; i < ARRAY_COUNT(element); i++) {
        struct span value;
        memcpy(&value, (const char *)e + element[i].at, sizeof(value));
        if (!value.at || detail > element[i].until)
            continue;
        if (element[i].bytes)
            add_bytes(t, element[i].name, value);
        else
            xml_leaf_text(t, element[i].name, value);
    }
}

static void add_numbers(struct text *t, const struct s3_error *e)
{
    /* Some clients know an empty object by nothing but <ActualObjectSize>0</ActualObjectSize>. */
    if (e->range_requested.at)
        xml_leaf_text(t, "RangeRequested", e->range_requested);
    if (e->has_actual_size)
        xml_leaf_u64(t, e->has_max_size ? "Size" : "ActualObjectSize", e->actual_size);
    if (e->has_max_size)
        xml_leaf_u64(t, "MaxSizeAllowed", e->max_size);
    if (e->chunk > 0) {
        xml_leaf_u64(t, "Chunk", e->chunk);
        xml_leaf_u64(t, "BadChunkSize", e->chunk_bytes);
    }
    if (e->has_part_number) {
        xml_leaf_u64(t, "ActualPartCount", e->parts);
        xml_leaf_u64(t, "PartNumberRequested", e->part_number);
    }
    if (e->max_skew_ms > 0)
        xml_leaf_u64(t, "MaxAllowedSkewMilliseconds", e->max_skew_ms);
    if (e->expires_s > 0)
        xml_leaf_u64(t, "X-Amz-Expires", e->expires_s);
}

static void write_document(struct text *t, const struct s3_error *e, const struct s3_stamp *st,
                           enum detail detail)
{
    xml_declaration(t);
    xml_open_tag(t, "Error");
    xml_leaf_text(t, "Code", span_of(e->code));
    xml_leaf_text(t, "Message", span_of(e->message));
    if (detail < DETAIL_LEAST)
        add_spans(t, e, detail);
    add_numbers(t, e);
    xml_leaf_text(t, "RequestId", span_of(st->request_id));
    xml_leaf_text(t, "HostId", span_of(st->host_id));
    xml_close_tag(t, "Error");
}

static void add_marker(struct text *out, const struct s3_error *e)
{
    if (!e->marker)
        return;
    add_field(out, "x-amz-delete-marker", span_of("true"));
    if (e->marker_version.len > 0)
        add_field(out, "x-amz-version-id", e->marker_version);
    add_identity(out, span_of(""), e->modified_s);
}

static void write_error_head(struct text *out, const struct s3_error *e, const struct s3_stamp *st,
                             struct span body, bool close)
{
    s3_reply_begin(out, e->status, st);
    if (body.len > 0)
        text_adds(out, "Content-Type: application/xml\r\n");
    if (e->status != 304)
        add_number(out, "Content-Length", body.len);
    if (e->status == 416 && e->has_actual_size) {
        text_adds(out, "Content-Range: bytes */");
        text_addu(out, e->actual_size);
        text_add(out, span_make("\r\n", 2));
    }
    add_marker(out, e);
    if (e->allow.len > 0)
        add_field(out, "Allow", e->allow);
    if (e->retry_after_s > 0)
        add_number(out, "Retry-After", e->retry_after_s);
    if (e->x_cache)
        add_field(out, "x-cache", span_of(e->x_cache));
    if (close)
        text_adds(out, "Connection: close\r\n");
    text_add(out, span_make("\r\n", 2));
}

/* The body is written behind the room of the longest head and then moved up, because the head tells
 * its length. */
void s3_reply_error(struct text *out, const struct s3_error *e, const struct s3_stamp *st,
                    bool head_request, bool close)
{
    struct text body = {0};
    size_t room = out->cap - out->len;
    bool silent = head_request || e->status == 304 || room <= ERROR_HEAD_BYTES;
    for (unsigned detail = DETAIL_ALL; !silent && detail < DETAIL_COUNT; detail++) {
        text_init(&body, out->at + out->len + ERROR_HEAD_BYTES, room - ERROR_HEAD_BYTES);
        write_document(&body, e, st, (enum detail)detail);
        if (!body.over)
            break;
    }
    if (body.over)
        body.len = 0;
    write_error_head(out, e, st, text_span(&body), close);
    if (body.len > 0 && !out->over) {
        memmove(out->at + out->len, body.at, body.len);
        out->len += body.len;
        out->at[out->len] = 0;
    }
}

/* ---- what upstream said ---- */
static bool is_printable(struct span text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = (uint8_t)text.at[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool is_relayed(const struct http_head *upstream, const struct http_hop *named,
                       struct span name, bool keep_length)
{
    static const char *const hop[] = {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade",
    };
    static const char *const ours[] = {
        "date",          "server",
        "via",           "x-amz-request-id",
        "x-amz-id-2",    "x-cache",
        "age",           "warning",
        "authorization", "x-amz-security-token",
        "set-cookie",    "strict-transport-security",
        "alt-svc",
    };
    if (is_one_of(name, hop, ARRAY_COUNT(hop)) || is_one_of(name, ours, ARRAY_COUNT(ours)))
        return false;
    if (starts_nocase(name, "x-headpond-") || http_hop_has(named, name))
        return false;
    if (span_is_nocase(name, "location"))
        return upstream->status < 300 || upstream->status > 399;
    return keep_length || !span_is_nocase(name, "content-length");
}

static void add_relayed(struct text *out, const struct http_field *f)
{
    text_add(out, f->name);
    text_adds(out, ": ");
    text_add(out, f->value);
    text_adds(out, "\r\n");
}

void s3_headers_relay(struct text *out, const struct http_head *upstream, bool keep_length)
{
    struct http_hop named;
    http_hop_read(upstream, &named);
    for (unsigned i = 0; i < upstream->count; i++) {
        const struct http_field *f = &upstream->field[i];
        if (!is_printable(f->value))
            continue;
        if (span_is_nocase(f->name, "x-amz-request-id"))
            add_field(out, "x-headpond-upstream-request-id", f->value);
        if (is_relayed(upstream, &named, f->name, keep_length))
            add_relayed(out, f);
    }
}

void s3_headers_keep(struct text *out, const struct http_head *upstream)
{
    struct http_hop named;
    http_hop_read(upstream, &named);
    for (unsigned i = 0; i < upstream->count; i++) {
        const struct http_field *f = &upstream->field[i];
        if (is_printable(f->value) && is_relayed(upstream, &named, f->name, false))
            add_relayed(out, f);
    }
}

uint32_t s3_etag_parts(struct span etag)
{
    uint64_t parts = 0;
    size_t at;
    if (etag.len >= 2 && etag.at[0] == '"' && etag.at[etag.len - 1] == '"')
        etag = span_make(etag.at + 1, etag.len - 2);
    for (at = etag.len; at > 0 && etag.at[at - 1] != '-'; at--)
        continue;
    if (at == 0 || span_u64(span_from(etag, at), &parts) != OK || parts > MULTIPART_PARTS_MAX)
        return 0;
    return (uint32_t)parts;
}
