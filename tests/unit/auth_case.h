/* Clients that sign in every form, and a gate that judges them: what the tests of auth.c share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TEST_AUTH_CASE_H
#define HEADPOND_TEST_AUTH_CASE_H

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "creds.h"
#include "server/s3/s3.h"
#include "tests/lib/allocations.h"

enum { NOW_S = 1795166183 };

static const char keys_text[] = "AKRW canary-secret-rw rw\n"
                                "AKRO canary-secret-ro\n"
                                "AK/SLASH canary-secret-slash rw\n"
                                "AKSCOPE canary-secret-scope rw train/imagenet/,other,train"
                                "/exact\n"
                                "AKBUCKET canary-secret-bucket rw bucket\n"
                                "AKBUCKETRO canary-secret-bucket-ro ro bucket\n"
                                "AKDIR canary-secret-dir rw bucket/dir/\n"
                                "AKELSE canary-secret-else rw elsewhere,bucket2\n";
static const char upstream_access[] = "AKUP";
static struct secret upstream_secret;
static struct keys *keys;
static struct s3_gate gate;
static struct s3_who who;
static struct http_head head;
static struct arena arena;
static struct s3_ask ask;
static struct s3_error error;
static char request_bytes[32 * KIB], arena_bytes[128 * KIB];
static struct text request;
static const char *host_of_client = "cache.local:9000", *v2_bucket = "", *domain = "";

/* ---- clients ---- */
struct client {
    const char *access, *secret;
    uint64_t time_s;
    uint64_t expires_s;              /* of a URL */
    const char *payload;             /* NULL: of an empty body; "": the field is left out */
    const char *token;
};
static const struct client rw = {"AKRW", "canary-secret-rw", NOW_S, 900, NULL, NULL};

static inline struct secret secret_of(const char *text)
{
    struct secret s = {.len = (uint16_t)strlen(text)};
    memcpy(s.bytes, text, s.len);
    return s;
}

static inline bool parse(void)
{
    size_t used;
    assert_false(request.over);
    return http_parse_request(request.at, request.len, &head, &used) == HTTP_OK &&
           used == request.len;
}

static inline void begin(const char *method, const char *target, const char *fields)
{
    text_init(&request, request_bytes, sizeof(request_bytes));
    text_addf(&request, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, target, host_of_client, fields);
}

static inline void end(void)
{
    text_adds(&request, "\r\n");
    if (!parse())
        fail_msg("%s", request.at);
}

/* Signs host and all fields, as SDKs do. */
static inline void sign_header(const struct client *c, const char *method, const char *target,
                        const char *fields)
{
    char memory[8 * KIB], amz_date[17];
    struct text authorization;
    struct secret secret = secret_of(c->secret);
    struct sign_credentials cred = {span_of(c->access), span_of(NULL), &secret};
    begin(method, target, fields);
    const char *payload = c->payload ? c->payload : sign_empty_sha256;
    if (*payload)
        text_addf(&request, "x-amz-content-sha256: %s\r\n", payload);
    if (c->token)
        text_addf(&request, "X-Amz-Security-Token: %s\r\n", c->token);
    size_t len = request.len;
    end();
    struct sign_request r = {.method = head.method_text, .field = head.field, .count = head.count,
                             .payload_hash = span_of(*payload ? payload : sign_empty_sha256)};
    uri_split(head.target, &r.path, &r.query);
    text_init(&authorization, memory, sizeof(memory));
    assert_int_equal(sign_v4(&r, &cred, span_of("eu-central-1"), c->time_s, NULL, amz_date,
                             &authorization), OK);
    request.len = len;
    text_addf(&request, "x-amz-date: %s\r\nAuthorization: %s\r\n", amz_date, authorization.at);
    end();
}

/* host, two that SDKs leave out, and the x-amz-* fields of a head, in its order, which in these
 * tests is sorted. */
static inline void list_signed(struct text *out, const char *separator)
{
    if (http_find(&head, "accept-encoding").at)
        text_addf(out, "accept-encoding%s", separator);
    text_adds(out, "host");
    if (http_find(&head, "user-agent").at)
        text_addf(out, "%suser-agent", separator);
    for (unsigned i = 0; i < head.count; i++)
        if (head.field[i].name.len > 6 && memcmp(head.field[i].name.at, "x-amz-", 6) == 0) {
            text_adds(out, separator);
            text_add(out, head.field[i].name);
        }
}

static inline void sign_query(const struct client *c, const char *method, const char *target,
                       const char *fields)
{
    char memory[3][4 * KIB], date[17], hex[65] = {0};
    struct text url, list, canonical, escaped;
    struct secret secret = secret_of(c->secret);
    struct sign_key key;
    begin(method, target, fields);
    end();
    text_init(&url, memory[0], sizeof(memory[0]));
    text_init(&list, memory[1], sizeof(memory[1]));
    text_init(&canonical, memory[2], sizeof(memory[2]));
    char access[200];
    text_init(&escaped, access, sizeof(access));
    uri_encode(&escaped, span_of(c->access), false);
    sign_date_write(c->time_s, date);
    text_addf(&url,
              "%s%sX-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s%%2F%.8s%%2Feu-central-1"
              "%%2Fs3%%2Faws4_request&X-Amz-Date=%s&X-Amz-Expires=%llu&X-Amz-SignedHeaders=",
              target, strchr(target, '?') ? "&" : "?", access, date, date,
              (unsigned long long)c->expires_s);
    list_signed(&url, "%3B");
    if (c->token)
        text_addf(&url, "&X-Amz-Security-Token=%s", c->token);
    list_signed(&list, ";");
    struct sign_request r = {.method = head.method_text, .field = head.field, .count = head.count,
                             .signed_headers = text_span(&list),
                             .payload_hash = span_of(c->payload ? c->payload : "UNSIGNED-PAYLOAD")};
    uri_split(text_span(&url), &r.path, &r.query);
    assert_int_equal(sign_canonical(&r, &canonical), OK);
    sign_key_make(&secret, span_make(date, 8), span_of("eu-central-1"), &key);
    char scope[64];
    snprintf(scope, sizeof(scope), "%.8s/eu-central-1/s3/aws4_request", date);
    sign_signature(&key, span_of(date), span_of(scope), text_span(&canonical), hex);
    text_addf(&url, "&X-Amz-Signature=%s", hex);
    assert_false(url.over);
    begin(method, url.at, fields);
    end();
}

/* ---- version 2, as the documentation of S3 tells it ---- */
static inline int v2_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* "?a&b=c" of the keys that are signed. */
static inline void v2_keys(struct text *out, struct span query)
{
    static const char list[] =
        " acl cors delete lifecycle location logging notification partNumber policy requestPayment "
        "restore tagging torrent uploadId uploads versionId versioning versions website ";
    static char memory[16][200];
    const char *part[16];
    unsigned count = 0;
    while (query.len > 0) {
        struct span one = span_cut(&query, '&'), name = one;
        char wanted[100];
        name.len = span_find(one, '=');
        snprintf(wanted, sizeof(wanted), " %.*s ", (int)name.len, name.at);
        if (!strstr(list, wanted))
            continue;
        assert_true(count < 16);
        snprintf(memory[count], sizeof(memory[0]), "%.*s", (int)one.len, one.at);
        part[count] = memory[count];
        count++;
    }
    qsort(part, count, sizeof(part[0]), v2_order);
    for (unsigned i = 0; i < count; i++)
        text_addf(out, "%c%s", i ? '&' : '?', part[i]);
}

/* Of the head; its x-amz-* fields are sorted in these tests. */
static inline void v2_signature(const char *secret, const char *date, char out[40])
{
    char memory[8 * KIB];
    uint8_t digest[20];
    unsigned len = sizeof(digest);
    struct span path = head.target, query, type = http_find(&head, "content-type");
    struct text t;
    text_init(&t, memory, sizeof(memory));
    text_addf(&t, "%.*s\n\n%.*s\n%s\n", (int)head.method_text.len, head.method_text.at,
              (int)type.len, type.at ? type.at : "", date);
    for (unsigned i = 0; i < head.count; i++)
        if (head.field[i].name.len > 6 && memcmp(head.field[i].name.at, "x-amz-", 6) == 0)
            text_addf(&t, "%.*s:%.*s\n", (int)head.field[i].name.len, head.field[i].name.at,
                      (int)head.field[i].value.len, head.field[i].value.at);
    query = path;
    path = span_cut(&query, '?');
    text_adds(&t, v2_bucket);
    text_add(&t, path);
    v2_keys(&t, query);
    assert_non_null(HMAC(EVP_sha1(), secret, (int)strlen(secret), (const uint8_t *)t.at, t.len,
                         digest, &len));
    out[base64_write(digest, len, out, 40)] = 0;
}

static inline void sign_v2_header(const struct client *c, const char *method, const char *target,
                                  const char *fields)
{
    char date[HTTP_DATE_BYTES + 1], signature[40];
    begin(method, target, fields);
    http_date_write(c->time_s, date);
    text_addf(&request, "Date: %s\r\n", date);
    size_t len = request.len;
    end();
    v2_signature(c->secret, date, signature);
    request.len = len;
    text_addf(&request, "Authorization: AWS %s:%s\r\n", c->access, signature);
    end();
}

static inline void sign_v2_query(const struct client *c, const char *method, const char *target,
                                 const char *fields)
{
    char expires[32], signature[40], url[8 * KIB], memory[100];
    struct text escaped;
    begin(method, target, fields);
    end();
    snprintf(expires, sizeof(expires), "%llu", (unsigned long long)(c->time_s + c->expires_s));
    v2_signature(c->secret, expires, signature);
    text_init(&escaped, memory, sizeof(memory));
    uri_encode(&escaped, span_of(signature), false);
    snprintf(url, sizeof(url), "%s%cAWSAccessKeyId=%s&Signature=%s&Expires=%s", target,
             strchr(target, '?') ? '&' : '?', c->access, escaped.at, expires);
    begin(method, url, fields);
    end();
}

/* ---- the server's side ---- */
enum gate_kind { KEYS, KEYS_V2, NO_KEYS, NO_KEYS_V2, NOTHING };

static inline void open_gate(enum gate_kind kind, bool anonymous_allowed)
{
    struct span up = kind == NOTHING ? span_of("") : span_of(upstream_access);
    s3_gate_open(&gate, kind <= KEYS_V2 ? keys : NULL, up,
                 kind == NOTHING ? NULL : &upstream_secret, 900);
    gate.sigv2 = kind == KEYS_V2 || kind == NO_KEYS_V2;
    gate.upstream_host = span_of("s3.example.com");
    who = (struct s3_who){.anonymous_allowed = anonymous_allowed, .now_s = NOW_S};
}

/* The code of the refusal, "ok" or "anonymous". */
static inline const char *verdict(void)
{
    arena_reset(&arena);
    memset(&error, 0, sizeof(error));
    if (s3_ask_read(&head, domain, &arena, &ask, &error) != OK)
        return error.code;
    if (s3_authorize(&gate, &head, &ask, &who, &arena, &error) == OK) {
        assert_int_equal(who.anonymous, who.access_key.len == 0);
        return who.anonymous ? "anonymous" : "ok";
    }
    assert_true(error.status >= 400 && error.message && !who.anonymous && who.access_key.len == 0);
    return error.code;
}

static inline int setup(void **state)
{
    static struct conf_mistakes mistakes;
    (void)state;
    allocations_begin();
    assert_int_equal(sign_setup_thread(), OK);
    upstream_secret = secret_of("canary-secret-upstream");
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 0);
    assert_int_equal(keys_parse(span_of(keys_text), "keys", &keys, &mistakes), OK);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    keys_give(keys);
    sign_end_thread();
    return 0;
}

/* ---- forms of authentication ---- */
enum form {
    HEADER_RW, HEADER_RO, HEADER_SLASH, QUERY_RW, QUERY_RO, QUERY_HASH, QUERY_FIELD,
    STREAM_UNSIGNED, STREAM_SIGNED, STREAM_SIGNED_TRAILER, STREAM_QUERY,
    PAYLOAD_UNKNOWN, PAYLOAD_MISSING, HASH_NOT_SIGNED, UNSIGNED, UNSIGNED_FIELD, HEADER_WRONG,
    QUERY_WRONG, HEADER_UNKNOWN, QUERY_UNKNOWN, QUERY_EXPIRED, QUERY_EARLY, QUERY_LONG, HEADER_OLD,
    HEADER_NEW, TWICE, V2_BAD, V2_BAD_QUERY, V2_RW, V2_RO, V2_WRONG, V2_UNKNOWN, V2_OLD,
    V2_QUERY_RW, V2_QUERY_RO, V2_QUERY_WRONG, V2_QUERY_EXPIRED, V2_QUERY_LONG, V2_FIELD_ADDED,
    V2_PARAMETER_ADDED, V2_TOKEN, V2_SCOPED, V2_UPSTREAM,
    V4A_HEADER, V4A_QUERY, BEARER, FIELD_ADDED, QUERY_FIELD_ADDED, TOKEN, EXPRESS, HEADER_UPSTREAM,
    HEADER_UPSTREAM_WRONG, BUCKET_RW, BUCKET_RO, BUCKET_QUERY, DIR_RW, DIR_QUERY, ELSE_RW,
    FORM_COUNT
};

/* How a form differs from the header's signature of the client rw. */
enum signing { BY_HEADER, BY_QUERY, BY_V2_HEADER, BY_V2_QUERY, UNTOUCHED };
static const struct form_row {
    enum signing by;
    const char *access, *secret, *payload, *token; /* NULL: as rw */
    int late_s;                      /* the client's clock stands before NOW_S by so much */
    unsigned expires_s;              /* 0: as rw */
    const char *query;               /* added to the target, before it is signed */
    const char *fields;              /* added to the head, behind what was signed */
    const char *late_query;          /* added to the target, behind what was signed */
} forms[FORM_COUNT] = {
    [HEADER_RW] = {.by = BY_HEADER},
    [HEADER_RO] = {.access = "AKRO", .secret = "canary-secret-ro"},
    [HEADER_SLASH] = {.access = "AK/SLASH", .secret = "canary-secret-slash"},
    [QUERY_RW] = {.by = BY_QUERY},
    [QUERY_RO] = {.by = BY_QUERY, .access = "AKRO", .secret = "canary-secret-ro"},
    [QUERY_HASH] = {.by = BY_QUERY, .query = "X-Amz-Content-Sha256=UNSIGNED-PAYLOAD"},
    [QUERY_FIELD] = {.by = BY_QUERY, .query = "x-amz-request-payer=requester"},
    [STREAM_UNSIGNED] = {.payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
    [STREAM_SIGNED] = {.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"},
    [STREAM_SIGNED_TRAILER] = {.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"},
    [STREAM_QUERY] = {.by = BY_QUERY, .payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
                      .query = "X-Amz-Content-Sha256=STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
    [PAYLOAD_UNKNOWN] = {.payload = "STREAMING-SOMETHING-NEW"},
    [PAYLOAD_MISSING] = {.payload = ""},
    [HASH_NOT_SIGNED] = {.payload = "UNSIGNED-PAYLOAD"},
    [UNSIGNED] = {.by = UNTOUCHED},
    [UNSIGNED_FIELD] = {.by = UNTOUCHED, .query = "x-amz-request-payer=requester"},
    [HEADER_WRONG] = {.secret = "canary-secret-rx"},
    [QUERY_WRONG] = {.by = BY_QUERY, .secret = "canary-secret-rx"},
    [HEADER_UNKNOWN] = {.access = "AKNOBODY"},
    [QUERY_UNKNOWN] = {.by = BY_QUERY, .access = "AKNOBODY"},
    [QUERY_EXPIRED] = {.by = BY_QUERY, .late_s = 901},
    [QUERY_EARLY] = {.by = BY_QUERY, .late_s = -960},
    [QUERY_LONG] = {.by = BY_QUERY, .expires_s = 604801},
    [HEADER_OLD] = {.late_s = 960},
    [HEADER_NEW] = {.late_s = -960},
    [TWICE] = {.query = "X-Amz-Signature=0"},
    [V2_BAD] = {.by = UNTOUCHED, .fields = "Authorization: AWS AKRW:c2lnbmF0dXJl\r\n"},
    [V2_BAD_QUERY] = {.by = UNTOUCHED,
                      .query = "AWSAccessKeyId=AKRW&Signature=x%3D&Expires=1795166183"},
    [V2_RW] = {.by = BY_V2_HEADER},
    [V2_RO] = {.by = BY_V2_HEADER, .access = "AKRO", .secret = "canary-secret-ro"},
    [V2_WRONG] = {.by = BY_V2_HEADER, .secret = "canary-secret-rx"},
    [V2_UNKNOWN] = {.by = BY_V2_HEADER, .access = "AKNOBODY"},
    [V2_OLD] = {.by = BY_V2_HEADER, .late_s = 960},
    [V2_QUERY_RW] = {.by = BY_V2_QUERY},
    [V2_QUERY_RO] = {.by = BY_V2_QUERY, .access = "AKRO", .secret = "canary-secret-ro"},
    [V2_QUERY_WRONG] = {.by = BY_V2_QUERY, .secret = "canary-secret-rx"},
    [V2_QUERY_EXPIRED] = {.by = BY_V2_QUERY, .late_s = 901},
    [V2_QUERY_LONG] = {.by = BY_V2_QUERY, .expires_s = 604801},
    [V2_FIELD_ADDED] = {.by = BY_V2_HEADER, .fields = "x-amz-zzz: 1\r\n"},
    [V2_PARAMETER_ADDED] = {.by = BY_V2_QUERY, .late_query = "x-amz-zzz=1"},
    [V2_TOKEN] = {.by = BY_V2_HEADER, .token = "canary-token"},
    [V2_SCOPED] = {.by = BY_V2_HEADER, .access = "AKDIR", .secret = "canary-secret-dir"},
    [V2_UPSTREAM] = {.by = BY_V2_HEADER, .access = upstream_access,
                     .secret = "canary-secret-upstream"},
    [V4A_HEADER] = {.by = UNTOUCHED,
                    .fields = "Authorization: AWS4-ECDSA-P256-SHA256 "
                              "Credential=AKRW/20261120/s3/aws4_request, "
                              "SignedHeaders=host, Signature=00\r\n"},
    [V4A_QUERY] = {.by = UNTOUCHED,
                   .query = "X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&X-Amz-Signature=0"},
    [BEARER] = {.by = UNTOUCHED, .fields = "Authorization: Bearer canary-token\r\n"},
    [FIELD_ADDED] = {.fields = "x-amz-zzz: 1\r\n"},
    [QUERY_FIELD_ADDED] = {.by = BY_QUERY, .fields = "x-amz-zzz: 1\r\n"},
    [TOKEN] = {.token = "canary-token"},
    [EXPRESS] = {.fields = "x-amz-s3session-token: canary-token\r\n"},
    [HEADER_UPSTREAM] = {.access = upstream_access, .secret = "canary-secret-upstream"},
    [HEADER_UPSTREAM_WRONG] = {.access = upstream_access},
    [BUCKET_RW] = {.access = "AKBUCKET", .secret = "canary-secret-bucket"},
    [BUCKET_RO] = {.access = "AKBUCKETRO", .secret = "canary-secret-bucket-ro"},
    [BUCKET_QUERY] = {.by = BY_QUERY, .access = "AKBUCKET", .secret = "canary-secret-bucket"},
    [DIR_RW] = {.access = "AKDIR", .secret = "canary-secret-dir"},
    [DIR_QUERY] = {.by = BY_QUERY, .access = "AKDIR", .secret = "canary-secret-dir"},
    [ELSE_RW] = {.access = "AKELSE", .secret = "canary-secret-else"},
};

static inline struct client client_of(const struct form_row *f)
{
    return (struct client){
        .access = f->access ? f->access : rw.access,
        .secret = f->secret ? f->secret : rw.secret,
        .time_s = rw.time_s - (uint64_t)(int64_t)f->late_s,
        .expires_s = f->expires_s ? f->expires_s : rw.expires_s,
        .payload = f->payload,
        .token = f->token,
    };
}

static inline void sign(enum signing by, const struct client *c, const char *method,
                        const char *target, const char *fields)
{
    switch (by) {
    case BY_HEADER: sign_header(c, method, target, fields); return;
    case BY_QUERY: sign_query(c, method, target, fields); return;
    case BY_V2_HEADER: sign_v2_header(c, method, target, fields); return;
    case BY_V2_QUERY: sign_v2_query(c, method, target, fields); return;
    case UNTOUCHED: begin(method, target, fields); end();
    }
}

/* Text put into the request behind the target, or before its empty line. */
static inline void add_late(const struct form_row *f)
{
    char rest[16 * KIB];
    if (f->fields) {
        request.len -= 2;            /* the empty line */
        text_adds(&request, f->fields);
        end();
    }
    if (f->late_query) {
        char *at = strstr(request.at, " HTTP/1.1");
        snprintf(rest, sizeof(rest), "%s", at);
        request.len = (size_t)(at - request.at);
        text_addf(&request, "&%s%s", f->late_query, rest);
        request.len -= 2;
        end();
    }
}

static inline void send_form(enum form form, const char *method, const char *target,
                             const char *fields)
{
    const struct form_row *f = &forms[form];
    struct client c = client_of(f);
    const char *glue = strchr(target, '?') ? "&" : "?";
    char whole[4 * KIB], all[KIB];
    snprintf(whole, sizeof(whole), "%s%s%s", target, f->query ? glue : "",
             f->query ? f->query : "");
    snprintf(all, sizeof(all), "%s%s%s%s", fields,
             f->by == BY_V2_HEADER && f->token ? "x-amz-security-token: " : "",
             f->by == BY_V2_HEADER && f->token ? f->token : "",
             f->by == BY_V2_HEADER && f->token ? "\r\n" : "");
    sign(f->by, &c, method, whole, all);
    add_late(f);
}

/* Error documents and stamps of all refusals, for what must not stand in them. */
static inline void assert_no_canary(void)
{
    static char document[S3_ERROR_BYTES];
    struct s3_stamp stamp;
    struct text t;
    s3_stamp_make(&stamp, "", 1);
    text_init(&t, document, sizeof(document));
    s3_reply_error(&t, &error, &stamp, false, false);
    assert_null(strstr(document, "canary"));
}

#endif
