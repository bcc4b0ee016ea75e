/* An admin listener that says one thing to each who asks, for the tests of the command line.
 *
 * Include it once per program, behind cmocka.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_FAKE_ADMIN_H
#define HEADPOND_FAKE_ADMIN_H

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base.h"

struct fake {
    pthread_t thread;
    int fd;
    const char *answer;              /* NULL: says nothing */
    const char *later[8];            /* set behind fake_start(): to the second, third... who ask */
    unsigned times;
    char asked[2 * KIB];             /* the last request's head */
    char url[128];
};

static void *serve(void *fake)
{
    struct fake *f = fake;

    for (unsigned i = 0; i < f->times; i++) {
        int fd = accept(f->fd, NULL, NULL);
        if (fd < 0)
            break;
        memset(f->asked, 0, sizeof f->asked);
        while (!f->answer && recv(fd, f->asked, sizeof f->asked - 1, 0) > 0)
            continue;
        const char *answer = i && i < 9 && f->later[i - 1] ? f->later[i - 1] : f->answer;
        if (answer && recv(fd, f->asked, sizeof f->asked - 1, 0) > 0)
            send(fd, answer, strlen(answer), MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

/* Listens at DIR/s. */
static unused_ok void fake_start(struct fake *f, const char *dir, const char *answer,
                                 unsigned times)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    snprintf(at.sun_path, sizeof at.sun_path, "%s/s", dir);
    snprintf(f->url, sizeof f->url, "unix:%s/s", dir);
    unlink(at.sun_path);
    memset(f->later, 0, sizeof f->later);
    f->answer = answer;
    f->times = times;
    f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(f->fd, 8), 0);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
}

static unused_ok void fake_end(struct fake *f)
{
    pthread_join(f->thread, NULL);
    close(f->fd);
}

#endif
