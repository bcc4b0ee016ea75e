/* The XML reader against documents of S3 and bombs, at any cut; the writer; error documents. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/xml.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* Leaves as "path=text\n" lines. */
struct record {
    struct text lines;
    char memory[64 * KIB];
    const char *stop_at;             /* path at which the leaf function refuses */
};

static bool note(void *user, struct span path, struct span text)
{
    struct record *r = user;
    text_add(&r->lines, path);
    text_addc(&r->lines, '=');
    text_add(&r->lines, text);
    text_addc(&r->lines, '\n');
    return !r->stop_at || !span_is(path, r->stop_at);
}

static struct record record;

/* Feeds the document in pieces from heap blocks of exactly their size. */
static enum err feed_all(struct xml_reader *r, const char *doc, size_t len, size_t piece)
{
    enum err e = OK;
    for (size_t at = 0; at < len && e == OK; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        char *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, doc + at, n);
        e = xml_feed(r, span_make(copy, n));
        free(copy);
    }
    return e;
}

static enum err read_with(const char *doc, size_t len, size_t piece, uint64_t limit)
{
    text_init(&record.lines, record.memory, sizeof(record.memory));
    struct xml_reader *r = xml_open(limit, note, &record);
    assert_non_null(r);
    enum err e = feed_all(r, doc, len, piece);
    enum err end = xml_end(r);
    if (e == OK)
        e = end;
    else
        assert_int_equal(end, e);
    assert_int_equal(xml_feed(r, span_of("")), e);
    xml_close(r);
    return e;
}

static enum err read_in(const char *doc, size_t len, size_t piece)
{
    return read_with(doc, len, piece, MIB);
}

struct document {
    const char *name, *bytes, *leaves;
};

#define LONG_TEXT "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 "
#define X8(s) s s s s s s s s
static const struct document documents[] = {
    {"nothing but a root", "<a/>", "a=\n"},
    {"declaration", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a>x</a>\n", "a=x\n"},
    {"single quotes", "<?xml version='1.0'?><a b='x>y' c=\"'/>\">1</a>", "a=1\n"},
    {"byte order mark", "\xef\xbb\xbf<?xml version=\"1.0\"?><a>x</a>", "a=x\n"},
    {"blanks before", " \n\r\n\t<?xml version=\"1.0\"?><a>x</a>", "a=x\n"},
    {"blanks before, no declaration", "    <a>x</a>   ", "a=x\n"},
    {"another encoding is ignored", "<?xml version=\"1.0\" encoding=\"UTF-16\"?><a>x</a>", "a=x\n"},
    {"mixed content", "<a>1<b>2</b>3<c/>4</a>", "a/b=2\na/c=\na=134\n"},
    {"predefined entities", "<a>&amp;&lt;&gt;&quot;&apos;</a>", "a=&<>\"'\n"},
    {"character references", "<a>x&#xD;&#10;&#233;&#x1F600;y</a>",
     "a=x\r\n\xc3\xa9\xf0\x9f\x98\x80y\n"},
    {"line ends are normalised", "<a>x\r\ny\rz</a>", "a=x\ny\nz\n"},
    {"CDATA", "<a>1<![CDATA[<b>&amp;]]]]>2</a>", "a=1<b>&amp;]]2\n"},
    {"CDATA with brackets", "<a><![CDATA[]]]]]></a>", "a=]]]\n"},
    {"empty CDATA", "<a><![CDATA[]]></a>", "a=\n"},
    {"CDATA with UTF-8", "<a><![CDATA[" X8(X8(LONG_TEXT)) "]]></a>", "a=" X8(X8(LONG_TEXT)) "\n"},
    {"comments", "<!-- <a> --><a><!--x-y-->1<!----></a><!-- & -->", "a=1\n"},
    {"instructions", "<?p a?b?><a><?q >?>1</a>", "a=1\n"},
    {"namespaces are dropped",
     "<s:a xmlns:s=\"http://s\" xmlns=\"http://t\"><s:b s:c=\"1\">2</s:b><d>3</d></s:a>",
     "a/b=2\na/d=3\na=\n"},
    {"brackets in text", "<a>[]] ]> ]]&gt;</a>", "a=[]] ]> ]]>\n"},
    {"long text of more than one byte per character", "<a>" X8(X8(LONG_TEXT)) "</a>",
     "a=" X8(X8(LONG_TEXT)) "\n"},
    {"16 levels", "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>x"
     "</a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a>",
     "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a=x\na/a/a/a/a/a/a/a/a/a/a/a/a/a/a=\na/a/a/a/a/a/a/a/a/a/a/a/a"
     "/a=\na/a/a/a/a/a/a/a/a/a/a/a/a=\na/a/a/a/a/a/a/a/a/a/a/a=\na/a/a/a/a/a/a/a/a/a/a=\n"
     "a/a/a/a/a/a/a/a/a/a=\na/a/a/a/a/a/a/a/a=\na/a/a/a/a/a/a/a=\na/a/a/a/a/a/a=\na/a/a/a/a/a=\n"
     "a/a/a/a/a=\na/a/a/a=\na/a/a=\na/a=\na=\n"},
    {"boto3's DeleteObjects", "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object>"
     "<Key>p1</Key></Object><Object><Key>p2</Key></Object></Delete>",
     "Delete/Object/Key=p1\nDelete/Object=\nDelete/Object/Key=p2\nDelete/Object=\nDelete=\n"},
    {"minio-js' DeleteObjects", "<Delete>\n  <Quiet>true</Quiet>\n  <Object>\n    "
     "<Key>a&amp;b</Key>\n  </Object>\n</Delete>",
     "Delete/Quiet=true\nDelete/Object/Key=a&b\nDelete/Object=\n    \n  \nDelete=\n  \n  \n\n"},
    {"a listing", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3."
     "amazonaws.com/doc/2006-03-01/\"><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false"
     "</IsTruncated><Contents><Key>a/b.tar</Key><LastModified>2009-10-12T17:50:30.000Z"
     "</LastModified><ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag>"
     "<Size>434234</Size><Owner><ID>x</ID></Owner></Contents></ListBucketResult>",
     "ListBucketResult/Name=b\nListBucketResult/KeyCount=1\nListBucketResult/IsTruncated=false\n"
     "ListBucketResult/Contents/Key=a/b.tar\nListBucketResult/Contents/LastModified="
     "2009-10-12T17:50:30.000Z\n"
     "ListBucketResult/Contents/ETag=\"fba9dede5f27731c9771645a39863328\"\n"
     "ListBucketResult/Contents/Size=434234\nListBucketResult/Contents/Owner/ID=x\n"
     "ListBucketResult/Contents/Owner=\nListBucketResult/Contents=\nListBucketResult=\n"},
};

static void documents_in_any_pieces(unused_ok void **state)
{
    for (size_t i = 0; i < ARRAY_COUNT(documents); i++) {
        const struct document *d = &documents[i];
        size_t len = strlen(d->bytes);
        for (size_t piece = 1; piece <= len; piece++) {
            enum err e = read_in(d->bytes, len, piece);
            if (e != OK)
                fail_msg("%s in pieces of %zu: %s", d->name, piece, err_name(e));
            assert_string_equal(record.lines.at, d->leaves);
        }
    }
}

/* Length up to and including the end of the root element. */
static size_t root_length(const char *doc)
{
    const char *end = NULL;
    for (const char *p = doc; (p = strstr(p, "</")) != NULL; p++)
        end = p;
    if (!end)
        end = strstr(doc, "/>");
    return (size_t)(strchr(end, '>') + 1 - doc);
}

static void documents_cut_off_are_refused(unused_ok void **state)
{
    for (size_t i = 0; i < ARRAY_COUNT(documents); i++) {
        const char *doc = documents[i].bytes;
        size_t len = root_length(doc);
        for (size_t cut = 0; cut < len; cut++) {
            if (read_in(doc, cut, 7) != ERR_SYNTAX)
                fail_msg("%s: not refused after %zu bytes", documents[i].name, cut);
        }
        assert_int_equal(read_in(doc, len, 7), OK);
    }
}

struct bomb {
    const char *name, *bytes;
    size_t len;
    enum err why;
};
#define BYTES(b) b, sizeof(b) - 1

static const struct bomb bombs[] = {
    {"empty", BYTES(""), ERR_SYNTAX},
    {"only blanks", BYTES("  \n "), ERR_SYNTAX},
    {"only a declaration", BYTES("<?xml version=\"1.0\"?>"), ERR_SYNTAX},
    {"not XML", BYTES("Not Found"), ERR_SYNTAX},
    {"JSON", BYTES("{\"a\": 1}"), ERR_SYNTAX},
    {"DOCTYPE", BYTES("<!DOCTYPE a><a/>"), ERR_SYNTAX},
    {"DOCTYPE behind a declaration", BYTES("<?xml version=\"1.0\"?>\n<!DOCTYPE a><a/>"),
     ERR_SYNTAX},
    {"billion laughs", BYTES("<!DOCTYPE l [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;\">]><l>&b;</l>"),
     ERR_SYNTAX},
    {"external entity", BYTES("<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>"),
     ERR_SYNTAX},
    {"external subset", BYTES("<!DOCTYPE a SYSTEM \"http://127.0.0.1/x.dtd\"><a/>"), ERR_SYNTAX},
    {"lower-case doctype", BYTES("<!doctype html><html></html>"), ERR_SYNTAX},
    {"declaration in the content", BYTES("<a><!ENTITY b \"c\"></a>"), ERR_SYNTAX},
    {"unknown entity", BYTES("<a>&nbsp;</a>"), ERR_SYNTAX},
    {"unknown entity in an attribute", BYTES("<a b=\"&x;\"/>"), ERR_SYNTAX},
    {"bare ampersand", BYTES("<a>a & b</a>"), ERR_SYNTAX},
    {"reference to NUL", BYTES("<a>&#0;</a>"), ERR_SYNTAX},
    {"reference to a control character", BYTES("<a>&#x1;</a>"), ERR_SYNTAX},
    {"reference to a surrogate", BYTES("<a>&#xD800;</a>"), ERR_SYNTAX},
    {"reference beyond Unicode", BYTES("<a>&#x110000;</a>"), ERR_SYNTAX},
    {"NUL", BYTES("<a>x\0y</a>"), ERR_SYNTAX},
    {"control character", BYTES("<a>x\x01y</a>"), ERR_SYNTAX},
    {"lone continuation byte", BYTES("<a>\x80</a>"), ERR_SYNTAX},
    {"overlong slash", BYTES("<a>\xc0\xaf</a>"), ERR_SYNTAX},
    {"overlong of three bytes", BYTES("<a>\xe0\x80\xaf</a>"), ERR_SYNTAX},
    {"surrogate in UTF-8", BYTES("<a>\xed\xa0\x80</a>"), ERR_SYNTAX},
    {"beyond U+10FFFF", BYTES("<a>\xf4\x90\x80\x80</a>"), ERR_SYNTAX},
    {"character cut by a tag", BYTES("<a>\xe2\x82</a>"), ERR_SYNTAX},
    {"Latin-1", BYTES("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>caf\xe9</a>"), ERR_SYNTAX},
    {"U+FFFF", BYTES("<a>\xef\xbf\xbf</a>"), ERR_SYNTAX},
    {"UTF-16 big endian", BYTES("\xfe\xff\0<\0a\0/\0>"), ERR_SYNTAX},
    {"UTF-16 little endian", BYTES("\xff\xfe<\0a\0/\0>\0"), ERR_SYNTAX},
    {"UTF-16 without mark", BYTES("<\0a\0/\0>\0"), ERR_SYNTAX},
    {"UTF-7 document type", BYTES("<?xml version=\"1.0\" encoding=\"UTF-7\"?>+ADwAIQ-DOCTYPE a>"),
     ERR_SYNTAX},
    {"EBCDIC", BYTES("\x4c\x6f\xa7\x94"), ERR_SYNTAX},
    {"two roots", BYTES("<a/><b/>"), ERR_SYNTAX},
    {"text behind the root", BYTES("<a/>x"), ERR_SYNTAX},
    {"text before the root", BYTES("x<a/>"), ERR_SYNTAX},
    {"wrong end tag", BYTES("<a><b></a></b>"), ERR_SYNTAX},
    {"end tag without start", BYTES("</a>"), ERR_SYNTAX},
    {"too many end tags", BYTES("<a></a></a>"), ERR_SYNTAX},
    {"tag in a tag", BYTES("<a <b>/>"), ERR_SYNTAX},
    {"less-than in an attribute", BYTES("<a b=\"<\"/>"), ERR_SYNTAX},
    {"attribute without a value", BYTES("<a b/>"), ERR_SYNTAX},
    {"attribute twice", BYTES("<a b=\"1\" b=\"2\"/>"), ERR_SYNTAX},
    {"empty tag name", BYTES("<>x</>"), ERR_SYNTAX},
    {"CDATA outside", BYTES("<![CDATA[x]]><a/>"), ERR_SYNTAX},
    {"almost CDATA", BYTES("<a><![CDATO[x]]></a>"), ERR_SYNTAX},
    {"end of CDATA in text", BYTES("<a>x]]>y</a>"), ERR_SYNTAX},
    {"two hyphens in a comment", BYTES("<a><!-- x -- y --></a>"), ERR_SYNTAX},
    {"undeclared prefix", BYTES("<s:a/>"), ERR_SYNTAX},
    {"declaration not at the start", BYTES("<a><?xml version=\"1.0\"?></a>"), ERR_SYNTAX},
};

static void bombs_are_refused_in_any_pieces(unused_ok void **state)
{
    for (size_t i = 0; i < ARRAY_COUNT(bombs); i++) {
        const struct bomb *b = &bombs[i];
        for (size_t piece = 1; piece <= b->len; piece++) {
            enum err e = read_in(b->bytes, b->len, piece);
            if (e != b->why)
                fail_msg("%s in pieces of %zu: %s", b->name, piece, err_name(e));
        }
    }
    assert_int_equal(read_in("", 0, 1), ERR_SYNTAX);
}

/* Begin, a part many times, end. */
static char *repeat(const char *begin, const char *part, size_t times, const char *end, size_t *len)
{
    size_t part_len = strlen(part), begin_len = strlen(begin), end_len = strlen(end);
    char *doc = malloc(begin_len + times * part_len + end_len), *at = doc;
    assert_non_null(doc);
    memcpy(at, begin, begin_len);
    at += begin_len;
    for (size_t i = 0; i < times; i++, at += part_len)
        memcpy(at, part, part_len);
    memcpy(at, end, end_len);
    *len = begin_len + times * part_len + end_len;
    return doc;
}

static void large_documents_meet_their_limit(unused_ok void **state)
{
    static const struct {
        const char *name, *begin, *part, *end;
        size_t times;
        enum err e;
    } cases[] = {
        {"100,000 attributes", "<a", " b='1'", "/>", 100000, ERR_TOO_LARGE},
        {"32 attributes", "<a", "", " b='' c='' d='' e='' f='' g='' h='' i='' j='' k='' l='' m='' "
         "n='' o='' p='' q='' r='' s='' t='' u='' v='' w='' x='' y='' z='' b1='' b2='' b3='' b4='' "
         "b5='' b6='' b7=''/>", 0, OK},
        {"33 attributes", "<a", "", " b='' c='' d='' e='' f='' g='' h='' i='' j='' k='' l='' m='' "
         "n='' o='' p='' q='' r='' s='' t='' u='' v='' w='' x='' y='' z='' b1='' b2='' b3='' b4='' "
         "b5='' b6='' b7='' b8=''/>", 0, ERR_TOO_LARGE},
        {"17 levels", "", "<a>", "", 17, ERR_TOO_LARGE},
        {"100,000 levels", "", "<a>", "", 100000, ERR_TOO_LARGE},
        {"17 levels, the last empty", "", "<a>", "<b/></a>", 16, ERR_TOO_LARGE},
        {"tag of 9000 bytes", "<a b='", "123456789", "'/>", 1000, ERR_TOO_LARGE},
        {"tag of 9000 blanks", "<a", "         ", "/>", 1000, ERR_TOO_LARGE},
        {"name of 9000 bytes", "<", "abcdefghi", "/>", 1000, ERR_TOO_LARGE},
        {"end tag of 9000 bytes", "<a></a", "         ", ">", 1000, ERR_TOO_LARGE},
        {"comment of 9000 bytes", "<a><!--", "123456789", "--></a>", 1000, ERR_TOO_LARGE},
        {"instruction of 9000 bytes", "<a><?b ", "123456789", "?></a>", 1000, ERR_TOO_LARGE},
        {"open tag without end", "<a ", "b", "", 100000, ERR_TOO_LARGE},
        {"path of 4000 bytes", "<", "abcde", "/>", 800, ERR_TOO_LARGE},
        {"300,000 elements", "<a>", "<b/>", "</a>", 300000, ERR_TOO_LARGE},
        {"100,000 elements", "<a>", "<b/>", "</a>", 100000, OK},
        {"140,000 attributes in 70,000 tags", "<a>", "<b c='' d=''/>", "</a>", 70000,
         ERR_TOO_LARGE},
        {"2 MiB of text", "<a>", "0123456789abcdef", "</a>", 131072, ERR_TOO_LARGE},
        {"2 MiB of blanks before", "", "                ", "<a/>", 131072, ERR_TOO_LARGE},
        {"1 MiB of CDATA", "<a><![CDATA[", "0123456789abcdef", "]]></a>", 65536, ERR_TOO_LARGE},
        {"half a MiB of text", "<a>", "0123456789abcdef", "</a>", 32768, OK},
        {"8000 bytes of CDATA", "<a><![CDATA[", "0123456789abcdef", "]]></a>", 500, OK},
        {"9000 bytes of CDATA", "<a><![CDATA[", "123456789", "]]></a>", 1000, ERR_TOO_LARGE},
        {"100,000 references", "<a>", "&#65;", "</a>", 100000, OK},
        {"100,000 CDATA sections", "<a>", "<![CDATA[", "", 100000, ERR_SYNTAX},
        {"8 KiB of entity name", "<a>&", "abcdefgh", ";</a>", 1024, ERR_SYNTAX},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        static const size_t pieces[] = {SIZE_MAX, 16 * KIB, 1000, 77};
        size_t len;
        char *doc = repeat(cases[i].begin, cases[i].part, cases[i].times, cases[i].end, &len);
        record.stop_at = NULL;
        for (size_t p = 0; p < ARRAY_COUNT(pieces); p++) {
            enum err e = read_in(doc, len, pieces[p] < len ? pieces[p] : len);
            if (cases[i].e == ERR_SYNTAX ? e == OK : e != cases[i].e)
                fail_msg("%s in pieces of %zu: %s", cases[i].name, pieces[p], err_name(e));
        }
        free(doc);
    }
}

static void limit_of_a_document_is_exact(unused_ok void **state)
{
    static const char doc[] = " <a>x</a> ";
    assert_int_equal(read_with(doc, sizeof(doc) - 1, 3, sizeof(doc) - 1), OK);
    assert_int_equal(read_with(doc, sizeof(doc) - 1, 3, sizeof(doc) - 2), ERR_TOO_LARGE);
    assert_int_equal(read_with(doc, sizeof(doc) - 1, 100, sizeof(doc) - 2), ERR_TOO_LARGE);
    assert_int_equal(read_with(doc, sizeof(doc) - 1, 1, 0), ERR_TOO_LARGE);
}

static bool count_text(void *user, unused_ok struct span path, struct span text)
{
    *(size_t *)user = text.len;
    return true;
}

static void text_is_cut_at_8_kib(unused_ok void **state)
{
    static const size_t sizes[] = {8191, 8192, 8193, 100000};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        size_t len, got = 0;
        char *doc = repeat("<a>", "x", sizes[i], "</a>", &len);
        struct xml_reader *r = xml_open(MIB, count_text, &got);
        assert_non_null(r);
        assert_int_equal(feed_all(r, doc, len, 1000), OK);
        assert_int_equal(xml_end(r), OK);
        assert_int_equal(got, min_u64(sizes[i], 8192));
        xml_close(r);
        free(doc);
    }
}

static void a_leaf_function_can_stop(unused_ok void **state)
{
    static const char doc[] = "<a><b>1</b><c>2</c><d>3</d></a>";
    for (size_t piece = 1; piece < sizeof(doc); piece++) {
        record.stop_at = "a/c";
        enum err e = read_in(doc, sizeof(doc) - 1, piece);
        record.stop_at = NULL;
        assert_int_equal(e, ERR_SYNTAX);
        assert_string_equal(record.lines.at, "a/b=1\na/c=2\n");
    }
}

static void closing_early_leaks_nothing(unused_ok void **state)
{
    struct xml_reader *r = xml_open(MIB, note, &record);
    text_init(&record.lines, record.memory, sizeof(record.memory));
    assert_non_null(r);
    assert_int_equal(xml_feed(r, span_of("<a><b>x</b><c attr='1")), OK);
    xml_close(r);
    xml_close(NULL);
}

/* ---- writing ---- */
static void escaping(unused_ok void **state)
{
    static const struct { const char *in; size_t len; const char *out; } cases[] = {
        {BYTES(""), ""},
        {BYTES("a/b c"), "a/b c"},
        {BYTES("&<>\"'"), "&amp;&lt;&gt;&quot;&apos;"},
        {BYTES("a\rb\nc\td"), "a&#xD;b\nc\td"},
        {BYTES("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {BYTES("a\0b\x01\x1f\x7f"), "a\xef\xbf\xbd" "b\xef\xbf\xbd\xef\xbf\xbd\x7f"},
        {BYTES("\xff"), "\xef\xbf\xbd"},
        {BYTES("x\xe2\x82"), "x\xef\xbf\xbd\xef\xbf\xbd"},
        {BYTES("\xc0\xaf<"), "\xef\xbf\xbd\xef\xbf\xbd&lt;"},
        {BYTES("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {BYTES("\xef\xbf\xbe\xef\xbf\xbd"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char memory[100];
        struct text t;
        text_init(&t, memory, sizeof(memory));
        xml_escape(&t, span_make(cases[i].in, cases[i].len));
        assert_false(t.over);
        assert_string_equal(t.at, cases[i].out);
    }
}

static void what_is_written_is_read_back(unused_ok void **state)
{
    char memory[2000], key[256];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    xml_declaration(&t);
    xml_open_tag(&t, "L xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"");
    xml_leaf_text(&t, "Key", span_of("a&b <c> \"d\" 'e' \r\n\xc3\xa9]]>"));
    xml_leaf_u64(&t, "Size", UINT64_MAX);
    xml_close_tag(&t, "L xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"");
    assert_int_equal(read_in(t.at, t.len, 5), OK);
    assert_string_equal(record.lines.at, "L/Key=a&b <c> \"d\" 'e' \r\n\xc3\xa9]]>\n"
                                         "L/Size=18446744073709551615\nL=\n");
    for (unsigned c = 0; c < 256; c++)
        key[c] = (char)c;
    text_init(&t, memory, sizeof(memory));
    xml_leaf_text(&t, "Key", span_make(key, sizeof(key)));
    assert_int_equal(read_in(t.at, t.len, SIZE_MAX / 2), OK);
}

/* ---- error documents ---- */
static void s3_error_documents(unused_ok void **state)
{
    struct xml_s3_error e;
    assert_int_equal(xml_s3_error_read(span_of(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code><Message>The "
        "specified key does not exist.</Message><Key>a/b</Key><RequestId> 4442587FB7D0A2F9\n"
        "</RequestId><HostId>x</HostId></Error>"), &e), OK);
    assert_string_equal(e.code, "NoSuchKey");
    assert_string_equal(e.message, "The specified key does not exist.");
    assert_string_equal(e.request_id, "4442587FB7D0A2F9");
    assert_string_equal(e.region, "");
    assert_false(e.has_actual_size);
    assert_int_equal(xml_s3_error_read(span_of(
        "<Error><Code>InvalidRange</Code><ActualObjectSize>0</ActualObjectSize></Error>"), &e), OK);
    assert_true(e.has_actual_size);
    assert_int_equal(e.actual_size, 0);
    assert_int_equal(xml_s3_error_read(span_of(
        "\n\n<Error xmlns=\"x:y\"><Code>AuthorizationHeaderMalformed</Code>"
        "<Region>eu-west-1</Region><Message>line&#10;break</Message>"
        "<ActualObjectSize>-1</ActualObjectSize></Error>"), &e), OK);
    assert_string_equal(e.region, "eu-west-1");
    assert_string_equal(e.message, "line?break");
    assert_false(e.has_actual_size);
    assert_int_equal(xml_s3_error_read(span_of(
        "<Error><Code>0123456789012345678901234567890123456789012345678901234567890123456789</Code>"
        "</Error>"), &e), OK);
    assert_int_equal(strlen(e.code), 63);
}

static void what_is_no_s3_error_document(unused_ok void **state)
{
    static const char *const bad[] = {
        "", "<html><body>502</body></html>", "<Error><Code>X</Code>", "<Errors/>", "Error",
        "<ErrorResponse><Error><Code>X</Code></Error></ErrorResponse>", "<a><Error/></a>",
        "<!DOCTYPE Error><Error/>", "<error/>",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct xml_s3_error e = {.actual_size = 7};
        if (xml_s3_error_read(span_of(bad[i]), &e) != ERR_SYNTAX)
            fail_msg("%s", bad[i]);
        assert_int_equal(e.actual_size, 7);
    }
}

/* ---- what a document may cost ---- */
/* Of what plain text costs in the same run; the dearest had 6 where this was written. A
 * document that is parsed again and again would have thousands. */
#if defined HEADPOND_ASAN || defined HEADPOND_COUNT_H || !defined __OPTIMIZE__
enum { COST_MOST = 300, COST_TRIES = 3 };
#else
enum { COST_MOST = 20, COST_TRIES = 3 };
#endif

static uint64_t cpu_us(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static bool count_leaf(void *user, unused_ok struct span path, unused_ok struct span text)
{
    ++*(uint64_t *)user;
    return true;
}

/* The best of some: what others do on this machine is not the document's cost. */
static uint64_t cost_us(const char *doc, size_t len, uint64_t enough_us)
{
    uint64_t best = UINT64_MAX, leaves = 0;
    for (unsigned i = 0; i < COST_TRIES && best > enough_us; i++) {
        uint64_t began = cpu_us();
        struct xml_reader *r = xml_open(8 * MIB, count_leaf, &leaves);
        assert_non_null(r);
        enum err e = OK;
        for (size_t at = 0; at < len && e == OK; at += 64 * KIB)
            e = xml_feed(r, span_make(doc + at, len - at < 64 * KIB ? len - at : 64 * KIB));
        enum err end = xml_end(r);
        assert_true(e == OK || end == e);
        xml_close(r);
        best = min_u64(best, cpu_us() - began);
    }
    return best;
}

static const struct {
    const char *begin, *part, *end;
} costly[] = {
    {"<a>", "0123456789abcdef", "</a>"},
    {"<a>", "    ", "</a>"},
    {"<a>", "\n", "</a>"},
    {"<a>", "\r", "</a>"},
    {"<a>", "\r\n", "</a>"},
    {"<a>", "\t", "</a>"},
    {"<a>", ">", "</a>"},
    {"<a>", "]", "</a>"},
    {"<a>", "]] ", "</a>"},
    {"<a>", "'\"", "</a>"},
    {"<a>", "\xc3\xa9", "</a>"},
    {"<a>", "a\xc3\xa9", "</a>"},
    {"<a>", "\xe2\x82\xac", "</a>"},
    {"<a>", "\xf0\x9f\x98\x80", "</a>"},
    {"<a>", "&amp;", "</a>"},
    {"<a>", "&lt;", "</a>"},
    {"<a>", "x&lt;", "</a>"},
    {"<a>", "&#65;", "</a>"},
    {"<a>", "x&#x41;", "</a>"},
    {"<a>", "&#x10FFFF;", "</a>"},
    {"<a>", "&amp;amp;", "</a>"},
    {"<a>", "&unknown;", "</a>"},
    {"<a>", "<b/>", "</a>"},
    {"<a>", "<b>x</b>", "</a>"},
    {"<a>", "<b></b>\n", "</a>"},
    {"<a>", "<b c=''/>", "</a>"},
    {"<a>", "<b c='&#65;&#65;&#65;&#65;&#65;&#65;&#65;&#65;&#65;&#65;&#65;&#65;&#65;&#65;'/>",
     "</a>"},
    {"<a>", "<b c='\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9'/>", "</a>"},
    {"<a>",
     "<b a='' b='' c='' d='' e='' f='' g='' h='' i='' j='' k='' l='' m='' n='' o='' p='' q='' "
     "r='' s='' t='' u='' v='' w='' x='' y='' z='' a1='' b1='' c1='' d1='' e1='' f1=''/>",
     "</a>"},
    {"<a>",
     "<b xmlns:a='1' xmlns:b='2' xmlns:c='3' xmlns:d='4' xmlns:e='5' xmlns:f='6' xmlns:g='7' "
     "xmlns:h='8' xmlns:i='9' xmlns:j='1' xmlns:k='2' xmlns:l='3' xmlns:m='4'/>",
     "</a>"},
    {"<a>", "<abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz/>", "</a>"},
    {"<a>", "<b             />", "</a>"},
    {"<a>",
     "<b><c><d><e><f><g><h><i><j><k><l><m><n/></m></l></k></j></i></h></g></f></e></d></c></b>",
     "</a>"},
    {"<a>", "<![CDATA[]]>", "</a>"},
    {"<a>", "<![CDATA[x]]>", "</a>"},
    {"<a>", "<![CDATA[]]]]>", "</a>"},
    {"<a><![CDATA[", "x", "]]></a>"},
    {"<a><![CDATA[", "]", "]]></a>"},
    {"<a><![CDATA[", "]] >", "]]></a>"},
    {"<a><![CDATA[", "<", "]]></a>"},
    {"<a><![CDATA[", "\xc3\xa9", "]]></a>"},
    {"<a>", "<!---->", "</a>"},
    {"<a>", "<!-- - - - - - -->", "</a>"},
    {"<a>", "<?b?>", "</a>"},
    {"<a>", "<?b ? ? ? ?>", "</a>"},
    {"", "<!---->", "<a/>"},
    {"", " ", "<a/>"},
    {"<a/>", "\n", ""},
    {"<a/>", "<?b?>", ""},
    {"", "<a>", ""},
    {"<a>", "</b>", ""},
    {"<a ", "b='' ", "/>"},
    {"<a b='", "&#65;", "'/>"},
    {"<", "a", "/>"},
};

static void no_document_costs_much_more_than_plain_text(unused_ok void **state)
{
    uint64_t most_us = 0;            /* the first row is plain text */

    assert_true(ARRAY_COUNT(costly) >= 50);
    for (size_t i = 0; i < ARRAY_COUNT(costly); i++) {
        size_t len, part = strlen(costly[i].part);
        char *doc = repeat(costly[i].begin, costly[i].part, (8 * MIB - 64) / part, costly[i].end,
                           &len);
        uint64_t us = cost_us(doc, len, most_us);
        free(doc);
        if (i == 0)
            most_us = us * COST_MOST;
        if (us > most_us)
            fail_msg("8 MiB of %s in %s cost %llu us", costly[i].part, costly[i].begin,
                     (unsigned long long)us);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_in_any_pieces),
        cmocka_unit_test(documents_cut_off_are_refused),
        cmocka_unit_test(bombs_are_refused_in_any_pieces),
        cmocka_unit_test(large_documents_meet_their_limit),
        cmocka_unit_test(no_document_costs_much_more_than_plain_text),
        cmocka_unit_test(limit_of_a_document_is_exact),
        cmocka_unit_test(text_is_cut_at_8_kib),
        cmocka_unit_test(a_leaf_function_can_stop),
        cmocka_unit_test(closing_early_leaks_nothing),
        cmocka_unit_test(escaping),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(s3_error_documents),
        cmocka_unit_test(what_is_no_s3_error_document),
    };
    if (xml_setup() != OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
