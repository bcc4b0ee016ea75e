/* Listings over a temporary tree, against tables; pages against the whole. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/dir_list.c"

#include <ftw.h>
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

static char root[64];
static int root_fd;

static void make_file(const char *path)
{
    char whole[2 * KIB];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(whole, sizeof(whole), "%s/%.*s", root, (int)(slash - path), path);
        mkdir(whole, 0755);
    }
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(path, f);
    fclose(f);
}

static void make_link(const char *to, const char *path)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    assert_int_equal(symlink(to, whole), 0);
}

static void make_dir(const char *path)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    assert_int_equal(mkdir(whole, 0755), 0);
}

static int make_tree(void **state)
{
    static const char *const files[] = {
        "tree/a-b/1", "tree/a.txt", "tree/a/1", "tree/a/2", "tree/a/b/3", "tree/a0", "tree/b",
            "tree/c d+e&<>\".bin",
        "tree/z/y/x/w", "tree/\xc3\xa9",
        "tree/\xe9t\xe9", "tree/a/\xff/x", /* not UTF-8: nobody can ask for them */
        "other/only", "third/x",
    };
    char path[128];
    (void)state;
    snprintf(root, sizeof(root), "/tmp/headpond-test-list-XXXXXX");
    assert_non_null(mkdtemp(root));
    for (unsigned i = 0; i < ARRAY_COUNT(files); i++)
        make_file(files[i]);
    make_dir("tree/empty");
    make_dir("tree/empty/below");
    make_dir(".hidden");
    make_dir("lost+found");
    make_link("a0", "tree/link");            /* a file in the bucket: listed */
    make_link("a/b", "tree/linked");         /* so is what lies in a directory */
    make_link("../other", "tree/lost");      /* another bucket: not */
    make_link("../other/only", "tree/lot");
    make_link("/etc/passwd", "tree/out");    /* leaves the root: not */
    make_link("tree", "whole");              /* a bucket by another name */
    make_link("..", "tree/z/back");          /* its own ancestor: not entered */
    make_link("nowhere", "tree/dangling");
    for (unsigned i = 0; i < 2500; i++) {
        snprintf(path, sizeof(path), "many/%c-%u", 'a' + (char)(i % 3), i);
        make_file(path);
    }
    root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(root_fd >= 0);
    return xml_setup() == OK ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *ftw)
{
    (void)s, (void)type, (void)ftw;
    return remove(path);
}

static int remove_tree(void **state)
{
    (void)state;
    close(root_fd);
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- a document, read back ---- */

struct seen {
    char items[64 * KIB];            /* "key|key|prefix*|" in order */
    char next[3 * KIB], count[16], max[16], marker[2 * KIB], delimiter[64], name[64], code[64],
        encoding[16];
    bool truncated;
    unsigned item_count, owners, etags;
};

static void copy(char *out, size_t cap, struct span text)
{
    snprintf(out, cap, "%.*s", (int)text.len, text.at);
}

static bool see(void *user, struct span path, struct span text)
{
    struct seen *s = user;
    struct span leaf = path;
    while (span_find(leaf, '/') < leaf.len)
        leaf = span_from(leaf, span_find(leaf, '/') + 1);
    if (span_is(leaf, "Key") || span_is(path, "ListBucketResult/CommonPrefixes/Prefix")) {
        size_t len = strlen(s->items);
        snprintf(s->items + len, sizeof(s->items) - len, "%.*s%s|", (int)text.len, text.at,
                 span_is(leaf, "Key") ? "" : "*");
        s->item_count++;
    }
    if (span_is(leaf, "NextContinuationToken") || span_is(leaf, "NextMarker"))
        copy(s->next, sizeof(s->next), text);
    if (span_is(leaf, "KeyCount"))
        copy(s->count, sizeof(s->count), text);
    if (span_is(leaf, "MaxKeys"))
        copy(s->max, sizeof(s->max), text);
    if (span_is(leaf, "Marker"))
        copy(s->marker, sizeof(s->marker), text);
    if (span_is(leaf, "Delimiter"))
        copy(s->delimiter, sizeof(s->delimiter), text);
    if (span_is(leaf, "EncodingType"))
        copy(s->encoding, sizeof(s->encoding), text);
    if (span_is(path, "ListBucketResult/Name"))
        copy(s->name, sizeof(s->name), text);
    if (span_is(leaf, "Code"))
        copy(s->code, sizeof(s->code), text);
    if (span_is(leaf, "IsTruncated"))
        s->truncated = span_is(text, "true");
    s->owners += span_is(path, "ListBucketResult/Contents/Owner/ID");
    s->etags += span_is(leaf, "ETag") && text.len == DIR_ETAG_BYTES && text.at[0] == '"';
    return true;
}

static struct seen seen;

static unsigned ask(const char *bucket, const char *query)
{
    struct ask a = {.method = HTTP_GET, .bucket = span_of(bucket), .query = span_of(query)};
    struct dir_answer answer = {0};
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(dir_answer(&(struct dir_place){.fd = root_fd}, &a, &answer), OK);
    struct xml_reader *r = xml_open(16 * MIB, see, &seen);
    assert_int_equal(xml_feed(r, span_make(answer.body, answer.len)), OK);
    assert_int_equal(xml_end(r), OK);
    xml_close(r);
    mem_give(answer.body);
    return answer.status;
}

/* ---- tests ---- */

#define ODD "c d+e&<>\".bin"
#define AWAY "link|linked/3|z/y/x/w|\xc3\xa9|"
#define TAIL ODD "|" AWAY
#define ALL "a-b/1|a.txt|a/1|a/2|a/b/3|a0|b|" TAIL
#define GROUPS_TAIL "a0|b|" ODD "|link|linked/*|z/*|\xc3\xa9|"
#define GROUPS "a-b/*|a.txt|a/*|" GROUPS_TAIL

static void test_listing_against_a_table(void **state)
{
    static const struct {
        const char *query, *items;
    } table[] = {
        {"", ALL},
        {"list-type=2", ALL},
        {"prefix=&delimiter=&marker=", ALL},
        {"prefix=a", "a-b/1|a.txt|a/1|a/2|a/b/3|a0|"},
        {"prefix=a/", "a/1|a/2|a/b/3|"},
        {"prefix=a/b", "a/b/3|"},
        {"prefix=a%2Fb%2F", "a/b/3|"},
        {"%70refix=a%2Fb%2F", "a/b/3|"},
        {"list-type=2&pref%69x=a/&st%61rt-after=a/1", "a/2|a/b/3|"},
        {"prefix=nothing", ""},
        {"prefix=a.txt/", ""},
        {"prefix=../", ""},
        {"prefix=lost/", ""},
        {"prefix=lo&delimiter=/", ""},
        {"prefix=linked/", "linked/3|"},
        {"prefix=a//", ""},
        {"prefix=./", ""},
        {"delimiter=/", GROUPS},
        {"delimiter=/&prefix=a/", "a/1|a/2|a/b/*|"},
        {"delimiter=/&prefix=a", "a-b/*|a.txt|a/*|a0|"},
        {"delimiter=%2Fb%2F", "a-b/1|a.txt|a/1|a/2|a/b/*|a0|b|" TAIL},
        {"delimiter=-", "a-*|a.txt|a/1|a/2|a/b/3|a0|b|" TAIL},
        {"delimiter=in", "a-b/1|a.txt|a/1|a/2|a/b/3|a0|b|" ODD "*|lin*|z/y/x/w|\xc3\xa9|"},
        {"marker=a/1", "a/2|a/b/3|a0|b|" TAIL},
        {"marker=a/", "a/1|a/2|a/b/3|a0|b|" TAIL},
        {"marker=a/b/3", "a0|b|" TAIL},
        {"marker=a/b/0&prefix=a", "a/b/3|a0|"},
        {"marker=zz", "\xc3\xa9|"},
        {"marker=a/&delimiter=/", GROUPS_TAIL},
        {"marker=a/1&delimiter=/", GROUPS_TAIL},
        {"list-type=2&start-after=b", TAIL},
        {"list-type=2&marker=b&prefix=a/b", "a/b/3|"},
        {"start-after=b&prefix=a/b", "a/b/3|"},
        {"max-keys=2", "a-b/1|a.txt|"},
        {"max-keys=0", ""},
        {"max-keys=", ALL},
        {"max-keys=5000", ALL},
        {"encoding-type=url&prefix=c", "c+d%2Be%26%3C%3E%22.bin|"},
        {"encoding-type=url&prefix=%C3", "%C3%A9|"},
        {"x-id=ListObjects&prefix=b", "b|"},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        assert_int_equal(ask("tree", table[i].query), 200);
        if (strcmp(seen.items, table[i].items) != 0)
            fail_msg("%s: %s", table[i].query, seen.items);
        assert_string_equal(seen.name, "tree");
    }
}

static void test_pages_make_up_the_whole(void **state)
{
    static const struct {
        const char *bucket, *query, *resume, *whole;
    } table[] = {
        {"tree", "list-type=2", "continuation-token", ALL},
        {"tree", "list-type=2&delimiter=/", "continuation-token", GROUPS},
        {"tree", "delimiter=/", "marker", GROUPS},
        {"tree", "delimiter=-", "marker", "a-*|a.txt|a/1|a/2|a/b/3|a0|b|" TAIL},
        {"many", "list-type=2&delimiter=-", "continuation-token", "a-*|b-*|c-*|"},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        for (unsigned page = 1; page <= 4; page++) {
            char sum_memory[4 * KIB], query[8 * KIB], coded[4 * KIB] = "";
            struct text t, sum;
            unsigned guard = 0;
            text_init(&sum, sum_memory, sizeof(sum_memory));
            do {
                snprintf(query, sizeof(query), "%s&max-keys=%u%s%s=%s", table[i].query, page,
                         coded[0] ? "&" : "&x", table[i].resume, coded);
                assert_int_equal(ask(table[i].bucket, query), 200);
                assert_true(seen.item_count <= page);
                text_adds(&sum, seen.items);
                text_init(&t, coded, sizeof(coded));
                uri_encode(&t, span_of(seen.next), false);
                assert_int_equal(seen.truncated, seen.next[0] != '\0');
            } while (seen.truncated && ++guard < 100);
            if (strcmp(sum.at, table[i].whole) != 0)
                fail_msg("%s by %u: %s", table[i].query, page, sum.at);
        }
    }
}

static void test_more_files_than_a_batch(void **state)
{
    char query[8 * KIB] = "list-type=2", last[KEY_BYTES_MAX] = "";
    unsigned sum = 0, pages = 0;
    (void)state;
    do {
        assert_int_equal(ask("many", query), 200);
        sum += seen.item_count;
        pages++;
        struct span rest = span_of(seen.items);
        while (rest.len) {
            struct span item = span_cut(&rest, '|');
            assert_true(span_compare(span_of(last), item) < 0);
            copy(last, sizeof(last), item);
        }
        snprintf(query, sizeof(query), "list-type=2&continuation-token=%s", seen.next);
    } while (seen.truncated && pages < 10);
    assert_int_equal(sum, 2500);
    assert_int_equal(pages, 3);
}

static void test_fields_of_both_versions(void **state)
{
    (void)state;
    ask("tree", "list-type=2&max-keys=2");
    assert_string_equal(seen.count, "2");
    assert_string_equal(seen.max, "2");
    assert_true(seen.truncated && seen.next[0]);
    assert_int_equal(seen.owners, 0);
    assert_int_equal(seen.etags, 2);
    ask("tree", "list-type=2&max-keys=2&fetch-owner=true");
    assert_int_equal(seen.owners, 2);
    ask("tree", "max-keys=2&marker=a-b/1");
    assert_string_equal(seen.marker, "a-b/1");
    assert_true(seen.truncated);
    assert_string_equal(seen.next, ""); /* only with a delimiter */
    assert_string_equal(seen.count, "");
    assert_int_equal(seen.owners, 2);
    ask("tree", "delimiter=/&encoding-type=url");
    assert_string_equal(seen.delimiter, "/");
    assert_string_equal(seen.encoding, "url");
    ask("tree", "list-type=2&max-keys=0");
    assert_false(seen.truncated);
    ask("tree", "list-type=2&max-keys=12");
    assert_false(seen.truncated);
    ask("tree", "list-type=2&max-keys=11");
    assert_true(seen.truncated);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *bucket, *query, *code;
        unsigned status;
    } table[] = {
        {"tree", "max-keys=-1", "InvalidArgument", 400},
        {"tree", "max-keys=x", "InvalidArgument", 400},
        {"tree", "max-keys=99999999999", "InvalidArgument", 400},
        {"tree", "encoding-type=base64", "InvalidArgument", 400},
        {"tree", "list-type=2&continuation-token=zz", "InvalidArgument", 400},
        {"tree", "list-type=2&continuation-token=", "InvalidArgument", 400},
        {"tree", "list-type=2&continuation-token=6b", "InvalidArgument", 400},
        {"tree", "list-type=2&continuation-token=786162", "InvalidArgument", 400},
        {"tree", "prefix=%zz", "InvalidArgument", 400},
        {"tree", "acl", "NotImplemented", 501},
        {"tree", "%61cl", "NotImplemented", 501},
        {"tree", "versions&prefix=a", "NotImplemented", 501},
        {"missing", "", "NoSuchBucket", 404},
        {"..", "", "NoSuchBucket", 404},
        {".hidden", "", "NoSuchBucket", 404},
        {"tree/a", "", "NoSuchBucket", 404},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        if (ask(table[i].bucket, table[i].query) != table[i].status ||
            strcmp(seen.code, table[i].code) != 0)
            fail_msg("%s?%s: %s", table[i].bucket, table[i].query, seen.code);
    }
    char query[KEY_BYTES_MAX + 32];
    for (int more = 0; more <= 1; more++) { /* no key begins with, or stands behind, a longer one */
        snprintf(query, sizeof(query), "prefix=%0*d", KEY_BYTES_MAX + more, 1);
        assert_int_equal(ask("tree", query), more ? 400 : 200);
        snprintf(query, sizeof(query), "marker=%0*d", KEY_BYTES_MAX + more, 1);
        assert_int_equal(ask("tree", query), more ? 400 : 200);
        snprintf(query, sizeof(query), "list-type=2&start-after=%0*d", KEY_BYTES_MAX + more, 1);
        assert_int_equal(ask("tree", query), more ? 400 : 200);
    }
    struct ask put = {.method = HTTP_PUT, .bucket = span_of("tree")};
    struct dir_answer answer;
    assert_int_equal(dir_answer(&(struct dir_place){.fd = root_fd}, &put, &answer), OK);
    assert_int_equal(answer.status, 501);
    mem_give(answer.body);
}

static void test_buckets(void **state)
{
    struct ask a = {.method = HTTP_GET};
    struct dir_answer answer;
    (void)state;
    assert_int_equal(dir_answer(&(struct dir_place){.fd = root_fd}, &a, &answer), OK);
    assert_int_equal(answer.status, 200);
    const char *many = strstr(answer.body, "<Name>many</Name>"),
        *other = strstr(answer.body, "<Name>other</Name>");
    assert_true(many && other && many < other);
    assert_null(strstr(answer.body, "hidden"));
    assert_null(strstr(answer.body, "lost"));
    mem_give(answer.body);
    assert_int_equal(ask("whole", "prefix=a/"), 200);
    assert_string_equal(seen.items, "a/1|a/2|a/b/3|");
    a.bucket = span_of("tree");
    a.query = span_of("location");
    assert_int_equal(dir_answer(&(struct dir_place){.fd = root_fd}, &a, &answer), OK);
    assert_non_null(strstr(answer.body, "<LocationConstraint "));
    mem_give(answer.body);
    a.method = HTTP_HEAD;
    a.query = span_of("");
    assert_int_equal(dir_answer(&(struct dir_place){.fd = root_fd}, &a, &answer), OK);
    assert_int_equal(answer.status, 200);
    assert_null(answer.body);
}

/* A start before the mount would serve the empty directory below it for good. Another directory at
 * the root's path is what a mount looks like from here. */
static void test_root_mounted_after_the_start(void **state)
{
    char before[80], place[80];
    struct lister l = {.path = place};
    bool is;
    struct statx st;

    (void)state;
    snprintf(before, sizeof(before), "%s.before", root);
    snprintf(place, sizeof(place), "%s.place", root);
    assert_int_equal(mkdir(place, 0755), 0);
    l.root_fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(l.root_fd >= 0);
    assert_false(root_has_changed(&l));
    assert_int_equal(rename(place, before), 0);
    assert_false(root_has_changed(&l)); /* nothing is there: what was known stays */
    assert_int_equal(symlink(root, place), 0);
    assert_int_equal(look_at_bucket(l.root_fd, "tree", &st, &is), OK);
    assert_false(is);
    assert_true(root_has_changed(&l));
    assert_false(root_has_changed(&l));
    assert_int_equal(look_at_bucket(l.root_fd, "tree", &st, &is), OK);
    assert_true(is);
    close(l.root_fd);
    assert_int_equal(unlink(place), 0);
    assert_int_equal(rmdir(before), 0);
}

/* A list of millions of names would go on for nobody, and all others wait for it. */
static void test_list_that_nobody_waits_for_any_more(void **state)
{
    struct ask a = {.method = HTTP_GET, .bucket = span_of("tree"), .query = span_of("")};
    struct dir_answer answer = {0};
    _Atomic bool unwanted = true;

    (void)state;
    const struct dir_place place = {.fd = root_fd, .unwanted = &unwanted};
    assert_int_equal(dir_answer(&place, &a, &answer), ERR_TIMEOUT);
    assert_null(answer.body);
}

/* Only what is not there, or not ours to see, may be missing in a list. */
static void test_what_cannot_be_looked_at_is_no_hole(void **state)
{
    static const int absent[] = {ENOENT, ENOTDIR, ELOOP, EXDEV, EACCES, EPERM, ENAMETOOLONG},
                     broken[] = {EIO, ESTALE, ETIMEDOUT, EMFILE, ENFILE, ENOTCONN};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(absent); i++)
        assert_int_equal(dir_missing(-absent[i]), OK);
    for (unsigned i = 0; i < ARRAY_COUNT(broken); i++)
        assert_int_equal(dir_missing(-broken[i]), ERR_UPSTREAM_CONNECT);
    assert_int_equal(dir_missing(-ENOMEM), ERR_MEMORY);
}

/* NFS, FUSE, btrfs and overlay get another number at each mount. */
static void test_etag_of_a_file_on_another_mount(void **state)
{
    struct statx st = {.stx_ino = 7, .stx_size = 9, .stx_dev_minor = 1}, again = st;
    char one[DIR_ETAG_BYTES + 1] = "", other[DIR_ETAG_BYTES + 1] = "";

    (void)state;
    again.stx_dev_minor = 2;
    dir_etag(&st, one);
    dir_etag(&again, other);
    assert_string_equal(one, other);
    again.stx_size = 8;
    dir_etag(&again, other);
    assert_string_not_equal(one, other);
}

static void test_names(void **state)
{
    static const struct {
        const char *key;
        bool ok;
    } table[] = {
        {"a", true}, {"a/b", true}, {"a..b/...", true}, {"", false}, {"a/", false}, {"/a", false},
            {"a//b", false},
        {".", false}, {"..", false}, {"a/./b", false}, {"a/../b", false}, {"../a", false},
        {"\xc3\xa9/a", true}, {"\xe9t\xe9", false}, {"a/\xff/x", false}, {"a\x01", true},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++)
        assert_int_equal(dir_key_name(span_of(table[i].key)), table[i].ok);
    assert_false(dir_key_name(span_make("a\0b", 3)));
    assert_true(dir_bucket_name(span_of("a.b-c_d")));
    assert_false(dir_bucket_name(span_of("-a")));
    assert_false(dir_bucket_name(span_of("a/b")));
    assert_false(dir_bucket_name(span_make("a\0b", 3)));
}

static void test_longest_keys(void **state)
{
    char memory[2 * KIB];
    struct text path;
    (void)state;
    text_init(&path, memory, sizeof(memory));
    text_adds(&path, "deep/");
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned n = 0; n < 203; n++)
            text_addc(&path, (char)('a' + i));
        text_addc(&path, '/');
    }
    text_adds(&path, "last");        /* 5 * 204 + 4 = 1024 */
    const char *key = path.at + 5;
    assert_int_equal(strlen(key), KEY_BYTES_MAX);
    make_file(path.at);
    text_addc(&path, 'x');           /* one more byte: no key */
    make_file(path.at);
    assert_int_equal(ask("deep", "list-type=2"), 200);
    assert_int_equal(seen.item_count, 1);
    assert_int_equal(strncmp(seen.items, key, KEY_BYTES_MAX), 0);
    ask("deep", "delimiter=/");
    assert_int_equal(seen.item_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listing_against_a_table),
            cmocka_unit_test(test_pages_make_up_the_whole),
        cmocka_unit_test(test_more_files_than_a_batch),
            cmocka_unit_test(test_fields_of_both_versions),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_buckets),
            cmocka_unit_test(test_root_mounted_after_the_start),
        cmocka_unit_test(test_list_that_nobody_waits_for_any_more),
        cmocka_unit_test(test_what_cannot_be_looked_at_is_no_hole),
        cmocka_unit_test(test_etag_of_a_file_on_another_mount),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_longest_keys),
    };
    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
