/* The program headpond: nothing but its beginning, so that tests may call the rest.
 *
 * Invariants:
 *  1. The exit code is that of ctl_run().
 *
 * Life: the process. Failure: see ctl.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

int main(int argc, char **argv)
{
    return ctl_run(argc, argv);
}
