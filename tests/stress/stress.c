/* stress SECONDS SEED [kill]: the server under random clients, faults and restarts; see stress.h.
 *
 * Life: the origin and the clients are threads of this process, the server (HEADPONDD, else
 * build/asan/headpondd) is a child. The first four fifths of the time the origin is bent and the
 * server is stopped (or killed) now and then; then comes the calm, then the look at the gauges,
 * SIGTERM, and the look at the log.
 * Failure: the exit code; the last line is "stress: N passed, N failed". What was wrong is told,
 * and the directory with log and configuration is kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stress/stress.h"

enum {
    SETTLE_MS = 8000,                /* between the last fault and the calm */
    DRAIN_MS = 30000, END_SLACK_MS = 20000, READY_MS = 60000, GAUGES_MS = 20000,
    PAGE_BYTES = 1 * MIB, TELL_MS = 10000,
};

struct stress stress;
static uint64_t chance;              /* the dice of the faults */
static unsigned passed, failed;

static void verdict(bool good, const char *what)
{
    passed += good;
    failed += !good;
    printf("%s %s\n", good ? "ok" : "NOT OK", what);
    fflush(stdout);
}

/* ---- the world ---- */

static uint64_t size_of_thing(unsigned n)
{
    static const uint64_t edges[] = {0, 1, 4095, 4096, 128 * KIB, 128 * KIB + 1, MIB - 1, MIB,
                                     MIB + 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 16 * MIB};
    if (n < ARRAY_COUNT(edges))
        return edges[n];
    uint64_t kind = dice(&chance, 100);
    return kind < 55   ? dice(&chance, 256 * KIB)
           : kind < 80 ? dice(&chance, 3 * MIB)
           : kind < 93 ? dice(&chance, 12 * MIB)
                       : dice(&chance, 40 * MIB);
}

static bool tell_origin(const char *format, ...) printf_like(1, 2);
static bool tell_origin(const char *format, ...)
{
    char script[400], answer[400];
    struct text t;
    va_list more;
    va_start(more, format);
    vsnprintf(script, sizeof script, format, more);
    va_end(more);
    text_init(&t, answer, sizeof answer);
    bool good = origin_script(stress.origin, span_of(script), &t);
    if (!good)
        printf("origin: %s: %s\n", script, answer);
    must(good);
    return good;
}

static void make_things(void)
{
    for (unsigned i = 0; i < THINGS; i++) {
        struct thing *t = &stress.thing[i];
        unsigned n = (i * 7 + 3) % THINGS; /* sizes are spread over the hot and the cold */
        t->size = size_of_thing(n);
        t->version = 1;
        pthread_mutex_init(&t->lock, NULL);
        snprintf(t->key, sizeof t->key, "d%u/o%03u@%llu", i % 5, i, (unsigned long long)t->size);
        tell_origin("object %s %s version=1", STRESS_BUCKET, t->key);
    }
}

static void bump(struct thing *t)
{
    pthread_mutex_lock(&t->lock);
    tell_origin("bump %s %s", STRESS_BUCKET, t->key);
    t->version++;
    t->bump[t->bumps % BUMPS_KEPT].at_ms = clock_ms();
    t->bump[t->bumps++ % BUMPS_KEPT].version = t->version;
    pthread_mutex_unlock(&t->lock);
}

/* ---- the server ---- */

static uint16_t free_port(void)
{
    for (unsigned tries = 0; tries < 1000; tries++) {
        uint16_t port = (uint16_t)(20000 + random_u64() % 12000);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool good = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
        if (fd >= 0)
            close(fd);
        if (good)
            return port;
    }
    return 0;
}

static bool configure(void)
{
    const char *below = getenv("TMPDIR");
    snprintf(stress.dir, sizeof stress.dir, "%s/headpond-stress-XXXXXX",
             below && *below ? below : "/var/tmp");
    if (!mkdtemp(stress.dir))
        return false;
    snprintf(stress.log, sizeof stress.log, "%s/log", stress.dir);
    snprintf(stress.config, sizeof stress.config, "%s/headpond.toml", stress.dir);
    stress.port = free_port();
    do
        stress.admin_port = free_port();
    while (stress.admin_port == stress.port);
    FILE *f = fopen(stress.config, "we");
    if (!f)
        return false;
    fprintf(f,
            "[server]\nlisten = [\"127.0.0.1:%u\"]\nworkers = 2\nallow_root = %s\n"
            "drain_timeout = \"%us\"\n[admin]\nlisten = [\"unix:%s/admin.sock\", "
            "\"127.0.0.1:%u\"]\n[auth]\nanonymous = [\"127.0.0.0/8\"]\n"
            "[upstream]\nendpoint = \"http://127.0.0.1:%u\"\nregion = \"us-east-1\"\n"
            "path_style = \"path\"\nread_timeout = \"2s\"\nconnections = %llu\n"
            "[cache]\ndirs = [\"%s/disk\"]\nsize = \"%lluMiB\"\nmemory = \"%lluMiB\"\n"
            "min_free = \"64MiB\"\nttl = \"%llums\"\nnegative_ttl = \"%s\"\n",
            stress.port, geteuid() == 0 ? "true" : "false", DRAIN_MS / 1000, stress.dir,
            stress.admin_port, origin_port(stress.origin),
            (unsigned long long)(8 + dice(&chance, 2) * 56), stress.dir,
            (unsigned long long)stress.disk_mib, (unsigned long long)stress.memory_mib,
            (unsigned long long)stress.ttl_ms, dice(&chance, 2) ? "1s" : "0s");
    fclose(f);
    char disk[PATH_BYTES + 32];
    snprintf(disk, sizeof disk, "%s/disk", stress.dir);
    return mkdir(disk, 0700) == 0;
}

static bool start_server(void)
{
    char page[4096];
    uint64_t until = clock_ms() + READY_MS;
    int log = open(stress.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    pid_t parent = getpid();
    stress.pid = fork();
    if (stress.pid == 0) {
        char *arguments[] = {(char *)(uintptr_t)stress.program, "--config", stress.config, NULL};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("AWS_ACCESS_KEY_ID", "AKIDSTRESS", 1);
        setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-stress", 1);
        setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
        if (getppid() != parent || dup2(log, 1) < 0 || dup2(log, 2) < 0)
            _exit(127);
        execv(stress.program, arguments);
        _exit(127);
    }
    close(log);
    while (clock_ms() < until) {
        if (waitpid(stress.pid, NULL, WNOHANG) == stress.pid) {
            stress.pid = 0;
            return false;
        }
        if (stress_fetch(stress.port, "/-/ready", page, sizeof page) == 200) {
            atomic_store(&stress.gone_ms, clock_ms());
            return true;
        }
        poll(NULL, 0, 50);
    }
    return false;
}

static void print_metrics(const char *page)
{
    static const char *const shown[] = {
        "headpond_requests_in_flight", "headpond_fetches_in_flight", "headpond_buffers_",
        "headpond_upstream_connections", "headpond_connections{", "headpond_upstream_up"};
    struct span rest = span_of(page);
    while (rest.len > 0) {
        struct span line = span_cut(&rest, '\n');
        for (size_t i = 0; i < ARRAY_COUNT(shown); i++)
            if (span_starts(line, span_of(shown[i])))
                printf("#   %.*s\n", (int)line.len, line.at);
    }
}

/* Who is still being served shortly before the drain's deadline, and what the server does. */
static void tell_stragglers(void)
{
    static char page[PAGE_BYTES];
    for (unsigned i = 0; i < CLIENTS; i++) {
        uint64_t since = atomic_load(&stress.client[i].began_ms), now = clock_ms();
        if (since && now > since + 5000)
            printf("#   client %u for %llu ms: %s, has %llu bytes\n", i,
                   (unsigned long long)(now - since), stress.client[i].what,
                   (unsigned long long)atomic_load(&stress.client[i].got));
    }
    if (stress_fetch(stress.admin_port, "/metrics", page, sizeof page) == 200)
        print_metrics(page);
    fflush(stdout);
}

/* false: it did not end as it should. */
static bool end_server(int with)
{
    bool told = false;
    uint64_t began = clock_ms(), until = began + DRAIN_MS + END_SLACK_MS;
    int status = 0;
    if (stress.pid <= 0)
        return false;
    kill(stress.pid, with);
    while (waitpid(stress.pid, &status, WNOHANG) == 0) {
        if (!told && clock_ms() > began + DRAIN_MS - 2000) {
            told = true;
            tell_stragglers();
        }
        if (clock_ms() > until) {
            stress_wrong("the server does not end after SIGTERM");
            kill(stress.pid, SIGABRT);
            waitpid(stress.pid, &status, 0);
            break;
        }
        poll(NULL, 0, 20);
    }
    stress.pid = 0;
    bool good = with == SIGKILL || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (!good)
        stress_wrong("the server ended by %s %d after %llu ms",
                     WIFEXITED(status) ? "exit" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                     (unsigned long long)(clock_ms() - began));
    return good;
}

static bool is_alive(void)
{
    int status;
    if (stress.pid <= 0 || waitpid(stress.pid, &status, WNOHANG) != stress.pid)
        return stress.pid > 0;
    stress.pid = 0;
    stress_wrong("the server died by %s %d", WIFEXITED(status) ? "exit" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return false;
}

/* ---- faults ---- */

static void bend(void)
{
    uint64_t *r = &chance;
    unsigned count = 1 + (unsigned)dice(r, 6);
    struct thing *t = &stress.thing[dice(r, THINGS)];
    unsigned long long at = dice(r, dice(r, 2) ? 300000 : 9 * MIB);
    switch (dice(r, 20)) {
    case 0: tell_origin("next * count=%u cut=%llu", count, at); break;
    case 1: tell_origin("next * count=%u cut=%llu reset=1", count, at); break;
    case 2: tell_origin("next * count=%u reset=1", count); break;
    case 3: tell_origin("next * count=%u status=503 code=SlowDown", count); break;
    case 4: tell_origin("next * count=%u delay=%llu", count, at % 1500); break;
    case 5: tell_origin("next * stall=%llu", at); break;
    case 6: tell_origin("next * silent=1"); break;
    case 7: tell_origin("next * count=%u ignore_range=1", count); break;
    case 8: tell_origin("next * count=%u chunked=1", count); break;
    case 9: tell_origin("next * count=%u extra=%llu", count, 1 + at % 5000); break;
    case 10: tell_origin("next * count=%u close=1", count); break;
    case 11: tell_origin("next * drip=1 pad=%llu", at % 3000); break;
    case 12: tell_origin("next * etag=none"); break;
    case 13: tell_origin("next * status=404 code=NoSuchKey"); break;
    case 14: tell_origin("next * raw=\"nonsense\\r\\n\\r\\n\" close=1"); break;
    case 15: tell_origin("next * content_range=none"); break;
    case 16: tell_origin("next * count=%u rate=%llu", count, 3 * MIB + at); break;
    case 17: tell_origin("next * length=none close=1"); break;
    case 18: bump(t); break;
    default:
        for (unsigned i = 0; i < count * 4; i++) /* hot ones are replaced more often */
            bump(&stress.thing[dice(r, THINGS / 4)]);
        break;
    }
}

static void break_badly(void)
{
    switch (dice(&chance, 6)) {
    case 0: tell_origin("cut"); break;
    case 1:
        tell_origin("listen off");
        tell_origin("cut");
        poll(NULL, 0, 100 + (int)dice(&chance, 1500));
        tell_origin("listen on");
        break;
    case 2: tell_origin("set * total_rate=%llu", (unsigned long long)dice(&chance, 20 * MIB) + MIB);
        break;
    case 3: tell_origin("set * delay=%llu", (unsigned long long)dice(&chance, 200)); break;
    default: tell_origin("unset *"); break;
    }
}

static void begin_again(void)
{
    bool killed = stress.kills && dice(&chance, 3) > 0;
    tell_origin("clear");            /* a throttled answer may rightly outlast the drain */
    printf("# %s and start\n", killed ? "SIGKILL" : "SIGTERM");
    fflush(stdout);
    atomic_store(&stress.gone_ms, UINT64_MAX);
    end_server(killed ? SIGKILL : SIGTERM);
    if (!start_server())
        stress_wrong("the server does not start again");
}

/* ---- watching ---- */

static void tell_progress(void)
{
    static uint64_t next_ms, last;
    uint64_t now = clock_ms();
    if (now < next_ms)
        return;
    next_ms = now + TELL_MS;
    uint64_t bytes = atomic_load(&stress.bytes);
    printf("# %llu requests (whole %llu, error %llu, cut %llu, left %llu, refused %llu, wrong "
           "%llu), %llu MiB more\n",
           (unsigned long long)atomic_load(&stress.requests),
           (unsigned long long)atomic_load(&stress.outcome[OUT_WHOLE]),
           (unsigned long long)atomic_load(&stress.outcome[OUT_ERROR]),
           (unsigned long long)atomic_load(&stress.outcome[OUT_CUT]),
           (unsigned long long)atomic_load(&stress.outcome[OUT_LEFT]),
           (unsigned long long)atomic_load(&stress.outcome[OUT_REFUSED]),
           (unsigned long long)atomic_load(&stress.outcome[OUT_WRONG]),
           (unsigned long long)((bytes - last) / MIB));
    last = bytes;
    fflush(stdout);
}

/* Waits until a request hangs no more; the watchdog's half of the clients' own limit. */
static bool nobody_hangs(void)
{
    uint64_t now = clock_ms();
    for (unsigned i = 0; i < CLIENTS; i++) {
        uint64_t began = atomic_load(&stress.client[i].began_ms);
        if (began == 0 || now < began + REQUEST_MS)
            continue;
        static char page[PAGE_BYTES];
        stress_wrong("client %u hangs: %s", i, stress.client[i].what);
        if (stress_fetch(stress.admin_port, "/metrics", page, sizeof page) != 200)
            stress_wrong("no metrics any more");
        print_metrics(page);
        return false;
    }
    return true;
}

/* The sum over the series of a gauge, or -1. */
static double gauge(const char *page, const char *name, const char *label)
{
    double sum = 0;
    bool found = false;
    struct span rest = span_of(page);
    while (rest.len > 0) {
        struct span line = span_cut(&rest, '\n');
        if (!span_starts(line, span_of(name)))
            continue;
        char text[300];
        snprintf(text, sizeof text, "%.*s", (int)line.len, line.at);
        const char *number = strrchr(text, ' ');
        if (!number || (label[0] && !strstr(text, label)))
            continue;
        sum += strtod(number, NULL);
        found = true;
    }
    return found ? sum : -1;
}

static void look_at_gauges(void)
{
    static char page[PAGE_BYTES];
    static const struct {
        const char *name, *label;
    } wanted[] = {{"headpond_requests_in_flight", ""},
                  {"headpond_fetches_in_flight", ""},
                  {"headpond_buffers_held_bytes", ""},
                  {"headpond_upstream_connections", "state=\"active\""},
                  {"headpond_connections{", "state=\"active\""}};
    uint64_t until = clock_ms() + GAUGES_MS;
    bool good = false;
    while (!good && clock_ms() < until) {
        good = stress_fetch(stress.admin_port, "/metrics", page, sizeof page) == 200 &&
               gauge(page, wanted[0].name, "") >= 0;
        for (size_t i = 0; good && i < ARRAY_COUNT(wanted); i++)
            good = gauge(page, wanted[i].name, wanted[i].label) <= 0;
        if (!good)
            poll(NULL, 0, 200);
    }
    if (!good)
        print_metrics(page);
    verdict(good, "all gauges are back at zero");
    good = gauge(page, "headpond_checksum_failures_total", "") <= 0;
    verdict(good, "no checksum failed");
}

static void look_at_log(void)
{
    static const char *const bad[] = {"Sanitizer", "runtime error:", "panic", "must("};
    FILE *f = fopen(stress.log, "re");
    char line[4096];
    bool good = f != NULL;
    while (f && fgets(line, sizeof line, f))
        for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
            if (strstr(line, bad[i])) {
                printf("#   %.300s", line);
                good = false;
            }
    if (f)
        fclose(f);
    verdict(good, "no report of a sanitizer, no panic");
}

/* ---- the run ---- */

static bool goes_on(uint64_t until_ms)
{
    tell_progress();
    return clock_ms() < until_ms && atomic_load(&stress.wrongs) == 0 && is_alive() &&
           nobody_hangs();
}

static void run(void)
{
    uint64_t began = clock_ms(), end = began + stress.seconds * 1000,
             storm = began + stress.seconds * 800;
    uint64_t again = clock_ms() + stress.seconds * 1000 / 3;
    while (goes_on(storm)) {
        poll(NULL, 0, 50 + (int)dice(&chance, 350));
        bend();
        if (dice(&chance, 25) == 0)
            break_badly();
        if (clock_ms() >= again) {
            begin_again();
            again = clock_ms() + (stress.kills ? 3000 + dice(&chance, 9000)
                                               : stress.seconds * 1000 / 2);
        }
    }
    tell_origin("clear");
    for (uint64_t settled = clock_ms() + SETTLE_MS; goes_on(settled);)
        poll(NULL, 0, 100);
    printf("# calm\n");
    atomic_store(&stress.calm_ms, clock_ms());
    while (goes_on(end + SETTLE_MS)) {
        poll(NULL, 0, 100);
        if (dice(&chance, 10) == 0)
            bump(&stress.thing[dice(&chance, THINGS)]);
    }
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *ftw)
{
    (void)s;
    (void)type;
    (void)ftw;
    return remove(path);
}

static bool begin(void)
{
    char why[200];
    struct origin_options options = {.quiet = true};
    uint64_t ttls[] = {0, 0, 1000, 60000};
    chance = stress.seed * 0x9e3779b97f4a7c15ULL + 1;
    stress.ttl_ms = ttls[dice(&chance, 4)];
    stress.memory_mib = 64;
    stress.disk_mib = 128 + dice(&chance, 2) * 128;
    stress.origin = origin_start(&options, why);
    if (!stress.origin || !configure())
        return false;
    make_things();
    printf("# seed %llu: ttl %llu ms, disk %llu MiB, %s; %s\n", (unsigned long long)stress.seed,
           (unsigned long long)stress.ttl_ms, (unsigned long long)stress.disk_mib,
           stress.kills ? "with kills" : "no kills", stress.dir);
    return start_server();
}

int main(int argc, char **argv)
{
    if (argc < 3 || span_u64(span_of(argv[1]), &stress.seconds) != OK ||
        span_u64(span_of(argv[2]), &stress.seed) != OK) {
        printf("usage: stress SECONDS SEED [kill]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    stress.kills = argc > 3 && strcmp(argv[3], "kill") == 0;
    stress.program = getenv("HEADPONDD") ? getenv("HEADPONDD") : "build/asan/headpondd";
    if (!begin()) {
        printf("the server does not start: see %s\nstress: 0 passed, 1 failed\n", stress.log);
        return 1;
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        stress.client[i].random = (stress.seed + 1) * 1000003 + i;
        must(pthread_create(&stress.client[i].thread, NULL, client_main, (void *)(uintptr_t)i) ==
             0);
    }
    run();
    atomic_store(&stress.over, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(stress.client[i].thread, NULL);
    verdict(atomic_load(&stress.wrongs) == 0, "every answer was right and in time");
    if (stress.pid > 0)
        look_at_gauges();
    verdict(end_server(SIGTERM), "SIGTERM ends it in time with exit 0");
    look_at_log();
    if (failed == 0)
        nftw(stress.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    else
        printf("# kept %s\n", stress.dir);
    origin_stop(stress.origin);
    printf("stress: %u passed, %u failed\n", passed, failed);
    return failed != 0;
}
