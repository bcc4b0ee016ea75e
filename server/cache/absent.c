/* A directory that cannot be used when the server starts: its disk fails or hangs, or is not
 * mounted. The server starts without it, and takes it in when it is there.
 *
 * Invariants:
 *  1. Nothing is asked of a disk at the start before a child has seen it answer: a system call on
 *     one that hangs does not return. All are asked at the same time.
 *  2. No directory is made where a file system is missing: that would fill the disk below. Each
 *     directory keeps a list of all directories and their mounts; at least one of the others must
 *     be there to tell. Behind the start none is made where that is not known.
 *  3. What it holds is doubtful when it joins, in RAM and for further starts: it may have missed
 *     anything. That stands on its disk before the session's number does.
 *  4. Until it has joined nobody reads of it but its state: its slab, slots and residents are made
 *     here, before it is up for the first time.
 *  5. `mount` does not change behind the start.
 *
 * Life: probed by main before any thread exists; directory_join() is called by the directory's
 * thread until it succeeds.
 * Failure: tried again; what only a restart can use (another cache's secret) says so.
 * Limits: with no directory at the start, what any of them holds is named by ids that this process
 * does not know: then a restart is needed, and finds it doubtful. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/inside.h"

enum {
    PROBE_MS = 5000,                 /* for all of them */
    PROBE_BYTES = 4 * KIB,
    LIST_BYTES = 64 * KIB,           /* of all paths and mounts */
    /* so many times cache.disk_timeout for an index to be opened */
    JOIN_TRIES = 10,
};

/* ---- the probe ---- */
static enum disk_cause read_some(int dir, const char *name)
{
    static _Alignas(PROBE_BYTES) uint8_t page[PROBE_BYTES];
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_DIRECT);

    if (fd < 0 && errno == EINVAL)
        fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool bad = fd < 0 ? errno != ENOENT && errno != ELOOP && errno != EACCES
                      : pread(fd, page, sizeof page, 0) < 0;
    return bad ? disk_cause_of(errno) : DISK_SOUND;
}

/* Only where a cache directory stands: elsewhere nothing is written before it is judged. */
static enum disk_cause write_some(int dir)
{
    static const uint8_t page[PROBE_BYTES];

    if (faccessat(dir, "headpond.id", F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return DISK_SOUND;
    int fd = openat(dir, "probe", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool bad = fd < 0 || pwrite(fd, page, sizeof page, 0) < 0 || fdatasync(fd) != 0;
    /* Room is not needed to serve; who owns what is judged in words. */
    bool ours = errno != ENOSPC && errno != EDQUOT && errno != EACCES && errno != ELOOP;
    return bad && ours ? disk_cause_of(errno) : DISK_SOUND;
}

static enum disk_cause probe(const char *path)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool ours = errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != EACCES;

    if (dir < 0)                     /* it is made, or refused in words */
        return ours ? disk_cause_of(errno) : DISK_SOUND;
    enum disk_cause found = read_some(dir, "headpond.id");
    if (found == DISK_SOUND)
        found = read_some(dir, "slab");
    return found == DISK_SOUND ? write_some(dir) : found;
}

struct probing {                     /* a child at work */
    pid_t pid;                       /* -1: none could be made, as good as without */
    int fd;
};

static struct probing begin_probe(const struct directory *d)
{
    pid_t parent = getpid();
    struct probing p = {.pid = fork(), .fd = -1};

    if (p.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() == parent ? (int)probe(d->path) : 0);
    }
    if (p.pid > 0)
        p.fd = (int)syscall(SYS_pidfd_open, p.pid, 0);
    return p;
}

static enum disk_cause end_probe(const struct probing *p, uint64_t until_ms)
{
    struct pollfd end = {.fd = p->fd, .events = POLLIN};
    uint64_t now_ms = clock_ms();
    int status = 0, ready;

    if (p->pid < 0)
        return DISK_SOUND;
    do
        ready = p->fd >= 0 ? poll(&end, 1, (int)(until_ms - min_u64(now_ms, until_ms))) : 1;
    while (ready < 0 && errno == EINTR);
    if (ready == 0)
        kill(p->pid, SIGKILL);       /* which it may hear long after our own end */
    while (waitpid(p->pid, &status, ready == 0 ? WNOHANG : 0) < 0 && errno == EINTR)
        ;
    if (p->fd >= 0)
        close(p->fd);
    if (ready == 0)
        return DISK_FROZEN;
    return WIFEXITED(status) ? (enum disk_cause)WEXITSTATUS(status) : DISK_TEST;
}

void directory_probe_all(struct cache *c)
{
    struct probing p[CACHE_DIRS_MAX];
    uint64_t until_ms = clock_ms() + PROBE_MS;

    for (unsigned i = 0; i < c->dir_count; i++)
        p[i] = begin_probe(&c->dir[i]);
    for (unsigned i = 0; i < c->dir_count; i++) {
        enum disk_cause found = end_probe(&p[i], until_ms);
        if (found != DISK_SOUND)
            directory_leave_out(&c->dir[i], found);
    }
}

void directory_leave_out(struct directory *d, enum disk_cause cause)
{
    directory_shut(d);
    d->header = (struct header_record){0};
    atomic_store(&d->absent, true);
    disk_leave_out(d, cause);
}

bool directory_disk_failed(const struct directory *d, enum err err)
{
    static const int failures[] = {EIO, EROFS, ENOTCONN, ESTALE, ENXIO, ENODEV, EUCLEAN, ETIMEDOUT,
                                   EREMOTEIO};
    bool disk = false;

    for (unsigned i = 0; i < ARRAY_COUNT(failures); i++)
        disk = disk || d->failed == failures[i];
    return disk && (err == ERR_DISK || err == ERR_SYSTEM);
}

/* ---- where they are mounted ---- */
/* Lines of "MOUNT<tab>PATH". */
static bool is_mount(const char *path)
{
    struct statx st;

    return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &st) == 0 &&
        st.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

static void find_mount(const char *path, char out[LIST_BYTES])
{
    snprintf(out, LIST_BYTES, "%s", path);
    while (!is_mount(out)) {
        char *last = strrchr(out, '/');
        if (!last || last == out)
            break;
        *last = '\0';
    }
    if (!is_mount(out))
        snprintf(out, LIST_BYTES, "/");
}

bool directory_is_unmounted(const struct directory *d)
{
    return d->mount && strcmp(d->mount, "/") != 0 && !is_mount(d->mount);
}

static void take_mount(struct cache *c, struct span mount, struct span path)
{
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        if (d->mount || !span_is(path, d->path) || mount.len == 0)
            continue;
        d->mount = mem_take(mount.len + 1);
        if (d->mount)
            memcpy(d->mount, mount.at, mount.len);
    }
}

void directory_read_mounts(struct directory *d)
{
    char *text = mem_take(LIST_BYTES);
    int fd = openat(d->fd, "mounts", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t got = text && fd >= 0 ? read(fd, text, LIST_BYTES) : -1;
    struct span left = span_make(text, got > 0 ? (size_t)got : 0);

    while (left.len > 0) {
        struct span line = span_cut(&left, '\n');
        struct span mount = span_cut(&line, '\t');
        take_mount(d->cache, mount, line);
    }
    if (fd >= 0)
        close(fd);
    mem_give(text);
}

/* Where it is now; of one that is absent, where it was. */
static void note_mount(struct directory *d)
{
    char *room = mem_take(LIST_BYTES);

    if (!room)
        return;
    find_mount(d->path, room);
    mem_give(d->mount);
    d->mount = mem_take(strlen(room) + 1);
    if (d->mount)
        memcpy(d->mount, room, strlen(room));
    mem_give(room);
}

/* Without one a missing mount is not noticed, no more. */
static void write_list(const struct directory *d, const char *text, size_t len)
{
    int fd = openat(d->fd, "mounts.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                    0600);
    bool good = fd >= 0 && write(fd, text, len) == (ssize_t)len && fdatasync(fd) == 0;

    if (fd >= 0)
        close(fd);
    if (good)
        (void)renameat(d->fd, "mounts.new", d->fd, "mounts");
}

void directory_write_mounts(struct cache *c)
{
    char *room = mem_take(LIST_BYTES);
    size_t len = 0;

    for (unsigned i = 0; i < c->dir_count; i++)
        if (!directory_is_absent(&c->dir[i]))
            note_mount(&c->dir[i]);
    for (unsigned i = 0; i < c->dir_count && room && len < LIST_BYTES; i++)
        if (c->dir[i].mount)
            len += (size_t)snprintf(room + len, LIST_BYTES - len, "%s\t%s\n", c->dir[i].mount,
                                    c->dir[i].path);
    for (unsigned i = 0; i < c->dir_count && room && len < LIST_BYTES; i++)
        if (!directory_is_absent(&c->dir[i]))
            write_list(&c->dir[i], room, len);
    mem_give(room);
}

/* ---- joining ---- */
uint64_t directory_member(const struct directory *d)
{
    uint64_t id;

    memcpy(&id, d->header.directory_id, sizeof id);
    return id;
}

bool directory_has_header(const struct directory *d)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/headpond.id", d->path);
    return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Once for each cause. */
static enum disk_cause refuse(struct directory *d, enum disk_cause cause, const char *why)
{
    if (why[0] && d->refused != cause)
        log_event(EVENT_DISK_REFUSED, "disk=%s why=%s", log_value(span_of(d->path)),
                  log_value(span_of(why)));
    d->refused = cause;
    return cause;
}

/* Its files; nothing of it is known to others yet. */
static enum err open_files(struct directory *d, char why[512])
{
    TRY(directory_open(d, why));
    if (d->fresh && (!d->mount || directory_is_unmounted(d))) {
        d->failed = ENOENT;          /* it has gone since its header was seen */
        return ERR_DISK;
    }
    if (!d->fresh && memcmp(d->header.secret, d->cache->secret, sizeof d->header.secret) != 0) {
        /* Writes that it should know of may pass by here. */
        (void)directory_distrust(d);
        snprintf(why, 512, "%s belongs to another cache than the one that is in use: "
                 "restart headpond to use it, or empty it", d->path);
        return ERR_FOREIGN;
    }
    return directory_prepare(d, why);
}

static enum err make_parts(struct directory *d)
{
    d->space = space_make(d->header.slab_bytes, d->number);
    if (!d->space)
        return ERR_MEMORY;
    enum err err = residents_extend(&d->residents,
                                    (uint32_t)(d->header.slab_bytes / SPACE_PAGE_BYTES));
    if (err != OK) {
        space_free(d->space);
        d->space = NULL;
    }
    return err;
}

/* Then all that can fail is done. ERR_CHANGED: it is there, but its index is of no use. */
static enum err take_index(struct directory *d, char why[512])
{
    if (directory_start_failed_often(d) && directory_move_index(d, "starts") != OK)
        return ERR_DISK;
    directory_risk_begin(d);
    enum err err = ERR_BUSY;
    for (unsigned i = 0; i < JOIN_TRIES && err == ERR_BUSY && !disk_is_stopping(d); i++)
        err = journal_obey(d->journal, JOURNAL_JOIN);
    if (err != OK && err != ERR_CHANGED)
        directory_risk_end(d);
    if (err == ERR_NEWER)
        snprintf(why, 512, "%s/index was written by a newer version: use that version, or another "
                 "directory", d->path);
    if (err != OK && err != ERR_CHANGED)
        return err;
    enum err made = make_parts(d);
    return made == OK ? err : made;
}

/* From here on it is as any other: an index that cannot be used is written anew (return.c). */
static void begin_use(struct directory *d, bool sound)
{
    struct cache *c = d->cache;

    /* All know of it, durably, before it can hold what the others do not. */
    atomic_fetch_xor(&c->members, directory_member(d));
    journal_fall_behind(d->journal);
    if (sound) {
        journal_found(d->journal);
        state_untold(d);
        join_index(d);
    } else {
        journal_lose(d->journal, "it cannot be read");
    }
    directory_trim_slab(d);
    directory_started(d);
    atomic_store(&d->absent, false);
}

static enum disk_cause cause_of(const struct directory *d, enum err err)
{
    bool others = err == ERR_NEWER || err == ERR_FOREIGN || err == ERR_DENIED || err == ERR_LOCKED;

    if (d->failed)
        return disk_cause_of(d->failed);
    return others || err == ERR_FULL ? DISK_OTHER : DISK_TEST;
}

enum disk_cause directory_join(struct directory *d)
{
    char why[512] = "";

    if (d->left && journal_obey(d->journal, JOURNAL_LEAVE) != OK)
        return refuse(d, DISK_FROZEN, why);
    d->left = false;
    if (directory_is_unmounted(d))
        return refuse(d, DISK_MISSING, why);
    if (!d->mount && !directory_has_header(d))
        return refuse(d, disk_cause_of(errno), why);
    enum err err = open_files(d, why);
    if (err == OK)
        err = take_index(d, why);
    if (err == OK || err == ERR_CHANGED) {
        begin_use(d, err == OK);
        return DISK_SOUND;
    }
    enum disk_cause cause = cause_of(d, err);
    /* Also by a writer that obeys when nobody waits any more. */
    d->left = journal_obey(d->journal, JOURNAL_LEAVE) != OK;
    directory_shut(d);
    return refuse(d, cause, why);
}
