/* headpond setup: from an installed package to a service that runs: user, file, directories, unit.
 *
 * Invariants:
 *  1. Everything is looked at before anything is changed: who lacks a right, or would write over a
 *     file, changes nothing. --force puts the old file aside, it is never lost.
 *  2. What is as it should be stays as it is: a second run with the same words changes nothing.
 *  3. The file is whole or not there: written beside its place, checked as the server checks it,
 *     then renamed.
 *  4. With DESTDIR set all of it is done below that directory, and nothing is started: for packages
 *     and for tests.
 *
 * Life: one run, as root. Failure: one sentence with the cause and what to do; 2: the words or what
 * they would make is wrong. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf.h"
#include "server/ctl/ctl.h"

enum {
    FILE_BYTES = 16 * KIB,
    SETUP_PATH_BYTES = 4096, SETUP_ASIDE_BYTES = SETUP_PATH_BYTES + 16, SETUP_ASIDE_MAX = 1000,
    COMMAND_MS = 60 * 1000,
    READY_MS = 60 * 1000
};

#define SETUP_FILE "/etc/headpond/headpond.toml"
#define SETUP_UNIT "/etc/systemd/system/headpond.service"

struct setup {
    struct ctl *c;
    const char *root;                /* DESTDIR, or "" */
    char text[FILE_BYTES];           /* of the file */
    bool same, old;                  /* the file is there already: the same, or another */
    bool systemd, unit;              /* it runs here; the unit is installed */
    bool wrote;                      /* what a server that runs has not read */
    uid_t uid;
    gid_t gid;
};

static int fail_setup(int code, const char *format, ...) printf_like(2, 3);
static int fail_setup(int code, const char *format, ...)
{
    va_list args;

    fputs("headpond: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return code;
}

/* One step that was taken, or was not necessary. */
static void tell_step(const struct setup *s, const char *did, const char *what)
{
    if (s->c->json) {
        json_t *line = json_pack("{s:i,s:s,s:s}", "v", 1, "did", did, "what", what);
        ctl_print_json(line);
        json_decref(line);
    } else if (!s->c->quiet) {
        printf("%s %s\n", did, what);
    }
}

static const char *below(const struct setup *s, const char *path, char out[SETUP_PATH_BYTES])
{
    snprintf(out, SETUP_PATH_BYTES, "%s%s", s->root, path);
    return out;
}

/* ---- the file ---- */

/* A JSON text is a TOML basic string, too. */
static void add_quoted(struct text *t, const char *value)
{
    json_t *text = json_string(value);
    char memory[2 * SETUP_PATH_BYTES];
    size_t len = text ? json_dumpb(text, memory, sizeof memory, JSON_ENCODE_ANY) : 0;

    json_decref(text);
    if (len == 0 || len > sizeof memory)
        text_adds(t, "\"\"");        /* no UTF-8: the check refuses it */
    else
        text_add(t, span_make(memory, len));
}

static void write_text(struct setup *s)
{
    const struct ctl *c = s->c;
    struct text t;

    text_init(&t, s->text, sizeof s->text);
    text_adds(&t,
              "# Written by headpond setup. All options: headpond man headpond.toml | man -l -\n"
              "# Check it with headpondd check, apply it with systemctl reload headpond.\n"
              "[upstream]\nendpoint = ");
    add_quoted(&t, c->upstream);
    text_adds(&t, "\n\n[cache]\ndirs = [");
    for (unsigned i = 0; i < c->dir_count; i++) {
        text_adds(&t, i ? ", " : "");
        add_quoted(&t, c->dir[i]);
    }
    text_adds(&t, "]\n");
}

/* As the server will read it, but for the environment, which it has of its own. */
static int check_text(struct setup *s)
{
    static struct conf_mistakes mistakes;
    char *const nothing[] = {NULL};
    struct config *config = NULL;

    if (conf_parse(span_of(s->text), SETUP_FILE, nothing, NULL, 0, &config, &mistakes) == OK) {
        conf_give(config);
        return CTL_DONE;
    }
    for (unsigned i = 0; i < mistakes.count && i < CONF_MISTAKES_MAX; i++)
        fprintf(stderr, "%s\n", mistakes.item[i].text);
    return fail_setup(CTL_USAGE, "the server would refuse this; nothing was changed");
}

static int look_at_file(struct setup *s)
{
    char path[SETUP_PATH_BYTES], why[CTL_WHY_BYTES], *bytes;
    struct text t;
    size_t len;

    text_init(&t, why, sizeof why);
    enum err e = creds_file(below(s, SETUP_FILE, path), false, &bytes, &len, &t);
    if (e == ERR_NOT_FOUND)
        return CTL_DONE;
    if (e != OK)
        return fail_setup(CTL_FAILED, "%s", why);
    s->same = len == strlen(s->text) && memcmp(bytes, s->text, len) == 0;
    s->old = !s->same;
    mem_give_secret(bytes, len + 1);
    if (s->old && !s->c->force)
        return fail_setup(CTL_FAILED, "%s is there already and says something else: change it by "
                                      "hand, or --force puts it aside; nothing was changed", path);
    return CTL_DONE;
}

static int fail_errno_at(const char *what, const char *path)
{
    return fail_setup(errno == EACCES || errno == EPERM ? CTL_DENIED : CTL_FAILED, "%s %s: %s",
                      what, path, strerrordesc_np(errno));
}

/* With all directories above. */
static int make_parents(const char *path)
{
    char part[SETUP_PATH_BYTES];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0755) == 0)
            chmod(part, 0755);       /* whatever the umask: the server's user passes through */
        else if (errno != EEXIST)
            return fail_errno_at("cannot make", part);
    }
    return CTL_DONE;
}

/* Beside its place, then renamed. */
static int write_file(struct setup *s, const char *path, const char *text)
{
    char new_[SETUP_PATH_BYTES + 8];

    int code = make_parents(path);
    if (code != CTL_DONE)
        return code;
    snprintf(new_, sizeof new_, "%s.new", path);
    unlink(new_);
    int fd = open(new_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return fail_errno_at("cannot write", new_);
    size_t len = strlen(text);
    bool good = write(fd, text, len) == (ssize_t)len && fchmod(fd, 0644) == 0 && fsync(fd) == 0;
    if (close(fd) != 0 || !good || rename(new_, path) != 0)
        return fail_errno_at("cannot write", path);
    s->wrote = true;
    tell_step(s, "wrote", path);
    return CTL_DONE;
}

static bool is_as_written(const char *path, const char *text)
{
    char why[CTL_WHY_BYTES], *bytes;
    struct text t;
    size_t len;

    text_init(&t, why, sizeof why);
    if (creds_file(path, false, &bytes, &len, &t) != OK)
        return false;
    bool same = len == strlen(text) && memcmp(bytes, text, len) == 0;
    mem_give_secret(bytes, len + 1);
    return same;
}

/* As .old, or .old.2, ...: what was put aside before stays. A link: until the new one is there,
 * this one is. */
static bool put_aside(const char *path, char aside[SETUP_ASIDE_BYTES])
{
    snprintf(aside, SETUP_ASIDE_BYTES, "%s.old", path);
    for (unsigned n = 2; n <= SETUP_ASIDE_MAX; n++) {
        if (link(path, aside) == 0)
            return true;
        if (errno != EEXIST)
            return false;
        snprintf(aside, SETUP_ASIDE_BYTES, "%s.old.%u", path, n);
    }
    return false;
}

static int put_file(struct setup *s)
{
    char path[SETUP_PATH_BYTES], aside[SETUP_ASIDE_BYTES];

    below(s, SETUP_FILE, path);
    if (s->same) {
        tell_step(s, "kept", path);
        return CTL_DONE;
    }
    if (s->old && !put_aside(path, aside))
        return fail_errno_at("cannot put aside", path);
    if (s->old)
        tell_step(s, "put the old file aside as", aside);
    return write_file(s, path, s->text);
}

/* ---- cache directories ---- */

static bool is_below(const char *path, const char *top)
{
    size_t len = strlen(top);

    return strncmp(path, top, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    unsigned count = 0;

    while (d && count < 3 && readdir(d))
        count++;
    if (d)
        closedir(d);
    return d && count < 3;           /* . and .. */
}

/* What the unit hides from the server, and what is somebody's. */
static int check_dir(struct setup *s, const char *dir)
{
    static const char *const hidden[] = {"/home", "/root", "/run/user", "/tmp", "/var/tmp"};
    char path[SETUP_PATH_BYTES];
    struct stat st;

    if (dir[0] != '/' || strstr(dir, "/../") || strchr(dir, '\n') || strchr(dir, '%') ||
        strchr(dir, ' ') || strlen(dir) + strlen(s->root) + 8 > SETUP_PATH_BYTES)
        return fail_setup(CTL_USAGE, "--cache \"%.80s\": write a whole path, as /nvme0/headpond",
                          dir);
    for (unsigned i = 0; i < ARRAY_COUNT(hidden); i++)
        if (is_below(dir, hidden[i]))
            return fail_setup(CTL_USAGE, "--cache %s: the service does not see %s (ProtectHome, "
                                         "PrivateTmp in its unit): take a directory on an NVMe",
                              dir, hidden[i]);
    if (lstat(below(s, dir, path), &st) != 0)
        return errno == ENOENT ? CTL_DONE : fail_errno_at("cannot look at", path);
    if (!S_ISDIR(st.st_mode))
        return fail_setup(CTL_FAILED, "%s is no directory: name another one", path);
    if (st.st_uid != s->uid && !is_empty(path))
        return fail_setup(CTL_FAILED, "%s holds files of somebody else: name an empty directory, "
                                      "such as %s/headpond", path, path);
    return CTL_DONE;
}

static int put_dir(struct setup *s, const char *dir)
{
    char path[SETUP_PATH_BYTES];

    int code = make_parents(below(s, dir, path));
    if (code != CTL_DONE)
        return code;
    bool made = mkdir(path, 0700) == 0;
    if (!made && errno != EEXIST)
        return fail_errno_at("cannot make", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool good = fd >= 0 && fchmod(fd, 0700) == 0 &&
        (geteuid() != 0 || fchown(fd, s->uid, s->gid) == 0);
    if (fd >= 0)
        close(fd);
    if (!good)
        return fail_errno_at("cannot give to the server's user", path);
    tell_step(s, made ? "made" : "use", path);
    return CTL_DONE;
}

/* ---- user and unit ---- */

static bool find_user(struct setup *s)
{
    const struct passwd *user = getpwnam("headpond");

    s->uid = user ? user->pw_uid : geteuid();
    s->gid = user ? user->pw_gid : getegid();
    return user != NULL;
}

static int run_command(const struct setup *s, const char *const argv[])
{
    char memory[KIB], line[SETUP_PATH_BYTES];
    struct text out, shown;

    text_init(&out, memory, sizeof memory);
    text_init(&shown, line, sizeof line);
    for (unsigned i = 0; argv[i]; i++)
        text_addf(&shown, "%s%s", i ? " " : "", argv[i]);
    if (!program_run(argv, COMMAND_MS, &out))
        return fail_setup(CTL_FAILED, "this failed; run it by hand to see why: %s", line);
    tell_step(s, "ran", line);
    return CTL_DONE;
}

static int put_user(struct setup *s)
{
    static const char *const argv[] = {"useradd", "--system", "--home-dir", "/var/cache/headpond",
                                       "--shell", "/usr/sbin/nologin", "headpond", NULL};

    if (s->root[0] || find_user(s))
        return CTL_DONE;
    int code = run_command(s, argv);
    if (code == CTL_DONE && !find_user(s))
        code = fail_setup(CTL_FAILED, "useradd made no user headpond; make one by hand");
    return code;
}

/* Directories that the unit does not let its server write to yet. */
static int put_paths(struct setup *s)
{
    static const char *const known[] = {"/nvme0", "/nvme1", "/nvme2", "/nvme3",
                                        "/var/cache/headpond"};
    char memory[FILE_BYTES], path[SETUP_PATH_BYTES];
    bool any = false;
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_adds(&t, "# Written by headpond setup: cache directories that the unit does not name.\n"
                  "[Service]\n");
    for (unsigned i = 0; i < s->c->dir_count; i++) {
        bool named = false;
        for (unsigned k = 0; k < ARRAY_COUNT(known); k++)
            named = named || is_below(s->c->dir[i], known[k]);
        if (!named)
            text_addf(&t, "ReadWritePaths=-%s\n", s->c->dir[i]);
        any = any || !named;
    }
    if (!any)
        return CTL_DONE;
    if (!is_as_written(below(s, SETUP_UNIT ".d/cache.conf", path), memory))
        return write_file(s, path, memory);
    tell_step(s, "kept", path);
    return CTL_DONE;
}

static int put_unit(struct setup *s)
{
    char root[SETUP_PATH_BYTES];
    const char *const enable[] = {"systemctl", root, "enable", "headpond.service", NULL};
    static const char *const reload[] = {"systemctl", "daemon-reload", NULL};
    static const char *const on[] = {"systemctl", "enable", "headpond.service", NULL};

    if (!s->unit)
        return CTL_DONE;
    snprintf(root, sizeof root, "--root=%s", s->root);
    int code = put_paths(s);
    if (code == CTL_DONE && s->root[0])
        return run_command(s, enable);
    if (!s->systemd)
        return code;
    if (code == CTL_DONE)
        code = run_command(s, reload);
    if (code == CTL_DONE)
        code = run_command(s, on);
    const char *verb = s->wrote ? "restart" : "start"; /* who serves is not disturbed for nothing */
    const char *const run[] = {"systemctl", verb, "headpond.service", NULL};
    return code == CTL_DONE ? run_command(s, run) : code;
}

/* ---- all of it ---- */

static int look(struct setup *s)
{
    char path[SETUP_PATH_BYTES];

    if (!s->c->upstream || s->c->dir_count == 0)
        return fail_setup(CTL_USAGE, "say where the store is and where the cache goes: headpond "
                                     "setup --upstream https://s3.eu-central-1.amazonaws.com "
                                     "--cache /nvme0/headpond");
    write_text(s);
    int code = check_text(s);
    find_user(s);
    for (unsigned i = 0; i < s->c->dir_count && code == CTL_DONE; i++)
        code = check_dir(s, s->c->dir[i]);
    if (code == CTL_DONE && !s->root[0] && geteuid() != 0)
        code = fail_setup(CTL_DENIED, "only root may set the service up: sudo headpond setup ...");
    if (code == CTL_DONE)
        code = look_at_file(s);
    s->unit = access(below(s, SETUP_UNIT, path), F_OK) == 0;
    s->systemd = access("/run/systemd/system", F_OK) == 0;
    return code;
}

static void tell_next(const struct setup *s, bool runs)
{
    if (!s->unit)
        ctl_say(s->c, "no unit is installed: sudo make install puts it into place; until then, as "
                      "the user headpond: headpondd\n");
    else if (!runs)
        ctl_say(s->c, "systemd does not run here: start it with systemctl start headpond, or as "
                      "the user headpond: headpondd\n");
    ctl_say(s->c,
            "Credentials of the store: AWS_ACCESS_KEY_ID=... and AWS_SECRET_ACCESS_KEY=... in "
            "/etc/headpond/upstream.env (mode 0600), then systemctl restart headpond\n"
            "Clients here: eval \"$(headpond env)\"   Others: server.listen and "
            "auth.keys_file in " SETUP_FILE "\n"
            "What it gives: headpond bench s3://BUCKET/KEY\n");
}

static int finish(struct setup *s)
{
    bool runs = s->unit && s->systemd && !s->root[0];
    int code = CTL_DONE;

    fflush(stdout);
    if (runs) {
        s->c->wait_ms = READY_MS;
        code = ready_run(s->c);
        if (code != CTL_DONE)
            ctl_say(s->c, "journalctl -u headpond -n 20 tells why\n");
    }
    if (!s->root[0]) {
        int found = doctor_run(s->c);
        code = code == CTL_DONE ? found : code;
    }
    tell_next(s, runs);
    return code;
}

int setup_run(struct ctl *c)
{
    static struct setup s;
    const char *root = getenv("DESTDIR");

    s = (struct setup){.c = c, .root = root ? root : ""};
    int code = look(&s);
    if (code == CTL_DONE)
        code = put_user(&s);
    for (unsigned i = 0; i < c->dir_count && code == CTL_DONE; i++)
        code = put_dir(&s, c->dir[i]);
    if (code == CTL_DONE)
        code = put_file(&s);
    if (code == CTL_DONE)
        code = put_unit(&s);
    return code == CTL_DONE ? finish(&s) : code;
}
