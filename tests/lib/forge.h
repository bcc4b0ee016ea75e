/* Signed requests and what a forger makes of them: requests are signed from a canonical form
 * written here once more, changed in one place, and asked whether they still mean the same.
 *
 * The second canonical form is slow and plain: it decodes everything into tables, sorts them and
 * prints them (the AWS documentation's four tasks); it shares only digests with the server. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_FORGE_H
#define HEADPOND_TESTS_FORGE_H

#include <stdio.h>
#include <stdlib.h>

#include "http.h"
#include "sign.h"

#define FORGE_ACCESS "AKFORGE/1"
#define FORGE_SECRET "canary-secret-forge"
enum { FORGE_NOW_S = 1795166183, FORGE_BYTES = 8 * KIB, FORGE_PAIRS = 64 };
static const char forge_date[] = "20261120T091623Z";
static const char forge_scope[] = "20261120/eu-central-1/s3/aws4_request";

struct forged {
    char at[FORGE_BYTES];
    size_t len;
};

/* ---- the second canonical form ---- */
static inline unsigned forge_hex(char c)
{
    return c >= '0' && c <= '9' ? (unsigned)(c - '0') : ((unsigned)c | 32) - 'a' + 10;
}

static inline bool forge_is_hex(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

/* Decodes and encodes with nothing but the unreserved characters bare. */
static inline void forge_recode(struct text *out, struct span in, bool query, bool slash)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < in.len; i++) {
        unsigned c = (uint8_t)in.at[i];
        if (c == '%' && i + 2 < in.len && forge_is_hex(in.at[i + 1]) &&
            forge_is_hex(in.at[i + 2])) {
            c = forge_hex(in.at[i + 1]) * 16 + forge_hex(in.at[i + 2]);
            i += 2;
        } else if (c == '+' && query) {
            c = ' ';
        }
        bool bare = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    (c && strchr("-._~", (int)c)) || (c == '/' && slash);
        if (bare)
            text_addc(out, (char)c);
        else
            text_addf(out, "%%%c%c", digits[c >> 4], digits[c & 15]);
    }
}

struct forge_line {
    char at[2 * KIB];
};

static inline int forge_order(const void *a, const void *b)
{
    return strcmp(((const struct forge_line *)a)->at, ((const struct forge_line *)b)->at);
}

/* "name\x01value" sorts as pairs do: no encoded byte is below 0x02. */
static inline void forge_query(struct text *out, struct span query)
{
    static struct forge_line line[FORGE_PAIRS];
    unsigned count = 0;
    while (query.len && count < FORGE_PAIRS) {
        struct text t;
        struct span value = span_cut(&query, '&');
        if (value.len == 0)
            continue;
        struct span name = span_cut(&value, '=');
        text_init(&t, line[count].at, sizeof(line[count].at));
        forge_recode(&t, name, true, false);
        if (strcmp(t.at, "X-Amz-Signature") == 0)
            continue;
        text_addc(&t, 1);
        forge_recode(&t, value, true, false);
        count++;
    }
    qsort(line, count, sizeof(line[0]), forge_order);
    for (unsigned i = 0; i < count; i++) {
        *strchr(line[i].at, 1) = '=';
        text_addf(out, "%s%s", i ? "&" : "", line[i].at);
    }
}

/* Outer blanks go, inner runs become one. */
static inline void forge_value(struct text *out, struct span value)
{
    bool begun = false, blank = false;
    for (size_t i = 0; i < value.len; i++) {
        bool is = value.at[i] == ' ' || value.at[i] == '\t';
        if (!is) {
            if (blank && begun)
                text_addc(out, ' ');
            text_addc(out, value.at[i]);
            begun = true;
        }
        blank = is;
    }
}

static inline char forge_lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

/* Names of fields, in any case. */
static inline bool forge_same(struct span a, struct span b)
{
    size_t i = 0;
    while (i < a.len && i < b.len && forge_lower(a.at[i]) == forge_lower(b.at[i]))
        i++;
    return i == a.len && i == b.len;
}

static inline bool forge_lists(struct span names, struct span name)
{
    while (names.len)
        if (forge_same(span_cut(&names, ';'), name))
            return true;
    return false;
}

static inline void forge_fields(struct text *out, const struct http_head *h, struct span names)
{
    while (names.len) {
        struct span name = span_cut(&names, ';');
        bool first = true;
        for (unsigned i = 0; i < h->count; i++)
            if (forge_same(name, h->field[i].name)) {
                text_addf(out, first ? "%.*s:" : ",", (int)name.len, name.at);
                forge_value(out, h->field[i].value);
                first = false;
            }
        text_adds(out, first ? "(absent)\n" : "\n");
    }
}

static inline void forge_canonical(struct text *out, const struct http_head *h, struct span names,
                                   struct span payload)
{
    struct span query = h->target, path = span_cut(&query, '?');
    text_add(out, h->method_text);
    text_addc(out, '\n');
    forge_recode(out, path, false, true);
    text_addc(out, '\n');
    forge_query(out, query);
    text_addc(out, '\n');
    forge_fields(out, h, names);
    text_addf(out, "\n%.*s\n%.*s", (int)names.len, names.at, (int)payload.len, payload.at);
}

/* ---- what a signed request means ---- */
/* Everything that the signature stands for and the claim itself; two requests with the same meaning
 * are one request to the signer. Neither the case of a field's name has a meaning nor the order of
 * fields with different names (RFC 9110 5.1, 5.3); the order of those with one name has. */
static inline void forge_meaning(struct text *out, const struct http_head *h)
{
    static struct forge_line part[8];
    unsigned parts = 0;
    struct span names = span_of("host"), rest = http_find(h, "authorization");
    struct span payload = http_find(h, "x-amz-content-sha256");
    struct span algorithm = span_cut(&rest, ' ');
    text_addf(out, "%.*s\n", (int)algorithm.len, algorithm.at);
    while (rest.len && parts < ARRAY_COUNT(part)) {
        struct span one = span_trim(span_cut(&rest, ','));
        if (span_starts(one, span_of("SignedHeaders=")))
            names = span_from(one, strlen("SignedHeaders="));
        snprintf(part[parts++].at, sizeof(part[0].at), "%.*s", (int)one.len, one.at);
    }
    qsort(part, parts, sizeof(part[0]), forge_order);
    for (unsigned i = 0; i < parts; i++)
        text_addf(out, "%s\n", part[i].at);
    struct span query = h->target;
    (void)span_cut(&query, '?');
    while (query.len) {
        struct span value = span_cut(&query, '&'), name = span_cut(&value, '=');
        static char list[2 * KIB], recoded[2 * KIB];
        struct text decoded;
        if (name.len < 15)
            continue;
        text_init(&decoded, recoded, sizeof(recoded));
        forge_recode(&decoded, name, true, false);
        if (span_is(text_span(&decoded), "X-Amz-Signature")) {
            forge_recode(out, value, true, false);
            continue;
        }
        size_t len = 0;
        if (span_is(text_span(&decoded), "X-Amz-SignedHeaders") &&
            uri_decode(value, true, list, sizeof(list), &len) == OK)
            names = span_make(list, len);
    }
    text_addc(out, '\n');
    forge_canonical(out, h, names, payload);
    for (unsigned i = 0; i < h->count; i++) { /* nobody leaves one out who means it */
        struct span name = h->field[i].name;
        bool obeyed = name.len > 6 && forge_same(span_make(name.at, 6), span_of("x-amz-"));
        if (!obeyed || forge_lists(names, name))
            continue;
        text_adds(out, "\nnot signed: ");
        for (size_t n = 0; n < name.len; n++)
            text_addc(out, forge_lower(name.at[n]));
        text_addc(out, '=');
        forge_value(out, h->field[i].value);
    }
}

/* ---- signers ---- */
struct forge_shape {
    bool in_query;
    const char *method, *target, *fields, *payload, *names;
};
static const struct forge_shape forge_shapes[] = {
    {false, "GET", "/bucket/key", "", NULL, "host;x-amz-content-sha256;x-amz-date"},
    {false, "GET", "/bucket/a%20b/%C3%A9%2Bc//d/..", "Range: bytes=0-99\r\nIf-Match: \"e\"\r\n",
     NULL, "host;if-match;range;x-amz-content-sha256;x-amz-date"},
    {false, "HEAD", "/bucket/key?versionId=abc&partNumber=2", "x-amz-checksum-mode: ENABLED\r\n",
     "UNSIGNED-PAYLOAD", "host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date"},
    {false, "GET", "/bucket?list-type=2&prefix=a%2Fb&delimiter=/&max-keys=100&start-after=x+y", "",
     NULL, "host;x-amz-content-sha256;x-amz-date"},
    {false, "GET", "/", "User-Agent: sdk\r\n", NULL, "host;x-amz-content-sha256;x-amz-date"},
    {false, "GET", "/bucket/key?response-content-type=a/b&x-id=GetObject",
     "x-amz-meta-b:  two   blanks \r\nX-Amz-Meta-A: \"q  q\"\r\nx-amz-meta-b: again\r\n", NULL,
     "host;x-amz-content-sha256;x-amz-date;x-amz-meta-a;x-amz-meta-b"},
    {false, "PUT", "/bucket/key", "Content-Length: 0\r\n", "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
     "content-length;host;x-amz-content-sha256;x-amz-date"},
    {true, "GET", "/bucket/key", "", "UNSIGNED-PAYLOAD", "host"},
    {true, "GET", "/bucket/a%2fb~c?response-content-disposition=x%20y&versionId=null", "",
     "UNSIGNED-PAYLOAD", "host"},
    {true, "HEAD", "/bucket/key", "x-amz-request-payer: requester\r\nRange: bytes=5-\r\n",
     "UNSIGNED-PAYLOAD", "host;range;x-amz-request-payer"},
    {true, "GET", "/bucket?list-type=2&prefix=&b=2&a=1&B=%3d&c", "Accept: x\r\n",
     "UNSIGNED-PAYLOAD", "host"},
    {true, "DELETE", "/bucket/key?versionId=1", "", "UNSIGNED-PAYLOAD", "host"},
    {true, "PUT", "/bucket/key?x-amz-meta-a=b%20c&x-amz-acl=private&x-id=PutObject",
     "Content-Length: 5\r\n", "UNSIGNED-PAYLOAD", "content-length;host"},
};

/* hex(HMAC(day key, string to sign)). */
static inline void forge_sign(struct span canonical, char hex[65])
{
    char text[512], hash_hex[65] = {0};
    uint8_t key[SHA256_BYTES], hash[SHA256_BYTES];
    char first[64] = "AWS4" FORGE_SECRET;
    hmac_sha256((uint8_t *)first, strlen(first), span_make(forge_scope, 8), key);
    hmac_sha256(key, sizeof(key), span_of("eu-central-1"), key);
    hmac_sha256(key, sizeof(key), span_of("s3"), key);
    hmac_sha256(key, sizeof(key), span_of("aws4_request"), key);
    sha256(canonical, hash);
    hex_write(hash, sizeof(hash), hash_hex);
    snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", forge_date, forge_scope, hash_hex);
    hmac_sha256(key, sizeof(key), span_of(text), hash);
    hex_write(hash, sizeof(hash), hex);
    hex[64] = 0;
}

static inline bool forge_parse(const struct forged *f, struct http_head *head)
{
    size_t used;
    return http_parse_request(f->at, f->len, head, &used) == HTTP_OK && used == f->len;
}

static inline void forge_write(const struct forge_shape *s, const char *target, const char *claim,
                               struct forged *out)
{
    const char *payload = s->payload ? s->payload : sign_empty_sha256;
    struct text t;
    text_init(&t, out->at, sizeof(out->at));
    text_addf(&t, "%s %s HTTP/1.1\r\nHost: cache.local:9000\r\n%s", s->method, target, s->fields);
    if (!s->in_query)
        text_addf(&t, "x-amz-content-sha256: %s\r\nX-Amz-Date: %s\r\n", payload, forge_date);
    text_addf(&t, "%s\r\n", claim);
    must(!t.over);
    out->len = t.len;
}

/* A request as its owner signs it. */
static inline void forge_make(const struct forge_shape *s, struct forged *out)
{
    static struct http_head head;
    static char canonical[FORGE_BYTES];
    char target[KIB], hex[65], names[256], claim[2 * KIB];
    const char *payload = s->payload ? s->payload : sign_empty_sha256;
    struct text t, c;
    text_init(&t, names, sizeof(names));
    forge_recode(&t, span_of(s->names), false, false);
    snprintf(target, sizeof(target), "%s", s->target);
    if (s->in_query)
        snprintf(
            target, sizeof(target),
            "%s%cX-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKFORGE%%2F1%%2F20261120%%2F"
            "eu-central-1%%2Fs3%%2Faws4_request&X-Amz-Date=%s&X-Amz-Expires=900"
            "&X-Amz-SignedHeaders=%s",
            s->target, strchr(s->target, '?') ? '&' : '?', forge_date, names);
    forge_write(s, target, "", out);
    must(forge_parse(out, &head));
    text_init(&c, canonical, sizeof(canonical));
    forge_canonical(&c, &head, span_of(s->names), span_of(payload));
    must(!c.over);
    forge_sign(text_span(&c), hex);
    if (s->in_query)
        snprintf(claim, sizeof(claim), "%s&X-Amz-Signature=%s", target, hex);
    else
        snprintf(claim, sizeof(claim),
                 "Authorization: AWS4-HMAC-SHA256 Credential=" FORGE_ACCESS
                 "/%s, SignedHeaders=%s, Signature=%s\r\n", forge_scope, s->names, hex);
    forge_write(s, s->in_query ? claim : target, s->in_query ? "" : claim, out);
}

/* ---- forgers: `roll` gives a number below its argument ---- */
typedef unsigned forge_roll(void *from, unsigned below);

static inline void forge_splice(struct forged *f, size_t at, size_t drop, const char *add)
{
    size_t n = strlen(add);
    if (at + drop > f->len || f->len - drop + n > sizeof(f->at))
        return;
    memmove(f->at + at + n, f->at + at + drop, f->len - at - drop);
    memcpy(f->at + at, add, n);
    f->len += n - drop;
}

static inline size_t forge_find(const struct forged *f, const char *text)
{
    const char *at = memmem(f->at, f->len, text, strlen(text));
    return at ? (size_t)(at - f->at) : f->len;
}

/* One byte changed, added, dropped, escaped or unescaped at a place. */
static inline void forge_byte(struct forged *f, size_t at, forge_roll *roll, void *from)
{
    static const char likely[] = "/%+&=?;,:. \t\r\n0129afAFzZ-_~\"#@*";
    char add[4] = {0}, old = at < f->len ? f->at[at] : 0;
    if (at >= f->len)
        return;
    switch (roll(from, 6)) {
    case 0:
        add[0] = likely[roll(from, sizeof(likely) - 1)];
        forge_splice(f, at, 1, add);
        return;
    case 1:
        add[0] = likely[roll(from, sizeof(likely) - 1)];
        forge_splice(f, at, 0, add);
        return;
    case 2:
        forge_splice(f, at, 1, "");
        return;
    case 3:
        snprintf(add, sizeof(add), roll(from, 2) ? "%%%02x" : "%%%02X", (uint8_t)old);
        forge_splice(f, at, 1, add);
        return;
    case 4:
        f->at[at] = (char)((old | 32) >= 'a' && (old | 32) <= 'z' ? old ^ 32 : old ^ 1);
        return;
    default:
        f->at[at] = (char)roll(from, 256);
    }
}

static inline void forge_method(struct forged *f, forge_roll *roll, void *from)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "get"};
    forge_splice(f, 0, forge_find(f, " "), methods[roll(from, ARRAY_COUNT(methods))]);
}

static inline void forge_field(struct forged *f, forge_roll *roll, void *from)
{
    static const char *const added[] = {
        "x-amz-copy-source: /b/secret\r\n", "x-amz-tagging: a=b\r\n", "X-AMZ-ACL: public\r\n",
        "x-amz-server-side-encryption: AES256\r\n", "x-amz-meta-a: b\r\n", "Host: evil\r\n",
        "x-amz-date: 20261120T091624Z\r\n", "x-amz-security-token: t\r\n", "Range: bytes=0-1\r\n",
        "x-amz-expected-bucket-owner: 1\r\n", "Date: Fri, 20 Nov 2026 09:16:24 GMT\r\n",
        "Authorization: AWS x:y\r\n", "x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n",
        "x-amz-: \r\n", "x-amz-request-payer: requester\r\n", "If-Match: \"e\"\r\n",
    };
    size_t line = forge_find(f, "\r\n") + 2;
    for (unsigned skip = roll(from, 6); skip > 0; skip--) {
        const char *next = memmem(f->at + line, f->len - line, "\r\n", 2);
        if (!next || next[2] == '\r')
            break;
        line = (size_t)(next - f->at) + 2;
    }
    forge_splice(f, line, 0, added[roll(from, ARRAY_COUNT(added))]);
}

static inline void forge_param(struct forged *f, forge_roll *roll, void *from)
{
    static const char *const added[] = {
        "acl", "versionId=2", "X-Amz-Expires=604800", "x-amz-acl=public", "X-Amz-Security-Token=t",
        "X-Amz-Signature=0", "%58-Amz-Signature=0", "response-content-type=x", "uploads", "=",
        "X-Amz-Content-Sha256=UNSIGNED-PAYLOAD", "X-Amz-Date=20261120T091624Z", "x", "tagging",
        "partNumber=1", "prefix=other", "AWSAccessKeyId=x", "Expires=1", "&",
    };
    size_t at = forge_find(f, "?"), end = forge_find(f, " HTTP/");
    const char *add = added[roll(from, ARRAY_COUNT(added))];
    char text[64];
    if (at < end && roll(from, 2)) {
        snprintf(text, sizeof(text), "%s&", add);
        forge_splice(f, at + 1, 0, text);
    } else {
        snprintf(text, sizeof(text), "%c%s", at < end ? '&' : '?', add);
        forge_splice(f, end, 0, text);
    }
}

/* A line dropped, or sent twice. */
static inline void forge_line_of(struct forged *f, forge_roll *roll, void *from)
{
    size_t begin = forge_find(f, "\r\n") + 2;
    char line[KIB];
    for (unsigned skip = roll(from, 8); skip > 0; skip--) {
        const char *next = memmem(f->at + begin, f->len - begin, "\r\n", 2);
        if (!next || next + 4 >= f->at + f->len)
            break;
        begin = (size_t)(next - f->at) + 2;
    }
    const char *end = memmem(f->at + begin, f->len - begin, "\r\n", 2);
    if (!end || (size_t)(end + 2 - f->at) - begin >= sizeof(line))
        return;
    size_t len = (size_t)(end + 2 - f->at) - begin;
    snprintf(line, sizeof(line), "%.*s", (int)len, f->at + begin);
    bool drop = roll(from, 2);
    forge_splice(f, begin, drop ? len : 0, drop ? "" : line);
}

/* One change. */
static inline void forge_change(struct forged *f, forge_roll *roll, void *from)
{
    size_t target = forge_find(f, " ") + 1, end = forge_find(f, " HTTP/");
    switch (roll(from, 8)) {
    case 0:
        forge_method(f, roll, from);
        return;
    case 1:
        forge_field(f, roll, from);
        return;
    case 2:
        forge_param(f, roll, from);
        return;
    case 3:
        forge_line_of(f, roll, from);
        return;
    case 4:
    case 5:
        if (end > target)
            forge_byte(f, target + roll(from, (unsigned)(end - target)), roll, from);
        return;
    default:
        forge_byte(f, roll(from, (unsigned)f->len), roll, from);
    }
}

#endif
