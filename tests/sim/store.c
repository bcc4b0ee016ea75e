/* The scripted origin of the plays, inside the simulation: its threads are fibers, its sockets are
 * the simulation's.
 *
 * Invariants:
 *  1. It is never refused memory and hears no replaced completion: only the server is under test.
 *
 * Life: store_start() before the server, store_stop() behind it. Failure: a mistake in a script
 * ends the run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tests/lib/origin.h"
#include "tests/sim/sim.h"

static struct origin *store;

void store_start(void)
{
    char why[200];
    struct origin_options options = {.quiet = true};

    must(!world.birth);
    store = origin_start(&options, why);
    if (!store)
        sim_fail(why);
}

void store_stop(void)
{
    origin_stop(store);
    store = NULL;
}

uint16_t store_port(void)
{
    return origin_port(store);
}

void store_do(const char *format, ...)
{
    char line[2 * KIB], memory[4 * KIB];
    struct text answer;
    va_list arguments;

    va_start(arguments, format);
    int len = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    must(len > 0 && (size_t)len < sizeof line);
    text_init(&answer, memory, sizeof memory);
    if (!origin_script(store, span_make(line, (size_t)len), &answer)) {
        fprintf(stderr, "%s: %.*s\n", line, (int)answer.len, answer.at);
        sim_fail("the origin's script is wrong");
    }
}

uint64_t store_requests(void)
{
    struct origin_stats s;

    origin_stats(store, &s);
    return s.requests;
}
