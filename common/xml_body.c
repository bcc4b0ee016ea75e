/* The XML bodies of clients: DeleteObjects and CompleteMultipartUpload, on the reader of xml.c.
 *
 * Invariants:
 *  1. What is reported is what any other reader sees, or the body is refused: a key that we judge
 *     and a key that the store deletes must not differ. So no comments, CDATA sections and
 *     instructions (readers differ about text on both sides of them), XML 1.0 in UTF-8 only, each
 *     element where it belongs and once.
 *  2. An object or part is reported once it is whole, at its end tag.
 *
 * Life: open to close, one thread; two allocations besides libxml2's own.
 * Failure: the body is no such document or over a limit, memory is short, the caller said stop;
 * what was reported before then must not be acted on. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "xml_body.h"

enum {
    DECLARATION_BYTES_MAX = 128,
    NAME_BYTES_MAX = 8 * KIB,        /* as much as the reader keeps of an element's text */
    DETAIL_BYTES_MAX = KIB,          /* version ids and ETags */
};

enum guard_state {
    GUARD_START,                     /* no markup so far */
    GUARD_FIRST,                     /* behind the first '<' */
    GUARD_DECLARATION,
    GUARD_TEXT,
    GUARD_OPEN,                      /* behind any other '<' */
};

typedef bool take_leaf(struct xml_body *b, struct span parent, struct span name, struct span text);

struct xml_body {
    struct xml_reader *reader;
    enum err why;
    enum guard_state guard;
    const char *root, *item;         /* element names */
    take_leaf *take;
    uint32_t count_max, count;
    bool quiet;
    xml_delete_each *delete_each;
    xml_complete_each *complete_each;
    void *user;
    /* ---- of the object or part under way ---- */
    bool has_key, has_detail, has_number;
    uint32_t number;
    size_t key_len, detail_len;
    size_t declaration_len;
    char declaration[DECLARATION_BYTES_MAX];
    char detail[DETAIL_BYTES_MAX];
    char key[NAME_BYTES_MAX];
};

/* ---- what may stand around the elements ---- */
static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct span skip_blanks(struct span s)
{
    while (s.len > 0 && is_blank(s.at[0]))
        s = span_from(s, 1);
    return s;
}

static struct span trim_blanks(struct span s)
{
    s = skip_blanks(s);
    while (s.len > 0 && is_blank(s.at[s.len - 1]))
        s.len--;
    return s;
}

/* The next name="value" of a declaration; false: none is left, or it is malformed. */
static bool next_attribute(struct span *rest, struct span *name, struct span *value)
{
    *rest = skip_blanks(*rest);
    *name = trim_blanks(span_cut(rest, '='));
    *rest = skip_blanks(*rest);
    if (rest->len == 0 || (rest->at[0] != '"' && rest->at[0] != '\''))
        return false;
    char quote = rest->at[0];
    *rest = span_from(*rest, 1);
    *value = span_cut(rest, quote);
    return true;
}

/* text: what stands between "<?" and ">". libxml2 checks its grammar; here only what it says. */
static bool good_declaration(struct span text)
{
    struct span name, value;
    if (text.len < 5 || !span_starts(text, span_of("xml")) || !is_blank(text.at[3]) ||
        text.at[text.len - 1] != '?')
        return false;
    text = span_make(text.at + 3, text.len - 4);
    while (next_attribute(&text, &name, &value)) {
        if (span_is(name, "version") && !span_is(value, "1.0"))
            return false;
        if (span_is(name, "encoding") && !span_is_nocase(value, "UTF-8"))
            return false;
    }
    return text.len == 0;
}

static bool take_declaration(struct xml_body *b, char c)
{
    if (c != '>') {
        if (b->declaration_len == sizeof(b->declaration))
            return false;
        b->declaration[b->declaration_len++] = c;
        return true;
    }
    b->guard = GUARD_TEXT;
    return good_declaration(span_make(b->declaration, b->declaration_len));
}

static bool guard_byte(struct xml_body *b, char c)
{
    switch (b->guard) {
    case GUARD_START:
    case GUARD_TEXT:
        if (c == '<')
            b->guard = b->guard == GUARD_START ? GUARD_FIRST : GUARD_OPEN;
        return true;
    case GUARD_FIRST:
        b->guard = c == '?' ? GUARD_DECLARATION : GUARD_TEXT;
        return c != '!';
    case GUARD_OPEN:
        b->guard = GUARD_TEXT;
        return c != '!' && c != '?';
    default:
        return take_declaration(b, c);
    }
}

/* How many of these bytes the reader may have: all, or those in front of what is not allowed. */
static size_t guard(struct xml_body *b, struct span bytes)
{
    size_t at = 0;
    while (at < bytes.len) {
        if (b->guard == GUARD_TEXT)
            at += span_find(span_from(bytes, at), '<');
        if (at < bytes.len && !guard_byte(b, bytes.at[at]))
            return at;
        at++;
    }
    return bytes.len;
}

/* ---- elements ---- */
static bool keep(struct span text, char *out, size_t cap, size_t *len, bool *has)
{
    if (*has || text.len > cap)
        return false;
    if (text.len > 0)
        memcpy(out, text.at, text.len);
    *len = text.len;
    *has = true;
    return true;
}

static bool keep_key(struct xml_body *b, struct span text)
{
    return text.len > 0 && keep(text, b->key, sizeof(b->key), &b->key_len, &b->has_key);
}

static bool keep_detail(struct xml_body *b, struct span text)
{
    return keep(text, b->detail, sizeof(b->detail), &b->detail_len, &b->has_detail);
}

/* The object or part is whole. */
static bool next_item(struct xml_body *b)
{
    b->has_key = b->has_detail = b->has_number = false;
    b->key_len = b->detail_len = 0;
    return true;
}

static bool take_object(struct xml_body *b)
{
    if (!b->has_key || !b->delete_each(b->user, span_make(b->key, b->key_len),
                                       span_make(b->detail, b->detail_len)))
        return false;
    return next_item(b);
}

static bool take_delete_leaf(struct xml_body *b, struct span parent, struct span name,
                             struct span text)
{
    if (parent.len == 0) {
        if (span_is(name, "Quiet"))
            b->quiet = span_is_nocase(trim_blanks(text), "true");
        return !span_is(name, b->item) || take_object(b);
    }
    if (span_is(name, "Key"))
        return keep_key(b, text);
    return !span_is(name, "VersionId") || keep_detail(b, text);
}

/* ETags come with quotes and without; s3cmd sends none. */
static struct span unquote(struct span etag)
{
    etag = trim_blanks(etag);
    if (etag.len >= 2 && etag.at[0] == '"' && etag.at[etag.len - 1] == '"')
        etag = span_make(etag.at + 1, etag.len - 2);
    return etag;
}

static bool keep_number(struct xml_body *b, struct span text)
{
    uint64_t number;
    if (b->has_number || span_u64(trim_blanks(text), &number) != OK || number < 1 ||
        number > XML_COMPLETE_PARTS_MAX)
        return false;
    b->number = (uint32_t)number;
    b->has_number = true;
    return true;
}

static bool take_part(struct xml_body *b)
{
    if (!b->has_number || !b->has_detail ||
        !b->complete_each(b->user, b->number, span_make(b->detail, b->detail_len)))
        return false;
    return next_item(b);
}

static bool take_complete_leaf(struct xml_body *b, struct span parent, struct span name,
                               struct span text)
{
    if (parent.len == 0)
        return !span_is(name, b->item) || take_part(b);
    if (span_is(name, "PartNumber"))
        return keep_number(b, text);
    if (!span_is(name, "ETag"))
        return true;
    text = unquote(text);
    return text.len > 0 && keep_detail(b, text);
}

/* Elements stand in three levels: root, item, and what an item is made of. Others, as later
 * versions of the interface may bring them, are passed over, but only without children, as those
 * could be items to another reader. */
static bool on_leaf(void *user, struct span path, struct span text)
{
    struct xml_body *b = user;
    struct span name = path, root = span_cut(&name, '/'), parent = {"", 0};
    if (!span_is(root, b->root))
        return false;
    if (name.len == 0)
        return true;
    if (span_find(name, '/') < name.len) {
        parent = span_cut(&name, '/');
        if (!span_is(parent, b->item) || span_find(name, '/') < name.len)
            return false;
    }
    if (parent.len == 0 && span_is(name, b->item) && b->count++ == b->count_max) {
        b->why = ERR_TOO_LARGE;
        return false;
    }
    return b->take(b, parent, name, text);
}

/* ---- the reader ---- */
static struct xml_body *open_body(uint64_t limit_bytes, void *user)
{
    struct xml_body *b = mem_take(sizeof(*b));
    if (!b)
        return NULL;
    b->user = user;
    b->reader = xml_open(limit_bytes, on_leaf, b);
    if (!b->reader) {
        mem_give(b);
        return NULL;
    }
    return b;
}

struct xml_body *xml_delete_open(xml_delete_each *each, void *user)
{
    struct xml_body *b = open_body(XML_DELETE_BYTES_MAX, user);
    if (!b)
        return NULL;
    b->root = "Delete";
    b->item = "Object";
    b->take = take_delete_leaf;
    b->count_max = XML_DELETE_OBJECTS_MAX;
    b->delete_each = each;
    return b;
}

struct xml_body *xml_complete_open(xml_complete_each *each, void *user)
{
    struct xml_body *b = open_body(XML_COMPLETE_BYTES_MAX, user);
    if (!b)
        return NULL;
    b->root = "CompleteMultipartUpload";
    b->item = "Part";
    b->take = take_complete_leaf;
    b->count_max = XML_COMPLETE_PARTS_MAX;
    b->complete_each = each;
    return b;
}

enum err xml_body_feed(struct xml_body *b, struct span bytes)
{
    if (b->why != OK)
        return b->why;
    size_t allowed = guard(b, bytes);
    enum err e = xml_feed(b->reader, span_make(bytes.at, allowed));
    if (e == OK && allowed < bytes.len)
        e = ERR_SYNTAX;
    if (b->why == OK)                /* on_leaf() may know it better */
        b->why = e;
    return b->why;
}

enum err xml_body_end(struct xml_body *b)
{
    enum err e = b->why == OK ? xml_end(b->reader) : OK;
    if (b->why == OK)
        b->why = e;
    if (b->why == OK && b->count == 0)
        b->why = ERR_SYNTAX;
    return b->why;
}

uint32_t xml_body_count(const struct xml_body *b)
{
    return (uint32_t)min_u64(b->count, b->count_max);
}

bool xml_body_quiet(const struct xml_body *b)
{
    return b->quiet;
}

void xml_body_close(struct xml_body *b)
{
    if (!b)
        return;
    xml_close(b->reader);
    mem_give(b);
}
