/* Who may ask what: every operation by every form of authentication, scopes, clocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/s3/auth.c"
#include "tests/lib/allocations.h"
#include "tests/unit/s3_rows.h"

enum { NOW_S = 1795166183 };

static const char keys_text[] = "AKRW canary-secret-rw rw\n"
                                "AKRO canary-secret-ro\n"
                                "AK/SLASH canary-secret-slash rw\n"
                                "AKSCOPE canary-secret-scope rw train/imagenet/,other,train"
                                "/exact\n";
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

/* ---- clients ---- */
struct client {
    const char *access, *secret;
    uint64_t time_s;
    uint64_t expires_s;              /* of a URL */
    const char *payload;             /* NULL: of an empty body; "": the field is left out */
    const char *token;
};
static const struct client rw = {"AKRW", "canary-secret-rw", NOW_S, 900, NULL, NULL};

static struct secret secret_of(const char *text)
{
    struct secret s = {.len = (uint16_t)strlen(text)};
    memcpy(s.bytes, text, s.len);
    return s;
}

static bool parse(void)
{
    size_t used;
    assert_false(request.over);
    return http_parse_request(request.at, request.len, &head, &used) == HTTP_OK &&
           used == request.len;
}

static void begin(const char *method, const char *target, const char *fields)
{
    text_init(&request, request_bytes, sizeof(request_bytes));
    text_addf(&request, "%s %s HTTP/1.1\r\nHost: cache.local:9000\r\n%s", method, target, fields);
}

static void end(void)
{
    text_adds(&request, "\r\n");
    if (!parse())
        fail_msg("%s", request.at);
}

/* Signs host and all fields, as SDKs do. */
static void sign_header(const struct client *c, const char *method, const char *target,
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

/* host and the x-amz-* fields of a head, in its order, which in these tests is sorted. */
static void list_signed(struct text *out, const char *separator)
{
    text_adds(out, "host");
    for (unsigned i = 0; i < head.count; i++)
        if (head.field[i].name.len > 6 && memcmp(head.field[i].name.at, "x-amz-", 6) == 0) {
            text_adds(out, separator);
            text_add(out, head.field[i].name);
        }
}

static void sign_query(const struct client *c, const char *method, const char *target,
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
                             .payload_hash = span_of("UNSIGNED-PAYLOAD")};
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

/* ---- the server's side ---- */
enum gate_kind { KEYS, NO_KEYS, NOTHING };

static void open_gate(enum gate_kind kind, bool anonymous_allowed)
{
    struct span up = kind == NOTHING ? span_of("") : span_of(upstream_access);
    s3_gate_open(&gate, kind == KEYS ? keys : NULL, up, kind == NOTHING ? NULL : &upstream_secret,
                 900);
    who = (struct s3_who){.anonymous_allowed = anonymous_allowed, .now_s = NOW_S};
}

/* The code of the refusal, "ok" or "anonymous". */
static const char *verdict(void)
{
    arena_reset(&arena);
    memset(&error, 0, sizeof(error));
    if (s3_ask_read(&head, "", &arena, &ask, &error) != OK)
        return error.code;
    if (s3_authorize(&gate, &head, &ask, &who, &arena, &error) == OK) {
        assert_int_equal(who.anonymous, who.access_key.len == 0);
        return who.anonymous ? "anonymous" : "ok";
    }
    assert_true(error.status >= 400 && error.message && !who.anonymous && who.access_key.len == 0);
    return error.code;
}

static int setup(void **state)
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

static int teardown(void **state)
{
    (void)state;
    keys_give(keys);
    sign_end_thread();
    return 0;
}

/* ---- every operation by every form ---- */
enum form {
    HEADER_RW, HEADER_RO, HEADER_SLASH, QUERY_RW, QUERY_RO, STREAM_UNSIGNED, STREAM_SIGNED,
    PAYLOAD_UNKNOWN, PAYLOAD_MISSING, PAYLOAD_UNSIGNED, UNSIGNED, HEADER_WRONG, QUERY_WRONG,
    HEADER_UNKNOWN,
    QUERY_UNKNOWN, QUERY_EXPIRED, QUERY_EARLY, QUERY_LONG, HEADER_OLD, HEADER_NEW, TWICE, V2_HEADER,
    V2_QUERY, V4A_HEADER, V4A_QUERY, BEARER, FIELD_ADDED, TOKEN, HEADER_UPSTREAM,
    HEADER_UPSTREAM_WRONG,
};

/* How a form differs from the header's signature of the client rw. */
enum signing { BY_HEADER, BY_QUERY, UNTOUCHED };
static const struct form_row {
    enum signing by;
    const char *access, *secret, *payload, *token; /* NULL: as rw */
    int late_s;                      /* the client's clock stands before NOW_S by so much */
    unsigned expires_s;              /* 0: as rw */
    const char *query;               /* added to the target */
    const char *fields;              /* added to the head, behind what was signed */
} forms[] = {
    [HEADER_RW] = {.by = BY_HEADER},
    [HEADER_RO] = {.access = "AKRO", .secret = "canary-secret-ro"},
    [HEADER_SLASH] = {.access = "AK/SLASH", .secret = "canary-secret-slash"},
    [QUERY_RW] = {.by = BY_QUERY},
    [QUERY_RO] = {.by = BY_QUERY, .access = "AKRO", .secret = "canary-secret-ro"},
    [STREAM_UNSIGNED] = {.payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
    [STREAM_SIGNED] = {.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"},
    [PAYLOAD_UNKNOWN] = {.payload = "STREAMING-SOMETHING-NEW"},
    [PAYLOAD_MISSING] = {.payload = ""},
    [PAYLOAD_UNSIGNED] = {.payload = "UNSIGNED-PAYLOAD"},
    [UNSIGNED] = {.by = UNTOUCHED},
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
    [V2_HEADER] = {.by = UNTOUCHED, .fields = "Authorization: AWS AKRW:c2lnbmF0dXJl\r\n"},
    [V2_QUERY] = {.by = UNTOUCHED,
                  .query = "AWSAccessKeyId=AKRW&Signature=x%3D&Expires=1795166183"},
    [V4A_HEADER] = {.by = UNTOUCHED,
                    .fields = "Authorization: AWS4-ECDSA-P256-SHA256 "
                              "Credential=AKRW/20261120/s3/aws4_request, "
                              "SignedHeaders=host, Signature=00\r\n"},
    [V4A_QUERY] = {.by = UNTOUCHED,
                   .query = "X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&X-Amz-Signature=0"},
    [BEARER] = {.by = UNTOUCHED, .fields = "Authorization: Bearer canary-token\r\n"},
    [FIELD_ADDED] = {.fields = "x-amz-zzz: 1\r\n"},
    [TOKEN] = {.token = "canary-token"},
    [HEADER_UPSTREAM] = {.access = upstream_access, .secret = "canary-secret-upstream"},
    [HEADER_UPSTREAM_WRONG] = {.access = upstream_access},
};

static struct client client_of(const struct form_row *f)
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

static void send_form(enum form form, const char *method, const char *target, const char *fields)
{
    const struct form_row *f = &forms[form];
    struct client c = client_of(f);
    const char *glue = strchr(target, '?') ? "&" : "?";
    char whole[4 * KIB];

    snprintf(whole, sizeof(whole), "%s%s%s", target, f->query ? glue : "",
             f->query ? f->query : "");
    if (f->by == BY_QUERY) {
        sign_query(&c, method, whole, fields);
    } else if (f->by == BY_HEADER) {
        sign_header(&c, method, whole, fields);
    } else {
        begin(method, whole, fields);
        end();
    }
    if (f->fields) {
        request.len -= 2;            /* the empty line */
        text_adds(&request, f->fields);
        end();
    }
}

/* What a row is to the verdict. */
enum class_ { FOR_ANYONE, READ, REFUSED, WRITE, STREAMED, CLASS_COUNT };

static enum class_ class_of(enum s3_operation op)
{
    if (is_for_anyone(op))
        return FOR_ANYONE;
    if (op == PutObject || op == UploadPart)
        return STREAMED;
    switch ((enum s3_action)s3_operation_table[op].action) {
    case S3_REFUSE: return REFUSED;
    case S3_WRITE: return WRITE;
    default: return READ;
    }
}

#define SAME(v) {v, v, v, v, v}
static const struct {
    const char *name;
    enum form form;
    enum gate_kind gate;
    bool anonymous;                  /* the peer is in auth.anonymous */
    const char *want[CLASS_COUNT];
    enum label_authfail reason;      /* of refusals */
} matrix[] = {
    {"header", HEADER_RW, KEYS, false, SAME("ok"), 0},
    {"header, read-only key", HEADER_RO, KEYS, true,
     {"ok", "ok", "ok", "AccessDenied", "AccessDenied"}, AUTH_FORBIDDEN},
    {"header, slash in the key", HEADER_SLASH, KEYS, false, SAME("ok"), 0},
    {"header, UNSIGNED-PAYLOAD", PAYLOAD_UNSIGNED, KEYS, false, SAME("ok"), 0},
    {"presigned", QUERY_RW, KEYS, false, SAME("ok"), 0},
    {"presigned, read-only key", QUERY_RO, KEYS, false,
     {"ok", "ok", "ok", "AccessDenied", "AccessDenied"}, AUTH_FORBIDDEN},
    {"unsigned stream", STREAM_UNSIGNED, KEYS, false,
     {"InvalidRequest", "InvalidRequest", "InvalidRequest", "InvalidRequest", "ok"},
     AUTH_FORBIDDEN},
    {"signed stream", STREAM_SIGNED, KEYS, true,
     {"InvalidRequest", "InvalidRequest", "InvalidRequest", "InvalidRequest", "ok"},
     AUTH_FORBIDDEN},
    {"unknown payload literal", PAYLOAD_UNKNOWN, KEYS, true, SAME("InvalidArgument"),
     AUTH_FORBIDDEN},
    {"no payload hash", PAYLOAD_MISSING, KEYS, true, SAME("InvalidRequest"), AUTH_FORBIDDEN},
    {"anonymous allowed", UNSIGNED, KEYS, true,
     {"anonymous", "AccessDenied", "AccessDenied", "AccessDenied", "AccessDenied"}, AUTH_FORBIDDEN},
    {"anonymous refused", UNSIGNED, KEYS, false, SAME("AccessDenied"), AUTH_FORBIDDEN},
    {"wrong signature", HEADER_WRONG, KEYS, true, SAME("SignatureDoesNotMatch"), AUTH_SIGNATURE},
    {"wrong presigned", QUERY_WRONG, KEYS, true, SAME("SignatureDoesNotMatch"), AUTH_SIGNATURE},
    {"unknown key", HEADER_UNKNOWN, KEYS, true, SAME("InvalidAccessKeyId"), AUTH_UNKNOWN_KEY},
    {"unknown presigned key", QUERY_UNKNOWN, KEYS, true, SAME("InvalidAccessKeyId"),
     AUTH_UNKNOWN_KEY},
    {"the upstream's key beside a keys_file", HEADER_UPSTREAM, KEYS, true,
     SAME("InvalidAccessKeyId"), AUTH_UNKNOWN_KEY},
    {"expired", QUERY_EXPIRED, KEYS, true, SAME("AccessDenied"), AUTH_EXPIRED},
    {"not valid yet", QUERY_EARLY, KEYS, true, SAME("AccessDenied"), AUTH_SKEW},
    {"valid for too long", QUERY_LONG, KEYS, true, SAME("AuthorizationQueryParametersError"),
     AUTH_FORBIDDEN},
    {"16 minutes late", HEADER_OLD, KEYS, true, SAME("RequestTimeTooSkewed"), AUTH_SKEW},
    {"16 minutes early", HEADER_NEW, KEYS, true, SAME("RequestTimeTooSkewed"), AUTH_SKEW},
    {"both at once", TWICE, KEYS, true, SAME("InvalidArgument"), AUTH_FORBIDDEN},
    {"V2", V2_HEADER, KEYS, true, SAME("InvalidRequest"), AUTH_FORBIDDEN},
    {"V2 presigned", V2_QUERY, KEYS, true, SAME("InvalidRequest"), AUTH_FORBIDDEN},
    {"V4A", V4A_HEADER, KEYS, true, SAME("InvalidArgument"), AUTH_FORBIDDEN},
    {"V4A presigned", V4A_QUERY, KEYS, true, SAME("AuthorizationQueryParametersError"),
     AUTH_FORBIDDEN},
    {"bearer", BEARER, KEYS, true, SAME("InvalidArgument"), AUTH_FORBIDDEN},
    {"unsigned x-amz field", FIELD_ADDED, KEYS, true, SAME("AccessDenied"), AUTH_FORBIDDEN},
    {"session token", TOKEN, KEYS, true, SAME("InvalidToken"), AUTH_FORBIDDEN},
    {"the upstream's pair", HEADER_UPSTREAM, NO_KEYS, false, SAME("ok"), 0},
    {"the upstream's key, wrong", HEADER_UPSTREAM_WRONG, NO_KEYS, true,
     SAME("SignatureDoesNotMatch"), AUTH_SIGNATURE},
    {"nothing to verify with", HEADER_RW, NO_KEYS, false, SAME("AccessDenied"), AUTH_UNKNOWN_KEY},
    {"nothing at all to verify with", HEADER_RW, NOTHING, false, SAME("AccessDenied"),
     AUTH_UNKNOWN_KEY},
    {"nothing to verify with, anonymous range", HEADER_RW, NO_KEYS, true,
     {"anonymous", "AccessDenied", "AccessDenied", "AccessDenied", "AccessDenied"}, AUTH_FORBIDDEN},
    {"presigned elsewhere, anonymous range", QUERY_EXPIRED, NOTHING, true,
     {"anonymous", "AccessDenied", "AccessDenied", "AccessDenied", "AccessDenied"}, AUTH_FORBIDDEN},
    {"V2 presigned, anonymous range", V2_QUERY, NO_KEYS, true,
     {"anonymous", "AccessDenied", "AccessDenied", "AccessDenied", "AccessDenied"}, AUTH_FORBIDDEN},
    {"V2 presigned, elsewhere", V2_QUERY, NO_KEYS, false, SAME("InvalidRequest"), AUTH_FORBIDDEN},
    {"both at once, anonymous range", TWICE, NO_KEYS, true, SAME("InvalidArgument"),
     AUTH_FORBIDDEN},
    {"anonymous without keys", UNSIGNED, NO_KEYS, false, SAME("AccessDenied"), AUTH_FORBIDDEN},
};

/* Error documents and stamps of all refusals, for what must not stand in them. */
static void assert_no_canary(void)
{
    static char document[S3_ERROR_BYTES];
    struct s3_stamp stamp;
    struct text t;
    s3_stamp_make(&stamp, "", 1);
    text_init(&t, document, sizeof(document));
    s3_reply_error(&t, &error, &stamp, false, false);
    assert_null(strstr(document, "canary"));
}

static void check_cell(unsigned row, enum s3_operation op)
{
    char target[200], fields[200];
    struct text t, f;
    const struct s3_operation_row *o = &s3_operation_table[op];
    text_init(&t, target, sizeof(target));
    text_init(&f, fields, sizeof(fields));
    write_request(o, false, &t, &f);
    send_form(matrix[row].form, http_method_text(o->method), target, fields);
    open_gate(matrix[row].gate, matrix[row].anonymous);
    const char *want = o->action == S3_PROBE ? "anonymous" : matrix[row].want[class_of(op)];
    const char *have = verdict();
    if (strcmp(have, want) != 0)
        fail_msg("%s, %s: %s, not %s", o->name, matrix[row].name, have, want);
    assert_int_equal(ask.op, shown_as(op));
    if (strcmp(have, "ok") != 0 && strcmp(have, "anonymous") != 0) {
        assert_int_equal(who.reason, matrix[row].reason);
        assert_no_canary();
    }
}

static void every_operation_by_every_form(void **state)
{
    unsigned for_anyone = 0;
    (void)state;
    for (unsigned op = 0; op < S3_OPERATION_COUNT; op++) {
        for_anyone += class_of((enum s3_operation)op) == FOR_ANYONE;
        if (op == UnknownRead || op == UnknownWrite)
            continue;                /* no request of their own */
        for (unsigned row = 0; row < ARRAY_COUNT(matrix); row++)
            check_cell(row, (enum s3_operation)op);
    }
    assert_int_equal(for_anyone, 7);
}

/* ---- rights ---- */
static void scopes(void **state)
{
    static const struct {
        const char *method, *target, *fields, *want;
    } row[] = {
        {"GET", "/train/imagenet/a", "", "ok"},
        {"HEAD", "/train/imagenet/a", "", "ok"},
        {"GET", "/train/imagenet%2Fa", "", "ok"},
        {"GET", "/train/imagenet", "", "AccessDenied"},
        {"GET", "/train/other", "", "AccessDenied"},
        {"GET", "/train/imagenet%2e%2e%2fx", "", "AccessDenied"},
        {"GET", "/trainx/imagenet/a", "", "AccessDenied"},
        {"GET", "/other/anything?acl", "", "ok"},
        {"GET", "/train/exact.and.more", "", "ok"},
        {"PUT", "/train/imagenet/new", "", "ok"},
        {"PUT", "/train/other", "", "AccessDenied"},
        {"PUT", "/other/copy", "x-amz-copy-source: /train/imagenet/a%20b?versionId=1\r\n", "ok"},
        {"PUT", "/other/copy", "x-amz-copy-source: train/secret\r\n", "AccessDenied"},
        {"PUT", "/other/copy", "x-amz-copy-source: train/imagenet%2\r\n", "AccessDenied"},
        {"PUT", "/other/copy", "x-amz-copy-source: train\r\n", "AccessDenied"},
        {"PUT", "/other/copy?x-amz-copy-source=train%2Fsecret", "", "AccessDenied"},
        {"PUT", "/other/k?renameObject", "x-amz-rename-source: elsewhere/k\r\n", "AccessDenied"},
        {"GET", "/train?list-type=2&prefix=imagenet/", "", "ok"},
        {"GET", "/train?list-type=2&prefix=imagenet/n01%2F&delimiter=/", "", "ok"},
        {"GET", "/train?prefix=imagenet", "", "AccessDenied"},
        {"GET", "/train?list-type=2", "", "AccessDenied"},
        {"GET", "/train?list-type=2&prefix=imagenet/a+b", "", "AccessDenied"},
        {"GET", "/train?list-type=2&prefix=imagenet/a%20b", "", "ok"},
        {"GET", "/train?versions&prefix=imagenet/", "", "ok"},
        {"GET", "/other?list-type=2", "", "ok"},
        {"GET", "/other?future&prefix=imagenet/", "", "AccessDenied"},
        {"HEAD", "/train", "", "ok"},
        {"HEAD", "/nobodys", "", "AccessDenied"},
        {"GET", "/train?location", "", "ok"},
        {"GET", "/nobodys?location", "", "AccessDenied"},
        {"GET", "/other?policy", "", "AccessDenied"},
        {"PUT", "/other?policy", "", "AccessDenied"},
        {"DELETE", "/other", "", "AccessDenied"},
        {"POST", "/other?delete", "", "ok"},
        {"POST", "/train?delete", "", "AccessDenied"},
        {"GET", "/", "", "AccessDenied"},
        {"GET", "/other?session", "", "ok"},
        {"GET", "/-/ready", "", "anonymous"},
    };
    struct client c = {"AKSCOPE", "canary-secret-scope", NOW_S, 900, NULL, NULL};
    (void)state;
    open_gate(KEYS, false);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        sign_header(&c, row[i].method, row[i].target, row[i].fields);
        const char *have = verdict();
        if (strcmp(have, row[i].want) != 0)
            fail_msg("%s %s: %s", row[i].method, row[i].target, have);
    }
}

static void anonymous_limits(void **state)
{
    static const struct {
        const char *method, *target, *want;
    } row[] = {
        {"GET", "/b/k", "anonymous"},
        {"GET", "/b/k?response-content-type=x", "InvalidRequest"},
        {"HEAD", "/b/k?response-expires=x", "InvalidRequest"},
        {"GET", "/b/k?unknown", "AccessDenied"},
        {"GET", "/b?unknown", "AccessDenied"},
        {"GET", "/b/k?versionId=1&partNumber=2", "anonymous"},
        {"GET", "/b?list-type=2&prefix=a+b", "anonymous"},
        {"GET", "/b?uploads", "AccessDenied"},
        {"OPTIONS", "/b/k", "AccessDenied"},
        {"DELETE", "/b/k?unknown", "AccessDenied"},
    };
    (void)state;
    open_gate(NO_KEYS, true);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        send_form(UNSIGNED, row[i].method, row[i].target, "");
        const char *have = verdict();
        if (strcmp(have, row[i].want) != 0)
            fail_msg("%s %s: %s", row[i].method, row[i].target, have);
    }
    sign_header(&rw, "GET", "/b/k?response-content-type=x", "");
    open_gate(KEYS, false);
    assert_string_equal(verdict(), "ok");
}

/* ---- clocks ---- */
static void clocks(void **state)
{
    static const struct {
        bool query;
        int64_t late_s;              /* of the signature; negative: in the future */
        uint64_t expires_s;
        const char *want;
    } row[] = {
        {false, 0, 0, "ok"}, {false, 900, 0, "ok"}, {false, -900, 0, "ok"},
        {false, 901, 0, "RequestTimeTooSkewed"}, {false, -901, 0, "RequestTimeTooSkewed"},
        {false, 840, 0, "ok"}, {false, -840, 0, "ok"},
        {true, 0, 1, "ok"}, {true, 1, 1, "ok"}, {true, 2, 1, "AccessDenied"},
        {true, -900, 1, "ok"}, {true, -901, 1, "AccessDenied"},
        {true, 604800, 604800, "ok"}, {true, 604801, 604800, "AccessDenied"},
        {true, 0, 604801, "AuthorizationQueryParametersError"}, {true, 0, 0, "AccessDenied"},
    };
    (void)state;
    open_gate(KEYS, false);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct client c = rw;
        c.time_s = (uint64_t)(NOW_S - row[i].late_s);
        c.expires_s = row[i].expires_s;
        if (row[i].query)
            sign_query(&c, "GET", "/b/k", "");
        else
            sign_header(&c, "GET", "/b/k", "");
        const char *have = verdict();
        if (strcmp(have, row[i].want) != 0)
            fail_msg("%d, %d s late: %s", row[i].query, (int)row[i].late_s, have);
    }
}

static void assert_span(struct span have, const char *want)
{
    if (!span_is(have, want))
        fail_msg("have \"%.*s\", want \"%s\"", (int)have.len, have.at ? have.at : "", want);
}

static void refusals_of_the_clock_show_the_times(void **state)
{
    (void)state;
    open_gate(KEYS, false);
    send_form(HEADER_OLD, "GET", "/b/k", "");
    assert_string_equal(verdict(), "RequestTimeTooSkewed");
    assert_span(error.request_time, "2026-11-20T09:00:23.000Z");
    assert_span(error.server_time, "2026-11-20T09:16:23.000Z");
    assert_int_equal(error.max_skew_ms, 900000);
    send_form(QUERY_EXPIRED, "GET", "/b/k", "");
    assert_string_equal(verdict(), "AccessDenied");
    assert_string_equal(error.message, "Request has expired");
    assert_span(error.expires, "2026-11-20T09:16:22.000Z");
    assert_span(error.server_time, "2026-11-20T09:16:23.000Z");
    assert_int_equal(error.expires_s, 900);
    send_form(QUERY_EARLY, "GET", "/b/k", "");
    assert_string_equal(verdict(), "AccessDenied");
    assert_string_equal(error.message, "Request is not valid yet");
}

/* ---- what a refusal explains ---- */
static void a_mismatch_shows_what_was_signed(void **state)
{
    (void)state;
    open_gate(KEYS, false);
    send_form(HEADER_WRONG, "GET", "/b/a%2fb?x-id=GetObject", "Range: bytes=0-1\r\n");
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    assert_int_equal(error.status, 403);
    assert_span(error.access_key, "AKRW");
    assert_int_equal(error.signature.len, 64);
    assert_non_null(strstr(error.message, "Host"));
    assert_span(error.canonical,
                "GET\n/b/a/b\nx-id=GetObject\nhost:cache.local:9000\nrange:bytes=0-1\n"
                "x-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b"
                "7852b855\n"
                "x-amz-date:20261120T091623Z\n\nhost;range;x-amz-content-sha256;x-amz-date\n"
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_true(span_starts(error.string_to_sign, span_of("AWS4-HMAC-SHA256\n20261120T091623Z\n"
                                                          "20261120/eu-central-1/s3"
                                                          "/aws4_request\n")));
    assert_int_equal(error.string_to_sign.len, 16 + 1 + 16 + 1 + 37 + 1 + 64);
}

/* A token stands in the canonical request, so that is not shown. */
static void a_mismatch_with_a_token_shows_no_token(void **state)
{
    struct client c = {"AKRW", "wrong", NOW_S, 900, NULL, "canary-token"};
    (void)state;
    open_gate(KEYS, false);
    sign_header(&c, "GET", "/b/k", "");
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    assert_null(error.canonical.at);
    assert_no_canary();
    sign_query(&c, "GET", "/b/k", "");
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    assert_null(error.canonical.at);
    assert_no_canary();
}

static void refusals_name_what_to_change(void **state)
{
    (void)state;
    open_gate(NO_KEYS, false);
    send_form(HEADER_RW, "GET", "/b/k", "");
    assert_string_equal(verdict(), "AccessDenied");
    assert_non_null(strstr(error.message, "auth.keys_file"));
    send_form(UNSIGNED, "GET", "/b/k", "");
    assert_string_equal(verdict(), "AccessDenied");
    assert_non_null(strstr(error.message, "auth.anonymous"));
    send_form(FIELD_ADDED, "GET", "/b/k", "");
    assert_string_equal(verdict(), "AccessDenied");
    assert_span(error.headers_not_signed, "x-amz-zzz");
    send_form(TWICE, "GET", "/b/k", "");
    assert_string_equal(verdict(), "InvalidArgument");
    assert_span(error.argument_name, "Authorization");
}

/* ---- the day keys ---- */
static void an_old_secret_is_forgotten_with_its_gate(void **state)
{
    static struct conf_mistakes mistakes;
    struct keys *other;
    (void)state;
    /* The same place in the table of keys, thus in the cache. */
    static const char text[] = "AK/SLASH a\nAKRO b\nAKRW another-secret rw\n";
    assert_int_equal(keys_parse(span_of(text), "keys", &other, &mistakes), OK);
    open_gate(KEYS, false);
    sign_header(&rw, "GET", "/b/k", "");
    assert_string_equal(verdict(), "ok");
    s3_gate_open(&gate, other, span_of(""), NULL, 900);
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    keys_give(other);
}

static void an_empty_upstream_key_matches_nobody(void **state)
{
    (void)state;
    open_gate(NOTHING, false);
    s3_gate_open(&gate, NULL, span_of(""), &upstream_secret, 900);
    send_form(HEADER_UPSTREAM, "GET", "/b/k", "");
    assert_string_equal(verdict(), "AccessDenied");
}

static void a_full_arena_is_a_slow_down(void **state)
{
    struct arena none;
    struct client c = rw;
    (void)state;
    c.access = "AK/SLASH";
    sign_query(&c, "GET", "/b/k", "");
    open_gate(KEYS, false);
    assert_int_equal(s3_ask_read(&head, "", &arena, &ask, &error), OK);
    arena_init(&none, NULL, 0, 0);
    assert_int_equal(s3_authorize(&gate, &head, &ask, &who, &none, &error), ERR_MEMORY);
    assert_int_equal(error.status, 503);
}

/* From the bytes of a head to the verdict, as each hit takes it; libraries' allocations count. */
static uint64_t allocations_of_verdict(void)
{
    uint64_t before = allocations_made();
    if (!parse() || s3_ask_read(&head, "", &arena, &ask, &error) != OK ||
        s3_authorize(&gate, &head, &ask, &who, &arena, &error) != OK)
        return UINT64_MAX;
    uint64_t made = allocations_made() - before;
    arena_reset(&arena);
    return made;
}

static void a_signed_hit_allocates_nothing(void **state)
{
    static const char fields[] = "Range: bytes=8388608-16777215\r\n";
    (void)state;
    open_gate(KEYS, false);
    assert_true(allocations_made() > 0); /* those of the set-up: it counts */
    sign_header(&rw, "GET", "/b/shard-000123.tar", fields);
    assert_int_equal(allocations_of_verdict(), 0); /* makes the day key */
    assert_int_equal(allocations_of_verdict(), 0); /* uses it */
    sign_query(&rw, "GET", "/b/shard-000123.tar", fields);
    assert_int_equal(allocations_of_verdict(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_by_every_form),
        cmocka_unit_test(scopes),
        cmocka_unit_test(anonymous_limits),
        cmocka_unit_test(clocks),
        cmocka_unit_test(refusals_of_the_clock_show_the_times),
        cmocka_unit_test(a_mismatch_shows_what_was_signed),
        cmocka_unit_test(a_mismatch_with_a_token_shows_no_token),
        cmocka_unit_test(refusals_name_what_to_change),
        cmocka_unit_test(an_old_secret_is_forgotten_with_its_gate),
        cmocka_unit_test(an_empty_upstream_key_matches_nobody),
        cmocka_unit_test(a_full_arena_is_a_slow_down),
        cmocka_unit_test(a_signed_hit_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
