/* HTTP/1.1 heads and chunked bodies: one strict pass for requests and responses (RFC 9112).
 *
 * Invariants:
 *  1. Bytes are judged strictly in the order in which they arrive and no verdict looks ahead, so a
 *     prefix gives HTTP_MORE or the very refusal that the whole gives.
 *  2. Nothing is repaired: what two readers could understand differently (RFC 9112 11.2) is
 *     refused.
 *  3. No byte beyond the limit of a head is looked at, and no number is computed that could wrap.
 *
 * Life: pure functions; spans point into the caller's bytes and die with them. struct http_chunked
 * belongs to its caller and remembers a refusal.
 *
 * What can fail: the input. The caller answers with the verdict's status and closes the connection,
 * because after a refusal the position of the next message is not known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

enum {
    METHOD_BYTES_MAX = 32,           /* far above what we know; longer: unknown (RFC 9112 3) */
    RESPONSE_BYTES_MAX = 64 * KIB,
    VERSION_BYTES = 8,               /* "HTTP/1.1" */
    CHUNK_DIGITS_MAX = 16,
    CHUNK_LINE_BYTES_MAX = KIB,
    TRAILER_BYTES_MAX = 8 * KIB,
};

/* Classes of bytes (RFC 9110 5.5, 5.6.2). TARGET is every visible ASCII character but '#': a
 * fragment is never sent, while a bare '|' or '{' is what curl sends for a key that has one, and it
 * has only one reading. */
enum class { TOKEN = 1, TARGET = 2, VALUE = 4, HOST = 8 };
static const uint8_t class_of[256] = {
    ['\t'] = VALUE,
    [' '] = VALUE,
    ['!'] = TOKEN | TARGET | VALUE,
    ['"'] = TARGET | VALUE,
    ['#'] = TOKEN | VALUE,
    ['$' ... '\''] = TOKEN | TARGET | VALUE,
    ['(' ... ')'] = TARGET | VALUE,
    ['*' ... '+'] = TOKEN | TARGET | VALUE,
    [','] = TARGET | VALUE,
    ['-' ... '.'] = TOKEN | TARGET | VALUE | HOST,
    ['/'] = TARGET | VALUE,
    ['0' ... '9'] = TOKEN | TARGET | VALUE | HOST,
    [':' ... '@'] = TARGET | VALUE,
    ['A' ... 'Z'] = TOKEN | TARGET | VALUE | HOST,
    ['[' ... ']'] = TARGET | VALUE,
    ['^'] = TOKEN | TARGET | VALUE,
    ['_'] = TOKEN | TARGET | VALUE | HOST,
    ['`'] = TOKEN | TARGET | VALUE,
    ['a' ... 'z'] = TOKEN | TARGET | VALUE | HOST,
    ['{'] = TARGET | VALUE,
    ['|'] = TOKEN | TARGET | VALUE,
    ['}'] = TARGET | VALUE,
    ['~'] = TOKEN | TARGET | VALUE | HOST,
    [0x80 ... 0xff] = VALUE,
};

static inline bool is(char c, enum class want)
{
    return (class_of[(uint8_t)c] & want) != 0;
}

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline char fold(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool same_name(struct span name, const char *other, size_t len)
{
    if (name.len != len)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (fold(name.at[i]) != fold(other[i]))
            return false;
    }
    return true;
}

/* ---- the pass ---- */
struct scan {
    const char *at, *end;
    bool full;                       /* end is the limit, not the end of what has arrived */
};

/* What the fields say together; judged when the head is complete. */
struct seen {
    bool length, encoding, host, upgrade;
    bool close, keep_alive, expect;
    unsigned options;                /* of Connection */
};

static struct scan start(const char *bytes, size_t len, size_t limit)
{
    return (struct scan){bytes, bytes + (len < limit ? len : limit), len >= limit};
}

static enum http_verdict dry(const struct scan *s)
{
    return s->full ? HTTP_TOO_LARGE : HTTP_MORE;
}

static enum http_verdict read_crlf(struct scan *s)
{
    if (s->at == s->end)
        return dry(s);
    if (s->at[0] != '\r')
        return HTTP_BAD;
    if (s->at + 1 == s->end)
        return dry(s);
    if (s->at[1] != '\n')
        return HTTP_BAD;
    s->at += 2;
    return HTTP_OK;
}

static enum http_verdict read_version(struct scan *s, uint8_t *minor)
{
    static const char pattern[] = "HTTP/n.n";
    for (unsigned i = 0; i < VERSION_BYTES; i++) {
        if (s->at + i == s->end)
            return dry(s);
        char c = s->at[i];
        if (pattern[i] == 'n' ? !is_digit(c) : c != pattern[i])
            return HTTP_BAD;
    }
    if (s->at[5] != '1' || s->at[7] > '1')
        return HTTP_NO_VERSION;
    *minor = (uint8_t)(s->at[7] - '0');
    s->at += VERSION_BYTES;
    return HTTP_OK;
}

/* The first byte that no field value may hold: eight at a time, because Authorization is 300 bytes
 * long. */
static const char *skip_value(const char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
    while (end - p >= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof(word));
        uint64_t del = word ^ ones * 0x7f;
        uint64_t low = (word - ones * 0x20) & ~word; /* < 0x20; a borrow only adds candidates */
        if ((low | ((del - ones) & ~del)) & tops)
            break;
        p += 8;
    }
    while (p < end && is(*p, VALUE))
        p++;
    return p;
}

static inline bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static enum http_verdict read_field(struct scan *s, struct http_field *out)
{
    const char *p = s->at;
    while (p < s->end && is(*p, TOKEN))
        p++;
    if (p == s->end)
        return dry(s);
    if (*p != ':' || p == s->at)     /* obs-fold, no colon, blank before it, empty or bad name */
        return HTTP_BAD;
    out->name = span_make(s->at, (size_t)(p - s->at));
    p++;
    while (p < s->end && is_blank(*p))
        p++;
    const char *first = p;
    const char *last = s->at = skip_value(p, s->end);
    while (last > first && is_blank(last[-1]))
        last--;
    out->value = span_make(first, (size_t)(last - first));
    return read_crlf(s);
}

/* ---- the fields that decide framing and fate of the connection ---- */
/* uri-host [":" port] (RFC 9112 3.2); of reg-name only what names in use have. */
static bool valid_host(struct span v)
{
    size_t i = 0;
    if (v.len && v.at[0] == '[') {
        while (++i < v.len && (is(v.at[i], HOST) || v.at[i] == ':' || v.at[i] == '%'))
            ;
        if (i < 3 || i == v.len || v.at[i] != ']')
            return false;
        i++;
    } else {
        while (i < v.len && is(v.at[i], HOST))
            i++;
        if (i == 0)
            return false;
    }
    if (i == v.len)
        return true;
    if (v.at[i] != ':' || v.len - i > 6)
        return false;
    for (i++; i < v.len; i++) {
        if (!is_digit(v.at[i]))
            return false;
    }
    return true;
}

static enum http_verdict note_length(struct http_head *out, struct seen *seen, struct span value)
{
    uint64_t length;
    if (seen->length || span_u64(value, &length) != OK || length > INT64_MAX)
        return HTTP_BAD;
    seen->length = true;
    out->length = length;
    return HTTP_OK;
}

static enum http_verdict note_connection(struct seen *seen, struct span value)
{
    while (value.len) {
        if (seen->options++ == HTTP_OPTIONS_MAX)
            return HTTP_BAD;
        struct span option = span_trim(span_cut(&value, ','));
        if (same_name(option, "close", 5))
            seen->close = true;
        else if (same_name(option, "keep-alive", 10))
            seen->keep_alive = true;
        else if (same_name(option, "upgrade", 7))
            seen->upgrade = true;
    }
    return HTTP_OK;
}

static enum http_verdict note_field(struct http_head *out, struct seen *seen, struct http_field f)
{
    switch (f.name.len) {            /* cheaper than comparing: few names share these lengths */
    case 4:
        if (same_name(f.name, "host", 4)) {
            if (seen->host)
                return HTTP_BAD;
            seen->host = true;
            out->host = f.value;
        }
        break;
    case 6:
        if (same_name(f.name, "expect", 6) && same_name(f.value, "100-continue", 12))
            seen->expect = true;
        break;
    case 7:
        seen->upgrade |= same_name(f.name, "upgrade", 7);
        break;
    case 10:
        if (same_name(f.name, "connection", 10))
            return note_connection(seen, f.value);
        break;
    case 14:
        if (same_name(f.name, "content-length", 14))
            return note_length(out, seen, f.value);
        break;
    case 17:
        if (same_name(f.name, "transfer-encoding", 17)) {
            if (seen->encoding || !same_name(f.value, "chunked", 7))
                return HTTP_BAD;
            seen->encoding = true;
        }
        break;
    }
    return HTTP_OK;
}

static enum http_verdict read_fields(struct scan *s, struct http_head *out, struct seen *seen)
{
    for (;;) {
        if (s->at == s->end)
            return dry(s);
        if (*s->at == '\r')
            return read_crlf(s);
        if (out->count == HTTP_FIELDS_MAX)
            return HTTP_TOO_LARGE;
        enum http_verdict v = read_field(s, &out->field[out->count]);
        if (v == HTTP_OK)
            v = note_field(out, seen, out->field[out->count]);
        if (v != HTTP_OK)
            return v;
        out->names |= http_name_bit(out->field[out->count].name);
        out->count++;
    }
}

/* What holds in both directions once all fields are known. */
static enum http_verdict judge(struct http_head *out, const struct seen *seen)
{
    if (seen->encoding && (seen->length || out->minor == 0))
        return HTTP_BAD;             /* RFC 9112 6.1: either is an attempt at smuggling */
    out->keep_alive = !seen->close && (out->minor == 1 || seen->keep_alive);
    out->framing = seen->encoding ? HTTP_BODY_CHUNKED
                 : seen->length   ? HTTP_BODY_LENGTH
                                  : HTTP_BODY_NONE;
    return HTTP_OK;
}

/* ---- requests ---- */
static const char *const method_names[HTTP_METHOD_COUNT] = {
    [HTTP_GET] = "GET",   [HTTP_HEAD] = "HEAD",     [HTTP_PUT] = "PUT",
    [HTTP_POST] = "POST", [HTTP_DELETE] = "DELETE", [HTTP_OPTIONS] = "OPTIONS",
};

const char *http_method_text(enum http_method m)
{
    must((unsigned)m < HTTP_METHOD_COUNT);
    return method_names[m];
}

static enum http_verdict read_method(struct scan *s, struct http_head *out)
{
    const char *p = s->at;
    const char *stop = s->end - p > METHOD_BYTES_MAX ? p + METHOD_BYTES_MAX : s->end;
    while (p < stop && is(*p, TOKEN))
        p++;
    if (p == stop)
        return stop == s->end ? dry(s) : HTTP_NO_METHOD;
    if (*p != ' ' || p == s->at)
        return HTTP_BAD;
    out->method_text = span_make(s->at, (size_t)(p - s->at));
    s->at = p + 1;
    for (unsigned m = 0; m < HTTP_METHOD_COUNT; m++) {
        if (span_is(out->method_text, method_names[m])) {
            out->method = (enum http_method)m;
            return HTTP_OK;
        }
    }
    return HTTP_NO_METHOD;
}

static enum http_verdict read_target(struct scan *s, struct http_head *out)
{
    const char *p = s->at;
    if (p == s->end)
        return dry(s);
    bool star = *p == '*' && out->method == HTTP_OPTIONS;
    if (*p != '/' && !star)          /* absolute-form, authority-form, a second blank */
        return HTTP_BAD;
    const char *stop = s->end - p > HTTP_TARGET_BYTES_MAX ? p + HTTP_TARGET_BYTES_MAX + 1 : s->end;
    while (p < stop && is(*p, TARGET))
        p++;
    size_t len = (size_t)(p - s->at);
    if (len > HTTP_TARGET_BYTES_MAX)
        return HTTP_TOO_LONG;
    if (p == s->end)
        return dry(s);
    if (*p != ' ' || (star && len != 1))
        return HTTP_BAD;
    out->target = span_make(s->at, len);
    s->at = p + 1;
    return HTTP_OK;
}

static enum http_verdict read_request(struct scan *s, struct http_head *out)
{
    struct seen seen = {0};
    enum http_verdict v = read_method(s, out);
    if (v == HTTP_OK)
        v = read_target(s, out);
    if (v == HTTP_OK)
        v = read_version(s, &out->minor);
    if (v == HTTP_OK)
        v = read_crlf(s);
    if (v == HTTP_OK)
        v = read_fields(s, out, &seen);
    if (v != HTTP_OK)
        return v;
    if (seen.host ? !valid_host(out->host) : out->minor == 1)
        return HTTP_BAD;
    if (seen.upgrade)
        return HTTP_BAD;
    out->expect_continue = seen.expect && out->minor == 1; /* RFC 9110 10.1.1: not in 1.0 */
    return judge(out, &seen);
}

enum http_verdict http_parse_request(const char *bytes, size_t len, struct http_head *out,
                                     size_t *used)
{
    struct scan s = start(bytes, len, HTTP_HEAD_BYTES_MAX);
    memset(out, 0, offsetof(struct http_head, field));
    enum http_verdict v = read_request(&s, out);
    if (v == HTTP_OK)
        *used = (size_t)(s.at - bytes);
    return v;
}

/* ---- responses ---- */
/* SP 3DIGIT [SP [reason]]; the second blank is missing from servers that send no reason. */
static enum http_verdict read_status(struct scan *s, struct http_head *out)
{
    static const char least[] = " 100", most[] = " 599";
    for (unsigned i = 0; i < 4; i++) {
        if (s->at + i == s->end)
            return dry(s);
        if (s->at[i] < least[i] || s->at[i] > most[i])
            return HTTP_BAD;
    }
    out->status = (uint16_t)((s->at[1] - '0') * 100 + (s->at[2] - '0') * 10 + (s->at[3] - '0'));
    s->at += 4;
    if (s->at < s->end && *s->at == ' ')
        s->at = skip_value(s->at, s->end);
    return read_crlf(s);
}

/* RFC 9112 6.3. */
static enum http_verdict frame_response(struct http_head *out, bool head_request)
{
    bool announced = out->framing == HTTP_BODY_CHUNKED || out->length > 0;
    if (out->status == 101)          /* we never ask for an upgrade */
        return HTTP_BAD;
    if (out->status < 200 || out->status == 204) {
        if (announced)               /* is a body coming or not? */
            return HTTP_BAD;
        out->framing = HTTP_BODY_NONE;
    } else if (out->status == 304 || head_request) {
        out->framing = HTTP_BODY_NONE;
    } else if (out->framing == HTTP_BODY_NONE) {
        out->framing = HTTP_BODY_UNTIL_CLOSE;
        out->keep_alive = false;
    }
    return HTTP_OK;
}

static enum http_verdict read_response(struct scan *s, bool head_request, struct http_head *out)
{
    struct seen seen = {0};
    enum http_verdict v = read_version(s, &out->minor);
    if (v == HTTP_OK)
        v = read_status(s, out);
    if (v == HTTP_OK)
        v = read_fields(s, out, &seen);
    if (v == HTTP_OK)
        v = judge(out, &seen);
    if (v == HTTP_OK)
        v = frame_response(out, head_request);
    return v;
}

enum http_verdict http_parse_response(const char *bytes, size_t len, bool head_request,
                                      struct http_head *out, size_t *used)
{
    struct scan s = start(bytes, len, RESPONSE_BYTES_MAX);
    memset(out, 0, offsetof(struct http_head, field));
    enum http_verdict v = read_response(&s, head_request, out);
    if (v == HTTP_OK)
        *used = (size_t)(s.at - bytes);
    return v;
}

/* ---- looking fields up ---- */
bool http_seek(const struct http_head *h, struct span name, unsigned *at, struct span *value)
{
    for (unsigned i = *at; i < h->count; i++) {
        if (same_name(h->field[i].name, name.at, name.len)) {
            *at = i + 1;
            *value = h->field[i].value;
            return true;
        }
    }
    *at = h->count;
    return false;
}

void http_hop_read(const struct http_head *h, struct http_hop *out)
{
    struct span value;
    unsigned at = 0;
    out->count = 0;
    while (http_next(h, "connection", &at, &value)) {
        while (value.len > 0 && out->count < HTTP_OPTIONS_MAX) /* the parser lets no more through */
            out->option[out->count++] = span_trim(span_cut(&value, ','));
    }
}

bool http_hop_has(const struct http_hop *hop, struct span name)
{
    for (unsigned i = 0; i < hop->count && name.len > 0; i++)
        if (same_name(hop->option[i], name.at, name.len))
            return true;
    return false;
}

/* ---- chunked bodies (RFC 9112 7.1) ---- */
enum chunk_state {
    CHUNK_SIZE,                      /* zero: the start; at least one digit must come */
    CHUNK_DIGITS,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER,                   /* at the start of a trailer line */
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER_VALUE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_DONE,
    CHUNK_FAILED,
};

static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    c = fold(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum chunk_state size_byte(struct http_chunked *c, char byte)
{
    int digit = hex_digit(byte);
    if (digit >= 0) {
        if (c->line_bytes >= CHUNK_DIGITS_MAX || c->left > (uint64_t)INT64_MAX >> 4)
            return CHUNK_FAILED;     /* invariant 3: left stays below 2^63 */
        c->left = c->left << 4 | (unsigned)digit;
        c->line_bytes++;
        return CHUNK_DIGITS;
    }
    if (c->state == CHUNK_SIZE)
        return CHUNK_FAILED;
    return byte == '\r' ? CHUNK_SIZE_LF : byte == ';' ? CHUNK_EXTENSION : CHUNK_FAILED;
}

static enum chunk_state extension_byte(struct http_chunked *c, char byte)
{
    if (byte == '\r')
        return CHUNK_SIZE_LF;
    bool fits = ++c->line_bytes < CHUNK_LINE_BYTES_MAX;
    return fits && is(byte, VALUE) ? CHUNK_EXTENSION : CHUNK_FAILED;
}

/* Trailer fields are checked for form and dropped (RFC 9110 6.5.1 allows it). */
static enum chunk_state trailer_byte(struct http_chunked *c, char byte)
{
    if (++c->line_bytes > TRAILER_BYTES_MAX)
        return CHUNK_FAILED;
    switch (c->state) {
    case CHUNK_TRAILER:
        if (byte == '\r')
            return CHUNK_END_LF;
        return is(byte, TOKEN) ? CHUNK_TRAILER_NAME : CHUNK_FAILED;
    case CHUNK_TRAILER_NAME:
        if (byte == ':')
            return CHUNK_TRAILER_VALUE;
        return is(byte, TOKEN) ? CHUNK_TRAILER_NAME : CHUNK_FAILED;
    case CHUNK_TRAILER_VALUE:
        if (byte == '\r')
            return CHUNK_TRAILER_LF;
        return is(byte, VALUE) ? CHUNK_TRAILER_VALUE : CHUNK_FAILED;
    case CHUNK_TRAILER_LF:
        return byte == '\n' ? CHUNK_TRAILER : CHUNK_FAILED;
    default:
        return byte == '\n' ? CHUNK_DONE : CHUNK_FAILED;
    }
}

static enum chunk_state framing_byte(struct http_chunked *c, char byte)
{
    switch (c->state) {
    case CHUNK_SIZE:
    case CHUNK_DIGITS:
        return size_byte(c, byte);
    case CHUNK_EXTENSION:
        return extension_byte(c, byte);
    case CHUNK_SIZE_LF:
        c->line_bytes = 0;
        return byte != '\n' ? CHUNK_FAILED : c->left ? CHUNK_DATA : CHUNK_TRAILER;
    case CHUNK_DATA_CR:
        return byte == '\r' ? CHUNK_DATA_LF : CHUNK_FAILED;
    case CHUNK_DATA_LF:
        return byte == '\n' ? CHUNK_SIZE : CHUNK_FAILED;
    default:
        return trailer_byte(c, byte);
    }
}

enum http_verdict http_chunked_step(struct http_chunked *c, const char *bytes, size_t len,
                                    size_t *used, struct span *data)
{
    size_t at = 0;
    *data = span_make(bytes, 0);
    while (c->state < CHUNK_DONE && at < len) {
        if (c->state == CHUNK_DATA) {
            size_t n = (size_t)min_u64(c->left, len - at);
            *data = span_make(bytes + at, n);
            c->left -= n;
            if (c->left == 0)
                c->state = CHUNK_DATA_CR;
            at += n;
            break;
        }
        c->state = (uint8_t)framing_byte(c, bytes[at++]);
    }
    *used = at;
    return c->state == CHUNK_DONE ? HTTP_OK : c->state == CHUNK_FAILED ? HTTP_BAD : HTTP_MORE;
}
