/* Runs a program for which fallocate() is not supported: sparse PROGRAM ARGUMENT... (sparse.h) */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "bench/sparse.h"

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: sparse PROGRAM ARGUMENT...\n");
        return 1;
    }
    if (sparse_begin())
        execv(argv[1], argv + 1);
    perror(argv[1]);
    return 1;
}
