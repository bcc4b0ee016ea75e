/* credential_process: a command of the operator's, run without a shell, and what it prints.
 *
 * Invariants:
 *  1. The command is a program and its words; nothing expands, nothing is piped.
 *  2. It may print 64 KiB and take a while; who does more is killed with all that it started.
 *  3. Its messages (stderr) go nowhere: they may show what nobody should read.
 *  4. It inherits the environment, no descriptor but its three, no blocked or ignored signal.
 * Life: one call; the process has ended when it returns.
 * Failure: words that say what the command did, never what it printed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "creds.h"
#include "server/origin/inside.h"

enum { WORDS_MAX = 64, KILL_WAIT_MS = 2000 };
extern char **environ;

struct child {
    pid_t pid;
    int ended_fd;                    /* readable once it has ended */
    int out_fd;
};

static enum err set_attributes(posix_spawnattr_t *a)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    bool good = posix_spawnattr_setflags(a, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                POSIX_SPAWN_SETSIGDEF) == 0 &&
                posix_spawnattr_setpgroup(a, 0) == 0 &&
                posix_spawnattr_setsigmask(a, &none) == 0 &&
                posix_spawnattr_setsigdefault(a, &all) == 0;
    return good ? OK : ERR_SYSTEM;
}

static enum err set_files(posix_spawn_file_actions_t *f, int out_fd)
{
    bool good =
        posix_spawn_file_actions_addopen(f, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
        posix_spawn_file_actions_adddup2(f, out_fd, STDOUT_FILENO) == 0 &&
        posix_spawn_file_actions_addopen(f, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0;
    return good ? OK : ERR_SYSTEM;
}

/* What posix_spawnp() says, or ENOMEM. */
static int spawn(char *const *argv, int out_fd, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int error = ENOMEM;
    if (posix_spawn_file_actions_init(&files) != 0)
        return error;
    if (posix_spawnattr_init(&attributes) == 0) {
        if (set_attributes(&attributes) == OK && set_files(&files, out_fd) == OK)
            error = posix_spawnp(pid, argv[0], &files, &attributes, argv, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static enum err start(char *const *argv, struct child *c, struct text *why)
{
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0) {
        text_addf(why, "no pipe: %s", strerrordesc_np(errno));
        return ERR_CREDENTIALS;
    }
    int error = spawn(argv, pipe_fd[1], &c->pid);
    close(pipe_fd[1]);
    c->out_fd = pipe_fd[0];
    if (error != 0) {
        close(pipe_fd[0]);
        text_adds(why, "the command cannot be run: ");
        text_adds(why, strerrordesc_np(error));
        return ERR_CREDENTIALS;
    }
    c->ended_fd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    return OK;
}

/* Waits for its end; a descriptor that could not be had (ended_fd < 0) makes the wait a plain one,
 * for a process that was killed. */
static bool has_ended(const struct child *c, uint64_t end_ms)
{
    struct pollfd p = {.fd = c->ended_fd, .events = POLLIN};
    for (;;) {
        uint64_t now_ms = clock_ms();
        if (c->ended_fd < 0 || now_ms >= end_ms)
            return false;
        if (poll(&p, 1, (int)min_u64(end_ms - now_ms, 60 * 1000)) > 0)
            return true;
    }
}

/* Its status; killed first, with its group, unless it has ended. */
static int reap(struct child *c, uint64_t end_ms)
{
    int status = 0;
    if (!has_ended(c, end_ms))
        kill(-c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (c->ended_fd >= 0)
        close(c->ended_fd);
    close(c->out_fd);
    return status;
}

enum heard { HEARD_ALL, HEARD_TOO_MUCH, HEARD_LATE };

/* To the end of its output: whoever inherited it from the command may hold it open. */
static enum heard listen_to(const struct child *c, uint64_t end_ms, char *to, size_t *len)
{
    struct pollfd p = {.fd = c->out_fd, .events = POLLIN};
    for (;;) {
        uint64_t now_ms = clock_ms();
        if (now_ms >= end_ms)
            return HEARD_LATE;
        if (poll(&p, 1, (int)min_u64(end_ms - now_ms, 60 * 1000)) <= 0)
            continue;
        ssize_t n = read(c->out_fd, to + *len, PROCESS_ANSWER_CAP - *len);
        if (n == 0)
            return HEARD_ALL;
        if (n > 0)
            *len += (size_t)n;
        if (*len == PROCESS_ANSWER_CAP)
            return HEARD_TOO_MUCH;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return HEARD_ALL;
    }
}

static enum err judge_end(enum heard heard, int status, uint32_t limit_ms, struct text *why)
{
    if (heard == HEARD_TOO_MUCH)
        text_adds(why, "the command printed more than 64 KiB and was killed");
    else if (heard == HEARD_LATE)
        text_addf(why, "the command did not end within %u s and was killed", limit_ms / 1000);
    else if (WIFSIGNALED(status))
        text_addf(why, "the command was ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        text_addf(why, "the command ended with %d: run it by hand as the server's user to see why",
                  WEXITSTATUS(status));
    else
        return OK;
    return ERR_CREDENTIALS;
}

static enum err run(char *const *argv, uint32_t limit_ms, char *to, size_t *len, struct text *why)
{
    struct child c;
    uint64_t end_ms = clock_ms() + limit_ms;
    TRY(start(argv, &c, why));
    enum heard heard = listen_to(&c, end_ms, to, len);
    /* It closed its output and lives on: it gets a moment. */
    int status = reap(&c, heard == HEARD_ALL ? clock_ms() + KILL_WAIT_MS : 0);
    return judge_end(heard, status, limit_ms, why);
}

enum err process_run(const char *command, uint32_t limit_ms, char **out, size_t *len,
                     struct text *why)
{
    char *argv[WORDS_MAX + 1] = {0};
    size_t bytes = strlen(command) + 1;
    char *words = mem_take(bytes), *answer = mem_take(PROCESS_ANSWER_CAP);
    enum err e = words && answer ? OK : ERR_MEMORY;
    *len = 0;
    if (e == OK && !creds_split(command, words, argv, WORDS_MAX + 1)) {
        text_addf(why, "the command has no words, more than %d, or an open quote", WORDS_MAX);
        e = ERR_CREDENTIALS;
    }
    if (e == OK) {
        must(argv[0]);               /* creds_split() found a word */
        e = run(argv, limit_ms, answer, len, why);
    }
    mem_give_secret(words, bytes);
    if (e == OK)
        *out = answer;
    else
        mem_give_secret(answer, PROCESS_ANSWER_CAP);
    return e;
}
