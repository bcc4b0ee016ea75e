/* A cache directory as the server needs it: ours alone, direct I/O, room; and how fast it reads.
 *
 * Invariants:
 *  1. Nothing stays behind: the probe's file has no name, or loses it at once.
 *
 * Life: nothing outlives a check. Failure: a directory that this user may not enter is "-", with
 * the way to look. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "conf.h"
#include "units.h"

enum { DIRECT_BYTES = 4 * KIB, PATH_BYTES = 4096 };
enum { PIECE_BYTES = MIB, PIECES_MOST = 256, READERS = 8, SPEED_MS = 500 };

static int open_probe(const char *dir)
{
    char path[PATH_BYTES];
    int flags = O_RDWR | O_DIRECT | O_CLOEXEC;
    int fd = open(dir, O_TMPFILE | flags, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    if (snprintf(path, sizeof path, "%s/.doctor-XXXXXX", dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, flags & ~O_RDWR); /* for file systems without nameless files */
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* 0, or the errno of the first thing refused. */
static int probe_direct(int fd)
{
    void *block = mem_take_aligned(DIRECT_BYTES, DIRECT_BYTES);
    int error = block ? 0 : ENOMEM;

    if (!error && pwrite(fd, block, DIRECT_BYTES, 0) != DIRECT_BYTES)
        error = errno ? errno : EIO;
    if (!error && pread(fd, block, DIRECT_BYTES, 0) != DIRECT_BYTES)
        error = errno ? errno : EIO;
    mem_give(block);
    return error;
}

/* ---- how fast it reads ---- */
struct reading {
    int fd;
    uint32_t pieces;                 /* that were written */
    _Atomic uint32_t next, done;
};

/* Bytes that no disk can make shorter, as many as there is time for. */
static uint32_t write_pieces(int fd, uint8_t *piece)
{
    uint64_t until = clock_ms() + SPEED_MS, seed = clock_us();
    uint32_t n = 0;

    for (size_t i = 0; i < PIECE_BYTES; i += sizeof seed) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        memcpy(piece + i, &seed, sizeof seed);
    }
    while (n < PIECES_MOST && clock_ms() < until) {
        for (size_t i = 0; i < PIECE_BYTES; i += DIRECT_BYTES)
            memcpy(piece + i, &n, sizeof n); /* no block is the same as another */
        if (pwrite(fd, piece, PIECE_BYTES, (off_t)n * PIECE_BYTES) != PIECE_BYTES)
            break;
        n++;
    }
    return n;
}

static void *read_pieces(void *arg)
{
    struct reading *r = arg;
    uint64_t until = clock_ms() + SPEED_MS;
    void *piece = mem_take_aligned(PIECE_BYTES, DIRECT_BYTES);

    while (piece && clock_ms() < until) {
        uint32_t n = atomic_fetch_add(&r->next, 1);
        if (n >= r->pieces ||
            pread(r->fd, piece, PIECE_BYTES, (off_t)n * PIECE_BYTES) != PIECE_BYTES)
            break;
        atomic_fetch_add(&r->done, 1);
    }
    mem_give(piece);
    return NULL;
}

/* Bytes per second, past the page cache, by as many readers at once as the server has reads under
 * way of one stream; 0: it cannot be told. The file has no name, so nothing stays behind. */
static double measure_reads(int fd)
{
    uint8_t *piece = mem_take_aligned(PIECE_BYTES, DIRECT_BYTES);
    struct reading r = {.fd = fd};
    pthread_t reader[READERS];
    unsigned readers = 0;

    if (piece)
        r.pieces = write_pieces(fd, piece);
    mem_give(piece);
    uint64_t began = clock_us();
    while (readers < READERS && pthread_create(&reader[readers], NULL, read_pieces, &r) == 0)
        readers++;
    for (unsigned i = 0; i < readers; i++)
        pthread_join(reader[i], NULL);
    uint64_t us = clock_us() - began;
    return us ? (double)atomic_load(&r.done) * PIECE_BYTES * 1e6 / (double)us : 0;
}

static bool has_room(const char *dir)
{
    struct statvfs fs;

    return statvfs(dir, &fs) == 0 &&
           (uint64_t)fs.f_bavail * fs.f_frsize > 4 * (uint64_t)PIECES_MOST * PIECE_BYTES;
}

static void say_direct(struct doctor *d, const char *dir, int fd)
{
    double rate = has_room(dir) ? measure_reads(fd) : 0;
    char memory[64];
    struct text t;

    text_init(&t, memory, sizeof memory);
    if (rate > 0) {
        text_adds(&t, ", ");
        units_rate(&t, rate, rate);
        text_adds(&t, " read");
    }
    doctor_say(d, GRADE_OK, "disk", "%s accepts O_DIRECT (%d)%s", dir, DIRECT_BYTES, memory);
}

static void check_direct(struct doctor *d, const char *dir)
{
    int fd = open_probe(dir), error = fd < 0 ? errno : probe_direct(fd);

    if (error == 0)
        say_direct(d, dir, fd);
    else if (error == EINVAL)
        doctor_say(d, GRADE_FAIL, "disk", "%s refuses O_DIRECT (tmpfs, overlay or network file "
                                          "systems do): use a directory on a local ext4 or XFS",
                   dir);
    else
        doctor_say(d, GRADE_FAIL, "disk", "%s: a file cannot be written: %s", dir,
                   strerrordesc_np(error));
    if (fd >= 0)
        close(fd);
}

static void check_room(struct doctor *d, const char *dir)
{
    const char *text = value_text(json_object_get(d->config, "cache"), "min_free");
    char memory[64], least_text[64];
    uint64_t least = 0;
    struct statvfs fs;
    struct text t;

    if (statvfs(dir, &fs) != 0)
        return;
    if (conf_read_bytes(span_of(text), &least) != OK)
        least = 2 * GIB;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    text_init(&t, memory, sizeof memory);
    units_bytes_of(&t, free_bytes, (uint64_t)fs.f_blocks * fs.f_frsize);
    text_init(&t, least_text, sizeof least_text);
    units_bytes(&t, least);
    if (free_bytes >= least)
        doctor_say(d, GRADE_OK, "disk", "%s: %s free", dir, memory);
    else
        doctor_say(d, GRADE_WARN, "disk", "%s: %s free, less than cache.min_free (%s): make room, "
                                          "or lower cache.size before the first start",
                   dir, memory, least_text);
}

void disk_check(struct doctor *d, const char *dir)
{
    struct stat st;

    if (lstat(dir, &st) != 0) {
        bool absent = errno == ENOENT;
        doctor_say(d, absent ? GRADE_WARN : GRADE_UNKNOWN, "disk", "%s: %s; %s", dir,
                   strerrordesc_np(errno),
                   absent ? "the server makes it, if it may write to the directory above"
                       : "run doctor as the server's user or with sudo");
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        doctor_say(d, GRADE_FAIL, "disk", "%s is no directory (or a symbolic link): name the "
                                          "directory itself", dir);
        return;
    }
    if (st.st_mode & 077)
        doctor_say(d, GRADE_FAIL, "disk", "%s is open to other users (mode %03o): chmod 700 '%s'",
                   dir, st.st_mode & 0777, dir);
    if (geteuid() != 0 && st.st_uid != geteuid()) {
        doctor_say(d, GRADE_UNKNOWN, "disk", "%s belongs to user %u: run doctor as that user or "
                                             "with sudo to look inside", dir, st.st_uid);
        return;
    }
    check_direct(d, dir);
    check_room(d, dir);
}
