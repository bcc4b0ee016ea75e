/* Lists of keys that a prewarm is given. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/jobs/key_list.c"

static struct page page;
static uint8_t bytes[STATE_VALUE_MAX];

static struct key_list *made(void)
{
    struct key_list *l = key_list_make();

    assert_non_null(l);
    return l;
}

static void add(struct key_list *l, const char *key, const char *etag, uint64_t size)
{
    const struct key_wish wish = {.key = span_of(key), .etag = span_of(etag), .size = size};

    assert_int_equal(key_list_add(l, &wish), OK);
}

static void shows(unsigned at, const char *key, const char *etag, uint64_t size)
{
    assert_true(at < page.count);
    assert_true(span_is(page.item[at].key, key));
    assert_true(span_is(page.item[at].etag, etag));
    assert_int_equal(page.item[at].size, size);
}

static void a_piece_has_what_was_given_in_its_order(void **state)
{
    struct key_list *l = made();
    uint32_t at = 0;

    (void)state;
    add(l, "train/b-2", "\"e\"", 7);
    add(l, "train/b-1", "", KEY_SIZE_ANY);
    add(l, "a", "", 0);
    add(l, "train/b-2", "other", 8);  /* the first one counts */
    add(l, "train/b-11", "f", KEY_SIZE_ANY);
    assert_int_equal(key_list_settle(l, ORDER_GIVEN), OK);
    assert_int_equal(key_list_count(l), 4);
    size_t len = key_list_write(l, &at, bytes, sizeof bytes);
    assert_int_equal(at, 4);
    assert_int_equal(key_list_read(span_make((char *)bytes, len), &page), OK);
    assert_true(page.given && page.count == 4);
    shows(0, "train/b-2", "\"e\"", 7);
    shows(1, "train/b-1", "", KEY_SIZE_ANY);
    shows(2, "a", "", 0);
    shows(3, "train/b-11", "f", KEY_SIZE_ANY);
    key_list_free(l);
}

static void by_name_it_is_sorted_by_bytes(void **state)
{
    static const char *const sorted[] = {"A", "a", "a/", "a0", "b", "\xc3\xa4"};
    struct key_list *l = made();
    uint32_t at = 0;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(sorted); i++)
        add(l, sorted[(i * 5 + 3) % ARRAY_COUNT(sorted)], "", KEY_SIZE_ANY);
    assert_int_equal(key_list_settle(l, ORDER_NAME), OK);
    size_t len = key_list_write(l, &at, bytes, sizeof bytes);
    assert_int_equal(key_list_read(span_make((char *)bytes, len), &page), OK);
    for (unsigned i = 0; i < ARRAY_COUNT(sorted); i++)
        shows(i, sorted[i], "", KEY_SIZE_ANY);
    key_list_free(l);
}

static void by_size_the_smallest_comes_first(void **state)
{
    struct key_list *l = made();
    uint32_t at = 0;

    (void)state;
    add(l, "z", "", 5);
    add(l, "c", "", 0);
    add(l, "b", "", 5);
    add(l, "a", "", UINT64_MAX - 1);
    assert_int_equal(key_list_settle(l, ORDER_SIZE), OK);
    size_t len = key_list_write(l, &at, bytes, sizeof bytes);
    assert_int_equal(key_list_read(span_make((char *)bytes, len), &page), OK);
    shows(0, "c", "", 0);
    shows(1, "z", "", 5);
    shows(2, "b", "", 5);
    shows(3, "a", "", UINT64_MAX - 1);
    add(l, "d", "", KEY_SIZE_ANY);
    assert_int_equal(key_list_settle(l, ORDER_SIZE), ERR_SYNTAX);
    key_list_free(l);
}

/* Pieces end at a thousand keys, or where one more would not fit. */
static void many_keys_go_into_many_pieces(void **state)
{
    struct key_list *l = made();
    char key[KEY_BYTES_MAX + 1] = "";
    uint32_t at = 0, seen = 0;

    (void)state;
    for (unsigned i = 0; i < 2500; i++) {
        snprintf(key, sizeof key, "%04u/%0*u", i, i < 1200 ? 4 : 1019, i);
        add(l, key, "", i);
    }
    assert_int_equal(key_list_settle(l, ORDER_GIVEN), OK);
    while (at < key_list_count(l)) {
        uint32_t from = at;
        size_t len = key_list_write(l, &at, bytes, sizeof bytes);
        assert_true(len > 0 && len <= sizeof bytes && at > from && at - from <= PAGE_KEYS_MAX);
        assert_int_equal(key_list_read(span_make((char *)bytes, len), &page), OK);
        assert_int_equal(page.count, at - from);
        for (unsigned i = 0; i < page.count; i++, seen++) {
            assert_true(span_eq(page.item[i].key, key_list_key(l, seen)));
            assert_int_equal(page.item[i].size, seen);
        }
    }
    assert_int_equal(seen, 2500);
    key_list_free(l);
}

static void what_is_no_key_is_refused(void **state)
{
    static char longer[KEY_BYTES_MAX + 2];
    struct key_list *l = made();
    struct key_wish wish = {.key = span_of(""), .etag = span_of("")};

    (void)state;
    memset(longer, 'k', KEY_BYTES_MAX + 1);
    assert_int_equal(key_list_add(l, &wish), ERR_SYNTAX);
    wish.key = span_of(longer);
    assert_int_equal(key_list_add(l, &wish), ERR_SYNTAX);
    wish.key = span_make("a\0b", 3);
    assert_int_equal(key_list_add(l, &wish), ERR_SYNTAX);
    wish.key = span_of("a");
    wish.etag = span_of(longer);
    assert_int_equal(key_list_add(l, &wish), ERR_SYNTAX);
    wish.etag = span_of("");
    for (unsigned i = 0; i < LIST_KEYS_MAX; i++)
        if (key_list_add(l, &wish) != OK)
            fail();
    assert_int_equal(key_list_add(l, &wish), ERR_TOO_LARGE);
    assert_int_equal(key_list_settle(l, ORDER_GIVEN), OK);
    assert_int_equal(key_list_count(l), 1);
    key_list_free(l);
}

/* Whatever bytes come from a disk: all of a piece, or nothing of it. */
static void damaged_pieces_are_refused_or_harmless(void **state)
{
    struct key_list *l = made();
    uint32_t at = 0;

    (void)state;
    add(l, "train/b-2", "\"e\"", 7);
    add(l, "train/b-1", "", KEY_SIZE_ANY);
    assert_int_equal(key_list_settle(l, ORDER_GIVEN), OK);
    size_t len = key_list_write(l, &at, bytes, sizeof bytes), whole = 0;
    for (size_t cut = 0; cut < len; cut++)
        whole += key_list_read(span_make((char *)bytes, cut), &page) == OK;
    assert_int_equal(whole, 1);      /* behind the first entry */
    for (size_t i = 0; i < 8 * len; i++) {
        bytes[i / 8] ^= (uint8_t)(1U << i % 8);
        enum err err = key_list_read(span_make((char *)bytes, len), &page);
        for (unsigned k = 0; err == OK && k < page.count; k++)
            assert_true(page.item[k].key.len > 0 && page.item[k].key.len <= KEY_BYTES_MAX);
        bytes[i / 8] ^= (uint8_t)(1U << i % 8);
    }
    key_list_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_has_what_was_given_in_its_order),
        cmocka_unit_test(by_name_it_is_sorted_by_bytes),
        cmocka_unit_test(by_size_the_smallest_comes_first),
        cmocka_unit_test(many_keys_go_into_many_pieces),
        cmocka_unit_test(what_is_no_key_is_refused),
        cmocka_unit_test(damaged_pieces_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
