/* A lane: one server, its objects, and the clients that use them; shared by the parts kill and
 * power. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_LANE_H
#define HEADPOND_TESTS_LANE_H

#include "tests/crash/crash.h"

enum { LANE_THINGS = 160, LANE_CLIENTS = 3, COMMITTED_MS = 5000 };

struct lane {
    struct daemon server;
    struct volume volume;            /* part power only */
    struct thing thing[LANE_THINGS];
    uint64_t due[LANE_THINGS];       /* the version that must be there after the start; 0 = none */
    unsigned count;
    uint64_t full_bytes, dice, began_ms;
    double evicted;                  /* bytes, when the due ones were marked */
    char bucket[16];
    bool flows;                      /* its data is larger than its cache: it evicts */
    _Atomic bool over, gentle;       /* gentle: clients ask only for what is held */
    _Atomic unsigned wrongs;
    struct client {
        struct lane *lane;
        uint64_t dice;
        pthread_t thread;
    } client[LANE_CLIENTS];
    pthread_t scraper;
    pthread_t thread;
};

/* Clients and a scraper begin; end. They outlive the server. */
void lane_load(struct lane *l);
void lane_unload(struct lane *l);
/* Which objects must be there after a kill now: read COMMITTED_MS ago and held, as HEAD says. Where
 * the cache overflows this can only be said while nothing is evicted: in half of the rounds the
 * clients then leave it at that, in the others nothing is due. */
void lane_mark_due(struct lane *l);
/* Shortly before the kill: if something was evicted since the marking, nothing is due. */
void lane_unmark_evicted(struct lane *l);
/* Reads the due ones, then a sample of the others; false: something was wrong. */
bool lane_compare(struct lane *l, unsigned round, _Atomic uint64_t *due, _Atomic uint64_t *held);
void lanes_run(struct lane *lanes, unsigned count, void *(*run)(void *));

#endif
