/* A file system for tests: shows a directory, and does to it what failing disks do, as it is told
 * while it runs.
 *
 *   faultfs BACKING MOUNTPOINT SOCKET [ask]
 *
 * With `ask` the kernel asks for a file's attributes before it reads or writes, in whoever begins
 * that, as on a network file system. Stays in the foreground; SIGTERM ends it and unmounts, SIGKILL
 * leaves a mount that answers ENOTCONN. O_DIRECT is passed by the kernel: such reads and writes all
 * come here. Whoever connects
 * to SOCKET sends lines and reads one line for each, "ok", what was asked for, or "error: ...":
 *
 *   fail KIND ERRNO [N]    the next N (default: all) operations of that kind fail. KIND is read,
 *                          write, sync or other; ERRNO is EIO, ENOSPC, EROFS, ENOTCONN
 *   readonly on|off        EROFS for whatever changes something, also through open files
 *   flip N|on|off          one bit of what the next N reads bring is wrong
 *   lose on|off            writes end well, and nothing is written
 *   delay MS               before every operation
 *   freeze | thaw          nothing is answered until then
 *   pull | back            ENOTCONN for everything until then
 *   only WORD              fail, flip, lose and delay strike files only whose path contains it;
 *                          "only" alone: all files
 *   clear                  all of that ends
 *   stats                  read=N write=N sync=N other=N struck=N waiting=N: operations that began,
 *                          those that a fault changed, those that are held up now
 *
 * Invariants:
 *  1. An operation is judged once, when it begins or is thawed; what it does to the backing
 *     directory is all of it or nothing.
 *  2. The socket answers whatever the file system does: it has a thread and a lock of its own.
 *
 * Life: until a signal. Failure: exit 1 with a sentence on standard error. */
/* SPDX-License-Identifier: Apache-2.0 */
#define FUSE_USE_VERSION 35
#include <fuse.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "mem.h"

enum kind { KIND_READ, KIND_WRITE, KIND_SYNC, KIND_OTHER, KINDS };
static const char *const kind_names[KINDS] = {"read", "write", "sync", "other"};

enum { WORD_BYTES = 200, LINE_BYTES = 400, THREADS_MAX = 256, ATTRIBUTES_S = 3600 };

struct faults {
    struct {
        int error;                   /* 0: none */
        uint64_t left;
    } fail[KINDS];
    uint64_t flips;                  /* left */
    unsigned delay_ms;
    bool readonly, lose, frozen, pulled;
    char only[WORD_BYTES];
};

static struct {
    int root;                        /* the backing directory */
    bool ask;
    pthread_mutex_t lock;            /* of all below */
    pthread_cond_t change;
    struct faults now;
    uint64_t begun[KINDS], struck, waiting;
} fs = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

struct open_file {
    int fd;
    char path[];
};

/* ---- the judgement ---- */

/* What is to become of an operation. */
struct verdict {
    int error;                       /* negative, or 0 */
    bool flip, lose;
};

static bool spend(uint64_t *left)
{
    if (*left == 0)
        return false;
    *left -= *left != UINT64_MAX;
    return true;
}

static bool is_meant(const char *path)
{
    return fs.now.only[0] == 0 || strstr(path, fs.now.only);
}

/* The lock is held. */
static struct verdict judge(enum kind kind, const char *path, bool changes)
{
    struct faults *f = &fs.now;
    struct verdict v = {0};
    bool meant = is_meant(path);

    if (f->pulled)
        v.error = -ENOTCONN;
    else if (f->readonly && changes)
        v.error = -EROFS;
    else if (meant && f->fail[kind].error && spend(&f->fail[kind].left))
        v.error = -f->fail[kind].error;
    else if (meant && kind == KIND_READ)
        v.flip = spend(&f->flips);
    else if (meant && kind == KIND_WRITE)
        v.lose = f->lose;
    fs.struck += v.error || v.flip || v.lose;
    return v;
}

/* The disk works for so long. The lock is held, and let go meanwhile. */
static void hold_up(unsigned ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += (time_t)(ms / 1000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_unlock(&fs.lock);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    pthread_mutex_lock(&fs.lock);
}

static struct verdict begin(enum kind kind, const char *path, bool changes)
{
    pthread_mutex_lock(&fs.lock);
    fs.begun[kind]++;
    fs.waiting++;
    while (fs.now.frozen)
        pthread_cond_wait(&fs.change, &fs.lock);
    if (fs.now.delay_ms > 0 && is_meant(path))
        hold_up(fs.now.delay_ms);
    fs.waiting--;
    struct verdict v = judge(kind, path, changes);
    pthread_mutex_unlock(&fs.lock);
    return v;
}

static int other(const char *path, bool changes)
{
    return begin(KIND_OTHER, path, changes).error;
}

/* ---- paths ---- */

static const char *below(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static int result(int r)
{
    return r < 0 ? -errno : r;
}

static struct open_file *file_of(const struct fuse_file_info *info)
{
    return (struct open_file *)(uintptr_t)info->fh; /* NOLINT: libfuse keeps a number */
}

static int fs_getattr(const char *path, struct stat *out, struct fuse_file_info *info)
{
    const struct open_file *f = info ? file_of(info) : NULL;
    int error = other(f ? f->path : path, false);

    if (error)
        return error;
    return result(f ? fstat(f->fd, out) : fstatat(fs.root, below(path), out, AT_SYMLINK_NOFOLLOW));
}

static int fs_mkdir(const char *path, mode_t mode)
{
    int error = other(path, true);
    return error ? error : result(mkdirat(fs.root, below(path), mode));
}

static int fs_unlink(const char *path)
{
    int error = other(path, true);
    return error ? error : result(unlinkat(fs.root, below(path), 0));
}

static int fs_rmdir(const char *path)
{
    int error = other(path, true);
    return error ? error : result(unlinkat(fs.root, below(path), AT_REMOVEDIR));
}

static int fs_rename(const char *from, const char *to, unsigned flags)
{
    int error = other(from, true);
    return error ? error : result(renameat2(fs.root, below(from), fs.root, below(to), flags));
}

static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
    int error = other(path ? path : file_of(info)->path, true);

    if (error)
        return error;
    return result(info ? fchmod(file_of(info)->fd, mode)
                       : fchmodat(fs.root, below(path), mode, 0));
}

static int fs_chown(const char *path, uid_t user, gid_t group, struct fuse_file_info *info)
{
    int error = other(path ? path : file_of(info)->path, true);

    if (error)
        return error;
    return result(info ? fchown(file_of(info)->fd, user, group)
                       : fchownat(fs.root, below(path), user, group, AT_SYMLINK_NOFOLLOW));
}

static int fs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info)
{
    int error = other(path ? path : file_of(info)->path, true);

    if (error)
        return error;
    return result(info ? futimens(file_of(info)->fd, times)
                       : utimensat(fs.root, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
    int error = begin(KIND_WRITE, path ? path : file_of(info)->path, true).error;

    if (error)
        return error;
    if (info)
        return result(ftruncate(file_of(info)->fd, size));
    int fd = openat(fs.root, below(path), O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = result(ftruncate(fd, size));
    close(fd);
    return r;
}

static int fs_statfs(const char *path, struct statvfs *out)
{
    int error = other(path ? path : "/", false);
    if (error)
        return error;
    error = result(fstatvfs(fs.root, out));
    pthread_mutex_lock(&fs.lock);
    if (fs.now.readonly)
        out->f_flag |= ST_RDONLY;
    pthread_mutex_unlock(&fs.lock);
    return error;
}

/* ---- open files ---- */

static int open_as(const char *path, int flags, mode_t mode, struct fuse_file_info *info)
{
    size_t len = strlen(path) + 1;
    bool changes = (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
    int error = other(path, changes);

    if (error)
        return error;
    /* Buffers are not aligned here, so O_DIRECT ends here: that the kernel keeps nothing of such a
     * file is what matters. What O_APPEND means was carried out by the kernel. */
    int fd = openat(fs.root, below(path), (flags & ~(O_DIRECT | O_APPEND)) | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    struct open_file *f = mem_take(sizeof *f + len);
    must(f != NULL);
    f->fd = fd;
    memcpy(f->path, path, len);
    info->fh = (uintptr_t)f;
    return 0;
}

static int fs_open(const char *path, struct fuse_file_info *info)
{
    return open_as(path, info->flags, 0, info);
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    return open_as(path, info->flags | O_CREAT, mode, info);
}

static int fs_release(const char *path, struct fuse_file_info *info)
{
    struct open_file *f = file_of(info);
    (void)path;

    close(f->fd);
    mem_give(f);
    return 0;
}

static int fs_read(const char *path, char *buf, size_t len, off_t at, struct fuse_file_info *info)
{
    const struct open_file *f = file_of(info);
    struct verdict v = begin(KIND_READ, f->path, false);
    (void)path;

    if (v.error)
        return v.error;
    int n = result((int)pread(f->fd, buf, len, at));
    if (v.flip && n > 0)
        buf[n / 2] ^= 0x10;
    return n;
}

static int fs_write(const char *path, const char *buf, size_t len, off_t at,
                    struct fuse_file_info *info)
{
    const struct open_file *f = file_of(info);
    struct verdict v = begin(KIND_WRITE, f->path, true);
    (void)path;

    if (v.error)
        return v.error;
    return v.lose ? (int)len : result((int)pwrite(f->fd, buf, len, at));
}

static int fs_fsync(const char *path, int data_only, struct fuse_file_info *info)
{
    const struct open_file *f = file_of(info);
    int error = begin(KIND_SYNC, f->path, true).error;
    (void)path;

    if (error)
        return error;
    return result(data_only ? fdatasync(f->fd) : fsync(f->fd));
}

static int fs_fallocate(const char *path, int mode, off_t at, off_t len,
                        struct fuse_file_info *info)
{
    const struct open_file *f = file_of(info);
    int error = begin(KIND_WRITE, f->path, true).error;
    (void)path;

    return error ? error : result(fallocate(f->fd, mode, at, len));
}

/* ---- directories ---- */

static int fs_opendir(const char *path, struct fuse_file_info *info)
{
    return open_as(path, O_RDONLY | O_DIRECTORY, 0, info);
}

static int fs_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t at,
                      struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    const struct open_file *f = file_of(info);
    int error = other(f->path, false);
    (void)path;
    (void)at;
    (void)flags;

    if (error)
        return error;
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        return -errno;
    for (struct dirent *e; (e = readdir(dir));)
        if (fill(buf, e->d_name, NULL, 0, 0))
            break;
    closedir(dir);
    return 0;
}

static int fs_fsyncdir(const char *path, int data_only, struct fuse_file_info *info)
{
    const struct open_file *f = file_of(info);
    (void)path;
    (void)data_only;

    int error = begin(KIND_SYNC, f->path, true).error;
    return error ? error : result(fsync(f->fd));
}

static void *fs_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
    config->nullpath_ok = 1;
    config->hard_remove = 1;
    conn->max_background = THREADS_MAX; /* a slow disk is not one that does little at a time */
    /* Nobody else changes the backing directory. Else the kernel asks for the attributes before
     * each read, and waits for them in whoever submits it: no disk makes io_uring_enter() wait. */
    if (!fs.ask)
        conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
    config->attr_timeout = config->entry_timeout = fs.ask ? 0 : ATTRIBUTES_S;
    config->negative_timeout = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = fs_init,
    .getattr = fs_getattr,
    .mkdir = fs_mkdir,
    .unlink = fs_unlink,
    .rmdir = fs_rmdir,
    .rename = fs_rename,
    .chmod = fs_chmod,
    .chown = fs_chown,
    .utimens = fs_utimens,
    .truncate = fs_truncate,
    .statfs = fs_statfs,
    .opendir = fs_opendir,
    .readdir = fs_readdir,
    .releasedir = fs_release,
    .fsyncdir = fs_fsyncdir,
    .open = fs_open,
    .create = fs_create,
    .release = fs_release,
    .read = fs_read,
    .write = fs_write,
    .fsync = fs_fsync,
    .fallocate = fs_fallocate,
};

/* ---- what it is told; the lock is held ---- */

static int error_named(const char *name)
{
    static const struct {
        const char *name;
        int error;
    } row[] = {{"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EROFS", EROFS}, {"ENOTCONN", ENOTCONN}};

    for (size_t i = 0; i < ARRAY_COUNT(row); i++)
        if (strcmp(name, row[i].name) == 0)
            return row[i].error;
    return 0;
}

static bool set_fail(const char *kind, const char *error, const char *count)
{
    for (unsigned k = 0; k < KINDS; k++) {
        if (strcmp(kind, kind_names[k]) != 0 || !error_named(error))
            continue;
        fs.now.fail[k].error = error_named(error);
        fs.now.fail[k].left = count[0] ? strtoull(count, NULL, 10) : UINT64_MAX;
        return true;
    }
    return false;
}

static bool set_flips(const char *count)
{
    fs.now.flips = strcmp(count, "on") == 0    ? UINT64_MAX
                   : strcmp(count, "off") == 0 ? 0
                                               : strtoull(count, NULL, 10);
    return count[0] != 0;
}

static bool set_switch(const char *word, const char *value)
{
    static const struct {
        const char *word, *value;
        bool *flag;
        bool on;
    } row[] = {
        {"readonly", "on", &fs.now.readonly, true}, {"readonly", "off", &fs.now.readonly, false},
        {"lose", "on", &fs.now.lose, true},         {"lose", "off", &fs.now.lose, false},
        {"freeze", "", &fs.now.frozen, true},       {"thaw", "", &fs.now.frozen, false},
        {"pull", "", &fs.now.pulled, true},         {"back", "", &fs.now.pulled, false},
    };

    for (size_t i = 0; i < ARRAY_COUNT(row); i++)
        if (strcmp(word, row[i].word) == 0 && strcmp(value, row[i].value) == 0) {
            *row[i].flag = row[i].on;
            return true;
        }
    return false;
}

static bool obey(const char *line)
{
    char word[4][WORD_BYTES] = {"", "", "", ""};
    int words = sscanf(line, "%199s %199s %199s %199s", word[0], word[1], word[2], word[3]);

    if (words < 1)
        return false;
    if (strcmp(word[0], "fail") == 0)
        return set_fail(word[1], word[2], word[3]);
    if (strcmp(word[0], "flip") == 0)
        return set_flips(word[1]);
    if (strcmp(word[0], "delay") == 0) {
        fs.now.delay_ms = (unsigned)strtoul(word[1], NULL, 10);
        return words == 2;
    }
    if (strcmp(word[0], "only") == 0) {
        memcpy(fs.now.only, word[1], sizeof fs.now.only);
        return true;
    }
    if (strcmp(word[0], "clear") == 0) {
        memset(&fs.now, 0, sizeof fs.now);
        return true;
    }
    return set_switch(word[0], word[1]);
}

static void answer_line(const char *line, FILE *out)
{
    pthread_mutex_lock(&fs.lock);
    if (strncmp(line, "stats", 5) == 0) {
        for (unsigned k = 0; k < KINDS; k++)
            fprintf(out, "%s=%llu ", kind_names[k], (unsigned long long)fs.begun[k]);
        fprintf(out, "struck=%llu waiting=%llu\n", (unsigned long long)fs.struck,
                (unsigned long long)fs.waiting);
    } else {
        fprintf(out, obey(line) ? "ok\n" : "error: %s\n", line);
        pthread_cond_broadcast(&fs.change);
    }
    pthread_mutex_unlock(&fs.lock);
    fflush(out);
}

static void *listen_for_ever(void *at)
{
    int listener = *(const int *)at;

    for (;;) {
        char line[LINE_BYTES];
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
        FILE *out = in ? fdopen(dup(fd), "w") : NULL;
        while (out && fgets(line, sizeof line, in)) {
            line[strcspn(line, "\n")] = 0;
            answer_line(line, out);
        }
        if (out)
            fclose(out);
        if (in)
            fclose(in);
    }
    return NULL;
}

/* ---- start ---- */

static bool open_socket(const char *path, int *out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t len = strlen(path);

    if (len >= sizeof name.sun_path)
        return false;
    memcpy(name.sun_path, path, len);
    *out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(path);
    return *out >= 0 && bind(*out, (struct sockaddr *)&name, sizeof name) == 0 &&
           listen(*out, 16) == 0;
}

static bool serve(struct fuse *fuse, const char *mountpoint)
{
    struct fuse_session *session = fuse_get_session(fuse);
    struct fuse_loop_config *loop = fuse_loop_cfg_create();

    if (!loop || fuse_mount(fuse, mountpoint) != 0)
        return false;
    /* Frozen operations each have a thread; those beyond wait in the kernel. */
    fuse_loop_cfg_set_max_threads(loop, THREADS_MAX);
    bool good = fuse_set_signal_handlers(session) == 0 && fuse_loop_mt(fuse, loop) >= 0;
    fuse_unmount(fuse);
    fuse_loop_cfg_destroy(loop);
    return good;
}

int main(int argc, char **argv)
{
    static int listener;
    char *only[] = {argv[0], (char[]){"-odefault_permissions,fsname=faultfs"}};
    struct fuse_args args = FUSE_ARGS_INIT(2, only);
    pthread_t thread;

    fs.ask = argc == 5 && strcmp(argv[4], "ask") == 0;
    if (argc != 4 && !fs.ask) {
        fprintf(stderr, "usage: faultfs BACKING MOUNTPOINT SOCKET [ask]\n");
        return 2;
    }
    umask(0);                        /* the caller's was applied by the kernel */
    fs.root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fs.root < 0 || !open_socket(argv[3], &listener)) {
        perror(argv[fs.root < 0 ? 1 : 3]);
        return 1;
    }
    struct fuse *fuse = fuse_new(&args, &operations, sizeof operations, NULL);
    if (!fuse || pthread_create(&thread, NULL, listen_for_ever, &listener) != 0)
        return 1;
    bool good = serve(fuse, argv[2]);
    fuse_destroy(fuse);
    return good ? 0 : 1;
}
