/* XML: a bounded push reader on libxml2's SAX2, and a writer that escapes.
 *
 * Invariants:
 *  1. libxml2 sees a byte only after the scan here allowed it: no markup declaration (DOCTYPE), at
 *     most 16 open elements, no markup longer than 8 KiB, at most 32 attributes in a tag and
 *     131,072 tags and attributes and 524,288 references in all, valid UTF-8 and no NUL. Without
 *     this a document of some MiB keeps libxml2 busy for seconds, or makes it read files.
 *  2. libxml2 is fed whole markup (CDATA sections, too: of one that is cut it looks at all bytes
 *     again for each piece) and whole characters only, so that a verdict does not depend on how the
 *     bytes were cut.
 *  3. Once failed, a reader only repeats its error, and no leaf is reported any more.
 *  4. The writer emits well-formed text only: what XML 1.0 cannot hold becomes U+FFFD.
 *
 * Life: xml_open() to xml_close(), one thread; one fixed allocation besides libxml2's own.
 *
 * What can fail: the input (ERR_SYNTAX, ERR_TOO_LARGE), memory (ERR_MEMORY), the caller's leaf
 * function (ERR_SYNTAX); the caller drops the document. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "xml.h"

#include <libxml/globals.h>
#include <libxml/parser.h>

enum {
    DEPTH_MAX = 16,
    MARKUP_BYTES_MAX = 8 * KIB,      /* one tag, comment, instruction or CDATA section */
    MARKUP_COUNT_MAX = 131072,       /* tags and attributes; a page of 1000 keys has 20,000 */
    REFERENCES_MAX = 524288,         /* libxml2 reports each alone, some 70 ns */
    ATTRIBUTES_MAX = 32,             /* libxml2 compares each with each */
    TEXT_BYTES_MAX = 8 * KIB,        /* of one element; the rest is dropped */
    PATH_BYTES_MAX = 2 * KIB,
    PIECE_BYTES = 32 * KIB,          /* after an error, at most this much is still read */
    THREAD_STATE_BYTES = 4 * KIB,    /* more than libxml2's, some 1000 bytes */
    ERROR_DOCUMENT_BYTES_MAX = 64 * KIB,
};

enum scan_state {
    SCAN_START,                      /* nothing but blanks so far; libxml2 never sees those */
    SCAN_TEXT,
    SCAN_OPEN,                       /* behind '<' */
    SCAN_START_TAG,
    SCAN_QUOTED,                     /* inside an attribute's value */
    SCAN_END_TAG,
    SCAN_INSTRUCTION,
    SCAN_BANG,                       /* behind "<!" */
    SCAN_COMMENT_OPEN,               /* behind "<!-" */
    SCAN_COMMENT,
    SCAN_CDATA_OPEN,                 /* behind "<![" */
    SCAN_CDATA,
};

struct utf8 {
    uint8_t need;                    /* continuation bytes that the current character still lacks */
    uint8_t least, most;             /* range of the next one */
};

struct scan {
    uint64_t left_bytes;             /* of the caller's limit */
    uint32_t markup_bytes;           /* since '<' */
    uint32_t markup_count, reference_count;
    uint16_t attributes;             /* of the current tag */
    uint8_t state, depth;
    uint8_t matched;                 /* of "CDATA[", "--", "]]" or "?" */
    uint8_t quote, before;           /* the open quote; the byte before this one in a start tag */
    bool rooted;                     /* a start tag was seen */
    struct utf8 utf8;
};

struct level {
    uint32_t path_len, text_at;      /* of the parent */
};

struct xml_reader {
    struct scan scan;
    enum err why;
    xmlParserCtxt *parser;
    xml_leaf *leaf;
    void *user;
    uint32_t depth;
    uint32_t path_len, text_at, text_len;
    struct level level[DEPTH_MAX];
    size_t held_len;
    char held[MARKUP_BYTES_MAX];     /* markup or a character that is not complete */
    char path[PATH_BYTES_MAX];
    char text[DEPTH_MAX * TEXT_BYTES_MAX + 1]; /* a stack: the innermost element's is on top */
};

/* ---- UTF-8 (RFC 3629), a byte at a time ---- */
/* False: the byte cannot stand here. Afterwards need is 0 at the end of a character. */
static bool take_utf8(struct utf8 *u, uint8_t c)
{
    if (u->need) {
        bool fits = c >= u->least && c <= u->most;
        *u = (struct utf8){u->need - 1, 0x80, 0xbf};
        return fits;
    }
    if (c < 0x80)
        return c != 0;
    if (c < 0xc2 || c > 0xf4)
        return false;
    u->need = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    u->least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80; /* no overlong forms */
    u->most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;  /* no surrogates, <= U+10FFFF */
    return true;
}

/* ---- the scan; what is malformed without being dangerous is left to libxml2 ---- */
static enum err open_markup(struct scan *s)
{
    if (++s->markup_count > MARKUP_COUNT_MAX)
        return ERR_TOO_LARGE;
    s->state = SCAN_OPEN;
    s->markup_bytes = 1;
    s->matched = 0;
    return OK;
}

static enum err scan_start(struct scan *s, uint8_t c)
{
    if (c == '<')
        return open_markup(s);
    if (c != 0xef)                   /* the first byte of a byte order mark */
        return ERR_SYNTAX;
    s->state = SCAN_TEXT;
    return OK;
}

/* "]]>" is not allowed in text; libxml2 misses it when it is cut. */
static enum err scan_text(struct scan *s, uint8_t c)
{
    if (c == '<')
        return open_markup(s);
    if (c == '>' && s->matched >= 2)
        return ERR_SYNTAX;
    s->matched = c != ']' ? 0 : s->matched < 2 ? s->matched + 1 : 2;
    return OK;
}

static enum err scan_open(struct scan *s, uint8_t c)
{
    if (c == '/') {
        s->state = SCAN_END_TAG;
    } else if (c == '?') {
        s->state = SCAN_INSTRUCTION;
    } else if (c == '!') {
        s->state = SCAN_BANG;
    } else {
        if (s->depth == DEPTH_MAX)
            return ERR_TOO_LARGE;
        s->depth++;
        s->attributes = 0;
        s->rooted = true;
        s->state = SCAN_START_TAG;
    }
    s->before = c;
    return c == '>' || c == '<' ? ERR_SYNTAX : OK;
}

static void close_markup(struct scan *s)
{
    s->state = SCAN_TEXT;
    s->matched = 0;
}

static enum err scan_start_tag(struct scan *s, uint8_t c)
{
    if (c == '<')
        return ERR_SYNTAX;
    if (c == '"' || c == '\'') {
        if (++s->attributes > ATTRIBUTES_MAX || ++s->markup_count > MARKUP_COUNT_MAX)
            return ERR_TOO_LARGE;
        s->quote = c;
        s->state = SCAN_QUOTED;
    } else if (c == '>') {
        if (s->before == '/')
            s->depth--;
        close_markup(s);
    }
    s->before = c;
    return OK;
}

static enum err scan_quoted(struct scan *s, uint8_t c)
{
    if (c == s->quote)
        s->state = SCAN_START_TAG;
    return c == '<' ? ERR_SYNTAX : OK;
}

static enum err scan_end_tag(struct scan *s, uint8_t c)
{
    if (c != '>')
        return c == '<' ? ERR_SYNTAX : OK;
    if (s->depth == 0)
        return ERR_SYNTAX;
    s->depth--;
    close_markup(s);
    return OK;
}

static enum err scan_instruction(struct scan *s, uint8_t c)
{
    if (c == '>' && s->matched)
        close_markup(s);
    else
        s->matched = c == '?';
    return OK;
}

static enum err scan_bang(struct scan *s, uint8_t c)
{
    if (c != '-' && c != '[')
        return ERR_SYNTAX;           /* DOCTYPE */
    s->state = c == '-' ? SCAN_COMMENT_OPEN : SCAN_CDATA_OPEN;
    return OK;
}

static enum err scan_comment_open(struct scan *s, uint8_t c)
{
    s->state = SCAN_COMMENT;
    return c == '-' ? OK : ERR_SYNTAX;
}

static enum err scan_comment(struct scan *s, uint8_t c)
{
    if (s->matched == 2) {           /* "--" ends a comment or is an error (XML 1.0 2.5) */
        close_markup(s);
        return c == '>' ? OK : ERR_SYNTAX;
    }
    s->matched = c == '-' ? s->matched + 1 : 0;
    return OK;
}

static enum err scan_cdata_open(struct scan *s, uint8_t c)
{
    static const char name[] = "CDATA[";
    if (c != (uint8_t)name[s->matched] || s->depth == 0)
        return ERR_SYNTAX;
    if (++s->matched == sizeof(name) - 1) {
        s->state = SCAN_CDATA;
        s->matched = 0;
    }
    return OK;
}

static enum err scan_cdata(struct scan *s, uint8_t c)
{
    if (c == '>' && s->matched == 2)
        close_markup(s);
    else
        s->matched = c != ']' ? 0 : s->matched < 2 ? s->matched + 1 : 2;
    return OK;
}

typedef enum err scan_step(struct scan *s, uint8_t c);
static scan_step *const scan_steps[] = {
    [SCAN_START] = scan_start,
    [SCAN_TEXT] = scan_text,
    [SCAN_OPEN] = scan_open,
    [SCAN_START_TAG] = scan_start_tag,
    [SCAN_QUOTED] = scan_quoted,
    [SCAN_END_TAG] = scan_end_tag,
    [SCAN_INSTRUCTION] = scan_instruction,
    [SCAN_BANG] = scan_bang,
    [SCAN_COMMENT_OPEN] = scan_comment_open,
    [SCAN_COMMENT] = scan_comment,
    [SCAN_CDATA_OPEN] = scan_cdata_open,
    [SCAN_CDATA] = scan_cdata,
};

/* Nothing waits for what follows: libxml2 may have all bytes up to here. */
static bool settled(const struct scan *s)
{
    return s->state == SCAN_TEXT && s->utf8.need == 0;
}

static enum err scan_byte(struct scan *s, uint8_t c)
{
    bool markup = s->state >= SCAN_OPEN;
    if (s->left_bytes == 0 || (c == '&' && ++s->reference_count > REFERENCES_MAX))
        return ERR_TOO_LARGE;
    s->left_bytes--;
    if (!take_utf8(&s->utf8, c))
        return ERR_SYNTAX;
    if (markup && ++s->markup_bytes > MARKUP_BYTES_MAX)
        return ERR_TOO_LARGE;
    return scan_steps[s->state](s, c);
}

/* Bytes without a meaning of their own: in text and CDATA, in all other places. */
enum plain { PLAIN_TEXT = 1, PLAIN_MARKUP = 2 };
static const uint8_t plain_of[256] = {
    ['\t'] = PLAIN_TEXT | PLAIN_MARKUP,
    ['\n'] = PLAIN_TEXT | PLAIN_MARKUP,
    ['\r'] = PLAIN_TEXT | PLAIN_MARKUP,
    [' '] = PLAIN_TEXT | PLAIN_MARKUP,
    ['!' ... '%'] = PLAIN_TEXT,
    ['\'' ... ','] = PLAIN_TEXT,
    ['-' ... '/'] = PLAIN_TEXT,
    ['0' ... ':'] = PLAIN_TEXT | PLAIN_MARKUP,
    [';'] = PLAIN_TEXT,
    ['='] = PLAIN_TEXT | PLAIN_MARKUP,
    ['?' ... '@'] = PLAIN_TEXT,
    ['A' ... 'Z'] = PLAIN_TEXT | PLAIN_MARKUP,
    ['[' ... '\\'] = PLAIN_TEXT,
    ['^' ... '`'] = PLAIN_TEXT,
    ['a' ... 'z'] = PLAIN_TEXT | PLAIN_MARKUP,
    ['{' ... '~'] = PLAIN_TEXT,
};

/* A run of text or CDATA: whole characters up to what could be markup, or is not allowed. */
static size_t scan_text_run(struct scan *s, struct span bytes)
{
    size_t n = 0;
    uint8_t matched = s->matched;
    while (n < bytes.len) {
        uint8_t c = (uint8_t)bytes.at[n];
        size_t len = 1;
        bool plain = (plain_of[c] & PLAIN_TEXT) || (c == '>' && matched < 2) ||
                     (c >= 0x80 && (len = span_utf8(span_from(bytes, n))) > 0);
        if (!plain && c != ']')
            break;
        matched = plain ? 0 : matched < 2 ? matched + 1 : 2;
        n += len;
    }
    s->matched = matched;
    return n;
}

static size_t scan_markup_run(struct scan *s, struct span bytes)
{
    size_t n = 0;
    while (n < bytes.len && (plain_of[(uint8_t)bytes.at[n]] & PLAIN_MARKUP))
        n++;
    if (n) {
        s->matched = 0;
        s->before = ' ';
    }
    return n;
}

/* Takes a run of bytes at once where none of them has a meaning of its own; nearly all are such. */
static size_t scan_plain(struct scan *s, struct span bytes)
{
    size_t n;
    bytes.len = (size_t)min_u64(bytes.len, s->left_bytes);
    if (s->utf8.need || s->state == SCAN_BANG || s->state == SCAN_COMMENT_OPEN ||
        s->state == SCAN_CDATA_OPEN || (s->state == SCAN_COMMENT && s->matched == 2))
        return 0;
    if (s->state >= SCAN_OPEN)
        bytes.len = (size_t)min_u64(bytes.len, MARKUP_BYTES_MAX - s->markup_bytes);
    if (s->state == SCAN_TEXT || s->state == SCAN_CDATA)
        n = scan_text_run(s, bytes);
    else
        n = s->state > SCAN_OPEN ? scan_markup_run(s, bytes) : 0;
    s->markup_bytes += s->state >= SCAN_OPEN ? (uint32_t)n : 0;
    s->left_bytes -= n;
    return n;
}

/* ---- what libxml2 reports ---- */
static void stop(struct xml_reader *r, enum err why)
{
    if (r->why == OK)
        r->why = why;
    xmlStopParser(r->parser);
}

/* long: signature of libxml2 */
static void on_start(void *user, const xmlChar *name, unused_ok const xmlChar *prefix,
                     unused_ok const xmlChar *uri, unused_ok int namespace_count,
                     unused_ok const xmlChar **namespaces, unused_ok int attribute_count,
                     unused_ok int defaulted, unused_ok const xmlChar **attributes)
{
    struct xml_reader *r = user;
    struct span add = span_of((const char *)name);
    bool fits = r->depth < DEPTH_MAX && r->path_len + 1 + add.len <= PATH_BYTES_MAX;
    if (r->why != OK || !fits) {
        stop(r, ERR_TOO_LARGE);
        return;
    }
    r->level[r->depth++] = (struct level){r->path_len, r->text_at};
    if (r->path_len)
        r->path[r->path_len++] = '/';
    memcpy(r->path + r->path_len, add.at, add.len);
    r->path_len += (uint32_t)add.len;
    r->text_at = r->text_len;
}

static void on_end(void *user, unused_ok const xmlChar *name, unused_ok const xmlChar *prefix,
                   unused_ok const xmlChar *uri)
{
    struct xml_reader *r = user;
    struct span text = span_make(r->text + r->text_at, r->text_len - r->text_at);
    if (r->why != OK || r->depth == 0 ||
        !r->leaf(r->user, span_make(r->path, r->path_len), text)) {
        stop(r, ERR_SYNTAX);
        return;
    }
    const struct level *parent = &r->level[--r->depth];
    r->text_len = r->text_at;
    r->text_at = parent->text_at;
    r->path_len = parent->path_len;
}

static void on_text(void *user, const xmlChar *text, int len)
{
    struct xml_reader *r = user;
    if (r->why != OK) {
        stop(r, r->why);
        return;
    }
    size_t room = TEXT_BYTES_MAX - (r->text_len - r->text_at);
    size_t n = (size_t)min_u64((uint64_t)len, room);
    memcpy(r->text + r->text_len, text, n);
    r->text_len += (uint32_t)n;
}

#if LIBXML_VERSION >= 21200
typedef const xmlError xml_report;
#else
typedef xmlError xml_report;
#endif

/* Only remembers: libxml2 may hold pointers into its input here, so it is stopped at its next
 * event. */
static void on_error(void *user, xml_report *report)
{
    struct xml_reader *r = user;
    if (r->why == OK && report->level > XML_ERR_WARNING)
        r->why = report->code == XML_ERR_NO_MEMORY ? ERR_MEMORY : ERR_SYNTAX;
}

/* ---- the reader ---- */
/* What libxml2 would print on stderr, before and besides on_error(): "out of memory". */
static void say_nothing(void *user, const char *format, ...) printf_like(2, 3);
static void say_nothing(void *user, const char *format, ...)
{
    (void)user;
    (void)format;
}

/* What it says while it starts is all that tells of a failure. */
static void note_failure(void *user, const char *format, ...) printf_like(2, 3);
static void note_failure(void *user, const char *format, ...)
{
    bool *failed = user;
    (void)format;
    *failed = true;
}

static bool ignore_leaf(void *user, struct span path, struct span text)
{
    (void)user;
    (void)path;
    (void)text;
    return true;
}

/* Reads a document, so that what libxml2 makes at the first one is made now. */
static enum err try_reader(void)
{
    struct xml_reader *r = xml_open(KIB, ignore_leaf, NULL);
    if (!r)
        return ERR_MEMORY;
    enum err e = xml_feed(r, span_of("<?xml version=\"1.0\" encoding=\"UTF-8\"?><a>b</a>"));
    if (e == OK)
        e = xml_end(r);
    xml_close(r);
    return e == OK ? OK : ERR_MEMORY;
}

enum err xml_setup(void)
{
    static bool failed;
    xmlSetGenericErrorFunc(&failed, note_failure);
    xmlInitParser();
    xmlThrDefSetGenericErrorFunc(NULL, say_nothing);
    xmlSetGenericErrorFunc(NULL, say_nothing);
    return failed ? ERR_MEMORY : try_reader();
}

/* libxml2 2.9 that cannot have its thread's state wants to say so, for which it needs that state:
 * it calls itself until the stack ends. So room for it is had first; given back, it is what the
 * same thread's next allocation gets. */
enum err xml_setup_thread(void)
{
    void *room = mem_take(THREAD_STATE_BYTES);
    if (!room)
        return ERR_MEMORY;
    mem_give(room);
    return xmlGetGlobalState() ? OK : ERR_MEMORY;
}

struct xml_reader *xml_open(uint64_t limit_bytes, xml_leaf *leaf, void *user)
{
    xmlSAXHandler sax = {
        .initialized = XML_SAX2_MAGIC,
        .startElementNs = on_start,
        .endElementNs = on_end,
        .characters = on_text,
        .ignorableWhitespace = on_text,
        .cdataBlock = on_text,
        .serror = on_error,
    };
    struct xml_reader *r = mem_take(sizeof(*r));
    if (!r)
        return NULL;
    r->parser = xmlCreatePushParserCtxt(&sax, r, NULL, 0, NULL);
    if (!r->parser) {
        mem_give(r);
        return NULL;
    }
    /* IGNORE_ENC: a declared encoding could give the scanned bytes another meaning. */
    xmlCtxtUseOptions(r->parser, XML_PARSE_NONET | XML_PARSE_NOWARNING | XML_PARSE_IGNORE_ENC);
    r->leaf = leaf;
    r->user = user;
    r->scan.left_bytes = limit_bytes;
    return r;
}

void xml_close(struct xml_reader *r)
{
    if (!r)
        return;
    xmlFreeDoc(r->parser->myDoc);
    xmlFreeParserCtxt(r->parser);
    mem_give(r);
}

static void push(struct xml_reader *r, struct span bytes, bool last)
{
    if (r->why != OK || (bytes.len == 0 && !last))
        return;
    xmlParseChunk(r->parser, bytes.at, (int)bytes.len, last);
    if (r->why == OK && !r->parser->wellFormed)
        r->why = ERR_SYNTAX;
}

static void hold(struct xml_reader *r, struct span bytes)
{
    if (bytes.len > sizeof(r->held) - r->held_len) {
        r->why = ERR_TOO_LARGE;
        return;
    }
    memcpy(r->held + r->held_len, bytes.at, bytes.len);
    r->held_len += bytes.len;
}

/* Pushes what is complete: bytes up to first complete what is held, those up to done are whole. */
static void push_done(struct xml_reader *r, struct span bytes, size_t first, size_t done)
{
    size_t from = 0;
    if (r->held_len && done) {
        hold(r, span_make(bytes.at, first));
        push(r, span_make(r->held, r->held_len), false);
        r->held_len = 0;
        from = first;
    }
    push(r, span_make(bytes.at + from, done - from), false);
}

static void feed_piece(struct xml_reader *r, struct span bytes)
{
    struct scan *s = &r->scan;
    size_t at = 0, first = 0, done = 0;
    enum err e = OK;
    while (at < bytes.len && e == OK) {
        size_t n = scan_plain(s, span_from(bytes, at));
        if (n == 0) {
            e = scan_byte(s, (uint8_t)bytes.at[at]);
            n = e == OK;
        }
        at += n;
        if (e == OK && settled(s)) {
            first = first ? first : at;
            done = at;
        }
    }
    push_done(r, bytes, first, done);
    if (r->why == OK && e == OK)
        hold(r, span_from(bytes, done));
    if (r->why == OK)
        r->why = e;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* S3 keeps a connection alive with blanks before the document. */
static struct span skip_blanks(struct scan *s, struct span bytes)
{
    while (s->state == SCAN_START && s->left_bytes && bytes.len && is_blank(bytes.at[0])) {
        bytes = span_from(bytes, 1);
        s->left_bytes--;
    }
    return bytes;
}

enum err xml_feed(struct xml_reader *r, struct span bytes)
{
    bytes = skip_blanks(&r->scan, bytes);
    while (bytes.len && r->why == OK) {
        struct span piece = span_make(bytes.at, (size_t)min_u64(bytes.len, PIECE_BYTES));
        feed_piece(r, piece);
        bytes = span_from(bytes, piece.len);
    }
    return r->why;
}

enum err xml_end(struct xml_reader *r)
{
    const struct scan *s = &r->scan;
    if (r->why == OK && (!s->rooted || s->depth || s->state != SCAN_TEXT || s->utf8.need))
        r->why = ERR_SYNTAX;
    push(r, span_of(""), true);
    return r->why;
}

/* ---- writing ---- */
void xml_declaration(struct text *t)
{
    text_adds(t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
}

void xml_open_tag(struct text *t, const char *name)
{
    text_addc(t, '<');
    text_adds(t, name);
    text_addc(t, '>');
}

void xml_close_tag(struct text *t, const char *name)
{
    struct span rest = span_of(name); /* attributes belong to the open tag only */
    text_adds(t, "</");
    text_add(t, span_cut(&rest, ' '));
    text_addc(t, '>');
}

/* How long the character at the start is, 0 if XML 1.0 2.2 has none there. */
static size_t character(struct span in)
{
    struct utf8 u = {0};
    size_t n = 0;
    do {
        if (n == in.len || !take_utf8(&u, (uint8_t)in.at[n]))
            return 0;
        n++;
    } while (u.need);
    uint8_t c = (uint8_t)in.at[0];
    if (c < ' ' && c != '\t' && c != '\n' && c != '\r')
        return 0;
    if (n == 3 && c == 0xef && (uint8_t)in.at[1] == 0xbf && (uint8_t)in.at[2] >= 0xbe)
        return 0;                    /* U+FFFE and U+FFFF */
    return n;
}

static const char *escape_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&apos;";
    case '\r':
        return "&#xD;";              /* a bare one would be read as a line feed */
    default:
        return NULL;
    }
}

void xml_escape(struct text *t, struct span value)
{
    while (value.len) {
        size_t run = 0, n = 1;
        while (run < value.len && !escape_of(value.at[run]) &&
               (n = character(span_from(value, run))) != 0)
            run += n;
        text_add(t, span_make(value.at, run));
        value = span_from(value, run);
        if (value.len) {
            const char *escape = escape_of(value.at[0]);
            text_adds(t, escape ? escape : "\xef\xbf\xbd");
            value = span_from(value, 1);
        }
    }
}

void xml_leaf_text(struct text *t, const char *name, struct span value)
{
    xml_open_tag(t, name);
    xml_escape(t, value);
    xml_close_tag(t, name);
}

void xml_leaf_u64(struct text *t, const char *name, uint64_t value)
{
    xml_open_tag(t, name);
    text_addu(t, value);
    xml_close_tag(t, name);
}

/* ---- S3 error documents ---- */
struct s3_error {
    struct xml_s3_error fields;
    bool root;                       /* an <Error> element ended as the root */
};

static struct span trim(struct span text)
{
    while (text.len && is_blank(text.at[0]))
        text = span_from(text, 1);
    while (text.len && is_blank(text.at[text.len - 1]))
        text.len--;
    return text;
}

/* Control characters never leave here: these strings go to log lines. */
static void copy(char *out, size_t cap, struct span text)
{
    struct span in = trim(text);
    size_t n = (size_t)min_u64(in.len, cap - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)in.at[i] < ' ' || in.at[i] == 0x7f ? '?' : in.at[i];
    out[n] = 0;
}

static bool take_error(void *user, struct span path, struct span text)
{
    struct s3_error *e = user;
    struct xml_s3_error *f = &e->fields;
    if (span_is(path, "Error"))
        e->root = true;
    else if (span_is(path, "Error/Code"))
        copy(f->code, sizeof(f->code), text);
    else if (span_is(path, "Error/Message"))
        copy(f->message, sizeof(f->message), text);
    else if (span_is(path, "Error/Region"))
        copy(f->region, sizeof(f->region), text);
    else if (span_is(path, "Error/RequestId"))
        copy(f->request_id, sizeof(f->request_id), text);
    else if (span_is(path, "Error/ActualObjectSize"))
        f->has_actual_size = span_u64(trim(text), &f->actual_size) == OK;
    return true;
}

enum err xml_s3_error_read(struct span document, struct xml_s3_error *out)
{
    struct s3_error e = {0};
    struct xml_reader *r = xml_open(ERROR_DOCUMENT_BYTES_MAX, take_error, &e);
    if (!r)
        return ERR_MEMORY;
    enum err why = xml_feed(r, document);
    if (why == OK)
        why = xml_end(r);
    xml_close(r);
    if (why == OK && !e.root)
        why = ERR_SYNTAX;
    if (why == OK)
        *out = e.fields;
    return why;
}
