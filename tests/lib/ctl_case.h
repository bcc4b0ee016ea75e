/* The command line with all its files in one, what it prints, and a server that it asks.
 *
 * Include it once per program: the tables name the verbs of each file. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CTL_CASE_H
#define HEADPOND_CTL_CASE_H

#include "server/ctl/bench.c"
#include "server/ctl/client.c"
#include "server/ctl/completion.c"
#include "server/ctl/ctl.c"
#include "server/ctl/disk.c"
#include "server/ctl/disks.c"
#include "server/ctl/doctor.c"
#include "server/ctl/env.c"
#include "server/ctl/hist.c"
#include "server/ctl/job.c"
#include "server/ctl/kernel.c"
#include "server/ctl/man.c"
#include "server/ctl/objects.c"
#include "server/ctl/pins.c"
#include "server/ctl/plan.c"
#include "server/ctl/prewarm.c"
#include "server/ctl/s3.c"
#include "server/ctl/setup.c"
#include "server/ctl/simple.c"
#include "server/ctl/sizing.c"
#include "server/ctl/status.c"
#include "server/ctl/tools.c"
#include "server/ctl/top.c"
#include "server/ctl/via.c"
#include "server/ctl/wanted.c"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/lib/fake_admin.h"

/* ---- what a verb prints ---- */

static char out_text[64 * KIB], err_text_[64 * KIB], dir[64];

struct capture {
    int kept, file;
    FILE *stream;
};

static struct capture capture_begin(FILE *stream)
{
    struct capture c = {.stream = stream};

    fflush(stream);
    c.kept = dup(fileno(stream));
    c.file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    assert_true(c.kept >= 0 && c.file >= 0);
    dup2(c.file, fileno(stream));
    return c;
}

static void capture_end(struct capture *c, char *into)
{
    fflush(c->stream);
    dup2(c->kept, fileno(c->stream));
    ssize_t n = pread(c->file, into, sizeof out_text - 1, 0);
    into[n > 0 ? n : 0] = '\0';
    close(c->kept);
    close(c->file);
}

static unused_ok void shows(const char *words)
{
    assert_non_null(strstr(out_text, words));
}

/* Runs a command line; words end with NULL. */
static int headpond(const char *const words[])
{
    const char *argv[16] = {"headpond"};
    int argc = 1;

    for (; words[argc - 1] && argc < 15; argc++)
        argv[argc] = words[argc - 1];
    struct capture out = capture_begin(stdout), err = capture_begin(stderr);
    int code = ctl_run(argc, (char **)(uintptr_t)argv);
    capture_end(&err, err_text_);
    capture_end(&out, out_text);
    return code;
}
#define RUN(...) headpond((const char *const[]){__VA_ARGS__, NULL})

#define HEAD(length) "HTTP/1.1 200 OK\r\nContent-Length: " length "\r\nConnection: close\r\n\r\n"
#define BODY "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"

static int make_dir(void **state)
{
    (void)state;
    unsetenv("HEADPOND_SERVER");
    unsetenv("HEADPOND_TOKEN_FILE");
    setenv("SHELL", "/bin/sh", 1);
    snprintf(dir, sizeof dir, "/tmp/headpond-ctl-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    static const char *const names_[] = {"s", "aws", "python3", "s5cmd", "file"};
    char path[128];

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(names_); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names_[i]);
        unlink(path);
    }
    return rmdir(dir);
}

#endif
