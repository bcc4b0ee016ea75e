/* Slots of a slab: classes and their waste, filling up, giving back, claims from disk, the reserve,
 * the page that is cheapest to empty. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/space.c"

#include <setjmp.h>

#include <cmocka.h>

static struct space *make(uint32_t pages)
{
    struct space *s = space_make((uint64_t)pages * SPACE_PAGE_BYTES, 3);

    assert_non_null(s);
    return s;
}

static struct slot take(struct space *s, unsigned class_)
{
    struct slot slot;

    assert_int_equal(space_take(s, class_, true, &slot), OK);
    return slot;
}

static void classes_hold_what_they_say(void **state)
{
    (void)state;
    assert_int_equal(space_class(1), 0);
    assert_int_equal(space_class_bytes(0), 4096);
    assert_int_equal(space_class(SPACE_PAGE_BYTES), CLASSES - 1);
    assert_int_equal(space_class_bytes(CLASSES - 1), SPACE_PAGE_BYTES);
    for (unsigned c = 0; c < CLASSES; c++) {
        uint32_t bytes = space_class_bytes(c), before = c ? space_class_bytes(c - 1) : 0;
        assert_int_equal(bytes % UNIT_BYTES, 0);
        assert_true(bytes > before);
        assert_int_equal(space_class(bytes), c);
        assert_int_equal(space_class(before + 1), c);
        if (before >= 4 * UNIT_BYTES)
            assert_true((uint64_t)bytes * 4 <= (uint64_t)before * 5);
    }
}

static void waste_of_small_objects_is_small(void **state)
{
    (void)state;
    double asked = 0, used = 0;

    for (uint32_t bytes = 4 * KIB; bytes <= 70 * KIB; bytes += 97) {
        unsigned c = space_class(bytes);
        asked += bytes;
        /* With its part of what is left over in the page. */
        used += (double)SPACE_PAGE_BYTES / (SPACE_PAGE_BYTES / space_class_bytes(c));
    }
    assert_true(used / asked <= 1.13);
}

static void a_slab_fills_without_overlap_and_empties(void **state)
{
    (void)state;
    static const unsigned classes[] = {0, 4, 11, 20, 31, 36, CLASSES - 1};

    for (size_t n = 0; n < ARRAY_COUNT(classes); n++) {
        struct space *s = make(3);
        unsigned slots = 3 * class_slots(classes[n]);
        uint64_t bytes = space_class_bytes(classes[n]);
        struct slot *all = mem_take(slots * sizeof *all), one;
        uint8_t *unit = mem_take(3 * PAGE_UNITS);

        for (unsigned i = 0; i < slots; i++) {
            all[i] = take(s, classes[n]);
            assert_int_equal(all[i].dir, 3);
            assert_true(slot_offset(all[i]) + bytes <= space_capacity_bytes(s));
            for (uint64_t u = 0; u < bytes / UNIT_BYTES; u++)
                assert_int_equal(unit[slot_offset(all[i]) / UNIT_BYTES + u]++, 0);
        }
        assert_int_equal(space_take(s, classes[n], true, &one), ERR_FULL);
        assert_int_equal(space_used_bytes(s), slots * bytes);
        uint64_t left = space_capacity_bytes(s) - space_used_bytes(s) - space_lost_bytes(s);
        assert_true(left < slots); /* what divides no page evenly */
        assert_int_equal(space_free_pages(s), 0);
        for (unsigned i = 0; i < slots; i++)
            space_give(s, all[(i * 7919ull) % slots]); /* prime to every count: each one once */
        assert_int_equal(space_used_bytes(s) + space_lost_bytes(s), 0);
        assert_int_equal(space_free_pages(s), 3);
        assert_int_equal(s->maps.out, 0);
        mem_give(unit);
        mem_give(all);
        space_free(s);
    }
}

static void an_empty_page_may_change_its_class(void **state)
{
    (void)state;
    struct space *s = make(1);
    struct slot small = take(s, 2), big;

    assert_int_equal(space_take(s, CLASSES - 1, true, &big), ERR_FULL);
    space_give(s, small);
    big = take(s, CLASSES - 1);
    assert_int_equal(slot_offset(big), 0);
    assert_int_equal(space_take(s, 2, true, &small), ERR_FULL);
    space_free(s);
}

/* By page and slot, what space_holes() and space_all_holes() count. */
static void holes_agree(struct space *s)
{
    uint64_t of[CLASSES] = {0}, all = 0;

    for (uint32_t n = 0; n < s->page_count; n++) {
        unsigned class_ = s->page[n].class_;
        for (unsigned at = 0; class_ != EMPTY && at < class_slots(class_); at++)
            of[class_] += slot_is_taken(s, n, at) ? 0 : space_class_bytes(class_);
    }
    for (unsigned c = 0; c < CLASSES; c++) {
        assert_int_equal(space_holes(s, c), of[c]);
        all += of[c];
    }
    assert_int_equal(space_all_holes(s), all);
}

/* Random work against a model that knows every unit's owner. */
static void random_takes_and_gives_agree_with_a_model(void **state)
{
    (void)state;
    enum { PAGES = 16, LIVE_MAX = 6000 };
    struct space *s = make(PAGES);
    uint8_t *unit = mem_take(PAGES * PAGE_UNITS);
    struct slot *live = mem_take(LIVE_MAX * sizeof *live);
    unsigned count = 0;
    uint64_t used = 0, seed = 42;

    for (unsigned n = 0; n < 60000; n++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t dice = (uint32_t)(seed >> 33);
        bool give = count == LIVE_MAX || (count && dice % 100 < (n / 6000 % 2 ? 70 : 30));
        struct slot slot;
        if (give) {
            unsigned at = dice / 100 % count;
            slot = live[at];
            live[at] = live[--count];
            space_give(s, slot);
        } else if (space_take(s, dice / 100 % 28, true, &slot) == OK) {
            live[count++] = slot;
        } else {
            continue;
        }
        uint32_t bytes = space_class_bytes(slot.class_);
        used = give ? used - bytes : used + bytes;
        for (uint32_t u = 0; u < bytes / UNIT_BYTES; u++) {
            uint8_t *at = &unit[slot_offset(slot) / UNIT_BYTES + u];
            assert_int_equal(*at, give);
            *at = !give;
        }
        assert_int_equal(space_used_bytes(s), used);
        if (n % 1000 == 0)
            holes_agree(s);
    }
    while (count)
        space_give(s, live[--count]);
    holes_agree(s);
    assert_int_equal(space_free_pages(s), PAGES);
    assert_int_equal(s->maps.out, 0);
    mem_give(live);
    mem_give(unit);
    space_free(s);
}

static void claims_from_disk_are_verified(void **state)
{
    (void)state;
    static const struct {
        struct slot slot;
        enum err err;
    } row[] = {
        {{1, 5, 0, 3}, OK},
        {{1, 5, 0, 3}, ERR_RECORD},              /* taken */
        {{1, 6, 0, 3}, OK},
        {{1, 0, 1, 3}, ERR_RECORD},              /* the page has another class */
        {{1, 2048, 0, 3}, ERR_RECORD},           /* behind the page's last slot */
        {{1, 2047, 0, 3}, OK},
        {{4, 0, 0, 3}, ERR_RECORD},              /* behind the slab */
        {{UINT32_MAX, 0, 0, 3}, ERR_RECORD},
        {{0, 0, CLASSES, 3}, ERR_RECORD},
        {{0, 0, 255, 3}, ERR_RECORD},
        {{0, 0, 0, 2}, ERR_RECORD},              /* another directory */
        {{3, 0, CLASSES - 1, 3}, OK},
        {{3, 0, CLASSES - 1, 3}, ERR_RECORD},
        {{3, 1, CLASSES - 1, 3}, ERR_RECORD},
        {{0, 65535, 20, 3}, ERR_RECORD},
    };
    struct space *s = make(4);
    uint64_t used = 0;

    for (size_t n = 0; n < ARRAY_COUNT(row); n++) {
        assert_int_equal(space_claim(s, row[n].slot), row[n].err);
        used += row[n].err == OK ? space_class_bytes(row[n].slot.class_) : 0;
        assert_int_equal(space_used_bytes(s), used);
        holes_agree(s);
    }
    assert_int_equal(space_free_pages(s), 2);    /* a refused claim takes no page */
    for (unsigned n = 0; n < 2045; n++) {        /* what was claimed is not handed out */
        struct slot slot = take(s, 0);
        assert_int_equal(slot.page, 1);
        assert_true(slot.at != 5 && slot.at != 6 && slot.at != 2047);
    }
    assert_int_not_equal(take(s, 0).page, 1);
    space_free(s);
}

static void the_reserve_is_for_those_who_may(void **state)
{
    (void)state;
    static const struct {
        uint32_t pages, reserve;
    } row[] = {{1, 0}, {7, 0}, {100, 12}, {512, 64}, {1000, 64}, {6400, 64}, {10000, 100}};

    for (size_t n = 0; n < ARRAY_COUNT(row); n++) {
        struct space *s = make(row[n].pages);
        struct slot slot;
        uint32_t ordinary = 0, all;
        while (space_take(s, CLASSES - 1, false, &slot) == OK)
            ordinary++;
        assert_int_equal(space_free_pages(s), row[n].reserve);
        for (all = ordinary; space_take(s, CLASSES - 1, true, &slot) == OK;)
            all++;
        assert_int_equal(row[n].pages - ordinary, row[n].reserve);
        assert_int_equal(all, row[n].pages);
        space_give(s, slot);
        assert_int_equal(space_take(s, 0, false, &slot), row[n].reserve ? ERR_FULL : OK);
        space_free(s);
    }
}

static void room_in_a_page_needs_no_reserve(void **state)
{
    (void)state;
    struct space *s = make(64);
    struct slot slot;

    take(s, 0);
    while (space_take(s, CLASSES - 1, false, &slot) == OK)
        ;
    assert_int_equal(space_take(s, 0, false, &slot), OK);
    space_free(s);
}

static void the_cheapest_page_has_the_fewest_slots(void **state)
{
    (void)state;
    struct space *s = make(8);
    uint32_t page = 77;
    unsigned taken = 77, cheap = 0;

    assert_false(space_cheapest_page(s, 0, &page, &taken));
    for (unsigned n = 0; n < 2048; n++)
        take(s, 0);
    uint32_t light = take(s, 5).page;
    for (unsigned n = 0; n < 100; n++) {
        assert_true(space_cheapest_page(s, CLASSES - 1, &page, &taken));
        assert_int_equal(taken, s->page[page].taken);
        cheap += page == light;
    }
    assert_true(cheap > 50);                     /* seen in nearly every sample of 32 out of 8 */
    assert_true(space_cheapest_page(s, 5, &page, &taken));
    assert_int_equal(taken, 2048);
    space_free(s);
}

static void a_rare_class_is_found_among_many_pages(void **state)
{
    (void)state;
    struct space *s = make(5000);
    uint32_t page;
    unsigned taken, seen = 0;
    struct slot rare[4];

    for (unsigned n = 0; n < 4; n++)
        rare[n] = take(s, CLASSES - 2);
    for (unsigned n = 0; n < 4990; n++)
        take(s, CLASSES - 1);
    for (unsigned n = 0; n < 64; n++) {
        assert_true(space_cheapest_page(s, CLASSES - 1, &page, &taken));
        assert_int_equal(taken, 1);
        for (unsigned i = 0; i < 4; i++)
            seen |= rare[i].page == page ? 1u << i : 0;
    }
    assert_int_equal(seen, 15);                  /* and not always the same one */
    space_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_hold_what_they_say),
        cmocka_unit_test(waste_of_small_objects_is_small),
        cmocka_unit_test(a_slab_fills_without_overlap_and_empties),
        cmocka_unit_test(an_empty_page_may_change_its_class),
        cmocka_unit_test(random_takes_and_gives_agree_with_a_model),
        cmocka_unit_test(claims_from_disk_are_verified),
        cmocka_unit_test(the_reserve_is_for_those_who_may),
        cmocka_unit_test(room_in_a_page_needs_no_reserve),
        cmocka_unit_test(the_cheapest_page_has_the_fewest_slots),
        cmocka_unit_test(a_rare_class_is_found_among_many_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
