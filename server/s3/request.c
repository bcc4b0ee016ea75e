/* What a client asks: operation, bucket, key, range, conditions, read from one request head. Pure.
 *
 * Invariants:
 *  1. Bucket and key are decoded once, here; rights, cache ids and upstream all use these bytes.
 *  2. Names of query keys are compared decoded and may stand once; so no other reader of the same
 *     query can find another sub-resource or another value than this one did. Who reads it behind
 *     the verdict decodes names, too (uri_name), or has it from s3_query_relay().
 *  3. What is answered from the cache carries only query keys and fields that are understood;
 *     anything else sets bypass, or is an operation that no anonymous or scoped client may use.
 *  4. Nothing is normalised: "a//b", "a/./b" and "/a" are keys of their own.
 *
 * Life: which operations a method has is listed once; a struct s3_ask borrows from its request's
 * head and arena and ends with them.
 *
 * What can fail: the request (then *error is what S3 answers) and the arena (503 SlowDown). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <strings.h>

#include "server/s3/s3.h"

enum {
    PAIRS_MAX = 128,                 /* query keys; as many as a signature covers */
    PART_NUMBER_MAX = 10000,
    VERSION_BYTES_MAX = 1024,
    KEYS_WEIGHT = 4,                 /* of a query key against a field, when rows compete */
};

const struct s3_operation_row s3_operation_table[S3_OPERATION_COUNT] = {
#define OPERATION(name, method, level, keys, header, action, label, text)                          \
    [name] = {#name, method, level, action, label, keys, header, text},
#include "table/s3_ops.h"
#undef OPERATION
};

struct pair {
    struct span name;                /* decoded */
    struct span value;               /* raw; decoded when field */
    bool field;                      /* x-amz-*: it stands for that field */
};
struct reader {
    const struct http_head *head;
    struct arena *arena;
    struct s3_ask *ask;
    struct s3_error *error;
    struct span raw_bucket, raw_key;
    bool virtual_host;               /* the bucket stands in Host */
    unsigned fields;                 /* of count, those that are fields */
    unsigned count;
    struct pair pair[PAIRS_MAX];
};

static struct s3_error no_error(const struct reader *r)
{
    return (struct s3_error){.resource = r->ask->path};
}

static enum err refuse(struct reader *r, uint16_t status, const char *code, const char *message)
{
    *r->error = no_error(r);
    r->error->status = status;
    r->error->code = code;
    r->error->message = message;
    return ERR_SYNTAX;
}

static enum err no_memory(struct reader *r)
{
    (void)refuse(r, 503, "SlowDown", "Please reduce your request rate.");
    r->error->retry_after_s = 1;
    return ERR_MEMORY;
}

static enum err bad_argument(struct reader *r, const char *name, struct span value, const char *why)
{
    (void)refuse(r, 400, "InvalidArgument", why);
    r->error->argument_name = span_of(name);
    r->error->argument_value = value;
    return ERR_SYNTAX;
}

static enum err bad_uri(struct reader *r)
{
    return refuse(r, 400, "InvalidURI", "Couldn't parse the specified URI.");
}

/* ---- the query ---- */
static enum err decode(struct reader *r, struct span raw, bool plus_is_space, struct span *out)
{
    size_t len = 0;
    char *memory = arena_take(r->arena, raw.len + 1);
    if (!memory)
        return no_memory(r);
    if (uri_decode(raw, plus_is_space, memory, raw.len, &len) != OK)
        return bad_uri(r);
    memory[len] = 0;
    *out = span_make(memory, len);
    return OK;
}

static const struct pair *find_pair(const struct reader *r, struct span name)
{
    for (unsigned i = 0; i < r->count; i++)
        if (span_eq(r->pair[i].name, name))
            return &r->pair[i];
    return NULL;
}

static bool needs_decoding(struct span raw)
{
    return span_find(raw, '%') < raw.len || span_find(raw, '+') < raw.len;
}

static bool starts_nocase(struct span text, const char *start)
{
    size_t len = strlen(start);
    return text.len >= len && span_is_nocase(span_make(text.at, len), start);
}

static bool same_nocase(struct span a, struct span b)
{
    return a.len == b.len && strncasecmp(a.at, b.at, a.len) == 0;
}

static bool is_printable(struct span text) /* no control byte: fit for a field's value */
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = (uint8_t)text.at[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool is_word(struct span name) /* the characters that names of x-amz-* fields have */
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.at[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '-' && c != '_' && c != '.')
            return false;
    }
    return true;
}

/* Twice the same: which one counts is anybody's guess, so nobody may guess. */
static enum err given_twice(struct reader *r, struct span name)
{
    (void)bad_argument(r, NULL, name, "A query parameter was given twice.");
    r->error->argument_name = name;
    return ERR_SYNTAX;
}

static enum err check_value(struct reader *r, struct pair *p)
{
    p->field = r->ask->has_fields = true;
    if (needs_decoding(p->value))
        TRY(decode(r, p->value, true, &p->value));
    if (is_printable(p->value))
        return OK;
    (void)bad_argument(r, NULL, p->value, "Header value must not contain control characters");
    r->error->argument_name = p->name;
    return ERR_SYNTAX;
}

/* A parameter that is a field becomes one here: a name and a value that a head may carry, and no
 * field beside it. */
static enum err check_field(struct reader *r, struct pair *p)
{
    if (!is_word(p->name))
        return bad_uri(r);
    if (++r->fields + r->head->count > HTTP_FIELDS_MAX)
        return refuse(r, 400, "RequestHeaderSectionTooLarge",
                      "Your request header section exceeds 100 fields, parameters x-amz-* among "
                      "them.");
    for (unsigned i = 0; i < r->count; i++)
        if (r->pair[i].field && same_nocase(r->pair[i].name, p->name))
            return given_twice(r, p->name);
    for (unsigned i = 0; i < r->head->count; i++)
        if (same_nocase(r->head->field[i].name, p->name))
            return given_twice(r, p->name);
    return check_value(r, p);
}

/* Content-Type and Content-MD5, which URLs of Signature Version 2 may carry, too. */
static enum err check_fields_of_v2(struct reader *r)
{
    static const char *const name[] = {"content-type", "content-md5"};
    for (unsigned i = 0; i < r->count; i++) {
        struct pair *p = &r->pair[i];
        for (unsigned n = 0; n < ARRAY_COUNT(name); n++) {
            struct span field = http_find(r->head, name[n]);
            if (!span_is_nocase(p->name, name[n]))
                continue;
            TRY(check_value(r, p));
            if (field.at && !span_eq(field, p->value))
                return given_twice(r, p->name);
        }
    }
    return OK;
}

static enum err read_pairs(struct reader *r)
{
    struct span rest = r->ask->query;
    struct uri_pair raw;
    while (uri_next_pair(&rest, &raw)) {
        struct pair p = {.name = raw.name, .value = raw.value};
        if (r->count == PAIRS_MAX)
            return refuse(r, 400, "InvalidRequest", "The query has more than 128 parameters.");
        if (needs_decoding(raw.name))
            TRY(decode(r, raw.name, true, &p.name));
        if (!uri_is_decodable(p.value)) /* also what is only passed on: it is to be signed */
            return bad_uri(r);
        if (find_pair(r, p.name))
            return given_twice(r, p.name);
        if (s3_key_is_field(p.name))
            TRY(check_field(r, &p));
        r->pair[r->count++] = p;
    }
    r->ask->v2_query = find_pair(r, span_of("AWSAccessKeyId"));
    if (r->ask->v2_query)
        TRY(check_fields_of_v2(r));
    return OK;
}

/* A field, or the query parameter that stands for it in a presigned URL; at == NULL when absent. */
static struct span find_value(const struct reader *r, const char *name)
{
    struct span value = http_find(r->head, name);
    if (value.at)
        return value;
    for (unsigned i = 0; i < r->count; i++)
        if (r->pair[i].field && span_is_nocase(r->pair[i].name, name))
            return r->pair[i].value.len ? r->pair[i].value : span_of("");
    return value;
}

/* ---- which bucket, which key ---- */
static void split_address(struct reader *r, const char *domain)
{
    struct span rest = span_from(r->ask->path, 1);
    r->raw_bucket = s3_bucket_of_host(r->head->host, domain);
    r->virtual_host = r->ask->virtual_host = r->raw_bucket.len > 0;
    if (!r->virtual_host)
        r->raw_bucket = span_cut(&rest, '/');
    r->raw_key = rest;
    if (r->raw_bucket.len == 0 && r->raw_key.len == 0)
        r->ask->level = S3_SERVICE;
    else
        r->ask->level = r->raw_key.len ? S3_OBJECT : S3_BUCKET;
}

/* Names of hosts have no case (RFC 9110 4.2.3), names of buckets have. */
static void lower(struct span text)
{
    char *at = (char *)(uintptr_t)text.at;
    for (size_t i = 0; i < text.len; i++)
        if (at[i] >= 'A' && at[i] <= 'Z')
            at[i] = (char)(at[i] + 32);
}

static enum err read_address(struct reader *r, const char *domain)
{
    struct s3_ask *a = r->ask;
    if (a->path.len == 0 || a->path.at[0] != '/') { /* only OPTIONS has "*" */
        a->level = S3_SERVICE;
        return OK;
    }
    split_address(r, domain);
    if (a->level == S3_SERVICE)
        return OK;
    TRY(decode(r, r->raw_bucket, false, &a->bucket));
    TRY(decode(r, r->raw_key, false, &a->key));
    if (r->virtual_host)
        lower(a->bucket);
    if (!span_is_utf8(a->bucket) || !span_is_utf8(a->key))
        return bad_uri(r);
    if (!s3_is_bucket_name(a->bucket)) {
        (void)refuse(r, 400, "InvalidBucketName", "The specified bucket is not valid.");
        r->error->bucket = a->bucket;
        return ERR_SYNTAX;
    }
    if (a->key.len > KEY_BYTES_MAX) {
        (void)refuse(r, 400, "KeyTooLongError", "Your key is too long");
        r->error->actual_size = a->key.len;
        r->error->max_size = KEY_BYTES_MAX;
        r->error->has_actual_size = r->error->has_max_size = true;
        return ERR_SYNTAX;
    }
    return OK;
}

/* ---- which operation ---- */
static bool has_paths(const struct s3_operation_row *row)
{
    return row->keys && row->keys[0] == '/';
}

static bool path_is_one_of(struct span path, const char *list)
{
    struct span rest = span_of(list);
    while (rest.len > 0) {
        struct span one = span_cut(&rest, '|');
        bool below = one.len > 1 && one.at[one.len - 1] == '/';
        if (below ? path.len > one.len && span_starts(path, one) : span_eq(path, one))
            return true;
    }
    return false;
}

/* Nothing of S3, and of no bucket: none can be called "-", and "minio/health/" is given up. */
static bool is_ours(const struct s3_operation_row *row)
{
    return row->action == S3_PROBE || row->action == S3_PLAN;
}

/* Compared decoded, as signatures are and as upstream will: "%32" is a 2. */
static bool value_is(struct span raw, struct span wanted)
{
    char memory[64];
    size_t len = 0;
    if (span_find(raw, '%') == raw.len)
        return span_eq(raw, wanted);
    return uri_decode(raw, true, memory, sizeof(memory), &len) == OK &&
           span_eq(span_make(memory, len), wanted);
}

/* How many keys of the row the query has; -1 unless it has all. */
static int count_keys(const struct reader *r, const char *keys)
{
    int count = 0;
    struct span rest = span_of(keys);
    while (rest.len > 0) {
        struct span value = span_cut(&rest, '&'), whole = value;
        struct span name = span_cut(&value, '=');
        const struct pair *p = find_pair(r, name);
        if (!p || (name.len < whole.len && !value_is(p->value, value)))
            return -1;
        count++;
    }
    return count;
}

static int count_headers(const struct reader *r, const char *headers)
{
    int count = 0;
    struct span rest = span_of(headers);
    while (rest.len > 0) {
        char name[64];
        struct span start = span_cut(&rest, ',');
        struct span word = span_cut(&start, '=');
        must(word.len < sizeof(name));
        memcpy(name, word.at, word.len);
        name[word.len] = 0;
        struct span value = find_value(r, name);
        char wanted[64] = {0};
        must(start.len < sizeof(wanted));
        if (start.len)
            memcpy(wanted, start.at, start.len);
        if (!value.at || !starts_nocase(value, wanted))
            return -1;
        count++;
    }
    return count;
}

/* A row of its method and level. 0: does not fit; else more for more keys and fields. */
static int weigh(const struct reader *r, const struct s3_operation_row *row)
{
    if (has_paths(row) && !path_is_one_of(r->ask->path, row->keys))
        return 0;
    if (row->keys && !has_paths(row) && r->count == 0)
        return 0;
    int keys = row->keys && !has_paths(row) ? count_keys(r, row->keys) : 0;
    int headers = keys >= 0 && row->header ? count_headers(r, row->header) : 0;
    return keys < 0 || headers < 0 ? 0 : 1 + keys * KEYS_WEIGHT + headers;
}

/* Which rows may fit: a request goes through a dozen instead of all of them, which are many lines
 * of memory. Made once, in the table's order. */
struct row_list {
    uint8_t count, row[S3_OPERATION_COUNT];
};
_Static_assert(S3_OPERATION_COUNT <= UINT8_MAX, "rows are counted in bytes");
static struct row_list own_rows[HTTP_METHOD_COUNT], rows_of[HTTP_METHOD_COUNT][S3_OBJECT + 1];

static void list_row(struct row_list *l, unsigned row)
{
    l->row[l->count++] = (uint8_t)row;
}

static void list_rows(void)
{
    for (unsigned i = 0; i < S3_OPERATION_COUNT; i++) {
        const struct s3_operation_row *row = &s3_operation_table[i];
        if (row->method >= HTTP_METHOD_COUNT) /* names for what fits no row */
            continue;
        if (is_ours(row))
            list_row(&own_rows[row->method], i);
        for (unsigned level = 0; !is_ours(row) && level <= S3_OBJECT; level++)
            if (has_paths(row) || row->level == level)
                list_row(&rows_of[row->method][level], i);
    }
}

static enum s3_operation find_row(const struct reader *r)
{
    const struct row_list *l = &rows_of[r->head->method][r->ask->level];
    enum s3_operation best = S3_OPERATION_COUNT;
    int best_weight = 0;
    for (unsigned i = 0; i < l->count; i++) {
        int weight = weigh(r, &s3_operation_table[l->row[i]]);
        if (weight > best_weight) {
            best_weight = weight;
            best = (enum s3_operation)l->row[i];
        }
    }
    return best;
}

/* What is ours wins over buckets. */
static bool find_ours(struct reader *r, const char *domain)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct row_list *l = &own_rows[r->head->method];
    pthread_once(&once, list_rows);
    if (s3_bucket_of_host(r->head->host, domain).len > 0)
        return false;
    for (unsigned i = 0; i < l->count; i++) {
        if (path_is_one_of(r->ask->path, s3_operation_table[l->row[i]].keys)) {
            r->ask->op = (enum s3_operation)l->row[i];
            r->ask->level = S3_SERVICE;
            return true;
        }
    }
    return false;
}

/* The key by which a row is told apart, or nothing: keys with a value are parameters. */
static struct span sub_resource_of(const struct s3_operation_row *row)
{
    struct span rest = span_of(has_paths(row) ? NULL : row->keys);
    struct span first = span_cut(&rest, '&');
    return span_find(first, '=') < first.len ? (struct span){NULL, 0} : first;
}

static bool row_has_key(const struct s3_operation_row *row, struct span name)
{
    struct span rest = span_of(has_paths(row) ? NULL : row->keys);
    while (rest.len > 0) {
        struct span key = span_cut(&rest, '&');
        key.len = span_find(key, '=');
        if (span_eq(key, name))
            return true;
    }
    return false;
}

/* Bits of the methods that a level has for a sub-resource; "" = for the thing itself. */
static unsigned methods_of(enum s3_level level, struct span sub)
{
    unsigned methods = 0;
    for (unsigned i = 0; i < S3_OPERATION_COUNT; i++) {
        const struct s3_operation_row *row = &s3_operation_table[i];
        bool fits = sub.len ? span_eq(sub_resource_of(row), sub) : !row->keys && !row->header;
        if (row->level == level && row->method < HTTP_METHOD_COUNT && fits)
            methods |= 1u << row->method;
    }
    return methods;
}

static enum err bad_method(struct reader *r, unsigned methods)
{
    static const char *const type[] = {"SERVICE", "BUCKET", "OBJECT"};
    char memory[64];
    struct text allow;
    text_init(&allow, memory, sizeof(memory));
    for (unsigned m = 0; m < HTTP_METHOD_COUNT; m++)
        if (methods & 1u << m) {
            text_adds(&allow, allow.len ? ", " : "");
            text_adds(&allow, http_method_text((enum http_method)m));
        }
    struct span copy = arena_copy(r->arena, text_span(&allow));
    if (!copy.at)
        return no_memory(r);
    (void)refuse(r, 405, "MethodNotAllowed",
                 "The specified method is not allowed against this resource.");
    r->error->method = r->head->method_text;
    r->error->resource_type = span_of(type[r->ask->level]);
    r->error->allow = copy;
    return ERR_SYNTAX;
}

/* Sub-resources that the chosen row does not have: two at once, a method or a companion missing. */
static enum err check_sub_resources(struct reader *r)
{
    const struct s3_ask *a = r->ask;
    const struct s3_operation_row *row =
        a->op < S3_OPERATION_COUNT ? &s3_operation_table[a->op] : NULL;
    for (unsigned i = 0; i < r->count; i++) {
        struct span name = r->pair[i].name;
        unsigned methods = name.len ? methods_of(a->level, name) : 0;
        if (methods == 0 || (row && row_has_key(row, name)))
            continue;
        if (row && sub_resource_of(row).len > 0)
            return bad_argument(r, "ResourceType", name, "Conflicting query string parameters");
        if (!(methods & 1u << r->head->method))
            return bad_method(r, methods);
        return bad_argument(r, "ResourceType", name,
                            "A parameter or header that belongs to this sub-resource is missing");
    }
    return row ? OK : bad_method(r, methods_of(a->level, span_of("")));
}

/* ?location takes no parameters; what else is relayed now is a kind of list. */
static bool is_understood(const struct s3_ask *a, struct span name)
{
    if (row_has_key(&s3_operation_table[a->op], name))
        return true;
    if (a->op == GetBucketLocation && !starts_nocase(name, "x-amz-"))
        return span_is(name, "x-id") || s3_key_authenticates(name);
    return s3_key_is_known(a->level, name);
}

/* A key that no row and no list knows may name a sub-resource of tomorrow. */
static void judge_unknown_keys(struct reader *r)
{
    struct s3_ask *a = r->ask;
    const struct s3_operation_row *row = &s3_operation_table[a->op];
    bool read = row->method == HTTP_GET || row->method == HTTP_HEAD;
    bool list = a->op == ListObjectsV2 || a->op == ListObjectVersions ||
                a->op == ListMultipartUploads || a->op == GetBucketLocation;
    bool sub = row->keys && !list;   /* parameters of a sub-resource are upstream's to judge */
    if (row->method == HTTP_OPTIONS || row->action == S3_REFUSE)
        return;
    for (unsigned i = 0; i < r->count; i++) {
        struct span name = r->pair[i].name;
        bool field = r->pair[i].field, serve = row->action == S3_SERVE;
        if (is_understood(a, name) || (field && !serve))
            continue;
        if (serve || sub) {          /* nothing of a field is unknown: it is one of the request */
            a->bypass = true;
            a->unknown_query = a->unknown_query || !field;
            continue;
        }
        a->op = read ? UnknownRead : UnknownWrite;
        return;
    }
}

static bool is_form(struct span type)
{
    return starts_nocase(span_trim(type), "multipart/form-data");
}

/* A browser's form, in any field or parameter that goes upstream as the type. */
static bool has_form(const struct reader *r)
{
    static const char name[] = "content-type";
    struct span value;
    unsigned at = 0;
    while (http_next(r->head, name, &at, &value))
        if (is_form(value))
            return true;
    for (unsigned i = 0; i < r->count; i++)
        if (r->pair[i].field && span_is_nocase(r->pair[i].name, name) && is_form(r->pair[i].value))
            return true;
    return false;
}

/* Some stores (Ceph of old) write the object that a form names whatever the query says: no form
 * goes upstream, not even where its type would be that of an object that is uploaded in parts. */
static enum err read_operation(struct reader *r)
{
    struct s3_ask *a = r->ask;
    a->op = find_row(r);
    TRY(check_sub_resources(r));
    judge_unknown_keys(r);
    if (r->head->method == HTTP_POST && s3_operation_table[a->op].action != S3_REFUSE &&
        has_form(r))
        a->op = PostObject;
    return OK;
}

/* ---- what goes with it ---- */
static enum err read_part_number(struct reader *r, struct span raw)
{
    static const char why[] = "Part number must be an integer between 1 and 10000, inclusive";
    uint64_t n = 0;
    if (span_u64(raw, &n) != OK || n < 1 || n > PART_NUMBER_MAX)
        return bad_argument(r, "partNumber", raw, why);
    r->ask->part_number = (uint32_t)n;
    return OK;
}

static enum err read_version(struct reader *r, struct span raw)
{
    struct s3_ask *a = r->ask;
    if (raw.len == 0)
        return bad_argument(r, "versionId", raw, "Version id cannot be the empty string");
    TRY(decode(r, raw, true, &a->version));
    if (a->version.len > VERSION_BYTES_MAX || !is_printable(a->version) ||
        !span_is_utf8(a->version))
        return bad_argument(r, "versionId", a->version, "Invalid version id specified");
    return OK;
}

static enum err read_override(struct reader *r, unsigned which, struct span raw)
{
    struct span value;
    if (raw.len == 0)
        return OK;
    TRY(decode(r, raw, true, &value));
    if (!is_printable(value))
        return bad_argument(r, s3_override_key[which], value,
                            "Header value must not contain control characters");
    r->ask->overrides[which] = value;
    r->ask->has_override = true;
    return OK;
}

/* An empty one names no upload to some stores (Ceph), which take the request for one about the
 * object: it would be written or removed without anybody here knowing. */
static enum err read_upload(struct reader *r, struct span raw)
{
    if (raw.len == 0)
        return bad_argument(r, "uploadId", raw, "Upload id cannot be the empty string");
    return decode(r, raw, true, &r->ask->upload_id);
}

static enum err read_object_keys(struct reader *r)
{
    const struct pair *p;
    if ((p = find_pair(r, span_of("versionId"))) != NULL)
        TRY(read_version(r, p->value));
    if ((p = find_pair(r, span_of("partNumber"))) != NULL)
        TRY(read_part_number(r, p->value));
    if ((p = find_pair(r, span_of("uploadId"))) != NULL)
        TRY(read_upload(r, p->value));
    if (s3_operation_table[r->ask->op].action != S3_SERVE)
        return OK;
    for (unsigned i = 0; i < S3_OVERRIDE_COUNT; i++)
        if ((p = find_pair(r, span_of(s3_override_key[i]))) != NULL)
            TRY(read_override(r, i, p->value));
    return OK;
}

static enum err read_prefix(struct reader *r)
{
    const struct pair *p = find_pair(r, span_of("prefix"));
    if (!p)
        return OK;
    TRY(decode(r, p->value, true, &r->ask->prefix));
    r->ask->prefix_ambiguous = span_find(p->value, '+') < p->value.len;
    return OK;
}

/* A field that may stand once; nothing when absent or empty. */
static enum err read_field(struct reader *r, const char *name, struct span *out)
{
    struct span value, again;
    unsigned at = 0;
    if (!http_next(r->head, name, &at, &value))
        return OK;
    if (http_next(r->head, name, &at, &again))
        return bad_argument(r, name, again, "A header that may stand once was given twice.");
    if (value.len > 0)
        *out = value;
    return OK;
}

/* Rights and doubt look at one source: upstream must not find another. */
static enum err read_source(struct reader *r, const char *name)
{
    struct span value;
    unsigned at = 0;
    if (http_next(r->head, name, &at, &value) && http_next(r->head, name, &at, &value))
        return bad_argument(r, name, value, "A header that may stand once was given twice.");
    value = find_value(r, name);
    if (!value.at)
        return OK;
    if (r->ask->source.at)
        return bad_argument(r, name, value, "Two sources: one to copy and one to rename.");
    r->ask->source = value;
    return OK;
}

/* What some stores take for a change of other objects than the key's: an archive that they unpack
 * into the bucket, all that lies below a name. */
static void judge_wide(struct reader *r)
{
    struct s3_ask *a = r->ask;
    bool unknown = a->op == UnknownWrite && a->level == S3_BUCKET;
    bool many = a->level == S3_OBJECT && (find_value(r, "x-amz-meta-snowball-auto-extract").at ||
                                          find_value(r, "x-minio-force-delete").at);
    a->wide = s3_operation_table[a->op].action == S3_WRITE && (unknown || many);
}

/* Words that we do not know are other caches', or other versions'. Of two that contradict each
 * other the later one counts. */
static uint8_t read_hints(struct span words)
{
    uint8_t hint = 0;
    while (words.len > 0) {
        struct span word = span_trim(span_cut(&words, ','));
        if (span_is_nocase(word, "once"))
            hint |= HINT_ONCE;
        else if (span_is_nocase(word, "sequential"))
            hint = (uint8_t)((hint | HINT_SEQUENTIAL) & ~HINT_RANDOM);
        else if (span_is_nocase(word, "random"))
            hint = (uint8_t)((hint | HINT_RANDOM) & ~HINT_SEQUENTIAL);
        else if (span_is_nocase(word, "prefetch"))
            hint |= HINT_PREFETCH;
    }
    return hint;
}

static enum err read_fields(struct reader *r)
{
    struct s3_ask *a = r->ask;
    TRY(read_field(r, "range", &a->range));
    TRY(read_field(r, "if-match", &a->if_match));
    TRY(read_field(r, "if-none-match", &a->if_none_match));
    TRY(read_field(r, "if-modified-since", &a->if_modified_since));
    TRY(read_field(r, "if-unmodified-since", &a->if_unmodified_since));
    TRY(read_field(r, "if-range", &a->if_range));
    if (a->part_number && a->range.len && s3_operation_table[a->op].action == S3_SERVE)
        return refuse(r, 400, "InvalidRequest",
                      "Cannot specify both Range header and partNumber query parameter");
    a->checksum_mode = span_is_nocase(find_value(r, "x-amz-checksum-mode"), "enabled");
    a->hint = read_hints(http_find(r->head, "x-headpond-hint"));
    TRY(read_source(r, "x-amz-copy-source"));
    TRY(read_source(r, "x-amz-rename-source"));
    if (find_value(r, "x-amz-s3session-token").at)
        return refuse(r, 501, "NotImplemented",
                      "Sessions of S3 Express (x-amz-s3session-token) are not implemented. Use a "
                      "client that signs each request, and a general purpose bucket.");
    return OK;
}

/* SSE-C bytes belong to whoever has the key; owner and payer are checked by the store alone. */
static void judge_bypass(struct reader *r)
{
    static const char *const field[] = {
        "x-amz-server-side-encryption-customer-algorithm",
        "x-amz-server-side-encryption-customer-key",
        "x-amz-server-side-encryption-customer-key-md5",
        "x-amz-expected-bucket-owner",
        "x-amz-request-payer",
        "origin",                    /* the bucket's CORS rules answer it */
    };
    for (unsigned i = 0; i < ARRAY_COUNT(field); i++)
        r->ask->bypass |= find_value(r, field[i]).at != NULL;
    if (s3_operation_table[r->ask->op].action == S3_SERVE && !s3_fields_are_plain(r->head))
        r->ask->bypass = true;
}

enum err s3_ask_read(const struct http_head *head, const char *domain, struct arena *arena,
                     struct s3_ask *out, struct s3_error *error)
{
    struct reader r;                 /* pair[] is left as it is: count says what holds */
    r.head = head;
    r.arena = arena;
    r.ask = out;
    r.error = error;
    r.raw_bucket = r.raw_key = (struct span){NULL, 0};
    r.virtual_host = false;
    r.count = r.fields = 0;
    *out = (struct s3_ask){.op = S3_OPERATION_COUNT, .head = head};
    uri_split(head->target, &out->path, &out->query);
    bool ours = find_ours(&r, domain);
    if (ours && s3_operation_table[out->op].action == S3_PROBE)
        return OK;
    TRY(read_pairs(&r));
    if (ours)
        return read_fields(&r);
    TRY(read_address(&r, domain));
    TRY(read_operation(&r));
    if (out->level == S3_OBJECT)
        TRY(read_object_keys(&r));
    else
        TRY(read_prefix(&r));
    TRY(read_fields(&r));
    judge_bypass(&r);
    judge_wide(&r);
    return OK;
}

void s3_not_implemented(const struct s3_ask *a, struct arena *arena, struct s3_error *error)
{
    const struct s3_operation_row *row = &s3_operation_table[a->op];
    struct span message =
        arena_printf(arena, "%s (%s) is not implemented: headpond " HEADPOND_VERSION
                            " does not support it.", row->name, row->text);
    *error = (struct s3_error){.status = 501, .code = "NotImplemented", .resource = a->path};
    error->message = message.at ? message.at : "This operation is not implemented.";
}
