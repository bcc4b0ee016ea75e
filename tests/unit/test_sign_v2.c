/* Unit tests of common/sign_v2.c: the documentation's examples, vectors of botocore, and what
 * version 2 would not sign. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sign_v2.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define ACCESS "AKIDEXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

struct vector {
    const char *method, *target, *fields;
};
static struct http_head head;
static struct sign_claim claim;
static struct arena arena;
static const char *code, *why;
static char bytes[8 * KIB], arena_bytes[16 * KIB];

static struct secret secret_of(const char *text)
{
    struct secret s = {.len = (uint16_t)strlen(text)};
    memcpy(s.bytes, text, s.len);
    return s;
}

/* The verdict of everything but the clock. */
static enum err judge(const struct vector *v, const char *host, const char *secret)
{
    struct secret s = secret_of(secret);
    size_t used;
    int len = snprintf(bytes, sizeof(bytes), "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", v->method,
                       v->target, host, v->fields);
    assert_in_range(len, 1, sizeof(bytes) - 1);
    assert_int_equal(http_parse_request(bytes, (size_t)len, &head, &used), HTTP_OK);
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 0);
    code = why = "";
    assert_int_equal(sign_claim_read(&head, &arena, &claim, &code, &why), ERR_UNSUPPORTED);
    TRY(sign_v2_read(&head, &arena, &claim, &code, &why));
    if (span_starts(span_of(host), span_of("johnsmith.")))
        claim.bucket = span_of("johnsmith");
    return sign_claim_verify(&claim, &head, &s, NULL, NULL);
}

/* Made with botocore 1.29.27, HmacV1Auth and HmacV1QueryAuth, the clock at Unix time 1795166183. */
static const struct vector vectors[] = {
    {"GET",
     "/b/key",
     "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:7v/aJu7+"
     "7ya5ddVqOCfpPVGmiYk=\r\n"},
    {"GET",
     "/b/dir/a%20b%2Bc?versionId=abc%2F1&response-content-type=text%2Fplain",
     "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:1rxze4Hj"
     "UVgfa8dXH8hpJ2t+LvA=\r\n"},
    {"GET",
     "/b?list-type=2&prefix=a&delimiter=%2F",
     "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:ISGmF81+"
     "+8Vg8nbVUEBcQNRnj3Y=\r\n"},
    {"GET",
     "/b?acl",
     "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:cW61ioLm"
     "dUfeiQSjPq7JPEU/zXw=\r\n"},
    {"PUT",
     "/b/key",
     "Content-Type: text/plain\r\nContent-MD5: XrY7u+Ae7tCTyyK7j1rNww==\r\nx-amz-met"
     "a-b: two\r\nx-amz-meta-a: one\r\nx-amz-acl: private\r\nDate: Fri, 20 Nov 2026 "
     "09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:pniGv6qPb0Zx9+qx9Fs20UseawY=\r"
     "\n"},
    {"POST",
     "/b?delete",
     "Content-MD5: XrY7u+Ae7tCTyyK7j1rNww==\r\nDate: Fri, 20 Nov 2026 09:16:23 GMT\r"
     "\nAuthorization: AWS AKIDEXAMPLE:MtusKN1RkFJ8Y5v9YK3V4mX211M=\r\n"},
    {"PUT",
     "/b/key?partNumber=2&uploadId=abc-1",
     "Content-Type: binary/octet-stream\r\nDate: Fri, 20 Nov 2026 09:16:23 GMT\r\nAu"
     "thorization: AWS AKIDEXAMPLE:jcV9+xIYub/FE/quID82UXkL6OM=\r\n"},
    {"GET",
     "/",
     "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:tNvFP0ap"
     "zBuOlQkd21SUhISgIlE=\r\n"},
    {"HEAD",
     "/b/%C3%A9~x?partNumber=1",
     "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:ipXWQIac"
     "Te7AOwU9uU/0rX/jNVc=\r\n"},
    {"DELETE",
     "/b/key?versionId=null",
     "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:hPpcMWvX"
     "lp9FbOFpF3hMpl6oiMo=\r\n"},
    {"GET",
     "/b/key?AWSAccessKeyId=AKIDEXAMPLE&Signature=cqifvYObxp7RgZy1W73%2F4EGpVrM%3D&E"
     "xpires=1795167083",
     ""},
    {"GET",
     "/b/dir/a%20b%2Bc?versionId=abc%2F1&response-content-type=text%2Fplain&AWSAcces"
     "sKeyId=AKIDEXAMPLE&Signature=anl31MnniedZmvywKHBY4ElbZT0%3D&Expires=1795167083",
     ""},
    {"GET",
     "/b?list-type=2&prefix=a&delimiter=%2F&AWSAccessKeyId=AKIDEXAMPLE&Signature=QEw"
     "X7A5x8eYekFd5pXjSud22AYY%3D&Expires=1795167083",
     ""},
    {"GET",
     "/b?acl&AWSAccessKeyId=AKIDEXAMPLE&Signature=eHS%2Fv3M4dM1b%2Fq%2B5i03s1ostnB8%"
     "3D&Expires=1795167083",
     ""},
    {"PUT",
     "/b/key?AWSAccessKeyId=AKIDEXAMPLE&Signature=RY0GfQyJnvJahFnZ1ekIdNm6j4c%3D&con"
     "tent-type=text%2Fplain&content-md5=XrY7u%2BAe7tCTyyK7j1rNww%3D%3D&x-amz-meta-b"
     "=two&x-amz-meta-a=one&x-amz-acl=private&Expires=1795167083",
     ""},
    {"POST",
     "/b?delete&AWSAccessKeyId=AKIDEXAMPLE&Signature=4uM1ZO6maMHrl%2BgmDgZGhAg5RiU%3"
     "D&content-md5=XrY7u%2BAe7tCTyyK7j1rNww%3D%3D&Expires=1795167083",
     ""},
    {"PUT",
     "/b/key?partNumber=2&uploadId=abc-1&AWSAccessKeyId=AKIDEXAMPLE&Signature=YdUSiN"
     "hxnItkkkx1Dr2gaqFm3%2B4%3D&content-type=binary%2Foctet-stream&Expires=17951670"
     "83",
     ""},
    {"GET",
     "/?AWSAccessKeyId=AKIDEXAMPLE&Signature=BO6O8%2FHZwmp17MhfV9fFfp9xMuI%3D&Expire"
     "s=1795167083",
     ""},
    {"HEAD",
     "/b/%C3%A9~x?partNumber=1&AWSAccessKeyId=AKIDEXAMPLE&Signature=03V45ZCNkBBwJbcE"
     "UFTR9BeAos8%3D&Expires=1795167083",
     ""},
    {"DELETE",
     "/b/key?versionId=null&AWSAccessKeyId=AKIDEXAMPLE&Signature=0A11R3eJ8p6yhbUWc56"
     "Qc71qNZc%3D&Expires=1795167083",
     ""},
};

static void test_what_botocore_signs_is_accepted(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(vectors); i++) {
        if (judge(&vectors[i], "cache.local:9000", SECRET) != OK)
            fail_msg("%s %s: %s %s", vectors[i].method, vectors[i].target, code, why);
        assert_true(span_is(claim.access_key, ACCESS));
        assert_int_equal(judge(&vectors[i], "cache.local:9000", "another"), ERR_DENIED);
        if (claim.form == SIGN_V2_HEADER)
            assert_int_equal(claim.time_s, 1795166183);
        else
            assert_int_equal(claim.until_s, 1795166183 + 900);
    }
}

/* Is that byte of the query in a parameter that version 2 leaves unsigned (a list's page)? */
static bool is_free_byte(const char *target, size_t at)
{
    const char *mark = strchr(target, '?');
    struct span query = span_of(mark ? mark + 1 : "");
    struct uri_pair pair;
    while (uri_next_pair(&query, &pair)) {
        size_t from = (size_t)(pair.name.at - target);
        if (at >= from && at < from + pair.name.len + 1 + pair.value.len)
            return is_free_key(pair.name) && pair.name.at[0] >= 'a';
    }
    return false;
}

/* Of the path, a key or a value; not of an escape. */
static bool may_change(const char *target, size_t at)
{
    char c = target[at];
    bool plain = (c >= '0' && c <= '8') || (c >= 'a' && c <= 'y');
    return plain && target[at - 1] != '%' && (at < 2 || target[at - 2] != '%');
}

/* True when the request reads as one of ours. *good: it is accepted. */
static bool try_target(const struct vector *v, bool *good)
{
    struct secret s = secret_of(SECRET);
    size_t used;
    int n = snprintf(bytes, sizeof(bytes), "%s %s HTTP/1.1\r\nHost: h\r\n%s\r\n", v->method,
                     v->target, v->fields);
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 0);
    *good = false;
    if (http_parse_request(bytes, (size_t)n, &head, &used) != HTTP_OK ||
        sign_claim_read(&head, &arena, &claim, &code, &why) != ERR_UNSUPPORTED ||
        sign_v2_read(&head, &arena, &claim, &code, &why) != OK ||
        !span_is(claim.access_key, ACCESS))
        return false;
    *good = sign_claim_verify(&claim, &head, &s, NULL, NULL) == OK;
    return true;
}

static void test_a_changed_byte_is_refused(void **state)
{
    char target[KIB];
    unsigned refused = 0, same = 0;
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(vectors); i++)
        for (size_t at = 1; at < strlen(vectors[i].target); at++) {
            const struct vector v = {vectors[i].method, target, vectors[i].fields};
            bool good;
            snprintf(target, sizeof(target), "%s", vectors[i].target);
            if (!may_change(target, at))
                continue;
            target[at]++;
            if (try_target(&v, &good) && good != is_free_byte(target, at))
                fail_msg("%s: %s", good ? "accepted" : "refused", target);
            same += good;
            refused += !good;
        }
    assert_in_range(refused, 300, 100000);
    assert_in_range(same, 1, refused / 10);
}

static void test_the_documentation(void **state)
{
    static const struct {
        struct vector v;
        const char *host;
    } row[] = {
        {{"GET", "/photos/puppy.jpg", "Date: Tue, 27 Mar 2007 19:36:42 +0000\r\nAuthorization: AWS "
          "AKIAIOSFODNN7EXAMPLE:bWq2s1WEIj+Ydj0vQ697zp+IXMU=\r\n"},
         "johnsmith.s3.amazonaws.com"},
        {{"PUT", "/photos/puppy.jpg", "Content-Type: image/jpeg\r\nContent-Length: 94328\r\nDate: "
          "Tue, 27 Mar 2007 21:15:45 +0000\r\nAuthorization: AWS "
          "AKIAIOSFODNN7EXAMPLE:MyyxeRY7whkBe+bq8fHCL/2kKUg=\r\n"},
         "johnsmith.s3.amazonaws.com"},
        {{"GET", "/?prefix=photos&max-keys=50&marker=puppy", "Date: Tue, 27 Mar 2007 19:42:41 +0000"
          "\r\nAuthorization: AWS AKIAIOSFODNN7EXAMPLE:htDYFYduRNen8P9ZfE/s9SuKy0U=\r\n"},
         "johnsmith.s3.amazonaws.com"},
        {{"GET", "/?acl", "Date: Tue, 27 Mar 2007 19:44:46 +0000\r\nAuthorization: AWS "
          "AKIAIOSFODNN7EXAMPLE:c2WLPFtWHVgbEmeEG93a4cG37dM=\r\n"},
         "johnsmith.s3.amazonaws.com"},
        {{"GET", "/", "Date: Wed, 28 Mar 2007 01:29:59 +0000\r\nAuthorization: AWS "
          "AKIAIOSFODNN7EXAMPLE:qGdzdERIC03wnaRNKh6OqZehG9s=\r\n"},
         "s3.amazonaws.com"},
        {{"GET", "/dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re", "Date: Wed, 28 Mar 2007 01:49:49 "
          "+0000\r\nAuthorization: AWS AKIAIOSFODNN7EXAMPLE:DNEZGsoieTZ92F3bUfSPQcbGmlM=\r\n"},
         "s3.amazonaws.com"},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++)
        if (judge(&row[i].v, row[i].host, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY") != OK)
            fail_msg("%s %s: %s %s", row[i].v.method, row[i].v.target, code, why);
}

static void test_what_version_2_would_not_sign_is_refused(void **state)
{
#define DATE "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\n"
#define AUTH "Authorization: AWS " ACCESS ":7v/aJu7+7ya5ddVqOCfpPVGmiYk=\r\n"
#define URL(query) "/b/k?" query "&AWSAccessKeyId=A&Signature=x&Expires=1795166183"
    static const struct {
        const char *target, *fields, *code;
    } row[] = {
        {"/b/key?legal-hold", DATE AUTH, "InvalidRequest"},
        {"/b/key?renameObject&x-amz-rename-source=b%2Fx", DATE AUTH, "InvalidRequest"},
        {"/b/key?tomorrow=1", DATE AUTH, "InvalidRequest"},
        {"/b/key?content-type=a", DATE AUTH, "InvalidRequest"},
        {"/b/key?acl=x%26versionId%3D1", DATE AUTH, "InvalidRequest"},
        {"/b/key?response-content-type=a+b", DATE AUTH, "InvalidRequest"},
        {"/b/key?versionId=a%0ab", DATE AUTH, "InvalidRequest"},
        {"/b/key?x-amz-meta-a=a%0ax-amz-acl:b", DATE AUTH, "InvalidRequest"},
        {"/b/key", DATE AUTH "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n",
         "InvalidRequest"},
        {URL("x-amz-content-sha256=STREAMING-UNSIGNED-PAYLOAD-TRAILER"), "", "InvalidRequest"},
        {"/b/key", AUTH, "AccessDenied"},
        {"/b/key", "Date: yesterday\r\n" AUTH, "AccessDenied"},
        {"/b/key", DATE DATE AUTH, "AccessDenied"},
        {"/b/key", DATE "Authorization: AWS AK\r\n", "InvalidArgument"},
        {"/b/key", DATE "Authorization: AWS AK:\r\n", "InvalidArgument"},
        {"/b/key", DATE "Authorization: AWS :x\r\n", "InvalidArgument"},
        {"/b/key", DATE "Authorization: AWS A B:x\r\n", "InvalidArgument"},
        {"/b/key?AWSAccessKeyId=A&Signature=x", "", "AccessDenied"},
        {"/b/key?AWSAccessKeyId=A&Signature=x&Expires=soon", "", "AccessDenied"},
        {"/b/key?AWSAccessKeyId=A&Signature=x&Expires=", "", "AccessDenied"},
        {URL("Signature=y"), "", "AccessDenied"},
        {URL("Expires=1895166183"), "", "AccessDenied"},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        const struct vector v = {"GET", row[i].target, row[i].fields};
        assert_int_not_equal(judge(&v, "h", SECRET), OK);
        if (strcmp(code, row[i].code) != 0)
            fail_msg("%s %s: %s", row[i].target, row[i].fields, code);
    }
#undef URL
#undef AUTH
#undef DATE
}

/* boto3 asks for "/b" and signs "/b/". */
static void test_a_bucket_without_its_slash_may_be_signed_with_one(void **state)
{
#define FIELDS                                                                                     \
    "Date: Fri, 20 Nov 2026 09:16:23 GMT\r\nAuthorization: AWS AKIDEXAMPLE:"                       \
    "HgHNGpKHlE4+LNa3Bq8nrZGrjzQ=\r\n"
    const struct vector bare = {"GET", "/b?acl", FIELDS}, slash = {"GET", "/b/?acl", FIELDS};
    const struct vector key = {"GET", "/b//?acl", FIELDS}, other = {"GET", "/c?acl", FIELDS};
    (void)state;
    assert_int_equal(judge(&bare, "h", SECRET), OK);
    assert_int_equal(judge(&slash, "h", SECRET), OK);
    assert_int_equal(judge(&key, "h", SECRET), ERR_DENIED);
    assert_int_equal(judge(&other, "h", SECRET), ERR_DENIED);
#undef FIELDS
}

static void test_times_of_a_url(void **state)
{
    struct sign_claim c = {.form = SIGN_V2_QUERY, .until_s = 2000000};
    (void)state;
    assert_int_equal(sign_v2_times(&c, 2000000), OK);
    assert_int_equal(sign_v2_times(&c, 2000001), ERR_TIMEOUT);
    assert_int_equal(sign_v2_times(&c, 2000000 - 604800), OK);
    assert_int_equal(sign_v2_times(&c, 2000000 - 604801), ERR_TOO_LARGE);
}

static void test_fields_are_folded_as_signed(void **state)
{
    char memory[KIB], room_memory[KIB];
    struct text out, room;
    size_t used;
    (void)state;
    static const char request[] = "GET /b/k?X-Amz-Meta-C=%20x%2By%20&acl HTTP/1.1\r\nHost: h\r\n"
                                  "X-AMZ-Meta-B: 2 \r\nx-amz-meta-a: one\r\n"
                                  "x-amz-meta-b: 1\r\n\r\n";
    assert_int_equal(http_parse_request(request, sizeof(request) - 1, &head, &used), HTTP_OK);
    text_init(&out, memory, sizeof(memory));
    text_init(&room, room_memory, sizeof(room_memory));
    const struct sign_claim c = {.form = SIGN_V2_QUERY, .amz_date = span_of("99")};
    struct writer w = {.head = &head, .claim = &c, .out = &out, .room = &room};
    struct span path;
    uri_split(head.target, &path, &w.query);
    write_string(&w, path);
    assert_string_equal(out.at, "GET\n\n\n99\nx-amz-meta-a:one\nx-amz-meta-b:2,1\n"
                                "x-amz-meta-c:x+y\n/b/k?acl");
}

static void test_secrets_of_any_length(void **state)
{
    static const struct {
        unsigned len;
        const char *hex;
    } row[] = {                      /* RFC 2202, cases 1 and 6 */
        {20, "b617318655057264e28bc0b6fb378c8ef146be00"},
        {80, "aa4ae5e15272d00e95705637ce8a3b55ed402112"},
    };
    static const char *const data[] = {"Hi There",
                                       "Test Using Larger Than Block-Size Key - Hash Key First"};
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct secret s = {.len = (uint16_t)row[i].len};
        uint8_t digest[SHA_DIGEST_LENGTH];
        char hex[2 * SHA_DIGEST_LENGTH + 1] = {0};
        memset(s.bytes, i ? 0xaa : 0x0b, s.len);
        hmac_sha1(&s, span_of(data[i]), digest);
        hex_write(digest, sizeof(digest), hex);
        assert_string_equal(hex, row[i].hex);
    }
}

static int set_up_thread(void **state)
{
    (void)state;
    return sign_setup_thread() == OK ? 0 : -1;
}

static int end_thread(void **state)
{
    (void)state;
    sign_end_thread();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_botocore_signs_is_accepted),
        cmocka_unit_test(test_a_changed_byte_is_refused),
        cmocka_unit_test(test_the_documentation),
        cmocka_unit_test(test_what_version_2_would_not_sign_is_refused),
        cmocka_unit_test(test_a_bucket_without_its_slash_may_be_signed_with_one),
        cmocka_unit_test(test_times_of_a_url),
        cmocka_unit_test(test_fields_are_folded_as_signed),
        cmocka_unit_test(test_secrets_of_any_length),
    };
    return cmocka_run_group_tests(tests, set_up_thread, end_thread);
}
