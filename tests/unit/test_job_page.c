/* A page of a store's list of objects. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/jobs/page.c"

#define OBJECT(key, etag, size) \
    "<Contents><Key>" key "</Key><ETag>" etag "</ETag><Size>" size "</Size></Contents>"
#define LIST(what) "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" what \
    "</ListBucketResult>"

static struct page page;

static enum err read_after(const char *document, const char *after)
{
    enum err err = page_begin(&page);

    assert_int_equal(err, OK);
    for (size_t i = 0; err == OK && document[i]; i++)
        err = page_feed(&page, span_make(document + i, 1));
    if (err == OK)
        return page_end(&page, span_of(after));
    page_close(&page);
    return err;
}

static int set_up(void **state)
{
    (void)state;
    return xml_setup() == OK ? 0 : -1;
}

static void keys_sizes_and_etags_are_read(void **state)
{
    (void)state;
    assert_int_equal(
        read_after(LIST("<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>" OBJECT(
                       "a+b/%C3%A4", "&quot;e1&quot;", "7") OBJECT("a/c", "e2", "0")),
                   "a"),
        OK);
    assert_int_equal(page.count, 2);
    assert_true(page.more);
    assert_true(span_is(page.item[0].key, "a b/\xc3\xa4"));
    assert_true(listed_is(&page.item[0], span_of("\"e1\""), 7));
    assert_false(listed_is(&page.item[0], span_of("\"e1\""), 8));
    assert_false(listed_is(&page.item[0], span_of("\"e2\""), 7));
    assert_true(listed_is(&page.item[1], span_of("\"e2\""), 0));
    assert_int_equal(read_after(LIST(OBJECT("a+b%20", "e", "1")), ""), OK);
    assert_true(span_is(page.item[0].key, "a+b%20")); /* the store does not encode */
    assert_false(page.more);
    assert_int_equal(read_after(LIST("<IsTruncated>false</IsTruncated>"), ""), OK);
    assert_int_equal(page.count, 0);
    assert_int_equal(read_after(LIST("<Contents><Key>a</Key><Size>1</Size></Contents>"), ""), OK);
    assert_false(listed_is(&page.item[0], span_of(""), 1));
}

/* A store that hides some keys may have passed nothing else, and says where it is. */
static void a_page_without_keys_may_say_where_it_goes_on(void **state)
{
    (void)state;
    assert_int_equal(read_after(LIST("<IsTruncated>true</IsTruncated>"
                                     "<NextContinuationToken>t&amp;k</NextContinuationToken>"),
                                "5"), OK);
    assert_int_equal(page.count, 0);
    assert_true(page.more);
    assert_string_equal(page.token, "t&k");
    assert_int_equal(read_after(LIST("<IsTruncated>false</IsTruncated>"), "5"), OK);
    assert_string_equal(page.token, "");
}

static void what_is_no_list_to_go_on_with_is_refused(void **state)
{
    static const char *const documents[] = {
        LIST("<IsTruncated>true</IsTruncated>"),
        LIST(OBJECT("b", "e", "1") OBJECT("a", "e", "1")),
        LIST(OBJECT("a", "e", "1") OBJECT("a", "e", "1")),
        LIST(OBJECT("0", "e", "1")),           /* before the place */
        LIST(OBJECT("5", "e", "1")),           /* at it */
        LIST(OBJECT("", "e", "1")),
        LIST(OBJECT("a", "e", "-1")),
        LIST(OBJECT("a", "e", "99999999999999999999999")),
        LIST("<EncodingType>url</EncodingType>" OBJECT("a%2", "e", "1")),
        LIST("<EncodingType>url</EncodingType>" OBJECT("a%00b", "e", "1")),
        LIST(OBJECT("a", "e", "1")) "x",
        "<ListBucketResult>" OBJECT("a", "e", "1"),
        "<Error><Code>AccessDenied</Code></Error>",
        "<html/>",
        "",
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(documents); i++)
        if (read_after(documents[i], "5") == OK)
            fail_msg("%s", documents[i]);
}

/* Not one more than was asked for, nor longer keys than there are. */
static void a_page_has_its_limits(void **state)
{
    static char document[2 * MIB];
    struct text t;

    (void)state;
    for (unsigned count = PAGE_KEYS_MAX; count <= PAGE_KEYS_MAX + 1; count++) {
        text_init(&t, document, sizeof document);
        text_adds(&t, "<ListBucketResult>");
        for (unsigned i = 0; i < count; i++)
            text_addf(&t, OBJECT("%06u", "e", "1"), i);
        text_adds(&t, "</ListBucketResult>");
        assert_false(t.over);
        assert_int_equal(read_after(document, "") == OK, count == PAGE_KEYS_MAX);
    }
    for (unsigned len = KEY_BYTES_MAX; len <= KEY_BYTES_MAX + 1; len++) {
        text_init(&t, document, sizeof document);
        text_adds(&t, "<ListBucketResult><Contents><Key>");
        for (unsigned i = 0; i < len; i++)
            text_addc(&t, 'k');
        text_adds(&t, "</Key><Size>1</Size></Contents></ListBucketResult>");
        assert_int_equal(read_after(document, "") == OK, len == KEY_BYTES_MAX);
    }
}

/* Each byte of a key may take three. */
static void a_full_page_of_long_keys_that_are_encoded(void **state)
{
    static char document[4 * MIB];
    struct text t;

    (void)state;
    text_init(&t, document, sizeof document);
    text_adds(&t, "<ListBucketResult><EncodingType>url</EncodingType>");
    for (unsigned i = 0; i < PAGE_KEYS_MAX; i++) {
        text_addf(&t, "<Contents><Key>%04u", i);
        for (unsigned n = 4; n < KEY_BYTES_MAX; n++)
            text_adds(&t, "%C3");
        text_adds(&t, "</Key><ETag>0123456789abcdef0123456789abcdef</ETag>"
                      "<Size>1</Size></Contents>");
    }
    text_adds(&t, "</ListBucketResult>");
    assert_false(t.over);
    assert_int_equal(read_after(document, ""), OK);
    assert_int_equal(page.count, PAGE_KEYS_MAX);
    assert_int_equal(page.item[PAGE_KEYS_MAX - 1].key.len, KEY_BYTES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_sizes_and_etags_are_read),
        cmocka_unit_test(a_page_without_keys_may_say_where_it_goes_on),
        cmocka_unit_test(what_is_no_list_to_go_on_with_is_refused),
        cmocka_unit_test(a_page_has_its_limits),
        cmocka_unit_test(a_full_page_of_long_keys_that_are_encoded),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
