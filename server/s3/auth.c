/* May this client do what it asks: one verdict per request, before anything is looked up. Pure.
 *
 * Invariants:
 *  1. Every operation passes s3_authorize(); only probes are let through unseen. A row added to the
 *     table is refused to anonymous and scoped clients until it is named here.
 *  2. A verified request comes from sign_claim_verify() saying so, and from nothing else.
 *  3. The verdict looks at the request and at the key's rights, never at what is cached or exists.
 *  4. Errors show no secret and no session token.
 *
 * Life: a gate per core; its day keys are of the keys it was opened with.
 *
 * What can fail: the request (403 or 400 with the code that S3 gives) and the arena (503 SlowDown).
 *
 * Limits: session tokens and Signature Version 2 are not verified. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#include "creds.h"

enum { CANONICAL_SHOWN_BYTES_MAX = 6 * KIB };

struct judge {
    struct s3_gate *gate;
    const struct http_head *head;
    const struct s3_ask *ask;
    struct s3_who *who;
    struct arena *arena;
    struct s3_error *error;
    struct sign_claim claim;
    const struct key *key;           /* of the keys_file; NULL: the upstream's own pair */
};

void s3_gate_open(struct s3_gate *g, const struct keys *keys, struct span upstream_key,
                  const struct secret *upstream_secret, uint64_t skew_s)
{
    explicit_bzero(g->cache, sizeof(g->cache));
    g->keys = keys;
    g->upstream_key = upstream_secret ? upstream_key : (struct span){NULL, 0};
    g->upstream_secret = upstream_secret;
    g->skew_s = skew_s;
}

/* ---- refusals ---- */
static enum err deny(struct judge *j, enum label_authfail reason, const char *code,
                     const char *message)
{
    static const struct {
        const char *code;
        uint16_t status;
    } row[] = {
        {"AccessDenied", 403}, {"InvalidAccessKeyId", 403}, {"RequestTimeTooSkewed", 403},
        {"SignatureDoesNotMatch", 403}, {"NotImplemented", 501}, {"SlowDown", 503},
    };
    uint16_t status = 400;           /* everything malformed */
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++)
        if (span_is(span_of(code), row[i].code))
            status = row[i].status;
    *j->error = (struct s3_error){.status = status, .code = code, .message = message};
    j->error->resource = j->ask->path;
    j->who->reason = reason;
    return ERR_DENIED;
}

static enum err no_memory(struct judge *j)
{
    (void)deny(j, AUTH_FORBIDDEN, "SlowDown", "Please reduce your request rate.");
    j->error->retry_after_s = 1;
    return ERR_MEMORY;
}

static struct span iso_date(struct judge *j, uint64_t unix_s)
{
    char date[25];
    iso_date_write(unix_s * 1000, date);
    return arena_copy(j->arena, span_of(date));
}

/* ---- without a key ---- */
static bool is_for_anyone(enum s3_operation op)
{
    switch (op) {
    case GetObject:
    case HeadObject:
    case ListObjects:
    case ListObjectsV2:
    case ListBuckets:
    case HeadBucket:
    case GetBucketLocation:
        return true;
    default:
        return false;
    }
}

static enum err judge_anonymous(struct judge *j)
{
    if (!j->who->anonymous_allowed)
        return deny(j, AUTH_FORBIDDEN, "AccessDenied",
                    j->gate->keys ? "Access Denied. Requests from this address must be signed: it "
                                    "is not in auth.anonymous."
                                  : "Access Denied. This address is not in auth.anonymous, and "
                                    "auth.keys_file is not set.");
    if (!is_for_anyone(j->ask->op))
        return deny(j, AUTH_FORBIDDEN, "AccessDenied",
                    "Access Denied. Unsigned requests may read objects and list them, no more.");
    if (j->ask->unknown_query)
        return deny(j, AUTH_FORBIDDEN, "AccessDenied",
                    "Access Denied. Unsigned requests may not carry unknown query parameters.");
    if (j->ask->has_override)
        return deny(j, AUTH_FORBIDDEN, "InvalidRequest",
                    "Request specific response headers cannot be used for anonymous GET requests.");
    j->who->anonymous = true;
    return OK;
}

/* What does not even read as a signature. Where nothing can be verified, an anonymous range does
 * not depend on it: it gets what anybody gets there. */
static enum err judge_malformed(struct judge *j, const char *code, const char *why)
{
    if (!j->gate->keys && j->who->anonymous_allowed && j->claim.form != SIGN_TWICE)
        return judge_anonymous(j);
    (void)deny(j, AUTH_FORBIDDEN, code, why);
    j->error->headers_not_signed = j->claim.not_signed;
    j->error->argument_name = span_of(j->claim.argument);
    return ERR_DENIED;
}

/* ---- with a key ---- */
static enum err check_header_time(struct judge *j)
{
    uint64_t now_s = j->who->now_s, time_s = j->claim.time_s;
    if (max_u64(now_s, time_s) - min_u64(now_s, time_s) <= j->gate->skew_s)
        return OK;
    (void)deny(j, AUTH_SKEW, "RequestTimeTooSkewed",
               "The difference between the request time and the current time is too large. Check "
               "the clocks of client and server.");
    j->error->request_time = iso_date(j, time_s);
    j->error->server_time = iso_date(j, now_s);
    j->error->max_skew_ms = j->gate->skew_s * 1000;
    return ERR_DENIED;
}

static enum err check_query_time(struct judge *j)
{
    uint64_t now_s = j->who->now_s, time_s = j->claim.time_s;
    if (time_s <= now_s + j->gate->skew_s && now_s <= time_s + j->claim.expires_s)
        return OK;
    if (time_s > now_s)
        (void)deny(j, AUTH_SKEW, "AccessDenied", "Request is not valid yet");
    else
        (void)deny(j, AUTH_EXPIRED, "AccessDenied", "Request has expired");
    j->error->expires_s = j->claim.expires_s;
    j->error->expires = iso_date(j, time_s + j->claim.expires_s);
    j->error->server_time = iso_date(j, now_s);
    return ERR_DENIED;
}

static bool may_stream(enum s3_operation op)
{
    return op == PutObject || op == UploadPart;
}

static struct span string_to_sign(struct judge *j, struct span canonical)
{
    const struct sign_claim *c = &j->claim;
    uint8_t hash[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    sha256(canonical, hash);
    hex_write(hash, sizeof(hash), hex);
    hex[sizeof(hex) - 1] = 0;
    return arena_printf(j->arena, "AWS4-HMAC-SHA256\n%.*s\n%.*s\n%s", (int)c->amz_date.len,
                        c->amz_date.at, (int)c->scope.len, c->scope.at, hex);
}

static bool has_token(const struct judge *j)
{
    return j->claim.token.len > 0 || http_find(j->head, "x-amz-security-token").len > 0;
}

/* Shows what was signed here, so that it can be laid beside what the client signed. */
static void explain(struct judge *j, const struct secret *secret, struct sign_key_cache *cache)
{
    struct text canonical;
    struct s3_error *e = j->error;
    e->access_key = j->claim.access_key;
    e->signature = j->claim.signature;
    char *memory = has_token(j) ? NULL : arena_take(j->arena, CANONICAL_SHOWN_BYTES_MAX);
    if (!memory)
        return;                      /* a token would stand in it; or memory is short */
    text_init(&canonical, memory, CANONICAL_SHOWN_BYTES_MAX);
    if (sign_claim_verify(&j->claim, j->head, secret, cache, &canonical) == OK || canonical.over)
        return;
    e->canonical = text_span(&canonical);
    e->string_to_sign = string_to_sign(j, e->canonical);
}

static enum err check_signature(struct judge *j, const struct secret *secret)
{
    struct sign_key_cache *cache = &j->gate->cache[j->key ? j->key->index % S3_GATE_KEYS : 0];
    if (sign_claim_verify(&j->claim, j->head, secret, cache, NULL) == OK)
        return OK;
    (void)deny(j, AUTH_SIGNATURE, "SignatureDoesNotMatch",
               "The request signature we calculated does not match the signature you provided. "
               "Check the secret key, the region, the clock, and that the Host the client signed "
               "arrives here unchanged.");
    explain(j, secret, cache);
    return ERR_DENIED;
}

/* The key behind the claim. Without a keys_file only the upstream's own pair can be verified; then
 * *unknown says that the credentials count for nothing. */
static const struct secret *find_secret(struct judge *j, bool *unknown)
{
    const struct s3_gate *g = j->gate;
    *unknown = false;
    if (!g->keys) {
        *unknown = g->upstream_key.len == 0 || !span_eq(g->upstream_key, j->claim.access_key);
        return *unknown ? NULL : g->upstream_secret;
    }
    j->key = keys_find(g->keys, j->claim.access_key);
    return j->key ? &j->key->secret : NULL;
}

static enum err judge_unknown_key(struct judge *j)
{
    if (j->who->anonymous_allowed)
        return judge_anonymous(j);
    (void)deny(j, AUTH_UNKNOWN_KEY, "AccessDenied",
               "Access Denied. This server cannot verify the signature: auth.keys_file is not set, "
               "and the access key is not the upstream's own static one.");
    j->error->access_key = j->claim.access_key;
    return ERR_DENIED;
}

static enum err verify(struct judge *j)
{
    bool unknown;
    const struct secret *secret = find_secret(j, &unknown);
    if (unknown)
        return judge_unknown_key(j);
    TRY(j->claim.form == SIGN_V4_QUERY ? check_query_time(j) : check_header_time(j));
    if (!secret) {
        (void)deny(j, AUTH_UNKNOWN_KEY, "InvalidAccessKeyId",
                   "The AWS Access Key Id you provided does not exist in our records.");
        j->error->access_key = j->claim.access_key;
        return ERR_DENIED;
    }
    if (span_starts(j->claim.payload_hash, span_of("STREAMING-")) && !may_stream(j->ask->op))
        return deny(j, AUTH_FORBIDDEN, "InvalidRequest",
                    "x-amz-content-sha256 announces a signed stream, which only PutObject and "
                    "UploadPart can have.");
    TRY(check_signature(j, secret));
    if (has_token(j))
        return deny(j, AUTH_FORBIDDEN, "InvalidToken",
                    "The provided token is malformed or otherwise invalid: this server knows "
                    "static keys only.");
    j->who->access_key = j->claim.access_key;
    return OK;
}

/* ---- rights ---- */
/* "[/]bucket/key[?versionId=v]", escaped, as copies name their source; other texts name nothing. */
static bool may_read_source(struct judge *j)
{
    struct span rest = j->ask->source;
    size_t len = 0;
    if (rest.len == 0 || j->key->scope_count == 0)
        return true;
    rest.len = span_find(rest, '?');
    char *memory = arena_take(j->arena, rest.len + 1);
    if (!memory || uri_decode(rest, false, memory, rest.len, &len) != OK)
        return false;
    rest = span_make(memory, len);
    if (rest.len > 0 && rest.at[0] == '/')
        rest = span_from(rest, 1);
    struct span bucket = span_cut(&rest, '/');
    return rest.len > 0 && keys_allow(j->key, false, bucket, rest);
}

static bool may_in_bucket(struct judge *j, bool write)
{
    const struct s3_ask *a = j->ask;
    switch (a->op) {
    case ListObjects:
    case ListObjectsV2:
    case ListObjectVersions:
    case ListMultipartUploads:
        if (a->prefix_ambiguous && j->key->scope_count > 0)
            return false;            /* the upstream may read another prefix than we do */
        return keys_allow(j->key, false, a->bucket, a->prefix);
    case HeadBucket:
    case GetBucketLocation:
        return keys_allow_bucket(j->key, a->bucket);
    case DeleteObjects:
    case PostObject:
        return keys_allow(j->key, write, a->bucket, span_of(""));
    default:
        return keys_allow_settings(j->key, write);
    }
}

static bool may(struct judge *j)
{
    const struct s3_ask *a = j->ask;
    uint8_t action = s3_operation_table[a->op].action;
    bool write = action == S3_WRITE;
    if (!j->key || action == S3_REFUSE)
        return true;
    switch (a->level) {
    case S3_OBJECT:
        return keys_allow(j->key, write, a->bucket, a->key) && may_read_source(j);
    case S3_BUCKET:
        return may_in_bucket(j, write);
    default:
        return keys_allow_settings(j->key, write); /* of lists of buckets: they are not filtered */
    }
}

enum err s3_authorize(struct s3_gate *gate, const struct http_head *head, const struct s3_ask *ask,
                      struct s3_who *who, struct arena *arena, struct s3_error *error)
{
    struct judge j = {.gate = gate, .head = head, .ask = ask, .who = who};
    const char *code = NULL, *why = NULL;
    j.arena = arena;
    j.error = error;
    who->anonymous = false;
    who->access_key = (struct span){NULL, 0};
    if (s3_operation_table[ask->op].action == S3_PROBE) {
        who->anonymous = true;
        return OK;
    }
    enum err e = sign_claim_read(head, arena, &j.claim, &code, &why);
    if (e == ERR_MEMORY)
        return no_memory(&j);
    if (e != OK)
        return judge_malformed(&j, code, why);
    if (j.claim.form == SIGN_ANONYMOUS)
        return judge_anonymous(&j);
    TRY(verify(&j));
    if (!who->anonymous && !may(&j)) {
        who->access_key = (struct span){NULL, 0};
        return deny(&j, AUTH_FORBIDDEN, "AccessDenied", "Access Denied");
    }
    return OK;
}
