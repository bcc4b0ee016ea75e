/* What a client asks: every operation of the table, addresses, query keys, conditions, ranges. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/s3/request.c"
#include "tests/unit/s3_rows.h"

enum { NOW_S = 1795166183, MODIFIED_S = 1795000000 };

static char request_bytes[64 * KIB], arena_bytes[64 * KIB];
static struct http_head head;
static struct arena arena;
static struct s3_ask ask;
static struct s3_error error;

/* host NULL: cache.local:9000. fields: "a: b\r\n"*. */
static void parse(const char *method, const char *target, const char *host, const char *fields)
{
    size_t used;
    int len = snprintf(request_bytes, sizeof(request_bytes), "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n",
                       method, target, host ? host : "cache.local:9000", fields ? fields : "");
    assert_true(len > 0 && len < (int)sizeof(request_bytes));
    assert_int_equal(http_parse_request(request_bytes, (size_t)len, &head, &used), HTTP_OK);
}

static enum err ask_for(const char *method, const char *target, const char *host,
                        const char *domain, const char *fields)
{
    parse(method, target, host, fields);
    arena_reset(&arena);
    memset(&error, 0, sizeof(error));
    return s3_ask_read(&head, domain, &arena, &ask, &error);
}

static enum err get(const char *target, const char *fields)
{
    return ask_for("GET", target, NULL, "", fields);
}

static void assert_span(struct span have, const char *want)
{
    if (!span_is(have, want))
        fail_msg("have \"%.*s\", want \"%s\"", (int)have.len, have.at ? have.at : "", want);
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 0);
    return 0;
}

/* ---- operations ---- */
static void every_row_is_found_by_its_request(void **state)
{
    char target[200], fields[200];
    (void)state;
    for (unsigned i = 0; i < S3_OPERATION_COUNT; i++) {
        const struct s3_operation_row *row = &s3_operation_table[i];
        if (i == UnknownRead || i == UnknownWrite)
            continue;
        for (int equals = 0; equals < 2; equals++) {
            struct text t, f;
            text_init(&t, target, sizeof(target));
            text_init(&f, fields, sizeof(fields));
            write_request(row, equals, &t, &f);
            enum err e = ask_for(http_method_text(row->method), target, NULL, "", fields);
            if (e != OK || ask.op != shown_as((enum s3_operation)i))
                fail_msg("%s %s: %s, %s", http_method_text(row->method), target,
                         e == OK ? s3_operation_table[ask.op].name : error.code, row->name);
        }
    }
}

/* The bucket in Host, in any case and with a port: the same operation of the same object. */
static void every_row_is_found_in_a_virtual_host(void **state)
{
    static const char *const hosts[] = {"bucket.cache.local", "bucket.cache.local:9000",
                                        "bucket.CACHE.Local:80", "bu.ck.et.cache.local",
                                        "b-u--c.cache.local", "192.168.0.1.cache.local"};
    char path[200], target[200], fields[200];
    (void)state;
    for (unsigned i = 0; i < S3_OPERATION_COUNT * ARRAY_COUNT(hosts); i++) {
        enum s3_operation op = i / ARRAY_COUNT(hosts);
        const struct s3_operation_row *row = &s3_operation_table[op];
        const char *host = hosts[i % ARRAY_COUNT(hosts)];
        struct text t, f;
        if (row->level == S3_SERVICE || op == UnknownRead || op == UnknownWrite)
            continue;
        text_init(&t, path, sizeof(path));
        text_init(&f, fields, sizeof(fields));
        write_request(row, false, &t, &f);
        const char *rest = path + strlen("/bucket");
        snprintf(target, sizeof(target), "%s%s", *rest == '/' ? "" : "/", rest);
        enum err e = ask_for(http_method_text(row->method), target, host, "cache.local", fields);
        if (e != OK || ask.op != shown_as(op))
            fail_msg("%s %s at %s: %s, not %s", http_method_text(row->method), target, host,
                     e == OK ? s3_operation_table[ask.op].name : error.code, row->name);
        assert_true(ask.virtual_host && ask.bucket.len == strcspn(host, ":") - 12);
        assert_true(memcmp(ask.bucket.at, host, ask.bucket.len) == 0);
        assert_span(ask.key, row->level == S3_OBJECT ? "dir/key" : "");
    }
}

static void paths_of_ours_are_keys_in_a_virtual_host(void **state)
{
    (void)state;
    assert_int_equal(ask_for("DELETE", "/-/plans/p7", "b.x.org", "x.org", ""), OK);
    assert_int_equal(ask.op, DeleteObject);
    assert_int_equal(ask_for("POST", "/-/plans", "b.x.org", "x.org", ""), ERR_SYNTAX);
    assert_string_equal(error.code, "MethodNotAllowed");
}

static void the_table_has_the_model_and_ours(void **state)
{
    unsigned count[S3_WRITE_KEYS + 1] = {0};
    (void)state;
    assert_int_equal(S3_OPERATION_COUNT, 116 + 13);
    for (unsigned i = 0; i < S3_OPERATION_COUNT; i++) {
        const struct s3_operation_row *row = &s3_operation_table[i];
        assert_true(row->name && row->text && strlen(row->text) > 8);
        count[row->action]++;
        bool read = row->method == HTTP_GET || row->method == HTTP_HEAD ||
                    row->method == HTTP_OPTIONS || i == SelectObjectContent || i == UnknownRead ||
                    row->action == S3_PLAN; /* it changes nothing of S3 */
        assert_true(read != s3_operation_changes(i) || row->action == S3_REFUSE);
    }
    assert_int_equal(count[S3_SERVE], 2);
    assert_int_equal(count[S3_RELAY], 48 + 3); /* of the model, and ours */
    assert_int_equal(count[S3_PASS], 30);
    assert_int_equal(count[S3_WRITE], 14 + 1);
    assert_int_equal(count[S3_WRITE_BUCKET], 19);
    assert_int_equal(count[S3_WRITE_KEYS], 1);
    assert_int_equal(count[S3_REFUSE], 2 + 1);
    assert_int_equal(count[S3_PROBE], 4);
    assert_int_equal(count[S3_PLAN], 4);
}

static const struct real_request {
    const char *method, *target, *fields;
    enum s3_operation op;
    bool bypass;
} real_requests[] = {
    {"GET", "/bkt/dir/a%20b%2Bc?x-id=GetObject", NULL, GetObject, false},
    {"GET", "/bkt/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD"
            "&X-Amz-Credential=a&X-Amz-Date=d&X-Amz-Expires=60&X-Amz-Signature=s"
            "&X-Amz-SignedHeaders=host&x-amz-checksum-mode=ENABLED&x-id=GetObject",
     NULL, GetObject, false},
    {"GET", "/b/k?AWSAccessKeyId=A&Signature=x%3D&Expires=1795166183", NULL, GetObject, false},
    {"GET", "/b/k?versionId=3&partNumber=2", NULL, GetObject, false},
    {"HEAD", "/b/k?response-content-type=a", NULL, HeadObject, false},
    {"GET", "/b/k?t=1", NULL, GetObject, true},
    {"GET", "/b/k?website", NULL, GetObject, true},
    {"GET", "/b/k?versionid=3", NULL, GetObject, true},
    {"GET", "/b/k?ACL", NULL, GetObject, true},
    {"GET", "/b/k?%61cl", NULL, GetObjectAcl, false},
    {"GET", "/b/k?acl&versionId=1", NULL, GetObjectAcl, false},
    {"GET", "/b?list-type=2&prefix=a%2F&delimiter=/&max-keys=1&encoding-type=url"
            "&fetch-owner=true",
     NULL, ListObjectsV2, false},
    {"GET", "/b/?list-type=2&continuation-token=x&start-after=y", NULL, ListObjectsV2, false},
    {"GET", "/b?list-type=1", NULL, ListObjects, false},
    {"GET", "/b?list-type=%32", NULL, ListObjectsV2, false},
    {"GET", "/b/?prefix=dir/&marker=(null)", NULL, ListObjects, false},
    {"GET", "/b?future", NULL, UnknownRead, false},
    {"GET", "/b?list-type=2&future=1", NULL, UnknownRead, false},
    {"GET", "/b?location&prefix=x", NULL, UnknownRead, false},
    {"GET", "/b?location=", NULL, GetBucketLocation, false},
    {"GET", "/b?versions&prefix=x&key-marker=k", NULL, ListObjectVersions, false},
    {"HEAD", "/b", NULL, HeadBucket, false},
    {"HEAD", "/b?future", NULL, UnknownRead, false},
    {"GET", "/", NULL, ListBuckets, false},
    {"GET", "/?x-id=ListBuckets&max-buckets=10", NULL, ListBuckets, false},
    {"GET", "/?x-id=ListDirectoryBuckets", NULL, ListDirectoryBuckets, false},
    {"GET", "/?future", NULL, UnknownRead, false},
    {"PUT", "/b/k?x-id=PutObject", NULL, PutObject, false},
    {"PUT", "/b/k?x-amz-checksum-crc32=aaaa&X-Amz-Signature=x", NULL, PutObject, false},
    {"PUT", "/b/k?future", NULL, UnknownWrite, false},
    {"DELETE", "/b/k?versionId=1", NULL, DeleteObject, false},
    {"DELETE", "/b/k?future", NULL, UnknownWrite, false},
    {"DELETE", "/b?future", NULL, UnknownWrite, false},
    {"PUT", "/b/k?x-amz-copy-source=b%2Fk", NULL, CopyObject, false},
    {"PUT", "/b/k?uploadId=u&partNumber=1&x-id=UploadPart", NULL, UploadPart, false},
    {"PUT", "/b/k?uploadId=u&partNumber=1", "X-Amz-Copy-Source: b/k\r\n", UploadPartCopy,
     false},
    {"POST", "/b/k?uploads", NULL, CreateMultipartUpload, false},
    {"POST", "/b/k?uploads=", NULL, CreateMultipartUpload, false},
    {"POST", "/b?delete=", NULL, DeleteObjects, false},
    {"POST", "/b", "Content-Type: Multipart/Form-Data; boundary=x\r\n", PostObject, false},
    {"POST", "/WriteGetObjectResponse",
     "x-amz-request-route: r\r\nx-amz-request-token: t\r\n", WriteGetObjectResponse, false},
    {"OPTIONS", "/b/k?future", NULL, PreflightObject, false},
    {"GET", "/-/ready", NULL, ProbeReady, false},
    {"GET", "/-/live?x", NULL, ProbeLive, false},
    {"HEAD", "/minio/health/live", NULL, ProbeLiveHead, false},
    {"GET", "/minio/health/ready", NULL, ProbeReady, false},
    {"GET", "/minio/health/other", NULL, GetObject, false},
    {"POST", "/-/plans", NULL, PostPlan, false},
    {"GET", "/-/plans/p7", NULL, GetPlan, false},
    {"DELETE", "/-/plans/p7/", NULL, DropPlan, false},
};

static void operations_of_real_clients(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(real_requests); i++) {
        const struct real_request *r = &real_requests[i];
        enum err e = ask_for(r->method, r->target, NULL, "", r->fields);
        if (e != OK || ask.op != r->op || ask.bypass != r->bypass)
            fail_msg("%s %s: %s, bypass %d", r->method, r->target,
                     e == OK ? s3_operation_table[ask.op].name : error.code, ask.bypass);
    }
}

/* ---- refusals ---- */
static char long_key[2000], many[2000]; /* written by the test */
static const struct refusal {
    const char *method, *target, *fields;
    uint16_t status;
    const char *code, *argument, *allow;
} refusals[] = {
    {"GET", "/b/%zz", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/a%00b", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/%", NULL, 400, "InvalidURI", NULL, NULL},
    {"PUT", "/-/plans", NULL, 400, "InvalidBucketName", NULL, NULL},
    {"GET", "/-/plans?a=1&a=2", NULL, 400, "InvalidArgument", "a", NULL},
    {"GET", "/b/%ff", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/%c0%af", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/%ed%a0%80", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/%f4%90%80%80", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/%e2%82", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/k?%zz=1", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/k?versionId=%zz", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b?list-type=%3", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b/k?x-id=a%00", NULL, 400, "InvalidURI", NULL, NULL},
    {"GET", "/b%2Fk", NULL, 400, "InvalidBucketName", NULL, NULL},
    {"GET", "//key", NULL, 400, "InvalidBucketName", NULL, NULL},
    {"GET", "/../key", NULL, 400, "InvalidBucketName", NULL, NULL},
    {"GET", "/%2e%2e/key", NULL, 400, "InvalidBucketName", NULL, NULL},
    {"GET", "/-/other", NULL, 400, "InvalidBucketName", NULL, NULL},
    {"GET", "/a%0d%0ab/k", NULL, 400, "InvalidBucketName", NULL, NULL},
    {"GET", long_key, NULL, 400, "KeyTooLongError", NULL, NULL},
    {"GET", many, NULL, 400, "InvalidRequest", NULL, NULL},
    {"GET", "/b/k?versionId=", NULL, 400, "InvalidArgument", "versionId", NULL},
    {"GET", "/b/k?versionId=a%0d%0ax:y", NULL, 400, "InvalidArgument", "versionId", NULL},
    {"GET", "/b/k?versionId=a&versionId=b", NULL, 400, "InvalidArgument", "versionId", NULL},
    {"GET", "/b/k?versionId=a&version%49d=b", NULL, 400, "InvalidArgument", "versionId", NULL},
    {"GET", "/b?prefix=a&prefix=b", NULL, 400, "InvalidArgument", "prefix", NULL},
    {"GET", "/b/k?partNumber=0", NULL, 400, "InvalidArgument", "partNumber", NULL},
    {"GET", "/b/k?partNumber=10001", NULL, 400, "InvalidArgument", "partNumber", NULL},
    {"GET", "/b/k?partNumber=-1", NULL, 400, "InvalidArgument", "partNumber", NULL},
    {"GET", "/b/k?partNumber=1x", NULL, 400, "InvalidArgument", "partNumber", NULL},
    {"GET", "/b/k?partNumber", NULL, 400, "InvalidArgument", "partNumber", NULL},
    {"HEAD", "/b/k?partNumber=99999999999999999999", NULL, 400, "InvalidArgument", "partNumber",
     NULL},
    {"GET", "/b/k?partNumber=1", "Range: bytes=0-1\r\n", 400, "InvalidRequest", NULL, NULL},
    {"GET", "/b/k", "Range: bytes=0-1\r\nRange: bytes=2-3\r\n", 400, "InvalidArgument", "range",
     NULL},
    {"GET", "/b/k", "If-Match: a\r\nIf-Match: b\r\n", 400, "InvalidArgument", "if-match", NULL},
    {"GET", "/b/k?response-content-type=a%0d%0aSet-Cookie:%20x", NULL, 400, "InvalidArgument",
     "response-content-type", NULL},
    {"HEAD", "/b/k?response-expires=a%0Ab", NULL, 400, "InvalidArgument", "response-expires",
     NULL},
    {"GET", "/b/k?response-cache-control=%7f", NULL, 400, "InvalidArgument",
     "response-cache-control", NULL},
    {"GET", "/b/k?acl&tagging", NULL, 400, "InvalidArgument", "ResourceType", NULL},
    {"GET", "/b?acl&location", NULL, 400, "InvalidArgument", "ResourceType", NULL},
    {"GET", "/b?list-type=2&acl&location", NULL, 400, "InvalidArgument", "ResourceType", NULL},
    {"GET", "/b/k?attributes", NULL, 400, "InvalidArgument", "ResourceType", NULL},
    {"PUT", "/b/k?uploadId=u", NULL, 400, "InvalidArgument", "ResourceType", NULL},
    {"POST", "/b/k?select", NULL, 400, "InvalidArgument", "ResourceType", NULL},
    {"POST", "/b/k", NULL, 405, "MethodNotAllowed", NULL, "GET, HEAD, PUT, DELETE, OPTIONS"},
    {"POST", "/b", NULL, 405, "MethodNotAllowed", NULL, "GET, HEAD, PUT, DELETE, OPTIONS"},
    {"PUT", "/", NULL, 405, "MethodNotAllowed", NULL, "GET"},
    {"HEAD", "/", NULL, 405, "MethodNotAllowed", NULL, "GET"},
    {"OPTIONS", "*", NULL, 405, "MethodNotAllowed", NULL, "GET"},
    {"DELETE", "/b/k?acl", NULL, 405, "MethodNotAllowed", NULL, "GET, PUT"},
    {"HEAD", "/b/k?tagging", NULL, 405, "MethodNotAllowed", NULL, "GET, PUT, DELETE"},
    {"DELETE", "/b?location", NULL, 405, "MethodNotAllowed", NULL, "GET"},
    {"POST", "/b?policy", NULL, 405, "MethodNotAllowed", NULL, "GET, PUT, DELETE"},
};

static void refused_requests(void **state)
{
    (void)state;
    memset(long_key, 'x', 3 + 1025);
    memcpy(long_key, "/b/", 3);
    struct text t;
    text_init(&t, many, sizeof(many));
    text_adds(&t, "/b/k?");
    for (unsigned i = 0; i < 129; i++)
        text_addf(&t, "p%u&", i);
    assert_false(t.over);
    for (unsigned i = 0; i < ARRAY_COUNT(refusals); i++) {
        const struct refusal *r = &refusals[i];
        enum err e = ask_for(r->method, r->target, NULL, "", r->fields);
        if (e != ERR_SYNTAX || error.status != r->status || strcmp(error.code, r->code) != 0)
            fail_msg("%s %s: %d %s", r->method, r->target, error.status, error.code);
        assert_non_null(error.message);
        if (r->argument)
            assert_span(error.argument_name, r->argument);
        if (r->allow)
            assert_span(error.allow, r->allow);
    }
}

static void a_key_of_1024_bytes_is_the_longest(void **state)
{
    static char target[4000];
    (void)state;
    memcpy(target, "/b/", 3);
    for (unsigned i = 0; i < 512; i++)
        memcpy(target + 3 + 6 * i, "%C3%A9", 6);
    target[3 + 6 * 512] = 0;
    assert_int_equal(get(target, NULL), OK);
    assert_int_equal(ask.key.len, 1024);
    target[3 + 6 * 512] = 'a';
    assert_int_equal(get(target, NULL), ERR_SYNTAX);
    assert_int_equal(error.actual_size, 1025);
    assert_int_equal(error.max_size, 1024);
    assert_true(error.has_actual_size && error.has_max_size);
}

static void an_empty_arena_is_a_slow_down(void **state)
{
    struct arena none;
    (void)state;
    arena_init(&none, NULL, 0, 0);
    parse("GET", "/b/k", NULL, NULL);
    assert_int_equal(s3_ask_read(&head, "", &none, &ask, &error), ERR_MEMORY);
    assert_int_equal(error.status, 503);
    assert_string_equal(error.code, "SlowDown");
}

/* ---- addresses ---- */
static void addresses(void **state)
{
    static const struct {
        const char *host, *domain, *target, *bucket, *key;
        enum s3_level level;
    } row[] = {
        {NULL, "", "/b", "b", "", S3_BUCKET},
        {NULL, "", "/b/", "b", "", S3_BUCKET},
        {NULL, "", "/b/k", "b", "k", S3_OBJECT},
        {NULL, "", "/bkt//lead", "bkt", "/lead", S3_OBJECT},
        {NULL, "", "/b/a//b", "b", "a//b", S3_OBJECT},
        {NULL, "", "/b/a/../b", "b", "a/../b", S3_OBJECT},
        {NULL, "", "/b/a/./b/", "b", "a/./b/", S3_OBJECT},
        {NULL, "", "/b/%2e%2e%2f%2E%2e/etc", "b", "../../etc", S3_OBJECT},
        {NULL, "", "/b/a%2Fb", "b", "a/b", S3_OBJECT},
        {NULL, "", "/b/a%20b+c", "b", "a b+c", S3_OBJECT},
        {NULL, "", "/b/100%2525", "b", "100%25", S3_OBJECT},
        {NULL, "", "/b/%C3%A9", "b", "\xc3\xa9", S3_OBJECT},
        {NULL, "", "/b/a%0d%0ab", "b", "a\r\nb", S3_OBJECT},
        {NULL, "", "/b/k?", "b", "k", S3_OBJECT},
        {NULL, "", "/Old_Bucket.1/k", "Old_Bucket.1", "k", S3_OBJECT},
        {NULL, "", "/%62/k", "b", "k", S3_OBJECT},
        {"b.cache.local", "cache.local", "/k", "b", "k", S3_OBJECT},
        {"b.cache.local:9000", "cache.local", "/dir/k", "b", "dir/k", S3_OBJECT},
        {"B.Cache.Local:9000", "cache.local", "/", "b", "", S3_BUCKET},
        {"a.b.c.cache.local", "cache.local", "//k", "a.b.c", "/k", S3_OBJECT},
        {"b.cache.local", "cache.local", "/-/ready", "b", "-/ready", S3_OBJECT},
        {"b.cache.local", "cache.local", "/minio/health/live", "b", "minio/health/live", S3_OBJECT},
        {"cache.local:9000", "cache.local", "/b/k", "b", "k", S3_OBJECT},
        {"cache.local", "cache.local", "/", "", "", S3_SERVICE},
        {"xcache.local", "cache.local", "/b/k", "b", "k", S3_OBJECT},
        {"bxcache.local", "cache.local", "/b/k", "b", "k", S3_OBJECT},
        {"b.cache.lokal", "cache.local", "/b/k", "b", "k", S3_OBJECT},
        {"10.0.0.1:9000", "0.0.1", "/b/k", "b", "k", S3_OBJECT},
        {"[::1]:9000", "cache.local", "/b/k", "b", "k", S3_OBJECT},
        {"other.host", "cache.local", "/b/k", "b", "k", S3_OBJECT},
        {"b.cache.local", "", "/x/k", "x", "k", S3_OBJECT},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        if (ask_for("GET", row[i].target, row[i].host, row[i].domain, NULL) != OK)
            fail_msg("%s: %s", row[i].target, error.code);
        assert_span(ask.bucket, row[i].bucket);
        assert_span(ask.key, row[i].key);
        assert_int_equal(ask.level, row[i].level);
    }
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* Valid UTF-8 made of code points; every byte escaped, or only those that must be. */
static size_t put_code_point(uint32_t c, uint8_t *out)
{
    if (c < 0x80)
        return out[0] = (uint8_t)c, 1;
    if (c < 0x800)
        return out[0] = (uint8_t)(0xc0 | c >> 6), out[1] = (uint8_t)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return out[0] = (uint8_t)(0xe0 | c >> 12), out[1] = (uint8_t)(0x80 | (c >> 6 & 63)),
               out[2] = (uint8_t)(0x80 | (c & 63)), 3;
    return out[0] = (uint8_t)(0xf0 | c >> 18), out[1] = (uint8_t)(0x80 | (c >> 12 & 63)),
           out[2] = (uint8_t)(0x80 | (c >> 6 & 63)), out[3] = (uint8_t)(0x80 | (c & 63)), 4;
}

static void hostile_keys_keep_their_bytes(void **state)
{
    static const uint32_t odd[] = {'.', '/', '\\', '%', 1, '\r', '\n', 0x7f, '<', '&', 0xfffe,
                                   0x2028, 0x10ffff};
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (unsigned round = 0; round < 5000; round++) {
        uint8_t key[200];
        char target[800] = "/b/";
        size_t len = 0;
        unsigned count = 1 + (unsigned)(next_random(&seed) % 40);
        for (unsigned i = 0; i < count; i++) {
            uint32_t c = (uint32_t)(next_random(&seed) % 0x110000);
            if (next_random(&seed) % 2)
                c = odd[c % ARRAY_COUNT(odd)];
            if (c == 0 || (c >= 0xd800 && c < 0xe000))
                c = '.';
            len += put_code_point(c, key + len);
        }
        struct text t = {.at = target, .len = 3, .cap = sizeof(target)};
        for (size_t i = 0; i < len; i++)
            text_addf(&t, round % 2 ? "%%%02X" : "%%%02x", key[i]);
        assert_int_equal(get(target, NULL), OK);
        assert_true(span_eq(ask.key, span_make(key, len)));
    }
}

/* ---- what goes with it ---- */
static void every_input_is_applied_or_bypasses(void **state)
{
    static const struct {
        const char *target, *fields;
        bool bypass, unknown;
    } row[] = {
        {"/b/k", NULL, false, false},
        {"/b/k", "x-amz-server-side-encryption-customer-algorithm: AES256\r\n", true, false},
        {"/b/k", "X-Amz-Server-Side-Encryption-Customer-Key: x\r\n", true, false},
        {"/b/k", "x-amz-server-side-encryption-customer-key-MD5: x\r\n", true, false},
        {"/b/k", "x-amz-expected-bucket-owner: 123456789012\r\n", true, false},
        {"/b/k", "x-amz-request-payer: requester\r\n", true, false},
        {"/b/k?x-amz-request-payer=requester", NULL, true, false},
        {"/b/k?X-Amz-Server-Side-Encryption-Customer-Key=x", NULL, true, false},
        {"/b/k?x-amz-expected-bucket-owner=1", NULL, true, false},
        {"/b/k?x-amz-of-tomorrow=1", NULL, true, false},
        {"/b/k?x-amz-checksum-mode=%45NABLED", NULL, false, false},
        {"/b/k?anything", NULL, true, true},
        {"/b/k?tagging&anything", NULL, true, true},
        {"/b/k?x-amz-signature=lower", NULL, true, true},
        {"/b/k", "Origin: http://x\r\n", true, false},
        {"/b/k", "Accept-Encoding: gzip\r\namz-sdk-request: attempt=1\r\n", false, false},
        {"/b/k", "x-amz-checksum-mode: ENABLED\r\n", false, false},
        {"/b/k", "x-minio-extract: true\r\n", true, false},
        {"/b/k?response-expires=x&versionId=null&x-id=a", NULL, false, false},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        assert_int_equal(get(row[i].target, row[i].fields), OK);
        if (ask.bypass != row[i].bypass || ask.unknown_query != row[i].unknown)
            fail_msg("%s %s: bypass %d, unknown %d", row[i].target, row[i].fields, ask.bypass,
                     ask.unknown_query);
    }
}

static void hints_are_words_of_which_unknown_ones_are_ignored(void **state)
{
    static const struct {
        const char *field;
        unsigned hint;
    } rows[] = {
        {"once", HINT_ONCE},
        {"ONCE ,Random", HINT_ONCE | HINT_RANDOM},
        {"sequential", HINT_SEQUENTIAL},
        {"prefetch, sequential", HINT_PREFETCH | HINT_SEQUENTIAL},
        {"sequential, random", HINT_RANDOM},
        {"random, sequential", HINT_SEQUENTIAL},
        {"prefetched, oncee, once2,,", 0},
        {"", 0},
    };
    char field[100];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        snprintf(field, sizeof field, "X-Headpond-Hint: %s\r\n", rows[i].field);
        assert_int_equal(get("/b/k", field), OK);
        assert_int_equal(ask.hint, rows[i].hint);
    }
}

static void parameters_and_fields_are_read(void **state)
{
    (void)state;
    assert_int_equal(get("/b/k?versionId=a%2Bb&partNumber=10000"
                         "&response-content-disposition=attachment%3B+f%3D%22"
                         "x%22&response-content-type=&x-amz-checksum-mode=enabled",
                         "If-None-Match: \"e\"\r\nIf-Modified-Since: x\r\nX-Headpond-Hint: "
                         "sequential, Once\r\n"
                         "If-Range: \"r\"\r\nIf-Unmodified-Since: y\r\nIf-Match: *\r\n"), OK);
    assert_span(ask.version, "a+b");
    assert_int_equal(ask.part_number, 10000);
    assert_span(ask.overrides[S3_CONTENT_DISPOSITION], "attachment; f=\"x\"");
    assert_null(ask.overrides[S3_CONTENT_TYPE].at);
    assert_true(ask.has_override && ask.checksum_mode && !ask.bypass);
    assert_int_equal(ask.hint, HINT_SEQUENTIAL | HINT_ONCE);
    assert_span(ask.if_none_match, "\"e\"");
    assert_span(ask.if_modified_since, "x");
    assert_span(ask.if_unmodified_since, "y");
    assert_span(ask.if_match, "*");
    assert_span(ask.if_range, "\"r\"");
    assert_int_equal(get("/b/k?versionId=null",
                         "Range: bytes=0-1\r\nx-amz-checksum-mode: Enabled\r\n"), OK);
    assert_span(ask.version, "null");
    assert_span(ask.range, "bytes=0-1");
    assert_true(ask.checksum_mode && !ask.has_override && !ask.hint);
    assert_int_equal(get("/b?prefix=a%2Bb%20c", NULL), OK);
    assert_span(ask.prefix, "a+b c");
    assert_false(ask.prefix_ambiguous);
    assert_int_equal(get("/b?list-type=2&prefix=a+b", NULL), OK);
    assert_true(ask.prefix_ambiguous);
    assert_int_equal(ask_for("PUT", "/b/k?x-amz-copy-source=b%2Fa%2520b", NULL, "", NULL), OK);
    assert_span(ask.source, "b/a%20b");
}

static void refusals_name_the_operation(void **state)
{
    (void)state;
    assert_int_equal(get("/b?session", NULL), OK);
    s3_not_implemented(&ask, &arena, &error);
    assert_int_equal(error.status, 501);
    assert_string_equal(error.code, "NotImplemented");
    assert_non_null(strstr(error.message, "CreateSession"));
    assert_null(strstr(error.message, "upstream"));
}

static void the_relayed_query_has_no_credentials(void **state)
{
    struct span query;
    (void)state;
    assert_int_equal(get("/b?list-type=2&X-Amz-Credential=a&prefix=x%2By&X-Amz-%53ignature=s"
                         "&delimiter=&"
                         "Expires=1&fetch-owner&&X-Amz-Security-Token=t", NULL), OK);
    assert_int_equal(s3_query_relay(&ask, &arena, &query), OK);
    assert_span(query, "list-type=2&prefix=x%2By&delimiter=&fetch-owner");
    assert_int_equal(get("/b", NULL), OK);
    assert_int_equal(s3_query_relay(&ask, &arena, &query), OK);
    assert_span(query, "");
}

static void upstream_reads_the_parameters_that_rights_were_judged_by(void **state)
{
    static const char *const row[][2] = {
        {"/b?%6Cist-type=2&%70refix=team%2da/+b", "list-type=2&prefix=team%2da/+b"},
        {"/b?prefix=team-a/;prefix=;&%6dax-keys=1", "prefix=team-a/%3Bprefix=%3B&max-keys=1"},
        {"/b?a%3bb;c=1&d+e&f%2Bg&=h", "a%3Bb%3Bc=1&d%20e&f%2Bg&=h"},
    };
    struct span query;
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        assert_int_equal(get(row[i][0], NULL), OK);
        assert_int_equal(s3_query_relay(&ask, &arena, &query), OK);
        assert_span(query, row[i][1]);
    }
}

/* Value of a field among those that go upstream; the absent one is "-". */
static const char *relayed(const char *name)
{
    static struct http_field field[HTTP_FIELDS_MAX];
    unsigned count;
    assert_int_equal(s3_query_fields(&ask, &arena, field, HTTP_FIELDS_MAX, &count), OK);
    for (unsigned i = 0; i < count; i++)
        if (span_is_nocase(field[i].name, name))
            return field[i].value.at;
    return "-";
}

static void parameters_of_a_url_that_are_fields_go_upstream_as_fields(void **state)
{
    struct span query;
    (void)state;
    assert_int_equal(get("/b/k?x-amz-request-payer=requester&versionId=1&X-Amz-Meta-%41=a%20b+c"
                         "&X-Amz-Date=20260101T000000Z&x-amz-security-token=t&x-id=GetObject",
                         NULL), OK);
    assert_int_equal(s3_query_relay(&ask, &arena, &query), OK);
    assert_span(query, "versionId=1&x-id=GetObject");
    assert_string_equal(relayed("x-amz-request-payer"), "requester");
    assert_string_equal(relayed("x-amz-meta-a"), "a b c");
    assert_string_equal(relayed("x-amz-date"), "-");
    assert_string_equal(relayed("x-amz-security-token"), "-");
    assert_int_equal(get("/b/k?AWSAccessKeyId=a&content-type=a%2Fb&content-md5=x",
                         "Content-MD5: x\r\n"), OK);
    assert_int_equal(s3_query_relay(&ask, &arena, &query), OK);
    assert_span(query, "");
    assert_string_equal(relayed("content-type"), "a/b");
    assert_string_equal(relayed("content-md5"), "-"); /* the field itself goes */
}

static void a_parameter_that_is_a_field_is_fit_for_one_and_stands_once(void **state)
{
    static const struct {
        const char *target, *fields, *code;
    } row[] = {
        {"/b/k?x-amz-acl=a", "x-amz-acl: a\r\n", "InvalidArgument"},
        {"/b/k?x-amz-acl=a&X-Amz-Acl=a", NULL, "InvalidArgument"},
        {"/b/k?x-amz-meta-a=b%0d%0aHost:%20evil", NULL, "InvalidArgument"},
        {"/b/k?x-amz-meta-%0d%0aHost=evil", NULL, "InvalidURI"},
        {"/b/k?x-amz-meta-a%3a=b", NULL, "InvalidURI"},
        {"/b/k?AWSAccessKeyId=a&content-type=a", "Content-Type: b\r\n", "InvalidArgument"},
        {"/b/k?AWSAccessKeyId=a&content-type=a%0a", NULL, "InvalidArgument"},
        {"/b/k", "x-amz-s3session-token: t\r\n", "NotImplemented"},
        {"/b/k?x-amz-s3session-token=t", NULL, "NotImplemented"},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        assert_int_equal(get(row[i].target, row[i].fields), ERR_SYNTAX);
        assert_string_equal(error.code, row[i].code);
    }
    char target[KIB];
    struct text t;
    text_init(&t, target, sizeof(target));
    text_adds(&t, "/b/k?x-amz-a-0=b");
    for (unsigned i = 1; i < HTTP_FIELDS_MAX - 1; i++)
        text_addf(&t, "&x-amz-%u", i);
    assert_int_equal(get(target, NULL), OK); /* and Host */
    text_adds(&t, "&x-amz-z");
    assert_int_equal(get(target, NULL), ERR_SYNTAX);
    assert_string_equal(error.code, "RequestHeaderSectionTooLarge");
}

/* ---- conditions ---- */
/* Each of If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since absent, true or false, in
 * this order, the last the fastest: 2 = 200, 3 = 304, 4 = 412. */
static const char verdicts[] =
    "224" "224" "334"   "224" "224" "224"   "334" "334" "334"
    "222" "222" "333"   "222" "222" "222"   "333" "333" "333"
    "444" "444" "444"   "444" "444" "444"   "444" "444" "444";

static struct span pick(unsigned which, const char *yes, const char *no)
{
    return span_of(which == 0 ? NULL : which == 1 ? yes : no);
}

static void conditions_in_all_81_combinations(void **state)
{
    char before[30], at[30];
    static const char *const match[][2] = {{"\"abc\"", "\"x\""}, {"abc", "x"}, {"*", "W/\"abc\""}};
    static const char *const none[][2] = {{"\"x\"", "\"abc\""}, {"x", "abc"},
                                           {"\"a\", \"abc\"", "*"}};
    (void)state;
    http_date_write(MODIFIED_S - 1, before);
    http_date_write(MODIFIED_S, at);
    for (unsigned n = 0; n < 81 * 3; n++) {
        unsigned form = n / 81, i = n % 81;
        const char *condition = NULL;
        struct s3_ask a = {
            .if_match = pick(i / 27, match[form][0], match[form][1]),
            .if_none_match = pick(i / 9 % 3, none[form][0], none[form][1]),
            .if_modified_since = pick(i / 3 % 3, before, at),
            .if_unmodified_since = pick(i % 3, at, before),
        };
        uint16_t status = s3_conditions(&a, span_of("\"abc\""), MODIFIED_S, NOW_S, &condition);
        uint16_t want = verdicts[i] == '2' ? 200 : verdicts[i] == '3' ? 304 : 412;
        if (status != want)
            fail_msg("combination %u, form %u: %u", i, form, status);
        if (want == 412)
            assert_string_equal(condition, i / 27 == 2 ? "If-Match" : "If-Unmodified-Since");
    }
}

static void dates_that_do_not_count(void **state)
{
    const char *condition;
    char future[30], past[30];
    (void)state;
    http_date_write(NOW_S + 100, future);
    http_date_write(MODIFIED_S - 100, past);
    struct s3_ask a = {.if_modified_since = span_of(future)};
    assert_int_equal(s3_conditions(&a, span_of("\"e\""), MODIFIED_S, NOW_S, &condition), 200);
    a.if_modified_since = span_of("2020-01-01");
    assert_int_equal(s3_conditions(&a, span_of("\"e\""), MODIFIED_S, NOW_S, &condition), 200);
    a.if_modified_since = span_of(past);
    assert_int_equal(s3_conditions(&a, span_of("\"e\""), 0, NOW_S, &condition), 200);
    a = (struct s3_ask){.if_unmodified_since = span_of("never")};
    assert_int_equal(s3_conditions(&a, span_of("\"e\""), MODIFIED_S, NOW_S, &condition), 200);
    a.if_unmodified_since = span_of(past);
    assert_int_equal(s3_conditions(&a, span_of("\"e\""), MODIFIED_S, NOW_S, &condition), 412);
    assert_int_equal(s3_conditions(&a, span_of("\"e\""), 0, NOW_S, &condition), 200);
}

static void if_range_names_the_generation(void **state)
{
    char at[30], before[30];
    (void)state;
    http_date_write(MODIFIED_S, at);
    http_date_write(MODIFIED_S - 1, before);
    static const struct {
        const char *text;
        bool counts;
    } row[] = {{NULL, true}, {"\"e\"", true}, {"e", true}, {"\"f\"", false}, {"W/\"e\"", false},
               {"*", false}};
    struct s3_ask a = {.range = span_of("bytes=0-1")};
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        a.if_range = span_of(row[i].text);
        assert_int_equal(s3_range(&a, span_of("\"e\""), MODIFIED_S).len > 0, row[i].counts);
    }
    a.if_range = span_of(at);
    assert_true(s3_range(&a, span_of("\"e\""), MODIFIED_S).len > 0);
    a.if_range = span_of(before);
    assert_true(s3_range(&a, span_of("\"e\""), MODIFIED_S).len == 0);
}

/* ---- ranges, as S3 applies them ---- */
static void ranges(void **state)
{
    static const struct {
        const char *field;
        uint64_t size;
        enum http_range want;
        uint64_t from, to;
    } row[] = {
        {"bytes=0-9", 100, HTTP_RANGE_OK, 0, 9},
        {"bytes=50-", 100, HTTP_RANGE_OK, 50, 99},
        {"bytes=0-", 100, HTTP_RANGE_OK, 0, 99},
        {"bytes=0-999999", 100, HTTP_RANGE_OK, 0, 99},
        {"bytes=0-100", 100, HTTP_RANGE_OK, 0, 99},
        {"bytes=00-01", 100, HTTP_RANGE_OK, 0, 1},
        {"bytes=-10", 100, HTTP_RANGE_OK, 90, 99},
        {"bytes=-101", 100, HTTP_RANGE_OK, 0, 99},
        {"bytes=-0", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=100-", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=100-110", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=10-5", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes=abc", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes=a-z", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes=,", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes=--1", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes= -1", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes=0 -1", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes=100-x", 100, HTTP_RANGE_NONE, 0, 0},
        {"foo=0-1", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes=0-0,1-2", 100, HTTP_RANGE_NONE, 0, 0},
        {"bytes=18446744073709551616-", 100, HTTP_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=0-", 0, HTTP_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=0-0", 0, HTTP_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=00-01", 0, HTTP_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=-0", 0, HTTP_RANGE_UNSATISFIABLE, 0, 0},
        {"bytes=-1", 0, HTTP_RANGE_NONE, 0, 0},
        {"bytes=10-5", 0, HTTP_RANGE_NONE, 0, 0},
        {"bytes=abc", 0, HTTP_RANGE_NONE, 0, 0},
        {"bytes=,", 0, HTTP_RANGE_NONE, 0, 0},
        {"bytes= -1", 0, HTTP_RANGE_NONE, 0, 0},
        {"foo=0-1", 0, HTTP_RANGE_NONE, 0, 0},
        {"bytes=0-0,1-2", 0, HTTP_RANGE_NONE, 0, 0},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        uint64_t from = 0, to = 0;
        enum http_range have = http_range_apply(span_of(row[i].field), row[i].size, &from, &to);
        bool same = have != HTTP_RANGE_OK || (from == row[i].from && to == row[i].to);
        if (have != row[i].want || !same)
            fail_msg("%s of %llu: %d %llu-%llu", row[i].field, (unsigned long long)row[i].size,
                     have,
                     (unsigned long long)from, (unsigned long long)to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_found_by_its_request),
        cmocka_unit_test(every_row_is_found_in_a_virtual_host),
        cmocka_unit_test(paths_of_ours_are_keys_in_a_virtual_host),
        cmocka_unit_test(the_table_has_the_model_and_ours),
        cmocka_unit_test(operations_of_real_clients),
        cmocka_unit_test(refused_requests),
        cmocka_unit_test(a_key_of_1024_bytes_is_the_longest),
        cmocka_unit_test(an_empty_arena_is_a_slow_down),
        cmocka_unit_test(addresses),
        cmocka_unit_test(hostile_keys_keep_their_bytes),
        cmocka_unit_test(every_input_is_applied_or_bypasses),
        cmocka_unit_test(hints_are_words_of_which_unknown_ones_are_ignored),
        cmocka_unit_test(parameters_and_fields_are_read),
        cmocka_unit_test(refusals_name_the_operation),
        cmocka_unit_test(the_relayed_query_has_no_credentials),
        cmocka_unit_test(upstream_reads_the_parameters_that_rights_were_judged_by),
        cmocka_unit_test(parameters_of_a_url_that_are_fields_go_upstream_as_fields),
        cmocka_unit_test(a_parameter_that_is_a_field_is_fit_for_one_and_stands_once),
        cmocka_unit_test(conditions_in_all_81_combinations),
        cmocka_unit_test(dates_that_do_not_count),
        cmocka_unit_test(if_range_names_the_generation),
        cmocka_unit_test(ranges),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
