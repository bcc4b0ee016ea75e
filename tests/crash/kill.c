/* Part kill: servers are killed at random moments under mixed load, and start again.
 *
 * Four lanes, each with one server: two whose data fits, two whose cache is smaller than its data;
 * one of each pair spreads over two directories. A round is: load, SIGKILL, start, compare.
 *
 * Invariants:
 *  1. What a client read whole more than five seconds before the kill, and what a HEAD just before
 *     it reported as held, must be served afterwards without a body byte from the origin: of all
 *     such objects 99 %.
 *  2. Nothing was torn by a kill alone: no checksum fails, no index is moved aside, no record is
 *     dropped.
 *
 * Life: lanes are threads; clients and a scraper are threads of a lane for the time of the load. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "tests/crash/lane.h"

enum {
    LANES = 4,
    THINGS_FIT = 90,
    THINGS_FLOW = 150,
    LAST_MS = 50,
    START_KILL_MS = 60,
    DRAIN_KILL_MS = 40
};

static struct lane lanes[LANES];
static _Atomic uint64_t due, held, start_kills;

static void lane_init(struct lane *l, unsigned number)
{
    bool fits = number % 2 == 0;

    l->dice = dice_of(world.seed, number);
    l->server = (struct daemon){.number = number, .dirs = number < 2 ? 1 : 2,
                                .workers = 1 + number % 2, .slab_mib = fits ? 1024 : 256,
                                .memory_mib = 64, .ttl_ms = number < 2 ? 1000 : 60000};
    l->flows = !fits;
    l->count = fits ? THINGS_FIT : THINGS_FLOW;
    l->full_bytes = (fits ? 150 : 600) * (uint64_t)MIB;
    snprintf(l->bucket, sizeof l->bucket, "b%u", number);
    things_init(l->thing, l->count, &l->dice, l->full_bytes);
}

/* The end of the load: a plain kill, one in the middle of a drain, or one in the next start. */
static void kill_server(struct lane *l)
{
    struct daemon *d = &l->server;

    if (dice(&l->dice, 6) == 0) {
        kill(d->pid, SIGTERM);
        poll(NULL, 0, (int)dice(&l->dice, DRAIN_KILL_MS));
    }
    daemon_end(d, SIGKILL);
    if (dice(&l->dice, 6) == 0) {
        atomic_fetch_add(&start_kills, 1);
        daemon_launch(d);
        poll(NULL, 0, (int)dice(&l->dice, START_KILL_MS));
        daemon_end(d, SIGKILL);
    }
}

static bool unhurt(struct lane *l, unsigned round)
{
    char *page = daemon_page(&l->server, "/metrics");
    static const char *const zero[] = {
        "headpond_checksum_failures_total", "headpond_disk_errors_total",
        "headpond_index_dropped_total", "headpond_index_moved_total",
        "headpond_index_errors_total"};
    bool good = page != NULL;

    for (unsigned i = 0; page && i < ARRAY_COUNT(zero); i++)
        if (metric_sum(page, zero[i], "") > 0) {
            tell("round %u lane %u: %s is %.0f after a kill alone", round, l->server.number,
                 zero[i], metric_sum(page, zero[i], ""));
            good = false;
        }
    mem_give(page);
    return good;
}

static void one_round(struct lane *l, unsigned round)
{
    uint64_t load_ms = 300 + dice(&l->dice, 1000);
    bool slow = dice(&l->dice, 3) == 0;

    if (slow)
        origin_tell("set %s/ rate=%llu", l->bucket,
                    (unsigned long long)(4 + dice(&l->dice, 30)) * MIB);
    lane_load(l);
    poll(NULL, 0, (int)load_ms);
    lane_mark_due(l);
    poll(NULL, 0, (int)dice(&l->dice, LAST_MS));
    lane_unmark_evicted(l);
    kill_server(l);
    lane_unload(l);
    if (slow)
        origin_tell("unset %s/", l->bucket);
    enum start start = daemon_start(&l->server);
    bool good = start == START_READY;
    if (!good) {
        tell("round %u lane %u: no start (%d, %s)", round, l->server.number, start,
             daemon_ending());
        daemon_show_log(&l->server);
    } else {
        good = lane_compare(l, round, &due, &held) && unhurt(l, round);
    }
    verdict(good && l->wrongs == 0, "kill round %u, lane %u: %s", round, l->server.number,
            l->server.home);
}

static void *run_lane(void *at)
{
    struct lane *l = at;
    char home[PATH_BYTES];

    snprintf(home, sizeof home, "%.150s/lane%u", world.root, l->server.number);
    if (!daemon_make(&l->server, home) || daemon_start(&l->server) != START_READY) {
        verdict(false, "lane %u does not start at all", l->server.number);
        return NULL;
    }
    for (unsigned round = l->server.number; round < world.rounds; round += LANES) {
        one_round(l, round);
        if (l->server.pid == 0 || l->wrongs > 0)
            return NULL;
    }
    verdict(daemon_end(&l->server, SIGTERM), "lane %u: the last end (%s)", l->server.number,
            daemon_ending());
    return NULL;
}

void part_kill(void)
{
    for (unsigned i = 0; i < LANES; i++)
        lane_init(&lanes[i], i);
    lanes_run(lanes, LANES, run_lane);
    uint64_t all = atomic_load(&due), kept = atomic_load(&held);
    tell("# kill: %u rounds, %llu more kills during a start; %llu of %llu committed objects hit",
         world.rounds, (unsigned long long)atomic_load(&start_kills), (unsigned long long)kept,
         (unsigned long long)all);
    verdict(all > 0 && kept * 100 >= all * 99, "99 %% of what was committed is there again");
}
