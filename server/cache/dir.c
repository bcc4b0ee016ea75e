/* The files of one cache directory: its lock, its header, its slab; the index beside them as a
 * whole.
 *
 *   lock          held exclusively for the life of the process, as is the directory itself
 *   starts        as long as the number of starts in a row that died or failed over the index, and
 *                 longer by STARTS_DISTRUSTED if the records are to be doubted
 *   headpond.id   header record: format, secret, directory id, slab size
 *   slab          the bytes, allocated once
 *   mounts        where the file systems of all directories are mounted (absent.c)
 *   index/        LMDB
 *
 * Invariants:
 *  1. Nothing is opened through a symbolic link, nothing that is not ours or that others may touch
 *     is used: the owner is our user, the mode 0700.
 *  2. A directory with files but without a header is not taken over: it may be anything.
 *  3. The slab changes its size at starts only, when cache.size did. A record of what is cut off
 *     names a place that is not there, and is dropped with the first load.
 *  4. A header that is damaged costs the contents (its secret made the ids), never a start.
 *
 * Life: directory_open() (lock, header), then directory_prepare() once the secret is known,
 * directory_close() at the end.
 * Failure: each refusal names the path, the cause and what to do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/inside.h"

enum {
    WHY_BYTES = 512, PAGES_MIN = 16, DAMAGED_KEPT = 3,
    STARTS_FAILED_MAX = 2,
    STARTS_DISTRUSTED = 16,          /* a length needs no room: it can be set on a full disk */
    /* a child of a killed server holds it until it has died, too */
    LOCK_WAIT_MS = 500,
    LOCK_EVERY_MS = 5,
    LMDB_LOCK_BYTES = 8 * KIB,       /* as LMDB makes its lock file, for 126 readers */
    LMDB_LOCK_USED = 4 * KIB,        /* by its head, and more of them than we have */
};

static enum err refuse(char why[WHY_BYTES], enum err err, const struct directory *d,
                       const char *what)
{
    snprintf(why, WHY_BYTES, "%s: %s", d->path, what);
    return err;
}

static enum err refuse_errno(char why[WHY_BYTES], enum err err, struct directory *d,
                             const char *what)
{
    d->failed = errno;
    snprintf(why, WHY_BYTES, "%s: %s: %s", d->path, what, strerrordesc_np(d->failed));
    return err;
}

/* ---- the directory itself ---- */
static enum err check_owner(struct directory *d, int fd, const char *name,
                            char why[WHY_BYTES])
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return refuse_errno(why, ERR_SYSTEM, d, name);
    if (st.st_uid != geteuid()) {
        snprintf(why, WHY_BYTES,
                 "%s%s belongs to user %u, the server runs as %u: chown -R %u '%s'", d->path, name,
                 (unsigned)st.st_uid, (unsigned)geteuid(), (unsigned)geteuid(), d->path);
        return ERR_DENIED;
    }
    if ((st.st_mode & 077) != 0) {
        snprintf(why, WHY_BYTES, "%s%s is open to other users (mode %03o): chmod go= '%s%s'",
                 d->path, name,
                 st.st_mode & 0777, d->path, name);
        return ERR_DENIED;
    }
    return OK;
}

static enum err open_path(struct directory *d, char why[WHY_BYTES])
{
    bool made = !directory_is_absent(d) || d->mount; /* else it may be a disk that has just gone */

    if (made && mkdir(d->path, 0700) != 0 && errno != EEXIST)
        return refuse_errno(why, ERR_SYSTEM, d, "cannot make the cache directory");
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d->fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return refuse(why, ERR_DENIED, d,
                      "not a directory, or a symbolic link: name the directory itself");
    if (d->fd < 0)
        return refuse_errno(why, ERR_SYSTEM, d, "cannot open the cache directory");
    return check_owner(d, d->fd, "", why);
}

static enum err take_lock(struct directory *d, char why[WHY_BYTES])
{
    d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (d->lock_fd < 0)
        return refuse_errno(why, ERR_SYSTEM, d, "cannot open lock");
    /* The directory as well: somebody may have removed the file. */
    uint64_t until_ms = clock_ms() + LOCK_WAIT_MS;
    bool locked;
    while (!(locked = flock(d->lock_fd, LOCK_EX | LOCK_NB) == 0 &&
                      flock(d->fd, LOCK_EX | LOCK_NB) == 0) &&
           errno == EWOULDBLOCK && clock_ms() < until_ms)
        poll(NULL, 0, LOCK_EVERY_MS);
    if (locked)
        return OK;
    if (errno != EWOULDBLOCK)
        return refuse_errno(why, ERR_SYSTEM, d, "cannot lock");
    return refuse(why, ERR_LOCKED, d,
                  "another server uses this cache directory: stop it, or give this one its own");
}

/* What may stand in a directory that we never used. */
static bool harmless(const char *name)
{
    static const char *const known[] = {".", "..", "lock", "lost+found", "headpond.id.new",
        "admin.sock", "starts", "probe", "mounts.new"};

    for (unsigned i = 0; i < ARRAY_COUNT(known); i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return false;
}

static enum err check_empty(struct directory *d, char why[WHY_BYTES])
{
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    char alien[256] = "";

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return refuse_errno(why, ERR_SYSTEM, d, "cannot list the cache directory");
    }
    for (struct dirent *e; alien[0] == '\0' && (e = readdir(dir)) != NULL;)
        if (!harmless(e->d_name))
            snprintf(alien, sizeof alien, "%s", e->d_name);
    closedir(dir);
    if (alien[0] == '\0')
        return OK;
    snprintf(why, WHY_BYTES,
             "%s is no cache directory, but not empty either (it holds %s): "
             "name an empty or a new one",
             d->path, log_value(span_of(alien)));
    return ERR_FOREIGN;
}

/* ---- the header ---- */
static enum err write_header(struct directory *d, char why[WHY_BYTES])
{
    uint8_t bytes[RECORD_HEADER_BYTES];
    int fd = openat(d->fd, "headpond.id.new",
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    must(record_header_write(&d->header, bytes, sizeof bytes) == sizeof bytes);
    if (fd < 0)
        return refuse_errno(why, ERR_DISK, d, "cannot write headpond.id");
    bool good = write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes && fsync(fd) == 0;
    good &= close(fd) == 0;
    if (!good || renameat(d->fd, "headpond.id.new", d->fd, "headpond.id") != 0 || fsync(d->fd) != 0)
        return refuse_errno(why, ERR_DISK, d, "cannot write headpond.id");
    return OK;
}

static enum err read_header(struct directory *d, char why[WHY_BYTES])
{
    uint8_t bytes[RECORD_HEADER_BYTES + 1];
    int fd = openat(d->fd, "headpond.id", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT) {
        d->fresh = true;
        return check_empty(d, why);
    }
    if (fd < 0)
        return refuse_errno(why, ERR_DISK, d, "cannot open headpond.id");
    enum err err = check_owner(d, fd, "/headpond.id", why);
    ssize_t got = err == OK ? read(fd, bytes, sizeof bytes) : 0;
    close(fd);
    TRY(err);
    if (got < 0)
        return refuse_errno(why, ERR_DISK, d, "cannot read headpond.id");
    err = record_header_read(span_make(bytes, (size_t)got), &d->header);
    if (err == ERR_NEWER)
        return refuse(why, err, d, "was written by a newer version: use that version, "
                      "or name another directory");
    if (err == OK)
        return OK;
    d->fresh = true;
    return directory_move_index(d, err == ERR_OLDER ? "format" : "header");
}

/* ---- starts that fail over the index ---- */
static enum err open_starts(struct directory *d, char why[WHY_BYTES])
{
    struct stat st;

    d->starts_fd = openat(d->fd, "starts", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (d->starts_fd < 0 || fstat(d->starts_fd, &st) != 0)
        return refuse_errno(why, ERR_DISK, d, "cannot open starts");
    d->distrusted = st.st_size >= STARTS_DISTRUSTED;
    d->failed_starts =
        (unsigned)min_u64((uint64_t)st.st_size % STARTS_DISTRUSTED, STARTS_FAILED_MAX);
    return OK;
}

/* If a count cannot be kept, a start that fails is not counted; nothing else depends on it. Lock
 * held: main and the writer of the index both write here. */
static bool keep_starts(struct directory *d, unsigned count)
{
    if (d->condemned)
        count = STARTS_FAILED_MAX;
    return ftruncate(d->starts_fd, (off_t)count + (d->distrusted ? STARTS_DISTRUSTED : 0)) == 0;
}

static bool count_start(struct directory *d, unsigned failed, unsigned count)
{
    pthread_mutex_lock(&d->starts_lock);
    d->failed_starts = failed;
    bool kept = keep_starts(d, count);
    pthread_mutex_unlock(&d->starts_lock);
    return kept;
}

void directory_risk_begin(struct directory *d)
{
    (void)count_start(d, d->failed_starts, d->failed_starts + 1);
}

void directory_risk_end(struct directory *d)
{
    (void)count_start(d, d->failed_starts, d->failed_starts);
}

bool directory_start_failed_often(const struct directory *d)
{
    return d->failed_starts >= STARTS_FAILED_MAX;
}

void directory_started(struct directory *d)
{
    (void)count_start(d, 0, 0);
    (void)fsync(d->starts_fd);       /* a power cut must not bring the count back */
}

bool directory_condemn_index(struct directory *d)
{
    d->condemned = true;
    return count_start(d, STARTS_FAILED_MAX, STARTS_FAILED_MAX) && fsync(d->starts_fd) == 0;
}

bool directory_distrust(struct directory *d)
{
    if (d->distrusted)
        return true;
    pthread_mutex_lock(&d->starts_lock);
    d->distrusted = true;
    bool kept = keep_starts(d, d->failed_starts);
    pthread_mutex_unlock(&d->starts_lock);
    d->distrusted = kept && fsync(d->starts_fd) == 0;
    return d->distrusted;
}

void directory_trust(struct directory *d)
{
    if (!d->distrusted)
        return;
    pthread_mutex_lock(&d->starts_lock);
    d->distrusted = false;           /* should a power cut bring it back, that costs questions */
    keep_starts(d, d->failed_starts);
    pthread_mutex_unlock(&d->starts_lock);
}

void directory_unlock_child(struct cache *c)
{
    for (unsigned i = 0; i < c->dir_count; i++) {
        close(c->dir[i].lock_fd);
        close(c->dir[i].fd);
    }
}

enum err directory_open(struct directory *d, char why[WHY_BYTES])
{
    d->failed = 0;
    d->fresh = false;
    TRY(open_path(d, why));
    TRY(take_lock(d, why));
    TRY(open_starts(d, why));
    return read_header(d, why);
}

/* ---- the slab ---- */
static uint64_t wanted_bytes(const struct config *config, const struct statvfs *fs)
{
    if (config->cache_size.bytes > 0)
        return config->cache_size.bytes;
    double total = (double)fs->f_blocks * (double)fs->f_frsize;

    return (uint64_t)(total * config->cache_size.percent / 100);
}

/* Room for a new slab. A size in percent gives way to what must stay free; a size in bytes is
 * meant. */
static enum err size_slab(struct directory *d, uint64_t own_bytes, uint64_t *out,
                          char why[WHY_BYTES])
{
    const struct config *config = d->cache->config;
    struct statvfs fs;

    if (fstatvfs(d->fd, &fs) != 0)
        return refuse_errno(why, ERR_SYSTEM, d, "cannot ask for the size of the file system");
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize + own_bytes;
    uint64_t usable = free_bytes > config->cache_min_free ? free_bytes - config->cache_min_free : 0;
    uint64_t wanted = wanted_bytes(config, &fs);
    uint64_t bytes = round_down(config->cache_size.bytes > 0 ? wanted : min_u64(wanted, usable),
                                SPACE_PAGE_BYTES);

    if (bytes >= PAGES_MIN * (uint64_t)SPACE_PAGE_BYTES && bytes <= usable) {
        *out = bytes;
        return OK;
    }
    snprintf(why, WHY_BYTES,
             "%s: not enough room: %llu MiB are free, of which cache.min_free keeps %llu MiB; "
             "cache.size asks for %llu MiB (at least %d): "
             "make room, or lower cache.size or cache.min_free",
             d->path, (unsigned long long)(free_bytes / MIB),
             (unsigned long long)(config->cache_min_free / MIB),
             (unsigned long long)(wanted / MIB), PAGES_MIN * SPACE_PAGE_BYTES / MIB);
    return ERR_FULL;
}

/* Those that answer for a device of this machine begin a direct read or write without waiting.
 * Others (FUSE, NFS, clusters) may ask somebody for attributes first, in whoever begins it: a core
 * would stand still with them. */
static bool may_wait(int fd)
{
    static const unsigned long local[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                          F2FS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC};
    struct statfs fs;

    if (fstatfs(fd, &fs) != 0)
        return true;
    for (unsigned i = 0; i < ARRAY_COUNT(local); i++)
        if ((unsigned long)fs.f_type == local[i])
            return false;
    return true;
}

/* Direct I/O where the file system knows it. */
static int open_slab(struct directory *d)
{
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(d->fd, "slab", flags | O_DIRECT, 0600);

    if (fd >= 0 || errno != EINVAL)
        return fd;
    log_event(EVENT_CONFIG, "disk=%s note=%s", log_value(span_of(d->path)),
              log_value(span_of("the file system refuses O_DIRECT: the page cache is used")));
    return openat(d->fd, "slab", flags, 0600);
}

static void note(const struct directory *d, const char *what, uint64_t have, uint64_t asked)
{
    log_event(EVENT_CONFIG, "disk=%s note=%s slab_mib=%llu asked_mib=%llu",
              log_value(span_of(d->path)), log_value(span_of(what)),
              (unsigned long long)(have / MIB), (unsigned long long)(asked / MIB));
}

/* What a slab of `have` bytes is to become. A size in percent is met within 1 %, and what others
 * keep on the file system makes no slab smaller. */
static uint64_t resized(const struct directory *d, uint64_t have)
{
    const struct config *config = d->cache->config;
    bool exact = config->cache_size.bytes > 0;
    struct statvfs fs;

    if (fstatvfs(d->fd, &fs) != 0)
        return have;
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize + have;
    uint64_t usable = room > config->cache_min_free ? room - config->cache_min_free : 0;
    uint64_t wanted = round_down(wanted_bytes(config, &fs), SPACE_PAGE_BYTES);
    if (wanted > have && !exact)
        wanted = max_u64(round_down(min_u64(wanted, usable), SPACE_PAGE_BYTES), have);
    uint64_t apart = wanted > have ? wanted - have : have - wanted;
    if (apart == 0 || (!exact && apart <= have / 100))
        return have;
    if (wanted >= PAGES_MIN * (uint64_t)SPACE_PAGE_BYTES && (wanted < have || wanted <= usable))
        return wanted;
    note(d, "cache.size does not fit here: the slab keeps its size", have, wanted);
    return have;
}

/* Who makes the slab smaller because the file system is full has room for the header only when it
 * was cut. Until then the old one stands, and a start that ends in between is repeated. */
static enum err write_smaller(struct directory *d, uint64_t before, char why[WHY_BYTES])
{
    enum err err = write_header(d, why);

    if (err == OK || (d->failed != ENOSPC && d->failed != EDQUOT))
        return err;
    d->noted_bytes = before;
    d->failed = 0;
    why[0] = '\0';
    return OK;
}

/* Its size, known before it is made; the header is written first, so that a start that ends here
 * can be repeated. A slab that becomes smaller is cut when its index was loaded; one that grows
 * says so when it has the room. */
static enum err plan_slab(struct directory *d, char why[WHY_BYTES])
{
    uint64_t before = d->header.slab_bytes;
    struct stat st = {0};

    if (fstatat(d->fd, "slab", &st, AT_SYMLINK_NOFOLLOW) != 0 && errno != ENOENT)
        return refuse_errno(why, ERR_DISK, d, "cannot look at slab");
    d->slab_made = st.st_size == 0;
    d->grow_to = d->noted_bytes = 0;
    bool anew = d->fresh || d->slab_made || before < SPACE_PAGE_BYTES;
    if (anew) {
        TRY(size_slab(d, (uint64_t)st.st_blocks * 512, &d->header.slab_bytes, why));
    } else {
        uint64_t bytes = resized(d, before);
        if (bytes > before)
            d->grow_to = bytes;
        else
            d->header.slab_bytes = bytes;
        if (bytes != before)
            note(d, "cache.size has changed, and so does the slab", before, bytes);
    }
    if (!anew && d->header.slab_bytes < before)
        return write_smaller(d, before, why);
    return d->fresh || before != d->header.slab_bytes ? write_header(d, why) : OK;
}

static bool allocate(const struct directory *d, uint64_t bytes)
{
    return fallocate(d->slab_fd, 0, 0, (off_t)bytes) == 0 ||
           (errno == EOPNOTSUPP && ftruncate(d->slab_fd, (off_t)bytes) == 0);
}

static enum err grow_slab(struct directory *d, char why[WHY_BYTES])
{
    uint64_t before = d->header.slab_bytes;

    if (d->grow_to == 0)
        return OK;
    if (!allocate(d, d->grow_to)) {
        note(d, "there is no room for the slab to grow", before, d->grow_to);
        return OK;
    }
    d->header.slab_bytes = d->grow_to;
    return write_header(d, why);
}

static enum err make_slab(struct directory *d, char why[WHY_BYTES])
{
    struct stat st;

    d->slab_fd = open_slab(d);
    if (d->slab_fd < 0)
        return refuse_errno(why, ERR_DISK, d, "cannot open slab");
    TRY(check_owner(d, d->slab_fd, "/slab", why));
    d->blocks = may_wait(d->slab_fd);
    if (fstat(d->slab_fd, &st) != 0 || !S_ISREG(st.st_mode))
        return refuse(why, ERR_DISK, d, "slab is no regular file");
    /* Also when it is long enough: a file with holes would meet ENOSPC in the middle of a fill. */
    if (allocate(d, max_u64((uint64_t)st.st_size, d->header.slab_bytes)))
        return grow_slab(d, why);
    enum err err = refuse_errno(why, errno == ENOSPC ? ERR_FULL : ERR_DISK, d,
                                "cannot allocate slab");
    if (d->slab_made)
        unlinkat(d->fd, "slab", 0);  /* the next start may choose another size */
    return err;
}

void directory_trim_slab(struct directory *d)
{
    char why[WHY_BYTES];
    struct stat st;

    if (fstat(d->slab_fd, &st) != 0)
        return;
    bool cut = (uint64_t)st.st_size <= d->header.slab_bytes ||
        ftruncate(d->slab_fd, (off_t)d->header.slab_bytes) == 0;
    if (!cut)                        /* the next start tries again */
        note(d, "the slab cannot be cut", (uint64_t)st.st_size, d->header.slab_bytes);
    if (d->noted_bytes > 0 && write_header(d, why) == OK)
        d->noted_bytes = 0;
    else if (d->noted_bytes > 0)     /* so it does here */
        note(d, "the new size of the slab cannot be noted", d->noted_bytes, d->header.slab_bytes);
}

/* A lock file of LMDB's, empty, but with its room. */
static bool write_lmdb_lock(int dir, const char *name, int flags)
{
    static const uint8_t nothing[LMDB_LOCK_BYTES];
    int fd = openat(dir, name, flags | O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;
    ssize_t n = -1;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
        errno = EINVAL;
    else if (ftruncate(fd, sizeof nothing) == 0)
        n = pwrite(fd, nothing, sizeof nothing, 0);
    int error = n < 0 ? errno : ENOSPC;
    close(fd);
    errno = error;
    return n >= LMDB_LOCK_USED;
}

/* LMDB writes to its lock file by a map: where a block is missing, that is a fault. So the file has
 * its blocks before. A new one, as our own lock says that nobody else is here, and stray bytes
 * could only make us wait for ever; on a full file system the one that is there, whose blocks would
 * be somebody else's once they were given back. */
static enum err prepare_lmdb_lock(struct directory *d, int dir, char why[WHY_BYTES])
{
    unlinkat(dir, "lock.new", 0);
    if (write_lmdb_lock(dir, "lock.new", O_CREAT | O_EXCL) &&
        renameat(dir, "lock.new", dir, "lock.mdb") == 0)
        return OK;
    int error = errno;
    unlinkat(dir, "lock.new", 0);
    if ((error == ENOSPC || error == EDQUOT) && write_lmdb_lock(dir, "lock.mdb", 0))
        return OK;
    errno = error;
    return refuse_errno(why, ERR_DISK, d, "cannot make index/lock.mdb");
}

static enum err prepare_index(struct directory *d, char why[WHY_BYTES])
{
    if (mkdirat(d->fd, "index", 0700) != 0 && errno != EEXIST)
        return refuse_errno(why, ERR_DISK, d, "cannot make index");
    int fd = openat(d->fd, "index", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return refuse_errno(why, ERR_DISK, d, "cannot open index");
    enum err err = check_owner(d, fd, "/index", why);
    if (err == OK)
        err = prepare_lmdb_lock(d, fd, why);
    close(fd);
    return err;
}

enum err directory_prepare(struct directory *d, char why[WHY_BYTES])
{
    if (d->fresh) {
        random_bytes(d->header.directory_id, sizeof d->header.directory_id);
        memcpy(d->header.secret, d->cache->secret, sizeof d->header.secret);
        d->header.format = RECORD_FORMAT;
    }
    TRY(plan_slab(d, why));
    TRY(make_slab(d, why));
    if (!d->fresh && d->slab_made)
        TRY(directory_move_index(d, "slab"));
    return prepare_index(d, why);
}

/* ---- a file system that goes and comes back ---- */
/* Numbers stay, so that nobody can meet a file of others under one of them. */
void directory_let_go(struct directory *d)
{
    const int held[] = {d->slab_fd, d->starts_fd, d->lock_fd, d->fd};
    int nothing = open("/", O_PATH | O_CLOEXEC);

    for (unsigned i = 0; i < ARRAY_COUNT(held) && nothing >= 0; i++)
        if (dup3(nothing, held[i], O_CLOEXEC) < 0)
            note(d, "a file could not be closed", 0, 0);
    if (nothing >= 0)
        close(nothing);
}

static enum err same_header(struct directory *d, int fd, char why[WHY_BYTES])
{
    uint8_t bytes[RECORD_HEADER_BYTES + 1], known[RECORD_HEADER_BYTES];
    struct header_record header = d->header;
    int file = openat(fd, "headpond.id", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (file < 0)
        return refuse_errno(why, errno == ENOENT ? ERR_FOREIGN : ERR_DISK, d,
                            "cannot open headpond.id");
    ssize_t got = read(file, bytes, sizeof bytes);
    close(file);
    if (got < 0)
        return refuse_errno(why, ERR_DISK, d, "cannot read headpond.id");
    if (d->noted_bytes > 0)
        header.slab_bytes = d->noted_bytes;
    must(record_header_write(&header, known, sizeof known) == sizeof known);
    if (got != sizeof known || memcmp(bytes, known, sizeof known) != 0)
        return refuse(why, ERR_FOREIGN, d, "another directory");
    return OK;
}

static enum err open_again(struct directory *d, struct directory *n, char why[WHY_BYTES])
{
    struct stat st;

    n->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (n->fd < 0)
        return refuse_errno(why, ERR_SYSTEM, d, "cannot open the cache directory");
    TRY(check_owner(d, n->fd, "", why));
    TRY(same_header(d, n->fd, why));
    TRY(take_lock(n, why));
    n->starts_fd = openat(n->fd, "starts", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (n->starts_fd < 0)
        return refuse_errno(why, ERR_DISK, d, "cannot open starts");
    n->slab_fd = open_slab(n);
    if (n->slab_fd < 0)
        return refuse_errno(why, ERR_DISK, d, "cannot open slab");
    TRY(check_owner(d, n->slab_fd, "/slab", why));
    if (fstat(n->slab_fd, &st) != 0 || !S_ISREG(st.st_mode))
        return refuse(why, ERR_DISK, d, "slab is no regular file");
    /* One that was cut has its length again: what it lost does not verify. */
    if ((uint64_t)st.st_size < d->header.slab_bytes &&
        ftruncate(n->slab_fd, (off_t)d->header.slab_bytes) != 0)
        return refuse_errno(why, ERR_DISK, d, "slab is not what it was");
    return OK;
}

enum err directory_reopen(struct directory *d, char why[WHY_BYTES])
{
    struct directory n = {.cache = d->cache, .number = d->number, .path = d->path, .fd = -1,
                          .lock_fd = -1, .slab_fd = -1, .starts_fd = -1};
    enum err err = open_again(d, &n, why);
    const int from[] = {n.slab_fd, n.starts_fd, n.lock_fd, n.fd};
    const int to[] = {d->slab_fd, d->starts_fd, d->lock_fd, d->fd};

    d->blocks = err == OK ? may_wait(n.slab_fd) : d->blocks;
    for (unsigned i = 0; i < ARRAY_COUNT(from); i++) {
        if (err == OK && dup3(from[i], to[i], O_CLOEXEC) < 0)
            err = refuse_errno(why, ERR_SYSTEM, d, "cannot take its files");
        if (from[i] >= 0)
            close(from[i]);
    }
    return err;
}

/* ---- a damaged index ---- */
static void remove_index(struct directory *d, const char *name)
{
    static const char *const files[] = {"data.mdb", "lock.mdb", "lock.new"};
    int fd = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    for (unsigned i = 0; i < ARRAY_COUNT(files) && fd >= 0; i++)
        unlinkat(fd, files[i], 0);
    if (fd >= 0)
        close(fd);
    unlinkat(d->fd, name, AT_REMOVEDIR);
}

enum err directory_move_index(struct directory *d, const char *cause)
{
    char name[DAMAGED_KEPT + 1][32];
    unsigned n = 1;

    for (unsigned i = 1; i <= DAMAGED_KEPT; i++)
        snprintf(name[i], sizeof name[i], "index.damaged-%u", i);
    while (n <= DAMAGED_KEPT && faccessat(d->fd, name[n], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        n++;
    if (n > DAMAGED_KEPT) {
        /* The oldest goes, the others move up. */
        remove_index(d, name[1]);
        for (n = 1; n < DAMAGED_KEPT; n++)
            renameat(d->fd, name[n + 1], d->fd, name[n]);
    }
    if (renameat(d->fd, "index", d->fd, name[n]) == 0) {
        atomic_fetch_add(&d->index_moved, 1);
        log_event(EVENT_INDEX_DAMAGED, "disk=%s cause=%s kept=%s", log_value(span_of(d->path)),
                  cause, name[n]);
    } else if (errno != ENOENT) {
        return ERR_DISK;
    }
    directory_started(d);            /* what they failed over is gone */
    if (mkdirat(d->fd, "index", 0700) != 0 && errno != EEXIST)
        return ERR_DISK;
    return fsync(d->fd) == 0 ? OK : ERR_DISK;
}

void directory_shut(struct directory *d)
{
    if (d->slab_fd >= 0)
        close(d->slab_fd);
    if (d->starts_fd >= 0)
        close(d->starts_fd);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    if (d->fd >= 0)
        close(d->fd);
    d->slab_fd = d->starts_fd = d->lock_fd = d->fd = -1;
}

void directory_close(struct directory *d)
{
    directory_shut(d);
    mem_give(d->mount);
    d->mount = NULL;
    pthread_mutex_destroy(&d->starts_lock);
}
