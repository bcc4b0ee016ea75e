/* Files, trees, and volumes that can lose power.
 *
 * Invariants:
 *  1. A volume is an ext4 file system on a loop device over an image file; the device detaches
 *     itself when the mount is gone (LO_FLAGS_AUTOCLEAR).
 *  2. volume_cut() ends the file system as a power cut would: what was not on the device never gets
 *     there; the image is what a restart finds.
 *
 * Life: volume_make() once, then mount and unmount in turn. Failure: false, errno is set. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/loop.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/crash.h"

enum { UNMOUNT_MS = 20000, LOOP_TRIES = 50, FTW_FDS = 16 };
/* FS_IOC_SHUTDOWN of XFS, ext4, f2fs: 1 = with the journal, 2 = without it */
#define SHUTDOWN_IOCTL _IOR('X', 125, uint32_t)

bool run_program(const char *const argument[])
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        if (dup2(null, 0) >= 0 && dup2(null, 1) >= 0 && dup2(null, 2) >= 0)
            execvp(argument[0], (char *const *)(uintptr_t)argument);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- trees ---- */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_one, FTW_FDS, FTW_DEPTH | FTW_PHYS);
}

bool copy_file(const char *from, const char *to)
{
    int source = open(from, O_RDONLY | O_CLOEXEC);
    int target = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t n = 1;

    while (source >= 0 && target >= 0 && n > 0)
        n = sendfile(target, source, NULL, 64 * MIB);
    if (source >= 0)
        close(source);
    return target >= 0 && close(target) == 0 && source >= 0 && n == 0;
}

static bool copy_files(const char *from, const char *to)
{
    DIR *dir = mkdir(to, 0700) == 0 || errno == EEXIST ? opendir(from) : NULL;
    char source[PATH_BYTES * 3], target[PATH_BYTES * 3];
    bool good = dir != NULL;

    for (struct dirent *e; good && (e = readdir(dir)) != NULL;) {
        snprintf(source, sizeof source, "%s/%s", from, e->d_name);
        snprintf(target, sizeof target, "%s/%s", to, e->d_name);
        if (e->d_type == DT_REG)
            good = copy_file(source, target);
    }
    if (dir)
        closedir(dir);
    return good;
}

bool copy_tree(const char *from, const char *to)
{
    char source[PATH_BYTES * 2], target[PATH_BYTES * 2];

    snprintf(source, sizeof source, "%s/index", from);
    snprintf(target, sizeof target, "%s/index", to);
    return copy_files(from, to) && copy_files(source, target);
}

/* ---- volumes ---- */
static bool attach(const char *image, char device[32], int *device_fd)
{
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int file = open(image, O_RDWR | O_CLOEXEC);
    struct loop_config config = {.fd = (uint32_t)file,
                                 .info.lo_flags = LO_FLAGS_AUTOCLEAR};

    *device_fd = -1;
    for (unsigned i = 0; control >= 0 && file >= 0 && i < LOOP_TRIES && *device_fd < 0; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            break;
        snprintf(device, 32, "/dev/loop%d", number);
        int fd = open(device, O_RDWR | O_CLOEXEC);
        /* Another lane, or another program, may have been faster. */
        if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config) == 0)
            *device_fd = fd;
        else if (fd >= 0)
            close(fd);
    }
    if (control >= 0)
        close(control);
    if (file >= 0)
        close(file);
    return *device_fd >= 0;
}

bool volume_make(struct volume *v, const char *home, uint64_t mib, const char *feature)
{
    snprintf(v->image, sizeof v->image, "%s/image", home);
    snprintf(v->at, sizeof v->at, "%s/volume", home);
    int fd = open(v->image, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0 && ftruncate(fd, (off_t)(mib * MIB)) == 0;
    const char *const make[] = {"mkfs.ext4", "-q", "-F", "-m", "0", "-O", feature, v->image, NULL};

    if (fd >= 0)
        close(fd);
    return good && run_program(make) && (mkdir(v->at, 0700) == 0 || errno == EEXIST);
}

bool volume_mount(struct volume *v)
{
    char device[32];
    int fd;

    if (!attach(v->image, device, &fd))
        return false;
    v->mounted = mount(device, v->at, "ext4", 0, NULL) == 0;
    int why = errno;
    close(fd);
    errno = why;
    return v->mounted;
}

bool volume_cut(struct volume *v, bool with_journal)
{
    uint32_t how = with_journal ? 1 : 2;
    int fd = open(v->at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && ioctl(fd, SHUTDOWN_IOCTL, &how) == 0;

    if (fd >= 0)
        close(fd);
    return good;
}

bool volume_unmount(struct volume *v)
{
    uint64_t until = clock_ms() + UNMOUNT_MS;

    /* The rings of a killed server let go of their files a little later. */
    while (v->mounted && umount(v->at) != 0) {
        if (errno != EBUSY || clock_ms() > until)
            return false;
        poll(NULL, 0, 5);
    }
    v->mounted = false;
    return true;
}
