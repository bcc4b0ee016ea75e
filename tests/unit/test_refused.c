/* What is refused for good, whatever stands beside it in the query: forms, changes that look like
 * reads, uploads without an id. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/s3_rows.h"

static char request_bytes[16 * KIB], arena_bytes[64 * KIB];
static struct http_head head;
static struct arena arena;
static struct s3_ask ask;
static struct s3_error error;

/* fields: "a: b\r\n"*. */
static enum err ask_for(const char *method, const char *target, const char *fields)
{
    size_t used;
    int len = snprintf(request_bytes, sizeof(request_bytes), "%s %s HTTP/1.1\r\nHost: h\r\n%s\r\n",
                       method, target, fields);
    assert_true(len > 0 && len < (int)sizeof(request_bytes));
    assert_int_equal(http_parse_request(request_bytes, (size_t)len, &head, &used), HTTP_OK);
    arena_reset(&arena);
    memset(&error, 0, sizeof(error));
    return s3_ask_read(&head, "", &arena, &ask, &error);
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 0);
    return 0;
}

static bool is_change(uint8_t method)
{
    return method == HTTP_PUT || method == HTTP_POST || method == HTTP_DELETE;
}

/* Every row that may change something, with a key that nobody knows: never a read, and what is
 * refused or only reads stays what it is. */
static void an_unknown_key_makes_no_read_of_a_change(void **state)
{
    static const char *const unknown[] = {"x", "x=", "x=1", "policy2=a", "%78"};
    char memory[200], fields[200], target[250];
    (void)state;
    for (unsigned i = 0; i < S3_OPERATION_COUNT * ARRAY_COUNT(unknown); i++) {
        enum s3_operation op = i / ARRAY_COUNT(unknown);
        const struct s3_operation_row *row = &s3_operation_table[op];
        bool stays = row->action == S3_REFUSE || row->action == S3_RELAY;
        struct text t, f;
        if (!is_change(row->method))
            continue;
        text_init(&t, memory, sizeof(memory));
        text_init(&f, fields, sizeof(fields) - 1);
        write_request(row, false, &t, &f);
        fields[f.len] = 0;
        snprintf(target, sizeof(target), "%.*s%c%s", (int)t.len, memory,
                 span_find(text_span(&t), '?') < t.len ? '&' : '?',
                 unknown[i % ARRAY_COUNT(unknown)]);
        enum err e = ask_for(http_method_text(row->method), target, fields);
        if (e != OK || ask.op == UnknownRead || (stays && ask.op != shown_as(op)))
            fail_msg("%s %s: %s", row->name, target,
                     e == OK ? s3_operation_table[ask.op].name : error.code);
    }
}

static void a_form_is_refused_whatever_its_query_asks_for(void **state)
{
    static const char form[] = "Content-Type: multipart/form-data; boundary=x\r\n";
    static const struct {
        const char *target, *fields;
    } row[] = {
        {"/b", form},
        {"/b?x", form},
        {"/b?x=1&y", form},
        {"/b?x", "Content-Type: Multipart/Form-Data\r\n"},
        {"/b?delete", form},
        {"/b?metadataTable", form},
        {"/b/k?select&select-type=2", form},
        {"/b/k?restore", form},
        {"/b/k?uploads", form},
        {"/b/k?uploadId=u", form},
        {"/b/k?uploadId=u", "Content-Type: text/xml\r\nContent-Type: multipart/form-data\r\n"},
        {"/b/k?uploads&AWSAccessKeyId=a&content-type=%20multipart/form-data", ""},
        {"/b/k?uploads&AWSAccessKeyId=a&content-type=a&Content-Type=multipart/form-data", ""},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        enum err e = ask_for("POST", row[i].target, row[i].fields);
        if (e != OK || ask.op != PostObject)
            fail_msg("%s: %s", row[i].target,
                     e == OK ? s3_operation_table[ask.op].name : error.code);
    }
}

/* Of an object that is written the type is its own. */
static void other_types_and_other_methods_are_no_forms(void **state)
{
    (void)state;
    assert_int_equal(ask_for("POST", "/b/k?select&select-type=2", "Content-Type: text/xml\r\n"),
                     OK);
    assert_int_equal(ask.op, SelectObjectContent);
    assert_int_equal(ask_for("PUT", "/b/k", "Content-Type: multipart/form-data\r\n"), OK);
    assert_int_equal(ask.op, PutObject);
    assert_int_equal(ask_for("POST", "/-/plans", "Content-Type: multipart/form-data\r\n"), OK);
    assert_int_equal(ask.op, PostPlan);
}

/* An empty id is none to some stores, which then take the whole object. */
static void an_empty_upload_is_refused(void **state)
{
    static const struct {
        const char *method, *target, *fields;
    } row[] = {
        {"DELETE", "/b/k?uploadId=", ""},
        {"DELETE", "/b/k?uploadId", ""},
        {"DELETE", "/b/k?upload%49d=", ""},
        {"PUT", "/b/k?partNumber=1&uploadId=", ""},
        {"PUT", "/b/k?uploadId&partNumber=1", ""},
        {"PUT", "/b/k?partNumber=1&uploadId=", "x-amz-copy-source: b/other\r\n"},
        {"POST", "/b/k?uploadId=", ""},
        {"GET", "/b/k?uploadId=", ""},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        enum err e = ask_for(row[i].method, row[i].target, row[i].fields);
        if (e != ERR_SYNTAX || error.status != 400 || strcmp(error.code, "InvalidArgument") != 0)
            fail_msg("%s %s: %s", row[i].method, row[i].target,
                     e == OK ? s3_operation_table[ask.op].name : error.code);
        assert_true(span_is(error.argument_name, "uploadId"));
    }
    assert_int_equal(ask_for("DELETE", "/b/k?uploadId=u", ""), OK);
    assert_int_equal(ask.op, AbortMultipartUpload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_key_makes_no_read_of_a_change),
        cmocka_unit_test(a_form_is_refused_whatever_its_query_asks_for),
        cmocka_unit_test(other_types_and_other_methods_are_no_forms),
        cmocka_unit_test(an_empty_upload_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
