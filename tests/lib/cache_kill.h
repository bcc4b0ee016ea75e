/* For tests of what a cache keeps when its process is killed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CACHE_KILL_H
#define HEADPOND_CACHE_KILL_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/cache_case.h"

/* A child opens the case and does what is to be kept; it is killed as soon as that was done. Then
 * the case is opened here. */
static void case_open_killed(struct cache_case *t, bool (*done)(struct cache_case *))
{
    int status, pipe_fd[2];
    char byte;

    assert_int_equal(pipe(pipe_fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || case_open(t) != OK || !done(t) ||
            write(pipe_fd[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    close(pipe_fd[1]);
    assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(pipe_fd[0]);
    assert_int_equal(case_open(t), OK);
}

#endif
