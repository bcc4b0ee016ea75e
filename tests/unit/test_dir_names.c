/* Names of large directories from page to page: no list depends on what is kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>

static struct dirent *counted_readdir(DIR *dir);
#define readdir counted_readdir
#include "server/origin/dir_names.c"
#include "server/origin/dir_walk.c"
#undef readdir

#include <ftw.h>
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/lib/await.h"

enum { FILES = 9000, SUBS = 400, BELOW = 3, BIG = 3000, PAGE = 1000, SMALL = 32 * KIB };

static char root[64];
static int bucket_fd;
static unsigned passes;              /* over the names of any directory, to their end */

static struct dirent *counted_readdir(DIR *dir)
{
    struct dirent *d = readdir(dir);
    passes += !d;
    return d;
}

static uint64_t dice(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void make_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    close(fd);
}

/* Names around what sorts oddly: "a-", "a.", "a/", "a0" and groups that end with "_". */
static void name_of(unsigned i, char out[64])
{
    static const char *const kind[] = {"-", ".", "0", "_", "_x_", "~"};
    snprintf(out, 64, "%c%s%u%s", 'a' + (char)(i % 5), kind[i % ARRAY_COUNT(kind)], i / 3,
             i % 7 ? "" : "\xc3\xa9");
}

static int make_tree(void **state)
{
    char name[256];
    (void)state;
    snprintf(root, sizeof(root), "/tmp/headpond-test-names-XXXXXX");
    assert_non_null(mkdtemp(root));
    for (unsigned i = 0; i < FILES; i++) {
        name_of(i, name);
        make_file(name);
    }
    for (unsigned i = 0; i < SUBS; i++) {
        snprintf(name, sizeof(name), "%s/%c%cd%u", root, 'a' + (char)(i % 5), "0_z"[i % 3], i);
        assert_int_equal(mkdir(name, 0755), 0);
        for (unsigned n = 0; n < BELOW; n++) {
            snprintf(name, sizeof(name), "%c%cd%u/%u", 'a' + (char)(i % 5), "0_z"[i % 3], i, n);
            make_file(name);
        }
    }
    make_file("c-");
    snprintf(name, sizeof(name), "%s/big", root);
    assert_int_equal(mkdir(name, 0755), 0);
    for (unsigned i = 0; i < BIG; i++) {
        snprintf(name, sizeof(name), "big/f%u", i);
        make_file(name);
    }
    bucket_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return bucket_fd >= 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *ftw)
{
    (void)s, (void)type, (void)ftw;
    return remove(path);
}

static int remove_tree(void **state)
{
    (void)state;
    close(bucket_fd);
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Until the directory's times can be told from those of a change that comes now. */
static void settle(void)
{
    struct statx st;
    assert_int_equal(statx(bucket_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st), 0);
    uint64_t from = (uint64_t)st.stx_ctime.tv_sec * 1000 + st.stx_ctime.tv_nsec / 1000000;
    AWAIT(clock_wall_ms() >= from + YOUNG_MS + 1);
}

struct query {
    const char *prefix, *delimiter;
    char after[KEY_BYTES_MAX + 1];
    bool after_prefix, begun;
};

/* One page as text, "key|prefix*|"; the query goes on behind it. The number of items. */
static unsigned page(struct dir_names *kept, struct query *q, unsigned most, char *out, size_t cap)
{
    const struct dir_place place = {.fd = bucket_fd, .kept = kept};
    struct walk *w = walk_open(&place, span_of(q->prefix), span_of(q->delimiter));
    struct walk_item item;
    struct text t;
    unsigned count = 0;
    bool more = true;

    assert_non_null(w);
    text_init(&t, out, cap);
    if (q->begun && q->after_prefix)
        walk_after_prefix(w, span_of(q->after));
    else if (q->begun)
        walk_after_key(w, span_of(q->after));
    while (count < most) {
        assert_int_equal(walk_next(w, &item, &more), OK);
        if (!more)
            break;
        text_add(&t, item.key);
        text_adds(&t, item.prefix ? "*|" : "|");
        snprintf(q->after, sizeof(q->after), "%.*s", (int)item.key.len, item.key.at);
        q->after_prefix = item.prefix;
        q->begun = true;
        count++;
    }
    assert_false(t.over);
    walk_close(w);
    return count;
}

static char one[1 * MIB], other[1 * MIB];

/* ---- tests ---- */

static void the_smallest_names_stay_in_order(void **state)
{
    static const struct names_of of = {.inode = 1};
    struct names *n = names_make(NULL, &of, span_of(""), span_of("5"), 100);
    static bool came[10000];
    char name[32];

    (void)state;
    assert_non_null(n);
    for (unsigned i = 0; i < 5000; i++) {
        unsigned number = i * 2657 % 10000;
        came[number] = true;
        snprintf(name, sizeof(name), "%04u", number);
        assert_int_equal(names_add(n, span_of(name)), OK);
    }
    names_sort(n);
    assert_true(names_more(n));
    assert_in_range(names_count(n), 50, 100);
    unsigned at = 5000;
    for (size_t i = 0; i < names_count(n); i++, at++) {
        while (!came[at])
            at++;
        snprintf(name, sizeof(name), "%04u", at);
        assert_true(span_is(names_get(n, i), name));
    }
    assert_int_equal(names_from(n, span_of("4")), 0);
    assert_int_equal(names_from(n, names_get(n, 7)), 7);
    assert_int_equal(names_from(n, span_of("9")), names_count(n));
    names_free(n);
}

/* Up to three pages, with what is kept and without. */
static void compare_pages(struct dir_names *kept, struct query q, unsigned most)
{
    struct query same = q;

    for (unsigned pages = 0, got = most; got == most && pages < 3; pages++) {
        got = page(NULL, &q, most, one, sizeof(one));
        assert_int_equal(page(kept, &same, most, other, sizeof(other)), got);
        assert_string_equal(one, other);
    }
}

/* A start of one's own: behind a key, or what keys begin with, here and there. */
static void begin_anywhere(struct query *q)
{
    static const char *const below[] = {"", "", "", "", "", "", "/", "/1"};
    char name[64];

    name_of((unsigned)(dice() % FILES), name);
    size_t len = strlen(name);
    int part = (int)(dice() % 2 ? len : 1 + dice() % len);
    snprintf(q->after, sizeof(q->after), "%.*s%s", part, name, below[dice() % ARRAY_COUNT(below)]);
    q->begun = true;
    q->after_prefix = dice() % 2;
}

static void kept_names_change_no_page(void **state)
{
    static const char *const prefixes[] = {"", "a", "b-", "d_", "e_x_", "c"},
                            *const delimiters[] = {"", "", "/", "_", "0"};

    (void)state;
    settle();
    for (unsigned i = 0; i < 60; i++) { /* each list may find what another one left */
        struct dir_names *kept = dir_names_make(i % 2 ? DIR_NAMES_BYTES : SMALL);
        const char *prefix = prefixes[i % ARRAY_COUNT(prefixes)];
        for (unsigned n = 0; n < 5; n++) {
            struct query q = {prefix, delimiters[dice() % ARRAY_COUNT(delimiters)], "", false,
                              false};
            if (n != 3)
                begin_anywhere(&q);
            compare_pages(kept, q, (unsigned)(1 + dice() % (dice() % 2 ? PAGE : 5)));
        }
        dir_names_free(kept);
    }
}

/* What one list had not to look at another one may have to. */
static void kept_names_of_another_start_have_no_holes(void **state)
{
    static const struct {
        struct query first, then;
    } rows[] = {
        {{"", "", "c-", false, true}, {"", "", "c,", true, true}},
        {{"c-", "", "c-", false, true}, {"c-", "", "c", false, true}},
        {{"", "_", "a_", true, true}, {"", "", "a_", false, true}},
        {{"", "/", "a0d5/", true, true}, {"", "", "a0d5/0", false, true}},
        {{"big/", "", "big/", false, true}, {"big/", "", "c", false, true}},
        {{"big/", "", "big/", false, true}, {"big/", "", "big/", true, true}},
        {{"big/", "", "big/", false, true}, {"big/f", "", "big/g", false, true}},
    };

    (void)state;
    settle();
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        struct dir_names *kept = dir_names_make(SMALL);
        compare_pages(kept, rows[i].first, 2);
        compare_pages(kept, rows[i].then, PAGE);
        dir_names_free(kept);
    }
}

static void a_list_of_a_large_directory_reads_it_once(void **state)
{
    struct dir_names *kept = dir_names_make(DIR_NAMES_BYTES);
    struct query q = {"", "/", "", false, false};
    unsigned pages = 0;

    (void)state;
    settle();
    passes = 0;
    while (page(kept, &q, 100, one, sizeof(one)) == 100)
        pages++;
    assert_true(pages > 80);         /* 94 */
    assert_int_equal(passes, 1);     /* the looks for a file in each below it end with the first */
    struct query again = {"", "/", "", false, false};
    page(kept, &again, 100, one, sizeof(one));
    assert_int_equal(passes, 2);     /* a list that begins reads anew */
    dir_names_free(kept);
}

static void names_that_do_not_fit_are_read_by_another_pass(void **state)
{
    struct dir_names *kept = dir_names_make(SMALL);
    struct query q = {"", "", "", false, false};
    unsigned count = 0, got;

    (void)state;
    settle();
    passes = 0;
    while ((got = page(kept, &q, PAGE, one, sizeof(one))) == PAGE)
        count += got;
    assert_int_equal(count + got, FILES + SUBS * BELOW + BIG + 1);
    assert_in_range(passes - SUBS, (FILES + SUBS) * 16 / SMALL, (FILES + SUBS) * 40 / SMALL + 1);
    dir_names_free(kept);
}

static void a_page_tells_what_was_added_since_the_one_before(void **state)
{
    struct dir_names *kept = dir_names_make(DIR_NAMES_BYTES);
    struct query q = {"", "/", "", false, false};
    char path[128];

    (void)state;
    settle();
    page(kept, &q, PAGE, one, sizeof(one));
    passes = 0;
    make_file("b-new");
    struct query next = q;
    page(kept, &next, PAGE, one, sizeof(one));
    next = q;
    while (page(kept, &next, PAGE, one, sizeof(one)) == PAGE && !strstr(one, "|b-new|"))
        ;
    assert_non_null(strstr(one, "|b-new|"));
    settle();
    next = q;
    page(kept, &next, PAGE, one, sizeof(one));
    snprintf(path, sizeof(path), "%s/b-new", root);
    assert_int_equal(unlink(path), 0);
    next = q;
    while (page(kept, &next, PAGE, one, sizeof(one)) == PAGE)
        assert_null(strstr(one, "|b-new|"));
    dir_names_free(kept);
}

/* Within the pace of its clock a second change would not show; a change on the way does. */
static void a_directory_that_changes_is_not_kept(void **state)
{
    struct names_of of = {.inode = 1};
    struct dir_names *kept = dir_names_make(DIR_NAMES_BYTES);
    static const struct {
        int64_t age_ms, later_ns;
        bool settled, found;
    } rows[] = {{0, 0, false, true}, {YOUNG_MS - 500, 0, false, true},
                {YOUNG_MS + 1, 0, true, true}, {YOUNG_MS + 1, 1, true, false},
                {-5000, 0, false, true}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        of.inode++;
        of.changed_ns = (uint64_t)((int64_t)clock_wall_ms() - rows[i].age_ms) * 1000000;
        assert_int_equal(names_are_settled(&of), rows[i].settled);
        struct names *n = names_make(kept, &of, span_of(""), span_of(""), 10);
        struct names_of after = of;
        assert_int_equal(names_add(n, span_of("x")), OK);
        after.changed_ns += (uint64_t)rows[i].later_ns;
        names_keep(kept, n, &after);
        assert_int_equal(!!names_find(kept, &of, span_of(""), span_of("")), rows[i].found);
        assert_int_equal(!!names_find(kept, &after, span_of(""), span_of("")), rows[i].found);
    }
    assert_true(dir_names_tidy(kept));
    for (unsigned i = 0; i < KEPT; i++) {
        if (kept->kept[i])
            kept->kept[i]->read_ms -= KEEP_MS;
    }
    assert_false(dir_names_tidy(kept));
    dir_names_free(kept);
}

/* That changes while the times of the directory do not. */
static void what_links_lead_to_is_looked_at_for_each_page(void **state)
{
    struct dir_names *kept = dir_names_make(DIR_NAMES_BYTES);
    struct query q = {"big/", "", "big/f1", false, true};
    char path[128];

    (void)state;
    snprintf(path, sizeof(path), "%s/big/link", root);
    assert_int_equal(symlink("../late", path), 0);
    settle();
    page(kept, &q, PAGE, one, sizeof(one));
    make_file("late");
    q = (struct query){"big/", "", "big/g", false, true};
    assert_int_equal(page(kept, &q, PAGE, one, sizeof(one)), 1);
    assert_string_equal(one, "big/link|");
    dir_names_free(kept);
}

static void newer_names_take_the_place_of_older_ones(void **state)
{
    struct dir_names *kept = dir_names_make(DIR_NAMES_BYTES);
    static const struct {
        uint64_t inode, changed_ns;
        const char *low;
        unsigned left;
    } rows[] = {{1, 1, "b", 1}, {1, 1, "a", 1}, {2, 1, "a", 2}, {1, 1, "c", 3}, {1, 2, "d", 2}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct names_of of = {.inode = rows[i].inode, .changed_ns = rows[i].changed_ns};
        struct names *n = names_make(kept, &of, span_of(""), span_of(rows[i].low), 10);
        unsigned left = 0;
        assert_int_equal(names_add(n, span_of("x")), OK);
        names_keep(kept, n, &of);
        assert_ptr_equal(names_find(kept, &of, span_of(""), span_of("x")), n);
        for (unsigned place = 0; place < KEPT; place++)
            left += !!kept->kept[place];
        assert_int_equal(left, rows[i].left);
    }
    dir_names_free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_names_stay_in_order),
        cmocka_unit_test(kept_names_change_no_page),
        cmocka_unit_test(kept_names_of_another_start_have_no_holes),
        cmocka_unit_test(a_list_of_a_large_directory_reads_it_once),
        cmocka_unit_test(names_that_do_not_fit_are_read_by_another_pass),
        cmocka_unit_test(a_page_tells_what_was_added_since_the_one_before),
        cmocka_unit_test(a_directory_that_changes_is_not_kept),
        cmocka_unit_test(what_links_lead_to_is_looked_at_for_each_page),
        cmocka_unit_test(newer_names_take_the_place_of_older_ones),
    };
    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
