/* crash PART ROUNDS SEED: servers that are killed, lose power or are damaged; see crash.h.
 *
 *   kill     SIGKILL at random moments under load; what was committed is there again
 *   power    the same on a file system that loses power
 *   damage   one damage to slab, index, header or lock each; every byte right, every damage counted
 *   start    killed during the start, failing system calls during the start
 *   full     no room for slab or index
 *
 * Life: the origin and the lanes are threads of this process, the servers (HEADPONDD, else
 * build/release/headpondd) are children.
 * Failure: the exit code; the last line is "crash-PART: N passed, N failed". What failed is told
 * with its seed and round, and the directory is kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/crash/crash.h"

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {{"kill", part_kill},
             {"power", part_power},
             {"damage", part_damage},
             {"start", part_start},
             {"full", part_full}};

int main(int argc, char **argv)
{
    uint64_t rounds = 0, began = clock_ms();
    unsigned part = 0;

    while (argc == 4 && part < ARRAY_COUNT(parts) && strcmp(argv[1], parts[part].name) != 0)
        part++;
    if (argc != 4 || part == ARRAY_COUNT(parts) || span_u64(span_of(argv[2]), &rounds) != OK ||
        span_u64(span_of(argv[3]), &world.seed) != OK) {
        printf("usage: crash kill|power|damage|start|full ROUNDS SEED\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    world.rounds = (unsigned)rounds;
    world.program = getenv("HEADPONDD") ? getenv("HEADPONDD") : "build/release/headpondd";
    if (world_begin())
        parts[part].run();
    else
        verdict(false, "the world cannot begin");
    world_end();
    tell("# %s: %llu requests, %llu MiB compared, %llu s", parts[part].name,
         (unsigned long long)atomic_load(&world.asks),
         (unsigned long long)(atomic_load(&world.bytes) / MIB),
         (unsigned long long)((clock_ms() - began) / 1000));
    printf("crash-%s: %u passed, %u failed\n", parts[part].name, world.passed, world.failed);
    return world.failed != 0 || world.passed == 0;
}
