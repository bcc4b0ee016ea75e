/* Part full: file systems without room, for the slab, for the index, for one more file.
 *
 * Invariants:
 *  1. Bytes are right whatever is full; what could not be written is counted.
 *  2. A cache that has its slab starts on a full file system, too; one that cannot have it is
 *     refused in words.
 *  3. Once there is room again everything is kept again, without a restart.
 *
 * Life: one case after the other, each on a file system of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/crash/crash.h"

enum { SLAB_MIB = 128, LARGER_MIB = 160, TINY = 12000, SAMPLE = 400, BIG = 24 };

/* Objects first..first+count-1; *fetched: body bytes from the origin. */
static bool read_some(struct daemon *d, unsigned first, unsigned count, unsigned size,
                      uint64_t *fetched)
{
    struct reader r;
    struct got got;
    struct origin_stats before, after;
    bool good = reader_make(&r, d->port);

    origin_stats(world.origin, &before);
    for (unsigned i = first; good && i < first + count; i++) {
        struct thing t = {.size = size, .version = 1, .lock = PTHREAD_MUTEX_INITIALIZER};
        struct ask a = {.thing = &t, .bucket = "full"};
        snprintf(t.key, sizeof t.key, "%u@%u", i, size);
        enum outcome out = reader_ask(&r, &a, &got);
        good = out == OUT_WHOLE;
        if (!good)
            tell("%s: outcome %d, status %u %s", t.key, out, got.status, r.why);
    }
    reader_end(&r);
    origin_stats(world.origin, &after);
    *fetched = after.body_bytes - before.body_bytes;
    return good;
}

static struct daemon make_daemon(const char *name, const char *dir)
{
    struct daemon d = {.dirs = 1, .workers = 1, .slab_mib = SLAB_MIB, .memory_mib = 64,
                       .ttl_ms = 3600000};
    char home[PATH_BYTES];

    snprintf(home, sizeof home, "%.150s/%s", world.root, name);
    snprintf(d.dir[0], sizeof d.dir[0], "%s", dir);
    must(daemon_make(&d, home));
    return d;
}

static bool mount_tmpfs(const char *at, const char *options)
{
    return (mkdir(at, 0700) == 0 || errno == EEXIST) &&
        mount("tmpfs", at, "tmpfs", 0, options) == 0;
}

/* ---- the index ---- */
static void restart_on_full(struct daemon *d)
{
    uint64_t fetched;

    verdict(daemon_end(d, SIGTERM), "full index: ends properly (%s)", daemon_ending());
    bool good = daemon_start(d) == START_READY;
    verdict(good, "full index: starts (%s)", daemon_ending());
    if (!good) {
        daemon_show_log(d);
        return;
    }
    verdict(read_some(d, 0, SAMPLE, 600, &fetched), "full index: right after the start");
    verdict(fetched < SAMPLE * 600 / 10, "full index: what was committed is there (%llu fetched)",
            (unsigned long long)fetched);
    verdict(read_some(d, 2 * TINY, TINY, 600, &fetched), "full index: right, and still serving");
}

/* A bit of the records of that object, wherever they stand; false: there is none. */
static bool spoil_records(const struct daemon *d, const char *object)
{
    char path[PATH_BYTES * 2];
    struct stat st;

    snprintf(path, sizeof path, "%s/index/data.mdb", d->dir[0]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return false;
    size_t len = (size_t)st.st_size, text = strlen(object);
    char *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    bool found = false;
    close(fd);
    if (map == MAP_FAILED)
        return false;
    for (char *at = map; (at = memmem(at, len - (size_t)(at - map), object, text)); found = true)
        *at ^= 1;
    munmap(map, len);
    return found;
}

/* Nothing can be deleted, in so many starts that a damaged index would be moved aside. */
static void wrong_records_on_full(struct daemon *d)
{
    uint64_t fetched = 0;
    bool kept = true;

    bool good = daemon_end(d, SIGTERM) && spoil_records(d, "full5@600");
    for (unsigned i = 0; good && i < 4; i++) {
        d->under = i < 3 ? "fdatasync:error=ENOSPC" : NULL;
        good = daemon_start(d) == START_READY && daemon_logged(d, "index record dropped") > 0;
        kept = kept && daemon_logged(d, "index moved aside") == 0;
        if (good && i < 3)
            daemon_end(d, SIGKILL);
    }
    d->under = NULL;
    verdict(good, "full index: starts with wrong records (%s)", daemon_ending());
    if (!good)
        daemon_show_log(d);
    good = good && read_some(d, 0, SAMPLE, 600, &fetched);
    verdict(good && kept && fetched == 600, "full index: only they are lost (%llu fetched)",
            (unsigned long long)fetched);
}

static void full_index(void)
{
    char at[PATH_BYTES + 16], options[80];
    uint64_t fetched;

    snprintf(at, sizeof at, "%s/index-full", world.root);
    snprintf(options, sizeof options, "size=%uk,mode=0700", SLAB_MIB * 1024 + 2500);
    if (!mount_tmpfs(at, options)) {
        verdict(false, "no tmpfs");
        return;
    }
    struct daemon d = make_daemon("full-index", at);
    if (daemon_start(&d) != START_READY) {
        verdict(false, "full index: no first start");
        daemon_show_log(&d);
        return;
    }
    verdict(read_some(&d, 0, TINY, 600, &fetched), "full index: every byte is right");
    verdict(daemon_metric(&d, "headpond_index_errors_total", "") > 0 &&
                daemon_logged(&d, "index commit failed") == 1,
            "full index: failed commits are counted, and told once");
    restart_on_full(&d);
    /* Room again. */
    snprintf(options, sizeof options, "size=%uk,mode=0700", SLAB_MIB * 1024 + 60000);
    bool grown = mount("tmpfs", at, "tmpfs", MS_REMOUNT, options) == 0;
    verdict(grown && daemon_settles(&d), "full index: commits go on once there is room");
    daemon_end(&d, SIGKILL);
    bool good = daemon_start(&d) == START_READY &&
        read_some(&d, 2 * TINY, SAMPLE, 600, &fetched);
    verdict(good && fetched == 0, "full index: what was committed late is there (%llu fetched)",
            (unsigned long long)fetched);
    if (good)
        wrong_records_on_full(&d);
    daemon_end(&d, SIGKILL);
    umount2(at, MNT_DETACH);
}

/* All that is free goes to a file beside the cache. */
static bool make_ballast(const char *path)
{
    static char block[MIB];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ssize_t n = 1;

    for (size_t len = sizeof block; fd >= 0 && len >= 1024; len = n > 0 ? len : len / 2)
        n = write(fd, block, len);
    return fd >= 0 && close(fd) == 0;
}

/* ---- starts without a free block ---- */
struct greedy {                      /* a neighbour that takes each block that is given back */
    pthread_t thread;
    char path[PATH_BYTES * 2];
    _Atomic bool over;
};

static void *take_all(void *arg)
{
    static const char block[4 * KIB];
    struct greedy *g = arg;
    int fd = open(g->path, O_WRONLY | O_APPEND | O_CLOEXEC);

    while (fd >= 0 && !atomic_load(&g->over))
        if (write(fd, block, sizeof block) <= 0)
            poll(NULL, 0, 1);
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* So often that an index over which starts fail would be moved aside. */
static bool starts_beside(struct daemon *d, struct greedy *g)
{
    bool good = pthread_create(&g->thread, NULL, take_all, g) == 0;

    must(good);
    for (unsigned i = 0; good && i < 4; i++) {
        good = daemon_start(d) == START_READY && daemon_logged(d, "index moved aside") == 0;
        if (good && i < 3)
            daemon_end(d, SIGKILL);
    }
    atomic_store(&g->over, true);
    pthread_join(g->thread, NULL);
    return good;
}

/* As one does whose file system is full; its header has no block to be written to before that. */
static void smaller_slab(struct daemon *d, const char *ballast)
{
    char slab[PATH_BYTES * 2];
    struct stat st = {0};
    uint64_t fetched;

    d->slab_mib = SLAB_MIB;
    bool good = daemon_configure(d) && daemon_end(d, SIGTERM) && make_ballast(ballast);
    good = good && daemon_start(d) == START_READY;
    verdict(good, "no block left: starts with a smaller slab (%s)", daemon_ending());
    if (!good)
        daemon_show_log(d);
    snprintf(slab, sizeof slab, "%s/slab", d->dir[0]);
    verdict(good && stat(slab, &st) == 0 && st.st_size == SLAB_MIB * (off_t)MIB,
            "no block left: it is cut");
    good = good && read_some(d, 0, 2 * SAMPLE, 600, &fetched) && daemon_end(d, SIGKILL) &&
        daemon_start(d) == START_READY && daemon_logged(d, "cache.size has changed") == 0;
    verdict(good && read_some(d, 0, 2 * SAMPLE, 600, &fetched),
            "no block left: its size is known to the next start");
}

static void no_block_left(void)
{
    char at[PATH_BYTES + 16], options[80];
    struct greedy g = {.over = false};
    uint64_t fetched = 0;

    snprintf(at, sizeof at, "%s/no-block", world.root);
    snprintf(g.path, sizeof g.path, "%s/ballast", at);
    snprintf(options, sizeof options, "size=%uk,mode=0700", LARGER_MIB * 1024 + 20000);
    if (!mount_tmpfs(at, options)) {
        verdict(false, "no tmpfs");
        return;
    }
    snprintf(at + strlen(at), sizeof at - strlen(at), "/cache");
    struct daemon d = make_daemon("no-block-home", at);
    d.slab_mib = LARGER_MIB;
    must(daemon_configure(&d));
    *strrchr(at, '/') = '\0';
    bool good = daemon_start(&d) == START_READY && read_some(&d, 0, SAMPLE, 600, &fetched) &&
        daemon_settles(&d) && daemon_end(&d, SIGTERM) && make_ballast(g.path);
    verdict(good, "no block left: is prepared");
    good = good && starts_beside(&d, &g);
    verdict(good, "no block left: starts beside one that takes each (%s)", daemon_ending());
    if (!good)
        daemon_show_log(&d);
    good = good && read_some(&d, 0, SAMPLE, 600, &fetched);
    verdict(good && fetched == 0, "no block left: all is there (%llu fetched)",
            (unsigned long long)fetched);
    if (good)
        smaller_slab(&d, g.path);
    if (d.pid)
        daemon_end(&d, SIGKILL);
    umount2(at, MNT_DETACH);
}

/* ---- the slab ---- */
static void no_room_for_slab(const char *options, const char *words)
{
    char at[PATH_BYTES + 16];

    snprintf(at, sizeof at, "%s/no-room", world.root);
    if (!mount_tmpfs(at, options)) {
        verdict(false, "no tmpfs");
        return;
    }
    struct daemon d = make_daemon("no-room-home", at);
    enum start start = daemon_start(&d);
    verdict(start == START_REFUSED && daemon_logged(&d, words) > 0, "%s: refused in words (%d)",
            options, start);
    if (start != START_REFUSED)
        daemon_show_log(&d);
    if (d.pid)
        daemon_end(&d, SIGKILL);
    umount2(at, MNT_DETACH);
}

/* Without extents there is no fallocate: the slab has holes, and writes meet the full disk. */
static void full_slab(void)
{
    struct volume v = {0};
    char home[PATH_BYTES], dir[PATH_BYTES * 2], ballast[PATH_BYTES * 2];
    uint64_t fetched;

    snprintf(home, sizeof home, "%.150s/slab-full", world.root);
    if (mkdir(home, 0700) != 0 || !volume_make(&v, home, 200, "^extent,^64bit") ||
        !volume_mount(&v)) {
        verdict(false, "full slab: no volume");
        return;
    }
    snprintf(dir, sizeof dir, "%s/cache", v.at);
    snprintf(ballast, sizeof ballast, "%s/ballast", v.at);
    struct daemon d = make_daemon("full-slab", dir);
    if (daemon_start(&d) != START_READY || !read_some(&d, 0, 2, MIB, &fetched) ||
        !daemon_settles(&d) || !make_ballast(ballast)) {
        verdict(false, "full slab: cannot be prepared");
        daemon_show_log(&d);
        return;
    }
    verdict(read_some(&d, 2, BIG, MIB, &fetched), "full slab: every byte is right");
    verdict(daemon_metric(&d, "headpond_disk_errors_total", "op=\"write\"") > 0,
            "full slab: failed writes are counted");
    verdict(read_some(&d, 0, 2 + BIG, MIB, &fetched), "full slab: right again");
    unlink(ballast);
    verdict(read_some(&d, 100, BIG, MIB, &fetched) && daemon_settles(&d),
            "full slab: goes on once there is room");
    daemon_end(&d, SIGKILL);
    bool good = daemon_start(&d) == START_READY && read_some(&d, 100, BIG, MIB, &fetched);
    verdict(good && fetched == 0, "full slab: what came then is kept (%llu fetched)",
            (unsigned long long)fetched);
    daemon_end(&d, SIGKILL);
    verdict(volume_unmount(&v), "full slab: unmounts");
}

void part_full(void)
{
    full_index();
    no_block_left();
    no_room_for_slab("size=100m,mode=0700", "not enough room");
    no_room_for_slab("size=300m,nr_inodes=4,mode=0700", "No space left");
    full_slab();
}
