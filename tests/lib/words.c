/* Reads the text of plays and origin scripts into statements.
 *
 * Invariants:
 *  1. The input is never changed and never read past its length; it may come from a control port.
 *  2. Room is taken once: no text yields more words or statements than it has bytes.
 *
 * Life: script_read() makes everything, script_free() gives it back.
 * Failure: a mistake in the text is ERR_SYNTAX with the line; nothing is kept then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/words.h"

#include <stdio.h>

#include "mem.h"

enum { NESTING_MAX = 16 };

struct reader {
    const char *at, *end;
    unsigned line;
    char *out;                       /* where the next word's bytes go */
    struct script *script;
    unsigned words;
    unsigned open[NESTING_MAX];      /* statements whose block is open */
    unsigned depth;
    bool inside;                     /* a statement has begun */
    const char *why;
};

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Behind a backslash in quotes. */
static bool read_escape(struct reader *r)
{
    static const char from[] = "rnt0\\\"$", to[] = "\r\n\t\0\\\"$";
    const char *found = r->at < r->end && *r->at ? strchr(from, *r->at) : NULL;

    if (found) {
        *r->out++ = to[found - from];
        r->at++;
        return true;
    }
    if (r->end - r->at < 3 || *r->at != 'x' || hex_digit(r->at[1]) < 0 || hex_digit(r->at[2]) < 0) {
        r->why = "unknown escape";
        return false;
    }
    *r->out++ = (char)(hex_digit(r->at[1]) * 16 + hex_digit(r->at[2]));
    r->at += 3;
    return true;
}

static bool read_quoted(struct reader *r)
{
    for (r->at++; r->at < r->end && *r->at != '"';) {
        if (*r->at == '\n') {
            r->why = "a line ends inside quotes";
            return false;
        }
        if (*r->at != '\\') {
            *r->out++ = *r->at++;
            continue;
        }
        r->at++;
        if (!read_escape(r))
            return false;
    }
    if (r->at == r->end) {
        r->why = "quotes are not closed";
        return false;
    }
    r->at++;
    return true;
}

static bool ends_word(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';';
}

static struct statement *begin_statement(struct reader *r)
{
    struct script *s = r->script;

    if (!r->inside)
        s->statement[s->count++] = (struct statement){
            .line = r->line, .word = s->words + r->words, .end = s->count};
    r->inside = true;
    return &s->statement[s->count - 1];
}

static bool read_word(struct reader *r)
{
    struct statement *st = begin_statement(r);
    char *start = r->out;

    while (r->at < r->end && !ends_word(*r->at)) {
        if (*r->at != '"')
            *r->out++ = *r->at++;
        else if (!read_quoted(r))
            return false;
    }
    r->script->words[r->words++] = span_make(start, (size_t)(r->out - start));
    st->count++;
    *r->out++ = 0;
    return true;
}

static void end_statement(struct reader *r)
{
    r->inside = false;
}

/* A '{' or '}' that stands alone. */
static bool read_brace(struct reader *r)
{
    struct script *s = r->script;

    if (*r->at++ == '{') {
        if (!r->inside || r->depth == NESTING_MAX) {
            r->why = r->inside ? "blocks are too deep" : "a block without a statement";
            return false;
        }
        s->statement[s->count - 1].block = true;
        r->open[r->depth++] = s->count - 1;
    } else {
        if (r->depth == 0) {
            r->why = "'}' without a block";
            return false;
        }
        s->statement[r->open[--r->depth]].end = s->count;
    }
    end_statement(r);
    return true;
}

static bool brace_alone(const struct reader *r)
{
    return (*r->at == '{' || *r->at == '}') && (r->at + 1 == r->end || ends_word(r->at[1]));
}

static void skip_comment(struct reader *r)
{
    while (r->at < r->end && *r->at != '\n')
        r->at++;
}

static bool read_next(struct reader *r)
{
    char c = *r->at;

    if (c == '\\' && r->end - r->at > 1 && r->at[1] == '\n') {
        r->at += 2;
        r->line++;
        return true;
    }
    if (c == '\n' || c == ';') {
        end_statement(r);
        r->line += c == '\n';
        r->at++;
        return true;
    }
    if (ends_word(c)) {
        r->at++;
        return true;
    }
    if (c == '#') {
        skip_comment(r);
        return true;
    }
    return brace_alone(r) ? read_brace(r) : read_word(r);
}

/* Blocks without content and statements without a block end behind themselves. */
static void close_ranges(struct script *s)
{
    for (unsigned i = 0; i < s->count; i++)
        if (s->statement[i].end <= i)
            s->statement[i].end = i + 1;
}

enum err script_read(struct span text, struct script *out, char why[200])
{
    struct script s = {
        .statement = mem_take((text.len + 1) * sizeof(struct statement)),
        .words = mem_take((text.len + 1) * sizeof(struct span)),
        .text = mem_take(text.len * 2 + 1),
    };
    struct reader r = {text.at, text.at + text.len, 1, s.text, &s, 0, {0}, 0, false, NULL};

    if (!s.statement || !s.words || !s.text) {
        script_free(&s);
        return ERR_MEMORY;
    }
    while (r.at < r.end && read_next(&r))
        continue;
    if (!r.why && r.depth > 0)
        r.why = "a block is not closed";
    if (r.why) {
        snprintf(why, 200, "line %u: %s", r.line, r.why);
        script_free(&s);
        return ERR_SYNTAX;
    }
    close_ranges(&s);
    *out = s;
    return OK;
}

void script_free(struct script *s)
{
    mem_give(s->statement);
    mem_give(s->words);
    mem_give(s->text);
    *s = (struct script){0};
}

/* ---- values ---- */

/* Digits and a unit from the front of *rest. */
static bool read_amount(struct span *rest, uint64_t *out)
{
    static const char units[] = "KMGT";
    uint64_t n = 0;
    size_t i = 0;

    for (; i < rest->len && rest->at[i] >= '0' && rest->at[i] <= '9'; i++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, rest->at[i] - '0', &n))
            return false;
    if (i == 0)
        return false;
    const char *unit = i < rest->len && rest->at[i] ? strchr(units, rest->at[i]) : NULL;
    if (unit) {
        if (n >> (64 - 10 * (unit - units + 1)))
            return false;
        n <<= 10 * (unit - units + 1);
        i++;
        if (rest->len - i >= 2 && memcmp(rest->at + i, "iB", 2) == 0)
            i += 2;
    }
    *rest = (struct span){rest->at + i, rest->len - i};
    *out = n;
    return true;
}

enum err size_read(struct span text, uint64_t *out)
{
    uint64_t n, more;

    if (!read_amount(&text, &n))
        return ERR_SYNTAX;
    if (text.len > 0) {
        char sign = *text.at++;
        text.len--;
        if ((sign != '+' && sign != '-') || !read_amount(&text, &more) || text.len > 0)
            return ERR_SYNTAX;
        if (sign == '-' ? more > n : more > UINT64_MAX - n)
            return ERR_SYNTAX;
        n = sign == '-' ? n - more : n + more;
    }
    *out = n;
    return OK;
}

bool size_of_key(struct span key, uint64_t *out)
{
    for (size_t i = key.len; i > 0; i--)
        if (key.at[i - 1] == '@')
            return size_read(span_make(key.at + i, key.len - i), out) == OK;
    return false;
}

bool word_value(struct span word, const char *name, struct span *value)
{
    size_t len = strlen(name);

    if (word.len <= len || word.at[len] != '=' || memcmp(word.at, name, len) != 0)
        return false;
    *value = span_make(word.at + len + 1, word.len - len - 1);
    return true;
}
