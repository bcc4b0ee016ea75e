/* The ground: error sentences, panic, spans of text, clocks, random numbers.
 *
 * Invariants:
 *  1. Nothing here allocates, and nothing but panic() prints.
 *  2. A span of length 0 may have at == NULL; no function here reads through it.
 *  3. panic_hook runs at most once, even when it panics itself or two threads panic together.
 *
 * Life: random_u64() keeps one state per thread, seeded at its first call; all else is stateless.
 * Failure: a clock or a kernel random generator that fails is a broken machine, so both panic. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

void (*panic_hook)(void);

static const struct {
    const char *name, *text;
} errors[] = {
    {"OK", "no error"},
#define X(name, text) {#name, text},
#include "table/errors.h"
#undef X
};
_Static_assert(ARRAY_COUNT(errors) == ERR_COUNT, "one row per error");

const char *err_text(enum err e)
{
    /* An unknown number is a bug elsewhere, but a log line is the wrong place to stop for it. */
    return (unsigned)e < ERR_COUNT ? errors[e].text : "unknown error";
}

const char *err_name(enum err e)
{
    return (unsigned)e < ERR_COUNT ? errors[e].name : "ERR_?";
}

_Noreturn void panic(const char *file, int line, const char *what)
{
    static bool entered;
    char text[512];

    int len = snprintf(text, sizeof text, "panic: %s:%d: must hold: %s\n", file, line, what);
    if (len >= (int)sizeof text)
        len = (int)sizeof text - 1;
    if (len > 0) {
        ssize_t written unused_ok = write(STDERR_FILENO, text, (size_t)len);
    }
    if (!__atomic_exchange_n(&entered, true, __ATOMIC_ACQ_REL) && panic_hook)
        panic_hook();
    abort();
}

/* ---- spans ---- */

static char lower(char c)
{
    /* Not tolower(): a locale must not change what a header name equals. */
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool span_is_nocase(struct span a, const char *text)
{
    if (strlen(text) != a.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (lower(a.at[i]) != lower(text[i]))
            return false;
    return true;
}

bool span_starts(struct span a, struct span prefix)
{
    return a.len >= prefix.len && span_eq(span_make(a.at, prefix.len), prefix);
}

bool span_ends(struct span a, struct span suffix)
{
    return a.len >= suffix.len && span_eq(span_from(a, a.len - suffix.len), suffix);
}

int span_compare(struct span a, struct span b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common ? memcmp(a.at, b.at, common) : 0;

    if (order != 0)
        return order < 0 ? -1 : 1;
    return (a.len > b.len) - (a.len < b.len);
}

struct span span_trim(struct span a)
{
    while (a.len > 0 && (a.at[0] == ' ' || a.at[0] == '\t'))
        a = span_make(a.at + 1, a.len - 1);
    while (a.len > 0 && (a.at[a.len - 1] == ' ' || a.at[a.len - 1] == '\t'))
        a.len--;
    return a;
}

struct span span_from(struct span a, size_t at)
{
    if (at >= a.len)
        return span_make(a.at ? a.at + a.len : NULL, 0);
    return span_make(a.at + at, a.len - at);
}

size_t span_find(struct span a, char c)
{
    const char *found = a.len ? memchr(a.at, c, a.len) : NULL;

    return found ? (size_t)(found - a.at) : a.len;
}

struct span span_cut(struct span *rest, char c)
{
    size_t at = span_find(*rest, c);
    struct span before = span_make(rest->at, at);

    *rest = span_from(*rest, at + 1);
    return before;
}

enum err span_u64(struct span a, uint64_t *out)
{
    uint64_t n = 0;
    bool over = false;

    if (a.len == 0)
        return ERR_SYNTAX;
    for (size_t i = 0; i < a.len; i++) {
        unsigned digit = (unsigned)(unsigned char)a.at[i] - '0';
        if (digit > 9)
            return ERR_SYNTAX;
        /* Reading goes on after an overflow: "99999999999999999999x" is malformed, not large. */
        over = over || n > (UINT64_MAX - digit) / 10;
        n = n * 10 + digit;
    }
    if (over)
        return ERR_TOO_LARGE;
    *out = n;
    return OK;
}

size_t span_utf8(struct span a)
{
    const unsigned char *at = (const unsigned char *)a.at;

    if (a.len == 0)
        return 0;
    if (at[0] < 0x80)
        return 1;
    size_t len = at[0] >= 0xF0 ? 4 : at[0] >= 0xE0 ? 3 : 2;
    /* RFC 3629: C0, C1 and F5..FF never occur; the second byte keeps out overlong forms, surrogates
     * and what lies beyond U+10FFFF. */
    if (at[0] < 0xC2 || at[0] > 0xF4 || a.len < len)
        return 0;
    unsigned char least = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char most = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < least || at[1] > most)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return len;
}

bool span_is_utf8(struct span text)
{
    size_t at = 0;
    uint64_t word;

    /* Most names are ASCII to their end. */
    for (; at + sizeof word <= text.len; at += sizeof word) {
        memcpy(&word, text.at + at, sizeof word);
        if (word & 0x8080808080808080)
            break;
    }
    while (at < text.len) {
        size_t n = span_utf8(span_from(text, at));
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

/* ---- clocks ---- */

static struct timespec now(clockid_t clock)
{
    struct timespec t;

    must(clock_gettime(clock, &t) == 0);
    return t;
}

uint64_t clock_us(void)
{
    struct timespec t = now(CLOCK_MONOTONIC);

    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t clock_ms(void)
{
    return clock_us() / 1000;
}

uint64_t clock_wall_ms(void)
{
    struct timespec t = now(CLOCK_REALTIME);

    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t clock_wall_s(void)
{
    return (uint64_t)now(CLOCK_REALTIME).tv_sec;
}

/* ---- random numbers ---- */

void random_bytes(void *out, size_t len)
{
    char *at = out;

    while (len > 0) {
        ssize_t got = getrandom(at, len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        must(got > 0);
        at += got;
        len -= (size_t)got;
    }
}

uint64_t random_u64(void)
{
    static _Thread_local uint64_t state;

    /* xorshift never leaves 0, so 0 can also mean "not seeded". */
    while (state == 0)
        random_bytes(&state, sizeof state);
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(0x2545F4914F6CDD1D);
}
