/* For tests of what a cache leaves on disk: objects by number, the files below a case's first
 * directory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_FILES_H
#define HEADPOND_CACHE_FILES_H

#include "tests/lib/cache_case.h"

enum { OBJECTS = 40 };

static unused_ok struct cache_case *open_case(unsigned dirs)
{
    struct cache_case *t = case_make(dirs);

    if (case_open(t) != OK)
        fail_msg("%s", t->why);
    return t;
}

static unused_ok void fill_objects(struct cache_case *t, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_learn(t, key, "\"1\"", 200000 + i);
        assert_int_equal(case_fill(t, o, 0), OK);
        object_drop(t->c, o);
    }
}

/* How many of the first `count` can be read, the first block of each, and have of the flags in mask
 * exactly those that are wanted. */
static unused_ok unsigned count_flagged(struct cache_case *t, unsigned count, uint32_t mask,
                                        uint32_t wanted)
{
    unsigned present = 0;

    for (unsigned i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "o%u", i);
        struct object *o = case_find(t, key);
        if (!o)
            continue;
        if (o->size < CHUNK_BYTES)   /* of fill_objects() */
            assert_int_equal(o->size, 200000 + i);
        present +=
            case_read(t, o, 0, 0) == OK && (atomic_load(&o->flags) & mask) == wanted;
        object_drop(t->c, o);
    }
    return present;
}

static unused_ok unsigned count_objects(struct cache_case *t, unsigned count, uint32_t with_flags)
{
    return count_flagged(t, count, with_flags, with_flags);
}

/* Without doubt, or anything else to be said of them. */
static unused_ok unsigned count_readable(struct cache_case *t, unsigned count)
{
    return count_flagged(t, count, UINT32_MAX, 0);
}

static unused_ok void close_case(struct cache_case *t)
{
    case_close(t);
}

enum { PATH_BYTES = 200 };

static unused_ok void path_of(const struct cache_case *t, const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", t->dir[0], name);
}

static unused_ok bool there(const struct cache_case *t, const char *name)
{
    char path[PATH_BYTES];

    path_of(t, name, path);
    return access(path, F_OK) == 0;
}

static unused_ok void cut_file(const struct cache_case *t, const char *name, off_t bytes)
{
    char path[PATH_BYTES];

    path_of(t, name, path);
    assert_int_equal(truncate(path, bytes), 0);
}

static unused_ok void remove_file(const struct cache_case *t, const char *name)
{
    char path[PATH_BYTES];

    path_of(t, name, path);
    assert_int_equal(unlink(path), 0);
}

static unused_ok void expect_refusal(struct cache_case *t, enum err err, const char *word)
{
    enum err got = case_open(t);

    assert_string_equal(err_name(got), err_name(err));
    if (!strstr(t->why, word) || !strstr(t->why, t->dir[0]))
        fail_msg("\"%s\" lacks \"%s\" or the path", t->why, word);
}

#endif
