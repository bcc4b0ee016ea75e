/* The random simulation: clients, a store that changes and fails, refused memory and replaced
 * completions, a damaged disk, ends and restarts, all from one seed.
 *
 * What must hold of every answer: the bytes are those of the version that its ETag names; a clean
 * end has all of them; nothing hangs; what is 404 was once deleted; and a version that was replaced
 * is served no longer than the time to live, unless it is marked stale; one that was replaced
 * through the server is not served at all any more. What must hold at the end
 * of a round: rest, nothing held, every object right, also behind a restart.
 *
 * Invariants:
 *  1. A round is a function of its seed.
 *
 * Life: one process per round. Failure: the seed is told with the command that repeats it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem.h"
#include "tests/sim/stage.h"

enum {
    OBJECTS = 12, VERSIONS_MAX = 64, CLIENTS_MAX = 6, REQUESTS = 14, DEEDS = 12,
    SETTLE_MS = 400 * 1000, REAL_S_MAX = 120, EXIT_LEAK = 23,
};

struct thing {                       /* an object of the store */
    char key[STAGE_KEY_BYTES];
    uint64_t size;
    unsigned version;                /* newest */
    uint64_t since_us[VERSIONS_MAX]; /* when a version became the newest */
    unsigned written;                /* the newest that a write through the server made */
    bool deleted, ever_deleted;
    bool putting;                    /* the next version is on its way through the server */
};
static struct thing things[OBJECTS];
static uint64_t ttl_us;
static bool over, draining;
static unsigned writing;             /* writes through the server that are under way */
static char failure[400];
static struct { char failure[400]; } *shared;

static void fail(const char *format, ...) printf_like(1, 2);
static void fail(const char *format, ...)
{
    va_list arguments;

    if (failure[0])
        return;
    va_start(arguments, format);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
}

/* ---- the store ---- */

static void make_things(void)
{
    static const char *const sizes[] = {"0", "1", "300", "5000", "131072", "140000", "1M",
                                        "1100000", "2500000", "4M", "700", "9M"};

    for (unsigned i = 0; i < OBJECTS; i++) {
        struct thing *t = &things[i];
        struct stage s = {.failure = ""};
        snprintf(t->key, sizeof t->key, "thing-%u@%s", i, sizes[i]);
        snprintf(s.key, sizeof s.key, "%s", t->key);
        t->size = stage_size(&s);
        t->version = 1;
        store_do("object b \"%s\" size=%llu version=1", t->key, (unsigned long long)t->size);
    }
}

static void replace(struct thing *t)
{
    if (t->deleted || t->putting || t->version + 1 >= VERSIONS_MAX)
        return;
    store_do("bump b \"%s\"", t->key);
    t->since_us[++t->version] = world.now_us;
}

static void act_replace(void *thing)
{
    if (sim_one_in(3))
        sim_wait_ms(sim_below(200));
    replace(thing);
    if (sim_one_in(3))
        sim_wait_ms(sim_below(200));
}

static void vanish(struct thing *t)
{
    if (!t->deleted)
        store_do("delete b \"%s\"", t->key);
    t->deleted = t->ever_deleted = true;
}

static void bring_back(struct thing *t)
{
    if (!t->deleted || t->putting || t->version + 1 >= VERSIONS_MAX)
        return;
    t->since_us[++t->version] = world.now_us;
    store_do("object b \"%s\" size=%llu version=%u", t->key, (unsigned long long)t->size,
             t->version);
    t->deleted = false;
}

/* The same through the server. */
static void write_through(struct thing *t, bool whole_bucket)
{
    if (draining || t->deleted || t->version + 1 >= VERSIONS_MAX)
        return;
    writing++;
    life_write(&(struct life_change){.key = whole_bucket ? NULL : t->key}, act_replace, t);
    writing--;
    t->written = (unsigned)max_u64(t->written, t->version);
}

static void act_vanish(void *thing)
{
    vanish(thing);
}

static void delete_through(struct thing *t)
{
    if (draining)
        return;
    writing++;
    life_write(&(struct life_change){.key = t->key, .gone = true}, act_vanish, t);
    writing--;
}

static void act_put(void *thing)
{
    struct thing *t = thing;

    store_do("object b \"%s\" size=%llu version=%u", t->key, (unsigned long long)t->size,
             t->version + 1);
    t->since_us[++t->version] = world.now_us;
    t->deleted = false;
    if (sim_one_in(3))
        sim_wait_ms(sim_below(200));
}

/* A body comes through the server and is kept; some of them not to their end. */
static void put_through(struct thing *t)
{
    if (draining || t->putting || t->version + 1 >= VERSIONS_MAX)
        return;
    struct life_body b = {.version = t->version + 1, .size = t->size, .sent = t->size};
    if (sim_one_in(4))
        b.sent = sim_below(t->size + 1);
    t->putting = true;               /* the version is taken */
    writing++;
    life_write(&(struct life_change){.key = t->key, .body = &b}, act_put, t);
    writing--;
    t->putting = false;
    t->written = (unsigned)max_u64(t->written, b.sent == b.size ? b.version : 0);
}

static void bend(void)
{
    static const char *const knobs[] = {
        "status=503",
        "status=500",
        "reset=1",
        "cut=0",
        "cut=100",
        "cut=1200000 reset=1",
        "stall=1000",
        "silent=1",
        "delay=400",
        "ignore_range=1",
        "chunked=1",
        "close=1",
        "drip=1",
        "etag=none",
        "extra=7",
        "before=\"HTTP/1.1 100 Continue\\r\\n\\r\\n\"",
        "raw=\"HTTP/1.1 2\\r\\n\\r\\n\"",
        "pad=9000",
        "status=403",
        "rate=3000000",
    };
    store_do("next b/ count=%llu skip=%llu %s", 1 + (unsigned long long)sim_below(3),
             (unsigned long long)sim_below(3), knobs[sim_below(ARRAY_COUNT(knobs))]);
}

static void do_something(void)
{
    struct thing *t = &things[sim_below(OBJECTS)];

    switch (sim_below(20)) {
    case 0: vanish(t); break;
    case 12:
    case 13:
    case 14: write_through(t, false); break;
    case 15: write_through(t, true); break;
    case 16: delete_through(t); break;
    case 17:
    case 18:
    case 19: put_through(t); break;
    case 1:
    case 2: bring_back(t); break;
    case 3:
    case 4: replace(t); break;
    case 5: store_do("cut"); break;
    case 6: store_do("listen off\ncut"); break;
    case 7: store_do("listen on"); break;
    case 8: life_damage("b", t->key); break;
    default: bend(); break;
    }
}

/* Writes beside the other deeds, so that several are under way at a time. */
static void *keep_writing(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < DEEDS && !over && !draining; i++) {
        sim_wait_ms(sim_one_in(2) ? sim_below(1000) : sim_below(60));
        struct thing *t = &things[sim_below(OBJECTS)];
        if (sim_one_in(2))
            put_through(t);
        else
            write_through(t, sim_one_in(8));
    }
    return NULL;
}

static void *keep_store(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < DEEDS && !over; i++) {
        sim_wait_ms(sim_one_in(3) ? sim_below(4000) : sim_below(60));
        do_something();
    }
    store_do("listen on");
    return NULL;
}

/* ---- clients ---- */

struct want {
    struct thing *thing;
    bool head, ranged;
    uint64_t from, to;               /* to: exclusive */
    uint64_t asked_us;
    unsigned written;                /* when it was asked */
};

/* A version that was replaced before the time to live began may not be served any more. */
static void judge_age(const struct want *w, const struct reply *r)
{
    const struct thing *t = w->thing;
    uint64_t v = r->version;

    if (v > t->version)
        fail("%s: version %llu was never made", t->key, (unsigned long long)v);
    else if (v < w->written)
        fail("%s: version %llu is served behind a write of version %u", t->key,
             (unsigned long long)v, w->written);
    else if (v < t->version && t->since_us[v + 1] + ttl_us + 1000000 < w->asked_us &&
             strcmp(r->x_cache, "stale") != 0)
        fail("%s: version %llu was replaced %llu ms before it was asked for", t->key,
             (unsigned long long)v,
             (unsigned long long)(w->asked_us - t->since_us[v + 1]) / 1000);
}

static void judge(const struct want *w, const struct reply *r)
{
    bool good = r->status == 200 || r->status == 206;
    bool passed_on = strcmp(r->x_cache, "bypass") == 0, whole = r->status == 200 && passed_on;
    uint64_t len = whole ? w->thing->size : w->to - w->from; /* a store may ignore ranges */

    if (r->wrong[0])
        fail("%s: %s (status %d)", w->thing->key, r->wrong, r->status);
    else if (r->late)
        fail("%s: hangs after status %d and %llu bytes", w->thing->key, r->status,
             (unsigned long long)r->got);
    else if (!r->complete || (w->head && passed_on && r->length == UINT64_MAX))
        return;
    else if (good && (w->head ? r->length : r->got) != len)
        fail("%s: %llu bytes that look whole instead of %llu", w->thing->key,
             (unsigned long long)r->got, (unsigned long long)len);
    else if (good && r->etag[0])
        judge_age(w, r);
    else if (r->status == 404 && !w->thing->ever_deleted)
        fail("%s: 404, and it was never deleted", w->thing->key);
    else if (!good && r->status != 404 && r->status != 403 && r->status < 500)
        fail("%s: status %d %s", w->thing->key, r->status, r->code);
}

static void choose(struct want *w)
{
    struct thing *t = &things[sim_below(OBJECTS)];

    *w = (struct want){.thing = t, .head = sim_one_in(6), .to = t->size};
    w->ranged = !w->head && t->size > 0 && sim_one_in(2);
    if (w->ranged) {
        w->from = sim_below(t->size);
        w->to = w->from + 1 + sim_below(t->size - w->from);
    }
}

static void write_request(struct asker *a, struct want *w)
{
    char range[80] = "";

    if (w->ranged)
        snprintf(range, sizeof range, "Range: bytes=%llu-%llu\r\n", (unsigned long long)w->from,
                 (unsigned long long)w->to - 1);
    w->asked_us = world.now_us;
    w->written = w->thing->written;
    asker_send(a, "%s /b/%s HTTP/1.1\r\nHost: sim\r\n%s\r\n", w->head ? "HEAD" : "GET",
               w->thing->key, range);
}

/* An answer without ETag is upstream's, passed on; its bytes cannot be named. */
static void read_answer(struct asker *a, const struct want *w, struct reply *r)
{
    a->until_us = world.now_us + (uint64_t)900 * 1000000;
    asker_read(a, "b", w->thing->key, w->head, r);
    if (strncmp(r->wrong, "ETag  is not", 12) == 0 && strcmp(r->x_cache, "bypass") == 0)
        r->wrong[0] = '\0';
}

static void look_away(struct asker *a)
{
    char bytes[2000];

    if (sim_one_in(8))
        sim_wait_ms(sim_below(20000));
    if (!sim_one_in(10))
        return;
    sim_wait_ms(sim_below(5));
    if (a->fd >= 0)
        (void)wire_take(a->fd, bytes, sizeof bytes, false);
    asker_close(a);
}

static void *be_client(void *argument)
{
    struct asker *a = mem_take(sizeof *a);
    struct reply *r = mem_take(sizeof *r);
    struct want w, second;

    (void)argument;
    must(a && r);
    a->fd = -1;
    for (unsigned i = 0; i < REQUESTS && !draining && !failure[0]; i++) {
        bool two = sim_one_in(5);
        if (a->fd < 0)
            asker_open(a);
        choose(&w);
        choose(&second);
        write_request(a, &w);
        if (two)
            write_request(a, &second);
        look_away(a);
        if (a->fd < 0)
            continue;
        read_answer(a, &w, r);
        judge(&w, r);
        if (two && r->complete && !r->closes) {
            read_answer(a, &second, r);
            judge(&second, r);
        }
        if (!r->complete || r->closes || sim_one_in(6))
            asker_close(a);
        if (sim_one_in(4))
            sim_wait_ms(sim_below(3000));
    }
    asker_close(a);
    mem_give(a);
    mem_give(r);
    return NULL;
}

/* ---- a round ---- */

static void check_rest(const char *when)
{
    char memory[600];
    struct text held;

    text_init(&held, memory, sizeof memory);
    if (!life_settle(SETTLE_MS))
        fail("does not come to rest %s", when);
    life_accounts(&held);
    if (held.len > 0)
        fail("%s something is still held:%s", when, held.at);
}

static void check_all(const char *when)
{
    struct asker *a = mem_take(sizeof *a);
    struct reply *r = mem_take(sizeof *r);

    must(a && r);
    for (unsigned i = 0; i < OBJECTS && !failure[0]; i++) {
        struct want w = {.thing = &things[i], .to = things[i].size};
        asker_open(a);
        write_request(a, &w);
        read_answer(a, &w, r);
        asker_close(a);
        judge(&w, r);
        if (r->status != (w.thing->deleted ? 404 : 200) || !r->complete)
            fail("%s %s has status %d %s", when, w.thing->key, r->status, r->code);
    }
    mem_give(a);
    mem_give(r);
}

static const char *choose_ttl(void)
{
    static const struct { const char *text; uint64_t us; } ttls[] = {
        {"0s", 0}, {"1s", 1000000}, {"5s", 5000000}, {"60s", 60000000}};
    unsigned i = (unsigned)sim_below(ARRAY_COUNT(ttls));

    ttl_us = ttls[i].us;
    return ttls[i].text;
}

static void play(void)
{
    static const struct inject nothing;
    pthread_t keeper, writer, client[CLIENTS_MAX];
    unsigned clients = 1 + (unsigned)sim_below(CLIENTS_MAX);

    if (sim_one_in(2))
        inject_rates((unsigned)sim_below(sim_one_in(2) ? 4 : 40), (unsigned)sim_below(30));
    inject_arm(&nothing);
    must(pthread_create(&keeper, NULL, keep_store, NULL) == 0);
    must(pthread_create(&writer, NULL, keep_writing, NULL) == 0);
    for (unsigned i = 0; i < clients; i++)
        must(pthread_create(&client[i], NULL, be_client, NULL) == 0);
    if (sim_one_in(5)) {
        sim_wait_ms(sim_below(10000));
        draining = true;
        while (writing > 0)
            sim_wait_ms(1);
        life_drain();
    }
    for (unsigned i = 0; i < clients; i++)
        pthread_join(client[i], NULL);
    over = true;
    pthread_join(keeper, NULL);
    pthread_join(writer, NULL);
    inject_disarm();
    inject_rates(0, 0);
}

static void heal(void)
{
    store_do("clear\nlisten on");
    sim_wait_ms(ttl_us / 1000 + 5000);
    check_rest("behind it");
    sim_wait_ms(3000);
    check_all("behind it");
    check_rest("behind plain requests");
}

static int child(uint64_t seed)
{
    sim_start(seed);
    struct life life = {.workers = 1 + (unsigned)sim_below(2),
                        .set = {{"cache.ttl", choose_ttl()}}};
    store_start();
    life_begin(&life);
    make_things();
    alarm(REAL_S_MAX);
    play();
    if (!draining && !failure[0])
        heal();
    if (!failure[0]) {
        life_end();
        store_do("clear\nlisten on");
        life_begin(&life);
        sim_wait_ms(ttl_us / 1000 + 2000);
        check_all("behind a restart");
        check_rest("behind a restart");
    }
    memcpy(shared->failure, failure, sizeof failure);
    fflush(NULL);
    if (failure[0])
        _exit(1);
    life_end();
    store_stop();
    world.active = false;
    return 0;
}

/* ---- the parent ---- */

static bool play_round(uint64_t seed)
{
    int status;

    shared->failure[0] = '\0';
    fflush(NULL);
    setenv("HOME", life_dir(), 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDSIMULATION", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secretofthesimulation", 1);
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0)
        exit(child(seed));
    while (waitpid(pid, &status, 0) < 0)
        must(errno == EINTR);
    life_remove_files();
    if (status == 0)
        return true;
    printf("FAILED seed %llu: %s (%s %d)\n  again: make sim SEED=%llu ROUNDS=1\n",
           (unsigned long long)seed, shared->failure[0] ? shared->failure : "died",
           WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
           (unsigned long long)seed);
    return false;
}

int random_main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 100, passed = 0;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED);
    for (unsigned i = 0; i < rounds; i++)
        passed += play_round(seed + i);
    printf("sim: %u passed, %u failed\n", passed, rounds - passed);
    return passed < rounds;
}
