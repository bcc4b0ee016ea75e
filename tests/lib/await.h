/* Waiting in tests: for what must come true, never for a time that should be enough. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_AWAIT_H
#define HEADPOND_AWAIT_H

#include <poll.h>

#include "base.h"

enum { AWAIT_MS = 30000, AWAIT_EVERY_MS = 1 };

/* Looks again and again until it is so; the test fails when that takes too long for any machine. */
#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        uint64_t await_end_ = clock_ms() + AWAIT_MS;                                               \
        while (!(condition)) {                                                                     \
            if (clock_ms() >= await_end_)                                                          \
                fail_msg("waited in vain for %s", #condition);                                     \
            poll(NULL, 0, AWAIT_EVERY_MS);                                                         \
        }                                                                                          \
    } while (0)

#endif
