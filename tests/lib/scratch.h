/* Files of tests: a directory below /tmp that goes away as a whole, contents read and written. Any
 * failure fails the test. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_SCRATCH_H
#define HEADPOND_SCRATCH_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"

enum { SCRATCH_FDS = 16 };

static int scratch_unlink(const char *path, unused_ok const struct stat *st, unused_ok int type,
                          unused_ok struct FTW *at)
{
    return remove(path);
}

/* The directory and all below it; a link goes, not what it shows. */
static unused_ok void scratch_remove(const char *path)
{
    assert_int_equal(nftw(path, scratch_unlink, SCRATCH_FDS, FTW_DEPTH | FTW_PHYS), 0);
}

static unused_ok void scratch_write(const char *path, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(close(fd), 0);
}

/* The whole file, to be given back by mem_give(). */
static unused_ok uint8_t *scratch_read(const char *path, size_t *len)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    uint8_t *bytes = mem_take((size_t)st.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    *len = (size_t)st.st_size;
    return bytes;
}

#endif
