/* Bodies that bring a loader's plan. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/jobs/plan_body.c"

#include "tests/lib/plan_case.h"

static char why[300];

/* Fed in pieces of so many bytes. */
static enum err read_plan(bool lines, const char *text, size_t piece, struct plan **out)
{
    struct plan_body *b = plan_body_make(NULL, lines, NULL);
    struct span rest = span_of(text);

    assert_non_null(b);
    while (rest.len > 0) {
        plan_body_take(b, span_make(rest.at, min_u64(piece, rest.len)));
        rest = span_from(rest, piece);
    }
    enum err err = plan_body_end(b, out);
    snprintf(why, sizeof why, "%s", plan_body_why(b));
    assert_int_equal(err == OK, why[0] == '\0');
    plan_body_free(b);
    return err;
}

static void refused(bool lines, const char *text, enum err wants, const char *words)
{
    struct plan *p;

    for (size_t piece = 1; piece < 300; piece = piece * 4 + 1) {
        assert_int_equal(read_plan(lines, text, piece, &p), wants);
        assert_null(p);
        assert_string_equal(why, words);
    }
    assert_int_equal(atomic_load(&plan_case_account.bytes), 0);
    assert_int_equal(atomic_load(&plan_case_account.entries), 0);
}

/* The same plan, by a document and by lines. */
static void is_the_sample(bool lines, const char *text)
{
    static const char *const keys[] = {"a.tar", "b.tar", "c.tar", "d \xc3\xa4.tar"};
    struct plan *p;

    for (size_t piece = 1; piece < 1000; piece *= 3) {
        assert_int_equal(read_plan(lines, text, piece, &p), OK);
        assert_string_equal(p->facts.job, "night-7");
        assert_string_equal(p->facts.prefix, "train/imagenet/");
        assert_int_equal(p->facts.epoch, 4);
        assert_int_equal(p->facts.horizon, 9);
        assert_int_equal(p->facts.rate, 1000000);
        assert_int_equal(p->facts.expires_s, 60);
        assert_int_equal(p->facts.from, 2);
        assert_int_equal(plan_settle(p), OK);
        assert_int_equal(p->stream_count, 2);
        assert_int_equal(p->entry_count, 4);
        for (unsigned i = 0; i < 4; i++)
            assert_true(span_is(plan_rest(p, &p->object[p->entry[i].object]), keys[i]));
        assert_int_equal(p->entry[2].range_count, 2);
        assert_int_equal(p->range[p->entry[2].ranges + 1].from, 4096);
        assert_int_equal(p->range[p->entry[2].ranges + 1].length, 7);
        assert_int_equal(p->entry[3].ranges, PLAN_NONE);
        plan_free(p);
    }
}

static void a_document_is_a_plan(void **state)
{
    (void)state;
    is_the_sample(false,
                  "{\"streams\":[[\"a.tar\",{\"key\":\"b.tar\"}],[{\"key\":\"c.tar\",\"ranges\":"
                  "[[0,100],[4096,7]]},\"d \\u00e4.tar\"]],\"job\":\"night-7\",\"epoch\":4,"
                  "\"prefix\":\"train/imagenet/\",\"horizon_objects\":9,\"rate_bytes_per_s\":"
                  "1000000,\"expires_s\":60,\"from\":2}\n");
}

static void lines_are_a_plan_in_any_interleaving(void **state)
{
    (void)state;
    is_the_sample(
        true, "{\"job\":\"night-7\",\"epoch\":4,\"prefix\":\"train/imagenet/\","
              "\"horizon_objects\":9,\"rate_bytes_per_s\":1000000,\"expires_s\":60,\"from\":2}"
              "\n{\"stream\":1,\"keys\":[{\"key\":\"c.tar\",\"ranges\":[[0,100],[4096,7]]}]}\n"
              "{\"stream\":0,\"keys\":[\"a.tar\"]}\r\n\n"
              "{\"keys\":[],\"stream\":3}\n"
              "{\"stream\":0,\"keys\":[\"b.tar\"]}\n{\"stream\":1,\"keys\":[\"d \xc3\xa4.tar\"]}");
}

static void a_plan_without_more_has_the_defaults(void **state)
{
    struct plan *p;

    (void)state;
    assert_int_equal(read_plan(false, "{\"job\":\"j\",\"epoch\":0,\"prefix\":\"b\","
                                      "\"streams\":[[\"k\"]]}", 1000, &p), OK);
    assert_int_equal(p->facts.expires_s, 86400);
    assert_int_equal(p->facts.horizon + p->facts.rate + p->facts.from, 0);
    plan_free(p);
}

#define FACTS "{\"job\":\"j\",\"epoch\":0,\"prefix\":\"b\""

static void a_mistake_is_told_with_its_place(void **state)
{
    (void)state;
    refused(false, "", ERR_SYNTAX, "byte 0: '[' or '{' expected near end of file");
    refused(false, "{\"job\":tru}", ERR_SYNTAX, "byte 10: invalid token near 'tru'");
    refused(false, "[]", ERR_SYNTAX, "the document is no JSON object");
    refused(false, FACTS ",\"stream\":[]}", ERR_SYNTAX, "stream: no member of a plan's document");
    refused(false, FACTS ",\"streams\":{}}", ERR_SYNTAX,
            "streams: a list of lists of keys is wanted");
    refused(false, FACTS ",\"streams\":[[\"a\",7]]}", ERR_SYNTAX,
            "stream 0, entry 1: no key of S3: a text, or {\"key\":...,\"ranges\":[[from,length],"
            "...]}, with the prefix 1 to 1024 bytes");
    refused(false, "{\"job\":\"j\",\"prefix\":\"b\",\"streams\":[]}", ERR_SYNTAX,
            "a plan names its job, epoch and prefix");
    refused(false, "{\"job\":\"j\",\"epoch\":-1}", ERR_SYNTAX,
            "epoch: a whole number from 0 on is wanted");
    refused(false, "{\"job\":\"no job\",\"epoch\":1,\"prefix\":\"b\"}", ERR_SYNTAX,
            "job: 1 to 128 of A-Z a-z 0-9 . _ - are wanted");
    refused(false, "{\"job\":\"\"}", ERR_SYNTAX,
            "job: a text is wanted, not empty and not longer than a name of S3 can be");
    refused(false, "{\"job\":\"j\",\"epoch\":1,\"prefix\":\"nobody/x\",\"streams\":[]}",
            ERR_NOT_FOUND, "prefix: no upstream has that bucket");
    refused(false, FACTS ",\"expires_s\":0,\"streams\":[]}", ERR_SYNTAX,
            "expires_s: from 1 second to 366 days is wanted");
    refused(false, FACTS ",\"job\":\"k\"}", ERR_SYNTAX,
            "byte 39: duplicate object key near '\"job\"'");
}

static void a_mistake_of_lines_names_the_line(void **state)
{
    static const char good[] = FACTS "}\n{\"stream\":0,\"keys\":[\"a\"]}\n";
    char text[512];

    (void)state;
    refused(true, "", ERR_SYNTAX, "line 1: column 1: '[' or '{' expected near end of file");
    refused(true, FACTS ",\"streams\":[[\"a\"]]}\n", ERR_SYNTAX,
            "line 1: streams: no member of a plan's document");
    snprintf(text, sizeof text, "%s{\"stream\":0}\n", good);
    refused(true, text, ERR_SYNTAX, "line 3: {\"stream\":N,\"keys\":[...]} is wanted");
    snprintf(text, sizeof text, "%s\n{\"stream\":4096,\"keys\":[\"a\"]}", good);
    refused(true, text, ERR_SYNTAX,
            "line 4: stream: a number from 0 to 4095 and a list of keys are wanted");
    snprintf(text, sizeof text, "%s{\"stream\":0,\"keys\":[\"a\",{\"key\":\"b\",\"ranges\":[]}]}",
             good);
    refused(true, text, ERR_SYNTAX,
            "line 3: stream 0, entry 1: no key of S3: a text, or {\"key\":...,\"ranges\":[[from,"
            "length],...]}, with the prefix 1 to 1024 bytes");
    snprintf(text, sizeof text, "%s{\"stream\":0,\"keys\":[\"a\"", good);
    refused(true, text, ERR_SYNTAX, "line 3: column 23: ']' expected near end of file");
}

/* Found by a review: such a document took 80 times its length, before anybody's rights were
 * looked at. */
static void what_takes_far_more_memory_than_its_text_is_refused(void **state)
{
    static char nested[MIB];
    struct plan_body *b = plan_body_make(NULL, false, NULL);
    struct plan *p;

    (void)state;
    for (size_t i = 0; i + 3 <= sizeof nested; i += 3)
        memcpy(nested + i, "{},", 3);
    nested[sizeof nested - 1] = ' ';
    plan_body_take(b, span_of("{\"streams\":["));
    for (unsigned i = 0; i < 8; i++)
        plan_body_take(b, span_make(nested, sizeof nested));
    plan_body_take(b, span_of("{}]}"));
    assert_int_equal(plan_body_end(b, &p), ERR_TOO_LARGE);
    assert_non_null(strstr(plan_body_why(b), "of memory"));
    plan_body_free(b);
}

static void what_is_longer_than_a_document_is_refused_before_it_is_whole(void **state)
{
    static char blanks[MIB];
    struct plan_body *b = plan_body_make(NULL, false, NULL);
    struct plan *p;

    (void)state;
    memset(blanks, ' ', sizeof blanks);
    for (unsigned i = 0; i < 17; i++)
        plan_body_take(b, span_make(blanks, sizeof blanks));
    assert_int_equal(plan_body_end(b, &p), ERR_TOO_LARGE);
    assert_string_equal(plan_body_why(b),
                        "a document has at most 16 MiB: send lines (application/x-ndjson)");
    plan_body_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_is_a_plan),
        cmocka_unit_test(lines_are_a_plan_in_any_interleaving),
        cmocka_unit_test(a_plan_without_more_has_the_defaults),
        cmocka_unit_test(a_mistake_is_told_with_its_place),
        cmocka_unit_test(a_mistake_of_lines_names_the_line),
        cmocka_unit_test(what_takes_far_more_memory_than_its_text_is_refused),
        cmocka_unit_test(what_is_longer_than_a_document_is_refused_before_it_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
