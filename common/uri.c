/* URIs: percent coding, splitting of request targets, upstream addresses (RFC 3986).
 *
 * Invariants:
 *  1. Nothing is normalised: "a//b", "a/./b" and "a/../b" are different S3 keys.
 *  2. Decoding never yields a NUL and never more bytes than it was given.
 *  3. What uri_parse() accepts needs no guessing later: no user, query or fragment, no half-numeric
 *     host.
 *
 * Life: pure functions; spans point into the caller's text (a scheme: into a constant).
 *
 * What can fail: the input; uri_parse() also says in a sentence what is wrong, because an operator
 * reads it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include <arpa/inet.h>

enum { HOST_BYTES_MAX = 253 };       /* RFC 1035 2.3.4, without the root's dot */

static const char hex_digits[] = "0123456789ABCDEF";

/* RFC 3986 2.3: unreserved; '/' is decided by the caller. */
static const bool bare[256] = {
    ['-' ... '.'] = true,   ['0' ... '9'] = true, ['A' ... 'Z'] = true,
    ['_'] = true,           ['a' ... 'z'] = true, ['~'] = true,
};

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of an escape whose '%' stands at in.at[i]; 0 when it is none (so is %00, which no key
 * may hold). */
static unsigned escape_value(struct span in, size_t i)
{
    if (in.len - i < 3)
        return 0;
    int high = hex_value(in.at[i + 1]), low = hex_value(in.at[i + 2]);
    return high < 0 || low < 0 ? 0 : (unsigned)high << 4 | (unsigned)low;
}

enum err uri_decode(struct span in, bool plus_is_space, char *out, size_t cap, size_t *len)
{
    size_t n = 0;
    for (size_t i = 0; i < in.len; i++) {
        unsigned c = (uint8_t)in.at[i];
        if (c == '%') {
            c = escape_value(in, i);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (c == 0)
            return ERR_SYNTAX;
        if (n == cap)
            return ERR_TOO_LARGE;
        out[n++] = (char)c;
    }
    *len = n;
    return OK;
}

bool uri_is_decodable(struct span in)
{
    size_t at;
    while ((at = span_find(in, '%')) < in.len) {
        if (escape_value(in, at) == 0)
            return false;
        in = span_from(in, at + 3);
    }
    return true;
}

void uri_encode(struct text *out, struct span in, bool keep_slash)
{
    size_t i = 0;
    while (i < in.len) {
        size_t run = i;
        while (run < in.len && (bare[(uint8_t)in.at[run]] || (keep_slash && in.at[run] == '/')))
            run++;
        text_add(out, span_make(in.at + i, run - i));
        if (run < in.len) {
            uint8_t c = (uint8_t)in.at[run++];
            char escape[3] = {'%', hex_digits[c >> 4], hex_digits[c & 15]};
            text_add(out, span_make(escape, sizeof(escape)));
        }
        i = run;
    }
}

void uri_split(struct span target, struct span *path, struct span *query)
{
    *query = target;
    *path = span_cut(query, '?');
}

bool uri_next_pair(struct span *query, struct uri_pair *out)
{
    while (query->len) {
        struct span part = span_cut(query, '&');
        if (part.len == 0)
            continue;
        out->has_equals = span_find(part, '=') < part.len;
        out->value = part;
        out->name = span_cut(&out->value, '=');
        return true;
    }
    return false;
}

struct span uri_name(const struct uri_pair *pair, char memory[URI_NAME_BYTES_MAX])
{
    size_t len = 0;
    if (uri_decode(pair->name, true, memory, URI_NAME_BYTES_MAX, &len) != OK)
        len = 0;
    return span_make(memory, len);
}

/* ---- upstream addresses ---- */
static enum err refuse(const char **why, const char *sentence)
{
    *why = sentence;
    return ERR_SYNTAX;
}

static bool is_address(struct span host, int family)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char address[sizeof(struct in6_addr)];
    if (host.len >= sizeof(text))
        return false;
    memcpy(text, host.at, host.len);
    text[host.len] = 0;
    return inet_pton(family, text, address) == 1;
}

static bool all_digits(struct span s)
{
    uint64_t unused;
    return span_u64(s, &unused) != ERR_SYNTAX;
}

/* Letters, digits, '-', '_' (container names have it) in labels of 1 to 63 bytes. */
static bool is_name(struct span host)
{
    struct span rest = host, label = host;
    if (host.len == 0 || host.len > HOST_BYTES_MAX || host.at[host.len - 1] == '.')
        return false;
    while (rest.len) {
        label = span_cut(&rest, '.');
        if (label.len == 0 || label.len > 63 || label.at[0] == '-')
            return false;
        for (size_t i = 0; i < label.len; i++) {
            if (!bare[(uint8_t)label.at[i]] || label.at[i] == '~')
                return false;
        }
    }
    return !all_digits(label);       /* "10.0.1" would be read as an address by some */
}

static enum err read_host(struct span *rest, struct uri *u, const char **why)
{
    if (rest->len && rest->at[0] == '[') {
        size_t close = span_find(*rest, ']');
        if (close == rest->len)
            return refuse(why, "the closing bracket of the address is missing");
        u->host = span_make(rest->at + 1, close - 1);
        *rest = span_from(*rest, close + 1);
        u->host_is_address = true;
        if (!is_address(u->host, AF_INET6))
            return refuse(why, "the address in brackets is not an IPv6 address");
        return OK;
    }
    size_t end = span_find(*rest, ':');
    u->host = span_make(rest->at, end);
    *rest = span_from(*rest, end);
    u->host_is_address = is_address(u->host, AF_INET);
    if (u->host.len == 0)
        return refuse(why, "the host is missing");
    if (!u->host_is_address && !is_name(u->host))
        return refuse(why, "the host is neither a name nor an address (IPv6 goes into brackets)");
    return OK;
}

static enum err read_port(struct span rest, struct uri *u, const char **why)
{
    uint64_t port;
    if (rest.len == 0)
        return OK;
    if (rest.at[0] != ':')
        return refuse(why, "after the bracket only a port may follow");
    if (span_u64(span_from(rest, 1), &port) != OK || port == 0 || port > UINT16_MAX)
        return refuse(why, "the port must be a number from 1 to 65535");
    u->port = (uint16_t)port;
    return OK;
}

/* Leaves what follows "scheme://" in *rest. */
static enum err read_scheme(struct span *rest, struct uri *u, const char **why)
{
    static const char *const schemes[] = {"http", "https", "file"};
    size_t colon = span_find(*rest, ':');
    struct span name = span_make(rest->at, colon);
    struct span behind = span_from(*rest, colon);
    if (!span_starts(behind, span_of("://")))
        return refuse(why, "it must begin with http://, https:// or file://");
    for (unsigned i = 0; i < ARRAY_COUNT(schemes); i++) {
        if (span_is_nocase(name, schemes[i])) {
            u->scheme = span_of(schemes[i]);
            *rest = span_from(behind, 3);
            return OK;
        }
    }
    return refuse(why, "only http://, https:// and file:// are supported");
}

enum err uri_parse(struct span text, struct uri *out, const char **why)
{
    struct uri u = {0};
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = (uint8_t)text.at[i];
        if (c <= ' ' || c >= 0x7f)
            return refuse(why, "it holds a blank, a control character or a character beyond ASCII");
        if (c == '?' || c == '#')
            return refuse(why, "a query or fragment is not possible here");
    }
    TRY(read_scheme(&text, &u, why));
    size_t slash = span_find(text, '/');
    struct span authority = span_make(text.at, slash);
    u.path = span_from(text, slash);
    if (span_find(authority, '@') < authority.len)
        return refuse(why, "a user or password does not belong into the address");
    if (span_is(u.scheme, "file")) {
        if (authority.len || u.path.len == 0)
            return refuse(why, "file:// needs an absolute path: file:///dir");
        *out = u;
        return OK;
    }
    TRY(read_host(&authority, &u, why));
    TRY(read_port(authority, &u, why));
    *out = u;
    return OK;
}
