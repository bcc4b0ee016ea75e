/* The simulation's program: sim torture|random ARGUMENTS. SPDX line below.
 *
 * Life: one process. Failure: usage. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tests/sim/sim.h"
#include "tls.h"

int main(int argc, char **argv)
{
    must(tls_watch_memory());
    if (argc > 1 && strcmp(argv[1], "torture") == 0)
        return torture_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "random") == 0)
        return random_main(argc - 1, argv + 1);
    fputs("usage: sim torture SEED SCENARIO INJECT FULL | sim random SEED ROUNDS\n", stderr);
    return 2;
}
