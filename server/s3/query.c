/* The keys of a query: which authenticate, which stand for fields, which are known; and what of a
 * query goes upstream. Pure.
 *
 * Invariants:
 *  1. A parameter x-amz-* is that field, as presigned URLs have it: judged as the field
 *     would be, and sent upstream as one, since our own signature stands in the head there.
 *  2. What authenticated the client goes nowhere, in whatever case its name is written.
 *  3. A fill sends none of the client's fields: what is answered from the cache has only such of a
 *     store's (x-amz-*, x-minio-*) without which the answer would be the same.
 *  4. Upstream gets the parameters that rights were judged by, however it reads them: names are
 *     escaped in one way only, and no value has a ';', which parts parameters to some stores.
 *
 * Life: results lie in the request's arena.
 * Failure: ERR_MEMORY; ERR_TOO_LARGE for more fields than there is room. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

const char *const s3_override_key[S3_OVERRIDE_COUNT] = {
    [S3_CONTENT_TYPE] = "response-content-type",
    [S3_CONTENT_LANGUAGE] = "response-content-language",
    [S3_EXPIRES] = "response-expires",
    [S3_CACHE_CONTROL] = "response-cache-control",
    [S3_CONTENT_DISPOSITION] = "response-content-disposition",
    [S3_CONTENT_ENCODING] = "response-content-encoding",
};

/* ---- names ---- */
static bool is_one_of(struct span name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (span_is(name, list[i]))
            return true;
    return false;
}

static bool is_amz(struct span name)
{
    return name.len > 6 && span_is_nocase(span_make(name.at, 6), "x-amz-");
}

static bool authenticates(struct span name, bool any_case)
{
    static const char *const v4[] = {
        "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders",
        "X-Amz-Signature", "X-Amz-Security-Token", "X-Amz-Content-Sha256",
    };
    static const char *const v2[] = {"AWSAccessKeyId", "Signature", "Expires"};
    for (size_t i = 0; any_case && i < ARRAY_COUNT(v4); i++)
        if (span_is_nocase(name, v4[i]))
            return true;
    return is_one_of(name, v4, ARRAY_COUNT(v4)) || is_one_of(name, v2, ARRAY_COUNT(v2));
}

bool s3_key_authenticates(struct span name)
{
    return authenticates(name, true);
}

bool s3_key_is_field(struct span name)
{
    return is_amz(name) && !s3_key_authenticates(name);
}

/* SDKs send these with each read, or a proxy before us does, and the answer is the same without
 * them. Any other field of that kind may be a question of its own to some store. */
static bool is_plain(struct span name)
{
    static const char *const plain[] = {
        "x-amz-date", "x-amz-content-sha256", "x-amz-checksum-mode", "x-amz-user-agent",
        "x-amz-api-version",         /* the SDK for C++, PyArrow among its users */
        "x-amz-security-token",
        "x-amz-te",                  /* the SDK for Java: an offer that a store may leave */
        "x-amz-trailer", "x-amz-decoded-content-length", /* of a body */
        "x-amz-cf-id",               /* CloudFront */
    };
    static const char sdk[] = "x-amz-sdk-";
    if (span_is_nocase(span_make(name.at, min_u64(name.len, sizeof(sdk) - 1)), sdk))
        return true;
    for (size_t i = 0; i < ARRAY_COUNT(plain); i++)
        if (span_is_nocase(name, plain[i]))
            return true;
    return false;
}

bool s3_fields_are_plain(const struct http_head *head)
{
    static const char minio[] = "x-minio-";
    for (unsigned i = 0; i < head->count; i++) {
        struct span name = head->field[i].name;
        struct span start = span_make(name.at, min_u64(name.len, sizeof(minio) - 1));
        if ((is_amz(name) && !is_plain(name)) || span_is_nocase(start, minio))
            return false;
    }
    return true;
}

/* Keys that change neither the operation nor what it shows beyond what is understood here. */
bool s3_key_is_known(enum s3_level level, struct span name)
{
    static const char *const of_list[] = {
        "prefix", "delimiter", "marker", "max-keys", "encoding-type", "list-type",
        "continuation-token", "start-after", "fetch-owner", "key-marker", "version-id-marker",
        "upload-id-marker", "max-uploads",
    };
    static const char *const of_service[] = {
        "prefix", "max-buckets", "continuation-token", "bucket-region", "max-directory-buckets",
    };
    static const char *const of_object[] = {"versionId", "partNumber"};
    if (span_is(name, "x-id") || authenticates(name, false) ||
        (s3_key_is_field(name) && is_plain(name)))
        return true;
    if (level == S3_SERVICE)
        return is_one_of(name, of_service, ARRAY_COUNT(of_service)) || is_amz(name);
    if (level == S3_BUCKET)
        return is_one_of(name, of_list, ARRAY_COUNT(of_list)) || is_amz(name);
    return is_one_of(name, of_object, ARRAY_COUNT(of_object)) ||
           is_one_of(name, s3_override_key, ARRAY_COUNT(s3_override_key));
}

/* ---- what goes upstream ---- */
/* The name of a pair, decoded into memory; empty when it is longer than any name of ours. */
static struct span name_of(const struct uri_pair *pair, char memory[HTTP_TARGET_BYTES_MAX])
{
    size_t len = 0;
    if (uri_decode(pair->name, true, memory, HTTP_TARGET_BYTES_MAX, &len) != OK)
        return span_of("");
    return span_make(memory, len);
}

/* A URL of Signature Version 2 carries these fields as parameters, too (botocore). */
static bool is_field_of_v2(const struct s3_ask *a, struct span name)
{
    return a->v2_query &&
           (span_is_nocase(name, "content-type") || span_is_nocase(name, "content-md5"));
}

/* Else as it came: a '+' is a blank to some stores. */
static void add_value(struct text *out, struct span value)
{
    while (value.len > 0) {
        size_t at = span_find(value, ';');
        text_add(out, span_make(value.at, at));
        text_adds(out, at < value.len ? "%3B" : "");
        value = span_from(value, min_u64(at + 1, value.len));
    }
}

enum err s3_query_relay(const struct s3_ask *a, struct arena *arena, struct span *out)
{
    struct span rest = a->query;
    struct uri_pair pair;
    struct text kept;
    char name[HTTP_TARGET_BYTES_MAX];
    size_t room = 3 * a->query.len + 1; /* each byte escaped */
    char *memory = arena_take(arena, room);
    if (!memory)
        return ERR_MEMORY;
    text_init(&kept, memory, room);
    while (uri_next_pair(&rest, &pair)) {
        struct span decoded = name_of(&pair, name);
        if (s3_key_authenticates(decoded) || s3_key_is_field(decoded) || is_field_of_v2(a, decoded))
            continue;
        text_adds(&kept, kept.len ? "&" : "");
        uri_encode(&kept, decoded, false);
        text_adds(&kept, pair.has_equals ? "=" : "");
        add_value(&kept, pair.value);
    }
    must(!kept.over);
    *out = text_span(&kept);
    return OK;
}

static enum err copy_decoded(struct span raw, struct arena *arena, struct span *out)
{
    size_t len = 0;
    char *memory = arena_take(arena, raw.len + 1);
    if (!memory)
        return ERR_MEMORY;
    TRY(uri_decode(raw, true, memory, raw.len, &len));
    memory[len] = 0;
    *out = span_make(memory, len);
    return OK;
}

enum err s3_query_fields(const struct s3_ask *a, struct arena *arena, struct http_field *out,
                         unsigned room, unsigned *count)
{
    struct span rest = a->query;
    struct uri_pair pair;
    char name[HTTP_TARGET_BYTES_MAX];
    *count = 0;
    if (!a->has_fields)
        return OK;
    while (uri_next_pair(&rest, &pair)) {
        struct span decoded = name_of(&pair, name);
        if (!s3_key_is_field(decoded) && !is_field_of_v2(a, decoded))
            continue;
        if (*count == room)
            return ERR_TOO_LARGE;
        struct http_field *f = &out[*count];
        TRY(copy_decoded(pair.name, arena, &f->name));
        if (http_find(a->head, f->name.at).at)
            continue;                /* the field says the same (s3_ask_read) */
        TRY(copy_decoded(pair.value, arena, &f->value));
        f->value = span_trim(f->value);
        (*count)++;
    }
    return OK;
}
