/* May this client do what it asks: one verdict per request, before anything is looked up. Pure.
 *
 * Invariants:
 *  1. Every operation passes s3_authorize(); only probes, preflights and forms, which is_for_all()
 *     names, are let through unseen. A row added to the table is refused to anonymous and scoped
 *     clients until it is named here.
 *  2. A verified request comes from sign_claim_verify() saying so, and from nothing else.
 *  3. The verdict looks at the request and at the key's rights, never at what is cached or exists.
 *  4. Errors show no secret and no session token.
 *
 * Life: a gate per core; its day keys are of the keys it was opened with.
 *
 * What can fail: the request (403 or 400 with the code that S3 gives) and the arena (503 SlowDown).
 *
 * Limits: session tokens are not verified: their secrets are known to the store alone. */
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
    g->sigv2 = false;
    g->explained = 0;
    g->explained_s = 0;
    g->upstream_host = (struct span){NULL, 0};
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

/* Needs no rights: browsers ask before they sign, also with a URL that is signed for another
 * method; and the credentials of a form stand in its body, which nobody reads: it is refused. */
static bool is_for_all(enum s3_operation op)
{
    return s3_operation_table[op].action == S3_PROBE || op == PreflightBucket ||
           op == PreflightObject || op == PostObject;
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
/* A text of the arena for a message, or the constant one when memory is short. */
static const char *or_short(struct span text, const char *constant)
{
    return text.at ? text.at : constant;
}

static enum err check_header_time(struct judge *j)
{
    static const char why[] =
        "The difference between the request time and the current time is too large.";
    uint64_t now_s = j->who->now_s, time_s = j->claim.time_s;
    uint64_t apart_s = max_u64(now_s, time_s) - min_u64(now_s, time_s);
    if (apart_s <= j->gate->skew_s)
        return OK;
    const char *order = time_s > now_s ? "ahead of" : "behind";
    struct span text = arena_printf(
        j->arena, "%s The clock of the client is %llu s %s that of this server, and "
                  "auth.clock_skew allows %llu s: set both by NTP.", why,
        (unsigned long long)apart_s, order, (unsigned long long)j->gate->skew_s);
    (void)deny(j, AUTH_SKEW, "RequestTimeTooSkewed", or_short(text, why));
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
        (void)deny(j, AUTH_SKEW, "AccessDenied",
                   "Request is not valid yet. The URL was signed by a clock that is ahead of this "
                   "server's: set both by NTP.");
    else
        (void)deny(j, AUTH_EXPIRED, "AccessDenied",
                   "Request has expired. Sign a new URL, or one with a longer X-Amz-Expires (at "
                   "most a week).");
    j->error->expires_s = j->claim.expires_s;
    j->error->expires = iso_date(j, time_s + j->claim.expires_s);
    j->error->server_time = iso_date(j, now_s);
    return ERR_DENIED;
}

static enum err check_v2_query_time(struct judge *j)
{
    enum err e = sign_v2_times(&j->claim, j->who->now_s);
    if (e == OK)
        return OK;
    if (e == ERR_TIMEOUT)
        (void)deny(j, AUTH_EXPIRED, "AccessDenied",
                   "Request has expired. Sign a new URL with a later Expires.");
    else
        (void)deny(j, AUTH_EXPIRED, "AccessDenied",
                   "Expires lies more than a week ahead: such URLs are not accepted.");
    j->error->expires = iso_date(j, min_u64(j->claim.until_s, 253402300799));
    j->error->server_time = iso_date(j, j->who->now_s);
    return ERR_DENIED;
}

static enum err check_time(struct judge *j)
{
    switch (j->claim.form) {
    case SIGN_V4_QUERY: return check_query_time(j);
    case SIGN_V2_QUERY: return check_v2_query_time(j);
    default: return check_header_time(j);
    }
}

static bool is_v2(const struct sign_claim *c)
{
    return c->form == SIGN_V2_HEADER || c->form == SIGN_V2_QUERY;
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

static bool holds(struct span text, const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= text.len; i++)
        if (span_is_nocase(span_make(text.at + i, len), word))
            return true;
    return false;
}

/* What is signed stands in the canonical request; these are nobody's to see, not in a log of the
 * client's either. */
static bool signs_secret(const struct judge *j)
{
    static const char *const field[] = {
        "x-amz-server-side-encryption-customer-key",
        "x-amz-copy-source-server-side-encryption-customer-key",
        "cookie", "proxy-authorization",
    };
    for (unsigned i = 0; i < ARRAY_COUNT(field); i++)
        if (http_find(j->head, field[i]).len > 0)
            return true;
    return has_token(j) || holds(j->head->target, "customer-key");
}

/* Shows what was signed here, so that it can be laid beside what the client signed. */
static void explain(struct judge *j, const struct secret *secret, struct sign_key_cache *cache)
{
    struct text canonical;
    struct s3_error *e = j->error;
    e->access_key = j->claim.access_key;
    e->signature = j->claim.signature;
    char *memory = signs_secret(j) ? NULL : arena_take(j->arena, CANONICAL_SHOWN_BYTES_MAX);
    if (!memory)
        return;                      /* a secret would stand in it; or memory is short */
    text_init(&canonical, memory, CANONICAL_SHOWN_BYTES_MAX);
    if (sign_claim_verify(&j->claim, j->head, secret, cache, &canonical) == OK || canonical.over)
        return;
    if (is_v2(&j->claim)) {          /* version 2 has no canonical request */
        e->string_to_sign = text_span(&canonical);
        return;
    }
    e->canonical = text_span(&canonical);
    e->string_to_sign = string_to_sign(j, e->canonical);
}

static void count_explanation(struct s3_gate *g, uint64_t now_s)
{
    g->explained = g->explained_s == now_s ? g->explained + 1 : 1;
    g->explained_s = now_s;
}

static enum err check_signature(struct judge *j, const struct secret *secret)
{
    struct sign_key_cache *cache = &j->gate->cache[j->key ? j->key->index % S3_GATE_KEYS : 0];
    if (sign_claim_verify(&j->claim, j->head, secret, cache, NULL) == OK)
        return OK;
    count_explanation(j->gate, j->who->now_s);
    (void)deny(j, AUTH_SIGNATURE, "SignatureDoesNotMatch",
               s3_why_mismatch(j->gate, &j->claim, j->ask, secret, j->arena));
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

static bool keep_text(struct span from, char *to, size_t room)
{
    if (from.len >= room)
        return false;
    memcpy(to, from.at, from.len);
    to[from.len] = 0;
    return true;
}

/* The chunks of a signed stream are signed on from here. */
static enum err keep_seed(struct judge *j, const struct secret *secret)
{
    const struct sign_claim *c = &j->claim;
    struct payload_seed *seed = &j->who->seed;
    if (!span_starts(c->payload_hash, span_of("STREAMING-AWS4-HMAC-SHA256-PAYLOAD")))
        return OK;
    sign_key_make(secret, c->date, c->region, &seed->key);
    j->who->has_seed = keep_text(c->signature, seed->signature, sizeof(seed->signature)) &&
                       keep_text(c->amz_date, seed->amz_date, sizeof(seed->amz_date)) &&
                       keep_text(c->scope, seed->scope, sizeof(seed->scope));
    return j->who->has_seed ? OK
                            : deny(j, AUTH_FORBIDDEN, "AuthorizationHeaderMalformed",
                                   "The region of the credential is too long.");
}

static enum err verify(struct judge *j)
{
    bool unknown;
    const struct secret *secret = find_secret(j, &unknown);
    if (unknown)
        return judge_unknown_key(j);
    TRY(check_time(j));
    if (!secret) {
        (void)deny(j, AUTH_UNKNOWN_KEY, "InvalidAccessKeyId",
                   "The AWS Access Key Id you provided does not exist in our records: it is not "
                   "in auth.keys_file of this server. (Keys of the store itself count only when "
                   "no keys_file is set.)");
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
    TRY(keep_seed(j, secret));
    j->who->access_key = j->claim.access_key;
    return OK;
}

/* ---- rights ---- */
static bool may_read_source(struct judge *j)
{
    struct s3_source from;
    if (j->ask->source.len == 0 || j->key->scope_count == 0)
        return true;
    if (span_find(j->ask->source, '+') < j->ask->source.len)
        return false;                /* a plus to us, a blank to some stores: another object */
    return s3_source_read(j->ask, j->arena, &from) == OK &&
           keys_allow(j->key, false, from.bucket, from.key);
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
    case DeleteObjects:              /* each of its objects is asked for: s3_may_change() */
        return j->key->write && keys_allow_bucket(j->key, a->bucket);
    default:
        return keys_allow_settings(j->key, write);
    }
}

/* A field with which a store of another make copies, too, though it was asked as S3 is. */
static bool has_foreign_source(const struct http_head *h)
{
    for (unsigned i = 0; i < h->count; i++) {
        struct span name = h->field[i].name;
        if (sign_is_source(name) && !span_is_nocase(name, "x-amz-copy-source"))
            return true;
    }
    return false;
}

/* The body of RestoreObject may name another bucket as the place of what it makes, that of a
 * change which only the store knows any object at all (GCS: "compose"). */
static bool may_on_object(struct judge *j, bool write)
{
    const struct s3_ask *a = j->ask;
    bool foreign = a->op == UnknownWrite || a->unknown_query || has_foreign_source(j->head);
    bool elsewhere = a->op == RestoreObject || a->wide || (write && foreign);
    if (elsewhere && j->key->scope_count > 0)
        return false;
    return keys_allow(j->key, write, a->bucket, a->key) && may_read_source(j);
}

static bool may(struct judge *j)
{
    const struct s3_ask *a = j->ask;
    uint8_t action = s3_operation_table[a->op].action;
    bool write = s3_operation_changes(a->op);
    if (!j->key || action == S3_REFUSE || action == S3_PLAN) /* which prefix, its body says */
        return true;
    switch (a->level) {
    case S3_OBJECT:
        return may_on_object(j, write);
    case S3_BUCKET:
        return may_in_bucket(j, write);
    default:
        j->who->filtered = a->op == ListBuckets && j->key->scope_count > 0;
        return j->who->filtered || keys_allow_settings(j->key, write);
    }
}

/* The key that a request was verified with, by the gate of now; *all: the upstream's own pair. */
static const struct key *key_of(const struct s3_gate *g, const struct s3_who *who, bool *all)
{
    *all = !g->keys && who->access_key.len > 0 && span_eq(who->access_key, g->upstream_key);
    return g->keys ? keys_find(g->keys, who->access_key) : NULL;
}

bool s3_may_change(const struct s3_gate *gate, const struct s3_who *who, struct span bucket,
                   struct span key)
{
    bool all;
    const struct key *k = key_of(gate, who, &all);
    return all || (k && keys_allow(k, true, bucket, key));
}

bool s3_may_see(const struct s3_gate *gate, const struct s3_who *who, struct span bucket)
{
    bool all;
    const struct key *k = key_of(gate, who, &all);
    return all || (k && keys_allow_bucket(k, bucket));
}

enum err s3_authorize(struct s3_gate *gate, const struct http_head *head, const struct s3_ask *ask,
                      struct s3_who *who, struct arena *arena, struct s3_error *error)
{
    struct judge j = {.gate = gate, .head = head, .ask = ask, .who = who};
    const char *code = NULL, *why = NULL;
    j.arena = arena;
    j.error = error;
    who->anonymous = who->has_seed = who->filtered = false;
    who->access_key = (struct span){NULL, 0};
    who->profile = 0;
    if (is_for_all(ask->op)) {
        who->anonymous = true;
        return OK;
    }
    enum err e = sign_claim_read(head, arena, &j.claim, &code, &why);
    if (e != OK && gate->sigv2 && is_v2(&j.claim))
        e = sign_v2_read(head, arena, &j.claim, &code, &why);
    j.claim.bucket = ask->virtual_host ? ask->bucket : span_of("");
    if (e == ERR_MEMORY)
        return no_memory(&j);
    if (e != OK)
        return judge_malformed(&j, code, why);
    if (j.claim.form == SIGN_ANONYMOUS)
        return judge_anonymous(&j);
    TRY(verify(&j));
    if (!who->anonymous && !may(&j)) {
        who->access_key = (struct span){NULL, 0};
        who->filtered = false;
        return deny(&j, AUTH_FORBIDDEN, "AccessDenied", "Access Denied");
    }
    who->profile = j.key && !who->anonymous ? j.key->profile_number : 0;
    return OK;
}
