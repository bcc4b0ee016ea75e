/* Documents of a store that knows the bucket by another name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/xml_rename.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
static const struct {
    const char *in, *out;            /* out NULL: passes as it is */
} rows[] = {
    {HEAD "<ListBucketResult xmlns=\"http://a/b>c\"><Name>far</Name><Prefix>far</Prefix>"
          "<Contents><Key>far</Key><Owner><Name>far</Name></Owner></Contents></ListBucketResult>",
     HEAD "<ListBucketResult xmlns=\"http://a/b>c\"><Name>near&amp;dear</Name>"
          "<Prefix>far</Prefix><Contents><Key>far</Key><Owner><Name>far</Name></Owner></Contents>"
          "</ListBucketResult>"},
    {"<ListVersionsResult><KeyMarker/><Name >far</Name></ListVersionsResult>",
     "<ListVersionsResult><KeyMarker/><Name >near&amp;dear</Name></ListVersionsResult>"},
    {"<ListMultipartUploadsResult><Bucket>far</Bucket><Upload><Bucket>far</Bucket></Upload>"
     "</ListMultipartUploadsResult>",
     "<ListMultipartUploadsResult><Bucket>near&amp;dear</Bucket><Upload><Bucket>far</Bucket>"
     "</Upload></ListMultipartUploadsResult>"},
    {"<ListPartsResult><Bucket>far</Bucket></ListPartsResult>",
     "<ListPartsResult><Bucket>near&amp;dear</Bucket></ListPartsResult>"},
    {"<InitiateMultipartUploadResult a='>' b=\"'/\"><Bucket>far</Bucket><Key>far</Key>"
     "</InitiateMultipartUploadResult>",
     "<InitiateMultipartUploadResult a='>' b=\"'/\"><Bucket>near&amp;dear</Bucket><Key>far</Key>"
     "</InitiateMultipartUploadResult>"},
    {"  \n \r" HEAD "<CompleteMultipartUploadResult><Location>http://far.s3/k</Location>"
     "<Bucket>far</Bucket></CompleteMultipartUploadResult>\n",
     "  \n \r" HEAD "<CompleteMultipartUploadResult><Location>http://here/near/k</Location>"
     "<Bucket>near&amp;dear</Bucket></CompleteMultipartUploadResult>\n"},
    {"<Error><Code>NoSuchKey</Code><BucketName>far</BucketName><Resource>/far/a/far</Resource>"
     "</Error>",
     "<Error><Code>NoSuchKey</Code><BucketName>near&amp;dear</BucketName>"
     "<Resource>/near&amp;dear/a/far</Resource></Error>"},
    {"<Error><Resource>/far</Resource></Error>",
     "<Error><Resource>/near&amp;dear</Resource></Error>"},
    {"<Error><Resource>/farther/x</Resource><BucketName>other</BucketName></Error>", NULL},
    {"<Error><!-- <BucketName>far</BucketName> --><BucketName><![CDATA[far]]></BucketName></Error>",
     NULL},
    {"<Other><Name>far</Name><Bucket>far</Bucket></Other>", NULL},
    {"<ListBucketResult><Name/><Name></Name><Name> far</Name></ListBucketResult>", NULL},
    {"{\"Bucket\": \"<Error><BucketName>far</BucketName></Error>\"}", NULL},
    {"<html><head><Name>far</Name></head><body><hr><p>far & away</body>", NULL},
    {"<!DOCTYPE html><html><br></html>", NULL},
    {"\n<!doctype HTML\tPUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n<html><hr><Error>", NULL},
    {"<Bucket>far</Bucket></Bucket>", NULL},
    {"", NULL},
};

static char out[2 * XML_RENAME_GROWTH];

/* In pieces of that size; the bytes lie behind the place they go to, as in the server. */
static enum err run(struct xml_rename *r, struct span in, size_t piece, size_t *len)
{
    static char memory[XML_RENAME_GROWTH + 16 * KIB];

    xml_rename_open(r, span_of("far"), span_of("near&amp;dear"), span_of("http://here/near/k"));
    for (*len = 0; in.len > 0; in = span_from(in, min_u64(piece, in.len))) {
        size_t n = min_u64(piece, in.len), got = 0;
        memcpy(memory + XML_RENAME_GROWTH, in.at, n);
        TRY(xml_rename_feed(r, span_make(memory + XML_RENAME_GROWTH, n), memory, &got));
        assert_true(*len + got <= sizeof out);
        memcpy(out + *len, memory, got);
        *len += got;
    }
    return OK;
}

static void names_change_where_they_name_the_bucket_however_it_is_cut(void **state)
{
    struct xml_rename r;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const char *want = rows[i].out ? rows[i].out : rows[i].in;
        for (size_t piece = 1; piece < 400; piece++) {
            size_t len;
            assert_int_equal(run(&r, span_of(rows[i].in), piece, &len), OK);
            if (!span_is(span_make(out, len), want))
                fail_msg("row %zu, pieces of %zu: %.*s", i, piece, (int)len, out);
            assert_true(xml_rename_over(&r));
        }
    }
}

static void what_no_document_of_a_store_has_is_refused(void **state)
{
    static const char *const bad[] = {
        "<!DOCTYPE x [<!ENTITY far 'x'>]><Error/>",
        "<!DOCTYPE htmlx><html/>",
        "<!DOCTYPEhtml><html/>",
        "<Error><!DOCTYPE html></Error>",
        "<Error></Error></Error>",
        "< Error/>",
        "<ListBucketResult><Name>far</Name><Name>far</Name><Name>far</Name><Name>far</Name>"
        "<Name>far</Name></ListBucketResult>",
    };
    struct xml_rename r;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        for (size_t piece = 1; piece < 200; piece++) {
            size_t len;
            assert_int_equal(run(&r, span_of(bad[i]), piece, &len), ERR_SYNTAX);
        }
}

static void a_document_that_breaks_off_is_not_over(void **state)
{
    static const char doc[] = "<Error><BucketName>far</BucketName></Error>";
    struct xml_rename r;
    size_t len;

    (void)state;
    for (size_t n = 1; n < sizeof doc - 1; n++) {
        assert_int_equal(run(&r, span_make(doc, n), 7, &len), OK);
        assert_false(xml_rename_over(&r));
    }
}

static void a_text_that_is_too_long_to_be_a_name_passes(void **state)
{
    static char doc[16 * KIB];
    struct xml_rename r;
    size_t len;

    (void)state;
    for (int bytes = 2040; bytes < 2060; bytes++) {
        int n = snprintf(doc, sizeof doc, "<Error><Resource>/far/%0*d</Resource></Error>", bytes,
                         0);
        assert_int_equal(run(&r, span_make(doc, (size_t)n), 100, &len), OK);
        assert_true(xml_rename_over(&r));
        assert_true(len == (size_t)n || len == (size_t)n + strlen("near&amp;dear") - 3);
        assert_int_equal(len == (size_t)n, bytes > 2048 - 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_change_where_they_name_the_bucket_however_it_is_cut),
        cmocka_unit_test(what_no_document_of_a_store_has_is_refused),
        cmocka_unit_test(a_document_that_breaks_off_is_not_over),
        cmocka_unit_test(a_text_that_is_too_long_to_be_a_name_passes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
