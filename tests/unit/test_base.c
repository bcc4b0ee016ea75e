/* Spans, numbers, lists, clocks and errors of common/base.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base.c"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

#include <cmocka.h>

static void numbers_are_strict(void **state)
{
    static const struct {
        const char *text;
        enum err err;
        uint64_t value;
    } cases[] = {
        {"0", OK, 0},
        {"007", OK, 7},
        {"18446744073709551615", OK, UINT64_MAX},
        {"18446744073709551616", ERR_TOO_LARGE, 0},
        {"99999999999999999999999", ERR_TOO_LARGE, 0},
        {"99999999999999999999999x", ERR_SYNTAX, 0},
        {"", ERR_SYNTAX, 0},
        {"-1", ERR_SYNTAX, 0},
        {"+1", ERR_SYNTAX, 0},
        {" 1", ERR_SYNTAX, 0},
        {"1 ", ERR_SYNTAX, 0},
        {"0x10", ERR_SYNTAX, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint64_t n = 4711;
        assert_int_equal(span_u64(span_of(cases[i].text), &n), cases[i].err);
        assert_true(n == (cases[i].err == OK ? cases[i].value : 4711));
    }
}

static void cutting_leaves_the_rest(void **state)
{
    struct span rest = span_of("a,bc,,d");

    (void)state;
    assert_true(span_is(span_cut(&rest, ','), "a"));
    assert_true(span_is(span_cut(&rest, ','), "bc"));
    assert_true(span_is(span_cut(&rest, ','), ""));
    assert_true(span_is(span_cut(&rest, ','), "d"));
    assert_int_equal(rest.len, 0);
    assert_int_equal(span_cut(&rest, ',').len, 0);
    rest = span_of(NULL);
    assert_int_equal(span_cut(&rest, ',').len, 0);
}

static void comparing_is_bytewise(void **state)
{
    (void)state;
    assert_int_equal(span_compare(span_of("a"), span_of("b")), -1);
    assert_int_equal(span_compare(span_of("a"), span_of("a\xff")), -1);
    assert_int_equal(span_compare(span_of("\xff"), span_of("a")), 1);
    assert_int_equal(span_compare(span_of(""), span_of(NULL)), 0);
    assert_true(span_is_nocase(span_of("Content-LENGTH"), "content-length"));
    assert_false(span_is_nocase(span_of("content-lengt"), "content-length"));
    assert_false(span_is_nocase(span_of("content-lengthh"), "content-length"));
    assert_false(span_is_nocase(span_make("a\0", 2), "a"));
    assert_true(span_starts(span_of("abc"), span_of("ab")));
    assert_false(span_starts(span_of("a"), span_of("ab")));
    assert_true(span_ends(span_of("abc"), span_of("bc")));
    assert_true(span_ends(span_of("abc"), span_of("")));
    assert_false(span_ends(span_of("c"), span_of("bc")));
    assert_true(span_is(span_trim(span_of(" \t a b\t ")), "a b"));
    assert_int_equal(span_trim(span_of(" \t ")).len, 0);
    assert_true(span_is(span_from(span_of("abc"), 1), "bc"));
    assert_int_equal(span_from(span_of("abc"), 9).len, 0);
    assert_int_equal(span_find(span_of("abc"), 'c'), 2);
    assert_int_equal(span_find(span_of("abc"), 'x'), 3);
}

static void utf8_is_what_rfc_3629_says(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"a", 1},
        {"\x7f", 1},
        {"\xc3\xa4", 2},
        {"\xe2\x82\xac", 3},
        {"\xf0\x9f\x98\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xc0\xaf", 0},         /* overlong */
        {"\xe0\x9f\xbf", 0},     /* overlong */
        {"\xf0\x8f\xbf\xbf", 0}, /* overlong */
        {"\xed\xa0\x80", 0},     /* surrogate */
        {"\xf4\x90\x80\x80", 0}, /* beyond U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"\x80", 0},
        {"\xc3", 0},
        {"\xc3q", 0},
        {"\xe2\x82", 0},
        {"\xe2\x82q", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        assert_int_equal(span_utf8(span_of(cases[i].bytes)), cases[i].len);
    assert_int_equal(span_utf8(span_of("")), 0);
}

struct thing {
    int number;
    struct node node;
};

static void only_utf8_is_utf8(void **state)
{
    unsigned good = 0;
    (void)state;
    for (unsigned a = 1; a < 256; a++)
        for (unsigned b = 1; b < 256; b++) {
            uint8_t two[2] = {(uint8_t)a, (uint8_t)b};
            good += span_is_utf8(span_make(two, 2));
        }
    /* Two of ASCII, or one of C2..DF with its second byte. */
    assert_int_equal(good, 127 * 127 + 30 * 64);
    static const uint8_t lone[][4] = {{0xf5, 0x80, 0x80, 0x80}, {0xf0, 0x8f, 0xbf, 0xbf},
                                      {0xe0, 0x9f, 0xbf, 'a'},
                                      {0xf1, 0x80, 0x80, 'a'}, {0xf1, 0x80, 'a', 0x80}};
    for (unsigned i = 0; i < ARRAY_COUNT(lone); i++)
        assert_false(span_is_utf8(span_make(lone[i], 4)));
}

/* Wherever it stands: the beginning is looked at by words. */
static void a_byte_that_is_no_utf8_is_found_anywhere(void **state)
{
    char text[32];

    (void)state;
    for (size_t len = 0; len <= sizeof text - 2; len++) {
        memset(text, 'a', sizeof text);
        assert_true(span_is_utf8(span_make(text, len)));
        for (size_t at = 0; at < len; at++) {
            memset(text, 'a', sizeof text);
            text[at] = '\xC3';
            assert_false(span_is_utf8(span_make(text, len))); /* cut, or followed by a letter */
            text[at + 1] = '\xA4';
            assert_int_equal(span_is_utf8(span_make(text, len)), at + 1 < len);
        }
    }
}

static void lists_keep_order_and_allow_removal(void **state)
{
    struct thing things[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};
    struct list list;
    int sum = 0;

    (void)state;
    list_init(&list);
    assert_null(list_pop(&list));
    for (int i = 1; i < 4; i++)
        list_push(&list, &things[i].node);
    list_push_front(&list, &things[0].node);
    LIST_EACH (&list, struct thing, node, thing) {
        sum = sum * 10 + thing->number;
        if (thing->number % 2)
            node_remove(&thing->node);
    }
    assert_int_equal(sum, 123);
    assert_false(node_linked(&things[1].node));
    assert_ptr_equal(container_of(list_pop(&list), struct thing, node), &things[0]);
    assert_ptr_equal(container_of(list_pop(&list), struct thing, node), &things[2]);
    assert_true(list_empty(&list));
}

static void errors_have_names_and_sentences(void **state)
{
    (void)state;
    assert_string_equal(err_name(OK), "OK");
    assert_string_equal(err_name(ERR_BUSY), "ERR_BUSY");
    for (unsigned e = 0; e < ERR_COUNT; e++)
        assert_true(strlen(err_text((enum err)e)) > 5);
    assert_non_null(err_text((enum err)9999));
    assert_string_equal(err_name((enum err)9999), "ERR_?");
}

static void clocks_run_and_randomness_differs(void **state)
{
    uint64_t before = clock_us(), a[8] = {0}, b[8] = {0};

    (void)state;
    assert_true(clock_wall_ms() / 1000 >= 1700000000);
    assert_true(clock_wall_s() - clock_wall_ms() / 1000 <= 1);
    assert_true(clock_us() >= before && clock_ms() >= before / 1000);
    random_bytes(a, sizeof a);
    random_bytes(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    random_bytes(a, 0);
    assert_true(random_u64() != random_u64());
}

static void say_hook(void)
{
    ssize_t written unused_ok = write(STDERR_FILENO, "the hook\n", 9);
    must(!"a panic inside the hook");
}

/* The child's output is read and the way it died is looked at. */
static void panic_prints_calls_the_hook_once_and_aborts(void **state)
{
    int pipe_ends[2], status;
    char out[1024] = "";
    size_t len = 0;

    (void)state;
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        panic_hook = say_hook;
        must(1 + 1 == 3);
    }
    close(pipe_ends[1]);
    for (ssize_t got = 1; got > 0 && len < sizeof out - 1; len += (size_t)got)
        got = read(pipe_ends[0], out + len, sizeof out - 1 - len);
    close(pipe_ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(out, "must hold: 1 + 1 == 3\n"));
    char *hook = strstr(out, "the hook\n");
    assert_non_null(hook);
    assert_null(strstr(hook + 1, "the hook\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(cutting_leaves_the_rest),
        cmocka_unit_test(comparing_is_bytewise),
        cmocka_unit_test(utf8_is_what_rfc_3629_says),
        cmocka_unit_test(only_utf8_is_utf8),
        cmocka_unit_test(a_byte_that_is_no_utf8_is_found_anywhere),
        cmocka_unit_test(lists_keep_order_and_allow_removal),
        cmocka_unit_test(errors_have_names_and_sentences),
        cmocka_unit_test(clocks_run_and_randomness_differs),
        cmocka_unit_test(panic_prints_calls_the_hook_once_and_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
