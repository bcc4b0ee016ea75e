/* The client's side of a signature: takes a request's authentication apart and verifies it. Pure.
 *
 * Invariants:
 *  1. There is one way to an accepted claim: sign_claim_verify() compared all digits in constant
 *     time.
 *  2. Whatever would be used twice is refused: two mechanisms, a repeated X-Amz-* parameter of the
 *     signature, a repeated date.
 *  3. host and every x-amz-* field that a request carries are signed, in both forms, and what
 *     other stores read in their place (sign_is_due); so nobody who holds a presigned URL can add a
 *     copy source, an ACL or a tag to it.
 *  4. A day key enters the cache only behind an accepted claim, so that strangers cannot empty it.
 * Life: a claim borrows from the head and the arena of its request and ends with them.
 * Failure: the caller gets the S3 error's code and sentence; checks run in S3's order.
 * Limits: here only Signature Version 4 with HMAC is taken apart; Version 2 has sign_v2.c, and 4A
 * is recognised and refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sign.h"

enum {
    SIGNED_NAMES_MAX = HTTP_FIELDS_MAX,
    QUERY_PAIRS_MAX = 128,           /* as many as sign_canonical() takes */
    REGION_BYTES_MAX = 63,
    EXPIRES_S_MAX = 7 * 86400,
    CANONICAL_ROOM_BYTES = 48 * KIB,
};

enum param {
    PARAM_ALGORITHM, PARAM_CREDENTIAL, PARAM_DATE, PARAM_EXPIRES, PARAM_SIGNED_HEADERS,
    PARAM_SIGNATURE, PARAM_TOKEN, PARAM_SHA256, PARAM_V2_KEY, PARAM_V2_SIGNATURE, PARAM_V2_EXPIRES,
    PARAM_COUNT
};
static const char *const param_name[PARAM_COUNT] = {
    "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders",
    "X-Amz-Signature", "X-Amz-Security-Token", "X-Amz-Content-Sha256",
    "AWSAccessKeyId", "Signature", "Expires",
};
enum { PARAM_NAME_BYTES_MAX = 32 };

struct reader {
    const struct http_head *head;
    struct arena *arena;
    struct sign_claim claim;
    const char *code, *why;          /* of the failure */
    const char *malformed;           /* the code for bad pieces of this form */
    struct span param[PARAM_COUNT];  /* raw; at == NULL: not given */
    bool param_twice;                /* an X-Amz-* one */
    unsigned pair_count, authorization_count;
    struct span authorization;
};

static enum err refuse(struct reader *r, enum err e, const char *code, const char *why)
{
    r->code = code;
    r->why = why;
    return e;
}

static enum err bad_argument(struct reader *r, const char *argument, const char *why)
{
    r->claim.argument = argument;
    return refuse(r, ERR_SYNTAX, "InvalidArgument", why);
}

/* ---- what is there ---- */
/* Compared decoded: whoever escapes a letter of X-Amz-Signature means the same parameter. */
static int param_of(struct span raw)
{
    char memory[PARAM_NAME_BYTES_MAX];
    struct span name = raw;
    size_t len = 0;
    if (span_find(raw, '%') < raw.len) {
        if (uri_decode(raw, true, memory, sizeof(memory), &len) != OK)
            return -1;               /* too long to be one of ours, or not well encoded */
        name = span_make(memory, len);
    }
    for (int i = 0; i < PARAM_COUNT; i++)
        if (span_is(name, param_name[i]))
            return i;
    return -1;
}

static void find_params(struct reader *r)
{
    struct span path, query;
    struct uri_pair pair;
    uri_split(r->head->target, &path, &query);
    while (uri_next_pair(&query, &pair)) {
        r->pair_count++;
        int i = param_of(pair.name);
        if (i < 0)
            continue;
        r->param_twice = r->param_twice || (i < PARAM_V2_KEY && r->param[i].at);
        r->param[i] = pair.value.at ? pair.value : span_of("");
    }
}

static bool given(const struct reader *r, enum param p)
{
    return r->param[p].at != NULL;
}

static struct span algorithm_of(struct span authorization)
{
    return span_make(authorization.at, span_find(authorization, ' '));
}

static enum sign_form header_form(struct span authorization)
{
    struct span algorithm = algorithm_of(authorization);
    if (span_is(algorithm, "AWS4-HMAC-SHA256"))
        return SIGN_V4_HEADER;
    if (span_is(algorithm, "AWS4-ECDSA-P256-SHA256"))
        return SIGN_V4A;
    return span_is(algorithm, "AWS") ? SIGN_V2_HEADER : SIGN_OTHER;
}

static enum sign_form form_of(const struct reader *r)
{
    bool v4 = given(r, PARAM_ALGORITHM) || given(r, PARAM_CREDENTIAL) || given(r, PARAM_EXPIRES) ||
              given(r, PARAM_SIGNED_HEADERS) || given(r, PARAM_SIGNATURE);
    bool v2 = given(r, PARAM_V2_KEY) || given(r, PARAM_V2_SIGNATURE) || given(r, PARAM_V2_EXPIRES);
    if (r->authorization_count > 1 || (r->authorization_count == 1 && (v4 || v2)))
        return SIGN_TWICE;
    if (v4)
        return span_is(r->param[PARAM_ALGORITHM], "AWS4-ECDSA-P256-SHA256") ? SIGN_V4A
                                                                            : SIGN_V4_QUERY;
    if (v2)
        return SIGN_V2_QUERY;
    return r->authorization_count == 1 ? header_form(r->authorization) : SIGN_ANONYMOUS;
}

/* ---- dates ---- */
static bool read_digits(struct span text, size_t at, size_t len, unsigned *out)
{
    unsigned n = 0;
    for (size_t i = at; i < at + len; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        n = n * 10 + (unsigned)(text.at[i] - '0');
    }
    *out = n;
    return true;
}

/* Days since 1970-01-01 (Hinnant's days_from_civil), for years from 1970. */
static uint64_t days_of(unsigned year, unsigned month, unsigned day)
{
    uint64_t y = month <= 2 ? year - 1 : year;
    uint64_t era = y / 400, of_era = y % 400;
    uint64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static unsigned days_in_month(unsigned year, unsigned month)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

/* YYYYMMDDTHHMMSSZ */
static enum err read_iso_date(struct span text, uint64_t *unix_s)
{
    unsigned year, month, day, hour, minute, second;
    if (text.len != 16 || text.at[8] != 'T' || text.at[15] != 'Z')
        return ERR_SYNTAX;
    if (!read_digits(text, 0, 4, &year) || !read_digits(text, 4, 2, &month) ||
        !read_digits(text, 6, 2, &day) || !read_digits(text, 9, 2, &hour) ||
        !read_digits(text, 11, 2, &minute) || !read_digits(text, 13, 2, &second))
        return ERR_SYNTAX;
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) ||
        hour > 23 || minute > 59 || second > 59)
        return ERR_SYNTAX;
    *unix_s = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    return OK;
}

/* A field that may stand once; at == NULL when absent. */
static enum err single_field(const struct http_head *head, const char *name, struct span *out)
{
    struct span again;
    unsigned at = 0;
    *out = (struct span){NULL, 0};
    if (!http_next(head, name, &at, out))
        return OK;
    return http_next(head, name, &at, &again) ? ERR_SYNTAX : OK;
}

/* RFC 9110, or with the zone of a mail's date, as clients of Signature Version 2 write it. */
static enum err read_mail_date(struct span text, uint64_t *unix_s)
{
    static const char zone[] = " +0000", gmt[] = " GMT";
    char memory[HTTP_DATE_BYTES + 1];
    size_t len = text.len - (sizeof(zone) - 1);
    if (text.len < sizeof(zone) || !span_is(span_from(text, len), zone))
        return text.at ? http_date_read(text, unix_s) : ERR_SYNTAX;
    if (len + sizeof(gmt) > sizeof(memory))
        return ERR_SYNTAX;
    memcpy(memory, text.at, len);
    memcpy(memory + len, gmt, sizeof(gmt));
    return http_date_read(span_of(memory), unix_s);
}

enum err sign_date_of_head(const struct http_head *head, struct span *text, uint64_t *unix_s)
{
    TRY(single_field(head, "x-amz-date", text));
    if (!text->at)
        TRY(single_field(head, "date", text));
    if (read_iso_date(*text, unix_s) == OK)
        return OK;
    return read_mail_date(*text, unix_s);
}

/* X-Amz-Date, else Date; Date may be an RFC 9110 date, which is signed in its ISO form. */
static enum err read_header_date(struct reader *r)
{
    static const char why[] = "AWS authentication requires a valid Date or x-amz-date header";
    uint64_t ignored;
    if (sign_date_of_head(r->head, &r->claim.amz_date, &r->claim.time_s) != OK)
        return refuse(r, ERR_DENIED, "AccessDenied", why);
    if (read_iso_date(r->claim.amz_date, &ignored) == OK)
        return OK;
    if (http_find(r->head, "x-amz-date").at)
        return refuse(r, ERR_DENIED, "AccessDenied", why);
    char *iso = arena_take(r->arena, 17);
    if (!iso)
        return refuse(r, ERR_MEMORY, "SlowDown", "Please reduce your request rate.");
    sign_date_write(r->claim.time_s, iso);
    r->claim.amz_date = span_make(iso, 16);
    return OK;
}

/* ---- pieces of both forms ---- */
static enum err read_credential(struct reader *r, struct span text)
{
    static const char why[] = "The Credential is mal-formed; expecting "
                              "\"<YOUR-AKID>/YYYYMMDD/REGION/s3/aws4_request\".";
    struct span part[4];             /* from the right, as an access key may contain slashes */
    struct span left = text;
    for (unsigned i = 0; i < ARRAY_COUNT(part); i++) {
        size_t at = left.len;
        while (at > 0 && left.at[at - 1] != '/')
            at--;
        if (at == 0)
            return refuse(r, ERR_SYNTAX, r->malformed, why);
        part[i] = span_from(left, at);
        left.len = at - 1;
    }
    unsigned day;
    if (span_is(part[1], "s3express"))
        return refuse(r, ERR_UNSUPPORTED, "NotImplemented",
                      "Sessions of S3 Express are not implemented: the credential's scope names "
                      "the service s3express, it must be s3.");
    if (!span_is(part[1], "s3"))
        return refuse(r, ERR_SYNTAX, r->malformed,
                      "Incorrect service: the credential's scope must name the service \"s3\", "
                      "DATE/REGION/s3/aws4_request.");
    if (left.len == 0 || !span_is(part[0], "aws4_request") ||
        part[2].len > REGION_BYTES_MAX || part[3].len != 8 || !read_digits(part[3], 0, 8, &day))
        return refuse(r, ERR_SYNTAX, r->malformed, why);
    if (memcmp(part[3].at, r->claim.amz_date.at, 8) != 0)
        return refuse(r, ERR_SYNTAX, r->malformed,
                      "Invalid credential date: it is not the date of the request.");
    r->claim.access_key = left;
    r->claim.date = part[3];
    r->claim.region = part[2];
    r->claim.scope = span_from(text, left.len + 1);
    return OK;
}

static bool is_field_name(struct span name)
{
    static const bool token[256] = {
        ['a' ... 'z'] = true, ['0' ... '9'] = true, ['!'] = true, ['#'] = true, ['$'] = true,
        ['%'] = true, ['&'] = true, ['\''] = true, ['*'] = true, ['+'] = true, ['-'] = true,
        ['.'] = true, ['^'] = true, ['_'] = true, ['`'] = true, ['|'] = true, ['~'] = true,
    };
    for (size_t i = 0; i < name.len; i++)
        if (!token[(uint8_t)name.at[i]])
            return false;
    return name.len > 0;
}

static bool same_name(struct span lower, struct span any)
{
    if (lower.len != any.len)
        return false;
    for (size_t i = 0; i < any.len; i++) {
        char c = any.at[i];
        if (lower.at[i] != (c >= 'A' && c <= 'Z' ? (char)(c + 32) : c))
            return false;
    }
    return true;
}

static bool is_listed(const struct span *name, unsigned count, struct span field)
{
    for (unsigned i = 0; i < count; i++)
        if (same_name(name[i], field))
            return true;
    return false;
}

static enum err not_signed(struct reader *r, struct span name)
{
    r->claim.not_signed = name;
    return refuse(r, ERR_DENIED, "AccessDenied",
                  "There were headers present in the request which were not signed");
}

static bool begins(struct span name, const char *start)
{
    size_t len = strlen(start);
    return name.len > len && span_is_nocase(span_make(name.at, len), start);
}

bool sign_is_source(struct span name)
{
    static const char end[] = "-copy-source";
    size_t len = sizeof(end) - 1;
    return name.len > len && span_is_nocase(span_from(name, name.len - len), end);
}

/* What other clouds call their x-amz-*, and what Ceph takes for one, to its end: metadata, keys of
 * encryption. */
static bool is_foreign(struct span name)
{
    static const char *const start[] = {
        "x-goog-", "x-oss-", "x-cos-", "x-obs-", "x-tos-", "x-bce-", "x-kss-",
        "x-rgw-", "x-dho-", "x-object-", "x-container-", "x-account-",
    };
    for (unsigned i = 0; i < ARRAY_COUNT(start); i++)
        if (begins(name, start[i]))
            return true;
    return false;
}

/* A URL is used by whoever holds it, and all he adds would have our signature upstream. A head is
 * written by who signs it, and proxies on its way have fields of their own among the foreign ones:
 * there only sources count, and what makes MinIO do something else. */
bool sign_is_due(enum sign_form form, struct span name)
{
    bool url = form == SIGN_V4_QUERY || form == SIGN_V2_QUERY;
    if (!begins(name, "x-"))
        return sign_is_source(name);
    return begins(name, "x-amz-") || begins(name, "x-minio-") || sign_is_source(name) ||
           (url && is_foreign(name));
}

/* The list is well-formed and covers host and every field that is due. */
static enum err check_signed_headers(struct reader *r)
{
    struct span name[SIGNED_NAMES_MAX], rest = r->claim.signed_headers;
    unsigned count = 0;
    while (rest.len > 0) {
        struct span next = span_cut(&rest, ';');
        if (count == SIGNED_NAMES_MAX || !is_field_name(next))
            return refuse(r, ERR_SYNTAX, r->malformed, "The list of signed headers is mal-formed.");
        name[count++] = next;
    }
    if (!is_listed(name, count, span_of("host")))
        return not_signed(r, span_of("host"));
    for (unsigned i = 0; i < r->head->count; i++) {
        struct span field = r->head->field[i].name;
        if (sign_is_due(r->claim.form, field) && !is_listed(name, count, field))
            return not_signed(r, field);
    }
    return OK;
}

static bool is_payload_hash(struct span text)
{
    static const char *const known[] = {
        "UNSIGNED-PAYLOAD",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    };
    uint8_t hash[SHA256_BYTES];
    if (hex_read(text, hash, sizeof(hash)) == OK)
        return true;
    for (unsigned i = 0; i < ARRAY_COUNT(known); i++)
        if (span_is(text, known[i]))
            return true;
    return false;
}

static enum err check_payload_hash(struct reader *r)
{
    struct span text = r->claim.payload_hash;
    if (is_payload_hash(text))
        return OK;
    if (span_is(text, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD") ||
        span_is(text, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER"))
        return refuse(r, ERR_UNSUPPORTED, "NotImplemented",
                      "Chunks signed with Signature Version 4A are not implemented.");
    return bad_argument(r, "x-amz-content-sha256",
                        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, "
                        "STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "
                        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.");
}

/* ---- the forms ---- */
struct pieces {
    struct span credential, signed_headers, signature;
};

/* "Credential=..., SignedHeaders=..., Signature=..." in any order; blanks behind commas are
 * optional. */
static enum err split_authorization(struct reader *r, struct pieces *out)
{
    static const char why[] =
        "The authorization header is malformed; the authorization component must be Credential, "
        "SignedHeaders and Signature, each once, separated by commas.";
    struct span rest = span_from(r->authorization, algorithm_of(r->authorization).len + 1);
    struct pieces p = {0};
    if (rest.len == 0 || rest.at[0] == ' ')
        return bad_argument(r, "Authorization",
                            "Exactly one space must separate the algorithm from its parameters.");
    while (rest.len > 0) {
        struct span value = span_trim(span_cut(&rest, ','));
        struct span name = span_cut(&value, '=');
        struct span *slot = span_is(name, "Credential")      ? &p.credential
                            : span_is(name, "SignedHeaders") ? &p.signed_headers
                            : span_is(name, "Signature")     ? &p.signature
                                                             : NULL;
        if (!slot || slot->at || value.len == 0)
            return refuse(r, ERR_SYNTAX, r->malformed, why);
        *slot = value;
    }
    if (!p.credential.at || !p.signed_headers.at || !p.signature.at)
        return refuse(r, ERR_SYNTAX, r->malformed, why);
    *out = p;
    return OK;
}

static enum err check_pair_count(struct reader *r)
{
    return r->pair_count <= QUERY_PAIRS_MAX
               ? OK
               : refuse(r, ERR_SYNTAX, "InvalidRequest", "The query has more than 128 parameters.");
}

static enum err read_v4_header(struct reader *r)
{
    struct pieces p;
    struct span sha256_field;
    r->malformed = "AuthorizationHeaderMalformed";
    TRY(check_pair_count(r));
    TRY(read_header_date(r));
    TRY(split_authorization(r, &p));
    r->claim.signed_headers = p.signed_headers;
    r->claim.signature = p.signature;
    TRY(read_credential(r, p.credential));
    if (single_field(r->head, "x-amz-content-sha256", &sha256_field) != OK)
        return bad_argument(r, "x-amz-content-sha256", "x-amz-content-sha256 was given twice.");
    if (!sha256_field.at)
        return refuse(r, ERR_SYNTAX, "InvalidRequest",
                      "Missing required header for this request: x-amz-content-sha256");
    r->claim.payload_hash = sha256_field;
    TRY(check_payload_hash(r));
    if (single_field(r->head, "x-amz-security-token", &r->claim.token) != OK)
        return bad_argument(r, "x-amz-security-token", "x-amz-security-token was given twice.");
    return check_signed_headers(r);
}

static enum err decode_param(struct reader *r, enum param p, struct span *out)
{
    struct span raw = r->param[p];
    size_t len = 0;
    if (span_find(raw, '%') == raw.len && span_find(raw, '+') == raw.len) {
        *out = raw;
        return OK;
    }
    char *memory = arena_take(r->arena, raw.len);
    if (!memory)
        return refuse(r, ERR_MEMORY, "SlowDown", "Please reduce your request rate.");
    if (uri_decode(raw, true, memory, raw.len, &len) != OK)
        return refuse(r, ERR_SYNTAX, r->malformed, "A query parameter is not well encoded.");
    *out = span_make(memory, len);
    return OK;
}

static enum err read_expires(struct reader *r, struct span text)
{
    if (span_u64(text, &r->claim.expires_s) != OK)
        return refuse(r, ERR_SYNTAX, r->malformed, "X-Amz-Expires should be a number");
    if (r->claim.expires_s > EXPIRES_S_MAX)
        return refuse(r, ERR_SYNTAX, r->malformed,
                      "X-Amz-Expires must be less than a week (in seconds); that is, the given "
                      "X-Amz-Expires must be less than 604800 seconds");
    if (r->claim.expires_s == 0)
        return refuse(r, ERR_DENIED, "AccessDenied", "Request has expired");
    return OK;
}

/* The parameter, else the field, else nothing is said about the body. */
static enum err read_query_payload_hash(struct reader *r)
{
    struct span field;
    if (single_field(r->head, "x-amz-content-sha256", &field) != OK)
        return bad_argument(r, "x-amz-content-sha256", "x-amz-content-sha256 was given twice.");
    r->claim.payload_hash = field.at ? field : span_of("UNSIGNED-PAYLOAD");
    if (given(r, PARAM_SHA256)) {
        TRY(decode_param(r, PARAM_SHA256, &r->claim.payload_hash));
        if (field.at && !span_eq(field, r->claim.payload_hash))
            return bad_argument(r, "x-amz-content-sha256",
                                "X-Amz-Content-Sha256 and x-amz-content-sha256 differ.");
    }
    return check_payload_hash(r);
}

static enum err check_query_pieces(struct reader *r)
{
    for (enum param p = PARAM_ALGORITHM; p <= PARAM_SIGNATURE; p++)
        if (r->param[p].len == 0)
            return refuse(r, ERR_SYNTAX, r->malformed,
                          "Query-string authentication version 4 requires the X-Amz-Algorithm, "
                          "X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and "
                          "X-Amz-Expires parameters.");
    if (r->param_twice)
        return refuse(r, ERR_SYNTAX, r->malformed, "A parameter of the signature was given twice.");
    return OK;
}

static enum err read_v4_query(struct reader *r)
{
    struct span algorithm, credential, expires;
    r->malformed = "AuthorizationQueryParametersError";
    TRY(check_query_pieces(r));
    TRY(check_pair_count(r));
    TRY(decode_param(r, PARAM_ALGORITHM, &algorithm));
    if (!span_is(algorithm, "AWS4-HMAC-SHA256"))
        return refuse(r, ERR_SYNTAX, r->malformed,
                      "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
    TRY(decode_param(r, PARAM_DATE, &r->claim.amz_date));
    if (read_iso_date(r->claim.amz_date, &r->claim.time_s) != OK)
        return refuse(r, ERR_SYNTAX, r->malformed,
                      "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"");
    TRY(decode_param(r, PARAM_CREDENTIAL, &credential));
    TRY(read_credential(r, credential));
    TRY(decode_param(r, PARAM_EXPIRES, &expires));
    TRY(read_expires(r, expires));
    TRY(decode_param(r, PARAM_SIGNED_HEADERS, &r->claim.signed_headers));
    TRY(decode_param(r, PARAM_SIGNATURE, &r->claim.signature));
    if (given(r, PARAM_TOKEN))
        TRY(decode_param(r, PARAM_TOKEN, &r->claim.token));
    TRY(read_query_payload_hash(r));
    return check_signed_headers(r);
}

static enum err read_anonymous(struct reader *r)
{
    (void)r;
    return OK;
}

static enum err read_v2(struct reader *r)
{
    return refuse(r, ERR_UNSUPPORTED, "InvalidRequest",
                  "The authorization mechanism you have provided is not supported. "
                  "Please use AWS4-HMAC-SHA256. (Signature Version 2 is off here. boto3: "
                  "Config(signature_version='s3v4'); aws: s3.signature_version = s3v4; or set "
                  "auth.sigv2 = true in the configuration of headpond.)");
}

static enum err read_other(struct reader *r)
{
    (void)bad_argument(r, "Authorization",
                       "Unsupported Authorization Type. Requests are signed with AWS4-HMAC-SHA256, "
                       "and a bearer token is no signature.");
    return ERR_UNSUPPORTED;
}

static enum err read_v4a(struct reader *r)
{
    if (r->authorization_count == 0)
        return refuse(r, ERR_UNSUPPORTED, "AuthorizationQueryParametersError",
                      "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
    (void)bad_argument(r, "Authorization",
                       "Unsupported Authorization Type. Signature Version 4A is made for access "
                       "points in several regions; use AWS4-HMAC-SHA256 (boto3: "
                       "Config(signature_version='s3v4')).");
    return ERR_UNSUPPORTED;
}

static enum err read_twice(struct reader *r)
{
    return bad_argument(r, "Authorization", "Only one auth mechanism allowed");
}

enum err sign_claim_read(const struct http_head *head, struct arena *arena, struct sign_claim *out,
                         const char **code, const char **why)
{
    static enum err (*const read_form[])(struct reader *) = {
        [SIGN_ANONYMOUS] = read_anonymous, [SIGN_V4_HEADER] = read_v4_header,
        [SIGN_V4_QUERY] = read_v4_query,   [SIGN_V2_HEADER] = read_v2,
        [SIGN_V2_QUERY] = read_v2,         [SIGN_V4A] = read_v4a,
        [SIGN_OTHER] = read_other,         [SIGN_TWICE] = read_twice,
    };
    struct reader r = {.head = head, .arena = arena};
    struct span value;
    unsigned at = 0;
    find_params(&r);
    while (http_next(head, "authorization", &at, &value)) {
        r.authorization_count++;
        r.authorization = value;
    }
    r.claim.form = form_of(&r);
    enum err e = read_form[r.claim.form](&r);
    if (e == OK) {
        *out = r.claim;
        return OK;
    }
    *out = (struct sign_claim){
        .form = r.claim.form, .not_signed = r.claim.not_signed, .argument = r.claim.argument};
    *code = r.code;
    *why = r.why;
    return e;
}

/* ---- the verdict ---- */
enum err sign_claim_verify(const struct sign_claim *c, const struct http_head *head,
                           const struct secret *s, struct sign_key_cache *key_cache,
                           struct text *canonical)
{
    char memory[CANONICAL_ROOM_BYTES], wanted[2 * SHA256_BYTES];
    struct text own;
    struct sign_key key;
    struct sign_request r = {
        .method = head->method_text, .field = head->field, .count = head->count,
        .signed_headers = c->signed_headers, .payload_hash = c->payload_hash,
    };
    if (c->form == SIGN_V2_HEADER || c->form == SIGN_V2_QUERY)
        return sign_v2_verify(c, head, s, canonical);
    if (c->form != SIGN_V4_HEADER && c->form != SIGN_V4_QUERY)
        return ERR_DENIED;
    text_init(&own, memory, sizeof(memory));
    uri_split(head->target, &r.path, &r.query);
    enum err e = sign_canonical(&r, &own);
    if (e == OK) {
        if (sign_key_cached(key_cache, c->access_key, c->date, c->region))
            key = key_cache->key;
        else
            sign_key_make(s, c->date, c->region, &key);
        sign_signature(&key, c->amz_date, c->scope, text_span(&own), wanted);
        if (c->signature.len == sizeof(wanted) &&
            equal_in_constant_time(wanted, c->signature.at, sizeof(wanted))) {
            sign_key_keep(key_cache, c->access_key, c->date, c->region, &key);
            return OK;
        }
    }
    if (canonical)
        text_add(canonical, text_span(&own));
    return ERR_DENIED;
}
