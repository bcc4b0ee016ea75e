/* Scopes, clocks, and what refusals say. Every operation by every form: test_auth_matrix.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/auth.c"

#include "tests/unit/auth_case.h"

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
        {"POST", "/train?delete", "", "ok"}, /* what its body names is asked for one by one */
        {"POST", "/nobodys?delete", "", "AccessDenied"},
        {"POST", "/other/k?restore", "", "AccessDenied"}, /* its body may name another bucket */
        {"PUT", "/other/copy", "x-amz-copy-source: train/imagenet/a+b\r\n", "AccessDenied"},
        {"PUT", "/other/copy", "x-amz-copy-source: train/imagenet/a%2Bb\r\n", "ok"},
        {"GET", "/", "", "ok"},
        {"GET", "/?x-id=ListDirectoryBuckets", "", "AccessDenied"},
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

/* What upstream does by a field that was not looked at. */
static void no_field_leads_out_of_a_scope(void **state)
{
    static const struct {
        const char *method, *target, *fields, *want;
    } row[] = {
        {"PUT", "/other/copy", /* upstream would copy one, and rights were asked for the other */
         "x-amz-copy-source: train/secret\r\nx-amz-rename-source: other/k\r\n", "InvalidArgument"},
        {"PUT", "/other/copy", "x-amz-copy-source: other/k\r\nx-amz-copy-source: train/secret\r\n",
         "InvalidArgument"},
        {"PUT", "/other/copy?x-amz-rename-source=other/k", "x-amz-copy-source: train/secret\r\n",
         "InvalidArgument"},
        {"PUT", "/other/copy", "x-cos-copy-source: train/secret\r\n", "AccessDenied"},
        {"PUT", "/train/imagenet/x.tar", /* MinIO unpacks it into the bucket */
         "x-amz-meta-snowball-auto-extract: true\r\n", "AccessDenied"},
        {"DELETE", "/train/imagenet/n01", "x-minio-force-delete: true\r\n", "AccessDenied"},
        {"PUT", "/train/imagenet/x.tar?compose", "", "AccessDenied"}, /* GCS: of any objects */
        {"PUT", "/train/imagenet/x.tar?tagging&compose", "", "AccessDenied"},
        {"PUT", "/train/imagenet/x.tar?partNumber=1&uploadId=u&%63ompose", "", "AccessDenied"},
        {"DELETE", "/train/imagenet/x.tar?future", "", "AccessDenied"},
        {"PUT", "/train/imagenet/x.tar?partNumber=1&uploadId=u&x-id=UploadPart", "", "ok"},
        {"PUT", "/train/imagenet/x.tar?tagging&versionId=1", "", "ok"},
        {"GET", "/train/imagenet/x.tar?future", "", "ok"},
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
        {"OPTIONS", "/b/k", "anonymous"},
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
    assert_non_null(strstr(error.message, "Request has expired"));
    assert_span(error.expires, "2026-11-20T09:16:22.000Z");
    assert_span(error.server_time, "2026-11-20T09:16:23.000Z");
    assert_int_equal(error.expires_s, 900);
    send_form(QUERY_EARLY, "GET", "/b/k", "");
    assert_string_equal(verdict(), "AccessDenied");
    assert_non_null(strstr(error.message, "Request is not valid yet"));
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

/* A part of a signed request replaced, as something on the way would. */
static void replace_in_request(const char *from, const char *to)
{
    static char rest[sizeof(request_bytes)];
    char *at = strstr(request.at, from);
    assert_non_null(at);
    snprintf(rest, sizeof(rest), "%s", at + strlen(from));
    request.len = (size_t)(at - request.at);
    text_addf(&request, "%s%s", to, rest);
    if (!parse())
        fail_msg("%s", request.at);
}

static void a_mismatch_tells_what_was_changed_on_the_way(void **state)
{
    static const struct {
        bool query;
        const char *method, *target, *fields, *from, *to, *why;
    } row[] = {
        {true, "GET", "/b/k", "", "GET ", "HEAD ", "made for the method GET, but this is a HEAD"},
        {true, "PUT", "/b/k", "", "PUT ", "GET ", "made for the method PUT, but this is a GET"},
        {false, "GET", "/b/k", "", "Host: cache.local:9000", "Host: cache.local",
         "made for the Host \"cache.local:9000\", but \"cache.local\" arrived"},
        {true, "GET", "/b/k", "", "Host: cache.local:9000",
         "Host: 10.0.0.7\r\nX-Forwarded-Host: cache.local:9000, x", "but \"10.0.0.7\" arrived"},
        {true, "GET", "/b/k", "", "Host: cache.local:9000",
         "Host: x\r\nX-Forwarded-Host: cache.local\r\nX-Forwarded-Port: 9000",
         "made for the Host \"cache.local:9000\""},
        {true, "GET", "/b/k", "Accept-Encoding: gzip\r\n", "Accept-Encoding: gzip",
         "Accept-Encoding: gzip, br", "covers Accept-Encoding"},
        {false, "GET", "/b/a%2520b", "", "/b/a%2520b", "/b/a%20b", "encoded twice"},
        {false, "GET", "/b?prefix=a%2Bb", "", "prefix=a%2Bb", "prefix=a+b", "Send it as %2B"},
        {false, "GET", "/b/a/b", "", "/b/a/b", "/b/a//b", "without empty segments"},
        {false, "GET", "/b/k", "", "/b/k", "/b/other", "Check the secret key"},
        {true, "GET", "/b/k", "User-Agent: a\r\n", "User-Agent: a", "User-Agent: b",
         "covers user-agent, which proxies"},
    };
    (void)state;
    open_gate(KEYS, false);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        if (row[i].query)
            sign_query(&rw, row[i].method, row[i].target, row[i].fields);
        else
            sign_header(&rw, row[i].method, row[i].target, row[i].fields);
        replace_in_request(row[i].from, row[i].to);
        const char *have = verdict();
        if (strcmp(have, "SignatureDoesNotMatch") != 0 || !strstr(error.message, row[i].why))
            fail_msg("%s -> %s: %s, %s", row[i].from, row[i].to, have, error.message);
        assert_no_canary();
    }
}

/* Each explanation costs many verifications, so strangers get a number of them a second. */
static void many_mismatches_are_not_looked_into(void **state)
{
    (void)state;
    open_gate(KEYS, false);
    sign_query(&rw, "GET", "/b/k", "");
    replace_in_request("GET ", "HEAD ");
    for (unsigned i = 0; i < S3_EXPLAINED_MAX; i++) {
        assert_string_equal(verdict(), "SignatureDoesNotMatch");
        assert_non_null(strstr(error.message, "made for the method GET"));
    }
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    assert_non_null(strstr(error.message, "Check the secret key"));
    who.now_s++;
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    assert_non_null(strstr(error.message, "made for the method GET"));
}

static void a_url_for_the_store_itself_is_recognised(void **state)
{
    static const char *const target[][3] = {
        {"/b/k", "s3.example.com", "/b/k"},
        {"/k", "b.s3.example.com", "/b/k"},
    };
    char host[100], was[100], is[100];
    (void)state;
    open_gate(KEYS, false);
    for (unsigned i = 0; i < ARRAY_COUNT(target); i++) {
        snprintf(host, sizeof(host), "Host: %s", target[i][1]);
        snprintf(was, sizeof(was), "GET %s?", target[i][0]);
        snprintf(is, sizeof(is), "GET %s?", target[i][2]);
        host_of_client = target[i][1];
        sign_query(&rw, "GET", target[i][0], "");
        host_of_client = "cache.local:9000";
        replace_in_request(host, "Host: cache.local:9000");
        replace_in_request(was, is);
        assert_string_equal(verdict(), "SignatureDoesNotMatch");
        snprintf(was, sizeof(was), "made for the Host \"%s\"", target[i][1]);
        if (!strstr(error.message, was))
            fail_msg("%s", error.message);
    }
}

static void refusals_of_version_2_tell_what_to_do(void **state)
{
    (void)state;
    open_gate(KEYS, false);
    send_form(V2_RW, "GET", "/b/k", "");
    assert_string_equal(verdict(), "InvalidRequest");
    assert_non_null(strstr(error.message, "signature_version='s3v4'"));
    assert_non_null(strstr(error.message, "auth.sigv2"));
    open_gate(KEYS_V2, false);
    send_form(V2_QUERY_WRONG, "GET", "/b/k?versionId=1", "");
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    assert_span(error.string_to_sign, "GET\n\n\n1795167083\n/b/k?versionId=1");
    assert_null(error.canonical.at);
    send_form(V2_QUERY_RW, "GET", "/b/k", "");
    replace_in_request("GET ", "HEAD ");
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    assert_non_null(strstr(error.message, "made for the method GET"));
}

/* Version 2 signs the bucket of a virtual host as part of the path. */
static void version_2_covers_the_bucket_of_the_host(void **state)
{
    (void)state;
    open_gate(KEYS_V2, false);
    host_of_client = "b.cache.local";
    v2_bucket = "/b";
    sign_v2_header(&rw, "GET", "/k", "");
    domain = "cache.local";
    assert_string_equal(verdict(), "ok");
    assert_span(ask.bucket, "b");
    replace_in_request("Host: b.", "Host: c.");
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    domain = v2_bucket = "";
    host_of_client = "cache.local:9000";
}

static void rights_of_now_are_asked_for(void **state)
{
    static struct conf_mistakes mistakes;
    struct keys *other;
    (void)state;
    open_gate(KEYS, false);
    send_form(DIR_RW, "POST", "/bucket?delete", "");
    assert_string_equal(verdict(), "ok");
    assert_true(s3_may_change(&gate, &who, span_of("bucket"), span_of("dir/a")));
    assert_false(s3_may_change(&gate, &who, span_of("bucket"), span_of("dirt")));
    assert_false(s3_may_change(&gate, &who, span_of("other"), span_of("dir/a")));
    assert_true(s3_may_see(&gate, &who, span_of("bucket")));
    assert_false(s3_may_see(&gate, &who, span_of("other")));
    assert_int_equal(keys_parse(span_of("AKDIR x ro bucket/dir/"), "keys", &other, &mistakes), OK);
    s3_gate_open(&gate, other, span_of(""), NULL, 900);
    assert_false(s3_may_change(&gate, &who, span_of("bucket"), span_of("dir/a")));
    keys_give(other);
    assert_int_equal(keys_parse(span_of("AKX x rw\n"), "keys", &other, &mistakes), OK);
    s3_gate_open(&gate, other, span_of(""), NULL, 900);
    assert_false(s3_may_see(&gate, &who, span_of("bucket")));
    open_gate(NO_KEYS, false);       /* the keys_file is gone, and the key was not upstream's */
    assert_false(s3_may_change(&gate, &who, span_of("bucket"), span_of("dir/a")));
    assert_false(s3_may_see(&gate, &who, span_of("bucket")));
    keys_give(other);
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

/* So does a customer's key that is signed, in a field or as a parameter. */
static void a_mismatch_with_a_customers_key_shows_no_key(void **state)
{
    static const char name[] = "x-amz-server-side-encryption-customer-key";
    struct client c = {"AKRW", "wrong", NOW_S, 900, NULL, NULL};
    char field[100], target[100];
    (void)state;
    open_gate(KEYS, false);
    snprintf(field, sizeof(field), "%s: canary-key\r\n", name);
    sign_header(&c, "GET", "/b/k", field);
    assert_string_equal(verdict(), "SignatureDoesNotMatch");
    assert_null(error.canonical.at);
    assert_no_canary();
    snprintf(target, sizeof(target), "/b/k?%s=canary-key", name);
    sign_query(&c, "GET", target, "");
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

/* Whoever holds a URL must not add what some store takes for a part of the request; of a signed
 * head the fields that act count, as proxies have others of their own. */
static void what_other_stores_read_is_signed_or_refused(void **state)
{
    static const char *const act[] = {
        "x-minio-force-delete: true", "X-Minio-Extract: true", "x-goog-copy-source: b/k",
        "x-oss-copy-source: /b/k", "X-Cos-Copy-Source: b/k", "x-obs-copy-source: b/k",
        "x-ms-copy-source: b/k",
    };
    static const char *const foreign[] = {
        "x-goog-acl: public-read", "x-oss-object-acl: public-read", "x-cos-acl: public-read",
        "x-obs-acl: public-read", "x-tos-acl: public-read", "X-Rgw-Meta-a: b", "x-dho-meta-a: b",
        "x-object-meta-a: b", "x-container-meta-a: b", "x-account-meta-a: b",
    };
    static const char *const plain[] = {
        "x-forwarded-for: 10.0.0.1", "x-request-id: r", "x-goog: a", "copy-source: a",
        "x-headpond-hint: once", "x-amzn-trace-id: t",
    };
    static const enum signing by[] = {BY_HEADER, BY_QUERY, BY_V2_HEADER, BY_V2_QUERY};
    enum { ACT = ARRAY_COUNT(act), FOREIGN = ACT + ARRAY_COUNT(foreign),
           ALL = FOREIGN + ARRAY_COUNT(plain) };
    (void)state;
    open_gate(KEYS, false);
    gate.sigv2 = true;
    for (unsigned i = 0; i < ALL * ARRAY_COUNT(by); i++) {
        unsigned at = i / ARRAY_COUNT(by), form = by[i % ARRAY_COUNT(by)];
        bool url = form == BY_QUERY || form == BY_V2_QUERY;
        bool refused = at < ACT || (at < FOREIGN && url);
        char field[100];
        snprintf(field, sizeof(field), "%s\r\n", at < ACT       ? act[at]
                                                : at < FOREIGN ? foreign[at - ACT]
                                                               : plain[at - FOREIGN]);
        sign(form, &rw, "PUT", "/b/k", "");
        add_late(&(struct form_row){.fields = field});
        const char *have = verdict();
        if (strcmp(have, refused ? "AccessDenied" : "ok") != 0)
            fail_msg("form %u, %s: %s", form, field, have);
        if (refused)
            assert_true(span_starts(span_of(field), error.headers_not_signed) &&
                        error.headers_not_signed.len > 0);
    }
    sign_header(&rw, "PUT", "/b/k", "x-minio-force-delete: true\r\nx-oss-acl: a\r\n");
    assert_string_equal(verdict(), "ok");
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
        cmocka_unit_test(scopes),
        cmocka_unit_test(no_field_leads_out_of_a_scope),
        cmocka_unit_test(anonymous_limits),
        cmocka_unit_test(clocks),
        cmocka_unit_test(refusals_of_the_clock_show_the_times),
        cmocka_unit_test(a_mismatch_shows_what_was_signed),
        cmocka_unit_test(a_mismatch_tells_what_was_changed_on_the_way),
        cmocka_unit_test(many_mismatches_are_not_looked_into),
        cmocka_unit_test(a_url_for_the_store_itself_is_recognised),
        cmocka_unit_test(refusals_of_version_2_tell_what_to_do),
        cmocka_unit_test(version_2_covers_the_bucket_of_the_host),
        cmocka_unit_test(rights_of_now_are_asked_for),
        cmocka_unit_test(a_mismatch_with_a_token_shows_no_token),
        cmocka_unit_test(a_mismatch_with_a_customers_key_shows_no_key),
        cmocka_unit_test(refusals_name_what_to_change),
        cmocka_unit_test(what_other_stores_read_is_signed_or_refused),
        cmocka_unit_test(an_old_secret_is_forgotten_with_its_gate),
        cmocka_unit_test(an_empty_upstream_key_matches_nobody),
        cmocka_unit_test(a_full_arena_is_a_slow_down),
        cmocka_unit_test(a_signed_hit_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
