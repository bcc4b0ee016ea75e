/* Log lines: from an event and its pairs to one line of text, logfmt or JSON on stderr.
 *
 * Invariants:
 *  1. What leaves is valid UTF-8 without control characters; the only newline ends the line.
 *  2. What follows the name of a secret and "=" or ":" is cut in clean(), before any other code
 *     sees the line; nothing writes a line that did not pass through it.
 *  3. An event prints at most BURST lines in WINDOW_MS; the rest is counted and told once, when its
 *     window is over, by the next log_event() or log_tick().
 *  4. The lock guards the limits and the recent lines only; it is never held across write(2).
 *  5. A write follows a poll that says that it is possible, under a lock of its own, and has no
 *     more bytes than fit then: PIPE_BUF into a pipe; a socket has room for more. Only somebody
 *     else who writes to the same pipe at that moment could make it wait.
 *
 * Life: log_setup() may be called again at any time (reload). Before the first call lines of level
 * info and above go out as text.
 * Failure: a line that is too long is cut; a line that cannot be written is counted and lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "mem.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    BURST = 5,
    WINDOW_MS = 10000,
    PAIRS_BYTES = 4096,
    LINE_BYTES = 8192,
    VALUE_BYTES = 200,
    VALUE_RING = 8,
    RECENT = 10,
    RECENT_BYTES = 256,
};

static const struct {
    enum log_level level;
    const char *words;
} events[] = {
#define X(name, level, words, help) {level, words},
#include "table/events.h"
#undef X
};

/* "<n>" is what journald takes from the start of a line (sd-daemon(3)). */
static const struct {
    const char *name, *padded, *journal;
} levels[] = {
    {"error", "error ", "<3>"},
    {"warn", "warn  ", "<4>"},
    {"info", "info  ", "<6>"},
    {"debug", "debug ", "<7>"},
};

/* Names behind which a secret stands; they match as the end of a longer name as well. */
static const char *const secrets[] = {"authorization", "signature", "token", "secret"};

static const char *const access_names[] = {
    "client", "method", "target", "status", "sent", "result",
};

static struct {
    uint32_t level, format;          /* enum log_level, enum log_format; relaxed atomics */
    bool journal;
    uint64_t lost;                   /* relaxed atomic */
} out_state = {.level = LOG_INFO, .format = LOG_TEXT};

static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;
static bool torn;                    /* guarded by out_lock: the last line ended in its middle */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct limit {                /* guarded by lock */
    uint64_t since_ms;               /* start of the window, 0 = none is open */
    uint32_t count;
    uint32_t suppressed;
} limits[EVENT_COUNT];
static struct {                      /* guarded by lock */
    char line[RECENT][RECENT_BYTES];
    uint64_t count;                  /* ever; the newest stands at (count - 1) % RECENT */
} recent;

/* Whether stderr is what the variable names (systemd.exec(5)): it is also there where only stdout
 * goes to the journal, or where somebody in between has put a stderr of his own. */
static bool is_journal(void)
{
    const char *told = getenv("JOURNAL_STREAM");
    char ours[64];
    struct stat s;

    if (!told || fstat(STDERR_FILENO, &s) != 0)
        return false;
    snprintf(ours, sizeof ours, "%llu:%llu", (unsigned long long)s.st_dev,
             (unsigned long long)s.st_ino);
    return strcmp(told, ours) == 0;
}

void log_setup(enum log_level at_most, enum log_format format)
{
    must(at_most <= LOG_DEBUG && format <= LOG_JSON);
    if (format == LOG_AUTO)
        format = isatty(STDERR_FILENO) ? LOG_TEXT : LOG_LOGFMT;
    __atomic_store_n(&out_state.level, at_most, __ATOMIC_RELAXED);
    __atomic_store_n(&out_state.format, format, __ATOMIC_RELAXED);
    __atomic_store_n(&out_state.journal, is_journal(), __ATOMIC_RELAXED);
}

/* ---- cleaning: control characters, invalid UTF-8, secrets ---- */

/* Appends one character: as it is, or as an escape that JSON knows too. Returns bytes consumed. */
static size_t add_safe(struct text *t, struct span rest)
{
    size_t len = span_utf8(rest);
    unsigned char first = (unsigned char)rest.at[0];
    bool c1 = len == 2 && first == 0xC2 && (unsigned char)rest.at[1] < 0xA0;

    if (len == 0) {
        text_adds(t, "\xEF\xBF\xBD"); /* U+FFFD */
        return 1;
    }
    if (first == '\n')
        text_adds(t, "\\n");
    else if (first < 0x20 || first == 0x7F)
        text_addf(t, "\\u%04x", first);
    else if (c1) /* U+0080..U+009F command some terminals */
        text_addf(t, "\\u%04x", (unsigned char)rest.at[1]);
    else
        text_add(t, span_make(rest.at, len));
    return len;
}

static bool ends_nocase(struct span a, const char *suffix)
{
    size_t len = strlen(suffix);

    return a.len >= len && span_is_nocase(span_from(a, a.len - len), suffix);
}

/* Length of the separator "=", ":" or "%3D" at the start of rest, 0 if there is none. */
static size_t separator(struct span rest)
{
    if (rest.at[0] == '=' || rest.at[0] == ':')
        return 1;
    return rest.len >= 3 && span_is_nocase(span_make(rest.at, 3), "%3d") ? 3 : 0;
}

/* Where the value that begins here ends. A quoted one ends before its quote; an Authorization value
 * has blanks, so without quotes it ends with the line. */
static size_t secret_length(struct span rest, bool whole_line)
{
    bool quoted = rest.len && rest.at[0] == '"';
    size_t i = quoted;

    for (; i < rest.len; i++) {
        char c = rest.at[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"' || (!quoted && !whole_line && strchr(" &,;", c)))
            break;
    }
    return i < rest.len ? i : rest.len;
}

/* Copies line into t as a printable one without secrets. */
static void clean(struct text *t, struct span line)
{
    for (size_t i = 0; i < line.len;) {
        struct span rest = span_from(line, i);
        size_t skip = separator(rest);
        const char *name = NULL;
        for (unsigned s = 0; skip && !name && s < ARRAY_COUNT(secrets); s++)
            if (ends_nocase(span_make(line.at, i), secrets[s]))
                name = secrets[s];
        if (!name) {
            i += add_safe(t, rest);
            continue;
        }
        text_add(t, span_make(rest.at, skip));
        i += skip;
        while (i < line.len && line.at[i] == ' ')
            i++;
        rest = span_from(line, i);
        if (rest.len && rest.at[0] == '"')
            text_addc(t, '"');
        text_adds(t, "(cut)");
        i += secret_length(rest, name == secrets[0]);
    }
}

const char *log_value(struct span value)
{
    static _Thread_local char ring[VALUE_RING][VALUE_BYTES + 1];
    static _Thread_local unsigned turn;
    char *out = ring[turn++ % VALUE_RING];
    struct text t;
    bool plain = value.len > 0;

    for (size_t i = 0; i < value.len; i++)
        plain = plain && (unsigned char)value.at[i] > ' ' && !strchr("\"\\=\x7F", value.at[i]);
    text_init(&t, out, VALUE_BYTES + 1);
    if (!plain)
        text_addc(&t, '"');
    for (size_t i = 0; i < value.len;) {
        /* The longest escape has 6 bytes; "..." and a quote must still fit. */
        if (t.len + 6 + 4 > VALUE_BYTES) {
            text_adds(&t, "...");
            break;
        }
        if (value.at[i] == '"' || value.at[i] == '\\')
            text_addc(&t, '\\');
        i += add_safe(&t, span_from(value, i));
    }
    if (!plain)
        text_addc(&t, '"');
    return out;
}

/* ---- pairs: "key=value key=\"quoted value\" ..." of a cleaned line ---- */

struct pair {
    struct span key;                 /* empty: a word without "=" */
    struct span value;               /* with its quotes */
};

static size_t token_length(struct span rest)
{
    bool quoted = false;
    size_t i = 0;

    for (; i < rest.len && (quoted || rest.at[i] != ' '); i++) {
        if (rest.at[i] == '\\')
            i++;
        else if (rest.at[i] == '"')
            quoted = !quoted;
    }
    return i < rest.len ? i : rest.len;
}

static struct pair split(struct span token)
{
    size_t at = span_find(token, '=');

    if (at == 0 || at == token.len || token.at[0] == '"')
        return (struct pair){.value = token};
    return (struct pair){span_make(token.at, at), span_from(token, at + 1)};
}

static struct span skip_blanks(struct span rest)
{
    while (rest.len && rest.at[0] == ' ')
        rest = span_from(rest, 1);
    return rest;
}

/* The next pair; *bare counts words without "=". In an event such words belong to the value before
 * them ("why=connection refused"), in an access line they have names of their own. */
static bool next_pair(struct span *rest, bool access, unsigned *bare, struct pair *out)
{
    *rest = skip_blanks(*rest);
    if (rest->len == 0)
        return false;
    size_t len = token_length(*rest);
    *out = split(span_make(rest->at, len));
    *rest = span_from(*rest, len);
    if (out->key.len == 0 && access && *bare < ARRAY_COUNT(access_names)) {
        out->key = span_of(access_names[(*bare)++]);
        return true;
    }
    if (out->key.len == 0)
        out->key = span_of("note");
    while (!access || *bare >= ARRAY_COUNT(access_names)) {
        struct span more = skip_blanks(*rest);
        len = token_length(more);
        if (len == 0 || split(span_make(more.at, len)).key.len)
            break;
        out->value.len = (size_t)(more.at + len - out->value.at);
        *rest = span_from(more, len);
    }
    return true;
}

/* JSON's grammar without exponents: a request id like 10e45678 must stay text. */
static bool is_number(struct span v)
{
    bool minus = v.len && v.at[0] == '-';
    struct span fraction = span_from(v, minus);
    struct span whole = span_cut(&fraction, '.');
    bool dot = minus + whole.len < v.len;

    if (whole.len == 0 || v.len > 18 || (whole.len > 1 && whole.at[0] == '0'))
        return false;
    uint64_t n;
    return span_u64(whole, &n) == OK && (!dot || span_u64(fraction, &n) == OK);
}

static bool is_quoted(struct span v)
{
    return v.len >= 2 && v.at[0] == '"' && token_length(v) == v.len && v.at[v.len - 1] == '"';
}

/* Whether rest begins with an escape that JSON knows. */
static bool is_escape(struct span rest)
{
    if (rest.len < 2)
        return false;
    if (rest.at[1] != 'u')
        return strchr("\"\\/bfnrt", rest.at[1]) != NULL;
    return rest.len >= 6 && strspn(rest.at + 2, "0123456789abcdefABCDEF") >= 4;
}

static void add_quoted(struct text *t, struct span v)
{
    bool was_quoted = is_quoted(v);

    if (was_quoted)
        v = span_make(v.at + 1, v.len - 2);
    text_addc(t, '"');
    for (size_t i = 0; i < v.len; i++) {
        struct span rest = span_from(v, i);
        if (rest.at[0] == '\\' && is_escape(rest) && (was_quoted || rest.at[1] != '"')) {
            text_add(t, span_make(rest.at, 2));
            i++;
            continue;
        }
        if (rest.at[0] == '"' || rest.at[0] == '\\')
            text_addc(t, '\\');
        text_addc(t, rest.at[0]);
    }
    text_addc(t, '"');
}

/* ---- lines ---- */

struct line {
    enum log_level level;
    const char *words;
    struct span pairs;               /* cleaned */
    bool access;
};

static void add_time(struct text *t)
{
    uint64_t ms = clock_wall_ms();
    time_t s = (time_t)(ms / 1000);
    struct tm utc;

    gmtime_r(&s, &utc);
    text_addf(t, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", utc.tm_year + 1900, utc.tm_mon + 1,
              utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (unsigned)(ms % 1000));
}

static void add_text_line(struct text *t, const struct line *l)
{
    add_time(t);
    text_addc(t, ' ');
    text_adds(t, levels[l->level].padded);
    text_adds(t, l->words);
    if (l->pairs.len)
        text_addc(t, ' ');
    text_add(t, l->pairs);
}

static void add_logfmt_line(struct text *t, const struct line *l)
{
    struct span rest = l->pairs;
    struct pair p;
    unsigned bare = 0;

    text_adds(t, "t=");
    add_time(t);
    text_addf(t, " l=%s e=", levels[l->level].name);
    if (strchr(l->words, ' '))
        add_quoted(t, span_of(l->words));
    else
        text_adds(t, l->words);
    while (next_pair(&rest, l->access, &bare, &p)) {
        text_addc(t, ' ');
        text_add(t, p.key);
        text_addc(t, '=');
        bool plain = p.value.len && span_find(p.value, ' ') == p.value.len &&
                     span_find(p.value, '"') == p.value.len;
        if (plain || is_quoted(p.value))
            text_add(t, p.value);
        else
            add_quoted(t, p.value);
    }
}

static void add_json_line(struct text *t, const struct line *l)
{
    struct span rest = l->pairs;
    struct pair p;
    unsigned bare = 0;

    text_adds(t, "{\"t\":\"");
    add_time(t);
    text_addf(t, "\",\"l\":\"%s\",\"e\":\"%s\"", levels[l->level].name, l->words);
    while (next_pair(&rest, l->access, &bare, &p)) {
        /* A line of LINE_BYTES that is cut must stay JSON: stop while a whole pair still fits. */
        if (t->len + 2 * (p.key.len + p.value.len) + 16 > t->cap)
            break;
        text_addc(t, ',');
        add_quoted(t, p.key);
        text_addc(t, ':');
        if (is_number(p.value))
            text_add(t, p.value);
        else
            add_quoted(t, p.value);
    }
    text_addc(t, '}');
}

/* What is taken at once. */
static size_t put_out(const char *bytes, size_t len)
{
    size_t done = 0;
    ssize_t n = 1;

    while (done < len && n > 0) {
        struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
        size_t part = len - done < PIPE_BUF ? len - done : PIPE_BUF;
        n = poll(&out, 1, 0) == 1 && (out.revents & POLLOUT)
                ? write(STDERR_FILENO, bytes + done, part) : 0;
        done += n > 0 ? (size_t)n : 0;
    }
    return done;
}

/* bytes[0] is a newline, for a line before this one that has none. */
static void put_line(const char *bytes, size_t len)
{
    pthread_mutex_lock(&out_lock);
    size_t skip = torn ? 0 : 1, done = put_out(bytes + skip, len - skip);
    if (done > 0)
        torn = done < len - skip;
    pthread_mutex_unlock(&out_lock);
    if (done < len - skip)
        __atomic_fetch_add(&out_state.lost, 1, __ATOMIC_RELAXED);
}

static void write_line(const struct line *l)
{
    char memory[LINE_BYTES];
    struct text t;
    uint32_t format = __atomic_load_n(&out_state.format, __ATOMIC_RELAXED);

    memory[0] = '\n';
    /* One byte stays free for the newline, whatever was cut. */
    text_init(&t, memory + 1, sizeof memory - 2);
    if (__atomic_load_n(&out_state.journal, __ATOMIC_RELAXED))
        text_adds(&t, levels[l->level].journal);
    if (format == LOG_JSON)
        add_json_line(&t, l);
    else if (format == LOG_LOGFMT)
        add_logfmt_line(&t, l);
    else
        add_text_line(&t, l);
    t.at[t.len] = '\n';
    put_line(memory, t.len + 2);
}

static void keep_recent(const struct line *l)
{
    char memory[RECENT_BYTES];
    struct text t;

    text_init(&t, memory, sizeof memory);
    add_text_line(&t, l);
    /* A cut may have gone through a character. */
    size_t whole = 0;
    for (size_t len = 1; len && whole < t.len; whole += len)
        len = span_utf8(span_from(text_span(&t), whole));
    memory[whole] = '\0';
    pthread_mutex_lock(&lock);
    memcpy(recent.line[recent.count % RECENT], memory, whole + 1);
    recent.count++;
    pthread_mutex_unlock(&lock);
}

static void emit(const struct line *l)
{
    if (l->level <= LOG_WARN)
        keep_recent(l);
    if (l->level <= __atomic_load_n(&out_state.level, __ATOMIC_RELAXED))
        write_line(l);
}

/* ---- rate limit ---- */

/* Whether this occurrence is printed. */
static bool admit(enum event event, uint64_t now_ms)
{
    struct limit *l = &limits[event];
    bool admitted;

    pthread_mutex_lock(&lock);
    /* A window with suppressed lines is closed by tell_suppressed() only, so none is forgotten. */
    if (l->since_ms == 0 || (now_ms - l->since_ms >= WINDOW_MS && l->suppressed == 0))
        *l = (struct limit){.since_ms = now_ms};
    admitted = l->count < BURST;
    if (admitted)
        l->count++;
    else
        l->suppressed++;
    pthread_mutex_unlock(&lock);
    return admitted;
}

static void tell_suppressed(uint64_t now_ms)
{
    uint32_t told[EVENT_COUNT] = {0};

    pthread_mutex_lock(&lock);
    for (unsigned e = 0; e < EVENT_COUNT; e++) {
        if (limits[e].suppressed && now_ms - limits[e].since_ms >= WINDOW_MS) {
            told[e] = limits[e].suppressed;
            limits[e] = (struct limit){0};
        }
    }
    pthread_mutex_unlock(&lock);
    for (unsigned e = 0; e < EVENT_COUNT; e++) {
        char pairs[32];
        if (!told[e])
            continue;
        int len = snprintf(pairs, sizeof pairs, "suppressed=%u", told[e]);
        struct span told_pairs = span_make(pairs, (size_t)len);
        emit(&(struct line){events[e].level, events[e].words, told_pairs, false});
    }
}

/* ---- the public face ---- */

static uint64_t log_now_ms(void)
{
    return clock_ms() + 1;           /* 0 means "no window" */
}

void log_tick(void)
{
    tell_suppressed(log_now_ms());
}

void log_event(enum event event, const char *pairs, ...)
{
    char raw[PAIRS_BYTES], cleaned[PAIRS_BYTES];
    struct text t;
    va_list args;

    must((unsigned)event < EVENT_COUNT);
    enum log_level level = events[event].level;
    /* Warnings are kept for status even when the log does not want them. */
    if (level > LOG_WARN && level > __atomic_load_n(&out_state.level, __ATOMIC_RELAXED))
        return;
    uint64_t now_ms = log_now_ms();
    tell_suppressed(now_ms);
    if (!admit(event, now_ms))
        return;
    va_start(args, pairs);
    int len = vsnprintf(raw, sizeof raw, pairs, args);
    va_end(args);
    size_t used = len < 0 ? 0 : (size_t)len < sizeof raw ? (size_t)len : sizeof raw - 1;
    text_init(&t, cleaned, sizeof cleaned);
    clean(&t, span_make(raw, used));
    emit(&(struct line){level, events[event].words, text_span(&t), false});
}

void log_access(struct span line)
{
    char cleaned[PAIRS_BYTES];
    struct text t;

    text_init(&t, cleaned, sizeof cleaned);
    clean(&t, line);
    write_line(&(struct line){LOG_INFO, "access", text_span(&t), true});
}

uint64_t log_dropped_count(void)
{
    return __atomic_load_n(&out_state.lost, __ATOMIC_RELAXED);
}

size_t log_recent(char out[10][256])
{
    _Static_assert(RECENT == 10 && RECENT_BYTES == 256, "the header's array");
    pthread_mutex_lock(&lock);
    size_t count = recent.count < RECENT ? (size_t)recent.count : RECENT;
    for (size_t i = 0; i < count; i++)
        memcpy(out[i], recent.line[(recent.count - 1 - i) % RECENT], RECENT_BYTES);
    pthread_mutex_unlock(&lock);
    return count;
}
