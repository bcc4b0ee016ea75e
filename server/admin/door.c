/* Sockets of the control plane: TCP, and UNIX socket files with their mode and their leftovers.
 *
 * Invariants:
 *  1. Only a socket file that refuses connections is replaced: neither a living server's nor any
 * other kind of file.
 *  2. At the end only the file that we made is unlinked: another server may have replaced it since.
 *
 * Life: bound on the main thread; libmicrohttpd closes the socket, door_unlink() removes the file.
 * Failure: each says what could not be done, and why. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WHY_BYTES = 512, BACKLOG = 64 };

static enum err fail_bind(struct door *d, const char *text, const char *fix, char why[WHY_BYTES])
{
    snprintf(why, WHY_BYTES, "%s: %s%s", text, strerrordesc_np(errno), fix);
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
    return ERR_SYSTEM;
}

enum err door_bind_tcp(struct door *d, const struct conf_listen *at, const char *text,
                       char why[WHY_BYTES])
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(at->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(at->port)};
    const struct sockaddr *sa = (const struct sockaddr *)&v4;
    int one = 1;

    if (at->v6)
        sa = (const struct sockaddr *)&v6;
    memcpy(&v4.sin_addr, at->addr, sizeof v4.sin_addr);
    memcpy(&v6.sin6_addr, at->addr, sizeof v6.sin6_addr);
    d->fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->fd < 0)
        return fail_bind(d, text, "", why);
    setsockopt(d->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(d->fd, sa, at->v6 ? sizeof v6 : sizeof v4) == 0 && listen(d->fd, BACKLOG) == 0)
        return OK;
    return fail_bind(d, text, "; stop what listens there or choose another address", why);
}

/* ---- UNIX sockets ---- */

/* OK: nothing stands at the path (any more). */
static enum err clear_path(const struct sockaddr_un *at, char why[WHY_BYTES])
{
    struct stat st;

    if (lstat(at->sun_path, &st) != 0)
        return OK;                   /* bind says what else may be wrong */
    if (!S_ISSOCK(st.st_mode)) {
        snprintf(why, WHY_BYTES, "%s: exists and is no socket", at->sun_path);
        return ERR_SYSTEM;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool dead = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 &&
                errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    if (!dead) {
        snprintf(why, WHY_BYTES, "%s: another server answers there, or it is not ours to replace",
                 at->sun_path);
        return ERR_LOCKED;
    }
    if (unlink(at->sun_path) == 0)
        return OK;
    snprintf(why, WHY_BYTES, "%s: a stale socket file cannot be removed: %s", at->sun_path,
             strerrordesc_np(errno));
    return ERR_SYSTEM;
}

static struct door_file file_of(const struct stat *st)
{
    int64_t changed_ns = st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
    return (struct door_file){st->st_dev, st->st_ino, changed_ns};
}

enum err door_bind_unix(struct door *d, struct span path, char why[WHY_BYTES])
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat st;

    if (path.len >= sizeof at.sun_path || path.len >= sizeof d->path) {
        snprintf(why, WHY_BYTES, "%.*s: longer than a socket path may be",
                 (int)min_u64(path.len, 300), path.at);
        return ERR_TOO_LARGE;
    }
    memcpy(at.sun_path, path.at, path.len);
    TRY(clear_path(&at, why));
    d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* The file takes the socket's own mode, less the umask: it is never wider than meant. */
    if (d->fd < 0 || fchmod(d->fd, 0660) != 0 ||
        bind(d->fd, (const struct sockaddr *)&at, sizeof at) != 0)
        return fail_bind(d, at.sun_path, "", why);
    if (chmod(at.sun_path, 0660) != 0 || listen(d->fd, BACKLOG) != 0 ||
        stat(at.sun_path, &st) != 0) {
        int error = errno;
        unlink(at.sun_path);
        errno = error;
        return fail_bind(d, at.sun_path, "", why);
    }
    memcpy(d->path, at.sun_path, path.len + 1);
    d->file = file_of(&st);
    return OK;
}

void door_unlink(struct door *d)
{
    struct stat st;

    if (d->path[0] && lstat(d->path, &st) == 0) {
        struct door_file found = file_of(&st);
        bool ours = found.dev == d->file.dev && found.inode == d->file.inode;
        if (ours && found.changed_ns == d->file.changed_ns)
            unlink(d->path);
    }
    d->path[0] = '\0';
}
