/* The server under test: its directory, its configuration, its process.
 *
 * Invariants:
 *  1. Everything that it writes lies below one temporary directory, which dies with the play.
 *  2. It dies with the player (PR_SET_PDEATHSIG), so that no failed play leaves a server behind.
 *  3. An end by SIGTERM is exit status 0 and a log without sanitizer reports, or the play fails.
 *
 * Life: prepare, (configure, start, signal, ended)*, remove.
 * Failure: play_fail() with the last lines of the log at hand. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/flow/play.h"

enum {
    READY_MS = 30000,
    END_MS = 90000,
    RELOAD_MS = 10000,
    LOOK_MS = 10,
    REPORT_LINES = 8,
    PORT_FIRST = 20000,
    PORT_LAST = 32000,
    CONFIG_BYTES = 16 * KIB,
    TAIL_BYTES = 64 * KIB,
    ENVIRONMENT_MAX = 200,
};

extern char **environ;

/* ---- places ---- */

/* A port that is this play's until its end, also while its server does not run; below the range
 * that the kernel gives to connections. The socket that keeps it is bound and never listens: nobody
 * else gets the port, and a server, whose sockets have SO_REUSEADDR as well, does. A port that was
 * only looked at and let go may be chosen by two plays at once: the one server waits for it (see
 * server/net/listen.c) while the other one answers the clients of both. -1: none. */
static int keep_port(uint16_t *out)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    for (unsigned tries = 0; fd >= 0 && tries < 1000; tries++) {
        *out = (uint16_t)(PORT_FIRST + random_u64() % (PORT_LAST - PORT_FIRST));
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*out)};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0)
            return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

bool daemon_prepare(struct play *p)
{
    struct daemon *d = &p->daemon;
    const char *below = getenv("TMPDIR");

    if (!below || !*below)
        below = "/var/tmp";
    snprintf(d->dir, sizeof d->dir, "%s/headpond-flow-XXXXXX", below);
    if (!mkdtemp(d->dir))
        return play_fail(p, NULL, "%s: %s", d->dir, strerror(errno));
    snprintf(d->log, sizeof d->log, "%s/log", d->dir);
    snprintf(d->config, sizeof d->config, "%s/headpond.toml", d->dir);
    d->keeps_port = keep_port(&d->port);
    d->keeps_admin_port = keep_port(&d->admin_port);
    if (d->keeps_port < 0 || d->keeps_admin_port < 0)
        return play_fail(p, NULL, "no port of %d to %d is free", PORT_FIRST, PORT_LAST);
    return true;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *ftw)
{
    (void)s;
    (void)type;
    (void)ftw;
    return remove(path);
}

void daemon_remove(struct play *p, bool keep)
{
    struct daemon *d = &p->daemon;

    if (d->pid) {
        kill(d->pid, SIGKILL);
        waitpid(d->pid, NULL, 0);
        d->pid = 0;
    }
    if (d->dir[0] && !keep)
        nftw(d->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    else if (keep)
        printf("# kept %s\n", d->dir);
}

void daemon_tail(struct play *p, unsigned lines)
{
    FILE *f = fopen(p->daemon.log, "re");
    char *text = mem_take(TAIL_BYTES + 1);

    must(text);
    if (f) {
        fseek(f, 0, SEEK_END);
        fseek(f, ftell(f) > TAIL_BYTES ? -(long)TAIL_BYTES : -ftell(f), SEEK_END);
        size_t len = fread(text, 1, TAIL_BYTES, f), at = len;
        for (; at > 0 && lines > 0; at--)
            lines -= at < len && text[at - 1] == '\n';
        struct span rest = span_from(span_make(text, len), at + (at > 0));
        while (rest.len > 0) {
            struct span line = span_cut(&rest, '\n');
            printf("# %.*s\n", (int)line.len, line.at);
        }
        fclose(f);
    }
    mem_give(text);
}

/* ---- configuration ---- */

struct setting {                     /* section.key with its value as TOML */
    char section[32], key[32], value[400];
};
struct settings {
    struct setting one[SERVER_LINES_MAX];
    unsigned count;
    char buckets[4 * KIB];           /* [[bucket]] and [[upstream]] sections, as text */
    bool several;                    /* the latter: no [upstream] is written */
};

static void put_setting(struct settings *s, struct span name, const char *value)
{
    struct setting one = {0};
    struct span section = span_cut(&name, '.');
    unsigned i = 0;

    snprintf(one.section, sizeof one.section, "%.*s", (int)section.len, section.at);
    snprintf(one.key, sizeof one.key, "%.*s", (int)name.len, name.at);
    snprintf(one.value, sizeof one.value, "%s", value);
    while (i < s->count && (strcmp(s->one[i].section, one.section) != 0 ||
                            strcmp(s->one[i].key, one.key) != 0))
        i++;
    must(i < SERVER_LINES_MAX);
    s->count += i == s->count;
    s->one[i] = one;
}

static void put_number(struct settings *s, const char *name, uint64_t n)
{
    char text[32];

    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    put_setting(s, span_of(name), text);
}

static void put_text(struct settings *s, const char *name, const char *format, ...)
    printf_like(3, 4);
static void put_text(struct settings *s, const char *name, const char *format, ...)
{
    char text[390], quoted[400];
    va_list more;

    va_start(more, format);
    vsnprintf(text, sizeof text, format, more);
    va_end(more);
    snprintf(quoted, sizeof quoted, "\"%s\"", text);
    put_setting(s, span_of(name), quoted);
}

static bool is_bare(struct span value)
{
    uint64_t n;

    return span_is(value, "true") || span_is(value, "false") || span_u64(value, &n) == OK;
}

static void add_value(struct text *t, struct span value)
{
    const char *quote = is_bare(value) ? "" : "\"";

    text_adds(t, quote);
    text_add(t, value);
    text_adds(t, quote);
}

/* key = word, or key = word word ... (a list; "" is an empty one) */
static void put_statement(struct settings *s, const struct statement *st)
{
    static const char *const lists[] = {"auth.anonymous", "cache.dirs", "server.listen",
                                        "admin.listen", "upstream.reserved"};
    char value[400];
    struct text t;
    bool list = st->count > 3;

    for (size_t i = 0; i < ARRAY_COUNT(lists); i++)
        list |= span_is(st->word[0], lists[i]);
    text_init(&t, value, sizeof value);
    if (list)
        text_addc(&t, '[');
    for (unsigned i = 2; i < st->count && !(list && st->word[i].len == 0); i++) {
        text_adds(&t, i > 2 ? ", " : "");
        add_value(&t, st->word[i]);
    }
    if (list)
        text_addc(&t, ']');
    put_setting(s, st->word[0], value);
}

/* bucket PREFIX key=value... */
static void put_bucket(struct text *t, const struct statement *st)
{
    text_addf(t, "\n[[bucket]]\nmatch = \"%s\"\n", st->word[1].at);
    for (unsigned i = 2; i < st->count; i++) {
        struct span value = st->word[i];
        struct span key = span_cut(&value, '=');
        text_add(t, key);
        text_adds(t, " = ");
        add_value(t, value);
        text_addc(t, '\n');
    }
}

/* upstream NAME key=value... */
static void put_upstream(struct play *p, struct settings *s, struct text *t,
                         const struct statement *st)
{
    s->several = true;
    text_addf(t, "\n[[upstream]]\nname = \"%s\"\nregion = \"us-east-1\"\n"
                 "path_style = \"path\"\n", st->word[1].at);
    for (unsigned i = 2; i < st->count; i++) {
        struct span value = st->word[i], key = span_cut(&value, '='), one;
        text_add(t, key);
        text_adds(t, " = ");
        if (span_is(value, "directory")) {
            text_addf(t, "\"file://%s/store\"\n", p->daemon.dir);
            continue;
        }
        if (!span_is(key, "match")) {
            add_value(t, value);
            text_addc(t, '\n');
            continue;
        }
        text_addc(t, '[');
        while (value.len > 0) {
            one = span_cut(&value, ',');
            text_addf(t, "\"%.*s\"%s", (int)one.len, one.at, value.len > 0 ? ", " : "]\n");
        }
    }
}

/* file BUCKET KEY SIZE: in the directory that an upstream is. */
static bool put_file(struct play *p, const struct statement *st)
{
    char path[PATH_BYTES + 300];
    uint64_t bytes;
    uint8_t *memory;

    snprintf(path, sizeof path, "%s/store", p->daemon.dir);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/store/%s", p->daemon.dir, st->word[1].at);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/store/%s/%s", p->daemon.dir, st->word[1].at, st->word[2].at);
    if (size_read(st->word[3], &bytes) != OK || !(memory = mem_take(bytes + 1)))
        return false;
    bytes_make(bytes_seed(st->word[1], st->word[2], 1), 0, memory, bytes);
    FILE *f = fopen(path, "we");
    bool good = f && fwrite(memory, 1, bytes, f) == bytes;
    if (f)
        good &= fclose(f) == 0;
    mem_give(memory);
    return good;
}

/* The token with which plays change things by way of the admin port. */
static void put_token(struct play *p, struct settings *s)
{
    static const char token[] = "token-of-the-plays\n";
    char path[PATH_BYTES + 20];

    snprintf(path, sizeof path, "%s/token", p->daemon.dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, token, sizeof token - 1) == (ssize_t)sizeof token - 1)
        put_text(s, "admin.token_file", "%s", path);
    if (fd >= 0)
        close(fd);
}

static void put_defaults(struct play *p, struct settings *s)
{
    struct daemon *d = &p->daemon;
    char list[400];

    snprintf(list, sizeof list, "[\"127.0.0.1:%u\"]", d->port);
    put_setting(s, span_of("server.listen"), list);
    put_number(s, "server.workers", 1);
    put_text(s, "server.name", "play");
    put_setting(s, span_of("server.allow_root"), geteuid() == 0 ? "true" : "false");
    snprintf(list, sizeof list, "[\"unix:%s/admin.sock\", \"127.0.0.1:%u\"]", d->dir,
             d->admin_port);
    put_setting(s, span_of("admin.listen"), list);
    put_token(p, s);
    put_setting(s, span_of("auth.anonymous"), "[\"127.0.0.0/8\"]");
    put_text(s, "upstream.endpoint", "http://127.0.0.1:%u", origin_port(p->origin));
    put_text(s, "upstream.region", "us-east-1");
    put_text(s, "upstream.path_style", "path");
    put_text(s, "cache.size", "256MiB");
    put_text(s, "cache.memory", "64MiB");
    put_text(s, "cache.min_free", "64MiB");
    put_text(s, "cache.disk_timeout", "60s"); /* a machine that pauses is no disk that fails */
    put_text(s, "log.level", "debug");
    put_text(s, "log.format", "logfmt");
    if (p->tls) {
        put_text(s, "server.tls_cert", "%s/tls.pem", d->dir);
        put_text(s, "server.tls_key", "%s/tls.key", d->dir);
    }
}

static bool put_dirs(struct play *p, struct settings *s)
{
    char list[400], path[PATH_BYTES + 20];
    struct text t;

    text_init(&t, list, sizeof list);
    for (unsigned i = 0; i < p->daemon.dirs; i++) {
        snprintf(path, sizeof path, "%s/disk%u", p->daemon.dir, i);
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return false;
        text_addf(&t, "%s\"%s\"", i ? ", " : "[", path);
    }
    text_addc(&t, ']');
    put_setting(s, span_of("cache.dirs"), list);
    return !t.over;
}

/* Sections in the order of their first key: each is written once. */
static bool write_config(struct play *p, const struct settings *s)
{
    char config[CONFIG_BYTES];
    bool done[SERVER_LINES_MAX] = {false};
    struct text t;

    text_init(&t, config, sizeof config);
    for (unsigned i = 0; i < s->count; i++) {
        if (done[i] || (s->several && strcmp(s->one[i].section, "upstream") == 0))
            continue;
        text_addf(&t, "[%s]\n", s->one[i].section);
        for (unsigned k = i; k < s->count; k++) {
            if (strcmp(s->one[k].section, s->one[i].section) != 0)
                continue;
            text_addf(&t, "%s = %s\n", s->one[k].key, s->one[k].value);
            done[k] = true;
        }
    }
    text_adds(&t, s->buckets);
    FILE *f = fopen(p->daemon.config, "we");
    bool good = f && !t.over && fwrite(config, 1, t.len, f) == t.len;
    if (f)
        good &= fclose(f) == 0;
    return good;
}

static void keys_path(const struct play *p, char path[PATH_BYTES + 20])
{
    snprintf(path, PATH_BYTES + 20, "%s/keys", p->daemon.dir);
}


static void profiles_path(const struct play *p, char path[PATH_BYTES + 20])
{
    snprintf(path, PATH_BYTES + 20, "%s/profiles", p->daemon.dir);
}

static void forget_keys(const struct play *p)
{
    char path[PATH_BYTES + 20];

    keys_path(p, path);
    unlink(path);
    profiles_path(p, path);
    unlink(path);
}

/* profile NAME ACCESS SECRET: one more section of the credentials file. */
static bool put_profile(struct play *p, const struct statement *st)
{
    char path[PATH_BYTES + 20];

    profiles_path(p, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "a");
    if (!f)
        return false;
    fprintf(f, "[%.*s]\naws_access_key_id = %.*s\naws_secret_access_key = %.*s\n",
            (int)st->word[1].len, st->word[1].at, (int)st->word[2].len, st->word[2].at,
            (int)st->word[3].len, st->word[3].at);
    return fclose(f) == 0;
}

/* key ACCESS SECRET ...: one more line of the keys_file. */
static bool put_key(struct play *p, struct settings *s, const struct statement *st)
{
    char path[PATH_BYTES + 20];

    keys_path(p, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "a");
    if (!f)
        return false;
    for (unsigned i = 1; i < st->count; i++)
        fprintf(f, "%.*s ", (int)st->word[i].len, st->word[i].at);
    fprintf(f, "\n");
    put_text(s, "auth.keys_file", "%s", path);
    return fclose(f) == 0;
}

static bool read_setting(struct play *p, const struct statement *line, struct settings *s,
                         struct text *buckets, uint64_t *dirs)
{
    if (span_is(line->word[0], "tls") && line->count == 1)
        return true;                 /* seen to before */
    if (span_is(line->word[0], "dirs") && line->count == 2)
        return size_read(line->word[1], dirs) == OK && *dirs >= 1 && *dirs <= 8;
    if (span_is(line->word[0], "profile") && line->count == 4)
        return put_profile(p, line);
    if (span_is(line->word[0], "key") && line->count > 2)
        return put_key(p, s, line);
    if (span_is(line->word[0], "file") && line->count == 4)
        return put_file(p, line);
    if (span_is(line->word[0], "upstream") && line->count > 2)
        put_upstream(p, s, buckets, line);
    else if (span_is(line->word[0], "bucket") && line->count > 2)
        put_bucket(buckets, line);
    else if (line->count > 2 && span_is(line->word[1], "="))
        put_statement(s, line);
    else
        return false;
    return true;
}

static bool asks_for_tls(struct frame *f, const struct frame *outer)
{
    bool found = false;

    frame_enter(f, outer);
    while (frame_next(f))
        found |= f->now.count == 1 && span_is(f->now.word[0], "tls");
    return found;
}

bool daemon_configure(struct play *p, const struct frame *outer)
{
    struct settings *s = mem_take(sizeof *s);
    struct frame *f = mem_take(sizeof *f);
    uint64_t dirs = 1;
    struct text buckets;
    bool good = true;

    must(s && f);
    text_init(&buckets, s->buckets, sizeof s->buckets);
    p->tls |= asks_for_tls(f, outer);
    if (p->tls && !p->trust)
        good = wire_certificate(p, "play");
    put_defaults(p, s);
    forget_keys(p);
    frame_enter(f, outer);
    while (good && frame_next(f))
        if (!read_setting(p, &f->now, s, &buckets, &dirs))
            good = play_fail(p, &f->now, "key = value, dirs N, bucket PREFIX key=value, key ACCESS "
                                         "SECRET ..., upstream NAME key=value, or file BUCKET KEY "
                                         "SIZE");
    p->daemon.dirs = (unsigned)dirs;
    if (good && !(put_dirs(p, s) && write_config(p, s)))
        good = play_fail(p, &outer->now, "cannot write %s", p->daemon.config);
    mem_give(s);
    mem_give(f);
    return good && !p->failed;
}

/* ---- the process ---- */

static bool ours(const char *variable)
{
    static const char *const dropped[] = {"AWS_", "HEADPOND_", "HTTP_PROXY", "HTTPS_PROXY",
                                          "http_proxy"};

    for (size_t i = 0; i < ARRAY_COUNT(dropped); i++)
        if (strncmp(variable, dropped[i], strlen(dropped[i])) == 0)
            return true;
    return false;
}

/* What a server inherits: the environment without anything that would configure it, and fixed
 * credentials. */
static void make_environment(char *profiles, char *out[ENVIRONMENT_MAX])
{
    char *const ours_table[] = {
        "AWS_ACCESS_KEY_ID=" PLAY_ACCESS, "AWS_SECRET_ACCESS_KEY=" PLAY_SECRET,
        "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/nonexistent", profiles,
    };
    unsigned n = 0;

    for (size_t i = 0; i < ARRAY_COUNT(ours_table); i++)
        out[n++] = ours_table[i];
    for (char **at = environ; *at && n + 1 < ENVIRONMENT_MAX; at++)
        if (!ours(*at))
            out[n++] = *at;
    out[n] = NULL;
}

static pid_t spawn(struct play *p)
{
    struct daemon *d = &p->daemon;
    char *arguments[] = {(char *)(uintptr_t)p->program, "--config", d->config, NULL};
    char *environment[ENVIRONMENT_MAX];
    int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    pid_t parent = getpid();

    char path[PATH_BYTES + 20], profiles[sizeof path + 40];
    profiles_path(p, path);
    snprintf(profiles, sizeof profiles, "AWS_SHARED_CREDENTIALS_FILE=%s", path);
    make_environment(profiles, environment);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(127);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(log, 1);
        dup2(log, 2);
        execve(p->program, arguments, environment);
        _exit(127);
    }
    close(log);
    return pid;
}

static bool wait_ready(struct play *p, const struct statement *st)
{
    struct daemon *d = &p->daemon;
    uint64_t deadline = clock_ms() + READY_MS;
    char body[256];
    int status;

    while (clock_ms() < deadline) {
        if (waitpid(d->pid, &status, WNOHANG) == d->pid) {
            d->pid = 0;
            return play_fail(p, st, "the server ended at its start (%s %d)",
                             WIFEXITED(status) ? "exit" : "signal",
                             WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        }
        if (client_fetch(p->tls ? d->admin_port : d->port, p->tls ? "/readyz" : "/-/ready", body,
                         sizeof body) == 200)
            return true;
        poll(NULL, 0, LOOK_MS);
    }
    return play_fail(p, st, "the server is not ready after %d ms", READY_MS);
}

bool daemon_start(struct play *p, const struct statement *st)
{
    struct daemon *d = &p->daemon;

    if (d->pid)
        return play_fail(p, st, "the server runs already");
    d->pid = spawn(p);
    if (d->pid <= 0) {
        d->pid = 0;
        return play_fail(p, st, "%s: %s", p->program, strerror(errno));
    }
    d->starts++;
    return wait_ready(p, st) && (d->starts > 1 || watch_mark(p, st));
}

bool daemon_signal(struct play *p, const struct statement *st, int signal)
{
    if (!p->daemon.pid)
        return play_fail(p, st, "the server does not run");
    kill(p->daemon.pid, signal);
    return true;
}

/* How many reloads ended like that so far. */
static uint64_t reloads(struct play *p, const char *how)
{
    char *page = mem_take(METRICS_BYTES), line[80];
    unsigned long long n = 0;

    must(page);
    snprintf(line, sizeof line, "headpond_config_reloads_total{result=\"%s\"} ", how);
    (void)client_fetch(p->daemon.admin_port, "/metrics", page, METRICS_BYTES);
    const char *at = strstr(page, line);
    if (at)
        n = strtoull(at + strlen(line), NULL, 10);
    mem_give(page);
    return n;
}

bool daemon_reload(struct play *p, const struct statement *st)
{
    bool refused = st->count > 1 && span_is(st->word[1], "refused");
    const char *wanted = refused ? "refused" : "applied", *other = refused ? "applied" : "refused";
    uint64_t deadline = clock_ms() + RELOAD_MS, before = reloads(p, wanted);
    uint64_t other_before = reloads(p, other);

    if (!daemon_signal(p, st, SIGHUP))
        return false;
    while (reloads(p, wanted) == before) {
        if (reloads(p, other) != other_before)
            return play_fail(p, st, "the reload was %s", other);
        if (clock_ms() >= deadline)
            return play_fail(p, st, "the reload was not %s", wanted);
        poll(NULL, 0, LOOK_MS);
    }
    return true;
}

/* A sanitizer's, or that of a failed must(). */
static bool is_report(const char *line)
{
    return strstr(line, "Sanitizer") || strstr(line, "runtime error:") || strstr(line, "panic");
}

/* What a sanitizer or must() says, and from where: a tail of the log may not reach as far. */
static void tell_report(struct play *p)
{
    FILE *f = fopen(p->daemon.log, "re");
    char line[4096];
    unsigned left = 0;

    while (f && fgets(line, sizeof line, f)) {
        if (is_report(line))
            left = REPORT_LINES;
        else if (left > 0)
            left--;
        if (left > 0)
            printf("# %.*s\n", (int)min_u64(strcspn(line, "\n"), 150), line);
    }
    if (f)
        fclose(f);
}

bool daemon_died(struct play *p)
{
    int status;

    if (!p->daemon.pid || waitpid(p->daemon.pid, &status, WNOHANG) != p->daemon.pid)
        return false;
    p->daemon.pid = 0;
    printf("# the server has ended by %s %d\n", WIFEXITED(status) ? "exit" : "signal",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    tell_report(p);
    return true;
}

/* Nothing of the kind anywhere in the log, also before the mark. */
static bool log_is_clean(struct play *p, const struct statement *st)
{
    FILE *f = fopen(p->daemon.log, "re");
    char line[4096];
    bool good = true;

    while (f && good && fgets(line, sizeof line, f))
        if (is_report(line))
            good = play_fail(p, st, "the server's log says: %.300s", line);
    if (f)
        fclose(f);
    return good;
}

bool daemon_ended(struct play *p, const struct statement *st, bool killed)
{
    struct daemon *d = &p->daemon;
    uint64_t within = END_MS, deadline;
    struct span value;
    int status = 0;

    for (unsigned i = 1; i < st->count; i++)
        if (word_value(st->word[i], "within", &value) && size_read(value, &within) != OK)
            return play_fail(p, st, "within=MS");
    deadline = clock_ms() + within;
    if (!d->pid)
        return play_fail(p, st, "the server does not run");
    while (waitpid(d->pid, &status, WNOHANG) == 0) {
        if (clock_ms() >= deadline)
            return play_fail(p, st, "the server did not end in %llu ms",
                             (unsigned long long)within);
        poll(NULL, 0, LOOK_MS);
    }
    d->pid = 0;
    if (!log_is_clean(p, st))
        return false;
    if (killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return true;
    return play_fail(p, st, "the server ended by %s %d", WIFEXITED(status) ? "exit" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}
