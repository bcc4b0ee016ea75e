/* Which of the programs found here ignore the endpoint variables: traffic that silently bypasses
 * the cache is the commonest way to be disappointed by it.
 *
 * Invariants:
 *  1. A program is run without a shell, with no input, and killed after PATIENCE_MS.
 *  2. One that cannot be asked is not spoken of.
 *
 * Life: each program lives inside program_run(). Failure: none that matters; advice is left out. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATIENCE_MS = 5000, OUT_BYTES_MAX = 512 };

/* ---- running ---- */

static int start(const char *const argv[], int *out)
{
    posix_spawn_file_actions_t actions;
    int ends[2], pid = -1;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    /* posix_spawnp leaves argv's texts alone; its type is older than const. */
    int error = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv,
                             environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return -1;
    }
    *out = ends[0];
    return pid;
}

/* What it prints, until it ends, closes its output, or time is up. */
static void listen_to(int fd, uint64_t end_ms, struct text *out)
{
    char piece[128];

    for (uint64_t now = clock_ms(); now < end_ms; now = clock_ms()) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, (int)(end_ms - now));
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t n = ready > 0 ? read(fd, piece, sizeof piece) : 0;
        if (n <= 0)
            return;
        text_add(out, span_make(piece, (size_t)n));
    }
}

bool program_run(const char *const argv[], uint64_t patience_ms, struct text *out)
{
    uint64_t end_ms = clock_ms() + patience_ms;
    int fd, status = 0, pid = start(argv, &fd), ended = 0;

    if (pid < 0)
        return false;
    listen_to(fd, end_ms, out);
    close(fd);
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && clock_ms() < end_ms)
        poll(NULL, 0, 10);
    if (ended == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return false;
    }
    return ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- versions ---- */

struct version {
    uint64_t part[3];
};

/* "1.29.62 ..." behind `prefix`, wherever that stands. */
static bool read_version(struct span text, const char *prefix, struct version *out)
{
    struct span want = span_of(prefix);

    *out = (struct version){0};
    while (!span_starts(text, want)) {
        if (text.len == 0)
            return false;
        text = span_from(text, 1);
    }
    text = span_from(text, want.len);
    for (unsigned i = 0; i < ARRAY_COUNT(out->part); i++) {
        size_t digits = 0;
        while (digits < text.len && text.at[digits] >= '0' && text.at[digits] <= '9')
            digits++;
        if (span_u64(span_make(text.at, digits), &out->part[i]) != OK)
            return i > 0;
        text = span_from(text, digits);
        if (!span_starts(text, span_of(".")))
            return true;
        text = span_from(text, 1);
    }
    return true;
}

static bool is_older(const struct version *v, uint64_t major, uint64_t minor)
{
    return v->part[0] < major || (v->part[0] == major && v->part[1] < minor);
}

/* AWS_ENDPOINT_URL came with CLI 1.29 and 2.13, and with botocore 1.31 (July 2023). */
static bool aws_ignores(const struct version *v)
{
    return v->part[0] >= 2 ? is_older(v, 2, 13) : is_older(v, 1, 29);
}

static bool botocore_ignores(const struct version *v)
{
    return is_older(v, 1, 31);
}

static bool always_ignores(const struct version *v)
{
    (void)v;
    return true;
}

static const struct {
    const char *what;
    const char *const argv[4];
    const char *prefix;              /* of the version */
    bool (*ignores)(const struct version *v);
    const char *instead, *behind;    /* around the URL */
} tools[] = {
    {"aws", {"aws", "--version"}, "aws-cli/", aws_ignores, "aws --endpoint-url ", " s3 ..."},
    {"boto3", {"python3", "-c", "import botocore; print('botocore/' + botocore.__version__)"},
     "botocore/",
     botocore_ignores, "boto3.client(\"s3\", endpoint_url=\"", "\")"},
    {"s5cmd", {"s5cmd", "version"}, "v", always_ignores, "s5cmd --endpoint-url ", " ..."},
};

void tools_warn(const struct ctl *c, const char *url)
{
    const char *off = getenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    char memory[OUT_BYTES_MAX];
    struct version v;
    struct text t;

    if (off && span_is_nocase(span_of(off), "true"))
        ctl_say(c, "headpond: AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true is set: every SDK will "
                   "ignore these variables; unset it\n");
    for (unsigned i = 0; i < ARRAY_COUNT(tools); i++) {
        text_init(&t, memory, sizeof memory);
        if (!program_run(tools[i].argv, PATIENCE_MS, &t))
            continue;
        if (!read_version(text_span(&t), tools[i].prefix, &v) || !tools[i].ignores(&v))
            continue;
        ctl_say(c, "headpond: %s %llu.%llu.%llu ignores these variables and would bypass the "
                   "cache; write %s%s%s\n",
                tools[i].what, (unsigned long long)v.part[0], (unsigned long long)v.part[1],
                (unsigned long long)v.part[2], tools[i].instead, url, tools[i].behind);
    }
}
