/* For tests of writes through a cache: what they do to a key that is known, and crashes behind
 * them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_WRITE_CASE_H
#define HEADPOND_WRITE_CASE_H

#include <signal.h>
#include <sys/wait.h>

#include "tests/lib/cache_files.h"

enum { SIZE = 5000 };

static unused_ok struct okey key_at(struct cache_case *t, const char *key, const char *version)
{
    struct okey k = {.bucket = span_of("bucket"), .key = span_of(key),
                     .version = span_of(version)};

    cache_key(t->c, &k);
    return k;
}

static unused_ok enum err learn_fields(struct cache_case *t, const struct okey *k,
                                       const char *etag, const char *fields, struct epoch epoch)
{
    struct object_facts f = {.size = SIZE, .last_modified_s = 1600000000, .asked_ms = t->asked_ms,
                             .etag = span_of(etag), .headers = span_of(fields), .epoch = epoch};
    struct object *o;
    enum err err = cache_learn(t->c, k, &f, &o);

    if (err == OK)
        object_drop(t->c, o);
    return err;
}

static unused_ok enum err learn_at(struct cache_case *t, const struct okey *k, const char *etag,
                                   struct epoch epoch)
{
    return learn_fields(t, k, etag, "a: b\r\n", epoch);
}

static unused_ok enum err learn_now(struct cache_case *t, const char *key, const char *etag)
{
    struct okey k = key_at(t, key, "");

    return learn_at(t, &k, etag, cache_epoch(t->c, &k));
}

static unused_ok void keep(struct cache_case *t, const char *key)
{
    assert_int_equal(learn_now(t, key, "\"1\""), OK);
    struct object *o = case_find(t, key);
    assert_int_equal(case_fill(t, o, 0), OK);
    object_drop(t->c, o);
}

static unused_ok bool is_doubtful(struct cache_case *t, const char *key, const char *version)
{
    struct okey k = key_at(t, key, version);
    struct object *o = cache_find(t->c, &k);

    assert_non_null(o);
    bool doubtful = atomic_load(&o->flags) & OBJECT_DOUBT;
    object_drop(t->c, o);
    return doubtful;
}

static unused_ok bool heard(struct cache_case *t, const struct cache_write *w)
{
    case_deliver(t);
    return !w->busy;
}

static unused_ok void begin_write(struct cache_case *t, struct cache_write *w, const char *key)
{
    struct okey k = key_at(t, key, "");

    cache_write_begin(t->c, w, &k, &t->machine);
    assert_int_equal(t->machine.inflight, w->busy ? 1 : 0);
}

static unused_ok void await_write(struct cache_case *t, struct cache_write *w)
{
    AWAIT(heard(t, w));
    assert_int_equal(t->machine.inflight, 0);
}

static unused_ok void begin_surely(struct cache_case *t, struct cache_write *w, const char *key)
{
    begin_write(t, w, key);
    await_write(t, w);
}

static unused_ok void crash_after(struct cache_case *t, void (*play)(struct cache_case *))
{
    int said[2];
    char word;

    assert_int_equal(pipe(said), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (case_open(t) != OK)
            _exit(1);
        play(t);
        if (write(said[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    close(said[1]);
    assert_int_equal(read(said[0], &word, 1), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(said[0]);
    if (case_open(t) != OK)
        fail_msg("%s", t->why);
}

static unused_ok void write_a(struct cache_case *t)
{
    static struct cache_write w;

    begin_surely(t, &w, "a");
}

#endif
