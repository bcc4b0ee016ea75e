/* HTTP/1.1 heads, chunked bodies, ranges, dates, URIs: one strict parser for both directions.
 *
 * Invariants:
 *  1. What RFC 9112 lets a server refuse is refused: bare LF or CR, obs-fold, a blank before the
 *     colon, bad tokens, TE together with CL, any TE but one "chunked", repeated CL or Host, TE in
 *     1.0, no Host in 1.1, CONNECT, HTTP/0.9, NUL anywhere. So is more than it lets: absolute-form
 *     (3.2.2), since no signature covers the host in the target, which would name the bucket.
 *  2. Parsers are pure, never allocate and never read past len; spans point into the caller's
 *     bytes.
 *  3. A verdict does not depend on how the bytes were cut: HTTP_MORE on a prefix, then the same as
 *     whole. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_HTTP_H
#define HEADPOND_HTTP_H

#include "base.h"
#include "mem.h"

enum {
    /* request line + fields; 431 beyond (414 for the line alone) */
    HTTP_HEAD_BYTES_MAX = 16 * KIB,
    HTTP_FIELDS_MAX = 100,
    HTTP_TARGET_BYTES_MAX = 8 * KIB,
    /* elements of Connection, empty ones included (RFC 9110 5.6.1.2: not so many that they deny
     * service); HTTP_BAD beyond */
    HTTP_OPTIONS_MAX = 32,
};

enum http_method {
    HTTP_GET, HTTP_HEAD, HTTP_PUT, HTTP_POST, HTTP_DELETE, HTTP_OPTIONS, HTTP_METHOD_COUNT
};
const char *http_method_text(enum http_method m);

enum http_verdict {
    HTTP_OK,
    HTTP_MORE,                       /* a valid prefix; read on */
    HTTP_BAD,                        /* 400, close */
    HTTP_TOO_LONG,                   /* 414: request line */
    HTTP_TOO_LARGE,                  /* 431: head or number of fields */
    HTTP_NO_METHOD,                  /* 501: a well-formed token that we do not know */
    HTTP_NO_VERSION,                 /* 505: HTTP/x.y that is not 1.0 or 1.1 */
};

enum http_framing { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED, HTTP_BODY_UNTIL_CLOSE };

struct http_field {
    struct span name, value;         /* as sent; value trimmed at both ends */
};

struct http_head {                   /* a request or a response */
    enum http_method method;         /* requests */
    /* requests: origin form, begins with '/', or "*" for OPTIONS */
    struct span method_text, target;
    uint16_t status;                 /* responses: 100..599 */
    uint8_t minor;                   /* HTTP/1.minor: 0 or 1 */
    bool keep_alive;                 /* version and Connection field together */
    bool expect_continue;            /* requests: Expect: 100-continue, any case */
    enum http_framing framing;
    uint64_t length;                 /* of the body when framing is LENGTH */
    struct span host;                /* requests */
    uint64_t names;                  /* http_name_bit() of each field, when read; 0: not known */
    uint16_t count;
    struct http_field field[HTTP_FIELDS_MAX];
};

/* Reads one head from the start of bytes[0..len). On HTTP_OK sets *out and *used (bytes of the head
 * including its empty line); otherwise *out holds nothing of use. Leading empty lines are not
 * accepted. Costs O(len) per call; a caller that gets HTTP_MORE calls again with more bytes, from
 * the start. */
enum http_verdict http_parse_request(const char *bytes, size_t len, struct http_head *out,
                                     size_t *used);
/* The same for a response; head_request tells that the answer to a HEAD has no body whatever its
 * fields say.
 * Upstream heads: at most 64 KiB (S3 user metadata is at most 2 KB; a megabyte head is an attack).
 * 1xx heads are returned like others; the caller skips them. A body that the status forbids (1xx,
 * 204) and 101 are HTTP_BAD; 304 and answers to HEAD have framing NONE, and length still shows
 * their Content-Length. */
enum http_verdict http_parse_response(const char *bytes, size_t len, bool head_request,
                                      struct http_head *out, size_t *used);
/* Two names with different bits differ. A request is asked for some thirty fields, of which it has
 * three: for a literal name this is one test of a constant. */
static inline uint64_t http_name_bit(struct span name)
{
    return name.len ? (uint64_t)1 << ((name.len * 5 + (uint8_t)(name.at[0] | 0x20)) & 63) : 0;
}
/* Next field at or after *at with that name (any case); advances *at; false at the end. */
bool http_seek(const struct http_head *h, struct span name, unsigned *at, struct span *value);
static inline bool http_next(const struct http_head *h, const char *name, unsigned *at,
                             struct span *value)
{
    if (h->names && !(h->names & http_name_bit(span_of(name)))) {
        *at = h->count;
        return false;
    }
    return http_seek(h, span_of(name), at, value);
}
/* The first one, or an empty span with at == NULL. */
static inline struct span http_find(const struct http_head *h, const char *name)
{
    unsigned at = 0;
    struct span value;
    return http_next(h, name, &at, &value) ? value : (struct span){NULL, 0};
}
/* What Connection names: such fields end here whatever they are (RFC 9110 7.6.1). Cut once, as each
 * field of a head is compared with them. */
struct http_hop {
    unsigned count;
    struct span option[HTTP_OPTIONS_MAX];
};
void http_hop_read(const struct http_head *h, struct http_hop *out);
bool http_hop_has(const struct http_hop *hop, struct span name);

/* ---- chunked bodies, incremental ---- */
struct http_chunked {                /* zeroed = at the start */
    uint64_t left;                   /* of the current chunk's data */
    uint8_t state;
    uint32_t line_bytes;             /* of the current size line or trailer, bounded */
};
/* Consumes framing from bytes[0..len): sets *used, and *data to the body bytes that begin after the
 * framing consumed (inside the same memory; possibly empty, and counted in *used). HTTP_OK = the
 * last chunk and its trailer ended; HTTP_MORE = feed the rest (bytes + *used); HTTP_BAD. Extensions
 * are refused beyond 1 KiB; trailers beyond 8 KiB. */
enum http_verdict http_chunked_step(struct http_chunked *c, const char *bytes, size_t len,
                                    size_t *used, struct span *data);

/* ---- ranges, as S3 reads them ---- */
enum http_range { HTTP_RANGE_NONE, HTTP_RANGE_OK, HTTP_RANGE_UNSATISFIABLE };
/* Applies a Range field to an object of size bytes. NONE: absent, malformed or multiple: the whole
 * object. OK: *from..*to (last byte, inclusive). UNSATISFIABLE: 416. */
enum http_range http_range_apply(struct span field, uint64_t size, uint64_t *from, uint64_t *to);
/* A Range field before the size is known. */
enum http_range_form {
    HTTP_FORM_NONE,
    HTTP_FORM_FROM,
    HTTP_FORM_FROM_TO,
    HTTP_FORM_SUFFIX,
    HTTP_FORM_BAD
};
/* FROM: a- ; FROM_TO: a-b ; SUFFIX: -n (in *from); NONE: the whole object (malformed ones too);
 * BAD: never satisfiable whatever the size (suffix of 0, a number beyond 64 bit). */
enum http_range_form http_range_read(struct span field, uint64_t *from, uint64_t *to);
/* "bytes a-b/size" of a 206; "bytes * /size" of a 416 sets *from = 1, *to = 0. ERR_SYNTAX
 * otherwise; size unknown (*) is ERR_SYNTAX, one beyond 63 bit ERR_TOO_LARGE. */
must_check enum err http_content_range(struct span value, uint64_t *from, uint64_t *to,
                                       uint64_t *size);

/* ---- dates ---- */
enum { HTTP_DATE_BYTES = 29 };
void http_date_write(uint64_t unix_s, char out[HTTP_DATE_BYTES + 1]);   /* IMF-fixdate */
/* All three forms of RFC 9110 5.6.7; ERR_SYNTAX. A date before 1970 is read as 0. */
must_check enum err http_date_read(struct span value, uint64_t *unix_s);
/* 2009-10-12T17:50:30.000Z */
void iso_date_write(uint64_t unix_ms, char out[25]);

/* ---- conditions, as S3 reads them ---- */
struct http_conditions {             /* the fields; "" = not given */
    struct span if_match, if_none_match, if_modified_since, if_unmodified_since;
};
/* Against one generation: 200, 304 or 412 (then *failed = the field's name). A date that cannot be
 * read, lies in the future or has nothing to compare with (last_modified_s 0) is no condition. */
uint16_t http_judge(const struct http_conditions *c, struct span etag, uint64_t last_modified_s,
                    uint64_t now_s, const char **failed);
struct span http_unquote(struct span etag); /* without its quotes, if it has two */

/* ---- URIs ---- */
/* Percent-decodes into out (at most cap bytes); '+' stays '+' unless plus_is_space. ERR_SYNTAX on a
 * bad escape or %00, ERR_TOO_LARGE. */
must_check enum err uri_decode(struct span in, bool plus_is_space, char *out, size_t cap,
                               size_t *len);
bool uri_is_decodable(struct span in);   /* no bad escape, no %00 */
/* Appends with A-Za-z0-9-._~ (and '/' if keep_slash) bare and all else as %HH upper case (SigV4's
 * set). */
void uri_encode(struct text *out, struct span in, bool keep_slash);
/* Splits a target at the first '?'. */
void uri_split(struct span target, struct span *path, struct span *query);
struct uri_pair {
    struct span name, value;         /* raw, still encoded */
    bool has_equals;
};
/* Next name[=value] of a raw query; false at the end. Empty parts (&&) are skipped. */
bool uri_next_pair(struct span *query, struct uri_pair *out);
/* A name decoded into memory: as signatures and rights have it. Empty when it is malformed or
 * longer, and so none that is known. */
enum { URI_NAME_BYTES_MAX = 64 };
struct span uri_name(const struct uri_pair *pair, char memory[URI_NAME_BYTES_MAX]);
/* "http://host[:port][/path]", "https://...", "file:///dir". ERR_SYNTAX with *why set to a
 * sentence. */
struct uri {
    struct span scheme, host, path;  /* borrowed; host without brackets */
    uint16_t port;                   /* 0 = not given */
    bool host_is_address;            /* IPv4 or IPv6 literal */
};
must_check enum err uri_parse(struct span text, struct uri *out, const char **why);

#endif
