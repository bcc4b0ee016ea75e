/* Torture: every scenario again and again, each time something else goes wrong.
 *
 * A run: prepare, arm, play, disarm, then the server must come to rest, hold nothing, and answer
 * plain requests. Runs of a scenario share one server in one process; a process that dies is one
 * failure, and the next one goes on behind it.
 *
 * Invariants:
 *  1. What a run does is a function of the seed, the scenario and the injection, and of what the
 *     runs before it left behind, which is cleared as far as it can be.
 *
 * Life: the process of the parent; one child per scenario and death. Failure: counted, with the
 * command that repeats it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sanitizer/lsan_interface.h>

#include "mem.h"
#include "tests/sim/scenes.h"

enum {
    INJECTIONS_MAX = 64 * KIB,
    SETTLE_MS = 200 * 1000,
    CALM_MS = 3000,
    FORGET_MS = 12 * 1000,           /* upstream's failures count for 10 s */
    REAL_S_MAX = 60,                 /* of one run */
    EXIT_LEAK = 23,
    QUICK = 40, HEAVY_FULL = 300,    /* runs of a scenario */
};

struct shared {                      /* between the parent and the child that plays */
    _Atomic unsigned next;           /* of the list: the first not yet begun */
    _Atomic unsigned passed, failed, done;
    _Atomic uint64_t allocs, ops;    /* of the plain run */
    char failure[500];
};
struct options {
    uint64_t seed;
    const char *scenario, *inject;
    bool full, leaks;
};
static struct options options;
static struct shared *shared;

/* ---- names of injections ---- */

static void name_inject(const struct inject *i, char out[48])
{
    static const char *const kinds[] = {"none", "alloc", "allocs", "op", "disk"};

    if (i->kind == INJECT_NONE)
        snprintf(out, 48, "none");
    else if (i->kind >= INJECT_OP)
        snprintf(out, 48, "%s:%llu:%s", kinds[i->kind], (unsigned long long)i->at,
                 inject_outcome_name(i->outcome));
    else
        snprintf(out, 48, "%s:%llu", kinds[i->kind], (unsigned long long)i->at);
}

static bool read_inject(const char *text, struct inject *out)
{
    char outcome[20] = "";
    unsigned long long at = 0;

    *out = (struct inject){0};
    if (strcmp(text, "none") == 0)
        return true;
    if (sscanf(text, "alloc:%llu", &at) == 1)
        out->kind = INJECT_ALLOC;
    else if (sscanf(text, "allocs:%llu", &at) == 1)
        out->kind = INJECT_ALLOCS;
    else if (sscanf(text, "op:%llu:%19s", &at, outcome) == 2)
        out->kind = INJECT_OP;
    else if (sscanf(text, "disk:%llu:%19s", &at, outcome) == 2)
        out->kind = INJECT_DISK;
    out->at = at;
    while (out->kind >= INJECT_OP && strcmp(inject_outcome_name(out->outcome), outcome) != 0)
        if (++out->outcome == INJECT_OUTCOMES)
            return false;
    return out->kind != INJECT_NONE && at > 0;
}

/* ---- one run ---- */

static uint64_t seed_of(const struct scene *scene, const struct inject *plan)
{
    uint64_t h = options.seed * 0x9e3779b97f4a7c15u + 1;

    for (const char *at = scene->name; *at; at++)
        h = (h ^ (uint8_t)*at) * 0x100000001b3u;
    /* An operation's outcomes share their world up to the moment at which they differ. */
    return h ^ plan->at * 0xd6e8feb86659fd93u;
}

static void check_accounts(struct stage *s, const char *when)
{
    char memory[600];
    struct text held;

    text_init(&held, memory, sizeof memory);
    if (!life_settle(SETTLE_MS))
        stage_fail(s, "does not come to rest %s", when);
    life_accounts(&held);
    if (held.len > 0)
        stage_fail(s, "%s something is still held:%s", when, held.at);
}

/* The world is whole again: what is asked now is answered as always. */
static void recover(struct stage *s)
{
    check_accounts(s, "behind it");
    s->strict = true;
    sim_wait_ms(CALM_MS);
    if (s->scene->after)
        s->scene->after(s);
    else
        stage_get_all(s);
    if (!s->scene->life) {
        stage_new_key(s, "777");
        stage_get_all(s);
    }
    check_accounts(s, "behind plain requests");
}

static void run(struct stage *s, const struct scene *scene, const struct inject *plan)
{
    static const struct life standard;
    const struct life *life = scene->life ? scene->life : &standard;
    unsigned number = s->number + 1;

    *s = (struct stage){.scene = scene, .number = number, .strict = true, .a.fd = -1};
    alarm(REAL_S_MAX);
    sim_reseed(seed_of(scene, plan));
    stage_new_key(s, scene->size ? scene->size : "300");
    if (!life_is_up())
        life_begin(life);
    store_do("clear\nlisten on");
    sim_wait_ms(FORGET_MS);
    life_cool();
    life_mend();
    if (scene->set_up)
        scene->set_up(s);
    s->strict = false;
    if (scene->script)
        store_do("%s", scene->script);
    inject_arm(plan);
    scene->play(s);
    inject_disarm();
    store_do("clear");
    if (scene->ends)
        life_end();
    else
        recover(s);
    alarm(0);
}

/* ---- the list of injections ---- */

static unsigned full_list(struct inject *list, uint64_t allocs, uint64_t ops)
{
    unsigned n = 0;

    list[n++] = (struct inject){0};
    for (uint64_t at = 1; at <= allocs && n + 2 < INJECTIONS_MAX; at++) {
        list[n++] = (struct inject){INJECT_ALLOC, at, 0};
        list[n++] = (struct inject){INJECT_ALLOCS, at, 0};
    }
    for (uint64_t at = 1; at <= ops && n + INJECT_OUTCOMES < INJECTIONS_MAX; at++) {
        for (unsigned o = 0; o < INJECT_OUTCOMES; o++)
            list[n++] = (struct inject){INJECT_OP, at, o};
        list[n++] = (struct inject){INJECT_DISK, at, at % 2};  /* EIO or ENOSPC */
    }
    return n;
}

/* Equal shares of each kind, each share spread over the whole scenario. */
static unsigned thin_out(struct inject *list, unsigned count, unsigned want, uint64_t seed)
{
    unsigned kept = 1, allocs = 0;

    world.chance = seed;
    for (unsigned i = 1; i < count; i++)
        allocs += list[i].kind < INJECT_OP;
    for (unsigned i = 1; i < count; i++) {
        unsigned of = list[i].kind < INJECT_OP ? allocs : count - 1 - allocs;
        if (sim_below(of) < want / 2)
            list[kept++] = list[i];
    }
    return kept;
}

/* ---- the child ---- */

static void prepare_environment(void)
{
    static const char *const unset[] = {"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
                                        "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"};

    for (unsigned i = 0; i < ARRAY_COUNT(unset); i++)
        unsetenv(unset[i]);
    setenv("HOME", life_dir(), 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDSIMULATION", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secretofthesimulation", 1);
}

static void tell(const struct stage *s)
{
    snprintf(shared->failure, sizeof shared->failure, "%s", s->failure);
}

/* A start that is refused memory says no; it does not die, and it does not come up by half. */
static _Noreturn void try_birth(const struct scene *scene, const struct inject *plan)
{
    static const struct life standard;
    static struct stage s;

    s = (struct stage){.scene = scene, .strict = true, .a.fd = -1};
    alarm(REAL_S_MAX);
    sim_self()->server = true;
    sim_reseed(options.seed);
    inject_arm(plan);
    bool born = life_try(scene->life ? scene->life : &standard);
    inject_disarm();
    sim_self()->server = false;
    shared->allocs = inject_allocs();
    shared->ops = inject_ops();
    if (born) {
        stage_new_key(&s, "300");
        stage_get_all(&s);
        tell(&s);
        life_end();
    } else if (!inject_fired())
        snprintf(shared->failure, sizeof shared->failure, "the server does not start");
    fflush(NULL);
    _exit(shared->failure[0] != '\0');
}

static int child(const struct scene *scene, const struct inject *list, unsigned count)
{
    static struct stage s;

    prepare_environment();
    sim_start(options.seed);
    store_start();
    for (unsigned i = shared->next; i < count; i = shared->next) {
        shared->next = i + 1;
        shared->failure[0] = '\0';
        if (scene->birth)
            try_birth(scene, &list[i]);
        run(&s, scene, &list[i]);
        if (i == 0) {
            shared->allocs = inject_allocs();
            shared->ops = inject_ops();
        }
        if (options.leaks && __lsan_do_recoverable_leak_check())
            stage_fail(&s, "leaks");
        if (s.failure[0]) {
            tell(&s);
            fflush(NULL);
            life_is_up() ? _exit(1) : exit(1);
        }
        shared->passed++;
    }
    if (life_is_up())
        life_end();
    seal_front_end();
    store_stop();
    world.active = false;
    return 0;
}

/* ---- the parent ---- */

static void report(const struct scene *scene, const struct inject *list, int status)
{
    unsigned at = shared->next > 0 ? shared->next - 1 : 0;
    char name[48], how[64] = "";

    shared->failed++;
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, WTERMSIG(status) == SIGALRM ? "takes for ever" : "signal %d",
                 WTERMSIG(status));
    else if (WEXITSTATUS(status) == EXIT_LEAK)
        snprintf(how, sizeof how, "a leak (some run of it), or a sanitizer's report");
    else if (!shared->failure[0])
        snprintf(how, sizeof how, "exit %d", WEXITSTATUS(status));
    name_inject(&list[at], name);
    printf("FAILED %s %s: %s%s\n  again: make torture SEED=%llu SCENARIO=%s INJECT=%s\n",
           scene->name, name, how, shared->failure, (unsigned long long)options.seed, scene->name,
           name);
    fflush(stdout);
}

static int spawn(const struct scene *scene, const struct inject *list, unsigned count)
{
    int status;

    fflush(NULL);
    (void)life_dir();
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        int code = child(scene, list, count);
        exit(code);
    }
    while (waitpid(pid, &status, 0) < 0)
        must(errno == EINTR);
    life_remove_files();
    return status;
}

/* Plays the list from shared->next to its end, in as many processes as it takes. */
static void play_list(const struct scene *scene, const struct inject *list, unsigned count)
{
    while (shared->next < count) {
        unsigned before = shared->next;
        int status = spawn(scene, list, count);
        shared->passed += scene->birth && status == 0; /* a process each */
        if (status == 0 && scene->birth)
            continue;
        if (status == 0)
            break;
        report(scene, list, status);
        if (shared->next == before)
            break;                   /* it dies before any run */
    }
}

static void torture(const struct scene *scene, unsigned want)
{
    static struct inject list[INJECTIONS_MAX];
    unsigned count = 1, passed = shared->passed, failed = shared->failed;
    struct inject only;

    shared->next = 0;
    list[0] = (struct inject){0};
    if (options.inject && options.inject[0]) {
        if (!read_inject(options.inject, &only)) {
            printf("unknown injection: %s\n", options.inject);
            exit(2);
        }
        list[0] = only;
        play_list(scene, list, 1);
        return;
    }
    play_list(scene, list, 1);
    if (shared->failed > failed)
        return;
    count = full_list(list, shared->allocs, shared->ops);
    if (options.full)
        want = scene->heavy ? HEAVY_FULL : INJECTIONS_MAX;
    else if (scene->heavy)
        want /= 4;
    else if (scene->birth)
        want *= 4;                   /* a start has thousands of allocations */
    if (count > want)
        count = thin_out(list, count, want, options.seed);
    shared->next = 1;
    play_list(scene, list, count);
    printf("%-18s %4llu allocations %4llu operations: %u passed, %u failed\n", scene->name,
           (unsigned long long)shared->allocs, (unsigned long long)shared->ops,
           shared->passed - passed, shared->failed - failed);
    fflush(stdout);
}

int torture_main(int argc, char **argv)
{
    static const struct scene *const tables[] = {scenes_object, scenes_write, scenes_lists,
                                               scenes_other,
                                               scenes_jobs};

    options = (struct options){.seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
                               .scenario = argc > 2 ? argv[2] : "",
                               .inject = argc > 3 ? argv[3] : "",
                               .full = argc > 4 && argv[4][0],
                               .leaks = getenv("LEAKS") != NULL};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED);
    for (unsigned t = 0; t < ARRAY_COUNT(tables); t++)
        for (const struct scene *s = tables[t]; s->name; s++)
            if (!options.scenario[0] || strcmp(options.scenario, s->name) == 0)
                torture(s, QUICK);
    printf("torture: %u passed, %u failed\n", shared->passed, shared->failed);
    return shared->failed > 0 || shared->passed == 0;
}
