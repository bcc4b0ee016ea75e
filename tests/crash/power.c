/* Part power: the file system below a running server loses power, again and again.
 *
 * Two lanes, each with its cache on an ext4 volume of its own. A round is: load, with random
 * write-back of slab and index beside it so that pages reach the disk out of order; the cut; a
 * moment in which the server meets a dead disk; SIGKILL, unmount, mount, start, compare.
 *
 * Invariants:
 *  1. Recent objects may be lost, nothing wrong may be served, and each start succeeds.
 *  2. The index was synced at every commit, so none is ever moved aside, and what was read more
 *     than five seconds before the cut is there.
 *
 * Life: lanes are threads; the volumes live in this process's mount namespace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/crash/lane.h"

enum { LANES = 2, VOLUME_MIB = 1200, DEAD_DISK_MS = 300, OLD_MS = COMMITTED_MS + 2000 };

static struct lane lanes[LANES];
static _Atomic uint64_t due, held, deaths;

/* ---- write-back in any order ---- */
static void push_out(struct lane *l, const char *name, uint64_t *state)
{
    char path[PATH_BYTES * 2];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", l->server.dir[0], name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        off_t at = (off_t)(dice(state, (uint64_t)st.st_size) & ~4095ULL);
        (void)sync_file_range(fd, at, (off_t)(4096 * (1 + dice(state, 64))),
                              SYNC_FILE_RANGE_WRITE);
    }
    close(fd);
}

static void *shuffler_main(void *at)
{
    struct lane *l = at;
    uint64_t state = dice_of(l->dice, 77);

    while (!atomic_load(&l->over)) {
        push_out(l, "index/data.mdb", &state);
        push_out(l, "slab", &state);
        poll(NULL, 0, 1);
    }
    return NULL;
}

/* ---- a round ---- */
static bool cut(struct lane *l)
{
    bool with_journal = dice(&l->dice, 2);

    lane_mark_due(l);
    lane_unmark_evicted(l);
    if (!volume_cut(&l->volume, with_journal))
        return false;
    if (dice(&l->dice, 2))
        poll(NULL, 0, (int)dice(&l->dice, DEAD_DISK_MS));
    if (!daemon_alive(&l->server)) {
        atomic_fetch_add(&deaths, 1);
        tell("lane %u: the server died of the dead disk (%s)", l->server.number, daemon_ending());
        daemon_show_log(&l->server);
        return false;
    }
    daemon_end(&l->server, SIGKILL);
    return true;
}

static bool unhurt(struct lane *l)
{
    return daemon_metric(&l->server, "headpond_index_moved_total", "") == 0;
}

static void one_round(struct lane *l, unsigned round)
{
    pthread_t shuffler;

    lane_load(l);
    must(pthread_create(&shuffler, NULL, shuffler_main, l) == 0);
    poll(NULL, 0, 400 + (int)dice(&l->dice, 1500));
    /* In its last round a lane has something that is old enough, however few there were. */
    if (round + LANES >= world.rounds && clock_ms() < l->began_ms + OLD_MS)
        poll(NULL, 0, (int)(l->began_ms + OLD_MS - clock_ms()));
    bool good = cut(l);
    lane_unload(l);
    pthread_join(shuffler, NULL);
    daemon_end(&l->server, SIGKILL);
    if (!volume_unmount(&l->volume) || !volume_mount(&l->volume)) {
        verdict(false, "power round %u: the volume does not come back", round);
        return;
    }
    enum start start = daemon_start(&l->server);
    if (start != START_READY) {
        tell("round %u: no start (%d, %s)", round, start, daemon_ending());
        daemon_show_log(&l->server);
        good = false;
    } else {
        good = lane_compare(l, round, &due, &held) && unhurt(l) && good;
    }
    verdict(good && l->wrongs == 0, "power round %u, lane %u: %s", round, l->server.number,
            l->server.home);
}

static bool prepare(struct lane *l)
{
    struct daemon *d = &l->server;
    char home[PATH_BYTES];

    snprintf(home, sizeof home, "%.150s/lane%u", world.root, d->number);
    if (mkdir(home, 0700) != 0 || !volume_make(&l->volume, home, VOLUME_MIB, "extent") ||
        !volume_mount(&l->volume))
        return false;
    snprintf(d->dir[0], sizeof d->dir[0], "%.190s/cache", l->volume.at);
    return daemon_make(d, home) && daemon_start(d) == START_READY;
}

static void *run_lane(void *at)
{
    struct lane *l = at;

    if (!prepare(l)) {
        verdict(false, "power lane %u does not start at all", l->server.number);
        return NULL;
    }
    l->began_ms = clock_ms();
    for (unsigned round = l->server.number; round < world.rounds; round += LANES) {
        one_round(l, round);
        if (l->server.pid == 0 || l->wrongs > 0)
            return NULL;
    }
    daemon_end(&l->server, SIGTERM);
    verdict(volume_unmount(&l->volume), "lane %u: the volume unmounts", l->server.number);
    return NULL;
}

void part_power(void)
{
    for (unsigned i = 0; i < LANES; i++) {
        struct lane *l = &lanes[i];
        l->dice = dice_of(world.seed, 100 + i);
        l->server = (struct daemon){.number = i,
                                    .dirs = 1,
                                    .workers = 1,
                                    .slab_mib = i ? 256 : 1024,
                                    .memory_mib = 64,
                                    .ttl_ms = 60000};
        l->count = 80;
        l->flows = i == 1;
        snprintf(l->bucket, sizeof l->bucket, "b%u", i);
        things_init(l->thing, l->count, &l->dice, (i ? 600 : 110) * (uint64_t)MIB);
    }
    lanes_run(lanes, LANES, run_lane);
    uint64_t all = atomic_load(&due), kept = atomic_load(&held);
    tell("# power: %u cuts; %llu of %llu committed objects hit; %llu servers died of the dead disk",
         world.rounds, (unsigned long long)kept, (unsigned long long)all,
         (unsigned long long)atomic_load(&deaths));
    verdict(all > 0 && kept * 100 >= all * 99,
            "99 %% of what was committed is there again");
}
