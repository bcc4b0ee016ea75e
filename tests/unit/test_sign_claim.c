/* Unit tests of common/sign_claim.c: every published S3 vector is accepted and each mutation of a
 * request is refused; the order of checks and their S3 codes, row by row. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sign_claim.c"

#include "sigv4_vectors.h"
#include "tests/lib/allocations.h"

#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { ARENA_BYTES = 16 * KIB };

static char arena_memory[ARENA_BYTES];
static struct arena arena;

static int set_up_thread(void **state)
{
    (void)state;
    arena_init(&arena, arena_memory, sizeof(arena_memory), 0);
    allocations_begin();
    return sign_setup_thread() == OK ? 0 : -1;
}

static int end_thread(void **state)
{
    (void)state;
    arena_reset(&arena);
    sign_end_thread();
    return 0;
}

static struct secret secret_of(const char *text)
{
    struct secret s = {.len = (uint16_t)strlen(text)};
    memcpy(s.bytes, text, s.len);
    return s;
}

struct verdict {
    enum err e;
    struct sign_claim claim;
    const char *code, *why;
};

static struct verdict read_claim(const struct http_head *head)
{
    struct verdict v = {.code = "", .why = ""};
    arena_reset(&arena);
    v.e = sign_claim_read(head, &arena, &v.claim, &v.code, &v.why);
    return v;
}

/* ---- published vectors ---- */
static const char *text_of(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static const char *item(json_t *pair, size_t i)
{
    return json_string_value(json_array_get(pair, i));
}

/* The request's target: given whole, or as a path and a list of encoded pairs with the signature
 * left out. */
static void add_target(struct text *out, json_t *vector)
{
    size_t i;
    json_t *pair;
    text_adds(out, text_of(vector, "target"));
    text_adds(out, text_of(vector, "path"));
    json_array_foreach(json_object_get(vector, "query"), i, pair)
        text_addf(out, "%c%s=%s", i == 0 ? '?' : '&', item(pair, 0), item(pair, 1));
    if (json_object_get(vector, "path") && strcmp(text_of(vector, "kind"), "query") == 0)
        text_addf(out, "&X-Amz-Signature=%s", text_of(vector, "signature"));
}

static void add_authorization(struct text *out, json_t *vector)
{
    size_t i;
    json_t *name;
    text_addf(out,
              "Authorization: AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/s3/aws4_request,"
              "SignedHeaders=",
              text_of(vector, "access_key"), text_of(vector, "timestamp"),
              text_of(vector, "region"));
    json_array_foreach(json_object_get(vector, "signed_headers"), i, name)
        text_addf(out, "%s%s", i ? ";" : "", json_string_value(name));
    text_addf(out, ",Signature=%s\r\n", text_of(vector, "signature"));
}

static char wire[VECTOR_BYTES_MAX];
static struct http_head head;

/* Through our own parser, as on the wire. */
static void parse_vector(json_t *vector)
{
    struct text t;
    size_t i, used;
    json_t *pair;
    text_init(&t, wire, sizeof(wire));
    text_addf(&t, "%s ", text_of(vector, "method"));
    add_target(&t, vector);
    text_adds(&t, " HTTP/1.1\r\n");
    json_array_foreach(json_object_get(vector, "headers"), i, pair)
        text_addf(&t, "%s: %s\r\n", item(pair, 0), item(pair, 1));
    if (json_object_get(vector, "path") && strcmp(text_of(vector, "kind"), "header") == 0)
        add_authorization(&t, vector);
    text_adds(&t, "\r\n");
    assert_false(t.over);
    if (http_parse_request(t.at, t.len, &head, &used) != HTTP_OK)
        fail_msg("%s: not a request: %s", text_of(vector, "name"), t.at);
}

static void accept_vector(json_t *vector)
{
    static char canonical[VECTOR_BYTES_MAX];
    struct secret s = secret_of(text_of(vector, "secret_key")), wrong = secret_of("wrong");
    bool query = strcmp(text_of(vector, "kind"), "query") == 0;
    struct text t;
    parse_vector(vector);
    struct verdict v = read_claim(&head);
    if (v.e != OK)
        fail_msg("%s: %s: %s", text_of(vector, "name"), v.code, v.why);
    assert_int_equal(v.claim.form, query ? SIGN_V4_QUERY : SIGN_V4_HEADER);
    assert_true(span_is(v.claim.access_key, text_of(vector, "access_key")));
    assert_true(span_is(v.claim.region, text_of(vector, "region")));
    assert_true(span_is(v.claim.amz_date, text_of(vector, "timestamp")));
    assert_true(span_is(v.claim.token, text_of(vector, "session_token")));
    text_init(&t, canonical, sizeof(canonical));
    assert_int_equal(sign_claim_verify(&v.claim, &head, &wrong, NULL, &t), ERR_DENIED);
    assert_string_equal(canonical, text_of(vector, "canonical_request"));
    if (sign_claim_verify(&v.claim, &head, &s, NULL, NULL) != OK)
        fail_msg("%s: refused", text_of(vector, "name"));
}

static void accept_all(json_t *vectors, unsigned want)
{
    size_t i;
    json_t *vector;
    assert_int_equal(json_array_size(vectors), want);
    json_array_foreach(vectors, i, vector)
        accept_vector(vector);
}

static void test_own_vectors(void **state)
{
    (void)state;
    json_t *file = json_load_file(VECTORS "/s3-own-vectors.json", 0, NULL);
    assert_non_null(file);
    accept_all(json_object_get(file, "vectors"), 51);
    json_decref(file);
}

/* Of the chunked uploads the seed signature, which is the request's. */
static void test_documentation_vectors(void **state)
{
    (void)state;
    json_t *file = json_load_file(VECTORS "/s3-doc-vectors.json", 0, NULL);
    assert_non_null(file);
    accept_all(file, 7);
    json_decref(file);
}

/* Two folders hold an unsigned request only. */
static unsigned recognise_v4a(const char *name, const char *form, const char *code)
{
    static struct vector_request r;
    char path[400];
    snprintf(path, sizeof(path), VECTORS "/aws-c-auth-v4a/%s/%s-signed-request.txt", name, form);
    if (!vector_file(path, r.bytes))
        return 0;
    assert_true(vector_read(&r));
    struct verdict v = read_claim(&r.head);
    assert_int_equal(v.claim.form, SIGN_V4A);
    assert_int_equal(v.e, ERR_UNSUPPORTED);
    assert_string_equal(v.code, code);
    struct secret s = secret_of("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
    assert_int_equal(sign_claim_verify(&v.claim, &r.head, &s, NULL, NULL), ERR_DENIED);
    return 1;
}

static void test_every_v4a_vector_is_recognised(void **state)
{
    (void)state;
    unsigned count = 0;
    DIR *d = opendir(VECTORS "/aws-c-auth-v4a");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        count += recognise_v4a(e->d_name, "header", "InvalidArgument");
        count += recognise_v4a(e->d_name, "query", "AuthorizationQueryParametersError");
    }
    closedir(d);
    assert_int_equal(count, 2 * 38);
}

/* ---- forms and refusals, row by row ---- */
#define DATE "X-Amz-Date: 20260102T030405Z\n"
#define HASH "X-Amz-Content-SHA256: UNSIGNED-PAYLOAD\n"
#define CREDENTIAL "Credential=AK/20260102/us-east-1/s3/aws4_request"
#define LIST "SignedHeaders=host;x-amz-content-sha256;x-amz-date"
#define SIGNATURE "Signature=e434350b2916f125d9aafe8ed76d768668228760da7c1c31a5e597b718c0921e"
#define AUTH(text) "Authorization: AWS4-HMAC-SHA256 " text "\n"
#define GOOD AUTH(CREDENTIAL ", " LIST ", " SIGNATURE)
#define Q_CREDENTIAL "X-Amz-Credential=AK%2F20260102%2Fus-east-1%2Fs3%2Faws4_request"
#define Q(credential, date, expires)                                                               \
    "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&" credential "&X-Amz-Date=" date                        \
    "&X-Amz-Expires=" expires "&X-Amz-SignedHeaders=host&X-Amz-Signature=00"
#define Q_GOOD Q(Q_CREDENTIAL, "20260102T030405Z", "60")

struct row {
    const char *target, *fields;     /* fields behind Host, one a line */
    enum sign_form form;
    enum err e;
    const char *code;                /* "" when OK */
};

static void parse_row(const struct row *row)
{
    static struct vector_request r;
    snprintf(r.bytes, sizeof(r.bytes), "GET %s HTTP/1.1\nHost: h\n%s\n", row->target, row->fields);
    assert_true(vector_read(&r));
    head = r.head;
}

static void check_rows(const struct row *row, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        parse_row(&row[i]);
        struct verdict v = read_claim(&head);
        if (v.e != row[i].e || v.claim.form != row[i].form || strcmp(v.code, row[i].code) != 0)
            fail_msg("row %u (%s | %s): form %d, %s, \"%s\": %s", i, row[i].target, row[i].fields,
                     (int)v.claim.form, err_name(v.e), v.code, v.why);
        assert_true((v.e == OK) == (v.why[0] == '\0'));
    }
}

static void test_forms(void **state)
{
    (void)state;
    static const struct row row[] = {
        {"/b/k", "", SIGN_ANONYMOUS, OK, ""},
        {"/b/k?x-id=GetObject&versionId=Signature", DATE, SIGN_ANONYMOUS, OK, ""},
        {"/b/k", DATE HASH GOOD, SIGN_V4_HEADER, OK, ""},
        {Q_GOOD, "", SIGN_V4_QUERY, OK, ""},
        {"/b/k?X-Amz-Credential=x", "", SIGN_V4_QUERY, ERR_SYNTAX,
         "AuthorizationQueryParametersError"},
        {"/b/k?X-Amz-Expires=1", "", SIGN_V4_QUERY, ERR_SYNTAX,
         "AuthorizationQueryParametersError"},
        {"/b/k?X-Amz-Signature", "", SIGN_V4_QUERY, ERR_SYNTAX,
         "AuthorizationQueryParametersError"},
        {"/b/k?X%2DAmz-Signatur%65=1", "", SIGN_V4_QUERY, ERR_SYNTAX,
         "AuthorizationQueryParametersError"},
        {"/b/k?X-Amz-SignedHeaders=host", "", SIGN_V4_QUERY, ERR_SYNTAX,
         "AuthorizationQueryParametersError"},
        {"/b/k?AWSAccessKeyId=A&Signature=b&Expires=1", "", SIGN_V2_QUERY, ERR_UNSUPPORTED,
         "InvalidRequest"},
        {"/b/k?Expires=1", "", SIGN_V2_QUERY, ERR_UNSUPPORTED, "InvalidRequest"},
        {"/b/k", "Authorization: AWS AK:c2ln\n", SIGN_V2_HEADER, ERR_UNSUPPORTED, "InvalidRequest"},
        {"/b/k", "Authorization: AWS\n", SIGN_V2_HEADER, ERR_UNSUPPORTED, "InvalidRequest"},
        {"/b/k", "Authorization: Bearer abc\n", SIGN_OTHER, ERR_UNSUPPORTED, "InvalidArgument"},
        {"/b/k", "Authorization:\n", SIGN_OTHER, ERR_UNSUPPORTED, "InvalidArgument"},
        {"/b/k", "Authorization: AWS4-HMAC-SHA512 x\n", SIGN_OTHER, ERR_UNSUPPORTED,
         "InvalidArgument"},
        {"/b/k", "Authorization: aws4-hmac-sha256 x\n", SIGN_OTHER, ERR_UNSUPPORTED,
         "InvalidArgument"},
        {"/b/k", "Authorization: AWS4-ECDSA-P256-SHA256 x\n", SIGN_V4A, ERR_UNSUPPORTED,
         "InvalidArgument"},
    };
    check_rows(row, ARRAY_COUNT(row));
}

static void test_two_mechanisms(void **state)
{
    (void)state;
    static const struct row row[] = {
        {Q_GOOD, DATE HASH GOOD, SIGN_TWICE, ERR_SYNTAX, "InvalidArgument"},
        {"/b/k?Signature=1", DATE HASH GOOD, SIGN_TWICE, ERR_SYNTAX, "InvalidArgument"},
        {"/b/k?X-Amz-Expires=1", "Authorization: Bearer x\n", SIGN_TWICE, ERR_SYNTAX,
         "InvalidArgument"},
        {"/b/k", DATE HASH GOOD GOOD, SIGN_TWICE, ERR_SYNTAX, "InvalidArgument"},
    };
    check_rows(row, ARRAY_COUNT(row));
}

static void test_dates_of_the_header_form(void **state)
{
    (void)state;
#define AT(date) {"/b/k", date HASH GOOD, SIGN_V4_HEADER, ERR_DENIED, "AccessDenied"}
    static const struct row row[] = {
        AT(""),
        AT("X-Amz-Date: \n"),
        AT("X-Amz-Date: 20260102T030405\n"),
        AT("X-Amz-Date: 2026-01-02T03:04:05Z\n"),
        AT("X-Amz-Date: 20261302T030405Z\n"),
        AT("X-Amz-Date: 20260100T030405Z\n"),
        AT("X-Amz-Date: 20260229T030405Z\n"),
        AT("X-Amz-Date: 20260102T240405Z\n"),
        AT("X-Amz-Date: 20260102T036005Z\n"),
        AT("X-Amz-Date: 20260102T030460Z\n"),
        AT("X-Amz-Date: 19691231T235959Z\n"),
        AT("X-Amz-Date: 20260102t030405Z\n"),
        AT("X-Amz-Date: 2026 102T030405Z\n"),
        AT("X-Amz-Date: Fri, 02 Jan 2026 03:04:05 GMT\n"),
        AT("X-Amz-Date: x\nDate: Fri, 02 Jan 2026 03:04:05 GMT\n"),
        AT("Date: yesterday\n"),
        AT("Date: Fri, 02 Jan 2026 03:04:05 GMT\nDate: Fri, 02 Jan 2026 03:04:05 GMT\n"),
        AT(DATE DATE),
        {"/b/k", "Date: Fri, 02 Jan 2026 03:04:05 GMT\n" HASH GOOD, SIGN_V4_HEADER, OK, ""},
        {"/b/k", "Date: 20260102T030405Z\n" HASH GOOD, SIGN_V4_HEADER, OK, ""},
    };
#undef AT
    check_rows(row, ARRAY_COUNT(row));
    assert_true(read_claim(&head).claim.time_s == 1767323045);
    parse_row(&row[ARRAY_COUNT(row) - 2]);
    struct verdict v = read_claim(&head);
    assert_true(span_is(v.claim.amz_date, "20260102T030405Z"));
    assert_true(v.claim.time_s == 1767323045);
}

static void test_pieces_of_the_header_form(void **state)
{
    (void)state;
#define BAD(auth, code)                                                                            \
    {"/b/k", DATE HASH "Authorization: AWS4-HMAC-SHA256" auth "\n", SIGN_V4_HEADER, ERR_SYNTAX,    \
     code}
#define MALFORMED(auth) BAD(" " auth, "AuthorizationHeaderMalformed")
#define LONG_REGION "r234567890123456789012345678901234567890123456789012345678901234"
#define SCOPE(text) MALFORMED("Credential=" text ", " LIST ", " SIGNATURE)
    static const struct row row[] = {
        BAD("", "InvalidArgument"),
        BAD("  " CREDENTIAL ", " LIST ", " SIGNATURE, "InvalidArgument"),
        MALFORMED("x"),
        MALFORMED(CREDENTIAL),
        MALFORMED(CREDENTIAL ", " LIST),
        MALFORMED(LIST ", " SIGNATURE),
        MALFORMED(CREDENTIAL ", " SIGNATURE),
        MALFORMED(CREDENTIAL ", " LIST ", Signature="),
        MALFORMED(CREDENTIAL ", SignedHeaders=, " SIGNATURE),
        MALFORMED(CREDENTIAL ", " LIST ", " SIGNATURE ", " SIGNATURE),
        MALFORMED(CREDENTIAL ", " LIST ", " SIGNATURE ", Extra=1"),
        MALFORMED(CREDENTIAL ",, " LIST ", " SIGNATURE),
        MALFORMED(CREDENTIAL " " LIST " " SIGNATURE),
        SCOPE("AK"),
        SCOPE("20260102/us-east-1/s3/aws4_request"),
        SCOPE("/20260102/us-east-1/s3/aws4_request"),
        SCOPE("AK/20260102/us-east-1/s3/aws4_request/"),
        SCOPE("AK/20260102/us-east-1/s3/aws5_request"),
        SCOPE("AK/20260102/us-east-1/ec2/aws4_request"),
        SCOPE("AK/2026010/us-east-1/s3/aws4_request"),
        SCOPE("AK/2026010x/us-east-1/s3/aws4_request"),
        SCOPE("AK/20260103/us-east-1/s3/aws4_request"),
        SCOPE("AK/20260102/" LONG_REGION "/s3/aws4_request"),
        MALFORMED(CREDENTIAL ", SignedHeaders=Host, " SIGNATURE),
        MALFORMED(CREDENTIAL ", SignedHeaders=host;;range, " SIGNATURE),
        MALFORMED(CREDENTIAL ", SignedHeaders=host;a b, " SIGNATURE),
    };
#undef SCOPE
#undef MALFORMED
#undef BAD
    check_rows(row, ARRAY_COUNT(row));
}

static void test_shapes_that_clients_send(void **state)
{
    (void)state;
    static const char *const auth[] = {
        CREDENTIAL "," LIST "," SIGNATURE,                /* s3cmd */
        SIGNATURE ",  " LIST ",\t" CREDENTIAL,
        "Credential=a/b//c/20260102/eu/s3/aws4_request, " LIST ", " SIGNATURE,
        "Credential=AK/20260102//s3/aws4_request, " LIST ", " SIGNATURE,
        CREDENTIAL ", " LIST ", Signature=short",         /* wrong, but for the comparison to say */
        CREDENTIAL ", " LIST ";range, " SIGNATURE,
    };
    for (unsigned i = 0; i < ARRAY_COUNT(auth); i++) {
        char fields[800];
        snprintf(fields, sizeof(fields), DATE HASH "Authorization: AWS4-HMAC-SHA256 %s\n", auth[i]);
        struct row row = {"/b/k", fields, SIGN_V4_HEADER, OK, ""};
        check_rows(&row, 1);
        struct verdict v = read_claim(&head);
        if (i == 2) {
            assert_true(span_is(v.claim.access_key, "a/b//c"));
            assert_true(span_is(v.claim.scope, "20260102/eu/s3/aws4_request"));
        }
        struct secret s = secret_of("any");
        assert_int_equal(sign_claim_verify(&v.claim, &head, &s, NULL, NULL), ERR_DENIED);
    }
}

static void test_payload_hash(void **state)
{
    (void)state;
#define SHA(text, e, code)                                                                         \
    {"/b/k", DATE "X-Amz-Content-SHA256: " text "\n" GOOD, SIGN_V4_HEADER, e, code}
    static const struct row row[] = {
        {"/b/k", DATE GOOD, SIGN_V4_HEADER, ERR_SYNTAX, "InvalidRequest"},
        {"/b/k", DATE HASH HASH GOOD, SIGN_V4_HEADER, ERR_SYNTAX, "InvalidArgument"},
        SHA("", ERR_SYNTAX, "InvalidArgument"),
        SHA("e3b0", ERR_SYNTAX, "InvalidArgument"),
        SHA("unsigned-payload", ERR_SYNTAX, "InvalidArgument"),
        SHA("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-X", ERR_SYNTAX, "InvalidArgument"),
        SHA("g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", ERR_SYNTAX,
            "InvalidArgument"),
        SHA("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", ERR_UNSUPPORTED, "NotImplemented"),
        SHA("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER", ERR_UNSUPPORTED, "NotImplemented"),
        SHA("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", OK, ""),
        SHA("STREAMING-UNSIGNED-PAYLOAD-TRAILER", OK, ""),
        SHA("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", OK, ""),
        SHA("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", OK, ""),
        {"/b/k", DATE HASH GOOD "X-Amz-Security-Token: a\nX-Amz-Security-Token: b\n",
         SIGN_V4_HEADER, ERR_SYNTAX, "InvalidArgument"},
    };
#undef SHA
    check_rows(row, ARRAY_COUNT(row));
    parse_row(&row[2]);
    assert_string_equal(read_claim(&head).claim.argument, "x-amz-content-sha256");
    parse_row(&row[ARRAY_COUNT(row) - 1]);
    assert_string_equal(read_claim(&head).claim.argument, "x-amz-security-token");
}

static void test_unsigned_headers(void **state)
{
    (void)state;
#define LISTED(list) AUTH(CREDENTIAL ", SignedHeaders=" list ", " SIGNATURE)
    static const struct row row[] = {
        {"/b/k", DATE HASH LISTED("x-amz-content-sha256;x-amz-date"), SIGN_V4_HEADER, ERR_DENIED,
         "AccessDenied"},
        {"/b/k", DATE HASH LISTED("host;x-amz-content-sha256"), SIGN_V4_HEADER, ERR_DENIED,
         "AccessDenied"},
        {"/b/k", DATE HASH LISTED("host;x-amz-date"), SIGN_V4_HEADER, ERR_DENIED, "AccessDenied"},
        {"/b/k", DATE HASH GOOD "x-AMZ-acl: public-read\n", SIGN_V4_HEADER, ERR_DENIED,
         "AccessDenied"},
        {Q_GOOD, "x-amz-copy-source: /a/b\n", SIGN_V4_QUERY, ERR_DENIED, "AccessDenied"},
        {Q_GOOD, "x-amz-content-sha256: UNSIGNED-PAYLOAD\n", SIGN_V4_QUERY, ERR_DENIED,
         "AccessDenied"},
        {"/b/k", DATE HASH GOOD "x-amzn-trace-id: 1\nRange: bytes=0-1\nUser-Agent: a\n",
         SIGN_V4_HEADER, OK, ""},
        {Q_GOOD, "x-goog-acl: public-read\n", SIGN_V4_QUERY, ERR_DENIED, "AccessDenied"},
        {"/b/k", DATE HASH LISTED("host;x-amz-content-sha256;x-amz-date;x-minio-extract")
         "X-Minio-Extract: true\n", SIGN_V4_HEADER, OK, ""},
    };
#undef LISTED
    check_rows(row, ARRAY_COUNT(row));
    parse_row(&row[0]);
    assert_true(span_is(read_claim(&head).claim.not_signed, "host"));
    parse_row(&row[3]);
    struct verdict v = read_claim(&head);
    assert_true(span_is(v.claim.not_signed, "x-AMZ-acl"));
    assert_string_equal(v.why, "There were headers present in the request which were not signed");
}

static void test_presigned(void **state)
{
    (void)state;
    static const char bad[] = "AuthorizationQueryParametersError";
#define PRE(target, e, code) {target, "", SIGN_V4_QUERY, e, code}
    const struct row row[] = {
        PRE(Q(Q_CREDENTIAL, "20260102T030405", "60"), ERR_SYNTAX, bad),
        PRE(Q(Q_CREDENTIAL, "", "60"), ERR_SYNTAX, bad),
        PRE(Q(Q_CREDENTIAL, "20260103T030405Z", "60"), ERR_SYNTAX, bad),
        PRE(Q(Q_CREDENTIAL, "20260102T030405Z", ""), ERR_SYNTAX, bad),
        PRE(Q(Q_CREDENTIAL, "20260102T030405Z", "-7"), ERR_SYNTAX, bad),
        PRE(Q(Q_CREDENTIAL, "20260102T030405Z", "6x"), ERR_SYNTAX, bad),
        PRE(Q(Q_CREDENTIAL, "20260102T030405Z", "604801"), ERR_SYNTAX, bad),
        PRE(Q(Q_CREDENTIAL, "20260102T030405Z", "99999999999999999999999"), ERR_SYNTAX, bad),
        PRE(Q(Q_CREDENTIAL, "20260102T030405Z", "0"), ERR_DENIED, "AccessDenied"),
        PRE(Q(Q_CREDENTIAL, "20260102T030405Z", "604800"), OK, ""),
        PRE(Q(Q_CREDENTIAL, "20260102T030405Z", "1"), OK, ""),
        PRE(Q("X-Amz-Credential=AK/20260102/us-east-1/s3/aws4_request", "20260102T030405Z", "1"),
            OK, ""),
        PRE(Q("X-Amz-Credential=AK", "20260102T030405Z", "1"), ERR_SYNTAX, bad),
        PRE(Q("X-Amz-Credential=AK%2", "20260102T030405Z", "1"), ERR_SYNTAX, bad),
        PRE(Q_GOOD "&X-Amz-Signature=00", ERR_SYNTAX, bad),
        PRE(Q_GOOD "&X-Amz-Expire%73=5", ERR_SYNTAX, bad),
        PRE(Q_GOOD "&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD", OK, ""),
        PRE(Q_GOOD "&X-Amz-Content-Sha256=abc", ERR_SYNTAX, "InvalidArgument"),
        PRE("/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA1&" Q_CREDENTIAL "&X-Amz-Date=20260102T030405Z"
            "&X-Amz-Expires=1&X-Amz-SignedHeaders=host&X-Amz-Signature=00", ERR_SYNTAX, bad),
        PRE("/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&" Q_CREDENTIAL "&X-Amz-Date=20260102T030405Z"
            "&X-Amz-Expires=1&X-Amz-SignedHeaders=range&X-Amz-Signature=00", ERR_DENIED,
            "AccessDenied"),
    };
#undef PRE
    check_rows(row, ARRAY_COUNT(row));
    parse_row(&row[9]);
    struct verdict v = read_claim(&head);
    assert_true(v.claim.expires_s == 604800);
    assert_true(span_is(v.claim.payload_hash, "UNSIGNED-PAYLOAD"));
}

/* Said in the query, in a field, in both: two who differ, or a field given twice, say nothing. */
static void test_payload_hash_of_presigned_urls(void **state)
{
    (void)state;
#define PRE(hash)                                                                                  \
    "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&" Q_CREDENTIAL "&X-Amz-Date=20260102T030405Z"           \
    "&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-amz-content-sha256&X-Amz-Signature=00" hash
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    static const struct row row[] = {
        {PRE(""), HASH, SIGN_V4_QUERY, OK, ""},
        {PRE(""), "X-Amz-Content-SHA256: " EMPTY "\n", SIGN_V4_QUERY, OK, ""},
        {PRE("&X-Amz-Content-Sha256=" EMPTY), "X-Amz-Content-SHA256: " EMPTY "\n", SIGN_V4_QUERY,
         OK, ""},
        {PRE("&X-Amz-Content-Sha256=" EMPTY), HASH, SIGN_V4_QUERY, ERR_SYNTAX, "InvalidArgument"},
        {PRE(""), HASH HASH, SIGN_V4_QUERY, ERR_SYNTAX, "InvalidArgument"},
        {PRE(""), "X-Amz-Content-SHA256: e3b0\n", SIGN_V4_QUERY, ERR_SYNTAX, "InvalidArgument"},
    };
    check_rows(row, ARRAY_COUNT(row));
    parse_row(&row[1]);
    assert_true(span_is(read_claim(&head).claim.payload_hash, EMPTY));
    for (unsigned i = 3; i < ARRAY_COUNT(row); i++) {
        parse_row(&row[i]);
        assert_string_equal(read_claim(&head).claim.argument, "x-amz-content-sha256");
    }
#undef EMPTY
#undef PRE
}

static void test_query_of_129_pairs_is_refused(void **state)
{
    (void)state;
    char target[KIB];
    struct text t;
    text_init(&t, target, sizeof(target));
    text_adds(&t, Q_GOOD);
    for (unsigned i = 6; i < 128; i++)
        text_adds(&t, "&a");
    struct row row = {target, "", SIGN_V4_QUERY, OK, ""};
    check_rows(&row, 1);
    text_adds(&t, "&a");
    row = (struct row){target, "", SIGN_V4_QUERY, ERR_SYNTAX, "InvalidRequest"};
    check_rows(&row, 1);
}

static void test_arena_at_its_limit(void **state)
{
    (void)state;
    struct arena none;
    struct verdict v = {0};
    arena_init(&none, NULL, 0, 0);
    parse_row(&(struct row){Q_GOOD, "", SIGN_V4_QUERY, OK, ""});
    assert_int_equal(sign_claim_read(&head, &none, &v.claim, &v.code, &v.why), ERR_MEMORY);
    assert_string_equal(v.code, "SlowDown");
    /* A Date field is rewritten as X-Amz-Date would be. */
    parse_row(&(struct row){"/b/k", "Date: Fri, 02 Jan 2026 03:04:05 GMT\n" HASH GOOD,
                            SIGN_V4_HEADER, OK, ""});
    v = (struct verdict){0};
    assert_int_equal(sign_claim_read(&head, &none, &v.claim, &v.code, &v.why), ERR_MEMORY);
    assert_string_equal(v.code, "SlowDown");
}

/* ---- what sign_v4 made is accepted; each changed byte is not ---- */
static uint64_t seed = 88172645463325252u;

static unsigned pick(unsigned below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 33) % below;
}

static void add_random(struct text *out, unsigned most, bool slashes)
{
    for (unsigned i = pick(most) + 1; i > 0; i--) {
        unsigned kind = pick(8);
        if (kind == 0)
            text_addf(out, "%%%02X", 1 + pick(255));
        else if (kind == 1 && slashes)
            text_addc(out, '/');
        else
            text_addc(out, "ABCxyz0189-._~"[pick(14)]);
    }
}

struct trial {
    char target[600], range[40], meta[100], date[17], authorization[600];
};

static void make_trial(struct trial *t, const struct secret *s, struct sign_key_cache *cache)
{
    struct text target, authorization, meta;
    struct sign_request r = {.method = span_of("GET"), .payload_hash = span_of("UNSIGNED-PAYLOAD")};
    struct sign_credentials cred = {span_of("AK/1"), span_of(""), s};
    text_init(&target, t->target, sizeof(t->target));
    text_adds(&target, "/b");
    add_random(&target, 30, true);
    for (unsigned i = pick(6); i > 0; i--) {
        text_adds(&target, span_find(text_span(&target), '?') == target.len ? "?" : "&");
        add_random(&target, 6, false);
        text_addc(&target, '=');
        add_random(&target, 12, false);
    }
    text_init(&meta, t->meta, sizeof(t->meta));
    add_random(&meta, 20, true);
    snprintf(t->range, sizeof(t->range), "bytes=%u-%u", 1 + pick(1000), 2000 + pick(100000));
    const struct http_field field[] = {
        {span_of("Host"), span_of("h:9000")}, {span_of("Range"), span_of(t->range)},
        {span_of("x-amz-meta-a"), span_of(t->meta)}, {span_of("User-Agent"), span_of("test")},
        {span_of("x-amz-content-sha256"), span_of("UNSIGNED-PAYLOAD")},
    };
    r.field = field;
    r.count = ARRAY_COUNT(field);
    uri_split(text_span(&target), &r.path, &r.query);
    text_init(&authorization, t->authorization, sizeof(t->authorization));
    assert_int_equal(sign_v4(&r, &cred, span_of("eu-west-1"), 1700000000 + pick(200000000), cache,
                             t->date, &authorization), OK);
}

static bool is_accepted(const struct trial *t, const char *more, const struct secret *s,
                        struct sign_key_cache *cache)
{
    size_t used;
    int len = snprintf(wire, sizeof(wire),
                       "GET %s HTTP/1.1\r\nHost: h:9000\r\nuser-agent: other\r\nRANGE:  %s \r\n"
                       "x-amz-meta-A: %s\r\nx-amz-date: %s\r\n"
                       "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\nAuthorization: %s\r\n%s\r\n",
                       t->target, t->range, t->meta, t->date, t->authorization, more);
    if (http_parse_request(wire, (size_t)len, &head, &used) != HTTP_OK)
        return false;
    struct verdict v = read_claim(&head);
    return v.e == OK && sign_claim_verify(&v.claim, &head, s, cache, NULL) == OK;
}

/* Changes one letter or digit to one that differs in more than case. */
static void change(char *text, size_t from, size_t to)
{
    size_t len = to - from, at = from + pick((unsigned)len);
    for (size_t i = 0; i < len; i++, at = at + 1 < to ? at + 1 : from) {
        char c = text[at];
        bool digit = c >= '0' && c <= '9', letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        if (!digit && !letter)
            continue;
        if (digit)
            text[at] = "0123456789"[((unsigned)(c - '0') + 1 + pick(9)) % 10];
        else
            text[at] = (c | 32) == 'c' ? 'D' : 'C';
        return;
    }
    text[from + len / 2] = 'Q';      /* nothing but marks there */
}

enum {
    CHANGE_PATH, CHANGE_QUERY, CHANGE_RANGE, CHANGE_META, CHANGE_DATE, CHANGE_SIGNATURE,
    CHANGE_REGION, CHANGE_COUNT
};

static void mutate(struct trial *t, unsigned kind)
{
    char *query = strchr(t->target, '?');
    size_t len = strlen(t->target), path_len = query ? (size_t)(query - t->target) : len;
    switch (kind) {
    case CHANGE_PATH:
        change(t->target, 1, path_len);
        break;
    case CHANGE_QUERY:
        if (query)
            change(t->target, path_len + 1, len);
        else
            memcpy(t->target + len, "?a", 3);
        break;
    case CHANGE_RANGE:
        change(t->range, 6, strlen(t->range));
        break;
    case CHANGE_META:
        change(t->meta, 0, strlen(t->meta));
        break;
    case CHANGE_DATE:
        change(t->date, 9, 15);
        break;
    case CHANGE_SIGNATURE:
        change(t->authorization, strlen(t->authorization) - 64, strlen(t->authorization));
        break;
    default:
        change(strstr(t->authorization, "eu-west-1"), 0, 2);
    }
}

static void test_signed_requests_and_their_mutations(void **state)
{
    (void)state;
    struct secret s = secret_of("s3cr3t/with+special=chars");
    struct secret other = secret_of("s3cr3t/with+special=charz");
    for (unsigned i = 0; i < 1000; i++) {
        struct sign_key_cache mine = {0}, theirs = {0};
        struct trial t, changed;
        make_trial(&t, &s, &mine);
        if (!is_accepted(&t, "", &s, &theirs))
            fail_msg("refused: %s", wire);
        assert_true(is_accepted(&t, "x-unsigned: 1\r\n", &s, &theirs));
        assert_false(is_accepted(&t, "", &other, NULL));
        assert_false(is_accepted(&t, "x-amz-acl: private\r\n", &s, &theirs));
        assert_false(is_accepted(&t, "Range: bytes=0-1\r\n", &s, &theirs));
        for (unsigned kind = 0; kind < CHANGE_COUNT; kind++) {
            changed = t;
            mutate(&changed, kind);
            if (is_accepted(&changed, "", &s, &theirs))
                fail_msg("accepted after change %u of %s: %s", kind, t.target, wire);
        }
    }
}

static void test_strangers_do_not_fill_the_key_cache(void **state)
{
    (void)state;
    struct secret s = secret_of("secret");
    struct sign_key_cache mine = {0}, cache = {0}, before;
    struct trial t, changed;
    make_trial(&t, &s, &mine);
    changed = t;
    mutate(&changed, CHANGE_REGION);
    assert_false(is_accepted(&changed, "", &s, &cache));
    assert_false(cache.filled);
    assert_true(is_accepted(&t, "", &s, &cache));
    assert_true(cache.filled);
    before = cache;
    assert_false(is_accepted(&changed, "", &s, &cache));
    assert_memory_equal(&before, &cache, sizeof(cache));
    cache.key.outer[3] ^= 1;         /* the cache is what is used */
    assert_false(is_accepted(&t, "", &s, &cache));
}

static void test_method_is_signed(void **state)
{
    (void)state;
    struct secret s = secret_of("secret");
    struct trial t;
    size_t used;
    make_trial(&t, &s, NULL);
    assert_true(is_accepted(&t, "", &s, NULL));
    memcpy(wire, "PUT", 3);
    assert_int_equal(http_parse_request(wire, strlen(wire), &head, &used), HTTP_OK);
    struct verdict v = read_claim(&head);
    assert_int_equal(v.e, OK);
    assert_int_equal(sign_claim_verify(&v.claim, &head, &s, NULL, NULL), ERR_DENIED);
}

static void test_verifying_allocates_nothing(void **state)
{
    (void)state;
    struct secret s = secret_of("secret");
    struct sign_key_cache cache = {0};
    struct trial t;
    make_trial(&t, &s, NULL);
    uint64_t before = allocations_made();
    assert_true(before > 0);         /* those of the set-up: it counts */
    assert_true(is_accepted(&t, "", &s, &cache)); /* makes the day key */
    assert_true(cache.filled);
    assert_true(is_accepted(&t, "", &s, &cache)); /* uses it */
    assert_int_equal(allocations_made(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_vectors),
        cmocka_unit_test(test_documentation_vectors),
        cmocka_unit_test(test_every_v4a_vector_is_recognised),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_two_mechanisms),
        cmocka_unit_test(test_dates_of_the_header_form),
        cmocka_unit_test(test_pieces_of_the_header_form),
        cmocka_unit_test(test_shapes_that_clients_send),
        cmocka_unit_test(test_payload_hash),
        cmocka_unit_test(test_unsigned_headers),
        cmocka_unit_test(test_presigned),
        cmocka_unit_test(test_payload_hash_of_presigned_urls),
        cmocka_unit_test(test_query_of_129_pairs_is_refused),
        cmocka_unit_test(test_arena_at_its_limit),
        cmocka_unit_test(test_signed_requests_and_their_mutations),
        cmocka_unit_test(test_strangers_do_not_fill_the_key_cache),
        cmocka_unit_test(test_method_is_signed),
        cmocka_unit_test(test_verifying_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, set_up_thread, end_thread);
}
