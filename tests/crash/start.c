/* Part start: faults of the start itself. Servers are killed while they start, once or several
 * times in a row, and their system calls on the cache directory are made to fail.
 *
 * Invariants:
 *  1. The start after that works, whatever was left behind, and every byte is right.
 *  2. One kill during a start costs nothing of the cache.
 *  3. A start that meets a failing call ends by itself with a message, or serves: it never dies by
 *     a signal and never hangs.
 *
 * Life: two lanes, threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tests/crash/crash.h"

enum { LANES = 2, THINGS = 60, START_MS = 16, KILLS_MAX = 4 };

static struct lane {
    struct daemon server;
    struct thing thing[THINGS];
    char bucket[16];
    uint64_t dice;
    pthread_t thread;
} lanes[LANES];
static _Atomic unsigned refusals, served;

static bool read_all(struct lane *l, uint64_t *fetched)
{
    struct reader r;
    struct got got;
    bool good = reader_make(&r, l->server.port);

    *fetched = 0;
    for (unsigned i = 0; good && i < THINGS; i++) {
        struct ask a = {.thing = &l->thing[i], .bucket = l->bucket};
        uint64_t before = origin_body_bytes(l->bucket, l->thing[i].key);
        enum outcome out = reader_ask(&r, &a, &got);
        good = out == OUT_WHOLE;
        if (!good)
            tell("lane %u: %s: outcome %d %s", l->server.number, l->thing[i].key, out, r.why);
        *fetched += origin_body_bytes(l->bucket, l->thing[i].key) - before;
    }
    reader_end(&r);
    return good;
}

static const char *killed(struct lane *l, unsigned *kills)
{
    uint64_t fetched;

    *kills = 1 + (unsigned)(dice(&l->dice, 3) == 0 ? dice(&l->dice, KILLS_MAX) : 0);
    for (unsigned i = 0; i < *kills; i++) {
        daemon_launch(&l->server);
        poll(NULL, 0, (int)dice(&l->dice, START_MS));
        daemon_end(&l->server, SIGKILL);
    }
    if (daemon_start(&l->server) != START_READY)
        return "no start after kills during the start";
    if (!read_all(l, &fetched))
        return "not every answer was right";
    return *kills == 1 && fetched > 0 ? "one kill during a start cost something" : NULL;
}

static const char *bent(struct lane *l, char fault[80])
{
    static const char *const calls[] = {
        "openat:error=EIO",    "openat:error=EMFILE",   "pread64:error=EIO",
        "read:error=EIO",      "pwrite64:error=EIO",    "pwrite64:error=ENOSPC",
        "fdatasync:error=EIO", "fsync:error=EIO",       "fallocate:error=ENOSPC",
        "fallocate:error=EIO", "ftruncate:error=EIO",   "mmap:error=ENOMEM",
        "flock:error=EIO",     "newfstatat:error=EIO",  "mkdirat:error=ENOSPC",
        "write:error=EIO",     "unlinkat:error=EIO",    "renameat:error=EIO"};
    bool sticky = dice(&l->dice, 3) == 0;
    uint64_t fetched;

    snprintf(fault, 80, "%s:when=%llu%s", calls[dice(&l->dice, ARRAY_COUNT(calls))],
             (unsigned long long)(1 + dice(&l->dice, 4)), sticky ? "+" : "");
    l->server.under = fault;
    enum start start = daemon_start(&l->server);
    l->server.under = NULL;
    if (start == START_DIED || start == START_LATE)
        return start == START_DIED ? "it died" : "it hangs";
    atomic_fetch_add(start == START_READY ? &served : &refusals, 1);
    if (start == START_REFUSED && daemon_logged(&l->server, "cannot start") == 0)
        return "it ended without a word";
    /* Reads may fail now, too; they must be right all the same. */
    if (start == START_READY && !read_all(l, &fetched))
        return "not every answer was right under the fault";
    daemon_end(&l->server, SIGKILL);
    if (daemon_start(&l->server) != START_READY)
        return "no start after the fault";
    return read_all(l, &fetched) ? NULL : "not every answer was right after the fault";
}

static bool one_round(struct lane *l, unsigned round)
{
    char fault[80] = "";
    unsigned kills = 0;
    const char *why = dice(&l->dice, 2) ? killed(l, &kills) : bent(l, fault);

    if (!why && !daemon_settles(&l->server))
        why = "it does not settle";
    if (!why && dice(&l->dice, 2) && !daemon_end(&l->server, SIGTERM))
        why = "no proper end";
    verdict(!why, "start round %u, lane %u, %u kills, %s: %s (%s): %s", round, l->server.number,
            kills, fault, why ? why : "", daemon_ending(), l->server.home);
    if (why)
        daemon_show_log(&l->server);
    if (l->server.pid)
        daemon_end(&l->server, SIGKILL);
    return !why;
}

static void *run_lane(void *at)
{
    struct lane *l = at;
    char home[PATH_BYTES];
    uint64_t fetched;

    snprintf(home, sizeof home, "%.150s/lane%u", world.root, l->server.number);
    if (!daemon_make(&l->server, home) || daemon_start(&l->server) != START_READY ||
        !read_all(l, &fetched) || !daemon_settles(&l->server) || !daemon_end(&l->server, SIGTERM)) {
        verdict(false, "start lane %u cannot be filled", l->server.number);
        return NULL;
    }
    for (unsigned n = l->server.number; n < world.rounds; n += LANES)
        if (!one_round(l, n))
            break;
    return NULL;
}

void part_start(void)
{
    for (unsigned i = 0; i < LANES; i++) {
        struct lane *l = &lanes[i];
        l->dice = dice_of(world.seed, 300 + i);
        l->server = (struct daemon){.number = i, .dirs = 1, .workers = 1, .slab_mib = 1024,
                                    .memory_mib = 64, .ttl_ms = 3600000};
        snprintf(l->bucket, sizeof l->bucket, "b%u", i);
        things_init(l->thing, THINGS, &l->dice, 50 * (uint64_t)MIB);
        must(pthread_create(&l->thread, NULL, run_lane, l) == 0);
    }
    for (unsigned i = 0; i < LANES; i++)
        pthread_join(lanes[i].thread, NULL);
    tell("# start: %u rounds; under a failing call %u starts served, %u refused in words",
         world.rounds, atomic_load(&served), atomic_load(&refusals));
}
