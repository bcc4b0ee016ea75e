/* What an error of upstream repeats of our own request is blanked before anyone reads it. Pure.
 *
 * S3 repeats the token in an InvalidToken or ExpiredToken ("Token-0"), and the canonical request
 * with it, the string to sign and the signature in a SignatureDoesNotMatch; proxies and gateways
 * write whole request heads into their pages. All of it is about our credentials, none of it is
 * the client's.
 *
 * Invariants:
 *  1. The length stays, so that a Content-Length does.
 *  2. An element that does not end within the bytes is blanked to their end.
 *
 * Life: over the caller's bytes. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"

enum { SIGNATURE_BYTES_LEAST = 20, REFERENCE_BYTES_MAX = 8, BLANK = '-' };

static void blank(struct span s)
{
    memset((char *)s.at, BLANK, s.len); /* the caller's own bytes, lent for writing */
}

/* From `word` on, behind it; empty without one. */
static struct span behind(struct span text, const char *word)
{
    size_t len = strlen(word);
    const char *at = text.len ? memmem(text.at, text.len, word, len) : NULL;
    return at ? span_from(text, (size_t)(at - text.at) + len) : (struct span){NULL, 0};
}

static void blank_elements(struct span text, const char *open)
{
    for (struct span rest = behind(text, open); rest.len > 0; rest = behind(rest, open)) {
        struct span value = {rest.at, span_find(rest, '<')};
        blank(value);
        rest = span_from(rest, value.len);
    }
}

static bool is_digit_of_signature(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
           c == '/' || c == '=' || c == '%';
}

static void blank_signatures(struct span text, const char *name)
{
    for (struct span rest = behind(text, name); rest.len > 0; rest = behind(rest, name)) {
        struct span value = {rest.at, 0};
        while (value.len < rest.len && is_digit_of_signature(rest.at[value.len]))
            value.len++;
        if (value.len >= SIGNATURE_BYTES_LEAST)
            blank(value);
        rest = span_from(rest, value.len);
    }
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Of a character reference (XML 1.0 4.1), "&#43;" or "&#x2B;"; 0: it is none of that character. */
static size_t referred(struct span text, uint8_t wanted)
{
    if (!span_starts(text, span_of("&#")))
        return 0;
    text.len = min_u64(text.len, REFERENCE_BYTES_MAX);
    bool hex = text.len > 2 && (text.at[2] == 'x' || text.at[2] == 'X');
    size_t at = hex ? 3 : 2, end = span_find(text, ';');
    int base = hex ? 16 : 10, value = 0;
    if (end == text.len || end <= at)
        return 0;
    for (; at < end; at++) {
        int digit = digit_of(text.at[at]);
        if (digit < 0 || digit >= base)
            return 0;
        value = value * base + digit;
    }
    return value == wanted ? end + 1 : 0;
}

/* How many bytes of text spell the character: as it is, %XX, "\/" of JSON, or a reference; 0: they
 * spell another. */
static size_t spelled_one(struct span text, char c)
{
    uint8_t wanted = (uint8_t)c;
    if (text.len > 0 && text.at[0] == c)
        return 1;
    if (text.len > 1 && text.at[0] == '\\' && text.at[1] == c)
        return 2;
    if (text.len > 2 && text.at[0] == '%')
        return digit_of(text.at[1]) == wanted >> 4 && digit_of(text.at[2]) == (wanted & 15) ? 3 : 0;
    return referred(text, wanted);
}

/* How many bytes of text spell the word; 0: they do not. */
static size_t spelled(struct span text, const char *word)
{
    size_t at = 0;
    for (; *word; word++) {
        size_t n = spelled_one(span_from(text, at), *word);
        if (n == 0)
            return 0;
        at += n;
    }
    return at;
}

void creds_blank_echo(const struct creds *c, char *at, size_t len)
{
    static const char *const elements[] = {
        "<Token-0>", "<StringToSign>", "<StringToSignBytes>", "<SignatureProvided>",
        "<CanonicalRequest>", "<CanonicalRequestBytes>",
    };
    struct span text = span_make(at, len);
    for (unsigned i = 0; i < ARRAY_COUNT(elements); i++)
        blank_elements(text, elements[i]);
    blank_signatures(text, "Signature=");
    blank_signatures(text, "Signature%3D");
    blank_signatures(text, "customer-key: ");
    if (!c || !c->token[0])
        return;
    for (struct span rest = text; rest.len > 0; rest = span_from(rest, 1)) {
        size_t n = spelled(rest, c->token);
        if (n > 0)
            blank(span_make(rest.at, n));
    }
}
