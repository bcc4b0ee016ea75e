/* Every route by every form of authentication: the verdict of each cell. An operation without a
 * line in ROUTES does not compile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/s3_rows.h"

#include "tests/unit/auth_case.h"

/* ---- what a route is to the verdict ---- */
enum class_ {
    OBJECT,                          /* reads an object: anonymous may, keys in their scope */
    OBJECT_INFO,                     /* reads about an object: keys in their scope */
    LIST,                            /* lists objects: anonymous may, keys in their scope */
    LIST_MORE,                       /* lists versions, uploads: keys in their scope */
    BUCKETS,                         /* lists buckets: all may, filtered for scoped keys */
    BUCKET_NAME,                     /* is there such a bucket, where: all may, in their scope */
    SETTING,                         /* reads settings of a bucket: keys without scopes */
    REFUSED,                         /* 501 to whoever has a key */
    STREAMED,                        /* writes an object; its body may be a stream of chunks */
    OBJECT_WRITE,
    COPY,                            /* writes an object, of another one that must be readable */
    RESTORE,                         /* writes an object; its body may name another place */
    DELETE_LIST,                     /* removes objects that a body names: asked for later */
    SETTING_WRITE,
    /* loaders' plans: any key, as their prefixes are asked for later */
    PLAN,
    CLASS_COUNT,
    FOR_ALL = CLASS_COUNT,           /* needs no rights: probes, preflights, forms */
};
/* Can version 2 say all of it? It signs few keys of a query. */
enum needs { V2, V4 };

/* clang-format off */
#define ROUTES(R) \
    R(AbortMultipartUpload, OBJECT_WRITE, V2)                                                     \
    R(CompleteMultipartUpload, OBJECT_WRITE, V2)                                                  \
    R(CopyObject, COPY, V2)                                                                       \
    R(CreateBucket, SETTING_WRITE, V2)                                                            \
    R(CreateBucketMetadataConfiguration, SETTING_WRITE, V4)                                       \
    R(CreateBucketMetadataTableConfiguration, SETTING_WRITE, V4)                                  \
    R(CreateMultipartUpload, OBJECT_WRITE, V2)                                                    \
    R(CreateSession, REFUSED, V4)                                                                 \
    R(DeleteBucket, SETTING_WRITE, V2)                                                            \
    R(DeleteBucketAnalyticsConfiguration, SETTING_WRITE, V4)                                      \
    R(DeleteBucketCors, SETTING_WRITE, V2)                                                        \
    R(DeleteBucketEncryption, SETTING_WRITE, V4)                                                  \
    R(DeleteBucketIntelligentTieringConfiguration, SETTING_WRITE, V4)                             \
    R(DeleteBucketInventoryConfiguration, SETTING_WRITE, V4)                                      \
    R(DeleteBucketLifecycle, SETTING_WRITE, V2)                                                   \
    R(DeleteBucketMetadataConfiguration, SETTING_WRITE, V4)                                       \
    R(DeleteBucketMetadataTableConfiguration, SETTING_WRITE, V4)                                  \
    R(DeleteBucketMetricsConfiguration, SETTING_WRITE, V4)                                        \
    R(DeleteBucketOwnershipControls, SETTING_WRITE, V4)                                           \
    R(DeleteBucketPolicy, SETTING_WRITE, V2)                                                      \
    R(DeleteBucketReplication, SETTING_WRITE, V4)                                                 \
    R(DeleteBucketTagging, SETTING_WRITE, V2)                                                     \
    R(DeleteBucketWebsite, SETTING_WRITE, V2)                                                     \
    R(DeleteObject, OBJECT_WRITE, V2)                                                             \
    R(DeleteObjectAnnotation, OBJECT_WRITE, V4)                                                   \
    R(DeleteObjectTagging, OBJECT_WRITE, V2)                                                      \
    R(DeleteObjects, DELETE_LIST, V2)                                                             \
    R(DeletePublicAccessBlock, SETTING_WRITE, V4)                                                 \
    R(GetBucketAbac, SETTING, V4)                                                                 \
    R(GetBucketAccelerateConfiguration, SETTING, V4)                                              \
    R(GetBucketAcl, SETTING, V2)                                                                  \
    R(GetBucketAnalyticsConfiguration, SETTING, V4)                                               \
    R(GetBucketCors, SETTING, V2)                                                                 \
    R(GetBucketEncryption, SETTING, V4)                                                           \
    R(GetBucketIntelligentTieringConfiguration, SETTING, V4)                                      \
    R(GetBucketInventoryConfiguration, SETTING, V4)                                               \
    R(GetBucketLifecycleConfiguration, SETTING, V2)                                               \
    R(GetBucketLocation, BUCKET_NAME, V2)                                                         \
    R(GetBucketLogging, SETTING, V2)                                                              \
    R(GetBucketMetadataConfiguration, SETTING, V4)                                                \
    R(GetBucketMetadataTableConfiguration, SETTING, V4)                                           \
    R(GetBucketMetricsConfiguration, SETTING, V4)                                                 \
    R(GetBucketNotificationConfiguration, SETTING, V2)                                            \
    R(GetBucketOwnershipControls, SETTING, V4)                                                    \
    R(GetBucketPolicy, SETTING, V2)                                                               \
    R(GetBucketPolicyStatus, SETTING, V4)                                                         \
    R(GetBucketReplication, SETTING, V4)                                                          \
    R(GetBucketRequestPayment, SETTING, V2)                                                       \
    R(GetBucketTagging, SETTING, V2)                                                              \
    R(GetBucketVersioning, SETTING, V2)                                                           \
    R(GetBucketWebsite, SETTING, V2)                                                              \
    R(GetObject, OBJECT, V2)                                                                      \
    R(GetObjectAcl, OBJECT_INFO, V2)                                                              \
    R(GetObjectAnnotation, OBJECT_INFO, V4)                                                       \
    R(GetObjectAttributes, OBJECT_INFO, V4)                                                       \
    R(GetObjectLegalHold, OBJECT_INFO, V4)                                                        \
    R(GetObjectLockConfiguration, SETTING, V4)                                                    \
    R(GetObjectRetention, OBJECT_INFO, V4)                                                        \
    R(GetObjectTagging, OBJECT_INFO, V2)                                                          \
    R(GetObjectTorrent, OBJECT_INFO, V2)                                                          \
    R(GetPublicAccessBlock, SETTING, V4)                                                          \
    R(HeadBucket, BUCKET_NAME, V2)                                                                \
    R(HeadObject, OBJECT, V2)                                                                     \
    R(ListBucketAnalyticsConfigurations, SETTING, V4)                                             \
    R(ListBucketIntelligentTieringConfigurations, SETTING, V4)                                    \
    R(ListBucketInventoryConfigurations, SETTING, V4)                                             \
    R(ListBucketMetricsConfigurations, SETTING, V4)                                               \
    R(ListBuckets, BUCKETS, V2)                                                                   \
    R(ListDirectoryBuckets, SETTING, V2)                                                          \
    R(ListMultipartUploads, LIST_MORE, V2)                                                        \
    R(ListObjectAnnotations, OBJECT_INFO, V4)                                                     \
    R(ListObjectVersions, LIST_MORE, V2)                                                          \
    R(ListObjects, LIST, V2)                                                                      \
    R(ListObjectsV2, LIST, V2)                                                                    \
    R(ListParts, OBJECT_INFO, V2)                                                                 \
    R(PutBucketAbac, SETTING_WRITE, V4)                                                           \
    R(PutBucketAccelerateConfiguration, SETTING_WRITE, V4)                                        \
    R(PutBucketAcl, SETTING_WRITE, V2)                                                            \
    R(PutBucketAnalyticsConfiguration, SETTING_WRITE, V4)                                         \
    R(PutBucketCors, SETTING_WRITE, V2)                                                           \
    R(PutBucketEncryption, SETTING_WRITE, V4)                                                     \
    R(PutBucketIntelligentTieringConfiguration, SETTING_WRITE, V4)                                \
    R(PutBucketInventoryConfiguration, SETTING_WRITE, V4)                                         \
    R(PutBucketLifecycleConfiguration, SETTING_WRITE, V2)                                         \
    R(PutBucketLogging, SETTING_WRITE, V2)                                                        \
    R(PutBucketMetricsConfiguration, SETTING_WRITE, V4)                                           \
    R(PutBucketNotificationConfiguration, SETTING_WRITE, V2)                                      \
    R(PutBucketOwnershipControls, SETTING_WRITE, V4)                                              \
    R(PutBucketPolicy, SETTING_WRITE, V2)                                                         \
    R(PutBucketReplication, SETTING_WRITE, V4)                                                    \
    R(PutBucketRequestPayment, SETTING_WRITE, V2)                                                 \
    R(PutBucketTagging, SETTING_WRITE, V2)                                                        \
    R(PutBucketVersioning, SETTING_WRITE, V2)                                                     \
    R(PutBucketWebsite, SETTING_WRITE, V2)                                                        \
    R(PutObject, STREAMED, V2)                                                                    \
    R(PutObjectAcl, OBJECT_WRITE, V2)                                                             \
    R(PutObjectAnnotation, OBJECT_WRITE, V4)                                                      \
    R(PutObjectLegalHold, OBJECT_WRITE, V4)                                                       \
    R(PutObjectLockConfiguration, SETTING_WRITE, V4)                                              \
    R(PutObjectRetention, OBJECT_WRITE, V4)                                                       \
    R(PutObjectTagging, OBJECT_WRITE, V2)                                                         \
    R(PutPublicAccessBlock, SETTING_WRITE, V4)                                                    \
    R(RenameObject, COPY, V4)                                                                     \
    R(RestoreObject, RESTORE, V2)                                                                 \
    R(SelectObjectContent, OBJECT_INFO, V4)                                                       \
    R(UpdateBucketMetadataAnnotationTableConfiguration, SETTING_WRITE, V4)                        \
    R(UpdateBucketMetadataInventoryTableConfiguration, SETTING_WRITE, V4)                         \
    R(UpdateBucketMetadataJournalTableConfiguration, SETTING_WRITE, V4)                           \
    R(UpdateObjectEncryption, OBJECT_WRITE, V4)                                                   \
    R(UploadPart, STREAMED, V2)                                                                   \
    R(UploadPartCopy, COPY, V2)                                                                   \
    R(WriteGetObjectResponse, REFUSED, V2)                                                        \
    R(GetBucketLifecycle, SETTING, V2)                                                            \
    R(GetBucketNotification, SETTING, V2)                                                         \
    R(PutBucketLifecycle, SETTING_WRITE, V2)                                                      \
    R(PutBucketNotification, SETTING_WRITE, V2)                                                   \
    R(PostObject, FOR_ALL, V2)                                                                    \
    R(PreflightBucket, FOR_ALL, V2)                                                               \
    R(PreflightObject, FOR_ALL, V2)                                                               \
    R(ProbeReady, FOR_ALL, V2)                                                                    \
    R(ProbeLive, FOR_ALL, V2)                                                                     \
    R(ProbeReadyHead, FOR_ALL, V2)                                                                \
    R(ProbeLiveHead, FOR_ALL, V2)                                                                 \
    R(PostPlan, PLAN, V2)                                                                         \
    R(ListPlans, PLAN, V2)                                                                        \
    R(GetPlan, PLAN, V2)                                                                          \
    R(DropPlan, PLAN, V2)                                                                         \
    R(UnknownRead, SETTING, V4)                                                                  \
    R(UnknownWrite, RESTORE, V4)
/* clang-format on */

enum {
#define ROUTE(name, class, needs) ROUTE_##name = (class) * 2 + (needs),
    ROUTES(ROUTE)
#undef ROUTE
};
static const uint8_t route_of[S3_OPERATION_COUNT] = {
#define OPERATION(name, method, level, keys, header, action, label, text) [name] = ROUTE_##name,
#include "table/s3_ops.h"
#undef OPERATION
};

/* ---- forms and what becomes of them ---- */
/* A letter per class, in their order: o = ok, a = anonymous, d = AccessDenied,
 * s = InvalidRequest. */
#define BY_RW     "ooooooooooooooo"
#define BY_RO     "ooooooooddddddo"
#define BY_ANYONE "adadaaddddddddd"
#define BY_STREAM "ssssssssossssss"
#define IN_BUCKET "oooooodoooddodo"
#define IN_BUCKET_RO "oooooododdddddo"
#define IN_DIR    "ooddoodoooddodo"
#define ELSEWHERE "ddddoddoddddddo"

static const struct matrix_row {
    const char *name;
    enum form form;
    enum gate_kind gate;
    bool anonymous;                  /* the peer is in auth.anonymous */
    const char *want;                /* letters, or the code of all classes */
    enum label_authfail reason;      /* of refusals */
} matrix[] = {
    {"header", HEADER_RW, KEYS, false, BY_RW, 0},
    {"header, read-only key", HEADER_RO, KEYS, true, BY_RO, AUTH_FORBIDDEN},
    {"header, slash in the key", HEADER_SLASH, KEYS, false, BY_RW, 0},
    {"header, UNSIGNED-PAYLOAD", HASH_NOT_SIGNED, KEYS, false, BY_RW, 0},
    {"header, version 2 is on", HEADER_RW, KEYS_V2, false, BY_RW, 0},
    {"presigned", QUERY_RW, KEYS, false, BY_RW, 0},
    {"presigned, X-Amz-Content-Sha256", QUERY_HASH, KEYS, false, BY_RW, 0},
    {"presigned, a field as a parameter", QUERY_FIELD, KEYS, false, BY_RW, 0},
    {"presigned, read-only key", QUERY_RO, KEYS, false, BY_RO, AUTH_FORBIDDEN},
    {"presigned, version 2 is on", QUERY_RW, KEYS_V2, false, BY_RW, 0},
    {"unsigned stream", STREAM_UNSIGNED, KEYS, false, BY_STREAM, AUTH_FORBIDDEN},
    {"unsigned stream, presigned", STREAM_QUERY, KEYS, false, BY_STREAM, AUTH_FORBIDDEN},
    {"signed stream", STREAM_SIGNED, KEYS, true, BY_STREAM, AUTH_FORBIDDEN},
    {"signed stream with a trailer", STREAM_SIGNED_TRAILER, KEYS, true, BY_STREAM, AUTH_FORBIDDEN},
    {"unknown payload literal", PAYLOAD_UNKNOWN, KEYS, true, "InvalidArgument", AUTH_FORBIDDEN},
    {"no payload hash", PAYLOAD_MISSING, KEYS, true, "InvalidRequest", AUTH_FORBIDDEN},
    {"scoped, its bucket", BUCKET_RW, KEYS, true, IN_BUCKET, AUTH_FORBIDDEN},
    {"scoped, its bucket, presigned", BUCKET_QUERY, KEYS, true, IN_BUCKET, AUTH_FORBIDDEN},
    {"scoped, its bucket, read-only", BUCKET_RO, KEYS, true, IN_BUCKET_RO, AUTH_FORBIDDEN},
    {"scoped, a folder", DIR_RW, KEYS, true, IN_DIR, AUTH_FORBIDDEN},
    {"scoped, a folder, presigned", DIR_QUERY, KEYS, true, IN_DIR, AUTH_FORBIDDEN},
    {"scoped, elsewhere", ELSE_RW, KEYS, true, ELSEWHERE, AUTH_FORBIDDEN},
    {"anonymous allowed", UNSIGNED, KEYS, true, BY_ANYONE, AUTH_FORBIDDEN},
    {"anonymous, a field as a parameter", UNSIGNED_FIELD, KEYS, true, BY_ANYONE, AUTH_FORBIDDEN},
    {"anonymous refused", UNSIGNED, KEYS, false, "AccessDenied", AUTH_FORBIDDEN},
    {"anonymous without keys", UNSIGNED, NO_KEYS, false, "AccessDenied", AUTH_FORBIDDEN},
    {"wrong signature", HEADER_WRONG, KEYS, true, "SignatureDoesNotMatch", AUTH_SIGNATURE},
    {"wrong presigned", QUERY_WRONG, KEYS, true, "SignatureDoesNotMatch", AUTH_SIGNATURE},
    {"unknown key", HEADER_UNKNOWN, KEYS, true, "InvalidAccessKeyId", AUTH_UNKNOWN_KEY},
    {"unknown presigned key", QUERY_UNKNOWN, KEYS, true, "InvalidAccessKeyId", AUTH_UNKNOWN_KEY},
    {"the upstream's key beside a keys_file", HEADER_UPSTREAM, KEYS, true, "InvalidAccessKeyId",
     AUTH_UNKNOWN_KEY},
    {"expired", QUERY_EXPIRED, KEYS, true, "AccessDenied", AUTH_EXPIRED},
    {"not valid yet", QUERY_EARLY, KEYS, true, "AccessDenied", AUTH_SKEW},
    {"valid for too long", QUERY_LONG, KEYS, true, "AuthorizationQueryParametersError",
     AUTH_FORBIDDEN},
    {"16 minutes late", HEADER_OLD, KEYS, true, "RequestTimeTooSkewed", AUTH_SKEW},
    {"16 minutes early", HEADER_NEW, KEYS, true, "RequestTimeTooSkewed", AUTH_SKEW},
    {"both at once", TWICE, KEYS, true, "InvalidArgument", AUTH_FORBIDDEN},
    {"both at once, anonymous range", TWICE, NO_KEYS, true, "InvalidArgument", AUTH_FORBIDDEN},
    {"version 2 off", V2_RW, KEYS, true, "InvalidRequest", AUTH_FORBIDDEN},
    {"version 2 off, presigned", V2_QUERY_RW, KEYS, true, "InvalidRequest", AUTH_FORBIDDEN},
    {"version 2 off, nonsense", V2_BAD, KEYS, true, "InvalidRequest", AUTH_FORBIDDEN},
    {"version 2 presigned, anonymous range", V2_BAD_QUERY, NO_KEYS, true, BY_ANYONE,
     AUTH_FORBIDDEN},
    {"version 2 presigned, elsewhere", V2_BAD_QUERY, NO_KEYS, false, "InvalidRequest",
     AUTH_FORBIDDEN},
    {"version 2", V2_RW, KEYS_V2, false, BY_RW, AUTH_FORBIDDEN},
    {"version 2, read-only key", V2_RO, KEYS_V2, true, BY_RO, AUTH_FORBIDDEN},
    {"version 2, scoped", V2_SCOPED, KEYS_V2, true, IN_DIR, AUTH_FORBIDDEN},
    {"version 2, wrong", V2_WRONG, KEYS_V2, true, "SignatureDoesNotMatch", AUTH_SIGNATURE},
    {"version 2, nonsense", V2_BAD_QUERY, KEYS_V2, true, "SignatureDoesNotMatch", AUTH_SIGNATURE},
    {"version 2, unknown key", V2_UNKNOWN, KEYS_V2, true, "InvalidAccessKeyId", AUTH_UNKNOWN_KEY},
    {"version 2, 16 minutes late", V2_OLD, KEYS_V2, true, "RequestTimeTooSkewed", AUTH_SKEW},
    {"version 2, unsigned field", V2_FIELD_ADDED, KEYS_V2, true, "SignatureDoesNotMatch",
     AUTH_SIGNATURE},
    {"version 2, session token", V2_TOKEN, KEYS_V2, true, "InvalidToken", AUTH_FORBIDDEN},
    {"version 2, the upstream's pair", V2_UPSTREAM, NO_KEYS_V2, false, BY_RW, AUTH_FORBIDDEN},
    {"version 2 presigned", V2_QUERY_RW, KEYS_V2, false, BY_RW, AUTH_FORBIDDEN},
    {"version 2 presigned, read-only key", V2_QUERY_RO, KEYS_V2, true, BY_RO, AUTH_FORBIDDEN},
    {"version 2 presigned, wrong", V2_QUERY_WRONG, KEYS_V2, true, "SignatureDoesNotMatch",
     AUTH_SIGNATURE},
    {"version 2 presigned, expired", V2_QUERY_EXPIRED, KEYS_V2, true, "AccessDenied", AUTH_EXPIRED},
    {"version 2 presigned, for too long", V2_QUERY_LONG, KEYS_V2, true, "AccessDenied",
     AUTH_EXPIRED},
    {"version 2 presigned, parameter added", V2_PARAMETER_ADDED, KEYS_V2, true,
     "SignatureDoesNotMatch", AUTH_SIGNATURE},
    {"V4A", V4A_HEADER, KEYS, true, "InvalidArgument", AUTH_FORBIDDEN},
    {"V4A presigned", V4A_QUERY, KEYS, true, "AuthorizationQueryParametersError", AUTH_FORBIDDEN},
    {"bearer", BEARER, KEYS, true, "InvalidArgument", AUTH_FORBIDDEN},
    {"unsigned x-amz field", FIELD_ADDED, KEYS, true, "AccessDenied", AUTH_FORBIDDEN},
    {"unsigned x-amz field, presigned", QUERY_FIELD_ADDED, KEYS, true, "AccessDenied",
     AUTH_FORBIDDEN},
    {"session token", TOKEN, KEYS, true, "InvalidToken", AUTH_FORBIDDEN},
    {"session of S3 Express", EXPRESS, KEYS, true, "NotImplemented", 0},
    {"the upstream's pair", HEADER_UPSTREAM, NO_KEYS, false, BY_RW, 0},
    {"the upstream's key, wrong", HEADER_UPSTREAM_WRONG, NO_KEYS, true, "SignatureDoesNotMatch",
     AUTH_SIGNATURE},
    {"nothing to verify with", HEADER_RW, NO_KEYS, false, "AccessDenied", AUTH_UNKNOWN_KEY},
    {"nothing at all to verify with", HEADER_RW, NOTHING, false, "AccessDenied", AUTH_UNKNOWN_KEY},
    {"nothing to verify with, anonymous range", HEADER_RW, NO_KEYS, true, BY_ANYONE,
     AUTH_FORBIDDEN},
    {"presigned elsewhere, anonymous range", QUERY_EXPIRED, NOTHING, true, BY_ANYONE,
     AUTH_FORBIDDEN},
};

static bool is_v2_row(const struct matrix_row *row)
{
    bool on = row->gate == KEYS_V2 || row->gate == NO_KEYS_V2;
    return on && (forms[row->form].by == BY_V2_HEADER || forms[row->form].by == BY_V2_QUERY ||
                  row->form == V2_BAD_QUERY);
}

static bool is_by_class(const struct matrix_row *row)
{
    return row->want[0] >= 'a';      /* codes begin with a capital */
}

static const char *wanted(const struct matrix_row *row, enum s3_operation op)
{
    unsigned class = route_of[op] / 2, needs = route_of[op] % 2;
    if (row->form == EXPRESS)        /* told before anything else, but to probes */
        return s3_operation_table[op].action == S3_PROBE ? "anonymous" : row->want;
    if (class == FOR_ALL)
        return "anonymous";
    if (is_v2_row(row) && needs == V4)
        return "InvalidRequest";
    if (!is_by_class(row))
        return row->want;
    switch (row->want[class]) {
    case 'o': return "ok";
    case 'a': return "anonymous";
    case 'd': return "AccessDenied";
    default: return "InvalidRequest";
    }
}

static bool is_unknown(enum s3_operation op)
{
    return op == UnknownRead || op == UnknownWrite;
}

static void check_cell(const struct matrix_row *row, enum s3_operation op)
{
    char target[200], fields[200];
    struct text t, f;
    const struct s3_operation_row *o = &s3_operation_table[op];
    const char *method = is_unknown(op) ? op == UnknownRead ? "GET" : "PUT"
                                        : http_method_text(o->method);
    text_init(&t, target, sizeof(target));
    text_init(&f, fields, sizeof(fields));
    if (is_unknown(op))
        text_adds(&t, op == UnknownRead ? "/bucket?future" : "/bucket/dir/key?future");
    else
        write_request(o, false, &t, &f);
    send_form(row->form, method, target, fields);
    open_gate(row->gate, row->anonymous);
    const char *have = verdict(), *want = wanted(row, op);
    if (strcmp(have, want) != 0)
        fail_msg("%s, %s: %s, not %s", o->name, row->name, have, want);
    assert_int_equal(ask.op, shown_as(op));
    bool good = strcmp(have, "ok") == 0 || strcmp(have, "anonymous") == 0;
    assert_int_equal(who.filtered, good && op == ListBuckets && is_by_class(row) &&
                                       row->want[SETTING] == 'd' && !who.anonymous);
    if (good || row->form == EXPRESS)
        return;
    assert_int_equal(who.reason, is_v2_row(row) && strcmp(have, "InvalidRequest") == 0
                                     ? AUTH_FORBIDDEN : row->reason);
    assert_no_canary();
}

static void every_route_by_every_form(void **state)
{
    bool tried[FORM_COUNT] = {false};
    unsigned cells = 0;
    (void)state;
    for (unsigned op = 0; op < S3_OPERATION_COUNT; op++)
        for (unsigned row = 0; row < ARRAY_COUNT(matrix); row++, cells++) {
            assert_true(!is_by_class(&matrix[row]) || strlen(matrix[row].want) == CLASS_COUNT);
            check_cell(&matrix[row], (enum s3_operation)op);
            tried[matrix[row].form] = true;
        }
    for (unsigned i = 0; i < FORM_COUNT; i++)
        assert_true(tried[i]);
    print_message("%u routes by %zu forms: %u cells\n", S3_OPERATION_COUNT, ARRAY_COUNT(matrix),
                  cells);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_by_every_form),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
