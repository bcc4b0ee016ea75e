/* One server under test: its directories and configuration, its start and its end, what it logs and
 * counts.
 *
 * Invariants:
 *  1. The child dies with the harness (PR_SET_PDEATHSIG), whatever happens.
 *  2. A start is judged by /-/ready alone, within READY_MS.
 *
 * Life: daemon_make() once, then start and end in turn.
 * Failure: told by the returned enum; the log stays in the home directory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/crash.h"

enum { END_MS = 40000, SETTLE_MS = 60000, LINE_BYTES = 4096 };

static _Thread_local char ending[80];

bool daemon_make(struct daemon *d, const char *home)
{
    snprintf(d->home, sizeof d->home, "%s", home);
    snprintf(d->config, sizeof d->config, "%s/headpond.toml", home);
    snprintf(d->log, sizeof d->log, "%s/log", home);
    for (unsigned i = 0; i < d->dirs; i++)
        if (d->dir[i][0] == '\0')
            snprintf(d->dir[i], sizeof d->dir[i], "%s/disk%u", home, i);
    d->port = (uint16_t)(9000 + 10 * d->number);
    d->admin_port = (uint16_t)(d->port + 1);
    return (mkdir(home, 0700) == 0 || errno == EEXIST) && daemon_configure(d);
}

bool daemon_configure(const struct daemon *d)
{
    FILE *f = fopen(d->config, "we");

    if (!f)
        return false;
    fprintf(f,
            "[server]\nlisten = [\"127.0.0.1:%u\"]\nworkers = %u\nallow_root = true\n"
            "drain_timeout = \"5s\"\n[admin]\nlisten = [\"unix:%s/admin.sock\", "
            "\"127.0.0.1:%u\"]\n[auth]\nanonymous = [\"127.0.0.0/8\"]\n"
            "[upstream]\nendpoint = \"http://127.0.0.1:%u\"\nregion = \"us-east-1\"\n"
            "path_style = \"path\"\n[cache]\ndirs = [",
            d->port, d->workers, d->home, d->admin_port, origin_port(world.origin));
    for (unsigned i = 0; i < d->dirs; i++)
        fprintf(f, "%s\"%s\"", i ? ", " : "", d->dir[i]);
    fprintf(f, "]\nsize = \"%lluMiB\"\nmemory = \"%lluMiB\"\nmin_free = \"%lluMiB\"\n"
            "ttl = \"%llums\"\ndisk_timeout = \"60s\"\n", (unsigned long long)d->slab_mib,
            (unsigned long long)d->memory_mib, (unsigned long long)d->min_free_mib,
            (unsigned long long)d->ttl_ms);
    return fclose(f) == 0;
}

static _Noreturn void become_server(const struct daemon *d, pid_t parent, int log)
{
    char program[PATH_BYTES], config[PATH_BYTES + 32], inject[PATH_BYTES], trace[PATH_BYTES + 32];
    char *plain[] = {program, (char *)"--config", config, NULL};
    char index[PATH_BYTES * 2], slab[PATH_BYTES * 2];
    /* -D: the child stays the server. Only what concerns the cache directory is bent. */
    char *traced[] = {(char *)"strace", (char *)"-D", (char *)"-f", (char *)"-qq", (char *)"-o",
                      trace, (char *)"-P", (char *)(uintptr_t)d->dir[0], (char *)"-P", index,
                      (char *)"-P", slab, (char *)"-e", inject, program, (char *)"--config",
                      config, NULL};

    snprintf(program, sizeof program, "%s", world.program);
    snprintf(config, sizeof config, "%s", d->config);
    snprintf(index, sizeof index, "%s/index/data.mdb", d->dir[0]);
    snprintf(slab, sizeof slab, "%s/slab", d->dir[0]);
    snprintf(trace, sizeof trace, "%s/strace", d->home);
    snprintf(inject, sizeof inject, "inject=%s", d->under ? d->under : "");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("AWS_ACCESS_KEY_ID", "AKIDCRASH", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-crash", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    if (getppid() != parent || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(127);
    execvp(d->under ? "strace" : program, d->under ? traced : plain);
    _exit(127);
}

void daemon_launch(struct daemon *d)
{
    int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    pid_t parent = getpid();

    d->log_from = log >= 0 ? lseek(log, 0, SEEK_END) : 0;
    d->pid = fork();
    if (d->pid == 0)
        become_server(d, parent, log);
    close(log);
    must(d->pid > 0);
}

static void describe_ending(int status)
{
    snprintf(ending, sizeof ending, "%s %d", WIFEXITED(status) ? "exit" : "signal",
             WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

const char *daemon_ending(void)
{
    return ending;
}

bool daemon_alive(struct daemon *d)
{
    int status;

    if (d->pid <= 0 || waitpid(d->pid, &status, WNOHANG) != d->pid)
        return d->pid > 0;
    describe_ending(status);
    d->pid = 0;
    return false;
}

enum start daemon_wait_ready(struct daemon *d)
{
    char page[2048];
    uint64_t until = clock_ms() + READY_MS;

    while (clock_ms() < until) {
        if (!daemon_alive(d))
            return strncmp(ending, "exit", 4) == 0 ? START_REFUSED : START_DIED;
        if (fetch_page(d->port, "/-/ready", page, sizeof page) == 200)
            return START_READY;
        poll(NULL, 0, 5);
    }
    return START_LATE;
}

enum start daemon_start(struct daemon *d)
{
    daemon_launch(d);
    return daemon_wait_ready(d);
}

bool daemon_end(struct daemon *d, int with)
{
    uint64_t until = clock_ms() + END_MS;
    int status = 0;

    if (!daemon_alive(d))
        return false;
    kill(d->pid, with);
    while (waitpid(d->pid, &status, with == SIGKILL ? 0 : WNOHANG) == 0) {
        if (clock_ms() > until) {
            kill(d->pid, SIGKILL);
            waitpid(d->pid, &status, 0);
            break;
        }
        poll(NULL, 0, 3);
    }
    d->pid = 0;
    describe_ending(status);
    return with == SIGKILL || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- what it counts and logs ---- */
char *daemon_page(struct daemon *d, const char *target)
{
    char *page = mem_take(PAGE_BYTES);

    if (page && fetch_page(d->admin_port, target, page, PAGE_BYTES) == 200)
        return page;
    mem_give(page);
    return NULL;
}

double metric_sum(const char *page, const char *name, const char *label)
{
    struct span rest = span_of(page), wanted = span_of(name);
    double sum = 0;

    while (rest.len > 0) {
        struct span line = span_cut(&rest, '\n');
        char text[400];
        if (!span_starts(line, wanted) || line.len <= wanted.len ||
            (line.at[wanted.len] != '{' && line.at[wanted.len] != ' '))
            continue;
        snprintf(text, sizeof text, "%.*s", (int)line.len, line.at);
        const char *number = strrchr(text, ' ');
        if (number && (label[0] == '\0' || strstr(text, label)))
            sum += strtod(number, NULL);
    }
    return sum;
}

double daemon_metric(struct daemon *d, const char *name, const char *label)
{
    char *page = daemon_page(d, "/metrics");
    double sum = page ? metric_sum(page, name, label) : -1;

    mem_give(page);
    return sum;
}

bool daemon_settles(struct daemon *d)
{
    uint64_t until = clock_ms() + SETTLE_MS;

    while (daemon_metric(d, "headpond_fetches_in_flight", "") != 0 ||
           daemon_metric(d, "headpond_index_dirty_entries", "") != 0) {
        if (clock_ms() > until || !daemon_alive(d))
            return false;
        poll(NULL, 0, 5);
    }
    return true;
}

unsigned daemon_logged(const struct daemon *d, const char *text)
{
    FILE *f = fopen(d->log, "re");
    char line[LINE_BYTES];
    unsigned found = 0;

    if (!f)
        return 0;
    fseek(f, d->log_from, SEEK_SET);
    while (fgets(line, sizeof line, f))
        found += strstr(line, text) != NULL;
    fclose(f);
    return found;
}

void daemon_show_log(const struct daemon *d)
{
    FILE *f = fopen(d->log, "re");
    char line[LINE_BYTES];
    unsigned shown = 0;

    if (!f)
        return;
    fseek(f, d->log_from, SEEK_SET);
    while (shown < 20 && fgets(line, sizeof line, f)) {
        tell("    %.300s", line);
        shown++;
    }
    fclose(f);
}
