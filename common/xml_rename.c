/* Changes the name of a bucket in XML that streams by: a tokenizer that knows just enough of XML to
 * tell elements below the root from all else. Pure.
 *
 * Invariants:
 *  1. One byte at a time, no look-ahead: so pieces may be cut anywhere.
 *  2. Only the text of an element that may be changed is held back, until the next '<' or until it
 *     is longer than any text that would be changed.
 *  3. At most CHANGES_MAX places are changed, so that the growth is bounded.
 *
 * Life: a struct of the caller's, opened once per document.
 * Failure: ERR_SYNTAX for markup that no S3 document has. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "xml_rename.h"

enum { CHANGES_MAX = 4 };
enum state { TEXT, MARKUP, NAME, ATTRIBUTES, CLOSE, BANG, PAGE, COMMENT, CDATA, INSTRUCTION };
enum kind { NONE, BUCKET, PATH, LOCATION };

static const struct {
    const char *root, *element;
    enum kind kind;
} changes[] = {
    {"ListBucketResult", "Name", BUCKET},
    {"ListVersionsResult", "Name", BUCKET},
    {"ListMultipartUploadsResult", "Bucket", BUCKET},
    {"ListPartsResult", "Bucket", BUCKET},
    {"InitiateMultipartUploadResult", "Bucket", BUCKET},
    {"CompleteMultipartUploadResult", "Bucket", BUCKET},
    {"CompleteMultipartUploadResult", "Location", LOCATION},
    {"Error", "BucketName", BUCKET},
    {"Error", "Bucket", BUCKET},
    {"Error", "Resource", PATH},
};

struct out {
    char *at;
    size_t len;
};

static void put(struct out *o, struct span bytes)
{
    if (bytes.len > 0)
        memmove(o->at + o->len, bytes.at, bytes.len);
    o->len += bytes.len;
}

void xml_rename_open(struct xml_rename *r, struct span from, struct span to, struct span location)
{
    must(from.len > 0 && to.len <= XML_RENAME_TEXT_BYTES && location.len <= XML_RENAME_TEXT_BYTES);
    memset(r, 0, sizeof(*r));
    r->from = from;
    r->to = to;
    r->location = location;
}

/* ---- held text ---- */

/* "/bucket" and what is behind it. */
static bool is_path(const struct xml_rename *r, struct span text, struct span *rest)
{
    if (text.len == 0 || text.at[0] != '/' || !span_starts(span_from(text, 1), r->from))
        return false;
    *rest = span_from(text, 1 + r->from.len);
    return rest->len == 0 || rest->at[0] == '/' || rest->at[0] == '?';
}

static void let_go(struct xml_rename *r, struct out *o)
{
    put(o, span_make(r->held, r->held_len));
    r->held_len = 0;
    r->kind = NONE;
}

/* The text has ended. */
static enum err settle(struct xml_rename *r, struct out *o)
{
    struct span text = span_make(r->held, r->held_len), rest;
    enum kind kind = r->kind;

    bool name = kind == BUCKET && span_eq(text, r->from),
         path = kind == PATH && is_path(r, text, &rest), location = kind == LOCATION;
    if (!name && !path && !location) {
        let_go(r, o);
        return OK;
    }
    if (r->changed++ == CHANGES_MAX)
        return ERR_SYNTAX;
    put(o, path ? span_of("/") : span_of(""));
    put(o, location ? r->location : r->to);
    if (path)
        put(o, rest);
    r->held_len = 0;
    r->kind = NONE;
    return OK;
}

static void hold(struct xml_rename *r, char c, struct out *o)
{
    if (r->held_len == sizeof(r->held))
        let_go(r, o);
    if (r->kind == NONE)
        put(o, span_make(&c, 1));
    else
        r->held[r->held_len++] = c;
}

/* ---- markup ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static enum kind kind_of(const struct xml_rename *r)
{
    struct span root = span_make(r->root, r->root_len), tag = span_make(r->tag, r->tag_len);

    for (size_t i = 0; i < ARRAY_COUNT(changes); i++)
        if (span_is(root, changes[i].root) && span_is(tag, changes[i].element))
            return changes[i].kind;
    return NONE;
}

static bool is_known(struct span root)
{
    for (size_t i = 0; i < ARRAY_COUNT(changes); i++)
        if (span_is(root, changes[i].root))
            return true;
    return false;
}

/* The '>' of a start tag. */
static void enter(struct xml_rename *r, bool empty)
{
    if (r->depth == 0) {
        memcpy(r->root, r->tag, r->tag_len);
        r->root_len = r->tag_len;
        r->plain = !is_known(span_make(r->root, r->root_len));
    }
    if (r->depth == 1 && !empty)
        r->kind = (uint8_t)kind_of(r);
    r->depth += !empty;
    r->state = TEXT;
}

static void in_name(struct xml_rename *r, char c)
{
    if (is_space(c) || c == '/' || c == '>') {
        r->state = ATTRIBUTES;
        r->quote = 0;
        if (c == '>')
            enter(r, false);
    } else if (r->tag_len < sizeof(r->tag)) { /* a longer one is none of ours, nor is its start */
        r->tag[r->tag_len++] = c;
    }
}

static void in_attributes(struct xml_rename *r, char c)
{
    if (r->quote)
        r->quote = c == r->quote ? 0 : r->quote;
    else if (c == '"' || c == '\'')
        r->quote = c;
    else if (c == '>')
        enter(r, r->before[1] == '/');
}

static enum err begin_markup(struct xml_rename *r, char c)
{
    r->tag_len = 0;
    r->state = c == '/' ? CLOSE : c == '!' ? BANG : c == '?' ? INSTRUCTION : NAME;
    if (r->state == NAME)
        in_name(r, c);
    return r->state == TEXT || r->state == ATTRIBUTES ? ERR_SYNTAX : OK; /* "< >" */
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static enum err begin_bang(struct xml_rename *r, char c)
{
    bool page = lower(c) == 'd' && r->root_len == 0;

    r->state = c == '-' ? COMMENT : page ? PAGE : CDATA;
    r->tag_len = page;
    return c == '-' || c == '[' || page ? OK : ERR_SYNTAX;
}

/* A page of a proxy, the only DOCTYPE that is passed on. Tags of such pages need no end. */
static enum err in_page(struct xml_rename *r, char c)
{
    static const char words[] = "doctype html";

    if (words[r->tag_len])
        return (is_space(c) ? ' ' : lower(c)) == words[r->tag_len++] ? OK : ERR_SYNTAX;
    r->plain = is_space(c) || c == '>';
    return r->plain ? OK : ERR_SYNTAX;
}

static enum err in_markup(struct xml_rename *r, char c)
{
    bool twice = r->before[0] == r->before[1];

    switch ((enum state)r->state) {
    case MARKUP: return begin_markup(r, c);
    case NAME: in_name(r, c); break;
    case ATTRIBUTES: in_attributes(r, c); break;
    case CLOSE:
        if (c == '>' && r->depth-- == 0)
            return ERR_SYNTAX;
        r->state = c == '>' ? TEXT : CLOSE;
        break;
    case BANG: return begin_bang(r, c);
    case PAGE: return in_page(r, c);
    case COMMENT: r->state = c == '>' && twice && r->before[1] == '-' ? TEXT : COMMENT; break;
    case CDATA: r->state = c == '>' && twice && r->before[1] == ']' ? TEXT : CDATA; break;
    case INSTRUCTION: r->state = c == '>' && r->before[1] == '?' ? TEXT : INSTRUCTION; break;
    case TEXT: break;
    }
    return OK;
}

static enum err in_text(struct xml_rename *r, char c, struct out *o)
{
    if (r->depth == 0 && r->root_len == 0 && c != '<' && !is_space(c)) {
        r->plain = true;
        put(o, span_make(&c, 1));
        return OK;
    }
    if (c != '<') {
        hold(r, c, o);
        return OK;
    }
    TRY(settle(r, o));
    put(o, span_of("<"));
    r->state = MARKUP;
    r->before[0] = r->before[1] = 0;
    return OK;
}

enum err xml_rename_feed(struct xml_rename *r, struct span bytes, char *out, size_t *len)
{
    struct out o = {out, 0};

    *len = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        char c = bytes.at[i];
        if (r->plain) {
            put(&o, span_from(bytes, i));
            break;
        }
        if (r->state == TEXT) {
            TRY(in_text(r, c, &o));
            continue;
        }
        TRY(in_markup(r, c));
        put(&o, span_make(&c, 1));
        r->before[0] = r->before[1];
        r->before[1] = c;
    }
    *len = o.len;
    return OK;
}

bool xml_rename_over(const struct xml_rename *r)
{
    return r->plain || (r->state == TEXT && r->depth == 0);
}
