/* headpondd: options, birth and mirrored death of the parts, signals.
 *
 * Invariants:
 *  1. Parts are born floor by floor and die in the mirrored order; the cache opens before any
 *     thread exists, as it forks a child that checks the index.
 *  2. A start that fails says cause and fix on stderr and exits 1, or 2 for usage and
 *     configuration: where another try would end the same. What a start would refuse of a
 *     configuration, a check and a reload refuse, but for what somebody must be asked for: a name
 *     that has public addresses only, where plain HTTP would be spoken.
 *  3. The first SIGTERM or SIGINT drains; a second one, or server.drain_timeout, cuts. Behind an
 *     end asked for over the control plane the first signal means the same end.
 *  4. SIGHUP reloads: all that the new configuration names is made before anything changes, so that
 *     a mistake changes nothing. Cores take it by message, between two turns; one reload at a time.
 *     New credentials go the same way; SIGUSR1 is how the thread that got them wakes main.
 *
 * Life: the process.
 * Failure: a part that cannot be born ends the process; what was born before it is left to the
 * kernel, as nobody was told READY yet. A core that does not drain in time is cut. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "http.h"
#include "log.h"
#include "server/admin/admin.h"
#include "server/jobs/jobs.h"
#include "server/s3/s3.h"
#include "sign.h"
#include "tls.h"
#include "xml.h"

extern char **environ;

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { FLAGS_MAX = 256, RECV_BUFFERS = 1024 };

struct wish {                        /* what the command line asks for */
    enum { WISH_SERVE, WISH_CHECK, WISH_LIST, WISH_PRINT } what;
    const char *file;
    bool json;
    struct conf_flag flag[FLAGS_MAX];
    unsigned flag_count;             /* beyond FLAGS_MAX: so many did not fit */
};

static const char usage[] =
    "usage: headpondd [serve] [--config FILE] [--upstream URL] [--cache DIR]... [--size SIZE] "
    "[--listen ADDR]...\n"
    "                 [--set SECTION.KEY=VALUE]... [--allow-root] [--print-config]\n"
    "       headpondd check [--config FILE] [--json]   exit 0, or 2 with file:line:column\n"
    "       headpondd check --list                     every option with its default\n"
    "       headpondd --version\n"
    "Without --config, $HEADPOND_CONFIG or /etc/headpond/headpond.toml is read if it exists.\n";

/* ---- command line ---- */

static void add_flag(struct wish *w, const char *key, const char *value)
{
    if (w->flag_count < FLAGS_MAX)
        w->flag[w->flag_count] = (struct conf_flag){key, value};
    w->flag_count++;
}

static bool add_setting(struct wish *w, char *setting)
{
    char *equals = strchr(setting, '=');
    if (!equals || equals == setting)
        return false;
    *equals = '\0';
    add_flag(w, setting, equals + 1);
    return true;
}

enum flag {
    FLAG_NONE = 1000,                /* no letter */
#define X(id, name, value, help) id,
#include "table/flags.h"
#undef X
};

static const struct option long_options[] = {
#define X(id, name, value, help)                                                                   \
    {name, (value) != NULL ? required_argument : no_argument, NULL, id},
#include "table/flags.h"
#undef X
    {NULL, 0, NULL, 0},
};

/* Returns -1 to go on, else the exit code. */
static int take_option(struct wish *w, int option)
{
    switch (option) {
    case FLAG_CONFIG: w->file = optarg; return -1;
    case FLAG_UPSTREAM: add_flag(w, "upstream.endpoint", optarg); return -1;
    case FLAG_CACHE: add_flag(w, "cache.dirs", optarg); return -1;
    case FLAG_SIZE: add_flag(w, "cache.size", optarg); return -1;
    case FLAG_LISTEN: add_flag(w, "server.listen", optarg); return -1;
    case FLAG_SET:
        return add_setting(w, optarg)
                   ? -1
                   : (fputs("--set wants SECTION.KEY=VALUE\n", stderr), EXIT_USAGE);
    case FLAG_ROOT: add_flag(w, "server.allow_root", "true"); return -1;
    case FLAG_PRINT: w->what = WISH_PRINT; return -1;
    case FLAG_JSON: w->json = true; return -1;
    case FLAG_LIST: w->what = WISH_LIST; return -1;
    case FLAG_VERSION:
        printf("headpondd %s (%s)\n", HEADPOND_VERSION, HEADPOND_REVISION);
        return EXIT_DONE;
    case FLAG_HELP: fputs(usage, stdout); return EXIT_DONE;
    default: fputs(usage, stderr); return EXIT_USAGE;
    }
}

static bool is_absent(const char *path)
{
    return path[0] && access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

static int read_command_line(int argc, char **argv, struct wish *w)
{
    static const char standard_file[] = "/etc/headpond/headpond.toml";
    int option;
    /* No thread is there yet. NOLINTNEXTLINE(concurrency-mt-unsafe) */
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        int code = take_option(w, option);
        if (code >= 0)
            return code;
    }
    if (w->flag_count > FLAGS_MAX) {
        fprintf(stderr, "headpondd: more than %d settings; write them into a file, for --config\n",
                FLAGS_MAX);
        return EXIT_USAGE;
    }
    const char *verb = optind < argc ? argv[optind++] : "serve";
    if (optind < argc || (strcmp(verb, "serve") != 0 && strcmp(verb, "check") != 0)) {
        fprintf(stderr, "headpondd: unknown word \"%s\"\n%s", optind < argc ? argv[optind] : verb,
                usage);
        return EXIT_USAGE;
    }
    if (verb[0] == 'c' && w->what == WISH_SERVE)
        w->what = WISH_CHECK;
    if (!w->file)
        w->file = getenv("HEADPOND_CONFIG");
    if (!w->file && !is_absent(standard_file))
        w->file = standard_file;     /* also one that may not be read: that is told */
    return -1;
}

/* ---- what needs no server ---- */

/* One object per line; control characters, which JSON forbids in a string, become blanks. */
static void print_mistake_json(const char *mistake)
{
    char memory[KIB];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    for (const char *c = mistake; *c; c++) {
        if (*c == '"' || *c == '\\')
            text_addc(&t, '\\');
        text_addc(&t, (unsigned char)*c < 0x20 ? ' ' : *c);
    }
    printf("{\"v\":1,\"error\":\"%s\"}\n", t.at);
}

static void print_mistakes(const struct conf_mistakes *m, bool json)
{
    unsigned shown = m->count < CONF_MISTAKES_MAX ? m->count : CONF_MISTAKES_MAX;
    for (unsigned i = 0; i < shown; i++) {
        if (json)
            print_mistake_json(m->item[i].text);
        else
            fprintf(stderr, "%s\n", m->item[i].text);
    }
    fprintf(stderr, "%u error%s\n", m->count, m->count == 1 ? "" : "s");
}

static int print_text(void (*write_it)(struct text *))
{
    static char memory[256 * KIB];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    write_it(&t);
    fputs(t.at, stdout);
    return EXIT_DONE;
}

static int print_effective(const struct config *c)
{
    static char memory[256 * KIB];
    struct text t;
    text_init(&t, memory, sizeof(memory));
    conf_print(c, &t);
    fputs(t.at, stdout);
    return EXIT_DONE;
}

static bool same_store(const struct config *c, const struct config *now, unsigned upstream)
{
    return now && upstream < now->upstream_count &&
           strcmp(c->upstream[upstream].endpoint, now->upstream[upstream].endpoint) == 0;
}

/* What parts make of it at a start: the first error. now: of the server that runs, or NULL. */
static enum err check_parts(const struct config *c, const struct config *now,
                            struct conf_mistakes *m)
{
    enum err first = OK, e;
    for (unsigned i = 0; i < c->upstream_count; i++) {
        e = origin_check(&c->upstream[i], same_store(c, now, i), m);
        first = first == OK ? e : first;
    }
    e = admin_check(c, m);
    return first == OK ? e : first;
}

/* All mistakes of what the configuration of the start names. */
static enum err open_settings(struct server *s, struct conf_mistakes *m)
{
    enum err e = settings_open(s, m), parts = check_parts(s->config, NULL, m);
    if (e == OK && parts != OK)
        settings_close(s);
    return e == OK ? parts : e;
}

/* Keys, credentials and certificate are looked at as a start or a reload would. */
static int check_files(const struct config *config, struct conf_mistakes *mistakes, bool json)
{
    struct server s = {.config = config};
    enum err e = sign_setup();
    if (e != OK) {
        fprintf(stderr, "headpondd: OpenSSL does not start: %s\n", err_text(e));
        return EXIT_FAILED;
    }
    if (open_settings(&s, mistakes) != OK) {
        print_mistakes(mistakes, json);
        return EXIT_USAGE;
    }
    settings_close(&s);
    puts(json ? "{\"v\":1,\"ok\":true}" : "ok");
    return EXIT_DONE;
}

/* ---- the start ---- */

static const struct plan_ops plan_ops = {.make = plan_body_make, .take = plan_body_take,
                                         .leave = plan_body_free, .post = plan_text_post,
                                         .tell = plan_text, .drop = plan_text_drop};

/* "cause; fix": a value of its own for each, as the log cuts long ones. */
static int fail_start(const char *part, const char *why)
{
    const char *mark = strstr(why, "; ");

    if (mark)
        log_event(EVENT_START_FAILED, "part=%s why=%s fix=%s", part,
                  log_value(span_make(why, (size_t)(mark - why))),
                  log_value(span_of(mark + strlen("; "))));
    else
        log_event(EVENT_START_FAILED, "part=%s why=%s", part, log_value(span_of(why)));
    return EXIT_FAILED;
}

static void name_server(struct server *s)
{
    uint8_t mark[4];
    char hex[9] = "";
    random_bytes(mark, sizeof(mark));
    for (unsigned i = 0; i < sizeof(mark); i++)
        snprintf(hex + 2 * i, 3, "%02x", mark[i]);
    if (s->config->server_name[0])
        snprintf(s->name, sizeof(s->name), "%s", s->config->server_name);
    else if (gethostname(s->name, sizeof(s->name) - 1) != 0 || !s->name[0])
        snprintf(s->name, sizeof(s->name), "headpond");
    snprintf(s->via, sizeof(s->via), "%s-%s", s->name, hex);
}

static enum err core_born(struct core *c)
{
    TRY(cache_core_begin(c));
    TRY(s3_core_begin(c));
    TRY(origin_core_begin(c));
    TRY(fill_core_begin(c));
    return net_core_begin(c);
}

static void core_drains(struct core *c)
{
    jobs_core_drain(c);
    plans_core_drain(c);
    net_core_drain(c);
    fill_core_drain(c);
    origin_core_drain(c);
}

static bool core_is_idle(struct core *c)
{
    return net_core_idle(c) && jobs_core_idle(c) && plans_core_idle(c) && fill_core_idle(c) &&
           origin_core_idle(c);
}

static void core_dies(struct core *c)
{
    net_core_end(c);
    fill_core_end(c);
    origin_core_end(c);
    s3_core_end(c);
    cache_core_end(c);
}

static int start_cores(struct server *s)
{
    struct core_plan plan = {.server = s,
                             .recv_buffers = RECV_BUFFERS,
                             .begin = core_born,
                             .drain = core_drains,
                             .idle = core_is_idle,
                             .end = core_dies};
    for (unsigned i = 0; i < s->core_count; i++) {
        struct core_start_error why;
        plan.number = i;
        if (core_start(&plan, &s->core[i], &why) != OK)
            return fail_start("loop", why.text);
    }
    return -1;
}

/* Before any thread: what they make once may be left half made when memory is short. */
static enum err set_up_libraries(void)
{
    TRY(sign_setup());
    return xml_setup();
}

static void follow_log(const struct settings *t)
{
    log_setup((enum log_level)t->config->log_level, (enum log_format)t->config->log_format);
}

static int fail_upstream(const struct server *s, unsigned number, const char *why)
{
    char which[64];
    snprintf(which, sizeof(which), "upstream %s", s->config->upstream[number].name);
    return fail_start(s->config->upstream_count > 1 ? which : "upstream", why);
}

static int begin_settings(struct server *s)
{
    struct conf_mistakes *m = mem_take(sizeof(*m));
    enum err e = m ? open_settings(s, m) : ERR_MEMORY;
    int code = -1;
    if (e != OK && m && m->count > 1)
        print_mistakes(m, false);
    if (e != OK)
        code = fail_start("configuration", m && m->count ? m->item[0].text : err_text(e));
    if (e == ERR_CONFIG && !settings_await_file(s->config))
        code = EXIT_USAGE;           /* credentials are somebody else's, and may come */
    mem_give(m);
    if (code >= 0)
        return code;
    s->settings = settings_follow(s->settings);
    follow_log(s->settings);
    return -1;
}

static int birth(struct server *s)
{
    char why[512] = "";
    struct core_start_error refused;
    enum err e = set_up_libraries();
    if (e != OK)
        return fail_start("libraries", err_text(e));
    if (geteuid() == 0 && !s->config->server_allow_root)
        return fail_start(
            "user", "running as root is refused: start it as another user, or say --allow-root");
    if (core_probe(&refused) != OK)
        return fail_start("io_uring", refused.text);
    s->core_count = s->config->server_workers ? s->config->server_workers : core_count_physical();
    /* an array of pointers: NOLINTNEXTLINE(bugprone-sizeof-expression) */
    s->core = mem_take(s->core_count * sizeof(*s->core));
    if (!s->core || server_name_stores(s) != OK)
        return fail_start("memory", "no memory");
    name_server(s);
    for (unsigned i = 0; i < s->core_count; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%u", i);
        metric_name_label(NAMED_WORKER, number);
    }
    int code = begin_settings(s);
    if (code >= 0)
        return code;
    if ((e = cache_open(s, why, &s->cache)) != OK)
        return fail_start("cache", why[0] ? why : err_text(e));
    for (unsigned i = 0; i < s->config->upstream_count; i++)
        if ((e = origin_open(s, i, why)) != OK)
            return fail_upstream(s, i, why[0] ? why : err_text(e));
    if ((e = fills_open(s)) != OK)
        return fail_start("memory", err_text(e));
    if ((e = net_open(s, &s3_request_ops, why)) != OK)
        return fail_start("listen", why[0] ? why : err_text(e));
    s->plan_ops = &plan_ops;
    if ((e = desk_open(s)) != OK)
        return fail_start("desk", err_text(e));
    code = start_cores(s);
    if (code >= 0)
        return code;
    if ((e = jobs_open(s)) != OK || (e = plans_open(s)) != OK)
        return fail_start("memory", err_text(e));
    if ((e = admin_open(s, why)) != OK)
        return fail_start("admin", why[0] ? why : err_text(e));
    return -1;
}

/* systemd's READY=1: a datagram to $NOTIFY_SOCKET. */
static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@')
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}

/* ---- reload ---- */

struct handover {                    /* settings on their way to the cores */
    _Atomic unsigned left;           /* cores that have not taken them */
    bool reload;                     /* else only credentials are new */
    struct core_part {
        struct message msg;
        struct handover *of;
        struct settings *next;       /* held for that core */
    } part[];
};

/* On the core's thread, between two turns. */
static void take_settings(struct core *c, struct message *msg)
{
    struct core_part *mine = container_of(msg, struct core_part, msg);
    core_take_settings(c, mine->next);
    s3_core_renew(c);
    origin_core_renew(c);
    atomic_fetch_sub_explicit(&mine->of->left, 1, memory_order_release);
}

static void count_reload(enum label_reload result)
{
    static struct metric_set *metrics; /* of this thread */
    if (!metrics)
        metrics = metric_set_make();
    if (metrics)
        metric_add(metrics, METRIC_CONFIG_RELOADS_TOTAL, result, 1);
}

static bool handover_over(struct server *s, struct handover *h)
{
    if (atomic_load_explicit(&h->left, memory_order_acquire) > 0)
        return false;
    bool reload = h->reload;
    mem_give(h);
    if (!reload)
        return true;
    count_reload(RELOAD_APPLIED);
    log_event(EVENT_RELOADED, "note=%s", log_value(span_of("from now on for all requests")));
    wishes_end(s);
    return true;
}

static void reject(struct server *s, const struct conf_mistakes *m, enum err e)
{
    unsigned shown = m->count < CONF_MISTAKES_MAX ? m->count : CONF_MISTAKES_MAX;
    for (unsigned i = 0; i < shown; i++)
        log_event(EVENT_RELOAD_REFUSED, "why=%s", log_value(span_of(m->item[i].text)));
    if (shown == 0)
        log_event(EVENT_RELOAD_REFUSED, "why=%s", log_value(span_of(err_text(e))));
    metric_gauge_set(METRIC_CONFIG_RELOAD_SUCCESS, 0, 0);
    count_reload(RELOAD_REFUSED);
    wishes_refused(s, e, m);
    wishes_end(s);
}

/* Credentials that somebody has to be asked for. */
static enum err fill_anew(struct server *s, struct settings *made, struct conf_mistakes *mistakes)
{
    struct text why;
    text_init(&why, mistakes->item[0].text, sizeof(mistakes->item[0].text));
    text_adds(&why, "upstream: ");
    enum err e = origin_fill(s, made, &why);
    mistakes->count = e == ERR_CREDENTIALS;
    return e;
}

static struct settings *read_anew(struct server *s, const struct wish *w)
{
    static struct conf_mistakes mistakes;
    char memory[4 * KIB];
    struct text changed;
    struct config *next = NULL;
    struct settings *made = NULL;
    enum err e = conf_load(w->file, environ, w->flag, w->flag_count, &next, &mistakes);
    text_init(&changed, memory, sizeof(memory));
    if (e == OK && (e = check_parts(next, s->config, &mistakes)) != OK)
        conf_give(next);
    unsigned kept = e == OK ? conf_keep_restart(next, s->config, &changed) : 0;
    if (e == OK)
        e = settings_make(s, next, &made, &mistakes);
    if (e == OK)
        e = fill_anew(s, made, &mistakes);
    if (e != OK) {
        settings_drop(made);
        reject(s, &mistakes, e);
        return NULL;
    }
    if (kept)
        log_event(EVENT_RESTART_NEEDED, "options=%s", log_value(text_span(&changed)));
    wishes_keep(s, text_span(&changed));
    return made;
}

static struct handover *make_handover(const struct server *s, bool reload)
{
    struct handover *h = mem_take(sizeof(*h) + s->core_count * sizeof(struct core_part));
    if (h)
        h->reload = reload;
    return h;
}

static void hand_over(struct server *s, struct settings *next, struct handover *h)
{
    settings_publish(s, next);
    atomic_init(&h->left, s->core_count);
    for (unsigned i = 0; i < s->core_count; i++) {
        h->part[i] = (struct core_part){
            .msg.deliver = take_settings, .of = h, .next = settings_hold(s)};
        core_send(s->core[i], &h->part[i].msg);
    }
}

/* Another minute, other schedules; NULL: the same ones. */
static struct handover *reschedule(struct server *s)
{
    struct handover *h = settings_are_due(s->settings) ? make_handover(s, false) : NULL;
    struct settings *now = h ? settings_hold(s) : NULL, *next = h ? settings_follow(now) : NULL;
    if (next == now) {
        settings_drop(now);
        mem_give(h);
        return NULL;
    }
    follow_log(next);
    hand_over(s, next, h);
    return h;
}

/* NULL: nothing has changed. */
static struct handover *reload(struct server *s, const struct wish *w)
{
    static const struct conf_mistakes none;
    struct handover *h = make_handover(s, true);
    wishes_begin(s);
    struct settings *next = h ? read_anew(s, w) : NULL;
    if (!h)
        reject(s, &none, ERR_MEMORY);
    if (!next) {
        mem_give(h);
        return NULL;
    }
    next = settings_follow(next);
    follow_log(next);
    metric_gauge_set(METRIC_CONFIG_RELOAD_SUCCESS, 0, 1);
    metric_gauge_set(METRIC_CONFIG_RELOAD_TIME_SECONDS, 0, (int64_t)clock_wall_s());
    hand_over(s, next, h);
    return h;
}

/* New credentials, all else as it is; NULL: none have come. */
static struct handover *renew(struct server *s)
{
    struct handover *h = origin_has_news(s) ? make_handover(s, false) : NULL;
    struct settings *next = h ? origin_renewed(s) : NULL;
    if (!next) {
        mem_give(h);
        return NULL;
    }
    hand_over(s, next, h);
    return h;
}

/* On the thread that gets credentials: ends main's sleep. */
static void wake_main(struct server *s)
{
    (void)s;
    kill(getpid(), SIGUSR1);
}

/* Not before it could answer for what is not cached. */
static void become_ready(struct server *s)
{
    if (atomic_load(&s->state) != SERVER_STARTING || settings_wait(s->settings))
        return;
    atomic_store(&s->state, SERVER_READY);
    metric_gauge_set(METRIC_UP_READY, 0, 1);
}

/* ---- the end ---- */

static bool drained(const struct server *s)
{
    for (unsigned i = 0; i < s->core_count; i++)
        if (!core_ended(s->core[i]))
            return false;
    return true;
}

/* Waits for a drained end of all cores; a second signal or the deadline cuts. */
static void drain(struct server *s, const sigset_t *signals)
{
    uint64_t end_ms = clock_ms() + s->settings->config->server_drain_timeout;
    for (unsigned i = 0; i < s->core_count; i++)
        core_stop(s->core[i]);
    bool cut = false;
    while (!cut && !drained(s)) {
        struct timespec tick = {.tv_nsec = 20 * 1000000};
        int sig = sigtimedwait(signals, NULL, &tick);
        cache_watch(s->cache);
        bool again = (sig == SIGTERM || sig == SIGINT) && !wishes_same_end(s);
        cut = again || clock_ms() >= end_ms;
    }
    if (cut && !drained(s)) {
        log_event(EVENT_DRAIN_CUT, "connections=%llu", (unsigned long long)net_connection_count(s));
        for (unsigned i = 0; i < s->core_count; i++)
            core_cut(s->core[i]);
    }
}

/* false: a disk hangs, and keeps what would have to end before memory can be freed. */
static bool death(struct server *s)
{
    bool joined = true;
    for (unsigned i = 0; i < s->core_count; i++)
        joined = core_try_join(s->core[i]) && joined;
    bool cut = !joined;              /* what still ran stays known, and dies with the process */
    for (unsigned i = 0; i < s->core_count; i++)
        cut = cut || s->core[i]->net || s->core[i]->fill || s->core[i]->cache;
    if (joined)                      /* else a core may still give it work */
        desk_close(s);
    net_close(s);
    plans_close(s);
    jobs_close(s);
    fills_close(s);
    for (unsigned i = s->config->upstream_count; i > 0 && !cut; i--)
        origin_close(s->origin[i - 1]);
    bool whole = cache_close(s->cache);
    cut = cut || !whole;
    for (unsigned i = 0; i < s->core_count && !cut; i++)
        core_free(s->core[i]);
    if (!cut)
        mem_give(s->core);
    if (whole && joined)
        settings_close(s);
    return whole && joined;
}

static int wait_for_end(struct server *s, const struct wish *w, const sigset_t *signals)
{
    struct handover *under_way = NULL;
    bool wanted = false;
    for (;;) {
        struct timespec tick = {.tv_sec = 1};
        if (cache_watch(s->cache))
            tick = (struct timespec){.tv_nsec = 100 * 1000000};
        if (under_way)
            tick = (struct timespec){.tv_nsec = 1000000};
        int sig = sigtimedwait(signals, NULL, &tick);
        /* what was suppressed is told even if the event does not come again */
        log_tick();
        s3_tell_refusals(false);
        wanted = wanted || sig == SIGHUP;
        if (under_way && handover_over(s, under_way)) {
            under_way = NULL;
            become_ready(s);
        }
        if (wanted && !under_way) {
            wanted = false;
            under_way = reload(s, w);
        }
        if (!under_way)
            under_way = renew(s);
        if (!under_way)
            under_way = reschedule(s);
        if (sig == SIGTERM || sig == SIGINT) {
            while (under_way && !handover_over(s, under_way))
                sigtimedwait(&(sigset_t){0}, NULL, &(struct timespec){.tv_nsec = 1000000});
            wishes_over(s);
            return sig;
        }
    }
}

static int serve(const struct config *config, const struct wish *wish)
{
    static struct server server;
    struct server *s = &server;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGUSR1);
    /* All threads inherit it. NOLINTNEXTLINE(concurrency-mt-unsafe) */
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    s->config = config;
    s->renewed = wake_main;
    s->started_ms = clock_ms();
    s->started_wall_s = clock_wall_s();
    log_setup((enum log_level)config->log_level, (enum log_format)config->log_format);
    metric_build_info(HEADPOND_VERSION, HEADPOND_REVISION, HEADPOND_LIBURING,
                      OpenSSL_version(OPENSSL_VERSION_STRING));
    metric_gauge_set(METRIC_START_TIME_SECONDS, 0, (int64_t)s->started_wall_s);
    metric_gauge_set(METRIC_CONFIG_RELOAD_SUCCESS, 0, 1);
    metric_gauge_set(METRIC_CONFIG_RELOAD_TIME_SECONDS, 0, (int64_t)s->started_wall_s);
    int code = birth(s);
    if (code >= 0 && s->core && s->core[0])
        _exit(code);                 /* cores run, and use what an exit would take down */
    if (code >= 0)
        return code;
    become_ready(s);
    char memory[KIB];
    struct text upstreams;
    text_init(&upstreams, memory, sizeof(memory));
    for (unsigned i = 0; i < config->upstream_count; i++)
        text_addf(&upstreams, "%s%s", i ? "," : "", config->upstream[i].endpoint);
    log_event(EVENT_STARTED, "version=%s listen=%s workers=%u upstream=%s start_ms=%llu",
              HEADPOND_VERSION, config->server_listen.item[0], s->core_count,
              log_value(text_span(&upstreams)),
              (unsigned long long)(clock_ms() - s->started_ms));
    notify("READY=1");
    int sig = wait_for_end(s, wish, &signals);
    atomic_store(&s->state, SERVER_DRAINING);
    metric_gauge_set(METRIC_UP_READY, 0, 0);
    notify("STOPPING=1");
    log_event(EVENT_STOPPING, "signal=%d connections=%llu", sig,
              (unsigned long long)net_connection_count(s));
    drain(s, &signals);
    admin_close(s);
    bool whole = death(s);
    s3_tell_refusals(true);
    log_event(EVENT_STOPPED, "uptime_s=%llu",
              (unsigned long long)(clock_wall_s() - s->started_wall_s));
    if (!whole)
        _exit(EXIT_DONE);            /* threads run that hang with their disk */
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    struct wish wish = {.what = WISH_SERVE};
    static struct conf_mistakes mistakes;
    struct config *config = NULL;
    prctl(PR_SET_DUMPABLE, 0);       /* secrets are in memory: no core files, no peeking */
    (void)tls_watch_memory();        /* a library that allocates earlier is the only reason */
    int code = read_command_line(argc, argv, &wish);
    if (code >= 0)
        return code;
    if (wish.what == WISH_LIST)
        return print_text(conf_list_options);
    mistakes.disks = wish.what == WISH_CHECK;
    if (conf_load(wish.file, environ, wish.flag, wish.flag_count, &config, &mistakes) != OK) {
        print_mistakes(&mistakes, wish.json);
        return EXIT_USAGE;
    }
    if (wish.what == WISH_CHECK)
        code = check_files(config, &mistakes, wish.json);
    else
        code = wish.what == WISH_PRINT ? print_effective(config) : serve(config, &wish);
    conf_give(config);
    return code < 0 ? EXIT_DONE : code;
}
