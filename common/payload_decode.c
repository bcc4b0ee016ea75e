/* The decoder of upload bodies: five forms in, object bytes out, verified. Pure.
 *
 * Invariants:
 *  1. All bytes given are consumed; what of a line has come so far is kept in the decoder, so that
 *     cuts anywhere mean nothing.
 *  2. got never passes the announced length, and a chunk's size never what is left of it: nothing
 *     that S3 would refuse for its length ever comes out.
 *  3. A chunk whose signature is wrong is the last thing that is taken. Signatures are compared in
 *     constant time.
 *  4. Of hashes only those run that somebody will compare.
 *
 * Life: payload_begin(), payload_decode() for each buffer, payload_end(); the struct is the
 * request's.
 * Failure: final, with the S3 error in d->no. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "payload.h"

enum {
    CHUNK_BYTES_MIN = 8192,          /* of all chunks but the last */
    SIZE_DIGITS_MAX = 16,
    SIGNATURE_BYTES = 2 * SHA256_BYTES,
};

enum decoder_state {
    STATE_RAW,                       /* no framing */
    STATE_HEADER,                    /* in a chunk's header line */
    STATE_DATA,
    STATE_DATA_CR,
    STATE_DATA_LF,
    STATE_TRAILER,                   /* in a line behind the last chunk */
    STATE_END,                       /* the empty line came */
    STATE_FAILED,
};

enum { SUM_OBJECT, SUM_MD5, SUM_SHA256 };

/* ---- refusals ---- */
static enum err refuse(struct payload_decoder *d, enum err e, const char *code, const char *why)
{
    uint16_t status = e == ERR_DENIED ? 403 : 400;
    d->no = (struct payload_refusal){.status = status, .code = code, .why = why};
    d->state = STATE_FAILED;
    d->ended = false;
    d->why = e;
    return e;
}

static enum err incomplete(struct payload_decoder *d)
{
    return refuse(d, ERR_SYNTAX, "IncompleteBody",
                  "You did not provide the number of bytes, or the chunks, that your headers "
                  "announce.");
}

static enum err bad_trailer(struct payload_decoder *d)
{
    return refuse(d, ERR_SYNTAX, "MalformedTrailerError",
                  "The request contained trailing data that was not well-formed or did not conform "
                  "to our published schema.");
}

static enum err bad_signature(struct payload_decoder *d)
{
    return refuse(d, ERR_DENIED, "SignatureDoesNotMatch",
                  "The signature of a chunk, or of the trailer, does not match the signature we "
                  "calculated. Check your key and signing method.");
}

static enum err bad_chunk_size(struct payload_decoder *d)
{
    enum err e = refuse(d, ERR_SYNTAX, "InvalidChunkSizeError",
                        "Only the last chunk is allowed to have a size less than 8192 bytes");
    d->no.chunk = d->chunk;
    d->no.chunk_bytes = d->chunk_bytes;
    return e;
}

/* ---- signatures: as AWS documents them for "transferring payload in multiple chunks", and with
 * trailing headers ---- */
/* Compares a signature with the one that these parts must have behind the previous one, and goes
 * on from it. */
static enum err check_signature(struct payload_decoder *d, const char *algorithm, const char *last,
                                const char *claimed)
{
    static const struct span line_end = {"\n", 1};
    const struct payload_seed *seed = d->seed;
    char signature[SIGNATURE_BYTES];
    const struct span part[] = {
        span_of(algorithm),
        line_end,
        span_of(seed->amz_date),
        line_end,
        span_of(seed->scope),
        line_end,
        span_make(d->previous, SIGNATURE_BYTES),
        line_end,
        span_of(last),
    };
    sign_parts(&seed->key, part, ARRAY_COUNT(part), signature);
    if (!equal_in_constant_time(signature, claimed, SIGNATURE_BYTES))
        return bad_signature(d);
    memcpy(d->previous, signature, SIGNATURE_BYTES);
    return OK;
}

/* The chunk's data went through its sum. */
static enum err check_chunk(struct payload_decoder *d)
{
    uint8_t hash[PAYLOAD_DIGEST_MAX];
    char last[2 * SIGNATURE_BYTES + 2];
    if (!payload_is_signed(d->facts->form))
        return OK;
    payload_sum_end(&d->sum[SUM_SHA256], hash);
    memcpy(last, sign_empty_sha256, SIGNATURE_BYTES);
    last[SIGNATURE_BYTES] = '\n';
    hex_write(hash, SHA256_BYTES, last + SIGNATURE_BYTES + 1);
    last[sizeof(last) - 1] = '\0';
    return check_signature(d, "AWS4-HMAC-SHA256-PAYLOAD", last, d->claimed);
}

static enum err check_trailer(struct payload_decoder *d, struct span claimed)
{
    char memory[PAYLOAD_FIELD_MAX + PAYLOAD_VALUE_MAX + 3], last[SIGNATURE_BYTES + 1];
    uint8_t hash[SHA256_BYTES];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    if (d->value[0])
        text_addf(&t, "%s:%s\n", payload_kind_field(d->facts->sum), d->value);
    must(!t.over);
    sha256(text_span(&t), hash);
    hex_write(hash, sizeof(hash), last);
    last[SIGNATURE_BYTES] = '\0';
    if (claimed.len != SIGNATURE_BYTES)
        return bad_trailer(d);
    d->sealed = true;
    return check_signature(d, "AWS4-HMAC-SHA256-TRAILER", last, claimed.at);
}

/* ---- a chunk's header: HEX[;chunk-signature=64HEX] ---- */
static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Digits at the start of the line; false: none, or too many. */
static bool read_size(struct span *line, uint64_t *out)
{
    size_t n = 0;
    uint64_t size = 0;
    while (n < line->len && hex_digit(line->at[n]) >= 0) {
        if (n == SIZE_DIGITS_MAX)
            return false;
        size = size << 4 | (unsigned)hex_digit(line->at[n++]);
    }
    *line = span_from(*line, n);
    *out = size;
    return n > 0;
}

static enum err begin_data(struct payload_decoder *d, uint64_t size)
{
    if (d->small)
        return bad_chunk_size(d);
    if (size > d->facts->bytes - d->got)
        return incomplete(d);
    d->small = size < CHUNK_BYTES_MIN;
    d->chunk++;
    d->chunk_bytes = d->left = size;
    d->state = STATE_DATA;
    return OK;
}

static enum err take_header(struct payload_decoder *d, struct span line)
{
    const struct span signature = span_of(";chunk-signature=");
    bool is_signed = payload_is_signed(d->facts->form);
    uint64_t size;
    if (!read_size(&line, &size))
        return incomplete(d);
    if (is_signed) {
        if (!span_starts(line, signature) || line.len != signature.len + SIGNATURE_BYTES)
            return incomplete(d);
        memcpy(d->claimed, line.at + signature.len, SIGNATURE_BYTES);
        payload_sum_begin(&d->sum[SUM_SHA256], PAYLOAD_SHA256);
    } else if (line.len > 0) {
        return incomplete(d);
    }
    if (size > 0)
        return begin_data(d, size);
    if (d->got != d->facts->bytes)
        return incomplete(d);
    d->state = STATE_TRAILER;
    return check_chunk(d);
}

/* ---- the trailer ---- */
static enum err take_value(struct payload_decoder *d, struct span value)
{
    size_t len;
    if (value.len > PAYLOAD_VALUE_MAX ||
        base64_read(value, d->value_digest, sizeof(d->value_digest), &len) != OK ||
        len != payload_digest_bytes(d->facts->sum)) {
        enum err e = refuse(d, ERR_SYNTAX, "InvalidRequest",
                            "Value for an x-amz-checksum- trailing header is invalid.");
        d->no.argument = payload_kind_field(d->facts->sum);
        return e;
    }
    memcpy(d->value, value.at, value.len);
    d->value[value.len] = '\0';
    return OK;
}

static enum err take_trailer_end(struct payload_decoder *d)
{
    const struct payload_facts *f = d->facts;
    if (f->sum_in_trailer && !d->value[0])
        return bad_trailer(d);
    if (f->form == PAYLOAD_SIGNED_TRAILER && !d->sealed)
        return bad_trailer(d);
    d->state = STATE_END;
    return OK;
}

static enum err take_trailer(struct payload_decoder *d, struct span line)
{
    const struct payload_facts *f = d->facts;
    bool after_bare = d->bare;
    d->bare = line.len == 0 || line.at[line.len - 1] != '\r';
    if (!d->bare)
        line.len--;
    if (d->bare && line.len == 0)
        return bad_trailer(d);
    if (line.len == 0)
        return after_bare ? OK : take_trailer_end(d);
    struct span value = line, name = span_cut(&value, ':');
    bool has_colon = name.len < line.len;
    value = span_trim(value);
    if (has_colon && f->sum_in_trailer && !d->value[0] && !d->sealed &&
        span_is_nocase(name, payload_kind_field(f->sum)))
        return take_value(d, value);
    if (has_colon && f->form == PAYLOAD_SIGNED_TRAILER && !d->sealed &&
        span_is_nocase(name, "x-amz-trailer-signature"))
        return check_trailer(d, value);
    return bad_trailer(d);
}

/* ---- bytes ---- */
/* Collects a line up to its LF. Header lines end with CRLF. Those of the trailer may end with LF
 * alone, and then CRLF follows: so the AWS documents show them, and so minio-go writes them. */
static enum err take_line_byte(struct payload_decoder *d, char c)
{
    struct span line = span_make(d->line, d->line_len);
    if (c != '\n') {
        if (d->line_len == sizeof(d->line))
            return incomplete(d);
        d->line[d->line_len++] = c;
        return OK;
    }
    d->line_len = 0;
    if (d->state == STATE_TRAILER)
        return take_trailer(d, line);
    if (line.len == 0 || line.at[line.len - 1] != '\r')
        return incomplete(d);
    line.len--;
    return take_header(d, line);
}

static enum err take_byte(struct payload_decoder *d, char c)
{
    if (d->state == STATE_HEADER || d->state == STATE_TRAILER)
        return take_line_byte(d, c);
    if (d->state == STATE_END || c != (d->state == STATE_DATA_CR ? '\r' : '\n'))
        return incomplete(d);
    d->state = d->state == STATE_DATA_CR ? STATE_DATA_LF : STATE_HEADER;
    return OK;
}

static void hash_data(struct payload_decoder *d, const char *at, size_t len)
{
    for (unsigned i = 0; i < PAYLOAD_SUMS; i++)
        payload_sum_add(&d->sum[i], at, len);
    d->got += len;
}

static enum err take_data(struct payload_decoder *d, const char *at, size_t len)
{
    hash_data(d, at, len);
    d->left -= len;
    if (d->left > 0)
        return OK;
    d->state = STATE_DATA_CR;
    return check_chunk(d);
}

static enum err decode_chunked(struct payload_decoder *d, char *mem, size_t len, size_t *out)
{
    size_t at = 0, kept = 0;
    while (at < len) {
        if (d->state != STATE_DATA) {
            TRY(take_byte(d, mem[at]));
            at++;
            continue;
        }
        size_t n = (size_t)min_u64(d->left, len - at);
        TRY(take_data(d, mem + at, n));
        if (kept != at)
            memmove(mem + kept, mem + at, n);
        kept += n;
        at += n;
    }
    *out = kept;
    return OK;
}

/* ---- the decoder ---- */
static void begin_sums(struct payload_decoder *d, unsigned checks)
{
    const struct payload_facts *f = d->facts;
    checks &= (f->sum != PAYLOAD_NO_SUM ? PAYLOAD_CHECK_SUM : 0u) |
              (f->has_md5 ? PAYLOAD_CHECK_MD5 : 0u) |
              (f->form == PAYLOAD_HASH ? PAYLOAD_CHECK_HASH : 0u);
    d->checks = (uint8_t)checks;
    payload_sum_begin(&d->sum[SUM_OBJECT], checks & PAYLOAD_CHECK_SUM ? f->sum : PAYLOAD_NO_SUM);
    payload_sum_begin(&d->sum[SUM_MD5], checks & PAYLOAD_CHECK_MD5 ? PAYLOAD_MD5 : PAYLOAD_NO_SUM);
    payload_sum_begin(&d->sum[SUM_SHA256],
                      checks & PAYLOAD_CHECK_HASH ? PAYLOAD_SHA256 : PAYLOAD_NO_SUM);
}

enum err payload_begin(struct payload_decoder *d, const struct payload_facts *facts,
                       const struct payload_seed *seed, unsigned checks)
{
    memset(d, 0, sizeof(*d));
    d->facts = facts;
    d->seed = seed;
    d->state = payload_is_chunked(facts->form) ? STATE_HEADER : STATE_RAW;
    begin_sums(d, checks);
    if (!payload_is_signed(facts->form))
        return OK;
    if (!seed)
        return refuse(d, ERR_DENIED, "AccessDenied",
                      "Signed chunks need a request that is signed by its Authorization header.");
    memcpy(d->previous, seed->signature, SIGNATURE_BYTES);
    return OK;
}

enum err payload_decode(struct payload_decoder *d, char *mem, size_t len, size_t *got)
{
    *got = 0;
    if (d->state == STATE_FAILED)
        return d->why;
    if (d->state != STATE_RAW)
        return decode_chunked(d, mem, len, got);
    if (len > d->facts->bytes - d->got)
        return incomplete(d);
    hash_data(d, mem, len);
    *got = len;
    return OK;
}

/* Is the sum what the client said? An idle sum is nothing to compare. */
static bool same_digest(struct payload_decoder *d, unsigned i, const uint8_t *wanted)
{
    uint8_t digest[PAYLOAD_DIGEST_MAX];
    size_t len = payload_sum_end(&d->sum[i], digest);
    return len == 0 || memcmp(digest, wanted, len) == 0;
}

static enum err compare(struct payload_decoder *d)
{
    const struct payload_facts *f = d->facts;
    uint8_t hash[SHA256_BYTES];
    if (d->checks & PAYLOAD_CHECK_HASH) {
        must(hex_read(span_of(f->hash), hash, sizeof(hash)) == OK);
        if (!same_digest(d, SUM_SHA256, hash))
            return refuse(d, ERR_CHECKSUM, "XAmzContentSHA256Mismatch",
                          "The provided 'x-amz-content-sha256' header does not match what was "
                          "computed.");
    }
    if (!same_digest(d, SUM_MD5, f->md5))
        return refuse(d, ERR_CHECKSUM, "BadDigest",
                      "The Content-MD5 you specified did not match what we received.");
    if (!same_digest(d, SUM_OBJECT, f->sum_in_trailer ? d->value_digest : f->sum_digest))
        return refuse(d, ERR_CHECKSUM, "BadDigest",
                      "The checksum you specified did not match the calculated checksum.");
    return OK;
}

enum err payload_end(struct payload_decoder *d)
{
    if (d->state == STATE_FAILED)
        return d->why;
    if (d->ended)
        return OK;
    if ((d->state != STATE_RAW && d->state != STATE_END) || d->got != d->facts->bytes)
        return incomplete(d);
    TRY(compare(d));
    d->ended = true;
    return OK;
}
