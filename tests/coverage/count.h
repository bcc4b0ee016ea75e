/* Stands before everything in a build that counts: a child that leaves by _exit() writes what it
 * counted, too. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_COUNT_H
#define HEADPOND_COUNT_H

#include <unistd.h>

void __gcov_dump(void);
#define _exit(status) (__gcov_dump(), _exit(status))

#endif
