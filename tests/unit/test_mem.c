/* Arena, stock and text of common/mem.c at and around their limits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

static bool refuses;
static int memalign_or_not(void **out, size_t align, size_t bytes)
{
    return refuses ? ENOMEM : posix_memalign(out, align, bytes);
}
#define posix_memalign memalign_or_not
#include "common/mem.c"
#undef posix_memalign

#include <cmocka.h>

static void every_request_is_counted(void **state)
{
    uint64_t before = mem_take_count();

    (void)state;
    char *a = mem_take(0), *b = mem_copy(span_of("text")), *c = mem_take_aligned(5000, 4096);
    assert_non_null(a);
    assert_string_equal(b, "text");
    assert_int_equal((uintptr_t)c % 4096, 0);
    for (size_t i = 0; i < 5000; i++)
        assert_int_equal(c[i], 0);
    b = mem_grow(b, 100);
    assert_non_null(b);
    assert_string_equal(b, "text");
    assert_int_equal(mem_take_count() - before, 4);
    mem_give(a);
    mem_give(b);
    mem_give_secret(c, 5000);
    mem_give_secret(NULL, 0);
    mem_give(NULL);
}

static void arena_uses_lent_memory_first(void **state)
{
    char first[256 + 1];
    struct arena a;
    uint64_t before = mem_take_count();

    (void)state;
    /* Misaligned on purpose. */
    arena_init(&a, first + 1, 256, 64 * KIB);
    char *one = arena_take(&a, 1), *two = arena_take(&a, 100);
    assert_int_equal((uintptr_t)one % 16, 0);
    assert_int_equal((uintptr_t)two % 16, 0);
    assert_true(one > first && two == one + 16 && two + 100 <= first + sizeof first);
    assert_int_equal(mem_take_count() - before, 0);
    char *three = arena_take(&a, 200);
    assert_true(three < first || three >= first + sizeof first);
    assert_int_equal(mem_take_count() - before, 1);
    assert_int_equal(a.used_bytes, ARENA_PAGE_BYTES);
    arena_reset(&a);
    assert_int_equal(a.used_bytes, 0);
    assert_ptr_equal(arena_take(&a, 1), one);
    arena_reset(&a);
}

static void arena_stops_at_its_limit(void **state)
{
    struct arena a;
    size_t taken = 0;

    (void)state;
    arena_init(&a, NULL, 0, 40 * KIB);
    while (arena_take(&a, 1000))
        taken++;
    /* Two pages of 16 KiB hold 16 pieces of 1008 bytes each. */
    assert_int_equal(taken, 32);
    assert_null(arena_take(&a, 9 * KIB));
    assert_null(arena_take(&a, SIZE_MAX));
    assert_null(arena_take(&a, SIZE_MAX - 8));
    arena_reset(&a);
    assert_non_null(arena_take(&a, 39 * KIB));
    assert_null(arena_take(&a, 1));
    arena_reset(&a);
}

static void a_large_piece_leaves_the_page_in_use(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, NULL, 0, MIB);
    char *small = arena_take(&a, 16);
    char *large = arena_take(&a, 100 * KIB);
    memset(large, 1, 100 * KIB);
    assert_ptr_equal(arena_take(&a, 16), small + 16);
    arena_reset(&a);
}

static void arena_copies_and_prints(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, NULL, 0, 32 * KIB);
    struct span copy = arena_copy(&a, span_make("a\0b", 3));
    assert_int_equal(copy.len, 3);
    assert_memory_equal(copy.at, "a\0b", 4);
    assert_string_equal(arena_copy(&a, span_of(NULL)).at, "");
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 42).at, "x-42");
    assert_null(arena_printf(&a, "%40000d", 1).at);
    arena_reset(&a);
}

static void stock_lends_at_most_max_and_reuses(void **state)
{
    struct stock s;
    uint64_t before = mem_take_count();

    (void)state;
    stock_init(&s, 3, 2);
    char *a = stock_take(&s), *b = stock_take(&s);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(stock_take(&s));
    assert_int_equal(s.out, 2);
    memset(a, 0xFF, 3);
    stock_give(&s, a);
    assert_int_equal(mem_take_count() - before, 2);
    char *again = stock_take(&s);
    assert_ptr_equal(again, a);
    assert_int_equal(again[0] | again[1] | again[2], 0);
    assert_int_equal(mem_take_count() - before, 2);
    stock_give(&s, again);
    stock_give(&s, b);
    stock_fini(&s);
    assert_int_equal(s.made, 0);
}

static void text_keeps_what_fits(void **state)
{
    char memory[8];
    struct text t;

    (void)state;
    text_init(&t, memory, sizeof memory);
    assert_string_equal(memory, "");
    text_adds(&t, "abc");
    text_addc(&t, 'd');
    text_addu(&t, 123);
    assert_false(t.over);
    assert_string_equal(memory, "abcd123");
    text_add(&t, span_make(NULL, 0));
    assert_false(t.over);
    text_addc(&t, 'x');
    assert_true(t.over);
    assert_string_equal(memory, "abcd123");
    text_init(&t, memory, sizeof memory);
    text_adds(&t, "0123456789");
    assert_true(t.over);
    assert_string_equal(memory, "0123456");
    text_init(&t, memory, sizeof memory);
    text_adds(&t, "01234");
    text_adds(&t, "56789");
    text_adds(&t, "x");
    assert_string_equal(memory, "0123456");
}

static void text_prints_up_to_the_brim(void **state)
{
    char memory[8];
    struct text t;

    (void)state;
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s", "1234567");
    assert_false(t.over);
    assert_int_equal(t.len, 7);
    text_addf(&t, "%s", "");
    assert_false(t.over);
    text_addf(&t, "%d", 8);
    assert_true(t.over);
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s", "12345678");
    assert_true(t.over);
    assert_int_equal(t.len, 7);
    assert_string_equal(memory, "1234567");
}

static void text_without_memory_is_over(void **state)
{
    struct text t;

    (void)state;
    text_init(&t, NULL, 0);
    text_adds(&t, "");
    text_addf(&t, "%s", "");
    assert_false(t.over);
    text_addf(&t, "%s", "a");
    assert_true(t.over);
    text_init(&t, NULL, 0);
    text_addu(&t, 0);
    assert_true(t.over);
    assert_int_equal(t.len, 0);
}

static void foreign_bytes_print_harmlessly(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain \xc3\xa4", "plain \xc3\xa4"},
        {"a\x1b[1m\n\x7f", "a?[1m??"},
        {"\xc2\x9b\xc2\xa0", "?\xc2\xa0"},
        {"a\xff\xc3", "a??"},
        {"0123456789", "0123456789"},
        {"0123456789x", "0123456789..."},
        {"012345678\xc3\xa4", "012345678..."},
    };
    char memory[32];
    struct text t;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        text_init(&t, memory, sizeof memory);
        text_add_printable(&t, span_of(cases[i].in), 10);
        assert_string_equal(memory, cases[i].out);
    }
}

static void numbers_print_all_digits(void **state)
{
    static const uint64_t numbers[] = {0, 9, 10, 1234567890, UINT64_MAX};
    char memory[32], expected[32];
    struct text t;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        text_init(&t, memory, sizeof memory);
        text_addu(&t, numbers[i]);
        snprintf(expected, sizeof expected, "%llu", (unsigned long long)numbers[i]);
        assert_string_equal(memory, expected);
    }
}

/* Large objects, in slabs in every build: builds with AddressSanitizer would not make any. */
enum { LARGE_BYTES = 5 * 4096 - 100, LARGE_COUNT = 40 };
static void init_paged(struct stock *s, uint32_t max)
{
    stock_init(s, LARGE_BYTES, max);
#ifdef HEADPOND_ASAN
    assert_false(s->paged);
    s->paged = true;
#else
    assert_true(s->paged);
#endif
}

static void take_all(struct stock *s, char *object[LARGE_COUNT])
{
    for (unsigned i = 0; i < LARGE_COUNT; i++) {
        object[i] = stock_take_dirty(s);
        assert_non_null(object[i]);
        if (s->paged)
            assert_int_equal((uintptr_t)object[i] % 4096, 0);
        memset(object[i], (int)i, LARGE_BYTES);
    }
    assert_null(stock_take_dirty(s));
}

static void give_all(struct stock *s, char *object[LARGE_COUNT])
{
    for (unsigned i = 0; i < LARGE_COUNT; i++) {
        for (unsigned n = 0; n < LARGE_BYTES; n += 97)
            assert_int_equal((unsigned char)object[i][n], i);
        stock_give(s, object[i]);
    }
}

static void large_objects_of_a_stock_begin_at_pages_and_leave_the_rest_alone(void **state)
{
    struct stock s, fresh;
    char *object[LARGE_COUNT];

    (void)state;
    init_paged(&s, LARGE_COUNT);
    for (unsigned round = 0; round < 2; round++) {
        take_all(&s, object);
        give_all(&s, object);
    }
    stock_fini(&s);
    init_paged(&fresh, 1);
    char *one = stock_take_dirty(&fresh);
    one[0] = 1;                      /* the page that is used, and no other */
#ifndef HEADPOND_ASAN
    unsigned char resident[5];
    assert_int_equal(mincore(one, sizeof resident * 4096, resident), 0);
    assert_true(resident[0] & 1);
    for (unsigned p = 1; p < sizeof resident; p++)
        assert_false(resident[p] & 1);
#endif
    stock_give(&fresh, one);
    stock_fini(&fresh);
}

#ifdef HEADPOND_ASAN
static void what_of_a_slab_is_not_lent_is_poisoned(void **state)
{
    struct stock s;

    (void)state;
    init_paged(&s, 20);
    char *one = stock_take_dirty(&s), *two = stock_take_dirty(&s);
    char *first = one < two ? one : two, *second = one < two ? two : one;
    assert_null(__asan_region_is_poisoned(first, LARGE_BYTES));
    assert_ptr_equal(second - first, slab_stride(&s));
    assert_ptr_equal(__asan_region_is_poisoned(first, 5 * 4096), first + LARGE_BYTES);
    assert_true(__asan_address_is_poisoned(first - 1)); /* never lent */
    /* Kept where the compiler, which knows what was given away, cannot follow. */
    char *volatile in_second = second + sizeof(struct free_object), *volatile of_first = first;
    stock_give(&s, second);
    assert_true(__asan_address_is_poisoned(in_second));
    stock_give(&s, first);
    stock_fini(&s);
    assert_true(__asan_address_is_poisoned(of_first)); /* freed */
}
#endif

/* The simulation trims stocks between runs: it once freed objects one by one that lie in slabs. */
static void a_trimmed_stock_holds_nothing_that_is_free_and_lends_again(void **state)
{
    (void)state;
    for (unsigned paged = 0; paged < 2; paged++) {
        struct stock s;
        char *object[LARGE_COUNT];
        init_paged(&s, LARGE_COUNT);
        s.paged = paged;
        stock_trim(&s);
        take_all(&s, object);
        stock_trim(&s);
        assert_int_equal(s.made, LARGE_COUNT);
        give_all(&s, object);
        char *held = stock_take_dirty(&s);
        memset(held, 7, LARGE_BYTES);
        stock_trim(&s);              /* one is lent: what lies in slabs stays */
        assert_int_equal(s.made, paged ? LARGE_COUNT : 1);
        for (unsigned n = 0; n < LARGE_BYTES; n += 97)
            assert_int_equal(held[n], 7);
        stock_give(&s, held);
        stock_trim(&s);
        assert_int_equal(s.made + s.out, 0);
        assert_null(s.free);
        assert_null(s.slabs);
        take_all(&s, object);
        give_all(&s, object);
        stock_fini(&s);
    }
}

static void a_slab_that_is_refused_leaves_the_stock_as_it_was(void **state)
{
    struct stock s;
    void *object[SLAB_OBJECTS + 1];

    (void)state;
    init_paged(&s, LARGE_COUNT);
    refuses = true;
    assert_null(stock_take(&s));
    assert_int_equal(s.made + s.out + s.fresh, 0);
    refuses = false;
    for (unsigned i = 0; i < SLAB_OBJECTS; i++)
        object[i] = stock_take(&s);
    refuses = true;
    assert_null(stock_take(&s));
    assert_int_equal(s.made, SLAB_OBJECTS);
    assert_int_equal(s.out, SLAB_OBJECTS);
    refuses = false;
    object[SLAB_OBJECTS] = stock_take(&s);
    for (unsigned i = 0; i <= SLAB_OBJECTS; i++) {
        assert_non_null(object[i]);
        stock_give(&s, object[i]);
    }
    stock_fini(&s);
}

static void huge_memory_is_zero_and_apart(void **state)
{
    enum { HUGE = 2 * MIB };
    static const size_t sizes[] = {0, 1, HUGE - 1, HUGE, HUGE + 1, 5 * HUGE + 4096};

    (void)state;
    mem_give_huge(NULL, HUGE);
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        uint8_t *at = mem_take_huge(sizes[i]), *other = mem_take_huge(sizes[i]);
        assert_true(at && other && at != other);
        if (sizes[i] >= HUGE)
            assert_int_equal((uintptr_t)at % HUGE, 0);
        size_t zeros = 0;
        while (zeros < sizes[i] && at[zeros] == 0)
            zeros++;
        assert_int_equal(zeros, sizes[i]);
        memset(at, 0xff, sizes[i]);
        if (sizes[i] > 0)
            assert_int_equal(other[sizes[i] - 1], 0);
        mem_give_huge(at, sizes[i]);
        mem_give_huge(other, sizes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_is_counted),
        cmocka_unit_test(arena_uses_lent_memory_first),
        cmocka_unit_test(arena_stops_at_its_limit),
        cmocka_unit_test(a_large_piece_leaves_the_page_in_use),
        cmocka_unit_test(arena_copies_and_prints),
        cmocka_unit_test(stock_lends_at_most_max_and_reuses),
        cmocka_unit_test(large_objects_of_a_stock_begin_at_pages_and_leave_the_rest_alone),
#ifdef HEADPOND_ASAN
        cmocka_unit_test(what_of_a_slab_is_not_lent_is_poisoned),
#endif
        cmocka_unit_test(a_trimmed_stock_holds_nothing_that_is_free_and_lends_again),
        cmocka_unit_test(a_slab_that_is_refused_leaves_the_stock_as_it_was),
        cmocka_unit_test(text_keeps_what_fits),
        cmocka_unit_test(text_prints_up_to_the_brim),
        cmocka_unit_test(text_without_memory_is_over),
        cmocka_unit_test(foreign_bytes_print_harmlessly),
        cmocka_unit_test(numbers_print_all_digits),
        /* Last: what libc keeps of it is touched memory to who takes it next. */
        cmocka_unit_test(huge_memory_is_zero_and_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
