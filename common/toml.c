/* A reader of the TOML subset that configuration files use.
 *
 * Invariants:
 *  1. t->at never passes t->all.len; every byte is read through peek().
 *  2. line and line_start belong to t->at whenever it stands outside of a token.
 *  3. The functions named read_* return false only after fail() has filled the mistake, or with
 *     no_memory set.
 *  4. toml_next() moves t->at forward with every call but the last, so the reader ends.
 *
 * Life: nothing is owned; decoded text goes to the caller's arena.
 * Failure: malformed text is an item of its own (TOML_MISTAKE); the rest of its line, or of its
 * array, is skipped. An exhausted arena ends the reading. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "toml.h"

#include <stdio.h>

enum { SHOWN_BYTES = 60, NUMBER_SHOWN_BYTES_MAX = 20 };

void toml_open(struct toml *t, struct span bytes, struct arena *arena)
{
    *t = (struct toml){.all = bytes, .line = 1, .arena = arena};
    /* Editors on Windows put a byte order mark in front. */
    if (span_starts(bytes, span_of("\xEF\xBB\xBF")))
        t->at = t->line_start = 3;
    t->checked = (struct toml_cursor){t->at, t->line_start, t->line};
}

static int peek(const struct toml *t, size_t ahead)
{
    size_t left = t->all.len - t->at;

    return ahead < left ? (unsigned char)t->all.at[t->at + ahead] : -1;
}

static struct toml_place place_at(const struct toml *t, size_t at)
{
    unsigned column = 1;

    for (size_t i = t->line_start; i < at; i++)
        if (((unsigned char)t->all.at[i] & 0xC0) != 0x80)
            column++;
    return (struct toml_place){t->line, column};
}

static struct toml_place here(const struct toml *t)
{
    return place_at(t, t->at);
}

/* Always false, so that a caller can return it. */
printf_like(4, 5) static bool fail(struct toml_item *out, struct toml_place place, struct span what,
                                   const char *format, ...)
{
    struct text t;
    char sentence[sizeof out->mistake];
    va_list args;

    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    out->place = place;
    text_init(&t, out->mistake, sizeof out->mistake);
    text_adds(&t, sentence);
    if (what.len) {
        text_adds(&t, ": ");
        text_add_printable(&t, what, SHOWN_BYTES);
    }
    return false;
}

static const struct span nothing = {NULL, 0};

static bool at_line_end(const struct toml *t)
{
    int c = peek(t, 0);

    return c == -1 || c == '\n' || (c == '\r' && peek(t, 1) == '\n');
}

static void skip_blanks(struct toml *t)
{
    while (peek(t, 0) == ' ' || peek(t, 0) == '\t')
        t->at++;
}

static void skip_line(struct toml *t)
{
    t->at += span_find(span_from(t->all, t->at), '\n');
    if (t->at < t->all.len)
        t->at++;
    t->line++;
    t->line_start = t->at;
}

/* Blanks, comments and line ends, as they may stand between items and inside of arrays. */
static void skip_space(struct toml *t)
{
    for (;;) {
        skip_blanks(t);
        if (peek(t, 0) == -1 || (peek(t, 0) != '#' && !at_line_end(t)))
            return;
        skip_line(t);
    }
}

/* ---- strings ---- */

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static size_t write_utf8(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> len & 0xF0) | c);
    return len;
}

/* The character that the escape here stands for, with *len the escape's length; 0 if it is none. */
static size_t read_escape(const struct toml *t, char out[4], size_t *len)
{
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
    int kind = peek(t, 1);
    size_t digits = kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    uint32_t c = 0;

    const char *known = kind > 0 ? strchr(from, kind) : NULL;
    if (known) {
        out[0] = to[known - from];
        *len = 2;
        return 1;
    }
    for (size_t i = 0; i < digits; i++) {
        int digit = hex_digit(peek(t, 2 + i));
        if (digit < 0 || c > UINT32_MAX >> 4)
            return 0;
        c = c << 4 | (uint32_t)digit;
    }
    /* NUL would end the text early for whoever reads it as a C string. */
    if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return 0;
    *len = 2 + digits;
    return write_utf8(c, out);
}

/* Bytes of the string that begins here, up to its second quote or the end of the line. */
static size_t raw_length(const struct toml *t)
{
    int quote = peek(t, 0);
    size_t len = 1;

    for (int c = peek(t, len); c != quote && c != -1 && c != '\n'; c = peek(t, len))
        len += quote == '"' && c == '\\' && peek(t, len + 1) != '\n' ? 2 : 1;
    return len;
}

/* A one-line string that begins here, with either quote. */
static bool read_string(struct toml *t, struct toml_item *out, struct span *text)
{
    int quote = peek(t, 0);
    struct toml_place start = here(t);
    size_t len = 0;

    if (peek(t, 1) == quote && peek(t, 2) == quote)
        return fail(out, start, nothing, "strings over several lines are not supported");
    char *decoded = arena_take(t->arena, raw_length(t) + 1);
    if (!decoded) {
        t->no_memory = true;
        return false;
    }
    for (t->at++; peek(t, 0) != quote;) {
        size_t escape = 1;
        if (at_line_end(t))
            return fail(out, start, nothing, "the string does not end on its line");
        if (quote == '"' && peek(t, 0) == '\\') {
            size_t got = read_escape(t, decoded + len, &escape);
            if (got == 0)
                return fail(out, here(t), nothing,
                            "unknown escape in a string; write \\\\ for a backslash");
            len += got;
        } else {
            decoded[len++] = (char)peek(t, 0);
        }
        t->at += escape;
    }
    t->at++;
    decoded[len] = '\0';
    *text = span_make(decoded, len);
    return true;
}

/* ---- keys ---- */

static bool is_bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static bool read_part(struct toml *t, struct toml_item *out, struct span *part)
{
    size_t start = t->at;

    if (peek(t, 0) == '"' || peek(t, 0) == '\'')
        return read_string(t, out, part);
    while (is_bare(peek(t, 0)))
        t->at++;
    *part = span_make(t->all.at + start, t->at - start);
    if (part->len == 0)
        return fail(out, here(t), nothing, "a name is expected here");
    return true;
}

static bool read_key(struct toml *t, struct toml_item *out)
{
    out->parts = 0;
    for (;;) {
        skip_blanks(t);
        if (out->parts == TOML_PARTS_MAX)
            return fail(out, here(t), nothing, "too many dots in a name");
        if (!read_part(t, out, &out->part[out->parts]))
            return false;
        out->parts++;
        skip_blanks(t);
        if (peek(t, 0) != '.')
            return true;
        t->at++;
    }
}

/* ---- values ---- */

/* What stands here without quotes, up to something that ends a value. */
static struct span bare_word(const struct toml *t)
{
    size_t len = 0;

    for (int c = peek(t, 0); c > ' ' && !strchr(",]#}", c); c = peek(t, len))
        len++;
    return span_make(t->all.at + t->at, len);
}

/* Decimal, with single underscores between digits, no leading zeros (TOML 1.0, Integer). */
static bool read_integer(struct span word, int64_t *out)
{
    bool minus = word.len && word.at[0] == '-';
    uint64_t n = 0, most = (uint64_t)INT64_MAX + minus;
    bool digit_before = false;

    if (word.len && (word.at[0] == '-' || word.at[0] == '+'))
        word = span_from(word, 1);
    if (word.len > 1 && word.at[0] == '0')
        return false;
    for (size_t i = 0; i < word.len; i++) {
        unsigned digit = (unsigned)(unsigned char)word.at[i] - '0';
        if (digit > 9 && !(word.at[i] == '_' && digit_before))
            return false;
        digit_before = digit <= 9;
        if (digit > 9)
            continue;
        if (n > (most - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *out = minus ? (int64_t)(0 - n) : (int64_t)n;
    return digit_before;
}

/* A number that was not understood; anything else may be a secret that was put here without quotes,
 * as ~/.aws/credentials has it. */
static bool may_show(struct span word)
{
    return word.len <= NUMBER_SHOWN_BYTES_MAX && word.at[0] >= '0' && word.at[0] <= '9';
}

static bool read_bare_value(struct toml *t, struct toml_item *out, struct toml_value *value)
{
    struct span word = bare_word(t);

    if (word.len == 0)
        return fail(out, here(t), nothing, "a value is expected here");
    if (word.at[0] == '{')
        return fail(out, here(t), nothing, "inline tables are not supported; use a [section]");
    if (span_is(word, "true") || span_is(word, "false")) {
        value->kind = TOML_BOOL;
        value->flag = span_is(word, "true");
    } else if (read_integer(word, &value->integer)) {
        value->kind = TOML_INTEGER;
    } else {
        return fail(out, here(t), may_show(word) ? word : nothing,
                    "neither a whole number nor true or false; write texts, "
                    "sizes and times in quotes");
    }
    t->at += word.len;
    return true;
}

static bool read_list(struct toml *t, struct toml_item *out, struct toml_value *value)
{
    struct toml_place start = here(t);

    t->in_list = true;
    value->kind = TOML_LIST;
    value->count = 0;
    t->at++;
    for (;;) {
        skip_space(t);
        int c = peek(t, 0);
        if (c == -1)
            return fail(out, start, nothing, "the array is not closed by ]");
        if (c == ']')
            break;
        if (c != '"' && c != '\'')
            return fail(out, here(t), bare_word(t), "only strings may stand in an array");
        if (value->count == TOML_LIST_MAX)
            return fail(out, here(t), nothing, "more than %d values", TOML_LIST_MAX);
        value->item_place[value->count] = here(t);
        if (!read_string(t, out, &value->item[value->count]))
            return false;
        value->count++;
        skip_space(t);
        if (peek(t, 0) == ',')
            t->at++;
        else if (peek(t, 0) != ']' && peek(t, 0) != -1)
            return fail(out, here(t), nothing, "a comma or ] is missing between array values");
    }
    t->at++;
    t->in_list = false;
    return true;
}

static bool read_value(struct toml *t, struct toml_item *out)
{
    struct toml_value *value = &out->value;
    int c = peek(t, 0);

    value->place = here(t);
    if (c == '[')
        return read_list(t, out, value);
    if (c != '"' && c != '\'')
        return read_bare_value(t, out, value);
    value->kind = TOML_STRING;
    return read_string(t, out, &value->text);
}

/* ---- lines ---- */

static bool read_section(struct toml *t, struct toml_item *out)
{
    out->array = peek(t, 1) == '[';
    t->at += out->array ? 2 : 1;
    if (!read_key(t, out))
        return false;
    if (peek(t, 0) != ']' || (out->array && peek(t, 1) != ']'))
        return fail(out, here(t), nothing, "%s is missing behind the section's name",
                    out->array ? "]]" : "]");
    t->at += out->array ? 2 : 1;
    return true;
}

static bool read_pair(struct toml *t, struct toml_item *out)
{
    if (!read_key(t, out))
        return false;
    if (peek(t, 0) != '=')
        return fail(out, here(t), nothing, "= is missing behind the key");
    t->at++;
    skip_blanks(t);
    return read_value(t, out);
}

static bool read_line_end(struct toml *t, struct toml_item *out)
{
    skip_blanks(t);
    if (peek(t, 0) != '#' && !at_line_end(t))
        return fail(out, here(t), nothing, "nothing may follow here on the same line");
    return true;
}

/* Skips the line of a mistake. Inside an array the lines that look like its values go with it, so
 * that one mistake is not told once for each. */
static void recover(struct toml *t)
{
    skip_line(t);
    while (t->in_list && peek(t, 0) != -1) {
        struct span line = span_trim(span_make(t->all.at + t->at,
                                               span_find(span_from(t->all, t->at), '\n')));
        if (line.len && !strchr("\"',]#\r", line.at[0]))
            break;
        t->in_list = !line.len || line.at[0] != ']';
        skip_line(t);
    }
    t->in_list = false;
}

/* Bytes that TOML forbids everywhere: malformed UTF-8 and control characters but tab and line ends.
 * They are looked for ahead of all else; one per line is told. */
static bool check_bytes(struct toml *t, struct toml_item *out)
{
    struct toml probe = *t;
    bool good = true;

    probe.at = t->checked.at;
    probe.line = t->checked.line;
    probe.line_start = t->checked.line_start;
    while (good && probe.at < probe.all.len) {
        size_t len = span_utf8(span_from(probe.all, probe.at));
        int c = peek(&probe, 0);
        good = len > 0 && c != 0x7F && (c >= ' ' || c == '\t' || at_line_end(&probe));
        if (!good)
            fail(out, here(&probe), nothing,
                 len ? "control character 0x%02x" : "0x%02x is not UTF-8", (unsigned)c);
        if (!good || c == '\n')
            skip_line(&probe);
        else
            probe.at += len;
    }
    t->checked = (struct toml_cursor){probe.at, probe.line_start, probe.line};
    return good;
}

enum toml_event toml_next(struct toml *t, struct toml_item *out)
{
    if (t->checked.at < t->all.len && !check_bytes(t, out))
        return TOML_MISTAKE;
    skip_space(t);
    if (peek(t, 0) == -1)
        return TOML_END;
    out->place = here(t);
    bool section = peek(t, 0) == '[';
    bool good = section ? read_section(t, out) : read_pair(t, out);
    if (good && read_line_end(t, out))
        return section ? TOML_SECTION : TOML_PAIR;
    if (t->no_memory)
        return TOML_NO_MEMORY;
    recover(t);
    return TOML_MISTAKE;
}
