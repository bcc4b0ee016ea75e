/* Signature Version 2, which old clients and the default URLs of boto3 still make. Pure.
 *
 * Invariants:
 *  1. What is verified here is all that the request asks for: version 2 does not sign most keys of
 *     a query, so a request with one that is neither signed nor a harmless parameter of a list is
 *     refused, and so is a value that two queries could sign to the same text.
 *  2. It signs no field but x-amz-*: one of another store that is due (sign_is_due) is refused.
 *  3. x-amz-* parameters are signed as the fields that they stand for (as botocore signs its URLs),
 *     so nobody can add one.
 *  4. Digests are compared in constant time; nothing is allocated but decoded pieces in the arena.
 * Life: as sign_claim.c.
 * Failure: as sign_claim.c.
 * Limits: Host is not signed in version 2; bodies are covered by Content-MD5 alone, and chunks
 * cannot be signed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sign.h"

/* The EVP layer allocates for each HMAC; the low-level functions run the same code below. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <strings.h>

enum {
    SIGNATURE_DIGITS = 28,           /* base64 of 20 bytes */
    FIELDS_MAX = 2 * HTTP_FIELDS_MAX, /* of x-amz-*, from head and query */
    KEYS_MAX_SIGNED = 40,
    AHEAD_S_MAX = 7 * 86400,         /* how far Expires may lie ahead */
    TEXT_ROOM_BYTES = 32 * KIB,
};

struct reader {
    const struct http_head *head;
    struct arena *arena;
    struct sign_claim claim;
    struct span query, path;
    const char *code, *why;
};

static enum err refuse(struct reader *r, enum err e, const char *code, const char *why)
{
    r->code = code;
    r->why = why;
    return e;
}

static enum err no_memory(struct reader *r)
{
    return refuse(r, ERR_MEMORY, "SlowDown", "Please reduce your request rate.");
}

/* ---- names ---- */
static bool is_one_of(struct span name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (span_is(name, list[i]))
            return true;
    return false;
}

/* Keys of a query that are part of the resource that is signed. */
static bool is_signed_key(struct span name)
{
    static const char *const list[] = {
        "acl", "cors", "delete", "lifecycle", "location", "logging", "notification", "partNumber",
        "policy", "requestPayment", "response-cache-control", "response-content-disposition",
        "response-content-encoding", "response-content-language", "response-content-type",
        "response-expires", "restore", "tagging", "torrent", "uploadId", "uploads", "versionId",
        "versioning", "versions", "website",
    };
    return is_one_of(name, list, ARRAY_COUNT(list));
}

/* Not signed, but no harm: whose pages of what list are shown, and what authenticates itself. */
static bool is_free_key(struct span name)
{
    static const char *const list[] = {
        "AWSAccessKeyId", "Signature", "Expires", "x-id", "prefix", "delimiter", "marker",
        "max-keys", "encoding-type", "list-type", "continuation-token", "start-after",
        "fetch-owner", "key-marker", "version-id-marker", "upload-id-marker", "max-uploads",
        "max-parts", "part-number-marker", "max-buckets",
    };
    return is_one_of(name, list, ARRAY_COUNT(list));
}

static bool is_amz(struct span name)
{
    return name.len > 6 && span_is_nocase(span_make(name.at, 6), "x-amz-");
}

static bool is_type_or_md5(struct span name)
{
    return span_is_nocase(name, "content-type") || span_is_nocase(name, "content-md5");
}

static bool has_control(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((uint8_t)text.at[i] < ' ' || text.at[i] == 0x7f)
            return true;
    return false;
}

/* ---- the query ---- */
/* '+' stays: whoever signed meant a plus, or is refused by check_pair(). */
static enum err decode(struct reader *r, struct span raw, struct span *out)
{
    size_t len = 0;
    if (span_find(raw, '%') == raw.len) {
        *out = raw;
        return OK;
    }
    char *memory = arena_take(r->arena, raw.len);
    if (!memory)
        return no_memory(r);
    if (uri_decode(raw, false, memory, raw.len, &len) != OK)
        return refuse(r, ERR_SYNTAX, "InvalidURI", "Couldn't parse the specified URI.");
    *out = span_make(memory, len);
    return OK;
}

static enum err check_pair(struct reader *r, struct span name, struct span raw)
{
    bool field = is_amz(name) || (r->claim.form == SIGN_V2_QUERY && is_type_or_md5(name));
    struct span value;
    if (is_free_key(name))
        return OK;
    if (!field && !is_signed_key(name))
        return refuse(r, ERR_UNSUPPORTED, "InvalidRequest",
                      "This request needs Signature Version 4: version 2 does not sign one of its "
                      "query parameters.");
    TRY(decode(r, raw, &value));
    if (span_find(raw, '+') < raw.len || has_control(value) ||
        (!field && span_find(value, '&') < value.len))
        return refuse(r, ERR_UNSUPPORTED, "InvalidRequest",
                      "This request needs Signature Version 4: version 2 cannot tell the values of "
                      "its query apart. (A blank in them is %20, a plus %2B.)");
    return OK;
}

static enum err check_query(struct reader *r)
{
    struct span rest = r->query;
    struct uri_pair pair;
    while (uri_next_pair(&rest, &pair)) {
        struct span name;
        TRY(decode(r, pair.name, &name));
        TRY(check_pair(r, name, pair.value));
        if (span_is_nocase(name, "x-amz-security-token"))
            TRY(decode(r, pair.value, &r->claim.token));
        if (span_is_nocase(name, "x-amz-content-sha256"))
            TRY(decode(r, pair.value, &r->claim.payload_hash));
    }
    return OK;
}

/* A parameter that must stand once. */
static enum err find_param(struct reader *r, const char *wanted, struct span *out)
{
    struct span rest = r->query;
    struct uri_pair pair;
    unsigned found = 0;
    while (uri_next_pair(&rest, &pair)) {
        struct span name;
        TRY(decode(r, pair.name, &name));
        if (!span_is(name, wanted))
            continue;
        found++;
        TRY(decode(r, pair.value, out));
    }
    if (found == 1 && out->len > 0)
        return OK;
    return refuse(r, ERR_SYNTAX, "AccessDenied",
                  "Query-string authentication requires the Signature, Expires and "
                  "AWSAccessKeyId parameters, each once");
}

/* ---- both forms ---- */
/* What is x-amz-* is signed; of all others that are due none is. */
static enum err check_fields(struct reader *r)
{
    for (unsigned i = 0; i < r->head->count; i++) {
        struct span name = r->head->field[i].name;
        if (is_amz(name) || !sign_is_due(r->claim.form, name))
            continue;
        r->claim.not_signed = name;
        return refuse(r, ERR_DENIED, "AccessDenied",
                      "There were headers present in the request which were not signed");
    }
    return OK;
}

/* The body: nothing is said of it, or a hash that goes along as a field. */
static enum err check_payload(struct reader *r)
{
    struct span field = http_find(r->head, "x-amz-content-sha256");
    if (field.len > 0)
        r->claim.payload_hash = field;
    if (r->claim.payload_hash.len == 0)
        r->claim.payload_hash = span_of("UNSIGNED-PAYLOAD");
    if (span_starts(r->claim.payload_hash, span_of("STREAMING-")))
        return refuse(r, ERR_UNSUPPORTED, "InvalidRequest",
                      "Streams that are cut into chunks need Signature Version 4.");
    return OK;
}

static enum err read_header(struct reader *r)
{
    static const char why[] = "The authorization header must be \"AWS AccessKeyId:Signature\".";
    static const char no_date[] =
        "AWS authentication requires a valid Date or x-amz-date header";
    struct span text = span_from(http_find(r->head, "authorization"), strlen("AWS "));
    size_t colon = text.len;
    while (colon > 0 && text.at[colon - 1] != ':')
        colon--;
    if (colon < 2 || colon == text.len || span_find(text, ' ') < text.len)
        return refuse(r, ERR_SYNTAX, "InvalidArgument", why);
    r->claim.access_key = span_make(text.at, colon - 1);
    r->claim.signature = span_from(text, colon);
    enum err e = sign_date_of_head(r->head, &r->claim.amz_date, &r->claim.time_s);
    return e == OK ? OK : refuse(r, ERR_DENIED, "AccessDenied", no_date);
}

static enum err read_query(struct reader *r)
{
    struct span expires;
    TRY(find_param(r, "AWSAccessKeyId", &r->claim.access_key));
    TRY(find_param(r, "Signature", &r->claim.signature));
    TRY(find_param(r, "Expires", &expires));
    if (span_u64(expires, &r->claim.until_s) != OK)
        return refuse(r, ERR_DENIED, "AccessDenied",
                      "Invalid date (should be seconds since epoch): Expires");
    r->claim.amz_date = expires;
    return OK;
}

enum err sign_v2_read(const struct http_head *head, struct arena *arena, struct sign_claim *claim,
                      const char **code, const char **why)
{
    struct reader r = {.head = head, .arena = arena, .claim = {.form = claim->form}};
    uri_split(head->target, &r.path, &r.query);
    enum err e = claim->form == SIGN_V2_HEADER ? read_header(&r) : read_query(&r);
    if (e == OK)
        e = check_query(&r);
    if (e == OK)
        e = check_fields(&r);
    if (e == OK)
        e = check_payload(&r);
    if (e == OK) {
        *claim = r.claim;
        return OK;
    }
    claim->not_signed = r.claim.not_signed;
    *code = r.code;
    *why = r.why;
    return e;
}

enum err sign_v2_times(const struct sign_claim *c, uint64_t now_s)
{
    if (now_s > c->until_s)
        return ERR_TIMEOUT;
    return c->until_s - now_s > AHEAD_S_MAX ? ERR_TOO_LARGE : OK;
}

/* ---- the string to sign ---- */
struct pair {
    struct span name, value;
};

struct writer {
    const struct http_head *head;
    const struct sign_claim *claim;
    struct span query;
    struct text *out, *room;         /* room: decoded texts */
};

static struct span decoded(struct writer *w, struct span raw)
{
    size_t len = 0, left = w->room->cap - w->room->len;
    char *at = w->room->at + w->room->len;
    if (span_find(raw, '%') == raw.len)
        return raw;
    if (uri_decode(raw, false, at, left, &len) != OK) {
        w->out->over = true;         /* checked before: only the room can be short */
        return span_of("");
    }
    w->room->len += len;
    return span_make(at, len);
}

static bool same(struct span a, struct span b)
{
    return a.len == b.len && strncasecmp(a.at, b.at, a.len) == 0;
}

static int compare_nocase(struct span a, struct span b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = strncasecmp(a.at, b.at, len);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* Keeps the order of equals. False: no room. */
static bool insert(struct pair *sorted, unsigned *count, unsigned most, struct pair add)
{
    unsigned at = *count;
    if (*count == most)
        return false;
    for (; at > 0 && compare_nocase(add.name, sorted[at - 1].name) < 0; at--)
        sorted[at] = sorted[at - 1];
    sorted[at] = add;
    (*count)++;
    return true;
}

/* The field, or else the parameter of that name. */
static struct span value_of(struct writer *w, const char *name)
{
    struct span rest = w->query, value = http_find(w->head, name);
    struct uri_pair pair;
    if (value.at || w->claim->form != SIGN_V2_QUERY)
        return value;
    while (uri_next_pair(&rest, &pair))
        if (span_is_nocase(decoded(w, pair.name), name))
            return decoded(w, pair.value);
    return value;
}

static void add_fields(struct writer *w)
{
    struct pair sorted[FIELDS_MAX];
    struct span rest = w->query;
    struct uri_pair raw;
    unsigned count = 0;
    bool fits = true;
    for (unsigned i = 0; i < w->head->count; i++)
        if (is_amz(w->head->field[i].name))
            fits = fits && insert(sorted, &count, FIELDS_MAX,
                                  (struct pair){w->head->field[i].name, w->head->field[i].value});
    while (uri_next_pair(&rest, &raw)) {
        struct pair p = {decoded(w, raw.name), decoded(w, raw.value)};
        if (is_amz(p.name))
            fits = fits && insert(sorted, &count, FIELDS_MAX, p);
    }
    w->out->over = w->out->over || !fits;
    for (unsigned i = 0; i < count; i++) {
        bool again = i > 0 && same(sorted[i].name, sorted[i - 1].name);
        for (size_t c = 0; !again && c < sorted[i].name.len; c++) {
            char letter = sorted[i].name.at[c];
            text_addc(w->out, letter >= 'A' && letter <= 'Z' ? (char)(letter + 32) : letter);
        }
        text_addc(w->out, again ? ',' : ':');
        text_add(w->out, span_trim(sorted[i].value));
        if (i + 1 == count || !same(sorted[i].name, sorted[i + 1].name))
            text_addc(w->out, '\n');
    }
}

/* Bytes decide the order of keys, and all of them are of one case where two could differ by it. */
static void add_resource(struct writer *w, struct span path)
{
    struct pair sorted[KEYS_MAX_SIGNED];
    struct span rest = w->query;
    struct uri_pair raw;
    unsigned count = 0;
    if (w->claim->bucket.len > 0) {
        text_addc(w->out, '/');
        text_add(w->out, w->claim->bucket);
    }
    text_add(w->out, path);
    while (uri_next_pair(&rest, &raw)) {
        struct pair p = {decoded(w, raw.name), decoded(w, raw.value)};
        unsigned at = count;
        if (!is_signed_key(p.name))
            continue;
        if (count == KEYS_MAX_SIGNED) {
            w->out->over = true;
            return;
        }
        for (; at > 0 && span_compare(p.name, sorted[at - 1].name) < 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = p;
        count++;
    }
    for (unsigned i = 0; i < count; i++) {
        text_addc(w->out, i ? '&' : '?');
        text_add(w->out, sorted[i].name);
        if (sorted[i].value.len == 0)
            continue;
        text_addc(w->out, '=');
        text_add(w->out, sorted[i].value);
    }
}

static bool has_amz_date(struct writer *w)
{
    return w->claim->form == SIGN_V2_HEADER && http_find(w->head, "x-amz-date").at;
}

static void write_string(struct writer *w, struct span path)
{
    text_add(w->out, w->head->method_text);
    text_addc(w->out, '\n');
    text_add(w->out, value_of(w, "content-md5"));
    text_addc(w->out, '\n');
    text_add(w->out, value_of(w, "content-type"));
    text_addc(w->out, '\n');
    if (!has_amz_date(w))            /* Date, or Expires */
        text_add(w->out, w->claim->form == SIGN_V2_HEADER ? http_find(w->head, "date")
                                                          : w->claim->amz_date);
    text_addc(w->out, '\n');
    add_fields(w);
    add_resource(w, path);
}

/* ---- HMAC-SHA1 (RFC 2104) ---- */
static void hash_block(SHA_CTX *hash, const uint8_t pad[SHA_CBLOCK], uint8_t mask)
{
    uint8_t block[SHA_CBLOCK];
    for (unsigned i = 0; i < SHA_CBLOCK; i++)
        block[i] = pad[i] ^ mask;
    must(SHA1_Init(hash) == 1);
    must(SHA1_Update(hash, block, sizeof(block)) == 1);
    OPENSSL_cleanse(block, sizeof(block));
}

static void hmac_sha1(const struct secret *s, struct span data, uint8_t out[SHA_DIGEST_LENGTH])
{
    uint8_t pad[SHA_CBLOCK] = {0};
    SHA_CTX hash;
    must(SHA1_Init(&hash) == 1);
    if (s->len > sizeof(pad)) {
        must(SHA1_Update(&hash, s->bytes, s->len) == 1);
        must(SHA1_Final(pad, &hash) == 1);
    } else {
        memcpy(pad, s->bytes, s->len);
    }
    hash_block(&hash, pad, 0x36);
    must(SHA1_Update(&hash, data.at, data.len) == 1);
    must(SHA1_Final(out, &hash) == 1);
    hash_block(&hash, pad, 0x5c);
    must(SHA1_Update(&hash, out, SHA_DIGEST_LENGTH) == 1);
    must(SHA1_Final(out, &hash) == 1);
    OPENSSL_cleanse(&hash, sizeof(hash));
    OPENSSL_cleanse(pad, sizeof(pad));
}

/* "/bucket" without its slash, which some clients sign with one (botocore). */
static bool is_bare_bucket(const struct sign_claim *c, struct span path)
{
    return c->bucket.len == 0 && path.len > 1 &&
           span_find(span_from(path, 1), '/') == path.len - 1;
}

static bool matches(const struct sign_claim *c, const struct secret *s, const struct text *own)
{
    uint8_t digest[SHA_DIGEST_LENGTH];
    char wanted[32];
    hmac_sha1(s, text_span(own), digest);
    must(base64_write(digest, sizeof(digest), wanted, sizeof(wanted)) == SIGNATURE_DIGITS);
    return !own->over && c->signature.len == SIGNATURE_DIGITS &&
           equal_in_constant_time(wanted, c->signature.at, SIGNATURE_DIGITS);
}

enum err sign_v2_verify(const struct sign_claim *c, const struct http_head *head,
                        const struct secret *s, struct text *string_to_sign)
{
    char memory[TEXT_ROOM_BYTES], room_memory[4 * HTTP_TARGET_BYTES_MAX];
    char slashed[HTTP_TARGET_BYTES_MAX + 1];
    struct text own, room;
    struct span path;
    text_init(&own, memory, sizeof(memory));
    text_init(&room, room_memory, sizeof(room_memory));
    struct writer w = {.head = head, .claim = c, .out = &own, .room = &room};
    uri_split(head->target, &path, &w.query);
    write_string(&w, path);
    if (matches(c, s, &own))
        return OK;
    if (string_to_sign)
        text_add(string_to_sign, text_span(&own));
    if (!is_bare_bucket(c, path) || path.len >= sizeof(slashed))
        return ERR_DENIED;
    memcpy(slashed, path.at, path.len);
    slashed[path.len] = '/';
    text_init(&own, memory, sizeof(memory));
    text_init(&room, room_memory, sizeof(room_memory));
    write_string(&w, span_make(slashed, path.len + 1));
    return matches(c, s, &own) ? OK : ERR_DENIED;
}
